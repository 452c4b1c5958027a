"""What long-running commands report on standard error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reverie.cli.output import remark
from reverie.errors import MissingExtra
from reverie.text.secrets.detect import redacted

if TYPE_CHECKING:
    from reverie.memory import Store
import signal
import threading
import time
from types import FrameType


class Discreet(logging.Formatter):
    """Redacts the whole line, so that arguments and tracebacks hold no secret either."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))[0]


@contextlib.contextmanager
def reporting(level: str) -> Iterator[None]:
    """Our log on standard error while a command runs."""
    log, handler = logging.getLogger("reverie"), logging.StreamHandler()
    handler.setFormatter(Discreet("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(level.upper())
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextlib.contextmanager
def watching(store: Store) -> Iterator[None]:
    """Watch the files of the store's vault, if it has one, until the block ends."""
    if store.vault is None:
        yield
        return
    from reverie.vault.watch import Watch

    try:
        watch = Watch(store)
    except MissingExtra as error:
        remark(f"What people edit in the vault waits for 'reverie vault sync': {error}")
        yield
        return
    with watch:
        yield


class Stop(threading.Event):
    """Told to stop by a signal. An ordinary Event takes a lock in set: a signal that comes while
    the same thread waits on it would never get that lock."""

    name = ""

    def is_set(self) -> bool:
        return bool(self.name)

    def signalled(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name

    def wait(self, timeout: float | None = None) -> bool:
        end = time.monotonic() + (timeout or 0.0)
        while not self.name and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
        return self.is_set()


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    stop = Stop()
    before = {
        number: signal.signal(number, stop.signalled) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
