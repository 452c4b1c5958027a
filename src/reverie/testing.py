"""A chat model for tests: a local OpenAI-compatible server that answers from a script.

    with ScriptedModel([{"facts": []}]) as model:
        store = reverie.open(path, settings=model.settings())

It also fails on demand: an answer may be a failure, from a refused key to a connection that is
reset in the middle of a body. ``misbehaviours()`` lists the failures that a caller should survive.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from reverie.config import Settings

MODEL = "scripted"
_JSON = "application/json"
# In seconds: a client that connects and sends nothing must not keep the server from closing.
_READ_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Status:
    """An answer with this HTTP status (200 is allowed) and any body and headers."""

    code: int
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer for this many seconds; then the connection is closed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset: before any answer, or after this many bytes of a body."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Drip:
    """A good answer that is sent one byte at a time."""

    content: Value
    seconds_per_byte: float


@dataclass(frozen=True, slots=True)
class Truncated:
    """A good answer of which only the first ``at`` bytes of the body are sent."""

    content: Value
    at: int


@dataclass(frozen=True, slots=True)
class Raw:
    """A 200 answer with any bytes as its body."""

    body: bytes
    content_type: str = _JSON


@dataclass(frozen=True, slots=True)
class Huge:
    """A body of about this many bytes, without a Content-Length header."""

    bytes_count: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is closed after the request was read, without an answer."""


Value: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None
Answer: TypeAlias = Value | Status | Hang | Reset | Drip | Truncated | Raw | Huge | Closed
"""Text or any JSON value, which becomes the assistant's message; or one of the classes above."""
Script: TypeAlias = Sequence[Answer] | Callable[[dict[str, Any]], Answer]


