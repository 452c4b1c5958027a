"""Planned changes never overrule newer changes, a person's edits or shared memories."""

from __future__ import annotations

import pytest

from reverie import Origin, Space, Store
from reverie.engine import log
from reverie.learn import changes, learner
from reverie.learn.changes import PlannedChange, StalePlan, UserTurn
from reverie.learn.prompts import Decision, Fact
from reverie.model import UNNAMED, Scope
from reverie.write.writer import LEARNER, Author, Writer
from tests.conftest import Stores, engine_of
from tests.messages import user


def turn_of(store: Store, session: str, sequence: int) -> UserTurn:
    with engine_of(store).read() as tx:
        owner = log.resolve_owner(tx, Scope("ana", UNNAMED))
        assert owner is not None
        (entry,) = [
            entry
            for entry in log.session_entries(tx, owner, session)
            if entry.op == "append" and entry.sequence == sequence
        ]
    return UserTurn(Origin(session, sequence), entry.position, "", (), False)


def apply(
    store: Store, turn: UserTurn, planned: list[PlannedChange], seen: int | None = None
) -> None:
    runtime = store.runtime
    prepared = changes.prepare(runtime, planned, "test")
    with runtime.engine.write() as tx:
        owner = log.resolve_owner(tx, Scope("ana", UNNAMED))
        assert owner is not None
        position = log.last_position(tx, owner) if seen is None else seen
        w = Writer(tx, runtime, owner, Author(Scope("ana", UNNAMED), LEARNER, "model"))
        changes.apply(w, turn, prepared, position, "test")


def contents(space: Space) -> set[str]:
    return {memory.content for memory in space.memories()}


def test_change_older_than_a_newer_statement_is_not_added(store: Store, space: Space) -> None:
    space.session("old").append(user("I live in Paris"))
    space.session("new").append(user("I live in Rome"))
    apply(store, turn_of(store, "new", 1), [PlannedChange("ADD", "The user lives in Rome")])
    (rome,) = space.memories()
    planned = learner.plan_by_decisions(
        [Fact(content="The user lives in Paris", category="context")],
        [rome],
        [Decision(event="DELETE", id=0, fact=0), Decision(event="ADD", fact=0)],
        explicit=False,
        fact_chars=500,
    )
    apply(store, turn_of(store, "old", 1), planned)
    assert contents(space) == {"The user lives in Rome"}


def test_model_cannot_bring_tool_content_into_the_profile(store: Store, space: Space) -> None:
    space.session("s").append(user("my car is blue"))
    stored = store.space("ana", trust="tool").remember("MALLORY says the car is red", subject="car")
    update = PlannedChange("UPDATE", "MALLORY says the car is blue", target=stored)
    apply(store, turn_of(store, "s", 1), [update])
    assert space.get(stored.id).content.endswith("blue") and space.get(stored.id).trust == "tool"
    assert "MALLORY" not in space.profile()


def test_second_plan_for_one_subject_is_planned_again(store: Store, space: Space) -> None:
    space.session("s").append(user("I live in Rome"))
    turn = turn_of(store, "s", 1)
    seen = store.spaces()[0].position
    home = PlannedChange("ADD", "The user lives in Paris", "context", "home")
    apply(store, turn, [home], seen)
    late = PlannedChange("ADD", "The user lives in Rome", "context", "home")
    with pytest.raises(StalePlan):
        apply(store, turn, [late, PlannedChange("ADD", "The user likes tea")], seen)
    assert contents(space) == {"The user lives in Paris"}, "all or nothing"


@pytest.mark.parametrize("changed_since", [False, True])
def test_accepted_replacement_forgets_what_nobody_changed_since(
    store: Store, space: Space, changed_since: bool
) -> None:
    paris = space.remember("The user lives in Paris")
    space.session("s").append(user("I think I live in Rome"))
    rome = PlannedChange(
        *("ADD", "The user lives in Rome", "context", "home"),
        replaces=(paris.id,),
        doubt=changes.DOUBTFUL,
    )
    apply(store, turn_of(store, "s", 1), [PlannedChange("DELETE", "", target=paris), rome])
    assert contents(space) == {"The user lives in Paris"}, "nothing is forgotten before the answer"
    (proposal,) = space.proposals()
    if changed_since:
        space.revise(paris.id, "The user lives in Paris on weekdays")
    space.accept(proposal.id)
    kept = {"The user lives in Paris on weekdays"} if changed_since else set()
    assert contents(space) == {"The user lives in Rome", *kept}
    assert store.verify().ok


def test_update_of_an_unreconciled_memory_reconciles_it(store: Store, space: Space) -> None:
    space.session("s").append(user("tea"))
    turn = turn_of(store, "s", 1)
    apply(store, turn, [PlannedChange("ADD", "The user likes tea", tags=(changes.UNRECONCILED,))])
    (memory,) = space.memories(tags=[changes.UNRECONCILED])
    apply(store, turn, [PlannedChange("UPDATE", "The user likes green tea", target=memory)])
    assert space.get(memory.id).tags == ()


def test_notices_show_only_memories_that_are_still_current(stores: Stores) -> None:
    store = stores.open(write_policy="notify", learn="rules")
    space = store.space("ana")
    session = space.session("s")
    session.append(user("I live in Paris. I love pizza."))
    store.run_pending_jobs()
    assert "Paris" in session.context().notices and "pizza" in session.context().notices
    (home,) = space.memories(subject="home")
    space.forget(home.id)
    (food,) = space.memories(subject="pizza")
    space.revise(food.id, "Pizza is fine")
    assert session.context().notices == ""
