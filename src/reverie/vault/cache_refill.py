"""Which files an owner has, where the cache has lost it and nobody will look at them."""

from __future__ import annotations

from reverie.model import Scope
from reverie.text import frontmatter
from reverie.vault import (
    disk,
    layout,
    names,
    render,
)
from reverie.vault.disk import Stamp
from reverie.vault.file_cache import File
from reverie.vault.session_files import conflict_name
from reverie.vault.vault import Vault


def learn_files(vault: Vault, scope: Scope) -> None:
    """How we left them nobody knows: their digest is empty."""
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
        version = render.number(document.text("version")) if place.what == "summary" else 0
        vault.files.put(File(path, place.what, scope, name, version, "", Stamp(0, 0, 0)))
