"""Collect what a plan is made from: read the disk, the file cache and the store."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from reverie.engine import index, log, sessions
from reverie.errors import StoreDamaged, VaultError
from reverie.model import Scope
from reverie.protocols import Owner, Transaction
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.vault import disk, index_file, layout, permissions, render
from reverie.vault.file_cache import VaultFile
from reverie.vault.layout import ParsedPath
from reverie.vault.log_position import BATCH, LogPosition
from reverie.vault.plan_missing import MIN_FOR_SHARE, WINDOW_MS
from reverie.vault.state import (
    CacheState,
    DiskFile,
    DiskState,
    MemoryHistory,
    MissingAction,
    Name,
    SessionState,
    Snapshot,
    StoreState,
    erased_sessions,
    names_of,
)
from reverie.vault.vault import Vault
from reverie.write import session_state
from reverie.write.runtime import Runtime

MAX_EVENTS = 1_000_000_000
RECORDS = ("turns", "summary", "index")
FOLDER = "a folder is now at the path of its file: nothing was changed"


class Collector:
    """Collects snapshots of a store and its vault. The caller must hold the lock of the vault."""

    def __init__(
        self, vault: Vault, runtime: Runtime, position: LogPosition, missing: MissingAction
    ) -> None:
        self._vault = vault
        self._runtime = runtime
        self._position = position
        self._missing: MissingAction = missing
        # The paths that may differ from the cache, as far as this run looked.
        self._paths: set[str] = set()
        self._unusable: dict[str, str] = {}
        # Paths whose memories were searched for in all other files.
        self._searched: set[str] = set()
        self._sessions: set[Name] = set()
        # What the cache said of files that differed from it: their memories, if another file took
        # their place, and the indexes of their owners may have to be written again.
        self._differing: set[VaultFile] = set()
        # Whether all files were compared with the cache, and whether the store is as well.
        self.looked_everywhere = False
        # Whether entries that the vault does not have are read, so that they are written.
        self.reads_entries = True

    # -- where to look ------------------------------------------------------------------------

    def look_everywhere(self) -> None:
        """Compare all files with the cache."""
        self._position.rewind()
        survey = self._survey()
        for draft in survey.drafts:
            draft.unlink(missing_ok=True)
        if self._vault.is_private:
            # Also what a survey leaves out: Reverie's own files and git's.
            permissions.close_tree(self._vault.root)
        self.looked_everywhere = True

    def _close(self, paths: Iterable[Path]) -> None:
        """Make files of other programs private; skipped where the disk has no permissions."""
        if self._vault.is_private:
            for path in paths:
                permissions.make_private(path)

    def _survey(self, *, inodes_only: bool = False) -> disk.FolderScan:
        """Find the paths that may differ from the cache.

        ``inodes_only``: only files that were added, removed or replaced, without looking at each.
        """
        root, known = self._vault.root, self._vault.files.stamps()
        survey = disk.scan_folder(root, root, inodes_only=inodes_only)
        self._unusable.update(survey.closed)
        start = 2 if inodes_only else 0
        for path, stamp in survey.files.items():
            # First what is quick, since most files are unchanged.
            if known.get(path, ())[start:] != stamp[start:] and self._is_shown(path):
                self._paths.add(path)
        gone = {path for path in known.keys() - survey.files.keys() if not survey.hides(path)}
        self._paths |= gone
        self._searched |= gone
        return survey

    def compare_only(self) -> tuple[dict[str, str], list[str]]:
        """Return the files that cannot be read, and why, and those that people edited.

        Nothing is changed, so the lock is not needed.
        """
        self._survey()
        work = _Work(self._vault, self._runtime, None)
        work.compare(self._paths)
        unusable = self._unusable | work.disk.unusable
        return dict(sorted(unusable.items())), sorted(work.disk.changed)

    def look_at(self, paths: Iterable[str]) -> None:
        """Compare these files and folders with the cache."""
        vault = self._vault
        for path in paths:
            try:
                full = vault.path(path)
                found = disk.stamp(full)
            except VaultError as error:
                self._unusable[path] = str(error)
                continue
            if found is None:
                self._paths.update((path, *(file.path for file in vault.files.below(path))))
            elif full.is_symlink():
                self._unusable[path] = disk.LINK
            else:
                self._close([full])
                scan = disk.scan_folder(vault.root, full) if full.is_dir() else disk.FolderScan()
                self._close(scan.shared)
                self._unusable.update(scan.closed)
                self._paths.update(filter(self._is_shown, scan.files or [path]))

    def look_at_session(self, scope: Scope, session: str) -> None:
        """Compare the files of a session with the store; summaries are not in the log."""
        self._sessions.add((scope, session))

    def _is_shown(self, path: str) -> bool:
        """Whether a file belongs to a space of the vault; other Markdown files are reported."""
        if _place(self._vault, path) is not None:
            return True
        space = self._vault.folders.space_at(path.partition("/")[0])
        if layout.is_misplaced(path) and self._vault.config.shows(space):
            self._unusable[path] = "files of a user belong in users/, deleted ones too: move it"
        elif path.lower().endswith(".md") and self._vault.folders.is_former(path):
            self._unusable[path] = "its folder was another's in an earlier version: rename it"
        return False

    # -- the snapshot -------------------------------------------------------------------------

    def snapshot(self, owner: Owner | None, failed: Collection[str]) -> Snapshot:
        """Collect what the next plan needs, with the new entries of one owner or all.

        After ``look_everywhere`` every memory and session is compared with its files.
        """
        work = _Work(self._vault, self._runtime, owner)
        with work.reading():
            work.read_entries(failed, to_be_written=self.reads_entries)
            # What is new comes first: until then most of what has no file is about to get one.
            check = self.looked_everywhere and not work.store.entries
            if check:
                work.check()
        work.add_memories(names_of(self._differing, "memory"))
        work.add_sessions(self._sessions)
        changed_owners = {file.scope for file in self._differing}
        # The disk is read outside of a transaction, which would keep erased rows from going.
        work.compare({*self._paths, *map(self._vault.folders.index, changed_owners)})
        if not work.lost_paths() <= self._searched:
            self._survey(inodes_only=True)
            work.compare(self._paths)
            self._searched |= work.lost_paths()
        work.disk.unusable.update(self._unusable)
        # Records that are known again may have to be written up to date.
        self._sessions.update(work.changed_sessions())
        with work.reading():
            work.read_store()
            cache = work.cache_state(self._position.diverged())
            cache.stale_indexes = frozenset(work.stale_indexes(None if check else changed_owners))
        # For the next snapshots, when the cache says where these files are now.
        self._differing.update(work.differing())
        return Snapshot(
            *(work.store, work.disk, cache, self._vault.config, self._missing),
            folders=self._vault.folders,
            failed=frozenset(failed),
        )


class _Work:
    """Collects one snapshot."""

    _tx: Transaction

    def __init__(self, vault: Vault, runtime: Runtime, owner: Owner | None) -> None:
        self._vault = vault
        self._runtime = runtime
        self._only = owner
        self._asked: dict[Owner, Scope] = {}
        self._owners: dict[Scope, Owner | None] = {}
        self._marks = vault.files.marks()
        self._files: dict[str, VaultFile] = {}
        self._memories: dict[Name, None] = {}
        self._sessions: dict[Name, None] = {}
        self._compared: set[str] = set()
        self.store = StoreState()
        self.disk = DiskState()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Open a read transaction for what is done in the block."""
        with self._runtime.engine.read() as self._tx:
            self._tx.enter_all_owners()
            yield

    # -- what the plan is about ---------------------------------------------------------------

    def read_entries(self, failed: Collection[str], *, to_be_written: bool) -> None:
        """Read the next entries of each owner that the vault does not have yet."""
        asked = log.list_owners(self._tx) if self._only is None else [self._only]
        self._asked = {each: log.scope_of(self._tx, each) for each in asked}
        self._owners = {scope: each for each, scope in self._asked.items()}
        vault = self._vault
        for owner, scope in self._asked.items() if to_be_written else ():
            if vault.config.shows(scope.space) and vault.folders.owner(scope) not in failed:
                self._read_entries(owner, scope)
        unwritten = names_of(vault.files.unwritten(), "memory")
        self.add_memories(name for name in unwritten if vault.config.shows(name[0].space))

    def _read_entries(self, owner: Owner, scope: Scope) -> None:
        cursor, last = self._cursor(scope), log.last_position(self._tx, owner)
        found = log.entries(self._tx, owner, cursor, last, BATCH) if cursor < last else []
        if not found:
            return
        self.store.entries[scope] = found
        self._vault.assign_owner(scope)
        if len(found) == BATCH:
            self.store.unfinished.add(scope)
        self.add_memories((scope, entry.memory) for entry in found if entry.memory)
        for entry in found:
            self._add_entry(owner, scope, entry)

    def _cursor(self, scope: Scope) -> int:
        return self._marks.get(scope, (0, ""))[0]

    def _owner(self, scope: Scope) -> Owner | None:
        if scope not in self._owners:
            self._owners[scope] = log.resolve_owner(self._tx, scope)
        return self._owners[scope]

    def _add_entry(self, owner: Owner, scope: Scope, entry: log.LogEntry) -> None:
        if entry.session is not None:
            self.add_sessions([(scope, entry.session)])
            if entry.op in {"hide", "restore"} and not entry.memory:
                self._add_linked(scope, entry.session)
        if entry.op == "erase":
            affected = self.store.affected.setdefault(scope, set())
            for session in erased_sessions([entry]):
                affected.update(log.memories_from_session(self._tx, owner, session))
                self.add_sessions([(scope, session)])
            self.add_memories((scope, id) for id in affected)
            # Summaries, also those of forks, may say what was erased in other words.
            self.add_sessions(names_of(self._vault.files.list_type(scope, "summary"), "summary"))

    def _add_linked(self, scope: Scope, session: str) -> None:
        """Add the memories whose files link to the turns of a session that are moved."""
        for each in layout.learning_scopes(scope):
            if (owner := self._owner(each)) is not None:
                found = log.memories_from_session(self._tx, owner, session)
                self.store.linked.update((each, id) for id in found)
        self.add_memories(self.store.linked)

    def check(self) -> None:
        """Add every memory and session whose files are not as the store says."""
        every = self._vault.files.below("")
        self._files.update((file.path, file) for file in every)
        shown: dict[Name, list[int]] = {}
        for file in every:
            if file.what == "memory":
                shown.setdefault((file.scope, file.name), []).append(file.version)
        for owner, scope in self._asked.items():
            if not self._vault.config.shows(scope.space):
                continue
            reached = self._cursor(scope)
            chosen = index.Filter(include_forgotten=True, sessions=None)
            self.add_memories(
                (scope, row.memory)
                for row in index.list_memories(self._tx, owner, chosen)
                if row.position <= reached and shown.get((scope, row.memory)) != [row.version]
            )
            self.add_sessions(
                (scope, row.session)
                for row in sessions.list_sessions(self._tx, owner, hidden=True)
                if row.position <= reached
            )

    def add_memories(self, found: Iterable[Name]) -> None:
        self._memories.update((name, None) for name in found)

    def add_sessions(self, found: Iterable[Name]) -> None:
        self._sessions.update((name, None) for name in found)

    # -- the disk -----------------------------------------------------------------------------

    def compare(self, paths: Iterable[str]) -> None:
        """Compare paths, and the files of everything the plan is about, with the cache."""
        held = set(self._vault.files.held())
        waiting = {*paths, *held, *(file.path for file in self._own_files())}
        # Written again with the entries of this plan.
        waiting.update(map(self._vault.folders.index, self.store.entries))
        while waiting:
            for path in sorted(waiting):
                self._compare(path)
            waiting = {file.path for file in self._own_files()} - self._compared

    def lost_paths(self) -> set[str]:
        """Return the files that are gone or lost their front matter: a person may have moved them.

        Those that wait for an answer were searched for before.
        """
        lost = {path for path, file in self.disk.gone.items() if not file.held}
        for path, file in self.disk.changed.items():
            known = self._files.get(path)
            is_memory = known is not None and known.what == file.place.what == "memory"
            if is_memory and not file.document.text("id"):
                lost.add(path)
        return lost

    def changed_sessions(self) -> Iterator[Name]:
        """Yield the sessions whose records differ from the cache."""
        for file in self.disk.changed.values():
            if file.place.what in RECORDS and file.place.session is not None:
                yield file.place.scope, file.place.session

    def differing(self) -> Iterator[VaultFile]:
        """Yield what the cache says of each file that differs from it."""
        for path in (*self.disk.changed, *self.disk.gone):
            if path in self._files:
                yield self._files[path]

    def _own_files(self) -> Iterator[VaultFile]:
        files = self._vault.files
        for chosen, types in (
            (self._memories, ("memory", "conflict")),
            (self._sessions, ("turns", "summary")),
        ):
            for scope, name in chosen:
                for what in types:
                    for file in files.of(scope, what, name):
                        self._files[file.path] = file
                        yield file

    def _compare(self, path: str) -> None:
        self._compared.add(path)
        # Compared before, it may be another by now.
        for found in (self.disk.gone, self.disk.changed, self.disk.unusable):
            found.pop(path, None)
        known, place = self._vault.files.get(path), _place(self._vault, path)
        if known is not None:
            self._files[path] = known
        try:
            full = self._vault.path(path)
            stamp = disk.stamp(full)
            if stamp is None:
                if known is not None:
                    self.disk.gone[path] = known
                    self._add_file(known)
                elif place is not None and place.session is not None:
                    self.add_sessions([(place.scope, place.session)])
                return
            if place is None or (known is not None and stamp == known.stamp):
                return
            if full.is_dir() and not full.is_symlink():
                if known is not None:
                    self.disk.unusable[path] = FOLDER
                return
            raw, stamp = disk.read_stamped(full)
        except disk.UnreadableFile as error:
            if not self._vault.is_missing(path):
                self.disk.unusable[path] = str(error)
            return
        digest = disk.digest(raw)
        if known is not None and known.digest == digest:
            self._vault.files.restamp(known, stamp)
            self._files[path] = known._replace(stamp=stamp)
            return
        document = frontmatter.load(raw)
        if place.what == "memory" and (why := _why_unusable(raw, document)):
            self.disk.unusable[path] = why
        else:
            self._add_changed(DiskFile(path, place, raw, digest, stamp, document), known)

    def _add_changed(self, file: DiskFile, known: VaultFile | None) -> None:
        place, document = file.place, file.document
        self.disk.changed[file.path] = file
        if known is not None:
            self._add_file(known)
        if place.what == "memory" and (id := document.text("id")):
            self.add_memories([(place.scope, id)])
        elif place.what in RECORDS:
            for session in (place.session, document.text("conversation_id")):
                if session:
                    self.add_sessions([(place.scope, session)])

    def _add_file(self, file: VaultFile) -> None:
        if file.what == "memory":
            self.add_memories([(file.scope, file.name)])
        elif file.what in {"turns", "summary"}:
            self.add_sessions([(file.scope, file.name)])

    # -- the store ----------------------------------------------------------------------------

    def read_store(self) -> None:
        for scope, id in self._memories:
            owner = self._owner(scope)
            if owner is not None:
                self._read_memory(owner, scope, id)
        touched = {(file.place.scope, file.place.session) for file in self.disk.changed.values()}
        for scope, session in self._sessions:
            owner = self._owner(scope)
            row = None if owner is None else sessions.find(self._tx, owner, session)
            if owner is not None and row is not None:
                self.store.sessions[scope, session] = self._session(
                    owner, row, switched=(scope, session) in touched
                )
        for path, file in self.disk.changed.items():
            if file.place.what == "index" and self._owner(file.place.scope) is not None:
                self.store.owners.add(file.place.scope)
            if file.place.what in RECORDS and (plain := render.strip_seal(file.raw)) is not None:
                last = self._last_of(file, plain)
                self.disk.changed[path] = file._replace(sealed=True, last=last)

    def _read_memory(self, owner: Owner, scope: Scope, id: str) -> None:
        try:
            entries = log.versions(self._tx, owner, id)
        except StoreDamaged as error:
            # Its current version may still be written, but no edit be judged.
            for path, file in list(self.disk.changed.items()):
                if file.place.scope == scope and id in {
                    file.document.text("id"),
                    self._files[path].name if path in self._files else None,
                }:
                    del self.disk.changed[path]
                    self.disk.unusable[path] = str(error)
            row = index.find(self._tx, owner, id)
            entry = None if row is None else log.find_at_position(self._tx, owner, row.position)
            entries = [] if entry is None else [entry]
        if entries:
            self.store.memories[scope, id] = MemoryHistory(scope, tuple(entries))
            if not self._vault.files.of(scope, "memory", id):
                self._assign_folder(scope, entries[-1])

    def _assign_folder(self, scope: Scope, entry: log.LogEntry) -> None:
        """Choose the folder for the file of a memory that has none yet."""
        self._vault.assign_owner(scope)
        body = entry.body or {}
        if (session := body.get("session")) is not None:
            self._vault.assign_session(scope, session, body["created_at"])

    def _session(self, owner: Owner, row: sessions.SessionRow, *, switched: bool) -> SessionState:
        tx, session = self._tx, row.session
        whole = [sessions.EventRange(session, 0, None)]
        sequences: tuple[int, ...] = ()
        if self._vault.config.turns == "apart":
            sequences = tuple(event.sequence for event in sessions.list_events(tx, owner, whole))
        last = sessions.last_event(tx, owner, whole)
        summary = session_state.read_summary(tx, owner, session)
        turned = 0
        if switched:
            entries = log.session_entries(tx, owner, session)
            turned = max(
                (entry.position for entry in entries if entry.op in {"hide", "restore"}), default=0
            )
        return SessionState(
            row,
            0 if last is None else last.sequence,
            sequences,
            summary.epoch if summary.text else 0,
            turned,
        )

    def _last_of(self, file: DiskFile, plain: bytes) -> int | None:
        """Return the last sequence, or the epoch, of a sealed record that the store knows."""
        document = file.document
        if file.place.what == "summary":
            return render.parse_number(document.text("version"))
        if file.place.what == "index":
            return 0
        if document.text("role") == "turns":
            shown = [(turn.sequence, turn.text) for turn in render.parse_events(plain)]
        else:
            number = (document.text("id") or "").rpartition(":")[2]
            shown = [(render.parse_number(number), document.content)]
        if not shown:
            return 0
        # The folder may be that of another session.
        session = document.text("conversation_id") or ""
        return max(shown)[0] if self._has_events(file.place.scope, session, shown) else None

    def _has_events(self, scope: Scope, session: str, shown: Sequence[tuple[int, str]]) -> bool:
        """Whether the store has these events with the same texts; an erased one has any text."""
        first, last = min(shown)[0], max(shown)[0]
        owner = self._owner(scope)
        if last > MAX_EVENTS or owner is None:
            return False
        entries = log.session_appends(self._tx, owner, session, first, last - first + 1)
        stored = {entry.sequence: entry for entry in entries}
        for sequence, text in shown:
            entry = stored.get(sequence)
            if entry is None:
                return False
            if entry.body is not None:
                event = sessions.event_from_entry(entry, scope.user)
                if render.to_utf8_text(event.text) != text:
                    return False
        return True

    # -- the cache ----------------------------------------------------------------------------

    def cache_state(self, diverged: dict[Name, int]) -> CacheState:
        files, gone = self._vault.files, self.disk.gone
        found = CacheState(
            files=tuple(self._files[path] for path in sorted(self._files)),
            cursors={scope: mark[0] for scope, mark in self._marks.items()},
            diverged=diverged,
        )
        if gone:
            found.deletions = files.forgotten_since(self._runtime.clock.now() - WINDOW_MS)
            found.away = frozenset(self._away())
        if len(gone) + sum(found.deletions.values()) >= MIN_FOR_SHARE:
            folder = self._vault.folders.owner
            found.totals = {
                scope: files.count_outside(scope, f"{folder(scope)}/{layout.DELETED}")
                for scope in files.scopes()
            }
        return found

    def _away(self) -> Iterator[Scope]:
        """Yield the owners whose files are all gone, as when a disk is not mounted."""
        for scope, many in Counter(file.scope for file in self.disk.gone.values()).items():
            index_gone = self._vault.is_missing(self._vault.folders.index(scope))
            if index_gone and many == self._vault.files.count(scope):
                yield scope

    def stale_indexes(self, scopes: Iterable[Scope] | None) -> Iterator[Scope]:
        """Yield the owners, of these or all that the run is about, whose index is out of date.

        That of an owner with new entries is written with them.
        """
        for scope in self._asked.values() if scopes is None else scopes:
            if scope in self.store.entries or not self._vault.config.shows(scope.space):
                continue
            owner = self._owner(scope)
            if owner is not None and log.last_position(self._tx, owner):
                known = self._vault.files.get(self._vault.folders.index(scope))
                raw = index_file.render_index(self._vault, self._runtime, self._tx, owner, scope)
                if known is None or known.digest != disk.digest(raw):
                    yield scope


def _place(vault: Vault, path: str) -> ParsedPath | None:
    """Parse the path of a file that the vault shows; None for others, and hidden ones."""
    if any(part.startswith(".") for part in path.split("/")):
        return None
    place = vault.folders.parse(path)
    return place if place is not None and vault.config.shows(place.scope.space) else None


def _why_unusable(raw: bytes, document: Document) -> str:
    """Return why the file of a memory cannot be taken; nothing if it can."""
    if not raw.strip():
        return "it is empty: nothing was changed"
    return "; ".join(document.problems) if document.broken else ""
