"""Scoring of candidates: pure functions.

Scores are rounded to six places so that every engine gives the same ones; equal scores are ordered
by position, the newest first. The constants below are tuned with ``bench/retrieval.py``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from reverie.model import POSTING_LENGTH_BASE, Candidate, Origin, Ranking
from reverie.recall.calibration import WEAK_TERMS, WEAK_VERBS, Evidence
from reverie.text.speech_acts import SpeechAct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

# Only the rarest terms of a query are used; each is one bit of a 16-bit mask.
MAX_QUERY_TERMS = 16
# Above 1: rare terms count for more than their information content.
IDF_EXPONENT = 1.2
# What is left of the weight of a word such as "go", which says little even where it is rare.
WEAK_FACTOR = 0.7
# The least number of passages that the rarity of terms is computed with, for the calibrated score.
MIN_RARITY_PASSAGES = 50
SCORE_DECIMALS = 6
# A text's length lowers its score by (PIVOT / (PIVOT + length)) ** EXPONENT.
LENGTH_PIVOT = 45.0
LENGTH_EXPONENT = 0.4
# A turn borrows evidence from its neighbours in the session, less the longer both are: a borrower
# or lender of this many terms halves it.
BORROWER_PIVOT = 60.0
LENDER_PIVOT = 30.0
# What a turn borrows from a neighbour, by distance; less from one that came later.
NEIGHBOR_DISTANCE = 2
NEIGHBOR_WEIGHTS = np.array([0.0, 1.0, 0.5])
LATER_FACTOR = 0.8
NEIGHBOR_VECTOR_WEIGHT = 0.35
# The least share that the turn after a question borrows from it, however long it is: the question
# itself is no hit, it leads to its answer.
ANSWER_SHARE = 0.5
# The centred cosine of an unrelated text is as often below zero as above it.
MIN_SIMILARITY = -0.3
DAY_MS = 86_400_000

T = TypeVar("T", bound=Hashable)
Parts = Mapping[str, float | None]


class FusedScore(NamedTuple, Generic[T]):
    """An item with its score, and what each list contributed to it."""

    item: T
    score: float
    parts: Parts


# -- terms of the query ---------------------------------------------------------------------------


def idf_weight(passages: int, frequency: int) -> float:
    """The weight of a term that ``frequency`` of ``passages`` passages contain (IDF)."""
    information = math.log(1 + (passages - frequency + 0.5) / (frequency + 0.5))
    return math.pow(information, IDF_EXPONENT)


class TermWeights(NamedTuple):
    """The weight of each query term that occurs, and the total of all, occurring or not."""

    of: dict[str, float]
    total: float


def term_weights(
    passages: int, terms: Iterable[str], frequencies: Mapping[str, int]
) -> TermWeights:
    """The weights of the rarest terms of a query; terms that do not occur add to the total."""
    rarest = sorted((frequencies.get(term, 0), term) for term in terms)
    occurring = [(count, term) for count, term in rarest if count][:MAX_QUERY_TERMS]
    return TermWeights(
        {term: term_weight(passages, term, count) for count, term in occurring},
        sum(term_weight(passages, term, count) for count, term in rarest[:MAX_QUERY_TERMS]) or 1.0,
    )


def term_weight(passages: int, term: str, frequency: int) -> float:
    """The weight of a term of the query: its IDF, less for a verb such as "go" or "use"."""
    return idf_weight(passages, frequency) * (WEAK_FACTOR if term in WEAK_VERBS else 1.0)


class TermRarity(NamedTuple):
    """The rarity of each query term, for the calibrated score.

    Unlike the weights by which candidates are compared, it also compares queries and owners: words
    that say little count for less, and a small memory does not make every word a common one.
    """

    of: dict[str, float]
    unknown: float
    """The part of the terms that occur nowhere."""

    def covered(self, present: Iterable[str]) -> tuple[float, int]:
        """The part of all terms that these are, and the number of strong ones among them."""
        has = [term for term in present if term in self.of]
        return _part(self.of, has, self.of), len({*has} - WEAK_TERMS)


def term_rarity(passages: int, terms: Iterable[str], frequencies: Mapping[str, int]) -> TermRarity:
    """The rarity of the rarest terms of a query."""
    size = max(passages, MIN_RARITY_PASSAGES)
    rarest = sorted((frequencies.get(term, 0), term) for term in terms)[:MAX_QUERY_TERMS]
    of = {
        term: idf_weight(size, count) * (WEAK_FACTOR if term in WEAK_TERMS else 1.0)
        for count, term in rarest
    }
    return TermRarity(of, _part(of, [term for term in of if not frequencies.get(term)], of))


def _part(of: Mapping[str, float], some: Iterable[str], all_: Iterable[str]) -> float:
    """The part that some terms have of the sum over all."""
    return sum(of[term] for term in some) / (sum(of[term] for term in all_) or 1.0)


def word_weights(
    passages: int, words: Mapping[str, str], frequencies: Mapping[str, int]
) -> dict[str, float]:
    """The weight of each word of the query in the query vector: rare words count more."""
    return {
        word: math.sqrt(math.log((passages + 1) / (frequencies.get(term, 0) + 1)) + 0.1)
        for term, word in words.items()
    }


# The factor for a text of n terms, by n: a long text contains more terms by chance.
LENGTH_NORM = np.power(
    LENGTH_PIVOT / (LENGTH_PIVOT + np.arange(POSTING_LENGTH_BASE)),
    LENGTH_EXPONENT,
    dtype=np.float64,
)


class TermMatches:
    """The query terms that each passage of one owner contains, as bit masks, and their scores."""

    def __init__(self, postings: Mapping[str, Numbers], weights: TermWeights, end: int) -> None:
        """``postings`` are passage numbers * ``POSTING_LENGTH_BASE`` + the length of the text."""
        self.weights = np.array(list(weights.of.values()))
        self.total = weights.total
        self._terms = list(weights.of)
        self._masks = np.zeros(end, np.uint16)
        self._scores = np.zeros(end)
        for bit, (term, weight) in enumerate(weights.of.items()):
            if term in postings:
                numbers = postings[term] // POSTING_LENGTH_BASE
                lengths = postings[term] - numbers * POSTING_LENGTH_BASE
                self._masks[numbers] |= np.uint16(1 << bit)
                self._scores[numbers] += weight / weights.total * LENGTH_NORM[lengths]

    def terms_at(self, number: int) -> list[str]:
        """The terms that a passage contains."""
        (row,) = self.present(np.array([number], np.int64))
        return [term for term, is_present in zip(self._terms, row, strict=True) if is_present]

    def present(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Which terms these passages contain: a row for each passage, a column for each term."""
        rows = self._masks[numbers].astype("<u2").view(np.uint8).reshape(-1, 2)
        bits = np.unpackbits(rows, axis=1, count=len(self.weights), bitorder="little")
        return bits.astype(np.bool_)

    def passage_scores(self) -> tuple[Numbers, Floats]:
        """The passages that contain any of the terms, and the keyword score of each."""
        numbers = np.flatnonzero(self._masks)
        return numbers, self._scores[numbers]


