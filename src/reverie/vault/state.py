"""What a plan is made from: the store, the disk and the file cache, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from reverie.engine.log import OVERWRITTEN_REASON, LogEntry
from reverie.engine.sessions import SessionRow
from reverie.model import Memory, Origin, Scope
from reverie.text.frontmatter import Document
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.layout import Folders, ParsedPath, VaultConfig

Name = tuple[Scope, str]
"""A memory or a session: its owner, and its id."""
MissingAction = Literal["ask", "forget", "restore"]


# -- the store ------------------------------------------------------------------------------------


class MemoryHistory(NamedTuple):
    """A memory as the store has it: its entries, the oldest first."""

    scope: Scope
    entries: tuple[LogEntry, ...]

    @property
    def position(self) -> int:
        return self.entries[-1].position

    @property
    def erased(self) -> bool:
        return self.entries[-1].op == "erase"

    @property
    def overwritten(self) -> bool:
        """Whether the stored content of a version was replaced, because its source was erased."""
        return any(entry.reason == OVERWRITTEN_REASON for entry in self.entries)

    @property
    def current(self) -> Memory:
        return self.entries[-1].state(self.scope.user)

    @property
    def first(self) -> Memory:
        """The version that the memory's file is named after."""
        entry = self.entries[0]
        return self.current if entry.body is None else entry.state(self.scope.user)

    @property
    def origin(self) -> Origin | None:
        """The event that the newest version with one came from; sequence 0 is no event."""
        origins = (entry.origin for entry in reversed(self.entries))
        return next((each for each in origins if each is not None and each.sequence), None)

    @property
    def subjects(self) -> frozenset[str]:
        """Every subject that the memory had."""
        return frozenset(state.subject for state in self.states().values() if state.subject)

    def states(self) -> dict[int, Memory]:
        """Return every version whose content was not erased."""
        return {
            entry.version: entry.state(self.scope.user)
            for entry in self.entries
            if entry.body is not None and entry.op != "erase"
        }


class SessionState(NamedTuple):
    """A session as the store has it."""

    row: SessionRow
    last: int
    """The sequence of its last event that was not erased."""
    sequences: tuple[int, ...]
    """Of all such events, in order; read only where each turn has a file of its own."""
    summary: int
    """The epoch of its summary, 0 without one."""
    switched: int = 0
    """The position of the entry that last hid or restored it."""

    @property
    def hidden(self) -> bool:
        return self.row.hidden_at is not None


@dataclass
class StoreState:
    """The part of the store that a plan is about."""

    owners: set[Scope] = field(default_factory=set)
    """Those whose index file was changed, as far as they exist."""
    memories: dict[Name, MemoryHistory] = field(default_factory=dict)
    sessions: dict[Name, SessionState] = field(default_factory=dict)
    entries: dict[Scope, Sequence[LogEntry]] = field(default_factory=dict)
    """The next entries of each owner that the vault does not have yet."""
    unfinished: set[Scope] = field(default_factory=set)
    """Owners that have more entries than these."""
    affected: dict[Scope, set[str]] = field(default_factory=dict)
    """Memories whose stored content an erasure among the entries may have changed."""
    linked: set[Name] = field(default_factory=set)
    """Memories that came from a session which an entry hides or restores."""


# -- the disk -------------------------------------------------------------------------------------


class DiskFile(NamedTuple):
    """A file that differs from what the cache says, as it is now."""

    path: str
    place: ParsedPath
    raw: bytes
    digest: str
    stamp: FileStamp
    document: Document
    sealed: bool = False
    """Whether it is a record that nobody edited since Reverie wrote it."""
    last: int | None = None
    """The last sequence of a sealed file of turns, or the epoch of a summary; None when the store
    does not have what it says."""

    def as_known(self, name: str, version: int = 0) -> VaultFile:
        """Return what the cache is to say of it, as the file of a memory or session."""
        what, scope = self.place.what, self.place.scope
        return VaultFile(self.path, what, scope, name, version, self.digest, self.stamp)


@dataclass
class DiskState:
    """The files that differ from the cache."""

    changed: dict[str, DiskFile] = field(default_factory=dict)
    gone: dict[str, VaultFile] = field(default_factory=dict)
    """Files of the cache that do not exist."""
    unusable: dict[str, str] = field(default_factory=dict)
    """Paths that cannot be read or written, and why; they stay as they are."""


# -- the cache ------------------------------------------------------------------------------------


@dataclass
class CacheState:
    """What the cache says of the files that a plan is about, and of each owner."""

    files: Sequence[VaultFile] = ()
    cursors: Mapping[Scope, int] = field(default_factory=dict)
    """The position of the last entry that each owner's files show."""
    deletions: Mapping[Scope, int] = field(default_factory=dict)
    """How many memories were forgotten lately because their files were deleted."""
    totals: Mapping[Scope, int] = field(default_factory=dict)
    """How many memories and sessions that are not forgotten have files; only if some are gone."""
    away: frozenset[Scope] = frozenset()
    """Owners of whom every file is gone."""
    diverged: Mapping[Name, int] = field(default_factory=dict)
    """The first version of a memory that only the vault has, after a restore from a backup."""
    stale_indexes: frozenset[Scope] = frozenset()

    @cached_property
    def _by_path(self) -> dict[str, VaultFile]:
        return {file.path: file for file in self.files}

    @cached_property
    def _by_name(self) -> dict[tuple[Scope, str, str], list[VaultFile]]:
        found: dict[tuple[Scope, str, str], list[VaultFile]] = {}
        for file in self.files:
            found.setdefault((file.scope, file.what, file.name), []).append(file)
        return found

    @cached_property
    def held(self) -> frozenset[str]:
        """The deleted files that wait for an answer."""
        return frozenset(file.path for file in self.files if file.held)

    def get(self, path: str) -> VaultFile | None:
        return self._by_path.get(path)

    def of(self, scope: Scope, what: str, name: str) -> list[VaultFile]:
        """Return the files of one memory or session."""
        return self._by_name.get((scope, what, name), [])

    def cursor(self, scope: Scope) -> int:
        return self.cursors.get(scope, 0)


@dataclass
class Snapshot:
    """Everything that a plan is made from."""

    store: StoreState
    disk: DiskState
    cache: CacheState
    config: VaultConfig = VaultConfig()
    missing: MissingAction = "ask"
    folders: Folders = field(default_factory=Folders)
    failed: frozenset[str] = frozenset()
    """The subjects (``Action.about``) of actions that failed earlier in this run."""

    def shows(self, scope: Scope) -> bool:
        return self.config.shows(scope.space)


def names_of(files: Iterable[VaultFile], *what: str) -> set[Name]:
    """Return the memories or sessions that these files belong to."""
    return {(file.scope, file.name) for file in files if file.what in what}


def erased_sessions(ended: Iterable[LogEntry]) -> set[str]:
    """Return the sessions that erasures are about, or that erased memories came from."""
    found = {entry.session for entry in ended if entry.session}
    for entry in ended:
        found.update(Origin(*each).session for each in (entry.body or {}).get("sources", ()))
    return found
