"""What long-running commands share: the log on standard error, the vault's watch, stop signals."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from reverie.cli.output import print_stderr
from reverie.errors import MissingExtra
from reverie.memory import Store
from reverie.text.secrets.detect import redact_text


class RedactingFormatter(logging.Formatter):
    """Redacts the whole line, so that arguments and tracebacks hold no secret either."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_text(super().format(record))[0]


@contextlib.contextmanager
def log_to_stderr(level: str) -> Iterator[None]:
    """Write Reverie's log to standard error until the block ends."""
    log, handler = logging.getLogger("reverie"), logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(level.upper())
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextlib.contextmanager
def watch_vault(store: Store) -> Iterator[None]:
    """Watch the files of the store's vault, if it has one, until the block ends."""
    if store.vault is None:
        yield
        return
    # The vault's modules take time to load, and most stores have no vault.
    from reverie.vault.watch import Watch

    try:
        watch = Watch(store)
    except MissingExtra as error:
        print_stderr(f"What people edit in the vault waits for 'reverie vault sync': {error}")
        yield
        return
    with watch:
        yield


class StopSignal(threading.Event):
    """An event that a signal sets; ``name`` is that signal.

    An ordinary Event takes a lock in ``set``: a handler that runs while its own thread waits on the
    event would wait for that lock forever.
    """

    name = ""

    def is_set(self) -> bool:
        return bool(self.name)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name

    def wait(self, timeout: float | None = None) -> bool:
        end = time.monotonic() + (timeout or 0.0)
        while not self.name and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
        return self.is_set()


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopSignal]:
    """Set the event on SIGINT and SIGTERM, instead of ending the process, until the block ends."""
    stop = StopSignal()
    before = {
        number: signal.signal(number, stop.on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