# -- scoring by evidence --------------------------------------------------------------------------


@dataclass(slots=True)
class CandidatePool:
    """The candidates of one owner and their neighbours, with the evidence for each; not empty.

    ``numbers`` are the passages of the candidates, in the order of the candidates. ``retrieved``
    tells which of them the searches found; the others belong to neighbours. ``similar`` is None
    without vectors, ``matches`` without terms; ``speaker_match`` and ``period_match`` are None
    where the query names no speaker or no period.
    """

    candidates: Sequence[Candidate]
    numbers: Numbers
    retrieved: NDArray[np.bool_]
    matches: TermMatches | None
    similar: Floats | None
    speaker_match: NDArray[np.bool_] | None = None
    period_match: NDArray[np.bool_] | None = None


class NeighborLinks(NamedTuple):
    """Pairs of neighbouring turns: which borrows from which, and what share of its evidence."""

    borrowers: Numbers
    lenders: Numbers
    share: Floats


class PoolScores(NamedTuple):
    """The score of each candidate of a pool, its best passage, and the parts of the score.

    A neighbour that has no evidence, own or borrowed, is not ``matched``.
    """

    scores: Floats
    passages: Numbers
    matched: NDArray[np.bool_]
    parts: Mapping[str, Floats | None]
    pool: CandidatePool

    def parts_at(self, place: int) -> dict[str, float | None]:
        """The parts of one candidate's score, rounded; None for evidence it does not have."""
        return {
            name: None
            if values is None or not np.isfinite(values[place])
            else _round(values[place])
            for name, values in self.parts.items()
        }

    def lenders(self) -> list[tuple[Origin, float]]:
        """The origins of the memories of the pool, with the scores of these memories."""
        return _origin_scores(self.pool.candidates, self.scores)

    def evidence_at(self, place: int, rarity: TermRarity) -> Evidence:
        """What speaks for one candidate, for its calibrated score.

        What speaks for a question speaks for the answer that follows it.
        """
        matches = self.pool.matches
        places = [place, *self._question_before(place)]
        terms: set[str] = set()
        if matches is not None:
            terms.update(*(matches.terms_at(int(self.passages[each])) for each in places))
        coverage, strong_terms = rarity.covered(terms)
        vectors = self.parts["vector"]
        similar = [] if vectors is None else [float(vectors[each]) for each in places]
        similar = [each for each in similar if math.isfinite(each)]
        speaker, period = self.pool.speaker_match, self.pool.period_match
        is_memory = self.pool.candidates[place].session is None
        return Evidence(
            coverage=None if matches is None else coverage,
            strong_terms=strong_terms,
            similarity=max(similar, default=None),
            speaker=None if speaker is None or is_memory else bool(speaker[place]),
            period=period is not None and bool(period[place]),
        )

    def _question_before(self, place: int) -> list[int]:
        """The place of the question that this candidate follows in its session, if it is one."""
        answer = self.pool.candidates[place]
        if answer.session is None:
            return []
        before = (answer.session, answer.sequence - 1)
        return [
            at
            for at, each in enumerate(self.pool.candidates)
            if (each.session, each.sequence) == before and each.act == SpeechAct.QUESTION
        ]


