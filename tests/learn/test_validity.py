"""Learning from when to when a fact holds, by rules and by a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reverie import Memory, Proposal, Space, Store
from reverie.dates import to_iso
from reverie.testing import ScriptedModel
from tests.conftest import DAY, FakeClock, Stores
from tests.messages import user

PAST = ("The user lived in Oslo", "2020-01-01", "2024-01-01")


def say(store: Store, *texts: str) -> Space:
    space = store.space("ana")
    for text in texts:
        space.session("s").append(user(text))
        store.run_pending_jobs()
    assert store.jobs() == []
    return space


def validity(*facts: Memory | Proposal) -> list[tuple[str, str | None, str | None]]:
    return [(each.content, _day(each.valid_from), _day(each.valid_to)) for each in facts]


def _day(at: int | None) -> str | None:
    return None if at is None else to_iso(at).removesuffix("T00:00:00+00:00")


def test_rules_learn_since_when_a_fact_holds(stores: Stores) -> None:
    space = say(
        stores.open(learn="rules"),
        "I've lived in Bergen since 2023.",
        "I have worked at Telenor since March 2022.",
    )
    assert sorted(validity(*space.memories())) == [
        ("The user lives in Bergen", "2023-01-01", None),
        ("The user works at Telenor", "2022-03-01", None),
    ]


@pytest.mark.parametrize("past_first", [True, False])
def test_past_home_is_learned_beside_the_current_one(stores: Stores, past_first: bool) -> None:
    store = stores.open(learn="rules")
    said = ["I lived in Oslo from 2020 to 2023.", "I live in Bergen."]
    space = say(store, *(said if past_first else said[::-1]))
    assert set(validity(*space.memories())) == {PAST, ("The user lives in Bergen", None, None)}
    say(store, "I live in Rome.")
    assert {memory.content for memory in space.memories()} == {PAST[0], "The user lives in Rome"}
    assert [m.content for m in space.memories(valid_at=space.memories()[0].created_at)] == [
        "The user lives in Rome"
    ]
    assert all(memory.version == 1 for memory in space.memories() if memory.content == PAST[0])


def test_start_that_is_said_later_is_added_to_the_memory(stores: Stores) -> None:
    store = stores.open(learn="rules")
    space = say(store, "I live in Bergen.", "I've lived in Bergen since 2023.")
    (memory,) = space.memories()
    assert validity(memory) == [("The user lives in Bergen", "2023-01-01", None)]
    say(store, "I live in Bergen.")
    assert space.memories() == [memory]


def test_new_home_does_not_hold_since_the_earlier_one_did(stores: Stores) -> None:
    store = stores.open(learn="rules")
    space = say(store, "I've lived in Oslo since 2020.", "I live in Bergen.")
    assert validity(*space.memories()) == [("The user lives in Bergen", None, None)]
    assert validity(*space.memories(valid_at="2023")) == [
        ("The user lives in Oslo", "2020-01-01", None)
    ]


def test_home_that_a_caller_ended_is_not_replaced(stores: Stores) -> None:
    store = stores.open(learn="rules")
    store.space("ana").remember("The user lives in Oslo", subject="home", valid_to="2024-05-01")
    space = say(store, "I live in Bergen.")
    assert len(space.memories()) == 2
    say(store, "I live in Oslo.")
    assert sorted(str(each) for each in validity(*space.memories())) == [
        "('The user lives in Oslo', None, '2024-05-01')",
        "('The user lives in Oslo', None, None)",
    ]


def test_dates_after_the_turn_are_not_believed(stores: Stores, clock: FakeClock) -> None:
    year = int(to_iso(clock.now())[:4])
    space = say(
        stores.open(learn="rules"),
        f"I lived in Oslo from 2020 to {year}.",
        f"I lived in Rome from {year + 1} to {year + 3}.",
        f"I've lived in Bergen since {year + 1}.",
    )
    clock.step(DAY)
    found = {memory.content: memory for memory in space.memories()}
    assert sorted(found) == ["The user lived in Oslo", "The user lives in Bergen"]
    assert found["The user lived in Oslo"].has_ended(clock.now())
    assert found["The user lives in Bergen"].valid_from is None


def test_validity_survives_a_proposal_its_import_and_its_acceptance(stores: Stores) -> None:
    source = stores.open(learn="rules", write_policy="ask")
    say(source, "I lived in Oslo from 2020 to 2023.", "I've lived in Bergen since 2023.")
    target = stores.open("there", learn="rules", write_policy="ask")
    assert target.space("ana").import_records(source.space("ana").export()).skipped == ()
    expected = [PAST, ("The user lives in Bergen", "2023-01-01", None)]
    for store in (source, target):
        space = store.space("ana")
        assert validity(*space.proposals()) == expected
        accepted = [space.accept(proposal.id) for proposal in space.proposals()]
        assert validity(*accepted) == expected and len(space.memories()) == 2
        say(store, "I live in Rome.")
        assert {m.content for m in space.memories()} == {PAST[0], "The user lives in Rome"}
        assert store.verify().ok
    # Accepted before, and the same stay again: nothing is asked.
    say(source, "I lived in Oslo from 2020 to 2023.")
    assert source.space("ana").proposals() == []


# -- by a model -----------------------------------------------------------------------------------

SAID = "I lived in Oslo from 2020 to May 2023, and in Bergen since then."
OSLO = {"content": "The user lived in Oslo", "category": "context", "subject": "home"}


def learned_by_model(
    stores: Stores, fact: Mapping[str, Any], *decisions: Mapping[str, Any], **settings: Any
) -> Space:
    answers = [{"facts": [fact]}, *({"decisions": [each]} for each in decisions)]
    with ScriptedModel(answers) as model:
        used = model.settings()
        store = stores.open(
            model=used.model,
            model_base_url=used.model_base_url,
            model_api_key="unused-key",
            **settings,
        )
        if decisions:
            store.space("ana").remember("The user lives in Bergen", subject="home")
        return say(store, SAID)


@pytest.mark.parametrize(
    ("dates", "start", "end"),
    [
        (("2020", "2023-05"), "2020-01-01", "2023-06-01"),
        (("2020-03-01", "2023-05-15"), "2020-03-01", "2023-05-15"),
        (("2020", None), "2020-01-01", None),
        (("last summer", "2023"), None, "2024-01-01"),
        (("2023", "2020"), None, None),
        ((2020, ["x"]), None, None),
        ((None, "2023-13-45"), None, None),
    ],
)
def test_model_says_from_when_to_when_a_fact_holds(
    stores: Stores, dates: tuple[Any, Any], start: str | None, end: str | None
) -> None:
    space = learned_by_model(
        stores, OSLO | dict(zip(("valid_from", "valid_to"), dates, strict=True))
    )
    assert validity(*space.memories()) == [("The user lived in Oslo", start, end)]


@pytest.mark.parametrize("event", ["ADD", "UPDATE"])
def test_past_fact_of_a_model_replaces_nothing(stores: Stores, event: str) -> None:
    decision = {"event": event, "fact": 0, "id": 0 if event == "UPDATE" else None}
    space = learned_by_model(stores, OSLO | {"valid_from": "2020", "valid_to": "2023"}, decision)
    assert set(validity(*space.memories())) == {PAST, ("The user lives in Bergen", None, None)}


def test_update_of_a_model_gets_the_time_of_its_fact(stores: Stores) -> None:
    fact = {"content": "The user lives in Rome", "category": "context", "valid_from": "2023-05"}
    space = learned_by_model(stores, fact, {"event": "UPDATE", "fact": 0, "id": 0})
    assert validity(*space.memories()) == [("The user lives in Rome", "2023-05-01", None)]
    assert space.memories()[0].version == 2


def test_validity_of_a_model_survives_its_proposal(stores: Stores) -> None:
    fact = OSLO | {"valid_from": "2020", "valid_to": "2023"}
    space = learned_by_model(stores, fact, write_policy="ask")
    (proposal,) = space.proposals()
    assert validity(proposal, space.accept(proposal.id)) == [PAST, PAST]
