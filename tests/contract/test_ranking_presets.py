"""Rankings by name or by weights: which are valid, where they are set, and their exact scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

import reverie
from reverie import (
    RANKINGS,
    ConfigError,
    Hit,
    InvalidInput,
    Ranking,
    RankingName,
    RerankFailed,
    Settings,
    Space,
    Store,
)
from tests.conftest import DAY, START, FakeEmbedder, Stores
from tests.messages import reply, user
from tests.tables import cases_in_one_test

if TYPE_CHECKING:
    from reverie.protocols import Embedder, Matrix, Reranker, Vector

QUERY = "zebra"
HALVES = replace(RANKINGS["weighted"], vector_weight=0.5, keyword_weight=0.5)

# Around a circle, two and two against one another: their mean is the middle, so that likeness to
# the query is the first number.
CIRCLE = {
    "east": (1.0, 0.0),
    "northeast by east": (0.8, 0.6),
    "southeast by east": (0.8, -0.6),
    "northeast by north": (0.6, 0.8),
    "north": (0.0, 1.0),
    "south": (0.0, -1.0),
    "southwest by south": (-0.6, -0.8),
    "northwest by west": (-0.8, 0.6),
    "southwest by west": (-0.8, -0.6),
    "west with a zebra": (-1.0, 0.0),
}
FOUR = {
    "east": (1.0, 0.0),
    "north of zebra": (0.0, 1.0),
    "west of zebra": (-1.0, 0.0),
    "south": (0.0, -1.0),
}


class DirectionEmbedder:
    """An embedder that knows a few texts; the query points east."""

    identity = "compass:two"
    remote = False

    def __init__(self, places: Mapping[str, Sequence[float]]) -> None:
        self._places = places

    def embed(self, texts: Sequence[str]) -> Matrix:
        return np.array([self._places[text] for text in texts], np.float32)

    def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
        return np.array([1.0, 0.0], np.float32)


class FakeReranker:
    """A reranker with a fixed opinion of each text, and a note of what it was asked."""

    identity = "opinions:fixed"

    def __init__(self, logits: Mapping[str, float]) -> None:
        self._logits = logits
        self.asked: list[list[str]] = []

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.asked.append(list(texts))
        return [sigmoid(self._logits.get(text, 0.0)) for text in texts]


class BrokenReranker:
    """A reranker that returns the scores it was given."""

    identity = "wrong:one"

    def __init__(self, answer: Callable[[int], list[float]]) -> None:
        self._answer = answer

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return self._answer(len(texts))


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


@pytest.fixture
def opened(stores: Stores) -> Callable[..., AbstractContextManager[Store]]:
    """Opens a store with a given embedder and reranker."""

    def open_with(
        embedder: str | Embedder = "hashing", reranker: Reranker | None = None
    ) -> AbstractContextManager[Store]:
        return reverie.open(
            stores.address("own"),
            settings=Settings(),
            embedder=embedder,
            reranker=reranker,
            clock=stores.clock,
            ids=stores.ids,
        )

    return open_with


Opened = Callable[..., AbstractContextManager[Store]]


def scores_by_text(hits: Sequence[Hit]) -> dict[str, float]:
    return {hit.text: hit.score for hit in hits}


def remember_all(space: Space, texts: Mapping[str, object]) -> None:
    for text in texts:
        space.remember(text)


# -- similarity -----------------------------------------------------------------------------------


def test_similarity_ranking_scores_by_cosine_alone(opened: Opened) -> None:
    with opened(DirectionEmbedder(FOUR)) as store:
        space = store.space("ana")
        remember_all(space, FOUR)
        hits = space.recall(QUERY, ranking="similarity")
        expected = [("east", 1.0), ("south", 0.0), ("north of zebra", 0.0), ("west of zebra", -1.0)]
        assert [(hit.text, hit.score) for hit in hits] == expected, "equal ones newest first"


# Not around the middle: their mean is not zero, as that of real texts never is.
LEANING = {
    "east": (1.0, 0.0),
    "northeast": (math.sqrt(0.5), math.sqrt(0.5)),
    "north of zebra": (0.0, 1.0),
}


def test_similarity_ranking_does_not_subtract_the_mean(opened: Opened) -> None:
    with opened(DirectionEmbedder(LEANING)) as store:
        space = store.space("ana")
        remember_all(space, LEANING)
        expected = {"east": 1.0, "northeast": 0.707107, "north of zebra": 0.0}
        hits = space.recall(QUERY, ranking="similarity")
        assert scores_by_text(hits) == expected
        assert scores_by_text(space.recall(QUERY, ranking="similarity", as_of=3)) == expected
        for name in ("weighted", "rrf", "diverse"):
            for hit in space.recall(QUERY, ranking=name, explain=True):
                assert hit.parts["vector"] == expected[hit.text], name
        centred = {hit.text: hit.parts["vector"] for hit in space.recall(QUERY, explain=True)}
        assert centred["northeast"] != expected["northeast"], "the default ranking is centred"


THREE = {"east": (1.0, 0.0), "north of zebra": (0.0, 1.0), "west of zebra": (-1.0, 0.0)}


def test_weighted_ranking_of_three_texts_with_equal_weights_gives_three_quarters(
    opened: Opened,
) -> None:
    """Similarities 1, 0 and -1, two with the word: the other two are equal, the newest first."""
    with opened(DirectionEmbedder(THREE)) as store:
        space = store.space("ana")
        remember_all(space, THREE)
        hits = space.recall(QUERY, ranking=HALVES, explain=True)
        assert [(hit.text, hit.score) for hit in hits] == [
            ("north of zebra", 0.75),
            ("west of zebra", 0.5),
            ("east", 0.5),
        ]
        assert (hits[0].parts["vector_part"], hits[0].parts["keyword_part"]) == (0.25, 0.5)


def test_presets_embed_the_query_without_word_weights(opened: Opened) -> None:
    class Listening(DirectionEmbedder):
        weights: list[Mapping[str, float] | None] = []

        def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
            self.weights.append(weights)
            return super().embed_query(text, weights)

    embedder = Listening(THREE)
    with opened(embedder) as store:
        space = store.space("ana")
        remember_all(space, THREE)
        for name in ("similarity", "weighted", "rrf", "diverse"):
            space.recall(QUERY, ranking=name)
        assert embedder.weights == [None] * 4
        space.recall(QUERY)
        assert embedder.weights[-1] is not None


@pytest.mark.parametrize("limit", range(1, 11))
def test_similarity_ranking_ignores_matching_words(opened: Opened, limit: int) -> None:
    """Also where more is found by its words than fits."""
    with opened(DirectionEmbedder(CIRCLE)) as store:
        space = store.space("ana")
        remember_all(space, CIRCLE)
        likeness = sorted((east for east, _ in CIRCLE.values()), reverse=True)
        hits = space.recall(QUERY, ranking="similarity", limit=limit)
        assert [hit.score for hit in hits] == pytest.approx(likeness[:limit], abs=1e-6)


# -- weighted -------------------------------------------------------------------------------------


def test_weighted_ranking_with_equal_weights_has_the_expected_scores(opened: Opened) -> None:
    """Two have the word and are equally long; likeness 1, 0, 0 and -1 is spread over [0, 1]."""
    with opened(DirectionEmbedder(FOUR)) as store:
        space = store.space("ana")
        remember_all(space, FOUR)
        hits = space.recall(QUERY, ranking=HALVES, explain=True)
        assert [(hit.text, hit.score) for hit in hits] == [
            ("north of zebra", 0.75),
            ("west of zebra", 0.5),
            ("east", 0.5),
            ("south", 0.25),
        ]
        best = hits[0].parts
        assert (best["vector"], best["vector_part"], best["keyword_part"]) == (0.0, 0.25, 0.5)
        assert hits[2].parts["keyword"] is None and hits[2].parts["keyword_part"] == 0


def test_weighted_ranking_with_its_defaults_has_the_expected_scores(opened: Opened) -> None:
    with opened(DirectionEmbedder(FOUR)) as store:
        space = store.space("ana")
        remember_all(space, FOUR)
        assert scores_by_text(space.recall(QUERY, ranking="weighted")) == {
            "east": 0.7,
            "north of zebra": 0.65,
            "south": 0.35,
            "west of zebra": 0.3,
        }
        only = space.recall(QUERY, ranking="weighted", mode="keyword")
        assert scores_by_text(only) == {"north of zebra": 1.0, "west of zebra": 1.0}


def test_weighted_ranking_reads_four_times_the_limit(opened: Opened) -> None:
    """Of ten texts eight are spread: the least like of them has -.8."""
    with opened(DirectionEmbedder(CIRCLE)) as store:
        space = store.space("ana")
        remember_all(space, CIRCLE)
        hits = space.recall(QUERY, ranking="weighted", limit=2)
        assert [hit.text for hit in hits] == ["east", "southeast by east"]
        assert [hit.score for hit in hits] == pytest.approx([0.7, 0.7 * 1.6 / 1.8], abs=1e-6)


# -- rrf ------------------------------------------------------------------------------------------


def test_rrf_ranking_scores_by_rank(opened: Opened) -> None:
    """The zebra is last by its likeness and first by its word."""
    with opened(DirectionEmbedder(CIRCLE)) as store:
        space = store.space("ana")
        remember_all(space, CIRCLE)
        hits = space.recall(QUERY, ranking="rrf", limit=10)
        places = {"east": 1 / 61, "west with a zebra": 1 / 70 + 1 / 61, "southeast by east": 1 / 62}
        assert {text: scores_by_text(hits)[text] for text in places} == {
            text: round(score, 6) for text, score in places.items()
        }
        assert hits[0].text == "west with a zebra"


def test_rrf_ranking_reads_twice_the_limit(opened: Opened) -> None:
    """With three asked for, six are found by likeness, and the zebra by its word alone."""
    with opened(DirectionEmbedder(CIRCLE)) as store:
        space = store.space("ana")
        remember_all(space, CIRCLE)
        hits = space.recall(QUERY, ranking="rrf", limit=3, explain=True)
        assert scores_by_text(hits)["west with a zebra"] == round(1 / 61, 6)
        assert hits[0].text == "west with a zebra", "of equal ones the newest"
        assert hits[0].parts["vector"] is None


# -- diverse --------------------------------------------------------------------------------------

LOGITS = {"east": 2.0, "north of zebra": 1.0, "west of zebra": 0.0, "south": -2.0}
AGES = {"east": 30, "north of zebra": 0, "west of zebra": 60, "south": -5}


def remember_aged(space: Space) -> None:
    for text, days in AGES.items():
        space.remember(text, happened_at=START - days * DAY)


def test_diverse_ranking_has_the_expected_scores(opened: Opened) -> None:
    """The reranker's 2, 1, 0 and -2 are spread over [0, 1]; a fifth is recency, over 30 days.

    Behind the first of all comes what is most unlike it: .7 * .427 + .3 is more than .7 * .8.
    """
    with opened(DirectionEmbedder(FOUR), FakeReranker(LOGITS)) as store:
        space = store.space("ana")
        remember_aged(space)
        hits = space.recall(QUERY, ranking="diverse", explain=True)
        assert [hit.text for hit in hits] == ["east", "west of zebra", "north of zebra", "south"]
        spread = {"east": 1.0, "north of zebra": 0.75, "west of zebra": 0.5, "south": 0.0}
        for hit in hits:
            fresh = math.exp(-max(AGES[hit.text], 0) / 30)
            assert hit.parts["rerank"] == pytest.approx(sigmoid(LOGITS[hit.text]), abs=1e-6)
            assert hit.parts["spread"] == pytest.approx(spread[hit.text], abs=1e-5)
            assert hit.parts["recency"] == pytest.approx(fresh, abs=1e-6)
            assert hit.score == pytest.approx(0.8 * spread[hit.text] + 0.2 * fresh, abs=1e-5)
            assert "degraded" not in hit.parts
        two = space.recall(QUERY, ranking="diverse", limit=2)
        assert [hit.text for hit in two] == ["east", "west of zebra"]


def test_diverse_ranking_reranks_three_times_the_limit(opened: Opened) -> None:
    reranker = FakeReranker({})
    with opened(DirectionEmbedder(CIRCLE), reranker) as store:
        space = store.space("ana")
        remember_all(space, CIRCLE)
        space.recall(QUERY, ranking="diverse", mode="vector", limit=2)
        assert reranker.asked[0] == [
            "east",
            "southeast by east",
            "northeast by east",
            "northeast by north",
            "south",
            "north",
        ]


def test_reranked_recall_with_repetitions_still_fills_the_limit(opened: Opened) -> None:
    with opened(DirectionEmbedder(CIRCLE), FakeReranker({})) as store:
        space = store.space("ana")
        remember_all(space, CIRCLE)
        space.remember(next(iter(CIRCLE)))
        for ranking in (Ranking(mmr_lambda=0.99), Ranking(recency_weight=0.1, multiplier=1)):
            assert len(space.recall(QUERY, ranking=ranking, mode="vector", limit=4)) == 4


def test_diverse_ranking_reranks_the_same_number_of_each_owner(opened: Opened) -> None:
    reranker = FakeReranker({})
    with opened(DirectionEmbedder(CIRCLE), reranker) as store:
        shared, own = store.space("ana"), store.space("ana", user="bo")
        remember_all(shared, CIRCLE)
        remember_all(own, CIRCLE)
        own.recall(QUERY, ranking="diverse", mode="vector", limit=1)
        assert sorted(reranker.asked[0]) == sorted(list(CIRCLE)[:3]), "a text is asked for once"


def test_equal_reranker_scores_are_normalized_to_one_half(opened: Opened) -> None:
    with opened(DirectionEmbedder(FOUR), FakeReranker({})) as store:
        space = store.space("ana")
        remember_all(space, FOUR)
        for hit in space.recall(QUERY, ranking="diverse", explain=True):
            assert hit.parts["spread"] == 0.5
            assert hit.score == pytest.approx(0.8 * 0.5 + 0.2 * 1.0)


def test_rerank_threshold_is_on_the_rerankers_own_scale(opened: Opened) -> None:
    """Neither is the worst always left out, nor the only one judged by itself."""
    with opened(DirectionEmbedder(FOUR), FakeReranker(LOGITS)) as store:
        space = store.space("ana")
        remember_all(space, FOUR)
        for threshold, kept in {
            0.0: {"east", "north of zebra", "west of zebra", "south"},
            0.5: {"east", "north of zebra", "west of zebra"},
            0.6: {"east", "north of zebra"},
            0.8: {"east"},
            0.9: set(),
        }.items():
            ranking = replace(RANKINGS["diverse"], score_threshold=threshold)
            assert set(scores_by_text(space.recall(QUERY, ranking=ranking))) == kept
        alone = space.recall(QUERY, ranking=replace(RANKINGS["diverse"], score_threshold=0.8))
        assert scores_by_text(alone) == {"east": 0.6}


def test_rerank_threshold_does_not_call_the_reranker_twice(opened: Opened) -> None:
    """Too few are left: the reranker, which is slow, has said what it thinks of these."""
    reranker = FakeReranker({})
    with opened("hashing", reranker) as store:
        space = store.space("ana")
        for number in range(60):
            space.remember(f"zebra number {number}")
        ranking = replace(RANKINGS["diverse"], score_threshold=0.9)
        assert space.recall(QUERY, ranking=ranking, limit=2) == []
        asked = [text for texts in reranker.asked for text in texts]
        assert len(asked) == len(set(asked))


def test_reranker_scores_near_zero_and_one_stay_distinct(opened: Opened) -> None:
    """Min-max scaling uses the reranker's exact scores, not the rounded ones that hits show."""
    logits = {"east": 20.0, "north of zebra": 16.0, "west of zebra": -16.0, "south": -20.0}
    with opened(DirectionEmbedder(FOUR), FakeReranker(logits)) as store:
        space = store.space("ana")
        remember_all(space, FOUR)
        hits = space.recall(QUERY, ranking="diverse", explain=True)
        spread = {hit.text: float(hit.parts["spread"] or 0) for hit in hits}
        assert spread == pytest.approx(
            {"east": 1.0, "north of zebra": 0.9, "west of zebra": 0.1, "south": 0.0}, abs=1e-3
        )


