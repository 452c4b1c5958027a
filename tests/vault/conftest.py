from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reverie
from reverie import Settings
from reverie.vault import service
from tests.conftest import ENGINES, PROVE, addresses
from tests.vault.vault_stores import Living
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
        service.init(store, root)
        yield Living(store, root)


@pytest.fixture(params=ENGINES if PROVE else ("sqlite",))
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The vault speaks to stores, not to engines: ``test_engines`` shows that it is so.

    With --prove every test runs over each of them.
    """
    return addresses(request, tmp_path)
