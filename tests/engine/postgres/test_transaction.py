"""Concurrent writers at READ COMMITTED: each write happens once and returns the right result."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psycopg
import pytest

import reverie
from reverie import (
    EmbeddingModelChangedError,
    KeyConflict,
    Memory,
    Settings,
    Store,
    StoreBusy,
    StoreError,
    SubjectExists,
    VersionConflict,
)
from reverie.agenda import jobs, worker
from reverie.engine import index, log
from reverie.engine.postgres import engine as postgres_engine
from reverie.engine.postgres import schema
from reverie.engine.postgres.transaction import PostgresTransaction
from reverie.maintenance import rebuild, reindex
from reverie.protocols import Embedder, Owner
from reverie.write import embeddings
from reverie.write.writer import Writer
from tests.conftest import FakeClock, FakeEmbedder, engine_of, rows, tamper
from tests.servers import Server

T = TypeVar("T")
WRITERS = 8


def name_of(address: str) -> str:
    """The name of a database."""
    return urlsplit(address).path[1:]


def together(calls: Sequence[Callable[[], T]]) -> list[T | reverie.ReverieError]:
    """All at once, each in a thread; what each gave or raised."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | reverie.ReverieError:
        gate.wait()
        try:
            return call()
        except reverie.ReverieError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def from_each(
    call: Callable[[Store, int], T], servers: Sequence[Store]
) -> list[T | reverie.ReverieError]:
    """The same from all of these at once, each with its number."""
    return together([partial(call, store, number) for number, store in enumerate(servers)])


@pytest.fixture
def address(postgres: Server) -> str:
    return postgres.database(template="made")


@pytest.fixture
def opened(address: str) -> Iterator[Callable[..., Store]]:
    """Opens the same database again and again, as several servers do."""
    with contextlib.ExitStack() as stack:

        def open_store(embedder: str | Embedder = "hashing") -> Store:
            store = reverie.open(address, settings=Settings(), embedder=embedder, clock=FakeClock())
            return stack.enter_context(store)

        yield open_store


@pytest.fixture
def servers(opened: Callable[..., Store]) -> list[Store]:
    """Two, of which each has half of the writers."""
    return [opened() for _ in range(2)]


def each(servers: Sequence[Store], many: int = WRITERS) -> list[Store]:
    return [servers[at % len(servers)] for at in range(many)]


# -- writes that must happen once -----------------------------------------------------------------


@pytest.mark.parametrize("round_", range(3))
def test_concurrent_writes_with_one_key_make_one_memory(servers: list[Store], round_: int) -> None:
    """In a space that each of them would be the first in."""
    given = from_each(lambda s, n: s.space("s", user="a").remember("cold", key="k"), each(servers))
    assert len(set(map(repr, given))) == 1 and isinstance(given[0], Memory)
    assert servers[0].space("s", user="a").memories() == [given[0]]
    assert servers[0].verify().ok


def test_concurrent_different_writes_with_one_key_conflict(servers: list[Store]) -> None:
    given = from_each(lambda s, n: s.space("s").remember(f"cold {n}", key="k"), each(servers))
    kept = [one for one in given if isinstance(one, Memory)]
    assert len(kept) == 1 and servers[0].space("s").memories() == kept
    assert sum(isinstance(one, KeyConflict) for one in given) == WRITERS - 1


REMEMBERS = """
import sys, reverie
sys.stdin.readline()
with reverie.open(sys.argv[1], settings=reverie.Settings(), embedder="hashing") as store:
    print([store.space("s").remember(f"cold {n}", key=f"k{n}").id for n in range(20)])
"""


@pytest.mark.prove
def test_writes_with_one_key_from_many_processes_make_one_memory(
    address: str, opened: Callable[..., Store]
) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", REMEMBERS, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(WRITERS)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = {process.communicate(timeout=120)[0] for process in started}
    assert len(outputs) == 1 and {process.returncode for process in started} == {0}
    store = opened()
    assert len(store.space("s").memories()) == 20 and store.verify().ok


