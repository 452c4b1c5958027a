"""The log of recalls: notes of what was recalled, buffered and written with the next write.

A recall never waits for its note to be written and never fails because of it. The profile shows
what was recalled often, and dreams read the notes.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from reverie.agenda import jobs
from reverie.engine import log, log_rows, seals
from reverie.errors import StoreDamaged
from reverie.model import RecallNote, Scope
from reverie.protocols import Owner, Row, Transaction
from reverie.write import owners

MAX_BUFFERED = 1_000
DAY_MS = 24 * 60 * 60_000
# What is recalled often is counted in the newest notes, by the first hits of each.
COUNTED_NOTES = 500
COUNTED_HITS = 5
MIN_OFTEN = 2
MAX_OFTEN = 50


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
    for *_, at, _, _, sequence, hits in _intact_rows(
        tx, owner, "session = ? ORDER BY recall", session
    ):
        found.append(RecallNote(sequence, at, tuple(json.loads(hits))))
    return found


def often_recalled(tx: Transaction, owner: Owner, before: int) -> tuple[str, ...]:
    """List the memories that an owner recalled most often before a time, the most often first.

    A recall that was repeated for the same event, as in a loop of tool calls, counts once.
    """
    counted: dict[object, list[str]] = {}
    for *_, recall, _, query, session, sequence, hits in _intact_rows(
        tx, owner, f"at < ? ORDER BY recall DESC LIMIT {COUNTED_NOTES}", before
    ):
        recall_of = recall if sequence is None else (query, session, sequence)
        counted[recall_of] = json.loads(hits)[:COUNTED_HITS]
    # The id of an event has a colon in it.
    counts = Counter(hit for hits in counted.values() for hit in hits if ":" not in hit)
    often = [id for id, times in counts.items() if times >= MIN_OFTEN]
    return tuple(sorted(often, key=lambda id: (-counts[id], id))[:MAX_OFTEN])


def _intact_rows(tx: Transaction, owner: Owner, where: str, value: object) -> Iterator[Row]:
    """Yield the notes of an owner that fulfil a condition; damaged ones are counted."""
    for *row, seal in tx.all(
        f"SELECT {seals.RECALL_COLUMNS}, seal FROM recalls "
        f"WHERE space = ? AND owner = ? AND {where}",
        (*owner, value),
    ):
        if seal == seals.row_seal("recall", *row):
            yield tuple(row)
        else:
            log_rows.record_damage(tx, _damaged(owner, row[5]))


def _damaged(owner: Owner, session: str | None) -> StoreDamaged:
    where = "" if session is None else f" in session {session!r}"
    return StoreDamaged(
        f"some recall notes{where} are damaged: run 'reverie verify'", space=owner.space
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
            session = note.scope.session
            target = owners.NEW_SESSION if session is None else owners.session_target(session)
            # A recall alone creates no owner for what is said without a name.
            owner = owners.find_target(tx, note.scope, target) or log.ensure_owner(
                tx, note.scope.space, note.scope.user
            )
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
