"""Index queries of recall: the postings of terms, and the candidates that passages lead to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from reverie.engine.index import Filter
from reverie.model import POSTING_LENGTH_BASE, Candidate, Origin
from reverie.protocols import Owner, Row, Transaction

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
# Lists of values are padded to one of these lengths, so that few statements are prepared.
CHUNKS = (8, 32, 64, 128, 512)
# The value to pad with: no passage and no position has this number.
PADDING = -1


def postings(
    tx: Transaction, owner: Owner, terms: Collection[str], chosen: Filter | None
) -> dict[str, NDArray[np.int64]]:
    """The postings of each term, each as passage * ``POSTING_LENGTH_BASE`` + length.

    With a filter, only those of passages whose memory or event passes it.
    """
    if not terms:
        return {}
    join, condition = "", ""
    values: list[object] = [*terms, *owner]
    if chosen is not None:
        where, filter_values = chosen.where(owner)
        events_where, event_values = chosen.events_where(owner)
        join = (
            "JOIN passages s ON s.space = p.space AND s.owner = p.owner AND s.passage = p.passage "
        )
        condition = (
            f" AND (EXISTS (SELECT 1 FROM memories m WHERE {where} AND m.born = s.born) "
            f"OR EXISTS (SELECT 1 FROM events e WHERE {events_where} AND e.position = s.born))"
        )
        values += filter_values + event_values
    rows = tx.all(
        f"WITH q (term) AS (VALUES {', '.join(['(?)'] * len(terms))}) "
        "SELECT q.term, (SELECT "
        f"STRING_AGG(CAST(p.passage * {POSTING_LENGTH_BASE} + p.len AS TEXT), ',') "
        f"FROM postings p {join}"
        f"WHERE p.space = ? AND p.owner = ? AND p.term = q.term{condition}) FROM q",
        values,
    )
    return {
        term: np.fromstring(listed, dtype=np.int64, sep=",")
        for term, listed in rows
        if listed is not None
    }


def frequencies_in(
    tx: Transaction, owner: Owner, terms: Sequence[str], passages: Sequence[int]
) -> dict[str, int]:
    """The number of these passages that contain each term."""
    counts = dict.fromkeys(terms, 0)
    for part in _chunks(passages, PADDING) if terms else ():
        for term, count in tx.all(
            "SELECT term, COUNT(*) FROM postings WHERE space = ? AND owner = ? "
            f"AND term IN ({_placeholders(terms)}) "
            f"AND passage IN ({_placeholders(part)}) GROUP BY term",
            (*owner, *terms, *part),
        ):
            counts[term] += count
    return counts


def hidden_passages(tx: Transaction, owner: Owner, chosen: Filter, end: int) -> list[int]:
    """The passages of memories that are private to sessions the filter does not include."""
    if chosen.sessions is None:
        return []
    visible = chosen.sessions if chosen.sessions_owner in {None, owner} else ()
    condition = f" AND session NOT IN ({_placeholders(visible)})" if visible else ""
    rows = tx.all(
        "SELECT first_passage, passages FROM memories WHERE space = ? AND owner = ? "
        f"AND session IS NOT NULL AND forgotten_at IS NULL{condition}",
        (*owner, *visible),
    )
    return _expand_passages(rows, end)


def allowed_passages(tx: Transaction, owner: Owner, chosen: Filter, end: int) -> list[int]:
    """The passages of the memories and events that pass a filter."""
    where, values = chosen.where(owner)
    rows = tx.all(f"SELECT m.first_passage, m.passages FROM memories m WHERE {where}", values)
    if chosen.includes_events:
        where, values = chosen.events_where(owner)
        rows += tx.all(f"SELECT e.first_passage, e.passages FROM events e WHERE {where}", values)
    return _expand_passages(rows, end)


def _expand_passages(rows: Iterable[Row], end: int) -> list[int]:
    """The passage numbers of rows of (first, count), limited to [0, ``end``)."""
    return [
        number for first, count in rows for number in range(max(first, 0), min(first + count, end))
    ]


# -- candidates of passages -----------------------------------------------------------------------


class PassageSource(NamedTuple):
    """The memory or event of a passage, by first position and number of terms, and the place of the
    passage in its text."""

    first_position: int
    terms: int
    start: int
    length: int


def passage_sources(
    tx: Transaction, owner: Owner, passages: Iterable[int]
) -> dict[int, PassageSource]:
    """The text that each of these passages belongs to."""
    return {
        passage: PassageSource(*values)
        for part in _chunks(passages, PADDING)
        for passage, *values in tx.all(
            "SELECT passage, born, terms, start, length FROM passages "
            f"WHERE space = ? AND owner = ? AND passage IN ({_placeholders(part)})",
            (*owner, *part),
        )
    }


def memory_candidates(
    tx: Transaction, owner: Owner, sources: Iterable[PassageSource], now: int
) -> list[Candidate]:
    """The memories of these texts that are not expired."""
    lengths = {source.first_position: source.terms for source in sources}
    candidates: dict[int, Candidate] = {}
    for part in _chunks(lengths, PADDING):
        # Ordered by version: the newest version that names an event is assigned last.
        for first_position, position, at, first, passages, session, sequence, *more in tx.all(
            "SELECT m.born, m.position, m.at, m.first_passage, m.passages, "
            "o.origin_session, o.origin_sequence, m.memory, m.version, "
            "m.valid_from, m.valid_to FROM memories m "
            "LEFT JOIN log o ON o.space = m.space AND o.memory = m.memory "
            "AND o.origin_session IS NOT NULL AND o.origin_sequence > 0 "
            "WHERE m.space = ? AND m.owner = ? "
            f"AND m.born IN ({_placeholders(part)}) AND (m.expires_at IS NULL OR m.expires_at > ?) "
            "ORDER BY o.version",
            (*owner, *part, now),
        ):
            origin = None if session is None else Origin(session, sequence)
            place = (first_position, position, at, first, passages, lengths[first_position])
            named = dict(zip(("memory", "version", "valid_from", "valid_to"), more, strict=True))
            candidates[first_position] = Candidate(*place, origin=origin, **named)
    return list(candidates.values())


_SELECT_EVENT = (
    "SELECT e.position, e.position, e.at, e.first_passage, e.passages, e.terms, e.session, "
    "e.sequence, e.role, e.speaker, e.act FROM "
)


def events_around(
    tx: Transaction, owner: Owner, reach: Mapping[int, int], chosen: Filter
) -> list[Candidate]:
    """The events at these positions, and those around each, within its reach in the session.

    ``reach`` maps the position of an event to the number of events before and after it.
    """
    if not chosen.includes_events:
        return []
    where, values = chosen.events_where(owner)
    candidates: dict[int, Candidate] = {}
    for part in _chunks(reach.items(), (PADDING, 0)):
        # CROSS JOIN fixes the order for SQLite's planner: the events given, then their neighbours.
        rows = tx.all(
            f"WITH q (position, reach) AS (VALUES {', '.join(['(?, ?)'] * len(part))}) "
            f"{_SELECT_EVENT}q CROSS JOIN events f CROSS JOIN events e "
            "WHERE f.space = ? AND f.owner = ? AND f.position = q.position "
            "AND e.space = f.space AND e.owner = f.owner AND e.session = f.session "
            "AND e.sequence BETWEEN f.sequence - q.reach AND f.sequence + q.reach "
            f"AND e.passages > 0 AND {where}",
            (*(value for pair in part for value in pair), *owner, *values),
        )
        candidates.update((row[0], Candidate(*row)) for row in rows)
    return list(candidates.values())


def origin_events(
    tx: Transaction, owner: Owner, origins: Iterable[Origin], chosen: Filter
) -> list[Candidate]:
    """The events that these origins name."""
    if not chosen.includes_events:
        return []
    where, values = chosen.events_where(owner)
    rows: list[Row] = []
    for origin in origins:
        rows += tx.all(
            f"{_SELECT_EVENT}events e "
            f"WHERE {where} AND e.session = ? AND e.sequence = ? AND e.passages > 0",
            (*values, *origin),
        )
    return [Candidate(*row) for row in rows]


def _chunks(values: Iterable[T], nothing: T) -> Iterator[list[T]]:
    """Split values into lists padded with ``nothing`` to one of the lengths in ``CHUNKS``."""
    whole = list(values)
    for at in range(0, len(whole), CHUNKS[-1]):
        part = whole[at : at + CHUNKS[-1]]
        yield part + [nothing] * (next(size for size in CHUNKS if size >= len(part)) - len(part))


def _placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
