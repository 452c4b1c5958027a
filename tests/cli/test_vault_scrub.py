"""``reverie erase --rewrite-history`` and ``reverie vault scrub``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reverie.vault.git.repo import Repository
from reverie.vault.git.search import find_bytes
from tests.cli.conftest import CommandLine

SECRET = "the combination of the blue suitcase is seven nine three"


def in_git(root: Path) -> bool:
    repository = Repository.at(root)
    assert repository is not None
    return bool(find_bytes(repository, SECRET.encode()))


@pytest.fixture
def root(reverie: CommandLine) -> Path:
    reverie.run("vault", "init", "vault")
    return reverie.folder / "vault"


def test_erase_warns_that_git_history_keeps_the_text(reverie: CommandLine, root: Path) -> None:
    output = reverie.run("erase", reverie.remember(SECRET), "--yes")
    assert "'reverie vault scrub' removes it" in output.stderr
    assert in_git(root)
    assert "found nowhere" in reverie.text("vault", "scrub")
    assert not in_git(root)
    assert "No commit of the vault holds anything that was erased" in reverie.text("vault", "scrub")


def test_erase_with_rewrite_history_prints_its_proof(reverie: CommandLine, root: Path) -> None:
    output = reverie.text("erase", reverie.remember(SECRET), "--yes", "--rewrite-history")
    assert "Looked for" in output and "found nowhere" in output
    assert not in_git(root)


def test_erase_with_rewrite_history_returns_its_proof_as_json(
    reverie: CommandLine, root: Path
) -> None:
    id = reverie.remember(SECRET)
    report = reverie.json("erase", id, "--yes", "--rewrite-history")
    assert report["memory_id"] == id and report["history"]["found"] == []


def test_session_erase_with_rewrite_history_purges_git(reverie: CommandLine, root: Path) -> None:
    reverie.run("sessions", "append", "chat", SECRET)
    reverie.run("vault", "sync")
    assert in_git(root)
    output = reverie.text("sessions", "erase", "chat", "--yes", "--rewrite-history")
    assert "found nowhere" in output and not in_git(root)


def test_erase_without_a_vault_mentions_no_vault(reverie: CommandLine) -> None:
    output = reverie.run("erase", reverie.remember(SECRET), "--yes", "--rewrite-history")
    assert "vault" not in output.stdout + output.stderr


def test_rewrite_history_without_its_extra_erases_nothing(
    reverie: CommandLine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = reverie.remember(SECRET)
    monkeypatch.setitem(sys.modules, "git_filter_repo", None)
    message = reverie.error("erase", id, "--yes", "--rewrite-history", code=2)
    assert message.count("\n") <= 1 and "pip install 'reverie[vault]'" in message
    assert SECRET in reverie.text("show", id)
    reverie.run("erase", id, "--yes")
    assert "pip install 'reverie[vault]'" in reverie.error("vault", "scrub", code=2)


def test_erase_with_rewrite_history_purges_a_copy_of_the_index(
    reverie: CommandLine, root: Path
) -> None:
    id = reverie.remember(SECRET)
    reverie.remember("the green suitcase has no lock whatsoever")
    reverie.run("vault", "sync")
    index = root / "default" / "MEMORY.md"
    index.write_bytes(index.read_bytes() + b"\nWater the plants on Sunday.\n")
    reverie.run("vault", "sync")
    copy = root / "default" / "MEMORY.conflict-v0.md"
    assert SECRET in copy.read_text(encoding="utf-8")
    output = reverie.text("erase", id, "--yes", "--rewrite-history")
    assert "found nowhere" in output and not in_git(root)
    left = copy.read_text(encoding="utf-8")
    assert SECRET not in left and "Water the plants" in left and "no lock" in left
    assert copy.name in reverie.text("vault", "status")
