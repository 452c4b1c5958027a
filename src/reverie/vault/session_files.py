"""Write sessions to files: their turns, in parts of limited size, and the summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from reverie.engine import log, sessions
from reverie.model import Event, Origin, Scope, Summary
from reverie.protocols import Owner
from reverie.vault import disk, layout, names, render
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.plan import part_number
from reverie.vault.plan_edits import switch_line
from reverie.vault.vault import Vault
from reverie.write import session_state
from reverie.write.runtime import Runtime

_NEW = FileStamp(0, 0, 0)
MAX_EVENTS = 1_000_000_000


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


def turns_name(part: int) -> str:
    """Return the name of a file of turns."""
    return f"{names.numbered(layout.TURNS, part)}.md"


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
                if self._vault.is_gone(file) or self._is_ours(file):
                    self._vault.remove(file)
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            known = sessions.find(tx, owner, session)
            summary = session_state.read_summary(tx, owner, session)
            last = sessions.find_event_entry(tx, owner, Origin(session, summary.upper))
        if self._vault.config.turns == "apart":
            self._add_apart(owner, scope, session, known)
        else:
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

    def _events(self, owner: Owner, scope: Scope, session: str, after: int) -> list[Event]:
        """Return the events after a sequence."""
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            entries = log.session_appends(tx, owner, session, after + 1, MAX_EVENTS)
        return [
            sessions.event_from_entry(each, scope.user) for each in entries if each.body is not None
        ]

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
        """Append the new events to the last part, or write all parts if there is none."""
        files = sorted(self._vault.files.of(scope, "turns", session), key=lambda file: file.version)
        newest = files[-1] if files else None
        raw = None if newest is None else self._plain(newest)
        reached = 0 if newest is None or raw is None else newest.version
        number = 1 if newest is None or raw is None else part_number(newest)
        events = self._events(owner, scope, session, reached)
        if not events:
            return
        forked = None if known is None else known.forked_from
        line = _line(session, events, known)
        above = self._folder(scope, session, events[0].at)
        if newest is not None:
            above = newest.path.rpartition("/")[0]
        for part in append_events(session, raw or b"", number, events, forked):
            path = f"{above}/{turns_name(part.number)}"
            self._put(VaultFile(path, "turns", scope, session, part.last, "", _NEW), part.raw, line)

    def _plain(self, file: VaultFile) -> bytes | None:
        try:
            return render.strip_seal(disk.read(self._vault.path(file.path)))
        except disk.UnreadableFile:
            return None

    def _add_apart(
        self, owner: Owner, scope: Scope, session: str, known: sessions.SessionRow | None
    ) -> None:
        """Write the events that have no file of their own."""
        shown = {file.version for file in self._vault.files.of(scope, "turns", session)}
        events = [
            event for event in self._events(owner, scope, session, 0) if event.sequence not in shown
        ]
        line = _line(session, events, known)
        for event in events:
            path = event_path(self._folder(scope, session, events[0].at), event)
            file = VaultFile(path, "turns", scope, session, event.sequence, "", _NEW)
            self._put(file, render.turn_file(event, session), line)
            line = ""

    def _put(self, file: VaultFile, raw: bytes, line: str) -> None:
        """Write a file; UnusablePath when a person has put another file there."""
        known = self._vault.files.get(file.path)
        gone = self._vault.stamp(file.path) is None
        if not gone and (known is None or not self._is_ours(known)):
            raise disk.UnusablePath("something else stands there: move it away")
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
        usuals = {usual, layout.to_deleted_path(usual)}
        # A person may have copied the folder of a session: the copy's summary goes.
        known = sorted(known, key=lambda file: file.path not in usuals)
        for extra in known[1:]:
            if self._is_ours(extra):
                vault.remove(extra)
        if known and vault.files.is_held(known[0].path):
            # It was deleted with its conversation, and the person is asked whether they meant it.
            return
        if known and known[0].version == summary.epoch and self._is_ours(known[0]):
            return
        path = known[0].path if known else usual
        new = VaultFile(path, "summary", scope, session, summary.epoch, "", _NEW)
        self._put(new, render.summary_file(session, summary, at), f"summary of {session}")

    def _place(self, scope: Scope, session: str, *, hidden: bool) -> None:
        """Move the files of a hidden session into ``deleted/``, and those of others out of it."""
        turn = layout.to_deleted_path if hidden else layout.from_deleted_path
        for what in ("turns", "summary"):
            for file in self._vault.files.of(scope, what, session):
                there = turn(file.path)
                if there == file.path or not self._is_ours(file):
                    continue
                if self._vault.stamp(there) is not None:
                    other = self._vault.files.get(there)
                    if other is None or other.name != session or not self._is_ours(other):
                        raise disk.UnusablePath("something else stands there: move it away")
                    self._vault.remove(other)
                self._vault.move(file, there, switch_line(session, hidden=hidden))


def _line(session: str, events: Sequence[Event], known: sessions.SessionRow | None) -> str:
    """Return the line for the commit message; that of a hidden session says that it is hidden."""
    hidden = known is not None and known.hidden_at is not None
    return "" if hidden else f"{session}: {len(events)} said"
