"""Recalls are answered by a standby, never with less than their own process wrote."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import reverie
from reverie.engine.postgres import replica
from reverie.engine.postgres.engine import PostgresEngine
from reverie.engine.postgres.pool import Connection
from reverie.errors import StoreUnavailable
from reverie.model import Mode
from tests.conftest import engine_of
from tests.crash.workload import open_store
from tests.servers import Server

SPACE = "ana"
MODES: tuple[Mode, ...] = ("keyword", "vector", "hybrid")


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """A primary and its standby, which serves reads."""
    with primary_and_standby() as made:
        yield made


@contextmanager
def primary_and_standby() -> Iterator[list[Server]]:
    made = [Server()]
    try:
        made[0].make().start()
        made.append(Server())
        made[1].follow(made[0]).start()
        yield made
    finally:
        for server in made:
            server.remove()


@pytest.fixture
def address(servers: list[Server]) -> str:
    """A database with one memory, which the standby has replayed."""
    primary, standby = servers
    made = primary.database()
    with open_store(made) as store:
        store.space(SPACE).remember("the harbour is old")
    catch_up(primary, standby)
    return made


def elsewhere(server: Server, address: str) -> str:
    return server.address(address.rpartition("@/")[2].partition("?")[0])


def opened(address: str, read_url: str) -> reverie.Store:
    return reverie.open(address, embedder="hashing", settings=reverie.Settings(read_url=read_url))


def catch_up(primary: Server, standby: Server) -> None:
    with primary.connect() as there, standby.connect() as here:
        (written,) = there.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()[0]
        replayed = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        while here.execute(replayed, (written,)).fetchall() != [(True,)]:
            time.sleep(0.01)


def pause(standby: Server) -> None:
    with standby.connect() as connection:
        connection.execute("SELECT pg_wal_replay_pause()")
        while connection.execute("SELECT pg_get_wal_replay_pause_state()").fetchall() != [
            ("paused",)
        ]:
            time.sleep(0.01)


def resume(standby: Server) -> None:
    with standby.connect() as connection:
        connection.execute("SELECT pg_wal_replay_resume()")


def found(store: reverie.Store, query: str, mode: Mode = "keyword") -> set[str]:
    return {hit.text for hit in store.space(SPACE).recall(query, mode=mode, limit=20)}


def served(server: Server) -> int:
    """How many connections of Reverie this server has."""
    with server.connect() as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'reverie %'"
        ).fetchall()
    return len(rows)


def reads_from_the_standby(store: reverie.Store, address: str, servers: list[Server]) -> bool:
    """Writes of another process, while replay is paused, show which server answers."""
    primary, standby = servers[:2]
    catch_up(primary, standby)
    pause(standby)
    with open_store(address) as other:
        marked = f"marked {time.monotonic_ns()}"
        other.space(SPACE).remember(marked)
    answered = marked not in found(store, "marked")
    resume(standby)
    catch_up(primary, standby)
    assert marked in found(store, "marked")
    return answered


def test_recall_is_sent_to_the_replica(servers: list[Server], address: str) -> None:
    primary, standby = servers
    with opened(address, elsewhere(standby, address)) as store:
        assert served(standby) == 0
        assert found(store, "harbour") == {"the harbour is old"}
        assert served(standby) == 1
        pause(standby)
        with open_store(address) as other:
            other.space(SPACE).remember("the harbour is new")
            assert found(other, "harbour") == {"the harbour is old", "the harbour is new"}
        for mode in MODES:
            assert found(store, "harbour", mode) == {"the harbour is old"}
        # Only a recall may lag.
        assert len(store.space(SPACE).memories()) == 2
        resume(standby)
        catch_up(primary, standby)
        for mode in MODES:
            assert found(store, "harbour", mode) == {"the harbour is old", "the harbour is new"}
        assert reads_from_the_standby(store, address, servers)


def test_process_reads_its_own_writes_while_the_replica_lags(
    servers: list[Server], address: str
) -> None:
    """However far the standby lags, and whichever handle of the process is used."""
    standby = servers[1]
    with opened(address, elsewhere(standby, address)) as store:
        found(store, "harbour")
        pause(standby)
        written = store.space(SPACE).remember("the harbour is new")
        for mode in MODES:
            assert "the harbour is new" in found(store, "harbour", mode)
        store.space(SPACE).revise(written.id, "the harbour is closed")
        assert found(store, "harbour") == {"the harbour is old", "the harbour is closed"}
        store.space(SPACE).forget(written.id)
        assert found(store, "harbour") == {"the harbour is old"}
        store.space(SPACE).session("talk").append({"role": "user", "content": "a harbour seal"})
        assert "a harbour seal" in found(store, "seal")
        resume(standby)
        assert reads_from_the_standby(store, address, servers)


@pytest.mark.prove
def test_each_write_is_found_while_the_replica_keeps_up(
    servers: list[Server], address: str
) -> None:
    with opened(address, elsewhere(servers[1], address)) as store:
        for number in range(60):
            store.space(SPACE).remember(f"barrel number{number}")
            assert found(store, f"number{number}") == {f"barrel number{number}"}


def test_recall_uses_the_primary_when_the_replica_is_down(
    servers: list[Server], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "RETRY_SECONDS", 0.2)
    standby = servers[1]
    with opened(address, elsewhere(standby, address)) as store:
        for how in ("fast", "immediate"):
            assert reads_from_the_standby(store, address, servers)
            standby.stop(how)
            for _ in range(5):
                assert found(store, "harbour") == {"the harbour is old"}
            standby.start()
            time.sleep(2 * replica.RETRY_SECONDS)
            assert reads_from_the_standby(store, address, servers)


@pytest.mark.prove
def test_replica_that_stops_under_load_gives_no_wrong_answer(
    servers: list[Server], address: str
) -> None:
    """A recall that is interrupted may have to be repeated, with the same result."""
    standby = servers[1]
    ended = threading.Event()
    wrong: list[object] = []
    answered = [0] * 4

    def ask(thread: int) -> None:
        while not ended.is_set():
            try:
                answer = found(store, "harbour")
            except StoreUnavailable:
                continue
            except BaseException as error:  # noqa: BLE001
                wrong.append(error)
                return
            if answer != {"the harbour is old"}:
                wrong.append(answer)
            answered[thread] += 1

    with opened(address, elsewhere(standby, address)) as store:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while not all(answered):
            time.sleep(0.01)
        standby.stop("immediate")
        before = list(answered)
        while not all(now > then for now, then in zip(answered, before, strict=True)):
            time.sleep(0.01)
        ended.set()
        for thread in threads:
            thread.join()
    assert wrong == []


# -- a replica that is none -----------------------------------------------------------------------


def test_promoted_standby_is_refused_as_a_replica(servers: list[Server], address: str) -> None:
    primary, standby = servers
    with opened(address, elsewhere(standby, address)) as store:
        found(store, "harbour")
        standby.promote()
        with open_store(elsewhere(standby, address)) as apart:
            apart.space(SPACE).remember("the harbour was never here")
        assert found(store, "harbour") == {"the harbour is old"}
        with open_store(address) as other:
            other.space(SPACE).remember("the harbour is new")
        assert found(store, "harbour") == {"the harbour is old", "the harbour is new"}


@pytest.mark.prove
def test_standby_of_another_server_is_refused_as_a_replica(
    servers: list[Server], address: str
) -> None:
    with primary_and_standby() as others:
        there = others[0].database()
        assert elsewhere(servers[0], there) == address
        with open_store(there) as store:
            for _ in range(5):
                store.space(SPACE).remember("the harbour of strangers")
        catch_up(*others)
        with opened(address, elsewhere(others[1], address)) as store:
            assert found(store, "harbour") == {"the harbour is old"}
            store.space(SPACE).remember("the harbour is new")
            assert found(store, "harbour") == {"the harbour is old", "the harbour is new"}


@pytest.mark.prove
def test_another_database_of_the_standby_is_refused_as_a_replica(
    servers: list[Server], address: str
) -> None:
    other = servers[0].database()
    with open_store(other) as store:
        store.space(SPACE).remember("the harbour of others")
    catch_up(*servers)
    with opened(address, elsewhere(servers[1], other)) as store:
        assert found(store, "harbour") == {"the harbour is old"}


@pytest.mark.prove
def test_standby_on_an_old_timeline_is_refused_as_a_replica(
    servers: list[Server], address: str
) -> None:
    """It is further than the new primary, but not on the same way."""
    primary, left_behind = servers
    promoted = Server()
    try:
        promoted.follow(primary).start()
        both = f"{address},{promoted.folder}"
        with opened(both, elsewhere(left_behind, address)) as store:
            assert found(store, "harbour") == {"the harbour is old"}
            catch_up(primary, promoted)
            with promoted.connect() as connection:
                connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
                connection.execute("SELECT pg_reload_conf()")
                while connection.execute("SELECT 1 FROM pg_stat_wal_receiver").fetchall():
                    time.sleep(0.01)
            with open_store(address) as other:
                for number in range(200):
                    other.space(SPACE).remember(f"lost with its server: {number}")
            catch_up(primary, left_behind)
            primary.stop("immediate")
            promoted.promote()
            store.space(SPACE).remember("the harbour is new")
            assert found(store, "harbour") == {"the harbour is old", "the harbour is new"}
            assert found(store, "lost") == set()
    finally:
        promoted.remove()


@pytest.mark.prove
def test_standby_that_follows_a_promotion_is_used_again(
    servers: list[Server], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "RETRY_SECONDS", 0.2)
    primary, standby = servers
    promoted = Server()
    try:
        promoted.follow(primary).start()
        both = f"{address},{promoted.folder}"
        with opened(both, elsewhere(standby, address)) as store:
            assert reads_from_the_standby(store, address, servers)
            catch_up(primary, promoted)
            primary.stop("immediate")
            promoted.promote()
            store.space(SPACE).remember("the harbour is new")
            assert found(store, "harbour") == {"the harbour is old", "the harbour is new"}
            with standby.connect() as connection:
                follow = f"host={promoted.folder} user=postgres application_name=standby"
                connection.execute(f"ALTER SYSTEM SET primary_conninfo = '{follow}'".encode())
                connection.execute("SELECT pg_reload_conf()")
            for server in (promoted, standby):
                # A standby has it on its disk with its next checkpoint.
                catch_up(promoted, standby)
                with server.connect() as connection:
                    connection.execute("CHECKPOINT")
            time.sleep(2 * replica.RETRY_SECONDS)
            assert reads_from_the_standby(store, both, [promoted, standby])
    finally:
        promoted.remove()


@pytest.mark.prove
def test_connection_lost_after_commit_is_an_error_and_the_write_is_there(
    servers: list[Server], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position to wait for is unknown, so the standby is not used until the next write."""
    primary, standby = servers
    with opened(address, elsewhere(standby, address)) as store:
        assert reads_from_the_standby(store, address, servers)
        engine = engine_of(store)
        assert isinstance(engine, PostgresEngine)
        assert engine._replica is not None
        require_replayed = engine._replica.require_replayed

        def cut(connection: Connection) -> None:
            with primary.connect() as operator:
                operator.execute(
                    "SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,)
                )
            require_replayed(connection)

        monkeypatch.setattr(engine._replica, "require_replayed", cut)
        pause(standby)
        store.space(SPACE).remember("the harbour is new")
        assert found(store, "harbour") == {"the harbour is old", "the harbour is new"}
        monkeypatch.undo()
        resume(standby)
        store.space(SPACE).remember("the harbour is closed")
        assert reads_from_the_standby(store, address, servers)


