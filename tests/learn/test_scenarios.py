"""Whole conversations from which something is learned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from reverie import Memory, Session, Space, Store
from reverie.prompt.context import ASK_HEADING, NOTIFY_HEADING
from reverie.testing import MODEL, Answer, ScriptedModel, Status
from tests.conftest import HOUR, FakeClock, Stores, rows
from tests.messages import reply, user

Question = Mapping[str, Any]
Fact = dict[str, Any]


def fact(content: str, category: str = "context", subject: str | None = None) -> Fact:
    return {"content": content, "category": category, "subject": subject}


def add_all(question: Question) -> Answer:
    facts = range(len(question["facts"]))
    return {"decisions": [{"event": "ADD", "fact": number} for number in facts]}


def known_already(question: Question) -> Answer:
    return {"decisions": [{"event": "NONE", "fact": 0}]}


def update(known: str, content: str | None = None) -> Callable[[Question], Answer]:
    """A change of the memory that says this."""

    def decide(question: Question) -> Answer:
        found = id_of(question, known)
        return {"decisions": [{"event": "UPDATE", "fact": 0, "id": found, "content": content}]}

    return decide


def id_of(question: Question, content: str) -> int:
    (found,) = [each["id"] for each in question["known"] if each["content"] == content]
    return int(found)


class Mind:
    """A model that returns the facts and decisions that a test gave it for a message."""

    def __init__(self) -> None:
        self.facts: dict[str, list[Fact]] = {}
        self.decide: Callable[[Question], Answer] = add_all
        self.decided: list[Question] = []
        self.settings: dict[str, Any] = {}

    def __call__(self, request: dict[str, Any]) -> Answer:
        message = next(each for each in request["messages"] if each["role"] == "user")
        question = json.loads(message["content"])
        if "message" in question:
            return {"facts": self.facts.get(question["message"], [])}
        self.decided.append(question)
        return self.decide(question)


class LearningStore:
    """A store that learns, and one conversation in it."""

    def __init__(self, stores: Stores, mind: Mind, **settings: Any) -> None:
        self.mind = mind
        self.store: Store = stores.open(**{**mind.settings, **settings})
        self.space: Space = self.store.space("ana")
        self.session: Session = self.space.session("talk")

    def append_turn(self, text: str, *facts: Fact) -> None:
        """A turn that is kept, and waits to be learned from."""
        self.mind.facts[text] = list(facts)
        self.session.append(user(text))

    def learns(self, text: str, *facts: Fact) -> None:
        self.append_turn(text, *facts)
        self.store.run_pending_jobs()
        assert learning_jobs(self.store) == []

    def living(self) -> list[str]:
        return sorted(memory.content for memory in self.space.memories())

    def only(self) -> Memory:
        (memory,) = self.space.memories()
        return memory

    def recalled(self, query: str) -> list[str]:
        return [hit.text for hit in self.space.recall(query, kinds=["fact"], limit=50)]


def learning_jobs(store: Store) -> list[str | None]:
    return [job.error for job in store.jobs() if job.kind == "learn"]


@pytest.fixture
def mind() -> Iterator[Mind]:
    mind = Mind()
    with ScriptedModel(mind) as model:
        mind.settings = {"model": f"openai:{MODEL}", "model_base_url": model.base_url}
        yield mind


# -- asking before remembering --------------------------------------------------------------------

BOSS = fact("Alec is the user's boss", "person", "Alec")


def test_new_person_is_remembered_after_the_user_accepted(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind, write_policy="ask")
    ana.learns("Alec is my boss by the way", BOSS)
    (proposal,) = ana.space.proposals()
    assert (proposal.content, proposal.category, proposal.subject) == tuple(BOSS.values())
    assert (proposal.origin, proposal.source) == (("talk", 1), "openai:scripted")
    assert proposal.answer is None
    assert ana.living() == [] and ana.recalled("Who is my boss?") == []
    context = ana.session.context("Who is my boss?")
    assert (
        context.notices
        == f"{ASK_HEADING}- [proposal {proposal.id}] [Alec] Alec is the user's boss\n"
    )
    assert context.profile == ""

    memory = ana.space.accept(proposal.id)
    assert (memory.content, memory.category, memory.subject) == tuple(BOSS.values())
    assert ana.space.history(memory.id)[0].origin == proposal.origin
    assert ana.living() == [memory.content] == ana.recalled("Who is my boss?")
    assert ana.space.proposals() == [] and ana.session.context().notices == ""

    later = ana.space.session("another day").context("Who is my boss?")
    assert f"- [id:{memory.id}] [Alec] Alec is the user's boss\n" in later.profile


def test_rules_make_proposals_with_write_policy_ask(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind, write_policy="ask", learn="rules")
    ana.learns("My boss is Alec")
    (proposal,) = ana.space.proposals()
    assert (proposal.content, proposal.source) == ("The user's boss is Alec", "rules")
    assert ana.living() == []
    ana.space.accept(proposal.id)
    ana.learns("My boss is Tamara")
    assert ana.living() == ["The user's boss is Tamara"]
    assert ana.space.proposals() == []


def test_proposal_is_shown_in_every_session_of_its_user(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind, write_policy="ask")
    ana.learns("Alec is my boss by the way", BOSS)
    other = ana.space.session("other")
    other.append(user("What's for lunch?"))
    ana.store.run_pending_jobs()
    (proposal,) = ana.space.proposals()
    for session in (other, ana.session):
        assert f"[proposal {proposal.id}]" in session.context().notices


@pytest.mark.parametrize("policy", ["ask", "notify", "silent"])
def test_known_memory_is_updated_without_asking(stores: Stores, mind: Mind, policy: str) -> None:
    ana = LearningStore(stores, mind, write_policy=policy)
    known = "Sarah works on the Platform team"
    sarah = ana.space.remember(known, category="person", subject="Sarah")
    moved = "Sarah works on the Design team since last week"
    mind.decide = update(known, moved)
    ana.learns("Sarah moved to the Design team last week", fact("Sarah moved to the Design team"))

    now = ana.only()
    assert (now.id, now.version, now.content) == (sarah.id, 2, moved)
    assert (now.category, now.subject) == ("person", "Sarah")
    assert [version.content for version in ana.space.history(sarah.id)] == [known, moved]
    assert ana.space.proposals(include_answered=True) == []
    assert ana.recalled("Which team is Sarah on?") == [moved]
    notice = f"{NOTIFY_HEADING}- [id:{sarah.id}] [Sarah] {moved}\n"
    assert ana.session.context().notices == ("" if policy == "silent" else notice)


def test_learned_memory_is_announced_once(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind, write_policy="notify")
    ana.learns("Alec is my boss by the way", BOSS)
    assert "Alec is the user's boss" in ana.session.context().notices
    ana.session.append(reply("I'll remember that Alec is your boss."))
    assert "Alec is the user's boss" in ana.session.context().notices
    ana.learns("Fine. What's for lunch?")
    ana.session.append(reply("Soup."))
    ana.learns("Again?")
    assert ana.session.context().notices == ""


def test_rejected_proposal_is_not_made_again(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind, write_policy="ask")
    james = fact("The user works with James on this project", "project", "James")
    ana.learns("I'm working with James on this project", james)
    (proposal,) = ana.space.proposals()
    rejected = ana.space.reject(proposal.id, reason="James is a contractor")
    assert (rejected.answer, rejected.memory_id) == ("reject", None)
    assert rows(ana.store, "SELECT reason FROM log WHERE op = 'reject'") == [
        ("James is a contractor",)
    ]

    ana.learns("As I said, I'm working with James on this project.", james)
    louder = fact("the user works with JAMES on this project.", "project", "James")
    ana.learns("I'M WORKING WITH JAMES ON THIS PROJECT", louder)
    ana.session = ana.space.session("another day")
    ana.learns("I'm working with James on this project", james)
    assert ana.space.proposals() == []
    assert ana.living() == [] and ana.recalled("Who works with me on the project?") == []
    context = ana.session.context("Who works with me on the project?")
    assert (context.notices, context.profile) == ("", "")


def test_accepted_and_outdated_fact_can_be_proposed_again(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind, write_policy="ask")
    ana.learns("I live in Berlin", fact("The user lives in Berlin"))
    ana.space.accept(ana.space.proposals()[0].id)
    mind.decide = update("The user lives in Berlin", "The user lives in Porto")
    ana.learns("I moved to Porto", fact("The user moved to Porto"))
    assert ana.living() == ["The user lives in Porto"]

    def replaced(question: Question) -> Answer:
        gone = {"event": "DELETE", "id": id_of(question, "The user lives in Porto")}
        return {"decisions": [gone, {"event": "ADD", "fact": 0}]}

    mind.decide = replaced
    ana.learns("I live in Berlin again", fact("The user lives in Berlin"))
    asked = [proposal.content for proposal in ana.space.proposals()]
    assert asked + ana.living() == ["The user lives in Berlin"]


@pytest.mark.parametrize("how", ["llm", "rules"])
def test_explicit_request_to_remember_needs_no_confirmation(
    stores: Stores, mind: Mind, how: str
) -> None:
    ana = LearningStore(stores, mind, write_policy="ask", learn=how)
    content = "The spare key is with Mrs. Novak"
    ana.learns("Remember that the spare key is with Mrs. Novak.", fact(content, "general"))
    assert ana.living() == [content]
    assert ana.space.proposals(include_answered=True) == []
    assert ana.space.history(ana.only().id)[0].origin == ("talk", 1)


# -- the same thing again -------------------------------------------------------------------------


def pizza_updated(question: Question) -> Answer:
    return update("The user loves pizza")(question)


def pizza_deleted(question: Question) -> Answer:
    return {"decisions": [{"event": "DELETE", "id": id_of(question, "The user loves pizza")}]}


def pizza_contradicted(question: Question) -> Answer:
    known = id_of(question, "The user loves pizza")
    return {"decisions": [{"event": "DELETE", "fact": 0, "id": known}]}


def pizza_replaced(question: Question) -> Answer:
    known = id_of(question, "The user loves pizza")
    gone = {"event": "DELETE", "fact": 0, "id": known}
    return {"decisions": [gone, {"event": "ADD", "fact": 0}]}


PIZZA = [pizza_updated, pizza_deleted, pizza_contradicted, pizza_replaced]


@pytest.mark.parametrize("decide", [*PIZZA, None])
def test_contradicting_preference_replaces_the_old_one(
    stores: Stores, mind: Mind, decide: Callable[[Question], Answer] | None
) -> None:
    ana = LearningStore(stores, mind, learn="llm" if decide else "rules")
    ana.learns("I love pizza", fact("The user loves pizza", "preference", "pizza"))
    loved = ana.only()
    mind.decide = decide or add_all
    ana.learns("I hate pizza", fact("The user hates pizza", "preference", "pizza"))
    assert ana.living() == ["The user hates pizza"] == ana.recalled("Do I love pizza?")
    assert (ana.only().id == loved.id) == (decide in {pizza_updated, None})
    if ana.only().id != loved.id:
        gone = ana.space.history(loved.id)[-1]
        assert gone.op == "forget" and gone.reason
        assert ana.space.restore(loved.id).content == "The user loves pizza"


COFFEE = {
    "I like coffee": "The user likes coffee",
    "I love coffee": "The user loves coffee",
    "I really like coffee": "The user really likes coffee",
    "I do enjoy coffee": "The user enjoys coffee",
    "I am fond of coffee": "The user is fond of coffee",
}


def coffee_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "coffee" in line]


def test_repeated_statement_stays_one_memory(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind)
    mind.decide = known_already
    for statement, content in COFFEE.items():
        ana.learns(statement, fact(content, "preference", "coffee"))
    assert (ana.living(), ana.only().version) == (["The user likes coffee"], 1)
    context = ana.space.session("cafe").context("Do I like coffee?")
    assert len(coffee_lines(context.profile)) == 1
    assert len(coffee_lines(context.recalled)) < len(COFFEE)


def test_near_duplicate_memories_are_not_all_recalled(stores: Stores) -> None:
    store = stores.open(learn="off", recall_floor=0.0)
    space = store.space("ana")
    cafe = space.session("cafe")
    assert cafe.context("Do I like coffee?").profile == ""
    for content in COFFEE.values():
        space.remember(content)
    space.remember("The user's coffee machine leaks")
    recalled = cafe.context("Do I like coffee?").recalled
    likes = [line for line in coffee_lines(recalled) if "machine" not in line]
    assert len(likes) == 1
    assert "The user's coffee machine leaks" in recalled


# -- what a person decided ------------------------------------------------------------------------

LEARNERS = pytest.mark.parametrize("how", ["llm", "rules"])
HOME = ("I live in Hamburg", fact("The user lives in Hamburg", "context", "home"))


@LEARNERS
def test_memory_forgotten_after_the_turn_stays_forgotten(
    stores: Stores, mind: Mind, how: str
) -> None:
    ana = LearningStore(stores, mind, learn=how)
    ana.learns(*HOME)
    home = ana.only()
    ana.append_turn("I live in Hamburg!", HOME[1])
    ana.space.forget(home.id, reason="none of your business")
    ana.store.run_pending_jobs()
    assert (ana.living(), learning_jobs(ana.store)) == ([], [])
    assert ana.space.get(home.id).version == 2
    ana.learns("I live in Hamburg, you may know that", HOME[1])
    assert ana.living() == ["The user lives in Hamburg"]


def test_forgotten_memory_does_not_return_in_other_words(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind)
    ana.learns("My ex is called Damian", fact("The user's ex is called Damian", "person"))
    ana.append_turn(
        "That reminds me of Damian, my ex", fact("Damian is an ex of the user", "person")
    )
    ana.space.forget(ana.only().id, reason="never mention him")
    ana.store.run_pending_jobs()
    assert (ana.living(), learning_jobs(ana.store)) == ([], [])


@LEARNERS
def test_memory_revised_after_the_turn_is_not_overwritten(
    stores: Stores, mind: Mind, how: str
) -> None:
    ana = LearningStore(stores, mind, learn=how)
    ana.learns("I live in Berlin", fact("The user lives in Berlin", "context", "home"))
    home = ana.only()
    ana.append_turn(*HOME)
    ana.space.revise(home.id, "The user lives in Munich")
    mind.decide = update("The user lives in Munich")
    ana.store.run_pending_jobs()
    assert (ana.living(), learning_jobs(ana.store)) == (["The user lives in Munich"], [])
    assert (ana.only().id, ana.only().version) == (home.id, 2)


@pytest.mark.parametrize("decide", [pizza_deleted, pizza_contradicted, pizza_replaced])
def test_memory_revised_after_the_turn_is_not_deleted(
    stores: Stores, mind: Mind, decide: Callable[[Question], Answer]
) -> None:
    ana = LearningStore(stores, mind)
    pizza = ana.space.remember("The user likes pizza", category="preference", subject="pizza")
    ana.append_turn("I hate pizza", fact("The user hates pizza", "preference", "pizza"))
    ana.space.revise(pizza.id, "The user loves pizza")
    mind.decide = decide
    ana.store.run_pending_jobs()
    assert (ana.living(), learning_jobs(ana.store)) == (["The user loves pizza"], [])


@LEARNERS
def test_turns_before_an_erasure_only_make_proposals(stores: Stores, mind: Mind, how: str) -> None:
    ana = LearningStore(stores, mind, learn=how)
    ana.learns(*HOME)
    ana.append_turn("I live in Hamburg!", HOME[1])
    ana.space.erase(ana.only().id)
    ana.store.run_pending_jobs()
    assert (ana.living(), learning_jobs(ana.store)) == ([], [])
    (proposal,) = ana.space.proposals()
    assert proposal.content == "The user lives in Hamburg"
    ana.learns("My dog is called Rex", fact("The user's dog is Rex", "person", "Rex"))
    assert ana.living() == ["The user's dog is Rex"]
    ana.space.accept(proposal.id)
    assert ana.living() == ["The user lives in Hamburg", "The user's dog is Rex"]


@LEARNERS
def test_erased_turn_teaches_nothing(stores: Stores, mind: Mind, how: str) -> None:
    ana = LearningStore(stores, mind, learn=how)
    ana.append_turn(*HOME)
    ana.session.erase()
    ana.store.run_pending_jobs()
    assert (ana.living(), ana.space.proposals()) == ([], [])
    assert learning_jobs(ana.store) == []


def test_model_cannot_forget_a_pinned_memory(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind)
    pinned = ana.space.remember("The user loves pizza", category="preference", pinned=True)
    mind.decide = pizza_replaced
    ana.learns("I hate pizza", fact("The user hates pizza", "preference"))
    assert ana.space.get(pinned.id).forgotten_at is None
    assert ana.living() == ["The user hates pizza", "The user loves pizza"]


# -- meanwhile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["agent", "person"])
def test_stale_plan_is_planned_again(stores: Stores, mind: Mind, trust: Any) -> None:
    ana = LearningStore(stores, mind)
    home = ana.space.remember("The user lives in Berlin", category="context", subject="home")
    other = ana.store.space("ana", trust=trust)

    def meddle(question: Question) -> Answer:
        if len(mind.decided) == 1:
            other.revise(home.id, "The user lives in Berlin with two cats")
            return update("The user lives in Berlin", "The user lives in Hamburg")(question)
        known = "The user lives in Berlin with two cats"
        return update(known, "The user lives in Hamburg with two cats")(question)

    mind.decide = meddle
    ana.learns(*HOME)
    assert [[known["content"] for known in each["known"]] for each in mind.decided] == [
        ["The user lives in Berlin"],
        ["The user lives in Berlin with two cats"],
    ]
    # Of two, the later wins; but what a person says is not a model's to overrule.
    city = "Hamburg" if trust == "agent" else "Berlin"
    assert ana.living() == [f"The user lives in {city} with two cats"]
    assert ana.only().id == home.id
    assert ana.only().version == (3 if trust == "agent" else 2)


def test_plan_that_stays_stale_is_retried_later(
    stores: Stores, mind: Mind, clock: FakeClock
) -> None:
    ana = LearningStore(stores, mind)
    home = ana.space.remember("The user lives in Berlin", category="context", subject="home")
    agent = ana.store.space("ana", trust="agent")

    def meddle(question: Question) -> Answer:
        (known,) = question["known"]
        agent.revise(home.id, f"{known['content']}!")
        return update(known["content"], "The user lives in Hamburg")(question)

    mind.decide = meddle
    ana.append_turn(*HOME)
    ana.store.run_pending_jobs()
    (error,) = learning_jobs(ana.store)
    assert error is not None and error.startswith("Stale")
    assert len(mind.decided) == 3
    mind.decide = update("The user lives in Berlin!!!", "The user lives in Hamburg")
    clock.step(HOUR)
    ana.store.run_pending_jobs()
    assert (ana.living(), learning_jobs(ana.store)) == (["The user lives in Hamburg"], [])


def test_turn_processed_late_does_not_overrule_a_later_one(
    stores: Stores, mind: Mind, clock: FakeClock
) -> None:
    ana = LearningStore(stores, mind)
    home = ana.space.remember("The user lives in Berlin", category="context", subject="home")
    mind.decide = lambda _: Status(503)
    ana.append_turn(*HOME)
    ana.store.run_pending_jobs()
    assert learning_jobs(ana.store) != []
    ana.session = ana.space.session("in the evening")
    ana.append_turn("I moved to Munich", fact("The user moved to Munich", "context", "home"))
    mind.decide = update("The user lives in Berlin", "The user lives in Munich")
    ana.store.run_pending_jobs()
    assert ana.living() == ["The user lives in Munich"]

    mind.decide = update("The user lives in Munich", "The user lives in Hamburg")
    clock.step(HOUR)
    ana.store.run_pending_jobs()
    assert learning_jobs(ana.store) == []
    assert (ana.living(), ana.only().id) == (["The user lives in Munich"], home.id)


def test_facts_that_cannot_be_reconciled_are_added_and_marked(
    stores: Stores, mind: Mind, clock: FakeClock
) -> None:
    ana = LearningStore(stores, mind)
    ana.space.remember("The user lives in Berlin", category="context", subject="home")
    mind.decide = lambda _: Status(500)
    ana.append_turn(*HOME)
    for _ in range(4):
        ana.store.run_pending_jobs()
        assert ana.living() == ["The user lives in Berlin"]
        assert learning_jobs(ana.store) != []
        clock.step(HOUR)
    ana.store.run_pending_jobs()
    assert learning_jobs(ana.store) == []
    assert ana.living() == ["The user lives in Berlin", "The user lives in Hamburg"]
    (added,) = ana.space.memories(tags=["unreconciled"])
    assert added.content == "The user lives in Hamburg"
    (version,) = ana.space.history(added.id)
    assert version.origin == ("talk", 1)
    assert (version.reason or "").startswith("not reconciled with what was known")


# -- what teaches nothing -------------------------------------------------------------------------


@LEARNERS
@pytest.mark.parametrize("trust", ["tool", "document"])
def test_turn_with_tool_trust_is_not_learned(
    stores: Stores, mind: Mind, how: str, trust: Any
) -> None:
    ana = LearningStore(stores, mind, learn=how)
    ana.session = ana.store.space("ana", trust=trust).session("talk")
    ana.append_turn(*HOME)
    assert learning_jobs(ana.store) == [] and ana.store.run_pending_jobs() == 0
    assert ana.living() == []


@LEARNERS
def test_messages_of_assistant_system_and_tool_are_not_learned(
    stores: Stores, mind: Mind, how: str
) -> None:
    ana = LearningStore(stores, mind, learn=how)
    for role in ("assistant", "system", "tool"):
        message = {"role": role, "content": HOME[0], "tool_call_id": "call-1"}
        ana.session.append(message)
    assert learning_jobs(ana.store) == [] and ana.store.run_pending_jobs() == 0
    assert ana.living() == []


def test_learning_can_be_turned_off(stores: Stores, mind: Mind) -> None:
    ana = LearningStore(stores, mind, learn="off")
    ana.append_turn(*HOME)
    ana.append_turn("Remember that I live in Hamburg.", HOME[1])
    assert learning_jobs(ana.store) == [] and ana.store.run_pending_jobs() == 0
    assert (ana.living(), mind.decided) == ([], [])


def test_pending_learn_jobs_are_dropped_when_learning_is_turned_off(
    stores: Stores, mind: Mind
) -> None:
    ana = LearningStore(stores, mind)
    ana.append_turn(*HOME)
    ana.store.close()
    again = LearningStore(stores, mind, learn="off")
    again.store.run_pending_jobs()
    assert (learning_jobs(again.store), again.living()) == ([], [])
