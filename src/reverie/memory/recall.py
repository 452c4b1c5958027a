"""Recall: scope first, then candidates by word and by vector, fused, and led back to texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from reverie import rank
from reverie.engine import index, log, sessions
from reverie.engine.index import Filter
from reverie.errors import DimensionMismatchError, EmbedderMissing, EmbeddingFailed, InvalidInput
from reverie.memory import generations
from reverie.memory.resources import Resources
from reverie.model import Event, Hit, Memory, Mode, Ranking
from reverie.protocols import Embedder, Owner, Transaction
from reverie.text.words import QUERY_CHARS, query_terms

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
    mode: Mode = "hybrid"
    chosen: Filter = Filter()
    ranking: Ranking = Ranking()
    embedding: Sequence[float] | None = None
    explain: bool = False


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
        return self.embedder.embed_query(text[:QUERY_CHARS], weights)


@dataclass(slots=True)
class Candidates:
    """What was found so far. ``cut``: some list was full, so there may be more."""

    by_keyword: dict[Found, float]
    by_vector: dict[Found, float]
    cut: bool = False

    def best(self, owners: Iterable[Owner], many: int) -> Candidates:
        """So many of each owner and kind, as the index gives them."""
        kept = Candidates({}, {})
        for owner in owners:
            for mine, theirs in (
                (self.by_keyword, kept.by_keyword),
                (self.by_vector, kept.by_vector),
            ):
                own = [(score, found) for found, score in mine.items() if found.owner == owner]
                own.sort(reverse=True)
                theirs.update({found: score for score, found in own[:many]})
                kept.cut |= len(own) >= many
        return kept


def open_eye(resources: Resources, query: Query, *, local_only: bool = False) -> Eye:
    """Decide how vectors take part, before the store is read: a remote embedder is slow.

    Asked for alone they must be there; in a hybrid recall their absence is said in ``explain``.
    """
    if query.mode == "keyword":
        return Eye(None, None, "not asked for")
    given = None if query.embedding is None else _given(query.embedding)
    if given is not None and not local_only:
        return Eye(None, given, None)
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
    if given is not None or not embedder.remote:
        return Eye(embedder, given, None)
    try:
        return Eye(embedder, embedder.embed_query(query.text[:QUERY_CHARS]), None)
    except EmbeddingFailed as error:
        if query.mode == "vector":
            raise
        return Eye(None, None, str(error))


def recall(resources: Resources, owners: Mapping[Owner, str | None], query: Query) -> list[Hit]:
    """The best memories of these owners, each with the name of its user."""
    eye = open_eye(resources, query)
    many = max(query.ranking.candidates, query.limit * 4)
    found = Candidates({}, {})
    seen: frozenset[int] = frozenset()
    with resources.engine.read() as tx:
        while True:
            found.cut = False
            further = replace(query, chosen=replace(query.chosen, without=tuple(seen)))
            for owner in owners:
                _look(tx, owner, further, eye, many, found)
            hits, born = _lead_back(tx, resources, owners, query, found, eye)
            if len(hits) == query.limit or not found.cut or born == seen:
                return hits
            # One long note, or what has expired, filled the list: look among the others.
            seen = born


def _look(
    tx: Transaction, owner: Owner, query: Query, eye: Eye, many: int, found: Candidates
) -> None:
    """Candidates of one owner, by its own statistics."""
    words = query_terms(query.text)
    statistics = index.statistics(tx, owner)
    known = index.frequencies(tx, owner, list(words))
    chosen = query.chosen if query.chosen.narrows(statistics) else None
    if query.mode != "vector":
        matching = index.keyword(
            tx,
            owner,
            rank.term_weights(statistics.passages, known),
            rank.saturation(statistics.passages, statistics.terms),
            chosen,
            many,
        )
        found.by_keyword.update({Found(owner, passage): score for passage, score in matching})
        found.cut |= len(matching) == many
    generation = None if eye.blind else generations.read(tx)
    if generation is None:
        return
    vector = eye.vector(query.text, rank.word_weights(statistics.passages, words, known))
    if generation.dimensions not in {None, len(vector)}:
        raise DimensionMismatchError(generation.dimensions or 0, len(vector))
    if not vector.any():
        return
    allowed = None if chosen is None else index.allowed_passages(tx, owner, chosen)
    near = tx.nearest(owner, generation.number, vector, many, allowed)
    found.by_vector.update({Found(owner, passage): score for passage, score in near})
    found.cut |= len(near) == many


def _lead_back(
    tx: Transaction,
    resources: Resources,
    owners: Mapping[Owner, str | None],
    query: Query,
    candidates: Candidates,
    eye: Eye,
) -> tuple[list[Hit], frozenset[int]]:
    """From passages to memories and events, the expired left out; and where all were born."""
    fused = _fused(query, eye, candidates)
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
        entry = index.entry_of(tx, owner, born[found.item])
        thing = known_from(entry, owners[owner])
        if isinstance(thing, Memory) and thing.expired(now):
            continue
        text = text_of(thing)[start : start + length]
        hits.append(_hit(thing, text, found, query, eye.missing))
    return hits, frozenset(born.values())


def known_from(entry: log.Entry, user: str | None) -> Memory | Event:
    """What an entry stands for: an event, or the state of a memory."""
    return sessions.event_of(entry, user) if entry.op == "append" else entry.state(user)


def text_of(thing: Memory | Event) -> str:
    return thing.content if isinstance(thing, Memory) else thing.text


def _hit(
    thing: Memory | Event, text: str, found: rank.Scored[Found], query: Query, missing: str | None
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
    if isinstance(thing, Event):
        id = f"{thing.session}:{thing.sequence}"
        return Hit("event", id, text, found.score, None, thing, parts)
    return Hit(thing.kind, thing.id, text, found.score, thing, None, parts)


def recall_as_of(
    resources: Resources,
    states: Mapping[Owner, Sequence[tuple[int, Memory | Event]]],
    chosen: Filter,
    query: Query,
) -> list[Hit]:
    """Recall from all that was known at an earlier moment: nothing of it is indexed.

    As in the index, statistics are those of all an owner knew; a filter only narrows what is found.
    """
    eye = open_eye(resources, query, local_only=True)
    whole = Candidates({}, {})
    places: dict[Found, tuple[int, Memory | Event, index.Passage]] = {}
    for owner, known in states.items():
        texts = [(born, thing, part) for born, thing in known for part in _parts(thing)]
        scanned = {Found(owner, number): place for number, place in enumerate(texts)}
        places.update(scanned)
        allowed = [found.passage for found, place in scanned.items() if _admitted(chosen, place[1])]
        parts = [part for _, _, part in texts]
        _scan_owner(resources, owner, query, eye, parts, allowed, whole)
    born = {found: place[0] for found, place in places.items()}
    many = max(query.ranking.candidates, query.limit * 4)
    while True:
        candidates = whole.best(states, many)
        ordered = rank.best_first(_fused(query, eye, candidates), born)
        best = rank.best_of_each(ordered, born)[: query.limit]
        if len(best) == query.limit or not candidates.cut:
            break
        many *= 4
    return [
        _hit(places[found.item][1], places[found.item][2].text, found, query, eye.missing)
        for found in best
    ]


def _admitted(chosen: Filter, thing: Memory | Event) -> bool:
    return chosen.admits(thing) if isinstance(thing, Memory) else chosen.admits_event(thing)


def _parts(thing: Memory | Event) -> list[index.Passage]:
    if isinstance(thing, Event):
        return sessions.passages_of_event(thing)
    return index.passages_of(thing.content)


def _fused(query: Query, eye: Eye, candidates: Candidates) -> list[rank.Scored[Found]]:
    return rank.fuse(
        None if query.mode == "vector" else candidates.by_keyword,
        None if eye.blind else candidates.by_vector,
        query.ranking,
    )


def _scan_owner(
    resources: Resources,
    owner: Owner,
    query: Query,
    eye: Eye,
    parts: Sequence[index.Passage],
    allowed: Sequence[int],
    found: Candidates,
) -> None:
    """What the index would say of one owner, computed from all its passages."""
    words = query_terms(query.text)
    counted = {term: sum(term in part.terms.counts for part in parts) for term in words}
    if query.mode != "vector":
        weights = rank.term_weights(len(parts), counted)
        saturated = rank.saturation(len(parts), sum(part.terms.length for part in parts))
        for number in allowed:
            terms = parts[number].terms
            score = rank.keyword_score(terms.counts, terms.length, weights, saturated)
            if score > 0:
                found.by_keyword[Found(owner, number)] = score
    if eye.blind or not parts or resources.embedder is None:
        return
    rows = resources.embedder.embed([part.text for part in parts])
    vector = eye.vector(query.text, rank.word_weights(len(parts), words, counted))
    if not vector.any():
        return
    for number, score in _scan(rows, vector, allowed):
        found.by_vector[Found(owner, number)] = score


def _scan(rows: Matrix, query: Vector, allowed: Sequence[int]) -> list[tuple[int, float]]:
    from reverie.engine import similarity

    if rows.shape[1] != len(query):
        raise DimensionMismatchError(rows.shape[1], len(query))
    live = int(rows.any(axis=1).sum())
    mean = similarity.mean_of(rows.sum(axis=0, dtype="float64"), live)
    apart = similarity.distances(rows, similarity.squares(rows), mean)
    return similarity.best(similarity.centred_cosine(rows, mean, apart, query), len(rows), allowed)


def _given(values: Sequence[float]) -> Vector:
    """A precomputed query vector, checked and of unit length."""
    import numpy as np

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
