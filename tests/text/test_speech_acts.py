"""Questions and fillers are told from what states something."""

from __future__ import annotations

import pytest

from reverie.text.speech_acts import SpeechAct, classify

QUESTIONS = (
    "What may I cook on Friday?",
    "Which wood did we pick for the deck?",
    "which wood did we pick for the deck",
    "what's the code of the hotel",
    "Thanks! Where was I born?",
    "Where did you get that accordion?",
    "Does Go have enums?",
    "Was darf ich am Freitag kochen?",
    "駅はどこですか",
    "¿Dónde está la llave?",
)
FILLERS = (
    "OK.",
    "thanks",
    "Thank you so much!",
    "parallel chat 3",
    "new chat",
    "test",
    "Good morning!",
    "How are you?",
    "yes",
    "👍",
    "…",
    "Got it, thanks!",
    "I don't know.",
    "Sorry, I don't have any information about that.",
    "I have no record of that.",
)
STATEMENTS = (
    "We picked oak for the deck.",
    "At a flea market.",
    "42",
    "Number 12",
    "yes, number 12",
    "My number is 5",
    "Yes, on Friday.",
    "I don't know Alice",
    "I don't have any pets",
    "When I was young I lived in Rome",
    "What we do is secret.",
    "Do you know that I moved to Rome?",
    "I need new ideas for dinner, can you suggest some?",
    "Can you suggest a lens for my Sony A7?",
    "My sister Mia visits on Friday. What may I cook?",
    "What are some simple ways to keep my living room free of dust, especially with a cat that "
    "sheds a lot?",
)


@pytest.mark.parametrize("text", QUESTIONS)
def test_message_that_only_asks_is_a_question(text: str) -> None:
    assert classify(text) is SpeechAct.QUESTION


@pytest.mark.parametrize("text", FILLERS)
def test_message_that_says_nothing_is_a_filler(text: str) -> None:
    assert classify(text) is SpeechAct.FILLER


@pytest.mark.parametrize("text", STATEMENTS)
def test_message_that_may_state_something_is_a_statement(text: str) -> None:
    assert classify(text) is SpeechAct.STATEMENT
