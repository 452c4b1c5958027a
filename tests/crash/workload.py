"""Mixed writes drawn from a seed, and the ledger of what was acknowledged.

The ledger is the oracle: it knows only what came back from calls, and is compared with what a
store says after something went wrong.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import reverie
from reverie.model import Kind

Status = Literal["live", "forgotten", "erased"]
_WORDS = """amber birch copper delta ember fjord garnet harbour island juniper kettle lantern
meadow nectar orchard pebble quartz river saffron timber umbra velvet willow yarrow zephyr"""
WORDS = _WORDS.split()


@dataclass(frozen=True, slots=True)
class State:
    """One memory as a caller knows it."""

    content: str
    version: int
    status: Status


@dataclass(frozen=True, slots=True)
class Intent:
    """A write that is about to be asked for."""

    verb: Literal["remember", "revise", "forget", "restore", "erase"]
    key: str
    target: str = ""
    content: str = ""
    kind: Kind = "fact"


@dataclass(frozen=True, slots=True)
class Ack:
    """What came back from it."""

    id: str
    version: int
    content: str


def open_store(path: str | Path, embedder: str = "hashing") -> reverie.Store:
    """A store that no setting of this machine can change."""
    return reverie.open(str(path), embedder=embedder, settings=reverie.Settings())


def text_of(chance: random.Random, name: str, words: int) -> str:
    return f"{name} " + " ".join(chance.choices(WORDS, k=words)) + "."


def perform(space: reverie.Space, intent: Intent) -> Ack:
    if intent.verb == "remember":
        memory = space.remember(
            intent.content, kind=intent.kind, tags=[intent.kind, "load"], key=intent.key
        )
    elif intent.verb == "revise":
        memory = space.revise(intent.target, intent.content, key=intent.key)
    elif intent.verb == "forget":
        memory = space.forget(intent.target, reason="the plan says so", key=intent.key)
    elif intent.verb == "restore":
        memory = space.restore(intent.target, key=intent.key)
    else:
        report = space.erase(intent.target, key=intent.key)
        return Ack(report.memory_id, 0, "")
    return Ack(memory.id, memory.version, memory.content)


@dataclass
class Ledger:
    """Every acknowledged write, folded into the state of each memory, in order of birth."""

    states: dict[str, State] = field(default_factory=dict)
    entries: int = 0

    @classmethod
    def read(cls, space: reverie.Space, entries: int = 0) -> Ledger:
        found = space.memories(include_forgotten=True)
        return cls(
            {
                memory.id: State(
                    memory.content,
                    memory.version,
                    "live" if memory.forgotten_at is None else "forgotten",
                )
                for memory in reversed(found)
            },
            entries,
        )

    def plan(self, chance: random.Random, key: str) -> Intent:
        """The next write: any verb that some memory can take, else a new fact."""
        verb = chance.choices(
            ("remember", "note", "revise", "forget", "restore", "erase"), (9, 2, 4, 2, 2, 2)
        )[0]
        if verb == "note":
            content = text_of(chance, f"note-{key}", chance.randint(120, 500))
            return Intent("remember", key, content=content, kind="note")
        wanted = {"revise": "live", "forget": "live", "restore": "forgotten", "erase": ""}.get(verb)
        able = [
            id
            for id, state in self.states.items()
            if wanted is not None
            and state.status != "erased"
            and (not wanted or state.status == wanted)
        ]
        if verb == "remember" or not able:
            return Intent("remember", key, content=text_of(chance, f"fact-{key}", 8))
        target = able[chance.randrange(len(able))]
        if verb == "revise":
            # A fact stays short; what was a note may become one passage.
            return Intent("revise", key, target, text_of(chance, f"again-{key}", 20))
        if verb == "forget":
            return Intent("forget", key, target)
        return Intent("restore" if verb == "restore" else "erase", key, target)

    def after(self, intent: Intent, id: str) -> State:
        if intent.verb == "remember":
            return State(intent.content, 1, "live")
        old = self.states[id]
        new = replace(old, version=old.version + 1)
        if intent.verb == "revise":
            return replace(new, content=intent.content)
        if intent.verb == "erase":
            return State("", new.version, "erased")
        return replace(new, status="forgotten" if intent.verb == "forget" else "live")

    def record(self, intent: Intent, ack: Ack) -> None:
        """Take in an acknowledgement, which must say what was asked for."""
        new = self.after(intent, ack.id)
        if intent.verb != "erase":
            assert (ack.version, ack.content) == (new.version, new.content), (intent, ack)
        self.states[ack.id] = new
        self.entries += 1

    def visible(self) -> dict[str, State]:
        return {id: state for id, state in self.states.items() if state.status != "erased"}

    def check(self, space: reverie.Space) -> None:
        """The store says exactly what was acknowledged, erased memories included."""
        assert Ledger.read(space).states == self.visible()
        for id, state in self.states.items():
            if state.status != "erased":
                continue
            versions = space.history(id)
            assert [v.content for v in versions] == [None] * state.version, (id, versions)
            assert versions[-1].op == "erase"

    def missing(self, space: reverie.Space, unknown: Intent | None = None) -> list[str]:
        """Return the memories that are not as acknowledged, but for the one of unknown fate."""
        actual = Ledger.read(space).states
        unsure = unknown.target if unknown is not None else ""
        return [
            id for id, state in self.visible().items() if id != unsure and actual.get(id) != state
        ]

    def check_unknown(self, space: reverie.Space, intent: Intent | None) -> bool:
        """A write that was not acknowledged is wholly there or wholly absent; whether it is."""
        actual, before = Ledger.read(space).states, self.visible()
        if intent is None or actual == before:
            assert actual == before
            return False
        if intent.verb == "remember":
            new = {id: state for id, state in actual.items() if id not in before}
            assert list(new.values()) == [State(intent.content, 1, "live")], (intent, new)
            assert {id: s for id, s in actual.items() if id in before} == before
            return True
        expected = before | {intent.target: self.after(intent, intent.target)}
        assert actual == {id: s for id, s in expected.items() if s.status != "erased"}, intent
        return True

    def settle(self, store: reverie.Store, name: str, intent: Intent) -> None:
        """Repeat a write of unknown outcome with its key: it is there once, however often."""
        space = store.space(name)
        self.check_unknown(space, intent)
        ack = perform(space, intent)
        self.record(intent, ack)
        position = position_of(store, name)
        assert position == self.entries, intent
        assert perform(space, intent) == ack
        assert position_of(store, name) == position
        self.check(space)

    def check_recall(self, space: reverie.Space, chance: random.Random, count: int = 3) -> None:
        """Some living memories are found by their own words, and by their vectors."""
        living = [pair for pair in self.states.items() if pair[1].status == "live"]
        for id, state in chance.sample(living, min(count, len(living))):
            name = state.content.split()[0]
            assert id in {hit.id for hit in space.recall(name, mode="keyword", limit=20)}
            if len(state.content) < 600:
                found = space.recall(state.content, mode="vector", limit=20)
                assert id in {hit.id for hit in found}


def position_of(store: reverie.Store, name: str) -> int:
    return next((info.position for info in store.spaces() if info.name == name), 0)


def as_plain(value: Intent | Ack) -> dict[str, Any]:
    return asdict(value)


def intent_from(values: Mapping[str, Any]) -> Intent:
    return Intent(**values)
