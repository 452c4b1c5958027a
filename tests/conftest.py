"""What every test stands on: an own environment, an own clock, own ids, and stores to open."""

from __future__ import annotations

import os
import random
import string
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import reverie
from reverie import Settings, Store
from reverie.embed.hashing import HashingEmbedder
from reverie.errors import EmbeddingFailed
from reverie.protocols import Embedder, Engine
from tests.servers import Server, running

if TYPE_CHECKING:
    from reverie.protocols import Matrix, Vector

START = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SECOND = 1_000
HOUR = 3_600_000
DAY = 24 * HOUR

ENGINES = ("postgres", "sqlite")

# With REVERIE_PROVE=1 every proof is done at its full length.
PROVE = bool(os.environ.get("REVERIE_PROVE"))
_SEEDS, _MANY_FAULTS, _MANY_CASES = 2, 20, 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What gates a change is a part of every proof: some of the seeds, a third of many places for
    a fault, and over PostgreSQL a fourth of a test's cases; over SQLite all of them."""
    if PROVE:
        return
    faults: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    left: set[pytest.Item] = set()
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        name = item.nodeid.partition("[")[0]
        if "seed" in params and params["seed"] >= _SEEDS:
            left.add(item)
        elif "at" in params:
            faults[name].append(item)
        elif "postgres" in params.values():
            cases[name].append(item)
    for groups, many, each in ((faults, _MANY_FAULTS, 3), (cases, _MANY_CASES, 4)):
        for group in groups.values():
            if len(group) >= many:
                left.update(item for place, item in enumerate(group) if place % each)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


class FakeClock:
    """Stands still until told otherwise; may be set to any moment, an earlier one included."""

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
    return store._runtime.engine


def rows(store: Store, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with engine_of(store).read() as tx:
        tx.enter_all_owners()
        return tx.all(sql, values)


def tamper(store: Store, sql: str, *values: Any) -> int:
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        return tx.run(sql, values)


@pytest.fixture(autouse=True)
def own_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No test reads the developer's settings or writes into their folders."""
    for name in list(os.environ):
        if name.startswith(("REVERIE_", "XDG_")) and not name.startswith(
            ("REVERIE_PROPERTY_", "REVERIE_CRASH_", "REVERIE_GOLDEN")
        ):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("DATA", "CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real server for all tests of one process. ``made`` is a database with empty tables."""
    with running() as server:
        with server.connect() as connection:
            connection.execute("CREATE DATABASE made")
        reverie.open(server.address("made"), settings=Settings(), embedder="none").close()
        yield server


@pytest.fixture(params=ENGINES)
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes the address of a store from a name, for each engine in turn."""
    return addresses(request, tmp_path)


def addresses(
    request: pytest.FixtureRequest, folder: Path, *, kept: bool = False
) -> Callable[[str], str]:
    """Not ``kept``, a database goes with the fixture that asked for it."""
    if request.param == "sqlite":
        return lambda name: f"sqlite://{folder / name}.db"
    server: Server = request.getfixturevalue("postgres")

    def made(name: str) -> str:
        address = server.database(template="made")
        if not kept:
            request.addfinalizer(lambda: server.drop(address))
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
