"""With ``write_policy=ask`` the person is asked through the proxy, and answers there."""

from __future__ import annotations

import itertools

import pytest

from reverie import Origin
from reverie.prompt import consent
from tests.messages import propose, user
from tests.server.conftest import Proxied, Proxy
from tests.server.proxy.test_commands import command_reply

OSLO, TEA = "The user lives in Oslo", "The user likes tea"


def asking(proxy: Proxy, *contents: str, policy: str = "ask") -> Proxied:
    it = proxy(write_policy=policy)
    it.space.session("earlier").append(user("one"))
    for content in contents:
        propose(it.space, content, Origin("earlier", 1))
    return it


def ids(it: Proxied) -> list[str]:
    return [proposal.id for proposal in it.space.proposals()]


def sent(it: Proxied) -> str:
    it.chat("What should I cook?")
    return it.upstream.last.body.decode()


def test_model_is_told_to_ask_about_proposals_and_how_to_answer(proxy: Proxy) -> None:
    it = asking(proxy, OSLO)
    body = sent(it)
    (oslo,) = ids(it)
    assert f"[proposal {oslo}] {OSLO}" in body
    assert "/memory keep ID" in body and "/memory drop ID" in body and "ask at the end" in body
    stored = itertools.chain.from_iterable(it.stored_events().values())
    assert not any("proposal" in text for _, text, _ in stored)


@pytest.mark.parametrize("policy", ["silent", "notify"])
def test_model_is_not_told_of_proposals_under_another_policy(proxy: Proxy, policy: str) -> None:
    assert "proposal" not in sent(asking(proxy, OSLO, policy=policy))


def test_model_is_not_told_of_answered_proposals(proxy: Proxy) -> None:
    it = asking(proxy, OSLO, TEA)
    oslo, tea = ids(it)
    assert command_reply(it, f"/memory keep {oslo}") == f"Remembered: '{OSLO}'"
    assert command_reply(it, f"/memory drop {tea}") == f"Dropped: '{TEA}'"
    body = sent(it)
    assert "[proposal" not in body


def test_request_without_memory_tells_the_model_nothing(proxy: Proxy) -> None:
    it = asking(proxy, OSLO)
    it.chat("What should I cook?", memory_top_k=0)
    assert "proposal" not in it.upstream.last.body.decode()


def test_request_that_may_not_write_tells_the_model_nothing(proxy: Proxy) -> None:
    it = asking(proxy, OSLO)
    it.chat("What should I cook?", headers={"X-Reverie-Mode": "read"})
    assert "[proposal" not in it.upstream.last.body.decode()


def test_only_the_newest_proposals_are_asked_about(proxy: Proxy) -> None:
    it = asking(proxy, *(f"The user owns item {number}" for number in range(5)))
    body = sent(it)
    assert body.count("[proposal ") == consent.MAX_ASKED
    assert f"[proposal {ids(it)[-1]}]" in body and "2 older ones wait too." in body


def test_proposals_command_lists_what_waits_by_id(proxy: Proxy) -> None:
    it = asking(proxy)
    assert command_reply(it, "/memory proposals") == "Nothing waits for your answer."
    it = asking(proxy, OSLO, TEA)
    listed = command_reply(it, "/memory proposals")
    oslo, tea = ids(it)
    assert f"• [{oslo}] {OSLO}\n• [{tea}] {TEA}" in listed and "/memory keep" in listed


def test_proposals_are_shown_with_their_subject(proxy: Proxy) -> None:
    it = asking(proxy)
    propose(it.space, "He is allergic to nuts", Origin("earlier", 1), subject="Leo")
    (leo,) = ids(it)
    assert f"[proposal {leo}] [Leo] He is allergic to nuts" in sent(it)
    listed = command_reply(it, "/memory proposals")
    assert f"[{leo}] [Leo] He is allergic to nuts" in listed


def test_proposals_keep_their_names_when_others_are_answered(proxy: Proxy) -> None:
    it = asking(proxy, OSLO, TEA)
    oslo, tea = ids(it)
    command_reply(it, f"/memory drop {oslo}")
    assert f"[{tea}] {TEA}" in command_reply(it, "/memory proposals")
    refused = command_reply(it, f"/memory keep {oslo}")
    assert refused.startswith(f"Error: no proposal {oslo} waits")
    assert command_reply(it, f"/memory keep {tea}") == f"Remembered: '{TEA}'"
    assert [memory.content for memory in it.space.memories()] == [TEA]


def test_name_shown_for_a_proposal_keeps_that_one_after_another_is_erased(proxy: Proxy) -> None:
    it = asking(proxy, OSLO)
    it.space.session("later").append(user("two"))
    for content in (TEA, "The user has a cat"):
        propose(it.space, content, Origin("later", 1))
    listed = command_reply(it, "/memory proposals")
    (line,) = [line for line in listed.splitlines() if line.endswith(TEA)]
    name = line.removesuffix(TEA).strip("•[]. ")
    it.space.session("earlier").erase()
    assert command_reply(it, f"/memory keep {name}") == f"Remembered: '{TEA}'"
    assert [memory.content for memory in it.space.memories()] == [TEA]


def test_keep_and_drop_accept_several_ids_or_change_nothing(proxy: Proxy) -> None:
    it = asking(proxy, OSLO, TEA, "The user has a cat")
    first, _, third = ids(it)
    assert command_reply(it, f"/memory keep {first} 9").startswith("Error: no proposal 9 waits")
    assert it.space.memories() == []
    kept = command_reply(it, f"/memory keep #{first}, [{third}]")
    assert kept.splitlines() == [f"Remembered: '{OSLO}'", "Remembered: 'The user has a cat'"]
    assert command_reply(it, "/memory keep") == "Usage: /memory keep <id>"
    (left,) = it.space.proposals()
    assert left.content == TEA


def test_answer_needs_the_right_to_write(proxy: Proxy) -> None:
    it = asking(proxy, OSLO)
    for answer in ("keep", "drop"):
        headers = {"X-Reverie-Mode": "read"}
        refused = command_reply(it, f"/memory {answer} {ids(it)[0]}", headers=headers)
        assert refused.startswith("Error: this needs a token that may write")
    assert OSLO in command_reply(it, "/memory proposals", headers={"X-Reverie-Mode": "read"})
    assert len(it.space.proposals()) == 1
