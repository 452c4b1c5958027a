"""Which session of PostgreSQL holds a lock that a writer waits for."""

from __future__ import annotations

from psycopg import Connection, Error

from reverie.engine.postgres import schema
from reverie.engine.postgres.transaction import WRITER_LOCK
from reverie.protocols import Row

_SESSION = """SELECT a.pid, a.application_name, a.state,
    EXTRACT(EPOCH FROM now() - a.state_change)::bigint FROM pg_stat_activity a """
# A row that is locked or changed carries the transaction that did it, which holds its own number.
_ROW_LOCK_PIDS = """SELECT l.pid FROM pg_locks l JOIN counters c ON c.xmax = l.transactionid
    WHERE l.granted AND c.space = $1 AND l.pid <> pg_backend_pid()"""
_LONGEST_WRITER = f"""{_SESSION} JOIN pg_locks l ON l.pid = a.pid AND l.granted
    WHERE l.locktype = 'advisory' AND l.classid = 0 AND l.objid = ANY($1::bigint[]::oid[])
    AND a.datname = current_database() AND a.pid <> pg_backend_pid()
    ORDER BY a.xact_start NULLS LAST, a.pid LIMIT 1"""


def space_lock_holder(connection: Connection[Row], space: int | None) -> str | None:
    """Who holds the row that writers of a space take turns on, in words."""
    if space is None:
        return None
    try:
        with schema.as_operator(connection):
            found = connection.execute(_ROW_LOCK_PIDS, (space,)).fetchall()
    except Error:  # where rows are on other servers, their locks are as well
        return None
    # As the user who logged in: a role of the store is told less of its own sessions.
    rows = [
        row
        for (pid,) in found
        for row in connection.execute(f"{_SESSION} WHERE a.pid = $1".encode(), (pid,)).fetchall()
    ]
    return _describe_session(rows[0]) if rows else None


def longest_writer(connection: Connection[Row]) -> str | None:
    """Who has been writing, or changing the tables, for longest, in words."""
    rows = connection.execute(_LONGEST_WRITER, ([WRITER_LOCK, schema.SCHEMA_LOCK],)).fetchall()
    return _describe_session(rows[0]) if rows else None


def _describe_session(row: Row) -> str:
    pid, name, state, seconds = row
    said = f"session {pid} ({name})" if name else f"session {pid}"
    if str(state).startswith("idle"):
        return f"{said}, which has done nothing for {seconds} s,"
    return said
