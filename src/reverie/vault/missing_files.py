"""Handle deleted files: forget their memories, but many at once only after confirmation.

A person who deletes one file wants it forgotten. Many missing files can be another branch, a
partial clone, a folder that was moved, or a wrong ``rm``. When a deletion would forget more than
half of an owner's or a space's memories, or more than ``MAX_AT_ONCE``, nothing is forgotten: the
files are neither forgotten nor restored until the person answers or the files are back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from reverie.engine import log, sessions
from reverie.engine.log import LogEntry
from reverie.errors import ReverieError
from reverie.memory.space import Space
from reverie.model import Memory, Scope
from reverie.vault import layout, render
from reverie.vault.file_cache import CacheDamaged, VaultFile
from reverie.vault.session_edits import DELETED, SessionEdits
from reverie.vault.vault import Vault
from reverie.write.runtime import Runtime

# More deletions at once must be confirmed, however many files there are in all.
MAX_AT_ONCE = 20
# Fewer deletions need no confirmation, whatever their share of a space.
MIN_FOR_SHARE = 3
# Deletions within this time count together, since they may be noticed one by one.
WINDOW_MS = 60_000

MissingAction = Literal["ask", "forget", "restore"]


class LostItem(NamedTuple):
    """What a missing file would forget: a memory, or a session with all its files."""

    scope: Scope
    what: str
    name: str


class MissingReport(Protocol):
    """The part of a sync's report that missing files are written to."""

    forgotten: list[str]
    conflicts: list[str]


def needs_confirmation(lost: int, total: int) -> bool:
    """Whether a person must confirm this number of deletions among this number of files."""
    return lost > MAX_AT_ONCE or (lost >= MIN_FOR_SHARE and 2 * lost > total)


def versions_of(runtime: Runtime, scope: Scope, id: str) -> list[LogEntry]:
    """Return every version of a memory, the oldest first."""
    with runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, scope)
        return [] if owner is None else log.versions(tx, owner, id)


