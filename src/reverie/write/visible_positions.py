"""A cache of log positions: for each user, those of the entries that the user may see."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from reverie.engine import log
from reverie.protocols import Owner, Transaction

MAX_POSITIONS = 4_000_000
"""How many positions the cache holds, 8 bytes each; those of other users are read again."""


_Key = tuple[int, tuple[Owner, ...]]


class _Visible(NamedTuple):
    """The positions of the entries that a user sees, up to the position ``until``."""

    positions: array[int]
    until: int


class VisiblePositions:
    """The visible positions of the users that asked most recently; threads may share it."""

    def __init__(self) -> None:
        self._cache: OrderedDict[_Key, _Visible] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, tx: Transaction, owners: Sequence[Owner]) -> array[int]:
        """Return the positions of these owners' entries, in order."""
        if not owners:
            return array("q")
        # A restored backup may hold other entries at the same positions.
        key = (log.restore_epoch(tx), tuple(owners))
        with self._lock:
            known = self._cache.get(key, _Visible(array("q"), 0))
        end = log.last_position(tx, owners[-1])
        fresh = _read_positions(tx, owners, known.until, end) if end > known.until else []
        found = _Visible(known.positions + array("q", fresh) if fresh else known.positions, end)
        with self._lock:
            kept = self._cache.get(key)
            if kept is None or kept.until < found.until:
                self._cache[key] = found
            self._cache.move_to_end(key)
            self._drop_oldest()
        return found.positions

    def _drop_oldest(self) -> None:
        """Drop the positions of the users that asked least recently, but never the newest."""
        size = sum(len(kept.positions) for kept in self._cache.values())
        while size > MAX_POSITIONS and len(self._cache) > 1:
            _, dropped = self._cache.popitem(last=False)
            size -= len(dropped.positions)


def _read_positions(tx: Transaction, owners: Sequence[Owner], after: int, until: int) -> list[int]:
    marks = ", ".join("?" * len(owners))
    rows = tx.all(
        f"SELECT position FROM log WHERE space = ? AND owner IN ({marks}) "
        "AND position > ? AND position <= ? ORDER BY position",
        (owners[0].space, *(owner.number for owner in owners), after, until),
    )
    return [row[0] for row in rows]
