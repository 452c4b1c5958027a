"""Chats through the proxy: what passes unchanged, what is stored, and who may use it."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any

import pytest

from reverie import Settings
from reverie.errors import ConfigError, StoreBusy
from reverie.server.proxy import chat_turn
from reverie.testing import completion
from tests.server.conftest import CHAT, Proxied, Proxy, Serve
from tests.server.proxy.upstream import (
    Pieces,
    Received,
    Reply,
    Whole,
    says,
    stream_of,
)

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def test_fact_told_in_one_chat_is_known_in_the_next(proxy: Proxy) -> None:
    it = proxy()
    assert it.chat("My name is Alice").status_code == 200
    it.running.store.run_pending_jobs()
    it.chat("What is my name?")
    assert "Alice" in it.upstream.last.body.decode()


def test_request_body_passes_unchanged_when_nothing_is_known(proxy: Proxy) -> None:
    it = proxy()
    raw = (
        b'{"model" : "m", "temperature":1.0E+0,"seed": -0, "tools":[{"type":"function","function":'
        b'{"name":"f"}}],\n "response_format":{"type":"json_object"}, "x":1,"x":2, "memory_id":"k",'
        b'"messages":[{"role":"user","content":"h\\u00e9llo \\/ w\xc3\xb6rld"}]}\r\n'
    )
    with it.running.client() as client:
        answer = client.post(CHAT, content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert it.upstream.last.body == raw.replace(b'"memory_id":"k",', b"")


def test_memory_is_inserted_at_two_places_and_not_stored(proxy: Proxy) -> None:
    it = proxy()
    it.space.remember("The user drinks tea", subject="drink")
    it.space.session("before").append({"role": "user", "content": "The kettle is in the attic"})
    it.chat({"role": "system", "content": "Be brief."}, "Where is the kettle?", tools=[TOOL])
    system, user = it.upstream.last.messages
    assert system["content"].startswith("Be brief.\n\n## Your Memory")
    assert "drinks tea" in system["content"] and "kettle" not in system["content"]
    assert user["content"].endswith("\n\nWhere is the kettle?")
    assert "in the attic" in user["content"] and "tea" not in user["content"]
    assert it.upstream.last.json["tools"] == [TOOL]
    kept = it.stored_events()
    del kept["before"]
    assert list(kept.values()) == [
        [("user", "Where is the kettle?", False), ("assistant", "All is well", False)]
    ]


def test_turn_is_stored_before_the_upstream_is_asked(proxy: Proxy) -> None:
    seen: list[dict[str, Any]] = []

    def script(received: Received) -> Reply:
        seen.append(it.stored_events())
        return says("ok")(received)

    it = proxy(script)
    it.chat("Something worth keeping")
    assert list(seen[0].values()) == [[("user", "Something worth keeping", False)]]


@pytest.mark.parametrize("stream", [False, True])
def test_response_headers_report_hits_and_session(proxy: Proxy, stream: bool) -> None:
    it = proxy()
    memory = it.space.remember("The user drinks tea", subject="drink")
    it.space.session("bu, né").append({"role": "user", "content": "Tea is what I drink"})
    answer = it.chat("What do I drink, tea?", stream=stream)
    ids = answer.headers["x-reverie-hits"].split(",")
    assert memory.id in ids and "bu%2C%20n%C3%A9:1" in ids
    assert answer.headers["x-reverie-session"] in it.stored_events()
    if not stream:
        hits = {hit["id"]: hit for hit in answer.json()["memory_hits"]}
        assert hits[memory.id]["content"] == "The user drinks tea"
        assert hits[memory.id]["role"] == "memory" and hits["bu, né:1"]["role"] == "user"
        assert all(hit.keys() == {"id", "role", "content", "created_at", "score"} for hit in
                   hits.values())  # fmt: skip


def test_reply_bytes_are_unchanged_but_for_the_hits(proxy: Proxy) -> None:
    body = (
        b'{ "choices" : [{"index":0,"message":{"role":"assistant","content":"\\u00e9"}}],"x":1e2}\n'
    )
    it = proxy(lambda _: Whole(body))
    assert it.chat("hello again").content == body[:-2] + b', "memory_hits": []}\n'
    assert [event[1] for events in it.stored_events().values() for event in events][-1] == "é"


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 529])
@pytest.mark.parametrize("stream", [False, True])
def test_upstream_errors_pass_unchanged_and_are_not_stored(
    proxy: Proxy, code: int, stream: bool
) -> None:
    body = b'{"error": {"message": "no", "choices": [{"message": {"content": "x"}}]}}'
    headers = [
        ("Content-Type", "application/json; charset=utf-8"),
        ("Retry-After", "7"),
        ("x-request-id", "req_1"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("openai-processing-ms", "12"),
        ("Set-Cookie", "a=b"),
        ("Access-Control-Allow-Origin", "*"),
        ("X-Reverie-Session", "forged"),
    ]
    it = proxy(lambda _: Whole(body, code, headers))
    answer = it.chat("Will this work?", stream=stream)
    assert (answer.status_code, answer.content) == (code, body)
    for name, value in headers[:5]:
        assert answer.headers[name] == value
    assert not {"set-cookie", "access-control-allow-origin"} & set(answer.headers)
    assert answer.headers["x-reverie-session"] != "forged"
    assert list(it.stored_events().values()) == [[("user", "Will this work?", False)]]


def test_reply_that_is_neither_json_nor_a_stream_passes_and_is_not_stored(proxy: Proxy) -> None:
    it = proxy(lambda _: Whole(b"<html>", headers=[("Content-Type", "text/html")]))
    assert it.chat("How do you do it").content == b"<html>"
    assert list(it.stored_events().values()) == [[("user", "How do you do it", False)]]


def test_reply_compressed_despite_the_request_is_decompressed(proxy: Proxy) -> None:
    import gzip

    headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
    it = proxy(lambda _: Whole(gzip.compress(completion("unpacked")), headers=headers))
    assert it.chat("How do you do it").json()["choices"][0]["message"]["content"] == "unpacked"
    assert it.upstream.last.header("accept-encoding") == "identity"
    assert ("assistant", "unpacked", False) in next(iter(it.stored_events().values()))


# -- headers and keys -----------------------------------------------------------------------------


def test_only_upstream_headers_are_forwarded(proxy: Proxy) -> None:
    it = proxy()
    it.chat(
        "How do you do it",
        headers={
            "Cookie": "a=b",
            "X-Reverie-Space": "default",
            "X-Reverie-Anything": "x",
            "Connection": "keep-alive, X-Hop",
            "X-Hop": "1",
            "TE": "trailers",
            "Proxy-Authorization": "Basic x",
            "X-Api-Key": "x",
            "X-Custom": "stays",
            "OpenAI-Beta": "stays too",
            "User-Agent": "someone/1",
        },
    )
    sent = {name.lower(): value for name, value in it.upstream.last.headers}
    assert sent["authorization"] == "Bearer operators-key"
    assert sent["host"] == it.upstream.url.split("/")[2]
    assert (sent["x-custom"], sent["openai-beta"]) == ("stays", "stays too")
    assert sent["user-agent"] == "someone/1"
    gone = {"cookie", "connection", "x-hop", "te", "proxy-authorization", "x-api-key"}
    assert not gone & set(sent) and not any(name.startswith("x-reverie") for name in sent)
    assert it.running.server_context.token not in str(it.upstream.last)


def test_no_key_is_sent_without_an_operators_key(proxy: Proxy) -> None:
    it = proxy(upstream_api_key="")
    it.chat("How do you do it")
    assert it.upstream.last.header("authorization") is None


def test_upstream_key_client_forwards_the_clients_key(proxy: Proxy) -> None:
    it = proxy(upstream_key="client")
    own = {"X-Reverie-Token": it.running.server_context.token}
    assert it.chat("How do you do it", token="sk-mine", headers=own).status_code == 200
    assert it.upstream.last.header("authorization") == "Bearer sk-mine"
    assert it.running.server_context.token not in str(it.upstream.last)


def test_own_token_is_never_forwarded(proxy: Proxy) -> None:
    it = proxy(upstream_key="client")
    refused = it.chat("How do you do it")
    assert refused.status_code == 401 and "X-Reverie-Token" in refused.json()["error"]["message"]
    own = {"X-Reverie-Token": it.running.server_context.token}
    assert it.chat("How do you do it", headers=own).status_code == 401
    assert not it.upstream.requests and it.stored_events() == {}
    assert it.chat("How do you do it", token="", headers=own).status_code == 200
    assert it.upstream.last.header("authorization") is None


SPELLED = [
    "Bearer {}",
    "Token {}",
    "{}",
    "Bearer {},",
    "Bearer sk-mine, Bearer {}",
    'Digest key="{}"',
    "bearer\t{}",
]


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("trust_local", [False, True])
def test_own_token_in_any_spelling_is_never_forwarded(
    proxy: Proxy, spelled: str, trust_local: bool
) -> None:
    own = "an-operators-own-choice-of-a-token-0123456789"
    it = proxy(upstream_key="client", trust_local=trust_local, token=own)
    theirs, others = it.running.token("write"), it.running.token("read")
    for sent, key in ((theirs, own), (own, own), (theirs, theirs), (own, theirs), (own, others),
                      (theirs, "rv_anything"), ("", own), ("", theirs)):  # fmt: skip
        headers = {"Authorization": spelled.format(key)}
        headers |= {"X-Reverie-Token": sent} if sent else {}
        assert it.chat("How do you do it", token="", headers=headers).status_code == 401
        with it.running.client("", headers=headers) as client:
            assert client.get("/v1/models").status_code == 401
    assert not it.upstream.requests and it.stored_events() == {}


def test_own_token_in_basic_auth_is_never_forwarded(proxy: Proxy) -> None:
    it = proxy(upstream_key="client")
    own = {"X-Reverie-Token": it.running.server_context.token}

    def status(password: str) -> int:
        packed = base64.b64encode(f"ana:{password}".encode()).decode()
        headers = own | {"Authorization": f"Basic {packed}"}
        code: int = it.chat("How do you do it", token="", headers=headers).status_code
        return code

    assert [status(it.running.server_context.token), status(it.running.token())] == [401, 401]
    assert not it.upstream.requests
    assert status("hers") == 200 and len(it.upstream.requests) == 1


@pytest.mark.parametrize("key", ["sk-mine", "sk-rv_x", "x" * 200, "serv_1"])
def test_foreign_key_is_forwarded(proxy: Proxy, key: str) -> None:
    it = proxy(upstream_key="client")
    own = {"X-Reverie-Token": it.running.token()}
    assert it.chat("How do you do it", token=key, headers=own).status_code == 200
    assert it.upstream.last.header("authorization") == f"Bearer {key}"


@pytest.mark.parametrize("upstream_key", ["operator", "client"])
def test_own_token_in_any_other_header_is_never_forwarded(proxy: Proxy, upstream_key: str) -> None:
    it = proxy(upstream_key=upstream_key)
    headers = {
        "X-Reverie-Token": it.running.server_context.token,
        "X-Auth-Token": it.running.server_context.token,
        "X-Goog-Api-Key": it.running.token(),
        "X-Custom": "stays",
    }
    assert it.chat("How do you do it", token="", headers=headers).status_code == 200
    assert "rv_" not in str(it.upstream.last.headers)
    assert it.upstream.last.header("x-custom") == "stays"


def test_x_reverie_token_header_is_accepted_by_the_proxy_only(proxy: Proxy) -> None:
    it = proxy()
    own = {"X-Reverie-Token": it.running.server_context.token}
    with it.running.client("", headers=own) as client:
        assert client.get("/v1/models").status_code == 200
        assert client.get("/api/memory/").status_code == 401


def test_trust_local_accepts_any_key(proxy: Proxy) -> None:
    it = proxy(trust_local=True)
    assert it.chat("How do you do it", token="dummy").status_code == 200
    assert it.upstream.last.header("authorization") == "Bearer operators-key"
    mine = proxy(trust_local=True, upstream_key="client")
    assert mine.chat("How do you do it", token="sk-mine").status_code == 200
    assert mine.upstream.last.header("authorization") == "Bearer sk-mine"


# -- modes and rights -----------------------------------------------------------------------------


def known(it: Proxied) -> None:
    it.space.remember("The user drinks tea", subject="drink")


def test_mode_off_passes_everything_through(proxy: Proxy) -> None:
    it = proxy()
    known(it)
    answer = it.chat("What do I drink?", memory_id="x", headers={"X-Reverie-Mode": "off"})
    assert answer.json() == json.loads(completion("All is well"))
    assert it.upstream.last.json == {
        "model": "scripted",
        "messages": [{"role": "user", "content": "What do I drink?"}],
    }
    assert it.stored_events() == {} and "x-reverie-hits" not in answer.headers


def test_mode_off_passes_unreadable_bodies(proxy: Proxy) -> None:
    it = proxy()
    with it.running.client(headers={"X-Reverie-Mode": "off"}) as client:
        client.post(CHAT, content=b"\x1f\x8b any bytes")
    assert it.upstream.last.body == b"\x1f\x8b any bytes"


def test_large_body_passes_unchanged(proxy: Proxy) -> None:
    it = proxy()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000}}
    message = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}
    raw = json.dumps({"messages": [message]}).encode()
    with it.running.client() as client:
        assert client.post(CHAT, content=raw).status_code == 200
    assert it.upstream.last.body == raw and len(it.stored_events()) == 1


def test_session_of_any_name_is_reported_in_a_header(proxy: Proxy) -> None:
    it = proxy()
    answer = it.chat("What is for dinner?", memory_id="café, ☕")
    raw = dict(answer.headers.raw)[b"x-reverie-session"]
    assert raw.decode() == "café, ☕" and list(it.stored_events()) == ["café, ☕"]


def test_mode_read_recalls_and_stores_nothing(proxy: Proxy) -> None:
    it = proxy()
    known(it)
    answer = it.chat("What do I drink?", headers={"X-Reverie-Mode": "read"})
    assert "tea" in it.upstream.last.body.decode() and answer.headers["x-reverie-hits"]
    assert it.stored_events() == {} and "x-reverie-session" not in answer.headers


@pytest.mark.parametrize(
    ("right", "mode", "status"),
    [
        ("read", "write", 403),
        ("read", "read", 403),
        ("read", "off", 403),
        ("write", "write", 200),
        ("write", "read", 200),
        ("write", "off", 200),
        ("admin", "write", 200),
        ("write", "sometimes", 400),
    ],
)
def test_proxy_mode_needs_its_right(proxy: Proxy, right: str, mode: str, status: int) -> None:
    it = proxy()
    token = it.running.token(right)
    answer = it.chat("How do you do it", token=token, headers={"X-Reverie-Mode": mode})
    assert answer.status_code == status
    if status != 200:
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
        assert not it.upstream.requests and it.stored_events() == {}


@pytest.mark.parametrize(("mode", "status"), [("write", 403), ("read", 200), ("off", 200)])
def test_client_with_an_own_upstream_key_needs_only_the_read_right(
    proxy: Proxy, mode: str, status: int
) -> None:
    it = proxy(upstream_key="client")
    headers = {"X-Reverie-Token": it.running.token("read"), "X-Reverie-Mode": mode}
    answer = it.chat("How do you do it", token="sk-mine", headers=headers)
    assert answer.status_code == status
    sent = [request.header("authorization") for request in it.upstream.requests]
    assert sent == (["Bearer sk-mine"] if status == 200 else []) and it.stored_events() == {}


@pytest.mark.parametrize("mode", ["read", "off"])
def test_read_token_cannot_spend_the_operators_key(proxy: Proxy, mode: str) -> None:
    it = proxy()
    chore = "### Task:\nGive it a title.\n<chat_history>\nhello\n</chat_history>"
    asked = [{"role": "user", "content": chore}]
    bodies: list[dict[str, Any]] = [{"messages": asked}, {"messages": []}, {"model": "m"}]
    headers = {"X-Reverie-Mode": mode}
    with it.running.client(it.running.token("read"), headers=headers) as client:
        for body in bodies:
            assert client.post(CHAT, json=body).status_code == 403
        assert client.post(CHAT, content=b"any bytes").status_code == (400, 403)[mode == "off"]
    assert not it.upstream.requests


def test_token_of_another_space_or_user_is_refused(proxy: Proxy) -> None:
    it = proxy()
    token = it.running.token("write", spaces=["work"], user="ana")
    assert it.chat("How do you do it", token=token).status_code == 200
    assert [info.events for info in
            it.running.store.space("work", user="ana").sessions()] == [2]  # fmt: skip
    for asked in ({"headers": {"X-Reverie-Space": "default"}}, {"user": "bob"}):
        assert it.chat("How do you do it", token=token, **asked).status_code == 403
    assert len(it.upstream.requests) == 1


@pytest.mark.parametrize("token", ["", "rv_nobody"])
def test_proxy_without_a_token_serves_nothing(proxy: Proxy, token: str) -> None:
    it = proxy()
    answer = it.chat("How do you do it", token=token)
    assert answer.status_code == 401 and answer.json()["error"]["type"] == "authentication_error"
    with it.running.client(token) as client:
        assert client.get("/v1/models").status_code == 401
    assert not it.upstream.requests


def test_other_upstream_paths_need_the_write_right_to_change_anything(proxy: Proxy) -> None:
    it = proxy()
    with it.running.client(it.running.token("read")) as client:
        assert client.get("/v1/models").status_code == 200
        assert client.post("/v1/embeddings", json={}).status_code == 403
    assert [request.method for request in it.upstream.requests] == ["GET"]


# -- what a request wants -------------------------------------------------------------------------


def test_top_k_zero_leaves_the_body_unchanged_and_stores_the_turn(proxy: Proxy) -> None:
    it = proxy()
    known(it)
    answer = it.chat("What do I drink?", memory_top_k=0)
    assert it.upstream.last.messages == [{"role": "user", "content": "What do I drink?"}]
    assert answer.json()["memory_hits"] == [] and len(it.stored_events()) == 1


def test_top_k_recency_and_threshold_are_honoured(proxy: Proxy) -> None:
    it = proxy()
    for number in range(5):
        message = {"role": "user", "content": f"On day {number} I drink tea number {number}"}
        it.space.session(f"s{number}").append(message)
    asked = "What tea do I drink with cake?"
    assert len(it.chat(asked, memory_top_k=2).json()["memory_hits"]) == 2
    assert it.chat(asked + "?", memory_score_threshold=1000).json()["memory_hits"] == []
    plain = it.chat(asked + "??", memory_top_k=1).json()["memory_hits"][0]["score"]
    aged = it.chat(asked + "??", memory_top_k=1, memory_recency_weight=1).json()["memory_hits"][0]
    assert aged["score"] == pytest.approx(1.0, abs=1e-3) and plain < 0.998
    assert not any("memory_" in str(list(request.json)) for request in it.upstream.requests)


@pytest.mark.parametrize(
    "asked",
    [
        {"memory_top_k": -1},
        {"memory_top_k": "five"},
        {"memory_top_k": True},
        {"memory_recency_weight": "x"},
        {"memory_score_threshold": []},
        {"memory_id": 7},
        {"memory_recency_weight": 7},
        {"memory_id": "x\ny"},
        {"user": "x" * 10_000},
    ],
)
def test_invalid_memory_option_is_refused(proxy: Proxy, asked: dict[str, Any]) -> None:
    it = proxy()
    answer = it.chat("How do you do it", **asked)
    assert answer.status_code in {400, 422} and answer.json()["error"]["message"]
    assert not it.upstream.requests


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"a": "\xff"}', b"{} x"])
def test_unreadable_body_is_not_forwarded(proxy: Proxy, raw: bytes) -> None:
    it = proxy()
    with it.running.client() as client:
        answer = client.post(CHAT, content=raw)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert not it.upstream.requests


@pytest.mark.parametrize("body", [b"{}", b'{"messages": []}', b'{"messages": "hi"}'])
def test_request_without_messages_is_left_to_the_upstream(proxy: Proxy, body: bytes) -> None:
    it = proxy(lambda _: Whole(b'{"error": {}}', 400))
    with it.running.client() as client:
        assert client.post(CHAT, content=body).status_code == 400
    assert it.upstream.last.body == body


# -- the upstream is not there --------------------------------------------------------------------


def test_missing_upstream_names_the_setting(serve: Serve) -> None:
    running = serve()
    with running.client() as client:
        for answer in (client.post(CHAT, json={"messages": []}), client.get("/v1/models")):
            assert answer.status_code == 503
            assert "REVERIE_UPSTREAM" in answer.json()["error"]["message"]
    assert running.store.space("default").sessions() == []


def test_unreachable_upstream_is_a_bad_gateway(serve: Serve) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        running = serve(upstream=f"http://127.0.0.1:{bound.getsockname()[1]}/v1")
        body = {"messages": [{"role": "user", "content": "How do you do it"}]}
        with running.client() as client:
            for answer in (client.post(CHAT, json=body), client.get("/v1/models")):
                assert answer.status_code == 502
                assert answer.json()["error"]["code"] == "upstream_unreachable"
    assert [info.events for info in running.store.space("default").sessions()] == [1]


def test_busy_store_answers_with_retry_after(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object, **__: object) -> None:
        raise StoreBusy("somebody else writes")

    it = proxy()
    monkeypatch.setattr("reverie.server.proxy.chat_turn.begin_turn", busy)
    monkeypatch.setattr("reverie.memory.space.Space.recall", busy)
    with it.running.client() as client:
        for answer in (
            it.chat("How do you do it"),
            client.post("/api/recall", json={"query": "x"}),
        ):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_unexpected_error_has_the_format_of_openai(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any, **more: Any) -> None:
        raise ZeroDivisionError("a private matter")

    it = proxy()
    monkeypatch.setattr(chat_turn, "begin_turn", fails)
    answer = it.chat("Is it raining?")
    assert answer.status_code == 500 and "private" not in answer.text
    assert answer.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize("cut", [0, 20])
def test_incomplete_whole_reply_is_not_stored(proxy: Proxy, cut: int) -> None:
    json_type = [("Content-Type", "application/json")]
    it = proxy(lambda _: Pieces([completion("never")[:cut] or b" "], cut=True, headers=json_type))
    assert it.chat("How do you do it").status_code == 502
    assert list(it.stored_events().values()) == [[("user", "How do you do it", False)]]


@pytest.mark.parametrize(
    "address",
    ["ftp://host/v1", "host/v1", "http://", "http://u:p@host/v1", "http://host/v1?x=1",
     "http://h h", "http://host/#x", "http://host:port/", "http://host\\@evil/", "//host"],
)  # fmt: skip
def test_upstream_setting_must_be_a_url(address: str) -> None:
    with pytest.raises(ConfigError, match="upstream must be an address"):
        Settings(upstream=address)


def test_streams_of_other_paths_pass_unchanged(proxy: Proxy) -> None:
    pieces = stream_of(["never", "kept"])
    it = proxy(lambda _: Pieces(pieces))
    with it.running.client() as client:
        answer = client.post("/v1/responses", json={"stream": True})
    assert answer.content == b"".join(pieces) and it.stored_events() == {}
