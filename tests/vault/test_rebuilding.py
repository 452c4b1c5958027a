"""A store from its vault alone, a vault from its store alone, and what of it survives what loss."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reverie import Space, Store
from reverie.errors import VaultError
from reverie.vault import operations, rebuilding
from tests.conftest import DAY, HOUR, FakeClock, Stores, rows
from tests.talking import user
from tests.vault.lives import asked, exported, live

OWN = {".git"}


def mirrored(stores: Stores, root: Path, turns: str = "together", **more: Any) -> Store:
    store = stores.open("first")
    live(store, stores.clock, **more)
    operations.init(store, root, turns=turns)
    return store


def files(root: Path) -> dict[str, bytes]:
    """Every file of a vault but the cache and git's own."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and path.relative_to(root).parts[0] != ".git"
        and not path.match(".reverie/files.db*")
        and not path.match(".reverie/lock")
    }


def same_hits(one: Store, other: Store, many: int) -> None:
    for info in one.spaces():
        for name in (None, *info.users):
            here, there = (store.space(info.name, user=name) for store in (one, other))
            for query in asked(3, many // 4):
                assert [(hit.id, hit.score) for hit in here.recall(query, limit=10)] == [
                    (hit.id, hit.score) for hit in there.recall(query, limit=10)
                ]


def summaries(store: Store) -> dict[Any, Any]:
    return {
        (info.name, name, session.id): summary
        for info in store.spaces()
        for name in (None, *info.users)
        for space in [store.space(info.name, user=name)]
        for session in space.sessions(include_hidden=True)
        if (summary := space.session(session.id).summary()).text
    }


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout


def lost_cache(root: Path) -> None:
    for path in (root / ".reverie").glob("files.db*"):
        path.unlink()


def lost_log(root: Path) -> None:
    for path in (root / ".reverie").glob("log*.jsonl"):
        path.unlink()


# -- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["kept", "lost"])
@pytest.mark.parametrize("turns", ["together", "apart"])
def test_a_store_comes_back_whole(stores: Stores, tmp_path: Path, turns: str, cache: str) -> None:
    root = tmp_path / "vault"
    first = mirrored(stores, root, turns)
    before, commits = files(root), git(root, "log", "--format=%H")
    if cache == "lost":
        lost_cache(root)
    stores.clock.step(DAY)
    second = stores.open("second")
    report = rebuilding.from_vault(second, root)
    assert report.problems == () and not report.synced and report.from_files == 0
    assert report.entries == len(exported(first)) > 600
    assert exported(second) == exported(first)
    assert summaries(second) == summaries(first)
    same_hits(first, second, 500)
    assert second.verify().ok
    assert [memory.id for memory in second.space("ana").memories()] == [
        memory.id for memory in first.space("ana").memories()
    ]
    assert not operations.sync(second)
    assert files(root) == before
    assert git(root, "diff", "HEAD") == "" and git(root, "log", "--format=%H") == commits
    anew = tmp_path / "anew"
    second.drain()
    rebuilding.to_vault(second, anew) if turns == "together" else operations.init(
        second, anew, turns=turns
    )
    assert files(anew) == before
