"""From the files to the store: what people changed, as the verbs they meant.

A file says by its front matter which version of which memory a person had before them. It was
edited when it differs from that version; what the store says now decides nothing of it. So a file
that only lags behind is never taken for an edit, and what both sides changed is seen as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypedDict

from reverie.engine import log
from reverie.errors import InvalidInput, ReverieError
from reverie.memory.space import Space
from reverie.memory.store import Store
from reverie.model import Memory, Scope
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.text.normalise import category_slug, one_line
from reverie.text.tags import clean_tags
from reverie.vault import disk, layout, rendering
from reverie.vault.disk import Stamp
from reverie.vault.files import File
from reverie.vault.indexing import write_index
from reverie.vault.layout import Place
from reverie.vault.mirroring import Mirror
from reverie.vault.vault import Vault

ACTOR = "vault"
EDITED = "its file was edited"
DELETED = "its file was deleted"
MOVED = "its file was moved to deleted/"
_NEW = Stamp(0, 0, 0)


@dataclass
class Report:
    """What people's changes came to, by path, and what needs a look."""

    remembered: list[str] = field(default_factory=list)
    revised: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())


class Sync:
    """Reads people's changes into a store. The caller holds the lock of the vault."""

    def __init__(self, vault: Vault, store: Store) -> None:
        self._vault = vault
        self._store = store
        self._resources = store._resources
        self.report = Report()
        self.mirror = Mirror(vault, store._resources, self._edited)
        # Files of this run that were looked at: the mirror may ask for one of them again.
        self._seen: set[str] = set()

    # -- what to look at ----------------------------------------------------------------------

    def everything(self) -> Report:
        """All files of all spaces that the vault shows."""
        vault = self._vault
        found: dict[str, Stamp] = {}
        for path, entry in disk.walk(vault.root, vault.root):
            place = self._place(path)
            if place is None:
                continue
            if entry.is_symlink():
                self._problem(path, "it is a link, and links are not followed")
                continue
            stamp = disk.stamp(vault.root / path)
            if stamp is not None:
                found[path] = stamp
        known = {file.path: file for file in vault.files.below("")}
        changed = [path for path, stamp in found.items() if not _is(known.get(path), stamp)]
        gone = [file for path, file in known.items() if path not in found]
        self._take(changed, gone)
        return self.report

    def these(self, paths: Iterable[str]) -> Report:
        """What a watcher saw change: files and folders, or files that are gone."""
        vault, changed, gone = self._vault, dict[str, None](), list[File]()
        for path in paths:
            full = vault.root / path
            if full.is_dir() and not full.is_symlink():
                changed.update((each, None) for each, _ in disk.walk(vault.root, full))
            elif disk.stamp(full) is not None:
                changed[path] = None
            else:
                at = vault.files.at(path)
                gone += vault.files.below(path) if at is None else [at]
        shown = [path for path in changed if self._place(path) is not None]
        fresh = [path for path in shown if not self._is_ours(path)]
        self._take(fresh, [file for file in gone if self._is_gone(file)])
        return self.report

    def _is_ours(self, path: str) -> bool:
        known = self._vault.files.at(path)
        return known is not None and self._vault.as_we_left_it(known)

    def _is_gone(self, file: File) -> bool:
        return disk.stamp(self._vault.root / file.path) is None

    def _place(self, path: str) -> Place | None:
        place = self._vault.place_of(path)
        shown = place is not None and self._vault.wishes.shows(place.scope.space)
        return place if shown else None

    def _take(self, changed: Iterable[str], gone: Iterable[File]) -> None:
        """Changes first: what is gone may stand elsewhere now."""
        for path in changed:
            self._file(path)
        for file in gone:
            # A folder that is gone with all that it held is a disk that is away, not a wish.
            owner = self._vault.root / layout.owner_folder(file.scope)
            if owner.is_dir() and self._vault.files.at(file.path) is not None:
                self._missing(file)

    # -- one file -----------------------------------------------------------------------------

    def _edited(self, file: File) -> None:
        """The mirror is about to write a file that somebody changed."""
        if disk.stamp(self._vault.path(file.path)) is not None:
            self._file(file.path)

    def _file(self, path: str) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        place = self._place(path)
        if place is None or place.what == "conflict":
            return
        try:
            raw = disk.read(self._vault.path(path))
            if place.what == "memory":
                self._memory(path, place, raw)
            else:
                self._record(path, place, raw)
        except disk.Unreadable as error:
            self._problem(path, str(error))
        except ReverieError as error:
            self._problem(path, str(error))

    def _memory(self, path: str, place: Place, raw: bytes) -> None:
        document = frontmatter.load(raw)
        for problem in document.problems:
            self._problem(path, problem)
        if document.broken:
            return
        if not raw.strip():
            self._problem(path, "it is empty: nothing was changed")
            return
        id = document.text("id") or None
        states = {} if id is None else self._states(place.scope, id)
        if not states:
            self._new(path, place, document, raw, id)
            return
        current = states[max(states)]
        known = self._vault.files.of(place.scope, "memory", current.id)
        elsewhere = [file for file in known if file.path != path and not self._is_gone(file)]
        if elsewhere:
            self._copied(path, place, document, raw, current, elsewhere[0])
            return
        self._revised(path, place, document, states)
        self._moved(path, place, document, current.id)
        self._settle(path, place, current.id, raw)

    def _states(self, scope: Scope, id: str) -> dict[int, Memory]:
        """Every version of a memory of this owner. Raises when it was erased."""
        with self._resources.engine.read() as tx:
            owner = log.find(tx, scope)
            entries = [] if owner is None else log.versions(tx, owner, id)
        if entries and entries[-1].op == "erase":
            raise InvalidInput(
                f"memory {id} was erased and stays so: "
                "remove the file, or its id to remember it anew"
            )
        return {entry.version: entry.state(scope.user) for entry in entries if entry.body}

    # -- edits --------------------------------------------------------------------------------

    def _revised(
        self, path: str, place: Place, document: Document, states: dict[int, Memory]
    ) -> None:
        current = states[max(states)]
        told = document.text("version") or ""
        base = states.get(int(told)) if told.isascii() and told.isdecimal() else None
        wanted = _wanted(document)
        if (base is not None and _says(base, document, wanted)) or _says(current, document, wanted):
            return
        if base is not None and not _same(base, current):
            self._keep_both(path, place, current)
        said = document.content.encode("utf-8", "surrogatepass")
        digest = disk.digest(said + repr(sorted(wanted.items())).encode())
        self._handle(place.scope, current.session).revise(
            current.id,
            document.content,
            expected_version=current.version,
            key=f"vault:{current.id}:{current.version}:{digest}",
            reason=EDITED,
            **wanted,
        )
        self.report.revised.append(path)

    def _keep_both(self, path: str, place: Place, current: Memory) -> None:
        copy = layout.conflict_path(path, current.version)
        file = File(copy, "conflict", place.scope, current.id, current.version, "", _NEW)
        self._vault.write(file, rendering.conflict_file(current))
        self.report.conflicts.append(
            f"{path}: edited here and in the store; the store's version {current.version} "
            f"is kept beside it as {copy.rpartition('/')[2]}"
        )

    def _moved(self, path: str, place: Place, document: Document, id: str) -> None:
        """A person forgets and restores by moving a file."""
        states = self._states(place.scope, id)
        current = states[max(states)]
        gone = current.forgotten_at is not None
        if ("forgotten_at" in document.fields) == place.deleted or gone == place.deleted:
            return
        handle = self._handle(place.scope, current.session)
        key = f"vault:{id}:{current.version}:{place.deleted}"
        if place.deleted:
            handle.forget(id, reason=MOVED, key=key)
            self.report.forgotten.append(path)
        else:
            handle.restore(id, key=key)
            self.report.restored.append(path)

    def _settle(self, path: str, place: Place, id: str, raw: bytes, op: str = "revise") -> None:
        """The file says what the memory is now, where the person put it."""
        for file in self._vault.files.of(place.scope, "memory", id):
            if file.path != path:
                self._vault.files.drop(file.path)
                self._vault.files.note(place.scope.space, file.path)
                self.report.moved.append(f"{file.path} → {path}")
        stamp = disk.stamp(self._vault.path(path))
        if stamp is None:
            return
        found = File(path, "memory", place.scope, id, 0, disk.digest(raw), stamp)
        self._vault.files.put(found)
        self._vault.files.note(place.scope.space, path)
        states = self._states(place.scope, id)
        self.mirror.write_memory(place.scope, id, states[max(states)], op)

    # -- new files ----------------------------------------------------------------------------

    def _new(self, path: str, place: Place, document: Document, raw: bytes, id: str | None) -> None:
        """A memory that a person wrote down. Its id is written into the file."""
        kind = place.kind or document.text("kind")
        longer = len(document.content) > self._store.settings.fact_chars
        kind = kind if kind in {"fact", "note"} and not (kind == "fact" and longer) else None
        handle = self._handle(place.scope, place.session)
        memory = handle.remember(
            document.content,
            kind=kind or ("note" if longer else "fact"),
            key=f"vault:{disk.digest(raw)}:{path}"[:200],
            force=True,
            source=document.text("source") or None,
            happened_at=document.text("happened_at") or None,
            expires_at=document.text("expires_at") or None,
            **_wanted(document),
        )
        if id is not None:
            self._problem(path, f"memory {id} is not known here: remembered as {memory.id}")
        self.report.remembered.append(path)
        if place.deleted:
            handle.forget(memory.id, reason=MOVED)
        self._settle(path, place, memory.id, raw, "remember")

    def _copied(
        self,
        path: str,
        place: Place,
        document: Document,
        raw: bytes,
        current: Memory,
        other: File,
    ) -> None:
        """Two files with one id: the one that says something else is a memory of its own."""
        if frontmatter.same_text(document.content, current.content):
            self._problem(path, f"a copy of {other.path}: both say they are memory {current.id}")
            return
        self._problem(path, f"{other.path} is memory {current.id} already: this is a new one")
        self._new(path, place, document, raw, None)

    # -- what is gone -------------------------------------------------------------------------

    def _missing(self, file: File) -> None:
        try:
            if file.what == "memory":
                self._forgotten(file)
            elif file.what == "turns":
                self._hidden(file)
            elif file.what in {"summary", "index"}:
                self._vault.files.drop(file.path)
            else:
                self._vault.files.drop(file.path)
                self._vault.files.note(file.scope.space, file.path)
        except ReverieError as error:
            self._problem(file.path, str(error))

    def _forgotten(self, file: File) -> None:
        self._vault.files.drop(file.path)
        self._vault.files.note(file.scope.space, file.path)
        states = self._states(file.scope, file.name)
        if not states or states[max(states)].forgotten_at is not None:
            return
        current = states[max(states)]
        if not _same(current, states.get(file.version, current)):
            self.report.conflicts.append(
                f"{file.path}: deleted here and changed in the store; it is written again"
            )
            self.mirror.write_memory(file.scope, file.name, current, "revise")
            return
        key = f"vault:{file.name}:{current.version}:deleted"
        self._handle(file.scope, current.session).forget(file.name, reason=DELETED, key=key)
        self.report.forgotten.append(file.path)

    def _hidden(self, file: File) -> None:
        """A conversation whose files are gone is hidden; one of several parts is written again."""
        vault = self._vault
        others = [
            each
            for each in vault.files.of(file.scope, "turns", file.name)
            if each.path != file.path and not self._is_gone(each)
        ]
        if others:
            self._problem(file.path, "it was a part of a conversation: it is written again")
            self._write_anew(file)
            return
        vault.files.drop(file.path)
        vault.files.note(file.scope.space, file.path)
        session = self._handle(file.scope).session(file.name)
        session.hide(reason=DELETED)
        self.report.forgotten.append(file.path)

    # -- what only we write -------------------------------------------------------------------

    def _record(self, path: str, place: Place, raw: bytes) -> None:
        """Turns, summaries and the index are records: another's text is kept beside them."""
        known = self._vault.files.at(path)
        name = place.session or ""
        if place.what == "turns" and known is None and self._turned(path, place):
            return
        if known is not None and disk.digest(raw) == known.digest:
            return
        if place.what == "index" and known is None:
            return
        copy = layout.conflict_path(path, 0 if known is None else known.version)
        stray = File(copy, "conflict", place.scope, name, 0, "", _NEW)
        self._vault.write(stray, raw)
        self.report.conflicts.append(
            f"{path}: it is a record and was written again; what you wrote is in "
            f"{copy.rpartition('/')[2]}"
        )
        disk.remove(self._vault.path(path))
        self._vault.files.drop(path)
        self._vault.files.note(place.scope.space, path)
        self._write_anew(File(path, place.what, place.scope, name, 0, "", _NEW))

    def _turned(self, path: str, place: Place) -> bool:
        """Whether a conversation was moved to what is forgotten, or out of it."""
        session = place.session or ""
        turn = layout.out_of_deleted if place.deleted else layout.in_deleted
        was = self._vault.files.at(turn(place.scope, path))
        if was is None or not self._is_gone(was):
            return False
        stamp = disk.stamp(self._vault.path(path))
        assert stamp is not None
        self._vault.files.drop(was.path)
        self._vault.files.put(was._replace(path=path, stamp=stamp))
        for each in (was.path, path):
            self._vault.files.note(place.scope.space, each)
        handle = self._handle(place.scope).session(session)
        if place.deleted:
            handle.hide(reason=MOVED)
            self.report.forgotten.append(path)
        else:
            handle.restore()
            self.report.restored.append(path)
        return True

    def _write_anew(self, file: File) -> None:
        resources = self._resources
        with resources.engine.read() as tx:
            owner = log.find(tx, file.scope)
        if owner is None:
            return
        if file.what == "index":
            write_index(self._vault, resources, owner, file.scope)
        else:
            self.mirror.conversations.write_anew(owner, file.scope, file.name)

    # -- parts --------------------------------------------------------------------------------

    def _handle(self, scope: Scope, session: str | None = None) -> Space:
        """Who speaks for a person's files; what only a session sees, with its eyes."""
        space = self._store.space(scope.space, user=scope.user, actor=ACTOR)
        return space if session is None else space.session(session)._own_space

    def _problem(self, path: str, why: str) -> None:
        self.report.problems.append(f"{path}: {one_line(why)}")


def _is(known: File | None, stamp: Stamp) -> bool:
    return known is not None and known.stamp == stamp


class Wanted(TypedDict):
    """What a file asks for besides its content."""

    category: str
    subject: str | None
    tags: list[str]
    pinned: bool


def _wanted(document: Document) -> Wanted:
    """What it does not name has its default."""
    return {
        "category": document.text("category") or "general",
        "subject": document.text("subject") or None,
        "tags": document.items("tags"),
        "pinned": (document.text("pinned") or "").lower() in {"true", "yes", "on", "1"},
    }


def _says(state: Memory, document: Document, wanted: Wanted) -> bool:
    """Whether a file says what a version does."""
    return (
        frontmatter.same_text(document.content, state.content)
        and category_slug(wanted["category"]) == state.category
        and (one_line(wanted["subject"] or "") or None) == state.subject
        and clean_tags(wanted["tags"]) == state.tags
        and wanted["pinned"] == state.pinned
    )


def _same(one: Memory, other: Memory) -> bool:
    """Whether two versions say the same."""
    told = ("content", "category", "subject", "tags", "pinned")
    return all(getattr(one, name) == getattr(other, name) for name in told)