def score_evidence(
    pool: CandidatePool, ranking: Ranking, lenders: Iterable[tuple[Origin, float]] = ()
) -> PoolScores:
    """Score each candidate by all the evidence for it.

    A turn is scored by its own terms and vector, by those of neighbouring turns (more if it is
    short), by its speaker and time, by its session, and by memories that came from it: those of
    the pool, and ``lenders``, the origins and scores of memories of another pool.
    """
    candidates = pool.candidates
    counts = np.array([candidate.passages for candidate in candidates], np.int64)
    starts = np.cumsum(counts) - counts
    candidate_of = np.repeat(np.arange(len(counts)), counts)
    lengths = np.array([candidate.terms for candidate in candidates], np.int64)
    sessions = _session_numbers(candidates)
    sequences = np.array([candidate.sequence for candidate in candidates], np.int64)
    asks = np.array([candidate.act == SpeechAct.QUESTION for candidate in candidates])
    links = _neighbor_links(sequences, sessions, lengths, asks, ranking.neighbours)
    keyword, with_keyword = _keyword_scores(
        pool.matches, pool.numbers, candidate_of, starts, lengths, links
    )
    vector, with_vector = _vector_scores(pool.similar, candidate_of, starts, links)
    bonuses = {
        "speaker": (ranking.speaker, pool.speaker_match),
        "period": (ranking.period, pool.period_match),
    }
    total_weight = 1.0 + sum(weight for weight, match in bonuses.values() if match is not None)
    by_keyword, by_vector = (
        share / total_weight
        for share in _list_weights(ranking, pool.matches is not None, pool.similar is not None)
    )
    scores = by_keyword * with_keyword + by_vector * with_vector
    best = np.lexsort((-pool.numbers, -np.round(scores, SCORE_DECIMALS), candidate_of))[starts]
    own = scores[best]
    parts: dict[str, Floats | None] = {
        "keyword": None if pool.matches is None else keyword[best],
        "vector": None if pool.similar is None else pool.similar[best],
        "keyword_part": by_keyword * keyword[best],
        "vector_part": by_vector * vector[best],
        "neighbours": own - (by_keyword * keyword + by_vector * vector)[best],
    }
    total = own
    for name, (weight, match) in bonuses.items():
        bonus = np.zeros(len(counts))
        if match is not None:
            bonus += weight / total_weight * match
        parts[name], total = bonus, total + bonus
    parts["session"] = ranking.session * (_best_of_session(sessions, total) - total)
    total = total + parts["session"]
    parts["origin"] = from_memories = _memory_bonus(candidates, total, ranking.origin, lenders)
    retrieved = np.logical_or.reduceat(pool.retrieved, starts)
    return PoolScores(
        np.round(total + from_memories, SCORE_DECIMALS),
        pool.numbers[best],
        retrieved | (own + from_memories > 0),
        parts,
        pool,
    )


