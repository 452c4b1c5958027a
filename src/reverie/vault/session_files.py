"""Write sessions to files: their turns, in parts of limited size, and the summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reverie.engine import log, sessions
from reverie.engine.log import LogEntry
from reverie.model import Event, Origin, Scope
from reverie.protocols import Owner
from reverie.vault import disk, layout, render
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.vault import Vault
from reverie.write import session_state
from reverie.write.runtime import Runtime

_NEW = FileStamp(0, 0, 0)
MAX_EVENTS = 1_000_000_000

OnEdited = Callable[[VaultFile], None]


class TurnsPart(NamedTuple):
    """One file of turns: its number, its content, and the last sequence in it."""

    number: int
    raw: bytes
    last: int


def append_events(
    session: str, raw: bytes, number: int, events: Sequence[Event], forked: Origin | None
) -> list[TurnsPart]:
    """Return the last part with these events appended, and new parts as needed, sealed.

    ``raw`` is the content of the last part without its seal.
    """
    parts, last = list[TurnsPart](), 0
    for event in events:
        block = render.event_block(event)
        if raw and len(raw) + len(block) > layout.PART_BYTES:
            parts.append(TurnsPart(number, render.add_seal(raw), last))
            number, raw = number + 1, b""
        if not raw:
            begun = None if forked is None or number > 1 else f"{forked.session}:{forked.sequence}"
            raw = render.turns_head(session, begun, event.at)
        raw, last = raw + block, event.sequence
    return [*parts, TurnsPart(number, render.add_seal(raw), last)] if last else []


def event_path(scope: Scope, session: str, event: Event) -> str:
    """Return the path of an event that has a file of its own."""
    role = re.sub(r"[^a-z0-9_-]", "_", event.role.lower())[:40] or "_"
    time = re.sub(r"[^0-9T]", "", render.format_time(event.at)[:23])
    folder = layout.session_folder(scope, session)
    return f"{folder}/{layout.TURNS}/{role}/{time}__{event.sequence:06d}.md"


class SessionFiles:
    """Writes the files of sessions. The caller must hold the lock of the vault."""

    def __init__(self, vault: Vault, runtime: Runtime, edited: OnEdited) -> None:
        self._vault = vault
        self._runtime = runtime
        self._edited = edited

    def apply_entries(
        self, owner: Owner, scope: Scope, session: str, told: Sequence[LogEntry]
    ) -> None:
        """Update the files of a session for these log entries."""
        self._vault.record_names(scope, session)
        if any(entry.op == "erase" or entry.body is None for entry in told if _says(entry)):
            self.rewrite(owner, scope, session, erased=True)
            return
        # Also where it was only hidden: somebody may have done that by deleting its files.
        self._add(owner, scope, session)
        # One that was written before the store had a vault.
        self.write_summary(owner, scope, session)
        self._place(owner, scope, session)

    def complete(self, owner: Owner, scope: Scope, known: sessions.SessionRow) -> None:
        """Write the missing files of a session."""
        self._vault.record_names(scope, known.session)
        parts = self._parts(scope, known.session)
        reached = parts[-1].version if parts else 0
        if self._vault.config.turns == "apart":
            whole = len(parts) == known.events
        else:
            whole = [_number(part) for part in parts] == list(range(1, len(parts) + 1))
        if not whole:
            self.rewrite(owner, scope, known.session)
        elif reached < known.last_sequence:
            self._add(owner, scope, known.session)
        self.write_summary(owner, scope, known.session)
        self._place(owner, scope, known.session)

    def rewrite(self, owner: Owner, scope: Scope, session: str, *, erased: bool = False) -> None:
        """Write all turns of a session again; with ``erased``, also remove edited files."""
        vault = self._vault
        for file in vault.files.of(scope, "turns", session):
            if not erased and not vault.unchanged_since_write(file):
                self._edited(file)
            if erased or vault.is_gone(file) or vault.unchanged_since_write(file):
                vault.remove(file)
        for file in vault.files.of(scope, "conflict", conflict_name(session)) if erased else ():
            vault.remove(file)
        self._add(owner, scope, session)
        self.write_summary(owner, scope, session)
        self._place(owner, scope, session)

    def holds(
        self, owner: Owner, scope: Scope, session: str, told: Sequence[tuple[int, str]]
    ) -> bool:
        """Whether the store has these events with the same texts; an erased one has any text."""
        first, last = min(told)[0], max(told)[0]
        if last > MAX_EVENTS:
            return False
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            entries = log.session_appends(tx, owner, session, first, last - first + 1)
        said = {entry.sequence: entry for entry in entries}
        for sequence, text in told:
            entry = said.get(sequence)
            if entry is None:
                return False
            if entry.body is not None:
                event = sessions.event_from_entry(entry, scope.user)
                if render.replace_surrogates(event.text) != text:
                    return False
        return True

    def _events(self, owner: Owner, scope: Scope, session: str, after: int) -> list[Event]:
        """Return the events after a sequence."""
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            entries = log.session_appends(tx, owner, session, after + 1, MAX_EVENTS)
        return [
            sessions.event_from_entry(each, scope.user) for each in entries if each.body is not None
        ]

    def write_summary(self, owner: Owner, scope: Scope, session: str) -> None:
        vault = self._vault
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            summary = session_state.read_summary(tx, owner, session)
            found = sessions.find(tx, owner, session)
            last = sessions.find_event_entry(tx, owner, Origin(session, summary.upper))
        known = vault.files.of(scope, "summary", session)
        if found is None or not summary.text:
            for file in known:
                vault.remove(file)
            return
        if known and not vault.unchanged_since_write(known[0]):
            self._edited(known[0])
            known = vault.files.of(scope, "summary", session)
        if known and vault.files.is_held(known[0].path):
            # It was deleted with its conversation, and the person is asked whether they meant it.
            return
        if known and known[0].version == summary.epoch and vault.unchanged_since_write(known[0]):
            return
        path = known[0].path if known else self._free(layout.summary_path(scope, session), scope)
        at = found.updated_at if last is None or last.body is None else last.body["at"]
        raw = render.summary_file(session, summary, at)
        new = VaultFile(path, "summary", scope, session, summary.epoch, "", _NEW)
        vault.write(new, raw, f"summary of {session}")
        self._place(owner, scope, session)

    def stale_summaries(self, owner: Owner, scope: Scope) -> list[VaultFile]:
        """Return the files of summaries that the store no longer has."""
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            return [
                file
                for file in self._vault.files.list_type(scope, "summary")
                if session_state.read_summary(tx, owner, file.name).epoch != file.version
            ]

    def _place(self, owner: Owner, scope: Scope, session: str) -> None:
        """Move the files of a hidden session into ``deleted/``, and those of others out of it."""
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            known = sessions.find(tx, owner, session)
        hidden = known is not None and known.hidden_at is not None
        turn = layout.to_deleted_path if hidden else layout.from_deleted_path
        for what in ("turns", "summary"):
            for file in self._vault.files.of(scope, what, session):
                there = turn(scope, file.path)
                if there == file.path:
                    continue
                if not self._vault.unchanged_since_write(file):
                    self._edited(file)
                if self._vault.unchanged_since_write(file):
                    self._free(there, scope)
                    self._vault.move(file, there)

    def _free(self, path: str, scope: Scope) -> str:
        """Make a path free where a person may have put a file; UnusablePath if that fails."""
        if not self._is_free(path):
            known = self._vault.files.get(path)
            self._edited(known or VaultFile(path, "", scope, "", 0, "", _NEW))
            if not self._is_free(path):
                raise disk.UnusablePath("something else is there: move it away")
        return path

    def _is_free(self, path: str) -> bool:
        known = self._vault.files.get(path)
        gone = self._vault.stamp(path) is None
        return gone or (known is not None and self._vault.unchanged_since_write(known))

    # -- turns --------------------------------------------------------------------------------

    def _add(self, owner: Owner, scope: Scope, session: str) -> None:
        """Append the new events to the last part, or write all parts if there is none."""
        if self._vault.config.turns == "apart":
            self._add_apart(owner, scope, session)
            return
        newest = next(reversed(self._parts(scope, session)), None)
        if newest is not None and not self._vault.unchanged_since_write(newest):
            self._edited(newest)
            newest = next(reversed(self._parts(scope, session)), None)
        raw = None if newest is None else self._plain(newest)
        reached = 0 if newest is None or raw is None else newest.version
        number = 1 if newest is None or raw is None else _number(newest)
        events = self._events(owner, scope, session, reached)
        if not events:
            return
        forked, line = self._forked(owner, session), f"{session}: {len(events)} said"
        for part in append_events(session, raw or b"", number, events, forked):
            path = layout.turns_path(scope, session, part.number)
            if newest is not None:
                above = newest.path.rpartition("/")[0]
                path = f"{above}/{path.rpartition('/')[2]}"
            file = VaultFile(self._free(path, scope), "turns", scope, session, part.last, "", _NEW)
            self._vault.write(file, part.raw, line)

    def _plain(self, file: VaultFile) -> bytes | None:
        try:
            return render.strip_seal(disk.read(self._vault.path(file.path)))
        except disk.UnreadableFile:
            return None

    def _forked(self, owner: Owner, session: str) -> Origin | None:
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            known = sessions.find(tx, owner, session)
        return None if known is None else known.forked_from

    def _parts(self, scope: Scope, session: str) -> list[VaultFile]:
        files = self._vault.files.of(scope, "turns", session)
        return sorted(files, key=lambda file: file.version)

    def _add_apart(self, owner: Owner, scope: Scope, session: str) -> None:
        known = {file.version: file for file in self._vault.files.of(scope, "turns", session)}
        # One may be missing in the middle only where somebody looks at all of them.
        last = max((at for at, file in known.items() if not self._vault.is_gone(file)), default=0)
        whole = len(known) >= self._count(owner, session, last)
        events = self._events(owner, scope, session, last if whole else 0)
        line = f"{session}: {len(events)} said"
        for event in events:
            if event.sequence in known and self._vault.unchanged_since_write(known[event.sequence]):
                continue
            path = event_path(scope, session, event)
            file = VaultFile(
                self._free(path, scope), "turns", scope, session, event.sequence, "", _NEW
            )
            raw = render.turn_file(event, session)
            self._vault.write(file, raw, line)
            line = ""

    def _count(self, owner: Owner, session: str, upto: int) -> int:
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            return len(sessions.list_events(tx, owner, [sessions.EventRange(session, 0, upto)]))


def conflict_name(session: str) -> str:
    """Return the cache name of a session's conflict copies, which is never a memory's id."""
    return f"session {session}"


def _says(entry: LogEntry) -> bool:
    """Hiding and restoring say nothing, and have no body."""
    return entry.op not in {"hide", "restore"}


def _number(file: VaultFile) -> int:
    """Return the number of the part of a session that a file holds."""
    found = re.search(r"-(\d+)\.md\Z", file.path.rpartition("/")[2])
    return 1 if found is None else int(found[1])
