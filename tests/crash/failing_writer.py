"""Writes under a preloaded library that makes system calls fail, one forked writer a fault.

Reads one JSON object from standard input: the faults, the seed and the folder. For each fault it
prints one line: what was acknowledged, what was not, and how the store behaved afterwards.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import reverie

# Loaded before the forks, so that a child begins at once.
import reverie.embed.hashing  # noqa: F401
import reverie.engine.sqlite.engine  # noqa: F401
from reverie.errors import ReverieError
from reverie.model import Mode
from tests.crash.workload import Intent, Ledger, as_plain, open_store, perform

SPACE = "faults"


CHOICES = ("sync_at", "write_at", "short_at", "read_at", "errno", "lasting", "database")
MODES: tuple[Mode, ...] = ("keyword", "vector", "hybrid")
QUERIES = ("amber birch", "river velvet willow", "saffron")


def armed(fault: dict[str, Any]) -> ctypes.c_int:
    """Set the fault, and return the counter of how often it happened."""
    library = ctypes.CDLL(None)
    for name in CHOICES:
        if name in fault:
            ctypes.c_int.in_dll(library, f"reverie_{name}").value = fault[name]
    return ctypes.c_int.in_dll(library, "reverie_fired")


def questions(store: reverie.Store) -> dict[str, Callable[[], Any]]:
    """Everything that is asked of a store whose disk fails to read."""
    space = store.space(SPACE)
    asked: dict[str, Callable[[], Any]] = {
        "list": lambda: [(m.id, m.content) for m in space.memories(include_forgotten=True)],
        "verify": lambda: list(store.verify().problems),
        "export": lambda: [record["body"] for record in space.export()],
    }
    for query, mode in itertools.product(QUERIES, MODES):
        asked[f"{mode}: {query}"] = partial(_recalled, space, query, mode)
    return asked


def _recalled(space: reverie.Space, query: str, mode: Mode) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in space.recall(query, mode=mode, limit=20)]


def read(fault: dict[str, Any], path: Path) -> dict[str, Any]:
    """Ask everything while the disk fails, then again when it reads once more."""
    store = open_store(path)
    fired = armed(fault)
    asked = questions(store)
    outcomes: list[dict[str, Any]] = []
    for _ in range(2):
        answers: dict[str, Any] = {}
        for name, ask in asked.items():
            try:
                answers[name] = ask()
            except ReverieError as error:
                answers[name] = {"error": type(error).__name__}
        outcomes.append(answers)
    return {"fault": fault, "fired": fired.value, "answers": outcomes}


def run(fault: dict[str, Any], path: Path) -> dict[str, Any]:
    if "read_at" in fault:
        return read(fault, path)
    chance, ledger = random.Random(fault["seed"]), Ledger()
    store = open_store(path)
    space = store.space(SPACE)
    fired = armed(fault)
    lines: list[dict[str, Any]] = []
    late: list[str] = []
    for number in range(fault["steps"]):
        before = fired.value
        intent = ledger.plan(chance, f"k{number}")
        if fault.get("only_facts"):
            intent = Intent("remember", f"k{number}", content=f"fact {number} of many")
        line: dict[str, Any] = {"intent": as_plain(intent), "fired": before}
        try:
            ack = perform(space, intent)
        except ReverieError as error:
            line["error"] = type(error).__name__
            lines.append(line)
            break
        ledger.record(intent, ack)
        line["ack"] = as_plain(ack)
        lines.append(line)
    for number in range(3):
        try:
            space.remember(f"late {number}")
            late.append("acknowledged")
        except ReverieError as error:
            late.append(type(error).__name__)
    return {"fault": fault, "fired": fired.value, "lines": lines, "late": late}


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    for number, fault in enumerate(asked["faults"]):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            result = run(fault, Path(asked["folder"]) / str(number) / "store.db")
            print(json.dumps(result), flush=True)
            # A hard stop: nothing is closed and nothing is checkpointed.
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
