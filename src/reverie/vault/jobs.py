"""What the agenda does for the vault: mirror an owner's changes, and commit what was written."""

from __future__ import annotations

import logging
from pathlib import Path

from reverie.agenda.jobs import Claim
from reverie.memory.store import Store
from reverie.vault.git.commit import commit_pending, withheld_logged
from reverie.vault.reader import Sync
from reverie.vault.vault import Vault
from reverie.write import vault_link
from reverie.write.runtime import Resources

# What is learned in one go is one commit.
COMMIT_AFTER_MS = 2_000
# A vault of another machine: whoever has it mirrors it.
ELSEWHERE_MS = 5_000
_log = logging.getLogger("reverie.vault")


def mirror(resources: Resources, claim: Claim) -> None:
    """What a ``mirror`` job does."""
    vault = _vault(resources, claim)
    if vault is None:
        return
    with vault:
        with vault.locked():
            sync = Sync(vault, Store(resources))
            sync.mirror.owner(claim.owner)
            if (session := claim.payload.get("summary")) is not None:
                sync.mirror.summary(claim.owner, session)
            waiting = bool(vault.files.pending())
        for line in (*sync.report.conflicts, *sync.report.problems):
            _log.warning("%s", line)
    with resources.engine.write() as tx:
        tx.enter(claim.owner)
        claim.finish(tx)
        if waiting:
            vault_link.await_commit(tx, resources, claim.owner, COMMIT_AFTER_MS)


def commit(resources: Resources, claim: Claim) -> None:
    """What a ``commit`` job does."""
    vault = _vault(resources, claim)
    if vault is None:
        return
    with vault, vault.locked(), withheld_logged(vault, resources.redaction):
        commit_pending(vault, resources.redaction)
    _finish(resources, claim)


def _vault(resources: Resources, claim: Claim) -> Vault | None:
    """The vault, made the first time; None when there is nothing for this process to do."""
    path = vault_link.path_of(resources)
    if path is None:
        _finish(resources, claim)
        return None
    root = Path(path)
    if (half := vault_link.untold(resources)) is not None:
        _log.warning("%s", half)
        _wait(resources, claim)
        return None
    if Vault.is_at(root):
        return Vault.open(root)
    if root.parent.is_dir() and not vault_link.was_made(resources, path):
        vault = Vault.init(root)
        vault_link.note_made(resources, path)
        return vault
    _log.warning("the vault %s is away: 'reverie vault init' makes it anew", root)
    _wait(resources, claim)
    return None


def _wait(resources: Resources, claim: Claim) -> None:
    with resources.engine.write() as tx:
        tx.enter(claim.owner)
        claim.again(tx, resources.clock.now() + ELSEWHERE_MS)


def _finish(resources: Resources, claim: Claim) -> None:
    with resources.engine.write() as tx:
        tx.enter(claim.owner)
        claim.finish(tx)
