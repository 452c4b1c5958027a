"""Accepting a proposal replaces what the plan would have replaced without asking."""

from __future__ import annotations

from reverie import Space, Store
from tests.conftest import Stores
from tests.messages import user

OSLO, BERGEN = "The user lives in Oslo", "The user lives in Bergen"


def say(store: Store, *texts: str) -> Space:
    space = store.space("ana")
    for text in texts:
        space.session("s").append(user(text))
        store.run_pending_jobs()
    assert store.jobs() == []
    return space


def contents(space: Space) -> list[str]:
    return [memory.content for memory in space.memories()]


def accept_all(space: Space) -> None:
    for proposal in space.proposals():
        space.accept(proposal.id)


def test_accepted_doubtful_value_replaces_the_one_accepted_before(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.")
    home = space.accept(space.proposals()[0].id)
    say(store, "I think I live in Bergen.")
    (proposal,) = space.proposals()
    revised = space.accept(proposal.id)
    assert (revised.id, revised.version, revised.content) == (home.id, 2, BERGEN)
    assert contents(space) == [BERGEN]
    assert space.accept(proposal.id) == revised
    assert space.history(home.id)[-1].origin == proposal.origin
    assert store.verify().ok


def test_accepted_value_replaces_the_earlier_proposal_that_was_accepted(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.", "I live in Bergen.")
    assert [proposal.content for proposal in space.proposals()] == [OSLO, BERGEN]
    accept_all(space)
    assert contents(space) == [BERGEN] and store.verify().ok


def test_value_said_later_counts_whichever_is_accepted_first(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.", "I live in Bergen.", "I live in Rome.")
    oslo, bergen, rome = space.proposals()
    home = space.accept(bergen.id)
    assert space.accept(oslo.id) == home and contents(space) == [BERGEN]
    assert space.accept(oslo.id) == home and space.proposals() == [rome]
    answered = space.proposals(include_answered=True)
    assert [each.memory_id for each in answered] == [home.id, home.id, None]
    assert space.accept(rome.id).id == home.id
    assert contents(space) == ["The user lives in Rome"] and store.verify().ok


def test_value_said_earlier_is_accepted_after_the_later_one_was_forgotten(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.", "I live in Bergen.")
    first, second = space.proposals()
    space.forget(space.accept(second.id).id)
    space.accept(first.id)
    assert contents(space) == [OSLO]


def test_value_said_earlier_leaves_what_the_later_one_was_revised_to(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.", "I live in Bergen.")
    first, second = space.proposals()
    revised = space.revise(space.accept(second.id).id, "The user lives in Rome")
    assert space.accept(first.id) == revised and space.memories() == [revised]


def label(space: Space, id: str) -> None:
    """Change all of a memory but what it says."""
    space.revise(id, pinned=True)
    space.revise(id, tags=["mine"], metadata={"seen": True}, category="place")


def test_accepted_value_replaces_what_was_only_labelled_since(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.")
    home = space.accept(space.proposals()[0].id)
    say(store, "I think I live in Bergen.")
    label(space, home.id)
    accept_all(space)
    (revised,) = space.memories()
    assert (revised.id, revised.content, revised.pinned) == (home.id, BERGEN, True)
    assert revised.tags == ("mine",) and revised.metadata == {"seen": True}


def test_accepted_value_replaces_the_accepted_one_that_was_only_labelled(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.", "I live in Bergen.")
    first, second = space.proposals()
    home = space.accept(first.id)
    label(space, home.id)
    assert space.accept(second.id).id == home.id and contents(space) == [BERGEN]


def test_accepted_value_is_added_beside_one_whose_validity_was_changed(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.", "I live in Bergen.")
    first, second = space.proposals()
    space.revise(space.accept(first.id).id, valid_to="2024-05-01")
    assert space.accept(second.id).valid_to is None
    assert sorted(contents(space)) == [BERGEN, OSLO]


def test_accepted_fact_leaves_other_facts_of_its_subject(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I love pizza.", "I love sushi.", "My sister is called Mia.")
    accept_all(space)
    assert len(contents(space)) == 3


def test_accepted_value_is_added_beside_what_a_person_changed_since(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.")
    home = space.accept(space.proposals()[0].id)
    say(store, "I think I live in Bergen.")
    space.revise(home.id, "The user lives in Rome")
    accept_all(space)
    assert sorted(contents(space)) == [BERGEN, "The user lives in Rome"]


def test_accepted_value_does_not_bring_back_what_a_person_forgot(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.", "I live in Bergen.")
    first, second = space.proposals()
    home = space.accept(first.id)
    space.forget(home.id)
    added = space.accept(second.id)
    assert added.id != home.id and contents(space) == [BERGEN]


def test_imported_proposal_replaces_the_same_memory_when_accepted(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    space = say(store, "I live in Oslo.")
    space.accept(space.proposals()[0].id)
    say(store, "I think I live in Bergen.")
    there = stores.open("there")
    assert there.space("ana").import_records(space.export()).skipped == ()
    accept_all(there.space("ana"))
    assert contents(there.space("ana")) == [BERGEN] and there.verify().ok
    accept_all(space)
    again = stores.open("again")
    assert again.space("ana").import_records(space.export()).skipped == ()
    known = again.space("ana").proposals(include_answered=True)
    assert known == space.proposals(include_answered=True)
    again.rebuild()
    assert contents(again.space("ana")) == [BERGEN] and again.verify().ok
