"""The log: positions, entries, and the versions of memories that they hold.

An entry is about a memory or about a session; an event is an entry of its session.

Every function takes the owner whose entries it reads or writes, except for the few that resolve
names to owners or list them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from reverie.engine import log_rows, seals
from reverie.engine.log_rows import LogEntry as LogEntry
from reverie.engine.log_rows import LogRow
from reverie.engine.log_rows import encode as encode
from reverie.engine.seals import Erasable
from reverie.errors import StoreDamaged
from reverie.model import Origin, Scope
from reverie.protocols import Owner, Transaction

SHARED_OWNER = 0
BODY_SCHEMA = 1
OVERWRITTEN_REASON = "what this version said was erased"


# -- names ----------------------------------------------------------------------------------------


def find_space(tx: Transaction, name: str, user: str | None = None) -> int | None:
    """The number of the space of this name; ``user`` is the user looked up next, if any."""
    tx.restrict_to_names(name, user or "")
    row = tx.one("SELECT space, seal FROM spaces WHERE name = ?", (name,))
    if row is None and tx.full_scan_hint:
        # The index of names may be damaged: the table itself still has the name.
        row = tx.one(f"SELECT space, '' FROM spaces{tx.full_scan_hint} WHERE name = ?", (name,))
    if row is None:
        return None
    if row[1] != seals.row_seal("space", row[0], name):
        raise _damaged_name(f"space {name!r}", row[0])
    return int(row[0])


def find_owner(tx: Transaction, space: int, user: str | None) -> Owner | None:
    """Find the owner of a space and user, and restrict the transaction to its rows."""
    tx.enter(Owner(space, SHARED_OWNER))
    if user is None:
        return Owner(space, SHARED_OWNER)
    row = tx.one("SELECT owner, seal FROM owners WHERE space = ? AND name = ?", (space, user))
    if row is None and tx.full_scan_hint:
        full_scan = f"SELECT owner, '' FROM owners{tx.full_scan_hint} WHERE space = ? AND name = ?"
        row = tx.one(full_scan, (space, user))
    if row is None:
        return None
    if row[1] != seals.row_seal("owner", space, row[0], user):
        raise _damaged_name(f"user {user!r}", space)
    owner = Owner(space, row[0])
    tx.enter(owner)
    return owner


def _damaged_name(whose: str, space: int) -> StoreDamaged:
    return StoreDamaged(
        f"the name of {whose} is damaged in the store: run 'reverie verify' to see all damage, and "
        "'reverie salvage' to save the rest",
        space=space,
    )


def resolve_owner(tx: Transaction, scope: Scope) -> Owner | None:
    """The owner of a scope, or None if nothing was ever written to it."""
    space = find_space(tx, scope.space, scope.user)
    return None if space is None else find_owner(tx, space, scope.user)


def ensure_owner(tx: Transaction, name: str, user: str | None) -> Owner:
    """The owner of this space and user; both are created if needed."""
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
        add_owner(tx, owner, user or "")
    return owner


def _add_space(tx: Transaction, name: str, user: str | None) -> int:
    while True:
        number = tx.new_space_number()
        tx.enter(Owner(number, SHARED_OWNER), alone=False)
        # A transaction that creates the same space at this moment is waited for here.
        if tx.run(
            "INSERT INTO spaces (space, name, seal) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (number, name, seals.row_seal("space", number, name)),
        ):
            break
        space = find_space(tx, name, user)
        if space is not None:
            return space
    tx.run(
        "INSERT INTO counters (space, position, recorded_at, job, owner, chain, seal) "
        "VALUES (?, 0, 0, 0, 0, ?, ?)",
        (number, seals.NO_CHAIN, seals.head_seal(number, 0, 0, seals.NO_CHAIN)),
    )
    add_owner(tx, Owner(number, SHARED_OWNER), "")
    return number


def add_owner(tx: Transaction, owner: Owner, name: str) -> None:
    """Write the name of a new owner, and the statistics of its empty index."""
    tx.run(
        "INSERT INTO owners (space, owner, name, seal) VALUES (?, ?, ?, ?)",
        (*owner, name, seals.row_seal("owner", *owner, name)),
    )
    # A restore can bring owner numbers back, but never epochs: no process uses an outdated cache.
    tx.run(
        "INSERT INTO statistics (space, owner, epoch, next_passage, passages, touches, "
        "facts, notes, private) VALUES (?, ?, ?, 0, 0, 0, 0, 0, 0)",
        (*owner, restore_epoch(tx)),
    )


def restore_epoch(tx: Transaction) -> int:
    """A number that grows with every restore of a backup into this store."""
    row = tx.one("SELECT value FROM meta WHERE key = 'lineage'")
    return 0 if row is None else int(row[0])


def scope_of(tx: Transaction, owner: Owner) -> Scope:
    """The space name and user name of an owner."""
    row = tx.one(
        "SELECT s.name, o.name, s.seal, o.seal FROM owners o JOIN spaces s ON s.space = o.space "
        "WHERE o.space = ? AND o.owner = ?",
        owner,
    )
    assert row is not None
    space, user, *row_seals = row
    if row_seals != [
        seals.row_seal("space", owner.space, space),
        seals.row_seal("owner", *owner, user),
    ]:
        raise _damaged_name(f"user {user!r} of space {space!r}", owner.space)
    return Scope(space, user or None)


# -- writing --------------------------------------------------------------------------------------


def advance(tx: Transaction, space: int, now: int) -> tuple[int, int]:
    """Reserve the next position; returns it, and a recorded_at that never runs backwards."""
    return advance_each(tx, Owner(space, SHARED_OWNER), [now])[0]


def advance_each(
    tx: Transaction, owner: Owner, times: Sequence[int], skipped: int = 0
) -> list[tuple[int, int]]:
    """Reserve a position of the space for each of these times; returns (position, recorded_at).

    ``skipped`` is the number of positions that are left free before the first.
    """
    row = tx.one(
        "UPDATE counters SET position = position + ? WHERE space = ? "
        "RETURNING position, recorded_at, chain, seal",
        (skipped + len(times), owner.space),
    )
    assert row is not None
    last, before, chain, seal = row
    head = tx.kept.get(_head_key(owner))
    if head is None:
        _require_head(owner, last - len(times) - skipped, before, chain, seal)
    else:
        assert head[2] is None, "what was advanced for was not appended"
    # append continues the chain from here, and then writes the new end of the log to counters.
    tx.kept[_head_key(owner)] = (chain, before, last)
    return list(enumerate(accumulate((before, *times), max), last - len(times)))[1:]


def _head_key(owner: Owner) -> tuple[str, int]:
    """The key under which ``Transaction.kept`` holds the end of a space's log."""
    return ("head", owner.space)


