"""A writer made to be killed.

The launcher imports everything and opens nothing. For each JSON line on its standard input it forks
a child that does the work. A child left ``alone`` dies by itself or ends; any other is killed with
SIGKILL at the next line. The child says on the shared standard output what it is about to do, and
after a call returned what came back.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

# Loaded before the forks, so that a child begins at once.
import reverie.embed.hashing  # noqa: F401
import reverie.embed.local  # noqa: F401
import reverie.engine.postgres.engine  # noqa: F401
import reverie.engine.sqlite.engine  # noqa: F401
from reverie.maintenance import reembed as maintenance_reembed
from reverie.transfer import import_
from tests.crash.workload import Ledger, as_plain, open_store, perform, position_of

SPACE = "crash"


def say(**values: Any) -> None:
    line = json.dumps(values).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write(order: dict[str, Any]) -> None:
    """Mixed writes without end."""
    chance = random.Random(order["seed"])
    store = open_store(order["path"], order["embedder"])
    space = store.space(SPACE)
    ledger = Ledger.read(space, position_of(store, SPACE))
    for number in itertools.count():
        intent = ledger.plan(chance, f"{order['seed']}-{number}")
        say(intent=as_plain(intent))
        ack = perform(space, intent)
        say(ack=as_plain(ack))
        ledger.record(intent, ack)
        if number % 16 == 15:
            space.recall("amber birch", limit=3)


def create(order: dict[str, Any]) -> None:
    """A fresh file, and one write."""
    store = open_store(order["path"], order["embedder"])
    say(ack=store.space(SPACE).remember("the first memory", key="first").content)


def rebuild(order: dict[str, Any]) -> None:
    store = open_store(order["path"], order["embedder"])
    store.rebuild(dying_at(order["at"]))


def reembed(order: dict[str, Any]) -> None:
    maintenance_reembed.EMBED_BATCH = 20
    store = open_store(order["path"], order["embedder"])
    store.reembed(dying_at(order["at"]))


def import_records(order: dict[str, Any]) -> None:
    import_.BATCH = 20
    store = open_store(order["path"], order["embedder"])

    def records() -> Iterator[dict[str, Any]]:
        with open(order["records"], encoding="utf-8") as file:  # noqa: PTH123
            for number, line in enumerate(file):
                if number == order["at"]:
                    die()
                yield json.loads(line)

    store.space(SPACE).import_records(records())


def restore_backup(order: dict[str, Any]) -> None:
    """Dies when the ``at``-th of the steps that a restore is made of begins."""
    store = open_store(order["path"], order["embedder"])
    engine = store.runtime.engine
    steps = itertools.count()

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*values: Any, **named: Any) -> Any:
            if next(steps) == order["at"]:
                die()
            return call(*values, **named)

        return step

    for name in ("write", "restore", "scrub", "read"):
        setattr(engine, name, dying(getattr(engine, name)))
    store.restore_backup(order["backup"])


def erase(order: dict[str, Any]) -> None:
    """Erases, and dies before the files were emptied."""
    store = open_store(order["path"], order["embedder"])
    vars(store.runtime.engine)["scrub"] = lambda erased=(): die()
    store.space(SPACE).erase(order["id"], key="erase")


def dying_at(at: int) -> Callable[[int, int], None]:
    count = itertools.count()

    def progress(done: int, whole: int) -> None:
        say(progress=done)
        if next(count) == at:
            die()

    return progress


WORK: dict[str, Callable[[dict[str, Any]], None]] = {
    "write": write,
    "create": create,
    "rebuild": rebuild,
    "reembed": reembed,
    "import_records": import_records,
    "restore_backup": restore_backup,
    "erase": erase,
}


def main() -> None:
    say(ready=os.getpid())
    while line := sys.stdin.readline():
        order = json.loads(line)
        child = os.fork()
        if not child:
            try:
                WORK[order["work"]](order)
                say(finished=True)
                if not order["alone"]:
                    signal.pause()
            except BaseException:  # noqa: BLE001
                say(error=traceback.format_exc())
            os._exit(0)
        say(started=child)
        if not order["alone"]:
            # Until told to, or until whoever tells it is gone.
            sys.stdin.readline()
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        # Begins a line of its own: the child may have died within one.
        os.write(1, b"\n")
        say(ended=status)


if __name__ == "__main__":
    main()
