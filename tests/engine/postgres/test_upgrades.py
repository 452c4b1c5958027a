"""A PostgreSQL database is upgraded in one transaction, while no other server uses it."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import reverie
from reverie import NewerSchema, Settings, StoreBusy, StoreUnavailable
from reverie.engine import index, schema
from reverie.engine.postgres import row_security
from reverie.engine.postgres.engine import PostgresEngine
from tests.conftest import PROVE
from tests.engine.postgres.test_engine import (
    administer,
    let_in,
    login,
    make_older,
    name_of,
    open_store,
)
from tests.figures import figure
from tests.servers import BIN, Server
from tests.upgrades import add_step

OLD = schema.SCHEMA_VERSION - 1
# Of the statements of an upgrade, each is the last one once; else one in so many.
EVERY = 1 if PROVE else 120

# A server of the earlier version: it opens the store, then writes when it is told to.
SERVER = """
import sys, reverie
store = reverie.open(sys.argv[1], settings=reverie.Settings(), embedder="hashing")
store.space("s").remember("written before")
print("ready", flush=True)
for line in sys.stdin:
    try:
        store.space("s").remember(line.strip())
        print("written", flush=True)
    except reverie.ReverieError as error:
        print(type(error).__name__, error, flush=True)
"""
# Opens the store and dies at its n-th statement.
DYING = """
import os, signal, sys, psycopg, reverie
left = int(sys.argv[2])
def counted(run):
    def counting(*given, **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(*given, **more)
    return counting
psycopg.Connection.execute = counted(psycopg.Connection.execute)
psycopg.Cursor.executemany = counted(psycopg.Cursor.executemany)
reverie.open(sys.argv[1], settings=reverie.Settings(), embedder="hashing").close()
"""


@pytest.fixture
def older(postgres: Server) -> str:
    """A database of the earlier schema with one memory of s/alice."""
    return make_database(postgres)


def make_database(server: Server) -> str:
    address = server.database()
    with psycopg.connect(address, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute("CREATE EXTENSION vector")
        row_security.ensure_roles(connection)
        make_older(connection, OLD)
    return address


def schema_of(server: Server, address: str) -> int:
    with server.connect(name_of(address)) as connection:
        rows = connection.execute("SELECT value FROM reverie.meta WHERE key = 'schema'").fetchall()
    return int(str(rows[0][0]))


def check_upgraded(address: str) -> None:
    with open_store(address) as store:
        alice = store.space("s", user="alice")
        assert [memory.id for memory in alice.memories()] == ["abcdefgh"]
        assert alice.recall("river")
        assert store.verify().problems == ()


@pytest.fixture
def current(postgres: Server) -> str:
    return postgres.database(template="made")


class OldServer:
    """A process of its own that has a store open."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"

    def write(self, text: str) -> str:
        assert self._process.stdin is not None
        print(text, file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        self._process.communicate(timeout=60)


# -- other servers --------------------------------------------------------------------------------


def test_upgrade_is_refused_while_another_server_is_connected(
    postgres: Server, current: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = OldServer(current)
    number = add_step(monkeypatch)
    for _ in range(2):
        with pytest.raises(StoreBusy, match="stop every process of the earlier version") as caught:
            open_store(current)
        assert "reverie process" in str(caught.value) and "\n" not in str(caught.value)
    assert schema_of(postgres, current) == number - 1
    assert server.write("goes on") == "written"
    server.stop()
    with open_store(current) as store:
        assert {memory.content for memory in store.space("s").memories()} == {
            "written before",
            "goes on",
        }
    assert schema_of(postgres, current) == number


def test_server_of_the_earlier_version_writes_nothing_after_an_upgrade(
    postgres: Server, current: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the upgrade does not see, here by its own application_name."""
    server = OldServer(f"{current}&application_name=mine")
    number = add_step(monkeypatch)
    open_store(current).close()
    assert schema_of(postgres, current) == number
    for _ in range(2):
        answer = server.write("by the rules of before")
        assert answer.startswith("NewerSchema") and "start the process again" in answer
    server.stop()
    with open_store(current) as store:
        assert [memory.content for memory in store.space("s").memories()] == ["written before"]
        assert store.verify().ok


def test_upgrade_waits_for_the_write_of_an_earlier_version(
    postgres: Server, current: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_store(f"{current}&application_name=mine")
    with old, ThreadPoolExecutor(1) as elsewhere, contextlib.ExitStack() as writing:
        tx = writing.enter_context(old.runtime.engine.write())
        tx.run("INSERT INTO meta (key, value) VALUES ('written', 'before')")
        with monkeypatch.context() as newer:
            number = add_step(newer)
            opening = elsewhere.submit(open_store, current)
            with pytest.raises(TimeoutError):
                opening.result(timeout=0.5)
            assert schema_of(postgres, current) == number - 1
            writing.close()
            opening.result(timeout=60).close()
        assert schema_of(postgres, current) == number
        with pytest.raises(NewerSchema):
            old.space("s").remember("too late")


def test_servers_that_start_together_upgrade_once(postgres: Server, older: str) -> None:
    with ThreadPoolExecutor(6) as together:
        for engine in together.map(lambda _: PostgresEngine(older), range(6)):
            engine.close()
    assert schema_of(postgres, older) == schema.SCHEMA_VERSION
    check_upgraded(older)


# -- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["on", "off"])
def test_upgrade_says_how_to_dump_the_database_first(
    older: str, caplog: pytest.LogCaptureFixture, asked: Any
) -> None:
    reverie.open(older, settings=Settings(upgrade_backup=asked), embedder="hashing").close()
    lines = [record.getMessage() for record in caplog.records if record.name == "reverie.upgrade"]
    assert len(lines) == (asked == "on")
    for line in lines:
        assert "run first: pg_dump " in line and "\n" not in line


@pytest.mark.parametrize("rights", ["SUPERUSER", ""])
def test_suggested_dump_is_a_database_of_the_earlier_schema(
    postgres: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    rights: str,
) -> None:
    with login(postgres, postgres.database(), rights) as address:
        administer(postgres, address, "CREATE EXTENSION vector")
        let_in(postgres, address)
        with psycopg.connect(address, cursor_factory=psycopg.RawCursor) as connection:
            make_older(connection, OLD)
        with monkeypatch.context() as stopped:
            stopped.setattr("reverie.engine.postgres.schema._upgrade", None)
            with pytest.raises(TypeError):
                PostgresEngine(address)
        program, *arguments = shlex.split(caplog.messages[-1].partition("run first: ")[2])
        subprocess.run([BIN / program, *arguments], check=True, cwd=tmp_path)
    restored = postgres.database()
    dump = tmp_path / f"reverie-schema-{OLD}.dump"
    subprocess.run([BIN / "pg_restore", "--no-owner", f"--dbname={restored}", dump], check=True)
    assert schema_of(postgres, restored) == OLD
    check_upgraded(restored)


def test_rebuild_by_newer_rules_says_how_to_dump_the_database_first(
    current: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(current) as store:
        store.space("s").remember("zebra")
        monkeypatch.setattr(index, "INDEX_VERSION", "newer rules")
        with open_store(current) as newer:
            assert newer.space("s").recall("zebra", mode="keyword")
    assert ["pg_dump" in record.getMessage() for record in caplog.records] == [True]


# -- kills ----------------------------------------------------------------------------------------


def test_upgrade_survives_a_kill_at_any_statement(postgres: Server) -> None:
    address, at, reached = make_database(postgres), 1, []
    while True:
        done = subprocess.run(
            [sys.executable, "-c", DYING, address, str(at)], check=False, capture_output=True
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        reached.append(schema_of(postgres, address))
        figure("kills", 1)
        if reached[-1] == schema.SCHEMA_VERSION:
            check_upgraded(address)
            address = make_database(postgres)
        at += EVERY
    check_upgraded(address)
    assert set(reached) == {OLD, schema.SCHEMA_VERSION} and reached == sorted(reached)


def test_upgrade_whose_backend_is_terminated_is_rolled_back(
    postgres: Server, older: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, execute = 0, psycopg.Connection.execute

    def terminated(connection: Any, *given: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            with postgres.connect() as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,)
                )
        return execute(connection, *given, **more)

    for at in range(20, 60, 10):
        left = at
        with monkeypatch.context() as before:
            before.setattr(psycopg.Connection, "execute", terminated)
            with pytest.raises(StoreUnavailable):
                PostgresEngine(older)
        assert schema_of(postgres, older) == OLD
    check_upgraded(older)
