"""Connections to one server, lent and taken back.

One that broke is replaced before anybody notices, unless it broke in the middle of a transaction. A
server that restarts or fails over is waited for: a fixed time, at short intervals, so that nobody
waits longer than needed once it is back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo
from psycopg.types.numeric import Int8BinaryDumper

from reverie.engine.base import BUSY_TIMEOUT
from reverie.engine.postgres import dsn, errors, vectors
from reverie.engine.sqlite.file_lock import own_command
from reverie.errors import StoreBusy
from reverie.protocols import Row

MAX_CONNECTIONS = 16
# How long a lost server is waited for.
RECONNECT_SECONDS = 5.0
RETRY_INTERVAL_SECONDS = 0.1
# Acknowledged is durable, whatever the server's default is.
_SET_SYNCHRONOUS_COMMIT = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)

# What it warns of when a connection is lost is raised as well; it is for who wants to hear it.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

# A client that is gone without a word lets go of its locks within half a minute.
_SET_KEEPALIVES = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)

Connection = psycopg.Connection[Row]


class ConnectionPool:
    """The connections of one process to one server."""

    def __init__(
        self,
        conninfo: str,
        search_path: str,
        vector_type: TypeInfo | None = None,
        *,
        separate_statements: bool = False,
        busy_timeout: float = BUSY_TIMEOUT,
    ) -> None:
        self._conninfo = conninfo
        self._busy_timeout = busy_timeout
        self._separate_statements = separate_statements
        self._search_path = search_path
        self._vector_type = vector_type
        self._free: list[Connection] = []
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._waiting_places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._closed = False

    @property
    def _lock_timeout_ms(self) -> int:
        """Never 0, which would wait for ever."""
        return max(int(self._busy_timeout * 1000), 1)

    @contextlib.contextmanager
    def lease(self, patience: float = RECONNECT_SECONDS) -> Iterator[Lease]:
        """A connection to be taken back in the end; what was begun on it is undone."""
        # Places come free without another writer's doing: even who waits for none waits for these.
        longest = max(self._busy_timeout, RECONNECT_SECONDS)
        if not self._places.acquire(timeout=longest if patience else 0.0):
            raise StoreBusy(f"all {MAX_CONNECTIONS} connections are in use: try again")
        lease = Lease(self, patience)
        try:
            try:
                yield lease
            finally:
                lease.end()
        finally:
            self._end_place(lease)

    def release_slot(self) -> bool:
        """Let somebody else have the place, as far as there may be more connections."""
        left = self._waiting_places.acquire(blocking=False)
        if left:
            self._places.release()
        return left

    def reclaim_slot(self) -> bool:
        """Without waiting: whoever asks holds locks that others may wait for."""
        taken = self._places.acquire(blocking=False)
        if taken:
            self._waiting_places.release()
        return taken

    def _end_place(self, lease: Lease) -> None:
        (self._waiting_places if lease.released_slot else self._places).release()

    def pop(self) -> Connection | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def execute_all(self, connection: Connection, statements: Sequence[str]) -> None:
        """Statements whose answers nobody reads, in one go.

        Citus tells the whole text in which a setting stands to its workers: there each goes alone.
        """
        for text in statements if self._separate_statements else ["; ".join(statements)]:
            connection.execute(text.encode(), prepare=False)

    def take_back(self, connection: Connection) -> None:
        rollback(connection)
        with self._lock:
            usable = connection.info.transaction_status == TransactionStatus.IDLE
            if usable and not self._closed and len(self._free) < MAX_CONNECTIONS:
                self._free.append(connection)
                return
        connection.close()

    def connect(self) -> Connection:
        connection: Connection = psycopg.connect(
            self._conninfo,
            autocommit=True,
            prepare_threshold=2,
            cursor_factory=psycopg.RawCursor,
            # Who waits for a lock of ours is told who we are.
            application_name=self._application_name(),
        )
        try:
            connection.prepared_max = 1_000
            # Whatever its size: one statement is prepared once.
            connection.adapters.register_dumper(int, Int8BinaryDumper)
            connection.execute(
                (
                    f"SET search_path = {self._search_path}; SET jit = off; "
                    f"SET lock_timeout = {self._lock_timeout_ms}; {_SET_KEEPALIVES}; "
                    f"{_SET_SYNCHRONOUS_COMMIT}"
                ).encode()
            )
            if self._vector_type is not None:
                vectors.register(connection, self._vector_type)
        except BaseException:
            connection.close()
            raise
        return connection

    def _application_name(self) -> str:
        """The name of the address; ours goes on with which process it is, as far as there is room.

        The first word tells all of Reverie's sessions.
        """
        given = str(conninfo_to_dict(self._conninfo).get("application_name", ""))
        if given != dsn.APPLICATION_NAME:
            return given
        whole = f"{given} process {os.getpid()} on {socket.gethostname()}, {own_command()}"
        return whole.encode(errors="replace")[:63].decode(errors="ignore")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._free = self._free, []
        for connection in idle:
            connection.close()


class Lease:
    """A connection of a pool, or one that somebody holds, for as long as it is lent."""

    def __init__(
        self, pool: ConnectionPool, patience: float, held: Connection | None = None
    ) -> None:
        self.pool = pool
        self._patience = patience
        self._held = held
        self._connection = held
        self.released_slot = False

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While it waits for a lock it takes no place: those who wait for one writer must not keep
        the connections that everybody else needs.
        """
        if self._held is None and not self.released_slot:
            self.released_slot = self.pool.release_slot()
        try:
            yield
        finally:
            if self.released_slot:
                self.released_slot = not self.pool.reclaim_slot()

    @property
    def connection(self) -> Connection:
        """The connection; one that answers, if it was not used yet."""
        if self._connection is None:
            self.begin([""])
        assert self._connection is not None
        return self._connection

    def begin(self, statements: Sequence[str]) -> None:
        """Say this first, to a connection that answers. Nothing came before it: it can be said
        again to another one, and a server that is away is waited for.
        """
        if self._held is not None:
            self.execute_all(statements)
            return
        deadline = time.monotonic() + self._patience
        while True:
            self._connection = self.pool.pop()
            idle = self._connection is not None
            try:
                if self._connection is None:
                    self._connection = self.pool.connect()
                self.execute_all(statements)
                return
            except psycopg.errors.FeatureNotSupported as error:
                # A transaction that would write cannot even begin on a standby.
                self._give_up()
                raise psycopg.errors.ReadOnlySqlTransaction(str(error)) from error
            except psycopg.Error as error:
                self._give_up()
                late = time.monotonic() >= deadline
                if not errors.is_connection_lost(error) or (late and not idle):
                    raise
                if not idle:
                    time.sleep(RETRY_INTERVAL_SECONDS)

    def execute_all(self, statements: Sequence[str]) -> None:
        self.pool.execute_all(self.connection, statements)

    def end(self) -> None:
        if self._connection is None:
            return
        if self._held is None:
            self.pool.take_back(self._connection)
        else:
            rollback(self._connection)

    def _give_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def rollback(connection: Connection) -> None:
    """End what was begun and not committed."""
    if connection.info.transaction_status not in {
        TransactionStatus.IDLE,
        TransactionStatus.UNKNOWN,
    }:
        # Through the driver: it then forgets statements that it only believes to be prepared.
        with contextlib.suppress(psycopg.Error):
            connection.rollback()
