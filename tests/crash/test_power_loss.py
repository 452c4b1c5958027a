"""The power goes at any moment of a workload, and any part of the unsynced writes is on the disk.

The store opens, everything acknowledged is there, nothing is half there, and ``verify`` is clean.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import pytest

import reverie
from reverie.engine import schema
from reverie.engine.sqlite import (
    engine,
    file_lock,
    store_file,
)
from reverie.engine.sqlite import (
    engine as sqlite_engine,
)
from reverie.engine.sqlite.engine import SQLiteEngine
from reverie.errors import ReverieError
from reverie.transfer import backup as transfer_backup
from tests.conftest import PROVE
from tests.crash.power_loss import Event, Files, Recorder, Recording
from tests.crash.workload import open_store
from tests.figures import figure

SPACE = "s"
Result = TypeVar("Result")
# How many states of a workload are opened.
STATES = int(os.environ.get("REVERIE_CRASH_POWER_STATES", 12_000 if PROVE else 50))
PLACE = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Snapshot(NamedTuple):
    """All that a caller can see of a store."""

    memories: tuple[Any, ...]
    events: tuple[Any, ...]
    positions: tuple[Any, ...]


NOTHING = Snapshot((), (), ())


class Workload(NamedTuple):
    """What was done, and what could be seen after each call."""

    recording: Recording
    seen: list[Snapshot]
    names: list[str]


def look(store: reverie.Store) -> Snapshot:
    space = store.space(SPACE)
    memories = tuple(
        (memory.id, memory.version, memory.content, memory.forgotten_at)
        for memory in sorted(space.memories(include_forgotten=True), key=lambda each: each.id)
    )
    events = tuple(
        (info.id, event.sequence, str(event.message))
        for info in sorted(space.sessions(), key=lambda each: each.id)
        for event in space.session(info.id).events()
    )
    return Snapshot(memories, events, tuple((info.name, info.position) for info in store.spaces()))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rv-power-", dir=PLACE) as made:
        yield Path(made).resolve()


class Steps:
    """Makes calls one after the other, and notes what could be seen after each."""

    def __init__(self, folder: Path, before: Files) -> None:
        self.recorder = Recorder(folder, before)
        self.seen: list[Snapshot] = []
        self.names: list[str] = []
        self.store: reverie.Store | None = None

    def open(self, name: str, path: Path) -> reverie.Store:
        self.store = open_store(path)
        self._done(name)
        return self.store

    def call(self, name: str, does: Callable[[], Result]) -> Result:
        result = does()
        self._done(name)
        return result

    def close(self) -> None:
        assert self.store is not None
        self.store.close()
        self.recorder.acknowledge()
        self.names.append("close")
        self.seen.append(self.seen[-1])

    def _done(self, name: str) -> None:
        assert self.store is not None
        self.recorder.acknowledge()
        self.names.append(name)
        self.seen.append(look(self.store))

    def end(self) -> Workload:
        return Workload(self.recorder.end(), self.seen, self.names)


def everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """A store from its making to its closing, with every kind of write there is."""
    monkeypatch.setattr(engine, "CHECKPOINT_PAGES", 40)
    steps = Steps(folder, {})

    def moved(part: Path, target: Path) -> None:
        store_file.move_into_place(part, target)
        steps.recorder.note(Event("rename", part.name, target=target.name))
        steps.recorder.note(Event("sync folder"))

    monkeypatch.setattr(transfer_backup, "move_into_place", moved)
    try:
        store = steps.open("open", folder / "store.db")
        _write_all(steps, store, folder / "backup.db")
        steps.close()
    finally:
        done = steps.end()
    return done


def _write_all(steps: Steps, store: reverie.Store, backup: Path) -> None:
    space, chat = store.space(SPACE), store.space(SPACE).session("chat")
    ids: list[str] = []
    for number in range(4):
        fact = partial(space.remember, f"fact {number} is cold")
        ids.append(steps.call("remember", fact).id)
    for number in range(3):
        message = {"role": "user", "content": f"turn {number} " + "of the river " * 40}
        steps.call("append", partial(chat.append, message))
    steps.call("revise", lambda: space.revise(ids[0], "fact 0 is warm"))
    steps.call("forget", lambda: space.forget(ids[1]))
    steps.call("restore", lambda: space.restore(ids[1]))
    steps.call("backup", lambda: store.backup(backup))
    steps.call("note", lambda: space.remember("after the backup " * 300, kind="note"))
    steps.call("erase", lambda: space.erase(ids[2]))
    lines = [{"content": f"line {number}"} for number in range(9)]
    steps.call("import", lambda: space.import_records(lines))
    steps.call("vacuum", store.vacuum)
    steps.call("rebuild", store.rebuild)
    steps.call("restore backup", lambda: store.restore_backup(backup))
    steps.call("remember again", lambda: space.remember("after the restore"))


def upgrade(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """A store of the step before, opened by this version."""
    path = folder / "store.db"
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION - 1)
        SQLiteEngine(str(path)).close()
    steps = Steps(folder, {path.name: path.read_bytes()})
    try:
        store = steps.open("upgrade", path)
        steps.call("remember", lambda: store.space(SPACE).remember("the river is cold"))
        steps.close()
    finally:
        done = steps.end()
    return done


WORKLOADS = {"everything": everything, "upgrade": upgrade}


class ReplayResult(NamedTuple):
    """What became of a workload's states."""

    points: int
    states: int
    losses: list[str]


