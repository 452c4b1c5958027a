"""Recall: search by terms and by vectors within a scope, score the candidates, return hits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reverie.engine import vector_math
from reverie.errors import EmbedderMissing, EmbeddingFailed, InvalidInput
from reverie.model import NO_RERANKER, Hit, Origin
from reverie.protocols import Embedder, Owner
from reverie.recall import calibration, hits, query_hints
from reverie.recall import ranking as recall_ranking
from reverie.recall.as_of import AsOfItem
from reverie.recall.calibration import QueryTraits
from reverie.recall.hits import ScoredCandidate
from reverie.recall.query import Query
from reverie.recall.query_hints import QueryHints
from reverie.recall.views import AsOfView, IndexView, View
from reverie.text.analyzer import MAX_QUERY_CHARS
from reverie.write import embeddings
from reverie.write.runtime import Runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Numbers, Vector

NO_EMBEDDER = "no embedder is configured"
NO_PGVECTOR = "the database has no pgvector"
AS_OF_NEEDS_LOCAL = "an as-of recall computes its vectors again, which only a local embedder can"
# What helps where there are no vectors to search, besides mode "keyword".
_REMEDIES = {
    NO_EMBEDDER: "set REVERIE_EMBEDDER=local",
    NO_PGVECTOR: "install pgvector on the database's server and open the store again",
    AS_OF_NEEDS_LOCAL: "set REVERIE_EMBEDDER=local and run 'reverie reembed'",
}
# Neighbours are read for this many times the limit of the best passages of each list.
NEIGHBOR_LOOKUP_FACTOR = 2
# By how much the number of candidates grows when they lead to too few hits.
CANDIDATE_GROWTH = 4
MAX_CANDIDATES = 2_000

# The place of an owner among those of a recall, and the number of a passage of that owner.
PassageKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The vector of a query, given or to be embedded; ``unavailable_reason`` if there is none."""

    embedder: Embedder | None
    precomputed: Vector | None
    unavailable_reason: str | None

    @property
    def unavailable(self) -> bool:
        return self.unavailable_reason is not None

    def embed(self, text: str, weights: Mapping[str, float] | None) -> Vector:
        """The given vector, or that of the text, with its words weighted if weights are given."""
        if self.precomputed is not None:
            return self.precomputed
        assert self.embedder is not None
        return self.embedder.embed_query(text[:MAX_QUERY_CHARS], weights)


def prepare_query_vector(
    runtime: Runtime, query: Query, *, local_only: bool = False
) -> QueryVector:
    """Prepare the query vector before the read transaction begins: a remote embedder is slow.

    Where there is none, mode "vector" raises, and a hybrid recall uses terms alone and reports the
    reason in ``explain``. ``local_only`` is for as-of recalls, which embed the stored texts again.
    """
    if query.mode == "keyword":
        return QueryVector(None, None, "not asked for")
    given = None if query.embedding is None else _check_query_embedding(query.embedding)
    if given is not None and not local_only:
        return QueryVector(None, given, None)
    embedder = runtime.embedder
    reason = None
    if embedder is None:
        reason = NO_EMBEDDER
    elif local_only and embedder.remote:
        reason = AS_OF_NEEDS_LOCAL
    elif not local_only and not runtime.engine.supports_vector_search:
        reason = NO_PGVECTOR
    if embedder is None or reason is not None:
        if query.mode == "vector" and reason is not None:
            raise EmbedderMissing(f"{reason}: use mode='keyword', or {_REMEDIES[reason]}")
        return QueryVector(None, None, reason)
    if given is not None or not embedder.remote:
        return QueryVector(embedder, given, None)
    with runtime.engine.read() as tx:
        embeddings.require(tx, embedder)
    try:
        return QueryVector(embedder, embedder.embed_query(query.text[:MAX_QUERY_CHARS]), None)
    except EmbeddingFailed as error:
        if query.mode == "vector":
            raise
        return QueryVector(None, None, str(error))


def recall(
    runtime: Runtime, owners: Mapping[Owner, str | None], query: Query, query_vector: QueryVector
) -> list[Hit]:
    """The best hits among the memories and events of these owners (owner -> user name)."""
    with runtime.engine.read() as tx:
        for own in list(owners)[:1]:  # the second one is shared by the space, and visible with it
            tx.enter(own)
        embedder = query_vector.embedder
        generation = embeddings.read(tx) if embedder is None else embeddings.require(tx, embedder)
        now = runtime.clock.now()
        views = [
            IndexView(tx, owner, user, query.filter, generation, now)
            for owner, user in owners.items()
        ]
        return _recall(runtime, query, query_vector, views)


