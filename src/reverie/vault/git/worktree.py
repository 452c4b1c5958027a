"""Read the files of a vault as git would store them, without filters or following links."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from reverie.errors import VaultError
from reverie.vault.git.objects import object_id

FILE, PROGRAM, LINK = b"100644", b"100755", b"120000"

_CONTROL = {*range(32), 127}
# Characters that some file systems leave out of a name: with them ".git" can be spelled otherwise.
_UNSEEN = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def check_path(path: str) -> str:
    """Return a path below the vault that git can store, or raise VaultError."""
    parts = path.split("/")
    if "\0" in path or any(part in {"", ".", ".."} or _is_git(part) for part in parts):
        raise VaultError(
            f"{path!r} is not a path of a file in the vault: give one below its folder"
        )
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise VaultError(f"{path!r} cannot be the name of a file: rename it") from error
    return path


def _is_git(part: str) -> bool:
    """Whether a name means ``.git``, also by the rules of Windows and macOS."""
    plain = _UNSEEN.sub("", part).split(":")[0].rstrip(" .").lower()
    return plain in {".git", "git~1"}


def quote_path(path: bytes) -> bytes:
    """Quote a path for git, which may contain any byte."""
    inner = b"".join(
        b"\\%03o" % byte if byte in _CONTROL or byte in b'"\\' else bytes((byte,)) for byte in path
    )
    return b'"' + inner + b'"'


@dataclass(slots=True)
class WorkTree:
    """Reads files below ``root``. ``modes`` says whether the disk has an executable flag."""

    root: Path
    modes: bool = True
    hash_name: str = "sha1"
    _real: dict[str, bool] = field(default_factory=dict)

    def read(self, path: str) -> tuple[bytes, bytes] | None:
        """Return mode and content of a file or link; None if git cannot store it or it is gone."""
        folder, _, _ = path.rpartition("/")
        if not self._is_real(folder):
            return None
        where = self.root / path
        try:
            about = where.lstat()
            if stat.S_ISLNK(about.st_mode):
                return LINK, os.fsencode(os.readlink(where))  # noqa: PTH115
            if not stat.S_ISREG(about.st_mode):
                return None
            return self._content(where)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise VaultError(f"{where} cannot be read ({error}): repair or remove it") from error

    def identify(self, found: tuple[bytes, bytes] | None) -> tuple[bytes, bytes]:
        """Return mode and id of what ``read`` returned, both empty for None."""
        if found is None:
            return b"", b""
        return found[0], object_id(b"blob", found[1], self.hash_name).encode()

    def _content(self, where: Path) -> tuple[bytes, bytes] | None:
        # Neither a link nor a pipe put there meanwhile can lead elsewhere or block.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with os.fdopen(os.open(where, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None
            program = self.modes and bool(about.st_mode & stat.S_IXUSR)
            return PROGRAM if program else FILE, file.read()

    def has(self, path: str) -> bool:
        """Whether ``read`` would return something: there is a file or a link."""
        try:
            mode = (self.root / path).lstat().st_mode
        except (OSError, ValueError):
            return False
        return (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and self._is_real(path.rpartition("/")[0])

    def is_folder(self, path: str) -> bool:
        return self._is_real(path)

    def _is_real(self, folder: str) -> bool:
        """Whether a path is a folder that is reached without following a link."""
        if not folder:
            return True
        known = self._real.get(folder)
        if known is None:
            above = folder.rpartition("/")[0]
            try:
                found = stat.S_ISDIR((self.root / folder).lstat().st_mode)
            except (OSError, ValueError):
                found = False
            known = self._real[folder] = found and self._is_real(above)
        return known


def add_missing_lines(path: Path, lines: Iterable[str]) -> bool:
    """Append our missing lines to a file, unless it is a link; return whether it changed."""
    try:
        if path.is_symlink():
            return False
        old = path.read_bytes() if path.exists() else b""
        known = {line.strip() for line in old.splitlines()}
        missing = [line.encode() for line in lines if line.encode() not in known]
        if not missing:
            return False
        gap = b"\n" if old and not old.endswith(b"\n") else b""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            file.write(gap + b"".join(line + b"\n" for line in missing))
    except OSError as error:
        raise VaultError(f"{path} cannot be written ({error}): check the vault's folder") from error
    return True
