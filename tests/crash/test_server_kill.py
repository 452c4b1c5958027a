"""kill -9 of a server in the middle of chats: nothing lost, and nothing doubled by repeating."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import reverie
from reverie import Settings
from reverie.testing import completion
from tests.crash.served import TOKEN, Served
from tests.figures import figure
from tests.server.conftest import CHAT
from tests.server.proxy.upstream import (
    Pieces,
    Received,
    Reply,
    Whole,
    running,
    stream_of,
)
from tests.tiers import PROVE

ROUNDS = max(int(os.environ.get("REVERIE_CRASH_ROUNDS", "80" if PROVE else "40")) // 20, 2)
CLIENTS = 3
PATIENCE = 60.0


def replying(received: Received) -> Reply:
    """The same reply to the same words, so that a doubled one would be seen."""
    question = received.messages[-1]["content"].rpartition("\n\n")[2]
    if received.json["stream"]:
        return Pieces(stream_of(["Reply", "to", *question.split(" ")]))
    return Whole(completion(f"Reply to {question}"))


class Talker(threading.Thread):
    """A client in one conversation, that repeats what it does not know to have succeeded."""

    def __init__(self, url: str, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._url, self._number, self._over = url + CHAT, number, over
        self.acknowledged: list[dict[str, Any]] = []
        self.repeated = 0

    def run(self) -> None:
        turn = 0
        while not self._over.is_set():
            message = {"role": "user", "content": f"Talker {self._number} asks question {turn}"}
            reply = self._asked([*self.acknowledged, message], stream=bool(turn % 2))
            if reply is None:
                return
            self.acknowledged = [
                *self.acknowledged,
                message,
                {"role": "assistant", "content": reply},
            ]
            turn += 1

    def _asked(self, messages: list[dict[str, Any]], *, stream: bool) -> str | None:
        """The reply, however often it has to be asked for; None when the test is over."""
        body = {"model": "m", "stream": stream, "messages": messages}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        while True:
            try:
                answer = httpx2.post(
                    self._url, json=body, headers=headers, timeout=PATIENCE, verify=False
                )
            except httpx2.HTTPError:
                self.repeated += 1
                if self._over.wait(0.05):
                    return None
                continue
            assert answer.status_code == 200, answer.text
            if not stream:
                text: str = answer.json()["choices"][0]["message"]["content"]
                return text
            assert answer.text.endswith("data: [DONE]\n\n")
            return f"Reply to {messages[-1]['content']}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with running(replying) as upstream:
        made = Served(tmp_path, REVERIE_UPSTREAM=upstream.url)
        yield made
        made.kill()


def stored(path: Path) -> dict[str, list[tuple[str, str]]]:
    with reverie.open(path, settings=Settings(embedder="hashing")) as store:
        space = store.space("default")
        assert store.verify().ok
        return {
            info.id: [(e.role, e.text) for e in space.session(info.id).events()]
            for info in space.sessions()
        }


@pytest.mark.prove
def test_proxied_chats_survive_server_kills(served: Served, tmp_path: Path) -> None:
    chance = random.Random(11)
    stop = threading.Event()
    url = served.start()
    talkers = [Talker(url, number, stop) for number in range(CLIENTS)]
    for talker in talkers:
        talker.start()
    for _ in range(ROUNDS):
        stop.wait(chance.uniform(0.05, 0.8))
        known = [list(talker.acknowledged) for talker in talkers]
        served.kill()
        texts = {text for events in stored(tmp_path / "store.db").values() for _, text in events}
        missing = {message["content"] for each in known for message in each} - texts
        figure("kills", 1)
        figure("acknowledged writes missing", len(missing))
        assert not missing
        served.start()
    # On a slow machine a client may have met nothing but servers that were about to be killed.
    end = time.monotonic() + PATIENCE
    while not all(talker.acknowledged for talker in talkers) and time.monotonic() < end:
        stop.wait(0.05)
    stop.set()
    for talker in talkers:
        talker.join(PATIENCE)
        assert not talker.is_alive()
    served.kill()

    kept = stored(tmp_path / "store.db")
    counted = Counter(text for events in kept.values() for _, text in events)
    twice = [text for text, times in counted.items() if times > 1]
    figure("acknowledged writes", sum(len(talker.acknowledged) for talker in talkers))
    figure("writes made twice", len(twice))
    assert counted and not twice
    for talker in talkers:
        expected = [(message["role"], message["content"]) for message in talker.acknowledged]
        assert expected and any(events[: len(expected)] == expected for events in kept.values())
    assert sum(talker.repeated for talker in talkers) > 0
