"""From candidates to hits: pure functions over scores.

Scores are rounded to six places so that every engine agrees; equal ones are ordered by position,
the newest first. What the numbers below are worth is measured by ``bench/retrieval.py``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from reverie.model import POSTING_LENGTH_BASE, Candidate, Ranking

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

# The rarest terms of a query say what all of them do. One bit of a mask stands for each.
MAX_QUERY_TERMS = 16
# A rare word counts for more than its information.
IDF_EXPONENT = 1.2
SCORE_DECIMALS = 6
# How length counts against a text: not before it has some terms, and never in proportion.
LENGTH_PIVOT = 45.0
LENGTH_EXPONENT = 0.4
# Of so many terms, a turn borrows half as much as one that says nothing, or lends half as much.
BORROWER_PIVOT = 60.0
LENDER_PIVOT = 30.0
# What a turn borrows from those so many places away; less from those that came later.
NEIGHBOR_DISTANCE = 2
NEIGHBOR_WEIGHTS = np.array([0.0, 1.0, 0.5])
LATER_FACTOR = 0.8
NEIGHBOR_VECTOR_WEIGHT = 0.35
# Centred, what has nothing to do with a query is as often below zero as above it.
MIN_SIMILARITY = -0.3
DAY_MS = 86_400_000

T = TypeVar("T", bound=Hashable)
Parts = Mapping[str, float | None]


class FusedScore(NamedTuple, Generic[T]):
    """An item with its score, and what each kind of evidence gave to it."""

    item: T
    score: float
    parts: Parts


# -- the query's words ----------------------------------------------------------------------------


def idf_weight(passages: int, frequency: int) -> float:
    """How much it says that a passage has a term which ``frequency`` of ``passages`` have."""
    information = math.log(1 + (passages - frequency + 0.5) / (frequency + 0.5))
    return math.pow(information, IDF_EXPONENT)


class TermWeights(NamedTuple):
    """What each term of a query that the owner knows counts, and what all of them would."""

    of: dict[str, float]
    total: float


def term_weights(
    passages: int, terms: Iterable[str], frequencies: Mapping[str, int]
) -> TermWeights:
    """The rarest terms count, whether the owner knows them or not."""
    rarest = sorted((frequencies.get(term, 0), term) for term in terms)
    known = [(count, term) for count, term in rarest if count][:MAX_QUERY_TERMS]
    return TermWeights(
        {term: idf_weight(passages, count) for count, term in known},
        sum(idf_weight(passages, count) for count, _ in rarest[:MAX_QUERY_TERMS]) or 1.0,
    )


def word_weights(
    passages: int, words: Mapping[str, str], frequencies: Mapping[str, int]
) -> dict[str, float]:
    """How much each word of the query counts in its vector: by its rarity with the owner."""
    return {
        word: math.sqrt(math.log((passages + 1) / (frequencies.get(term, 0) + 1)) + 0.1)
        for term, word in words.items()
    }


# How well a text of so many terms does: a long one has more words by chance.
LENGTH_NORM = np.power(
    LENGTH_PIVOT / (LENGTH_PIVOT + np.arange(POSTING_LENGTH_BASE)),
    LENGTH_EXPONENT,
    dtype=np.float64,
)


class TermMatches:
    """Which of the query's terms stand in which passage of one owner."""

    def __init__(self, postings: Mapping[str, Numbers], weights: TermWeights, end: int) -> None:
        """``postings`` are passage numbers times ``LENGTHS`` plus the length of their text."""
        self.weights = np.array(list(weights.of.values()))
        self.total = weights.total
        self._masks = np.zeros(end, np.uint16)
        self._scores = np.zeros(end)
        for bit, (term, weight) in enumerate(weights.of.items()):
            if term in postings:
                numbers = postings[term] // POSTING_LENGTH_BASE
                lengths = postings[term] - numbers * POSTING_LENGTH_BASE
                self._masks[numbers] |= np.uint16(1 << bit)
                self._scores[numbers] += weight / weights.total * LENGTH_NORM[lengths]

    def present(self, numbers: Numbers) -> NDArray[np.bool_]:
        """A row for each passage, a column for each term."""
        rows = self._masks[numbers].astype("<u2").view(np.uint8).reshape(-1, 2)
        bits = np.unpackbits(rows, axis=1, count=len(self.weights), bitorder="little")
        return bits.astype(np.bool_)

    def passage_scores(self) -> tuple[Numbers, Floats]:
        """The passages that hold any of the query by themselves, and how much of it."""
        numbers = np.flatnonzero(self._masks)
        return numbers, self._scores[numbers]


