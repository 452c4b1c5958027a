"""Plan what people's changes of files mean for the store: remember, revise, forget, restore.

The front matter of a file names the version of the memory that the person had before them. The file
was edited if it differs from that version, whatever the store's current version is. So a file that
is merely out of date is not taken for an edit, and a change on both sides is seen as a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reverie.model import Memory, Scope
from reverie.text.frontmatter import equal_ignoring_crlf
from reverie.vault import edits, layout, render
from reverie.vault.actions import (
    MOVED,
    Action,
    Adopt,
    Drop,
    Forget,
    KeepEdit,
    KeepStoreVersion,
    PutBack,
    Remember,
    RemoveFile,
    Report,
    Restore,
    Revise,
    SwitchSession,
)
from reverie.vault.file_cache import VaultFile
from reverie.vault.state import DiskFile, MemoryHistory, Name, Snapshot


def plan_edits(now: Snapshot) -> list[Action]:
    """Return the actions for all changed files, and a report of each that cannot be used."""
    work = _Edits(now)
    for path, why in now.disk.unusable.items():
        work.actions.append(Report(path, "problems", why))
    changed = [now.disk.changed[path] for path in sorted(now.disk.changed)]
    # Files without front matter last: by then it is known whether their memories' files were moved.
    for file in sorted(changed, key=work.is_bare):
        work.take(file)
    return work.actions


def conflict_name(session: str) -> str:
    """Return the cache name of a session's conflict copies, which is never a memory's id."""
    return f"session {session}"


def switch_line(session: str, *, hidden: bool) -> str:
    """Return the line for the commit message of a session that was hidden or restored."""
    return f"{session}: {'hidden' if hidden else 'restored'}"


class _Edits:
    def __init__(self, now: Snapshot) -> None:
        self._now = now
        self._store, self._disk, self._cache = now.store, now.disk, now.cache
        self.actions: list[Action] = []
        # The files that this plan takes for those of a memory.
        self._taken: dict[Name, VaultFile] = {}
        self._switched: set[Name] = set()
        # The owners of the files that are no longer at their paths, by type and digest.
        self._former_owners: dict[tuple[str, str], set[Scope]] = {}
        replaced = filter(None, map(self._cache.get, self._disk.changed))
        for gone in (*self._disk.gone.values(), *replaced):
            self._former_owners.setdefault((gone.what, gone.digest), set()).add(gone.scope)

    def take(self, file: DiskFile) -> None:
        if file.path in self._now.failed:
            return
        if file.place.what == "memory":
            self._memory(file)
        elif file.place.what == "conflict":
            self._conflict(file)
        else:
            self._record(file)

    def _add(self, action: Action) -> None:
        self.actions.append(action)

    def _problem(self, file: DiskFile, why: str) -> None:
        self._add(Report(file.path, "problems", why))

    def is_bare(self, file: DiskFile) -> bool:
        """Whether the file of a memory lost its front matter."""
        return (
            file.place.what == "memory"
            and not file.document.text("id")
            and self._known_as(file) is not None
        )

    def _known_as(self, file: DiskFile) -> str | None:
        """Return the id that the cache has for a file whose front matter names none."""
        known = self._cache.get(file.path)
        if known is None:
            # A file that was renamed before its id was written to it.
            known = next((each for each in self._moved_here(file) if each.version == 0), None)
        if known is None or known.what != "memory" or known.scope != file.place.scope:
            return None
        history = self._store.memories.get((known.scope, known.name))
        if history is None or history.erased or (known.scope, known.name) in self._taken:
            return None
        return known.name

    def _moved_here(self, file: DiskFile) -> Iterator[VaultFile]:
        """Yield the missing files that had the content of this one."""
        for gone in self._disk.gone.values():
            if (gone.what, gone.digest) == (file.place.what, file.digest):
                yield gone

    def _is_of_another_owner(self, file: DiskFile) -> bool:
        """Whether a record is that of a session of another owner, which is no longer at its path.

        The front matter of a record names the session, but not whose it is.
        """
        owners = self._former_owners.get((file.place.what, file.digest), set())
        return bool(owners - {file.place.scope})

    # -- the files of memories ----------------------------------------------------------------

    def _memory(self, file: DiskFile) -> None:
        document, scope = file.document, file.place.scope
        for problem in document.problems:
            self._problem(file, problem)
        named_id = document.text("id") or None
        id = named_id or self._known_as(file)
        history = None if id is None else self._store.memories.get((scope, id))
        if id is None or history is None:
            self._add(Remember(file.path, file, unknown_id=named_id))
        elif history.erased:
            self._erased(file, id, history)
        elif (other := self._elsewhere(file, id)) is not None and not self._returns(
            file, history, other
        ):
            self._copied(file, history, other.path)
        else:
            if other is not None:
                # Before the revision: after a kill in between, the next plan has one file to read.
                self._add(RemoveFile(file.path, other))
            self._taken[scope, id] = file.as_known(id)
            self._edited(file, history, bare=named_id is None)
            self._settle(file, history.current)

    def _erased(self, file: DiskFile, id: str, history: MemoryHistory) -> None:
        scope = file.place.scope
        if history.position > self._cache.cursor(scope):
            # Erased since the last sync: the person had nothing to say about it yet.
            known = self._cache.get(file.path)
            gone = known or VaultFile(file.path, "memory", scope, id, 0)
            self._add(RemoveFile(file.path, gone, erased=True))
        else:
            why = "was erased and stays so: remove the file, or its id to remember it again"
            self._problem(file, f"memory {id} {why}")

    def _elsewhere(self, file: DiskFile, id: str) -> VaultFile | None:
        """Return another file that is the memory's, and is still there."""
        scope = file.place.scope
        if (taken := self._taken.get((scope, id))) is not None:
            return taken
        for known in self._cache.of(scope, "memory", id):
            if known.path != file.path and self._says_id(known):
                return known
        return None

    def _returns(self, file: DiskFile, history: MemoryHistory, other: VaultFile) -> bool:
        """Whether a file that was deleted came back edited, while ``deleted/`` has its memory.

        One that came back as it was is only older than the store, and restores nothing.
        """
        current, deleted = history.current, layout.is_deleted(other.path)
        if current.forgotten_at is None or file.place.deleted or not deleted:
            return False
        if other.path in self._disk.changed or other.path in self._disk.unusable:
            return False
        base = self._base(file, current.id, history.states())
        return self._revision(file, current, base, bare=False) is not None

    def _says_id(self, known: VaultFile) -> bool:
        if known.path in self._disk.gone:
            return False
        found = self._disk.changed.get(known.path)
        if found is None:
            return True
        return found.document.text("id") == known.name

    def _copied(self, file: DiskFile, history: MemoryHistory, other: str) -> None:
        """Take a second file with the same id: with other content it is a new memory."""
        current, states = history.current, history.states()
        if any(
            equal_ignoring_crlf(file.document.content, each.content) for each in states.values()
        ):
            self._problem(file, f"a copy of {other}: both say they are memory {current.id}")
            self._release(file)
        else:
            self._problem(file, f"{other} is memory {current.id} already: this is a new one")
            self._add(Remember(file.path, file))

    def _release(self, file: DiskFile) -> None:
        """Drop what the cache says of a path, where the file of another memory was.

        That one gets a file of its own, and is not forgotten when the person removes this file.
        """
        known = self._cache.get(file.path)
        if known is not None and known.name != file.document.text("id"):
            self._add(Drop(file.path, known))

    def _edited(self, file: DiskFile, history: MemoryHistory, *, bare: bool) -> None:
        states, current = history.states(), history.current
        base = self._base(file, current.id, states)
        revision = self._revision(file, current, base, bare=bare)
        forgotten = current.forgotten_at is not None
        if revision is not None:
            if base is not None and not edits.same_state(base, current):
                self._add(KeepStoreVersion(file.path, file.place.scope, current))
            self._add(revision)
            if revision.restore and not revision.forget:
                text = f"{file.path}: edited here and forgotten in the store; it is restored"
                self._add(Report(file.path, "conflicts", text))
            forgotten = revision.forget if revision.restore else forgotten
        self._moved(file, current, base, forgotten=forgotten)

    def _base(self, file: DiskFile, id: str, states: Mapping[int, Memory]) -> Memory | None:
        """Return the version that the person edited, if the store has it."""
        version = render.parse_number(file.document.text("version"))
        diverged = self._cache.diverged.get((file.place.scope, id))
        return states.get(version if diverged is None else min(version, diverged - 1))

    def _revision(
        self, file: DiskFile, current: Memory, base: Memory | None, *, bare: bool
    ) -> Revise | None:
        """Return the revision that a file asks for; None when it says what the store says.

        ``bare``: a person removed the front matter, so the labels stay as they are.
        """
        document = file.document
        wanted = edits.memory_labels(current) if bare else edits.parse_labels(document, current)
        # Before the comparison: after a kill the store may have these tags already.
        if base is None or not equal_ignoring_crlf(document.content, base.content):
            before = current.content if base is None else base.content
            wanted = edits.add_inline_tags(wanted, document.content, before)
        if base is not None and edits.matches_version(base, document, wanted):
            return None
        if edits.matches_version(current, document, wanted):
            return None
        # A new content is the person's; with new labels alone, the content keeps its author.
        same = equal_ignoring_crlf(document.content, current.content)
        forgotten = current.forgotten_at is not None
        return Revise(
            file.path,
            file,
            current,
            None if same else document.content,
            wanted,
            restore=forgotten,
            forget=forgotten and file.place.deleted,
        )

    def _moved(
        self, file: DiskFile, current: Memory, base: Memory | None, *, forgotten: bool
    ) -> None:
        """Forget or restore a memory whose file was moved into or out of ``deleted/``."""
        scope, deleted = file.place.scope, file.place.deleted
        known = self._cache.of(scope, "memory", current.id)
        # The former path is more reliable than front matter, which a person may have edited.
        before = "forgotten_at" in file.document.fields
        if known:
            before = layout.is_deleted(known[0].path)
        if base is None and render.parse_number(file.document.text("version")) > current.version:
            # The store was rebuilt from a log that has lost the latest versions: the file is right.
            before = forgotten
        # A file at the place of the version that it names was not moved: it is out of date.
        lags = base is not None and (base.forgotten_at is not None) == deleted
        if lags or before == deleted or forgotten == deleted:
            return
        if deleted:
            self._add(Forget(file.path, scope, current, MOVED))
        else:
            self._add(Restore(file.path, scope, current))

    def _settle(self, file: DiskFile, memory: Memory) -> None:
        """Record the path where the person put the file; the next plan writes to it."""
        scope, id = file.place.scope, memory.id
        others = [each for each in self._cache.of(scope, "memory", id) if each.path != file.path]
        # Forgetting and restoring it have lines of their own.
        moved = any(layout.is_deleted(each.path) == file.place.deleted for each in others)
        line = f"{render.first_line(memory.content)} (move {id})" if moved else ""
        self._add(Adopt(file.path, file.as_known(id), line))
        for other in others:
            self._add(Drop(file.path, other))
            self._add(Report(file.path, "moved", f"{other.path} → {file.path}"))

    # -- conflict copies ----------------------------------------------------------------------

    def _conflict(self, file: DiskFile) -> None:
        """Record a conflict copy as it is; a person may edit or delete it."""
        known = self._cache.get(file.path)
        original = file.document.text("conflict_of") or conflict_name(file.place.session or "")
        name = original if known is None else known.name
        self._add(Adopt(file.path, file.as_known(name)))

    # -- turns, summaries and indexes ---------------------------------------------------------

    def _record(self, file: DiskFile) -> None:
        """Take a record that is new or differs from what was written.

        Records tell what was said, so an edit changes nothing in the store: it is kept beside the
        record, which is written again.
        """
        if file.sealed and self._own(file):
            return
        known = self._cache.get(file.path)
        if self._is_ours_to_write(file):
            self._add(KeepEdit(file.path, file, 0 if known is None else known.version))
        else:
            self._problem(file, "its name is kept for what Reverie writes: give it another")

    def _is_ours_to_write(self, file: DiskFile) -> bool:
        if file.place.what == "index":
            return file.place.scope in self._store.owners
        return (file.place.scope, file.place.session or "") in self._store.sessions

    def _own(self, file: DiskFile) -> bool:
        """Take an unchanged record of ours; False when the store does not have its content."""
        place = file.place
        if place.what == "index":
            if file.path == self._now.folders.index(place.scope):
                self._add(Adopt(file.path, file.as_known("")))
            else:
                self._problem(file, "a copy of an index: nothing was changed")
            return True
        session = file.document.text("conversation_id") or ""
        is_own = session == place.session and self._is_ours_to_write(file)
        if not is_own or self._is_of_another_owner(file):
            return self._put_back(file)
        if file.last is None:
            return False
        # The missing file that this one was before it was moved into or out of ``deleted/``.
        was = self._disk.gone.get(layout.relocate(file.path, deleted=not place.deleted))
        switched = was is not None and place.what == "turns"
        line = self._switch(file, session) if switched else ""
        self._add(Adopt(file.path, file.as_known(session, file.last), line))
        if was is not None:
            self._add(Drop(file.path, was))
        return True

    def _switch(self, file: DiskFile, session: str) -> str:
        """Hide or restore a session whose files were moved into or out of ``deleted/``.

        Return the line for the commit message.
        """
        scope, deleted = file.place.scope, file.place.deleted
        known = self._store.sessions[scope, session]
        # Hidden or restored since the last sync: nobody moved its files, they are out of date.
        lags = known.switched > self._cache.cursor(scope)
        if known.hidden == deleted or lags or (scope, session) in self._switched:
            return ""
        self._switched.add((scope, session))
        self._add(SwitchSession(file.path, scope, session, MOVED if deleted else None))
        return switch_line(session, hidden=deleted)

    def _put_back(self, file: DiskFile) -> bool:
        """Move a record that was renamed, or moved to another owner, back to its path.

        Records that were swapped leave no path free: they are removed, and the next plan writes
        each at its own. False when the store does not have the content of one.
        """
        if (was := next(self._moved_here(file), None)) is not None:
            if (known := self._cache.get(file.path)) is not None:
                # Nobody deleted the record that this one was moved over: it is written again.
                self._add(Drop(file.path, known))
            self._add(PutBack(file.path, was.path))
        elif not self._is_ours_to_write(file):
            self._problem(file, "the conversation is not known here: nothing was changed")
            return True
        elif file.last is None and not self._is_of_another_owner(file):
            return False
        else:
            self._add(RemoveFile(file.path, file.as_known("")))
        self._problem(file, "records keep their names and owners: it was put back")
        return True
