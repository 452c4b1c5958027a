"""What a memory takes up on PostgreSQL, and what one recall reads there.

``docs/scale.md`` quotes what it prints. Run it with ``python -m bench.growth_postgres``; it starts
a server of its own.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from tests.conftest import rows, tamper
from tests.servers import running
from tests.statements import Statement, nodes_of, recorded

import reverie
from bench.subjects import UNWATCHED
from bench.texts import SEED, Writer
from reverie import Store

SPACES, EACH = 200, 100
QUERIES = 40
PAGE = 8192
EMPTY = 100_000
"""Spaces without a memory in them, to see what a space takes up by itself."""

_TABLES = """SELECT relname, COALESCE(c.reltuples, 0), pg_table_size(c.oid), pg_indexes_size(c.oid)
    FROM pg_class c WHERE relnamespace = 'reverie'::regnamespace AND relkind = 'r'
    ORDER BY pg_total_relation_size(c.oid) DESC"""
# What a space has before it has anything in it.
_FIRST_ROWS = (
    "INSERT INTO spaces SELECT n, 'user-' || n FROM generate_series(1, {}) n",
    "INSERT INTO owners SELECT n, 0, '' FROM generate_series(1, {}) n",
    "INSERT INTO counters SELECT n, 0, 0, 0, 0 FROM generate_series(1, {}) n",
    "INSERT INTO statistics SELECT n, 0, 0, 0, 0, 0, 0, 0, 0 FROM generate_series(1, {}) n",
)


class Read(NamedTuple):
    """What one recall cost the server."""

    statements: int
    rows: int
    pages: int


def main() -> None:
    writer = Writer(SEED)
    texts = [writer.sentences(EACH) for _ in range(SPACES)]
    with running(autovacuum="off") as server:
        address = server.database()
        with reverie.open(address, settings=UNWATCHED, embedder="local") as store:
            for number, some in enumerate(texts):
                store.space(f"s{number}").import_records({"content": text} for text in some)
        with server.connect(address.split("/")[3].split("?")[0]) as connection:
            connection.execute("VACUUM ANALYZE")
        with reverie.open(address, settings=UNWATCHED, embedder="local") as store:
            _say(_sizes(store, texts))
            _say(_recalls(store, writer, texts))
        with reverie.open(server.database(), settings=UNWATCHED, embedder="none") as store:
            _say(_spaces(store))


def _say(lines: Iterator[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in [*lines, ""])


def _sizes(store: Store, texts: Sequence[Sequence[str]]) -> Iterator[str]:
    memories = sum(map(len, texts))
    length = statistics.mean(len(text) for some in texts for text in some)
    yield f"{memories:,} memories in {SPACES} spaces, {length:.0f} characters each on average."
    yield ""
    yield "| table | rows per memory | bytes per memory | of them indexes |"
    yield "|---|--:|--:|--:|"
    found = rows(store, _TABLES)
    for name, number, heap, indexes in found:
        if (heap + indexes) / memories >= 1:
            yield (
                f"| `{name}` | {number / memories:.2f} | {(heap + indexes) / memories:,.0f} "
                f"| {indexes / memories:,.0f} |"
            )
    heap, indexes = (sum(row[at] for row in found) for at in (2, 3))
    yield f"| all | | {(heap + indexes) / memories:,.0f} | {indexes / memories:,.0f} |"


def _spaces(store: Store) -> Iterator[str]:
    for statement in _FIRST_ROWS:
        tamper(store, statement.format(EMPTY))
    sizes = {row[0]: (row[2] + row[3]) / EMPTY for row in rows(store, _TABLES)}
    yield (
        f"A space by itself: {sizes['spaces']:.0f} bytes in `spaces`, and "
        f"{sum(sizes[name] for name in ('owners', 'counters', 'statistics')):.0f} bytes in "
        "`owners`, `counters` and `statistics`."
    )


def _recalls(store: Store, writer: Writer, texts: Sequence[Sequence[str]]) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        statements = recorded(patch)
        first, later = list[Read](), list[Read]()
        for number, some in list(enumerate(texts))[:QUERIES]:
            space = store.space(f"s{number}")
            for costs in (first, later):
                (query,) = writer.queries(some, 1)
                del statements[:]
                space.recall(query)
                costs.append(_cost(store, list(statements)))
    yield f"One recall among {EACH} memories, the median of {QUERIES}:"
    yield ""
    yield "| | statements | rows read | pages visited | bytes of these pages |"
    yield "|---|--:|--:|--:|--:|"
    for what, costs in (("the first of a process in the space", first), ("each later one", later)):
        median = Read(*(round(statistics.median(part)) for part in zip(*costs, strict=True)))
        yield (
            f"| {what} | {median.statements} | {median.rows:,} | {median.pages:,} "
            f"| {median.pages * PAGE:,} |"
        )


def _cost(store: Store, statements: Sequence[Statement]) -> Read:
    read = pages = 0
    for statement in statements:
        nodes: list[dict[str, Any]] = list(nodes_of(store, statement, "ANALYZE", "BUFFERS"))
        pages += nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]
        read += sum(
            round(node["Actual Rows"] * node["Actual Loops"])
            for node in nodes
            if "Relation Name" in node
        )
    return Read(len(statements), read, pages)


if __name__ == "__main__":
    main()
