"""Rules for every command: help with examples, --json, lazy imports, errors of one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from reverie.cli import COMMANDS, SYNONYMS, app
from reverie.cli.exit_codes import EXIT_CODES, exit_code, run
from reverie.errors import (
    ConfigError,
    EmbedderMissing,
    InvalidInput,
    KeyConflict,
    MissingExtra,
    NotFound,
    ReverieError,
    SharedReadOnly,
    StoreFull,
    VersionConflict,
)
from tests.cli.conftest import CommandLine


def walk(
    group: click.Group, ctx: click.Context, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from walk(command, ctx, (*path, name))


EVERY = dict(walk(app, click.Context(app, info_name="reverie")))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_has_help_with_examples_and_answers_in_json(
    path: tuple[str, ...], reverie: CommandLine
) -> None:
    shown = reverie.text(*path, "--help")
    assert "Examples:" in shown
    assert f"reverie {path[0]}" in shown.partition("Examples:")[2]
    command = EVERY[path]
    if not isinstance(command, click.Group):
        assert "--json" in shown
        assert any("--json" in param.opts for param in command.params)
    assert not reverie.store.exists()


def test_short_help_in_the_index_equals_the_help_of_each_command() -> None:
    for commands in COMMANDS.values():
        for name, (_, line) in commands.items():
            assert EVERY[(name,)].get_short_help_str(200) == line


def test_help_lists_every_command_and_every_exit_code(reverie: CommandLine) -> None:
    shown = reverie.text("--help")
    assert "Examples:" in shown
    for commands in COMMANDS.values():
        for name, (_, line) in commands.items():
            assert f"  {name}" in shown and line in shown
    for code, meaning in EXIT_CODES.items():
        assert str(code) in shown and meaning in shown


def test_reverie_without_arguments_prints_the_help(reverie: CommandLine) -> None:
    for arguments in ((), ("jobs",), ("backup",)):
        assert "Usage: reverie" in reverie.run(*arguments, code=2).stderr


def test_version_option_prints_the_version(reverie: CommandLine) -> None:
    assert reverie.text("--version") == "reverie, version 0.1.0\n"


def test_help_imports_no_command_module_and_no_heavy_library(reverie: CommandLine) -> None:
    script = (
        "import sys\n"
        "from reverie.cli import app\n"
        "app.main(['--help'], standalone_mode=False)\n"
        "heavy = {'rich', 'numpy', 'pydantic', 'reverie.cli.memories', 'reverie.cli.output'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("x"), 2),
        (ConfigError("x"), 2),
        (MissingExtra("x", "y"), 2),
        (ReverieError("x"), 2),
        (NotFound("x"), 3),
        (VersionConflict("x", 1, 2), 4),
        (KeyConflict("x"), 4),
        (SharedReadOnly("x"), 4),
        (StoreFull("x"), 5),
        (EmbedderMissing("x"), 6),
    ],
)
def test_each_error_class_has_its_exit_code(error: ReverieError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("search", "recall"),
        ("add", "remember"),
        ("delete", "forget"),
        ("rm", "forget"),
        ("LS", "list"),
        ("update", "revise"),
    ],
)
def test_verb_of_other_programs_names_the_command(
    reverie: CommandLine, word: str, meant: str
) -> None:
    assert f"did you mean {meant!r}" in reverie.error(word, "anything", code=2)


def test_synonyms_name_commands_and_are_none() -> None:
    commands = app.list_commands(click.Context(app))
    assert {*SYNONYMS.values()} <= {*commands} and not {*SYNONYMS} & {*commands}


def test_errors_are_printed_on_one_line(reverie: CommandLine) -> None:
    assert "did you mean 'recall'" in reverie.error("recal", code=2)
    assert "--help' lists them" in reverie.error("zzzzz", code=2)
    assert "'reverie recall --help'" in reverie.error("recall", code=2)
    assert "--frob" in reverie.error("list", "--frob", code=2)
    assert "No memory store found" in reverie.error("list", code=3)
    id = reverie.remember("one")
    assert "is at version 1" in reverie.error(
        "revise", id, "two", "--expected-version", "2", code=4
    )
    for arguments in (("list", "--limit", "0"), ("list", "--limit", "9" * 30)):
        assert "--limit" in reverie.error(*arguments, code=2)
    reverie.error("jobs", "drop", "9" * 30, code=2)


def test_errors_are_json_on_stderr_with_the_json_option(reverie: CommandLine) -> None:
    reverie.remember("one")
    for arguments, code, kind in (
        (("show", "nope1234"), 3, "NotFound"),
        (("list", "--frob"), 2, "UsageError"),
        (("recall", "x", "--since", "soon"), 2, "UsageError"),
        (("recall", "x", "--where", '{"color": {}}'), 2, "InvalidInput"),
    ):
        result = reverie.run(*arguments, "--json", code=code)
        assert result.stdout == ""
        error = json.loads(result.stderr)["error"]
        assert error["type"] == kind and error["message"]


def test_json_after_a_double_dash_is_content(reverie: CommandLine) -> None:
    output = reverie.error("remember", "--url", "/dev/null/x", "--", "--json", code=5)
    assert "/dev/null" in output


@pytest.mark.parametrize(
    "arguments",
    [
        ("recall", "x"),
        ("list",),
        ("show", "abcdefgh"),
        ("history", "abcdefgh"),
        ("revise", "abcdefgh", "x"),
        ("forget", "abcdefgh"),
        ("restore", "abcdefgh"),
        ("erase", "abcdefgh", "--yes"),
        ("export",),
        ("backup", "copy.db"),
        ("verify",),
        ("spaces",),
        ("doctor",),
        ("jobs", "list"),
        ("jobs", "retry", "1"),
        ("jobs", "retry", "--all"),
        ("jobs", "drop", "1"),
        ("worker", "--once"),
        ("reembed",),
        ("rebuild",),
        ("vacuum",),
    ],
    ids=" ".join,
)
def test_reading_commands_create_no_store(arguments: tuple[str, ...], reverie: CommandLine) -> None:
    assert "No memory store found at" in reverie.error(*arguments, code=3)
    assert list(reverie.folder.iterdir()) == []


def test_damaged_store_exits_with_the_store_error_code(reverie: CommandLine) -> None:
    reverie.store.write_text("not a database at all, but long enough to be read as one " * 20)
    assert "damaged" in reverie.error("list", code=5)


def test_changed_embedder_exits_with_the_embedding_error_code(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("one")
    monkeypatch.setenv("REVERIE_EMBEDDER", "local")
    assert "reverie reembed" in reverie.error("recall", "one", code=6)
    monkeypatch.setenv("REVERIE_EMBEDDER", "none")
    assert "no embedder" in reverie.error("recall", "one", "--mode", "vector", code=6)


def test_unusable_settings_exit_with_a_usage_error(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_MAX_FACTS", "many")
    assert "REVERIE_MAX_FACTS" in reverie.error("list", code=2)


def test_ctrl_c_and_file_errors_have_their_exit_codes() -> None:
    def interrupted() -> None:
        raise click.Abort

    def full() -> None:
        raise OSError(28, "No space left on device")

    def gone() -> None:
        raise BrokenPipeError

    assert run(interrupted, []) == 130
    assert run(full, []) == 5
    assert run(gone, []) == 141
    assert run(lambda: 7, []) == 7
    assert run(lambda: "text", []) == 0


# -- flags, environment, file ---------------------------------------------------------------------


def test_option_overrides_the_environment(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REVERIE_SPACE", "work")
    monkeypatch.setenv("REVERIE_USER", "alice")
    reverie.remember("hers")
    # What looks like a variable that was never set does not make a memory everyone's.
    assert "--user must not be empty" in reverie.run("remember", "x", "--user", "", code=2).stderr
    monkeypatch.delenv("REVERIE_USER")
    reverie.remember("shared")
    monkeypatch.setenv("REVERIE_USER", "alice")
    reverie.remember("elsewhere", "--space", "home", "--url", str(tmp_path / "other.db"))
    spaces = reverie.json("spaces")["spaces"]
    assert [(space["name"], space["users"], space["facts"]) for space in spaces] == [
        ("work", ["alice"], 2)
    ]
    contents = [memory["content"] for memory in reverie.json("list")["memories"]]
    assert contents == ["shared", "hers"]
    assert "(shared)" in reverie.text("list") and "alice" in reverie.text("list")
    other = reverie.json("spaces", "--url", f"sqlite://{tmp_path / 'other.db'}")["spaces"]
    assert [space["name"] for space in other] == ["home"]


def test_existence_check_and_engine_use_the_same_path(tmp_path: Path) -> None:
    from reverie.cli.options import store_file
    from reverie.config import Settings, default_url
    from reverie.engine.sqlite.engine import SQLiteEngine

    for url in (
        str(tmp_path / "a.db"),
        f"sqlite://{tmp_path}/b%20b.db",
        f"sqlite://{tmp_path}/b%20b.db?mode=ro",
    ):
        engine = SQLiteEngine(url)
        engine.close()
        assert store_file(Settings(url=url)) == engine.path
    assert store_file(Settings()) == Path(default_url())
    assert store_file(Settings(url="postgresql://localhost/x")) is None


# -- for real -------------------------------------------------------------------------------------


def test_installed_program_runs_in_a_process(reverie: CommandLine) -> None:
    done = reverie.real("remember", "Grüße aus Köln", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    memory = json.loads(done.stdout)
    listed = reverie.real("list")
    assert listed.returncode == 0
    assert memory["id"] in listed.stdout and "Grüße" in listed.stdout
    assert "\x1b" not in listed.stdout
    failed = reverie.real("show", "nope1234")
    assert (failed.returncode, failed.stdout) == (3, "")
    assert failed.stderr.startswith("reverie: ") and "Traceback" not in failed.stderr
    script = Path(sys.executable).with_name("reverie")
    assert subprocess.run([script, "--version"], check=True, capture_output=True).stdout


def test_output_survives_a_terminal_without_unicode(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("Grüße ☃")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    assert "Gr\\xfc" in reverie.real("list").stdout
    assert "#####" in reverie.real("recall", "Grüße", "--explain").stdout
    found = json.loads(reverie.real("list", "--json").stdout)
    assert found["memories"][0]["content"] == "Grüße ☃"


def test_closed_pipe_ends_the_command_without_an_error(reverie: CommandLine) -> None:
    lines = "\n".join(f"{number} {'word ' * 90}" for number in range(400))
    reverie.run("import", "-", given=lines)
    # One big write that the reader leaves in the middle of may count as done.
    for command, codes in ((("export",), {141}), (("list", "--limit", "400", "--json"), {0, 141})):
        with subprocess.Popen(
            [sys.executable, "-m", "reverie", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()
            output = process.stderr.read()
            assert process.wait(60) in codes
            assert output == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_disk_is_reported_on_one_line(reverie: CommandLine) -> None:
    reverie.remember("one")
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "reverie", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 5
    assert done.stderr.decode() == f"reverie: {os.strerror(28)}\n"


def test_ctrl_c_ends_a_running_process_with_its_exit_code(reverie: CommandLine) -> None:
    # A shell without job control lets its background jobs ignore it, and so all they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt_while_reading()
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_while_reading() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "reverie", "remember", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"x" * 1_000_000)  # more than a pipe holds: it is reading now
        process.stdin.flush()
        # One signal only: Python ends with SIGINT itself if another one comes while it shuts down.
        process.send_signal(signal.SIGINT)
        process.stdin.close()  # a signal between two reads is seen after the second one
        process.wait()
        output = process.stderr.read().decode()
        assert process.returncode == 130
    assert output.strip() == "reverie: stopped"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str, reverie: CommandLine) -> None:
    script = reverie.text("completion", shell)
    assert "_REVERIE_COMPLETE" in script
    assert reverie.json("completion", shell)["script"] in script
    reverie.error("completion", "tcsh", code=2)


def test_completion_script_completes_command_names(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_REVERIE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "reverie rem")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert reverie.real().stdout == "plain,remember\n"
