"""Order follows positions whatever the clock does: steps, repeats, and writers that disagree."""

from __future__ import annotations

import random

import pytest

from tests.conftest import DAY, HOUR, SECOND, Stores
from tests.figures import figure

STEPS = (0, 1, -1, SECOND, -5 * SECOND, HOUR, -HOUR, 3_650 * DAY, -3_650 * DAY)


@pytest.mark.parametrize("seed", range(6))
def test_order_is_by_position_when_the_clock_steps_back(stores: Stores, seed: int) -> None:
    """Two handles write in turn; before each write the clock steps, back by ten years included."""
    chance = random.Random(seed)
    spaces = [stores.open(embedder="none").space("ana") for _ in range(2)]
    written: list[str] = []
    for number in range(30):
        stores.clock.step(chance.choice(STEPS))
        written.append(chance.choice(spaces).remember(f"zebra number {number}").id)
    listed = [memory.id for memory in spaces[0].memories(limit=100)]
    events = [spaces[number % 2].session("chat") for number in range(20)]
    for number, session in enumerate(events):
        stores.clock.step(chance.choice(STEPS))
        session.append({"role": "user", "content": f"turn {number}"})
    texts = [event.text for event in spaces[0].session("chat").events()]
    recorded = [change.recorded_at for change in spaces[0].changes()]
    wrong = sum(
        (
            listed != written[::-1],
            texts != [f"turn {number}" for number in range(20)],
            recorded != sorted(recorded),
        )
    )
    figure("clock steps", 50)
    figure("orders or expiries that follow the clock", wrong)
    assert listed == written[::-1]
    assert texts == [f"turn {number}" for number in range(20)]
    assert recorded == sorted(recorded)


@pytest.mark.parametrize("back", [HOUR, 3_650 * DAY])
def test_cap_evicts_the_oldest_by_position_when_the_clock_steps_back(
    stores: Stores, back: int
) -> None:
    space = stores.open(embedder="none", max_facts=5).space("ana")
    for number in range(5):
        space.remember(f"before {number}")
    stores.clock.step(-back)
    newest = space.remember("the newest of all")
    kept = {memory.id for memory in space.memories()}
    figure("orders or expiries that follow the clock", newest.id not in kept)
    assert newest.id in kept and len(kept) == 5
