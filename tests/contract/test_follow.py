"""follow: a client resends its whole history each turn, and only new messages are stored."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from reverie import InvalidInput, KeyConflict, Origin, Space, Store
from reverie.write import events
from tests.conftest import Stores
from tests.messages import Message, answer, conversation, reply, system, texts, user


def call(id: str, arguments: str) -> Message:
    function = {"name": "weather", "arguments": arguments}
    return {
        "role": "assistant",
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def kept(store: Store) -> int:
    """How many events the store holds."""
    return store.verify().events


# -- the same history, a turn longer --------------------------------------------------------------


def test_follow_stores_only_new_messages(store: Store, space: Space) -> None:
    history: list[Message] = []
    ids = set()
    for turn in range(12):
        history.append(user(f"question {turn}"))
        ids.add(space.follow(history).id)
        history.append(reply(f"answer {turn}"))
    session = space.follow(history)
    assert ids == {session.id} and session.forked_from is None
    assert [event.message for event in session.events()] == history
    assert [event.sequence for event in session.events()] == list(range(1, 25))
    position = store.spaces()[0].position
    assert space.follow(iter(history)).id == session.id
    assert store.spaces()[0].position == position, "nothing was new"
    assert len(space.sessions()) == 1 and store.verify().ok


def test_follow_recognizes_replies_appended_in_between(store: Store, space: Space) -> None:
    session = space.follow([user("one")], session="mine")
    assert session.id == "mine"
    session.append(reply("two"))
    assert space.follow(conversation("one", "two", "three"), session="mine").id == "mine"
    session.append(reply("four"))
    assert space.follow(conversation("one", "two", "three", "four", "five")).id == "mine"
    assert texts(session) == ["one", "two", "three", "four", "five"] and kept(store) == 5


CALL = call("call_1", '{"city": "Lisbon", "days": 2}')
HISTORY: list[Message] = [
    user("What is the  weather?"),
    CALL,
    answer("call_1", "sunny"),
    reply("It is\nsunny."),
    user([{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "u"}}]),
    reply("A zebra"),
]
RENDERINGS: dict[str, list[tuple[int, Message]]] = {
    "whitespace": [(0, user(" What is the weather?\n")), (3, reply("It is sunny. "))],
    "parts": [
        (0, user([{"type": "text", "text": "What is the weather?"}])),
        (3, reply([{"type": "text", "text": "It is sunny.", "annotations": []}])),
    ],
    "split parts": [
        (0, user([{"type": "text", "text": "What is "}, {"type": "text", "text": "the weather?"}]))
    ],
    "order of keys": [(0, {"content": "What is the  weather?", "role": "user"})],
    "ids": [(1, call("other", '{"city": "Lisbon", "days": 2}')), (2, answer("other", "sunny"))],
    "order of arguments": [(1, call("call_1", '{ "days":2,"city":"Lisbon" }'))],
    "null content": [(1, {**CALL, "content": None, "refusal": None})],
    "a thought before it": [(3, reply("<think>Is it?\n</think>\n\nIt is sunny."))],
    "more fields": [(3, reply("It is sunny.", id="msg_1", refusal=None)), (0, {**HISTORY[0]})],
    "another provider": [
        (
            1,
            reply(
                [
                    {
                        "type": "tool_use",
                        "id": "t",
                        "name": "weather",
                        "input": {"days": 2, "city": "Lisbon"},
                    }
                ]
            ),
        ),
        (2, user([{"type": "tool_result", "tool_use_id": "t", "content": "sunny"}])),
    ],
    "dumped by a library": [
        (
            0,
            {
                "kind": "request",
                "parts": [
                    {"part_kind": "system-prompt", "content": "be kind"},
                    {"part_kind": "user-prompt", "content": "What is the weather?"},
                ],
            },
        ),
        (5, {"kind": "response", "parts": [{"part_kind": "text", "content": "A zebra"}]}),
    ],
}


@pytest.mark.parametrize("name", sorted(RENDERINGS))
def test_follow_matches_another_rendering_of_the_same_turn(
    store: Store, space: Space, name: str
) -> None:
    session = space.follow(HISTORY)
    again = copy.deepcopy(HISTORY)
    for at, message in RENDERINGS[name]:
        again[at] = message
    followed = space.follow([*again, user("and now?")])
    assert followed.id == session.id and kept(store) == len(HISTORY) + 1
    assert [event.message for event in session.events()][:-1] == HISTORY


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (0, user("What is the weather")),
        (0, reply("What is the weather?")),
        (1, call("call_1", '{"city": "Lisbon", "days": 3}')),
        (2, answer("call_1", "rainy")),
        (3, reply("It is sunny!")),
        (4, user([{"type": "text", "text": "Look"}])),
        (
            4,
            user(
                [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "v"}}]
            ),
        ),
        (5, reply("a zebra")),
    ],
)
def test_follow_forks_at_a_turn_that_differs(space: Space, at: int, message: Message) -> None:
    session = space.follow(HISTORY)
    changed = [*HISTORY[:at], message, *HISTORY[at + 1 :]]
    fork = space.follow(changed)
    assert fork.id != session.id
    assert fork.forked_from == (Origin(session.id, at) if at else None)
    assert [event.message for event in fork.events()] == changed
    assert [event.message for event in session.events()] == HISTORY


def test_follow_ignores_system_prompts(store: Store, space: Space) -> None:
    history: list[Message] = []
    ids = set()
    for turn in range(5):
        history.append(user(f"question {turn}"))
        shown = [system(f"It is {turn} o'clock"), *history]
        shown.insert(turn, {"role": "developer", "content": f"hint {turn}"})
        ids.add(space.follow(shown).id)
        history.append(reply(f"answer {turn}"))
    (id,) = ids
    assert [event.message for event in space.session(id).events()] == history[:-1]
    assert kept(store) == 9
    session = space.session("own")
    session.append_many([system("kept"), user("alone"), system("again"), reply("yes"), system("x")])
    assert space.follow(conversation("alone", "yes", "more")).id == "own"
    assert texts(session) == ["kept", "alone", "again", "yes", "x", "more"]


def test_follow_of_an_empty_history_stores_nothing(store: Store, space: Space) -> None:
    for history in ([], [system("be kind")]):
        session = space.follow(history)
        assert len(session.id) == 12 and session.events() == []
    assert space.follow([], session="mine").id == "mine"
    assert space.sessions() == [] and kept(store) == 0


# -- where it diverges ----------------------------------------------------------------------------


def test_follow_of_an_edited_message_begins_a_fork(store: Store, space: Space) -> None:
    session = space.follow(conversation("one", "two", "three", "four", "five", "six"))
    fork = space.follow(conversation("one", "two", "3", "four"))
    assert fork.forked_from == Origin(session.id, 2) == fork.info().forked_from
    assert texts(fork) == ["one", "two", "3", "four"]
    assert [event.sequence for event in fork.events()] == [1, 2, 3, 4]
    assert [event.session for event in fork.events()] == [session.id] * 2 + [fork.id] * 2
    assert texts(session) == ["one", "two", "three", "four", "five", "six"]
    assert [event.text for event in fork.events(3)] == ["two", "3", "four"]
    assert fork.resume() == conversation("one", "two", "3", "four")
    assert kept(store) == 8, "what they share is kept once"
    assert [info.id for info in space.sessions()] == [fork.id, session.id]
    assert fork.context("x").history == tuple(conversation("one", "two", "3"))[:3] + (
        reply("four"),
    )
    assert store.verify().ok


def test_follow_of_a_regenerated_reply_begins_a_fork(space: Space) -> None:
    session = space.follow(conversation("one", "two", "three"))
    session.append(reply("four"))
    fork = space.follow(conversation("one", "two", "three", "another four", "five"))
    assert fork.forked_from == Origin(session.id, 3)
    third = space.follow(conversation("one", "two", "three", "a third four", "five"))
    assert third.forked_from == Origin(session.id, 3) and third.id != fork.id
    assert texts(fork)[3] == "another four" and texts(third)[3] == "a third four"


def test_follow_of_a_shortened_history_continues_from_its_end(store: Store, space: Space) -> None:
    session = space.follow(conversation("one", "two", "three", "four", "five"))
    fork = space.follow(conversation("one", "two", "three"))
    assert fork.id != session.id and fork.forked_from == Origin(session.id, 3)
    assert kept(store) == 5 and len(space.sessions()) == 1
    event = fork.append(reply("another four"))
    assert event.sequence == 4 and fork.forked_from == Origin(session.id, 3)
    assert texts(fork) == ["one", "two", "three", "another four"]
    assert space.follow(conversation("one", "two", "three", "another four", "5")).id == fork.id
    assert texts(session) == ["one", "two", "three", "four", "five"]
    assert store.verify().ok


def test_regenerated_reply_may_fork_from_a_fork(space: Space) -> None:
    """A client that wants another reply sends the history up to its own last words."""
    session = space.follow(conversation("one", "two", "three"))
    session.append(reply("four"))
    fork = space.follow(conversation("one", "two", "three"))
    assert texts(fork) == ["one", "two", "three"]
    assert fork.resume() == conversation("one", "two", "three")
    assert fork.context().history == tuple(conversation("one", "two", "three"))


def test_empty_fork_sees_the_private_memories_of_its_parent(space: Space) -> None:
    space.remember("known")
    session = space.follow(conversation("one", "two", "three", "four"))
    session.remember("a private zebra", private=True)
    profile = session.context().profile
    space.remember("known since")
    fork = space.follow(conversation("one", "two", "three"))
    assert [memory.content for memory in fork.memories()] == ["a private zebra"]
    assert "a private zebra" in {hit.text for hit in fork.recall("zebra")}
    assert "a private zebra" in fork.context("zebra").recalled
    assert fork.context().profile == profile


def test_follow_finds_the_fork_in_later_turns(store: Store, space: Space) -> None:
    first = space.follow(conversation("one", "two", "three"), session="s")
    first.append(reply("four"))
    fork = space.follow(conversation("one", "two", "3"), session="s")
    assert fork.id != "s" and fork.forked_from == Origin("s", 2)
    fork.append(reply("4"))
    for history in (
        conversation("one", "two", "3", "4", "5"),
        conversation("one", "two", "3", "4", "5", "6", "7"),
    ):
        assert space.follow(history, session="s").id == fork.id
        assert space.follow(history).id == fork.id
        assert space.follow(history, session=fork.id).id == fork.id
    assert space.follow(conversation("one", "two", "three", "four", "five"), session="s").id == "s"
    again = space.follow(conversation("one", "two", "3", "4", "V"), session="s")
    assert again.forked_from == Origin(fork.id, 4)
    assert texts(again) == ["one", "two", "3", "4", "V"]
    assert space.follow(conversation("one", "two", "3", "4", "V", "VI"), session="s").id == again.id
    assert kept(store) == 5 + 5 + 2 and store.verify().ok


def test_two_clients_continue_their_forks_alternately(store: Store, space: Space) -> None:
    common = conversation("hello", "hi")
    space.follow(common, session="s")
    lines = {name: list(common) for name in ("a", "b", "c")}
    ids: dict[str, set[str]] = {name: set() for name in lines}
    for turn in range(4):
        for name, line in lines.items():
            line.append(user(f"{name} asks {turn}"))
            session = space.follow(line, session="s")
            ids[name].add(session.id)
            line.append(reply(f"{name} is told {turn}"))
            if name != "b":
                session.append(line[-1])
    assert all(len(found) == 1 for found in ids.values())
    assert len(set.union(*ids.values())) == 3
    for name, line in lines.items():
        session = space.follow(line, session="s")
        assert {session.id} == ids[name]
        assert [event.message for event in session.events()] == line
    assert kept(store) == 2 + 3 * 8 and store.verify().ok


def test_follow_of_an_edited_first_message_begins_a_fork_or_a_session(space: Space) -> None:
    named = space.follow(conversation("one", "two"), session="s")
    fork = space.follow(conversation("1", "two"), session="s")
    assert fork.id != named.id and fork.forked_from == Origin("s", 0)
    assert texts(fork) == ["1", "two"]
    assert space.follow(conversation("1", "two", "three"), session="s").id == fork.id
    unnamed = space.follow(conversation("I", "two"))
    assert unnamed.forked_from is None and texts(unnamed) == ["I", "two"]


def test_follow_forks_from_the_root_when_a_named_fork_shares_nothing(space: Space) -> None:
    space.follow(conversation("one", "two", "three"), session="s")
    fork = space.follow(conversation("one", "two", "3"), session="s")
    other = space.follow(conversation("something", "else"), session=fork.id)
    assert other.id not in {"s", fork.id}
    assert texts(other) == ["something", "else"]
    assert space.follow(conversation("something", "else", "more"), session=fork.id).id == other.id


def test_named_sessions_with_the_same_beginning_stay_separate(space: Space) -> None:
    one = space.follow(conversation("hello", "hi", "first"), session="one")
    two = space.follow(conversation("hello", "hi", "second"), session="two")
    assert (one.id, two.id, two.forked_from) == ("one", "two", None)
    assert space.follow(conversation("hello", "hi", "first", "x"), session="one").id == "one"
    assert space.follow(conversation("hello", "hi", "second", "x"), session="two").id == "two"
    moved = space.follow(conversation("hello", "hi", "first", "x", "y"), session="two")
    assert moved.forked_from == Origin("two", 2), "only the one named is looked at"


def test_follow_prefers_the_session_that_ends_with_the_history(space: Space) -> None:
    """Another may have said the same and more since: it is no reason to leave one's own."""
    session = space.follow(conversation("hello", "hi"))
    space.follow(conversation("hello", "hi", "second"), session="two")
    followed = space.follow(conversation("hello", "hi", "first"))
    assert (followed.id, followed.forked_from) == (session.id, None)


