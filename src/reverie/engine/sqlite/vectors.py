"""Vectors in SQLite: stored in blocks of 64, written in place, and searched exactly in memory.

A passage's vector is the slot ``passage % 64`` of block ``passage // 64`` of its owner. An all-zero
slot means "no vector". A process caches each owner's matrix in memory and keeps it current with the
writes of other processes: passages beyond those it has are new, and the table ``touched`` lists the
ones that changed since.
"""

from __future__ import annotations

import mmap
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np

from reverie.engine import index, vector_math
from reverie.errors import DimensionMismatchError
from reverie.protocols import Owner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Transaction, Vector

BLOCK_SLOTS = 64
FLOAT_BYTES = 4
CACHE_BYTES = 1 << 30
# Matrices of this size or more are mapped, see ``_allocate``.
MAPPED_BYTES = 1 << 18
HUGE_PAGES_BYTES = 1 << 22


class VectorBlocks:
    """Reads and writes the table ``vectors`` on one connection."""

    TABLE = """CREATE TABLE vectors (
        id INTEGER PRIMARY KEY, space INTEGER NOT NULL, owner INTEGER NOT NULL,
        generation INTEGER NOT NULL, block INTEGER NOT NULL, data BLOB NOT NULL,
        UNIQUE (space, owner, generation, block))"""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def put(self, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        """Write the vectors of consecutive passages."""
        dimensions = rows.shape[1]
        size = BLOCK_SLOTS * dimensions * FLOAT_BYTES
        done = 0
        while done < len(rows):
            block, slot = divmod(first + done, BLOCK_SLOTS)
            part = np.ascontiguousarray(rows[done : done + BLOCK_SLOTS - slot], dtype="<f4")
            done += len(part)
            row = self._find(owner, generation, block)
            if row is not None:
                with self._connection.blob_open("main", "vectors", "data", row, True) as blob:
                    if blob.length() != size:
                        raise DimensionMismatchError(
                            blob.length() // (BLOCK_SLOTS * FLOAT_BYTES), dimensions
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
        """Overwrite the vectors of consecutive passages with zeros, in every generation."""
        rows: list[Any] = self._connection.execute(
            "SELECT id, block FROM vectors WHERE space = ? AND owner = ? AND generation IN "
            "(SELECT DISTINCT generation FROM vectors WHERE space = ? AND owner = ?) "
            "AND block BETWEEN ? AND ?",
            (*owner, *owner, first // BLOCK_SLOTS, (first + count - 1) // BLOCK_SLOTS),
        ).fetchall()
        for row, block in rows:
            begin = max(first, block * BLOCK_SLOTS) - block * BLOCK_SLOTS
            end = min(first + count, (block + 1) * BLOCK_SLOTS) - block * BLOCK_SLOTS
            with self._connection.blob_open("main", "vectors", "data", row, True) as blob:
                stride = blob.length() // BLOCK_SLOTS
                blob.seek(begin * stride)
                blob.write(bytes((end - begin) * stride))

    def read(
        self, owner: Owner, generation: int, first: int, end: int
    ) -> Iterator[tuple[int, Matrix]]:
        """Yield the vectors of the passages in [first, end) by block, after the first's number."""
        if first >= end:
            return
        for block, data in self._connection.execute(
            "SELECT block, data FROM vectors WHERE space = ? AND owner = ? AND generation = ? "
            "AND block BETWEEN ? AND ? ORDER BY block",
            (*owner, generation, first // BLOCK_SLOTS, (end - 1) // BLOCK_SLOTS),
        ):
            rows = np.frombuffer(data, dtype="<f4").reshape(BLOCK_SLOTS, -1)
            begin = max(first - block * BLOCK_SLOTS, 0)
            yield block * BLOCK_SLOTS + begin, rows[begin : end - block * BLOCK_SLOTS]

    def numbers(self, owner: Owner, generation: int) -> list[int]:
        """The passages that have a vector."""
        last = self._connection.execute(
            "SELECT COALESCE(MAX(block), 0) FROM vectors "
            "WHERE space = ? AND owner = ? AND generation = ?",
            (*owner, generation),
        ).get
        return [
            first + int(i)
            for first, rows in self.read(owner, generation, 0, (last + 1) * BLOCK_SLOTS)
            for i in np.flatnonzero(rows.any(axis=1))
        ]

    def _find(self, owner: Owner, generation: int, block: int) -> int | None:
        row = self._connection.execute(
            "SELECT id FROM vectors WHERE space = ? AND owner = ? AND generation = ? AND block = ?",
            (*owner, generation, block),
        ).fetchone()
        return None if row is None else row[0]


class OwnerVectors:
    """One owner's vectors in memory, with the distance of each from the mean of the first ones.

    The mean changes only when one of those changes, so that adding later vectors is cheap.
    """

    def __init__(self, epoch: int, touches: int) -> None:
        self.epoch = epoch
        self.touches = touches
        self.count = 0
        self.live = 0
        self.rows: Matrix = np.zeros((0, 0), np.float32)
        self._squared: Vector = np.zeros(0, np.float32)
        self._distances: Vector = np.zeros(0, np.float32)
        self._mean: Vector | None = None

    @property
    def memory_bytes(self) -> int:
        """The bytes of memory that the vectors take; rows not yet written to take none."""
        return self.rows[: self.count].nbytes

    def extend(self, parts: Iterable[tuple[int, Matrix]], count: int) -> None:
        """Add the passages up to ``count``; those that are not in ``parts`` have no vector."""
        for first, rows in parts:
            self._make_room(count, rows.shape[1])
            self.rows[first : first + len(rows)] = rows
        if self.rows.shape[1]:
            self._make_room(count, self.rows.shape[1])
            self._update_norms(slice(self.count, count))
        self.count = count

    def put(self, first: int, rows: Matrix) -> None:
        """Replace the vectors of consecutive passages."""
        self._make_room(self.count, rows.shape[1])
        here = slice(first, first + len(rows))
        self.rows[here] = rows
        self._update_norms(here)

    def _update_norms(self, here: slice) -> None:
        """Update norms, counts and distances after these rows changed."""
        rows, squared = self.rows[here], vector_math.squared_norms(self.rows[here])
        damaged = vector_math.is_damaged(squared)
        if damaged.any():
            # ``verify`` tells of it; the passage is found by its words until a rebuild.
            rows[damaged] = 0
            squared[damaged] = 0
        self.live += int((squared > 0).sum()) - int((self._squared[here] > 0).sum())
        self._squared[here] = squared
        if here.start < vector_math.MEAN_SAMPLE_SIZE:
            self._mean = None
        elif self._mean is not None:
            self._distances[here] = vector_math.distances(rows, squared, self._mean)

    def _make_room(self, count: int, dimensions: int) -> None:
        if len(self.rows) < count:
            # Half as many again: zeroed memory that was never written to is not allocated yet.
            rows = _allocate(count * 3 // 2, dimensions)
            if len(self.rows):
                rows[: len(self.rows)] = self.rows
            self.rows = rows
        more = len(self.rows) - len(self._squared)
        if more:
            self._squared = np.concatenate([self._squared, np.zeros(more, np.float32)])
            self._distances = np.concatenate([self._distances, np.full(more, np.inf, np.float32)])

    def nearest(
        self,
        query: Vector,
        limit: int,
        allowed: Sequence[int] | None,
        without: Sequence[int],
        centred: bool,
    ) -> list[tuple[int, float]]:
        """The passages most similar to the query, best first."""
        if not self._can_compare(query):
            return []
        rows, numbers = self.rows[: self.count], None
        mean, apart = self._mean_and_distances() if centred else self._zero_and_norms()
        if allowed is not None:
            numbers = np.asarray(allowed, dtype=np.int64)
            numbers = numbers[numbers < self.count]
            rows, apart = rows[numbers], apart[numbers]
        scores = vector_math.centred_cosine(rows, mean, apart, query)
        if without:
            left_out = np.asarray(without, dtype=np.int64)
            scores[left_out if numbers is None else np.isin(numbers, left_out)] = -np.inf
        return vector_math.top_k(scores, limit, numbers)

    def similar(
        self, query: Vector, numbers: NDArray[np.int64], centred: bool
    ) -> NDArray[np.float64]:
        """The similarity of these passages to the query; -inf for one without a vector."""
        if not self._can_compare(query):
            return np.full(len(numbers), -np.inf)
        mean = self._mean_and_distances()[0] if centred else np.zeros_like(query)
        return vector_math.exact_cosine(self.rows[numbers], mean, query)

    def vectors(self, numbers: NDArray[np.int64]) -> Matrix:
        """The vectors of these passages, a row of zeros for one that has none."""
        return self.rows[numbers] if self.live else np.zeros((len(numbers), 0), np.float32)

    def _can_compare(self, query: Vector) -> bool:
        if self.live and self.rows.shape[1] != len(query):
            raise DimensionMismatchError(self.rows.shape[1], len(query))
        return self.live > 0

    def _mean_and_distances(self) -> tuple[Vector, Vector]:
        """The mean, and the distance of each row from it."""
        if self._mean is None:
            self._mean = vector_math.mean_vector(self.rows[: self.count])
            rows, squared = self.rows[: self.count], self._squared[: self.count]
            self._distances[: self.count] = vector_math.distances(rows, squared, self._mean)
        return self._mean, self._distances[: self.count]

    def _zero_and_norms(self) -> tuple[Vector, Vector]:
        """The zero vector, and the distance of each row from it: what a plain cosine needs."""
        zero = np.zeros(self.rows.shape[1], np.float32)
        rows, squared = self.rows[: self.count], self._squared[: self.count]
        return zero, vector_math.distances(rows, squared, zero)


def _allocate(count: int, dimensions: int) -> Matrix:
    """Allocate a matrix of zeros whose memory returns to the system as soon as it is replaced.

    A matrix is replaced by a larger one each time it is full. With malloc, each old one would stay
    in the arena of the thread that allocated it, where nothing else is large enough to use it.
    """
    size = count * dimensions * FLOAT_BYTES
    if size < MAPPED_BYTES:
        return np.zeros((count, dimensions), np.float32)
    memory = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    if size >= HUGE_PAGES_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        # As numpy does for its own arrays: a scan of large pages is a fifth faster.
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.float32).reshape(count, dimensions)


class VectorCache:
    """The matrices this process has read; above CACHE_BYTES the least recently used is dropped."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[Owner, int], OwnerVectors] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def current(
        self, tx: Transaction, blocks: VectorBlocks, owner: Owner, generation: int
    ) -> Iterator[OwnerVectors]:
        """An owner's vectors as this transaction sees them, or newer; locked while in use."""
        with self._lock:
            yield self._current(tx, blocks, owner, generation)

    def _current(
        self, tx: Transaction, blocks: VectorBlocks, owner: Owner, generation: int
    ) -> OwnerVectors:
        statistics = index.statistics(tx, owner)
        epoch, count, touches = statistics.epoch, statistics.next_passage, statistics.touches
        key = (owner, generation)
        loaded = self._loaded.get(key)
        if loaded is None or loaded.epoch != epoch:
            loaded = OwnerVectors(epoch, touches)
            loaded.extend(blocks.read(owner, generation, 0, count), count)
            self._loaded[key] = loaded
        else:
            if touches > loaded.touches:
                self._apply_touches(loaded, tx, blocks, owner, generation, touches)
            if count > loaded.count:
                loaded.extend(blocks.read(owner, generation, loaded.count, count), count)
        self._loaded.move_to_end(key)
        self._evict()
        return loaded

    def _apply_touches(
        self,
        loaded: OwnerVectors,
        tx: Transaction,
        blocks: VectorBlocks,
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
                    loaded.put(first, rows)
        loaded.touches = touches

    def _evict(self) -> None:
        held = sum(loaded.memory_bytes for loaded in self._loaded.values())
        while held > CACHE_BYTES and len(self._loaded) > 1:
            _, oldest = self._loaded.popitem(last=False)
            held -= oldest.memory_bytes
