"""The index: the current memories, and the passages and terms of memories and events.

Everything here is a view of the log. Passages of one text are numbered consecutively within their
owner and never reuse a number, so that other processes can tell new vectors from old ones.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reverie.engine import conditions, log
from reverie.engine.conditions import Condition, memory_time
from reverie.engine.index_text import MAX_COUNTED, Labels, Passage, memory_passages
from reverie.engine.log import LogEntry
from reverie.engine.schema import MIGRATION_KEY, REPLAY_KEY
from reverie.errors import StoreDamaged, StoreError
from reverie.model import Event, Memory
from reverie.protocols import Owner, Row, Transaction
from reverie.text.analyzer import ANALYZER_IDENTITY
from reverie.text.messages import PARSER_VERSION
from reverie.text.metadata import metadata_scalars
from reverie.text.normalize import subject_key, text_key
from reverie.text.passages import OVERLAP_CHARS, PASSAGE_CHARS
from reverie.text.speech_acts import ACTS_VERSION

# More terms than this do not tell two texts apart any better.
MAX_ASKED = 50
# How many memories with one text are compared with another one of that text.
MAX_OF_CONTENT = 1_000
# The rules that the index was made with: an index of other rules is rebuilt.
INDEX_VERSION = (
    f"{ANALYZER_IDENTITY}, passages {PASSAGE_CHARS}/{OVERLAP_CHARS}/{MAX_COUNTED}, "
    f"{PARSER_VERSION}, memories 3, labels 1, acts {ACTS_VERSION}"
)
# Stands in for INDEX_VERSION while the index is rebuilt. No version of Reverie accepts it, so none
# writes until the rebuild is done; if that is killed, the next open starts it again.
REBUILDING = "being made anew"


class MemoryRow(NamedTuple):
    """A row of ``memories``: the current version of a memory, as the index has it."""

    first_position: int
    memory: str
    position: int
    version: int
    kind: str
    category: str
    subject_key: str | None
    session: str | None
    pinned: int
    at: int
    expires_at: int | None
    forgotten_at: int | None
    content_hash: int
    valid_from: int | None
    valid_to: int | None
    first_passage: int
    passages: int


# The column of first_position is called "born" in every schema.
_COLUMNS = ["born" if name == "first_position" else name for name in MemoryRow._fields]
MEMORY_COLUMNS = ", ".join(_COLUMNS)


class Statistics(NamedTuple):
    """Counts of one owner's index that scoring and the vector caches need."""

    epoch: int
    next_passage: int
    passages: int
    facts: int
    notes: int
    private: int
    touches: int


