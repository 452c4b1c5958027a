"""A whole store into another: every row, either way, stopped anywhere."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import reverie
from reverie import ConfigError, Settings, Store, StoreDamaged, StoreError
from reverie.engine import log, open_engine, schema, table_copy
from reverie.transfer.migrate import migrate
from tests.conftest import FakeClock, SeededIds, engine_of, rows, tamper
from tests.servers import Server

Fresh = Callable[[], str]
WAYS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("postgres", "postgres")]


@pytest.fixture
def fresh(tmp_path: Path, postgres: Server) -> dict[str, Fresh]:
    """Makes empty stores of each engine."""
    numbers = iter(range(100))
    return {
        "sqlite": lambda: str(tmp_path / f"store{next(numbers)}.db"),
        "postgres": lambda: postgres.database(),
    }


def opened(url: str) -> Store:
    return reverie.open(
        url, settings=Settings(), embedder="hashing", clock=FakeClock(), ids=SeededIds()
    )


def fill(store: Store, many: int = 30) -> None:
    """Something in every table."""
    for name, user in (("ana", None), ("ana", "bo"), ("o'brien \\ 日本", None)):
        space = store.space(name, user=user, actor="me")
        memories = [space.remember(f"fact {n} of {name} {user}", tags=["t"]) for n in range(many)]
        space.revise(memories[0].id, "changed", reason="it was wrong", key=f"k{user}")
        space.forget(memories[1].id, reason="old")
        space.erase(memories[2].id)
        space.remember("soon over", expires_at="2027-01-01", subject="S", category="person")
        session = space.session("s")
        session.append_many([{"role": "user", "content": f"I said {n}"} for n in range(5)])
        session.scratchpad.write(["one", "two"])
        session.write_summary("a summary", upper=2, expected_epoch=0)
        space.recall("fact")
        space.remember("writes the notes of the recall")
        space.session("gone").append({"role": "user", "content": "hidden"})
        space.session("gone").hide(reason="why not")


def answers(store: Store) -> list[object]:
    found: list[object] = []
    for name, user in (("ana", None), ("ana", "bo"), ("o'brien \\ 日本", None)):
        space = store.space(name, user=user)
        found += [list(space.export()), space.recall("fact 7", limit=9, explain=True)]
        found += [space.memories(include_forgotten=True), space.sessions(include_hidden=True)]
        found += [space.session("s").scratchpad.read(), space.session("s").summary()]
        found += [space.profile(), space.recall("fact", as_of=20)]
    return [*found, store.jobs(), store.spaces()]


@pytest.mark.parametrize(("one", "other"), WAYS)
def test_migrated_store_has_every_row_and_every_answer(
    fresh: dict[str, Fresh], one: str, other: str
) -> None:
    source, target = fresh[one](), fresh[other]()
    with opened(source) as store:
        fill(store)
        wanted, report = answers(store), store.verify()
    seen: list[tuple[int, int]] = []
    done = migrate(source, target, lambda at, whole: seen.append((at, whole)))
    assert done.spaces == 2 and done.copied == done.rows > 1_000
    assert seen[-1] == (3 * done.rows, 3 * done.rows)
    with opened(target) as store:
        assert answers(store) == wanted
        assert store.verify().ok and store.verify().digest == report.digest
        # It is a store like any other: it can be written, and numbers go on where they were.
        space = store.space("a new space")
        assert space.recall("fact") == []
        assert space.remember("first").version == 1 and store.run_pending_jobs() >= 0
        assert len(store.spaces()) == 3 and store.verify().ok


def test_migration_to_another_engine_and_back_keeps_the_digest(fresh: dict[str, Fresh]) -> None:
    first, middle, last = fresh["sqlite"](), fresh["postgres"](), fresh["sqlite"]()
    with opened(first) as store:
        fill(store)
    assert migrate(first, middle).digest == migrate(middle, last).digest


@pytest.mark.parametrize(("one", "other"), WAYS[:2])
@pytest.mark.parametrize("after", [1, 6, 11, 17, 30])
@pytest.mark.sample(3)
def test_interrupted_migration_continues(
    fresh: dict[str, Fresh],
    one: str,
    other: str,
    after: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_copy, "CHUNK", 50)
    source, target = fresh[one](), fresh[other]()
    with opened(source) as store:
        fill(store)
        wanted = answers(store)

    class Stopped(Exception):
        pass

    steps = iter(range(after))

    def stop(at: int, whole: int) -> None:
        if next(steps, None) is None:
            raise Stopped

    with pytest.raises(Stopped):
        migrate(source, target, stop)
    with pytest.raises(StoreError, match="was not finished: run 'reverie migrate' again"):
        opened(target)
    with pytest.raises(StoreError, match="was not finished"):
        migrate(target, fresh["sqlite"]())
    done = migrate(source, target)
    assert done.copied < done.rows
    with opened(target) as store:
        assert answers(store) == wanted and store.verify().ok


@pytest.mark.prove
def test_killed_migration_continues(fresh: dict[str, Fresh], postgres: Server) -> None:
    source, target = fresh["sqlite"](), fresh["postgres"]()
    with opened(source) as store:
        fill(store, 200)
    command = [sys.executable, "-m", "reverie", "migrate", "--from", source, "--to", target]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    database = target.partition("?")[0].rpartition("/")[2]
    with postgres.connect(database) as connection:
        for _ in range(600):
            begun = connection.execute("SELECT to_regclass('reverie.passages')").fetchall()[0][0]
            if begun and connection.execute("SELECT 1 FROM reverie.passages LIMIT 1").fetchall():
                break
            time.sleep(0.01)
    process.kill()
    process.wait()
    done = migrate(source, target)
    assert done.copied < done.rows
    with opened(target) as store:
        assert store.verify().ok


def test_source_changed_before_an_interrupted_migration_continues_is_copied_again(
    fresh: dict[str, Fresh], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_copy, "CHUNK", 50)
    source, target = fresh["sqlite"](), fresh["postgres"]()
    with opened(source) as store:
        fill(store)

    def stop(at: int, whole: int) -> None:
        if at > whole // 4:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        migrate(source, target, stop)
    with opened(source) as store:
        store.space("ana").session("s").scratchpad.write(["changed"])
        wanted = answers(store)
    done = migrate(source, target)
    assert done.copied == done.rows
    with opened(target) as store:
        assert answers(store) == wanted


def test_migration_with_a_differing_copy_is_refused(
    fresh: dict[str, Fresh], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = fresh["sqlite"](), fresh["postgres"]()
    with opened(source) as store:
        fill(store)
    put_rows = table_copy.put_rows

    def careless(tx: object, table: schema.Table, found: list[tuple[object, ...]]) -> None:
        put_rows(tx, table, found[:-1] if table.name == "tags" else found)  # type: ignore[arg-type]

    monkeypatch.setattr(table_copy, "put_rows", careless)
    with pytest.raises(StoreDamaged, match="differ from the source"):
        migrate(source, target)
    with pytest.raises(StoreError, match="was not finished"):
        opened(target)


def test_migration_needs_an_empty_target(fresh: dict[str, Fresh]) -> None:
    source, target = fresh["sqlite"](), fresh["postgres"]()
    with opened(source) as store:
        fill(store, 3)
    with opened(target) as store:
        store.space("mine").remember("precious")
    with pytest.raises(ConfigError, match="is not empty"):
        migrate(source, target)
    folder = Path(source).parent
    for itself in (source, f"{folder}/../{folder.name}/{Path(source).name}"):
        with pytest.raises(ConfigError, match="into itself"):
            migrate(source, itself)
    with opened(target) as store:
        assert [memory.content for memory in store.space("mine").memories()] == ["precious"]


def test_source_cannot_be_written_during_a_migration(fresh: dict[str, Fresh]) -> None:
    source, target = fresh["postgres"](), fresh["sqlite"]()
    with opened(source) as store:
        fill(store, 3)
        busy: list[type[BaseException]] = []

        def write(at: int, whole: int) -> None:
            try:
                with engine_of(store).write(wait=False) as tx:
                    log.ensure_owner(tx, "ana", None)
            except reverie.StoreBusy as error:
                busy.append(type(error))

        migrate(source, target, write)
        assert set(busy) == {reverie.StoreBusy}


def test_table_copy_lists_every_table(fresh: dict[str, Fresh]) -> None:
    """What is copied is what both engines have: a table or column that is added is added here."""
    named = {table.name: {*table.key, *table.others} for table in schema.TABLES}
    with opened(fresh["sqlite"]()) as store:
        listed = rows(store, "SELECT name FROM sqlite_schema WHERE type = 'table'")
        names = {row[0] for row in listed if not row[0].startswith("sqlite_")} - {"vectors"}
        found = {
            name: {row[0] for row in rows(store, "SELECT name FROM pragma_table_info(?)", name)}
            for name in names
        }
    assert found == named
    with opened(fresh["postgres"]()) as store:
        listed = rows(
            store,
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'reverie' AND table_name NOT IN ('vectors', 'space_numbers')",
        )
        found = {name: {column for table, column in listed if table == name} for name, _ in listed}
    assert found == named


def test_migration_copies_vectors_unchanged(fresh: dict[str, Fresh]) -> None:
    source, target = fresh["sqlite"](), fresh["postgres"]()
    with opened(source) as store:
        fill(store, 10)
        tamper(store, "UPDATE vectors SET data = data")
    migrate(source, target)
    digests = []
    for url in (source, target):
        engine = open_engine(url)
        with engine.read() as tx:
            tx.enter_all_owners()
            digests.append(table_copy.content_digest(tx))
        engine.close()
    assert digests[0] == digests[1]


def test_partly_migrated_target_cannot_be_written(fresh: dict[str, Fresh]) -> None:
    source, target = fresh["sqlite"](), fresh["postgres"]()
    with opened(source) as store:
        fill(store, 3)

    def stop(at: int, whole: int) -> None:
        if at > whole // 4:
            raise RuntimeError

    with opened(target) as early:
        with pytest.raises(RuntimeError):
            migrate(source, target, stop)
        with pytest.raises(StoreError, match="was not finished"):
            early.space("mine").remember("precious")
        migrate(source, target)
        assert early.space("mine").remember("precious").version == 1
