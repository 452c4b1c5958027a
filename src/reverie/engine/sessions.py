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
from reverie.engine.index import Passage, passages_said
from reverie.engine.log import Entry
from reverie.model import Event, Origin, Scope
from reverie.protocols import Owner, Transaction
from reverie.text.messages import digest, role_of, speaker_of, text_of

# What a chain begins with.
NOTHING_SAID = ""
# In one write; a cap that was lowered is reached over several.
MOST_HIDDEN = 20


class Session(NamedTuple):
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


class Spot(NamedTuple):
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


class Stretch(NamedTuple):
    """The events of one session behind ``after`` and up to ``upto`` (None: to its end)."""

    session: str
    after: int
    upto: int | None


_SESSION = ", ".join(Session._fields)
_SPOT = ", ".join(Spot._fields)


def scoped(scope: Scope, session: str) -> Scope:
    """The same scope, with what belongs to a session."""
    return replace(scope, session=session)


def readable(message: Mapping[str, Any]) -> str:
    """The text of a message as it is indexed and shown: half characters become marks."""
    text = text_of(message)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def event_of(entry: Entry, user: str | None) -> Event:
    """The event an entry holds. Only for entries that still have a body."""
    assert entry.body is not None and entry.session is not None and entry.sequence is not None
    message = entry.body["message"]
    return Event(
        session=entry.session,
        sequence=entry.sequence,
        role=role_of(message),
        text=readable(message),
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
    return passages_said(text, speaker_of(message))


def chained(before: str, message: Mapping[str, Any]) -> str:
    """What stands for all that was said up to a message. System prompts do not count."""
    if role_of(message) == "system":
        return before
    return linked(before, digest(message))


def linked(before: str, mark: str) -> str:
    """The same for a message of this digest that is no system prompt."""
    return hashlib.sha256(f"{before}{mark}".encode()).hexdigest()[:32]


# -- writing --------------------------------------------------------------------------------------


def add_event(tx: Transaction, owner: Owner, entry: Entry, parts: Sequence[Passage]) -> int:
    """Let the index show an event; the number of its first passage.

    An erased one is only counted: its session goes on behind it.
    """
    assert entry.session is not None and entry.sequence is not None
    known = find(tx, owner, entry.session)
    chain = _chain_before(tx, owner, known, entry.origin)
    if entry.body is None:
        _follow(tx, owner, entry, known, Size(0, 0, chain, None))
        return 0
    message = entry.body["message"]
    chain = chained(chain, message)
    role, size = role_of(message), len(log.encode(message).encode())
    first = index.put_passages(tx, owner, entry.position, parts) if parts else 0
    tx.run(
        f"INSERT INTO events (space, owner, {_SPOT}) "
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
            _terms(parts),
            speaker_of(message),
        ),
    )
    titled = entry.position if role == "user" else None
    _follow(tx, owner, entry, known, Size(1, size, chain, titled))
    return first


class Size(NamedTuple):
    """What one event adds to its session."""

    events: int
    unsummed: int
    chain: str
    titled: int | None


def _chain_before(tx: Transaction, owner: Owner, known: Session | None, fork: Origin | None) -> str:
    if known is not None and not known.ended:
        return known.chain
    spot = last_spot(tx, owner, lineage_from(tx, owner, fork)) if fork else None
    return NOTHING_SAID if spot is None else spot.chain


