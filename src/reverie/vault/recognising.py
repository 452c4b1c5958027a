"""Files that we wrote, known again as ours where what is kept about them is lost.

A file that says byte for byte what we would write is ours, and nobody has changed it. All others
are left to a sync, which takes them for a person's.
"""

from __future__ import annotations

from collections.abc import Iterable

from reverie.engine import index, log, sessions
from reverie.errors import ReverieError
from reverie.memory import states, upkeep
from reverie.memory.store import Store
from reverie.model import Event, Memory, Scope
from reverie.protocols import Owner, Transaction
from reverie.text import frontmatter
from reverie.vault import conversations, disk, layout, rendering, telling
from reverie.vault.files import File
from reverie.vault.mirroring import Mirror
from reverie.vault.syncing import ACTOR, MOVED
from reverie.vault.telling import Seen
from reverie.vault.vault import Vault


class Recogniser:
    """Looks at files with the eyes of a store. The caller holds the lock of the vault."""

    def __init__(self, vault: Vault, store: Store) -> None:
        self._vault = vault
        self._store = store
        self._engine = store._resources.engine

    def recognise(self, files: Iterable[Seen]) -> None:
        """Remember of each file that is ours how we left it."""
        turns: dict[tuple[Scope, str], list[Seen]] = {}
        with self._vault.files.together():
            for seen in files:
                if self._vault.files.at(seen.path) is not None:
                    continue
                what, session = seen.place.what, seen.place.session
                if what == "turns" and session is not None:
                    turns.setdefault((seen.place.scope, session), []).append(seen)
                elif what == "memory":
                    self._memory(seen)
                elif what == "summary":
                    self._summary(seen)
                elif what == "index":
                    self._keep(seen, "", 0)
                else:
                    named = frontmatter.load(seen.raw).text("conflict_of")
                    self._keep(seen, named or session or "", 0)
            for (scope, session), parts in turns.items():
                self._turns(scope, session, parts)

    def _keep(self, seen: Seen, name: str, version: int) -> None:
        stamp = disk.stamp(self._vault.path(seen.path))
        if stamp is not None:
            digest = disk.digest(seen.raw)
            scope, what = seen.place.scope, seen.place.what
            self._vault.files.put(File(seen.path, what, scope, name, version, digest, stamp))

    def _memory(self, seen: Seen) -> None:
        scope = seen.place.scope
        id = telling.memory_id(frontmatter.load(seen.raw))
        if id is None or self._vault.files.of(scope, "memory", id):
            return
        with self._engine.read() as tx:
            owner = log.find(tx, scope)
            memory = None if owner is None else current(tx, owner, scope, id)
        if memory is None or (memory.forgotten_at is not None) != seen.place.deleted:
            return
        try:
            same = rendering.memory_file(memory, seen.raw) == seen.raw
        except ReverieError:
            return
        if same:
            self._keep(seen, id, memory.version)

    def _summary(self, seen: Seen) -> None:
        session = seen.place.session
        if session is None or not seen.path.endswith(f"/{layout.SUMMARY}"):
            return
        try:
            told = telling.summary_of(seen)
        except ReverieError:
            return
        with self._engine.read() as tx:
            owner = log.find(tx, seen.place.scope)
            known = None if owner is None else states.read_summary(tx, owner, session)
        if told is not None and told == known:
            self._keep(seen, session, told.epoch)

    def _turns(self, scope: Scope, session: str, parts: list[Seen]) -> None:
        with self._engine.read() as tx:
            owner = log.find(tx, scope)
            known = None if owner is None else sessions.find(tx, owner, session)
            entries = [] if owner is None else log.of_session(tx, owner, session)
        if known is None:
            return
        events = [
            sessions.event_of(entry, scope.user)
            for entry in entries
            if entry.op == "append" and entry.body is not None
        ]
        ours = self._as_written(session, events, known)
        for seen in parts:
            last = ours.get(seen.raw)
            if last is not None:
                self._keep(seen, session, last)
        hidden = known.hidden_at is not None
        if all(seen.place.deleted != hidden for seen in parts) and events:
            # Where a conversation stands says whether it is hidden, and nobody else says more.
            handle = self._store.space(scope.space, user=scope.user, actor=ACTOR).session(session)
            handle.restore() if hidden else handle.hide(reason=MOVED)

    def _as_written(
        self, session: str, events: list[Event], known: sessions.Session
    ) -> dict[bytes, int]:
        """The files of a session as we would write them, with the last event of each."""
        if self._vault.wishes.turns == "apart":
            return {rendering.turn_file(each, session): each.sequence for each in events}
        grown = conversations.grown(session, b"", 1, events, known.forked_from)
        return {part.raw: part.last for part in grown}

    # -- what has no file ---------------------------------------------------------------------

    def complete(self, mirror: Mirror) -> list[str]:
        """Write what the store holds and no file shows; a line for each."""
        written = []
        with self._engine.read() as tx:
            tx.oversee()
            owners = [(owner, log.scope_of(tx, owner)) for owner in upkeep.all_owners(tx)]
        for owner, scope in owners:
            if not self._vault.wishes.shows(scope.space):
                continue
            with self._engine.read() as tx:
                tx.enter(owner)
                every = index.Filter(include_forgotten=True, sessions=None)
                ids = [place.memory for place in index.places(tx, owner, every)]
                talks = [each.session for each in sessions.every(tx, owner) if each.events]
            shown = {file.name for file in self._vault.files.of_owner(scope, "memory")}
            for id in (each for each in ids if each not in shown):
                with self._engine.read() as tx:
                    tx.enter(owner)
                    memory = current(tx, owner, scope, id)
                if memory is not None:
                    mirror.write_memory(scope, id, memory, "remember")
                    written.append(f"{layout.owner_folder(scope)}: memory {id} had no file")
            told = {file.name for file in self._vault.files.of_owner(scope, "turns")}
            for session in (each for each in talks if each not in told):
                mirror.conversations.write_anew(owner, scope, session)
                written.append(f"{layout.owner_folder(scope)}: session {session} had no file")
        return written


def current(tx: Transaction, owner: Owner, scope: Scope, id: str) -> Memory | None:
    """What a memory is now; None: it was erased, or is another's."""
    place = index.find(tx, owner, id)
    entry = None if place is None else log.at_position(tx, owner, place.position)
    return None if entry is None or entry.body is None else entry.state(scope.user)
