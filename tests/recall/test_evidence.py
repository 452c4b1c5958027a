"""Scoring by evidence: term matches, cases computed by hand, and properties of all scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.cli import explain
from reverie.engine import vector_math
from reverie.engine.index_text import MAX_COUNTED
from reverie.model import POSTING_LENGTH_BASE, Candidate, Origin, Ranking
from reverie.recall import ranking as recall_ranking
from reverie.recall.ranking import (
    CandidatePool,
    PoolScores,
    TermMatches,
    TermWeights,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

quietly = settings(derandomize=True, deadline=None, max_examples=60)
# With round numbers: each place away halves what is lent, and so does lending backwards.
by_hand = pytest.mark.usefixtures("round_numbers")

NOTHING = -math.inf

# One kind of evidence each, and nothing of the session or of memories.
WORDS = Ranking(vector_weight=0, keyword_weight=1, session=0, origin=0)
VECTORS = Ranking(vector_weight=1, keyword_weight=0, session=0, origin=0)
ADDED = tuple(stage.part for stage in explain.STAGES)


@pytest.fixture
def round_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are easily reckoned with, in the place of those that measure best."""
    round_ones = {
        "LENGTH_NORM": 10.0 / (10.0 + np.arange(POSTING_LENGTH_BASE)),
        "BORROWER_PIVOT": 10.0,
        "LENDER_PIVOT": 10.0,
        "NEIGHBOR_DISTANCE": 2,
        "NEIGHBOR_WEIGHTS": np.array([0.0, 1.0, 0.5]),
        "LATER_FACTOR": 0.5,
        "NEIGHBOR_VECTOR_WEIGHT": 0.5,
        "MIN_SIMILARITY": -1.0,
    }
    for name, value in round_ones.items():
        monkeypatch.setattr(recall_ranking, name, value)


class CandidateText(NamedTuple):
    """A text in a pool: the words of each of its passages, and how like the query each is."""

    words: tuple[str, ...] = ("",)
    similar: tuple[float, ...] = (0.0,)
    sequence: int = 0
    session: str | None = "s"
    terms: int = 0
    origin: Origin | None = None


def turn(
    sequence: int, words: str = "", similar: float = 0.0, *, session: str = "s", terms: int = 0
) -> CandidateText:
    return CandidateText((words,), (similar,), sequence, session, terms)


def memory(words: str = "", *, origin: Origin | None = None) -> CandidateText:
    return CandidateText((words,), (0.0,), session=None, origin=origin)


def matches_of(
    passages: Sequence[str], weights: Mapping[str, float], total: float | None = None
) -> TermMatches:
    """Passages given by their words, a letter each."""
    postings = {
        term: np.array(
            [n * POSTING_LENGTH_BASE for n, words in enumerate(passages) if term in words], np.int64
        )
        for term in weights
    }
    whole = sum(weights.values()) if total is None else total
    return TermMatches(postings, TermWeights(dict(weights), whole), len(passages))


def pool_of(
    items: Sequence[CandidateText], weights: Mapping[str, float], **more: Any
) -> CandidatePool:
    """Passages are numbered as they come."""
    candidates, numbers = [], list[int]()
    for first_position, each in enumerate(items, 1):
        first, count = len(numbers), len(each.words)
        numbers += range(first, first + count)
        candidates.append(
            Candidate(
                first_position=first_position,
                position=first_position,
                at=0,
                first_passage=first,
                passages=count,
                terms=each.terms,
                session=each.session,
                sequence=each.sequence,
                origin=each.origin,
            )
        )
    words = [words for each in items for words in each.words]
    similar = np.array([like for each in items for like in each.similar])
    matches = matches_of(words, weights)
    return CandidatePool(
        candidates,
        np.array(numbers),
        np.ones(len(numbers), bool),
        **{"matches": matches, "similar": similar, **more},
    )


def judged(items: Sequence[CandidateText], ranking: Ranking = WORDS, **more: Any) -> PoolScores:
    return recall_ranking.score_evidence(pool_of(items, {"a": 3.0, "b": 1.0}, **more), ranking)


def scores(items: Sequence[CandidateText], ranking: Ranking = WORDS, **more: Any) -> list[float]:
    return [float(score) for score in judged(items, ranking, **more).scores]


