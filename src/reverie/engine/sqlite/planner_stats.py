"""Fixed statistics for SQLite's query planner: every store gets the same query plans.

Without statistics SQLite rates a scan of all rows of an owner as good as an index. With those that
ANALYZE gathers, plans would depend on the data, and samples of keys would be stored.
"""

from __future__ import annotations

from itertools import groupby

import apsw

from reverie.engine.sqlite.store_file import immediate_transaction
from reverie.protocols import Row

# The number of rows that share a value of a column, after the first three within their owner. A
# column that is not listed is unique. These are not measurements: they set what an index is worth
# compared with a scan of an owner's rows. With larger numbers a sort would be rated worse than any
# scan.
_ROWS_PER_VALUE = {
    "space": 200,
    "state": 200,
    "owner": 100,
    "kind": 10,
    "actor": 10,
    "pinned": 10,
    "category": 10,
    "generation": 10,
    "term": 10,
    "tag": 10,
    "name": 100,
    "value": 10,
    "session": 5,
    "lane": 5,
    "forked_session": 2,
    "subject_key": 2,
    "memory": 2,
    "chain": 2,
}
_ROWS = 1_000_000
# A partial index holds one of this many rows.
_PARTIAL_INDEX_RATIO = {
    "memories_pinned": 50,
    "memories_changed": 50,
    "memories_private": 2,
    "memories_subject": 2,
    "memories_category": 2,
}

_TABLES = ("sqlite_stat1", "sqlite_stat4")
_COLUMNS = """SELECT t.name, i.name, i.origin, i."unique", c.name
    FROM sqlite_schema t, pragma_index_list(t.name) i, pragma_index_info(i.name) c
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite~_%' ESCAPE '~'
    ORDER BY t.name, i.name, c.seqno"""


def has_fixed_stats(connection: apsw.Connection) -> bool:
    """Whether a store has exactly these statistics."""
    existing = [name for name in _TABLES if connection.table_exists("main", name)]
    if "sqlite_stat1" not in existing:
        return False
    # Not every build of SQLite has sqlite_stat4.
    if "sqlite_stat4" in existing and connection.execute("SELECT 1 FROM sqlite_stat4 LIMIT 1").get:
        return False
    rows = connection.execute("SELECT tbl, idx, stat FROM sqlite_stat1").fetchall()
    return sorted(rows) == sorted(_statistics(connection))


def write_fixed_stats(connection: apsw.Connection) -> None:
    """Write these statistics; open connections use them from their next statement on."""
    with immediate_transaction(connection):
        # New tables, not new rows: other connections only reload them after a schema change.
        for name in _TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        # Creates the tables without gathering statistics; below, it loads the rows.
        connection.execute("ANALYZE sqlite_schema")
        connection.executemany(
            "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)", _statistics(connection)
        )
        connection.execute("ANALYZE sqlite_schema")


def _statistics(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    """A row of sqlite_stat1 for each index: its rows, and how many share its first columns."""
    result = []
    rows: list[Row] = connection.execute(_COLUMNS).fetchall()
    for (table, index, origin, unique), columns in groupby(rows, key=lambda row: row[:4]):
        counts = [_ROWS]
        for *_, column in columns:
            counts.append(min(counts[-1], _ROWS_PER_VALUE.get(column, 1)))
        if unique:
            counts[-1] = 1
        scaled = [max(count // _PARTIAL_INDEX_RATIO.get(index, 1), 1) for count in counts]
        # The primary key of a WITHOUT ROWID table is named after the table.
        name = table if origin == "pk" else index
        result.append((table, name, f"{' '.join(map(str, scaled))} noskipscan"))
    return result
