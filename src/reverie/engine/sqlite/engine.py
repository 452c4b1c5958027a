"""SQLite through apsw: one file, many processes and threads, every acknowledged write synced.

Connections come from a pool and are never used by two threads at once. A writer takes a file lock
before ``BEGIN IMMEDIATE``: waiting writers then queue in the kernel instead of polling, until the
busy timeout ends their wait (``file_lock``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import urllib.parse
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from reverie.engine import schema, seals, upgrade
from reverie.engine.base import BUSY_TIMEOUT, BaseEngine
from reverie.engine.sqlite import errors, file_lock, planner_stats, store_file, upgrade_backup
from reverie.engine.sqlite.file_lock import FileLock
from reverie.engine.sqlite.transaction import SQLiteTransaction
from reverie.engine.sqlite.vectors import VectorBlocks, VectorCache
from reverie.engine.upgrade import UpgradeOptions
from reverie.errors import (
    InvalidInput,
    ReverieError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
)

# Older versions can corrupt a shared file when a writer and a checkpoint race.
MIN_SQLITE_VERSION = (3, 51, 3)
_INCREMENTAL = 2
_FULL = 2

# Settings that the file keeps. auto_vacuum must be set before the first table, and before WAL mode
# writes page one. Setting either takes a write lock, so only the creator of the file sets them.
FILE_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    ("auto_vacuum", "INCREMENTAL", _INCREMENTAL),
    ("journal_mode", "WAL", "wal"),
)
# Each connection has its own page cache, and a commit on one empties those of all others. A server
# has as many connections as requests at once: with large caches it would hold as many copies of the
# file. One connection, used first, has room for the pages of a recall among 100,000 memories; the
# others read from the system's page cache, at 1.2 µs a page.
MAIN_CACHE_KIB = 8_192
EXTRA_CACHE_KIB = 1_024

CONNECTION_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    # SQLite ignores errors of its automatic checkpoints; those in SQLiteEngine.write are raised.
    ("wal_autocheckpoint", "0", 0),
    ("synchronous", "FULL", _FULL),
    ("foreign_keys", "ON", 1),
    ("secure_delete", "ON", 1),
    ("temp_store", "MEMORY", 2),
    ("cache_size", f"-{EXTRA_CACHE_KIB}", -EXTRA_CACHE_KIB),
    ("mmap_size", "0", 0),
)


def require_safe_sqlite() -> None:
    """Refuse a version of SQLite that can corrupt a store."""
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < MIN_SQLITE_VERSION:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a shared file: "
            "pip install --upgrade apsw"
        )


def set_pragmas(connection: apsw.Connection, pragmas: Sequence[tuple[str, str, object]]) -> None:
    """Set PRAGMAs and read each back: SQLite ignores one it does not support without an error."""
    for name, value, expected in pragmas:
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
        row = connection.execute(f"PRAGMA {name}").fetchone()
        if row is not None and row[0] != expected:
            raise StoreError(f"SQLite refused PRAGMA {name} = {value} (it is {row[0]})")


SCRUB_TIMEOUT_MS = 1_000
CHECKPOINT_PAGES = 1_000


class SQLiteEngine(BaseEngine[SQLiteTransaction]):
    """A store in a SQLite file; methods without a docstring: see ``protocols.Engine``."""

    supports_vector_search = True

    def __init__(
        self,
        url: str,
        busy_timeout: float = BUSY_TIMEOUT,
        upgrade_options: UpgradeOptions | None = None,
    ) -> None:
        require_safe_sqlite()
        super().__init__()
        self._upgrade_options = upgrade_options or UpgradeOptions()
        self._busy_timeout = busy_timeout
        self.path, options = store_file.parse_url(url)
        self.url = f"sqlite://{urllib.parse.quote(str(self.path))}"
        self.read_only = options.get("mode") == "ro"
        self._vfs = options.get("vfs")
        self._free: list[apsw.Connection] = []
        self._borrowed: set[apsw.Connection] = set()
        self._main: apsw.Connection | None = None
        self._pool_lock = threading.Lock()
        self._write_lock = threading.RLock()
        self._lock_depth = 0
        self._vectors = VectorCache()
        self._wal_pages = 0
        self._immutable_fingerprint: tuple[int, ...] | None = None
        self._lock = self._prepare_files()
        try:
            # Only creating or upgrading a store waits for its writers.
            if not self._is_current():
                with self._holding_write_lock():
                    if self._lock is not None:
                        store_file.ensure_file(self.path, self._lock)
                    self._create_or_upgrade()
            if self._lock is not None:
                with contextlib.suppress(OSError):
                    self._lock.mark()
        except (apsw.Error, ValueError, TypeError) as error:
            self.close()
            if isinstance(error, ReverieError):
                raise
            # A table or value that every store has is missing or of another type.
            raise StoreDamaged(
                f"{self.path} is damaged ({error}): save what can be read with 'reverie salvage'"
            ) from error
        except BaseException:
            self.close()
            raise
        _open_engines.add(self)

    # -- opening ------------------------------------------------------------------------------

    def _prepare_files(self) -> FileLock | None:
        try:
            if self.read_only:
                if not self.path.is_file():
                    raise StoreReadOnly(
                        f"{self.path} does not exist and cannot be created: mode=ro"
                    )
                self._immutable_fingerprint = store_file.immutable_fingerprint(self.path)
                return None
            for folder in reversed([self.path.parent, *self.path.parent.parents]):
                folder.mkdir(mode=0o700, exist_ok=True)
            if self.path.is_dir():
                raise StoreDamaged(f"{self.path} is a folder: give the path of a file")
            if self.path.exists():
                os.close(os.open(self.path, os.O_RDWR))
            return FileLock(self.path.with_name(self.path.name + "-lock"))
        except FileExistsError as error:
            raise StoreDamaged(f"{self.path.parent} is not a folder: give another path") from error
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise StoreReadOnly(
                    f"{self.path} cannot be written ({error.strerror}): change that, or add "
                    "?mode=ro to read it"
                ) from error
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}") from error

    def _connect(self) -> apsw.Connection:
        with self._translating_errors():
            connection = self._bare_connection()
            try:
                connection.set_busy_timeout(self._busy_ms)
                if not self.read_only:
                    set_pragmas(connection, CONNECTION_PRAGMAS)
                    # After the PRAGMAs: wal_autocheckpoint removes the hook.
                    connection.set_wal_hook(self._note_wal)
            except BaseException:
                connection.close()
                raise
        return connection

    def _bare_connection(self) -> apsw.Connection:
        name = str(self.path)
        flags = apsw.SQLITE_OPEN_READONLY if self.read_only else apsw.SQLITE_OPEN_READWRITE
        if self._immutable_fingerprint is not None:
            name, flags = store_file.immutable_uri(self.path), flags | apsw.SQLITE_OPEN_URI
        return apsw.Connection(name, flags=flags, vfs=self._vfs)

    @property
    def _busy_ms(self) -> int:
        return int(self._busy_timeout * 1000)

    def _is_current(self) -> bool:
        """Whether the file is a store of the current schema and needs no change."""
        if not self.path.exists() or not store_file.is_store_file(self.path):
            return False
        connection = self._connect()
        self._free.append(connection)
        with self._translating_errors():
            versions = [connection.pragma(name) for name in ("application_id", "user_version")]
            return (
                versions == [store_file.APPLICATION_ID, schema.SCHEMA_VERSION]
                and connection.pragma("journal_mode") == "wal"
                and (self.read_only or planner_stats.has_fixed_stats(connection))
            )

    def _note_wal(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _create_or_upgrade(self) -> None:
        connection = self._connect()
        self._free.append(connection)
        with self._translating_errors():
            version = connection.pragma("user_version")
            if connection.pragma("application_id") != store_file.APPLICATION_ID and (
                version or connection.execute("SELECT count(*) FROM sqlite_schema").get
            ):
                raise StoreDamaged(
                    f"{self.path} is a database of another program: give another path"
                )
            if version > schema.SCHEMA_VERSION:
                raise upgrade.newer_schema(str(self.path), version)
            if self.read_only:
                if version < schema.SCHEMA_VERSION:
                    raise StoreReadOnly(f"{self.path} needs an upgrade: open it without ?mode=ro")
                return
            if 0 < version < schema.SCHEMA_VERSION:
                self._keep_copy(connection, upgrade_backup.before_schema(schema.SCHEMA_VERSION))
            if not version or connection.pragma("journal_mode") != "wal":
                set_pragmas(connection, FILE_PRAGMAS)
            if version < schema.SCHEMA_VERSION:
                _upgrade(connection, version, self._upgrade_options)
            if not planner_stats.has_fixed_stats(connection):
                # They only make queries faster: a full disk is no reason to fail.
                with contextlib.suppress(apsw.FullError):
                    planner_stats.write_fixed_stats(connection)
            # Writes the header into the file itself: the next one to open it needs no write lock.
            _checkpoint(connection)

    def _keep_copy(self, connection: apsw.Connection, before: str) -> None:
        """Keep a copy of the store beside it, unless the options say not to."""
        if self._upgrade_options.backup:
            upgrade_backup.keep(connection, self.path, before, self._upgrade_options, self._vfs)

    # -- transactions -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _begin_read(self, allow_replica: bool) -> Iterator[SQLiteTransaction]:
        with self._reader() as connection:
            connection.execute("BEGIN")
            try:
                with self._transaction(connection, writing=False) as tx:
                    yield tx
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")

    @contextlib.contextmanager
    def _begin_write(self, wait: bool) -> Iterator[SQLiteTransaction]:
        with self._writer(wait=wait) as connection:
            with (
                store_file.immediate_transaction(connection),
                self._transaction(connection, writing=True) as tx,
            ):
                self._require_known_schema(connection.pragma("user_version"))
                yield tx
            if self._wal_pages >= CHECKPOINT_PAGES:
                _checkpoint(connection)

    @contextlib.contextmanager
    def _transaction(
        self, connection: apsw.Connection, *, writing: bool
    ) -> Iterator[SQLiteTransaction]:
        own = SQLiteTransaction(connection, self._vectors, writing, self.damaged)
        with contextlib.closing(own), self._as_current(own) as transaction:
            yield transaction

    @contextlib.contextmanager
    def _lease_connection(self) -> Iterator[apsw.Connection]:
        with self._pool_lock:
            connection = self._take_free()
            fingerprint = self._immutable_fingerprint
        if connection is None:
            connection = self._connect()
        with self._pool_lock:
            self._borrowed.add(connection)
            becomes_main = self._main is None
            if becomes_main:
                self._main = connection
        discard = True
        try:
            if becomes_main:
                connection.pragma("cache_size", -MAIN_CACHE_KIB)
            yield connection
            discard = False
        except BaseException as error:
            # Its cache may hold wrong pages of a failing disk, or its transaction may be open.
            discard = errors.is_read_failure(error) or connection.in_transaction
            raise
        finally:
            with self._pool_lock:
                self._borrowed.discard(connection)
                if self._closed or discard or fingerprint != self._immutable_fingerprint:
                    self._main = None if connection is self._main else self._main
                    with contextlib.suppress(apsw.Error):
                        connection.close(True)
                else:
                    self._free.append(connection)

    def _take_free(self) -> apsw.Connection | None:
        """Take an idle connection out of the pool: the main one, else the last one returned."""
        if self._main in self._free:
            self._free.remove(self._main)
            return self._main
        return self._free.pop() if self._free else None

    def drop_caches(self) -> None:
        self._vectors = VectorCache()
        self._drop_connections()

    def _drop_connections(self) -> None:
        with self._pool_lock:
            idle, self._free = self._free, []
            self._main = None if self._main in idle else self._main
        for connection in idle:
            with contextlib.suppress(apsw.Error):
                connection.close()

    @contextlib.contextmanager
    def _detecting_changes(self) -> Iterator[None]:
        """On a read-only medium, raise StoreBusy if the file was changed from elsewhere."""
        if not self.read_only:
            yield
            return
        fingerprint = store_file.immutable_fingerprint(self.path)
        if fingerprint != self._immutable_fingerprint:
            self._immutable_fingerprint = fingerprint
            self._drop_connections()
        try:
            yield
        finally:
            if (
                fingerprint is not None
                and store_file.immutable_fingerprint(self.path) != fingerprint
            ):
                raise StoreBusy(f"{self.path} was changed while it was read: repeat the call")

    @contextlib.contextmanager
    def _reader(self) -> Iterator[apsw.Connection]:
        """A connection to read with."""
        with (
            self._detecting_changes(),
            self._translating_errors(),
            self._lease_connection() as connection,
        ):
            yield connection

    @contextlib.contextmanager
    def _writer(self, *, wait: bool = True) -> Iterator[apsw.Connection]:
        """The connection of the one writer, while the write lock is held."""
        with self._holding_write_lock(wait=wait):
            self._require_working()
            with self._translating_errors(writing=True), self._lease_connection() as connection:
                yield connection

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        self._require_usable()
        with self._holding_write_lock():
            yield

    @contextlib.contextmanager
    def _holding_write_lock(self, *, wait: bool = True) -> Iterator[None]:
        """Be the only writer of all threads and processes. Nested calls do nothing."""
        patience = self._busy_timeout if wait else 0.0
        deadline = time.monotonic() + patience
        if not self._write_lock.acquire(timeout=patience):
            raise self._busy_error(patience)
        try:
            if self._lock is None or self._lock_depth:
                yield
                return
            try:
                taken = self._lock.acquire(max(deadline - time.monotonic(), 0.0))
            except (OSError, RuntimeError) as error:
                raise StoreError(f"{self.path} cannot be locked: {error}") from error
            if not taken:
                raise self._busy_error(patience)
            self._lock_depth = 1
            try:
                yield
            finally:
                self._lock_depth = 0
                self._lock.release()
        finally:
            self._write_lock.release()

    def _busy_error(self, patience: float) -> StoreBusy:
        """The error for a write lock that was not free in time; names the holder."""
        if self._lock is None or self._lock_depth:
            holder = "another thread of this process"
        else:
            holder = self._lock.holder()
        return StoreBusy(
            f"{holder} is writing to {self.path} and did not end within {patience:g} s: "
            "try again; repeat a write with the same key"
        )

    def _require_working(self) -> None:
        if self._failed is not None:
            raise StoreFailed(
                f"an earlier write failed ({self._failed}): close the store and open it again"
            )

    @contextlib.contextmanager
    def _translating_errors(self, *, writing: bool = False) -> Iterator[None]:
        """Translate SQLite's errors. After a failed write or sync no write is accepted."""
        try:
            yield
        except (TypeError, OverflowError, UnicodeEncodeError) as error:
            if not errors.is_bad_value(error):
                raise
            raise InvalidInput(f"a value cannot be stored ({error})") from error
        except (apsw.Error, MemoryError) as error:
            if writing and errors.is_write_failure(error):
                self._note_failure(str(error))
            translated = errors.translate_error(error, self.path)
            if translated is None:
                raise
            if isinstance(translated, StoreDamaged) and self._is_intact():
                translated = errors.read_failure(self.path)
            if isinstance(error, apsw.BusyError) and (
                holders := file_lock.find_lock_holders(self.path.with_name(self.path.name + "-shm"))
            ):
                names = " and ".join(map(file_lock.describe_process, holders))
                translated = StoreBusy(f"{names} keeps {self.path} locked: try again")
            raise translated from error

    def _is_intact(self) -> bool:
        """Check the file again before calling it damaged: SQLite reports a failed read the same."""
        self._drop_connections()
        try:
            with contextlib.closing(self._bare_connection()) as fresh:
                fresh.set_busy_timeout(self._busy_ms)
                return errors.is_database_intact(fresh)
        except apsw.Error as error:
            return not errors.is_damage(error)

    def _current_schema(self) -> int | None:
        with contextlib.suppress(apsw.Error), contextlib.closing(self._bare_connection()) as fresh:
            return int(fresh.pragma("user_version"))
        return None

    # -- maintenance --------------------------------------------------------------------------

    def scrub(self, erased: Sequence[str] = ()) -> bool:
        """Rewrite the file and truncate the write-ahead log.

        secure_delete alone leaves copies of moved rows in the unused parts of pages.
        """
        self._require_usable()
        try:
            with self._writer() as connection:
                connection.set_busy_timeout(SCRUB_TIMEOUT_MS)
                copies_are_clean = upgrade_backup.remove_erased(connection, self.path)
                try:
                    connection.execute("VACUUM")
                    return (
                        _truncate_wal(connection)
                        and not self._contains_erased(connection, erased)
                        and copies_are_clean
                    )
                finally:
                    connection.set_busy_timeout(self._busy_ms)
        except (StoreBusy, StoreFull):
            # The erasure itself is done; a job repeats the scrub later.
            return False

    def _contains_erased(self, connection: apsw.Connection, erased: Sequence[str]) -> bool:
        """Whether the file has parts of these texts that no row contains any more."""
        for text in erased:
            for piece in store_file.sample_substrings(text):
                rows_containing = (
                    "SELECT 1 FROM log WHERE instr(body, ?1) OR instr(reason, ?1) "
                    "UNION ALL SELECT 1 FROM session_state "
                    "WHERE instr(summary, ?1) OR instr(scratchpad, ?1) LIMIT 1"
                )
                if (
                    store_file.file_contains(self.path, piece.encode())
                    and not connection.execute(rows_containing, (piece,)).fetchall()
                ):
                    return True
        return False

    def backup(self, target: Path) -> None:
        """Copy the store into a new file. An unfinished copy is removed."""
        self._require_usable()
        with store_file.new_file(target), self._reader() as connection:
            store_file.copy_pages(connection, target)

    def backup_before_rebuild(self) -> None:
        self._require_usable()
        with self._writer() as connection:
            self._keep_copy(connection, upgrade_backup.BEFORE_INDEX)

    def restore(self, source: Path) -> None:
        """Replace everything with a backup, through SQLite: other processes see one change."""
        self._require_usable()
        with self._holding_write_lock():
            with self._writer() as connection:
                copy = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
                with contextlib.closing(copy), connection.backup("main", copy, "main") as task:
                    task.step(-1)
            self._vectors = VectorCache()
            self._create_or_upgrade()

    def check(self) -> list[str]:
        self._require_usable()
        self.drop_caches()
        if not self._integrity_problems():
            return []
        # integrity_check also reports pages that a failing disk could not read: check again.
        self._drop_connections()
        problems = self._integrity_problems()
        if not problems:
            raise errors.read_failure(self.path)
        return problems

    def _integrity_problems(self) -> list[str]:
        with self._reader() as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            dangling = connection.execute("PRAGMA foreign_key_check").fetchall()
            changed = store_file.changed_tables(connection)
        all_problems = changed + [problem for problem in problems if problem != "ok"]
        return all_problems + [
            f"{row[0]} row {row[1]} refers to a missing {row[2]}" for row in dangling
        ]

    def describe(self) -> Mapping[str, Any]:
        with self.read() as tx:
            pages = tx.one("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        copies = [copy.name for copy in upgrade_backup.find(self.path)]
        return {
            "engine": f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
            "file": str(self.path),
            "bytes": pages[0] if pages else 0,
            "schema": schema.SCHEMA_VERSION,
            **({"upgrade backups": ", ".join(copies)} if copies else {}),
        }

    def vacuum(self) -> None:
        self._require_usable()
        with self._writer() as connection:
            connection.execute("VACUUM")
            _truncate_wal(connection)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._pool_lock:
            self._closed = True
        self._drop_connections()
        # Waits for a write of another thread, which still holds the lock.
        with self._write_lock:
            if self._lock is not None and not self._lock_depth:
                self._lock.close()
                self._lock = None


def _checkpoint(connection: apsw.Connection) -> None:
    """Move the write-ahead log into the file; a failure does not matter, the commit is durable."""
    with contextlib.suppress(apsw.BusyError, apsw.FullError):
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


def _truncate_wal(connection: apsw.Connection) -> bool:
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
    return not busy


# A process of an earlier version that still has the store open would write rows without a seal.
_UNSEALED_TRIGGER = """CREATE TRIGGER log_sealed BEFORE INSERT ON log WHEN NEW.seal = '' BEGIN
    SELECT RAISE(ABORT, 'this store was upgraded: start this process again with the new Reverie');
    END"""


def _upgrade(connection: apsw.Connection, found: int, options: UpgradeOptions) -> None:
    """Run all steps after ``found`` in one transaction: a kill leaves the old store or the new."""
    with store_file.immediate_transaction(connection):
        for number in range(found + 1, schema.SCHEMA_VERSION + 1):
            _apply_step(connection, number, options)
        upgrade.mark_index(SQLiteTransaction(connection, VectorCache(), writing=True))
        connection.pragma("application_id", store_file.APPLICATION_ID)
        connection.pragma("user_version", schema.SCHEMA_VERSION)


def _apply_step(connection: apsw.Connection, number: int, options: UpgradeOptions) -> None:
    for statement in schema.STEPS[number - 1]:
        connection.execute(statement.format(clustered="WITHOUT ROWID").replace("BIGINT", "INTEGER"))
    if number == 1:
        connection.execute(VectorBlocks.TABLE)
    if number == schema.SEAL_STEP:
        statements = SQLiteTransaction(connection, VectorCache(), writing=True)
        seals.seal_store(statements, options.report("sealing the log"))
        connection.execute(_UNSEALED_TRIGGER)


_open_engines: weakref.WeakSet[SQLiteEngine] = weakref.WeakSet()
_parent_connections: list[apsw.Connection] = []


def _after_fork() -> None:
    """In a forked child, drop the parent's file locks, and never close its connections."""
    for engine in _open_engines:
        if engine._lock is not None:
            engine._lock.close_after_fork()
            engine._lock = None
        _parent_connections.extend(engine._free)
        _parent_connections.extend(engine._borrowed)
        engine._thread = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
