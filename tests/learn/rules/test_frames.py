"""Frames of who, relation and value: the same relation is read of everybody a person speaks of."""

from __future__ import annotations

import pytest
from bench.learning import corpus

from reverie.learn.rules.frames import WORDINGS, inflect
from reverie.learn.rules.people import base_form
from reverie.learn.rules.statements import Statement, extract_statements, relation_of
from tests.tables import cases_in_one_test

FACTS = [
    ("I'm vegetarian", "health", "diet", "The user is vegetarian"),
    ("I'm diabetic", "health", "diabetic", "The user is diabetic"),
    ("I don't eat pork", "health", "pork", "The user does not eat pork"),
    ("I have a cat named Pus", "person", "Pus", "The user has a cat named Pus"),
    (
        "I speak Norwegian and German",
        "context",
        "languages",
        "The user speaks Norwegian and German",
    ),
    ("I quit my job at Equinor", "context", "work", "The user no longer works at Equinor"),
    (
        *("I'm moving to Berlin in May", "context", "moving to berlin"),
        "The user is moving to Berlin in May",
    ),
    ("i'm vegan btw", "health", "diet", "The user is vegan"),
    ("My wife is pregnant", "person", "wife", "The user's wife is pregnant"),
    ("My parents live in Porto", "person", "parents", "The user's parents live in Porto"),
    ("My brother works at Siemens", "person", "brother", "The user's brother works at Siemens"),
    ("My exam is on 12 December", "context", "exam", "The user's exam is on 12 December"),
    ("I play chess every Tuesday", "context", "chess", "The user plays chess every Tuesday"),
    ("I gave up the cello", "context", "cello", "The user no longer plays the cello"),
    (
        *("Ingrid and I are getting married in June", "context", "Ingrid"),
        "The user and Ingrid are getting married in June",
    ),
]


@cases_in_one_test("text, category, subject, content", FACTS)
def test_plain_fact_is_read_with_category_and_subject(
    text: str, category: str, subject: str, content: str
) -> None:
    (found,) = extract_statements(text)
    assert (found.category, found.subject, found.content) == (category, subject, content)


SEVERAL = [
    ("My wife Ingrid is vegetarian", ["The user's wife is Ingrid", "Ingrid is vegetarian"]),
    (
        "We have two kids, Jonas and Freya",
        ["Jonas is one of the user's two kids", "Freya is one of the user's two kids"],
    ),
    (
        "I'm a nurse and I work at Haukeland hospital",
        ["The user is a nurse", "The user works at Haukeland hospital"],
    ),
    (
        "I'm an accountant at Deloitte in Dublin",
        ["The user is an accountant", "The user works at Deloitte"],
    ),
    ("Jonas, my son, plays handball", ["The user's son is Jonas", "Jonas plays handball"]),
    ("My girlfriend is vegan, so what can we cook?", ["The user's girlfriend is vegan"]),
    (
        "My sister Mia visits on Friday. Remember that she eats no meat.",
        ["The user's sister is Mia", "Mia visits on Friday", "Mia does not eat meat"],
    ),
    (
        "My sister Mia comes along. Remember that she sings off-key.",
        ["The user's sister is Mia", "Mia sings off-key"],
    ),
    ("Tom came by. Remember that he likes tea.", ["Tom likes tea"]),
    ("Olu just called. Please remember that she eats no meat.", ["Olu eats no meat"]),
    ("Eva visits us on Friday. Remember that her knee hurts.", ["Eva's knee hurts"]),
    ("Jo is ill. Remember that she hates cats.", ["Jo hates cats"]),
    ("Ben is diabetic. Remember that he likes cake.", ["Ben likes cake"]),
    ("Eva lives upstairs. Remember that she eats no meat.", ["Eva eats no meat"]),
    ("Dad came by. Remember that he likes tea.", ["The user's dad likes tea"]),
]


@cases_in_one_test("text, contents", SEVERAL)
def test_several_facts_of_one_message_are_each_read(text: str, contents: list[str]) -> None:
    assert [each.content for each in extract_statements(text)] == contents


PRONOUNS = """
    Remember that she eats no meat. | Please remember that they are closed. | She is a nurse.
    My sister met my aunt. She is a nurse. | My brother is tall. She is a nurse.
    My son has a friend called Max. He is allergic to nuts.
    My sister Mia is here. It rains. It snows. She is a nurse.
"""


