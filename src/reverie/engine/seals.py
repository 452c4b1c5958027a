"""Seals: how a stored row proves that it still says what was written.

An entry of the log has four columns for it:

``salt``    random; dropped when the entry is erased, so that nothing can be guessed from hashes
``digest``  a hash, keyed with the salt, of the content first written (body, reason, request)
``chain``   a hash of the chain of the entry before it in its space, of its header and its digest
``seal``    a hash of the header, of the two above and of the content as it is now

A reader checks the seal of the one row it has. Checking a chain needs all rows before it, which is
what ``verify`` does; the newest chain is also kept in ``counters``, so that a log whose end was cut
off is detected. Erasing or overwriting the content of an entry leaves digest and chain as they are
and seals the row again.

Other rows that hold text of their own (names, summaries, scratchpads, recall notes, tokens) have
one seal over all of their values.
"""

from __future__ import annotations

import json
import os
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from reverie.protocols import Owner, Progress, Row

# The chain before the first entry of a space, and the digest of erased content.
NO_CHAIN = ""
ERASED = ""
_HASH_BYTES = 16
_HASH_CHARS = 22

_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# The columns of an entry that never change, in the order in which they are hashed.
HEADER_COLUMNS = (
    "space, position, owner, op, recorded_at, schema, actor, trust, origin_session, "
    "origin_sequence, key, memory, version, uuid, session, sequence"
)
_FIRST_STATE_COLUMNS = (
    "space, owner, session, frozen, epoch, upper, summary, scratchpad, scratched_at"
)
STATE_COLUMNS = f"{_FIRST_STATE_COLUMNS}, often"
RECALL_COLUMNS = "space, owner, recall, at, query, session, sequence, hits"


class Erasable(NamedTuple):
    """The columns of an entry that can be erased."""

    body: str | None
    reason: str | None
    request: str | None


class Seal(NamedTuple):
    """The columns by which an entry proves that it is unchanged."""

    salt: str | None
    digest: str
    chain: str
    seal: str


# All columns of an entry, in the order in which it is inserted.
ENTRY_COLUMNS = (*HEADER_COLUMNS.split(", "), *Erasable._fields, *Seal._fields)


def new_salt() -> str:
    return _base64(os.urandom(_HASH_BYTES))


def encode_header(values: Sequence[Any]) -> str:
    """The values of ``HEADER_COLUMNS`` in the form that is hashed."""
    return _as_json(values)


def content_digest(salt: str | None, content: Erasable) -> str:
    """The salted hash of an entry's erasable content; ``ERASED`` without a salt."""
    if salt is None:
        return ERASED
    body, reason, request = content
    # JSON has no zero byte, so one marks the end of the body, and two that there is none.
    text = "\0\0" if body is None else f"{body}\0"
    if reason is not None or request is not None:
        text += _as_json([reason, request])
    return _hash(text, salt.encode()[:64])


def chain_hash(before: str, header: str, digest: str) -> str:
    """The chain of an entry; ``before`` is that of the entry before it."""
    return _hash(f"{before}\n{digest}\n{header}")


def entry_seal(header: str, digest: str, chain: str, now: str) -> str:
    """The hash that proves a row on its own. ``now`` is the digest of its current content."""
    return _hash(f"{digest}\n{chain}\n{now}\n{header}")


def seal_entry(before: str, values: Sequence[Any], content: Erasable) -> Seal:
    """The seal of a new entry."""
    header, salt = encode_header(values), None if content == (None, None, None) else new_salt()
    digest = content_digest(salt, content)
    chain = chain_hash(before, header, digest)
    return Seal(salt, digest, chain, entry_seal(header, digest, chain, digest))


def reseal_entry(values: Sequence[Any], seal: Seal, content: Erasable) -> Seal:
    """The seal of an entry whose content is replaced, or erased."""
    salt = None if content == (None, None, None) else new_salt()
    digest_now = content_digest(salt, content)
    return seal._replace(
        salt=salt, seal=entry_seal(encode_header(values), seal.digest, seal.chain, digest_now)
    )


def is_intact(values: Sequence[Any], seal: Seal, content: Erasable) -> bool:
    """Whether an entry is unchanged since it was written or erased."""
    if seal.salt is None and content != (None, None, None):
        return False
    digest_now = content_digest(seal.salt, content)
    return seal.seal == entry_seal(encode_header(values), seal.digest, seal.chain, digest_now)


def row_seal(kind: str, *values: object) -> str:
    """The seal of a row of another table than the log."""
    return _hash(_as_json([kind, *values]))


def head_seal(space: int, position: int, recorded_at: int, chain: str) -> str:
    """The seal of a row of ``counters``: where the log of a space ends."""
    return row_seal("head", space, position, recorded_at, chain)


