"""Recall: scope first, then candidates by word and by vector, weighed, and led back to texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reverie.engine import vector_math
from reverie.engine.index import Filter
from reverie.errors import EmbedderMissing, EmbeddingFailed, InvalidInput
from reverie.model import Candidate, Hit, Mode, Ranking
from reverie.protocols import Embedder, Owner
from reverie.recall import hits, query_hints
from reverie.recall import ranking as recall_ranking
from reverie.recall.hits import ScoredCandidate
from reverie.recall.query_hints import QueryHints
from reverie.recall.views import (
    AsOfItem,
    AsOfView,
    IndexView,
    View,
)
from reverie.text.analyzer import MAX_QUERY_CHARS
from reverie.write import embeddings
from reverie.write.runtime import Runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Numbers, Vector

AS_OF_NEEDS_LOCAL = "an as-of recall makes its vectors anew, which only a local embedder can"
NO_RERANKER = "no reranker is configured"
# A key in PEM is shorter.
MAX_SECRET_CHARS = 5_000
NEIGHBOR_LOOKUP_FACTOR = 2
# How much more is looked at when what was found leads to too little.
CANDIDATE_GROWTH = 4
MAX_CANDIDATES = 2_000


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for, checked."""

    text: str
    limit: int
    mode: Mode = "hybrid"
    filter: Filter = Filter()
    ranking: Ranking = Ranking()
    embedding: Sequence[float] | None = None
    explain: bool = False
    exclude: Callable[[str | None, Candidate], bool] | None = None
    """Given a user and what is theirs: whether whoever asks has it before them already."""


@dataclass(frozen=True, slots=True)
class QueryVector:
    """How this query is compared with vectors. ``missing`` says why it is not, when it is not."""

    embedder: Embedder | None
    precomputed: Vector | None
    unavailable_reason: str | None

    @property
    def unavailable(self) -> bool:
        return self.unavailable_reason is not None

    def vector(self, text: str, weights: Mapping[str, float]) -> Vector:
        if self.precomputed is not None:
            return self.precomputed
        assert self.embedder is not None
        return self.embedder.embed_query(text[:MAX_QUERY_CHARS], weights)


def redact_query(runtime: Runtime, query: Query) -> Query:
    """The query as it may be embedded and noted; an embedder may be somebody else's service."""
    # Nothing looks further; a secret that begins before that place is still seen whole.
    text = query.text[: MAX_QUERY_CHARS + MAX_SECRET_CHARS]
    return replace(query, text=runtime.redaction.quiet(text, "the query"))


def prepare_query_vector(
    runtime: Runtime, query: Query, *, local_only: bool = False
) -> QueryVector:
    """Decide how vectors take part, before the store is read: a remote embedder is slow.

    Asked for alone they must be there; in a hybrid recall their absence is said in ``explain``.
    """
    if query.mode == "keyword":
        return QueryVector(None, None, "not asked for")
    given = None if query.embedding is None else _check_query_embedding(query.embedding)
    if given is not None and not local_only:
        return QueryVector(None, given, None)
    embedder = runtime.embedder
    why = None
    if embedder is None:
        why = "no embedder is configured"
    elif local_only and embedder.remote:
        why = AS_OF_NEEDS_LOCAL
    elif not local_only and not runtime.engine.supports_vector_search:
        why = "the database has no pgvector"
    if embedder is None or why is not None:
        if query.mode == "vector":
            raise EmbedderMissing(f"{why}: use mode='keyword', or set REVERIE_EMBEDDER=local")
        return QueryVector(None, None, why)
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
    runtime: Runtime, owners: Mapping[Owner, str | None], query: Query, eye: QueryVector
) -> list[Hit]:
    """The best memories and events of these owners, each with the name of its user."""
    with runtime.engine.read() as tx:
        for own in list(owners)[:1]:  # behind it is what its space shares
            tx.enter(own)
        embedder = eye.embedder
        known = embeddings.read(tx) if embedder is None else embeddings.require(tx, embedder)
        now = runtime.clock.now()
        views = [
            IndexView(tx, owner, user, query.filter, known, now) for owner, user in owners.items()
        ]
        return _recall(runtime, query, eye, views)


def recall_as_of(
    runtime: Runtime,
    known: Mapping[str | None, Sequence[AsOfItem]],
    chosen: Filter,
    query: Query,
) -> list[Hit]:
    """Recall from all that was known at an earlier moment, by user.

    As in the index, statistics are those of all an owner knew; a filter only narrows what is found.
    """
    query = redact_query(runtime, query)
    eye = prepare_query_vector(runtime, query, local_only=True)
    if eye.embedder is not None:
        with runtime.engine.read() as tx:
            embeddings.require(tx, eye.embedder)
    views = [AsOfView(runtime, user, things, chosen) for user, things in known.items()]
    return _recall(runtime, query, eye, views)