def test_concurrent_revisions_with_an_expected_version_have_one_winner(
    servers: list[Store],
) -> None:
    kept = servers[0].space("s").remember("version 1")

    def revise(version: int, store: Store, number: int) -> Memory:
        return store.space("s").revise(kept.id, f"by {number}", expected_version=version)

    for version in range(1, 6):
        given = from_each(partial(revise, version), each(servers))
        (won,) = (one for one in given if isinstance(one, Memory))
        assert sum(isinstance(one, VersionConflict) for one in given) == WRITERS - 1
        assert servers[1].space("s").get(kept.id) == won and won.version == version + 1
    assert [v.version for v in servers[0].space("s").history(kept.id)] == list(range(1, 7))
    assert servers[0].verify().ok


def test_concurrent_revisions_without_an_expected_version_all_succeed(servers: list[Store]) -> None:
    kept = servers[0].space("s").remember("version 1")
    given = from_each(lambda s, n: s.space("s").revise(kept.id, "again"), each(servers))
    versions = sorted(one.version for one in given if isinstance(one, Memory))
    assert versions == list(range(2, WRITERS + 2))
    assert servers[0].verify().ok


def test_concurrent_writes_of_one_text_make_one_memory(servers: list[Store]) -> None:
    def remember(subject: str, store: Store, number: int) -> Memory:
        return store.space("s").remember("flows", subject=subject)

    for subject in ("river", "mill"):
        given = from_each(partial(remember, subject), each(servers))
        versions = [one.version for one in given if isinstance(one, Memory)]
        assert sorted(versions) == list(range(1, WRITERS + 1))
    assert len(servers[0].space("s").memories()) == 2 and servers[0].verify().ok


def test_concurrent_writes_about_one_thing_make_one_memory(servers: list[Store]) -> None:
    def remember(subject: str, store: Store, number: int) -> Memory:
        return store.space("s").remember(f"flows {number}", subject=subject, unless_known=True)

    for subject in ("river", "mill", "bees"):
        given = from_each(partial(remember, subject), each(servers))
        (won,) = (one for one in given if isinstance(one, Memory))
        lost = [one for one in given if isinstance(one, SubjectExists)]
        assert len(lost) == WRITERS - 1 and {one.existing for one in lost} == {won}
    assert len(servers[0].space("s").memories()) == 3


def test_concurrent_writers_create_a_space_and_user_once(servers: list[Store]) -> None:
    def share(name: str, store: Store, number: int) -> Memory:
        return store.space(name).remember(f"shared {number}")

    def keep(name: str, store: Store, number: int) -> Memory:
        return store.space(name, user=f"user {number % 2}").remember(f"mine {number}")

    for name in ("one", "two"):
        for call in (share, keep):
            given = from_each(partial(call, name), each(servers))
            assert all(isinstance(one, Memory) for one in given), given
    infos = servers[0].spaces()
    assert [(info.name, info.users) for info in infos] == [
        (name, ("user 0", "user 1")) for name in ("one", "two")
    ]
    assert {info.facts for info in infos} == {2 * WRITERS}
    positions = rows(servers[0], "SELECT space, position FROM log ORDER BY 1, 2")
    for space in {space for space, _ in positions}:
        assert [at for s, at in positions if s == space] == list(range(1, 2 * WRITERS + 1))
    assert servers[0].verify().ok


def test_new_spaces_are_created_concurrently(servers: list[Store]) -> None:
    given = from_each(lambda s, n: s.space(f"space {n}", user="a").remember("mine"), each(servers))
    assert all(isinstance(one, Memory) for one in given), given
    assert len(servers[0].spaces()) == WRITERS and servers[0].verify().ok


def test_recorded_at_never_decreases_across_processes(servers: list[Store]) -> None:
    clocks = [engine_clock(store) for store in servers]
    clocks[1].step(-3_600_000)
    from_each(lambda s, n: [s.space("s").remember("x") for _ in range(5)], each(servers))
    times = [row[0] for row in rows(servers[0], "SELECT recorded_at FROM log ORDER BY position")]
    assert len(times) == 5 * WRITERS and times == sorted(times)


def engine_clock(store: Store) -> FakeClock:
    clock = store.runtime.clock
    assert isinstance(clock, FakeClock)
    return clock


