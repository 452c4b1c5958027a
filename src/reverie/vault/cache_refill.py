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
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.session_files import conflict_name
from reverie.vault.vault import Vault


def refill_cache(vault: Vault, scope: Scope) -> None:
    """How we left them nobody knows: their digest is empty."""
    found = disk.scan_folder(vault.root, vault.path(layout.owner_folder(scope)))
    for path in found.files:
        place = vault.parse_path(path)
        if place is None or place.scope != scope or vault.files.at(path) is not None:
            continue
        try:
            document = frontmatter.load(disk.read(vault.path(path)))
        except disk.UnreadableFile:
            continue
        name = place.session or ""
        if place.what in {"memory", "conflict"}:
            told = document.text("id") or document.text("conflict_of") or names.parse_id(path)
            name = told or conflict_name(name)
        version = render.parse_number(document.text("version")) if place.what == "summary" else 0
        vault.files.put(VaultFile(path, place.what, scope, name, version, "", FileStamp(0, 0, 0)))
