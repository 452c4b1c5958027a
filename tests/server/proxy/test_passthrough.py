"""Paths that are passed through: they reach the upstream and nothing else."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest

from tests.server.conftest import Proxied, Proxy
from tests.server.proxy.upstream import (
    Received,
    Reply,
    Whole,
    running,
    says,
)

HOSTILE = [
    "/v1/..",
    "/v1/../",
    "/v1/../admin",
    "/v1/models/../../admin",
    "/v1/models/..",
    "/v1/.",
    "/v1/./models",
    "/v1//evil.example/x",
    "/v1///evil.example",
    "/v1/models//x",
    "/v1/%2e%2e/admin",
    "/v1/%2E%2E/admin",
    "/v1/.%2e/admin",
    "/v1/%2e./admin",
    "/v1/%252e%252e/admin",
    "/v1/%25252e%25252e/admin",
    "/v1/..%2fadmin",
    "/v1/..%2Fadmin",
    "/v1/x%2f..%2f..%2fadmin",
    "/v1/%2f%2fevil.example",
    "/v1/%2fevil.example",
    "/v1/..%5cadmin",
    "/v1/..\\admin",
    "/v1/%5c%5cevil.example",
    "/v1/\\\\evil.example",
    "/v1/models%00",
    "/v1/models%0d%0aHost:%20evil.example",
    "/v1/models%0a",
    "/v1/%20../x",
    "/v1/..%20/x",
    "/v1/..;/admin",
    "/v1/%",
    "/v1/%zz",
    "/v1/models/%c0%ae%c0%ae/admin",
    "/v1/@evil.example/",
    "/v1/:80@evil.example/",
    "/v1/http://evil.example/",
    "/v1/https:%2f%2fevil.example",
    "/v1%2f..%2fadmin",
    "/v1%2fmodels",
    "/v1/../v1@evil.example",
    "//evil.example/v1/models",
    "http://evil.example/v1/models",
    "http://user:pw@evil.example/v1/models",
    "/v1",
    "/v10/models",
    "/V1/models",
    "/v1/models?next=http://evil.example",
    "/v1/models?/../../admin",
]


def asked(it: Proxied, target: str, method: str = "GET", token: str | None = None) -> int:
    """The status of a request for exactly this target, as no tidy client would send it."""
    parts = urlsplit(it.running.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=30)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        connection.putheader("Authorization", f"Bearer {token or it.running.server_context.token}")
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("target", HOSTILE)
def test_proxied_path_never_leaves_the_upstream(proxy: Proxy, target: str) -> None:
    it = proxy()
    status = asked(it, target)
    for received in it.upstream.requests:
        path, _, query = received.target.partition("?")
        assert path.startswith("/v1/") and "//" not in path and "\\" not in path
        assert not {"..", "."} & set(path.lower().replace("%2e", ".").split("/"))
        assert received.header("host") == urlsplit(it.upstream.url).netloc
        assert query in target
    assert status in ({200} if it.upstream.requests else {307, 400, 401, 404, 405, 421})
    if "?" not in target and not any(sign in target for sign in ("@", ":", ";", "%c0")):
        assert not it.upstream.requests


@pytest.mark.parametrize(
    ("base", "target", "expected"),
    [
        ("/v1", "/v1/models", "/v1/models"),
        ("/v1/", "/v1/models", "/v1/models"),
        ("", "/v1/models", "/v1/models"),
        ("/", "/v1/models", "/v1/models"),
        ("/api/v1", "/v1/models/a?x=%20y&z", "/api/v1/models/a?x=%20y&z"),
        ("/v1beta/openai", "/v1/embeddings", "/v1beta/openai/embeddings"),
        ("/v1", "/v1/models/org%2Fname:free", "/v1/models/org%2Fname:free"),
        ("/v1", "/v1/files/f-1/content", "/v1/files/f-1/content"),
    ],
)
def test_proxied_path_leads_to_its_upstream_url(
    proxy: Proxy, base: str, target: str, expected: str
) -> None:
    with running(says("x")) as upstream:
        it = proxy(upstream=upstream.url.removesuffix("/v1") + base)
        assert asked(it, target) == 200
        assert upstream.last.target == expected


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_proxy_passes_any_method_with_its_body(proxy: Proxy, method: str) -> None:
    it = proxy(lambda _: Whole(b"" if method == "HEAD" else b'{"ok": true}', 201))
    content = None if method in {"GET", "HEAD", "OPTIONS"} else b"\x00any bytes\xff"
    with it.running.client() as client:
        answer = client.request(method, "/v1/things/7", content=content)
    assert answer.status_code == 201
    assert (it.upstream.last.method, it.upstream.last.body) == (method, content or b"")
    assert it.upstream.last.header("authorization") == "Bearer operators-key"
    assert it.stored_events() == {}


def test_proxy_streams_a_body_without_a_length(proxy: Proxy) -> None:
    it = proxy()
    with it.running.client() as client:
        client.post("/v1/files", content=iter([b"one ", b"two ", b"three"]))
    assert it.upstream.last.body == b"one two three"


def test_proxy_passes_redirects_without_following_them(proxy: Proxy) -> None:
    """The operator's key goes to no other host."""
    with running(says("x")) as other:

        def script(_: Received) -> Reply:
            return Whole(b"", 307, [("Location", f"{other.url}/models")])

        it = proxy(script)
        with it.running.client() as client:
            for answer in (client.get("/v1/models"), it.chat("How do you do it")):
                assert answer.status_code == 307
                assert answer.headers["location"] == f"{other.url}/models"
        assert not other.requests


