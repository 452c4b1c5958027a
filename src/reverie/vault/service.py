"""What the command line, the server and agents do with the vault of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reverie.errors import NotFound, VaultError
from reverie.memory.space import Space
from reverie.memory.store import Store
from reverie.model import Scope
from reverie.vault import layout
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
from reverie.vault.git.purge import ScrubReport
from reverie.vault.git.repo import CommitInfo, Repository
from reverie.vault.missing_files import MissingAction
from reverie.vault.reader import Sync, SyncReport
from reverie.vault.vault import Vault, VaultConfig
from reverie.write import vault_link
from reverie.write.secret_policy import Redaction

DEFAULT_NOTE = "manual"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class VaultStatus:
    """A vault at a glance."""

    path: Path
    spaces: tuple[str, ...] | None
    files: int
    uncommitted: int
    behind: int
    """Entries of the log that the files do not show yet."""
    conflicts: tuple[str, ...]
    git: bool
    missing: tuple[str, ...] = ()
    """Files that are gone, and of which the person has to say whether they meant it."""
    withheld: tuple[str, ...] = ()
    """Files that stay out of git because they hold a secret."""


def init(
    store: Store,
    path: str | Path,
    *,
    spaces: Sequence[str] | None = None,
    turns: str = "together",
    progress: Progress | None = None,
) -> SyncReport:
    """Make a folder the vault of a store, and write all there is into it, in one commit."""
    root = Path(path).expanduser().absolute()
    _require_same_store(store, root)
    Vault.init(root, spaces, turns).close()
    # First: a worker on another machine makes a folder that was never made.
    vault_link.mark_created(store._runtime, str(root))
    vault_link.attach(store._runtime, str(root))
    return sync(store, progress)


def _require_same_store(store: Store, root: Path) -> None:
    """Another store's vault stays as it is, and this store without one."""
    if (root / layout.STATE_FOLDER).is_dir():
        with Vault(root, VaultConfig()) as vault, vault.locked():
            Sync(vault, store).mirror.begin()


def open_vault(store: Store) -> Vault:
    """The vault of a store."""
    path = vault_link.find_path(store._runtime)
    if path is None:
        raise VaultError("the store has no vault: make one with 'reverie vault init PATH'")
    return Vault.open(Path(path))


def sync(
    store: Store,
    progress: Progress | None = None,
    paths: Iterable[str] | None = None,
    missing: MissingAction = "ask",
) -> SyncReport:
    """People's changes into the store, the store's into the files, all of it into git.

    ``paths``: only these were changed by people. ``missing`` says what becomes of many files that
    are gone at once: they are held and reported, forgotten, or written again.
    """
    chosen = None if paths is None else list(paths)
    try:
        return _synced(store, progress, chosen, missing)
    except CacheDamaged:
        # Now there is a new cache, which is filled by looking at all there is.
        return _synced(store, progress, None, missing)


def _synced(
    store: Store, progress: Progress | None, paths: Sequence[str] | None, missing: MissingAction
) -> SyncReport:
    with open_vault(store) as vault, vault.locked():
        work = Sync(vault, store, missing)
        if paths is None:
            work.everything()
        else:
            work.read_paths(paths)
        done, many = 0, _count_pending(store, vault) if progress is not None else 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, max(many, done))

        work.mirror.write_all(advance)
        if paths is None:
            work.mirror.complete()
        commit_pending(vault, store._runtime.redaction)
        work.report.problems += withheld_lines(vault, store._runtime.redaction)
        return work.report


def status(store: Store) -> VaultStatus:
    shown = CommitPolicy(store._runtime.redaction).shown
    with open_vault(store) as vault:
        files = vault.files.below("")
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
        )


def _count_pending(store: Store, vault: Vault) -> int:
    from reverie.engine import log

    count = 0
    with store._runtime.engine.read() as tx:
        tx.enter_all_owners()
        for owner in log.list_owners(tx):
            scope = log.scope_of(tx, owner)
            if vault.config.shows(scope.space):
                count += log.count_after(tx, owner, vault.files.cursor(scope))
    return count


def checkpoint(store: Store, note: str = "", *, author: str = "reverie") -> str | None:
    """Commit all that the vault holds, under a note; None: nothing has changed."""
    redaction = store._runtime.redaction
    with open_vault(store) as vault, vault.locked(), log_withheld(vault, redaction):
        Sync(vault, store).mirror.write_all()
        pending = vault.files.pending()
        repository = _repository(vault, redaction)
        made = repository.checkpoint(note.strip() or DEFAULT_NOTE, author, vault.files.held())
        spaces = {each.path: each.space for each in pending}
        record_withheld(vault, repository, spaces, everything=True)
        vault.files.committed(pending)
        return made


def history(space: Space, id: str | None = None, limit: int = 10) -> list[CommitInfo]:
    """The commits of the vault, or of one memory's file, the newest first."""
    with open_vault(_store(space)) as vault:
        path = layout.owner_folder(_scope(space)) if id is None else _path(vault, space, id)
        return _repository(vault, space._runtime.redaction).log(path, limit)


def diff(space: Space, id: str | None = None, *, since: str | None = None) -> str:
    """What has changed since a commit, or with the last one."""
    with open_vault(_store(space)) as vault:
        path = layout.owner_folder(_scope(space)) if id is None else _path(vault, space, id)
        return _repository(vault, space._runtime.redaction).diff(path, since=since)


def find_memory_file(space: Space, id: str) -> Path | None:
    """The file of a memory; None without a vault, or where the vault does not show it."""
    path = vault_link.find_path(space._runtime)
    if path is None or not Vault.exists(Path(path)):
        return None
    with Vault.open(Path(path)) as vault:
        for user in dict.fromkeys((space.user, None)):
            for file in vault.files.of(Scope(space.name, user), "memory", id):
                return vault.root / file.path
    return None


def _path(vault: Vault, space: Space, id: str) -> str:
    for user in dict.fromkeys((space.user, None)):
        for file in vault.files.of(Scope(space.name, user), "memory", id):
            return file.path
    raise NotFound(f"the vault has no file of memory {id}: run 'reverie vault sync'")


def _repository(vault: Vault, redaction: Redaction) -> Repository:
    found = open_repository(vault, redaction)
    if found is None:
        raise VaultError("git is not installed, or too old: the vault has no history")
    found.init()
    return found


def _store(space: Space) -> Store:
    return Store(space._runtime)


def _scope(space: Space) -> Scope:
    return Scope(space.name, space.user)


def scrub(store: Store) -> ScrubReport:
    """Take what was erased out of the files and of git's history, and look whether it is gone."""
    with open_vault(store) as vault, vault.locked():
        Sync(vault, store).mirror.write_all()
        commit_pending(vault, store._runtime.redaction)
        return purge.scrub(vault)
