"""Recall: scope first, then candidates by word and by vector, fused, and led back to memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reverie import rank
from reverie.engine import index, log
from reverie.engine.index import Filter
from reverie.errors import DimensionMismatchError, EmbedderMissing, EmbeddingFailed, InvalidInput
from reverie.memory import generations
from reverie.memory.resources import Resources
from reverie.model import Hit, Memory, Mode, Ranking
from reverie.protocols import Embedder, Owner, Transaction
from reverie.text.words import query_terms

if TYPE_CHECKING:
    from reverie.protocols import Matrix, Vector

AS_OF_NEEDS_LOCAL = "an as-of recall makes its vectors anew, which only a local embedder can"


class Found(NamedTuple):
    """A passage of one owner."""

    owner: Owner
    passage: int


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for, checked."""

    text: str
    limit: int
    mode: Mode
    chosen: Filter
    ranking: Ranking
    embedding: Sequence[float] | None
    explain: bool

    @property
    def candidates(self) -> int:
        return max(self.ranking.candidates, self.limit * 4)


@dataclass(frozen=True, slots=True)
class Eye:
    """How this query is compared with vectors. ``missing`` says why it is not, when it is not."""

    embedder: Embedder | None
    fixed: Vector | None
    missing: str | None

    @property
    def blind(self) -> bool:
        return self.missing is not None

    def vector(self, text: str, weights: Mapping[str, float]) -> Vector:
        if self.fixed is not None:
            return self.fixed
        assert self.embedder is not None
        return self.embedder.embed_query(text, weights)


def open_eye(resources: Resources, query: Query, *, local_only: bool = False) -> Eye:
    """Decide how vectors take part, before the store is read: a remote embedder is slow.

    Asked for alone they must be there; in a hybrid recall their absence is said in ``explain``.
    """
    if query.mode == "keyword":
        return Eye(None, None, "not asked for")
    if query.embedding is not None:
        return Eye(None, _given(query.embedding), None)
    embedder = resources.embedder
    why = None
    if embedder is None:
        why = "no embedder is configured"
    elif local_only and embedder.remote:
        why = AS_OF_NEEDS_LOCAL
    if embedder is None or why is not None:
        if query.mode == "vector":
            raise EmbedderMissing(f"{why}: use mode='keyword', or set REVERIE_EMBEDDER=local")
        return Eye(None, None, why)
    with resources.engine.read() as tx:
        generations.require(tx, embedder)
    if not embedder.remote:
        return Eye(embedder, None, None)
    try:
        return Eye(embedder, embedder.embed_query(query.text), None)
    except EmbeddingFailed as error:
        if query.mode == "vector":
            raise
        return Eye(None, None, str(error))


def recall(resources: Resources, owners: Mapping[Owner, str | None], query: Query) -> list[Hit]:
    """The best memories of these owners, each with the name of its user."""
    eye = open_eye(resources, query)
    with resources.engine.read() as tx:
        generation = generations.read(tx)
        by_keyword: dict[Found, float] = {}
        by_vector: dict[Found, float] = {}
        words = query_terms(query.text)
        for owner in owners:
            statistics = index.statistics(tx, owner)
            known = index.frequencies(tx, owner, list(words))
            if query.mode != "vector":
                found = index.keyword(
                    tx,
                    owner,
                    rank.term_weights(statistics.passages, known),
                    rank.saturation(statistics.passages, statistics.terms),
                    query.chosen,
                    query.candidates,
                )
                by_keyword.update({Found(owner, passage): score for passage, score in found})
            if not eye.blind and generation is not None:
                vector = eye.vector(
                    query.text, rank.word_weights(statistics.passages, words, known)
                )
                if generation.dimensions not in {None, len(vector)}:
                    raise DimensionMismatchError(generation.dimensions or 0, len(vector))
                near = tx.nearest(
                    owner,
                    generation.number,
                    vector,
                    query.candidates,
                    index.allowed_passages(tx, owner, query.chosen),
                )
                by_vector.update({Found(owner, passage): score for passage, score in near})
        fused = rank.fuse(
            None if query.mode == "vector" else by_keyword,
            None if eye.blind else by_vector,
            query.ranking,
        )
        return _lead_back(tx, resources, owners, query, fused, eye.missing)


