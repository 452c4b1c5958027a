from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from reverie.embed import local, tokens
from reverie.embed.local import LocalEmbedder
from reverie.embed.tokens import bundled_file, count_tokens, tokenizer
from reverie.errors import EmbeddingFailed
from reverie.text.analyzer import query_terms

if TYPE_CHECKING:
    from reverie.protocols import Vector

EMBEDDER = LocalEmbedder()
ANY_TEXT = st.text(st.characters(codec=None), max_size=60)


def one(text: str) -> Vector:
    row: Vector = EMBEDDER.embed([text])[0]
    return row


@cache
def untouched_tokenizer() -> Tokenizer:
    made = Tokenizer.from_file(str(bundled_file("tokenizers/l2_supercat_tokenizer_config.json")))
    made.encode_special_tokens = True
    return made


def test_local_embedder_has_its_identity_and_shape() -> None:
    assert EMBEDDER.identity == "wordllama:l2_supercat_256"
    assert not EMBEDDER.remote
    assert EMBEDDER.embed([]).shape == (0, 256)
    rows = EMBEDDER.embed(["one", "", "two"])
    assert rows.shape == (3, EMBEDDER.dimensions)
    assert rows.dtype == np.float32
    assert not rows[1].any()


def test_local_vector_is_the_root_weighted_sum_of_its_tokens() -> None:
    table, vocabulary = local._embedding_table(), tokenizer().get_vocab()
    tea, milk = table[vocabulary["▁tea"]], table[vocabulary["▁milk"]]
    expected = np.sqrt(np.float32(4)) * tea + milk
    assert np.allclose(one("tea tea milk tea tea"), expected / np.linalg.norm(expected), atol=1e-6)


def test_local_vectors_compare_meaning_and_not_spelling() -> None:
    facts = EMBEDDER.embed(
        [
            "Caroline moved to Lisbon last spring for her new job",
            "The invoice for the March conference is still unpaid",
            "He plays the violin in a small orchestra",
            "My dog is allergic to chicken",
        ]
    )
    questions = [
        "In which city does she live now?",
        "which bill has not been settled",
        "Which musical instrument did he learn?",
        "What food should the pet avoid?",
    ]
    for number, question in enumerate(questions):
        weights = dict.fromkeys(query_terms(question).values(), 1.0)
        assert (facts @ EMBEDDER.embed_query(question, weights)).argmax() == number


def test_local_vector_ignores_white_space() -> None:
    assert np.array_equal(one("green tea\n\n\tis  good "), one("green tea is good"))
    assert np.array_equal(one("cafe\u0301"), one("café"))


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000"])
def test_local_vector_of_text_without_tokens_is_zero(text: str) -> None:
    assert not one(text).any()
    assert not EMBEDDER.embed_query(text).any()
    assert not EMBEDDER.embed_query(text, {"tea": 1.0}).any()


@settings(derandomize=True, deadline=None)
@given(st.lists(ANY_TEXT, max_size=5))
def test_local_vectors_are_unit_or_zero_and_independent_of_the_batch(texts: list[str]) -> None:
    for row, text in zip(EMBEDDER.embed(texts), texts, strict=True):
        assert np.isclose(np.linalg.norm(row), 1.0, atol=1e-5) or not row.any()
        assert np.array_equal(row, one(text))


@settings(derandomize=True, deadline=None)
@given(ANY_TEXT, st.dictionaries(ANY_TEXT, st.floats(), max_size=4))
def test_local_query_vector_is_unit_or_zero_for_any_weights(
    text: str, weights: dict[str, float]
) -> None:
    named = {**weights, **dict.fromkeys(query_terms(text).values(), 0.5)}
    for given_weights in (weights, named):
        made = EMBEDDER.embed_query(text, given_weights)
        assert made.shape == (256,)
        assert np.isclose(np.linalg.norm(made), 1.0, atol=1e-5) or not made.any()