def _require_head(owner: Owner, position: int, recorded_at: int, chain: str, seal: str) -> None:
    if seal != seals.head_seal(owner.space, position, recorded_at, chain):
        raise StoreDamaged(
            f"the record of where the log of space number {owner.space} ends is damaged: "
            "run 'reverie salvage'",
            space=owner.space,
        )


def advance_to(tx: Transaction, owner: Owner, position: int, now: int) -> tuple[int, int]:
    """Reserve a given position for a replayed entry, or the next one if it was passed already."""
    return advance_each(tx, owner, [now], max(position - 1 - last_position(tx, owner), 0))[0]


def recording_time(tx: Transaction, owner: Owner, now: int) -> int:
    """The recorded_at that ``advance`` will return for this time."""
    row = tx.one("SELECT recorded_at FROM counters WHERE space = ?", (owner.space,))
    return now if row is None else max(now, row[0])


def append(tx: Transaction, owner: Owner, *entries: LogEntry) -> None:
    """Write entries at the positions that ``advance`` reserved, chained to the entry before."""
    if not entries:
        return
    chain, before, last = tx.kept[_head_key(owner)]
    assert entries[-1].position == last, "entries are appended in the order of their positions"
    rows = []
    for entry in entries:
        body = None if entry.body is None else encode(entry.body)
        content = Erasable(body, entry.reason, entry.request)
        header = entry_header(owner, entry)
        seal = seals.seal_entry(chain, header, content)
        chain = seal.chain
        rows.append((*header, *content, *seal))
    tx.many(log_rows.INSERT, rows)
    recorded_at = max(before, entries[-1].recorded_at)
    tx.many(
        "UPDATE counters SET recorded_at = ?, chain = ?, seal = ? WHERE space = ?",
        [(recorded_at, chain, seals.head_seal(owner.space, last, recorded_at, chain), owner.space)],
    )
    tx.kept[_head_key(owner)] = (chain, recorded_at, None)


