"""backup and restore_backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import ConfigError, NotFound, Store, StoreError
from tests.conftest import DAY, FakeClock, Stores


def test_a_backup_comes_back_whole(stores: Stores, tmp_path: Path, clock: FakeClock) -> None:
    store = stores.open()
    space = store.space("ana")
    first = space.remember("zebra one")
    store.space("ben", user="bo").remember("zebra of bo")
    copied = store.backup(tmp_path / "copy")
    assert copied == store.verify() and copied.memories == 2
    before = [space.memories(), space.recall("zebra", explain=True), space.profile()]
    clock.step(DAY)
    space.revise(first.id, "changed")
    later = space.remember("later")
    store.space("new").remember("new")
    assert store.restore_backup(tmp_path / "copy") == copied
    assert [space.memories(), space.recall("zebra", explain=True), space.profile()] == before
    assert [info.name for info in store.spaces()] == ["ana", "ben"]
    with pytest.raises(NotFound):
        space.get(later.id)
    assert space.remember("goes on").version == 1
    assert store.verify().ok and store.doctor()["problems"] == []


def test_a_backup_into_an_empty_store(stores: Stores, tmp_path: Path) -> None:
    stores.open().space("ana").remember("zebra")
    stores.open().backup(tmp_path / "copy")
    other = stores.open("other")
    other.restore_backup(tmp_path / "copy")
    assert [hit.text for hit in other.space("ana").recall("zebra", mode="vector")] == ["zebra"]


def test_other_handles_see_the_restored_store(stores: Stores, tmp_path: Path) -> None:
    one, two = stores.open(), stores.open()
    one.space("ana").remember("zebra one")
    one.backup(tmp_path / "copy")
    for number in range(5):
        one.space("ana").remember(f"zebra later {number}")
    assert len(two.space("ana").recall("zebra", mode="vector", limit=10)) == 6
    one.restore_backup(tmp_path / "copy")
    one.space("ana").remember("zebra two")
    found = two.space("ana").recall("zebra", mode="vector", limit=10)
    assert sorted(hit.text for hit in found) == ["zebra one", "zebra two"]


def test_what_was_erased_since_stays_erased(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    space, bo = store.space("ana"), store.space("ana", user="bo")
    gone = space.remember("canarybird one, a rather long sentence that is easy to find in a file")
    of_bo = bo.remember("canarybird two, a rather long sentence that is easy to find in a file")
    kept = space.remember("kept")
    store.backup(tmp_path / "copy")
    space.erase(gone.id)
    bo.erase(of_bo.id)
    report = store.restore_backup(tmp_path / "copy")
    assert report.ok
    assert space.memories(include_forgotten=True) == [kept]
    for handle, id in ((space, gone.id), (bo, of_bo.id)):
        with pytest.raises(NotFound):
            handle.get(id)
        assert handle.history(id)[-1].op == "erase"
        assert handle.recall("canarybird") == [] or kept.id in [
            hit.id for hit in handle.recall("canarybird")
        ]
    assert "canarybird" not in repr(list(space.export())) + repr(list(bo.export()))
    for file in tmp_path.iterdir():
        if file.name != "copy" and file.is_file():
            assert b"canarybird" not in file.read_bytes(), file


def test_a_tombstone_outlives_the_restoring_of_an_older_backup(
    stores: Stores, tmp_path: Path
) -> None:
    """Erased is erased, also when the backup never knew the memory and an export did."""
    store = stores.open()
    space = store.space("ana")
    space.remember("kept")
    store.backup(tmp_path / "copy")
    memory = space.remember("secret")
    records = list(space.export())
    space.erase(memory.id)
    store.restore_backup(tmp_path / "copy")
    space.import_records(records)
    assert "secret" not in repr(space.memories(include_forgotten=True))


def test_a_target_that_exists_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("precious", encoding="utf-8")
    with pytest.raises(ConfigError):
        store.backup(tmp_path / "copy")
    assert (tmp_path / "copy").read_text(encoding="utf-8") == "precious"
    with pytest.raises(ConfigError):
        store.restore_backup(tmp_path / "nowhere")


def test_a_damaged_backup_is_refused_and_nothing_changes(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    space = store.space("ana")
    for number in range(200):
        space.remember(f"zebra number {number}")
    store.backup(tmp_path / "copy")
    whole = (tmp_path / "copy").read_bytes()
    now = space.memories()
    cuts = [0, 1, 100, 4096, len(whole) // 3, len(whole) // 2, len(whole) - 4096, len(whole) - 1]
    for cut in cuts:
        (tmp_path / "cut").write_bytes(whole[:cut])
        with pytest.raises(StoreError):
            store.restore_backup(tmp_path / "cut")
        assert space.memories() == now, f"cut at {cut}"
    (tmp_path / "text").write_text("not a backup " * 1000, encoding="utf-8")
    with pytest.raises(StoreError):
        store.restore_backup(tmp_path / "text")
    assert space.memories() == now and store.verify().ok


def test_an_empty_file_is_no_backup(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    memory = store.space("ana").remember("precious")
    (tmp_path / "empty").touch()
    with pytest.raises(StoreError):
        store.restore_backup(tmp_path / "empty")
    assert store.space("ana").memories() == [memory]


def test_a_backup_of_a_store_with_another_embedder(stores: Stores, tmp_path: Path) -> None:
    stores.open().space("ana").remember("zebra")
    stores.open().backup(tmp_path / "copy")
    other = stores.open("other", embedder="none")
    assert other.restore_backup(tmp_path / "copy").ok
    assert len(other.space("ana").recall("zebra")) == 1


def test_a_backup_is_verified_without_being_changed(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    store.space("ana").remember("zebra")
    made = store.backup(tmp_path / "copy")
    before = (tmp_path / "copy").read_bytes()
    store.space("ana").remember("horse")
    assert store.verify_backup(tmp_path / "copy") == made
    assert (tmp_path / "copy").read_bytes() == before
    (tmp_path / "copy").write_bytes(before[: len(before) // 2])
    with pytest.raises(StoreError):
        store.verify_backup(tmp_path / "copy")
