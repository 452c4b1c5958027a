"""A partitioned store gives the same answers, and partitioning is one transaction."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from reverie.engine import open_engine, schema
from reverie.engine.postgres import row_security, sharding
from reverie.engine.postgres import schema as postgres_schema
from reverie.engine.postgres.engine import PostgresEngine
from reverie.errors import ConfigError, StoreBusy, StoreReadOnly
from reverie.protocols import Owner
from reverie.transfer.migrate import migrate
from tests.conftest import SeededIds, rows
from tests.servers import Server, running
from tests.sharded_stores import (
    EVERYWHERE,
    PARTS,
    QUERIES,
    SPACES,
    answers,
    catalogue,
    fill,
    name_of,
    opened,
    schema_tables,
    split,
    whole_tables,
)

# -- a store of partitions is the same store ------------------------------------------------------

SHAPE = (
    # Whatever a table has that a statement or a person may rely on.
    """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
       WHERE connamespace = 'reverie'::regnamespace AND contype IN ('p', 'u', 'f', 'c')
       AND conparentid = 0 AND conrelid IN {tables}""",
    """SELECT indrelid::regclass::text, replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ')
       FROM pg_index WHERE indrelid IN {tables}""",
    """SELECT tablename, policyname, roles::text[], cmd, qual, with_check FROM pg_policies
       WHERE schemaname = 'reverie'""",
    """SELECT oid::regclass::text, ARRAY(SELECT unnest(relacl)::text ORDER BY 1), relrowsecurity,
       relforcerowsecurity, relowner::regrole::text FROM pg_class WHERE oid IN {tables}""",
    """SELECT attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull,
       attcollation::regcollation::text, pg_get_expr(adbin, adrelid)
       FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
       WHERE attnum > 0 AND NOT attisdropped AND attrelid IN {tables}""",
)
TABLES = """(SELECT oid FROM pg_class WHERE relnamespace = 'reverie'::regnamespace
    AND relkind IN ('r', 'p') AND NOT relispartition)"""


def shape(server: Server, database: str) -> list[list[tuple[Any, ...]]]:
    return [
        sorted(catalogue(server, database, query.format(tables=TABLES)), key=repr)
        for query in SHAPE
    ]


def crowded(server: Server, database: str) -> int:
    """Partitions whose pages have room for rows that every write changes."""
    query = (
        "SELECT relname FROM pg_class WHERE relispartition AND 'fillfactor=50' = ANY(reloptions)"
    )
    return len(catalogue(server, database, query))


def contents(address: str) -> list[list[tuple[Any, ...]]]:
    with opened(address) as store:
        return [
            sorted(rows(store, f"SELECT * FROM {table}"), key=repr)
            for table in sorted(schema_tables() - {"vectors"})
        ]


def test_partitioning_keeps_rows_keys_indexes_policies_and_grants(
    postgres: Server, filled: str
) -> None:
    address = postgres.database(template=filled)
    with postgres.connect(name_of(address)) as connection:
        connection.execute("CREATE ROLE reader; GRANT SELECT ON reverie.log TO reader")
    before, held = shape(postgres, name_of(address)), contents(address)
    plan = split(address)
    assert set(plan.tables) == schema_tables() - set(EVERYWHERE)
    assert shape(postgres, name_of(address)) == before
    assert contents(address) == held
    assert all(part for part in before) and sum(map(len, held)) > 500
    split_by = catalogue(
        postgres, name_of(address), "SELECT pg_get_partkeydef(partrelid) FROM pg_partitioned_table"
    )
    assert {row[0] for row in split_by if row[0] is not None} == {"HASH (space)"}
    assert crowded(postgres, name_of(address)) == len(postgres_schema._HOT_TABLES) * PARTS
    with postgres.connect(name_of(address)) as connection:
        connection.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_partitioned_store_gives_the_same_answers(
    postgres: Server, filled: str, parted: str
) -> None:
    with opened(postgres.database(template=filled)) as store:
        before, verified = answers(store), store.verify()
    with opened(postgres.database(template=parted)) as store:
        assert answers(store) == before
        assert store.verify() == verified
    assert verified.ok and verified.memories > 80


def test_spaces_are_distributed_over_the_partitions(postgres: Server, parted: str) -> None:
    found = catalogue(postgres, parted, "SELECT DISTINCT tableoid FROM reverie.counters")
    assert 3 < len(found) <= len(SPACES)


def test_partitions_are_not_accessible_to_either_role(postgres: Server, parted: str) -> None:
    with postgres.connect(parted) as connection:
        for role in (row_security.APPLICATION, row_security.OPERATOR):
            connection.execute(f"SET ROLE {role}".encode())
            connection.execute("SELECT COUNT(*) FROM reverie.log")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT COUNT(*) FROM reverie.log_p00")
            connection.execute("RESET ROLE")
        open_ones = connection.execute(
            "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' "
            "AND NOT (relrowsecurity AND relforcerowsecurity)"
        ).fetchall()
    assert open_ones == []


def test_row_security_policies_apply_to_partitions(postgres: Server, parted: str) -> None:
    with postgres.connect(parted) as connection:
        connection.execute(f"SET ROLE {row_security.APPLICATION}".encode())
        assert connection.execute("SELECT COUNT(*) FROM reverie.log").fetchall() == [(0,)]
        (space,) = catalogue(postgres, parted, "SELECT MIN(space) FROM reverie.spaces")[0]
        connection.execute(f"BEGIN; {row_security.set_owner(Owner(space, 0))}".encode())
        seen = connection.execute("SELECT DISTINCT space, owner FROM reverie.log").fetchall()
    assert seen == [(space, 0)]


@pytest.mark.prove
def test_every_verb_works_on_partitions(postgres: Server, parted: str) -> None:
    with opened(postgres.database(template=parted), ids=SeededIds(99)) as store:
        space = store.space("new", user="zoe")
        made = space.remember("The keel is of lead", subject="keel", tags=["boat"], key="one")
        assert space.remember("The keel is of lead", subject="keel", tags=["boat"], key="one") == (
            made
        )
        assert space.revise(made.id, "The keel is of iron", subject="keel").version == 2
        assert space.recall("what is the keel of")[0].id == made.id
        space.forget(made.id)
        assert space.recall("what is the keel of") == []
        space.restore(made.id)
        assert [version.op for version in space.history(made.id)] == [
            *("remember", "revise", "forget", "restore")
        ]
        assert space.memories(as_of=1)[0].content == "The keel is of lead"
        session = space.session("s")
        session.append({"role": "user", "content": "My name is Zoe and I prefer oars."})
        session.scratchpad.write(["row ashore"])
        assert session.scratchpad.read().items
        assert "Zoe" in session.context("who am I", tokens=500).history[-1]["content"]
        store.run_pending_jobs()
        session.hide()
        session.restore()
        session.erase()
        assert space.erase(made.id).pending is False
        lines = list(store.space("ana").export())
        assert store.space("copy").import_records(lines).added
        assert store.rebuild() and store.reembed() and store.verify().ok
        store.vacuum()
        assert {info.name for info in store.spaces()} >= {*SPACES, "new", "copy"}
        assert store.doctor()["problems"] == []


@pytest.mark.prove
def test_backup_restore_and_migration_work_on_partitions(
    postgres: Server, parted: str, tmp_path: Path
) -> None:
    address = postgres.database(template=parted)
    empty = postgres.database(template="made")
    split(empty, 5)
    with opened(address) as store:
        before = store.verify()
        assert store.backup(tmp_path / "copy.db").digest == before.digest
        store.space("ana").remember("written behind the backup")
        assert store.restore_backup(tmp_path / "copy.db").ok
        assert store.verify() == before
        assert store.space("fresh").remember("a number of its own")
        wanted, after = answers(store), store.verify()
    migrate(address, f"sqlite://{tmp_path / 'moved.db'}")
    migrate(f"sqlite://{tmp_path / 'moved.db'}", empty)
    with opened(empty) as store:
        assert answers(store) == wanted
        assert store.verify() == after
    assert len(set(whole_tables(postgres, name_of(empty)).values())) == len(schema_tables()) - 2


def test_partitioned_tables_are_upgraded_like_plain_ones(
    postgres: Server, parted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that a step makes is a plain one; the same command splits it."""
    step = (
        "ALTER TABLE counters ADD COLUMN more BIGINT NOT NULL DEFAULT 0",
        "CREATE INDEX log_more ON log (space, owner, op)",
        """CREATE TABLE extra (space BIGINT NOT NULL, owner BIGINT NOT NULL, name TEXT NOT NULL,
            PRIMARY KEY (space, owner, name)) {clustered}""",
    )
    address = postgres.database(template=parted)
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, step))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    with opened(address) as store:
        assert store.verify().ok
        assert store.space("ana").recall(QUERIES[0])
        store.space("ana").remember("behind the upgrade")
    assert crowded(postgres, name_of(address)) == len(postgres_schema._HOT_TABLES) * PARTS
    assert split(address).tables == ("extra",)
    assert len([part for part in whole_tables(postgres, name_of(address)) if "extra" in part]) == 16


