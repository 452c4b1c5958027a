"""Nobody waits for a model, and after its worker is killed every effect still happens once.

What comes first is decided by events, never by a clock: a model answers when a test lets it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie.agenda.jobs import LEASE_MS
from reverie.model import Origin
from reverie.testing import Answer, ScriptedModel
from tests.conftest import PROVE, START
from tests.crash.learner import (
    SPACE,
    Learners,
    Question,
    SharedClock,
    learners,
    open_learning,
    question_of,
)
from tests.figures import figure
from tests.messages import reply, user

THREADS = 5
# No word of one write is a word of another: what a person revises would settle what is learned.
LETTERS = "abcde"
KILLS = 30 if PROVE else 8
# Nobody needs it unless something hangs.
PATIENCE = 60.0
POLL = 0.005


@pytest.fixture
def clock(tmp_path: Path) -> SharedClock:
    made = SharedClock(tmp_path / "clock")
    made.set(START)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(scope="module")
def launched() -> Iterator[Learners]:
    with learners() as made:
        yield made


@pytest.fixture
def others(launched: Learners, path: Path, clock: SharedClock) -> Learners:
    """Other processes of the same store."""
    launched.use(path, clock)
    return launched


def opened(path: Path, clock: SharedClock, settings: reverie.Settings) -> reverie.Store:
    plain = {"path": str(path), "clock": str(clock.path), "settings": asdict(settings)}
    return open_learning(plain)


# -- writes while a model thinks ------------------------------------------------------------------


class PausingModel:
    """Keeps its first answer to one question until it is let go; answers all else at once."""

    def __init__(self, held: Question) -> None:
        self.held = held
        self.asked = threading.Event()
        self.let_go = threading.Event()
        self.decisions: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any]) -> Answer:
        which, question = question_of(request)
        if which == self.held and not self.asked.is_set():
            self.asked.set()
            assert self.let_go.wait(PATIENCE)
        if which == "extract":
            content = taught_by(question["message"])
            return {"facts": [{"content": content, "category": "general", "subject": None}]}
        if which == "decide":
            return {"decisions": self.decisions or [{"event": "ADD", "fact": 0}]}
        return {"summary": "They spoke at length."}


def taught_by(message: str) -> str:
    return f"The user said: {message[:80].strip()}"


@contextmanager
def draining(store: reverie.Store, model: PausingModel) -> Iterator[threading.Thread]:
    """A worker that has asked the model and has no answer yet; at the end it is done."""
    worker = threading.Thread(target=store.run_pending_jobs)
    worker.start()
    try:
        assert model.asked.wait(PATIENCE)
        yield worker
    finally:
        model.let_go.set()
        worker.join()


def written_by_threads(store: reverie.Store, ids: list[str]) -> list[str]:
    """Seven writes of each thread; what must be found afterwards."""
    space = store.space(SPACE)

    def write(thread: int) -> list[str]:
        name = LETTERS[thread]
        session = space.session(f"thread {name}")
        kept = [f"copper{name}", f"delta{name}", f"ember{name}"]
        session.append(user(f"amber{name}"))
        space.revise(ids[thread], f"once{name}")
        for content in kept:
            space.remember(content)
        session.append(reply(f"birch{name}"))
        space.revise(ids[thread], f"twice{name}")
        return [f"amber{name}", f"birch{name}", *kept, f"twice{name}"]

    with ThreadPoolExecutor(THREADS) as pool:
        return [text for texts in pool.map(write, range(THREADS)) for text in texts]


def everything_said(store: reverie.Store) -> set[str]:
    space = store.space(SPACE)
    events = [event for info in space.sessions() for event in space.session(info.id).events()]
    return {event.text for event in events} | {memory.content for memory in space.memories()}


@pytest.mark.parametrize("held", ["extract", "decide", "summarise"])
@pytest.mark.sample(3)
def test_writes_are_not_blocked_while_a_model_answers(
    path: Path, clock: SharedClock, others: Learners, held: Question
) -> None:
    model = PausingModel(held)
    with (
        ScriptedModel(model) as scripted,
        opened(path, clock, scripted.settings(context_tokens=100)) as store,
    ):
        space = store.space(SPACE)
        ids = [space.remember(f"garnet{number}").id for number in range(2 * THREADS)]
        turns = [f"{word} " * 12 for word in ("fjord", "harbour", "island")]
        space.session("chat").append_many([user(turn) for turn in turns] + [reply(turns[0])] * 2)
        with draining(store, model) as worker:
            before = store.spaces()[0].position
            asked = len(scripted.requests)
            expected = written_by_threads(store, ids[:THREADS])
            others.write(ids[THREADS:])
            for number in range(THREADS):
                expected += [
                    f"another process remembers pebble{number}",
                    f"another process says kettle{number}",
                    f"another process revised lantern{number}",
                ]
            figure("writes during a model call", store.spaces()[0].position - before)
            # The model has not answered yet, and all of it is there.
            assert set(expected) <= everything_said(store)
            assert store.spaces()[0].position == before + 50
            assert worker.is_alive() and not model.let_go.is_set()
            assert len(scripted.requests) == asked
            assert [job.state for job in store.jobs()].count("running") == 1
        assert not [job for job in store.jobs() if job.kind in {"learn", "summarise"}]
        figure("of these writes lost", len(set(expected) - everything_said(store)))
        assert set(expected) <= everything_said(store)
        learned = {memory.content for memory in space.memories()}
        words_asked = [*turns, *(f"amber{LETTERS[number]}" for number in range(THREADS))]
        assert {taught_by(text) for text in words_asked} <= learned
        assert space.session("chat").summary().text == "They spoke at length."
        assert store.verify().problems == ()


def test_revision_by_a_person_during_a_model_call_stays(path: Path, clock: SharedClock) -> None:
    model = PausingModel("decide")
    model.decisions = [{"event": "UPDATE", "fact": 0, "id": 0}]
    with (
        ScriptedModel(model) as scripted,
        opened(path, clock, scripted.settings()) as store,
    ):
        space = store.space(SPACE)
        memory = space.remember("The user lives in Ghent")
        space.session("chat").append(user("I live in Porto now"))
        with draining(store, model):
            space.revise(memory.id, "The user lives in Lisbon")
        assert space.get(memory.id).content == "The user lives in Lisbon"
        assert [version.version for version in space.history(memory.id)] == [1, 2]
        assert store.jobs() == []


def test_turn_erased_during_a_model_call_teaches_nothing(path: Path, clock: SharedClock) -> None:
    model = PausingModel("extract")
    with (
        ScriptedModel(model) as scripted,
        opened(path, clock, scripted.settings()) as store,
    ):
        space = store.space(SPACE)
        space.session("chat").append(user("the secret word is zanzibar"))
        with draining(store, model):
            space.session("chat").erase()
        assert not [text for text in everything_said(store) if "zanzibar" in text]
        assert space.proposals(include_answered=True) == []
        assert [job for job in store.jobs() if job.kind == "learn"] == []
        assert store.verify().problems == ()


# -- two workers, one of which is killed again and again ------------------------------------------


@dataclass(frozen=True)
class Moment:
    """The victim dies at its so-manieth request: before the answer, or this long after it."""

    request: int
    delay: float | None


VICTIM, STEADY = "victim", "steady"
SESSIONS = ("amber", "birch")
TURNS = 2
# A victim gets through two turns at most while the other worker holds the other session.
REQUESTS = 2 * TURNS


def moments() -> list[Moment]:
    chance = random.Random(7)
    return [
        Moment(n // 2 % REQUESTS, None if n % 2 else chance.uniform(0, 0.06)) for n in range(KILLS)
    ]


class KillingModel:
    """Answers both workers and ends the victim at its moment, while the other one is thinking."""

    def __init__(self, others: Learners) -> None:
        self._others = others
        self._moment = Moment(0, None)
        self._requests = 0
        self._other_asked = threading.Event()
        self._let_go = threading.Event()
        self._killed = threading.Event()
        self._victim = 0
        self.order: list[Origin] = []

    def begin(self, moment: Moment, victim: int) -> None:
        self._moment, self._victim, self._requests = moment, victim, 0
        for event in (self._other_asked, self._let_go, self._killed):
            event.clear()

    def await_kill(self) -> None:
        assert self._killed.wait(PATIENCE), "the victim was never asked for"

    def let_go(self) -> None:
        self._let_go.set()

    def __call__(self, request: dict[str, Any]) -> Answer:
        which, question = question_of(request)
        if which == "extract":
            session, number = place_of(question["message"])
            self.order.append(Origin(session, number))
        if request["model"] == STEADY:
            self._other_asked.set()
            self._let_go.wait(PATIENCE)
        elif not self._killed.is_set():
            self._requests += 1
            if self._requests == self._moment.request + 1:
                self._end_victim()
        return facts(question) if which == "extract" else decisions(question)

    def _end_victim(self) -> None:
        assert self._other_asked.wait(PATIENCE)
        if self._moment.delay is None:
            self._kill()
        else:
            threading.Timer(self._moment.delay, self._kill).start()

    def _kill(self) -> None:
        self._others.kill(self._victim)
        self._killed.set()


def turn(session: str, number: int) -> str:
    return f"In {session} the desk has number {number} and the word is {word(session, number)}"


def word(session: str, number: int) -> str:
    return f"w{number}{session}"


def place_of(message: str) -> tuple[str, int]:
    words = message.split()
    return words[1], int(words[6])


def facts(question: dict[str, Any]) -> Answer:
    """One that replaces what was known of the desk, and one of its own."""
    session, number = place_of(question["message"])
    contents = (desk(session, number), sentence(session, number))
    return {
        "facts": [{"content": each, "category": "context", "subject": None} for each in contents]
    }


def desk(session: str, number: int | str) -> str:
    return f"The desk of {session} has number {number}"


def sentence(session: str, number: int) -> str:
    return f"In {session} the word was {word(session, number)}"


def decisions(question: dict[str, Any]) -> Answer:
    session = question["facts"][0]["content"].split()[3]
    known = [
        each["id"] for each in question["known"] if each["content"].startswith(desk(session, ""))
    ]
    about_desk = {"event": "UPDATE", "id": known[0]} if known else {"event": "ADD"}
    return {"decisions": [{**about_desk, "fact": 0}, {"event": "ADD", "fact": 1}]}


def await_empty(store: reverie.Store) -> None:
    end = time.monotonic() + PATIENCE
    while left := store.jobs():
        assert time.monotonic() < end, left
        time.sleep(POLL)


def check_once(store: reverie.Store, turns: int) -> None:
    """Every turn had each of its effects once, those of one session in their order."""
    space = store.space(SPACE)
    memories = {memory.content: memory.id for memory in space.memories()}
    expected = {sentence(session, n) for session in SESSIONS for n in range(1, turns + 1)}
    expected |= {desk(session, turns) for session in SESSIONS}
    assert set(memories) == expected | {"The office is open"}
    assert len(space.memories(include_forgotten=True)) == len(memories)
    for session in SESSIONS:
        for number in range(1, turns + 1):
            (only,) = space.history(memories[sentence(session, number)])
            assert only.origin == Origin(session, number)
        versions = space.history(memories[desk(session, turns)])
        assert [(version.content, version.origin) for version in versions] == [
            (desk(session, number), Origin(session, number)) for number in range(1, turns + 1)
        ]
    assert store.verify().problems == ()


@pytest.mark.prove
def test_killed_learning_worker_is_repeated_with_one_effect(
    path: Path, clock: SharedClock, others: Learners
) -> None:
    office = KillingModel(others)
    with ScriptedModel(office) as scripted:

        def start(name: str) -> int:
            return others.start(asdict(scripted.settings(model=f"openai:{name}", summary="off")))

        with opened(path, clock, reverie.Settings(learn="llm", model="openai:none")) as store:
            store.space(SPACE).remember("The office is open")
            victim = start(VICTIM)
            steady = start(STEADY)
            for number, moment in enumerate(moments()):
                office.begin(moment, victim)
                for at in range(TURNS * number + 1, TURNS * (number + 1) + 1):
                    for session in SESSIONS:
                        event = store.space(SPACE).session(session).append(user(turn(session, at)))
                        assert event.sequence == at
                office.await_kill()
                clock.set(clock.now() + LEASE_MS)
                victim = start(VICTIM)
                office.let_go()
                await_empty(store)
            check_once(store, TURNS * KILLS)
            others.kill(victim)
            others.kill(steady)
    for session in SESSIONS:
        asked = [origin.sequence for origin in office.order if origin.session == session]
        assert asked == sorted(asked), "a lane keeps its order"
        assert set(asked) == set(range(1, TURNS * KILLS + 1))
    assert len(office.order) > len(set(office.order)), "no job was ever begun again"
