"""What the rules must leave alone: values that only resemble, other words, and answers."""

from __future__ import annotations

import pytest

from reverie import Space, Store
from tests.conftest import Stores
from tests.messages import reply, user


@pytest.fixture
def rules(stores: Stores) -> Store:
    return stores.open(learn="rules")


def learn(store: Store, space: Space, *texts: str) -> list[str]:
    """Say these texts, those after ``>`` as the assistant, and return what is remembered."""
    session = space.session("chat")
    for text in texts:
        session.append(reply(text[1:].strip()) if text.startswith(">") else user(text))
        store.run_pending_jobs()
    return sorted(memory.content for memory in space.memories())


@pytest.mark.parametrize(
    ("said", "ended", "kept"),
    [
        ("I live in Berlin.", "I no longer live in the US.", "The user lives in Berlin"),
        ("I live in New York.", "I no longer live in York.", "The user lives in New York"),
        ("I work at Metabase.", "I no longer work at Meta.", "The user works at Metabase"),
        ("My boss is Anna.", "Ann is no longer my boss.", "The user's boss is Anna"),
    ],
)
def test_end_of_another_value_leaves_the_known_one(
    rules: Store, space: Space, said: str, ended: str, kept: str
) -> None:
    assert kept in learn(rules, space, said, ended)


def test_end_of_the_known_value_removes_it(rules: Store, space: Space) -> None:
    assert learn(rules, space, "I live in the US.", "I no longer live in the US.") == []
    assert learn(rules, space, "I work at Acme.", "I no longer work at Acme.") == []


@pytest.mark.parametrize(
    ("content", "category", "subject", "said"),
    [
        ("The car needs new tyres before winter", "context", "car", "My car is a Toyota."),
        ("The user's wife is scared of flying", "person", "wife", "My wife's name is Anna."),
        ("The new job starts with a week of training", "context", "job", "I'm a nurse."),
    ],
)
def test_what_a_person_remembered_in_other_words_is_not_replaced(
    rules: Store, space: Space, content: str, category: str, subject: str, said: str
) -> None:
    space.remember(content, category=category, subject=subject, pinned=True)
    learned = learn(rules, space, said)
    assert content in learned and len(learned) == 2


def test_facts_of_two_relations_about_one_subject_stay(rules: Store, space: Space) -> None:
    learned = learn(rules, space, "I'm a nurse.", "My job starts on Monday.")
    assert "The user is a nurse" in learned


@pytest.mark.parametrize(
    ("said", "asked", "answer", "kept"),
    [
        ("I live in Rome.", "Which city would you like to visit?", "Hmm, Berlin.", "Rome"),
        ("My wife is Anna.", "Is the gift for Anna?", "No, Peter.", "Anna"),
        ("My name is Nadia.", "Who is the letter for?", "Um, Karen.", "Nadia"),
    ],
)
def test_answer_to_the_assistant_is_no_correction(
    rules: Store, space: Space, said: str, asked: str, answer: str, kept: str
) -> None:
    (content,) = learn(rules, space, said, f"> {asked}", answer)
    assert kept in content


def test_outright_correction_is_one_after_a_question_too(rules: Store, space: Space) -> None:
    told = ["I live in Rome.", "> Which part of Rome?", "Sorry, I meant Milan."]
    assert learn(rules, space, *told) == ["The user lives in Milan"]


def test_facts_of_health_have_the_priority_of_health(rules: Store, space: Space) -> None:
    learn(rules, space, "I'm allergic to peanuts.", "I'm diabetic.", "I'm vegan.")
    assert {memory.category for memory in space.memories()} == {"health"}
    space.remember_many(
        [{"content": f"Likes song number {n} a lot", "category": "preference"} for n in range(80)]
    )
    profile = space.profile(tokens=300)
    assert all(word in profile for word in ("peanuts", "diabetic", "vegan"))


def test_request_to_remember_counts_after_a_rejected_proposal(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = store.space("ana")
    learn(store, space, "I live in Oslo.")
    (proposal,) = space.proposals()
    space.reject(proposal.id)
    assert learn(store, space, "Please remember that I live in Oslo.") == ["The user lives in Oslo"]


@pytest.mark.parametrize(
    ("said", "added"),
    [
        ("I'm vegan.", "I'm also gluten-free."),
        ("I'm a nurse.", "I'm also a yoga teacher."),
    ],
)
def test_statement_that_adds_replaces_nothing(
    rules: Store, space: Space, said: str, added: str
) -> None:
    assert len(learn(rules, space, said, added)) == 2


@pytest.mark.parametrize("word", ["Armenian", "Sri Lankan", "Puerto Rican", "Capricorn", "Ok"])
def test_nationality_is_not_taken_for_a_name(rules: Store, space: Space, word: str) -> None:
    told = ["My name is Nadia.", "My wife is Anna.", f"I'm {word}.", f"My wife is {word}."]
    learned = learn(rules, space, *told)
    assert "The user's name is Nadia" in learned and "The user's wife is Anna" in learned
