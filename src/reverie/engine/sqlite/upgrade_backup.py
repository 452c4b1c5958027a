"""The copy of a store that is kept beside it before it is upgraded.

It is an ordinary store of the earlier version, named
``<store>.before-schema-6-<time>.backup`` or ``<store>.before-index-<time>.backup``. It has its name
only once it is complete and synced. An erase deletes it if it holds what was erased.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import apsw

from reverie.engine.log import OVERWRITTEN_REASON
from reverie.engine.sqlite import store_file
from reverie.engine.upgrade import UpgradeOptions, logger
from reverie.errors import StoreError, StoreFull
from reverie.protocols import Progress

# In the name of the copy: why it was made.
BEFORE_INDEX = "index"
_SKIP = "upgrade without a backup (--no-backup, or REVERIE_UPGRADE_BACKUP=off)"
# An entry whose content the copy has, and which was erased or overwritten since by an erase. One
# that only differs may be damaged here, and sound in the copy.
_FIND_ERASED = """SELECT 1 FROM kept.log k JOIN main.log l
    ON l.space = k.space AND l.position = k.position AND l.uuid IS k.uuid
    WHERE k.body IS NOT NULL AND l.body IS NOT k.body
    AND (l.body IS NULL AND l.salt IS NULL OR l.reason = ?) LIMIT 1"""
# The summary and the scratchpad of a session that was erased since. They are not in the log.
_FIND_ERASED_STATE = """SELECT 1 FROM kept.session_state s JOIN main.log l
    ON l.space = s.space AND l.owner = s.owner AND l.session = s.session
    WHERE l.op = 'erase' AND l.sequence IS NULL AND (s.summary <> '' OR s.scratchpad IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM kept.log k
    WHERE k.space = l.space AND k.position = l.position AND k.uuid IS l.uuid) LIMIT 1"""


def before_schema(number: int) -> str:
    """Return the part of a copy's name that says before which schema it was made."""
    return f"schema-{number}"


def find(path: Path, before: str = "*") -> list[Path]:
    """Find the copies that are kept beside a store, the oldest first."""
    name = f"{glob.escape(path.name)}.before-{before}-*.backup"
    return sorted(path.parent.glob(name), key=lambda copy: copy.name.rpartition("-")[2])


def keep(
    connection: apsw.Connection, path: Path, before: str, options: UpgradeOptions, vfs: str | None
) -> None:
    """Copy the store at ``path``; the caller holds its write lock.

    An upgrade that was killed before it changed anything finds the copy it made, and adds none.
    """
    if not connection.execute("SELECT EXISTS (SELECT 1 FROM log)").get:
        return
    # A copy that was not finished takes the space of the next one.
    store_file.remove_store(_part(path))
    try:
        target = _find_same(connection, path, before)
        if target is None:
            _require_space(connection, path)
            target = _copy(connection, path, before, options.report("backing up"), vfs)
    except StoreFull as error:
        raise _no_space(path) from error
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise _no_space(path) from error
        raise StoreError(
            f"{path} cannot be backed up before it is upgraded ({error.strerror}), and nothing was "
            f"changed: fix that, or {_SKIP}"
        ) from error
    logger.warning(
        "upgrading %s, of which a copy is kept: to go back, install the earlier Reverie, move the "
        "store away and run 'reverie backup restore %s'",
        path,
        target,
    )


def _copy(
    connection: apsw.Connection, path: Path, before: str, progress: Progress, vfs: str | None
) -> Path:
    part = _part(path)
    with store_file.new_file(part):
        if _awaits_scrub(connection):
            store_file.copy_rows(connection, part)
        else:
            store_file.copy_pages(connection, part, vfs=vfs, progress=progress)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        target = _free_name(path, before)
        store_file.move_into_place(part, target)
    return target


def _awaits_scrub(connection: apsw.Connection) -> bool:
    """Whether unused parts of the store's pages may still hold what was erased."""
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM jobs WHERE kind = 'scrub')").get)


def _find_same(connection: apsw.Connection, path: Path, before: str) -> Path | None:
    """Find a copy that holds exactly what the store holds now."""
    return next((copy for copy in find(path, before) if _holds_same(connection, copy)), None)


