"""Connections: timeouts, limits, and requests that state their length twice."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reverie.errors import ConfigError
from reverie.server import connections
from reverie.server.guard import Limits, client_network
from reverie.server.run import create_server
from tests.server.conftest import Running, Serve

PATIENCE = 30.0
SHORT = 1.0
HALF_A_HEADER = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


def connected(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.server_context.port), timeout=PATIENCE)


def request(running: Running, path: str = "/healthz", token: str = "", **headers: str) -> bytes:
    """A GET as bytes; a keyword such as ``Content_Length`` is a header."""
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{running.server_context.port}"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def until_closed(wire: socket.socket) -> bytes:
    """Everything that the server sends before it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := wire.recv(65536):
            received += part
    return received


def answered(wire: socket.socket) -> int:
    """The status of one answer, whose body is read to its end."""
    head = b""
    while b"\r\n\r\n" not in head:
        part = wire.recv(65536)
        if not part:
            raise ConnectionResetError("closed before an answer")
        head += part
    head, _, body = head.partition(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += wire.recv(65536)
    return int(head.split(b" ")[1])


def is_open(wire: socket.socket) -> bool:
    """Whether the server has not closed a connection on which it has nothing to say."""
    wire.setblocking(False)
    try:
        return bool(wire.recv(65536))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        wire.settimeout(PATIENCE)


def drip_until_closed(wire: socket.socket, first: bytes = b"") -> None:
    """Send a byte at a time until the server closes the connection; fail if it never does."""
    with contextlib.suppress(ConnectionError):
        for letter in first + b"a" * round(PATIENCE / 0.05):
            wire.sendall(bytes([letter]))
            time.sleep(0.05)
            if not is_open(wire):
                return
        pytest.fail("the server waited as long as bytes came")


def eventually(true: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)


@contextlib.contextmanager
def wires(running: Running, number: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connected(running)) for _ in range(number)]
        for wire in opened:
            if sent:
                wire.sendall(sent)
        yield opened


@pytest.fixture(scope="module")
def one(serve_once: Serve) -> Running:
    """One server for many requests."""
    return serve_once()


# -- deadlines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"G", HALF_A_HEADER], ids=["nothing", "a letter", "half"])
def test_half_sent_header_is_dropped_at_the_deadline(serve: Serve, sent: bytes) -> None:
    running = serve(limits=Limits(header_seconds=SHORT))
    with connected(running) as wire:
        wire.sendall(sent)
        received = until_closed(wire)
    assert received.startswith(b"HTTP/1.1 408") if sent else received == b""


def test_dripping_header_is_dropped_at_the_deadline(serve: Serve) -> None:
    running = serve(limits=Limits(header_seconds=SHORT))
    with connected(running) as wire:
        wire.sendall(HALF_A_HEADER)
        drip_until_closed(wire)


def test_dripping_second_header_on_a_kept_connection_is_dropped(serve: Serve) -> None:
    running = serve(limits=Limits(header_seconds=SHORT))
    with connected(running) as wire:
        wire.sendall(request(running))
        assert answered(wire) == 200
        drip_until_closed(wire, HALF_A_HEADER)


def test_body_dripping_after_its_response_is_dropped(serve: Serve) -> None:
    """A request that is answered before its body is read leaves nobody who would time the body."""
    running = serve(limits=Limits(header_seconds=SHORT))
    with connected(running) as wire:
        wire.sendall(request(running, Content_Length="10000"))
        assert answered(wire) == 200
        drip_until_closed(wire)


def test_unread_response_is_dropped(serve: Serve) -> None:
    running = serve(limits=Limits(stall_seconds=SHORT))
    with socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.settimeout(PATIENCE)
        wire.connect(("127.0.0.1", running.server_context.port))
        wire.sendall(request(running, "/docs/swagger-ui-bundle.js") * 8)
        eventually(lambda: not running.server_context.connections.open)


def test_slow_reader_gets_the_whole_response(serve: Serve) -> None:
    running = serve(limits=Limits(stall_seconds=SHORT * 1.5))
    path, answers = "/docs/swagger-ui-bundle.js", 8
    with running.client() as client:
        size = len(client.get(path, headers={"Accept-Encoding": "identity"}).content)
    with socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        wire.settimeout(PATIENCE)
        wire.connect(("127.0.0.1", running.server_context.port))
        wire.sendall(request(running, path) * (answers - 1))
        wire.sendall(request(running, path, Connection="close"))
        received = 0
        # About 100 kB a second, for several times as long as a client may read nothing.
        for _ in range(50):
            received += len(wire.recv(10_000))
            time.sleep(SHORT / 10)
        received += len(until_closed(wire))
    assert received > size * answers


def test_running_request_outlives_the_header_deadline(serve: Serve) -> None:
    running = serve(limits=Limits(header_seconds=SHORT))
    with connected(running) as wire:
        wire.sendall(request(running, "/api/changes", running.server_context.token))
        time.sleep(SHORT * 4)
        assert is_open(wire)


# -- limits ---------------------------------------------------------------------------------------


