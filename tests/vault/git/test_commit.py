"""The subjects of commits say what happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.vault import service
from reverie.vault.sync import Sync
from reverie.vault.vault import Vault
from tests.vault.repositories import by_hand
from tests.vault.vaults import Kept


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path, git=True)
    yield made
    made.close()


def subject(kept: Kept) -> str:
    """Sync, and return the subject of the last commit."""
    assert not kept.sync().problems
    assert by_hand(kept.root, "status", "--porcelain") == b""
    return by_hand(kept.root, "log", "-1", "--format=%s").decode().strip()


def hello(kept: Kept) -> None:
    kept.ana.remember("something else")
    kept.ana.session("chat").append({"role": "user", "content": "hi"})
    kept.sync()


def test_commit_of_a_renamed_file_names_its_memory(kept: Kept) -> None:
    id = kept.ana.remember("tea").id
    kept.sync()
    kept.move(kept.of(id), "ana/facts/drinks/tea.md")
    assert subject(kept) == f"ana: tea (move {id})"


def test_many_renamed_files_are_counted(kept: Kept) -> None:
    ids = [kept.ana.remember(f"tea {number}").id for number in range(3)]
    kept.sync()
    for number, id in enumerate(ids[:2]):
        kept.move(kept.of(id), f"ana/facts/{number}.md")
    kept.edit(kept.of(ids[2]), "tea 2", "coffee")
    assert subject(kept) == "ana: 1 revised, 2 moved"


def test_file_moved_to_deleted_and_back_is_forgotten_and_restored(kept: Kept) -> None:
    id = kept.ana.remember("tea").id
    kept.sync()
    path = kept.of(id)
    kept.move(path, path.replace("ana/", "ana/deleted/", 1))
    assert subject(kept) == f"ana: tea (forget {id})"
    kept.move(kept.of(id), path)
    assert subject(kept) == f"ana: tea (restore {id})"


@pytest.mark.parametrize("turns", ["together", "apart"])
def test_hidden_and_restored_session_is_named(tmp_path: Path, turns: str) -> None:
    kept = Kept(tmp_path, git=True, turns=turns)
    hello(kept)
    kept.ana.session("chat").hide()
    assert subject(kept) == "ana: chat: hidden"
    kept.ana.session("chat").restore()
    assert subject(kept) == "ana: chat: restored"
    kept.close()


def test_session_folder_moved_to_deleted_and_back_is_named(kept: Kept) -> None:
    hello(kept)
    kept.move(
        "ana/users/unnamed/sessions/2026-01/chat", "ana/users/unnamed/deleted/sessions/2026-01/chat"
    )
    assert subject(kept) == "ana: chat: hidden"
    kept.move(
        "ana/users/unnamed/deleted/sessions/2026-01/chat", "ana/users/unnamed/sessions/2026-01/chat"
    )
    assert subject(kept) == "ana: chat: restored"


def test_deleted_session_folder_is_named_as_hidden(kept: Kept) -> None:
    hello(kept)
    for path in kept.files("ana/users/unnamed/sessions/2026-01/chat"):
        kept.path(path).unlink()
    assert subject(kept) == "ana: chat: hidden"


def test_commit_of_an_edited_record_names_the_copy_that_is_kept(kept: Kept) -> None:
    hello(kept)
    kept.path("ana/MEMORY.md").write_text("mine\n", encoding="utf-8")
    assert subject(kept) == "ana: copy kept of MEMORY.md"
    turns = kept.path("ana/users/unnamed/sessions/2026-01/chat/turns.md")
    turns.write_text(turns.read_text("utf-8") + "mine\n", encoding="utf-8")
    assert subject(kept) == "ana: copy kept of chat/turns.md"


def test_edited_record_and_new_turns_are_counted_apart(kept: Kept) -> None:
    hello(kept)
    turns = kept.path("ana/users/unnamed/sessions/2026-01/chat/turns.md")
    turns.write_text(turns.read_text("utf-8") + "mine\n", encoding="utf-8")
    kept.ana.session("chat").append({"role": "user", "content": "again"})
    assert subject(kept) == "ana: 1 copy kept, 1 in conversations"
    body = by_hand(kept.root, "log", "-1", "--format=%b").decode()
    assert sorted(body.split("\n")[:2]) == ["- chat: 1 said", "- copy kept of chat/turns.md"]


def test_erased_memories_are_counted(kept: Kept) -> None:
    ids = [kept.ana.remember(f"tea with Ingrid {number}").id for number in range(3)]
    kept.sync()
    kept.ana.erase(ids[0])
    assert subject(kept) == "ana: 1 erased"
    body = by_hand(kept.root, "log", "-1", "--format=%b").decode().strip()
    assert body == f"- (erase {ids[0]})"
    kept.ana.erase(ids[1])
    kept.ana.erase(ids[2])
    assert subject(kept) == "ana: 2 erased"


def test_erased_session_and_turn_are_named(kept: Kept) -> None:
    hello(kept)
    chat = kept.ana.session("chat")
    chat.append({"role": "user", "content": "the second"})
    kept.sync()
    chat.erase_event(1)
    assert subject(kept) == "ana: chat: turn 1 erased"
    chat.erase()
    assert subject(kept) == "ana: chat: erased"


def test_message_of_an_erasure_is_not_rewritten(kept: Kept) -> None:
    id = kept.ana.remember("tea with Ingrid").id
    kept.sync()
    kept.ana.erase(id)
    kept.sync()
    assert not service.scrub(kept.store).found
    assert by_hand(kept.root, "log", "-1", "--format=%b").decode().strip() == f"- (erase {id})"


def test_move_of_an_erased_memory_is_in_no_message(kept: Kept) -> None:
    id = kept.ana.remember("tea with Ingrid").id
    kept.sync()
    kept.move(kept.of(id), "ana/facts/ingrid.md")
    with Vault.open(kept.root) as vault, vault.locked():
        Sync(vault, kept.store).everything()
    kept.ana.erase(id)
    kept.sync()
    assert b"Ingrid" not in by_hand(kept.root, "log", "-1", "--format=%B")


def test_rewritten_history_quotes_no_moved_memory_that_was_erased(kept: Kept) -> None:
    id = kept.ana.remember("tea with Ingrid").id
    kept.ana.remember("something else")
    kept.sync()
    kept.move(kept.of(id), "ana/facts/drink.md")
    assert "Ingrid" in subject(kept)
    kept.ana.erase(id)
    assert not service.scrub(kept.store).found
    assert b"ngrid" not in by_hand(kept.root, "log", "--format=%B", "--name-only")
