"""The cached mean vector equals a fresh one to the last bit, however it was computed."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import reverie
from reverie import Settings, Store
from reverie.engine import vector_math
from reverie.engine.postgres.engine import PostgresEngine
from reverie.engine.postgres.mean_cache import VectorSum, _extend_sum
from reverie.protocols import Owner
from reverie.write import embeddings
from tests.conftest import FakeClock, FakeEmbedder, SeededIds, engine_of
from tests.messages import user
from tests.servers import Server

ROUNDS = max(int(os.environ.get("REVERIE_PROPERTY_EXAMPLES", "60")) // 10, 3)
WORDS = ["amber", "river", "mill", "bees", "lavender", "winter", "cold", "morning", "sister"]
OWNER = Owner(1, 1)
# So that a few texts reach beyond it.
ANCHORED = 24
Mean = NDArray[np.float32] | None


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 60),
    dimensions=st.sampled_from([2, 3, 64, 256]),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_vector_sum_is_the_same_in_any_number_of_parts(
    seed: int, count: int, dimensions: int, cuts: list[int]
) -> None:
    chance = np.random.default_rng(seed)
    rows = chance.standard_normal((count, dimensions)).astype(np.float32)
    rows[chance.random(count) < 0.2] = 0
    middle = VectorSum(0, 0, 0, 0, None)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), count], strict=True):
        part = rows[begin:end]
        middle = _extend_sum(middle, part[part.any(axis=1)], end)
    mean = middle.mean()
    if not rows.any():
        assert mean is None
    else:
        assert mean is not None and mean.tobytes() == vector_math.mean_vector(rows).tobytes()


class World:
    """One owner whose vectors change in every way there is, and two processes that look."""

    def __init__(self, address: str, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.embedders = 0
        self.clock, self.ids = FakeClock(), SeededIds(seed)
        self.address = address
        self.embedder = FakeEmbedder("fake:0")
        self.store = self.open()
        # It looks now and then, and has much to follow.
        self.seldom = PostgresEngine(address)

    def open(self) -> Store:
        return reverie.open(
            self.address,
            settings=Settings(learn="off", summary="off"),
            embedder=self.embedder,
            clock=self.clock,
            ids=self.ids,
        )

    def close(self) -> None:
        self.store.close()
        self.seldom.close()

    @property
    def space(self) -> reverie.Space:
        return self.store.space("s", user="a")

    def text(self) -> str:
        # What says nothing has no vector; what is long has several.
        many = self.chance.choice([0, 3, 8, 300])
        return " ".join(self.chance.choices(WORDS, k=many)) or "..."

    def some(self, *, forgotten: bool) -> str | None:
        known = [
            memory.id
            for memory in self.space.memories(include_forgotten=True)
            if (memory.forgotten_at is not None) == forgotten
        ]
        return self.chance.choice(known) if known else None

    def remember(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.space.remember(self.text(), kind="note")

    def remember_later(self) -> None:
        """With an embedder that is far away: the vector comes after others."""
        self.embedder.remote = True
        self.space.remember(self.text(), kind="note")
        self.embedder.remote = False
        self.space.remember(self.text(), kind="note")
        if self.chance.random() < 0.5:
            self.store.run_pending_jobs()

    def run_pending_jobs(self) -> None:
        self.store.run_pending_jobs()

    def append(self) -> None:
        self.space.session("c").append(user(self.text()))

    def forget(self) -> None:
        if id := self.some(forgotten=False):
            self.space.forget(id)

    def restore(self) -> None:
        if id := self.some(forgotten=True):
            self.space.restore(id)

    def revise(self) -> None:
        if id := self.some(forgotten=False):
            self.space.revise(id, self.text())

    def erase(self) -> None:
        if id := self.some(forgotten=False):
            self.space.erase(id)

    def rebuild(self) -> None:
        self.store.rebuild()

    def reembed(self) -> None:
        self.embedders += 1
        self.store.close()
        self.embedder = FakeEmbedder(f"fake:{self.embedders}", dimensions=16 + self.embedders)
        self.store = self.open()
        self.store.reembed()

    def backup(self) -> None:
        target = self.folder / f"{self.embedders}.db"
        target.unlink(missing_ok=True)
        self.store.backup(target)

    def bring_back(self) -> None:
        if (kept := self.folder / f"{self.embedders}.db").exists():
            self.store.restore_backup(kept)

    def undo(self) -> None:
        """A write that reads vectors and then fails changes nothing in the cache."""

        class Undone(Exception):
            pass

        engine = engine_of(self.store)
        with contextlib.suppress(Undone), engine.write() as tx:
            tx.enter(OWNER)
            generation = embeddings.read(tx)
            if generation is None:
                return
            tx.run("UPDATE statistics SET next_passage = next_passage + 1")
            tx.run("DELETE FROM vectors WHERE space = ? AND owner = ? AND passage < 5", OWNER)
            assert isinstance(engine, PostgresEngine)
            query = np.ones(generation.dimensions or 64, np.float32)
            engine._vectors._mean(tx, OWNER, generation.number, query)
            raise Undone

    @property
    def steps(self) -> list[Callable[[], None]]:
        often = [self.remember, self.forget, self.restore, self.revise, self.append]
        seldom = [self.remember_later, self.run_pending_jobs, self.erase, self.undo, self.backup]
        rarely = [self.rebuild, self.reembed, self.bring_back]
        return often * 3 + seldom * 2 + rarely


def middle_of(engine: PostgresEngine) -> tuple[Mean, Mean]:
    """As this process follows it, and from all rows there are."""
    with engine.read() as tx:
        tx.enter(OWNER)
        generation = embeddings.read(tx)
        if generation is None or generation.dimensions is None:
            return None, None
        query = np.ones(generation.dimensions, np.float32)
        followed = engine._vectors._mean(tx, OWNER, generation.number, query)
        ((end,),) = tx.all("SELECT next_passage FROM statistics WHERE owner = 1")
        rows = tx.vectors(OWNER, generation.number, np.arange(end))
    return followed, vector_math.mean_vector(rows) if rows.any() else None


def require_same(engine: PostgresEngine, label: str) -> None:
    followed, whole = middle_of(engine)
    assert (followed is None) == (whole is None), label
    if followed is not None and whole is not None:
        assert followed.tobytes() == whole.tobytes(), label


@pytest.fixture
def world_of(postgres: Server, tmp_path: Path) -> Iterator[Callable[[int], World]]:
    with contextlib.ExitStack() as stack:

        def make(seed: int) -> World:
            world = World(postgres.database(template="made"), tmp_path, seed)
            stack.callback(world.close)
            return world

        yield make


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_cached_mean_vector_equals_the_mean_of_all_rows(
    world_of: Callable[[int], World], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_math, "MEAN_SAMPLE_SIZE", ANCHORED)
    world, seen = world_of(seed), 0
    world.remember()
    done: list[str] = []
    for _ in range(40):
        step = world.chance.choice(world.steps)
        done.append(step.__name__)
        step()
        engine = engine_of(world.store)
        assert isinstance(engine, PostgresEngine)
        require_same(engine, " ".join(done))
        if world.chance.random() < 0.2:
            seen += 1
            require_same(world.seldom, " ".join(done))
    assert seen and world.store.verify().ok


def test_reader_of_an_older_snapshot_does_not_spoil_the_mean_cache(
    world_of: Callable[[int], World],
) -> None:
    """Two readers of one process: the one that began first ends last."""
    world = world_of(1)
    world.remember()
    world.remember()
    engine = engine_of(world.store)
    assert isinstance(engine, PostgresEngine)
    require_same(engine, "before")
    with contextlib.closing(PostgresEngine(world.address)) as other:
        other._vectors = engine._vectors
        with other.read() as old:
            old.enter(OWNER)
            old.all("SELECT 1 FROM statistics")
            first = middle_in(other, old)
            world.forget()
            world.remember()
            require_same(engine, "after")
            assert middle_in(other, old) == first
        require_same(engine, "at the end")


def middle_in(engine: PostgresEngine, tx: object) -> bytes:
    mean = engine._vectors._mean(tx, OWNER, 1, np.ones(64, np.float32))
    assert mean is not None
    return mean.tobytes()