def _lead_back(
    tx: Transaction,
    resources: Resources,
    owners: Mapping[Owner, str | None],
    query: Query,
    fused: list[rank.Scored[Found]],
    missing: str | None,
) -> list[Hit]:
    """From passages to memories, the expired ones left out."""
    stretches = {
        Found(owner, passage): row
        for owner in owners
        for passage, row in index.located(
            tx, owner, [found.item.passage for found in fused if found.item.owner == owner]
        ).items()
    }
    born = {item: row[0] for item, row in stretches.items()}
    ordered = rank.best_first([found for found in fused if found.item in born], born)
    now = resources.clock.now()
    hits: list[Hit] = []
    for found in rank.best_of_each(ordered, born):
        if len(hits) == query.limit:
            break
        owner = found.item.owner
        _, start, length = stretches[found.item]
        position = index.current_position(tx, owner, born[found.item])
        entry = None if position is None else log.at_position(tx, owner, position)
        if entry is None:
            continue
        memory = entry.state(owners[owner])
        if memory.expired(now):
            continue
        hits.append(_hit(memory, memory.content[start : start + length], found, query, missing))
    return hits


def _hit(
    memory: Memory, text: str, found: rank.Scored[Found], query: Query, missing: str | None
) -> Hit:
    parts: dict[str, float | str | None] = {}
    if query.explain:
        parts = {
            "keyword": found.keyword,
            "vector": found.vector,
            "keyword_part": found.keyword_part,
            "vector_part": found.vector_part,
        }
        if query.mode == "hybrid" and missing is not None:
            parts["degraded"] = missing
    return Hit(memory.kind, memory.id, text, found.score, memory, None, parts)


def recall_as_of(
    resources: Resources, states: Sequence[tuple[int, Memory]], query: Query
) -> list[Hit]:
    """Recall from a set of states of an earlier moment: nothing is indexed, all is scanned."""
    eye = open_eye(resources, query, local_only=True)
    passages = [
        (born, memory, part)
        for born, memory in states
        for part in index.passages_of(memory.content)
    ]
    words = query_terms(query.text)
    known = {
        term: count
        for term in words
        if (count := sum(term in part.terms.counts for _, _, part in passages))
    }
    weights = rank.term_weights(len(passages), known)
    saturated = rank.saturation(len(passages), sum(part.terms.length for _, _, part in passages))
    owner = Owner(0, 0)
    by_keyword = {}
    for number, (_, _, part) in enumerate(passages):
        score = rank.keyword_score(part.terms.counts, part.terms.length, weights, saturated)
        if score > 0:
            by_keyword[Found(owner, number)] = score
    by_vector = {}
    if not eye.blind and passages and resources.embedder is not None:
        rows = resources.embedder.embed([part.text for _, _, part in passages])
        vector = eye.vector(query.text, rank.word_weights(len(passages), words, known))
        for number, score in _scan(rows, vector, query.candidates):
            by_vector[Found(owner, number)] = score
    fused = rank.fuse(
        None if query.mode == "vector" else by_keyword,
        None if eye.blind else by_vector,
        query.ranking,
    )
    born = {found.item: passages[found.item.passage][0] for found in fused}
    ordered = rank.best_of_each(rank.best_first(fused, born), born)[: query.limit]
    return [
        _hit(passages[f.item.passage][1], passages[f.item.passage][2].text, f, query, eye.missing)
        for f in ordered
    ]


def _scan(rows: Matrix, query: Vector, limit: int) -> list[tuple[int, float]]:
    from reverie.engine import similarity

    if rows.shape[1] != len(query):
        raise DimensionMismatchError(rows.shape[1], len(query))
    live = int(rows.any(axis=1).sum())
    mean = similarity.mean_of(rows.sum(axis=0, dtype="float64"), live)
    apart = similarity.distances(rows, mean)
    return similarity.best(similarity.centred_cosine(rows, mean, apart, query), limit, None)


def _given(values: Sequence[float]) -> Vector:
    """A precomputed query vector, checked and of unit length."""
    import numpy as np

    try:
        vector = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidInput("query_embedding must be a sequence of numbers") from error
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise InvalidInput("query_embedding must be one non-empty row of finite numbers")
    length = float(np.linalg.norm(vector))
    return vector if not length else (vector / length).astype(np.float32)