@cases_in_one_test("text", [each.strip() for each in PRONOUNS.replace("\n", "|").split("|")])
def test_pronoun_without_its_one_person_teaches_nothing_of_anybody(text: str) -> None:
    known = {"The user's sister is Mia", "The user's son has a friend named Max"}
    assert {each.content for each in extract_statements(text)} <= known


# The one who is meant is not named, or it is open which of two.
NOBODY_NAMED = """
    Paris was great. | Paris is next. | Tesla is late. | Tesla called. | Netflix visited us.
    Friday came round. | Amazon called. | Christmas came round. | Traffic was bad. | Berlin rocks.
    Plumber came by. | Neighbours came by. | Somebody called. | Dinner is here. | Spring came along.
    Tom and Anna came by. | Tom met Anna. | Tom came by with Anna. | Tom visited us with Anna.
    Tom called my boss. | Tom came by. It rained. | I saw Tom in Paris. | The plumber came by.
    Tom visited his brother. | Did Tom come by? | BMW called. | Dr came by. | Nobody came by.
    Has Tom called? | Then Tom called. | Had Tom called, I'd know. | Call Tom.
    Anna came by. Tom called. | We met Anna at noon. Tom called.
    Anna called. It rained. Tom is ill.
"""


@cases_in_one_test("before", [each.strip() for each in NOBODY_NAMED.replace("\n", "|").split("|")])
def test_pronoun_of_a_request_is_not_resolved_without_one_person_named(before: str) -> None:
    for wish in ("Remember that he likes tea.", "Remember that she eats no meat."):
        assert extract_statements(f"{before} {wish}") == []


IDIOMS = """
    I'm a mess | I'm a terrible cook | I'm in Paris | I'm at Heathrow | I have a race condition
    I have a function called main | I'm trying to run this script | I'm blind to it | I play dumb
    I'm married to my job | My phone is a piece of junk | My son is a monster | I work in circles
    I have a friend who is vegan | I'm moving to the next step in May | I take the bus
    I don't eat much | I'm 30 minutes late | I'm five | My test of it is on Friday | I'm Fine
    We're moving to Kubernetes in May | I'm seeing a lot of errors this week | I wear many hats
"""


@cases_in_one_test("text", [each.strip() for each in IDIOMS.replace("\n", "|").split("|")])
def test_figure_of_speech_teaches_nothing(text: str) -> None:
    assert extract_statements(text) == []


@pytest.mark.parametrize(
    ("text", "third_person", "expected"),
    [
        (" lives in Rome", True, "live in Rome"),
        ("'m now a nurse", False, "be a nurse"),
        ("'ve just moved to Rome", False, "moved to Rome"),
        ("'ve got a cat", False, "have a cat"),
        (" doesn't eat pork", True, "do not eat pork"),
        (" studies law", True, "study law"),
        (" just love bugs", False, ""),
    ],
)
def test_predicate_starts_with_the_base_form_of_its_verb(
    text: str, third_person: bool, expected: str
) -> None:
    assert base_form(text, third_person) == expected


@pytest.mark.parametrize(
    ("verb", "one", "many"),
    [("be", "is", "are"), ("have", "has", "have"), ("study", "studies", "study")]
    + [("teach", "teaches", "teach"), ("play", "plays", "play"), ("live", "lives", "live")],
)
def test_verbs_are_inflected_for_one_and_for_several_people(verb: str, one: str, many: str) -> None:
    assert (inflect(verb, plural=False), inflect(verb, plural=True)) == (one, many)


def about_people() -> list[Statement]:
    texts = [text["text"] for text in corpus("plain_seen")["statements"]]
    found = [each for text in texts for each in extract_statements(text)]
    own = {"name", "birthday", "age", "marital status", None}
    return [each for each in found if each.category == "person" and each.subject not in own]


def test_content_about_a_person_is_read_back_as_the_relation_that_made_it() -> None:
    """Only so a later value of the same relation replaces it, and no other fact."""
    single = [each for each in about_people() if each.single_valued]
    assert len(single) > 15
    unread = [
        each.content
        for each in single
        if relation_of(each.content, each.subject or "") != each.relation
    ]
    assert unread == []


def test_every_relation_of_the_table_is_reached_by_the_seen_statements() -> None:
    texts = corpus("plain_seen")["statements"] + corpus("stranger_seen")["statements"]
    reached = {each.relation for text in texts for each in extract_statements(text["text"])}
    # What is past, and says from when to when, is in test_periods.py.
    lasting = {wording.relation.name for wording in WORDINGS if wording.aspect != "past"}
    unused = lasting - reached
    assert len(unused) <= 6, unused
