"""The vault is the same over every engine."""

from __future__ import annotations

from pathlib import Path

from reverie import Store
from reverie.vault import operations
from tests.conftest import FakeClock


def test_there_and_back(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    ana, bob = store.space("ana"), store.space("ana", user="bob")
    one, own = ana.remember("one"), bob.remember("bob's")
    talk = bob.session("chat")
    talk.append({"role": "user", "content": "hi"})
    operations.init(store, root)
    path = operations.file_of(ana, one.id)
    assert path is not None and path.read_text(encoding="utf-8").endswith("one\n")
    path.write_text(path.read_text(encoding="utf-8").replace("one", "won"), encoding="utf-8")
    mine = operations.file_of(bob, own.id)
    assert mine is not None
    mine.unlink()
    report = operations.sync(store)
    assert len(report.revised) == len(report.forgotten) == 1 and not report.problems
    assert ana.get(one.id).content == "won"
    assert bob.get(own.id).forgotten_at is not None
    talk.write_summary("greeted", upper=1, expected_epoch=0)
    talk.hide()
    bob.erase(own.id)
    store.drain()
    clock.step(10_000)
    store.drain()
    assert (root / "ana/users/bob/deleted/sessions/chat/summaries/summary.md").exists()
    assert operations.file_of(bob, own.id) is None
    assert not operations.sync(store)
    assert operations.status(store).behind == 0
