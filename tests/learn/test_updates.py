"""How memories change when people change their minds: many conversations, stored as data.

A case in ``cases`` is what a user says, what a model makes of each turn, and what must be true in
the end. ``facts`` are [content, category, subject]; a decision names the memory it is about by its
content, ``known``. ``former`` was said by a memory after so many turns, ``now`` is what the same
memory says in the end: null when it is forgotten. ``rules`` is what is learned without a model.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reverie import Memory, Origin, Space, Store, Version
from reverie.testing import MODEL, Answer, ScriptedModel, Status
from reverie.write.writer import LEARNER
from tests.conftest import ENGINES, HOUR, FakeClock, Stores, addresses

CASES: dict[str, list[dict[str, Any]]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "cases").glob("*.json"))
}
GROUPS = [
    "additions",
    "change",
    "correct",
    "mixed",
    "namesakes",
    "negate",
    "pronouns",
    "restate",
    "retract",
    "revert",
    "twice",
]


def _chosen(key: str) -> list[Any]:
    """The cases that say something of this, by name."""
    return [
        pytest.param(case, id=f"{group}: {case['name']}")
        for group, cases in CASES.items()
        for case in cases
        if key in case
    ]


SPACE = "people"
# What everybody in the space shares, so that a recall has something else to find.
SHARED = """
    The printer on the second floor jams when the paper is damp
    Parking permits are renewed at the reception desk each January
    Fire drills take place on the first Wednesday of a month
    Expense reports need a receipt for anything above thirty pounds
    The lift in the east wing is serviced by people from Bristol
    Guest badges have to be returned before five in the evening
    The canteen serves soup from noon until it runs out
    Our supplier of paper is Hartmann and Sons
    The meeting room Copernicus has a broken projector
    Invoices are archived for ten years in the basement
    The network password is changed by the administrators every quarter
    Bicycles may be locked to the railings behind the building
    The first aid box hangs beside the entrance to the workshop
    Windows in the archive stay shut because of the humidity
    The summer party was held on the roof in 2023
    The heating is turned down to sixteen degrees at weekends
    New chairs were ordered for the library in spring
    The cleaning crew comes on weekdays after seven
    Lost property is given to charity after three months
    The emergency exit leads to the yard of the bakery
""".strip().splitlines()


class Unexpected(Exception):
    """A request that the case does not foresee."""


class Script:
    """Answers as the turn at hand says, and notes whatever the case did not foresee."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn: Mapping[str, Any] = {}
        self._asked: list[str] = []
        self._problems: list[str] = []

    def begin(self, turn: Mapping[str, Any]) -> None:
        with self._lock:
            self._turn, self._asked, self._problems = turn, [], []

    def check(self) -> None:
        """Everything went as the turn says, and was asked once."""
        with self._lock:
            assert self._problems == []
            asked = self._turn.get("asked", self._turn["user"])
            assert self._asked == ["extract"] * bool(asked) + ["decide"] * ("decide" in self._turn)

    def __call__(self, request: dict[str, Any]) -> Answer:
        message = next(each for each in request["messages"] if each["role"] == "user")
        question = json.loads(message["content"])
        with self._lock:
            try:
                return (
                    self._extracted(question) if "message" in question else self._decided(question)
                )
            except Unexpected as problem:
                self._problems.append(str(problem))
                return Status(500)

    def _extracted(self, question: Mapping[str, Any]) -> Answer:
        self._asked.append("extract")
        if question["message"] != self._turn.get("asked", self._turn.get("user")):
            raise Unexpected(f"asked for the facts of {question['message']!r}")
        named = self._turn.get("refers_to", "")
        if named and not any(named in each["text"] for each in question["earlier"]):
            raise Unexpected(f"{named!r} is not in what was said earlier: {question['earlier']}")
        facts = self._turn.get("facts", [])
        return {"facts": [dict(zip(_FACT, fact, strict=True)) for fact in facts]}

    def _decided(self, question: Mapping[str, Any]) -> Answer:
        self._asked.append("decide")
        if "decide" not in self._turn:
            raise Unexpected(f"nothing is to be decided, but known are {question['known']}")
        given = [fact["content"] for fact in question["facts"]]
        if given != [fact[0] for fact in self._turn["facts"]]:
            raise Unexpected(f"asked to decide about {given}")
        return {"decisions": [_decision(each, question) for each in self._turn["decide"]]}