# -- when it is run -------------------------------------------------------------------------------


def test_partition_plan_changes_nothing_and_equals_what_is_run(
    postgres: Server, filled: str
) -> None:
    address = postgres.database(template=filled)
    before = shape(postgres, name_of(address))
    engine = open_engine(address)
    assert isinstance(engine, PostgresEngine)
    plan = sharding.plan_partitions(engine, 4)
    engine.close()
    assert shape(postgres, name_of(address)) == before
    assert whole_tables(postgres, name_of(address)) == {}
    assert split(address, 4) == plan
    assert len(whole_tables(postgres, name_of(address))) == 4 * len(plan.tables)


def test_partition_plan_run_by_hand_has_the_same_result(postgres: Server, filled: str) -> None:
    address = postgres.database(template=filled)
    before, held = shape(postgres, name_of(address)), contents(address)
    engine = open_engine(address)
    assert isinstance(engine, PostgresEngine)
    plan = sharding.plan_partitions(engine, 2)
    engine.close()
    script = ";\n".join(["BEGIN", *(step.sql for step in plan.steps), "COMMIT"])
    with postgres.connect(name_of(address)) as connection:
        connection.execute(script.encode())
    assert shape(postgres, name_of(address)) == before
    assert contents(address) == held


def test_partition_of_a_read_only_store_is_refused(postgres: Server, filled: str) -> None:
    address = postgres.database(template=filled)
    with pytest.raises(StoreReadOnly, match="mode=ro"):
        split(f"{address}&mode=ro")
    assert whole_tables(postgres, name_of(address)) == {}


