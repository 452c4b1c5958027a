"""Bring a store and its vault together: collect, plan, execute, until nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from reverie.engine import log
from reverie.memory.store import Store
from reverie.model import Scope
from reverie.protocols import Owner
from reverie.vault.actions import (
    Action,
    AppendLog,
    EraseFromLog,
    Report,
    SyncReport,
    WriteMemory,
    WriteSession,
)
from reverie.vault.collect import Collector
from reverie.vault.execute import Executor
from reverie.vault.folder_names import ensure_names
from reverie.vault.git.commit_policy import CommitPolicy
from reverie.vault.hidden_spaces import remove_erased
from reverie.vault.log_position import DIVERGED, SCANNED, LogPosition
from reverie.vault.plan import plan
from reverie.vault.state import MissingAction, Snapshot
from reverie.vault.vault import Vault

Progress = Callable[[int], None]
# A run ends when one of its last plans comes again.
MAX_CYCLE = 4


class Sync:
    """One run between a store and its vault. The caller must hold the lock of the vault."""

    def __init__(
        self,
        vault: Vault,
        store: Store,
        missing: MissingAction = "ask",
        progress: Progress | None = None,
    ) -> None:
        """``missing`` says what happens when many files were deleted at once."""
        self._vault = vault
        self._store = store
        self._runtime = store.runtime
        self.report = SyncReport()
        # Memories and sessions that had no file, though the vault was to show them.
        self.completed: list[tuple[Scope, str, str]] = []
        # Whether something that was erased is still in a file, so that the run has to be repeated.
        self.incomplete = False
        self._stuck = False
        self._is_secret = CommitPolicy(store.runtime.redaction).is_secret_name
        self._position = LogPosition(vault, store.runtime)
        self._collector = Collector(vault, store.runtime, self._position, missing)
        self._executor = Executor(vault, store, self._position, self.report, progress)

    def everything(self) -> SyncReport:
        """Compare all files with the store, and bring both together."""
        self._begin()
        self._collector.look_everywhere()
        self._run()
        return self.report

    def files(self, paths: Iterable[str]) -> SyncReport:
        """Read the files and folders that a watcher saw change, and write the store's changes."""
        self._begin()
        self._position.rewind()
        if self._vault.files.fact(SCANNED) is None:
            return self.everything()
        self._collector.look_at(paths)
        self._run()
        return self.report

    def store(self, owner: Owner | None = None, summary: str | None = None) -> SyncReport:
        """Write the store's changes to the files, of one owner or all.

        ``summary`` names a session of the owner whose summary changed.
        """
        self._begin()
        scopes = self._scopes(owner)
        self._position.rewind(scopes.values())
        if self._vault.files.fact(SCANNED) is None or any(map(self._is_away, scopes.values())):
            self._collector.look_everywhere()
        if owner is not None and summary is not None:
            self._collector.look_at_session(scopes[owner], summary)
        self._run(owner)
        return self.report

    def check_store(self) -> None:
        """Raise VaultError when the vault belongs to another store."""
        self._position.begin()

    def _begin(self) -> None:
        self._position.begin()
        ensure_names(self._vault, self._runtime.redaction)

    def _scopes(self, owner: Owner | None) -> dict[Owner, Scope]:
        """Return the scope of one owner, or of all."""
        with self._runtime.engine.read() as tx:
            tx.enter_all_owners()
            owners = log.list_owners(tx) if owner is None else [owner]
            return {each: log.scope_of(tx, each) for each in owners}

    def _is_away(self, scope: Scope) -> bool:
        """Whether the folder of an owner is missing as a whole."""
        vault = self._vault
        return (
            vault.config.shows(scope.space)
            and vault.is_missing(vault.folders.owner(scope))
            and vault.files.knows(scope)
        )

    def _run(self, owner: Owner | None = None) -> None:
        for each, scope in self._scopes(owner).items():
            if not self._vault.config.shows(scope.space):
                remove_erased(self._vault, self._runtime, self._position, each, scope)
        before = list[Sequence[Action]]()
        while True:
            everywhere = self._collector.looked_everywhere
            now = self._collector.snapshot(owner, check=everywhere, failed=self._executor.failed)
            actions = plan(now)
            if everywhere:
                self.completed += _new_files(now, actions)
            self._vault.write_names(self._is_secret, check=everywhere)
            if not self._executor.execute(actions):
                before = []
                continue
            changes = [action for action in actions if not isinstance(action, Report)]
            if any(isinstance(action, AppendLog) for action in changes):
                self._collector.stop_at_the_last_entries()
            if changes and changes in before:
                self._give_up(changes)
            elif changes and not everywhere and not now.store.unfinished and _is_last(changes):
                break
            if not changes:
                break
            before = [*before[1 - MAX_CYCLE :], changes]
        self._vault.write_names(self._is_secret)
        self.incomplete = bool(self._executor.unerased)
        if everywhere and not self._stuck:
            with self._vault.files.together():
                self._vault.files.drop_meta(DIVERGED)
                self._vault.files.set_meta(SCANNED, "yes")

    def _give_up(self, changes: Sequence[Action]) -> None:
        """Leave what was done to no effect, so that the rest of the run is not kept from ending.

        That is a defect, unless the log of an owner waits for an erasure that failed.
        """
        self._stuck = True
        for action in changes:
            waits = (
                isinstance(action, AppendLog | EraseFromLog)
                and action.scope in self._executor.unerased
            )
            if not waits and action.about not in self._executor.failed:
                self.report.add_problem(action.about, "what it needs was done, to no effect")
            self._executor.failed.add(action.about)


def _is_last(actions: Sequence[Action]) -> bool:
    """Whether actions end with the log: the files show everything that the store had to say."""
    return isinstance(actions[-1], AppendLog)


def _new_files(now: Snapshot, actions: Iterable[Action]) -> Iterator[tuple[Scope, str, str]]:
    """Yield the memories and sessions that have no file, though no entry says that they are new."""
    if now.store.entries:
        return
    for action in actions:
        if isinstance(action, WriteMemory) and action.before is None:
            yield action.scope, "memory", action.memory.id
        elif isinstance(action, WriteSession) and not now.cache.of(
            action.scope, "turns", action.session
        ):
            yield action.scope, "session", action.session
