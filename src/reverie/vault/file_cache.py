"""The cache of a vault's files (``files.db``): which memory or session each file shows, and the
digest and stamp it had when it was written.

With it, unchanged files need not be read again and deleted files are noticed. If the cache is
deleted, it is made again from the files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from reverie.errors import VaultError
from reverie.model import Scope
from reverie.vault.disk import FileStamp

_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, what TEXT NOT NULL, space TEXT NOT NULL, user TEXT NOT NULL,
    name TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL,
    size INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL,
    held INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS files_name ON files (space, user, what, name);
CREATE INDEX IF NOT EXISTS files_unwritten ON files (what) WHERE version = 0;
CREATE INDEX IF NOT EXISTS files_held ON files (path) WHERE held;
CREATE TABLE IF NOT EXISTS cursors (
    space TEXT NOT NULL, user TEXT NOT NULL, position INTEGER NOT NULL, uuid TEXT NOT NULL,
    PRIMARY KEY (space, user)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (
    number INTEGER PRIMARY KEY, space TEXT NOT NULL, path TEXT NOT NULL, line TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS withheld (
    path TEXT PRIMARY KEY, space TEXT NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (
    number INTEGER PRIMARY KEY, space TEXT NOT NULL, user TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
FORMAT = 3


class VaultFile(NamedTuple):
    """A file that the vault wrote or read.

    ``what`` is memory, turns, summary, index or conflict. ``name`` is the id of the memory or
    session. ``version`` is that of the memory, or the last sequence in a file of turns. ``digest``
    and ``stamp`` are those of the file when it was last written or read. ``held``: it was deleted,
    and is neither forgotten nor written again until the person answers.
    """

    path: str
    what: str
    scope: Scope
    name: str
    version: int
    digest: str = ""
    stamp: FileStamp = FileStamp(0, 0, 0)
    held: bool = False


class PendingChange(NamedTuple):
    """A changed file that is not committed yet.

    ``line`` describes the change in the commit message; it is empty if that is not needed.
    """

    number: int
    space: str
    path: str
    line: str


class WithheldFile(NamedTuple):
    """A file that is not committed because it contains secrets.

    ``space`` is empty for a person's own file, which only a checkpoint would commit; ``why`` names
    the kinds of secrets.
    """

    path: str
    space: str
    why: str


class CacheDamaged(VaultError):
    """The cache could not be read and was deleted; the caller has to start again."""


_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.ConstraintError)


class FileCache:
    """The SQLite database of the cache.

    Besides the files it stores how far the log was written, small facts by name, uncommitted
    changes, and deletions that wait for an answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            try:
                self._connection = self._opened(path)
            except _DAMAGE:
                self._throw_away()
                self._connection = self._opened(path)
        except (apsw.Error, OSError) as error:
            raise VaultError(f"{path} cannot be used: {error}") from error

    @staticmethod
    def _opened(path: Path) -> apsw.Connection:
        # SQLite gives its WAL and SHM files the permissions of this file.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600))
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_timeout(10_000)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "NORMAL")
            # Pending lines of commit messages quote memories, which may be erased.
            connection.pragma("secure_delete", True)
            form = connection.pragma("user_version")
            if form not in {0, FORMAT}:
                raise apsw.NotADBError("it was made by another version")
            if form == 0:
                # A write lock from the start: two processes that open a new vault wait.
                connection.execute(
                    f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _throw_away(self) -> None:
        """Delete the database; it can be made again from the files."""
        for end in ("", "-wal", "-shm"):
            self._path.with_name(f"{self._path.name}{end}").unlink(missing_ok=True)

    def close(self) -> None:
        self._connection.close()

    def _run(self, sql: str, values: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, tuple(values)).fetchall()
        except _DAMAGE as error:
            with contextlib.suppress(apsw.Error):
                self._connection.close()
            self._throw_away()
            raise CacheDamaged(f"{self._path} was damaged and is built again: try again") from error
        except apsw.Error as error:
            raise VaultError(f"{self._path} cannot be used: {error}") from error

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write everything in the block in one transaction."""
        try:
            with self._connection:
                yield
        except apsw.Error as error:
            if isinstance(error.__context__, VaultError):
                raise error.__context__ from None
            raise VaultError(f"{self._path} cannot be used: {error}") from error

    def look_again(self) -> None:
        """Make the next sync read all files and the vault's log from the start."""
        with self.together():
            self._run("DELETE FROM cursors")
            self._run(
                "DELETE FROM facts WHERE name NOT LIKE 'folder:%' AND name NOT LIKE 'former:%' "
                "AND name NOT IN ('names', 'learned', 'private')"
            )

    def scrub(self) -> None:
        """Empty the WAL file, so that nothing deleted stays readable."""
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- files --------------------------------------------------------------------------------

    def get(self, path: str) -> VaultFile | None:
        """Return the file at a path, or None."""
        return next(self._found("path = ?", (path,)), None)

    def of(self, scope: Scope, what: str, name: str) -> list[VaultFile]:
        """Return the files of one memory or session."""
        values = (scope.space, scope.user or "", what, name)
        return list(self._found("space = ? AND user = ? AND what = ? AND name = ?", values))

    def list_type(self, scope: Scope, what: str) -> list[VaultFile]:
        """Return the files of an owner of one type: memory, turns, summary, index or conflict."""
        values = (scope.space, scope.user or "", what)
        return list(self._found("space = ? AND user = ? AND what = ?", values))

    def count(self, scope: Scope) -> int:
        """Return the number of files of an owner."""
        values = (scope.space, scope.user or "")
        rows = self._run("SELECT count(*) FROM files WHERE space = ? AND user = ?", values)
        return int(rows[0][0])

    def count_outside(self, scope: Scope, folder: str) -> int:
        """Return how many memories and sessions of an owner have files that are not in a folder."""
        rows = self._run(
            "SELECT count(DISTINCT what || name) FROM files WHERE space = ? AND user = ? "
            "AND what IN ('memory', 'turns') AND substr(path, 1, ?) <> ?",
            (scope.space, scope.user or "", len(folder) + 1, f"{folder}/"),
        )
        return int(rows[0][0])

    def below(self, folder: str) -> list[VaultFile]:
        """Return all files below a folder; all files for the empty text."""
        if not folder:
            return list(self._found("1", ()))
        return list(self._found("path > ? AND path < ?", (f"{folder}/", f"{folder}0")))

    def has_below(self, folder: str, what: str) -> bool:
        """Whether there is a file of one type below a folder."""
        below = "path > ? AND path < ? AND what = ?"
        values = (f"{folder}/", f"{folder}0", what)
        return bool(self._run(f"SELECT EXISTS(SELECT 1 FROM files WHERE {below})", values)[0][0])

    def stamps(self) -> dict[str, tuple[int, ...]]:
        """Return size, time and inode of each file, by its path; equal to a ``FileStamp``."""
        rows = self._run("SELECT path, size, mtime, inode FROM files")
        return {row[0]: row[1:] for row in rows}

    def subfolders(self, folder: str) -> set[str]:
        """Return the names of the folders below another one, or at the top, that have files."""
        above = f"{folder}/" if folder else ""
        rows = self._run(
            "SELECT DISTINCT substr(path, ?, instr(substr(path, ?), '/') - 1) FROM files "
            "WHERE substr(path, 1, ?) = ?",
            (len(above) + 1, len(above) + 1, len(above), above),
        )
        return {str(name) for (name,) in rows if name}

    def unwritten(self) -> list[VaultFile]:
        """Return the files that were read and do not show the store's version yet."""
        return list(self._found("what = 'memory' AND version = 0", ()))

    def scopes(self) -> list[Scope]:
        rows = self._run("SELECT DISTINCT space, user FROM files")
        return [Scope(space, user or None) for space, user in rows]

    def put(self, file: VaultFile) -> None:
        """Add or replace a file."""
        scope = file.scope
        self._run(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (file.path, file.what, scope.space, scope.user or "", file.name, file.version,
             file.digest, *file.stamp, file.held),
        )  # fmt: skip

    def restamp(self, file: VaultFile, stamp: FileStamp) -> None:
        """Record another stamp of a file with unchanged content; safe without the lock."""
        self._run(
            "UPDATE files SET size = ?, mtime = ?, inode = ? WHERE path = ? AND digest = ?",
            (*stamp, file.path, file.digest),
        )

    def drop(self, path: str) -> None:
        """Remove a file from the cache."""
        self._run("DELETE FROM files WHERE path = ?", (path,))
        self._run("DELETE FROM withheld WHERE path = ?", (path,))

    def drop_owner(self, scope: Scope) -> None:
        """Delete the rows of all files of an owner."""
        self._run("DELETE FROM files WHERE space = ? AND user = ?", (scope.space, scope.user or ""))

    def drop_owners(self, scopes: Iterable[Scope], facts: Iterable[str]) -> None:
        """Delete the rows of several owners' files, and facts that depend on them."""
        with self.together():
            for fact in facts:
                self._run("DELETE FROM facts WHERE name = ?", (fact,))
            for scope in scopes:
                self.drop_owner(scope)

    def _found(self, where: str, values: Iterable[object]) -> Iterator[VaultFile]:
        rows = self._run(
            "SELECT path, what, space, user, name, version, digest, held, size, mtime, inode "
            f"FROM files WHERE {where} ORDER BY path",
            values,
        )
        for path, what, space, user, name, version, digest, held, *stamp in rows:
            yield VaultFile(
                *(path, what, Scope(space, user or None), name, version, digest),
                *(FileStamp(*stamp), bool(held)),
            )

    # -- deleted files ------------------------------------------------------------------------

    def held(self) -> list[str]:
        """Return the deleted files that wait for an answer."""
        return [path for (path,) in self._run("SELECT path FROM files WHERE held ORDER BY path")]

    def note_forgotten(self, scope: Scope, at: int) -> None:
        """Record that a memory was forgotten because its file was deleted."""
        self._run(
            "INSERT INTO forgotten (space, user, at) VALUES (?, ?, ?)",
            (scope.space, scope.user or "", at),
        )

    def forgotten_since(self, at: int) -> dict[Scope, int]:
        """Return how many memories of each owner were forgotten by deleting files since a time."""
        self._run("DELETE FROM forgotten WHERE at < ?", (at,))
        rows = self._run("SELECT space, user, count(*) FROM forgotten GROUP BY space, user")
        return {Scope(space, user or None): many for space, user, many in rows}

    def forget_window(self) -> None:
        """Forget the deletions that were counted so far."""
        self._run("DELETE FROM forgotten")

    # -- how far the log was written to the files ---------------------------------------------

    def mark(self, scope: Scope) -> tuple[int, str]:
        """Return position and uuid of the last log entry that was written to the files."""
        return self.marks().get(scope, (0, ""))

    def marks(self) -> dict[Scope, tuple[int, str]]:
        rows = self._run("SELECT space, user, position, uuid FROM cursors ORDER BY space, user")
        return {Scope(space, user or None): (at, uuid) for space, user, at, uuid in rows}

    def set_cursor(self, scope: Scope, position: int, uuid: str = "") -> None:
        self._run(
            "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?)",
            (scope.space, scope.user or "", position, uuid),
        )

    def forget_cursors(self) -> None:
        self._run("DELETE FROM cursors")

    def fact(self, name: str) -> str | None:
        """Return the value of a fact, or None."""
        rows = self._run("SELECT value FROM facts WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def list_meta(self, prefix: str) -> dict[str, str]:
        """Return the facts whose names start with a prefix, by the rest of their names."""
        rows = self._run(
            "SELECT name, value FROM facts WHERE name >= ? AND name < ?",
            (prefix, f"{prefix}\U0010ffff"),
        )
        return {name.removeprefix(prefix): value for name, value in rows}

    def set_meta(self, name: str, value: str) -> None:
        self._run("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def drop_meta(self, prefix: str) -> None:
        """Delete the facts whose names start with a prefix."""
        names = (prefix, f"{prefix}\U0010ffff")
        self._run("DELETE FROM facts WHERE name >= ? AND name < ?", names)

    # -- changes that are not committed yet ---------------------------------------------------

    def add_pending(self, space: str, path: str, line: str = "") -> None:
        """Record that a file changed and has to be committed."""
        self._run("INSERT INTO pending (space, path, line) VALUES (?, ?, ?)", (space, path, line))

    def pending(self) -> list[PendingChange]:
        rows = self._run("SELECT number, space, path, line FROM pending ORDER BY 1")
        return [PendingChange(*row) for row in rows]

    def withheld(self) -> list[WithheldFile]:
        """Return the files that are not committed because they contain a secret."""
        rows = self._run("SELECT path, space, why FROM withheld ORDER BY path")
        return [WithheldFile(*row) for row in rows]

    def set_withheld(self, withheld: Iterable[WithheldFile]) -> None:
        with self.together():
            self._run("DELETE FROM withheld")
            for each in withheld:
                self._run("INSERT OR REPLACE INTO withheld VALUES (?, ?, ?)", each)

    def committed(self, pending: Iterable[PendingChange]) -> None:
        """Remove changes from the pending ones."""
        with self.together():
            for each in pending:
                self._run("DELETE FROM pending WHERE number = ?", (each.number,))
        # The names of files quote memories, also erased ones.
        self.scrub()

    def silence(self, space: str, id: str) -> None:
        """Empty the pending lines that quote an erased memory."""
        self._run(
            "UPDATE pending SET line = '' WHERE space = ? AND line <> '' AND line LIKE ?",
            (space, f"%(% {id})"),
        )
        self.scrub()
