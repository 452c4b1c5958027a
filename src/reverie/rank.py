"""From candidates to hits: pure functions over scores.

Scores are rounded to six places so that every engine agrees; equal ones are ordered by position,
the newest first.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Generic, NamedTuple, TypeVar

from reverie.model import Ranking

# Six to eight rare terms lose nothing against all of them.
QUERY_TERMS = 8
# BM25's constants, with length counting for less than usual: passages are of even size already.
K1 = 1.2
B = 0.4
PLACES = 6

T = TypeVar("T", bound=Hashable)


class Scored(NamedTuple, Generic[T]):
    """A candidate with the number each stage gave it. None: that stage did not find it."""

    item: T
    score: float
    keyword: float | None
    vector: float | None
    keyword_part: float
    vector_part: float


def rarity(passages: int, frequency: int) -> float:
    """How much it says that a passage has a term which ``frequency`` of ``passages`` have."""
    return math.log(1 + (passages - frequency + 0.5) / (frequency + 0.5))


def term_weights(passages: int, frequencies: Mapping[str, int]) -> dict[str, float]:
    """The rarest of the query's terms that the owner knows, with their weights."""
    known = [(count, term) for term, count in frequencies.items() if count]
    return {term: rarity(passages, count) for count, term in sorted(known)[:QUERY_TERMS]}


def word_weights(
    passages: int, words: Mapping[str, str], frequencies: Mapping[str, int]
) -> dict[str, float]:
    """How much each word of the query counts in its vector: by its rarity with the owner."""
    return {
        word: math.sqrt(math.log((passages + 1) / (frequencies.get(term, 0) + 1)) + 0.1)
        for term, word in words.items()
    }


def saturation(passages: int, terms: int) -> tuple[float, float]:
    """(a, b) of ``tf / (tf + a + b * len)`` for an owner with this many passages and terms."""
    average = terms / passages if passages and terms else 1.0
    return K1 * (1 - B), K1 * B / average


def keyword_score(
    counts: Mapping[str, int],
    length: int,
    weights: Mapping[str, float],
    saturated: tuple[float, float],
) -> float:
    """What the scoring statement computes, for one passage."""
    a, b = saturated
    return sum(
        weight * counts[term] / (counts[term] + a + b * length)
        for term, weight in weights.items()
        if term in counts
    )


def min_max(scores: Mapping[T, float]) -> dict[T, float]:
    """Spread over [0, 1]; when all are equal each is 1."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    if high - low <= 1e-6:
        return dict.fromkeys(scores, 1.0)
    return {item: (score - low) / (high - low) for item, score in scores.items()}


def fuse(
    keyword: Mapping[T, float] | None, vector: Mapping[T, float] | None, ranking: Ranking
) -> list[Scored[T]]:
    """One score from two kinds of evidence. A kind that was not asked for is None: no say."""
    shares = (
        ranking.keyword_weight if keyword is not None else 0.0,
        ranking.vector_weight if vector is not None else 0.0,
    )
    whole = sum(shares) or 1.0
    by_keyword, by_vector = min_max(keyword or {}), min_max(vector or {})
    fused = []
    for item in {**by_keyword, **by_vector}:
        keyword_part = shares[0] / whole * by_keyword.get(item, 0.0)
        vector_part = shares[1] / whole * by_vector.get(item, 0.0)
        fused.append(
            Scored(
                item,
                round(keyword_part + vector_part, PLACES),
                None if keyword is None else keyword.get(item),
                None if vector is None else vector.get(item),
                round(keyword_part, PLACES),
                round(vector_part, PLACES),
            )
        )
    return fused


def nearly_same(one: Set[str], other: Set[str]) -> bool:
    """Whether two texts, each as the set of its terms, say the same with a few other words."""
    return bool(one & other) and len(one & other) * 2 >= len(one | other)


def best_first(scored: Iterable[Scored[T]], position: Mapping[T, int]) -> list[Scored[T]]:
    return sorted(scored, key=lambda found: (-found.score, -position[found.item]))


def best_of_each(scored: Sequence[Scored[T]], thing: Mapping[T, Hashable]) -> list[Scored[T]]:
    """Several passages of one memory are one hit: its best."""
    seen: set[Hashable] = set()
    kept = []
    for found in scored:
        if thing[found.item] not in seen:
            seen.add(thing[found.item])
            kept.append(found)
    return kept
