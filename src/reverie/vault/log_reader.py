"""Read the vault's own log in the order of positions, to rebuild a store from it.

The files have the entries of one owner after those of another, so they are sorted by position.
Only the location of each line is kept in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from reverie.engine.log import OVERWRITTEN_REASON, LogEntry
from reverie.errors import ReverieError
from reverie.model import Scope
from reverie.protocols import ReportLine
from reverie.text.normalize import one_line
from reverie.transfer import record_schema
from reverie.transfer.log_replay import ReplayRecord
from reverie.vault import disk, layout, log_file
from reverie.vault.log_file import MAX_POSITION, LogLine
from reverie.vault.log_position import scope_of_line
from reverie.vault.markdown_log import MarkdownSession, event_record


class _LineLocation(NamedTuple):
    """The location of a line in the files of the log."""

    path: Path
    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.path.name}, line {self.number}"


@dataclass
class _SessionLines:
    """The positions of a session's events by sequence, and of each hide since the last restore."""

    events: dict[int, int] = field(default_factory=dict)
    hides: list[int] = field(default_factory=list)

    def around(self, sequence: int) -> tuple[int, int]:
        """Return the positions between which an event belongs."""
        known = sorted(self.events)
        at = bisect_left(known, sequence)
        last = self.hides[0] if self.hides else MAX_POSITION
        return (
            self.events[known[at - 1]] if at else 0,
            self.events[known[at]] if at < len(known) else last,
        )


class LogReader:
    """Reads every entry of a vault's log; lines that cannot be replayed are reported."""

    def __init__(self, files: Iterable[Path], report: ReportLine) -> None:
        self._report = report
        # Spaces as they were first mirrored.
        self._spaces: dict[str, dict[int, _LineLocation]] = {}
        for path in files:
            self._take(path)
        self._sessions: dict[tuple[Scope, str], _SessionLines] = {}
        for line, _ in self.lines():
            if line.get("session") is not None:
                self._add_session_line(line)

    def __len__(self) -> int:
        return sum(len(locations) for locations in self._spaces.values())

    def _take(self, path: Path) -> None:
        offset = 0
        for number, raw in enumerate(disk.lines(path), 1):
            location, offset = _LineLocation(path, number, offset), offset + len(raw)
            if not raw.strip():
                continue
            line = log_file.decode_line(raw)
            why = "no entry of a log" if line is None else _problem(line)
            if line is not None and why is None:
                why = self._add(line, location)
            if why is not None:
                self._report(f"{location}: {why}")

    def _add(self, line: LogLine, location: _LineLocation) -> str | None:
        locations = self._spaces.setdefault(line["space"], {})
        position = line["position"]
        known = locations.get(position)
        if known is None:
            locations[position] = location
            return None
        other = _read(known)
        if other["uuid"] != line["uuid"]:
            return f"position {position} is that of another entry already"
        # Of two copies the one that was emptied since counts: what was erased stays erased.
        if line["body"] is None or (other["body"] and line.get("reason") == OVERWRITTEN_REASON):
            locations[position] = location
        return None

    def _add_session_line(self, line: LogLine) -> None:
        name = (scope_of_line(line), line["session"])
        known = self._sessions.setdefault(name, _SessionLines())
        op, position = line["op"], line["position"]
        if op == "append":
            known.events[line["sequence"]] = position
        if op == "hide":
            known.hides.append(position)
        elif op == "restore" or (op == "erase" and line.get("sequence") is None):
            known.hides.clear()
        elif op == "append" and line["body"] is not None:
            # It went on without being restored, so that line is lost: nothing can be appended to a
            # hidden session, and its events are worth more than that it was once hidden.
            for hidden in known.hides:
                where = self._spaces[line["space"]].pop(hidden)
                self._report(f"{where}: what restored the session {name[1]} later is lost")
            known.hides.clear()

    def lines(self, space: str | None = None) -> Iterator[tuple[LogLine, str]]:
        """Yield the entries of each space by position, and the location of each."""
        for name, locations in self._spaces.items():
            if space is None or name == space:
                for position in sorted(locations):
                    yield _read(locations[position]), str(locations[position])

    def to_records(self, placed: Iterable[ReplayRecord] = ()) -> Iterator[ReplayRecord]:
        """Yield the entries as records to replay, and ``placed`` at their positions."""
        more: dict[str, list[ReplayRecord]] = {}
        for each in placed:
            more.setdefault(each.scope.space, []).append(each)
        for space in self._spaces:
            others = sorted(more.get(space, ()), key=lambda each: each.position)
            yield from merge(self._records(space), others, key=lambda each: each.position)

    def _records(self, space: str) -> Iterator[ReplayRecord]:
        """Yield the lines of a space. Where a version is lost, the later ones move up."""
        latest: dict[tuple[Scope, str], tuple[int, int]] = {}
        for line, where in self.lines(space):
            scope, record = scope_of_line(line), line
            if line.get("memory"):
                name, version = (scope, line["memory"]), line["version"]
                last, here = latest.get(name, (0, 0))
                if version <= last:
                    self._report(f"{where}: version {version} of {name[1]} does not follow {last}")
                    continue
                if version > last + 1:
                    self._report(
                        f"{where}: what came before version {version} of {name[1]} is lost: "
                        f"it is version {here + 1} now"
                    )
                latest[name] = (version, here + 1)
                record = {**line, "version": here + 1}
            yield ReplayRecord(scope, record, where, line["position"])

    def place(self, sessions: Iterable[MarkdownSession], now: int) -> list[ReplayRecord]:
        """Return the events that the log has lost and files still show, at free positions.

        Those after the last event of the log are left out, and those for which there is no place.
        """
        wanted: dict[str, list[tuple[int, int, int, ReplayRecord]]] = {}
        for number, one in enumerate(sessions):
            known = self._sessions.get((one.scope, one.session), _SessionLines())
            for sequence in sorted(one.turns.keys() - known.events.keys()):
                after, before = known.around(sequence)
                if before < MAX_POSITION:
                    record = event_record(one, sequence, now)
                    wanted.setdefault(one.scope.space, []).append((before, number, after, record))
        return [each for space, own in wanted.items() for each in _placed(self._spaces[space], own)]