# -- where they stand -----------------------------------------------------------------------------


def test_term_matches_have_a_row_per_passage_and_a_column_per_term() -> None:
    matches = matches_of(["a", "", "ab", "b"], {"a": 3.0, "b": 1.0})
    expected = [[True, True], [True, False], [False, False], [False, True]]
    assert matches.present(np.array([2, 0, 1, 3])).tolist() == expected
    assert matches.present(np.array([], np.int64)).shape == (0, 2)
    assert matches.weights.tolist() == [3.0, 1.0] and matches.total == 4.0


def test_term_matches_keep_the_maximum_number_of_terms_apart() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"[: recall_ranking.MAX_QUERY_TERMS]
    matches = matches_of([*letters, letters], dict.fromkeys(letters, 1.0))
    present = matches.present(np.arange(len(letters) + 1))
    assert (present[:-1] == np.eye(len(letters), dtype=bool)).all() and present[-1].all()


def test_passage_length_is_packed_beside_its_number() -> None:
    assert 0 < MAX_COUNTED < POSTING_LENGTH_BASE == len(recall_ranking.LENGTH_NORM)


def test_term_without_postings_matches_nowhere() -> None:
    weights = TermWeights({"a": 1.0, "b": 1.0}, 2.0)
    matches = TermMatches({"b": np.array([1 * POSTING_LENGTH_BASE + 7])}, weights, 3)
    assert matches.present(np.arange(3)).tolist() == [[False] * 2, [False, True], [False] * 2]


def best(matches: TermMatches, many: int) -> list[tuple[int, float]]:
    numbers, scores = matches.passage_scores()
    return vector_math.top_k(scores, many, numbers)


@by_hand
def test_best_passages_have_their_known_order() -> None:
    """3 of 4, over the softened length of 10 terms; 1 of 4 of 0 terms; all of it of 30."""
    postings = {
        "a": np.array([0 * POSTING_LENGTH_BASE + 10, 2 * POSTING_LENGTH_BASE + 30]),
        "b": np.array([1 * POSTING_LENGTH_BASE, 2 * POSTING_LENGTH_BASE + 30]),
    }
    matches = TermMatches(postings, TermWeights({"a": 3.0, "b": 1.0}, 4.0), 4)
    assert best(matches, 10) == [(0, 0.375), (2, 0.25), (1, 0.25)]
    assert best(matches, 2) == [(0, 0.375), (2, 0.25)], "of equal ones the newest"
    assert best(matches, 1) == [(0, 0.375)]


def test_no_terms_match_no_passages() -> None:
    for matches in (
        matches_of(["", ""], {"a": 1.0}),
        matches_of(["x"], {}),
        TermMatches({}, TermWeights({}, 1.0), 0),
    ):
        assert best(matches, 5) == []


def test_top_k_treats_scores_equal_to_six_places_as_ties() -> None:
    numbers = np.array([4, 9, 2, 7])
    found = np.array([0.5, 0.5 - 3e-7, 0.5 + 3e-7, 0.1])
    assert vector_math.top_k(found, 2, numbers) == [(9, 0.5), (4, 0.5)]
    assert vector_math.top_k(found, 9, numbers) == [(9, 0.5), (4, 0.5), (2, 0.5), (7, 0.1)]


# -- evidence by hand -----------------------------------------------------------------------------


@by_hand
def test_keyword_score_of_a_single_turn_has_its_known_values() -> None:
    assert scores([turn(1, "a")]) == [0.75]
    assert scores([turn(1, "ab")]) == [1.0]
    assert scores([turn(1, "a", terms=10)]) == [0.375]
    assert scores([turn(1)]) == [0.0]


@by_hand
def test_unknown_terms_lower_the_keyword_score() -> None:
    pool = pool_of([turn(1, "a")], {}, matches=matches_of(["a"], {"a": 3.0}, total=12.0))
    assert recall_ranking.score_evidence(pool, WORDS).scores.tolist() == [0.25]


@by_hand
def test_turn_gets_neighbour_score_from_the_turn_before_it() -> None:
    assert scores([turn(1, "a"), turn(2)]) == [0.75, 0.75]


@by_hand
def test_turn_gets_less_neighbour_score_from_the_turn_after_it() -> None:
    assert scores([turn(1), turn(2, "a")]) == [0.375, 0.75]


