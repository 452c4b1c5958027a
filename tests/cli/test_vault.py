"""``reverie vault`` as a person runs it, and how other commands treat a vault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_serve import served
from tests.vault.vault_stores import eventually

ALEC = "Alec is my boss"


@pytest.fixture
def root(reverie: CommandLine) -> Path:
    return reverie.folder / "vault"


def file_of(reverie: CommandLine, id: str) -> Path:
    return Path(reverie.json("show", id)["file"])


def test_vault_init_writes_the_whole_store_in_one_commit(reverie: CommandLine, root: Path) -> None:
    ids = [reverie.remember(f"Fact {number}") for number in range(3)]
    output = reverie.text("vault", "init", "vault")
    assert output == f"The vault is {root}: 4 files, in git.\n"
    commits = reverie.json("vault", "log")["commits"]
    assert [commit["subject"] for commit in commits] == ["default: 3 remembered"]
    assert all(file_of(reverie, id).parent == root / "default" / "facts" for id in ids)
    assert reverie.json("vault", "init", "vault")["files"] == 4


def test_vault_init_writes_only_given_spaces_and_one_file_per_turn(
    reverie: CommandLine, root: Path
) -> None:
    for space in ("ana", "work", "other"):
        reverie.remember("Something", "--space", space)
    reverie.run("sessions", "append", "chat", "hello", "--space", "ana")
    found = reverie.json(
        "vault", "init", "vault", "--space", "ana", "--space", "work", "--turns", "apart"
    )
    assert found["spaces"] == ["ana", "work"]
    assert sorted(path.name for path in root.iterdir() if path.name[0] != ".") == ["ana", "work"]
    assert list(root.glob("ana/users/unnamed/sessions/*/chat/turns/user/*.md"))
    assert "ana, work" in reverie.text("vault", "status")


def test_vault_status_shows_folder_and_progress(reverie: CommandLine, root: Path) -> None:
    reverie.remember(ALEC)
    reverie.run("vault", "init", "vault")
    output = reverie.text("vault", "status")
    # A long path is folded within its column of the table.
    assert str(root) in "".join(output.split())
    assert "2, up to date" in output and "in git, 0 files" in output
    assert reverie.json("vault", "status") == {
        "path": str(root),
        "spaces": None,
        "files": 2,
        "behind": 0,
        "git": True,
        "uncommitted": 0,
        "conflict_copies": [],
        "missing": [],
        "withheld": [],
        "edited": [],
        "problems": [],
    }


def test_vault_status_names_unreadable_files_and_exits_1(reverie: CommandLine, root: Path) -> None:
    id = reverie.remember(ALEC)
    reverie.run("vault", "init", "vault")
    facts = root / "default" / "facts"
    (facts / "broken.md").write_text("---\nid: [\n---\n", encoding="utf-8")
    (facts / "latin.md").write_bytes(b"caf\xe9\n")
    (facts / "empty.md").write_text("", encoding="utf-8")
    (facts / "link.md").symlink_to(facts / "broken.md")
    # Without a sync, and after one: both name the same files.
    for _ in range(2):
        found = reverie.json("vault", "status", code=1)
        assert [line.partition(": ")[0] for line in found["problems"]] == [
            f"default/facts/{name}.md" for name in ("broken", "empty", "latin", "link")
        ]
        output = reverie.text("vault", "status", code=1)
        assert all(line in output for line in found["problems"])
        assert "up to date" not in output
        assert sorted(reverie.json("vault", "sync", code=1)["problems"]) == found["problems"]
    for name in ("broken", "empty", "latin", "link"):
        (facts / f"{name}.md").unlink()
    path = file_of(reverie, id)
    path.write_text(path.read_text("utf-8").replace("boss", "friend"), encoding="utf-8")
    output = reverie.text("vault", "status")
    assert "1 edited file to be read" in output and "up to date" not in output
    assert reverie.json("vault", "status")["edited"] == [f"default/facts/{path.name}"]
    path.unlink()
    path.mkdir()
    assert "folder" in reverie.json("vault", "status", code=1)["problems"][0]


def test_revise_reports_that_a_pending_edit_of_the_file_won(
    reverie: CommandLine, root: Path
) -> None:
    id = reverie.remember(ALEC)
    reverie.run("vault", "init", "vault")
    path = file_of(reverie, id)

    def edit(text: str) -> None:
        path.write_text(f"---\nid: {id}\nversion: {version()}\n---\n\n{text}\n", "utf-8")

    def version() -> int:
        number: int = reverie.json("show", id)["version"]
        return number

    edit("Alec is my friend")
    done = reverie.run("revise", id, "Alec is my neighbour")
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    copy = path.name.replace(".md", ".conflict-v2.md")
    assert first.startswith(f"Revised {id} (version 2): ")
    assert second.startswith("CONFLICT   default/facts/") and "the file's text is used" in second
    assert copy in second and "neighbour" in path.with_name(copy).read_text("utf-8")
    assert reverie.json("show", id)["content"] == "Alec is my friend"
    edit("Alec is my brother")
    found = reverie.json("revise", id, "Alec is my cousin")
    assert found["content"] == "Alec is my cousin" and "conflict-v4.md" in found["conflicts"][0]
    edit("Alec is my uncle")
    done = reverie.run("forget", id)
    assert "it is restored" in done.stdout and done.stderr == ""
    assert "conflicts" not in reverie.json("revise", id, "Alec is my aunt")


def test_vault_sync_holds_many_missing_files_until_confirmed(
    reverie: CommandLine, root: Path
) -> None:
    ids = [reverie.remember(f"Fact number {number}") for number in range(6)]
    reverie.run("vault", "init", "vault")
    paths = [file_of(reverie, id) for id in ids[:4]]
    for path in paths:
        path.unlink()
    output = reverie.text("vault", "sync", code=1)
    assert output.count("\n") == 1 and "nothing is forgotten yet" in output
    assert "--missing forget" in output and "--missing restore" in output
    assert len(reverie.json("vault", "status")["missing"]) == 4
    status = reverie.text("vault", "status")
    assert "missing" in status and all(path.name in status for path in paths)
    # Other commands neither forget nor write them again.
    reverie.remember("Something else")
    assert not any(path.exists() for path in paths)
    assert reverie.json("vault", "sync", "--missing", "restore")["forgotten"] == []
    assert all(path.is_file() for path in paths)
    for path in paths:
        path.unlink()
    assert len(reverie.json("vault", "sync", "--missing", "forget")["forgotten"]) == 4
    assert reverie.json("vault", "status")["missing"] == []
    assert reverie.json("show", ids[0])["forgotten_at"] is not None


def test_vault_sync_reports_changes_and_problems(reverie: CommandLine, root: Path) -> None:
    id = reverie.remember(ALEC)
    reverie.run("vault", "init", "vault")
    assert reverie.text("vault", "sync") == "Files and store say the same.\n"
    path = file_of(reverie, id)
    path.write_text(path.read_text("utf-8").replace("boss", "friend"), encoding="utf-8")
    (root / "default" / "facts" / "tea.md").write_text("I like tea\n", encoding="utf-8")
    assert reverie.text("vault", "sync").splitlines() == [
        "Remembered default/facts/tea.md",
        f"Revised    default/facts/{path.name}",
    ]
    assert reverie.json("show", id)["content"] == "Alec is my friend"
    (root / "default" / "facts" / "broken.md").write_text("---\nid: [\n---\n", encoding="utf-8")
    output = reverie.text("vault", "sync", code=1)
    assert output.startswith("PROBLEM    default/facts/broken.md: ") and output.count("\n") == 1
    found = reverie.json("vault", "sync", code=1)
    assert len(found["problems"]) == 1 and found["revised"] == []


def test_vault_sync_reports_a_conflict(reverie: CommandLine, root: Path) -> None:
    id = reverie.remember(ALEC)
    reverie.run("vault", "init", "vault")
    path = file_of(reverie, id)
    before = path.read_text("utf-8")
    reverie.run("revise", id, "Alec is my neighbour")
    path.write_text(before.replace("boss", "friend"), encoding="utf-8")
    assert "CONFLICT   default/facts/" in reverie.text("vault", "sync")
    assert reverie.json("show", id)["content"] == "Alec is my friend"
    output = reverie.text("vault", "status")
    assert ".conflict-v2.md" in output


def test_vault_log_and_diff_of_one_memory(reverie: CommandLine, root: Path) -> None:
    id, other = reverie.remember(ALEC), reverie.remember("Berta is my aunt")
    reverie.run("vault", "init", "vault")
    first = reverie.json("vault", "log")["commits"][0]["id"]
    reverie.run("revise", id, "Alec is my friend")
    reverie.run("forget", other)
    commits = reverie.json("vault", "log", id)["commits"]
    assert [commit["subject"] for commit in commits] == [
        f"default: Alec is my friend (revise {id})",
        "default: 2 remembered",
    ]
    assert reverie.json("vault", "log", "--limit", "1")["commits"][0]["subject"].endswith(
        f"(forget {other})"
    )
    output = reverie.text("vault", "diff", id, "--since", first)
    assert "-Alec is my boss\n" in output and "+Alec is my friend\n" in output
    assert "Berta" not in output
    assert "berta-is-my-aunt.md" in reverie.json("vault", "diff", "--since", first)["diff"]
    assert reverie.run("vault", "diff").stderr == "Nothing has changed since the last commit.\n"
    assert "is not a commit" in reverie.error("vault", "diff", "--since", "nowhere", code=5)
    assert "no file" in reverie.error("vault", "log", "absent00", code=3)
    assert commits[0]["id"][:12] in reverie.text("vault", "log")


def test_vault_log_of_a_space_omits_its_users(reverie: CommandLine) -> None:
    reverie.remember("Shared by all")
    reverie.remember("Bob has debts", "--user", "bob")
    reverie.run("vault", "init", "vault")
    first = reverie.json("vault", "log")["commits"][-1]
    assert "Bob has debts" not in json.dumps(first) and not any(
        "users" in path for path in first["paths"]
    )
    reverie.remember("Bob has a dog", "--user", "bob")
    assert "dog" not in reverie.text("vault", "log")
    assert "dog" not in reverie.text("vault", "diff", "--since", first["id"])
    assert "dog" in reverie.text("vault", "log", "--user", "bob")


def test_vault_checkpoint_commits_every_file(reverie: CommandLine, root: Path) -> None:
    reverie.remember(ALEC)
    reverie.run("vault", "init", "vault")
    (root / "notes.txt").write_text("a person's own\n", encoding="utf-8")
    assert reverie.text("vault", "checkpoint", "before the clean-up").endswith(
        ": before the clean-up\n"
    )
    assert reverie.json("vault", "checkpoint") == {"commit": None}
    assert "Nothing has changed" in reverie.run("vault", "checkpoint").stderr


def test_command_updates_the_vault_before_it_ends(reverie: CommandLine, root: Path) -> None:
    reverie.run("vault", "init", "vault")
    id = reverie.remember(ALEC, "--subject", "Alec")
    path = file_of(reverie, id)
    assert path.read_text("utf-8").endswith(f"\n{ALEC}\n")
    reverie.run("revise", id, "Alec is my friend")
    assert path.read_text("utf-8").endswith("\nAlec is my friend\n")
    reverie.run("forget", id)
    assert not path.exists() and "deleted" in file_of(reverie, id).parts
    reverie.run("restore", id)
    assert path.exists()
    reverie.run("sessions", "append", "chat", "hello there")
    turns = next(root.glob("default/users/unnamed/sessions/*/chat/turns.md"))
    assert "hello there" in turns.read_text("utf-8")
    reverie.run("erase", id, "--yes")
    assert not path.exists()
    kinds = {job["kind"] for job in reverie.json("jobs", "list")["jobs"]}
    assert not kinds & {"mirror", "commit"}
    assert reverie.json("vault", "status")["uncommitted"] == 0


def test_command_succeeds_although_the_vault_fails(reverie: CommandLine, root: Path) -> None:
    reverie.run("vault", "init", "vault")
    config = root / ".reverie" / "vault.json"
    whole = config.read_text("utf-8")
    config.write_text("{", encoding="utf-8")
    done = reverie.run("remember", ALEC)
    assert done.stdout.startswith("Remembered ")
    assert done.stderr.startswith("The vault does not show this yet: ")
    assert done.stderr.count("\n") == 1
    config.write_text(whole, encoding="utf-8")
    reverie.run("jobs", "retry", "--all")
    assert reverie.json("worker", "--once")["failed"] == 0
    assert reverie.json("vault", "status")["behind"] == 0


def test_vault_folder_is_taken_from_the_settings(
    reverie: CommandLine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_VAULT", str(root))
    id = reverie.remember(ALEC)
    assert file_of(reverie, id).is_file()


def test_vault_commands_without_a_vault_say_how_to_create_one(reverie: CommandLine) -> None:
    id = reverie.remember(ALEC)
    for command in (("status",), ("sync",), ("watch",), ("log",), ("diff",), ("checkpoint",)):
        assert "reverie vault init" in reverie.error("vault", *command, code=5)
    assert reverie.json("show", id)["file"] is None
    assert "file" not in reverie.text("show", id).split("content")[0].split()


def test_missing_vault_folder_is_reported(reverie: CommandLine, root: Path) -> None:
    id = reverie.remember(ALEC)
    reverie.run("vault", "init", "vault")
    shutil.move(root, root.with_name("away"))
    assert str(root) in reverie.error("vault", "sync", code=5)
    assert reverie.json("show", id)["file"] is None


def environment(reverie: CommandLine) -> dict[str, str]:
    return {**os.environ, "REVERIE_URL": str(reverie.store), "REVERIE_EMBEDDER": "hashing"}


@contextmanager
def started(
    reverie: CommandLine, arguments: list[str], *, out: int | None = None, err: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program of its own, which is gone when the block ends, however it ends."""
    with subprocess.Popen(
        arguments, env=environment(reverie), text=True, stdout=out, stderr=err
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_vault_watch_prints_changes_until_it_is_stopped(
    reverie: CommandLine, root: Path, flags: tuple[str, ...]
) -> None:
    reverie.run("vault", "init", "vault")
    folder = root / "default" / "facts"
    folder.mkdir(parents=True)
    arguments = [sys.executable, "-m", "reverie", "vault", "watch", *flags]
    with started(reverie, arguments, out=subprocess.PIPE) as process:
        assert process.stdout is not None
        if not flags:
            assert process.stdout.readline() == f"Watching {root}. Stop with Ctrl-C.\n"
        (folder / "tea.md").write_text("I like tea\n", encoding="utf-8")
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 0
    if flags:
        assert json.loads(line)["remembered"] == ["default/facts/tea.md"]
        assert json.loads(rest) == {"stopped": "SIGINT"}
    else:
        assert line == "Remembered default/facts/tea.md\n"
        assert rest == "Stopped by SIGINT.\n"
    assert [each["content"] for each in reverie.json("list")["memories"]] == ["I like tea"]


def test_serve_mirrors_and_watches_the_vault(tmp_path: Path) -> None:
    root, token = tmp_path / "vault", "x" * 40
    given = {"REVERIE_VAULT": str(root), "REVERIE_TOKEN": token}
    with served(tmp_path, **given) as places:
        assert places["vault"] == str(root)
        base = places["rest"].removesuffix("/docs")
        with httpx2.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}) as client:
            made = client.post("/api/memory/", json={"content": ALEC}).json()
            address = f"/api/memory/{made['id']}"
            eventually(lambda: client.get(address).json()["file"])
            path = root / client.get(address).json()["file"]
            assert client.get(address).json()["local_file"] == str(path)
            text = path.read_text("utf-8")
            path.write_text(text.replace("boss", "friend"), encoding="utf-8")
            eventually(lambda: client.get(address).json()["content"] == "Alec is my friend")


def test_worker_mirrors_and_watches_the_vault(reverie: CommandLine, root: Path) -> None:
    reverie.run("vault", "init", "vault")
    folder = root / "default" / "facts"
    folder.mkdir(parents=True)
    with started(reverie, [sys.executable, "-m", "reverie", "worker"]) as process:
        (folder / "tea.md").write_text("I like tea\n", encoding="utf-8")
        eventually(lambda: reverie.json("list")["memories"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_worker_without_the_vault_extra_runs_and_says_so(reverie: CommandLine, root: Path) -> None:
    reverie.run("vault", "init", "vault")
    hidden = (
        "import sys; sys.modules['watchfiles'] = None; from reverie.cli import main; "
        "sys.argv = ['reverie', *{arguments}]; main()"
    )
    code = hidden.format(arguments=["vault", "watch"])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(reverie)
    )
    assert done.returncode == 2 and "pip install 'reverie[vault]'" in done.stderr
    code = hidden.format(arguments=["worker"])
    with started(reverie, [sys.executable, "-c", code], err=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert "pip install 'reverie[vault]'" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
