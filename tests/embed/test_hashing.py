from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.embed.hashing import HashingEmbedder
from reverie.embed.pooling import normalize_rows
from reverie.errors import ConfigError


def test_hashing_identity_names_the_dimension() -> None:
    assert HashingEmbedder().identity == "hashing:64"
    assert HashingEmbedder(8).identity == "hashing:8"
    assert HashingEmbedder(8).embed(["a", "b"]).shape == (2, 8)
    assert HashingEmbedder().embed([]).shape == (0, 64)
    with pytest.raises(ConfigError):
        HashingEmbedder(0)


def test_hashing_vectors_are_the_same_on_every_machine() -> None:
    made = HashingEmbedder(8).embed(["Tea, please"])[0]
    assert np.allclose(made, [-0.603, 0.0, 0.0, 0.603, 0.0, -0.3015, 0.3015, 0.3015], atol=1e-4)


def test_hashing_vectors_of_similar_texts_are_similar() -> None:
    base, near, far = HashingEmbedder().embed(
        ["she likes green tea", "She likes green teas!", "quarterly tax forms are overdue"]
    )
    assert base @ near > 0.8
    assert base @ near > base @ far + 0.4


@pytest.mark.parametrize("text", ["", "  ", "?!", "\ud800"])
def test_hashing_vector_of_text_without_words_is_zero(text: str) -> None:
    assert not HashingEmbedder().embed([text]).any()
    assert not HashingEmbedder().embed_query(text, {"a": 1.0}).any()


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=5))
def test_hashing_vectors_are_unit_or_zero_and_independent_of_the_batch(texts: list[str]) -> None:
    embedder = HashingEmbedder()
    rows = embedder.embed(texts)
    assert rows.dtype == np.float32
    for row, text in zip(rows, texts, strict=True):
        assert np.isclose(np.linalg.norm(row), 1.0, atol=1e-5) or not row.any()
        assert np.array_equal(row, embedder.embed([text])[0])


def test_hashing_query_weights_select_the_words() -> None:
    embedder = HashingEmbedder()
    tea, coffee = embedder.embed(["tea", "coffee"])
    assert np.allclose(embedder.embed_query("the TEA or coffee", {"tea": 2.0}), tea)
    leaning = embedder.embed_query("tea or coffee", {"tea": 3.0, "coffee": 1.0})
    assert leaning @ tea > leaning @ coffee
    plain = embedder.embed(["tea or coffee"])[0]
    for weights in (None, {}, {"tea": 0.0}, {"milk": 1.0}):
        assert np.array_equal(embedder.embed_query("tea or coffee", weights), plain)


def test_normalize_rows_handles_extreme_values() -> None:
    rows = normalize_rows(np.array([[3.0, 4.0], [1e300, 1e300], [1e-300, 0.0], [0.0, 0.0]]))
    half = 0.5**0.5
    assert np.allclose(rows, [[0.6, 0.8], [half, half], [1.0, 0.0], [0.0, 0.0]])