def recall_as_of(
    runtime: Runtime,
    known: Sequence[tuple[str | None, Sequence[AsOfItem]]],
    query: Query,
    valid_at: int | None = None,
) -> list[Hit]:
    """Recall as of an earlier position: ``known`` are each owner's user and items then.

    With ``valid_at`` they are what held at that time.
    As in the index, statistics are of all items of an owner; the filter only limits what is found.
    """
    query_vector = prepare_query_vector(runtime, query, local_only=True)
    if query_vector.embedder is not None:
        with runtime.engine.read() as tx:
            embeddings.require(tx, query_vector.embedder)
    views = [AsOfView(runtime, user, items, query.filter) for user, items in known]
    return _recall(runtime, query, query_vector, views, valid_at)


def _recall(
    runtime: Runtime,
    query: Query,
    query_vector: QueryVector,
    views: Sequence[View],
    valid_at: int | None = None,
) -> list[Hit]:
    ranking = query.ranking
    hints = query_hints.parse_query(query.text)
    view_queries, rarity = _build_view_queries(views, query, hints, query_vector)
    passages = sum(view.passages for view in views)
    traits = calibration.traits_of(query.text, len(hints.terms), rarity.unknown, passages)
    reranker = runtime.reranker() if ranking.rerank else None
    rerank_scores = None if reranker is None else hits.RerankScores(reranker, query.text)
    candidate_limit = max(ranking.candidates, query.limit * ranking.multiplier, 1)
    while True:
        lists = [_score_passages(each, candidate_limit) for each in view_queries]
        truncated = any(
            candidate_limit in {len(passages.by_keyword), len(passages.by_vector)}
            for passages in lists
        )
        scored = _drop_excluded(query, _score_candidates(query, hints, lists))
        definition = kind = None
        if ranking.fusion == "evidence":
            scored = _calibrate(scored, traits, rarity, query.explain)
            definition, kind = hints.definition, hints.kind
        # A recall of an earlier moment is as recent then as its hits were.
        now = query.filter.alive_at or runtime.clock.now()
        # A query that names a period may ask for what is over.
        valid = None if hints.period is not None else now if valid_at is None else valid_at
        selected, enough = hits.select_hits(
            scored, query, now, len(views), rerank_scores, definition, kind, valid
        )
        if enough or not truncated or candidate_limit >= MAX_CANDIDATES:
            break
        # A long note or many duplicates filled the lists: there may be other hits after them.
        candidate_limit *= CANDIDATE_GROWTH
    missing_parts = [query_vector.unavailable_reason] if query.mode == "hybrid" else []
    missing_parts += [NO_RERANKER] if ranking.rerank and reranker is None else []
    degraded = "; ".join(reason for reason in missing_parts if reason is not None) or None
    return [hits.build_hit(read, query.explain, degraded) for read in selected]


# -- candidates -----------------------------------------------------------------------------------


class ViewQuery(NamedTuple):
    """A query prepared for one view: its term matches, its vector, and how that is compared."""

    view: View
    matches: recall_ranking.TermMatches | None
    vector: Vector | None
    centred: bool

    def nearest(self, many: int) -> dict[int, float]:
        """The passages most similar to the query, the best first; none without a vector."""
        if self.vector is None:
            return {}
        return dict(self.view.nearest(self.vector, many, self.centred))

    def similar(self, numbers: Numbers) -> NDArray[np.float64] | None:
        """The similarity of these passages to the query; None without a vector."""
        if self.vector is None:
            return None
        return self.view.similar(self.vector, numbers, self.centred)


class PassageScores(NamedTuple):
    """Passages of one view with their scores, the best first, by terms and by vector."""

    asked: ViewQuery
    by_keyword: dict[int, float]
    by_vector: dict[int, float]


def _build_view_queries(
    views: Sequence[View], query: Query, hints: QueryHints, query_vector: QueryVector
) -> tuple[list[ViewQuery], recall_ranking.TermRarity]:
    """Prepare the query for each view, with term weights over the passages of all views."""
    ranking, terms = query.ranking, list(hints.terms)
    without_terms = query.mode == "vector" or (
        ranking.fusion != "evidence" and not ranking.keyword_weight and not query_vector.unavailable
    )
    # Where all postings are read in any case, counting them gives the frequencies.
    all_postings = [
        None
        if without_terms or view.is_filtered or len(terms) > recall_ranking.MAX_QUERY_TERMS
        else view.postings(terms)
        for view in views
    ]
    frequencies: dict[str, int] = {}
    for view, postings in zip(views, all_postings, strict=True):
        counts = view.frequencies(terms) if postings is None else _count_postings(postings)
        for term, count in counts.items():
            frequencies[term] = frequencies.get(term, 0) + count
    passages = sum(view.passages for view in views)
    weights = recall_ranking.term_weights(passages, terms, frequencies)
    vector = None
    if not query_vector.unavailable:
        word_weights = recall_ranking.word_weights(passages, hints.terms, frequencies)
        vector = query_vector.embed(query.text, word_weights if ranking.centred else None)
    view_queries = []
    for view, postings in zip(views, all_postings, strict=True):
        matches = None
        if not without_terms:
            term_postings = view.postings(weights.of) if postings is None else postings
            matches = recall_ranking.TermMatches(term_postings, weights, view.end)
        view_queries.append(ViewQuery(view, matches, vector, ranking.centred))
    return view_queries, recall_ranking.term_rarity(passages, terms, frequencies)


