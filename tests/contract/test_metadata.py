"""A memory's metadata: kept with each version, checked, redacted, exported."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reverie import InvalidInput, KeyConflict, Space, Store
from reverie.text.metadata import MAX_METADATA_BYTES

GIVEN: dict[str, Any] = {
    "team": "platform",
    "priority": 2,
    "share": 0.25,
    "open": True,
    "none": None,
    "people": ["Ana", "Bo"],
    "place": {"city": "Oslo", "floors": [1, 2]},
}


def test_metadata_is_kept_as_given(space: Space) -> None:
    memory = space.remember("Ship on Friday", metadata=GIVEN)
    assert memory.metadata == GIVEN
    assert space.get(memory.id) == memory
    assert space.memories()[0].metadata == GIVEN
    (hit,) = space.recall("ship")
    assert hit.memory is not None and hit.memory.metadata == GIVEN
    assert space.remember("Another").metadata == {}


def test_metadata_is_copied(space: Space) -> None:
    given = {"people": ["Ana"]}
    memory = space.remember("Ship on Friday", metadata=given)
    given["people"].append("Bo")
    assert memory.metadata == {"people": ["Ana"]}


def test_revise_replaces_metadata_and_history_keeps_each(space: Space) -> None:
    id = space.remember("Ship on Friday", metadata=GIVEN).id
    assert space.revise(id, "Ship on Monday").metadata == GIVEN
    assert space.revise(id, metadata={"team": "web"}).metadata == {"team": "web"}
    assert space.revise(id, metadata=None).metadata == {}
    assert [each.metadata for each in space.history(id)] == [GIVEN, GIVEN, {"team": "web"}, {}]
    assert space.memories(as_of=1)[0].metadata == GIVEN
    space.forget(id)
    assert space.restore(id).metadata == {}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (["a"], "must be a JSON object"),
        ({1: "a"}, "must be text"),
        ({"": "a"}, "must not be empty"),
        ({"a\nb": 1}, "control character"),
        ({"a": float("nan")}, "metadata.a must be a finite number"),
        ({"a": {"b": 10**400}}, "metadata.a.b must be a finite number"),
        ({"a": b"bytes"}, "metadata.a cannot hold bytes"),
        ({"a": ["x\0"]}, "metadata.a holds the character U+0000"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"a": "x" * MAX_METADATA_BYTES}, "at most 16384 are allowed"),
        ({"a" * 201: 1}, "at most 200 are allowed"),
        ({"a": [[[[[[[[1]]]]]]]]}, "nested deeper than 8 levels"),
    ],
)
def test_metadata_that_cannot_be_kept_is_refused(space: Space, metadata: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        space.remember("x", metadata=metadata)
    id = space.remember("x").id
    with pytest.raises(InvalidInput, match=re.escape(message)):
        space.revise(id, metadata=metadata)
    assert space.get(id).version == 1


def test_secrets_in_metadata_are_redacted(space: Space) -> None:
    secret = "ghp_" + "a1B2" * 9
    memory = space.remember("x", metadata={"note": [f"use {secret}"], "password": "hunter2!x"})
    assert secret not in str(memory.metadata) and "hunter2" not in str(memory.metadata)
    revised = space.revise(memory.id, metadata={"token": secret})
    assert secret not in str(revised.metadata)
    assert secret not in str(list(space.export()))


def test_key_with_other_metadata_is_a_conflict(space: Space) -> None:
    first = space.remember("x", metadata={"a": 1}, key="k")
    assert space.remember("x", metadata={"a": 1}, key="k") == first
    with pytest.raises(KeyConflict):
        space.remember("x", metadata={"a": 2}, key="k")
    with pytest.raises(KeyConflict):
        space.remember("x", key="k")


def test_metadata_is_exported_and_imported(store: Store) -> None:
    source, target = store.space("source"), store.space("target")
    id = source.remember("Ship on Friday", metadata=GIVEN).id
    source.revise(id, metadata={"team": "web"})
    records = list(source.export())
    assert target.import_records(records).skipped == ()
    assert [each.metadata for each in target.history(id)] == [GIVEN, {"team": "web"}]
    assert target.count(where={"metadata.team": "web"}) == 1


def test_export_without_metadata_can_be_read_by_earlier_versions(space: Space) -> None:
    space.remember("x")
    (record,) = space.export()
    assert "metadata" not in record["body"]


def test_imported_records_may_have_metadata(space: Space) -> None:
    report = space.import_records(
        [
            {"content": "one", "metadata": {"team": "web"}},
            {"content": "two", "metadata": {"n": float("inf")}},
        ]
    )
    assert (report.added, len(report.skipped)) == (1, 1)
    assert "metadata.n must be a finite number" in report.skipped[0]
    assert space.memories(where={"metadata.team": "web"})[0].content == "one"


def test_rebuilt_store_filters_by_metadata(store: Store) -> None:
    space = store.space("s")
    space.remember("one", metadata=GIVEN)
    space.remember("two", metadata={"team": "web"})
    assert store.verify().ok
    store.rebuild()
    assert store.verify().ok
    assert [m.content for m in space.memories(where={"metadata.place.floors": 2})] == ["one"]


def test_erase_removes_the_metadata(store: Store) -> None:
    space = store.space("s")
    id = space.remember("one", metadata={"team": "zanzibar"}).id
    space.revise(id, metadata={"team": "madagascar"})
    space.erase(id)
    assert store.verify().ok
    assert "zanzibar" not in str(list(space.export()))
    with space.runtime.engine.read() as tx:
        tx.enter_all_owners()
        assert tx.all("SELECT name, value FROM metadata") == []
