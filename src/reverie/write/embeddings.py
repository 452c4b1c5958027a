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
    if key not in tx.kept:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (key,))
        tx.kept[key] = None if row is None else row[0]
    kept = tx.kept[key]
    return None if kept is None else Generation(*json.loads(kept))


def write(tx: Transaction, generation: Generation, key: str = CURRENT) -> None:
    tx.kept.pop(key, None)
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
        # Who begins at the same time is waited for, and has begun it.
        first = json.dumps(Generation(1, embedder.identity, dimensions))
        tx.run(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
            (CURRENT, first),
        )
        del tx.kept[CURRENT]
        current = require(tx, embedder)
        assert current is not None
    if dimensions is not None and current.dimensions is None:
        known = json.dumps(current._replace(dimensions=dimensions))
        tx.run(
            "UPDATE meta SET value = ? WHERE key = ? AND value = ?",
            (known, CURRENT, json.dumps(current)),
        )
        del tx.kept[CURRENT]
        current = require(tx, embedder)
        assert current is not None
    if dimensions is not None and current.dimensions != dimensions:
        raise DimensionMismatchError(current.dimensions or 0, dimensions)
    return current