def test_proxied_request_cannot_choose_the_upstream(proxy: Proxy) -> None:
    with running(says("x")) as other:
        it = proxy()
        headers = {
            "X-Reverie-Upstream": other.url,
            "X-Forwarded-Host": urlsplit(other.url).netloc,
            "Forwarded": f"host={urlsplit(other.url).netloc}",
        }
        it.chat("How do you do it", headers=headers, base_url=other.url, upstream=other.url)
        assert len(it.upstream.requests) == 1 and not other.requests


def test_proxy_ignores_proxy_variables_of_the_environment(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(says("x")) as other:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other.url.removesuffix("/v1"))
        it = proxy()
        assert asked(it, "/v1/models") == 200
        assert len(it.upstream.requests) == 1 and not other.requests


def test_proxy_passes_a_compressed_response_unchanged(proxy: Proxy) -> None:
    import gzip

    packed = gzip.compress(b'{"data": []}')
    headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
    it = proxy(lambda _: Whole(packed, headers=headers))
    with it.running.client() as client, client.stream("GET", "/v1/models") as answer:
        assert b"".join(answer.iter_raw()) == packed
        assert answer.headers["content-encoding"] == "gzip"


def test_chat_path_in_another_spelling_is_treated_as_a_chat(proxy: Proxy) -> None:
    it = proxy()
    body = {"messages": [{"role": "user", "content": "What is for dinner?"}]}
    with it.running.client() as client:
        for path in ("/v1/chat/completions/", "/v1/chat/complet%69ons"):
            assert client.post(path, json=body).status_code == 200
    assert len(it.stored_events()) == 1


# -- what a token without the operator's rights reaches -------------------------------------------

EVERYONES = [
    ("GET", "/v1/models"),
    ("HEAD", "/v1/models"),
    ("GET", "/v1/models/"),
    ("GET", "/v1/models?limit=2"),
    ("GET", "/v1/models/llama3.2:latest"),
    ("GET", "/v1/models/org%2Fname:free"),
    ("GET", "/v1/models/@cf/meta/llama-3"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/embeddings/"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embedd%69ngs"),
]
OPERATORS = [
    ("GET", "/v1/files"),
    ("GET", "/v1/files/f-1/content"),
    ("POST", "/v1/files"),
    ("DELETE", "/v1/files/f-1"),
    ("GET", "/v1/fi%6Ces/f-1/content"),
    ("DELETE", "/v1/models/ft-1"),
    ("POST", "/v1/models"),
    ("OPTIONS", "/v1/models"),
    ("GET", "/v1/chat/completions"),
    ("GET", "/v1/chat/completions/c-1/messages"),
    ("POST", "/v1/chat/completions/c-1"),
    ("GET", "/v1/responses/r-1"),
    ("DELETE", "/v1/responses/r-1"),
    ("POST", "/v1/responses/r-1/cancel"),
    ("GET", "/v1/embeddings"),
    ("PUT", "/v1/embeddings"),
    ("PATCH", "/v1/embeddings"),
    ("POST", "/v1/messages/batches"),
    ("GET", "/v1/messages/batches"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/images/generations"),
    ("POST", "/v1/fine_tuning/jobs"),
    ("POST", "/v1/batches"),
    ("POST", "/v1/assistants"),
    ("GET", "/v1/organization/users"),
    ("POST", "/v1/Embeddings"),
    ("GET", "/v1/MODELS"),
    ("GET", "/v1/models;x"),
    ("GET", "/v1/models/..;/files/f-1/content"),
    ("GET", "/v1/models/%252e%252e/files"),
    ("GET", "/v1/%256dodels"),
    ("GET", "/v1/models/a/b/c/d/e"),
    ("GET", "/v1/models/%c0%ae%c0%ae/files"),
    ("GET", "/v1/modelsx"),
    ("POST", "/v1/embeddings%2Ffiles"),
    ("POST", "/v1/embeddings;/files"),
    ("POST", "/v1/embeddings%20"),
    ("GET", "/v1/"),
]


@pytest.mark.parametrize("bound", [{}, {"user": "bob"}, {"spaces": ["here"]}])
def test_write_token_reaches_only_stateless_upstream_calls(
    proxy: Proxy, bound: dict[str, object]
) -> None:
    it = proxy(lambda received: Whole(b"" if received.method == "HEAD" else b"{}"))
    token = it.running.token("write", **bound)
    for method, target in EVERYONES:
        assert asked(it, target, method, token) == 200, (method, target)
    assert len(it.upstream.requests) == len(EVERYONES)
    for method, target in OPERATORS:
        assert asked(it, target, method, token) in {403, 404}, (method, target)
    assert len(it.upstream.requests) == len(EVERYONES)


def test_read_token_reaches_only_the_model_list(proxy: Proxy) -> None:
    it = proxy(lambda received: Whole(b"" if received.method == "HEAD" else b"{}"))
    token = it.running.token("read")
    for method, target in EVERYONES:
        status = asked(it, target, method, token)
        assert status == (403 if method == "POST" else 200), (method, target)
    for method, target in OPERATORS:
        assert asked(it, target, method, token) in {403, 404}, (method, target)
    assert {received.method for received in it.upstream.requests} == {"GET", "HEAD"}


def test_proxied_method_cannot_be_overridden_by_a_header(proxy: Proxy) -> None:
    it = proxy()
    names = ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL")
    with it.running.client(it.running.token("write")) as client:
        client.post("/v1/responses", json={}, headers=dict.fromkeys(names, "DELETE"))
    assert all(it.upstream.last.header(name) is None for name in names)
