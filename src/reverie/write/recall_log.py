"""The log of recalls: notes of what was recalled, buffered and written with the next write.

A recall never waits for its note to be written and never fails because of it. Dreams read them.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from typing import NamedTuple

from reverie.agenda import jobs
from reverie.engine import log, log_rows, seals
from reverie.errors import StoreDamaged
from reverie.model import RecallNote, Scope
from reverie.protocols import Owner, Transaction

MAX_BUFFERED = 1_000
DAY_MS = 24 * 60 * 60_000


class PendingRecall(NamedTuple):
    """One recall: its time, a hash of the query, the ids found, best first, and its event."""

    scope: Scope
    at: int
    query: str
    hits: tuple[str, ...]
    sequence: int | None = None


def read_notes(tx: Transaction, owner: Owner, session: str) -> list[RecallNote]:
    """Read the recalls of a session, in order; damaged rows are left out and counted."""
    found = []
    for *row, seal in tx.all(
        f"SELECT {seals.RECALL_COLUMNS}, seal FROM recalls "
        "WHERE space = ? AND owner = ? AND session = ? ORDER BY recall",
        (*owner, session),
    ):
        if seal != seals.row_seal("recall", *row):
            log_rows.record_damage(tx, _damaged(owner, session))
            continue
        at, sequence, hits = row[3], row[6], row[7]
        found.append(RecallNote(sequence, at, tuple(json.loads(hits))))
    return found


def _damaged(owner: Owner, session: str) -> StoreDamaged:
    return StoreDamaged(
        f"what was recalled in session {session!r} is damaged in part: run 'reverie verify'",
        space=owner.space,
    )


class RecallNotes:
    """The notes that are not written yet. Beyond ``MAX_BUFFERED`` the oldest are dropped."""

    def __init__(self) -> None:
        self._pending: deque[PendingRecall] = deque(maxlen=MAX_BUFFERED)
        self._lock = threading.Lock()

    def add(
        self, scope: Scope, at: int, query: str, hits: tuple[str, ...], sequence: int | None = None
    ) -> None:
        """Buffer the note of one recall; of the query only a hash is kept."""
        digest = hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        with self._lock:
            self._pending.append(PendingRecall(scope, at, digest, hits, sequence))

    def drop(self, scope: Scope) -> None:
        """Drop the buffered notes of one session."""
        with self._lock:
            for note in [note for note in self._pending if note.scope == scope]:
                self._pending.remove(note)

    def waiting(self, scope: Scope) -> list[PendingRecall]:
        """Return the buffered notes of one session, in order."""
        with self._lock:
            return [note for note in self._pending if note.scope == scope]

    def spaces(self) -> set[str]:
        """Return the names of the spaces that have buffered notes."""
        with self._lock:
            return {note.scope.space for note in self._pending}

    def write(self, tx: Transaction, space: str) -> None:
        """Write the buffered notes of one space, and queue the pruning of old ones."""
        with self._lock:
            ready = [note for note in self._pending if note.scope.space == space]
            for note in ready:
                self._pending.remove(note)
        for note in ready:
            owner = log.ensure_owner(tx, note.scope.space, note.scope.user)
            (number,) = tx.one(
                "SELECT COALESCE(MAX(recall), 0) + 1 FROM recalls WHERE space = ? AND owner = ?",
                owner,
            ) or (1,)
            what = (note.at, note.query, note.scope.session, note.sequence, json.dumps(note.hits))
            row = (*owner, number, *what)
            tx.run(
                f"INSERT INTO recalls ({seals.RECALL_COLUMNS}, seal) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, seals.row_seal("recall", *row)),
            )
            jobs.add_once(tx, owner, "prune", due_at=note.at + DAY_MS, now=note.at)
