"""Streams: forwarded piece by piece, and stored as far as they arrived."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

import reverie
from reverie import Settings
from reverie.server import listener
from tests.figures import figure
from tests.server.conftest import CHAT, PATIENCE, Proxied, Proxy, servers
from tests.server.proxy import upstream
from tests.server.proxy.upstream import Pieces, event, stream_of

CUTS = 50
WORDS = [f"w{number}" for number in range(CUTS + 5)]
QUESTION = "Tell me a long story"


def until(held: Callable[[], bool]) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + PATIENCE
    while not held():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def asks(it: Proxied, question: str = QUESTION) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}]}


def replies_of(it: Proxied) -> list[tuple[str, bool]]:
    return [
        (text, interrupted)
        for events in it.stored_events().values()
        for role, text, interrupted in events
        if role == "assistant"
    ]


def test_stream_chunks_are_forwarded_as_they_arrive(proxy: Proxy) -> None:
    """The upstream goes on only when the client has read what came before."""
    pieces, pace = stream_of(WORDS[:10]), threading.Semaphore(0)
    it = proxy(lambda _: Pieces(pieces, pace=pace))
    got = []
    with it.running.client() as client, client.stream("POST", CHAT, json=asks(it)) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for piece in answer.iter_raw():
            got.append(piece)
            pace.release()
    assert got == pieces
    assert replies_of(it) == [(" ".join(WORDS[:10]), False)]


def test_stream_is_stored_before_its_end_is_forwarded(proxy: Proxy) -> None:
    pieces, pace = stream_of(WORDS[:3]), threading.Semaphore(0)
    it = proxy(lambda _: Pieces(pieces, pace=pace))
    with it.running.client() as client, client.stream("POST", CHAT, json=asks(it)) as answer:
        for piece in answer.iter_raw():
            is_last = piece == pieces[-1]
            assert replies_of(it) == ([(" ".join(WORDS[:3]), False)] if is_last else [])
            pace.release()


@pytest.mark.parametrize("end", [[b"data: [DONE]\n\n"], [b"data: [DO", b"NE]", b"\n", b"\n"], []])
def test_stream_with_finish_reason_in_every_chunk_is_stored_to_its_end(
    proxy: Proxy, end: list[bytes]
) -> None:
    """Some gateways give a reason to finish with each piece of a reply."""
    pieces = [event({"content": text}, "stop") for text in ("The ", "answer is ", "42.")]
    pace = threading.Semaphore(0)
    it = proxy(lambda _: Pieces([*pieces, *end], pace=pace))
    got = b""
    with it.running.client() as client, client.stream("POST", CHAT, json=asks(it)) as answer:
        for piece in answer.iter_raw():
            got += piece
            if b"[DONE]" in got:
                assert replies_of(it) == [("The answer is 42.", False)]
            elif got != b"".join(pieces):  # behind the last piece the upstream waits for nobody
                assert replies_of(it) == []
            pace.release()
    assert got == b"".join([*pieces, *end])
    assert replies_of(it) == [("The answer is 42.", False)]


def test_stream_with_finish_reason_in_every_chunk_can_be_interrupted(proxy: Proxy) -> None:
    pieces = [event({"content": text}, "stop") for text in ("The ", "answer is ")]
    it = proxy(lambda _: Pieces(pieces, cut=True))
    with it.running.client() as client, pytest.raises(httpx2.HTTPError):
        client.post(CHAT, json=asks(it))
    assert replies_of(it) == [("The answer is ", True)]


@pytest.mark.parametrize("batch", range(5))
@pytest.mark.sample(3)
def test_stream_of_an_upstream_that_dies_is_stored_as_interrupted(proxy: Proxy, batch: int) -> None:
    """Behind each of the first fifty pieces."""
    pieces = stream_of(WORDS)
    cut = [0]
    it = proxy(lambda _: Pieces(pieces[: cut[0]], cut=True))
    for cut[0] in range(batch * 10 + 1, batch * 10 + 11):
        question = f"{QUESTION}, number {cut[0]}"
        got = b""
        with (
            it.running.client() as client,
            pytest.raises(httpx2.HTTPError),
            client.stream("POST", CHAT, json=asks(it, question)) as answer,
        ):
            for piece in answer.iter_raw():
                got += piece
        events = next(each for each in it.stored_events().values() if each[0][1] == question)
        words = " ".join(WORDS[: cut[0] - 1])
        assert events[1:] == ([("assistant", words, True)] if words else [])
        figure("cuts", 1)
        assert b"".join(pieces[: cut[0]]).startswith(got)


@pytest.mark.parametrize("batch", range(5))
@pytest.mark.sample(3)
def test_stream_of_a_client_that_disconnects_is_stored_as_interrupted(
    proxy: Proxy, batch: int
) -> None:
    """After each of the first fifty pieces; the connection to the upstream is closed as well."""
    pieces, pace = stream_of(WORDS), threading.Semaphore(0)
    it = proxy(lambda _: Pieces(pieces, pace=pace))
    for cut in range(batch * 10 + 1, batch * 10 + 11):
        question = f"{QUESTION}, number {cut}"
        with (
            it.running.client() as client,
            client.stream("POST", CHAT, json=asks(it, question)) as answer,
        ):
            for got, _ in enumerate(answer.iter_raw(), 1):
                if got == cut:
                    break
                pace.release()
        assert it.upstream.left.get(timeout=PATIENCE) == cut
        words = " ".join(WORDS[: cut - 1])

        def kept(question: str = question) -> list[tuple[str, str, bool]]:
            return next(each for each in it.stored_events().values() if each[0][1] == question)[1:]

        if words:
            until(lambda: bool(kept()))
        assert kept() == ([("assistant", words, True)] if words else [])
        figure("cuts", 1)


def test_interrupted_reply_is_matched_and_continued(proxy: Proxy) -> None:
    script = [
        Pieces(stream_of(["Once", "upon", "a"], done=False), cut=True),
        Pieces(stream_of(["time"])),
    ]
    it = proxy(lambda _: script.pop(0))
    with it.running.client() as client:
        with pytest.raises(httpx2.HTTPError):
            client.post(CHAT, json=asks(it))
        body = asks(it)
        body["messages"] += [
            {"role": "assistant", "content": "Once upon"},
            {"role": "user", "content": "Go on"},
        ]
        client.post(CHAT, json=body)
    assert list(it.stored_events().values()) == [
        [
            ("user", QUESTION, False),
            ("assistant", "Once upon a", True),
            ("user", "Go on", False),
            ("assistant", "time", False),
        ]
    ]


def test_request_repeated_after_an_interruption_keeps_both_replies(proxy: Proxy) -> None:
    script = [
        Pieces(stream_of(["Once"], done=False), cut=True),
        Pieces(stream_of(["Once", "more"])),
    ]
    it = proxy(lambda _: script.pop(0))
    with it.running.client() as client:
        with pytest.raises(httpx2.HTTPError):
            client.post(CHAT, json=asks(it))
        client.post(CHAT, json=asks(it))
    texts = [
        text for events in it.stored_events().values() for role, text, _ in events if role == "user"
    ]
    assert sorted(replies_of(it)) == [("Once", True), ("Once more", False)]
    assert sorted(set(texts)) == [QUESTION]


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", event({}, "stop"), event({}, "length")])
def test_stream_with_a_done_event_is_complete(proxy: Proxy, end: bytes) -> None:
    it = proxy(lambda _: Pieces([*stream_of(["All", "of", "it"], done=False), end], cut=True))
    with it.running.client() as client, pytest.raises(httpx2.HTTPError):
        client.post(CHAT, json=asks(it))
    assert replies_of(it) == [("All of it", False)]


def test_stream_without_a_done_event_is_interrupted(proxy: Proxy) -> None:
    it = proxy(lambda _: Pieces(stream_of(["Only", "a", "part"], done=False)))
    with it.running.client() as client:
        assert client.post(CHAT, json=asks(it)).status_code == 200
    assert replies_of(it) == [("Only a part", True)]


def test_error_event_in_a_stream_is_forwarded_and_not_stored(proxy: Proxy) -> None:
    error = b'data: {"error": {"message": "overloaded", "code": 529}}\n\n'
    pieces = [*stream_of(["So", "far"], done=False), error]
    it = proxy(lambda _: Pieces(pieces))
    with it.running.client() as client:
        assert client.post(CHAT, json=asks(it)).content == b"".join(pieces)
    assert replies_of(it) == [("So far", True)]


def test_stream_of_tool_calls_is_stored_as_one_message(proxy: Proxy) -> None:
    call = {
        "index": 0,
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a"'},
    }
    pieces = [
        event({"role": "assistant", "content": None, "tool_calls": [call]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        event({}, "tool_calls"),
        b'data: {"choices": [], "usage": {"total_tokens": 3}}\n\n',
        b"data: [DONE]\n\n",
    ]
    it = proxy(lambda _: Pieces(pieces))
    with it.running.client() as client:
        assert client.post(CHAT, json=asks(it)).content == b"".join(pieces)
    (session,) = it.stored_events()
    message = it.space.session(session).events()[-1].message
    assert message["tool_calls"] == [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    ]


def test_disconnect_before_the_first_chunk_keeps_the_turn(proxy: Proxy) -> None:
    pace = threading.Semaphore(0)
    it = proxy(lambda _: Pieces([b": wait\n\n", *stream_of(["x"])], pace=pace))
    with it.running.client() as client, client.stream("POST", CHAT, json=asks(it)) as answer:
        next(answer.iter_raw())
    assert it.upstream.left.get(timeout=PATIENCE) == 1
    assert list(it.stored_events().values()) == [[("user", QUESTION, False)]]


def test_reply_that_cannot_be_stored_reaches_the_client(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes back with the next turn, and is stored then."""
    it = proxy(lambda _: Pieces(stream_of(["Fine"])))
    from reverie.errors import StoreBusy
    from reverie.server.proxy import chat_turn

    def fail(*_: object, **__: object) -> None:
        raise StoreBusy("somebody else writes")

    with pytest.MonkeyPatch.context() as patch, it.running.client() as client:
        patch.setattr(chat_turn.ChatTurn, "store_reply", fail)
        assert client.post(CHAT, json=asks(it)).content.endswith(b"[DONE]\n\n")
    assert "could not be stored" in caplog.text and replies_of(it) == []
    body = asks(it)
    body["messages"] += [
        {"role": "assistant", "content": "Fine"},
        {"role": "user", "content": "Thanks a lot"},
    ]
    with it.running.client() as client:
        client.post(CHAT, content=json.dumps(body))
    assert [len(events) for events in it.stored_events().values()] == [4]


def test_reply_in_progress_is_stored_when_the_server_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "GRACE_SECONDS", 1)
    pace = threading.Semaphore(3)
    pieces = Pieces(stream_of(["one", "two", "three", "four"]), pace=pace)
    with contextlib.ExitStack() as outer:
        up = outer.enter_context(upstream.running(lambda _: pieces))
        store = reverie.open(tmp_path / "s.db", settings=Settings(upstream=up.url), embedder="none")
        outer.callback(store.close)
        with servers(tmp_path) as serve:
            running = serve(store)
            client = outer.enter_context(running.client())
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            answer = outer.enter_context(client.stream("POST", CHAT, json=body))
            lines = answer.iter_lines()
            while "two" not in next(lines):
                pass
        space = store.space("default")
        (session,) = space.sessions()
        events = [(event.role, event.interrupted) for event in space.session(session.id).events()]
    assert events == [("user", False), ("assistant", True)]