def _recall(runtime: Runtime, query: Query, eye: QueryVector, views: Sequence[View]) -> list[Hit]:
    ranking = query.ranking
    question = query_hints.parse_query(query.text)
    asked = _build_view_queries(views, query, question, eye)
    reranker = runtime.reranker() if ranking.rerank else None
    opinions = None if reranker is None else hits.RerankScores(reranker, query.text)
    many = max(ranking.candidates, query.limit * ranking.multiplier, 1)
    while True:
        lists = [_score_passages(each, many) for each in asked]
        cut = any(many in {len(found.by_keyword), len(found.by_vector)} for found in lists)
        weighed = _drop_excluded(query, _score_candidates(query, question, lists))
        kept, enough = hits.select_hits(
            weighed, ranking, query.limit, runtime.clock.now(), len(views), opinions
        )
        if enough or not cut or many >= MAX_CANDIDATES:
            break
        # One long note, or the same again and again, filled the lists: there may be others behind.
        many *= CANDIDATE_GROWTH
    missing = [eye.unavailable_reason] if query.mode == "hybrid" else []
    missing += [NO_RERANKER] if ranking.rerank and reranker is None else []
    degraded = "; ".join(why for why in missing if why is not None) or None
    return [hits.build_hit(read, query.explain, degraded) for read in kept]


# -- candidates -----------------------------------------------------------------------------------


class ViewQuery(NamedTuple):
    """A query in terms of one view."""

    view: View
    matches: recall_ranking.TermMatches | None
    vector: Vector | None


class PassageScores(NamedTuple):
    """Passages of one view, the best first, by each kind of evidence that was asked for."""

    asked: ViewQuery
    by_keyword: dict[int, float]
    by_vector: dict[int, float]


def _build_view_queries(
    views: Sequence[View], query: Query, question: QueryHints, eye: QueryVector
) -> list[ViewQuery]:
    """By what all of these owners know together: what is rare must be so for each of them."""
    ranking, terms = query.ranking, list(question.terms)
    wordless = query.mode == "vector" or (
        ranking.fusion != "evidence" and not ranking.keyword_weight and not eye.unavailable
    )
    # Where all postings of each term are read in any case, they are counted.
    whole = [
        None
        if wordless or view.is_filtered or len(terms) > recall_ranking.MAX_QUERY_TERMS
        else view.postings(terms)
        for view in views
    ]
    known: dict[str, int] = {}
    for view, postings in zip(views, whole, strict=True):
        counted = view.frequencies(terms) if postings is None else _count_postings(postings)
        for term, count in counted.items():
            known[term] = known.get(term, 0) + count
    passages = sum(view.passages for view in views)
    weights = recall_ranking.term_weights(passages, terms, known)
    vector = None
    if not eye.unavailable:
        vector = eye.vector(
            query.text, recall_ranking.word_weights(passages, question.terms, known)
        )
    asked = []
    for view, postings in zip(views, whole, strict=True):
        matches = None
        if not wordless:
            found = view.postings(weights.of) if postings is None else postings
            matches = recall_ranking.TermMatches(found, weights, view.end)
        asked.append(ViewQuery(view, matches, vector))
    return asked


def _count_postings(postings: Mapping[str, Numbers]) -> dict[str, int]:
    return {term: len(numbers) for term, numbers in postings.items()}


def _score_passages(asked: ViewQuery, many: int) -> PassageScores:
    return PassageScores(
        asked,
        {} if asked.matches is None else _top_scores(*asked.matches.passage_scores(), many),
        {} if asked.vector is None else dict(asked.view.nearest(asked.vector, many)),
    )


def _top_scores(numbers: Numbers, scores: NDArray[np.float64], many: int) -> dict[int, float]:
    return dict(vector_math.top_k(scores, many, numbers))


# -- weighing -------------------------------------------------------------------------------------


def _score_candidates(
    query: Query, question: QueryHints, lists: Sequence[PassageScores]
) -> Iterator[ScoredCandidate]:
    """The best first."""
    if query.ranking.fusion == "evidence":
        return _score_by_evidence(query, question, lists)
    return iter(sorted(_score_by_fusion(query, lists), key=lambda weighed: weighed.order))


def _drop_excluded(query: Query, weighed: Iterator[ScoredCandidate]) -> Iterator[ScoredCandidate]:
    unwanted = query.exclude
    if unwanted is None:
        return weighed
    return (each for each in weighed if not unwanted(each.view.user, each.candidate))


