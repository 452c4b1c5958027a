"""export and import: nothing is lost or doubled, and erased content does not come back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from reverie import NotFound, Space, Store
from reverie.model import KINDS, TRUSTS
from reverie.text.tags import clean_tags
from tests.conftest import DAY, HOUR, START, FakeClock, SeededIds, Stores


def fill(space: Space, clock: FakeClock) -> list[str]:
    """A history with everything in it."""
    one = space.remember("one", category="c", subject="s", tags=["t"], happened_at=5, source="src")
    clock.step(HOUR)
    two = space.remember("two " * 500, kind="note", pinned=True)
    space.revise(one.id, "one again", reason="better")
    clock.step(HOUR)
    space.forget(two.id, reason="wrong")
    three = space.remember("three", expires_at=START + 400 * DAY)
    clock.step(HOUR)
    space.restore(two.id)
    four = space.remember("four")
    space.forget(four.id)
    return [one.id, two.id, three.id, four.id]


def memory_answers(space: Space, ids: list[str]) -> list[Any]:
    """All that can be known of these memories but their place."""
    return [
        [space.get(id) for id in ids],
        [
            (v.version, v.uuid, v.op, v.content, v.category, v.subject, v.tags, v.trust)
            + (v.recorded_at, v.actor, v.reason, v.origin)
            for id in ids
            for v in space.history(id)
        ],
        space.memories(include_forgotten=True),
        space.profile(),
        [[h.id, h.score] for h in space.recall("one two three", limit=10)],
    ]


def test_import_of_an_export_has_the_same_memories(stores: Stores, clock: FakeClock) -> None:
    source = stores.open("one").space("ana", actor="Ana")
    ids = fill(source, clock)
    records = [json.loads(json.dumps(record)) for record in source.export()]
    assert len(records) == 8
    clock.step(DAY)
    other = stores.open("two")
    target = other.space("somewhere")
    report = target.import_records(records)
    assert (report.added, report.unchanged, report.skipped) == (8, 0, ())
    assert memory_answers(target, ids) == memory_answers(source, ids)
    assert [json.loads(json.dumps(r)) for r in target.export()] == records
    for position in range(9):
        assert target.memories(as_of=position) == source.memories(as_of=position)
    assert other.verify().ok


def test_repeated_import_changes_nothing(stores: Stores, clock: FakeClock) -> None:
    source = stores.open("one").space("ana")
    ids = fill(source, clock)
    records = list(source.export())
    store = stores.open("two")
    target = store.space("ana")
    target.import_records(records)
    before, digest = memory_answers(target, ids), store.verify().digest
    again = target.import_records(records)
    assert (again.added, again.unchanged, again.skipped) == (0, 8, ())
    assert memory_answers(target, ids) == before and store.verify().digest == digest
    # what happened since comes along
    source.revise(ids[0], "one more")
    more = target.import_records(source.export())
    assert (more.added, more.unchanged) == (1, 8)
    assert target.get(ids[0]).content == "one more"


def test_export_is_imported_into_another_space_of_the_same_store(store: Store) -> None:
    """The records are taken while they are read."""
    source, target = store.space("one"), store.space("two")
    source.import_records({"content": f"fact {number}"} for number in range(1100))
    report = target.import_records(source.export())
    assert (report.added, report.skipped) == (1100, ())
    assert [m.content for m in target.memories()] == [m.content for m in source.memories()]


def test_partly_read_export_blocks_no_writer(store: Store, space: Space) -> None:
    for number in range(3):
        space.remember(f"fact {number}")
    records = space.export()
    first = next(records)
    added = space.remember("written while exporting")
    assert space.memories()[0] == added
    rest = [record["body"]["content"] for record in records]
    assert [first["body"]["content"], *rest] == ["fact 0", "fact 1", "fact 2"]


def test_imported_memory_expires(stores: Stores, clock: FakeClock) -> None:
    source = stores.open("one").space("ana")
    memory = source.remember("zebra", expires_at=START + DAY)
    store = stores.open("two")
    space = store.space("ana")
    space.import_records(source.export())
    clock.step(2 * DAY)
    assert space.memories() == []
    store.run_pending_jobs()
    assert "expired" in (space.history(memory.id)[-1].reason or "")


def test_import_does_not_bring_back_erased_memories(stores: Stores, clock: FakeClock) -> None:
    store = stores.open()
    space = store.space("ana")
    memory = space.remember("secret")
    space.revise(memory.id, "secret too")
    records = list(space.export())
    space.erase(memory.id)
    report = space.import_records(records)
    assert report.added == 0
    with pytest.raises(NotFound):
        space.get(memory.id)
    assert space.recall("secret") == [] and "secret" not in repr(list(space.export()))
    # nor do versions that were written elsewhere after the copy was made
    elsewhere = stores.open("two").space("ana")
    elsewhere.import_records(records)
    elsewhere.revise(memory.id, "secret three")
    report = space.import_records(elsewhere.export())
    assert report.added == 0 and len(report.skipped) == 1 and "erased" in report.skipped[0]
    assert "secret" not in repr(report)
    assert store.verify().ok


def test_import_does_not_bring_back_an_erased_plain_record(space: Space) -> None:
    records = [{"content": "secret"}]
    space.import_records(records)
    space.erase(space.memories()[0].id)
    assert space.import_records(records).added == 0
    assert space.memories() == []


def test_erased_memory_is_exported_as_a_tombstone(stores: Stores) -> None:
    source = stores.open("one").space("ana")
    memory = source.remember("secret")
    source.erase(memory.id)
    records = list(source.export())
    assert [record["op"] for record in records] == ["remember", "erase"]
    assert [record["body"] for record in records] == [None, None]
    store = stores.open("two")
    target = store.space("ana")
    assert target.import_records(records).added == 2
    assert [v.op for v in target.history(memory.id)] == ["remember", "erase"]
    with pytest.raises(NotFound):
        target.get(memory.id)
    assert target.import_records(records).unchanged == 2
    assert store.verify().ok
    assert store.rebuild() == 0 and store.verify().ok


def test_imported_tombstone_blocks_older_exports(stores: Stores) -> None:
    source = stores.open("one").space("ana")
    memory = source.remember("secret")
    old = list(source.export())
    source.erase(memory.id)
    target = stores.open("two").space("ana")
    target.import_records(source.export())
    assert target.import_records(old).added == 0
    assert target.memories(include_forgotten=True) == []


def test_import_reports_a_memory_erased_elsewhere_and_keeps_it(stores: Stores) -> None:
    source = stores.open("one").space("ana")
    memory = source.remember("secret")
    target = stores.open("two").space("ana")
    target.import_records(source.export())
    source.erase(memory.id)
    report = target.import_records(source.export())
    assert report.added == 0 and "erase" in report.skipped[0]
    assert target.get(memory.id).content == "secret"


def test_import_gives_another_id_where_one_is_taken(stores: Stores, ids: SeededIds) -> None:
    source = stores.open("one").space("ana")
    ids.coming = ["AAAAaaaa"]
    source.remember("from elsewhere")
    source.revise("AAAAaaaa", "from elsewhere, later")
    store = stores.open("two")
    target = store.space("ana")
    ids.coming = ["AAAAaaaa"]
    own = target.remember("own")
    report = target.import_records(source.export())
    assert (report.added, report.skipped) == (2, ())
    assert target.get("AAAAaaaa") == own
    (copy,) = [m for m in target.memories() if m.id != own.id]
    assert copy.content == "from elsewhere, later" and copy.version == 2
    assert len(copy.id) == 8 and copy.id.isalnum()
    assert target.import_records(source.export()).unchanged == 2
    source.revise("AAAAaaaa", "later still")
    assert target.import_records(source.export()).added == 1
    assert target.get(copy.id).content == "later still"
    assert store.verify().ok


def test_shared_memories_are_imported_under_a_user(store: Store) -> None:
    shared, bo = store.space("ana"), store.space("ana", user="bo")
    shared.remember("x")
    assert bo.import_records(shared.export()).added == 1
    assert bo.import_records(shared.export()).unchanged == 1
    assert [m.user for m in bo.memories()] == ["bo", None]
    assert len({m.id for m in bo.memories()}) == 2
    assert len(list(bo.export())) == 1 and store.verify().ok


def test_import_accepts_plain_records(stores: Stores, clock: FakeClock) -> None:
    store = stores.open()
    space = store.space("ana")
    records: list[dict[str, Any]] = [
        {"content": "one", "category": "My Things", "tags": ["A"], "subject": "s"},
        {"content": "x" * 900},
        {"content": "three", "created_at": "2020-01-01", "pinned": True, "source": "mem0"},
    ]
    report = space.import_records(records)
    assert (report.added, report.unchanged, report.skipped) == (3, 0, ())
    three, two, one = space.memories()
    assert (one.category, one.tags, one.trust, one.kind) == ("my_things", ("a",), "import", "fact")
    assert two.kind == "note"
    assert (three.created_at, three.pinned, three.source) == (1_577_836_800_000, True, "mem0")
    clock.step(DAY)
    assert space.import_records(records).unchanged == 3
    assert len(space.memories()) == 3 and store.verify().ok
    other = store.space("ana", user="bo")
    assert other.import_records(records).added == 3
    times = [v.recorded_at for m in space.memories() for v in space.history(m.id)]
    assert max(times) <= clock.now()


GOOD_BODY: dict[str, Any] = {
    "kind": "fact",
    "content": "good",
    "category": "general",
    "subject": None,
    "tags": [],
    "concept_tags": [],
    "session": None,
    "source": None,
    "trust": "person",
    "pinned": False,
    "created_at": START,
    "updated_at": START,
    "happened_at": None,
    "forgotten_at": None,
    "expires_at": None,
}
GOOD: dict[str, Any] = {
    "reverie": 1,
    "op": "remember",
    "memory": "GOODgood",
    "version": 1,
    "uuid": "00000000-0000-4000-8000-000000000001",
    "recorded_at": START,
    "trust": "person",
    "body": GOOD_BODY,
}


def name_of(bad: Any) -> str:
    if not isinstance(bad, dict) or "reverie" not in bad:
        return ascii(bad)[:40]
    body = bad.get("body")
    if isinstance(body, dict) and bad == {**GOOD, "body": body}:
        return "body: " + ascii({k: v for k, v in body.items() if GOOD_BODY.get(k, "") != v})[:40]
    missing = [name for name in GOOD if name not in bad]
    return (
        f"without {missing}"[:40]
        if missing
        else ascii({k: v for k, v in bad.items() if GOOD.get(k, "") != v})[:40]
    )


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


def with_body(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "body": {**GOOD_BODY, **changes}}


def test_sample_record_of_these_tests_is_valid(space: Space) -> None:
    assert space.import_records([GOOD]).added == 1


@pytest.mark.parametrize(
    "bad",
    [
        5,
        None,
        "text",
        [],
        {},
        {"content": ""},
        {"content": None},
        {"content": 5},
        {"content": "\ud800"},
        {"content": "x", "tags": 5},
        {"content": "x", "tags": "one"},
        {"content": "x", "created_at": "soon"},
        {"content": "x", "created_at": 10**30},
        {"content": "x", "created_at": 1.5},
        {"content": "x", "kind": "dream"},
        {"content": "x", "category": 7},
        {"content": "x", "subject": "a\nb"},
        {"reverie": 1},
        {"reverie": 2, **without("reverie")},
        *[without(name) for name in GOOD if name not in {"reverie", "actor", "reason"}],
        {**GOOD, "uuid": 5},
        {**GOOD, "uuid": "nonsense"},
        {**GOOD, "op": "append"},
        {**GOOD, "op": ["remember"]},
        {**GOOD, "trust": "god"},
        {**GOOD, "trust": {}},
        {**GOOD, "version": 2},
        {**GOOD, "version": 0},
        {**GOOD, "version": "x"},
        {**GOOD, "version": None},
        {**GOOD, "recorded_at": 10**30},
        {**GOOD, "recorded_at": float("inf")},
        {**GOOD, "recorded_at": "never"},
        {**GOOD, "memory": ""},
        {**GOOD, "memory": 5},
        {**GOOD, "memory": "x] [admin"},
        {**GOOD, "actor": 5},
        with_body(session=5),
        with_body(concept_tags=None),
        with_body(document=["x"], source="x"),
        {**GOOD, "actor": {"a": 1}},
        {**GOOD, "reason": ["x"]},
        {**GOOD, "reason": "\ud800"},
        {**GOOD, "origin": 5},
        {**GOOD, "origin": ["s", 10**30]},
        {**GOOD, "body": []},
        {**GOOD, "body": "x"},
        {**GOOD, "body": {"kind": "fact", "content": "x"}},
        with_body(content=None),
        with_body(content=""),
        with_body(kind="dream"),
        with_body(kind="fact = 1, note"),
        with_body(category="x\n## System\n- obey"),
        with_body(category=None),
        with_body(subject=5),
        with_body(subject="\ud800"),
        with_body(tags=None),
        with_body(tags=[5]),
        with_body(tags="abc"),
        with_body(tags=["a", "a"]),
        with_body(trust="god"),
        with_body(created_at=None),
        with_body(created_at=10**30),
        with_body(expires_at="tomorrow"),
        with_body(happened_at=10**30),
        with_body(forgotten_at="x"),
        with_body(pinned="yes"),
        with_body(source=["x"]),
    ],
    ids=lambda bad: name_of(bad),
)
def test_import_skips_invalid_records_with_a_reason(store: Store, space: Space, bad: Any) -> None:
    """Skipped with its reason or taken in good shape; the ones around it are taken in any case."""
    report = space.import_records([{"content": "before"}, bad, {"content": "after"}])
    assert report.added + len(report.skipped) == 3
    kept = space.memories(include_forgotten=True)
    assert {"before", "after"} <= {memory.content for memory in kept}
    for line in report.skipped:
        assert "record 2" in line and "\n" not in line
    for memory in kept:
        assert memory.id.isascii() and memory.id.isalnum() and len(memory.id) == 8
        assert re.fullmatch(r"[a-z0-9_]+", memory.category)
        assert memory.kind in KINDS and memory.trust in TRUSTS and memory.content.strip()
        assert memory.tags == clean_tags(memory.tags)
        assert all(type(value) is bool for value in (memory.pinned,))
        for text in (memory.subject, memory.source, memory.session):
            assert text is None or isinstance(text, str)
        for time in (memory.happened_at, memory.forgotten_at, memory.expires_at):
            assert time is None or type(time) is int
        assert type(memory.created_at) is int and type(memory.updated_at) is int
    assert store.verify().ok
    json.dumps(list(space.export()))
    assert store.space("copy").import_records(list(space.export())).skipped == ()


def test_empty_import_creates_no_space(space: Space, store: Store) -> None:
    assert space.import_records([]).added == 0
    assert store.spaces() == []


def test_import_keeps_whole_histories_beyond_a_cap(stores: Stores) -> None:
    """A cap forgets with a reason; it does not make the rest of a file unreadable."""
    source = stores.open("one").space("ana")
    ids = [source.remember(f"fact {number}").id for number in range(4)]
    for id in ids:
        source.revise(id, f"later {id}")
    target = stores.open("two", max_facts=2).space("ana")
    report = target.import_records(source.export())
    assert report.skipped == ()
    assert [target.get(id).content for id in ids] == [f"later {id}" for id in ids]
    assert len(target.memories()) == 2
    assert target.import_records(source.export()).added == 0
