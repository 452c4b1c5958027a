"""The files of SQLite stores: addresses, creating, copying, recognising and searching them."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.engine.schema import TABLES
from reverie.engine.sqlite.file_lock import FileLock
from reverie.errors import (
    InvalidInput,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
)
from reverie.protocols import Progress

if TYPE_CHECKING:
    import apsw

APPLICATION_ID = 0x52455645  # "REVE"
MAX_SHOWN_CHARS = 100
# Progress is reported each time this many pages are copied.
PAGES_AT_ONCE = 1_000


def parse_url(url: str) -> tuple[Path, dict[str, str]]:
    """Parse an address into a path and its options (``mode=ro``, ``vfs=NAME``).

    An address is a path, or ``sqlite://`` and an absolute path, then optionally ``?`` and options.
    """
    text, _, query = url.removeprefix("sqlite://").rpartition("?")
    options = dict(urllib.parse.parse_qsl(query)) if text else {}
    if not options or not options.keys() <= {"mode", "vfs"}:
        text, options = url.removeprefix("sqlite://"), {}
    path = urllib.parse.unquote(text) if url.startswith("sqlite://") else text
    return usable_path(path).absolute(), options


def usable_path(text: str | Path) -> Path:
    """Expand ``~`` in a path, and refuse text that the system does not accept as a path."""
    shown = repr(str(text)[:MAX_SHOWN_CHARS])
    try:
        path = Path(text).expanduser()
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return path
    except OSError as error:
        raise InvalidInput(f"{shown} is not a path ({error.strerror}): give another") from error
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(f"{shown} is not a path ({error}): give another") from error
    return path


def immutable_fingerprint(path: Path) -> tuple[int, ...] | None:
    """A value that differs after a file on a read-only medium was changed; None on other media.

    SQLite cannot read such a file in the usual way, because it would have to create two files
    beside it. It can with ``immutable``, which assumes that nobody writes. A writer that reaches
    the file from elsewhere creates a write-ahead log before it changes anything; while there is
    one, with its index, SQLite reads the file in the usual way.
    """
    try:
        if not os.statvfs(path).f_flag & os.ST_RDONLY:
            return None
        status = path.stat()
        wal, shm = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
        pending = wal.stat().st_size if wal.exists() else -1
        if pending >= 0 and shm.exists():
            return None
    except (OSError, AttributeError):
        return None
    if pending > 0:
        raise StoreReadOnly(
            f"{wal} holds writes that cannot be read on a read-only medium: copy it and {path} to "
            "a folder that can be written, and open that copy"
        )
    return (status.st_ino, status.st_size, status.st_mtime_ns, pending)


def immutable_uri(path: Path) -> str:
    """The URI by which SQLite opens a file on a read-only medium."""
    return f"file:{urllib.parse.quote(str(path))}?immutable=1"


def ensure_file(path: Path, lock: FileLock) -> None:
    """Create the file of a new store; the caller holds its lock.

    Refuse an empty file whose lock file or write-ahead log shows that it was a store: SQLite would
    treat it as a new database and discard that log.
    """
    wal = path.with_name(path.name + "-wal")
    try:
        if not path.exists():
            lock.mark(False)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        elif path.stat().st_size <= 1 and (
            lock.is_marked() or (wal.exists() and wal.stat().st_size)
        ):
            raise StoreDamaged(
                f"{path} was a store and is empty now: move it away, then restore a backup with "
                "'reverie backup restore'"
            )
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error.strerror}") from error


@contextlib.contextmanager
def new_file(path: Path, target: Path | None = None) -> Iterator[None]:
    """Create an empty file that only its owner may read; remove it again when the block fails.

    ``target`` is the name for messages where ``path`` is only a temporary one.
    """
    remove_store(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise StoreError(f"{target or path} cannot be written: {error.strerror}") from error
    try:
        yield
    except BaseException:
        remove_store(path)
        raise


def move_into_place(part: Path, target: Path) -> None:
    """Rename a finished file to its final name, and sync the folder."""
    part.rename(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the names of the files in a folder durable."""
    with contextlib.suppress(OSError):  # not every system lets a folder be opened
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def remove_store(path: Path) -> None:
    """Delete a store file, and the files of SQLite and the lock beside it."""
    for suffix in ("", "-journal", "-wal", "-shm", "-lock"):
        with contextlib.suppress(OSError):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextlib.contextmanager
