"""Sessions and their events in the index, which is a view of the log.

A fork continues from an event of another session without copying it: its history is the events of
the sessions it was forked from, then its own. An event that is erased there is gone here too.

``chain`` identifies a history: a hash over all messages up to an event, system prompts excepted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from reverie.engine import index, log, seals
from reverie.engine.index_text import Passage, message_passages
from reverie.engine.log import LogEntry
from reverie.model import Event, Origin, Scope
from reverie.protocols import Owner, Transaction
from reverie.text.messages import digest, role_of, speaker_of, text_of
from reverie.text.normalize import replace_surrogates
from reverie.text.speech_acts import SpeechAct, asks_yes_or_no, classify

# The chain before the first message.
EMPTY_CHAIN = ""
# The most sessions that a cap hides in one write; a cap that was lowered takes several writes.
MAX_HIDDEN = 20


class SessionRow(NamedTuple):
    """A row of ``sessions``: one session as it is now (columns: see ``engine/schema.py``)."""

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
        """The event that this session continues from, unless it was erased since."""
        if self.forked_session is None or self.forked_sequence is None or self.ended:
            return None
        return Origin(self.forked_session, self.forked_sequence)


class EventRow(NamedTuple):
    """A row of ``events``: one event without its message."""

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
    act: int


class EventRange(NamedTuple):
    """The events of one session from ``after`` (exclusive) to ``end_sequence`` (None: all)."""

    session: str
    after: int
    end_sequence: int | None


_SESSION_COLUMNS = ", ".join(SessionRow._fields)
_EVENT_COLUMNS = ", ".join(EventRow._fields)


def session_scope(scope: Scope, session: str) -> Scope:
    """A scope that also includes what is private to a session."""
    return replace(scope, session=session)


def message_text(message: Mapping[str, Any]) -> str:
    """The text of a message as it is indexed and shown: lone surrogates become ``?``."""
    return replace_surrogates(text_of(message))


def event_from_entry(entry: LogEntry, user: str | None) -> Event:
    """The event of an "append" entry. Only for entries whose body was not erased."""
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
    """Split an event into passages; a system prompt or a message without text has none."""
    return passages_of_message(event.message, event.text)


def passages_of_message(message: Mapping[str, Any], text: str) -> list[Passage]:
    """Split a message into passages; ``text`` is its text, from ``message_text``."""
    if role_of(message) == "system" or not text.strip():
        return []
    return message_passages(text, speaker_of(message))


def act_of(message: Mapping[str, Any], text: str) -> SpeechAct:
    """What a message does; ``text`` is its text, from ``message_text``.

    Only the user and the assistant ask one another for knowledge. People with names talk among
    themselves, and what one of them asks tells the others something too. So does what the assistant
    asks for a yes or no: "Shall we take oak?" says what the answer means.
    """
    if speaker_of(message) is not None or role_of(message) not in {"user", "assistant"}:
        return SpeechAct.STATEMENT
    by_assistant = role_of(message) == "assistant"
    if by_assistant and asks_yes_or_no(text):
        return SpeechAct.STATEMENT
    return classify(text, by_assistant)


def chain_message(before: str, message: Mapping[str, Any]) -> str:
    """The chain after a message, given the chain before it. System prompts do not change it."""
    if role_of(message) == "system":
        return before
    return chain_digest(before, digest(message))


def chain_digest(before: str, mark: str) -> str:
    """The chain after a message of this digest that is not a system prompt."""
    return hashlib.sha256(f"{before}{mark}".encode()).hexdigest()[:32]


# -- writing --------------------------------------------------------------------------------------


def add_event(tx: Transaction, owner: Owner, entry: LogEntry, parts: Sequence[Passage]) -> int:
    """Put an event into the index; returns the number of its first passage.

    An erased event only advances the last sequence of its session.
    """
    assert entry.session is not None and entry.sequence is not None
    session = find(tx, owner, entry.session)
    chain = _chain_before(tx, owner, session, entry.origin)
    if entry.body is None:
        _update_session(tx, owner, entry, session, SessionDelta(0, 0, chain, None))
        return 0
    message = entry.body["message"]
    chain = chain_message(chain, message)
    role, size = role_of(message), len(log.encode(message).encode())
    first = index.put_passages(tx, owner, entry.position, parts) if parts else 0
    tx.run(
        f"INSERT INTO events (space, owner, {_EVENT_COLUMNS}) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            act_of(message, message_text(message)),
        ),
    )
    title_position = entry.position if role == "user" else None
    _update_session(tx, owner, entry, session, SessionDelta(1, size, chain, title_position))
    return first


class SessionDelta(NamedTuple):
    """How one event changes the row of its session."""

    events: int
    unsummed: int
    chain: str
    titled: int | None


def _chain_before(
    tx: Transaction, owner: Owner, known: SessionRow | None, fork: Origin | None
) -> str:
    if known is not None and not known.ended:
        return known.chain
    event = last_event(tx, owner, lineage_from(tx, owner, fork)) if fork else None
    return EMPTY_CHAIN if event is None else event.chain


def _update_session(
    tx: Transaction, owner: Owner, entry: LogEntry, known: SessionRow | None, size: SessionDelta
) -> None:
    """Update the row of a session for its new last event, or insert it."""
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


def unindex_event(tx: Transaction, owner: Owner, row: EventRow, message: Mapping[str, Any]) -> None:
    """Remove the passages of an event from the index; the event stays in its session."""
    if row.passages:
        parts = passages_of_message(message, message_text(message))
        index.drop_passages(tx, owner, row.first_passage, parts)
    _place_passages(tx, owner, row, 0, ())


def index_event(tx: Transaction, owner: Owner, row: EventRow, parts: Sequence[Passage]) -> int:
    """Index the passages of an event again; returns the number of the first."""
    first = index.put_passages(tx, owner, row.position, parts) if parts else 0
    _place_passages(tx, owner, row, first, parts)
    return first


def _place_passages(
    tx: Transaction, owner: Owner, row: EventRow, first: int, parts: Sequence[Passage]
) -> None:
    tx.run(
        "UPDATE events SET first_passage = ?, passages = ?, terms = ? "
        "WHERE space = ? AND owner = ? AND position = ?",
        (first, len(parts), _term_count(parts), *owner, row.position),
    )


def _term_count(parts: Sequence[Passage]) -> int:
    return parts[0].length if parts else 0


def drop_event(tx: Transaction, owner: Owner, entry: LogEntry) -> int:
    """Remove an event before its entry is erased; returns the number of its passages."""
    event = find_event_at(tx, owner, entry.position)
    assert event is not None and entry.body is not None
    unindex_event(tx, owner, event, entry.body["message"])
    tx.run(
        "DELETE FROM events WHERE space = ? AND owner = ? AND position = ?",
        (*owner, entry.position),
    )
    tx.run(
        "UPDATE sessions SET events = events - 1 WHERE space = ? AND owner = ? AND session = ?",
        (*owner, entry.session),
    )
    return event.passages


def is_session_erasure(entry: LogEntry) -> bool:
    """Whether an entry records the erasure of a whole session, not of one event."""
    return entry.op == "erase" and entry.session is not None and entry.sequence is None


def mark_ended(tx: Transaction, owner: Owner, session: str) -> None:
    """Mark a session as erased: if it is used again, it starts without a past.

    Its forks continue from the event that it was itself forked from.
    """
    erased = find(tx, owner, session)
    if erased is None:
        return
    tx.run(
        "UPDATE sessions SET forked_session = ?, forked_sequence = ? "
        "WHERE space = ? AND owner = ? AND forked_session = ?",
        (erased.forked_session, erased.forked_sequence, *owner, session),
    )
    tx.run(
        "UPDATE sessions SET ended = 1, hidden_at = NULL, chain = '' "
        "WHERE space = ? AND owner = ? AND session = ?",
        (*owner, session),
    )


def set_hidden(tx: Transaction, owner: Owner, session: str, hidden_at: int | None) -> None:
    """Hide a session, or with None show it again."""
    tx.run(
        "UPDATE sessions SET hidden_at = ? WHERE space = ? AND owner = ? AND session = ?",
        (hidden_at, *owner, session),
    )


def recompute_session(tx: Transaction, owner: Owner, session: str, first: int = 0) -> None:
    """Recompute chains and sizes after events from sequence ``first`` on were erased.

    Forks of an event at or after ``first`` are recomputed too. The summaries may hold erased text:
    they are emptied, and their epoch advances, so that a summary now being written is refused.
    """
    pending, done = [(session, first)], set[str]()
    while pending:
        name, since = pending.pop()
        current = find(tx, owner, name)
        if current is None or name in done:
            continue
        done.add(name)
        _rechain(tx, owner, current)
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
                pending.append((fork, 0))


def rechain_forks(tx: Transaction, owner: Owner) -> None:
    """Recompute the chains of forks that were imported before the event they continue from."""
    rows = tx.all(
        "SELECT c.session FROM sessions c JOIN sessions p ON p.space = c.space "
        "AND p.owner = c.owner AND p.session = c.forked_session "
        "WHERE c.space = ? AND c.owner = ? AND (p.opened > c.opened OR c.opened < "
        "(SELECT e.position FROM events e WHERE e.space = ? AND e.owner = ? AND "
        "e.session = c.forked_session AND e.sequence <= c.forked_sequence "
        "ORDER BY e.sequence DESC LIMIT 1))",
        (*owner, *owner),
    )
    pending, done = [row[0] for row in rows], set[str]()
    while pending:
        name = pending.pop()
        fork = find(tx, owner, name)
        if fork is not None and name not in done:
            done.add(name)
            _rechain(tx, owner, fork)
            pending += list_forks(tx, owner, name)


def _rechain(tx: Transaction, owner: Owner, known: SessionRow) -> None:
    """Recompute the chain of a session's events, and which event it takes its title from."""
    chain, titled = _chain_before(tx, owner, None, known.forked_from), None
    for event in list_events(tx, owner, [EventRange(known.session, 0, None)]):
        entry = log.find_at_position(tx, owner, event.position)
        assert entry is not None and entry.body is not None
        chain = chain_message(chain, entry.body["message"])
        titled = titled or (event.position if event.role == "user" else None)
        tx.run(
            "UPDATE events SET chain = ? WHERE space = ? AND owner = ? AND position = ?",
            (chain, *owner, event.position),
        )
    tx.run(
        "UPDATE sessions SET chain = ?, titled = ? WHERE space = ? AND owner = ? AND session = ?",
        (chain, titled, *owner, known.session),
    )


