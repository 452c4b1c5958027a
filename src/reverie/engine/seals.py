"""Seals: how a stored row proves that it still says what was written.

An entry of the log has four columns for it:

``salt``    random; dropped when the entry is erased, so that nothing can be guessed from hashes
``digest``  a hash, keyed with the salt, of what the entry first said (body, reason, request)
``chain``   a hash of the chain of the entry before it in its space, of its header and its digest
``seal``    a hash of the header, of the two above and of what the entry says now

A reader checks the seal of the one row it has. The chain needs all rows before it and is what
``verify`` walks; the newest one is also kept in ``counters``, so that a cut end is seen. Erasing or
overwriting what an entry says leaves digest and chain as they are and seals the row again.

Other rows that hold text of their own (names, summaries, scratchpads, recall notes, tokens) have
one seal over all of their values.
"""

from __future__ import annotations

import json
import logging
import os
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from reverie.protocols import Owner, Row

logger = logging.getLogger("reverie.upgrade")

NO_CHAIN = ""
ERASED = ""
_HASH_BYTES = 16
_HASH_CHARS = 22

_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# What of an entry is sealed and never changes, in the order in which it is hashed.
HEADER_COLUMNS = (
    "space, position, owner, op, recorded_at, schema, actor, trust, origin_session, "
    "origin_sequence, key, memory, version, uuid, session, sequence"
)
STATE_COLUMNS = "space, owner, session, frozen, epoch, upper, summary, scratchpad, scratched_at"
RECALL_COLUMNS = "space, owner, recall, at, query, session, sequence, hits"


class Erasable(NamedTuple):
    """What of an entry can be erased."""

    body: str | None
    reason: str | None
    request: str | None


class Seal(NamedTuple):
    """The columns that prove an entry."""

    salt: str | None
    digest: str
    chain: str
    seal: str


def new_salt() -> str:
    return _base64(os.urandom(_HASH_BYTES))


def encode_header(values: Sequence[Any]) -> str:
    """The values of ``HEADER`` as they are hashed."""
    return _as_json(values)


def content_digest(salt: str | None, said: Erasable) -> str:
    """What proves the erasable part of an entry; of one that was erased there is nothing."""
    if salt is None:
        return ERASED
    body, reason, request = said
    # No JSON holds a zero byte: it tells where the body ends, or that there is none.
    text = "\0\0" if body is None else f"{body}\0"
    if reason is not None or request is not None:
        text += _as_json([reason, request])
    return _hash(text, salt.encode()[:64])


def chain_hash(before: str, header: str, digest: str) -> str:
    """The chain of an entry, given that of the entry before it."""
    return _hash(f"{before}\n{digest}\n{header}")


def entry_seal(header: str, digest: str, chain: str, now: str) -> str:
    """What proves a row by itself. ``now`` is the digest of what it says now."""
    return _hash(f"{digest}\n{chain}\n{now}\n{header}")


def seal_entry(before: str, values: Sequence[Any], said: Erasable) -> Seal:
    """The seal of a new entry."""
    header, salt = encode_header(values), None if said == (None, None, None) else new_salt()
    digest = content_digest(salt, said)
    chain = chain_hash(before, header, digest)
    return Seal(salt, digest, chain, entry_seal(header, digest, chain, digest))


def reseal_entry(values: Sequence[Any], seal: Seal, said: Erasable) -> Seal:
    """The seal of an entry that says something else from now on, or nothing any more."""
    salt = None if said == (None, None, None) else new_salt()
    now = content_digest(salt, said)
    return seal._replace(
        salt=salt, seal=entry_seal(encode_header(values), seal.digest, seal.chain, now)
    )


def is_intact(values: Sequence[Any], seal: Seal, said: Erasable) -> bool:
    """Whether an entry is as it was written."""
    if seal.salt is None and said != (None, None, None):
        return False
    now = content_digest(seal.salt, said)
    return seal.seal == entry_seal(encode_header(values), seal.digest, seal.chain, now)


def row_seal(kind: str, *values: object) -> str:
    """The seal of a row that is no entry of the log."""
    return _hash(_as_json([kind, *values]))


def head_seal(space: int, position: int, recorded_at: int, chain: str) -> str:
    """The seal of where the log of a space ends."""
    return row_seal("head", space, position, recorded_at, chain)


def state_seal(row: Sequence[Any]) -> str:
    """The seal of what a session keeps beside its events, by the values of ``STATE``."""
    return row_seal("state", *row)


def seal_state(db: Statements, owner: Owner, session: str) -> None:
    """Seal what a session keeps beside its events, after a change of it."""
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
    """A database in the middle of an upgrade; values are marked with ``?``."""

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...


Progress = Callable[[int, int], None]
_CHUNK = 1_000
# A log of so many entries takes long enough to say how far it is.
_PROGRESS_INTERVAL = 50_000


def log_progress(what: str) -> Progress:
    """Say in the program's log how far the sealing of a long log is."""

    def tell(done: int, whole: int) -> None:
        if whole >= _PROGRESS_INTERVAL and (done % _PROGRESS_INTERVAL < _CHUNK or done == whole):
            logger.warning("sealing %s: %d of %d entries", what, done, whole)

    return tell


def seal_store(db: Statements, progress: Progress | None = None) -> None:
    """Seal all that a store without seals holds, within the transaction of the upgrade."""
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
    """Seal the log of one space, and where it ends."""
    chain, after = NO_CHAIN, -1
    while rows := db.all(
        f"SELECT {HEADER_COLUMNS}, body, reason, request FROM log WHERE space = ? AND position > ? "
        f"ORDER BY position LIMIT {_CHUNK}",
        (space, after),
    ):
        found = []
        for row in rows:
            seal = seal_entry(chain, row[:-3], Erasable(*row[-3:]))
            found.append((*seal, space, row[1]))
            chain, after = seal.chain, row[1]
        db.many(
            "UPDATE log SET salt = ?, digest = ?, chain = ?, seal = ? "
            "WHERE space = ? AND position = ?",
            found,
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
    """Seal what stands beside the log: names, summaries, recall notes and tokens."""
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
            for row in db.all(f"SELECT {STATE_COLUMNS} FROM session_state")
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
    """A JSON object as it is kept under a key, with its seal in it."""
    return json.dumps({**values, "seal": row_seal(key, values)})


def unseal_json(key: str, text: str) -> dict[str, Any] | None:
    """The JSON object that is kept under a key, without its seal; None: it was changed."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    seal = values.pop("seal", None)
    return values if seal == row_seal(key, values) else None
