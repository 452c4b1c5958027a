"""Turns scored candidates into hits: reads them, adjusts scores, and drops duplicates."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite, log
from typing import NamedTuple

import numpy as np

from reverie.errors import RerankFailed
from reverie.model import Candidate, Event, Hit, Memory, Ranking
from reverie.protocols import Reranker
from reverie.recall import near_duplicates
from reverie.recall import ranking as recall_ranking
from reverie.recall.calibration import Evidence
from reverie.recall.query import Query
from reverie.recall.query_hints import AskedKind, Definition
from reverie.recall.views import View

# Hits that share this part of their terms are duplicates.
DUPLICATE_SHARE = 0.9
# Of two duplicates the newer one is shown, unless its score is below this part of the other's.
SAME_SCORE_SHARE = 0.9
# The part of its score that a text keeps which has the query's word in another sense.
OTHER_SENSE_FACTOR = 0.2
# A fact that is over yields to one of its subject with at least this part of its score. With less
# that one answers something else: a subject such as a person has many facts.
ENDED_SCORE_SHARE = 0.75


class ScoredCandidate(NamedTuple):
    """A candidate with its score and its best passage."""

    score: float
    candidate: Candidate
    passage: int
    view: View
    parts: Mapping[str, float | None]
    evidence: Callable[[recall_ranking.TermRarity], Evidence] | None = None
    """What speaks for it; only with the fusion ``evidence``, whose scores are calibrated."""

    @property
    def order(self) -> tuple[float, int]:
        """The sort key: best score first, then newest."""
        return -self.score, -self.candidate.first_position


@dataclass(slots=True)
class LoadedCandidate:
    """A scored candidate with its memory or event, and the text of its best passage."""

    scored: ScoredCandidate
    item: Memory | Event
    text: str
    score: float
    parts: dict[str, float | str | None]
    duplicates: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the hit that it becomes."""
        item = self.item
        return item.id if isinstance(item, Memory) else f"{item.session}:{item.sequence}"

    def set_score(self, stage: str, score: float) -> None:
        """Replace the score, and record it as the result of a stage."""
        self.score, self.parts[stage] = score, round(score, recall_ranking.SCORE_DECIMALS)

    def absorb(self, other: LoadedCandidate) -> None:
        """Count a near-duplicate, and show it instead if it is newer; the score stays.

        One that fits much less well, because the query names a date or a speaker, is only counted.
        """
        newer = other.scored.candidate.age_order > self.scored.candidate.age_order
        fits = other.score >= self.score * SAME_SCORE_SHARE
        if newer and fits and isinstance(other.item, Memory) == isinstance(self.item, Memory):
            hidden = self.id
            self.scored, self.item, self.text = other.scored, other.item, other.text
        else:
            hidden = other.id
        self.duplicates = (*self.duplicates, hidden)
        self.parts["collapsed"] = float(len(self.duplicates))


