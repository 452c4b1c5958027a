"""One side is older than the other: a store from a backup, a vault at an earlier commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.vault.files import Files
from reverie.vault.journal import Journal
from tests.vault.vaults import Kept, assert_equal


def gone_back(folder: Path, turns: str = "together") -> Kept:
    """A store that a backup was put in the place of, and a vault that knows more."""
    kept = Kept(folder, turns=turns)
    one, talk = kept.ana.remember("one"), kept.ana.session("chat")
    talk.append({"role": "user", "content": "before"})
    kept.sync()
    kept.store.backup(folder / "backup.db")
    kept.ana.revise(one.id, "one, revised")
    kept.ana.remember("later")
    kept.store.space("ana", user="bob").remember("Bob's")
    talk.append({"role": "user", "content": "after"})
    kept.sync()
    kept.store.restore_backup(folder / "backup.db")
    kept.ana.remember("another life")
    return kept


def assert_nothing_lost(kept: Kept) -> None:
    assert {each.content for each in kept.ana.memories()} == {
        "one, revised",
        "later",
        "another life",
    }
    bob = kept.store.space("ana", user="bob")
    assert "Bob's" in {each.content for each in bob.memories()}
    beside = [path for path in kept.files() if ".conflict-v" in path]
    assert any("after" in kept.read(path) for path in beside)
    for path in beside:
        kept.path(path).unlink()
    kept.sync()
    assert_equal(kept)


@pytest.mark.parametrize("turns", ["together", "apart"])
@pytest.mark.parametrize("first", ["sync", "mirror", "watcher"])
def test_what_the_vault_alone_still_has_is_taken_in(tmp_path: Path, turns: str, first: str) -> None:
    kept = gone_back(tmp_path, turns)
    if first == "mirror":
        kept.mirror()
    elif first == "watcher":
        kept.sync("ana/facts")
    kept.sync()
    assert_nothing_lost(kept)
    kept.close()


def _dying(call: Callable[..., Any], after: bool) -> Callable[..., Any]:
    def step(*values: Any) -> None:
        if after:
            call(*values)
        raise KeyboardInterrupt

    return step


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("what", [(Files, "drop_owner"), (Journal, "keep"), (Files, "set_cursor")])
def test_killed_when_it_went_back(tmp_path: Path, what: tuple[Any, str], after: bool) -> None:
    kept = gone_back(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*what, _dying(getattr(*what), after))
        with pytest.raises(KeyboardInterrupt):
            kept.mirror()
    kept.mirror()
    kept.sync()
    assert_nothing_lost(kept)
    kept.close()
