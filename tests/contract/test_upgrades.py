"""A process of an earlier version does not write to a store that a newer one upgraded."""

from __future__ import annotations

import threading
from collections.abc import Callable

import apsw
import psycopg
import pytest

import reverie
from reverie import NewerSchema, Settings, StoreError
from reverie.engine import schema
from tests.conftest import Stores, rows
from tests.messages import user
from tests.upgrades import add_step


def set_schema(address: str, number: int) -> None:
    """Let the store look like one that another version upgraded."""
    if address.startswith("postgresql"):
        with psycopg.connect(address) as database:
            database.execute(
                "UPDATE reverie.meta SET value = %s WHERE key = 'schema'", (str(number),)
            )
        return
    connection = apsw.Connection(address.removeprefix("sqlite://"))
    connection.pragma("user_version", number)
    connection.close()


def test_write_to_a_store_upgraded_meanwhile_is_refused(stores: Stores) -> None:
    store = stores.open()
    space = store.space("ana")
    memory = space.remember("zebra")
    before = rows(store, "SELECT COUNT(*) FROM log"), rows(store, "SELECT COUNT(*) FROM jobs")
    set_schema(stores.address("main"), schema.SCHEMA_VERSION + 1)
    writes: list[Callable[[], object]] = [
        lambda: space.remember("horse"),
        lambda: space.revise(memory.id, "horse"),
        lambda: space.forget(memory.id),
        lambda: space.erase(memory.id),
        lambda: space.session("chat").append(user("hello")),
        lambda: store.space("new").remember("horse"),
        lambda: store.create_token("phone"),
        lambda: store.rebuild(),
        lambda: store.retry_job("ana", 1),
    ]
    for write in writes:
        with pytest.raises(NewerSchema, match="start the process again") as caught:
            write()
        assert "\n" not in str(caught.value)
    assert store.write_failed
    assert before == (
        rows(store, "SELECT COUNT(*) FROM log"),
        rows(store, "SELECT COUNT(*) FROM jobs"),
    )
    assert space.get(memory.id).content == "zebra"
    set_schema(stores.address("main"), schema.SCHEMA_VERSION)
    space.remember("horse")


def test_worker_ends_when_the_store_was_upgraded(stores: Stores) -> None:
    store = stores.open()
    store.space("ana").session("chat").append(user("hello"))
    set_schema(stores.address("main"), schema.SCHEMA_VERSION + 1)
    with pytest.raises(NewerSchema):
        store.run_worker(threading.Event(), poll_seconds=0.01)
    store.start_worker(poll_seconds=0.01)
    assert store._worker is not None
    store._worker.join(60)
    assert not store._worker.is_alive()


def test_write_to_a_store_replaced_by_an_earlier_one_is_refused(stores: Stores) -> None:
    store = stores.open()
    store.space("ana").remember("zebra")
    set_schema(stores.address("main"), schema.SCHEMA_VERSION - 1)
    with pytest.raises(StoreError, match="open it again"):
        store.space("ana").remember("horse")
    set_schema(stores.address("main"), schema.SCHEMA_VERSION)
    store.space("ana").remember("horse")


def test_read_that_fails_after_an_upgrade_says_so(stores: Stores) -> None:
    store = stores.open()
    store.space("ana").remember("zebra")
    set_schema(stores.address("main"), schema.SCHEMA_VERSION + 1)
    with pytest.raises(NewerSchema, match="start the process again"):
        rows(store, "SELECT a_column_of_another_version FROM log")


def test_older_program_refuses_a_newer_store_on_one_line(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = stores.address("main")
    with monkeypatch.context() as newer:
        number = add_step(newer)
        with stores.open() as store:
            store.space("ana").remember("zebra")
    with pytest.raises(NewerSchema, match=f"schema {number}.*pip install --upgrade") as caught:
        stores.open()
    assert "\n" not in str(caught.value)
    with pytest.raises(NewerSchema):
        stores.open(read_only=True)
    add_step(monkeypatch)
    with reverie.open(address, settings=Settings(), embedder="hashing") as store:
        assert [memory.content for memory in store.space("ana").memories()] == ["zebra"]
