"""Many files that are gone at once are asked about before anything is forgotten."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reverie.errors import VaultError
from reverie.model import Memory
from reverie.vault import disk, execute, rebuild, service
from reverie.vault.actions import Action, Adopt, PutBack, WriteMemory, WriteSession
from reverie.vault.disk import FileStamp
from reverie.vault.execute import Executor
from reverie.vault.plan_missing import MAX_AT_ONCE, WINDOW_MS, needs_confirmation
from reverie.vault.watch import DELETION_QUIET_SECONDS, MAX_DELETION_SECONDS, DeletionBuffer
from tests.vault.repositories import by_hand
from tests.vault.vaults import Kept, assert_equal


def remember(kept: Kept, many: int, user: str | None = None) -> list[Memory]:
    space = kept.store.space("ana", user=user)
    made = [space.remember(f"fact number {number} of {user}") for number in range(many)]
    kept.sync()
    # What was deleted before does not count with what is deleted next.
    kept.clock.step(WINDOW_MS + 1)
    return made


def delete(kept: Kept, memories: list[Memory]) -> list[str]:
    paths = [kept.of(memory) for memory in memories]
    for path in paths:
        kept.path(path).unlink()
    return paths


def living(kept: Kept, memories: list[Memory], user: str | None = None) -> int:
    space = kept.store.space("ana", user=user)
    return sum(space.get(each.id).forgotten_at is None for each in memories)


def held(kept: Kept) -> tuple[str, ...]:
    return service.status(kept.store).missing


@pytest.mark.parametrize(
    ("lost", "total", "asked"),
    [
        *((1, 1, False), (1, 2, False), (2, 2, False), (2, 3, False)),
        *((3, 3, True), (3, 5, True), (3, 6, False), (5, 10, False), (6, 10, True)),
        *((20, 100, False), (21, 100, True), (20, 39, True), (21, 100_000, True)),
    ],
)
def test_deletions_above_half_or_above_twenty_need_confirmation(
    lost: int, total: int, asked: bool
) -> None:
    assert needs_confirmation(lost, total) is asked


@pytest.mark.parametrize(("total", "gone"), [(1, 1), (2, 1), (3, 2), (6, 3), (50, MAX_AT_ONCE)])
def test_few_deleted_files_are_forgotten_without_confirmation(
    kept: Kept, total: int, gone: int
) -> None:
    memories = remember(kept, total)
    paths = delete(kept, memories[:gone])
    report = kept.sync()
    assert sorted(report.forgotten) == sorted(paths) and not report.problems
    assert living(kept, memories) == total - gone and not held(kept)
    assert_equal(kept)


@pytest.mark.parametrize(("total", "gone"), [(4, 3), (10, 6), (10, 10), (60, MAX_AT_ONCE + 1)])
def test_many_deleted_files_are_held_and_reported(kept: Kept, total: int, gone: int) -> None:
    memories = remember(kept, total)
    paths = delete(kept, memories[:gone])
    for _ in range(3):
        report = kept.sync()
        assert not report.forgotten and not report.remembered and not report.conflicts
        (line,) = report.problems
        assert line.startswith(f"ana: the files of {gone} memories") and "--missing forget" in line
        assert living(kept, memories) == total
        # Not written again behind the person's back either.
        assert not any(kept.path(path).exists() for path in paths)
        assert sorted(held(kept)) == sorted(paths)
        kept.clock.step(WINDOW_MS * 10)


def test_held_files_are_forgotten_when_confirmed(kept: Kept) -> None:
    memories = remember(kept, 10)
    paths = delete(kept, memories[:8])
    kept.sync()
    report = kept.sync(missing="forget")
    assert sorted(report.forgotten) == sorted(paths) and not report.problems
    assert living(kept, memories) == 2 and not held(kept)
    assert kept.ana.history(memories[0].id)[-1].actor == "vault"
    assert_equal(kept)
    # The answer is not held against the next wish.
    delete(kept, memories[8:9])
    assert kept.sync().forgotten


def test_files_are_forgotten_at_once_when_confirmed_beforehand(kept: Kept) -> None:
    memories = remember(kept, 10)
    shutil.rmtree(kept.path("ana"))
    assert len(kept.sync(missing="forget").forgotten) == 10
    assert living(kept, memories) == 0
    assert_equal(kept)


def test_held_files_are_restored_when_the_deletion_is_denied(kept: Kept) -> None:
    memories = remember(kept, 6)
    kept.move(kept.of(memories[0]), "ana/facts/people/alec.md")
    kept.sync()
    paths = delete(kept, memories[:5])
    kept.sync()
    report = kept.sync(missing="restore")
    assert not report.forgotten and not report.problems
    assert living(kept, memories) == 6 and not held(kept)
    assert all(kept.path(path).is_file() for path in paths)
    assert_equal(kept)


def test_files_that_come_back_need_no_confirmation(kept: Kept) -> None:
    memories = remember(kept, 10)
    kept.path("ana/facts").rename(kept.folder / "aside")
    assert kept.sync().problems and len(held(kept)) == 10
    (kept.folder / "aside").rename(kept.path("ana/facts"))
    assert not kept.sync() and not held(kept)
    assert living(kept, memories) == 10
    assert_equal(kept)


def test_later_deletion_joins_the_held_ones(kept: Kept) -> None:
    memories = remember(kept, 10)
    delete(kept, memories[:7])
    kept.sync()
    kept.clock.step(WINDOW_MS * 2)
    delete(kept, memories[7:8])
    assert not kept.sync().forgotten and len(held(kept)) == 8
    assert living(kept, memories) == 10


def test_held_files_stay_held_while_a_later_single_deletion_is_counted(kept: Kept) -> None:
    memories = remember(kept, 10)
    saved = {path: kept.read(path) for path in (kept.of(each) for each in memories[:7])}
    delete(kept, memories[:7])
    kept.sync()
    for path, text in list(saved.items())[1:]:
        kept.write(path, text)
    kept.clock.step(WINDOW_MS * 2)
    (path,) = delete(kept, memories[9:])
    assert kept.sync().forgotten == [path]
    assert len(held(kept)) == 1 and living(kept, memories) == 9


def test_deletions_in_pieces_within_the_window_need_confirmation(kept: Kept) -> None:
    """As a watch reports them, and as a sync in between finds them."""
    memories = remember(kept, 100)
    done = 0
    for start in range(0, 30, 5):
        paths = delete(kept, memories[start : start + 5])
        report = kept.sync(*paths)
        done += len(report.forgotten)
        kept.clock.step(2_000)
    assert done == MAX_AT_ONCE and len(held(kept)) == 10
    assert living(kept, memories) == 80


def test_deletions_further_apart_than_the_window_need_none(kept: Kept) -> None:
    memories = remember(kept, 100)
    for start in range(0, 30, 5):
        delete(kept, memories[start : start + 5])
        assert len(kept.sync().forgotten) == 5
        kept.clock.step(WINDOW_MS + 1)
    assert not held(kept)


def test_deletions_of_a_space_are_counted_over_its_users(kept: Kept) -> None:
    users = [f"user{number}" for number in range(6)]
    memories = {user: remember(kept, 1, user) for user in users}
    for user in users[:4]:
        delete(kept, memories[user])
    report = kept.sync()
    assert not report.forgotten and len(report.problems) == 4
    assert all(living(kept, memories[user], user) == 1 for user in users)
    kept.sync(missing="forget")
    assert [living(kept, memories[user], user) for user in users] == [0, 0, 0, 0, 1, 1]


def test_deletions_in_one_users_folder_are_counted_separately(kept: Kept) -> None:
    """Half of one person's memories is much to them, however many others have in the space."""
    remember(kept, 60)
    memories = remember(kept, 5, "bo")
    delete(kept, memories[:4])
    assert not kept.sync().forgotten
    assert living(kept, memories, "bo") == 5


