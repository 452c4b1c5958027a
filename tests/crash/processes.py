"""Servers in processes of their own, and what such a process takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.crash.served import Served


@contextlib.contextmanager
def served(
    folder: Path, descriptors: int | None = None, **environment: str
) -> Iterator[tuple[Served, str, Path]]:
    """A server in a process of its own, its address, and the file of its standard error."""
    errors = folder / "stderr"
    server = Served(folder, descriptors=descriptors, errors=errors, **environment)
    try:
        yield server, server.start(), errors
    finally:
        server.kill()


def cpu_seconds(pid: int) -> float:
    """What the threads of a process have used of the processor."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text(encoding="ascii").split()[0]) for each in threads) / 1e9


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def connections(pid: int) -> int:
    """How many sockets a process has."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(each.readlink()).startswith("socket:")
    return found


def cpu_share(pid: int, seconds: float) -> float:
    """How much of a core a process takes."""
    used, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - used) / (time.monotonic() - began)
