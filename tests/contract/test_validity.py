"""Valid time: from when to when a fact holds, and what held at an earlier time."""

from __future__ import annotations

from typing import Any

import pytest

from reverie import InvalidInput, KeyConflict, Space, Store
from reverie.dates import to_iso
from reverie.model import RankingName
from tests.conftest import DAY, FakeClock
from tests.messages import user

OSLO: dict[str, Any] = {
    "content": "The user lives in Oslo",
    "subject": "home",
    "valid_from": "2020-03-01",
    "valid_to": "2024-05-01",
}
BERGEN: dict[str, Any] = {
    "content": "The user lives in Bergen",
    "subject": "home",
    "valid_from": "2024-05-01",
}


def remember_both(space: Space) -> None:
    space.remember_many([OSLO, BERGEN])  # type: ignore[list-item]


def contents(space: Space, valid_at: str) -> list[str]:
    return [memory.content for memory in space.memories(valid_at=valid_at)]


def test_validity_is_kept_and_shown(space: Space) -> None:
    memory = space.remember(**OSLO)
    assert str(memory.valid_from_time) == "2020-03-01 00:00:00+00:00"
    assert str(memory.valid_to_time) == "2024-05-01 00:00:00+00:00"
    assert space.get(memory.id) == memory
    assert (memory.valid_from, memory.valid_to) == (1_583_020_800_000, 1_714_521_600_000)
    assert memory.is_valid(1_583_020_800_000) and not memory.is_valid(1_714_521_600_000)


@pytest.mark.parametrize("valid_to", ["2020-03-01", "2019-01-01"])
def test_validity_that_ends_before_it_begins_is_refused(space: Space, valid_to: str) -> None:
    with pytest.raises(InvalidInput, match="valid_from must be before valid_to"):
        space.remember(**(OSLO | {"valid_to": valid_to}))
    memory = space.remember(**OSLO)
    with pytest.raises(InvalidInput, match="valid_from must be before valid_to"):
        space.revise(memory.id, valid_to=valid_to)
    assert space.get(memory.id) == memory


def test_validity_is_revised(space: Space) -> None:
    id = space.remember("The user lives in Oslo", valid_from="2020-03-01").id
    ended = space.revise(id, valid_to="2024-05-01")
    assert (ended.valid_from, ended.valid_to) == (1_583_020_800_000, 1_714_521_600_000)
    assert space.revise(id, valid_from=None).valid_from is None
    assert [each.valid_to for each in space.history(id)] == [None, ended.valid_to, ended.valid_to]


def test_key_with_another_validity_is_a_conflict(space: Space) -> None:
    space.remember(**OSLO, key="k")
    with pytest.raises(KeyConflict):
        space.remember(**(OSLO | {"valid_to": "2025-01-01"}), key="k")


def test_same_text_with_another_validity_is_another_memory(space: Space) -> None:
    first = space.remember(**OSLO)
    assert space.remember(**(OSLO | {"valid_to": "2025-01-01"})).id != first.id
    assert space.remember(**OSLO).id == first.id


def test_valid_at_selects_what_held_then(space: Space) -> None:
    remember_both(space)
    space.remember("The user likes tea")
    assert contents(space, "2023-06-01") == ["The user likes tea", OSLO["content"]]
    assert contents(space, "2024-05-01") == ["The user likes tea", BERGEN["content"]]
    assert contents(space, "2019-01-01") == ["The user likes tea"]
    assert space.count(valid_at="2023-06-01") == 2
    assert space.count(valid_at="2023-06-01", where={"subject": "home"}) == 1
    assert len(space.memories(valid_at="2023-06-01", limit=1)) == 1
    found = space.recall("where does the user live?", valid_at="2023-06-01", limit=1)
    assert [hit.text for hit in found] == [OSLO["content"]]
    found = space.recall("where does the user live?", valid_at="2025-06-01", limit=1)
    assert [hit.text for hit in found] == [BERGEN["content"]]


def test_valid_at_finds_no_events(space: Space, clock: FakeClock) -> None:
    remember_both(space)
    space.session("s").append(user("I live in Rome, and lived in Oslo before"))
    clock.step(DAY)
    for moment in ("2023-06-01", clock.now()):
        hits = space.recall("lived in Rome or Oslo", valid_at=moment, limit=10)
        assert hits and all(hit.memory is not None for hit in hits)
        assert space.recall("Rome", kinds=["event"], valid_at=moment) == []
        at = space.position()
        hits = space.recall("lived in Rome or Oslo", valid_at=moment, as_of=at, limit=10)
        assert hits and all(hit.memory is not None for hit in hits)
    assert [hit.kind for hit in space.recall("Rome", kinds=["event"])] == ["event"]


