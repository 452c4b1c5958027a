"""Read and write files below one folder: atomically, and never through a symbolic link."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from reverie.errors import VaultError
from reverie.vault.permissions import is_shared

# The suffix of temporary files; other programs ignore them, and so does git.
TEMP_SUFFIX = ".tmp"
MAX_BYTES = 64 * 1024 * 1024
_OUR_DRAFT = re.compile(r"\.[0-9a-f]{16}\.tmp")
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
LINK = "it is a link, and links are not followed"


class FileStamp(NamedTuple):
    """Size, time and inode of a file, by which a change is noticed without reading it."""

    size: int
    mtime: int
    inode: int


class UnusablePath(VaultError):
    """One file or folder cannot be used; the others can."""


class FileVanished(VaultError):
    """A file or folder was deleted while a file was written."""


class UnreadableFile(UnusablePath):
    """A path cannot be read, or is not a regular file."""


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def stamp(path: Path) -> FileStamp | None:
    """Return the stamp of a file, or None when there is no file."""
    try:
        return _stamp_of(path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableFile(f"{path.name} cannot be looked at: {error.strerror}") from error


def _stamp_of(found: os.stat_result) -> FileStamp:
    return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)


def read(path: Path) -> bytes:
    """Read a regular file; a symbolic link is refused."""
    return read_stamped(path)[0]


def read_stamped(path: Path) -> tuple[bytes, FileStamp]:
    """Read a regular file together with the stamp it had before it was read."""
    with _opened(path) as file:
        found = os.fstat(file.fileno())
        if found.st_size > MAX_BYTES:
            raise UnreadableFile(f"cannot be read: it is larger than {MAX_BYTES >> 20} MB")
        try:
            return file.read(), _stamp_of(found)
        except OSError as error:
            raise UnreadableFile(f"cannot be read: {error.strerror}") from error


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a regular file, which may be large."""
    with _opened(path) as file:
        try:
            yield from file
        except OSError as error:
            raise UnreadableFile(f"cannot be read: {error.strerror}") from error


def ends_with(path: Path, ending: bytes) -> bool:
    with _opened(path) as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - len(ending), 0))
        return file.read() == ending


