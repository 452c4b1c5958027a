"""Expiry, caps, and when something happened."""

from __future__ import annotations

import pytest

from reverie import Kind, NotFound, Space, Store, SubjectExists
from tests.conftest import DAY, HOUR, START, FakeClock, Stores, rows


def test_expired_memory_is_hidden_at_once_and_later_forgotten(
    store: Store, space: Space, clock: FakeClock
) -> None:
    memory = space.remember("the zebra train", expires_at=START + HOUR, pinned=True)
    assert store.run_pending_jobs() == 0
    clock.step(HOUR - 1)
    assert store.run_pending_jobs() == 0
    assert space.memories() == [memory] and len(space.recall("zebra")) == 1
    clock.step(1)
    for mode in ("keyword", "vector", "hybrid"):
        assert space.recall("zebra", mode=mode) == []
    assert space.memories() == [] and space.profile() == ""
    assert len(space.history(memory.id)) == 1
    assert store.run_pending_jobs() == 1
    gone = space.history(memory.id)[-1]
    assert (gone.op, gone.actor) == ("forget", "reverie")
    assert "expired" in (gone.reason or "")
    assert space.get(memory.id).forgotten_at == clock.now()
    assert store.jobs() == [] and store.verify().ok


def test_expiry_never_fires_early_when_the_clock_steps(
    store: Store, space: Space, clock: FakeClock
) -> None:
    memory = space.remember("x", expires_at=START + HOUR)
    clock.step(-DAY)
    assert store.run_pending_jobs() == 0 and space.memories() == [memory]
    clock.at = START + HOUR
    assert store.run_pending_jobs() == 1 and space.memories() == []


def test_memory_that_expired_before_it_was_written_is_hidden(store: Store, space: Space) -> None:
    one = space.remember("x", expires_at="1960-01-01")
    two = space.remember("y", expires_at="1965-01-01")
    assert space.memories() == []
    store.run_pending_jobs()
    assert [space.get(memory.id).forgotten_at for memory in (one, two)] == [START, START]


def test_erased_memory_has_no_expiry_job_left(store: Store, space: Space, clock: FakeClock) -> None:
    space.erase(space.remember("x", expires_at=START + HOUR).id)
    space.forget(space.remember("y", expires_at=START + HOUR).id)
    clock.step(DAY)
    store.run_pending_jobs()
    assert store.jobs() == []


def test_expired_memories_do_not_use_up_the_recall_limit(space: Space, clock: FakeClock) -> None:
    kept = space.remember("zebra stays")
    for number in range(3):
        space.remember(f"zebra {number}", expires_at=START + HOUR)
    clock.step(DAY)
    assert space.memories(limit=1) == [kept]
    assert [hit.id for hit in space.recall("zebra", limit=1)] == [kept.id]


def test_many_expired_memories_do_not_hide_a_current_one(space: Space, clock: FakeClock) -> None:
    kept = space.remember("zebra and many other words that make this the weakest match of all")
    for number in range(60):
        space.remember(f"zebra {number}", expires_at=START + HOUR)
    clock.step(DAY)
    assert [hit.id for hit in space.recall("zebra", limit=5, mode="keyword")] == [kept.id]


def test_subject_of_an_expired_memory_can_be_used_again(space: Space, clock: FakeClock) -> None:
    """An expired memory, which no list shows, does not prevent remembering its subject again."""
    space.remember("old", subject="train", expires_at=START + HOUR)
    clock.step(DAY)
    try:
        space.remember("old", subject="train", unless_known=True)
    except SubjectExists as error:
        pytest.fail(f"a memory that is over is in the way: {error}")


@pytest.mark.parametrize("kind", ["fact", "note"])
def test_cap_forgets_the_oldest_memory_with_a_reason(
    stores: Stores, clock: FakeClock, kind: Kind
) -> None:
    space = stores.open(max_facts=3, max_notes=3).space("ana")
    made = []
    for number in range(5):
        made.append(space.remember(f"x {number}", kind=kind))
        clock.step(-DAY)  # the oldest by position, never by clock
    other = space.remember("other kind", kind="note" if kind == "fact" else "fact")
    assert space.memories(kind=kind) == made[:1:-1]
    assert space.get(other.id).forgotten_at is None
    for memory in made[:2]:
        last = space.history(memory.id)[-1]
        assert last.op == "forget" and "cap of 3" in (last.reason or "")
        assert space.get(memory.id).content == memory.content


def test_cap_does_not_evict_pinned_memories(stores: Stores) -> None:
    space = stores.open(max_facts=2).space("ana")
    pinned = space.remember("pinned", pinned=True)
    one = space.remember("one")
    two = space.remember("two")
    assert space.memories() == [two, pinned]
    assert space.get(one.id).forgotten_at is not None


def test_caps_are_counted_for_each_owner(stores: Stores) -> None:
    store = stores.open(max_facts=2)
    handles = [store.space("ana"), store.space("ana", user="bo"), store.space("ben")]
    for number in range(2):
        for handle in handles:
            handle.remember(f"fact {number}")
    assert [len(handle.memories()) for handle in handles] == [2, 4, 2]
    handles[1].remember("one more")
    assert [len(handle.memories()) for handle in handles] == [2, 4, 2]
    assert len(handles[0].memories()) == 2


