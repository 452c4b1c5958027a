"""Workers made to be killed, the clock they share with a test, and how a question is read.

The launcher imports everything and opens nothing. Each JSON line on its standard input is an order
that it answers with one line: ``start`` forks a worker of a store, ``kill`` ends one with SIGKILL,
``write`` forks a child that writes to a store and waits until it is done.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import reverie
from reverie.learn import learner, prompts
from reverie.learn.llm import open_model

ROOT = Path(__file__).parents[2]
SPACE = "learned"
POLL = 0.005
LOADED = (
    "pydantic_ai.models.openai",
    "pydantic_ai.providers.openai_compatible",
    "reverie.embed.hashing",
    "reverie.engine.sqlite.engine",
    "reverie.learn.summaries",
)

Question = Literal["extract", "decide", "summarise"]
_BEGINNINGS: dict[str, Question] = {
    prompts.EXTRACT_PROMPT[:40]: "extract",
    prompts.RECONCILE_PROMPT[:40]: "decide",
    prompts.SUMMARIZE_PROMPT[:40]: "summarise",
}


def question_of(request: dict[str, Any]) -> tuple[Question, dict[str, Any]]:
    """Which of its three questions Reverie asks a model, and about what."""
    instructions, asked = request["messages"][:2]
    return _BEGINNINGS[instructions["content"][:40]], json.loads(asked["content"])


class SharedClock:
    """The same moment in every process: eight bytes of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def now(self) -> int:
        moment: int = struct.unpack("q", self.path.read_bytes())[0]
        return moment

    def set(self, moment: int) -> None:
        """Only ever called by one process."""
        if not self.path.exists():
            self.path.write_bytes(struct.pack("q", moment))
            return
        with self.path.open("r+b", buffering=0) as file:
            file.write(struct.pack("q", moment))


def open_learning(order: dict[str, Any]) -> reverie.Store:
    """A store that learns with the model that the order names."""
    return reverie.open(
        order["path"],
        embedder="hashing",
        settings=reverie.Settings(**order["settings"]),
        clock=SharedClock(Path(order["clock"])),
    )


def serve(order: dict[str, Any]) -> None:
    # To open a model takes longer than to ask it.
    vars(learner)["open_model"] = cache(open_model)
    open_learning(order).run_worker(threading.Event(), POLL)


def write(order: dict[str, Any]) -> None:
    """Every sort of write, each its own transaction."""
    with open_learning(order) as store:
        space = store.space(SPACE)
        for number, id in enumerate(order["revise"]):
            space.remember(f"another process remembers pebble{number}")
            space.session("elsewhere").append(
                {"role": "assistant", "content": f"another process says kettle{number}"}
            )
            space.revise(id, f"another process revised lantern{number}")


def forked(work: Callable[[dict[str, Any]], None], order: dict[str, Any]) -> int:
    child = os.fork()
    if not child:
        code = 1
        try:
            work(order)
            code = 0
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def main() -> None:
    # Loaded before the forks, so that a child begins at once.
    for name in LOADED:
        importlib.import_module(name)
    children: set[int] = set()
    answer({"ready": os.getpid()})
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "start":
            child = forked(serve, order)
            children.add(child)
            answer({"started": child})
        elif order["do"] == "write":
            answer({"status": os.waitpid(forked(write, order), 0)[1]})
        else:
            children.remove(order["child"])
            answer({"status": ended(order["child"])})
    for child in children:
        ended(child)


def ended(child: int) -> int:
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def answer(values: dict[str, Any]) -> None:
    os.write(1, json.dumps(values).encode() + b"\n")


class Learners:
    """The other end: any thread may give an order and gets the answer to it."""

    def __init__(self) -> None:
        self._where: dict[str, str] = {}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.learner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            text=True,
        )
        assert "ready" in self._answer()

    def use(self, path: Path, clock: SharedClock) -> None:
        """The store that orders from now on are about."""
        self._where = {"path": str(path), "clock": str(clock.path)}

    def start(self, settings: dict[str, Any]) -> int:
        """A worker of the store, in a process of its own."""
        child: int = self._ask("start", settings=settings)["started"]
        return child

    def kill(self, child: int) -> None:
        status = self._ask("kill", child=child)["status"]
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, "it was dead"

    def write(self, revise: list[str]) -> None:
        """Three writes for each of these memories, all of them done when this returns."""
        assert self._ask("write", settings={}, revise=revise)["status"] == 0

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, do: str, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"do": do, **self._where, **order}) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the launcher is gone"
        reply: dict[str, Any] = json.loads(line)
        return reply


@contextmanager
def learners() -> Iterator[Learners]:
    made = Learners()
    try:
        yield made
    finally:
        made.close()


if __name__ == "__main__":
    main()