def test_ranking_with_rerank_true_is_reranked(opened: Opened) -> None:
    with opened(DirectionEmbedder(FOUR), FakeReranker(LOGITS)) as store:
        space = store.space("ana")
        remember_all(space, FOUR)
        hits = space.recall(QUERY, ranking=Ranking(rerank=True))
        assert [hit.text for hit in hits] == list(LOGITS)
        assert hits[0].score == pytest.approx(sigmoid(2.0), abs=1e-6)


def test_missing_reranker_is_reported_as_degraded(opened: Opened) -> None:
    with opened(DirectionEmbedder(FOUR)) as store:
        space = store.space("ana")
        remember_all(space, FOUR)
        hits = space.recall(QUERY, ranking="diverse", explain=True)
        assert len(hits) == 4
        assert {hit.parts["degraded"] for hit in hits} == {"no reranker is configured"}
        assert all("rerank" not in hit.parts for hit in hits)
        assert hits[0].text == "east" and hits[0].parts["spread"] == 1.0
        then = space.recall(QUERY, ranking="diverse", explain=True, as_of=4)
        assert [dict(hit.parts) for hit in then] == [dict(hit.parts) for hit in hits]
        plain = space.recall(QUERY, ranking="weighted", explain=True)
        assert all("degraded" not in hit.parts for hit in plain)


