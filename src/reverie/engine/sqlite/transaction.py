"""A transaction on one SQLite connection: runs the shared SQL, and reads and writes vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from reverie.engine.sqlite.vectors import OwnerVectors, VectorBlocks, VectorCache
from reverie.protocols import Owner, Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Numbers, Vector

_NULL_CONTEXT = contextlib.nullcontext()


class SQLiteTransaction:
    """A transaction on one connection: a snapshot, or the only writer of the store.

    Its methods are those of ``protocols.Transaction``. SQLite has no row-level security, so the
    methods that restrict the visible rows do nothing: only the conditions in the statements keep
    owners apart.
    """

    skip_locked = ""
    full_scan_hint = " NOT INDEXED"

    def __init__(
        self,
        connection: apsw.Connection,
        vectors: VectorCache,
        writing: bool,
        damaged: set[tuple[int, int]] | None = None,
    ) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._vectors = vectors
        self._blocks = VectorBlocks(connection)
        self.writing = writing
        self.damaged: set[tuple[int, int]] = set() if damaged is None else damaged
        self.kept: dict[object, Any] = {}

    def close(self) -> None:
        """Close the last statement: while it is open, its snapshot is too."""
        self._cursor.close(True)

    # -- visible rows -------------------------------------------------------------------------

    def restrict_to_names(self, space: str, user: str) -> None:
        pass

    def enter(self, owner: Owner, *, alone: bool = True) -> None:
        pass

    def across_owners(self) -> contextlib.AbstractContextManager[None]:
        return _NULL_CONTEXT

    def enter_all_owners(self) -> None:
        pass

    # -- statements ---------------------------------------------------------------------------

    def new_space_number(self) -> int:
        row = self.one("SELECT COALESCE(MAX(space), 0) + 1 FROM spaces")
        return 1 if row is None else int(row[0])

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._cursor.execute(sql, values).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        return self._cursor.execute(sql, values).fetchone()

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        self._cursor.execute(sql, values)
        return self._connection.changes()

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._cursor.executemany(sql, rows)

    # -- vectors ------------------------------------------------------------------------------

    def put_vectors(self, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        self._blocks.put(owner, generation, first, rows)

    def clear_vectors(self, owner: Owner, first: int, count: int) -> None:
        self._blocks.clear(owner, first, count)

    def drop_vectors(self, keep: int) -> None:
        self._cursor.execute("DELETE FROM vectors WHERE generation <> ?", (keep,))

    def vector_numbers(self, owner: Owner, generation: int) -> list[int]:
        return self._blocks.numbers(owner, generation)

    def nearest(
        self,
        owner: Owner,
        generation: int,
        query: Vector,
        limit: int,
        allowed: Sequence[int] | None = None,
        without: Sequence[int] = (),
        centred: bool = True,
    ) -> list[tuple[int, float]]:
        with self._vectors_of(owner, generation) as loaded:
            return loaded.nearest(query, limit, allowed, without, centred)

    def similar(
        self,
        owner: Owner,
        generation: int,
        query: Vector,
        numbers: Numbers,
        centred: bool = True,
    ) -> NDArray[np.float64]:
        with self._vectors_of(owner, generation) as loaded:
            return loaded.similar(query, numbers, centred)

    def vectors(self, owner: Owner, generation: int, numbers: Numbers) -> Matrix:
        with self._vectors_of(owner, generation) as loaded:
            return loaded.vectors(numbers)

    def _vectors_of(
        self, owner: Owner, generation: int
    ) -> contextlib.AbstractContextManager[OwnerVectors]:
        # A writer sees rows that may be rolled back: they must not get into the shared cache.
        cache = VectorCache() if self.writing else self._vectors
        return cache.current(self, self._blocks, owner, generation)
