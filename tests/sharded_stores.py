"""PostgreSQL stores to be partitioned or distributed: filled, sharded and inspected."""

from __future__ import annotations

from typing import Any

import reverie
from reverie import Settings, Store
from reverie.engine import open_engine
from reverie.engine.postgres import sharding
from reverie.engine.postgres.engine import PostgresEngine
from reverie.engine.schema import TABLES
from tests.conftest import FakeClock, SeededIds
from tests.servers import Server

SPACES = ("ana", "bo", "cy", "dee", "eve", "flo", "gil", "hal")
QUERIES = ("who repairs the boat", "tea in the garden", "harbour at night", "which train is late")
PARTS = 16
EVERYWHERE = list(sharding.REFERENCE_TABLES)


def opened(address: str, **more: Any) -> Store:
    return reverie.open(
        address,
        settings=Settings(),
        embedder=more.pop("embedder", "hashing"),
        clock=more.pop("clock", FakeClock()),
        ids=more.pop("ids", SeededIds(7)),
    )


def name_of(address: str) -> str:
    return address.split("/")[3].split("?")[0]


def fill(store: Store) -> None:
    """Some of everything, in several spaces, for users and for all."""
    for number, name in enumerate(SPACES):
        for user in (None, "kim"):
            space = store.space(name, user=user)
            made = [
                space.remember(
                    f"{QUERIES[(at + number) % 4]}: number {at} of {name}",
                    category="fact" if at % 2 else "person",
                    subject=f"{at}{user}",
                    tags=["boat", f"t{at}"],
                    pinned=at == 0,
                )
                for at in range(6)
            ]
            space.forget(made[4].id, reason="over")
            space.revise(made[1].id, f"the boat of {name} was sold")
            session = space.session("talk")
            session.append({"role": "user", "content": f"My name is {name}. {QUERIES[number % 4]}"})
            session.append({"role": "assistant", "content": "The boat is in the harbour."})


def answers(store: Store) -> list[Any]:
    """What can be asked of a store."""
    results: list[Any] = []
    for name in SPACES:
        for user in (None, "kim"):
            space = store.space(name, user=user)
            session = space.session("talk")
            results += [space.profile(), space.memories(), session.resume(10)]
            results += [[space.recall(query), session.recall(query)] for query in QUERIES]
            results.append(list(space.export()))
    return results


def split(address: str, parts: int | None = None) -> sharding.ShardingPlan:
    engine = open_engine(address)
    assert isinstance(engine, PostgresEngine)
    try:
        return sharding.partition(engine, parts)
    finally:
        engine.close()


def catalogue(server: Server, database: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with server.connect(database) as connection:
        connection.execute("SET search_path = public")
        return connection.execute(query.encode(), values).fetchall()


def schema_tables() -> set[str]:
    return {table.name for table in TABLES} | {"vectors"}


def whole_tables(server: Server, database: str) -> dict[str, str]:
    return dict(
        catalogue(
            server,
            database,
            "SELECT p.relname, t.relname FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhrelid "
            "JOIN pg_class t ON t.oid = i.inhparent WHERE p.relkind = 'r' "
            "AND p.relnamespace = 'reverie'::regnamespace",
        )
    )


# Functions of the names that Citus has: they note their calls, and hold to its order.
STAND_IN = """
CREATE TABLE pg_dist_partition (logicalrelid regclass);
CREATE TABLE calls (number BIGSERIAL, call TEXT);
CREATE FUNCTION create_reference_table(table_name regclass) RETURNS void LANGUAGE sql AS $$
    INSERT INTO public.pg_dist_partition VALUES (table_name);
    INSERT INTO public.calls (call) SELECT 'everywhere ' || relname FROM pg_class
        WHERE oid = table_name $$;
CREATE FUNCTION create_distributed_table(table_name regclass, distribution_column text,
    distribution_type text DEFAULT 'hash', colocate_with text DEFAULT 'default',
    shard_count int DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_constraint WHERE contype = 'f' AND conrelid = table_name
        AND confrelid NOT IN (SELECT logicalrelid FROM public.pg_dist_partition))
    THEN RAISE 'a table that % refers to is not distributed yet', table_name; END IF;
    IF colocate_with NOT IN ('default', 'none') AND colocate_with::regclass NOT IN
        (SELECT logicalrelid FROM public.pg_dist_partition)
    THEN RAISE '% is not distributed yet', colocate_with; END IF;
    INSERT INTO public.pg_dist_partition VALUES (table_name);
    INSERT INTO public.calls (call) VALUES
        (concat_ws(' ', 'spread', (SELECT relname FROM pg_class WHERE oid = table_name),
        distribution_column, colocate_with, shard_count));
    END $$;
CREATE FUNCTION truncate_local_data_after_distributing_table(function_name regclass) RETURNS void
    LANGUAGE plpgsql AS $$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_constraint WHERE contype = 'f' AND confrelid = function_name
        AND conrelid NOT IN (SELECT logicalrelid FROM public.pg_dist_partition))
    THEN RAISE 'cannot truncate a table referenced in a foreign key by a local table'; END IF;
    EXECUTE 'TRUNCATE ' || function_name || ' CASCADE';
    INSERT INTO public.calls (call) VALUES
        ('truncate ' || (SELECT relname FROM pg_class WHERE oid = function_name));
    END $$;
"""
