"""Generations of vectors: the vectors of one embedding model. One generation is current."""

from __future__ import annotations

import json
from typing import NamedTuple

from reverie.errors import DimensionMismatchError, EmbeddingModelChangedError
from reverie.protocols import Embedder, Transaction

CURRENT = "generation"
NEXT = "generation.next"


class Generation(NamedTuple):
    """The number its vectors are stored with, the model, and their length once it is known."""

    number: int
    identity: str
    dimensions: int | None


def read(tx: Transaction, key: str = CURRENT) -> Generation | None:
    """Read the current generation, or the one under another key; None when there is none."""
    if key not in tx.kept:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (key,))
        tx.kept[key] = None if row is None else row[0]
    kept = tx.kept[key]
    return None if kept is None else Generation(*json.loads(kept))


def write(tx: Transaction, generation: Generation, key: str = CURRENT) -> None:
    """Store a generation, as the current one or under another key."""
    tx.kept.pop(key, None)
    tx.run(
        "INSERT INTO meta (key, value) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, json.dumps(generation)),
    )


def require(tx: Transaction, embedder: Embedder) -> Generation | None:
    """Read the current generation; raise EmbeddingModelChangedError if another model made it.

    Callers do so before they embed, which may cost money.
    """
    current = read(tx)
    if current is not None and current.identity != embedder.identity:
        raise EmbeddingModelChangedError(current.identity, embedder.identity)
    return current


def ensure(tx: Transaction, embedder: Embedder, dimensions: int | None) -> Generation:
    """Read the current generation; the first write with an embedder creates it."""
    current = require(tx, embedder)
    if current is None:
        # A concurrent transaction may create it first: then its row is read.
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
