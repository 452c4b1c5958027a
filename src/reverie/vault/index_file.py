"""Write ``MEMORY.md``, the index of an owner's memories: counts, and the profile with links."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from reverie.embed.tokens import count_tokens
from reverie.engine import index, index_check
from reverie.model import Memory, Scope
from reverie.prompt import profile
from reverie.protocols import Owner, Transaction
from reverie.vault import disk, layout, render
from reverie.vault.file_cache import VaultFile
from reverie.vault.vault import Vault
from reverie.write.runtime import Runtime

INDEX_TOKENS = 4_000
INDEX_NOTES = 100


def render_index(
    vault: Vault, runtime: Runtime, tx: Transaction, owner: Owner, scope: Scope
) -> bytes:
    """Render the index file of an owner, with links to the files that the vault has now."""
    counts = index.statistics(tx, owner)
    now = runtime.clock.now()
    chosen = profile.choose_cached(
        runtime.profiles, tx, {owner: scope.shown_user}, now, None, INDEX_TOKENS, count_tokens
    )
    facts = sorted(chosen.memories, key=profile.category_order)
    folder = vault.folders.owner(scope)
    listed = [
        (memory, posixpath.relpath(file.path, folder))
        for memory in [*(memory for _, memory in facts), *_notes(tx, owner, scope, now)]
        for file in vault.files.of(scope, "memory", memory.id)[:1]
    ]
    has_sessions = vault.files.has_below(f"{folder}/{layout.SESSIONS}", "turns")
    return render.index_file(scope, counts.facts, counts.notes, listed, has_sessions=has_sessions)


def _notes(tx: Transaction, owner: Owner, scope: Scope, now: int) -> Iterator[Memory]:
    """Yield the newest notes that are not pinned; pinned ones are in the profile."""
    rows = index.list_memories(tx, owner, index.Filter(kinds=("note",), alive_at=now))
    newest = sorted(rows, key=lambda row: -row.first_position)[:INDEX_NOTES]
    for _, entry in index_check.read_current_entries(tx, owner, newest):
        memory = entry.state(scope.shown_user)
        if not memory.pinned:
            yield memory


def write_index(vault: Vault, runtime: Runtime, owner: Owner, scope: Scope) -> None:
    """Write the index file of an owner if it has changed."""
    with runtime.engine.read() as tx:
        tx.enter(owner)
        raw = render_index(vault, runtime, tx, owner, scope)
    path = vault.folders.index(scope)
    before = vault.files.get(path)
    if (
        before is not None
        and before.digest == disk.digest(raw)
        and vault.unchanged_since_write(before)
    ):
        return
    vault.write(VaultFile(path, "index", scope, "", 0), raw)
