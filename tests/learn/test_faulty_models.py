"""Models that misbehave: no turn is lost, no memory harmed, and every failure is reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import pytest

from reverie import Job, Memory, Settings, Space, Store, Version
from reverie.agenda import jobs
from reverie.learn import (
    changes,
    learner,
    llm,
    prompts,
    summaries,
)
from reverie.learn.learner import RETRACTED_REASON
from reverie.learn.llm import PydanticAIModel
from reverie.model import Origin
from reverie.testing import Answer, Drip, Hang, Huge, ScriptedModel, Status, misbehaviours
from tests.conftest import DAY, HOUR, SECOND, FakeClock, Stores
from tests.crash.learner import Question, question_of
from tests.figures import figure
from tests.messages import reply, user

KEY = "sk-very-secret"
STATEMENT = "My wife is called Ophelia and she keeps bees"
FACT = "The user's wife is called Ophelia"
NEAR = "The user's wife is a beekeeper"
TEA = "The user prefers tea to coffee"
PINNED = "The user is allergic to bee stings"
SUMMARY = "The user spoke of Ophelia."
HASTE = 0.1
QUESTIONS: dict[type, Question] = {
    prompts.FactList: "extract",
    prompts.Decisions: "decide",
    prompts.SummaryAnswer: "summarise",
}

Bad = Answer | Callable[[dict[str, Any]], Answer]
Shape = TypeVar("Shape")


class Moody:
    """A model that behaves, except where a test gives another answer or does not wait for it."""

    def __init__(self) -> None:
        self.instead: dict[Question, Bad] = {}
        self.hasty: set[Question] = set()
        self.asked: list[Question] = []
        self.refused = False

    def misbehave(self, which: Question, bad: Bad) -> None:
        self.instead = {which: bad}
        self.hasty = {which} if isinstance(bad, Hang | Drip) else set()
        self.refused = self.refused or isinstance(bad, Status)

    def behave(self) -> None:
        self.instead, self.hasty = {}, set()

    def __call__(self, request: dict[str, Any]) -> Answer:
        which, question = question_of(request)
        if which not in self.hasty:
            self.asked.append(which)
        if which in self.instead:
            bad = self.instead[which]
            return bad(question) if callable(bad) else bad
        if which == "extract":
            message = question["message"]
            content = FACT if message.startswith(STATEMENT) else f"The user said: {message}"
            return {"facts": [{"content": content, "category": "person", "subject": None}]}
        if which == "decide":
            return decided(*({"event": "ADD", "fact": at} for at in facts_of(question)))
        return {"summary": SUMMARY}


class Impatient:
    """The configured model, which is not waited for where the script says so."""

    def __init__(self, settings: Settings, moody: Moody) -> None:
        self.name = settings.model
        self._settings, self._moody = settings, moody

    def ask(
        self,
        instructions: str,
        question: str,
        shape: type[Shape],
        check: Callable[[Shape], str | None] | None = None,
        before_call: Callable[[], None] | None = None,
    ) -> Shape:
        which = QUESTIONS[shape]
        hasty = which in self._moody.hasty
        if hasty:
            # On a busy machine nobody may wait long enough for the question to arrive.
            self._moody.asked.append(which)
        model = opened_model(self._settings, HASTE if hasty else llm.DEADLINE)
        return model.ask(instructions, question, shape, check, before_call)


@cache
def opened_model(settings: Settings, deadline: float) -> PydanticAIModel:
    return PydanticAIModel(
        settings.model,
        base_url=settings.model_base_url,
        api_key=settings.model_api_key,
        deadline=deadline,
    )


def facts_of(question: dict[str, Any]) -> range:
    return range(len(question["facts"]))


def id_of(question: dict[str, Any], content: str) -> int:
    return next(
        number for number, each in enumerate(question["known"]) if each["content"] == content
    )


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[ScriptedModel, list[Moody]]]:
    """One server for all tests, and whose script it follows: opening a model takes a while."""
    scripts: list[Moody] = []
    with ScriptedModel(lambda request: scripts[-1](request)) as scripted:
        yield scripted, scripts


@pytest.fixture
def moody(served: tuple[ScriptedModel, list[Moody]]) -> Iterator[Moody]:
    made = Moody()
    served[1].append(made)
    yield made
    if made.refused:
        # A model keeps in mind that its service refused something.
        opened_model.cache_clear()


@pytest.fixture
def open_moody(
    stores: Stores,
    moody: Moody,
    served: tuple[ScriptedModel, list[Moody]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Store]:
    for module in (learner, summaries):
        monkeypatch.setattr(module, "open_model", lambda settings: Impatient(settings, moody))
    return lambda **settings: stores.open(
        model="openai:scripted",
        model_base_url=served[0].base_url,
        model_api_key=KEY,
        **settings,
    )


@pytest.fixture
def store(open_moody: Callable[..., Store]) -> Store:
    """Knows four things, one of which was forgotten."""
    opened = open_moody()
    space = opened.space("ana")
    for content, pinned in ((NEAR, False), (TEA, False), (PINNED, True)):
        space.remember(content, category="person", pinned=pinned)
    space.forget(space.remember("The user's wife keeps wasps").id)
    return opened


def everything(space: Space) -> list[tuple[Memory, list[Version]]]:
    return [(each, space.history(each.id)) for each in space.memories(include_forgotten=True)]


def living(space: Space) -> list[str]:
    return sorted(memory.content for memory in space.memories())


def waiting(store: Store, kind: str = "learn") -> list[Job]:
    return [job for job in store.jobs() if job.kind == kind]


def check_failure(job: Job, attempts: int) -> None:
    """What went wrong is there to be read: on one line, without secrets or content."""
    assert job.attempts == attempts
    assert job.error is not None and job.error.startswith("ModelFailed: openai:scripted at http")
    assert "\n" not in job.error
    assert KEY not in job.error
    assert "Ophelia" not in job.error and "bees" not in job.error


def check_turn(store: Store, message: str = STATEMENT) -> None:
    space = store.space("ana")
    assert user(message) in [event.message for event in space.session("chat").events()]
    assert message in {hit.text for hit in space.recall(message, kinds=["event"])}
    assert store.verify().problems == ()


# -- asked for facts ------------------------------------------------------------------------------


def test_scripted_model_has_enough_misbehaviours() -> None:
    assert len(misbehaviours()) >= 40


@pytest.mark.parametrize("name", misbehaviours())
@pytest.mark.sample(8)
def test_turn_is_kept_and_parked_for_any_model_reply_and_learned_on_retry(
    store: Store,
    moody: Moody,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    monkeypatch.setattr(jobs, "MAX_ATTEMPTS", 2)
    space = store.space("ana")
    before = everything(space)
    moody.misbehave("extract", misbehaviours()[name])
    space.session("chat").append(user(STATEMENT))
    for attempt, state in ((1, "ready"), (2, "parked")):
        assert store.run_pending_jobs() == 1
        assert set(moody.asked) == {"extract"}
        (job,) = store.jobs()
        check_failure(job, attempt)
        assert (job.kind, job.state) == ("learn", state)
        assert job.payload == {"session": "chat", "sequence": 1}
        assert everything(space) == before
        assert store.run_pending_jobs() == 0, "it is not due yet"
        clock.at = job.due_at
    assert store.run_pending_jobs() == 0, "what is parked waits for a person"
    check_turn(store)
    assert KEY not in caplog.text

    moody.behave()
    store.retry_job("ana", job.id)
    assert store.run_pending_jobs() == 1
    assert store.jobs() == []
    assert living(space) == sorted([FACT, NEAR, TEA, PINNED])
    assert [pair for pair in everything(space) if pair[0].content != FACT] == before
    messages = [event.message for event in space.session("chat").events()]
    figure("kinds of misbehaviour", 1)
    figure("turns lost", user(STATEMENT) not in messages)
    check_turn(store)


@pytest.mark.parametrize("name", ["status 503", "timeout", "reset within the body", "prose"])
@pytest.mark.sample(3)
def test_failing_learn_job_is_retried_with_growing_delay_and_parked(
    store: Store, moody: Moody, clock: FakeClock, name: str
) -> None:
    space = store.space("ana")
    before = everything(space)
    moody.misbehave("extract", misbehaviours()[name])
    session = space.session("chat")
    session.append(user(STATEMENT))
    waits = []
    # Prose is asked for again at once: three calls an attempt, until none is left for the turn.
    attempts = 7 if name == "prose" else jobs.MAX_ATTEMPTS
    for attempt in range(1, attempts + 1):
        assert store.run_pending_jobs() == 1
        (job,) = waiting(store)
        check_failure(job, attempt)
        assert job.calls <= learner.MAX_CALLS
        assert job.state == ("parked" if attempt == attempts else "ready")
        waits.append(job.due_at - clock.now())
        clock.at = job.due_at - 1
        assert store.run_pending_jobs() == 0
        clock.step(1)
    assert waits == [min(SECOND * 2**n, HOUR) for n in range(attempts)]
    clock.step(400 * DAY)
    assert store.run_pending_jobs() == 0
    assert any("parked" in problem for problem in store.doctor()["problems"])
    assert everything(space) == before
    check_turn(store)

    moody.behave()
    session.append(user("Ophelia came later"))
    assert store.run_pending_jobs() == 1, "what is parked does not keep back the turns behind it"
    assert waiting(store) == [job]
    store.retry_job("ana", job.id)
    assert store.run_pending_jobs() == 1
    assert waiting(store) == []
    later = "The user said: Ophelia came later"
    assert living(space) == sorted([FACT, NEAR, TEA, PINNED, later])
    assert store.doctor()["problems"] == []
    check_turn(store)


@pytest.mark.parametrize(
    "refusal", [Status(400), Status(413), misbehaviours()["finish reason content filter"]]
)
def test_refused_turn_does_not_keep_later_turns_from_being_learned(
    store: Store, moody: Moody, clock: FakeClock, refusal: Answer
) -> None:
    """The turns that are sent along as context hold what the service refuses."""

    def refuse_figs(question: dict[str, Any]) -> Answer:
        if "figs" in json.dumps(question):
            return refusal
        content = f"The user said: {question['message']}"
        return {"facts": [{"content": content, "category": "person", "subject": None}]}

    moody.misbehave("extract", refuse_figs)
    moody.refused = True
    texts = ["Ophelia grows figs", "Ophelia keeps hens", "Ophelia sells honey"]
    session = store.space("ana").session("chat")
    for text in texts:
        session.append_many([user(text), reply("I see.")])
    for _ in range(jobs.MAX_ATTEMPTS):
        store.run_pending_jobs()
        clock.step(HOUR)
    (job,) = waiting(store)
    assert (job.state, job.payload["sequence"]) == ("parked", 1)
    assert job.calls <= learner.MAX_CALLS
    check_failure(job, job.attempts)
    learned = {f"The user said: {text}" for text in texts[1:]}
    assert set(living(store.space("ana"))) == learned | {NEAR, TEA, PINNED}


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_unavailable_service_is_asked_once_in_an_attempt(
    store: Store, moody: Moody, status: int
) -> None:
    """Another question would not help: leaving out the turns before it costs a call."""
    session = store.space("ana").session("chat")
    session.append_many([user(STATEMENT), reply("I see.")])
    store.run_pending_jobs()
    moody.misbehave("extract", Status(status))
    moody.asked.clear()
    session.append(user("Ophelia keeps hens"))
    store.run_pending_jobs()
    assert moody.asked == ["extract"]


# -- asked what the facts change ------------------------------------------------------------------


def update(id: int | None, content: str | None = None, fact: int = 0) -> dict[str, Any]:
    return {"event": "UPDATE", "fact": fact, "id": id, "content": content}


def decided(*decisions: dict[str, Any]) -> Answer:
    return {"decisions": list(decisions)}


def deleted(question: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"event": "DELETE", "id": each["id"], **more} for each in question["known"]]


ADD = {"event": "ADD", "fact": 0}
UNUSABLE: dict[str, Bad] = {
    "an id that does not exist": decided(update(99)),
    "an id below zero": decided(update(-1)),
    "an id as text": decided({"event": "UPDATE", "fact": 0, "id": "0"}),
    "an update of nothing": decided(update(None)),
    "a deletion of nothing": decided(ADD, {"event": "DELETE"}),
    "a fact that does not exist": decided(ADD, {"event": "ADD", "fact": 7}),
    "the same id twice": decided(update(0), {"event": "DELETE", "id": 0}),
    "the same fact twice": decided(ADD, ADD),
    "a blank text for an unrelated memory": lambda asked: decided(update(id_of(asked, TEA), " ")),
    "a text of two lines": decided(update(0, "The user\nhas a wife")),
    "an endless text": decided(update(0, "wife " * 1_000)),
    "an unknown event": decided({"event": "ERASE", "fact": 0, "id": 0}),
    "more than 1 MB": Huge(10_000_000),
    **{
        name: misbehaviours()[name]
        for name in ("timeout", "status 500", "reset before the answer", "refusal", "NUL")
    },
}


@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.sample(3)
def test_invalid_decisions_harm_no_memory_and_facts_are_added(
    store: Store,
    moody: Moody,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    tries = learner.MAX_RECONCILE_TRIES if name == "status 500" else 2
    monkeypatch.setattr(learner, "MAX_RECONCILE_TRIES", tries)
    space = store.space("ana")
    before = everything(space)
    moody.misbehave("decide", UNUSABLE[name])
    space.session("chat").append(user(STATEMENT))
    for attempt in range(1, tries):
        assert store.run_pending_jobs() == 1
        (job,) = waiting(store)
        check_failure(job, attempt)
        assert everything(space) == before
        clock.at = job.due_at
    assert "decide" in moody.asked
    check_turn(store)
    assert store.run_pending_jobs() == 1
    assert waiting(store) == []
    (added,) = [pair for pair in everything(space) if pair not in before]
    assert [pair for pair in everything(space) if pair in before] == before
    memory, (version,) = added
    assert (memory.content, memory.tags) == (FACT, (changes.UNRECONCILED,))
    assert version.origin == Origin("chat", 1)
    assert version.reason is not None and KEY not in version.reason
    check_turn(store)


def test_fact_without_a_decision_is_added(store: Store, moody: Moody) -> None:
    space = store.space("ana")
    before = everything(space)
    moody.misbehave("decide", decided())
    space.session("chat").append(user(STATEMENT))
    assert store.run_pending_jobs() == 1
    assert waiting(store) == []
    assert living(space) == sorted([FACT, NEAR, TEA, PINNED])
    assert [pair for pair in everything(space) if pair[0].content != FACT] == before


@pytest.mark.parametrize(
    ("named", "reason"),
    [({"fact": 0}, RETRACTED_REASON), ({}, RETRACTED_REASON)],
)
def test_deletions_by_a_model_can_be_undone(
    store: Store, moody: Moody, named: dict[str, int], reason: str
) -> None:
    """Soft forgets with their reason; the pinned memory stays, and the new fact is added."""
    space = store.space("ana")
    before = everything(space)
    moody.misbehave("decide", lambda asked: decided(*deleted(asked, **named)))
    space.session("chat").append(user(STATEMENT))
    assert store.run_pending_jobs() == 1
    assert waiting(store) == []
    assert living(space) == sorted([FACT, PINNED])
    for memory, history in before:
        if memory.content in {NEAR, TEA}:
            version = space.history(memory.id)[-1]
            assert (version.op, version.trust, version.reason) == ("forget", "model", reason)
            assert version.origin == Origin("chat", 1)
            restored = space.restore(memory.id)
            assert (restored.content, restored.category) == (memory.content, memory.category)
        assert space.history(memory.id)[: len(history)] == history
    assert living(space) == sorted([FACT, NEAR, TEA, PINNED])
    check_turn(store)


def test_overwrite_by_a_model_can_be_undone(store: Store, moody: Moody) -> None:
    space = store.space("ana")
    (tea,) = [memory for memory in space.memories() if memory.content == TEA]
    moody.misbehave("decide", lambda asked: decided(update(id_of(asked, TEA), FACT)))
    space.session("chat").append(user(STATEMENT))
    assert store.run_pending_jobs() == 1
    assert space.get(tea.id).content == FACT
    first, second = space.history(tea.id)
    assert (first.content, second.op, second.trust) == (TEA, "revise", "model")
    assert second.origin == Origin("chat", 1)
    assert first.content is not None
    assert space.revise(tea.id, first.content).content == TEA
    check_turn(store)


def test_too_long_update_is_replaced_by_the_fact(
    open_moody: Callable[..., Store], moody: Moody
) -> None:
    """A longest fact that is set lower than what a decision may hold."""
    store = open_moody(fact_chars=60)
    space = store.space("ana")
    near = space.remember(NEAR)
    moody.misbehave("decide", decided(update(0, "wife " * (prompts.MAX_CONTENT_CHARS // 5 - 1))))
    space.session("chat").append(user(STATEMENT))
    assert store.run_pending_jobs() == 1
    assert space.get(near.id).content == FACT
    assert waiting(store) == []


# -- asked for a summary --------------------------------------------------------------------------

SUMMARIES: dict[str, Answer] = {
    "blank": {"summary": " \n"},
    "endless": {"summary": "x" * 4_001},
    "no text": {"summary": ["Ophelia"]},
    **{
        name: misbehaviours()[name]
        for name in ("timeout", "status 429", "10 MB", "truncated body", "refusal", "prose")
    },
}
LONG = f"{STATEMENT}. " + "We talked about the hives for a while. " * 5
REPLY = reply("How many hives are there?")
CONVERSATION = [user(LONG), REPLY, user(LONG + "Again."), REPLY]


@pytest.mark.parametrize("name", SUMMARIES)
@pytest.mark.sample(3)
def test_failing_summary_does_not_stop_learning(
    open_moody: Callable[..., Store], moody: Moody, clock: FakeClock, name: str
) -> None:
    store = open_moody(context_tokens=100)
    session = store.space("ana").session("chat")
    moody.misbehave("summarise", SUMMARIES[name])
    session.append_many(CONVERSATION)
    assert len(waiting(store)) == 2 and len(waiting(store, "summarise")) == 1
    assert store.run_pending_jobs() == 3
    assert waiting(store) == []
    (job,) = waiting(store, "summarise")
    check_failure(job, 1)
    assert living(store.space("ana")) == [FACT]
    assert session.summary().text == ""
    check_turn(store, LONG)

    moody.behave()
    clock.at = job.due_at
    assert store.run_pending_jobs() >= 1
    assert waiting(store, "summarise") == []
    assert session.summary().text == SUMMARY
    assert [event.text for event in session.events()][0] == LONG


def test_parked_summary_is_retried_with_the_next_turn(
    open_moody: Callable[..., Store], moody: Moody, clock: FakeClock
) -> None:
    store = open_moody(context_tokens=100)
    session = store.space("ana").session("chat")
    moody.misbehave("summarise", misbehaviours()["status 500"])
    session.append_many(CONVERSATION)
    for _ in range(jobs.MAX_ATTEMPTS):
        assert store.run_pending_jobs() >= 1
        (job,) = waiting(store, "summarise")
        clock.at = job.due_at
    assert job.state == "parked"
    moody.behave()
    session.append(user(LONG + "Once more."))
    store.run_pending_jobs()
    assert session.summary().text == SUMMARY
    assert waiting(store, "summarise") == [job]
    store.retry_job("ana", job.id)
    store.run_pending_jobs()
    assert store.jobs() == []


def test_failing_learning_does_not_stop_a_summary(
    open_moody: Callable[..., Store], moody: Moody
) -> None:
    store = open_moody(context_tokens=100)
    session = store.space("ana").session("chat")
    moody.misbehave("extract", misbehaviours()["status 500"])
    session.append_many(CONVERSATION)
    store.run_pending_jobs()
    assert session.summary().text == SUMMARY
    assert len(waiting(store)) > 1
    for job in waiting(store):
        check_failure(job, 1)