def test_held_files_of_one_space_do_not_block_others(kept: Kept) -> None:
    memories = remember(kept, 10)
    other = kept.store.space("eve").remember("tea")
    kept.store.space("eve").remember("coffee")
    kept.sync()
    delete(kept, memories[:7])
    path = kept.of(other)
    kept.path(path).unlink()
    assert kept.sync().forgotten == [path]
    assert len(held(kept)) == 7


def test_deleted_sessions_are_counted_and_held(kept: Kept) -> None:
    for number in range(5):
        session = kept.ana.session(f"chat{number}")
        session.append({"role": "user", "content": f"hi {number}"})
    kept.sync()
    for number in range(4):
        shutil.rmtree(kept.path(f"ana/users/unnamed/sessions/2026-01/chat{number}"))
    report = kept.sync()
    assert not report.forgotten and len(report.problems) == 1
    assert len(kept.ana.sessions()) == 5
    assert not kept.path("ana/users/unnamed/sessions/2026-01/chat0").exists()
    kept.sync(missing="restore")
    assert (
        kept.path("ana/users/unnamed/sessions/2026-01/chat0/turns.md").is_file()
        and len(kept.ana.sessions()) == 5
    )
    assert_equal(kept)
    for number in range(4):
        shutil.rmtree(kept.path(f"ana/users/unnamed/sessions/2026-01/chat{number}"))
    kept.sync(missing="forget")
    assert len(kept.ana.sessions()) == 1
    assert_equal(kept)


