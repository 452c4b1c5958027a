"""The schema and every statement meet the rules of Citus and partitions; what runs on Citus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reverie import Store
from reverie.engine import open_engine
from reverie.engine.postgres import row_security, sharding
from reverie.engine.postgres.engine import PostgresEngine
from reverie.engine.postgres.transaction import PostgresTransaction
from reverie.errors import ConfigError
from tests.conftest import rows
from tests.servers import Server, running
from tests.sharded_stores import (
    EVERYWHERE,
    PARTS,
    QUERIES,
    SPACES,
    STAND_IN,
    catalogue,
    fill,
    name_of,
    opened,
    schema_tables,
    whole_tables,
)
from tests.statements import Statement, recorded, scanned

# Unique in their whole space, whoever owns the row.
PER_SPACE = {
    "log_pkey": ["space", "position"],
    "log_memory": ["space", "memory", "version"],
    "jobs_pkey": ["space", "job"],
    "counters_pkey": ["space"],
}


# -- what Citus asks of the schema ----------------------------------------------------------------

INDEXES = """SELECT t.relname, i.relname, x.indisprimary, x.indexprs IS NULL,
    ARRAY(SELECT a.attname::text FROM unnest(x.indkey::int[]) WITH ORDINALITY k (number, place)
          JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number ORDER BY k.place)
    FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
    WHERE t.relnamespace = 'reverie'::regnamespace AND x.indisunique AND t.relname <> ALL(%s)"""
FOREIGN = """SELECT t.relname, r.relname,
    ARRAY(SELECT a.attname::text FROM unnest(c.conkey::int[]) WITH ORDINALITY k (number, place)
          JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY place),
    ARRAY(SELECT a.attname::text FROM unnest(c.confkey::int[]) WITH ORDINALITY k (number, place)
          JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY place)
    FROM pg_constraint c
    JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class r ON r.oid = c.confrelid
    WHERE c.contype = 'f' AND t.relnamespace = 'reverie'::regnamespace"""
COLUMNS = """SELECT t.relname, array_agg(a.attname::text) FROM pg_attribute a
    JOIN pg_class t ON t.oid = a.attrelid WHERE t.relnamespace = 'reverie'::regnamespace
    AND t.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND t.relname <> ALL(%s)
    GROUP BY t.relname"""


def test_every_table_but_two_has_a_space_column(postgres: Server) -> None:
    found = dict(catalogue(postgres, "made", COLUMNS, EVERYWHERE))
    assert len(found) == len(schema_tables()) - len(EVERYWHERE)
    assert {table for table, columns in found.items() if "space" not in columns} == set()


def test_the_space_leads_every_unique_key_and_the_owner_follows(postgres: Server) -> None:
    columns = dict(catalogue(postgres, "made", COLUMNS, EVERYWHERE))
    found = catalogue(postgres, "made", INDEXES, EVERYWHERE)
    assert {table for table, _, primary, *_ in found if primary} == set(columns)
    for table, name, _, plain, key in found:
        assert plain, f"{name} has an expression"
        assert key[0] == "space", name
        if name in PER_SPACE:
            assert key == PER_SPACE[name]
        elif name != "owners_space_name_key":
            assert key[:2] == ["space", "owner"], name
        assert "owner" in columns[table], table


def test_the_space_leads_every_foreign_key(postgres: Server) -> None:
    found = catalogue(postgres, "made", FOREIGN)
    assert {row[0] for row in found} == {"log", "memories", "sessions"}
    for table, other, ours, theirs in found:
        assert {table, other}.isdisjoint(EVERYWHERE)
        assert ours[:2] == theirs[:2] == ["space", "owner"]


@pytest.mark.parametrize(
    ("what", "query"),
    [
        ("a trigger", "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN ({})"),
        ("a rule", "SELECT rulename FROM pg_rewrite WHERE ev_class IN ({})"),
        (
            "an exclusion",
            "SELECT conname FROM pg_constraint WHERE contype = 'x' AND conrelid IN ({})",
        ),
        (
            "a made column",
            "SELECT attname FROM pg_attribute WHERE (attidentity <> '' OR attgenerated <> '') "
            "AND attrelid IN ({})",
        ),
        (
            "a default that is no constant",
            "SELECT 1 FROM pg_attrdef WHERE pg_get_expr(adbin, adrelid) ~ '[(]' "
            "AND adrelid IN ({})",
        ),
        (
            "a subquery in a policy",
            "SELECT polname FROM pg_policy WHERE (polqual::text ~ 'SUBLINK' "
            "OR polwithcheck::text ~ 'SUBLINK') AND polrelid IN ({})",
        ),
        (
            "a space that is no bigint",
            "SELECT 1 FROM pg_attribute WHERE attname = 'space' AND atttypid <> 'bigint'::regtype "
            "AND attrelid IN ({})",
        ),
        (
            "a relation that is neither table, index nor sequence",
            "SELECT relname FROM pg_class WHERE relkind NOT IN ('r', 'i', 'S', 't') AND oid IN "
            "(SELECT oid FROM pg_class WHERE relnamespace = 'reverie'::regnamespace)",
        ),
    ],
)
def test_schema_uses_nothing_that_citus_lacks(postgres: Server, what: str, query: str) -> None:
    tables = "SELECT oid FROM pg_class WHERE relnamespace = 'reverie'::regnamespace"
    assert catalogue(postgres, "made", query.format(tables)) == [], what
    assert catalogue(postgres, "made", f"SELECT COUNT(*) > 20 FROM ({tables}) t") == [(True,)]


# -- every statement of the hot path names its space ----------------------------------------------


def touched_by(
    store: Store, statements: list[Statement], space: int, whole: dict[str, str]
) -> set[str]:
    """The tables they touch, once each was seen to keep to one partition of every table."""
    tables: set[str] = set()
    for statement in statements:
        written = statement.spaces_written()
        if written is not None and written[0] not in EVERYWHERE:
            assert written[1] == {space}, statement
            tables.add(written[0])
        for table, partitions in scanned(store, statement, whole).items():
            assert len(partitions) == 1, (statement, partitions)
            tables.add(table)
    return tables


@pytest.fixture
def on_parts(
    postgres: Server, parted: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[Store], None]], set[str]]]:
    """Does something to a store of partitions; gives the tables that it touched."""
    address = postgres.database(template=parted)
    whole = whole_tables(postgres, name_of(address))
    with opened(address) as store:
        (space,) = rows(store, "SELECT space FROM spaces WHERE name = ?", "dee")[0]
        statements = recorded(monkeypatch)

        def look(do: Callable[[Store], None]) -> set[str]:
            del statements[:]
            do(store)
            asked = list(statements)
            assert asked
            return touched_by(store, asked, space, whole)

        yield look


Look = Callable[[Callable[[Store], None]], set[str]]


@pytest.mark.prove
def test_statement_without_its_space_is_detected(
    postgres: Server, parted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof below proves something: what it looks for is found where it is."""
    whole = whole_tables(postgres, parted)
    assert set(whole.values()) == schema_tables() - set(EVERYWHERE)
    with opened(postgres.database(template=parted)) as store:
        found = scanned(store, Statement("SELECT 1 FROM log WHERE owner = $1", [0]), whole)
        assert len(found["log"]) == PARTS
        (space,) = rows(store, "SELECT MIN(space) FROM spaces")[0]
        one = Statement("SELECT 1 FROM log WHERE space = $1 AND owner = $2", [space, 0])
        assert len(scanned(store, one, whole)["log"]) == 1
    other = Statement("INSERT INTO log (space, position) VALUES ($1, $2), ($3, $4)", [1, 1, 2, 1])
    assert other.spaces_written() == ("log", {1, 2})


