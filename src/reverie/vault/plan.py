"""Plan what to do so that a vault and its store say the same. Pure: no I/O, no clock, no git.

People's changes come first: they are read into the store, and the next plan, made from what is then
there, writes the store's changes to the files. So a plan never has to guess what an earlier action
led to, and after a kill the next plan continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reverie.engine.log import LogEntry
from reverie.model import Scope
from reverie.vault import layout, names
from reverie.vault.actions import (
    ACTOR,
    IMPORTED,
    Action,
    AppendLog,
    EraseFromLog,
    RemoveFile,
    Report,
    WriteIndex,
    WriteMemory,
    WriteSession,
)
from reverie.vault.file_cache import VaultFile
from reverie.vault.plan_edits import plan_edits
from reverie.vault.plan_missing import plan_missing
from reverie.vault.state import (
    MemoryHistory,
    Name,
    SessionState,
    Snapshot,
    erased_sessions,
)

_SMALL_NUMBER = re.compile(r"-[2-9]\Z")
_PART_NUMBER = re.compile(r"-(\d+)\.md\Z")


def plan(now: Snapshot) -> list[Action]:
    """Return the next actions; none, or only reports, when store and files say the same."""
    actions: list[Action] = []
    # Changed files before deleted ones, since a deleted file may have been moved.
    for step in (plan_edits, plan_missing, plan_writes):
        actions += step(now)
        if any(not isinstance(action, Report) for action in actions):
            break
    return actions


def plan_writes(now: Snapshot) -> list[Action]:
    """Return the actions that write the store's changes to files."""
    return _Writes(now).plan()


def part_number(file: VaultFile) -> int:
    """Return the number of the part of a session that a file holds."""
    found = _PART_NUMBER.search(file.path.rpartition("/")[2])
    return 1 if found is None else int(found[1])


