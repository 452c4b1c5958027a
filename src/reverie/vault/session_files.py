"""Write sessions to files: their turns, in parts of limited size, and the summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from reverie.engine import log, sessions
from reverie.engine.log import LogEntry
from reverie.model import Event, Origin, Scope, Summary
from reverie.protocols import Owner
from reverie.vault import disk, layout, names, render
from reverie.vault.file_cache import VaultFile
from reverie.vault.plan import part_number
from reverie.vault.plan_edits import switch_line
from reverie.vault.vault import Vault
from reverie.write import session_state
from reverie.write.runtime import Runtime

MAX_EVENTS = 1_000_000_000


class TurnsPart(NamedTuple):
    """One file of turns: its path, its content, and the last sequence in it."""

    path: str
    raw: bytes
    last: int


def append_events(
    folder: str,
    session: str,
    raw: bytes,
    number: int,
    events: Sequence[Event],
    forked: Origin | None,
) -> list[TurnsPart]:
    """Return the last part with these events appended, and new parts as needed, sealed.

    ``raw`` is the content of the last part without its seal, ``number`` its number.
    """
    parts, last = list[TurnsPart](), 0

    def end_part() -> None:
        path = f"{folder}/{names.numbered(layout.TURNS, number)}.md"
        parts.append(TurnsPart(path, render.add_seal(raw), last))

    for event in events:
        block = render.event_block(event)
        if raw and len(raw) + len(block) > layout.PART_BYTES:
            end_part()
            number, raw = number + 1, b""
        if not raw:
            begun = None if forked is None or number > 1 else f"{forked.session}:{forked.sequence}"
            raw = render.turns_head(session, begun, event.at)
        raw, last = raw + block, event.sequence
    end_part()
    return parts


def event_path(folder: str, event: Event) -> str:
    """Return the path of an event that has a file of its own in the folder of its session."""
    role = re.sub(r"[^a-z0-9_-]", "_", event.role.lower())[:40] or "_"
    time = re.sub(r"[^0-9T]", "", render.format_time(event.at)[:23])
    return f"{folder}/{layout.TURNS}/{role}/{time}__{event.sequence:06d}.md"


class SessionFiles:
    """Writes the files of sessions. The caller must hold the lock of the vault."""

    def __init__(self, vault: Vault, runtime: Runtime) -> None:
        self._vault = vault
        self._runtime = runtime

    def write(
        self, owner: Owner, scope: Scope, session: str, how: Literal["append", "rewrite", "erase"]
    ) -> None:
        """Bring the files of a session up to date; see ``actions.WriteSession``."""
        files = self._vault.files
        self._vault.assign_owner(scope)
        if how == "erase":
            self._erase(scope, session)
        elif how == "rewrite":
            for file in files.of(scope, "turns", session):
                if self._vault.is_missing(file.path) or self._is_ours(file):
                    self._vault.remove(file)
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            known = sessions.find(tx, owner, session)
            summary = session_state.read_summary(tx, owner, session)
            last = sessions.find_event_entry(tx, owner, Origin(session, summary.upper))
        self._add(owner, scope, session, known)
        at = 0 if known is None else known.updated_at
        at = at if last is None or last.body is None else last.body["at"]
        self._write_summary(scope, session, None if known is None else summary, at)
        self._place(scope, session, hidden=known is not None and known.hidden_at is not None)

    def _erase(self, scope: Scope, session: str) -> None:
        """Remove all files of a session; one that cannot be removed does not keep the others."""
        files, failed = self._vault.files, list[disk.UnusablePath]()
        for what in ("summary", "turns"):
            for file in files.of(scope, what, session):
                try:
                    self._vault.remove(file)
                except disk.UnusablePath as error:
                    failed.append(error)
        if failed:
            raise failed[0]

    def _is_ours(self, file: VaultFile) -> bool:
        return self._vault.unchanged_since_write(file)

    def _entries(self, owner: Owner, session: str, after: int) -> list[LogEntry]:
        """Return the entries of the events after a sequence that were not erased."""
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            entries = log.session_appends(tx, owner, session, after + 1, MAX_EVENTS)
        return [each for each in entries if each.body is not None]

    def _folder(self, scope: Scope, session: str, at: int) -> str:
        """Return the folder of a session: where its files are, or else that of the month."""
        for what in ("turns", "summary"):
            for file in self._vault.files.of(scope, what, session):
                if (folder := layout.session_folder(file.path)) is not None:
                    return folder
        return self._vault.assign_session(scope, session, at)

    # -- turns --------------------------------------------------------------------------------

    def _add(
        self, owner: Owner, scope: Scope, session: str, known: sessions.SessionRow | None
    ) -> None:
        """Append the new events to the last file, or write all files if there is none."""
        files, apart = self._vault.files, self._vault.config.turns == "apart"
        newest = max(files.of(scope, "turns", session), key=lambda each: each.version, default=None)
        reached, number, raw = 0, 1, b""
        if newest is not None and apart:
            reached = newest.version
        elif newest is not None and (plain := self._plain(newest)) is not None:
            reached, number, raw = newest.version, part_number(newest), plain
        entries = self._entries(owner, session, reached)
        if not entries:
            return
        events = [sessions.event_from_entry(each, scope.user) for each in entries]
        folder = self._folder(scope, session, events[0].at)
        if apart:
            parts = [
                TurnsPart(event_path(folder, each), render.turn_file(each, session), each.sequence)
                for each in events
            ]
        else:
            folder = folder if newest is None else newest.path.rpartition("/")[0]
            forked = None if known is None else known.forked_from
            parts = append_events(folder, session, raw, number, events, forked)
        # The others were shown before, in files that are written again.
        shown = files.mark(scope)[0]
        line = _line(session, sum(each.position > shown for each in entries), known)
        for part in parts:
            self._put(VaultFile(part.path, "turns", scope, session, part.last), part.raw, line)

    def _plain(self, file: VaultFile) -> bytes | None:
        try:
            return render.strip_seal(disk.read(self._vault.path(file.path)))
        except disk.UnreadableFile:
            return None

    def _put(self, file: VaultFile, raw: bytes, line: str) -> None:
        """Write a file; UnusablePath when a person has put another file there."""
        known = self._vault.files.get(file.path)
        gone = self._vault.stamp(file.path) is None
        if not gone and (known is None or not self._is_ours(known)):
            raise disk.UnusablePath("another file is at this path: move it away")
        self._vault.write(file, raw, line)

    # -- the summary, and the folder ----------------------------------------------------------

    def _write_summary(self, scope: Scope, session: str, summary: Summary | None, at: int) -> None:
        vault = self._vault
        known = vault.files.of(scope, "summary", session)
        if summary is None or not summary.text:
            for file in known:
                vault.remove(file)
            return
        usual = f"{self._folder(scope, session, at)}/{layout.SUMMARIES}/{layout.SUMMARY}"
        usuals = {usual, layout.relocate(usual, deleted=True)}
        # A person may have copied the folder of a session: the copy's summary goes.
        known = sorted(known, key=lambda file: file.path not in usuals)
        for extra in known[1:]:
            if self._is_ours(extra):
                vault.remove(extra)
        if known and known[0].held:
            # It was deleted with its conversation, and the person is asked whether they meant it.
            return
        if known and known[0].version == summary.epoch and self._is_ours(known[0]):
            return
        path = known[0].path if known else usual
        new = VaultFile(path, "summary", scope, session, summary.epoch)
        self._put(new, render.summary_file(session, summary, at), f"summary of {session}")

    def _place(self, scope: Scope, session: str, *, hidden: bool) -> None:
        """Move the files of a hidden session into ``deleted/``, and those of others out of it."""
        for what in ("turns", "summary"):
            for file in self._vault.files.of(scope, what, session):
                there = layout.relocate(file.path, deleted=hidden)
                if there == file.path or not self._is_ours(file):
                    continue
                if self._vault.stamp(there) is not None:
                    other = self._vault.files.get(there)
                    if other is None or other.name != session or not self._is_ours(other):
                        raise disk.UnusablePath("another file is at this path: move it away")
                    self._vault.remove(other)
                self._vault.move(file, there, switch_line(session, hidden=hidden))


def _line(session: str, new: int, known: sessions.SessionRow | None) -> str:
    """Return the line for the commit message; that of a hidden session says that it is hidden."""
    hidden = known is not None and known.hidden_at is not None
    return "" if hidden or not new else f"{session}: {new} said"
