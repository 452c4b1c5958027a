"""Positions counted among what a user sees: the same on every engine, whatever others write."""

from __future__ import annotations

import pytest

from reverie.memory.positions import last_visible_number, position_of_number, visible_numbers
from reverie.write import visible_positions
from tests.conftest import Stores


def test_visible_positions_count_own_and_shared_entries_only(stores: Stores) -> None:
    store = stores.open()
    ana, bob, all_ = (store.space("team", user=user) for user in ("ana", "bob", None))
    assert last_visible_number(ana) == 0 and position_of_number(ana, 5) == 0
    all_.remember("shared 1")
    assert last_visible_number(ana) == 1, "ana has written nothing yet"
    for number in range(3):
        bob.remember(f"bob's {number}")
    memory = ana.remember("ana's 1")
    all_.remember("shared 2")
    bob.remember("bob's last")
    assert [each.position for each in ana.history(memory.id)] == [5]
    assert visible_numbers(ana, [0, 1, 2, 4, 5, 6, 7, 99]) == [0, 1, 1, 1, 2, 3, 3, 3]
    assert [position_of_number(ana, number) for number in range(-1, 6)] == [0, 0, 1, 5, 6, 6, 6]
    assert (
        last_visible_number(ana) == 3
        and last_visible_number(bob) == 6
        and last_visible_number(all_) == 2
    )


def test_visible_positions_are_the_same_in_another_process_and_after_a_rebuild(
    stores: Stores,
) -> None:
    store = stores.open()
    ana, bob = store.space("team", user="ana"), store.space("team", user="bob")
    for number in range(5):
        ana.remember(f"ana's {number}")
        bob.remember(f"bob's {number}")
    expected = visible_numbers(ana, range(11))
    other = stores.open()
    assert visible_numbers(other.space("team", user="ana"), range(11)) == expected
    ana.remember("one more")
    assert last_visible_number(other.space("team", user="ana")) == 6
    other.rebuild()
    assert visible_numbers(other.space("team", user="ana"), range(11)) == expected


def test_visible_positions_are_cached_for_the_most_recent_users(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visible_positions, "MAX_POSITIONS", 7)
    store = stores.open()
    for number in range(5):
        user = store.space("team", user=f"user {number}")
        for text in ("one", "two"):
            user.remember(text)
        assert last_visible_number(user) == 2
    kept = store.runtime.visible_positions._cache
    assert [len(user.positions) for user in kept.values()] == [2, 2, 2]
