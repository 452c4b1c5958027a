"""Base class of the engines: an engine belongs to one process, a thread has one transaction."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from reverie.engine import schema, upgrade
from reverie.errors import (
    ForkedHandle,
    NewerSchema,
    ReverieError,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
)

# Seconds that the result of a damage check is reused: a check reads the whole store.
DAMAGE_CHECK_INTERVAL = 60.0

_log = logging.getLogger("reverie.engine")
# Seconds that a writer waits for another one.
BUSY_TIMEOUT = 30.0


class _TransactionLike(Protocol):
    writing: bool


TransactionT = TypeVar("TransactionT", bound=_TransactionLike)


class BaseEngine(Generic[TransactionT]):
    """An engine whose reads nest in reads and writes, and whose writes nest in writes."""

    url: str
    read_only: bool

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._thread = threading.local()
        self._closed = False
        self.damaged: set[tuple[int, int]] = set()
        self.damage_check: Callable[[], str | None] | None = None
        self._damage: str | None = None
        self._examine_after = 0.0
        self._failed: str | None = None
        self._outdated = False

    @property
    def write_failed(self) -> bool:
        """Whether a write or sync failed, or a newer Reverie upgraded the store: nothing more is
        written until the store is reopened."""
        return self._failed is not None or self._outdated

    def _require_known_schema(self, found: int) -> None:
        """Refuse to write if the store was upgraded since it was opened."""
        try:
            upgrade.require_known_schema(found)
        except NewerSchema as error:
            if not self._outdated:
                upgrade.logger.error("%s: %s", self.url, error)
            self._outdated = True
            raise

    def _current_schema(self) -> int | None:
        """Read the schema of the store as it is now; None if it cannot be read."""
        raise NotImplementedError

    def _note_failure(self, why: str) -> None:
        """Refuse every write from now on, and log the first failure."""
        if self._failed is None:
            _log.error("a write to %s failed (%s): open the store again to write", self.url, why)
        self._failed = why

    @contextlib.contextmanager
    def read(self, *, allow_replica: bool = False) -> Iterator[TransactionT]:
        current = self._current()
        if current is not None:
            yield current
            return
        with self._detecting_damage(), self._begin_read(allow_replica) as tx:
            yield tx

    @contextlib.contextmanager
    def write(self, *, wait: bool = True) -> Iterator[TransactionT]:
        current = self._current_writer()
        if current is not None:
            yield current
            return
        with self._detecting_damage(), self._begin_write(wait) as tx:
            yield tx

    def _begin_read(self, allow_replica: bool) -> contextlib.AbstractContextManager[TransactionT]:
        """Open a transaction of this thread's own that reads."""
        raise NotImplementedError

    def _begin_write(self, wait: bool) -> contextlib.AbstractContextManager[TransactionT]:
        """Open a transaction of this thread's own that writes, and commit it at its end."""
        raise NotImplementedError

    def _current(self) -> TransactionT | None:
        """The transaction that this thread is in, or None."""
        self._require_usable()
        transaction: TransactionT | None = getattr(self._thread, "current", None)
        return transaction

    def _current_writer(self) -> TransactionT | None:
        """The write transaction that this thread is in, or None; raises where it may not write."""
        current = self._current()
        if current is not None and not current.writing:
            raise StoreError("a write cannot start inside a read: end the read first")
        if self.read_only:
            raise StoreReadOnly(
                f"{self.url} was opened with mode=ro: open it without that to write"
            )
        return current

    @contextlib.contextmanager
    def _as_current(self, transaction: TransactionT) -> Iterator[TransactionT]:
        """Make a transaction this thread's current one while the block runs."""
        self._thread.current = transaction
        try:
            yield transaction
        finally:
            self._thread.current = None

    def drop_caches(self) -> None:
        """Do nothing: this engine keeps no pages of its database."""

    @contextlib.contextmanager
    def _detecting_damage(self) -> Iterator[None]:
        """Turn an unexpected error into NewerSchema or StoreDamaged if that is what explains it.

        A newer Reverie may have changed the tables since this process opened the store. Rows that
        another program changed can break code that trusts them in any way. After an error that
        Reverie did not raise the store is checked; if it is sound, the error is a bug.
        """
        try:
            yield
        except StoreDamaged as error:
            self._explain_by_upgrade(error)
            raise
        except (ReverieError, OSError):
            raise
        except Exception as error:
            self._explain_by_upgrade(error)
            damage = self._find_damage()
            if damage is None:
                raise
            raise StoreDamaged(damage) from error

    def _explain_by_upgrade(self, error: Exception) -> None:
        """Raise NewerSchema if the store was upgraded since it was opened."""
        found = self._current_schema()
        if found is not None and found > schema.SCHEMA_VERSION:
            try:
                self._require_known_schema(found)
            except NewerSchema as newer:
                raise newer from error

    def _find_damage(self) -> str | None:
        """Describe the damage, if any; a result of the last ``DAMAGE_CHECK_INTERVAL`` is reused."""
        check, self.damage_check = self.damage_check, None
        if check is None:
            return None
        try:
            if time.monotonic() >= self._examine_after:
                started = time.monotonic()
                self._damage = check()
                spent = time.monotonic() - started
                self._examine_after = time.monotonic() + max(DAMAGE_CHECK_INTERVAL, 20 * spent)
            return self._damage
        finally:
            self.damage_check = check

    def _require_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedHandle(
                "this store was opened before fork: call reverie.open() in the child process"
            )
        if self._closed:
            raise StoreClosed("this store was closed: call reverie.open() again")
