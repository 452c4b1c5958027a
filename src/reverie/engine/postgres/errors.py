"""Translates the errors of PostgreSQL and its driver into Reverie's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from psycopg import DataError, Error, InterfaceError, OperationalError, ProgrammingError, errors

from reverie.errors import (
    InvalidInput,
    ReverieError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

_RETRY_HINT = "repeat the call (a write with the same key)"
_BUSY = (
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.TooManyConnections,
)
# SQLSTATE prefixes: connection lost, server shutting down or starting, server crashed.
_CONNECTION_LOST_STATES = ("08", "57P", "XX000")


@contextlib.contextmanager
def translating_errors(where: str) -> Iterator[None]:
    """Raise the driver's errors in the block as Reverie's; ``where`` is the address shown."""
    try:
        yield
    except (Error, UnicodeEncodeError, OverflowError) as error:
        raise translate_error(error, where) from error


def translate_error(error: Exception, where: str) -> ReverieError:
    """Reverie's error for one of the driver: one line with what happened and what to do."""
    message = _first_line(error)
    if isinstance(error, _BUSY):
        return StoreBusy(f"another writer kept {where} locked for too long ({message}): try again")
    if isinstance(error, errors.DiskFull):
        return StoreFull(f"no space left for {where}: free some and {_RETRY_HINT}")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreReadOnly(f"{where} is a standby and cannot be written: give the primary")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreReadOnly(f"the database user of {where} lacks a right ({message}): grant it")
    if isinstance(error, errors.ProgramLimitExceeded):
        return InvalidInput(f"a text is too long for an index ({message}): shorten it")
    if _is_bad_value(error):
        return InvalidInput(f"a value cannot be stored ({message})")
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
        return StoreDamaged(
            f"{where} does not have the tables of this version of Reverie ({message}): "
            "open it again"
        )
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
        return StoreDamaged(f"{where} is damaged ({message}): restore a backup")
    if is_connection_lost(error):
        return StoreUnavailable(f"{where} cannot be reached ({message}): {_RETRY_HINT}")
    return StoreError(f"{where} failed to run a statement ({message})")


def _is_bad_value(error: Exception) -> bool:
    """Whether the caller passed a value that no column can hold or be compared with."""
    if isinstance(error, DataError | UnicodeEncodeError | OverflowError | errors.DatatypeMismatch):
        return True
    if isinstance(error, errors.UndefinedFunction):
        # The statements are correct, so a value has the wrong type, or pgvector was removed.
        return "vector" not in str(error)
    # The driver itself did not know how to send the value.
    return isinstance(error, ProgrammingError) and error.sqlstate is None


def is_connection_lost(error: Exception) -> bool:
    """Whether the connection was lost, rather than the statement being wrong."""
    state: str | None = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, OperationalError | InterfaceError)
    return state.startswith(_CONNECTION_LOST_STATES)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
