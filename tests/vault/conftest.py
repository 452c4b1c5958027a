from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vault.vaults import Kept


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.close()
