"""The vector cache follows every write, whatever was read before."""

from __future__ import annotations

import mmap
import random

import numpy as np
import pytest

from reverie.engine import vector_math
from reverie.engine.sqlite.vectors import MAPPED_BYTES, OwnerVectors
from tests.conftest import PROVE, Stores

WORDS = ("zebra", "horse", "river", "amber", "violin", "carpet", "lemon", "winter")


@pytest.mark.parametrize("seed", range(4))
def test_cached_reader_finds_the_same_vectors_as_a_fresh_one(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also after the vectors that the mean is made of, where only new ones are computed."""
    monkeypatch.setattr(vector_math, "MEAN_SAMPLE_SIZE", 8)
    choose = random.Random(seed)
    space = stores.open().space("ana")
    ids: list[str] = []
    for _ in range(60 if PROVE else 20):
        content = " ".join(choose.choices(WORDS, k=5))
        what = choose.random()
        if what < 0.6 or not ids:
            ids.append(space.remember(content).id)
        elif what < 0.75:
            space.revise(choose.choice(ids), content)
        elif what < 0.9:
            space.forget(ids.pop(choose.randrange(len(ids))))
        else:
            space.session("chat").append({"role": "user", "content": content})
        query = choose.choice(WORDS)
        warm = space.recall(query, mode="vector", limit=20)
        with stores.open() as fresh:
            cold = fresh.space("ana").recall(query, mode="vector", limit=20)
        assert [(hit.id, hit.score) for hit in warm] == [(hit.id, hit.score) for hit in cold]


@pytest.mark.parametrize("value", [1e30, -3e38, np.inf, np.nan])
def test_damaged_vector_moves_no_score_of_the_others(value: float) -> None:
    """It moved the mean, so that every text of its owner scored 1 for any query."""
    rows = np.random.default_rng(7).normal(size=(40, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query, missing = rows[3], rows.copy()
    missing[20] = 0
    whole, damaged = OwnerVectors(0, 0), OwnerVectors(0, 0)
    whole.extend([(0, missing)], 40)
    rows[20, 5] = value
    damaged.extend([(0, rows)], 40)
    for centred in (True, False):
        assert damaged.nearest(query, 40, None, (), centred) == whole.nearest(
            query, 40, None, (), centred
        )


def test_outgrown_matrix_is_unmapped() -> None:
    """Malloc would keep it: a server that only grew one space held twice the memory of it."""
    vectors, rows = OwnerVectors(0, 0), np.ones((64, 256), np.float32)
    mappings = set()
    for count in range(64, 4_096, 64):
        vectors.extend([(count - 64, rows)], count)
        if vectors.rows.nbytes >= MAPPED_BYTES:
            mappings.add(id(memory_of(vectors)))
            assert (vectors.rows[:count] == 1).all() and not vectors.rows[count:].any()
    assert len(mappings) > 1
    old = memory_of(vectors)
    vectors.extend([], len(vectors.rows) + 1)
    assert memory_of(vectors) is not old
    # Raises BufferError while anything still refers to the old matrix.
    old.close()


def memory_of(vectors: OwnerVectors) -> mmap.mmap:
    """The mapping that a matrix is a view of."""
    base: object = vectors.rows.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    assert isinstance(base, mmap.mmap)
    return base
