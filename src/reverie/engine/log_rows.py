"""Turns rows of the log into entries, after checking each row against its seal.

A row that was changed, or that cannot be decoded, is damaged. ``read_strict`` raises
``StoreDamaged`` for it; ``read_undamaged`` leaves it out and records it in ``Transaction.damaged``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reverie.engine import seals
from reverie.engine.seals import Erasable, Seal
from reverie.errors import StoreDamaged
from reverie.model import Change, Memory, Op, Origin, Trust, Version
from reverie.protocols import Owner, Row, Transaction
from reverie.text.normalize import SURROGATE

logger = logging.getLogger("reverie.damage")

# What is read of an entry: all but the owner, who is known. The last four are the seal.
COLUMNS = ", ".join(name for name in seals.ENTRY_COLUMNS if name not in ("space", "owner"))
INSERT = (
    f"INSERT INTO log ({', '.join(seals.ENTRY_COLUMNS)}) "
    f"VALUES ({', '.join('?' * len(seals.ENTRY_COLUMNS))})"
)
# Stands for the position of an entry whose position cannot be read.
UNKNOWN_POSITION = 0


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log, about a memory (``memory``, ``version``) or about a session."""

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
        """The memory as of this version. Only for entries whose body was not erased."""
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
            # Entries of earlier versions lack what follows.
            metadata=body.get("metadata") or {},
            valid_from=body.get("valid_from"),
            valid_to=body.get("valid_to"),
        )

    def as_version(self) -> Version:
        """The entry as the public ``Version``; without content if it was erased."""
        # The body of an "erase" entry is not a state of the memory.
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
            metadata=body.get("metadata") or {},
            valid_from=body.get("valid_from"),
            valid_to=body.get("valid_to"),
            source=body.get("source"),
        )

    def as_change(self, user: str | None) -> Change:
        """The entry as the public ``Change`` of the live feed."""
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


# Made once: json.dumps would make an encoder for each call.
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(body: Any) -> str:
    """A body as compact JSON that can be stored as UTF-8."""
    text = _as_json(body)
    if not text.isascii() and SURROGATE.search(text):
        # UTF-8 cannot hold a lone surrogate: it is kept as a \u escape.
        return json.dumps(body, ensure_ascii=True, separators=(",", ":"))
    return text


# -- reading --------------------------------------------------------------------------------------


def read_strict(tx: Transaction, owner: Owner, tail: str, values: Sequence[Any]) -> list[LogEntry]:
    """The entries that a statement selects (``tail`` is its text from FROM on).

    Raises StoreDamaged if one of them is damaged.
    """
    entries = []
    for entry in _read_entries(tx, owner, tail, values):
        if isinstance(entry, StoreDamaged):
            raise entry
        entries.append(entry)
    return entries


def read_undamaged(
    tx: Transaction, owner: Owner, tail: str, values: Sequence[Any]
) -> list[LogEntry]:
    """The entries that a statement selects; damaged ones are left out and recorded."""
    entries = []
    for entry in _read_entries(tx, owner, tail, values):
        if isinstance(entry, StoreDamaged):
            record_damage(tx, entry)
        else:
            entries.append(entry)
    return entries


def record_damage(tx: Transaction, damage: StoreDamaged) -> None:
    """Record a damaged entry in ``Transaction.damaged``, and log it the first time."""
    location = (damage.space or 0, damage.position or UNKNOWN_POSITION)
    if location not in tx.damaged:
        tx.damaged.add(location)
        logger.warning("%s", damage)


def _read_entries(
    tx: Transaction, owner: Owner, tail: str, values: Sequence[Any]
) -> Iterator[LogEntry | StoreDamaged]:
    try:
        rows = tx.all(f"SELECT {COLUMNS} {tail}", values)
    except UnicodeDecodeError:
        # A text of one row is not valid UTF-8: read the rows one by one to find which.
        yield from _read_one_by_one(tx, owner, tail, values)
        return
    for row in rows:
        yield _check_row(tx, owner, row)


def _read_one_by_one(
    tx: Transaction, owner: Owner, tail: str, values: Sequence[Any]
) -> Iterator[LogEntry | StoreDamaged]:
    for (position,) in tx.all(f"SELECT position {tail}", values):
        try:
            rows = tx.all(
                f"SELECT {COLUMNS} FROM log WHERE space = ? AND owner = ? AND position = ?",
                (*owner, position),
            )
        except UnicodeDecodeError:
            yield damage_error(tx, owner.space, position, "its text cannot be decoded")
        else:
            yield from (_check_row(tx, owner, row) for row in rows)


def _check_row(tx: Transaction, owner: Owner, row: Row) -> LogEntry | StoreDamaged:
    try:
        log_row = LogRow.from_row(owner, row)
        if log_row.is_intact():
            return log_row.entry()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return damage_error(tx, owner.space, row[0], "it cannot be decoded")
    return damage_error(tx, owner.space, row[0], f"it is not as it was written{_describe_row(row)}")


def _describe_row(row: Row) -> str:
    """What a damaged row seems to be about, for the error message."""
    memory, version, _, session, sequence = row[9:14]
    if memory:
        return f" (memory {memory!s:.40}, version {version})"
    if session:
        return f" (session {session!s:.40}, event {sequence})"
    return ""


def damage_error(tx: Transaction, space: int, position: object, why: str) -> StoreDamaged:
    """The error to raise or record for a damaged entry."""
    at = position if isinstance(position, int) else UNKNOWN_POSITION
    return StoreDamaged(
        f"{f'entry {at}' if at else 'the log'} of space {space_name(tx, space)} is damaged: {why}. "
        "Run 'reverie verify' to see all damage, and 'reverie salvage' to save the rest",
        space=space,
        position=at,
    )


def space_name(tx: Transaction, space: int) -> str:
    """The name of a space for error messages; its number where the name cannot be read."""
    try:
        row = tx.one("SELECT name FROM spaces WHERE space = ?", (space,))
    except UnicodeDecodeError:
        row = None
    return f"number {space}" if row is None else repr(row[0])


class LogRow(NamedTuple):
    """A row of the log, divided into header, erasable content and seal."""

    header: tuple[Any, ...]
    content: Erasable
    seal: Seal

    @classmethod
    def from_row(cls, owner: Owner, row: Row) -> LogRow:
        """Divide the values of ``COLUMNS``."""
        header = (owner.space, row[0], owner.number, *row[1:14])
        return cls(header, Erasable(*row[14:17]), Seal(*row[17:]))

    @property
    def log_key(self) -> tuple[int, int]:
        """Space and position."""
        return self.header[0], self.header[1]

    def is_intact(self) -> bool:
        """Whether the row matches its seal."""
        return seals.is_intact(self.header, self.seal, self.content)

    def entry(self) -> LogEntry:
        """The row decoded as an entry; call it only on an intact row."""
        (_, position, _, op, at, _, actor, trust, from_session, from_sequence, key) = self.header[
            :11
        ]
        memory, version, uuid, session, sequence = self.header[11:]
        body, reason, request = self.content
        return LogEntry(
            position=position,
            op=op,
            recorded_at=at,
            actor=actor,
            trust=trust,
            reason=reason,
            origin=None if from_session is None else Origin(from_session, from_sequence),
            key=key,
            request=request,
            memory=memory or "",
            version=version or 0,
            uuid=uuid,
            body=None if body is None else json.loads(body),
            session=session,
            sequence=sequence,
        )