class MissingFiles:
    """Decides what happens with deleted files. The caller must hold the lock of the vault."""

    def __init__(
        self,
        vault: Vault,
        runtime: Runtime,
        records: SessionEdits,
        report: MissingReport,
        problem: Callable[[str, str], None],
        handle: Callable[[Scope, str | None], Space],
        answer: MissingAction = "ask",
    ) -> None:
        self._vault = vault
        self._runtime = runtime
        self._records = records
        self._report = report
        self._problem = problem
        self._handle = handle
        self._answer = answer
        # Sessions that were checked, and whether all their files are missing.
        self._lost: dict[LostItem, bool] = {}

    def take(self, gone: Iterable[VaultFile]) -> None:
        """Forget the memories of deleted files, or keep them and ask for confirmation."""
        self._lost.clear()
        held = self._still_held()
        missed = dict[Scope, list[VaultFile]]()
        for file in gone:
            if not self._is_missing(file):
                continue
            if self._vault.config.shows(file.scope.space):
                missed.setdefault(file.scope, []).append(file)
            else:
                # Tidied away. Shown again, it is written again.
                self._vault.files.drop(file.path)
                self._vault.files.add_pending(file.scope.space, file.path)
        asked = {file.scope for file in held}
        units = dict[LostItem, list[VaultFile]]()
        for scope, files in missed.items():
            if scope not in asked and self._answer != "forget" and self._is_away(scope, files):
                continue
            for file in files:
                if (unit := self._unit_of(file)) is None:
                    self._missing(file)
                else:
                    units.setdefault(unit, []).append(file)
        if self._answer == "ask":
            self._hold_or_forget(units, held)
        else:
            self._do_as_answered(units)

    def _still_held(self) -> list[VaultFile]:
        """Return the held files that are still missing; the others need no answer any more."""
        files, held = self._vault.files, list[VaultFile]()
        for path in files.held():
            file = files.get(path)
            if file is not None and self._is_missing(file):
                held.append(file)
            else:
                files.release(path)
        return held

    def _is_missing(self, file: VaultFile) -> bool:
        # What was changed first may have been written there, or moved.
        return self._vault.files.get(file.path) is not None and self._vault.is_gone(file)

    def _is_away(self, scope: Scope, files: Sequence[VaultFile]) -> bool:
        """Whether all files of an owner are missing, as when a disk is not mounted.

        If so, they are dropped from the cache, so that they are written again.
        """
        vault = self._vault
        if not vault.is_missing(f"{layout.owner_folder(scope)}/{layout.INDEX}"):
            return False
        left = vault.files.list_owner(scope)
        if any(not vault.is_gone(file) for file in left):
            return False
        vault.files.drop_owner(scope)
        for file in files:
            vault.files.add_pending(scope.space, file.path)
        self._problem(
            layout.owner_folder(scope),
            f"all of its {len(left)} files are gone: nothing was forgotten, they are written again",
        )
        return True

    # -- what would be forgotten --------------------------------------------------------------

    def _unit_of(self, file: VaultFile) -> LostItem | None:
        """Return what deleting a file forgets, or None when it forgets nothing."""
        if file.what == "memory":
            own = self._vault.files.of(file.scope, "memory", file.name)
            if any(not self._vault.is_gone(each) for each in own):
                return None
            held = self._shown_versions(file)
            return None if held is None else LostItem(file.scope, "memory", file.name)
        if file.what not in {"turns", "summary"}:
            return None
        unit = LostItem(file.scope, "turns", file.name)
        # A conversation may have thousands of files: they are looked at once.
        if unit not in self._lost:
            self._lost[unit] = self._is_session_lost(file.scope, file.name)
        return unit if self._lost[unit] else None

    def _shown_versions(self, file: VaultFile) -> list[LogEntry] | None:
        """Return the versions of a memory that is not forgotten and whose file was up to date."""
        held = versions_of(self._runtime, file.scope, file.name)
        if not held or held[-1].op == "erase":
            return None
        if held[-1].state(file.scope.user).forgotten_at is not None:
            return None
        return held if held[-1].position <= self._vault.files.cursor(file.scope) else None

    def _is_session_lost(self, scope: Scope, session: str) -> bool:
        files = self._vault.files.of(scope, "turns", session)
        if not files or any(not self._vault.is_gone(each) for each in files):
            return False
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope)
            known = None if owner is None else sessions.find(tx, owner, session)
        if known is None or known.hidden_at is not None:
            return False
        return known.position <= self._vault.files.cursor(scope)

    def _total(self, scope: Scope) -> int:
        """Return how many memories and sessions that are not forgotten have files."""
        return sum(
            len(
                {
                    file.name
                    for file in self._vault.files.list_type(scope, what)
                    if not layout.is_deleted(scope, file.path)
                }
            )
            for what in ("memory", "turns")
        )

    # -- confirmation -------------------------------------------------------------------------

    def _hold_or_forget(
        self, units: Mapping[LostItem, Sequence[VaultFile]], held: Sequence[VaultFile]
    ) -> None:
        waiting = {unit for file in held if (unit := self._unit_of(file)) is not None}
        new = [unit for unit in units if unit not in waiting]
        lost = Counter(unit.scope for unit in (*waiting, *new))
        asked = self._asked_about(lost) if new else set()
        now = self._runtime.clock.now()
        for unit, files in units.items():
            if unit in waiting or unit.scope in asked:
                for file in files:
                    self._vault.files.hold(file.path, now)
                continue
            for file in files:
                self._missing(file)
            # What failed is missed again the next time, and counts once.
            if not any(self._is_missing(file) for file in files):
                self._vault.files.note_forgotten(unit.scope, now)
        for scope in dict.fromkeys(unit.scope for unit in units):
            if scope in asked or any(unit.scope == scope for unit in waiting):
                self._problem(
                    layout.owner_folder(scope),
                    f"the files of {lost[scope]} memories or conversations are gone, and nothing "
                    "is forgotten yet: 'reverie vault sync --missing forget' forgets them, "
                    "'reverie vault sync --missing restore' writes their files again",
                )

    def _asked_about(self, lost: Mapping[Scope, int]) -> set[Scope]:
        """Return the owners whose deletions have to be confirmed."""
        recent = self._vault.files.forgotten_since(self._runtime.clock.now() - WINDOW_MS)
        asked = set[Scope]()
        for space in dict.fromkeys(scope.space for scope in lost):
            own = [scope for scope in lost if scope.space == space]
            before = sum(many for scope, many in recent.items() if scope.space == space)
            many = sum(lost[scope] for scope in own) + before
            if many < MIN_FOR_SHARE:
                continue
            every = [each for each in self._vault.files.scopes() if each.space == space]
            totals = {scope: self._total(scope) for scope in every}
            if needs_confirmation(many, sum(totals.values()) + before):
                asked.update(own)
                continue
            for scope in own:
                gone = recent.get(scope, 0)
                if needs_confirmation(lost[scope] + gone, totals.get(scope, 0) + gone):
                    asked.add(scope)
        return asked

    def _do_as_answered(self, units: Mapping[LostItem, Sequence[VaultFile]]) -> None:
        for unit, files in units.items():
            if self._answer == "forget":
                for file in files:
                    self._missing(file)
            else:
                self._restore(unit, files)
        # What was confirmed does not count against what is deleted next.
        self._vault.files.forget_window()

    def _restore(self, unit: LostItem, files: Sequence[VaultFile]) -> None:
        """Write deleted files again, that of a memory at its former path."""
        vault = self._vault
        if unit.what == "turns":
            for file in files:
                vault.files.drop(file.path)
                vault.files.add_pending(file.scope.space, file.path)
            self._records.touch(unit.scope, unit.name)
            return
        first, *others = files
        memory = versions_of(self._runtime, unit.scope, unit.name)[-1].state(unit.scope.user)
        line = f"{render.first_line(memory.content)} (restore {memory.id})"
        try:
            vault.write(first._replace(version=memory.version), render.memory_file(memory), line)
        except ReverieError as error:
            self._problem(first.path, str(error))
            return
        vault.files.release(first.path)
        for file in others:
            vault.files.drop(file.path)

    # -- forgetting ---------------------------------------------------------------------------

    def _missing(self, file: VaultFile) -> None:
        try:
            if file.what == "memory":
                self._forgotten(file)
            elif file.what == "conflict":
                self._vault.files.drop(file.path)
                self._vault.files.add_pending(file.scope.space, file.path)
            else:
                self._records.gone(file)
        except CacheDamaged:
            raise
        except ReverieError as error:
            self._problem(file.path, str(error))

    def _forgotten(self, file: VaultFile) -> None:
        """Forget a memory, then drop its file from the cache: after a failure it is tried again."""
        files = self._vault.files
        if all(other.path == file.path for other in files.of(file.scope, "memory", file.name)):
            self._forget(file)
        with files.together():
            files.drop(file.path)
            files.add_pending(file.scope.space, file.path)

    def _forget(self, file: VaultFile) -> None:
        held = versions_of(self._runtime, file.scope, file.name)
        current: Memory | None = None
        if held and held[-1].op != "erase":
            current = held[-1].state(file.scope.user)
        if current is None or current.forgotten_at is not None:
            return
        if held[-1].position > self._vault.files.cursor(file.scope):
            # The vault has not shown this version: nobody can have meant it.
            if file.version < current.version:
                self._report.conflicts.append(
                    f"{file.path}: deleted here and changed in the store; it is written again"
                )
            return
        key = f"vault:{file.name}:{current.version}:deleted"
        self._handle(file.scope, current.session).forget(file.name, reason=DELETED, key=key)
        self._report.forgotten.append(file.path)
