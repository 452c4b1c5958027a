"""The actions of a plan: plain values, each of which may be executed again after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from reverie.engine.log import LogEntry
from reverie.model import Memory, Scope
from reverie.text.normalize import one_line
from reverie.vault.edits import FileLabels
from reverie.vault.file_cache import VaultFile
from reverie.vault.state import DiskFile, MemoryHistory

ReportField = Literal[
    "remembered", "revised", "forgotten", "restored", "moved", "conflicts", "problems"
]
# Who changes the store because of a file, and why.
ACTOR = "vault"
EDITED = "its file was edited"
MOVED = "its file was moved to deleted/"
DELETED = "its file was deleted"
IMPORTED = "imported from its file, since the vault's log does not have it"
# How the line of a commit message begins that names an edited record, kept in a file beside it.
COPY_KEPT = "copy kept of "


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

    def add_problem(self, about: str, why: str) -> None:
        line = f"{one_line(about)}: {one_line(why)}"
        if line not in self.problems:
            self.problems.append(line)


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a plan.

    ``about`` is the path, or the memory or session, that it is about. After a failure the other
    actions about the same are not executed.
    """

    about: str


@dataclass(frozen=True, slots=True)
class Report(Action):
    """Tell the person something about a file."""

    list: ReportField
    text: str


# -- changes of the store -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remember(Action):
    """Remember what a person's new file says; ``unknown_id`` is an id that nobody has."""

    file: DiskFile
    unknown_id: str | None = None


@dataclass(frozen=True, slots=True)
class Revise(Action):
    """Revise a memory to what its file says; ``content`` is None where only labels changed."""

    file: DiskFile
    memory: Memory
    content: str | None
    labels: FileLabels
    restore: bool
    """Restore it first: it was forgotten."""
    forget: bool
    """Forget it afterwards: its file lies in ``deleted/``."""


@dataclass(frozen=True, slots=True)
class Forget(Action):
    scope: Scope
    memory: Memory
    reason: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Restore(Action):
    scope: Scope
    memory: Memory


@dataclass(frozen=True, slots=True)
class SwitchSession(Action):
    """Hide or restore a session."""

    scope: Scope
    session: str
    reason: str | None
    """Why it is hidden; None to restore it."""


# -- changes of files -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteMemory(Action):
    """Write a memory to its file, or to a new one named ``path``."""

    history: MemoryHistory
    op: str
    """What was done to it; empty where only a link in its file changes."""
    path: str
    before: VaultFile | None = None
    """The file that it has now; removed if it has another path."""


@dataclass(frozen=True, slots=True)
class RemoveFile(Action):
    """Remove a file.

    ``erased``: whatever it says now, since what it showed was erased. Otherwise it stays if a
    person changed it meanwhile.
    """

    file: VaultFile
    erased: bool = False


@dataclass(frozen=True, slots=True)
class PutBack(Action):
    """Move a record that a person moved or renamed back to its path."""

    target: str


@dataclass(frozen=True, slots=True)
class KeepStoreVersion(Action):
    """Write the store's version of a memory beside its file, which a person edited as well."""

    scope: Scope
    memory: Memory


@dataclass(frozen=True, slots=True)
class KeepEdit(Action):
    """Move a person's edit of a record to a file beside it; the record is written again."""

    file: DiskFile
    version: int


@dataclass(frozen=True, slots=True)
class WriteSession(Action):
    """Bring the files of a session up to date.

    ``append`` adds the events that they lack; ``rewrite`` writes all of them again; ``erase`` does
    so without keeping anything of the old ones.
    """

    scope: Scope
    session: str
    how: Literal["append", "rewrite", "erase"]


@dataclass(frozen=True, slots=True)
class WriteIndex(Action):
    scope: Scope


# -- changes of the cache -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Adopt(Action):
    """Record a file as it is, or a deleted one as held; ``line`` is for the commit message."""

    file: VaultFile
    line: str = ""


@dataclass(frozen=True, slots=True)
class Drop(Action):
    """Drop a file from the cache, since it is gone."""

    file: VaultFile


# -- changes of the vault's log -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EraseFromLog(Action):
    """Rewrite the lines of what was erased to what the store says now, and remove quotes of it from
    commit messages that are to be written."""

    scope: Scope
    entries: Sequence[LogEntry]
    memories: frozenset[str]
    sessions: frozenset[str]


@dataclass(frozen=True, slots=True)
class AppendLog(Action):
    """Append entries to the vault's log: their files are written."""

    scope: Scope
    entries: Sequence[LogEntry]
