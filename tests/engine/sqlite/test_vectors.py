"""The vector cache follows every write, whatever was read before."""

from __future__ import annotations

import random

import pytest

from reverie.engine import vector_math
from tests.conftest import Stores

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
    for _ in range(60):
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
