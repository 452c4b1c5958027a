"""Record what a workload does to the files of a store, and make what a power cut may leave of it.

``Recorder`` is an apsw VFS that writes down each write, truncation, sync, creation and deletion in
one folder. ``Recording.states`` turns that into the files that could be on the disk after the power
went at one point: what was synced is there; of the rest any part may be, in any order, and a write
may be torn between two sectors. Names are kept in order, as journaling file systems do.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import apsw

SECTOR = 512
FEW = 6
_numbers = itertools.count(1)

Files = dict[str, bytes]


class Event(NamedTuple):
    """One call that changes a file or a folder."""

    kind: str  # create, write, truncate, sync, delete, rename, sync folder
    name: str = ""
    offset: int = 0
    data: bytes = b""
    target: str = ""


@dataclass
class Recording:
    """What was done to the files of one folder, and what was acknowledged when."""

    before: Files
    events: list[Event] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    """For each call of the workload, how many events there were when it returned."""

    def done_at(self, point: int) -> int:
        """How many calls had been acknowledged when the power went."""
        return sum(events <= point for events in self.acknowledged)

    def states(
        self, point: int, chance: random.Random, most: int, *, lying: bool = False
    ) -> Iterator[Files]:
        """What may be on the disk. ``lying``: a disk that says it has synced and has not."""
        disk = _Disk(self.before)
        for event in self.events[:point]:
            if not lying or event.kind not in {"sync", "sync folder"}:
                disk.take(event)
        yield from disk.left(chance, most)


class _Inode:
    """A file without its name: what is on the disk for sure, and what was done to it since."""

    def __init__(self, content: bytes, created: int) -> None:
        self.durable = content
        self.pending: list[Event] = []
        self.created = created


class _Disk:
    def __init__(self, before: Files) -> None:
        self._inodes = {number: _Inode(data, 0) for number, data in enumerate(before.values())}
        self._names = {name: number for number, name in enumerate(before)}
        self._history = [dict(self._names)]
        self._durable_history = 0

    def take(self, event: Event) -> None:
        if event.kind in {"create", "delete", "rename"}:
            self._rename(event)
        elif event.kind == "sync folder":
            self._durable_history = len(self._history) - 1
        elif event.kind == "sync":
            inode = self._inodes[self._names[event.name]]
            inode.durable, inode.pending = _applied(inode.durable, inode.pending), []
            # A synced file has its name, and names are kept in order.
            self._durable_history = max(self._durable_history, inode.created)
        else:
            self._inodes[self._names[event.name]].pending.append(event)

    def _rename(self, event: Event) -> None:
        if event.kind == "create":
            number = len(self._inodes)
            self._inodes[number] = _Inode(b"", len(self._history))
            self._names[event.name] = number
        else:
            number = self._names.pop(event.name)
            if event.kind == "rename":
                self._names[event.target] = number
        self._history.append(dict(self._names))

    def left(self, chance: random.Random, most: int) -> Iterator[Files]:
        possible = self._history[self._durable_history :]
        pending = sum(len(self._inodes[number].pending) for number in possible[-1].values())
        yield self._with(possible[-1], lambda inode: inode.pending)
        yield self._with(possible[0], lambda inode: [])
        if pending <= FEW and most > FEW:
            yield from self._every_part(possible)
        for _ in range(most):
            names = chance.choice(possible)
            yield {name: _some_of(self._inodes[number], chance) for name, number in names.items()}

    def _with(self, names: dict[str, int], chosen: object) -> Files:
        assert callable(chosen)
        return {
            name: _applied(self._inodes[number].durable, chosen(self._inodes[number]))
            for name, number in names.items()
        }

    def _every_part(self, possible: list[dict[str, int]]) -> Iterator[Files]:
        for names in possible:
            done = [(number, e) for number in names.values() for e in self._inodes[number].pending]
            for kept in itertools.product((False, True), repeat=len(done)):
                left = [each for each, keep in zip(done, kept, strict=True) if keep]
                yield {
                    name: _applied(
                        self._inodes[number].durable, [e for at, e in left if at == number]
                    )
                    for name, number in names.items()
                }


def _applied(content: bytes, events: list[Event]) -> bytes:
    data = bytearray(content)
    for event in events:
        if event.kind == "truncate":
            data = data[: event.offset].ljust(event.offset, b"\0")
        else:
            end = event.offset + len(event.data)
            if len(data) < end:
                data.extend(bytes(end - len(data)))
            data[event.offset : end] = event.data
    return bytes(data)


def _some_of(inode: _Inode, chance: random.Random) -> bytes:
    """Some of what was not synced: a part of the writes, whole or torn, or all but a few."""
    share = chance.choice((0.1, 0.5, 0.9, 1.0))
    kept: list[Event] = []
    for event in inode.pending:
        if chance.random() > share:
            continue
        torn = event.kind == "write" and len(event.data) > SECTOR and chance.random() < 0.3
        kept += _torn(event, chance) if torn else [event]
    if chance.random() < 0.3:
        # Later writes may reach the disk first: what was written twice ends as either.
        chance.shuffle(kept)
    return _applied(inode.durable, kept)


def _torn(event: Event, chance: random.Random) -> list[Event]:
    """The sectors of one write that reached the disk."""
    sectors = range(0, len(event.data), SECTOR)
    cut = chance.randrange(1, len(sectors))
    way = chance.randrange(3)
    kept = {
        0: list(sectors)[:cut],
        1: list(sectors)[cut:],
        2: [at for at in sectors if chance.random() < 0.5],
    }[way]
    return [
        event._replace(offset=event.offset + at, data=event.data[at : at + SECTOR]) for at in kept
    ]


# -- recording ------------------------------------------------------------------------------------


class Recorder(apsw.VFS):
    """The system's own VFS, in the place of the default one, with a witness."""

    def __init__(self, folder: Path, before: Files) -> None:
        self.folder = folder
        self.recording = Recording(before)
        self._known = set(before)
        self._name = f"recording-{next(_numbers)}"
        super().__init__(self._name, "", makedefault=True)

    def name_of(self, path: str | None) -> str | None:
        """The name of a file of the folder; None: somebody else's."""
        if path is None or Path(path).parent != self.folder:
            return None
        return Path(path).name

    def note(self, event: Event) -> None:
        if event.kind == "create":
            if event.name in self._known:
                return
            self._known.add(event.name)
        elif event.kind in {"delete", "rename"}:
            self._known.discard(event.name)
            if event.target:
                self._known.add(event.target)
        self.recording.events.append(event)

    def acknowledge(self) -> None:
        self.recording.acknowledged.append(len(self.recording.events))

    def end(self) -> Recording:
        apsw.set_default_vfs("unix")
        self.unregister()
        return self.recording

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _RecordedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        name = self.name_of(filename)
        if name is not None:
            self.note(Event("delete", name))
            if syncdir:
                self.note(Event("sync folder"))


class _RecordedFile(apsw.VFSFile):
    def __init__(
        self, vfs: Recorder, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._vfs, self._name = vfs, vfs.name_of(path)
        super().__init__("unix", name, flags)
        self._note("create")

    def _note(self, kind: str, offset: int = 0, data: bytes = b"") -> None:
        if self._name is not None:
            self._vfs.note(Event(kind, self._name, offset, data))

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._note("write", offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._note("truncate", newsize)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._note("sync")
