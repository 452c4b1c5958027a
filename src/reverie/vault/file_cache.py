"""What the vault's files are: which memory or session each is of, and how we left it.

A cache beside the files: by it an unchanged file is not read again, and one that is gone is missed.
Deleted, it is made anew from the files.
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
    size INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS files_name ON files (space, user, what, name);
CREATE INDEX IF NOT EXISTS files_digest ON files (digest);
CREATE TABLE IF NOT EXISTS cursors (
    space TEXT NOT NULL, user TEXT NOT NULL, position INTEGER NOT NULL, uuid TEXT NOT NULL,
    PRIMARY KEY (space, user)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (
    number INTEGER PRIMARY KEY, space TEXT NOT NULL, path TEXT NOT NULL, line TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS held (path TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS withheld (
    path TEXT PRIMARY KEY, space TEXT NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (
    number INTEGER PRIMARY KEY, space TEXT NOT NULL, user TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_NAMES = ("files", "cursors", "pending", "held", "withheld", "forgotten", "facts")
FORMAT = 2


class VaultFile(NamedTuple):
    """One file of ours. ``what``: memory, turns, summary, index or conflict; ``name``: the id of
    the memory or session; ``version``: of the memory, or the last sequence that turns hold."""

    path: str
    what: str
    scope: Scope
    name: str
    version: int
    digest: str
    stamp: FileStamp


class PendingChange(NamedTuple):
    """A change that git does not hold yet. ``line`` is empty where the change says nothing new."""

    number: int
    space: str
    path: str
    line: str


class WithheldFile(NamedTuple):
    """A file that stays out of git. ``space`` is empty for a person's own, which only a checkpoint
    would commit; ``why`` names the kinds of secrets."""

    path: str
    space: str
    why: str


class CacheDamaged(VaultError):
    """The cache could not be read and was thrown away: begin again."""


_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.ConstraintError)


class FileCache:
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
        # SQLite gives the files beside it the permissions of this one.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600))
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_timeout(10_000)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "NORMAL")
            # Lines that wait for git say what memories do.
            connection.pragma("secure_delete", True)
            with connection:
                if connection.pragma("user_version") != FORMAT:
                    for table in _NAMES:
                        connection.execute(f"DROP TABLE IF EXISTS {table}")
                    connection.pragma("user_version", FORMAT)
                connection.execute(_TABLES)
        except BaseException:
            connection.close()
            raise
        return connection

    def _throw_away(self) -> None:
        """It is only a cache."""
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
            raise CacheDamaged(f"{self._path} was damaged and is made anew: try again") from error
        except apsw.Error as error:
            raise VaultError(f"{self._path} cannot be used: {error}") from error

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is put within goes in together."""
        try:
            with self._connection:
                yield
        except apsw.Error as error:
            if isinstance(error.__context__, VaultError):
                raise error.__context__ from None
            raise VaultError(f"{self._path} cannot be used: {error}") from error

    def look_again(self) -> None:
        """Let all files be looked at once more, and the vault's own log be read from its start."""
        with self.together():
            self._run("DELETE FROM cursors")
            self._run("DELETE FROM facts WHERE name NOT LIKE 'cut:%' AND name <> 'private'")

    def scrub(self) -> None:
        """Leave nothing behind of what was deleted here."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- files --------------------------------------------------------------------------------

    def at(self, path: str) -> VaultFile | None:
        return next(self._found("path = ?", (path,)), None)

    def of(self, scope: Scope, what: str, name: str) -> list[VaultFile]:
        values = (scope.space, scope.user or "", what, name)
        return list(self._found("space = ? AND user = ? AND what = ? AND name = ?", values))

    def list_type(self, scope: Scope, what: str) -> list[VaultFile]:
        values = (scope.space, scope.user or "", what)
        return list(self._found("space = ? AND user = ? AND what = ?", values))

    def list_owner(self, scope: Scope) -> list[VaultFile]:
        return list(self._found("space = ? AND user = ?", (scope.space, scope.user or "")))

    def knows(self, scope: Scope) -> bool:
        """Whether an owner has a file."""
        values = (scope.space, scope.user or "")
        return bool(self._run("SELECT 1 FROM files WHERE space = ? AND user = ? LIMIT 1", values))

    def below(self, folder: str) -> list[VaultFile]:
        """All of a folder; of everything, for the empty one."""
        if not folder:
            return list(self._found("1", ()))
        return list(self._found("path > ? AND path < ?", (f"{folder}/", f"{folder}0")))

    def with_digest(self, what: str, digest: str) -> list[VaultFile]:
        """What we left exactly so, wherever that was."""
        return list(self._found("digest = ? AND what = ?", (digest, what)))

    def scopes(self) -> list[Scope]:
        rows = self._run("SELECT DISTINCT space, user FROM files")
        return [Scope(space, user or None) for space, user in rows]

    def put(self, file: VaultFile) -> None:
        scope = file.scope
        self._run(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (file.path, file.what, scope.space, scope.user or "", file.name, file.version,
             file.digest, *file.stamp),
        )  # fmt: skip

    def drop(self, path: str) -> None:
        self._run("DELETE FROM files WHERE path = ?", (path,))
        self.release(path)
        self._run("DELETE FROM withheld WHERE path = ?", (path,))

    def drop_owner(self, scope: Scope) -> None:
        """Know nothing of an owner's files any more."""
        own = "SELECT path FROM files WHERE space = ? AND user = ?"
        self._run(f"DELETE FROM held WHERE path IN ({own})", (scope.space, scope.user or ""))
        self._run("DELETE FROM files WHERE space = ? AND user = ?", (scope.space, scope.user or ""))

    def drop_owners(self, scopes: Iterable[Scope], facts: Iterable[str]) -> None:
        """The same for several, and for facts that held because of them."""
        with self.together():
            for fact in facts:
                self._run("DELETE FROM facts WHERE name = ?", (fact,))
            for scope in scopes:
                self.drop_owner(scope)

    def _found(self, where: str, values: Iterable[object]) -> Iterator[VaultFile]:
        rows = self._run(
            "SELECT path, what, space, user, name, version, digest, size, mtime, inode "
            f"FROM files WHERE {where} ORDER BY path",
            values,
        )
        for each in rows:
            path, what, space, user, name, version, digest, *stamp = each
            yield VaultFile(
                path, what, Scope(space, user or None), name, version, digest, FileStamp(*stamp)
            )

    # -- files that are gone ------------------------------------------------------------------

    def hold(self, path: str, at: int) -> None:
        """Neither forget nor write again a file that is gone, until the person answers."""
        self._run("INSERT OR IGNORE INTO held VALUES (?, ?)", (path, at))

    def release(self, path: str) -> None:
        self._run("DELETE FROM held WHERE path = ?", (path,))

    def held(self) -> list[str]:
        return [path for (path,) in self._run("SELECT path FROM held ORDER BY path")]

    def is_held(self, path: str) -> bool:
        return bool(self._run("SELECT 1 FROM held WHERE path = ?", (path,)))

    def note_forgotten(self, scope: Scope, at: int) -> None:
        """Remember for a while that a deleted file was taken for a wish."""
        self._run(
            "INSERT INTO forgotten (space, user, at) VALUES (?, ?, ?)",
            (scope.space, scope.user or "", at),
        )

    def forgotten_since(self, at: int) -> dict[Scope, int]:
        """Return how many deleted files of each owner were taken for wishes since then."""
        self._run("DELETE FROM forgotten WHERE at < ?", (at,))
        rows = self._run("SELECT space, user, count(*) FROM forgotten GROUP BY space, user")
        return {Scope(space, user or None): many for space, user, many in rows}

    def forget_window(self) -> None:
        self._run("DELETE FROM forgotten")

    # -- how far the log was followed ---------------------------------------------------------

    def cursor(self, scope: Scope) -> int:
        return self.mark(scope)[0]

    def mark(self, scope: Scope) -> tuple[int, str]:
        """The last entry that was followed: its position and its uuid."""
        rows = self._run(
            "SELECT position, uuid FROM cursors WHERE space = ? AND user = ?",
            (scope.space, scope.user or ""),
        )
        return (int(rows[0][0]), str(rows[0][1])) if rows else (0, "")

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
        rows = self._run("SELECT value FROM facts WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def facts(self, prefix: str) -> dict[str, str]:
        """The facts whose names begin so, by the rest of their names."""
        rows = self._run(
            "SELECT name, value FROM facts WHERE name >= ? AND name < ?",
            (prefix, f"{prefix}\U0010ffff"),
        )
        return {name.removeprefix(prefix): value for name, value in rows}

    def set_meta(self, name: str, value: str) -> None:
        self._run("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def drop_meta(self, prefix: str) -> None:
        """The facts whose names begin so."""
        names = (prefix, f"{prefix}\U0010ffff")
        self._run("DELETE FROM facts WHERE name >= ? AND name < ?", names)

    # -- what git does not hold yet -----------------------------------------------------------

    def note(self, space: str, path: str, line: str = "") -> None:
        self._run("INSERT INTO pending (space, path, line) VALUES (?, ?, ?)", (space, path, line))

    def pending(self) -> list[PendingChange]:
        rows = self._run("SELECT number, space, path, line FROM pending ORDER BY 1")
        return [PendingChange(*row) for row in rows]

    def withheld(self) -> list[WithheldFile]:
        """Return the files that stay out of git because they hold a secret."""
        rows = self._run("SELECT path, space, why FROM withheld ORDER BY path")
        return [WithheldFile(*row) for row in rows]

    def set_withheld(self, withheld: Iterable[WithheldFile]) -> None:
        with self.together():
            self._run("DELETE FROM withheld")
            for each in withheld:
                self._run("INSERT OR REPLACE INTO withheld VALUES (?, ?, ?)", each)

    def committed(self, pending: Iterable[PendingChange]) -> None:
        with self.together():
            for each in pending:
                self._run("DELETE FROM pending WHERE number = ?", (each.number,))
        # Names of files say what memories did, erased ones too.
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def silence(self, space: str, id: str) -> None:
        """Let no line that waits say what an erased memory said."""
        self._run(
            "UPDATE pending SET line = '' WHERE space = ? AND line <> '' AND line LIKE ?",
            (space, f"%(% {id})"),
        )
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
