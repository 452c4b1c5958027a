"""A store with something of everything, what it answers, and ways to damage its file."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import reverie
from reverie import Event, Hit, Memory, Origin, ReverieError, Space, Store, Version
from reverie.engine import log_rows
from tests.conftest import START, FakeClock, SeededIds

SCOPES = (("ana", None), ("ana", "bob"), ("ana", "cy"), ("ben", None))
SESSIONS = {("ana", "bob"): ("chat", "a", "hidden"), ("ben", None): ("s",)}
QUERIES = ("zebra stripes", "river bank", "what did bob say about tea")


def open_store(path: Path) -> Store:
    return reverie.open(
        path,
        embedder="hashing",
        clock=FakeClock(START + 10_000_000),
        ids=SeededIds(7),
        settings=reverie.Settings(learn="off", summary="off"),
    )


def make_store(path: Path) -> None:
    """Spaces, users, sessions, long texts, erased and overwritten entries, and all beside them."""
    clock, ids = FakeClock(START), SeededIds(3)
    settings = reverie.Settings(learn="off", summary="off")
    with reverie.open(path, embedder="hashing", clock=clock, ids=ids, settings=settings) as store:
        ana, bob = store.space("ana"), store.space("ana", user="bob")
        first = ana.remember("the zebra is striped", tags=["animal"], subject="zebra")
        clock.step(1000)
        ana.revise(first.id, "the zebra has stripes, black and white", reason="more exact")
        ana.remember("a long note about the river. " * 60, kind="note", category="place")
        ana.remember("pinned: the river bank is steep", pinned=True)
        gone = ana.remember("this was forgotten")
        ana.forget(gone.id, reason="no longer true")
        erased = ana.remember("this was erased")
        ana.erase(erased.id)
        clock.step(1000)
        for number in range(12):
            bob.remember(f"bob likes tea number {number}, and cake", category="food")
        chat = bob.session("chat")
        for number in range(8):
            chat.append({"role": "user", "content": f"bob says tea {number} is good"})
            chat.append({"role": "assistant", "content": "noted " * (40 * number + 1)})
        chat.write_summary("bob speaks of tea", upper=6, expected_epoch=0)
        chat.scratchpad.write(["buy tea", "boil water"])
        chat.remember("only this chat knows of the green tea", private=True)
        chat.recall("tea")
        _overwritten(bob)
        hidden = bob.session("hidden")
        hidden.append({"role": "user", "content": "a hidden word about rivers"})
        hidden.hide("it is done")
        store.space("ana", user="cy").remember("cy climbs on the river bank")
        ben = store.space("ben")
        for number in range(5):
            ben.remember(f"ben saw a zebra {number} times")
        ben.session("s").append({"role": "user", "content": "ben asks of stripes"})
        ben.session("s").erase_event(1)
        ben.session("s").append({"role": "user", "content": "ben asks again"})
        store.create_token("reader", "read", spaces=["ana"], user="bob")
        clock.step(1000)
        store.run_pending_jobs()
        assert store.verify().problems == ()


def _overwritten(bob: Space) -> None:
    bob.session("a").append({"role": "user", "content": "Sarah is on Platform"})
    bob.session("b").append({"role": "user", "content": "Sarah is a canarybird"})
    memory = bob.remember("Sarah is on Platform", subject="Sarah", origin=Origin("a", 1))
    other = bob.remember("a canarybird sings", origin=Origin("b", 1))
    bob.revise(other.id, "a bird sings")
    bob.revise(memory.id, "Sarah is on Platform now")
    bob.session("b").erase()


@dataclass
class Answers:
    """What every read verb answered, and the pieces of text in it, by scope."""

    given: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    pieces: dict[tuple[Any, ...], set[Any]] = field(default_factory=dict)
    errors: dict[tuple[Any, ...], ReverieError] = field(default_factory=dict)

    def ask(self, scope: tuple[Any, ...], verb: str, call: Callable[[], Any]) -> None:
        name = (*scope, verb)
        try:
            value = call()
        except ReverieError as error:
            self.errors[name] = error
            return
        self.given[name] = value
        self.pieces[name] = set(pieces(value))


def pieces(value: Any) -> Iterator[Any]:
    """What people read of an answer: texts with what they are texts of."""
    if isinstance(value, Hit):
        yield ("hit", value.id, value.text)
        yield from pieces(value.memory)
        yield from pieces(value.event)
    elif isinstance(value, Memory):
        yield ("memory", value.id, value.version, value.content, value.category, value.subject)
        yield ("tags", value.id, value.version, value.tags, value.user, value.forgotten_at)
    elif isinstance(value, Event):
        yield ("event", value.session, value.sequence, value.text, value.role, value.user)
    elif isinstance(value, Version):
        yield ("version", value.memory_id, value.version, value.content, value.reason, value.actor)
    elif isinstance(value, str):
        yield from (("line", line) for line in value.splitlines())
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from pieces(name)
            yield from pieces(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from pieces(each)


def answers(store: Store) -> Answers:
    found = Answers()
    found.ask((), "spaces", lambda: [(s.name, s.users) for s in store.spaces()])
    found.ask((), "tokens", lambda: [(t.name, t.right, t.spaces, t.user) for t in store.tokens()])
    found.ask((), "jobs", lambda: [job.kind for job in store.jobs()])
    for name, user in SCOPES:
        space, scope = store.space(name, user=user), (name, user)
        found.ask(scope, "memories", lambda s=space: s.memories())  # type: ignore[misc]
        found.ask(scope, "all", lambda s=space: s.memories(include_forgotten=True))  # type: ignore[misc]
        found.ask(scope, "food", lambda s=space: s.memories(category="food"))  # type: ignore[misc]
        found.ask(scope, "count", lambda s=space: s.count())  # type: ignore[misc]
        found.ask(scope, "categories", lambda s=space: s.categories())  # type: ignore[misc]
        found.ask(scope, "position", lambda s=space: s.position())  # type: ignore[misc]
        found.ask(scope, "profile", lambda s=space: s.profile())  # type: ignore[misc]
        found.ask(scope, "proposals", lambda s=space: s.proposals())  # type: ignore[misc]
        found.ask(scope, "changes", lambda s=space: [c.op for c in s.changes()])  # type: ignore[misc]
        found.ask(scope, "export", lambda s=space: list(s.export()))  # type: ignore[misc]
        found.ask(scope, "then", lambda s=space: s.memories(as_of=12))  # type: ignore[misc]
        for query in QUERIES:
            found.ask(scope, query, lambda s=space, q=query: s.recall(q, note=False))  # type: ignore[misc]
        found.ask(scope, "recall then", lambda s=space: s.recall("zebra", as_of=14, note=False))  # type: ignore[misc]
        found.ask(scope, "context", lambda s=space: s.context("tea").recalled)  # type: ignore[misc]
        _ask_each(found, scope, space)
    # Notes of these recalls are no part of what is compared.
    store.runtime.notes._pending.clear()
    return found


def _ask_each(found: Answers, scope: tuple[Any, ...], space: Space) -> None:
    with contextlib.suppress(ReverieError):
        for memory in space.memories(include_forgotten=True)[:6]:
            found.ask(scope, f"get {memory.id}", lambda m=memory: space.get(m.id))  # type: ignore[misc]
            found.ask(scope, f"history {memory.id}", lambda m=memory: space.history(m.id))  # type: ignore[misc]
    found.ask(scope, "sessions", lambda: [(s.id, s.preview) for s in space.sessions()])
    for id in SESSIONS.get(scope, ()):
        session = space.session(id)
        found.ask(scope, f"events {id}", lambda s=session: s.events())  # type: ignore[misc]
        found.ask(scope, f"resume {id}", lambda s=session: s.resume(5))  # type: ignore[misc]
        found.ask(scope, f"summary {id}", lambda s=session: s.summary().text)  # type: ignore[misc]
        found.ask(scope, f"pad {id}", lambda s=session: s.scratchpad.read().items)  # type: ignore[misc]
        found.ask(scope, f"recalls {id}", lambda s=session: [r.hits for r in s.recalls()])  # type: ignore[misc]
        found.ask(scope, f"context {id}", lambda s=session: _context(s))  # type: ignore[misc]
        found.ask(scope, f"own {id}", lambda s=session: s.memories())  # type: ignore[misc]


def _context(session: Any) -> Any:
    made = session.context("tea", freeze=False)
    return [made.profile, made.summary, made.recalled, made.history]


def rows_of(path: Path) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Every entry of a store by its place, without what proves it."""
    columns = log_rows.COLUMNS.removesuffix(", salt, digest, chain, seal")
    with open_store(path) as store, store.runtime.engine.read() as tx:
        return {
            (row[0], row[1]): tuple(row)
            for row in tx.all(f"SELECT space, {columns}, owner FROM log")
        }


# -- damage ---------------------------------------------------------------------------------------


def flip(data: bytearray, random_: random.Random) -> str:
    at, bit = random_.randrange(len(data)), random_.randrange(8)
    data[at] ^= 1 << bit
    return f"bit {bit} of byte {at} (page {at // 4096 + 1}, offset {at % 4096})"


def overwrite(data: bytearray, random_: random.Random) -> str:
    at, length = random_.randrange(len(data) - 16), random_.randint(2, 16)
    data[at : at + length] = random_.randbytes(length)
    return f"{length} bytes from {at} (page {at // 4096 + 1}, offset {at % 4096})"


def zero_page(data: bytearray, random_: random.Random) -> str:
    page = random_.randrange(len(data) // 4096)
    data[page * 4096 : (page + 1) * 4096] = bytes(4096)
    return f"page {page + 1} is zero"


def cut(data: bytearray, random_: random.Random) -> str:
    length = random_.randrange(1, len(data))
    del data[length:]
    return f"cut to {length} bytes"