def test_cap_forgets_only_what_the_same_actor_remembered(stores: Stores) -> None:
    store = stores.open(max_facts=2)
    one, two, nobody = (store.space("ana", actor=actor) for actor in ("one", "two", None))
    kept = [two.remember("two's first"), nobody.remember("nobody's"), two.remember("two's second")]
    for number in range(4):
        one.remember(f"one's {number}")
    # A revision by somebody else does not make it theirs.
    one.revise(kept[0].id, "two's first, as one wrote it")
    contents = {memory.content for memory in one.memories()}
    assert contents == {
        *("two's first, as one wrote it", "nobody's", "two's second", "one's 2", "one's 3")
    }
    store.rebuild()
    two.remember("two's third")
    assert one.get(kept[0].id).forgotten_at is not None
    assert {memory.content for memory in one.memories()} == {
        *("nobody's", "two's second", "two's third", "one's 2", "one's 3")
    }
    assert store.verify().ok


def test_no_memory_is_evicted_without_a_cap(space: Space) -> None:
    space.import_records({"content": f"fact {number}"} for number in range(600))
    assert len(space.memories()) == 600


def test_cap_applies_to_imports(stores: Stores) -> None:
    space = stores.open(max_facts=2).space("ana")
    space.import_records({"content": f"plain {number}"} for number in range(4))
    assert len(space.memories()) == 2
    elsewhere = stores.open("other").space("ana")
    for number in range(4):
        elsewhere.remember(f"more {number}")
    space.import_records(list(elsewhere.export()))
    assert len(space.memories()) == 2


def test_time_filters_use_happened_at(space: Space, clock: FakeClock) -> None:
    early = space.remember("zebra long ago", happened_at="2020-05-01")
    now = space.remember("zebra now")
    clock.step(DAY)
    late = space.remember("zebra tomorrow")

    def between(**limits: str | int) -> list[str]:
        found = []
        for mode in ("keyword", "vector", "hybrid"):
            hits = space.recall("zebra", mode=mode, **limits)  # type: ignore[arg-type]
            found.append(sorted(hit.id for hit in hits))
        found.append(sorted(h.id for h in space.recall("zebra", as_of=3, **limits)))  # type: ignore[arg-type]
        assert all(part == found[0] for part in found)
        return found[0]

    assert between(until="2021-01-01") == [early.id]
    assert between(since="2021-01-01") == sorted([now.id, late.id])
    assert between(since="2026-01-02") == [late.id]
    assert between(since="2026-01-01", until="2026-01-02") == [now.id]
    assert between(since="2020-05-01", until="2020-05-01T00:00:00.001") == [early.id]
    assert between(since=START, until=START) == []


def test_recall_log_is_written_with_the_next_write(store: Store, space: Space) -> None:
    memory = space.remember("zebra")
    before = rows(store, "SELECT position FROM counters")
    space.recall("zebra crossing")
    space.recall("zebra crossing")
    assert rows(store, "SELECT * FROM recalls") == []
    assert rows(store, "SELECT position FROM counters") == before
    space.remember("another")
    written = rows(store, "SELECT query, hits, at FROM recalls ORDER BY recall")
    assert len(written) == 2 and written[0] == written[1]
    assert "zebra" not in written[0][0] and memory.id in written[0][1]
    assert written[0][2] == START


def test_recall_log_is_written_on_close(stores: Stores) -> None:
    store = stores.open()
    store.space("ana").remember("zebra")
    store.space("ana").recall("zebra")
    store.space("nowhere").recall("zebra")
    store.close()
    assert len(rows(stores.open(), "SELECT * FROM recalls")) == 1


def test_recall_log_is_pruned_after_thirty_days(
    store: Store, space: Space, clock: FakeClock
) -> None:
    space.remember("zebra")
    space.recall("zebra")
    space.remember("one")
    for _ in range(29):
        clock.step(DAY)
        store.run_pending_jobs()
        assert len(rows(store, "SELECT * FROM recalls")) == 1
    clock.step(2 * DAY)
    assert store.run_pending_jobs() == 1
    assert rows(store, "SELECT * FROM recalls") == [] and store.jobs() == []


def test_empty_and_as_of_recalls_are_not_logged(store: Store, space: Space) -> None:
    space.remember("zebra")
    assert space.recall("unknownword", mode="keyword") == []
    space.recall("zebra", as_of=1)
    space.remember("other")
    assert rows(store, "SELECT * FROM recalls") == []


def test_recalls_through_other_handles_write_nothing(stores: Stores) -> None:
    store = stores.open()
    store.space("ana").remember("zebra")
    reader = stores.open()
    for _ in range(5):
        assert reader.space("ana", user="bo").recall("zebra")
    with pytest.raises(NotFound):
        reader.space("ana", user="bo").get("nothere1")
    assert store.spaces()[0].users == ()
