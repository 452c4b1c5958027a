"""Questions and fillers are not recalled as knowledge, and the same text is one hit."""

from __future__ import annotations

import pytest

from reverie import Session, Space
from reverie.model import DEFAULT_FLOOR
from tests.conftest import FakeClock, Stores
from tests.messages import reply, user

EMBEDDERS = ["none", "hashing", "local"]
ANSWER = "We picked oak for the deck, it lasts longest."
QUESTION = "Which wood did we pick for the deck?"


def ask_in(space: Space, *names: str, reply_text: str = "") -> None:
    for name in names:
        session = space.session(name)
        session.append(user(QUESTION))
        if reply_text:
            session.append(reply(reply_text))


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_repeated_questions_do_not_push_the_answer_out(stores: Stores, embedder: str) -> None:
    space = stores.open(embedder=embedder).space("ana")
    space.session("first").append(user(ANSWER))
    ask_in(space, *(f"later {number}" for number in range(5)))
    hits = space.recall(QUESTION, limit=5)
    assert [hit.text for hit in hits] == [ANSWER]
    last = max(change.position for change in space.changes())
    assert [hit.text for hit in space.recall(QUESTION, limit=5, as_of=last)] == [ANSWER]


def test_many_repeated_questions_do_not_push_the_answer_out(space: Space) -> None:
    space.session("first").append(user(ANSWER))
    ask_in(
        space,
        *(f"later {number}" for number in range(60)),
        reply_text="I have no record of that.",
    )
    assert [hit.text for hit in space.recall(QUESTION, limit=5)] == [ANSWER]


def test_question_put_as_a_request_does_not_push_the_answer_out(space: Space) -> None:
    space.session("first").append(user(ANSWER))
    for number in range(5):
        ask = "Remind me" if number % 2 else "Tell me"
        space.session(f"later {number}").append(user(f"{ask} which wood we picked for the deck"))
    assert [hit.text for hit in space.recall(QUESTION, limit=5)] == [ANSWER]


def test_question_put_as_a_request_leads_to_the_answer_that_follows(space: Space) -> None:
    session = space.session("s")
    session.append(user("Remind me which wood we picked for the deck."))
    session.append(reply("Oak, oiled twice."))
    for number in range(8):
        space.session("other").append(user(f"Thing {number} is of no interest to anybody."))
    assert space.recall("which wood did we pick for the deck?", limit=3)[0].text.startswith("Oak")


def test_context_holds_neither_questions_nor_fillers(space: Space) -> None:
    old = space.session("old")
    for text in ("What may I cook on Friday?", "OK.", "parallel chat 3", "No onions on Friday."):
        old.append(user(text))
    recalled = space.session("new").context("what may I cook on Friday?").recalled
    assert "No onions on Friday." in recalled
    for text in ("What may I cook", "OK.", "parallel chat"):
        assert text not in recalled


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_question_leads_to_the_answer_that_follows(stores: Stores, embedder: str) -> None:
    space = stores.open(embedder=embedder).space("ana")
    session = space.session("s")
    session.append(reply("What city do you live in?"))
    session.append(user("Porto, since June."))
    for number in range(8):
        space.session("other").append(user(f"Thing {number} is of no interest to anybody."))
    assert space.recall("what city do I live in?", limit=3)[0].text == "Porto, since June."


def test_question_of_the_assistant_that_was_answered_with_yes_is_recalled(space: Space) -> None:
    session = space.session("s")
    session.append_many([reply("Shall we order oak for the deck?"), user("Yes.")])
    assert [hit.text for hit in space.recall("what do we order for the deck?")] == [
        "Shall we order oak for the deck?"
    ]


def test_long_reply_is_found_by_the_question_before_it(space: Space) -> None:
    session = space.session("s")
    session.append(user("How do I prune the espalier?"))
    long = " ".join(f"Then look at branch number {number} from below." for number in range(40))
    session.append(reply(long))
    hits = space.recall("prune the espalier", limit=3, mode="keyword")
    assert [hit.id for hit in hits] == ["s:2"]


def test_recall_of_what_was_asked_finds_questions(space: Space) -> None:
    ask_in(space, "one")
    hits = space.recall("what did I ask about the deck?")
    assert [hit.text for hit in hits] == [QUESTION]
    assert space.recall("which wood for the deck?") == []


def test_question_of_a_named_speaker_is_recalled(space: Space) -> None:
    space.session("s").append({**user(QUESTION), "name": "Bo"})
    assert [hit.text for hit in space.recall("deck wood")] == [QUESTION]


def test_preset_rankings_still_find_questions(space: Space) -> None:
    ask_in(space, "one")
    for name in ("similarity", "weighted", "rrf"):
        assert [hit.text for hit in space.recall("deck wood", ranking=name)] == [QUESTION]


def say(session: Session, text: str) -> str:
    event = session.append(user(text))
    return f"{event.session}:{event.sequence}"


def test_same_text_in_many_sessions_is_one_hit_of_the_newest(
    space: Space, clock: FakeClock
) -> None:
    ids = [say(space.session(f"s{number}"), "The spare key is with Olsen.") for number in range(4)]
    other = say(space.session("x"), "Olsen paints the spare room, the key sticks.")
    hits = space.recall("who has the spare key?", limit=2, explain=True)
    assert [hit.id for hit in hits] == [ids[-1], other]
    assert [len(hit.duplicates) for hit in hits] == [3, 0]
    assert set(hits[0].duplicates) == set(ids[:-1])
    assert hits[0].parts["collapsed"] == 3
    first = space.recall("who has the spare key?", limit=1)[0]
    assert (first.id, len(first.duplicates)) == (ids[-1], 3), (
        "also those beyond the limit are counted"
    )


