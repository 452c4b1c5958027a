"""Finds the PostgreSQL session that holds a lock that a writer waits for."""

from __future__ import annotations

from psycopg import Connection, Error

from reverie.engine.postgres import schema
from reverie.engine.postgres.transaction import WRITER_LOCK
from reverie.protocols import Row

_SESSION = """SELECT a.pid, a.application_name, a.state,
    EXTRACT(EPOCH FROM now() - a.state_change)::bigint FROM pg_stat_activity a """
# xmax of a locked or changed row is the transaction that did it, which locks its own id.
_ROW_LOCK_PIDS = """SELECT l.pid FROM pg_locks l JOIN counters c ON c.xmax = l.transactionid
    WHERE l.granted AND c.space = $1 AND l.pid <> pg_backend_pid()"""
_LONGEST_WRITER = f"""{_SESSION} JOIN pg_locks l ON l.pid = a.pid AND l.granted
    WHERE l.locktype = 'advisory' AND l.classid = 0 AND l.objid = ANY($1::bigint[]::oid[])
    AND a.datname = current_database() AND a.pid <> pg_backend_pid()
    ORDER BY a.xact_start NULLS LAST, a.pid LIMIT 1"""


def space_lock_holder(connection: Connection[Row], space: int | None) -> str | None:
    """Describe the session that holds the row in ``counters`` that writers of a space lock."""
    if space is None:
        return None
    try:
        with schema.as_operator(connection):
            pids = connection.execute(_ROW_LOCK_PIDS, (space,)).fetchall()
    except Error:  # with Citus the rows and their locks are on other servers
        return None
    # As the login user: pg_stat_activity shows less to the roles of the store.
    rows = [
        row
        for (pid,) in pids
        for row in connection.execute(f"{_SESSION} WHERE a.pid = $1".encode(), (pid,)).fetchall()
    ]
    return _describe_session(rows[0]) if rows else None


def longest_writer(connection: Connection[Row]) -> str | None:
    """Describe the session that has been writing or changing the tables for longest."""
    rows = connection.execute(_LONGEST_WRITER, ([WRITER_LOCK, schema.SCHEMA_LOCK],)).fetchall()
    return _describe_session(rows[0]) if rows else None


def _describe_session(row: Row) -> str:
    pid, name, state, seconds = row
    description = f"session {pid} ({name})" if name else f"session {pid}"
    if str(state).startswith("idle"):
        return f"{description}, which has done nothing for {seconds} s,"
    return description
