"""A disk that misbehaves: an apsw VFS whose k-th call of one kind fails with SQLite's own code."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Literal, NamedTuple

import apsw

Operation = Literal["sync", "write", "read", "truncate"]
FileKind = Literal["database", "wal", "other"]
_numbers = itertools.count(1)


class Fault(NamedTuple):
    """The ``at``-th call of ``operation`` fails; with ``lasting`` every later one as well."""

    operation: Operation
    code: int
    at: int
    kind: FileKind | None = None
    lasting: bool = False


class FailingVFS(apsw.VFS):
    """The system's own VFS under a fresh name, healthy until armed."""

    def __init__(self) -> None:
        self.vfs_name = f"failing-{next(_numbers)}"
        self.calls: Counter[tuple[Operation, FileKind]] = Counter()
        self.seen = 0
        self.fired = 0
        self.fault: Fault | None = None
        super().__init__(self.vfs_name, "")

    def arm(self, fault: Fault) -> None:
        """Count from here."""
        self.seen = 0
        self.fired = 0
        self.fault = fault

    def disarm(self) -> None:
        self.fault = None

    def passes(self, operation: Operation, kind: FileKind) -> None:
        self.calls[operation, kind] += 1
        fault = self.fault
        if fault is None or fault.operation != operation or fault.kind not in {None, kind}:
            return
        self.seen += 1
        if self.seen == fault.at or (fault.lasting and self.seen > fault.at):
            self.fired += 1
            raise apsw.exception_for(fault.code)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _FailingFile(self, name, flags)


class _FailingFile(apsw.VFSFile):
    def __init__(
        self, vfs: FailingVFS, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._vfs = vfs
        self._kind: FileKind = "other"
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            self._kind = "database"
        elif flags[0] & apsw.SQLITE_OPEN_WAL:
            self._kind = "wal"
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        self._vfs.passes("sync", self._kind)
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._vfs.passes("write", self._kind)
        super().xWrite(data, offset)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._vfs.passes("read", self._kind)
        return super().xRead(amount, offset)

    def xTruncate(self, newsize: int) -> None:
        self._vfs.passes("truncate", self._kind)
        super().xTruncate(newsize)
