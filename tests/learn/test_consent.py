"""The policy ``ask``: what a person said with doubt becomes a question instead of being dropped."""

from __future__ import annotations

from typing import Any

import pytest

from reverie import Space, Store
from reverie.learn import changes
from reverie.testing import Answer, ScriptedModel
from tests.conftest import Stores, rows
from tests.crash.learner import question_of
from tests.messages import user

DOUBTFUL = {
    "I think I live in Rome.": "The user lives in Rome",
    "I live in Rome, I think.": "The user lives in Rome",
    "Maybe I'm allergic to nuts.": "The user is allergic to nuts",
    "I probably prefer tea to coffee.": "The user prefers tea over coffee",
    "Not sure, but I think my birthday is May 3.": "The user's birthday is May 3",
    "I'm pretty sure my sister is called Mia.": "The user's sister is Mia",
}
# Not said by the person, not meant, or asked.
NEITHER = [
    "If I live in Rome, I think I'd be happy.",
    "Imagine I live in Rome, maybe.",
    "My friend says he thinks I live in Rome.",
    "Do I live in Rome, perhaps?",
    'She said "I think I live in Rome".',
    "Maybe I am kidding, I live in Rome, lol.",
    "I think we should go to Rome.",
]


def learn(store: Store, text: str) -> Space:
    space = store.space("ana")
    space.session("s").append(user(text))
    store.run_pending_jobs()
    assert store.jobs() == []
    return space


@pytest.mark.parametrize(("said", "fact"), DOUBTFUL.items())
def test_doubtful_statement_becomes_a_question_under_ask(
    stores: Stores, said: str, fact: str
) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = learn(store, said)
    assert [proposal.content for proposal in space.proposals()] == [fact]
    assert space.memories() == []
    assert rows(store, "SELECT reason FROM log WHERE op = 'propose'") == [(changes.DOUBTFUL,)]


@pytest.mark.parametrize("policy", ["silent", "notify"])
def test_doubtful_statement_is_left_alone_under_another_policy(stores: Stores, policy: str) -> None:
    space = learn(stores.open(learn="rules", write_policy=policy), next(iter(DOUBTFUL)))
    assert space.proposals() == [] and space.memories() == []


@pytest.mark.parametrize("said", NEITHER)
def test_what_the_person_did_not_mean_is_no_question(stores: Stores, said: str) -> None:
    space = learn(stores.open(learn="rules", write_policy="ask"), said)
    assert space.proposals() == [] and space.memories() == []


def test_declined_doubt_is_not_asked_again(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = learn(store, "I think I live in Rome.")
    space.reject(space.proposals()[0].id)
    assert learn(store, "Maybe I live in Rome.").proposals() == []


def test_doubtful_change_of_a_memory_is_asked_and_a_certain_one_is_not(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = store.space("ana")
    space.remember("The user lives in Oslo", category="context", subject="home")
    learn(store, "I think I live in Rome.")
    assert [memory.content for memory in space.memories()] == ["The user lives in Oslo"]
    assert [proposal.content for proposal in space.proposals()] == ["The user lives in Rome"]
    learn(store, "I live in Bergen.")
    assert [memory.content for memory in space.memories()] == ["The user lives in Bergen"]


def test_doubtful_statement_is_asked_beside_what_a_model_learns(stores: Stores) -> None:
    def answer(request: dict[str, Any]) -> Answer:
        assert question_of(request)[0] == "extract"
        return {"facts": [{"content": "Tea is hot", "category": "general", "subject": None}]}

    with ScriptedModel(answer) as scripted:
        named: dict[str, Any] = {"model": "openai:scripted", "model_base_url": scripted.base_url}
        store = stores.open(write_policy="ask", summary="off", **named)
        space = learn(store, "Tea is hot. I think I live in Rome.")
    contents = {proposal.content for proposal in space.proposals()}
    assert contents == {"Tea is hot", "The user lives in Rome"}


def test_change_of_a_memory_is_told_without_asking_under_ask(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = store.space("ana")
    memory = space.remember("The user lives in Oslo", category="context", subject="home")
    learn(store, "I live in Bergen. I love pizza.")
    notices = space.session("s").context().notices
    (proposal,) = space.proposals()
    asked, told = notices.split("Just remembered.")
    assert f"[proposal {proposal.id}] [pizza] The user loves pizza" in asked
    assert f"[id:{memory.id}] [home] The user lives in Bergen" in told
