"""SQLite through apsw: one file, many processes and threads, every acknowledged write synced.

Connections are lent from a pool and never shared by two threads at once. A writer takes a file lock
before ``BEGIN IMMEDIATE``: waiting writers then queue in the kernel instead of polling.
"""

from __future__ import annotations

import contextlib
import os
import threading
import urllib.parse
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from reverie.engine import files, plans, schema, seals
from reverie.engine.blocks import Blocks, Loaded, VectorCache
from reverie.engine.opened import Opened
from reverie.engine.undivided import Undivided
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
from reverie.protocols import Owner, Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Numbers, Vector

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows waits with the busy timeout alone
    fcntl = None  # type: ignore[assignment]

# Every older SQLite can corrupt a shared file when writers and checkpointers race.
OLDEST_SAFE = (3, 51, 3)
BUSY_TIMEOUT_MS = 30_000
SCRUB_TIMEOUT_MS = 1_000
CHECKPOINT_PAGES = 1_000
_INCREMENTAL = 2
_FULL = 2

# Of the file, kept in it: auto_vacuum before the first table, and before WAL writes page one.
# Setting either takes a write lock, so only the one who makes the file does.
_FILE_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    ("auto_vacuum", "INCREMENTAL", _INCREMENTAL),
    ("journal_mode", "WAL", "wal"),
)
_CONNECTION_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    # SQLite swallows the errors of its own checkpoints; ours are seen (see write).
    ("wal_autocheckpoint", "0", 0),
    ("synchronous", "FULL", _FULL),
    ("foreign_keys", "ON", 1),
    ("secure_delete", "ON", 1),
    ("temp_store", "MEMORY", 2),
    ("cache_size", "-32768", -32768),
    ("mmap_size", "0", 0),
)


