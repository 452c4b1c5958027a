"""rank.py: cases by hand, and what holds for all of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie import rank
from reverie.model import Ranking
from reverie.rank import Scored

SCORES = st.dictionaries(
    st.integers(0, 30), st.floats(-1e6, 1e6, allow_nan=False, width=32), max_size=20
)
quietly = settings(derandomize=True, deadline=None, max_examples=100)


def test_rarity_by_hand() -> None:
    assert rank.rarity(10, 1) == pytest.approx(math.log(1 + 9.5 / 1.5))
    assert rank.rarity(1, 1) == pytest.approx(math.log(1 + 0.5 / 1.5))
    assert rank.rarity(100, 1) > rank.rarity(100, 2) > rank.rarity(100, 100) > 0


def test_only_the_rarest_terms_that_are_known_count() -> None:
    frequencies = {f"term{number:02}": number for number in range(20)}
    weights = rank.term_weights(100, frequencies)
    assert list(weights) == [f"term{number:02}" for number in range(1, 9)]
    assert weights["term01"] == rank.rarity(100, 1)
    assert rank.term_weights(100, {}) == rank.term_weights(100, {"x": 0}) == {}


def test_terms_of_equal_rarity_are_chosen_by_name() -> None:
    frequencies = dict.fromkeys("zyxwvutsrqp", 3)
    assert list(rank.term_weights(9, frequencies)) == sorted("zyxwvutsrqp")[:8]


def test_word_weights_by_hand() -> None:
    weights = rank.word_weights(9, {"zebra": "Zebras", "the": "the"}, {"the": 9})
    assert weights["Zebras"] == pytest.approx(math.sqrt(math.log(10) + 0.1))
    assert weights["the"] == pytest.approx(math.sqrt(0.1))


def test_saturation_by_hand() -> None:
    assert rank.saturation(4, 40) == pytest.approx((0.72, 0.048))
    assert rank.saturation(0, 0) == pytest.approx((0.72, 0.48))


def test_keyword_score_by_hand() -> None:
    score = rank.keyword_score({"a": 2, "b": 1}, 10, {"a": 3.0, "c": 9.0}, (0.72, 0.048))
    assert score == pytest.approx(3 * 2 / (2 + 0.72 + 0.48))
    assert rank.keyword_score({}, 0, {"a": 1.0}, (1, 1)) == 0


def test_min_max_by_hand() -> None:
    assert rank.min_max({"a": 2.0, "b": 4.0, "c": 3.0}) == {"a": 0, "b": 1, "c": 0.5}
    assert rank.min_max({"a": 7.0}) == {"a": 1.0}
    assert rank.min_max({"a": 7.0, "b": 7.0}) == {"a": 1.0, "b": 1.0}
    assert rank.min_max({}) == {}


def test_fuse_by_hand() -> None:
    fused = {
        found.item: found
        for found in rank.fuse({"a": 3.0, "b": 1.0}, {"b": 0.9, "c": 0.1}, Ranking())
    }
    assert fused["a"] == Scored("a", 0.5, 3.0, None, 0.5, 0.0)
    assert fused["b"] == Scored("b", 0.5, 1.0, 0.9, 0.0, 0.5)
    assert fused["c"] == Scored("c", 0.0, None, 0.1, 0.0, 0.0)


def test_a_kind_of_evidence_that_was_not_asked_for_has_no_say() -> None:
    (only,) = rank.fuse({"a": 3.0}, None, Ranking())
    assert only == Scored("a", 1.0, 3.0, None, 1.0, 0.0)
    (only,) = rank.fuse(None, {"a": 0.2}, Ranking(vector_weight=0.1))
    assert only.score == 1.0
    assert rank.fuse({}, {}, Ranking()) == rank.fuse(None, None, Ranking()) == []
    found = rank.fuse({"a": 1.0}, {"b": 1.0}, Ranking(vector_weight=0.7, keyword_weight=0.3))
    assert [one.score for one in found] == [0.3, 0.7]


def test_weights_of_nothing_are_no_division_by_zero() -> None:
    assert [f.score for f in rank.fuse({"a": 1.0}, {"b": 1.0}, Ranking(0, 0))] == [0, 0]


def test_ties_go_to_the_newest() -> None:
    scored = [Scored(name, 0.5, None, None, 0, 0) for name in "abc"]
    positions = {"a": 2, "b": 9, "c": 5}
    assert [found.item for found in rank.best_first(scored, positions)] == ["b", "c", "a"]


def test_a_memory_is_one_hit() -> None:
    scored = [Scored(number, 1 - number / 10, None, None, 0, 0) for number in range(5)]
    kept = rank.best_of_each(scored, {0: "x", 1: "y", 2: "x", 3: "z", 4: "y"})
    assert [found.item for found in kept] == [0, 1, 3]


@quietly
@given(SCORES)
def test_min_max_keeps_order_and_stays_between_zero_and_one(scores: dict[int, float]) -> None:
    spread = rank.min_max(scores)
    assert set(spread) == set(scores)
    assert all(0 <= score <= 1 for score in spread.values())
    if scores:
        assert max(spread.values()) == 1
    for one in scores:
        for two in scores:
            if scores[one] < scores[two]:
                assert spread[one] <= spread[two]


@quietly
@given(st.none() | SCORES, st.none() | SCORES, st.floats(0, 1), st.floats(0, 1))
def test_fuse_finds_each_once_with_parts_that_add_up(
    keyword: dict[int, float] | None,
    vector: dict[int, float] | None,
    vector_weight: float,
    keyword_weight: float,
) -> None:
    ranking = Ranking(vector_weight, keyword_weight)
    fused = rank.fuse(keyword, vector, ranking)
    assert sorted(f.item for f in fused) == sorted({*(keyword or {}), *(vector or {})})
    for found in fused:
        assert 0 <= found.score <= 1
        assert found.score == round(found.score, rank.PLACES)
        assert abs(found.score - found.keyword_part - found.vector_part) <= 2e-6
        assert found.keyword == (keyword or {}).get(found.item)
        assert found.vector == (vector or {}).get(found.item)


@quietly
@given(SCORES)
def test_the_order_does_not_depend_on_the_order_given(scores: dict[int, float]) -> None:
    position = {item: item * 7 % 31 for item in scores}
    fused = rank.fuse(scores, None, Ranking())
    assert rank.best_first(fused, position) == rank.best_first(fused[::-1], position)


@quietly
@given(st.integers(1, 1000), st.integers(1, 1000))
def test_what_is_rarer_says_more(passages: int, frequency: int) -> None:
    frequency = min(frequency, passages)
    assert rank.rarity(passages, frequency) > 0
    if frequency > 1:
        assert rank.rarity(passages, frequency - 1) > rank.rarity(passages, frequency)
