"""An open vault: its folder, its internal files, and the lock that protects changes to it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from reverie.engine.sqlite.file_lock import FileLock
from reverie.errors import VaultError
from reverie.model import Scope
from reverie.vault import disk, layout, names, permissions
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import FileCache, VaultFile
from reverie.vault.git.repo import Repository
from reverie.vault.log_file import VaultLog

FORMAT = 1
Turns = Literal["together", "apart"]
LOCK_SECONDS = 60.0
_CUT = "cut:"
# Set once the permissions of every file were restricted to the owner.
_PRIVATE = "private"
_log = logging.getLogger("reverie.vault")
_DATABASE = ("files.db", "files.db-wal", "files.db-shm", "files.db-journal")
_threads = threading.RLock()


@dataclass(frozen=True, slots=True)
class VaultConfig:
    """The configuration of a vault, stored in ``vault.json``.

    ``spaces`` are the spaces that it shows, None for all. ``turns`` says whether the turns of a
    session are written together or each to a file of its own.
    """

    spaces: tuple[str, ...] | None = None
    turns: Turns = "together"

    def shows(self, space: str) -> bool:
        """Whether the vault shows a space."""
        return self.spaces is None or space in self.spaces


class VaultBusy(VaultError):
    """Another thread or process holds the lock of the vault."""


class VaultNotFound(VaultError):
    """The folder is not a vault, or its ``vault.json`` cannot be read."""


class FileChanged(disk.UnusablePath):
    """A person changed or deleted a file that was about to be written; that stays so."""


class Vault:
    """An open vault. Close it, or use it as a context manager."""

    def __init__(self, root: Path, wishes: VaultConfig) -> None:
        self.root = root
        self.config = wishes
        self.own = root / layout.STATE_FOLDER
        _require_no_links(self.own)
        self.is_private = permissions.close_top(root, self.own, ("vault.json", *_DATABASE))
        self.files = FileCache(self.own / "files.db")
        self.log = VaultLog(self.own)
        try:
            self._close_once()
        except BaseException:
            self.files.close()
            raise

    @classmethod
    def init(
        cls, root: Path, spaces: Sequence[str] | None = None, turns: str = "together"
    ) -> Vault:
        """Make a folder a vault, or open an existing vault with another configuration."""
        if turns not in get_args(Turns):
            raise VaultError(f"turns must be together or apart, not {turns!r}")
        wishes = VaultConfig(None if spaces is None else tuple(spaces), cast(Turns, turns))
        asked = {"format": FORMAT, "spaces": wishes.spaces, "turns": wishes.turns}
        disk.make_folder(root / layout.STATE_FOLDER)
        _require_no_links(root / layout.STATE_FOLDER)
        with contextlib.suppress(VaultNotFound):
            _read_config(root)
        disk.write(root / layout.STATE_FOLDER / "vault.json", (json.dumps(asked) + "\n").encode())
        return cls.open(root)

    def _close_once(self) -> None:
        """Make every file private, once for each vault: an older Reverie left them readable.

        If the process is killed meanwhile, the next open starts again.
        """
        if self.files.fact(_PRIVATE) is not None:
            return
        left = permissions.close_tree(self.root)
        if left:
            _log.warning("%s: the permissions of %d files cannot be changed", self.root, left)
        repository = Repository.at(self.root)
        if repository is not None:
            try:
                repository.keep_private()
            except VaultError as error:
                _log.warning("%s", error)
        self.files.set_meta(_PRIVATE, "yes")

    @classmethod
    def open(cls, root: Path) -> Vault:
        """Open the vault in a folder; VaultNotFound when it is none."""
        return cls(root, _read_config(root))

    @staticmethod
    def exists(root: Path) -> bool:
        """Whether a folder is a vault."""
        return (root / layout.STATE_FOLDER / "vault.json").is_file()

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def close(self) -> None:
        self.files.close()

    @contextlib.contextmanager
    def locked(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Hold the lock of the vault, which excludes other threads and processes."""
        end = time.monotonic() + seconds
        if not _threads.acquire(timeout=seconds):
            raise VaultBusy(f"another thread is changing {self.root}: try again")
        try:
            try:
                lock = FileLock(self.own / "lock")
            except OSError as error:
                raise VaultError(f"{self.root} cannot be locked: {error.strerror}") from error
            with contextlib.closing(lock):
                self._await_lock(lock, end, seconds)
                yield
        finally:
            _threads.release()

    def _await_lock(self, lock: FileLock, end: float, seconds: float) -> None:
        try:
            taken = lock.acquire(max(end - time.monotonic(), 0.0))
        except (OSError, RuntimeError) as error:
            raise VaultError(f"{self.root} cannot be locked: {error}") from error
        if not taken:
            raise VaultBusy(
                f"{lock.holder()} is changing {self.root} and did not end within {seconds:g} s: "
                "try again"
            )

    # -- paths --------------------------------------------------------------------------------

    def path(self, relative: str) -> Path:
        """Return a path below the root; VaultError for one that would leave it, by name or link."""
        parts = relative.split("/")
        if any(part in {"", ".", ".."} or "\0" in part for part in parts):
            raise VaultError(f"{relative!r} is no path in the vault")
        above = str(self.root)
        for part in parts[:-1]:
            above = f"{above}{os.sep}{part}"
            if os.path.islink(above):  # noqa: PTH114 - for every file: a Path costs ten times this
                raise disk.UnreadableFile(f"cannot be used: {part} is a link")
        return names.safe_join(self.root, *parts) if os.name == "nt" else Path(above, parts[-1])

    def parse_path(self, relative: str) -> layout.ParsedPath | None:
        """Parse a path of this vault; None when it belongs to no space or is not Markdown."""
        return layout.parse_path(relative, self._cut())

    def _cut(self) -> dict[str, str]:
        return self.files.list_meta(_CUT)

    def record_names(self, scope: Scope, session: str | None = None) -> None:
        """Record the full names that are too long for the name of a folder."""
        for name in (scope.space, scope.user, session):
            folder = "" if name is None else names.encode_folder(name)
            if name is not None and names.is_truncated(folder):
                self.files.set_meta(_CUT + folder, name)

    # -- files --------------------------------------------------------------------------------

    def write(self, file: VaultFile, raw: bytes, line: str = "", *, sync: bool = True) -> VaultFile:
        """Write a file atomically, and record its digest and stamp in the cache.

        Raises FileChanged when a person changed it meanwhile. The cache is updated before the file
        appears, so that a killed process leaves no file that the cache does not know.
        """
        path, known = self.path(file.path), self.files.get(file.path)
        written, existed = file._replace(digest=disk.digest(raw)), disk.stamp(path) is not None

        def ready(stamp: FileStamp) -> None:
            if existed and disk.stamp(path) is None:
                raise FileChanged(f"{path.name} was deleted just now")
            self._require_spare(path, known, written.digest)
            with self.files.together():
                self.files.put(written._replace(stamp=stamp))
                self.files.add_pending(file.scope.space, file.path, line)

        try:
            return written._replace(stamp=disk.write(path, raw, sync=sync, before=ready))
        except VaultError:
            if known is not None:
                self.files.put(known)
            elif disk.stamp(path) is None:
                self.files.drop(file.path)
            raise

    def _require_spare(self, path: Path, known: VaultFile | None, digest: str) -> None:
        """Raise FileChanged unless the file is as we wrote it, or already has the new content."""
        stamp = disk.stamp(path)
        if stamp is None or (known is not None and stamp == known.stamp):
            return
        allowed = {digest, "" if known is None else known.digest}
        if disk.digest(disk.read(path)) not in allowed:
            raise FileChanged(f"{path.name} was changed just now: it is left as it is")

    def remove(self, file: VaultFile, line: str = "") -> None:
        """Remove a file that the vault wrote, whatever its content is now."""
        path = self.path(file.path)
        disk.remove(path)
        disk.prune(path.parent, self.root)
        with self.files.together():
            self.files.drop(file.path)
            self.files.add_pending(file.scope.space, file.path, line)

    def move(self, file: VaultFile, target: str, line: str = "") -> VaultFile:
        """Move a file to a path where there is none, with its content unchanged."""
        source, there = self.path(file.path), self.path(target)
        disk.make_folder(there.parent)
        moved = file._replace(path=target)
        with self.files.together():
            self.files.put(moved)
            self.files.add_pending(file.scope.space, file.path)
            self.files.add_pending(file.scope.space, target, line)
        disk.move(source, there)
        disk.prune(source.parent, self.root)
        self.files.drop(file.path)
        return moved

    def stamp(self, path: str) -> FileStamp | None:
        """Return the stamp of a file, or None when there is none."""
        return disk.stamp(self.path(path))

    def is_gone(self, file: VaultFile) -> bool:
        """Whether a file does not exist any more."""
        return self.is_missing(file.path)

    def is_missing(self, path: str) -> bool:
        """Whether there is no file; a path that leads through a link does not count as missing."""
        try:
            return self.stamp(path) is None
        except disk.UnreadableFile:
            return False

    def unchanged_since_write(self, file: VaultFile) -> bool:
        """Whether a file is as we wrote it; a missing file is not."""
        try:
            path = self.path(file.path)
            stamp = disk.stamp(path)
            if stamp is None or stamp == file.stamp:
                return stamp is not None
            raw, stamp = disk.read_stamped(path)
        except disk.UnreadableFile:
            return False
        same = disk.digest(raw) == file.digest
        if same:
            self.files.put(file._replace(stamp=stamp))
        return same

    def free_path(self, folder: str, name: str) -> str:
        """Return a path in a folder that no file has, adding ``~2``, ``~3`` … to its name."""
        stem, number = name.removesuffix(".md"), 1
        while True:
            number += 1
            path = f"{folder}/{name}"
            if not os.path.lexists(self.path(path)):
                return path
            name = f"{stem}~{number}.md"


def _read_config(root: Path) -> VaultConfig:
    try:
        config = json.loads(disk.read(root / layout.STATE_FOLDER / "vault.json"))
        form, spaces, turns = config["format"], config["spaces"], config["turns"]
    except (disk.UnreadableFile, ValueError, KeyError, TypeError) as error:
        raise VaultNotFound(
            f"{root} is no vault: make one with 'reverie vault init {root}'"
        ) from error
    if form != FORMAT:
        raise VaultError(f"{root} was made by a newer Reverie: upgrade it")
    return VaultConfig(None if spaces is None else tuple(spaces), turns)


def _require_no_links(own: Path) -> None:
    """Raise VaultError when one of the vault's internal files is a symbolic link."""
    for path in (own, *(own / name for name in ("vault.json", *_DATABASE))):
        if path.is_symlink():
            raise VaultError(f"{path} is a link: put the file itself there")
