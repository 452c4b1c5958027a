"""Row-level security: a statement that lacks its condition finds no rows of other owners."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import reverie
from reverie import Settings, Space, Store, StoreDamaged, StoreReadOnly
from reverie.engine import seals
from reverie.engine.log import SHARED_OWNER
from reverie.engine.postgres import engine as postgres_engine
from reverie.engine.postgres.engine import PostgresEngine
from reverie.engine.postgres.transaction import PostgresTransaction
from reverie.model import MODES, UNNAMED, Scope
from reverie.protocols import Engine, Owner, Row
from tests.conftest import START, FakeClock, SeededIds, engine_of, rows
from tests.messages import append_as_shared, propose, reply, user
from tests.servers import Server

Who = tuple[str, str | None]
SPACES = ("one", "two", "three")
USERS = (None, UNNAMED, "alice", "bob")
OWNERS: tuple[Who, ...] = tuple((space, user) for space in SPACES for user in USERS)
# A space in which nothing was said: a handle without a user has one owner there.
QUIET = "quiet"
CANARY = re.compile(r"canary(\d+)q")
NAMED = (
    "SELECT s.name, NULLIF(o.name, ''), o.space, o.owner FROM owners o JOIN spaces s USING (space)"
)
COLUMNS = (
    "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
    "WHERE c.relnamespace = 'reverie'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 "
    "AND NOT a.attisdropped ORDER BY c.relname, a.attnum"
)


def canary(who: Who) -> str:
    """A word that names the owner it belongs to."""
    return f"canary{OWNERS.index(who)}q"


def seen_in(value: object) -> set[Who]:
    return {OWNERS[int(found)] for found in CANARY.findall(repr(value))}


def visible(who: Who) -> set[Who]:
    return {(who[0], who[1] or UNNAMED), (who[0], None)}


def handle_of(store: Store, who: Who) -> Space:
    return store.scoped_space(Scope(*who))


def open_store(address: str, embedder: str = "hashing") -> Store:
    return reverie.open(
        address, settings=Settings(), embedder=embedder, clock=FakeClock(), ids=SeededIds()
    )


def write_some(handle: Space, who: Who, folder: Path) -> None:
    """Something in every table that an owner has rows in."""
    word = canary(who)
    for number in range(3):
        handle.remember(
            f"zebra {number} {word}",
            subject=f"{word} {number}",
            tags=[word, "common"],
            metadata={"word": word, "number": number},
            key=str(number),
        )
    handle.forget(handle.remember(f"gone {word}", expires_at=START + 1).id, reason=word)
    document = folder / f"{word}.txt"
    document.write_text(f"zebra document {word}", encoding="utf-8")
    handle.remember_file(document)
    session = handle.session("s")
    if who[1] is None:
        # As earlier versions did; the session then goes on as a shared one.
        append_as_shared(handle, "s", user(f"zebra said {word}"))
        session.append(reply(f"yes {word}"))
    else:
        session.append_many([user(f"zebra said {word}"), reply(f"yes {word}")])
    session.scratchpad.write([word])
    session.remember(f"zebra private {word}", private=True)
    propose(handle, f"proposed {word}")
    assert handle.recall(f"zebra {word}") and session.recall(f"zebra {word}")


def fill(address: str, folder: Path) -> None:
    with open_store(address) as store:
        for who in OWNERS:
            write_some(handle_of(store, who), who, folder)
        for number in range(3):
            store.space(QUIET).remember(f"zebra {number}", subject=f"stripes {number}")
    with open_store(address, "none") as store:
        for who in OWNERS:
            handle_of(store, who).remember(f"zebra unembedded {canary(who)}")


@pytest.fixture(scope="module")
def filled(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a database with some of everything of several owners."""
    address = postgres.database(template="made")
    fill(address, tmp_path_factory.mktemp("documents"))
    yield address


@pytest.fixture
def world(filled: str) -> Iterator[Store]:
    with open_store(filled) as store:
        yield store


@pytest.fixture
def engine(filled: str) -> Iterator[PostgresEngine]:
    with contextlib.closing(PostgresEngine(filled)) as opened:
        yield opened


