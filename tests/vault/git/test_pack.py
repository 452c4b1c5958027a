"""The packs of the vault's repository are combined, and nothing is lost by that."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reverie.vault.git import pack
from reverie.vault.git.pack import MAX_LOOSE, MAX_PACKS, pack_if_many
from reverie.vault.git.repo import Repository
from tests.tiers import PROVE
from tests.vault.repositories import by_hand, files, made, status, write
from tests.vault.vaults import Kept


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def repo(root: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr(pack, "MAX_PACKS", 4)
    return made(root)


def grow(repo: Repository, commits: int = 6) -> None:
    for number in range(commits):
        repo.commit([write(repo.root, "a", f"{number}\n")], f"edit {number}", author="ana")


def packs(root: Path) -> list[Path]:
    return sorted((root / ".git" / "objects" / "pack").glob("*.pack"))


def test_few_packs_are_left_alone(root: Path) -> None:
    assert MAX_PACKS > 3
    repo = made(root)
    grow(repo, 2)
    before = packs(root)
    assert not pack_if_many(repo)
    assert packs(root) == before


def test_many_packs_become_one_with_every_object(root: Path, repo: Repository) -> None:
    grow(repo)
    unreachable = by_hand(root, "hash-object", "-w", "--stdin", given=b"of nobody").decode().strip()
    assert pack_if_many(repo)
    assert len(packs(root)) == 1
    assert by_hand(root, "cat-file", "-p", unreachable) == b"of nobody"
    assert len(repo.log(limit=100)) == 7
    assert files(root)["a"] == (b"100644", b"5\n")
    assert status(root) == []
    by_hand(root, "fsck", "--strict")


@pytest.mark.prove
def test_many_loose_objects_are_packed(root: Path) -> None:
    repo, number, folder = made(root), 0, root / ".git" / "objects" / "17"
    lines = "".join(f"blob\ndata {len(str(n))}\n{n}\n" for n in range(9000)).encode()
    by_hand(root, "-c", "fastimport.unpackLimit=20000", "fast-import", "--quiet", given=lines)
    number = len(list(folder.iterdir()))
    assert number > MAX_LOOSE
    assert pack_if_many(repo)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock", "gc.pid", "objects/maintenance.lock"])
def test_packing_is_left_while_another_git_works(name: str, root: Path, repo: Repository) -> None:
    grow(repo)
    before = packs(root)
    write(root / ".git", name)
    assert not pack_if_many(repo)
    assert packs(root) == before
    (root / ".git" / name).unlink()
    assert pack_if_many(repo)


def test_packing_leaves_a_repository_that_borrows_objects(root: Path, repo: Repository) -> None:
    grow(repo)
    write(root / ".git", "objects/info/alternates", f"{root.parent}/other\n")
    assert not pack_if_many(repo)


def test_packs_are_readable_by_their_owner_alone(root: Path, repo: Repository) -> None:
    grow(repo)
    assert pack_if_many(repo)
    for path in (root / ".git" / "objects" / "pack").iterdir():
        assert path.stat().st_mode & 0o077 == 0


def test_leftovers_of_killed_git_are_removed(root: Path, repo: Repository) -> None:
    grow(repo)
    folder = root / ".git" / "objects" / "pack"
    (first, second, *_) = packs(root)
    stale = [
        folder / write(folder, "tmp_pack_x"),
        folder / write(folder, first.with_suffix(".keep").name, "fast-import"),
    ]
    fresh = folder / write(folder, "tmp_pack_y")
    theirs = folder / write(folder, second.with_suffix(".keep").name, "mine")
    for path in (*stale, theirs):
        os.utime(path, (time.time() - 2 * pack.LEFT_BEHIND_SECONDS,) * 2)
    assert pack_if_many(repo)
    assert not any(path.exists() for path in stale)
    assert fresh.exists()
    assert theirs.exists()
    assert second.exists()
    assert not first.exists()


PACKER = """
import sys
from pathlib import Path
from reverie.vault.git import pack
from reverie.vault.git.repo import Repository
pack.MAX_PACKS = 4
print(flush=True)
pack.pack_if_many(Repository.at(Path(sys.argv[1])))
"""


def test_killed_packing_loses_nothing(root: Path, repo: Repository) -> None:
    chance = random.Random("packing")
    for number in range(20 if PROVE else 4):
        grow(repo)
        process = subprocess.Popen(
            [sys.executable, "-c", PACKER, str(root)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.random() * 0.05)
        started = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for pid in started.read_text(encoding="utf-8").split() if started.exists() else []:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(pid), signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()
        assert len(repo.log(limit=1000)) == 6 * number + 7
        by_hand(root, "fsck", "--strict")
    grow(repo)
    assert pack_if_many(repo)
    assert status(root) == []


def test_commits_of_a_vault_pack_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "MAX_PACKS", 3)
    kept = Kept(tmp_path, git=True)
    for number in range(8):
        kept.store.space("ana").remember(f"fact {number}")
        assert kept.store.flush_to_vault() is None
    assert len(packs(kept.root)) <= 4
    assert len(by_hand(kept.root, "rev-list", "HEAD").split()) >= 9
    kept.store.close()


def test_failed_packing_does_not_fail_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pack, "MAX_PACKS", 0)
    monkeypatch.setattr(pack, "_REPACK", ("no-such-command",))
    kept = Kept(tmp_path, git=True)
    kept.store.space("ana").remember("fact")
    assert kept.store.flush_to_vault() is None
    assert "not packed" in caplog.text
    kept.store.close()
