"""as_of: what was known at a position or at a time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reverie import InvalidInput, Memory, Space, Store
from tests.conftest import DAY, HOUR, START, FakeClock


def test_memories_as_of_a_position_are_the_state_of_then(space: Space) -> None:
    seen: list[list[Memory]] = [[]]
    one = space.remember("zebra one")
    seen.append(space.memories())
    two = space.remember("zebra two")
    seen.append(space.memories())
    space.revise(one.id, "zebra first")
    seen.append(space.memories())
    space.forget(two.id)
    seen.append(space.memories())
    space.restore(two.id)
    seen.append(space.memories())
    for position, memories in enumerate(seen):
        assert space.memories(as_of=position) == memories
        hits = space.recall("zebra", as_of=position, limit=10)
        assert sorted(h.text for h in hits) == sorted(m.content for m in memories)
        assert {h.memory for h in hits} == set(memories)
    assert space.memories(as_of=999) == space.memories()


def test_memories_as_of_a_time_are_the_state_of_then(space: Space, clock: FakeClock) -> None:
    one = space.remember("zebra one")
    clock.step(DAY)
    space.revise(one.id, "zebra two")
    two = space.remember("zebra three")
    clock.step(DAY)
    space.forget(two.id)

    def at(moment: object) -> list[str]:
        return [memory.content for memory in space.memories(as_of=moment)]  # type: ignore[arg-type]

    assert at("2025-12-31") == []
    assert at("2026-01-01") == at("2026-01-01T23:59:59.999") == ["zebra one"]
    assert at("2026-01-02") == ["zebra three", "zebra two"]
    assert at(datetime(2026, 1, 2, 1, tzinfo=UTC)) == ["zebra three", "zebra two"]
    assert at(datetime(2026, 1, 2, 1, tzinfo=UTC).date()) == ["zebra three", "zebra two"]
    assert at("2026-01-03") == at("2030-01-01") == ["zebra two"]
    assert [h.text for h in space.recall("zebra", as_of="2026-01-01")] == ["zebra one"]
    with pytest.raises(InvalidInput):
        space.memories(as_of="the day before")


def test_erased_memory_is_absent_from_every_earlier_position(space: Space) -> None:
    kept = space.remember("zebra kept")
    gone = space.remember("zebra gone")
    space.revise(gone.id, "zebra gone too")
    space.erase(gone.id)
    for position in range(6):
        assert gone.id not in [m.id for m in space.memories(as_of=position)]
        assert gone.id not in [h.id for h in space.recall("zebra", as_of=position)]
    assert space.memories(as_of=3) == [kept]


def test_recall_as_of_now_equals_a_plain_recall(space: Space) -> None:
    for number in range(12):
        space.remember(f"zebra {number} " + "likes grass " * (number % 4))
    for mode in ("keyword", "vector", "hybrid"):
        now = space.recall("zebra grass", mode=mode, limit=12)
        then = space.recall("zebra grass", mode=mode, limit=12, as_of=12)
        assert [(h.id, h.score, h.text) for h in now] == [(h.id, h.score, h.text) for h in then]


def test_recall_as_of_now_equals_a_plain_recall_for_a_user(store: Store) -> None:
    """Statistics and mean are each owner's own."""
    shared, bo = store.space("ana"), store.space("ana", user="bo")
    for number in range(8):
        shared.remember(f"zebra {number} " + "likes grass " * (number % 4))
    bo.remember("zebra of bo in the rain")
    bo.remember("grass")
    for mode in ("keyword", "vector", "hybrid"):
        now = bo.recall("zebra grass", mode=mode, limit=12)
        then = bo.recall("zebra grass", mode=mode, limit=12, as_of=10)
        assert [(h.id, h.score) for h in now] == [(h.id, h.score) for h in then]


def test_recall_as_of_now_with_a_filter_equals_a_plain_recall(space: Space) -> None:
    for number in range(12):
        space.remember(
            f"zebra {number} " + "likes grass " * (number % 4), tags=["t"] if number % 3 else []
        )
    now = space.recall("zebra grass", tags=["t"], limit=12)
    then = space.recall("zebra grass", tags=["t"], limit=12, as_of=12)
    assert [(h.id, h.score) for h in now] == [(h.id, h.score) for h in then]


def test_as_of_judges_expiry_at_that_time(space: Space, clock: FakeClock) -> None:
    space.remember("zebra", expires_at=START + HOUR)
    clock.step(2 * HOUR)
    space.remember("horse")
    assert [m.content for m in space.memories(as_of=1)] == ["zebra"]
    assert [h.text for h in space.recall("zebra", as_of=1)] == ["zebra"]
    assert [m.content for m in space.memories(as_of=2)] == ["horse"]
    later = datetime.fromtimestamp((START + HOUR) / 1000, UTC)
    assert space.memories(as_of=later) == []


def test_as_of_includes_forgotten_memories_of_then_on_request(space: Space) -> None:
    memory = space.remember("x")
    gone = space.forget(memory.id)
    assert space.memories(as_of=2) == []
    assert space.memories(as_of=2, include_forgotten=True) == [gone]


def test_as_of_applies_filters_to_the_labels_of_then(space: Space) -> None:
    memory = space.remember("x", category="a", tags=["t"], subject="s")
    space.revise(memory.id, category="b", tags=["u"], subject="r")
    assert space.memories(as_of=1, category="a", tags=["t"], subject="S") == [memory]
    assert space.memories(as_of=1, category="b") == []
    assert space.memories(as_of=2, category="a") == []


def test_as_of_combines_the_entries_of_user_and_space(store: Store) -> None:
    shared, bo = store.space("ana"), store.space("ana", user="bo")
    s = shared.remember("x")
    b = bo.remember("y")
    assert bo.memories(as_of=1) == [s]
    assert bo.memories(as_of=2) == [b, s]
    assert shared.memories(as_of=2) == [s]
