"""Where rows of the index lead: believed only as far as the log agrees.

The index is a view of the log, and its rows have no seals. A row that leads to another entry than
its own would show one memory in the place of another: it is left out and counted, or, where it was
asked for, ``StoreDamaged`` says that ``reverie rebuild`` mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reverie.engine import index, log, log_rows
from reverie.engine.index import Place
from reverie.engine.log import Entry
from reverie.engine.sessions import Spot
from reverie.errors import StoreDamaged
from reverie.protocols import Owner, Transaction


def index_damage(tx: Transaction, owner: Owner, what: str) -> StoreDamaged:
    """What to raise or count for a row of the index that does not fit the log."""
    return StoreDamaged(
        f"the index of space {log_rows.space_name(tx, owner.space)} is damaged at {what}: run "
        "'reverie verify' to see all damage, and 'reverie rebuild' to make the index anew",
        space=owner.space,
    )


def is_state(entry: Entry, memory: str, version: int) -> bool:
    """Whether an entry holds this version of a memory."""
    return (
        (entry.memory, entry.version) == (memory, version)
        and entry.body is not None
        and entry.op != "erase"
    )


def current(tx: Transaction, owner: Owner, place: Place, memory: str | None = None) -> Entry:
    """The entry of a memory as it is now, or StoreDamaged. ``memory`` is the id asked for."""
    entry = log.at_position(tx, owner, place.position)
    if entry is None or not is_state(entry, memory or place.memory, place.version):
        raise index_damage(tx, owner, f"memory {memory or place.memory!s:.40}")
    return entry


def history(tx: Transaction, owner: Owner, memory: str) -> list[Entry]:
    """Every version of a memory up to the one that the index has for current."""
    entries = log.versions(tx, owner, memory)
    place = index.find(tx, owner, memory) if entries else None
    if place is not None and place.version != entries[-1].version:
        raise index_damage(tx, owner, f"memory {memory}")
    return entries


def states(tx: Transaction, owner: Owner, places: Sequence[Place]) -> list[tuple[Place, Entry]]:
    """The same for many, but for those that are damaged."""
    found = log.at_positions(tx, owner, [place.position for place in places])
    agreed = []
    for place in places:
        entry = found.get(place.position)
        if entry is not None and is_state(entry, place.memory, place.version):
            agreed.append((place, entry))
        elif entry is not None:
            log_rows.note(tx, index_damage(tx, owner, f"memory {place.memory!s:.40}"))
    return agreed


def events(tx: Transaction, owner: Owner, spots: Iterable[Spot]) -> list[Entry]:
    """The entries of these events, but for those that are damaged."""
    spots = list(spots)
    found = log.at_positions(tx, owner, [spot.position for spot in spots])
    return [
        entry
        for spot in spots
        if (entry := event_at(tx, owner, found, spot.position, spot.session, spot.sequence))
    ]


def event_at(
    tx: Transaction,
    owner: Owner,
    found: Mapping[int, Entry],
    position: int,
    session: str | None,
    sequence: int,
) -> Entry | None:
    """The entry of an event, if it is the one that the index names."""
    entry = found.get(position)
    if entry is None:
        return None
    named = (entry.op, entry.session, entry.sequence) == ("append", session, sequence)
    if named and entry.body is not None:
        return entry
    log_rows.note(tx, index_damage(tx, owner, f"event {session!s:.40}:{sequence}"))
    return None