def test_address_limit_drops_the_connection_that_waits_longest(serve: Serve) -> None:
    running = serve(limits=Limits(address_connections=8))
    with wires(running, 8, HALF_A_HEADER) as slow, connected(running) as healthy:
        healthy.sendall(request(running))
        assert answered(healthy) == 200
        assert [is_open(wire) for wire in slow] == [False] + [True] * 7


def test_total_limit_drops_connections_without_a_token_first(serve: Serve) -> None:
    running = serve(limits=Limits(connections=8, address_connections=8))
    with wires(running, 3, b"") as feeds:
        for wire in feeds:
            wire.sendall(request(running, "/api/changes", running.server_context.token))
            assert wire.recv(65536).startswith(b"HTTP/1.1 200")
        with connected(running) as kept:
            kept.sendall(request(running, "/api/whoami", running.server_context.token))
            assert answered(kept) == 200
            with wires(running, 40, HALF_A_HEADER) as slow:
                eventually(lambda: sum(is_open(wire) for wire in slow) <= 8)
                kept.sendall(request(running, "/api/whoami", running.server_context.token))
                assert answered(kept) == 200
                assert all(is_open(wire) for wire in feeds)
                assert running.server_context.connections.open <= 8


def test_limit_reached_by_tokens_alone_is_logged(serve: Serve) -> None:
    running = serve(limits=Limits(connections=4, address_connections=4, total_feeds=4))
    with wires(running, 4) as feeds:
        for wire in feeds:
            wire.sendall(request(running, "/api/changes", running.server_context.token))
            assert wire.recv(65536).startswith(b"HTTP/1.1 200")
        with connected(running) as late:
            received = until_closed(late)
    assert received.startswith(b"HTTP/1.1 503") and b"retry-after: " in received
    problem = json.loads(received.partition(b"\r\n\r\n")[2])
    assert problem["status"] == 503 and "max_connections" in problem["detail"]
    eventually(lambda: not running.server_context.connections.open)
    with running.client() as client:
        assert client.get("/healthz").status_code == 200


def test_healthy_client_is_answered_among_slow_ones(serve: Serve) -> None:
    running = serve(limits=Limits(connections=32, address_connections=32))
    over = threading.Event()

    def slowly() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), wires(running, 40, HALF_A_HEADER):
                over.wait(0.05)

    attackers = [threading.Thread(target=slowly) for _ in range(2)]
    for each in attackers:
        each.start()
    try:
        with running.client() as client:
            assert {client.get("/healthz").status_code for _ in range(50)} == {200}
        for _ in range(20):
            with running.client() as client:
                assert client.get("/api/whoami").status_code == 200
    finally:
        over.set()
        for each in attackers:
            each.join()


class Fake:
    """A connection that is only counted."""

    def __init__(self, rank: int, address: str = "192.0.2.1") -> None:
        self.rank, self.address, self.dropped = rank, address, False

    def drop(self) -> None:
        self.dropped = True

    def expire(self, now: float, limits: Limits) -> bool:
        return False


def test_least_important_connection_is_closed_first() -> None:
    registry = connections.ConnectionRegistry(8, 8)
    orders = [3, 2, 1, 0, 0, 1, 2, 3]
    made = [Fake(rank) for rank in orders]
    for each in made:
        registry.add(each)
    registry.changed(made[3])  # it has just begun to wait again: the other one waits longer
    closed = []
    for _ in range(6):
        assert registry.make_room("192.0.2.1")
        registry.add(Fake(connections.BUSY_AUTHENTICATED))
        closed += [number for number, each in enumerate(made) if each.dropped]
        made = [Fake(each.rank) if each.dropped else each for each in made]
    assert closed == [4, 3, 2, 5, 1, 6]
    assert not registry.make_room("192.0.2.1")
    assert (registry.open, registry.dropped, registry.refused) == (8, 6, 1)


def test_address_limit_does_not_affect_other_addresses() -> None:
    registry = connections.ConnectionRegistry(100, 4)
    others = [Fake(connections.NEW, f"198.51.100.{number}") for number in range(4)]
    mine = [Fake(connections.NEW) for _ in range(4)]
    for each in (*others, *mine):
        registry.add(each)
    for _ in range(3):
        assert registry.make_room("192.0.2.1")
        registry.add(Fake(connections.NEW))
    assert [each.dropped for each in mine] == [True, True, True, False]
    assert not any(each.dropped for each in others)
    for each in (*others, *mine):
        registry.remove(each)
        registry.remove(each)
    assert registry.open == 3


def test_connection_warnings_are_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, bounded = [1000.0], connections.RepeatLogFilter()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def logged(text: str, level: int = logging.WARNING) -> str | None:
        record = logging.LogRecord("x", level, "", 0, text, (), None)
        return record.getMessage() if bounded.filter(record) else None

    assert [logged("bad") for _ in range(3)] == ["bad", None, None]
    assert logged("worse\nprotocol: 1") and not logged("worse\nprotocol: 2")
    assert [logged("fine", logging.INFO) for _ in range(2)] == ["fine", "fine"]
    now[0] += 60
    assert logged("bad") == "bad (and 2 times since it was last logged)"
    for number in range(1_000):
        assert logged(f"other {number}")
    assert len(bounded._logged) <= connections.MAX_MESSAGES


