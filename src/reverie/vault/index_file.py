"""Write ``MEMORY.md``, the index of an owner's memories: counts, and the profile with links."""

from __future__ import annotations

import posixpath

from reverie.embed.tokens import count_tokens
from reverie.engine import index
from reverie.model import Scope
from reverie.prompt import profile
from reverie.protocols import Owner
from reverie.vault import disk, layout, render
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.session_files import OnEdited
from reverie.vault.vault import Vault
from reverie.write.runtime import Runtime

INDEX_TOKENS = 4_000


def write_index(
    vault: Vault, runtime: Runtime, owner: Owner, scope: Scope, edited: OnEdited | None = None
) -> None:
    """Write the index file of an owner if it has changed; ``edited`` is called if a person did."""
    with runtime.engine.read() as tx:
        tx.enter(owner)
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
    raw = render.index_file(scope, counts.facts, counts.notes, listed)
    path = f"{folder}/{layout.INDEX}"
    new = VaultFile(path, "index", scope, "", 0, "", FileStamp(0, 0, 0))
    before = vault.files.get(path)
    if before is not None and vault.unchanged_since_write(before):
        if before.digest == disk.digest(raw):
            return
    elif edited is not None and vault.stamp(path) is not None:
        edited(before or new)
    vault.write(new, raw)
