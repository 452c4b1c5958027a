"""PostgreSQL databases: opened by anybody first, with few rights, without pgvector, old and new."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psycopg
import pytest

import reverie
from reverie import (
    ConfigError,
    EmbedderMissing,
    InvalidInput,
    NewerSchema,
    Settings,
    Store,
    StoreError,
    StoreReadOnly,
)
from reverie.engine import schema, seals
from reverie.engine.postgres import row_security
from reverie.engine.postgres import schema as postgres_schema
from reverie.engine.postgres import vectors as postgres_vectors
from reverie.engine.postgres.engine import PostgresEngine
from reverie.model import MODES, Mode
from tests.conftest import FakeClock, SeededIds, rows
from tests.messages import user
from tests.servers import Server, running

TEXTS = (
    "Amber runs along the river every morning",
    "The river is cold in winter",
    "Quentin keeps bees behind the mill",
    "Bees like the lavender by the river",
    "The mill was sold to Amber's sister",
)
T = TypeVar("T")


def name_of(address: str) -> str:
    return urlsplit(address).path[1:]


def open_store(address: str, embedder: str = "hashing") -> Store:
    return reverie.open(
        address, settings=Settings(), embedder=embedder, clock=FakeClock(), ids=SeededIds()
    )


@contextlib.contextmanager
def login(server: Server, address: str, rights: str = "") -> Iterator[str]:
    """The same database for a user of these rights, who owns it."""
    database = name_of(address)
    name = f"login_{database}"
    with server.connect() as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN {rights}".encode())
        connection.execute(f"ALTER DATABASE {database} OWNER TO {name}".encode())
    yield server.address(database, name)


def administer(server: Server, address: str, *statements: str) -> None:
    with server.connect(name_of(address)) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def let_in(server: Server, address: str) -> None:
    """What an administrator does for a user that may not make roles."""
    name = urlsplit(address).username
    administer(server, address, f"GRANT reverie_app, reverie_operator TO {name}")


@pytest.fixture(scope="module")
def fresh() -> Iterator[Server]:
    """A server that nobody has opened a store on."""
    with running() as server:
        yield server


# -- made by whoever comes first ------------------------------------------------------------------

OPENS = """
import sys, reverie
sys.stdin.readline()
with reverie.open(sys.argv[1], settings=reverie.Settings(), embedder="hashing") as store:
    store.space("s", user=sys.argv[2]).remember("opened by " + sys.argv[2])
"""


@pytest.mark.prove
def test_concurrent_opens_of_an_empty_database_create_the_schema_once(fresh: Server) -> None:
    """Roles included: they are the whole server's, and nobody has made them yet."""
    address = fresh.database()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OPENS, address, f"user {number}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    failed = [message for process in started if (message := process.communicate(timeout=60)[1])]
    assert failed == [] and {process.returncode for process in started} == {0}
    with open_store(address) as store:
        assert store.verify().ok
        (info,) = store.spaces()
        assert info.users == tuple(f"user {number}" for number in range(6))
        assert rows(store, "SELECT value FROM meta WHERE key = 'schema'") == [
            (str(schema.SCHEMA_VERSION),)
        ]


def test_engines_of_several_databases_are_open_at_once(fresh: Server) -> None:
    wanted = [fresh.database() for _ in range(4) for _ in range(2)]
    addresses = [address for address in wanted for _ in range(2)]
    together(lambda address: PostgresEngine(address).close(), addresses)
    for address in wanted:
        with open_store(address) as store:
            store.space("s").remember("a thing")
            assert store.verify().ok


def test_opening_an_existing_database_changes_nothing(postgres: Server) -> None:
    address = postgres.database(template="made")
    with open_store(address) as store:
        store.space("s").remember("a thing")
    seen = "SELECT relname, oid, relfilenode, xmin::text FROM pg_class ORDER BY 1"
    with postgres.connect(name_of(address)) as connection:
        before = connection.execute(seen).fetchall()
        open_store(address).close()
        assert connection.execute(seen).fetchall() == before


def together(call: Callable[[Any], T], each: Sequence[Any]) -> list[T | Exception]:
    """The same call from as many threads at once; what each gave or raised."""
    gate = threading.Barrier(len(each))

    def run(one: Any) -> T | Exception:
        gate.wait()
        try:
            return call(one)
        except reverie.ReverieError as error:
            return error

    with ThreadPoolExecutor(len(each)) as pool:
        return list(pool.map(run, each))