def test_summary_of_a_held_session_is_not_written_again(kept: Kept) -> None:
    for number in range(4):
        session = kept.ana.session(f"chat{number}")
        session.append({"role": "user", "content": "hi"})
        session.write_summary("they said hi", upper=1, expected_epoch=0)
    kept.sync()
    shutil.rmtree(kept.path("ana/users/unnamed/sessions"))
    kept.sync()
    kept.sync()
    assert not kept.path("ana/users/unnamed/sessions").exists()
    kept.sync(missing="restore")
    assert_equal(kept)


def test_deleted_session_with_a_file_per_turn_is_checked_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks grow with the number of files, not with its square."""
    looks, real = dict[int, int](), disk.stamp
    for many in (20, 80):
        kept = Kept(tmp_path / str(many), turns="apart")
        for number in range(many):
            kept.ana.session("chat").append({"role": "user", "content": f"hi {number}"})
        kept.sync()
        shutil.rmtree(kept.path("ana/users/unnamed/sessions/2026-01/chat"))
        count = [0]

        def counted(path: Path, count: list[int] = count) -> disk.FileStamp | None:
            count[0] += 1
            return real(path)

        with monkeypatch.context() as patched:
            patched.setattr(disk, "stamp", counted)
            assert kept.sync().forgotten
        looks[many] = count[0]
        kept.close()
    assert looks[80] < looks[20] * 8


def test_held_files_stay_held_when_a_store_is_rebuilt_from_the_vault(kept: Kept) -> None:
    memories = remember(kept, 10)
    paths = delete(kept, memories[:7])
    kept.sync()
    kept.close()
    kept.store = kept.open("new.db")
    made = rebuild.from_vault(kept.store, kept.root)
    assert not made.synced.forgotten and living(kept, memories) == 10
    assert sorted(held(kept)) == sorted(paths)
    kept.sync(missing="restore")
    assert_equal(kept)


def test_files_moved_to_deleted_are_forgotten_without_confirmation(kept: Kept) -> None:
    memories = remember(kept, 30)
    for memory in memories:
        path = kept.of(memory)
        kept.move(path, path.replace("ana/", "ana/deleted/", 1))
    assert len(kept.sync().forgotten) == 30 and not held(kept)
    assert_equal(kept)


def test_files_of_forgotten_memories_may_be_deleted(kept: Kept) -> None:
    memories = remember(kept, 30)
    for memory in memories[:25]:
        kept.ana.forget(memory.id)
    kept.sync()
    shutil.rmtree(kept.path("ana/deleted"))
    assert not kept.sync().problems and not held(kept)
    assert living(kept, memories) == 5


def test_deleted_file_of_a_memory_changed_meanwhile_is_written_again(kept: Kept) -> None:
    memories = remember(kept, 10)
    delete(kept, memories[:7])
    kept.sync()
    kept.ana.revise(memories[0].id, "something new")
    report = kept.sync()
    assert any("changed in the store" in line for line in report.conflicts)
    assert kept.read(kept.of(memories[0])).endswith("something new\n")
    assert len(held(kept)) == 6 and living(kept, memories) == 10


def test_deleted_file_of_a_memory_forgotten_or_erased_meanwhile_is_not_held(kept: Kept) -> None:
    memories = remember(kept, 10)
    delete(kept, memories[:7])
    kept.sync()
    kept.ana.erase(memories[0].id)
    kept.ana.forget(memories[1].id)
    kept.sync()
    assert len(held(kept)) == 5
    with service.open_vault(kept.store) as vault:
        assert not any(memories[0].id in path for path in vault.files.held())
    kept.sync(missing="forget")
    assert living(kept, memories[2:]) == 3
    assert_equal(kept)


def test_new_memories_are_mirrored_while_others_are_held(kept: Kept) -> None:
    memories = remember(kept, 10)
    paths = delete(kept, memories[:7])
    kept.sync()
    new = kept.ana.remember("another")
    kept.mirror()
    assert kept.of(new) and not any(kept.path(path).exists() for path in paths)
    assert len(held(kept)) == 7


def test_held_files_stay_held_after_kills_and_in_new_processes(kept: Kept) -> None:
    memories = remember(kept, 10)
    delete(kept, memories[:7])
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setitem(execute._HANDLERS, Adopt, _interrupted)
        kept.sync()
    assert living(kept, memories) == 10
    kept.sync()
    kept.close()
    kept.store = kept.open()
    kept.clock.step(WINDOW_MS * 100)
    assert not kept.sync().forgotten and len(held(kept)) == 7


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["checkout", "sparse"])
def test_files_removed_by_git_checkout_are_not_forgotten(tmp_path: Path, how: str) -> None:
    kept = Kept(tmp_path, git=True)
    keep = kept.ana.remember("the first")
    kept.sync()
    first = by_hand(kept.root, "rev-parse", "HEAD").decode().strip()
    memories = remember(kept, 8)
    by_hand(kept.root, "checkout", "-q", "-b", "mine")
    if how == "checkout":
        by_hand(kept.root, "checkout", "-q", first)
    else:
        by_hand(kept.root, "sparse-checkout", "set", "--no-cone", "/ana/MEMORY.md")
    assert not kept.sync().forgotten
    assert living(kept, memories) == 8 and living(kept, [keep]) == 1
    if how == "checkout":
        by_hand(kept.root, "checkout", "-q", "-f", "mine")
    else:
        by_hand(kept.root, "sparse-checkout", "disable")
    kept.sync()
    assert not held(kept) and living(kept, memories) == 8
    kept.close()


def test_checkpoint_keeps_held_files_in_git(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    memories = remember(kept, 8)
    paths = delete(kept, memories[:6])
    kept.sync()
    kept.write("ana/own.txt", "mine")
    assert service.checkpoint(kept.store, "now") is not None
    assert set(paths) <= set(by_hand(kept.root, "ls-files").decode().splitlines())
    by_hand(kept.root, "checkout", "-q", "--", ".")
    kept.sync()
    assert not held(kept) and living(kept, memories) == 8
    kept.close()


def test_watch_collects_deletions_until_it_is_quiet() -> None:
    vanished = DeletionBuffer()
    assert vanished.take_settled(set(), 0.0) == set()
    assert vanished.take_settled({"a"}, 10.0) == set()
    assert vanished.take_settled({"a", "b"}, 10.0 + DELETION_QUIET_SECONDS / 2) == set()
    assert vanished.take_settled(set(), 10.0 + DELETION_QUIET_SECONDS) == set()
    assert vanished.take_settled(set(), 10.0 + DELETION_QUIET_SECONDS * 2) == {"a", "b"}
    assert vanished.take_settled(set(), 100.0) == set()


def test_watch_collects_deletions_for_a_limited_time() -> None:
    vanished, found, now = DeletionBuffer(), set[str](), 100.0
    while not found:
        now += DELETION_QUIET_SECONDS / 2
        found = vanished.take_settled({str(now)}, now)
    assert MAX_DELETION_SECONDS <= now - 100.0 <= MAX_DELETION_SECONDS + 2 * DELETION_QUIET_SECONDS


def test_moved_file_that_cannot_be_read_in_forgets_nothing(kept: Kept) -> None:
    memory = kept.ana.remember("I like tea")
    kept.ana.remember("Another one")
    kept.sync()
    path = kept.of(memory)
    kept.edit(path, "I like tea", "I like tea " * 400)
    kept.move(path, "ana/facts/tea.md")
    report = kept.sync()
    assert any("tea.md" in line for line in report.problems)
    assert kept.ana.get(memory.id).forgotten_at is None
    kept.edit("ana/facts/tea.md", "I like tea " * 400, "I like green tea")
    assert not kept.sync().problems
    assert kept.ana.get(memory.id).content == "I like green tea"


def test_file_deleted_while_a_sync_writes_its_id_is_forgotten(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person saved and deleted a file: it must not come back."""
    remember(kept, 1)
    kept.write("ana/facts/tea.md", "I like tea\n")
    real, path = Executor._write_memory, kept.path("ana/facts/tea.md")

    def deleted_before(executor: Executor, action: WriteMemory) -> None:
        path.unlink(missing_ok=True)
        real(executor, action)

    monkeypatch.setitem(execute._HANDLERS, WriteMemory, deleted_before)
    report = kept.sync()
    assert (report.remembered, report.forgotten, report.problems) == (
        ["ana/facts/tea.md"],
        ["ana/facts/tea.md"],
        [],
    )
    assert not path.exists() and kept.ana.count() == 1
    monkeypatch.undo()
    assert_equal(kept)