class SQLiteTransaction(Undivided):
    """One snapshot on one connection. A writer is the only one there is."""

    def __init__(
        self,
        connection: apsw.Connection,
        vectors: VectorCache,
        writing: bool,
        damaged: set[tuple[int, int]] | None = None,
    ) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._vectors = vectors
        self._blocks = Blocks(connection)
        super().__init__(writing=writing, damaged=set() if damaged is None else damaged)

    def close(self) -> None:
        """Let go of the last statement: while it is open its snapshot is too."""
        self._cursor.close(True)

    def fresh_space(self) -> int:
        row = self.one("SELECT COALESCE(MAX(space), 0) + 1 FROM spaces")
        return 1 if row is None else int(row[0])

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._cursor.execute(sql, values).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        return self._cursor.execute(sql, values).fetchone()

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        self._cursor.execute(sql, values)
        return self._connection.changes()

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._cursor.executemany(sql, rows)

    def put_vectors(self, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        self._blocks.put(owner, generation, first, rows)

    def clear_vectors(self, owner: Owner, first: int, count: int) -> None:
        self._blocks.clear(owner, first, count)

    def drop_vectors(self, keep: int) -> None:
        self._cursor.execute("DELETE FROM vectors WHERE generation <> ?", (keep,))

    def vector_numbers(self, owner: Owner, generation: int) -> list[int]:
        return self._blocks.numbers(owner, generation)

    def nearest(
        self,
        owner: Owner,
        generation: int,
        query: Vector,
        limit: int,
        allowed: Sequence[int] | None = None,
        without: Sequence[int] = (),
    ) -> list[tuple[int, float]]:
        with self._vectors_of(owner, generation) as loaded:
            return loaded.nearest(query, limit, allowed, without)

    def similar(
        self, owner: Owner, generation: int, query: Vector, numbers: Numbers
    ) -> NDArray[np.float64]:
        with self._vectors_of(owner, generation) as loaded:
            return loaded.similar(query, numbers)

    def vectors(self, owner: Owner, generation: int, numbers: Numbers) -> Matrix:
        with self._vectors_of(owner, generation) as loaded:
            return loaded.vectors(numbers)

    def _vectors_of(
        self, owner: Owner, generation: int
    ) -> contextlib.AbstractContextManager[Loaded]:
        # What a writer sees may yet be undone: it must not stay in memory.
        cache = VectorCache() if self.writing else self._vectors
        return cache.current(self, self._blocks, owner, generation)


class SQLiteEngine(Opened[SQLiteTransaction]):
    """One SQLite file."""

    compares_vectors = True

    def __init__(self, url: str) -> None:
        _require_safe_sqlite()
        super().__init__()
        self.path, options = files.parse_address(url)
        self.url = f"sqlite://{urllib.parse.quote(str(self.path))}"
        self.read_only = options.get("mode") == "ro"
        self._vfs = options.get("vfs")
        self._free: list[apsw.Connection] = []
        self._lent: set[apsw.Connection] = set()
        self._pool_lock = threading.Lock()
        self._write_lock = threading.RLock()
        self._lock_depth = 0
        self._failed: str | None = None
        self._vectors = VectorCache()
        self._lock_file: int | None = None
        self._wal_pages = 0
        self._prepare_files()
        try:
            # Only who makes or upgrades a store waits for its writers.
            if not self._is_current():
                with self._exclusively():
                    self._create_or_upgrade()
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

    def _prepare_files(self) -> None:
        if self.read_only:
            if not self.path.is_file():
                raise StoreReadOnly(f"{self.path} does not exist and cannot be created: mode=ro")
            return
        try:
            for folder in reversed([self.path.parent, *self.path.parent.parents]):
                folder.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            lock_path = self.path.with_name(self.path.name + "-lock")
            self._lock_file = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except IsADirectoryError as error:
            raise StoreDamaged(f"{self.path} is a folder: give the path of a file") from error
        except FileExistsError as error:
            raise StoreDamaged(f"{self.path.parent} is not a folder: give another path") from error
        except PermissionError as error:
            raise StoreReadOnly(
                f"{self.path} cannot be written: change its permissions, or add ?mode=ro to read it"
            ) from error
        except OSError as error:
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}") from error

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY if self.read_only else apsw.SQLITE_OPEN_READWRITE
        with self._translated():
            connection = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs)
            try:
                connection.set_busy_timeout(BUSY_TIMEOUT_MS)
                if not self.read_only:
                    _set_pragmas(connection, _CONNECTION_PRAGMAS)
                    # Behind the PRAGMAs: turning off automatic checkpoints takes hooks away.
                    connection.set_wal_hook(self._note_wal)
            except BaseException:
                connection.close()
                raise
        return connection

    def _is_current(self) -> bool:
        """Whether the file is a store of this schema, ready to be used."""
        if not files.is_store_file(self.path):
            return False
        connection = self._connect()
        self._free.append(connection)
        with self._translated():
            found = [connection.pragma(name) for name in ("application_id", "user_version")]
            return (
                found == [files.APPLICATION_ID, schema.CURRENT]
                and connection.pragma("journal_mode") == "wal"
                and (self.read_only or plans.are_fixed(connection))
            )

    def _note_wal(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _create_or_upgrade(self) -> None:
        connection = self._connect()
        self._free.append(connection)
        with self._translated():
            found = connection.pragma("user_version")
            if connection.pragma("application_id") != files.APPLICATION_ID and (
                found or connection.execute("SELECT count(*) FROM sqlite_schema").get
            ):
                raise StoreDamaged(
                    f"{self.path} is a database of another program: give another path"
                )
            if found > schema.CURRENT:
                raise NewerSchema(
                    f"{self.path} has schema {found}, this Reverie knows {schema.CURRENT}: "
                    "upgrade with pip install --upgrade reverie"
                )
            if self.read_only:
                if found < schema.CURRENT:
                    raise StoreReadOnly(f"{self.path} needs an upgrade: open it without ?mode=ro")
                return
            if not found or connection.pragma("journal_mode") != "wal":
                _set_pragmas(connection, _FILE_PRAGMAS)
            for number in range(found + 1, schema.CURRENT + 1):
                _apply_step(connection, number)
            if not plans.are_fixed(connection):
                # Without them all works, only slower: a full disk can wait.
                with contextlib.suppress(apsw.FullError):
                    plans.fix(connection)
            # The file itself must say that it is a store: who opens it next waits for nobody.
            _checkpoint(connection)

    # -- transactions -------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self, *, lagging: bool = False) -> Iterator[SQLiteTransaction]:
        current = self._current()
        if current is not None:
            yield current
            return
        with self._explained(), self._translated(), self._lend() as connection:
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
        with (
            self._explained(),
            self._exclusively(wait=wait),
            self._translated(writing=True),
            self._lend() as connection,
        ):
            self._require_working()
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
        if connection is None:
            connection = self._connect()
        with self._pool_lock:
            self._lent.add(connection)
        try:
            yield connection
        finally:
            with self._pool_lock:
                self._lent.discard(connection)
                if self._closed:
                    connection.close()
                else:
                    self._free.append(connection)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        self._require_usable()
        with self._exclusively():
            yield

    @contextlib.contextmanager
    def _exclusively(self, *, wait: bool = True) -> Iterator[None]:
        """The one writer of all threads and processes; again within itself it does nothing."""
        if not self._write_lock.acquire(blocking=wait):
            raise StoreBusy(f"another thread writes to {self.path}")
        try:
            if self._lock_file is None or fcntl is None or self._lock_depth:
                yield
                return
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise StoreBusy(f"another process writes to {self.path}") from error
            self._lock_depth = 1
            try:
                yield
            finally:
                self._lock_depth = 0
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)
        finally:
            self._write_lock.release()

    def _require_working(self) -> None:
        if self._failed is not None:
            raise StoreFailed(
                f"an earlier write failed ({self._failed}): close the store and open it again"
            )

    @contextlib.contextmanager
    def _translated(self, *, writing: bool = False) -> Iterator[None]:
        """SQLite's errors as ours. A failed write or sync stops all writing until reopened."""
        try:
            yield
        except apsw.FullError as error:
            raise StoreFull(
                f"no space left for {self.path}: free some and repeat the write with the same key"
            ) from error
        except apsw.ReadOnlyError as error:
            raise StoreReadOnly(f"{self.path} cannot be written: check its permissions") from error
        except (apsw.BusyError, apsw.LockedError) as error:
            raise StoreBusy(
                f"another process kept {self.path} locked for too long: try again"
            ) from error
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise StoreDamaged(
                f"{self.path} is not a store or is damaged: save what can be read with 'reverie "
                "salvage', or move it away and bring a good copy back with 'reverie backup restore'"
            ) from error
        except apsw.CantOpenError as error:
            raise StoreError(f"{self.path} cannot be opened: check the path") from error
        except apsw.IOError as error:
            if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE:
                raise StoreFull(
                    f"no space left for {self.path}: free some and try again"
                ) from error
            if writing:
                self._failed = str(error)
            raise StoreFailed(
                f"the disk failed under {self.path} ({error}): check it, open the store again "
                "and repeat the write with the same key"
            ) from error
        except apsw.TooBigError as error:
            raise InvalidInput("the text is too long for one row: split it") from error
        except apsw.NoMemError as error:
            raise StoreError(f"not enough memory to work with {self.path}") from error

    # -- upkeep -------------------------------------------------------------------------------

    def scrub(self, erased: Sequence[str] = ()) -> bool:
        """Rewrite the file and empty the write-ahead log.

        secure_delete alone leaves copies of moved rows in the unused parts of pages.
        """
        self._require_usable()
        with self._exclusively(), self._translated(writing=True), self._lend() as connection:
            self._require_working()
            connection.set_busy_timeout(SCRUB_TIMEOUT_MS)
            try:
                connection.execute("VACUUM")
                return _truncate_wal(connection) and not self._holds(connection, erased)
            except (apsw.BusyError, apsw.FullError):
                return False
            finally:
                connection.set_busy_timeout(BUSY_TIMEOUT_MS)

    def _holds(self, connection: apsw.Connection, erased: Sequence[str]) -> bool:
        """Whether the file has bytes of these texts that belong to no living row."""
        for text in erased:
            for piece in files.pieces(text):
                living = (
                    "SELECT 1 FROM log WHERE instr(body, ?1) OR instr(reason, ?1) "
                    "UNION ALL SELECT 1 FROM session_state "
                    "WHERE instr(summary, ?1) OR instr(scratchpad, ?1) LIMIT 1"
                )
                if (
                    files.file_has(self.path, piece.encode())
                    and not connection.execute(living, (piece,)).fetchall()
                ):
                    return True
        return False

    def backup(self, target: Path) -> None:
        self._require_usable()
        part = target.with_name(target.name + ".part")
        try:
            part.unlink(missing_ok=True)
            os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            raise StoreError(f"{target} cannot be written: {error.strerror}") from error
        with self._translated(), self._lend() as connection:
            copy = apsw.Connection(str(part))
            try:
                # In one step: between two, a writer would make it start again, for ever.
                with copy.backup("main", connection, "main") as task:
                    task.step(-1)
                copy.pragma("journal_mode", "delete")
            finally:
                copy.close()
        part.rename(target)

    def restore(self, source: Path) -> None:
        """Through SQLite itself: other processes see one big change, never a swapped file."""
        self._require_usable()
        with self._exclusively(), self._translated(writing=True):
            with self._lend() as connection:
                self._require_working()
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
        self._vectors = VectorCache()  # what is compared next is read from the file again
        with self._translated(), self._lend() as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
            changed = files.changed_tables(connection)
        found = changed + [problem for problem in problems if problem != "ok"]
        return found + [f"{row[0]} row {row[1]} refers to a missing {row[2]}" for row in broken]

    def describe(self) -> Mapping[str, str]:
        with self.read() as tx:
            pages = tx.one("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return {
            "engine": f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
            "file": str(self.path),
            "bytes": str(pages[0] if pages else 0),
            "schema": str(schema.CURRENT),
        }

    def vacuum(self) -> None:
        self._require_usable()
        with self._exclusively(), self._translated(writing=True), self._lend() as connection:
            self._require_working()
            connection.execute("VACUUM")
            _truncate_wal(connection)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._pool_lock:
            self._closed = True
            idle, self._free = self._free, []
        for connection in idle:
            with contextlib.suppress(apsw.Error):
                connection.close()
        # A write of another thread still holds the lock: its caller gets an answer first.
        with self._write_lock:
            if self._lock_file is not None and not self._lock_depth:
                os.close(self._lock_file)
                self._lock_file = None