def count_unsummed(tx: Transaction, owner: Owner, session: str) -> None:
    """Recompute ``unsummed``: the bytes of a session that its summary does not cover."""
    tx.run(
        "UPDATE sessions SET unsummed = COALESCE((SELECT SUM(e.size) FROM events e "
        "WHERE e.space = ? AND e.owner = ? AND e.session = ? AND e.sequence > COALESCE("
        "(SELECT s.upper FROM session_state s WHERE s.space = ? AND s.owner = ? "
        "AND s.session = ?), 0)), 0) WHERE space = ? AND owner = ? AND session = ?",
        (*owner, session) * 3,
    )


# -- reading --------------------------------------------------------------------------------------


def find(tx: Transaction, owner: Owner, session: str) -> SessionRow | None:
    """The row of a session, also of one that is hidden or erased."""
    row = tx.one(
        f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE space = ? AND owner = ? AND session = ?",
        (*owner, session),
    )
    return None if row is None else SessionRow(*row)


def list_sessions(
    tx: Transaction,
    owner: Owner,
    *,
    hidden: bool = False,
    limit: int | None = None,
    since: int | None = None,
    until: int | None = None,
) -> list[SessionRow]:
    """The sessions that have events, the one with the newest event first.

    ``since`` and ``until`` (exclusive) limit the time of that event.
    """
    hidden_condition = "" if hidden else " AND hidden_at IS NULL"
    bounds = {"updated_at >= ?": since, "updated_at < ?": until}
    given = {condition: at for condition, at in bounds.items() if at is not None}
    time_conditions = "".join(f" AND {condition}" for condition in given)
    limit_clause = "" if limit is None else f" LIMIT {int(limit)}"
    rows = tx.all(
        f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE space = ? AND owner = ? AND "
        f"events > 0{hidden_condition}{time_conditions} ORDER BY position DESC{limit_clause}",
        (*owner, *given.values()),
    )
    return [SessionRow(*row) for row in rows]