def test_file_deleted_while_its_new_version_is_written_stays_deleted(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(kept, 1)
    kept.write("ana/facts/tea.md", "I like tea\n")
    path, real = kept.path("ana/facts/tea.md"), disk._write_draft

    def deleted_meanwhile(draft: Path, raw: bytes, *, sync: bool) -> FileStamp:
        if draft == disk.temp_path(path):
            path.unlink(missing_ok=True)
        return real(draft, raw, sync=sync)

    monkeypatch.setattr(disk, "_write_draft", deleted_meanwhile)
    report = kept.sync()
    assert report.forgotten == ["ana/facts/tea.md"] and not report.problems
    assert not path.exists() and kept.ana.count() == 1


def test_sync_writes_a_file_again_whose_draft_was_deleted(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deleted = disk._write_draft, list[Path]()

    def draft_deleted(draft: Path, raw: bytes, *, sync: bool) -> FileStamp:
        made = real(draft, raw, sync=sync)
        if not deleted and draft.parent.name == "facts":
            deleted.append(draft)
            draft.unlink()
        return made

    kept.ana.remember("tea")
    monkeypatch.setattr(disk, "_write_draft", draft_deleted)
    assert not kept.sync()
    assert deleted
    assert_equal(kept)


def test_sync_fails_when_every_draft_is_deleted(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk._write_draft

    def draft_deleted(draft: Path, raw: bytes, *, sync: bool) -> FileStamp:
        made = real(draft, raw, sync=sync)
        if draft.parent.name == "facts":
            draft.unlink()
        return made

    memory = kept.ana.remember("tea")
    monkeypatch.setattr(disk, "_write_draft", draft_deleted)
    with pytest.raises(VaultError, match="No such file"):
        kept.sync()
    monkeypatch.undo()
    assert not kept.sync()
    assert kept.of(memory)
    assert_equal(kept)


@pytest.mark.parametrize("action", [PutBack, WriteSession])
def test_record_deleted_before_it_is_moved_does_not_end_the_sync(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, action: type[Action]
) -> None:
    remember(kept, 1)
    session = kept.ana.session("chat")
    session.append({"role": "user", "content": "hi"})
    kept.sync()
    turns = kept.path("ana/users/unnamed/sessions/2026-01/chat/turns.md")
    if action is PutBack:
        kept.move(
            "ana/users/unnamed/sessions/2026-01/chat", "ana/users/unnamed/sessions/2026-01/chitchat"
        )
        turns = kept.path("ana/users/unnamed/sessions/2026-01/chitchat/turns.md")
    else:
        session.hide()
    real, rename = execute._HANDLERS[action], Path.rename

    deleted = list[Path]()

    def deleted_before(source: Path, target: Path) -> Path:
        if not deleted:
            deleted.append(turns)
            turns.unlink()
        return rename(source, target)

    def handler(executor: Executor, planned: Action) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", deleted_before)
            real(executor, planned)

    monkeypatch.setitem(execute._HANDLERS, action, handler)
    kept.sync()
    monkeypatch.undo()
    kept.sync()
    assert session.events()
    assert_equal(kept)


@pytest.mark.parametrize("known", [False, True], ids=["new file", "known file"])
def test_file_renamed_while_a_sync_writes_it_is_not_forgotten(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    remember(kept, 1)
    path, renamed = kept.path("ana/facts/tea.md"), kept.path("ana/facts/drink.md")
    kept.write("ana/facts/tea.md", "I like tea\n")
    if known:
        kept.sync()
        (memory,) = [each for each in kept.ana.memories() if "tea" in each.content]
        kept.ana.revise(memory.id, "I like green tea")
    real = Executor._write_memory

    def renamed_before(executor: Executor, action: WriteMemory) -> None:
        if path.exists():
            path.rename(renamed)
        real(executor, action)

    monkeypatch.setitem(execute._HANDLERS, WriteMemory, renamed_before)
    report = kept.sync()
    assert not report.forgotten and not report.problems
    assert report.moved == ["ana/facts/tea.md → ana/facts/drink.md"]
    assert kept.ana.count() == 2 and not path.exists() and renamed.exists()
    monkeypatch.undo()
    assert_equal(kept)
