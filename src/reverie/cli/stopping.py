"""Commands that run until a signal tells them to stop."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


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
