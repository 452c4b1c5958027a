"""Positions as one user may know them: counted among the entries that the user sees.

A position of the log counts everything that happens in a space, so a user who reads two of them
learns how much others wrote in between. The n-th entry that a user sees (their own and the shared
ones) is number n to them, whatever others do. The log is only ever appended to in the order of its
positions, so such a number stands for the same entry for ever.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from reverie.memory.space import Space


def visible_numbers(space: Space, positions: Sequence[int]) -> list[int]:
    """How many entries this handle sees up to each of these positions."""
    seen = _visible_positions(space)
    return [bisect_right(seen, position) for position in positions]


def last_visible_number(space: Space) -> int:
    """How many entries this handle sees."""
    return len(_visible_positions(space))


def position_of_number(space: Space, number: int) -> int:
    """The position of the n-th entry this handle sees; beyond the last, that of the last."""
    seen = _visible_positions(space)
    at = min(number, len(seen))
    return seen[at - 1] if at > 0 else 0


def _visible_positions(space: Space) -> array[int]:
    runtime = space._runtime
    with runtime.engine.read() as tx:
        return runtime.visible_positions.read(tx, list(space._owners(tx)))
