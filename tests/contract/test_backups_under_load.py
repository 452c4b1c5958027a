"""Backups made while others write are whole; a backup that was cut anywhere is refused."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

import reverie
from reverie import Settings, Store
from reverie.errors import StoreError
from tests.conftest import PROVE, Stores
from tests.figures import figure

BACKUPS = 50 if PROVE else 5
CUTS = 50 if PROVE else 8
SPACES = ("ana", "ben")


def content_of(store: Store, name: str) -> list[str]:
    """Return every entry of a space, in order."""
    return [repr(record) for record in store.space(name).export()]


def test_backup_under_load_equals_the_store_at_one_position(stores: Stores, tmp_path: Path) -> None:
    store, stop = stores.open(embedder="none"), threading.Event()
    failures: list[BaseException] = []

    def write(name: str) -> None:
        space, ids = store.space(name), list[str]()
        number = 0
        try:
            while not stop.is_set() and number < 100 * BACKUPS:
                ids.append(space.remember(f"{name} wrote {number}").id)
                if number % 3 == 2:
                    space.revise(ids[-2], f"{name} revised {number}")
                if number % 7 == 6:
                    space.forget(ids[-3])
                number += 1
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    writers = [threading.Thread(target=write, args=(name,)) for name in SPACES]
    for writer in writers:
        writer.start()
    copies = []
    for number in range(BACKUPS):
        copy = tmp_path / f"copy{number}"
        assert store.backup(copy).ok
        copies.append(copy)
    stop.set()
    for writer in writers:
        writer.join()
    assert not failures
    whole = {name: content_of(store, name) for name in SPACES}
    for copy in copies:
        with reverie.open(copy, settings=Settings(), embedder="none") as restored:
            # A moment of the store is a beginning of each of its logs.
            equal = all(
                whole[name][: len(kept)] == kept
                for name in SPACES
                if (kept := content_of(restored, name)) is not None
            )
            sound = restored.verify().problems == ()
        figure("backups equal to their moment", equal and sound)
        assert equal and sound, copy.name


def test_truncated_backup_is_refused(stores: Stores, tmp_path: Path) -> None:
    store, chance = stores.open(embedder="none"), random.Random(31)
    for number in range(60):
        store.space("ana").remember(f"zebra number {number} " * 5)
    store.backup(tmp_path / "copy")
    whole, now = (tmp_path / "copy").read_bytes(), store.space("ana").memories(limit=1_000)
    for cut in sorted(chance.sample(range(len(whole)), CUTS)):
        (tmp_path / "cut").write_bytes(whole[:cut])
        try:
            store.restore_backup(tmp_path / "cut")
        except StoreError:
            figure("cut backups refused", 1)
            figure("cut backups accepted", 0)
        else:
            figure("cut backups accepted", 1)
            pytest.fail(f"a backup cut at {cut} of {len(whole)} bytes was accepted")
    assert store.space("ana").memories(limit=1_000) == now
    assert store.verify().problems == ()