def _score_by_evidence(
    query: Query, question: QueryHints, lists: Sequence[PassageScores]
) -> Iterator[ScoredCandidate]:
    pools = [
        (found.asked.view, pool)
        for found in lists
        if (pool := _build_pool(found, NEIGHBOR_LOOKUP_FACTOR * query.limit)) is not None
    ]
    _apply_hints(question, [pool for _, pool in pools])
    each = [_score_pool(view, pool, query) for view, pool in pools]
    return each[0] if len(each) == 1 else merge(*each, key=lambda weighed: weighed.order)


def _score_pool(
    view: View, pool: recall_ranking.CandidatePool, query: Query
) -> Iterator[ScoredCandidate]:
    judged = recall_ranking.score_evidence(pool, query.ranking)
    births = np.array([candidate.first_position for candidate in pool.candidates])
    for place in np.lexsort((-births, -judged.scores)):
        if not judged.found[place]:
            continue
        yield ScoredCandidate(
            float(judged.scores[place]),
            pool.candidates[place],
            int(judged.passages[place]),
            view,
            judged.parts_at(place) if query.explain else {},
        )


def _build_pool(found: PassageScores, limit: int) -> recall_ranking.CandidatePool | None:
    """What was found, and what stands around it."""
    asked = found.asked
    # The best of each kind are worth a look around; the others are there by themselves.
    around = {*islice(found.by_keyword, limit), *islice(found.by_vector, limit)}
    candidates = asked.view.candidates({**found.by_keyword, **found.by_vector}, around)
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
    vector = asked.vector
    similar = None if vector is None else asked.view.similar(vector, numbers)
    listed = {*found.by_keyword, *found.by_vector}
    looked_up = np.array([number in listed for number in numbers.tolist()])
    return recall_ranking.CandidatePool(candidates, numbers, looked_up, asked.matches, similar)


def _apply_hints(question: QueryHints, pools: Sequence[recall_ranking.CandidatePool]) -> None:
    """Say which candidates the query points to; where it points to none of them it says nothing.

    A memory has no speaker: it stands beside whoever is named.
    """
    named = [
        [c.session is not None and question.asks_about(c.role, c.speaker) for c in pool.candidates]
        for pool in pools
    ]
    if any(map(any, named)):
        for pool, speaks in zip(pools, named, strict=True):
            silent = [candidate.session is None for candidate in pool.candidates]
            pool.speaks = np.array(speaks) | np.array(silent)
    period = question.period
    if period is not None:
        within = [[period.holds(candidate.at) for candidate in pool.candidates] for pool in pools]
        if any(map(any, within)):
            for pool, holds in zip(pools, within, strict=True):
                pool.within = np.array(holds)


def _score_by_fusion(query: Query, lists: Sequence[PassageScores]) -> list[ScoredCandidate]:
    """Passages by their places in the lists of all views; of each text the best."""
    keyword = {(at, n): score for at, f in enumerate(lists) for n, score in f.by_keyword.items()}
    vector = {
        (at, n): score for at, f in enumerate(lists) for n, score in _exact_similarities(f).items()
    }
    fused = recall_ranking.fuse(
        None if all(found.asked.matches is None for found in lists) else _sort_by_score(keyword),
        None if all(found.asked.vector is None for found in lists) else _sort_by_score(vector),
        query.ranking,
    )
    scores = {scored.item: scored for scored in fused}
    weighed: list[ScoredCandidate] = []
    for at, found in enumerate(lists):
        view = found.asked.view
        numbers = {**found.by_keyword, **found.by_vector}
        for candidate in view.candidates(numbers):
            first = candidate.first_passage
            mine = [
                scores[at, number]
                for number in range(first, first + candidate.passages)
                if (at, number) in scores
            ]
            best = min(mine, key=lambda scored: (-scored.score, -scored.item[1]))
            weighed.append(ScoredCandidate(best.score, candidate, best.item[1], view, best.parts))
    return weighed


def _exact_similarities(found: PassageScores) -> dict[int, float]:
    """The likeness of what was found, to the last place: a scan is quicker than it is exact."""
    vector = found.asked.vector
    if vector is None or not found.by_vector:
        return {}
    numbers = np.array(list(found.by_vector), np.int64)
    similar = found.asked.view.similar(vector, numbers)
    return dict(zip(numbers.tolist(), similar.tolist(), strict=True))


def _sort_by_score(scores: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], -pair[0][1])))


def _check_query_embedding(values: Sequence[float]) -> Vector:
    """A precomputed query vector, checked and of unit length."""
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
