"""Generations of vectors: each comes from one embedding model, and one is current."""

from __future__ import annotations

import json
from typing import NamedTuple

from reverie.errors import DimensionMismatchError, EmbeddingModelChangedError
from reverie.protocols import Embedder, Transaction

CURRENT = "generation"
NEXT = "generation.next"


class Generation(NamedTuple):
    """The number vectors are kept under, whose they are, and their length once it is known."""

    number: int
    identity: str
    dimensions: int | None


def read(tx: Transaction, key: str = CURRENT) -> Generation | None:
    row = tx.one("SELECT value FROM meta WHERE key = ?", (key,))
    return None if row is None else Generation(*json.loads(row[0]))


def write(tx: Transaction, generation: Generation, key: str = CURRENT) -> None:
    tx.run(
        "INSERT INTO meta (key, value) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, json.dumps(generation)),
    )


def require(tx: Transaction, embedder: Embedder) -> Generation | None:
    """The current generation, if any; refuses vectors of another model before they are paid for."""
    current = read(tx)
    if current is not None and current.identity != embedder.identity:
        raise EmbeddingModelChangedError(current.identity, embedder.identity)
    return current


def ensure(tx: Transaction, embedder: Embedder, dimensions: int | None) -> Generation:
    """The current generation, begun by the first write that has an embedder."""
    current = require(tx, embedder)
    if current is None:
        current = Generation(1, embedder.identity, dimensions)
        write(tx, current)
    elif dimensions is not None and current.dimensions is None:
        current = current._replace(dimensions=dimensions)
        write(tx, current)
    elif dimensions is not None and current.dimensions != dimensions:
        raise DimensionMismatchError(current.dimensions or 0, dimensions)
    return current
