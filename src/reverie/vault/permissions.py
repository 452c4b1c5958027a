"""Keep a vault the owner's alone: no permission for the group or for others, whatever the umask.

New files are created private. What an older Reverie or another program left readable is closed:
the top folders at every opening, which shuts everything below them at once, and each file below
them in one walk that the vault's cache remembers.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

# Permissions of the group and of others.
SHARED = 0o077
_OPENING = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_HAS_MODES = os.name == "posix"
_log = logging.getLogger("reverie.vault")
# Paths whose failure was logged, so that a vault on a disk without permissions says so once.
_logged: set[str] = set()


def is_shared(mode: int) -> bool:
    """Return whether a mode gives the group or others any permission (links have none)."""
    return _HAS_MODES and not stat.S_ISLNK(mode) and bool(mode & SHARED)


def make_private(path: Path, *, follow: bool = False) -> bool:
    """Remove the permissions of group and others from a file or folder; return whether it has none.

    A link is left alone unless ``follow``, and so is anything but a regular file or a folder.
    """
    try:
        mode = path.stat(follow_symlinks=follow).st_mode
        if not is_shared(mode) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return True
        # Through a descriptor: a link that is put there meanwhile is not followed.
        handle = os.open(path, _OPENING & ~(getattr(os, "O_NOFOLLOW", 0) if follow else 0))
        try:
            os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) & ~SHARED)
            return not is_shared(os.fstat(handle).st_mode)
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def close_top(root: Path, own: Path, database: Iterable[str]) -> bool:
    """Close the vault's folder, then what lies at its top; return whether the folder is closed."""
    closed = make_private(root, follow=True)
    if not closed and str(root) not in _logged:
        _logged.add(str(root))
        _log.warning(
            "%s can be read by other users of this machine: run 'chmod 700 %s' as its owner, "
            "or move the vault to a disk that keeps permissions",
            *(root, root),
        )
    for path in (own, root / ".git", *(own / name for name in database)):
        make_private(path)
    return closed


def close_tree(root: Path) -> int:
    """Close everything below a folder without following links; return how many could not be."""
    return sum(not make_private(path) for path in _below(root))


def _below(root: Path) -> Iterator[Path]:
    """Yield every file and folder that group or others have a permission for."""
    waiting = [str(root)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = list(entries)
        except OSError:
            continue
        for entry in found:
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:
                continue
            if is_shared(mode):
                yield Path(entry.path)
            if stat.S_ISDIR(mode):
                waiting.append(entry.path)
