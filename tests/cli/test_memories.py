"""remember, recall, list, show, history, revise, forget, restore, erase."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reverie.cli import options
from reverie.cli.explain import STAGES
from tests.cli.conftest import CommandLine

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def test_remember_prints_the_id(reverie: CommandLine) -> None:
    output = reverie.text("remember", "Alec is my boss", "--category", "person")
    assert re.fullmatch(r"Remembered \w{8} \(version 1\): Alec is my boss\n", output)


def test_remember_keeps_every_field(reverie: CommandLine) -> None:
    memory = reverie.json(
        *("remember", "Dentist", "--note", "--category", "My Health", "--subject", "Teeth"),
        *("--tag", "A", "--tag", "b", "--source", "calendar", "--pin", "--key", "k1"),
        *("--happened-at", "2026-01-02", "--expires-at", "2099-01-02T03:04:05+01:00"),
    )
    assert memory["kind"] == "note" and memory["pinned"] is True
    assert memory["category"] == "my_health" and memory["subject"] == "Teeth"
    assert memory["tags"] == ["a", "b"] and memory["source"] == "calendar"
    assert memory["happened_at"] == "2026-01-02T00:00:00+00:00"
    assert memory["expires_at"] == "2099-01-02T02:04:05+00:00"
    assert ISO.fullmatch(memory["created_at"]) and memory["forgotten_at"] is None
    assert memory["trust"] == "person"
    assert reverie.json("history", memory["id"])["versions"][0]["actor"] == "cli"


def test_remember_in_a_session_names_its_latest_event(reverie: CommandLine) -> None:
    reverie.text("sessions", "append", "chat", "Ahoy")
    memory = reverie.json("remember", "The boat is blue", "--session", "chat")
    assert memory["session"] is None
    (version,) = reverie.json("history", memory["id"])["versions"]
    assert version["origin"] == {"session": "chat", "sequence": 1}
    private = reverie.json("remember", "The oars are red", "--session", "chat", "--private")
    assert private["session"] == "chat"
    assert "--session" in reverie.error("remember", "x", "--private", code=2)


def test_remember_with_the_same_key_returns_the_same_memory(reverie: CommandLine) -> None:
    first = reverie.remember("one", "--key", "k")
    assert reverie.remember("one", "--key", "k") == first
    assert "choose a new key" in reverie.error("remember", "two", "--key", "k", code=4)


def test_remember_reads_content_from_standard_input(reverie: CommandLine) -> None:
    memory = reverie.json("remember", "-", given="\ufeffeins\nzwei\n".encode())
    assert memory["content"] == "eins\nzwei"
    assert "UTF-8" in reverie.run("remember", "-", given=b"\xff", code=2).stderr


def test_remember_without_content_is_a_usage_error(reverie: CommandLine, tmp_path: Path) -> None:
    reverie.error("remember", code=2)
    assert "--note" in reverie.error("remember", "x" * 501, code=2)
    document = tmp_path / "a.md"
    document.write_text("# A\n", encoding="utf-8")
    reverie.error("remember", "x", "--file", str(document), code=2)
    reverie.error("remember", "--file", str(document), "--pin", code=2)
    reverie.error("remember", "--file", str(tmp_path / "missing"), code=2)


def test_remember_file_stores_each_file_as_a_note(reverie: CommandLine, tmp_path: Path) -> None:
    files = []
    for name in ("a.md", "b.md"):
        path = tmp_path / name
        path.write_text(f"# {name}\n", encoding="utf-8")
        files += ["--file", str(path)]
    kept = reverie.json("remember", *files)["memories"]
    assert [memory["kind"] for memory in kept] == ["note", "note"]
    assert [memory["category"] for memory in kept] == ["document", "document"]
    output = reverie.text("remember", *files)
    assert [memory["id"] for memory in kept] == re.findall(r"Remembered (\w+)", output)


def test_remember_shows_what_else_is_known_of_the_subject(reverie: CommandLine) -> None:
    first = reverie.remember("one", "--subject", "s")
    second = reverie.json("remember", "two", "--subject", "s")
    assert [each["id"] for each in second["related"]] == [first]
    assert len(reverie.json("list", "--subject", "S")["memories"]) == 2
    shown = reverie.run("remember", "three", "--subject", "s")
    assert f"Also known of s:\n  {second['id']}  two\n  {first}  one\n" in shown.stderr


def test_remember_says_that_a_text_was_remembered_already(reverie: CommandLine) -> None:
    first = reverie.remember("one")
    assert reverie.text("remember", "one").startswith(f"Remembered already: {first} (version 2)")


def test_metadata_is_given_shown_and_revised(reverie: CommandLine) -> None:
    id = reverie.json(
        "remember", "Ship it", "--metadata", "team=platform", "--metadata", "n=2",
        "--metadata", '{"l": [1, "x"], "team": "web"}',
    )["id"]  # fmt: skip
    assert reverie.json("show", id)["metadata"] == {"team": "web", "n": 2, "l": [1, "x"]}
    assert '{"team": "web", "n": 2, "l": [1, "x"]}' in reverie.text("show", id)
    where = '{"metadata.n": {"gt": 1}}'
    assert [each["id"] for each in reverie.json("list", "--where", where)["memories"]] == [id]
    assert [hit["id"] for hit in reverie.json("recall", "ship", "--where", where)["hits"]] == [id]
    reverie.text("revise", id, "--metadata", "team=x")
    assert reverie.json("show", id)["metadata"] == {"team": "x"}
    reverie.text("revise", id, "--no-metadata")
    assert reverie.json("show", id)["metadata"] == {}
    assert "neither KEY=VALUE" in reverie.error("remember", "x", "--metadata", "team", code=2)
    assert "unknown key 'teem'" in reverie.error("list", "--where", '{"teem": 1}', code=2)
    assert "where must be JSON" in reverie.error("list", "--where", "team=x", code=2)


def test_remember_batch_stores_all_lines_or_none(reverie: CommandLine) -> None:
    lines = '{"content": "one", "tags": ["t"]}\n\n{"content": "two", "metadata": {"n": 1}}\n'
    kept = reverie.json("remember", "--batch", "-", "--key", "k", given=lines)["memories"]
    assert [memory["content"] for memory in kept] == ["one", "two"]
    again = reverie.json("remember", "--batch", "-", "--key", "k", given=lines)["memories"]
    assert again == kept
    reverie.run("remember", "--batch", "-", given='{"content": "three"}\n{"text": "x"}', code=2)
    reverie.run("remember", "--batch", "-", given="not json", code=2)
    reverie.run("remember", "four", "--batch", "-", given=lines, code=2)
    assert len(reverie.json("list")["memories"]) == 2


def test_validity_is_given_revised_and_asked_for(reverie: CommandLine) -> None:
    id = reverie.remember("I live in Oslo", "--valid-from", "2020-03-01")
    reverie.text("revise", id, "--valid-to", "2024-05-01")
    shown = reverie.json("show", id)
    assert shown["valid_from"] == "2020-03-01T00:00:00+00:00"
    assert shown["valid_to"] == "2024-05-01T00:00:00+00:00"
    assert "2024-05-01T00:00:00+00:00" in reverie.text("show", id)
    for at, number in (("2023-01-01", 1), ("2023", 1), ("2024-06-01", 0), ("2024-06", 0)):
        assert len(reverie.json("list", "--valid-at", at)["memories"]) == number
        assert len(reverie.json("recall", "live", "--valid-at", at)["hits"]) == number
    reverie.text("revise", id, "--valid-to", "")
    assert reverie.json("show", id)["valid_to"] is None


def test_recall_prints_hits_and_applies_filters(reverie: CommandLine) -> None:
    boss = reverie.remember("Alec is my boss", "--tag", "work", "--category", "person")
    reverie.remember("The deploy runs on Friday", "--note")
    found = reverie.json("recall", "boss", "--mode", "keyword")
    assert found["query"] == "boss"
    assert [hit["id"] for hit in found["hits"]] == [boss]
    assert found["hits"][0]["memory"]["content"] == "Alec is my boss"
    shown = reverie.text("recall", "boss")
    assert boss in shown and "Alec is my boss" in shown and "person" in shown
    for narrowed in (("--tag", "work"), ("--kind", "fact"), ("--category", "person")):
        assert [hit["id"] for hit in reverie.json("recall", "x", *narrowed)["hits"]] == [boss]
    assert reverie.json("recall", "boss", "--until", "2020-01-01")["hits"] == []
    assert len(reverie.json("recall", "boss", "--since", "2020-01-01")["hits"]) == 2
    assert len(reverie.json("recall", "boss", "--limit", "1")["hits"]) == 1


def test_tables_show_the_subject_of_a_memory(reverie: CommandLine) -> None:
    arguments = ("remember", "Likes jazz", "--category", "person", "--subject", "Bob Miller")
    assert ": [Bob Miller] Likes jazz" in reverie.text(*arguments)
    id = reverie.json("list")["memories"][0]["id"]
    for command in (
        ("recall", "Bob"),
        ("recall", "Bob", "--explain"),
        ("list",),
        ("history", id),
    ):
        assert "[Bob Miller] Likes jazz" in reverie.text(*command), command


def test_recall_without_hits_says_so_on_stderr(reverie: CommandLine) -> None:
    reverie.remember("one")
    result = reverie.run("recall", "zebra", "--mode", "keyword")
    assert (result.stdout, result.stderr) == ("", "Nothing found.\n")


def test_recall_explain_shows_the_parts_of_the_score(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss = reverie.remember("Alec is my boss")
    shown = reverie.text("recall", "boss", "--explain")
    score, numbers, worth, blank, legend, after = shown.splitlines()
    assert re.fullmatch(rf"\d\.\d{{3}} {boss} Alec is my boss", score)
    assert re.fullmatch(r" {6}█{5,}▓+  █ \.\d{3}  ▓ \.\d{3}", numbers)
    assert re.fullmatch(r" {6}━+ *evidence \.\d{3}", worth)
    assert blank == "" and re.fullmatch(r"█ keyword  ▓ vector  \(full: \d\.\d{3}\)", legend)
    assert after == "━ score after that  (full: 1)"
    (hit,) = reverie.json("recall", "boss", "--explain")["hits"]
    added = [stage.part for stage in STAGES]
    assert set(hit["parts"]) == {"keyword", "vector", "evidence", *added}
    total = sum(hit["parts"][part] for part in added)
    assert total == pytest.approx(hit["parts"]["evidence"], abs=1e-5)
    monkeypatch.setenv("REVERIE_EMBEDDER", "none")
    shown = reverie.text("recall", "boss", "--explain")
    assert "Vectors took no part: no embedder is configured" in shown and "▓" not in shown


def test_recall_as_of_a_position_returns_the_state_of_then(reverie: CommandLine) -> None:
    boss = reverie.remember("Alec is my boss")
    reverie.run("revise", boss, "Seabrook is my boss")
    then = reverie.json("recall", "boss", "--as-of", "1")["hits"]
    assert [hit["text"] for hit in then] == ["Alec is my boss"]
    assert reverie.json("recall", "boss", "--as-of", "2020-01-01")["hits"] == []
    now = reverie.json("recall", "boss", "--as-of", "2099-01-01T00:00:00Z")["hits"]
    assert [hit["text"] for hit in now] == ["Seabrook is my boss"]
    assert "'soon' is no time" in reverie.error("recall", "x", "--as-of", "soon", code=2)


def test_recall_with_the_bundled_embedder_finds_by_meaning(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_EMBEDDER", "local")
    reverie.remember("The deploy runs every Friday")
    peanuts = reverie.remember("I am allergic to peanuts")
    reverie.remember("Alec is my boss at TechCorp")
    assert reverie.json("recall", "what food is dangerous?")["hits"][0]["id"] == peanuts


def test_list_shows_newest_first_and_pages(reverie: CommandLine) -> None:
    ids = [reverie.remember(f"fact {number}", "--tag", f"t{number}") for number in range(3)]
    answer = reverie.json("list", "--limit", "2")
    assert [memory["id"] for memory in answer["memories"]] == ids[:0:-1]
    assert answer["more"] is True
    assert reverie.json("list")["more"] is False
    result = reverie.run("list", "--limit", "2")
    assert ids[2] in result.stdout and ids[0] not in result.stdout
    assert "more than 2" in result.stderr
    assert [m["id"] for m in reverie.json("list", "--tag", "t0")["memories"]] == ids[:1]
    assert [m["id"] for m in reverie.json("list", "--as-of", "1")["memories"]] == ids[:1]
    assert reverie.json("list", "--kind", "note")["memories"] == []
    assert len(reverie.json("list", "--order", "category")["memories"]) == 3


def test_list_of_an_empty_space_says_so_on_stderr(reverie: CommandLine) -> None:
    reverie.remember("one")
    result = reverie.run("list", "--space", "other")
    assert (result.stdout, result.stderr) == ("", "No memories found in space 'other'.\n")


def test_list_marks_forgotten_and_pinned_memories(reverie: CommandLine) -> None:
    gone, kept = reverie.remember("gone"), reverie.remember("kept", "--pin")
    reverie.run("forget", gone)
    assert gone not in reverie.text("list")
    shown = reverie.text("list", "--forgotten")
    assert gone in shown and "forgotten" in shown and "* kept" in shown and kept in shown
    assert len(reverie.json("list", "--forgotten")["memories"]) == 2


def test_list_table_keeps_ids_whole_and_content_on_one_line(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = "one\ntwo \x1b[31mred [bold]not markup[/bold] :smile: " + "long " * 80
    memory = reverie.remember(text, "--category", "c" * 60)
    for command in (("list",), ("recall", "one", "--explain"), ("history", memory)):
        shown = reverie.text(*command)
        assert "…" in shown and "\x1b" not in shown
        if command[0] != "history":
            assert memory in shown
    monkeypatch.setenv("COLUMNS", "200")
    assert "one two [31mred [bold]not markup[/bold] :smile:" in reverie.text("list")
    output = reverie.text("forget", memory)
    assert len(output) == 201 and output.endswith("…\n")


def test_show_prints_the_whole_content_without_control_characters(reverie: CommandLine) -> None:
    text = "first line\nsecond \x1b[2Jline " + "word " * 60
    memory = reverie.remember(text, "--tag", "a", "--tag", "b", "--pin")
    shown = reverie.text("show", memory)
    assert memory in shown and "a, b" in shown and "yes" in shown
    assert "\x1b" not in shown and "\\x1b[2J" in shown
    assert shown.partition("\ncontent ")[2].count("word") == 60
    assert reverie.json("show", memory)["content"] == text
    assert "no memory 'nope1234'" in reverie.error("show", "nope1234", code=3)


def test_history_lists_every_version_with_its_reason(reverie: CommandLine) -> None:
    memory = reverie.remember("one")
    reverie.run("revise", memory, "two", "--reason", "it changed")
    reverie.run("erase", memory, "--yes")
    versions = reverie.json("history", memory)["versions"]
    assert [version["op"] for version in versions] == ["remember", "revise", "erase"]
    assert [version["content"] for version in versions] == [None] * 3
    assert all(ISO.fullmatch(version["recorded_at"]) for version in versions)
    shown = reverie.text("history", memory)
    assert shown.count("(erased)") == 3
    other = reverie.remember("three")
    reverie.run("revise", other, "four", "--reason", "it changed")
    shown = reverie.text("history", other)
    assert "three" in shown and "four" in shown and "because: it changed" in shown
    reverie.error("history", "nope1234", code=3)


def test_revise_changes_content_and_labels(reverie: CommandLine) -> None:
    memory = reverie.remember("one", "--subject", "s", "--tag", "a")
    assert reverie.text("revise", memory, "two") == f"Revised {memory} (version 2): [s] two\n"
    changed = reverie.json(
        *("revise", memory, "--category", "Other", "--no-subject", "--tag", "b", "--tag", "c"),
        *("--pin", "--expected-version", "2", "--reason", "why", "--key", "k"),
    )
    assert changed["content"] == "two" and changed["subject"] is None and changed["pinned"]
    assert changed["category"] == "other" and changed["tags"] == ["b", "c"]
    changed = reverie.json("revise", memory, "-", "--no-tags", "--unpin", given="three\n")
    assert changed["content"] == "three" and changed["tags"] == [] and not changed["pinned"]
    assert reverie.json("revise", memory, "--subject", "t")["subject"] == "t"
    assert "nothing to revise" in reverie.error("revise", memory, code=2)
    reverie.error("revise", memory, "--subject", "x", "--no-subject", code=2)
    reverie.error("revise", memory, "--tag", "x", "--no-tags", code=2)
    assert "version 5, not 1" in reverie.error(
        "revise", memory, "x", "--expected-version", "1", code=4
    )
    reverie.error("revise", "nope1234", "x", code=3)


def test_forget_and_restore_print_the_new_version(reverie: CommandLine) -> None:
    memory = reverie.remember("one")
    assert reverie.text("forget", memory, "--reason", "old") == (
        f"Forgot {memory} (version 2): one\n"
    )
    assert reverie.json("recall", "one")["hits"] == []
    assert reverie.json("forget", memory)["forgotten_at"] is not None
    assert reverie.text("restore", memory) == f"Restored {memory} (version 3): one\n"
    assert reverie.json("restore", memory)["forgotten_at"] is None
    reverie.error("forget", "nope1234", code=3)
    reverie.error("restore", "nope1234", code=3)


def test_user_handle_cannot_change_a_shared_memory(reverie: CommandLine) -> None:
    memory = reverie.remember("shared")
    assert "shared by the whole space" in reverie.error("forget", memory, "--user", "alice", code=4)


def test_erase_requires_yes_without_a_terminal(reverie: CommandLine) -> None:
    memory = reverie.remember("a secret")
    reverie.run("revise", memory, "a worse secret")
    assert "--yes" in reverie.error("erase", memory, code=2)
    assert "--yes" in reverie.run("erase", memory, "--json", code=2).stderr
    output = reverie.text("erase", memory, "--yes")
    assert output == f"Erased {memory}: 2 log entries and 1 passage destroyed.\n"
    assert b"a secret" not in reverie.store.read_bytes()
    reverie.error("erase", memory, "--yes", code=3)
    other = reverie.remember("another")
    report = reverie.json("erase", other, "--yes", "--with-source")
    assert report["memory_id"] == other and report["pending"] is False
    assert report["sources"] == [] and len(report["entries"]) == 1


def learned(reverie: CommandLine, text: str) -> str:
    """The id of a memory that was learned from chat:1."""
    reverie.run("sessions", "append", "chat", text)
    reverie.run("worker", "--once")
    (memory,) = reverie.json("list")["memories"]
    return str(memory["id"])


def test_show_names_the_event_a_memory_was_learned_from(reverie: CommandLine) -> None:
    memory = learned(reverie, "I live in Lisbon.")
    origin = {"session": "chat", "sequence": 1}
    assert reverie.json("show", memory)["origins"] == [origin]
    assert re.search(r"^origins +chat:1 *\ncontent ", reverie.text("show", memory), re.MULTILINE)
    reverie.run("revise", memory, "The user lives in Porto")
    versions = reverie.json("history", memory)["versions"]
    assert [version["origin"] for version in versions] == [origin, None]
    assert reverie.text("history", memory).count("from: chat:1") == 1
    own = reverie.remember("I like tea")
    assert reverie.json("show", own)["origins"] == []
    assert "origins" not in reverie.text("show", own)


def test_forget_says_that_the_source_event_stays(reverie: CommandLine) -> None:
    memory = learned(reverie, "I live in Lisbon.")
    stays = "It was said in chat:1, which stays: "
    assert reverie.run("forget", memory).stderr == (
        f"{stays}'reverie erase --with-source' destroys that too.\n"
    )
    assert reverie.run("forget", memory, "--json").stderr == ""
    assert reverie.run("erase", memory, "--yes", "--key", "k").stderr == (
        f"{stays}'reverie sessions erase SESSION --event SEQUENCE' destroys that too.\n"
    )
    reverie.run("sessions", "erase", "chat", "--event", "1", "--yes")
    assert reverie.run("erase", memory, "--yes", "--key", "k").stderr == ""
    assert b"Lisbon" not in reverie.store.read_bytes()


def test_erase_with_source_erases_the_event_too(reverie: CommandLine) -> None:
    memory = learned(reverie, "I live in Lisbon.")
    result = reverie.run("erase", memory, "--yes", "--with-source")
    assert "Its source was destroyed too: session chat, sequence 1." in result.stdout
    assert result.stderr == "" and b"Lisbon" not in reverie.store.read_bytes()


def test_forget_names_every_origin_that_stays(reverie: CommandLine) -> None:
    memory = learned(reverie, "I live in Lisbon.")
    reverie.run("sessions", "append", "chat", "I live in Porto now.")
    reverie.run("worker", "--once")
    assert "said in chat:1, chat:2, which stay:" in reverie.run("forget", memory).stderr


class Terminal:
    """Standard input as a person has it."""

    def isatty(self) -> bool:
        return True


def test_erase_asks_for_confirmation_on_a_terminal(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = reverie.remember("a secret")

    class Sys:
        stdin = Terminal()

    monkeypatch.setattr(options, "sys", Sys)
    result = reverie.run("erase", memory, given="n\n", code=1)
    assert result.stdout == "" and "Aborted." in result.stderr
    assert "cannot be undone" in result.stderr and "a secret" in result.stderr
    assert reverie.run("erase", memory, given="y\n").stdout.startswith(f"Erased {memory}")
    other = learned(reverie, "I live in Lisbon.")
    result = reverie.run("erase", other, given="n\n", code=1)
    assert "which stays: --with-source destroys that too." in result.stderr


def test_erase_reports_sources_that_stay_and_pending_cleanup(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie import ErasureReport, Origin, Space

    memory = reverie.remember("a secret")
    report = ErasureReport(memory, (1, 2), 3, (Origin("chat", 4),), 5, pending=True)
    monkeypatch.setattr(Space, "erase", lambda *_, **__: report)
    output = reverie.text("erase", memory, "--yes", "--with-source")
    assert "session chat, sequence 4" in output and "Pending" in output
    answer = reverie.json("erase", memory, "--yes", "--with-source")
    assert answer["sources"] == [{"session": "chat", "sequence": 4}] and answer["pending"]


def test_query_of_several_words_needs_no_quotes(reverie: CommandLine) -> None:
    reverie.remember("Alec is my boss at TechCorp")
    found = reverie.json("recall", "who", "is", "--limit", "1", "my", "boss?")
    assert found["query"] == "who is my boss?"
    assert found["hits"][0]["text"] == "Alec is my boss at TechCorp"


def test_empty_profile_says_why(reverie: CommandLine) -> None:
    reverie.remember("I like tea", "--user", "ana")
    none = reverie.run("profile")
    assert none.stdout == "" and "No memories found in space 'default'" in none.stderr
    small = reverie.run("profile", "--user", "ana", "--tokens", "5")
    assert small.stdout == "" and "No memory fits into 5 tokens" in small.stderr


def test_profile_prints_the_profile(reverie: CommandLine) -> None:
    reverie.remember("I like tea")
    assert "I like tea" in reverie.text("profile")
    assert reverie.json("profile")["profile"].startswith("## Your Memory")


def test_long_lines_are_not_wrapped_in_a_pipe(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    content = "a long fact " * 12 + "with zanzibar at its end"
    reverie.remember(content)
    assert "zanzibar" in reverie.text("list") and "zanzibar" in reverie.text("recall", "fact")


def test_forget_source_forgets_every_memory_of_it(reverie: CommandLine) -> None:
    for number in range(2):
        reverie.text("remember", f"Bees {number}", "--source", "web")
    reverie.text("remember", "Bees of mine")
    would = reverie.json("forget", "--source", "web", "--dry-run")
    assert len(would["memories"]) == 2 and would["dry_run"] is True
    assert len(reverie.json("list")["memories"]) == 3
    assert "Forgot 2 memories" in reverie.run("forget", "--source", "web").stderr
    assert [each["content"] for each in reverie.json("list")["memories"]] == ["Bees of mine"]
    assert reverie.json("forget", "--source", "web")["memories"] == []


def test_forget_requires_either_an_id_or_a_source(reverie: CommandLine) -> None:
    reverie.text("remember", "Bees")
    for arguments in ((), ("Ab3dE6gH", "--source", "web"), ("Ab3dE6gH", "--dry-run")):
        reverie.run("forget", *arguments, code=2)


@pytest.mark.usefixtures("central_europe")
def test_times_are_read_and_shown_in_the_zone_of_the_person(reverie: CommandLine) -> None:
    dated = reverie.json("remember", "The ferry left", "--happened-at", "2026-07-01 9:00")
    assert dated["happened_at"] == "2026-07-01T07:00:00+00:00"
    assert "2026-07-01T09:00:00+02:00" in reverie.text("show", dated["id"])
    reverie.remember("We took the train", "--happened-at", "2026-06-30T23:30")
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d CES?T", reverie.text("list"))
    found = reverie.json("recall", "ferry", "--since", "2026-07-01", "--until", "1 Jul 2026 noon")
    assert [hit["text"] for hit in found["hits"]] == ["The ferry left"]


def test_time_said_in_words_is_echoed_as_it_was_read(reverie: CommandLine) -> None:
    reverie.remember("I like tea")
    shown = reverie.run("recall", "tea", "--since", "yesterday")
    assert "I like tea" in shown.stdout
    assert re.search(r"'yesterday' is 20\d\d-\d\d-\d\d 00:00[+-]\d\d:\d\d", shown.stderr)
    for said in ("9pm", "1 Jan 2026 noon"):
        assert f"{said!r} is 20" in reverie.run("recall", "tea", "--until", said).stderr
    assert reverie.run("recall", "tea", "--until", "2026-01-01").stderr == "Nothing found.\n"
    answer = reverie.run("recall", "tea", "--until", "3 days ago", "--json")
    assert json.loads(answer.stdout)["hits"] == [] and answer.stderr == ""


@pytest.mark.parametrize("said", ["Tuesday", "soon", "31 June 2026", "9", "0001-01-01"])
def test_time_with_no_meaning_is_refused_with_examples(reverie: CommandLine, said: str) -> None:
    reverie.remember("I like tea")
    refused = reverie.error("recall", "tea", "--since", said, code=2)
    assert repr(said) in refused and "next Tuesday 9:00" in refused


def test_expiry_in_the_past_is_refused(reverie: CommandLine) -> None:
    late = reverie.run("remember", "I like tea", "--expires-at", "yesterday", code=2)
    assert "is in the past" in late.stderr
    assert not reverie.store.exists()
    assert reverie.json("remember", "I like tea", "--expires-at", "in 2h")["expires_at"]
