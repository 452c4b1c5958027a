"""Fixtures for every test: an environment, a clock and ids of its own, and stores to open."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import random
import shutil
import ssl
import string
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

import reverie
from reverie import Settings, Store
from reverie.embed.hashing import HashingEmbedder
from reverie.engine.sqlite.engine import SQLiteEngine
from reverie.errors import EmbeddingFailed
from reverie.protocols import Embedder, Engine
from tests.servers import Databases, Server, running
from tests.tiers import PROVE as PROVE

if TYPE_CHECKING:
    from reverie.protocols import Matrix, Vector

# No test asserts a time: an example that waits for a busy core must not fail.
hypothesis.settings.register_profile("no deadline", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("no deadline")

START = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SECOND = 1_000
HOUR = 3_600_000
DAY = 24 * HOUR

ENGINES = ("postgres", "sqlite")


class FakeClock:
    """A clock that moves only when a test moves it, to any time, also to an earlier one."""

    def __init__(self, at: int = START) -> None:
        self.at = at

    def now(self) -> int:
        return self.at

    def step(self, ms: int) -> int:
        self.at += ms
        return self.at


class SeededIds:
    """Random ids that are the same in every run. ``coming`` are handed out before them."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.coming: list[str] = []

    def memory(self) -> str:
        if self.coming:
            return self.coming.pop(0)
        letters = string.ascii_letters + string.digits
        return "".join(self._random.choice(letters) for _ in range(8))

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class FakeEmbedder:
    """The hashing embedder under any name: near or far, counting its calls, failing on demand."""

    def __init__(
        self, identity: str = "fake:one", *, remote: bool = False, dimensions: int = 64
    ) -> None:
        self.identity = identity
        self.remote = remote
        self.texts: list[str] = []
        self.queries: list[str] = []
        self.failing = False
        self.fail_after: int | None = None
        self._inner = HashingEmbedder(dimensions)

    @property
    def asked(self) -> int:
        return len(self.texts) + len(self.queries)

    def forget_calls(self) -> None:
        self.texts.clear()
        self.queries.clear()

    def embed(self, texts: Sequence[str]) -> Matrix:
        spent = self.fail_after is not None and len(self.texts) + len(texts) > self.fail_after
        if self.failing or spent:
            raise EmbeddingFailed("the service is away")
        self.texts.extend(texts)
        return self._inner.embed(texts)

    def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
        if self.failing:
            raise EmbeddingFailed("the service is away")
        self.queries.append(text)
        return self._inner.embed_query(text, weights)


class Stores:
    """Opens stores by name: the same name is the same database, also after it was closed."""

    def __init__(self, address: Callable[[str], str]) -> None:
        self.address = address
        self.clock = FakeClock()
        self.ids = SeededIds()
        self._opened: list[Store] = []

    def open(
        self,
        name: str = "main",
        *,
        embedder: str | Embedder = "hashing",
        read_only: bool = False,
        **settings: Any,
    ) -> Store:
        address = self.address(name)
        mode = ("&mode=ro" if "?" in address else "?mode=ro") if read_only else ""
        store = reverie.open(
            address + mode,
            settings=Settings(**settings),
            embedder=embedder,
            clock=self.clock,
            ids=self.ids,
        )
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


def engine_of(store: Store) -> Engine:
    """The engine under a store, for looking at rows and for tampering with them."""
    return store.runtime.engine


