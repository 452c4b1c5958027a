"""What the vault's files are: which memory or session each is of, and how we left it.

A cache beside the files: by it an unchanged file is not read again, and one that is gone is missed.
Deleted, it is made anew from the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from reverie.errors import VaultError
from reverie.model import Scope
from reverie.vault.disk import Stamp

_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, what TEXT NOT NULL, space TEXT NOT NULL, user TEXT NOT NULL,
    name TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL,
    size INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS files_name ON files (space, user, what, name);
CREATE TABLE IF NOT EXISTS cursors (
    space TEXT NOT NULL, user TEXT NOT NULL, position INTEGER NOT NULL,
    PRIMARY KEY (space, user)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (
    number INTEGER PRIMARY KEY, space TEXT NOT NULL, path TEXT NOT NULL, line TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
FORMAT = 1


class File(NamedTuple):
    """One file of ours. ``what``: memory, turns, summary, index or conflict; ``name``: the id of
    the memory or session; ``version``: of the memory, or the last sequence that turns hold."""

    path: str
    what: str
    scope: Scope
    name: str
    version: int
    digest: str
    stamp: Stamp


class Pending(NamedTuple):
    """A change that git does not hold yet. ``line`` is empty where the change says nothing new."""

    number: int
    space: str
    path: str
    line: str


class Files:
    def __init__(self, path: Path) -> None:
        try:
            self._connection = self._opened(path)
        except apsw.Error:
            # It is only a cache.
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
            try:
                self._connection = self._opened(path)
            except apsw.Error as error:
                raise VaultError(f"{path} cannot be used: {error}") from error

    @staticmethod
    def _opened(path: Path) -> apsw.Connection:
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(10_000)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "NORMAL")
        connection.pragma("secure_delete", 1)
        if connection.pragma("user_version") != FORMAT:
            for table in ("files", "cursors", "pending", "facts"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(_TABLES)
        connection.pragma("user_version", FORMAT)
        return connection

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is put within goes in together."""
        with self._connection:
            yield

    def scrub(self) -> None:
        """Leave nothing behind of what was deleted here."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- files --------------------------------------------------------------------------------

    def at(self, path: str) -> File | None:
        return next(self._found("path = ?", (path,)), None)

    def of(self, scope: Scope, what: str, name: str) -> list[File]:
        values = (scope.space, scope.user or "", what, name)
        return list(self._found("space = ? AND user = ? AND what = ? AND name = ?", values))

    def of_owner(self, scope: Scope, what: str) -> list[File]:
        values = (scope.space, scope.user or "", what)
        return list(self._found("space = ? AND user = ? AND what = ?", values))

    def below(self, folder: str) -> list[File]:
        """All of a folder; of everything, for the empty one."""
        if not folder:
            return list(self._found("1", ()))
        return list(self._found("path > ? AND path < ?", (f"{folder}/", f"{folder}0")))

    def scopes(self) -> list[Scope]:
        rows = self._connection.execute("SELECT DISTINCT space, user FROM files")
        return [Scope(space, user or None) for space, user in rows]

    def put(self, file: File) -> None:
        scope = file.scope
        self._connection.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (file.path, file.what, scope.space, scope.user or "", file.name, file.version,
             file.digest, *file.stamp),
        )  # fmt: skip

    def drop(self, path: str) -> None:
        self._connection.execute("DELETE FROM files WHERE path = ?", (path,))

    def _found(self, where: str, values: Iterable[object]) -> Iterator[File]:
        rows = self._connection.execute(
            "SELECT path, what, space, user, name, version, digest, size, mtime, inode "
            f"FROM files WHERE {where} ORDER BY path",
            tuple(values),
        ).fetchall()
        each: tuple[Any, ...]
        for each in rows:
            path, what, space, user, name, version, digest, *stamp = each
            yield File(path, what, Scope(space, user or None), name, version, digest, Stamp(*stamp))

    # -- how far the log was followed ---------------------------------------------------------

    def cursor(self, scope: Scope) -> int:
        row = self._connection.execute(
            "SELECT position FROM cursors WHERE space = ? AND user = ?",
            (scope.space, scope.user or ""),
        ).fetchone()
        return 0 if row is None else int(row[0])

    def set_cursor(self, scope: Scope, position: int) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)",
            (scope.space, scope.user or "", position),
        )

    def forget_cursors(self) -> None:
        self._connection.execute("DELETE FROM cursors")

    def fact(self, name: str) -> str | None:
        row = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def facts(self, prefix: str) -> dict[str, str]:
        """The facts whose names begin so, by the rest of their names."""
        rows = self._connection.execute(
            "SELECT name, value FROM facts WHERE name >= ? AND name < ?",
            (prefix, f"{prefix}\U0010ffff"),
        )
        return {name.removeprefix(prefix): value for name, value in rows}

    def set_fact(self, name: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    # -- what git does not hold yet -----------------------------------------------------------

    def note(self, space: str, path: str, line: str = "") -> None:
        self._connection.execute(
            "INSERT INTO pending (space, path, line) VALUES (?, ?, ?)", (space, path, line)
        )

    def pending(self) -> list[Pending]:
        rows = self._connection.execute("SELECT number, space, path, line FROM pending ORDER BY 1")
        return [Pending(*row) for row in rows]

    def committed(self, pending: Iterable[Pending]) -> None:
        numbers = [(each.number,) for each in pending]
        with self._connection:
            self._connection.executemany("DELETE FROM pending WHERE number = ?", numbers)
