"""The operations on the vault of a store, for the command line, the server and agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reverie.engine import log
from reverie.errors import NotFound, VaultError
from reverie.memory.space import Space
from reverie.memory.store import Store
from reverie.model import UNNAMED, Scope
from reverie.protocols import Progress
from reverie.vault import layout
from reverie.vault.actions import SyncReport
from reverie.vault.collect import Collector
from reverie.vault.file_cache import CacheDamaged
from reverie.vault.git import purge
from reverie.vault.git.commit import (
    commit_pending,
    log_withheld,
    open_repository,
    record_withheld,
    withheld_lines,
)
from reverie.vault.git.commit_policy import CommitPolicy
from reverie.vault.git.process import GitBusy
from reverie.vault.git.purge import ScrubReport
from reverie.vault.git.repo import CommitInfo, Repository
from reverie.vault.jobs import RETRY_AFTER_MS
from reverie.vault.layout import Folders, VaultConfig
from reverie.vault.log_position import LogPosition
from reverie.vault.state import MissingAction
from reverie.vault.sync import Sync
from reverie.vault.vault import Vault
from reverie.write import vault_link
from reverie.write.secret_policy import Redaction

DEFAULT_NOTE = "manual"


@dataclass(frozen=True, slots=True)
class VaultStatus:
    """The state of a vault, as ``reverie vault status`` shows it."""

    path: Path
    spaces: tuple[str, ...] | None
    files: int
    uncommitted: int
    behind: int
    """The number of log entries that the files do not show yet."""
    conflicts: tuple[str, ...]
    git: bool
    missing: tuple[str, ...] = ()
    """Deleted files whose deletion the person has to confirm."""
    withheld: tuple[str, ...] = ()
    """Files that are not committed because they contain a secret."""
    edited: tuple[str, ...] = ()
    """Files that a person changed since the last sync, or that it could not take."""
    problems: tuple[str, ...] = ()
    """A line for each file that cannot be read, with the reason."""


def init(
    store: Store,
    path: str | Path,
    *,
    spaces: Sequence[str] | None = None,
    turns: str = "together",
    progress: Progress | None = None,
) -> SyncReport:
    """Make a folder the vault of a store, write everything into it, and commit that."""
    root = Path(path).expanduser().absolute()
    _require_same_store(store, root)
    Vault.init(root, spaces, turns).close()
    # Before attaching: a worker on another machine creates a vault that was not marked as created.
    vault_link.mark_created(store.runtime, str(root))
    vault_link.attach(store.runtime, str(root))
    return sync(store, progress)


def _require_same_store(store: Store, root: Path) -> None:
    """Raise VaultError when the folder is already the vault of another store."""
    if (root / layout.STATE_FOLDER).is_dir():
        with Vault(root, VaultConfig()) as vault, vault.locked():
            Sync(vault, store).check_store()


def open_vault(handle: Store | Space) -> Vault:
    """Open the vault of a store; VaultError when it has none."""
    path = vault_link.find_path(handle.runtime)
    if path is None:
        raise VaultError("the store has no vault: make one with 'reverie vault init PATH'")
    return Vault.open(Path(path))


def sync(
    store: Store,
    progress: Progress | None = None,
    paths: Iterable[str] | None = None,
    missing: MissingAction = "ask",
) -> SyncReport:
    """Read people's changes into the store, write the store's changes to the files, and commit.

    With ``paths`` only these files are read. ``missing`` says what happens when many files were
    deleted at once: report them and wait for an answer, forget their memories, or write them again.
    """
    chosen = None if paths is None else list(paths)
    try:
        return _synced(store, progress, chosen, missing)
    except CacheDamaged:
        # The damaged cache was deleted; reading all files fills a new one.
        return _synced(store, progress, None, missing)


def _synced(
    store: Store, progress: Progress | None, paths: Sequence[str] | None, missing: MissingAction
) -> SyncReport:
    with open_vault(store) as vault, vault.locked():
        done, many = 0, _count_pending(store, vault) if progress is not None else 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, max(many, done))

        work = Sync(vault, store, missing, advance)
        if paths is None:
            work.everything()
        else:
            work.files(paths)
        try:
            commit_pending(vault, store.runtime.redaction)
        except GitBusy as error:
            work.report.problems.append(str(error))
            _commit_later(store)
        work.report.problems += withheld_lines(vault, store.runtime.redaction)
        return work.report


def _commit_later(store: Store) -> None:
    """Queue a commit of what is pending, for a worker."""
    with store.runtime.engine.write() as tx:
        tx.enter_all_owners()
        for owner in log.list_owners(tx)[:1]:
            vault_link.queue_commit(tx, store.runtime, owner, RETRY_AFTER_MS)


def status(store: Store) -> VaultStatus:
    """Return the state of a store's vault."""
    shown = CommitPolicy(store.runtime.redaction).shown
    with open_vault(store) as vault:
        files = vault.files.below("")
        position = LogPosition(vault, store.runtime)
        unusable, edited = Collector(vault, store.runtime, position, "ask").compare_only()
        report = SyncReport()
        for path, why in unusable.items():
            report.add_problem(path, why)
        return VaultStatus(
            vault.root,
            vault.config.spaces,
            len(files),
            len({each.path for each in vault.files.pending()}),
            _count_pending(store, vault),
            tuple(file.path for file in files if file.what == "conflict"),
            Repository.at(vault.root) is not None,
            tuple(path for path in vault.files.held() if vault.is_missing(path)),
            tuple(shown(each.path) for each in vault.files.withheld()),
            tuple(edited),
            tuple(report.problems),
        )


