"""Idempotency keys: a repeated write has one effect, and a key is for one write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reverie import KeyConflict, Memory, NotFound, Space, Store
from tests.conftest import HOUR, FakeClock, Stores


def test_remember_with_the_same_key_returns_the_first_result(
    space: Space, clock: FakeClock
) -> None:
    first = space.remember("x", category="c", subject="s", tags=["t"], key="k")
    clock.step(HOUR)
    assert space.remember("x", category="C", subject="s", tags=["t"], key="k") == first
    assert space.memories() == [first]
    space.revise(first.id, "y")
    assert space.remember("x", category="c", subject="s", tags=["t"], key="k") == first
    assert space.get(first.id).content == "y"


def test_key_is_honoured_after_reopening(stores: Stores) -> None:
    store = stores.open()
    first = store.space("ana").remember("x", key="k")
    store.close()
    assert stores.open().space("ana").remember("x", key="k") == first


@pytest.mark.parametrize(
    "other",
    [
        lambda space, id: space.remember("other", key="k"),
        lambda space, id: space.remember("x", tags=["t"], key="k"),
        lambda space, id: space.remember("x", pinned=True, key="k"),
        lambda space, id: space.remember("x", kind="note", key="k"),
        lambda space, id: space.remember("x", happened_at=1, key="k"),
        lambda space, id: space.remember("x", metadata={"a": 1}, key="k"),
        lambda space, id: space.remember("x", valid_to=0, key="k"),
        lambda space, id: space.remember_many(["x"], key="k"),
        lambda space, id: space.revise(id, "x", key="k"),
        lambda space, id: space.forget(id, key="k"),
        lambda space, id: space.restore(id, key="k"),
        lambda space, id: space.erase(id, key="k"),
    ],
)
def test_key_reused_for_another_write_is_a_conflict(
    space: Space, other: Callable[[Space, str], object]
) -> None:
    first = space.remember("x", key="k")
    with pytest.raises(KeyConflict) as caught:
        other(space, first.id)
    assert caught.value.key == "k"
    assert space.memories() == [first] and len(space.history(first.id)) == 1


def test_revise_with_the_same_key_returns_the_first_result(space: Space) -> None:
    memory = space.remember("x")
    second = space.revise(memory.id, "y", tags=["t"], key="k")
    third = space.revise(memory.id, "z")
    assert space.revise(memory.id, "y", tags=["t"], key="k") == second
    assert space.get(memory.id) == third
    with pytest.raises(KeyConflict):
        space.revise(memory.id, "y", key="k")
    with pytest.raises(KeyConflict):
        space.revise(space.remember("other").id, "y", tags=["t"], key="k")
    space.forget(memory.id)
    assert space.revise(memory.id, "y", tags=["t"], key="k") == second


def test_forget_and_restore_with_the_same_key_return_the_first_result(space: Space) -> None:
    memory = space.remember("x")
    gone = space.forget(memory.id, key="f")
    back = space.restore(memory.id, key="r")
    assert space.forget(memory.id, key="f") == gone
    assert space.restore(memory.id, key="r") == back
    assert space.get(memory.id) == back
    assert len(space.history(memory.id)) == 3
    with pytest.raises(KeyConflict):
        space.forget(memory.id, key="r")


def test_key_is_stored_even_where_there_was_nothing_to_do(space: Space) -> None:
    """A repeated call must not act later because the first one found nothing to do."""
    memory = space.remember("x")
    space.forget(memory.id)
    space.forget(memory.id, key="f")
    space.restore(memory.id)
    space.forget(memory.id, key="f")
    assert space.get(memory.id).forgotten_at is None


def test_erase_with_the_same_key_returns_the_first_report(space: Space) -> None:
    memory = space.remember("x")
    space.revise(memory.id, "y")
    report = space.erase(memory.id, key="e")
    assert space.erase(memory.id, key="e") == report
    with pytest.raises(KeyConflict):
        space.erase(memory.id, with_source=True, key="e")
    with pytest.raises(NotFound):
        space.erase(memory.id, key="another")
    with pytest.raises(NotFound):
        space.erase(memory.id)


def test_key_of_an_erased_memory_does_not_bring_it_back(space: Space) -> None:
    memory = space.remember("x", key="k")
    space.erase(memory.id)
    with pytest.raises(NotFound):
        space.remember("x", key="k")
    assert space.memories() == []


def test_keys_of_two_owners_are_independent(store: Store) -> None:
    handles = [
        store.space("ana"),
        store.space("ana", user="bo"),
        store.space("ana", user="cy"),
        store.space("ben"),
    ]
    made: list[Memory] = [
        handle.remember(f"of {number}", key="k") for number, handle in enumerate(handles)
    ]
    assert len({memory.id for memory in made}) == 4
    for number, handle in enumerate(handles):
        assert handle.remember(f"of {number}", key="k") == made[number]


def test_failed_write_does_not_use_up_its_key(space: Space) -> None:
    with pytest.raises(NotFound):
        space.forget("nothere1", key="k")
    assert space.remember("x", key="k").version == 1