def _round(value: float | np.float64) -> float:
    return round(float(value), SCORE_DECIMALS)


def _list_weights(ranking: Ranking, keyword: bool, vector: bool) -> tuple[float, float]:
    """The weights of keyword and vector scores among those that are used; they add up to 1."""
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
    sequences: Numbers,
    sessions: Numbers,
    lengths: Numbers,
    asks: NDArray[np.bool_],
    weight: float,
) -> NeighborLinks:
    """Link turns of one session up to ``NEIGHBOR_DISTANCE`` apart; short ones share most."""
    if sessions.max() < 0:
        none = np.zeros(0, np.int64)
        return NeighborLinks(none, none, np.zeros(0))
    order = np.lexsort((sequences, sessions))
    order = order[sessions[order] >= 0]
    session, sequence = sessions[order], sequences[order]
    borrowers, lenders, shares = [], [], []
    for step in range(1, NEIGHBOR_DISTANCE + 1):
        apart = sequence[step:] - sequence[:-step]
        near = np.flatnonzero((session[step:] == session[:-step]) & (apart <= NEIGHBOR_DISTANCE))
        later, earlier = order[step:][near], order[:-step][near]
        share = NEIGHBOR_WEIGHTS[apart[near]]
        borrowers += [later, earlier]
        lenders += [earlier, later]
        shares += [share, share * LATER_FACTOR]
    borrower, lender = np.concatenate(borrowers), np.concatenate(lenders)
    share = weight * np.concatenate(shares)
    share *= (
        BORROWER_PIVOT
        / (BORROWER_PIVOT + lengths[borrower])
        * (LENDER_PIVOT / (LENDER_PIVOT + lengths[lender]))
    )
    answers = asks[lender] & (sequences[borrower] == sequences[lender] + 1)
    share = np.maximum(share, weight * ANSWER_SHARE * answers)
    return NeighborLinks(borrower, lender, np.minimum(share, 1.0))


def _keyword_scores(
    matches: TermMatches | None,
    numbers: Numbers,
    candidate_of: Numbers,
    starts: Numbers,
    lengths: Numbers,
    links: NeighborLinks,
) -> tuple[Floats, Floats]:
    """The keyword score of each passage, on its own and with what it borrows."""
    if matches is None or not len(matches.weights):
        return np.zeros(len(candidate_of)), np.zeros(len(candidate_of))
    present = matches.present(numbers).astype(np.float64)
    in_candidate = np.maximum.reduceat(present, starts, axis=0)
    borrowed = np.zeros_like(in_candidate)
    np.maximum.at(borrowed, links.borrowers, links.share[:, None] * in_candidate[links.lenders])
    length_factor = LENGTH_NORM[lengths][candidate_of] / matches.total
    return present @ matches.weights * length_factor, np.maximum(
        present, borrowed[candidate_of]
    ) @ matches.weights * length_factor


