"""Real repositories, and git as a person uses it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from reverie.vault.git.repo import Repository

PERSON = {
    "GIT_AUTHOR_NAME": "Pat",
    "GIT_AUTHOR_EMAIL": "pat@example.org",
    "GIT_COMMITTER_NAME": "Pat",
    "GIT_COMMITTER_EMAIL": "pat@example.org",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "LC_ALL": "C",
}


def by_hand(
    root: Path, *arguments: str, given: bytes = b"", fine: tuple[int, ...] = (0,), **more: str
) -> bytes:
    """A person's own git; what it says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(root), *arguments],
        input=given,
        capture_output=True,
        env={**kept, **PERSON, **more},
        timeout=120,
        check=False,
    )
    assert done.returncode in fine, done.stderr.decode()
    return done.stdout


def made(root: Path) -> Repository:
    repo = Repository.at(root)
    assert repo is not None
    repo.init()
    return repo


def write(root: Path, path: str, content: str | bytes = "text\n") -> str:
    where = root / path
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def status(root: Path) -> list[str]:
    """As a person sees it, each line a name behind two letters."""
    output = by_hand(root, "status", "--porcelain", "-z", "-uall", "--no-renames")
    return [os.fsdecode(entry) for entry in output.split(b"\0")[:-1]]


def files(root: Path, commit: str = "HEAD") -> dict[str, tuple[bytes, bytes]]:
    """Mode and content of every file of a commit."""
    found = {}
    for line in by_hand(root, "ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
        about, _, name = line.partition(b"\t")
        mode, kind, one = about.split(b" ")
        content = by_hand(root, "cat-file", kind.decode(), one.decode()) if kind == b"blob" else one
        found[os.fsdecode(name)] = (mode, content)
    return found