def test_missing_embedder_and_reranker_are_both_reported(opened: Opened) -> None:
    with opened("none") as store:
        space = store.space("ana")
        space.remember("zebra")
        (hit,) = space.recall("zebra", ranking="diverse", explain=True)
        assert "embedder" in str(hit.parts["degraded"])
        assert str(hit.parts["degraded"]).endswith("no reranker is configured")


def test_memory_without_a_vector_has_no_similarity_in_diversity(stores: Stores) -> None:
    store = stores.open(embedder=FakeEmbedder(remote=True))
    space = store.space("ana")
    space.remember("zebra one")
    assert len(space.recall(QUERY, ranking=Ranking(mmr_lambda=0.7))) == 1
    store.run_pending_jobs()
    space.remember("zebra two")
    assert len(space.recall(QUERY, ranking=Ranking(mmr_lambda=0.7))) == 2


def test_as_of_recall_does_not_call_a_remote_embedder_for_diversity(stores: Stores) -> None:
    embedder = FakeEmbedder(remote=True)
    store = stores.open(embedder=embedder)
    space = store.space("ana")
    space.remember("zebra one")
    space.remember("zebra two")
    store.run_pending_jobs()
    embedder.forget_calls()
    assert len(space.recall(QUERY, ranking="diverse", as_of=2)) == 2
    assert embedder.asked == 0