def state_seal(row: Sequence[Any]) -> str:
    """The seal of a row of ``session_state``, given the values of ``STATE_COLUMNS``.

    The last one, ``often``, was added later: without a value it is not part of the seal.
    """
    return row_seal("state", *(row[:-1] if row[-1] is None else row))


def seal_state(db: Statements, owner: Owner, session: str) -> None:
    """Seal the row of ``session_state`` of a session again after a change."""
    rows = db.all(
        f"SELECT {STATE_COLUMNS} FROM session_state WHERE space = ? AND owner = ? AND session = ?",
        (*owner, session),
    )
    db.many(
        "UPDATE session_state SET seal = ? WHERE space = ? AND owner = ? AND session = ?",
        [(state_seal(row), *owner, session) for row in rows],
    )


def _hash(text: str, key: bytes = b"") -> str:
    data = text.encode("utf-8", "surrogatepass")
    return _base64(blake2b(data, digest_size=_HASH_BYTES, key=key).digest())


def _base64(raw: bytes) -> str:
    return b2a_base64(raw, newline=False)[:_HASH_CHARS].decode()


# -- the upgrade ----------------------------------------------------------------------------------


class Statements(Protocol):
    """The statements that sealing needs of a database; placeholders are ``?``."""

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...


_CHUNK = 1_000


def seal_store(db: Statements, progress: Progress | None = None) -> None:
    """Seal every row of a store without seals, within the transaction of the upgrade."""
    whole, done = int(db.all("SELECT COUNT(*) FROM log")[0][0]), 0

    def sealed_more(entries: int) -> None:
        nonlocal done
        done += entries
        if progress is not None:
            progress(done, whole)

    for (space,) in db.all("SELECT space FROM counters ORDER BY space"):
        seal_log(db, space, sealed_more)
    seal_other_tables(db)


def seal_log(db: Statements, space: int, done: Callable[[int], None] | None = None) -> None:
    """Seal the log of one space, and its row in ``counters``."""
    chain, after = NO_CHAIN, -1
    while rows := db.all(
        f"SELECT {HEADER_COLUMNS}, body, reason, request FROM log WHERE space = ? AND position > ? "
        f"ORDER BY position LIMIT {_CHUNK}",
        (space, after),
    ):
        updates = []
        for row in rows:
            seal = seal_entry(chain, row[:-3], Erasable(*row[-3:]))
            updates.append((*seal, space, row[1]))
            chain, after = seal.chain, row[1]
        db.many(
            "UPDATE log SET salt = ?, digest = ?, chain = ?, seal = ? "
            "WHERE space = ? AND position = ?",
            updates,
        )
        if done is not None:
            done(len(rows))
    db.many(
        "UPDATE counters SET chain = ?, seal = ? WHERE space = ?",
        [
            (chain, head_seal(space, position, recorded_at, chain), space)
            for position, recorded_at in db.all(
                "SELECT position, recorded_at FROM counters WHERE space = ?", (space,)
            )
        ],
    )


def seal_other_tables(db: Statements) -> None:
    """Seal the rows beside the log: names, session states, recall notes and tokens."""
    db.many(
        "UPDATE spaces SET seal = ? WHERE space = ?",
        [(row_seal("space", *row), row[0]) for row in db.all("SELECT space, name FROM spaces")],
    )
    db.many(
        "UPDATE owners SET seal = ? WHERE space = ? AND owner = ?",
        [
            (row_seal("owner", *row), *row[:2])
            for row in db.all("SELECT space, owner, name FROM owners")
        ],
    )
    db.many(
        "UPDATE session_state SET seal = ? WHERE space = ? AND owner = ? AND session = ?",
        [
            (state_seal(row), *row[:3])
            for row in db.all(f"SELECT {_FIRST_STATE_COLUMNS}, NULL FROM session_state")
        ],
    )
    db.many(
        "UPDATE recalls SET seal = ? WHERE space = ? AND owner = ? AND recall = ?",
        [
            (row_seal("recall", *row), *row[:3])
            for row in db.all(f"SELECT {RECALL_COLUMNS} FROM recalls")
        ],
    )
    db.many(
        "UPDATE meta SET value = ? WHERE key = ?",
        [
            (seal_json(key, json.loads(value)), key)
            for key, value in db.all("SELECT key, value FROM meta")
            if key.startswith("token.")
        ],
    )


def seal_json(key: str, values: dict[str, Any]) -> str:
    """Encode an object as JSON with a seal in it; ``key`` is the row it is stored under."""
    return json.dumps({**values, "seal": row_seal(key, values)})


def is_sealed_json(text: object) -> bool:
    """Whether a text looks as if ``seal_json`` wrote it, under whatever key."""
    return isinstance(text, str) and text.startswith("{") and '"seal": "' in text


def unseal_json(key: str, text: str) -> dict[str, Any] | None:
    """Decode an object from ``seal_json`` and drop its seal; None if it was changed."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    seal = values.pop("seal", None)
    return values if seal == row_seal(key, values) else None
