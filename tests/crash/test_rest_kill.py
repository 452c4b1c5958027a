"""A server killed in the middle of requests: repeated with their keys, each happens once."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path

import httpx2

import reverie
from reverie import Settings
from tests.crash.served import TOKEN, Served
from tests.figures import figure

ROUNDS = max(int(os.environ.get("REVERIE_CRASH_ROUNDS", "80")) // 40, 2)
CLIENTS = 4
PATIENCE = 60.0


class Client:
    """Writes one thing after the other, each until it is acknowledged."""

    def __init__(self, base: str, number: int) -> None:
        self._base, self._number = base, number
        self.acknowledged: dict[str, str] = {}
        self.repeated = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _write(self) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(base_url=self._base, headers=headers, timeout=PATIENCE) as client:
            while not self._stop.is_set():
                content = f"client {self._number} thing {len(self.acknowledged)}"
                self.acknowledged[content] = self._until_acknowledged(client, content)

    def _until_acknowledged(self, client: httpx2.Client, content: str) -> str:
        chat = self._number % 2
        path = f"/api/sessions/chat{self._number}/events" if chat else "/api/memory/"
        body = (
            {"messages": [{"role": "user", "content": content}]} if chat else {"content": content}
        )
        while True:
            try:
                answer = client.post(path, json=body, headers={"Idempotency-Key": content})
            except httpx2.TransportError:
                self.repeated += 1
                self._stop.wait(0.02)
                continue
            assert answer.status_code == 201, answer.text
            made = answer.json()
            return f"{made['events'][0]['sequence']}" if chat else str(made["id"])


def count(clients: list[Client]) -> int:
    return sum(len(client.acknowledged) for client in clients)


def test_rest_writes_are_neither_lost_nor_duplicated_by_kills(tmp_path: Path) -> None:
    chance, served = random.Random(7), Served(tmp_path)
    base = served.start()
    clients = [Client(base, number) for number in range(CLIENTS)]
    try:
        for _ in range(ROUNDS):
            before, more = count(clients), chance.randrange(5, 25)
            while count(clients) < before + more:
                threading.Event().wait(0.002)
            served.kill()
            assert served.start() == base
        for client in clients:
            client.finish()
    finally:
        for client in clients:
            client._stop.set()
        served.kill()
    assert sum(client.repeated for client in clients) >= ROUNDS
    with reverie.open(tmp_path / "store.db", settings=Settings(embedder="hashing")) as store:
        space = store.space("default")
        memories = {memory.content: memory.id for memory in space.memories(include_forgotten=True)}
        missing = twice = 0
        for client in clients:
            kept = memories
            if client._number % 2:
                events = space.session(f"chat{client._number}").events()
                twice += sum(n > 1 for n in Counter(event.text for event in events).values())
                kept = {event.text: str(event.sequence) for event in events}
            missing += sum(kept.get(text) != id for text, id in client.acknowledged.items())
        written = [memory.content for memory in space.memories(include_forgotten=True)]
        twice += len(written) - len(set(written))
        figure("kills", ROUNDS)
        figure("acknowledged writes", count(clients))
        figure("acknowledged writes missing", missing)
        figure("writes made twice", twice)
        assert (missing, twice) == (0, 0)
        assert store.verify().ok
    repeated = sum(client.repeated for client in clients)
    print(f"{ROUNDS} kills, {count(clients)} acknowledged, {repeated} tries without an answer")