@pytest.mark.parametrize(
    ("period", "expected"),
    [("2023", OSLO), ("2023-05", OSLO), ("2024", BERGEN), ("2024-04", OSLO), ("2024-05", BERGEN)],
)
def test_valid_at_a_year_or_month_is_its_last_moment(
    space: Space, period: str, expected: dict[str, Any]
) -> None:
    remember_both(space)
    assert contents(space, period) == [expected["content"]]
    assert space.count(valid_at=period) == 1
    found = space.recall("where does the user live?", valid_at=period)
    assert [hit.text for hit in found] == [expected["content"]]


def test_valid_at_the_current_year_is_now(space: Space, clock: FakeClock) -> None:
    year = to_iso(clock.now())[:4]
    space.remember(**(BERGEN | {"valid_to": clock.now() + DAY}))
    assert contents(space, year) == [BERGEN["content"]]
    clock.step(DAY)
    assert contents(space, year) == []


def test_valid_at_finds_the_version_that_held_then(space: Space, clock: FakeClock) -> None:
    id = space.remember("The user lives in Oslo", subject="home").id
    revised = space.revise(id, "The user lives in Bergen", valid_from="2024-05-01")
    space.revise(id, pinned=True)
    assert contents(space, "2023-06-01") == ["The user lives in Oslo"]
    assert contents(space, "2024-06-01") == ["The user lives in Bergen"]
    clock.step(400 * DAY)
    space.revise(id, "The user lives in Rome", valid_from=None)
    now, before = clock.now() + DAY, revised.updated_at + DAY
    assert [m.content for m in space.memories(valid_at=now)] == ["The user lives in Rome"]
    # Nobody said from when on: it holds from when it was written.
    assert [m.content for m in space.memories(valid_at=before)] == ["The user lives in Bergen"]
    assert [m.id for m in space.memories(valid_at=before)] == [id]


def test_valid_at_leaves_out_what_was_forgotten_or_erased(space: Space) -> None:
    gone = space.remember("The user lives in Oslo")
    space.revise(gone.id, "The user lives in Bergen", valid_from="2024-05-01")
    space.forget(gone.id)
    assert contents(space, "2023-06-01") == []
    assert len(space.memories(valid_at="2023-06-01", include_forgotten=True)) == 1
    space.restore(gone.id)
    space.erase(gone.id)
    assert contents(space, "2023-06-01") == []


def test_valid_at_and_as_of_can_be_combined(space: Space) -> None:
    id = space.remember("The user lives in Oslo", valid_from="2020-01-01").id
    before = space.position()
    space.revise(id, valid_to="2021-01-01")
    assert space.count(valid_at="2023-06-01") == 0
    assert space.count(valid_at="2023-06-01", as_of=before) == 1


def test_valid_at_sees_only_the_scope_of_the_handle(store: Store) -> None:
    for handle in (store.space("s", user="alice"), store.space("s"), store.space("t")):
        handle.remember(f"of {handle!r}", valid_to="2024-01-01")
    bob = store.space("s", user="bob")
    assert {m.user for m in bob.memories(valid_at="2023-01-01")} == {None}
    assert len(bob.recall("of", valid_at="2023-01-01", limit=10)) == 1
    private = store.space("s").session("chat")
    private.remember("of a chat", valid_to="2024-01-01", private=True)
    assert store.space("s").count(valid_at="2023-01-01") == 1
    assert len(private.recall("of", valid_at="2023-01-01", limit=10)) == 2


def test_recall_prefers_what_held_in_the_year_that_a_query_names(space: Space) -> None:
    remember_both(space)
    for year, expected in (("2023", OSLO), ("2025", BERGEN)):
        for question in ("where did I live in {}?", "my home in {}"):
            (hit,) = space.recall(question.format(year), limit=1)
            assert hit.text == expected["content"], (year, question)


def test_recall_puts_what_is_over_after_what_is_true_now(space: Space) -> None:
    oslo = OSLO | {"content": "I live in Oslo"}
    bergen = BERGEN | {"content": "I live in Bergen"}
    space.remember_many([bergen, oslo])  # type: ignore[list-item]
    texts = [oslo["content"], bergen["content"]]
    for limit in (1, 5):
        found = space.recall("where do I live?", limit=limit, explain=True)
        assert [hit.text for hit in found] == texts[::-1][:limit]
    found = space.recall("where do I live?", ranking="rrf")
    assert [hit.text for hit in found] == texts[::-1]
    assert [hit.text for hit in space.recall("where did I live in 2023?")] == texts
    (hit,) = space.recall("where do I live?", valid_at="2023")
    assert hit.text == texts[0]


def test_ended_fact_yields_its_score_only_to_an_answer(space: Space) -> None:
    space.remember("Anna works at Acme", subject="Anna", valid_to="2024-01-01")
    space.remember("Anna likes tea", subject="Anna")
    found = space.recall("where does Anna work?", explain=True)
    assert found[0].text == "Anna works at Acme" and "ended" not in found[0].parts
    space.remember("Anna works at Equinor", subject="Anna")
    found = space.recall("does Anna work at Acme or at Equinor?", explain=True)
    assert [hit.text for hit in found[:2]] == ["Anna works at Equinor", "Anna works at Acme"]


