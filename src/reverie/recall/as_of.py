"""What was known at an earlier moment: rebuilt from the log, as one handle saw it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from reverie.dates import Time, to_ms
from reverie.engine import (
    index,
    index_check,
    log,
    log_rows,
    sessions,
)
from reverie.engine.index import Filter
from reverie.model import Event, Memory
from reverie.protocols import Owner, Transaction

if TYPE_CHECKING:
    from reverie.recall.views import AsOfItem

Owners = Mapping[Owner, str | None]


class VisibleSessions(NamedTuple):
    """The sessions whose own memories a handle sees, and the owner they are of."""

    sessions: tuple[str, ...] = ()
    sessions_owner: Owner | None = None

    def at(self, owner: Owner) -> set[str | None]:
        """What a memory of this owner may belong to: no session, or one of these."""
        return {None, *self.sessions} if owner == self.sessions_owner else {None}


def resolve_as_of(tx: Transaction, owners: Owners, as_of: Time) -> tuple[int, int]:
    """A position, and when it was reached."""
    if not owners:
        return 0, 0 if isinstance(as_of, int) else to_ms(as_of, "as_of")
    shared = list(owners)[-1]
    if isinstance(as_of, int):
        position = min(max(as_of, 0), log.last_position(tx, shared))
        return position, log.recorded_time_at(tx, shared, position)
    at = to_ms(as_of, "as_of")
    return log.position_at(tx, shared, at), at


def memories_at(
    tx: Transaction,
    owners: Owners,
    seen: VisibleSessions,
    position: int,
    *,
    include_forgotten: bool,
) -> list[tuple[int, Memory]]:
    """The memories of a moment, each with where it was born."""
    return [
        (first_position, memory)
        for owner, user in owners.items()
        for first_position, entry in log.states_at(tx, owner, position)
        if (memory := entry.state(user)).session in seen.at(owner)
        and (memory.forgotten_at is None or include_forgotten)
    ]


def memories_now(
    tx: Transaction,
    owners: Owners,
    seen: VisibleSessions,
    chosen: Filter,
    limit: int | None,
    before: int | None,
) -> list[tuple[int, Memory]]:
    """The memories that a filter admits now, each with where it was born."""
    asked, found = replace(chosen, **seen._asdict()), []
    for owner, user in owners.items():
        places = index.list_memories(tx, owner, asked, limit, before)
        for place, entry in index_check.read_current_entries(tx, owner, places):
            memory = entry.state(user)
            if asked.accepts(memory) and memory.session in seen.at(owner):
                found.append((place.first_position, memory))
    return found


def count_categories(
    tx: Transaction, owners: Owners, seen: VisibleSessions, chosen: Filter
) -> Counter[str]:
    """How many memories each category has, as far as the log knows a memory of it."""
    asked, found = replace(chosen, **seen._asdict()), Counter[str]()
    for owner in owners:
        for category, count in index.count_by_category(tx, owner, asked).items():
            places = index.list_memories(tx, owner, replace(asked, category=category), 1)
            if any(
                e.state(None).category == category
                for _, e in index_check.read_current_entries(tx, owner, places)
            ):
                found[category] += count
            else:
                log_rows.record_damage(
                    tx, index_check.index_damage_error(tx, owner, f"category {category!s:.40}")
                )
    return found


def items_at(
    tx: Transaction, owners: Owners, seen: VisibleSessions, position: int
) -> dict[str | None, list[AsOfItem]]:
    """All that a recall looked at then, in the order in which it came."""
    from reverie.recall.views import AsOfItem

    known: dict[str | None, list[AsOfItem]] = {}
    for owner, user in owners.items():
        origins = log.origins_at(tx, owner, position)
        memories = [
            AsOfItem(
                first_position, memory, origins.get(memory.id), memory.session in seen.at(owner)
            )
            for first_position, entry in log.states_at(tx, owner, position)
            if (memory := entry.state(user)).forgotten_at is None
        ]
        events = [AsOfItem(*pair) for pair in _events_at(tx, owner, position, user)]
        known[user] = sorted([*memories, *events], key=lambda each: each.first_position)
    return known


def _events_at(
    tx: Transaction, owner: Owner, position: int, user: str | None
) -> list[tuple[int, Event]]:
    """The events that a recall would have found at a position, each with its own."""
    hidden: set[str] = set()
    found: list[tuple[int, Event]] = []
    for entry in log.all_entries(tx, owner, position, skip=True):
        if entry.session is None:
            continue
        if entry.op == "hide":
            hidden.add(entry.session)
        elif entry.op == "restore" or sessions.is_session_erasure(entry):
            hidden.discard(entry.session)
        elif entry.op == "append" and entry.body is not None:
            found.append((entry.position, sessions.event_from_entry(entry, user)))
    return [(at, event) for at, event in found if event.session not in hidden]
