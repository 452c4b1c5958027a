"""Watch a vault's files, and sync people's changes into the store at once.

Notifications of the operating system are only hints. All files are read when the watch starts,
after a failure, and from time to time, so that a lost notification delays a change and never loses
it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from reverie.errors import ForkedHandle, MissingExtra, ReverieError, StoreClosed
from reverie.memory.store import Store
from reverie.vault import disk, jobs, layout, service
from reverie.vault.actions import SyncReport
from reverie.vault.vault import Vault

# Changes of a file within this time are one change.
STEP_MS = 100
DEBOUNCE_MS = 1_000
# After a pause this long, check that the folder still exists and which deletions are settled.
LOOK_MS = 500
POLL_MS = 1_000
# Deletions are synced after this time without further ones, at the latest after the maximum.
DELETION_QUIET_SECONDS = 1.5
MAX_DELETION_SECONDS = 30.0
FULL_SCAN_SECONDS = 600.0
# After problems, sync again: the store may have been the cause, and not the file.
PROBLEM_SCAN_SECONDS = 60.0
MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
_log = logging.getLogger("reverie.vault")

OnReport = Callable[[SyncReport], None]


class Watch:
    """Watches the vault of a store in a thread, from ``start`` to ``stop``.

    ``on_report`` is called with the report of each sync; without it, reports are logged.
    """

    def __init__(self, store: Store, on_report: OnReport | None = None) -> None:
        require_watchfiles()
        self._store = store
        self._on_report = on_report or _logged
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pause = MIN_BACKOFF_SECONDS
        self._said: set[str] = set()
        # True: poll, since the system has no watches left, or none at all. None: not known yet.
        self._polling: bool | None = None

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(
            target=self.run, args=(self._stop,), name="reverie-vault", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until a running sync has finished."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run(self, stop: threading.Event) -> None:
        """Watch in this thread until ``stop`` is called; errors are logged and do not end it."""
        while not stop.is_set():
            try:
                self._watch(stop)
            except (StoreClosed, ForkedHandle):
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may do
                self._failed(error, stop)

    def _failed(self, error: Exception, stop: threading.Event) -> None:
        foreseen = isinstance(error, ReverieError | OSError)
        line = str(error) if foreseen else f"{type(error).__name__}: {error}"
        # A problem that goes away at once is not logged, such as a vault that is just being made.
        if self._pause > MIN_BACKOFF_SECONDS and line not in self._said:
            _log.warning("the vault is not watched at the moment: %s", line)
            self._said.add(line)
        stop.wait(self._pause)
        self._pause = min(self._pause * 2, MAX_BACKOFF_SECONDS)

    # -- one watch ----------------------------------------------------------------------------

    def _watch(self, stop: threading.Event) -> None:
        """Watch until the folder is replaced by another, or new folders need a watch."""
        if (path := self._store.vault) is not None:
            jobs.create_new(self._store.runtime, path)
        with service.open_vault(self._store) as vault:
            root = vault.root
        before = _identity(root)
        folders, linked = _real_folders(root)
        missing = DeletionBuffer()
        due_at = 0.0
        for paths in self._changes(root, folders if linked else [root], not linked, stop):
            if _identity(root) != before:
                return
            if time.monotonic() >= due_at:
                # The watch started before this sync, so no change is missed between the two.
                wrong = self._sync(None)
                due_at = time.monotonic() + (PROBLEM_SCAN_SECONDS if wrong else FULL_SCAN_SECONDS)
                continue
            gone = {path for path in paths if disk.stamp(root / path) is None}
            due = (paths - gone) | missing.take_settled(gone, time.monotonic())
            if due and (changed := self._changed(due)) and self._sync(changed):
                due_at = min(due_at, time.monotonic() + PROBLEM_SCAN_SECONDS)
            if _unwatched(root, paths, set(folders) if linked else None):
                return

    def _changed(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that seem changed; checked without the lock, only to save work."""
        # Opened each time: the folder could be replaced by another one, or by another disk.
        with service.open_vault(self._store) as vault:
            return sorted(path for path in paths if not _is_unchanged(vault, path))

    def _changes(
        self, root: Path, folders: list[Path], recursive: bool, stop: threading.Event
    ) -> Iterator[set[str]]:
        """Yield sets of changed paths below the root, an empty set after a pause."""
        from watchfiles import watch
        from watchfiles._rust_notify import WatchfilesRustInternalError

        try:
            for changes in watch(
                *folders,
                # Filtered below: even an ignored path is a reason to check the folders.
                watch_filter=None,
                debounce=DEBOUNCE_MS,
                step=STEP_MS,
                rust_timeout=LOOK_MS,
                yield_on_timeout=True,
                stop_event=stop,
                poll_delay_ms=POLL_MS,
                force_polling=self._polling,
                recursive=recursive,
                ignore_permission_denied=True,
            ):
                paths = {Path(path) for _, path in changes}
                yield {
                    path.relative_to(root).as_posix() for path in paths if is_user_path(root, path)
                }
        except WatchfilesRustInternalError as error:
            if self._polling:
                raise
            _log.warning("the system cannot report changes (%s): the vault is polled", error)
            self._polling = True

    def _sync(self, paths: Iterable[str] | None) -> bool:
        """Sync people's changes; return whether there were problems."""
        report = service.sync(self._store, paths=paths)
        self._pause, wrong = MIN_BACKOFF_SECONDS, bool(report.problems)
        lines = {*report.problems, *report.conflicts}
        # Problems that a full scan finds again were reported the first time.
        report.problems = [line for line in report.problems if line not in self._said]
        self._said = lines if paths is None else self._said | lines
        if report:
            self._on_report(report)
        return wrong


