"""Durability when a system call fails: the k-th fsync, pwrite or pread."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROVE
from tests.crash import failing_writer
from tests.crash.workload import Ack, Ledger, intent_from, open_store, perform
from tests.figures import figure

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SPACE = "faults"
# Which call fails: each of the first so many.
SYNCS = 200 if PROVE else 20
CALLS = range(1, 201) if PROVE else (1, 3, 9, 33, 129)


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
        (folder / str(number)).mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.failing_writer"],
        input=json.dumps({"folder": str(folder), "faults": faults}) + "\n",
        env={
            **os.environ,
            "LD_PRELOAD": str(library),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        },
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
    for line in result["lines"]:
        intent = intent_from(line["intent"])
        if "ack" in line:
            ledger.record(intent, Ack(**line["ack"]))
        else:
            pending = intent
    with open_store(path) as store:
        assert store.verify().problems == ()
        figure("acknowledged writes missing", len(ledger.missing(store.space(SPACE), pending)))
        if pending is not None and "acknowledged" not in result["late"]:
            ledger.settle(store, SPACE, pending)
            ledger.check(store.space(SPACE))
        else:
            states = Ledger.read(store.space(SPACE)).states
            for id, state in ledger.visible().items():
                assert states[id] == state
        assert store.verify().problems == ()


def report_acknowledgements(result: dict[str, Any]) -> None:
    """Count what was acknowledged after a sync had failed, at once or later."""
    later = [line for line in result["lines"] if line["fired"] and "ack" in line]
    figure("failed syncs", result["fired"])
    figure(
        "acknowledgements after a failed sync", len(later) + result["late"].count("acknowledged")
    )


@pytest.mark.parametrize("ats", [range(first, SYNCS + 1, 4) for first in range(1, 5)])
def test_write_is_not_acknowledged_after_a_failed_sync(
    library: Path, tmp_path: Path, ats: range
) -> None:
    faults = [{"sync_at": at, "seed": at, "steps": max(70, 2 * at)} for at in ats]
    for number, result in enumerate(results_of(library, tmp_path, faults)):
        assert result["fired"] == 1, result["fault"]
        report_acknowledgements(result)
        check(tmp_path / str(number) / "store.db", result)
        assert "error" in result["lines"][-1], (result["fault"], "the failed sync was acknowledged")
        assert result["lines"][-1]["error"] == "StoreFailed"
        assert result["late"] == ["StoreFailed"] * 3


def test_write_is_not_acknowledged_after_a_failed_checkpoint(library: Path, tmp_path: Path) -> None:
    """SQLite keeps quiet about a checkpoint that fails after a commit. The store must not."""
    quiet = {"seed": 0, "steps": 250, "only_facts": 1, "database": 1}
    faults = [{"sync_at": 1, **quiet}, {"sync_at": 2, **quiet}, {"write_at": 1, **quiet}]
    for number, result in enumerate(results_of(library, tmp_path, faults)):
        assert result["fired"], result["fault"]
        check(tmp_path / str(number) / "store.db", result)
        report_acknowledgements(result)
        later = [line for line in result["lines"] if line["fired"] and "ack" in line]
        assert not later, f"{len(later)} writes were acknowledged after a sync had failed"
        assert result["late"] == ["StoreFailed"] * 3


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_write_refused_by_the_kernel_is_not_acknowledged(
    library: Path, tmp_path: Path, code: int
) -> None:
    expected = "StoreFull" if code == errno.ENOSPC else "StoreFailed"
    faults = [
        {"write_at": at, "seed": at, "steps": 70, "errno": code, "lasting": 1}
        for at in (*CALLS, 257)
    ]
    for number, result in enumerate(results_of(library, tmp_path, faults)):
        assert result["fired"], result["fault"]
        figure("failed writes", 1)
        check(tmp_path / str(number) / "store.db", result)
        assert result["lines"][-1].get("error") == expected, result["fault"]
        assert result["late"] == [expected] * 3


def test_short_writes_of_the_kernel_lose_nothing(library: Path, tmp_path: Path) -> None:
    """A write that the kernel does by half is completed, whichever it is."""
    faults = [{"short_at": at, "seed": at, "steps": 70} for at in CALLS]
    for number, result in enumerate(results_of(library, tmp_path, faults)):
        assert result["fired"] == 1, result["fault"]
        figure("short writes", 1)
        check(tmp_path / str(number) / "store.db", result)
        assert "error" not in result["lines"][-1], result["lines"][-1]
        assert result["late"] == ["acknowledged"] * 3


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of more pages than reads will fail."""
    path = tmp_path_factory.mktemp("filled") / "store.db"
    chance, ledger = random.Random(5), Ledger()
    with open_store(path) as store:
        for number in range(300):
            intent = ledger.plan(chance, f"k{number}")
            ledger.record(intent, perform(store.space(SPACE), intent))
    return path


def test_failed_reads_give_an_error_or_the_right_answer(
    library: Path, tmp_path: Path, filled: Path
) -> None:
    with open_store(filled) as store:
        asked = failing_writer.questions(store)
        right = json.loads(json.dumps({name: ask() for name, ask in asked.items()}))
    faults = [{"read_at": at} for at in CALLS]
    for number in range(len(faults)):
        (tmp_path / str(number)).mkdir()
        shutil.copyfile(filled, tmp_path / str(number) / "store.db")
    wrong = 0
    for result in results_of(library, tmp_path, faults):
        assert result["fired"] == 1, result["fault"]
        figure("failed reads", 1)
        answers = [pair for each in result["answers"] for pair in each.items()]
        refused = [answer for _, answer in answers if isinstance(answer, dict)]
        differing = [name for name, answer in answers if answer not in (right[name], *refused)]
        wrong += len(differing)
        assert not differing, (result["fault"], differing)
        # SQLite itself calls a failed read a malformed database; it is asked again first.
        assert {answer["error"] for answer in refused} <= {"StoreFailed"}, refused
        assert result["answers"][1] == right, "the disk reads again, and so does the store"
    figure("wrong answers", wrong)
