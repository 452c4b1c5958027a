"""Sessions that are hidden, restored, hidden by the cap, or erased with what depends on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie import (
    KeyConflict,
    NotFound,
    Origin,
    SequenceConflict,
    Session,
    Space,
    Store,
)
from tests.conftest import DAY, HOUR, FakeClock, Stores, rows
from tests.messages import found, propose, reply, texts, user


def shown(space: Space) -> list[str]:
    return [info.id for info in space.sessions()]


# -- hiding and restoring -------------------------------------------------------------------------


def test_hidden_session_is_absent_from_lists_and_recall(
    store: Store, space: Space, clock: FakeClock
) -> None:
    session, other = space.session("s"), space.session("t")
    session.append_many([user("zebra one"), reply("zebra two"), user(None)])
    other.append(user("zebra elsewhere"))
    clock.step(HOUR)
    session.hide("it is done")
    assert shown(space) == ["t"]
    hidden = space.sessions(include_hidden=True)
    assert [(info.id, info.hidden_at) for info in hidden] == [("t", None), ("s", clock.now())]
    for handle in (space, session, other):
        assert found(handle, "zebra") == {"zebra elsewhere"}
        assert len(handle.recall("zebra", mode="vector", limit=50)) == 1
    assert texts(session) == ["zebra one", "zebra two", ""]
    assert session.info() == hidden[1] and session.resume() != []
    assert rows(store, "SELECT reason FROM log WHERE op = 'hide'") == [("it is done",)]
    assert found(space, "zebra", as_of=4) == {"zebra one", "zebra two", "zebra elsewhere"}
    assert found(space, "zebra", as_of=5) == {"zebra elsewhere"}
    assert store.verify().ok
    session.restore()
    assert shown(space) == ["t", "s"] and session.info().hidden_at is None
    assert found(space, "zebra") == {"zebra one", "zebra two", "zebra elsewhere"}
    assert len(space.recall("zebra", mode="vector", limit=50)) == 3
    assert found(space, "zebra", as_of=5) == {"zebra elsewhere"}
    assert store.verify().ok


def test_hide_called_twice_writes_one_entry(store: Store, space: Space, clock: FakeClock) -> None:
    session = space.session("s")
    session.append(user("zebra"))
    session.restore()
    assert store.spaces()[0].position == 1
    session.hide()
    since = session.info().hidden_at
    clock.step(HOUR)
    session.hide("again")
    assert store.spaces()[0].position == 2
    session.hide("again", key="k")
    assert session.info().hidden_at == since and found(space, "zebra") == set()
    session.restore()
    session.hide("again", key="k")
    assert session.info().hidden_at is None, "the key was used up"
    with pytest.raises(KeyConflict):
        session.restore(key="k")
    with pytest.raises(KeyConflict):
        space.session("t").hide("again", key="k")
    session.restore(key="r")
    session.hide()
    session.restore(key="r")
    assert session.info().hidden_at is not None
    assert store.verify().ok
    for verb in (space.session("none").hide, space.session("none").restore):
        with pytest.raises(NotFound):
            verb()


def test_failed_append_does_not_restore_a_hidden_session(store: Store, space: Space) -> None:
    session = space.session("s")
    session.append(user("zebra"), sequence=5)
    session.hide()
    with pytest.raises(SequenceConflict):
        session.append(user("x"), sequence=3)
    assert shown(space) == [] and store.spaces()[0].position == 2


def test_append_restores_a_hidden_session(store: Store, space: Space) -> None:
    session = space.session("s")
    session.append_many([user("zebra"), reply("one")])
    session.hide()
    assert session.append(user("zebra again")).sequence == 3
    assert shown(space) == ["s"] and {"zebra", "zebra again"} <= found(space, "zebra")
    session.hide()
    followed = space.follow([user("zebra"), reply("one"), user("zebra again"), reply("two")])
    assert followed.id == "s" and shown(space) == ["s"]
    session.hide()
    space.follow([user("zebra"), reply("one"), user("zebra again"), reply("two")])
    assert shown(space) == [], "nothing was new"
    with pytest.raises(NotFound):
        space.session("t").hide()
    assert store.verify().ok


# -- the cap --------------------------------------------------------------------------------------


def test_session_cap_hides_the_least_recent_session(stores: Stores, clock: FakeClock) -> None:
    store = stores.open(max_sessions=3)
    space, other = store.space("ana"), store.space("ana", user="bo")
    for name in "abc":
        clock.step(-HOUR)
        space.session(name).append_many([user(f"zebra {name} {n}") for n in range(9)])
    assert shown(space) == ["c", "b", "a"]
    space.session("a").append(user("zebra a once more"))
    for name in "abcd":
        other.session(name).append(user("x"))
    assert shown(space) == ["a", "c", "b"]
    space.session("d").append(user("zebra d"))
    assert shown(space) == ["d", "a", "c"]
    assert len(space.sessions(include_hidden=True)) == 4
    assert len(texts(space.session("b"))) == 9
    assert not any(text.startswith("zebra b") for text in found(space, "zebra"))
    assert rows(store, "SELECT reason FROM log WHERE op = 'hide' AND session = 'b'") == [
        ("the cap of 3 sessions was reached",)
    ]
    space.follow([user("a fifth")])
    assert len(shown(space)) == 3 and "c" not in shown(space)
    assert shown(other) == ["d", "c", "b"]
    assert store.verify().ok


def test_session_cap_applies_when_a_hidden_session_is_restored(stores: Stores) -> None:
    space = stores.open(max_sessions=2).space("ana")
    for name in "abc":
        space.session(name).append(user(name))
    assert shown(space) == ["c", "b"]
    space.session("a").append(user("again"))
    assert shown(space) == ["a", "c"]


def test_no_session_is_hidden_without_a_cap(stores: Stores) -> None:
    store = stores.open(learn="off")
    space = store.space("ana")
    for number in range(40):
        space.session(f"s{number}").append(user("x"))
    assert len(space.sessions()) == 40
    store.close()
    lower = stores.open(max_sessions=3, learn="off").space("ana")
    for number in range(2):
        lower.session(f"new {number}").append(user("x"))
    assert shown(lower) == ["new 1", "new 0", "s39"]


# -- erasing --------------------------------------------------------------------------------------


def live(space: Space, name: str, word: str) -> Session:
    """A session with everything a session can have."""
    session = space.session(name)
    session.append_many([user(f"{word} asked"), reply(f"{word} answered")], key=f"{name} key")
    session.append(user(f"{word} asked more"))
    session.hide(f"{word} reason")
    session.restore()
    session.remember(f"{word} private", subject=f"{word} subject", tags=[word], private=True)
    session.write_summary(f"{word} summary", upper=2, expected_epoch=0)
    session.scratchpad.write([f"{word} item"])
    space.remember(f"{word} learned", origin=Origin(name, 1), source=word)
    propose(space, f"{word} proposed", Origin(name, 1))
    space.accept(propose(space, f"{word} accepted", Origin(name, 2)))
    space.reject(propose(space, f"{word} rejected", Origin(name, 3)), reason=f"{word} no")
    session.context(f"{word} asked?")
    return session


def test_erase_of_a_session_destroys_everything_derived_from_it(
    stores: Stores, tmp_path: Path, clock: FakeClock
) -> None:
    store = stores.open(write_policy="ask")
    space = store.space("ana")
    session, kept = live(space, "s", "canarybird"), live(space, "t", "sparrow")
    forked = space.follow([user("canarybird asked"), reply("canarybird answered"), user("else")])
    before = [space.proposals(include_answered=True)[3:], kept.events(), kept.memories()]
    assert len(session.memories()) == 1 and len(space.memories()) == 4
    report = session.erase()
    assert (report.session, report.events, report.pending) == ("s", 3, False)
    assert len(report.memories) == 3 and len(report.entries) >= 3
    assert session.events() == [] and session.memories() == [] and session.resume() == []
    assert session.summary().text == "" and session.scratchpad.read().items == ()
    assert shown(space) == [forked.id, "t"] and texts(forked) == ["else"]
    assert "s" not in [info.id for info in space.sessions(include_hidden=True)]
    assert "canarybird" not in repr([found(space, "canarybird"), found(session, "canarybird")])
    assert "canarybird" not in repr([space.memories(include_forgotten=True), list(space.export())])
    assert before == [space.proposals(include_answered=True), kept.events(), kept.memories()]
    assert not [job for job in store.jobs() if job.payload.get("session") == "s"]
    for verb in (session.info, session.erase, session.hide, session.restore):
        with pytest.raises(NotFound):
            verb()
    space.remember("the next write takes buffered notes along")
    store.close()
    for file in tmp_path.iterdir():
        assert b"canarybird" not in file.read_bytes(), file
    assert stores.open().verify().ok


def test_erase_of_a_session_keeps_memories_also_stated_elsewhere(
    store: Store, space: Space
) -> None:
    space.session("s").append(user("x"))
    space.session("t").append(user("y"))
    from_s, from_t = Origin("s", 1), Origin("t", 1)
    alone = space.remember("from s alone", origin=from_s)
    revised = space.remember("from s, then revised", origin=from_s)
    space.revise(revised.id, "a person's own words")
    other = space.remember("from t", origin=from_t)
    free = space.remember("from nowhere")
    report = space.session("s").erase()
    assert report.memories == (alone.id,)
    assert {memory.id for memory in space.memories()} == {revised.id, other.id, free.id}
    assert space.get(revised.id).content == "a person's own words"
    assert store.verify().ok


@pytest.mark.parametrize("again", [False, True])
def test_erase_of_a_session_erases_its_forgotten_memories(space: Space, again: bool) -> None:
    """Forgetting adds no words: nothing but the session ever said this."""
    space.session("s").append(user("canarybird"))
    memory = space.remember("canarybird learned", origin=Origin("s", 1))
    space.forget(memory.id)
    if again:
        space.restore(memory.id)
    assert space.session("s").erase().memories == (memory.id,)
    assert "canarybird" not in repr(list(space.export()))


def test_session_with_private_memories_only_can_be_erased(space: Space) -> None:
    session = space.session("s")
    memory = session.remember("canarybird", private=True)
    session.scratchpad.write(["canarybird"])
    assert session.erase().memories == (memory.id,)
    assert session.memories() == [] and session.scratchpad.read().items == ()


def test_erased_session_id_can_be_used_again(store: Store, space: Space, clock: FakeClock) -> None:
    session = space.session("s")
    session.append_many([user("zebra"), reply("one"), user("two")])
    session.write_summary("summed up", upper=2, expected_epoch=0)
    space.remember("known before")
    frozen = session.context().profile
    session.hide()
    session.erase()
    space.remember("known since")
    clock.step(DAY)
    event = session.append(user("a new beginning"))
    assert event.sequence == 4, "a sequence is never used again"
    (info,) = space.sessions()
    assert (info.events, info.preview, info.hidden_at) == (1, "a new beginning", None)
    assert (info.updated_at, info.forked_from) == (clock.now(), None)
    assert (session.summary().text, session.summary().upper) == ("", 0)
    assert session.write_summary("stale", upper=4, expected_epoch=1).applied is False
    assert texts(session) == ["a new beginning"]
    assert session.context().profile != frozen
    assert space.follow([user("a new beginning"), reply("x")]).id == "s"
    assert space.follow([user("zebra"), reply("one")]).id != "s"
    assert store.verify().ok
    store.rebuild()
    assert texts(session) == ["a new beginning", "x"] and store.verify().ok


def test_session_used_again_after_erase_has_a_new_start_time(
    space: Space, clock: FakeClock
) -> None:
    session = space.session("s")
    session.append(user("long ago"))
    session.erase()
    clock.step(DAY)
    session.append(user("a new beginning"))
    assert session.info().opened_at == clock.now()


def test_erase_with_the_same_key_returns_the_first_report(space: Space) -> None:
    session = space.session("s")
    session.append(user("a"))
    report = session.erase(key="e")
    assert session.erase(key="e") == report
    with pytest.raises(KeyConflict):
        space.session("t").erase(key="e")
    session.append(user("b"))
    assert session.erase(key="e") == report
    assert texts(session) == ["b"], "the key was used up"
    with pytest.raises(NotFound):
        space.session("t").erase(key="t")


def test_second_erase_does_not_change_the_first_report(space: Space) -> None:
    session = space.session("s")
    session.append(user("a"))
    first = session.erase(key="first")
    session.append_many([user("b"), user("c")])
    second = session.erase(key="second")
    assert session.erase(key="second") == second
    assert session.erase(key="first") == first


def test_erase_of_a_parent_erases_its_events_in_every_fork(store: Store, space: Space) -> None:
    parent = space.follow([user("one"), reply("two"), user("three")])
    child = space.follow([user("one"), reply("two"), user("four"), reply("five"), user("six")])
    grandchild = space.follow([user("one"), reply("two"), user("four"), reply("five"), user("7")])
    child.write_summary("one two four", upper=4, expected_epoch=0)
    grandchild.write_summary("one two four", upper=4, expected_epoch=0)
    assert texts(grandchild) == ["one", "two", "four", "five", "7"]
    parent.erase()
    assert texts(child) == ["four", "five", "six"]
    assert texts(grandchild) == ["four", "five", "7"]
    assert (child.summary().text, grandchild.summary().text) == ("", "")
    assert child.write_summary("stale", upper=4, expected_epoch=1).applied is False
    assert store.verify().ok
    child.erase()
    assert texts(grandchild) == ["7"]
    assert grandchild.info().events == 1 and store.verify().ok
    store.rebuild()
    assert texts(grandchild) == ["7"] and store.verify().ok


def test_events_of_a_fork_stay_when_its_erased_parent_is_used_again(
    store: Store, space: Space
) -> None:
    space.follow([user("one"), reply("two"), user("three")])
    child = space.follow([user("one"), reply("two"), user("four"), reply("five")])
    grandchild = space.follow([user("one"), reply("two"), user("four"), reply("six")])
    child.erase()
    assert texts(grandchild) == ["one", "two", "six"]
    child.append(user("a new beginning"))
    assert texts(grandchild) == ["one", "two", "six"]
    store.rebuild()
    assert texts(grandchild) == ["one", "two", "six"] and store.verify().ok


def test_erase_of_a_fork_leaves_nothing_of_it(store: Store, space: Space) -> None:
    """What it shared belongs to its parent."""
    parent = space.follow([user("one"), reply("two"), user("three")])
    fork = space.follow([user("one"), reply("two"), user("four")])
    parent.remember("zebra")
    fork.erase()
    for handle in (fork, space.session(fork.id)):
        assert handle.events() == [] and handle.resume() == [] and handle.memories() == []
        assert handle.context("zebra").history == () and handle.forked_from is None
    store.rebuild()
    assert space.session(fork.id).events() == [] and texts(parent) == ["one", "two", "three"]
    fork.append(user("begun again"))
    assert texts(fork) == ["begun again"] and fork.forked_from is None
    assert store.verify().ok


# -- erasing a memory with its source -------------------------------------------------------------


def test_erase_with_source_erases_the_event(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    space = store.space("ana")
    session = space.session("s")
    session.append_many([user("hello"), user("canarybird is my secret"), reply("noted")])
    fork = space.follow([user("hello"), user("canarybird is my secret"), reply("thanks")])
    early = space.follow([user("hello"), reply("hi there")])
    for handle in (session, fork, early):
        handle.write_summary(
            "canarybird" if handle is not early else "x", upper=1, expected_epoch=0
        )
    memory = space.remember("The secret is canarybird", origin=Origin("s", 2))
    propose(space, "canarybird proposed", Origin("s", 2))
    report = space.erase(memory.id, with_source=True)
    assert report.sources == (Origin("s", 2),) and len(report.entries) == 3
    assert texts(session) == ["hello", "noted"] and session.info().events == 2
    assert [event.sequence for event in session.events()] == [1, 3]
    assert texts(fork) == ["hello", "thanks"]
    assert session.summary().text == fork.summary().text == ""
    assert early.summary().text == "x", "it forked off before"
    assert session.write_summary("stale", upper=3, expected_epoch=1).applied is False
    assert space.proposals(include_answered=True) == []
    assert found(space, "canarybird") - {"hello", "noted", "thanks", "hi there"} == set()
    assert session.append(user("next")).sequence == 4
    assert space.follow([user("hello"), reply("noted"), user("next"), reply("x")]).id == "s"
    store.close()
    for file in tmp_path.iterdir():
        assert b"canarybird" not in file.read_bytes(), file
    store = stores.open()
    assert store.verify().ok
    store.rebuild()
    assert texts(store.space("ana").session("s")) == ["hello", "noted", "next", "x"]
    assert store.verify().ok


def test_erase_without_source_keeps_the_event(space: Space) -> None:
    session = space.session("s")
    session.append_many([user("a secret"), reply("noted")])
    session.write_summary("summed up", upper=2, expected_epoch=0)
    memory = space.remember("secret", origin=Origin("s", 1))
    assert space.erase(memory.id).sources == ()
    assert texts(session) == ["a secret", "noted"] and session.summary().text == "summed up"


def test_erase_with_source_works_when_the_event_is_gone(store: Store, space: Space) -> None:
    space.session("s").append(user("x"))
    unknown = space.remember("one", origin=Origin("s", 9))
    gone = space.remember("two", origin=Origin("t", 1))
    for memory in (unknown, gone):
        space.erase(memory.id, with_source=True)
    other = store.space("ana", user="bo").remember("three", origin=Origin("s", 1))
    store.space("ana", user="bo").erase(other.id, with_source=True)
    assert texts(space.session("s")) == ["x"] and store.verify().ok


def test_erase_of_the_first_event_changes_the_preview(space: Space) -> None:
    session = space.session("s")
    session.append_many([user("canarybird"), reply("x"), user("what came next")])
    memory = space.remember("y", origin=Origin("s", 1))
    space.erase(memory.id, with_source=True)
    assert session.info().preview == "what came next"
    memory = space.remember("z", origin=Origin("s", 3))
    space.erase(memory.id, with_source=True)
    assert session.info().preview == "Untitled"


def test_erase_of_the_last_event_removes_the_session(store: Store, space: Space) -> None:
    session = space.session("s")
    session.append(user("x"))
    session.hide()
    memory = space.remember("y", origin=Origin("s", 1))
    space.erase(memory.id, with_source=True)
    assert space.sessions(include_hidden=True) == [] and session.events() == []
    assert session.append(user("again")).sequence == 2
    assert shown(space) == ["s"] and store.verify().ok
    store.rebuild()
    assert shown(space) == ["s"] and store.verify().ok