def list_all_sessions(tx: Transaction, owner: Owner) -> list[SessionRow]:
    """Every session that ever was, those without events included."""
    rows = tx.all(f"SELECT {_SESSION_COLUMNS} FROM sessions WHERE space = ? AND owner = ?", owner)
    return [SessionRow(*row) for row in rows]


def count_events(tx: Transaction, owner: Owner) -> int:
    """The number of events in all sessions of the owner."""
    row = tx.one("SELECT COUNT(*) FROM events WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else int(row[0])


def least_recent(tx: Transaction, owner: Owner, beyond: int) -> list[str]:
    """The sessions that a cap hides: all that are not hidden but the newest ``beyond``."""
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
    """The history of a session: the ranges of its ancestors' events and its own, oldest first.

    ``begun_from`` is the event that a session without events yet will continue from.
    """
    current = find(tx, owner, session)
    if current is None and begun_from is not None:
        return [
            *lineage_from(tx, owner, begun_from),
            EventRange(session, begun_from.sequence, None),
        ]
    ranges = [EventRange(session, 0, None)]
    visited = {session}
    while current is not None and current.forked_from is not None:
        name, upto = current.forked_from
        ranges[-1] = ranges[-1]._replace(after=upto)
        if name in visited:
            break
        visited.add(name)
        ranges.append(EventRange(name, 0, upto))
        current = find(tx, owner, name)
    return ranges[::-1]


def lineage_from(tx: Transaction, owner: Owner, origin: Origin) -> list[EventRange]:
    """The history of a fork that starts after this event."""
    before = lineage(tx, owner, origin.session)
    return [*before[:-1], before[-1]._replace(end_sequence=origin.sequence)]


def limit_ranges(ranges: Sequence[EventRange], until: int | None) -> Sequence[EventRange]:
    """Cut these ranges off after a sequence (None: not at all)."""
    if until is None:
        return ranges
    return [
        each._replace(
            end_sequence=until if each.end_sequence is None else min(each.end_sequence, until)
        )
        for each in ranges
    ]


def list_events(
    tx: Transaction,
    owner: Owner,
    ranges: Iterable[EventRange],
    *,
    newest: int | None = None,
    after: int = 0,
) -> list[EventRow]:
    """The events of these ranges in order, or only the ``newest`` of them."""
    events: list[EventRow] = []
    for each in reversed(list(ranges)):
        left = None if newest is None else newest - len(events)
        if left is not None and left <= 0:
            break
        end_sequence = (1 << 62) if each.end_sequence is None else each.end_sequence
        limit_clause = "" if left is None else f" LIMIT {int(left)}"
        events += _select_events(
            tx,
            owner,
            f"session = ? AND sequence > ? AND sequence <= ? ORDER BY sequence DESC{limit_clause}",
            *(each.session, max(each.after, after), end_sequence),
        )
    return events[::-1]


def list_surrounding_events(
    tx: Transaction, owner: Owner, origin: Origin, before: int, after: int
) -> list[EventRow]:
    """An event with the ``before`` events before it and the ``after`` events after it."""
    earlier = list_events(tx, owner, lineage_from(tx, owner, origin), newest=before + 1)
    condition = f"session = ? AND sequence > ? ORDER BY sequence LIMIT {int(after)}"
    return [*earlier, *_select_events(tx, owner, condition, *origin)]


def last_event(tx: Transaction, owner: Owner, ranges: Iterable[EventRange]) -> EventRow | None:
    """The last event of these ranges."""
    events = list_events(tx, owner, ranges, newest=1)
    return events[-1] if events else None


def find_event_at(tx: Transaction, owner: Owner, position: int) -> EventRow | None:
    """The event at a position of the log, unless it was erased."""
    return next(iter(_select_events(tx, owner, "position = ?", position)), None)


def _select_events(
    tx: Transaction, owner: Owner, condition: str, *values: object
) -> list[EventRow]:
    rows = tx.all(
        f"SELECT {_EVENT_COLUMNS} FROM events WHERE space = ? AND owner = ? AND {condition}",
        (*owner, *values),
    )
    return [EventRow(*row) for row in rows]


def find_event_entry(tx: Transaction, owner: Owner, origin: Origin) -> LogEntry | None:
    """The log entry of an event, unless the event was erased."""
    row = tx.one(
        "SELECT position FROM events WHERE space = ? AND owner = ? AND session = ? "
        "AND sequence = ?",
        (*owner, *origin),
    )
    return None if row is None else log.find_at_position(tx, owner, row[0])


def list_user_turns(tx: Transaction, owner: Owner, after: int) -> list[Origin]:
    """The messages of users after a position of the log, in order."""
    return [
        Origin(*row)
        for row in tx.all(
            "SELECT session, sequence FROM events WHERE space = ? AND owner = ? AND position > ? "
            "AND role = 'user' ORDER BY position",
            (*owner, after),
        )
    ]


def find_by_chain(
    tx: Transaction, owner: Owner, chain: str, among: Container[str] | None = None
) -> EventRow | None:
    """An event whose history has this chain, in the sessions ``among`` or in any.

    The last event of a session is preferred, then the newest.
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
    events = (EventRow(*row) for row in rows)
    return next((event for event in events if among is None or event.session in among), None)


def list_forks(
    tx: Transaction, owner: Owner, session: str, *, at: int | None = None, newest: int | None = None
) -> list[str]:
    """The sessions forked from an event of this one, or only from the one at sequence ``at``.

    The most recent first; ``newest`` limits their number.
    """
    at_condition = "" if at is None else " AND forked_sequence = ?"
    limit_clause = "" if newest is None else f" LIMIT {int(newest)}"
    rows = tx.all(
        "SELECT session FROM sessions WHERE space = ? AND owner = ? AND forked_session = ?"
        f"{at_condition} ORDER BY position DESC{limit_clause}",
        (*owner, session, *(() if at is None else (at,))),
    )
    return [row[0] for row in rows]


def next_event(tx: Transaction, owner: Owner, session: str, sequence: int) -> EventRow | None:
    """The next event of a session after a sequence, system prompts skipped."""
    condition = "session = ? AND sequence > ? AND role <> 'system' ORDER BY sequence LIMIT 1"
    return next(iter(_select_events(tx, owner, condition, session, sequence)), None)


# How many forks, the newest first, are searched for a reply. A reply that was cut off is sent again
# soon, so these suffice.
MAX_FORKS = 20
# The most names or chains in one statement.
MAX_NAMES = 1_000
MAX_CHAINS = 500


class SessionEnd(NamedTuple):
    """The end of a session: the position of its last event, and its chain."""

    position: int
    chain: str


def fork_tree(tx: Transaction, owner: Owner, session: str) -> dict[str, SessionEnd]:
    """The sessions related to one by forks: its ancestors, and all forks of them and of it."""
    pending = [each.session for each in lineage(tx, owner, session)]
    ends: dict[str, SessionEnd] = {}
    for name in pending:
        current = find(tx, owner, name)
        ends[name] = (
            SessionEnd(0, "") if current is None else SessionEnd(current.position, current.chain)
        )
    while pending:
        part, pending = pending[:MAX_NAMES], pending[MAX_NAMES:]
        rows = tx.all(
            "SELECT session, position, chain FROM sessions WHERE space = ? AND owner = ? "
            f"AND forked_session IN ({', '.join('?' * len(part))})",
            (*owner, *part),
        )
        fresh = {name: SessionEnd(*end) for name, *end in rows if name not in ends}
        ends |= fresh
        pending += fresh
    return ends


def replies_to(tx: Transaction, owner: Owner, row: EventRow) -> list[EventRow]:
    """The events right after an event: in its session, and in the newest sessions forked there."""
    newest = list_forks(tx, owner, row.session, at=row.sequence, newest=MAX_FORKS)
    replies = (next_event(tx, owner, name, row.sequence) for name in (row.session, *newest))
    return [reply for reply in replies if reply is not None]


def find_known_chains(tx: Transaction, owner: Owner, chains: Sequence[str]) -> set[str]:
    """Those of these chains (at most ``MAX_CHAINS``) that an event of the owner has."""
    placeholders = ", ".join("?" * len(chains))
    rows = tx.all(
        "SELECT DISTINCT chain FROM events WHERE space = ? AND owner = ? "
        f"AND chain IN ({placeholders})",
        (*owner, *chains),
    )
    return {row[0] for row in rows}