@pytest.mark.parametrize("user", [None, "kim"])
@pytest.mark.sample(2)
def test_recall_reads_one_partition_of_each_table(on_parts: Look, user: str | None) -> None:
    def recall(store: Store) -> None:
        space = store.space("dee", user=user)
        for query in QUERIES:
            assert space.recall(query)
        assert space.recall(QUERIES[0], category="person", tags=["boat"])
        assert space.recall(QUERIES[0], as_of=9)

    assert on_parts(recall) >= {"postings", "vectors", "passages", "log", "memories", "statistics"}


def test_append_reads_and_writes_one_partition_of_each_table(on_parts: Look) -> None:
    def turn(store: Store) -> None:
        session = store.space("dee", user="kim").session("talk")
        assert session.context("where is the boat", tokens=2000)
        session.append({"role": "user", "content": "The boat is blue. Please remember it."})
        assert session.recall("what colour is the boat")
        assert session.resume(5)

    assert on_parts(turn) >= {"events", "sessions", "session_state", "postings", "jobs", "due"}


def test_remember_writes_one_partition_of_each_table(on_parts: Look) -> None:
    def remember(store: Store) -> None:
        space = store.space("dee", user="kim")
        made = space.remember("The mast is of spruce", subject="mast", tags=["wood"], key="once")
        space.revise(made.id, "The mast is of carbon", subject="mast")
        space.forget(made.id)
        space.restore(made.id)
        store.space("dee").import_records([{"content": f"rope {at}"} for at in range(70)])

    wanted = {"log", "counters", "memories", "passages", "postings", "vectors", "tags"}
    assert on_parts(remember) >= wanted


