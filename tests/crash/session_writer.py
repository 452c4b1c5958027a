"""A writer of sessions made to be killed: the launcher of ``writer`` with other work."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from reverie.agenda import jobs
from reverie.engine import log
from reverie.learn import learner, summaries  # noqa: F401 - loaded before the forks
from tests.crash import writer
from tests.crash.conversations import (
    SPACE,
    ExpectedSessions,
    as_plain,
    open_store,
    perform,
    step_from,
)
from tests.crash.writer import die, say


def converse(order: dict[str, Any]) -> None:
    """Sessions without end. What a killed worker held is due again at once."""
    jobs.LEASE_MS = 0
    chance = random.Random(order["seed"])
    store = open_store(order["path"])
    diary = ExpectedSessions.read(store.space(SPACE))
    for number in itertools.count():
        step = diary.plan(chance, f"{order['seed']}y{number}")
        say(step=as_plain(step))
        ack = perform(store, step)
        say(ack=as_plain(ack))
        diary.record(step, ack)


def die_at(order: dict[str, Any]) -> None:
    """One step, which dies when a function it is made of is called for the ``at``-th time."""
    jobs.LEASE_MS = 0
    store = open_store(order["path"])
    holder, name = {
        "append": (log, "append"),
        "finish": (jobs.Claim, "finish"),
        "scrub": (store.runtime.engine, "scrub"),
    }[order["where"]]
    setattr(holder, name, dying(getattr(holder, name), order["at"]))
    say(ack=as_plain(perform(store, step_from(order["step"]))))


def dying(call: Callable[..., Any], at: int) -> Callable[..., Any]:
    count = itertools.count()

    def step(*values: Any, **named: Any) -> Any:
        if next(count) == at:
            die()
        return call(*values, **named)

    return step


if __name__ == "__main__":
    writer.WORK.update(converse=converse, die_at=die_at)
    writer.main()
