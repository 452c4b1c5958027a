"""The two sources of a recall: the current index, or all items as of an earlier position."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from reverie.engine import index, index_check, log, search, sessions, vector_math
from reverie.engine.index import Filter
from reverie.engine.index_text import Labels, Passage, memory_passages
from reverie.engine.log import LogEntry
from reverie.errors import DimensionMismatchError
from reverie.model import POSTING_LENGTH_BASE, Candidate, Event, Memory, Origin
from reverie.protocols import Owner, Transaction
from reverie.recall import ranking
from reverie.recall.as_of import (
    AsOfItem,
    HeldText,
    held_texts,
    item_from_entry,
    item_text,
    with_current_scope,
)
from reverie.recall.query_hints import Period
from reverie.text.messages import speaker_of
from reverie.text.passages import split
from reverie.write.embeddings import Generation
from reverie.write.runtime import Runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Numbers, Vector


class View(Protocol):
    """The passages of one owner that pass a filter. Statistics are of all its passages."""

    user: str | None
    passages: int
    end: int
    is_filtered: bool
    """Whether the filter excludes any of them."""

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """The number of passages that contain each term."""
        ...

    def postings(self, terms: Collection[str]) -> dict[str, Numbers]:
        """The postings of each term: passage * ``POSTING_LENGTH_BASE`` + length of the text."""
        ...

    def nearest(self, vector: Vector, many: int, centred: bool) -> list[tuple[int, float]]:
        """The passages most similar to a vector, best first.

        ``centred``: the mean vector of the owner is subtracted before the cosine is computed.
        """
        ...

    def similar(self, vector: Vector, numbers: Numbers, centred: bool) -> NDArray[np.float64]:
        """The similarity of these passages to a vector; -inf for one without a vector."""
        ...

    def vectors(self, numbers: Numbers) -> Matrix:
        """The vectors of these passages, a row of zeros for one that has none."""
        ...

    def candidates(
        self,
        numbers: Iterable[int],
        around: Iterable[int] | None = None,
        origins: Iterable[Origin] = (),
    ) -> list[Candidate]:
        """The memories and events of these passages.

        With ``around``, also the events near the events of those passages, the events that the
        memories came from, and those of ``origins``.
        """
        ...

    def match_period(self, period: Period, candidates: Sequence[Candidate]) -> list[bool]:
        """Whether each candidate is of a period that the query names.

        A memory with another text then matches as well, and ``read`` returns it as it was then.
        """
        ...

    def read(
        self, wanted: Sequence[tuple[Candidate, int]]
    ) -> list[tuple[Memory | Event, str] | None]:
        """Read candidates: each memory or event with the text of a passage; None if damaged."""
        ...


class IndexView:
    """A view of the current index, in one transaction (methods: see ``View``)."""

    def __init__(
        self,
        tx: Transaction,
        owner: Owner,
        user: str | None,
        chosen: Filter,
        generation: Generation | None,
        now: int,
    ) -> None:
        self.user = user
        self._now = now
        self._tx = tx
        self._owner = owner
        self._chosen = chosen
        statistics = index.statistics(tx, owner)
        index.check_statistics(tx, owner, statistics)
        # Few memories are private to a session: their passages are excluded by number.
        end = statistics.next_passage
        self._hidden = search.hidden_passages(tx, owner, chosen, end) if statistics.private else []
        self.passages = statistics.passages - len(self._hidden)
        self.end = statistics.next_passage
        self._has_memories = statistics.facts + statistics.notes > 0
        self.is_filtered = chosen.has_conditions
        self._generation = generation
        self._births: dict[int, search.PassageSource] = {}
        self._held: dict[str, HeldText] = {}

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        counts = index.frequencies(self._tx, self._owner, terms)
        if not self._hidden:
            return counts
        hidden = search.frequencies_in(self._tx, self._owner, list(counts), self._hidden)
        return {term: count - hidden.get(term, 0) for term, count in counts.items()}

    def postings(self, terms: Collection[str]) -> dict[str, Numbers]:
        chosen = self._chosen if self.is_filtered else None
        postings = search.postings(self._tx, self._owner, terms, chosen)
        if self._hidden and not self.is_filtered:
            visible = np.ones(self.end, bool)
            visible[self._hidden] = False
            postings = {
                t: listed[visible[listed // POSTING_LENGTH_BASE]] for t, listed in postings.items()
            }
        return postings

    def nearest(self, vector: Vector, many: int, centred: bool) -> list[tuple[int, float]]:
        current = self._generation
        if current is None:
            return []
        if current.dimensions not in {None, len(vector)}:
            raise DimensionMismatchError(current.dimensions or 0, len(vector))
        if not vector.any():
            return []
        allowed = None
        if self.is_filtered:
            allowed = search.allowed_passages(self._tx, self._owner, self._chosen, self.end)
        return self._tx.nearest(
            self._owner, current.number, vector, many, allowed, self._hidden, centred
        )

    def similar(self, vector: Vector, numbers: Numbers, centred: bool) -> NDArray[np.float64]:
        if self._generation is None or not vector.any():
            return np.full(len(numbers), -np.inf)
        return self._tx.similar(self._owner, self._generation.number, vector, numbers, centred)

    def vectors(self, numbers: Numbers) -> Matrix:
        if self._generation is None:
            return np.zeros((len(numbers), 0), np.float32)
        return self._tx.vectors(self._owner, self._generation.number, numbers)

    def candidates(
        self,
        numbers: Iterable[int],
        around: Iterable[int] | None = None,
        origins: Iterable[Origin] = (),
    ) -> list[Candidate]:
        tx, owner, chosen = self._tx, self._owner, self._chosen
        sources = search.passage_sources(tx, owner, numbers)
        self._births |= sources
        memories = []
        if self._has_memories:
            memories = search.memory_candidates(tx, owner, sources.values(), self._now)
        # The vector cache may have newer passages than this transaction can see.
        central = {sources[number].first_position for number in around or () if number in sources}
        event_positions = {source.first_position for source in sources.values()} - {
            each.first_position for each in memories
        }
        reach = {
            first_position: ranking.NEIGHBOR_DISTANCE if first_position in central else 0
            for first_position in event_positions
        }
        events = search.events_around(tx, owner, reach, chosen)
        own = {memory.origin for memory in memories if memory.origin is not None}
        if around is not None and own.union(origins):
            read_already = {event.first_position for event in events}
            origin_events = search.origin_events(tx, owner, own.union(origins), chosen)
            events += [event for event in origin_events if event.first_position not in read_already]
        return [each for each in memories + events if self._has_valid_passages(each)]

    def _has_valid_passages(self, candidate: Candidate) -> bool:
        """Whether a candidate's passage numbers are possible; if not, record the damage."""
        if 0 <= candidate.first_passage <= candidate.first_passage + candidate.passages <= self.end:
            return True
        self._record_damage(candidate)
        return False

    def _record_damage(self, candidate: Candidate) -> None:
        what = f"position {candidate.position}"
        index_check.record_index_damage(self._tx, self._owner, what)

    def match_period(self, period: Period, candidates: Sequence[Candidate]) -> list[bool]:
        self._held |= _earlier_texts(self._tx, self._owner, period, candidates)
        return [_is_of_period(period, each) or each.memory in self._held for each in candidates]

    def read(
        self, wanted: Sequence[tuple[Candidate, int]]
    ) -> list[tuple[Memory | Event, str] | None]:
        sources = self._births
        unread = [passage for _, passage in wanted if passage not in sources]
        if unread:
            sources = sources | search.passage_sources(self._tx, self._owner, unread)
        positions = [candidate.position for candidate, _ in wanted]
        entries = log.find_at_positions(self._tx, self._owner, positions)
        return [
            self._checked_item(candidate, sources.get(passage), entries)
            for candidate, passage in wanted
        ]

    def _checked_item(
        self,
        candidate: Candidate,
        source: search.PassageSource | None,
        entries: Mapping[int, LogEntry],
    ) -> tuple[Memory | Event, str] | None:
        """The memory or event of a candidate and its passage's text, if the log confirms them."""
        tx, owner = self._tx, self._owner
        if candidate.session is not None:
            event_key = (candidate.position, candidate.session, candidate.sequence)
            entry = index_check.check_event_entry(tx, owner, entries, *event_key)
        else:
            entry = entries.get(candidate.position)
            if entry is None or not index_check.is_version_entry(
                entry, candidate.memory, candidate.version
            ):
                entry = None
        if entry is None:
            if candidate.position in entries:
                self._record_damage(candidate)
            return None
        item = item_from_entry(entry, self.user)
        text = item_text(item)
        if (
            source is not None
            and source.first_position == candidate.first_position
            and _passes_filter(self._chosen, item)
        ):
            _, _, start, length = source
            if (start, start + length) in split(text):
                return self._as_held(item) or (item, text[start : start + length])
        self._record_damage(candidate)
        return None

    def _as_held(self, item: Memory | Event) -> tuple[Memory, str] | None:
        """The memory and first passage of the text that held in the period of the query.

        None if that is the current text, or if the memory as it was then does not pass the filter.
        """
        held = self._held.get(item.id) if isinstance(item, Memory) else None
        if held is None or not isinstance(item, Memory):
            return None
        then = replace(with_current_scope(held.entry.state(self.user), item), valid_to=held.end)
        if not self._chosen.accepts(then):
            return None
        first, end = split(then.content)[0]
        return then, then.content[first:end]