def test_follow_does_not_confuse_repeated_messages(space: Space) -> None:
    session = space.follow(conversation("yes", "ok", "yes", "ok", "yes", "ok"))
    assert space.follow(conversation("yes", "ok", "yes", "ok", "yes", "ok", "yes")).id == session.id
    assert texts(session) == ["yes", "ok", "yes", "ok", "yes", "ok", "yes"]
    fork = space.follow(conversation("yes", "ok", "yes", "no"))
    assert fork.forked_from == Origin(session.id, 3)


# -- replies that were cut off --------------------------------------------------------------------


@pytest.mark.parametrize("resent", ["The zebra is", "The zebra is striped", "", "The  zebra", None])
@pytest.mark.parametrize("named", [None, "s"])
def test_follow_matches_the_complete_reply_to_its_interrupted_part(
    store: Store, space: Space, resent: str | None, named: str | None
) -> None:
    session = space.follow([user("What is it?")], session="s")
    event = session.append(reply("The zebra is striped"), interrupted=True)
    assert event.interrupted and session.events()[1] == event
    shown = [] if resent is None else [reply(resent)]
    history = [user("What is it?"), *shown, user("Go on")]
    assert space.follow(history, session=named).id == "s"
    assert texts(session) == ["What is it?", "The zebra is striped", "Go on"]
    session.append(reply("and black"), interrupted=True)
    history += [reply("and"), user("I see"), reply("Good")]
    assert space.follow(history, session=named).id == "s"
    assert texts(session)[2:] == ["Go on", "and black", "I see", "Good"]
    assert space.follow([*history, user("?")], session=named).id == "s"
    assert len(space.sessions()) == 1 and store.verify().ok