_STATISTICS_COLUMNS = ", ".join(Statistics._fields)


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on memories and events, applied in SQL before anything is ranked.

    ``condition`` is what a caller's ``where`` asks for. ``memories_only``: no event passes.
    ``sessions`` are the sessions of ``sessions_owner`` whose private memories are included; with
    None (the operator's) the private memories of every session are.
    """

    kinds: tuple[str, ...] = ()
    category: str | None = None
    subject_key: str | None = None
    tags: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    condition: Condition | None = None
    include_forgotten: bool = False
    alive_at: int | None = None
    memories_only: bool = False
    sessions: tuple[str, ...] | None = ()
    sessions_owner: Owner | None = None

    @property
    def has_conditions(self) -> bool:
        """Whether it excludes anything that is visible without a session."""
        return bool(
            self.kinds
            or self.category
            or self.subject_key
            or self.tags
            or self.since is not None
            or self.until is not None
            or self.condition is not None
            or self.memories_only
        )

    @property
    def includes_events(self) -> bool:
        """Whether events can pass: they have no category, subject, tags or validity."""
        named = self.category is not None or self.subject_key is not None or self.tags
        if named or self.memories_only or (self.kinds and "event" not in self.kinds):
            return False
        return self.condition is None or conditions.can_accept_events(self.condition)

    def events_where(self, owner: Owner) -> tuple[str, list[object]]:
        """The SQL condition on ``e`` (events), and its values."""
        parts, values = ["e.space = ?", "e.owner = ?"], list[object](owner)
        if not self.includes_events:
            return "0 = 1", []
        self._add_time_limits("e.at", parts, values)
        if self.condition is not None:
            text, more = conditions.event_sql(self.condition)
            parts.append(f"({text})")
            values += more
        return " AND ".join(parts), values

    def where(self, owner: Owner) -> tuple[str, list[object]]:
        """The SQL condition on ``m`` (memories), and its values."""
        parts, values = ["m.space = ?", "m.owner = ?"], list[object](owner)
        if self.sessions and self.sessions_owner in {None, owner}:
            parts.append(
                f"(m.session IS NULL OR m.session IN ({_placeholders(len(self.sessions))}))"
            )
            values.extend(self.sessions)
        elif self.sessions is not None:
            parts.append("m.session IS NULL")
        if not self.include_forgotten:
            parts.append("m.forgotten_at IS NULL")
        if self.kinds:
            parts.append(f"m.kind IN ({_placeholders(len(self.kinds))})")
            values.extend(self.kinds)
        for column, value in (("category", self.category), ("subject_key", self.subject_key)):
            if value is not None:
                parts.append(f"m.{column} = ?")
                values.append(value)
        for tag in self.tags:
            parts.append(
                "EXISTS (SELECT 1 FROM tags t WHERE t.space = ? AND t.owner = ? AND t.tag = ? "
                "AND t.born = m.born)"
            )
            values.extend((*owner, tag))
        self._add_time_limits("m.at", parts, values)
        if self.condition is not None:
            text, more = conditions.memory_sql(self.condition, owner)
            parts.append(f"({text})")
            values += more
        if self.alive_at is not None:
            parts.append("(m.expires_at IS NULL OR m.expires_at > ?)")
            values.append(self.alive_at)
        return " AND ".join(parts), values

    def _add_time_limits(self, column: str, parts: list[str], values: list[object]) -> None:
        for operator, limit in ((">=", self.since), ("<", self.until)):
            if limit is not None:
                parts.append(f"{column} {operator} ?")
                values.append(limit)

    def accepts(self, memory: Memory) -> bool:
        """Whether a memory passes that is not in the index: a state as of an earlier position.

        Sessions are not checked.
        """
        at = memory_time(memory)
        return (
            (self.include_forgotten or memory.forgotten_at is None)
            and (not self.kinds or memory.kind in self.kinds)
            and (self.category is None or memory.category == self.category)
            and (self.subject_key is None or subject_key(memory.subject) == self.subject_key)
            and set(self.tags) <= set(memory.tags)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
            and (self.alive_at is None or not memory.is_expired(self.alive_at))
            and (self.condition is None or conditions.accepts_memory(self.condition, memory))
        )

    def accepts_event(self, event: Event) -> bool:
        """Whether an event passes that is not read through the index."""
        return (
            self.includes_events
            and (self.since is None or event.at >= self.since)
            and (self.until is None or event.at < self.until)
            and (self.condition is None or conditions.accepts_event(self.condition, event))
        )


def require_current_index(tx: Transaction, *, replaying: bool = False) -> None:
    """Refuse to write to an index of other rules, or to a store whose migration is unfinished.

    Postings are deleted by analysing the text again, which needs the rules that wrote them. With
    ``replaying`` the caller replays a vault's log, and may write before all of it is replayed.
    """
    rows: dict[str, str] = dict(
        tx.all(
            "SELECT key, value FROM meta WHERE key IN ('index', 'generation', 'vault', ?, ?)",
            (MIGRATION_KEY, REPLAY_KEY),
        )
    )
    tx.kept["generation"], tx.kept["vault"] = rows.get("generation"), rows.get("vault")
    if MIGRATION_KEY in rows:
        raise StoreError(
            "a migration into this store was not finished: run 'reverie migrate' again "
            "until it ends"
        )
    if REPLAY_KEY in rows and not replaying:
        raise StoreError(unfinished_rebuild(rows[REPLAY_KEY]))
    if rows.get("index", INDEX_VERSION) != INDEX_VERSION:
        raise StoreError(
            "another version of Reverie has rebuilt or is rebuilding the index: open the store "
            "again, with that version"
        )


def unfinished_rebuild(vault: str) -> str:
    """The message for a store into which only a part of a vault's log was replayed."""
    return (
        f"this store was not wholly made of {vault} yet: run 'reverie vault rebuild {vault}' "
        "again, to the end, or make another store of the vault, wherever that is now (--url)"
    )


# -- writing --------------------------------------------------------------------------------------


class IndexedMemory(NamedTuple):
    """The current version of a memory, to be put into the index."""

    first_position: int
    position: int
    state: Memory
    parts: Sequence[Passage]


def add_memory(
    tx: Transaction,
    owner: Owner,
    first_position: int,
    position: int,
    state: Memory,
    parts: list[Passage],
) -> int:
    """Put the current version of a memory into the index; returns its first passage's number."""
    return add_memories(tx, owner, [IndexedMemory(first_position, position, state, parts)])


def add_memories(tx: Transaction, owner: Owner, memories: Sequence[IndexedMemory]) -> int:
    """Put many memories into the index; returns the number of their first passage.

    Their passages are numbered consecutively from it, in the order of ``memories``.
    """
    unforgotten = [each for each in memories if each.state.forgotten_at is None]
    first = 0
    if unforgotten:
        increments = Counter(
            name for each in unforgotten for name in _counters(each.state.kind, each.state.session)
        )
        first = _insert_passages(
            tx, owner, [(each.first_position, each.parts) for each in unforgotten], increments
        )
    rows, next_passage = [], first
    for each in memories:
        if each.state.forgotten_at is None:
            rows.append(memory_row(*each[:3], next_passage, len(each.parts)))
            next_passage += len(each.parts)
        else:
            rows.append(memory_row(*each[:3], 0, 0))
    _put_memories(tx, owner, rows, [(each.first_position, each.state) for each in memories])
    return first


def update_row(
    tx: Transaction, owner: Owner, place: MemoryRow, position: int, old: Memory, new: Memory
) -> None:
    """Index a new version with the same content and labels: its passages stay as they are."""
    _drop_memory(tx, owner, place.first_position, old)
    row = memory_row(place.first_position, position, new, place.first_passage, place.passages)
    _put_memories(tx, owner, [row], [(place.first_position, new)])


def remove_memory(tx: Transaction, owner: Owner, place: MemoryRow, old: Memory) -> None:
    """Remove a memory from the index, with its vectors."""
    if place.passages:
        counted = _counters(place.kind, place.session)
        parts = memory_passages(old.content, Labels.of(old))
        drop_passages(tx, owner, place.first_passage, parts, counted)
    _drop_memory(tx, owner, place.first_position, old)


def memory_row(
    first_position: int, position: int, state: Memory, first_passage: int, passages: int
) -> MemoryRow:
    """The row of a memory in this state, whose passages have these numbers."""
    return MemoryRow(
        first_position,
        state.id,
        position,
        state.version,
        state.kind,
        state.category,
        subject_key(state.subject),
        state.session,
        int(state.pinned),
        memory_time(state),
        state.expires_at,
        state.forgotten_at,
        content_hash(state.content),
        state.valid_from,
        state.valid_to,
        first_passage,
        passages,
    )


def content_hash(content: str) -> int:
    """Return the hash by which memories with this text are looked up; others may share it."""
    key = text_key(content).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _put_memories(
    tx: Transaction, owner: Owner, rows: Sequence[MemoryRow], states: Sequence[tuple[int, Memory]]
) -> None:
    tx.many(
        f"INSERT INTO memories (space, owner, {MEMORY_COLUMNS}) "
        f"VALUES (?, ?, {_placeholders(len(_COLUMNS))})",
        [(*owner, *row) for row in rows],
    )
    tx.many(
        "INSERT INTO tags (space, owner, tag, born) VALUES (?, ?, ?, ?)",
        [(*owner, tag, first_position) for first_position, state in states for tag in state.tags],
    )
    tx.many(
        "INSERT INTO metadata (space, owner, name, value, born, in_list, text) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (*owner, *row)
            for first_position, state in states
            for row in metadata_rows(first_position, state)
        ],
    )
    # The log names the actor of the first version; a state does not.
    tx.many(
        "UPDATE memories SET actor = COALESCE((SELECT l.actor FROM log l WHERE l.space = ? "
        "AND l.position = ?), '') WHERE space = ? AND owner = ? AND born = ?",
        [(owner.space, row.first_position, *owner, row.first_position) for row in rows],
    )