class AsOfView:
    """A view of an owner's items as of an earlier position; not indexed, so all are scanned."""

    def __init__(
        self, runtime: Runtime, user: str | None, known: Sequence[AsOfItem], chosen: Filter
    ) -> None:
        self.user = user
        self._runtime = runtime
        self._parts: list[Passage] = []
        self._items: dict[int, Memory | Event] = {}
        self._passage_items: list[int] = []
        self._candidates: dict[int, Candidate] = {}
        self._visible: list[int] = []
        self._filtered: list[int] = []
        for each in known:
            self._add(each, chosen)
        self._events = {
            (candidate.session, candidate.sequence): candidate
            for candidate in self._candidates.values()
            if candidate.session is not None
        }
        self.end = len(self._parts)
        self.passages = len(self._visible)
        self.is_filtered = len(self._filtered) < self.passages
        self._rows: Matrix | None = None

    def _add(self, known: AsOfItem, chosen: Filter) -> None:
        parts = _item_passages(known.item)
        numbers = range(len(self._parts), len(self._parts) + len(parts))
        self._parts += parts
        self._passage_items += [known.first_position] * len(parts)
        self._items[known.first_position] = known.item
        if known.shown:
            self._visible += numbers
        if known.shown and parts and _passes_filter(chosen, known.item):
            self._filtered += numbers
            self._candidates[known.first_position] = _build_candidate(known, numbers[0], parts)

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        visible_terms = [self._parts[number].terms for number in self._visible]
        return {
            term: sum(term in terms_of_part for terms_of_part in visible_terms) for term in terms
        }

    def postings(self, terms: Collection[str]) -> dict[str, Numbers]:
        return {
            term: np.array(
                [
                    number * POSTING_LENGTH_BASE + self._parts[number].length
                    for number in self._filtered
                    if term in self._parts[number].terms
                ],
                np.int64,
            )
            for term in terms
        }

    def nearest(self, vector: Vector, many: int, centred: bool) -> list[tuple[int, float]]:
        numbers = np.array(self._filtered, np.int64)
        scores = self.similar(vector, numbers, centred)
        return vector_math.top_k(scores, many, numbers)

    def similar(self, vector: Vector, numbers: Numbers, centred: bool) -> NDArray[np.float64]:
        rows = self._all_rows()
        if not len(rows) or not vector.any():
            return np.full(len(numbers), -np.inf)
        if rows.shape[1] != len(vector):
            raise DimensionMismatchError(rows.shape[1], len(vector))
        mean = vector_math.mean_vector(rows) if centred else np.zeros_like(vector)
        return vector_math.exact_cosine(rows[numbers], mean, vector)

    def vectors(self, numbers: Numbers) -> Matrix:
        return self._all_rows()[numbers]

    def _all_rows(self) -> Matrix:
        if self._rows is None:
            embedder = self._runtime.embedder
            texts = [part.embedded for part in self._parts]
            empty = np.zeros((len(texts), 0), np.float32)
            unavailable = embedder is None or embedder.remote or not texts
            self._rows = empty if unavailable or embedder is None else embedder.embed(texts)
        return self._rows

    def candidates(
        self,
        numbers: Iterable[int],
        around: Iterable[int] | None = None,
        origins: Iterable[Origin] = (),
    ) -> list[Candidate]:
        candidates = {
            first_position: self._candidates[first_position]
            for first_position in {self._passage_items[at] for at in numbers}
        }
        if around is None:
            return list(candidates.values())
        central = {self._passage_items[number] for number in around}
        wanted: list[tuple[str | None, int]] = list(origins)
        for candidate in list(candidates.values()):
            event_keys: list[tuple[str | None, int]] = []
            if candidate.origin is not None:
                event_keys.append((candidate.origin.session, candidate.origin.sequence))
            if candidate.first_position in central and candidate.session is not None:
                near = range(
                    candidate.sequence - ranking.NEIGHBOR_DISTANCE,
                    candidate.sequence + ranking.NEIGHBOR_DISTANCE + 1,
                )
                event_keys += [(candidate.session, sequence) for sequence in near]
            wanted += event_keys
        for event_key in wanted:
            if event_key in self._events:
                candidates[self._events[event_key].first_position] = self._events[event_key]
        return list(candidates.values())

    def match_period(self, period: Period, candidates: Sequence[Candidate]) -> list[bool]:
        # The items are of one moment, and their other versions are not read.
        return [_is_of_period(period, candidate) for candidate in candidates]

    def read(
        self, wanted: Sequence[tuple[Candidate, int]]
    ) -> list[tuple[Memory | Event, str] | None]:
        return [
            (self._items[candidate.first_position], self._parts[passage].text)
            for candidate, passage in wanted
        ]


