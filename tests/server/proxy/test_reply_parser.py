"""Parsing replies: the assistant's message, from one answer or from the chunks of a stream."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from reverie.server.proxy import reply_parser
from reverie.server.proxy.reply_parser import ReplyStream
from reverie.text.messages import text_of
from tests.server.proxy.upstream import event, stream_of


def read(raw: bytes, size: int | None = None) -> ReplyStream:
    stream = ReplyStream()
    for at in range(0, len(raw), size or len(raw) or 1):
        stream.feed(raw[at : at + (size or len(raw))])
    stream.end()
    return stream


def finished(stream: ReplyStream) -> bool:
    return stream.is_complete(interrupted=False)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, None])
def test_reply_stream_is_parsed_whatever_its_chunks(size: int | None) -> None:
    raw = b"".join(stream_of(["Grüße", "aus", "Köln", "😀"]))
    stream = read(raw, size)
    assert stream.done and stream.is_complete(interrupted=True)
    assert stream.message == {"role": "assistant", "content": "Grüße aus Köln 😀"}


def test_streamed_tool_calls_are_merged_by_their_index() -> None:
    def part(index: int, **call: Any) -> bytes:
        return event({"tool_calls": [{"index": index, **call}]})

    raw = b"".join(
        [
            event({"role": "assistant", "content": None}),
            part(0, id="a", type="function", function={"name": "add", "arguments": ""}),
            part(1, id="b", type="function", function={"name": "sub", "arguments": '{"x"'}),
            part(0, function={"arguments": '{"y": 1'}),
            part(1, function={"arguments": ": 2}"}),
            part(0, function={"arguments": "}"}),
            event({}, "tool_calls"),
        ]
    )
    message = read(raw).message
    assert message is not None and message["content"] is None
    assert [
        (call["id"], call["type"], call["function"]["name"], call["function"]["arguments"])
        for call in message["tool_calls"]
    ] == [("a", "function", "add", '{"y": 1}'), ("b", "function", "sub", '{"x": 2}')]
    assert not any("index" in call for call in message["tool_calls"])


def test_tool_calls_without_an_index_are_separated_by_their_ids() -> None:
    raw = b"".join(
        event({"tool_calls": [{"id": id, "function": {"name": id, "arguments": "{}"}}]})
        for id in ("a", "b")
    )
    message = read(raw).message
    assert message is not None
    assert [call["id"] for call in message["tool_calls"]] == ["a", "b"]


def test_reasoning_is_not_part_of_the_message() -> None:
    raw = event({"reasoning_content": "hm"}) + event({"content": "Yes", "reasoning": "so"})
    assert read(raw).message == {"role": "assistant", "content": "Yes"}
    whole = {"choices": [{"message": {"role": "assistant", "content": "Yes", "reasoning": "hm"}}]}
    assert reply_parser.parse_completion(json.dumps(whole).encode()) == {
        "role": "assistant",
        "content": "Yes",
    }


def test_refusal_is_part_of_the_message() -> None:
    stream = read(event({"refusal": "I can"}) + event({"refusal": "not."}, "stop"))
    assert stream.message == {"role": "assistant", "content": None, "refusal": "I cannot."}


def test_audio_transcript_is_the_content_of_the_message() -> None:
    stream = ReplyStream()
    for audio in (
        {"id": "audio_1"},
        {"transcript": "The train "},
        {"data": "UklGRg=="},
        {"transcript": "is late", "data": "AAAA"},
        {"expires_at": 1729018505},
    ):
        stream.feed(event({"audio": audio}))
    stream.end()
    assert stream.message is not None and stream.message["audio"] == {
        "id": "audio_1",
        "transcript": "The train is late",
        "expires_at": 1729018505,
    }
    assert text_of(stream.message) == "The train is late"


def test_only_the_first_choice_is_parsed() -> None:
    raw = event({"content": "no"}, index=1) + event({"content": "yes"}) + event({}, "stop", 1)
    stream = read(raw)
    assert stream.message == {"role": "assistant", "content": "yes"} and not finished(stream)
    choices = [{"index": n, "message": {"content": str(n)}} for n in (1, 0)]
    message = reply_parser.parse_completion(json.dumps({"choices": choices}).encode())
    assert message == {"role": "assistant", "content": "0"}


def test_list_content_and_old_function_call_are_parsed() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hi"}]
    assert read(event({"content": parts})).message == {"role": "assistant", "content": "Hi"}
    raw = event({"function_call": {"name": "f", "arguments": "{"}})
    raw += event({"function_call": {"arguments": "}"}})
    message = read(raw).message
    assert message is not None and message["function_call"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b": ping\n\n",
        b"event: error\ndata: oops\n\n",
        b'data: {"error": {"message": "overloaded"}}\n\n',
        b"data: [1]\n\n",
        b'data: {"choices": [7]}\n\n',
        b'data: {"choices": [{"delta": null}]}\n\n',
        b'data: {"choices": [{"delta": {"tool_calls": [null], "content": {}}}]}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"\x00\xff\r\n\r\n",
    ],
)
def test_empty_reply_gives_no_message(raw: bytes) -> None:
    stream = read(raw)
    assert stream.message is None and not finished(stream)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"choices": 1}', b'{"choices": [{"message": {"content": ""}}]}']
)
def test_completion_without_a_message_gives_none(body: bytes) -> None:
    assert reply_parser.parse_completion(body) is None


def test_all_line_ends_and_multi_line_events_are_parsed() -> None:
    raw = b'data: {"choices": [{"index": 0,\r\ndata: "delta": {"content": "a"}}]}\r\n\r\n'
    raw += b'id: 1\ndata:{"choices":[{"delta":{"content":"b"}}]}\n\ndata: [DONE]'
    stream = read(raw)
    assert stream.done and stream.message == {"role": "assistant", "content": "ab"}


def test_random_bytes_raise_no_error() -> None:
    chance = random.Random(0)
    good = b"".join(stream_of(["a", "b"]))
    for _ in range(300):
        raw = bytearray(good)
        for _ in range(chance.randrange(1, 9)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        read(bytes(raw), chance.randrange(1, 50))
