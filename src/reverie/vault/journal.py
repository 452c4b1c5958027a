"""The log itself, carried along in the vault: one entry a line, in files that only grow.

``log.jsonl`` is the newest; what is full is called ``log-000001.jsonl`` and so on, so that git has
little to read for each commit. What stands here has been mirrored: it says where to go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reverie.engine.log import Entry
from reverie.memory import transfer
from reverie.model import Scope
from reverie.vault import disk

NEWEST = "log.jsonl"
FULL_BYTES = 1024 * 1024

Line = dict[str, Any]


def line_of(scope: Scope, entry: Entry) -> Line:
    """An entry with whose it is and where it stands."""
    record = transfer.record_of(entry)
    return {"space": scope.space, "user": scope.user, "position": entry.position, **record}


def blanked(line: Line) -> Line:
    """An entry as it is when what it said was erased."""
    return {**line, "body": None, "reason": None, "request": None}


class Journal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def newest(self) -> Path:
        return self._folder / NEWEST

    def files(self) -> list[Path]:
        """The oldest first."""
        full = sorted(self._folder.glob("log-??????.jsonl"))
        return [*full, self.newest] if self.newest.exists() else full

    def size(self) -> int:
        return self.newest.stat().st_size if self.newest.exists() else 0

    def append(self, lines: Iterable[Line]) -> list[Path]:
        """Write lines, synced; the files that were changed."""
        self._mend()
        raw = b"".join(encoded(line) for line in lines)
        changed = [self.newest]
        if self.size() and self.size() + len(raw) > FULL_BYTES:
            full = self._folder / f"log-{len(self.files()):06d}.jsonl"
            self.newest.rename(full)
            disk.sync_folder(self._folder)
            changed.append(full)
        disk.append(self.newest, raw)
        return changed

    def _mend(self) -> None:
        """A line that was being written when the power went is written again."""
        if not self.size():
            return
        with self.newest.open("r+b") as file:
            file.seek(-1, 2)
            if file.read(1) == b"\n":
                return
            whole = self.newest.read_bytes()
            file.truncate(whole.rfind(b"\n") + 1)

    def lines(self, report: Callable[[str], None] | None = None) -> Iterator[Line]:
        """Every entry there is; what is no entry is reported."""
        for path in self.files():
            with path.open("rb") as file:
                for number, raw in enumerate(file, 1):
                    line = decoded(raw)
                    if line is not None:
                        yield line
                    elif report is not None and raw.strip():
                        report(f"{path.name}, line {number}: no entry of a log")

    def cursors(self) -> dict[Scope, int]:
        """The last position of each owner."""
        found: dict[Scope, int] = {}
        for line in self.lines():
            scope = Scope(line["space"], line["user"])
            found[scope] = max(found.get(scope, 0), line["position"])
        return found

    def change(self, alter: Callable[[Line], Line | None]) -> list[Path]:
        """Rewrite what has to change, such as what was erased; the files that were changed."""
        changed = []
        for path in self.files():
            raws = path.read_bytes().splitlines(keepends=True)
            new = [self._altered(raw, alter) for raw in raws]
            if new != raws:
                disk.write(path, b"".join(new))
                changed.append(path)
        return changed

    @staticmethod
    def _altered(raw: bytes, alter: Callable[[Line], Line | None]) -> bytes:
        line = decoded(raw)
        changed = None if line is None else alter(line)
        return raw if changed is None else encoded(changed)

    def clear(self) -> None:
        for path in self.files():
            disk.remove(path)


def encoded(line: Mapping[str, Any]) -> bytes:
    # Half a character in a message is kept as it came.
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def decoded(raw: bytes) -> Line | None:
    try:
        line = json.loads(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("position"), int):
        return None
    named = isinstance(line.get("space"), str) and isinstance(line.get("user"), str | None)
    return line if named else None
