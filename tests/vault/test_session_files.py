"""Conversations as files: appended, hidden, moved, edited, erased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import reverie
from reverie.vault import layout, render
from tests.vault.vaults import Kept, assert_equal, holding

TURNS = "ana/sessions/chat/turns.md"
HIDDEN = "ana/deleted/sessions/chat/turns.md"
SUMMARY = "ana/sessions/chat/summaries/summary.md"


@pytest.fixture(params=["together", "apart"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path, turns=request.param)
    yield made
    made.close()


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.close()


def say(kept: Kept, *texts: str, session: str = "chat") -> reverie.Session:
    talk = kept.ana.session(session)
    for text in texts:
        kept.clock.step(1000)
        talk.append({"role": "user", "content": text})
    return talk


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "\n\nleading and trailing\n\n",
        "<!-- event 9 user 2026 5 bytes -->\n\nforged\n\n## user\n",
        "---\nseal: s0123456789abcdef\n---\n",
        "half \ud83d a character",
        "NUL \0, CR \r and CRLF \r\n",
        "",
    ],
)
def test_what_was_said_stands_there_exactly(kept: Kept, text: str) -> None:
    say(kept, "before", text, "after")
    kept.sync()
    assert_equal(kept)


def test_it_grows_in_parts(whole: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PART_BYTES", 600)
    for number in range(12):
        say(whole, f"{number} {'x' * 100}")
        whole.mirror()
    parts = [path for path in whole.files() if "turns" in path]
    assert len(parts) > 2
    assert_equal(whole)
    before = whole.bytes()
    # Written anew, each part is the same.
    for path in parts:
        whole.path(path).unlink()
    whole.ana.remember("something")
    say(whole, "more", session="other")
    (whole.root / ".reverie" / "files.db").unlink()
    whole.sync()
    assert {path: whole.bytes()[path] for path in parts} == {path: before[path] for path in parts}
    whole.path(parts[1]).unlink()
    assert any("part of a conversation" in line for line in whole.sync().problems)
    assert_equal(whole)


def test_hidden_it_stands_among_what_was_forgotten(kept: Kept) -> None:
    talk = say(kept, "one", "two")
    talk.write_summary("they counted", upper=2, expected_epoch=0)
    kept.store.run_pending_jobs()
    assert kept.told(SUMMARY).content == "they counted"
    kept.sync()
    assert_equal(kept)
    talk.hide()
    kept.mirror()
    assert not kept.path("ana/sessions").exists()
    assert_equal(kept)
    say(kept, "three")  # which brings it back
    kept.mirror()
    assert not kept.path("ana/deleted").exists()
    assert_equal(kept)


def test_its_folder_deleted_or_moved(kept: Kept) -> None:
    talk = say(kept, "one", "two")
    talk.write_summary("they counted", upper=2, expected_epoch=0)
    talk.remember("only here")
    kept.ana.remember("another")
    kept.sync()
    kept.move("ana/sessions/chat", "ana/deleted/sessions/chat")
    report = kept.sync()
    assert report.forgotten and not report.conflicts
    assert talk.info().hidden_at is not None
    assert_equal(kept)
    kept.move("ana/deleted/sessions/chat", "ana/sessions/chat")
    report = kept.sync("ana/deleted/sessions/chat", "ana/sessions/chat")
    assert report.restored and not report.conflicts
    assert talk.info().hidden_at is None
    assert_equal(kept)
    _remove(kept.path("ana/sessions/chat"))
    assert kept.sync().forgotten
    assert talk.info().hidden_at is not None
    assert_equal(kept)


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def test_a_folder_under_another_name_is_put_back(kept: Kept) -> None:
    talk = say(kept, "one", "two")
    kept.ana.remember("another")
    kept.sync()
    kept.move("ana/sessions/chat", "ana/sessions/chitchat")
    report = kept.sync()
    assert any("put back" in line for line in report.problems) and not report.forgotten
    assert talk.info().hidden_at is None
    assert_equal(kept)
    kept.move("ana/sessions/chat", "eve/sessions/chat")
    assert any("put back" in line for line in kept.sync().problems)
    assert talk.info().hidden_at is None
    assert_equal(kept)


def test_a_record_that_was_edited_is_written_again_and_the_edit_kept(whole: Kept) -> None:
    talk = say(whole, "one", "two")
    talk.write_summary("they counted", upper=2, expected_epoch=0)
    whole.sync()
    for _ in range(2):
        whole.edit(TURNS, "one", "mine")
        whole.edit(SUMMARY, "they counted", "mine")
        whole.edit("ana/MEMORY.md", "0 facts", "my 0 facts")
        assert len(whole.sync().conflicts) == 3
    copies = [path for path in whole.root.rglob("*.md") if ".conflict-v" in path.name]
    assert len(copies) == 6  # none took the place of another
    assert all(b"mine" in path.read_bytes() or b"my 0" in path.read_bytes() for path in copies)
    for path in copies:
        path.unlink()
    whole.sync()
    assert_equal(whole)


@pytest.mark.parametrize("name", ["turns.md", "summaries/summary.md"])
def test_an_edit_meets_what_is_appended(whole: Kept, name: str) -> None:
    talk = say(whole, "one")
    talk.write_summary("first", upper=1, expected_epoch=0)
    whole.sync()
    whole.edit(f"ana/sessions/chat/{name}", "one" if "turns" in name else "first", "mine")
    say(whole, "two")
    talk.write_summary("second", upper=2, expected_epoch=1)
    whole.store.run_pending_jobs()
    copies = [path for path in whole.files() if ".conflict-v" in path]
    assert len(copies) == 1 and "mine" in whole.read(copies[0])
    whole.path(copies[0]).unlink()
    whole.sync()
    assert_equal(whole)


def test_an_edit_of_the_index_meets_a_change(kept: Kept) -> None:
    kept.ana.remember("one")
    kept.sync()
    kept.edit("ana/MEMORY.md", "1 facts", "my facts")
    kept.ana.remember("two")
    kept.mirror()
    assert "my facts" in kept.read("ana/MEMORY.conflict-v0.md")
    assert "2 facts" in kept.read("ana/MEMORY.md")


def test_a_persons_own_files_where_ours_will_be(whole: Kept) -> None:
    whole.write("ana/MEMORY.md", "my own index\n")
    whole.write(TURNS, "my own turns\n")
    whole.write("ana/sessions/chat/turnstile.md", "my own note\n")
    report = whole.sync()
    assert report.remembered == ["ana/sessions/chat/turnstile.md"]
    assert any(TURNS in line for line in report.problems)
    assert whole.read(TURNS) == "my own turns\n"
    say(whole, "one")
    whole.sync()
    texts = [whole.read(path) for path in whole.files()] + [
        path.read_text() for path in whole.root.glob("ana/MEMORY.conflict*")
    ]
    assert "my own index\n" in texts and "my own turns\n" in texts
    assert "event 1" in whole.read(TURNS)


def test_a_deleted_index_or_summary_is_written_again(kept: Kept) -> None:
    talk = say(kept, "one")
    talk.write_summary("they counted", upper=1, expected_epoch=0)
    kept.ana.remember("one")
    kept.sync()
    before = kept.bytes()
    kept.path("ana/MEMORY.md").unlink()
    kept.path(SUMMARY).unlink()
    kept.sync()
    assert kept.bytes() == before


def test_an_event_or_session_that_was_erased_leaves_nothing(kept: Kept) -> None:
    talk = say(kept, "one", "the word is xyzzy", "three")
    talk.write_summary("they said xyzzy", upper=3, expected_epoch=0)
    kept.sync()
    talk.erase_event(2)
    kept.mirror()
    assert not holding(kept, b"xyzzy")
    assert_equal(kept)
    talk.erase()
    kept.mirror()
    assert not [path for path in kept.files() if "sessions" in path]
    assert_equal(kept)


def test_an_edited_conversation_that_is_erased_leaves_nothing(whole: Kept) -> None:
    talk = say(whole, "the word is xyzzy")
    whole.sync()
    whole.edit(TURNS, "the word", "a word")
    whole.sync()
    whole.edit(TURNS, "the word", "my word")
    talk.erase()
    whole.mirror()
    assert not holding(whole, b"xyzzy")


def test_a_fork_shows_only_its_own(kept: Kept) -> None:
    kept.ana.follow([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    first = kept.ana.follow(
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
    )
    other = kept.ana.follow(
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "d"},
        ]
    )
    assert other.id != first.id
    kept.sync()
    assert_equal(kept)


def test_together_or_apart_can_be_chosen_again(kept: Kept) -> None:
    say(kept, "one", "two")
    kept.sync()
    kept._turns = "apart" if kept._turns == "together" else "together"
    kept.init(kept.root)
    kept.sync()
    assert_equal(kept)


def test_without_its_cache_everything_is_known_again(kept: Kept) -> None:
    talk = say(kept, "one", "two")
    talk.write_summary("they counted", upper=2, expected_epoch=0)
    hidden = say(kept, "three", session="hidden")
    hidden.hide()
    kept.sync()
    (kept.root / ".reverie" / "files.db").unlink()
    say(kept, "four")
    kept.mirror()
    assert_equal(kept)


def test_a_seal_tells_ours_from_what_was_changed() -> None:
    raw = b"---\nid: x\n---\n\nbody\n"
    sealed = render.add_seal(raw)
    assert render.strip_seal(sealed) == raw
    assert render.strip_seal(raw) is None
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert render.strip_seal(bytes(changed)) is None
    assert render.strip_seal(b"") is None