def replay(
    workload: Workload, place: Path, most: int, *, lying: bool = False, stop: bool = False
) -> ReplayResult:
    """Open what a power cut may leave, at every point of the recording, each state once.

    Where not all can be opened, the points are drawn, those at acknowledgements first.
    """
    chance = random.Random(16)
    recording = workload.recording
    others = sorted(set(range(len(recording.events) + 1)) - set(recording.acknowledged))
    chance.shuffle(others)
    known: set[bytes] = set()
    points, states, losses = 0, 0, list[str]()
    a_point = max(most // (len(others) + len(recording.acknowledged)), 1)
    for point in [*recording.acknowledged, *others]:
        points += 1
        done = recording.done_at(point)
        drawn = list(recording.states(point, chance, 2 * a_point, lying=lying))
        taken = 0
        for left in chance.sample(drawn, len(drawn)):
            mark = _mark(done, left)
            if mark in known or taken == a_point:
                continue
            known.add(mark)
            taken += 1
            states += 1
            wrong = broken(workload, left, done, place)
            if wrong is not None:
                losses.append(f"point {point}, after {done} calls: {wrong}")
        if states >= most or (stop and losses):
            break
    return ReplayResult(points, states, losses)


def _mark(done: int, left: Files) -> bytes:
    """What is the same for the same files after the same number of acknowledged calls."""
    digest = hashlib.blake2b(str(done).encode())
    for name, data in sorted(left.items()):
        digest.update(f"\0{name} {len(data)}\0".encode() + data)
    return digest.digest()


def broken(workload: Workload, left: Files, done: int, place: Path) -> str | None:
    """What is wrong with a store of these files, when so many calls had been acknowledged."""
    for old in place.iterdir():
        old.unlink()
    for name, data in left.items():
        (place / name).write_bytes(data)
    if done:  # the lock file says that there was a store
        (place / "store.db-lock").write_bytes(file_lock.MARK)
    allowed = [NOTHING if done == 0 else workload.seen[done - 1], *workload.seen[done : done + 1]]
    try:
        with open_store(place / "store.db") as store:
            found = look(store)
            if found not in allowed:
                return f"what is there is neither before nor after {workload.names[done - 1]}"
            problems = store.verify().problems
            if problems:
                return problems[0]
        if "backup" in workload.names[:done] and "backup.db" not in left:
            return "the backup is gone"
        if "backup.db" in left:
            with open_store(place / "backup.db") as copy:
                if look(copy) != workload.seen[workload.names.index("backup")]:
                    return "the backup is not what was backed up"
    except (ReverieError, apsw.Error, LookupError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", WORKLOADS)
def test_power_loss_at_any_point_loses_nothing_acknowledged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    workload = WORKLOADS[name](folder, monkeypatch)
    with tempfile.TemporaryDirectory(prefix="rv-power-", dir=PLACE) as place:
        found = replay(workload, Path(place), STATES)
    print(
        f"power loss, {name}: {len(workload.recording.events)} recorded calls, "
        f"{found.points} points, {found.states} states opened, {len(found.losses)} wrong"
    )
    figure("points in time", found.points)
    figure("states opened", found.states)
    figure("states with a loss", len(found.losses))
    assert found.losses == []


def test_replay_detects_losses_of_a_disk_that_lies_about_syncs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test can fail: where a sync does nothing, acknowledged writes are lost."""
    workload = upgrade(folder, monkeypatch)
    with tempfile.TemporaryDirectory(prefix="rv-power-", dir=PLACE) as place:
        found = replay(workload, Path(place), 300, lying=True, stop=True)
    print(f"lying disk: the first loss was state {found.states}: {found.losses[0]}")
    assert found.losses


def test_replay_detects_losses_of_synchronous_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test can fail: without syncs at each commit acknowledged writes are lost."""
    changed = tuple(
        ("synchronous", "OFF", 0) if pragma[0] == "synchronous" else pragma
        for pragma in sqlite_engine.CONNECTION_PRAGMAS
    )
    with monkeypatch.context() as unsafe:
        unsafe.setattr(sqlite_engine, "CONNECTION_PRAGMAS", changed)
        workload = upgrade(folder, unsafe)
    with tempfile.TemporaryDirectory(prefix="rv-power-", dir=PLACE) as place:
        found = replay(workload, Path(place), 300, stop=True)
    print(f"synchronous=OFF: the first loss was state {found.states}: {found.losses[0]}")
    assert found.losses
