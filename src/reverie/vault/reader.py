"""Read people's changes of the vault's files into the store: remember, revise, forget, restore.

The front matter of a file names the version of the memory that the person had before them. The file
was edited if it differs from that version, whatever the store's current version is. So a file that
is merely out of date is not taken for an edit, and a change on both sides is seen as a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reverie.engine import log, sessions
from reverie.engine.log import LogEntry
from reverie.errors import InvalidInput, ReverieError, VaultError
from reverie.memory.space import Space
from reverie.memory.store import Store
from reverie.model import KINDS, Memory, Scope, Trust
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.text.normalize import one_line
from reverie.vault import (
    disk,
    edits,
    layout,
    names,
    permissions,
    render,
)
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import CacheDamaged, VaultFile
from reverie.vault.layout import ParsedPath
from reverie.vault.missing_files import MissingAction, MissingFiles, versions_of
from reverie.vault.session_edits import ACTOR as ACTOR
from reverie.vault.session_edits import DELETED as DELETED
from reverie.vault.session_edits import MOVED as MOVED
from reverie.vault.session_edits import SessionEdits
from reverie.vault.session_files import conflict_name
from reverie.vault.vault import Vault
from reverie.vault.writer import DIVERGED, SCANNED, Mirror

EDITED = "its file was edited"
_NEW = FileStamp(0, 0, 0)


@dataclass
class SyncReport:
    """The paths of the files that people changed, by what was done, and conflicts and problems."""

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
    """Reads people's changes into a store. The caller must hold the lock of the vault."""

    def __init__(self, vault: Vault, store: Store, missing: MissingAction = "ask") -> None:
        """``missing`` says what happens when many files were deleted at once."""
        self._vault = vault
        self._store = store
        self._runtime = store.runtime
        self.report = SyncReport()
        self.mirror = Mirror(vault, store.runtime, self._edited, self.read_all, self._problem)
        self._records = SessionEdits(vault, store, self.mirror, self.report, self._problem)
        self._missing = MissingFiles(
            *(vault, store.runtime, self._records, self.report, self._problem),
            *(self._handle, missing),
        )
        # Files that this run has read: the mirror may ask for one of them again.
        self._seen: set[str] = set()
        self._looking = False
        # Files without an id, to be read last: a person may have moved the memory's file away and
        # put another in its place.
        self._bare: dict[str, None] = {}

    # -- which files to read ------------------------------------------------------------------

    def read_all(self) -> SyncReport:
        """Read all files of all spaces that the vault shows."""
        if self._looking:
            return self.report
        self._looking = True
        vault = self._vault
        self.mirror.begin()
        self.mirror.rewind_all()
        if vault.files.fact(SCANNED) is None:
            self._learn_names()
        survey = disk.scan_folder(vault.root, vault.root)
        for closed, why in survey.closed.items():
            self._problem(closed, why)
        for draft in survey.drafts:
            draft.unlink(missing_ok=True)
        if vault.is_private:
            # Files that other programs wrote; skipped where the disk has no permissions.
            for shared in survey.shared:
                permissions.make_private(shared)
        known = {file.path: file for file in vault.files.below("")}
        shown = {path: stamp for path, stamp in survey.files.items() if self._is_shown(path)}
        changed = [path for path, stamp in sorted(shown.items()) if not _is(known.get(path), stamp)]
        gone = list[VaultFile]()
        for path, file in known.items():
            if path in survey.files or survey.hides(path):
                continue
            if self._vault.is_gone(file):
                gone.append(file)
            else:
                self._problem(path, "a folder stands where its file was: nothing was changed")
        self._take(changed, gone)
        with vault.files.together():
            vault.files.drop_meta(DIVERGED)
            vault.files.set_meta(SCANNED, "yes")
        return self.report

    def read_paths(self, paths: Iterable[str]) -> SyncReport:
        """Read the files and folders that a watcher saw change or disappear."""
        vault, changed, gone = self._vault, dict[str, None](), dict[str, VaultFile]()
        self.mirror.begin()
        if vault.files.fact(SCANNED) is None:
            return self.read_all()
        for path in paths:
            try:
                full = vault.path(path)
                found = disk.stamp(full)
            except VaultError as error:
                self._problem(path, str(error))
                continue
            if found is None:
                at = vault.files.get(path)
                missed = vault.files.below(path) if at is None else [at]
                gone.update((each.path, each) for each in missed if self._vault.is_gone(each))
            elif full.is_dir() and not full.is_symlink():
                survey = disk.scan_folder(vault.root, full)
                changed.update(dict.fromkeys(sorted(survey.files)))
                for closed, why in survey.closed.items():
                    self._problem(closed, why)
            elif full.is_symlink():
                self._problem(path, disk.LINK)
            else:
                changed[path] = None
        shown = [path for path in changed if self._is_shown(path)]
        self._take([path for path in shown if not self._is_ours(path)], gone.values())
        return self.report

    def _learn_names(self) -> None:
        """Record the full names of spaces, users and sessions whose folder names are shortened."""
        with self._runtime.engine.read() as tx:
            tx.enter_all_owners()
            owners = log.list_owners(tx)
        for owner in owners:
            with self._runtime.engine.read() as tx:
                tx.enter(owner)
                scope, talks = log.scope_of(tx, owner), sessions.list_all_sessions(tx, owner)
            self._vault.record_names(scope)
            for talk in talks:
                self._vault.record_names(scope, talk.session)

    def _is_ours(self, path: str) -> bool:
        known = self._vault.files.get(path)
        return known is not None and self._vault.unchanged_since_write(known)

    def _is_shown(self, path: str) -> bool:
        """Whether a file belongs to a space of the vault; other Markdown files are reported."""
        if self._place(path) is not None:
            return True
        folder, _, rest = path.partition("/")
        if path.lower().endswith(".md") and names.is_truncated(folder) and rest:
            self._problem(path, "nobody of this name is known: nothing was changed")
        elif layout.is_misplaced(path) and self._vault.config.shows(names.decode_folder(folder)):
            self._problem(
                path, "what is a user's stands in users/, also what was forgotten: move it"
            )
        return False

    def _place(self, path: str) -> ParsedPath | None:
        if any(part.startswith(".") for part in path.split("/")):
            return None
        place = self._vault.parse_path(path)
        shown = place is not None and self._vault.config.shows(place.scope.space)
        return place if shown else None

    def _take(self, changed: Iterable[str], gone: Iterable[VaultFile]) -> None:
        """Read changed files before deleted ones, since a deleted file may have been moved."""
        for path in changed:
            self._file(path)
        self._take_bare()
        self._missing.take(gone)
        self._records.settle()

    def _take_bare(self) -> None:
        """Read the files without an id: it is known by now whether their memory's file moved."""
        while self._bare:
            path, _ = self._bare.popitem()
            self._file(path, late=True)

    # -- one file -----------------------------------------------------------------------------

    def _edited(self, file: VaultFile) -> None:
        """Read a file that somebody changed, moved or deleted before the mirror writes it."""
        if not self._vault.is_gone(file):
            self._file(file.path)
            if self._bare and not self._looking:
                self.read_all()
            self._take_bare()
        elif not self._looking:
            self.read_all()
        else:
            self._missing.take([file])

    def _file(self, path: str, *, late: bool = False) -> None:
        if path in self._seen and not late:
            return
        self._seen.add(path)
        place = self._place(path)
        if place is None:
            return
        try:
            raw, stamp = disk.read_stamped(self._vault.path(path))
            if place.what == "memory":
                self._memory(path, place, raw, stamp, late=late)
            elif place.what == "conflict":
                self._conflict(path, place, raw, stamp)
            else:
                self._records.changed(path, place, raw, stamp)
        except CacheDamaged:
            raise
        except ReverieError as error:
            # A file that disappeared meanwhile is noticed by the next run.
            if not self._vault.is_missing(path):
                self._problem(path, str(error))

    def _conflict(self, path: str, place: ParsedPath, raw: bytes, stamp: FileStamp) -> None:
        """Record a conflict copy as it is; a person may edit or delete it."""
        known = self._vault.files.get(path)
        document = frontmatter.load(raw)
        told = document.text("conflict_of") or conflict_name(place.session or "")
        name = told if known is None else known.name
        self._vault.files.put(
            VaultFile(path, "conflict", place.scope, name, 0, disk.digest(raw), stamp)
        )
        self._vault.files.add_pending(place.scope.space, path)

    def _memory(
        self, path: str, place: ParsedPath, raw: bytes, stamp: FileStamp, *, late: bool
    ) -> None:
        document = frontmatter.load(raw)
        for problem in document.problems:
            self._problem(path, problem)
        if document.broken:
            return
        if not raw.strip():
            self._problem(path, "it is empty: nothing was changed")
            return
        told = document.text("id") or None
        id = told or self._known_as(path, place)
        if told is None and id is not None and not late:
            self._bare[path] = None
            return
        if id is not None and self._is_erased(path, place, id):
            return
        held = [] if id is None else self._held(place.scope, id)
        if id is None or not held:
            self._new(path, place, document, raw, stamp, told)
            return
        states = {entry.version: entry.state(place.scope.user) for entry in held if entry.body}
        found = self._vault.files.of(place.scope, "memory", id)
        elsewhere = [file for file in found if file.path != path and self._says_id(file)]
        if elsewhere:
            self._copied(path, place, document, raw, stamp, states, elsewhere[0])
            return
        version = render.parse_number(document.text("version"))
        base = states.get(self.mirror.last_shared_version(place.scope, id, version))
        self._revised(path, place, document, states, base, bare=told is None)
        self._moved(path, place, document, id, base)
        self._settle(path, place, id, raw, stamp)

    def _says_id(self, file: VaultFile) -> bool:
        """Whether the file of a memory is still at its path, and not another file."""
        if self._vault.is_gone(file):
            return False
        if self._vault.unchanged_since_write(file):
            return True
        try:
            document = frontmatter.load(disk.read(self._vault.path(file.path)))
        except disk.UnreadableFile:
            return True
        return document.broken or document.text("id") == file.name

    def _known_as(self, path: str, place: ParsedPath) -> str | None:
        """Return the id that the cache has for a file whose front matter names none."""
        known = self._vault.files.get(path)
        if known is None or known.what != "memory" or known.scope != place.scope:
            return None
        entries = self._versions(place.scope, known.name)
        return known.name if entries and entries[-1].op != "erase" else None

    def _is_erased(self, path: str, place: ParsedPath, id: str) -> bool:
        """Remove the file of a memory that was erased since the last sync; whether it was."""
        entries = self._versions(place.scope, id)
        if not entries or entries[-1].op != "erase":
            return False
        if entries[-1].position <= self._vault.files.cursor(place.scope):
            return False
        known = self._vault.files.get(path)
        file = known or VaultFile(path, "memory", place.scope, id, 0, "", _NEW)
        self._vault.remove(file, f"(erase {id})")
        return True

    def _versions(self, scope: Scope, id: str) -> list[LogEntry]:
        return versions_of(self._runtime, scope, id)

    def _held(self, scope: Scope, id: str) -> list[LogEntry]:
        """Return every version of a memory of this owner; InvalidInput when it was erased."""
        entries = self._versions(scope, id)
        if entries and entries[-1].op == "erase":
            raise InvalidInput(
                f"memory {id} was erased and stays so: "
                "remove the file, or its id to remember it again"
            )
        return entries

    def _current(self, scope: Scope, id: str) -> Memory:
        return self._held(scope, id)[-1].state(scope.user)

    # -- edits --------------------------------------------------------------------------------

    def _revised(
        self,
        path: str,
        place: ParsedPath,
        document: Document,
        states: Mapping[int, Memory],
        base: Memory | None,
        *,
        bare: bool,
    ) -> None:
        """Revise a memory if its file differs from the version that the person edited.

        ``bare``: a person removed the front matter, so the labels stay as they are.
        """
        current = states[max(states)]
        wanted = edits.parse_labels(document)
        if bare:
            wanted = edits.memory_labels(current)
        if (
            base is not None and edits.matches_version(base, document, wanted)
        ) or edits.matches_version(current, document, wanted):
            return
        if base is not None and not edits.same_state(base, current):
            self._keep_both(path, place, current)
        handle = self._handle(place.scope, current.session)
        said = document.content.encode("utf-8", "surrogatepass")
        digest = disk.digest(said + repr(sorted(wanted.items())).encode())
        forgotten = current.forgotten_at is not None
        if forgotten:
            current = handle.restore(current.id)
        # A new content is the person's; with new labels alone, the content keeps its author.
        same = frontmatter.equal_ignoring_crlf(document.content, current.content)
        handle.revise(
            current.id,
            None if same else document.content,
            expected_version=current.version,
            key=f"vault:{current.id}:{current.version}:{digest}",
            reason=EDITED,
            **wanted,
        )
        self.report.revised.append(path)
        if forgotten and place.deleted:
            handle.forget(current.id, reason=MOVED)
        elif forgotten:
            self.report.conflicts.append(
                f"{path}: edited here and forgotten in the store; it is restored"
            )

    def _keep_both(self, path: str, place: ParsedPath, current: Memory) -> None:
        raw = render.conflict_file(current)
        copy = layout.conflict_path(path, current.version)
        file = VaultFile(copy, "conflict", place.scope, current.id, current.version, "", _NEW)
        known = self._vault.files.get(copy)
        there = self._vault.stamp(copy) is not None
        if there and (known is None or not self._vault.unchanged_since_write(known)):
            folder, _, name = copy.rpartition("/")
            file = file._replace(path=self._vault.free_path(folder, name))
        self._vault.write(file, raw)
        self.report.conflicts.append(
            f"{path}: edited here and in the store; the store's version {current.version} "
            f"is kept beside it as {file.path.rpartition('/')[2]}"
        )

    def _moved(
        self, path: str, place: ParsedPath, document: Document, id: str, base: Memory | None
    ) -> None:
        """Forget or restore a memory whose file was moved into or out of ``deleted/``."""
        current = self._current(place.scope, id)
        gone = current.forgotten_at is not None
        known = self._vault.files.of(place.scope, "memory", id)
        here = self._vault.parse_path(known[0].path) if known else None
        # The former path is more reliable than front matter, which a person may have edited.
        before = here.deleted if here is not None else "forgotten_at" in document.fields
        # A file at the place of the version that it names was not moved: it is out of date.
        lags = base is not None and (base.forgotten_at is not None) == place.deleted
        if lags or before == place.deleted or gone == place.deleted:
            return
        handle = self._handle(place.scope, current.session)
        if place.deleted:
            handle.forget(id, reason=MOVED)
            self.report.forgotten.append(path)
        else:
            handle.restore(id)
            self.report.restored.append(path)

    def _settle(
        self,
        path: str,
        place: ParsedPath,
        id: str,
        raw: bytes,
        stamp: FileStamp,
        op: str = "revise",
    ) -> None:
        """Record the path where the person put the file, and write the current version there."""
        known = self._vault.files.of(place.scope, "memory", id)
        others = [file for file in known if file.path != path]
        # A killed run may have written another file for a memory that a person's file holds.
        ours = [file for file in others if self._is_ours(file.path)]
        found = VaultFile(path, "memory", place.scope, id, 0, disk.digest(raw), stamp)
        # In one transaction: a memory without a file would get a second one from the mirror.
        with self._vault.files.together():
            self._vault.files.put(found)
            self._vault.files.add_pending(place.scope.space, path)
            for file in others:
                self._vault.files.add_pending(place.scope.space, file.path)
                if file not in ours:
                    self._vault.files.drop(file.path)
        for file in others:
            if file in ours:
                self._vault.remove(file)
            else:
                self.report.moved.append(f"{file.path} → {path}")
        self.mirror.write_memory(place.scope, id, self._current(place.scope, id), op)

    # -- new files ----------------------------------------------------------------------------

    def _new(
        self,
        path: str,
        place: ParsedPath,
        document: Document,
        raw: bytes,
        stamp: FileStamp,
        id: str | None,
    ) -> None:
        """Remember the content of a person's new file, and write the new id into the file."""
        kind = place.kind or document.text("kind")
        longer = len(document.content) > self._store.settings.fact_chars
        kind = kind if kind in KINDS and not (kind == "fact" and longer) else None
        handle = self._handle(place.scope, place.session, edits.parse_trust(document))
        memory = handle.remember(
            document.content,
            kind=kind or ("note" if longer else "fact"),
            # The stamp makes the key differ when the same file is written again later.
            key=f"vault:{disk.digest(repr((path, stamp, raw)).encode())}",
            force=True,
            source=document.text("source") or None,
            happened_at=document.text("happened_at") or None,
            expires_at=document.text("expires_at") or None,
            **edits.parse_labels(document),
        )
        if id is not None:
            self._problem(path, f"memory {id} is not known here: remembered as {memory.id}")
        self.report.remembered.append(path)
        if place.deleted:
            handle.forget(memory.id, reason=MOVED)
        self._settle(path, place, memory.id, raw, stamp, "remember")

    def _copied(
        self,
        path: str,
        place: ParsedPath,
        document: Document,
        raw: bytes,
        stamp: FileStamp,
        states: Mapping[int, Memory],
        other: VaultFile,
    ) -> None:
        """Handle a second file with the same id: with other content it is a new memory."""
        current = states[max(states)]
        if raw == render.memory_file(current) and self.mirror.is_first_path(
            path, place.scope, current
        ):
            # A killed run wrote a second file for the memory.
            self._vault.remove(VaultFile(path, "memory", place.scope, current.id, 0, "", _NEW))
            return
        if any(
            frontmatter.equal_ignoring_crlf(document.content, each.content)
            for each in states.values()
        ):
            self._problem(path, f"a copy of {other.path}: both say they are memory {current.id}")
            return
        self._problem(path, f"{other.path} is memory {current.id} already: this is a new one")
        self._new(path, place, document, raw, stamp, None)

    # -- helpers ------------------------------------------------------------------------------

    def _handle(self, scope: Scope, session: str | None = None, trust: Trust = "person") -> Space:
        """Return the handle that writes for people's files, of a session if one is given."""
        space = self._store.space(scope.space, user=scope.user, actor=ACTOR, trust=trust)
        return space if session is None else space.session(session).space

    def _problem(self, path: str, why: str) -> None:
        line = f"{one_line(path)}: {one_line(why)}"
        if line not in self.report.problems:
            self.report.problems.append(line)


def _is(known: VaultFile | None, stamp: FileStamp) -> bool:
    return known is not None and known.stamp == stamp
