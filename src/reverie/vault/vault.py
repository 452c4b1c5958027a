"""An open vault: its folder, its internal files, and the lock that protects changes to it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast, get_args

from reverie.engine.sqlite.file_lock import FileLock
from reverie.errors import VaultError
from reverie.model import Scope
from reverie.vault import disk, layout, names, permissions
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import FileCache, VaultFile
from reverie.vault.git.repo import Repository
from reverie.vault.layout import Folders, Turns, VaultConfig
from reverie.vault.log_file import VaultLog

FORMAT = 1
LOCK_SECONDS = 60.0
# A folder with more entries is not filled further, since git rewrites its list with every commit.
MAX_FOLDER_ENTRIES = 256
# The names of facts in the file cache.
_FOLDER, _FORMER, _NAMES_READ, _ROOM = "folder:", "former:", "names", "room:"
# Set once the permissions of every file were restricted to the owner.
_PRIVATE = "private"
_log = logging.getLogger("reverie.vault")
_DATABASE = ("files.db", "files.db-wal", "files.db-shm", "files.db-journal")
_threads = threading.RLock()


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
        self._folders: Folders | None = None
        self._names_changed = False
        # By the folder above: the keys of the names of all folders, and the unrecorded folders.
        self._taken: dict[str, tuple[set[str], set[str]]] = {}
        self._entries: dict[str, int] = {}
        try:
            self._close_once()
            self._read_names()
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
                # Another process may have chosen folders meanwhile.
                self._folders, self._taken = None, {}
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
            raise VaultError(f"{relative!r} is not a path in the vault")
        above = str(self.root)
        for part in parts[:-1]:
            above = f"{above}{os.sep}{part}"
            if os.path.islink(above):  # noqa: PTH114 - for every file: a Path costs ten times this
                raise disk.UnreadableFile(f"cannot be used: {part} is a link")
        return names.safe_join(self.root, *parts) if os.name == "nt" else Path(above, parts[-1])

    # -- the folders of spaces, users and sessions --------------------------------------------

    @property
    def names_file(self) -> Path:
        """The file in git that says whose folders are not called like what they are for."""
        return self.own / "names.json"

    @property
    def folders(self) -> Folders:
        if self._folders is None:
            self._folders = Folders(self.files.list_meta(_FOLDER), self.files.list_meta(_FORMER))
        return self._folders

    def assign_owner(self, scope: Scope, *, again: bool = False) -> None:
        """Choose the folder of a new owner, so that no disk takes it for that of another.

        One that has files keeps its folder, unless it is chosen ``again``.
        """
        named = [name for name in (scope.space, scope.user) if name is not None]
        is_plain = all(name == names.folder_name(name) for name in named)
        if is_plain and not again and self.files.count(scope):
            # It is recorded, or called like the owner.
            return
        space = self._assign("", scope.space)
        if scope.user is not None:
            self._assign(f"{space}/{layout.USERS}", scope.user)

    def assign_session(self, scope: Scope, session: str, at: int) -> str:
        """Choose the folder of a session that began at this time, and return it."""
        return self._assign(self.folders.sessions(scope, at), session)

    def _assign(self, above: str, name: str) -> str:
        """Choose the folder of a name; it is recorded where it is not the name itself."""
        if self.folders.is_recorded(above, name):
            return self.folders.below(above, name)
        taken, unrecorded = self._taken_below(above)
        folder, number = names.folder_name(name), 1
        if name in unrecorded:
            # Also a folder that a person made, and that we would not have named so.
            folder = name
        else:
            while names.collision_key(names.numbered(folder, number)) in taken:
                number += 1
            folder = names.numbered(folder, number)
        path = f"{above}/{folder}" if above else folder
        taken.add(names.collision_key(folder))
        if folder == name:
            unrecorded.add(folder)
        if folder != name or folder != names.folder_name(name):
            self.record_folder(path, name)
        return path

    def _taken_below(self, above: str) -> tuple[set[str], set[str]]:
        """Return the keys of all folders below another one, and those that are not recorded."""
        if above not in self._taken:
            recorded = self.folders.taken_below(above)
            # With those of the cache, which may be missing on the disk for a while.
            there = self._subfolders(above) | self.files.subfolders(above)
            keys = map(names.collision_key, there | recorded)
            self._taken[above] = set(keys), there - recorded
        return self._taken[above]

    def _subfolders(self, above: str) -> set[str]:
        """Return the folders below another one, and below its place in ``deleted/``."""
        places = [self.root / above] if above else [self.root]
        if f"/{layout.SESSIONS}/" in f"{above}/":
            places.append(self.root / layout.relocate(above, deleted=True))
        found = set[str]()
        for place in places:
            # What cannot be listed cannot be written to either, which is reported then.
            with contextlib.suppress(OSError):
                found.update(
                    unicodedata.normalize("NFC", entry.name)
                    for entry in os.scandir(place)
                    if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
                )
        return found

    def record_folder(self, path: str, name: str, *, former: bool = False) -> None:
        """Record whose a folder is, or was in an earlier version; ``write_names`` writes it."""
        fact = (_FORMER if former else _FOLDER) + path
        if self.files.fact(fact) == name:
            return
        self.files.set_meta(fact, name)
        self._names_changed = True
        if former:
            self.folders.record_former(path, name)
            self._taken.pop(path.rpartition("/")[0], None)
        else:
            self.folders.record(path, name)

    def write_names(self, is_secret: Callable[[str], bool], *, check: bool = False) -> None:
        """Write the recorded names to their file if they changed, to be committed.

        A name that holds a secret is left out, since one would keep all others out of git; front
        matter says it, too. ``check``: also write if the file differs, for instance because an
        older one was checked out.
        """
        if not self._names_changed and not check:
            return
        by_kind: dict[str, object] = {"format": FORMAT}
        for kind, recorded in self.folders.as_json().items():
            by_kind[kind] = {path: name for path, name in recorded.items() if not is_secret(name)}
        raw = f"{json.dumps(by_kind, ensure_ascii=False, indent=1)}\n".encode(
            "utf-8", "surrogatepass"
        )
        self._names_changed = False
        with contextlib.suppress(disk.UnreadableFile):
            if disk.read(self.names_file) == raw:
                return
        disk.write(self.names_file, raw)
        self.files.set_meta(_NAMES_READ, "yes")
        self.files.add_pending("", self.names_file.relative_to(self.root).as_posix())

    def _read_names(self) -> None:
        """Read the recorded names into a new file cache."""
        if self.files.fact(_NAMES_READ) is not None or disk.stamp(self.names_file) is None:
            return
        try:
            by_kind = json.loads(disk.read(self.names_file))
            facts = {_FOLDER + path: str(name) for path, name in by_kind["folders"].items()}
            facts |= {_FORMER + path: str(name) for path, name in by_kind["former"].items()}
        except (disk.UnreadableFile, ValueError, KeyError, TypeError, AttributeError) as error:
            raise VaultError(
                f"{self.names_file} is damaged: restore it with 'git checkout', or remove it"
            ) from error
        with self.files.together():
            for fact, name in facts.items():
                self.files.set_meta(fact, name)
            self.files.set_meta(_NAMES_READ, "yes")

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

    def remove(self, file: VaultFile) -> None:
        """Remove a file that the vault wrote, whatever its content is now."""
        path = self.path(file.path)
        disk.remove(path)
        disk.prune(path.parent, self.root)
        with self.files.together():
            self.files.drop(file.path)
            self.files.add_pending(file.scope.space, file.path)

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
            self.files.restamp(file, stamp)
        return same

    def free_path(self, path: str) -> str:
        """Return a path that no file has, adding ``-2``, ``-3`` … to the name of the file."""
        stem, number = path.removesuffix(".md"), 1
        while os.path.lexists(self.path(f"{names.numbered(stem, number)}.md")):
            number += 1
        return f"{names.numbered(stem, number)}.md"

    def roomy_path(self, path: str, at: int) -> str:
        """Return a path for a new file: once its folder is full, in one of the month of ``at``."""
        folder, _, name = path.rpartition("/")
        if self._count_entries(folder) >= MAX_FOLDER_ENTRIES:
            folder = self._month_folder(f"{folder}/{layout.month(at)}")
        self._entries[folder] = self._count_entries(folder) + 1
        return self.free_path(f"{folder}/{name}")

    def _month_folder(self, first: str) -> str:
        number = int(self.files.fact(_ROOM + first) or 1)
        while self._count_entries(names.numbered(first, number)) >= MAX_FOLDER_ENTRIES:
            number += 1
            self.files.set_meta(_ROOM + first, str(number))
        return names.numbered(first, number)

    def _count_entries(self, folder: str) -> int:
        """Return how many files a folder has; counted once, then kept up to date."""
        if folder not in self._entries:
            try:
                self._entries[folder] = sum(1 for _ in os.scandir(self.path(folder)))
            except OSError:
                self._entries[folder] = 0
        return self._entries[folder]


def _read_config(root: Path) -> VaultConfig:
    try:
        config = json.loads(disk.read(root / layout.STATE_FOLDER / "vault.json"))
        form, spaces, turns = config["format"], config["spaces"], config["turns"]
    except (disk.UnreadableFile, ValueError, KeyError, TypeError) as error:
        raise VaultNotFound(
            f"{root} is not a vault: make one with 'reverie vault init {root}'"
        ) from error
    if form != FORMAT:
        raise VaultError(f"{root} was made by a newer Reverie: upgrade it")
    return VaultConfig(None if spaces is None else tuple(spaces), turns)


def _require_no_links(own: Path) -> None:
    """Raise VaultError when one of the vault's internal files is a symbolic link."""
    for path in (own, *(own / name for name in ("vault.json", *_DATABASE))):
        if path.is_symlink():
            raise VaultError(f"{path} is a link: put the file itself there")
