"""One side is older than the other: a store from a backup, a vault at an earlier commit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.vault import service
from reverie.vault.file_cache import FileCache
from reverie.vault.log_file import VaultLog
from tests.vault.vaults import Kept, assert_equal


def gone_back(folder: Path, turns: str = "together") -> Kept:
    """A store that was replaced by a backup, and a vault with newer entries."""
    kept = Kept(folder, turns=turns)
    one, session = kept.ana.remember("one"), kept.ana.session("chat")
    session.append({"role": "user", "content": "before"})
    kept.sync()
    kept.store.backup(folder / "backup.db")
    kept.ana.revise(one.id, "one, revised")
    kept.ana.remember("later")
    kept.store.space("ana", user="bob").remember("Bob's")
    session.append({"role": "user", "content": "after"})
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
def test_entries_that_only_the_vault_has_are_imported_into_a_restored_store(
    tmp_path: Path, turns: str, first: str
) -> None:
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
@pytest.mark.parametrize(
    "what", [(FileCache, "drop_owner"), (VaultLog, "keep"), (FileCache, "set_cursor")]
)
def test_sync_killed_after_a_restore_can_be_repeated(
    tmp_path: Path, what: tuple[Any, str], after: bool
) -> None:
    kept = gone_back(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*what, _dying(getattr(*what), after))
        with pytest.raises(KeyboardInterrupt):
            kept.mirror()
    kept.mirror()
    kept.sync()
    assert_nothing_lost(kept)
    kept.close()


def run_git(kept: Kept, *words: str) -> str:
    ran = subprocess.run(
        ["git", "-C", str(kept.root), *words], capture_output=True, check=True, text=True
    )
    return ran.stdout


def files_without_log(kept: Kept) -> dict[str, bytes]:
    """All but the vault's own log: owners may follow each other in another order there."""
    return {path: raw for path, raw in kept.bytes().items() if not path.endswith(".jsonl")}


def assert_each_commit_changes_nothing(kept: Kept) -> None:
    before, position = files_without_log(kept), kept.ana.position()
    for commit in run_git(kept, "log", "--format=%H", "main").split()[:-1]:
        run_git(kept, "checkout", "-qf", commit)
        report = kept.sync()
        assert not report.forgotten and not report.restored and not report.revised
        assert not report.remembered and not report.conflicts
        assert files_without_log(kept) == before
    assert kept.ana.position() == position
    assert_equal(kept)


def test_checkout_of_a_commit_before_forget_or_restore_changes_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    one, two = kept.ana.remember("one"), kept.ana.remember("two")
    chat, other = kept.ana.session("chat"), kept.ana.session("talk")
    for session in (chat, other):
        session.append({"role": "user", "content": "hi"})
    kept.ana.forget(two.id)
    other.hide()
    kept.sync()
    kept.ana.forget(one.id)
    kept.ana.restore(two.id)
    kept.sync()
    chat.hide()
    other.restore()
    kept.sync()
    assert_each_commit_changes_nothing(kept)
    kept.close()


def test_checkout_of_the_first_of_two_commits_changes_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    eve = kept.store.space("eve")
    for text in ("one", "two"):
        kept.ana.remember(text)
        eve.remember(text)
        kept.sync()
    assert_each_commit_changes_nothing(kept)
    assert len(eve.memories()) == 2
    kept.close()


def test_checkout_of_a_commit_with_other_spaces_mirrors_none_of_them(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("one")
    kept.sync()
    service.checkpoint(kept.store)
    kept.init(kept.root, ["ana"])
    kept.ana.remember("two")
    service.checkpoint(kept.store)
    assert not run_git(kept, "status", "--porcelain")
    kept.store.space("eve").remember("not to be shown")
    oldest = run_git(kept, "log", "--reverse", "--format=%H").split()[1]
    run_git(kept, "checkout", "-qf", oldest)
    kept.sync()
    assert not kept.path("eve").exists()
    run_git(kept, "clean", "-fdq")
    kept.sync()
    kept.close()


@pytest.mark.parametrize("first", ["sync", "mirror"])
def test_memory_revised_before_and_after_a_restore_keeps_both_versions(
    kept: Kept, first: str
) -> None:
    one, two = kept.ana.remember("one"), kept.ana.remember("two")
    kept.sync()
    kept.store.backup(kept.folder / "backup.db")
    kept.ana.revise(one.id, "of the first life")
    kept.ana.revise(two.id, "two, revised")
    kept.sync()
    kept.store.restore_backup(kept.folder / "backup.db")
    kept.ana.revise(one.id, "of the second life")
    if first == "mirror":
        kept.mirror()
    kept.sync()
    (beside,) = [path for path in kept.files() if ".conflict-v2" in path]
    assert "of the second life" in kept.read(beside)
    assert kept.ana.get(one.id).content == "of the first life"
    assert kept.ana.get(two.id).content == "two, revised"
    kept.edit(kept.of(one), "of the first life", "of a third")
    assert not kept.sync().conflicts
    assert_equal(kept)
