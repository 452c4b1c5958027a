"""Files that people delete and bring back, or move over others: no memory loses its file."""

from __future__ import annotations

from reverie.vault.vault import Vault
from tests.vault.vaults import Kept, assert_equal


def _cached(kept: Kept) -> list[str]:
    with Vault.open(kept.root) as vault:
        return [file.path for file in vault.files.below("") if file.what == "memory"]


# -- deleted files that come back -----------------------------------------------------------------


def test_deleted_file_that_returns_edited_restores_and_revises_its_memory(kept: Kept) -> None:
    memory = kept.ana.remember("the alarm rings at ten")
    kept.sync()
    path = kept.of(memory)
    text = kept.read(path)
    kept.path(path).unlink()
    assert kept.sync().forgotten == [path]
    kept.write(path, text.replace("at ten", "at eleven"))
    report = kept.sync(path)
    assert report.revised == [path] and report.remembered == []
    assert [each.id for each in kept.ana.memories()] == [memory.id]
    assert kept.ana.get(memory.id).content == "the alarm rings at eleven"
    assert kept.files() == [path] == _cached(kept)
    assert_equal(kept)


def test_deleted_file_that_returns_with_new_labels_restores_its_memory(kept: Kept) -> None:
    memory = kept.ana.remember("the alarm rings at ten", category="home")
    kept.sync()
    path = kept.of(memory)
    text = kept.read(path)
    kept.path(path).unlink()
    kept.sync()
    kept.write(path, text.replace("category: home", "category: work"))
    assert kept.sync().revised == [path]
    assert kept.ana.get(memory.id).category == "work"
    assert kept.files() == [path]
    assert_equal(kept)


def test_edited_copy_beside_a_changed_file_in_deleted_is_a_new_memory(kept: Kept) -> None:
    memory = kept.ana.remember("the alarm rings at ten")
    kept.sync()
    path = kept.of(memory)
    text = kept.read(path)
    kept.path(path).unlink()
    kept.sync()
    deleted = kept.of(memory)
    kept.edit(deleted, "at ten", "at noon")
    kept.write(path, text.replace("at ten", "at eleven"))
    kept.sync()
    contents = {each.content for each in kept.ana.memories(include_forgotten=True)}
    assert contents == {"the alarm rings at noon", "the alarm rings at eleven"}
