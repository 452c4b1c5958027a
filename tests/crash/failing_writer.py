"""Writes under a preloaded library that makes system calls fail, one forked writer a fault.

Reads one JSON object from standard input: the faults, the seed and the folder. For each fault it
prints one line: what was acknowledged, what was not, and how the store behaved afterwards.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

# Loaded before the forks, so that a child begins at once.
import reverie
import reverie.embed.hashing  # noqa: F401
import reverie.engine.sqlite  # noqa: F401
from reverie.errors import ReverieError
from tests.crash.workload import Intent, Ledger, as_plain, open_store, perform

SPACE = "faults"


def run(fault: dict[str, Any], path: Path) -> dict[str, Any]:
    library = ctypes.CDLL(None)
    chance, ledger = random.Random(fault["seed"]), Ledger()
    store = open_store(path)
    space = store.space(SPACE)
    if fault.get("read_at"):
        # What is to be read must be in the file, and not in a cache.
        for number in range(20):
            intent = ledger.plan(chance, f"before{number}")
            ledger.record(intent, perform(space, intent))
        store.close()
        store = open_store(path)
        space = store.space(SPACE)
    for name in ("sync_at", "write_at", "read_at", "errno", "lasting", "database"):
        if name in fault:
            ctypes.c_int.in_dll(library, f"reverie_{name}").value = fault[name]
    fired = ctypes.c_int.in_dll(library, "reverie_fired")
    said: list[dict[str, Any]] = []
    late: list[str] = []
    if fault.get("read_at"):
        return read_faults(store, ledger, fault, fired)
    for number in range(fault["steps"]):
        before = fired.value
        intent = ledger.plan(chance, f"k{number}")
        if fault.get("only_facts"):
            intent = Intent("remember", f"k{number}", content=f"fact {number} of many")
        line: dict[str, Any] = {"intent": as_plain(intent), "fired": before}
        try:
            ack = perform(space, intent)
        except ReverieError as error:
            line["error"], line["message"] = type(error).__name__, str(error)
            said.append(line)
            break
        ledger.record(intent, ack)
        line["ack"] = as_plain(ack)
        said.append(line)
    for number in range(3):
        try:
            space.remember(f"late {number}")
            late.append("acknowledged")
        except ReverieError as error:
            late.append(type(error).__name__)
    return {"fault": fault, "fired": fired.value, "said": said, "late": late}


def read_faults(
    store: reverie.Store, ledger: Ledger, fault: dict[str, Any], fired: ctypes.c_int
) -> dict[str, Any]:
    """Looks at everything again and again; what each look that failed said."""
    said: list[str] = []
    for _ in range(4):
        try:
            ledger.check(store.space(SPACE))
            ledger.check_recall(store.space(SPACE), random.Random(1))
            assert store.verify().problems == ()
        except ReverieError as error:
            said.append(f"{type(error).__name__}: {error}")
    return {"fault": fault, "fired": fired.value, "said": said}


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