def test_same_text_of_user_and_assistant_is_two_hits(space: Space) -> None:
    session = space.session("s")
    session.append(user("The spare key is with Olsen."))
    session.append(reply("The spare key is with Olsen."))
    assert len(space.recall("spare key")) == 2


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_what_somebody_has_comes_first_for_a_question_which_one(
    stores: Stores, embedder: str
) -> None:
    space = stores.open(embedder=embedder).space("ana")
    for text in (
        "My phone is a Pixel 8",
        "I hate phone calls",
        "My mortgage rate is fixed at 3.2 % until 2031",
        "The hotel booking code is XK42PQ",
        "We pay the gardener 40 euros",
        "Mia goes to school in Bergen",
    ):
        space.remember(text)
    hits = space.recall("which phone do I have?")
    assert hits[0].text == "My phone is a Pixel 8"
    assert space.recall("which phone do I have?", as_of=space.position())[0].id == hits[0].id


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_definition_comes_first_for_a_question_what_something_is(
    stores: Stores, embedder: str
) -> None:
    space = stores.open(embedder=embedder).space("ana")
    space.remember("Kestrel is our billing service, written in Go and run by the payments team")
    for text in ("Kestrel is late", "Kestrel again", "Kestrel deploys", "Ask Ana about Kestrel"):
        space.remember(text)
    hits = space.recall("What is Kestrel?", limit=3, explain=True)
    assert hits[0].text.startswith("Kestrel is our billing service")
    assert hits[0].parts["definition"] == hits[0].score
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert space.recall("What is Kestrel?", limit=3, as_of=space.position())[0].id == hits[0].id
    others = space.recall("When does Kestrel deploy?", limit=3, explain=True)
    assert all("definition" not in hit.parts for hit in others)


def test_question_with_may_does_not_find_what_was_in_the_month(stores: Stores) -> None:
    space = stores.open(embedder="local").space("ana")
    peanuts = space.remember("I am allergic to peanuts")
    space.remember("I read The Name of the Wind in May")
    assert space.recall("what may I not eat?", limit=1)[0].id == peanuts.id


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_earlier_requests_are_not_recalled_as_knowledge(stores: Stores, embedder: str) -> None:
    space = stores.open(embedder=embedder).space("ana")
    for name, request, answer in (
        ("one", "write a haiku about autumn", "Leaves drift on cold wind, autumn says goodbye."),
        ("two", "write a python function that sorts a list", "def sort(xs): return sorted(xs)"),
    ):
        space.session(name).append(user(request))
        space.session(name).append(reply(answer))
    for request in ("write a haiku about autumn", "write a python function that reverses a list"):
        assert not any(hit.text.startswith("write a") for hit in space.recall(request))
        assert "said] write a" not in space.session("new").context(request).recalled
    asked = [hit.text for hit in space.recall("What did I ask you to write about autumn?")]
    assert "write a haiku about autumn" in asked


def test_decision_in_the_form_of_a_request_is_recalled(stores: Stores) -> None:
    space = stores.open(embedder="local").space("ana")
    said = "Let's use PostgreSQL for the billing service."
    space.session("one").append(user(said))
    assert [hit.text for hit in space.recall("billing service database")] == [said]


def test_answer_of_a_question_asked_again_is_in_the_prompt(stores: Stores) -> None:
    space = stores.open(embedder="local").space("ana")
    session = space.session("cabin")
    session.append(user("What is the gate code of the cabin?"))
    session.append(reply("It is 9921."))
    for number in range(60):
        space.session("noise").append(user(f"We painted wall {number} in a shade of blue."))
    for query in ("What is the gate code of the cabin?", "what's the code of the cabin gate?"):
        assert "It is 9921." in space.session("new").context(query).recalled


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("I hate phone calls", "which phone do I have?"),
        ("Hotel booking code for Porto is QX7T2P", "what book am I reading?"),
        ("I booked a table at Bare", "which book did Kari give me?"),
    ],
)
def test_word_in_another_sense_is_no_answer(stores: Stores, stored: str, query: str) -> None:
    space = stores.open(embedder="local").space("ana")
    space.remember(stored)
    (hit,) = space.recall(query, explain=True)
    assert hit.parts["other_sense"] == hit.score < DEFAULT_FLOOR
    right = space.remember("I have a Pixel 8 phone, and a book by Fosse that Kari gave me")
    hits = space.recall(query)
    assert hits[0].id == right.id
    assert hits[0].score > DEFAULT_FLOOR > hits[1].score


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("I am working at Haukeland hospital as a nurse", "what work do I do?"),
        ("I invested 5000 euros in Equinor", "what investments do I have?"),
    ],
)
def test_verb_answers_the_question_for_its_noun(stores: Stores, stored: str, query: str) -> None:
    space = stores.open(embedder="local").space("ana")
    space.remember(stored)
    assert space.recall(query)[0].score > DEFAULT_FLOOR


def test_questions_of_words_never_heard_are_below_the_floor_with_few_memories(
    stores: Stores,
) -> None:
    space = stores.open(embedder="local").space("ana")
    for text in ("The wifi is called heron", "Office closes at six"):
        space.remember(text)
    for query in ("what is my name?", "what book am I reading?"):
        assert all(hit.score < DEFAULT_FLOOR for hit in space.recall(query))
    assert space.recall("when does the office close?")[0].score > 0.9