@by_hand
def test_turn_gets_less_neighbour_score_from_two_turns_away() -> None:
    assert scores([turn(1, "a"), turn(3)]) == [0.75, 0.375]
    assert scores([turn(1), turn(3, "a")]) == [0.1875, 0.75]


@by_hand
def test_turn_gets_no_neighbour_score_from_further_away() -> None:
    assert scores([turn(1, "a"), turn(4), turn(7, "a")]) == [0.75, 0.0, 0.75]


@by_hand
def test_gap_in_sequences_counts_as_distance() -> None:
    """The turn between two was erased, or a filter hides it."""
    assert scores([turn(10, "a"), turn(12), turn(15)]) == [0.75, 0.375, 0.0]


@by_hand
def test_neighbour_score_of_consecutive_turns_has_its_known_values() -> None:
    assert scores([turn(1, "a"), turn(2), turn(3), turn(4)]) == [0.75, 0.75, 0.375, 0.0]


@by_hand
def test_neighbour_score_does_not_cross_sessions() -> None:
    apart = [turn(1, "a"), turn(2, session="t"), memory("b"), turn(3, session="u")]
    assert scores(apart) == [0.75, 0.0, 0.25, 0.0]


@by_hand
def test_memories_neither_give_nor_get_neighbour_score() -> None:
    assert scores([memory("a"), memory(), memory()]) == [0.75, 0.0, 0.0]


@by_hand
def test_neighbour_score_does_not_depend_on_the_order_of_sessions() -> None:
    items = [
        turn(2, session="t"),
        turn(2),
        turn(1, "a"),
        memory(),
        turn(1, "b", session="t"),
    ]
    assert scores(items) == [0.25, 0.75, 0.75, 0.0, 0.25]


@by_hand
def test_each_term_takes_its_best_neighbour() -> None:
    assert scores([turn(1, "a"), turn(2), turn(3, "a")])[1] == 0.75
    assert scores([turn(1, "b"), turn(2), turn(3, "a")])[1] == 0.25 + 0.375
    assert scores([turn(1, "a"), turn(2, "a")]) == [0.75, 0.75], "what it says is not borrowed"


@by_hand
def test_long_turn_gets_less_neighbour_score() -> None:
    """Half as much, and its words count half as much as well."""
    assert scores([turn(1, "a"), turn(2, terms=10)]) == [0.75, 0.1875]


@by_hand
def test_long_turn_gives_less_neighbour_score() -> None:
    assert scores([turn(1, "a", terms=10), turn(2)]) == [0.375, 0.375]


@by_hand
def test_ranking_without_neighbours_adds_no_neighbour_score() -> None:
    items = [turn(1, "a", 0.5), turn(2), turn(3, "b")]
    alone = replace(WORDS, neighbours=0)
    assert scores(items, alone) == [0.75, 0.0, 0.25]
    assert scores(items, replace(WORDS, neighbours=0.5)) == [0.78125, 0.4375, 0.4375]
    assert judged(items, alone).parts["neighbours"] == pytest.approx([0, 0, 0])


@pytest.mark.parametrize("neighbours", [1.0, 2.0, 1e6])
def test_score_with_neighbours_never_exceeds_one(neighbours: float) -> None:
    for ranking in (WORDS, VECTORS, Ranking()):
        items = [turn(1, "ab", 1.0), turn(2), turn(3, "ab", 1.0)]
        assert max(scores(items, replace(ranking, neighbours=neighbours))) <= 1


@by_hand
def test_vector_score_of_a_single_turn_has_its_known_values() -> None:
    items = [turn(n, similar=like, session=str(n)) for n, like in enumerate((1, 0.5, 0, -1))]
    assert scores(items, VECTORS) == [1.0, 0.75, 0.5, 0.0]


@by_hand
def test_passage_without_a_vector_has_the_lowest_similarity() -> None:
    found = judged([turn(1, similar=NOTHING), turn(9, similar=0.5)], VECTORS)
    assert found.scores.tolist() == [0.0, 0.75]
    assert [found.parts_at(place)["vector"] for place in (0, 1)] == [None, 0.5]
    assert found.parts_at(0)["vector_part"] == 0.0


