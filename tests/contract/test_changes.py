"""revise, forget, restore, erase and history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reverie import InvalidInput, NotFound, Origin, Space, Store, VersionConflict
from reverie.engine import log
from tests.conftest import DAY, HOUR, FakeClock, FakeEmbedder, Stores, engine_of, rows, tamper


def found(space: Space, query: str) -> list[str]:
    """What any mode finds."""
    hits = [space.recall(query, mode=mode) for mode in ("keyword", "vector", "hybrid")]
    return sorted({hit.id for part in hits for hit in part})


def test_revise_adds_a_new_version_of_the_same_memory(space: Space, clock: FakeClock) -> None:
    first = space.remember("Alec is my boss", category="person", subject="Alec", tags=["work"])
    clock.step(HOUR)
    second = space.revise(first.id, "Seabrook is my boss", subject="Seabrook", reason="he left")
    assert (second.id, second.version, second.created_at) == (first.id, 2, first.created_at)
    assert second.updated_at == first.updated_at + HOUR
    assert (second.category, second.tags) == ("person", ("work",))
    assert space.get(first.id) == second
    one, two = space.history(first.id)
    assert (one.content, two.content) == (first.content, second.content)
    assert (one.version, two.version, two.op, two.reason) == (1, 2, "revise", "he left")
    assert two.position > one.position and one.uuid != two.uuid
    assert [hit.id for hit in space.recall("Seabrook", mode="keyword")] == [first.id]
    assert space.recall("Alec", mode="keyword") == []


def test_revise_keeps_fields_that_are_not_given(space: Space) -> None:
    first = space.remember(
        "text", category="a", subject="s", tags=["t"], pinned=True, happened_at=5, source="src"
    )
    second = space.revise(first.id, tags=[])
    assert second.tags == ()
    third = space.revise(first.id, subject=None)
    assert (third.subject, third.content, third.category) == (None, "text", "a")
    fourth = space.revise(first.id, pinned=False)
    fifth = space.revise(first.id, category="B C")
    assert (fourth.pinned, fifth.category, fifth.version) == (False, "b_c", 5)
    assert (fifth.happened_at, fifth.source) == (5, "src")
    assert space.memories(category="b c") == [fifth] and space.memories(category="a") == []
    with pytest.raises(InvalidInput):
        space.revise(first.id)
    assert space.get(first.id).version == 5


def test_revise_with_a_stale_expected_version_is_a_conflict(space: Space) -> None:
    memory = space.remember("one")
    space.revise(memory.id, "two", expected_version=1)
    with pytest.raises(VersionConflict) as caught:
        space.revise(memory.id, "three", expected_version=1)
    assert (caught.value.expected, caught.value.current) == (1, 2)
    assert space.get(memory.id).content == "two"
    assert len(space.history(memory.id)) == 2


def test_revise_of_a_forgotten_memory_is_refused(space: Space) -> None:
    memory = space.remember("one")
    space.forget(memory.id)
    with pytest.raises(NotFound):
        space.revise(memory.id, "two")
    with pytest.raises(NotFound):
        space.revise(memory.id, pinned=True)


def test_trust_of_a_revision_is_that_of_the_writer_of_its_content(store: Store) -> None:
    person = store.space("ana", actor="Ana")
    model = store.space("ana", trust="model")
    agent = store.space("ana", trust="agent")
    memory = person.remember("said by a person")
    assert memory.trust == "person"
    assert model.revise(memory.id, pinned=True).trust == "model"
    assert person.revise(memory.id, pinned=False).trust == "model"
    assert agent.revise(memory.id, "written by an agent").trust == "agent"
    assert person.revise(memory.id, "written by a person").trust == "person"
    versions = person.history(memory.id)
    assert [v.trust for v in versions] == ["person", "model", "person", "agent", "person"]
    assert [v.actor for v in versions] == ["Ana", None, "Ana", None, "Ana"]
    with pytest.raises(InvalidInput):
        store.space("ana", trust="god")  # type: ignore[arg-type]


def test_forget_hides_a_memory_from_recall_and_can_be_undone(
    space: Space, clock: FakeClock
) -> None:
    memory = space.remember("the zebra is striped", tags=["t"], subject="zebra")
    other = space.remember("a horse is not")
    assert memory.id in found(space, "zebra striped")
    clock.step(HOUR)
    gone = space.forget(memory.id, reason="untrue")
    assert (gone.version, gone.forgotten_at) == (2, clock.now())
    assert gone.updated_at == memory.updated_at
    assert memory.id not in found(space, "zebra striped")
    assert space.memories() == [other]
    assert space.memories(include_forgotten=True) == [other, gone]
    assert space.memories(tags=["t"]) == []
    assert space.get(memory.id) == gone
    assert memory.id not in space.profile()
    assert space.history(memory.id)[-1].reason == "untrue"

    back = space.restore(memory.id)
    assert (back.version, back.forgotten_at, back.content) == (3, None, memory.content)
    assert memory.id in found(space, "zebra striped")
    assert space.memories() == [other, back]
    assert space.memories(tags=["t"]) == [back]
    assert [v.op for v in space.history(memory.id)] == ["remember", "forget", "restore"]
    assert space.revise(memory.id, "still here").created_at == memory.created_at


def test_repeated_forget_and_restore_change_nothing(space: Space) -> None:
    memory = space.remember("x")
    assert space.restore(memory.id) == memory
    gone = space.forget(memory.id)
    assert space.forget(memory.id, reason="again") == gone
    assert len(space.history(memory.id)) == 2
    back = space.restore(memory.id)
    assert space.restore(memory.id) == back
    assert [v.version for v in space.history(memory.id)] == [1, 2, 3]


def test_erase_destroys_every_version(space: Space, store: Store) -> None:
    memory = space.remember(
        "secret one", subject="private", tags=["hush"], origin=Origin("s", 1), source="diary"
    )
    space.revise(memory.id, "secret two", reason="secret reason")
    space.forget(memory.id)
    report = space.erase(memory.id)
    assert (report.memory_id, report.entries, report.pending) == (memory.id, (1, 2, 3), False)
    assert report.position == 4
    for verb in (space.get, space.forget, space.restore, space.erase):
        with pytest.raises(NotFound):
            verb(memory.id)
    with pytest.raises(NotFound):
        space.revise(memory.id, "x")
    assert space.memories(include_forgotten=True) == []
    assert found(space, "secret") == []
    history = space.history(memory.id)
    assert [v.op for v in history] == ["remember", "revise", "forget", "erase"]
    assert [v.version for v in history] == [1, 2, 3, 4]
    for version in history:
        assert (version.content, version.category, version.subject) == (None, None, None)
        assert (version.tags, version.reason) == ((), None)
    everything = repr(rows(store, "SELECT * FROM log")) + repr(list(space.export()))
    for word in ("secret", "private", "hush", "diary"):
        assert word not in everything
    for table in ("memories", "passages", "postings", "tags", "unembedded"):
        assert rows(store, f"SELECT * FROM {table}") == []
    assert store.verify().ok


def test_erased_content_is_not_in_the_database_files(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    space = store.space("ana")
    note = " ".join(f"canarybird{number}" for number in range(400))
    memory = space.remember(note, kind="note")
    other = space.remember("stays")
    space.revise(memory.id, note + " again")
    assert space.erase(memory.id).pending is False
    for file in tmp_path.iterdir():
        assert b"canarybird" not in file.read_bytes(), file
    assert space.memories() == [other] and store.verify().ok
    assert [job for job in store.jobs() if job.kind == "scrub"] == []


def test_erase_with_an_open_reader_is_pending_until_a_job_finishes_it(stores: Stores) -> None:
    store, other = stores.open(), stores.open()
    memory = store.space("ana").remember("secret")
    from tests.conftest import engine_of

    with engine_of(other).read() as tx:
        tx.all("SELECT * FROM log")
        report = store.space("ana").erase(memory.id)
    if report.pending:  # an engine without old pages is never pending
        assert [job.kind for job in store.jobs()] == ["scrub"]
        assert store.run_pending_jobs() == 1
    assert store.jobs() == []


def test_erase_of_one_memory_leaves_the_others(space: Space, store: Store) -> None:
    kept = [space.remember(f"secret number {number}") for number in range(5)]
    gone = space.remember("secret number gone")
    space.erase(gone.id)
    assert found(space, "secret number") == sorted(memory.id for memory in kept)
    assert space.memories() == kept[::-1] and store.verify().ok


def test_history_holds_only_versions_of_its_memory(space: Space) -> None:
    one, two = space.remember("one"), space.remember("two")
    space.revise(one.id, "one again")
    assert [v.memory_id for v in space.history(one.id)] == [one.id, one.id]
    assert [v.memory_id for v in space.history(two.id)] == [two.id]
    positions = [v.position for id in (one.id, two.id) for v in space.history(id)]
    assert sorted(positions) == [1, 2, 3]


def test_recorded_at_never_decreases_when_the_clock_steps_back(
    space: Space, clock: FakeClock
) -> None:
    memory = space.remember("x")
    clock.step(-10 * 365 * DAY)
    second = space.revise(memory.id, "y")
    third = space.forget(memory.id)
    clock.step(20 * 365 * DAY)
    fourth = space.restore(memory.id)
    times = [v.recorded_at for v in space.history(memory.id)]
    assert times == sorted(times)
    assert second.created_at == fourth.created_at == memory.created_at
    assert second.updated_at == memory.created_at and third.forgotten_at == memory.created_at


def test_revise_of_what_is_not_indexed_does_not_embed_again(stores: Stores) -> None:
    embedder = FakeEmbedder()
    space = stores.open(embedder=embedder).space("ana")
    memory = space.remember("zebra")
    embedder.forget_calls()
    space.revise(memory.id, pinned=True, metadata={"team": "a"}, valid_to="2030-01-01")
    space.forget(memory.id)
    assert embedder.asked == 0


@pytest.mark.parametrize("sequence", [True, 1.0, "1", None])
def test_origin_refuses_a_sequence_that_would_be_stored_as_another_value(
    space: Space, sequence: object
) -> None:
    """What is sealed must be what the database gives back."""
    with pytest.raises(InvalidInput):
        space.remember("from nowhere", origin=("chat", sequence))  # type: ignore[arg-type]
    assert space.memories() == []


def test_changes_reads_no_more_log_rows_than_it_returns(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        space.remember(f"memory number {number}")
    read: list[int] = []
    entries = log.all_entries

    def counted(*given: Any, **named: Any) -> Iterator[log.LogEntry]:
        for entry in entries(*given, **named):
            read.append(entry.position)
            yield entry

    monkeypatch.setattr(log, "all_entries", counted)
    assert [change.position for change in space.changes(after=1, limit=2)] == [2, 3]
    assert read == [2, 3]


def test_database_refuses_a_log_entry_without_a_seal(space: Space, store: Store) -> None:
    """A process of an earlier version may still have the store open."""
    space.remember("sealed")
    with pytest.raises(Exception, match="upgraded|seal"):
        tamper(
            store,
            "INSERT INTO log (space, position, owner, op, recorded_at, schema, trust, uuid) "
            "VALUES (1, 99, 0, 'remember', 0, 1, 'person', 'x')",
        )
    space.remember("sealed too")
    assert store.verify().problems == ()


@pytest.mark.parametrize("after", [2**64, "\ud800", [1], object()], ids=type)
def test_value_too_large_for_its_column_is_refused_without_a_damage_check(
    space: Space, store: Store, monkeypatch: pytest.MonkeyPatch, after: Any
) -> None:
    """A caller's mistake says nothing about the store: nobody reads all of it for that."""
    space.remember("sound")
    examined: list[bool] = []
    monkeypatch.setattr(engine_of(store), "damage_check", lambda: examined.append(True))
    with pytest.raises(InvalidInput):
        space.changes(after=after)
    assert examined == []
