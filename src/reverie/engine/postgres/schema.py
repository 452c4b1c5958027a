"""Creates and upgrades the tables of a PostgreSQL database when an engine opens it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from psycopg import Connection, errors
from psycopg.types import TypeInfo

from reverie.engine import schema, seals, upgrade
from reverie.engine.postgres import dsn, row_security, vectors
from reverie.engine.postgres.transaction import WRITER_LOCK, to_numbered_params
from reverie.engine.upgrade import UpgradeOptions
from reverie.errors import StoreBusy, StoreError, StoreReadOnly
from reverie.protocols import Row

log = logging.getLogger("reverie.postgres")

MIN_SERVER_VERSION = 150_000
SCHEMA_NAME = "reverie"
# The advisory lock that is held while the tables are created or changed.
SCHEMA_LOCK = 0x52455646
NO_PGVECTOR = (
    "this PostgreSQL has no pgvector: memories are found by their words alone, and their vectors "
    "are kept for the day it is there (CREATE EXTENSION vector)"
)
NEXT_SPACE = "SELECT COALESCE(MAX(space), 0) + 1 FROM spaces"
# Tables whose rows every write changes: half of each page is left free for the new row versions.
_HOT_TABLES = ("counters", "statistics", "due")
# Sessions of other processes that have this database open.
_OTHER_SESSIONS = """SELECT pid, application_name FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE $1
    ORDER BY backend_start, pid"""
# Without the role and the option, the policies fail a dump by a user who is not a superuser.
_DUMP = f"pg_dump --role={row_security.OPERATOR} --enable-row-security --format=custom"
# The tables that hold the rows of these tables: they themselves, or their partitions.
_PHYSICAL_TABLES = """SELECT c.oid::regclass::text FROM pg_class c
    LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.inhparent
    WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r'
    AND COALESCE(t.relname, c.relname) = ANY($2)"""


def prepare(
    connection: Connection[Row], shown_url: str, options: UpgradeOptions, *, read_only: bool
) -> TypeInfo | None:
    """Create or upgrade the tables; returns pgvector's type, or None where it is missing.

    Everything is one transaction, in which nobody else writes. ``shown_url`` is for messages.
    """
    if connection.info.server_version < MIN_SERVER_VERSION:
        raise StoreError(
            f"PostgreSQL {connection.info.server_version // 10_000} is too old: use 15 or newer"
        )
    connection.execute(f"SET search_path = {search_path(connection)}".encode())
    if not read_only:
        row_security.ensure_roles(connection)
    if _needs_upgrade(connection, read_only):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock($1)", (SCHEMA_LOCK,))
            version = read_version(connection)
            if version < schema.SCHEMA_VERSION:
                if version:
                    _require_alone(connection)
                    suggest_dump(shown_url, version, options)
                # Waits for writers, and holds up new ones, which then see the new schema.
                connection.execute("SELECT pg_advisory_xact_lock($1)", (WRITER_LOCK,))
                row_security.disable_policies(connection, SCHEMA_NAME)
                _upgrade(connection, version, options)
                row_security.enable_policies(connection, SCHEMA_NAME)
            _convert_vectors(connection)
    if not read_only:
        _sync_space_sequence(connection)
    vector_type = (
        TypeInfo.fetch(connection, "vector")
        if _vector_column_type(connection) == "vector"
        else None
    )
    if vector_type is None:
        log.warning(NO_PGVECTOR)
    return vector_type


def _needs_upgrade(connection: Connection[Row], read_only: bool) -> bool:
    version = read_version(connection)
    if version > schema.SCHEMA_VERSION:
        raise upgrade.newer_schema("the database", version)
    if version == schema.SCHEMA_VERSION:
        return (
            not read_only
            and _vector_column_type(connection) != "vector"
            and _has_pgvector(connection)
        )
    if read_only:
        raise StoreReadOnly("the database needs an upgrade: open it without mode=ro")
    return True


def _require_alone(connection: Connection[Row]) -> None:
    """Raise StoreBusy while other processes have the store open: the step would fail their calls.

    Those that start at the same moment, and wait for the lock on the schema, do not count.
    """
    rows = connection.execute(_OTHER_SESSIONS, (f"{dsn.APPLICATION_NAME} process %",)).fetchall()
    if rows:
        pid, name = rows[0]
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        raise StoreBusy(
            f"session {pid} ({name}){more} uses this database, which is about to be upgraded to "
            f"schema {schema.SCHEMA_VERSION}: stop every process of the earlier version, then "
            "start this one again"
        )


def suggest_dump(shown_url: str, version: int, options: UpgradeOptions) -> None:
    """Say how to keep a copy of a database that is about to be upgraded."""
    if options.backup:
        upgrade.logger.warning(
            "upgrading %s: to be able to go back to schema %d, stop this now and run first: %s",
            shown_url,
            version,
            f"{_DUMP} --file=reverie-schema-{version}.dump '{shown_url}'",
        )


def read_version(connection: Connection[Row]) -> int:
    """Read the schema of the store; 0 if there is none."""
    if (
        connection.execute("SELECT to_regclass($1)", (f"{SCHEMA_NAME}.meta",)).fetchall()[0][0]
        is None
    ):
        return 0
    with as_operator(connection):
        rows = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall()
    return int(rows[0][0]) if rows else 0


def _upgrade(connection: Connection[Row], found: int, options: UpgradeOptions) -> None:
    statements = _ConnectionStatements(connection)
    if not found:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA_NAME}".encode())
        connection.execute("CREATE SEQUENCE space_numbers")
    for number in range(found + 1, schema.SCHEMA_VERSION + 1):
        for statement in schema.STEPS[number - 1]:
            connection.execute(to_postgres(statement).encode())
        if number == schema.SEAL_STEP:
            seals.seal_store(statements, options.report("sealing the log"))
            # Refuse rows without a seal, from a process of an earlier version that is connected.
            connection.execute("ALTER TABLE log ALTER COLUMN seal DROP DEFAULT")
    if not found:
        connection.execute(vectors.TABLE.format(type=vectors.ARRAY_TYPE).encode())
    for (table,) in connection.execute(
        _PHYSICAL_TABLES, (SCHEMA_NAME, list(_HOT_TABLES))
    ).fetchall():
        connection.execute(f"ALTER TABLE {table} SET (fillfactor = 50)".encode())
    upgrade.mark_index(statements)
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('schema', $1) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (str(schema.SCHEMA_VERSION),),
    )


class _ConnectionStatements:
    """A connection as ``seals.Statements``."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._cursor = connection.cursor()

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._cursor.execute(to_numbered_params(sql), values).fetchall()

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._cursor.executemany(to_numbered_params(sql), rows)