def test_parser_and_event_loop_do_not_depend_on_installed_packages(running: Running) -> None:
    config = create_server(running.server_context).config
    assert (config.http, config.loop, config.ws) == ("h11", "asyncio", "none")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::"),
        ("fe80::1%eth0", "fe80::"),
        ("odd:", "odd:"),
    ],
)
def test_addresses_of_one_ipv6_network_count_as_one(address: str, network: str) -> None:
    assert client_network(address) == network


def test_default_connection_limits_leave_descriptors_for_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for allowed, most, with_upstream in ((64, 32, 16), (128, 64, 32), (1024, 768, 384)):
        monkeypatch.setattr(connections, "max_descriptors", lambda allowed=allowed: allowed)
        assert connections.resolve_limits(Limits(), upstream=False).connections == most
        assert connections.resolve_limits(Limits(), upstream=True).connections == with_upstream
        asked = Limits(connections=most + 1)
        with pytest.raises(ConfigError, match="ulimit -n"):
            connections.resolve_limits(asked, upstream=False)
    monkeypatch.setattr(connections, "max_descriptors", lambda: 1_000_000)
    found = connections.resolve_limits(Limits(), upstream=False)
    assert (found.connections, found.address_connections) == (2_000, 1_000)


def test_metrics_report_open_connections(running: Running) -> None:
    with wires(running, 5, HALF_A_HEADER), running.client() as client:
        lines = client.get("/metrics").text.splitlines()
    assert "reverie_connections 6.0" in lines and "reverie_feeds 0.0" in lines


# -- two lengths ----------------------------------------------------------------------------------

CHUNKED = b"0\r\n\r\n"
SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    ("version", "headers", "body"),
    [
        ("1.1", ["Content-Length: 5", "Transfer-Encoding: chunked"], CHUNKED),
        ("1.1", ["Transfer-Encoding: chunked", "Content-Length: 5"], CHUNKED),
        ("1.1", ["content-length: 0", "TRANSFER-ENCODING: Chunked"], CHUNKED),
        ("1.1", ["Content-Length: 5", "Content-Length: 6"], b"abcde"),
        ("1.1", ["Content-Length: 5, 6"], b"abcde"),
        ("1.1", ["Content-Length: +5"], b"abcde"),
        ("1.1", ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], CHUNKED),
        ("1.1", ["Transfer-Encoding: chunked, chunked"], CHUNKED),
        ("1.1", ["Transfer-Encoding : chunked"], CHUNKED),
        ("1.0", ["Connection: keep-alive", "Transfer-Encoding: chunked"], CHUNKED),
    ],
)
@pytest.mark.parametrize("path", ["/api/memory/", "/healthz", "/v1/models", "/mcp"])
def test_request_with_two_content_lengths_closes_the_connection(
    one: Running, version: str, headers: list[str], body: bytes, path: str
) -> None:
    lines = [
        f"POST {path} HTTP/{version}",
        f"Host: 127.0.0.1:{one.server_context.port}",
        f"Authorization: Bearer {one.server_context.token}",
        *headers,
    ]
    with connected(one) as wire:
        wire.sendall("\r\n".join([*lines, "", ""]).encode() + body + SMUGGLED)
        received = until_closed(wire)
    assert received.startswith(b"HTTP/1.1 400") and received.count(b"HTTP/1.1 ") == 1, received
    assert b"connection: close" in received.lower()


@pytest.mark.parametrize("headers", [["Content-Length: 0"], ["Transfer-Encoding: chunked"]])
def test_request_with_one_content_length_keeps_the_connection(
    running: Running, headers: list[str]
) -> None:
    body = CHUNKED if headers[0].startswith("T") else b""
    lines = [
        "GET /healthz HTTP/1.1",
        f"Host: 127.0.0.1:{running.server_context.port}",
        *headers,
        "",
        "",
    ]
    with connected(running) as wire:
        for _ in range(2):
            wire.sendall("\r\n".join(lines).encode() + body)
            assert answered(wire) == 200


# -- what is logged -------------------------------------------------------------------------------


def test_malformed_requests_do_not_flood_the_log(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    token = running.server_context.token
    bad_chunk = request(running, "/login", Transfer_Encoding="chunked").replace(b"GET", b"POST")
    upgrade = request(running, Connection="Upgrade", Upgrade="websocket")
    answered_first = request(running, "/api/whoami", token, Transfer_Encoding="chunked")
    with caplog.at_level(logging.DEBUG):
        for sent in (b"\x00\r\n\r\n", bad_chunk + b"zz\r\n\r\n", upgrade, answered_first):
            for _ in range(10):
                with connected(running) as wire:
                    wire.sendall(sent)
                    if sent is answered_first:
                        assert answered(wire) == 200
                        wire.sendall(b"zz\r\n\r\n")
                    wire.shutdown(socket.SHUT_WR)
                    until_closed(wire)
    noisy = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(noisy) <= 8, [record.getMessage() for record in noisy]
