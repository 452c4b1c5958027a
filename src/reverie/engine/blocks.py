"""Vectors in SQLite: blocks of 64, written in place, scanned exactly in process.

A passage's vector is the slot ``passage % 64`` of block ``passage // 64`` of its owner. An all-zero
slot means "no vector". A process keeps each owner's matrix in memory and follows other processes'
writes: passages beyond those it has are new, and ``touched`` lists the ones that changed since.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np

from reverie.engine import similarity
from reverie.errors import DimensionMismatchError
from reverie.protocols import Owner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Transaction, Vector

SLOTS = 64
FLOAT_BYTES = 4
CACHE_BYTES = 1 << 30


class Blocks:
    """The stored form."""

    TABLE = """CREATE TABLE vectors (
        id INTEGER PRIMARY KEY, space INTEGER NOT NULL, owner INTEGER NOT NULL,
        generation INTEGER NOT NULL, block INTEGER NOT NULL, data BLOB NOT NULL,
        UNIQUE (space, owner, generation, block))"""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def put(self, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        dimensions = rows.shape[1]
        size = SLOTS * dimensions * FLOAT_BYTES
        done = 0
        while done < len(rows):
            block, slot = divmod(first + done, SLOTS)
            part = np.ascontiguousarray(rows[done : done + SLOTS - slot], dtype="<f4")
            done += len(part)
            row = self._find(owner, generation, block)
            if row is not None:
                with self._connection.blob_open("main", "vectors", "data", row, True) as blob:
                    if blob.length() != size:
                        raise DimensionMismatchError(
                            blob.length() // (SLOTS * FLOAT_BYTES), dimensions
                        )
                    blob.seek(slot * dimensions * FLOAT_BYTES)
                    blob.write(part.tobytes())
                continue
            data = bytearray(size)
            start = slot * dimensions * FLOAT_BYTES
            data[start : start + part.nbytes] = part.tobytes()
            self._connection.execute(
                "INSERT INTO vectors (space, owner, generation, block, data) "
                "VALUES (?, ?, ?, ?, ?)",
                (*owner, generation, block, bytes(data)),
            )

    def clear(self, owner: Owner, first: int, count: int) -> None:
        rows: list[Any] = self._connection.execute(
            "SELECT id, block FROM vectors WHERE space = ? AND owner = ? AND generation IN "
            "(SELECT DISTINCT generation FROM vectors WHERE space = ? AND owner = ?) "
            "AND block BETWEEN ? AND ?",
            (*owner, *owner, first // SLOTS, (first + count - 1) // SLOTS),
        ).fetchall()
        for row, block in rows:
            begin = max(first, block * SLOTS) - block * SLOTS
            end = min(first + count, (block + 1) * SLOTS) - block * SLOTS
            with self._connection.blob_open("main", "vectors", "data", row, True) as blob:
                stride = blob.length() // SLOTS
                blob.seek(begin * stride)
                blob.write(bytes((end - begin) * stride))

    def read(
        self, owner: Owner, generation: int, first: int, end: int
    ) -> Iterator[tuple[int, Matrix]]:
        """Slots of the passages in [first, end), a block at a time, with the first one's number."""
        if first >= end:
            return
        for block, data in self._connection.execute(
            "SELECT block, data FROM vectors WHERE space = ? AND owner = ? AND generation = ? "
            "AND block BETWEEN ? AND ? ORDER BY block",
            (*owner, generation, first // SLOTS, (end - 1) // SLOTS),
        ):
            rows = np.frombuffer(data, dtype="<f4").reshape(SLOTS, -1)
            begin = max(first - block * SLOTS, 0)
            yield block * SLOTS + begin, rows[begin : end - block * SLOTS]

    def numbers(self, owner: Owner, generation: int) -> list[int]:
        last = self._connection.execute(
            "SELECT COALESCE(MAX(block), 0) FROM vectors "
            "WHERE space = ? AND owner = ? AND generation = ?",
            (*owner, generation),
        ).get
        return [
            first + int(i)
            for first, rows in self.read(owner, generation, 0, (last + 1) * SLOTS)
            for i in np.flatnonzero(rows.any(axis=1))
        ]

    def _find(self, owner: Owner, generation: int, block: int) -> int | None:
        row = self._connection.execute(
            "SELECT id FROM vectors WHERE space = ? AND owner = ? AND generation = ? AND block = ?",
            (*owner, generation, block),
        ).fetchone()
        return None if row is None else row[0]


@dataclass
class _Loaded:
    """One owner's vectors in memory. ``total`` is kept in float64 so that its order cannot show."""

    epoch: int
    touches: int
    count: int
    rows: Matrix
    squared: Vector
    total: NDArray[np.float64]
    live: int
    # Each row's distance from the mean, until either moves.
    apart: Vector | None = None


class VectorCache:
    """Every matrix this process has read, the least recently used given up beyond CACHE_BYTES."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[Owner, int], _Loaded] = OrderedDict()
        self._lock = threading.Lock()

    def nearest(
        self,
        tx: Transaction,
        blocks: Blocks,
        owner: Owner,
        generation: int,
        query: Vector,
        limit: int,
        allowed: Sequence[int] | None,
    ) -> list[tuple[int, float]]:
        with self._lock:
            loaded = self._current(tx, blocks, owner, generation)
            if loaded is None or not loaded.live:
                return []
            if loaded.rows.shape[1] != len(query):
                raise DimensionMismatchError(loaded.rows.shape[1], len(query))
            rows = loaded.rows[: loaded.count]
            mean = similarity.mean_of(loaded.total, loaded.live)
            if loaded.apart is None:
                squared = loaded.squared[: loaded.count]
                loaded.apart = similarity.distances(rows, squared, mean)
            scores = similarity.centred_cosine(rows, mean, loaded.apart, query)
        return similarity.best(scores, limit, allowed)

    def _current(
        self, tx: Transaction, blocks: Blocks, owner: Owner, generation: int
    ) -> _Loaded | None:
        row = tx.one(
            "SELECT epoch, next_passage, touches FROM statistics WHERE space = ? AND owner = ?",
            owner,
        )
        if row is None:
            return None
        epoch, count, touches = row
        key = (owner, generation)
        loaded = self._loaded.get(key)
        if loaded is None or loaded.epoch != epoch:
            empty = np.zeros(0, np.float32)
            loaded = _Loaded(
                epoch, touches, 0, np.zeros((0, 0), np.float32), empty, np.zeros(0, np.float64), 0
            )
            self._extend(loaded, blocks, owner, generation, count)
            self._loaded[key] = loaded
        else:
            if touches > loaded.touches:
                self._follow(loaded, tx, blocks, owner, generation, touches)
            if count > loaded.count:
                self._extend(loaded, blocks, owner, generation, count)
        self._loaded.move_to_end(key)
        self._give_up_oldest()
        return loaded

    def _extend(
        self, loaded: _Loaded, blocks: Blocks, owner: Owner, generation: int, count: int
    ) -> None:
        for first, rows in blocks.read(owner, generation, loaded.count, count):
            _place(loaded, first, rows, count)
        if len(loaded.rows) < count and loaded.rows.shape[1]:
            _place(loaded, count, loaded.rows[:0], count)
        loaded.count = count
        loaded.apart = None

    def _follow(
        self,
        loaded: _Loaded,
        tx: Transaction,
        blocks: Blocks,
        owner: Owner,
        generation: int,
        touches: int,
    ) -> None:
        changed = tx.all(
            "SELECT passage FROM touched WHERE space = ? AND owner = ? AND touch > ?",
            (*owner, loaded.touches),
        )
        for (passage,) in changed:
            if passage < loaded.count:
                for first, rows in blocks.read(owner, generation, passage, passage + 1):
                    _place(loaded, first, rows, loaded.count)
        loaded.touches = touches

    def _give_up_oldest(self) -> None:
        held = sum(loaded.rows.nbytes for loaded in self._loaded.values())
        while held > CACHE_BYTES and len(self._loaded) > 1:
            _, oldest = self._loaded.popitem(last=False)
            held -= oldest.rows.nbytes


def _place(loaded: _Loaded, first: int, rows: Matrix, count: int) -> None:
    """Write rows over what is there, keeping the total and the number of live ones right."""
    dimensions = rows.shape[1]
    if not loaded.rows.shape[1]:
        loaded.rows = np.zeros((count, dimensions), np.float32)
        loaded.squared = np.zeros(count, np.float32)
        loaded.total = np.zeros(dimensions, np.float64)
    elif len(loaded.rows) < count:
        room = max(count, len(loaded.rows) * 3 // 2) - len(loaded.rows)
        loaded.rows = np.concatenate([loaded.rows, np.zeros((room, dimensions), np.float32)])
        loaded.squared = np.concatenate([loaded.squared, np.zeros(room, np.float32)])
    here = slice(first, first + len(rows))
    squared = similarity.squares(rows)
    # Most places are empty before: there is nothing to take away.
    if loaded.squared[here].any():
        loaded.total -= loaded.rows[here].sum(axis=0, dtype=np.float64)
    loaded.total += rows.sum(axis=0, dtype=np.float64)
    loaded.live += int((squared > 0).sum()) - int((loaded.squared[here] > 0).sum())
    loaded.rows[here] = rows
    loaded.squared[here] = squared
    loaded.apart = None
