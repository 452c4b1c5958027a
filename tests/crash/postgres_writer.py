"""A writer that outlives its server: what it may not have done, it repeats with the same key.

It says on its standard output what it is about to do, each error it got on the way, and what came
back. Told to pause, it ends the write it is in, and waits until it is told to go on.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import reverie
from reverie.errors import StoreBusy, StoreUnavailable
from reverie.write.validate import key_hash
from tests.conftest import rows
from tests.crash.workload import Ack, Intent, Ledger, as_plain, intent_from, open_store, perform

ROOT = Path(__file__).parents[2]
# Whoever waits this long for a writer waits for one that hangs.
HANGING_SECONDS = 90.0
WRITES_A_RECALL = 8
Result = TypeVar("Result")


# -- the process ----------------------------------------------------------------------------------


def say(**values: Any) -> None:
    line = json.dumps(values).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def repeated(call: Callable[[], Result]) -> Result:
    """Until it is done. Any other error ends the process."""
    while True:
        try:
            return call()
        except (StoreBusy, StoreUnavailable) as error:
            say(failed=type(error).__name__)


def rest() -> bool:
    """Wait while paused; return whether to continue."""
    if not select.select([0], [], [], 0)[0]:
        return True
    if os.read(0, 100) != b"pause\n":
        return False
    say(paused=True)
    return os.read(0, 100) == b"go\n"


def write(store: reverie.Store, name: str, seed: int) -> None:
    """Write memories of its own in mixed ways, until it is ordered to end."""
    space, chance, ledger = store.space(name), random.Random(seed), Ledger()
    for number in itertools.count():
        if not rest():
            return
        # A word that no other memory has, so that a recall by it is right or wrong.
        intent = ledger.plan(chance, f"w{seed}n{number}")
        say(intent=as_plain(intent))
        ack = repeated(lambda intent=intent: perform(space, intent))  # type: ignore[misc]
        say(ack=as_plain(ack), at=time.monotonic())
        ledger.record(intent, ack)
        if number % WRITES_A_RECALL == WRITES_A_RECALL - 1:
            repeated(lambda: ledger.check_recall(space, chance, 1))


def main() -> None:
    order = json.loads(sys.argv[1])
    try:
        with open_store(order["address"], order["embedder"]) as store:
            say(ready=True)
            os.read(0, 100)
            write(store, order["space"], order["seed"])
    except BaseException:  # noqa: BLE001
        say(error=traceback.format_exc())


# -- the other end --------------------------------------------------------------------------------


class Writer:
    """A writer process, and the ledger of what it got acknowledged. It begins when told to go."""

    def __init__(self, address: str, space: str, seed: int, embedder: str = "hashing") -> None:
        self.space, self.ledger = space, Ledger()
        self.keys: list[str] = []
        self.failures: list[str] = []
        self.acknowledged_at: list[float] = []
        self._pending: Intent | None = None
        order = {"address": address, "space": space, "seed": seed, "embedder": embedder}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.postgres_writer", json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )
        self._said: list[dict[str, Any]] = []
        self._told = threading.Condition()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        """A writer must never wait for us to read."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._told:
                self._said.append(json.loads(line))
                self._told.notify_all()
        with self._told:
            self._said.append({"gone": True})
            self._told.notify_all()

    def until(self, name: str) -> None:
        """Take in everything said up to the next line of this name."""
        deadline = time.monotonic() + HANGING_SECONDS
        while True:
            with self._told:
                while not self._said:
                    left = deadline - time.monotonic()
                    assert left > 0, f"no {name} from a writer of {self.space}: it hangs"
                    self._told.wait(left)
                line = self._said.pop(0)
            self._take_in(line)
            if name in line:
                return
            assert "gone" not in line, f"a writer of {self.space} is gone"

    def _take_in(self, line: dict[str, Any]) -> None:
        assert "error" not in line, line["error"]
        if "intent" in line:
            self._pending = intent_from(line["intent"])
        elif "failed" in line:
            self.failures.append(line["failed"])
        elif "ack" in line:
            assert self._pending is not None
            self.ledger.record(self._pending, Ack(**line["ack"]))
            self.keys.append(self._pending.key)
            self.acknowledged_at.append(line["at"])

    def tell(self, what: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(what.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.until("error")  # which says what ended it

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(HANGING_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._listener.join()
            self._process.stdout.close()


@contextmanager
def writers(address: str, spaces: Sequence[str], seed: int) -> Iterator[list[Writer]]:
    """One writer for each name of a space, at rest; ``embedder`` of each is the hashing one."""
    made = [Writer(address, space, seed + at) for at, space in enumerate(spaces)]
    try:
        for writer in made:
            writer.until("ready")
        yield made
    finally:
        for writer in made:
            writer.close()


def start(working: Sequence[Writer]) -> None:
    """All of them write, and each has written."""
    for writer in working:
        writer.tell("go")
    for writer in working:
        writer.until("ack")


def pause(working: Sequence[Writer]) -> None:
    """Nothing is under way: each repeated what it had to until it was acknowledged."""
    for writer in working:
        writer.tell("pause")
    for writer in working:
        writer.until("paused")


def differing(store: reverie.Store, working: Sequence[Writer]) -> int:
    """Count the acknowledged keys that the log lacks and those it holds more than once."""
    logged = Counter(
        str(row[0]) for row in rows(store, "SELECT key FROM log WHERE key IS NOT NULL")
    )
    keys = {str(key_hash(key)) for writer in working for key in writer.keys}
    return sum(logged[key] != 1 for key in keys)


def check(store: reverie.Store, working: Sequence[Writer]) -> None:
    """The log holds what was acknowledged, each once, and nothing else; so do the memories."""
    for name in sorted({writer.space for writer in working}):
        together = [writer for writer in working if writer.space == name]
        logged = rows(
            store,
            "SELECT l.position, l.key FROM log l JOIN spaces s ON s.space = l.space "
            "WHERE s.name = ? ORDER BY l.position",
            name,
        )
        keys = sorted(str(key_hash(key)) for writer in together for key in writer.keys)
        assert sorted(str(row[1]) for row in logged) == keys
        assert [row[0] for row in logged] == list(range(1, len(keys) + 1))
        whole = Ledger()
        for writer in together:
            whole.states |= writer.ledger.states
        whole.check(store.space(name))


if __name__ == "__main__":
    main()
