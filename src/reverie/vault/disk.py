"""Files below one folder: written whole or not at all, never through a link."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reverie.errors import VaultError

# What ends so is being written; a person's programs leave it alone, and so does git.
DRAFT = ".tmp"
MOST_BYTES = 64 * 1024 * 1024


class Stamp(NamedTuple):
    """By what a file is known again without being read."""

    size: int
    mtime: int
    inode: int


class Unreadable(VaultError):
    """A file that cannot be read, or is none."""


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def stamp(path: Path) -> Stamp | None:
    """None: there is no file."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be looked at: {error.strerror}") from error
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


def read(path: Path) -> bytes:
    """A regular file, whole. What a link leads to is not the vault's."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        link = path.is_symlink()
        why = "it is a link, and links are not followed" if link else str(error.strerror)
        raise Unreadable(f"cannot be read: {why}") from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("cannot be read: it is no file")
        if found.st_size > MOST_BYTES:
            raise Unreadable(f"cannot be read: it is larger than {MOST_BYTES >> 20} MB")
        return file.read()


def write(path: Path, raw: bytes, *, sync: bool = True) -> Stamp:
    """Put a file in its place whole. Not ``sync``: the caller syncs all of them at once."""
    make_folder(path.parent)
    draft = path.with_name(f".{digest(os.fsencode(path.name))[:16]}{DRAFT}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    try:
        handle = os.open(draft, flags, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise VaultError(f"{path} cannot be written: {error.strerror}") from error
    if sync:
        sync_folder(path.parent)
    found = stamp(path)
    assert found is not None
    return found


def append(path: Path, raw: bytes) -> None:
    """Add to the end of a file, synced."""
    make_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    try:
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise VaultError(f"{path} cannot be written: {error.strerror}") from error


def remove(path: Path) -> None:
    """Remove a file, and the folders that it leaves empty are left to ``prune``."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise VaultError(f"{path} cannot be removed: {error.strerror}") from error


def prune(folder: Path, root: Path) -> None:
    """Remove folders that are empty, up to the root."""
    with contextlib.suppress(OSError):
        while folder != root and root in folder.parents:
            folder.rmdir()
            folder = folder.parent


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise VaultError(f"{folder} cannot be made: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def walk(root: Path, below: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a folder that is neither hidden nor a folder, with its path from the root.

    Links are given, and never followed.
    """
    waiting = [below]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise Unreadable(f"{folder} cannot be read: {error.strerror}") from error
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            else:
                yield Path(entry.path).relative_to(root).as_posix(), entry
