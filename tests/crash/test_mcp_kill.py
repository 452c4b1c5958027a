"""A server killed in the middle of MCP calls: repeated with their keys, each happens once."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path

import httpx2
import pytest

import reverie
from reverie import Settings
from tests.crash.served import TOKEN, Served
from tests.figures import figure

ROUNDS = max(int(os.environ.get("REVERIE_CRASH_ROUNDS", "80")) // 40, 2)
CLIENTS = 3
PATIENCE = 60.0


class Agent(threading.Thread):
    """Remembers one thing after the other through the tool, each until it is acknowledged."""

    def __init__(self, base: str, number: int) -> None:
        super().__init__(daemon=True)
        self._url, self._number = f"{base}/mcp", number
        self.acknowledged: dict[str, str] = {}
        self.repeated = 0
        self.stop = threading.Event()

    def run(self) -> None:
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Accept": "application/json, text/event-stream",
        }
        with httpx2.Client(headers=headers, timeout=PATIENCE, verify=False) as client:
            while not self.stop.is_set():
                content = f"agent {self._number} learned thing {len(self.acknowledged)}"
                self.acknowledged[content] = self._until_acknowledged(client, content)

    def _until_acknowledged(self, client: httpx2.Client, content: str) -> str:
        call = {"name": "remember", "arguments": {"content": content, "key": content}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        while True:
            try:
                answer = client.post(self._url, json=body)
            except httpx2.TransportError:
                self.repeated += 1
                threading.Event().wait(0.02)
                continue
            assert answer.status_code == 200, answer.text
            result = answer.json()["result"]
            assert not result.get("isError"), answer.text
            return str(result["structuredContent"]["id"])


@pytest.mark.prove
def test_mcp_calls_are_neither_lost_nor_duplicated_by_kills(tmp_path: Path) -> None:
    chance, served = random.Random(17), Served(tmp_path)
    base = served.start()
    agents = [Agent(base, number) for number in range(CLIENTS)]
    for agent in agents:
        agent.start()
    try:
        for _ in range(ROUNDS):
            before, more = _count(agents), chance.randrange(3, 15)
            while _count(agents) < before + more:
                assert any(agent.is_alive() for agent in agents)
                threading.Event().wait(0.002)
            served.kill()
            assert served.start() == base
        for agent in agents:
            agent.stop.set()
            agent.join(PATIENCE)
            assert not agent.is_alive()
    finally:
        for agent in agents:
            agent.stop.set()
        served.kill()
    with reverie.open(tmp_path / "store.db", settings=Settings(embedder="hashing")) as store:
        kept = store.space("default").memories(include_forgotten=True)
        assert store.verify().ok
    ids = {memory.content: memory.id for memory in kept}
    missing = [
        text for agent in agents for text, id in agent.acknowledged.items() if ids.get(text) != id
    ]
    twice = [text for text, times in Counter(m.content for m in kept).items() if times > 1]
    figure("kills", ROUNDS)
    figure("acknowledged writes", _count(agents))
    figure("acknowledged writes missing", len(missing))
    figure("writes made twice", len(twice))
    assert (missing, twice) == ([], [])


def _count(agents: list[Agent]) -> int:
    return sum(len(agent.acknowledged) for agent in agents)
