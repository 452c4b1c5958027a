"""Connection failures are typed errors of one line, and the store works again afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import reverie
from reverie import (
    InvalidInput,
    NotFound,
    ReverieError,
    Settings,
    Store,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from reverie.engine import log
from reverie.engine.postgres import pool, schema
from reverie.protocols import Owner
from tests.conftest import FakeClock, SeededIds, engine_of, rows
from tests.messages import user
from tests.servers import Server


def name_of(address: str) -> str:
    return urlsplit(address).path[1:]


@pytest.fixture
def address(postgres: Server) -> str:
    return postgres.database(template="made")


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with reverie.open(
        address, settings=Settings(), embedder="hashing", clock=FakeClock(), ids=SeededIds()
    ) as opened:
        yield opened


@pytest.fixture
def beside(postgres: Server, address: str, store: Store) -> Iterator[psycopg.Connection[Any]]:
    """Another connection to the same database, with every right."""
    with postgres.connect(name_of(address)) as connection:
        yield connection


def end_all(beside: psycopg.Connection[Any]) -> int:
    """End every other connection to this database, as a server that stops does."""
    ended = beside.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'"
    ).fetchall()
    return len(ended)


# -- lost connections -----------------------------------------------------------------------------


def test_idle_connection_closed_by_the_server_is_replaced(
    store: Store, beside: psycopg.Connection[Any]
) -> None:
    space = store.space("s")
    kept = space.remember("the river is cold")
    assert end_all(beside)
    assert space.get(kept.id) == kept
    assert end_all(beside)
    assert space.remember("and deep").version == 1
    assert end_all(beside)
    assert len(space.recall("river", mode="vector")) == 2
    assert end_all(beside)
    assert store.verify().ok and store.run_pending_jobs() == 0


def test_many_idle_connections_closed_by_the_server_are_replaced(
    store: Store, beside: psycopg.Connection[Any]
) -> None:
    space, gate = store.space("s"), threading.Barrier(8)
    kept = space.remember("the river is cold")
    failed: list[ReverieError] = []

    def hold() -> None:
        with engine_of(store).read() as tx:
            tx.all("SELECT 1")
            gate.wait()

    def get() -> None:
        try:
            gate.wait()
            assert space.get(kept.id) == kept
        except ReverieError as error:
            failed.append(error)

    run_all([hold] * 8)
    assert end_all(beside) >= 8
    run_all([get] * 8)
    assert failed == []


def run_all(calls: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("writing", [False, True])
def test_connection_lost_within_a_transaction_is_a_typed_error(
    store: Store, beside: psycopg.Connection[Any], writing: bool
) -> None:
    space = store.space("s")
    space.remember("the river is cold")
    owner, engine = Owner(1, 0), engine_of(store)
    with (
        pytest.raises(StoreUnavailable, match="repeat the call") as caught,
        engine.write() if writing else engine.read() as tx,
    ):
        tx.enter(owner)
        assert tx.one("SELECT 1 FROM log")
        if writing:
            tx.run("UPDATE log SET reason = 'half' WHERE space = ?", (owner.space,))
        assert end_all(beside)
        tx.all("SELECT 1 FROM log")
    assert "\n" not in str(caught.value)
    assert len(space.memories()) == 1
    assert rows(store, "SELECT 1 FROM log WHERE reason = 'half'") == []
    space.remember("and deep")
    assert store.verify().ok


def test_connection_lost_before_commit_is_not_acknowledged(
    store: Store, beside: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is repeated with its key, and is there once."""
    space = store.space("s")
    runtime = space.runtime

    def ended(*_: Any) -> None:
        end_all(beside)

    with monkeypatch.context() as patched:
        patched.setattr(runtime.notes, "write", ended)
        with pytest.raises(StoreUnavailable):
            space.remember("the river is cold", key="k")
    kept = space.remember("the river is cold", key="k")
    assert space.memories() == [kept] and space.remember("the river is cold", key="k") == kept
    assert store.verify().ok


def test_lost_connection_releases_its_exclusive_lock(
    store: Store, beside: psycopg.Connection[Any]
) -> None:
    engine = engine_of(store)
    with engine.exclusive():
        assert end_all(beside)
        with pytest.raises(StoreUnavailable):
            store.space("s").remember("too late")
    store.space("s").remember("the river is cold")
    with engine.exclusive():
        store.space("s").remember("and deep")
    assert len(store.space("s").memories()) == 2


# -- locks ----------------------------------------------------------------------------------------


def test_lock_held_too_long_is_store_busy(
    store: Store, beside: psycopg.Connection[Any], address: str
) -> None:
    store.space("s").remember("the river is cold")
    with (
        reverie.open(address, settings=Settings(busy_timeout=1), embedder="hashing") as hasty,
        beside.transaction(),
    ):
        beside.execute("SELECT 1 FROM reverie.counters FOR UPDATE")
        with pytest.raises(StoreBusy, match="try again"):
            hasty.space("s").remember("and deep")
        # Other spaces wait for nobody, and readers for no writer.
        hasty.space("t").remember("elsewhere")
        assert hasty.space("s").recall("river")
    assert store.space("s").remember("and deep")


def test_open_waits_for_schema_creation_until_the_deadline(postgres: Server) -> None:
    address = postgres.database()
    with psycopg.connect(address, autocommit=True) as maker:
        maker.execute("SELECT pg_advisory_lock(%s)", (schema.SCHEMA_LOCK,))
        with pytest.raises(StoreBusy, match=rf"session {maker.info.backend_pid}\b.*within 1 s"):
            reverie.open(address, settings=Settings(busy_timeout=1), embedder="none")
    reverie.open(address, settings=Settings(), embedder="none").close()
    postgres.drop(address)