@pytest.mark.parametrize(
    "answer",
    [lambda count: [0.5] * (count - 1), lambda count: [0.5] * (count + 1), lambda count: []],
    ids=["too few", "too many", "none"],
)
def test_reranker_with_a_wrong_number_of_scores_fails_by_name(
    opened: Opened, answer: Callable[[int], list[float]]
) -> None:
    with opened("hashing", BrokenReranker(answer)) as store:
        space = store.space("ana")
        space.remember("zebra one")
        space.remember("zebra two")
        with pytest.raises(RerankFailed):
            space.recall(QUERY, ranking="diverse")


def test_reranker_score_that_is_not_a_number_fails_by_name(opened: Opened) -> None:
    with opened("hashing", BrokenReranker(lambda count: [math.nan] * count)) as store:
        space = store.space("ana")
        space.remember("zebra one")
        with pytest.raises(RerankFailed):
            space.recall(QUERY, ranking="diverse")


# -- what may be asked for ------------------------------------------------------------------------

WEIGHTS = ("vector_weight", "keyword_weight", "neighbours", "speaker", "period")
SHARES = ("session", "origin", "equal", "recency_weight", "mmr_lambda")
COUNTS = ("candidates", "multiplier")
NUMBERS = (*WEIGHTS, *SHARES, *COUNTS, "half_life_days", "score_threshold")
OPTIONAL = ("mmr_lambda", "score_threshold")
SWITCHES = ("centred", "rerank", "spread", "collapse")

