"""Sessions and their events as the index knows them: a view of the log.

A fork goes on from an event of another session without copying it: its events are those of its
own, behind those of the sessions it came from. What is erased there is gone here too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from reverie.engine import index, log, seals
from reverie.engine.index import Passage, message_passages
from reverie.engine.log import LogEntry
from reverie.model import Event, Origin, Scope
from reverie.protocols import Owner, Transaction
from reverie.text.messages import digest, role_of, speaker_of, text_of

# What a chain begins with.
EMPTY_CHAIN = ""
# In one write; a cap that was lowered is reached over several.
MAX_HIDDEN = 20


class SessionRow(NamedTuple):
    """One session as it is now."""

    session: str
    opened: int
    position: int
    last_sequence: int
    events: int
    updated_at: int
    hidden_at: int | None
    titled: int | None
    forked_session: str | None
    forked_sequence: int | None
    chain: str
    unsummed: int
    ended: int

    @property
    def forked_from(self) -> Origin | None:
        if self.forked_session is None or self.forked_sequence is None or self.ended:
            return None
        return Origin(self.forked_session, self.forked_sequence)


class EventRow(NamedTuple):
    """Where an event stands."""

    position: int
    session: str
    sequence: int
    role: str
    at: int
    size: int
    chain: str
    first_passage: int
    passages: int
    terms: int
    speaker: str | None


class EventRange(NamedTuple):
    """The events of one session behind ``after`` and up to ``upto`` (None: to its end)."""

    session: str
    after: int
    end_sequence: int | None


_SESSION_COLUMNS = ", ".join(SessionRow._fields)
_EVENT_COLUMNS = ", ".join(EventRow._fields)


def session_scope(scope: Scope, session: str) -> Scope:
    """The same scope, with what belongs to a session."""
    return replace(scope, session=session)


def message_text(message: Mapping[str, Any]) -> str:
    """The text of a message as it is indexed and shown: half characters become marks."""
    text = text_of(message)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def event_from_entry(entry: LogEntry, user: str | None) -> Event:
    """The event an entry holds. Only for entries that still have a body."""
    assert entry.body is not None and entry.session is not None and entry.sequence is not None
    message = entry.body["message"]
    return Event(
        session=entry.session,
        sequence=entry.sequence,
        role=role_of(message),
        text=message_text(message),
        message=message,
        at=entry.body["at"],
        interrupted=entry.body.get("interrupted", False),
        user=user,
    )


def passages_of_event(event: Event) -> list[Passage]:
    """What recall finds of an event: nothing of a system prompt, nor of an image alone."""
    return passages_of_message(event.message, event.text)


def passages_of_message(message: Mapping[str, Any], text: str) -> list[Passage]:
    if role_of(message) == "system" or not text.strip():
        return []
    return message_passages(text, speaker_of(message))


def chain_message(before: str, message: Mapping[str, Any]) -> str:
    """What stands for all that was said up to a message. System prompts do not count."""
    if role_of(message) == "system":
        return before
    return chain_digest(before, digest(message))


def chain_digest(before: str, mark: str) -> str:
    """The same for a message of this digest that is no system prompt."""
    return hashlib.sha256(f"{before}{mark}".encode()).hexdigest()[:32]


# -- writing --------------------------------------------------------------------------------------


def add_event(tx: Transaction, owner: Owner, entry: LogEntry, parts: Sequence[Passage]) -> int:
    """Let the index show an event; the number of its first passage.

    An erased one is only counted: its session goes on behind it.
    """
    assert entry.session is not None and entry.sequence is not None
    known = find(tx, owner, entry.session)
    chain = _chain_before(tx, owner, known, entry.origin)
    if entry.body is None:
        _update_session(tx, owner, entry, known, SessionDelta(0, 0, chain, None))
        return 0
    message = entry.body["message"]
    chain = chain_message(chain, message)
    role, size = role_of(message), len(log.encode(message).encode())
    first = index.put_passages(tx, owner, entry.position, parts) if parts else 0
    tx.run(
        f"INSERT INTO events (space, owner, {_EVENT_COLUMNS}) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *owner,
            entry.position,
            entry.session,
            entry.sequence,
            role,
            entry.body["at"],
            size,
            chain,
            first,
            len(parts),
            _term_count(parts),
            speaker_of(message),
        ),
    )
    titled = entry.position if role == "user" else None
    _update_session(tx, owner, entry, known, SessionDelta(1, size, chain, titled))
    return first


class SessionDelta(NamedTuple):
    """What one event adds to its session."""

    events: int
    unsummed: int
    chain: str
    titled: int | None


def _chain_before(
    tx: Transaction, owner: Owner, known: SessionRow | None, fork: Origin | None
) -> str:
    if known is not None and not known.ended:
        return known.chain
    spot = last_event(tx, owner, lineage_from(tx, owner, fork)) if fork else None
    return EMPTY_CHAIN if spot is None else spot.chain


def _update_session(
    tx: Transaction, owner: Owner, entry: LogEntry, known: SessionRow | None, size: SessionDelta
) -> None:
    """Let the session show its new last event."""
    if known is None:
        fork = entry.origin or (None, None)
        tx.run(
            f"INSERT INTO sessions (space, owner, {_SESSION_COLUMNS}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, ?, 0)",
            (
                *owner,
                entry.session,
                entry.position,
                entry.position,
                entry.sequence,
                size.events,
                entry.recorded_at,
                size.titled,
                *fork,
                size.chain,
                size.unsummed,
            ),
        )
        return
    if known.ended:
        tx.run(
            "UPDATE sessions SET forked_session = ?, forked_sequence = ?, opened = ?, ended = 0 "
            "WHERE space = ? AND owner = ? AND session = ?",
            (*(entry.origin or (None, None)), entry.position, *owner, entry.session),
        )
    tx.run(
        "UPDATE sessions SET position = ?, last_sequence = ?, events = events + ?, updated_at = ?, "
        "titled = COALESCE(titled, ?), chain = ?, unsummed = unsummed + ? "
        "WHERE space = ? AND owner = ? AND session = ?",
        (
            entry.position,
            entry.sequence,
            size.events,
            entry.recorded_at,
            size.titled,
            size.chain,
            size.unsummed,
            *owner,
            entry.session,
        ),
    )


def unindex_event(
    tx: Transaction, owner: Owner, spot: EventRow, message: Mapping[str, Any]
) -> None:
    """Take an event out of every recall; it stays in its session."""
    if spot.passages:
        parts = passages_of_message(message, message_text(message))
        index.drop_passages(tx, owner, spot.first_passage, parts)
    _place_passages(tx, owner, spot, 0, ())


def index_event(tx: Transaction, owner: Owner, spot: EventRow, parts: Sequence[Passage]) -> int:
    """Put an event back into recall; the number of its first passage."""
    first = index.put_passages(tx, owner, spot.position, parts) if parts else 0
    _place_passages(tx, owner, spot, first, parts)
    return first


def _place_passages(
    tx: Transaction, owner: Owner, spot: EventRow, first: int, parts: Sequence[Passage]
) -> None:
    tx.run(
        "UPDATE events SET first_passage = ?, passages = ?, terms = ? "
        "WHERE space = ? AND owner = ? AND position = ?",
        (first, len(parts), _term_count(parts), *owner, spot.position),
    )


def _term_count(parts: Sequence[Passage]) -> int:
    return parts[0].length if parts else 0


def drop_event(tx: Transaction, owner: Owner, entry: LogEntry) -> int:
    """Take an event out of its session before its entry is blanked; how many passages it had."""
    spot = find_event_at(tx, owner, entry.position)
    assert spot is not None and entry.body is not None
    unindex_event(tx, owner, spot, entry.body["message"])
    tx.run(
        "DELETE FROM events WHERE space = ? AND owner = ? AND position = ?",
        (*owner, entry.position),
    )
    tx.run(
        "UPDATE sessions SET events = events - 1 WHERE space = ? AND owner = ? AND session = ?",
        (*owner, entry.session),
    )
    return spot.passages


def is_session_erasure(entry: LogEntry) -> bool:
    """Whether an entry erased a whole session; of one event only a trace may be left."""
    return entry.op == "erase" and entry.session is not None and entry.sequence is None


def mark_ended(tx: Transaction, owner: Owner, session: str) -> None:
    """A session that was erased has no past: begun again, it begins anew.

    What was forked from it goes on from where it had been forked itself.
    """
    known = find(tx, owner, session)
    if known is None:
        return
    tx.run(
        "UPDATE sessions SET forked_session = ?, forked_sequence = ? "
        "WHERE space = ? AND owner = ? AND forked_session = ?",
        (known.forked_session, known.forked_sequence, *owner, session),
    )
    tx.run(
        "UPDATE sessions SET ended = 1, hidden_at = NULL, chain = '' "
        "WHERE space = ? AND owner = ? AND session = ?",
        (*owner, session),
    )


def set_hidden(tx: Transaction, owner: Owner, session: str, hidden_at: int | None) -> None:
    tx.run(
        "UPDATE sessions SET hidden_at = ? WHERE space = ? AND owner = ? AND session = ?",
        (hidden_at, *owner, session),
    )


def recompute_session(tx: Transaction, owner: Owner, session: str, first: int = 0) -> None:
    """After events of a session from this sequence on were destroyed: what was computed over them.

    Forks that go on from there or later are reckoned too. Their summaries may hold what was
    destroyed and are made anew; whoever is writing one has lost the race.
    """
    waiting, seen = [(session, first)], set[str]()
    while waiting:
        name, since = waiting.pop()
        known = find(tx, owner, name)
        if known is None or name in seen:
            continue
        seen.add(name)
        _rechain(tx, owner, known)
        tx.run(
            "INSERT INTO session_state (space, owner, session, frozen, epoch, upper, summary, "
            "scratchpad, scratched_at) VALUES (?, ?, ?, NULL, 1, 0, '', NULL, NULL) "
            "ON CONFLICT (space, owner, session) DO UPDATE SET summary = '', upper = 0, "
            "epoch = session_state.epoch + 1",
            (*owner, name),
        )
        seals.seal_state(tx, owner, name)
        count_unsummed(tx, owner, name)
        for fork in list_forks(tx, owner, name):
            child = find(tx, owner, fork)
            if child is not None and (child.forked_sequence or 0) >= since:
                waiting.append((fork, 0))


def rechain_forks(tx: Transaction, owner: Owner) -> None:
    """Chain forks anew that came in before what they go on from."""
    rows = tx.all(
        "SELECT c.session FROM sessions c JOIN sessions p ON p.space = c.space "
        "AND p.owner = c.owner AND p.session = c.forked_session "
        "WHERE c.space = ? AND c.owner = ? AND p.opened > c.opened",
        owner,
    )
    waiting, seen = [row[0] for row in rows], set[str]()
    while waiting:
        name = waiting.pop()
        known = find(tx, owner, name)
        if known is not None and name not in seen:
            seen.add(name)
            _rechain(tx, owner, known)
            waiting += list_forks(tx, owner, name)


def _rechain(tx: Transaction, owner: Owner, known: SessionRow) -> None:
    chain, titled = _chain_before(tx, owner, None, known.forked_from), None
    for spot in list_events(tx, owner, [EventRange(known.session, 0, None)]):
        entry = log.find_at_position(tx, owner, spot.position)
        assert entry is not None and entry.body is not None
        chain = chain_message(chain, entry.body["message"])
        titled = titled or (spot.position if spot.role == "user" else None)
        tx.run(
            "UPDATE events SET chain = ? WHERE space = ? AND owner = ? AND position = ?",
            (chain, *owner, spot.position),
        )
    tx.run(
        "UPDATE sessions SET chain = ?, titled = ? WHERE space = ? AND owner = ? AND session = ?",
        (chain, titled, *owner, known.session),
    )


def count_unsummed(tx: Transaction, owner: Owner, session: str) -> None:
    """How much of a session its summary does not cover."""
    tx.run(
        "UPDATE sessions SET unsummed = COALESCE((SELECT SUM(e.size) FROM events e "
        "WHERE e.space = ? AND e.owner = ? AND e.session = ? AND e.sequence > COALESCE("
        "(SELECT s.upper FROM session_state s WHERE s.space = ? AND s.owner = ? "
        "AND s.session = ?), 0)), 0) WHERE space = ? AND owner = ? AND session = ?",
        (*owner, session) * 3,
    )


# -- reading --------------------------------------------------------------------------------------


def find(tx: Transaction, owner: Owner, session: str) -> SessionRow | None:
    row = tx.one(
        f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE space = ? AND owner = ? AND session = ?",
        (*owner, session),
    )
    return None if row is None else SessionRow(*row)


def list_sessions(
    tx: Transaction, owner: Owner, *, hidden: bool = False, limit: int | None = None
) -> list[SessionRow]:
    """The sessions that have events, the one with the newest first."""
    shown = "" if hidden else " AND hidden_at IS NULL"
    tail = "" if limit is None else f" LIMIT {int(limit)}"
    return [
        SessionRow(*row)
        for row in tx.all(
            f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE space = ? AND owner = ? AND "
            f"events > 0{shown} "
            f"ORDER BY position DESC{tail}",
            owner,
        )
    ]


def list_all_sessions(tx: Transaction, owner: Owner) -> list[SessionRow]:
    """All sessions there ever were, those without events included."""
    rows = tx.all(f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE space = ? AND owner = ?", owner)
    return [SessionRow(*row) for row in rows]


def count_events(tx: Transaction, owner: Owner) -> int:
    row = tx.one("SELECT COUNT(*) FROM events WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else int(row[0])


def least_recent(tx: Transaction, owner: Owner, beyond: int) -> list[str]:
    """The sessions a cap hides: all shown ones but the newest so many."""
    return [
        row[0]
        for row in tx.all(
            "SELECT session FROM sessions WHERE space = ? AND owner = ? AND hidden_at IS NULL "
            f"AND events > 0 ORDER BY position DESC LIMIT {MAX_HIDDEN} OFFSET {int(beyond)}",
            owner,
        )
    ]


def lineage(
    tx: Transaction, owner: Owner, session: str, begun_from: Origin | None = None
) -> list[EventRange]:
    """A session and those it was forked from, the oldest first.

    ``begun_from`` is where a session that has no event yet will go on from.
    """
    known = find(tx, owner, session)
    if known is None and begun_from is not None:
        return [
            *lineage_from(tx, owner, begun_from),
            EventRange(session, begun_from.sequence, None),
        ]
    stretches = [EventRange(session, 0, None)]
    seen = {session}
    while known is not None and known.forked_from is not None:
        name, upto = known.forked_from
        stretches[-1] = stretches[-1]._replace(after=upto)
        if name in seen:
            break
        seen.add(name)
        stretches.append(EventRange(name, 0, upto))
        known = find(tx, owner, name)
    return stretches[::-1]


def lineage_from(tx: Transaction, owner: Owner, origin: Origin) -> list[EventRange]:
    """What a fork at this event has behind it."""
    before = lineage(tx, owner, origin.session)
    return [*before[:-1], before[-1]._replace(end_sequence=origin.sequence)]


def limit_ranges(stretches: Sequence[EventRange], until: int | None) -> Sequence[EventRange]:
    """What these stretches have up to a sequence."""
    if until is None:
        return stretches
    return [
        stretch._replace(
            end_sequence=until if stretch.end_sequence is None else min(stretch.end_sequence, until)
        )
        for stretch in stretches
    ]


def list_events(
    tx: Transaction,
    owner: Owner,
    stretches: Iterable[EventRange],
    *,
    newest: int | None = None,
    after: int = 0,
) -> list[EventRow]:
    """The events of these stretches in order, or only the newest so many of them."""
    found: list[EventRow] = []
    for stretch in reversed(list(stretches)):
        left = None if newest is None else newest - len(found)
        if left is not None and left <= 0:
            break
        upto = (1 << 62) if stretch.end_sequence is None else stretch.end_sequence
        tail = "" if left is None else f" LIMIT {int(left)}"
        rows = tx.all(
            f"SELECT {_EVENT_COLUMNS} FROM events WHERE space = ? AND owner = ? AND session = ? "
            f"AND sequence > ? AND sequence <= ? ORDER BY sequence DESC{tail}",
            (*owner, stretch.session, max(stretch.after, after), upto),
        )
        found.extend(EventRow(*row) for row in rows)
    return found[::-1]


def read_surrounding_events(
    tx: Transaction, owner: Owner, user: str | None, event: Event, before: int, after: int
) -> list[Event]:
    """An event of a session, with those that came right before and after it."""
    here = Origin(event.session, event.sequence)
    earlier = list_events(tx, owner, lineage_from(tx, owner, here), newest=before + 1)
    rows = tx.all(
        f"SELECT {_EVENT_COLUMNS} FROM events WHERE space = ? AND owner = ? AND session = ? "
        f"AND sequence > ? ORDER BY sequence LIMIT {int(after)}",
        (*owner, *here),
    )
    found = [*earlier, *(EventRow(*row) for row in rows)]
    from reverie.engine import index_check  # it reads what stands here

    return [
        event_from_entry(entry, user) for entry in index_check.read_event_entries(tx, owner, found)
    ]


def last_event(tx: Transaction, owner: Owner, stretches: Iterable[EventRange]) -> EventRow | None:
    found = list_events(tx, owner, stretches, newest=1)
    return found[-1] if found else None


def find_event_at(tx: Transaction, owner: Owner, position: int) -> EventRow | None:
    row = tx.one(
        f"SELECT {_EVENT_COLUMNS} FROM events WHERE space = ? AND owner = ? AND position = ?",
        (*owner, position),
    )
    return None if row is None else EventRow(*row)


def find_event_entry(tx: Transaction, owner: Owner, origin: Origin) -> LogEntry | None:
    """The entry of an event that is still there."""
    row = tx.one(
        "SELECT position FROM events WHERE space = ? AND owner = ? AND session = ? "
        "AND sequence = ?",
        (*owner, *origin),
    )
    return None if row is None else log.find_at_position(tx, owner, row[0])


def find_by_chain(
    tx: Transaction, owner: Owner, chain: str, among: Container[str] | None = None
) -> EventRow | None:
    """An event up to which exactly this was said, in these sessions or any.

    One that its session ends with is better than any other, then the newest.
    """
    columns = ", ".join(f"e.{name}" for name in EventRow._fields)
    tail = " LIMIT 1" if among is None else ""
    rows = tx.all(
        f"SELECT {columns} FROM events e JOIN sessions s "
        "ON s.space = e.space AND s.owner = e.owner AND s.session = e.session "
        "WHERE e.space = ? AND e.owner = ? AND e.chain = ? "
        f"ORDER BY CASE WHEN s.chain = e.chain THEN 0 ELSE 1 END, e.position DESC{tail}",
        (*owner, chain),
    )
    found = (EventRow(*row) for row in rows)
    return next((spot for spot in found if among is None or spot.session in among), None)


def list_forks(
    tx: Transaction,
    owner: Owner,
    session: str,
    *,
    at: int | None = None,
    newest: int | None = None,
) -> list[str]:
    """The sessions that go on from an event of this one, or from the event ``at``."""
    there = "" if at is None else " AND forked_sequence = ?"
    tail = "" if newest is None else f" LIMIT {int(newest)}"
    rows = tx.all(
        "SELECT session FROM sessions WHERE space = ? AND owner = ? AND forked_session = ?"
        f"{there} ORDER BY position DESC{tail}",
        (*owner, session, *(() if at is None else (at,))),
    )
    return [row[0] for row in rows]


def next_event(tx: Transaction, owner: Owner, session: str, sequence: int) -> EventRow | None:
    """What a session says next behind a sequence, but for system prompts."""
    row = tx.one(
        f"SELECT {_EVENT_COLUMNS} FROM events WHERE space = ? AND owner = ? AND session = ? "
        "AND sequence > ? AND role <> 'system' ORDER BY sequence LIMIT 1",
        (*owner, session, sequence),
    )
    return None if row is None else EventRow(*row)


# A reply that was cut off is soon sent again.
MAX_FORKS = 20
# So many names in one statement.
MAX_NAMES = 1_000
MAX_CHAINS = 500


class SessionEnd(NamedTuple):
    """Where a session ends: the position of its last event, and its chain."""

    position: int
    chain: str


def fork_tree(tx: Transaction, owner: Owner, session: str) -> dict[str, SessionEnd]:
    """A session, what it was forked from and all forks of these, each with its end."""
    waiting = [stretch.session for stretch in lineage(tx, owner, session)]
    known: dict[str, SessionEnd] = {}
    for name in waiting:
        found = find(tx, owner, name)
        known[name] = (
            SessionEnd(0, "") if found is None else SessionEnd(found.position, found.chain)
        )
    while waiting:
        part, waiting = waiting[:MAX_NAMES], waiting[MAX_NAMES:]
        rows = tx.all(
            "SELECT session, position, chain FROM sessions WHERE space = ? AND owner = ? "
            f"AND forked_session IN ({', '.join('?' * len(part))})",
            (*owner, *part),
        )
        fresh = {name: SessionEnd(*end) for name, *end in rows if name not in known}
        known |= fresh
        waiting += fresh
    return known


def replies_to(tx: Transaction, owner: Owner, spot: EventRow) -> list[EventRow]:
    """What came right after an event: in its session, and in the newest sessions forked there."""
    newest = list_forks(tx, owner, spot.session, at=spot.sequence, newest=MAX_FORKS)
    found = (next_event(tx, owner, name, spot.sequence) for name in (spot.session, *newest))
    return [reply for reply in found if reply is not None]


def find_known_chains(tx: Transaction, owner: Owner, chains: Sequence[str]) -> set[str]:
    """Those of these chains, ``MAX_CHAINS`` at most, that an event of the owner carries."""
    marks = ", ".join("?" * len(chains))
    rows = tx.all(
        f"SELECT DISTINCT chain FROM events WHERE space = ? AND owner = ? AND chain IN ({marks})",
        (*owner, *chains),
    )
    return {row[0] for row in rows}