def test_concurrent_first_writes_with_two_embedders_have_one_winner(
    opened: Callable[..., Store],
) -> None:
    servers = [opened(FakeEmbedder(f"fake:{number % 2}")) for number in range(4)]
    given = from_each(lambda s, n: s.space(f"s{n}").remember("cold"), servers)
    kept = [n for n, one in enumerate(given) if isinstance(one, Memory)]
    refused = [n for n, one in enumerate(given) if isinstance(one, EmbeddingModelChangedError)]
    assert sorted(kept + refused) == [0, 1, 2, 3]
    assert kept in ([0, 2], [1, 3])
    assert rows(servers[0], "SELECT DISTINCT generation FROM vectors") == [(1,)]
    assert servers[kept[0]].verify().ok


def test_second_writer_waits_for_the_first_to_create_a_generation(
    address: str, opened: Callable[..., Store], postgres: Server
) -> None:
    first, second = FakeEmbedder("fake:first"), FakeEmbedder("fake:second")
    one, other = opened(first), opened(second)
    given: list[object] = []

    def remember() -> None:
        given.extend(together([lambda: other.space("s").remember("cold")]))

    waiting = threading.Thread(target=remember)
    with postgres.connect(name_of(address)) as beside, engine_of(one).write() as tx:
        embeddings.ensure(tx, first, 64)
        waiting.start()
        await_waiting(beside)
    waiting.join()
    assert [type(error) for error in given] == [EmbeddingModelChangedError]
    assert rows(one, "SELECT 1 FROM vectors") == []
    assert one.space("s").remember("cold") and one.verify().ok


# -- the agenda -----------------------------------------------------------------------------------

RAN: list[tuple[int, str, int]] = []


def note(runtime: Any, claim: jobs.Claim) -> None:
    """A handler: says that it ran, in the transaction of its end."""
    with runtime.engine.write() as tx:
        tx.enter(claim.owner)
        claim.finish(tx)
        # Before the commit: after it another worker may note the next job of the lane first.
        RAN.append((claim.job, claim.payload["lane"], claim.attempts))


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, str, int]]]:
    RAN.clear()
    monkeypatch.setitem(worker.HANDLERS, "note", lambda: note)
    yield RAN


def queue(store: Store, many: int, lanes: int) -> Owner:
    store.space("s", user="a").remember("somebody")
    owner = Owner(1, 1)
    with engine_of(store).write() as tx:
        tx.enter(owner)
        for number in range(many):
            lane = f"lane {number % (lanes + 1)}" if number % (lanes + 1) else None
            jobs.add(tx, owner, "note", {"lane": lane or ""}, due_at=0, now=0, lane=lane)
    return owner


def test_concurrent_workers_run_each_job_once_and_lanes_in_order(
    opened: Callable[..., Store], noted: list[tuple[int, str, int]]
) -> None:
    servers = [opened() for _ in range(4)]
    queue(servers[0], 40, lanes=3)
    counts = from_each(lambda s, n: s.run_pending_jobs(), servers)
    # One that found only taken lanes has stopped; what is left is run by the next worker.
    servers[0].run_pending_jobs()
    assert Counter(job for job, _, _ in noted) == Counter(range(1, 41))
    assert {attempts for _, _, attempts in noted} == {1}
    for lane in ("lane 1", "lane 2", "lane 3"):
        ran = [job for job, of, _ in noted if of == lane]
        assert ran == sorted(ran) and len(ran) == 10
    assert all(isinstance(count, int) for count in counts)
    assert servers[0].jobs() == [] and rows(servers[0], "SELECT * FROM due") == []


def test_job_being_claimed_is_skipped_by_other_workers(
    opened: Callable[..., Store], noted: list[tuple[int, str, int]]
) -> None:
    """Nobody waits: the claim of the first is not committed, and ends in nothing."""
    one, other = opened(), opened()
    owner = queue(one, 3, lanes=0)
    done = threading.Event()

    class GivenUp(Exception):
        pass

    def drain() -> None:
        other.run_pending_jobs()
        done.set()

    with contextlib.suppress(GivenUp), engine_of(one).write() as tx:
        tx.enter(owner, alone=False)
        row = tx.one(
            "SELECT j.job FROM jobs j WHERE j.space = ? AND j.owner = ? ORDER BY j.job LIMIT 1"
            + tx.skip_locked,
            owner,
        )
        assert row == (1,)
        thread = threading.Thread(target=drain)
        thread.start()
        assert done.wait(60), "it waited for a job that another is claiming"
        thread.join()
        assert [job for job, _, _ in noted] == [2, 3]
        raise GivenUp
    assert other.run_pending_jobs() == 1 and [job for job, _, _ in noted] == [2, 3, 1]


