"""Backups of a store that is a file. What holds for every engine is in tests/contract."""

from __future__ import annotations

from pathlib import Path

import pytest

import reverie
from reverie import ConfigError


def test_restore_of_the_open_store_file_into_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with reverie.open(file, embedder="none") as store:
        space = store.space("ana")
        space.remember("base")
        store.vacuum()
        for number in range(50):
            space.remember(f"fact {number}")
        with pytest.raises(ConfigError, match="this store itself"):
            store.restore_backup(file)
        assert len(space.memories()) == 51
        with reverie.open(tmp_path / "other.db", embedder="none") as other:
            assert other.restore_backup(file).memories == 51
