"""A process that changes a store and its vault, to be killed or to be one of many."""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from pathlib import Path
from typing import Any

import reverie
from reverie import Settings, Store
from tests.crash import writer
from tests.crash.writer import say
from tests.property.test_vault import ACTS, VaultActions
from tests.vault.vaults import Kept

SPACES = ("ana", "eve")
# What a person does in a program that is not killed, or only loses what they have themselves.
_LEFT_OUT = {"killed", "lose_cache", "delete", "delete_record", "scribble"}


class ReportingActions(VaultActions):
    """Says what was written, once it is, and what is about to be destroyed."""

    def wrote(self, text: str) -> str:
        say(wrote=text.split("x")[0] + "x")
        return text

    def destroy(self, texts: set[str]) -> None:
        say(erased=sorted(texts))

    def edit_in_place(self, path: str, raw: bytes, old: str, new: str) -> None:
        # Killed within, an editor that does not write a new file loses both.
        self.edit_whole(path, raw, old, new)


def live(order: dict[str, Any]) -> None:
    """Anything without end, the vault's own work most of all."""
    kept = Kept(Path(order["path"]), seed=order["seed"])
    actions = ReportingActions(kept, order["seed"])
    actions.count = order["seed"] * 10_000
    acts = [(weight, act) for weight, act in ACTS if act not in _LEFT_OUT]
    acts += [(12, "sync"), (12, "mirror")]
    weights = [weight for weight, _ in acts]
    for _ in itertools.count():
        (_, act) = actions.chance.choices(acts, weights)[0]
        say(act=act)
        getattr(actions, act)()


# -- one of many --------------------------------------------------------------------------------


def open_store(path: str) -> Store:
    return reverie.open(f"sqlite://{path}", settings=Settings(learn="off"), embedder="none")


def write(path: str, seed: int, threads: int, count: int) -> None:
    """Threads that remember, revise, forget and restore, each what it likes; says every text."""
    with open_store(path) as store:
        texts: list[str] = []
        workers = [
            threading.Thread(target=_write, args=(store, f"{seed}y{number}", count, texts))
            for number in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(json.dumps(texts))


def _write(store: Store, name: str, count: int, texts: list[str]) -> None:
    chance = random.Random(name)
    for number in range(count):
        text = f"text{name}n{number}x"
        space = store.space(chance.choice(SPACES))
        known = space.memories(limit=20)
        choice = chance.random()
        try:
            if choice < 0.4 or not known:
                space.remember(text)
            elif choice < 0.7:
                space.revise(chance.choice(known).id, text)
            elif choice < 0.8:
                space.forget(chance.choice(known).id)
                continue
            else:
                space.session("chat").append({"role": "user", "content": text})
        except reverie.NotFound:
            continue  # forgotten by another
        texts.append(text)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1], *map(int, sys.argv[2:]))
    else:
        writer.WORK["live"] = live
        writer.main()
