"""Replace log positions by numbers that do not reveal how much other users write.

A position counts every entry of a space, so a user who reads two of them learns how many entries
others wrote in between. Such a user gets numbers instead: the n-th entry that the user sees (their
own and the shared ones) has number n. The log only grows at its end, so a number always stands for
the same entry.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from reverie.memory.space import Space
from reverie.write.owners import visible_owners


def visible_numbers(space: Space, positions: Sequence[int]) -> list[int]:
    """Return for each position how many entries this handle sees up to it."""
    seen = _visible_positions(space)
    return [bisect_right(seen, position) for position in positions]


def last_visible_number(space: Space) -> int:
    """Return how many entries this handle sees."""
    return len(_visible_positions(space))


def position_of_number(space: Space, number: int) -> int:
    """Return the position of the n-th entry that this handle sees, at most that of the last."""
    seen = _visible_positions(space)
    at = min(number, len(seen))
    return seen[at - 1] if at > 0 else 0


def _visible_positions(space: Space) -> array[int]:
    runtime = space.runtime
    with runtime.engine.read() as tx:
        return runtime.visible_positions.read(tx, list(visible_owners(tx, space.author.scope)))
