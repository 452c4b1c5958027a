"""A pool of connections to one server.

A broken connection is replaced before it is used, unless it broke in the middle of a transaction. A
server that restarts or fails over is retried at short intervals for a fixed time, so that callers
go on soon after it is back.
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
# How long connecting to a lost server is retried.
RECONNECT_SECONDS = 5.0
RETRY_INTERVAL_SECONDS = 0.1
# Acknowledged is durable, whatever the server's default is.
_SET_SYNCHRONOUS_COMMIT = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)

# psycopg warns of lost connections that it also raises: not printed unless logging is set up.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

# The server drops a client that vanished, and its locks, within half a minute.
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
        opening: bool = False,
    ) -> None:
        self._opening = opening
        self._conninfo = conninfo
        self._busy_timeout = busy_timeout
        self._separate_statements = separate_statements
        self._search_path = search_path
        self._vector_type = vector_type
        self._free: list[Connection] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._waiting_slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._closed = False

    @property
    def _lock_timeout_ms(self) -> int:
        """The busy timeout in milliseconds; never 0, which would mean no limit."""
        return max(int(self._busy_timeout * 1000), 1)

    @contextlib.contextmanager
    def lease(self, patience: float = RECONNECT_SECONDS) -> Iterator[Lease]:
        """Lease a connection; when the block ends, an open transaction is rolled back."""
        # A write with ``wait=False`` does not wait for another writer, but it does wait here: a
        # connection becomes free whatever other writers do.
        longest = max(self._busy_timeout, RECONNECT_SECONDS)
        if not self._slots.acquire(timeout=longest if patience else 0.0):
            raise StoreBusy(f"all {MAX_CONNECTIONS} connections are in use: try again")
        lease = Lease(self, patience)
        try:
            try:
                yield lease
            finally:
                lease.end()
        finally:
            self._free_slot(lease)

    def release_slot(self) -> bool:
        """Give a lease's slot to others while it waits for a lock; False if too many did so."""
        left = self._waiting_slots.acquire(blocking=False)
        if left:
            self._slots.release()
        return left

    def reclaim_slot(self) -> bool:
        """Take the slot back if one is free. It never waits: the caller may hold locks."""
        taken = self._slots.acquire(blocking=False)
        if taken:
            self._waiting_slots.release()
        return taken

    def _free_slot(self, lease: Lease) -> None:
        (self._waiting_slots if lease.released_slot else self._slots).release()

    def take_idle(self) -> Connection | None:
        """An idle connection, or None."""
        with self._lock:
            return self._free.pop() if self._free else None

    def execute_all(self, connection: Connection, statements: Sequence[str]) -> psycopg.Cursor[Row]:
        """Execute statements in one round trip; return a cursor with the result of the last one.

        Citus sends the whole text that holds a SET to its workers: there each is sent separately.
        """
        for text in statements if self._separate_statements else ["; ".join(statements)]:
            cursor = connection.execute(text.encode(), prepare=False)
        while cursor.nextset():
            pass
        return cursor

    def take_back(self, connection: Connection) -> None:
        """Return a connection to the pool, or close it if it cannot be used again."""
        rollback(connection)
        with self._lock:
            usable = connection.info.transaction_status == TransactionStatus.IDLE
            if usable and not self._closed and len(self._free) < MAX_CONNECTIONS:
                self._free.append(connection)
                return
        connection.close()

    def connect(self) -> Connection:
        """Open a new connection with the settings of the store."""
        connection: Connection = psycopg.connect(
            self._conninfo,
            autocommit=True,
            prepare_threshold=2,
            cursor_factory=psycopg.RawCursor,
            # Shown to processes that wait for a lock of this connection.
            application_name=self._application_name(),
        )
        try:
            connection.prepared_max = 1_000
            # One type for every integer: otherwise a statement is prepared once for each size.
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
        """The application name of the address; the default one also names this process.

        Its first word is the same for all of Reverie's sessions. PostgreSQL keeps 63 bytes.
        """
        given = str(conninfo_to_dict(self._conninfo).get("application_name", ""))
        if given != dsn.APPLICATION_NAME:
            return given
        # An upgrade waits for no process that is only opening the store.
        what = "opening, process" if self._opening else "process"
        whole = f"{given} {what} {os.getpid()} on {socket.gethostname()}, {own_command()}"
        return whole.encode(errors="replace")[:63].decode(errors="ignore")

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._free = self._free, []
        for connection in idle:
            connection.close()


class Lease:
    """A connection leased from a pool, or ``held`` by the caller, for one transaction."""

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
        """Give up the pool's slot while waiting for a lock: transactions that wait for one writer
        must not use up the slots that all others need.
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
        """The connection; on first use one is taken from the pool or opened."""
        if self._connection is None:
            self.begin([""])
        assert self._connection is not None
        return self._connection

    def begin(self, statements: Sequence[str]) -> psycopg.Cursor[Row]:
        """Execute the first statements on a working connection, retrying while the server is lost.

        Returns a cursor with the result of the last one. Nothing came before them, so that they can
        be repeated on another connection.
        """
        if self._held is not None:
            return self.execute_all(statements)
        deadline = time.monotonic() + self._patience
        while True:
            self._connection = self.pool.take_idle()
            idle = self._connection is not None
            try:
                if self._connection is None:
                    self._connection = self.pool.connect()
                return self.execute_all(statements)
            except psycopg.errors.FeatureNotSupported as error:
                # On a standby, a read-write transaction already fails to begin.
                self._discard()
                raise psycopg.errors.ReadOnlySqlTransaction(str(error)) from error
            except psycopg.Error as error:
                self._discard()
                late = time.monotonic() >= deadline
                if not errors.is_connection_lost(error) or (late and not idle):
                    raise
                if not idle:
                    time.sleep(RETRY_INTERVAL_SECONDS)

    def execute_all(self, statements: Sequence[str]) -> psycopg.Cursor[Row]:
        """Execute statements in one round trip; return a cursor with the result of the last one."""
        return self.pool.execute_all(self.connection, statements)

    def end(self) -> None:
        """Roll back what is open, and return the connection to the pool or to its holder."""
        if self._connection is None:
            return
        if self._held is None:
            self.pool.take_back(self._connection)
        else:
            rollback(self._connection)

    def _discard(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def rollback(connection: Connection) -> None:
    """Roll back the open transaction, if any."""
    if connection.info.transaction_status not in {
        TransactionStatus.IDLE,
        TransactionStatus.UNKNOWN,
    }:
        # Through the driver, which then forgets statements whose preparation was rolled back.
        with contextlib.suppress(psycopg.Error):
            connection.rollback()
