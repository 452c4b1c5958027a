"""The worker thread of a store runs while the store is open, and ends when it is closed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reverie import Store, StoreBusy, StoreClosed
from reverie.agenda import jobs, worker
from reverie.agenda.jobs import Claim
from reverie.protocols import Owner, Transaction
from reverie.testing import ScriptedModel
from tests.conftest import DAY, START, Stores, engine_of

POLL = 0.005
# Nobody needs it unless something hangs.
PATIENCE = 60.0


class Handlers:
    """What jobs do here, and what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.began = threading.Event()
        self.let_go = threading.Event()
        self.during: Callable[[], None] = lambda: None

    def note(self, runtime: Any, claim: Claim) -> None:
        self._note(claim)
        with runtime.engine.write() as tx:
            tx.enter_all_owners()
            claim.finish(tx)

    def fail(self, runtime: Any, claim: Claim) -> None:
        self._note(claim)
        raise RuntimeError("this one never works")

    def wait(self, runtime: Any, claim: Claim) -> None:
        self.began.set()
        assert self.let_go.wait(PATIENCE)
        self.during()
        self.note(runtime, claim)

    def _note(self, claim: Claim) -> None:
        self.threads.add(threading.current_thread())
        self.done.append(claim.payload["name"])


HANDLERS = Handlers()


def note_it(runtime: Any, claim: Claim) -> None:
    HANDLERS.note(runtime, claim)


def fail_it(runtime: Any, claim: Claim) -> None:
    HANDLERS.fail(runtime, claim)


def wait_for_it(runtime: Any, claim: Claim) -> None:
    HANDLERS.wait(runtime, claim)


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handlers]:
    made = Handlers()
    monkeypatch.setattr(f"{__name__}.HANDLERS", made)
    for kind in ("note_it", "fail_it", "wait_for_it"):
        monkeypatch.setitem(worker.HANDLERS, kind, partial(globals().get, kind))
    yield made
    made.let_go.set()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert [thread for thread in threading.enumerate() if thread not in before] == []


@pytest.fixture
def store(stores: Stores, handlers: Handlers) -> Iterator[Store]:
    opened = stores.open()
    opened.space("ana").remember("makes the space")
    yield opened
    handlers.let_go.set()
    opened.close()


def add(store: Store, kind: str, name: str) -> None:
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        jobs.add(tx, Owner(1, 0), kind, {"name": name}, due_at=START, now=START)


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end
        time.sleep(POLL)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "reverie"]


def test_worker_thread_runs_jobs_added_while_the_store_is_open(
    store: Store, handlers: Handlers
) -> None:
    add(store, "note_it", "before")
    store.start_worker(POLL)
    expected = ["before"]
    for name in ("one", "two", "three"):
        until(lambda: handlers.done == expected)
        add(store, "note_it", name)
        expected.append(name)
    until(lambda: handlers.done == expected)
    until(lambda: store.jobs() == [])
    assert handlers.threads == set(workers())
    assert threading.current_thread() not in handlers.threads


def test_worker_thread_learns_from_turns_with_a_model(stores: Stores, handlers: Handlers) -> None:
    facts = {"facts": [{"content": "The user moved to Porto", "category": "context"}]}
    with ScriptedModel(lambda _: facts) as scripted:
        with stores.open(model="scripted", model_base_url=scripted.base_url) as store:
            store.start_worker(POLL)
            space = store.space("ana")
            space.session("chat").append({"role": "user", "content": "I moved to Porto"})
            until(lambda: [m.content for m in space.memories()] == ["The user moved to Porto"])
        assert workers() == []


def test_worker_thread_learns_by_rules_without_a_model(store: Store, handlers: Handlers) -> None:
    store.start_worker(POLL)
    space = store.space("ana")
    space.session("chat").append({"role": "user", "content": "My name is Ana."})
    until(lambda: "The user's name is Ana" in {memory.content for memory in space.memories()})


def test_closing_the_store_ends_the_worker_thread(store: Store, handlers: Handlers) -> None:
    store.start_worker(POLL)
    (thread,) = workers()
    store.close()
    assert not thread.is_alive() and workers() == []
    store.close()


def test_with_statement_ends_the_worker_thread_even_after_an_error(
    stores: Stores, handlers: Handlers
) -> None:
    with pytest.raises(KeyError), stores.open() as store:
        store.start_worker(POLL)
        raise KeyError
    assert workers() == []


def test_closing_does_not_wait_for_the_poll_of_an_idle_worker_thread(
    store: Store, handlers: Handlers
) -> None:
    """Ending an idle worker does not wait until it would have looked again."""
    store.start_worker(PATIENCE * 1_000)
    store.close()
    assert workers() == []


def test_worker_thread_started_or_stopped_twice_is_the_same_as_once(
    store: Store, handlers: Handlers
) -> None:
    store.stop_worker()
    store.start_worker(POLL)
    store.start_worker(POLL)
    assert len(workers()) == 1
    store.stop_worker()
    store.stop_worker()
    assert workers() == []
    add(store, "note_it", "waits")
    assert [job.state for job in store.jobs()] == ["ready"]
    store.start_worker(POLL)
    until(lambda: handlers.done == ["waits"])


