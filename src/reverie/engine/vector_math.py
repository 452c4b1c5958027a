"""Cosine similarity after subtracting the mean vector, and the selection of the best scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Vector

# The mean is computed as if this many zero vectors were added: that of few vectors is unreliable.
MEAN_PRIOR = 16
# The mean of an owner's vectors is computed from at most this many, the first.
MEAN_SAMPLE_SIZE = 4_096
# Embedders make vectors of unit norm. One whose norm is larger than this, or not a number, was
# damaged: it would move the mean, and with it the scores of all vectors of its owner.
MAX_NORM = 100.0


def mean_vector(rows: Matrix) -> Vector:
    """The mean of an owner's first vectors; a row of zeros is no vector and does not count."""
    rows = rows[:MEAN_SAMPLE_SIZE]
    return mean_from_sum(rows.sum(axis=0, dtype=np.float64), int(rows.any(axis=1).sum()))


def mean_from_sum(total: NDArray[np.float64], count: int) -> Vector:
    """The mean of ``count`` vectors, given their sum."""
    return (total / (count + MEAN_PRIOR)).astype(np.float32)


def squared_norms(rows: Matrix) -> Vector:
    """The squared length of each row."""
    squared: Vector = np.einsum("ij,ij->i", rows, rows)
    return squared


def is_damaged(squared: Vector) -> NDArray[np.bool_]:
    """Tell for each row, by its squared norm, whether no embedder can have made it."""
    return ~(squared < MAX_NORM**2)


def distances(rows: Matrix, squared: Vector, mean: Vector) -> Vector:
    """The distance of each row from the mean; infinite for a row of zeros, which is no vector."""
    lengths = np.sqrt(np.maximum(squared - 2 * (rows @ mean) + mean @ mean, 1e-12))
    return np.where(squared > 0, lengths, np.inf).astype(np.float32)


def centred_cosine(rows: Matrix, mean: Vector, apart: Vector, query: Vector) -> Vector:
    """Cosine similarity after subtracting the mean; -inf for a row of zeros.

    ``apart`` is the distance of each row from the mean, from ``distances``.
    """
    direction = query - mean
    length = float(np.linalg.norm(direction)) or 1.0
    scores = rows @ (direction / length)
    scores -= float(mean @ direction) / length
    scores /= apart
    scores[np.isinf(apart)] = -np.inf
    return scores


def exact_cosine(rows: Matrix, mean: Vector, query: Vector) -> NDArray[np.float64]:
    """Cosine similarity after subtracting the mean, in double precision, rounded to six places.

    For few rows: the score of a row does not depend on the rows it is computed with.
    """
    origin = mean.astype(np.float64)
    centred, direction = rows.astype(np.float64) - origin, query.astype(np.float64) - origin
    lengths = np.sqrt(np.einsum("ij,ij->i", centred, centred))
    lengths *= float(np.linalg.norm(direction)) or 1.0
    cosine = np.einsum("ij,j->i", centred, direction) / np.maximum(lengths, 1e-12)
    return np.where(squared_norms(rows) > 0, np.round(cosine, 6), -np.inf)


def top_k(
    scores: Vector | NDArray[np.float64], limit: int, numbers: NDArray[np.int64] | None = None
) -> list[tuple[int, float]]:
    """The passages with the best scores, best first; equal scores put the newest passage first.

    Scores are compared rounded to six places. ``numbers`` are the passages that the scores belong
    to; None: passages 0, 1, 2, ….
    """
    if len(scores) > limit:
        # Scores that round to the same as the last one selected must be compared with it.
        lowest = np.partition(scores, len(scores) - limit)[len(scores) - limit] - 1e-6
        selected = np.flatnonzero(scores >= lowest)
    else:
        selected = np.arange(len(scores))
    selected = selected[np.isfinite(scores[selected])]
    rounded = np.round(scores[selected].astype(np.float64), 6)
    passages = selected if numbers is None else numbers[selected]
    order = np.lexsort((-passages, -rounded))[:limit]
    return list(zip(passages[order].tolist(), rounded[order].tolist(), strict=True))