_FACT = ("content", "category", "subject")


def _decision(wanted: Mapping[str, Any], question: Mapping[str, Any]) -> dict[str, Any]:
    """A decision with the id of the memory that the case names by its content."""
    decision = {name: value for name, value in wanted.items() if name != "known"}
    if "known" in wanted:
        ids = [each["id"] for each in question["known"] if each["content"] == wanted["known"]]
        if len(ids) != 1:
            raise Unexpected(f"{wanted['known']!r} is not one of {question['known']}")
        decision["id"] = ids[0]
    return decision


@dataclass(frozen=True, slots=True)
class Learner:
    """A store that learns in one way."""

    store: Store
    clock: FakeClock
    source: str
    trust: str
    script: Script | None = None


class Moment(NamedTuple):
    """What was true after a turn: by position, by time, and the contents that were living."""

    position: int
    at: datetime
    living: list[str]


class CaseConversation:
    """One case, played to a store."""

    def __init__(self, learner: Learner, user: str, case: Mapping[str, Any]) -> None:
        self.learner = learner
        self.space: Space = learner.store.space(SPACE, user=user)
        for content, category, subject in case.get("remembered", []):
            self.space.remember(content, category=category, subject=subject)
        self.moments = [self._moment()]
        for turn in case["turns"]:
            self._say(turn)

    def own(self, **options: Any) -> list[Memory]:
        return [each for each in self.space.memories(**options) if each.user == self.space.user]

    def living(self, **options: Any) -> list[str]:
        return sorted(memory.content for memory in self.own(**options))

    def former(self) -> set[str]:
        """What was living once and is not any more."""
        return {each for moment in self.moments for each in moment.living} - set(self.living())

    def _say(self, turn: Mapping[str, Any]) -> None:
        session = self.space.session(f"{self.space.user} {turn.get('session', 'conversation')}")
        if "assistant" in turn:
            session.append({"role": "assistant", "content": turn["assistant"]})
            assert self._waiting() == []
            return
        script = self.learner.script
        if script is not None:
            script.begin(turn)
        event = session.append({"role": "user", "content": turn["user"]})
        self.learner.store.run_pending_jobs()
        if script is not None:
            script.check()
        assert self._waiting() == []
        self._check_source(Origin(event.session, event.sequence))
        self.moments.append(self._moment())

    def _waiting(self) -> list[str | None]:
        return [job.error for job in self.learner.store.jobs() if job.kind == "learn"]

    def _check_source(self, origin: Origin) -> None:
        """Whatever this turn changed says who changed it, and because of which event."""
        for memory in self.own(include_forgotten=True):
            for version in self.space.history(memory.id):
                if version.position > self.moments[-1].position:
                    assert version.origin == origin
                    assert version.actor == LEARNER
                    assert version.trust == self.learner.trust
                    assert version.reason or version.op != "forget"
                    assert version.op == "forget" or memory.source == self.learner.source

    def _moment(self) -> Moment:
        clock = self.learner.clock
        (info,) = self.learner.store.spaces()
        moment = Moment(info.position, datetime.fromtimestamp(clock.at / 1000, UTC), self.living())
        clock.step(HOUR)
        return moment


@pytest.fixture(scope="module", params=ENGINES)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stores]:
    stores = Stores(addresses(request, tmp_path_factory.mktemp("updates"), kept=True))
    yield stores
    stores.close()


def _with_background(store: Store) -> Store:
    shared = store.space(SPACE)
    for line in SHARED:
        shared.remember(line.strip())
    return store


@pytest.fixture(scope="module")
def by_model(opened: Stores) -> Iterator[Learner]:
    script = Script()
    with ScriptedModel(script) as model:
        named: dict[str, Any] = {"model": f"openai:{MODEL}", "model_base_url": model.base_url}
        store = _with_background(opened.open("model", embedder="local", **named))
        yield Learner(store, opened.clock, f"openai:{MODEL}", "model", script)
        assert store.verify().ok


