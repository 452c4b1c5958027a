"""The log: positions, entries, and the states of memories that they hold.

An entry is about a memory or about a session; an event is an entry of its session.

Functions take the owner first: nothing here can be asked without one, except by the operator's
few calls that resolve names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from reverie.model import Change, Memory, Op, Origin, Scope, Trust, Version
from reverie.protocols import Owner, Row, Transaction
from reverie.text.normalise import SURROGATE

SHARED = 0
BODY_SCHEMA = 1
OVERWRITTEN = "what this version said was erased"

_COLUMNS = (
    "position, op, recorded_at, actor, trust, reason, origin_session, origin_sequence, "
    "key, request, memory, version, uuid, session, sequence, body"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log. ``memory`` is empty where it is about a session, and the reverse."""

    position: int
    op: Op
    recorded_at: int
    actor: str | None
    trust: Trust
    reason: str | None
    origin: Origin | None
    key: str | None
    request: str | None
    memory: str
    version: int
    uuid: str
    body: Mapping[str, Any] | None
    session: str | None = None
    sequence: int | None = None

    def state(self, user: str | None) -> Memory:
        """The memory as this version left it. Only for versions that still have a body."""
        assert self.body is not None
        body = self.body
        return Memory(
            id=self.memory,
            kind=body["kind"],
            content=body["content"],
            category=body["category"],
            subject=body["subject"],
            tags=tuple(body["tags"]),
            concept_tags=tuple(body["concept_tags"]),
            version=self.version,
            user=user,
            session=body["session"],
            source=body["source"],
            trust=body["trust"],
            pinned=body["pinned"],
            created_at=body["created_at"],
            updated_at=body["updated_at"],
            happened_at=body["happened_at"],
            forgotten_at=body["forgotten_at"],
            expires_at=body["expires_at"],
        )

    def as_version(self) -> Version:
        # What an erasure keeps is no state of the memory.
        body = {} if self.op == "erase" else self.body or {}
        return Version(
            memory_id=self.memory,
            version=self.version,
            uuid=self.uuid,
            position=self.position,
            op=self.op,
            content=body.get("content"),
            category=body.get("category"),
            subject=body.get("subject"),
            tags=tuple(body.get("tags", ())),
            trust=self.trust,
            recorded_at=self.recorded_at,
            actor=self.actor,
            reason=self.reason,
            origin=self.origin,
        )

    def as_change(self, user: str | None) -> Change:
        return Change(
            position=self.position,
            op=self.op,
            memory=self.memory,
            version=self.version,
            session=self.session,
            sequence=self.sequence,
            user=user,
            actor=self.actor,
            trust=self.trust,
            recorded_at=self.recorded_at,
        )


# Made once: json.dumps would make one for each text.
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(body: Any) -> str:
    text = _as_json(body)
    if not text.isascii() and SURROGATE.search(text):
        # Half a character in a message is kept as it came, in a form that UTF-8 holds.
        return json.dumps(body, ensure_ascii=True, separators=(",", ":"))
    return text


# -- names ----------------------------------------------------------------------------------------


def find_space(tx: Transaction, name: str, user: str | None = None) -> int | None:
    tx.ask_for(name, user or "")
    row = tx.one("SELECT space FROM spaces WHERE name = ?", (name,))
    return None if row is None else row[0]


def find_owner(tx: Transaction, space: int, user: str | None) -> Owner | None:
    """An owner of a space; from here on the transaction is its."""
    tx.enter(Owner(space, SHARED))
    if user is None:
        return Owner(space, SHARED)
    row = tx.one("SELECT owner FROM owners WHERE space = ? AND name = ?", (space, user))
    if row is None:
        return None
    owner = Owner(space, row[0])
    tx.enter(owner)
    return owner


def find(tx: Transaction, scope: Scope) -> Owner | None:
    """The owner a handle writes to, if it has written."""
    space = find_space(tx, scope.space, scope.user)
    return None if space is None else find_owner(tx, space, scope.user)


def ensure_owner(tx: Transaction, name: str, user: str | None) -> Owner:
    """The owner of these names, made on its first write."""
    space = find_space(tx, name, user)
    if space is None:
        space = _add_space(tx, name, user)
    owner = find_owner(tx, space, user)
    if owner is None:
        (number,) = tx.one(
            "UPDATE counters SET owner = owner + 1 WHERE space = ? RETURNING owner", (space,)
        ) or (1,)
        owner = Owner(space, number)
        tx.enter(owner)
        _add_owner(tx, owner, user or "")
    return owner