class _Writes:
    """Plans the files that the store's changes need."""

    def __init__(self, now: Snapshot) -> None:
        self._now = now
        self._store, self._disk, self._cache = now.store, now.disk, now.cache
        self._actions: list[Action] = []

    def plan(self) -> list[Action]:
        ops = {
            (scope, entry.memory): "import" if entry.reason == IMPORTED else entry.op
            for scope, entries in self._store.entries.items()
            for entry in entries
            if entry.memory
        }
        # Sessions first, since memories link to the turns that they came from.
        for name, erased in self._sessions().items():
            self._session(name, erased=erased)
        for name, history in self._store.memories.items():
            if self._now.shows(name[0]):
                self._memory(name, history, ops.get(name))
        for scope, entries in self._store.entries.items():
            self._erasures(scope, entries)
        finished = {scope for scope in self._store.entries if scope not in self._store.unfinished}
        for scope in sorted(finished | self._cache.stale_indexes, key=str):
            self._index(scope)
        for scope, entries in self._store.entries.items():
            self._add(AppendLog(self._now.folders.owner(scope), scope, entries))
        return self._actions

    def _add(self, action: Action) -> None:
        if action.about not in self._now.failed:
            self._actions.append(action)

    def _is_persons(self, file: VaultFile) -> bool:
        """Whether a file is not ours to write: it was edited or is unusable, which was reported,
        or it was deleted and the person was asked about it."""
        path = file.path
        return path in self._disk.changed or path in self._disk.unusable or path in self._disk.gone

    # -- memories -----------------------------------------------------------------------------

    def _memory(self, name: Name, history: MemoryHistory, op: str | None) -> None:
        scope, id = name
        files = self._cache.of(scope, "memory", id)
        if history.erased:
            for file in [*files, *self._cache.of(scope, "conflict", id)]:
                self._add(RemoveFile(file.path, file, erased=True))
            return
        if any(self._is_persons(file) for file in files):
            return
        if id in self._store.affected.get(scope, ()) and history.overwritten:
            # Its file may be named after the erased words.
            for file in files:
                self._add(RemoveFile(file.path, file))
            files = []
        newest = max(files, key=lambda file: file.version, default=None)
        for file in files:
            if file is not newest:
                # A killed process left two.
                self._add(RemoveFile(file.path, file))
        memory, op = history.current, op or "revise"
        if newest is None:
            path = self._now.folders.new_file(scope, memory, history.first)
            self._add(WriteMemory(f"memory {id}", history, op, path))
        elif newest.version < memory.version:
            path = layout.relocate(newest.path, deleted=memory.forgotten_at is not None)
            self._add(WriteMemory(newest.path, history, op, _renamed(path, history), newest))
        elif name in self._store.linked:
            self._add(WriteMemory(newest.path, history, "", newest.path, newest))

    # -- sessions -----------------------------------------------------------------------------

    def _sessions(self) -> dict[Name, bool]:
        """Return the sessions to look at, and whether something in them was erased."""
        found = dict.fromkeys(self._store.sessions, False)
        for scope, entries in self._store.entries.items():
            for entry in entries:
                for session, erased in _sessions_of(entry):
                    found[scope, session] = found.get((scope, session), False) or erased
        return {name: erased for name, erased in found.items() if self._now.shows(name[0])}

    def _session(self, name: Name, *, erased: bool) -> None:
        scope, session = name
        known = self._store.sessions.get(name)
        about = f"{self._now.folders.owner(scope)}/{layout.SESSIONS}/{session}"
        turns = self._cache.of(scope, "turns", session)
        files = [*turns, *self._cache.of(scope, "summary", session)]
        if erased:
            if known is not None or files:
                self._add(WriteSession(about, scope, session, "erase"))
            return
        if known is None or (turns and all(file.held for file in turns)):
            return
        whole = self._is_whole(known, turns)
        newest = max(turns, key=lambda file: file.version, default=None)
        if any(self._is_persons(file) and (file is newest or not whole) for file in turns):
            # It was reported, and the person's file stays.
            return
        if not whole:
            self._add(WriteSession(about, scope, session, "rewrite"))
        elif not self._is_current(scope, known, turns, files):
            self._add(WriteSession(about, scope, session, "append"))

    def _is_whole(self, known: SessionState, turns: list[VaultFile]) -> bool:
        """Whether no part of a session is missing before its last one."""
        if self._now.config.turns == "apart":
            shown = sorted(file.version for file in turns)
            return shown == list(known.sequences[: len(shown)])
        numbers = sorted(part_number(file) for file in turns)
        return numbers == list(range(1, len(turns) + 1))

    def _is_current(
        self, scope: Scope, known: SessionState, turns: list[VaultFile], files: list[VaultFile]
    ) -> bool:
        reached = max((file.version for file in turns), default=0)
        if reached < known.last:
            return False
        ours = [file for file in files if not self._is_persons(file)]
        if any(layout.is_deleted(file.path) != known.hidden for file in ours):
            return False
        summaries = self._cache.of(scope, "summary", known.row.session)
        if any(file.held for file in summaries):
            return True
        return [file.version for file in summaries] == ([known.summary] if known.summary else [])

    # -- erasures, index ----------------------------------------------------------------------

    def _erasures(self, scope: Scope, entries: Iterable[LogEntry]) -> None:
        """Plan to remove what was erased from the vault's log."""
        ended = tuple(entry for entry in entries if entry.op == "erase")
        if not ended:
            return
        memories = {entry.memory for entry in ended if entry.memory}
        memories |= self._store.affected.get(scope, set())
        about, gone = self._now.folders.owner(scope), frozenset(erased_sessions(ended))
        self._add(EraseFromLog(about, scope, ended, frozenset(memories), gone))

    def _index(self, scope: Scope) -> None:
        path = self._now.folders.index(scope)
        if self._now.shows(scope) and path not in self._disk.changed:
            self._add(WriteIndex(path, scope))


def _renamed(path: str, history: MemoryHistory) -> str:
    """Return another path for a file that is named after a subject that its memory no longer has.

    A name that a person gave stays, and so does the file that a person is just editing.
    """
    folder, _, name = path.rpartition("/")
    subject = history.current.subject
    if subject is None or history.entries[-1].actor == ACTOR:
        return path
    # Only a small number is ours: a larger one is more likely a person's, such as area-51.
    stem, new = name.removesuffix(".md"), names.file_stem(subject, "")
    stems = {stem, _SMALL_NUMBER.sub("", stem)}
    former = {names.file_stem(each, "") for each in history.subjects}
    return path if new in stems or not stems & former else f"{folder}/{new}.md"


def _sessions_of(entry: LogEntry) -> Iterable[tuple[str, bool]]:
    """Yield the sessions whose files an entry changes, and whether it erased something there."""
    if entry.session is not None and entry.op in {"append", "hide", "restore", "erase"}:
        # Entries that hide or restore a session never have a body.
        switches = entry.op in {"hide", "restore"}
        yield entry.session, entry.op == "erase" or (entry.body is None and not switches)
    if entry.op == "erase" and entry.memory:
        # The turn that an erased memory came from may have been erased with it.
        for session in erased_sessions([entry]):
            yield session, True
