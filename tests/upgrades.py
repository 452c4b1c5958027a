"""Stores of earlier and of later schemas, for tests of upgrades."""

from __future__ import annotations

import gzip
from pathlib import Path

import apsw
import pytest

from reverie.engine import schema

STORES = Path(__file__).parent / "engine" / "stores"
SCHEMAS = sorted(int(path.name[7:-9]) for path in STORES.glob("schema-*.store.gz"))
EARLIER = [number for number in SCHEMAS if number < schema.SCHEMA_VERSION]


def unpacked(number: int, folder: Path, name: str = "old.db") -> Path:
    """A store that the last revision with schema ``number`` wrote."""
    path = folder / name
    path.write_bytes(gzip.decompress((STORES / f"schema-{number}.store.gz").read_bytes()))
    for suffix in ("-wal", "-shm"):
        (folder / (name + suffix)).unlink(missing_ok=True)
    return path


def backups(path: Path) -> list[Path]:
    """Every upgrade backup beside a store, and whatever else an upgrade left there."""
    own = {path.name + suffix for suffix in ("", "-wal", "-shm", "-lock")}
    return sorted(
        file
        for file in path.parent.iterdir()
        if file.name.startswith(path.name) and file.name not in own
    )


def schema_of(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


def log_rows(path: Path) -> list[tuple[object, ...]]:
    """The log of a SQLite store, in the columns that every schema has."""
    connection = apsw.Connection(str(path))
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        return connection.execute(
            "SELECT space, position, owner, op, uuid, body FROM log ORDER BY space, position"
        ).fetchall()
    finally:
        connection.close()


def add_step(monkeypatch: pytest.MonkeyPatch) -> int:
    """Give this program one more schema step; return its number."""
    step = ("ALTER TABLE log ADD COLUMN of_the_next_step TEXT",)
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, step))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    return schema.SCHEMA_VERSION