NO_FUSION: tuple[Any, ...] = ("RRF", "", "evidence ", None, 1, ["rrf"], {})
NO_NUMBER: tuple[Any, ...] = (math.nan, math.inf, -math.inf, True, False, "1", [1.0], 1j)
WRONG: list[tuple[str, Any]] = [
    *((name, value) for name in NUMBERS for value in NO_NUMBER),
    *((name, None) for name in NUMBERS if name not in OPTIONAL),
    *((name, -0.1) for name in (*WEIGHTS, *SHARES, *COUNTS)),
    *((name, 1.1) for name in SHARES),
    *((name, 1.5) for name in COUNTS),
    ("candidates", 1_001),
    ("half_life_days", 0),
    ("half_life_days", -30),
    *((name, "no") for name in SWITCHES),
    *(("fusion", value) for value in NO_FUSION),
]


@cases_in_one_test("name, value", WRONG)
def test_invalid_ranking_is_refused_on_one_line(space: Space, name: str, value: Any) -> None:
    ranking = replace(Ranking(), **{name: value})
    with pytest.raises(InvalidInput) as caught:
        space.recall(QUERY, ranking=ranking)
    message = str(caught.value)
    assert name in message and "\n" not in message and repr(value) in message


@pytest.mark.parametrize("ranking", ["", "nope", "Weighted", "default ", 1, True, {}, ("rrf",)])
def test_unknown_ranking_name_is_refused_on_one_line(store: Store, ranking: Any) -> None:
    for ask in (
        lambda: store.space("ana", ranking=ranking),
        lambda: store.space("ana").recall(QUERY, ranking=ranking),
        lambda: store.space("ana").session("s").recall(QUERY, ranking=ranking),
    ):
        with pytest.raises(InvalidInput) as caught:
            ask()
        assert "ranking" in str(caught.value) and "\n" not in str(caught.value)


