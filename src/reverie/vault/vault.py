"""One vault: its folder, its own files, and the lock that whoever changes it holds."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from reverie.errors import VaultError
from reverie.model import Scope
from reverie.vault import disk, layout, names
from reverie.vault.files import File, Files
from reverie.vault.journal import Journal

try:
    import fcntl
except ImportError:  # Windows: threads of one process still take turns
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
Turns = Literal["together", "apart"]
LOCK_SECONDS = 60.0
_CUT = "cut:"
_threads = threading.RLock()


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a vault shows: these spaces or all; turns in one file of a session or one each."""

    spaces: tuple[str, ...] | None = None
    turns: Turns = "together"

    def shows(self, space: str) -> bool:
        return self.spaces is None or space in self.spaces


class Busy(VaultError):
    """Somebody else is changing the vault."""


class Vault:
    """An open vault. Close it, or use it as a context manager."""

    def __init__(self, root: Path, wishes: Wishes) -> None:
        self.root = root
        self.wishes = wishes
        self.own = root / layout.OWN
        self.files = Files(self.own / "files.db")
        self.journal = Journal(self.own)

    @classmethod
    def init(
        cls, root: Path, spaces: Sequence[str] | None = None, turns: str = "together"
    ) -> Vault:
        """Make a vault of a folder, or open the one that is there with other wishes."""
        if turns not in get_args(Turns):
            raise VaultError(f"turns must be together or apart, not {turns!r}")
        wishes = Wishes(None if spaces is None else tuple(spaces), cast(Turns, turns))
        asked = {"format": FORMAT, "spaces": wishes.spaces, "turns": wishes.turns}
        disk.make_folder(root / layout.OWN)
        disk.write(root / layout.OWN / "vault.json", (json.dumps(asked) + "\n").encode())
        return cls.open(root)

    @classmethod
    def open(cls, root: Path) -> Vault:
        path = root / layout.OWN / "vault.json"
        try:
            told = json.loads(disk.read(path))
            form, spaces, turns = told["format"], told["spaces"], told["turns"]
        except (disk.Unreadable, ValueError, KeyError, TypeError) as error:
            raise VaultError(
                f"{root} is no vault: make one with 'reverie vault init {root}'"
            ) from error
        if form != FORMAT:
            raise VaultError(f"{root} was made by a newer Reverie: upgrade it")
        return cls(root, Wishes(None if spaces is None else tuple(spaces), turns))

    @staticmethod
    def is_at(root: Path) -> bool:
        return (root / layout.OWN / "vault.json").is_file()

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def close(self) -> None:
        self.files.close()

    @contextlib.contextmanager
    def locked(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Alone in the vault, among threads and processes."""
        if not _threads.acquire(timeout=seconds):
            raise Busy(f"another thread is changing {self.root}: try again")
        try:
            handle = os.open(self.own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._await_lock(handle, seconds)
                yield
            finally:
                os.close(handle)
        finally:
            _threads.release()

    def _await_lock(self, handle: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Busy(f"another process is changing {self.root}: try again") from None
                time.sleep(0.01)
            else:
                return

    # -- paths --------------------------------------------------------------------------------

    def path(self, relative: str) -> Path:
        """A path below the root, which it cannot leave."""
        return names.within(self.root, *relative.split("/"))

    def place_of(self, relative: str) -> layout.Place | None:
        return layout.place_of(relative, self._cut())

    def _cut(self) -> dict[str, str]:
        return self.files.facts(_CUT)

    def know_names(self, scope: Scope, session: str | None = None) -> None:
        """Names that are too long for a folder are kept beside it."""
        for name in (scope.space, scope.user, session):
            folder = "" if name is None else names.folder(name)
            if name is not None and names.is_cut(folder):
                self.files.set_fact(_CUT + folder, name)

    # -- files --------------------------------------------------------------------------------

    def write(self, file: File, raw: bytes, line: str = "", *, sync: bool = True) -> File:
        """Put a file in its place, and remember how we left it."""
        stamp = disk.write(self.path(file.path), raw, sync=sync)
        written = file._replace(digest=disk.digest(raw), stamp=stamp)
        self.files.put(written)
        self.files.note(file.scope.space, file.path, line)
        return written

    def remove(self, file: File, line: str = "") -> None:
        path = self.path(file.path)
        disk.remove(path)
        disk.prune(path.parent, self.root)
        self.files.drop(file.path)
        self.files.note(file.scope.space, file.path, line)

    def move(self, file: File, target: str) -> File:
        """Another place for a file that stays as it is."""
        source, there = self.path(file.path), self.path(target)
        disk.make_folder(there.parent)
        source.replace(there)
        disk.sync_folder(there.parent)
        disk.prune(source.parent, self.root)
        self.files.drop(file.path)
        moved = file._replace(path=target, stamp=disk.stamp(there) or file.stamp)
        self.files.put(moved)
        self.files.note(file.scope.space, file.path)
        self.files.note(file.scope.space, target)
        return moved

    def as_we_left_it(self, file: File) -> bool:
        """Whether nobody has touched a file since; one that is gone was touched."""
        path = self.path(file.path)
        stamp = disk.stamp(path)
        if stamp is None:
            return False
        if stamp == file.stamp:
            return True
        try:
            same = disk.digest(disk.read(path)) == file.digest
        except disk.Unreadable:
            return False
        if same:
            self.files.put(file._replace(stamp=stamp))
        return same

    def free_path(self, folder: str, name: str) -> str:
        """A path that no file has, whatever its case."""
        stem, number = name.removesuffix(".md"), 1
        while True:
            number += 1
            path = f"{folder}/{name}"
            if not os.path.lexists(self.path(path)):
                return path
            name = f"{stem}~{number}.md"
