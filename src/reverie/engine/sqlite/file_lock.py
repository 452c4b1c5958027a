"""A file lock between processes: first come first served, with a timeout.

``flock`` queues waiting processes in the kernel but cannot time out. If the lock is taken, a helper
thread therefore waits for it, and the caller waits for the helper with a timeout. A helper whose
caller gave up keeps this process's place in the queue for the next caller; if nobody wants the lock
when it is granted, the helper releases it at once.

The lock file holds two records: whether its store was ever created (``mark``), and the process that
took the lock last. The second is for systems without ``/proc/locks``, and valid while that process
is alive.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: threads of one process still take turns
    fcntl = None  # type: ignore[assignment]

MARK = b"reverie store 1\n"
_HOLDER_BYTES = 112
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class FileLock:
    """A lock on one file for one engine. Threads that share the engine take turns before it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = os.open(path, _FLAGS, 0o600)
        self._changed = threading.Condition()
        self._queued = False
        self._wanted = False
        self._granted = False
        self._closing = False
        self._error: OSError | None = None

    def acquire(self, timeout: float) -> bool:
        """Take the lock; False if it was not granted within ``timeout`` seconds."""
        if fcntl is None or self._file is None:
            return True
        with self._changed:
            if not self._queued:
                if self._take_free():
                    return True
                if timeout <= 0:
                    return False
                threading.Thread(
                    target=self._wait_in_queue, name="reverie-lock", daemon=True
                ).start()
                self._queued = True
            elif timeout <= 0:
                return False
            self._wanted = True
            try:
                self._changed.wait_for(lambda: not self._queued, timeout)
            except BaseException:
                if self._granted:
                    self._release()
                raise
            finally:
                self._wanted = False
                granted, self._granted = self._granted, False
                error, self._error = self._error, None
        if error is not None:
            raise error
        if granted:
            self._record_holder()
        return granted

    def release(self) -> None:
        with self._changed:
            self._release()

    def close(self) -> None:
        """Close the file. A helper that still waits closes it when it is granted the lock."""
        with self._changed:
            self._closing = True
            if not self._queued:
                self._close()

    def close_after_fork(self) -> None:
        """Close the file in a forked child; the lock stays with the parent process."""
        self._changed = threading.Condition()
        self._queued = False
        self._close()

    # -- waiting ------------------------------------------------------------------------------

    def _take_free(self) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._record_holder()
        return True

    def _wait_in_queue(self) -> None:
        taken, error = False, None
        try:
            assert self._file is not None
            fcntl.flock(self._file, fcntl.LOCK_EX)
            taken = True
        except OSError as failure:
            error = failure
        with self._changed:
            self._queued = False
            if self._wanted:
                self._error = error
            if self._closing:
                self._close()
            elif taken and self._wanted:
                self._granted = True
            elif taken:
                self._release()
            self._changed.notify_all()

    def _release(self) -> None:
        if fcntl is not None and self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    # -- records in the lock file -------------------------------------------------------------

    def is_marked(self) -> bool:
        """Whether the store that this lock belongs to was ever created."""
        return self._file is not None and _read(self._file, len(MARK), 0) == MARK

    def mark(self, made: bool = True) -> None:
        """Record that the store was created, or that it is yet to be."""
        if self._file is not None and self.is_marked() != made:
            _write(self._file, MARK if made else bytes(len(MARK)), 0)

    def _record_holder(self) -> None:
        """Record this process as the holder; errors are ignored, so that no writer fails here."""
        assert self._file is not None
        record = f"{os.getpid()} {own_command()}".encode(errors="replace")[:_HOLDER_BYTES]
        record = record.ljust(_HOLDER_BYTES)
        if _read(self._file, _HOLDER_BYTES, len(MARK)) != record:
            with contextlib.suppress(OSError):
                _write(self._file, record, len(MARK))

    def holder(self) -> str:
        """Describe the process that holds the lock now."""
        pids = find_lock_holders(self.path)
        if not pids and self._file is not None:
            pid = _read(self._file, _HOLDER_BYTES, len(MARK)).split(b" ")[0]
            if pid.isdigit() and _is_alive(int(pid)):
                pids = [int(pid)]
        return " and ".join(describe_process(pid) for pid in pids) or "another process"


def _read(file: int, size: int, offset: int) -> bytes:
    with contextlib.suppress(OSError):
        if hasattr(os, "pread"):
            return os.pread(file, size, offset)
        os.lseek(file, offset, os.SEEK_SET)  # pragma: no cover - Windows
        return os.read(file, size)  # pragma: no cover
    return b""


def _write(file: int, data: bytes, offset: int) -> None:
    if hasattr(os, "pwrite"):
        os.pwrite(file, data, offset)
    else:  # pragma: no cover - Windows
        os.lseek(file, offset, os.SEEK_SET)
        os.write(file, data)


# -- other processes ------------------------------------------------------------------------------


def find_lock_holders(path: Path) -> list[int]:
    """The ids of the processes that hold a write lock on a file, from /proc/locks (Linux)."""
    try:
        status = path.stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []
    exact = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    # Some file systems show another device there than in stat.
    return _parse_lock_holders(lines, exact) or _parse_lock_holders(lines, f":{status.st_ino}")


def _parse_lock_holders(lines: list[str], file: str) -> list[int]:
    pids: list[int] = []
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131074 0 EOF; a waiting process has "->" after "1:".
        words = line.split()
        if len(words) < 8 or words[1] == "->" or words[3] != "WRITE":
            continue
        pid = int(words[4]) if words[4].isdigit() else 0
        if words[5].endswith(file) and pid > 0 and pid not in pids:
            pids.append(pid)
    return pids


def describe_process(pid: int) -> str:
    """Describe a process: its id, its command without arguments, and whether it is stopped."""
    if pid == os.getpid():
        return "another handle of this process"
    command = _command_of(pid)
    description = f"process {pid} ({command})" if command else f"process {pid}"
    return (
        f"{description}, which is stopped ('kill -CONT {pid}' lets it go on),"
        if _is_stopped(pid)
        else description
    )


@cache
def own_command() -> str:
    """The command of this process without arguments, which may contain secrets."""
    return command_name([sys.executable, *getattr(sys, "orig_argv", sys.argv)[1:]])


def command_name(arguments: list[str]) -> str:
    """The program name of a command line; for ``reverie`` also its subcommand."""
    words = list(arguments)
    if words and Path(words[0]).name.startswith("python"):
        script = words.pop(0)
        while words and words[0].startswith("-") and words[0] not in {"-m", "-c"}:
            words.pop(0)
        if not words or words[0] == "-c":
            return Path(script).name
        if words[0] == "-m":
            words.pop(0)
    if not words:
        return ""
    name = Path(words[0]).name
    if name == "reverie" and len(words) > 1 and words[1].isidentifier():
        return f"reverie {words[1]}"
    return name


def _command_of(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return command_name([word.decode(errors="replace") for word in raw.split(b"\0") if word])


def _is_stopped(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] in (["T"], ["t"])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
