"""Fixed statistics for SQLite's planner: every store plans alike, whatever is in it.

Without any, SQLite takes a walk through all rows of an owner for as good as an index. With those
that ANALYZE gathers, the plans would follow the data, and samples of the keys would be kept.
"""

from __future__ import annotations

from itertools import groupby

import apsw

from reverie.protocols import Row

# How many rows share a value of a column, within their owner behind the first three. A column that
# is not named tells rows apart. These are no measurements: they say what an index is worth beside a
# walk through the rows of an owner. With larger numbers a sort would seem worse than any walk.
_ROWS_PER_VALUE = {
    "space": 200,
    "state": 200,
    "owner": 100,
    "kind": 10,
    "category": 10,
    "generation": 10,
    "term": 10,
    "tag": 10,
    "session": 5,
    "lane": 5,
    "forked_session": 2,
    "subject_key": 2,
    "memory": 2,
    "chain": 2,
}
_ROWS = 1_000_000
# Of so many rows an index holds one.
_PARTIAL_INDEX_RATIO = {"memories_pinned": 50, "memories_changed": 50, "memories_private": 50}

_TABLES = ("sqlite_stat1", "sqlite_stat4")
_COLUMNS = """SELECT t.name, i.name, i.origin, i."unique", c.name
    FROM sqlite_schema t, pragma_index_list(t.name) i, pragma_index_info(i.name) c
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite~_%' ESCAPE '~'
    ORDER BY t.name, i.name, c.seqno"""


def has_fixed_stats(connection: apsw.Connection) -> bool:
    """Whether a store has these statistics and no other."""
    named = [name for name in _TABLES if connection.table_exists("main", name)]
    if "sqlite_stat1" not in named:
        return False
    # Not every SQLite keeps samples.
    if "sqlite_stat4" in named and connection.execute("SELECT 1 FROM sqlite_stat4 LIMIT 1").get:
        return False
    found = connection.execute("SELECT tbl, idx, stat FROM sqlite_stat1").fetchall()
    return sorted(found) == sorted(_statistics(connection))


def write_fixed_stats(connection: apsw.Connection) -> None:
    """Give a store these statistics; open connections see them with their next statement."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # New tables, not new rows: only a change of the schema makes others read them again.
        for name in _TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        # It makes the tables, gathers nothing, and loads what is in them.
        connection.execute("ANALYZE sqlite_schema")
        connection.executemany(
            "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)", _statistics(connection)
        )
        connection.execute("ANALYZE sqlite_schema")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statistics(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    """A row for each index: how many rows it has, and how many share its first columns."""
    found = []
    rows: list[Row] = connection.execute(_COLUMNS).fetchall()
    for (table, index, origin, unique), columns in groupby(rows, key=lambda row: row[:4]):
        counts = [_ROWS]
        for *_, column in columns:
            counts.append(min(counts[-1], _ROWS_PER_VALUE.get(column, 1)))
        if unique:
            counts[-1] = 1
        left = [max(count // _PARTIAL_INDEX_RATIO.get(index, 1), 1) for count in counts]
        # The key of a clustered table goes by the name of its table.
        name = table if origin == "pk" else index
        found.append((table, name, f"{' '.join(map(str, left))} noskipscan"))
    return found