def _add_space(tx: Transaction, name: str, user: str | None) -> int:
    while True:
        number = tx.fresh_space()
        tx.enter(Owner(number, SHARED), alone=False)
        # Who makes the same space at the same time is waited for here.
        if tx.run(
            "INSERT INTO spaces (space, name) VALUES (?, ?) ON CONFLICT DO NOTHING", (number, name)
        ):
            break
        space = find_space(tx, name, user)
        if space is not None:
            return space
    tx.run(
        "INSERT INTO counters (space, position, recorded_at, job, owner) VALUES (?, 0, 0, 0, 0)",
        (number,),
    )
    _add_owner(tx, Owner(number, SHARED), "")
    return number


def _add_owner(tx: Transaction, owner: Owner, name: str) -> None:
    tx.run("INSERT INTO owners (space, owner, name) VALUES (?, ?, ?)", (*owner, name))
    # Numbers come back after a restore, epochs never: no process can take an old matrix for new.
    tx.run(
        "INSERT INTO statistics (space, owner, epoch, next_passage, passages, touches, "
        "facts, notes, private) VALUES (?, ?, ?, 0, 0, 0, 0, 0, 0)",
        (*owner, lineage(tx)),
    )


def lineage(tx: Transaction) -> int:
    """How often a backup was put in the place of this store, in steps that only grow."""
    row = tx.one("SELECT value FROM meta WHERE key = 'lineage'")
    return 0 if row is None else int(row[0])


def scope_of(tx: Transaction, owner: Owner) -> Scope:
    """The names of an owner."""
    row = tx.one(
        "SELECT s.name, o.name FROM owners o JOIN spaces s ON s.space = o.space "
        "WHERE o.space = ? AND o.owner = ?",
        owner,
    )
    assert row is not None
    return Scope(row[0], row[1] or None)


# -- writing --------------------------------------------------------------------------------------


def advance(tx: Transaction, space: int, now: int) -> tuple[int, int]:
    """The next position, and a recorded_at that never runs backwards."""
    return advance_each(tx, Owner(space, SHARED), [now])[0]


def advance_each(tx: Transaction, owner: Owner, times: Sequence[int]) -> list[tuple[int, int]]:
    """The same for several entries that follow each other; positions are the space's."""
    row = tx.one(
        "UPDATE counters SET position = position + ? WHERE space = ? "
        "RETURNING position, recorded_at",
        (len(times), owner.space),
    )
    assert row is not None
    last, before = row
    whens = list(enumerate(accumulate((before, *times), max), last - len(times)))[1:]
    if whens and whens[-1][1] > before:
        tx.many(
            "UPDATE counters SET recorded_at = ? WHERE space = ?", [(whens[-1][1], owner.space)]
        )
    return whens


def advance_to(tx: Transaction, owner: Owner, position: int, now: int) -> tuple[int, int]:
    """The same for an entry that had a position before; what was passed already is the next one."""
    tx.run(
        "UPDATE counters SET position = ? WHERE space = ? AND position < ?",
        (position - 1, owner.space, position - 1),
    )
    return advance(tx, owner.space, now)


def recording_time(tx: Transaction, owner: Owner, now: int) -> int:
    """What advance will record for this moment."""
    row = tx.one("SELECT recorded_at FROM counters WHERE space = ?", (owner.space,))
    return now if row is None else max(now, row[0])


def append(tx: Transaction, owner: Owner, *entries: Entry) -> None:
    tx.many(
        "INSERT INTO log (space, position, owner, op, recorded_at, schema, actor, trust, reason, "
        "origin_session, origin_sequence, key, request, memory, version, uuid, session, sequence, "
        "body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                owner.space,
                entry.position,
                owner.number,
                entry.op,
                entry.recorded_at,
                BODY_SCHEMA,
                entry.actor,
                entry.trust,
                entry.reason,
                *(entry.origin or (None, None)),
                entry.key,
                entry.request,
                entry.memory or None,
                entry.version or None,
                entry.uuid,
                entry.session,
                entry.sequence,
                None if entry.body is None else encode(entry.body),
            )
            for entry in entries
        ),
    )


def blank(tx: Transaction, owner: Owner, positions: Iterable[int]) -> None:
    """Destroy what these entries said; that they were made remains."""
    for position in positions:
        tx.run(
            "UPDATE log SET body = NULL, request = NULL, reason = NULL "
            "WHERE space = ? AND owner = ? AND position = ?",
            (*owner, position),
        )


# -- reading --------------------------------------------------------------------------------------


