"""What SQLite raises, as ours."""

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

# A transaction that ends with one of these wrote nothing: it can be repeated as soon as the disk
# answers, without opening the store again.
_READ_FAILED = {
    apsw.SQLITE_IOERR_READ,
    apsw.SQLITE_IOERR_SHORT_READ,
    apsw.SQLITE_IOERR_CORRUPTFS,
    apsw.SQLITE_IOERR_FSTAT,
}


def translate_error(error: apsw.Error | MemoryError, path: Path) -> ReverieError | None:
    """One line that says what happened and what to do next; None: the caller's own mistake."""
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
            "or bring a backup back with 'reverie backup restore'"
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
    return StoreFailed(
        f"the disk failed to read {path}: try again, a write with the same key, and check the disk"
    )


def is_write_failure(error: BaseException) -> bool:
    """Whether what is on the disk is not known any more: a write or a sync failed."""
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
    """Whether a caller gave a value that no column holds; nothing stored can cause that."""
    if isinstance(error, TypeError):
        return str(error).startswith("Bad binding argument")
    return isinstance(error, OverflowError | UnicodeEncodeError)


def is_damage(error: BaseException) -> bool:
    return isinstance(error, apsw.NotADBError | apsw.CorruptError)


def is_read_failure(error: BaseException) -> bool:
    """Whether what was read may be wrong, by the disk's or the file's fault."""
    return is_damage(error) or (isinstance(error, apsw.IOError) and _code(error) in _READ_FAILED)


def _code(error: BaseException) -> int | None:
    code: int | None = getattr(error, "extendedresult", None)
    return code
