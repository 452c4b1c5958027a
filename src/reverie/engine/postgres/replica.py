"""A standby that serves recalls, with read-your-writes: a process always sees what it wrote."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import psycopg

from reverie.engine.postgres.pool import Connection, ConnectionPool, Lease
from reverie.errors import StoreBusy

log = logging.getLogger("reverie.postgres")

# A standby that failed is not used for this long.
RETRY_SECONDS = 5.0

_TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer"
_CURRENT_LSN = f"SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, {_TIMELINE}"
# A timeline begins with each promotion: WAL positions on different timelines cannot be compared. A
# primary that is itself a standby has timeline 0, which no replica has. The timeline that a standby
# has on its disk is never ahead of the one it has replayed.
_SOURCE_QUERY = f"""SELECT system_identifier, d.oid::bigint,
    CASE WHEN pg_is_in_recovery() THEN {{recovering}} ELSE {_TIMELINE} END
    FROM pg_control_system(), pg_control_checkpoint() c, pg_control_recovery() r, pg_database d
    WHERE d.datname = current_database()"""
_PRIMARY_SOURCE = _SOURCE_QUERY.format(recovering="0")
_STANDBY_SOURCE = _SOURCE_QUERY.format(
    recovering="GREATEST(c.timeline_id, r.min_recovery_end_timeline)"
)


class ReplicationSource(NamedTuple):
    """The database that a standby replicates: cluster, database and timeline."""

    cluster: int
    database: int
    timeline: int


class Replica:
    """A standby, and the WAL position it must have replayed before this process reads from it."""

    def __init__(self, pool: ConnectionPool, primary: Connection) -> None:
        self.pool = pool
        self._source = _read_source(primary, _PRIMARY_SOURCE)
        self._confirmed: WeakKeyDictionary[Connection, ReplicationSource] = WeakKeyDictionary()
        self._needed = 0
        self._unknown = self._covered = 0
        self._away_until = 0.0
        self._lock = threading.Lock()

    def require_replayed(self, connection: Connection) -> None:
        """Note the WAL position after a commit on this connection as the one to be replayed."""
        with self._lock:
            unknown = self._unknown
        try:
            row = connection.execute(_CURRENT_LSN).fetchone()
        except psycopg.Error:
            row = None
        with self._lock:
            if row is None:
                # The position is unknown, but that of a later write will be after it.
                self._unknown += 1
                return
            self._needed = max(self._needed, int(row[0]))
            self._covered = max(self._covered, unknown)
            if row[1] > self._source.timeline:
                self._source = self._source._replace(timeline=row[1])

    def begin_read(self, lent: contextlib.ExitStack, begin: Sequence[str]) -> Lease | None:
        """Begin a transaction on the standby; None if it is unavailable or lags behind."""
        with self._lock:
            if self._covered < self._unknown or time.monotonic() < self._away_until:
                return None
            needed, source = self._needed, self._source
        with contextlib.ExitStack() as own:
            try:
                lease = own.enter_context(self.pool.lease(patience=0.0))
                connection = lease.connection
                # Checked before the snapshot is taken, which then includes what was replayed.
                row = connection.execute(
                    "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() - '0/0'::pg_lsn >= $1",
                    (needed,),
                ).fetchone()
                if row is None or not row[0] or not self._replicates_source(connection, source):
                    return None
                lease.execute_all(begin)
            except psycopg.Error as error:
                self._suspend(f"does not answer ({error})")
                return None
            except StoreBusy:
                return None
            lent.push(own.pop_all())
            return lease

    def _replicates_source(self, connection: Connection, source: ReplicationSource) -> bool:
        """Whether the standby replicates this primary; confirmed once for each connection."""
        if self._confirmed.get(connection) == source:
            return True
        if _read_source(connection, _STANDBY_SOURCE) != source:
            self._suspend("does not follow this database")
            return False
        self._confirmed[connection] = source
        return True

    def _suspend(self, why: str) -> None:
        self._away_until = time.monotonic() + RETRY_SECONDS
        log.warning("the read replica %s: the primary is read instead", why)


def _read_source(connection: Connection, statement: str) -> ReplicationSource:
    rows = connection.execute(statement.encode()).fetchall()
    return ReplicationSource(*rows[0])