def test_follow_matches_a_reply_whose_thinking_the_client_dropped(
    store: Store, space: Space
) -> None:
    session = space.follow([user("What is it?")])
    thought = reply("<think>Stripes.</think>\n\nA zebra")
    session.append(thought)
    assert space.follow(conversation("What is it?", "A zebra", "Where?")).id == session.id
    session.append(reply("<think>Savanna.</think>In the grass"), interrupted=True)
    assert (
        space.follow(conversation("What is it?", "A zebra", "Where?", "In", "Yes?")).id
        == session.id
    )
    assert session.events()[1].message == thought, "what is kept is verbatim"
    assert kept(store) == 5 and store.verify().ok


def test_follow_keeps_a_longer_reply_than_the_interrupted_one_as_a_fork(
    store: Store, space: Space
) -> None:
    session = space.follow([user("What is it?")])
    session.append(reply("The zebra"), interrupted=True)
    longer = conversation("What is it?", "The zebra is striped", "Go on")
    fork = space.follow(longer)
    assert fork.forked_from == Origin(session.id, 1) and texts(fork)[1:] == [
        "The zebra is striped",
        "Go on",
    ]
    assert space.follow(longer).id == fork.id and store.verify().ok


def test_follow_does_not_join_conversations_by_a_greeting_alone(space: Space) -> None:
    first = space.follow(conversation("Hi", "Hello! How can I help?", "I live in Lisbon"))
    second = space.follow(conversation("hi!", "Hello! How can I help?"))
    assert second.id != first.id and second.forked_from is None
    assert (
        space.follow(conversation("hi!", "Hello! How can I help?", "Book a flight")).id == second.id
    )
    assert texts(second)[0] == "hi!"
    first.erase()
    assert len(texts(second)) == 3


