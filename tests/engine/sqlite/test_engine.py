"""The SQLite engine: files, connections, transactions, forks, vectors and erased bytes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reverie
from reverie.engine import (
    index,
    log,
    schema,
    vector_math,
)
from reverie.engine.sqlite import engine as sqlite_engine
from reverie.engine.sqlite import store_file
from reverie.engine.sqlite import vectors as sqlite_vectors
from reverie.engine.sqlite.engine import SQLiteEngine
from reverie.engine.sqlite.store_file import APPLICATION_ID
from reverie.engine.sqlite.transaction import SQLiteTransaction
from reverie.errors import (
    ForkedHandle,
    NewerSchema,
    NotFound,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
)
from reverie.protocols import Owner
from tests.crash.peer import peers
from tests.crash.workload import open_store, text_of
from tests.figures import figure

Verb = Callable[[], object]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SQLiteEngine]:
    made = SQLiteEngine(str(tmp_path / "store.db"))
    yield made
    made.close()


def every_verb(store: reverie.Store, id: str, folder: Path) -> dict[str, Verb]:
    """Each public call that reaches the files."""
    space = store.space("s")
    backup = folder / "backup.db"
    if not backup.exists():
        store.backup(backup)
    file = folder / "document.txt"
    file.write_text("a document", encoding="utf-8")
    return {
        "remember": lambda: space.remember("x"),
        "remember_many": lambda: space.remember_many(["z"]),
        "remember_file": lambda: space.remember_file(file),
        "revise": lambda: space.revise(id, "y"),
        "relabel": lambda: space.revise(id, pinned=True),
        "forget": lambda: space.forget(id),
        "restore": lambda: space.restore(id),
        "erase": lambda: space.erase(id),
        "recall": lambda: space.recall("x"),
        "recall as of": lambda: space.recall("x", as_of=1),
        "get": lambda: space.get(id),
        "history": lambda: space.history(id),
        "memories": space.memories,
        "profile": space.profile,
        "export": lambda: list(space.export()),
        "import_records": lambda: space.import_records([{"content": "z"}]),
        "spaces": store.spaces,
        "run_pending_jobs": store.run_pending_jobs,
        "jobs": store.jobs,
        "retry_job": lambda: store.retry_job("s", 1),
        "drop_job": lambda: store.drop_job("s", 1),
        "rebuild": store.rebuild,
        "reembed": store.reembed,
        "verify": store.verify,
        "backup": lambda: store.backup(folder / "another.db"),
        "restore_backup": lambda: store.restore_backup(backup),
        "doctor": store.doctor,
        "vacuum": store.vacuum,
    }


_VERBS = """remember,remember_many,remember_file,revise,relabel,forget,restore,erase,recall,
recall as of,get,history,memories,profile,export,import_records,spaces,
run_pending_jobs,jobs,retry_job,drop_job,rebuild,reembed,verify,backup,
restore_backup,doctor,vacuum"""
VERBS = [name.strip() for name in _VERBS.split(",")]


def in_child(work: Callable[[], str]) -> str:
    """What ``work`` says in a forked child."""
    end, begin = os.pipe()
    child = os.fork()
    if not child:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001
            result = type(error).__name__
        os.write(begin, result.encode())
        os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as pipe:
        result = pipe.read().decode()
    os.waitpid(child, 0)
    return result


# -- fork and close -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_refuses_a_handle_from_before_a_fork(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path / "store.db") as store:
        id = store.space("s").remember("the parent wrote this").id
        verbs = every_verb(store, id, tmp_path)
        assert list(verbs) == VERBS

        def work() -> str:
            try:
                return f"returned {verbs[name]()!r}"
            except ForkedHandle:
                return "ForkedHandle"

        refused = in_child(work)
        figure("verbs refused after a fork", refused == "ForkedHandle")
        assert refused == "ForkedHandle"
        # The parent goes on as if nothing had happened.
        assert store.space("s").get(id).content == "the parent wrote this"
        store.space("s").remember("and this")
        assert store.verify().problems == ()


@pytest.mark.parametrize("closing", [True, False])
def test_exiting_child_does_not_harm_the_parents_store(tmp_path: Path, closing: bool) -> None:
    """It ends as programs do, with every destructor run, while the parent has open connections."""
    script = f"""