@by_hand
def test_passage_without_a_vector_still_gets_neighbour_score() -> None:
    items = [turn(1, similar=0.5), turn(2, similar=NOTHING)]
    assert scores(items, VECTORS) == [0.75, 0.125]


@by_hand
def test_similarity_is_taken_from_neighbours_on_both_sides() -> None:
    """All of .4 and half of .8 from before it, half of .8 from behind; half of their sum."""
    items = [
        turn(1, similar=0.8),
        turn(2, similar=0.4),
        turn(3, similar=-0.6),
        turn(4, similar=0.8),
    ]
    borrowed = 0.5 * (0.4 + 0.5 * 0.8 + 0.5 * 0.8)
    assert scores(items, VECTORS)[2] == pytest.approx((-0.6 + borrowed + 1) / 2)


@by_hand
def test_dissimilar_neighbour_lowers_no_score() -> None:
    assert scores([turn(1, similar=-1), turn(2, similar=0.5)], VECTORS)[1] == 0.75


@by_hand
def test_vector_score_with_neighbours_never_exceeds_one() -> None:
    assert scores([turn(1, "ab", 1), turn(2, "ab", 1)], VECTORS) == [1.0, 1.0]


@by_hand
def test_keyword_and_vector_scores_count_by_their_weights() -> None:
    items = [turn(1, "a", 0.0)]
    half = replace(WORDS, vector_weight=5, keyword_weight=5)
    assert scores(items, half) == [(0.75 + 0.5) / 2]
    assert scores(items, replace(half, keyword_weight=15)) == [(0.75 * 3 + 0.5) / 4]
    assert scores(items, replace(half, keyword_weight=0, vector_weight=0)) == [0.0]


@by_hand
def test_evidence_that_is_unavailable_has_no_weight() -> None:
    half = replace(WORDS, vector_weight=1, keyword_weight=1)
    without_vectors = judged([turn(1, "a")], half, similar=None)
    assert without_vectors.scores.tolist() == [0.75]
    assert (
        without_vectors.parts_at(0)["vector"] is None
        and without_vectors.parts_at(0)["vector_part"] == 0
    )
    mute = judged([turn(1, "a", 0.5)], half, matches=None)
    assert mute.scores.tolist() == [0.75]
    assert mute.parts_at(0)["keyword"] is None and mute.parts_at(0)["keyword_part"] == 0
    neither = judged([turn(1, "a")], half, matches=None, similar=None)
    assert neither.scores.tolist() == [0.0]


@by_hand
def test_query_without_known_words_causes_no_division_by_zero() -> None:
    pool = pool_of([turn(1), turn(2)], {})
    assert recall_ranking.score_evidence(pool, WORDS).scores.tolist() == [0.0, 0.0]


@by_hand
def test_speaker_and_period_of_the_query_raise_the_score() -> None:
    items = [turn(1, "a", session=str(n)) for n in range(4)]
    ranking = replace(WORDS, speaker=0.5, period=1.5)
    speaker_match, period_match = (
        np.array([True, True, False, False]),
        np.array([True, False, True, False]),
    )
    assert scores(items, ranking) == [0.75] * 4
    by_speaker = [(0.75 + 0.5) / 1.5] * 2 + [0.75 / 1.5] * 2
    assert scores(items, ranking, speaker_match=speaker_match) == pytest.approx(
        by_speaker, abs=1e-6
    )
    both = [2.75 / 3, 1.25 / 3, 2.25 / 3, 0.75 / 3]
    assert scores(
        items, ranking, speaker_match=speaker_match, period_match=period_match
    ) == pytest.approx(both, abs=1e-6)


@by_hand
def test_maximum_of_every_part_is_a_score_of_one() -> None:
    yes = np.array([True, True])
    all_of_it = Ranking(speaker=0.3, period=0.4, session=0.5, origin=0.5)
    items = [turn(1, "ab", 1.0), memory("ab", origin=Origin("s", 1))._replace(similar=(1.0,))]
    assert scores(items, all_of_it, speaker_match=yes, period_match=yes) == [1.0, 1.0]


@by_hand
def test_best_turn_of_a_session_raises_the_whole_session() -> None:
    items = [turn(1, "a"), turn(9), turn(1, "b", session="t"), memory()]
    found = judged(items, replace(WORDS, session=0.2))
    assert found.scores.tolist() == [0.75, 0.15, 0.25, 0.0]
    assert found.parts["session"] == pytest.approx([0, 0.15, 0, 0])
    assert scores(items, replace(WORDS, session=1.0)) == [0.75, 0.75, 0.25, 0.0]