def _count_postings(postings: Mapping[str, Numbers]) -> dict[str, int]:
    return {term: len(numbers) for term, numbers in postings.items()}


def _score_passages(asked: ViewQuery, many: int) -> PassageScores:
    return PassageScores(
        asked,
        {} if asked.matches is None else _top_scores(*asked.matches.passage_scores(), many),
        asked.nearest(many),
    )


def _top_scores(numbers: Numbers, scores: NDArray[np.float64], many: int) -> dict[int, float]:
    return dict(vector_math.top_k(scores, many, numbers))


# -- scoring --------------------------------------------------------------------------------------


def _score_candidates(
    query: Query, hints: QueryHints, lists: Sequence[PassageScores]
) -> Iterator[ScoredCandidate]:
    """The candidates with their scores, the best first."""
    if query.ranking.fusion == "evidence":
        return _score_by_evidence(query, hints, lists)
    return iter(sorted(_score_by_fusion(query, hints, lists), key=lambda scored: scored.order))


def _drop_excluded(query: Query, scored: Iterator[ScoredCandidate]) -> Iterator[ScoredCandidate]:
    exclude = query.exclude
    if exclude is None:
        return scored
    return (each for each in scored if not exclude(each.view.user, each.candidate))


def _calibrate(
    scored: Iterator[ScoredCandidate],
    traits: QueryTraits,
    rarity: recall_ranking.TermRarity,
    explain: bool,
) -> Iterator[ScoredCandidate]:
    """Replace each score by what the candidate is worth: a part of what the best one is worth."""
    best, worth = 0.0, 0.0
    for at, each in enumerate(scored):
        if at == 0:
            assert each.evidence is not None
            best, worth = each.score, calibration.worth(traits, each.evidence(rarity))
        part = each.score / best if best > 0 else 1.0
        parts = {**each.parts, "evidence": each.score} if explain else each.parts
        score = round(worth * part, recall_ranking.SCORE_DECIMALS)
        yield each._replace(score=score, parts=parts)


def _score_by_evidence(
    query: Query, hints: QueryHints, lists: Sequence[PassageScores]
) -> Iterator[ScoredCandidate]:
    pools: list[tuple[View, recall_ranking.CandidatePool]] = []
    # The shared memories come last. Without a user, their origins are events of the first view.
    origins: set[Origin] = set()
    for scores in reversed(lists):
        view = scores.asked.view
        shared = origins if view.user is None else ()
        pool = _build_pool(scores, NEIGHBOR_LOOKUP_FACTOR * query.limit, shared)
        if pool is not None:
            pools.append((view, pool))
            origins |= {each.origin for each in pool.candidates if each.origin is not None}
    _apply_hints(hints, pools)
    by_pool, lenders = [], list[tuple[Origin, float]]()
    for view, pool in pools:
        lent = lenders if view.user is None else ()
        scored = recall_ranking.score_evidence(pool, query.ranking, lent)
        lenders = scored.lenders()
        by_pool.append(_order_pool(view, pool, scored, query, hints))
    return by_pool[0] if len(by_pool) == 1 else merge(*by_pool, key=lambda each: each.order)


def _order_pool(
    view: View,
    pool: recall_ranking.CandidatePool,
    scored: recall_ranking.PoolScores,
    query: Query,
    hints: QueryHints,
) -> Iterator[ScoredCandidate]:
    """The candidates of a pool, the best first, without questions and fillers."""
    first_positions = np.array([candidate.first_position for candidate in pool.candidates])
    for place in np.lexsort((-first_positions, -scored.scores)):
        if not scored.matched[place] or not hints.wants(pool.candidates[place].act):
            continue
        yield ScoredCandidate(
            float(scored.scores[place]),
            pool.candidates[place],
            int(scored.passages[place]),
            view,
            scored.parts_at(place) if query.explain else {},
            partial(scored.evidence_at, int(place)),
        )


