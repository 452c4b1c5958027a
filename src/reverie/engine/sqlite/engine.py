"""SQLite through apsw: one file, many processes and threads, every acknowledged write synced.

Connections are lent from a pool and never shared by two threads at once. A writer takes a file lock
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

import apsw

from reverie.engine import schema, seals
from reverie.engine.base import BUSY_TIMEOUT, BaseEngine
from reverie.engine.sqlite import errors, file_lock, planner_stats, store_file
from reverie.engine.sqlite.file_lock import FileLock
from reverie.engine.sqlite.transaction import SQLiteTransaction
from reverie.engine.sqlite.vectors import VectorBlocks, VectorCache
from reverie.errors import (
    InvalidInput,
    NewerSchema,
    ReverieError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
)

# Every older SQLite can corrupt a shared file when writers and checkpointers race.
MIN_SQLITE_VERSION = (3, 51, 3)
_INCREMENTAL = 2
_FULL = 2

# Of the file, kept in it: auto_vacuum before the first table, and before WAL writes page one.
# Setting either takes a write lock, so only the one who makes the file does.
FILE_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    ("auto_vacuum", "INCREMENTAL", _INCREMENTAL),
    ("journal_mode", "WAL", "wal"),
)
CONNECTION_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    # SQLite swallows the errors of its own checkpoints; ours are seen (see write).
    ("wal_autocheckpoint", "0", 0),
    ("synchronous", "FULL", _FULL),
    ("foreign_keys", "ON", 1),
    ("secure_delete", "ON", 1),
    ("temp_store", "MEMORY", 2),
    ("cache_size", "-32768", -32768),
    ("mmap_size", "0", 0),
)


def require_safe_sqlite() -> None:
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < MIN_SQLITE_VERSION:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a shared file: "
            "pip install --upgrade apsw"
        )


def set_pragmas(connection: apsw.Connection, pragmas: Sequence[tuple[str, str, object]]) -> None:
    """One at a time and read back: a PRAGMA that SQLite does not honour is silent otherwise."""
    for name, value, expected in pragmas:
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
        row = connection.execute(f"PRAGMA {name}").fetchone()
        if row is not None and row[0] != expected:
            raise StoreError(f"SQLite refused PRAGMA {name} = {value} (it is {row[0]})")


SCRUB_TIMEOUT_MS = 1_000
CHECKPOINT_PAGES = 1_000


class SQLiteEngine(BaseEngine[SQLiteTransaction]):
    """One SQLite file."""

    supports_vector_search = True

    def __init__(self, url: str, busy_timeout: float = BUSY_TIMEOUT) -> None:
        require_safe_sqlite()
        super().__init__()
        self._busy_timeout = busy_timeout
        self.path, options = store_file.parse_url(url)
        self.url = f"sqlite://{urllib.parse.quote(str(self.path))}"
        self.read_only = options.get("mode") == "ro"
        self._vfs = options.get("vfs")
        self._free: list[apsw.Connection] = []
        self._borrowed: set[apsw.Connection] = set()
        self._pool_lock = threading.Lock()
        self._write_lock = threading.RLock()
        self._lock_depth = 0
        self._vectors = VectorCache()
        self._wal_pages = 0
        self._immutable_fingerprint: tuple[int, ...] | None = None
        self._lock = self._prepare_files()
        try:
            # Only who makes or upgrades a store waits for its writers.
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
            # What every store has is not there, or is something else.
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
                    # Behind the PRAGMAs: turning off automatic checkpoints takes hooks away.
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
        """Whether the file is a store of this schema, ready to be used."""
        if not self.path.exists() or not store_file.is_store_file(self.path):
            return False
        connection = self._connect()
        self._free.append(connection)
        with self._translating_errors():
            found = [connection.pragma(name) for name in ("application_id", "user_version")]
            return (
                found == [store_file.APPLICATION_ID, schema.SCHEMA_VERSION]
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
            found = connection.pragma("user_version")
            if connection.pragma("application_id") != store_file.APPLICATION_ID and (
                found or connection.execute("SELECT count(*) FROM sqlite_schema").get
            ):
                raise StoreDamaged(
                    f"{self.path} is a database of another program: give another path"
                )
            if found > schema.SCHEMA_VERSION:
                raise NewerSchema(
                    f"{self.path} has schema {found}, this Reverie knows {schema.SCHEMA_VERSION}: "
                    "upgrade with pip install --upgrade reverie"
                )
            if self.read_only:
                if found < schema.SCHEMA_VERSION:
                    raise StoreReadOnly(f"{self.path} needs an upgrade: open it without ?mode=ro")
                return
            if not found or connection.pragma("journal_mode") != "wal":
                set_pragmas(connection, FILE_PRAGMAS)
            for number in range(found + 1, schema.SCHEMA_VERSION + 1):
                _apply_step(connection, number)
            if not planner_stats.has_fixed_stats(connection):
                # Without them all works, only slower: a full disk can wait.
                with contextlib.suppress(apsw.FullError):
                    planner_stats.write_fixed_stats(connection)
            # The file itself must say that it is a store: who opens it next waits for nobody.
            _checkpoint(connection)

    # -- transactions -------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self, *, allow_replica: bool = False) -> Iterator[SQLiteTransaction]:
        current = self._current()
        if current is not None:
            yield current
            return
        with (
            self._detecting_damage(),
            self._detecting_changes(),
            self._translating_errors(),
            self._lend() as connection,
        ):
            connection.execute("BEGIN")
            try:
                with self._transaction(connection, writing=False) as tx:
                    yield tx
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")

    @contextlib.contextmanager
    def write(self, *, wait: bool = True) -> Iterator[SQLiteTransaction]:
        current = self._current_writer()
        if current is not None:
            yield current
            return
        with self._detecting_damage(), self._writer(wait=wait) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                with self._transaction(connection, writing=True) as tx:
                    yield tx
                connection.execute("COMMIT")
                if self._wal_pages >= CHECKPOINT_PAGES:
                    _checkpoint(connection)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _transaction(
        self, connection: apsw.Connection, *, writing: bool
    ) -> Iterator[SQLiteTransaction]:
        own = SQLiteTransaction(connection, self._vectors, writing, self.damaged)
        with contextlib.closing(own), self._as_current(own) as transaction:
            yield transaction

    @contextlib.contextmanager
    def _lend(self) -> Iterator[apsw.Connection]:
        with self._pool_lock:
            connection = self._free.pop() if self._free else None
            frozen = self._immutable_fingerprint
        if connection is None:
            connection = self._connect()
        with self._pool_lock:
            self._borrowed.add(connection)
        spoiled = True
        try:
            yield connection
            spoiled = False
        except BaseException as error:
            # What a failing disk gave may still be in its cache, or its transaction open.
            spoiled = errors.is_read_failure(error) or connection.in_transaction
            raise
        finally:
            with self._pool_lock:
                self._borrowed.discard(connection)
                if self._closed or spoiled or frozen != self._immutable_fingerprint:
                    with contextlib.suppress(apsw.Error):
                        connection.close(True)
                else:
                    self._free.append(connection)

    def drop_caches(self) -> None:
        self._vectors = VectorCache()
        self._drop_connections()

    def _drop_connections(self) -> None:
        with self._pool_lock:
            idle, self._free = self._free, []
        for connection in idle:
            with contextlib.suppress(apsw.Error):
                connection.close()

    @contextlib.contextmanager
    def _detecting_changes(self) -> Iterator[None]:
        """On a read-only medium: notice whoever changes the file in another way."""
        if not self.read_only:
            yield
            return
        now = store_file.immutable_fingerprint(self.path)
        if now != self._immutable_fingerprint:
            self._immutable_fingerprint = now
            self._drop_connections()
        try:
            yield
        finally:
            if now is not None and store_file.immutable_fingerprint(self.path) != now:
                raise StoreBusy(f"{self.path} was written while it was read: repeat the call")

    @contextlib.contextmanager
    def _writer(self, *, wait: bool = True) -> Iterator[apsw.Connection]:
        """The connection of the one writer there is."""
        with self._holding_write_lock(wait=wait):
            self._require_working()
            with self._translating_errors(writing=True), self._lend() as connection:
                yield connection

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        self._require_usable()
        with self._holding_write_lock():
            yield

    @contextlib.contextmanager
    def _holding_write_lock(self, *, wait: bool = True) -> Iterator[None]:
        """The one writer of all threads and processes; again within itself it does nothing."""
        patience = self._busy_timeout if wait else 0.0
        deadline = time.monotonic() + patience
        if not self._write_lock.acquire(timeout=patience):
            raise self._busy(patience)
        try:
            if self._lock is None or self._lock_depth:
                yield
                return
            try:
                taken = self._lock.acquire(max(deadline - time.monotonic(), 0.0))
            except (OSError, RuntimeError) as error:
                raise StoreError(f"{self.path} cannot be locked: {error}") from error
            if not taken:
                raise self._busy(patience)
            self._lock_depth = 1
            try:
                yield
            finally:
                self._lock_depth = 0
                self._lock.release()
        finally:
            self._write_lock.release()

    def _busy(self, patience: float) -> StoreBusy:
        """Who it is that writes for so long."""
        if self._lock is None or self._lock_depth:
            holder = "another thread of this process"
        else:
            holder = self._lock.holder()
        return StoreBusy(
            f"{holder} is writing to {self.path} and did not end within {patience:g} s: "
            "try again, a write with the same key"
        )

    def _require_working(self) -> None:
        if self._failed is not None:
            raise StoreFailed(
                f"an earlier write failed ({self._failed}): close the store and open it again"
            )

    @contextlib.contextmanager
    def _translating_errors(self, *, writing: bool = False) -> Iterator[None]:
        """SQLite's errors as ours. A failed write or sync stops all writing until reopened."""
        try:
            yield
        except (TypeError, OverflowError, UnicodeEncodeError) as error:
            if not errors.is_bad_value(error):
                raise
            raise InvalidInput(f"a value cannot be stored ({error})") from error
        except (apsw.Error, MemoryError) as error:
            if writing and errors.is_write_failure(error):
                self._note_failure(str(error))
            ours = errors.translate_error(error, self.path)
            if ours is None:
                raise
            if isinstance(ours, StoreDamaged) and self._is_sound():
                ours = errors.read_failure(self.path)
            if isinstance(error, apsw.BusyError) and (
                found := file_lock.find_lock_holders(self.path.with_name(self.path.name + "-shm"))
            ):
                who = " and ".join(map(file_lock.describe_process, found))
                ours = StoreBusy(f"{who} keeps {self.path} locked: try again")
            raise ours from error

    def _is_sound(self) -> bool:
        """Look again before a store is called damaged: SQLite says so of a failed read as well."""
        self._drop_connections()
        try:
            with contextlib.closing(self._bare_connection()) as fresh:
                fresh.set_busy_timeout(self._busy_ms)
                return errors.is_database_intact(fresh)
        except apsw.Error as error:
            return not errors.is_damage(error)

    # -- upkeep -------------------------------------------------------------------------------

    def scrub(self, erased: Sequence[str] = ()) -> bool:
        """Rewrite the file and empty the write-ahead log.

        secure_delete alone leaves copies of moved rows in the unused parts of pages.
        """
        self._require_usable()
        try:
            with self._writer() as connection:
                connection.set_busy_timeout(SCRUB_TIMEOUT_MS)
                try:
                    connection.execute("VACUUM")
                    return _truncate_wal(connection) and not self._holds(connection, erased)
                finally:
                    connection.set_busy_timeout(self._busy_ms)
        except (StoreBusy, StoreFull):
            # What was erased is erased; a job comes back to this.
            return False

    def _holds(self, connection: apsw.Connection, erased: Sequence[str]) -> bool:
        """Whether the file has bytes of these texts that belong to no living row."""
        for text in erased:
            for piece in store_file.sample_substrings(text):
                living = (
                    "SELECT 1 FROM log WHERE instr(body, ?1) OR instr(reason, ?1) "
                    "UNION ALL SELECT 1 FROM session_state "
                    "WHERE instr(summary, ?1) OR instr(scratchpad, ?1) LIMIT 1"
                )
                if (
                    store_file.file_contains(self.path, piece.encode())
                    and not connection.execute(living, (piece,)).fetchall()
                ):
                    return True
        return False

    def backup(self, target: Path) -> None:
        """Copy the store into a new file. A copy that cannot be finished is taken away."""
        self._require_usable()
        with (
            store_file.new_file(target),
            self._detecting_changes(),
            self._translating_errors(),
            self._lend() as connection,
        ):
            store_file.copy_pages(connection, target)

    def restore(self, source: Path) -> None:
        """Through SQLite itself: other processes see one big change, never a swapped file."""
        self._require_usable()
        with self._holding_write_lock():
            with self._writer() as connection:
                copy = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
                try:
                    with connection.backup("main", copy, "main") as task:
                        task.step(-1)
                finally:
                    copy.close()
            self._vectors = VectorCache()
            self._create_or_upgrade()

    def check(self) -> list[str]:
        self._require_usable()
        self.drop_caches()
        found = self._checked()
        if found:
            # A page that could not be read is a problem to SQLite, and may be none of the file.
            self._drop_connections()
            again = self._checked()
            if not again:
                raise errors.read_failure(self.path)
            return again
        return found

    def _checked(self) -> list[str]:
        with self._detecting_changes(), self._translating_errors(), self._lend() as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
            changed = store_file.changed_tables(connection)
        found = changed + [problem for problem in problems if problem != "ok"]
        return found + [f"{row[0]} row {row[1]} refers to a missing {row[2]}" for row in broken]

    def describe(self) -> Mapping[str, str]:
        with self.read() as tx:
            pages = tx.one("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return {
            "engine": f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
            "file": str(self.path),
            "bytes": str(pages[0] if pages else 0),
            "schema": str(schema.SCHEMA_VERSION),
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
        # A write of another thread still holds the lock: its caller gets an answer first.
        with self._write_lock:
            if self._lock is not None and not self._lock_depth:
                self._lock.close()
                self._lock = None


def _checkpoint(connection: apsw.Connection) -> None:
    """Move the write-ahead log into the file. The commit is safe already: a full disk can wait."""
    with contextlib.suppress(apsw.BusyError, apsw.FullError):
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


def _truncate_wal(connection: apsw.Connection) -> bool:
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
    return not busy


# A process of an earlier version may still have the store open: what it writes has no seal.
_UNSEALED_TRIGGER = """CREATE TRIGGER log_sealed BEFORE INSERT ON log WHEN NEW.seal = '' BEGIN
    SELECT RAISE(ABORT, 'this store was upgraded: start this process again with the new Reverie');
    END"""


def _apply_step(connection: apsw.Connection, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in schema.STEPS[number - 1]:
            connection.execute(
                statement.format(clustered="WITHOUT ROWID").replace("BIGINT", "INTEGER")
            )
        if number == 1:
            connection.execute(VectorBlocks.TABLE)
        if number == schema.SEAL_STEP:
            statements = SQLiteTransaction(connection, VectorCache(), writing=True)
            seals.seal_store(statements, seals.log_progress("the log"))
            connection.execute(_UNSEALED_TRIGGER)
        connection.pragma("application_id", store_file.APPLICATION_ID)
        connection.pragma("user_version", number)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_open_engines: weakref.WeakSet[SQLiteEngine] = weakref.WeakSet()
_parent_connections: list[apsw.Connection] = []


def _after_fork() -> None:
    """A child must neither hold the parent's file lock nor close the parent's connections."""
    for engine in _open_engines:
        if engine._lock is not None:
            engine._lock.forget()
            engine._lock = None
        _parent_connections.extend(engine._free)
        _parent_connections.extend(engine._borrowed)
        engine._thread = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