def metadata_rows(first_position: int, state: Memory) -> list[Row]:
    """The rows of ``metadata`` that a memory has in this state, without the owner."""
    return [
        (each.name, each.value, first_position, int(each.in_list), each.text)
        for each in metadata_scalars(state.metadata)
    ]


def _drop_memory(tx: Transaction, owner: Owner, first_position: int, old: Memory) -> None:
    for tag in old.tags:
        tx.run(
            "DELETE FROM tags WHERE space = ? AND owner = ? AND tag = ? AND born = ?",
            (*owner, tag, first_position),
        )
    tx.many(
        "DELETE FROM metadata WHERE space = ? AND owner = ? AND name = ? AND value = ? "
        "AND born = ?",
        [(*owner, *row[:3]) for row in metadata_rows(first_position, old)],
    )
    tx.run(
        "DELETE FROM memories WHERE space = ? AND owner = ? AND born = ?", (*owner, first_position)
    )


def _counters(kind: str, session: str | None) -> tuple[str, ...]:
    """The columns of ``statistics`` that count a memory that is not forgotten."""
    return (f"{kind}s",) if session is None else (f"{kind}s", "private")


def put_passages(
    tx: Transaction, owner: Owner, first_position: int, parts: Sequence[Passage]
) -> int:
    """Index the passages of one message; returns the number of the first."""
    return _insert_passages(tx, owner, [(first_position, parts)], {})