def _checkpoint(connection: apsw.Connection) -> None:
    """Move the write-ahead log into the file. The commit is safe already: a full disk can wait."""
    with contextlib.suppress(apsw.BusyError, apsw.FullError):
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


def _truncate_wal(connection: apsw.Connection) -> bool:
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
    return not busy


def _require_safe_sqlite() -> None:
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < OLDEST_SAFE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a shared file: "
            "pip install --upgrade apsw"
        )


def _set_pragmas(connection: apsw.Connection, pragmas: Sequence[tuple[str, str, object]]) -> None:
    """One at a time and read back: a PRAGMA that SQLite does not honour is silent otherwise."""
    for name, value, expected in pragmas:
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
        row = connection.execute(f"PRAGMA {name}").fetchone()
        if row is not None and row[0] != expected:
            raise StoreError(f"SQLite refused PRAGMA {name} = {value} (it is {row[0]})")


def _apply_step(connection: apsw.Connection, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in schema.STEPS[number - 1]:
            connection.execute(
                statement.format(clustered="WITHOUT ROWID").replace("BIGINT", "INTEGER")
            )
        if number == 1:
            connection.execute(Blocks.TABLE)
        if number == schema.SEALING:
            statements = SQLiteTransaction(connection, VectorCache(), writing=True)
            seals.seal_store(statements, seals.told("the log"))
        connection.pragma("application_id", files.APPLICATION_ID)
        connection.pragma("user_version", number)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_open_engines: weakref.WeakSet[SQLiteEngine] = weakref.WeakSet()
_inherited: list[apsw.Connection] = []


def _after_fork() -> None:
    """A child must neither hold the parent's file lock nor close the parent's connections."""
    for engine in _open_engines:
        if engine._lock_file is not None:
            with contextlib.suppress(OSError):
                os.close(engine._lock_file)
            engine._lock_file = None
        _inherited.extend(engine._free)
        _inherited.extend(engine._lent)
        engine._thread = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