def _sync_space_sequence(connection: Connection[Row]) -> None:
    with as_operator(connection):
        (last,) = connection.execute("SELECT last_value FROM space_numbers").fetchall()[0]
        if connection.execute("SELECT 1 FROM spaces WHERE space > $1 LIMIT 1", (last,)).fetchall():
            (first,) = connection.execute(NEXT_SPACE).fetchall()[0]
            connection.execute(advance_space_sequence(first).encode())


def advance_space_sequence(first: int) -> str:
    """The statement that lets new spaces get numbers from ``first`` on.

    Needed after rows were copied in with their space numbers. The sequence is a separate statement
    because with Citus it is on the coordinator, while the rows may be on any server.
    """
    return (
        f"SELECT setval('space_numbers', GREATEST(nextval('space_numbers'), {int(first)}), false)"
    )


@contextlib.contextmanager
def as_operator(connection: Connection[Row]) -> Iterator[None]:
    """Run the block as the operator role: with forced policies even the owner sees no rows."""
    with connection.transaction():
        connection.execute(row_security.SET_OPERATOR_ROLE.encode())
        yield
        # This may be inside another transaction, which goes on as the role it had.
        connection.execute(b"SET LOCAL ROLE NONE")


def to_postgres(statement: str) -> str:
    """A statement of the shared schema for PostgreSQL: texts are ordered by their bytes."""
    return statement.format(clustered="").replace("TEXT", 'TEXT COLLATE "C"')


# -- vectors --------------------------------------------------------------------------------------


def _convert_vectors(connection: Connection[Row]) -> None:
    """Convert the column of vectors to pgvector's type if pgvector is there now."""
    if _vector_column_type(connection) == "vector" or not _has_pgvector(connection):
        return
    connection.execute(vectors.CONVERT_TO_VECTOR.encode())
    row_security.grant_schema_usage(connection, _pgvector_schema(connection))


def _has_pgvector(connection: Connection[Row]) -> bool:
    """Whether pgvector is installed; it is installed now if that is possible."""
    if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchall():
        return True
    offered = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
    if not connection.execute(offered).fetchall():
        return False
    try:
        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
    except (errors.InsufficientPrivilege, errors.UndefinedFile):
        return False
    except errors.UniqueViolation:
        return True  # another server was quicker
    return True


def _vector_column_type(connection: Connection[Row]) -> str | None:
    rows: list[Any] = connection.execute(
        "SELECT t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE a.attrelid = to_regclass($1) AND a.attname = 'embedding'",
        (f"{SCHEMA_NAME}.vectors",),
    ).fetchall()
    return rows[0][0] if rows else None


def has_citus(connection: Connection[Row]) -> bool:
    """Whether the database has the Citus extension."""
    rows = connection.execute(
        "SELECT to_regclass('pg_dist_partition') IS NOT NULL "
        "AND EXISTS (SELECT 1 FROM pg_proc WHERE proname = 'create_distributed_table')"
    ).fetchall()
    return bool(rows[0][0])


def search_path(connection: Connection[Row]) -> str:
    """The schema of the tables first, then that of pgvector."""
    return ", ".join(dict.fromkeys([SCHEMA_NAME, _pgvector_schema(connection), "public"]))


def _pgvector_schema(connection: Connection[Row]) -> str:
    rows = connection.execute(
        "SELECT quote_ident(n.nspname) FROM pg_extension e "
        "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    ).fetchall()
    return rows[0][0] if rows else "public"
