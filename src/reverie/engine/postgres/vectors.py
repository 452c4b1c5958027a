"""Vectors in PostgreSQL: one row each, compared by pgvector within their owner.

Without pgvector they are stored as arrays, and are compared once pgvector is installed.
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
    """A numpy row in pgvector's binary format: its length, a zero, then the values."""

    format = Format.BINARY

    def dump(self, obj: Vector) -> bytes:
        return _HEADER.pack(len(obj), 0) + obj.astype(">f4").tobytes()


class _Loader(Loader):
    """Leaves a vector as bytes: ``_matrix`` decodes many at once."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


def register(connection: Connection[Any], info: TypeInfo) -> None:
    """Send and receive vectors in binary on this connection."""
    dumper = type("VectorDumper", (_Dumper,), {"oid": info.oid})
    connection.adapters.register_dumper(np.ndarray, dumper)
    connection.adapters.register_loader(info.oid, _Loader)


class PostgresVectors:
    """The vectors of one database; without pgvector they are stored but never compared."""

    def __init__(self, *, has_pgvector: bool) -> None:
        self.has_pgvector = has_pgvector
        self._means = MeanCache()

    def put(self, tx: Any, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        """Store the vectors of consecutive passages; a row of zeros is not stored."""
        tx.many(
            "INSERT INTO vectors (space, owner, generation, passage, embedding) "
            "VALUES (?, ?, ?, ?, ?) ON CONFLICT (space, owner, generation, passage) "
            "DO UPDATE SET embedding = excluded.embedding",
            [
                (*owner, generation, first + at, self._column_value(row))
                for at, row in enumerate(rows)
                if row.any()
            ],
        )

    def _column_value(self, row: Vector) -> Any:
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
        centred: bool,
    ) -> list[tuple[int, float]]:
        """The passages most similar to the query, best first; none without pgvector."""
        mean = self._subtracted(tx, owner, generation, query, centred)
        if mean is None:
            return []
        condition, values = "", list[Any]()
        if allowed is not None:
            condition, values = " AND passage = ANY(?::bigint[])", [_array(allowed)]
        if without:
            condition += " AND passage <> ALL(?::bigint[])"
            values.append(_array(without))
        # The cosine after subtracting the mean, without making a vector for each row.
        direction = query - mean
        direction /= float(np.linalg.norm(direction)) or 1.0
        rows = tx.all(
            "SELECT passage, ((embedding <#> ?) + ?) / NULLIF(embedding <-> ?, 0) AS far "
            f"FROM vectors WHERE space = ? AND owner = ? AND generation = ?{condition} "
            f"ORDER BY far, passage DESC LIMIT {int(limit)}",
            (direction, float(mean @ direction), mean, *owner, generation, *values),
        )
        numbers = np.array([row[0] for row in rows], np.int64)
        # A vector equal to the mean has no direction: its score is 0.
        scores = np.array([-(row[1] or 0.0) for row in rows], np.float64)
        return vector_math.top_k(scores, limit, numbers)

    def similar(
        self,
        tx: Any,
        owner: Owner,
        generation: int,
        query: Vector,
        numbers: Numbers,
        centred: bool,
    ) -> NDArray[np.float64]:
        """The similarity of these passages to the query; -inf for one without a vector."""
        mean = self._subtracted(tx, owner, generation, query, centred)
        rows = self.read(tx, owner, generation, numbers)
        if mean is None or not rows.shape[1]:
            return np.full(len(numbers), -np.inf)
        return vector_math.exact_cosine(rows, mean, query)

    def read(self, tx: Any, owner: Owner, generation: int, numbers: Numbers) -> Matrix:
        """The vectors of these passages, a row of zeros for one that has none."""
        rows = tx.all(
            "SELECT passage, embedding FROM vectors "
            "WHERE space = ? AND owner = ? AND generation = ? AND passage = ANY(?::bigint[])",
            (*owner, generation, _array(numbers.tolist())),
            binary=True,
        )
        if not rows:
            return np.zeros((len(numbers), 0), np.float32)
        stored = _matrix(rows)
        result = np.zeros((len(numbers), stored.shape[1]), np.float32)
        row_of = {row[0]: at for at, row in enumerate(rows)}
        for at, number in enumerate(numbers.tolist()):
            if number in row_of:
                result[at] = stored[row_of[number]]
        return result

    def _subtracted(
        self, tx: Any, owner: Owner, generation: int, query: Vector, centred: bool
    ) -> Vector | None:
        """What is subtracted before vectors are compared: the mean, or zero for a plain cosine."""
        mean = self._mean(tx, owner, generation, query)
        return mean if mean is None or centred else np.zeros_like(query)

    def _mean(self, tx: Any, owner: Owner, generation: int, query: Vector) -> Vector | None:
        """The mean of the owner's vectors; a read transaction computes it once."""
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

        return self._means.current(tx, owner, generation, read, keep=not tx.writing).mean()


def _array(numbers: Sequence[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _matrix(rows: Sequence[Row]) -> Matrix:
    """The vectors in the second column of these rows."""
    if not rows:
        return np.zeros((0, 0), np.float32)
    if not isinstance(rows[0][1], bytes):
        return np.array([row[1] for row in rows], np.float32)
    packed = np.frombuffer(b"".join([row[1] for row in rows]), np.uint8).reshape(len(rows), -1)
    return np.ascontiguousarray(packed[:, _HEADER.size :]).view(">f4").astype(np.float32)
