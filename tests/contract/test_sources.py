"""forget_source: all memories of one source are forgotten in one step, and can be restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import InvalidInput, KeyConflict, Space, Store
from tests.messages import found


def test_forget_source_forgets_every_memory_of_it_and_nothing_else(
    store: Store, space: Space
) -> None:
    tool = store.space("ana", trust="tool", actor="search")
    bad = [tool.remember(f"Bees are number {n}", source="web") for n in range(3)]
    private = tool.session("s").remember("Bees are private", source="web", private=True)
    kept = space.remember("Bees are mine")
    near = tool.remember("Bees are near", source="web2")
    forgotten = space.forget_source("web", reason="it lied")
    assert [memory.id for memory in forgotten] == [*(each.id for each in bad), private.id]
    assert all(memory.forgotten_at is not None for memory in forgotten)
    assert found(space.session("s"), "bees") == {kept.content, near.content}
    assert space.history(bad[0].id)[-1].reason == "it lied"
    assert space.forget_source("web") == []
    space.restore(bad[0].id)
    assert bad[0].content in found(space, "bees")
    assert store.verify().ok


def test_memories_from_source_matches_the_exact_name(space: Space) -> None:
    memory = space.remember("Bees", source="web")
    assert space.memories_from_source("web") == [memory]
    assert space.memories_from_source("WEB") == [] and space.memories_from_source("we") == []
    assert space.get(memory.id).forgotten_at is None


def test_forget_source_is_limited_to_its_scope(store: Store) -> None:
    alice, bob = (store.space("team", user=name) for name in ("alice", "bob"))
    shared = store.space("team").remember("Bees are shared", source="web")
    mine, theirs = (each.remember("Bees", source="web") for each in (alice, bob))
    assert [memory.id for memory in alice.forget_source("web")] == [mine.id]
    assert bob.get(theirs.id).forgotten_at is None
    assert bob.get(shared.id).forgotten_at is None
    assert store.space("empty").forget_source("web") == []


def test_forget_source_accepts_the_path_of_a_document(space: Space, tmp_path: Path) -> None:
    path = tmp_path / "bees.md"
    path.write_text("Bees dance", encoding="utf-8")
    note = space.remember_file(path)
    assert [memory.id for memory in space.forget_source(str(path))] == [note.id]
    assert space.remember_file(path).forgotten_at is None


def test_forget_source_with_the_same_key_forgets_once(space: Space) -> None:
    for n in range(3):
        space.remember(f"Bees are number {n}", source="web")
    first = space.forget_source("web", key="k")
    late = space.remember("Bees came later", source="web")
    assert space.forget_source("web", key="k") == first
    assert space.get(late.id).forgotten_at is None
    with pytest.raises(KeyConflict):
        space.forget_source("other", key="k")


def test_repeated_text_has_the_later_source_and_history_has_both(space: Space) -> None:
    first = space.remember("Bees dance", source="web")
    again = space.remember("Bees dance", source="book")
    assert (again.id, again.version, again.source) == (first.id, 2, "book")
    (unnamed,) = space.remember_many([{"content": "Bees dance"}])
    assert (unnamed.version, unnamed.source) == (3, "book")
    (third,) = space.remember_many([{"content": "Bees dance", "source": "web"}])
    assert (third.version, third.source) == (4, "web")
    history = space.history(first.id)
    assert [each.source for each in history] == ["web", "book", "book", "web"]
    assert space.memories_from_source("book") == []
    assert [memory.id for memory in space.memories_from_source("web")] == [first.id]


def test_text_without_a_source_gets_that_of_its_repetition(space: Space) -> None:
    first = space.remember("Bees dance")
    assert space.remember("Bees dance", source="web").source == "web"
    assert [each.source for each in space.history(first.id)] == [None, "web"]


def test_less_trusted_repetition_keeps_the_source_and_history_names_its_own(
    store: Store, space: Space
) -> None:
    first = space.remember("Bees dance", source="book")
    tool = store.space("ana", trust="tool", actor="search")
    again = tool.remember("Bees dance", source="web")
    assert (again.id, again.source, again.trust) == (first.id, "book", "person")
    last = space.history(first.id)[-1]
    assert last.reason == "the same text was remembered again, from web"
    assert space.forget_source("web") == [] and space.memories() == [again]


def test_text_of_a_document_that_is_remembered_is_a_memory_of_its_own(
    store: Store, space: Space, tmp_path: Path
) -> None:
    path = tmp_path / "bees.md"
    path.write_text("Bees dance", encoding="utf-8")
    note = space.remember_file(path)
    again = space.remember("Bees dance", kind="note", category="document", source="web")
    assert again.id != note.id
    assert (space.get(note.id).source, again.source) == (str(path), "web")
    store.rebuild()
    assert space.remember_file(path).id == note.id and store.verify().ok


def test_forget_source_refuses_an_empty_name(space: Space) -> None:
    with pytest.raises(InvalidInput):
        space.forget_source("")