def _opened(path: Path) -> BinaryIO:
    flags = os.O_RDONLY | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        why = LINK if path.is_symlink() else str(error.strerror)
        raise UnreadableFile(f"cannot be read: {why}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnreadableFile("cannot be read: it is not a regular file")
    return os.fdopen(handle, "rb")


def write(
    path: Path,
    raw: bytes,
    *,
    sync: bool = True,
    before: Callable[[FileStamp], None] | None = None,
) -> FileStamp:
    """Write a file atomically. Without ``sync`` the caller syncs several files at once.

    ``before`` is called with the stamp that the file will have, before it appears at its path; it
    may raise to prevent that.
    """
    make_folder(path.parent)
    draft = temp_path(path)
    try:
        made = _write_draft(draft, raw, sync=sync)
        if before is not None:
            before(made)
        draft.replace(path)
        if sync:
            sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise _failed(f"{path} cannot be written", error) from error
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return made


_OF_ONE_FILE = {
    errno.EACCES, errno.EEXIST, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ELOOP,
    errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOTEMPTY, errno.EPERM,
}  # fmt: skip


def _failed(what: str, error: OSError) -> VaultError:
    """Return the error for a failed write: a full or broken disk concerns all files."""
    kind = UnusablePath if error.errno in _OF_ONE_FILE else VaultError
    kind = FileVanished if error.errno == errno.ENOENT else kind
    return kind(f"{what}: {error.strerror}")


def temp_path(path: Path) -> Path:
    return path.with_name(f".{digest(os.fsencode(path.name))[:16]}{TEMP_SUFFIX}")


def _write_draft(draft: Path, raw: bytes, *, sync: bool) -> FileStamp:
    # A temporary file that exists already, perhaps as a link, is not written to.
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW
    with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
        file.write(raw)
        file.flush()
        # The clock of file systems is coarse: another write of the same size within one tick would
        # leave the same stamp. So the file gets a time that is finer than the ticks.
        now = time.time_ns()
        if os.utime in os.supports_fd:
            os.utime(file.fileno(), ns=(now, now))
        if sync:
            os.fsync(file.fileno())
        return _stamp_of(os.fstat(file.fileno()))


def append(path: Path, raw: bytes) -> None:
    """Add to the end of a file, synced."""
    make_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NOFOLLOW
    try:
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise VaultError(f"{path} cannot be written: {error.strerror}") from error


def remove(path: Path) -> None:
    """Remove a file and its draft; the folders that it leaves empty are left to ``prune``."""
    try:
        path.unlink(missing_ok=True)
        temp_path(path).unlink(missing_ok=True)
    except NotADirectoryError:
        return
    except OSError as error:
        raise _failed(f"{path} cannot be removed", error) from error


def move(source: Path, target: Path) -> None:
    """Move a file to a path where there is none."""
    make_folder(target.parent)
    try:
        source.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise _failed(f"{source} cannot be moved", error) from error


def prune(folder: Path, root: Path) -> None:
    """Remove folders that are empty, up to the root."""
    with contextlib.suppress(OSError):
        while folder != root and root in folder.parents:
            folder.rmdir()
            folder = folder.parent


def make_folder(folder: Path) -> None:
    """Create a folder and the folders above it that are missing, all for the owner alone."""
    try:
        _make_private(folder)
    except OSError as error:
        raise _failed(f"{folder} cannot be made", error) from error


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        # Not ``parents=True``, which creates the folders above with the permissions of the umask.
        if folder.parent == folder:
            raise
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that a new name in it survives a crash."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def walk(root: Path, below: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield everything below a folder that is neither hidden nor a folder, with its path.

    Symbolic links are included, and never followed.
    """
    waiting = [below]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UnreadableFile(f"{folder} cannot be read: {error.strerror}") from error
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            else:
                yield Path(entry.path).relative_to(root).as_posix(), entry


@dataclass
class FolderScan:
    """The result of scanning a folder: files with their stamps, folders that cannot be read and
    why, temporary files of killed processes, and files that other users can access."""

    files: dict[str, FileStamp] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    drafts: list[Path] = field(default_factory=list)
    shared: list[Path] = field(default_factory=list)

    def hides(self, path: str) -> bool:
        """Whether a path lies in a folder that could not be read."""
        parts = path.split("/")
        return any("/".join(parts[:many]) in self.closed for many in range(1, len(parts) + 1))


def scan_folder(root: Path, below: Path, *, inodes_only: bool = False) -> FolderScan:
    """Scan a folder and everything below it, without following links.

    ``inodes_only``: look at no file, so that the stamps have nothing but the inode, which comes
    with the list of a folder.
    """
    found, waiting = FolderScan(), [below]
    start = len(str(root)) + 1
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found.closed[str(folder)[start:]] = f"cannot be read: {error.strerror}"
            continue
        for entry in entries:
            path = entry.path[start:].replace(os.sep, "/")
            _scan_entry(found, entry, path, waiting, inodes_only)
    return found


def _scan_entry(
    found: FolderScan, entry: os.DirEntry[str], path: str, waiting: list[Path], inodes_only: bool
) -> None:
    if entry.name.startswith("."):
        if _OUR_DRAFT.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            found.drafts.append(Path(entry.path))
        return
    try:
        path.encode()
        if entry.is_symlink():
            found.closed[path] = LINK
            return
        if inodes_only and not entry.is_dir(follow_symlinks=False):
            found.files[path] = FileStamp(0, 0, entry.inode())
            return
        about = entry.stat(follow_symlinks=False)
        if is_shared(about.st_mode):
            found.shared.append(Path(entry.path))
        if stat.S_ISDIR(about.st_mode):
            waiting.append(Path(entry.path))
        else:
            found.files[path] = _stamp_of(about)
    except UnicodeEncodeError:
        shown = path.encode("utf-8", "replace").decode()
        found.closed[shown] = "its name is not UTF-8: give it another"
    except FileNotFoundError:
        return
    except OSError as error:
        found.closed[path] = f"cannot be looked at: {error.strerror}"