# -- rights ---------------------------------------------------------------------------------------


def use_everything(store: Store) -> None:
    """What needs any right is done."""
    space = store.space("s", user="alice")
    kept = [space.remember(text, tags=["t"]) for text in TEXTS]
    space.session("s").append(user("what about the river?"))
    assert space.recall("river")
    space.revise(kept[0].id, "Amber runs no more")
    space.forget(kept[1].id)
    assert not space.erase(kept[2].id).pending
    store.run_pending_jobs()
    store.reembed()
    store.rebuild()
    store.vacuum()
    assert store.verify().ok and store.doctor()["problems"] == []
    assert not rows(store, "SELECT 1 FROM jobs WHERE kind = 'scrub'")


def test_owner_with_createrole_sets_up_roles_itself(fresh: Server) -> None:
    with running() as server, login(server, server.database(), "CREATEROLE") as address:
        administer(server, address, "CREATE EXTENSION vector")
        with open_store(address) as store:
            use_everything(store)
            assert store.space("s", user="alice").recall("river", mode="vector")
        with open_store(address) as store:
            assert len(store.space("s", user="alice").memories()) == len(TEXTS) - 2


@pytest.mark.parametrize("rights", ["", "NOINHERIT"])
def test_owner_without_createrole_is_told_what_to_ask_for(postgres: Server, rights: str) -> None:
    with login(postgres, postgres.database(), rights) as address:
        for _ in range(2):
            with pytest.raises(ConfigError) as caught:
                open_store(address)
        message = str(caught.value)
        assert "\n" not in message
        for part in ("CREATE ROLE reverie_app", "CREATE ROLE reverie_operator", "GRANT"):
            assert part in message
        let_in(postgres, address)
        administer(postgres, address, "CREATE EXTENSION vector")
        with open_store(address) as store:
            use_everything(store)


def test_user_without_ownership_works_on_existing_tables(postgres: Server) -> None:
    address = postgres.database(template="made")
    administer(postgres, address, "CREATE ROLE guest LOGIN")
    guest = postgres.address(name_of(address), "guest")
    with pytest.raises(ConfigError) as caught:
        open_store(guest)
    assert "reverie_operator" in str(caught.value) and "\n" not in str(caught.value)
    let_in(postgres, guest)
    with open_store(guest) as store:
        space = store.space("s")
        kept = space.remember(TEXTS[0])
        assert [hit.id for hit in space.recall("river")] == [kept.id]
        # It may not clean the tables up: what it erased is not known to be gone.
        assert space.erase(kept.id).pending
        assert store.run_pending_jobs() == 1
        assert "scrub" in {job.kind for job in store.jobs()}
    with open_store(address) as store:
        (job,) = (job for job in store.jobs() if job.kind == "scrub")
        store.retry_job("s", job.id)
        assert store.run_pending_jobs() == 1
        assert "scrub" not in {job.kind for job in store.jobs()}


# -- without pgvector -----------------------------------------------------------------------------


def remember_all(store: Store) -> None:
    space = store.space("s", user="alice")
    for text in TEXTS:
        space.remember(text)
    space.forget(space.memories()[0].id)
    space.session("s").append(user("Is the river cold?"))


def asked(store: Store, mode: Mode) -> list[Any]:
    space = store.space("s", user="alice")
    return [
        [(hit.text, hit.score) for hit in space.recall(query, mode=mode, limit=20)]
        for query in ("cold river", "Amber and the bees", "who bought the mill")
    ]


