"""The same promises when the kernel itself refuses: the k-th fsync, pwrite or pread fails."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.workload import Ack, Ledger, intent_from, open_store

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SPACE = "faults"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("failing system calls need Linux and a C compiler")
    made = tmp_path_factory.mktemp("library") / "failing_calls.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", made, HERE / "failing_calls.c", "-ldl"],
        check=True,
        capture_output=True,
    )
    return made


def results_of(library: Path, folder: Path, faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for number in range(len(faults)):
        (folder / str(number)).mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.failing_writer"],
        input=json.dumps({"folder": str(folder), "faults": faults}) + "\n",
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(faults), done.stderr
    return results


def check(path: Path, result: dict[str, Any]) -> None:
    """Acknowledged is present, what failed is there once after it was repeated."""
    ledger, pending = Ledger(), None
    for line in result["said"]:
        intent = intent_from(line["intent"])
        if "ack" in line:
            ledger.record(intent, Ack(**line["ack"]))
        else:
            pending = intent
    with open_store(path) as store:
        assert store.verify().problems == ()
        if pending is not None and "acknowledged" not in result["late"]:
            ledger.settle(store, SPACE, pending)
            ledger.check(store.space(SPACE))
        else:
            states = Ledger.read(store.space(SPACE)).states
            for id, state in ledger.visible().items():
                assert states[id] == state
        assert store.verify().problems == ()


@pytest.mark.parametrize("ats", [range(first, 61, 4) for first in range(1, 5)])
def test_no_acknowledgement_after_a_failed_sync(library: Path, tmp_path: Path, ats: range) -> None:
    faults = [{"sync_at": at, "seed": at, "steps": 70} for at in ats]
    for number, result in enumerate(results_of(library, tmp_path, faults)):
        assert result["fired"] == 1, result["fault"]
        check(tmp_path / str(number) / "store.db", result)
        assert "error" in result["said"][-1], (result["fault"], "the failed sync was acknowledged")
        assert result["said"][-1]["error"] == "StoreFailed"
        assert result["late"] == ["StoreFailed"] * 3


def test_no_acknowledgement_after_a_failed_checkpoint(library: Path, tmp_path: Path) -> None:
    """SQLite keeps quiet about a checkpoint that fails after a commit. The store must not."""
    quiet = {"seed": 0, "steps": 250, "only_facts": 1, "database": 1}
    faults = [{"sync_at": 1, **quiet}, {"sync_at": 2, **quiet}, {"write_at": 1, **quiet}]
    for number, result in enumerate(results_of(library, tmp_path, faults)):
        assert result["fired"], result["fault"]
        check(tmp_path / str(number) / "store.db", result)
        later = [line for line in result["said"] if line["fired"] and "ack" in line]
        assert not later, f"{len(later)} writes were acknowledged after a sync had failed"
        assert result["late"] == ["StoreFailed"] * 3


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_write_the_kernel_refuses(library: Path, tmp_path: Path, code: int) -> None:
    expected = "StoreFull" if code == errno.ENOSPC else "StoreFailed"
    faults = [
        {"write_at": at, "seed": at, "steps": 70, "errno": code, "lasting": 1}
        for at in (1, 2, 3, 5, 9, 17, 33, 65, 129, 257)
    ]
    for number, result in enumerate(results_of(library, tmp_path, faults)):
        assert result["fired"], result["fault"]
        check(tmp_path / str(number) / "store.db", result)
        assert result["said"][-1].get("error") == expected, result["fault"]
        assert result["late"] == [expected] * 3


def test_a_read_the_kernel_refuses_once(library: Path, tmp_path: Path) -> None:
    """SQLite itself calls that a malformed database: it is asked again before that is believed."""
    faults = [{"read_at": at, "seed": at} for at in range(1, 37)]
    told = 0
    for number, result in enumerate(results_of(library, tmp_path, faults)):
        assert result["fired"] == 1, result["fault"]
        assert len(result["said"]) <= 1, result["said"]
        for said in result["said"]:
            assert said.startswith("StoreFailed: the disk failed to read"), said
            told += 1
        with open_store(tmp_path / str(number) / "store.db") as store:
            assert store.verify().problems == ()
    assert told >= 30
