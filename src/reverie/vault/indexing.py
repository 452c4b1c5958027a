"""``MEMORY.md``: what an owner knows at a glance, as long as a profile and no longer.

And which files an owner has, where the cache has lost it and nobody will look at them.
"""

from __future__ import annotations

import posixpath

from reverie.embed.tokens import count_tokens
from reverie.engine import index
from reverie.memory.resources import Resources
from reverie.model import Scope
from reverie.protocols import Owner
from reverie.text import frontmatter
from reverie.vault import disk, layout, names, rendering
from reverie.vault.conversations import Edited, conflict_name
from reverie.vault.disk import Stamp
from reverie.vault.files import File
from reverie.vault.vault import Vault

TOKENS = 4_000


def write_index(
    vault: Vault, resources: Resources, owner: Owner, scope: Scope, edited: Edited | None = None
) -> None:
    with resources.engine.read() as tx:
        tx.enter(owner)
        known = index.statistics(tx, owner)
        now = resources.clock.now()
        chosen = resources.profiles.choose(tx, {owner: scope.user}, now, None, TOKENS, count_tokens)
    folder = layout.owner_folder(scope)
    listed = [
        (memory, posixpath.relpath(file.path, folder))
        for _, memory in chosen
        for file in vault.files.of(scope, "memory", memory.id)[:1]
    ]
    raw = rendering.index_file(scope, known.facts, known.notes, listed)
    path = f"{folder}/{layout.INDEX}"
    new = File(path, "index", scope, "", 0, "", Stamp(0, 0, 0))
    before = vault.files.at(path)
    if before is not None and vault.as_we_left_it(before):
        if before.digest == disk.digest(raw):
            return
    elif edited is not None and vault.stamp(path) is not None:
        edited(before or new)
    vault.write(new, raw)


def learn_files(vault: Vault, scope: Scope) -> None:
    """Which files an owner has. How we left them nobody knows: their digest is empty."""
    found = disk.survey(vault.root, vault.path(layout.owner_folder(scope)))
    for path in found.files:
        place = vault.place_of(path)
        if place is None or place.scope != scope or vault.files.at(path) is not None:
            continue
        try:
            document = frontmatter.load(disk.read(vault.path(path)))
        except disk.Unreadable:
            continue
        name = place.session or ""
        if place.what in {"memory", "conflict"}:
            told = document.text("id") or document.text("conflict_of") or names.id_in(path)
            name = told or conflict_name(name)
        version = rendering.number(document.text("version")) if place.what == "summary" else 0
        vault.files.put(File(path, place.what, scope, name, version, "", Stamp(0, 0, 0)))