def rows(store: Store, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with engine_of(store).read() as tx:
        tx.enter_all_owners()
        return tx.all(sql, values)


def tamper(store: Store, sql: str, *values: Any) -> int:
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        return tx.run(sql, values)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each xdist worker of a whole run import another part of the test files first.

    pytest rewrites the assertions of a file when it is imported for the first time, and stores the
    result. In a fresh checkout every worker would rewrite every file: they collect at one pace.
    The cases of a test must not depend on what was imported before; xdist reports one that does.
    """
    whole = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not whole or not worker:
        return
    folder = Path(__file__).parent
    files = sorted(folder.rglob("test_*.py"))
    first = len(files) * int(worker) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for file in files[first:] + files[:first]:
        name = ".".join(file.relative_to(folder.parent).with_suffix("").parts)
        # The collection imports it again, and reports the error as it always does.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


_HOMES = itertools.count()


@pytest.fixture(autouse=True)
def own_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """No test depends on the settings or zone of the developer, or writes into their folders."""
    for name in list(os.environ):
        if name.startswith(("REVERIE_", "XDG_")) and not name.startswith(
            ("REVERIE_PROPERTY_", "REVERIE_CRASH_", "REVERIE_GOLDEN")
        ):
            monkeypatch.delenv(name)
    set_zone(monkeypatch, "UTC")
    # mktemp would list a folder of thousands for each of them.
    home = tmp_path_factory.getbasetemp() / "homes" / str(next(_HOMES))
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("DATA", "CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    yield
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def no_trusted_certificates() -> Iterator[None]:
    """Give the HTTP clients of this process an empty list of certificate authorities.

    To read the system's takes 21 ms of CPU for each client, and no test speaks TLS.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "httpcore2.default_ssl_context", lambda **_: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        yield


# Making a store is what these prove, or a file system that watches each call is below it.
MADE_FOR_REAL = (
    "tests/crash/",
    "tests/engine/",
    "tests/maintenance/",
    "tests/transfer/test_migrate",
    "tests/contract/test_damage",
    "tests/vault/test_older_states",
)


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the process into a zone with summer time; its rules need no database of zones."""
    set_zone(monkeypatch, "CET-1CEST,M3.5.0,M10.5.0/3")


def set_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store without a space, made in the real way."""
    path = tmp_path_factory.mktemp("empty") / "store.db"
    SQLiteEngine(str(path)).close()
    return path.read_bytes()


@pytest.fixture(autouse=True)
def copied_stores(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, empty_store: bytes
) -> None:
    """Fill the file of a new SQLite store with an empty one: to make its tables takes 9 ms more.

    ``test_test_tools`` compares both.
    """
    if not request.node.nodeid.startswith(MADE_FOR_REAL):
        monkeypatch.setattr(
            SQLiteEngine, "_create_or_upgrade", partialmethod(_copy_then_upgrade, empty_store)
        )


_create_or_upgrade = SQLiteEngine._create_or_upgrade


def _copy_then_upgrade(engine: SQLiteEngine, empty_store: bytes) -> None:
    if not engine.read_only and engine._vfs is None and engine.path.stat().st_size == 0:
        try:
            engine.path.write_bytes(empty_store)
        except OSError:  # a full disk: the real way tells of it as it always does
            engine.path.write_bytes(b"")
    _create_or_upgrade(engine)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real server for all tests of one process. ``made`` is a database with empty tables."""
    with running() as server:
        with server.connect() as connection:
            connection.execute("CREATE DATABASE made")
        reverie.open(server.address("made"), settings=Settings(), embedder="none").close()
        yield server


@pytest.fixture(scope="session")
def databases(postgres: Server) -> Databases:
    """Databases like ``made`` that tests use one after the other."""
    return Databases(postgres, "made")


@pytest.fixture(params=ENGINES)
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes the address of a store from a name, for each engine in turn."""
    return addresses(request, tmp_path)


def addresses(
    request: pytest.FixtureRequest, folder: Path, *, kept: bool = False
) -> Callable[[str], str]:
    """Make the addresses of one engine; a database is ``kept``, or taken back after the test."""
    if request.param == "sqlite":
        return lambda name: f"sqlite://{folder / name}.db"
    databases: Databases = request.getfixturevalue("databases")

    def made(name: str) -> str:
        if kept:
            return databases.server.database(template="made")
        address = databases.take()
        request.addfinalizer(lambda: databases.give_back(address))
        return address

    return cache(made)


@pytest.fixture
def stores(engine_url: Callable[[str], str]) -> Iterator[Stores]:
    opened = Stores(engine_url)
    yield opened
    opened.close()


@pytest.fixture
def clock(stores: Stores) -> FakeClock:
    return stores.clock


@pytest.fixture
def ids(stores: Stores) -> SeededIds:
    return stores.ids


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.open()


@pytest.fixture
def space(store: Store) -> reverie.Space:
    return store.space("ana")