class ScriptedModel:
    """A chat model that answers from a script: a list of answers, or a function of the request.

    When the list has run out, every further request gets HTTP 500 and "script exhausted". Use it in
    a ``with`` statement, which starts and stops its server.
    """

    def __init__(self, script: Script) -> None:
        self._script = script if callable(script) else list(script)
        self._lock = threading.Lock()
        self._requests: list[dict[str, Any]] = []
        self._headers: list[dict[str, str]] = []
        self._server: _ScriptedServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ScriptedModel:
        self._server = _ScriptedServer(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="scripted-model", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        server, thread = self._running, self._thread
        server.release()
        server.shutdown()
        server.server_close()
        if thread is not None:
            thread.join()
        self._server = self._thread = None

    @property
    def base_url(self) -> str:
        """The address to configure as ``model_base_url``."""
        return f"http://127.0.0.1:{self._running.server_port}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """A copy of every chat request received so far."""
        with self._lock:
            return deepcopy(self._requests)

    @property
    def headers(self) -> list[dict[str, str]]:
        """The headers of each chat request received so far, with names in lower case."""
        with self._lock:
            return deepcopy(self._headers)

    def settings(self, **more: Any) -> Settings:
        """Return settings that use this model, with the settings in ``more`` added."""
        return Settings(**{"model": f"openai:{MODEL}", "model_base_url": self.base_url, **more})

    def _answer(self, request: dict[str, Any], headers: Mapping[str, str]) -> Answer:
        """Record a request and return the script's answer to it."""
        with self._lock:
            self._requests.append(deepcopy(request))
            self._headers.append({name.lower(): value for name, value in headers.items()})
            if not callable(self._script):
                return self._script.pop(0) if self._script else Status(500, "script exhausted")
        return self._script(request)

    @property
    def _running(self) -> _ScriptedServer:
        if self._server is None:
            raise RuntimeError("the scripted model is not running: use it in a with statement")
        return self._server


class _ScriptedServer(ThreadingHTTPServer):
    """An HTTP server that tracks its open connections, so that none outlives it."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def release(self) -> None:
        """Wake every handler thread that sleeps or that waits for its client to send something."""
        self.closing.set()
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RD)
                except OSError:
                    continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _READ_TIMEOUT
    server: _ScriptedServer

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.closed(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        if self.path.rstrip("/") == "/v1/models":
            listed = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
            self._send(200, json.dumps(listed).encode())
        else:
            self._send(404, b"{}")

    def do_POST(self) -> None:
        try:
            request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        except ValueError:
            return self._send(400, b"{}")
        if self.path.rstrip("/") != "/v1/chat/completions" or not isinstance(request, dict):
            return self._send(404, b"{}")
        answer = self.server.model._answer(request, dict(self.headers))
        try:
            self._send_answer(answer, str(request.get("model", MODEL)))
        except OSError:
            self.close_connection = True  # the client closed the connection, as clients may
        return None

    def _send_answer(self, answer: Answer, model: str) -> None:
        match answer:
            case Status(code, body, headers):
                self._send(code, body.encode(), headers)
            case Raw(body, content_type):
                self._send(200, body, {"Content-Type": content_type})
            case Hang(seconds):
                self.server.closing.wait(seconds)
                self.close_connection = True
            case Closed():
                self.close_connection = True
            case Reset(after_bytes):
                self._reset(completion({"facts": []}, model=model), after_bytes)
            case Drip(content, pause):
                self._drip(completion(content, model=model), pause)
            case Truncated(content, at):
                body = completion(content, model=model)
                self._send_headers(200, {"Content-Length": str(len(body))})
                self.wfile.write(body[:at])
            case Huge(count):
                self._huge(count)
            case _:
                self._send(200, completion(answer, model=model))

    def _send_headers(self, code: int, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": _JSON, **headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, code: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        given = dict(headers or {})
        if "Transfer-Encoding" not in given:
            given.setdefault("Content-Length", str(len(body)))
        self._send_headers(code, given)
        self.wfile.write(body)

    def _drip(self, body: bytes, pause: float) -> None:
        self._send_headers(200, {"Content-Length": str(len(body))})
        for at in range(len(body)):
            self.wfile.write(body[at : at + 1])
            if self.server.closing.wait(pause):
                break

    def _huge(self, count: int) -> None:
        self._send_headers(200, {})
        block = b" " * 65_536
        for _ in range(0, count, len(block)):
            if self.server.closing.is_set():
                break
            self.wfile.write(block)
        self.wfile.write(b"{}")

    def _reset(self, body: bytes, after: int) -> None:
        if after:
            self._send_headers(200, {"Content-Length": str(len(body))})
            self.wfile.write(body[:after])
        # With a linger time of zero, closing the socket sends RST instead of FIN.
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.server.closed(self.connection)
        socket.close(self.connection.detach())
        self.close_connection = True


def completion(content: Value, *, model: str = MODEL, finish_reason: str = "stop") -> bytes:
    """Return the body of a chat completion with this content; anything but text becomes JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    return _completion({"content": text}, model, finish_reason)


def _completion(
    message: Mapping[str, Any], model: str = MODEL, finish_reason: str = "stop"
) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": finish_reason,
    }
    whole = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    return json.dumps(whole).encode()


def misbehaviours() -> dict[str, Answer]:
    """Return, by name, every known way in which a model can fail a request for facts.

    The slow ones take longer than any caller should wait.
    """
    return {**_refusals(), **_broken_connections(), **_broken_bodies(), **_broken_answers()}