def test_recall_shows_the_version_of_the_year_that_a_query_names(space: Space) -> None:
    id = space.remember("I live in Oslo", valid_from="2020-01-01").id
    space.revise(id, "I live in Bergen", valid_from="2024-05-01")
    (hit,) = space.recall("where did I live in 2023?")
    assert (hit.id, hit.text) == (id, "I live in Oslo")
    assert hit.memory is not None and hit.memory.version == 1
    assert str(hit.memory.valid_from_time) == "2020-01-01 00:00:00+00:00"
    assert str(hit.memory.valid_to_time) == "2024-05-01 00:00:00+00:00"
    for query in ("where do I live?", "where did I live in 2024?", "where did I live in 2025?"):
        assert [hit.text for hit in space.recall(query)] == ["I live in Bergen"]
    names: tuple[RankingName, ...] = ("similarity", "weighted", "rrf", "diverse")
    for name in names:
        found = space.recall("where did I live in 2023?", ranking=name)
        assert [hit.text for hit in found] == ["I live in Oslo"], name
    assert space.get(id).content == "I live in Bergen"


def test_context_shows_the_version_of_the_year_that_a_query_names(space: Space) -> None:
    id = space.remember("I live in Oslo", valid_from="2020-01-01").id
    space.revise(id, "I live in Bergen", valid_from="2024-05-01")
    context = space.session("s").context("where did I live in 2023?", tokens=4_000)
    assert "I live in Oslo (2020-01 until 2024-05)\n" in context.recalled
    assert "I live in Bergen (since 2024-05)" in context.profile
    assert "Oslo" not in space.session("s").context("where do I live?", tokens=4_000).system


def test_revision_without_times_holds_from_when_it_was_written(
    space: Space, clock: FakeClock
) -> None:
    id = space.remember("The user lives in Oslo", subject="home").id
    year = to_iso(clock.now())[:4]
    clock.step(800 * DAY)
    space.revise(id, "The user lives in Bergen")
    before = str(int(year) - 1)
    assert [hit.text for hit in space.recall(f"home in {year}")] == ["The user lives in Oslo"]
    # Nobody knew of it then: the first text may have been a mistake.
    assert [hit.text for hit in space.recall(f"home in {before}")] == ["The user lives in Bergen"]


@pytest.mark.parametrize("more", [{"happened_at": 1}, {}])
def test_correction_of_an_event_is_not_undone_by_the_year_of_a_query(
    space: Space, clock: FakeClock, more: dict[str, Any]
) -> None:
    year = to_iso(clock.now())[:4]
    said = "" if more else f" in {year}"
    id = space.remember(f"The trip to Rome{said} cost 300 euros", **more).id
    clock.step(800 * DAY)
    corrected = space.revise(id, f"The trip to Rome{said} cost 400 euros")
    (hit,) = space.recall(f"what did the trip to Rome in {year} cost?")
    assert hit.memory == corrected


def test_version_of_a_year_obeys_filters_scope_and_erasure(store: Store) -> None:
    space = store.space("s", user="ana")
    id = space.remember("I live in Oslo", category="home", valid_from="2020-01-01").id
    space.revise(id, "I live in Bergen", category="place", valid_from="2024-05-01")
    query = "where did I live in 2023?"
    assert [hit.text for hit in space.recall(query)] == ["I live in Oslo"]
    assert [hit.text for hit in space.recall(query, category="place")] == ["I live in Bergen"]
    assert space.recall(query, category="home") == []
    assert store.space("s", user="bob").recall(query) == []
    space.forget(id)
    assert space.recall(query) == []
    space.restore(id)
    space.erase(id)
    assert space.recall(query) == []


def test_prompts_mark_what_no_longer_holds_newest_first(space: Space) -> None:
    remember_both(space)
    lines = [line for line in space.profile().splitlines() if line.startswith("- ")]
    assert [line.split("lives in ")[1] for line in lines] == [
        "Bergen (since 2024-05)",
        "Oslo (2020-03 until 2024-05)",
    ]
    space.remember("The user worked at Equinor", subject="job", valid_to="2025-02-17")
    assert "at Equinor (until 2025-02-17)\n" in space.profile()
    recalled = space.session("s").context("where do I live?", tokens=4_000)
    assert "Bergen (since 2024-05)" in recalled.system


def test_validity_is_exported_imported_and_rebuilt(store: Store) -> None:
    source, target = store.space("source"), store.space("target")
    remember_both(source)
    assert target.import_records(source.export()).skipped == ()
    assert [m.content for m in target.memories(valid_at="2023-01-01")] == [OSLO["content"]]
    report = target.import_records([{"content": "x", "valid_from": 2, "valid_to": 1}])
    assert "valid_from must be before valid_to" in report.skipped[0]
    store.rebuild()
    assert store.verify().ok
    assert [hit.text for hit in target.recall("home in 2023", limit=1)] == [OSLO["content"]]
