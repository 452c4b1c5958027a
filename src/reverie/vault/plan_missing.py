"""Plan what deleted files mean: forget their memories, but many at once only after confirmation.

A person who deletes one file wants it forgotten. Many missing files can be another branch, a
partial clone, a folder that was moved, or a wrong ``rm``. When a deletion would forget more than
half of an owner's or a space's memories, or more than ``MAX_AT_ONCE``, nothing is forgotten: the
files are neither forgotten nor restored until the person answers or the files are back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reverie.model import Scope
from reverie.vault.actions import (
    ACTOR,
    DELETED,
    Action,
    Adopt,
    Drop,
    Forget,
    Report,
    ReportField,
    SwitchSession,
    WriteMemory,
)
from reverie.vault.file_cache import VaultFile
from reverie.vault.state import MemoryHistory, Snapshot

# More deletions at once must be confirmed, however many files there are in all.
MAX_AT_ONCE = 20
# Fewer deletions need no confirmation, whatever their share of a space.
MIN_FOR_SHARE = 3
# Deletions within this time count together, since they may be noticed one by one.
WINDOW_MS = 60_000


class LostItem(NamedTuple):
    """What a missing file would forget: a memory, or a session with all its files."""

    scope: Scope
    what: str
    name: str


def needs_confirmation(lost: int, total: int) -> bool:
    """Whether a person must confirm this number of deletions among this number of files."""
    return lost > MAX_AT_ONCE or (lost >= MIN_FOR_SHARE and 2 * lost > total)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def plan_missing(now: Snapshot) -> list[Action]:
    """Return the actions for all deleted files, other than those that were only moved."""
    work = _Missing(now)
    work.take()
    return work.actions


class _Missing:
    def __init__(self, now: Snapshot) -> None:
        self._now = now
        self._store, self._cache = now.store, now.cache
        # Changed files that were not read in yet: one of them may be a missing file, renamed.
        unread = {
            (file.place.scope, file.document.text("id") or _name(path))
            for path, file in now.disk.changed.items()
        }
        unread |= {
            (place.scope, _name(path))
            for path in now.disk.unusable
            if (place := now.folders.parse(path)) is not None
        }
        self._gone = {
            path: file
            for path, file in sorted(now.disk.gone.items())
            if path not in now.failed
            and not {(file.scope, file.name), (file.scope, _name(path))} & unread
        }
        self._held = [file for file in self._gone.values() if file.held]
        self._sessions: dict[LostItem, bool] = {}
        self.actions: list[Action] = []

    def _add(self, action: Action) -> None:
        self.actions.append(action)

    def _report(self, about: str, field: ReportField, text: str) -> None:
        self._add(Report(about, field, text))

    def take(self) -> None:
        for file in self._cache.files:
            if file.held and file.path not in self._now.disk.gone:
                self._add(Adopt(f"held {file.path}", file._replace(held=False)))
        owners, asked = dict[Scope, list[VaultFile]](), {file.scope for file in self._held}
        for file in self._gone.values():
            owners.setdefault(file.scope, []).append(file)
        lost = dict[LostItem, list[VaultFile]]()
        for scope, files in owners.items():
            if not self._now.shows(scope):
                # The vault no longer shows this space; its files are written when it does again.
                self._drop_all(files)
            elif scope in self._cache.away and scope not in asked and self._now.missing != "forget":
                self._drop_all(files)
                self._report(
                    self._now.folders.owner(scope),
                    "problems",
                    f"all of its {len(files)} files are gone: nothing was forgotten, "
                    "they are written again",
                )
            else:
                for file in files:
                    if (item := self._item(file)) is None:
                        self._drop(file)
                    else:
                        lost.setdefault(item, []).append(file)
        if self._now.missing == "ask":
            self._hold_or_forget(lost)
        else:
            answer = self._forget if self._now.missing == "forget" else self._restore
            for item, files in lost.items():
                answer(item, files)

    def _drop_all(self, files: Sequence[VaultFile]) -> None:
        for file in files:
            self._add(Drop(file.path, file))

    # -- what would be forgotten --------------------------------------------------------------

    def _is_alone(self, file: VaultFile) -> bool:
        """Whether all files of the same memory or session are gone."""
        own = self._cache.of(file.scope, file.what, file.name)
        return all(each.path in self._gone for each in own)

    def _item(self, file: VaultFile) -> LostItem | None:
        """Return what deleting a file forgets, or None when it forgets nothing."""
        if file.what == "memory":
            lost = self._is_alone(file) and self._is_shown(file)
            return LostItem(file.scope, "memory", file.name) if lost else None
        if file.what not in {"turns", "summary"}:
            return None
        item = LostItem(file.scope, "turns", file.name)
        # A session may have thousands of files.
        if item not in self._sessions:
            self._sessions[item] = self._is_session_lost(file.scope, file.name)
        return item if self._sessions[item] else None

    def _history(self, file: VaultFile) -> MemoryHistory | None:
        """Return the memory of a file, unless it is forgotten or erased."""
        found = self._store.memories.get((file.scope, file.name))
        if found is None or found.erased or found.current.forgotten_at is not None:
            return None
        return found

    def _is_shown(self, file: VaultFile) -> bool:
        """Whether the memory of a file is not forgotten, and the person saw its last version.

        They saw what was written to the file, and what was read from it.
        """
        found = self._history(file)
        return found is not None and (
            found.entries[-1].actor == ACTOR or found.position <= self._cache.cursor(file.scope)
        )

    def _is_session_lost(self, scope: Scope, session: str) -> bool:
        files = self._cache.of(scope, "turns", session)
        known = self._store.sessions.get((scope, session))
        if known is None or known.hidden or not files:
            return False
        return self._is_alone(files[0]) and known.row.position <= self._cache.cursor(scope)

    def _drop(self, file: VaultFile) -> None:
        """Plan for a file whose deletion forgets nothing; most are written again."""
        path, scope = file.path, file.scope
        if file.what == "memory":
            found = self._history(file)
            newer = found is not None and file.version < found.current.version
            if newer and self._is_alone(file):
                text = f"{path}: deleted here and changed in the store; it is written again"
                self._report(path, "conflicts", text)
        elif file.what == "turns" and (known := self._store.sessions.get((scope, file.name))):
            shown = not known.hidden and known.row.position <= self._cache.cursor(scope)
            if shown and not self._is_alone(file):
                text = "it was a part of a conversation: it is written again"
                self._report(path, "problems", text)
        self._add(Drop(path, file))

    # -- confirmation -------------------------------------------------------------------------

    def _hold_or_forget(self, lost: Mapping[LostItem, Sequence[VaultFile]]) -> None:
        waiting = {item for file in self._held if (item := self._item(file)) is not None}
        new = [item for item in lost if item not in waiting]
        many = Counter(item.scope for item in (*waiting, *new))
        asked = self._asked_about(many) if new else set()
        for item, files in lost.items():
            if item not in waiting and item.scope not in asked:
                self._forget(item, files)
                continue
            for file in files:
                if not file.held:
                    self._add(Adopt(file.path, file._replace(held=True)))
        for scope in dict.fromkeys(item.scope for item in lost):
            if scope in asked or any(item.scope == scope for item in waiting):
                self._report(
                    self._now.folders.owner(scope),
                    "problems",
                    f"the files of {many[scope]} memories or conversations are gone, and "
                    "nothing is forgotten yet: 'reverie vault sync --missing forget' forgets "
                    "them, 'reverie vault sync --missing restore' writes their files again",
                )

    def _asked_about(self, lost: Mapping[Scope, int]) -> set[Scope]:
        """Return the owners whose deletions have to be confirmed."""
        recent, totals, asked = self._cache.deletions, self._cache.totals, set[Scope]()
        for space in dict.fromkeys(scope.space for scope in lost):
            own = [scope for scope in lost if scope.space == space]
            before = sum(many for scope, many in recent.items() if scope.space == space)
            many = sum(lost[scope] for scope in own) + before
            if many < MIN_FOR_SHARE:
                continue
            total = sum(many for scope, many in totals.items() if scope.space == space)
            if needs_confirmation(many, total + before):
                asked.update(own)
                continue
            for scope in own:
                gone = recent.get(scope, 0)
                if needs_confirmation(lost[scope] + gone, totals.get(scope, 0) + gone):
                    asked.add(scope)
        return asked

    def _forget(self, item: LostItem, files: Sequence[VaultFile]) -> None:
        """Plan to forget it, and then to drop its files: after a failure it is tried again."""
        first = files[0]
        if item.what == "memory":
            memory = self._store.memories[item.scope, item.name].current
            key = f"vault:{item.name}:{memory.version}:deleted"
            self._add(Forget(first.path, item.scope, memory, DELETED, key))
        else:
            self._add(SwitchSession(first.path, item.scope, item.name, DELETED))
        for file in files:
            self._add(Drop(first.path, file))

    def _restore(self, item: LostItem, files: Sequence[VaultFile]) -> None:
        """Plan to write deleted files again, that of a memory at its former path."""
        first, *others = files
        if item.what == "memory":
            history = self._store.memories[item.scope, item.name]
            self._add(WriteMemory(first.path, history, "restore", first.path))
            self._drop_all(others)
        else:
            self._drop_all(files)