def _placed(
    locations: Mapping[int, _LineLocation], wanted: Iterable[tuple[int, int, int, ReplayRecord]]
) -> Iterator[ReplayRecord]:
    """Yield each record at the first free position that is between those it belongs to."""
    free = [[one + 1, two] for one, two in pairwise((0, *sorted(locations))) if two - one > 1]
    for before, _, after, each in sorted(wanted, key=lambda each: each[:2]):
        at = bisect_right(free, [after, MAX_POSITION])
        if at < len(free) and free[at][0] < before:
            position, following = free[at]
            # Times never run backwards in a log: a later one would change those of the next lines.
            latest = min(each.recorded_at, _read(locations[following])["recorded_at"])
            yield each._replace(record={**each.record, "recorded_at": latest}, position=position)
            free[at][0] += 1
            if free[at][0] == following:
                del free[at]


def read_entries(root: str | None) -> Iterator[tuple[Scope, LogEntry]]:
    """Yield the undamaged entries of the log of the vault in a folder; none without a vault."""
    own = Path(root or "") / layout.STATE_FOLDER
    files = log_file.VaultLog(own).files() if root and own.is_dir() else []
    for line, _ in LogReader(files, lambda _: None).lines():
        entry = record_schema.parse_record(line)
        yield scope_of_line(line), replace(entry, position=line["position"])


def _problem(line: LogLine) -> str | None:
    """Return why a line is not an entry, or None."""
    try:
        record_schema.parse_record(line)
    except (ReverieError, KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        return f"no entry of a log ({one_line(why)})"
    return None


def _read(location: _LineLocation) -> LogLine:
    with location.path.open("rb") as file:
        file.seek(location.offset)
        line = log_file.decode_line(file.readline())
    assert line is not None
    return line
