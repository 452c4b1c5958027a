"""The calibrated score: a pure function of the query's traits and the evidence for its best hit."""

from __future__ import annotations

import math
from dataclasses import fields
from importlib.resources import files

import pytest

from reverie import Settings
from reverie.model import DEFAULT_FLOOR
from reverie.recall import calibration
from reverie.recall.calibration import Evidence, traits_of, worth

STRONG = Evidence(1.0, 2, 0.6, None, False)
NOTHING = Evidence(0.0, 0, 0.05, None, False)
QUESTION = traits_of("when does the ferry leave?", 2, 0.0, 200)


@pytest.mark.parametrize("asked", ["write a haiku", "Please translate this", "can you list five"])
def test_requests_are_recognised(asked: str) -> None:
    assert traits_of(asked, 2, 0.0, 10).request


@pytest.mark.parametrize("question", ["who is my boss?", "the list of guests", "is it fixed?"])
def test_questions_are_no_requests(question: str) -> None:
    assert not traits_of(question, 2, 0.0, 10).request


def test_more_evidence_is_worth_more() -> None:
    assert worth(QUESTION, STRONG) > 0.8 > DEFAULT_FLOOR > worth(QUESTION, NOTHING)
    half = STRONG._replace(coverage=0.5, strong_terms=1, similarity=0.3)
    assert worth(QUESTION, NOTHING) < worth(QUESTION, half) < worth(QUESTION, STRONG)


def test_other_speaker_than_the_one_named_is_worth_less() -> None:
    by_named, by_other = (worth(QUESTION, STRONG._replace(speaker=each)) for each in (True, False))
    assert by_other < by_named


def test_unknown_words_requests_and_large_memories_are_worth_less() -> None:
    for worse in (
        QUESTION._replace(unknown=0.8),
        QUESTION._replace(request=True),
        QUESTION._replace(passages=10_000),
    ):
        assert worth(worse, STRONG) < worth(QUESTION, STRONG)


def test_covered_words_tell_less_in_large_memories() -> None:
    few, many = (QUESTION._replace(passages=each) for each in (10, 10_000))
    none = STRONG._replace(coverage=0.0)
    gains = [logit(worth(each, STRONG)) - logit(worth(each, none)) for each in (few, many)]
    assert gains[0] > gains[1] > 0


def logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


def test_size_beyond_what_was_fitted_changes_nothing() -> None:
    for one, other in ((1, calibration.MIN_SIZE), (calibration.MAX_SIZE, 10_000_000)):
        sizes = [worth(QUESTION._replace(passages=each), STRONG) for each in (one, other)]
        assert sizes[0] == sizes[1]


def test_evidence_that_is_missing_has_weights_of_its_own() -> None:
    for evidence in (
        STRONG._replace(similarity=None),
        Evidence(None, 0, 0.8, None, False),
        Evidence(None, 0, None, None, False),
    ):
        names = calibration.features(QUESTION, evidence).keys()
        assert names == calibration.WEIGHTS["coverage" in names, "similarity" in names].keys()
        assert 0 < worth(QUESTION, evidence) < 1
    assert worth(QUESTION, STRONG._replace(similarity=None)) > 0.6
    assert worth(QUESTION, Evidence(None, 0, 0.8, None, False)) > 0.5


def test_floor_of_the_settings_and_of_the_page_is_the_default() -> None:
    declared = {each.name: each for each in fields(Settings)}
    assert declared["recall_floor"].default == DEFAULT_FLOOR
    listing = files("reverie.server.web").joinpath("page", "listing.js").read_text("utf-8")
    assert f"const FLOOR = {DEFAULT_FLOOR};" in listing
