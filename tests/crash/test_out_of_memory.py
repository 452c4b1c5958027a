"""Memory runs out in the middle of a call: a typed error or success.

What was acknowledged is there. The same handle goes on as soon as there is memory again.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from reverie.errors import StoreError
from tests.conftest import PROVE
from tests.crash.test_faults import SPACE, answers, check_after_reopening, fill
from tests.crash.workload import open_store, perform, position_of
from tests.figures import figure

ROOT = Path(__file__).parents[2]
# Bytes that SQLite may still take: each number makes another allocation fail.
_STEP = 400 if PROVE else 2_000
LIMITS = [*range(0, 40_000, _STEP), *range(40_000, 400_000, 10 * _STEP), 1 << 22, 1 << 24]
# Which allocation of Python fails.
ALLOCATIONS = range(1, 1_100, 2 if PROVE else 37)


@contextmanager
def little_memory(more: int) -> Iterator[None]:
    """SQLite gets so many bytes more, and then nothing."""
    apsw.hard_heap_limit(apsw.memory_used() + more)
    try:
        yield
    finally:
        apsw.hard_heap_limit(0)


def assert_is_about_memory(error: StoreError) -> None:
    assert type(error) is StoreError and "not enough memory" in str(error), repr(error)


def test_writes_without_memory_are_refused_or_done_and_the_store_goes_on(tmp_path: Path) -> None:
    path, chance, outcomes = tmp_path / "store.db", random.Random(3), Counter[str]()
    ledger = fill(path, 20)
    store = open_store(path)
    for number, more in enumerate(LIMITS):
        intent = ledger.plan(chance, f"m{number}")
        try:
            with little_memory(more):
                ack = perform(store.space(SPACE), intent)
        except StoreError as error:
            assert_is_about_memory(error)
            outcomes["refused"] += 1
            ledger.settle(store, SPACE, intent)
            continue
        outcomes["done"] += 1
        ledger.record(intent, ack)
        ledger.check(store.space(SPACE))
    print(f"writes with little memory: {dict(outcomes)}")
    figure("calls with too little memory", outcomes.total())
    assert outcomes["refused"] > 5 and outcomes["done"]
    assert store.verify().problems == ()
    store.close()
    check_after_reopening(path, ledger, None)


@pytest.mark.prove
def test_recalls_without_memory_are_refused_or_right(tmp_path: Path) -> None:
    path, outcomes = tmp_path / "store.db", Counter[str]()
    fill(path, 40)
    with open_store(path) as store:
        right = answers(store)
    for more in LIMITS:
        with open_store(path) as store:
            try:
                with little_memory(more):
                    found = answers(store)
            except StoreError as error:
                assert_is_about_memory(error)
                outcomes["refused"] += 1
            else:
                outcomes["right"] += 1
                assert found == right
            assert answers(store) == right
    print(f"recalls with little memory: {dict(outcomes)}")
    figure("calls with too little memory", outcomes.total())
    assert outcomes["refused"] > 5


def test_appends_and_backups_without_memory_are_whole_or_absent(tmp_path: Path) -> None:
    path, outcomes = tmp_path / "store.db", Counter[str]()
    fill(path, 20)
    store = open_store(path)
    session = store.space(SPACE).session("chat")
    for number, more in enumerate(LIMITS):
        target = tmp_path / f"backup{number}.db"
        message = {"role": "user", "content": f"turn {number} " + "of the river " * 50}
        try:
            with little_memory(more):
                session.append(message, key=f"a{number}")
        except StoreError as error:
            assert_is_about_memory(error)
            outcomes["append refused"] += 1
            session.append(message, key=f"a{number}")
        assert len(session.events()) == number + 1
        try:
            with little_memory(more):
                store.backup(target)
        except StoreError as error:
            assert_is_about_memory(error)
            outcomes["backup refused"] += 1
            assert not list(tmp_path.glob(f"{target.name}*"))
        else:
            outcomes["backup made"] += 1
            assert store.verify_backup(target).ok
            target.unlink()
    print(f"appends and backups with little memory: {dict(outcomes)}")
    figure("calls with too little memory", outcomes.total())
    assert outcomes["append refused"] and outcomes["backup refused"] and outcomes["backup made"]
    assert store.verify().problems == ()
    store.close()


def test_store_opened_without_memory_is_refused_or_whole(tmp_path: Path) -> None:
    path, refused = tmp_path / "store.db", 0
    ledger = fill(path, 20)
    for more in LIMITS:
        try:
            with little_memory(more):
                open_store(path).close()
        except StoreError as error:
            assert_is_about_memory(error)
            refused += 1
    assert refused > 5
    check_after_reopening(path, ledger, None)


# -- Python's own memory --------------------------------------------------------------------------

_CHILD = """
import json, sys
import _testcapi
from reverie.errors import ReverieError
from tests.crash.workload import open_store
path, first, step, last = sys.argv[1], *map(int, sys.argv[2:])
store = open_store(path)
space = store.space("s")
space.remember("warm"); space.recall("warm")
said = []
for at in range(first, last, step):
    outcome, error = "done", None
    try:
        _testcapi.set_nomemory(at, at + 1)
        try:
            space.remember(f"line {at}", key=f"k{at}")
        finally:
            _testcapi.remove_mem_hooks()
    # numpy says SystemError where it forgot that it was out of memory.
    except (ReverieError, MemoryError, SystemError) as failure:
        outcome, error = "refused", failure
    kind = type(error).__name__
    del error
    # There is memory again: the same call, with the same key, on the same handle.
    memory = space.remember(f"line {at}", key=f"k{at}")
    said.append([at, outcome, kind, memory.id])
    print(json.dumps(said[-1]), flush=True)
assert store.verify().problems == ()
store.close()
"""


def test_python_without_memory_raises_and_goes_on(tmp_path: Path) -> None:
    """The k-th allocation of Python fails, once, during a write."""
    pytest.importorskip("_testcapi", reason="this Python comes without its test modules")
    path = tmp_path / "store.db"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _CHILD,
            str(path),
            str(ALLOCATIONS.start),
            str(ALLOCATIONS.step),
            str(ALLOCATIONS.stop),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    print(
        f"Python without memory: {dict(Counter((outcome, kind) for _, outcome, kind, _ in lines))}"
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert len(lines) == len(ALLOCATIONS)
    with open_store(path) as store:
        assert store.verify().problems == ()
        kept = {memory.id: memory.content for memory in store.space("s").memories()}
        assert {id: f"line {at}" for at, _, _, id in lines}.items() <= kept.items()
        assert position_of(store, "s") == len(lines) + 1
