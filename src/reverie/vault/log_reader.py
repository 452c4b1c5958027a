"""Read the vault's own log in the order of positions, to rebuild a store from it.

The files have the entries of one owner after those of another, so they are sorted by position.
Only the location of each line is kept in memory. Gaps are filled from the Markdown files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

from reverie.engine.log import OVERWRITTEN_REASON
from reverie.errors import ReverieError
from reverie.model import Scope
from reverie.text.normalize import one_line
from reverie.transfer import record_schema
from reverie.transfer.log_replay import ReplayRecord
from reverie.vault import disk, log_file, markdown_log
from reverie.vault.log_file import MAX_POSITION, LogLine
from reverie.vault.markdown_log import MarkdownSession

Report = Callable[[str], None]
# A record that the log has lost, after the two positions between which it belongs.
_Missing = tuple[int, int, ReplayRecord]
# So many versions of a memory in a row are filled in.
MAX_LOST = 1_000


class _LineLocation(NamedTuple):
    """The location of a line in the files of the log."""

    path: Path
    number: int
    offset: int


class LogReader:
    """Reads every entry of a vault's log; lines that are no entries are reported."""

    def __init__(self, files: Iterable[Path], report: Report) -> None:
        self._report = report
        # Spaces as they were first mirrored.
        self._spaces: dict[str, dict[int, _LineLocation]] = {}
        self.damaged = 0
        for path in files:
            self._take(path)

    def __len__(self) -> int:
        return sum(len(spots) for spots in self._spaces.values())

    def _take(self, path: Path) -> None:
        offset = 0
        for number, raw in enumerate(disk.lines(path), 1):
            spot, offset = _LineLocation(path, number, offset), offset + len(raw)
            if not raw.strip():
                continue
            line = log_file.decode_line(raw)
            why = "no entry of a log" if line is None else problem(line)
            if line is not None and why is None:
                why = self._add(line, spot)
            if why is not None:
                self.damaged += 1
                self._report(f"{path.name}, line {number}: {why}")

    def _add(self, line: LogLine, spot: _LineLocation) -> str | None:
        spots = self._spaces.setdefault(line["space"], {})
        position = line["position"]
        known = spots.get(position)
        if known is None:
            spots[position] = spot
            return None
        other = _read(known)
        if other["uuid"] != line["uuid"]:
            return f"position {position} is that of another entry already"
        # Of two copies the one that was emptied since counts: what was erased stays erased.
        if line["body"] is None or (other["body"] and line.get("reason") == OVERWRITTEN_REASON):
            spots[position] = spot
        return None

    # -- what is there ------------------------------------------------------------------------

    def lines(self, space: str | None = None) -> Iterator[tuple[LogLine, str]]:
        """Yield the entries of each space by position, and the location of each."""
        for name, spots in self._spaces.items():
            if space is None or name == space:
                for position in sorted(spots):
                    spot = spots[position]
                    yield _read(spot), f"{spot.path.name}, line {spot.number}"

    def to_records(self, filled: Iterable[ReplayRecord] = ()) -> Iterator[ReplayRecord]:
        """Yield the entries as records to replay, with ``filled`` at the positions of the gaps."""
        waiting: dict[str, list[ReplayRecord]] = {}
        for each in filled:
            waiting.setdefault(each.scope.space, []).append(each)
        for space in dict.fromkeys((*self._spaces, *waiting)):
            more = deque(sorted(waiting.get(space, ()), key=lambda each: each.position))
            for line, where in self.lines(space):
                while more and more[0].position < line["position"]:
                    yield more.popleft()
                scope = Scope(line["space"], line["user"])
                yield ReplayRecord(scope, line, where, line["position"])
            yield from more

    # -- what is missing ----------------------------------------------------------------------

    def fill_gaps(self, conversations: Iterable[MarkdownSession], now: int) -> list[ReplayRecord]:
        """Return records for events that the log has lost and the files of sessions still show.

        And in the place of each lost version of a memory the one beside it.
        """
        wanted: dict[str, list[_Missing]] = {space: [] for space in self._spaces}
        lives = self._lives()
        for one in conversations:
            life = lives.get((one.scope, one.session), _SessionEntries())
            own = wanted.setdefault(one.scope.space, [])
            for sequence in sorted(set(one.turns) - set(life.events)):
                event = markdown_log.event_record(one, one.turns[sequence], now)
                own.append((*life.around(sequence), event))
            for after, before, at in life.returns:
                # It went on, so it was brought back: what says so is lost.
                own.append((after, before, markdown_log.visibility_record(one, "restore", at)))
        return [
            each
            for space, own in wanted.items()
            for each in self._placed(space, [*own, *self._versions(space)])
        ]

    def _versions(self, space: str) -> Iterator[_Missing]:
        """Yield replacements for versions of memories that are lost before another version."""
        latest: dict[str, tuple[int, int]] = {}
        for line, where in self.lines(space):
            if not line.get("memory"):
                continue
            version, position = latest.get(line["memory"], (0, 0))
            latest[line["memory"]] = (line["version"], line["position"])
            for lost in range(version + 1, min(line["version"], version + MAX_LOST)):
                beside = _read(self._spaces[space][position]) if version else line
                record = markdown_log.lost_version_record(beside, lost, line["recorded_at"])
                scope = Scope(space, line["user"])
                yield position, line["position"], ReplayRecord(scope, record, where)

    def _lives(self) -> dict[tuple[Scope, str], _SessionEntries]:
        lives: dict[tuple[Scope, str], _SessionEntries] = {}
        for line, _ in self.lines():
            if line.get("session") is not None:
                scope = Scope(line["space"], line["user"])
                lives.setdefault((scope, line["session"]), _SessionEntries()).live(line)
        return lives

    def _placed(self, space: str, wanted: Iterable[_Missing]) -> Iterator[ReplayRecord]:
        """Assign a free position to each missing entry, in the order of their deadlines."""
        # The numbers, which differ, decide between equal positions.
        coming = deque(sorted((each[0], number, *each[1:]) for number, each in enumerate(wanted)))
        waiting: list[tuple[int, int, ReplayRecord]] = []
        taken, position = sorted(self._spaces.get(space, ())), 0
        while coming or waiting:
            position = _next_free(taken, position if waiting else coming[0][0], position)
            while coming and coming[0][0] < position:
                _, number, before, missing = coming.popleft()
                heappush(waiting, (before, number, missing))
            while waiting and waiting[0][0] <= position:
                lost = heappop(waiting)[2]
                self._report(f"{lost.where}: what the log has lost has no place in it any more")
            if waiting:
                yield heappop(waiting)[2]._replace(position=position)