def name_of(address: str) -> str:
    """The name of a database."""
    return urlsplit(address).path[1:]


class Undone(Exception):
    """Ends a write whose changes nobody wants."""


def tables_of(engine: Engine) -> dict[str, list[str]]:
    """Every table there is, with its columns."""
    found: dict[str, list[str]] = {}
    with engine.read() as tx:
        for table, column in tx.all(COLUMNS):
            found.setdefault(table, []).append(column)
    return found


def numbers_of(engine: PostgresEngine) -> dict[Who, Owner]:
    with engine.read() as tx:
        tx.enter_all_owners()
        found = {(space, name): Owner(*owner) for space, name, *owner in tx.all(NAMED)}
    return {who: owner for who, owner in found.items() if who[0] in SPACES}


def whose(tx: PostgresTransaction, table: str, columns: Sequence[str]) -> Counter[Row]:
    """How many rows of whom a statement without a condition finds."""
    key = "space" if table in {"spaces", "counters"} else "space, owner"
    assert {"space"} <= set(columns)
    return Counter(tx.all(f"SELECT {key} FROM {table}"))


def expected(everything: Counter[Row], owner: Owner) -> Counter[Row]:
    mine = {(owner.space,), (owner.space, SHARED_OWNER), tuple(owner)}
    return Counter({row: count for row, count in everything.items() if row in mine})


# -- what the catalogue says ----------------------------------------------------------------------


def test_every_table_has_forced_row_security(filled: str, engine: PostgresEngine) -> None:
    with engine.read() as tx:
        tables = tx.all(
            "SELECT relname, relrowsecurity, relforcerowsecurity FROM pg_class "
            "WHERE relnamespace = 'reverie'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')"
        )
        policies = tx.all(
            "SELECT tablename, policyname, roles::text[], cmd, permissive, with_check "
            "FROM pg_policies WHERE schemaname = 'reverie'"
        )
    assert len(tables) > 20
    assert {row[1:] for row in tables} == {(True, True)}
    kept = {(row[0], row[1], *row[2]) for row in policies}
    names = {row[0] for row in tables}
    assert kept == {
        *((name, "own", "reverie_app") for name in names),
        *((name, "operator", "reverie_operator") for name in names),
        ("log", "across", "reverie_app"),
    }
    assert {row[3] for row in policies if row[1] == "across"} == {"SELECT"}


@pytest.mark.parametrize("writing", [False, True])
def test_transaction_role_has_no_rights_of_its_own(engine: PostgresEngine, writing: bool) -> None:
    with engine.write() if writing else engine.read() as tx:
        ((name, owner, superuser, bypasses, logs_in, makes_roles),) = tx.all(
            "SELECT rolname, EXISTS (SELECT 1 FROM pg_class c WHERE c.relowner = r.oid), rolsuper, "
            "rolbypassrls, rolcanlogin, rolcreaterole FROM pg_roles r WHERE rolname = current_user"
        )
        assert (name, owner, superuser, bypasses) == ("reverie_app", False, False, False)
        assert (logs_in, makes_roles) == (False, False)
        assert tx.all("SELECT pg_has_role('reverie_app', 'reverie_operator', 'MEMBER')") == [
            (False,)
        ]
        assert tx.all(
            "SELECT row_security_active(c.oid) FROM pg_class c WHERE c.relkind = 'r' "
            "AND c.relnamespace = 'reverie'::regnamespace GROUP BY 1"
        ) == [(True,)]
        tx.enter_all_owners()
        ((superuser, bypasses),) = tx.all(
            "SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
        )
        assert (superuser, bypasses) == (False, False)