@by_hand
def test_memory_raises_the_event_it_came_from() -> None:
    items = [turn(1), turn(7), memory("a", origin=Origin("s", 1))]
    found = judged(items, replace(WORDS, origin=0.5))
    assert found.scores.tolist() == [0.375, 0.0, 0.75]
    assert found.parts["origin"] == pytest.approx([0.375, 0, 0])
    assert scores(items) == [0.0, 0.0, 0.75]


@by_hand
def test_event_takes_the_best_origin_score_and_never_loses() -> None:
    half = replace(WORDS, origin=0.5)
    two = [turn(1), memory("b", origin=Origin("s", 1)), memory("a", origin=Origin("s", 1))]
    assert scores(two, half)[0] == 0.375
    assert scores([two[0], two[2], two[1]], half)[0] == 0.375
    assert scores([turn(1, "a"), memory("b", origin=Origin("s", 1))], half) == [0.75, 0.25]


@by_hand
def test_memory_with_another_origin_raises_no_event() -> None:
    for origin in (Origin("t", 1), Origin("s", 2), Origin("", 0)):
        items = [turn(1), memory(), memory("a", origin=origin)]
        assert scores(items, replace(WORDS, origin=1.0)) == [0.0, 0.0, 0.75]


@by_hand
def test_best_passage_is_shown() -> None:
    long = CandidateText(("b", "a", ""), (0.9, 0.0, 0.1), 1)
    assert judged([memory(), long]).passages.tolist() == [0, 2]
    assert judged([memory(), long], VECTORS).passages.tolist() == [0, 1]
    found = judged([memory(), long], VECTORS)
    assert found.parts_at(1)["vector"] == 0.9
    assert found.parts_at(1)["keyword"] == 0.25, "what the chosen passage holds"


@by_hand
def test_last_of_equal_passages_is_shown() -> None:
    assert judged([CandidateText(("a", "a", "b"), (0.0,) * 3)]).passages.tolist() == [1]
    assert judged([CandidateText(("", "", ""), (0.0,) * 3)]).passages.tolist() == [2]


@by_hand
def test_passage_gets_score_from_the_whole_neighbouring_turn() -> None:
    """A neighbour lends all of its words, whichever of its passages holds them."""
    items = [CandidateText(("a", "b"), (0.0, 0.0), 1), CandidateText(("", "b"), (0.0, 0.0), 2)]
    found = judged(items)
    assert found.scores.tolist() == [0.75 + 0.25 * 0.5, 1.0]
    assert found.passages.tolist() == [0, 3]


@by_hand
def test_score_parts_are_rounded_and_named() -> None:
    parts = judged([turn(1, "a", 1 / 3), turn(2)], Ranking()).parts_at(0)
    assert set(parts) == {"keyword", "vector", *ADDED}
    assert all(value == round(value or 0, 6) for value in parts.values())


def test_turn_without_own_matches_is_found_by_the_question_before_it() -> None:
    """With the numbers as they are."""
    question, reply, other = turn(1, "ab", terms=5), turn(2, terms=3), turn(9, terms=3)
    found = scores([question, reply, other])
    assert found[0] > found[1] > found[2] == 0


# -- evidence of any kind -------------------------------------------------------------------------


WEIGHTS = {
    letter: 1.0 + place
    for place, letter in enumerate("abcdefghijklmnop"[: recall_ranking.MAX_QUERY_TERMS])
}
LIKENESS = st.floats(-1, 1, width=32) | st.just(NOTHING)
SHARE = st.floats(0, 1)
RANKING = st.builds(
    Ranking,
    vector_weight=st.floats(0, 5),
    keyword_weight=st.floats(0, 5),
    neighbours=SHARE,
    speaker=st.floats(0, 3),
    period=st.floats(0, 3),
    session=SHARE,
    origin=SHARE,
)
PLACES = st.sampled_from((*(("s", n) for n in range(1, 7)), *(("t", n) for n in range(1, 4))))