class DeletionBuffer:
    """Collects deleted paths until no more follow for a moment.

    An editor that saves by renaming removes a file only for an instant. And the deletion of a
    folder is reported file by file, but has to be judged as one.
    """

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._first = self._last = 0.0

    def take_settled(self, gone: set[str], now: float) -> set[str]:
        """Add paths; return all once none were added for a while, or the longest wait is over."""
        if gone - self._paths:
            self._first = self._first if self._paths else now
            self._last = now
            self._paths |= gone
        quiet = (
            now - self._last >= DELETION_QUIET_SECONDS or now - self._first >= MAX_DELETION_SECONDS
        )
        if not self._paths or not quiet:
            return set()
        found, self._paths = self._paths, set()
        return found


def require_watchfiles() -> None:
    try:
        import watchfiles as watchfiles
    except ModuleNotFoundError as error:
        raise MissingExtra("watching the vault", "vault") from error


def is_user_path(root: Path, path: Path) -> bool:
    """Whether people may write a path: not hidden, not temporary, not behind a link."""
    try:
        parts = path.relative_to(root).parts
    except ValueError:
        return False
    if not parts or parts[-1].endswith(disk.TEMP_SUFFIX) or any(part[0] == "." for part in parts):
        return False
    above = [root.joinpath(*parts[:depth]) for depth in range(1, len(parts))]
    return not any(folder.is_symlink() for folder in above)


def _is_unchanged(vault: Vault, path: str) -> bool:
    full = vault.root / path
    if full.is_dir() and not full.is_symlink():
        return all(_is_unchanged(vault, each) for each, _ in disk.walk(vault.root, full))
    stamp, known = disk.stamp(full), vault.files.get(path)
    if stamp is None:
        return known is None and not vault.files.below(path)
    return known is not None and known.stamp == stamp


def _identity(root: Path) -> tuple[int, ...]:
    """Return values that identify a vault's folder, to notice that another one replaced it.

    A new folder can have the inode of the old one, so that of a file inside is included.
    """
    folder, own = root.stat(), (root / layout.STATE_FOLDER / "vault.json").stat()
    return folder.st_dev, folder.st_ino, own.st_ino, own.st_mtime_ns


def _real_folders(root: Path) -> tuple[list[Path], bool]:
    """Return the folders that are not hidden, and whether there are links to others.

    The library that watches folders follows links, wherever they lead.
    """
    folders, linked = [], False
    for above, names, _ in os.walk(root):
        folders.append(Path(above))
        linked = linked or any(Path(above, name).is_symlink() for name in names)
        names[:] = [name for name in names if not name.startswith(".")]
    return folders, linked


def _unwatched(root: Path, paths: Iterable[str], watched: set[Path] | None) -> bool:
    """Whether changed paths contain folders or links that need a new watch.

    ``watched`` is None when everything below the root is watched.
    """
    for path in paths:
        full = root / path
        if full.is_symlink() or not full.is_dir():
            continue
        folders, linked = _real_folders(full)
        if linked if watched is None else not watched.issuperset(folders):
            return True
    return False


def _logged(report: SyncReport) -> None:
    for name, values in vars(report).items():
        level = logging.WARNING if name in {"conflicts", "problems"} else logging.INFO
        for value in values:
            _log.log(level, "%s: %s", name, value)
