"""What a recall looks at: the index as it is, or all that was known at an earlier moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from reverie.engine import (
    index,
    index_check,
    log,
    log_rows,
    search,
    sessions,
    vector_math,
)
from reverie.engine.index import Filter
from reverie.engine.log import Entry
from reverie.errors import DimensionMismatchError
from reverie.model import LENGTHS, Candidate, Event, Memory, Origin
from reverie.protocols import Owner, Transaction
from reverie.recall import ranking
from reverie.text.messages import speaker_of
from reverie.text.passages import split
from reverie.write.embeddings import Generation
from reverie.write.runtime import Resources

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Numbers, Vector


class Known(NamedTuple):
    """What was known at a moment: where it was born, and the event it came from.

    What another session keeps to itself is not shown; only the middle of the vectors knows it.
    """

    born: int
    thing: Memory | Event
    origin: Origin | None = None
    shown: bool = True


class View(Protocol):
    """The passages of one owner, as far as a filter shows them. Statistics are of all of them."""

    user: str | None
    passages: int
    end: int
    narrowed: bool
    """Whether the filter leaves out any of them."""

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """In how many passages each term stands."""
        ...

    def postings(self, terms: Collection[str]) -> dict[str, Numbers]:
        """The passages of each term, as ``LENGTHS`` has it."""
        ...

    def nearest(self, vector: Vector, many: int) -> list[tuple[int, float]]:
        """The passages most like a query, best first."""
        ...

    def similar(self, vector: Vector, numbers: Numbers) -> NDArray[np.float64]:
        """How like a query these passages are; -inf for one without a vector."""
        ...

    def vectors(self, numbers: Numbers) -> Matrix: ...

    def candidates(
        self, numbers: Iterable[int], around: Iterable[int] | None = None
    ) -> list[Candidate]:
        """What passages lead to; with ``around``, also the events that stand around those or gave
        rise to a memory.
        """
        ...

    def read(
        self, wanted: Sequence[tuple[Candidate, int]]
    ) -> list[tuple[Memory | Event, str] | None]:
        """Memories and events, and the text of one passage of each; None for what is damaged."""
        ...


class IndexView:
    """The index, in one transaction."""

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
        index.require_possible(tx, owner, statistics)
        # Few memories are a session's own: left out by name, they cost the others nothing.
        end = statistics.next_passage
        self._hidden = search.hidden_passages(tx, owner, chosen, end) if statistics.private else []
        self.passages = statistics.passages - len(self._hidden)
        self.end = statistics.next_passage
        self._remembers = statistics.facts + statistics.notes > 0
        self.narrowed = chosen.narrows
        self._generation = generation
        self._births: dict[int, search.Birth] = {}

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        known = index.frequencies(self._tx, self._owner, terms)
        if not self._hidden:
            return known
        hidden = search.frequencies_in(self._tx, self._owner, list(known), self._hidden)
        return {term: count - hidden.get(term, 0) for term, count in known.items()}

    def postings(self, terms: Collection[str]) -> dict[str, Numbers]:
        chosen = self._chosen if self.narrowed else None
        found = search.postings(self._tx, self._owner, terms, chosen)
        if self._hidden and not self.narrowed:
            shown = np.ones(self.end, bool)
            shown[self._hidden] = False
            found = {t: listed[shown[listed // LENGTHS]] for t, listed in found.items()}
        return found

    def nearest(self, vector: Vector, many: int) -> list[tuple[int, float]]:
        current = self._generation
        if current is None:
            return []
        if current.dimensions not in {None, len(vector)}:
            raise DimensionMismatchError(current.dimensions or 0, len(vector))
        if not vector.any():
            return []
        among = None
        if self.narrowed:
            among = search.allowed_passages(self._tx, self._owner, self._chosen, self.end)
        return self._tx.nearest(self._owner, current.number, vector, many, among, self._hidden)

    def similar(self, vector: Vector, numbers: Numbers) -> NDArray[np.float64]:
        if self._generation is None or not vector.any():
            return np.full(len(numbers), -np.inf)
        return self._tx.similar(self._owner, self._generation.number, vector, numbers)

    def vectors(self, numbers: Numbers) -> Matrix:
        if self._generation is None:
            return np.zeros((len(numbers), 0), np.float32)
        return self._tx.vectors(self._owner, self._generation.number, numbers)

    def candidates(
        self, numbers: Iterable[int], around: Iterable[int] | None = None
    ) -> list[Candidate]:
        tx, owner, chosen = self._tx, self._owner, self._chosen
        births = search.births(tx, owner, numbers)
        self._births |= births
        memories = []
        if self._remembers:
            memories = search.memories(tx, owner, births.values(), self._now)
        # Other threads may have read newer vectors than this transaction can see.
        central = {births[number].at for number in around or () if number in births}
        elsewhere = {birth.at for birth in births.values()} - {each.born for each in memories}
        reach = {born: ranking.REACH if born in central else 0 for born in elsewhere}
        events = search.events_around(tx, owner, reach, chosen)
        origins = {memory.origin for memory in memories if memory.origin is not None}
        if around is not None and origins:
            known = {event.born for event in events}
            lenders = search.events_of(tx, owner, origins, chosen)
            events += [event for event in lenders if event.born not in known]
        return [each for each in memories + events if self._is_possible(each)]

    def _is_possible(self, candidate: Candidate) -> bool:
        """Whether a candidate has passages that there can be."""
        if 0 <= candidate.first_passage <= candidate.first_passage + candidate.passages <= self.end:
            return True
        what = f"position {candidate.position}"
        log_rows.note(self._tx, index_check.index_damage(self._tx, self._owner, what))
        return False

    def read(
        self, wanted: Sequence[tuple[Candidate, int]]
    ) -> list[tuple[Memory | Event, str] | None]:
        births = self._births
        others = [passage for _, passage in wanted if passage not in births]
        if others:
            births = births | search.births(self._tx, self._owner, others)
        positions = [candidate.position for candidate, _ in wanted]
        entries = log.at_positions(self._tx, self._owner, positions)
        return [
            self._agreed(candidate, births.get(passage), entries) for candidate, passage in wanted
        ]

    def _agreed(
        self, candidate: Candidate, birth: search.Birth | None, entries: Mapping[int, Entry]
    ) -> tuple[Memory | Event, str] | None:
        """What a candidate is, if the log agrees with the index that it is."""
        tx, owner = self._tx, self._owner
        if candidate.session is not None:
            place = (candidate.position, candidate.session, candidate.sequence)
            entry = index_check.event_at(tx, owner, entries, *place)
        else:
            entry = entries.get(candidate.position)
            if entry is None or not index_check.is_state(
                entry, candidate.memory, candidate.version
            ):
                entry = None
        if entry is None:
            if candidate.position in entries:
                log_rows.note(
                    tx, index_check.index_damage(tx, owner, f"position {candidate.position}")
                )
            return None
        thing = known_from(entry, self.user)
        text = text_of(thing)
        if birth is not None and birth.at == candidate.born and _admitted(self._chosen, thing):
            _, _, start, length = birth
            if (start, start + length) in split(text):
                return thing, text[start : start + length]
        log_rows.note(tx, index_check.index_damage(tx, owner, f"position {candidate.position}"))
        return None


class MomentView:
    """All that an owner knew at a moment: nothing of it is indexed, so all of it is looked at."""

    def __init__(
        self, resources: Resources, user: str | None, known: Sequence[Known], chosen: Filter
    ) -> None:
        self.user = user
        self._resources = resources
        self._parts: list[index.Passage] = []
        self._things: dict[int, Memory | Event] = {}
        self._of: list[int] = []
        self._candidates: dict[int, Candidate] = {}
        self._seen: list[int] = []
        self._shown: list[int] = []
        for each in known:
            self._add(each, chosen)
        self._events = {
            (candidate.session, candidate.sequence): candidate
            for candidate in self._candidates.values()
            if candidate.session is not None
        }
        self.end = len(self._parts)
        self.passages = len(self._seen)
        self.narrowed = len(self._shown) < self.passages
        self._rows: Matrix | None = None

    def _add(self, known: Known, chosen: Filter) -> None:
        parts = _parts(known.thing)
        numbers = range(len(self._parts), len(self._parts) + len(parts))
        self._parts += parts
        self._of += [known.born] * len(parts)
        self._things[known.born] = known.thing
        if known.shown:
            self._seen += numbers
        if known.shown and parts and _admitted(chosen, known.thing):
            self._shown += numbers
            self._candidates[known.born] = _candidate(known, numbers[0], parts)

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        seen = [self._parts[number].terms for number in self._seen]
        return {term: sum(term in held for held in seen) for term in terms}

    def postings(self, terms: Collection[str]) -> dict[str, Numbers]:
        return {
            term: np.array(
                [
                    number * LENGTHS + self._parts[number].length
                    for number in self._shown
                    if term in self._parts[number].terms
                ],
                np.int64,
            )
            for term in terms
        }

    def nearest(self, vector: Vector, many: int) -> list[tuple[int, float]]:
        numbers = np.array(self._shown, np.int64)
        scores = self.similar(vector, numbers)
        return vector_math.best(scores, many, numbers)

    def similar(self, vector: Vector, numbers: Numbers) -> NDArray[np.float64]:
        rows = self._all_rows()
        if not len(rows) or not vector.any():
            return np.full(len(numbers), -np.inf)
        if rows.shape[1] != len(vector):
            raise DimensionMismatchError(rows.shape[1], len(vector))
        mean = vector_math.mean_of(rows)
        return vector_math.exact(rows[numbers], mean, vector)

    def vectors(self, numbers: Numbers) -> Matrix:
        return self._all_rows()[numbers]

    def _all_rows(self) -> Matrix:
        if self._rows is None:
            embedder = self._resources.embedder
            texts = [part.text for part in self._parts]
            empty = np.zeros((len(texts), 0), np.float32)
            blind = embedder is None or embedder.remote or not texts
            self._rows = empty if blind or embedder is None else embedder.embed(texts)
        return self._rows

    def candidates(
        self, numbers: Iterable[int], around: Iterable[int] | None = None
    ) -> list[Candidate]:
        found = {born: self._candidates[born] for born in {self._of[at] for at in numbers}}
        if around is None:
            return list(found.values())
        central = {self._of[number] for number in around}
        for candidate in list(found.values()):
            places: list[tuple[str | None, int]] = []
            if candidate.origin is not None:
                places.append((candidate.origin.session, candidate.origin.sequence))
            if candidate.born in central and candidate.session is not None:
                near = range(
                    candidate.sequence - ranking.REACH, candidate.sequence + ranking.REACH + 1
                )
                places += [(candidate.session, sequence) for sequence in near]
            for place in places:
                if place in self._events:
                    found[self._events[place].born] = self._events[place]
        return list(found.values())

    def read(
        self, wanted: Sequence[tuple[Candidate, int]]
    ) -> list[tuple[Memory | Event, str] | None]:
        return [
            (self._things[candidate.born], self._parts[passage].text)
            for candidate, passage in wanted
        ]


def _candidate(known: Known, first: int, parts: Sequence[index.Passage]) -> Candidate:
    thing = known.thing
    if isinstance(thing, Memory):
        at = thing.created_at if thing.happened_at is None else thing.happened_at
        return Candidate(
            known.born, known.born, at, first, len(parts), parts[0].length, origin=known.origin
        )
    return Candidate(
        known.born,
        known.born,
        thing.at,
        first,
        len(parts),
        parts[0].length,
        thing.session,
        thing.sequence,
        thing.role,
        speaker_of(thing.message),
    )


def known_from(entry: log.Entry, user: str | None) -> Memory | Event:
    """What an entry stands for: an event, or the state of a memory."""
    return sessions.event_of(entry, user) if entry.op == "append" else entry.state(user)


def text_of(thing: Memory | Event) -> str:
    return thing.content if isinstance(thing, Memory) else thing.text


def _admitted(chosen: Filter, thing: Memory | Event) -> bool:
    return chosen.admits(thing) if isinstance(thing, Memory) else chosen.admits_event(thing)


def _parts(thing: Memory | Event) -> list[index.Passage]:
    if isinstance(thing, Event):
        return sessions.passages_of_event(thing)
    return index.passages_of(thing.content)
