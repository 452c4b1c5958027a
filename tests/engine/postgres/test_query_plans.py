"""Under row-level security every statement of PostgreSQL still uses an index."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psycopg
import pytest

import reverie
from reverie import Origin, Session, Settings, Space, Store
from reverie.engine import seals
from reverie.engine.postgres import engine as postgres_engine
from reverie.engine.postgres import schema
from reverie.engine.postgres.transaction import PostgresTransaction, to_numbered_params
from reverie.engine.schema import TABLES, Table
from reverie.protocols import Row
from tests.conftest import FakeClock, SeededIds
from tests.messages import propose, reply, user
from tests.servers import Server

WORDS = [f"word{number}" for number in range(400)]
# Spaces as large as the first, and those that have hardly anything.
LARGE, SMALL = 30, 3_000
# What has many rows in one space; the others are many by there being many spaces.
BIG = ("log", "memories", "passages", "postings", "events", "tags", "metadata", "vectors")
VECTORS = Table("vectors", ("space", "owner", "generation", "passage"), ("embedding",))
Plan = dict[str, Any]


class Explained(PostgresTransaction):
    """Notes the plan of each statement: for these values, and for whatever values there may be."""

    seen: list[tuple[str, Plan]] = []

    def all(self, sql: str, values: Sequence[Any] = (), *, binary: bool = False) -> list[Row]:
        self._note(sql, values)
        return super().all(sql, values, binary=binary)

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        self._note(sql, values)
        return super().one(sql, values)

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        self._note(sql, values)
        return super().run(sql, values)

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        waiting = list(rows)
        if waiting:
            self._note(sql, waiting[0])
        super().many(sql, waiting)

    def _note(self, sql: str, values: Sequence[Any]) -> None:
        self._execute(b"SELECT 1")
        plain = to_numbered_params(sql)
        self._explain(sql, b"EXPLAIN (FORMAT JSON) " + plain, values)
        self._explain(sql, b"EXPLAIN (FORMAT JSON, GENERIC_PLAN) " + _typed(plain, values), None)

    def _explain(self, sql: str, statement: bytes, values: Sequence[Any] | None) -> None:
        ((plans,),) = self._cursor.execute(statement, values, prepare=False).fetchall()
        self.seen.append((sql, plans[0]["Plan"]))


TYPES = {int: "::bigint", float: "::float8", str: "::text", np.ndarray: "::vector"}


def _typed(statement: bytes, values: Sequence[Any]) -> bytes:
    """The type of each value by its place; the server learns it from here only."""
    return re.sub(
        rb"\$(\d+)",
        lambda found: found[0] + TYPES.get(type(values[int(found[1]) - 1]), "").encode(),
        statement,
    )


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def load(address: str, document: Path) -> None:
    """Fill one space through the public API, and copy its rows for the others."""
    chance = random.Random(5)
    with open_store(address) as store:
        for handle in (store.space("space 1"), store.space("space 1", user="a")):
            handle.import_records(
                {
                    "content": " ".join(chance.choices(WORDS, k=8)),
                    "tags": [f"tag{n % 30}"],
                    "metadata": {"team": f"team{n % 30}", "number": n},
                }
                for n in range(300)
            )
            write_some(handle)
            handle.remember_file(document)
    with open_store(address, "none") as store:
        for handle in (store.space("space 1"), store.space("space 1", user="a")):
            handle.remember("without a vector")
    with psycopg.connect(address, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute("SET search_path = reverie, public")
        for table in (*TABLES[1:], VECTORS):
            multiply(connection, table)
        statements = schema._ConnectionStatements(connection)
        seals.seal_log(statements, 7)
        seals.seal_other_tables(statements)
        connection.execute("VACUUM ANALYZE")


def write_some(handle: Space) -> None:
    first = handle.remember("the first", subject="first", pinned=True)
    handle.revise(first.id, "the very first")
    handle.forget(first.id)
    session = handle.session("c")
    for number in range(30):
        session.append(user(f"{WORDS[number]} {WORDS[number + 1]}?"))
        session.append(reply(f"{WORDS[number + 2]}"))
    session.scratchpad.write(["one thing"])
    session.remember("kept by the session", private=True)
    propose(handle, "a proposal", Origin("c", 1))
    handle.recall(WORDS[0])
    handle.remember("noted")


def multiply(connection: psycopg.Connection[Any], table: Table) -> None:
    columns = table.columns.split(", ")
    made = ["t.space + n" if column == "space" else f"t.{column}" for column in columns]
    if table.name == "spaces":
        made[columns.index("name")] = "'space ' || (t.space + n)"
    several = LARGE if table.name in BIG else SMALL
    connection.execute(
        f"INSERT INTO {table.name} ({table.columns}) SELECT {', '.join(made)} "
        f"FROM {table.name} t, generate_series(1, {several - 1}) n WHERE t.space = 1".encode()
    )


def open_store(address: str, embedder: str = "hashing") -> Store:
    return reverie.open(
        address,
        settings=Settings(),
        embedder=embedder,
        clock=FakeClock(),
        ids=SeededIds(random.randrange(1 << 30)),
    )


@pytest.fixture(scope="module")
def loaded(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    address = postgres.database(template="made")
    document = tmp_path_factory.mktemp("documents") / "document.txt"
    document.write_text("what a document says", encoding="utf-8")
    load(address, document)
    return address


@pytest.fixture(params=[None, "a"], ids=["shared", "user"])
def handle(request: pytest.FixtureRequest, loaded: str) -> Iterator[Space]:
    with open_store(loaded) as store:
        yield store.space("space 7", user=request.param)


@contextlib.contextmanager
def explained(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Plan]]]:
    Explained.seen = []
    with monkeypatch.context() as patched:
        patched.setattr(postgres_engine, "PostgresTransaction", Explained)
        yield Explained.seen


def session_of(handle: Space) -> Session:
    return handle.session("c")


def own(handle: Space, *, forgotten: bool = False) -> str:
    """One of the memories that this handle may change."""
    return next(
        memory.id
        for memory in handle.memories(include_forgotten=True)
        if memory.user == handle.user and (memory.forgotten_at is not None) == forgotten
    )


CALLS: dict[str, Callable[[Space], object]] = {
    "recall": lambda s: s.recall("word1 word2 word3", limit=10),
    "recall by word": lambda s: s.recall("word4 word5", mode="keyword"),
    "recall by vector": lambda s: s.recall("word6 word7", mode="vector"),
    "recall with a filter": lambda s: s.recall("word8", tags=["tag3"], kinds=["fact"]),
    "recall by metadata": lambda s: s.recall("word8", where={"metadata.team": "team3"}),
    "memories of a metadata": lambda s: s.memories(where={"metadata.team": "team3"}),
    "memories of a range": lambda s: s.count(where={"metadata.number": {"gte": 3, "lt": 9}}),
    "memories without a tag": lambda s: s.count(where={"NOT": {"tags": "tag3"}}),
    "remember many": lambda s: s.remember_many(["word16", {"content": "w", "metadata": {"a": 1}}]),
    "recall since": lambda s: s.recall("word9", since=1, until=1 << 42),
    "recall in a session": lambda s: session_of(s).recall("word10 word11"),
    "remember": lambda s: s.remember("word12 something", key="k", subject="s", tags=["tag1"]),
    "revise": lambda s: s.revise(own(s), "word13 revised"),
    "forget": lambda s: s.forget(own(s)),
    "restore": lambda s: s.restore(own(s, forgotten=True)),
    "append": lambda s: session_of(s).append(user("word14 said")),
    "context": lambda s: session_of(s).context("word15", tokens=2_000),
    "profile": lambda s: s.profile(),
    "memories of a subject": lambda s: s.memories(subject="first"),
    "history": lambda s: s.history(own(s)),
    "sessions": lambda s: s.sessions(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.prove
def test_no_statement_scans_a_whole_table(
    handle: Space, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with explained(monkeypatch) as seen:
        CALLS[name](handle)
    assert len(seen) >= 4
    scanned = [
        (node["Relation Name"], sql)
        for sql, plan in seen
        for node in nodes(plan)
        if "Relation Name" in node
        and node["Relation Name"] != "meta"
        and ("Seq Scan" in node["Node Type"] or not _led_by_space(node))
    ]
    assert scanned == []


def _led_by_space(node: Plan) -> bool:
    """Whether its rows are found by their space, or are of the name that was said."""
    condition = node.get("Index Cond", "") + node.get("Recheck Cond", "")
    if node["Node Type"] in {"ModifyTable", "LockRows"}:
        return True
    return "space" in condition or (node["Relation Name"] == "spaces" and "name" in condition)


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith("recall")])
@pytest.mark.sample(3)
def test_row_security_policies_are_evaluated_once_per_query(
    handle: Space, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with explained(monkeypatch) as seen:
        CALLS[name](handle)
    found: set[str] = set()
    for sql, plan in seen:
        for node in nodes(plan):
            table = node.get("Relation Name")
            if table not in {"postings", "vectors"}:
                continue
            found.add(table)
            condition, filtered = node.get("Index Cond", ""), node.get("Filter", "")
            assert "(space = " in condition and "(owner = " in condition, (sql, node)
            assert "space" not in filtered and "owner" not in filtered, (sql, node)
            # That it is the space that was said is asked once for all rows.
            assert "reverie.owner" in condition, sql
            assert "','::text, 1)" in json.dumps(plan), sql
    wanted = {"recall by word": {"postings"}}.get(name, {"postings", "vectors"})
    assert found == wanted


def test_row_security_policies_are_in_the_plans_of_every_table(
    handle: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans above are those of the role that row-level security applies to."""
    with explained(monkeypatch) as seen:
        CALLS["recall"](handle)
        CALLS["remember"](handle)
    for sql, plan in seen:
        read = [
            node for node in nodes(plan) if "Scan" in node["Node Type"] and "Relation Name" in node
        ]
        if any(node["Relation Name"] != "meta" for node in read):
            assert "reverie.owner" in json.dumps(plan), sql


def test_query_plans_are_taken_from_a_filled_store(postgres: Server, loaded: str) -> None:
    with postgres.connect(urlsplit(loaded).path[1:]) as connection:
        small = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'reverie'::regnamespace "
            "AND relkind = 'r' AND reltuples < 1000 ORDER BY 1"
        ).fetchall()
        ((postings,),) = connection.execute("SELECT COUNT(*) FROM reverie.postings").fetchall()
    assert isinstance(postings, int) and postings > 50_000
    assert small == [("meta",)]
