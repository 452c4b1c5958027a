"""A user reads its own and the shared memories, and writes its own."""

from __future__ import annotations

import pytest

from reverie import InvalidInput, NotFound, SharedReadOnly, Store


def test_user_sees_own_and_shared_memories_only(store: Store) -> None:
    shared, bo, cy = (
        store.space("ana"),
        store.space("ana", user="bo"),
        store.space("ana", user="cy"),
    )
    s = shared.remember("zebra shared")
    b = bo.remember("zebra of bo")
    c = cy.remember("zebra of cy")
    assert (s.user, b.user, c.user) == (None, "bo", "cy")
    assert shared.memories() == [s]
    assert bo.memories() == [b, s]
    assert cy.memories() == [c, s]
    for handle, seen in ((shared, {s.id}), (bo, {b.id, s.id}), (cy, {c.id, s.id})):
        for mode in ("keyword", "vector", "hybrid"):
            hits = handle.recall("zebra", mode=mode, limit=50)
            assert {hit.id for hit in hits} == seen
            assert {hit.memory for hit in hits} == set(handle.memories())
        assert {hit.id for hit in handle.recall("zebra", as_of=3)} == seen
        assert {memory.id for memory in handle.memories(as_of=3)} == seen
    assert bo.get(s.id) == s and bo.history(s.id)[0].content == s.content
    assert "of cy" not in bo.profile() and "shared" in bo.profile()


def test_user_cannot_change_shared_memories(store: Store) -> None:
    shared, bo = store.space("ana"), store.space("ana", user="bo")
    memory = shared.remember("x")
    for change in (bo.forget, bo.restore, bo.erase):
        with pytest.raises(SharedReadOnly) as caught:
            change(memory.id)
        assert caught.value.memory_id == memory.id
    with pytest.raises(SharedReadOnly):
        bo.revise(memory.id, "y")
    with pytest.raises(SharedReadOnly):
        bo.revise(memory.id, pinned=True)
    assert shared.history(memory.id) == bo.history(memory.id)
    assert len(shared.history(memory.id)) == 1


def test_memory_of_another_user_is_not_found(store: Store) -> None:
    shared, bo, cy = (
        store.space("ana"),
        store.space("ana", user="bo"),
        store.space("ana", user="cy"),
    )
    memory = bo.remember("x")
    for handle in (shared, cy, store.space("ben"), store.space("ben", user="bo")):
        for verb in (handle.get, handle.history, handle.forget, handle.restore, handle.erase):
            with pytest.raises(NotFound) as caught:
                verb(memory.id)
            with pytest.raises(NotFound) as absent:
                verb("nothere1")
            assert str(caught.value).replace(memory.id, "nothere1") == str(absent.value)
        with pytest.raises(NotFound):
            handle.revise(memory.id, "y")
    assert bo.get(memory.id) == memory


def test_memories_of_two_owners_are_ordered_by_position(store: Store) -> None:
    shared, bo = store.space("ana"), store.space("ana", user="bo")
    made = [(shared if n % 2 else bo).remember(f"fact {n}") for n in range(6)]
    assert bo.memories() == made[::-1]
    assert bo.memories(limit=3) == made[:2:-1]


@pytest.mark.parametrize(
    "name", ["", "   ", "a\nb", "a\0b", "a\x7fb", "a\u2028b", "\ud800", "x" * 201]
)
def test_names_with_invisible_differences_are_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidInput):
        store.space(name)
    with pytest.raises(InvalidInput):
        store.space("ana", user=name)
    with pytest.raises(InvalidInput):
        store.space("ana", actor=name)


def test_handle_repr_names_its_scope(store: Store) -> None:
    handle = store.space("ana", user="bo")
    assert (handle.name, handle.user, repr(handle)) == ("ana", "bo", "Space('ana', user='bo')")
    assert repr(store.space("ana")) == "Space('ana')"