def _insert_passages(
    tx: Transaction,
    owner: Owner,
    texts: Sequence[tuple[int, Sequence[Passage]]],
    counted: Mapping[str, int],
) -> int:
    """Index the passages of texts, given with their first positions; the number of the first.

    ``counted`` are columns of ``statistics`` and how much to add to each.
    """
    parts = [(first_position, part) for first_position, passages in texts for part in passages]
    increments = "".join(f", {name} = {name} + ?" for name in counted)
    row = tx.one(
        "UPDATE statistics SET next_passage = next_passage + ?, "
        f"passages = passages + ?{increments} WHERE space = ? AND owner = ? RETURNING next_passage",
        (len(parts), len(parts), *counted.values(), *owner),
    )
    assert row is not None
    first = int(row[0]) - len(parts)
    tx.many(
        "INSERT INTO passages (space, owner, passage, born, start, length, terms) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (*owner, number, first_position, part.start, len(part.text), part.length)
            for number, (first_position, part) in enumerate(parts, first)
        ),
    )
    # Sorted by key, so that neighbouring rows fall into the same pages.
    postings = defaultdict[str, list[tuple[int, int]]](list)
    for number, (_, part) in enumerate(parts, first):
        posting = (number, part.length)
        for term in part.terms:
            postings[term].append(posting)
    tx.many(
        "INSERT INTO postings (space, owner, term, passage, len) VALUES (?, ?, ?, ?, ?)",
        (
            (owner.space, owner.number, term, number, length)
            for term in sorted(postings)
            for number, length in postings[term]
        ),
    )
    return first


def drop_passages(
    tx: Transaction,
    owner: Owner,
    first: int,
    parts: Sequence[Passage],
    counters: tuple[str, ...] = (),
) -> None:
    """Remove the passages of one text from the index, with their vectors.

    ``counters`` are the columns of ``statistics`` that counted the text.
    """
    numbers = range(first, first + len(parts))
    tx.many(
        "DELETE FROM postings WHERE space = ? AND owner = ? AND term = ? AND passage = ?",
        [
            (*owner, term, number)
            for number, part in zip(numbers, parts, strict=True)
            for term in part.terms
        ],
    )
    tx.run(
        "DELETE FROM passages WHERE space = ? AND owner = ? AND passage BETWEEN ? AND ?",
        (*owner, numbers[0], numbers[-1]),
    )
    tx.run(
        "DELETE FROM unembedded WHERE space = ? AND owner = ? AND passage BETWEEN ? AND ?",
        (*owner, numbers[0], numbers[-1]),
    )
    tx.clear_vectors(owner, numbers[0], len(numbers))
    mark_vectors_changed(tx, owner, numbers)
    decrements = "".join(f", {name} = {name} - 1" for name in counters)
    tx.run(
        f"UPDATE statistics SET passages = passages - ?{decrements} WHERE space = ? AND owner = ?",
        (len(parts), *owner),
    )


