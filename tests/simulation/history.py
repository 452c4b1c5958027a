"""The answers that clients got during a simulation, and the checker that compares them with a
store.

The checker is pure: it takes a history and what was observed afterwards, and returns every promise
that was broken. ``test_checker.py`` shows that it finds each kind.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Who = tuple[str, str | None]
Verb = Literal["remember", "revise", "forget", "append", "teach", "file"]
Outcome = Literal["acknowledged", "unknown"]
Kind = Literal["missing", "twice", "crossed", "disordered", "unlearned", "invented"]
TOKEN = re.compile(r"canary\d+x\d+q")


def token_of(owner: int, number: int) -> str:
    """Return one word that says whose write this is, and which."""
    return f"canary{owner}x{number}q"


def owner_of(token: str) -> int:
    return int(token.removeprefix("canary").partition("x")[0])


@dataclass(frozen=True)
class Operation:
    """One write as its client knows it. Its token is in its content, or in its reason."""

    owner: int
    verb: Verb
    token: str
    outcome: Outcome


@dataclass(frozen=True)
class Entry:
    """One entry of an owner's log: the verb, and the text that it added."""

    op: str
    text: str
    learned: bool = False


@dataclass(frozen=True)
class Problem:
    """A broken promise."""

    kind: Kind
    what: str


@dataclass
class History:
    """Everything that clients did and were shown."""

    operations: list[Operation] = field(default_factory=list)
    shown: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)

    def saw(self, owner: int, text: str) -> None:
        """Note the tokens in something that an owner was shown."""
        with self._lock:
            self.shown.append((owner, frozenset(TOKEN.findall(text))))

    def acknowledged(self) -> int:
        return sum(each.outcome == "acknowledged" for each in self.operations)


@dataclass(frozen=True)
class Observed:
    """What a store holds after everything healed: each owner's log, in order."""

    entries: dict[int, list[Entry]]
    # Texts that the vault put beside a file because both sides had changed it.
    conflicts: str = ""


# Which entry of the log each verb makes.
OPS: dict[Verb, str] = {
    "remember": "remember",
    "revise": "revise",
    "forget": "forget",
    "append": "append",
    "teach": "append",
}


def check(history: History, seen: Observed, visible: dict[int, set[int]]) -> list[Problem]:
    """Return every promise that this history and this store break together."""
    return [
        *_counts(history, seen),
        *_order(history, seen),
        *_learning(history, seen),
        *_isolation(history, seen, visible),
        *_inventions(history, seen),
    ]


def _counts(history: History, seen: Observed) -> Iterable[Problem]:
    """Acknowledged: exactly once. Unknown: at most once."""
    for each in history.operations:
        if each.verb == "file":
            # A person's file may be remembered once and revised later with the same words.
            holding = [e for e in seen.entries.get(each.owner, []) if each.token in e.text]
            first_position = sum(entry.op == "remember" for entry in holding)
            if not holding and each.token not in seen.conflicts:
                yield Problem("missing", f"{each.token}: what a person saved in the vault")
            if first_position > 1:
                yield Problem(
                    "twice", f"{each.token}: a person's file was remembered {first_position} times"
                )
            continue
        count = sum(
            entry.op == OPS[each.verb] and not entry.learned and each.token in entry.text
            for entry in seen.entries.get(each.owner, [])
        )
        if count > 1:
            yield Problem("twice", f"{each.token}: {each.verb} is there {count} times")
        if count == 0 and each.outcome == "acknowledged":
            yield Problem("missing", f"{each.token}: acknowledged {each.verb}")


def _order(history: History, seen: Observed) -> Iterable[Problem]:
    """What one client got acknowledged one after the other is in this order."""
    for owner, entries in seen.entries.items():
        place: dict[str, int] = {}
        for at, entry in enumerate(entries):
            for token in TOKEN.findall(entry.text) if not entry.learned else ():
                place.setdefault(token, at)
        places = [
            (place[each.token], each.token)
            for each in history.operations
            if each.owner == owner
            and each.outcome == "acknowledged"
            and each.verb != "file"
            and each.token in place
        ]
        for (one, _), (two, token) in zip(places, places[1:], strict=False):
            if two < one:
                yield Problem("disordered", f"{token}: before what was acknowledged before it")


def _learning(history: History, seen: Observed) -> Iterable[Problem]:
    """What a kept turn asks to remember is learned exactly once."""
    for each in history.operations:
        if each.verb != "teach":
            continue
        entries = seen.entries.get(each.owner, [])
        times = sum(e.op == "append" and each.token in e.text for e in entries)
        learned = sum(e.op == "remember" and e.learned and each.token in e.text for e in entries)
        if learned > 1:
            yield Problem("twice", f"{each.token}: learned {learned} times")
        if times and not learned:
            yield Problem("unlearned", f"{each.token}: the turn is kept and taught nothing")


def _isolation(history: History, seen: Observed, visible: dict[int, set[int]]) -> Iterable[Problem]:
    """Nothing of one owner is in another's log, nor in what another was shown."""
    for owner, entries in seen.entries.items():
        for token in sorted({t for e in entries for t in TOKEN.findall(e.text)}):
            if owner_of(token) != owner:
                yield Problem("crossed", f"{token}: in the log of owner {owner}")
    for owner, tokens in history.shown:
        for token in sorted(tokens):
            if owner_of(token) not in visible[owner]:
                yield Problem("crossed", f"{token}: shown to owner {owner}")


def _inventions(history: History, seen: Observed) -> Iterable[Problem]:
    """Nothing is there that nobody wrote."""
    written = {each.token for each in history.operations}
    held = {t for entries in seen.entries.values() for e in entries for t in TOKEN.findall(e.text)}
    for token in sorted(held - written):
        yield Problem("invented", f"{token}: nobody wrote it")


def counted(problems: Iterable[Problem]) -> Counter[Kind]:
    return Counter(problem.kind for problem in problems)
