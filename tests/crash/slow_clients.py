"""A process full of slow clients: each sends half a header, byte by byte, and comes again.

Run as ``python -m tests.crash.slow_clients PORT NUMBER``. It says ``open`` when every client has
connected once, and goes on until its standard input is closed.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import sys
import time

HEADER = b"POST /api/recall HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
DRIP_SECONDS = 1.0
RETURN_SECONDS = 5.0
SPARE_DESCRIPTORS = 32


class SlowClient:
    """One client that never comes to the end of its header."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._wire: socket.socket | None = None
        self._back_at = 0.0

    def drip(self, now: float) -> None:
        if self._wire is None and now >= self._back_at:
            self._connect()
            return
        if self._wire is not None:
            try:
                self._wire.send(b"a")
            except OSError:
                self._wire.close()
                self._wire, self._back_at = None, now + RETURN_SECONDS

    def _connect(self) -> None:
        wire = socket.socket()
        wire.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            wire.connect(("127.0.0.1", self._port))
        select.select([], [wire], [], 5)
        with contextlib.suppress(OSError):
            wire.send(HEADER)
        self._wire = wire


def main(port: int, number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number + SPARE_DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number + SPARE_DESCRIPTORS, hard), hard))
    clients = [SlowClient(port) for _ in range(number)]
    for client in clients:
        client.drip(time.monotonic())
    print("open", flush=True)
    while True:
        for client in clients:
            client.drip(time.monotonic())
            # Spread over the time between two bytes.
            if select.select([sys.stdin], [], [], DRIP_SECONDS / number)[0]:
                return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
