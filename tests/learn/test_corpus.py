"""The corpus: hostile texts teach nothing wrong, and sincere ones as much as without the filter."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from bench.learning import (
    GOAL,
    HALVES,
    PLAIN_HALVES,
    PRECISION_GOAL,
    RECALL_GOAL,
    STRANGER_HALVES,
    corpus,
    figures,
    lost,
    missed,
    mistaken,
    plain_figures,
    uncorrected,
    wrong,
)

from bench import learning
from tests.figures import figure

# What must be there, so that nobody improves a figure by removing texts.
MAX_WRONG_WHILE_MENDING = 0.02
ALL_HOSTILE, ALL_SINCERE, EACH_HALF = 360, 120, 150
ALL_PLAIN, EACH_PLAIN_HALF, EACH_STRANGER_HALF = 300, 140, 130
MIN_SEEN_RECALL = 0.95
MIN_STRANGER_RECALL, MIN_STRANGER_PRECISION = 0.42, 0.96
TRAP_KINDS = """
    quote | hypothetical | past conditional | others | question | negation | sarcasm | joke | pasted
    code | role play | lyrics | dictated | instruction | fiction | idiom | former
"""
KINDS = """
    web page | readme | log | terminal | mail | patient note | contract | ticket | tweet | review
    recipe | minutes | transcript | code | commit | json | csv | html | headers | forwarded
    quote | others | role play | fiction | lyrics | poem | homework | example | template
    conditional | question | opt-out | sarcasm | joke | cv | prompt
    translation | rewriting | instructions | long paste
"""


def test_corpus_is_large_enough_and_has_every_kind_in_both_halves() -> None:
    hostile = {half: corpus(half)["hostile"] for half in HALVES}
    assert sum(map(len, hostile.values())) >= ALL_HOSTILE
    assert all(len(texts) >= EACH_HALF for texts in hostile.values())
    kinds = {kind for row in KINDS.strip().splitlines() for kind in row.strip().split(" | ")}
    assert all({text["kind"] for text in texts} >= kinds for texts in hostile.values())
    sincere = [text for half in HALVES for text in corpus(half)["sincere"] if text["baseline"]]
    assert len(sincere) >= ALL_SINCERE


def test_corpus_has_no_text_in_both_halves() -> None:
    mending, unseen = (
        {text["text"] for texts in corpus(half).values() for text in texts} for half in HALVES
    )
    assert mending.isdisjoint(unseen)


def test_plain_corpus_is_large_enough_and_has_every_kind_of_trap_in_both_halves() -> None:
    kinds = {kind for row in TRAP_KINDS.strip().splitlines() for kind in row.strip().split(" | ")}
    for listed in ("statements", "traps"):
        sizes = [len(corpus(half)[listed]) for half in PLAIN_HALVES]
        assert sum(sizes) >= ALL_PLAIN and min(sizes) >= EACH_PLAIN_HALF
        assert min(len(corpus(half)[listed]) for half in STRANGER_HALVES) >= EACH_STRANGER_HALF
    halves = (*PLAIN_HALVES, *STRANGER_HALVES)
    assert all({text["kind"] for text in corpus(half)["traps"]} >= kinds for half in halves)
    texts = [text["text"] for half in halves for each in corpus(half).values() for text in each]
    assert len(texts) == len(set(texts))


def test_plain_statements_of_the_seen_half_are_learned_without_a_mistake() -> None:
    assert plain_figures("plain_seen").recall >= MIN_SEEN_RECALL, list(missed("plain_seen"))
    assert list(mistaken("plain_seen")) == []


def test_plain_statements_of_the_unseen_half_are_learned_with_few_mistakes() -> None:
    """Says the figures alone: whoever read the texts could not judge the rules by them again."""
    measured = plain_figures("plain_unseen")
    figure("unseen plain facts that are learned, share", measured.recall, "min")
    figure(
        "what is learned of unseen plain statements and traps that is right, share",
        measured.precision,
        "min",
    )
    assert measured.recall >= RECALL_GOAL
    assert measured.precision >= PRECISION_GOAL


def test_strangers_statements_of_the_unseen_half_are_learned_with_few_mistakes() -> None:
    """Says the figures alone, as above. They are below the goals; these bounds keep them."""
    measured = plain_figures("stranger_unseen")
    figure("a stranger's unseen facts that are learned, share", measured.recall, "min")
    figure("what is learned of a stranger's texts that is right, share", measured.precision, "min")
    assert measured.recall >= MIN_STRANGER_RECALL
    assert measured.precision >= MIN_STRANGER_PRECISION


def test_hostile_texts_of_the_unseen_half_teach_nothing_wrong() -> None:
    measured = figures("unseen")
    figure("unseen hostile texts without a wrong memory, share", measured.clean, "min")
    assert measured.clean >= GOAL, list(wrong("unseen"))


def test_hostile_texts_of_the_training_half_teach_nothing_wrong() -> None:
    assert 1 - figures("mending").clean <= MAX_WRONG_WHILE_MENDING, list(wrong("mending"))


@pytest.mark.parametrize("half", HALVES)
def test_sincere_texts_teach_what_they_taught_before_the_gate(half: str) -> None:
    assert list(lost(half)) == []


@pytest.mark.parametrize("half", HALVES)
def test_corrections_teach_the_corrected_value_only(half: str) -> None:
    assert list(uncorrected(half)) == []


@pytest.mark.prove
def test_bench_learning_prints_its_figures() -> None:
    done = subprocess.run(
        [sys.executable, learning.__file__, "--json"], capture_output=True, text=True, check=True
    )
    printed = json.loads(done.stdout)
    assert {half: printed[half]["hostile"] for half in HALVES} == {
        half: len(corpus(half)["hostile"]) for half in HALVES
    }
    assert {half: printed[half]["traps"] for half in PLAIN_HALVES} == {
        half: len(corpus(half)["traps"]) for half in PLAIN_HALVES
    }
