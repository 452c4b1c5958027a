"""The lock that writers queue for: its timeout, its order, and how it describes its holder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.engine.sqlite import file_lock
from reverie.engine.sqlite.file_lock import FileLock, command_name

pytest.importorskip("fcntl", reason="there is no flock here")

WRITERS = 8
TURNS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db-lock"


@pytest.fixture
def held(path: Path) -> Iterator[FileLock]:
    """The lock, held by another handle."""
    lock = FileLock(path)
    assert lock.acquire(0)
    yield lock
    lock.close()


def waiting_threads() -> int:
    return sum(thread.name == "reverie-lock" for thread in threading.enumerate())


def until(condition: object) -> None:
    assert callable(condition)
    while not condition():
        time.sleep(0.005)


def test_acquire_gives_up_at_the_deadline(path: Path, held: FileLock) -> None:
    lock = FileLock(path)
    assert not lock.acquire(0)
    assert waiting_threads() == 0
    assert not lock.acquire(0.05)
    held.release()
    until(lambda: waiting_threads() == 0)
    lock.close()


def test_acquire_returns_as_soon_as_the_lock_is_free(path: Path, held: FileLock) -> None:
    lock = FileLock(path)
    threading.Timer(0.05, held.release).start()
    assert lock.acquire(60)
    assert not held.acquire(0)
    lock.release()
    assert held.acquire(0)
    lock.close()


def test_lock_acquired_after_the_deadline_is_released(path: Path, held: FileLock) -> None:
    """The abandoned wait is granted the lock when nobody wants it any more."""
    lock, third = FileLock(path), FileLock(path)
    assert not lock.acquire(0.02)
    held.release()
    until(lambda: waiting_threads() == 0)
    assert third.acquire(0)
    third.close()
    lock.close()


def test_next_caller_takes_over_the_place_in_the_queue(path: Path, held: FileLock) -> None:
    lock = FileLock(path)
    assert not lock.acquire(0.02)
    assert not lock.acquire(0.02)
    assert waiting_threads() == 1
    threading.Timer(0.05, held.release).start()
    assert lock.acquire(60)
    assert not held.acquire(0)
    lock.close()


def test_close_while_waiting_leaves_nothing_locked(path: Path, held: FileLock) -> None:
    lock = FileLock(path)
    assert not lock.acquire(0.02)
    lock.close()
    held.release()
    until(lambda: waiting_threads() == 0)
    assert held.acquire(0)


def test_holder_is_named_by_the_kernel_and_not_by_a_stale_record(path: Path) -> None:
    lock, other = FileLock(path), FileLock(path)
    with _holding(path) as process:
        assert not lock.acquire(0)
        assert f"process {process.pid}" in lock.holder()
    # Its record is still in the file, and nobody holds the lock.
    assert str(process.pid).encode() in path.read_bytes()
    assert other.acquire(0)
    assert not lock.acquire(0)
    assert lock.holder() == "another handle of this process"
    lock.close()
    other.close()


def test_holder_is_read_from_the_file_where_the_kernel_does_not_say(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "find_lock_holders", lambda path: [])
    lock = FileLock(path)
    with _holding(path) as process:
        assert f"process {process.pid}" in lock.holder()
    assert lock.holder() == "another process"
    lock.close()


def _holding(path: Path) -> _Holding:
    return _Holding(path)


class _Holding:
    """Another process that holds the lock until it is told to end."""

    def __init__(self, path: Path) -> None:
        script = (
            "import sys; from pathlib import Path; "
            "from reverie.engine.sqlite.file_lock import FileLock; "
            "lock = FileLock(Path(sys.argv[1])); print(lock.acquire(9), flush=True); input()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> subprocess.Popen[bytes]:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"True\n"
        return self._process

    def __exit__(self, *ended: object) -> None:
        self._process.communicate(b"\n")


def test_mark_survives_its_holder_and_can_be_cleared(path: Path) -> None:
    lock = FileLock(path)
    assert not lock.is_marked()
    assert lock.acquire(0)
    assert not lock.is_marked()
    lock.mark()
    lock.release()
    other = FileLock(path)
    assert other.is_marked()
    other.mark(False)
    assert not lock.is_marked()
    lock.close()
    other.close()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["/usr/bin/python3.11", "/x/bin/reverie", "rebuild", "--yes"], "reverie rebuild"),
        (["python", "-m", "reverie", "remember", "my secret"], "reverie remember"),
        (["python3", "-I", "-W", "/x/agent.py", "secret"], "agent.py"),
        (["python3", "-c", "print('secret')"], "python3"),
        (["/x/bin/reverie", "--url", "postgresql://ana:secret@db/x"], "reverie"),
        (["/usr/bin/gunicorn", "app:secret"], "gunicorn"),
        ([], ""),
    ],
)
def test_command_of_the_holder_is_shown_without_its_arguments(
    line: list[str], expected: str
) -> None:
    assert command_name(line) == expected


_TAKING_TURNS = """
import os, sys, time
from pathlib import Path
from reverie.engine.sqlite.file_lock import FileLock
lock = FileLock(Path(sys.argv[1]))
order = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
print(flush=True); input()
for _ in range(int(sys.argv[4])):
    assert lock.acquire(120)
    os.write(order, sys.argv[3].encode())
    time.sleep(0.001)
    lock.release()
    time.sleep(0.001)
"""


def test_waiting_processes_acquire_the_lock_in_turn(tmp_path: Path) -> None:
    """Between two turns of one writer every other one has about one: nobody starves."""
    lock, order = tmp_path / "lock", tmp_path / "order"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _TAKING_TURNS, str(lock), str(order), str(number), str(TURNS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    assert [writer.wait() for writer in writers] == [0] * WRITERS
    for writer in writers:
        writer.communicate()
    turns = order.read_text(encoding="ascii")
    assert len(turns) == WRITERS * TURNS
    gaps: list[int] = []
    last: defaultdict[str, int] = defaultdict(int)
    # While all still take part: those who began later end later.
    for at, writer_name in enumerate(turns[: len(turns) // 2]):
        gaps.append(at - last[writer_name])
        last[writer_name] = at
    gaps.sort()
    print(f"turns between two of one writer: median {gaps[len(gaps) // 2]}, longest {gaps[-1]}")
    assert gaps[int(len(gaps) * 0.95)] <= 4 * WRITERS


def test_lock_of_the_parent_survives_a_fork(path: Path) -> None:
    lock, other = FileLock(path), FileLock(path)
    assert lock.acquire(0)
    child = os.fork()
    if not child:
        lock.close_after_fork()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not other.acquire(0)
    lock.release()
    assert other.acquire(0)
    lock.close()
    other.close()
