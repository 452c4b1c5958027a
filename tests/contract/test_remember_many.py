"""``remember_many``: all or none, one memory for each item, in one transaction."""

from __future__ import annotations

from typing import Any

import pytest

from reverie import InvalidInput, KeyConflict, NotFound, Origin, Space, Store
from tests.conftest import Stores


def test_remember_many_returns_one_memory_for_each_item(space: Space) -> None:
    memories = space.remember_many(
        [
            "Alec is my boss",
            {"content": "Tea at four", "category": "habit", "tags": ["Tea"], "kind": "note"},
            {"content": "Ship", "subject": "launch", "metadata": {"n": 1}, "pinned": True},
        ]
    )
    assert [memory.content for memory in memories] == ["Alec is my boss", "Tea at four", "Ship"]
    assert (memories[1].category, memories[1].tags, memories[1].kind) == ("habit", ("tea",), "note")
    assert (memories[2].metadata, memories[2].pinned) == ({"n": 1}, True)
    assert [memory.id for memory in reversed(space.memories())] == [m.id for m in memories]
    assert [hit.id for hit in space.recall("tea", limit=1)] == [memories[1].id]
    assert [space.get(memory.id) for memory in memories] == memories


def test_remember_many_of_nothing_writes_nothing(space: Space) -> None:
    assert space.remember_many([]) == []
    assert space.position() == 0


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"content": ""}, "item 2: content must not be empty"),
        ({"content": "x", "kind": "memo"}, "item 2: kind must be one of"),
        ({"content": "x", "contents": "y"}, "item 2: unknown field 'contents'"),
        ({"content": "x", "key": "k"}, "item 2: unknown field 'key'"),
        ({"category": "x"}, "item 2: it must be a text or an object with a content"),
        (7, "item 2: it must be a text or an object with a content"),
        ({"content": "x", "metadata": {"a": float("nan")}}, "item 2: metadata.a must be"),
    ],
)
def test_remember_many_stores_nothing_when_one_item_is_wrong(
    space: Space, item: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        space.remember_many(["fine", item])
    assert space.count() == 0 and space.position() == 0


def test_remember_many_refuses_one_text_and_too_many(space: Space) -> None:
    with pytest.raises(InvalidInput, match="wrap it in a list"):
        space.remember_many("one text")
    with pytest.raises(InvalidInput, match="at most 1000"):
        space.remember_many(f"item {number}" for number in range(1_001))
    assert space.count() == 0


def test_remember_many_with_a_key_has_one_effect(space: Space) -> None:
    items = ["one", "two", "one"]
    first = space.remember_many(items, key="k")
    assert first[0].id == first[2].id and (first[0].version, first[2].version) == (1, 2)
    position = space.position()
    assert space.remember_many(items, key="k") == first
    assert space.position() == position
    for other in (["one", "two"], ["one", "two", "three"]):
        with pytest.raises(KeyConflict):
            space.remember_many(other, key="k")
    with pytest.raises(KeyConflict):
        space.remember("one", key="k")
    space.erase(first[1].id)
    with pytest.raises(NotFound):
        space.remember_many(items, key="k")


def test_remember_many_touches_what_is_known_and_tells_what_is_related(space: Space) -> None:
    known = space.remember("Alec is my boss", subject="Alec")
    again, tea = space.remember_many(
        [
            {"content": "Alec is my boss", "subject": "Alec"},
            {"content": "Alec likes tea", "subject": "Alec"},
        ]
    )
    assert (again.id, again.version) == (known.id, 2)
    assert [each.id for each in again.related] == [tea.id]
    assert [each.id for each in tea.related] == [known.id]


def test_remember_many_compares_the_items_with_each_other(space: Space) -> None:
    made = space.remember_many(
        ["Alec is my boss", {"content": "alec is  my boss.", "subject": "Alec"}, "Alec likes tea"]
    )
    assert made[0].id == made[1].id != made[2].id
    assert [(each.version, each.subject) for each in made] == [(1, None), (2, "Alec"), (1, None)]


def test_remember_many_of_a_session_names_its_latest_event(space: Space) -> None:
    chat = space.session("chat")
    chat.append({"role": "user", "content": "look at the oars"})
    other = Origin("another", 3)
    made = chat.remember_many(["the oars are red", {"content": "the mast is oak", "origin": other}])
    assert [memory.session for memory in made] == [None, None]
    origins = [space.history(memory.id)[0].origin for memory in made]
    assert origins == [Origin("chat", 1), other]


def test_remember_many_respects_the_cap(stores: Stores) -> None:
    store = stores.open(max_facts=2)
    space = store.space("s")
    first = space.remember_many([f"fact {number}" for number in range(5)], key="k")
    assert len(first) == 5 and space.count() == 2
    assert space.remember_many([f"fact {number}" for number in range(5)], key="k") == first
    assert store.verify().ok


def test_remember_many_survives_a_rebuild(store: Store) -> None:
    space = store.space("s")
    space.remember_many([{"content": f"fact {n}", "metadata": {"n": n}} for n in range(30)])
    store.rebuild()
    assert store.verify().ok
    assert space.count(where={"metadata.n": {"gte": 20}}) == 10
