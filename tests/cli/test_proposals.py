"""proposals: list, accept, reject."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_memories import ISO


def propose(reverie: CommandLine, proposal: str, content: str, *scope: str) -> None:
    """What a model would remember of the first event of a session."""
    reverie.run("sessions", "append", "chat", "a turn", "--key", "first", *scope)
    record = {
        "reverie": 1,
        "op": "propose",
        "session": "chat",
        "sequence": 1,
        "uuid": f"00000000-0000-0000-0000-{proposal.encode().hex()[-12:]}",
        "recorded_at": 1_700_000_000_000,
        "trust": "model",
        "body": {
            "proposal": proposal,
            "content": content,
            "category": "person",
            "subject": None,
            "source": "model",
        },
    }
    reverie.run("import", "-", *scope, given=json.dumps(record))


def test_proposals_without_a_command_prints_the_help(reverie: CommandLine) -> None:
    assert "Usage: reverie proposals" in reverie.run("proposals", code=2).stderr


@pytest.mark.parametrize(
    "arguments", [("list",), ("accept", "Ab3dE6gH"), ("reject", "Ab3dE6gH")], ids=" ".join
)
def test_reading_proposals_commands_create_no_store(
    arguments: tuple[str, ...], reverie: CommandLine
) -> None:
    assert "No memory store found at" in reverie.error("proposals", *arguments, code=3)
    assert list(reverie.folder.iterdir()) == []


def test_commands_hint_at_proposals_that_wait(reverie: CommandLine) -> None:
    propose(reverie, "Ab3dE6gH", "The user is Ana")
    hint = "1 proposal waits for your answer: reverie proposals list"
    assert hint in reverie.run("list").stderr
    assert hint in reverie.run("remember", "Tea is hot").stderr
    assert hint not in reverie.run("list", "--json").stderr
    assert hint not in reverie.run("proposals", "list").stderr
    propose(reverie, "Cd4fG7hJ", "The user is Bo")
    assert "2 proposals wait for your answer" in reverie.run("list").stderr
    reverie.run("proposals", "accept", "Ab3dE6gH", "Cd4fG7hJ")
    assert "answer" not in reverie.run("list").stderr


def test_proposals_help_says_which_writes_never_ask(reverie: CommandLine) -> None:
    output = " ".join(reverie.text("proposals", "--help").split())
    assert "a new fact learned from a session is proposed" in output
    assert "are stored without asking" in output


def test_list_shows_pending_proposals(reverie: CommandLine) -> None:
    reverie.remember("one")
    result = reverie.run("proposals", "list")
    assert (result.stdout, result.stderr) == ("", "No proposals found in space 'default'.\n")
    assert reverie.json("proposals", "list") == {"proposals": []}
    propose(reverie, "AAAA1111", "Ana is tall")
    propose(reverie, "BBBB2222", "Ana is kind")
    shown = reverie.text("proposals", "list")
    assert re.search(r"AAAA1111 .* person +chat:1 +Ana is tall", shown)
    assert shown.index("AAAA1111") < shown.index("BBBB2222")
    first, _ = reverie.json("proposals", "list")["proposals"]
    assert ISO.fullmatch(first.pop("proposed_at"))
    assert first == {
        "id": "AAAA1111",
        "content": "Ana is tall",
        "category": "person",
        "subject": None,
        "origin": {"session": "chat", "sequence": 1},
        "source": "model",
        "valid_from": None,
        "valid_to": None,
        "answer": None,
        "memory_id": None,
    }


def test_accept_remembers_proposals_and_prints_their_ids(reverie: CommandLine) -> None:
    for number, content in enumerate(("Ana is tall", "Ana is kind", "Ana sings")):
        propose(reverie, f"AAAA111{number}", content)
    output = reverie.text("proposals", "accept", "AAAA1110", "AAAA1111")
    found = re.fullmatch(
        r"Remembered (\w{8}) \(version 1\): Ana is tall\n"
        r"Remembered (\w{8}) \(version 1\): Ana is kind\n",
        output,
    )
    assert found is not None
    assert reverie.json("show", found[1])["content"] == "Ana is tall"
    answer = reverie.json("proposals", "accept", "AAAA1111", "AAAA1112")["memories"]
    assert [memory["content"] for memory in answer] == ["Ana is kind", "Ana sings"]
    assert answer[0]["id"] == found[2]
    assert reverie.json("proposals", "list")["proposals"] == []
    everything = reverie.json("proposals", "list", "--answered")["proposals"]
    assert [each["answer"] for each in everything] == ["accept"] * 3
    assert reverie.text("proposals", "list", "--answered").count(" accept ") == 3
    assert "forget that memory" in reverie.error("proposals", "reject", "AAAA1110", code=4)


def test_reject_removes_proposals_with_a_reason(reverie: CommandLine) -> None:
    propose(reverie, "AAAA1111", "Ana is tall")
    propose(reverie, "BBBB2222", "Ana is kind")
    output = reverie.text("proposals", "reject", "AAAA1111", "--reason", "a joke")
    assert output == "Rejected AAAA1111: Ana is tall\n"
    answer = reverie.json("proposals", "reject", "AAAA1111", "BBBB2222")["proposals"]
    assert [(each["id"], each["answer"]) for each in answer] == [
        ("AAAA1111", "reject"),
        ("BBBB2222", "reject"),
    ]
    assert reverie.json("list")["memories"] == []
    records = [json.loads(line) for line in reverie.text("sessions", "export", "chat").splitlines()]
    assert [record["reason"] for record in records if record["op"] == "reject"] == ["a joke", None]


def test_unknown_proposals_are_not_found(reverie: CommandLine) -> None:
    propose(reverie, "AAAA1111", "Ana is tall")
    for verb in ("accept", "reject"):
        assert "no proposal 'nope'" in reverie.error("proposals", verb, "nope", code=3)
        assert "--help" in reverie.error("proposals", verb, code=2)
        result = reverie.run("proposals", verb, "nope", "--json", code=3)
        assert json.loads(result.stderr)["error"]["type"] == "NotFound" and result.stdout == ""


def test_a_scope_sees_only_its_own_proposals(reverie: CommandLine) -> None:
    propose(reverie, "AAAA1111", "shared canary")
    for scope in (("--user", "alice"), ("--space", "work")):
        assert reverie.json("proposals", "list", "--answered", *scope) == {"proposals": []}
        for verb in ("accept", "reject"):
            output = reverie.error("proposals", verb, "AAAA1111", *scope, code=3)
            assert "canary" not in output
    propose(reverie, "AAAA1111", "hers", "--user", "alice")
    hers = reverie.json("proposals", "list", "--user", "alice")["proposals"]
    assert [each["content"] for each in hers] == ["hers"]


def test_proposal_content_cannot_send_terminal_control_sequences(reverie: CommandLine) -> None:
    content = "one\ntwo \x1b[31mred [bold]not markup[/bold] \u202eturned"
    propose(reverie, "AAAA1111", content)
    propose(reverie, "BBBB2222", content)
    shown = [
        reverie.text("proposals", "list"),
        reverie.text("proposals", "accept", "AAAA1111"),
        reverie.text("proposals", "reject", "BBBB2222"),
    ]
    for text in shown:
        assert "one two [31mred" in text
        assert not set("\x1b\r\u202e") & set(text)


def test_learned_memory_becomes_a_proposal_with_write_policy_ask(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_WRITE_POLICY", "ask")
    reverie.run("sessions", "append", "chat", "My name is Ana")
    reverie.run("worker", "--once")
    assert reverie.json("list")["memories"] == []
    (proposal,) = reverie.json("proposals", "list")["proposals"]
    assert "Ana" in proposal["content"]
    reverie.run("proposals", "accept", proposal["id"])
    assert [m["content"] for m in reverie.json("list")["memories"]] == [proposal["content"]]