def test_keyword_recall_works_without_pgvector(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(postgres.database(template="made")) as store:
        remember_all(store)
        wanted = {mode: asked(store, mode) for mode in MODES}
        vectors = rows(store, "SELECT passage, embedding::real[]::text FROM vectors ORDER BY 1")
    with login(postgres, postgres.database()) as address, caplog.at_level(logging.DEBUG):
        let_in(postgres, address)
        with open_store(address) as store:
            assert [record.getMessage() for record in caplog.records] == [
                postgres_schema.NO_PGVECTOR
            ]
            remember_all(store)
            assert asked(store, "keyword") == wanted["keyword"]
            hits = store.space("s", user="alice").recall("river", explain=True)
            assert hits and all("pgvector" in str(hit.parts["degraded"]) for hit in hits)
            with pytest.raises(EmbedderMissing, match="install pgvector") as refused:
                asked(store, "vector")
            assert "REVERIE_EMBEDDER" not in str(refused.value), "it would not help"
            assert store.doctor()["pgvector"] == "none"
            assert rows(store, "SELECT passage, embedding::text FROM vectors ORDER BY 1") == vectors
            assert store.verify().ok
            store.rebuild()
            store.reembed()
            assert store.verify().ok and store.doctor()["vectors waiting"] == 0
        assert len(caplog.records) == 1
        administer(postgres, address, "CREATE EXTENSION vector")
        with open_store(address) as store:
            assert len(caplog.records) == 1
            assert store.doctor()["pgvector"] != "none"
            assert {mode: asked(store, mode) for mode in MODES} == wanted
            assert store.verify().ok


def test_pgvector_in_another_schema_is_used(postgres: Server) -> None:
    address = postgres.database()
    administer(
        postgres,
        address,
        'CREATE SCHEMA "Ext ensions"',
        'CREATE EXTENSION vector WITH SCHEMA "Ext ensions"',
    )
    with open_store(address) as store:
        remember_all(store)
        assert asked(store, "vector")[0]
        assert store.verify().ok


# -- versions -------------------------------------------------------------------------------------


def test_newer_schema_version_is_refused_and_unchanged(postgres: Server) -> None:
    address = postgres.database(template="made")
    newer = str(schema.SCHEMA_VERSION + 1)
    administer(postgres, address, f"UPDATE reverie.meta SET value = '{newer}' WHERE key = 'schema'")
    for mode in ("", "&mode=ro"):
        with pytest.raises(NewerSchema, match=newer):
            open_store(address + mode)
    with postgres.connect(name_of(address)) as connection:
        kept = connection.execute("SELECT value FROM reverie.meta WHERE key = 'schema'").fetchall()
    assert kept == [(newer,)]


def test_old_server_version_is_refused(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address = postgres.database()
    monkeypatch.setattr(postgres_schema, "MIN_SERVER_VERSION", 990_000)
    with pytest.raises(StoreError, match="too old"):
        open_store(address)
    with postgres.connect(name_of(address)) as connection:
        assert connection.execute("SELECT to_regnamespace('reverie')").fetchall() == [(None,)]


def make_older(connection: psycopg.Connection[Any], number: int) -> None:
    """The tables of an earlier step with some rows, as an earlier Reverie would have left them."""
    connection.execute("CREATE SCHEMA reverie")
    connection.execute("SET search_path = reverie, public")
    connection.execute("CREATE SEQUENCE space_numbers")
    for step in schema.STEPS[:number]:
        for statement in step:
            connection.execute(postgres_schema.to_postgres(statement).encode())
    connection.execute(postgres_vectors.TABLE.format(type="vector").encode())
    for statement in (
        f"INSERT INTO meta VALUES ('schema', '{number}'), ('index', 'earlier rules')",
        "INSERT INTO spaces VALUES (7, 's')",
        "INSERT INTO owners VALUES (7, 0, ''), (7, 1, 'alice'), (7, 2, 'bob')",
        "INSERT INTO counters (space, position, recorded_at, job) VALUES (7, 1, 5, 1)",
        "UPDATE counters SET owner = 2" if number >= 4 else "SELECT 1",
        "INSERT INTO statistics (space, owner, epoch, next_passage, passages, touches, facts, "
        f"notes{', terms' if number < 3 else ''}) SELECT 7, owner, 0, 0, 0, 0, 0, 0"
        f"{', 0' if number < 3 else ''} FROM owners",
        "INSERT INTO jobs VALUES (7, 1, 1, 'prune', NULL, 'ready', 9, 0, NULL, '{}', NULL, 5)",
        "INSERT INTO due VALUES (7, 9)" if number < 4 else "INSERT INTO due VALUES (7, 1, 9)",
        "INSERT INTO log (space, position, owner, op, recorded_at, schema, trust, memory, version, "
        "uuid, body) VALUES (7, 1, 1, 'remember', 5, 1, 'person', 'abcdefgh', 1, 'u', "
        """'{"kind": "fact", "content": "Amber runs along the river", "category": "general", """
        """"subject": null, "tags": [], "concept_tags": [], "session": null, "source": null, """
        """"pinned": false, "created_at": 5, "updated_at": 5, "happened_at": null, """
        """"forgotten_at": null, "expires_at": null, "trust": "person"}')""",
    ):
        connection.execute(statement.encode())
    if number >= schema.SEAL_STEP:
        seals.seal_store(
            postgres_schema._ConnectionStatements(connection), lambda done, total: None
        )
    row_security.enable_policies(connection, postgres_schema.SCHEMA_NAME)


@pytest.mark.parametrize("rights", ["SUPERUSER", "", "NOINHERIT"])
@pytest.mark.parametrize("number", range(1, schema.SCHEMA_VERSION))
@pytest.mark.sample(3)
def test_older_schema_is_upgraded(
    postgres: Server, number: int, rights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with login(postgres, postgres.database(), rights) as address:
        administer(postgres, address, "CREATE EXTENSION vector")
        let_in(postgres, address)
        with (
            psycopg.connect(address, cursor_factory=psycopg.RawCursor) as connection,
            monkeypatch.context() as earlier,
        ):
            # It had no owner then.
            earlier.setitem(row_security._POLICIES, "due", "true")
            make_older(connection, number)
        with pytest.raises(StoreReadOnly, match="upgrade"):
            open_store(address + "&mode=ro")
        with open_store(address) as store:
            alice = store.space("s", user="alice")
            assert [hit.id for hit in alice.recall("river")] == ["abcdefgh"]
            assert alice.recall("river", mode="vector")
            assert store.verify().problems == ()
            assert rows(store, "SELECT owner FROM counters") == [(2,)]
            assert rows(store, "SELECT space, owner, at FROM due") == [(7, 1, 9)]
            store.space("s", user="carol").remember("new here")
            store.space("t").remember("new here")
            assert rows(store, "SELECT MAX(owner) FROM owners WHERE space = 7") == [(3,)]
            assert rows(store, "SELECT COUNT(*) FROM spaces WHERE space > 7") == [(1,)]
            assert store.verify().ok
        with postgres.connect(name_of(address)) as plain:
            assert plain.execute(
                "SELECT DISTINCT relrowsecurity, relforcerowsecurity FROM pg_class "
                "WHERE relnamespace = 'reverie'::regnamespace AND relkind = 'r'"
            ).fetchall() == [(True, True)]


# -- reading alone --------------------------------------------------------------------------------


def test_mode_ro_reads_and_refuses_to_write(postgres: Server) -> None:
    address = postgres.database(template="made")
    with open_store(address) as store:
        remember_all(store)
        wanted = asked(store, "hybrid")
    with open_store(address) as store:
        noted = rows(store, "SELECT COUNT(*) FROM recalls")
    with open_store(address + "&mode=ro") as store:
        space = store.space("s", user="alice")
        assert asked(store, "hybrid") == wanted and len(space.memories()) == len(TEXTS) - 1
        for write in (
            lambda: space.remember("another"),
            lambda: space.forget(space.memories()[0].id),
            lambda: space.session("s").append(user("more")),
            store.rebuild,
            store.reembed,
        ):
            with pytest.raises(StoreReadOnly, match="mode=ro"):
                write()
        assert store.verify().ok
    with open_store(address) as store:
        assert rows(store, "SELECT COUNT(*) FROM recalls") == noted
    with pytest.raises(StoreReadOnly):
        open_store(postgres.database() + "&mode=ro")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_text_outside_the_database_encoding_is_refused(postgres: Server, encoding: str) -> None:
    database = f"in_{encoding.lower()}"
    with postgres.connect() as connection:
        connection.execute(
            f"CREATE DATABASE {database} TEMPLATE template0 ENCODING '{encoding}' "
            "LOCALE_PROVIDER libc LOCALE 'C'".encode()
        )
    with open_store(postgres.address(database)) as store:
        space = store.space("café", user="Zoë")
        kept = space.remember("Crème brûlée", subject="Ü")
        assert store.space("café", user="Zoë").get(kept.id) == kept
        assert [info.name for info in store.spaces()] == ["café"]
        assert space.recall("brûlée")
        if encoding == "LATIN1":
            with pytest.raises(InvalidInput):
                space.remember("日本")
        else:
            assert space.remember("日本").content == "日本"