def test_local_embedder_reads_only_the_beginning_of_a_very_long_text() -> None:
    long = "tea " * 10_000
    assert np.array_equal(one(long + "milk"), one(long))
    assert np.linalg.norm(one("a" + "\u0301\u0316" * 50_000)) == pytest.approx(1.0, abs=1e-5)
    assert np.linalg.norm(one("\ufdfa" * 50_000)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("query", "weights", "same_as"),
    [
        ("the tea", {"tea": 1.0}, "tea"),
        ("What about TEA?", {"tea": 0.3}, "TEA"),
        ("tea, milk", {"tea": 1.0, "milk": 0.0}, "tea"),
        ("Tea with Don's café", {"don's": 1.0, "café": 1.0}, "Don's café"),
        ("is CAFE\u0301 open", {"café": 2.0}, "CAFÉ"),
        ("the straße", {"strasse": 1.0}, "straße"),
        ("İstanbul tea", {"tea": 1.0}, "tea"),
        ("ｔｅａ time", {"tea": 1.0}, "tea"),
        ("tea 東京都 tea", {"東京": 1.0, "京都": 1.0}, "東京都"),
    ],
)
def test_query_word_has_the_tokens_that_it_has_in_a_sentence(
    query: str, weights: dict[str, float], same_as: str
) -> None:
    assert EMBEDDER.embed_query(query, weights) @ one(same_as) == pytest.approx(1.0, abs=2e-2)


def test_query_weights_change_the_local_query_vector() -> None:
    tea, milk = EMBEDDER.embed(["tea", "milk"])
    leaning = EMBEDDER.embed_query("tea or milk", {"tea": 3.0, "milk": 1.0})
    assert leaning @ tea > leaning @ milk
    extreme = EMBEDDER.embed_query("tea or milk", {"tea": 1e300, "milk": 1e-300})
    assert np.allclose(extreme, tea, atol=1e-6)


def test_query_without_weighted_words_is_embedded_plainly() -> None:
    for weights in (None, {}, {"tea": 0.0}, {"tea": float("nan")}, {"other": 1.0}):
        assert np.array_equal(EMBEDDER.embed_query("tea or milk", weights), one("tea or milk"))


def test_count_tokens_counts_the_tokens_of_a_text() -> None:
    assert count_tokens("") == 0
    assert count_tokens("tea") == 1
    assert count_tokens("tea and milk") == 3
    assert count_tokens("</s>") > 1
    assert count_tokens("\ud800") == count_tokens("?")
    assert count_tokens("tea " * 20_000) > 20_000 - 1


@settings(derandomize=True, deadline=None)
@given(st.text(max_size=80) | st.text("ab (,\n▁", max_size=80))
def test_cutting_at_word_starts_changes_no_token(text: str) -> None:
    assert (
        tokenizer().encode(text, add_special_tokens=False).ids
        == untouched_tokenizer().encode(text, add_special_tokens=False).ids
    )


def test_local_weights_are_loaded_once_by_concurrent_threads() -> None:
    local._load_table.cache_clear()
    tokens._load.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(one, ["green tea"] * 32))
    assert all(np.array_equal(row, rows[0]) for row in rows)
    assert local._load_table.cache_info().misses == 1
    assert tokens._load.cache_info().misses == 1


def test_missing_local_weights_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(EmbeddingFailed, match="no-such-file is missing: pip install"):
        bundled_file("weights/no-such-file")
    monkeypatch.setattr(tokens, "find_spec", lambda name: None)
    with pytest.raises(EmbeddingFailed, match="wordllama"):
        bundled_file("weights/l2_supercat_256.safetensors")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_local_embedder_starts_no_threads_and_never_imports_wordllama() -> None:
    code = """
import os, sys
from reverie.embed.local import LocalEmbedder
LocalEmbedder().embed(["green tea"] * 100)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
LocalEmbedder().embed(["green tea"] * 100)
assert "wordllama" not in sys.modules
os._exit(0)
"""
    environ = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environ
    )
    assert (done.returncode, done.stderr) == (0, "")
