"""Addresses of databases: the driver's parameters, and that no password is ever shown."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

import reverie
from reverie import ConfigError, Settings, StoreError, StoreReadOnly, StoreUnavailable
from reverie.engine.postgres import dsn
from tests.servers import Server, running

SECRET = "hunter2secret"
NOWHERE = "/nonexistent/folder"


def connection_parameters(url: str) -> dict[str, object]:
    return dict(conninfo_to_dict(dsn.parse(url).conninfo))


def test_dsn_values_override_our_defaults() -> None:
    given = connection_parameters(
        "postgresql://ana:pw@db.example:5433/memories?connect_timeout=9&sslmode=require"
    )
    assert (given["user"], given["password"]) == ("ana", "pw")
    assert (given["host"], given["port"], given["dbname"]) == ("db.example", "5433", "memories")
    assert (given["connect_timeout"], given["sslmode"]) == ("9", "require")
    assert given["application_name"] == "reverie" and given["client_encoding"] == "utf8"
    assert connection_parameters("postgresql:///d")["connect_timeout"] == "3"
    assert (
        connection_parameters("postgres://ana@/d?application_name=mine")["application_name"]
        == "mine"
    )


def test_dsn_parameters_reach_the_driver_unchanged() -> None:
    given = connection_parameters(
        "postgresql:///d?options=-c%20jit%3Doff&password=a+b%26c&host=/a/b"
    )
    assert given["options"] == "-c jit=off"
    assert (given["password"], given["host"]) == ("a+b&c", "/a/b")


@pytest.mark.parametrize(
    ("url", "read_only", "shown"),
    [
        ("postgresql:///d", False, "postgresql:///d"),
        ("postgresql:///d?mode=ro", True, "postgresql:///d"),
        ("postgresql:///d?mode=ro&host=/a", True, "postgresql:///d?host=/a"),
        ("postgresql:///d?host=/a&mode=ro", True, "postgresql:///d?host=/a"),
        ("postgresql:///d?mode=rw", False, "postgresql:///d"),
        ("postgresql://a:b?c@/d?mode=ro", True, "postgresql://a@/d"),
        ("postgresql:///d?user=a@b&mode=ro", True, "postgresql:///d?user=a@b"),
        ("postgresql:///d?host=/mode=ro", False, None),
    ],
)
def test_dsn_mode_parameter_is_ours_and_not_passed_on(
    url: str, read_only: bool, shown: str | None
) -> None:
    if shown is None:
        with pytest.raises(ConfigError):
            dsn.parse(url)
        return
    found = dsn.parse(url)
    assert (found.read_only, found.shown) == (read_only, shown)
    assert "mode" not in conninfo_to_dict(found.conninfo)


def test_dsn_with_several_hosts_prefers_the_writable_server() -> None:
    assert connection_parameters("postgresql://one,two/d")["target_session_attrs"] == "read-write"
    assert (
        connection_parameters("postgresql:///d?host=one,two")["target_session_attrs"]
        == "read-write"
    )
    assert (
        connection_parameters("postgresql://one,two/d?target_session_attrs=any")[
            "target_session_attrs"
        ]
        == "any"
    )
    assert "target_session_attrs" not in connection_parameters("postgresql://one/d")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ana:{SECRET}@host/d",
        f"postgresql://ana:{SECRET}@host/d?mode=ro",
        f"postgresql://:{SECRET}@host/d",
        f"postgresql://ana:x%40{SECRET}@host/d",
        f"postgresql://ana:x?{SECRET}@host/d",
        f"postgresql://host/d?password={SECRET}",
        f"postgresql://host/d?pass%77ord={SECRET}",
        f"postgresql://ana@host/d?user=b&password={SECRET}&sslmode=prefer",
        f"postgresql://host/d?sslpassword={SECRET}&sslcert=x",
    ],
)
def test_dsn_password_is_not_shown(url: str) -> None:
    found = dsn.parse(url)
    assert SECRET in found.conninfo and SECRET not in found.shown
    assert "host" in found.shown and "/d" in found.shown


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ana:{SECRET}@host/d?nonsense=1",
        f"postgresql://ana:{SECRET}@[host/d",
        f"postgresql://ana:x@{SECRET}@host/d",
        f"postgresql://ana:x/{SECRET}@host/d",
        f"postgresql://ana:{SECRET}%zz@host/d",
        f"postgresql://host/d?nonsense=1&password={SECRET}",
        f"postgresql://host/d?password={SECRET}=&x",
    ],
)
def test_invalid_dsn_is_an_error_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dsn.parse(url)
    message = str(caught.value)
    assert (
        SECRET not in message
        and "\n" not in message
        and "postgresql://user@host/database" in message
    )


WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), min_size=1, max_size=12)


@given(url=WORDS.map(lambda text: f"postgresql://ana:{SECRET}@host/d?{text}"))
@example(url=f"postgresql://ana:{SECRET}@host/d?@")
@example(url=f"postgresql://ana:{SECRET}@host/d?a@b")
def test_dsn_password_with_any_suffix_is_not_shown(url: str) -> None:
    try:
        shown = dsn.parse(url).shown
    except ConfigError as error:
        shown = str(error)
    assert SECRET not in shown


@given(before=WORDS)
@example(before="a@")
@example(before="?")
@example(before="a?b@")
@example(before="/")
@example(before="://")
def test_dsn_password_with_any_prefix_is_not_shown(before: str) -> None:
    try:
        shown = dsn.parse(f"postgresql://ana:{before}{SECRET}@host/d").shown
    except ConfigError as error:
        shown = str(error)
    assert SECRET not in shown


# -- through a store ------------------------------------------------------------------------------


def open_store(address: str) -> reverie.Store:
    return reverie.open(address, settings=Settings(), embedder="hashing")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ana:{SECRET}@/d?host={NOWHERE}",
        f"postgresql://ana@/d?host={NOWHERE}&password={SECRET}",
        f"postgresql://ana:{SECRET}@/d?host={NOWHERE},{NOWHERE}2",
        f"postgresql://ana:{SECRET}@127.0.0.1:1/d",
    ],
)
def test_unreachable_server_is_a_typed_error(url: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_store(url)
    message = str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in message and "ana" in message
    assert "No such file" in message or "refused" in message


# What a server says of a login: everybody on the socket must give a password.
GUARDED = "local all postgres trust\nlocal all all scram-sha-256\n"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with running() as server:
        (server.data / "pg_hba.conf").write_text(GUARDED, encoding="utf-8")
        with server.connect() as connection:
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(f"CREATE ROLE ana LOGIN SUPERUSER PASSWORD '{SECRET}'".encode())
            connection.execute("CREATE DATABASE d")
        yield server


def test_wrong_and_missing_passwords_are_typed_errors(guarded: Server) -> None:
    for login in ("ana:wrong", f"ana:{SECRET}x", "ana", f"bob:{SECRET}"):
        with pytest.raises(StoreUnavailable) as caught:
            open_store(f"postgresql://{login}@/d?host={guarded.folder}")
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert "\n" not in str(caught.value) and "password" in str(caught.value)


def test_missing_database_is_a_typed_error(guarded: Server) -> None:
    with pytest.raises(StoreUnavailable, match='"nothing" does not exist') as caught:
        open_store(f"postgresql://ana:{SECRET}@/nothing?host={guarded.folder}")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("place", ["ana:{}@/d?", "ana@/d?password={}&"])
def test_open_store_exposes_its_password_nowhere(guarded: Server, place: str) -> None:
    url = f"postgresql://{place.format(SECRET)}host={guarded.folder}"
    with open_store(url) as store:
        store.space("s").remember("a thing")
        shown = [store.url, repr(store), repr(store.doctor()), repr(store.verify())]
        with guarded.connect("d") as connection:
            connection.execute("ALTER TABLE reverie.memories RENAME TO hidden")
        try:
            with pytest.raises(StoreError) as caught:
                store.space("s").memories()
        finally:
            with guarded.connect("d") as connection:
                connection.execute("ALTER TABLE reverie.hidden RENAME TO memories")
        shown += traceback.format_exception(caught.value)
    with pytest.raises(StoreReadOnly) as refused, open_store(url + "&mode=ro") as store:
        store.space("s").remember("another")
    assert SECRET not in "".join([*shown, str(refused.value)])
    assert all(str(guarded.folder) in text for text in shown[:3])
