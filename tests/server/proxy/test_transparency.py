"""Requests and replies of every shape pass the proxy byte for byte, where nothing is known.

The pairs are drawn from a seed: bodies as clients write them (spaces, escapes, numbers, doubled
keys, images, tools) and replies as services give them, whole and streamed, good and bad.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reverie.testing import completion
from tests.conftest import PROVE
from tests.crash.served import TOKEN, Served
from tests.figures import figure, percentile
from tests.server.conftest import CHAT, Proxy
from tests.server.proxy.upstream import (
    Pieces,
    Received,
    Reply,
    Whole,
    running,
    stream_of,
)

PAIRS = 240 if PROVE else 40
WORDS = ["kettle", "l\u00e9gende", "\u65e5\u672c", '"x"', "line\nend", "\U0001f993", "\t", "\\"]
JSON = {"Content-Type": "application/json"}
# What the proxy adds to a whole reply that it understood.
ADDED = b', "memory_hits": []}'


@dataclass(frozen=True)
class Pair:
    """One recorded exchange: the client's bytes and the service's."""

    request: bytes
    reply: Whole | Pieces
    streamed: bool


def drawn(seed: int) -> Pair:
    """Draw a pair; the text is new each time, so that nothing of it is known."""
    chance = random.Random(seed)
    text = f"pair {seed} " + " ".join(chance.choices(WORDS, k=4))
    content: Any = text
    if chance.random() < 0.3:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}
        content = [{"type": "text", "text": text}, image]
    streamed = chance.random() < 0.5
    body: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": content}]}
    if streamed:
        body["stream"] = True
    if chance.random() < 0.4:
        body["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    for name in chance.sample(["temperature", "seed", "logit_bias", "user", "metadata"], k=2):
        body[name] = chance.choice([1.0, 0, -1, {"a": [1, None]}, "x", True])
    items = list(body.items())
    chance.shuffle(items)
    raw = json.dumps(
        dict(items),
        ensure_ascii=chance.random() < 0.5,
        indent=chance.choice([None, None, 1, 4]),
        separators=chance.choice([None, (",", ":"), (" , ", " : ")]),
    )
    if chance.random() < 0.3:
        # A number and a doubled key as no library of ours would write them.
        raw = raw.replace("{", '{"top_p": 1.0E+0, "n":1, "n":1, ', 1)
    if chance.random() < 0.3:
        raw += chance.choice(["\n", "\r\n", "  "])
    return Pair(raw.encode(), _reply(chance, seed, streamed), streamed)


def _reply(chance: random.Random, seed: int, streamed: bool) -> Whole | Pieces:
    if chance.random() < 0.2:
        status = chance.choice([400, 401, 404, 429, 500, 503])
        return Whole(json.dumps({"error": {"message": f"no {seed}"}}).encode(), status)
    words = [f"reply{seed}", *chance.choices(WORDS, k=chance.randint(1, 12))]
    if not streamed:
        return Whole(completion(" ".join(words)))
    pieces = stream_of(words)
    if chance.random() < 0.3:
        pieces = [piece.replace(b"\n\n", b"\r\n\r\n") for piece in pieces]
    if chance.random() < 0.3:
        pieces.insert(1, b": keep-alive\n\n")
    whole, cut = b"".join(pieces), chance.randint(5, 200)
    return Pieces([whole[at : at + cut] for at in range(0, len(whole), cut)])


def bytes_of(reply: Whole | Pieces) -> bytes:
    return reply.body if isinstance(reply, Whole) else b"".join(reply.pieces)


def changed(sent: bytes, arrived: bytes) -> int:
    """Count the bytes that differ."""
    differing = sum(one != two for one, two in zip(sent, arrived, strict=False))
    return differing + abs(len(sent) - len(arrived))


def test_recorded_request_and_response_pairs_pass_unchanged(proxy: Proxy) -> None:
    current: list[Pair] = []

    def script(_: Received) -> Reply:
        return current[-1].reply

    it = proxy(script, learn="off")
    differing = 0
    with it.running.client(headers=JSON) as client:
        for seed in range(PAIRS):
            current.append(drawn(seed))
            pair, expected = current[-1], bytes_of(current[-1].reply)
            # Each in a space of its own: nothing is known that could be put in.
            own = {"X-Reverie-Space": f"pair{seed}"}
            answer = client.post(CHAT, content=pair.request, headers=own)
            arrived, got = it.upstream.last.body, answer.content
            if isinstance(pair.reply, Whole):
                assert answer.status_code == pair.reply.status
                got = got.replace(ADDED, b"}")
            wrong = changed(pair.request, arrived) + changed(expected, _without_hits(got))
            figure("pairs", 1)
            differing += wrong
            assert not wrong, (seed, pair.request, arrived, expected, got)
    figure("bytes changed", differing)


@pytest.mark.prove
def test_latency_of_the_proxy_is_reported(tmp_path: Path) -> None:
    """A server in a process of its own, chats in turn with it and with the upstream itself.

    Nothing is asserted about time: the figure stands in the table of proofs.
    """
    with running(lambda _: Whole(completion("All is well"))) as upstream:
        served = Served(tmp_path, REVERIE_UPSTREAM=upstream.url, REVERIE_LEARN="off")
        ways = {served.start() + CHAT: list[float](), upstream.url + CHAT[3:]: list[float]()}
        given = {**JSON, "Authorization": f"Bearer {TOKEN}"}
        try:
            with httpx2.Client(headers=given, timeout=30, verify=False) as client:
                for number in range(PAIRS):
                    message = {"role": "user", "content": f"hello {number}"}
                    # Stored, and nothing recalled.
                    raw = json.dumps({"messages": [message], "memory_top_k": 0})
                    for way, took in ways.items():
                        began = time.perf_counter()
                        answer = client.post(way, content=raw)
                        took.append(time.perf_counter() - began)
                        assert answer.status_code == 200, answer.text
        finally:
            served.kill()
    through, direct = ways.values()
    # The first requests load what a server needs.
    added = [one - two for one, two in zip(through[5:], direct[5:], strict=True)]
    figure("added latency, p95", 1_000 * percentile(added, 0.95), "max")
    figure("added latency, median, ms", 1_000 * percentile(added, 0.5), "max")


def _without_hits(got: bytes) -> bytes:
    """Take out the event that the proxy adds to a stream, which is documented."""
    kept = [line for line in got.splitlines(keepends=True) if b'"memory_hits"' not in line]
    return b"".join(kept)