def entry_header(owner: Owner, entry: LogEntry) -> tuple[Any, ...]:
    """The columns of an entry that never change, in the order of ``seals.HEADER_COLUMNS``."""
    return (
        owner.space,
        entry.position,
        owner.number,
        entry.op,
        entry.recorded_at,
        BODY_SCHEMA,
        entry.actor,
        entry.trust,
        *(entry.origin or (None, None)),
        entry.key,
        entry.memory or None,
        entry.version or None,
        entry.uuid,
        entry.session,
        entry.sequence,
    )


def erase_content(tx: Transaction, owner: Owner, positions: Iterable[int]) -> None:
    """Destroy the body, reason and request of these entries; their headers remain."""
    for position in positions:
        _replace_content(tx, owner, position, Erasable(None, None, None))


def _replace_content(tx: Transaction, owner: Owner, position: int, content: Erasable) -> None:
    """Replace what can be erased of an entry and seal it again; a damaged entry raises."""
    source = "FROM log WHERE space = ? AND owner = ? AND position = ?"
    log_rows.read_strict(tx, owner, source, (*owner, position))
    for row in tx.all(f"SELECT {log_rows.COLUMNS} {source}", (*owner, position)):
        log_row = LogRow.from_row(owner, row)
        seal = seals.reseal_entry(log_row.header, log_row.seal, content)
        tx.run(
            "UPDATE log SET body = ?, reason = ?, request = ?, salt = ?, seal = ? "
            "WHERE space = ? AND owner = ? AND position = ?",
            (*content, seal.salt, seal.seal, *owner, position),
        )


# -- reading --------------------------------------------------------------------------------------


def find_by_key(tx: Transaction, owner: Owner, key: str) -> LogEntry | None:
    """The entry that was written with an idempotency key."""
    return _read_first(
        tx, owner, "FROM log WHERE space = ? AND owner = ? AND key = ?", (*owner, key)
    )


def find_at_position(tx: Transaction, owner: Owner, position: int) -> LogEntry | None:
    """The owner's entry at a position; raises StoreDamaged if it is damaged."""
    return _read_first(
        tx,
        owner,
        "FROM log WHERE space = ? AND position = ? AND owner = ?",
        (owner.space, position, owner.number),
    )


def find_at_positions(
    tx: Transaction, owner: Owner, positions: Sequence[int], *, strict: bool = False
) -> dict[int, LogEntry]:
    """The entries at these positions. Damaged ones are left out, or raise if ``strict``."""
    by_position: dict[int, LogEntry] = {}
    read = log_rows.read_strict if strict else log_rows.read_undamaged
    for i in range(0, len(positions), 500):
        part = positions[i : i + 500]
        for entry in read(
            tx,
            owner,
            "FROM log WHERE space = ? AND owner = ? "
            f"AND position IN ({', '.join('?' * len(part))})",
            (*owner, *part),
        ):
            by_position[entry.position] = entry
    return by_position


def versions(tx: Transaction, owner: Owner, memory: str) -> list[LogEntry]:
    """Every version of a memory of this owner, the oldest first."""
    versions_found = log_rows.read_strict(
        tx,
        owner,
        "FROM log WHERE space = ? AND memory = ? AND owner = ? ORDER BY version",
        (owner.space, memory, owner.number),
    )
    if [entry.version for entry in versions_found] != list(range(1, len(versions_found) + 1)):
        raise log_rows.damage_error(
            tx, owner.space, None, f"versions of memory {memory} are missing"
        )
    return versions_found


def undamaged_versions(
    tx: Transaction, owner: Owner, memories: Sequence[str]
) -> dict[str, list[LogEntry]]:
    """The versions of memories of this owner, the oldest first, without damaged ones."""
    found: dict[str, list[LogEntry]] = {}
    for i in range(0, len(memories), 500):
        part = memories[i : i + 500]
        for entry in log_rows.read_undamaged(
            tx,
            owner,
            "FROM log WHERE space = ? AND owner = ? "
            f"AND memory IN ({', '.join('?' * len(part))}) ORDER BY position",
            (*owner, *part),
        ):
            found.setdefault(entry.memory, []).append(entry)
    return found


def has_versions(tx: Transaction, owner: Owner, memory: str) -> bool:
    """Whether the owner has, or had before it was erased, a memory with this id."""
    row = tx.one(
        "SELECT 1 FROM log WHERE space = ? AND owner = ? AND memory = ? LIMIT 1", (*owner, memory)
    )
    return row is not None