def test_connection_returned_to_the_pool_has_no_scope_set(engine: PostgresEngine) -> None:
    owner = numbers_of(engine)["one", "alice"]
    with engine.read() as tx:
        tx.restrict_to_names("one", "alice")
        tx.enter(owner)
        with tx.across_owners():
            assert tx.all("SELECT 1 FROM log LIMIT 1")
            ((backend,),) = tx.all("SELECT pg_backend_pid()")
    names = ("owner", "space_name", "user_name")
    with engine.read() as tx:
        assert tx.all("SELECT pg_backend_pid()") == [(backend,)]
        for name in names:
            assert tx.all(f"SELECT COALESCE(current_setting('reverie.{name}', true), '')") == [
                ("",)
            ]


# -- statements without a condition ---------------------------------------------------------------


def test_sample_data_has_rows_of_every_owner_in_every_table(engine: PostgresEngine) -> None:
    owners = set(numbers_of(engine).values())
    assert len(owners) == len(OWNERS)
    with engine.read() as tx:
        tx.enter_all_owners()
        for table, columns in tables_of(engine).items():
            if table == "meta":
                continue
            found = whose(tx, table, columns)
            if len(next(iter(found))) == 1:
                assert {row[0] for row in found} > {owner.space for owner in owners}, table
            else:
                assert set(found) >= {tuple(owner) for owner in owners}, table


@pytest.mark.parametrize("who", OWNERS, ids=str)
def test_select_without_a_condition_returns_own_rows_only(engine: PostgresEngine, who: Who) -> None:
    owner = numbers_of(engine)[who]
    for table, columns in tables_of(engine).items():
        if table == "meta":
            continue
        with engine.read() as tx:
            tx.enter_all_owners()
            everything = whose(tx, table, columns)
        for writing in (False, True):
            with engine.write() if writing else engine.read() as tx:
                tx.enter(owner)
                found = whose(tx, table, columns)
                assert found == expected(everything, owner), table
                rows = tx.all(f"SELECT * FROM {table}")
                assert seen_in(rows) <= visible(who), table


@pytest.mark.parametrize("who", OWNERS[:5], ids=str)
def test_update_and_delete_without_a_condition_change_own_rows_only(
    engine: PostgresEngine, who: Who
) -> None:
    owner = numbers_of(engine)[who]
    for table, columns in tables_of(engine).items():
        if table == "meta":
            continue
        with engine.read() as tx:
            tx.enter_all_owners()
            mine = expected(whose(tx, table, columns), owner).total()
        assert mine
        with contextlib.suppress(Undone), engine.write() as tx:
            tx.enter(owner)
            assert tx.run(f"UPDATE {table} SET space = space") == mine, table
            # Entries refer to their owners.
            if table != "owners":
                assert tx.run(f"DELETE FROM {table}") == mine, table
            raise Undone
    with engine.read() as tx:
        tx.enter_all_owners()
        assert len(tx.all("SELECT 1 FROM owners")) == len(OWNERS) + 1


def others(owner: Owner) -> dict[str, Owner]:
    """Somebody else in the same space, and two in another one."""
    elsewhere = owner.space % len(SPACES) + 1
    return {
        "beside": Owner(owner.space, owner.number % (len(USERS) - 1) + 1),
        "elsewhere": Owner(elsewhere, owner.number),
        "shared elsewhere": Owner(elsewhere, SHARED_OWNER),
    }


