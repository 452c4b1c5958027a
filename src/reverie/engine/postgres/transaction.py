"""A transaction of PostgreSQL: runs the shared SQL, restricted to the rows of one owner."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from psycopg import Cursor

from reverie.engine.postgres import row_security
from reverie.engine.postgres.pool import Lease
from reverie.engine.postgres.vectors import PostgresVectors
from reverie.errors import StoreError
from reverie.protocols import Owner, Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reverie.protocols import Matrix, Numbers, Vector

# An advisory lock: writers hold it shared, and exclusively to be the only writer of the store.
WRITER_LOCK = 0x52455645
# The numbers of rows of one INSERT: few, so that few statements are prepared.
ROWS_AT_ONCE = (64, 16, 4, 1)
MAX_UNSENT = 256
_TAKE_SHARED_LOCK = f"SELECT pg_advisory_xact_lock_shared({WRITER_LOCK})"
_READ_SCHEMA = "SELECT value FROM meta WHERE key = 'schema'"
_VALUES = re.compile(r"VALUES \((\?(?:, \?)*)\)")


class PostgresTransaction:
    """A read of one snapshot, or a write, on one connection (see ``protocols.Transaction``)."""

    skip_locked = " FOR UPDATE OF j SKIP LOCKED"
    full_scan_hint = ""

    def __init__(
        self,
        lease: Lease,
        begin: Sequence[str],
        vectors: PostgresVectors,
        *,
        writing: bool,
        damaged: set[tuple[int, int]],
        require_known_schema: Callable[[int], None] | None = None,
    ) -> None:
        self._require_known_schema = require_known_schema
        self.damaged = damaged
        self._lease = lease
        self._vectors = vectors
        # Statements that are sent first, in one round trip.
        self._first = [*begin, *([_TAKE_SHARED_LOCK] if writing else [])]
        self._begun = not begin
        # Statements without a result, sent in a pipeline with the next one that has a result.
        self._unsent: list[tuple[bytes, Sequence[Any] | None]] = []
        self._owner: Owner | None = None
        self._named = False
        self._alone_in: int | None = None
        # The space whose row it last tried to lock, for the error that names the holder.
        self.waiting_for_space: int | None = None
        self.writing = writing
        self.kept: dict[object, Any] = {}
        self.means: dict[tuple[Owner, int], Vector | None] = {}

    # -- visible rows -------------------------------------------------------------------------

    def restrict_to_names(self, space: str, user: str) -> None:
        self._send_setting(row_security.set_space_name(space))
        if user or self._named:
            self._send_setting(row_security.set_user_name(user))
            self._named = True
        if self._owner is not None:
            self._send_setting(row_security.CLEAR_OWNER)
            self._owner = None

    def enter(self, owner: Owner, *, alone: bool = True) -> None:
        if owner != self._owner:
            self._send_setting(row_security.set_owner(owner))
            self._owner = owner
        if self.writing and alone and self._alone_in != owner.space:
            self.waiting_for_space = owner.space
            with self._lease.waiting():
                self.all("SELECT 1 FROM counters WHERE space = ? FOR UPDATE", (owner.space,))
            self._alone_in = owner.space

    @contextlib.contextmanager
    def across_owners(self) -> Iterator[None]:
        owner = self._owner
        if owner is None:  # the operator sees all rows already; without an owner there are none
            yield
            return
        self._send_setting(row_security.set_owner(owner, across=True))
        yield
        self._send_setting(row_security.set_owner(owner))

    def enter_all_owners(self) -> None:
        if self.writing and not self._begun:
            # Without the shared lock: two transactions that share it could never both upgrade it.
            self._first.remove(_TAKE_SHARED_LOCK)
            self._send_setting(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")
        self._send_setting(row_security.SET_OPERATOR_ROLE)

    def new_space_number(self) -> int:
        row = self.one("SELECT nextval('space_numbers')")
        assert row is not None
        return int(row[0])

    def _send_setting(self, setting: str) -> None:
        """Send a setting with the next statement."""
        if self._begun:
            self._unsent.append((setting.encode(), None))
        else:
            self._first.append(setting)

    # -- statements ---------------------------------------------------------------------------

    def all(self, sql: str, values: Sequence[Any] = (), *, binary: bool = False) -> list[Row]:
        return self._execute(to_numbered_params(sql), values, binary=binary).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        return self._execute(to_numbered_params(sql), values).fetchone()

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        return self._execute(to_numbered_params(sql), values).rowcount

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Queue a statement for many rows; it is sent with the next one that has a result."""
        pending, sizes = list(rows), ROWS_AT_ONCE if _VALUES.search(sql) else (1,)
        queued = 0
        while queued < len(pending):
            size = next(size for size in sizes if size <= len(pending) - queued)
            part = pending[queued : queued + size]
            values = [value for row in part for value in row]
            self._unsent.append((_multi_row_insert(sql, size), values))
            queued += size
        if len(self._unsent) >= MAX_UNSENT:
            self._execute(b"SELECT 1")

    def commit(self) -> None:
        if not self._begun and not self._unsent:
            return
        status = self._execute(b"COMMIT").statusmessage
        if status != "COMMIT":  # a server that rolled back reports that, and raises nothing
            raise StoreError("the write was rolled back: repeat it with the same key")

    def _execute(
        self, query: bytes, values: Sequence[Any] = (), *, binary: bool = False
    ) -> Cursor[Row]:
        if not self._begun:
            # After the lock on writers: an upgrade cannot come between this check and the commit.
            first = [*self._first, *([_READ_SCHEMA] if self._require_known_schema else [])]
            cursor = self._lease.begin(first)
            self._begun = True
            if self._require_known_schema and (found := cursor.fetchone()) is not None:
                self._require_known_schema(int(found[0]))
        if not self._unsent:
            return self._cursor.execute(query, values, binary=binary)
        unsent, self._unsent = self._unsent, []
        with self._lease.connection.pipeline():
            for text, row in unsent:
                self._sender.execute(text, row, prepare=None if row else False)
            self._cursor.execute(query, values, binary=binary)
        return self._cursor

    @cached_property
    def _cursor(self) -> Cursor[Row]:
        return self._lease.connection.cursor()

    @cached_property
    def _sender(self) -> Cursor[Row]:
        """A second cursor for statements whose results are not read."""
        return self._lease.connection.cursor()

    # -- vectors ------------------------------------------------------------------------------

    def put_vectors(self, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        self._vectors.put(self, owner, generation, first, rows)

    def clear_vectors(self, owner: Owner, first: int, count: int) -> None:
        # Naming every generation lets the key be used: otherwise all vectors are scanned.
        rows = self.all("SELECT value FROM meta WHERE key IN ('generation', 'generation.next')")
        last = max((json.loads(row[0])[0] for row in rows), default=0)
        self.run(
            "DELETE FROM vectors WHERE space = ? AND owner = ? AND generation = ANY(?) "
            "AND passage BETWEEN ? AND ?",
            (*owner, list(range(last + 1)), first, first + count - 1),
        )

    def drop_vectors(self, keep: int) -> None:
        self.run("DELETE FROM vectors WHERE generation <> ?", (keep,))

    def vector_numbers(self, owner: Owner, generation: int) -> list[int]:
        return [
            row[0]
            for row in self.all(
                "SELECT passage FROM vectors WHERE space = ? AND owner = ? AND generation = ? "
                "ORDER BY passage",
                (*owner, generation),
            )
        ]

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
        return self._vectors.nearest(
            self, owner, generation, query, limit, allowed, without, centred
        )

    def similar(
        self,
        owner: Owner,
        generation: int,
        query: Vector,
        numbers: Numbers,
        centred: bool = True,
    ) -> NDArray[np.float64]:
        return self._vectors.similar(self, owner, generation, query, numbers, centred)

    def vectors(self, owner: Owner, generation: int, numbers: Numbers) -> Matrix:
        return self._vectors.read(self, owner, generation, numbers)


@lru_cache(maxsize=4_000)
def to_numbered_params(sql: str) -> bytes:
    """Replace the placeholders ``?`` of the shared SQL by PostgreSQL's ``$1``, ``$2``, …."""
    parts = sql.split("?")
    return "".join(part if at == 0 else f"${at}{part}" for at, part in enumerate(parts)).encode()


@lru_cache(maxsize=400)
def _multi_row_insert(sql: str, rows: int) -> bytes:
    """Turn an INSERT of one row into one of several rows."""
    return to_numbered_params(
        _VALUES.sub(lambda found: "VALUES " + ", ".join([f"({found[1]})"] * rows), sql, count=1)
    )
