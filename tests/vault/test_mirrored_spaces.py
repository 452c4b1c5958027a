"""Which folder is the vault of a store, and which spaces it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import reverie
from reverie import Settings
from reverie.errors import VaultError
from reverie.vault import rebuild, service
from reverie.vault.vault import Vault
from tests.vault.vaults import Kept, assert_equal, holding


def test_summary_of_a_space_that_is_not_mirrored_is_not_written(kept: Kept) -> None:
    kept.init(kept.root, ["ana"])
    session = kept.store.space("eve").session("chat")
    session.append({"role": "user", "content": "hi"})
    session.write_summary("what Eve said", upper=1, expected_epoch=0)
    kept.store.run_pending_jobs()
    assert not kept.path("eve").exists()


def test_deleted_files_of_a_space_no_longer_mirrored_are_not_forgotten(
    kept: Kept,
) -> None:
    eve = kept.store.space("eve")
    kept.ana.remember("one")
    two = eve.remember("two")
    eve.remember("three")
    session = eve.session("chat")
    session.append({"role": "user", "content": "hi"})
    kept.sync()
    path = kept.of(two)
    kept.init(kept.root, ["ana"])
    kept.path(path).unlink()
    kept.path("eve/users/unnamed/sessions/2026-01/chat/turns.md").unlink()
    assert not kept.sync(path) and not kept.sync()
    assert eve.get(two.id).forgotten_at is None and session.info().hidden_at is None
    kept.init(kept.root)
    assert not kept.sync()
    assert_equal(kept)


def test_erase_in_a_space_no_longer_mirrored_removes_its_files(kept: Kept) -> None:
    eve = kept.store.space("eve")
    kept.ana.remember("one")
    session = eve.session("chat")
    session.append({"role": "user", "content": "the word is xyzzy"})
    session.write_summary("they spoke of xyzzy", upper=1, expected_epoch=0)
    erased, other = eve.remember("xyzzy is the word"), eve.remember("before")
    kept.sync()
    kept.init(kept.root, ["ana"])
    session.erase()
    eve.erase(erased.id)
    eve.revise(other.id, "not to be shown")
    kept.store.run_pending_jobs()
    assert not holding(kept, b"xyzzy") and not holding(kept, b"not to be shown")
    assert kept.document(kept.of(other)).content == "before"
    kept.init(kept.root)
    kept.sync()
    assert_equal(kept)


def test_vault_of_another_store_is_unchanged(kept: Kept) -> None:
    kept.init(kept.root, ["ana"])
    kept.ana.remember("one")
    kept.sync()
    before = kept.bytes()
    with kept.open("other.db") as other:
        other.space("ana").remember("of the other store")
        with pytest.raises(VaultError, match="vault of another store"):
            service.init(other, kept.root)
        assert other.vault is None
    assert kept.bytes() == before


def test_vault_of_a_newer_version_is_not_downgraded(tmp_path: Path) -> None:
    Vault.init(tmp_path).close()
    asked = tmp_path / ".reverie" / "vault.json"
    newer = {**json.loads(asked.read_text()), "format": 99}
    asked.write_text(json.dumps(newer))
    with pytest.raises(VaultError, match="newer Reverie"):
        Vault.init(tmp_path)
    assert json.loads(asked.read_text()) == newer
    asked.write_text("rubbish")
    Vault.init(tmp_path).close()


def test_vault_setting_applies_only_to_a_store_without_a_vault(tmp_path: Path) -> None:
    for setting, expected in (("a", "a"), ("b", "a"), ("", "a")):
        settings = Settings(vault=str(tmp_path / setting) if setting else "")
        with reverie.open(tmp_path / "kept.db", settings=settings, embedder="none") as store:
            assert store.vault == tmp_path / expected


@pytest.mark.parametrize("how", ["from vault", "to vault"])
def test_missing_vault_folder_is_not_created_again(kept: Kept, how: str) -> None:
    kept.ana.remember("one")
    kept.sync()
    kept.store.close()
    root = kept.root if how == "from vault" else kept.folder / "new"
    with kept.open("other.db") as store:
        if how == "from vault":
            rebuild.from_vault(store, root)
        else:
            rebuild.to_vault(store, root)
        assert store.vault == root
        root.rename(kept.folder / "elsewhere")
        store.space("ana").remember("two")
        store.run_pending_jobs()
        assert not root.exists()


def test_erase_removes_files_of_a_space_that_no_config_lists(
    kept: Kept,
) -> None:
    eve = kept.store.space("eve")
    kept.ana.remember("one")
    erased = eve.remember("xyzzy is the word")
    session = eve.session("chat")
    session.append({"role": "user", "content": "the word is xyzzy"})
    session.write_summary("they spoke of xyzzy", upper=1, expected_epoch=0)
    kept.sync()
    kept.init(kept.root, ["ana"])
    kept.path(".reverie/files.db").unlink()
    eve.erase(erased.id)
    session.erase()
    kept.sync()
    assert not holding(kept, b"xyzzy")


def test_erase_after_a_backup_removes_files_of_a_space_not_mirrored(kept: Kept) -> None:
    eve = kept.store.space("eve")
    kept.ana.remember("one")
    erased = eve.remember("xyzzy is the word")
    kept.sync()
    kept.init(kept.root, ["ana"])
    kept.store.backup(kept.folder / "backup.db")
    for text in ("two", "three"):
        eve.remember(text)
    kept.sync()
    kept.store.close()
    kept.store = kept.open()
    kept.store.restore_backup(kept.folder / "backup.db")
    kept.store.space("eve").erase(erased.id)
    kept.sync()
    assert not holding(kept, b"xyzzy")


def test_erase_removes_summaries_of_forks_that_are_not_mirrored(kept: Kept) -> None:
    eve = kept.store.space("eve")
    history = [{"role": "user", "content": text} for text in ("the word is xyzzy", "go on")]
    session = eve.follow(history)
    fork = eve.follow([history[0], {"role": "user", "content": "otherwise"}])
    assert fork.forked_from == (session.id, 1)
    fork.write_summary("they spoke of xyzzy", upper=2, expected_epoch=0)
    kept.ana.remember("one")
    kept.sync()
    assert holding(kept, b"they spoke")
    kept.init(kept.root, ["ana"])
    session.erase_event(1)
    kept.sync()
    assert not holding(kept, b"xyzzy")
