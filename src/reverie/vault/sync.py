"""Bring a store and its vault together: collect, plan, execute, until nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from reverie.engine import log
from reverie.memory.store import Store
from reverie.model import Scope
from reverie.protocols import Owner
from reverie.vault.actions import Action, AppendLog, Report, SyncReport, WriteMemory, WriteSession
from reverie.vault.collect import Collector
from reverie.vault.execute import Executor
from reverie.vault.folder_names import ensure_names
from reverie.vault.git.commit_policy import CommitPolicy
from reverie.vault.hidden_spaces import remove_erased
from reverie.vault.log_position import DIVERGED, SCANNED, LogPosition
from reverie.vault.plan import plan
from reverie.vault.state import MissingAction, Snapshot
from reverie.vault.vault import Vault

CountProgress = Callable[[int], None]
# The plans of one run after the last batch of entries. A few suffice, unless somebody keeps saving
# a file.
MAX_PLANS = 10


class Sync:
    """One sync run of a store and its vault. The caller must hold the lock of the vault."""

    def __init__(
        self,
        vault: Vault,
        store: Store,
        missing: MissingAction = "ask",
        progress: CountProgress | None = None,
    ) -> None:
        """``missing``: what to do if many files were deleted at once."""
        self._vault = vault
        self._store = store
        self._runtime = store.runtime
        self.report = SyncReport()
        # Memories and sessions whose files were missing and were written in this run.
        self.completed: list[tuple[Scope, str, str]] = []
        self._is_secret = CommitPolicy(store.runtime.redaction).is_secret_name
        self._position = LogPosition(vault, store.runtime)
        self._missing: MissingAction = missing
        self._collector = Collector(vault, store.runtime, self._position, missing)
        self._executor = Executor(vault, store, self._position, self.report, progress)

    @property
    def incomplete(self) -> bool:
        """Whether erased content is still in a file, so that another run is needed."""
        return self._executor.incomplete

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
            self._collector.look_everywhere()
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
            and vault.files.count(scope) > 0
        )

    def _run(self, owner: Owner | None = None) -> None:
        for each, scope in self._scopes(owner).items():
            if not self._vault.config.shows(scope.space):
                remove_erased(self._vault, self._runtime, self._position, each, scope)
        everywhere, plans = self._collector.looked_everywhere, 0
        while True:
            now = self._collector.snapshot(owner, self._executor.failed)
            actions = plan(now)
            changes = [action for action in actions if not isinstance(action, Report)]
            if everywhere:
                self.completed += _new_files(now, actions)
            self._vault.write_names(self._is_secret, check=everywhere)
            plans += 1
            if plans > MAX_PLANS:
                for action in changes:
                    self._executor.fail(action, "it changed again and again: the next sync goes on")
            if not self._executor.execute(actions, may_replan=plans < MAX_PLANS):
                continue
            if not changes:
                break
            if not isinstance(changes[-1], AppendLog):
                continue
            if now.store.unfinished:
                plans = 0
                continue
            # Log entries written from now on are left to the next run.
            self._collector.reads_entries = False
            if not everywhere:
                break
        self._vault.write_names(self._is_secret)
        if self._missing != "ask":
            # Deletions that were confirmed do not count towards the limit for the next ones.
            self._vault.files.forget_window()
        if everywhere and plans <= MAX_PLANS and not self.incomplete:
            with self._vault.files.together():
                self._vault.files.drop_meta(DIVERGED)
                self._vault.files.set_meta(SCANNED, "yes")


def _new_files(now: Snapshot, actions: Iterable[Action]) -> Iterator[tuple[Scope, str, str]]:
    """Yield the memories and sessions that have no file, though no entry says that they are new."""
    if now.store.entries:
        return
    for action in actions:
        if isinstance(action, WriteMemory) and action.before is None:
            yield action.history.scope, "memory", action.history.current.id
        elif isinstance(action, WriteSession) and not now.cache.of(
            action.scope, "turns", action.session
        ):
            yield action.scope, "session", action.session
