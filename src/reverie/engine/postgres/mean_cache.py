"""A cache of the mean vector of each owner, one per process, updated as vectors change.

Summing thousands of vectors would be too slow for every recall. Only the first vectors of an owner
(``vector_math.MEAN_SAMPLE_SIZE``) count; ``statistics`` and ``touched`` tell whether they changed.
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

MAX_SUMS = 10_000
# Reads the vectors of an owner's passages in [first, end), in order, those that have one.
Reader = Callable[[int, int], "Matrix"]


@dataclass(frozen=True, slots=True)
class VectorSum:
    """The sum of the ``live`` vectors of an owner's passages below ``count``."""

    epoch: int
    touches: int
    count: int
    live: int
    total: NDArray[np.float64] | None

    def mean(self) -> Vector | None:
        """The mean vector; None if there are no vectors."""
        if self.total is None:
            return None
        return vector_math.mean_from_sum(self.total, self.live)


class MeanCache:
    """The sums this process has used; the least recently used are dropped."""

    def __init__(self) -> None:
        self._sums: OrderedDict[tuple[Owner, int], VectorSum] = OrderedDict()
        self._lock = threading.Lock()

    def current(
        self, tx: Transaction, owner: Owner, generation: int, read: Reader, *, keep: bool
    ) -> VectorSum:
        """The sum of an owner's vectors as this transaction sees them.

        A write transaction passes ``keep=False``: what it sees may be rolled back, so it neither
        uses nor changes the cache.
        """
        statistics = index.statistics(tx, owner)
        epoch, touches = statistics.epoch, statistics.touches
        end = min(statistics.next_passage, vector_math.MEAN_SAMPLE_SIZE)
        with self._lock:
            cached = self._sums.get((owner, generation)) if keep else None
        if cached is not None and cached.touches != touches and cached.epoch == epoch:
            cached = self._after_touches(tx, owner, cached, touches)
        if cached is None or cached.epoch != epoch or cached.count > end:
            cached = VectorSum(epoch, touches, 0, 0, None)
        if cached.count < end:
            cached = _extend_sum(cached, read(cached.count, end), end)
        if keep:
            with self._lock:
                self._sums[owner, generation] = cached
                self._sums.move_to_end((owner, generation))
                while len(self._sums) > MAX_SUMS:
                    self._sums.popitem(last=False)
        return cached

    def _after_touches(
        self, tx: Transaction, owner: Owner, known: VectorSum, touches: int
    ) -> VectorSum | None:
        """The cached sum for a newer count of touches; None if a vector in it has changed."""
        moved = touches < known.touches or tx.one(
            "SELECT 1 FROM touched WHERE space = ? AND owner = ? AND touch > ? AND passage < ? "
            "LIMIT 1",
            (*owner, known.touches, known.count),
        )
        if moved:
            return None
        return VectorSum(known.epoch, touches, known.count, known.live, known.total)


def _extend_sum(known: VectorSum, rows: Matrix, count: int) -> VectorSum:
    """Add vectors one after the other, so that the sum does not depend on how it was reached."""
    total = known.total
    if len(rows):
        first = np.zeros((1, rows.shape[1])) if total is None else total[np.newaxis]
        total = np.concatenate([first, rows.astype(np.float64)]).sum(axis=0)
    return VectorSum(known.epoch, known.touches, count, known.live + len(rows), total)
