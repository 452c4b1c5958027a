"""An upstream that says what a test wants, in the pieces it wants, and notes every byte it gets."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from reverie.testing import completion

PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        return found[0] if found else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.json["messages"]
        return messages


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer with its length."""

    body: bytes
    status: int = 200
    headers: Sequence[tuple[str, str]] = (("Content-Type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Pieces:
    """An answer in pieces, each sent when the one before it is out.

    ``cut``: the connection dies behind the last. ``pace`` is waited for before each but the first.
    """

    pieces: Iterable[bytes]
    cut: bool = False
    pace: threading.Semaphore | None = None
    status: int = 200
    headers: Sequence[tuple[str, str]] = (("Content-Type", "text/event-stream"),)


@dataclass(frozen=True, slots=True)
class Silent:
    """No answer at all, not even headers, until the client leaves; noted in ``Upstream.left``."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes in the place of an HTTP answer; the connection ends with them."""

    content: bytes


Reply = Whole | Pieces | Silent | Raw
Script = Callable[[Received], Reply]


@dataclass
class Upstream:
    """What an upstream was asked, and what it saw of its clients."""

    url: str
    script: Script
    requests: list[Received] = field(default_factory=list)
    left: queue.Queue[int] = field(default_factory=queue.Queue)
    """Each client that went away in the middle of an answer, and how many pieces it had got."""

    @property
    def last(self) -> Received:
        return self.requests[-1]


def says(text: str) -> Script:
    """The same reply to everybody, streamed for those who ask for a stream."""

    def script(received: Received) -> Reply:
        if json.loads(received.body or b"{}").get("stream"):
            return Pieces(stream_of(text.split(" ")))
        return Whole(completion(text))

    return script


def replies(texts: Sequence[str]) -> Script:
    """One reply after the other."""
    left = list(texts)
    return lambda received: says(left.pop(0))(received)


def stream_of(words: Sequence[str], *, done: bool = True) -> list[bytes]:
    """The events of a reply: who speaks, its words, its end."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word if n == 0 else " " + word} for n, word in enumerate(words)]
    pieces = [event(delta) for delta in deltas]
    return [*pieces, event({}, "stop"), b"data: [DONE]\n\n"] if done else pieces


def event(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


@contextlib.contextmanager
def running(script: Script) -> Iterator[Upstream]:
    """An upstream on this machine, until the block ends."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.upstream = Upstream(f"http://127.0.0.1:{server.server_port}/v1", script)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.upstream
    finally:
        server.closing.set()
        server.shutdown()
        server.hang_up()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    upstream: Upstream

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.connections: set[socket.socket] = set()

    def hang_up(self) -> None:
        """A connection that is kept open must not keep the server from closing."""
        with self.lock:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are sent apart: else the second waits 40 ms for the first to be acknowledged.
    disable_nagle_algorithm = True
    timeout = PATIENCE
    server: _Server

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections.add(self.connection)

    def finish(self) -> None:
        with self.server.lock:
            self.server.connections.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is written anywhere."""

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def _serve(self) -> None:
        received = Received(self.command, self.path, list(self.headers.items()), self._body())
        self.server.upstream.requests.append(received)
        match self.server.upstream.script(received):
            case Whole(body, status, headers):
                self._head(status, [*headers, ("Content-Length", str(len(body)))])
                self.wfile.write(body)
            case Pieces() as reply:
                self._stream(reply)
            case Silent():
                self.close_connection = True
                if not self._paced(threading.Semaphore(0)):
                    self.server.upstream.left.put(0)
            case Raw(content):
                self.close_connection = True
                self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, reply: Pieces) -> None:
        self._head(reply.status, [*reply.headers, ("Transfer-Encoding", "chunked")])
        for number, piece in enumerate(reply.pieces):
            if number and reply.pace is not None and not self._paced(reply.pace):
                self.server.upstream.left.put(number)
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if reply.cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _paced(self, pace: threading.Semaphore) -> bool:
        """Wait for the next piece's time; False when the client left or the test is over."""
        while not pace.acquire(timeout=0.02):
            self.connection.setblocking(False)
            try:
                if not self.connection.recv(1, socket.MSG_PEEK):
                    return False
            except BlockingIOError:
                pass
            except OSError:
                return False
            finally:
                self.connection.settimeout(PATIENCE)
            if self.server.closing.is_set():
                return False
        return True