class RerankScores:
    """The scores of a reranker for one query; each text is scored once."""

    def __init__(self, reranker: Reranker, query: str) -> None:
        self._reranker = reranker
        self._query = query
        self._known: dict[str, float] = {}

    def of(self, texts: Sequence[str]) -> list[float]:
        """The score of each of these texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        scores = self._reranker.score(self._query, new) if new else []
        if len(scores) != len(new) or not all(map(isfinite, scores)):
            raise RerankFailed(
                f"{self._reranker.identity} gave {len(scores)} scores for {len(new)} texts, or "
                "some that are not numbers: use another reranker, or a ranking without one"
            )
        self._known.update(zip(new, scores, strict=True))
        return [self._known[text] for text in texts]


def select_hits(
    scored: Iterator[ScoredCandidate],
    query: Query,
    now: int,
    owners: int,
    rerank_scores: RerankScores | None,
    definition: Definition | None = None,
    kind: AskedKind | None = None,
    valid_at: int | None = None,
) -> tuple[list[LoadedCandidate], bool]:
    """The candidates that become hits, and whether more candidates could not change them.

    ``definition`` is what the query asks to be explained: a text that does so comes first. Of the
    ``kind`` of thing that it asks for, texts that have the word in another sense come last. What
    was over at ``valid_at`` comes after what was not, of one subject.
    """
    ranking, limit, floor = query.ranking, query.limit, query.min_score
    loaded = _load_candidates(scored, limit)
    if ranking.collapse:
        loaded = _collapse_duplicates(loaded)
    if kind is not None:
        loaded = _other_senses_last(loaded, kind, limit)
    if definition is not None:
        loaded = _definitions_first(loaded, definition, limit)
    if valid_at is not None:
        loaded = _ended_last(loaded, valid_at, limit)
    threshold = ranking.score_threshold
    if rerank_scores or ranking.spread or ranking.recency_weight or ranking.mmr_lambda is not None:
        # These compare candidates with each other, so a fixed number of them is read first.
        batch_size = limit * max(ranking.multiplier, 1) * owners
        batch = list(islice(loaded, batch_size))
        if rerank_scores is not None:
            reranked = rerank_scores.of([read.text for read in batch])
            for read, score in zip(batch, reranked, strict=True):
                read.set_score("rerank", score)
        above_threshold = [read for read in batch if threshold is None or read.score >= threshold]
        adjusted = _adjust_scores(above_threshold, ranking, limit, now, rerank_scores is not None)
        if valid_at is not None:
            adjusted = list(_ended_last(iter(adjusted), valid_at, limit))
        above_floor = [read for read in adjusted[:limit] if floor is None or read.score >= floor]
        return above_floor, len(adjusted) >= limit or len(batch) == batch_size
    lowest = max((limit for limit in (threshold, floor) if limit is not None), default=None)
    chosen: list[LoadedCandidate] = []
    for read in loaded:
        if lowest is not None and read.score < lowest:
            # All further candidates are below the floor as well.
            return chosen, True
        chosen.append(read)
        if len(chosen) == limit:
            break
    if ranking.collapse:
        # As many again are read only to find the duplicates of the chosen ones among them.
        deque(islice(loaded, limit), maxlen=0)
    return chosen, len(chosen) == limit


def _definitions_first(
    loaded: Iterator[LoadedCandidate], definition: Definition, limit: int
) -> Iterator[LoadedCandidate]:
    """Put the definitions among the best candidates first, with the score of the best one."""
    best = list(islice(loaded, 2 * limit))
    for read in best:
        if definition.is_in(read.text):
            read.set_score("definition", best[0].score)
    yield from sorted(best, key=lambda read: "definition" not in read.parts)
    yield from loaded


def _other_senses_last(
    loaded: Iterator[LoadedCandidate], kind: AskedKind, limit: int
) -> Iterator[LoadedCandidate]:
    """Lower the scores of the best candidates that have the query's word in another sense."""
    best = list(islice(loaded, 2 * limit))
    for read in best:
        if kind.is_missed_by(read.text):
            lowered = round(read.score * OTHER_SENSE_FACTOR, recall_ranking.SCORE_DECIMALS)
            read.set_score("other_sense", lowered)
    yield from heapq.merge(
        sorted(best, key=lambda read: -read.score), loaded, key=lambda read: -read.score
    )


def _ended_last(
    loaded: Iterator[LoadedCandidate], at: int, limit: int
) -> Iterator[LoadedCandidate]:
    """Put each fact that was over after the facts of its subject that were not, with their score.

    Further candidates are read only behind such a fact: as many as twice the limit.
    """
    for read in loaded:
        if not _is_over(read, at):
            yield read
            continue
        near = [read, *islice(loaded, 2 * limit)]
        order = [(place, 0) for place in range(len(near))]
        for place, ended in enumerate(near):
            last = _last_current(near, place, at) if _is_over(ended, at) else None
            if last is not None:
                order[place] = (last, 1)
                ended.set_score("ended", min(ended.score, near[last].score))
        yield from (near[place] for place in sorted(range(len(near)), key=order.__getitem__))


def _last_current(near: Sequence[LoadedCandidate], place: int, at: int) -> int | None:
    """The place of the last fact after this one that is not over, and answers as well."""
    ended = near[place]
    enough = ended.score * ENDED_SCORE_SHARE
    return max(
        (
            other
            for other in range(place + 1, len(near))
            if near[other].score >= enough
            and not _is_over(near[other], at)
            and _about(near[other]) == _about(ended)
        ),
        default=None,
    )


def _is_over(read: LoadedCandidate, at: int) -> bool:
    """Whether this is a memory with a subject that was over at a time."""
    return isinstance(read.item, Memory) and read.item.has_ended(at) and _about(read) is not None


def _about(read: LoadedCandidate) -> tuple[str, str] | None:
    item = read.item
    if not isinstance(item, Memory) or item.subject is None:
        return None
    return item.category, item.subject.casefold()


