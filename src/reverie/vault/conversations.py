"""Conversations as files: what was said, in parts that one can open, and the summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reverie.engine import log, sessions
from reverie.engine.log import Entry
from reverie.memory import states
from reverie.memory.resources import Resources
from reverie.model import Event, Origin, Scope
from reverie.protocols import Owner
from reverie.vault import disk, layout, rendering
from reverie.vault.disk import Stamp
from reverie.vault.files import File
from reverie.vault.vault import Vault

_NEW = Stamp(0, 0, 0)

Edited = Callable[[File], None]


class Part(NamedTuple):
    """One file of turns: its number, what it says, and the last event it holds."""

    number: int
    raw: bytes
    last: int


def grown(
    session: str, raw: bytes, number: int, events: Sequence[Event], forked: Origin | None
) -> list[Part]:
    """The last part with these events behind it, and the parts that begin with them."""
    parts, last = list[Part](), 0
    for event in events:
        block = rendering.turn_block(event)
        if raw and len(raw) + len(block) > layout.PART_BYTES:
            parts.append(Part(number, raw, last))
            number, raw = number + 1, b""
        if not raw:
            begun = None if forked is None or number > 1 else f"{forked.session}:{forked.sequence}"
            raw = rendering.turns_head(session, begun, event.at)
        raw, last = raw + block, event.sequence
    return [part for part in (*parts, Part(number, raw, last)) if part.last]


def apart_path(scope: Scope, session: str, event: Event) -> str:
    """Where an event stands that has a file of its own."""
    role = re.sub(r"[^a-z0-9_-]", "_", event.role.lower())[:40] or "_"
    time = re.sub(r"[^0-9T]", "", rendering.when(event.at)[:23])
    folder = layout.session_folder(scope, session)
    return f"{folder}/{layout.TURNS}/{role}/{time}__{event.sequence:06d}.md"


class Conversations:
    """The sessions of a vault, whose lock the caller holds."""

    def __init__(self, vault: Vault, resources: Resources, edited: Edited) -> None:
        self._vault = vault
        self._resources = resources
        self._edited = edited

    def follow(self, owner: Owner, scope: Scope, session: str, told: Sequence[Entry]) -> None:
        """Let the files of a session say what these entries do."""
        self._vault.know_names(scope, session)
        if any(entry.op == "erase" or entry.body is None for entry in told if entry.op != "hide"):
            self.write_anew(owner, scope, session)
            return
        appended = [entry for entry in told if entry.op == "append"]
        if appended:
            events = [sessions.event_of(entry, scope.user) for entry in appended]
            self._add(owner, scope, session, events, appended[0].origin)
            # One that was written before the store had a vault.
            self.write_summary(owner, scope, session)
        self._place(owner, scope, session)

    def write_anew(self, owner: Owner, scope: Scope, session: str) -> None:
        """All turns of a session; nothing is left of one that was erased."""
        vault = self._vault
        for file in vault.files.of(scope, "turns", session):
            vault.remove(file)
        with self._resources.engine.read() as tx:
            tx.enter(owner)
            known = sessions.find(tx, owner, session)
            entries = log.of_session(tx, owner, session)
        events = [
            sessions.event_of(entry, scope.user)
            for entry in entries
            if entry.op == "append" and entry.body is not None
        ]
        if known is not None and events:
            self._add(owner, scope, session, events, known.forked_from)
        self.write_summary(owner, scope, session)
        self._place(owner, scope, session)

    def write_summary(self, owner: Owner, scope: Scope, session: str) -> None:
        vault = self._vault
        known = vault.files.of(scope, "summary", session)
        with self._resources.engine.read() as tx:
            tx.enter(owner)
            summary = states.read_summary(tx, owner, session)
            found = sessions.find(tx, owner, session)
        if found is None or not summary.text:
            for file in known:
                vault.remove(file)
            return
        if known and known[0].version == summary.epoch and vault.as_we_left_it(known[0]):
            return
        if known and not vault.as_we_left_it(known[0]):
            self._edited(known[0])
        path = known[0].path if known else layout.summary_path(scope, session)
        raw = rendering.summary_file(session, summary, found.updated_at)
        new = File(path, "summary", scope, session, summary.epoch, "", _NEW)
        vault.write(new, raw, f"summary of {session}")
        self._place(owner, scope, session)

    def _place(self, owner: Owner, scope: Scope, session: str) -> None:
        """Among what was forgotten while it is hidden."""
        with self._resources.engine.read() as tx:
            tx.enter(owner)
            known = sessions.find(tx, owner, session)
        hidden = known is not None and known.hidden_at is not None
        turn = layout.in_deleted if hidden else layout.out_of_deleted
        for what in ("turns", "summary"):
            for file in self._vault.files.of(scope, what, session):
                there = turn(scope, file.path)
                if there != file.path and disk.stamp(self._vault.path(file.path)) is not None:
                    self._vault.move(file, there)

    # -- turns --------------------------------------------------------------------------------

    def _add(
        self,
        owner: Owner,
        scope: Scope,
        session: str,
        events: Sequence[Event],
        forked: Origin | None,
    ) -> None:
        line = f"{session}: {len(events)} said" if len(events) > 1 else f"{session}: 1 said"
        if self._vault.wishes.turns == "apart":
            self._add_apart(scope, session, events, line)
            return
        parts = self._parts(scope, session)
        newest = parts[-1] if parts else None
        if newest is not None and not self._vault.as_we_left_it(newest):
            self._edited(newest)
            self._vault.files.drop(newest.path)
            self.write_anew(owner, scope, session)
            return
        new = [event for event in events if newest is None or event.sequence > newest.version]
        raw = b"" if newest is None else disk.read(self._vault.path(newest.path))
        for part in grown(session, raw, len(parts) or 1, new, forked):
            path = layout.turns_path(scope, session, part.number)
            if newest is not None:
                above = newest.path.rpartition("/")[0]
                path = f"{above}/{path.rpartition('/')[2]}"
            file = File(path, "turns", scope, session, part.last, "", _NEW)
            self._vault.write(file, part.raw, line)

    def _parts(self, scope: Scope, session: str) -> list[File]:
        files = self._vault.files.of(scope, "turns", session)
        return sorted(files, key=lambda file: file.version)

    def _add_apart(self, scope: Scope, session: str, events: Sequence[Event], line: str) -> None:
        known = {file.version for file in self._vault.files.of(scope, "turns", session)}
        for event in events:
            if event.sequence in known:
                continue
            path = apart_path(scope, session, event)
            file = File(path, "turns", scope, session, event.sequence, "", _NEW)
            self._vault.write(file, rendering.turn_file(event, session), line)
            line = ""
