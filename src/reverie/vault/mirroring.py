"""From the store to the files: what the log says since the last time, in order.

The files of a batch are written first and its entries are added to the vault's own log last. Killed
in between, the same batch is written again, which changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from reverie.engine import index, log
from reverie.engine.log import Entry
from reverie.memory import upkeep
from reverie.memory.resources import Resources
from reverie.model import Memory, Origin, Scope
from reverie.protocols import Owner
from reverie.text import frontmatter
from reverie.vault import disk, journal, layout, names, rendering
from reverie.vault.conversations import Conversations, Edited
from reverie.vault.disk import Stamp
from reverie.vault.files import File
from reverie.vault.indexing import write_index
from reverie.vault.vault import Vault

BATCH = 500
# More files than these are synced all at once.
FEW = 16
_NEW = Stamp(0, 0, 0)

Progress = Callable[[int], None]


class Mirror:
    """Writes what a store says into a vault, which the caller holds the lock of.

    ``edited`` is told of a file that a person changed before it would be written anew.
    """

    def __init__(self, vault: Vault, resources: Resources, edited: Edited) -> None:
        self._vault = vault
        self._resources = resources
        self._edited = edited
        self.conversations = Conversations(vault, resources, edited)

    def everyone(self, progress: Progress | None = None) -> int:
        """All owners; how many entries that were."""
        with self._resources.engine.read() as tx:
            tx.oversee()
            owners = upkeep.all_owners(tx)
        return sum(self.owner(owner, progress) for owner in owners)

    def owner(self, owner: Owner, progress: Progress | None = None) -> int:
        """One owner's entries behind those the vault has; how many that were."""
        vault = self._vault
        with self._resources.engine.read() as tx:
            tx.enter(owner)
            scope, last = log.scope_of(tx, owner), log.last_position(tx, owner)
            lineage = str(log.lineage(tx))
        if not vault.wishes.shows(scope.space):
            return 0
        self._begin(lineage)
        after, many = vault.files.cursor(scope), 0
        while True:
            with self._resources.engine.read() as tx:
                tx.enter(owner)
                entries = log.entries(tx, owner, after, last, BATCH)
            if not entries:
                break
            self._batch(owner, scope, entries)
            after, many = entries[-1].position, many + len(entries)
            if progress is not None:
                progress(len(entries))
        if many:
            write_index(vault, self._resources, owner, scope)
        return many

    def _begin(self, lineage: str) -> None:
        """Where to go on is what the vault's own log says, unless the store has another life."""
        files, journal_ = self._vault.files, self._vault.journal
        if files.fact("lineage") not in {None, lineage}:
            journal_.clear()
            files.forget_cursors()
        known = (files.fact("journal"), files.fact("lineage"))
        if known != (str(journal_.size()), lineage):
            files.forget_cursors()
            for scope, position in journal_.cursors().items():
                files.set_cursor(scope, position)
            files.set_fact("journal", str(journal_.size()))
            files.set_fact("lineage", lineage)

    def _batch(self, owner: Owner, scope: Scope, entries: Sequence[Entry]) -> None:
        vault = self._vault
        vault.know_names(scope)
        memories = list(dict.fromkeys(entry.memory for entry in entries if entry.memory))
        sync = len(memories) <= FEW
        with vault.files.together():
            reasons = {entry.memory: entry.op for entry in entries if entry.memory}
            for part in _parts(memories, BATCH):
                for memory_id, memory in self._current(owner, scope, part):
                    self.write_memory(scope, memory_id, memory, reasons[memory_id], sync=sync)
            self._sessions(owner, scope, entries)
            self._erased(scope, entries)
            if not sync:
                os.sync()
            changed = vault.journal.append(journal.line_of(scope, entry) for entry in entries)
            for path in changed:
                vault.files.note(scope.space, path.relative_to(vault.root).as_posix())
            vault.files.set_cursor(scope, entries[-1].position)
            vault.files.set_fact("journal", str(vault.journal.size()))

    # -- memories -----------------------------------------------------------------------------

    def _current(
        self, owner: Owner, scope: Scope, ids: Sequence[str]
    ) -> Iterator[tuple[str, Memory | None]]:
        """What each of these is now; None: it was erased."""
        with self._resources.engine.read() as tx:
            tx.enter(owner)
            places = {id: index.find(tx, owner, id) for id in ids}
            positions = [place.position for place in places.values() if place is not None]
            found = log.at_positions(tx, owner, positions)
        for id, place in places.items():
            yield id, None if place is None else found[place.position].state(scope.user)

    def write_memory(
        self, scope: Scope, id: str, memory: Memory | None, op: str, *, sync: bool = True
    ) -> None:
        """Let the file of a memory say what it is now."""
        vault = self._vault
        known = vault.files.of(scope, "memory", id)
        if memory is None:
            for gone in [*known, *vault.files.of(scope, "conflict", id)]:
                vault.remove(gone, f"({op} {id})")
            return
        file: File | None = known[0] if known else None
        if file is not None and not vault.as_we_left_it(file):
            self._edited(file)
            known = vault.files.of(scope, "memory", id)
            file = known[0] if known else None
        if file is not None and file.version >= memory.version and vault.as_we_left_it(file):
            return
        self._put_memory(scope, memory, file, op, sync)

    def _put_memory(
        self, scope: Scope, memory: Memory, file: File | None, op: str, sync: bool
    ) -> None:
        vault, gone = self._vault, memory.forgotten_at is not None
        vault.know_names(scope, memory.session)
        before = None
        if file is None:
            name = names.file_name(memory.id, memory.subject, memory.content)
            folder = layout.memory_folder(scope, memory)
            path = f"{folder}/{name}"
            path = layout.in_deleted(scope, path) if gone else path
            folder, _, name = path.rpartition("/")
            path = self._own_or_free(folder, name, memory.id)
        else:
            turn = layout.in_deleted if gone else layout.out_of_deleted
            path = turn(scope, file.path)
            before = _raw(vault, file.path)
        raw = rendering.memory_file(memory, before)
        line = f"{rendering.line_of(memory.content)} ({op} {memory.id})"
        new = File(path, "memory", scope, memory.id, memory.version, "", _NEW)
        vault.write(new, raw, line, sync=sync)
        if file is not None and file.path != path:
            # Only now: at every moment it stands somewhere.
            vault.remove(file)

    def _own_or_free(self, folder: str, name: str, id: str) -> str:
        """The path of this name, unless it is another's already. After a kill it may be our own."""
        path = f"{folder}/{name}"
        raw = _raw(self._vault, path)
        if raw is not None and frontmatter.load(raw).fields.get("id") == id:
            return path
        return self._vault.free_path(folder, name)

    # -- conversations ------------------------------------------------------------------------

    def _sessions(self, owner: Owner, scope: Scope, entries: Sequence[Entry]) -> None:
        about: dict[str, list[Entry]] = {}
        for entry in entries:
            if entry.session is not None and entry.op in {"append", "hide", "restore", "erase"}:
                about.setdefault(entry.session, []).append(entry)
            # An erased memory may have taken the turn it came from along.
            if entry.op == "erase" and entry.memory and entry.body:
                for source in entry.body.get("sources", ()):
                    about.setdefault(Origin(*source).session, []).append(entry)
        for session, told in about.items():
            self.conversations.follow(owner, scope, session, told)

    def _erased(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Take out of the vault's own log what entries before were blanked of."""
        blanked = {
            position
            for entry in entries
            if entry.op == "erase" and entry.body
            for position in entry.body.get("entries", ())
        }
        if not blanked:
            return

        def alter(line: journal.Line) -> journal.Line | None:
            own = line["space"] == scope.space and line["user"] == scope.user
            if not own or line["position"] not in blanked:
                return None
            return journal.blanked(line)

        for path in self._vault.journal.change(alter):
            self._vault.files.note(scope.space, path.relative_to(self._vault.root).as_posix())


def _raw(vault: Vault, path: str) -> bytes | None:
    try:
        return disk.read(vault.path(path))
    except disk.Unreadable:
        return None


def _parts(values: Sequence[str], many: int) -> Iterator[list[str]]:
    each = iter(values)
    while part := list(islice(each, many)):
        yield part
