"""follow: a client that names its session and has dropped its oldest messages."""

from __future__ import annotations

import pytest

from reverie import Origin, Space, Store
from reverie.history import truncated
from tests.conftest import Stores
from tests.talking import Message, answer, reply, talk, texts, user

SAID = talk("one", "two", "three", "four", "five", "six")


@pytest.fixture
def chat(space: Space) -> Space:
    space.follow(SAID, session="chat")
    return space


def turns(count: int, first: int = 0) -> list[Message]:
    numbers = range(first, first + count)
    return [said for n in numbers for said in talk(f"Question {n} of the day", f"Answer {n}")]


# -- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "stored"), [(3, True), (4, True), (4, False), (9, False)])
def test_only_what_is_new_is_kept(store: Store, space: Space, width: int, stored: bool) -> None:
    """Each turn is sent twice; replies are stored when they come, or when they are resent."""
    said: list[Message] = []
    for asked, replied in zip(turns(12)[::2], turns(12)[1::2], strict=True):
        said.append(asked)
        session = space.follow(said[-width:], session="chat")
        assert space.follow(said[-width:], session="chat").id == session.id == "chat"
        if stored:
            session.append(replied)
        said.append(replied)
    session = space.follow(said[-width:], session="chat")
    assert [event.message for event in session.events()] == said
    assert [event.sequence for event in session.events()] == list(range(1, 25))
    assert len(space.sessions()) == 1 and store.verify().ok


@pytest.mark.parametrize("sent", [talk("yes"), [user("yes"), user("yes")], [reply("ok")]])
def test_what_may_well_be_said_twice_is_no_window(space: Space, sent: list[Message]) -> None:
    before = [*talk("Shall we?", "Do you?"), user("yes"), user("yes"), reply("ok")]
    space.follow(before, session="chat")
    other = space.follow([*sent, user("Goodbye")], session="chat")
    assert other.id != "chat" and other.forked_from == Origin("chat", 0)
    assert len(texts(other)) == len(sent) + 1


def test_without_a_name_nothing_is_a_window(chat: Space) -> None:
    other = chat.follow([*SAID[2:], user("seven")])
    assert other.id != "chat" and other.forked_from is None
    assert texts(other) == ["three", "four", "five", "six", "seven"]


def test_another_name_is_another_conversation(chat: Space) -> None:
    chat.follow(talk("something", "else"), session="other")
    other = chat.follow([*SAID[2:], user("seven")], session="other")
    assert other.forked_from == Origin("other", 0) and texts(other)[0] == "three"


def test_words_said_again_and_again_go_on_at_the_end(space: Space) -> None:
    said = [*talk("Ready?", "Say yes"), *talk("yes", "ok") * 3]
    session = space.follow(said, session="chat")
    assert space.follow(talk("yes", "ok", "yes"), session="chat").id == "chat"
    assert texts(session) == [*["Ready?", "Say yes"], *["yes", "ok"] * 3, "yes"]
    assert space.follow(talk("yes", "ok", "yes"), session="chat").id == "chat"
    assert len(texts(session)) == 9, "sent again, it is known"


def test_a_window_that_begins_as_the_session_does(space: Space) -> None:
    said = talk("continue", "one", "continue", "two", "continue", "three")
    session = space.follow(said, session="chat")
    assert space.follow([*said[2:], user("continue")], session="chat").id == "chat"
    assert len(texts(session)) == 7


def test_tools_are_said_by_somebody_too(space: Space) -> None:
    def call(id: str, day: int) -> Message:
        function = {"name": "weather", "arguments": f'{{"day": {day}}}'}
        return {"role": "assistant", "tool_calls": [{"id": id, "function": function}]}

    said = [user("Look at each day")]
    for day in range(6):
        said += [call(f"c{day}", day), answer(f"c{day}", f"sunny {day}")]
        assert space.follow(said[-5:], session="chat").id == "chat"
    assert [event.message for event in space.session("chat").events()] == said


def test_a_secret_is_known_by_what_it_was_redacted_to(space: Space) -> None:
    key = "sk-proj-" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA" * 2
    said = talk("one", "two", f"My key is {key}", "Keep it safe", "Why?", "It opens doors")
    session = space.follow(said, session="chat")
    assert key not in "".join(texts(session))
    assert space.follow([*said[2:], user("Which?")], session="chat").id == "chat"
    assert len(texts(session)) == 7


# -- where it diverges ----------------------------------------------------------------------------


def test_an_edit_in_a_window_is_a_fork_there(store: Store, chat: Space) -> None:
    fork = chat.follow([*SAID[2:4], user("5")], session="chat")
    assert fork.id != "chat" and fork.forked_from == Origin("chat", 4)
    assert texts(fork) == ["one", "two", "three", "four", "5"]
    fork.append(reply("6"))
    later = [SAID[3], user("5"), reply("6"), user("7")]
    assert chat.follow(later, session="chat").id == fork.id
    assert texts(fork) == ["one", "two", "three", "four", "5", "6", "7"]
    assert chat.follow([*SAID[3:], user("seven")], session="chat").id == "chat"
    assert chat.follow([*SAID[3:], user("seven")], session=fork.id).id == "chat"
    assert store.verify().ok and store.verify().events == 10