def test_writers_blocked_in_one_space_leave_connections_for_others(
    store: Store, beside: psycopg.Connection[Any], address: str
) -> None:
    """Half again as many as there are connections wait for one space; others go on meanwhile."""
    store.space("stuck").remember("the river is cold")
    store.space("free").remember("the hill is green")
    errors: list[str] = []

    def write(number: int) -> None:
        try:
            patient.space("stuck").remember(f"thread {number}")
        except StoreBusy as error:
            errors.append(str(error))

    with reverie.open(address, settings=Settings(busy_timeout=5), embedder="none") as patient:
        threads = [
            threading.Thread(target=write, args=(number,))
            for number in range(pool.MAX_CONNECTIONS * 3 // 2)
        ]
        with beside.transaction():
            beside.execute(
                "SELECT 1 FROM reverie.counters c JOIN reverie.spaces s USING (space) "
                "WHERE s.name = 'stuck' FOR UPDATE OF c"
            )
            for thread in threads:
                thread.start()
            waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"
            while beside.execute(waiting).fetchall()[0][0] < pool.MAX_CONNECTIONS:
                time.sleep(0.05)
            assert errors == []
            for number in range(3):
                patient.space("free").remember(f"meanwhile {number}")
            assert errors == [], "the other space had to wait until the stuck writers gave up"
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(patient.space("stuck").memories(limit=100)) == len(threads) + 1
    assert store.verify().ok


def test_deadlock_is_store_busy(store: Store, beside: psycopg.Connection[Any]) -> None:
    """Two transactions that wait for each other: one gets StoreBusy and can be repeated."""
    for space in ("one", "two"):
        store.space(space).remember("the river is cold")
    engine, gate = engine_of(store), threading.Barrier(2)
    errors: list[ReverieError] = []

    def lock(first: int, second: int) -> None:
        try:
            with engine.write() as tx:
                tx.enter(Owner(first, 0))
                gate.wait()
                tx.enter(Owner(second, 0))
        except ReverieError as error:
            errors.append(error)

    run_all([lambda: lock(1, 2), lambda: lock(2, 1)])
    assert [type(error) for error in errors] == [StoreBusy]
    assert store.space("one").remember("again") and store.space("two").remember("again")


# -- values that no text of PostgreSQL can hold ---------------------------------------------------


def test_nul_character_is_a_typed_error_or_stored(store: Store) -> None:
    space, session = store.space("s"), store.space("s").session("c")
    kept = space.remember("plain", subject="plain", tags=["plain"], source="plain")
    session.append(user("plain"))
    nul = "a\0b"
    calls: list[Callable[[], Any]] = [
        lambda: space.remember(nul),
        lambda: space.remember("x", category=nul),
        lambda: space.remember("x", subject=nul),
        lambda: space.remember("x", tags=[nul]),
        lambda: space.remember("x", source=nul),
        lambda: space.remember("x", key=nul),
        lambda: space.revise(kept.id, nul),
        lambda: space.revise(kept.id, "y", reason=nul),
        lambda: space.forget(kept.id, reason=nul),
        lambda: space.get(nul),
        lambda: space.history(nul),
        lambda: space.erase(nul),
        lambda: space.recall(nul),
        lambda: space.recall(f"plain{nul}plain", mode="keyword"),
        lambda: space.recall("x", category=nul),
        lambda: space.recall("x", tags=[nul]),
        lambda: space.memories(subject=nul),
        lambda: space.memories(category=nul),
        lambda: space.accept(nul),
        lambda: space.reject(nul),
        lambda: session.append(user(nul)),
        lambda: session.append({"role": nul, "content": "x"}),
        lambda: session.append(user("x", name=nul)),
        lambda: session.append(user("x"), key=nul),
        lambda: session.scratchpad.write([nul]),
        lambda: session.context(nul, tokens=500),
        lambda: space.session(nul).append(user("x")),
        lambda: space.session(nul).events(),
        lambda: store.space(nul),
        lambda: store.space("s", user=nul),
        lambda: store.space("s", actor=nul),
        lambda: store.retry_job(nul, 1),
        lambda: space.import_records([{"content": nul, "id": nul}]),
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except (InvalidInput, NotFound) as error:
            assert "\n" not in str(error), number
    assert store.verify().ok
    assert all("\0" not in memory.content or memory.content == nul for memory in space.memories())


def test_failed_pipeline_leaves_a_usable_connection(store: Store) -> None:
    """Statements after the failed one were never prepared, though the driver assumes they were."""
    space, append = store.space("s"), log.append
    for warm in range(4):
        with pytest.raises(NotFound):
            space.forget("AAAAAAAA")
        for number in range(warm):
            space.remember(f"{warm} {number}")
        with pytest.MonkeyPatch.context() as patched, pytest.raises(ReverieError):
            patched.setattr(log, "append", lambda tx, owner, *e: append(tx, owner, *e, *e))
            space.remember("twice")
        for number in range(4):
            assert space.remember(f"after {warm} {number}").version == 1
    assert store.verify().ok


def test_erase_succeeds_though_cleanup_must_wait(
    store: Store, beside: psycopg.Connection[Any], address: str
) -> None:
    impatience = Settings(busy_timeout=1)
    with reverie.open(address, settings=impatience, embedder="none") as impatient:
        space = impatient.space("s")
        memory = space.remember("a secret")
        with beside.transaction():
            beside.execute("LOCK TABLE reverie.log IN SHARE UPDATE EXCLUSIVE MODE")
            assert space.erase(memory.id).pending
        assert [job.kind for job in impatient.jobs()] == ["scrub"]
        assert impatient.run_pending_jobs() == 1 and impatient.jobs() == []


def test_backup_that_cannot_be_written_is_a_typed_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        store.backup(tmp_path / "file" / "copy.db")
