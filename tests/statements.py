"""Statements as they reach PostgreSQL, with their values, and what it would scan for each."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import pytest

from reverie import Store
from reverie.engine.postgres import row_security
from reverie.engine.postgres.engine import PostgresEngine
from tests.conftest import engine_of

_INSERT = re.compile(r"INSERT INTO (\w+) \(([^)]*)\)\s+VALUES (.*?)(?: ON CONFLICT.*)?$", re.DOTALL)


class Statement(NamedTuple):
    """One statement and its values."""

    sql: str
    values: Sequence[Any]

    def spaces_written(self) -> tuple[str, set[Any]] | None:
        """Of an INSERT the table, and the space that each of its rows names."""
        found = _INSERT.match(self.sql)
        if found is None:
            return None
        table, columns, rows = found.groups()
        if columns.split(", ")[0] != "space":
            return table, {None}
        first = re.findall(r"\(\$(\d+)", rows)
        return table, {self.values[int(number) - 1] for number in first} or {None}


class Recorder(list[Statement]):
    """Statements in the order in which they were sent; settings are none."""

    def note(self, query: bytes | str, values: Sequence[Any] | None) -> None:
        sql = query if isinstance(query, str) else query.decode()
        if not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK", "SET ")) and "SET LOCAL" not in sql:
            self.append(Statement(sql, list(values or ())))


def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Every statement that any engine sends from here on."""
    found = Recorder()
    execute: Any = psycopg.RawCursor.execute

    def noting(self: Any, query: bytes | str, params: Any = None, **more: Any) -> Any:
        found.note(query, params)
        return execute(self, query, params, **more)

    monkeypatch.setattr(psycopg.RawCursor, "execute", noting)
    return found


def nodes_of(store: Store, statement: Statement, *options: str) -> Iterator[dict[str, Any]]:
    """The nodes of the plan of a statement. Row-level security adds no condition: the operator sees
    every row."""
    engine = engine_of(store)
    assert isinstance(engine, PostgresEngine)
    with engine._lease_connection() as lease:
        lease.begin(["BEGIN", row_security.SET_OPERATOR_ROLE])
        asked = f"EXPLAIN ({', '.join(('FORMAT JSON', *options))}) {statement.sql}"
        plan = lease.connection.execute(asked.encode(), statement.values, prepare=False)
        rows = plan.fetchall()
    waiting = [rows[0][0][0]["Plan"]]
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        yield node


def scanned(store: Store, statement: Statement, whole: dict[str, str]) -> dict[str, set[str]]:
    """The partitions that a statement reads or changes, by their table. ``whole`` names it."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes_of(store, statement):
        name = node.get("Relation Name")
        if name in whole:
            found[whole[name]].add(name)
    return found
