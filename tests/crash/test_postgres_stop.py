"""A server that stops as in a power cut, and a client that is killed, lose nothing acknowledged."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from tests.crash.postgres_writer import check, differing, pause, start, writers
from tests.crash.test_kill import SPACE, Launcher, take_in
from tests.crash.workload import Ledger, open_store, perform, position_of
from tests.figures import figure
from tests.servers import Server, running
from tests.tiers import PROVE

ROUNDS = int(os.environ.get("REVERIE_CRASH_SERVER_ROUNDS", "10" if PROVE else "2"))
# A database serves this many rounds, then a new one: a full comparison must stay cheap.
ROUNDS_A_DATABASE = 20
ROUNDS_A_VERIFY = 5
MAX_ROUNDS = ROUNDS + 40
LONGEST_DELAY = 0.25
LONGEST_ABSENCE = 0.3
# Two writers of one space wait for each other, the others for nobody.
SPACES = ("shared", "shared", "ana", "ben")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as made:
        yield made


def test_immediate_server_stop_loses_no_acknowledged_write(server: Server) -> None:
    chance = random.Random(11)
    interrupted = 0
    with server.connect() as connection:
        assert connection.execute("SHOW fsync").fetchall() == [("on",)]
    for first in range(0, ROUNDS, ROUNDS_A_DATABASE):
        address = server.database()
        with (
            open_store(address) as store,
            writers(address, SPACES, seed=1_000 * first) as working,
        ):
            for number in range(first, min(first + ROUNDS_A_DATABASE, ROUNDS)):
                start(working)
                time.sleep(chance.uniform(0, LONGEST_DELAY))
                server.stop("immediate")
                time.sleep(chance.uniform(0, LONGEST_ABSENCE))
                server.start()
                again = time.monotonic()
                pause(working)
                figure("stops of the server", 1)
                # The first acknowledgement of each writer after the server was there again.
                firsts = [[at for at in w.acknowledged_at if at > again] for w in working]
                waits = [times[0] - again for times in firsts if times]
                figure("slowest reconnection", max(waits, default=0.0), "max")
                figure("acknowledged writes missing or doubled", differing(store, working))
                check(store, working)
                if number % ROUNDS_A_VERIFY == ROUNDS_A_VERIFY - 1:
                    assert store.verify().problems == ()
            assert store.verify().problems == ()
            failures = [failure for writer in working for failure in writer.failures]
            interrupted += len(failures)
            print(f"{sum(len(w.keys) for w in working)} acknowledged, {len(failures)} interrupted")
    assert interrupted >= ROUNDS, "the server was never stopped in the middle of a write"


@pytest.mark.prove
def test_killed_server_process_loses_no_acknowledged_write(server: Server) -> None:
    """The server then takes every connection away and recovers without having been stopped."""
    chance = random.Random(12)
    address = server.database()
    with open_store(address) as store, writers(address, SPACES, seed=7) as working:
        for _ in range(4):
            start(working)
            time.sleep(chance.uniform(0, LONGEST_DELAY))
            with server.connect() as connection:
                (served,) = connection.execute(
                    "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity "
                    "WHERE datname = %s AND application_name LIKE 'reverie %%'",
                    (database_of(address),),
                ).fetchall()[0]
            assert isinstance(served, list)
            os.kill(chance.choice(served), signal.SIGKILL)
            pause(working)
            check(store, working)
        assert store.verify().problems == ()
        assert any(writer.failures for writer in working)


@pytest.mark.prove
def test_unacknowledged_committed_write_is_there_once_when_repeated(server: Server) -> None:
    """A standby that nobody has keeps back the acknowledgement of what is already synced."""
    address = server.database()
    with open_store(address) as store, writers(address, SPACES, seed=8) as working:
        start(working)
        with server.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            connection.execute("SELECT pg_reload_conf()")
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            # Writers of one space wait for the one that waits for the standby.
            while connection.execute(waiting).fetchall()[0][0] != len(set(SPACES)):
                time.sleep(0.01)
        before = [len(writer.keys) for writer in working]
        server.stop("immediate")
        server.configure(synchronous_standby_names="")
        (server.data / "postgresql.auto.conf").write_text("", encoding="utf-8")
        server.start()
        pause(working)
        assert all(len(w.keys) > count for w, count in zip(working, before, strict=True))
        assert sum(len(writer.failures) for writer in working) >= len(set(SPACES))
        check(store, working)
        assert store.verify().problems == ()


def database_of(address: str) -> str:
    return address.rpartition("@/")[2].partition("?")[0]


# -- clients --------------------------------------------------------------------------------------


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    made = Launcher("tests.crash.writer")
    yield made
    made.close()


def gone(server: Server, address: str) -> None:
    """Wait until the server has noticed that its client is."""
    served = "SELECT 1 FROM pg_stat_activity WHERE datname = %s"
    with server.connect() as connection:
        while connection.execute(served, (database_of(address),)).fetchall():
            time.sleep(0.01)


def test_killed_client_leaves_whole_writes_only(server: Server, launcher: Launcher) -> None:
    chance = random.Random(13)
    acknowledged = unknown = applied = number = 0
    # A client may die between two writes: then there is nothing unknown, and another one is killed.
    while number < ROUNDS or (not unknown and number < MAX_ROUNDS):
        if number % ROUNDS_A_DATABASE == 0:
            address, ledger = server.database(), Ledger()
        launcher.start("write", address, seed=number)
        lines = launcher.until("ack")
        time.sleep(chance.uniform(0, LONGEST_DELAY))
        lines += launcher.kill()
        before = ledger.entries
        pending = take_in(ledger, lines)
        acknowledged += ledger.entries - before
        if number % 2:
            gone(server, address)
        with open_store(address) as store:
            space = store.space(SPACE)
            if pending is not None and number % 2:
                there = ledger.check_unknown(space, pending)
                assert position_of(store, SPACE) == ledger.entries + there
                unknown, applied = unknown + 1, applied + there
                ledger.settle(store, SPACE, pending)
            elif pending is not None:
                # The server may still be at it: repeated at once, it is there once all the same.
                ledger.record(pending, perform(space, pending))
            assert position_of(store, SPACE) == ledger.entries
            ledger.check(space)
            ledger.check_recall(space, chance, 2)
            if number % ROUNDS_A_VERIFY == ROUNDS_A_VERIFY - 1 or number >= ROUNDS - 1:
                assert store.verify().problems == ()
        number += 1
    print(f"{number} kills, {acknowledged} acknowledged, {unknown} unknown, {applied} of them kept")
    assert unknown