def _build_pool(
    found: PassageScores, limit: int, origins: Iterable[Origin]
) -> recall_ranking.CandidatePool | None:
    """The candidates of the passages that were found, and the events around the best of them.

    ``origins`` are events that memories of another view came from.
    """
    asked = found.asked
    # Neighbours are only read for the best passages of each list.
    around = {*islice(found.by_keyword, limit), *islice(found.by_vector, limit)}
    candidates = asked.view.candidates({**found.by_keyword, **found.by_vector}, around, origins)
    if not candidates:
        return None
    numbers = np.array(
        [
            number
            for each in candidates
            for number in range(each.first_passage, each.first_passage + each.passages)
        ],
        np.int64,
    )
    similar = asked.similar(numbers)
    listed = {*found.by_keyword, *found.by_vector}
    retrieved = np.array([number in listed for number in numbers.tolist()])
    return recall_ranking.CandidatePool(candidates, numbers, retrieved, asked.matches, similar)


def _apply_hints(
    hints: QueryHints, pools: Sequence[tuple[View, recall_ranking.CandidatePool]]
) -> None:
    """Mark the candidates that match the speaker or period of the query.

    A hint that no candidate matches is ignored. A memory has no speaker: it matches any.
    """
    by_speaker = [
        [c.session is not None and hints.asks_about(c.role, c.speaker) for c in pool.candidates]
        for _, pool in pools
    ]
    if any(map(any, by_speaker)):
        for (_, pool), speaker_match in zip(pools, by_speaker, strict=True):
            is_memory = [candidate.session is None for candidate in pool.candidates]
            pool.speaker_match = np.array(speaker_match) | np.array(is_memory)
    period = hints.period
    if period is not None:
        by_period = [view.match_period(period, pool.candidates) for view, pool in pools]
        if any(map(any, by_period)):
            for (_, pool), period_match in zip(pools, by_period, strict=True):
                pool.period_match = np.array(period_match)


def _score_by_fusion(
    query: Query, hints: QueryHints, lists: Sequence[PassageScores]
) -> list[ScoredCandidate]:
    """Fuse the lists of all views; each candidate gets the score of its best passage."""
    keyword = {(at, n): score for at, f in enumerate(lists) for n, score in f.by_keyword.items()}
    vector = {
        (at, n): score for at, f in enumerate(lists) for n, score in _exact_similarities(f).items()
    }
    found_candidates = [
        found.asked.view.candidates({**found.by_keyword, **found.by_vector}) for found in lists
    ]
    positions = {
        (at, candidate.first_passage + offset): (candidate.first_position, offset)
        for at, candidates in enumerate(found_candidates)
        for candidate in candidates
        for offset in range(candidate.passages)
    }
    fused = recall_ranking.fuse(
        None
        if all(found.asked.matches is None for found in lists)
        else _sort_by_score(keyword, positions),
        None
        if all(found.asked.vector is None for found in lists)
        else _sort_by_score(vector, positions),
        query.ranking,
    )
    scores = {scored.item: scored for scored in fused}
    candidates: list[ScoredCandidate] = []
    for at, found in enumerate(lists):
        view = found.asked.view
        if hints.period is not None:
            view.match_period(hints.period, found_candidates[at])
        for candidate in found_candidates[at]:
            first = candidate.first_passage
            of_candidate = [
                scores[at, number]
                for number in range(first, first + candidate.passages)
                if (at, number) in scores
            ]
            best = min(of_candidate, key=lambda scored: (-scored.score, -scored.item[1]))
            candidates.append(
                ScoredCandidate(best.score, candidate, best.item[1], view, best.parts)
            )
    return candidates


def _exact_similarities(found: PassageScores) -> dict[int, float]:
    """The exact similarities of the passages that were found: the scan is less precise."""
    numbers = np.array(list(found.by_vector), np.int64)
    similar = found.asked.similar(numbers) if found.by_vector else None
    if similar is None:
        return {}
    return dict(zip(numbers.tolist(), similar.tolist(), strict=True))


def _sort_by_score(
    scores: Mapping[PassageKey, float], positions: Mapping[PassageKey, tuple[int, int]]
) -> dict[PassageKey, float]:
    """Sort passages of several owners, the best first, then the newest.

    Their numbers say nothing about age: each owner has its own, and an as-of view counts anew.
    Scores are rounded, since the same similarity may differ in its last digits between views.
    """

    def order(pair: tuple[PassageKey, float]) -> tuple[float, int, int]:
        position, offset = positions.get(pair[0], (0, 0))
        return -round(pair[1], recall_ranking.SCORE_DECIMALS), -position, -offset

    return dict(sorted(scores.items(), key=order))


def _check_query_embedding(values: Sequence[float]) -> Vector:
    """Validate a precomputed query vector, and scale it to unit length."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput("query_embedding must be a sequence of numbers") from error
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise InvalidInput("query_embedding must be one non-empty row of finite numbers")
    if np.abs(vector).max() > np.finfo(np.float32).max:
        raise InvalidInput("query_embedding has numbers too large for a vector")
    length = float(np.linalg.norm(vector)) or 1.0
    return (vector / length).astype(np.float32)
