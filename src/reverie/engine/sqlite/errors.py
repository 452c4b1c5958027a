"""Translates SQLite's errors into Reverie's."""

from __future__ import annotations

from pathlib import Path

import apsw

from reverie.engine.sqlite import store_file
from reverie.errors import (
    InvalidInput,
    ReverieError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
)

# Failed reads. A transaction that ends with one of these wrote nothing: it can be repeated without
# opening the store again.
_READ_FAILED = {
    apsw.SQLITE_IOERR_READ,
    apsw.SQLITE_IOERR_SHORT_READ,
    apsw.SQLITE_IOERR_CORRUPTFS,
    apsw.SQLITE_IOERR_FSTAT,
}


def translate_error(error: apsw.Error | MemoryError, path: Path) -> ReverieError | None:
    """Reverie's error for one of SQLite, with what to do next; None for an error in the SQL."""
    if isinstance(error, apsw.NoMemError | MemoryError) or _code(error) == apsw.SQLITE_IOERR_NOMEM:
        return StoreError(f"not enough memory to work with {path}: free some and try again")
    if isinstance(error, apsw.FullError):
        return StoreFull(
            f"no space left for {path}: free some and repeat the write with the same key"
        )
    if isinstance(error, apsw.ReadOnlyError):
        return StoreReadOnly(f"{path} cannot be written: check its permissions")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"another process kept {path} locked for too long: try again")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return StoreDamaged(
            f"{path} is not a store or is damaged: run 'reverie verify', then 'reverie salvage', "
            "or restore a backup with 'reverie backup restore'"
        )
    if isinstance(error, apsw.CantOpenError):
        return StoreError(f"{path} cannot be opened: check the path and the rights to its folder")
    if isinstance(error, apsw.IOError):
        return _disk_failure(error, path)
    if isinstance(error, apsw.TooBigError):
        return InvalidInput("the text is too long for one row: split it")
    return None


def _disk_failure(error: apsw.IOError, path: Path) -> StoreError:
    if _code(error) == apsw.SQLITE_IOERR_SHMSIZE:
        return StoreFull(f"no space left for {path}: free some and try again")
    if _code(error) in _READ_FAILED:
        return read_failure(path)
    return StoreFailed(
        f"the disk failed under {path} ({error}): check it, open the store again "
        "and repeat the write with the same key"
    )


def read_failure(path: Path) -> StoreFailed:
    """The error for a read that the disk failed."""
    return StoreFailed(
        f"the disk failed to read {path}: try again (repeat a write with the same key), and check "
        "the disk"
    )


def is_write_failure(error: BaseException) -> bool:
    """Whether a write or a sync failed, after which the state of the file is unknown."""
    return isinstance(error, apsw.IOError) and _code(error) not in {
        *_READ_FAILED,
        apsw.SQLITE_IOERR_NOMEM,
        apsw.SQLITE_IOERR_SHMSIZE,
    }


def is_database_intact(connection: apsw.Connection) -> bool:
    """Whether every page of the store can be read and none is damaged."""
    if connection.pragma("application_id") != store_file.APPLICATION_ID:
        return False
    return [row[0] for row in connection.execute("PRAGMA quick_check(1)")] == ["ok"]


def is_bad_value(error: BaseException) -> bool:
    """Whether the caller passed a value that no column can hold."""
    if isinstance(error, TypeError):
        return str(error).startswith("Bad binding argument")
    return isinstance(error, OverflowError | UnicodeEncodeError)


def is_damage(error: BaseException) -> bool:
    """Whether SQLite reports that the file is damaged."""
    return isinstance(error, apsw.NotADBError | apsw.CorruptError)


def is_read_failure(error: BaseException) -> bool:
    """Whether a read failed or gave wrong data, because of the disk or the file."""
    return is_damage(error) or (isinstance(error, apsw.IOError) and _code(error) in _READ_FAILED)


def _code(error: BaseException) -> int | None:
    code: int | None = getattr(error, "extendedresult", None)
    return code
