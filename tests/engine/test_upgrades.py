"""A store of every earlier schema is upgraded with all it holds, also after kill -9 at any write.

Of a SQLite store there is a whole backup beside it from then on, and never two.

``stores/schema-N.store.gz`` was written by the last revision that had schema N, and
``schema-N.json.gz`` is what that revision exported from it.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import apsw
import pytest

import reverie
from reverie import Settings
from reverie.engine import schema
from tests.conftest import PROVE
from tests.crash.failing_vfs import FailingVFS, FileKind, Operation
from tests.figures import figure
from tests.upgrades import (
    EARLIER,
    SCHEMAS,
    STORES,
    backups,
    log_rows,
    schema_of,
    unpacked,
)

# Of the writes of an upgrade each is the last one once; else some of them.
KILLS = 200 if PROVE else 3


def opened(address: str) -> reverie.Store:
    return reverie.open(address, settings=Settings(), embedder="hashing")


def lost_rows(number: int, path: Path) -> list[str]:
    """Compare with what the old revision exported; later revisions may say more of each entry."""
    raw = gzip.decompress((STORES / f"schema-{number}.json.gz").read_bytes())
    lost = []
    with opened(str(path)) as store:
        for owner in json.loads(raw):
            space = store.space(owner["space"], user=owner["user"])
            now = {record["uuid"]: record for record in space.export()}
            for record in owner["records"]:
                if not _holds(now.get(record["uuid"]), record):
                    lost.append(record["uuid"])
        assert store.verify().problems == ()
        assert store.space("ana").recall("amber birch", limit=3)
        assert store.space("ana").remember("and new things").version == 1
    return lost


def _holds(new: Any, old: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return all(_holds(new.get(name), value) for name, value in old.items())
    return bool(new == old)


def test_upgrade_tests_have_a_store_of_every_earlier_schema() -> None:
    assert set(range(1, schema.SCHEMA_VERSION)) <= set(SCHEMAS)


@pytest.mark.parametrize("number", SCHEMAS)
def test_upgrade_keeps_every_entry(tmp_path: Path, number: int) -> None:
    path = unpacked(number, tmp_path)
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == number
    connection.close()
    lost = lost_rows(number, path)
    figure("schemas upgraded", 1)
    figure("rows lost", len(lost))
    assert not lost
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == schema.SCHEMA_VERSION
    connection.close()


class _DeadlyVFS(FailingVFS):
    """Kills its process at the n-th write or sync."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    def passes(self, operation: Operation, kind: FileKind) -> None:
        if operation in {"write", "sync"}:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def killed_at(path: Path, at: int) -> bool:
    """Upgrade in a child that dies at its n-th write; False when it was done before."""
    child = os.fork()
    if not child:
        code = 1
        try:
            vfs = _DeadlyVFS(at)
            opened(f"sqlite://{path}?vfs={vfs.vfs_name}").close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def fresh(number: int, folder: Path) -> Path:
    """An old store with nothing beside it."""
    path = unpacked(number, folder)
    for file in backups(path):
        file.unlink()
    return path


def whole_backups(number: int, path: Path, expected: list[tuple[object, ...]]) -> int:
    """How many backups there are; each holds the store as it was."""
    found = [file for file in backups(path) if file.suffix == ".backup"]
    for file in found:
        assert schema_of(file) == number and log_rows(file) == expected
    return len(found)


@pytest.mark.parametrize("number", EARLIER)
@pytest.mark.sample(3)
def test_upgrade_survives_a_kill_at_any_write(tmp_path: Path, number: int) -> None:
    low, high = 1, 2
    path = fresh(number, tmp_path)
    entries = log_rows(path)
    while killed_at(path, high):
        low, high, path = high, high * 2, fresh(number, tmp_path)
    step = max(low // KILLS, 1)
    for at in range(1, high, step):
        path = fresh(number, tmp_path)
        if not killed_at(path, at):
            break
        kept, reached = whole_backups(number, path, entries), schema_of(path)
        assert reached == number or (reached == schema.SCHEMA_VERSION and kept == 1), (
            f"killed at write {at}"
        )
        lost = lost_rows(number, path)
        figure("kills", 1)
        figure("rows lost", len(lost))
        assert not lost, f"killed at write {at}"
        assert whole_backups(number, path, entries) == len(backups(path)) == 1