import os, sys, reverie
path = {str(tmp_path / "store.db")!r}
store = reverie.open(path, embedder="hashing", settings=reverie.Settings())
space = store.space("s")
space.remember("before")
for number in range(3):
    child = os.fork()
    if not child:
        if {closing}:
            store.close()
        del store, space
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for again in range(20):
        space.remember(f"in between {{number}} {{again}}")
    assert store.verify().ok
assert os.path.exists(path + "-wal")
# Gone without closing: what was acknowledged is in the write-ahead log or in the file.
sys.stdout.flush()
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    with open_store(tmp_path / "store.db") as store:
        assert len(store.space("s").memories()) == 61
        assert store.verify().problems == ()


def test_child_does_not_hold_the_parents_lock(tmp_path: Path) -> None:
    """A child forked in the middle of a write must not keep other processes from writing."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.space("s").remember("first")
        end, begin = os.pipe()
        with store.runtime.engine.write() as tx:
            log.ensure_owner(tx, "elsewhere", None)
            child = os.fork()
            if not child:
                os.close(begin)
                os.read(end, 1)
                os._exit(0)
        os.close(end)
        try:
            with open_store(path) as other:
                other.space("s").remember("second")
            store.space("s").remember("third")
        finally:
            os.close(begin)
            os.waitpid(child, 0)
        assert len(store.space("s").memories()) == 3


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_refuses_a_closed_store(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / "store.db")
    verbs = every_verb(store, store.space("s").remember("x").id, tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        verbs[name]()


def test_close_leaves_the_store_file_and_its_lock_file(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        store.space("s").remember("x")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store.db", "store.db-lock"]


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pragma", "expected"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("secure_delete", 1),
        ("auto_vacuum", 2),
        ("temp_store", 2),
        ("mmap_size", 0),
        ("application_id", APPLICATION_ID),
        ("user_version", schema.SCHEMA_VERSION),
    ],
)
def test_pragmas_are_set_on_every_connection(
    engine: SQLiteEngine, pragma: str, expected: object
) -> None:
    with (
        engine._lease_connection() as first,
        engine._lease_connection() as second,
        engine._lease_connection() as third,
    ):
        for connection in (first, second, third):
            found = connection.execute(f"PRAGMA {pragma}").fetchone()
            assert (found[0] if found else expected) == expected
    with engine._lease_connection() as lent:
        assert lent in {first, second, third}


def test_many_connections_do_not_each_cache_the_whole_file(engine: SQLiteEngine) -> None:
    add_large_table(engine, megabytes=16)
    with contextlib.ExitStack() as lent:
        connections = [lent.enter_context(engine._lease_connection()) for _ in range(8)]
        for connection in connections:
            connection.execute("SELECT max(length(data)) FROM filler").fetchall()
        cached = [each.status(apsw.SQLITE_DBSTATUS_CACHE_USED)[0] for each in connections]
    assert sum(cached) < 2 * (16 << 20)


def test_idle_main_connection_is_taken_first(engine: SQLiteEngine) -> None:
    with engine._lease_connection() as main, engine._lease_connection() as extra:
        assert main.pragma("cache_size") == -sqlite_engine.MAIN_CACHE_KIB
        assert extra.pragma("cache_size") == -sqlite_engine.EXTRA_CACHE_KIB
    for _ in range(3):
        with engine._lease_connection() as first, engine._lease_connection() as second:
            assert (first, second) == (main, extra)
    engine.drop_caches()
    with engine._lease_connection() as new:
        assert new is not main
        assert new.pragma("cache_size") == -sqlite_engine.MAIN_CACHE_KIB


def add_large_table(engine: SQLiteEngine, megabytes: int) -> None:
    """Add a table of rows of one page each."""
    with engine._lease_connection() as connection, connection:
        connection.execute("CREATE TABLE filler (data BLOB)")
        rows = (megabytes << 20) // 4096
        connection.executemany(
            "INSERT INTO filler VALUES (zeroblob(?))", ((3_800,) for _ in range(rows))
        )


def test_store_and_backup_files_have_mode_0600(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with open_store(tmp_path / "new" / "folder" / "store.db") as store:
            store.space("s").remember("private")
            store.backup(tmp_path / "new" / "folder" / "backup.db")
            modes = {
                file.name: stat.S_IMODE(file.stat().st_mode)
                for file in (tmp_path / "new" / "folder").iterdir()
            }
    finally:
        os.umask(before)
    assert set(modes) == {
        "store.db",
        "store.db-wal",
        "store.db-shm",
        "store.db-lock",
        "backup.db",
    }
    assert modes == dict.fromkeys(modes, 0o600)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content", [b"not a database at all", b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 8192]
)
def test_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        open_store(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("keep", [0.1, 0.3, 0.5, 0.9])
def test_truncated_file_is_refused_or_detected(tmp_path: Path, keep: float) -> None:
    """Opening refuses it, or looking does: no call returns as if all were well."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        for number in range(40):
            store.space("s").remember(
                text_of(random.Random(number), f"n{number}", 300), kind="note"
            )
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep) // 4096 * 4096])
    with pytest.raises(StoreDamaged), open_store(path) as store:
        report = store.verify()
        assert not report.ok, "a truncated file was called sound"
        raise StoreDamaged(report.problems[0])


