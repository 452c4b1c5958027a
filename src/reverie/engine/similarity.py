"""Cosine of centred vectors, and the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Vector

# Few vectors do not show where their owner's middle is: it is trusted in proportion to them.
MEAN_PRIOR = 16


def mean_of(total: NDArray[np.float64], live: int) -> Vector:
    return (total / (live + MEAN_PRIOR)).astype(np.float32)


def squares(rows: Matrix) -> Vector:
    """The squared length of each row."""
    squared: Vector = np.einsum("ij,ij->i", rows, rows)
    return squared


def distances(rows: Matrix, squared: Vector, mean: Vector) -> Vector:
    """How far each row is from the mean; infinite for an empty row, which can score nothing."""
    apart = np.sqrt(np.maximum(squared - 2 * (rows @ mean) + mean @ mean, 1e-12))
    return np.where(squared > 0, apart, np.inf).astype(np.float32)


def centred_cosine(rows: Matrix, mean: Vector, apart: Vector, query: Vector) -> Vector:
    """Cosine after moving the mean to the origin; -inf where there is no vector."""
    direction = query - mean
    length = float(np.linalg.norm(direction)) or 1.0
    scores = rows @ (direction / length)
    scores -= float(mean @ direction) / length
    scores /= apart
    scores[np.isinf(apart)] = -np.inf
    return scores


def best(scores: Vector, limit: int, allowed: Sequence[int] | None) -> list[tuple[int, float]]:
    """The best first; equal to six places means equal, and the newest passage comes first."""
    numbers = None
    if allowed is not None:
        numbers = np.asarray(allowed, dtype=np.int64)
        numbers = numbers[numbers < len(scores)]
        scores = scores[numbers]
    if len(scores) > limit:
        # What rounds to the same as the last one kept must be weighed against it.
        cut = np.partition(scores, len(scores) - limit)[len(scores) - limit] - 1e-6
        kept = np.flatnonzero(scores >= cut)
    else:
        kept = np.arange(len(scores))
    kept = kept[np.isfinite(scores[kept])]
    rounded = np.round(scores[kept].astype(np.float64), 6)
    found = kept if numbers is None else numbers[kept]
    order = np.lexsort((-found, -rounded))[:limit]
    return [(int(found[i]), float(rounded[i])) for i in order]