# -- all the evidence -----------------------------------------------------------------------------


@dataclass(slots=True)
class CandidatePool:
    """The candidates of one owner with those around them, and what is known of each; not empty.

    The passages of a candidate stand together, in the order of the candidates; those ``looked_up``
    are in the lists themselves, the others belong to what stands around. ``similar`` is None
    without vectors, ``matches`` without words; ``speaks`` and ``within`` where the query names
    no speaker and no period.
    """

    candidates: Sequence[Candidate]
    numbers: Numbers
    retrieved: NDArray[np.bool_]
    matches: TermMatches | None
    similar: Floats | None
    speaks: NDArray[np.bool_] | None = None
    within: NDArray[np.bool_] | None = None


class NeighborLinks(NamedTuple):
    """Who borrows from whom, and how much of what the other says."""

    borrowers: Numbers
    lenders: Numbers
    share: Floats


class PoolScores(NamedTuple):
    """The score of each candidate of a pool, its best passage, and what made up the score.

    What only stands around, and has nothing to borrow, is not ``found``.
    """

    scores: Floats
    passages: Numbers
    found: NDArray[np.bool_]
    parts: Mapping[str, Floats | None]

    def parts_at(self, place: int) -> dict[str, float | None]:
        return {
            name: None
            if values is None or not np.isfinite(values[place])
            else _round(values[place])
            for name, values in self.parts.items()
        }


def score_evidence(pool: CandidatePool, ranking: Ranking) -> PoolScores:
    """Weigh all that speaks for each candidate.

    A turn is found by its own words and vector, by those of the turns beside it as far as it says
    little itself, by who said it and when, and by what was remembered of it.
    """
    candidates = pool.candidates
    counts = np.array([candidate.passages for candidate in candidates], np.int64)
    starts = np.cumsum(counts) - counts
    of = np.repeat(np.arange(len(counts)), counts)
    lengths = np.array([candidate.terms for candidate in candidates], np.int64)
    sessions = _session_numbers(candidates)
    sequences = np.array([candidate.sequence for candidate in candidates], np.int64)
    lent = _neighbor_links(sequences, sessions, lengths, ranking.neighbours)
    keyword, with_keyword = _keyword_scores(pool.matches, pool.numbers, of, starts, lengths, lent)
    vector, with_vector = _vector_scores(pool.similar, of, starts, lent)
    bonuses = {"speaker": (ranking.speaker, pool.speaks), "period": (ranking.period, pool.within)}
    whole = 1.0 + sum(weight for weight, found in bonuses.values() if found is not None)
    by_keyword, by_vector = (
        share / whole
        for share in _shares(ranking, pool.matches is not None, pool.similar is not None)
    )
    scores = by_keyword * with_keyword + by_vector * with_vector
    chosen = np.lexsort((-pool.numbers, -np.round(scores, SCORE_DECIMALS), of))[starts]
    said = scores[chosen]
    parts: dict[str, Floats | None] = {
        "keyword": None if pool.matches is None else keyword[chosen],
        "vector": None if pool.similar is None else pool.similar[chosen],
        "keyword_part": by_keyword * keyword[chosen],
        "vector_part": by_vector * vector[chosen],
        "neighbours": said - (by_keyword * keyword + by_vector * vector)[chosen],
    }
    total = said
    for name, (weight, found) in bonuses.items():
        bonus = np.zeros(len(counts))
        if found is not None:
            bonus += weight / whole * found
        parts[name], total = bonus, total + bonus
    parts["session"] = ranking.session * (_best_of_session(sessions, total) - total)
    total = total + parts["session"]
    parts["origin"] = lent_by_memories = _memory_bonus(candidates, total, ranking.origin)
    looked_up = np.logical_or.reduceat(pool.retrieved, starts)
    return PoolScores(
        np.round(total + lent_by_memories, SCORE_DECIMALS),
        pool.numbers[chosen],
        looked_up | (said + lent_by_memories > 0),
        parts,
    )


