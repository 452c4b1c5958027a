"""What every open database shares: it belongs to one process, and a thread has one transaction."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from reverie.errors import ForkedHandle, StoreClosed, StoreError, StoreReadOnly

_log = logging.getLogger("reverie.engine")
# Seconds that a writer waits for another one.
BUSY_TIMEOUT = 30.0


class _Transaction(Protocol):
    writing: bool


Own = TypeVar("Own", bound=_Transaction)


class Opened(Generic[Own]):
    """An engine whose reads nest in reads and writes, and whose writes nest in writes."""

    url: str
    read_only: bool

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._thread = threading.local()
        self._closed = False
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

    def _current(self) -> Own | None:
        """The transaction that this thread is in."""
        self._require_usable()
        transaction: Own | None = getattr(self._thread, "current", None)
        return transaction

    def _current_writer(self) -> Own | None:
        """The same for who wants to write, or why that cannot be."""
        current = self._current()
        if current is not None and not current.writing:
            raise StoreError("a write cannot start inside a read: end the read first")
        if self.read_only:
            raise StoreReadOnly(f"{self.url} was opened with mode=ro: open it without to write")
        return current

    @contextlib.contextmanager
    def _as_current(self, transaction: Own) -> Iterator[Own]:
        self._thread.current = transaction
        try:
            yield transaction
        finally:
            self._thread.current = None

    def _require_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedHandle(
                "this store was opened before fork: call reverie.open() in the child process"
            )
        if self._closed:
            raise StoreClosed("this store was closed: call reverie.open() again")
