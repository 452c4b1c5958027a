"""Requests that are repeated with their key, and texts that are remembered again."""

from __future__ import annotations

import pytest

from reverie import InvalidInput, KeyConflict, NotFound, Space
from reverie.text.metadata import MAX_METADATA_BYTES
from reverie.text.tags import MAX_TAGS


def test_repeated_batch_whose_first_memory_was_erased_returns_nothing_else(space: Space) -> None:
    made = space.remember_many(["alpha one", "beta two"], key="k")
    space.remember("something unrelated")
    space.session("chat").append({"role": "user", "content": "hello"})
    space.session("chat").remember("a private diagnosis", private=True)
    space.erase(made[0].id)
    with pytest.raises(NotFound):
        space.remember_many(["alpha one", "beta two"], key="k")


def test_repeated_batch_takes_no_memory_of_another_batch(space: Space) -> None:
    first = space.remember_many(["alpha one", "beta two"], key="one")
    second = space.remember_many(["alpha one", "beta two"], key="two")
    again = space.remember_many(["alpha one", "beta two"], key="two")
    assert [memory.version for memory in again] == [memory.version for memory in second]
    space.erase(first[1].id)
    with pytest.raises(NotFound):
        space.remember_many(["alpha one", "beta two"], key="one")


def test_key_of_a_private_memory_belongs_to_its_session(space: Space) -> None:
    one, two = space.session("one"), space.session("two")
    one.remember("the plan is blue", private=True, key="turn")
    with pytest.raises(KeyConflict):
        two.remember("the plan is blue", private=True, key="turn")


def test_order_of_metadata_keys_does_not_change_a_request(space: Space) -> None:
    first = space.remember("a fact", metadata={"a": 1, "b": 2}, key="k")
    assert space.remember("a fact", metadata={"b": 2, "a": 1}, key="k") == first
    revised = space.revise(first.id, metadata={"a": 1, "c": {"x": 1, "y": 2}}, key="r")
    again = space.revise(first.id, metadata={"c": {"y": 2, "x": 1}, "a": 1}, key="r")
    assert again == revised
    made = space.remember_many([{"content": "x", "metadata": {"a": 1, "b": 2}}], key="m")
    repeated = space.remember_many([{"content": "x", "metadata": {"b": 2, "a": 1}}], key="m")
    assert repeated == made


def test_true_and_one_are_two_values_of_metadata(space: Space) -> None:
    space.remember("the sensor state", metadata={"v": 1})
    space.remember("the sensor state", metadata={"v": True})
    assert space.count(where={"metadata.v": 1}) == space.count(where={"metadata.v": True}) == 1


def test_repeated_text_is_another_memory_where_metadata_would_grow_too_large(
    space: Space,
) -> None:
    half = "x" * (MAX_METADATA_BYTES * 2 // 3)
    for key in ("a", "b"):
        space.remember("the same text", metadata={key: half})
    assert space.count() == 2
    assert space.remember("the same text", metadata={"c": "short"}).version == 2


def test_repeated_text_loses_no_tag(space: Space) -> None:
    space.remember("the same text", tags=[f"tag{number}" for number in range(MAX_TAGS)])
    space.remember("the same text", tags=["urgent"])
    assert space.count(tags=["urgent"]) == 1 and space.count(tags=["tag0"]) == 1


def test_text_of_many_memories_is_found_again(space: Space) -> None:
    space.remember_many(
        [{"content": "ping ok", "metadata": {"host": f"h{number}"}} for number in range(60)]
    )
    assert space.remember("ping ok", metadata={"host": "h0"}).version == 2
    assert space.count() == 60


def test_tags_that_are_no_list_are_refused(space: Space) -> None:
    with pytest.raises(InvalidInput, match="tags must be a list"):
        space.remember("a fact", tags=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="item 1"):
        space.remember_many([{"content": "a fact", "tags": None}])  # type: ignore[list-item]


def test_conditions_with_too_many_values_are_refused(space: Space) -> None:
    many = [{"metadata.n": {"nin": list(range(500))}} for _ in range(80)]
    with pytest.raises(InvalidInput, match="5000 values|5_000 values"):
        space.count(where={"AND": many})
    assert space.count(where={"AND": many[:10]}) == 0
    assert space.recall("x", where={"AND": many[:10]}) == []
