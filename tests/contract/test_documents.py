"""remember_file: a document is a note, read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import InvalidInput, Space, Store
from tests.conftest import FakeEmbedder, Stores


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "handbook.md"
    path.write_text("# Handbook\n\nThe zebra gate opens at nine.\n", encoding="utf-8")
    return path


def test_remember_file_stores_a_note_with_its_source(space: Space, document: Path) -> None:
    memory = space.remember_file(document)
    assert (memory.kind, memory.category, memory.trust) == ("note", "document", "document")
    assert memory.source == str(document.resolve())
    assert memory.content == document.read_text(encoding="utf-8")
    assert space.recall("zebra gate")[0].id == memory.id
    assert space.remember_file(str(document), category="ignored") == memory


def test_remember_file_of_an_unchanged_file_writes_nothing(stores: Stores, document: Path) -> None:
    embedder = FakeEmbedder()
    store = stores.open(embedder=embedder)
    first = store.space("ana").remember_file(document, category="My Docs")
    assert first.category == "my_docs"
    embedder.forget_calls()
    assert store.space("ana").remember_file(document) == first
    store.close()
    again = stores.open(embedder=embedder)
    assert again.space("ana").remember_file(document) == first
    assert embedder.asked == 0
    again.rebuild()
    embedder.forget_calls()
    assert again.space("ana").remember_file(document) == first
    assert embedder.asked == 0 and len(again.space("ana").history(first.id)) == 1


def test_remember_file_of_a_changed_file_adds_a_version(space: Space, document: Path) -> None:
    first = space.remember_file(document)
    document.write_text("The horse gate opens at ten.", encoding="utf-8")
    second = space.remember_file(document)
    assert (second.id, second.version) == (first.id, 2)
    assert second.created_at == first.created_at
    assert space.recall("zebra", mode="keyword") == []
    assert space.recall("horse gate")[0].id == first.id
    assert len(space.memories()) == 1
    assert space.history(first.id)[-1].reason == "the document changed"


def test_text_of_a_document_remembered_on_purpose_is_another_memory(
    space: Space, document: Path
) -> None:
    """The memory of a document follows its file, and would lose what was remembered."""
    made = space.remember_file(document)
    own = space.remember(made.content, kind="note", category="document")
    assert own.id != made.id


def test_document_is_never_in_the_profile(store: Store, document: Path) -> None:
    space = store.space("ana")
    memory = space.remember_file(document)
    space.revise(memory.id, pinned=True)
    assert space.get(memory.id).trust == "document"
    assert space.profile() == ""
    tool = store.space("ana", trust="tool")
    tool.remember("a tool said this", pinned=True)
    assert space.profile() == ""
    space.revise(memory.id, "A person says: the gate opens at nine")
    assert "the gate opens" in space.profile()


def test_remember_file_restores_a_forgotten_document(space: Space, document: Path) -> None:
    first = space.remember_file(document)
    space.forget(first.id)
    back = space.remember_file(document)
    assert back.id == first.id and back.forgotten_at is None
    assert space.recall("zebra")[0].id == first.id


def test_remember_file_after_erase_is_a_new_memory(space: Space, document: Path) -> None:
    first = space.remember_file(document)
    space.erase(first.id)
    second = space.remember_file(document)
    assert second.id != first.id and second.version == 1


def test_owners_have_separate_memories_of_one_file(store: Store, document: Path) -> None:
    shared, bo = store.space("ana"), store.space("ana", user="bo")
    one, two = shared.remember_file(document), bo.remember_file(document)
    assert one.id != two.id and (one.user, two.user) == (None, "bo")
    assert shared.remember_file(document) == one and bo.remember_file(document) == two


def test_document_source_survives_export_and_import(stores: Stores, document: Path) -> None:
    source = stores.open("one").space("ana")
    first = source.remember_file(document)
    embedder = FakeEmbedder("hashing:64")
    target = stores.open("two", embedder=embedder).space("ana")
    target.import_records(source.export())
    embedder.forget_calls()
    assert target.remember_file(document) == first and embedder.asked == 0


@pytest.mark.parametrize("data", [b"", b"  \n ", b"\xff\xfe\x00", b"a\0b", b"\xed\xa0\x80"])
def test_remember_file_refuses_files_that_are_no_text(
    space: Space, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(InvalidInput):
        space.remember_file(tmp_path / "file")
    assert space.memories() == []


def test_remember_file_refuses_missing_files_and_folders(space: Space, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(InvalidInput):
            space.remember_file(path)


def test_remember_file_drops_a_byte_order_mark(space: Space, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfhello")
    assert space.remember_file(tmp_path / "file").content == "hello"
