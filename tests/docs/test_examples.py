"""Documentation is executed: Python blocks run, console blocks run and print what they show."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from reverie.cli import app
from tests.servers import Server
from tests.tiers import PROVE
from tests.upgrades import EARLIER, unpacked

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    if "```" in page.read_text("utf-8")
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A database that does not exist.
SERVER = re.compile(r"postgresql://reverie@db\.example/\w+")
# Where a page says that the server is.
ADDRESS = "127.0.0.1:7424"
# What only a shell understands.
SHELL = set("|<>;&$`*")
# An id as Reverie makes it, distinguished from words by having a digit and both cases.
ID = re.compile(r"\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])[A-Za-z0-9]{8}\b")


def give_files(page: Path, folder: Path) -> None:
    """Put the files into the folder that the examples of a page start from."""
    if page.stem == "upgrading":
        for name in ("old.db", "another.db"):
            unpacked(EARLIER[-1], folder, name)


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    found = BLOCK.findall(page.read_text("utf-8"))
    return [(language, text) for language, text in found if language in languages]


@pytest.fixture
def servers(page: Path, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Replaces each database address of a page by that of a real database."""
    text = page.read_text("utf-8")
    real: dict[str, str] = {}
    for address in dict.fromkeys(SERVER.findall(text)):
        server: Server = request.getfixturevalue("postgres")
        real[address] = server.database()

    def replaced(text: str) -> str:
        return SERVER.sub(lambda found: real[found[0]], text)

    return replaced


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_examples_in_the_docs_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    servers: Callable[[str], str],
) -> None:
    give_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in re.findall(r"^export (\w+)=(\S+)$", page.read_text("utf-8"), re.MULTILINE):
        if SERVER.fullmatch(value):
            monkeypatch.setenv(name, servers(value))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    script = "\n".join(text for _, text in blocks(page, "python"))
    if not script:
        return
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_console_examples_in_the_docs_print_what_they_show(
    page: Path, tmp_path: Path, servers: Callable[[str], str], background: Background
) -> None:
    give_files(page, tmp_path)
    ids: dict[str, str] = {}
    for _, text in blocks(page, "console"):
        for command, expected in sessions(text):
            for shown, real in ids.items():
                command = command.replace(shown, real)
            if command.startswith("reverie serve"):
                printed = background.start(command, tmp_path)
            else:
                real_command = background.found(servers(command))
                if PROVE or page.stem == "README" or SHELL & set(command):
                    printed = run(real_command, tmp_path)
                else:
                    printed = run_in_process(real_command, tmp_path)
            for line in expected:
                compare(background.found(line), printed, ids, command)


class Background:
    """The server of a page, on any port that is free."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._address = ADDRESS

    def found(self, text: str) -> str:
        return text.replace(ADDRESS, self._address)

    def start(self, command: str, folder: Path) -> str:
        self._process = subprocess.Popen(
            shlex.split(command.replace("reverie", f"{sys.executable} -m reverie", 1))
            + ["--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=folder,
            env=surroundings(folder),
        )
        assert self._process.stdout is not None
        printed = "".join(iter(self._process.stdout.readline, "Stop with Ctrl-C.\n"))
        address = re.search(r"127\.0\.0\.1:\d+", printed)
        assert address is not None, printed
        self._address = address[0]
        return printed

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=60)


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.stop()


def sessions(text: str) -> list[tuple[str, list[str]]]:
    """Each ``$ command`` with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip() and found:
            found[-1][1].append(line)
    return found


def run(command: str, folder: Path) -> str:
    assert shlex.split(command)[0] in {"reverie", "echo", "cat", "printf", "curl"}, command
    if command.startswith("curl") and shutil.which("curl") is None:
        pytest.skip("this page shows requests with curl, which is not installed here")
    done = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env=surroundings(folder),
        timeout=120,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def run_in_process(command: str, folder: Path) -> str:
    """Run a command of Reverie without starting Python again, which takes most of its time."""
    program, *arguments = shlex.split(command, comments=True)
    if program != "reverie":
        return run(command, folder)
    given = surroundings(folder)
    removed = dict.fromkeys(os.environ.keys() - given.keys())
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, arguments, env={**given, **removed}, catch_exceptions=False)
    assert done.exit_code == 0, f"{command}\n{done.stderr}"
    return done.stdout


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a user who has just installed it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "100",
    }


def compare(line: str, printed: str, ids: dict[str, str], command: str) -> None:
    """A shown line must be in the output; ``…`` matches anything, an id matches the new id."""
    shown = [found for found in ID.findall(line) if found not in ids]
    pattern = re.escape(re.sub(r"\s+", " ", line.strip()))
    for old, new in ids.items():
        pattern = pattern.replace(old, new)
    for old in shown:
        pattern = pattern.replace(old, "([A-Za-z0-9]{8})", 1)
    pattern = pattern.replace("…", ".*").replace(r"\ ", r"\s+")
    match = re.search(pattern, re.sub(r"[ \t]+", " ", printed))
    assert match, f"{command!r} does not print {line!r} but\n{printed}"
    ids.update(zip(shown, match.groups(), strict=True))