def id_taken(tx: Transaction, owner: Owner, memory: str) -> bool:
    """Whether any owner of the space has or had a memory of this id."""
    return bool(ids_taken(tx, owner, [memory]))


def ids_taken(tx: Transaction, owner: Owner, memories: Sequence[str]) -> set[str]:
    """Those of these ids that any owner of the space has or had a memory of."""
    taken: set[str] = set()
    with tx.across_owners():
        for i in range(0, len(memories), 500):
            part = memories[i : i + 500]
            placeholders = ", ".join("?" * len(part))
            rows = tx.all(
                f"SELECT memory FROM log WHERE space = ? AND memory IN ({placeholders})",
                (owner.space, *part),
            )
            taken.update(row[0] for row in rows)
    return taken


def session_entries(tx: Transaction, owner: Owner, session: str) -> list[LogEntry]:
    """Every entry about a session, in order."""
    return log_rows.read_strict(
        tx,
        owner,
        "FROM log WHERE space = ? AND owner = ? AND session = ? ORDER BY position",
        (*owner, session),
    )


def has_session_entry(
    tx: Transaction, owner: Owner, session: str, sequence: int | None, uuid: str
) -> bool:
    """Whether the session has an entry of this sequence and uuid."""
    condition, values = ("IS NULL", ()) if sequence is None else ("= ?", (sequence,))
    row = tx.one(
        f"SELECT 1 FROM log WHERE space = ? AND owner = ? AND session = ? AND sequence {condition} "
        "AND uuid = ? LIMIT 1",
        (*owner, session, *values, uuid),
    )
    return row is not None


def person_changes_since(
    tx: Transaction, owner: Owner, position: int
) -> list[tuple[str, str | None]]:
    """What a person revised, forgot or erased after a position: (op, memory) of each entry."""
    rows = tx.all(
        "SELECT op, memory FROM log WHERE space = ? AND owner = ? AND position > ? "
        "AND trust = 'person' AND op IN ('revise', 'forget', 'erase')",
        (*owner, position),
    )
    return [(row[0], row[1]) for row in rows]


def entries_by_actor(tx: Transaction, owner: Owner, position: int, actor: str) -> list[LogEntry]:
    """The versions of memories that an actor wrote after a position, in order."""
    return log_rows.read_undamaged(
        tx,
        owner,
        "FROM log WHERE space = ? AND owner = ? AND position > ? AND actor = ? "
        "AND memory IS NOT NULL ORDER BY position",
        (*owner, position, actor),
    )


def session_appends(
    tx: Transaction, owner: Owner, session: str, first: int, count: int
) -> list[LogEntry]:
    """At most ``count`` events of a session from a sequence on, erased ones included."""
    return log_rows.read_strict(
        tx,
        owner,
        "FROM log WHERE space = ? AND owner = ? AND session = ? "
        f"AND sequence >= ? AND op = 'append' ORDER BY sequence, position LIMIT {int(count)}",
        (*owner, session, first),
    )


def overwrite(tx: Transaction, owner: Owner, position: int, body: Mapping[str, Any]) -> None:
    """Replace the body of an entry whose text was erased from a memory's history."""
    _replace_content(tx, owner, position, Erasable(encode(body), OVERWRITTEN_REASON, None))


def memories_from_session(tx: Transaction, owner: Owner, session: str) -> list[str]:
    """The ids of the memories that have a version whose origin is this session."""
    return [
        row[0]
        for row in tx.all(
            "SELECT DISTINCT memory FROM log WHERE space = ? AND owner = ? AND origin_session = ? "
            "AND memory IS NOT NULL ORDER BY memory",
            (*owner, session),
        )
    ]


def last_position(tx: Transaction, owner: Owner) -> int:
    """The position of the newest entry of the owner's space; 0 if there is none."""
    row = tx.one(
        "SELECT position, recorded_at, chain, seal FROM counters WHERE space = ?", (owner.space,)
    )
    if row is None:
        return 0
    if _head_key(owner) not in tx.kept:
        _require_head(owner, *row)
    return int(row[0])


def position_at(tx: Transaction, owner: Owner, time: int) -> int:
    """The last position of the space recorded at or before a time."""
    with tx.across_owners():
        row = tx.one(
            "SELECT position FROM log WHERE space = ? AND recorded_at <= ? "
            "ORDER BY position DESC LIMIT 1",
            (owner.space, time),
        )
    return 0 if row is None else row[0]


