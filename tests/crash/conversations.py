"""Writes to sessions drawn from a seed, and the diary of what was acknowledged.

The diary is the oracle: it knows only what came back from calls, and is compared with what a store
says after its writer was killed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import reverie
from reverie.model import Origin
from tests.crash.workload import WORDS, position_of

SPACE = "crash"
MANY = 5
MAX_EVENTS = 25
MAX_SESSIONS = 12

Verb = Literal[
    "append", "append_many", "follow", "hide", "restore", "erase", "remember", "drain", "recall"
]
Message = dict[str, str]
CHANCES: dict[Verb, int] = {
    "append": 10,
    "append_many": 4,
    "follow": 4,
    "hide": 2,
    "restore": 2,
    "erase": 1,
    "remember": 2,
    "drain": 3,
    "recall": 1,
}


@dataclass(frozen=True, slots=True)
class Step:
    """A call that is about to be made. ``base`` is the event that a resent history ends with."""

    verb: Verb
    key: str
    session: str = ""
    messages: tuple[Message, ...] = ()
    base: Origin | None = None
    content: str = ""


@dataclass(frozen=True, slots=True)
class Ack:
    """What came back from it."""

    session: str = ""
    sequences: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session as a caller knows it: its own events, and what belongs to it alone."""

    events: tuple[tuple[int, Message], ...] = ()
    hidden: bool = False
    fork: Origin | None = None
    private: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        return self.events[-1][0] if self.events else self.fork.sequence if self.fork else 0

    def grown(self, messages: tuple[Message, ...]) -> Conversation:
        new = tuple((self.last + at, message) for at, message in enumerate(messages, 1))
        return replace(self, events=self.events + new, hidden=False)


def open_store(path: str | Path) -> reverie.Store:
    """A store that learns by rules and sums up soon, whatever the settings of this machine."""
    settings = reverie.Settings(context_tokens=600)
    return reverie.open(str(path), embedder="hashing", settings=settings)


def fact_of(message: Message) -> str | None:
    """What a turn made by ``turn_of`` teaches."""
    content = message["content"].removeprefix("Remember that the ")
    return None if content == message["content"] else f"The {content.removesuffix('.')}"


def turn_of(chance: random.Random, name: str) -> Message:
    word = chance.choice(WORDS)
    text = chance.choice(
        [f"Remember that the kettle {name} is {word}.", f"Tell me about {word} {name}"]
    )
    return {"role": "user", "content": text}


def reply_of(chance: random.Random, name: str) -> Message:
    text = " ".join(chance.choices(WORDS, k=chance.choice([6, 120])))
    return {"role": "assistant", "content": f"{name} {text}"}


def talk_of(chance: random.Random, name: str, count: int) -> tuple[Message, ...]:
    return tuple(
        (turn_of if at % 2 == 0 else reply_of)(chance, f"{name}x{at}") for at in range(count)
    )


def perform(store: reverie.Store, step: Step) -> Ack:
    space = store.space(SPACE)
    if step.verb == "follow":
        return Ack(space.follow(step.messages, key=step.key).id)
    if step.verb == "drain":
        store.run_pending_jobs()
        return Ack()
    if step.verb == "recall":
        space.recall("amber birch", limit=3)
        return Ack()
    session = space.session(step.session)
    if step.verb == "append":
        event = session.append(step.messages[0], key=step.key)
        return Ack(session.id, (event.sequence,))
    if step.verb == "append_many":
        events = session.append_many(step.messages, key=step.key)
        assert [event.message for event in events] == list(step.messages)
        return Ack(session.id, tuple(event.sequence for event in events))
    if step.verb == "hide":
        session.hide("the plan says so", key=step.key)
    elif step.verb == "restore":
        session.restore(key=step.key)
    elif step.verb == "erase":
        session.erase(key=step.key)
    else:
        assert session.remember(step.content, key=step.key, private=True).content == step.content
    return Ack(session.id)


