"""Limits of request bodies: their size, their number at once, and their speed."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from reverie.server import guard
from reverie.server.errors import HttpProblem
from reverie.server.guard import Limits
from reverie.server.quotas import Quota
from tests.server.conftest import CHAT, Proxy, Running, Serve
from tests.server.proxy.upstream import Received, Silent
from tests.server.test_connections import answered, connected, eventually, until_closed

LONG = guard.UPLOAD_BYTES * 2


def begin(
    running: Running, path: str, token: str, length: int | None = LONG, sent: int = 0
) -> socket.socket:
    """A POST whose body does not come to its end; without a length, in chunks."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{running.server_context.port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        framing,
    ]
    wire = connected(running)
    wire.sendall("\r\n".join([*lines, "", ""]).encode())
    body = b" " * sent
    wire.sendall(b"%x\r\n%s\r\n" % (sent, body) if length is None and sent else body)
    return wire


@contextlib.contextmanager
def begun(running: Running, number: int, *given: Any, **options: Any) -> Iterator[None]:
    """So many requests under way, each of which the server has counted."""
    quotas = running.server_context.quotas

    def counted() -> int:
        return quotas.uploads.held + quotas.imports.held

    with contextlib.ExitStack() as stack:
        before = counted()
        for _ in range(number):
            stack.enter_context(contextlib.closing(begin(running, *given, **options)))
        eventually(lambda: counted() == before + number)
        yield
    eventually(lambda: counted() == before)


def refused(answer: httpx2.Response, status: int, advice: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert advice in answer.json()["detail"]


@pytest.mark.parametrize("length", [LONG, None], ids=["with a length", "in chunks"])
def test_uploads_are_limited_by_token_and_in_total(serve: Serve, length: int | None) -> None:
    running = serve(limits=Limits(uploads=2, total_uploads=3))
    one, other = running.token(), running.token()
    sent = 0 if length else LONG
    body = b'{"content": "%s"}' % (b"x" * LONG)
    with running.client(one) as client, running.client(other) as late:

        def asked(by: httpx2.Client) -> httpx2.Response:
            return by.post("/api/recall", content=body)

        with begun(running, 2, "/api/memory/", one, length, sent):
            refused(asked(client), 429, "repeat")
            assert asked(client).headers["retry-after"] == "5"
            chat = client.post("/v1/chat/completions", content=body)
            assert (chat.status_code, chat.json()["error"]["type"]) == (429, "rate_limit_error")
            assert client.post("/api/memory/", json={"content": "small"}).status_code == 201
            assert asked(late).status_code == 422
            with begun(running, 1, "/api/memory/", other, length, sent):
                refused(asked(late), 503, "wait and repeat")
        assert asked(client).status_code == 422


def test_imports_are_limited_by_token_and_in_total(serve: Serve) -> None:
    running = serve(limits=Limits(imports=1, total_imports=2))
    tokens = [running.token() for _ in range(3)]
    line = b'{"content": "imported"}\n'
    with contextlib.ExitStack() as clients:
        one, other, third = (clients.enter_context(running.client(token)) for token in tokens)
        with begun(running, 1, "/api/import", tokens[0]):
            refused(one.post("/api/import", content=line), 429, "repeat when one of them has ended")
            assert other.post("/api/import", content=line).status_code == 200
            with begun(running, 1, "/api/import", tokens[1]):
                refused(third.post("/api/import", content=line), 503, "wait and repeat")
        assert one.post("/api/import", content=line).status_code == 200


def test_dripping_import_is_dropped(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps no place among the imports."""
    monkeypatch.setattr(guard, "MIN_BYTES_PER_SECOND", 1e9)
    running = serve(limits=Limits(body_seconds=0.5))
    with contextlib.closing(begin(running, "/api/import", running.server_context.token)) as wire:
        wire.setblocking(False)
        for _ in range(600):
            wire.send(b" ")
            time.sleep(0.05)
            with contextlib.suppress(BlockingIOError):
                assert wire.recv(65536).startswith(b"HTTP/1.1 408")
                return
        pytest.fail("the server waited as long as bytes came")


def test_body_without_a_token_is_limited_to_a_small_size(running: Running) -> None:
    with running.client("") as client:
        body = {"code": "x" * guard.ANONYMOUS_BODY_BYTES}
        refused(client.post("/login", json=body), 413, "send less")
        assert client.post("/login", json={"code": "guess"}).status_code == 403


def test_oversized_body_is_refused_before_it_is_read(running: Running) -> None:
    for path, most in (("/api/memory/", 8 << 20), ("/api/import", 4 << 30), ("/mcp", 8 << 20)):
        token = running.server_context.token
        with contextlib.closing(begin(running, path, token, most + 1)) as wire:
            assert answered(wire) == 413


def test_quota_is_released_after_each_request() -> None:
    quota = Quota("feeds", 2, 3, "close one")
    with contextlib.ExitStack() as stack:
        stack.enter_context(quota.hold("a"))
        stack.enter_context(quota.hold("a"))
        with pytest.raises(HttpProblem, match="close one"), quota.hold("a"):
            pass
        stack.enter_context(quota.hold("b"))
        with pytest.raises(HttpProblem, match="wait and repeat"), quota.hold("c"):
            pass
    assert quota.held == 0


def test_request_refused_for_its_length_leaves_no_second_request(running: Running) -> None:
    """What comes after the answer is the rest of the body, never a request of its own."""
    with contextlib.closing(begin(running, "/login", "", 1 << 20)) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wire.shutdown(socket.SHUT_WR)
        assert until_closed(wire).count(b"HTTP/1.1 ") == 1


def test_long_chat_releases_its_upload_quota_while_the_model_answers(proxy: Proxy) -> None:
    held: list[int] = []

    def thinks(_: Received) -> Silent:
        held.append(it.running.server_context.quotas.uploads.held)
        return Silent()

    it = proxy(thinks)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * LONG}}
    body = {"model": "m", "messages": [{"role": "user", "content": [picture]}]}
    with it.running.client() as client, pytest.raises(httpx2.TimeoutException):
        client.post(CHAT, json=body, timeout=5)
    assert held == [0]