def _refusals() -> dict[str, Answer]:
    codes = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504)
    cases: dict[str, Answer] = {f"status {code}": Status(code, '{"error": {}}') for code in codes}
    return {
        **cases,
        "status 429 with Retry-After": Status(429, headers={"Retry-After": "1"}),
        "status 429 with absurd Retry-After": Status(429, headers={"Retry-After": "9" * 30}),
        "redirect": Status(307, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"}),
        "error page of 10 MB": Status(500, "x" * 10_000_000),
        "no content": Status(204),
    }


def _broken_connections() -> dict[str, Answer]:
    return {
        "timeout": Hang(3_600),
        "slow drip": Drip({"facts": []}, 1.0),
        "closed at once": Closed(),
        "reset before the answer": Reset(),
        "reset within the body": Reset(40),
        "truncated body": Truncated({"facts": []}, 60),
        "chunked garbage": Status(200, "zz\r\nno chunk", {"Transfer-Encoding": "chunked"}),
        "gzip garbage": Status(200, "no gzip", {"Content-Encoding": "gzip"}),
        "10 MB": Huge(10_000_000),
    }


def _broken_bodies() -> dict[str, Answer]:
    good = completion({"facts": []})
    return {
        "empty body": Raw(b""),
        "HTML page": Raw(b"<!doctype html><title>Sign in</title>", "text/html"),
        "wrong content type": Raw(good, "text/plain"),
        "event stream": Raw(b"data: " + good + b"\n\n", "text/event-stream"),
        "invalid UTF-8": Raw(good.replace(b"facts", b"fact\xff")),
        "byte order mark": Raw(b"\xef\xbb\xbf" + good),
        "UTF-16": Raw(good.decode().encode("utf-16")),
        "truncated JSON": Raw(good[:-20]),
        "array as body": Raw(b"[" + good + b"]"),
        "number as body": Raw(b"42"),
        "deeply nested body": Raw(b"[" * 200_000),
        "duplicate keys in the body": Raw(good.replace(b'"choices"', b'"choices": [], "choices"')),
        "no choices": Raw(b'{"object": "chat.completion"}'),
        "empty choices": Raw(b'{"object": "chat.completion", "choices": []}'),
        "choices as text": Raw(b'{"object": "chat.completion", "choices": "none"}'),
        "null content": Raw(_completion({"content": None})),
        "content as a list": Raw(_completion({"content": [1, 2]})),
        "refusal": Raw(_completion({"content": None, "refusal": "I cannot help with that."})),
        "tool call instead of content": Raw(_tool_call()),
        "finish reason length": Raw(completion({"facts": []}, finish_reason="length")),
        "finish reason content filter": Raw(completion("", finish_reason="content_filter")),
    }


def _broken_answers() -> dict[str, Answer]:
    empty = json.dumps({"facts": []})
    return {
        "empty content": "",
        "blank content": " \n ",
        "prose": "There is nothing worth remembering here.",
        "fenced broken JSON": '```json\n{"facts": [}\n```',
        "unfinished JSON": '{"facts": [{"content": "The user',
        "two objects in prose": f"Either {empty} or {empty}.",
        "duplicate keys": '{"facts": [], "facts": []}',
        "deeply nested JSON": '{"facts": ' + "[" * 20_000,
        "array": [{"facts": []}],
        "number": 42,
        "JSON within a string": json.dumps(empty),
        "not a number": '{"facts": NaN}',
        "wrong shape": {"memories": []},
        "facts as text": {"facts": "The user has a wife."},
        "number as content": _facts(42),
        "too many facts": {"facts": [_fact("The user has a wife")] * 4},
        "blank fact": _facts("  "),
        "fact of two lines": _facts("The user has\na wife"),
        "over-long fact": _facts("wife " * 1_000),
        "unknown category": _facts("The user has a wife", category="gossip"),
        "lone surrogate": _facts("The user has a wife \ud83d"),
        "NUL": _facts("The user has a \x00 wife"),
        "ungrounded fact": _facts("Quokkas juggle xylophones beneath Saturn"),
    }


def _fact(content: Any, category: str = "person") -> dict[str, Any]:
    return {"content": content, "category": category, "subject": None}


def _facts(content: Any, category: str = "person") -> dict[str, Any]:
    return {"facts": [_fact(content, category)]}


def _tool_call() -> bytes:
    function = {"name": "final_result", "arguments": '{"facts": []}'}
    call = {"id": "call-1", "type": "function", "function": function}
    return _completion({"content": None, "tool_calls": [call]}, finish_reason="tool_calls")