def test_concurrent_start_worker_calls_start_one_thread(store: Store, handlers: Handlers) -> None:
    begin = threading.Barrier(8)

    def start() -> None:
        begin.wait()
        store.start_worker(POLL)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            starters = [threading.Thread(target=start) for _ in range(8)]
            for each in starters:
                each.start()
            for each in starters:
                each.join()
            running = workers()
            store.stop_worker()
            until(lambda: workers() == [])
            assert len(running) == 1
    finally:
        sys.setswitchinterval(interval)


def test_close_waits_for_the_running_job(stores: Stores, store: Store, handlers: Handlers) -> None:
    add(store, "wait_for_it", "in hand")
    add(store, "note_it", "left")
    store.start_worker(POLL)
    assert handlers.began.wait(PATIENCE)
    closing = threading.Thread(target=store.close)
    closing.start()
    until(lambda: store._stop.is_set())
    assert closing.is_alive() and handlers.done == []
    handlers.let_go.set()
    closing.join()
    assert handlers.done == ["in hand"] and workers() == []
    with stores.open() as again:
        assert [job.payload["name"] for job in again.jobs()] == ["left"]


def test_job_that_closes_the_store_ends_the_worker_thread(
    stores: Stores, store: Store, handlers: Handlers
) -> None:
    handlers.during = store.close
    add(store, "wait_for_it", "closes")
    store.start_worker(POLL)
    handlers.let_go.set()
    until(lambda: workers() == [])
    with stores.open() as again:
        (job,) = again.jobs()
        assert job.state == "running", "its lease ends, and then it is done again"


def test_worker_thread_survives_a_failing_job(store: Store, handlers: Handlers) -> None:
    for number in range(5):
        add(store, "fail_it", f"bad {number}")
        add(store, "no_such_kind", "unknown")
        add(store, "note_it", f"good {number}")
    store.start_worker(POLL)
    until(lambda: handlers.done.count("good 4") == 1)
    until(lambda: all(job.error for job in store.jobs()))
    assert len(store.jobs()) == 10
    errors = {str(job.error) for job in store.jobs()}
    assert "RuntimeError: this one never works" in errors
    assert any("no_such_kind" in error for error in errors)
    assert len(workers()) == 1


def test_worker_thread_waits_for_a_busy_store(store: Store, handlers: Handlers) -> None:
    """Somebody else writes for a while: the job is done when they are done."""
    store.start_worker(POLL)
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        jobs.add(tx, Owner(1, 0), "note_it", {"name": "late"}, due_at=START, now=START)
        time.sleep(10 * POLL)
        assert handlers.done == []
    until(lambda: handlers.done == ["late"])


def test_worker_thread_survives_a_store_that_stays_busy_or_breaks(
    store: Store, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(store)
    write, refused = engine.write, threading.Semaphore(0)

    def busy(*values: Any, **named: Any) -> AbstractContextManager[Transaction]:
        if threading.current_thread() in workers():
            refused.release()
            raise StoreBusy("somebody else writes")
        return write(*values, **named)

    monkeypatch.setattr(engine, "write", busy)
    store.start_worker(POLL)
    add(store, "note_it", "patient")
    for _ in range(3):
        assert refused.acquire(timeout=PATIENCE)
    assert handlers.done == [] and len(workers()) == 1
    monkeypatch.setattr(engine, "write", write)
    until(lambda: handlers.done == ["patient"])
    until(lambda: store.jobs() == [])


def test_start_worker_on_a_closed_store_starts_no_thread(store: Store, handlers: Handlers) -> None:
    store.close()
    with pytest.raises(StoreClosed):
        store.start_worker(POLL)
    assert workers() == []


UNCLOSED = """
import sys, reverie
store = reverie.open(sys.argv[1], embedder="hashing", settings=reverie.Settings())
store.start_worker(0.001)
session = store.space("ana").session("chat")
for number in range(20):
    session.append({"role": "user", "content": f"Remember that box {number} is red."})
if len(sys.argv) > 2:
    raise SystemExit(3)
"""


@pytest.mark.parametrize("code", [0, 3])
def test_process_exits_although_a_store_with_a_worker_was_never_closed(
    tmp_path: Path, code: int
) -> None:
    """Nothing keeps it from ending, and what was not done is done by the next."""
    path = tmp_path / "store.db"
    command = [sys.executable, "-c", UNCLOSED, str(path), *(["early"] if code else [])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stderr) == (code, "")
    later = Stores(lambda _: f"sqlite://{path}")
    later.clock.step(100 * 365 * DAY)
    with later.open() as store:
        store.run_pending_jobs()
        contents = sorted(memory.content for memory in store.space("ana").memories())
        assert len(contents) == 20 and len(set(contents)) == 20
        assert store.jobs() == []
        assert store.verify().problems == ()
