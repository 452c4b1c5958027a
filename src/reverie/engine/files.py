"""The files of SQLite stores: what an address means, whether a file is one, and what is in it."""

from __future__ import annotations

import mmap
import os
import urllib.parse
from pathlib import Path

import apsw

from reverie.errors import StoreDamaged

APPLICATION_ID = 0x52455645  # "REVE"


def parse_address(url: str) -> tuple[Path, dict[str, str]]:
    """A path, or ``sqlite://`` and an absolute path; ``?mode=ro`` or ``?vfs=NAME`` may follow."""
    text, _, query = url.removeprefix("sqlite://").rpartition("?")
    options = dict(urllib.parse.parse_qsl(query)) if text else {}
    if not options or not options.keys() <= {"mode", "vfs"}:
        text, options = url.removeprefix("sqlite://"), {}
    path = urllib.parse.unquote(text) if url.startswith("sqlite://") else text
    return Path(path).expanduser().absolute(), options


def copy_store_file(source: Path, target: Path) -> None:
    """Through SQLite: bytes alone would leave out what only the write-ahead log has."""
    if not is_store_file(source):
        raise StoreDamaged(f"{source} is not a store, or only a part of one: use another")
    try:
        here = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
        there = apsw.Connection(str(target))
        try:
            with there.backup("main", here, "main") as task:
                task.step(-1)
        finally:
            there.close()
            here.close()
    except apsw.Error as error:
        raise StoreDamaged(f"{source} cannot be read ({error}): use another") from error


def is_store_file(path: Path) -> bool:
    """By the header of the file format: page size and count, user version, application id."""
    with path.open("rb") as file:
        header = file.read(100)
        length = file.seek(0, os.SEEK_END)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        return False
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    version = int.from_bytes(header[60:64], "big")
    application = int.from_bytes(header[68:72], "big")
    size = (65536 if page == 1 else page) * pages
    return version > 0 and application == APPLICATION_ID and length >= size


def changed_tables(connection: apsw.Connection) -> list[str]:
    """Tables whose columns are not those they were made with: the schema itself was changed."""
    from reverie.engine.copying import TABLES

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


def pieces(text: str) -> list[str]:
    """A few stretches of a text, each short enough to lie within one page.

    A short text proves nothing: its bytes may well stand for something else.
    """
    if len(text.encode()) < 16:
        return []
    step = max(len(text) // 8, 32)
    return [text[i : i + 32] for i in range(0, max(len(text) - 31, 1), step)]


def file_has(path: Path, needle: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        return pages.find(needle) >= 0
