"""Positions: a token bound to a user learns nothing from them of what others write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import reverie
from reverie import Settings, Space, Store
from tests.conftest import FakeClock, SeededIds
from tests.server.conftest import Running, servers

SPACE = "team"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
ACCEPT = {"Accept": "application/json, text/event-stream", "X-Reverie-Space": SPACE}
BUSY = 30


class SharedServer:
    """A server with a user who reads, others who write, and what all of them share."""

    def __init__(self, running: Running) -> None:
        self.running, self.store = running, running.store
        self.ana = self.store.space(SPACE, user="ana")
        self.token = running.token("write", spaces=[SPACE], user="ana")
        self.ids: list[str] = []

    def others(self, number: int) -> None:
        """All that another user can do."""
        bob: Space = self.store.space(SPACE, user=f"bob{number % 3}")
        memory = bob.remember(f"a secret of bob's, number {number}")
        bob.revise(memory.id, f"a new secret, number {number}")
        bob.session(f"s{number}").append({"role": "user", "content": "My name is Bob"})
        bob.forget(memory.id)

    def own(self, number: int) -> None:
        """What the user does, and what is shared with them."""
        memory = self.ana.remember(f"the fact number {number}")
        self.ids.append(memory.id)
        self.ana.revise(memory.id, f"the revised fact number {number}")
        self.store.space(SPACE).remember(f"a shared fact, number {number}")
        self.ana.session("talk").append({"role": "user", "content": f"word {number}"})

    def client(self) -> httpx2.Client:
        return self.running.client(self.token, headers=ACCEPT)

    def answers(self) -> dict[str, Any]:
        """Everything the user can read, as bytes came, but for what no two stores have alike."""
        reads = [
            ("/api/memory/", {}),
            ("/api/memory/", {"include_forgotten": "true", "limit": "2"}),
            ("/api/categories", {}),
            ("/api/spaces", {}),
            ("/api/profile", {}),
            ("/api/sessions", {}),
            ("/api/sessions/talk", {}),
            ("/api/sessions/talk/events", {}),
            ("/api/proposals", {}),
            ("/api/export", {}),
            ("/api/changes", {"after": "0", "wait": "false"}),
            ("/api/changes", {"after": "3", "wait": "false"}),
            *((f"/api/memory/{id}", {}) for id in self.ids),
            *(("/api/memory/", {"as_of": str(moment)}) for moment in range(0, 40, 3)),
        ]
        found: dict[str, Any] = {}
        with self.client() as client:
            for path, params in reads:
                answer = client.get(path, params=params)
                assert answer.status_code == 200, answer.text
                found[f"{path} {params}"] = answer.text
            for moment in (0, 5, 11, 40, 10_000):
                body = {"query": "fact number", "as_of": moment, "explain": True}
                found[f"recall {moment}"] = client.post("/api/recall", json=body).text
                for tool in ("memories", "recall", "history"):
                    asked = {"id": self.ids[0]} if tool == "history" else {"as_of": str(moment)}
                    asked |= {"query": "fact"} if tool == "recall" else {}
                    called: dict[str, Any] = {"name": tool, "arguments": asked}
                    answer = client.post("/mcp", json={**CALL, "params": called})
                    assert '"isError":true' not in answer.text, answer.text
                    found[f"{tool} {moment}"] = answer.text
        return found


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    with servers(tmp_path) as serve:
        stores: list[Store] = []

        def start(name: str) -> SharedServer:
            settings = Settings(embedder="hashing", space=SPACE, learn="off")
            clock = FakeClock()
            store = reverie.open(
                tmp_path / f"{name}.db", settings=settings, clock=clock, ids=SeededIds()
            )
            stores.append(store)
            return SharedServer(serve(store))

        yield start
    for store in stores:
        store.close()


def test_answers_to_a_bound_user_do_not_change_when_others_write(make: Any) -> None:
    shared = make("one")
    for number in range(4):
        shared.own(number)
        shared.others(number)
    before = shared.answers()
    for number in range(BUSY):
        shared.others(100 + number)
    assert shared.answers() == before


def shown_positions(shared: SharedServer) -> list[Any]:
    with shared.client() as client:
        listed = client.get("/api/memory/").json()["position"]
        spaces = client.get("/api/spaces").json()["spaces"][0]["position"]
        versions = [
            [version["position"] for version in client.get(f"/api/memory/{id}").json()["versions"]]
            for id in shared.ids
        ]
        feed = client.get("/api/changes", params={"after": "0", "wait": "false"}).text
        moments = [
            client.get("/api/memory/", params={"as_of": str(moment)}).json()["total"]
            for moment in range(0, 60, 4)
        ]
    ids = [line for line in feed.splitlines() if line.startswith("id: ")]
    return [listed, spaces, versions, ids, moments]


def test_positions_shown_to_a_bound_user_do_not_depend_on_others(make: Any) -> None:
    quiet, busy = make("quiet"), make("busy")
    for number in range(5):
        quiet.own(number)
        for another in range(number * 3):
            busy.others(another)
        busy.own(number)
    positions = shown_positions(quiet)
    assert shown_positions(busy) == positions
    assert positions[0] == positions[1] == 20 and positions[3] == [
        f"id: {number}" for number in range(1, 21)
    ]


def test_position_of_a_version_is_accepted_as_as_of(make: Any) -> None:
    shared = make("one")
    for number in range(3):
        shared.others(number)
        shared.own(number)
    with shared.client() as client:
        for number, id in enumerate(shared.ids):
            first, second = client.get(f"/api/memory/{id}").json()["versions"]
            seen = {
                moment: {
                    each["id"]: each["content"]
                    for each in client.get("/api/memory/", params={"as_of": moment}).json()[
                        "memories"
                    ]
                }
                for moment in (first["position"] - 1, first["position"], second["position"])
            }
            assert id not in seen[first["position"] - 1]
            assert seen[first["position"]][id] == f"the fact number {number}"
            assert seen[second["position"]][id] == f"the revised fact number {number}"


@pytest.mark.parametrize("header", [False, True])
def test_feed_of_a_bound_user_continues_from_its_last_position(make: Any, header: bool) -> None:
    shared = make("one")
    for number in range(3):
        shared.others(number)
        shared.own(number)

    def changes_after(after: int) -> list[dict[str, Any]]:
        params = {"wait": "false", **({} if header else {"after": str(after)})}
        headers = {"Last-Event-ID": str(after)} if header else {}
        with shared.client() as client:
            lines = client.get("/api/changes", params=params, headers=headers).text.splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]

    whole = changes_after(0)
    assert [change["position"] for change in whole] == list(range(1, 13))
    for after in range(13):
        assert changes_after(after) == whole[after:]
    shared.others(7)
    assert changes_after(12) == [] and changes_after(1_000) == []
    shared.own(7)
    assert [change["position"] for change in changes_after(12)] == [13, 14, 15, 16]


def test_token_without_a_user_gets_log_positions(make: Any) -> None:
    shared = make("one")
    shared.others(1)
    shared.own(1)
    with shared.running.client(headers=ACCEPT) as client:
        position = client.get("/api/memory/").json()["position"]
    assert position == shared.store.space(SPACE).position() == 8


def test_visible_positions_are_read_once_per_request(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked through is not looked through again, whoever wrote it."""
    from reverie.write import visible_positions

    shared = make("one")
    shared.own(1)
    looked: list[int] = []
    sound = visible_positions._read_positions

    def between(tx: Any, owners: Any, after: int, until: int) -> list[int]:
        looked.append(until - after)
        return sound(tx, owners, after, until)

    monkeypatch.setattr(visible_positions, "_read_positions", between)
    shown_positions(shared)
    shown_positions(shared)
    shared.others(1)
    shown_positions(shared)
    assert looked == [4, 4]
