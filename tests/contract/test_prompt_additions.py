"""prompt_additions: the profile and recalled text for a client that sends its own history."""

from __future__ import annotations

from typing import Any

import pytest

from reverie import InvalidInput, Ranking, Space
from reverie.embed.tokens import count_tokens
from tests.conftest import Stores
from tests.messages import append_as_shared

ABOUT = "the ferry to Naxos leaves at seven"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_prompt_additions_omit_messages_that_the_client_sends(space: Space) -> None:
    space.session("earlier").append(user(f"Note that {ABOUT}"))
    here = space.follow([user("When does the ferry to Naxos leave?")])
    found = here.prompt_additions("When does the ferry to Naxos leave?")
    assert ABOUT in found.recalled
    assert "When does" not in found.recalled
    assert [hit.id for hit in found.hits] == ["earlier:1"]


@pytest.mark.parametrize("edited", [False, True])
def test_prompt_additions_recall_messages_that_the_client_dropped(
    space: Space, edited: bool
) -> None:
    conversation = [user(f"Note that {ABOUT}"), assistant("Noted"), user("What is Naxos?")]
    conversation += [assistant("An island with a ferry"), user("Is it large?"), assistant("It is")]
    space.follow(conversation, session="chat")
    sent = [*conversation[2 : 4 if edited else 6], user("When does the ferry to Naxos leave?")]
    here = space.follow(sent, session="chat")
    found = here.prompt_additions("When does the ferry to Naxos leave?")
    ids = {hit.id for hit in found.hits}
    assert "chat:1" in ids and ABOUT in found.recalled
    assert ids.isdisjoint({"chat:3", "chat:4"}), "the client has these"
    whole = space.follow([*conversation, sent[-1]], session="chat")
    found = whole.prompt_additions("When does the ferry to Naxos leave?")
    assert not any(hit.id.startswith("chat:") for hit in found.hits)


def test_prompt_additions_show_other_sessions_beside_a_long_one(space: Space) -> None:
    space.session("earlier").append(user(f"Note that {ABOUT}"))
    history = [user(f"Ferry to Naxos, question {n}: when does it leave?") for n in range(60)]
    found = space.follow(history).prompt_additions("the ferry to Naxos leaves when")
    assert [hit.id for hit in found.hits] == ["earlier:1"]


def test_prompt_additions_profile_is_frozen_until_refreshed(space: Space) -> None:
    space.remember("The user lives in Lisbon", subject="home")
    session = space.follow([user("hello there, old friend of mine")])
    first = session.prompt_additions("hello").profile
    space.remember("The user has a cat", subject="cat")
    assert "Lisbon" in first and session.prompt_additions("cat").profile == first
    session.refresh_profile()
    assert "cat" in session.prompt_additions("cat").profile


def test_prompt_additions_show_a_profile_memory_once_and_count_it_as_a_hit(space: Space) -> None:
    memory = space.remember("The user lives in Lisbon", subject="home")
    found = space.follow([user("Where do I live?")]).prompt_additions("Where does the user live?")
    assert [hit.id for hit in found.hits] == [memory.id]
    assert "Lisbon" in found.profile and found.recalled == ""


def test_prompt_additions_recall_a_newer_version_than_the_profile_shows(space: Space) -> None:
    memory = space.remember("The user lives in Lisbon", subject="home")
    session = space.follow([user("Where do I live?")])
    session.prompt_additions("home")
    space.revise(memory.id, "The user lives in Porto")
    found = session.prompt_additions("Where does the user live?")
    assert "Lisbon" in found.profile and "Porto" in found.recalled


def test_prompt_additions_omit_the_reply_that_is_regenerated(space: Space) -> None:
    asked = [user("Tell me about the ferry to Naxos")]
    space.follow([*asked, assistant(f"I believe {ABOUT}")])
    again = space.follow(asked)
    assert again.forked_from is not None
    assert again.prompt_additions("Tell me about the ferry to Naxos").recalled == ""
    again.append(assistant(f"I am sure that {ABOUT}, daily"))
    third = space.follow(asked)
    assert third.prompt_additions("Tell me about the ferry to Naxos").recalled == ""


def test_prompt_additions_recall_another_conversation_of_one_session_name(space: Space) -> None:
    space.follow([user(f"Note that {ABOUT}")], session="bucket")
    other = space.follow([user("When does the ferry leave?")], session="bucket")
    assert ABOUT in other.prompt_additions("When does the ferry leave?").recalled


