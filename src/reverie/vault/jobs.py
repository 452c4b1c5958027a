"""Handlers of the vault's jobs: write an owner's changes to the files, and commit them."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from reverie.agenda.jobs import Claim
from reverie.errors import VaultError
from reverie.memory.store import Store
from reverie.vault.git.commit import commit_pending, log_withheld
from reverie.vault.git.process import GitBusy
from reverie.vault.sync import Sync
from reverie.vault.vault import Vault
from reverie.write import vault_link
from reverie.write.runtime import Runtime

# Wait this long, so that changes made in one go become one commit.
COMMIT_AFTER_MS = 2_000
# The vault is on another machine, and is mirrored there; or a person's git holds a lock.
RETRY_AFTER_MS = 5_000
_log = logging.getLogger("reverie.vault")
# The watch and the worker of one process may both be the first to need the vault.
_creating = threading.Lock()


def mirror(runtime: Runtime, claim: Claim) -> None:
    """Run a ``mirror`` job: write the changes of an owner to the vault's files."""
    vault = _vault(runtime, claim)
    if vault is None:
        return
    with vault:
        with vault.locked():
            sync = Sync(vault, Store(runtime))
            sync.store(claim.owner, claim.payload.get("summary"))
            waiting = bool(vault.files.pending())
        for line in sync.report.conflicts:
            for call in runtime.on_vault_conflict or [_log.warning]:
                call(line)
        for line in sync.report.problems:
            _log.warning("%s", line)
    if sync.incomplete:
        raise VaultError("something that was erased is still in a file of the vault")
    with runtime.engine.write() as tx:
        tx.enter(claim.owner)
        claim.finish(tx)
        if waiting:
            vault_link.queue_commit(tx, runtime, claim.owner, COMMIT_AFTER_MS)


def commit(runtime: Runtime, claim: Claim) -> None:
    """Run a ``commit`` job: commit the files that were written."""
    vault = _vault(runtime, claim)
    if vault is None:
        return
    try:
        with vault, vault.locked(), log_withheld(vault, runtime.redaction):
            commit_pending(vault, runtime.redaction)
    except GitBusy:
        _wait(runtime, claim)
    else:
        _finish(runtime, claim)


def _vault(runtime: Runtime, claim: Claim) -> Vault | None:
    """Open the vault, creating it the first time; None when this process has nothing to do."""
    path = vault_link.find_path(runtime)
    if path is None:
        _finish(runtime, claim)
        return None
    root = Path(path)
    if (half := vault_link.partial_replay_problem(runtime)) is not None:
        _log.warning("%s", half)
        _wait(runtime, claim)
        return None
    create_new(runtime, root)
    if Vault.exists(root):
        return Vault.open(root)
    _log.warning("the vault %s is missing: 'reverie vault init' creates it again", root)
    _wait(runtime, claim)
    return None


def create_new(runtime: Runtime, root: Path) -> None:
    """Create the vault that the settings name; one that was created before may be unmounted."""
    with _creating:
        if (
            not Vault.exists(root)
            and root.parent.is_dir()
            and not vault_link.is_created(runtime, str(root))
        ):
            Vault.init(root).close()
            vault_link.mark_created(runtime, str(root))


def _wait(runtime: Runtime, claim: Claim) -> None:
    with runtime.engine.write() as tx:
        tx.enter(claim.owner)
        claim.reschedule(tx, runtime.clock.now() + RETRY_AFTER_MS)


def _finish(runtime: Runtime, claim: Claim) -> None:
    with runtime.engine.write() as tx:
        tx.enter(claim.owner)
        claim.finish(tx)
