"""Ranking functions: cases computed by hand, and properties. Evidence is in ``test_evidence``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.model import RANKINGS, Ranking
from reverie.recall import ranking as recall_ranking

SCORES = st.dictionaries(
    st.integers(0, 30), st.floats(-1e6, 1e6, allow_nan=False, width=32), max_size=20
)
quietly = settings(derandomize=True, deadline=None, max_examples=100)
DAY = recall_ranking.DAY_MS


# -- the query's words ----------------------------------------------------------------------------


def test_idf_weight_has_its_known_values() -> None:
    assert recall_ranking.idf_weight(10, 1) == pytest.approx(
        math.log(1 + 9.5 / 1.5) ** recall_ranking.IDF_EXPONENT
    )
    assert recall_ranking.idf_weight(1, 1) == pytest.approx(
        math.log(1 + 0.5 / 1.5) ** recall_ranking.IDF_EXPONENT
    )
    assert recall_ranking.idf_weight(0, 0) == pytest.approx(
        math.log(2) ** recall_ranking.IDF_EXPONENT
    )
    assert (
        recall_ranking.idf_weight(100, 1)
        > recall_ranking.idf_weight(100, 2)
        > recall_ranking.idf_weight(100, 100)
        > 0
    )


@quietly
@given(st.integers(1, 1000), st.integers(1, 1000))
def test_rarer_terms_have_a_higher_idf_weight(passages: int, frequency: int) -> None:
    frequency = min(frequency, passages)
    assert recall_ranking.idf_weight(passages, frequency) > 0
    assert recall_ranking.idf_weight(passages, frequency - 1) > recall_ranking.idf_weight(
        passages, frequency
    )


def test_only_the_rarest_terms_are_weighted() -> None:
    many = recall_ranking.MAX_QUERY_TERMS + 8
    frequencies = {f"term{number:02}": number for number in range(1, many)}
    weights = recall_ranking.term_weights(100, frequencies, frequencies)
    assert list(weights.of) == [
        f"term{number:02}" for number in range(1, recall_ranking.MAX_QUERY_TERMS + 1)
    ]
    assert weights.of["term01"] == recall_ranking.idf_weight(100, 1)
    assert weights.total == pytest.approx(sum(weights.of.values()))


def test_terms_of_equal_rarity_are_chosen_alphabetically() -> None:
    terms = [f"{number:02}" for number in range(recall_ranking.MAX_QUERY_TERMS + 5)]
    weights = recall_ranking.term_weights(9, terms[::-1], dict.fromkeys(terms, 3))
    assert list(weights.of) == terms[: recall_ranking.MAX_QUERY_TERMS]


def test_unknown_terms_count_in_the_total_weight() -> None:
    weights = recall_ranking.term_weights(10, ["known", "unknown"], {"known": 2})
    assert weights.of == {"known": recall_ranking.idf_weight(10, 2)}
    assert weights.total == pytest.approx(
        recall_ranking.idf_weight(10, 2) + recall_ranking.idf_weight(10, 0)
    )
    assert recall_ranking.term_weights(10, ["x"], {}) == ({}, recall_ranking.idf_weight(10, 0))
    assert recall_ranking.term_weights(10, ["x"], {"x": 0}) == (
        {},
        recall_ranking.idf_weight(10, 0),
    )


def test_rarity_of_weak_terms_is_less_and_they_are_not_strong() -> None:
    rarity = recall_ranking.term_rarity(1_000, ["go", "ferri", "naxo"], {"go": 2, "ferri": 9})
    idf = {
        term: recall_ranking.idf_weight(1_000, count)
        for term, count in (("go", 2), ("ferri", 9), ("naxo", 0))
    }
    assert rarity.of == pytest.approx({**idf, "go": idf["go"] * recall_ranking.WEAK_FACTOR})
    assert rarity.unknown == pytest.approx(idf["naxo"] / sum(rarity.of.values()))
    coverage, strong_terms = rarity.covered(["go", "ferri"])
    assert coverage == pytest.approx((rarity.of["go"] + idf["ferri"]) / sum(rarity.of.values()))
    assert strong_terms == 1


def test_rarity_in_a_small_memory_is_that_of_a_larger_one() -> None:
    small, larger = (recall_ranking.term_rarity(size, ["boat"], {"boat": 2}) for size in (3, 50))
    assert small == larger
    assert recall_ranking.term_rarity(3, [], {}).covered([]) == (0.0, 0)


def test_query_with_many_unknown_terms_still_finds_known_ones() -> None:
    unknown = [f"u{number}" for number in range(recall_ranking.MAX_QUERY_TERMS + 5)]
    weights = recall_ranking.term_weights(10, [*unknown, "known"], {"known": 2})
    assert list(weights.of) == ["known"]
    assert weights.total == pytest.approx(
        recall_ranking.MAX_QUERY_TERMS * recall_ranking.idf_weight(10, 0)
    )


def test_no_terms_cause_no_division_by_zero() -> None:
    assert recall_ranking.term_weights(10, [], {}) == ({}, 1.0)


def test_word_weights_have_their_known_values() -> None:
    weights = recall_ranking.word_weights(9, {"zebra": "Zebras", "the": "the"}, {"the": 9})
    assert weights["Zebras"] == pytest.approx(math.sqrt(math.log(10) + 0.1))
    assert weights["the"] == pytest.approx(math.sqrt(0.1))


def test_longer_text_has_a_lower_keyword_score() -> None:
    lengths, soft = np.arange(256), recall_ranking.LENGTH_NORM
    assert soft[0] == 1 and (np.diff(soft) < 0).all() and soft[-1] > 0
    assert soft == pytest.approx(
        (recall_ranking.LENGTH_PIVOT / (recall_ranking.LENGTH_PIVOT + lengths))
        ** recall_ranking.LENGTH_EXPONENT
    )


# -- two lists ------------------------------------------------------------------------------------


def fused(
    keyword: Mapping[str, float] | None, vector: Mapping[str, float] | None, ranking: Ranking
) -> dict[str, float]:
    return {found.item: found.score for found in recall_ranking.fuse(keyword, vector, ranking)}


def test_min_max_has_its_known_values() -> None:
    assert recall_ranking.min_max({"a": 2.0, "b": 4.0, "c": 3.0}) == {"a": 0, "b": 1, "c": 0.5}
    assert recall_ranking.min_max({"a": 7.0}) == {"a": 1.0}
    assert recall_ranking.min_max({"a": 7.0, "b": 7.0 + 1e-7}) == {"a": 1.0, "b": 1.0}
    assert recall_ranking.min_max({"a": 7.0, "b": 7.0}, equal=0.5) == {"a": 0.5, "b": 0.5}
    assert recall_ranking.min_max({}) == {}


def test_weighted_fusion_has_its_known_values() -> None:
    """Seven tenths for the vector, three for the words; a list that lacks an item gives it 0."""
    ranking = RANKINGS["weighted"]
    keyword, vector = {"a": 3.0, "b": 2.0, "c": 1.0}, {"b": 0.9, "d": 0.5, "e": 0.1}
    found = fused(keyword, vector, ranking)
    assert found == {"a": 0.3, "b": 0.85, "c": 0.0, "d": 0.35, "e": 0.0}
    assert fused({"a": 2.0, "b": 2.0}, {"b": 0.4}, ranking) == {"a": 0.3, "b": 1.0}
    assert ranking.multiplier == 4 and ranking.candidates == 0


def test_weighted_fusion_with_equal_weights_has_its_known_values() -> None:
    """Likeness 1, 0 and -1, and two of equal words: the middle one wins, and two are equal."""
    halves = replace(RANKINGS["weighted"], vector_weight=0.5, keyword_weight=0.5)
    found = recall_ranking.fuse({"b": 2.5, "c": 2.5}, {"a": 1.0, "b": 0.0, "c": -1.0}, halves)
    assert {one.item: one.score for one in found} == {"a": 0.5, "b": 0.75, "c": 0.5}
    best = max(found, key=lambda one: one.score)
    assert dict(best.parts) == {
        "keyword": 2.5,
        "vector": 0.0,
        "keyword_part": 0.5,
        "vector_part": 0.25,
    }


def test_reciprocal_rank_fusion_has_its_known_values() -> None:
    """One over 61 for the first of a list, one over 62 for the next; each list counts whole."""
    assert recall_ranking.reciprocal_ranks({"x": 5.0, "y": 4.0}) == {"x": 1 / 61, "y": 1 / 62}
    found = fused({"a": 9.0, "b": 8.0}, {"b": 0.2, "c": 0.1, "a": 0.0}, RANKINGS["rrf"])
    expected = {"a": 1 / 61 + 1 / 63, "b": 1 / 62 + 1 / 61, "c": 1 / 62}
    assert found == {
        name: round(score, recall_ranking.SCORE_DECIMALS) for name, score in expected.items()
    }
    assert RANKINGS["rrf"].multiplier == 2


def test_similarity_fusion_returns_the_cosine() -> None:
    vector = {"a": 0.731, "b": -0.25}
    assert fused({"a": 9.0}, vector, RANKINGS["similarity"]) == vector
    assert fused(None, vector, RANKINGS["similarity"]) == vector


def test_evidence_that_was_not_asked_for_has_no_effect() -> None:
    ranking = RANKINGS["weighted"]
    (only,) = recall_ranking.fuse({"a": 3.0}, None, ranking)
    assert (only.item, only.score) == ("a", 1.0)
    assert dict(only.parts) == {
        "keyword": 3.0,
        "vector": None,
        "keyword_part": 1.0,
        "vector_part": 0.0,
    }
    assert fused(None, {"a": 0.2}, replace(ranking, vector_weight=0.1)) == {"a": 1.0}
    assert fused({"a": 1.0}, {}, ranking) == {"a": 0.3}
    assert recall_ranking.fuse({}, {}, ranking) == recall_ranking.fuse(None, None, ranking) == []


def test_zero_weights_cause_no_division_by_zero() -> None:
    for fusion in ("plain", "min_max", "rrf"):
        ranking = Ranking(0, 0, fusion)
        assert fused({"a": 1.0}, {"b": 1.0}, ranking) == {"a": 0, "b": 0}


@quietly
@given(SCORES, st.floats(0, 1))
def test_min_max_keeps_order_and_stays_between_zero_and_one(
    given_scores: dict[int, float], equal: float
) -> None:
    spread = recall_ranking.min_max(given_scores, equal)
    assert set(spread) == set(given_scores)
    assert all(0 <= score <= 1 for score in spread.values())
    for one in given_scores:
        for two in given_scores:
            if given_scores[one] < given_scores[two]:
                assert spread[one] <= spread[two]


@quietly
@given(
    st.none() | SCORES,
    st.none() | SCORES,
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(("min_max", "rrf")),
)
def test_fuse_returns_each_item_once_with_parts_that_add_up(
    keyword: dict[int, float] | None,
    vector: dict[int, float] | None,
    vector_weight: float,
    keyword_weight: float,
    fusion: Any,
) -> None:
    found = recall_ranking.fuse(keyword, vector, Ranking(vector_weight, keyword_weight, fusion))
    assert sorted(f.item for f in found) == sorted({*(keyword or {}), *(vector or {})})
    for one in found:
        assert 0 <= one.score <= 1
        assert one.score == round(one.score, recall_ranking.SCORE_DECIMALS)
        total = (one.parts["keyword_part"] or 0) + (one.parts["vector_part"] or 0)
        assert abs(one.score - total) <= 2e-6
        assert one.parts["keyword"] == (keyword or {}).get(one.item)
        assert one.parts["vector"] == (vector or {}).get(one.item)


# -- from scores to hits --------------------------------------------------------------------------


def test_recency_has_its_known_values() -> None:
    now = 1_000 * DAY
    assert recall_ranking.recency(now, now, 30) == 1.0
    assert recall_ranking.recency(now - 30 * DAY, now, 30) == pytest.approx(0.5)
    assert recall_ranking.recency(now - 90 * DAY, now, 30) == pytest.approx(0.125)
    assert recall_ranking.recency(now + 30 * DAY, now, 30) == 1.0, (
        "what is still to come is not old"
    )
    assert recall_ranking.recency(-(1 << 62), 1 << 62, 1e-6) == 0.0


def test_recency_of_the_diverse_ranking_has_its_known_values() -> None:
    """Over thirty days it falls to 1/e; a fifth of the score is that."""
    ranking, now = RANKINGS["diverse"], 1_000 * DAY
    for days in (0, 1, 30, 45, 300):
        fresh = recall_ranking.recency(now - days * DAY, now, ranking.half_life_days)
        assert fresh == pytest.approx(math.exp(-days / 30))
    assert recall_ranking.apply_recency(0.5, now - 30 * DAY, now, ranking) == round(
        0.8 * 0.5 + 0.2 / math.e, 6
    )
    assert recall_ranking.apply_recency(0.5, now + DAY, now, ranking) == round(0.8 * 0.5 + 0.2, 6)
    assert recall_ranking.apply_recency(0.5, now - 999 * DAY, now, Ranking()) == 0.5


def test_mmr_order_has_its_known_values() -> None:
    """The second is the first again: .7 * .9 - .3 is less than .7 * .8."""
    vectors = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    assert recall_ranking.mmr_order([1.0, 0.9, 0.8], vectors, 0.7, 3) == [0, 2, 1]
    assert recall_ranking.mmr_order([1.0, 0.9, 0.4], vectors, 0.7, 3) == [0, 1, 2]
    assert recall_ranking.mmr_order([1.0, 0.9, 0.8], vectors, 1.0, 3) == [0, 1, 2]
    assert recall_ranking.mmr_order([1.0, 0.9, 0.8], vectors, 0.7, 2) == [0, 2]
    assert recall_ranking.mmr_order([], np.zeros((0, 0)), 0.7, 5) == []


def test_mmr_order_starts_with_the_best() -> None:
    vectors = np.array([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    assert recall_ranking.mmr_order([0.2, 0.9, 0.8], vectors, 0.0, 3)[0] == 1


def test_mmr_order_compares_with_the_most_similar_picked_item() -> None:
    """The last is like the second only: 0 to the first is no excuse."""
    vectors = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.8, 0.6], [0.0, 0.0, 1.0]])
    assert recall_ranking.mmr_order([1.0, 0.9, 0.8, 0.6], vectors, 0.5, 4) == [0, 1, 3, 2]


def test_mmr_order_treats_a_missing_vector_as_dissimilar() -> None:
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert recall_ranking.mmr_order([1.0, 0.9, 0.8], vectors, 0.7, 3) == [0, 2, 1]
    nothing = np.zeros((3, 0))
    assert recall_ranking.mmr_order([0.5, 0.5, 0.9], nothing, 0.7, 3) == [2, 0, 1]
    assert recall_ranking.mmr_order([0.5, 0.4], np.zeros((2, 2)), 0.7, 2) == [0, 1]


@quietly
@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0, 1), st.integers(1, 9), st.data())
def test_mmr_order_picks_each_once_the_best_first(
    relevance: list[float], weight: float, limit: int, data: st.DataObject
) -> None:
    row = st.lists(st.integers(-2, 2), min_size=2, max_size=2)
    rows = data.draw(st.lists(row, min_size=len(relevance), max_size=len(relevance)))
    vectors = np.array(rows, np.float64).reshape(len(relevance), 2)
    picked = recall_ranking.mmr_order(relevance, vectors, weight, limit)
    assert len(picked) == len(set(picked)) == min(limit, len(relevance))
    if picked:
        assert relevance[picked[0]] == pytest.approx(max(relevance), abs=1e-6)
