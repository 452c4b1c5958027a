"""Conversations as files: appended, hidden, moved, edited, erased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import reverie
from reverie.engine import log
from reverie.model import UNNAMED, Memory, Origin, Scope
from reverie.vault import layout, render
from reverie.vault.sync import Sync
from reverie.vault.vault import Vault
from tests.vault.vaults import Kept, assert_equal, holding

SESSIONS = "ana/users/unnamed/sessions/2026-01"
TURNS = "ana/users/unnamed/sessions/2026-01/chat/turns.md"
HIDDEN = "ana/users/unnamed/deleted/sessions/2026-01/chat/turns.md"
SUMMARY = "ana/users/unnamed/sessions/2026-01/chat/summaries/summary.md"


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


def append_turns(kept: Kept, *texts: str, session: str = "chat") -> reverie.Session:
    chat = kept.ana.session(session)
    for text in texts:
        kept.clock.step(1000)
        chat.append({"role": "user", "content": text})
    return chat


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
def test_session_file_holds_any_text_verbatim(kept: Kept, text: str) -> None:
    append_turns(kept, "before", text, "after")
    kept.sync()
    assert_equal(kept)


def test_session_file_is_split_into_parts_when_it_grows(
    whole: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "PART_BYTES", 600)
    for number in range(12):
        append_turns(whole, f"{number} {'x' * 100}")
        whole.mirror()
    parts = [path for path in whole.files() if "turns" in path]
    assert len(parts) > 2
    assert_equal(whole)
    before = whole.bytes()
    # Written again, each part is the same.
    for path in parts:
        whole.path(path).unlink()
    whole.ana.remember("something")
    append_turns(whole, "more", session="other")
    (whole.root / ".reverie" / "files.db").unlink()
    whole.sync()
    assert {path: whole.bytes()[path] for path in parts} == {path: before[path] for path in parts}
    whole.path(parts[1]).unlink()
    assert any("part of a conversation" in line for line in whole.sync().problems)
    assert_equal(whole)


def test_files_of_a_hidden_session_are_moved_to_deleted(kept: Kept) -> None:
    chat = append_turns(kept, "one", "two")
    chat.write_summary("they counted", upper=2, expected_epoch=0)
    kept.store.run_pending_jobs()
    assert kept.document(SUMMARY).content == "they counted"
    kept.sync()
    assert_equal(kept)
    chat.hide()
    kept.mirror()
    assert not kept.path("ana/users/unnamed/sessions").exists()
    assert_equal(kept)
    append_turns(kept, "three")  # which brings it back
    kept.mirror()
    assert not kept.path("ana/deleted").exists()
    assert_equal(kept)


def test_link_of_a_memory_follows_the_turns_of_its_session(kept: Kept) -> None:
    chat = append_turns(kept, "I live in Rome", "and work in Milan")
    shared = kept.ana.remember("lives in Rome", origin=Origin("chat", 1))
    bob = kept.store.space("ana", user="bob")
    bob.session("chat").append({"role": "user", "content": "hi"})
    own = bob.remember("greets", origin=Origin("chat", 1))
    kept.sync()

    def linked_file(memory: Memory) -> str:
        link = kept.document(kept.of(memory)).text("origin") or ""
        return f"{link.strip('[]').partition('#')[0]}.md"

    before = linked_file(shared), kept.bytes()
    assert before[0] in kept.files()
    chat.hide()
    with Vault.open(kept.root) as vault, vault.locked():
        with kept.store.runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, Scope("ana", UNNAMED))
        # As the job of the owner of the turns does, who is not that of the memory.
        Sync(vault, kept.store).store(owner)
    assert linked_file(shared) in kept.files("ana/users/unnamed/deleted")
    assert linked_file(own) in kept.files("ana/users/bob/sessions")
    assert_equal(kept)
    chat.restore()
    kept.sync()
    assert linked_file(shared) == before[0]
    now = kept.bytes()
    for memory in (shared, own):
        assert now[kept.of(memory)] == before[1][kept.of(memory)]
    kept.move(f"{SESSIONS}/chat", "ana/users/unnamed/deleted/sessions/2026-01/chat")
    kept.sync()
    assert linked_file(shared) in kept.files("ana/users/unnamed/deleted")
    assert_equal(kept)


def test_edited_memory_is_not_written_again_for_its_link(whole: Kept) -> None:
    chat = append_turns(whole, "I live in Rome")
    memory = whole.ana.remember("lives in Rome", origin=Origin("chat", 1))
    whole.sync()
    whole.edit(whole.of(memory), "lives in Rome", "lives in Milan")
    chat.hide()
    whole.sync()
    assert whole.ana.get(memory.id).content == "lives in Milan"
    assert "/deleted/" in (whole.document(whole.of(memory)).text("origin") or "")
    assert_equal(whole)


def test_deleted_or_moved_session_folder_hides_the_session(kept: Kept) -> None:
    chat = append_turns(kept, "one", "two")
    chat.write_summary("they counted", upper=2, expected_epoch=0)
    chat.remember("only here", private=True)
    kept.ana.remember("another")
    kept.sync()
    kept.move(
        "ana/users/unnamed/sessions/2026-01/chat", "ana/users/unnamed/deleted/sessions/2026-01/chat"
    )
    report = kept.sync()
    assert report.forgotten and not report.conflicts
    assert chat.info().hidden_at is not None
    assert_equal(kept)
    kept.move(
        "ana/users/unnamed/deleted/sessions/2026-01/chat", "ana/users/unnamed/sessions/2026-01/chat"
    )
    report = kept.sync(
        "ana/users/unnamed/deleted/sessions/2026-01/chat", "ana/users/unnamed/sessions/2026-01/chat"
    )
    assert report.restored and not report.conflicts
    assert chat.info().hidden_at is None
    assert_equal(kept)
    _remove(kept.path("ana/users/unnamed/sessions/2026-01/chat"))
    assert kept.sync().forgotten
    assert chat.info().hidden_at is not None
    assert_equal(kept)


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def test_renamed_session_folder_is_renamed_back(kept: Kept) -> None:
    chat = append_turns(kept, "one", "two")
    kept.ana.remember("another")
    kept.sync()
    kept.move(
        "ana/users/unnamed/sessions/2026-01/chat", "ana/users/unnamed/sessions/2026-01/chitchat"
    )
    report = kept.sync()
    assert any("put back" in line for line in report.problems) and not report.forgotten
    assert chat.info().hidden_at is None
    assert_equal(kept)
    kept.move("ana/users/unnamed/sessions/2026-01/chat", "eve/users/unnamed/sessions/2026-01/chat")
    assert any("put back" in line for line in kept.sync().problems)
    assert chat.info().hidden_at is None
    assert_equal(kept)


def _append_two_sessions(kept: Kept) -> None:
    """Mirror two sessions of different lengths, each with a summary."""
    append_turns(kept, "a one", "a two", "a three", session="a")
    append_turns(kept, "b one", session="b").write_summary("of b", upper=1, expected_epoch=0)
    kept.ana.session("a").write_summary("of a", upper=3, expected_epoch=0)
    kept.store.run_pending_jobs()
    kept.sync()


def _swap(kept: Kept, first: str, second: str) -> None:
    """Swap two files or folders, as ``mv`` does in three steps."""
    for source, target in ((first, "tmp"), (second, first), ("tmp", second)):
        kept.move(source, target)


def _swapped_folders(kept: Kept) -> None:
    """Swap the folders of two sessions."""
    _append_two_sessions(kept)
    _swap(kept, f"{SESSIONS}/a", f"{SESSIONS}/b")


def _hidden(kept: Kept) -> list[str]:
    return [info.id for info in kept.ana.sessions(include_hidden=True) if info.hidden_at]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("part_bytes", [300, 100_000])
def test_sync_repairs_swapped_session_folders(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, part_bytes: int, watched: bool
) -> None:
    monkeypatch.setattr(layout, "PART_BYTES", part_bytes)
    _swapped_folders(kept)
    changed = [f"{SESSIONS}/a", f"{SESSIONS}/b", "tmp"]
    report = kept.sync(*changed) if watched else kept.sync()
    assert not (report.forgotten or report.conflicts)
    assert all("it was put back" in line for line in report.problems) and report.problems
    assert _hidden(kept) == []
    assert_equal(kept)


def test_sync_repairs_swapped_session_folders_without_the_cache(kept: Kept) -> None:
    _swapped_folders(kept)
    (kept.root / ".reverie" / "files.db").unlink()
    kept.sync()
    assert_equal(kept)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("part", ["turns", "summaries"])
def test_sync_repairs_swapped_files_of_two_sessions(kept: Kept, part: str, watched: bool) -> None:
    _append_two_sessions(kept)
    first, second = (
        next(path for path in kept.files(f"{SESSIONS}/{session}") if f"/{part}" in path)
        for session in ("a", "b")
    )
    _swap(kept, first, second)
    report = kept.sync(first, second) if watched else kept.sync()
    assert all("it was put back" in line for line in report.problems) and report.problems
    assert not (report.forgotten or report.conflicts) and _hidden(kept) == []
    assert_equal(kept)


@pytest.mark.parametrize("names", [("chat", "chat"), ("of bob", "of eve")])
@pytest.mark.parametrize("watched", [False, True])
def test_sync_repairs_session_folders_swapped_between_users(
    kept: Kept, watched: bool, names: tuple[str, str]
) -> None:
    """The front matter of a record does not say whose it is."""
    users = [kept.store.space("ana", user=user) for user in ("bob", "eve")]
    for space, name in zip(users, names, strict=True):
        for text in ("one", "two"):
            kept.clock.step(1000)
            space.session(name).append({"role": "user", "content": f"{text} of {space.user}"})
    kept.sync()
    first, second = (
        f"ana/users/{space.user}/sessions/2026-01/{name}"
        for space, name in zip(users, names, strict=True)
    )
    _swap(kept, first, second)
    report = kept.sync(first, second) if watched else kept.sync()
    assert not (report.forgotten or report.conflicts)
    assert not [
        info for space in users for info in space.sessions(include_hidden=True) if info.hidden_at
    ]
    assert not [path for path in kept.files() if ".conflict-v" in path]
    assert_equal(kept)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("part", ["turns", "summaries"])
def test_session_file_moved_over_another_hides_neither_session(
    kept: Kept, part: str, watched: bool
) -> None:
    _append_two_sessions(kept)
    first, second = (
        next(path for path in kept.files(f"{SESSIONS}/{session}") if f"/{part}" in path)
        for session in ("a", "b")
    )
    kept.move(first, second)
    report = kept.sync(first, second) if watched else kept.sync()
    assert any("it was put back" in line for line in report.problems)
    assert not (report.forgotten or report.conflicts) and _hidden(kept) == []
    assert_equal(kept)


def test_session_file_copied_over_another_is_written_again(whole: Kept) -> None:
    append_turns(whole, "one", "two")
    append_turns(whole, "three", session="other")
    whole.sync()
    other = TURNS.replace("chat", "other")
    whole.write(TURNS, whole.read(other))
    report = whole.sync(TURNS)
    assert any("it was put back" in line for line in report.problems) and not report.conflicts
    assert "one" in whole.read(TURNS) and "three" in whole.read(other)
    assert_equal(whole)


def test_swapped_session_file_with_text_unknown_to_the_store_is_kept(whole: Kept) -> None:
    append_turns(whole, "one", "two")
    append_turns(whole, "six", session="other")
    whole.sync()
    # As after the store was replaced by an older backup.
    plain = render.strip_seal(whole.path(TURNS.replace("chat", "other")).read_bytes())
    assert plain is not None
    whole.write(TURNS, render.add_seal(plain.replace(b"six", b"ten")))
    assert whole.sync().conflicts
    (copy,) = [path for path in whole.files() if ".conflict-v" in path]
    assert "ten" in whole.read(copy) and "one" in whole.read(TURNS)
    assert_equal(whole)


def test_edited_session_file_is_written_again_and_the_edit_kept(whole: Kept) -> None:
    chat = append_turns(whole, "one", "two")
    chat.write_summary("they counted", upper=2, expected_epoch=0)
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
def test_edited_session_file_survives_an_append(whole: Kept, name: str) -> None:
    chat = append_turns(whole, "one")
    chat.write_summary("first", upper=1, expected_epoch=0)
    whole.sync()
    whole.edit(
        f"ana/users/unnamed/sessions/2026-01/chat/{name}",
        "one" if "turns" in name else "first",
        "mine",
    )
    append_turns(whole, "two")
    chat.write_summary("second", upper=2, expected_epoch=1)
    whole.store.run_pending_jobs()
    copies = [path for path in whole.files() if ".conflict-v" in path]
    assert len(copies) == 1 and "mine" in whole.read(copies[0])
    whole.path(copies[0]).unlink()
    whole.sync()
    assert_equal(whole)


def test_edited_index_survives_a_change(kept: Kept) -> None:
    kept.ana.remember("one")
    kept.sync()
    kept.edit("ana/MEMORY.md", "1 fact", "my fact")
    kept.ana.remember("two")
    kept.mirror()
    assert "my fact" in kept.read("ana/MEMORY.conflict-v0.md")
    assert "2 facts" in kept.read("ana/MEMORY.md")


def test_files_of_a_person_at_our_paths_are_kept(whole: Kept) -> None:
    whole.ana.session("earlier").append({"role": "user", "content": "hello"})
    whole.sync()
    whole.write("ana/MEMORY.md", "my own index\n")
    whole.write(TURNS, "my own turns\n")
    whole.write("ana/users/unnamed/sessions/2026-01/chat/turnstile.md", "my own note\n")
    report = whole.sync()
    assert report.remembered == ["ana/users/unnamed/sessions/2026-01/chat/turnstile.md"]
    assert any(TURNS in line for line in report.problems)
    assert whole.read(TURNS) == "my own turns\n"
    append_turns(whole, "one")
    whole.sync()
    texts = [whole.read(path) for path in whole.files()] + [
        path.read_text() for path in whole.root.glob("ana/MEMORY.conflict*")
    ]
    assert "my own index\n" in texts and "my own turns\n" in texts
    assert "event 1" in whole.read(TURNS)


def test_deleted_index_or_summary_is_written_again(kept: Kept) -> None:
    chat = append_turns(kept, "one")
    chat.write_summary("they counted", upper=1, expected_epoch=0)
    kept.ana.remember("one")
    kept.sync()
    before = kept.bytes()
    kept.path("ana/MEMORY.md").unlink()
    kept.path(SUMMARY).unlink()
    kept.sync()
    assert kept.bytes() == before


def test_erased_event_or_session_leaves_no_text_in_files(kept: Kept) -> None:
    chat = append_turns(kept, "one", "the word is xyzzy", "three")
    chat.write_summary("they said xyzzy", upper=3, expected_epoch=0)
    kept.sync()
    chat.erase_event(2)
    kept.mirror()
    assert not holding(kept, b"xyzzy")
    assert_equal(kept)
    chat.erase()
    kept.mirror()
    assert not [path for path in kept.files() if "sessions" in path]
    assert_equal(kept)


def test_erased_session_with_an_edited_file_leaves_no_text(whole: Kept) -> None:
    chat = append_turns(whole, "the word is xyzzy")
    whole.sync()
    whole.edit(TURNS, "the word", "a word")
    whole.sync()
    whole.edit(TURNS, "the word", "my word")
    chat.erase()
    whole.mirror()
    assert not holding(whole, b"xyzzy")


def test_fork_file_holds_only_its_own_events(kept: Kept) -> None:
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


def test_turn_file_layout_can_be_changed(kept: Kept) -> None:
    append_turns(kept, "one", "two")
    kept.sync()
    kept._turns = "apart" if kept._turns == "together" else "together"
    kept.init(kept.root)
    kept.sync()
    assert_equal(kept)


def test_session_files_are_recognized_without_the_cache(kept: Kept) -> None:
    chat = append_turns(kept, "one", "two")
    chat.write_summary("they counted", upper=2, expected_epoch=0)
    hidden = append_turns(kept, "three", session="hidden")
    hidden.hide()
    kept.sync()
    (kept.root / ".reverie" / "files.db").unlink()
    append_turns(kept, "four")
    kept.mirror()
    assert_equal(kept)


def test_file_seal_detects_edited_session_files() -> None:
    raw = b"---\nid: x\n---\n\nbody\n"
    sealed = render.add_seal(raw)
    assert render.strip_seal(sealed) == raw
    assert render.strip_seal(raw) is None
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert render.strip_seal(bytes(changed)) is None
    assert render.strip_seal(b"") is None


def test_link_of_a_memory_stays_when_a_session_without_events_changes_it(kept: Kept) -> None:
    append_turns(kept, "I live in Rome")
    memory = kept.ana.remember("lives in Rome", origin=Origin("chat", 1))
    kept.sync()
    before = kept.document(kept.of(memory)).text("origin")
    kept.ana.session("empty").space.revise(memory.id, "lives in Turin")
    kept.sync()
    assert before and kept.document(kept.of(memory)).text("origin") == before