def _vector_scores(
    similar: Floats | None, candidate_of: Numbers, starts: Numbers, links: NeighborLinks
) -> tuple[Floats, Floats]:
    """The vector score of each passage in [0, 1], on its own and with what it borrows."""
    if similar is None:
        return np.zeros(len(candidate_of)), np.zeros(len(candidate_of))
    similarity = np.where(np.isfinite(similar), similar, MIN_SIMILARITY)
    best = np.maximum(np.maximum.reduceat(similarity, starts), 0.0)
    borrowed = np.zeros(len(starts))
    np.add.at(borrowed, links.borrowers, NEIGHBOR_VECTOR_WEIGHT * links.share * best[links.lenders])
    width = 1.0 - MIN_SIMILARITY
    return (
        np.clip((similarity - MIN_SIMILARITY) / width, 0.0, 1.0),
        np.clip((similarity + borrowed[candidate_of] - MIN_SIMILARITY) / width, 0.0, 1.0),
    )


def _best_of_session(sessions: Numbers, scores: Floats) -> Floats:
    """The best score in the session of each candidate; for a memory its own score."""
    best = np.zeros(int(sessions.max()) + 2)
    np.maximum.at(best, sessions, scores)
    return np.where(sessions < 0, scores, best[sessions])


def _origin_scores(candidates: Sequence[Candidate], scores: Floats) -> list[tuple[Origin, float]]:
    """The origins of the memories among these candidates, with the scores of these memories."""
    return [
        (candidate.origin, float(score))
        for candidate, score in zip(candidates, scores, strict=True)
        if candidate.origin is not None
    ]


def _memory_bonus(
    candidates: Sequence[Candidate],
    scores: Floats,
    weight: float,
    lenders: Iterable[tuple[Origin, float]],
) -> Floats:
    """The bonus of events that a better-scored memory came from: a part of the difference."""
    bonus = np.zeros(len(scores))
    memories = [*_origin_scores(candidates, scores), *lenders]
    if not memories:
        return bonus
    event_places = {
        (candidate.session, candidate.sequence): place
        for place, candidate in enumerate(candidates)
        if candidate.session is not None
    }
    for origin, score in memories:
        place = event_places.get((origin.session, origin.sequence))
        if place is not None:
            bonus[place] = max(bonus[place], weight * (score - scores[place]))
    return bonus


# -- fusing two lists of passages -----------------------------------------------------------------


def min_max(scores: Mapping[T, float], equal: float = 1.0) -> dict[T, float]:
    """Scale scores to [0, 1]; when all are equal each becomes ``equal``."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    if high - low <= 1e-6:
        return dict.fromkeys(scores, equal)
    return {item: (score - low) / (high - low) for item, score in scores.items()}


def reciprocal_ranks(scores: Mapping[T, float], k: int = 60) -> dict[T, float]:
    """Reciprocal-rank scores: 1 / (k + 1) for the first of a list, 1 / (k + 2) for the next."""
    return {item: 1 / (k + place) for place, item in enumerate(scores, 1)}


def fuse(
    keyword: Mapping[T, float] | None, vector: Mapping[T, float] | None, ranking: Ranking
) -> list[FusedScore[T]]:
    """Fuse two lists, each the best first, into one score; a list not asked for is None."""
    shares = _list_weights(ranking, keyword is not None, vector is not None)
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


# -- recency and diversity ------------------------------------------------------------------------


def recency(at: int, now: int, half_life_days: float) -> float:
    """1 for a time that is now or in the future, halved after each half-life."""
    return float(0.5 ** (max(now - at, 0) / DAY_MS / half_life_days))


def apply_recency(score: float, at: int, now: int, ranking: Ranking) -> float:
    """Mix a score with its recency, by ``ranking.recency_weight``."""
    weight = ranking.recency_weight
    return _round((1 - weight) * score + weight * recency(at, now, ranking.half_life_days))


def mmr_order(scores: Sequence[float], vectors: Floats, weight: float, limit: int) -> list[int]:
    """The indexes of the scores in the order of maximal marginal relevance, at most ``limit``.

    A row of zeros is similar to nothing.
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
        similarity = units @ units[best]
        closest = similarity if len(picked) == 1 else np.maximum(closest, similarity)
    return picked
