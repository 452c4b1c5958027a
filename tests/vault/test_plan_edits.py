"""From the files to the store: what people do with files, as the verbs they mean."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reverie.errors import StoreBusy, VaultError
from reverie.vault import disk
from reverie.vault.actions import Action
from reverie.vault.file_cache import FileCache
from reverie.vault.plan import plan
from reverie.vault.state import Snapshot
from reverie.vault.vault import Vault
from tests.vault.vaults import Kept, assert_equal


def test_edited_file_becomes_a_revision_by_actor_vault(kept: Kept) -> None:
    memory = kept.ana.remember("I love pizza", tags=["food"])
    kept.mirror()
    path = kept.of(memory)
    kept.edit(path, "love", "hate")
    report = kept.sync(path)
    assert report.revised == [path] and not report.problems
    (_, last) = kept.ana.history(memory.id)
    assert (last.op, last.content, last.actor, last.trust) == (
        "revise",
        "I hate pizza",
        "vault",
        "person",
    )
    assert kept.document(path).text("version") == "2"
    assert_equal(kept)


@pytest.mark.parametrize(
    ("old", "new", "field", "wanted"),
    [
        ("tags: [food]", "tags: [food, italy]", "tags", ("food", "italy")),
        ("tags: [food]", "tags: italy", "tags", ("italy",)),
        ("tags: [food]", "tags: italy, rome", "tags", ("italy", "rome")),
        ("tags: [food]", "tags:\n  - rome\n  - 12", "tags", ("rome", "12")),
        ("tags: [food]\n", "", "tags", ()),
        ("category: likes", "category: My Taste", "category", "my_taste"),
        ("category: likes\n", "", "category", "general"),
        ("subject: pizza", "subject: 2026-01-01", "subject", "2026-01-01"),
        ("subject: pizza", "subject: [a, b]", "subject", "a, b"),
        ("subject: pizza", "pinned: yes\nsubject: pizza", "pinned", True),
        ("subject: pizza\n", "", "subject", None),
    ],
)
def test_edited_front_matter_becomes_a_revision(
    kept: Kept, old: str, new: str, field: str, wanted: object
) -> None:
    memory = kept.ana.remember("I love pizza", tags=["food"], category="likes", subject="pizza")
    kept.mirror()
    kept.edit(kept.of(memory), old, new)
    assert kept.sync().revised
    now = kept.ana.get(memory.id)
    assert getattr(now, field) == wanted
    assert now.content == "I love pizza"
    assert_equal(kept)


def test_edit_without_a_difference_in_meaning_is_ignored(kept: Kept) -> None:
    memory = kept.ana.remember("one\ntwo", tags=["a"])
    kept.mirror()
    path = kept.of(memory)
    raw = kept.read(path)
    for same in (
        "\ufeff" + raw,
        raw.replace("\n", "\r\n"),
        raw.replace("tags: [a]", "tags: a"),
        raw.replace(f'"{memory.id}"', memory.id).replace(
            '"2026-01-01T00:00:00.000+00:00"', "2026-01-01 00:00:00"
        ),
        raw.replace("trust: person\n", ""),
    ):
        kept.write(path, same)
        assert not kept.sync().revised
        assert kept.ana.get(memory.id).version == 1
    assert_equal(kept)


def test_numeric_id_in_front_matter_stays_text(kept: Kept) -> None:
    kept.ids.coming = ["00012345"]
    memory = kept.ana.remember("seven")
    kept.mirror()
    path = kept.of(memory)
    kept.edit(path, 'id: "00012345"', "id: 00012345")
    kept.edit(path, "seven", "eight")
    assert kept.sync().revised == [path]
    assert kept.ana.get("00012345").content == "eight"
    assert_equal(kept)


def test_new_file_is_remembered_and_gets_its_id(kept: Kept) -> None:
    kept.write("ana/facts/people/alec.md", "---\ntags: work\nmood: fine\n---\n\nAlec is my boss\n")
    kept.write("ana/notes/plan.md", "# Plan\n\n- one\n- two\n")
    kept.write("ana/loose.md", "just so\n")
    kept.write("ana/users/bob/facts/x.md", "Bob's\n")
    kept.write("ana/sessions/2026-01/chat/facts/y.md", "the chat's\n")
    report = kept.sync()
    assert len(report.remembered) == 5 and not report.problems
    alec = kept.document("ana/facts/people/alec.md")
    memory = kept.ana.get(alec.text("id") or "")
    assert (memory.content, memory.tags, memory.kind) == ("Alec is my boss", ("work",), "fact")
    assert "mood: fine" in kept.read("ana/facts/people/alec.md")
    plan = kept.ana.get(kept.document("ana/notes/plan.md").text("id") or "")
    assert (plan.kind, plan.content) == ("note", "# Plan\n\n- one\n- two")
    assert [each.content for each in kept.ana.session("chat").memories()] == ["the chat's"]
    assert kept.ana.history(memory.id)[0].actor == "vault"
    assert_equal(kept)


def test_new_file_is_remembered_once_despite_kills(kept: Kept) -> None:
    kept.write("ana/facts/a.md", "I like tea\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("reverie.vault.execute.Executor._put", _killed)
        with pytest.raises(KeyboardInterrupt):
            kept.sync()
    kept.mirror()  # by now the store has a memory that the files do not show
    kept.sync()
    assert kept.files() == ["ana/facts/a.md"]
    assert len(kept.ana.memories()) == 1
    assert_equal(kept)


def _killed(*values: object, **named: object) -> None:
    raise KeyboardInterrupt


def test_moved_file_is_never_seen_as_deleted(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.sync()
    for number in range(6):
        kept.move(kept.of(memory), f"ana/facts/here-{number}.md")
        with pytest.MonkeyPatch.context() as patched:
            after = iter(range(100))
            put, drop = FileCache.put, FileCache.drop
            for name, call in (("put", put), ("drop", drop)):
                patched.setattr(FileCache, name, _dying(call, after, number))
            with contextlib.suppress(KeyboardInterrupt):
                kept.sync()
        kept.ana.revise(memory.id, f"revised {number}")
        kept.mirror()
        kept.sync()
        assert kept.files() == [f"ana/facts/here-{number}.md"]
    assert_equal(kept)


def _dying(call: Callable[..., None], steps: Iterator[int], at: int) -> Callable[..., None]:
    def step(*values: object) -> None:
        if next(steps) == at:
            raise KeyboardInterrupt
        call(*values)

    return step


def test_file_written_where_one_was_missing_is_not_deleted(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.ana.remember("two")
    kept.sync()
    kept.ana.forget(memory.id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FileCache, "drop", _killed)
        with pytest.raises(KeyboardInterrupt):
            kept.mirror()  # both places are known now, and one of them has a file
    kept.edit(kept.of(memory), "one", "won")
    kept.ana.restore(memory.id)
    kept.sync()
    assert kept.ana.get(memory.id).content == "won"
    assert kept.ana.get(memory.id).forgotten_at is None
    assert_equal(kept)


def test_new_file_with_the_same_content_is_remembered_again(kept: Kept) -> None:
    kept.ana.remember("something else")
    kept.write("ana/facts/a.md", "I like tea\n")
    kept.sync()
    kept.path("ana/facts/a.md").unlink()
    assert kept.sync().forgotten
    kept.write("ana/facts/a.md", "I like tea\n")
    assert kept.sync().remembered == ["ana/facts/a.md"]
    assert kept.path("ana/facts/a.md").exists()
    assert_equal(kept)


def test_deleted_or_moved_file_is_forgotten(kept: Kept) -> None:
    one, two = kept.ana.remember("one"), kept.ana.remember("two")
    kept.mirror()
    first, second = kept.of(one), kept.of(two)
    kept.path(first).unlink()
    kept.move(second, "ana/deleted/facts/second.md")
    assert sorted(kept.sync().forgotten) == sorted([first, "ana/deleted/facts/second.md"])
    assert kept.ana.get(one.id).forgotten_at and kept.ana.get(two.id).forgotten_at
    assert kept.of(one).startswith("ana/deleted/facts/one.md")
    assert [version.reason for version in kept.ana.history(one.id)][-1] == "its file was deleted"
    assert_equal(kept)
    kept.move("ana/deleted/facts/second.md", "ana/facts/again/second.md")
    kept.move(kept.of(one), first)
    assert len(kept.sync().restored) == 2
    assert kept.ana.get(one.id).forgotten_at is None
    assert_equal(kept)


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoreBusy("locked")])
def test_deleted_file_that_could_not_be_forgotten_is_retried(
    kept: Kept, error: BaseException
) -> None:
    memory, session = kept.ana.remember("one"), kept.ana.session("chat")
    kept.ana.remember("two")
    session.append({"role": "user", "content": "hi"})
    kept.sync()
    for verb, path in (
        ("space.Space.forget", kept.of(memory)),
        ("session.Session.hide", "ana/users/unnamed/sessions/2026-01/chat/turns.md"),
    ):
        kept.path(path).unlink()
        with pytest.MonkeyPatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
            patched.setattr(f"reverie.memory.{verb}", _raising(error))
            kept.sync()
        assert kept.sync().forgotten == [path]
    assert kept.ana.get(memory.id).forgotten_at is not None
    assert session.info().hidden_at is not None
    assert_equal(kept)


def _raising(error: BaseException) -> Callable[..., None]:
    def call(*values: object, **named: object) -> None:
        raise error

    return call


def test_file_that_vanishes_during_a_sync_is_no_problem(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write("ana/facts/a.md", "for a moment\n")
    read = disk.read_stamped

    def meanwhile(path: Path) -> object:
        if path.name == "a.md":
            path.unlink()
        return read(path)

    monkeypatch.setattr(disk, "read_stamped", meanwhile)
    assert not kept.sync()


def test_file_edited_and_moved_at_once_is_revised_and_moved(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    path = kept.of(memory)
    kept.edit(path, "one", "won")
    kept.move(path, "ana/deleted/x.md")
    kept.sync()
    assert kept.ana.get(memory.id).content == "won"
    assert kept.ana.get(memory.id).forgotten_at is not None
    assert_equal(kept)
    kept.edit("ana/deleted/x.md", "won", "gone")
    assert kept.sync().revised
    assert kept.ana.get(memory.id).content == "gone"
    assert kept.ana.get(memory.id).forgotten_at is not None
    assert_equal(kept)
    kept.edit("ana/deleted/x.md", "gone", "back")
    kept.move("ana/deleted/x.md", "ana/x.md")
    kept.sync()
    assert kept.ana.get(memory.id).content == "back"
    assert kept.ana.get(memory.id).forgotten_at is None
    assert_equal(kept)


def test_conflicting_edits_keep_both_versions(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    path = kept.of(memory)
    kept.edit(path, "one", "mine")
    kept.ana.revise(memory.id, "theirs")
    report = kept.sync()
    assert len(report.conflicts) == 1 and "conflict-v2.md" in report.conflicts[0]
    assert kept.ana.get(memory.id).content == "mine"
    beside = path.replace(".md", ".conflict-v2.md")
    assert kept.document(beside).content == "theirs"
    assert kept.document(beside).text("conflict_of") == memory.id
    assert not kept.sync()
    kept.path(beside).unlink()
    assert not kept.sync()
    assert_equal(kept)


def test_same_edit_on_both_sides_is_no_conflict(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    kept.edit(kept.of(memory), "one", "two")
    kept.ana.revise(memory.id, "two")
    assert not kept.sync().conflicts
    assert kept.ana.get(memory.id).version == 2
    assert_equal(kept)


def test_edited_file_restores_a_memory_forgotten_in_the_store(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    kept.edit(kept.of(memory), "one", "mine")
    kept.ana.forget(memory.id)
    assert any("it is restored" in line for line in kept.sync().conflicts)
    assert kept.ana.get(memory.id).content == "mine"
    assert_equal(kept)


def test_edited_file_does_not_restore_an_erased_memory(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    path = kept.of(memory)
    raw = kept.read(path)
    kept.ana.erase(memory.id)
    kept.edit(path, "one", "one and more")
    kept.sync()
    assert kept.files() == []
    kept.write(path, raw)  # such as from a backup
    report = kept.sync()
    assert any("was erased and stays so" in line for line in report.problems)
    assert kept.path(path).exists() and not report.remembered
    kept.write(path, raw.replace(f'id: "{memory.id}"\n', "").replace(f"id: {memory.id}\n", ""))
    assert kept.sync().remembered == [path]
    assert_equal(kept)


def test_file_moved_to_another_user_or_space_changes_its_owner(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    other = kept.ana.remember("two")
    kept.mirror()
    kept.move(kept.of(memory), "ana/users/bob/facts/one.md")
    kept.move(kept.of(other), "eve/facts/two.md")
    report = kept.sync()
    assert len(report.remembered) == 2
    assert [each.content for each in kept.store.space("eve").memories()] == ["two"]
    bobs = kept.store.space("ana", user="bob")
    assert [each.content for each in bobs.memories()] == ["one"]
    assert kept.ana.get(memory.id).forgotten_at is not None
    assert_equal(kept)


def test_touched_file_keeps_the_trust_of_a_tools_memory(kept: Kept) -> None:
    tool = kept.store.space("ana", trust="tool")
    moved, labelled, edited = (tool.remember(text) for text in ("one", "two", "three"))
    kept.sync()
    kept.move(kept.of(moved), "eve/facts/one.md")
    kept.edit(kept.of(labelled), "category: general", "category: other")
    kept.edit(kept.of(edited), "three", "in a person's words")
    kept.sync()
    assert [each.trust for each in kept.store.space("eve").memories()] == ["tool"]
    assert kept.ana.get(labelled.id).category == "other"
    assert kept.ana.get(labelled.id).trust == "tool"
    assert kept.ana.get(edited.id).trust == "person"
    assert_equal(kept)


@pytest.mark.parametrize("folder", ["deleted/users", "Deleted/users", "Users", "deleted/USERS"])
def test_file_of_a_user_in_a_wrong_folder_is_not_shared(kept: Kept, folder: str) -> None:
    bob = kept.store.space("ana", user="bob")
    secret = bob.remember("Bob's secret")
    bob.remember("another of Bob's")
    kept.ana.remember("shared")
    kept.sync()
    path = f"ana/{folder}/bob/facts/secret.md"
    kept.move(kept.of(secret), path)
    assert [line.partition(":")[0] for line in kept.sync().problems] == [path]
    assert bob.get(secret.id).forgotten_at is not None
    assert "secret" not in str(list(kept.ana.export()))
    kept.path(path).unlink()
    assert_equal(kept)


def test_removed_front_matter_is_written_again(kept: Kept) -> None:
    memory = kept.ana.remember("one", tags=["a"], subject="x")
    kept.mirror()
    path = kept.of(memory)
    kept.write(path, "only my words\n")
    assert kept.sync().revised == [path]
    now = kept.ana.get(memory.id)
    assert (now.content, now.tags, now.subject) == ("only my words", ("a",), "x")
    assert_equal(kept)
    kept.write(path, "only my words\n")
    assert not kept.sync()
    assert_equal(kept)


@pytest.mark.parametrize("by", ["sync", "mirror", "watcher"])
def test_new_file_at_the_old_path_of_a_moved_one_is_remembered(kept: Kept, by: str) -> None:
    memory = kept.ana.remember("one")
    kept.sync()
    path = kept.of(memory)
    kept.move(path, "ana/zoo/moved.md")
    kept.write(path, "something new\n")
    if by == "mirror":
        kept.ana.revise(memory.id, "two")
        kept.mirror()
    elif by == "watcher":
        kept.sync(path, "ana/zoo/moved.md")
    kept.sync()
    assert kept.of(memory) == "ana/zoo/moved.md"
    assert {each.content for each in kept.ana.memories()} == {
        "two" if by == "mirror" else "one",
        "something new",
    }
    assert_equal(kept)


def test_copied_files_are_reported_and_their_changes_kept(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    path = kept.of(memory)
    kept.write("ana/facts/backup.md", kept.read(path))
    assert any("a copy of" in line for line in kept.sync().problems)
    kept.edit(path, "one", "two")
    assert kept.sync().revised == [path]
    report = kept.sync()  # the backup says what was said before: still a copy
    assert not report.remembered and any("a copy of" in line for line in report.problems)
    kept.edit("ana/facts/backup.md", "one", "three")
    assert kept.sync().remembered == ["ana/facts/backup.md"]
    assert {each.content for each in kept.ana.memories()} == {"two", "three"}
    assert_equal(kept)


def test_copy_replaces_its_deleted_original(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    kept.write("ana/facts/copy.md", kept.read(kept.of(memory)))
    kept.path(next(path for path in kept.files() if "copy" not in path)).unlink()
    report = kept.sync()
    assert report.moved and not report.forgotten
    assert kept.of(memory) == "ana/facts/copy.md"
    assert_equal(kept)


def test_file_with_an_unknown_id_is_remembered_under_another(kept: Kept) -> None:
    kept.write("ana/facts/a.md", "---\nid: zzzzzzzz\nversion: 7\n---\n\ntext\n")
    report = kept.sync()
    assert any("zzzzzzzz is not known here" in line for line in report.problems)
    assert kept.document("ana/facts/a.md").text("version") == "1"
    assert_equal(kept)


def test_checkout_of_an_older_commit_changes_nothing(tmp_path: Path) -> None:
    import subprocess

    kept = Kept(tmp_path, git=True)
    one = kept.ana.remember("one")
    session = kept.ana.session("chat")
    session.append({"role": "user", "content": "first"})
    kept.sync()
    kept.ana.revise(one.id, "one, revised")
    two = kept.ana.remember("two")
    session.append({"role": "user", "content": "second"})
    kept.sync()
    before = kept.bytes()
    git = ["git", "-C", str(kept.root)]
    log = subprocess.run([*git, "log", "--format=%H"], capture_output=True, check=True, text=True)
    subprocess.run([*git, "checkout", "-q", log.stdout.split()[1]], check=True)
    assert kept.bytes() != before
    report = kept.sync()
    assert not report.revised and not report.forgotten and not report.conflicts
    assert kept.ana.get(two.id).forgotten_at is None
    assert kept.bytes() == before
    assert_equal(kept)
    kept.close()


def test_sync_after_the_store_was_replaced_by_a_backup_loses_nothing(kept: Kept) -> None:
    one = kept.ana.remember("one")
    session = kept.ana.session("chat")
    session.append({"role": "user", "content": "before"})
    kept.sync()
    kept.store.backup(kept.folder / "backup.db")
    kept.ana.revise(one.id, "one, revised")
    later = kept.ana.remember("later")
    session.append({"role": "user", "content": "after"})
    kept.sync()
    kept.store.restore_backup(kept.folder / "backup.db")
    kept.ana.remember("another life")
    kept.store.run_pending_jobs()
    report = kept.sync()
    # What the vault alone still had is a person's word.
    assert kept.ana.get(one.id).content == "one, revised"
    assert {each.content for each in kept.ana.memories()} == {
        "one, revised",
        "later",
        "another life",
    }
    assert any("after" in kept.read(path) for path in kept.files() if "conflict" in path)
    del report, later
    kept.sync()
    for path in [path for path in kept.files() if "conflict" in path]:
        kept.path(path).unlink()
    kept.sync()
    assert_equal(kept)


def test_vault_of_another_store_is_unchanged(kept: Kept) -> None:
    kept.ana.remember("one")
    kept.ana.session("chat").append({"role": "user", "content": "hi"})
    kept.sync()
    before = kept.bytes()
    kept.store.close()
    kept.store = kept.open("other.db")
    kept.ana.remember("of the other store")
    kept.store.space("eve").remember("of the other store")
    with pytest.raises(VaultError, match="vault of another store"):
        kept.init(kept.root)
        kept.sync()
    kept.store.run_pending_jobs()
    assert kept.bytes() == before


def test_sync_accepts_changed_files_folders_and_deleted_paths(kept: Kept) -> None:
    one, two, three = (kept.ana.remember(text) for text in ("one", "two", "three"))
    kept.sync()
    kept.edit(kept.of(one), "one", "won")
    gone = kept.of(two)
    kept.path(gone).unlink()
    kept.write("ana/facts/new/x.md", "new one\n")
    kept.move(kept.of(three), "ana/facts/new/three.md")
    report = kept.sync(kept.of(one), gone, "ana/facts/new", ".git/config", ".reverie/x.md")
    assert report.revised and report.forgotten == [gone] and report.remembered and report.moved
    assert_equal(kept)
    assert not kept.sync(*kept.files(), "../outside.md", "nowhere/at/all.md").revised


def test_sync_skips_files_that_are_unchanged_since_our_write(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.sync()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("reverie.vault.collect._Work._add_changed", _killed)
        assert not kept.sync(kept.of(memory))
        assert not kept.sync()


def test_link_in_place_of_our_bookkeeping_files_is_not_followed(kept: Kept) -> None:
    kept.ana.remember("one")
    kept.sync()
    own = kept.root / ".reverie"
    target = kept.folder / "elsewhere.db"
    (own / "files.db").rename(target)
    (own / "files.db").symlink_to(target)
    with pytest.raises(VaultError, match="is a link"):
        Vault.open(kept.root)


def test_concurrent_edits_of_two_people_are_both_kept(kept: Kept) -> None:
    """Somebody else changes the memory while the sync is about to."""
    memory = kept.ana.remember("one")
    kept.mirror()
    path = kept.of(memory)
    kept.edit(path, "one", "mine")

    def meanwhile(now: Snapshot) -> list[Action]:
        actions = plan(now)
        if kept.ana.get(memory.id).version == 1:
            kept.ana.revise(memory.id, "theirs")
        return actions

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("reverie.vault.sync.plan", meanwhile)
        kept.sync()
    assert "mine" in kept.read(path)
    kept.sync()
    contents = [version.content for version in kept.ana.history(memory.id)]
    assert contents == ["one", "theirs", "mine"]


@pytest.mark.parametrize("user", [None, "Bob"])
def test_folder_made_by_a_person_is_that_of_its_name(kept: Kept, user: str | None) -> None:
    space = kept.store.space("Ana", user=user)
    ours = "Ana" if user is None else "Ana/users/Bob"
    kept.write(f"{ours}/facts/mine.md", "by hand\n")
    kept.sync()
    (memory,) = space.memories()
    assert kept.files() == [f"{ours}/facts/mine.md"]
    space.forget(memory.id)
    kept.sync()
    assert kept.files() == [f"{ours}/deleted/facts/mine.md"]
    space.restore(memory.id)
    kept.sync()
    assert kept.files() == [f"{ours}/facts/mine.md"]
    kept.write(f"{ours}/sessions/2026-01/Chat/facts/other.md", "of a chat\n")
    kept.sync()
    assert f"{ours}/sessions/2026-01/Chat/facts/other.md" in kept.files()
    assert_equal(kept)
