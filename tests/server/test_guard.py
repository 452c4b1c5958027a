"""Which requests the guard lets through to a route."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from reverie.errors import StoreUnavailable
from reverie.server.guard import Limits, RateLimiter
from reverie.server.run import bind_socket
from tests.server.conftest import Running, Serve


def refused(answer: httpx2.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    if answer.request.url.path.startswith("/v1/"):
        assert "\n" not in answer.json()["error"]["message"]
        return
    assert answer.headers["content-type"] == "application/problem+json"
    assert "\n" not in answer.json()["detail"]


def raw(running: Running, request: bytes) -> bytes:
    """Bytes to the server and back, as no client library would send them."""
    with socket.create_connection(("127.0.0.1", running.server_context.port), timeout=30) as wire:
        wire.sendall(request)
        wire.shutdown(socket.SHUT_WR)
        answer = b""
        while part := wire.recv(65536):
            answer += part
    return answer


def test_server_sends_small_chunks_without_delay() -> None:
    """Without its protocol asyncio lets them wait for the client, a twentieth of a second each."""
    with bind_socket("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_healthz_is_one_word_for_everybody(running: Running) -> None:
    with running.client("") as client:
        answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    "token", ["", "wrong", "rv_operator_" + "A" * 43, "rv_absent00_" + "A" * 43, "Basic x", "rv_"]
)
def test_request_without_a_valid_token_is_refused(running: Running, token: str) -> None:
    with running.client(token) as client:
        for method, path in (("GET", "/api/memory/"), ("POST", "/api/recall"), ("GET", "/nowhere")):
            answer = client.request(method, path)
            refused(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("name", ["Authorization", "X-Reverie-Token"])
@pytest.mark.parametrize("path", ["/v1/models", "/api/memory/", "/mcp", "/healthz"])
def test_request_with_a_duplicate_token_header_is_refused(
    running: Running, name: str, path: str
) -> None:
    own = (
        f"Bearer {running.server_context.token}"
        if name == "Authorization"
        else running.server_context.token
    )
    for first, second in ((own, own), (own, "x"), ("x", own)):
        headers = [(name, first), (name.lower(), second)]
        with running.client("") as client:
            refused(client.get(path, headers=headers), 400)


def test_revoked_token_is_refused_at_once(running: Running) -> None:
    token, secret = running.store.create_token("phone")
    with running.client(secret) as client:
        assert client.get("/api/memory/").status_code == 200
        running.store.revoke_token(token.id)
        refused(client.get("/api/memory/"), 401)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:7424",
        "",
        "0.0.0.0",
        "[::]",
    ],
)
def test_request_with_a_foreign_host_is_refused(running: Running, host: str) -> None:
    with running.client() as client:
        for path in ("/healthz", "/", "/api/memory/", "/v1/models", "/mcp", "/openapi.json"):
            refused(client.get(path, headers={"Host": host}), 421)


def test_localhost_and_loopback_address_are_accepted_hosts(running: Running) -> None:
    with running.client() as client:
        port = running.server_context.port
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"LOCALHOST:{port}"):
            assert client.get("/healthz", headers={"Host": host}).status_code == 200
        refused(client.get("/healthz", headers={"Host": "localhost:1"}), 421)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "file://", "http://127.0.0.1:1", "https://localhost"]
)
def test_request_with_a_foreign_origin_is_refused(running: Running, origin: str) -> None:
    with running.client() as client:
        for method, path in (
            ("GET", "/api/memory/"),
            ("POST", "/api/memory/"),
            ("OPTIONS", "/api/memory/"),
            ("POST", "/v1/chat/completions"),
            ("POST", "/mcp"),
            ("GET", "/healthz"),
        ):
            answer = client.request(method, path, headers={"Origin": origin}, json={"content": "x"})
            refused(answer, 403)
            assert not [name for name in answer.headers if name.startswith("access-control")]
    assert running.store.space("default").count() == 0


def test_request_with_the_own_origin_is_accepted(running: Running) -> None:
    with running.client() as client:
        answer = client.get("/api/memory/", headers={"Origin": running.url})
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]
        crossed = {"Sec-Fetch-Site": "cross-site"}
        refused(client.get("/api/memory/", headers=crossed), 403)


def test_every_response_has_the_security_headers(running: Running) -> None:
    with running.client() as client:
        for path in ("/healthz", "/api/memory/", "/nowhere", "/openapi.json", "/docs"):
            headers = client.get(path).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert "server" not in headers


def test_server_listens_on_loopback_only(running: Running) -> None:
    with open("/proc/net/tcp", encoding="ascii") as file:  # noqa: PTH123 - not a file of ours
        listening = [line.split()[1] for line in file if line.split()[3] == "0A"]
    port = f"{running.server_context.port:04X}"
    assert [each for each in listening if each.endswith(port)] == [f"0100007F:{port}"]


def test_token_is_limited_to_its_spaces_and_user(running: Running) -> None:
    for space, user in (("a", None), ("a", "ana"), ("a", "bob"), ("b", None)):
        running.store.space(space, user=user).remember(f"canary {space} {user}")
    with running.client(running.token("write", spaces=["a"], user="ana")) as client:
        assert client.get("/api/memory/").json()["total"] == 2
        assert "bob" not in client.get("/api/memory/").text
        refused(client.get("/api/memory/", params={"user": "bob"}), 403)
        refused(client.get("/api/memory/", params={"space": "b"}), 403)
        refused(client.get("/api/memory/", params={"space": "absent"}), 403)
        shown = client.get("/api/spaces").json()["spaces"]
        assert [(each["name"], each["users"], each["facts"]) for each in shown] == [
            ("a", ["ana"], 2)
        ]
    with running.client(running.token("write", spaces=["a", "b"])) as client:
        refused(client.get("/api/memory/"), 403)
        assert client.get("/api/memory/", params={"space": "b"}).json()["total"] == 1


def test_oversized_body_is_refused(serve: Serve) -> None:
    running = serve(limits=Limits(body_bytes=1000))
    with running.client() as client:
        refused(client.post("/api/memory/", json={"content": "x" * 2000}), 413)

        def pieces() -> Iterator[bytes]:
            for _ in range(50):
                yield b"x" * 100

        refused(client.post("/api/memory/", content=pieces()), 413)
        assert client.post("/api/memory/", json={"content": "small"}).status_code == 201


def test_slow_body_is_dropped(serve: Serve) -> None:
    running = serve(limits=Limits(body_seconds=0.3))
    head = (
        f"POST /api/memory/ HTTP/1.1\r\nHost: 127.0.0.1:{running.server_context.port}\r\n"
        f"Authorization: Bearer {running.server_context.token}\r\nContent-Length: 20\r\n"
        "Content-Type: application/json\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", running.server_context.port), timeout=30) as wire:
        wire.sendall(head.encode() + b'{"con')
        assert wire.recv(65536).startswith(b"HTTP/1.1 408")


def test_requests_beyond_the_rate_limit_are_refused(serve: Serve) -> None:
    running = serve(limits=Limits(requests_per_second=0.001, burst=3, anonymous_burst=2))
    with running.client() as client:
        answers = [client.get("/api/memory/") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert int(answers[-1].headers["retry-after"]) >= 1
    with running.client(running.token("read")) as other:
        assert other.get("/api/memory/").status_code == 200
    with running.client("wrong") as without_token:
        answers = [without_token.get("/api/memory/") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [401, 401, 429]


def test_page_and_healthz_need_no_token(serve: Serve) -> None:
    running = serve(limits=Limits(anonymous_per_second=0.001, anonymous_burst=3))
    with running.client("wrong") as guesser:
        assert [guesser.get("/api/memory/").status_code for _ in range(4)][-1] == 429
    with running.client("") as without_token:
        for _ in range(20):
            assert without_token.get("/healthz").status_code == 200
            assert without_token.get("/").status_code == 200
        assert without_token.post("/login", json={"code": "guess"}).status_code == 429


def test_rate_limiter_refills_with_time() -> None:
    buckets = RateLimiter(2.0, 1)
    assert buckets.take("a", 0.0) == 0
    assert buckets.take("a", 0.0) == 0.5
    assert buckets.take("b", 0.0) == 0
    assert buckets.take("a", 0.5) == 0


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /api/memory/ HTTP/1.1\r\n\r\n",
        b"GET http://evil.example/api/memory/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"GET /api/memory/ HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET /%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /api/memory/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/memory/ HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: x\r\n\r\n",
    ],
)
def test_malformed_request_gets_a_4xx_without_details(
    running: Running, request_line: bytes
) -> None:
    answer = raw(running, request_line)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:200]
    with running.client() as client:
        assert client.get("/healthz").status_code == 200


def test_websocket_is_refused(running: Running) -> None:
    head = (
        f"GET /api/changes HTTP/1.1\r\nHost: 127.0.0.1:{running.server_context.port}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert raw(running, head.encode()).split(b"\r\n")[0].split()[1] in {b"401", b"403", b"400"}


def test_unexpected_error_reveals_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the secret path /home/ana")

    monkeypatch.setattr("reverie.memory.space.Space.recall", broken)
    with running.client() as client:
        answer = client.post("/api/recall", json={"query": "x"})
        refused(answer, 500)
        assert "secret" not in answer.text
        assert client.get("/healthz").status_code == 200


def test_revoked_token_stays_revoked_after_a_restored_backup(
    running: Running, tmp_path: Any
) -> None:
    kept, _ = running.store.create_token("kept")
    gone, secret = running.store.create_token("gone")
    running.store.backup(tmp_path / "backup.db")
    running.store.revoke_token(gone.id)
    new, _ = running.store.create_token("new")
    running.store.restore_backup(tmp_path / "backup.db")
    assert {token.id for token in running.store.tokens()} == {kept.id, new.id}
    assert running.store.authenticate(secret) is None


def test_healthz_of_an_unavailable_store_is_503(running: Running) -> None:
    running.store.close()
    with running.client("") as client:
        answer = client.get("/healthz")
    assert (answer.status_code, json.loads(answer.text)) == (503, {"status": "unavailable"})


@pytest.mark.parametrize("path", ["/api/profile", "/v1/models", "/mcp"])
def test_unavailable_store_is_a_503_for_a_valid_token(
    running: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def away(*_: Any) -> None:
        raise StoreUnavailable("no route to 10.1.2.3")

    token = running.token("read")
    monkeypatch.setattr("reverie.write.tokens.authenticate", away)
    with running.client(token) as client:
        answer = client.get(path)
    refused(answer, 503)
    assert answer.headers["retry-after"] == "1" and "10.1.2.3" not in answer.text
