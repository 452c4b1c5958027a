"""Files that people delete and bring back, or move over others: no memory loses its file."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from reverie import Memory
from reverie.vault.vault import Vault
from tests.messages import user
from tests.vault.vaults import Kept, assert_equal


def _cached(kept: Kept) -> list[str]:
    with Vault.open(kept.root) as vault:
        return [file.path for file in vault.files.below("") if file.what == "memory"]


# -- deleted files that come back -----------------------------------------------------------------


def forget_by_deleting(kept: Kept, category: str = "general") -> tuple[Memory, str, str]:
    """A memory whose file was deleted, and the path and text of that file."""
    memory = kept.ana.remember("the alarm rings at ten", category=category)
    kept.sync()
    path = kept.of(memory)
    text = kept.read(path)
    kept.path(path).unlink()
    assert kept.sync().forgotten == [path]
    return memory, path, text


def test_deleted_file_that_returns_edited_restores_and_revises_its_memory(kept: Kept) -> None:
    memory, path, text = forget_by_deleting(kept)
    kept.write(path, text.replace("at ten", "at eleven"))
    report = kept.sync(path)
    assert report.revised == [path] and report.remembered == []
    assert [each.id for each in kept.ana.memories()] == [memory.id]
    assert kept.ana.get(memory.id).content == "the alarm rings at eleven"
    assert kept.files() == [path] == _cached(kept)
    assert_equal(kept)


def test_deleted_file_that_returns_with_new_labels_restores_its_memory(kept: Kept) -> None:
    memory, path, text = forget_by_deleting(kept, category="home")
    kept.write(path, text.replace("category: home", "category: work"))
    assert kept.sync().revised == [path]
    assert kept.ana.get(memory.id).category == "work"
    assert kept.files() == [path]
    assert_equal(kept)


def test_edited_copy_beside_a_changed_file_in_deleted_is_a_new_memory(kept: Kept) -> None:
    memory, path, text = forget_by_deleting(kept)
    deleted = kept.of(memory)
    kept.edit(deleted, "at ten", "at noon")
    kept.write(path, text.replace("at ten", "at eleven"))
    kept.sync()
    contents = {each.content for each in kept.ana.memories(include_forgotten=True)}
    assert contents == {"the alarm rings at noon", "the alarm rings at eleven"}


# -- files moved over others ----------------------------------------------------------------------


@pytest.mark.parametrize("watched", [True, False])
def test_file_moved_over_another_leaves_both_memories_a_file(kept: Kept, watched: bool) -> None:
    one, two = kept.ana.remember("alpha words here"), kept.ana.remember("beta things there")
    kept.sync()
    first, second = kept.of(one), kept.of(two)
    kept.move(first, second)
    report = kept.sync(first, second) if watched else kept.sync()
    assert report.moved == [f"{first} → {second}"] and not report.forgotten
    assert kept.of(one) == second
    assert kept.of(two) == second.replace(".md", "-2.md")
    assert_equal(kept)


def test_forgotten_file_that_another_was_moved_over_stays_forgotten(kept: Kept) -> None:
    one, two = kept.ana.remember("alpha words here"), kept.ana.remember("beta things there")
    kept.ana.forget(two.id)
    kept.sync()
    first, second = kept.of(one), kept.of(two)
    kept.move(first, second)
    assert kept.sync(first, second).forgotten == [second]
    assert kept.of(two) == second.replace(".md", "-2.md")
    assert_equal(kept)


def test_file_with_an_unknown_id_leaves_the_memory_it_replaced_a_file(kept: Kept) -> None:
    two = kept.ana.remember("beta things there")
    one = kept.store.space("eve").remember("alpha words here")
    kept.sync()
    first, second = kept.of(one), kept.of(two)
    kept.move(first, second)
    report = kept.sync(first, second)
    assert report.remembered == [second] and report.forgotten == [first]
    assert kept.of(two) == second.replace(".md", "-2.md")
    assert_equal(kept)


def test_file_copied_over_another_leaves_both_memories_a_file(kept: Kept) -> None:
    one, two = kept.ana.remember("alpha words here"), kept.ana.remember("beta things there")
    kept.sync()
    first, second = kept.of(one), kept.of(two)
    kept.write(second, kept.read(first))
    (problem,) = kept.sync(second).problems
    assert f"{second}: a copy of {first}" in problem
    assert kept.of(two) == second.replace(".md", "-2.md")
    kept.path(second).unlink()
    assert not kept.sync(second)
    assert_equal(kept)


# -- the index ------------------------------------------------------------------------------------


def _links(kept: Kept) -> set[str]:
    """Return the paths that the index links to."""
    return set(re.findall(r"\]\(([^)]+)\)", kept.read("ana/MEMORY.md")))


def test_partial_sync_updates_the_index_after_a_file_was_renamed(kept: Kept) -> None:
    memory = kept.ana.remember("the alarm rings at ten")
    kept.sync()
    path = kept.of(memory)
    kept.move(path, "ana/facts/clocks/alarm.md")
    assert kept.sync(path, "ana/facts/clocks/alarm.md").moved
    assert _links(kept) == {"facts/clocks/alarm.md"}
    assert_equal(kept)


def test_partial_sync_updates_the_index_after_two_files_were_swapped(kept: Kept) -> None:
    one, two = kept.ana.remember("alpha words here"), kept.ana.remember("beta things there")
    kept.sync()
    first, second = kept.of(one), kept.of(two)
    kept.move(first, "ana/facts/tmp.md")
    kept.move(second, first)
    kept.move("ana/facts/tmp.md", second)
    before = kept.read("ana/MEMORY.md")
    kept.sync(first, second, "ana/facts/tmp.md")
    assert kept.read("ana/MEMORY.md") != before
    assert (kept.of(one), kept.of(two)) == (second, first)
    assert_equal(kept)


@pytest.mark.parametrize("edited", [False, True])
def test_partial_sync_writes_a_deleted_or_edited_index_again(kept: Kept, edited: bool) -> None:
    kept.ana.remember("the alarm rings at ten")
    kept.sync()
    before = kept.read("ana/MEMORY.md")
    kept.path("ana/MEMORY.md").unlink()
    if edited:
        kept.write("ana/MEMORY.md", f"{before}\nmy words\n")
    assert bool(kept.sync("ana/MEMORY.md").conflicts) == edited
    assert kept.read("ana/MEMORY.md") == before
    assert_equal(kept)


def test_partial_sync_updates_the_index_of_each_owner_with_changes(kept: Kept) -> None:
    memory = kept.ana.remember("the alarm rings at ten")
    kept.sync()
    path = kept.of(memory)
    kept.store.space("eve").remember("a change of another owner")
    kept.move(path, "ana/facts/alarm.md")
    kept.sync(path, "ana/facts/alarm.md")
    assert _links(kept) == {"facts/alarm.md"}
    assert_equal(kept)


def test_partial_sync_updates_an_edited_index_after_a_file_was_renamed(kept: Kept) -> None:
    memory = kept.ana.remember("the alarm rings at ten")
    kept.sync()
    path = kept.of(memory)
    kept.edit("ana/MEMORY.md", "1 fact", "my fact")
    kept.move(path, "ana/facts/alarm.md")
    report = kept.sync(path, "ana/facts/alarm.md")
    assert _links(kept) == {"facts/alarm.md"}
    assert "my fact" in kept.read("ana/MEMORY.conflict-v0.md")
    assert len(report.conflicts) == 1 and not report.problems
    kept.path("ana/MEMORY.conflict-v0.md").unlink()
    kept.sync()
    assert_equal(kept)


# -- random moves ---------------------------------------------------------------------------------


def _move_at_random(kept: Kept, chance: random.Random) -> list[str]:
    """Swap two files of one kind or move one over the other; return the paths that changed."""
    records = chance.random() < 0.5
    folder = chance.choice(("ana/facts/", "ana/users/bob/facts/"))
    found = [
        path
        for path in kept.files()
        if (kept.document(path).text("role") != "memory" if records else path.startswith(folder))
    ]
    first, second = chance.sample(found, 2)
    if swapped := chance.random() < 0.5:
        kept.move(second, "aside")
    kept.move(first, second)
    if swapped:
        kept.move("aside", first)
    return [first, second]


@pytest.mark.parametrize("seed", range(60))
def test_files_swapped_or_moved_over_others_at_random_lose_nothing(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    kept = Kept(tmp_path, turns="apart" if seed % 2 else "together")
    spaces = [kept.ana, kept.store.space("ana", user="bob")]
    for space in spaces:
        for number in range(4):
            space.remember(f"word{number} of {space.user}")
        for session in ("one", "two"):
            for _ in range(chance.randint(1, 3)):
                kept.clock.step(1000)
                space.session(session).append(user(f"said in {session} of {space.user}"))
    kept.sync()
    for _ in range(3):
        paths = _move_at_random(kept, chance)
        if chance.random() < 0.3:
            kept.mirror()
        kept.sync(*paths) if chance.random() < 0.6 else kept.sync()
        for space in spaces:
            assert not [
                each for each in space.memories(include_forgotten=True) if each.forgotten_at
            ]
            assert not [each for each in space.sessions(include_hidden=True) if each.hidden_at]
        assert_equal(kept)
    kept.close()
