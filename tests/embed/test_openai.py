"""The OpenAI embedder against a local server that can also misbehave."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from reverie.embed import openai
from reverie.embed.openai import OpenAIEmbedder
from reverie.errors import ConfigError, EmbeddingFailed, MissingExtra

KEY = "sk-very-secret"
Answer = tuple[int, dict[str, str], bytes]


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0, 2.0]


def good(body: dict[str, Any]) -> Answer:
    data = [{"index": i, "embedding": vector(t)} for i, t in enumerate(body["input"])]
    return 200, {}, json.dumps({"data": data}).encode()


def status(code: int, **headers: str) -> Callable[[dict[str, Any]], Answer]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda body: (code, named, f"the key was {KEY}".encode())


def raw(answer: str) -> Callable[[dict[str, Any]], Answer]:
    return lambda body: (200, {}, answer.encode())


class Service:
    """Answers each request with the next of its script, then well."""

    def __init__(self) -> None:
        self.script: list[Callable[[dict[str, Any]], Answer]] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.release = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.bodies.append(body)
                service.headers.append(dict(self.headers))
                service.paths.append(self.path)
                code, headers, answer = (service.script.pop(0) if service.script else good)(body)
                if code == 0:
                    return
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                try:
                    if "X-Drip" in headers:
                        for at in range(len(answer)):
                            self.wfile.write(answer[at : at + 1])
                            if service.release.wait(0.02):
                                break
                    else:
                        self.wfile.write(answer)
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def slow(self, body: dict[str, Any]) -> Answer:
        self.release.wait(30)
        return 0, {}, b""

    def stop(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = Service()
    yield made
    made.stop()


@pytest.fixture
def embedder(service: Service) -> Iterator[OpenAIEmbedder]:
    made = OpenAIEmbedder(
        "acme",
        "embed-1",
        base_url=service.base_url + "/",
        api_key_env="ACME_KEY",
        backoff=0.0,
        environ={"ACME_KEY": KEY},
    )
    yield made
    made.close()


def failure(embedder: OpenAIEmbedder, texts: list[str]) -> str:
    with pytest.raises(EmbeddingFailed) as caught:
        embedder.embed(texts)
    message = str(caught.value)
    assert "\n" not in message
    assert KEY not in message
    assert KEY not in repr(caught.value)
    return message


def unit_of(text: str) -> Any:
    return np.array(vector(text)) / np.linalg.norm(vector(text))


def test_embed_sends_one_request_with_the_key_in_its_header(
    service: Service, embedder: OpenAIEmbedder
) -> None:
    rows = embedder.embed(["a", "bcd"])
    assert rows.dtype == np.float32
    assert np.allclose(rows, [unit_of("a"), unit_of("bcd")])
    assert service.bodies == [{"model": "embed-1", "input": ["a", "bcd"]}]
    assert service.paths == ["/v1/embeddings"]
    assert service.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(embedder) + embedder.identity
    assert embedder.remote


def test_embed_sends_long_lists_in_batches(service: Service, embedder: OpenAIEmbedder) -> None:
    texts = ["x" * (i % 9 + 1) for i in range(130)]
    assert np.allclose(embedder.embed(texts), [unit_of(text) for text in texts])
    assert [len(body["input"]) for body in service.bodies] == [64, 64, 2]
    assert embedder.embed([]).shape[0] == 0


def test_empty_text_is_sent_as_a_space_and_has_a_zero_vector(
    service: Service, embedder: OpenAIEmbedder
) -> None:
    rows = embedder.embed(["", "a", " \n"])
    assert service.bodies[0]["input"] == [" ", "a", " "]
    assert not rows[[0, 2]].any()
    assert rows[1].any()


def test_sent_text_is_truncated_and_encodable(service: Service, embedder: OpenAIEmbedder) -> None:
    embedder.embed(["x" * 30_000, "\ud800"])
    assert [len(text) for text in service.bodies[0]["input"]] == [20_000, 1]


def test_response_index_decides_the_order_of_vectors(
    service: Service, embedder: OpenAIEmbedder
) -> None:
    service.script = [
        raw('{"data": [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [3, 0]}]}'),
        raw('{"data": [{"embedding": [3, 0]}, {"embedding": [0, 2]}]}'),
    ]
    assert embedder.embed(["a", "b"]).tolist() == [[1, 0], [0, 1]]
    assert embedder.embed(["a", "b"]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("code", [429, 500, 503])
def test_temporary_failure_is_retried(
    service: Service, embedder: OpenAIEmbedder, code: int
) -> None:
    service.script = [status(code), status(code)]
    assert np.allclose(embedder.embed(["a"]), [unit_of("a")])
    assert len(service.bodies) == 3


def test_persistent_failure_ends_after_three_tries(
    service: Service, embedder: OpenAIEmbedder
) -> None:
    service.script = [status(500)] * 9
    assert "HTTP 500" in failure(embedder, ["a"])
    assert len(service.bodies) == 3


@pytest.mark.parametrize("asked", ["0", formatdate(0, usegmt=True)])
def test_retry_after_header_overrides_the_default_backoff(service: Service, asked: str) -> None:
    patient = OpenAIEmbedder("acme", "m", base_url=service.base_url, backoff=300.0)
    service.script = [status(429, Retry_After=asked)]
    assert patient.embed(["a"]).any()
    patient.close()


@pytest.mark.parametrize("asked", ["3600", formatdate(1e10, usegmt=True)])
def test_long_retry_after_is_raised_to_the_caller(
    service: Service, embedder: OpenAIEmbedder, asked: str
) -> None:
    service.script = [status(429, Retry_After=asked)]
    assert "it asks for" in failure(embedder, ["a"])
    assert len(service.bodies) == 1


def test_invalid_retry_after_is_ignored(service: Service, embedder: OpenAIEmbedder) -> None:
    service.script = [status(429, Retry_After="soon")]
    assert embedder.embed(["a"]).any()


@pytest.mark.parametrize(
    ("code", "hint"), [(400, "embed-1"), (401, "ACME_KEY"), (403, "ACME_KEY"), (404, "embed-1")]
)
def test_client_error_is_not_retried(
    service: Service, embedder: OpenAIEmbedder, code: int, hint: str
) -> None:
    service.script = [status(code)]
    message = failure(embedder, ["a"])
    assert str(code) in message
    assert hint in message
    assert len(service.bodies) == 1


def test_redirect_is_not_followed(service: Service, embedder: OpenAIEmbedder) -> None:
    service.script = [status(307, Location=f"{service.base_url}/elsewhere")]
    assert "redirects" in failure(embedder, ["a"])
    assert len(service.bodies) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "not json",
        "[]",
        "{}",
        '{"data": null}',
        '{"data": 3}',
        '{"data": ["x"]}',
        '{"data": []}',
        '{"data": [{"index": 0}]}',
        '{"data": [{"index": 0, "embedding": []}]}',
        '{"data": [{"index": 0, "embedding": "AAAA"}]}',
        '{"data": [{"index": 0, "embedding": [[1.0]]}]}',
        '{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}',
        '{"data": [{"index": 0, "embedding": [1e999]}]}',
        '{"data": [{"index": 0, "embedding": [1' + "0" * 400 + "]}]}",
        '{"data": [{"index": 0, "embedding": [null]}]}',
        '{"data": [{"index": 1, "embedding": [1.0]}]}',
        '{"data": [{"index": null, "embedding": [1.0]}]}',
        '{"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]}',
        "[" * 100_000,
    ],
)
def test_malformed_response_is_reported_on_one_line(
    service: Service, embedder: OpenAIEmbedder, answer: str
) -> None:
    service.script = [raw(answer)]
    assert "embed-1" in failure(embedder, ["a"])
    assert len(service.bodies) == 1


@pytest.mark.parametrize("second", ["[1]", "[1, 2, 3]"])
def test_vectors_of_different_lengths_in_a_response_are_refused(
    service: Service, embedder: OpenAIEmbedder, second: str
) -> None:
    data = '{"data": [{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": %s}]}'
    service.script = [raw(data % second)]
    failure(embedder, ["a", "b"])


def test_vectors_of_different_lengths_across_batches_are_refused(
    service: Service, embedder: OpenAIEmbedder
) -> None:
    service.script = [good, raw('{"data": [{"index": 0, "embedding": [1, 2]}]}')]
    assert "different lengths" in failure(embedder, ["a"] * 65)


def test_oversized_response_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, service: Service, embedder: OpenAIEmbedder
) -> None:
    monkeypatch.setattr(openai, "MAX_BYTES", 1000)
    service.script = [raw(" " * 200_000)]
    assert "more than" in failure(embedder, ["a"])


def test_undecodable_response_is_reported(service: Service, embedder: OpenAIEmbedder) -> None:
    service.script = [lambda body: (200, {"Content-Encoding": "gzip"}, b"not gzip")]
    assert "decoded" in failure(embedder, ["a"])


def test_silent_server_ends_at_the_timeout(service: Service) -> None:
    hasty = OpenAIEmbedder("acme", "m", base_url=service.base_url, timeout=0.05, backoff=0.0)
    service.script = [service.slow] * 3
    assert "did not answer within 0.05 s" in failure(hasty, ["a"])
    assert len(service.bodies) == 3
    hasty.close()


def test_response_sent_byte_by_byte_ends_at_the_timeout(service: Service) -> None:
    hasty = OpenAIEmbedder("acme", "m", base_url=service.base_url, timeout=0.2, backoff=0.0)
    service.script = [lambda body: (200, {"X-Drip": "1"}, b" " * 10_000)] * 3
    assert "did not answer within 0.2 s" in failure(hasty, ["a"])
    hasty.close()


def test_dropped_connection_is_retried(service: Service, embedder: OpenAIEmbedder) -> None:
    service.script = [lambda body: (0, {}, b"")]
    assert embedder.embed(["a"]).any()
    assert len(service.bodies) == 2


def test_refused_connection_error_contains_no_key() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    url = f"http://name:{KEY}@127.0.0.1:{port}/v1?key={KEY}"
    lost = OpenAIEmbedder("acme", "m", base_url=url, backoff=0.0)
    message = failure(lost, ["a"])
    assert f"http://127.0.0.1:{port}/v1 cannot be reached" in message
    lost.close()


def test_query_fails_at_once_after_a_recent_failure(
    service: Service, embedder: OpenAIEmbedder
) -> None:
    service.script = [status(500)]
    for _ in range(3):
        with pytest.raises(EmbeddingFailed):
            embedder.embed_query("tea")
    assert len(service.bodies) == 1
    # A job does try: what it writes is waited for by nobody.
    assert embedder.embed(["tea"]).shape[0] == 1


def test_query_vectors_are_cached_and_failures_are_not(
    service: Service, embedder: OpenAIEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "QUERY_COOLDOWN", 0.0)
    service.script = [status(400)]
    with pytest.raises(EmbeddingFailed):
        embedder.embed_query("tea")
    first = embedder.embed_query("tea", {"tea": 2.0})
    first[:] = 0.0
    assert np.allclose(embedder.embed_query("tea"), unit_of("tea"))
    assert len(service.bodies) == 2
    for number in range(openai.MAX_CACHED_QUERIES):
        embedder.embed_query(f"q{number}")
    embedder.embed_query("q0")
    assert len(service.bodies) == 2 + openai.MAX_CACHED_QUERIES
    embedder.embed_query("tea")
    assert len(service.bodies) == 3 + openai.MAX_CACHED_QUERIES


def test_closed_embedder_raises_a_typed_error(embedder: OpenAIEmbedder) -> None:
    embedder.close()
    embedder.close()
    assert "closed" in failure(embedder, ["a"])


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("openai", "OPENAI_API_KEY"), ("anthropic", "OPENAI_API_KEY"), ("google", "GOOGLE_API_KEY")],
)
def test_missing_key_is_named_when_the_embedder_is_created(provider: str, variable: str) -> None:
    for environ in ({}, {variable: "  "}, {variable: "schlüssel"}):
        with pytest.raises(ConfigError, match=variable) as caught:
            OpenAIEmbedder(provider, environ=environ)
        assert ("OpenAI's are used" in str(caught.value)) == (provider == "anthropic")
        assert "schlüssel" not in str(caught.value)


def test_named_key_variable_must_be_set() -> None:
    for provider in ("ollama", "openai", "acme"):
        with pytest.raises(ConfigError, match="MY_KEY"):
            OpenAIEmbedder(
                provider, "m", base_url="http://127.0.0.1:9", api_key_env="MY_KEY", environ={}
            )


def test_custom_and_local_providers_get_a_placeholder_key(service: Service) -> None:
    custom = OpenAIEmbedder(
        "openai", "m", base_url=service.base_url, environ={"OPENAI_API_KEY": KEY}
    )
    custom.embed(["a"])
    assert service.headers[0]["Authorization"] == "Bearer custom-provider"
    custom.close()
    ollama = OpenAIEmbedder("ollama", environ={})
    assert ollama._client.headers["Authorization"] == "Bearer ollama"
    assert ollama._url == "http://localhost:11434/v1/embeddings"
    ollama.close()


def test_key_with_a_trailing_line_break_is_trimmed() -> None:
    made = OpenAIEmbedder("openai", environ={"OPENAI_API_KEY": f"{KEY}\n"})
    assert made._client.headers["Authorization"] == f"Bearer {KEY}"
    made.close()


@pytest.mark.parametrize(
    "url", ["localhost:1", "ftp://h/v1", "http://", "http://h:port", "http://[::1"]
)
def test_invalid_base_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="embedder_base_url"):
        OpenAIEmbedder("acme", "m", base_url=url)


def test_custom_provider_requires_a_model() -> None:
    with pytest.raises(ConfigError, match="acme:MODEL"):
        OpenAIEmbedder("acme", base_url="http://127.0.0.1:9")


@pytest.mark.parametrize("package", ["httpx2", "tenacity"])
def test_missing_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"reverie\[remote\]"):
        OpenAIEmbedder("ollama")
