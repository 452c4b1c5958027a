"""Callers of REST and MCP with similar names: no caller sees the canary of another."""

from __future__ import annotations

import json
import os
import random
import re
import time

import httpx2
import pytest

from tests.figures import figure
from tests.server.conftest import Running

CANARY = re.compile(r"canary(\d+)x\d+q")
# Spaces and users that a prefix, a wildcard or a folding of letters would take for each other.
OWNERS: tuple[tuple[str, str], ...] = (
    ("a", "b"),
    ("a", "bc"),
    ("ab", "b"),
    ("A", "b"),
    ("a%", "_"),
    ("a_", "%"),
    ("caf\u00e9", "b"),
    ("cafe\u0301", "b"),
)
STEPS = max(int(os.environ.get("REVERIE_PROPERTY_EXAMPLES", "30")) // 2, 15)


def acted(client: httpx2.Client, chance: random.Random, word: str, known: list[str]) -> str:
    """Do one thing of every kind over REST or MCP; what was said about it."""
    content = f"zebra {word}"
    target = chance.choice(known) if known and chance.random() < 0.8 else "absent00"
    match chance.randrange(9):
        case 0 | 1:
            answer = client.post("/api/memory/", json={"content": content, "tags": [word]})
            if answer.status_code == 201:
                known.append(answer.json()["id"])
        case 2:
            answer = client.put(f"/api/memory/{target}", json={"content": f"again {content}"})
        case 3:
            body = {"messages": [{"role": "user", "content": f"I said {word}"}]}
            answer = client.post("/api/sessions/chat/events", json=body)
        case 4:
            answer = client.post("/api/recall", json={"query": "zebra canary", "limit": 50})
        case 5:
            answer = client.get(
                chance.choice(
                    ["/api/memory/", "/api/export", "/api/sessions", "/api/spaces", "/api/whoami"]
                )
            )
        case 6:
            answer = client.get(f"/api/memory/{target}")
        case 7:
            answer = client.post("/api/sessions/chat/context", json={"query": "zebra"})
        case _:
            tool, given = chance.choice(
                [
                    ("remember", {"content": content}),
                    ("recall", {"query": "zebra canary", "limit": 50}),
                    ("memories", {}),
                    ("history", {"id": target}),
                    ("context", {"query": "zebra"}),
                ]
            )
            call = {"name": tool, "arguments": given}
            frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            accepted = {"Accept": "application/json, text/event-stream"}
            answer = client.post("/mcp", json=frame, headers=accepted)
    assert answer.status_code < 500, answer.text
    if answer.status_code == 429:
        time.sleep(float(answer.headers["retry-after"]))
    else:
        figure("operations", 1)
    return f"{dict(answer.headers)} {answer.text}"


@pytest.mark.parametrize("seed", range(8))
def test_canary_of_one_caller_is_visible_to_no_other(running: Running, seed: int) -> None:
    chance = random.Random(seed)
    tokens = [running.token("write", spaces=[space], user=user) for space, user in OWNERS]
    clients = []
    for (space, user), token in zip(OWNERS, tokens, strict=True):
        clients.append(running.client(token, params={"space": space, "user": user}))
    known: list[str] = []
    crossed: list[str] = []
    try:
        for number in range(STEPS * len(OWNERS)):
            owner = chance.randrange(len(OWNERS))
            # Ids of everybody: another's must be answered as one that nobody has.
            answers = acted(clients[owner], chance, f"canary{owner}x{number}q", known)
            seen = {int(found) for found in CANARY.findall(json.dumps(answers))}
            crossed += [f"{other} seen by {owner}" for other in seen - {owner}]
    finally:
        for client in clients:
            client.close()
    figure("canaries seen elsewhere", len(crossed))
    assert not crossed
