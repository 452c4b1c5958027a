"""backup and restore_backup."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from reverie import ConfigError, NotFound, Store, StoreError
from reverie.errors import StoreFull
from tests.conftest import DAY, FakeClock, Stores
from tests.crash.test_faults import small_disk


def test_restored_backup_equals_the_store(stores: Stores, tmp_path: Path, clock: FakeClock) -> None:
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


def test_backup_is_restored_into_an_empty_store(stores: Stores, tmp_path: Path) -> None:
    stores.open().space("ana").remember("zebra")
    stores.open().backup(tmp_path / "copy")
    other = stores.open("other")
    other.restore_backup(tmp_path / "copy")
    assert [hit.text for hit in other.space("ana").recall("zebra", mode="vector")] == ["zebra"]


def test_open_handles_see_the_restored_store(stores: Stores, tmp_path: Path) -> None:
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


def test_memory_erased_after_a_backup_stays_erased_when_it_is_restored(
    stores: Stores, tmp_path: Path
) -> None:
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


def test_restoring_an_older_backup_keeps_later_tombstones(stores: Stores, tmp_path: Path) -> None:
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


def test_backup_does_not_overwrite_an_existing_file(store: Store, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("precious", encoding="utf-8")
    with pytest.raises(ConfigError):
        store.backup(tmp_path / "copy")
    assert (tmp_path / "copy").read_text(encoding="utf-8") == "precious"
    with pytest.raises(ConfigError):
        store.restore_backup(tmp_path / "nowhere")


def test_damaged_backup_is_refused_and_the_store_unchanged(stores: Stores, tmp_path: Path) -> None:
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


def test_empty_file_is_refused_as_a_backup(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    memory = store.space("ana").remember("precious")
    (tmp_path / "empty").touch()
    with pytest.raises(StoreError):
        store.restore_backup(tmp_path / "empty")
    assert store.space("ana").memories() == [memory]


def test_backup_of_a_store_with_another_embedder_is_restored(
    stores: Stores, tmp_path: Path
) -> None:
    stores.open().space("ana").remember("zebra")
    stores.open().backup(tmp_path / "copy")
    other = stores.open("other", embedder="none")
    assert other.restore_backup(tmp_path / "copy").ok
    assert len(other.space("ana").recall("zebra")) == 1


def test_verifying_a_backup_does_not_change_it(stores: Stores, tmp_path: Path) -> None:
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


# -- backups that cannot be written ---------------------------------------------------------------


def filled(stores: Stores) -> Store:
    store = stores.open()
    space = store.space("ana")
    for number in range(40):
        space.remember(f"note {number} " + "of the river and the hill " * 150, kind="note")
    return store


@pytest.mark.parametrize("kilobytes", [0, 64, 400])
@pytest.mark.sample(3)
def test_backup_to_a_full_disk_names_the_target_and_leaves_no_file(
    stores: Stores, tmp_path: Path, kilobytes: int
) -> None:
    """No room at all, for the first pages only, for half of it."""
    store = filled(stores)
    with small_disk(tmp_path / "small", 1) as disk:
        (disk / "filler").write_bytes(bytes((1 << 20) - 16_384 - kilobytes * 1024))
        target = disk / "backup.db"
        with pytest.raises(StoreError) as caught:
            store.backup(target)
        assert isinstance(caught.value, StoreFull), caught.value
        assert f"{target}:" in str(caught.value) and ".part" not in str(caught.value)
        assert [file.name for file in disk.iterdir()] == ["filler"]
    assert store.backup(tmp_path / "backup.db").ok


def test_backup_that_cannot_be_verified_for_lack_of_space_names_that_folder(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(stores)
    with small_disk(tmp_path / "small", 1) as disk:
        (disk / "filler").write_bytes(bytes((1 << 20) - 100_000))
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        with pytest.raises(StoreFull, match=str(disk)):
            store.backup(tmp_path / "backup.db")
        assert [file.name for file in disk.iterdir()] == ["filler"]
    assert not list(tmp_path.glob("backup.db*"))


def test_backup_into_a_missing_folder_leaves_no_file(stores: Stores, tmp_path: Path) -> None:
    store = filled(stores)
    target = tmp_path / "nowhere" / "backup.db"
    with pytest.raises(StoreError, match="cannot be written") as caught:
        store.backup(target)
    assert str(target) in str(caught.value) and ".part" not in str(caught.value)


def test_partial_file_of_a_killed_backup_is_replaced(stores: Stores, tmp_path: Path) -> None:
    store = filled(stores)
    for end in ("", "-journal", "-wal", "-shm", "-lock"):
        (tmp_path / f"backup.db.part{end}").write_bytes(b"left behind" * 500)
    assert store.backup(tmp_path / "backup.db").ok
    assert [file.name for file in tmp_path.glob("backup.db*")] == ["backup.db"]
    assert store.verify_backup(tmp_path / "backup.db").ok