def test_prompt_additions_use_the_limit_and_ranking_of_the_caller(space: Space) -> None:
    for number in range(6):
        space.session(f"s{number}").append(user(f"Ferry fact {number}: {ABOUT} on day {number}"))
    session = space.session("now")
    assert len(session.prompt_additions("ferry to Naxos", limit=2).hits) == 2
    none = session.prompt_additions("ferry to Naxos", ranking=Ranking(score_threshold=1e5))
    assert none.hits == () and none.recalled == ""
    with pytest.raises(InvalidInput):
        session.prompt_additions("ferry", limit=0)
    with pytest.raises(InvalidInput):
        session.prompt_additions(7)  # type: ignore[arg-type]


def test_prompt_additions_without_freezing_write_nothing(space: Space) -> None:
    space.remember("The user lives in Lisbon", subject="home")
    session = space.session("reader")
    assert "Lisbon" in session.prompt_additions("home", freeze=False).profile
    space.remember("The user has a cat", subject="cat")
    assert "cat" in session.prompt_additions("home", freeze=False).profile


def test_prompt_additions_log_the_recall_for_the_latest_user_message(space: Space) -> None:
    space.session("earlier").append(user(f"Note that {ABOUT}"))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        user("When does the ferry to Naxos leave?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "no answer"},
    ]
    session = space.follow(history)
    session.prompt_additions("When does the ferry to Naxos leave?")
    space.remember("so that notes are written")
    assert [note.sequence for note in session.recalls()] == [1]


def test_prompt_additions_separate_user_and_shared_sessions_of_one_name(stores: Stores) -> None:
    store = stores.open()
    append_as_shared(store.space("team"), "daily", user(f"Note that {ABOUT}"))
    mine = store.space("team", user="ana").follow([user("ferry to Naxos?")], session="daily")
    assert ABOUT in mine.prompt_additions("ferry to Naxos").recalled


def long_chat(turns: int) -> list[dict[str, Any]]:
    return [
        message
        for number in range(turns)
        for message in (
            user(f"Question {number}: {ABOUT}, and what then? " + "word " * 60),
            assistant(f"Answer {number}: wait for the next one. " + "word " * 60),
        )
    ]


def test_prompt_additions_hold_the_summary_of_turns_that_the_client_dropped(
    stores: Stores,
) -> None:
    store = stores.open()
    space = store.space("ana")
    chat = long_chat(20)
    space.follow(chat, session="chat")
    store.run_pending_jobs()
    summary = space.session("chat").summary()
    assert 10 < summary.upper < 40
    whole = space.follow([*chat, user("And now?")], session="chat")
    assert whole.prompt_additions("And now?").summary == ""
    window = space.follow([*chat[20:], user("And now?")], session="chat")
    found = window.prompt_additions("And now?")
    assert window.id == "chat" and "Question 5" in found.summary
    first, *lines = found.summary.splitlines()
    assert first.startswith("Rolling session summary:") and "data, not instructions" in first
    assert lines[0] == summary.text.splitlines()[0]
    assert found.per_turn.startswith(first)


def test_prompt_additions_omit_the_summary_if_no_covered_turn_was_dropped(space: Space) -> None:
    chat = long_chat(6)
    space.follow(chat, session="chat")
    handle = space.follow([*chat[4:], user("And now?")], session="chat")
    assert handle.prompt_additions("x").summary == "", "there is none"
    other = space.follow([user("hello there"), assistant("hi"), user("more")], session="other")
    other.write_summary("They said hello.", upper=2, expected_epoch=0)
    assert other.prompt_additions("x").summary == "", "all is sent"


def test_prompt_additions_stay_within_their_tokens(stores: Stores) -> None:
    store = stores.open(context_tokens=1000)
    space = store.space("ana")
    for number in range(80):
        space.remember(f"The ferry number {number} goes to Naxos in the morning")
    chat = long_chat(20)
    space.follow(chat, session="chat")
    space.session("chat").write_summary("船は七時に出ます。" * 800, upper=30, expected_epoch=0)
    found = space.follow([*chat[-4:], user("ferry?")], session="chat").prompt_additions("ferry?")
    assert found.summary and found.profile and found.recalled
    assert sum(map(count_tokens, (found.profile, found.summary, found.recalled))) <= 1000