def test_partition_of_a_partitioned_store_does_nothing(postgres: Server, parted: str) -> None:
    address = postgres.database(template=parted)
    assert split(address) == sharding.ShardingPlan((), ())
    assert split(address, PARTS) == sharding.ShardingPlan((), ())
    with pytest.raises(ConfigError, match="16 partitions already"):
        split(address, 8)


def test_partition_is_refused_while_others_have_the_store_open(
    postgres: Server, filled: str
) -> None:
    address = postgres.database(template=filled)
    with opened(address) as store:
        store.space("ana").recall("boat")
        with pytest.raises(StoreBusy, match="Stop its servers"):
            split(address)
        assert whole_tables(postgres, name_of(address)) == {}
    assert split(address).tables


@pytest.mark.parametrize("user", ["keeper", "postgres"])
@pytest.mark.prove
def test_partition_by_an_owner_without_superuser_loses_no_row(user: str) -> None:
    """Forced row-level security also applies to the owner of the tables, who partitions them."""
    with running() as server:
        with server.connect() as connection:
            connection.execute("CREATE ROLE keeper LOGIN CREATEROLE")
            connection.execute("CREATE DATABASE kept OWNER keeper")
        with server.connect("kept") as connection:
            connection.execute("CREATE EXTENSION vector")
        address = server.address("kept", user="keeper")
        with opened(address) as store:
            fill(store)
        held = contents(address)
        split(server.address("kept", user=user))
        assert contents(address) == held
        assert catalogue(
            server,
            "kept",
            "SELECT DISTINCT relowner::regrole::text FROM pg_class "
            "WHERE relnamespace = 'reverie'::regnamespace",
        ) == [("keeper",)]
        with opened(address) as store:
            assert store.verify().ok


@pytest.mark.prove
def test_failed_partition_leaves_the_store_unchanged(postgres: Server, filled: str) -> None:
    """The name of a late partition is taken by a transaction that is still open."""
    address = postgres.database(template=filled)
    name = name_of(address)
    before, held = shape(postgres, name), contents(address)
    waiting = (
        "SELECT pid FROM pg_stat_activity WHERE datname = %s AND wait_event = 'transactionid' "
        "AND query LIKE 'CREATE TABLE reverie.vectors_p09 %%'"
    )
    with postgres.connect(name) as blocking:
        blocking.execute("BEGIN; CREATE TABLE reverie.vectors_p09 (space BIGINT)")
        process = subprocess.Popen(
            [sys.executable, "-m", "reverie", "postgres", "partition", "--yes", "--url", address],
            env=dict(os.environ),
        )
        try:
            found = until(lambda: catalogue(postgres, name, waiting, name))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        blocking.execute("ROLLBACK")
    alive = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
    until(lambda: not catalogue(postgres, name, alive, found[0][0]))
    assert shape(postgres, name) == before
    assert whole_tables(postgres, name) == {}
    assert contents(address) == held
    assert split(address).tables


def until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