def test_every_valid_ranking_can_be_computed(space: Space) -> None:
    for number in range(12):
        space.session("s").append(user(f"zebra {number}"))
        space.remember(f"a zebra fact {number}")
    extremes: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(WEIGHTS, (0, 1e6)),
        **dict.fromkeys(SHARES, (0, 1)),
        **dict.fromkeys(COUNTS, (0, 1_000)),
        "half_life_days": (1e-6, 1e9),
        "score_threshold": (-1e6, 1e6),
    }
    for name, values in extremes.items():
        for value in values:
            for fusion in ("evidence", "plain", "min_max", "rrf"):
                for base in (Ranking(), RANKINGS["diverse"]):
                    ranking = replace(base, **{"fusion": fusion, name: value})
                    hits = space.recall(QUERY, ranking=ranking, limit=3)
                    assert len(hits) == (0 if value == 1e6 and "threshold" in name else 3)
                    assert all(math.isfinite(hit.score) for hit in hits)


def test_every_named_ranking_is_valid(space: Space) -> None:
    space.remember("zebra")
    assert set(RANKINGS) == set(get_args(RankingName))
    for name in get_args(RankingName):
        by_name = space.recall(QUERY, ranking=name)
        by_value = space.recall(QUERY, ranking=RANKINGS[name])
        assert [hit.text for hit in by_name] == ["zebra"] and by_name == by_value
    assert RANKINGS["default"] == Ranking()


