"""follow: a client that names its session and has dropped its oldest messages."""

from __future__ import annotations

import pytest

from reverie import Origin, Space, Store
from reverie.history import truncated
from tests.conftest import Stores
from tests.messages import Message, answer, conversation, reply, texts, user

HISTORY = conversation("one", "two", "three", "four", "five", "six")


@pytest.fixture
def chat(space: Space) -> Space:
    space.follow(HISTORY, session="chat")
    return space


def turns(count: int, first: int = 0) -> list[Message]:
    numbers = range(first, first + count)
    return [
        message
        for n in numbers
        for message in conversation(f"Question {n} of the day", f"Answer {n}")
    ]


# -- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "stored"), [(3, True), (4, True), (4, False), (9, False)])
def test_truncated_history_adds_only_new_messages(
    store: Store, space: Space, width: int, stored: bool
) -> None:
    """Each turn is sent twice; replies are stored when they come, or when they are resent."""
    history: list[Message] = []
    for asked, replied in zip(turns(12)[::2], turns(12)[1::2], strict=True):
        history.append(asked)
        session = space.follow(history[-width:], session="chat")
        assert space.follow(history[-width:], session="chat").id == session.id == "chat"
        if stored:
            session.append(replied)
        history.append(replied)
    session = space.follow(history[-width:], session="chat")
    assert [event.message for event in session.events()] == history
    assert [event.sequence for event in session.events()] == list(range(1, 25))
    assert len(space.sessions()) == 1 and store.verify().ok


@pytest.mark.parametrize("sent", [conversation("yes"), [user("yes"), user("yes")], [reply("ok")]])
def test_truncated_history_of_short_common_phrases_does_not_match(
    space: Space, sent: list[Message]
) -> None:
    before = [*conversation("Shall we?", "Do you?"), user("yes"), user("yes"), reply("ok")]
    space.follow(before, session="chat")
    other = space.follow([*sent, user("Goodbye")], session="chat")
    assert other.id != "chat" and other.forked_from == Origin("chat", 0)
    assert len(texts(other)) == len(sent) + 1


def test_truncated_history_without_a_session_name_does_not_match(chat: Space) -> None:
    other = chat.follow([*HISTORY[2:], user("seven")])
    assert other.id != "chat" and other.forked_from is None
    assert texts(other) == ["three", "four", "five", "six", "seven"]


def test_truncated_history_does_not_match_another_session_name(chat: Space) -> None:
    chat.follow(conversation("something", "else"), session="other")
    other = chat.follow([*HISTORY[2:], user("seven")], session="other")
    assert other.forked_from == Origin("other", 0) and texts(other)[0] == "three"


def test_truncated_history_of_repeated_words_continues_at_the_end(space: Space) -> None:
    history = [*conversation("Ready?", "Say yes"), *conversation("yes", "ok") * 3]
    session = space.follow(history, session="chat")
    assert space.follow(conversation("yes", "ok", "yes"), session="chat").id == "chat"
    assert texts(session) == [*["Ready?", "Say yes"], *["yes", "ok"] * 3, "yes"]
    assert space.follow(conversation("yes", "ok", "yes"), session="chat").id == "chat"
    assert len(texts(session)) == 9, "sent again, it is known"


def test_truncated_history_that_starts_like_the_session_matches(space: Space) -> None:
    history = conversation("continue", "one", "continue", "two", "continue", "three")
    session = space.follow(history, session="chat")
    assert space.follow([*history[2:], user("continue")], session="chat").id == "chat"
    assert len(texts(session)) == 7


def test_truncated_history_with_tool_messages_matches(space: Space) -> None:
    def call(id: str, day: int) -> Message:
        function = {"name": "weather", "arguments": f'{{"day": {day}}}'}
        return {"role": "assistant", "tool_calls": [{"id": id, "function": function}]}

    history = [user("Look at each day")]
    for day in range(6):
        history += [call(f"c{day}", day), answer(f"c{day}", f"sunny {day}")]
        assert space.follow(history[-5:], session="chat").id == "chat"
    assert [event.message for event in space.session("chat").events()] == history


def test_truncated_history_with_a_redacted_secret_matches(space: Space) -> None:
    key = "sk-proj-" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA" * 2
    history = conversation(
        "one", "two", f"My key is {key}", "Keep it safe", "Why?", "It opens doors"
    )
    session = space.follow(history, session="chat")
    assert key not in "".join(texts(session))
    assert space.follow([*history[2:], user("Which?")], session="chat").id == "chat"
    assert len(texts(session)) == 7


# -- where it diverges ----------------------------------------------------------------------------


def test_edit_in_a_truncated_history_forks_at_the_edited_message(store: Store, chat: Space) -> None:
    fork = chat.follow([*HISTORY[2:4], user("5")], session="chat")
    assert fork.id != "chat" and fork.forked_from == Origin("chat", 4)
    assert texts(fork) == ["one", "two", "three", "four", "5"]
    fork.append(reply("6"))
    later = [HISTORY[3], user("5"), reply("6"), user("7")]
    assert chat.follow(later, session="chat").id == fork.id
    assert texts(fork) == ["one", "two", "three", "four", "5", "6", "7"]
    assert chat.follow([*HISTORY[3:], user("seven")], session="chat").id == "chat"
    assert chat.follow([*HISTORY[3:], user("seven")], session=fork.id).id == "chat"
    assert store.verify().ok and store.verify().events == 10


