"""The files of SQLite stores: what an address means, whether a file is one, and what is in it."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import apsw

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

APPLICATION_ID = 0x52455645  # "REVE"
MAX_SHOWN_CHARS = 100


def parse_url(url: str) -> tuple[Path, dict[str, str]]:
    """A path, or ``sqlite://`` and an absolute path; ``?mode=ro`` or ``?vfs=NAME`` may follow."""
    text, _, query = url.removeprefix("sqlite://").rpartition("?")
    options = dict(urllib.parse.parse_qsl(query)) if text else {}
    if not options or not options.keys() <= {"mode", "vfs"}:
        text, options = url.removeprefix("sqlite://"), {}
    path = urllib.parse.unquote(text) if url.startswith("sqlite://") else text
    return usable_path(path).absolute(), options


def usable_path(text: str | Path) -> Path:
    """A path that the system can be asked about, with the home folder in the place of ``~``."""
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
    """What tells whether a file on a read-only medium was changed, None on any other medium.

    SQLite cannot read such a file as any other: it would have to make two files beside it. It can
    with ``immutable``, which trusts that nobody writes. A writer that reaches the file in another
    way makes a write-ahead log before it changes anything; while there is one, with its index,
    SQLite reads the file as any other.
    """
    try:
        if not os.statvfs(path).f_flag & os.ST_RDONLY:
            return None
        found = path.stat()
        log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
        pending = log.stat().st_size if log.exists() else -1
        if pending >= 0 and index.exists():
            return None
    except (OSError, AttributeError):
        return None
    if pending > 0:
        raise StoreReadOnly(
            f"{log} holds writes that cannot be read on a read-only medium: copy it and {path} to "
            "a folder that can be written, and open that copy"
        )
    return (found.st_ino, found.st_size, found.st_mtime_ns, pending)


def immutable_uri(path: Path) -> str:
    return f"file:{urllib.parse.quote(str(path))}?immutable=1"


def ensure_file(path: Path, lock: FileLock) -> None:
    """Make the file of a new store, for the holder of its lock.

    A file without content was a store if its lock file or its write-ahead log says so: SQLite would
    take it for a new one, and throw that log away.
    """
    log = path.with_name(path.name + "-wal")
    try:
        if not path.exists():
            lock.mark(False)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        elif path.stat().st_size <= 1 and (
            lock.is_marked() or (log.exists() and log.stat().st_size)
        ):
            raise StoreDamaged(
                f"{path} was a store and is empty now: move it away, then bring a backup back with "
                "'reverie backup restore'"
            )
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error.strerror}") from error


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[None]:
    """An empty file that is the owner's alone, gone again if it cannot be finished."""
    remove_store(target)
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}") from error
    try:
        yield
    except BaseException:
        remove_store(target)
        raise


def move_into_place(part: Path, target: Path) -> None:
    """Give a finished file its name, and see that the name is kept over a power cut."""
    part.rename(target)
    with contextlib.suppress(OSError):  # not every system lets a folder be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_store(path: Path) -> None:
    """Take away a file and what SQLite and its lock left beside it."""
    for beside in ("", "-journal", "-wal", "-shm", "-lock"):
        with contextlib.suppress(OSError):
            path.with_name(path.name + beside).unlink(missing_ok=True)


def copy_store_file(source: Path, target: Path) -> None:
    """Through SQLite: bytes alone would leave out what only the write-ahead log has."""
    if not is_store_file(source):
        raise StoreDamaged(f"{source} is not a store, or only a part of one: use another")
    try:
        frozen = immutable_fingerprint(source) is not None
        here = apsw.Connection(
            immutable_uri(source) if frozen else str(source),
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            if frozen
            else apsw.SQLITE_OPEN_READWRITE,
        )
        try:
            copy_pages(here, target)
        finally:
            here.close()
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
        raise StoreDamaged(f"{source} cannot be read ({error}): use another") from error


def copy_pages(source: apsw.Connection, target: Path) -> None:
    """Copy a database into a new file. What fails there is said of that file."""
    there = apsw.Connection(str(target))
    try:
        # In one step: between two, a writer would make it start again, for ever.
        with there.backup("main", source, "main") as task:
            task.step(-1)
        there.pragma("journal_mode", "delete")
    except apsw.FullError as error:
        raise StoreFull(f"no space left for {target}: free some and try again") from error
    except apsw.ReadOnlyError as error:
        raise StoreError(f"{target} cannot be written: check the rights to its folder") from error
    finally:
        there.close()


def is_store_file(path: Path) -> bool:
    """By the header of the file format: page size and count, user version, application id."""
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
    """Tables whose columns are not those they were made with: the schema itself was changed."""
    from reverie.engine.table_copy import TABLES

    found = []
    for table in TABLES:
        try:
            rows = connection.execute(f"PRAGMA table_info({table.name})").fetchall()
            whole = {*table.key, *table.others} <= {row[1] for row in rows}
        except UnicodeDecodeError:
            whole = False
        if not whole:
            found.append(f"the columns of {table.name} are not those it was made with")
    return found


def sample_substrings(text: str) -> list[str]:
    """A few stretches of a text, each short enough to lie within one page.

    A short text proves nothing: its bytes may well stand for something else.
    """
    if len(text.encode()) < 16:
        return []
    step = max(len(text) // 8, 32)
    return [text[i : i + 32] for i in range(0, max(len(text) - 31, 1), step)]


def file_contains(path: Path, needle: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        return pages.find(needle) >= 0
