"""Turns of one owner that are learned in another order than they were said in."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reverie import ModelFailed, Origin, Space, Store
from reverie.learn import changes, learner, overtaken
from reverie.learn.changes import UserTurn
from reverie.testing import Answer, ScriptedModel, Status
from tests.conftest import PROVE, SECOND, FakeClock, Stores, rows, tamper
from tests.crash.learner import question_of
from tests.messages import user

# Statements that replace, retract and restate each other, and some that do neither.
STATEMENTS = [
    "I live in Oslo.",
    "I moved to Bergen.",
    "I no longer live in Oslo.",
    "I no longer live in Bergen.",
    "I work at Acme.",
    "I no longer work at Acme.",
    "I love pizza.",
    "I hate pizza.",
    "I prefer tea to coffee.",
    "I prefer coffee to tea.",
    "I'm unemployed.",
    "I work as a nurse.",
    "My wife is Ingrid.",
    "I'm divorced.",
    "I'm vegan.",
    "I'm no longer vegan.",
    "Mia is my friend.",
    "Mia is no longer my friend.",
    "I'm allergic to nuts.",
    "I'm no longer allergic to nuts.",
    "Remember that the boiler code is 4711.",
    "What may I cook on Friday?",
    "No, I meant Bergen.",
]
NUMBERS = itertools.count()
FAILED = ModelFailed("the model failed")


def contents(space: Space) -> list[str]:
    """What is remembered, without the ends ("… no longer …").

    An end is remembered where nothing is known that it ends, which depends on the order.
    """
    found = (memory.content for memory in space.memories())
    return sorted(content for content in found if overtaken.ENDED not in content)


def say(space: Space, turns: list[tuple[str, str]]) -> None:
    for session, text in turns:
        space.session(session).append(user(text))


def run_all(store: Store, clock: FakeClock) -> int:
    """Run the jobs until there are none; returns how often the clock had to be moved on."""
    waits = 0
    while True:
        store.run_pending_jobs()
        ready = [job.due_at for job in store.jobs() if job.state == "ready"]
        if not ready:
            return waits
        clock.at = max(clock.at, min(ready))
        waits += 1


def learned_in_order(store: Store, clock: FakeClock, turns: list[tuple[str, str]]) -> list[str]:
    space = store.space(f"in order {next(NUMBERS)}")
    for turn in turns:
        say(space, [turn])
        run_all(store, clock)
    return contents(space)


TURNS = st.lists(
    st.tuples(st.sampled_from(["one", "two"]), st.sampled_from(STATEMENTS)), min_size=2, max_size=6
)
PROPERTY = settings(
    max_examples=400 if PROVE else 8,
    # The same few examples in every run that gates a change; the proof draws others each time.
    derandomize=not PROVE,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def rules(stores: Stores) -> Store:
    return stores.open(learn="rules")


@PROPERTY
@given(data=st.data(), turns=TURNS)
def test_rules_learn_the_same_memories_in_any_order_of_turns(
    rules: Store, clock: FakeClock, data: st.DataObject, turns: list[tuple[str, str]]
) -> None:
    expected = learned_in_order(rules, clock, turns)
    space = rules.space(f"any order {next(NUMBERS)}")
    say(space, turns)
    order = data.draw(st.permutations([job.id for job in rules.jobs()]))
    for rank, job in enumerate(order, 1):
        # As after a failed attempt: each waits for its time, and holds nobody up.
        due = clock.at + rank * SECOND
        tamper(rules, "UPDATE jobs SET attempts = 1, due_at = ? WHERE job = ?", due, job)
    tamper(rules, "UPDATE due SET at = ?", clock.at)
    run_all(rules, clock)
    assert rules.jobs() == []
    assert contents(space) == expected, turns
    assert len(set(expected)) == len(expected)


@pytest.mark.parametrize("learned_last", range(3))
def test_value_that_a_later_turn_ends_takes_the_earlier_one_along(
    rules: Store, space: Space, clock: FakeClock, learned_last: int
) -> None:
    """Somebody who moved from Oslo to Bergen, and left Bergen, does not live in Oslo again."""
    texts = ["I live in Oslo.", "I moved to Bergen.", "I no longer live in Bergen."]
    say(space, [("chat", text) for text in texts])
    late = sorted(job.id for job in rules.jobs())[learned_last]
    due = clock.at + SECOND
    tamper(rules, "UPDATE jobs SET attempts = 1, due_at = ? WHERE job = ?", due, late)
    run_all(rules, clock)
    assert contents(space) == []


@PROPERTY
@given(turns=TURNS, failures=st.lists(st.integers(0, 4), min_size=6, max_size=6))
def test_rules_learn_the_same_memories_whatever_attempts_fail(
    rules: Store, clock: FakeClock, turns: list[tuple[str, str]], failures: list[int]
) -> None:
    expected = learned_in_order(rules, clock, turns)
    space = rules.space(f"failing {next(NUMBERS)}")
    say(space, turns)
    with pytest.MonkeyPatch.context() as patch:
        left = {
            Origin(e.session, e.sequence): n for e, n in zip(_events(space), failures, strict=False)
        }
        patch.setattr(learner, "_learn_by_rules", _failing(learner._learn_by_rules, left))
        run_all(rules, clock)
    assert rules.jobs() == []
    assert contents(space) == expected, turns


def test_two_workers_learn_the_same_memories_and_each_turn_once(
    rules: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [("one" if n % 2 else "two", text) for n, text in enumerate([*STATEMENTS, *STATEMENTS])]
    expected = learned_in_order(rules, clock, turns)
    space = rules.space("two workers")
    say(space, turns)
    learned: list[Origin] = []
    apply = learner._try_apply

    def count_applied(runtime: Any, claim: Any, turn: UserTurn, plan: Any) -> bool:
        done = apply(runtime, claim, turn, plan)
        learned.extend([turn.origin] * done)
        return done

    left = {Origin(e.session, e.sequence): n % 3 for n, e in enumerate(_events(space))}
    monkeypatch.setattr(learner, "_learn_by_rules", _failing(learner._learn_by_rules, left))
    monkeypatch.setattr(learner, "_try_apply", count_applied)
    while ready := [job.due_at for job in rules.jobs() if job.state == "ready"]:
        clock.at = max(clock.at, min(ready))
        workers = [threading.Thread(target=rules.run_pending_jobs) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert rules.jobs() == []
    assert contents(space) == expected, turns
    with_words = {Origin(e.session, e.sequence) for e in _events(space)}
    assert sorted(learned) == sorted(with_words)
    assert rules.verify().ok


def _events(space: Space) -> list[Any]:
    return [event for info in space.sessions() for event in space.session(info.id).events()]


def _failing(learn: Callable[..., None], left: dict[Origin, int]) -> Callable[..., None]:
    def attempt(runtime: Any, claim: Any, turn: UserTurn) -> None:
        if left.get(turn.origin, 0):
            left[turn.origin] -= 1
            raise FAILED
        learn(runtime, claim, turn)

    return attempt


# -- by a model -----------------------------------------------------------------------------------

OSLO, BERGEN = "The user lives in Oslo", "The user lives in Bergen"
CAT = "There is a cat called Pus"


class Relocation:
    """A model that fails on the turn about Oslo until it is told to answer."""

    def __init__(self) -> None:
        self.fails = True
        self.decisions: list[dict[str, Any]] = [{"event": "ADD", "fact": 0}]
        self.subject: str | None = None

    def __call__(self, request: dict[str, Any]) -> Answer:
        which, question = question_of(request)
        if which == "decide":
            return {"decisions": self.decisions}
        if self.fails and "Oslo" in question["message"]:
            return Status(503)
        named = [each for each in (OSLO, BERGEN, CAT) if each.split()[-1] in question["message"]]
        content = named[0]
        return {"facts": [{"content": content, "category": "context", "subject": self.subject}]}


@pytest.fixture
def relocation() -> Relocation:
    return Relocation()


@pytest.fixture
def by_model(stores: Stores, relocation: Relocation) -> Iterator[Store]:
    with ScriptedModel(relocation) as scripted:
        named: dict[str, Any] = {"model": "openai:scripted", "model_base_url": scripted.base_url}
        yield stores.open(summary="off", **named)


def test_later_turn_is_learned_while_a_failing_one_waits_for_its_retry(
    by_model: Store, space: Space
) -> None:
    say(space, [("chat", "I live in Oslo"), ("chat", "I moved to Bergen")])
    assert by_model.run_pending_jobs() == 2
    assert contents(space) == [BERGEN]
    (job,) = by_model.jobs()
    assert (job.state, job.attempts, job.payload["sequence"]) == ("ready", 1, 1)


@pytest.mark.parametrize(
    "decisions",
    [
        [{"event": "UPDATE", "fact": 0, "id": 0}],
        [{"event": "DELETE", "id": 0, "fact": 0}, {"event": "ADD", "fact": 0}],
        [{"event": "DELETE", "id": 0}, {"event": "ADD", "fact": 0}],
        [{"event": "ADD", "fact": 0}],
        [],
    ],
)
@pytest.mark.parametrize("subject", [None, "home"])
def test_model_plan_of_an_earlier_turn_leaves_what_a_later_one_taught(
    by_model: Store,
    space: Space,
    clock: FakeClock,
    relocation: Relocation,
    decisions: list[dict[str, Any]],
    subject: str | None,
) -> None:
    relocation.subject = subject
    say(space, [("chat", "I live in Oslo"), ("chat", "I moved to Bergen")])
    by_model.run_pending_jobs()
    relocation.fails, relocation.decisions = False, decisions
    run_all(by_model, clock)
    assert by_model.jobs() == []
    assert contents(space) == [BERGEN]
    # What cannot be decided is asked, and nothing is added without an answer.
    for proposal in space.proposals():
        assert proposal.content == OSLO
    added = [each for each in decisions if each["event"] == "ADD"] == decisions
    assert bool(space.proposals()) == added


def test_earlier_turn_about_something_else_is_learned_late(
    by_model: Store, space: Space, clock: FakeClock, relocation: Relocation
) -> None:
    say(space, [("chat", "I live in Oslo"), ("chat", "Our cat is named Pus")])
    by_model.run_pending_jobs()
    relocation.fails = False
    run_all(by_model, clock)
    assert contents(space) == sorted([CAT, OSLO])
    assert space.proposals() == []


def test_rules_ask_when_too_many_later_turns_were_learned(
    rules: Store, space: Space, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overtaken, "MAX_LATER_TURNS", 1)
    say(space, [("chat", "I live in Oslo."), ("chat", "I love tea."), ("chat", "I love pizza.")])
    first = min(job.id for job in rules.jobs())
    due = clock.at + SECOND
    tamper(rules, "UPDATE jobs SET attempts = 1, due_at = ? WHERE job = ?", due, first)
    run_all(rules, clock)
    assert OSLO not in contents(space)
    assert [proposal.content for proposal in space.proposals()] == [OSLO]
    assert rows(rules, "SELECT reason FROM log WHERE op = 'propose'") == [(changes.SAID_SINCE,)]


# -- what one turn may cost -----------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 4, 7, learner.MAX_CALLS])
def test_calls_for_one_turn_end_at_the_limit_and_the_turn_is_parked(
    stores: Stores, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(learner, "MAX_CALLS", limit)
    with ScriptedModel(lambda request: "no JSON here") as scripted:
        named: dict[str, Any] = {"model": "openai:scripted", "model_base_url": scripted.base_url}
        store = stores.open(summary="off", **named)
        space = store.space("ana")
        say(space, [("chat", "I live in Oslo")])
        run_all(store, clock)
        assert len(scripted.requests) == limit
        (job,) = store.jobs()
        assert (job.state, job.calls) == ("parked", limit)
        assert job.error is not None and job.error.startswith("ModelFailed: openai:scripted")
        assert space.session("chat").events()[0].text == "I live in Oslo"
        store.retry_job("ana", job.id)
        assert store.jobs()[0].calls == 0
        run_all(store, clock)
        assert len(scripted.requests) == 2 * limit


def test_facts_are_added_when_no_call_is_left_for_decisions(
    stores: Stores, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner, "MAX_CALLS", 3)

    def answer(request: dict[str, Any]) -> Answer:
        if question_of(request)[0] == "decide":
            return "no JSON here"
        return {"facts": [{"content": OSLO, "category": "context", "subject": None}]}

    with ScriptedModel(answer) as scripted:
        named: dict[str, Any] = {"model": "openai:scripted", "model_base_url": scripted.base_url}
        store = stores.open(summary="off", **named)
        space = store.space("ana")
        space.remember("The user lives in a flat")
        say(space, [("chat", "I live in Oslo")])
        run_all(store, clock)
        assert len(scripted.requests) == 3
        assert store.jobs() == []
        (memory,) = space.memories(tags=[changes.UNRECONCILED])
        assert memory.content == OSLO