def test_job_added_during_a_worker_scan_is_not_missed(
    opened: Callable[..., Store], noted: list[tuple[int, str, int]]
) -> None:
    """``due`` is the only way to a job: whoever empties an agenda must not lose what comes."""
    servers = [opened() for _ in range(3)]
    owner = queue(servers[0], 1, lanes=0)
    adding = threading.Event()

    def add() -> None:
        for _ in range(40):
            add_one(servers[0], owner)
        adding.set()

    def drain(store: Store) -> None:
        while not adding.is_set():
            store.run_pending_jobs()

    given = together([add, lambda: drain(servers[1]), lambda: drain(servers[2])])
    assert given == [None] * 3
    servers[1].run_pending_jobs()
    assert Counter(job for job, _, _ in noted) == Counter(range(1, 42))


def test_empty_worker_scan_keeps_the_due_row_of_a_concurrent_add(
    address: str,
    opened: Callable[..., Store],
    postgres: Server,
    noted: list[tuple[int, str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the worst moment: it has looked, and has not yet said that there is nothing."""
    store = opened()
    owner = queue(store, 0, lanes=0)
    tamper(store, "INSERT INTO due (space, owner, at) VALUES (?, ?, 0)", *owner)
    adding = threading.Thread(target=lambda: add_one(store, owner))

    class Late(PostgresTransaction):
        def run(self, sql: str, values: Sequence[Any] = ()) -> int:
            if sql.startswith("DELETE FROM due") and adding.ident is None:
                adding.start()
                with postgres.connect(name_of(address)) as beside:
                    await_waiting(beside, adding)
            return super().run(sql, values)

    monkeypatch.setattr(postgres_engine, "PostgresTransaction", Late)
    store.run_pending_jobs()
    adding.join()
    store.run_pending_jobs()
    assert [job for job, _, _ in noted] == [1] and store.jobs() == []


def add_one(store: Store, owner: Owner) -> None:
    with engine_of(store).write() as tx:
        tx.enter(owner)
        jobs.add(tx, owner, "note", {"lane": ""}, due_at=0, now=0)


# -- being the only writer ------------------------------------------------------------------------

HOLDS = """
import sys, reverie
with reverie.open(sys.argv[1], settings=reverie.Settings(), embedder="hashing") as store:
    with store.runtime.engine.exclusive():
        print("held", flush=True)
        sys.stdin.readline()
        store.space("s").remember("alone")
"""


def test_exclusive_blocks_writers_of_other_processes(
    address: str, opened: Callable[..., Store], postgres: Server
) -> None:
    store = opened()
    store.space("s").remember("before")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(StoreBusy), engine_of(store).write(wait=False) as tx:
        tx.enter(Owner(1, 0))
    assert [memory.content for memory in store.space("s").memories()] == ["before"]
    waiting = threading.Thread(target=lambda: store.space("t").remember("after"))
    waiting.start()
    with postgres.connect(name_of(address)) as beside:
        await_waiting(beside)
        assert [info.name for info in store.spaces()] == ["s"]
    process.stdin.write("go\n")
    process.stdin.flush()
    waiting.join()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert [info.name for info in store.spaces()] == ["s", "t"]
    written = rows(store, "SELECT body FROM log WHERE space = 1 ORDER BY position")
    assert ["before" in written[0][0], "alone" in written[1][0]] == [True, True]
    with engine_of(store).write(wait=False) as tx:
        tx.enter(Owner(1, 0))


def await_waiting(beside: psycopg.Connection[Any], thread: threading.Thread | None = None) -> None:
    """Until somebody waits for a lock, or this thread has ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if beside.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock'"
        ).fetchall() or (thread is not None and not thread.is_alive()):
            return
        time.sleep(0.02)
    raise AssertionError("nobody waits")


def test_killed_holder_releases_its_locks(address: str, opened: Callable[..., Store]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    process.kill()
    process.communicate()
    assert opened().space("s").remember("after")


def test_writers_of_different_spaces_do_not_block_each_other(servers: list[Store]) -> None:
    for name in ("one", "two"):
        servers[0].space(name).remember("first")
    with engine_of(servers[0]).write() as tx:
        tx.enter(Owner(1, 0))
        assert together([lambda: servers[1].space("two").remember("beside").version]) == [1]
        with pytest.raises(StoreBusy), engine_of(servers[1]).write(wait=False) as late:
            late.enter(Owner(1, 0))


def test_transaction_aborted_by_the_server_is_not_acknowledged(servers: list[Store]) -> None:
    engine = engine_of(servers[0])
    with pytest.raises(StoreError, match="rolled back: repeat it"), engine.write() as tx:
        tx.enter_all_owners()
        with contextlib.suppress(psycopg.Error):
            tx.all("SELECT 1 / 0")


def test_settings_are_sent_separately_with_citus(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Citus sends its workers the whole text that holds a SET."""
    monkeypatch.setattr(schema, "has_citus", lambda connection: True)
    sent: list[str] = []
    execute: Any = psycopg.RawCursor.execute

    def noting(self: Any, query: bytes, params: Any = None, **more: Any) -> Any:
        sent.append(bytes(query).decode() if isinstance(query, bytes) else str(query))
        return execute(self, query, params, **more)

    with reverie.open(address, settings=Settings(), embedder="hashing") as store:
        space = store.space("ana", user="o'brien; x")
        space.remember("before")
        monkeypatch.setattr(psycopg.RawCursor, "execute", noting)
        space.remember("one")
        assert [hit.text for hit in space.recall("one", limit=1)] == ["one"]
        assert store.spaces()
    settings = [text for text in sent if "SET LOCAL" in text]
    assert len(settings) > 6
    assert not any(text.count("SET LOCAL") > 1 or "SELECT" in text for text in settings)
    assert not any(text.startswith("BEGIN") for text in settings)


def test_job_finished_during_an_empty_scan_wakes_the_next_in_its_lane(
    opened: Callable[..., Store], noted: list[tuple[int, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of a lane is finished between a worker's look and its leaving."""
    one, other = opened(), opened()
    owner, now = queue(one, 0, lanes=0), one.runtime.clock.now()
    with engine_of(one).write() as tx:
        tx.enter(owner)
        for _ in range(2):
            jobs.add(tx, owner, "note", {"lane": "one"}, due_at=0, now=0, lane="one")
    with engine_of(one).write() as tx:
        tx.enter(owner, alone=False)
        first = jobs.claim(tx, owner, now, "one")
    assert first is not None
    looked, ended = threading.Event(), threading.Event()
    set_due = jobs._set_due

    def late(tx: Any, owner: Owner, after: int | None = None) -> None:
        if after is not None:
            looked.set()
            ended.wait(0.5)
        set_due(tx, owner, after)

    def look() -> None:
        with engine_of(other).write() as tx:
            tx.enter(owner, alone=False)
            assert jobs.claim(tx, owner, now, "other") is None

    monkeypatch.setattr(jobs, "_set_due", late)
    thread = threading.Thread(target=look)
    thread.start()
    assert looked.wait(60)
    with engine_of(one).write() as tx:
        tx.enter(owner)
        first.finish(tx)
    ended.set()
    thread.join()
    assert one.run_pending_jobs() == 1


def test_rebuild_waits_for_writers_with_the_old_analyzer_version(
    opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner created during a rebuild is rebuilt as well, or refused."""
    one, other = opened(), opened()
    one.space("s").remember("there already")
    began, go = threading.Event(), threading.Event()
    add_memory = Writer.add_memory

    def slow(*given: Any) -> Any:
        made = add_memory(*given)
        began.set()
        go.wait(0.5)
        return made

    monkeypatch.setattr(Writer, "add_memory", slow)
    thread = threading.Thread(target=lambda: one.space("fresh").remember("by the old rules"))
    thread.start()
    assert began.wait(60)
    monkeypatch.setattr(index, "INDEX_VERSION", "newer rules")
    seen: list[list[Owner]] = []
    all_owners = log.list_owners

    def noting(tx: Any) -> list[Owner]:
        seen.append(all_owners(tx))
        return seen[-1]

    monkeypatch.setattr(reindex, "list_owners", noting)
    rebuild.refresh_index(other.runtime)
    go.set()
    thread.join()
    assert len(seen[0]) == 2
