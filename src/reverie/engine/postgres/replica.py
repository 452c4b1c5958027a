"""A standby that serves recalls. Who wrote reads its own writes."""

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

# A standby that did not answer is asked again after so long.
RETRY_SECONDS = 5.0

_TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer"
_CURRENT_LSN = f"SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, {_TIMELINE}"
# A timeline begins with each promotion: places on different ones cannot be compared. One that is
# itself a standby is on none, so that nothing can be its replica. What a standby has on its disk is
# never ahead of what it has replayed.
_SOURCE_QUERY = f"""SELECT system_identifier, d.oid::bigint,
    CASE WHEN pg_is_in_recovery() THEN {{recovering}} ELSE {_TIMELINE} END
    FROM pg_control_system(), pg_control_checkpoint() c, pg_control_recovery() r, pg_database d
    WHERE d.datname = current_database()"""
_PRIMARY_SOURCE = _SOURCE_QUERY.format(recovering="0")
_STANDBY_SOURCE = _SOURCE_QUERY.format(
    recovering="GREATEST(c.timeline_id, r.min_recovery_end_timeline)"
)


class ReplicationSource(NamedTuple):
    """Which database of which cluster, since which promotion."""

    cluster: int
    database: int
    timeline: int


class Replica:
    """A standby, and how far it must have come for this process to read from it."""

    def __init__(self, pool: ConnectionPool, primary: Connection) -> None:
        self.pool = pool
        self._source = _read_source(primary, _PRIMARY_SOURCE)
        self._confirmed: WeakKeyDictionary[Connection, ReplicationSource] = WeakKeyDictionary()
        self._needed = 0
        self._unknown = self._covered = 0
        self._away_until = 0.0
        self._lock = threading.Lock()

    def wait_for(self, connection: Connection) -> None:
        """What was committed on this connection must be there before it is read from here."""
        with self._lock:
            unknown = self._unknown
        try:
            row = connection.execute(_CURRENT_LSN).fetchone()
        except psycopg.Error:
            row = None
        with self._lock:
            if row is None:
                # Nobody knows where it was: a later write will be behind it.
                self._unknown += 1
                return
            self._needed = max(self._needed, int(row[0]))
            self._covered = max(self._covered, unknown)
            if row[1] > self._source.timeline:
                self._source = self._source._replace(timeline=row[1])

    def begin_read(self, lent: contextlib.ExitStack, begin: Sequence[str]) -> Lease | None:
        """A transaction on the standby, unless it is away or behind."""
        with self._lock:
            if self._covered < self._unknown or time.monotonic() < self._away_until:
                return None
            needed, course = self._needed, self._source
        with contextlib.ExitStack() as own:
            try:
                lease = own.enter_context(self.pool.lease(patience=0.0))
                connection = lease.connection
                # Before it begins: a snapshot can be older than what is replayed a moment later.
                row = connection.execute(
                    "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() - '0/0'::pg_lsn >= $1",
                    (needed,),
                ).fetchone()
                if row is None or not row[0] or not self._replicates_source(connection, course):
                    return None
                lease.execute_all(begin)
            except psycopg.Error as error:
                self._suspend(f"does not answer ({error})")
                return None
            except StoreBusy:
                return None
            lent.push(own.pop_all())
            return lease

    def _replicates_source(self, connection: Connection, course: ReplicationSource) -> bool:
        """Whether it replays what this primary writes; asked once, it stays so."""
        if self._confirmed.get(connection) == course:
            return True
        if _read_source(connection, _STANDBY_SOURCE) != course:
            self._suspend("does not follow this database")
            return False
        self._confirmed[connection] = course
        return True

    def _suspend(self, why: str) -> None:
        self._away_until = time.monotonic() + RETRY_SECONDS
        log.warning("the read replica %s: the primary does its work", why)


def _read_source(connection: Connection, statement: str) -> ReplicationSource:
    rows = connection.execute(statement.encode()).fetchall()
    return ReplicationSource(*rows[0])