@st.composite
def texts(draw: st.DrawFn, session: str | None = None, sequence: int = 0) -> CandidateText:
    passages = draw(st.integers(1, 3))
    words = st.text(st.sampled_from(sorted(WEIGHTS)), max_size=4)
    origin = draw(st.none() | PLACES) if session is None else None
    return CandidateText(
        tuple(draw(st.lists(words, min_size=passages, max_size=passages))),
        tuple(draw(st.lists(LIKENESS, min_size=passages, max_size=passages))),
        sequence,
        session,
        draw(st.integers(0, 200)),
        None if origin is None else Origin(*origin),
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[CandidateText]:
    """Turns of two sessions with gaps, and memories, in any order."""
    places = draw(st.lists(PLACES, unique=True, max_size=7))
    items = [draw(texts(session, sequence)) for session, sequence in places]
    items += draw(st.lists(texts(), min_size=0 if items else 1, max_size=3))
    return draw(st.permutations(items))


def pointed_at(draw: st.DrawFn, count: int) -> NDArray[np.bool_] | None:
    flags = draw(st.none() | st.lists(st.booleans(), min_size=count, max_size=count))
    return None if flags is None else np.array(flags)


@st.composite
def whole_pools(draw: st.DrawFn) -> tuple[list[CandidateText], dict[str, Any]]:
    items = draw(conversations())
    more: dict[str, Any] = {
        name: pointed_at(draw, len(items)) for name in ("speaker_match", "period_match")
    }
    for name in ("matches", "similar"):
        if draw(st.integers(0, 4)) == 0:
            more[name] = None
    return items, more


@quietly
@given(whole_pools(), RANKING)
def test_scores_lie_between_zero_and_one_and_are_the_sum_of_their_parts(
    pool: tuple[list[CandidateText], dict[str, Any]], ranking: Ranking
) -> None:
    items, more = pool
    found = recall_ranking.score_evidence(pool_of(items, WEIGHTS, **more), ranking)
    assert np.isfinite(found.scores).all()
    assert (found.scores >= 0).all() and (found.scores <= 1).all()
    for place, score in enumerate(found.scores.tolist()):
        parts = found.parts_at(place)
        assert score == round(score, recall_ranking.SCORE_DECIMALS)
        assert sum(parts[name] or 0 for name in ADDED) == pytest.approx(score, abs=1e-5)
        assert all((parts[name] or 0) >= 0 for name in ADDED)


@quietly
@given(whole_pools(), RANKING, st.data())
def test_additional_matching_word_lowers_no_score(
    pool: tuple[list[CandidateText], dict[str, Any]], ranking: Ranking, data: st.DataObject
) -> None:
    items, more = pool
    more.pop("matches", None)
    place = data.draw(st.integers(0, len(items) - 1))
    words = list(items[place].words)
    at = data.draw(st.integers(0, len(words) - 1))
    words[at] += data.draw(st.sampled_from(sorted(WEIGHTS)))
    changed = [*items[:place], items[place]._replace(words=tuple(words)), *items[place + 1 :]]
    before = recall_ranking.score_evidence(pool_of(items, WEIGHTS, **more), ranking).scores
    after = recall_ranking.score_evidence(pool_of(changed, WEIGHTS, **more), ranking).scores
    assert (after >= before - 1.5e-6).all()


@quietly
@given(conversations(), RANKING, st.data())
def test_the_order_of_candidates_does_not_matter(
    items: list[CandidateText], ranking: Ranking, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(items))))
    found = recall_ranking.score_evidence(pool_of(items, WEIGHTS), ranking).scores
    mixed = recall_ranking.score_evidence(
        pool_of([items[at] for at in order], WEIGHTS), ranking
    ).scores
    assert mixed == pytest.approx(found[order], abs=2e-6)


@quietly
@given(conversations(), RANKING)
def test_ranking_without_neighbours_scores_each_turn_alone(
    items: list[CandidateText], ranking: Ranking
) -> None:
    alone = replace(ranking, neighbours=0, session=0, origin=0)
    found = recall_ranking.score_evidence(pool_of(items, WEIGHTS), alone)
    assert not np.asarray(found.parts["neighbours"]).any()
    for place, each in enumerate(items):
        single = recall_ranking.score_evidence(pool_of([each], WEIGHTS), alone)
        assert single.scores[0] == pytest.approx(found.scores[place], abs=2e-6)