def _build_candidate(known: AsOfItem, first: int, parts: Sequence[Passage]) -> Candidate:
    item = known.item
    if isinstance(item, Memory):
        at = item.created_at if item.happened_at is None else item.happened_at
        return Candidate(
            known.first_position,
            known.first_position,
            at,
            first,
            len(parts),
            parts[0].length,
            origin=known.origin,
            valid_from=item.valid_from,
            valid_to=item.valid_to,
        )
    return Candidate(
        known.first_position,
        known.first_position,
        item.at,
        first,
        len(parts),
        parts[0].length,
        item.session,
        item.sequence,
        item.role,
        speaker_of(item.message),
        sessions.act_of(item.message, item.text),
    )


def _is_of_period(period: Period, candidate: Candidate) -> bool:
    return period.overlaps(candidate.valid_from, candidate.valid_to, candidate.at)


def _earlier_texts(
    tx: Transaction, owner: Owner, period: Period, candidates: Sequence[Candidate]
) -> dict[str, HeldText]:
    """The texts that memories had in a period, by id, of those that have another one now.

    Only the histories of candidates are read.
    """
    bounds = period.bounds()
    revised = [each for each in candidates if each.version > 1] if bounds is not None else []
    if bounds is None or not revised:
        return {}
    earlier: dict[str, HeldText] = {}
    histories = log.undamaged_versions(tx, owner, [each.memory for each in revised])
    for each in revised:
        versions = histories.get(each.memory, [])
        if not versions or not _may_have_changed(period, bounds[1], each, versions[-1]):
            continue
        texts = held_texts(versions)
        then = next((held for held in reversed(texts) if held.overlaps(*bounds)), None)
        if then is not None and then is not texts[-1]:
            earlier[each.memory] = then
    return earlier


def _may_have_changed(period: Period, end: int, candidate: Candidate, last: LogEntry) -> bool:
    """Whether an earlier text of a memory may be what held in a period that ends at ``end``.

    Where nobody stated the times, a later revision may as well be a correction: then the memory
    must have existed in the period, and tell neither of that year nor of an event.
    """
    if candidate.valid_from is not None or candidate.valid_to is not None:
        return True
    body = last.body or {}
    tells_of_it = body.get("happened_at") is not None or str(period.year) in body.get("content", "")
    return candidate.at < end and not tells_of_it


def _passes_filter(chosen: Filter, item: Memory | Event) -> bool:
    return chosen.accepts(item) if isinstance(item, Memory) else chosen.accepts_event(item)


def _item_passages(item: Memory | Event) -> list[Passage]:
    if isinstance(item, Event):
        return sessions.passages_of_event(item)
    return memory_passages(item.content, Labels.of(item))
