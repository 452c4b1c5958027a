"""The vault is the same over every engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reverie import Store
from reverie.vault import rebuild, service
from tests.conftest import ENGINES, FakeClock, Stores, addresses
from tests.vault.full_store import exported


@pytest.fixture(params=ENGINES)
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    return addresses(request, tmp_path)


def test_vault_sync_works_both_ways_on_every_engine(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    ana, bob = store.space("ana"), store.space("ana", user="bob")
    one, own = ana.remember("one"), bob.remember("bob's")
    session = bob.session("chat")
    session.append({"role": "user", "content": "hi"})
    service.init(store, root)
    path = service.find_memory_file(ana, one.id)
    assert path is not None and path.read_text(encoding="utf-8").endswith("one\n")
    path.write_text(path.read_text(encoding="utf-8").replace("one", "won"), encoding="utf-8")
    mine = service.find_memory_file(bob, own.id)
    assert mine is not None
    mine.unlink()
    report = service.sync(store)
    assert len(report.revised) == len(report.forgotten) == 1 and not report.problems
    assert ana.get(one.id).content == "won"
    assert bob.get(own.id).forgotten_at is not None
    session.write_summary("greeted", upper=1, expected_epoch=0)
    session.hide()
    bob.erase(own.id)
    store.run_pending_jobs()
    clock.step(10_000)
    store.run_pending_jobs()
    assert (root / "ana/users/bob/deleted/sessions/2026-01/chat/summaries/summary.md").exists()
    assert service.find_memory_file(bob, own.id) is None
    assert not service.sync(store)
    assert service.status(store).behind == 0


def test_vault_rebuild_creates_a_store_on_every_engine(stores: Stores, tmp_path: Path) -> None:
    first, second = stores.open("first"), stores.open("second")
    ana, bob = first.space("ana"), first.space("ana", user="bob")
    one, own = ana.remember("one"), bob.remember("bob's", category="person", tags=["a"])
    ana.revise(one.id, "won")
    bob.session("chat").append({"role": "user", "content": "hi"})
    bob.forget(own.id)
    service.init(first, tmp_path / "vault")
    rebuild.from_vault(second, tmp_path / "vault")
    assert exported(second) == exported(first)
    assert second.verify().ok
    assert not service.sync(second)