def _round(value: float | np.float64) -> float:
    return round(float(value), SCORE_DECIMALS)


def _shares(ranking: Ranking, keyword: bool, vector: bool) -> tuple[float, float]:
    shares = (ranking.keyword_weight if keyword else 0.0, ranking.vector_weight if vector else 0.0)
    whole = sum(shares) or 1.0
    return shares[0] / whole, shares[1] / whole


def _session_numbers(candidates: Sequence[Candidate]) -> Numbers:
    """A number for the session of each event; -1 for a memory."""
    numbers: dict[str, int] = {}
    return np.array(
        [
            -1 if candidate.session is None else numbers.setdefault(candidate.session, len(numbers))
            for candidate in candidates
        ],
        np.int64,
    )


def _neighbor_links(
    sequences: Numbers, sessions: Numbers, lengths: Numbers, weight: float
) -> NeighborLinks:
    """Turns of one session up to ``REACH`` apart lend to one another, the short ones most."""
    if sessions.max() < 0:
        nobody = np.zeros(0, np.int64)
        return NeighborLinks(nobody, nobody, np.zeros(0))
    order = np.lexsort((sequences, sessions))
    order = order[sessions[order] >= 0]
    session, sequence = sessions[order], sequences[order]
    to, by, shares = [], [], []
    for step in range(1, NEIGHBOR_DISTANCE + 1):
        apart = sequence[step:] - sequence[:-step]
        near = np.flatnonzero((session[step:] == session[:-step]) & (apart <= NEIGHBOR_DISTANCE))
        later, earlier = order[step:][near], order[:-step][near]
        share = NEIGHBOR_WEIGHTS[apart[near]]
        to += [later, earlier]
        by += [earlier, later]
        shares += [share, share * LATER_FACTOR]
    borrower, lender = np.concatenate(to), np.concatenate(by)
    share = weight * np.concatenate(shares)
    share *= (
        BORROWER_PIVOT
        / (BORROWER_PIVOT + lengths[borrower])
        * (LENDER_PIVOT / (LENDER_PIVOT + lengths[lender]))
    )
    return NeighborLinks(borrower, lender, np.minimum(share, 1.0))


def _keyword_scores(
    matches: TermMatches | None,
    numbers: Numbers,
    of: Numbers,
    starts: Numbers,
    lengths: Numbers,
    lent: NeighborLinks,
) -> tuple[Floats, Floats]:
    """How much of the query each passage holds, alone and with what it borrows."""
    if matches is None or not len(matches.weights):
        return np.zeros(len(of)), np.zeros(len(of))
    present = matches.present(numbers).astype(np.float64)
    said = np.maximum.reduceat(present, starts, axis=0)
    borrowed = np.zeros_like(said)
    np.maximum.at(borrowed, lent.borrowers, lent.share[:, None] * said[lent.lenders])
    soft = LENGTH_NORM[lengths][of] / matches.total
    return present @ matches.weights * soft, np.maximum(
        present, borrowed[of]
    ) @ matches.weights * soft


def _vector_scores(
    similar: Floats | None, of: Numbers, starts: Numbers, lent: NeighborLinks
) -> tuple[Floats, Floats]:
    """How like the query each passage is, from 0 to 1, alone and with what it borrows."""
    if similar is None:
        return np.zeros(len(of)), np.zeros(len(of))
    known = np.where(np.isfinite(similar), similar, MIN_SIMILARITY)
    best = np.maximum(np.maximum.reduceat(known, starts), 0.0)
    borrowed = np.zeros(len(starts))
    np.add.at(borrowed, lent.borrowers, NEIGHBOR_VECTOR_WEIGHT * lent.share * best[lent.lenders])
    width = 1.0 - MIN_SIMILARITY
    return (
        np.clip((known - MIN_SIMILARITY) / width, 0.0, 1.0),
        np.clip((known + borrowed[of] - MIN_SIMILARITY) / width, 0.0, 1.0),
    )


