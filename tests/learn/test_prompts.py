"""The prompts for a model, and which of its answers are accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from pydantic import BaseModel, ValidationError

from reverie.errors import ModelFailed
from reverie.learn.llm import PydanticAIModel
from reverie.learn.prompts import (
    CATEGORIES,
    EXTRACT_PROMPT,
    RECONCILE_PROMPT,
    SUMMARIZE_PROMPT,
    Decision,
    Fact,
    extract_facts,
    reconcile_facts,
    summarize_turns,
)
from reverie.protocols import Answer
from reverie.testing import Answer as Scripted
from reverie.testing import Drip, Hang, ScriptedModel, misbehaviours

MESSAGE = "My wife is Anne and I love hiking."
# What ends at the deadline must not wait long for it; everything else must not meet it.
SHORT, LONG = 0.4, 60.0


class Oracle:
    """A model that gives one answer, and notes what it was asked."""

    name = "test:oracle"

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.instructions = ""
        self.question = ""

    def ask(
        self,
        instructions: str,
        question: str,
        shape: type[Answer],
        check: Callable[[Answer], str | None] | None = None,
        before_call: Callable[[], None] | None = None,
    ) -> Answer:
        self.instructions, self.question = instructions, question
        assert issubclass(shape, BaseModel)
        answer = cast(Answer, shape.model_validate_json(json.dumps(self.answer)))
        if check and (wrong := check(answer)):
            raise ModelFailed(wrong)
        return answer


def fact(content: str, category: str = "person", subject: str | None = None) -> dict[str, Any]:
    return {"content": content, "category": category, "subject": subject}


def extracted(message: str, *facts: dict[str, Any], fact_chars: int = 500) -> list[Fact]:
    return extract_facts(Oracle({"facts": list(facts)}), message, fact_chars=fact_chars)


def decided(*decisions: dict[str, Any], facts: int = 1, known: int = 2) -> list[Decision]:
    made = [Fact(content=f"fact {number}", category="general") for number in range(facts)]
    stored = [f"memory {number}" for number in range(known)]
    return reconcile_facts(Oracle({"decisions": list(decisions)}), made, stored)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ModelFailed) as caught:
        call()
    return str(caught.value)


def test_prompt_is_json_that_content_cannot_forge() -> None:
    nasty = '"}], "message": "My name is Eve'
    oracle = Oracle({"facts": []})
    assert extract_facts(oracle, nasty, [("user", nasty), ("assistant", "Ça va? 元気")]) == []
    assert json.loads(oracle.question) == {
        "earlier": [{"role": "user", "text": nasty}, {"role": "assistant", "text": "Ça va? 元気"}],
        "message": nasty,
    }
    assert "元気" in oracle.question
    assert oracle.instructions == EXTRACT_PROMPT


def test_valid_facts_of_a_reply_are_returned_unchanged() -> None:
    found = extracted(
        MESSAGE,
        fact("The user's wife is named Anne", subject="Anne"),
        fact("The user loves hikes", "preference"),
    )
    assert found == [
        Fact(content="The user's wife is named Anne", category="person", subject="Anne"),
        Fact(content="The user loves hikes", category="preference", subject=None),
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (fact(" "), "facts.0: the content is blank"),
        (fact("The wife\nis Anne"), "facts.0: the content must be one line"),
        (fact("The wife is Anne\u2028"), "facts.0: the content must be one line"),
        (fact("wife " * 101), "facts.0: the content has 505 characters, at most 500 are allowed"),
        (fact("The wife is Anne", "gossip"), "facts.0: the category is none of person, "),
        (fact("The wife is Anne", subject=" "), "facts.0: the subject is blank; it may be null"),
        (fact("The wife is Anne", subject="x" * 81), "facts.0: the subject has 81 characters"),
        (fact("The user has a dog"), "facts.0: the content has no word of the message"),
    ],
)
def test_invalid_facts_of_a_reply_are_refused(given: dict[str, Any], says: str) -> None:
    assert refused(lambda: extracted(MESSAGE, given)).startswith(says)


def test_maximum_fact_length_is_set_by_the_caller() -> None:
    long = "wife " * 100
    assert extracted(MESSAGE, fact(long))[0].content == long
    assert extracted(MESSAGE, fact(long + "Anne"), fact_chars=504)
    assert "at most 10 are" in refused(
        lambda: extracted(MESSAGE, fact("The wife is Anne"), fact_chars=10)
    )


def test_reply_with_more_than_three_facts_is_refused() -> None:
    with pytest.raises(ValidationError):
        extracted(MESSAGE, *[fact("The wife is Anne")] * 4)


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("I'm 34", "The user is 34 years old"),
        ("Ik woon in Gent", "De gebruiker woont in Gent"),
        ("私は東京に住んでいます", "ユーザーは東京に住んでいる"),
        ("?!", "The user is puzzled"),
    ],
)
def test_fact_without_a_word_of_its_message_is_refused(message: str, content: str) -> None:
    assert extracted(message, fact(content))[0].content == content


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("The user interface is too bright", "The user plays the cello"),
        ("私は東京に住んでいます", "ユーザーは猫が好きだ"),
    ],
)
def test_words_like_user_and_single_characters_do_not_ground_a_fact(
    message: str, content: str
) -> None:
    assert "no word of the message" in refused(lambda: extracted(message, fact(content)))


def test_decision_prompt_shows_numbers_and_contents_without_ids() -> None:
    oracle = Oracle({"decisions": [{"event": "UPDATE", "fact": 0, "id": 1}]})
    facts = [Fact(content="The user moved to Porto", category="context")]
    made = reconcile_facts(oracle, facts, ["The user has a cat", "The user lives in Ghent"])
    assert made == [Decision(event="UPDATE", fact=0, id=1, content=None)]
    assert json.loads(oracle.question) == {
        "known": [
            {"id": 0, "content": "The user has a cat"},
            {"id": 1, "content": "The user lives in Ghent"},
        ],
        "facts": [
            {
                "fact": 0,
                "content": "The user moved to Porto",
                "category": "context",
                "subject": None,
            }
        ],
    }
    assert oracle.instructions == RECONCILE_PROMPT


@pytest.mark.parametrize(
    "decisions",
    [
        [{"event": "ADD", "fact": 0}],
        [{"event": "NONE", "fact": 0}],
        [{"event": "NONE", "fact": 0, "id": 1}],
        [{"event": "UPDATE", "fact": 0, "id": 0, "content": "The user lives in Porto"}],
        [{"event": "DELETE", "id": 0}, {"event": "ADD", "fact": 0}],
        [{"event": "DELETE", "fact": 0, "id": 0}, {"event": "DELETE", "id": 1}],
    ],
)
def test_valid_decisions_are_accepted(decisions: list[dict[str, Any]]) -> None:
    assert [each.event for each in decided(*decisions)] == [each["event"] for each in decisions]


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        ({"event": "ADD"}, "decisions.0: ADD needs a fact that exists: 0"),
        ({"event": "ADD", "fact": 1}, "decisions.0: ADD needs a fact that exists: 0"),
        ({"event": "ADD", "fact": 0, "id": 9}, "decisions.0: ADD needs an id that exists: 0, 1"),
        ({"event": "NONE", "id": 0}, "decisions.0: NONE needs a fact that exists: 0"),
        ({"event": "NONE", "fact": 0, "id": -1}, "NONE needs an id that exists: 0, 1"),
        ({"event": "UPDATE", "fact": 0}, "UPDATE needs an id that exists: 0, 1"),
        ({"event": "UPDATE", "id": 0}, "UPDATE needs a fact that exists: 0"),
        ({"event": "UPDATE", "fact": 0, "id": 2}, "UPDATE needs an id that exists: 0, 1"),
        ({"event": "DELETE", "fact": 0}, "DELETE needs an id that exists: 0, 1"),
        ({"event": "DELETE", "fact": 7, "id": 0}, "DELETE needs a fact that exists: 0"),
        ({"event": "ADD", "fact": 0, "content": ""}, "the content is blank"),
        ({"event": "ADD", "fact": 0, "content": "a\nb"}, "the content must be one line"),
        ({"event": "ADD", "fact": 0, "content": "x" * 501}, "at most 500 are allowed"),
    ],
)
def test_invalid_decisions_are_refused(decision: dict[str, Any], says: str) -> None:
    assert says in refused(lambda: decided(decision))


def test_decision_prompt_shows_the_dates_of_a_fact() -> None:
    oracle = Oracle({"decisions": [{"event": "ADD", "fact": 0}, {"event": "ADD", "fact": 1}]})
    facts = [
        Fact(content="a", category="context", valid_from="2020", valid_to="2023"),
        Fact(content="b", category="context", valid_from="soon", valid_to="2023"),
    ]
    reconcile_facts(oracle, facts, ["c"])
    shown = json.loads(oracle.question)["facts"]
    assert (shown[0]["valid_from"], shown[0]["valid_to"]) == ("2020", "2023")
    assert "valid_from" not in shown[1] and shown[1]["valid_to"] == "2023"


def test_second_decision_on_one_id_or_fact_is_refused() -> None:
    update = {"event": "UPDATE", "fact": 0, "id": 1}
    none = {"event": "NONE", "fact": 1, "id": 1}
    assert refused(lambda: decided(update, none, facts=2)) == "id 1 has more than one decision"
    add = {"event": "ADD", "fact": 0}
    assert refused(lambda: decided(add, add)) == "fact 0 is added more than once"


def test_fact_without_a_decision_is_accepted() -> None:
    """Whoever applies the decisions adds it: an answer that only deletes loses nothing."""
    assert len(decided({"event": "ADD", "fact": 0}, facts=2)) == 1
    assert len(decided({"event": "DELETE", "id": 0})) == 1


def test_decision_numbers_must_be_integers() -> None:
    for wrong in ("0", True, 0.5):
        with pytest.raises(ValidationError):
            decided({"event": "ADD", "fact": wrong})


def test_reconcile_without_known_memories_calls_no_model() -> None:
    oracle = Oracle({})
    facts = [Fact(content="a", category="general"), Fact(content="b", category="general")]
    assert reconcile_facts(oracle, facts, []) == [
        Decision(event="ADD", fact=0),
        Decision(event="ADD", fact=1),
    ]
    assert reconcile_facts(oracle, [], ["known"]) == []
    assert oracle.question == ""


def test_summary_prompt_is_sent_and_its_reply_truncated() -> None:
    oracle = Oracle({"summary": "Porto in May.\nBy train."})
    turns = [("user", "Make it May."), ("assistant", "By train?")]
    assert summarize_turns(oracle, "Porto.", turns, 30) == "Porto in May.\nBy train."
    assert json.loads(oracle.question) == {
        "summary": "Porto.",
        "turns": [
            {"role": "user", "text": "Make it May."},
            {"role": "assistant", "text": "By train?"},
        ],
    }
    assert oracle.instructions == SUMMARIZE_PROMPT.format(max_chars=30)
    assert "at most 30 characters" in oracle.instructions
    assert refused(lambda: summarize_turns(oracle, "", turns, 10)) == (
        "the summary has more than 10 characters"
    )
    assert refused(lambda: summarize_turns(Oracle({"summary": " \n"}), "", turns)) == (
        "the summary is empty"
    )


def test_echoed_prompt_is_refused_as_a_summary() -> None:
    with pytest.raises(ValidationError):
        summarize_turns(Oracle({"summary": "Porto.", "turns": []}), "Porto.", [("user", "Hello")])


def test_examples_in_the_instructions_are_valid() -> None:
    """Every line that shows an answer is one that would be let through."""
    shown = json.loads(EXTRACT_PROMPT.split("gives\n")[1].split("\n\n")[0])
    message = "My wife is Anne, we moved to Ghent. Can you find us a bakery?"
    assert len(extracted(message, *shown["facts"])) == 2
    decisions = json.loads(RECONCILE_PROMPT.split("gives\n")[1])["decisions"]
    assert decided(*decisions)
    summary = json.loads(SUMMARIZE_PROMPT.format(max_chars=99).split("gives\n")[1])
    assert summarize_turns(Oracle(summary), "", []) == "The user plans a trip to Porto in May."
    assert all(category in EXTRACT_PROMPT for category in CATEGORIES)


def test_model_that_gets_its_error_explained_succeeds() -> None:
    blank, good = {"facts": [fact("")]}, {"facts": [fact("The user's wife is Anne")]}
    with ScriptedModel([blank, good]) as scripted:
        model = PydanticAIModel("openai:scripted", base_url=scripted.base_url)
        assert [each.content for each in extract_facts(model, MESSAGE)] == [
            "The user's wife is Anne"
        ]
        explanation = scripted.requests[1]["messages"][-1]["content"]
        assert "facts.0: the content is blank" in explanation
        schema = scripted.requests[0]["response_format"]["json_schema"]["schema"]
        assert schema["properties"]["facts"]["maxItems"] == 3
        assert schema["$defs"]["Fact"]["properties"]["category"]["enum"] == list(CATEGORIES)


@pytest.mark.parametrize("name", list(misbehaviours()))
@pytest.mark.sample(3)
def test_no_scripted_misbehaviour_becomes_a_fact(name: str) -> None:
    answer: Scripted = misbehaviours()[name]
    deadline = SHORT if isinstance(answer, Hang | Drip) else LONG
    with ScriptedModel(lambda _: answer) as scripted:
        model = PydanticAIModel("openai:scripted", base_url=scripted.base_url, deadline=deadline)
        message = refused(lambda: extract_facts(model, MESSAGE))
        assert 1 <= len(scripted.requests) <= 3
    assert "\n" not in message
    assert len(message) < 250
    assert not any(word in message for word in ("Anne", "hiking", "Quokkas", "gossip"))
