"""Write the store's changes to the vault's files: the log entries since the last time, in order.

The files of a batch are written first, then its entries are appended to the vault's own log. If the
process is killed in between, the same batch is written again, which changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

from reverie.engine import index, log, sessions
from reverie.engine.log import LogEntry
from reverie.errors import InvalidInput, ReverieError, VaultError
from reverie.model import Memory, Origin, Scope
from reverie.protocols import Owner
from reverie.text import frontmatter
from reverie.vault import (
    disk,
    layout,
    log_file,
    names,
    render,
)
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.git import purge
from reverie.vault.index_file import write_index
from reverie.vault.session_files import OnEdited, SessionFiles, conflict_name
from reverie.vault.vault import Vault
from reverie.write import vault_link
from reverie.write.runtime import Runtime

BATCH = 500
# A batch with more files is synced once at its end, not file by file.
SYNC_EACH_LIMIT = 16
# The names of facts in the file cache; their values are stored and must not change.
# Set once all files were read since the cache was made.
SCANNED = "looked"
# Up to which entry the erasures of an owner were applied whom the vault no longer shows.
ERASURES_DONE = "erased:"
# The first version of a memory that only the vault has, after the store was restored from a backup.
# Kept until all files were read.
DIVERGED = "stranger:"
# Errors that concern one file; other files can still be written. A full disk is none of them.
OBSTACLES = (disk.UnusablePath, InvalidInput)
_NEW = FileStamp(0, 0, 0)
T = TypeVar("T")

Progress = Callable[[int], None]
# An entry: its position and its uuid.
Mark = tuple[int, str]


class Mirror:
    """Writes the changes of a store to a vault. The caller must hold the lock of the vault.

    ``edited`` is called with a file that a person changed, before it is overwritten. ``look`` is
    called to read all files when the cache is empty. ``problem`` is called with the path of a file
    that cannot be written, and why.
    """

    def __init__(
        self,
        vault: Vault,
        runtime: Runtime,
        edited: OnEdited,
        look: Callable[[], object] | None = None,
        problem: Callable[[str, str], None] | None = None,
    ) -> None:
        self._vault = vault
        self._runtime = runtime
        self._edited = edited
        self._look = look
        self._problem = problem
        # Caches that the vault belongs to this store: to check it, all owners have to be read.
        self._same_store = False
        self.session_files = SessionFiles(vault, runtime, edited)

    def write_all(self, progress: Progress | None = None) -> int:
        """Write the new entries of all owners, and return their number."""
        return sum(self.write_owner(owner, progress) for owner in self._owners())

    def write_owner(self, owner: Owner, progress: Progress | None = None) -> int:
        """Write the entries of one owner that the vault does not have yet; return their number."""
        vault = self._vault
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            scope, last = log.scope_of(tx, owner), log.last_position(tx, owner)
        self.begin()
        if vault.files.cursor(scope):
            self._rewind([scope])
        if not vault.config.shows(scope.space):
            self._remove_erased(owner, scope, last)
            return 0
        after, many = vault.files.cursor(scope), 0
        away = vault.is_missing(layout.owner_folder(scope)) and vault.files.knows(scope)
        if self._look is not None and (away or vault.files.fact(SCANNED) is None):
            self._look()
        while True:
            with self._runtime.engine.read() as tx:
                tx.enter(owner)
                entries = log.entries(tx, owner, after, last, BATCH)
            if not entries:
                break
            self._batch(owner, scope, entries, last=len(entries) < BATCH)
            after, many = entries[-1].position, many + len(entries)
            if progress is not None:
                progress(len(entries))
        if away:
            # The owner's folder disappeared as a whole, so everything is written again.
            self._complete(owner)
        return many

    def write_summary(self, owner: Owner, session: str) -> None:
        """Write the file of a session's summary; summaries are not in the log."""
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            scope = log.scope_of(tx, owner)
        if self._vault.config.shows(scope.space):
            try:
                self.session_files.write_summary(owner, scope, session)
            except OBSTACLES as error:
                self._tell(layout.session_folder(scope, session), error)

    # -- where to continue --------------------------------------------------------------------

    def begin(self) -> None:
        """Find out from the vault's own log where to continue, unless it is known.

        Raises VaultError when the log belongs to another store, or was not completely replayed into
        this one: it may be the only copy of what it holds.
        """
        if (half := vault_link.partial_replay_problem(self._runtime)) is not None:
            raise VaultError(half)
        files, vault_log = self._vault.files, self._vault.journal
        if files.fact("journal") != str(vault_log.size()):
            files.forget_cursors()
            for scope, (position, uuid) in vault_log.marks().items():
                files.set_cursor(scope, position, uuid)
            files.set_meta("journal", str(vault_log.size()))
            self._same_store = False
        if self._same_store:
            return
        marks = files.marks()
        if marks and not any(self._has_entry(scope, mark) for scope, mark in marks.items()):
            self._require_same_store()
        self._same_store = True

    def _has_entry(self, scope: Scope, mark: Mark) -> bool:
        """Whether the store has the entry that a mark names."""
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope)
            entry = None if owner is None else log.find_at_position(tx, owner, mark[0])
        return entry is not None and entry.uuid == mark[1]

    def _require_same_store(self) -> None:
        uuids = dict[Scope, set[str]]()
        for line in self._vault.journal.lines():
            scope = _scope_of(line)
            if scope not in uuids:
                with self._runtime.engine.read() as tx:
                    owner = log.resolve_owner(tx, scope)
                    entries = [] if owner is None else list(log.all_entries(tx, owner))
                uuids[scope] = {entry.uuid for entry in entries}
            if line.get("uuid") in uuids[scope]:
                return
        raise VaultError(
            f"{self._vault.root} is the vault of another store: take another folder, "
            "or make a store of it with 'reverie vault rebuild'"
        )

    def rewind_all(self) -> None:
        """Go back to the last common entry for every owner, also those missing in the store."""
        self._rewind([scope for scope, mark in self._vault.files.marks().items() if mark[0]])

    def _rewind(self, scopes: Iterable[Scope]) -> None:
        """Go back to the last entry that store and vault have in common.

        After a restore from a backup, the vault's log differs from the store's from some entry on.
        That part is removed from the vault's log, and all files are read again.
        """
        files, vault_log = self._vault.files, self._vault.journal
        told = {
            scope: list[Mark]() for scope in scopes if not self._has_entry(scope, files.mark(scope))
        }
        if not told:
            return
        # Done first: if the process is killed after this, all files are still read again.
        files.drop_owners(told, (SCANNED, *map(_erasures_key, told)))
        for line in vault_log.lines():
            if (scope := _scope_of(line)) in told:
                told[scope].append(log_file.line_mark(line))
        common = {scope: self._common(scope, sorted(marks)) for scope, marks in told.items()}
        self._record_diverged(common)
        for path in vault_log.keep(lambda line: _is_up_to(line, common.get(_scope_of(line)))):
            for space in {scope.space for scope in told}:
                files.add_pending(space, path.relative_to(self._vault.root).as_posix())
        with files.together():
            for scope, mark in common.items():
                files.set_cursor(scope, *mark)
            files.set_meta("journal", str(vault_log.size()))

    def _record_diverged(self, common: Mapping[Scope, Mark]) -> None:
        """Record the first version of each memory that the vault has and the store has not."""
        first = dict[str, int]()
        for line in self._vault.journal.lines():
            scope, version = _scope_of(line), line.get("version")
            if (
                line.get("memory")
                and type(version) is int
                and not _is_up_to(line, common.get(scope))
            ):
                name = _diverged_key(scope, line["memory"])
                first[name] = min(version, first.get(name, version))
        with self._vault.files.together():
            for name, version in first.items():
                self._vault.files.set_meta(name, str(version))

    def last_shared_version(self, scope: Scope, id: str, version: int) -> int:
        """Return the last version, at most ``version``, that a memory's file and store share."""
        first = self._vault.files.fact(_diverged_key(scope, id))
        return version if first is None else min(version, int(first) - 1)

    def _common(self, scope: Scope, marks: Sequence[Mark]) -> Mark:
        """Return the last of these entries up to which the store has all of them."""
        common: Mark = (0, "")
        for part in _parts(marks, BATCH):
            with self._runtime.engine.read() as tx:
                owner = log.resolve_owner(tx, scope)
                positions = [position for position, _ in part]
                found = (
                    {}
                    if owner is None
                    else log.find_at_positions(tx, owner, positions, strict=True)
                )
            for position, uuid in part:
                entry = found.get(position)
                if entry is None or entry.uuid != uuid:
                    return common
                common = (position, uuid)
        return common

    def _batch(
        self, owner: Owner, scope: Scope, entries: Sequence[LogEntry], *, last: bool
    ) -> None:
        vault = self._vault
        vault.record_names(scope)
        reasons = {entry.memory: entry.op for entry in entries if entry.memory}
        sync = len(reasons) <= SYNC_EACH_LIMIT
        for part in _parts(list(reasons), BATCH):
            for memory_id, memory in self._current(owner, scope, part):
                self.write_memory(scope, memory_id, memory, reasons[memory_id], sync=sync)
        self._sessions(owner, scope, entries)
        self._erased(owner, scope, entries)
        if last:
            self._index(owner, scope)
        if not sync:
            os.sync()
        changed = vault.journal.append(log_file.build_line(scope, entry) for entry in entries)
        with vault.files.together():
            for path in changed:
                vault.files.add_pending(scope.space, path.relative_to(vault.root).as_posix())
            vault.files.set_cursor(scope, entries[-1].position, entries[-1].uuid)
            vault.files.set_meta("journal", str(vault.journal.size()))

    # -- missing files ------------------------------------------------------------------------

    def complete(self) -> None:
        """Write every file that the vault should have and lacks."""
        for owner in self._owners():
            self._complete(owner)

    def _complete(self, owner: Owner) -> None:
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            scope = log.scope_of(tx, owner)
            known = index.list_memories(
                tx, owner, index.Filter(include_forgotten=True, sessions=None)
            )
            talks = sessions.list_sessions(tx, owner, hidden=True)
        if not self._vault.config.shows(scope.space):
            return
        shown = dict[str, list[int]]()
        for file in self._vault.files.list_type(scope, "memory"):
            shown.setdefault(file.name, []).append(file.version)
        reached = self._vault.files.cursor(scope)
        lacking = [
            place.memory
            for place in known
            if shown.get(place.memory) != [place.version] and place.position <= reached
        ]
        for part in _parts(lacking, BATCH):
            for id, memory in self._current(owner, scope, part):
                self.write_memory(scope, id, memory, "revise")
        for talk in talks:
            try:
                self.session_files.complete(owner, scope, talk)
            except OBSTACLES as error:
                self._tell(layout.session_folder(scope, talk.session), error)
        self._index(owner, scope)

    def _index(self, owner: Owner, scope: Scope) -> None:
        try:
            write_index(self._vault, self._runtime, owner, scope, self._edited)
        except OBSTACLES as error:
            self._tell(f"{layout.owner_folder(scope)}/{layout.INDEX}", error)

    def _owners(self) -> list[Owner]:
        with self._runtime.engine.read() as tx:
            tx.enter_all_owners()
            return log.list_owners(tx)

    # -- memories -----------------------------------------------------------------------------

    def _current(
        self, owner: Owner, scope: Scope, ids: Sequence[str]
    ) -> Iterator[tuple[str, Memory | None]]:
        """Yield the current state of each memory; None when it was erased."""
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            places = {id: index.find(tx, owner, id) for id in ids}
            positions = [place.position for place in places.values() if place is not None]
            found = log.find_at_positions(tx, owner, positions, strict=True)
        for id, place in places.items():
            yield id, None if place is None else found[place.position].state(scope.user)

    def write_memory(
        self,
        scope: Scope,
        id: str,
        memory: Memory | None,
        op: str,
        *,
        sync: bool = True,
        again: bool = False,
    ) -> None:
        """Write the current state of a memory to its file.

        ``again``: also when the file has this version already.
        """
        vault = self._vault
        if memory is None:
            self._remove_memory(scope, id, op)
            return
        file = self._file_of(scope, id)
        if file is not None and not vault.unchanged_since_write(file):
            self._edited(file)
            file = self._file_of(scope, id)
            if (
                file is not None
                and not vault.unchanged_since_write(file)
                and not self._vault.is_gone(file)
            ):
                # The edit could not be read, which was reported; the person's file stays.
                return
        if file is not None and file.version >= memory.version and not again:
            return
        try:
            self._put_memory(scope, memory, file, op, sync)
        except OBSTACLES as error:
            self._tell(f"memory {id}" if file is None else file.path, error)

    def _remove_memory(self, scope: Scope, id: str, op: str) -> None:
        """Remove every file of an erased memory, also where a person moved it."""
        vault = self._vault
        for file in vault.files.of(scope, "memory", id):
            if vault.is_gone(file):
                self._edited(file)
        for what in ("memory", "conflict"):
            for file in vault.files.of(scope, what, id):
                vault.remove(file, f"({op} {id})" if what == "memory" else "")
        vault.files.silence(scope.space, id)

    def _tell(self, path: str, error: ReverieError) -> None:
        """Report a file that cannot be written, so that the others still are."""
        if self._problem is None:
            raise error
        self._problem(path, str(error))

    def _file_of(self, scope: Scope, id: str) -> VaultFile | None:
        """Return the file of a memory; of several, which a killed process left, the newest."""
        files = self._vault.files.of(scope, "memory", id)
        if len(files) < 2:
            return files[0] if files else None
        there = [file for file in files if not self._vault.is_gone(file)]
        newest = max(there, key=lambda file: file.version, default=None)
        for file in files:
            if file is not newest and file in there and self._vault.unchanged_since_write(file):
                self._vault.remove(file)
            elif file is not newest:
                self._vault.files.drop(file.path)
        return newest

    def _put_memory(
        self, scope: Scope, memory: Memory, file: VaultFile | None, op: str, sync: bool
    ) -> None:
        vault, gone = self._vault, memory.forgotten_at is not None
        vault.record_names(scope, memory.session)
        before = None
        if file is None:
            folder, _, name = self._first_path(scope, memory).rpartition("/")
            path = self._own_or_free(folder, name, memory.id)
        else:
            turn = layout.to_deleted_path if gone else layout.from_deleted_path
            path = turn(scope, file.path)
            before = _raw(vault, file.path)
            if path != file.path:
                folder, _, name = path.rpartition("/")
                path = self._own_or_free(folder, name, memory.id)
        raw = _rendered(memory, before)
        line = f"{render.first_line(memory.content)} ({op} {memory.id})"
        new = VaultFile(path, "memory", scope, memory.id, memory.version, "", _NEW)
        if file is not None and path == file.path and raw == before:
            vault.files.put(new._replace(digest=file.digest, stamp=file.stamp))
            return
        vault.write(new, raw, line, sync=sync)
        # Removed last, so that the memory has a file at every moment. An edited file stays.
        if file is not None and file.path != path and vault.unchanged_since_write(file):
            vault.remove(file)

    def _first_path(self, scope: Scope, memory: Memory) -> str:
        path = f"{layout.memory_folder(scope, memory)}/{self._first_name(scope, memory)}"
        return path if memory.forgotten_at is None else layout.to_deleted_path(scope, path)

    def is_first_path(self, path: str, scope: Scope, memory: Memory) -> bool:
        """Whether a path is the one that a new file of a memory gets."""
        return path == self._first_path(scope, memory)

    def _first_name(self, scope: Scope, memory: Memory) -> str:
        """Return the name of a memory's file, made from its first version and never changed."""
        first = memory
        if memory.version > 1:
            with self._runtime.engine.read() as tx:
                owner = log.resolve_owner(tx, scope)
                held = [] if owner is None else log.versions(tx, owner, memory.id)[:1]
            if held and held[0].body is not None:
                first = held[0].state(scope.user)
        return names.file_name(memory.id, first.subject, first.content)

    def _own_or_free(self, folder: str, name: str, id: str) -> str:
        """Return the path with this name, or a free one if another file has it.

        After a kill the file at the path may be that of this memory.
        """
        path = f"{folder}/{name}"
        known = self._vault.files.get(path)
        if known is not None and known.name == id and self._vault.unchanged_since_write(known):
            return path
        return self._vault.free_path(folder, name)

    # -- sessions and erasures ----------------------------------------------------------------

    def _sessions(self, owner: Owner, scope: Scope, entries: Sequence[LogEntry]) -> None:
        about: dict[str, list[LogEntry]] = {}
        for entry in entries:
            if entry.session is not None and entry.op in {"append", "hide", "restore", "erase"}:
                about.setdefault(entry.session, []).append(entry)
            # The turn that an erased memory came from may have been erased with it.
            if entry.op == "erase" and entry.memory and entry.body:
                for source in entry.body.get("sources", ()):
                    about.setdefault(Origin(*source).session, []).append(entry)
        for session, told in about.items():
            try:
                self.session_files.apply_entries(owner, scope, session, told)
            except OBSTACLES as error:
                self._tell(layout.session_folder(scope, session), error)

    def _erased(self, owner: Owner, scope: Scope, entries: Sequence[LogEntry]) -> None:
        """Remove erased content from the files and from the vault's own log."""
        ended = [entry for entry in entries if entry.op == "erase"]
        if not ended:
            return
        talks = {entry.session for entry in ended if entry.session}
        for entry in ended:
            talks.update(Origin(*each).session for each in (entry.body or {}).get("sources", ()))
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            ids = {entry.memory for entry in ended if entry.memory}
            ids.update(id for talk in talks for id in log.memories_from_session(tx, owner, talk))
            held = {id: log.versions(tx, owner, id) for id in sorted(ids)}
        if self._vault.config.shows(scope.space):
            self._rewrite_reworded(owner, scope, held)
            for file in self._vault.files.list_type(scope, "summary"):
                self.session_files.write_summary(owner, scope, file.name)
        else:
            self._remove_all(owner, scope, held, talks)
        blanked = {at for entry in ended for at in (entry.body or {}).get("entries", ())}

        def told(line: log_file.LogLine) -> bool:
            origin = line.get("origin") or [None]
            return _is_of(line, scope) and (
                line.get("memory") in ids
                or line.get("session") in talks
                or origin[0] in talks
                or line["position"] in blanked
            )

        self._update_log(owner, scope, told)
        told_now = (log_file.build_line(scope, entry) for entry in entries)
        if purge.scrub_damaged_lines(self._vault, chain(self._vault.journal.lines(), told_now)):
            self._vault.files.add_pending(
                scope.space, f"{layout.STATE_FOLDER}/{log_file.DAMAGED_FILE}"
            )

    def _rewrite_reworded(
        self, owner: Owner, scope: Scope, held: Mapping[str, Sequence[LogEntry]]
    ) -> None:
        """Rewrite, under new names, the files of memories whose stored content was overwritten."""
        changed = [id for id, versions in held.items() if _is_reworded(versions)]
        for id, memory in self._current(owner, scope, changed):
            self._vault.files.silence(scope.space, id)
            for file in self._vault.files.of(scope, "memory", id):
                if self._vault.unchanged_since_write(file):
                    self._vault.remove(file)
            if memory is not None:
                self.write_memory(scope, id, memory, "revise", again=True)

    def _remove_erased(self, owner: Owner, scope: Scope, last: int) -> None:
        """Apply the erasures of an owner whom the vault no longer shows."""
        files, name = self._vault.files, _erasures_key(scope)
        mark, shown = _mark_in(files.fact(name)), files.mark(scope)
        if not shown[0]:
            return
        if not self._has_entry(scope, mark):
            # The cache is new, or the store was restored from a backup.
            _refill_cache(self._vault, scope)
            mark = shown
            files.set_meta(name, json.dumps(mark))
        after = max(mark, shown)
        while True:
            with self._runtime.engine.read() as tx:
                tx.enter(owner)
                entries = log.entries(tx, owner, after[0], last, BATCH)
            if not entries:
                return
            self._erased(owner, scope, entries)
            after = (entries[-1].position, entries[-1].uuid)
            files.set_meta(name, json.dumps(after))

    def _remove_all(
        self,
        owner: Owner,
        scope: Scope,
        held: Mapping[str, Sequence[LogEntry]],
        talks: Iterable[str],
    ) -> None:
        """Remove every file that may contain erased content, without writing it again."""
        files, found = self._vault.files, self._vault.files.list_type(scope, "index")
        # Also the summaries of forks.
        found += self.session_files.stale_summaries(owner, scope)
        for id, versions in held.items():
            if versions[-1].op == "erase":
                self._remove_memory(scope, id, "erase")
            elif _is_reworded(versions):
                files.silence(scope.space, id)
                own = files.of(scope, "memory", id)
                found += [f for f in own if not f.digest or self._vault.unchanged_since_write(f)]
        for talk in talks:
            found += [each for what in ("turns", "summary") for each in files.of(scope, what, talk)]
            found += files.of(scope, "conflict", conflict_name(talk))
        for file in found:
            self._vault.remove(file)

    def _update_log(
        self, owner: Owner, scope: Scope, told: Callable[[log_file.LogLine], bool]
    ) -> None:
        """Rewrite lines of the vault's own log to what the store's log says now."""
        vault_log = self._vault.journal
        positions = sorted({line["position"] for line in vault_log.lines() if told(line)})
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            now = log.find_at_positions(tx, owner, positions, strict=True)

        def alter(line: log_file.LogLine) -> log_file.LogLine | None:
            entry = now.get(line["position"])
            return None if entry is None or not told(line) else log_file.build_line(scope, entry)

        for path in vault_log.change(alter):
            self._vault.files.add_pending(
                scope.space, path.relative_to(self._vault.root).as_posix()
            )