def _best_of_session(sessions: Numbers, scores: Floats) -> Floats:
    """The best score in the session of each; of a memory its own."""
    best = np.zeros(int(sessions.max()) + 2)
    np.maximum.at(best, sessions, scores)
    return np.where(sessions < 0, scores, best[sessions])


def _memory_bonus(candidates: Sequence[Candidate], scores: Floats, weight: float) -> Floats:
    """A memory lends to the event it came from part of what it is ahead of it."""
    lent = np.zeros(len(scores))
    lenders = [
        (candidate.origin, score)
        for candidate, score in zip(candidates, scores, strict=True)
        if candidate.origin is not None
    ]
    if not lenders:
        return lent
    places = {
        (candidate.session, candidate.sequence): place
        for place, candidate in enumerate(candidates)
        if candidate.session is not None
    }
    for origin, score in lenders:
        place = places.get((origin.session, origin.sequence))
        if place is not None:
            lent[place] = max(lent[place], weight * (score - scores[place]))
    return lent


# -- two lists of passages ------------------------------------------------------------------------


def min_max(scores: Mapping[T, float], equal: float = 1.0) -> dict[T, float]:
    """Spread over [0, 1]; when all are equal each is ``equal``."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    if high - low <= 1e-6:
        return dict.fromkeys(scores, equal)
    return {item: (score - low) / (high - low) for item, score in scores.items()}


def reciprocal_ranks(scores: Mapping[T, float], k: int = 60) -> dict[T, float]:
    """The first of a list counts 1 / (k + 1), the next 1 / (k + 2)."""
    return {item: 1 / (k + place) for place, item in enumerate(scores, 1)}


def fuse(
    keyword: Mapping[T, float] | None, vector: Mapping[T, float] | None, ranking: Ranking
) -> list[FusedScore[T]]:
    """One score from two lists, each the best first. A kind that was not asked for is None."""
    shares = _shares(ranking, keyword is not None, vector is not None)
    if ranking.fusion == "rrf":
        shares = (ranking.keyword_weight, ranking.vector_weight)
        by_keyword, by_vector = reciprocal_ranks(keyword or {}), reciprocal_ranks(vector or {})
    elif ranking.fusion == "min_max":
        by_keyword = min_max(keyword or {}, ranking.equal)
        by_vector = min_max(vector or {}, ranking.equal)
    else:
        by_keyword, by_vector = dict(keyword or {}), dict(vector or {})
    fused = []
    for item in {**by_keyword, **by_vector}:
        keyword_part = shares[0] * by_keyword.get(item, 0.0)
        vector_part = shares[1] * by_vector.get(item, 0.0)
        parts = {
            "keyword": None if keyword is None else keyword.get(item),
            "vector": None if vector is None else vector.get(item),
            "keyword_part": _round(keyword_part),
            "vector_part": _round(vector_part),
        }
        fused.append(FusedScore(item, _round(keyword_part + vector_part), parts))
    return fused


# -- from scores to hits --------------------------------------------------------------------------


def recency(at: int, now: int, half_life_days: float) -> float:
    """1 for what is new or still to come, half of it after each half-life."""
    return float(0.5 ** (max(now - at, 0) / DAY_MS / half_life_days))


def apply_recency(score: float, at: int, now: int, ranking: Ranking) -> float:
    weight = ranking.recency_weight
    return _round((1 - weight) * score + weight * recency(at, now, ranking.half_life_days))


def mmr_order(scores: Sequence[float], vectors: Floats, weight: float, limit: int) -> list[int]:
    """Places in the order of maximal marginal relevance, the best of all first.

    A row of zeros is like nothing.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(lengths > 0, lengths, 1.0)
    relevance = np.array(scores, np.float64)
    left, picked = list(range(len(scores))), list[int]()
    closest = np.zeros(len(scores))
    while left and len(picked) < limit:
        gains = relevance if not picked else weight * relevance - (1 - weight) * closest
        ordered = [(-_round(gains[place]), place) for place in left]
        best = min(ordered)[1]
        left.remove(best)
        picked.append(best)
        like = units @ units[best]
        closest = like if len(picked) == 1 else np.maximum(closest, like)
    return picked