@pytest.mark.parametrize("vacuum", [0, 1, 2])
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_database_of_another_program_is_refused_and_unchanged(
    tmp_path: Path, vacuum: int, journal: str
) -> None:
    path = tmp_path / "store.db"
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA auto_vacuum = {vacuum}")
    other.execute(f"PRAGMA journal_mode = {journal}")
    other.execute("CREATE TABLE theirs (a)")
    other.execute("INSERT INTO theirs VALUES (1)")
    other.commit()
    other.close()
    content = path.read_bytes()
    with pytest.raises(StoreDamaged, match="another program"):
        open_store(path)
    assert path.read_bytes() == content


def test_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreDamaged, match="folder"):
        open_store(tmp_path)


def test_parent_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for path in (tmp_path / "file" / "store.db", tmp_path / "file" / "deeper" / "store.db"):
        with pytest.raises(StoreError):
            open_store(path)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_newer_schema_version_is_refused_and_unchanged(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.space("s").remember("x")
    with apsw.Connection(str(path)) as connection:
        connection.pragma("user_version", schema.SCHEMA_VERSION + 1)
        connection.pragma("journal_mode", journal)
    connection.close()
    content = path.read_bytes()
    with pytest.raises(NewerSchema):
        open_store(path)
    assert path.read_bytes() == content
    with pytest.raises(NewerSchema):
        open_store(f"sqlite://{path}?mode=ro")


def test_read_only_store_reads_and_refuses_to_write(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        id = store.space("s").remember("green tea").id
        store.backup(tmp_path / "backup.db")
    content = path.read_bytes()
    with open_store(f"sqlite://{path}?mode=ro") as store:
        space = store.space("s")
        assert space.get(id).content == "green tea"
        for mode in ("keyword", "vector", "hybrid"):
            assert [hit.id for hit in space.recall("tea", mode=mode)] == [id]
        assert store.verify().problems == ()
        writes: list[Verb] = [
            lambda: space.remember("x"),
            lambda: space.revise(id, "x"),
            lambda: space.forget(id),
            lambda: space.erase(id),
            lambda: space.import_records([{"content": "x"}]),
            store.rebuild,
            store.reembed,
            store.vacuum,
            lambda: store.restore_backup(tmp_path / "backup.db"),
        ]
        for write in writes:
            with pytest.raises(StoreReadOnly):
                write()
        assert space.get(id).content == "green tea"
    assert path.read_bytes() == content
    with pytest.raises(StoreReadOnly):
        open_store(f"sqlite://{tmp_path}/none.db?mode=ro")
    assert not (tmp_path / "none.db").exists()


def test_sqlite_urls_are_parsed_to_path_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    parse = store_file.parse_url
    assert parse("/a/b.db") == (Path("/a/b.db"), {})
    assert parse("b.db") == (tmp_path / "b.db", {})
    assert parse("~/b.db") == (tmp_path / "b.db", {})
    assert parse("/a/what?.db") == (Path("/a/what?.db"), {})
    assert parse("/a/b.db?mode=ro") == (Path("/a/b.db"), {"mode": "ro"})
    assert parse("/a/100%25.db") == (Path("/a/100%25.db"), {})
    assert parse("sqlite:///a/b.db") == (Path("/a/b.db"), {})
    assert parse("sqlite:///a/b%20c%3F.db") == (Path("/a/b c?.db"), {})
    assert parse("sqlite:///a/b.db?mode=ro") == (Path("/a/b.db"), {"mode": "ro"})
    assert parse("sqlite:///a/b.db?vfs=x&mode=ro") == (Path("/a/b.db"), {"vfs": "x", "mode": "ro"})
    with pytest.raises(reverie.ConfigError):
        open_store("mysql://localhost/x")


@pytest.mark.parametrize("name", ["plain.db", "with space.db", "what?.db", "100%.db", "a#b.db"])
def test_store_url_opens_the_same_store(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path / name) as store:
        id = store.space("s").remember("x").id
        url = store.url
    with open_store(url) as store:
        assert store.space("s").get(id).content == "x"
        assert store.url == url
    assert sorted(file.name for file in tmp_path.iterdir()) == [name, f"{name}-lock"]


def test_old_sqlite_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreError, match="upgrade apsw"):
        SQLiteEngine(str(tmp_path / "store.db"))
    assert not (tmp_path / "store.db").exists()


# -- transactions ---------------------------------------------------------------------------------


def count(engine: SQLiteEngine) -> int:
    with engine.read() as tx:
        row = tx.one("SELECT COUNT(*) FROM meta")
    assert row is not None
    return int(row[0])


def put(tx: SQLiteTransaction, name: str) -> None:
    tx.run("INSERT INTO meta (key, value) VALUES (?, '')", (name,))


def test_write_inside_a_read_transaction_is_refused(engine: SQLiteEngine) -> None:
    with engine.read(), pytest.raises(StoreError, match="inside a read"), engine.write():
        pytest.fail("it started")
    with engine.write() as tx:
        put(tx, "a")
    assert count(engine) == 1


def test_nested_reads_share_one_snapshot(engine: SQLiteEngine, tmp_path: Path) -> None:
    other = SQLiteEngine(str(tmp_path / "store.db"))
    with engine.read() as outer:
        assert outer.all("SELECT * FROM meta") == []
        with other.write() as tx:
            put(tx, "a")
        with engine.read() as inner:
            assert inner is outer
            assert inner.all("SELECT * FROM meta") == []
        assert outer.all("SELECT * FROM meta") == []
    assert count(engine) == 1
    other.close()


def test_reads_and_writes_nest_inside_a_write(engine: SQLiteEngine) -> None:
    with engine.write() as outer:
        put(outer, "a")
        with engine.read() as inner:
            assert inner.all("SELECT key FROM meta") == [("a",)]
        with engine.write() as again:
            assert again is outer
            put(again, "b")
    assert count(engine) == 2


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_write_that_raises_is_rolled_back(engine: SQLiteEngine, error: type[BaseException]) -> None:
    with pytest.raises(error), engine.write() as tx:
        put(tx, "a")
        tx.put_vectors(Owner(1, 0), 1, 0, np.ones((3, 4), np.float32))
        raise error
    with pytest.raises(error), engine.write() as tx:
        put(tx, "a")
        with engine.write() as inner:
            put(inner, "b")
            raise error
    assert count(engine) == 0
    with engine.write() as tx:
        assert tx.vector_numbers(Owner(1, 0), 1) == []
        put(tx, "a")
    assert count(engine) == 1


def test_new_reader_connection_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    engine = SQLiteEngine(str(tmp_path / "store.db"), busy_timeout=0.05)
    results: list[object] = []

    def look() -> None:
        try:
            results.append(count(engine))
        except StoreError as error:
            results.append(error)

    with engine.write() as tx:
        put(tx, "a")
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert results == [0]
    engine.close()


def test_foreign_key_constraint_is_enforced(engine: SQLiteEngine) -> None:
    with pytest.raises(apsw.ConstraintError), engine.write() as tx:
        tx.run(
            "INSERT INTO memories (space, owner, born, memory, position, version, kind, category, "
            "pinned, at, first_passage, passages) VALUES (9, 9, 1, 'm', 1, 1, 'fact', 'c', 0, 0, "
            "0, 0)"
        )
    assert engine.check() == []


# -- vectors --------------------------------------------------------------------------------------

DIMENSIONS = 5


class Vectors:
    """An engine with two handles and a plain matrix that says what they must answer."""

    def __init__(self, path: Path) -> None:
        self.writer = SQLiteEngine(str(path))
        self.reader = SQLiteEngine(str(path))
        with self.writer.write() as tx:
            self.owners = [log.ensure_owner(tx, "s", user) for user in (None, "a", "b")]
        self.rows = {owner: np.zeros((0, DIMENSIONS), np.float32) for owner in self.owners}

    def close(self) -> None:
        self.reader.close()
        self.writer.close()

    def append(self, owner: Owner, new: np.ndarray, filled: bool) -> None:
        """Passages are numbered on; ``filled``: their vectors come with them."""
        first = len(self.rows[owner])
        with self.writer.write() as tx:
            tx.run(
                "UPDATE statistics SET next_passage = next_passage + ? "
                "WHERE space = ? AND owner = ?",
                (len(new), *owner),
            )
            if filled:
                tx.put_vectors(owner, 1, first, new)
        self.rows[owner] = np.vstack([self.rows[owner], new if filled else np.zeros_like(new)])

    def put(self, owner: Owner, number: int, row: np.ndarray) -> None:
        with self.writer.write() as tx:
            tx.put_vectors(owner, 1, number, row.reshape(1, -1))
            index.mark_vectors_changed(tx, owner, [number])
        self.rows[owner][number] = row

    def clear(self, owner: Owner, first: int, count: int) -> None:
        with self.writer.write() as tx:
            tx.clear_vectors(owner, first, count)
            index.mark_vectors_changed(tx, owner, range(first, first + count))
        self.rows[owner][first : first + count] = 0

    def renumber(self, owner: Owner) -> None:
        """What a rebuild does: everything goes, and a new epoch begins."""
        with self.writer.write() as tx:
            tx.clear_vectors(owner, 0, max(len(self.rows[owner]), 1))
            tx.run("DELETE FROM touched WHERE space = ? AND owner = ?", owner)
            tx.run(
                "UPDATE statistics SET epoch = epoch + 1, next_passage = 0, touches = 0 "
                "WHERE space = ? AND owner = ?",
                owner,
            )
        self.rows[owner] = np.zeros((0, DIMENSIONS), np.float32)

    def check(self, owner: Owner, query: np.ndarray, limit: int, allowed: list[int] | None) -> None:
        rows = self.rows[owner]
        live = rows.any(axis=1)
        mean = rows.sum(axis=0, dtype=np.float64) / (live.sum() + vector_math.MEAN_PRIOR)
        wanted: dict[int, float] = {}
        for place in map(int, np.flatnonzero(live)):
            if allowed is None or place in allowed:
                one, other = rows[place] - mean, query - mean
                scale = max(float(np.linalg.norm(one)), 1e-6) * (
                    float(np.linalg.norm(other)) or 1.0
                )
                wanted[place] = float(one @ other / scale)
        order = sorted(wanted.values(), reverse=True)
        for engine in (self.writer, self.reader):
            with engine.read() as tx:
                found = tx.nearest(owner, 1, query, limit, allowed)
                assert tx.vector_numbers(owner, 1) == [int(n) for n in np.flatnonzero(live)]
            assert len(found) == min(limit, len(wanted))
            assert len({number for number, _ in found}) == len(found)
            for (number, score), best in zip(found, order, strict=False):
                assert abs(score - wanted[number]) < 1e-3
                assert abs(score - best) < 1e-3


def a_row(chance: random.Random) -> np.ndarray:
    row = np.array([chance.gauss(0, 1) for _ in range(DIMENSIONS)])
    return np.asarray(row / np.linalg.norm(row), dtype=np.float32)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(
        st.sampled_from(["append", "hole", "put", "clear", "renumber", "look"]),
        min_size=1,
        max_size=25,
    ),
    held=st.sampled_from([1, 2_000, 1 << 30]),
)
def test_vector_search_equals_a_plain_matrix_product(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: list[str], held: int
) -> None:
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("vectors")
    vectors = Vectors(folder / "store.db")
    before, sqlite_vectors.CACHE_BYTES = sqlite_vectors.CACHE_BYTES, held
    try:
        for step in steps:
            owner = chance.choice(vectors.owners)
            known = len(vectors.rows[owner])
            if step in {"append", "hole"}:
                size = chance.choice([1, 2, 63, 64, 65, 130])
                new = np.array([a_row(chance) for _ in range(size)])
                vectors.append(owner, new, step == "append")
            elif step == "put" and known:
                vectors.put(owner, chance.randrange(known), a_row(chance))
            elif step == "clear" and known:
                first = chance.randrange(known)
                vectors.clear(owner, first, chance.randint(1, known - first))
            elif step == "renumber":
                vectors.renumber(owner)
            allowed = chance.sample(range(known), known // 2) if chance.random() < 0.3 else None
            vectors.check(owner, a_row(chance), chance.choice([1, 3, 10, 500]), allowed)
    finally:
        sqlite_vectors.CACHE_BYTES = before
        vectors.close()
        shutil.rmtree(folder)


def test_vector_cache_evicts_the_least_recently_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = Vectors(tmp_path / "store.db")
    chance = random.Random(1)
    for owner in vectors.owners:
        vectors.append(owner, np.array([a_row(chance) for _ in range(100)]), True)
    one = 100 * DIMENSIONS * 4
    monkeypatch.setattr(sqlite_vectors, "CACHE_BYTES", 2 * one)
    query = a_row(chance)
    first, second, third = vectors.owners
    for owner in (first, second, first, third):
        vectors.check(owner, query, 5, None)
    for engine in (vectors.reader, vectors.writer):
        assert [key[0] for key in engine._vectors._loaded] == [first, third]
    # One matrix larger than the bound is still served, alone.
    monkeypatch.setattr(sqlite_vectors, "CACHE_BYTES", one - 1)
    for owner in (*vectors.owners, *vectors.owners):
        vectors.check(owner, query, 5, None)
        for engine in (vectors.reader, vectors.writer):
            assert [key[0] for key in engine._vectors._loaded] == [owner]
    vectors.close()


def test_rolled_back_write_leaves_no_trace_in_the_vector_cache(tmp_path: Path) -> None:
    """Vectors looked at within a write that is then undone were never there."""
    vectors = Vectors(tmp_path / "store.db")
    chance = random.Random(2)
    owner = vectors.owners[0]
    vectors.append(owner, np.array([a_row(chance) for _ in range(3)]), True)
    vectors.check(owner, a_row(chance), 5, None)
    with pytest.raises(ValueError, match="undone"), vectors.writer.write() as tx:
        tx.run("UPDATE statistics SET next_passage = next_passage + 1 WHERE owner = 0")
        tx.put_vectors(owner, 1, 3, a_row(chance).reshape(1, -1))
        assert len(tx.nearest(owner, 1, a_row(chance), 9)) == 4
        raise ValueError("undone")
    vectors.check(owner, a_row(chance), 5, None)
    vectors.append(owner, a_row(chance).reshape(1, -1), True)
    vectors.check(owner, a_row(chance), 5, None)
    vectors.close()


def test_older_snapshot_does_not_spoil_the_vector_cache(tmp_path: Path) -> None:
    """A read that began before a write must not make later reads forget that write."""
    vectors = Vectors(tmp_path / "store.db")
    chance = random.Random(3)
    owner = vectors.owners[0]
    vectors.append(owner, np.array([a_row(chance) for _ in range(70)]), True)
    vectors.check(owner, a_row(chance), 5, None)
    lagging = vectors.reader
    with lagging.read() as old:
        old.one("SELECT COUNT(*) FROM statistics")
        vectors.clear(owner, 5, 10)
        vectors.append(owner, np.array([a_row(chance) for _ in range(7)]), True)
        vectors.renumber(owner)
        vectors.append(owner, np.array([a_row(chance) for _ in range(90)]), True)
        old.nearest(owner, 1, a_row(chance), 5)
    vectors.check(owner, a_row(chance), 500, None)
    vectors.close()


# -- erased bytes ---------------------------------------------------------------------------------


def token(chance: random.Random) -> str:
    """A word that is its own stem and occurs nowhere else."""
    return "q" + "".join(chance.choices("bcdfghjkmnpqrtvwxz", k=11))


def leaks(folder: Path, tokens: dict[str, list[str]]) -> dict[str, list[str]]:
    """For each file, which erased tokens it still holds."""
    found: dict[str, list[str]] = {}
    for file in folder.glob("store.db*"):
        content = file.read_bytes().lower()
        for id, words in tokens.items():
            here = [word for word in words if word.encode() in content]
            if here:
                found.setdefault(file.name, []).append(f"{id}: {len(here)} of {len(words)} words")
    return found


def secret(chance: random.Random, size: int) -> tuple[str, list[str]]:
    """A text of about this many characters with a distinctive word every so often."""
    words = [token(chance)]
    text = words[0]
    while len(text) < size:
        text += " and then the usual words of a letter" * chance.randint(1, 20 if size > 500 else 2)
        if len(words) < 200:
            words.append(token(chance))
            text += f" {words[-1]}"
    return text, words


def fill(space: reverie.Space, chance: random.Random, sizes: list[int]) -> dict[str, list[str]]:
    """Memories of these sizes, some revised and some forgotten, with the words of each."""
    words: dict[str, list[str]] = {}
    for size in sizes:
        content, results = secret(chance, size)
        kind: reverie.Kind = "fact" if len(content) <= 500 else "note"
        extra = token(chance)
        memory = space.remember(content, kind=kind, tags=[extra], subject=f"about {extra}")
        words[memory.id] = [*results, extra]
    for id in chance.sample(list(words), len(words) // 3):
        content, results = secret(chance, chance.choice([20, 200, 380]))
        why = token(chance)
        words[id] += [*results, why]
        space.revise(id, content, reason=f"because of {why}")
        if chance.random() < 0.5:
            space.forget(id, reason=f"no more of {why}")
    return words


SIZES = [20, 60, 200, 400, 700, 2_000, 4_000, 4_200, 9_000, 30_000]


@pytest.mark.parametrize("seed", range(4))
def test_erased_content_is_in_no_file_of_the_store(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sizes = chance.choices(SIZES, k=70 if seed else 35)
    with open_store(tmp_path / "store.db") as store:
        space = store.space("s")
        if seed == 0:
            sizes.insert(20, 1_000_000)
        words = fill(space, chance, sizes)
        gone = chance.sample(list(words), len(words) // 2)
        if seed == 0:
            gone.append(list(words)[20])
        for id in dict.fromkeys(gone):
            assert not space.erase(id).pending
            # As soon as the call returned.
            assert leaks(tmp_path, {id: words[id]}) == {}
        assert leaks(tmp_path, {id: words[id] for id in gone}) == {}
        kept = words.keys() - set(gone)
        assert {memory.id for memory in space.memories(include_forgotten=True)} == kept
        assert store.jobs() == []
        assert store.verify().problems == ()
        for id in gone:
            with pytest.raises(NotFound):
                space.get(id)
    left = leaks(tmp_path, {id: words[id] for id in gone})
    figure("memories erased", len(gone))
    figure("files that still hold it", len(left))
    assert left == {}


@pytest.mark.parametrize("seed", range(3))
def test_erase_waits_for_a_reader_in_another_process(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "store.db"
    with open_store(path) as store, peers(1) as (reader,):
        space = store.space("s")
        words = fill(space, chance, chance.choices([60, 200, 400, 2_000, 4_000], k=80))
        reader.call("hold", path=str(path))
        gone = chance.sample(list(words), 3)  # each waits for the reader before it gives up
        assert all(space.erase(id).pending for id in gone)
        assert {job.kind for job in store.jobs()} == {"scrub"}
        reader.call("release")
        store.run_pending_jobs()
        assert store.jobs() == []
        assert leaks(tmp_path, {id: words[id] for id in gone}) == {}
        assert store.verify().problems == ()


def test_repeated_erase_reports_that_bytes_remain(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store, peers(1) as (reader,):
        space = store.space("s")
        id = space.remember("to be erased").id
        reader.call("hold", path=str(path))
        assert space.erase(id, key="erase").pending
        assert space.erase(id, key="erase").pending
        reader.call("release")
        store.run_pending_jobs()
        assert leaks(tmp_path, {id: ["erased"]}) == {}
        assert not space.erase(id, key="erase").pending


@pytest.mark.parametrize("indexed", [False, True])
def test_store_of_an_earlier_schema_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    """Some stores of the second step have an index of the third already."""
    path = tmp_path / "old.db"
    with monkeypatch.context() as before:
        before.setattr(schema, "SCHEMA_VERSION", 2)
        SQLiteEngine(str(path)).close()
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == 2
    if indexed:
        connection.execute(
            "CREATE INDEX memories_changed ON memories (space, owner, position) "
            "WHERE position > born"
        )
    connection.close()
    with reverie.open(path, embedder="hashing") as store:
        space = store.space("ana")
        zebra = space.remember("zebra")
        space.session("chat").append({"role": "user", "name": "Ana", "content": "a horse"})
        assert space.recall("zebra")[0].id == zebra.id
        assert store.verify().problems == ()


def make_unsealed(path: Path, monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    """A store of the step before seals, with rows as that Reverie wrote them."""
    with monkeypatch.context() as before:
        before.setattr(schema, "SCHEMA_VERSION", schema.SEAL_STEP - 1)
        SQLiteEngine(str(path)).close()
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO spaces VALUES (1, 'ana')")
    connection.execute("INSERT INTO owners VALUES (1, 0, ''), (1, 1, 'bob')")
    connection.execute(
        "INSERT INTO counters (space, position, recorded_at, job, owner) VALUES (1, ?, 9, 0, 1)",
        (entries,),
    )
    for owner in (0, 1):
        connection.execute(
            "INSERT INTO statistics (space, owner, epoch, next_passage, passages, touches, facts, "
            "notes, private) VALUES (1, ?, 0, 0, 0, 0, 0, 0, 0)",
            (owner,),
        )
    body = (
        '{"kind":"fact","content":"zebra %d","category":"general","subject":null,"tags":[],'
        '"concept_tags":[],"session":null,"source":null,"pinned":false,"created_at":5,'
        '"updated_at":5,"happened_at":null,"forgotten_at":null,"expires_at":null,"trust":"person"}'
    )
    connection.executemany(
        "INSERT INTO log (space, position, owner, op, recorded_at, schema, trust, memory, version, "
        "uuid, body) VALUES (1, ?, ?, 'remember', 5, 1, 'person', ?, 1, ?, ?)",
        [
            (at, at % 2, f"memory{at:02}", f"u{at}", None if at == 3 else body % at)
            for at in range(1, entries + 1)
        ],
    )
    connection.execute(
        "INSERT INTO session_state VALUES (1, 0, 'chat', NULL, 1, 0, 'a summary', NULL, NULL)"
    )
    value = '{"name":"n","right":"read","spaces":null,"user":null,"created_at":1,"sha256":"x"}'
    connection.execute(f"INSERT INTO meta VALUES ('token.abcdefgh', '{value}')")
    connection.execute("INSERT INTO meta VALUES ('index', 'earlier rules')")
    connection.close()


def test_store_without_seals_is_sealed_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    make_unsealed(path, monkeypatch, 9)
    with reverie.open(path, embedder="hashing") as store:
        assert store.verify().problems == ()
        assert store.space("ana").get("memory02").content == "zebra 2"
        assert store.space("ana").session("chat").summary().text == "a summary"
        assert [token.id for token in store.tokens()] == ["abcdefgh"]
        store.space("ana", user="bob").remember("goes on")
        assert store.verify().problems == ()
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT salt, digest FROM log WHERE position = 3").get == (None, "")
    connection.execute("UPDATE log SET body = REPLACE(body, 'zebra 2', 'zebra 7')")
    connection.close()
    with reverie.open(path, embedder="hashing") as store:
        assert any("entry 2 is damaged" in problem for problem in store.verify().problems)


@pytest.mark.parametrize("at", range(1, 14, 3))
@pytest.mark.sample(3)
def test_killed_sealing_is_rolled_back_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    path = tmp_path / "old.db"
    make_unsealed(path, monkeypatch, 9)
    script = (
        "import os, sys\n"
        "from reverie.engine import seals\n"
        "from reverie.engine.sqlite.engine import SQLiteEngine\n"
        "left = int(sys.argv[2])\n"
        "real = seals.row_seal\n"
        "def counted(*values):\n"
        "    global left\n"
        "    left -= 1\n"
        "    if left <= 0:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return real(*values)\n"
        "seals.row_seal = counted\n"
        "keep = seals.seal_entry\n"
        "def sealed(*values):\n"
        "    counted('x')\n"
        "    return keep(*values)\n"
        "seals.seal_entry = sealed\n"
        "SQLiteEngine(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path), str(at)], check=False)
    assert done.returncode == -signal.SIGKILL
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == schema.SEAL_STEP - 1
    assert "seal" not in {row[1] for row in connection.execute("PRAGMA table_info(log)")}
    connection.close()
    with reverie.open(path, embedder="hashing") as store:
        assert store.verify().problems == ()
        assert store.space("ana").count() == 4
