"""The checker of the simulation finds each kind of broken promise in a doctored history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.simulation.history import (
    OPS,
    Entry,
    History,
    Kind,
    Observed,
    Operation,
    Verb,
    check,
    counted,
    token_of,
)

VISIBLE = {0: {0}, 1: {0, 1}, 2: {2}}
VERBS: tuple[Verb, ...] = ("remember", "revise", "forget", "append", "teach")


def healthy() -> tuple[History, Observed]:
    """Make a history of three owners and a store that holds exactly what was acknowledged."""
    history, entries = History(), dict[int, list[Entry]]()
    for owner in range(3):
        entries[owner] = []
        for number, verb in enumerate(VERBS * 2):
            token = token_of(owner, number)
            history.add(Operation(owner, verb, token, "acknowledged"))
            entries[owner].append(Entry(OPS[verb], f"{verb} {token}"))
            if verb == "teach":
                entries[owner].append(Entry("remember", f"The kettle is {token}", learned=True))
        history.saw(owner, f"hits: {token_of(owner, 0)}")
    history.add(Operation(0, "file", token_of(0, 90), "acknowledged"))
    entries[0].append(Entry("remember", token_of(0, 90)))
    # Unknown, and there or not.
    history.add(Operation(2, "remember", token_of(2, 50), "unknown"))
    history.add(Operation(2, "append", token_of(2, 51), "unknown"))
    entries[2].append(Entry("append", token_of(2, 51)))
    history.saw(1, f"what the space shares: {token_of(0, 0)}")
    return history, Observed(entries)


def test_checker_accepts_a_healthy_history() -> None:
    history, seen = healthy()
    assert check(history, seen, VISIBLE) == []


def lose(history: History, seen: Observed) -> None:
    del seen.entries[1][3]


def lose_a_file(history: History, seen: Observed) -> None:
    seen.entries[0].pop()


def repeat(history: History, seen: Observed) -> None:
    seen.entries[0].append(seen.entries[0][1])


def repeat_an_unknown(history: History, seen: Observed) -> None:
    seen.entries[2].append(seen.entries[2][-1])


def learn_twice(history: History, seen: Observed) -> None:
    learned = next(entry for entry in seen.entries[0] if entry.learned)
    seen.entries[0].append(learned)


def learn_nothing(history: History, seen: Observed) -> None:
    seen.entries[0] = [entry for entry in seen.entries[0] if not entry.learned]


def cross_in_the_log(history: History, seen: Observed) -> None:
    seen.entries[2][0] = replace(seen.entries[2][0], text=seen.entries[2][0].text + token_of(0, 0))


def cross_in_an_answer(history: History, seen: Observed) -> None:
    history.saw(0, f"hits: {token_of(1, 0)}")


def swap(history: History, seen: Observed) -> None:
    entries = seen.entries[1]
    entries[0], entries[3] = entries[3], entries[0]


def invent(history: History, seen: Observed) -> None:
    seen.entries[1].append(Entry("append", token_of(1, 77)))


@pytest.mark.parametrize(
    ("doctor", "kind"),
    [
        (lose, "missing"),
        (lose_a_file, "missing"),
        (repeat, "twice"),
        (repeat_an_unknown, "twice"),
        (learn_twice, "twice"),
        (learn_nothing, "unlearned"),
        (cross_in_the_log, "crossed"),
        (cross_in_an_answer, "crossed"),
        (swap, "disordered"),
        (invent, "invented"),
    ],
)
def test_checker_detects_a_manipulated_history(
    doctor: Callable[[History, Observed], None], kind: Kind
) -> None:
    history, seen = healthy()
    doctor(history, seen)
    assert counted(check(history, seen, VISIBLE))[kind] >= 1