def immediate_transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run the block in a write transaction, which is rolled back if it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def copy_store_file(source: Path, target: Path) -> None:
    """Copy a store through SQLite: its bytes alone lack what is only in the write-ahead log."""
    import apsw  # takes time to load; no other function here but those that copy needs it

    if not is_store_file(source):
        raise StoreDamaged(f"{source} is not a store, or only a part of one: give another file")
    try:
        immutable = immutable_fingerprint(source) is not None
        connection = apsw.Connection(
            immutable_uri(source) if immutable else str(source),
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            if immutable
            else apsw.SQLITE_OPEN_READWRITE,
        )
        try:
            copy_pages(connection, target)
        finally:
            connection.close()
    except (apsw.NoMemError, MemoryError) as error:
        raise StoreError(f"not enough memory to copy {source}: free some and try again") from error
    except apsw.BusyError as error:
        raise StoreBusy(f"another process keeps {source} locked: try again") from error
    except apsw.IOError as error:
        raise StoreFailed(
            f"the disk failed to read {source} ({error}): try again, and check the disk"
        ) from error
    except apsw.CantOpenError as error:
        raise StoreError(f"{source} cannot be opened: check the rights to its folder") from error
    except apsw.Error as error:
        raise StoreDamaged(f"{source} cannot be read ({error}): give another file") from error


def copy_pages(
    source: apsw.Connection,
    target: Path,
    *,
    vfs: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Copy a database into a new file; errors that concern the new file name it.

    With ``progress``, nobody may write meanwhile.
    """
    import apsw

    copy = apsw.Connection(str(target), vfs=vfs)
    with contextlib.closing(copy), _naming_new_file(target):
        # In one step: a write between two steps would make the backup start again, without end.
        with copy.backup("main", source, "main") as task:
            while not task.step(-1 if progress is None else PAGES_AT_ONCE):
                assert progress is not None
                progress(task.page_count - task.remaining, task.page_count)
        copy.pragma("journal_mode", "delete")


def copy_rows(source: apsw.Connection, target: Path) -> None:
    """Copy a database into a new file without what the unused parts of its pages hold."""
    with _naming_new_file(target):
        source.execute("VACUUM INTO ?", (str(target),))


@contextlib.contextmanager
def _naming_new_file(target: Path) -> Iterator[None]:
    """Raise errors that concern the new file with its name."""
    import apsw

    try:
        yield
    except apsw.FullError as error:
        raise StoreFull(f"no space left for {target}: free some and try again") from error
    except apsw.ReadOnlyError as error:
        raise StoreError(f"{target} cannot be written: check the rights to its folder") from error


def is_store_file(path: Path) -> bool:
    """Whether a file is a store, by its header: size, user version and application id."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
            length = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        return False
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    version = int.from_bytes(header[60:64], "big")
    application = int.from_bytes(header[68:72], "big")
    size = (65536 if page == 1 else page) * pages
    return version > 0 and application == APPLICATION_ID and length >= size


def _unreadable(path: Path, error: OSError) -> StoreError:
    if isinstance(error, IsADirectoryError):
        return StoreDamaged(f"{path} is a folder: give the path of a file")
    if error.errno == errno.EIO:
        return StoreFailed(f"the disk failed to read {path}: try again, and check the disk")
    return StoreError(f"{path} cannot be read: {error.strerror}")


def changed_tables(connection: apsw.Connection) -> list[str]:
    """Describe tables that lack a column: the schema itself was damaged."""
    problems = []
    for table in TABLES:
        try:
            rows = connection.execute(f"PRAGMA table_info({table.name})").fetchall()
            complete = {*table.key, *table.others} <= {row[1] for row in rows}
        except UnicodeDecodeError:
            complete = False
        if not complete:
            problems.append(f"the columns of {table.name} are not those it was made with")
    return problems


def sample_substrings(text: str) -> list[str]:
    """A few substrings of a text, each short enough to fit into one page.

    None of a short text: its bytes may occur in the file by chance.
    """
    if len(text.encode()) < 16:
        return []
    step = max(len(text) // 8, 32)
    return [text[i : i + 32] for i in range(0, max(len(text) - 31, 1), step)]


def file_contains(path: Path, needle: bytes) -> bool:
    """Whether these bytes are anywhere in a file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        return pages.find(needle) >= 0