def _follow(tx: Transaction, owner: Owner, entry: Entry, known: Session | None, size: Size) -> None:
    """Let the session show its new last event."""
    if known is None:
        fork = entry.origin or (None, None)
        tx.run(
            f"INSERT INTO sessions (space, owner, {_SESSION}) "
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


def unindex_event(tx: Transaction, owner: Owner, spot: Spot, message: Mapping[str, Any]) -> None:
    """Take an event out of every recall; it stays in its session."""
    if spot.passages:
        parts = passages_of_message(message, readable(message))
        index.drop_passages(tx, owner, spot.first_passage, parts)
    _place_passages(tx, owner, spot, 0, ())


def index_event(tx: Transaction, owner: Owner, spot: Spot, parts: Sequence[Passage]) -> int:
    """Put an event back into recall; the number of its first passage."""
    first = index.put_passages(tx, owner, spot.position, parts) if parts else 0
    _place_passages(tx, owner, spot, first, parts)
    return first


def _place_passages(
    tx: Transaction, owner: Owner, spot: Spot, first: int, parts: Sequence[Passage]
) -> None:
    tx.run(
        "UPDATE events SET first_passage = ?, passages = ?, terms = ? "
        "WHERE space = ? AND owner = ? AND position = ?",
        (first, len(parts), _terms(parts), *owner, spot.position),
    )


def _terms(parts: Sequence[Passage]) -> int:
    return parts[0].length if parts else 0


def drop_event(tx: Transaction, owner: Owner, entry: Entry) -> int:
    """Take an event out of its session before its entry is blanked; how many passages it had."""
    spot = spot_at(tx, owner, entry.position)
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


def ends(entry: Entry) -> bool:
    """Whether an entry erased a whole session; of one event only a trace may be left."""
    return entry.op == "erase" and entry.session is not None and entry.sequence is None


def end(tx: Transaction, owner: Owner, session: str) -> None:
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


def reckon(tx: Transaction, owner: Owner, session: str, first: int = 0) -> None:
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
        for fork in forks(tx, owner, name):
            child = find(tx, owner, fork)
            if child is not None and (child.forked_sequence or 0) >= since:
                waiting.append((fork, 0))


def rechain_late(tx: Transaction, owner: Owner) -> None:
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
            waiting += forks(tx, owner, name)


def _rechain(tx: Transaction, owner: Owner, known: Session) -> None:
    chain, titled = _chain_before(tx, owner, None, known.forked_from), None
    for spot in spots(tx, owner, [Stretch(known.session, 0, None)]):
        entry = log.at_position(tx, owner, spot.position)
        assert entry is not None and entry.body is not None
        chain = chained(chain, entry.body["message"])
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


def find(tx: Transaction, owner: Owner, session: str) -> Session | None:
    row = tx.one(
        f"SELECT {_SESSION} FROM sessions WHERE space = ? AND owner = ? AND session = ?",
        (*owner, session),
    )
    return None if row is None else Session(*row)


def listed(
    tx: Transaction, owner: Owner, *, hidden: bool = False, limit: int | None = None
) -> list[Session]:
    """The sessions that have events, the one with the newest first."""
    shown = "" if hidden else " AND hidden_at IS NULL"
    tail = "" if limit is None else f" LIMIT {int(limit)}"
    return [
        Session(*row)
        for row in tx.all(
            f"SELECT {_SESSION} FROM sessions WHERE space = ? AND owner = ? AND events > 0{shown} "
            f"ORDER BY position DESC{tail}",
            owner,
        )
    ]


def every(tx: Transaction, owner: Owner) -> list[Session]:
    """All sessions there ever were, those without events included."""
    rows = tx.all(f"SELECT {_SESSION} FROM sessions WHERE space = ? AND owner = ?", owner)
    return [Session(*row) for row in rows]


def count_events(tx: Transaction, owner: Owner) -> int:
    row = tx.one("SELECT COUNT(*) FROM events WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else int(row[0])


def quietest(tx: Transaction, owner: Owner, beyond: int) -> list[str]:
    """The sessions a cap hides: all shown ones but the newest so many."""
    return [
        row[0]
        for row in tx.all(
            "SELECT session FROM sessions WHERE space = ? AND owner = ? AND hidden_at IS NULL "
            f"AND events > 0 ORDER BY position DESC LIMIT {MOST_HIDDEN} OFFSET {int(beyond)}",
            owner,
        )
    ]


def lineage(
    tx: Transaction, owner: Owner, session: str, begun_from: Origin | None = None
) -> list[Stretch]:
    """A session and those it was forked from, the oldest first.

    ``begun_from`` is where a session that has no event yet will go on from.
    """
    known = find(tx, owner, session)
    if known is None and begun_from is not None:
        return [*lineage_from(tx, owner, begun_from), Stretch(session, begun_from.sequence, None)]
    stretches = [Stretch(session, 0, None)]
    seen = {session}
    while known is not None and known.forked_from is not None:
        name, upto = known.forked_from
        stretches[-1] = stretches[-1]._replace(after=upto)
        if name in seen:
            break
        seen.add(name)
        stretches.append(Stretch(name, 0, upto))
        known = find(tx, owner, name)
    return stretches[::-1]


def lineage_from(tx: Transaction, owner: Owner, origin: Origin) -> list[Stretch]:
    """What a fork at this event has behind it."""
    before = lineage(tx, owner, origin.session)
    return [*before[:-1], before[-1]._replace(upto=origin.sequence)]


def cut(stretches: Sequence[Stretch], until: int | None) -> Sequence[Stretch]:
    """What these stretches have up to a sequence."""
    if until is None:
        return stretches
    return [
        stretch._replace(upto=until if stretch.upto is None else min(stretch.upto, until))
        for stretch in stretches
    ]


def spots(
    tx: Transaction,
    owner: Owner,
    stretches: Iterable[Stretch],
    *,
    newest: int | None = None,
    after: int = 0,
) -> list[Spot]:
    """The events of these stretches in order, or only the newest so many of them."""
    found: list[Spot] = []
    for stretch in reversed(list(stretches)):
        left = None if newest is None else newest - len(found)
        if left is not None and left <= 0:
            break
        upto = (1 << 62) if stretch.upto is None else stretch.upto
        tail = "" if left is None else f" LIMIT {int(left)}"
        rows = tx.all(
            f"SELECT {_SPOT} FROM events WHERE space = ? AND owner = ? AND session = ? "
            f"AND sequence > ? AND sequence <= ? ORDER BY sequence DESC{tail}",
            (*owner, stretch.session, max(stretch.after, after), upto),
        )
        found.extend(Spot(*row) for row in rows)
    return found[::-1]


def around(
    tx: Transaction, owner: Owner, user: str | None, event: Event, before: int, after: int
) -> list[Event]:
    """An event of a session, with those that came right before and after it."""
    here = Origin(event.session, event.sequence)
    earlier = spots(tx, owner, lineage_from(tx, owner, here), newest=before + 1)
    rows = tx.all(
        f"SELECT {_SPOT} FROM events WHERE space = ? AND owner = ? AND session = ? "
        f"AND sequence > ? ORDER BY sequence LIMIT {int(after)}",
        (*owner, *here),
    )
    found = [*earlier, *(Spot(*row) for row in rows)]
    from reverie.engine import index_check  # it reads what stands here

    return [event_of(entry, user) for entry in index_check.events(tx, owner, found)]


def last_spot(tx: Transaction, owner: Owner, stretches: Iterable[Stretch]) -> Spot | None:
    found = spots(tx, owner, stretches, newest=1)
    return found[-1] if found else None


def spot_at(tx: Transaction, owner: Owner, position: int) -> Spot | None:
    row = tx.one(
        f"SELECT {_SPOT} FROM events WHERE space = ? AND owner = ? AND position = ?",
        (*owner, position),
    )
    return None if row is None else Spot(*row)


def entry_of(tx: Transaction, owner: Owner, origin: Origin) -> Entry | None:
    """The entry of an event that is still there."""
    row = tx.one(
        "SELECT position FROM events WHERE space = ? AND owner = ? AND session = ? "
        "AND sequence = ?",
        (*owner, *origin),
    )
    return None if row is None else log.at_position(tx, owner, row[0])


def by_chain(
    tx: Transaction, owner: Owner, chain: str, among: Container[str] | None = None
) -> Spot | None:
    """An event up to which exactly this was said, in these sessions or any.

    One that its session ends with is better than any other, then the newest.
    """
    columns = ", ".join(f"e.{name}" for name in Spot._fields)
    tail = " LIMIT 1" if among is None else ""
    rows = tx.all(
        f"SELECT {columns} FROM events e JOIN sessions s "
        "ON s.space = e.space AND s.owner = e.owner AND s.session = e.session "
        "WHERE e.space = ? AND e.owner = ? AND e.chain = ? "
        f"ORDER BY CASE WHEN s.chain = e.chain THEN 0 ELSE 1 END, e.position DESC{tail}",
        (*owner, chain),
    )
    found = (Spot(*row) for row in rows)
    return next((spot for spot in found if among is None or spot.session in among), None)


def forks(
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


def first_behind(tx: Transaction, owner: Owner, session: str, sequence: int) -> Spot | None:
    """What a session says next behind a sequence, but for system prompts."""
    row = tx.one(
        f"SELECT {_SPOT} FROM events WHERE space = ? AND owner = ? AND session = ? "
        "AND sequence > ? AND role <> 'system' ORDER BY sequence LIMIT 1",
        (*owner, session, sequence),
    )
    return None if row is None else Spot(*row)


# A reply that was cut off is soon sent again.
MOST_FORKS = 20
# So many names in one statement.
MOST_NAMES = 1_000
MAX_CHAINS = 500


class End(NamedTuple):
    """Where a session ends: the position of its last event, and its chain."""

    position: int
    chain: str


def family(tx: Transaction, owner: Owner, session: str) -> dict[str, End]:
    """A session, what it was forked from and all forks of these, each with its end."""
    waiting = [stretch.session for stretch in lineage(tx, owner, session)]
    known: dict[str, End] = {}
    for name in waiting:
        found = find(tx, owner, name)
        known[name] = End(0, "") if found is None else End(found.position, found.chain)
    while waiting:
        part, waiting = waiting[:MOST_NAMES], waiting[MOST_NAMES:]
        rows = tx.all(
            "SELECT session, position, chain FROM sessions WHERE space = ? AND owner = ? "
            f"AND forked_session IN ({', '.join('?' * len(part))})",
            (*owner, *part),
        )
        fresh = {name: End(*end) for name, *end in rows if name not in known}
        known |= fresh
        waiting += fresh
    return known


def replies_to(tx: Transaction, owner: Owner, spot: Spot) -> list[Spot]:
    """What came right after an event: in its session, and in the newest sessions forked there."""
    newest = forks(tx, owner, spot.session, at=spot.sequence, newest=MOST_FORKS)
    found = (first_behind(tx, owner, name, spot.sequence) for name in (spot.session, *newest))
    return [reply for reply in found if reply is not None]


def known_chains(tx: Transaction, owner: Owner, chains: Sequence[str]) -> set[str]:
    """Those of these chains, ``MAX_CHAINS`` at most, that an event of the owner carries."""
    marks = ", ".join("?" * len(chains))
    rows = tx.all(
        f"SELECT DISTINCT chain FROM events WHERE space = ? AND owner = ? AND chain IN ({marks})",
        (*owner, *chains),
    )
    return {row[0] for row in rows}