def test_worker_claims_and_finishes_in_one_partition_of_each_table(
    postgres: Server, parted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the question who has something due is asked of all."""
    address = postgres.database(template=parted)
    whole = whole_tables(postgres, name_of(address))
    with opened(address) as store:
        store.run_pending_jobs()
        store.space("dee").session("new").append({"role": "user", "content": "I prefer tea."})
        (space,) = rows(store, "SELECT space FROM spaces WHERE name = ?", "dee")[0]
        statements = recorded(monkeypatch)
        assert store.run_pending_jobs()
        asked = [each for each in statements if "FROM due WHERE at <=" not in each.sql]
        assert len(asked) < len(statements)
        assert touched_by(store, asked, space, whole) >= {"jobs", "due", "log"}


def test_transaction_sets_its_role_before_its_first_query(
    postgres: Server, parted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Citus has a connection for each role: one transaction cannot be on two of them."""
    begun_before: list[bool] = []
    oversee = PostgresTransaction.enter_all_owners

    def noting(self: PostgresTransaction) -> None:
        begun_before.append(self._begun)
        oversee(self)

    with opened(postgres.database(template=parted)) as store:
        monkeypatch.setattr(PostgresTransaction, "enter_all_owners", noting)
        store.spaces(), store.jobs(), store.run_pending_jobs(), store.doctor(), store.verify()
        store.rebuild(), store.reembed()
        store.backup(tmp_path / "copy.db")
        store.restore_backup(tmp_path / "copy.db")
    assert len(begun_before) > 8 and not any(begun_before)


def test_space_ids_are_allocated_in_a_statement_of_their_own(
    postgres: Server, parted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The sequence is on the coordinator, where no statement about rows may be run."""
    address = postgres.database(template=parted)
    statements = recorded(monkeypatch)
    with opened(address) as store:
        store.space("first").remember("a space is made")
        store.backup(tmp_path / "copy.db")
    fresh = postgres.database(template="made")
    with opened(fresh) as store:
        store.restore_backup(tmp_path / "copy.db")
        store.space("second").remember("its number is its own")
        numbers = rows(store, "SELECT COUNT(*), COUNT(DISTINCT space) FROM spaces")
    with postgres.connect(name_of(fresh)) as connection:
        connection.execute("SELECT setval('reverie.space_numbers', 1)")
    with opened(fresh) as store:
        store.space("third").remember("nor is it taken when the sequence is behind")
        assert store.verify().ok
    asked = [each.sql for each in statements if "space_numbers" in each.sql]
    assert any("setval" in sql for sql in asked) and any("last_value" in sql for sql in asked)
    assert [sql for sql in asked if "spaces" in sql.replace("space_numbers", "")] == []
    assert numbers == [(len(SPACES) + 2,) * 2]


# -- Citus ----------------------------------------------------------------------------------------


LOCAL = """SELECT relname FROM pg_class WHERE relnamespace = 'reverie'::regnamespace
    AND relkind = 'r' AND pg_relation_size(oid) > 0"""


@pytest.fixture
def like_citus() -> Iterator[Server]:
    """A server with a database ``d`` that seems to have Citus: roles are changed for all of it."""
    with running() as server:
        with server.connect() as connection:
            connection.execute("CREATE DATABASE d")
        with server.connect("d") as connection:
            connection.execute(STAND_IN.encode())
        yield server


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.sample(2)
def test_distribute_statements_run_against_citus_stand_ins(like_citus: Server, full: bool) -> None:
    """Citus cannot be installed from a package registry. Functions of its names stand in for it:
    they note their calls and hold to the order it documents, and move no row."""
    with opened(like_citus.address("d")) as store:
        if full:
            fill(store)
    local = {row[0] for row in catalogue(like_citus, "d", LOCAL)}
    noted = "SELECT call FROM calls ORDER BY number"
    engine = open_engine(like_citus.address("d"))
    assert isinstance(engine, PostgresEngine)
    planned = sharding.plan_distribution(engine, 64)
    assert catalogue(like_citus, "d", noted) == []
    assert sharding.distribute(engine, 64) == planned
    calls = [row[0] for row in catalogue(like_citus, "d", noted)]
    assert sharding.distribute(engine, 64) == sharding.ShardingPlan((), ())
    engine.close()
    tables = schema_tables()
    assert set(planned.tables) == tables
    # What is said of roles is done before a table is touched, and no table emptied before all are.
    kinds = [{step.sql.split("_")[0].split()[0] for step in each} for each in planned.transactions]
    assert kinds == [{"ALTER", "GRANT"}, {"SET", "SELECT"}, {"SELECT"}]
    assert calls[:3] == [
        "everywhere meta",
        "everywhere spaces",
        "spread owners space none 64",
    ]
    assert set(calls[3 : len(tables)]) == {
        f"spread {name} space reverie.owners" for name in tables - {"owners", *EVERYWHERE}
    }
    assert set(calls[len(tables) :]) == {f"truncate {name}" for name in local}
    assert local >= ({"log", "memories", "owners", "vectors"} if full else {"meta"})
    assert catalogue(
        like_citus,
        "d",
        "SELECT rolname FROM pg_roles WHERE rolname ~ '^reverie_' AND rolcanlogin ORDER BY 1",
    ) == [(row_security.APPLICATION,), (row_security.OPERATOR,)]
    assert catalogue(like_citus, "d", "SHOW citus.propagate_set_commands") == [("local",)]


def test_interrupted_distribute_is_completed(like_citus: Server) -> None:
    """Some tables are distributed already, and what they held is still there."""
    opened(like_citus.address("d")).close()
    with like_citus.connect("d") as connection:
        for name in ("meta", "spaces"):
            connection.execute(f"SELECT create_reference_table('reverie.{name}')".encode())
        connection.execute("SELECT create_distributed_table('reverie.owners', 'space')")
    engine = open_engine(like_citus.address("d"))
    assert isinstance(engine, PostgresEngine)
    plan = sharding.distribute(engine)
    engine.close()
    assert set(plan.tables) == schema_tables() - {"meta", "spaces", "owners"}
    assert any("'reverie.meta'" in step.sql for step in plan.transactions[-1])


def test_owner_under_row_security_may_distribute(like_citus: Server) -> None:
    """The owner copies the rows into shards, and forced row-level security applies to the owner."""
    with like_citus.connect("d") as connection:
        connection.execute("CREATE ROLE keeper LOGIN CREATEROLE")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO keeper")
        connection.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO keeper")
        connection.execute("ALTER DATABASE d OWNER TO keeper")
        connection.execute("CREATE EXTENSION vector")
    opened(like_citus.address("d", user="keeper")).close()
    engine = open_engine(like_citus.address("d", user="keeper"))
    assert isinstance(engine, PostgresEngine)
    planned = [step.sql for step in sharding.plan_distribution(engine).steps]
    engine.close()
    for name in schema_tables():
        lowered = planned.index(f"ALTER TABLE reverie.{name} NO FORCE ROW LEVEL SECURITY")
        raised = planned.index(f"ALTER TABLE reverie.{name} FORCE ROW LEVEL SECURITY")
        made = [f"create_{how}_table('reverie.{name}'" for how in ("distributed", "reference")]
        (copied,) = [at for at, each in enumerate(planned) if any(call in each for call in made)]
        assert lowered < copied < raised


def test_distribute_without_citus_says_what_to_install(postgres: Server, parted: str) -> None:
    engine = open_engine(postgres.address("made"))
    assert isinstance(engine, PostgresEngine)
    for do in (sharding.plan_distribution, sharding.distribute):
        with pytest.raises(ConfigError, match="CREATE EXTENSION citus"):
            do(engine)
    engine.close()


def test_partitions_and_shards_exclude_each_other(like_citus: Server) -> None:
    address = like_citus.address("d")
    opened(address).close()
    engine = open_engine(address)
    assert isinstance(engine, PostgresEngine)
    with like_citus.connect("d") as connection:
        connection.execute("SELECT create_distributed_table('reverie.owners', 'space')")
    with pytest.raises(ConfigError, match="distributed with Citus"):
        sharding.partition(engine)
    with like_citus.connect("d") as connection:
        connection.execute("DELETE FROM pg_dist_partition")
    assert sharding.partition(engine, 2).tables
    with pytest.raises(ConfigError, match="are partitioned"):
        sharding.distribute(engine)
    engine.close()