def recorded_time_at(tx: Transaction, owner: Owner, position: int) -> int:
    """When the last entry of the space at or before a position was recorded."""
    with tx.across_owners():
        row = tx.one(
            "SELECT recorded_at FROM log WHERE space = ? AND position <= ? "
            "ORDER BY position DESC LIMIT 1",
            (owner.space, position),
        )
    return 0 if row is None else row[0]


def entry_time(tx: Transaction, owner: Owner, position: int) -> int:
    """When the entry of an owner at a position was recorded."""
    row = tx.one(
        "SELECT recorded_at FROM log WHERE space = ? AND owner = ? AND position = ?",
        (*owner, position),
    )
    return 0 if row is None else row[0]


def origins_at(tx: Transaction, owner: Owner, position: int) -> dict[str, Origin]:
    """The origin of each memory as of a position: the event that its newest version with one names.

    An origin that is a session alone names no event.
    """
    rows = tx.all(
        "SELECT memory, origin_session, origin_sequence FROM log WHERE space = ? AND owner = ? "
        "AND position <= ? AND memory IS NOT NULL AND origin_session IS NOT NULL "
        "AND origin_sequence > 0 ORDER BY position",
        (*owner, position),
    )
    return {memory: Origin(session, sequence) for memory, session, sequence in rows}


def states_at(tx: Transaction, owner: Owner, position: int) -> Iterator[tuple[int, LogEntry]]:
    """The version each memory had at a position, forgotten ones included.

    Yields the position of the memory's first version, and the entry.
    """
    first_and_last: list[tuple[int, int]] = sorted(
        (first_position, last)
        for first_position, last in tx.all(
            "SELECT MIN(position), MAX(position) FROM log WHERE space = ? AND owner = ? "
            "AND position <= ? AND memory IS NOT NULL GROUP BY memory",
            (*owner, position),
        )
    )
    for i in range(0, len(first_and_last), 500):
        part = first_and_last[i : i + 500]
        by_position = find_at_positions(tx, owner, [last for _, last in part])
        for first_position, last in part:
            entry = by_position.get(last)
            if entry is not None and entry.body is not None and entry.op != "erase":
                yield first_position, entry


def entries(
    tx: Transaction, owner: Owner, after: int, end: int, limit: int, *, skip: bool = False
) -> list[LogEntry]:
    """The next entries after a position, in order. Damaged ones raise, unless ``skip``."""
    read = log_rows.read_undamaged if skip else log_rows.read_strict
    return read(
        tx,
        owner,
        "FROM log WHERE space = ? AND owner = ? AND position > ? AND position <= ? "
        f"ORDER BY position LIMIT {int(limit)}",
        (*owner, after, end),
    )


def count_after(tx: Transaction, owner: Owner, position: int) -> int:
    """The number of the owner's entries after a position."""
    row = tx.one(
        "SELECT COUNT(*) FROM log WHERE space = ? AND owner = ? AND position > ?",
        (*owner, position),
    )
    return 0 if row is None else int(row[0])


def all_entries(
    tx: Transaction,
    owner: Owner,
    upto: int | None = None,
    after: int = 0,
    *,
    skip: bool = False,
) -> Iterator[LogEntry]:
    """Every entry from ``after`` (exclusive) up to ``upto``, in order.

    Damaged ones raise, unless ``skip``.
    """
    end = last_position(tx, owner) if upto is None else upto
    while True:
        # Pages are counted in rows: all entries of a page may be damaged and skipped.
        last = page_end(tx, owner, after, end)
        if last is None:
            return
        yield from entries(tx, owner, after, last, 1000, skip=skip)
        after = last


def page_end(tx: Transaction, owner: Owner, after: int, end: int) -> int | None:
    """The position of the last of the next thousand entries after a position."""
    row = tx.one(
        "SELECT MAX(position) FROM (SELECT position FROM log WHERE space = ? AND owner = ? "
        "AND position > ? AND position <= ? ORDER BY position LIMIT 1000) l",
        (*owner, after, end),
    )
    return None if row is None or row[0] is None else int(row[0])


def _read_first(tx: Transaction, owner: Owner, tail: str, values: Sequence[Any]) -> LogEntry | None:
    first_entries = log_rows.read_strict(tx, owner, tail, values)
    return first_entries[0] if first_entries else None


def list_owners(tx: Transaction) -> list[Owner]:
    """Every owner of the store. Needs a transaction that sees all of them."""
    return [Owner(*row) for row in tx.all("SELECT space, owner FROM owners ORDER BY space, owner")]
