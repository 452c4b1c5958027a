"""Sharding of a PostgreSQL store by space: hash partitions on one server, or Citus over many.

Both are first planned from the catalogue, as the statements that would run; tables that are sharded
already are left as they are. Rows of one space are in the same shard in every table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from psycopg import Connection, sql

from reverie.engine.postgres import row_security
from reverie.engine.postgres.engine import PostgresEngine
from reverie.engine.postgres.schema import SCHEMA_NAME, has_citus
from reverie.errors import ConfigError, StoreBusy

# Small tables that every space needs, or that lead to it: each server has all of their rows.
REFERENCE_TABLES = ("meta", "spaces")
SHARD_COLUMN = "space"
# The table whose shards the shards of all others are colocated with.
COLOCATION_TABLE = "owners"
DEFAULT_PARTITIONS = 16

_NO_CITUS = (
    "this PostgreSQL has no Citus: install it on every machine, add it to "
    "shared_preload_libraries, run CREATE EXTENSION citus, then repeat this"
)
_TABLES = """SELECT c.relname, c.relkind = 'p', o.rolname, COALESCE(c.reloptions, '{}'),
    (SELECT COUNT(*) FROM pg_inherits i WHERE i.inhparent = c.oid), pg_relation_size(c.oid) > 0,
    ARRAY(SELECT DISTINCT r.relname::text FROM pg_constraint f JOIN pg_class r
          ON r.oid = f.confrelid WHERE f.conrelid = c.oid AND f.contype = 'f'
          AND f.confrelid <> c.oid)
    FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner
    WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    ORDER BY c.relname"""
# The indexes of a table that do not belong to one of its constraints.
_INDEXES = """SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i
    WHERE i.indrelid = $1::regclass AND NOT EXISTS (SELECT 1 FROM pg_constraint c
        WHERE c.conindid = i.indexrelid AND c.conrelid = i.indrelid
        AND c.contype IN ('p', 'u', 'x'))
    ORDER BY 1"""
_CONSTRAINTS = """SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE conrelid = $1::regclass AND contype = ANY($2) AND conparentid = 0
    ORDER BY contype <> 'p', conname"""
# Rights that were granted to other roles than Reverie's.
_GRANTS = """SELECT a.privilege_type, a.is_grantable,
    CASE WHEN a.grantee = 0 THEN NULL ELSE g.rolname END
    FROM pg_class c, aclexplode(c.relacl) a LEFT JOIN pg_roles g ON g.oid = a.grantee
    WHERE c.oid = $1::regclass AND a.grantee <> c.relowner
    AND COALESCE(g.rolname <> ALL($2), true) ORDER BY 1, 3"""
_COUNT_OTHER_SESSIONS = """SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
    AND pid <> pg_backend_pid() AND split_part(application_name, ' ', 1)
        = split_part(current_setting('application_name'), ' ', 1)"""


class PlanStep(NamedTuple):
    """One statement of a plan, and its reason as shown to people."""

    sql: str
    why: str


class ShardingPlan(NamedTuple):
    """The tables that would be changed, and the statements, grouped into transactions.

    After an interruption between two transactions, a new plan has what is left.
    """

    tables: tuple[str, ...]
    transactions: tuple[tuple[PlanStep, ...], ...]

    @property
    def steps(self) -> list[PlanStep]:
        return [step for steps in self.transactions for step in steps]


class _CatalogTable(NamedTuple):
    name: str
    partitioned: bool
    owner: str
    options: Sequence[str]
    parts: int
    filled: bool
    refers_to: Sequence[str]

    @property
    def qualified_name(self) -> str:
        return f"{SCHEMA_NAME}.{self.name}"


# -- hash partitions on one server ----------------------------------------------------------------


def plan_partitions(engine: PostgresEngine, parts: int | None = None) -> ShardingPlan:
    """The plan that turns every table with a space column into a hash-partitioned one."""
    with engine.table_owner_transaction() as connection:
        return _partition_plan(connection, parts)


def partition(engine: PostgresEngine, parts: int | None = None) -> ShardingPlan:
    """Partition the tables in one transaction: an interruption leaves them as they were."""
    with engine.table_owner_transaction() as connection:
        plan = _partition_plan(connection, parts)
        if plan.transactions:
            _require_no_other_sessions(connection)
            _run(connection, plan.steps)
            # A session that began to read meanwhile would find the new tables empty.
            _require_no_other_sessions(connection)
    return plan


def _partition_plan(connection: Connection[Any], parts: int | None) -> ShardingPlan:
    tables = _sharded_tables(_tables(connection))
    if _distributed_tables(connection):
        raise ConfigError(
            "the tables are distributed with Citus, which splits them already: "
            "partitions are for one server"
        )
    partition_counts = {table.parts for table in tables if table.partitioned}
    if partition_counts and parts is not None and partition_counts != {parts}:
        raise ConfigError(
            f"the tables have {max(partition_counts)} partitions already: for another number "
            "back the store up, and restore it into a fresh database"
        )
    unpartitioned = [table for table in tables if not table.partitioned]
    if not unpartitioned:
        return ShardingPlan((), ())
    count = max(partition_counts) if partition_counts else parts or DEFAULT_PARTITIONS
    steps = tuple(_partition_steps(connection, unpartitioned, count))
    return ShardingPlan(tuple(table.name for table in unpartitioned), (steps,))


def _partition_steps(
    connection: Connection[Any], tables: Sequence[_CatalogTable], parts: int
) -> Iterator[PlanStep]:
    names = ", ".join(table.qualified_name for table in tables)
    (path, user) = connection.execute(
        "SELECT current_setting('search_path'), current_user"
    ).fetchall()[0]
    yield PlanStep(
        f"SET LOCAL search_path = {path}",
        "definitions of keys and indexes name tables without their schema",
    )
    yield PlanStep("SET LOCAL row_security = off", "row-level security hides no row from the copy")
    yield PlanStep(
        f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE",
        "no other session reads the tables while they change",
    )
    foreign_keys = [
        (table, *row) for table in tables for row in _constraints(connection, table, "f")
    ]
    for table, name, _ in foreign_keys:
        yield PlanStep(
            f"ALTER TABLE {table.qualified_name} DROP CONSTRAINT {_quoted(name)}",
            "added again below, between the new tables",
        )
    for table in tables:
        yield from _replace_table_steps(connection, table, parts, user)
    for table, name, definition in foreign_keys:
        yield PlanStep(
            f"ALTER TABLE {table.qualified_name} ADD CONSTRAINT {_quoted(name)} {definition}",
            "added again as before, and checked for every row",
        )
    for name in (name for table in tables for name in _partition_names(table, parts)):
        yield PlanStep(
            f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
            "rows can be read through the partitioned table only",
        )
    for statement in row_security.policy_statements([table.name for table in tables], SCHEMA_NAME):
        yield PlanStep(statement, "row-level security policies, as every table has them")
    for table in tables:
        yield PlanStep(
            f"ANALYZE {table.qualified_name}", "so that statements are planned well at once"
        )


def _replace_table_steps(
    connection: Connection[Any], table: _CatalogTable, parts: int, user: str
) -> Iterator[PlanStep]:
    """The steps that replace a table by a partitioned one with the same rows, keys and rights."""
    old, new = table.qualified_name, f"{table.qualified_name}_new"
    yield PlanStep(
        f"ALTER TABLE {old} NO FORCE ROW LEVEL SECURITY", "its owner may read all of it to copy it"
    )
    yield PlanStep(
        f"CREATE TABLE {new} (LIKE {old} INCLUDING COMMENTS INCLUDING COMPRESSION "
        f"INCLUDING DEFAULTS INCLUDING STORAGE) PARTITION BY HASH ({SHARD_COLUMN})",
        "the same columns, split by the space",
    )
    options = f" WITH ({', '.join(table.options)})" if table.options else ""
    names = _partition_names(table, parts)
    for at, name in enumerate(names):
        yield PlanStep(
            f"CREATE TABLE {name} PARTITION OF {new} "
            f"FOR VALUES WITH (MODULUS {parts}, REMAINDER {at}){options}",
            f"partition {at + 1} of {parts}",
        )
    rights = connection.execute(
        _GRANTS, (table.qualified_name, [row_security.APPLICATION, row_security.OPERATOR])
    ).fetchall()
    keys, indexes = _constraints(connection, table, "puc"), _indexes(connection, table)
    yield PlanStep(f"INSERT INTO {new} SELECT * FROM {old}", "copies every row")
    yield PlanStep(f"DROP TABLE {old}", "all its rows are in the new table")
    yield PlanStep(
        f"ALTER TABLE {new} RENAME TO {table.name}", "the new table replaces the old one"
    )
    for name, definition in keys:
        yield PlanStep(
            f"ALTER TABLE {old} ADD CONSTRAINT {_quoted(name)} {definition}", "same key as before"
        )
    for definition in indexes:
        yield PlanStep(definition, "same index as before")
    for each in (old, *names) if table.owner != user else ():
        yield PlanStep(
            f"ALTER TABLE {each} OWNER TO {_quoted(table.owner)}", "same owner as before"
        )
    for right, grantable, role in rights:
        whom = "PUBLIC" if role is None else _quoted(role)
        more = " WITH GRANT OPTION" if grantable else ""
        yield PlanStep(f"GRANT {right} ON {old} TO {whom}{more}", "same rights as before")


def _partition_names(table: _CatalogTable, parts: int) -> list[str]:
    width = len(str(parts - 1))
    return [f"{table.qualified_name}_p{at:0{width}}" for at in range(parts)]


# -- Citus shards on many servers -----------------------------------------------------------------


def plan_distribution(engine: PostgresEngine, shards: int | None = None) -> ShardingPlan:
    """The plan that distributes every table by space, colocated with each other."""
    with engine.table_owner_transaction() as connection:
        return _distribution_plan(connection, shards)


def distribute(engine: PostgresEngine, shards: int | None = None) -> ShardingPlan:
    """Distribute the tables that are not yet, and delete the local rows of those that are."""
    with engine.exclusive():
        plan = plan_distribution(engine, shards)
        for steps in plan.transactions:
            with engine.table_owner_transaction() as connection:
                _require_no_other_sessions(connection)
                _run(connection, steps)
                _require_no_other_sessions(connection)
    return plan


def _distribution_plan(connection: Connection[Any], shards: int | None) -> ShardingPlan:
    if not has_citus(connection):
        raise ConfigError(_NO_CITUS)
    tables = _tables(connection)
    if any(table.partitioned for table in tables):
        raise ConfigError(
            "the tables are partitioned, and Citus splits them itself: back the store up, restore "
            "it into a fresh database and distribute that"
        )
    distributed = _distributed_tables(connection)
    remaining = [table for table in tables if table.name not in distributed]
    reference = [table for table in remaining if table.name in REFERENCE_TABLES]
    sharded = _sharded_tables(remaining)
    # Citus changes roles on connections of another user: in a transaction of its own.
    settings = tuple(_settings(connection))
    distribution = (
        tuple(_distribution_steps(connection, reference, sharded, shards)) if remaining else ()
    )
    cleanup = tuple(
        PlanStep(
            "SELECT truncate_local_data_after_distributing_table("
            f"{_literal(table.qualified_name)})",
            "its rows are in the shards now; the local copies are never read again",
        )
        for table in [*reference, *sharded, *(each for each in tables if each.name in distributed)]
        if table.filled
    )
    names = tuple(table.name for table in [*reference, *sharded])
    return ShardingPlan(names, tuple(steps for steps in (settings, distribution, cleanup) if steps))


def _settings(connection: Connection[Any]) -> Iterator[PlanStep]:
    """The steps that make the roles and settings of a transaction reach every server."""
    (database, propagated) = connection.execute(
        "SELECT current_database(), EXISTS (SELECT 1 FROM pg_db_role_setting s "
        "JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database() "
        "AND s.setrole = 0 AND 'citus.propagate_set_commands=local' = ANY(s.setconfig))"
    ).fetchall()[0]
    if not propagated:
        yield PlanStep(
            f"ALTER DATABASE {_quoted(database)} SET citus.propagate_set_commands = 'local'",
            "SET LOCAL reaches every machine, where the policies compare it",
        )
    without_login = connection.execute(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY($1) AND NOT rolcanlogin ORDER BY 1",
        ([row_security.APPLICATION, row_security.OPERATOR],),
    ).fetchall()
    for (role,) in without_login:
        yield PlanStep(
            f"ALTER ROLE {_quoted(role)} LOGIN",
            "the coordinator connects to the other machines as the role of the transaction",
        )
    if not connection.execute(
        "SELECT pg_has_role($1, $2, 'MEMBER')", (row_security.OPERATOR, row_security.APPLICATION)
    ).fetchall()[0][0]:
        yield PlanStep(
            f"GRANT {row_security.APPLICATION} TO {row_security.OPERATOR}",
            "a transaction of the operator begins as the application, on the other machines too",
        )


def _distribution_steps(
    connection: Connection[Any],
    reference: Sequence[_CatalogTable],
    sharded: Sequence[_CatalogTable],
    shards: int | None,
) -> Iterator[PlanStep]:
    yield PlanStep(
        "SET LOCAL citus.multi_shard_modify_mode TO 'sequential'",
        "tables that refer to each other are made in one transaction",
    )
    (bypasses_policies,) = connection.execute(
        "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    ).fetchall()[0]
    under_policies = [] if bypasses_policies else [*reference, *sharded]
    for table in under_policies:
        yield PlanStep(
            f"ALTER TABLE {table.qualified_name} NO FORCE ROW LEVEL SECURITY",
            "its owner may copy its rows into shards",
        )
    for table in reference:
        yield PlanStep(
            f"SELECT create_reference_table({_literal(table.qualified_name)})",
            "few rows, of no space or needed to find one: every machine has a copy",
        )
    for table in sharded:
        is_colocation_table = table.name == COLOCATION_TABLE
        colocated_with = _literal(
            "none" if is_colocation_table else f"{SCHEMA_NAME}.{COLOCATION_TABLE}"
        )
        count = f", shard_count => {shards}" if is_colocation_table and shards is not None else ""
        yield PlanStep(
            f"SELECT create_distributed_table({_literal(table.qualified_name)}, "
            f"{_literal(SHARD_COLUMN)}, colocate_with => {colocated_with}{count})",
            "split by the space"
            + (
                ""
                if is_colocation_table
                else ", each shard on the machine of the same spaces' owners"
            ),
        )
    for table in under_policies:
        yield PlanStep(
            f"ALTER TABLE {table.qualified_name} FORCE ROW LEVEL SECURITY",
            "forced again, as before",
        )


def _distributed_tables(connection: Connection[Any]) -> set[str]:
    if not has_citus(connection):
        return set()
    rows = connection.execute(
        "SELECT c.relname FROM pg_dist_partition p JOIN pg_class c ON c.oid = p.logicalrelid "
        "WHERE c.relnamespace = $1::regnamespace",
        (SCHEMA_NAME,),
    ).fetchall()
    return {row[0] for row in rows}


# -- shared helpers -------------------------------------------------------------------------------


def _run(connection: Connection[Any], steps: Sequence[PlanStep]) -> None:
    for step in steps:
        connection.execute(step.sql.encode(), prepare=False)


def _require_no_other_sessions(connection: Connection[Any]) -> None:
    """Refuse if other sessions are connected: their open transactions would see empty tables."""
    (others,) = connection.execute(_COUNT_OTHER_SESSIONS).fetchall()[0]
    if others:
        raise StoreBusy(
            f"other connections of Reverie to this database: {others}. Stop its servers and "
            "workers, and repeat this; nothing was changed"
        )


def _tables(connection: Connection[Any]) -> list[_CatalogTable]:
    """Every table of the store, ordered so that referenced tables come first."""
    pending = {
        row[0]: _CatalogTable(*row)
        for row in connection.execute(_TABLES, (SCHEMA_NAME,)).fetchall()
    }
    ordered: list[_CatalogTable] = []
    while pending:
        ready = [
            name for name, table in pending.items() if not pending.keys() & set(table.refers_to)
        ]
        ordered += [pending.pop(name) for name in ready or list(pending)]
    return sorted(ordered, key=lambda table: table.name != COLOCATION_TABLE)


def _sharded_tables(tables: Sequence[_CatalogTable]) -> list[_CatalogTable]:
    return [table for table in tables if table.name not in REFERENCE_TABLES]


def _constraints(
    connection: Connection[Any], table: _CatalogTable, kinds: str
) -> list[tuple[str, str]]:
    return connection.execute(_CONSTRAINTS, (table.qualified_name, list(kinds))).fetchall()


def _indexes(connection: Connection[Any], table: _CatalogTable) -> list[str]:
    return [row[0] for row in connection.execute(_INDEXES, (table.qualified_name,)).fetchall()]


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _literal(value: str) -> str:
    return sql.Literal(value).as_string(None)
