"""Sessions: what is appended, listed, recalled, hidden and erased, and who sees it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reverie import (
    InvalidInput,
    KeyConflict,
    NotFound,
    Origin,
    SequenceConflict,
    Space,
    Store,
    SubjectExists,
)
from reverie.engine import log
from reverie.protocols import Owner, Transaction
from tests.conftest import DAY, HOUR, SECOND, START, FakeClock, Stores
from tests.messages import Message, found, propose, reply, system, texts, user

# -- what a session is ----------------------------------------------------------------------------


def test_session_without_an_id_gets_one(space: Space) -> None:
    ids = {space.session().id for _ in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"[0-9a-f]{12}", id) for id in ids)
    assert space.session("2026-11-15 chat, naïve").id == "2026-11-15 chat, naïve"
    assert space.sessions() == []


@pytest.mark.parametrize("id", ["", "  ", "a\nb", "a\0b", "\ud800", "x" * 201, 7])
def test_invalid_session_id_is_refused(space: Space, id: Any) -> None:
    with pytest.raises(InvalidInput):
        space.session(id)
    with pytest.raises(InvalidInput):
        space.follow([user("x")], session=id)
    assert space.sessions(include_hidden=True) == []


def test_sessions_are_listed_by_the_time_of_their_newest_event(
    space: Space, clock: FakeClock
) -> None:
    times = []
    for name in ("first", "second", "third"):
        clock.step(HOUR)
        times.append(clock.now())
        space.session(name).append({"role": "user", "content": "Hi, it is me"})

    def ids(since: int | None = None, until: int | None = None) -> list[str]:
        return [info.id for info in space.sessions(since=since, until=until)]

    assert ids(since=times[1]) == ["third", "second"]
    assert ids(until=times[1]) == ["first"]
    assert ids(since=times[1], until=times[2]) == ["second"]
    assert ids(since=times[2] + 1) == []


def test_sessions_are_listed_by_their_newest_event(space: Space, clock: FakeClock) -> None:
    one, two, three = (space.session(id) for id in ("one", "two", "three"))
    one.append_many([system("be kind"), user("  What is\na zebra? ")])
    clock.step(HOUR)
    two.append(reply("I speak first"))
    clock.step(HOUR)
    three.append(user("x" * 100))
    clock.step(-10 * DAY)
    one.append(reply("An animal"))
    shown = space.sessions()
    assert [info.id for info in shown] == ["one", "three", "two"]
    assert [info.events for info in shown] == [3, 1, 1]
    assert [info.preview for info in shown] == ["What is a zebra?", "x" * 80, "Untitled"]
    assert [info.opened_at for info in shown] == [START, START + 2 * HOUR, START + HOUR]
    assert [info.updated_at for info in shown] == [START + 2 * HOUR, START + 2 * HOUR, START + HOUR]
    assert all(info.hidden_at is None and info.forked_from is None for info in shown)
    assert [info.id for info in space.sessions(limit=2)] == ["one", "three"]
    assert shown[0] == one.info()
    two.append(user("the user at last"))
    assert space.sessions()[0].preview == "the user at last"
    with pytest.raises(NotFound):
        space.session("four").info()


def test_same_session_name_in_two_scopes_never_mixes(store: Store) -> None:
    owners = [("ana", None), ("ana", "bo"), ("ana", "cy"), ("ben", None), ("ben", "bo")]
    handles = [store.space(name, user=user) for name, user in owners]
    for number, handle in enumerate(handles):
        session = handle.session("same")
        session.append_many([user(f"canary{number} zebra")] * (number + 1))
        session.remember(f"canary{number} private zebra", subject="zebra", private=True)
        session.write_summary(f"canary{number} summed up", upper=1, expected_epoch=0)
        session.scratchpad.write([f"canary{number} item"])
        propose(handle, f"canary{number} proposed", Origin("same", 1))
    for number, handle in enumerate(handles):
        session, own = handle.session("same"), f"canary{number}"
        assert texts(session) == [f"{own} zebra"] * (number + 1)
        (info,) = handle.sessions()
        assert (info.events, info.preview) == (number + 1, f"{own} zebra")
        assert [memory.content for memory in session.memories()] == [f"{own} private zebra"]
        assert session.summary().text == f"{own} summed up"
        assert session.scratchpad.read().items == (f"{own} item",)
        assert [proposal.content for proposal in handle.proposals()] == [f"{own} proposed"]
        assert found(handle, "zebra") == {f"{own} zebra"}
        assert found(session, "zebra") == {f"{own} zebra", f"{own} private zebra"}
        for hit in handle.recall("zebra", kinds=["event"], limit=50):
            assert hit.event is not None
            around = {event.text for event in handle.neighbours(hit, before=9, after=9)}
            assert around == {hit.text}
            assert hit.event.user == owners[number][1]
    for number, handle in enumerate(handles):
        assert handle.follow([user(f"canary{number} zebra")] * (number + 1)).id == "same"
        other = handle.follow([user(f"canary{(number + 1) % 5} zebra")])
        assert other.id != "same" and other.forked_from is None
    bo, cy = handles[1], handles[2]
    (event,) = bo.session("same").events(1)
    assert cy.neighbours(event) == [] and handles[0].neighbours(event) == []
    bo.session("same").erase()
    assert len(texts(cy.session("same"))) == 3 and len(texts(handles[0].session("same"))) == 1
    assert cy.session("same").summary().text and cy.session("same").memories()
    assert store.verify().ok


# -- append ---------------------------------------------------------------------------------------

MESSAGES: list[Message] = [
    user("plain"),
    {"role": "user", "content": [{"type": "text", "text": "what is this?"}], "name": "ana"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "a picture"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    {"role": "assistant", "content": None, "refusal": "I cannot", "audio": None},
    {"role": "developer", "content": "be brief"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "c2ln"},
            {"type": "text", "text": "let me see", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "Porto"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [], "is_error": False}
        ],
    },
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{not json"},
    {"type": "function_call_output", "call_id": "c", "output": '{"a": 1}'},
    {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
    {"role": "alien", "content": {"deep": [[[{"er": None}]]]}, "": "empty key", "ключ": 1},
    user("half a character \ud83d and the other \udc00"),
    {"role": "user", "content": "nul \0 within", "\0": "\0"},
    {"role": "user", "content": "", "numbers": [10**400, -(2**63), 1e-300, -0.0, 0.1, True]},
    {"role": "user", "content": "line\u2028separator \r\n\t\x7f \ufeff \U0010ffff"},
    {
        "kind": "request",
        "parts": [
            {"part_kind": "system-prompt", "content": "be kind"},
            {"part_kind": "user-prompt", "content": ["look", {"kind": "image-url", "url": "u"}]},
        ],
        "instructions": None,
    },
    {
        "kind": "response",
        "parts": [
            {"part_kind": "text", "content": "fine"},
            {
                "part_kind": "tool-call",
                "tool_name": "f",
                "args": {"city": "Faro"},
                "tool_call_id": "1",
            },
        ],
        "usage": {"input_tokens": 3},
    },
]


def test_append_returns_every_message_verbatim(stores: Stores) -> None:
    store = stores.open()
    session = store.space("ana").session("s")
    made = [session.append(message) for message in MESSAGES]
    assert [event.message for event in made] == MESSAGES
    assert [event.sequence for event in made] == list(range(1, len(MESSAGES) + 1))
    many = store.space("ana").session("many").append_many(MESSAGES)
    assert store.verify().ok
    store.close()
    space = stores.open().space("ana")
    assert space.session("s").events() == made
    assert space.session("many").events() == many
    assert [list(event.message) for event in many] == [list(message) for message in MESSAGES]
    assert str(many[15].message["numbers"][3]) == "-0.0"
    for city in ("Lisbon", "Porto", "Faro"):
        assert [hit.event for hit in space.recall(city, mode="keyword")] != []
    assert found(space, "Lisbon") and "weather" in made[3].text


def test_append_accepts_message_objects_of_client_libraries(space: Space) -> None:
    from pydantic_ai import messages as ai

    asked = ai.ModelRequest(parts=[ai.SystemPromptPart("be kind"), ai.UserPromptPart("Where?")])
    response = ai.ModelResponse(parts=[ai.TextPart("In Lisbon")], model_name="m")
    dumped = ai.ModelMessagesTypeAdapter.dump_python([asked, response], mode="json")
    session = space.session()
    events = [session.append(asked), *session.append_many([response])]
    assert [event.message for event in events] == dumped
    assert [(event.role, event.text) for event in events] == [
        ("user", "Where?"),
        ("assistant", "In Lisbon"),
    ]
    assert space.sessions()[0].preview == "Where?"
    back = ai.ModelMessagesTypeAdapter.validate_python(
        [event.message for event in session.events()]
    )
    assert back == [asked, response]
    assert space.follow([asked, response]).id == session.id
    assert session.resume()[1] == dumped[1]


def test_append_copies_the_given_message(space: Space) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "first"}]}
    event = space.session("s").append(message)
    message["content"][0]["text"] = "changed"  # type: ignore[index]
    assert event.text == "first" and texts(space.session("s")) == ["first"]


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "text",
        b"bytes",
        7,
        [user("x")],
        {},
        {"role": "user", "content": b"bytes"},
        {"role": "user", "content": float("nan")},
        {"role": "user", "content": [float("inf")]},
        {"role": "user", "content": {1, 2}},
        {"role": "user", "content": object()},
        {1: "x"},
        {"role": "user", "content": {2: "x"}},
        {"role": "user", "content": {("a",): "x"}},
        {"role": "user", "content": 10**5000},
    ],
)
def test_append_refuses_messages_that_json_cannot_hold_and_writes_nothing(
    store: Store, space: Space, bad: Any
) -> None:
    session = space.session("s")
    session.append(user("x"))
    for call in (
        lambda: session.append(bad, key="k"),
        lambda: session.append_many([user("before"), bad, user("after")], key="k"),
        lambda: space.follow([user("x"), bad], key="k"),
    ):
        with pytest.raises(InvalidInput):
            call()
    nested: Any = "x"
    for _ in range(300):
        nested = [nested]
    with pytest.raises(InvalidInput):
        session.append({"role": "user", "content": nested})
    assert texts(session) == ["x"] and store.spaces()[0].position == 1
    assert session.append(user("y"), key="k").sequence == 2


def test_append_refuses_a_sequence_that_is_not_greater(store: Store, space: Space) -> None:
    session = space.session("s")
    assert session.append(user("a"), sequence=5).sequence == 5
    for sequence in (5, 4, 1):
        with pytest.raises(SequenceConflict) as caught:
            session.append(user("b"), sequence=sequence, key="k")
        assert (caught.value.given, caught.value.last) == (sequence, 5)
    bad: Any
    for bad in (0, -1, True, "6", 1.5, 1 << 53):
        with pytest.raises(InvalidInput):
            session.append(user("b"), sequence=bad)
    assert store.spaces()[0].position == 1
    assert session.append(user("b"), key="k").sequence == 6
    assert [event.sequence for event in session.append_many([user("c"), user("d")])] == [7, 8]
    assert [event.sequence for event in session.events(2)] == [7, 8]
    assert [event.sequence for event in session.events(99)] == [5, 6, 7, 8]
    for limit in (0, -1, True):
        with pytest.raises(InvalidInput):
            session.events(limit)


def test_concurrent_appends_leave_no_gap_and_no_duplicate(stores: Stores) -> None:
    handles = [stores.open().space("ana") for _ in range(2)]
    made: list[tuple[int, str]] = []

    def append_turns(number: int) -> None:
        session = handles[number % 2].session("s")
        for turn in range(6):
            messages = [user(f"{number}.{turn}.{part}") for part in range(2)]
            made.extend((event.sequence, event.text) for event in session.append_many(messages))
            event = session.append(user(f"{number}.{turn}.last"))
            made.append((event.sequence, event.text))

    threads = [threading.Thread(target=append_turns, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = handles[0].session("s").events()
    assert sorted(made) == [(event.sequence, event.text) for event in events]
    assert [event.sequence for event in events] == list(range(1, 6 * 6 * 3 + 1))
    followed = {event.text: at for at, event in enumerate(events)}
    for text, at in followed.items():
        if text.endswith(".0"):
            assert events[at + 1].text == text[:-1] + "1"
    assert handles[0].sessions()[0].events == len(events)
    assert stores.open().verify().ok


# -- keys -----------------------------------------------------------------------------------------


def test_append_with_the_same_key_returns_the_first_events(
    stores: Stores, clock: FakeClock
) -> None:
    store = stores.open()
    session = store.space("ana").session("s")
    one = session.append(user("a"), key="one", at=5)
    many = session.append_many([user("b"), reply("c")], key="many")
    session.append(user("d"))
    clock.step(DAY)
    store.close()
    session = stores.open().space("ana").session("s")
    assert session.append(user("a"), key="one", at=5) == one
    assert session.append_many([user("b"), reply("c")], key="many") == many
    assert texts(session) == ["a", "b", "c", "d"]
    session.erase()
    for again in (
        lambda: session.append(user("a"), key="one", at=5),
        lambda: session.append_many([user("b"), reply("c")], key="many"),
    ):
        with pytest.raises(NotFound):
            again()
    assert session.events() == []


@pytest.mark.parametrize(
    "other",
    [
        lambda space: space.session("s").append(user("b"), key="k"),
        lambda space: space.session("s").append({**user("a"), "name": "x"}, key="k"),
        lambda space: space.session("s").append(user("a"), at=7, key="k"),
        lambda space: space.session("s").append(user("a"), sequence=9, key="k"),
        lambda space: space.session("s").append(user("a"), interrupted=True, key="k"),
        lambda space: space.session("t").append(user("a"), key="k"),
        lambda space: space.session("s").append_many([user("a"), user("a")], key="k"),
        lambda space: space.follow([user("a")], key="k"),
        lambda space: space.session("s").hide(key="k"),
        lambda space: space.session("s").restore(key="k"),
        lambda space: space.session("s").erase(key="k"),
        lambda space: space.remember("a", key="k"),
        lambda space: space.session("s").remember("a", key="k"),
    ],
)
def test_append_with_a_key_of_other_messages_is_a_conflict(
    store: Store, space: Space, other: Callable[[Space], object]
) -> None:
    event = space.session("s").append(user("a"), key="k")
    with pytest.raises(KeyConflict):
        other(space)
    assert space.session("s").events() == [event] and store.spaces()[0].position == 1
    assert store.space("ana", user="bo").session("s").append(user("b"), key="k").sequence == 1


def test_append_with_a_key_of_a_memory_is_a_conflict(space: Space) -> None:
    space.remember("a", key="k")
    with pytest.raises(KeyConflict):
        space.session("s").append(user("a"), key="k")
    assert space.sessions() == []


@pytest.mark.parametrize(
    "other",
    [
        lambda space, proposal: space.session("t").append(user("c"), key="k"),
        lambda space, proposal: space.session("t").hide(key="k"),
        lambda space, proposal: space.session("t").erase(key="k"),
        lambda space, proposal: space.remember("c", key="k"),
        lambda space, proposal: space.reject(proposal, key="k"),
        lambda space, proposal: space.accept(proposal, key="k"),
    ],
)
def test_append_with_a_key_of_an_erased_event_is_a_conflict(
    space: Space, other: Callable[[Space, str], object]
) -> None:
    space.session("s").append(user("a"), key="k")
    space.session("t").append(user("b"))
    proposal = propose(space, "c", Origin("t", 1))
    space.session("s").erase()
    with pytest.raises(KeyConflict):
        other(space, proposal)


# -- recall ---------------------------------------------------------------------------------------


def test_recall_returns_events_beside_memories(space: Space) -> None:
    space.remember("a fact about the zebra", tags=["t"], category="c")
    space.remember("a note about the zebra", kind="note")
    event = space.session("s").append(user("I saw a zebra"))
    space.session("s").append({"role": "user", "content": [{"type": "image", "data": "zebra"}]})
    assert {hit.kind for hit in space.recall("zebra")} == {"fact", "note", "event"}
    (hit,) = space.recall("zebra", kinds=["event"])
    assert (hit.kind, hit.event, hit.memory, hit.text) == ("event", event, None, event.text)
    for options in ({"category": "c"}, {"tags": ["t"]}, {"kinds": ["fact"]}):
        assert found(space, "zebra", **options) == {"a fact about the zebra"}
        assert found(space, "zebra", as_of=4, **options) == {"a fact about the zebra"}
    assert [hit.kind for hit in space.recall("zebra", kinds=["event"], as_of=4)] == ["event"]
    assert len(space.recall("zebra", kinds=["event", "note"])) == 2
    with pytest.raises(InvalidInput):
        space.recall("zebra", kinds=["session"])  # type: ignore[list-item]


def test_event_has_the_time_that_was_given(space: Space, clock: FakeClock) -> None:
    session = space.session("s")
    then = session.append(user("zebra then"), at="2020-05-01T12:00:00+02:00")
    now = session.append(user("zebra now"))
    assert (then.at, now.at) == (1_588_327_200_000, clock.now())
    assert found(space, "zebra", until="2021-01-01") == {"zebra then"}
    assert found(space, "zebra", since="2021-01-01") == {"zebra now"}
    assert found(space, "zebra", since=then.at, until=then.at + SECOND) == {"zebra then"}
    assert found(space, "zebra", until=then.at) == set()
    assert found(space, "zebra", until="2021-01-01", as_of=2) == {"zebra then"}
    assert texts(session) == ["zebra then", "zebra now"]
    for bad in ("soon", True, 1 << 60):
        with pytest.raises(InvalidInput):
            session.append(user("x"), at=bad)


def test_hit_neighbours_return_the_events_around_it(space: Space) -> None:
    session = space.session("s")
    session.append_many([user(f"number {n}") for n in range(9)])
    space.session("t").append_many([user(f"elsewhere {n}") for n in range(9)])
    session.append(reply("after others"))
    (hit,) = space.recall("number 4", mode="keyword", kinds=["event"], limit=1)
    assert [event.text for event in space.neighbours(hit)] == [f"number {n}" for n in range(2, 7)]
    assert space.neighbours(hit, before=0, after=0) == [hit.event]
    assert [event.text for event in space.neighbours(hit, before=99, after=99)] == texts(session)
    (event,) = session.events(1)
    assert [e.text for e in space.neighbours(event, before=1)] == ["number 8", "after others"]
    fork = space.follow([*[user(f"number {n}") for n in range(3)], reply("otherwise")])
    (event,) = fork.events(1)
    assert [e.text for e in space.neighbours(event)] == ["number 1", "number 2", "otherwise"]
    space.remember("a memory of 4")
    (memory,) = space.recall("memory", kinds=["fact"])
    with pytest.raises(InvalidInput):
        space.neighbours(memory)


# -- what belongs to one session ------------------------------------------------------------------


def test_private_memory_is_recalled_in_its_session_only(stores: Stores) -> None:
    store = stores.open()
    space = store.space("ana", user="bo")
    session, other = space.session("s"), space.session("t")
    session.append_many([user("a plan"), reply("hi")])
    other.append(user("hello there"))
    fork = space.follow([user("a plan"), reply("hi"), user("go on")], session="s")
    assert fork.id == "s"
    fork = space.follow([user("a plan"), reply("hi"), user("otherwise")])
    assert fork.forked_from == Origin("s", 2)
    common = space.remember("zebra for all")
    private = session.remember("zebra for one", tags=["t"], category="c", private=True)
    assert (private.session, private.user, common.session) == ("s", "bo", None)

    def check() -> None:
        for mode in ("keyword", "vector", "hybrid"):
            for handle in (space, other, store.space("ana")):
                hits = handle.recall("zebra for one", mode=mode, limit=50)
                assert private.id not in {hit.id for hit in hits}
            for insider in (session, fork):
                hits = insider.recall("zebra for one", mode=mode, limit=50, kinds=["fact"])
                assert {hit.id for hit in hits} == {private.id, common.id}
        position = store.spaces()[0].position
        assert private.id not in {hit.id for hit in space.recall("zebra", as_of=position)}
        assert private.id in {hit.id for hit in session.recall("zebra", as_of=position)}
        assert space.memories() == space.memories(as_of=position) == [common]
        assert space.memories(tags=["t"]) == space.memories(category="c") == []
        assert session.memories() == fork.memories() == [private]
        assert other.memories() == []
        assert "for one" not in space.profile()
        assert "for one" not in other.context("zebra for one").system
        assert "for one" in session.context("zebra for one").recalled
        assert store.verify().ok

    check()
    store.rebuild()
    check()


def test_unless_known_compares_within_a_session_or_outside(space: Space) -> None:
    session, other = space.session("s"), space.session("t")
    first = session.remember("lives in Oslo", subject="Alec", private=True)
    with pytest.raises(SubjectExists) as caught:
        session.remember("lives in Bergen", subject="alec", private=True, unless_known=True)
    assert caught.value.existing == first
    other.remember("lives in Oslo", subject="Alec", private=True, unless_known=True)
    with pytest.raises(SubjectExists):
        other.remember("lives in Bergen", subject="Alec", private=True, unless_known=True)
    space.remember("lives in Oslo", subject="Alec", unless_known=True)
    with pytest.raises(SubjectExists):
        space.remember("lives in Bergen", subject="Alec", unless_known=True)


def test_write_through_a_session_names_its_latest_event_and_is_not_private(
    store: Store, space: Space
) -> None:
    session = space.session("s")
    session.append_many([user("one"), reply("two")])
    memory = session.remember("Zebras graze")
    assert memory.session is None and session.memories() == []
    assert memory.id in {hit.id for hit in space.session("t").recall("zebras graze")}
    session.append(user("three"))
    here = session.space
    here.revise(memory.id, "Zebras sleep")
    here.forget(memory.id)
    session.append(user("four"))
    here.restore(memory.id)
    origins = [version.origin for version in space.history(memory.id)]
    assert origins == [Origin("s", 2), Origin("s", 3), Origin("s", 3), Origin("s", 4)]
    given = session.remember("Lions hunt", origin=Origin("s", 1))
    assert space.history(given.id)[0].origin == Origin("s", 1)
    outside = space.remember("Tigers swim")
    assert space.history(outside.id)[0].origin is None
    assert store.verify().ok


def test_session_without_events_is_the_origin_of_what_is_remembered_in_it(store: Store) -> None:
    """Over MCP and REST a client names its session, whose messages it never stores."""
    space = store.space("ana")
    session = space.session("Z")
    memory = session.remember("Bears fish")
    many = session.remember_many(["Wolves hunt"])[0]
    session.space.revise(memory.id, "Bears sleep")
    assert [version.origin for version in space.history(memory.id)] == [Origin("Z", 0)] * 2
    assert space.history(many.id)[0].origin == Origin("Z", 0)
    assert not space.sessions(), "it names a session, and makes none"
    (hit,) = space.recall("bears sleep", limit=1)
    assert hit.id == memory.id
    session.append(user("one"))
    assert space.history(session.remember("Cats climb").id)[0].origin == Origin("Z", 1)
    fork = space.follow([user("one"), user("two")], session="Z")
    assert space.history(fork.remember("Dogs dig").id)[0].origin == Origin("Z", 2)
    assert store.verify().ok
    records = list(space.export())
    copy = store.space("copy")
    copy.import_records(records)
    assert copy.history(memory.id)[0].origin == Origin("Z", 0)
    space.erase(memory.id, with_source=True)
    assert store.verify().ok


def test_session_without_events_does_not_hide_the_event_a_memory_came_from(store: Store) -> None:
    space = store.space("ana")
    session = space.session("s")
    said = session.append(user("My zebra Tom grazes beside the river in the evening"))
    memory = session.remember("Tom is a zebra")
    position = space.position()
    space.session("Z").space.revise(memory.id, "Tom is an old zebra")

    def lent(query: str, **options: Any) -> list[Any]:
        hits = space.recall(query, explain=True, **options)
        return [hit.parts.get("origin") for hit in hits if hit.event is not None]

    assert said.sequence == 1 and lent("Tom old zebra")[0]
    assert lent("Tom old zebra", as_of=position + 1)[0]


def test_fork_without_events_names_the_event_it_continues_as_origin(space: Space) -> None:
    history = [user("one"), reply("two"), user("three")]
    space.follow(history)
    fork = space.follow([*history[:2], user("else")])
    memory = fork.remember("Zebras graze")
    origin = space.history(memory.id)[0].origin
    assert origin is not None and fork.events()[-1].sequence == origin.sequence


def test_repeated_remember_with_a_key_keeps_its_origin_after_the_session_went_on(
    space: Space,
) -> None:
    session = space.session("s")
    session.append(user("one"))
    memory = session.remember("Zebras graze", key="k")
    session.append(user("two"))
    assert session.remember("Zebras graze", key="k") == memory
    assert [version.origin for version in space.history(memory.id)] == [Origin("s", 1)]
    with pytest.raises(KeyConflict):
        session.remember("Zebras graze", key="k", private=True)


def test_private_memory_without_a_session_is_refused(space: Space) -> None:
    with pytest.raises(InvalidInput, match="needs a session"):
        space.remember("Zebras graze", private=True)
    assert space.memories() == []


def test_shared_subject_is_allowed_in_a_session(space: Space) -> None:
    known = space.remember("for all", subject="Alec")
    private = space.session("s").remember("in s", subject="Alec", private=True)
    assert (private.session, space.memories()) == ("s", [known])


def test_events_reads_an_early_range_without_later_events(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = space.session("long")
    session.append_many([user(f"number {at}") for at in range(1, 9)])
    session.append(user("much later"), sequence=2**50)
    fork = space.follow([user(f"number {at}") for at in range(1, 6)] + [user("instead")])
    read: list[int] = []
    at_positions = log.find_at_positions

    def noted(tx: Transaction, owner: Owner, positions: Sequence[int]) -> Any:
        read.append(len(positions))
        return at_positions(tx, owner, positions)

    monkeypatch.setattr(log, "find_at_positions", noted)
    for handle, until, expected in (
        (session, 3, [2, 3]),
        (session, 2**50 - 1, [7, 8]),
        (session, 2**50, [8, 2**50]),
        (session, 1, [1]),
        (fork, 6, [5, 6]),
        (fork, 5, [4, 5]),
    ):
        assert [event.sequence for event in handle.events(2, until=until)] == expected
    assert max(read) == 2


@pytest.mark.parametrize("name", ["half \ud83d", "nul \0"])
@pytest.mark.parametrize("field", ["role", "name"])
def test_event_with_an_invalid_role_or_name_is_stored_and_recalled(
    store: Store, space: Space, field: str, name: str
) -> None:
    message = {**user("The ferry leaves at nine"), field: name}
    for _ in range(2):
        session = space.follow([message])
    assert [event.message for event in session.events()] == [message]
    assert [hit.text for hit in space.recall("When does the ferry leave?")] == texts(session)
    assert len(space.sessions()) == 1 and store.verify().ok


def test_events_until_accepts_any_large_sequence(space: Space) -> None:
    session = space.session("s")
    session.append_many([user("first"), user("second")])
    assert texts(session) == [event.text for event in session.events(until=10**30)]
    for wrong in (0, -1, 1.5, "1", True):
        with pytest.raises(InvalidInput, match="until must be a whole number from 1"):
            session.events(until=wrong)  # type: ignore[arg-type]
