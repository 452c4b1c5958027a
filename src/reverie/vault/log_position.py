"""Find out how far the vault's own log is, and go back where it and the store's log diverged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from reverie.engine import log
from reverie.errors import VaultError
from reverie.model import Scope
from reverie.vault import log_file
from reverie.vault.state import Name
from reverie.vault.vault import Vault
from reverie.write import vault_link
from reverie.write.runtime import Runtime

BATCH = 500
# The names of facts in the file cache; their values are stored and must not change.
# Set once all files were read since the cache was made.
SCANNED = "looked"
# Up to which entry the erasures of an owner were applied whom the vault no longer shows.
ERASURES_DONE = "erased:"
# The first version of a memory that only the vault has, after the store was restored from a backup.
# Kept until all files were read.
DIVERGED = "stranger:"
_LOG_SIZE = "journal"
T = TypeVar("T")

# An entry: its position and its uuid.
Mark = tuple[int, str]


class LogPosition:
    """The position that a vault's files show. The caller must hold the lock of the vault."""

    def __init__(self, vault: Vault, runtime: Runtime) -> None:
        self._vault = vault
        self._runtime = runtime
        # To check that the vault belongs to the store, all owners have to be read.
        self._is_same_store = False

    def begin(self) -> None:
        """Find out from the vault's own log where to continue, unless it is known.

        Raises VaultError when the log belongs to another store, or was not completely replayed into
        this one: it may be the only copy of what it holds.
        """
        if (half := vault_link.partial_replay_problem(self._runtime)) is not None:
            raise VaultError(half)
        files, vault_log = self._vault.files, self._vault.log
        if files.fact(_LOG_SIZE) != str(vault_log.size()):
            files.forget_cursors()
            for scope, (position, uuid) in vault_log.marks().items():
                files.set_cursor(scope, position, uuid)
            files.set_meta(_LOG_SIZE, str(vault_log.size()))
            self._is_same_store = False
        if self._is_same_store:
            return
        marks = files.marks()
        if marks and not any(self.has_entry(scope, mark) for scope, mark in marks.items()):
            self._require_same_store()
        self._is_same_store = True

    def append(self, scope: Scope, entries: Sequence[log.LogEntry]) -> None:
        """Append entries whose files are written, and record that the files show them."""
        vault = self._vault
        changed = vault.log.append(log_file.build_line(scope, entry) for entry in entries)
        with vault.files.together():
            for path in changed:
                vault.files.add_pending(scope.space, path.relative_to(vault.root).as_posix())
            vault.files.set_cursor(scope, entries[-1].position, entries[-1].uuid)
            vault.files.set_meta(_LOG_SIZE, str(vault.log.size()))

    def has_entry(self, scope: Scope, mark: Mark) -> bool:
        """Whether the store has the entry that a mark names."""
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope)
            entry = None if owner is None else log.find_at_position(tx, owner, mark[0])
        return entry is not None and entry.uuid == mark[1]

    def _require_same_store(self) -> None:
        uuids = dict[Scope, set[str]]()
        for line in self._vault.log.lines():
            scope = scope_of_line(line)
            if scope not in uuids:
                with self._runtime.engine.read() as tx:
                    owner = log.resolve_owner(tx, scope)
                    entries = [] if owner is None else list(log.all_entries(tx, owner))
                uuids[scope] = {entry.uuid for entry in entries}
            if line.get("uuid") in uuids[scope]:
                return
        raise VaultError(
            f"{self._vault.root} is the vault of another store: use another folder, "
            "or rebuild a store from it with 'reverie vault rebuild'"
        )

    # -- diverged logs ------------------------------------------------------------------------

    def rewind(self, scopes: Iterable[Scope] | None = None) -> None:
        """Go back to the last entry that store and vault have in common, for all owners or some.

        After a restore from a backup, the vault's log differs from the store's from some entry on.
        That part is removed from the vault's log, and all files are read again.
        """
        files, vault_log = self._vault.files, self._vault.log
        marks = files.marks()
        diverged_marks = {
            scope: list[Mark]()
            for scope in (marks if scopes is None else scopes)
            if marks.get(scope, (0, ""))[0] and not self.has_entry(scope, marks[scope])
        }
        if not diverged_marks:
            return
        # Done first: if the process is killed after this, all files are still read again.
        files.drop_owners(diverged_marks, (SCANNED, *map(erasures_key, diverged_marks)))
        for line in vault_log.lines():
            if (scope := scope_of_line(line)) in diverged_marks:
                diverged_marks[scope].append(log_file.line_mark(line))
        common = {
            scope: self._common(scope, sorted(marks)) for scope, marks in diverged_marks.items()
        }
        self._record_diverged(common)
        for path in vault_log.keep(lambda line: _is_up_to(line, common.get(scope_of_line(line)))):
            for space in {scope.space for scope in diverged_marks}:
                files.add_pending(space, path.relative_to(self._vault.root).as_posix())
        with files.together():
            for scope, mark in common.items():
                files.set_cursor(scope, *mark)
            files.set_meta(_LOG_SIZE, str(vault_log.size()))

    def _record_diverged(self, common: Mapping[Scope, Mark]) -> None:
        """Record the first version of each memory that the vault has and the store has not."""
        first = dict[str, int]()
        for line in self._vault.log.lines():
            scope, version = scope_of_line(line), line.get("version")
            if (
                line.get("memory")
                and type(version) is int
                and not _is_up_to(line, common.get(scope))
            ):
                name = _diverged_key((scope, line["memory"]))
                first[name] = min(version, first.get(name, version))
        with self._vault.files.together():
            for name, version in first.items():
                self._vault.files.set_meta(name, str(version))

    def diverged(self) -> dict[Name, int]:
        """Return the first version of each memory that the vault has and the store has not."""
        found = dict[Name, int]()
        for name, version in self._vault.files.list_meta(DIVERGED).items():
            space, user, id = json.loads(name)
            found[Scope(space, user), id] = int(version)
        return found

    def _common(self, scope: Scope, marks: Sequence[Mark]) -> Mark:
        """Return the last of these entries up to which the store has all of them."""
        common: Mark = (0, "")
        for part in parts(marks, BATCH):
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


def erasures_key(scope: Scope) -> str:
    """Return the name of the fact that says how far an owner's erasures were applied."""
    return f"{ERASURES_DONE}{json.dumps([scope.space, scope.user])}"


def _diverged_key(name: Name) -> str:
    """Return the name of the fact that says where a memory's versions diverged."""
    scope, id = name
    return f"{DIVERGED}{json.dumps([scope.space, scope.user, id])}"


def scope_of_line(line: log_file.LogLine) -> Scope:
    return Scope(line["space"], line["user"])


def _is_up_to(line: log_file.LogLine, mark: Mark | None) -> bool:
    return mark is None or bool(line["position"] <= mark[0])


def parts(values: Sequence[T], many: int) -> Iterator[list[T]]:
    """Split values into lists of at most ``many``."""
    each = iter(values)
    while part := list(islice(each, many)):
        yield part