def by_key(tx: Transaction, owner: Owner, key: str) -> Entry | None:
    return _first(
        tx.all(
            f"SELECT {_COLUMNS} FROM log WHERE space = ? AND owner = ? AND key = ?", (*owner, key)
        )
    )


def at_position(tx: Transaction, owner: Owner, position: int) -> Entry | None:
    return _first(
        tx.all(
            f"SELECT {_COLUMNS} FROM log WHERE space = ? AND position = ? AND owner = ?",
            (owner.space, position, owner.number),
        )
    )


def at_positions(tx: Transaction, owner: Owner, positions: Sequence[int]) -> dict[int, Entry]:
    """The entries at these positions."""
    found: dict[int, Entry] = {}
    for i in range(0, len(positions), 500):
        part = positions[i : i + 500]
        for row in tx.all(
            f"SELECT {_COLUMNS} FROM log WHERE space = ? AND owner = ? "
            f"AND position IN ({', '.join('?' * len(part))})",
            (*owner, *part),
        ):
            found[row[0]] = _entry(row)
    return found


def versions(tx: Transaction, owner: Owner, memory: str) -> list[Entry]:
    """Every version of a memory, the oldest first; none when it is another owner's."""
    return [
        _entry(row)
        for row in tx.all(
            f"SELECT {_COLUMNS} FROM log WHERE space = ? AND memory = ? AND owner = ? "
            "ORDER BY version",
            (owner.space, memory, owner.number),
        )
    ]


def id_taken(tx: Transaction, owner: Owner, memory: str) -> bool:
    """Whether any owner of the space has, or had, a memory of this id."""
    return bool(ids_taken(tx, owner, [memory]))


def ids_taken(tx: Transaction, owner: Owner, memories: Sequence[str]) -> set[str]:
    """Those of these ids that are taken."""
    taken: set[str] = set()
    with tx.across_owners():
        for i in range(0, len(memories), 500):
            part = memories[i : i + 500]
            marks = ", ".join("?" * len(part))
            rows = tx.all(
                f"SELECT memory FROM log WHERE space = ? AND memory IN ({marks})",
                (owner.space, *part),
            )
            taken.update(row[0] for row in rows)
    return taken


def of_session(tx: Transaction, owner: Owner, session: str) -> list[Entry]:
    """Every entry about a session, in order."""
    return [
        _entry(row)
        for row in tx.all(
            f"SELECT {_COLUMNS} FROM log WHERE space = ? AND owner = ? AND session = ? "
            "ORDER BY position",
            (*owner, session),
        )
    ]


def in_session(
    tx: Transaction, owner: Owner, session: str, sequence: int | None, uuid: str
) -> bool:
    """Whether the session has this very entry."""
    at, values = ("IS NULL", ()) if sequence is None else ("= ?", (sequence,))
    row = tx.one(
        f"SELECT 1 FROM log WHERE space = ? AND owner = ? AND session = ? AND sequence {at} "
        "AND uuid = ? LIMIT 1",
        (*owner, session, *values, uuid),
    )
    return row is not None


def decided_since(tx: Transaction, owner: Owner, position: int) -> list[tuple[str, str | None]]:
    """What a person changed behind a position: each time how, and which memory."""
    rows = tx.all(
        "SELECT op, memory FROM log WHERE space = ? AND owner = ? AND position > ? "
        "AND trust = 'person' AND op IN ('revise', 'forget', 'erase')",
        (*owner, position),
    )
    return [(row[0], row[1]) for row in rows]


def appended(tx: Transaction, owner: Owner, session: str, first: int, count: int) -> list[Entry]:
    """So many events of a session from a sequence on, erased ones included."""
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM log WHERE space = ? AND owner = ? AND session = ? "
        f"AND sequence >= ? AND op = 'append' ORDER BY sequence, position LIMIT {int(count)}",
        (*owner, session, first),
    )
    return [_entry(row) for row in rows]


def overwrite(tx: Transaction, owner: Owner, position: int, body: Mapping[str, Any]) -> None:
    """Put another state in the place of one that must not be read any more."""
    tx.run(
        "UPDATE log SET body = ?, request = NULL, reason = ? "
        "WHERE space = ? AND owner = ? AND position = ?",
        (encode(body), OVERWRITTEN, *owner, position),
    )


def from_session(tx: Transaction, owner: Owner, session: str) -> list[str]:
    """The memories that some version came to from this session."""
    return [
        row[0]
        for row in tx.all(
            "SELECT DISTINCT memory FROM log WHERE space = ? AND owner = ? AND origin_session = ? "
            "AND memory IS NOT NULL ORDER BY memory",
            (*owner, session),
        )
    ]


