"""Watches a vault while a program runs: what people change in the files reaches the store at once.

What the system tells of is only a hint where to look. Everything is looked at when the watch
begins, when anything failed, and now and then; so a hint that is lost costs time and no change.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

from reverie.errors import ForkedHandle, MissingExtra, ReverieError, StoreClosed
from reverie.memory.store import Store
from reverie.vault import disk, layout, service
from reverie.vault.reader import SyncReport
from reverie.vault.vault import Vault

# Saved again within so much, it is one change.
STEP_MS = 100
DEBOUNCE_MS = 1_000
# After so long a quiet we look whether the folder is still there, and what stayed away.
LOOK_MS = 500
POLL_MS = 1_000
# Deletions are taken in when none followed for so long, and at the latest after the longer time.
DELETION_QUIET_SECONDS = 1.5
MAX_DELETION_SECONDS = 30.0
FULL_SCAN_SECONDS = 600.0
# What could not be taken in may have been the store's fault, not the file's.
PROBLEM_SCAN_SECONDS = 60.0
MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
_log = logging.getLogger("reverie.vault")

OnReport = Callable[[SyncReport], None]


class Watch:
    """The files of a store's vault, watched in a thread from ``start`` to ``stop``.

    ``told`` hears what people's changes came to; without it, the log does.
    """

    def __init__(self, store: Store, told: OnReport | None = None) -> None:
        require_watchfiles()
        self._store = store
        self._on_report = told or _logged
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pause = MIN_BACKOFF_SECONDS
        self._said: set[str] = set()
        # The system has no more watches to give, or none at all.
        self._polling: bool | None = None

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(
            target=self.run, args=(self._stop,), name="reverie-vault", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Let what is being synced finish, and wait for it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run(self, stop: threading.Event) -> None:
        """Watch in this thread until told to stop. Nothing that goes wrong ends it."""
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
        # What passes at once is not worth a line, such as a vault that is just being made.
        if self._pause > MIN_BACKOFF_SECONDS and line not in self._said:
            _log.warning("the vault is not watched at the moment: %s", line)
            self._said.add(line)
        stop.wait(self._pause)
        self._pause = min(self._pause * 2, MAX_BACKOFF_SECONDS)

    # -- one watch ----------------------------------------------------------------------------

    def _watch(self, stop: threading.Event) -> None:
        """Until the folder is another one, or folders need to be watched that are not."""
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
                # Watched from before this look: nothing falls between the two.
                wrong = self._sync(None)
                due_at = time.monotonic() + (PROBLEM_SCAN_SECONDS if wrong else FULL_SCAN_SECONDS)
                continue
            gone = {path for path in paths if disk.stamp(root / path) is None}
            due = (paths - gone) | missing.take_settled(gone, time.monotonic())
            if due and (strange := self._foreign(due)) and self._sync(strange):
                due_at = min(due_at, time.monotonic() + PROBLEM_SCAN_SECONDS)
            if _unwatched(root, paths, set(folders) if linked else None):
                return

    def _foreign(self, paths: Iterable[str]) -> list[str]:
        """Opened for each look: what is held open could be another's, or another disk's, by now."""
        with service.open_vault(self._store) as vault:
            return changed_paths(vault, paths)

    def _changes(
        self, root: Path, folders: list[Path], recursive: bool, stop: threading.Event
    ) -> Iterator[set[str]]:
        """Paths below the root that changed; none when nothing did for a moment."""
        from watchfiles import watch
        from watchfiles._rust_notify import WatchfilesRustInternalError

        try:
            for changes in watch(
                *folders,
                # Filtered below: what is left out here is not even a reason to look around.
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
            _log.warning("the system cannot tell of changes (%s): the vault is polled", error)
            self._polling = True

    def _sync(self, paths: Iterable[str] | None) -> bool:
        """Take in what people did; whether there were problems."""
        report = service.sync(self._store, paths=paths)
        self._pause, wrong = MIN_BACKOFF_SECONDS, bool(report.problems)
        lines = {*report.problems, *report.conflicts}
        # What is still wrong when everything is looked at again was told the first time.
        report.problems = [line for line in report.problems if line not in self._said]
        self._said = lines if paths is None else self._said | lines
        if report:
            self._on_report(report)
        return wrong


class DeletionBuffer:
    """Paths that are gone, gathered until no more follow for a moment.

    An editor that saves by renaming leaves a gap, so what is gone may be back at once. And who
    deletes a folder is heard of in pieces, which have to be judged as one deletion.
    """

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._first = self._last = 0.0

    def take_settled(self, gone: set[str], now: float) -> set[str]:
        """Add paths; return all of them once none were added for a while, or at last."""
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
    """Whether a path may hold what people write: not hidden, no draft, behind no link."""
    try:
        parts = path.relative_to(root).parts
    except ValueError:
        return False
    if not parts or parts[-1].endswith(disk.TEMP_SUFFIX) or any(part[0] == "." for part in parts):
        return False
    above = [root.joinpath(*parts[:depth]) for depth in range(1, len(parts))]
    return not any(folder.is_symlink() for folder in above)


def changed_paths(vault: Vault, paths: Iterable[str]) -> list[str]:
    """Those that are not as we left them. Looked at without the lock: a guess that saves work."""
    return sorted(path for path in paths if not _is_unchanged(vault, path))


def _is_unchanged(vault: Vault, path: str) -> bool:
    full = vault.root / path
    if full.is_dir() and not full.is_symlink():
        return all(_is_unchanged(vault, each) for each, _ in disk.walk(vault.root, full))
    stamp, known = disk.stamp(full), vault.files.at(path)
    if stamp is None:
        return known is None and not vault.files.below(path)
    return known is not None and known.stamp == stamp


def _identity(root: Path) -> tuple[int, ...]:
    """By what a vault is known again: a disk, or a folder made anew, may come in its place. A new
    folder can have the number of the old one, so what is always in it has its say too."""
    folder, own = root.stat(), (root / layout.STATE_FOLDER / "vault.json").stat()
    return folder.st_dev, folder.st_ino, own.st_ino, own.st_mtime_ns


def _real_folders(root: Path) -> tuple[list[Path], bool]:
    """The folders that are not hidden, and whether a link leads to others.

    What watches folders for us follows links, wherever they lead.
    """
    folders, linked = [], False
    for above, names, _ in os.walk(root):
        folders.append(Path(above))
        linked = linked or any(Path(above, name).is_symlink() for name in names)
        names[:] = [name for name in names if not name.startswith(".")]
    return folders, linked


def _unwatched(root: Path, paths: Iterable[str], watched: set[Path] | None) -> bool:
    """Whether these bring folders or links that need another watch. None: below the root, all is
    watched."""
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
