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

from reverie.engine.postgres.pool import Connection, Lease, Pool
from reverie.errors import StoreBusy

log = logging.getLogger("reverie.postgres")

# A standby that did not answer is asked again after so long.
AWAY_SECONDS = 5.0

_TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer"
_WRITTEN = f"SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, {_TIMELINE}"
# A timeline begins with each promotion: places on different ones cannot be compared. One that is
# itself a standby is on none, so that nothing can be its replica. What a standby has on its disk is
# never ahead of what it has replayed.
_COURSE = f"""SELECT system_identifier, d.oid::bigint,
    CASE WHEN pg_is_in_recovery() THEN {{recovering}} ELSE {_TIMELINE} END
    FROM pg_control_system(), pg_control_checkpoint() c, pg_control_recovery() r, pg_database d
    WHERE d.datname = current_database()"""
_OF_PRIMARY = _COURSE.format(recovering="0")
_OF_STANDBY = _COURSE.format(recovering="GREATEST(c.timeline_id, r.min_recovery_end_timeline)")


class Course(NamedTuple):
    """Which database of which cluster, since which promotion."""

    cluster: int
    database: int
    timeline: int


class Replica:
    """A standby, and how far it must have come for this process to read from it."""

    def __init__(self, pool: Pool, primary: Connection) -> None:
        self.pool = pool
        self._course = _course(primary, _OF_PRIMARY)
        self._confirmed: WeakKeyDictionary[Connection, Course] = WeakKeyDictionary()
        self._needed = 0
        self._unknown = self._covered = 0
        self._away_until = 0.0
        self._lock = threading.Lock()

    def wait_for(self, connection: Connection) -> None:
        """What was committed on this connection must be there before it is read from here."""
        with self._lock:
            unknown = self._unknown
        try:
            row = connection.execute(_WRITTEN).fetchone()
        except psycopg.Error:
            row = None
        with self._lock:
            if row is None:
                # Nobody knows where it was: a later write will be behind it.
                self._unknown += 1
                return
            self._needed = max(self._needed, int(row[0]))
            self._covered = max(self._covered, unknown)
            if row[1] > self._course.timeline:
                self._course = self._course._replace(timeline=row[1])

    def begun(self, lent: contextlib.ExitStack, begin: Sequence[str]) -> Lease | None:
        """A transaction on the standby, unless it is away or behind."""
        with self._lock:
            if self._covered < self._unknown or time.monotonic() < self._away_until:
                return None
            needed, course = self._needed, self._course
        with contextlib.ExitStack() as own:
            try:
                lease = own.enter_context(self.pool.lent(patience=0.0))
                connection = lease.connection
                # Before it begins: a snapshot can be older than what is replayed a moment later.
                row = connection.execute(
                    "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() - '0/0'::pg_lsn >= $1",
                    (needed,),
                ).fetchone()
                if row is None or not row[0] or not self._follows(connection, course):
                    return None
                lease.tell(begin)
            except psycopg.Error as error:
                self._leave(f"does not answer ({error})")
                return None
            except StoreBusy:
                return None
            lent.push(own.pop_all())
            return lease

    def _follows(self, connection: Connection, course: Course) -> bool:
        """Whether it replays what this primary writes; asked once, it stays so."""
        if self._confirmed.get(connection) == course:
            return True
        if _course(connection, _OF_STANDBY) != course:
            self._leave("does not follow this database")
            return False
        self._confirmed[connection] = course
        return True

    def _leave(self, why: str) -> None:
        self._away_until = time.monotonic() + AWAY_SECONDS
        log.warning("the read replica %s: the primary does its work", why)


def _course(connection: Connection, statement: str) -> Course:
    rows = connection.execute(statement.encode()).fetchall()
    return Course(*rows[0])