@pytest.fixture(scope="module")
def by_rules(opened: Stores) -> Iterator[Learner]:
    store = _with_background(opened.open("rules", learn="rules"))
    yield Learner(store, opened.clock, "rules", "agent")
    assert store.verify().ok


@pytest.fixture
def user(request: pytest.FixtureRequest, by_model: Learner, by_rules: Learner) -> Iterator[str]:
    """A user of their own for each case, who leaves no job to the next."""
    yield request.node.name[:150]
    for learner in (by_model, by_rules):
        for job in learner.store.jobs():
            learner.store.drop_job(job.space, job.id)


@pytest.mark.parametrize("case", _chosen("turns"))
@pytest.mark.sample(8)
def test_model_updates_memories_in_every_case(
    by_model: Learner, user: str, case: dict[str, Any]
) -> None:
    conversation = CaseConversation(by_model, user, case)
    assert conversation.living() == sorted(case["living"])
    for former in case.get("former", []):
        _check_former(conversation, former)
    for memory in conversation.own():
        assert len(conversation.space.history(memory.id)) == case.get("versions", memory.version)
    _check_past(conversation)
    _check_recall(conversation, case)
    _check_forgotten(conversation)


@pytest.mark.parametrize("case", _chosen("rules"))
@pytest.mark.sample(8)
def test_rules_learn_plain_statements_in_every_case(
    by_rules: Learner, user: str, case: dict[str, Any]
) -> None:
    conversation = CaseConversation(by_rules, user, case)
    # A plan names the day on which it was told, and that depends on the cases before.
    living = [re.sub(r" \(said on \S+\)$", "", content) for content in conversation.living()]
    assert sorted(living) == sorted(case["rules"])
    _check_past(conversation)
    if case.get("finds") in case["rules"]:
        _check_recall(conversation, case)
    _check_forgotten(conversation)


def _check_former(conversation: CaseConversation, former: Mapping[str, Any]) -> None:
    """The former content is found as of its time, and in the history of its memory."""
    moment = conversation.moments[former["after"]]
    (id,) = {
        memory.id
        for as_of in (moment.position, moment.at)
        for memory in conversation.own(as_of=as_of)
        if memory.content == former["said"]
    }
    versions = conversation.space.history(id)
    assert former["said"] in [each.content for each in versions if each.position <= moment.position]
    assert _ends(versions) == former["now"]


def _ends(versions: list[Version]) -> str | None:
    """What a memory says in the end, unless it is forgotten."""
    return None if versions[-1].op == "forget" else versions[-1].content


def _check_past(conversation: CaseConversation) -> None:
    """Each moment can be looked at as it was, by its position and by its time."""
    for moment in conversation.moments:
        assert conversation.living(as_of=moment.position) == moment.living
        assert conversation.living(as_of=moment.at) == moment.living


def _check_recall(conversation: CaseConversation, case: Mapping[str, Any]) -> None:
    if "ask" not in case:
        return
    hits = [hit.text for hit in conversation.space.recall(case["ask"], kinds=["fact"], limit=50)]
    assert case["finds"] in hits[:3]
    assert conversation.former().isdisjoint(hits)


def _check_forgotten(conversation: CaseConversation) -> None:
    """What was forgotten is recalled by nothing, says why, and can be brought back."""
    living = {memory.id for memory in conversation.own()}
    for memory in conversation.own(include_forgotten=True):
        if memory.id in living:
            continue
        assert conversation.space.history(memory.id)[-1].reason
        found = conversation.space.recall(memory.content, kinds=["fact"], limit=50)
        assert memory.id not in {hit.id for hit in found}
        assert conversation.space.restore(memory.id).content == memory.content
        assert memory.id in {each.id for each in conversation.own()}


def test_update_corpus_has_enough_cases() -> None:
    assert sorted(CASES) == GROUPS
    assert min(map(len, CASES.values())) >= 12
    cases = [case for group in CASES.values() for case in group]
    assert len(cases) >= 130
    assert len({case["name"] for case in cases}) == len(cases)
    assert len(_chosen("ask")) >= 60 and len(_chosen("rules")) >= 60
