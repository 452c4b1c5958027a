"""Rows that another program changed, on every engine: reported, left out of answers, counted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import reverie
from reverie import Space, Store
from reverie.engine import seals
from reverie.errors import ConfigError, StoreDamaged
from tests.conftest import Stores, engine_of, rows, tamper

# One change to an entry each; every one of them must be seen by whoever reads the entry.
HEADERS = {
    "op": "'restore'",
    "recorded_at": "recorded_at + 1",
    "schema": "schema + 1",
    "actor": "'somebody'",
    "trust": "'tool'",
    "reason": "'because'",
    "origin_session": "'elsewhere'",
    "key": "'another'",
    "request": "'another'",
    "uuid": "'another'",
    "salt": "'another'",
    "digest": "'another'",
    "chain": "'another'",
    "seal": "'another'",
}


def versions(space: Space, count: int) -> list[str]:
    """Memories of three versions each."""
    ids = []
    for number in range(count):
        memory = space.remember(f"the zebra {number} is striped")
        space.revise(memory.id, f"the zebra {number} is spotted")
        space.revise(memory.id, f"the zebra {number} is plain")
        ids.append(memory.id)
    return ids


def changed_letter(store: Store, position: int) -> None:
    tamper(
        store,
        f"UPDATE log SET body = REPLACE(body, 'zebra', 'zebrb') WHERE position = {position}",
    )


def test_verify_finds_every_changed_character_of_older_versions(store: Store, space: Space) -> None:
    versions(space, 30)
    assert store.verify().ok
    chance = random.Random(5)
    older = [3 * number + chance.randint(1, 2) for number in range(30)]
    for position in older:
        changed_letter(store, position)
    report = store.verify()
    named = [problem for problem in report.problems if "is damaged" in problem]
    assert len(named) == 30, "30 of 30"
    for position in older:
        assert any(f"'ana': entry {position} is damaged" in problem for problem in named)
    assert any(f"entry {older[0]} " in problem for problem in store.doctor()["problems"])


def test_damaged_entry_raises_when_read_and_is_omitted_from_lists(
    store: Store, space: Space
) -> None:
    first, second = versions(space, 2)
    changed_letter(store, 3)
    with pytest.raises(StoreDamaged, match="entry 3 of space 'ana'") as raised:
        space.get(first)
    assert raised.value.position == 3
    with pytest.raises(StoreDamaged, match="entry 3"):
        space.history(first)
    assert [memory.id for memory in space.memories()] == [second]
    assert [hit.id for hit in space.recall("zebra")] == [second]
    assert first not in space.profile()
    assert space.get(second).content == "the zebra 1 is plain"
    assert store.damaged == 1


@pytest.mark.parametrize("column", sorted(HEADERS))
def test_damage_to_any_log_column_is_detected(store: Store, space: Space, column: str) -> None:
    space.remember("the zebra is striped", key="k")
    space.remember("another one")
    assert tamper(store, f"UPDATE log SET {column} = {HEADERS[column]} WHERE position = 1") == 1
    assert not store.verify().ok
    assert [memory.content for memory in space.memories()] == ["another one"]
    with pytest.raises(StoreDamaged, match="salvage"):
        store.rebuild()


@pytest.mark.parametrize("cut", ["position = 4", "position = 6", "position >= 5"])
def test_verify_detects_missing_log_entries(store: Store, space: Space, cut: str) -> None:
    versions(space, 2)
    assert tamper(store, f"DELETE FROM log WHERE {cut}") > 0
    assert any("missing" in line or "reached" in line for line in store.verify().problems)


def test_export_stops_at_damage_or_skips_it_on_request(store: Store, space: Space) -> None:
    versions(space, 2)
    changed_letter(store, 2)
    with pytest.raises(StoreDamaged, match="entry 2"):
        list(space.export())
    assert store.damaged == 0
    left = list(space.export(skip_damaged=True))
    assert len(left) == 5 and store.damaged == 1


def test_erased_entry_stays_in_the_hash_chain_without_its_salt(store: Store, space: Space) -> None:
    first, _ = versions(space, 2)
    before = rows(store, "SELECT digest, chain FROM log WHERE position <= 3 ORDER BY position")
    space.erase(first)
    after = rows(store, "SELECT digest, chain FROM log WHERE position <= 3 ORDER BY position")
    assert after == before
    assert rows(store, "SELECT DISTINCT salt, body FROM log WHERE position <= 3") == [(None, None)]
    assert store.verify().problems == ()
    tamper(store, "UPDATE log SET recorded_at = recorded_at - 1 WHERE position = 2")
    assert any("entry 2 is damaged" in problem for problem in store.verify().problems)


def test_entries_with_equal_content_have_different_digests(store: Store, space: Space) -> None:
    space.remember_separately("the same", key=None)
    space.remember_separately("the same", key=None)
    (one,), (two,) = rows(store, "SELECT digest FROM log ORDER BY position")
    assert one != two


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE spaces SET name = 'eve' WHERE name = 'ana'",
        "UPDATE owners SET name = 'eve' WHERE name = 'bob'",
        "UPDATE session_state SET summary = 'bob hates tea'",
        "UPDATE session_state SET scratchpad = '[\"sell tea\"]'",
        "UPDATE recalls SET hits = '[\"another\"]'",
        "UPDATE counters SET position = position + 1",
        "UPDATE counters SET chain = 'another'",
    ],
)
def test_damage_to_tables_beside_the_log_is_detected(
    store: Store, space: Space, change: str
) -> None:
    bob = store.space("ana", user="bob")
    bob.remember("bob likes tea")
    chat = bob.session("chat")
    chat.append({"role": "user", "content": "tea, please"})
    chat.write_summary("bob likes tea", upper=1, expected_epoch=0)
    chat.scratchpad.write(["buy tea"])
    chat.recall("tea")
    bob.remember("bob likes cake")
    assert store.verify().problems == () and tamper(store, change) > 0
    assert store.verify().problems
    for user in ("eve", "bob"):
        for name in ("eve", "ana"):
            handle = store.space(name, user=user)
            try:
                texts = [memory.content for memory in handle.memories()]
                assert not texts or (name, user) == ("ana", "bob")
                assert handle.session("chat").summary().text in ("", "bob likes tea")
                assert handle.session("chat").scratchpad.read().items in ((), ("buy tea",))
            except StoreDamaged:
                continue


def test_token_whose_key_is_damaged_is_reported(store: Store) -> None:
    """It was no token any more, and after a rebuild nothing told that there had been one."""
    _, secret = store.create_token("reader", "read")
    assert tamper(store, "UPDATE meta SET key = 'd' || substr(key, 2) WHERE key LIKE 'token.%'")
    assert store.authenticate(secret) is None and store.tokens() == []
    assert any("the key of a token is damaged" in each for each in store.verify().problems)
    with pytest.raises(StoreDamaged):
        store.rebuild()


def test_tampered_token_is_not_accepted(store: Store) -> None:
    token, secret = store.create_token("reader", "read", spaces=["ana"])
    assert store.authenticate(secret) == token
    tamper(store, "UPDATE meta SET value = REPLACE(value, '\"read\"', '\"admin\"')")
    assert store.authenticate(secret) is None and store.tokens() == []
    assert any(token.id in problem for problem in store.verify().problems)


def test_salvage_copies_everything_but_damaged_entries(
    stores: Stores, store: Store, space: Space, tmp_path: Path
) -> None:
    first, second = versions(space, 2)
    store.space("ben", user="cy").remember("cy climbs")
    _, secret = store.create_token("reader", "read")
    changed_letter(store, 1)
    changed_letter(store, 6)
    report = reverie.salvage_store(
        stores.address("main"), tmp_path / "saved.db", embedder="hashing"
    )
    assert not report.complete and report.problems == ()
    ana = next(each for each in report.spaces if each.space == "ana")
    assert ana.lost == ((1, 1), (6, 6))
    with reverie.open(tmp_path / "saved.db", embedder="hashing") as saved:
        assert saved.verify().problems == ()
        kept = saved.space("ana")
        assert kept.get(first).content == "the zebra 0 is plain"
        assert [version.content for version in kept.history(first)] == [
            None,
            "the zebra 0 is spotted",
            "the zebra 0 is plain",
        ]
        assert kept.get(second).content == "the zebra 1 is spotted", "the last that is left"
        assert saved.space("ben", user="cy").memories()[0].content == "cy climbs"
        assert saved.authenticate(secret) is not None
        kept.remember("life goes on")
        assert kept.memories()[0].content == "life goes on" and saved.verify().ok
    with pytest.raises(ConfigError, match="exists"):
        reverie.salvage_store(stores.address("main"), tmp_path / "saved.db")


def test_migrate_refuses_a_damaged_store(
    stores: Stores, store: Store, space: Space, tmp_path: Path
) -> None:
    from reverie.transfer.migrate import migrate

    versions(space, 1)
    changed_letter(store, 1)
    store.close()
    with pytest.raises(StoreDamaged, match="salvage"):
        migrate(stores.address("main"), str(tmp_path / "copy.db"))


def test_backup_of_a_damaged_store_is_made_and_reports_the_damage(
    store: Store, space: Space, tmp_path: Path
) -> None:
    versions(space, 1)
    changed_letter(store, 1)
    report = store.backup(tmp_path / "backup.db")
    assert not report.ok and (tmp_path / "backup.db").exists()
    with pytest.raises(StoreDamaged):
        store.restore_backup(tmp_path / "backup.db")


def test_hash_chain_follows_the_order_of_positions(store: Store, space: Space) -> None:
    versions(space, 2)
    store.space("ana", user="bob").remember("between others")
    space.remember("behind them")
    chain = seals.NO_CHAIN
    for *row, found in rows(
        store,
        f"SELECT {seals.HEADER_COLUMNS}, digest, chain FROM log WHERE space = 1 ORDER BY position",
    ):
        chain = seals.chain_hash(chain, seals.encode_header(row[:-1]), row[-1])
        assert chain == found
    assert rows(store, "SELECT chain FROM counters WHERE space = 1") == [(chain,)]
    assert engine_of(store).damaged == set()