def test_a_reply_made_again_in_a_window(chat: Space) -> None:
    fork = chat.follow(SAID[1:5], session="chat")
    assert fork.forked_from == Origin("chat", 5) and texts(fork) == texts_of(SAID[:5])
    assert chat.follow(SAID[1:5], session="chat").id == fork.id
    fork.append(reply("another six"))
    window = [*SAID[3:5], reply("another six"), user("seven")]
    assert chat.follow(window, session="chat").id == fork.id


def texts_of(messages: list[Message]) -> list[str]:
    return [message["content"] for message in messages]


def test_what_two_forks_share(chat: Space) -> None:
    one = chat.follow([*SAID[:4], user("V"), reply("VI")], session="chat")
    two = chat.follow([*SAID[:4], user("5"), reply("6")], session="chat")
    third = chat.follow([*SAID[2:4], user("fünf")], session="chat")
    assert third.forked_from == Origin("chat", 4)
    assert chat.follow([*talk("V", "VI", "VII")], session=two.id).id == one.id


def test_of_two_that_end_alike_the_newest_goes_on(chat: Space) -> None:
    one = chat.follow([*SAID[:2], *talk("same", "end")], session="chat")
    two = chat.follow([*SAID[:4], *talk("same", "end")], session="chat")
    assert one.id != two.id
    assert chat.follow(talk("same", "end", "new"), session="chat").id == two.id
    assert chat.follow([*SAID[1:2], *talk("same", "end", "new")], session="chat").id == one.id


@pytest.mark.parametrize("ends", [True, False])
def test_a_greeting_is_a_window_only_where_the_session_ends(space: Space, ends: bool) -> None:
    said = talk("one", "two", "Hi!", "Hello!")
    space.follow(said if ends else [*said, user("three")], session="chat")
    other = space.follow(talk("Hi!", "Hello!", "Book a flight"), session="chat")
    assert (other.id == "chat") == ends
    assert ends or other.forked_from == Origin("chat", 0)


# -- replies that were cut off --------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["The zebra is", "The zebra is striped", "", None])
@pytest.mark.parametrize("width", [3, 4, 5])
def test_a_reply_cut_off_in_a_window(
    store: Store, chat: Space, shown: str | None, width: int
) -> None:
    session = chat.follow([*SAID[2:], user("What is it?")], session="chat")
    session.append(reply("The zebra is striped"), interrupted=True)
    said = [*SAID, user("What is it?")] + ([] if shown is None else [reply(shown)])
    for asked, replied in (("Go on", "and black"), ("I see", "Good"), ("Bye", "So long")):
        said.append(user(asked))
        assert chat.follow(said[-width:], session="chat").id == "chat"
        session.append(reply(replied))
        said.append(reply(replied))
    assert texts(session) == [
        *[*texts_of(SAID), "What is it?", "The zebra is striped", "Go on", "and black"],
        *["I see", "Good", "Bye", "So long"],
    ]
    assert len(chat.sessions()) == 1 and store.verify().ok


def test_another_reply_than_the_one_cut_off(chat: Space) -> None:
    session = chat.follow([*SAID, user("What is it?")], session="chat")
    session.append(reply("The zebra is"), interrupted=True)
    fork = chat.follow([*SAID[3:], *talk("What is it?", "A horse", "Why?")], session="chat")
    assert fork.forked_from == Origin("chat", 7)


# -- what it costs --------------------------------------------------------------------------------


def test_a_history_with_its_beginning_is_not_looked_for_as_a_window(
    chat: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(truncated, "find_window")
    for named in (None, "chat"):
        assert chat.follow([*SAID, *talk("seven", "eight")], session=named).id == "chat"
        assert chat.follow([*SAID, *talk("seven", "eight")], session=named).id == "chat"
        assert chat.follow(SAID[:3], session=named).forked_from == Origin("chat", 3)
    assert chat.follow(talk("something", "else")).forked_from is None


def test_only_the_newest_events_are_looked_at(stores: Stores, space: Space) -> None:
    said = turns(150)
    space.session("chat").append_many(said)
    assert space.follow([*said[-5:], user("new")], session="chat").id == "chat"
    behind = len(said) - truncated.LOOKBACK_EVENTS
    near = space.follow([*said[behind : behind + 4], user("edited")], session="chat")
    assert near.forked_from == Origin("chat", behind + 4)
    far = space.follow([*said[20:24], user("edited")], session="chat")
    assert far.forked_from == Origin("chat", 0)
    assert space.follow([*said[20:], user("new"), user("newer")], session="chat").id == "chat"


def test_what_was_erased_is_no_gap_in_a_window(stores: Stores) -> None:
    store = stores.open()
    space = store.space("ana", user="bo")
    session = space.follow(SAID, session="chat")
    memory = space.remember("three is odd", origin=Origin("chat", 3))
    space.erase(memory.id, with_source=True)
    fork = space.follow([*SAID[1:2], *SAID[3:5], reply("6")], session="chat")
    assert fork.forked_from == Origin("chat", 5)
    store.rebuild()
    assert space.follow([*SAID[3:5], reply("6"), user("7")], session="chat").id == fork.id
    assert texts(session) == ["one", "two", "four", "five", "six"]
    assert texts(fork) == ["one", "two", "four", "five", "6", "7"] and store.verify().ok