def _holds_same(connection: apsw.Connection, copy: Path) -> bool:
    """Whether a copy has the tables and rows of the store, and no others.

    They are compared without another copy, for which a full disk may have no space.
    """
    tables = "SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY name"
    # One that cannot be read is not the same.
    with contextlib.suppress(apsw.Error, UnicodeDecodeError), _attached(connection, copy):
        return _same_rows(
            connection, "sqlite_schema", "ORDER BY type, name", "type, name, sql"
        ) and all(
            _same_rows(connection, f'"{name}"') for (name,) in connection.execute(tables).fetchall()
        )
    return False


def _same_rows(
    connection: apsw.Connection, table: str, order: str = "", columns: str = "*"
) -> bool:
    """Whether a table has the same rows in the store and in the attached copy."""
    with (
        contextlib.closing(connection.cursor()) as own,
        contextlib.closing(connection.cursor()) as kept,
    ):
        rows = own.execute(f"SELECT {columns} FROM main.{table} {order}")
        copied = kept.execute(f"SELECT {columns} FROM kept.{table} {order}")
        return all(one == other for one, other in zip_longest(rows, copied))


@contextlib.contextmanager
def _attached(connection: apsw.Connection, copy: Path) -> Iterator[None]:
    """Let statements read a copy under the name ``kept``."""
    connection.execute("ATTACH ? AS kept", (str(copy),))
    try:
        yield
    finally:
        connection.execute("DETACH kept")


def _part(path: Path) -> Path:
    """Return the name of a copy until it is complete."""
    return path.with_name(f"{path.name}.upgrade.part")


def remove_erased(connection: apsw.Connection, path: Path) -> bool:
    """Delete the copies that hold what was erased since; False if one cannot be read or deleted.

    The caller holds the write lock, so that no upgrade is under way: an unfinished copy is left by
    a process that was killed.
    """
    store_file.remove_store(_part(path))
    clean = True
    for copy in find(path):
        try:
            if _holds_erased(connection, copy):
                _delete(copy)
                logger.warning("%s was deleted: it held what was erased", copy)
        except (apsw.Error, OSError) as error:
            logger.warning("%s may hold what was erased: delete it (%s)", copy, error)
            clean = False
    return clean


def _holds_erased(connection: apsw.Connection, copy: Path) -> bool:
    try:
        with _attached(connection, copy):
            if connection.execute(_FIND_ERASED, (OVERWRITTEN_REASON,)).fetchall():
                return True
            keeps_state = connection.table_exists("kept", "session_state")
            return keeps_state and bool(connection.execute(_FIND_ERASED_STATE).fetchall())
    except (apsw.NotADBError, apsw.CorruptError):
        if _is_readable(copy):
            raise  # the store is damaged, and the copy may be the only sound one
        return True  # of no use as a backup, and nobody can say what its bytes are


def _is_readable(copy: Path) -> bool:
    """Whether every entry of a copy can be read."""
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
    with contextlib.closing(connection), contextlib.suppress(apsw.NotADBError, apsw.CorruptError):
        connection.execute("SELECT sum(length(body)) FROM log").fetchall()
        return True
    return False


def _delete(copy: Path) -> None:
    copy.unlink()
    store_file.sync_folder(copy.parent)


def _free_name(path: Path, before: str) -> Path:
    """Return a name with the time in UTC that no file has."""
    while True:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        target = path.with_name(f"{path.name}.before-{before}-{stamp}.backup")
        if not target.exists():
            return target
        time.sleep(0.1)


def _require_space(connection: apsw.Connection, path: Path) -> None:
    pages, size = (connection.pragma(name) for name in ("page_count", "page_size"))
    with contextlib.suppress(OSError):  # a file system that does not say: the copy finds out
        if shutil.disk_usage(path.parent).free < pages * size:
            raise _no_space(path)


def _no_space(path: Path) -> StoreFull:
    return StoreFull(
        f"no space left to back up {path} before it is upgraded, and nothing was changed: free "
        f"some, or {_SKIP}"
    )
