"""Proposals of new memories: each is accepted or rejected once."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import Conflict, KeyConflict, NotFound, Origin, Proposal, Space, Store
from tests.conftest import HOUR, START, FakeClock, Stores, rows
from tests.messages import propose, user


def begin(space: Space) -> Space:
    space.session("s").append_many([user(text) for text in ("one", "two")])
    return space


def test_proposal_is_listed_and_is_no_memory(store: Store, space: Space, clock: FakeClock) -> None:
    begin(space)
    first = propose(space, "The user is Ana", category="person", subject="Ana")
    clock.step(HOUR)
    second = propose(space, "The user has a cat", Origin("s", 2))
    assert space.proposals() == [
        Proposal(first, "The user is Ana", "person", "Ana", Origin("s", 1), "rules", START),
        Proposal(
            second, "The user has a cat", "general", None, Origin("s", 2), "rules", START + HOUR
        ),
    ]
    assert space.proposals(include_answered=True) == space.proposals()
    assert space.memories() == [] and space.profile() == ""
    assert {hit.kind for hit in space.recall("Ana cat")} <= {"event"}
    assert store.verify().ok


def test_accept_remembers_a_proposal_with_its_origin(store: Store, space: Space) -> None:
    begin(space)
    id = propose(space, "The user is Ana", Origin("s", 2), "person", "Ana")
    memory = space.accept(id)
    assert (memory.content, memory.category, memory.subject) == ("The user is Ana", "person", "Ana")
    assert (memory.kind, memory.source, memory.version) == ("fact", "rules", 1)
    assert space.history(memory.id)[0].origin == Origin("s", 2)
    assert memory.id in space.profile() and space.memories() == [memory]
    assert space.proposals() == []
    (answered,) = space.proposals(include_answered=True)
    assert (answered.id, answered.answer, answered.memory_id) == (id, "accept", memory.id)
    assert space.accept(id) == memory and space.accept(id, key="k") == memory
    revised = space.revise(memory.id, "The user is Anna")
    assert space.accept(id) == revised and len(space.memories()) == 1
    with pytest.raises(Conflict):
        space.reject(id)
    assert store.verify().ok


def test_reject_takes_a_proposal_off_the_list(store: Store, space: Space) -> None:
    begin(space)
    id, other = propose(space, "wrong"), propose(space, "right")
    rejected = space.reject(id, reason="untrue")
    assert (rejected.id, rejected.answer, rejected.memory_id) == (id, "reject", None)
    assert space.reject(id) == rejected
    assert [proposal.id for proposal in space.proposals()] == [other]
    assert [p.answer for p in space.proposals(include_answered=True)] == ["reject", None]
    assert rows(store, "SELECT reason FROM log WHERE op = 'reject'") == [("untrue",)]
    assert space.memories() == [] and store.verify().ok


def test_accept_and_reject_with_the_same_key_return_the_first_result(
    space: Space, stores: Stores
) -> None:
    begin(space)
    one, two, three = (propose(space, text) for text in ("one", "two", "three"))
    memory = space.accept(one, key="a")
    rejected = space.reject(two, key="r")
    assert space.accept(one, key="a") == memory and space.reject(two, key="r") == rejected
    for call in (
        lambda: space.accept(three, key="a"),
        lambda: space.reject(three, key="a"),
        lambda: space.accept(three, key="r"),
        lambda: space.remember("x", key="a"),
        lambda: space.session("s").append(user("x"), key="r"),
    ):
        with pytest.raises(KeyConflict):
            call()
    assert [proposal.id for proposal in space.proposals()] == [three]
    assert stores.open().space("ana").accept(one, key="a") == memory


def test_proposals_are_visible_to_their_owner_only(store: Store) -> None:
    handles = [
        store.space("ana"),
        store.space("ana", user="bo"),
        store.space("ana", user="cy"),
        store.space("ben"),
    ]
    made = [propose(begin(handle), f"of {number}") for number, handle in enumerate(handles)]
    for number, handle in enumerate(handles):
        assert [proposal.content for proposal in handle.proposals()] == [f"of {number}"]
        for other in {*made} - {made[number]}:
            with pytest.raises(NotFound):
                handle.accept(other)
            with pytest.raises(NotFound):
                handle.reject(other)
    for number, handle in enumerate(handles):
        assert handle.accept(made[number]).user == handle.user
    assert all(handle.proposals() == [] for handle in handles) and store.verify().ok


@pytest.mark.parametrize("id", ["", "nothere1", "'; --", "\0", "ä" * 300])
def test_unknown_proposal_is_not_found(space: Space, id: str) -> None:
    for handle in (space, begin(space)):
        with pytest.raises(NotFound):
            handle.accept(id)
        with pytest.raises(NotFound):
            handle.reject(id)
    assert space.memories() == []


def test_erase_of_an_accepted_memory_erases_its_proposal(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    space = begin(store.space("ana"))
    id = propose(space, "canarybird", subject="canarybird")
    kept = propose(space, "kept")
    memory = space.accept(id)
    space.revise(memory.id, "canarybird again")
    report = space.erase(memory.id)
    assert len(report.entries) == 3
    assert [proposal.id for proposal in space.proposals(include_answered=True)] == [kept]
    for verb in (space.accept, space.reject):
        with pytest.raises(NotFound):
            verb(id)
    assert "canarybird" not in repr(list(space.export())) and store.verify().ok
    store.rebuild()
    assert [proposal.id for proposal in space.proposals(include_answered=True)] == [kept]
    store.close()
    for file in tmp_path.iterdir():
        assert b"canarybird" not in file.read_bytes(), file


def test_erase_of_a_session_erases_its_proposals(store: Store, space: Space) -> None:
    begin(space)
    space.session("t").append(user("three"))
    accepted, rejected, waiting = (propose(space, text) for text in ("one", "two", "three"))
    revised = space.accept(propose(space, "four"))
    space.revise(revised.id, "in a person's words")
    kept = propose(space, "kept", Origin("t", 1))
    memory = space.accept(accepted)
    space.reject(rejected)
    report = space.session("s").erase()
    assert report.memories == (memory.id,)
    assert [proposal.id for proposal in space.proposals(include_answered=True)] == [kept]
    assert [m.content for m in space.memories()] == ["in a person's words"]
    with pytest.raises(NotFound):
        space.accept(waiting)
    assert store.verify().ok
    store.rebuild()
    assert [proposal.id for proposal in space.proposals(include_answered=True)] == [kept]


def test_proposal_stays_accepted_when_its_memory_is_forgotten(space: Space) -> None:
    begin(space)
    id = propose(space, "one")
    memory = space.accept(id)
    gone = space.forget(memory.id)
    assert space.accept(id) == gone and space.memories() == []
    assert space.proposals() == []


def test_import_includes_proposals(stores: Stores) -> None:
    space = begin(stores.open().space("ana"))
    space.accept(propose(space, "accepted"))
    space.reject(propose(space, "rejected"), reason="no")
    propose(space, "waiting", subject="x")
    there = stores.open("there")
    report = there.space("ana").import_records(space.export())
    assert report.skipped == ()
    known = there.space("ana").proposals(include_answered=True)
    assert known == space.proposals(include_answered=True)
    assert there.space("ana").accept(known[0].id).content == "accepted"
    assert there.space("ana").accept(known[2].id).content == "waiting"
    assert there.verify().ok
    assert there.space("ana").import_records(space.export()).added == 0
    assert [p.answer for p in there.space("ana").proposals(include_answered=True)] == [
        "accept",
        "reject",
        "accept",
    ]


def test_import_of_an_accepted_and_erased_proposal_omits_nothing_else(stores: Stores) -> None:
    space = begin(stores.open().space("ana"))
    memory = space.accept(propose(space, "canarybird"))
    space.erase(memory.id)
    there = stores.open("there")
    exported = list(space.export())
    report = there.space("ana").import_records(exported)
    assert (report.added, report.skipped) == (len(exported), ())
    assert there.space("ana").proposals(include_answered=True) == [] and there.verify().ok
