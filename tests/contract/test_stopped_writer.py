"""A writer that is stopped during a write: others wait until their timeout, get StoreBusy that
names it, and lose nothing."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import reverie
from reverie.errors import StoreBusy
from tests.conftest import Stores, engine_of
from tests.crash.stopped_writer import CONTENT, stopped_writer

SPACE = "ana"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be stopped here")


def opened(stores: Stores, **settings: int) -> reverie.Store:
    """A store with one memory, whose writers wait for a second."""
    store = stores.open(busy_timeout=settings.get("busy_timeout", 1))
    store.space(SPACE).remember("the river is cold")
    return store


def assert_whole(store: reverie.Store, *contents: str) -> None:
    found = {memory.content for memory in store.space(SPACE).memories()}
    assert found == {"the river is cold", *contents}
    assert store.verify().problems == ()


def test_write_blocked_by_a_stopped_writer_is_refused_and_names_it(stores: Stores) -> None:
    store = opened(stores)
    with stopped_writer(stores.address("main"), SPACE) as writer:
        with pytest.raises(StoreBusy, match=rf"process {writer.pid}\b") as caught:
            store.space(SPACE).remember("and deep", key="again")
        assert "within 1 s" in str(caught.value) and "\n" not in str(caught.value)
        # Readers wait for no writer, and neither does who opens a store.
        assert store.space(SPACE).recall("river")
        assert stores.open(busy_timeout=1).space(SPACE).memories()
        writer.go_on()
    store.space(SPACE).remember("and deep", key="again")
    assert_whole(store, CONTENT, "and deep")


CALLS: dict[str, Callable[[reverie.Store, Path], object]] = {
    "remember": lambda store, folder: store.space(SPACE).remember("x"),
    "append": lambda store, folder: (
        store.space(SPACE).session("s").append({"role": "user", "content": "x"})
    ),
    "import": lambda store, folder: store.space(SPACE).import_records([{"content": "x"}]),
    "rebuild": lambda store, folder: store.rebuild(),
    "reembed": lambda store, folder: store.reembed(),
    "restore": lambda store, folder: store.restore_backup(folder / "backup.db"),
    "vacuum": lambda store, folder: store.vacuum(),
    "retry": lambda store, folder: store.retry_job(SPACE, 1),
}


@pytest.mark.parametrize("what", ["write", "exclusive"])
def test_every_call_that_waits_for_a_writer_ends_at_the_deadline(
    stores: Stores, tmp_path: Path, what: str
) -> None:
    store = opened(stores)
    store.backup(tmp_path / "backup.db")
    messages: dict[str, str] = {}

    def call(name: str) -> None:
        try:
            CALLS[name](store, tmp_path)
        except StoreBusy as error:
            messages[name] = str(error)

    # On PostgreSQL it needs no turn: the server locks one table after the other.
    names = [name for name in CALLS if name != "vacuum" or "postgresql" not in store.url]
    with stopped_writer(stores.address("main"), SPACE, what) as writer:
        threads = [threading.Thread(target=call, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(messages) == sorted(names)
        assert {name for name in names if f"process {writer.pid}" not in messages[name]} == set()
        writer.go_on()
    assert_whole(store, CONTENT)


def test_threads_of_one_process_each_have_their_own_deadline(stores: Stores) -> None:
    store = opened(stores)
    messages: list[str] = []

    def write(number: int) -> None:
        try:
            store.space(SPACE).remember(f"thread {number}")
        except StoreBusy as error:
            messages.append(str(error))

    with stopped_writer(stores.address("main"), SPACE) as writer:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(messages) == 4
        # A thread that waits for another one gets the process that this one waits for.
        assert all(f"process {writer.pid}" in message for message in messages), messages
        writer.go_on()
    store.space(SPACE).remember("and deep")
    assert_whole(store, CONTENT, "and deep")


def test_waiting_writer_continues_as_soon_as_the_stopped_one_does(stores: Stores) -> None:
    store = opened(stores, busy_timeout=60)
    waiting = threading.Thread(target=lambda: store.space(SPACE).remember("and deep"))
    with stopped_writer(stores.address("main"), SPACE) as writer:
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        writer.go_on()
        waiting.join()
    assert_whole(store, CONTENT, "and deep")


def test_worker_survives_a_stopped_writer(stores: Stores) -> None:
    store = opened(stores)
    with stopped_writer(stores.address("main"), SPACE) as writer:
        store.start_worker(poll_seconds=0.05)
        time.sleep(1.5)
        worker = store._worker
        assert worker is not None and worker.is_alive()
        writer.go_on()
    session = store.space(SPACE).session("chat")
    session.append({"role": "user", "content": "Remember that my boat is called Aurora."})
    while store.jobs():
        assert worker.is_alive()
        time.sleep(0.05)
    store.stop_worker()
    assert any("Aurora" in memory.content for memory in store.space(SPACE).memories())


def test_timeout_of_zero_does_not_wait(stores: Stores) -> None:
    store = opened(stores, busy_timeout=0)
    with stopped_writer(stores.address("main"), SPACE) as writer:
        with pytest.raises(StoreBusy, match=f"process {writer.pid}"):
            store.space(SPACE).remember("and deep")
        writer.go_on()
    assert_whole(store, CONTENT)


def test_erase_succeeds_though_another_writer_then_holds_the_store(stores: Stores) -> None:
    """Rewriting the file waits for a turn of its own: what was erased is erased, a job follows."""
    store = opened(stores)
    memory = store.space(SPACE).remember("a secret of the river")
    engine = engine_of(store)
    scrub = engine.scrub

    with contextlib.ExitStack() as held:

        def stopped_before(erased: Sequence[str] = ()) -> bool:
            held.enter_context(stopped_writer(stores.address("main"), SPACE))
            return scrub(erased)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "scrub", stopped_before)
            pending = store.space(SPACE).erase(memory.id).pending
        assert pending or "postgresql" in store.url
    # The writer was killed; what it held is free.
    store.run_pending_jobs()
    assert not [job for job in store.jobs() if job.kind == "scrub"]
    assert_whole(store)
