"""Processes that write, checkpoint, serve and read one file at once never corrupt it.

SQLite before 3.51.3 could corrupt a file when a writer restarted its write-ahead log while another
process checkpointed. The workload that showed it runs here through our own connections, with a
server and commands beside it. ``REVERIE_CRASH_WAL_ROUNDS`` and ``REVERIE_CRASH_WAL_SECONDS`` say
how long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pytest

from tests.crash.served import TOKEN, Served
from tests.crash.workload import open_store
from tests.figures import figure
from tests.servers import PLACE

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("REVERIE_CRASH_WAL_ROUNDS", "1"))
SECONDS = float(os.environ.get("REVERIE_CRASH_WAL_SECONDS", "2"))
WRITERS = 2
SPACE = "default"
# Writes through the library and checkpoints as often as it can; says what was acknowledged.
_WRITER = """
import json, sys, time
import apsw
from tests.crash.workload import open_store
path, seed, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
with open_store(path) as store:
    space, end, number = store.space("default"), time.monotonic() + seconds, 0
    own = apsw.Connection(path)
    own.set_busy_timeout(10_000)
    acks = []
    while time.monotonic() < end:
        content = f"writer {seed} line {number} " + "amber birch " * 40
        acks.append(space.remember(content, kind="note", key=f"{seed}:{number}").id)
        own.pragma("wal_checkpoint", "PASSIVE")
        number += 1
    own.close()
print(json.dumps(acks))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory: a sync must not be what everybody waits for."""
    with tempfile.TemporaryDirectory(prefix="rv", dir=PLACE) as made:
        yield Path(made)


class Asking(threading.Thread):
    """A client that writes to the server until told to stop."""

    def __init__(self, base: str) -> None:
        super().__init__(daemon=True)
        self._base, self.stop = base, threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(
            base_url=self._base, headers=headers, timeout=60, verify=False
        ) as client:
            while not self.stop.is_set():
                number = len(self.acknowledged)
                answer = client.post("/api/memory/", json={"content": f"asked {number} river"})
                assert answer.status_code == 201, answer.text
                self.acknowledged.append(answer.json()["id"])


def started(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "REVERIE_EMBEDDER": "hashing",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> Any:
    output, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return json.loads(output)


@pytest.mark.prove
def test_checkpoints_beside_writers_corrupt_nothing(folder: Path) -> None:
    for number in range(ROUNDS):
        path = folder / str(number) / "store.db"
        path.parent.mkdir()
        served = Served(path.parent)
        asking = Asking(served.start())
        began = time.monotonic()
        try:
            writers = [
                started("-c", _WRITER, str(path), str(seed), str(SECONDS))
                for seed in range(WRITERS)
            ]
            asking.start()
            acknowledged: set[str] = set()
            while any(writer.poll() is None for writer in writers[:1]):
                answers = ended(
                    started(
                        *("-m", "reverie", "remember", f"by command {time.monotonic()}"),
                        *("--json", "--url", str(path)),
                    )
                )
                acknowledged.add(answers["id"])
            for writer in writers:
                acknowledged |= set(ended(writer))
        finally:
            asking.stop.set()
            if asking.is_alive():
                asking.join()
            served.kill()
        figure("shortest round", time.monotonic() - began, "min")
        check(path, acknowledged | set(asking.acknowledged))


def check(path: Path, acknowledged: set[str]) -> None:
    connection = apsw.Connection(str(path))
    whole = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    with open_store(path) as store:
        missing = acknowledged - {memory.id for memory in store.space(SPACE).memories()}
        problems = store.verify().problems
    figure("rounds", 1)
    figure("acknowledged writes", len(acknowledged))
    figure("acknowledged writes missing", len(missing))
    figure("corrupt files", whole != [("ok",)] or bool(problems))
    assert whole == [("ok",)]
    assert problems == ()
    assert not missing
