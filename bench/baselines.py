"""What is measured beside Reverie: raw SQLite with FTS5, numpy's product, one statement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np

from reverie.text.analyzer import STOP_WORDS, query_terms

if TYPE_CHECKING:
    from reverie.protocols import Matrix, Vector

CANDIDATES = 50
PRAGMAS = (
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", 2),
    ("temp_store", "MEMORY", 2),
    ("cache_size", "-32768", -32768),
)

TERMS = 8
"""Words of a query that are looked up: the rarest."""

Weights = dict[str, float]


def connected(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    for name, value, expected in PRAGMAS:  # apsw runs one at a time, and ignored ones are mute
        db.execute(f"PRAGMA {name} = {value}").fetchall()
        found = db.execute(f"PRAGMA {name}").fetchall()[0][0]
        assert found == expected, (name, found)
    return db


class Raw:
    """A row and a row of FTS5 in one transaction, synced; nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connected(path)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, text TEXT, vector BLOB)"
        )
        self._db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, tokenize='porter unicode61')"
        )

    def write(self, text: str) -> None:
        self._put([(text, None)])

    def bulk(self, texts: Sequence[str], vectors: Matrix) -> None:
        """Many in one transaction, each with its vector."""
        self._put([(text, row.tobytes()) for text, row in zip(texts, vectors, strict=True)])

    def _put(self, rows: Sequence[tuple[str, bytes | None]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for text, vector in rows:
            self._db.execute("INSERT INTO texts (text, vector) VALUES (?, ?)", (text, vector))
            row = self._db.last_insert_rowid()
            self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (row, text))
        self._db.execute("COMMIT")

    def search(self, query: str) -> list[Any]:
        words = [word for word in query.lower().split() if word not in STOP_WORDS]
        if not words:
            return []
        return self._db.execute(
            f"SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT {CANDIDATES}",
            (" OR ".join(f'"{word}"' for word in words),),
        ).fetchall()

    def close(self) -> None:
        self._db.close()


class Product:
    """The vectors, float32, times that of the query, and the best 50 in order."""

    def __init__(self, rows: Matrix) -> None:
        self._rows = rows

    def nearest(self, query: Vector) -> list[tuple[int, float]]:
        scores = self._rows @ query
        if len(scores) > CANDIDATES:
            best = np.argpartition(scores, -CANDIDATES)[-CANDIDATES:]
        else:
            best = np.arange(len(scores))
        best = best[np.argsort(-scores[best])]
        return list(zip(best.tolist(), scores[best].tolist(), strict=True))


class Keyword:
    """One statement that scores the postings of a store by word, its weights prepared.

    It is fixed here, so that the floor stays where it is however recall itself scores.
    """

    def __init__(self, path: Path, space: str) -> None:
        self._db = connected(path)
        self._space = self._one("SELECT space FROM spaces WHERE name = ?", space)
        # Memories are of the shared owner, events of the one of what is said without a user.
        ((self._owner, self._passages),) = self._db.execute(
            "SELECT owner, passages FROM statistics WHERE space = ? ORDER BY passages DESC LIMIT 1",
            (self._space,),
        ).fetchall()

    def _one(self, sql: str, *values: object) -> Any:
        return self._db.execute(sql, values).fetchall()[0][0]

    def prepare(self, query: str) -> Weights:
        """The rarest terms of a query, and what each weighs."""
        count = "SELECT COUNT(*) FROM postings WHERE space = ? AND owner = ? AND term = ?"
        known = sorted(
            (self._one(count, self._space, self._owner, term), term) for term in query_terms(query)
        )
        return {
            term: math.log(1 + (self._passages - found + 0.5) / (found + 0.5))
            for found, term in [pair for pair in known if pair[0]][:TERMS]
        }

    def run(self, weights: Weights) -> list[Any]:
        if not weights:
            return []
        values = [part for pair in weights.items() for part in pair]
        return self._db.execute(
            f"WITH q (term, weight) AS (VALUES {', '.join(['(?, ?)'] * len(weights))}) "
            "SELECT p.passage, SUM(q.weight / (1.0 + 0.05 * p.len)) AS score "
            "FROM q JOIN postings p ON p.term = q.term WHERE p.space = ? AND p.owner = ? "
            f"GROUP BY p.passage ORDER BY score DESC, p.passage DESC LIMIT {CANDIDATES}",
            (*values, self._space, self._owner),
        ).fetchall()

    def close(self) -> None:
        self._db.close()
