"""Another process of the same store, in lockstep: one JSON line in, one JSON line out."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

import reverie
from reverie.errors import ReverieError
from tests.crash.workload import open_store

ROOT = Path(__file__).parents[2]


def load(order: dict[str, Any]) -> dict[str, Any]:
    """Many writes in a row, each its own transaction."""
    acks: list[str] = []
    errors: list[str] = []
    waits: list[float] = []
    store = open_store(order["path"])
    chance = random.Random(order["seed"])
    for number in range(order["count"]):
        content = f"writer {order['seed']} wrote line {number} of {chance.random()}"
        began = time.monotonic()
        try:
            memory = store.space(order["space"]).remember(content, key=f"{order['seed']}:{number}")
            assert memory.content == content
            acks.append(memory.id)
        except Exception as error:  # noqa: BLE001
            errors.append(repr(error))
        waits.append(time.monotonic() - began)
        if order.get("reopen") and number % order["reopen"] == 0:
            store.close()
            store = open_store(order["path"])
    store.close()
    return {"acks": acks, "errors": errors, "waits": waits}


def answers(store: reverie.Store, name: str, queries: list[str]) -> list[Any]:
    """Everything a recall can say, comparable across processes."""
    space = store.space(name)
    results: list[Any] = []
    for query in queries:
        for mode in ("keyword", "vector", "hybrid"):
            hits = space.recall(query, mode=mode, limit=30)
            results.append([[hit.id, hit.text, round(hit.score, 5)] for hit in hits])
    return results


def main() -> None:
    store: reverie.Store | None = None
    snapshot: apsw.Connection | None = None
    for line in sys.stdin:
        order = json.loads(line)
        reply: dict[str, Any] = {}
        try:
            if order["do"] == "load":
                reply = load(order)
            elif order["do"] == "open":
                store = open_store(order["path"])
            elif order["do"] == "create":
                with open_store(order["path"]) as made:
                    made.space("made").remember(f"by {os.getpid()}")
            elif order["do"] == "recall":
                assert store is not None
                reply = {"answers": answers(store, order["space"], order["queries"])}
            elif order["do"] == "hold":
                snapshot = apsw.Connection(order["path"], flags=apsw.SQLITE_OPEN_READWRITE)
                snapshot.execute("BEGIN")
                snapshot.execute("SELECT count(*) FROM log").fetchall()
            elif order["do"] == "release":
                assert snapshot is not None
                snapshot.execute("COMMIT")
                snapshot.close()
        except (ReverieError, apsw.Error) as error:
            reply = {"error": repr(error)}
        print(json.dumps(reply), flush=True)


class Peer:
    """The other end: asks, and waits for the answer."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            text=True,
        )

    def ask(self, do: str, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in reply, reply["error"]
        return reply

    def call(self, do: str, **order: Any) -> dict[str, Any]:
        self.ask(do, **order)
        return self.answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def peers(count: int) -> Iterator[list[Peer]]:
    made = [Peer() for _ in range(count)]
    try:
        yield made
    finally:
        for peer in made:
            peer.close()


if __name__ == "__main__":
    main()