def test_follow_does_not_treat_an_empty_first_message_as_a_greeting(space: Space) -> None:
    look = user([{"type": "image_url", "image_url": {"url": "u"}}])
    session = space.follow([look, reply("A zebra"), user("Why?")])
    fork = space.follow([look, reply("A horse"), user("Why?")])
    assert fork.forked_from == Origin(session.id, 1)


def test_empty_fork_keeps_its_id(space: Space) -> None:
    space.follow(conversation("one", "two", "three", "four"))
    assert (
        space.follow(conversation("one", "two")).id == space.follow(conversation("one", "two")).id
    )


def test_follow_of_an_empty_history_creates_no_fork(space: Space) -> None:
    space.follow(conversation("one", "two"), session="s")
    assert space.follow([], session="s").id == "s"
    assert space.follow([system("be kind")], session="s").id == "s"


def test_follow_forks_when_the_reply_differs_from_the_interrupted_one(space: Space) -> None:
    session = space.follow([user("What is it?")])
    session.append(reply("The zebra is"), interrupted=True)
    fork = space.follow(conversation("What is it?", "A horse", "Why?"))
    assert fork.forked_from == Origin(session.id, 1)
    whole = space.session("whole")
    whole.append_many(conversation("And that?", "A horse is near"))
    fork = space.follow(conversation("And that?", "A horse", "Why?"))
    assert fork.forked_from == Origin("whole", 1), "a whole reply is not a longer one"