def _load_candidates(
    scored: Iterator[ScoredCandidate], batch_size: int
) -> Iterator[LoadedCandidate]:
    """Read candidates as they are needed, in batches; damaged ones are left out."""
    while part := list(islice(scored, batch_size)):
        for each, read in zip(part, _load_batch(part), strict=True):
            if read is not None:
                yield LoadedCandidate(each, *read, each.score, dict(each.parts))


def _load_batch(part: Sequence[ScoredCandidate]) -> list[tuple[Memory | Event, str] | None]:
    """Read candidates with one call for each view, in the order given."""
    loaded: dict[int, tuple[Memory | Event, str] | None] = {}
    for view in {id(each.view): each.view for each in part}.values():
        of_view = [(at, each) for at, each in enumerate(part) if each.view is view]
        read = view.read([(each.candidate, each.passage) for _, each in of_view])
        loaded.update(zip((at for at, _ in of_view), read, strict=True))
    return [loaded[at] for at in range(len(part))]


def _adjust_scores(
    reads: list[LoadedCandidate], ranking: Ranking, limit: int, now: int, reranked: bool
) -> list[LoadedCandidate]:
    """Apply min-max scaling, recency and diversity (MMR) to the scores, and sort by them."""
    if ranking.spread:
        relevance = [_logit(read.score) if reranked else read.score for read in reads]
        for at, score in recall_ranking.min_max(dict(enumerate(relevance)), ranking.equal).items():
            reads[at].set_score("spread", score)
    for read in reads:
        if ranking.recency_weight:
            at = read.scored.candidate.at
            recency = recall_ranking.recency(at, now, ranking.half_life_days)
            read.parts["recency"] = round(recency, recall_ranking.SCORE_DECIMALS)
            read.score = recall_ranking.apply_recency(read.score, at, now, ranking)
        read.score = round(read.score, recall_ranking.SCORE_DECIMALS)
    reads.sort(key=lambda read: (-read.score, -read.scored.candidate.first_position))
    if ranking.mmr_lambda is None or not reads:
        return reads
    return [reads[place] for place in _mmr_order(reads, ranking.mmr_lambda, limit)]


def _logit(score: float) -> float:
    within = min(max(score, 1e-12), 1 - 1e-12)
    return log(within / (1 - within))


def _mmr_order(reads: Sequence[LoadedCandidate], weight: float, limit: int) -> list[int]:
    rows = [read.scored.view.vectors(np.array([read.scored.passage]))[0] for read in reads]
    width = max((len(row) for row in rows), default=0)
    vectors = np.array([row if len(row) else np.zeros(width) for row in rows], np.float64)
    return recall_ranking.mmr_order([read.score for read in reads], vectors, weight, limit)


def _collapse_duplicates(reads: Iterator[LoadedCandidate]) -> Iterator[LoadedCandidate]:
    """Yield candidates without near-duplicates; the first of them absorbs the others.

    Only a text of one passage can be a duplicate: one passage is not all that a longer text says.
    """
    seen_texts = DuplicateFilter()
    for read in reads:
        first = seen_texts.find_or_add(read) if read.scored.candidate.passages == 1 else None
        if first is None:
            yield read
        else:
            first.absorb(read)


class DuplicateFilter:
    """Finds near-duplicates among the candidates it was given.

    Events are duplicates only of the same speaker, in any session; memories only of the same
    subject; a memory can be a duplicate of any event.
    """

    def __init__(self) -> None:
        self._reads: list[LoadedCandidate] = []
        self._texts = near_duplicates.NearDuplicateIndex(DUPLICATE_SHARE)

    def find_or_add(self, read: LoadedCandidate) -> LoadedCandidate | None:
        """The first candidate that this one duplicates; without one, add it and return None."""
        place = self._texts.find(read.text, near_duplicates.comparable_groups(read.item))
        if place is not None:
            return self._reads[place]
        self._texts.add(read.text, near_duplicates.duplicate_groups(read.item))
        self._reads.append(read)
        return None


def build_hit(read: LoadedCandidate, explain: bool, degraded: str | None) -> Hit:
    """The public ``Hit``; with ``explain`` it has the parts of its score and what was missing."""
    parts = read.parts if explain else {}
    if explain and degraded is not None:
        parts["degraded"] = degraded
    thing, found = read.item, (read.id, read.text, read.score)
    if isinstance(thing, Event):
        return Hit("event", *found, None, thing, parts, read.duplicates)
    return Hit(thing.kind, *found, thing, None, parts, read.duplicates)
