"""Scores say what a hit is worth: weak hits get no place in a prompt.

``bench/floor.py`` measures how well; these are single cases on real embeddings.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from bench import everyday
from reverie import InvalidInput, Space
from reverie.model import DEFAULT_FLOOR, RANKINGS
from tests.conftest import Stores
from tests.messages import reply, user


def ingrid(stores: Stores, embedder: str = "local", **settings: Any) -> Space:
    space = stores.open(embedder=embedder, **settings).space("ingrid")
    for category, subject, content in everyday.memories(everyday.INGRID):
        # Unpinned notes: the profile would show facts in any case.
        space.remember(content, kind="note", category=category, subject=subject)
    return space


@pytest.fixture
def space(stores: Stores) -> Space:
    return ingrid(stores)


@pytest.mark.parametrize("embedder", ["none", "local"])
def test_everyday_request_puts_no_memory_into_the_prompt(stores: Stores, embedder: str) -> None:
    space = ingrid(stores, embedder)
    session = space.session("new")
    for request in (
        "write a haiku about autumn",
        "translate 'good morning' to Japanese",
        "what is the capital of Mongolia?",
        "hello, how are you?",
    ):
        assert session.context(request, freeze=False).recalled == "", request
        assert session.prompt_additions(request, freeze=False).recalled == "", request
        assert space.context(request).recalled == "", request


@pytest.mark.parametrize("embedder", ["none", "local"])
def test_question_with_an_answer_puts_it_into_the_prompt(stores: Stores, embedder: str) -> None:
    space = ingrid(stores, embedder)
    session = space.session("new")
    for question, answer in {
        "what is the wifi password?": "Fjordfuglen",
        "who fixed the heating?": "Nilsen",
        "who approves my holidays?": "Marit",
        "tell me about Freya": "walnuts",
        "when was my last tetanus shot?": "June 2024",
    }.items():
        assert answer in session.context(question, freeze=False).recalled, question
        assert answer in session.prompt_additions(question, freeze=False).recalled, question


def test_recall_has_no_floor_unless_asked(space: Space) -> None:
    request = "write a haiku about autumn"
    hits = space.recall(request)
    assert len(hits) == 5 and hits[0].score < DEFAULT_FLOOR
    assert space.recall(request, min_score=DEFAULT_FLOOR) == []
    assert space.recall(request, min_score=hits[1].score) == hits[:2]
    assert space.session("s").recall(request, min_score=hits[0].score) == hits[:1]
    last = max(change.position for change in space.changes())
    assert space.recall(request, min_score=DEFAULT_FLOOR, as_of=last) == []


def test_scores_are_between_zero_and_one_and_fall(space: Space) -> None:
    for query in ("who fixed the heating?", "write a haiku about autumn", "🎉", "Pus"):
        scores = [hit.score for hit in space.recall(query, limit=20)]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)


def test_word_that_says_little_does_not_win_over_meaning(space: Space) -> None:
    first = {
        "who fixed the heating?": "The heat pump was repaired",
        "what book do I read in the evening?": "I read crime novels",
    }
    for question, start in first.items():
        assert space.recall(question, limit=1)[0].text.startswith(start), question


def test_floor_is_a_setting(stores: Stores) -> None:
    space = ingrid(stores, recall_floor=0.0)
    assert space.floor == 0.0
    assert space.session("new").context("write a haiku about autumn").recalled
    strict = stores.open(embedder="local", recall_floor=1.0).space("ingrid")
    assert strict.session("new").context("what is the wifi password?").recalled == ""


def test_rankings_that_are_not_calibrated_have_no_floor(stores: Stores) -> None:
    store = stores.open()
    calibrated = {name for name in RANKINGS if store.space("a", ranking=name).floor is not None}  # type: ignore[arg-type]
    assert calibrated == {"default"}
    space = store.space("a", ranking="rrf")
    space.remember("The spare key is with Olsen", kind="note")
    assert "Olsen" in space.session("s").context("spare key").recalled


def test_message_that_is_answered_is_not_its_own_evidence(space: Space) -> None:
    session = space.session("chat")
    session.append(user("Write a haiku about autumn in Bergen, please do it now."))
    assert session.context().recalled == ""
    session.append(reply("Leaves on wet cobbles."))
    assert session.context("write a haiku about the sea").recalled == ""


@pytest.mark.parametrize("wrong", [math.nan, math.inf, "0.5", True, [0.1]])
def test_min_score_that_is_no_number_is_refused(space: Space, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="min_score"):
        space.recall("anything", min_score=wrong)


def test_emoji_are_words(stores: Stores) -> None:
    space = stores.open(embedder="none").space("ana")
    party = space.remember("Team dinner 🎉 on Friday")
    space.remember("Team dinner on Monday")
    assert [hit.id for hit in space.recall("🎉")] == [party.id]