def mark_vectors_changed(tx: Transaction, owner: Owner, numbers: Sequence[int]) -> None:
    """Record in ``touched`` that these vectors changed, for the caches of other processes."""
    row = tx.one(
        "UPDATE statistics SET touches = touches + ? WHERE space = ? AND owner = ? "
        "RETURNING touches",
        (len(numbers), *owner),
    )
    assert row is not None
    tx.many(
        "INSERT INTO touched (space, owner, touch, passage) VALUES (?, ?, ?, ?)",
        [(*owner, row[0] - i, number) for i, number in enumerate(numbers)],
    )


# -- reading --------------------------------------------------------------------------------------


def find(tx: Transaction, owner: Owner, memory: str) -> MemoryRow | None:
    """Find a memory of this owner by its id."""
    first_position = "(SELECT position FROM log WHERE space = ? AND memory = ? AND version = 1)"
    return _find_one(tx, owner, f"born = {first_position}", owner.space, memory)


def find_by_first_position(tx: Transaction, owner: Owner, first_position: int) -> MemoryRow | None:
    """Find a memory by the position of its first version."""
    return _find_one(tx, owner, "born = ?", first_position)


def find_subject(
    tx: Transaction, owner: Owner, category: str, key: str, now: int, session: str | None = None
) -> MemoryRow | None:
    """The newest memory of a category and subject that is neither forgotten nor expired.

    Only the private memories of ``session``, or with None only those that are not private.
    """
    of_session, values = ("IS NULL", ()) if session is None else ("= ?", (session,))
    return _find_one(
        tx,
        owner,
        f"category = ? AND subject_key = ? AND forgotten_at IS NULL AND session {of_session} "
        "AND (expires_at IS NULL OR expires_at > ?) ORDER BY born DESC LIMIT 1",
        *(category, key, *values, now),
    )


def find_by_subject(
    tx: Transaction, owner: Owner, key: str, now: int, session: str | None, limit: int
) -> list[MemoryRow]:
    """The memories of a subject, of any category, the newest first.

    Only those that are neither forgotten nor expired; private ones only of ``session``.
    """
    own, values = ("", ()) if session is None else (" OR session = ?", (session,))
    return _find_all(
        tx,
        owner,
        f"subject_key = ? AND forgotten_at IS NULL AND (session IS NULL{own}) "
        f"AND (expires_at IS NULL OR expires_at > ?) ORDER BY born DESC LIMIT {int(limit)}",
        *(key, *values, now),
    )


def has_private_memory(tx: Transaction, owner: Owner, session: str) -> bool:
    """Whether a memory, even a forgotten one, is private to this session."""
    row = tx.one(
        "SELECT 1 FROM memories WHERE space = ? AND owner = ? AND session = ? LIMIT 1",
        (*owner, session),
    )
    return row is not None


def find_by_content(tx: Transaction, owner: Owner, content: str, now: int) -> list[MemoryRow]:
    """The memories that may have this content, compared by ``text_key``, the newest first.

    Only those that are neither forgotten nor expired.
    """
    return _find_all(
        tx,
        owner,
        "content_hash = ? AND forgotten_at IS NULL AND (expires_at IS NULL OR expires_at > ?) "
        f"ORDER BY born DESC LIMIT {MAX_OF_CONTENT}",
        *(content_hash(content), now),
    )


def _find_all(tx: Transaction, owner: Owner, where: str, *values: object) -> list[MemoryRow]:
    rows = tx.all(
        f"SELECT {MEMORY_COLUMNS} FROM memories WHERE space = ? AND owner = ? AND {where}",
        (*owner, *values),
    )
    return [MemoryRow(*row) for row in rows]