def _count_pending(store: Store, vault: Vault) -> int:
    count, marks = 0, vault.files.marks()
    with store.runtime.engine.read() as tx:
        tx.enter_all_owners()
        for owner in log.list_owners(tx):
            scope = log.scope_of(tx, owner)
            if vault.config.shows(scope.space):
                count += log.count_after(tx, owner, marks.get(scope, (0, ""))[0])
    return count


def checkpoint(store: Store, note: str = "", *, author: str = "reverie") -> str | None:
    """Commit everything in the vault with a note; None when nothing has changed."""
    redaction = store.runtime.redaction
    with open_vault(store) as vault, vault.locked(), log_withheld(vault, redaction):
        Sync(vault, store).store()
        pending = vault.files.pending()
        repository = _repository(vault, redaction)
        made = repository.checkpoint(note.strip() or DEFAULT_NOTE, author, vault.files.held())
        spaces = {each.path: each.space for each in pending}
        record_withheld(vault, repository, spaces, everything=True)
        vault.files.committed(pending)
        return made


def folders(space: Space) -> Folders:
    """Return which folder each owner has in the vault of a space."""
    with open_vault(space) as vault:
        return vault.folders


def history(space: Space, id: str | None = None, limit: int = 10) -> list[CommitInfo]:
    """Return the commits of the space's folder, or of one memory's file, newest first."""
    with open_vault(space) as vault:
        scope = Scope(space.name, space.user)
        paths = [vault.folders.owner(scope), *vault.folders.former_of(scope)]
        if id is not None:
            paths = [_require_path(vault, space, id)]
        return _repository(vault, space.runtime.redaction).log(*paths, limit=limit)


def diff(space: Space, id: str | None = None, *, since: str | None = None) -> str:
    """Return the changes since a commit, or those of the last commit, as a unified diff."""
    with open_vault(space) as vault:
        path = vault.folders.owner(Scope(space.name, space.user))
        if id is not None:
            path = _require_path(vault, space, id)
        return _repository(vault, space.runtime.redaction).diff(path, since=since)


def find_memory_file(space: Space, id: str) -> Path | None:
    """Return the path of a memory's file; None without a vault, or if it has no file there."""
    path = vault_link.find_path(space.runtime)
    if path is None or not Vault.exists(Path(path)):
        return None
    with Vault.open(Path(path)) as vault:
        found = _memory_path(vault, space, id)
        return None if found is None else vault.root / found


def _memory_path(vault: Vault, space: Space, id: str) -> str | None:
    for user in dict.fromkeys((space.user or UNNAMED, None)):
        for file in vault.files.of(Scope(space.name, user), "memory", id):
            return file.path
    return None


def _require_path(vault: Vault, space: Space, id: str) -> str:
    if (path := _memory_path(vault, space, id)) is None:
        raise NotFound(f"the vault has no file of memory {id}: run 'reverie vault sync'")
    return path


def _repository(vault: Vault, redaction: Redaction) -> Repository:
    found = open_repository(vault, redaction)
    if found is None:
        raise VaultError("git is not installed, or too old: the vault has no history")
    found.init()
    return found


def scrub(store: Store) -> ScrubReport:
    """Remove erased content from the files and from git's history, and check that it is gone."""
    with open_vault(store) as vault, vault.locked():
        Sync(vault, store).store()
        commit_pending(vault, store.runtime.redaction)
        done = purge.scrub(vault)
        commit_pending(vault, store.runtime.redaction)
        return done
