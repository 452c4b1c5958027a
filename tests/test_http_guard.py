"""Where this program may connect to: hostile addresses, names that change, redirects."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from reverie import Settings, http_guard, http_transports
from reverie.errors import EmbeddingFailed, ModelFailed
from tests.figures import figure

# Names as a hostile name server would answer for them.
NAMES = {
    "rebind.test": "127.0.0.1",
    "inside.test": "10.1.2.3",
    "metadata.google.internal": "169.254.169.254",
    "metadata.test": "169.254.169.254",
    "carrier.test": "100.64.0.9",
    "six.test": "::1",
    "unique.test": "fd12:3456::1",
    "linked.test": "fe80::1",
    "mapped.test": "::ffff:10.0.0.1",
    "translated.test": "64:ff9b::7f00:1",
    "azure.test": "168.63.129.16",
    "everything.test": "0.0.0.0",
    "half.test": "93.184.216.34 127.0.0.1",
}

HOSTILE = [
    "http://127.0.0.1/",
    "http://127.0.0.1:8080/v1",
    "https://127.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.255.255.254/",
    "http://localhost/",
    "http://localhost:11434/v1",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://0/",
    "http://0.0.0.0/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::10.0.0.1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:7f00:1::]/",
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://172.16.0.1/",
    "http://172.31.255.1/",
    "http://192.168.0.1/",
    "http://192.168.1.1:8123/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://[::ffff:169.254.169.254]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fc00::1]/",
    "http://100.64.0.1/",
    "http://100.100.100.200/latest/",
    "http://168.63.129.16/metadata",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://user:secret@93.184.216.34/",
    "https://key@93.184.216.34/v1",
    "http://example.com\\@127.0.0.1/",
    "file:///etc/passwd",
    "ftp://93.184.216.34/",
    "gopher://93.184.216.34/",
    "unix:///var/run/docker.sock",
    "http:///v1",
    *(f"http://{name}/" for name in NAMES),
]


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name that is looked up; the names above lead where they say."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def lookup(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        asked.append(name)
        addresses = NAMES.get(name)
        if addresses is None:
            return real(host, port, *args, **more)
        return [entry for each in addresses.split() for entry in real(each, port, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


@pytest.fixture
def server() -> Iterator[tuple[ThreadingHTTPServer, list[Any]]]:
    """Answers everything; what it was asked is kept. ``/away`` redirects to another host."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Host"], self.headers["Authorization"]))
            away = self.path == "/away"
            self.send_response(302 if away else 200)
            if away:
                self.send_header("Location", f"http://localhost:{self.server.server_port}/else")  # type: ignore[attr-defined]
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running, asked
        running.shutdown()
        thread.join()


def public(**more: Any) -> Settings:
    return Settings(outbound="public", **more)


def fetch(settings: Settings, url: str, **more: Any) -> httpx2.Response:
    async def once() -> httpx2.Response:
        async with http_transports.client(settings, timeout=2.0) as client:
            return await client.get(url, **more)

    return asyncio.run(once())


def test_corpus_has_enough_hostile_addresses() -> None:
    assert len(set(HOSTILE)) >= 60


@pytest.mark.parametrize("url", HOSTILE)
def test_hostile_address_is_never_connected_to(
    url: str, lookups: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[str] = []

    def connect(*_: Any, **__: Any) -> None:
        connections.append(url)
        raise AssertionError("connected")

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", connect)
    monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", connect)
    with pytest.raises((httpx2.TransportError, httpx2.InvalidURL)):
        fetch(public(), url)
    with (
        httpx2.Client(transport=http_transports.PublicTransport(), trust_env=False) as client,
        pytest.raises((httpx2.TransportError, httpx2.InvalidURL)),
    ):
        client.get(url)
    figure("hostile addresses", 1)
    figure("connections made", len(connections))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808"]
)
def test_public_addresses_are_accepted(address: str) -> None:
    assert http_guard.is_public(ipaddress.ip_address(address))


def test_dns_rebinding_after_the_check_has_no_effect(
    server: tuple[ThreadingHTTPServer, list[Any]],
    lookups: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, asked = server
    answers = iter(["93.184.216.34", "127.0.0.1", "127.0.0.1"])
    real = socket.getaddrinfo
    named: list[str] = []

    def changing(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if host != "changing.test":
            return real(host, port, *args, **more)
        named.append(host)
        return real(next(answers), port, *args, **more)

    sent: list[str] = []

    async def connect(_: Any, request: httpx2.Request) -> httpx2.Response:
        sent.append(request.url.host)
        raise httpx2.ConnectError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", connect)
    with pytest.raises(httpx2.ConnectError):
        fetch(public(), f"http://changing.test:{running.server_port}/")
    assert (named, sent, asked) == (["changing.test"], ["93.184.216.34"], [])


@pytest.mark.parametrize("settings", [Settings(), public()])
def test_request_keeps_the_host_name_of_the_service(
    settings: Settings,
    server: tuple[ThreadingHTTPServer, list[Any]],
    lookups: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, asked = server
    monkeypatch.setattr(http_guard, "is_public", lambda _: True)
    place = f"rebind.test:{running.server_port}"
    assert fetch(settings, f"http://{place}/v1").status_code == 200
    assert asked == [("/v1", place, None)]


@pytest.mark.parametrize("settings", [Settings(), public()])
def test_redirects_are_not_followed(
    settings: Settings,
    server: tuple[ThreadingHTTPServer, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, asked = server
    monkeypatch.setattr(http_guard, "is_public", lambda _: True)
    answer = fetch(
        settings,
        f"http://127.0.0.1:{running.server_port}/away",
        headers={"Authorization": "Bearer k"},
    )
    assert answer.status_code == 302
    assert [path for path, *_ in asked] == ["/away"]


@pytest.fixture
def base_url(server: tuple[ThreadingHTTPServer, list[Any]]) -> str:
    return f"http://127.0.0.1:{server[0].server_port}/v1"


def ask_model(settings: Settings) -> None:
    from reverie.learn.llm import open_model
    from reverie.learn.prompts import extract_facts

    model = open_model(settings)
    assert model is not None
    extract_facts(model, "I live in Ghent")


def ask_embedder(settings: Settings) -> None:
    from reverie.embed import open_embedder

    embedder = open_embedder(settings)
    assert embedder is not None
    embedder.embed_query("Ghent")


@pytest.mark.parametrize(
    ("ask", "error"), [(ask_model, ModelFailed), (ask_embedder, EmbeddingFailed)]
)
def test_model_and_embedder_on_a_private_address_are_refused(
    ask: Callable[[Settings], None],
    error: type[Exception],
    base_url: str,
    server: tuple[ThreadingHTTPServer, list[Any]],
) -> None:
    settings = public(
        model="openai:m", model_base_url=base_url, embedder="own:m", embedder_base_url=base_url
    )
    with pytest.raises(error, match="OutboundRefused"):
        ask(settings)
    assert server[1] == []