@pytest.mark.parametrize("name", RANKINGS)
def test_recall_in_an_empty_space_returns_nothing_for_every_ranking(
    space: Space, name: str
) -> None:
    ranking = RANKINGS[name]
    assert space.recall(QUERY, ranking=ranking) == []
    space.remember("horse")
    assert space.recall(QUERY, ranking=ranking, mode="keyword") == []
    assert space.recall(QUERY, ranking=ranking, kinds=["note"]) == []
    assert space.recall(QUERY, ranking=ranking, as_of=0) == []


# -- where it is set ------------------------------------------------------------------------------


def filled(space: Space) -> Space:
    for text in ("zebra", "zebra crossing in town", "a town without any", "horse"):
        space.remember(text)
    session = space.session("s")
    session.append(user("I have seen the zebra in town."))
    session.append(reply("So have I, at noon."))
    return space


def test_ranking_of_the_call_overrides_handle_and_settings(stores: Stores) -> None:
    plain = filled(stores.open().space("ana"))
    by_name = {
        name: plain.recall("zebra town", ranking=name, explain=True)
        for name in get_args(RankingName)
    }
    assert by_name["weighted"] != by_name["rrf"] != by_name["similarity"] != by_name["default"]
    assert plain.recall("zebra town", explain=True) == by_name["default"]
    store = stores.open(ranking="weighted")
    by_settings, by_handle = store.space("ana"), store.space("ana", ranking="rrf")
    by_weight = store.space("ana", ranking=RANKINGS["similarity"])
    assert by_settings.recall("zebra town", explain=True) == by_name["weighted"]
    assert by_handle.recall("zebra town", explain=True) == by_name["rrf"]
    assert by_weight.recall("zebra town", explain=True) == by_name["similarity"]
    for handle in (by_settings, by_handle, by_weight):
        for name, hits in by_name.items():
            assert handle.recall("zebra town", ranking=name, explain=True) == hits


def test_session_uses_the_ranking_of_its_space(store: Store) -> None:
    filled(store.space("ana"))
    handle = store.space("ana", ranking="rrf")
    expected = store.space("ana").recall("zebra town", ranking="rrf")
    history = [event.message for event in handle.session("s").events()]
    for session in (handle.session("s"), handle.session("new"), handle.follow(history)):
        assert session.recall("zebra town") == expected
        by_call = session.recall("zebra town", ranking="weighted")
        assert by_call == handle.recall("zebra town", ranking="weighted") != expected


def test_context_uses_the_ranking_of_its_space(store: Store) -> None:
    filled(store.space("ana"))
    strict = store.space("ana", ranking=Ranking(score_threshold=2.0))
    assert store.space("ana").session("new").context("zebra town").recalled
    assert strict.session("new").context("zebra town").recalled == ""


def test_user_handle_has_a_ranking_of_its_own(store: Store) -> None:
    filled(store.space("ana", user="bo"))
    bo = store.space("ana", user="bo", ranking="weighted")
    assert bo.recall("zebra town") == bo.recall("zebra town", ranking="weighted")
    assert bo.recall("zebra town") != bo.recall("zebra town", ranking="default")


@pytest.mark.parametrize("name", ["nope", "", "evidence"])
def test_ranking_setting_with_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(ranking=name)  # type: ignore[arg-type]
    assert "ranking" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["Weighted", "RRF"])
def test_every_accepted_ranking_setting_can_be_used(stores: Stores, name: str) -> None:
    """Settings take their choices in any case."""
    space = stores.open(ranking=name).space("ana")
    space.remember("zebra")
    assert space.recall(QUERY) == space.recall(QUERY, ranking=RANKINGS[name.lower()])
