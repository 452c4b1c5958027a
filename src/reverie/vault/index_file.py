"""Write ``MEMORY.md``, the index of an owner's memories: counts, and the profile with links."""

from __future__ import annotations

import posixpath

from reverie.embed.tokens import count_tokens
from reverie.engine import index
from reverie.model import Scope
from reverie.prompt import profile
from reverie.protocols import Owner, Transaction
from reverie.vault import disk, layout, render
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.vault import Vault
from reverie.write.runtime import Runtime

INDEX_TOKENS = 4_000


def render_index(
    vault: Vault, runtime: Runtime, tx: Transaction, owner: Owner, scope: Scope
) -> bytes:
    """Render the index file of an owner, with links to the files that the vault has now."""
    counts = index.statistics(tx, owner)
    now = runtime.clock.now()
    chosen = profile.choose_cached(
        runtime.profiles, tx, {owner: scope.user}, now, None, INDEX_TOKENS, count_tokens
    )
    folder = layout.owner_folder(scope)
    listed = [
        (memory, posixpath.relpath(file.path, folder))
        for _, memory in chosen
        for file in vault.files.of(scope, "memory", memory.id)[:1]
    ]
    return render.index_file(scope, counts.facts, counts.notes, listed)


def write_index(vault: Vault, runtime: Runtime, owner: Owner, scope: Scope) -> None:
    """Write the index file of an owner if it has changed."""
    with runtime.engine.read() as tx:
        tx.enter(owner)
        raw = render_index(vault, runtime, tx, owner, scope)
    path = f"{layout.owner_folder(scope)}/{layout.INDEX}"
    before = vault.files.get(path)
    if (
        before is not None
        and before.digest == disk.digest(raw)
        and vault.unchanged_since_write(before)
    ):
        return
    vault.write(VaultFile(path, "index", scope, "", 0, "", FileStamp(0, 0, 0)), raw)
