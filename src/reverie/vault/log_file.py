"""The vault's own copy of the log: JSON lines, one for each entry, in files that only grow.

``log.jsonl`` is the newest file; full ones are named ``log-000001.jsonl`` and so on, so that a
commit adds little. An entry is in it once its files are written, so its end says where to continue.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reverie.engine.log import LogEntry
from reverie.model import Scope
from reverie.text.normalize import SURROGATE
from reverie.transfer import export
from reverie.vault import disk

NEWEST = "log.jsonl"
FULL_BYTES = 1024 * 1024
MAX_POSITION = 1 << 53
# Lines of a log that were none, or that did not fit the others.
DAMAGED_FILE = "damaged.jsonl"
_PART = re.compile(r'"(space|user|memory|session|sequence)": ("(?:[^"\\]|\\.)*"|null|\d{1,15})[,}]')
_FULL = re.compile(r"log-(\d{6,})\.jsonl", re.ASCII)

LogLine = dict[str, Any]


def build_line(scope: Scope, entry: LogEntry) -> LogLine:
    """Return the line of an entry: its exported record, with its scope and position."""
    record = export.to_record(entry)
    return {"space": scope.space, "user": scope.user, "position": entry.position, **record}


class VaultLog:
    """The files of a vault's log, in the vault's internal folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def newest(self) -> Path:
        return self._folder / NEWEST

    def files(self) -> list[Path]:
        """Return the files of the log, oldest first."""
        names = sorted(entry.name for entry in os.scandir(self._folder))
        full = sorted((name for name in names if _FULL.fullmatch(name)), key=lambda n: (len(n), n))
        return [self._folder / name for name in (*full, *(n for n in names if n == NEWEST))]

    def size(self) -> int:
        found = disk.stamp(self.newest)
        return 0 if found is None else found.size

    def append(self, lines: Iterable[LogLine]) -> list[Path]:
        """Append lines, sync them to disk, and return the files that were changed."""
        self._mend()
        changed, size, waiting = [self.newest], self.size(), list[bytes]()
        for raw in map(encode_line, lines):
            if size and size + len(raw) > FULL_BYTES:
                disk.append(self.newest, b"".join(waiting))
                changed.append(self._put_away())
                size, waiting = 0, []
            size += len(raw)
            waiting.append(raw)
        disk.append(self.newest, b"".join(waiting))
        return changed

    def _put_away(self) -> Path:
        full = self._folder / f"log-{self._next():06d}.jsonl"
        self.newest.rename(full)
        disk.sync_folder(self._folder)
        return full

    def _next(self) -> int:
        """Return the number for the next full file; the number of a lost file is not reused."""
        numbers = [int(found[1]) for path in self.files() if (found := _FULL.fullmatch(path.name))]
        return max(numbers, default=0) + 1

    def _mend(self) -> None:
        """Repair the end of the log after a crash: remove a partial last line, or end it."""
        if not self.size() or disk.ends_with(self.newest, b"\n"):
            return
        *_, last = disk.lines(self.newest)
        if decode_line(last) is None:
            os.truncate(self.newest, self.size() - len(last))
        else:
            disk.append(self.newest, b"\n")

    def lines(self, report: Callable[[str], None] | None = None) -> Iterator[LogLine]:
        """Yield every entry; lines that are no entries are reported."""
        for path in self.files():
            for number, raw in enumerate(disk.lines(path), 1):
                line = decode_line(raw)
                if line is not None:
                    yield line
                elif report is not None and raw.strip():
                    report(f"{path.name}, line {number}: no entry of a log")

    def cursors(self) -> dict[Scope, int]:
        """Return the last position of each owner."""
        return {scope: position for scope, (position, _) in self.marks().items()}

    def marks(self) -> dict[Scope, tuple[int, str]]:
        """Return position and uuid of the last entry of each owner."""
        found: dict[Scope, tuple[int, str]] = {}
        for line in self.lines():
            scope = Scope(line["space"], line["user"])
            found[scope] = max(found.get(scope, (0, "")), line_mark(line))
        return found

    def change(self, alter: Callable[[LogLine], LogLine | None]) -> list[Path]:
        """Rewrite lines, for instance erased ones; return the files that were changed."""
        changed = []
        for path in self.files():
            raws = list(disk.lines(path))
            new = [self._altered(raw, alter) for raw in raws]
            if new != raws:
                disk.write(path, b"".join(new))
                changed.append(path)
        return changed

    @staticmethod
    def _altered(raw: bytes, alter: Callable[[LogLine], LogLine | None]) -> bytes:
        line = decode_line(raw)
        changed = None if line is None else alter(line)
        return raw if changed is None else encode_line(changed)

    def keep(self, wanted: Callable[[LogLine], bool]) -> list[Path]:
        """Remove the lines that a predicate rejects; return the files that were changed."""
        changed = []
        for path in self.files():
            raws = list(disk.lines(path))
            kept = [raw for raw in raws if (line := decode_line(raw)) is None or wanted(line)]
            if kept != raws:
                disk.write(path, b"".join(kept))
                changed.append(path)
        return changed

    def clear(self) -> None:
        """Delete the files, newest first, so that what is left always ends at a true position."""
        for path in reversed(self.files()):
            disk.remove(path)


def line_mark(line: LogLine) -> tuple[int, str]:
    """Return position and uuid of a line."""
    return line["position"], str(line.get("uuid"))


def decode_partial_line(raw: bytes) -> LogLine:
    """Recover the scope and subject of a line that is not a complete entry."""
    text, found = raw.decode("utf-8", "replace"), LogLine()
    for name, value in _PART.findall(text[: text.find('"body": ')]):
        try:
            found.setdefault(name, json.loads(value))
        except ValueError:
            continue
    return found


def encode_line(line: Mapping[str, Any]) -> bytes:
    """Encode an entry as a line of JSON."""
    # Half a character in a message is kept as it came.
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def decode_line(raw: bytes) -> LogLine | None:
    """Decode a line, or return None when it is not an entry."""
    try:
        line = json.loads(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(at := line.get("position")) is not int:
        return None
    named = _is_name(line.get("space")) and (line.get("user") is None or _is_name(line["user"]))
    return line if named and 0 < at < MAX_POSITION and _is_flat(line) else None


def _is_flat(line: LogLine) -> bool:
    """Whether the values that identify an entry are plain, so that they can be dict keys."""
    names = ("memory", "session", "sequence", "uuid")
    origin = line.get("origin") or (None, None)
    return not any(isinstance(line.get(name), (list, dict)) for name in names) and (
        isinstance(origin, (list, tuple))
        and len(origin) == 2
        and not any(isinstance(each, (list, dict)) for each in origin)
    )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and not SURROGATE.search(value)