@pytest.mark.prove
def test_erase_reports_pending_while_a_standby_keeps_the_rows(
    servers: list[Server], address: str
) -> None:
    """With feedback the primary keeps erased rows for a snapshot of its standby, and says so."""
    primary, standby = servers
    standby.stop()
    standby.configure(hot_standby_feedback="on", wal_receiver_status_interval="1")
    standby.start()
    asked = "SELECT COUNT(backend_xmin) FROM pg_stat_activity WHERE backend_type = 'walsender'"
    with open_store(address) as store, primary.connect() as there:
        memory = store.space(SPACE).remember("a secret")
        catch_up(primary, standby)
        reader = standby.connect(address.rpartition("@/")[2].partition("?")[0])
        with reader, reader.transaction():
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT COUNT(*) FROM reverie.log")
            while there.execute(asked).fetchall() != [(1,)]:
                time.sleep(0.05)
            assert store.space(SPACE).erase(memory.id).pending


def test_opening_a_standby_for_writing_is_refused(servers: list[Server], address: str) -> None:
    with open_store(elsewhere(servers[1], address) + "&mode=ro") as store:
        assert found(store, "harbour") == {"the harbour is old"}
    with pytest.raises(reverie.StoreReadOnly, match="is a standby"):
        open_store(elsewhere(servers[1], address)).space(SPACE).remember("no")
