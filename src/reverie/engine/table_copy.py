"""Copies a whole store into another, row by row: between engines, for migrations and backups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from reverie.engine.schema import TABLES, Table
from reverie.protocols import Owner, Row, Transaction

CHUNK = 1_000
# Every write changes at least one of these tables.
_WRITE_TABLES = ("meta", "owners", "counters", "statistics", "session_state", "recalls", "jobs")


def read_rows(tx: Transaction, table: Table, after: Row | None = None) -> Iterator[list[Row]]:
    """Yield the rows of a table in the order of its key, a chunk at a time, after a key."""
    key = ", ".join(table.key)
    while True:
        after_condition = ""
        if after is not None:
            after_condition = f" AND ({key}) > ({', '.join('?' * len(table.key))})"
        rows = tx.all(
            f"SELECT {table.columns} FROM {table.name} "
            f"WHERE {table.copy_condition}{after_condition} ORDER BY {key} LIMIT {CHUNK}",
            after or (),
        )
        if rows:
            yield rows
        if len(rows) < CHUNK:
            return
        after = rows[-1][: len(table.key)]


def last_key(tx: Transaction, table: Table) -> Row | None:
    """The key of the last row of a table in the order of its key."""
    key = ", ".join(table.key)
    descending = ", ".join(f"{column} DESC" for column in table.key)
    return tx.one(
        f"SELECT {key} FROM {table.name} WHERE {table.copy_condition} ORDER BY {descending} LIMIT 1"
    )


def count_rows(tx: Transaction) -> int:
    """The number of rows to be copied, vectors included."""
    counts = [
        tx.all(f"SELECT COUNT(*) FROM {table.name} WHERE {table.copy_condition}")[0][0]
        for table in TABLES
    ]
    return int(sum(counts)) + sum(len(tx.vector_numbers(*each)) for each in list_vector_sets(tx))


def put_rows(tx: Transaction, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows that ``read_rows`` read from the same table of another store."""
    placeholders = ", ".join("?" * len(rows[0]))
    tx.many(f"INSERT INTO {table.name} ({table.columns}) VALUES ({placeholders})", rows)


def delete_rows(tx: Transaction) -> None:
    """Delete every row of the tables that are copied, and all vectors."""
    tx.run("DELETE FROM vectors")
    for table in reversed(TABLES):
        tx.run(f"DELETE FROM {table.name} WHERE {table.copy_condition}")


def copy_rows(source: Transaction, target: Transaction) -> None:
    """Copy every row and vector into an empty target, in one transaction of it."""
    for table in TABLES:
        for rows in read_rows(source, table):
            put_rows(target, table, rows)
    for owner, generation in list_vector_sets(source):
        for numbers in chunks(source.vector_numbers(owner, generation)):
            copy_vectors(source, target, owner, generation, numbers)


# -- vectors --------------------------------------------------------------------------------------


def list_vector_sets(tx: Transaction) -> list[tuple[Owner, int]]:
    """Every pair of an owner and a generation that may have vectors."""
    owners = [
        Owner(*row) for row in tx.all("SELECT space, owner FROM owners ORDER BY space, owner")
    ]
    generations = tx.all("SELECT value FROM meta WHERE key IN ('generation', 'generation.next')")
    return [(owner, json.loads(row[0])[0]) for owner in owners for row in generations]


def chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split numbers into parts of at most ``CHUNK``."""
    for at in range(0, len(numbers), CHUNK):
        yield numbers[at : at + CHUNK]


def copy_vectors(
    source: Transaction, target: Transaction, owner: Owner, generation: int, numbers: Sequence[int]
) -> None:
    """Copy the vectors of these passages; consecutive ones are written together."""
    rows = source.vectors(owner, generation, np.array(numbers, np.int64))
    run_start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            target.put_vectors(owner, generation, numbers[run_start], rows[run_start:at])
            run_start = at


# -- comparing ------------------------------------------------------------------------------------


def content_digest(tx: Transaction, progress: Callable[[int], None] | None = None) -> str:
    """A hash of every row of every table and every vector, equal across engines."""
    digest = hashlib.sha256()
    for table in TABLES:
        digest.update(table.name.encode())
        for rows in read_rows(tx, table):
            digest.update("\n".join(_as_text(row) for row in rows).encode())
            if progress is not None:
                progress(len(rows))
    for owner, generation in list_vector_sets(tx):
        for numbers in chunks(tx.vector_numbers(owner, generation)):
            rows_found = tx.vectors(owner, generation, np.array(numbers, np.int64))
            digest.update(np.array(numbers, "<i8").tobytes() + rows_found.astype("<f4").tobytes())
            if progress is not None:
                progress(len(numbers))
    return digest.hexdigest()


def write_fingerprint(tx: Transaction) -> str:
    """A hash that differs after any write: of the tables of which every write changes one."""
    digest = hashlib.sha256()
    for table in TABLES:
        if table.name in _WRITE_TABLES:
            for rows in read_rows(tx, table):
                digest.update("\n".join(_as_text(row) for row in rows).encode())
    return digest.hexdigest()


def _as_text(row: Row) -> str:
    values: list[Any] = list(row)
    return json.dumps(values, ensure_ascii=True)
