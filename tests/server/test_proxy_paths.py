"""Other paths: to the upstream and to nowhere else."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest

from tests.server.conftest import Proxied, Proxy
from tests.server.upstream import Received, Reply, Whole, running, says

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


def asked(it: Proxied, target: str, method: str = "GET") -> int:
    """The status of a request for exactly this target, as no tidy client would send it."""
    parts = urlsplit(it.running.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=30)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        connection.putheader("Authorization", f"Bearer {it.running.serving.token}")
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("target", HOSTILE)
def test_no_path_leaves_the_upstream(proxy: Proxy, target: str) -> None:
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
def test_where_a_path_leads(proxy: Proxy, base: str, target: str, expected: str) -> None:
    with running(says("x")) as upstream:
        it = proxy(upstream=upstream.url.removesuffix("/v1") + base)
        assert asked(it, target) == 200
        assert upstream.last.target == expected


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_any_method_passes_with_its_body(proxy: Proxy, method: str) -> None:
    it = proxy(lambda _: Whole(b"" if method == "HEAD" else b'{"ok": true}', 201))
    content = None if method in {"GET", "HEAD", "OPTIONS"} else b"\x00any bytes\xff"
    with it.running.client() as client:
        answer = client.request(method, "/v1/things/7", content=content)
    assert answer.status_code == 201
    assert (it.upstream.last.method, it.upstream.last.body) == (method, content or b"")
    assert it.upstream.last.header("authorization") == "Bearer operators-key"
    assert it.told() == {}


def test_a_body_without_a_length_is_streamed(proxy: Proxy) -> None:
    it = proxy()
    with it.running.client() as client:
        client.post("/v1/files", content=iter([b"one ", b"two ", b"three"]))
    assert it.upstream.last.body == b"one two three"


def test_a_redirect_is_passed_on_and_not_followed(proxy: Proxy) -> None:
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


def test_a_request_never_chooses_the_upstream(proxy: Proxy) -> None:
    with running(says("x")) as other:
        it = proxy()
        headers = {
            "X-Reverie-Upstream": other.url,
            "X-Forwarded-Host": urlsplit(other.url).netloc,
            "Forwarded": f"host={urlsplit(other.url).netloc}",
        }
        it.chat("How do you do it", headers=headers, base_url=other.url, upstream=other.url)
        assert len(it.upstream.requests) == 1 and not other.requests


def test_proxies_of_the_environment_are_not_used(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(says("x")) as other:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other.url.removesuffix("/v1"))
        it = proxy()
        assert asked(it, "/v1/models") == 200
        assert len(it.upstream.requests) == 1 and not other.requests


def test_a_packed_answer_passes_packed(proxy: Proxy) -> None:
    import gzip

    packed = gzip.compress(b'{"data": []}')
    headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
    it = proxy(lambda _: Whole(packed, headers=headers))
    with it.running.client() as client, client.stream("GET", "/v1/models") as answer:
        assert b"".join(answer.iter_raw()) == packed
        assert answer.headers["content-encoding"] == "gzip"


def test_a_chat_under_another_spelling_is_a_chat(proxy: Proxy) -> None:
    it = proxy()
    said = {"messages": [{"role": "user", "content": "What is for dinner?"}]}
    with it.running.client() as client:
        for path in ("/v1/chat/completions/", "/v1/chat/complet%69ons"):
            assert client.post(path, json=said).status_code == 200
    assert len(it.told()) == 1
