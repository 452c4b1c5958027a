"""Failover and restart of a server: processes that have the store open continue by themselves."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import reverie
from reverie.engine.postgres import pool
from reverie.errors import ReverieError, StoreUnavailable
from tests.crash.postgres_writer import check, pause, start, writers
from tests.crash.workload import open_store
from tests.servers import Server, running

ROUNDS = max(int(os.environ.get("REVERIE_CRASH_SERVER_ROUNDS", "10")) // 5, 1)
LONGEST_DELAY = 0.5
# What the store promises after a server is back, and beyond which a call hangs.
BACK_WITHIN_SECONDS = 5.0
HANGING_SECONDS = 3 * pool.RECONNECT_SECONDS
SPACES = ("shared", "shared", "ana")


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """A primary and its standby, which change roles during a test."""
    made = [Server(), Server()]
    try:
        made[0].make().start()
        yield made
    finally:
        for server in made:
            server.remove()


def add_standby(primary: Server, standby: Server) -> None:
    """From here on nothing is acknowledged that the standby has not synced too."""
    shutil.rmtree(standby.data, ignore_errors=True)
    standby.follow(primary).start()
    with primary.connect() as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        connection.execute("SELECT pg_reload_conf()")
        state = "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby'"
        while connection.execute(state).fetchall() != [("sync",)]:
            time.sleep(0.01)


def cut_off(primary: Server, standby: Server) -> None:
    """The standby receives nothing any more, so that no write is acknowledged."""
    with standby.connect() as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
    with primary.connect() as connection:
        while connection.execute("SELECT 1 FROM pg_stat_replication").fetchall():
            time.sleep(0.01)


@pytest.mark.prove
def test_promoted_standby_has_every_acknowledged_write(servers: list[Server]) -> None:
    chance = random.Random(21)
    primary, standby = servers
    name = primary.database().rpartition("@/")[2].partition("?")[0]
    address = f"postgresql://postgres@/{name}?host={servers[0].folder},{servers[1].folder}"
    with (
        open_store(address) as store,
        writers(address, SPACES, seed=21) as working,
    ):
        for number in range(ROUNDS):
            add_standby(primary, standby)
            start(working)
            if number % 2:
                cut_off(primary, standby)
            time.sleep(chance.uniform(0, LONGEST_DELAY))
            primary.stop("immediate")
            stopped = time.monotonic()
            standby.promote()
            promoted = time.monotonic()
            for writer in working:
                while not writer.acknowledged_at or writer.acknowledged_at[-1] < stopped:
                    writer.until("ack")
                assert writer.acknowledged_at[-1] - promoted < BACK_WITHIN_SECONDS
            pause(working)
            check(store, working)
            primary, standby = standby, primary
        assert store.verify().problems == ()
        print(sum(len(w.keys) for w in working), [w.failures for w in working])


# -- an ordinary restart --------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as made:
        yield made


def calls(store: reverie.Store) -> dict[str, Callable[[], Any]]:
    space = store.space("ana")
    return {
        "remember": lambda: space.remember("the ferry leaves at noon", key="ferry").content,
        "append": lambda: space.session("talk").append({"role": "user", "content": "hello"}),
        "recall": lambda: [hit.text for hit in space.recall("ferry", limit=1)],
        "memories": lambda: [memory.content for memory in space.memories()],
        "spaces": lambda: [info.name for info in store.spaces()],
        "drain": store.run_pending_jobs,
        "verify": lambda: store.verify().problems,
        "doctor": store.doctor,
    }


def answer(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ReverieError as error:
        return error


def all_at_once(store: reverie.Store) -> dict[str, Any]:
    """Each call in a thread of its own; those that hang have no answer."""
    answers: dict[str, Any] = {}
    threads = [
        threading.Thread(
            target=lambda name, call: answers.__setitem__(name, answer(call)),
            args=asked,
            daemon=True,
        )
        for asked in calls(store).items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + HANGING_SECONDS
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return answers


def test_unreachable_server_is_an_error_and_not_a_hang(server: Server) -> None:
    address = server.database()
    with open_store(address) as store:
        # As many connections as there are calls, all of which the restart takes away.
        before = all_at_once(store)
        assert not [outcome for outcome in before.values() if isinstance(outcome, Exception)]
        assert len(before) == len(calls(store))
        server.stop("fast")
        away = all_at_once(store)
        assert {name: type(outcome) for name, outcome in away.items()} == dict.fromkeys(
            before, StoreUnavailable
        )
        with pytest.raises(StoreUnavailable):
            open_store(address)
        server.start()
        begun = time.monotonic()
        again = all_at_once(store)
        assert time.monotonic() - begun < BACK_WITHIN_SECONDS
        assert not [outcome for outcome in again.values() if isinstance(outcome, Exception)]
        assert again["remember"] == "the ferry leaves at noon"
        assert again["recall"] == ["the ferry leaves at noon"]
        assert store.space("ana").memories()[0].version == 1
        assert again["verify"] == ()


def test_write_waits_for_a_short_server_restart(server: Server) -> None:
    """A caller without an open transaction does not notice the restart."""
    with open_store(server.database()) as store:
        all_at_once(store)
        server.stop("fast")
        starting = threading.Timer(pool.RECONNECT_SECONDS / 5, server.start)
        starting.start()
        outcome = all_at_once(store)
        starting.join()
        assert not [one for one in outcome.values() if isinstance(one, Exception)]
        assert len(store.space("ana").memories()) == 1
        assert store.verify().problems == ()
