"""Positions as one user may know them: counted among the entries that the user sees.

A position of the log counts everything that happens in a space, so a user who reads two of them
learns how much others wrote in between. The n-th entry that a user sees (their own and the shared
ones) is number n to them, whatever others do. The log is only ever appended to in the order of its
positions, so such a number stands for the same entry for ever.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from reverie.engine import log
from reverie.protocols import Owner, Transaction

if TYPE_CHECKING:
    from reverie.memory.space import Space

MAX_POSITIONS = 4_000_000
"""How many positions are kept in all, 8 bytes each; of users beyond it they are read again."""

_Key = tuple[int, tuple[Owner, ...]]


class _Visible(NamedTuple):
    """The positions of the entries that a user sees, and how far the log was looked through."""

    positions: array[int]
    until: int


class SeenPositions:
    """What was read of the log so far, for the users that asked last."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, _Visible] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, tx: Transaction, owners: Sequence[Owner]) -> array[int]:
        """The positions that these owners' entries have, in order."""
        if not owners:
            return array("q")
        # A backup that came back may hold other entries at the same positions.
        key = (log.lineage(tx), tuple(owners))
        with self._lock:
            known = self._known.get(key, _Visible(array("q"), 0))
        end = log.last_position(tx, owners[-1])
        fresh = _between(tx, owners, known.until, end) if end > known.until else []
        found = _Visible(known.positions + array("q", fresh) if fresh else known.positions, end)
        with self._lock:
            kept = self._known.get(key)
            if kept is None or kept.until < found.until:
                self._known[key] = found
            self._known.move_to_end(key)
            self._drop_oldest()
        return found.positions

    def _drop_oldest(self) -> None:
        """Forget the users that asked longest ago; the newest one always stays."""
        size = sum(len(kept.positions) for kept in self._known.values())
        while size > MAX_POSITIONS and len(self._known) > 1:
            _, dropped = self._known.popitem(last=False)
            size -= len(dropped.positions)


def numbers(space: Space, positions: Sequence[int]) -> list[int]:
    """How many entries this handle sees up to each of these positions."""
    seen = _seen_by(space)
    return [bisect_right(seen, position) for position in positions]


def current_number(space: Space) -> int:
    """How many entries this handle sees."""
    return len(_seen_by(space))


def position_of(space: Space, number: int) -> int:
    """The position of the n-th entry this handle sees; beyond the last, that of the last."""
    seen = _seen_by(space)
    at = min(number, len(seen))
    return seen[at - 1] if at > 0 else 0


def _seen_by(space: Space) -> array[int]:
    resources = space._resources
    with resources.engine.read() as tx:
        return resources.seen_positions.read(tx, list(space._owners(tx)))


def _between(tx: Transaction, owners: Sequence[Owner], after: int, until: int) -> list[int]:
    marks = ", ".join("?" * len(owners))
    rows = tx.all(
        f"SELECT position FROM log WHERE space = ? AND owner IN ({marks}) "
        "AND position > ? AND position <= ? ORDER BY position",
        (owners[0].space, *(owner.number for owner in owners), after, until),
    )
    return [row[0] for row in rows]
