"""Messages that begin with /memory are answered here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.conftest import Proxied, Proxy, Serve


def command_reply(it: Proxied, text: str, **more: Any) -> str:
    answer = it.chat(text, **more)
    assert answer.status_code == 200
    content: str = answer.json()["choices"][0]["message"]["content"]
    return content


def test_memory_command_lists_by_category(proxy: Proxy) -> None:
    it = proxy()
    assert command_reply(it, "/memory") == "No memories stored yet."
    alec = it.space.remember("Alec is the user's boss", category="person", subject="Alec")
    sarah = it.space.remember("Sarah works on\nthe Design team", category="person")
    due = it.space.remember("User prefers Thursday due dates", category="work_habit")
    listed = (
        "📝 Your memories:\n"
        "\n"
        "**Person**\n"
        f"• [{alec.id}] [Alec] Alec is the user's boss\n"
        f"• [{sarah.id}] Sarah works on the Design team\n"
        "\n"
        "**Work Habit**\n"
        f"• [{due.id}] User prefers Thursday due dates\n"
        "\n"
        "Use /memory delete <id> to remove a memory."
    )
    for command in ("/memory", "/memory list", "/MEMORY LIST", " /memory\nlist "):
        assert command_reply(it, command) == listed
    assert not it.upstream.requests and it.stored_events() == {}


def test_memory_delete_and_undo_commands_work(proxy: Proxy) -> None:
    it = proxy()
    one = it.space.remember("User prefers Thursday due dates")
    two = it.space.remember("User likes tea")
    assert command_reply(it, "/memory delete") == "Usage: /memory delete <id>"
    assert command_reply(it, "/memory undo") == "Nothing to undo."
    assert (
        command_reply(it, f"/memory DELETE {one.id}")
        == "Deleted: 'User prefers Thursday due dates'"
    )
    assert command_reply(it, f"/memory delete [{two.id}]") == "Deleted: 'User likes tea'"
    assert command_reply(it, "/memory") == "No memories stored yet."
    assert command_reply(it, "/memory undo") == "Restored: 'User likes tea'"
    assert command_reply(it, "/memory undo") == "Restored: 'User prefers Thursday due dates'"
    assert command_reply(it, "/memory undo") == "Nothing to undo."
    assert command_reply(it, "/memory delete nothing1").startswith("Error: ")
    history = it.space.history(one.id)
    assert [version.op for version in history] == ["remember", "forget", "restore"]
    assert history[1].reason == "the user said /memory delete"


def test_memory_search_command_shows_hits(proxy: Proxy) -> None:
    it = proxy()
    assert command_reply(it, "/memory search tea") == "No memories found for 'tea'."
    tea = it.space.remember("User likes tea", subject="tea")
    it.space.session("s").append({"role": "user", "content": "tea, please"})
    found = command_reply(it, "/memory search tea").splitlines()
    assert found[0] == "🔎 Memories for 'tea':"
    assert found[2:] == [f"• [{tea.id}] [tea] User likes tea", "",
                         "Use /memory delete <id> to remove a memory."]  # fmt: skip
    assert command_reply(it, "/memory search") == "Usage: /memory search <words>"


def test_memory_command_says_how_many_it_omits(proxy: Proxy) -> None:
    it = proxy()
    for number in range(103):
        it.space.remember(f"Fact number {number}", subject=str(number))
    lines = command_reply(it, "/memory").splitlines()
    assert sum(line.startswith("•") for line in lines) == 100
    assert "… and 3 more: /memory search <words> finds them." in lines


def test_memory_command_is_streamed_when_streaming_is_requested(proxy: Proxy) -> None:
    it = proxy()
    answer = it.chat("/memory", stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert chunks[0]["delta"] == {"role": "assistant", "content": "No memories stored yet."}
    assert chunks[-1]["finish_reason"] == "stop"


def test_memory_commands_and_replies_are_neither_stored_nor_learned(proxy: Proxy) -> None:
    it = proxy()
    memory = it.space.remember("The code word is heliotrope", subject="code")
    asked = {"role": "user", "content": f"/memory delete {memory.id}"}
    reply = {"role": "assistant", "content": command_reply(it, asked["content"])}
    it.chat(asked, reply, "What is the code word?")
    assert list(it.stored_events().values()) == [
        [("user", "What is the code word?", False), ("assistant", "All is well", False)]
    ]
    assert it.upstream.last.messages == [asked, reply, {"role": "user",
                                         "content": "What is the code word?"}]  # fmt: skip
    it.chat("Tell me: what was the code word?")
    assert "heliotrope" not in it.upstream.last.body.decode()


def test_memory_commands_work_without_an_upstream(serve: Serve) -> None:
    running = serve()
    body = {"messages": [{"role": "user", "content": "/memory"}]}
    with running.client() as client:
        answer = client.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "No memories stored yet."


@pytest.mark.parametrize(
    "text",
    [
        "/memoryless",
        "tell me about /memory",
        "/memories",
        "memory",
        "/memory leaks in my C++ service",
        "/memory\nwhatever",
        "/memory listing",
        "/memory undo-log",
        "/memory, please",
    ],
)
def test_text_that_only_resembles_a_command_goes_to_the_model(proxy: Proxy, text: str) -> None:
    it = proxy()
    assert command_reply(it, text) == "All is well" and len(it.upstream.requests) == 1
    assert [events[0][1] for events in it.stored_events().values()] == [text]


def test_memory_help_is_a_command(proxy: Proxy) -> None:
    it = proxy()
    assert command_reply(it, "/memory help").startswith("Usage: /memory list")
    assert not it.upstream.requests


def test_memory_delete_needs_the_write_right(proxy: Proxy) -> None:
    it = proxy()
    memory = it.space.remember("User likes tea")
    token, read = it.running.token("read"), {"X-Reverie-Mode": "read"}
    listed = command_reply(it, "/memory", token=token, headers=read)
    refused = command_reply(it, f"/memory delete {memory.id}", token=token, headers=read)
    assert "tea" in listed and refused.startswith("Error: ")
    assert it.space.get(memory.id).forgotten_at is None


def test_mode_off_passes_commands_to_the_model(proxy: Proxy) -> None:
    it = proxy()
    assert command_reply(it, "/memory", headers={"X-Reverie-Mode": "off"}) == "All is well"


def test_memory_delete_and_undo_are_limited_to_the_user(proxy: Proxy) -> None:
    it = proxy()
    shared = it.space.remember("The office closes at six")
    ana = it.running.store.space("default", user="ana").remember("Ana likes tea")
    assert "six" in command_reply(it, "/memory", user="ana") and "tea" in command_reply(
        it, "/memory", user="ana"
    )
    assert command_reply(it, f"/memory delete {shared.id}", user="ana").startswith("Error: ")
    it.space.forget(shared.id)
    command_reply(it, f"/memory delete {ana.id}", user="ana")
    assert command_reply(it, "/memory undo", user="ana") == "Restored: 'Ana likes tea'"
    assert command_reply(it, "/memory undo", user="ana") == "Nothing to undo."


@pytest.mark.parametrize("model", ["scripted", "half \\ud83d"])
@pytest.mark.parametrize("text", ["/memory search x", "/memory search half \\ud83d"])
def test_memory_command_with_a_lone_surrogate_is_answered(
    proxy: Proxy, model: str, text: str
) -> None:
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "{text}"}}]}}'
    with proxy().running.client() as client:
        answer = client.post("/v1/chat/completions", content=body.encode())
    assert answer.status_code == 200, answer.text
    assert "No memories found" in answer.json()["choices"][0]["message"]["content"]