def _find_one(tx: Transaction, owner: Owner, where: str, *values: object) -> MemoryRow | None:
    row = tx.one(
        f"SELECT {MEMORY_COLUMNS} FROM memories WHERE space = ? AND owner = ? AND {where}",
        (*owner, *values),
    )
    return None if row is None else MemoryRow(*row)


def list_memories(
    tx: Transaction,
    owner: Owner,
    chosen: Filter,
    limit: int | None = None,
    before: int | None = None,
) -> list[MemoryRow]:
    """The memories that pass a filter, the newest first; ``before`` is a first position."""
    where, values = chosen.where(owner)
    before_condition = "" if before is None else f" AND m.born < {int(before)}"
    limit_clause = "" if limit is None else f" LIMIT {int(limit)}"
    rows = tx.all(
        f"SELECT {MEMORY_COLUMNS} FROM memories m WHERE {where}{before_condition} "
        f"ORDER BY m.born DESC{limit_clause}",
        values,
    )
    return [MemoryRow(*row) for row in rows]


def count_by_category(tx: Transaction, owner: Owner, chosen: Filter) -> dict[str, int]:
    """The number of memories of each category that pass a filter."""
    where, values = chosen.where(owner)
    query = f"SELECT m.category, COUNT(*) FROM memories m WHERE {where} GROUP BY m.category"
    return {category: int(number) for category, number in tx.all(query, values)}


def count_by_actor(tx: Transaction, owner: Owner, kind: str, actor: str | None) -> int:
    """The number of memories of a kind that an actor remembered and that are not forgotten."""
    row = tx.one(
        "SELECT COUNT(*) FROM memories WHERE space = ? AND owner = ? AND kind = ? AND actor = ? "
        "AND forgotten_at IS NULL",
        (*owner, kind, actor or ""),
    )
    return 0 if row is None else int(row[0])


def list_actors(tx: Transaction, owner: Owner, kind: str) -> list[str]:
    """Who remembered memories of a kind that are not forgotten; '' for nobody in particular."""
    rows = tx.all(
        "SELECT DISTINCT actor FROM memories WHERE space = ? AND owner = ? AND kind = ? "
        "AND forgotten_at IS NULL ORDER BY actor",
        (*owner, kind),
    )
    return [row[0] for row in rows]


def oldest_unpinned(
    tx: Transaction, owner: Owner, kind: str, actor: str | None, limit: int
) -> list[MemoryRow]:
    """The memories of an actor that a cap on their number forgets first; pinned ones never are."""
    return [
        MemoryRow(*row)
        for row in tx.all(
            f"SELECT {MEMORY_COLUMNS} FROM memories WHERE space = ? AND owner = ? AND kind = ? "
            "AND actor = ? AND forgotten_at IS NULL AND pinned = 0 ORDER BY born LIMIT ?",
            (*owner, kind, actor or "", limit),
        )
    ]


def statistics(tx: Transaction, owner: Owner) -> Statistics:
    """The owner's statistics. A read transaction reads them once and keeps them."""
    if owner in tx.kept:
        kept: Statistics = tx.kept[owner]
        return kept
    row = tx.one(
        f"SELECT {_STATISTICS_COLUMNS} FROM statistics WHERE space = ? AND owner = ?", owner
    )
    current = Statistics(0, 0, 0, 0, 0, 0, 0) if row is None else Statistics(*row)
    if not tx.writing:
        tx.kept[owner] = current
    return current


def check_statistics(tx: Transaction, owner: Owner, found: Statistics) -> None:
    """Refuse damaged statistics: memory is allocated for the number of passages they state."""
    row = tx.one("SELECT MAX(passage) FROM passages WHERE space = ? AND owner = ?", owner)
    last = -1 if row is None or row[0] is None else int(row[0])
    # Every dropped passage is listed in touched, so at most that many numbers have no passage.
    if not last < found.next_passage <= last + 1 + found.touches:
        raise StoreDamaged(
            f"the statistics of space number {owner.space} are damaged: run 'reverie rebuild'",
            space=owner.space,
        )


