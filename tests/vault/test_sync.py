"""A run between store and vault: one stuck file, a failure or a kill keeps nothing else waiting."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.engine import log
from reverie.errors import StoreBusy, StoreDamaged
from reverie.model import Memory, Origin
from reverie.vault import actions as act
from reverie.vault import disk, execute
from reverie.vault.actions import Action
from reverie.vault.collect import Collector
from reverie.vault.execute import Executor
from reverie.vault.session_files import SessionFiles
from reverie.vault.state import Snapshot
from reverie.vault.sync import MAX_PLANS
from reverie.vault.vault import Vault
from tests.messages import user
from tests.vault.vaults import Kept, assert_equal, holding

TOO_LONG = "x" * 30_000


class Killed(BaseException):
    """The process ends here."""


def killed(*values: object, **named: object) -> None:
    raise Killed


def remembered(kept: Kept, many: int) -> list[Memory]:
    return [kept.ana.remember(f"fact number {number}") for number in range(many)]


def hold(kept: Kept, memories: list[Memory]) -> list[str]:
    """Delete the files of most memories, so that they wait for an answer."""
    paths = [kept.of(memory) for memory in memories]
    for path in paths:
        kept.path(path).unlink()
    assert "nothing is forgotten yet" in kept.sync().problems[0]
    return paths


# -- one file does not keep the others ------------------------------------------------------------


def test_held_file_that_cannot_be_read_in_keeps_no_other_owner_waiting(kept: Kept) -> None:
    memories = remembered(kept, 4)
    other = kept.store.space("other")
    erased = other.remember("plugh secret")
    kept.sync()
    raw = kept.read(kept.of(memories[0]))
    path = hold(kept, memories[:3])[0]
    kept.write(path, raw.replace("fact number 0", TOO_LONG))
    other.erase(erased.id)
    new = kept.store.space("other", user="bob").remember("words of bob")
    kept.mirror()
    assert kept.files("other") == [kept.of(new)]
    assert any(path in line for line in kept.sync().problems)
    assert kept.ana.get(memories[0].id).forgotten_at is None


def test_damaged_version_leaves_other_edits_to_be_read(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged, whole = kept.ana.remember("alpha thing"), kept.ana.remember("beta thing")
    kept.sync()
    kept.edit(kept.of(damaged), "alpha", "gamma")
    kept.edit(kept.of(whole), "beta", "delta")
    damage_versions(monkeypatch, damaged.id)
    report = kept.sync()
    assert any("damaged" in line for line in report.problems)
    assert kept.ana.get(whole.id).content == "delta thing"
    assert "gamma" in kept.read(kept.of(damaged))


def test_memory_with_a_damaged_older_version_is_still_mirrored(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = kept.ana.remember("alpha")
    kept.sync()
    kept.ana.revise(memory.id, "alpha at last")
    damage_versions(monkeypatch, memory.id)
    kept.mirror()
    assert "alpha at last" in kept.read(kept.of(memory))


def damage_versions(monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    versions = log.versions

    def damaged(tx: Any, owner: Any, memory: str) -> list[log.LogEntry]:
        if memory == id:
            raise StoreDamaged(f"version 1 of {id} is damaged")
        return versions(tx, owner, memory)

    monkeypatch.setattr(log, "versions", damaged)


def test_unusable_summary_does_not_keep_turns_from_their_file(kept: Kept) -> None:
    session = kept.ana.session("chat")
    session.append_many([user("one"), user("two")])
    session.write_summary("They count.", upper=2, expected_epoch=0)
    kept.sync()
    summary = kept.path("ana/users/unnamed/sessions/2026-01/chat/summaries/summary.md")
    summary.unlink()
    summary.symlink_to("/etc/hostname")
    session.append(user("three"))
    kept.mirror()
    assert "three" in kept.read("ana/users/unnamed/sessions/2026-01/chat/turns.md")


# -- failures -------------------------------------------------------------------------------------


def test_erased_file_that_could_not_be_removed_is_removed_later(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = kept.ana.remember("plugh secret")
    kept.ana.remember("another one")
    kept.sync()
    path = kept.path(kept.of(memory))
    kept.ana.erase(memory.id)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "remove", _refuse(path, disk.remove))
        assert kept.sync().problems
        assert path.exists()
    kept.mirror()
    assert not path.exists()
    assert_equal(kept)


def test_mirror_job_is_repeated_while_an_erased_file_stays(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = kept.ana.remember("plugh secret")
    kept.sync()
    kept.store.run_pending_jobs()
    path = kept.path(kept.of(memory))
    with monkeypatch.context() as patched:
        patched.setattr(disk, "remove", _refuse(path, disk.remove))
        kept.ana.erase(memory.id)
        kept.store.run_pending_jobs()
        assert path.exists()
        assert [job.kind for job in kept.store.jobs() if job.error] == ["mirror"]
    kept.clock.step(3_600_000)
    kept.store.run_pending_jobs()
    assert not path.exists()


def _refuse(path: Path, remove: Callable[[Path], None]) -> Callable[[Path], None]:
    def refusing(each: Path) -> None:
        if each == path:
            raise disk.UnusablePath("it cannot be removed")
        remove(each)

    return refusing


def test_erased_session_with_a_folder_in_place_of_its_turns_keeps_no_summary(kept: Kept) -> None:
    session = kept.ana.session("chat")
    session.append_many([user("plugh one"), user("plugh two"), user("plugh three")])
    session.write_summary("They say plugh.", upper=2, expected_epoch=0)
    kept.sync()
    turns = kept.path("ana/users/unnamed/sessions/2026-01/chat/turns.md")
    turns.unlink()
    turns.mkdir()
    (turns / "mine").write_text("y")
    session.erase_event(2)
    kept.mirror()
    assert not kept.path("ana/users/unnamed/sessions/2026-01/chat/summaries/summary.md").exists()


@pytest.mark.parametrize("erased", [False, True], ids=["turn", "erasure"])
def test_busy_store_ends_the_run_and_the_next_one_continues(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, erased: bool
) -> None:
    session = kept.ana.session("chat")
    session.append_many([user("one"), user("two")])
    kept.sync()
    session.erase_event(1) if erased else session.append(user("three"))

    def busy(*values: object) -> None:
        raise StoreBusy("another writer holds the store")

    with monkeypatch.context() as patched:
        patched.setattr(SessionFiles, "_entries", busy)
        with pytest.raises(StoreBusy):
            kept.mirror()
    kept.mirror()
    assert_equal(kept)


def test_restored_backup_is_noticed_by_the_watchers_run(kept: Kept) -> None:
    kept.ana.remember("first")
    kept.sync()
    backup = kept.folder / "backup.db"
    kept.store.backup(backup)
    lost = [kept.ana.remember(f"lost with the disk {number}") for number in range(3)]
    kept.sync()
    kept.store.restore_backup(backup)
    new = [kept.ana.remember(f"new after the restore {number}") for number in range(6)]
    kept.write("ana/facts/mine.md", "my own words\n")
    kept.sync("ana/facts/mine.md")
    assert all(kept.of(memory) for memory in new)
    assert {line["uuid"] for line in kept.log_lines()} == {
        record["uuid"] for record in kept.ana.export()
    }
    contents = {memory.content for memory in kept.ana.memories()}
    assert contents >= {memory.content for memory in lost}


# -- people and programs that go on meanwhile -----------------------------------------------------


def test_sync_ends_while_another_process_keeps_writing(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.ana.remember("one")
    kept.sync()
    session = kept.store.space("ana", user="bob").session("chat")
    rounds = _meanwhile(monkeypatch, lambda: session.append(user("and on it goes")))
    kept.sync()
    kept.mirror()
    assert len(rounds) < 10


def test_sync_ends_while_a_person_keeps_saving_a_file(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept.of(_mirrored(kept, "one"))

    def save() -> None:
        with kept.path(path).open("a") as file:
            file.write("more ")

    rounds = _meanwhile(monkeypatch, save)
    kept.sync(path)
    assert len(rounds) <= MAX_PLANS + 2


def _mirrored(kept: Kept, content: str) -> Memory:
    memory = kept.ana.remember(content)
    kept.sync()
    return memory


def _meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> list[None]:
    """Change something before each look, and note how often somebody looked."""
    rounds, snapshot = list[None](), Collector.snapshot

    def looking(self: Collector, *values: Any, **named: Any) -> Snapshot:
        assert len(rounds) < 100
        rounds.append(None)
        change()
        return snapshot(self, *values, **named)

    monkeypatch.setattr(Collector, "snapshot", looking)
    return rounds


def test_file_edited_after_the_plan_is_not_removed_with_its_double(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = _mirrored(kept, "alpha words")
    path = kept.of(memory)
    kept.ana.forget(memory.id)
    with monkeypatch.context() as patched:
        patched.setattr(Vault, "remove", killed)
        with pytest.raises(Killed):
            kept.mirror()
    assert len(kept.files()) == 2
    run = Executor.execute

    def edited(self: Executor, actions: list[Action], **named: bool) -> bool:
        removes = any(isinstance(action, act.RemoveFile) for action in actions)
        if removes and "alpha words" in kept.read(path):
            kept.edit(path, "alpha words", "my own new words")
        return run(self, actions, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "execute", edited)
        kept.sync()
    assert "my own new words" in kept.read(path)
    assert kept.ana.get(memory.id).content == "my own new words"
    # Entries that were added after the run wrote its last ones are written by the next.
    kept.sync()
    assert_equal(kept)


# -- records --------------------------------------------------------------------------------------


def test_older_turns_that_come_back_are_written_up_to_date(kept: Kept) -> None:
    session = kept.ana.session("chat")
    session.append(user("one"))
    kept.sync()
    path = "ana/users/unnamed/sessions/2026-01/chat/turns.md"
    older = kept.read(path)
    session.append(user("two"))
    kept.sync()
    kept.write(path, older)
    kept.sync(path)
    assert "two" in kept.read(path)


@pytest.mark.parametrize(
    "target",
    ["ana/users/unnamed/sessions/2026-01/copy", "ana/users/unnamed/deleted/sessions/2026-01/chat"],
)
def test_copied_session_folder_settles(kept: Kept, target: str) -> None:
    session = kept.ana.session("chat")
    session.append_many([user("one"), user("two")])
    session.write_summary("They count.", upper=2, expected_epoch=0)
    kept.sync()
    shutil.copytree(kept.path("ana/users/unnamed/sessions/2026-01/chat"), kept.path(target))
    kept.sync()
    session.append(user("three"))
    kept.mirror()
    assert "three" in kept.read("ana/users/unnamed/sessions/2026-01/chat/turns.md")
    assert kept.path("ana/users/unnamed/sessions/2026-01/chat/summaries/summary.md").exists()


def test_moved_session_with_a_file_per_turn_is_hidden_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path, turns="apart")
    kept.ana.session("chat").append_many([user(f"turn {number}") for number in range(4)])
    kept.sync()
    kept.move(
        "ana/users/unnamed/sessions/2026-01/chat", "ana/users/unnamed/deleted/sessions/2026-01/chat"
    )
    assert len(kept.sync().forgotten) == 1
    kept.move(
        "ana/users/unnamed/deleted/sessions/2026-01/chat", "ana/users/unnamed/sessions/2026-01/chat"
    )
    assert len(kept.sync().restored) == 1
    kept.close()


def test_summary_of_a_held_session_does_not_bring_its_turns_back(kept: Kept) -> None:
    for name in "abcd":
        kept.ana.session(name).append_many([user(f"{name} one"), user(f"{name} two")])
    kept.sync()
    for name in "abc":
        shutil.rmtree(kept.path(f"ana/users/unnamed/sessions/2026-01/{name}"))
    kept.sync()
    kept.ana.session("a").write_summary("They count.", upper=2, expected_epoch=0)
    kept.store.run_pending_jobs()
    assert kept.files() == ["ana/users/unnamed/sessions/2026-01/d/turns.md"]


# -- kills ----------------------------------------------------------------------------------------


def test_session_moved_to_deleted_is_hidden_despite_a_kill(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.ana.session("chat").append(user("one"))
    kept.sync()
    kept.move(
        "ana/users/unnamed/sessions/2026-01/chat", "ana/users/unnamed/deleted/sessions/2026-01/chat"
    )
    with monkeypatch.context() as patched:
        patched.setitem(execute._HANDLERS, act.SwitchSession, killed)
        with pytest.raises(Killed):
            kept.sync()
    kept.sync()
    assert kept.ana.sessions() == []
    assert kept.files() == ["ana/users/unnamed/deleted/sessions/2026-01/chat/turns.md"]


def test_swapped_files_killed_after_the_first_plan_stay_one_file_each(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = _mirrored(kept, "alpha words here"), _mirrored(kept, "beta things there")
    first, second = kept.of(one), kept.of(two)
    texts = kept.read(first), kept.read(second)
    kept.write(first, texts[1])
    kept.write(second, texts[0])
    run, plans = Executor.execute, list[None]()

    def once(self: Executor, actions: list[Action], **named: bool) -> bool:
        if plans:
            raise Killed
        plans.append(None)
        return run(self, actions, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "execute", once)
        with pytest.raises(Killed):
            kept.sync()
    kept.ana.revise(two.id, "beta revised")
    kept.ana.revise(one.id, "alpha revised")
    kept.mirror()
    assert len(kept.files()) == 2
    assert_equal(kept)


# -- erasures -------------------------------------------------------------------------------------


def test_shared_memory_erased_with_its_source_leaves_no_word_in_the_unnamed_turns(
    kept: Kept,
) -> None:
    session = kept.ana.session("chat")
    event = session.append(user("xyzzy opens the door"))
    session.append(user("fine"))
    memory = kept.ana.remember("xyzzy opens it", origin=Origin("chat", event.sequence))
    kept.sync()
    assert len(holding(kept, b"xyzzy")) > 2
    kept.ana.erase(memory.id, with_source=True)
    kept.sync()
    assert holding(kept, b"xyzzy") == []
    assert_equal(kept)


def test_overwritten_memory_with_a_broken_file_leaves_no_quote_for_a_commit(kept: Kept) -> None:
    session = kept.ana.session("chat")
    event = session.append(user("plugh is the word"))
    session.append(user("fine"))
    memory = kept.ana.remember("plugh is the word", origin=Origin("chat", event.sequence))
    kept.mirror()
    kept.ana.revise(memory.id, "a clean text")
    kept.mirror()
    kept.write(kept.of(memory), "---\nid: [broken\n---\n\nmy words")
    session.erase_event(event.sequence)
    kept.mirror()
    with Vault.open(kept.root) as vault:
        assert not [each for each in vault.files.pending() if "plugh" in each.line]
