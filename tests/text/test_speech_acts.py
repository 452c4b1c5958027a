"""Questions, requests and fillers are told from what states something."""

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
    "go on",
    "Tell me more.",
    "thanks a lot!",
    "next",
    "Got it.",
    "I see",
    "That works.",
    "never mind",
    "やあ",
)
REQUESTS = (
    "write a haiku about autumn",
    "Write a python function that sorts a list.",
    "Please translate 'I live in Oslo' to German",
    "tell me a joke",
    "Can you summarize this in three lines",
    "OK, now make it shorter",
    "List all prime numbers below 100",
    "Explain recursion. Give me an example!",
    "Let's talk about recursion",
    "make it more formal",
    "Plan a party",
    "Give me three names, please",
    "Explain 'a, b' to me, thanks",
)
STATEMENTS = (
    "Plan B worked in the end",
    "Design review is on Friday at 10",
    "List price was 40 euros",
    "Name your price, said Bob",
    "Fix the date: the wedding, my sister says, is in June",
    "Suggest a lens for my Sony A7",
    "Write to Anna, I moved to Rome",
    "Remember to write a letter to Bob",
    "Give Bob the key",
    "Play starts at eight",
    "Let's use PostgreSQL for the billing service.",
    "let's go with plan b",
    "Write down: the gate code is 4412",
    "Add the gate code 4412 to your notes.",
    "Use the side door at night.",
    "make it friday at noon",
    "Plan a party for Mia.",
    "Describe Anna: she is 34 and lives upstairs.",
    "Suggest gifts for a friend who loves chess.",
    "Can you pick up Mia at 5.",
    "Define done as merged and deployed",
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


@pytest.mark.parametrize("text", REQUESTS)
def test_message_that_only_asks_for_work_is_a_request(text: str) -> None:
    assert classify(text) is SpeechAct.REQUEST
    assert classify(text, by_assistant=True) is not SpeechAct.REQUEST


@pytest.mark.parametrize("text", FILLERS)
def test_message_that_says_nothing_is_a_filler(text: str) -> None:
    assert classify(text) is SpeechAct.FILLER


@pytest.mark.parametrize("text", STATEMENTS)
def test_message_that_may_state_something_is_a_statement(text: str) -> None:
    assert classify(text) is SpeechAct.STATEMENT


STATED_IN_QUESTIONS = [
    "Can you remember that the gate code is 4821?",
    "Bob's number is 555-1234, right?",
    "I have no records of the 2019 lease",
    "Mia is allergic to nuts, what can she eat?",
    "Could you note that Anna's birthday is May 4?",
    "Remind me to call Bob at 5, ok?",
    "Dinner with Anna is at 7pm on Friday, right?",
    "The wedding is on June 5th, ok?",
    "Anna is vegan, isn't she?",
    "Did I tell you Anna moved to Oslo?",
    "Did you know Bob got married in June?",
    "Bob hates onions - what can I cook for him?",
    "The gate code is 4821, what else?",
    "Given that Anna is vegan what should I cook?",
    "Ich bin allergisch gegen Nüsse, was kann ich essen?",
    "Je suis végétarien, que puis-je cuisiner ?",
    "Soy alérgico a los frutos secos, ¿qué puedo comer?",
    "我是素食者，晚饭吃什么？",
    "Kannst du dir merken, dass der Türcode 4821 ist?",
    "What matters to Bob is punctuality",
    "What's important to Anna is trust",
    "What is new: Anna got the job",
    "How old is Mia: 7",
    "When are the meetings: Monday 10, Tuesday 3",
    "I don't remember what my mother looked like",
    "I don't have any memory of my father",
    "I have no notes from the Berlin meeting",
    "I don't know if Anna is pregnant",
    "Remind me when I get home to call Bob",
    "Remind me what to bring: wine, bread and cheese",
    "Remind me that Anna is vegan",
    "Remind me who I met in Rome",
]
ONLY_ASKED = [
    "What may I cook on Friday?",
    "Which wood did we pick for the deck?",
    "which wood did we pick for the deck",
    "what's the code",
    "What is the gate code of the mountain cabin?",
    "Hey Bob, what's up?",
    "So, what did we decide about the roof?",
    "For dinner on Friday, what may I cook?",
    "Is Anna vegan?",
    "Do we have any oak left, or did we use it all?",
    "what colour is the door",
    "How many kids does Melanie have?",
    "Was ist der Türcode?",
    "Où est la clé ?",
    "¿Dónde está la llave?",
    "钥匙在哪里？",
    "When is the meeting, and who is coming?",
    "Should we take oak or pine?",
    "Can you suggest a lens?",
    "who is the boss",
    "Remind me which wood we picked for the deck",
    "please remind me again what Anna's number is.",
    "Tell me which wood we picked for the deck.",
    "tell me where the spare key is",
]


@pytest.mark.parametrize("text", STATED_IN_QUESTIONS)
def test_what_a_person_states_in_a_question_is_a_statement(text: str) -> None:
    assert classify(text) is SpeechAct.STATEMENT


@pytest.mark.parametrize("text", ONLY_ASKED)
def test_question_that_states_nothing_is_a_question(text: str) -> None:
    assert classify(text) is SpeechAct.QUESTION


def test_what_the_assistant_does_not_know_is_a_filler() -> None:
    text = "I don't have any information about the lease."
    assert classify(text, by_assistant=True) is SpeechAct.FILLER
    assert classify(text) is SpeechAct.STATEMENT