def frequencies(tx: Transaction, owner: Owner, terms: Sequence[str]) -> dict[str, int]:
    """The number of the owner's passages that contain each term; absent terms are left out."""
    if not terms:
        return {}
    rows = tx.all(
        f"WITH q (term) AS (VALUES {', '.join(['(?)'] * len(terms))}) "
        "SELECT q.term, (SELECT COUNT(*) FROM postings p "
        "WHERE p.space = ? AND p.owner = ? AND p.term = q.term) FROM q",
        (*terms, *owner),
    )
    return {row[0]: row[1] for row in rows if row[1]}


def find_containing(
    tx: Transaction, owner: Owner, terms: Collection[str], now: int
) -> list[MemoryRow]:
    """Memories that may contain all of these terms: a passage contains the two rarest.

    Only memories that are not private, forgotten or expired.
    """
    looked_up = sorted(terms)[:MAX_ASKED]
    counts = frequencies(tx, owner, looked_up)
    if not looked_up or len(counts) < len(looked_up):
        return []
    rarest = sorted(counts, key=lambda term: (counts[term], term))[:2]
    columns = ", ".join(f"m.{name}" for name in _COLUMNS)
    rows = tx.all(
        f"SELECT DISTINCT {columns} FROM postings p "
        "JOIN postings o ON o.space = p.space AND o.owner = p.owner AND o.passage = p.passage "
        "JOIN passages s ON s.space = p.space AND s.owner = p.owner AND s.passage = p.passage "
        "JOIN memories m ON m.space = s.space AND m.owner = s.owner AND m.born = s.born "
        "WHERE p.space = ? AND p.owner = ? AND p.term = ? AND o.term = ? "
        "AND m.forgotten_at IS NULL AND m.session IS NULL "
        "AND (m.expires_at IS NULL OR m.expires_at > ?)",
        (*owner, rarest[0], rarest[-1], now),
    )
    return [MemoryRow(*row) for row in rows]


def passage_offsets(tx: Transaction, owner: Owner, numbers: Sequence[int]) -> dict[int, Row]:
    """For each passage its text's first position, and its start and length in the text."""
    offsets: dict[int, Row] = {}
    for i in range(0, len(numbers), 500):
        part = numbers[i : i + 500]
        for passage, first_position, start, length in tx.all(
            "SELECT passage, born, start, length FROM passages WHERE space = ? AND owner = ? "
            f"AND passage IN ({_placeholders(len(part))})",
            (*owner, *part),
        ):
            offsets[passage] = (first_position, start, length)
    return offsets


def find_source_entry(tx: Transaction, owner: Owner, first_position: int) -> LogEntry:
    """The log entry that a passage belongs to: a memory's current version, or an event."""
    row = tx.one(
        "SELECT position FROM memories WHERE space = ? AND owner = ? AND born = ?",
        (*owner, first_position),
    )
    entry = log.find_at_position(tx, owner, first_position if row is None else row[0])
    assert entry is not None
    return entry


def _placeholders(count: int) -> str:
    return ", ".join("?" * count)


class ProfileGroup(NamedTuple):
    """A group of the memories that a profile may show: the pinned ones, or unpinned facts.

    Of the facts either those of some categories, or those of all ``other`` categories.
    """

    pinned: bool = False
    categories: tuple[str, ...] = ()
    other: bool = False

    def accepts(self, memory: Memory) -> bool:
        if self.pinned or memory.pinned or memory.kind != "fact":
            return self.pinned and memory.pinned
        return (memory.category in self.categories) != self.other


# Memories of a profile are not private, forgotten or expired.
_IN_PROFILE = "forgotten_at IS NULL AND session IS NULL AND (expires_at IS NULL OR expires_at > ?)"
_UNPINNED_FACT = "pinned = 0 AND kind = 'fact'"


