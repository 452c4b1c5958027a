"""A TCP proxy before a database, whose connections can be cut, held up and delayed."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path

CHUNK = 65_536
# Closed with it, a connection is reset instead of ended.
_RESET = struct.pack("ii", 1, 0)


class Link:
    """Forwards connections of one client to a server's socket file.

    While ``open`` is cleared no byte passes in either direction, and none is lost: what was sent
    arrives when the link heals, as with a network that comes back.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.open = threading.Event()
        self.open.set()
        self.delay = 0.0
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def reset(self) -> None:
        """Break every connection there is, as a firewall that restarts does."""
        with self._lock:
            found = list(self._sockets)
        for each in found:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed.set()
        self.open.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
        for thread in self._threads:
            thread.join()

    def _start(self, work: object, *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._target))
            except OSError:
                client.close()
                server.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, server}
            left = threading.Semaphore(2)
            self._start(self._forward, client, server, left)
            self._start(self._forward, server, client, left)

    def _forward(
        self, source: socket.socket, target: socket.socket, left: threading.Semaphore
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self.open.wait()
                if self.delay:
                    self._closed.wait(self.delay)
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        left.acquire(blocking=False)
        if not left.acquire(blocking=False):
            # The other direction ended before: both sockets are done with.
            with self._lock:
                self._sockets -= {source, target}
            source.close()
            target.close()
        else:
            left.release()
