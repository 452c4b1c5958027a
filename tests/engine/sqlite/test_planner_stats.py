"""Every statement uses the index made for it, in every store."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

import reverie
from reverie.agenda import jobs
from reverie.engine import (
    index,
    log,
    search,
    sessions,
)
from reverie.engine import (
    index as engine_index,
)
from reverie.engine import (
    sessions as engine_sessions,
)
from reverie.engine.index import Filter, ProfileGroup, profile_memories
from reverie.engine.search import PassageSource
from reverie.engine.sessions import EventRange
from reverie.engine.sqlite.engine import SQLiteEngine
from reverie.engine.sqlite.transaction import SQLiteTransaction
from reverie.model import Origin
from reverie.protocols import Owner, Row
from reverie.write import recall_log
from reverie.write.where import parse_where
from tests.crash.failing_vfs import FailingVFS, Fault
from tests.crash.workload import open_store, text_of

OWNER = Owner(1, 1)
FAR = 1 << 60
FACTS = Filter(kinds=("fact",), tags=("work",), since=1, alive_at=1)
STATISTICS = "SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY tbl, idx"


class Explained(SQLiteTransaction):
    """Notes by which index, and by which of its columns, each statement finds its rows."""

    def __init__(self, tx: SQLiteTransaction) -> None:
        super().__init__(tx._connection, tx._vectors, tx.writing)
        self.ways: list[str] = []

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        self._note(sql, values)
        return super().all(sql, values)

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        self._note(sql, values)
        return super().one(sql, values)

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        self._note(sql, values)
        return super().run(sql, values)

    def _note(self, sql: str, values: Sequence[Any]) -> None:
        for *_, step in super().all(f"EXPLAIN QUERY PLAN {sql}", values):
            # The terms of a query are a table of their own, without an index.
            if re.match(r"SEARCH|SCAN (?!q$|.*CONSTANT)", step):
                self.ways.append(_way(step))


def _way(step: str) -> str:
    """``events_chain: space owner chain`` of a line that EXPLAIN QUERY PLAN gives."""
    found = re.search(
        r"USING (?:COVERING )?(?:INDEX )?(PRIMARY KEY|\w+) \((.*)\)( LEFT-JOIN)?$", step
    )
    if found is None:
        return step
    name = "key" if found[1] == "PRIMARY KEY" else found[1]
    columns = dict.fromkeys(re.findall(r"(\w+)[=<>]\?", found[2]))
    return f"{name}: {' '.join(columns)}"


def _where(where: dict[str, Any]) -> Filter:
    return Filter(condition=parse_where(where))


Call = Callable[[SQLiteTransaction], object]
CALLS: dict[str, tuple[Call, list[str]]] = {
    "by_key": (lambda tx: log.find_by_key(tx, OWNER, "k"), ["log_key: space owner key"]),
    "at_position": (lambda tx: log.find_at_position(tx, OWNER, 1), ["key: space position"]),
    "at_positions": (lambda tx: log.find_at_positions(tx, OWNER, [1, 2]), ["key: space position"]),
    "entries": (lambda tx: log.entries(tx, OWNER, 0, 9, 9), ["key: space position"]),
    "time_at": (lambda tx: log.recorded_time_at(tx, OWNER, 1), ["key: space position"]),
    "time_of": (lambda tx: log.entry_time(tx, OWNER, 1), ["key: space position"]),
    "versions": (lambda tx: log.versions(tx, OWNER, "m"), ["log_memory: space memory"]),
    "has_versions": (lambda tx: log.has_versions(tx, OWNER, "m"), ["log_memory: space memory"]),
    "id_taken": (lambda tx: log.id_taken(tx, OWNER, "m"), ["log_memory: space memory"]),
    "states_at": (
        lambda tx: list(log.states_at(tx, OWNER, 5)),
        ["key: space position", "key: space position"],
    ),
    "of_session": (
        lambda tx: log.session_entries(tx, OWNER, "s"),
        ["log_session: space owner session"],
    ),
    "from_session": (
        lambda tx: log.memories_from_session(tx, OWNER, "s"),
        ["log_memory: space memory"],
    ),
    "in_session": (
        lambda tx: log.has_session_entry(tx, OWNER, "s", 1, "u"),
        ["log_session: space owner session sequence"],
    ),
    "in_session, of no event": (
        lambda tx: log.has_session_entry(tx, OWNER, "s", None, "u"),
        ["log_session: space owner session sequence"],
    ),
    "find": (
        lambda tx: index.find(tx, OWNER, "m"),
        ["key: space owner born", "log_memory: space memory version"],
    ),
    "has_private_memory": (
        lambda tx: index.has_private_memory(tx, OWNER, "s"),
        ["memories_private: space owner session"],
    ),
    "find_subject": (
        lambda tx: index.find_subject(tx, OWNER, "c", "s", 0),
        ["memories_subject: space owner subject_key category"],
    ),
    "find_subject, of a session": (
        lambda tx: index.find_subject(tx, OWNER, "c", "s", 0, "s"),
        ["memories_subject: space owner subject_key category"],
    ),
    "find_by_subject": (
        lambda tx: index.find_by_subject(tx, OWNER, "s", 0, None, 9),
        ["memories_subject: space owner subject_key"],
    ),
    "find_by_content": (
        lambda tx: index.find_by_content(tx, OWNER, "text", 0),
        ["memories_content: space owner content_hash"],
    ),
    "list_memories, of a subject": (
        lambda tx: index.list_memories(tx, OWNER, Filter(subject_key="s")),
        ["memories_subject: space owner subject_key"],
    ),
    "list_memories, equal metadata": (
        lambda tx: index.list_memories(tx, OWNER, _where({"metadata.team": "web"})),
        ["key: space owner born", "key: space owner name value"],
    ),
    "list_memories, range of metadata": (
        lambda tx: index.list_memories(tx, OWNER, _where({"metadata.n": {"gte": 1}})),
        ["key: space owner born", "key: space owner name value"],
    ),
    "for_profile, pinned": (
        lambda tx: profile_memories(tx, OWNER, ProfileGroup(pinned=True), 9, 0, 9),
        ["memories_pinned: space owner born"],
    ),
    "for_profile, of one category": (
        lambda tx: profile_memories(tx, OWNER, ProfileGroup(categories=("a",)), 9, 0, 9),
        ["memories_category: space owner category born"],
    ),
    "fact_categories": (
        lambda tx: engine_index.fact_categories(tx, OWNER, ["a", "b"]),
        ["SCAN asked", "memories_category: space owner category"],
    ),
    "for_profile, of two categories": (
        lambda tx: profile_memories(tx, OWNER, ProfileGroup(categories=("a", "b")), 9, 0, 9),
        # The scans are of the few rows that were found for each category.
        [
            *("memories_category: space owner category born", "SCAN c0"),
            *("memories_category: space owner category born", "SCAN c1"),
        ],
    ),
    "for_profile, of other categories": (
        lambda tx: profile_memories(
            tx, OWNER, ProfileGroup(categories=("a", "b"), other=True), 9, 0, 9
        ),
        ["memories_oldest: space owner kind born"],
    ),
    "for_profile, by id": (
        lambda tx: engine_index.profile_memories_by_id(tx, OWNER, ["a", "b"], 0),
        ["memories_oldest: space owner kind born", "log_memory: space memory version"],
    ),
    "often_recalled": (
        lambda tx: recall_log.often_recalled(tx, OWNER, 5),
        ["key: space owner"],
    ),
    "state_mark": (
        lambda tx: engine_index.state_version(tx, OWNER),
        ["key: space owner", "key: space owner", "memories_changed: space owner"],
    ),
    "changed_since": (
        lambda tx: engine_index.changed_since(tx, OWNER, 5, 0),
        ["memories_changed: space owner position", "log_memory: space memory"],
    ),
    "oldest": (
        lambda tx: index.oldest_unpinned(tx, OWNER, "fact", None, 9),
        ["memories_by_actor: space owner kind actor pinned"],
    ),
    "count by actor": (
        lambda tx: index.count_by_actor(tx, OWNER, "fact", "agent"),
        ["memories_by_actor: space owner kind actor"],
    ),
    "places": (lambda tx: index.list_memories(tx, OWNER, Filter(), 9), ["key: space owner"]),
    "places, of a subject": (
        lambda tx: index.list_memories(tx, OWNER, Filter(category="c", subject_key="s")),
        ["memories_subject: space owner subject_key category"],
    ),
    "located": (lambda tx: index.passage_offsets(tx, OWNER, [1, 2]), ["key: space owner passage"]),
    "frequencies": (
        lambda tx: index.frequencies(tx, OWNER, ["river", "amber"]),
        ["key: space owner term"],
    ),
    "with_terms": (
        lambda tx: index.find_containing(tx, OWNER, ["amber", "river"], 0),
        [
            "key: space owner term",
            "key: space owner term",
            "key: space owner passage",
            "key: space owner born",
            "key: space owner term passage",
        ],
    ),
    "postings": (
        lambda tx: search.postings(tx, OWNER, ["river", "amber"], None),
        ["key: space owner term"],
    ),
    "postings, with a filter": (
        lambda tx: search.postings(tx, OWNER, ["river"], Filter(since=1)),
        [
            "key: space owner term",
            "key: space owner passage",
            "key: space owner born",
            "events_position: space owner position",
        ],
    ),
    "frequencies_in": (
        lambda tx: search.frequencies_in(tx, OWNER, ["river", "amber"], [1, 2]),
        ["key: space owner term"],
    ),
    "hidden_passages": (
        lambda tx: search.hidden_passages(tx, OWNER, Filter(sessions=("s",)), 9),
        ["memories_private: space owner session"],
    ),
    "births": (lambda tx: search.passage_sources(tx, OWNER, [1, 2]), ["key: space owner passage"]),
    "memories": (
        lambda tx: search.memory_candidates(tx, OWNER, [PassageSource(1, 4, 0, 9)], 0),
        ["key: space owner born", "log_origin: space memory"],
    ),
    "events_around": (
        lambda tx: search.events_around(tx, OWNER, {6: 2, 7: 0}, Filter(until=FAR)),
        ["events_position: space owner position", "key: space owner session sequence"],
    ),
    "events_of": (
        lambda tx: search.origin_events(tx, OWNER, [Origin("s", 1)], Filter(until=FAR)),
        ["key: space owner session sequence"],
    ),
    "sessions.find": (lambda tx: sessions.find(tx, OWNER, "s"), ["key: space owner session"]),
    "listed": (lambda tx: sessions.list_sessions(tx, OWNER), ["sessions_recent: space owner"]),
    "quietest": (lambda tx: sessions.least_recent(tx, OWNER, 5), ["sessions_recent: space owner"]),
    "spots": (
        lambda tx: sessions.list_events(tx, OWNER, [EventRange("s", 0, None)]),
        ["key: space owner session sequence"],
    ),
    "spot_at": (
        lambda tx: sessions.find_event_at(tx, OWNER, 1),
        ["events_position: space owner position"],
    ),
    "entry_of": (
        lambda tx: sessions.find_event_entry(tx, OWNER, Origin("nobody's", 1)),
        ["key: space owner session sequence"],
    ),
    "by_chain": (
        lambda tx: sessions.find_by_chain(tx, OWNER, "c"),
        ["events_chain: space owner chain", "key: space owner session"],
    ),
    "forks": (
        lambda tx: sessions.list_forks(tx, OWNER, "s"),
        ["sessions_forks: space owner forked_session"],
    ),
    "forks, the newest at an event": (
        lambda tx: sessions.list_forks(tx, OWNER, "s", at=1, newest=5),
        ["sessions_forks: space owner forked_session"],
    ),
    "family": (
        lambda tx: engine_sessions.fork_tree(tx, OWNER, "s"),
        [
            "key: space owner session",
            "key: space owner session",
            "sessions_forks: space owner forked_session",
        ],
    ),
    "first_behind": (
        lambda tx: sessions.next_event(tx, OWNER, "s", 1),
        ["key: space owner session sequence"],
    ),
    "end": (
        lambda tx: sessions.mark_ended(tx, OWNER, "s"),
        [
            "key: space owner session",
            "sessions_forks: space owner forked_session",
            "key: space owner session",
        ],
    ),
    "waits_in": (
        lambda tx: jobs.has_ready_in_lane(tx, OWNER, "l"),
        ["jobs_lane: space owner lane"],
    ),
    "drop_lane": (
        lambda tx: jobs.drop_lane(tx, OWNER, "l"),
        ["jobs_lane: space owner lane", "jobs_due: space owner", "key: space owner"],
    ),
    "due_owners": (lambda tx: jobs.due_owners(tx, FAR, 1), ["due_at: at"]),
    "claim": (
        lambda tx: jobs.claim(tx, OWNER, FAR, "t"),
        [
            "jobs_due: space owner state due_at",
            "jobs_lane: space owner lane job",
            "jobs_due: space owner state due_at",
            "key: space job",
            "jobs_due: space owner",
            "key: space owner",
        ],
    ),
}


def fill(path: Path) -> None:
    """Some of everything. How much there is must not matter."""
    chance = random.Random(20)
    with open_store(path) as store:
        space = store.space("s", user="u")
        for number in range(5):
            space.remember(
                f"amber river {text_of(chance, str(number), 5)}",
                subject=f"subject {number}",
                tags=["work"],
                pinned=not number,
            )
        session = space.session("s")
        for number in range(5):
            session.append({"role": "user", "content": text_of(chance, str(number), 5)})


def drop_statistics(path: Path) -> None:
    connection = apsw.Connection(str(path))
    for name in ("sqlite_stat1", "sqlite_stat4"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    connection.close()


def statistics_of(path: Path) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        if not connection.table_exists("main", "sqlite_stat1"):
            return []
        return connection.execute(STATISTICS).fetchall()
    finally:
        connection.close()


class Undone(Exception):
    """Ends a write whose changes nobody wants."""


def ways_of(engine: SQLiteEngine, call: Call) -> list[str]:
    ways: list[str] = []
    with contextlib.suppress(Undone), engine.write() as tx:
        explained = Explained(tx)
        call(explained)
        explained.close()
        ways = explained.ways
        raise Undone
    return ways


@pytest.fixture(params=["fresh", "vacuumed", "without", "restored"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SQLiteEngine]:
    """A store in each of the ways in which one comes to its statistics."""
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    fill(path)
    if request.param == "without":
        drop_statistics(path)
    opened = SQLiteEngine(str(path))
    if request.param == "vacuumed":
        opened.vacuum()
    elif request.param == "restored":
        opened.backup(backup)
        drop_statistics(backup)
        opened.restore(backup)
    yield opened
    opened.close()


def test_each_statement_uses_its_index(engine: SQLiteEngine) -> None:
    found = {name: ways_of(engine, call) for name, (call, _) in CALLS.items()}
    assert found == {name: expected for name, (_, expected) in CALLS.items()}


def test_filter_is_looked_up_by_index_for_each_passage(engine: SQLiteEngine) -> None:
    ways = ways_of(engine, lambda tx: search.postings(tx, OWNER, ["river"], FACTS))
    assert ways[:2] == ["key: space owner term", "key: space owner passage"]
    assert "key: space owner born" in ways
    assert "key: space owner tag born" in ways


def test_every_index_has_statistics(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db"):
        found = {(table, name) for table, name, _ in statistics_of(tmp_path / "store.db")}
    connection = apsw.Connection(str(tmp_path / "store.db"))
    made = connection.execute(
        "SELECT tbl_name, name FROM sqlite_schema WHERE type = 'index'"
    ).fetchall()
    clustered = connection.execute("SELECT name FROM pragma_table_list WHERE wr").fetchall()
    connection.close()
    assert found == {*made, *((name, name) for (name,) in clustered)}


def test_planner_statistics_do_not_depend_on_the_data(tmp_path: Path) -> None:
    fill(tmp_path / "full.db")
    open_store(tmp_path / "empty.db").close()
    expected = statistics_of(tmp_path / "empty.db")
    assert expected and statistics_of(tmp_path / "full.db") == expected


def test_gathered_planner_statistics_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    fill(path)
    expected = statistics_of(path)
    connection = apsw.Connection(str(path))
    connection.execute("ANALYZE")
    assert statistics_of(path) != expected
    with open_store(path) as store:
        assert store.verify().problems == ()
        assert statistics_of(path) == expected
        if connection.table_exists("main", "sqlite_stat4"):
            assert connection.execute("SELECT COUNT(*) FROM sqlite_stat4").get == 0
    connection.close()


def test_open_store_follows_statistics_changed_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    fill(path)
    drop_statistics(path)
    reading = SQLiteEngine(f"{path}?mode=ro")

    def plan(chain: str) -> str:
        sql = f"SELECT * FROM events WHERE space = 1 AND owner = 0 AND chain = '{chain}'"
        with reading.read() as tx:
            # A statement looks whether the schema is still the same; explaining one does not.
            tx.all(sql)
            return str(tx.all(f"EXPLAIN QUERY PLAN {sql}")[0][-1])

    assert _way(plan("before")) == "key: space owner"
    open_store(path).close()
    assert _way(plan("after")) == "events_chain: space owner chain"
    reading.close()


def test_read_only_open_writes_no_statistics(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    fill(path)
    drop_statistics(path)
    with reverie.open(f"{path}?mode=ro", embedder="hashing", settings=reverie.Settings()) as store:
        assert store.space("s", user="u").recall("amber river")
        assert store.verify().problems == ()
    assert statistics_of(path) == []


def test_reopening_does_not_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    fill(path)
    before = path.read_bytes()
    SQLiteEngine(str(path)).close()
    assert path.read_bytes() == before


def test_store_on_a_full_disk_opens_without_statistics(tmp_path: Path) -> None:
    path, vfs = tmp_path / "store.db", FailingVFS()
    fill(path)
    expected = statistics_of(path)
    drop_statistics(path)
    vfs.arm(Fault("write", apsw.SQLITE_FULL, 1, "wal", lasting=True))
    engine = SQLiteEngine(f"{path}?vfs={vfs.vfs_name}")
    assert vfs.fired
    with engine.read() as tx:
        assert log.last_position(tx, OWNER)
    vfs.disarm()
    engine.close()
    vfs.unregister()
    assert statistics_of(path) == []
    open_store(path).close()
    assert statistics_of(path) == expected


def test_backup_and_vacuum_keep_the_statistics(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    fill(path)
    expected = statistics_of(path)
    with open_store(path) as store:
        store.backup(tmp_path / "backup.db")
        store.vacuum()
        store.rebuild()
        assert store.verify().problems == ()
        assert statistics_of(path) == expected
        store.restore_backup(tmp_path / "backup.db")
        assert store.verify().problems == ()
    assert statistics_of(path) == expected
    assert statistics_of(tmp_path / "backup.db") == expected
