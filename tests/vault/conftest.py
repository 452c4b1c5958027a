from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import reverie
from reverie import Settings
from reverie.vault import operations
from tests.vault.living import Living
from tests.vault.vaults import Kept


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.close()


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Living]:
    """A store on a real clock with a vault beside it."""
    root = tmp_path / "vault"
    with reverie.open(tmp_path / "kept.db", settings=Settings(), embedder="none") as store:
        operations.init(store, root)
        yield Living(store, root)
