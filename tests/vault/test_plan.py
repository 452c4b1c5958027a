"""From the store to the files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie.errors import VaultError
from reverie.model import Scope
from reverie.vault import disk, service
from reverie.vault.file_cache import FileCache, VaultFile
from reverie.vault.jobs import RETRY_AFTER_MS
from tests.vault.vaults import Kept, assert_equal, holding


def test_mirror_writes_a_file_for_each_memory(kept: Kept) -> None:
    memory = kept.ana.remember(
        "Alec is my boss\nat TechCorp\n", category="person", subject="Alec", tags=["work", "boss"]
    )
    kept.mirror()
    document = kept.document(kept.of(memory))
    assert document.content == "Alec is my boss\nat TechCorp\n"
    assert document.fields["tags"] == ["work", "boss"]
    assert document.fields["subject"] == "[[Alec]]"
    assert document.fields["created_at"] == "2026-01-01T00:00:00.000+00:00"
    assert kept.of(memory).startswith("ana/facts/alec.md")
    assert_equal(kept)


@pytest.mark.parametrize(
    "content",
    [
        "---\nid: forged\n---\n\nbody",
        "ends with newlines\n\n\n",
        "\n\nbegins with newlines",
        "a\r\nb\r\n",
        "a\rb",
        "\ufeffmark",
        "NUL \0 inside",
        "seal: s0123456789abcdef",
        "tab\tand \u2028 and emoji 👩‍👩‍👧",
        "x\0y\0z\0",
        "---",
    ],
)
def test_mirrored_content_is_read_back_byte_for_byte(kept: Kept, content: str) -> None:
    memory = kept.ana.remember(content)
    kept.mirror()
    assert kept.document(kept.of(memory)).content == content
    assert not kept.sync()
    assert kept.ana.get(memory.id).version == 1
    assert_equal(kept)


def test_mirror_moves_forgotten_memories_and_returns_restored_ones(kept: Kept) -> None:
    memory = kept.ana.remember("I love pizza")
    kept.mirror()
    before = kept.of(memory)
    kept.ana.forget(memory.id)
    kept.mirror()
    assert kept.of(memory) == before.replace("ana/", "ana/deleted/", 1)
    kept.ana.revise(kept.ana.restore(memory.id).id, "I hate pizza")
    kept.mirror()
    assert kept.of(memory) == before
    assert not kept.path("ana/deleted").exists()
    assert_equal(kept)


def test_mirror_writes_users_sessions_notes_and_configured_spaces(kept: Kept) -> None:
    kept.init(kept.root, ["ana"])
    user = kept.store.space("ana", user="bob").remember("Bob's own")
    own = kept.ana.session("chat").remember("only this chat", kind="note", private=True)
    kept.store.space("other").remember("not shown")
    kept.mirror()
    assert kept.of(user).startswith("ana/users/bob/facts/")
    assert kept.of(own).startswith("ana/users/unnamed/sessions/2026-01/chat/notes/")
    assert not kept.path("other").exists()
    assert all(line["space"] == "ana" for line in kept.log_lines())


def test_mirror_records_names_that_no_folder_can_have(kept: Kept) -> None:
    long = "x" * 200
    for name in ("..", "CON", "a/b", "users", long):
        kept.store.space(name, user=name).remember(f"of {name}")
        kept.store.space(name, user=name).session(name).append({"role": "user", "content": "hi"})
    kept.sync()
    assert {path.name for path in kept.folder.iterdir()} >= {"vault", "store.db"}
    memories = [path for path in kept.files() if "/facts/" in path]
    assert len(memories) == 5
    cut = next(path for path in memories if path.startswith("xxx"))
    kept.edit(cut, "of xxx", "edited xxx")
    assert kept.sync().revised == [cut]
    # Without the cache the names are known from a file, and without that from front matter.
    (kept.root / ".reverie" / "files.db").unlink()
    kept.edit(cut, "edited xxx", "again xxx")
    assert kept.sync().revised == [cut]
    (kept.root / ".reverie" / "files.db").unlink()
    (kept.root / ".reverie" / "names.json").unlink()
    kept.edit(cut, "again xxx", "then xxx")
    assert kept.sync().revised == [cut]
    assert not kept.sync()


def test_erased_memory_leaves_no_file(kept: Kept) -> None:
    memory = kept.ana.remember("the secret word is xyzzy")
    kept.mirror()
    kept.ana.revise(memory.id, "the secret word is still xyzzy")
    kept.mirror()
    kept.edit(kept.of(memory), "still xyzzy", "now xyzzy")
    kept.ana.revise(memory.id, "the secret word is forever xyzzy")
    kept.sync()
    assert any(".conflict-v" in path for path in kept.files())
    kept.ana.erase(memory.id)
    kept.mirror()
    assert not kept.files()
    assert not holding(kept, b"xyzzy")
    assert_equal(kept)


def test_memory_erased_before_the_mirror_is_never_written(kept: Kept) -> None:
    memory = kept.ana.remember("the secret word is xyzzy")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("reverie.vault.log_file.VaultLog.append", _killed)
        with pytest.raises(KeyboardInterrupt):
            kept.mirror()
    kept.ana.erase(memory.id)
    kept.mirror()
    assert not kept.files()
    assert_equal(kept)


def _killed(*values: object, **named: object) -> None:
    raise KeyboardInterrupt


def test_erased_session_words_are_removed_from_files_of_learned_memories(kept: Kept) -> None:
    session = kept.ana.session("chat")
    event = session.append({"role": "user", "content": "the word is xyzzy"})
    memory = kept.ana.remember("a word", subject="word")
    origin = reverie.Origin("chat", event.sequence)
    kept.ana.remember("xyzzy", origin=origin)
    kept.sync()
    from reverie.write import memories
    from reverie.write.writer import WriteStamp

    made = memories.prepare_revision(
        kept.store.runtime,
        "the word is xyzzy",
        {},
        lambda: memory,
    )
    stamp = WriteStamp(origin=origin)
    alter = made.alter("person", None)
    with kept.ana.writer() as w:
        memories.change(w, memory.id, "revise", stamp, alter, made.text)
    kept.sync()
    assert "xyzzy" in kept.read(kept.of(memory))
    session.erase()
    kept.mirror()
    assert not holding(kept, b"xyzzy")
    assert_equal(kept)


def test_mirror_continues_when_one_file_cannot_be_written(kept: Kept) -> None:
    kept.write("ana/facts", "a file where a folder should be")
    kept.write("ana/notes/of mine/x.txt", "hello")
    one = kept.ana.remember("in the way")
    other = kept.ana.remember("not in the way", kind="note")
    report = kept.sync()
    assert any(one.id in line for line in report.problems)
    assert kept.of(other)
    kept.path("ana/facts").unlink()
    kept.sync()
    assert kept.of(one)
    assert kept.read("ana/notes/of mine/x.txt") == "hello"


def test_mirror_does_not_overwrite_a_broken_file(kept: Kept) -> None:
    memory = kept.ana.remember("I love pizza")
    kept.mirror()
    path = kept.of(memory)
    kept.write(path, "---\nid: [broken\n---\n\nmy words")
    kept.ana.revise(memory.id, "I hate pizza")
    report = kept.sync()
    assert any("no YAML" in line for line in report.problems)
    assert "my words" in kept.read(path)
    kept.ana.revise(memory.id, "I hate pizza even more")
    kept.mirror()
    assert "my words" in kept.read(path)
    # Mended, it is an edit of the version that was there.
    kept.write(path, f"---\nid: {memory.id}\nversion: 1\n---\n\nmy words\n")
    report = kept.sync()
    assert report.conflicts
    assert kept.ana.get(memory.id).content == "my words"
    assert any(".conflict-v3" in path for path in kept.files())


def test_mirror_reads_an_edit_made_while_it_writes(kept: Kept) -> None:
    memory = kept.ana.remember("first")
    kept.mirror()
    path = kept.of(memory)
    kept.ana.revise(memory.id, "second")
    write = disk._write_draft

    def late(draft: Path, raw: bytes, *, sync: bool) -> disk.FileStamp:
        made = write(draft, raw, sync=sync)
        if draft == disk.temp_path(kept.path(path)) and "first" in kept.read(path):
            kept.edit(path, "first", "mine!")
        return made

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(disk, "_write_draft", late)
        kept.mirror()
    assert "mine!" in kept.read(path)
    assert "second" in kept.read(path.replace(".md", ".conflict-v2.md"))
    assert kept.ana.get(memory.id).content == "mine!"
    assert [version.content for version in kept.ana.history(memory.id)] == [
        "first",
        "second",
        "mine!",
    ]
    assert_equal(kept)


def test_mirror_detects_an_edit_of_equal_size_and_time(kept: Kept) -> None:
    for number in range(50):
        memory = kept.ana.remember(f"tea {number}")
        kept.mirror()
        path = kept.of(memory)
        kept.edit(path, "tea ", "pie ")
        assert kept.sync(path).revised == [path]


def test_file_renamed_by_a_person_and_changed_in_the_store_is_one_memory(kept: Kept) -> None:
    memory = kept.ana.remember("first")
    kept.mirror()
    kept.move(kept.of(memory), "ana/facts/family/mine.md")
    kept.ana.revise(memory.id, "second")
    kept.mirror()
    assert kept.files() == ["ana/facts/family/mine.md"]
    assert_equal(kept)


def test_deleted_file_of_a_memory_changed_in_the_store_is_written_again(kept: Kept) -> None:
    memory = kept.ana.remember("first")
    kept.ana.remember("another")
    kept.mirror()
    kept.path(kept.of(memory)).unlink()
    kept.ana.revise(memory.id, "second")
    assert any("written again" in line for line in kept.sync().conflicts)
    assert kept.ana.get(memory.id).forgotten_at is None
    assert_equal(kept)


def test_mirror_never_shares_a_file_or_takes_a_persons_file(kept: Kept) -> None:
    kept.ids.coming = ["aaaaaaaa", "aaaaaaaA"]
    kept.write("ana/facts/tea--aaaaaaaa.md", "a person's own")
    one, other = (kept.ana.remember_separately("tea", key=None) for _ in range(2))
    kept.mirror()
    assert kept.of(one) != kept.of(other)
    assert kept.sync().remembered == []  # the mirror looked at it first
    assert len(kept.files("ana/facts")) == 3
    assert_equal(kept)


def dying_at(after: int, call: Callable[..., Any]) -> Callable[..., Any]:
    count = iter(range(1000))

    def dying(*values: Any, **named: Any) -> Any:
        if next(count) == after:
            raise KeyboardInterrupt
        return call(*values, **named)

    return dying


def test_mirror_killed_between_two_files_continues(kept: Kept) -> None:
    ids = [kept.ana.remember(f"fact {number}").id for number in range(8)]
    kept.ana.session("chat").append({"role": "user", "content": "hi"})
    kept.sync()
    kept.ana.forget(ids[0])
    kept.ana.revise(ids[1], "changed")
    kept.ana.session("chat").append({"role": "user", "content": "more"})
    kept.ana.session("chat").hide()
    for after in range(40):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Path, "replace", dying_at(after, Path.replace))
            try:
                kept.mirror()
            except KeyboardInterrupt:
                continue
            break
    assert after > 2
    assert_equal(kept)


def test_worker_mirrors_and_commits(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    memory = kept.ana.remember("My wife is Jane")
    assert kept.store.run_pending_jobs() >= 1
    assert kept.of(memory)
    kept.clock.step(10_000)
    kept.store.run_pending_jobs()
    (commit, *_) = service.history(kept.ana)
    assert commit.subject == f"ana: My wife is Jane (remember {memory.id})"
    kept.close()


def test_missing_vault_folder_is_waited_for_and_not_created(kept: Kept) -> None:
    kept.ana.remember("first")
    kept.store.run_pending_jobs()
    kept.root.rename(kept.folder / "elsewhere")
    memory = kept.ana.remember("second")
    kept.store.run_pending_jobs()
    assert not kept.root.exists()
    with pytest.raises(VaultError, match="vault init"):
        kept.sync()
    (kept.folder / "elsewhere").rename(kept.root)
    kept.clock.step(RETRY_AFTER_MS + 1)
    kept.store.run_pending_jobs()
    assert kept.of(memory)
    assert_equal(kept)


def test_mirror_rewrites_an_owner_whose_files_are_all_gone(kept: Kept) -> None:
    ids = [kept.ana.remember(f"fact {number}").id for number in range(3)]
    kept.sync()
    (kept.root / "ana").rename(kept.folder / "away")
    report = kept.sync()
    assert not report.forgotten
    assert any("nothing was forgotten" in line for line in report.problems)
    assert all(kept.ana.get(id).forgotten_at is None for id in ids)
    assert_equal(kept)


def test_mirror_checks_owners_with_missing_files_one_by_one(kept: Kept) -> None:
    users = [f"user{number}" for number in range(12)]
    for user in users:
        kept.store.space("ana", user=user).remember("one")
    kept.sync()
    shutil.rmtree(kept.path("ana/users"))
    looked, below = list[str](), FileCache.below

    def counted(files: FileCache, folder: str) -> list[VaultFile]:
        looked.append(folder)
        return below(files, folder)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FileCache, "below", counted)
        assert len(kept.sync().problems) == len(users)
    assert len(looked) < len(users)
    assert_equal(kept)


def test_first_write_after_the_folder_disappeared_forgets_nothing(kept: Kept) -> None:
    ids = [kept.ana.remember(f"fact {number}").id for number in range(3)]
    kept.sync()
    (kept.root / "ana").rename(kept.folder / "away")
    kept.ana.remember("a new one")
    kept.mirror()
    kept.sync()
    assert all(kept.ana.get(id).forgotten_at is None for id in ids)
    assert_equal(kept)


@pytest.mark.parametrize("damage", ["delete", "rubbish", "middle", "empty"])
@pytest.mark.sample(4)
def test_lost_or_damaged_file_cache_is_rebuilt(kept: Kept, damage: str) -> None:
    for number in range(200):
        kept.ana.remember(f"fact {number} {'x' * 200}")
    memory = kept.ana.remember("one more")
    kept.ana.session("chat").append({"role": "user", "content": "hi"})
    kept.sync()
    before = kept.bytes()
    cache = kept.root / ".reverie" / "files.db"
    if damage == "delete":
        cache.unlink()
    elif damage == "rubbish":
        cache.write_bytes(b"no database" * 1000)
    elif damage == "middle":
        raw = bytearray(cache.read_bytes())
        raw[8192:-4096] = os.urandom(len(raw) - 12288)
        cache.write_bytes(bytes(raw))
    else:
        cache.write_bytes(b"")
    assert not kept.sync()
    assert kept.bytes() == before
    kept.edit(kept.of(memory), "one more", "one less")
    assert kept.sync().revised
    assert_equal(kept)


def test_busy_file_cache_is_not_discarded(kept: Kept) -> None:
    kept.ana.remember("first")
    kept.sync()
    path = kept.root / ".reverie" / "files.db"
    one = FileCache(path)
    other = FileCache(path)
    other._connection.set_busy_timeout(1)
    with one.together():
        one.set_meta("a", "b")
        with pytest.raises(VaultError, match="cannot be used"):
            other.set_meta("c", "d")
    assert one.fact("a") == "b"
    assert other.list_type(Scope("ana"), "memory")
    one.close()
    other.close()


def test_temporary_files_of_a_killed_process_are_removed(kept: Kept) -> None:
    memory = kept.ana.remember("first")
    kept.sync()
    folder = kept.path(kept.of(memory)).parent
    (folder / ".0123456789abcdef.tmp").write_text("half a file")
    (folder / ".mine.tmp").write_text("a person's")
    kept.sync()
    assert not (folder / ".0123456789abcdef.tmp").exists()
    assert (folder / ".mine.tmp").exists()


def test_mirror_keeps_unknown_front_matter_keys(kept: Kept) -> None:
    memory = kept.ana.remember("first")
    kept.mirror()
    path = kept.of(memory)
    kept.edit(path, "trust: person", "trust: person\nmood: happy  # today\naliases: [a, b]")
    kept.sync()
    kept.ana.revise(memory.id, "second", tags=["x"])
    kept.mirror()
    assert "mood: happy  # today\naliases: [a, b]" in kept.read(path)
    assert_equal(kept)


def test_first_mirror_is_one_commit(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=False)
    for number in range(30):
        kept.ana.remember(f"fact {number}")
    seen: list[tuple[int, int]] = []
    service.init(kept.store, kept.root, progress=lambda done, many: seen.append((done, many)))
    assert seen[-1] == (30, 30)
    (commit, *older) = service.history(kept.ana, limit=10)
    assert commit.subject == "ana: 30 remembered"
    assert not [each for each in older if each.author == "ana"]
    kept.close()


def test_index_file_links_to_every_file(kept: Kept) -> None:
    memory = kept.ana.remember("My wife is [Jane](x)")
    kept.mirror()
    raw = kept.read("ana/MEMORY.md")
    assert kept.of(memory).removeprefix("ana/") in raw
    assert "1 fact" in raw


def test_mirror_reads_all_owners_with_one_query(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[None]()
    monkeypatch.setattr(FileCache, "marks", _noted(FileCache.marks, asked))
    for number in range(12):
        kept.store.space("team", user=f"user {number}").remember(f"of {number}")
    kept.mirror()
    asked.clear()
    kept.mirror()
    assert len(asked) < 12


def _noted(function: Callable[[FileCache], Any], asked: list[None]) -> Callable[[FileCache], Any]:
    def noting(files: FileCache) -> Any:
        asked.append(None)
        return function(files)

    return noting
