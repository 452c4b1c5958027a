"""sessions: writing and reading them, going on with them, moving them elsewhere."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from reverie.cli import options
from tests.cli.conftest import CommandLine
from tests.cli.test_memories import ISO, Terminal

HOSTILE = "one\r\n2  user  2026-01-01 10:00\n\x1b[2J\u202eturned [bold]not markup[/bold]"


def append_turns(reverie: CommandLine, *texts: str, to: str = "chat") -> None:
    """What a user and an assistant say in turn."""
    for number, text in enumerate(texts):
        role = ("user", "assistant")[number % 2]
        reverie.run("sessions", "append", to, text, "--role", role)


def ids(reverie: CommandLine, *arguments: str) -> list[str]:
    return [info["id"] for info in reverie.json("sessions", "list", *arguments)["sessions"]]


def texts(reverie: CommandLine, session: str, *arguments: str) -> list[str]:
    shown = reverie.json("sessions", "show", session, *arguments)
    return [event["text"] for event in shown["events"]]


def test_sessions_without_a_command_prints_the_help(reverie: CommandLine) -> None:
    assert "Usage: reverie sessions" in reverie.run("sessions", code=2).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("show", "chat"),
        ("hide", "chat"),
        ("restore", "chat"),
        ("erase", "chat", "--yes"),
        ("export", "chat"),
        ("resume", "chat"),
        ("summary", "chat"),
        ("context", "chat"),
        ("refresh", "chat"),
        ("scratchpad", "chat"),
        ("scratchpad", "chat", "--clear"),
    ],
    ids=" ".join,
)
def test_reading_sessions_commands_create_no_store(
    arguments: tuple[str, ...], reverie: CommandLine
) -> None:
    assert "No memory store found at" in reverie.error("sessions", *arguments, code=3)
    assert list(reverie.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("verb", "flags"),
    [
        ("show", []),
        ("hide", []),
        ("restore", []),
        ("erase", ["--yes"]),
        ("export", []),
        ("resume", []),
        ("summary", []),
        ("context", []),
        ("refresh", []),
        ("scratchpad", []),
        ("scratchpad", ["--clear"]),
    ],
    ids=str,
)
def test_unknown_session_is_not_found(verb: str, flags: list[str], reverie: CommandLine) -> None:
    append_turns(reverie, "hers", to="other")
    assert "there is no session 'chat'" in reverie.error("sessions", verb, "chat", *flags, code=3)
    assert "must not be empty" in reverie.error("sessions", verb, "", *flags, code=2)
    result = reverie.run("sessions", verb, "chat", *flags, "--json", code=3)
    assert json.loads(result.stderr)["error"]["type"] == "NotFound" and result.stdout == ""


# -- writing --------------------------------------------------------------------------------------


def test_append_prints_the_event_and_accepts_stdin_and_options(reverie: CommandLine) -> None:
    output = reverie.text("sessions", "append", "chat", "I moved to the\nDesign team")
    assert output == "Appended chat:1 (user): I moved to the Design team\n"
    event = reverie.json("sessions", "append", "chat", "-", "--role", "tool", given="done\n")
    assert (event["sequence"], event["role"], event["text"]) == (2, "tool", "done")
    assert event["message"] == {"role": "tool", "content": "done"}
    assert ISO.fullmatch(event["at"]) and event["interrupted"] is False
    cut = reverie.json(
        *("sessions", "append", "chat", "Well", "--role", "assistant", "--interrupted"),
        *("--sequence", "7"),
    )
    assert cut["interrupted"] is True and cut["sequence"] == 7


def test_message_json_is_stored_and_returned_verbatim(reverie: CommandLine) -> None:
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "Grüße"}],
        "created_at": 1700000000,
        "at": 5,
    }
    event = reverie.json("sessions", "append", "chat", "--message", json.dumps(message))
    assert event["message"] == message and event["text"] == "Grüße"
    reverie.run("sessions", "append", "chat", "--message", "-", given=json.dumps(message))
    assert json.loads(reverie.text("sessions", "resume", "chat")) == [message, message]
    shown = reverie.json("sessions", "show", "chat")["events"]
    assert [event["message"] for event in shown] == [message, message]
    hits = reverie.json("recall", "Grüße", "--limit", "1")["hits"]
    assert hits[0]["event"]["message"] == message


def test_append_refuses_missing_or_contradictory_arguments(reverie: CommandLine) -> None:
    append = ("sessions", "append", "chat")
    assert "--message" in reverie.error(*append, code=2)
    assert "--message" in reverie.error(*append, "x", "--message", "{}", code=2)
    assert "--role" in reverie.error(*append, "--message", "{}", "--role", "user", code=2)
    assert "'boss' is not one of" in reverie.error(*append, "x", "--role", "boss", code=2)
    assert "is not JSON" in reverie.error(*append, "--message", "{1", code=2)
    assert "nested too deeply" in reverie.error(*append, "--message", "[" * 100_000, code=2)
    assert "mapping, not list" in reverie.error(*append, "--message", "[1]", code=2)
    assert "NaN" in reverie.error(*append, "--message", '{"content": NaN}', code=2)
    assert "control character" in reverie.error("sessions", "append", "a\nb", "x", code=2)
    reverie.run(*append, "x", "--sequence", "3")
    assert "3 cannot follow" in reverie.error(*append, "x", "--sequence", "3", code=4)
    assert texts(reverie, "chat") == ["x"]


def test_append_with_the_same_key_returns_the_same_event(reverie: CommandLine) -> None:
    append = ("sessions", "append", "chat")
    first = reverie.json(*append, "one", "--key", "k")
    assert reverie.json(*append, "one", "--key", "k") == first
    assert "choose a new key" in reverie.error(*append, "two", "--key", "k", code=4)


def test_follow_stores_only_new_messages_of_a_history(reverie: CommandLine, tmp_path: Path) -> None:
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "You are helpful"},
        {"role": "user", "content": "Plan a weekend"},
        {"role": "assistant", "content": "Porto or Ghent?"},
    ]
    file = tmp_path / "history.json"
    file.write_text(json.dumps(history), encoding="utf-8")
    first = reverie.json("sessions", "follow", str(file))
    assert (first["events"], first["preview"], first["forked_from"]) == (2, "Plan a weekend", None)
    history.append({"role": "user", "content": "Ghent"})
    output = reverie.text("sessions", "follow", "-", "--key", "k", given=json.dumps(history))
    assert output == f"Followed session {first['id']} (3 events): Plan a weekend\n"
    assert ids(reverie) == [first["id"]]
    history[2]["content"] = "Ghent or Rome?"
    output = reverie.text("sessions", "follow", "-", given=json.dumps(history))
    assert f"It is a fork of {first['id']}:1." in output
    fork = ids(reverie)[0]
    assert texts(reverie, fork) == ["Plan a weekend", "Ghent or Rome?", "Ghent"]
    assert f"Forked from {first['id']}:1." in reverie.run("sessions", "show", fork).stderr
    named = reverie.json("sessions", "follow", str(file), "--session", "mine")
    assert named["id"] == "mine"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("{1", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"role": "user"}', "must be a JSON array"),
        ('["Hello"]', "mapping, not str"),
        ("[]", "holds nothing"),
        ('[{"role": "system", "content": "Be kind"}]', "holds nothing"),
        (b"\xff", "UTF-8"),
    ],
    ids=["broken", "deep", "object", "text", "empty", "system", "bytes"],
)
def test_follow_refuses_input_that_is_no_history(
    given: str | bytes, why: str, reverie: CommandLine, tmp_path: Path
) -> None:
    assert why in reverie.run("sessions", "follow", "-", given=given, code=2).stderr
    file = tmp_path / "history.json"
    file.write_bytes(given if isinstance(given, bytes) else given.encode())
    assert why in reverie.error("sessions", "follow", str(file), "--session", "chat", code=2)
    assert "does not exist" in reverie.error("sessions", "follow", "missing.json", code=2)


def test_hide_and_restore_remove_and_return_a_session(reverie: CommandLine) -> None:
    append_turns(reverie, "The gate code is 4711")
    recall = ("recall", "gate code", "--mode", "keyword")
    output = reverie.text("sessions", "hide", "chat", "--reason", "a test", "--key", "k")
    assert output == "Hid session chat (1 event): The gate code is 4711\n"
    assert ids(reverie) == [] and ids(reverie, "--hidden") == ["chat"]
    assert "No sessions found in space 'default'." in reverie.run("sessions", "list").stderr
    assert "hidden" in reverie.text("sessions", "list", "--hidden")
    assert "is hidden" in reverie.run("sessions", "show", "chat").stderr
    assert reverie.json(*recall)["hits"] == []
    assert ISO.fullmatch(reverie.json("sessions", "hide", "chat")["hidden_at"])
    output = reverie.text("sessions", "restore", "chat")
    assert output == "Restored session chat (1 event): The gate code is 4711\n"
    assert reverie.json("sessions", "restore", "chat")["hidden_at"] is None
    assert len(reverie.json(*recall)["hits"]) == 1


def test_erase_session_requires_yes_and_reports_what_it_destroyed(reverie: CommandLine) -> None:
    append_turns(reverie, "a secret word", "I see")
    assert "--yes" in reverie.error("sessions", "erase", "chat", code=2)
    assert "--yes" in reverie.run("sessions", "erase", "chat", "--json", code=2).stderr
    output = reverie.text("sessions", "erase", "chat", "--yes")
    assert output == "Erased session chat: 2 events and 0 memories destroyed.\n"
    assert b"a secret word" not in reverie.store.read_bytes()
    append_turns(reverie, "another", to="other")
    report = reverie.json("sessions", "erase", "other", "--yes")
    assert (report["session"], report["events"], report["pending"]) == ("other", 1, False)


def test_erase_session_asks_for_confirmation_on_a_terminal(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_turns(reverie, "a secret")
    append_turns(reverie, "another", to="\u202eodd")

    class Sys:
        stdin = Terminal()

    monkeypatch.setattr(options, "sys", Sys)
    result = reverie.run("sessions", "erase", "chat", given="n\n", code=1)
    assert result.stdout == "" and "Aborted." in result.stderr
    assert "Erase session chat (1 event): a secret" in result.stderr
    odd = reverie.run("sessions", "erase", "\u202eodd", given="n\n", code=1)
    assert "Erase session \\u202eodd" in odd.stderr and "\u202e" not in odd.stderr
    assert reverie.text("sessions", "erase", "chat", given="y\n").startswith("Erased session chat")


def test_erase_event_destroys_one_event_only(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_turns(reverie, "before", "I see", "a secret word", "behind")
    erase = ("sessions", "erase", "chat", "--event", "3")
    assert "--yes" in reverie.run(*erase, "--json", code=2).stderr
    output = reverie.text(*erase, "--yes", "--key", "k")
    assert output == "Erased chat:3: 1 event and 0 memories destroyed.\n"
    assert reverie.json(*erase, "--yes", "--key", "k")["events"] == 1
    assert texts(reverie, "chat") == ["before", "I see", "behind"]
    assert b"a secret word" not in reverie.store.read_bytes()
    assert "has no event 3" in reverie.error(*erase, "--yes", code=3)

    class Sys:
        stdin = Terminal()

    monkeypatch.setattr(options, "sys", Sys)
    assert "has no event 3" in reverie.error(*erase, code=3)
    result = reverie.run("sessions", "erase", "chat", "--event", "4", given="n\n", code=1)
    assert "Erase chat:4 (assistant): behind" in result.stderr
    assert len(texts(reverie, "chat")) == 3


def test_erase_session_reports_pending_cleanup(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.memory.session import Session
    from reverie.model import SessionErasure

    append_turns(reverie, "a secret")
    report = SessionErasure("chat", 1, ("Ab3dE6gH",), (1,), 2, pending=True)
    monkeypatch.setattr(Session, "erase", lambda *_, **__: report)
    output = reverie.text("sessions", "erase", "chat", "--yes")
    assert "1 event and 1 memory destroyed" in output and "Pending" in output


# -- reading --------------------------------------------------------------------------------------


def test_list_shows_newest_session_first_and_pages(reverie: CommandLine) -> None:
    for name in ("one", "two", "three"):
        append_turns(reverie, f"This is {name}", "I see", to=name)
    assert ids(reverie) == ["three", "two", "one"]
    answer = reverie.json("sessions", "list", "--limit", "2")
    assert [info["id"] for info in answer["sessions"]] == ["three", "two"]
    assert answer["more"] is True and answer["sessions"][0]["events"] == 2
    assert reverie.json("sessions", "list")["more"] is False
    result = reverie.run("sessions", "list", "--limit", "2")
    assert "This is three" in result.stdout and "This is one" not in result.stdout
    assert "more than 2" in result.stderr
    reverie.error("sessions", "list", "--limit", "0", code=2)


def test_list_keeps_long_session_ids_whole(reverie: CommandLine) -> None:
    name = "2026-11-15-0123456789-0123456789-chat"
    append_turns(reverie, "Hello " * 40, to=name)
    shown = reverie.text("sessions", "list")
    assert name in shown and "…" in shown


def test_show_prints_events_with_speaker_and_interruption(reverie: CommandLine) -> None:
    append_turns(reverie, "Hello\nthere", "Good day")
    reverie.run("sessions", "append", "chat", "I will", "--role", "assistant", "--interrupted")
    reverie.run("sessions", "append", "chat", "--message", '{"role": "user", "content": []}')
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.fullmatch(
        rf"1  user  {time}\n    Hello\n    there\n"
        rf"2  assistant  {time}\n    Good day\n"
        rf"3  assistant  {time}, interrupted\n    I will\n"
        rf"4  user  {time}\n    \(nothing\)\n",
        reverie.text("sessions", "show", "chat"),
    )
    shown = reverie.json("sessions", "show", "chat", "--limit", "2")
    assert shown["session"]["id"] == "chat" and shown["session"]["events"] == 4
    assert [event["sequence"] for event in shown["events"]] == [3, 4]
    assert [event["interrupted"] for event in shown["events"]] == [True, False]


def test_recall_shows_who_said_an_event_and_when(reverie: CommandLine) -> None:
    append_turns(reverie, "I moved to the Design team", "Congratulations")
    memory = reverie.remember("Alec leads the Design team", "--category", "person")
    shown = reverie.text("recall", "Design team")
    expected = r"chat:1 +I moved to the Design team +\n +user, \d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.search(expected, shown)
    assert re.search(rf"{memory} +person +Alec leads", shown)
    assert re.search(r"\n +user, \d{4}", reverie.text("recall", "Design team", "--explain"))
    found = reverie.json("recall", "Design team", "--kind", "event", "--mode", "keyword")["hits"]
    assert [(hit["kind"], hit["id"], hit["memory"]) for hit in found] == [
        ("event", "chat:1", None),
        ("event", "chat:2", None),
    ], "the turn with the words, and the answer to it"
    assert ISO.fullmatch(found[0]["event"]["at"])


def test_recall_with_a_session_includes_its_private_memories(reverie: CommandLine) -> None:
    import reverie as library

    with library.open(reverie.store) as store:
        own = (
            store.space("default")
            .session("chat")
            .remember("The draft is called Zephyr", private=True)
        )
    recall = ("recall", "Zephyr", "--mode", "keyword")
    assert reverie.json(*recall)["hits"] == []
    assert reverie.json(*recall, "--session", "other")["hits"] == []
    assert [hit["id"] for hit in reverie.json(*recall, "--session", "chat")["hits"]] == [own.id]
    assert own.id in reverie.text(*recall, "--session", "chat")
    assert "must not be empty" in reverie.error(*recall, "--session", "", code=2)


# -- going on -------------------------------------------------------------------------------------


def test_sessions_are_listed_since_and_until_a_time(reverie: CommandLine) -> None:
    append_turns(reverie, "one")
    assert ids(reverie, "--since", "3 days ago") == ["chat"]
    assert ids(reverie, "--until", "3 days ago") == ids(reverie, "--since", "in 1h") == []


def test_resume_without_an_id_takes_the_session_with_the_newest_event(
    reverie: CommandLine,
) -> None:
    append_turns(reverie, "one", "two", to="older")
    append_turns(reverie, "three", to="newer")
    resumed = reverie.run("sessions", "resume")
    assert json.loads(resumed.stdout) == [{"role": "user", "content": "three"}]
    assert "session 'newer'" in resumed.stderr
    assert "has no sessions" in reverie.error("sessions", "resume", "--space", "none", code=3)


def test_resume_prints_messages_that_can_be_sent_again(reverie: CommandLine) -> None:
    reverie.run("sessions", "append", "chat", "Be kind", "--role", "system")
    append_turns(reverie, "one", "two", "three", "four")
    messages = json.loads(reverie.text("sessions", "resume", "chat"))
    assert [message["content"] for message in messages] == ["one", "two", "three", "four"]
    assert reverie.json("sessions", "resume", "chat") == messages
    # An answer without its question would not be taken by a model.
    assert reverie.json("sessions", "resume", "chat", "--limit", "3") == messages[2:]


def test_summary_prints_the_summary_or_says_there_is_none(reverie: CommandLine) -> None:
    import reverie as library

    append_turns(reverie, "Hello")
    result = reverie.run("sessions", "summary", "chat")
    assert (result.stdout, result.stderr) == ("", "Session 'chat' has no summary yet.\n")
    assert reverie.json("sessions", "summary", "chat")["text"] == ""
    with library.open(reverie.store) as store:
        session = store.space("default").session("chat")
        session.write_summary("They met.\nSummary", upper=1, expected_epoch=0)
    shown = reverie.text("sessions", "summary", "chat")
    assert shown == "The events up to 1\n    They met.\n    Summary\n"
    answer = reverie.json("sessions", "summary", "chat")
    assert (answer["session"], answer["text"], answer["upper"], answer["epoch"]) == (
        *("chat", "They met.\nSummary", 1, 1),
    )


def test_context_prints_profile_recalled_lines_and_history(reverie: CommandLine) -> None:
    reverie.remember("Alec is my boss", "--category", "person")
    append_turns(reverie, "Mia likes horses", to="before")
    append_turns(reverie, "Hello\nHistory", "Good day")
    shown = reverie.text("sessions", "context", "chat", "horses")
    titles = [line for line in shown.splitlines() if not line.startswith("    ") and line]
    assert titles[:-1] == ["Profile", "Summary", "Recalled", "History"]
    assert re.fullmatch(r"\d+ of 4000 tokens\.", titles[-1])
    assert "Alec is my boss" in shown.partition("\nSummary\n")[0]
    assert "\nSummary\n    (nothing)\nRecalled\n" in shown
    assert "Mia likes horses" in shown.partition("\nRecalled\n")[2]
    assert "    user\n        Hello\n        History\n    assistant\n        Good day\n" in shown
    answer = reverie.json("sessions", "context", "chat", "-", given="horses")
    assert answer["history"][0] == {"role": "user", "content": "Hello\nHistory"}
    assert "Mia likes horses" in answer["recalled"] and "Alec" in answer["profile"]
    assert 0 < answer["tokens"] < 4000 and answer["system"].startswith(answer["profile"][:20])
    assert "takes" in reverie.error("sessions", "context", "chat", "--tokens", "2", code=2)


def test_context_size_follows_the_setting(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_turns(reverie, "Hello")
    monkeypatch.setenv("REVERIE_CONTEXT_TOKENS", "300")
    assert reverie.text("sessions", "context", "chat").endswith(" of 300 tokens.\n")
    shown = reverie.text("sessions", "context", "chat", "--tokens", "500")
    assert shown.endswith(" of 500 tokens.\n")


def test_refresh_moves_the_frozen_profile_forward(reverie: CommandLine) -> None:
    append_turns(reverie, "Hello")
    assert reverie.json("sessions", "context", "chat")["profile"] == ""
    reverie.remember("Alec is my boss")
    assert reverie.json("sessions", "context", "chat")["profile"] == ""
    assert reverie.text("sessions", "refresh", "chat") == (
        "Refreshed session chat (1 event): Hello\n"
    )
    assert "Alec is my boss" in reverie.json("sessions", "context", "chat")["profile"]
    assert reverie.json("sessions", "refresh", "chat")["id"] == "chat"


def test_context_shows_pending_proposals(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_WRITE_POLICY", "ask")
    append_turns(reverie, "My name is Ana")
    reverie.run("worker", "--once")
    (proposal,) = reverie.json("proposals", "list")["proposals"]
    shown = reverie.text("sessions", "context", "chat")
    assert f"[proposal {proposal['id']}]" in shown.partition("\nNotices\n")[2]


def test_scratchpad_can_be_written_before_the_first_event(reverie: CommandLine) -> None:
    command = ("sessions", "scratchpad", "chat")
    reverie.run(*command, "--write", "read the log")
    assert reverie.text(*command) == "1. read the log\n"
    reverie.run(*command, "--clear")
    reverie.error(*command, code=3)


def test_scratchpad_is_written_read_and_cleared(reverie: CommandLine) -> None:
    append_turns(reverie, "Hello")
    command = ("sessions", "scratchpad", "chat")
    written = reverie.text(*command, "--write", "read\nthe log", "--write", "ask Ana")
    assert written == "1. read the log\n2. ask Ana\n" == reverie.text(*command)
    answer = reverie.json(*command)
    assert (answer["session"], answer["items"]) == ("chat", ["read\nthe log", "ask Ana"])
    assert ISO.fullmatch(answer["updated_at"])
    assert reverie.text(*command, "--write", "sleep") == "1. sleep\n"
    result = reverie.run(*command, "--clear")
    assert (result.stdout, result.stderr) == ("", "The scratchpad of session 'chat' is empty.\n")
    assert reverie.json(*command) == {"session": "chat", "items": [], "updated_at": None}
    assert "not both" in reverie.error(*command, "--write", "x", "--clear", code=2)
    assert "at most 240" in reverie.error(*command, "--write", "x" * 241, code=2)
    assert "not blank" in reverie.error(*command, "--write", " ", code=2)


# -- out and in -----------------------------------------------------------------------------------


def test_session_export_is_imported_into_another_store(
    reverie: CommandLine, tmp_path: Path
) -> None:
    append_turns(reverie, "Grüße", "Servus")
    append_turns(reverie, "not this one", to="other")
    file, url = tmp_path / "chat.jsonl", ("--url", str(tmp_path / "other.db"))
    output = reverie.text("sessions", "export", "chat", "-o", str(file))
    assert output == f"Exported 2 records to {file}.\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert reverie.text("sessions", "export", "chat", "-o", "-") == file.read_text("utf-8")
    assert reverie.text("sessions", "export", "chat", "--json") == file.read_text("utf-8")
    answer = reverie.json("sessions", "export", "chat", "--output", str(file))
    assert answer == {"file": str(file), "session": "chat", "written": 2}
    assert reverie.text("import", str(file), *url) == "Added 2, unchanged 0, skipped 0.\n"
    assert reverie.text("import", str(file), *url) == "Added 0, unchanged 2, skipped 0.\n"
    assert reverie.json("sessions", "show", "chat", *url) == reverie.json(
        "sessions", "show", "chat"
    )
    assert ids(reverie, *url) == ["chat"]
    assert reverie.json("recall", "Servus", *url)["hits"][0]["id"] in {"chat:1", "chat:2"}
    missing = str(tmp_path / "missing" / "chat.jsonl")
    assert "cannot be written" in reverie.error("sessions", "export", "chat", "-o", missing, code=2)


def test_every_export_includes_sessions(reverie: CommandLine, tmp_path: Path) -> None:
    reverie.remember("a fact")
    append_turns(reverie, "Hello", "Good day")
    reverie.run("sessions", "append", "hers", "Mine", "--user", "alice", "--space", "work")
    file, url = tmp_path / "all.jsonl", ("--url", str(tmp_path / "other.db"))
    reverie.run("export", "--all", "-o", str(file))
    report = reverie.json("import", str(file), "--all", *url)
    assert (report["added"], report["skipped"]) == (4, [])
    assert texts(reverie, "chat", *url) == ["Hello", "Good day"]
    assert texts(reverie, "hers", "--space", "work", "--user", "alice", *url) == ["Mine"]
    assert reverie.json("verify", *url)["ok"]


def test_import_skips_conflicting_session_records(reverie: CommandLine) -> None:
    append_turns(reverie, "Hello")
    lines = reverie.text("sessions", "export", "chat")
    append_turns(reverie, "Another", to="chat2")
    other = reverie.text("sessions", "export", "chat2").replace("chat2", "chat")
    report = reverie.json("import", "-", given=lines + other, code=1)
    assert (report["added"], report["unchanged"]) == (0, 1)
    assert report["skipped"] == ["record 2: session chat has gone past sequence 1 here"]


def test_lone_surrogate_survives_export_and_import(reverie: CommandLine, tmp_path: Path) -> None:
    message = r'{"role": "user", "content": "half \ud800 a character"}'
    assert reverie.real("sessions", "append", "chat", "--message", message).returncode == 0
    file = tmp_path / "chat.jsonl"
    assert reverie.real("sessions", "export", "chat", "-o", str(file)).returncode == 0
    reverie.run("import", str(file), "--space", "copy")
    resumed = reverie.real("sessions", "resume", "chat", "--space", "copy")
    assert json.loads(resumed.stdout) == [json.loads(message)]
    shown = reverie.real("sessions", "context", "chat")
    assert (shown.returncode, shown.stderr) == (0, "") and "half \\ud800 a" in shown.stdout


# -- what must not happen -------------------------------------------------------------------------


def test_a_scope_sees_only_its_own_sessions(reverie: CommandLine) -> None:
    append_turns(reverie, "shared canary")
    scopes = (("--user", "alice"), ("--space", "work"), ("--space", "work", "--user", "alice"))
    for scope in scopes:
        assert ids(reverie, *scope) == [] and ids(reverie, *scope, "--hidden") == []
        for verb in ("show", "hide", "resume", "summary", "export"):
            output = reverie.error("sessions", verb, "chat", *scope, code=3)
            assert "there is no session 'chat' in this space" in output and "canary" not in output
        reverie.error("sessions", "erase", "chat", "--yes", *scope, code=3)
        reverie.run("sessions", "scratchpad", "chat", "--write", "x", *scope)
        reverie.error("sessions", "context", "chat", *scope, code=3)
        event = reverie.json("sessions", "append", "chat", f"said in {scope}", *scope)
        assert event["sequence"] == 1
        assert texts(reverie, "chat", *scope) == [f"said in {scope}"]
        context = reverie.json("sessions", "context", "chat", *scope)
        assert "shared canary" not in json.dumps(context["history"])
    assert texts(reverie, "chat") == ["shared canary"]
    assert reverie.json("sessions", "scratchpad", "chat")["items"] == []
    hers = reverie.json("recall", "said canary", "--space", "work", "--user", "alice")["hits"]
    assert {hit["event"]["user"] for hit in hers} == {"alice"}
    assert "canary" not in json.dumps(hers)


def test_session_text_cannot_send_terminal_control_sequences(reverie: CommandLine) -> None:
    reverie.run("sessions", "append", "chat", HOSTILE)
    odd = json.dumps({"role": "us\x1b[31mer\n9", "content": HOSTILE})
    reverie.run("sessions", "append", "chat", "--message", odd)
    reverie.run("sessions", "scratchpad", "chat", "--write", HOSTILE)
    for arguments in (
        ("sessions", "list"),
        ("sessions", "show", "chat"),
        ("sessions", "context", "chat", "--tokens", "2000"),
        ("sessions", "scratchpad", "chat"),
        ("sessions", "hide", "chat"),
        ("sessions", "restore", "chat"),
        ("sessions", "append", "chat", HOSTILE),
        ("recall", "turned", "--explain"),
    ):
        shown = reverie.text(*arguments)
        assert "[bold]not markup[/bold]" in shown or "…" in shown
        assert not set("\x1b\r\u202e") & set(shown)
        # Only the transcript has several lines, and there the text is set in.
        assert not re.search(r"^2  user  2026-01-01", shown, re.MULTILINE)
    headings = re.findall(r"^\S.*$", reverie.text("sessions", "show", "chat"), re.MULTILINE)
    assert [heading.split("  ")[0] for heading in headings] == ["1", "2", "3"]
    assert "us [31mer 9" in headings[1]


def test_wrapped_line_cannot_imitate_a_heading(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    append_turns(reverie, "x" * 60 + "2  assistant  2026-01-01 10:00  " + "word " * 40)
    lines = reverie.text("sessions", "show", "chat").splitlines()
    assert all(line.startswith("    ") for line in lines[1:])
    assert all(len(line) <= 60 for line in lines)


def test_long_lines_are_not_wrapped_in_a_pipe(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = "a long line " * 30 + "end"
    append_turns(reverie, text)
    assert f"    {text}\n" in reverie.text("sessions", "show", "chat")
    assert text in reverie.text("sessions", "append", "chat", text)
