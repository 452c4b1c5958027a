"""What every open database shares: it belongs to one process, and a thread has one transaction."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from reverie.errors import (
    ForkedHandle,
    ReverieError,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
)

# How long the answer of an examination holds: it reads the whole store.
DAMAGE_CHECK_INTERVAL = 60.0

_log = logging.getLogger("reverie.engine")
# Seconds that a writer waits for another one.
BUSY_TIMEOUT = 30.0


class _Transaction(Protocol):
    writing: bool


TransactionT = TypeVar("TransactionT", bound=_Transaction)


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

    @property
    def write_failed(self) -> bool:
        """Whether a write or sync failed: nothing more is written until the store is reopened."""
        return self._failed is not None

    def _note_failure(self, why: str) -> None:
        """Refuse every write from here on; the first failure is logged."""
        if self._failed is None:
            _log.error("a write to %s failed (%s): start again to store anything", self.url, why)
        self._failed = why

    def _current(self) -> TransactionT | None:
        """The transaction that this thread is in."""
        self._require_usable()
        transaction: TransactionT | None = getattr(self._thread, "current", None)
        return transaction

    def _current_writer(self) -> TransactionT | None:
        """The same for who wants to write, or why that cannot be."""
        current = self._current()
        if current is not None and not current.writing:
            raise StoreError("a write cannot start inside a read: end the read first")
        if self.read_only:
            raise StoreReadOnly(f"{self.url} was opened with mode=ro: open it without to write")
        return current

    @contextlib.contextmanager
    def _as_current(self, transaction: TransactionT) -> Iterator[TransactionT]:
        self._thread.current = transaction
        try:
            yield transaction
        finally:
            self._thread.current = None

    def drop_caches(self) -> None:
        """Do nothing: this engine keeps no pages of its database."""

    @contextlib.contextmanager
    def _detecting_damage(self) -> Iterator[None]:
        """Let a failure that nothing but damage explains be StoreDamaged.

        Rows that were changed behind our back break code that trusts them in any way. An error
        that is none of ours makes the store be examined; if that finds nothing, it is a bug.
        """
        try:
            yield
        except (ReverieError, OSError):
            raise
        except Exception as error:
            found = self._find_damage()
            if found is None:
                raise
            raise StoreDamaged(found) from error

    def _find_damage(self) -> str | None:
        """What is damaged, as far as it was looked for within the last minute."""
        examine, self.damage_check = self.damage_check, None
        if examine is None:
            return None
        try:
            if time.monotonic() >= self._examine_after:
                begun = time.monotonic()
                self._damage = examine()
                spent = time.monotonic() - begun
                self._examine_after = time.monotonic() + max(DAMAGE_CHECK_INTERVAL, 20 * spent)
            return self._damage
        finally:
            self.damage_check = examine

    def _require_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedHandle(
                "this store was opened before fork: call reverie.open() in the child process"
            )
        if self._closed:
            raise StoreClosed("this store was closed: call reverie.open() again")