def last_position(tx: Transaction, owner: Owner) -> int:
    row = tx.one("SELECT position FROM counters WHERE space = ?", (owner.space,))
    return 0 if row is None else row[0]


def position_at(tx: Transaction, owner: Owner, time: int) -> int:
    """The last position of the space recorded at or before a time."""
    with tx.across_owners():
        row = tx.one(
            "SELECT position FROM log WHERE space = ? AND recorded_at <= ? "
            "ORDER BY position DESC LIMIT 1",
            (owner.space, time),
        )
    return 0 if row is None else row[0]


def time_at(tx: Transaction, owner: Owner, position: int) -> int:
    """When the last entry of the space at or before a position was recorded."""
    with tx.across_owners():
        row = tx.one(
            "SELECT recorded_at FROM log WHERE space = ? AND position <= ? "
            "ORDER BY position DESC LIMIT 1",
            (owner.space, position),
        )
    return 0 if row is None else row[0]


def time_of(tx: Transaction, owner: Owner, position: int) -> int:
    """When the entry of an owner at a position was recorded."""
    row = tx.one(
        "SELECT recorded_at FROM log WHERE space = ? AND owner = ? AND position = ?",
        (*owner, position),
    )
    return 0 if row is None else row[0]


def origins_at(tx: Transaction, owner: Owner, position: int) -> dict[str, Origin]:
    """The event that each memory came from by then, as its newest version with one says."""
    rows = tx.all(
        "SELECT memory, origin_session, origin_sequence FROM log WHERE space = ? AND owner = ? "
        "AND position <= ? AND memory IS NOT NULL AND origin_session IS NOT NULL ORDER BY position",
        (*owner, position),
    )
    return {memory: Origin(session, sequence) for memory, session, sequence in rows}


def states_at(tx: Transaction, owner: Owner, position: int) -> Iterator[tuple[int, Entry]]:
    """The version each memory had at a position, forgotten ones included, with its birth."""
    columns = ", ".join(f"l.{name}" for name in _COLUMNS.split(", "))
    rows = tx.all(
        f"SELECT g.born, {columns} FROM (SELECT MIN(position) AS born, MAX(position) AS last "
        "FROM log WHERE space = ? AND owner = ? AND position <= ? AND memory IS NOT NULL "
        "GROUP BY memory) g JOIN log l ON l.position = g.last "
        "WHERE l.space = ? AND l.owner = ? ORDER BY g.born",
        (*owner, position, *owner),
    )
    for born, *row in rows:
        entry = _entry(tuple(row))
        if entry.body is not None and entry.op != "erase":
            yield born, entry


def entries(tx: Transaction, owner: Owner, after: int, end: int, limit: int) -> list[Entry]:
    """The next entries behind a position, in order."""
    return [
        _entry(row)
        for row in tx.all(
            f"SELECT {_COLUMNS} FROM log WHERE space = ? AND owner = ? AND position > ? "
            f"AND position <= ? ORDER BY position LIMIT {int(limit)}",
            (*owner, after, end),
        )
    ]


def count_behind(tx: Transaction, owner: Owner, position: int) -> int:
    """How many entries stand behind a position."""
    row = tx.one(
        "SELECT COUNT(*) FROM log WHERE space = ? AND owner = ? AND position > ?",
        (*owner, position),
    )
    return 0 if row is None else int(row[0])


def all_entries(
    tx: Transaction, owner: Owner, upto: int | None = None, after: int = 0
) -> Iterator[Entry]:
    """Every entry behind a position and up to another, in order."""
    end = last_position(tx, owner) if upto is None else upto
    while found := entries(tx, owner, after, end, 1000):
        yield from found
        after = found[-1].position


def _first(rows: list[Row]) -> Entry | None:
    return _entry(rows[0]) if rows else None


def _entry(row: Row) -> Entry:
    (
        position,
        op,
        recorded_at,
        actor,
        trust,
        reason,
        origin_session,
        origin_sequence,
        key,
        request,
        memory,
        version,
        uuid,
        session,
        sequence,
        body,
    ) = row
    return Entry(
        position=position,
        op=op,
        recorded_at=recorded_at,
        actor=actor,
        trust=trust,
        reason=reason,
        origin=None if origin_session is None else Origin(origin_session, origin_sequence),
        key=key,
        request=request,
        memory=memory or "",
        version=version or 0,
        uuid=uuid,
        body=None if body is None else json.loads(body),
        session=session,
        sequence=sequence,
    )
