"""The middle of an owner's vectors, kept in each process and followed as they change.

A sum of a few thousand vectors is no work for every recall. What comes behind the first ones moves
nothing; ``statistics`` and ``touched`` say whether any of those changed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reverie.engine import index, vector_math
from reverie.protocols import Owner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Transaction, Vector

MAX_KEPT = 10_000
# The vectors of an owner's passages in [first, end), in order; of those that have one.
Reader = Callable[[int, int], "Matrix"]


@dataclass(frozen=True, slots=True)
class VectorSum:
    """The sum of so many vectors, of the passages below ``count``."""

    epoch: int
    touches: int
    count: int
    live: int
    total: NDArray[np.float64] | None

    def mean(self) -> Vector | None:
        if self.total is None:
            return None
        return vector_math.mean_from_sum(self.total, self.live)


class MeanCache:
    """The middles this process has used, the least recently used given up."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Owner, int], VectorSum] = OrderedDict()
        self._lock = threading.Lock()

    def current(
        self, tx: Transaction, owner: Owner, generation: int, read: Reader, *, keep: bool
    ) -> VectorSum:
        """As this transaction sees it. What a writer sees may yet be undone: it is not kept."""
        known_of = index.statistics(tx, owner)
        epoch, touches = known_of.epoch, known_of.touches
        end = min(known_of.next_passage, vector_math.MEAN_SAMPLE_SIZE)
        with self._lock:
            known = self._kept.get((owner, generation)) if keep else None
        if known is not None and known.touches != touches and known.epoch == epoch:
            known = self._followed(tx, owner, known, touches)
        if known is None or known.epoch != epoch or known.count > end:
            known = VectorSum(epoch, touches, 0, 0, None)
        if known.count < end:
            known = _extend_sum(known, read(known.count, end), end)
        if keep:
            with self._lock:
                self._kept[owner, generation] = known
                self._kept.move_to_end((owner, generation))
                while len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
        return known

    def _followed(
        self, tx: Transaction, owner: Owner, known: VectorSum, touches: int
    ) -> VectorSum | None:
        """The same after what changed since, unless one of the first ones did."""
        moved = touches < known.touches or tx.one(
            "SELECT 1 FROM touched WHERE space = ? AND owner = ? AND touch > ? AND passage < ? "
            "LIMIT 1",
            (*owner, known.touches, known.count),
        )
        if moved:
            return None
        return VectorSum(known.epoch, touches, known.count, known.live, known.total)


def _extend_sum(known: VectorSum, rows: Matrix, count: int) -> VectorSum:
    """Added one after the other, so that it is the same sum however it was come by."""
    total = known.total
    if len(rows):
        first = np.zeros((1, rows.shape[1])) if total is None else total[np.newaxis]
        total = np.concatenate([first, rows.astype(np.float64)]).sum(axis=0)
    return VectorSum(known.epoch, known.touches, count, known.live + len(rows), total)