@pytest.mark.parametrize("which", ["beside", "elsewhere", "shared elsewhere"])
def test_insert_of_a_row_of_another_owner_is_refused(engine: PostgresEngine, which: str) -> None:
    owner = numbers_of(engine)["two", "alice"]
    other = others(owner)[which]
    assert other in numbers_of(engine).values()
    for table, columns in tables_of(engine).items():
        if table == "meta" or (table in {"spaces", "counters"} and which == "beside"):
            continue
        one_key = table in {"spaces", "counters"}
        where = f"space = {other.space}" + ("" if one_key else f" AND owner = {other.number}")
        to = f"space = {other.space}" + ("" if one_key else f", owner = {other.number}")
        with engine.read() as tx:
            tx.enter_all_owners()
            (theirs, *_) = tx.all(f"SELECT * FROM {table} WHERE {where} LIMIT 1")
        marks = ", ".join("?" * len(columns))
        with (
            pytest.raises(StoreReadOnly, match="row-level security"),
            engine.write() as tx,
        ):
            tx.enter(owner)
            tx.run(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", theirs)
        with (
            pytest.raises(StoreReadOnly, match="row-level security"),
            engine.write() as tx,
        ):
            tx.enter(owner)
            tx.run(f"UPDATE {table} SET {to}")
        with contextlib.suppress(Undone), engine.write() as tx:
            tx.enter(owner)
            assert tx.run(f"DELETE FROM {table} WHERE {where}") == 0, table
            raise Undone


@pytest.mark.parametrize("writing", [False, True])
def test_transaction_without_a_scope_sees_no_rows(engine: PostgresEngine, writing: bool) -> None:
    for table in tables_of(engine):
        with engine.write() if writing else engine.read() as tx:
            assert bool(tx.all(f"SELECT * FROM {table}")) == (table == "meta"), table


def test_lookup_by_name_shows_only_rows_of_that_name(engine: PostgresEngine) -> None:
    numbers = numbers_of(engine)
    for table in tables_of(engine):
        with engine.read() as tx:
            tx.enter(numbers["two", "bob"])
            tx.restrict_to_names("one", "alice")
            found = tx.all(f"SELECT * FROM {table}")
            if table == "spaces":
                assert [row[:2] for row in found] == [(numbers["one", None].space, "one")]
            else:
                assert bool(found) == (table == "meta"), table
    with engine.read() as tx:
        tx.restrict_to_names("one", "alice")
        tx.enter(numbers["one", None])
        assert {row[0] for row in tx.all("SELECT name FROM owners")} == {"", "alice"}


def test_across_owners_shows_the_log_of_one_space_only(engine: PostgresEngine) -> None:
    numbers = numbers_of(engine)
    owner = numbers["one", "alice"]
    space = {tuple(number) for (name, _), number in numbers.items() if name == "one"}
    for table, columns in tables_of(engine).items():
        if table == "meta":
            continue
        with engine.read() as tx:
            tx.enter(owner)
            before = whose(tx, table, columns)
            with tx.across_owners():
                meanwhile = whose(tx, table, columns)
            assert whose(tx, table, columns) == before
        if table == "log":
            assert set(before) == {tuple(owner), (owner.space, SHARED_OWNER)}
            assert set(meanwhile) == space
        else:
            assert meanwhile == before, table


# -- with the conditions of the application broken ------------------------------------------------


class UnscopedTransaction(PostgresTransaction):
    """Says ``space = ? AND owner = ?`` as everybody does, and means nothing by it."""

    broken = re.compile(r"(?:\b\w\.)?\b(?:space|owner) = \?")

    def all(self, sql: str, values: Sequence[Any] = (), *, binary: bool = False) -> list[Row]:
        return super().all(self._careless(sql), values, binary=binary)

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        return super().one(self._careless(sql), values)

    def _careless(self, sql: str) -> str:
        # The end of a space's log has its own seal, which tells one space from another.
        if not sql.startswith(("SELECT", "WITH")) or "FOR UPDATE" in sql or "counters" in sql:
            return sql
        return self.broken.sub("CAST(? AS BIGINT) IS NOT NULL", sql)


class UnscopedSpaceTransaction(UnscopedTransaction):
    broken = re.compile(r"(?:\b\w\.)?\bspace = \?")


def everything(handle: Space) -> list[Callable[[], object]]:
    """All that a handle can be asked."""
    session = handle.session("s")
    recalls: list[Callable[[], object]] = [
        partial(handle.recall, "zebra canary", mode=mode, limit=50, kinds=kinds)
        for mode in MODES
        for kinds in ((), ("fact", "event"))
    ]
    return [
        *recalls,
        lambda: handle.recall("zebra", as_of=1_000, limit=50),
        lambda: handle.memories(include_forgotten=True),
        lambda: handle.memories(tags=["common"]),
        lambda: handle.memories(as_of=1_000, include_forgotten=True),
        lambda: handle.proposals(include_answered=True),
        lambda: list(handle.export()),
        lambda: list(session.export()),
        lambda: session.context("zebra", tokens=4_000, freeze=False),
        handle.profile,
        handle.sessions,
        session.events,
        session.memories,
        session.scratchpad.read,
    ]


def asking_for(handle: Space, ids: Iterable[str]) -> list[Callable[[], object]]:
    return [partial(ask, id) for id in ids for ask in (handle.get, handle.history)]


def all_answers(handle: Space, ids: Iterable[str]) -> list[object]:
    """All that a handle says, of the memories of everybody too."""
    answers = [ask() for ask in everything(handle)]
    for ask in asking_for(handle, ids):
        try:
            answers.append(ask())
        except reverie.NotFound as error:
            answers.append(str(error))
    return answers


def ids_of(store: Store) -> dict[Who, list[str]]:
    found: dict[Who, list[str]] = {}
    for space, name, memory in rows(
        store,
        "SELECT s.name, NULLIF(o.name, ''), m.memory FROM memories m "
        "JOIN owners o ON o.space = m.space AND o.owner = m.owner "
        "JOIN spaces s ON s.space = m.space ORDER BY m.space, m.owner, m.born",
    ):
        found.setdefault((space, name), []).append(memory)
    return found


@pytest.mark.parametrize("who", OWNERS, ids=str)
@pytest.mark.sample(3)
def test_answers_do_not_change_when_sql_omits_the_space_condition(
    world: Store, who: Who, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, made = handle_of(world, who), ids_of(world)
    ids = [id for listed in made.values() for id in listed]
    assert all(made[other] for other in OWNERS)
    before = all_answers(handle, ids)
    assert seen_in(before) == visible(who)
    monkeypatch.setattr(postgres_engine, "PostgresTransaction", UnscopedSpaceTransaction)
    assert all_answers(handle, ids) == before


def test_answers_of_a_single_owner_do_not_change_without_sql_conditions(
    world: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = world.space(QUIET)
    ids = [id for listed in ids_of(world).values() for id in listed]
    before = all_answers(handle, ids)
    monkeypatch.setattr(postgres_engine, "PostgresTransaction", UnscopedTransaction)
    assert all_answers(handle, ids) == before


@pytest.mark.parametrize("who", OWNERS, ids=str)
@pytest.mark.sample(4)
def test_handle_of_two_owners_sees_nobody_else_without_sql_conditions(
    world: Store, who: Who, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own rows and the shared ones have the same numbers, so that a recall cannot tell them
    apart and may fail; what counts is what it was given to read.
    """
    given: list[Row] = []

    class Noting(UnscopedTransaction):
        def all(self, sql: str, values: Sequence[Any] = (), *, binary: bool = False) -> list[Row]:
            found = super().all(sql, values, binary=binary)
            given.extend(found)
            return found

        def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
            found = super().one(sql, values)
            given.append(found or ())
            return found

    handle, calls = handle_of(world, who), 0
    ids = [id for listed in ids_of(world).values() for id in listed]
    monkeypatch.setattr(postgres_engine, "PostgresTransaction", Noting)
    # What fails is not to be looked into by the operator's statements.
    monkeypatch.setattr(engine_of(world), "damage_check", None)
    for ask in [*everything(handle), *asking_for(handle, ids)]:
        with contextlib.suppress(ValueError, LookupError, AssertionError, StoreDamaged):
            given.append((ask(),))
        calls += 1
    assert calls > 2 * len(ids) and len(given) > calls
    assert seen_in(given) == visible(who)


def test_same_query_without_row_security_shows_everybody(
    postgres: Server, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without row-level security, the statements that the tests above break show other owners'
    rows."""
    address = postgres.database(template=name_of(filled))
    with postgres.connect(name_of(address)) as connection:
        for (table,) in connection.execute(
            "SELECT relname FROM pg_class WHERE relrowsecurity"
        ).fetchall():
            connection.execute(f"ALTER TABLE reverie.{table} DISABLE ROW LEVEL SECURITY".encode())
    with open_store(address) as store:
        handle, made = store.space("one"), ids_of(store)
        # The seals would not let others' entries pass for this owner's.
        monkeypatch.setattr(seals, "is_intact", lambda *given: True)
        monkeypatch.setattr(postgres_engine, "PostgresTransaction", UnscopedTransaction)
        assert seen_in(list(handle.export())) == set(OWNERS)
        assert all(seen_in(handle.history(made[who][0])) == {who} for who in OWNERS)
        monkeypatch.setattr(postgres_engine, "PostgresTransaction", UnscopedSpaceTransaction)
        unscoped = {(space, name) for space in SPACES for name in (None, UNNAMED)}
        assert seen_in(list(handle.export())) == unscoped


def test_update_without_a_condition_changes_no_other_owner(
    postgres: Server, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements that change rows lose their conditions as well."""

    class Reckless(UnscopedTransaction):
        def run(self, sql: str, values: Sequence[Any] = ()) -> int:
            return super().run(self.broken.sub("CAST(? AS BIGINT) IS NOT NULL", sql), values)

    address = postgres.database(template=name_of(filled))
    with open_store(address) as store:

        def kept(table: str) -> list[tuple[Any, ...]]:
            which = f"space NOT IN (SELECT space FROM spaces WHERE name = '{QUIET}')"
            return rows(store, f"SELECT t::text FROM {table} t WHERE {which} ORDER BY 1")

        tables = [table for table in tables_of(engine_of(store)) if table != "meta"]
        before = {table: kept(table) for table in tables}
        handle = store.space(QUIET)
        (forgotten, erased, *_) = (memory.id for memory in handle.memories())
        monkeypatch.setattr(postgres_engine, "PostgresTransaction", Reckless)
        handle.remember("another", subject="another")
        handle.revise(erased, "revised")
        handle.forget(forgotten)
        handle.session("s").scratchpad.clear()
        handle.erase(erased)
        assert {table: kept(table) for table in tables} == before


# -- names ----------------------------------------------------------------------------------------

HOSTILE = (
    "'; DROP TABLE log; --",
    "\\'; SELECT 1",
    "\\",
    "''",
    '"',
    "$$",
    "E'\\x41'",
    "%s ?",
    "{0}",
)
NAMES = st.text(
    st.one_of(
        st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), st.sampled_from("'\\\"$;?-%")
    ),
    min_size=1,
    max_size=60,
).filter(str.strip)


@pytest.fixture(scope="module", params=["on", "off"])
def quoting(request: pytest.FixtureRequest, postgres: Server) -> Iterator[Store]:
    """A store on a server that reads backslashes in texts in either way."""
    address = postgres.database(template="made")
    with open_store(
        f"{address}&options=-c%20standard_conforming_strings%3D{request.param}"
    ) as store:
        yield store


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(space=NAMES, name=NAMES)
@example(space="\\", name="'")
@example(space=HOSTILE[0], name=HOSTILE[1])
def test_scope_setting_accepts_any_name(quoting: Store, space: str, name: str) -> None:
    with engine_of(quoting).read() as tx:
        tx.restrict_to_names(space, name)
        rows = tx.all(
            "SELECT current_setting('reverie.space_name'), current_setting('reverie.user_name'), "
            "COALESCE(current_setting('reverie.owner', true), '')"
        )
    assert rows == [(space, name, "")]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(space=st.one_of(NAMES, st.sampled_from(HOSTILE)), name=NAMES)
@example(space=HOSTILE[0], name=HOSTILE[0])
def test_any_space_name_has_separate_memories(quoting: Store, space: str, name: str) -> None:
    before = {info.name for info in quoting.spaces()}
    handle = quoting.space(space, user=name)
    kept = handle.remember(f"of {space!r} {name!r}", subject="who")
    assert handle.memories(limit=1) == [kept] and handle.get(kept.id) == kept
    assert {info.name for info in quoting.spaces()} == before | {space}
    for other in (f"{space}'", space + "\\", space.replace("\\", "\\\\") + "x"):
        assert quoting.space(other, user=name).memories() == [] or other in before
    assert all(memory.user is None for memory in quoting.space(space).memories())
