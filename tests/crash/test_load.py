"""Many clients at once: every request is answered, and memory stays as it is."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

import reverie
from reverie import Settings
from tests.crash.served import Served

SECONDS = float(os.environ.get("REVERIE_LOAD_SECONDS", "3"))
CLIENTS = int(os.environ.get("REVERIE_LOAD_CLIENTS", "16"))
MEMORIES = 1_000
# What a server may take more at the end than when it was warm.
MAX_GROWTH = 32 * 1024 * 1024


def resident(pid: int) -> int:
    """The bytes of memory a process holds."""
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def visit(base: str, token: str, ids: list[str], number: int, until: float) -> Counter[int]:
    """One client: looks, recalls, revises and chats, until time is up."""
    chance, answered = random.Random(number), Counter[int]()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=60) as client:
        while time.monotonic() < until:
            id, kind = chance.choice(ids), chance.random()
            if kind < 0.5:
                query = {"query": f"thing {chance.randrange(MEMORIES)} of client"}
                answer = await client.post("/api/recall", json=query)
            elif kind < 0.7:
                answer = await client.get("/api/memory/", params={"limit": "20"})
            elif kind < 0.8:
                answer = await client.get(f"/api/memory/{id}")
            elif kind < 0.9:
                body = {"messages": [{"role": "user", "content": "still there?"}]}
                answer = await client.post(f"/api/sessions/chat{number}/events", json=body)
            else:
                answer = await client.patch(f"/api/memory/{id}", json={"pinned": kind < 0.95})
            answered[answer.status_code] += 1
    return answered


async def load(base: str, tokens: list[str], ids: list[str], seconds: float) -> Counter[int]:
    until = time.monotonic() + seconds
    visits = (visit(base, token, ids, number, until) for number, token in enumerate(tokens))
    return sum(await asyncio.gather(*visits), Counter[int]())


@pytest.mark.prove
def test_many_concurrent_clients_get_correct_answers(tmp_path: Path) -> None:
    with reverie.open(tmp_path / "store.db", settings=Settings(embedder="hashing")) as store:
        space = store.space("default")
        space.import_records({"content": f"thing {number} of all"} for number in range(MEMORIES))
        ids = [memory.id for memory in space.memories(limit=200)]
        tokens = [store.create_token(f"client {number}")[1] for number in range(CLIENTS)]
    served = Served(tmp_path)
    base = served.start()
    try:
        warm = asyncio.run(load(base, tokens, ids, max(SECONDS / 4, 1)))
        before = resident(served.pid)
        answered = asyncio.run(load(base, tokens, ids, SECONDS))
        after = resident(served.pid)
    finally:
        served.kill()
    print(f"{CLIENTS} clients, {sum(answered.values())} answers in {SECONDS:g} s: {dict(answered)}")
    print(f"{before / 2**20:.0f} MB before, {after / 2**20:.0f} MB after")
    assert set(warm) | set(answered) <= {200, 201}
    assert after - before <= MAX_GROWTH
    with reverie.open(tmp_path / "store.db", settings=Settings(embedder="hashing")) as store:
        counts = [len(store.space("default").session(f"chat{n}").events()) for n in range(CLIENTS)]
        assert sum(counts) == warm[201] + answered[201]
        assert store.verify().ok
