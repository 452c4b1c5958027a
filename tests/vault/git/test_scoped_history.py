"""The part of the vault's history that a handle and an agent's tools can see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reverie import Space
from reverie.serialize import to_json_value
from reverie.vault import service, tools
from reverie.vault.git import scoped_history
from reverie.vault.git.repo import CommitInfo
from reverie.vault.layout import Folders
from tests.vault.vault_stores import Living

SECRET = "Bob has debts"


def everything(space: Space) -> str:
    """All that can be learned through a handle."""
    commits = scoped_history.history(space, limit=100)
    since = commits[-1].id if commits else None
    history = tools.memory_history(space, 100, True)
    return json.dumps(to_json_value(commits)) + scoped_history.diff(space, since=since) + history


@pytest.mark.parametrize("name", ["ana", "Änä & co", "q\"'\\n"])
def test_scoped_history_shows_a_handle_its_own_files_only(living: Living, name: str) -> None:
    store = living.store
    shared, bob, eve = (store.space(name, user=user) for user in (None, "bob", "eve"))
    shared.remember("The office is in Bern")
    service.sync(store)
    bob.remember(SECRET, subject="Bob Ünique")
    eve.remember("Eve likes tea")
    service.sync(store)
    shared.remember("The office has a garden")
    bob.remember(f"{SECRET} still")
    service.sync(store)
    assert SECRET in everything(bob) and "Eve" not in everything(bob)
    # What one commit says of several is told to none of them; the files are.
    assert "eve-likes-tea" in everything(eve) and "Bob" not in everything(eve)
    seen = everything(shared)
    assert "Bob" not in seen and "Eve" not in seen and "nique" not in seen
    assert "The office has a garden" in seen
    assert everything(store.space("elsewhere")).strip("[]") == "The memory has no history yet."


@pytest.mark.parametrize("folder", ["users", "deleted/users", "Users"])
def test_scoped_history_assigns_misplaced_files_to_their_user(living: Living, folder: str) -> None:
    living.ana.remember("The office is in Bern")
    service.sync(living.store)
    path = living.root / "ana" / folder / "bob" / "secret.txt"
    path.parent.mkdir(parents=True)
    path.write_text(SECRET)
    assert SECRET not in scoped_history.diff(living.ana)
    service.checkpoint(living.store)
    assert SECRET not in everything(living.ana) and "secret.txt" not in everything(living.ana)


def test_scoped_history_finds_own_commits_among_those_of_others(living: Living) -> None:
    living.ana.remember("First of all")
    service.sync(living.store)
    bob = living.store.space("ana", user="bob")
    for number in range(5):
        bob.remember(f"Number {number}")
        service.sync(living.store)
    (found,) = scoped_history.history(living.ana, limit=1)
    assert "First of all" in found.subject


def test_scoped_history_shows_a_checkpoint_to_its_author(living: Living) -> None:
    bob = living.store.space("ana", user="bob")
    bob.remember(SECRET)
    living.store.space("ana", user="eve").remember("Eve likes tea")
    living.ana.remember("The office is in Bern")
    assert tools.memory_checkpoint(living.ana, "before\nthe move").endswith(": before the move")
    assert "before the move" in tools.memory_history(living.ana)
    assert "before the move" not in tools.memory_history(bob)
    assert "no checkpoint was needed" in tools.memory_checkpoint(living.ana)


def test_memory_history_tool_truncates_a_diff(living: Living) -> None:
    living.ana.remember("Short")
    service.sync(living.store)
    living.ana.remember("long " * 20_000, kind="note")
    service.sync(living.store)
    answer = tools.memory_history(living.ana, limit=1000, diff=True)
    assert "characters are left out]" in answer
    assert len(answer) < tools.MAX_CHARS + 1_000
    assert "Nothing has changed since." in tools.memory_history(living.ana, limit=-3, diff=True)


def test_vault_tools_return_errors_and_never_raise(
    living: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    living.ana.remember("Something")
    (living.root / ".reverie" / "vault.json").write_text("{", encoding="utf-8")
    assert tools.memory_checkpoint(living.ana).startswith("Error: no checkpoint was made: ")
    assert tools.memory_history(living.ana).startswith("Error: the history cannot be read: ")
    answer = tools.memory_history(living.ana, limit="many")  # type: ignore[arg-type]
    assert answer.startswith("Error: ")


def test_vault_tools_without_a_vault_say_so(tmp_path: Path) -> None:
    import reverie

    with reverie.open(tmp_path / "x.db", embedder="none") as store:
        assert "reverie vault init" in tools.memory_checkpoint(store.space("ana"))
        assert "reverie vault init" in tools.memory_history(store.space("ana"))
        assert scoped_history.find_memory_file(store.space("ana"), "absent00") is None
        assert store.flush_to_vault() is None


def test_find_memory_file_returns_the_path_within_the_scope(living: Living) -> None:
    id = living.ana.remember("Something").id
    assert living.store.flush_to_vault() is None
    found = scoped_history.find_memory_file(living.ana, id)
    assert found is not None
    assert found[0].startswith("ana/facts/") and found[1] == str(living.root / found[0])
    assert scoped_history.find_memory_file(living.store.space("other"), id) is None


def test_scoped_history_shows_commits_of_own_bookkeeping_files() -> None:
    from reverie.model import Scope

    commit = CommitInfo("0" * 40, "ana", 0, "vault init", "", (".gitignore",))
    assert scoped_history._redact_commit(commit, Scope("ana"), Folders()) is not None
