"""What recall and prompts must keep apart, and what they must go on looking for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reverie import RANKINGS, Space
from tests.conftest import DAY, SECOND, FakeClock
from tests.messages import user

CODE = (
    "The gate code of the mountain cabin was told to us by the landlord, it is 4821, and he will "
    "change it when the season ends."
)


def test_floor_does_not_end_the_search_for_candidates(space: Space) -> None:
    space.session("old").append(user(CODE))
    for number in range(20):
        session = space.session(f"later {number}")
        session.append(user("What is the gate code of the mountain cabin?"))
    query = "gate code of the mountain cabin"
    for floor in (None, 0.0, space.floor):
        assert [hit.text for hit in space.recall(query, min_score=floor)] == [CODE]


def test_prompt_finds_what_is_behind_the_events_that_the_client_sends(space: Space) -> None:
    space.session("old").append(user(CODE))
    current = space.session("current")
    current.append_many(
        [user(f"About the mountain cabin gate: code idea number {n}.") for n in range(60)]
    )
    assert "4821" in current.prompt_additions("gate code of the mountain cabin").recalled


@pytest.mark.parametrize(
    "others",
    [
        [{"subject": name} for name in ("Anna", "Bob", "Carol")],
        [{"metadata": {"region": name}} for name in ("eu", "us", "asia")],
        [{"happened_at": f"2026-0{month}-10"} for month in (1, 2, 3)],
        [{"valid_from": f"202{year}-01-01"} for year in (1, 2, 3)],
    ],
    ids=lambda others: next(iter(others[0])),
)
def test_same_words_about_different_things_are_different_hits(
    space: Space, others: list[dict[str, object]]
) -> None:
    for other in others:
        space.remember("is allergic to peanuts", kind="note", **other)  # type: ignore[arg-type]
    assert len(space.recall("who is allergic to peanuts?")) == 3
    recalled = space.context("who is allergic to peanuts?").recalled
    assert recalled.count("is allergic to peanuts") == 3


def test_prompt_shows_facts_that_differ_in_one_word(space: Space) -> None:
    for pet in ("cat", "dog"):
        space.remember(f"the {pet} is allergic to chicken", kind="note")
    recalled = space.context("which pet is allergic to chicken?").recalled
    assert "the cat" in recalled and "the dog" in recalled


def test_long_texts_that_differ_in_the_answer_are_two_hits(space: Space) -> None:
    for number, room in enumerate(("lilac", "maple")):
        space.session(f"s{number}").append(
            user(
                "For the visit on Sunday evening we cook a large vegetable lasagne, spinach and "
                f"fresh tomatoes, open the red wine and serve all of it to guest room {room}."
            )
        )
    assert len(space.recall("lasagne for which guest room?")) == 2


def test_recency_of_a_recall_as_of_a_moment_is_that_of_the_moment(
    space: Space, clock: FakeClock
) -> None:
    ranking = replace(RANKINGS["default"], recency_weight=0.5, half_life_days=1 / 86_400)
    space.remember("blue boat engine oil")
    clock.step(2 * SECOND)
    space.remember("boat")
    before = space.recall("boat engine", ranking=ranking)
    position = space.position()
    clock.step(DAY)
    then = space.recall("boat engine", ranking=ranking, as_of=position)
    assert [hit.id for hit in then] == [hit.id for hit in before]
    assert [hit.score for hit in then] == [hit.score for hit in before]


def test_corrected_time_of_validity_is_believed(space: Space) -> None:
    rome = space.remember("lives in Rome", valid_from="2030-01-01")
    space.revise(rome.id, valid_from=None)
    assert [memory.id for memory in space.memories(valid_at="2025-01-01")] == [rome.id]
    acme = space.remember("works at Acme", valid_from="2020-01-01")
    space.revise(acme.id, valid_from="2022-01-01")
    assert acme.id not in {memory.id for memory in space.memories(valid_at="2021-01-01")}
    assert acme.id in {memory.id for memory in space.memories(valid_at="2023-01-01")}
