"""Vectors in PostgreSQL: a row each, compared by pgvector within their owner.

Without pgvector they are kept all the same, as arrays of numbers, and wait for it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo

from reverie.engine import vector_math
from reverie.engine.postgres.mean_cache import MeanCache
from reverie.errors import DimensionMismatchError
from reverie.protocols import Owner, Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Numbers, Vector

TABLE = """CREATE TABLE vectors (
    space BIGINT NOT NULL, owner BIGINT NOT NULL, generation BIGINT NOT NULL,
    passage BIGINT NOT NULL, embedding {type} NOT NULL,
    PRIMARY KEY (space, owner, generation, passage))"""
_HEADER = struct.Struct(">HH")
ARRAY_TYPE, VECTOR_TYPE = "real[]", "vector"
CONVERT_TO_VECTOR = (
    f"ALTER TABLE vectors ALTER COLUMN embedding TYPE {VECTOR_TYPE} USING embedding::{VECTOR_TYPE}"
)


class _Dumper(Dumper):
    """A row of numpy as pgvector sends and takes it: two numbers, then its own."""

    format = Format.BINARY

    def dump(self, obj: Vector) -> bytes:
        return _HEADER.pack(len(obj), 0) + obj.astype(">f4").tobytes()


class _Loader(Loader):
    """As it comes: many are read at once."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


def register(connection: Connection[Any], info: TypeInfo) -> None:
    """Let vectors go in and out in binary."""
    dumper = type("VectorDumper", (_Dumper,), {"oid": info.oid})
    connection.adapters.register_dumper(np.ndarray, dumper)
    connection.adapters.register_loader(info.oid, _Loader)


class PostgresVectors:
    """The vectors of one database. ``has_pgvector``: pgvector is there."""

    def __init__(self, *, has_pgvector: bool) -> None:
        self.has_pgvector = has_pgvector
        self._middles = MeanCache()

    def put(self, tx: Any, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        tx.many(
            "INSERT INTO vectors (space, owner, generation, passage, embedding) "
            "VALUES (?, ?, ?, ?, ?) ON CONFLICT (space, owner, generation, passage) "
            "DO UPDATE SET embedding = excluded.embedding",
            [
                (*owner, generation, first + at, self._written(row))
                for at, row in enumerate(rows)
                if row.any()
            ],
        )

    def _written(self, row: Vector) -> Any:
        return row if self.has_pgvector else row.tolist()

    def nearest(
        self,
        tx: Any,
        owner: Owner,
        generation: int,
        query: Vector,
        limit: int,
        allowed: Sequence[int] | None,
        without: Sequence[int],
    ) -> list[tuple[int, float]]:
        mean = self._mean(tx, owner, generation, query)
        if mean is None:
            return []
        narrowed, values = "", list[Any]()
        if allowed is not None:
            narrowed, values = " AND passage = ANY(?::bigint[])", [_array(allowed)]
        if without:
            narrowed += " AND passage <> ALL(?::bigint[])"
            values.append(_array(without))
        # The cosine of what lies between the middle and each: no vector is made for any row.
        direction = query - mean
        direction /= float(np.linalg.norm(direction)) or 1.0
        rows = tx.all(
            "SELECT passage, ((embedding <#> ?) + ?) / NULLIF(embedding <-> ?, 0) AS far "
            f"FROM vectors WHERE space = ? AND owner = ? AND generation = ?{narrowed} "
            f"ORDER BY far, passage DESC LIMIT {int(limit)}",
            (direction, float(mean @ direction), mean, *owner, generation, *values),
        )
        numbers = np.array([row[0] for row in rows], np.int64)
        # What lies in the middle itself is like nothing.
        scores = np.array([-(row[1] or 0.0) for row in rows], np.float64)
        return vector_math.top_k(scores, limit, numbers)

    def similar(
        self, tx: Any, owner: Owner, generation: int, query: Vector, numbers: Numbers
    ) -> NDArray[np.float64]:
        mean = self._mean(tx, owner, generation, query)
        rows = self.of(tx, owner, generation, numbers)
        if mean is None or not rows.shape[1]:
            return np.full(len(numbers), -np.inf)
        return vector_math.exact_cosine(rows, mean, query)

    def of(self, tx: Any, owner: Owner, generation: int, numbers: Numbers) -> Matrix:
        rows = tx.all(
            "SELECT passage, embedding FROM vectors "
            "WHERE space = ? AND owner = ? AND generation = ? AND passage = ANY(?::bigint[])",
            (*owner, generation, _array(numbers.tolist())),
            binary=True,
        )
        if not rows:
            return np.zeros((len(numbers), 0), np.float32)
        read = _matrix(rows)
        found = np.zeros((len(numbers), read.shape[1]), np.float32)
        places = {row[0]: at for at, row in enumerate(rows)}
        for at, number in enumerate(numbers.tolist()):
            if number in places:
                found[at] = read[places[number]]
        return found

    def _mean(self, tx: Any, owner: Owner, generation: int, query: Vector) -> Vector | None:
        """The middle; in a snapshot it stays where it is."""
        if not self.has_pgvector:
            return None
        key = (owner, generation)
        if tx.writing or key not in tx.means:
            tx.means[key] = self._current_mean(tx, owner, generation)
        mean: Vector | None = tx.means[key]
        if mean is not None and len(mean) != len(query):
            raise DimensionMismatchError(len(mean), len(query))
        return mean

    def _current_mean(self, tx: Any, owner: Owner, generation: int) -> Vector | None:
        def read(first: int, end: int) -> Matrix:
            return _matrix(
                tx.all(
                    "SELECT passage, embedding FROM vectors WHERE space = ? AND owner = ? "
                    "AND generation = ? AND passage >= ? AND passage < ? ORDER BY passage",
                    (*owner, generation, first, end),
                    binary=True,
                )
            )

        return self._middles.current(tx, owner, generation, read, keep=not tx.writing).mean()


def _array(numbers: Sequence[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _matrix(rows: Sequence[Row]) -> Matrix:
    """The second column of these rows."""
    if not rows:
        return np.zeros((0, 0), np.float32)
    if not isinstance(rows[0][1], bytes):
        return np.array([row[1] for row in rows], np.float32)
    packed = np.frombuffer(b"".join([row[1] for row in rows]), np.uint8).reshape(len(rows), -1)
    return np.ascontiguousarray(packed[:, _HEADER.size :]).view(">f4").astype(np.float32)
