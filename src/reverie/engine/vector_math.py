"""Cosine of centred vectors, and the best of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Vector

# Few vectors do not show where their owner's middle is: it is trusted in proportion to them.
MEAN_PRIOR = 16
# The middle of an owner's vectors is that of so many, the first.
MEAN_SAMPLE_SIZE = 4_096


def mean_vector(rows: Matrix) -> Vector:
    """The middle of an owner's rows; an empty one is not there."""
    rows = rows[:MEAN_SAMPLE_SIZE]
    return mean_from_sum(rows.sum(axis=0, dtype=np.float64), int(rows.any(axis=1).sum()))


def mean_from_sum(total: NDArray[np.float64], many: int) -> Vector:
    """The middle of so many rows, from their sum."""
    return (total / (many + MEAN_PRIOR)).astype(np.float32)


def squared_norms(rows: Matrix) -> Vector:
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


def exact_cosine(rows: Matrix, mean: Vector, query: Vector) -> NDArray[np.float64]:
    """The same for a few rows, to six places, whatever rows they are computed with."""
    middle = mean.astype(np.float64)
    moved, direction = rows.astype(np.float64) - middle, query.astype(np.float64) - middle
    lengths = np.sqrt(np.einsum("ij,ij->i", moved, moved))
    lengths *= float(np.linalg.norm(direction)) or 1.0
    cosine = np.einsum("ij,j->i", moved, direction) / np.maximum(lengths, 1e-12)
    return np.where(squared_norms(rows) > 0, np.round(cosine, 6), -np.inf)


def top_k(
    scores: Vector | NDArray[np.float64], limit: int, numbers: NDArray[np.int64] | None = None
) -> list[tuple[int, float]]:
    """The best first; equal to six places means equal, and the newest passage comes first.

    ``numbers`` are those of the passages that the scores are of; None: all, from the first.
    """
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
    return list(zip(found[order].tolist(), rounded[order].tolist(), strict=True))
