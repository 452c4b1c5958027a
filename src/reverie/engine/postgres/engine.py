"""PostgreSQL through psycopg: many servers share one store, every acknowledged write is synced.

A read is one snapshot. A write runs at READ COMMITTED: writers of one space wait for each other on
its row in ``counters``, writers of different spaces do not wait. Every transaction sets whose rows
it may see, and row-level security policies enforce it (``row_security``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from reverie.engine import schema, table_copy
from reverie.engine.base import BUSY_TIMEOUT, BaseEngine
from reverie.engine.postgres import dsn, errors, lock_holders, row_security
from reverie.engine.postgres import schema as postgres_schema
from reverie.engine.postgres.pool import Connection, ConnectionPool, Lease
from reverie.engine.postgres.replica import Replica
from reverie.engine.postgres.transaction import WRITER_LOCK, PostgresTransaction
from reverie.engine.postgres.vectors import PostgresVectors
from reverie.engine.sqlite import store_file
from reverie.engine.sqlite.engine import SQLiteEngine
from reverie.engine.upgrade import UpgradeOptions
from reverie.errors import StoreBusy, StoreError, StoreReadOnly, StoreUnavailable

_APPLICATION = f"SET LOCAL ROLE {row_security.APPLICATION}"
_READ = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", _APPLICATION)
_WRITE = ("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", _APPLICATION)
_NO_LOCK_WAIT = "SET LOCAL lock_timeout = 1"
# Older snapshots of sessions here and on standbys, and prepared transactions (two-phase commit).
_COUNT_OLDER_SNAPSHOTS = """SELECT COUNT(*) FROM (
    SELECT backend_xmin AS seen FROM pg_stat_activity WHERE pid <> pg_backend_pid()
        AND (datname = current_database() OR datname IS NULL)
    UNION ALL SELECT xmin FROM pg_replication_slots
    UNION ALL SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()) s
    WHERE age(seen) > age($1::xid)"""


class PostgresEngine(BaseEngine[PostgresTransaction]):
    """A store in a PostgreSQL database; methods without a docstring: see ``protocols.Engine``."""

    def __init__(
        self,
        url: str,
        read_url: str = "",
        busy_timeout: float = BUSY_TIMEOUT,
        upgrade_options: UpgradeOptions | None = None,
    ) -> None:
        super().__init__()
        self._upgrade_options = upgrade_options or UpgradeOptions()
        self._busy_timeout = busy_timeout
        address = dsn.parse(url)
        self.url, self.read_only = address.shown, address.read_only
        bootstrap_pool = ConnectionPool(
            address.conninfo,
            f"{postgres_schema.SCHEMA_NAME}, public",
            busy_timeout=busy_timeout,
            opening=True,
        )
        with (
            errors.translating_errors(self.url),
            contextlib.closing(bootstrap_pool.connect()) as connection,
        ):
            try:
                vector_type = postgres_schema.prepare(
                    connection, self.url, self._upgrade_options, read_only=self.read_only
                )
            except psycopg.errors.LockNotAvailable as error:
                raise self._busy_error(lock_holders.longest_writer(connection)) from error
            search_path = postgres_schema.search_path(connection)
            has_citus = postgres_schema.has_citus(connection)
            self._replica: Replica | None = None
            if read_url:
                standby_pool = ConnectionPool(
                    dsn.parse(read_url).conninfo, search_path, vector_type
                )
                self._replica = Replica(standby_pool, connection)
        self._pool = ConnectionPool(
            address.conninfo,
            search_path,
            vector_type,
            separate_statements=has_citus,
            busy_timeout=busy_timeout,
        )
        self.supports_vector_search = vector_type is not None
        self._vectors = PostgresVectors(has_pgvector=self.supports_vector_search)

    # -- transactions -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _begin_read(self, allow_replica: bool) -> Iterator[PostgresTransaction]:
        with errors.translating_errors(self.url), contextlib.ExitStack() as leases:
            replica_lease = None
            if allow_replica and self._replica is not None:
                replica_lease = self._replica.begin_read(leases, _READ)
            lease = replica_lease or leases.enter_context(self._lease_connection())
            own = PostgresTransaction(
                lease,
                () if replica_lease else _READ,
                self._vectors,
                writing=False,
                damaged=self.damaged,
            )
            with self._as_current(own) as tx:
                yield tx
                tx.commit()

    @contextlib.contextmanager
    def _begin_write(self, wait: bool) -> Iterator[PostgresTransaction]:
        begin = _WRITE if wait else (*_WRITE, _NO_LOCK_WAIT)
        with self._reporting_lock_holder(wait) as waiting, self._lease_connection() as lease:
            own = PostgresTransaction(
                lease,
                begin,
                self._vectors,
                writing=True,
                damaged=self.damaged,
                require_known_schema=self._require_known_schema,
            )
            waiting.append(own)
            with self._as_current(own) as tx:
                yield tx
                tx.commit()
            if self._replica is not None:
                self._replica.require_replayed(lease.connection)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        self._require_usable()
        if getattr(self._thread, "held", None) is not None:
            yield
            return
        with self._reporting_lock_holder(), self._pool.lease() as lease:
            connection = lease.connection
            try:
                connection.execute("SELECT pg_advisory_lock($1)", (WRITER_LOCK,))
                self._thread.held = connection
                yield
            finally:
                self._thread.held = None
                with contextlib.suppress(psycopg.Error):
                    connection.execute("SELECT pg_advisory_unlock($1)", (WRITER_LOCK,))

    @contextlib.contextmanager
    def _reporting_lock_holder(self, wait: bool = True) -> Iterator[list[PostgresTransaction]]:
        """Translate PostgreSQL's errors; a lock timeout becomes StoreBusy that names the holder.

        The block appends its transaction to the list, which tells what space it waited for.
        """
        waiting: list[PostgresTransaction] = []
        with errors.translating_errors(self.url):
            try:
                yield waiting
            except psycopg.errors.LockNotAvailable as error:
                space = waiting[0].waiting_for_space if waiting else None
                raise self._busy_error(self._describe_holder(space), wait=wait) from error

    def _busy_error(self, holder: str | None, *, wait: bool = True) -> StoreBusy:
        return StoreBusy(
            f"{holder or 'another session'} is writing to {self.url} and did not end within "
            f"{self._busy_timeout if wait else 0:g} s: try again; repeat a write with the same key"
        )

    def _describe_holder(self, space: int | None) -> str | None:
        """Describe the session that holds a space's lock, else the one writing for longest."""
        with contextlib.suppress(psycopg.Error, StoreError), self._connected() as connection:
            return lock_holders.space_lock_holder(connection, space) or lock_holders.longest_writer(
                connection
            )
        return None

    @contextlib.contextmanager
    def table_owner_transaction(self) -> Iterator[Connection]:
        """A transaction as the owner of the tables, to change them. Nobody else can write."""
        if self.read_only:
            raise StoreReadOnly(
                f"{self.url} was opened with mode=ro: open it without that to change it"
            )
        with self.exclusive(), self._lease_connection() as lease:
            lease.begin(["BEGIN ISOLATION LEVEL READ COMMITTED"])
            yield lease.connection
            lease.connection.execute("COMMIT")

    @contextlib.contextmanager
    def _lease_connection(self) -> Iterator[Lease]:
        """Lease a connection; inside ``exclusive`` it is the one that holds the lock."""
        held: Connection | None = getattr(self._thread, "held", None)
        if held is None:
            with self._pool.lease() as lease:
                yield lease
            return
        lease = Lease(self._pool, 0.0, held)
        try:
            yield lease
        finally:
            lease.end()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        with self._pool.lease() as lease:
            yield lease.connection

    # -- maintenance --------------------------------------------------------------------------

    def scrub(self, erased: Sequence[str] = ()) -> bool:
        """Remove dead rows with VACUUM; False while an older snapshot may still see them."""
        self._require_usable()
        try:
            with errors.translating_errors(self.url), self._connected() as connection:
                # Rows that were deleted before now have a lower transaction id than this one.
                ((now,),) = connection.execute("SELECT pg_current_xact_id()::xid::text").fetchall()
                ((older_snapshots,),) = connection.execute(
                    _COUNT_OLDER_SNAPSHOTS, (now,)
                ).fetchall()
                connection.execute(f"VACUUM {', '.join(self._tables(connection))}".encode())
                # VACUUM skips a table that this user does not own.
                ((skipped_tables,),) = connection.execute(
                    "SELECT COUNT(*) FROM pg_class WHERE relnamespace = $1::regnamespace "
                    "AND relkind IN ('r', 'p') AND NOT pg_has_role(relowner, 'USAGE')",
                    (postgres_schema.SCHEMA_NAME,),
                ).fetchall()
        except (StoreBusy, StoreUnavailable):
            # The erasure itself is done; a job repeats the scrub later.
            return False
        return not older_snapshots and not skipped_tables

    def _tables(self, connection: Connection) -> list[str]:
        rows = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = $1::regnamespace "
            "AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1",
            (postgres_schema.SCHEMA_NAME,),
        ).fetchall()
        return [row[0] for row in rows]

    def _current_schema(self) -> int | None:
        with contextlib.suppress(psycopg.Error, StoreError), self._connected() as connection:
            return postgres_schema.read_version(connection)
        return None

    def backup_before_rebuild(self) -> None:
        """Say how to keep a copy: a database is backed up with its own tools."""
        postgres_schema.suggest_dump(self.url, schema.SCHEMA_VERSION, self._upgrade_options)

    def backup(self, target: Path) -> None:
        """Write a backup: a SQLite store in one file that holds the same rows."""
        self._require_usable()
        with (
            store_file.new_file(target),
            self.read() as old,
            contextlib.closing(SQLiteEngine(str(target))) as copy,
        ):
            old.enter_all_owners()
            with copy.write() as new:
                table_copy.copy_rows(old, new)
            copy.vacuum()
        for suffix in ("-wal", "-shm", "-lock"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)

    def restore(self, source: Path) -> None:
        """Replace everything with a backup, in one transaction: other servers see one change."""
        with (
            self.exclusive(),
            contextlib.closing(SQLiteEngine(str(source))) as copy,
            copy.read() as old,
            self.write() as new,
        ):
            new.enter_all_owners()
            table_copy.delete_rows(new)
            table_copy.copy_rows(old, new)
            new.all(
                postgres_schema.advance_space_sequence(new.all(postgres_schema.NEXT_SPACE)[0][0])
            )
        self._vectors = PostgresVectors(has_pgvector=self.supports_vector_search)

    def check(self) -> list[str]:
        self._require_usable()
        with errors.translating_errors(self.url), self._connected() as connection:
            unsafe = connection.execute(
                "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') "
                "AND setting = 'off' ORDER BY name"
            ).fetchall()
            invalid = connection.execute(
                "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid "
                "AND indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = $1::regnamespace)",
                (postgres_schema.SCHEMA_NAME,),
            ).fetchall()
        return [
            *(
                f"{row[0]} is off: a crash of the server can lose what it acknowledged"
                for row in unsafe
            ),
            *(f"the index {row[0]} is not valid: run REINDEX INDEX {row[0]}" for row in invalid),
        ]

    def describe(self) -> Mapping[str, Any]:
        with self.read() as tx:
            (server, size) = tx.one(
                "SELECT current_setting('server_version'), pg_database_size(current_database())"
            ) or ("", 0)
            row = tx.one("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        return {
            "engine": f"PostgreSQL {server.split()[0]} (psycopg {psycopg.__version__})",
            "database": self.url,
            "bytes": size,
            "schema": schema.SCHEMA_VERSION,
            "pgvector": row[0] if row and self.supports_vector_search else "none",
        }

    def vacuum(self) -> None:
        self._require_usable()
        with errors.translating_errors(self.url), self._connected() as connection:
            connection.execute(
                f"VACUUM (FULL, ANALYZE) {', '.join(self._tables(connection))}".encode()
            )

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        self._closed = True
        self._pool.close()
        if self._replica is not None:
            self._replica.pool.close()
