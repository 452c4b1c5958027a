"""The session, user and space of a chat, and that successive prompts share their beginning."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest

from tests.server.conftest import CHAT, Message, Proxied, Proxy
from tests.server.proxy.upstream import (
    Received,
    Reply,
    Whole,
    replies,
    says,
)

TURNS = 40


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def reply_of(answer: Any) -> Message:
    message: Message = answer.json()["choices"][0]["message"]
    return message


def asked_in(received: Received) -> str:
    """What the user said, without what was recalled for it."""
    text: str = received.messages[-1]["content"]
    return text.rpartition("\n\n")[2]


def before_the_last_user(raw: bytes) -> bytes:
    """The bytes up to the last message of the user."""
    last = [m for m in json.loads(raw)["messages"] if m["role"] == "user"][-1]
    text = json.dumps(last, separators=(",", ":"), ensure_ascii=False).encode()
    return raw[: raw.rindex(text)]


@pytest.mark.parametrize("system", [True, False])
def test_each_prompt_starts_with_the_previous_one(proxy: Proxy, system: bool) -> None:
    """Up to its last user message, byte for byte, whatever is remembered meanwhile."""
    chance = random.Random(5)
    it = proxy(lambda received: says(f"Reply {len(received.messages)}")(received))
    it.space.remember("The user lives in Lisbon", subject="home")
    it.space.session("earlier").append(user("The ferry to Naxos leaves at seven"))
    history: list[Message] = [{"role": "system", "content": "Be brief."}] if system else []
    with it.running.client() as client:
        for turn in range(TURNS):
            history.append(user(f"{turn}: when does the ferry to Naxos leave? é {chance.random()}"))
            if turn % 7 == 3:
                call = {"id": f"c{turn}", "type": "function",
                        "function": {"name": "f", "arguments": "{}"}}  # fmt: skip
                history += [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": f"c{turn}", "content": "seven"},
                ]
            answer = client.post(CHAT, json={"model": "m", "messages": history})
            history.append({"role": "assistant", "content": reply_of(answer)["content"]})
            # Its number is none of a question, which would recall it instead of the ferry.
            it.space.remember(f"Anna owns {turn + 1000} boats", subject=f"s{turn}")
            if turn % 5 == 0:
                it.running.store.run_pending_jobs()
    bodies = [received.body for received in it.upstream.requests]
    assert all("The ferry to Naxos leaves at seven" in body.decode() for body in bodies)
    for earlier, later in zip(bodies, bodies[1:], strict=False):
        shared = before_the_last_user(earlier)
        assert b"Lisbon" in shared and later.startswith(shared)
    (session,) = [s for s in it.stored_events() if s != "earlier"]
    assert len(it.stored_events()[session]) == len(history) - system


def test_chats_with_the_same_beginning_never_mix(proxy: Proxy) -> None:
    it = proxy(replies(["Hello!", "Hello!", "Noted, a dog.", "Noted, a cat."]))
    first = [user("hi"), reply_of(it.chat(user("hi")))]
    second = [user("hi"), reply_of(it.chat(user("hi")))]
    it.chat(*first, user("I have a dog"))
    it.chat(*second, user("I have a cat"))
    texts = sorted([text for _, text, _ in events] for events in it.stored_events().values())
    ends = [each[-2:] for each in texts if len(each) > 2]
    assert ["I have a dog", "Noted, a dog."] in ends and ["I have a cat", "Noted, a cat."] in ends
    assert not any("dog" in str(each) and "cat" in str(each) for each in texts)


def test_regenerated_and_edited_turns_are_forks(proxy: Proxy) -> None:
    it = proxy(replies(["Paris is nice", "Rome is nicer", "Oslo is cold", "Indeed"]))
    asked = user("Where shall I go in May?")
    it.chat(asked)
    again = it.chat(asked)
    it.chat(user("Where shall I go in June?"))
    it.chat(asked, reply_of(again), user("Is it warm there?"))
    kept = sorted([text for _, text, _ in events] for events in it.stored_events().values())
    assert kept == [
        ["Where shall I go in June?", "Oslo is cold"],
        ["Where shall I go in May?", "Paris is nice"],
        ["Where shall I go in May?", "Rome is nicer", "Is it warm there?", "Indeed"],
    ]


def test_repeated_request_duplicates_nothing(proxy: Proxy) -> None:
    it = proxy(says("The answer is 42"))
    for _ in range(3):
        it.chat("What is the answer to everything?")
    assert list(it.stored_events().values()) == [
        [("user", "What is the answer to everything?", False),
         ("assistant", "The answer is 42", False)]
    ]  # fmt: skip


def test_concurrent_requests_lose_and_duplicate_nothing(proxy: Proxy) -> None:
    it = proxy(lambda received: says("To " + asked_in(received))(received))
    threads = [
        threading.Thread(target=it.chat, args=(f"Question number {n % 4} of the day",))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = sorted(tuple(text for _, text, _ in events) for events in it.stored_events().values())
    questions = [f"Question number {n} of the day" for n in range(4)]
    assert [each for each in kept if len(each) == 2] == [(q, f"To {q}") for q in questions]
    assert len(kept) == 4


def test_next_turn_before_the_reply_is_stored_continues_the_session(proxy: Proxy) -> None:
    """The next turn comes with the reply before the reply was kept: it is kept once."""
    history = [user("Count to two"), assistant("One two"), user("Go on")]

    def script(received: Received) -> Reply:
        if len(received.messages) == 1:
            it.chat(*history)
        return says("One two" if len(received.messages) == 1 else "Three")(received)

    it = proxy(script)
    it.chat(history[0])
    texts = [text for events in it.stored_events().values() for _, text, _ in events]
    assert sorted(texts) == ["Count to two", "Go on", "One two", "Three"]


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        {"headers": {"X-Reverie-Session": "daily"}},
        {"memory_id": "daily"},
        {"headers": {"X-OpenWebUI-Chat-Id": "daily"}},
        {"headers": {"X-Reverie-Session": "daily"}, "memory_id": "other"},
    ],
)
def test_session_is_named_by_the_client(proxy: Proxy, asked: dict[str, Any]) -> None:
    it = proxy()
    answer = it.chat("Good to be here today", **asked)
    assert answer.headers["x-reverie-session"] == "daily" and list(it.stored_events()) == ["daily"]


def test_client_that_truncates_its_history_keeps_its_session(proxy: Proxy) -> None:
    """What it no longer sends is recalled for it, where it fits."""
    it = proxy(lambda received: says(f"Reply to {asked_in(received)}")(received))
    sent = [user("My ferry to Naxos leaves at seven")]
    for turn in range(5):
        answer = it.chat(*sent[-3:], memory_id="daily")
        assert answer.headers["x-reverie-session"] == "daily"
        sent += [reply_of(answer), user(f"Turn {turn}: shall we have lunch?")]
    it.chat(*sent[-3:-1], user("When does the ferry to Naxos leave?"), memory_id="daily")
    ((name, events),) = it.stored_events().items()
    assert name == "daily" and len(events) == 12
    assert "leaves at seven" in it.upstream.requests[-1].messages[-1]["content"]


def test_client_that_truncates_its_history_gets_the_summary_of_what_it_dropped(
    proxy: Proxy,
) -> None:
    it = proxy(lambda received: says(f"Reply to {asked_in(received)}")(received))
    sent = [user("Let us plan the trip to Naxos. " + "word " * 200)]
    for turn in range(12):
        sent.append(reply_of(it.chat(*sent[-5:], memory_id="daily")))
        sent.append(user(f"Turn {turn}: shall we have lunch? " + "word " * 100))
        it.running.store.run_pending_jobs()
    assert it.space.session("daily").summary().upper > 5
    it.chat(*sent[-5:], memory_id="daily")
    *before, last = it.upstream.last.messages
    summary, _, asked = last["content"].partition("\n\n")
    assert summary.startswith("Rolling session summary:") and "trip to Naxos" in summary
    assert asked.endswith(sent[-1]["content"])
    assert "Rolling session summary" not in str(before)
    assert "Rolling session summary" not in str(it.stored_events())
    it.chat(*sent, memory_id="daily")
    assert "Rolling session summary" not in it.upstream.last.body.decode()


def test_different_history_under_one_session_name_is_another_session(proxy: Proxy) -> None:
    it = proxy()
    it.chat("The first chat of the day", memory_id="daily")
    answer = it.chat("The second chat of the day", memory_id="daily")
    assert answer.headers["x-reverie-session"] != "daily"
    assert [len(events) for events in it.stored_events().values()] == [2, 2]


@pytest.mark.parametrize(
    "asked",
    [
        {"headers": {"X-Reverie-User": "ana"}},
        {"user": "ana"},
        {"headers": {"X-OpenWebUI-User-Id": "ana"}},
        {"headers": {"X-Reverie-User": "ana"}, "user": "bob"},
    ],
)
def test_users_have_separate_memories(proxy: Proxy, asked: dict[str, Any]) -> None:
    it = proxy()
    it.space.remember("The office closes at six", subject="office")
    it.running.store.space("default", user="bob").remember("Bob likes the sea", subject="sea")
    it.chat("When does the office close?", **asked)
    assert [info.events for info in it.running.store.space("default", user="ana").sessions()] == [2]
    assert it.stored_events() == {}
    assert "six" in it.upstream.last.body.decode() and "sea" not in it.upstream.last.body.decode()
    assert it.upstream.last.json.get("user") == asked.get("user")


def test_invalid_user_field_means_no_user(proxy: Proxy) -> None:
    it = proxy()
    it.chat("Good to be here today", user={"id": 7})
    assert len(it.stored_events()) == 1 and it.upstream.last.json["user"] == {"id": 7}


@pytest.mark.parametrize("header", ["X-Reverie-User", "X-Reverie-Space"])
def test_blank_space_or_user_header_is_refused(proxy: Proxy, header: str) -> None:
    it = proxy()
    answer = it.chat("The rent is due on Friday", headers={header: ""})
    assert answer.status_code == 422 and "must not be empty" in answer.json()["error"]["message"]
    assert it.stored_events() == {} and it.upstream.requests == []


def test_proxy_never_crosses_spaces(proxy: Proxy) -> None:
    it = proxy()
    it.space.remember("The secret is blue", subject="secret")
    it.chat("What is the secret?", headers={"X-Reverie-Space": "other"})
    assert "blue" not in it.upstream.last.body.decode()
    assert [info.events for info in it.running.store.space("other").sessions()] == [2]


def test_changed_system_prompt_continues_the_session(proxy: Proxy) -> None:
    it = proxy(replies(["One thing", "Another thing"]))
    first = it.chat({"role": "system", "content": "It is Monday"}, user("Tell me a thing"))
    it.chat(
        {"role": "developer", "content": "It is Tuesday"},
        user("Tell me a thing"),
        reply_of(first),
        user("And another"),
    )
    assert [len(events) for events in it.stored_events().values()] == [4]


def test_turn_through_the_proxy_is_learned_once(proxy: Proxy) -> None:
    it = proxy(lambda received: says(f"Fine, {len(received.messages)}")(received))
    history: list[Message] = []
    for text in ("My name is Alice", "And what is new?", "What is my name?"):
        history.append(user(text))
        history.append(reply_of(it.chat(*history)))
        it.running.store.run_pending_jobs()
    assert ["Alice" in memory.content for memory in it.space.memories()] == [True]


def test_tool_loop_is_one_turn(proxy: Proxy) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": None,
                                                 "tool_calls": [call]}}]}  # fmt: skip
    scripts = [lambda _: Whole(json.dumps(body).encode()), says("It rains")]
    it: Proxied = proxy(lambda received: scripts.pop(0)(received))
    first = it.chat("How is the weather in Naxos?")
    tool = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
    it.chat(user("How is the weather in Naxos?"), reply_of(first), tool)
    (events,) = it.stored_events().values()
    assert [role for role, _, _ in events] == ["user", "assistant", "tool", "assistant"]
    assert events[-1][1] == "It rains"
