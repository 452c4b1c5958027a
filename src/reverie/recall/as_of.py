"""The memories and events that a handle sees now, or saw as of an earlier position of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reverie.dates import Time, to_ms
from reverie.engine import index, index_check, log, sessions
from reverie.engine.index import Filter
from reverie.model import Event, Memory, Origin
from reverie.protocols import Owner, Transaction

Owners = Mapping[Owner, str | None]


class VisibleSessions(NamedTuple):
    """The sessions whose private memories a handle sees, and the owner of these sessions."""

    sessions: tuple[str, ...] = ()
    sessions_owner: Owner | None = None

    def allowed_sessions(self, owner: Owner) -> set[str | None]:
        """The values of ``session`` that a visible memory of this owner may have."""
        return {None, *self.sessions} if owner == self.sessions_owner else {None}


class AsOfItem(NamedTuple):
    """A memory or event as of an earlier position, with its first position and its origin.

    An item that is private to another session is not ``shown``: it only counts for the mean vector.
    """

    first_position: int
    item: Memory | Event
    origin: Origin | None = None
    shown: bool = True


def item_from_entry(entry: log.LogEntry, user: str | None) -> Memory | Event:
    """The event or the state of the memory that a log entry holds."""
    return sessions.event_from_entry(entry, user) if entry.op == "append" else entry.state(user)


def item_text(item: Memory | Event) -> str:
    """The indexed text of a memory or an event."""
    return item.content if isinstance(item, Memory) else item.text


def resolve_as_of(tx: Transaction, owners: Owners, as_of: Time) -> tuple[int, int]:
    """Turn a position or a time into a position, and the time of that moment."""
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
    valid_at: int | None = None,
    *,
    include_forgotten: bool,
) -> list[tuple[int, Memory]]:
    """The memories as of a position, each after the position of its first version.

    With ``valid_at`` each is in the version that held at that time, if there is one.
    """
    return [
        (first_position, memory)
        for owner, user in owners.items()
        for first_position, memory in _states_at(tx, owner, user, position, valid_at)
        if memory.session in seen.allowed_sessions(owner)
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
    """The memories that pass a filter now, each after the position of its first version."""
    visible, memories = replace(chosen, **seen._asdict()), []
    for owner, user in owners.items():
        rows = index.list_memories(tx, owner, visible, limit, before)
        for row, entry in index_check.read_current_entries(tx, owner, rows):
            memory = entry.state(user)
            if visible.accepts(memory) and memory.session in seen.allowed_sessions(owner):
                memories.append((row.first_position, memory))
    return memories


def count_categories(
    tx: Transaction, owners: Owners, seen: VisibleSessions, chosen: Filter
) -> Counter[str]:
    """The number of memories in each category.

    One memory of each category is checked against the log; a category that fails is left out.
    """
    visible, counts = replace(chosen, **seen._asdict()), Counter[str]()
    for owner in owners:
        for category, count in index.count_by_category(tx, owner, visible).items():
            rows = index.list_memories(tx, owner, replace(visible, category=category), 1)
            if any(
                e.state(None).category == category
                for _, e in index_check.read_current_entries(tx, owner, rows)
            ):
                counts[category] += count
            else:
                index_check.record_index_damage(tx, owner, f"category {category!s:.40}")
    return counts


def items_at(
    tx: Transaction,
    owners: Owners,
    seen: VisibleSessions,
    position: int,
    valid_at: int | None = None,
) -> list[tuple[str | None, list[AsOfItem]]]:
    """The items that a recall searches as of a position, ordered by first position.

    They are in one list for each owner, with its user. With ``valid_at`` memories are in the
    version that held at that time.
    """
    by_owner: list[tuple[str | None, list[AsOfItem]]] = []
    for owner, user in owners.items():
        origins = log.origins_at(tx, owner, position)
        memories = [
            AsOfItem(
                first_position,
                memory,
                origins.get(memory.id),
                memory.session in seen.allowed_sessions(owner),
            )
            for first_position, memory in _states_at(tx, owner, user, position, valid_at)
            if memory.forgotten_at is None
        ]
        events = [AsOfItem(*pair) for pair in _events_at(tx, owner, position, user)]
        items = sorted([*memories, *events], key=lambda each: each.first_position)
        by_owner.append((user, items))
    return by_owner


def _states_at(
    tx: Transaction, owner: Owner, user: str | None, position: int, valid_at: int | None
) -> Iterator[tuple[int, Memory]]:
    """The state each memory had at a position, after the position of its first version."""
    if valid_at is None:
        for first_position, entry in log.states_at(tx, owner, position):
            yield first_position, entry.state(user)
        return
    versions: dict[str, list[log.LogEntry]] = {}
    for entry in log.all_entries(tx, owner, position, skip=True):
        if entry.memory:
            versions.setdefault(entry.memory, []).append(entry)
    for found in versions.values():
        last = found[-1]
        if last.body is None or last.op == "erase":
            continue
        then = version_valid_at(found, valid_at)
        if then is not None:
            state = with_current_scope(then.state(user), last.state(user))
            yield found[0].position, state


class HeldText(NamedTuple):
    """A text of a memory, as the last version with it, and from when to when it held."""

    entry: log.LogEntry
    start: int | None
    end: int | None

    def overlaps(self, start: int, end: int) -> bool:
        """Whether it held at any time from ``start`` until ``end``."""
        begin = start if self.start is None else max(self.start, start)
        return begin < (end if self.end is None else min(self.end, end))


def held_texts(versions: Sequence[log.LogEntry]) -> list[HeldText]:
    """The texts of a memory, of all its versions, the oldest first.

    A text holds from its ``valid_from`` until its ``valid_to``, or until a later one holds. One
    that does not say from when holds from when it was written; the first one always did. Of the
    versions with one text the last is believed: it corrects what the others said of the time.
    """
    first = None
    texts: list[tuple[int | None, log.LogEntry]] = []
    for entry in versions:
        body = entry.body or {}
        same = bool(texts) and (texts[-1][1].body or {}).get("content") == body.get("content")
        if same:
            texts.pop()
        else:
            first = entry.recorded_at if texts else None
        start = body.get("valid_from")
        texts.append((first if start is None else start, entry))
    held: list[HeldText] = []
    next_start = None
    for start, entry in reversed(texts):
        if entry.body is None:
            continue
        ends = (entry.body.get("valid_to"), next_start)
        held.append(HeldText(entry, start, min((e for e in ends if e is not None), default=None)))
        starts = (start, next_start)
        next_start = min((s for s in starts if s is not None), default=None)
    return held[::-1]


def version_valid_at(versions: Sequence[log.LogEntry], at: int) -> log.LogEntry | None:
    """The version of a memory that held at a time, of all its versions, the oldest first."""
    return next(
        (each.entry for each in reversed(held_texts(versions)) if each.overlaps(at, at + 1)), None
    )


def with_current_scope(then: Memory, now: Memory) -> Memory:
    """An earlier state, but forgotten, expired or private as the memory is now."""
    return replace(
        then, forgotten_at=now.forgotten_at, expires_at=now.expires_at, session=now.session
    )


def _events_at(
    tx: Transaction, owner: Owner, position: int, user: str | None
) -> list[tuple[int, Event]]:
    """The events that were not hidden as of a position, each after its position."""
    hidden: set[str] = set()
    events: list[tuple[int, Event]] = []
    for entry in log.all_entries(tx, owner, position, skip=True):
        if entry.session is None:
            continue
        if entry.op == "hide":
            hidden.add(entry.session)
        elif entry.op == "restore" or sessions.is_session_erasure(entry):
            hidden.discard(entry.session)
        elif entry.op == "append" and entry.body is not None:
            events.append((entry.position, sessions.event_from_entry(entry, user)))
    return [(at, event) for at, event in events if event.session not in hidden]
