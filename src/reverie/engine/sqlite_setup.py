"""How SQLite must be set up for a store: its version, the file's format, each connection."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from reverie.errors import StoreError

# Every older SQLite can corrupt a shared file when writers and checkpointers race.
OLDEST_SAFE = (3, 51, 3)
_INCREMENTAL = 2
_FULL = 2

# Of the file, kept in it: auto_vacuum before the first table, and before WAL writes page one.
# Setting either takes a write lock, so only the one who makes the file does.
FILE_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    ("auto_vacuum", "INCREMENTAL", _INCREMENTAL),
    ("journal_mode", "WAL", "wal"),
)
CONNECTION_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    # SQLite swallows the errors of its own checkpoints; ours are seen (see write).
    ("wal_autocheckpoint", "0", 0),
    ("synchronous", "FULL", _FULL),
    ("foreign_keys", "ON", 1),
    ("secure_delete", "ON", 1),
    ("temp_store", "MEMORY", 2),
    ("cache_size", "-32768", -32768),
    ("mmap_size", "0", 0),
)


def require_safe_sqlite() -> None:
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < OLDEST_SAFE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a shared file: "
            "pip install --upgrade apsw"
        )


def set_pragmas(connection: apsw.Connection, pragmas: Sequence[tuple[str, str, object]]) -> None:
    """One at a time and read back: a PRAGMA that SQLite does not honour is silent otherwise."""
    for name, value, expected in pragmas:
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
        row = connection.execute(f"PRAGMA {name}").fetchone()
        if row is not None and row[0] != expected:
            raise StoreError(f"SQLite refused PRAGMA {name} = {value} (it is {row[0]})")