def test_regenerated_reply_in_a_truncated_history_forks(chat: Space) -> None:
    fork = chat.follow(HISTORY[1:5], session="chat")
    assert fork.forked_from == Origin("chat", 5) and texts(fork) == texts_of(HISTORY[:5])
    assert chat.follow(HISTORY[1:5], session="chat").id == fork.id
    fork.append(reply("another six"))
    window = [*HISTORY[3:5], reply("another six"), user("seven")]
    assert chat.follow(window, session="chat").id == fork.id


def texts_of(messages: list[Message]) -> list[str]:
    return [message["content"] for message in messages]


def test_truncated_history_shared_by_two_forks_matches_their_parent(chat: Space) -> None:
    one = chat.follow([*HISTORY[:4], user("V"), reply("VI")], session="chat")
    two = chat.follow([*HISTORY[:4], user("5"), reply("6")], session="chat")
    third = chat.follow([*HISTORY[2:4], user("fünf")], session="chat")
    assert third.forked_from == Origin("chat", 4)
    assert chat.follow([*conversation("V", "VI", "VII")], session=two.id).id == one.id


def test_truncated_history_that_ends_two_forks_continues_the_newest(chat: Space) -> None:
    one = chat.follow([*HISTORY[:2], *conversation("same", "end")], session="chat")
    two = chat.follow([*HISTORY[:4], *conversation("same", "end")], session="chat")
    assert one.id != two.id
    assert chat.follow(conversation("same", "end", "new"), session="chat").id == two.id
    assert (
        chat.follow([*HISTORY[1:2], *conversation("same", "end", "new")], session="chat").id
        == one.id
    )


@pytest.mark.parametrize("ends", [True, False])
def test_greeting_matches_as_a_truncated_history_only_at_the_end(space: Space, ends: bool) -> None:
    history = conversation("one", "two", "Hi!", "Hello!")
    space.follow(history if ends else [*history, user("three")], session="chat")
    other = space.follow(conversation("Hi!", "Hello!", "Book a flight"), session="chat")
    assert (other.id == "chat") == ends
    assert ends or other.forked_from == Origin("chat", 0)


# -- replies that were cut off --------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["The zebra is", "The zebra is striped", "", None])
@pytest.mark.parametrize("width", [3, 4, 5])
def test_interrupted_reply_in_a_truncated_history_matches(
    store: Store, chat: Space, shown: str | None, width: int
) -> None:
    session = chat.follow([*HISTORY[2:], user("What is it?")], session="chat")
    session.append(reply("The zebra is striped"), interrupted=True)
    history = [*HISTORY, user("What is it?")] + ([] if shown is None else [reply(shown)])
    for asked, replied in (("Go on", "and black"), ("I see", "Good"), ("Bye", "So long")):
        history.append(user(asked))
        assert chat.follow(history[-width:], session="chat").id == "chat"
        session.append(reply(replied))
        history.append(reply(replied))
    assert texts(session) == [
        *[*texts_of(HISTORY), "What is it?", "The zebra is striped", "Go on", "and black"],
        *["I see", "Good", "Bye", "So long"],
    ]
    assert len(chat.sessions()) == 1 and store.verify().ok


def test_truncated_history_with_another_reply_than_the_interrupted_one_forks(chat: Space) -> None:
    session = chat.follow([*HISTORY, user("What is it?")], session="chat")
    session.append(reply("The zebra is"), interrupted=True)
    fork = chat.follow(
        [*HISTORY[3:], *conversation("What is it?", "A horse", "Why?")], session="chat"
    )
    assert fork.forked_from == Origin("chat", 7)


# -- what it costs --------------------------------------------------------------------------------


def test_whole_history_is_not_searched_as_a_truncated_one(
    chat: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(truncated, "find_window")
    for named in (None, "chat"):
        assert chat.follow([*HISTORY, *conversation("seven", "eight")], session=named).id == "chat"
        assert chat.follow([*HISTORY, *conversation("seven", "eight")], session=named).id == "chat"
        assert chat.follow(HISTORY[:3], session=named).forked_from == Origin("chat", 3)
    assert chat.follow(conversation("something", "else")).forked_from is None


def test_truncated_history_is_searched_in_the_newest_events_only(
    stores: Stores, space: Space
) -> None:
    history = turns(150)
    space.session("chat").append_many(history)
    assert space.follow([*history[-5:], user("new")], session="chat").id == "chat"
    behind = len(history) - truncated.LOOKBACK_EVENTS
    near = space.follow([*history[behind : behind + 4], user("edited")], session="chat")
    assert near.forked_from == Origin("chat", behind + 4)
    far = space.follow([*history[20:24], user("edited")], session="chat")
    assert far.forked_from == Origin("chat", 0)
    assert space.follow([*history[20:], user("new"), user("newer")], session="chat").id == "chat"


def test_erased_events_leave_no_gap_in_a_truncated_history(stores: Stores) -> None:
    store = stores.open()
    space = store.space("ana", user="bo")
    session = space.follow(HISTORY, session="chat")
    memory = space.remember("three is odd", origin=Origin("chat", 3))
    space.erase(memory.id, with_source=True)
    fork = space.follow([*HISTORY[1:2], *HISTORY[3:5], reply("6")], session="chat")
    assert fork.forked_from == Origin("chat", 5)
    store.rebuild()
    assert space.follow([*HISTORY[3:5], reply("6"), user("7")], session="chat").id == fork.id
    assert texts(session) == ["one", "two", "four", "five", "six"]
    assert texts(fork) == ["one", "two", "four", "five", "6", "7"] and store.verify().ok
