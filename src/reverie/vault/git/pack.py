"""Combine the packs of a vault's repository: each commit writes one of its own."""

from __future__ import annotations

import contextlib
from pathlib import Path

from reverie.vault.git.process import Git, disk_time, git_version
from reverie.vault.git.repo import Repository

MAX_PACKS = 50
# The most loose objects in one of the 256 folders; git estimates their number in the same way.
MAX_LOOSE = 27
LEFT_BEHIND_SECONDS = 3600.0
_LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock", "gc.pid", "objects/maintenance.lock")
# By a factor of two, so that an object is copied only as often as the repository doubles.
_COMBINE = ("--geometric=2",)
# For git before 2.32: everything into one pack, with what no ref reaches.
_COMBINE_ALL = ("-a", "-k")
_REPACK = (
    *("-c", "pack.threads=1", "-c", "repack.updateServerInfo=false"),
    *("repack", "-q", "-d", "-l", "--no-write-bitmap-index"),
)


def pack_if_many(repository: Repository) -> bool:
    """Combine packs and loose objects when there are many; return whether that was done.

    No object is removed, so it may be killed at any time, and run beside a person's git. The caller
    must hold the lock of the vault, since a purge must not run meanwhile.
    """
    git = repository.git
    objects = git.common() / "objects"
    if not _is_many(objects) or _is_in_use(git, objects):
        return False
    repository.require_quiet()
    _remove_leftovers(objects / "pack")
    newer = (git_version(git.program) or (0, 0)) >= (2, 32)
    git.run(*_REPACK, *(_COMBINE if newer else _COMBINE_ALL), niced=True)
    return True


def _is_many(objects: Path) -> bool:
    packs = sum(not path.with_suffix(".keep").exists() for path in objects.glob("pack/*.pack"))
    return packs > MAX_PACKS or sum(1 for _ in objects.glob("17/*")) > MAX_LOOSE


def _is_in_use(git: Git, objects: Path) -> bool:
    """Whether another git works here, or uses objects of another repository."""
    locked = any(
        (folder / name).exists() for folder in (git.folder, git.common()) for name in _LOCKS
    )
    return locked or (objects / "info" / "alternates").exists()


def _remove_leftovers(folder: Path) -> None:
    """Remove the files of a killed git: unfinished packs, and ``.keep`` files of new ones."""
    now = disk_time(folder)
    for path in (*folder.glob("tmp_*"), *folder.glob("*.keep")):
        with contextlib.suppress(OSError):
            old = now - path.lstat().st_mtime > LEFT_BEHIND_SECONDS
            if old and (path.suffix != ".keep" or path.read_bytes().strip() == b"fast-import"):
                path.unlink()
