"""Where rows of the index lead: believed only as far as the log agrees.

The index is a view of the log, and its rows have no seals. A row that leads to another entry than
its own would show one memory in the place of another: it is left out and counted, or, where it was
asked for, ``StoreDamaged`` says that ``reverie rebuild`` mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reverie.engine import index, log, log_rows
from reverie.engine.index import MemoryRow
from reverie.engine.log import LogEntry
from reverie.engine.sessions import EventRow
from reverie.errors import StoreDamaged
from reverie.protocols import Owner, Transaction


def index_damage_error(tx: Transaction, owner: Owner, what: str) -> StoreDamaged:
    """What to raise or count for a row of the index that does not fit the log."""
    return StoreDamaged(
        f"the index of space {log_rows.space_name(tx, owner.space)} is damaged at {what}: run "
        "'reverie verify' to see all damage, and 'reverie rebuild' to make the index anew",
        space=owner.space,
    )


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
    """The entry of a memory as it is now, or StoreDamaged. ``memory`` is the id asked for."""
    entry = log.find_at_position(tx, owner, place.position)
    if entry is None or not is_version_entry(entry, memory or place.memory, place.version):
        raise index_damage_error(tx, owner, f"memory {memory or place.memory!s:.40}")
    return entry


def read_versions(tx: Transaction, owner: Owner, memory: str) -> list[LogEntry]:
    """Every version of a memory up to the one that the index has for current."""
    entries = log.versions(tx, owner, memory)
    place = index.find(tx, owner, memory) if entries else None
    if place is not None and place.version != entries[-1].version:
        raise index_damage_error(tx, owner, f"memory {memory}")
    return entries


def read_current_entries(
    tx: Transaction, owner: Owner, places: Sequence[MemoryRow]
) -> list[tuple[MemoryRow, LogEntry]]:
    """The same for many, but for those that are damaged."""
    found = log.find_at_positions(tx, owner, [place.position for place in places])
    agreed = []
    for place in places:
        entry = found.get(place.position)
        if entry is not None and is_version_entry(entry, place.memory, place.version):
            agreed.append((place, entry))
        elif entry is not None:
            log_rows.record_damage(
                tx, index_damage_error(tx, owner, f"memory {place.memory!s:.40}")
            )
    return agreed


def read_event_entries(tx: Transaction, owner: Owner, spots: Iterable[EventRow]) -> list[LogEntry]:
    """The entries of these events, but for those that are damaged."""
    spots = list(spots)
    found = log.find_at_positions(tx, owner, [spot.position for spot in spots])
    return [
        entry
        for spot in spots
        if (
            entry := check_event_entry(tx, owner, found, spot.position, spot.session, spot.sequence)
        )
    ]


def check_event_entry(
    tx: Transaction,
    owner: Owner,
    found: Mapping[int, LogEntry],
    position: int,
    session: str | None,
    sequence: int,
) -> LogEntry | None:
    """The entry of an event, if it is the one that the index names."""
    entry = found.get(position)
    if entry is None:
        return None
    named = (entry.op, entry.session, entry.sequence) == ("append", session, sequence)
    if named and entry.body is not None:
        return entry
    log_rows.record_damage(tx, index_damage_error(tx, owner, f"event {session!s:.40}:{sequence}"))
    return None