@dataclass
class ExpectedSessions:
    """Every acknowledged step, folded into the sessions as they must be now."""

    sessions: dict[str, Conversation] = field(default_factory=dict)
    drained: set[Origin] = field(default_factory=set)

    @classmethod
    def read(cls, space: reverie.Space) -> ExpectedSessions:
        found = {}
        for info in space.sessions(include_hidden=True):
            session = space.session(info.id)
            own = [event for event in session.events() if event.session == info.id]
            assert len(own) == info.events
            found[info.id] = Conversation(
                tuple((event.sequence, dict(event.message)) for event in own),
                info.hidden_at is not None,
                info.forked_from,
                tuple(sorted(m.content for m in session.memories() if m.session == info.id)),
            )
        return cls(found)

    # -- planning -----------------------------------------------------------------------------

    def plan(self, chance: random.Random, key: str) -> Step:
        """The next call: any that some session can take, else a turn of a new one."""
        verb = chance.choices(list(CHANCES), list(CHANCES.values()))[0]
        if verb in {"drain", "recall"}:
            return Step(verb, key)
        able = self._able(verb)
        fresh = verb in {"append", "append_many"} and len(self.sessions) < MAX_SESSIONS
        if not able or (fresh and chance.random() < 0.2):
            session = f"s{key}"
            verb = "append_many" if verb == "append_many" else "append"
        else:
            session = chance.choice(able)
        if verb == "append":
            kind = chance.choice([turn_of, reply_of])
            return Step(verb, key, session, (kind(chance, key),))
        if verb == "append_many":
            return Step(verb, key, session, talk_of(chance, key, MANY))
        if verb == "remember":
            return Step(verb, key, session, content=f"private {key} {chance.choice(WORDS)}")
        if verb == "follow":
            return self._resent(chance, key, session)
        return Step(verb, key, session)

    def _able(self, verb: Verb) -> list[str]:
        parents = {each.fork.session for each in self.sessions.values() if each.fork}
        full = len(self.sessions) >= MAX_SESSIONS
        return [
            name
            for name, each in self.sessions.items()
            if {
                "hide": not each.hidden,
                "restore": each.hidden,
                "erase": name not in parents,
                "follow": not full and len(self.lineage(name)) < MAX_EVENTS,
            }.get(verb, len(each.events) < MAX_EVENTS)
        ]

    def _resent(self, chance: random.Random, key: str, session: str) -> Step:
        """A history up to its end, or up to somewhere before, and one more exchange."""
        known = self.lineage(session)
        end = len(known) if chance.random() < 0.6 else chance.randint(1, len(known))
        base, _ = known[end - 1]
        resent = tuple(message for _, message in known[:end])
        return Step("follow", key, session, resent + talk_of(chance, key, 2), base)

    def lineage(self, session: str) -> list[tuple[Origin, Message]]:
        """The events of a session, those before its fork included."""
        each = self.sessions[session]
        before = self.lineage(each.fork.session) if each.fork else []
        if each.fork is not None:
            at = [origin for origin, _ in before].index(each.fork)
            before = before[: at + 1]
        return before + [(Origin(session, n), message) for n, message in each.events]

    # -- recording ----------------------------------------------------------------------------

    def after(self, step: Step, session: str) -> ExpectedSessions:
        """The diary with one more step; ``session`` is where it took place."""
        sessions, drained = dict(self.sessions), set(self.drained)
        old = sessions.get(session, Conversation())
        if step.verb == "drain":
            drained |= set(self.turns())
        elif step.verb == "follow":
            assert step.base is not None
            goes_on = self.sessions[step.base.session].last == step.base.sequence
            old = sessions[step.base.session] if goes_on else Conversation(fork=step.base)
            sessions[session] = old.grown(step.messages[-2:])
        elif step.verb in {"append", "append_many"}:
            sessions[session] = old.grown(step.messages)
        elif step.verb in {"hide", "restore"}:
            sessions[session] = replace(old, hidden=step.verb == "hide")
        elif step.verb == "erase":
            del sessions[session]
        elif step.verb == "remember":
            sessions[session] = replace(old, private=tuple(sorted([*old.private, step.content])))
        return ExpectedSessions(sessions, drained)

    def record(self, step: Step, ack: Ack) -> None:
        """Take in an acknowledgement, which must say what was asked for."""
        new = self.after(step, ack.session)
        if ack.sequences:
            own = [sequence for sequence, _ in new.sessions[ack.session].events]
            assert list(ack.sequences) == own[-len(ack.sequences) :], (step, ack)
        self.sessions, self.drained = new.sessions, new.drained

    def turns(self) -> dict[Origin, Message]:
        """Everything a user said."""
        return {
            Origin(name, sequence): message
            for name, each in self.sessions.items()
            for sequence, message in each.events
            if message["role"] == "user"
        }

    # -- comparing ----------------------------------------------------------------------------

    def check_unknown(self, space: reverie.Space, step: Step | None) -> None:
        """A step that was not acknowledged happened wholly or not at all."""
        actual = ExpectedSessions.read(space).sessions
        if step is None or actual == self.sessions:
            assert actual == self.sessions
            return
        new = actual.keys() - self.sessions.keys()
        name = step.session if step.verb != "follow" else next(iter(new), None)
        if name is None:
            assert step.base is not None
            name = step.base.session
        assert actual == self.after(step, name).sessions, step

    def settle(self, store: reverie.Store, step: Step) -> None:
        """Repeat a step of unknown outcome with its key: it took place once, however often."""
        self.check_unknown(store.space(SPACE), step)
        ack = perform(store, step)
        self.record(step, ack)
        assert ExpectedSessions.read(store.space(SPACE)).sessions == self.sessions, step
        position = position_of(store, SPACE)
        assert perform(store, step) == ack
        assert position_of(store, SPACE) == position, step

    def check(self, store: reverie.Store) -> None:
        """The store says exactly what was acknowledged, and each turn is learned from once."""
        space = store.space(SPACE)
        assert ExpectedSessions.read(space).sessions == self.sessions
        for name, each in self.sessions.items():
            session = space.session(name)
            shown = [(event.session, event.sequence, event.message) for event in session.events()]
            assert shown == [(*origin, message) for origin, message in self.lineage(name)]
            assert session.summary().upper <= each.last
        self._check_learning(store, space)
        assert store.verify().problems == ()

    def _check_learning(self, store: reverie.Store, space: reverie.Space) -> None:
        queued = Counter(
            Origin(job.payload["session"], job.payload["sequence"])
            for job in store.jobs()
            if job.kind == "learn"
        )
        learned = Counter(memory.content for memory in space.memories(include_forgotten=True))
        learned += Counter(proposal.content for proposal in space.proposals(include_answered=True))
        turns = self.turns()
        assert queued.keys() <= turns.keys()
        assert not queued.keys() & self.drained
        assert learned.keys() <= {fact_of(message) for message in turns.values()}
        for origin, message in turns.items():
            fact = fact_of(message)
            if fact is not None:
                assert queued[origin] + learned[fact] == 1, (origin, message)
            assert queued[origin] <= 1


def as_plain(value: Step | Ack) -> dict[str, Any]:
    return asdict(value)


def step_from(plain: Mapping[str, Any]) -> Step:
    base = plain["base"]
    messages = tuple(plain["messages"])
    return Step(**{**plain, "messages": messages, "base": Origin(*base) if base else None})


def ack_from(plain: Mapping[str, Any]) -> Ack:
    return Ack(plain["session"], tuple(plain["sequences"]))
