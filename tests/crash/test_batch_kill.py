"""kill -9 within the transaction of a batch: each batch is stored whole or not at all."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import reverie

BATCH = 20
RECORDS = [{"content": f"record {number} about topic {number % 7}"} for number in range(3 * BATCH)]

# Dies when the given statement begins, of those that writers run.
IMPORT = """
import itertools, json, os, signal, sys
import reverie
from reverie.engine.sqlite.transaction import SQLiteTransaction
from reverie.transfer import import_

path, last, batch, records = sys.argv[1:]
steps = itertools.count()

def dying(call):
    def step(self, *values):
        if self.writing and next(steps) == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
        return call(self, *values)
    return step

import_.BATCH = int(batch)
with reverie.open(path, embedder="hashing") as store:
    for name in ("one", "all", "run", "many", "put_vectors"):
        setattr(SQLiteTransaction, name, dying(getattr(SQLiteTransaction, name)))
    store.space("crash").import_records(json.loads(records))
"""


@pytest.mark.parametrize("step", [0, 9, 14, 16, 18, 20, 26, 31, 36, 41, 45])
@pytest.mark.sample(3)
def test_kill_within_a_batch_leaves_whole_batches_only(tmp_path: Path, step: int) -> None:
    path = tmp_path / "store.db"
    arguments = [str(path), str(step), str(BATCH), json.dumps(RECORDS)]
    done = subprocess.run([sys.executable, "-c", IMPORT, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    with reverie.open(path, embedder="hashing") as store:
        there = store.verify().versions
        assert store.verify().problems == ()
        assert there % BATCH == 0 and there < len(RECORDS)
        report = store.space("crash").import_records(RECORDS)
        assert (report.added, report.unchanged) == (len(RECORDS) - there, there)
        assert store.verify().problems == ()
        contents = [memory.content for memory in store.space("crash").memories()]
        assert contents[::-1] == [record["content"] for record in RECORDS]
