"""Reads the log entries that rows of the index point to, and detects rows that point wrongly.

The index is a view of the log, and its rows have no seals. A damaged row could point to another
entry and show one memory in the place of another. Such a row is left out of lists and counted; a
caller that asked for this one entry gets ``StoreDamaged``, which says to run ``reverie rebuild``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reverie.engine import index, log, log_rows, sessions
from reverie.engine.index import MemoryRow
from reverie.engine.log import LogEntry
from reverie.engine.sessions import EventRow
from reverie.errors import StoreDamaged
from reverie.model import Event, Origin
from reverie.protocols import Owner, Transaction


def index_damage_error(tx: Transaction, owner: Owner, what: str) -> StoreDamaged:
    """The error for a row of the index that does not fit the log."""
    return StoreDamaged(
        f"the index of space {log_rows.space_name(tx, owner.space)} is damaged at {what}: run "
        "'reverie verify' to see all damage, and 'reverie rebuild' to make the index again",
        space=owner.space,
    )


def record_index_damage(tx: Transaction, owner: Owner, what: str) -> None:
    """Count a row of the index that does not fit the log, and is left out."""
    log_rows.record_damage(tx, index_damage_error(tx, owner, what))


def is_version_entry(entry: LogEntry, memory: str, version: int) -> bool:
    """Whether an entry holds this version of a memory."""
    return (
        (entry.memory, entry.version) == (memory, version)
        and entry.body is not None
        and entry.op != "erase"
    )


def read_current(
    tx: Transaction, owner: Owner, place: MemoryRow, memory: str | None = None
) -> LogEntry:
    """The entry of a memory's current version, or StoreDamaged. ``memory`` is the id asked for."""
    entry = log.find_at_position(tx, owner, place.position)
    if entry is None or not is_version_entry(entry, memory or place.memory, place.version):
        raise index_damage_error(tx, owner, f"memory {memory or place.memory!s:.40}")
    return entry


def read_versions(tx: Transaction, owner: Owner, memory: str) -> list[LogEntry]:
    """Every version of a memory; the last one must be the current one of the index."""
    entries = log.versions(tx, owner, memory)
    place = index.find(tx, owner, memory) if entries else None
    if place is not None and place.version != entries[-1].version:
        raise index_damage_error(tx, owner, f"memory {memory}")
    return entries


def read_current_entries(
    tx: Transaction, owner: Owner, places: Sequence[MemoryRow]
) -> list[tuple[MemoryRow, LogEntry]]:
    """The entries of the current versions of many memories; damaged ones are left out."""
    entries = log.find_at_positions(tx, owner, [place.position for place in places])
    undamaged = []
    for place in places:
        entry = entries.get(place.position)
        if entry is not None and is_version_entry(entry, place.memory, place.version):
            undamaged.append((place, entry))
        elif entry is not None:
            record_index_damage(tx, owner, f"memory {place.memory!s:.40}")
    return undamaged


def read_event_entries(tx: Transaction, owner: Owner, rows: Iterable[EventRow]) -> list[LogEntry]:
    """The entries of these events; damaged ones are left out."""
    rows = list(rows)
    entries = log.find_at_positions(tx, owner, [row.position for row in rows])
    checked = (check_event_entry(tx, owner, entries, *row[:3]) for row in rows)
    return [entry for entry in checked if entry is not None]


def read_surrounding_events(
    tx: Transaction, owner: Owner, user: str | None, event: Event, before: int, after: int
) -> list[Event]:
    """An event with the ``before`` events before it and the ``after`` events after it."""
    origin = Origin(event.session, event.sequence)
    rows = sessions.list_surrounding_events(tx, owner, origin, before, after)
    return [sessions.event_from_entry(entry, user) for entry in read_event_entries(tx, owner, rows)]


def check_event_entry(
    tx: Transaction,
    owner: Owner,
    found: Mapping[int, LogEntry],
    position: int,
    session: str | None,
    sequence: int,
) -> LogEntry | None:
    """The entry at ``position`` in ``found`` if it is this event; otherwise record the damage."""
    entry = found.get(position)
    if entry is None:
        return None
    is_same_event = (entry.op, entry.session, entry.sequence) == ("append", session, sequence)
    if is_same_event and entry.body is not None:
        return entry
    record_index_damage(tx, owner, f"event {session!s:.40}:{sequence}")
    return None