def _refill_cache(vault: Vault, scope: Scope) -> None:
    """Add the files of an owner to a cache that was lost, with empty digests.

    It is not known how they were written, and no sync reads files that the vault no longer shows.
    """
    survey = disk.scan_folder(vault.root, vault.path(layout.owner_folder(scope)))
    for path in survey.files:
        place = vault.parse_path(path)
        if place is None or place.scope != scope or vault.files.get(path) is not None:
            continue
        try:
            document = frontmatter.load(disk.read(vault.path(path)))
        except disk.UnreadableFile:
            continue
        name = place.session or ""
        if place.what in {"memory", "conflict"}:
            id = document.text("id") or document.text("conflict_of") or names.parse_id(path)
            name = id or conflict_name(name)
        version = render.parse_number(document.text("version")) if place.what == "summary" else 0
        vault.files.put(VaultFile(path, place.what, scope, name, version, "", _NEW))


def _erasures_key(scope: Scope) -> str:
    """Return the name of the fact that says how far an owner's erasures were applied."""
    return f"{ERASURES_DONE}{json.dumps([scope.space, scope.user])}"


def _diverged_key(scope: Scope, id: str) -> str:
    """Return the name of the fact that says where a memory's versions diverged."""
    return f"{DIVERGED}{json.dumps([scope.space, scope.user, id])}"


def _mark_in(fact: str | None) -> Mark:
    position, uuid = (0, "") if fact is None else json.loads(fact)
    return position, uuid


def _is_reworded(versions: Sequence[LogEntry]) -> bool:
    return any(version.reason == log.OVERWRITTEN_REASON for version in versions)


def _rendered(memory: Memory, before: bytes | None) -> bytes:
    try:
        return render.memory_file(memory, before)
    except VaultError as error:
        raise disk.UnusablePath(str(error)) from error


def _is_of(line: log_file.LogLine, scope: Scope) -> bool:
    return bool(line["space"] == scope.space and line["user"] == scope.user)


def _scope_of(line: log_file.LogLine) -> Scope:
    return Scope(line["space"], line["user"])


def _is_up_to(line: log_file.LogLine, mark: Mark | None) -> bool:
    return mark is None or bool(line["position"] <= mark[0])


def _raw(vault: Vault, path: str) -> bytes | None:
    try:
        return disk.read(vault.path(path))
    except disk.UnreadableFile:
        return None


def _parts(values: Sequence[T], many: int) -> Iterator[list[T]]:
    each = iter(values)
    while part := list(islice(each, many)):
        yield part