class _SessionEntries:
    """The entries of one session that the log still has."""

    def __init__(self) -> None:
        self.events: dict[int, int] = {}
        self.returns: list[tuple[int, int, int]] = []
        self._hidden: int | None = None

    def live(self, line: LogLine) -> None:
        op, position = line["op"], line["position"]
        if op == "append":
            if self._hidden is not None and line["body"] is not None:
                self.returns.append((self._hidden, position, line["recorded_at"]))
            self.events[line["sequence"]] = position
        if op == "hide":
            self._hidden = position
        elif op in {"restore", "append"} or line["sequence"] is None:
            self._hidden = None

    def around(self, sequence: int) -> tuple[int, int]:
        """Return the positions between which an event belongs, outside of hidden periods."""
        before = [self.events[each] for each in self.events if each < sequence]
        behind = [self.events[each] for each in self.events if each > sequence]
        last = MAX_POSITION if self._hidden is None else self._hidden
        return max(before, default=0), min(behind, default=last)


def _next_free(taken: Sequence[int], *positions: int) -> int:
    """Return the first position after these that no entry has."""
    free = max(positions) + 1
    at = bisect_left(taken, free)
    while at < len(taken) and taken[at] == free:
        free, at = free + 1, at + 1
    return free


def problem(line: LogLine) -> str | None:
    """Return why a line is not an entry, or None."""
    try:
        record_schema.parse_record(line)
    except (ReverieError, KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        return f"no entry of a log ({one_line(why)})"
    return None if 0 < line["position"] < MAX_POSITION else "its position is none"


def _read(spot: _LineLocation) -> LogLine:
    with spot.path.open("rb") as file:
        file.seek(spot.offset)
        line = log_file.decode_line(file.readline())
    assert line is not None
    return line
