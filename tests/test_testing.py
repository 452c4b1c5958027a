"""The scripted model does what it says, over a plain connection."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

from reverie.config import Settings
from reverie.testing import (
    Answer,
    Closed,
    Drip,
    Hang,
    Huge,
    Raw,
    Reset,
    ScriptedModel,
    Status,
    Truncated,
    completion,
    misbehaviours,
)

ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


class Reply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def content(self) -> Any:
        return json.loads(self.body)["choices"][0]["message"]["content"]


def call(
    model: ScriptedModel, body: Any = ASK, path: str = "/chat/completions", method: str = "POST"
) -> Reply:
    address = urlsplit(model.base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, f"{address.path}{path}", data)
        return Reply(connection.getresponse())
    finally:
        connection.close()


def given(answer: Answer) -> Reply:
    with ScriptedModel([answer]) as model:
        return call(model)


def test_scripted_model_answers_in_order_until_its_script_ends() -> None:
    with ScriptedModel(["one", {"facts": []}, None]) as model:
        assert [call(model).content for _ in range(3)] == ["one", '{"facts": []}', "null"]
        last = call(model)
        assert (last.status, last.body) == (500, b"script exhausted")


def test_scripted_model_answers_by_a_function_of_the_request() -> None:
    with ScriptedModel(lambda request: request["messages"][0]["content"].upper()) as model:
        assert call(model).content == "HELLO"


def test_scripted_model_records_copies_of_requests() -> None:
    with ScriptedModel(["a", "b"]) as model:
        call(model)
        model.requests[0]["messages"].clear()
        model.headers[0].clear()
        call(model)
        assert model.requests == [ASK, ASK]
        assert [each["content-length"] for each in model.headers] == [str(len(json.dumps(ASK)))] * 2


def test_scripted_model_settings_lead_to_it() -> None:
    with ScriptedModel([]) as model:
        made = model.settings(learn="llm", fact_chars=100)
        assert made == Settings(
            model="openai:scripted",
            model_base_url=model.base_url,
            learn="llm",
            fact_chars=100,
        )
        assert model.base_url.startswith("http://127.0.0.1:")


def test_scripted_model_lists_models_and_serves_no_other_path() -> None:
    with ScriptedModel(["unused"]) as model:
        listed = json.loads(call(model, path="/models", method="GET").body)
        assert [each["id"] for each in listed["data"]] == ["scripted"]
        assert call(model, path="/nothing", method="GET").status == 404
        assert call(model, path="/embeddings").status == 404
        assert call(model, body=b"no JSON").status == 400
        assert model.requests == []


def test_scripted_status_has_its_body_and_headers() -> None:
    reply = given(Status(429, "later", {"Retry-After": "7"}))
    assert (reply.status, reply.body, reply.headers["Retry-After"]) == (429, b"later", "7")


def test_scripted_raw_bytes_have_their_content_type() -> None:
    reply = given(Raw(b"\xff\x00", "image/png"))
    assert (reply.status, reply.body) == (200, b"\xff\x00")
    assert reply.headers["Content-Type"] == "image/png"


def test_scripted_drip_arrives_whole_in_time() -> None:
    assert given(Drip({"facts": []}, 0.0)).content == '{"facts": []}'


def test_scripted_truncated_body_is_shorter_than_its_length() -> None:
    with pytest.raises(http.client.IncompleteRead) as caught:
        given(Truncated("hello", 30))
    assert caught.value.partial == completion("hello", model="m")[:30]


def test_scripted_huge_body_has_no_content_length() -> None:
    reply = given(Huge(1_000_000))
    assert "Content-Length" not in reply.headers
    assert 1_000_000 <= len(reply.body) <= 1_100_000


def test_scripted_closed_connection_sends_nothing() -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        given(Closed())


def test_scripted_hang_ends_after_its_time() -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        given(Hang(0.0))


@pytest.mark.parametrize("after", [0, 10])
def test_scripted_reset_resets_the_connection(after: int) -> None:
    with pytest.raises(ConnectionResetError):
        given(Reset(after))


@pytest.mark.parametrize("answer", [Hang(3_600), Drip("hello", 3_600)])
def test_scripted_model_exit_ends_running_requests(answer: Answer) -> None:
    before = set(threading.enumerate())
    with ScriptedModel([answer]) as model:
        address = urlsplit(model.base_url)
        waiting = socket.create_connection((address.hostname or "", address.port or 0))
        body = json.dumps(ASK).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        waiting.sendall(head.encode() + body)
        while not model.requests:
            waiting.settimeout(0.01)
            try:
                waiting.recv(1)
            except TimeoutError:
                continue
    waiting.close()
    assert set(threading.enumerate()) == before


def test_scripted_model_exit_does_not_wait_for_silent_clients() -> None:
    before = set(threading.enumerate())
    with ScriptedModel(["unused"]) as model:
        address = urlsplit(model.base_url)
        silent = socket.create_connection((address.hostname or "", address.port or 0))
        call(model)  # by now the silent one has been accepted, too
    silent.close()
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname or "", address.port or 0))


def test_scripted_model_runs_only_inside_a_with_statement() -> None:
    model = ScriptedModel([])
    with pytest.raises(RuntimeError, match="not running"):
        model.settings()
    with model:
        assert model.base_url
    with pytest.raises(RuntimeError, match="not running"):
        _ = model.base_url


def test_scripted_model_has_many_distinct_misbehaviours() -> None:
    cases = misbehaviours()
    assert len(cases) >= 40
    assert len({repr(case) for case in cases.values()}) == len(cases)
    assert cases == misbehaviours()
