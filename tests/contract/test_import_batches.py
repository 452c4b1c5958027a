"""Importing records in one batch has the same result as importing each of them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reverie import Store
from reverie.engine import index, log, seals
from reverie.model import Scope
from reverie.protocols import Embedder
from reverie.transfer import import_
from tests.conftest import DAY, HOUR, START, FakeClock, FakeEmbedder, Stores, engine_of, rows

TABLES = (
    *("meta", "spaces", "owners", "counters", "log", "memories", "tags", "documents"),
    *("passages", "postings", "statistics", "touched", "unembedded", "jobs", "due"),
)
EMBEDDERS: tuple[str | Embedder, ...] = ("hashing", "none", FakeEmbedder(remote=True))


def tables(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, and the vectors of the space."""
    held = {name: sorted(rows(store, f"SELECT * FROM {name}"), key=repr) for name in TABLES}
    with engine_of(store).read() as tx:
        owner = log.resolve_owner(tx, Scope("ana", None))
        assert owner is not None
        count = index.statistics(tx, owner).next_passage
        vectors = tx.vectors(owner, 1, np.arange(count))
        held["vectors"] = [tuple(row) for row in vectors.tolist()]
    return held


def records(stores: Stores) -> list[Any]:
    """All that a record may be: plain ones of every kind, entries of an export, and neither."""
    elsewhere = stores.open("elsewhere").space("ana")
    first = elsewhere.remember("taken from elsewhere", tags=["far"])
    elsewhere.remember("soon over", expires_at=START + DAY)
    elsewhere.revise(first.id, "taken from elsewhere, and changed")
    ours = list(elsewhere.export())
    return [
        {"content": "a zebra in the garden", "tags": ["Animal", "garden"], "subject": "Zebra"},
        {"content": "a zebra in the garden", "subject": "Zebra"},
        {"content": "long " * 900, "pinned": True, "source": "a book"},
        ours[0],
        {"content": "told yesterday", "created_at": START - DAY},
        {"content": "told tomorrow", "created_at": START + DAY},
        {"content": "told an hour ago", "created_at": START - HOUR, "category": "News"},
        {"content": ""},
        "no record",
        ours[1],
        ours[2],
        ours[1],
        {"content": "a note", "kind": "note", "tags": ["garden"]},
        {"content": "told yesterday", "created_at": START - DAY},
        {"content": "the last of all"},
    ]


@pytest.mark.parametrize("batch", [500, 4])
@pytest.mark.parametrize("embedder", EMBEDDERS, ids=["hashing", "none", "remote"])
def test_batch_write_leaves_the_same_rows_as_single_writes(
    stores: Stores, embedder: str | Embedder, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seals, "new_salt", lambda: "the same for all")
    given = records(stores)
    together, alone = (stores.open(name, embedder=embedder) for name in ("together", "alone"))
    monkeypatch.setattr(import_, "BATCH", 1)
    each = alone.space("ana").import_records(given)
    monkeypatch.setattr(import_, "BATCH", batch)
    report = together.space("ana").import_records(given)
    assert (report.added, report.unchanged, len(report.skipped)) == (10, 3, 2)
    assert report == each
    assert tables(together) == tables(alone)
    assert together.verify().ok
    again = together.space("ana").import_records(given)
    assert (again.added, again.unchanged, again.skipped) == (0, 13, report.skipped)
    assert tables(together) == tables(alone)


def test_entries_of_a_batch_have_consecutive_positions(stores: Stores, clock: FakeClock) -> None:
    """Each has a position of its own, and their times never run backwards."""
    store = stores.open()
    space = store.space("ana")
    space.remember("before")
    times = [START - DAY, START + HOUR, START - HOUR, None]
    clock.step(2 * HOUR)
    space.import_records(
        {"content": f"fact {number}", "created_at": at} for number, at in enumerate(times)
    )
    space.remember("behind")
    found = rows(store, "SELECT position, recorded_at FROM log ORDER BY position")
    hours = [(position, (at - START) // HOUR) for position, at in found]
    assert hours == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]


@pytest.mark.parametrize("pinned", [(), (0, 1, 2), (4, 5)])
def test_cap_leaves_the_same_memories_after_batch_and_single_writes(
    stores: Stores, pinned: tuple[int, ...]
) -> None:
    given = [{"content": f"fact {n}", "pinned": n in pinned} for n in range(6)]
    together, alone = (stores.open(name, max_facts=2) for name in ("together", "alone"))
    for store in (together, alone):
        store.space("ana").remember("the oldest")
    together.space("ana").import_records(given)
    for record in given:
        alone.space("ana").import_records([record])
    left = [[m.content for m in store.space("ana").memories()] for store in (together, alone)]
    assert left[0] == left[1]
    assert together.verify().ok