def profile_memories(
    tx: Transaction, owner: Owner, group: ProfileGroup, before: int, now: int, limit: int
) -> list[MemoryRow]:
    """The newest memories of a group for a profile, the newest first.

    Only memories whose first version is before a position.
    """
    select = f"SELECT {MEMORY_COLUMNS} FROM memories WHERE space = ? AND owner = ? AND"
    end = f"AND born < ? AND {_IN_PROFILE} ORDER BY born DESC LIMIT {int(limit)}"
    values: list[object] = [*owner, *(group.categories if group.other else ()), before, now]
    if group.pinned:
        sql = f"{select} pinned = 1 {end}"
    elif group.other:
        others = f"category NOT IN ({_placeholders(len(group.categories))})"
        sql = f"{select} {_UNPINNED_FACT} AND {others} {end}"
    else:
        # The newest of each category is found by the index, however many memories there are.
        sql = f"{select} {_UNPINNED_FACT} AND category = ? {end}"
        values = [value for name in group.categories for value in (*owner, name, before, now)]
        if len(group.categories) > 1:
            parts = [f"SELECT * FROM ({sql}) AS c{at}" for at in range(len(group.categories))]
            sql = " UNION ALL ".join(parts) + f" ORDER BY born DESC LIMIT {int(limit)}"
    return [MemoryRow(*row) for row in tx.all(sql, values)]


def fact_categories(tx: Transaction, owner: Owner, names: Sequence[str]) -> set[str]:
    """Return those of these categories that have an unpinned fact which is not forgotten."""
    listed = ", ".join(["(?)"] * len(names))
    rows = tx.all(
        f"WITH asked (name) AS (VALUES {listed}) SELECT name FROM asked WHERE EXISTS (SELECT 1 "
        "FROM memories WHERE space = ? AND owner = ? AND category = asked.name "
        f"AND {_UNPINNED_FACT} AND forgotten_at IS NULL)",
        (*names, *owner),
    )
    return {name for (name,) in rows}


def profile_memories_by_id(
    tx: Transaction, owner: Owner, memories: Sequence[str], now: int
) -> list[MemoryRow]:
    """Those of these memories that a profile may show and that are not pinned, in any order."""
    if not memories:
        return []
    first_positions = (
        "SELECT position FROM log WHERE space = ? AND version = 1 "
        f"AND memory IN ({_placeholders(len(memories))})"
    )
    rows = tx.all(
        f"SELECT {MEMORY_COLUMNS} FROM memories WHERE space = ? AND owner = ? "
        f"AND born IN ({first_positions}) AND {_UNPINNED_FACT} AND {_IN_PROFILE}",
        (*owner, owner.space, *memories, now),
    )
    return [MemoryRow(*row) for row in rows]


def changed_since(tx: Transaction, owner: Owner, position: int, now: int) -> list[Row]:
    """Memories that existed at a position and have a newer version since.

    For each the position of its first version, and that of the version it had then. Only memories
    that are not private, forgotten or expired.
    """
    return tx.all(
        "SELECT m.born, (SELECT MAX(l.position) FROM log l WHERE l.space = ? "
        "AND l.owner = ? AND l.memory = m.memory AND l.position <= ?) FROM memories m "
        "WHERE m.space = ? AND m.owner = ? AND m.position > ? AND m.position > m.born "
        "AND m.born <= ? AND m.forgotten_at IS NULL AND m.session IS NULL "
        "AND (m.expires_at IS NULL OR m.expires_at > ?)",
        (*owner, position, *owner, position, position, now),
    )


def state_version(tx: Transaction, owner: Owner) -> tuple[int, ...]:
    """Numbers that differ whenever a memory of this owner was added, changed or erased.

    An added or changed memory has the highest position; an erased one lowers a count.
    """
    counts = statistics(tx, owner)
    # The epoch, because a rebuilt index may have the same counts as the one before it.
    return (counts.epoch, counts.facts, counts.notes, *_newest_positions(tx, owner))


def last_change(tx: Transaction, owner: Owner) -> int:
    """The position at which a memory of this owner was last added or changed, or 0."""
    return max(_newest_positions(tx, owner))


def _newest_positions(tx: Transaction, owner: Owner) -> tuple[int, int]:
    """The position of the newest memory, and that of the newest change of one."""
    row = tx.one(
        "SELECT (SELECT MAX(born) FROM memories WHERE space = ? AND owner = ?), "
        "(SELECT MAX(position) FROM memories WHERE space = ? AND owner = ? AND position > born)",
        (*owner, *owner),
    )
    added, changed = row or (0, 0)
    return added or 0, changed or 0