def test_follow_matches_an_interrupted_reply_in_a_fork(space: Space) -> None:
    session = space.follow(conversation("one", "two", "three", "four"))
    fork = space.follow(conversation("one", "two", "3"))
    fork.append(reply("a long reply that"), interrupted=True)
    assert space.follow(conversation("one", "two", "3", "a long reply", "5")).id == fork.id
    again = space.follow(conversation("one", "two", "3"))
    again.append(reply("another long reply"), interrupted=True)
    assert space.follow(conversation("one", "two", "3", "another long", "5")).id == again.id
    assert len(texts(session)) == 4 and len(texts(fork)) == 5 and len(texts(again)) == 5


# -- meanwhile ------------------------------------------------------------------------------------


def test_concurrent_follow_of_one_history_stores_it_once(stores: Stores) -> None:
    spaces = [stores.open(learn="off").space("ana") for _ in range(2)]
    ids: list[str] = []

    def send(number: int) -> None:
        for length in range(1, 8):
            history = conversation(*[f"word {at}" for at in range(length)])
            ids.append(spaces[number % 2].follow(history, session="s").id)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts(spaces[0].session("s")) == [f"word {at}" for at in range(7)]
    assert len(ids) == 28 and stores.open().verify().events == 7


@pytest.mark.parametrize("what", ["erase", "append", "diverge"])
def test_follow_handles_writes_made_while_it_prepares_messages(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store, other = stores.open(), stores.open().space("ana").session("s")
    space = store.space("ana")
    space.follow(conversation("one", "two"), session="s")
    sound = events.prepare_messages
    meanwhile: dict[str, Callable[[], object]] = {
        "erase": other.erase,
        "append": lambda: other.append(user("three")),
        "diverge": lambda: other.append(user("drei")),
    }

    def prepare(*arguments: Any, **options: Any) -> list[events.PreparedMessage]:
        monkeypatch.setattr(events, "prepare_messages", sound)
        result = sound(*arguments, **options)
        meanwhile[what]()
        return result

    monkeypatch.setattr(events, "prepare_messages", prepare)
    session = space.follow(conversation("one", "two", "three", "four"), session="s")
    assert texts(session) == ["one", "two", "three", "four"]
    assert (session.id == "s") == (what != "diverge") and store.verify().ok


# -- keys, scopes, ends ---------------------------------------------------------------------------


def test_follow_with_a_key_of_another_history_is_a_conflict(stores: Stores) -> None:
    store = stores.open()
    space = store.space("ana")
    session = space.follow(conversation("one", "two"), key="k")
    session.append(user("three"))
    store.close()
    store = stores.open()
    space = store.space("ana")
    assert space.follow(conversation("one", "two"), key="k").id == session.id
    with pytest.raises(KeyConflict):
        space.follow(conversation("one", "zwei"), key="k")
    with pytest.raises(KeyConflict):
        space.follow(conversation("one", "two"), session="s", key="k")
    fork = space.follow(conversation("one", "zwei"), key="f")
    again = space.follow(conversation("one", "zwei"), key="f")
    assert (again.id, again.forked_from) == (fork.id, Origin(session.id, 1))
    assert kept(store) == 4


def test_follow_of_an_invalid_history_stores_nothing(store: Store, space: Space) -> None:
    wrong: list[Any] = [b"x", "text", {1: 2}, {"content": float("nan")}]
    for bad in wrong:
        with pytest.raises(InvalidInput):
            space.follow([user("one"), bad, user("three")])
    assert kept(store) == 0 and space.sessions() == []


def test_follow_never_matches_sessions_of_another_owner(store: Store) -> None:
    history = conversation("one", "two", "three")
    handles = [
        store.space("ana"),
        store.space("ana", user="bo"),
        store.space("ana", user="cy"),
        store.space("ben", user="bo"),
    ]
    for named in (None, "s"):
        ids = [handle.follow(history, session=named).id for handle in handles]
        assert named == "s" or len(set(ids)) == 4
        for handle, id in zip(handles, ids, strict=True):
            assert [event.message for event in handle.session(id).events()] == history
            assert {event.user for event in handle.session(id).events()} == {handle.user}
    assert kept(store) == 2 * 4 * 3


def test_follow_does_not_match_an_erased_session(store: Store, space: Space) -> None:
    first = space.follow(conversation("one", "two"), session="s")
    first.erase()
    unnamed = space.follow(conversation("one", "two", "three"))
    assert unnamed.id != "s" and unnamed.forked_from is None
    restarted = space.follow(conversation("one", "two", "three"), session="s")
    assert restarted.id == "s" and restarted.forked_from is None
    assert [event.sequence for event in restarted.events()] == [3, 4, 5]
    assert space.follow(conversation("one", "two", "three", "four"), session="s").id == "s"
    assert store.verify().ok


def test_follow_creates_an_erased_fork_again(store: Store, space: Space) -> None:
    session = space.follow(conversation("one", "two", "three"), session="s")
    fork = space.follow(conversation("one", "two", "3"), session="s")
    fork.erase()
    again = space.follow(conversation("one", "two", "3"), session="s")
    assert again.id not in {"s", fork.id} and again.forked_from == Origin("s", 2)
    assert texts(again) == ["one", "two", "3"] and texts(session) == ["one", "two", "three"]
    fork.append(user("goes on by itself"))
    assert texts(fork) == ["goes on by itself"] and fork.forked_from is None
    assert store.verify().ok


def test_follow_works_after_rebuild_and_reopening(stores: Stores) -> None:
    store = stores.open()
    space = store.space("ana", user="bo")
    space.follow(conversation("one", "two", "three", "four"), session="s")
    fork = space.follow(conversation("one", "two", "3", "4"), session="s")
    deep = space.follow(conversation("one", "two", "3", "IV"), session="s")
    deep.append(reply("cut off he"), interrupted=True)
    space.session("s").hide()
    for step in (store.rebuild, store.close):
        step()
        store = stores.open()
        space = store.space("ana", user="bo")
        assert space.follow(conversation("one", "two", "three", "four")).id == "s"
        assert space.follow(conversation("one", "two", "3", "4")).id == fork.id
        assert (
            space.follow([*conversation("one", "two", "3", "IV"), reply("cut off")]).id == deep.id
        )
        assert kept(store) == 4 + 2 + 2 and store.verify().ok
    assert json.loads(json.dumps(list(space.export())))


@pytest.mark.prove
def test_follow_cost_does_not_grow_with_repetition(
    store: Store, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.runtime.engine.read() as tx:
        kind = type(tx)
    asked: list[str] = []

    def noted(method: str) -> None:
        real = getattr(kind, method)

        def called(tx: Any, sql: str, *given: Any, **more: Any) -> Any:
            asked.append(sql)
            return real(tx, sql, *given, **more)

        monkeypatch.setattr(kind, method, called)

    noted("one")
    noted("all")
    costs = []
    for number in range(61):
        asked.clear()
        session = space.follow([user("What is new today?")])
        answered = [user("What is new today?"), reply(f"{number} things")]
        root = session.id if session.forked_from is None else session.forked_from.session
        followed = space.follow(answered, session=root)
        followed.prompt_additions("What is new today?")
        costs.append(len(asked))
        assert texts(followed) == ["What is new today?", f"{number} things"]
    assert len(space.sessions()) == 61
    assert costs[60] < costs[30] + 10


@pytest.mark.parametrize("named", [False, True])
def test_follow_reads_few_of_the_sessions_with_the_same_beginning(
    store: Store, space: Space, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    with store.runtime.engine.read() as tx:
        kind = type(tx)
    real, most = kind.all, 0

    def noted(tx: Any, *given: Any, **more: Any) -> Any:
        nonlocal most
        rows = real(tx, *given, **more)
        most = max(most, len(rows))
        return rows

    monkeypatch.setattr(kind, "all", noted)
    for number in range(20):
        chat = space.follow([user("hi")], session=f"chat {number}" if named else None)
        chat.append(reply(f"{number} times"))
    assert len(space.sessions(limit=3)) == 3 and kept(store) == 40
    most = 0
    space.follow([user("hi")], session="another" if named else None)
    assert most < 10
