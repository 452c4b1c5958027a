"""A store from its vault alone, a vault from its store alone, and what of it survives what loss."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from reverie import Origin, Session, Space, Store
from reverie.errors import StoreError, VaultError
from reverie.transfer import log_replay
from reverie.vault import (
    disk,
    layout,
    log_file,
    rebuild,
    service,
)
from tests.conftest import DAY, PROVE, Stores
from tests.figures import figure
from tests.messages import user
from tests.vault.full_store import asked, exported, live

# All 500 with --prove.
QUERIES = 500 if PROVE else 40


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations of several parts, and a log of several files."""
    monkeypatch.setattr(layout, "PART_BYTES", 8_192)
    monkeypatch.setattr(log_file, "FULL_BYTES", 65_536)


def mirrored(stores: Stores, root: Path, turns: str = "together", **more: Any) -> Store:
    store = stores.open("first")
    live(store, stores.clock, **more)
    service.init(store, root, turns=turns)
    return store


def file_of(space: Space, id: str) -> Path:
    path = service.find_memory_file(space, id)
    assert path is not None
    return path


def files(root: Path) -> dict[str, bytes]:
    """Every file of a vault but the cache and git's own."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and path.relative_to(root).parts[0] != ".git"
        and not path.match(".reverie/files.db*")
        and not path.match(".reverie/lock")
    }


def readable(root: Path) -> dict[str, bytes]:
    """What people read, but for the versions."""
    return {
        name: re.sub(rb"^version: [0-9]+\n", b"", raw, count=1, flags=re.MULTILINE)
        for name, raw in files(root).items()
        if not name.startswith(".reverie/")
    }


def same_hits(one: Store, other: Store, many: int) -> None:
    for info in one.spaces():
        for name in (None, *info.users):
            here, there = (store.space(info.name, user=name) for store in (one, other))
            for query in asked(3, many // 4):
                one_hits, other_hits = (
                    [(hit.id, hit.score) for hit in space.recall(query, limit=10)]
                    for space in (here, there)
                )
                figure("queries", 1)
                figure("queries answered differently", one_hits != other_hits)
                assert one_hits == other_hits


def summaries(store: Store) -> dict[Any, Any]:
    return {
        (info.name, name, session.id): summary
        for info in store.spaces()
        for name in (None, *info.users)
        for space in [store.space(info.name, user=name)]
        for session in space.sessions(include_hidden=True)
        if (summary := space.session(session.id).summary()).text
    }


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def lost_cache(root: Path) -> None:
    for path in (root / ".reverie").glob("files.db*"):
        path.unlink()


def lost_log(root: Path) -> None:
    for path in (root / ".reverie").glob("log*.jsonl"):
        path.unlink()


def events(store: Store) -> dict[Any, list[Any]]:
    """The text of every event of everybody."""
    return {
        (info.name, name, session.id): [
            (event.sequence, event.at, event.text, event.interrupted)
            for event in space.session(session.id).events()
        ]
        for info in store.spaces()
        for name in (None, *info.users)
        for space in [store.space(info.name, user=name)]
        for session in space.sessions(include_hidden=True)
    }


def every_memory(store: Store, *without: str) -> dict[Any, Any]:
    """What each memory is now, but for what a file does not say."""
    found = {}
    for info in store.spaces():
        for name in (None, *info.users):
            own = store.space(info.name, user=name).session("private").space
            for memory in own.memories(include_forgotten=True):
                if memory.user == name:
                    kept = asdict(memory)
                    found[info.name, memory.id] = {k: kept[k] for k in kept if k not in without}
    return found


def forgotten(store: Store) -> set[Any]:
    return {id for id, kept in every_memory(store).items() if kept["forgotten_at"] is not None}


def log_lines(root: Path) -> list[bytes]:
    return (root / ".reverie" / "log.jsonl").read_bytes().splitlines(keepends=True)


def lose(root: Path, chosen: Callable[[dict[str, Any]], bool], instead: bytes = b"") -> int:
    """Take lines out of the log, or put others in their place."""
    lost = 0
    for path in (root / ".reverie").glob("log*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [instead if chosen(json.loads(line)) else line for line in lines]
        lost += sum(one != two for one, two in zip(kept, lines, strict=True))
        path.write_bytes(b"".join(kept))
    return lost


# -- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["kept", "lost"])
@pytest.mark.sample(2)
def test_rebuild_from_the_vault_restores_the_whole_store(
    stores: Stores, tmp_path: Path, cache: str
) -> None:
    root, second_vault = tmp_path / "vault", tmp_path / "anew"
    first = mirrored(stores, root)
    before, commits = files(root), git(root, "log", "--format=%H")
    assert len([name for name in before if "/log-" in name]) > 1
    assert any(name.endswith("turns-2.md") for name in before)
    if cache == "lost":
        lost_cache(root)
    stores.clock.step(DAY)
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    assert report.problems == () and not report.synced and report.from_files == 0
    assert report.entries == len(exported(first)) > 600
    assert exported(second) == exported(first)
    assert summaries(second) == summaries(first)
    assert every_memory(second) == every_memory(first)
    same_hits(first, second, QUERIES)
    assert second.verify().ok
    assert [each.position for each in second.space("ana").changes()] == [
        each.position for each in first.space("ana").changes()
    ]
    assert not service.sync(second)
    assert files(root) == before
    assert git(root, "diff", "HEAD") == "" and git(root, "log", "--format=%H") == commits
    rebuild.to_vault(second, second_vault)
    assert files(second_vault) == before


def test_rebuild_reads_one_file_per_turn(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    first = mirrored(stores, root, "apart", memories=40)
    before = files(root)
    lost_cache(root)
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    assert report.problems == () and not report.synced and report.from_files == 0
    assert exported(second) == exported(first) and files(root) == before
    lost_log(root)
    third = stores.open("third")
    assert not rebuild.from_vault(third, root).synced
    assert events(third).keys() == events(first).keys()


def test_rebuilt_store_continues_the_vault(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    mirrored(stores, root, memories=20)
    lost_cache(root)
    second = stores.open("second")
    rebuild.from_vault(second, root)
    space = second.space("ana")
    new = space.remember("a new thing", subject="new")
    chat = space.session("chat")
    chat.append(user("and on it goes"))
    space.session("hidden").append(user("it is back"))
    second.run_pending_jobs()
    service.sync(second)
    assert file_of(space, new.id).is_file()
    assert (
        b"and on it goes"
        in (root / "ana/users/unnamed/sessions/2026-01/chat/turns.md").read_bytes()
    )
    assert (
        b"it is back" in (root / "ana/users/unnamed/sessions/2026-01/hidden/turns.md").read_bytes()
    )
    third = stores.open("third")
    rebuild.from_vault(third, root)
    assert exported(third) == exported(second)


@pytest.mark.parametrize("turns", ["together", "apart"])
@pytest.mark.sample(2)
def test_rebuild_works_from_a_clone(stores: Stores, tmp_path: Path, turns: str) -> None:
    first = mirrored(stores, tmp_path / "vault", turns, memories=20)
    git(tmp_path, "clone", "-q", "vault", "clone")
    second = stores.open("second")
    report = rebuild.from_vault(second, tmp_path / "clone")
    assert report.problems == () and not report.synced
    assert exported(second) == exported(first)
    assert git(tmp_path / "clone", "diff", "HEAD") == ""


def test_rebuild_needs_an_empty_store(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    first = mirrored(stores, root, memories=5)
    with pytest.raises(VaultError, match="not empty"):
        rebuild.from_vault(first, root)
    with pytest.raises(VaultError, match="is not a vault"):
        rebuild.from_vault(stores.open("second"), tmp_path / "elsewhere")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("hello")
    with pytest.raises(VaultError, match="is not a vault"):
        rebuild.from_vault(stores.open("second"), tmp_path / "notes")
    assert not (tmp_path / "notes" / ".reverie").exists()


def test_interrupted_rebuild_continues(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "vault"
    first = mirrored(stores, root, memories=40)
    before = files(root)
    monkeypatch.setattr(log_replay, "BATCH", 10)
    done = 0

    def stop(count: int, whole: int) -> None:
        nonlocal done
        done += 1
        if done == 7:
            raise KeyboardInterrupt

    second = stores.open("second")
    with pytest.raises(KeyboardInterrupt):
        rebuild.from_vault(second, root, stop)
    assert 0 < len(exported(second)) < len(exported(first))
    report = rebuild.from_vault(second, root)
    assert report.entries + 70 == len(exported(first)) and report.problems == ()
    assert exported(second) == exported(first) and files(root) == before
    with pytest.raises(VaultError, match="not empty"):
        rebuild.from_vault(second, root)


def test_partly_rebuilt_store_neither_truncates_the_log_nor_reuses_positions(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    for number in range(30):
        first.space("ana").remember(f"thing {number}")
    service.init(first, root)
    before = files(root)
    monkeypatch.setattr(log_replay, "BATCH", 10)

    def stop(count: int, whole: int) -> None:
        raise KeyboardInterrupt

    second = stores.open("second", vault=str(root))
    with pytest.raises(KeyboardInterrupt):
        rebuild.from_vault(second, root, stop)
    with pytest.raises(StoreError, match="vault rebuild"):
        second.space("ana").remember("in the place of another")
    with pytest.raises(VaultError, match="vault rebuild"):
        service.sync(second)
    second.run_pending_jobs()
    assert files(root) == before
    assert rebuild.from_vault(second, root).problems == ()
    assert exported(second) == exported(first) and files(root) == before
    space = second.space("ana")
    new = space.remember("a new one")
    stores.clock.step(DAY)
    second.run_pending_jobs()
    assert file_of(space, new.id).is_file()


# -- people's edits -------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["kept", "lost"])
def test_rebuild_includes_edits_that_are_not_in_the_log(
    stores: Stores, tmp_path: Path, cache: str
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    space = first.space("ana")
    edited, moved, deleted = (space.remember(text) for text in ("edited", "moved", "deleted"))
    space.session("s").append(user("hello"))
    service.init(first, root)
    paths = {id: file_of(space, id) for id in (edited.id, moved.id, deleted.id)}
    old = paths[edited.id]
    old.write_bytes(old.read_bytes().replace(b"\n\nedited\n", b"\n\nedited by hand\n"))
    (root / "ana/deleted/facts").mkdir(parents=True)
    paths[moved.id].rename(root / "ana/deleted/facts" / paths[moved.id].name)
    paths[deleted.id].unlink()
    (root / "ana/facts/mine.md").write_text("written by hand\n")
    (root / "ana/users/unnamed/deleted/sessions/2026-01").mkdir(parents=True)
    (root / "ana/users/unnamed/sessions/2026-01/s").rename(
        root / "ana/users/unnamed/deleted/sessions/2026-01/s"
    )
    if cache == "lost":
        lost_cache(root)
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    there = second.space("ana")
    assert there.get(edited.id).content == "edited by hand"
    assert there.history(edited.id)[-1].actor == "vault"
    assert there.get(moved.id).forgotten_at is not None
    assert "written by hand" in {memory.content for memory in there.memories()}
    assert there.sessions() == [] and len(there.sessions(include_hidden=True)) == 1
    if cache == "kept":
        assert there.get(deleted.id).forgotten_at is not None
    else:
        # Who deleted it, and whether, nobody knows any more: the log decides, and a line says so.
        assert there.get(deleted.id).forgotten_at is None and paths[deleted.id].exists()
        assert report.problems == (f"ana: memory {deleted.id} had no file",)
    settled = files(root)
    assert not service.sync(second) and files(root) == settled
    assert second.verify().ok


# -- damage ---------------------------------------------------------------------------------------


def uuids(store: Store) -> set[str]:
    return {record["uuid"] for record in exported(store) if record["actor"] != "vault"}


def test_rebuild_replays_what_is_left_of_a_damaged_log_and_invents_nothing(
    stores: Stores, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    first = mirrored(stores, root, memories=60)
    chosen = random.Random(5).sample(range(1, 150), 30)
    damaged = lose(root, lambda line: line["position"] in chosen, b'{"position": 1, "br\xff\n')
    assert damaged > 25
    lost_cache(root)
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    reported = [line for line in report.problems if "no entry of a log" in line]
    assert len(reported) == damaged and report.from_files > 5
    # A lost forget or restore is derived from the place of the file, with a new time.
    times = ("updated_at", "forgotten_at", "trust", "version")
    assert every_memory(second, *times) == every_memory(first, *times)
    assert forgotten(second) == forgotten(first)
    assert events(second) == events(first)
    # Every undamaged line is there with its uuid; all else was imported from a file.
    assert uuids(second) < uuids(first)
    assert len(uuids(second)) == len(uuids(first)) - damaged
    assert second.verify().ok
    settled = files(root)
    assert not service.sync(second) and files(root) == settled
    third = stores.open("third")
    again = rebuild.from_vault(third, root)
    assert again.from_files == 0 and again.problems == ()
    assert exported(third) == exported(second)


@pytest.mark.parametrize("cache", ["kept", "lost"])
def test_rebuild_imports_from_markdown_what_a_truncated_log_has_lost(
    stores: Stores, tmp_path: Path, cache: str
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    space = first.space("ana")
    space.session("s").append_many([user("one"), user("two")])
    kept, left = space.remember("kept"), space.remember("left")
    service.init(first, root)
    size = (root / ".reverie/log.jsonl").stat().st_size
    space.revise(kept.id, "kept and revised")
    lost = space.remember("lost", subject="me", tags=["t"], pinned=True, happened_at="2020-01-02")
    space.session("s").append_many([user("three"), user("four")])
    gone = space.remember("gone")
    space.forget(gone.id)
    space.forget(left.id)
    service.sync(first)
    with (root / ".reverie/log.jsonl").open("r+b") as file:
        file.truncate(size + 20)
    if cache == "lost":
        lost_cache(root)
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    there = second.space("ana")
    assert [event.text for event in there.session("s").events()] == ["one", "two", "three", "four"]
    assert there.get(lost.id) == first.space("ana").get(lost.id)
    assert there.get(kept.id).content == "kept and revised" and there.get(kept.id).version == 2
    assert there.get(gone.id).forgotten_at is not None
    assert there.get(left.id).forgotten_at is not None
    assert [each.op for each in there.history(gone.id)] == ["remember"]
    assert report.from_files == 4 and second.verify().ok
    settled = files(root)
    assert not service.sync(second) and files(root) == settled


def test_rebuild_sets_a_hide_aside_when_the_restore_after_it_is_lost(
    stores: Stores, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    session = first.space("ana").session("s")
    session.append(user("one"))
    session.hide()
    session.append(user("two"))
    service.init(first, root)
    assert lose(root, lambda line: line["op"] == "restore") == 1
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    assert report.problems == ("log.jsonl, line 2: what restored the session s later is lost",)
    assert b'"hide"' in (root / ".reverie/damaged.jsonl").read_bytes()
    assert events(second) == events(first) and second.verify().ok
    assert [record["op"] for record in exported(second)] == ["append", "append"]
    assert second.space("ana").session("s").info().hidden_at is None


@pytest.mark.parametrize("lost", [1, 2])
def test_rebuild_moves_later_versions_up_when_one_is_lost(
    stores: Stores, tmp_path: Path, lost: int
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    space = first.space("ana")
    memory = space.remember("the zebra is striped")
    space.revise(memory.id, "the zebra is brown", reason="dust")
    space.revise(memory.id, "the zebra is grey", reason="more dust")
    service.init(first, root)
    before = {each.uuid: each for each in space.history(memory.id)}
    assert lose(root, lambda line: line["version"] == lost) == 1
    lost_cache(root)
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    there = second.space("ana")
    history = there.history(memory.id)
    assert [each.version for each in history] == [1, 2]
    for each in history:
        same = before[each.uuid]
        assert (each.content, each.position, each.recorded_at, each.reason, each.actor) == (
            *(same.content, same.position, same.recorded_at, same.reason, same.actor),
        )
    assert len(report.problems) == 1 and "is lost: it is version" in report.problems[0]
    assert report.from_files == 0 and not report.synced and second.verify().ok
    assert [hit.id for hit in there.recall("grey zebra")] == [memory.id]
    settled = files(root)
    assert not service.sync(second) and files(root) == settled
    there.revise(memory.id, "the zebra is clean")
    there.restore(there.forget(memory.id).id)
    service.sync(second)
    third = stores.open("third")
    assert rebuild.from_vault(third, root).problems == ()
    assert exported(third) == exported(second) and third.verify().ok


def test_rebuild_keeps_events_without_a_place_in_a_conflict_copy(
    stores: Stores, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    space = first.space("ana")
    space.session("s").append_many([user("one"), user("two"), user("three")])
    space.remember("a memory")
    service.init(first, root)
    # The place of the lost event is taken by another entry.
    lose(root, lambda line: line.get("sequence") == 2)
    path = root / ".reverie/log.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"position": 4', b'"position": 2'))
    lost_cache(root)
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    said = [event.text for event in second.space("ana").session("s").events()]
    assert said == ["one", "three"] and len(second.space("ana").memories()) == 1
    assert any("turns.conflict-v0.md" in line for line in report.problems)
    assert (
        b"two" in (root / "ana/users/unnamed/sessions/2026-01/s/turns.conflict-v0.md").read_bytes()
    )
    assert b"two" not in (root / "ana/users/unnamed/sessions/2026-01/s/turns.md").read_bytes()
    assert second.verify().ok
    settled = files(root)
    assert not service.sync(second) and files(root) == settled
    third = stores.open("third")
    assert rebuild.from_vault(third, root).problems == ()
    assert exported(third) == exported(second)


def test_rebuild_keeps_times_and_forks_where_lost_events_are_imported(
    stores: Stores, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    chat = first.space("ana").session("chat")
    for text in ("one", "two", "three"):
        chat.append(user(text))
        stores.clock.step(DAY)
    fork = Session(first.space("ana"), "fork", Origin("chat", 3))
    fork.append(user("four"))
    chat.append(user("last"))
    service.init(first, root)
    # The first gap in the log is before the entry that "two" belongs to.
    assert lose(root, lambda line: line["position"] in {2, 3, 5}) == 3
    lost_cache(root)
    second = stores.open("second")
    assert rebuild.from_vault(second, root).problems == ()
    assert events(second) == events(first) and second.verify().ok
    kept = {record["uuid"]: record for record in exported(first)}
    for record in exported(second):
        assert record["actor"] == "vault" or record == kept[record["uuid"]]


@pytest.mark.parametrize("at", [1, 4, 11])
@pytest.mark.sample(3)
def test_interrupted_rebuild_of_a_damaged_log_continues(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    root, other = tmp_path / "vault", tmp_path / "other"
    mirrored(stores, root, memories=40)
    assert lose(root, lambda line: line["position"] % 7 == 3, b"broken\n") > 10
    lost_cache(root)
    shutil.copytree(root, other)
    whole = stores.open("whole")
    rebuild.from_vault(whole, other)
    monkeypatch.setattr(log_replay, "BATCH", 20)
    steps = 0

    def stop(count: int, all: int) -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            raise KeyboardInterrupt

    second = stores.open("second")
    with pytest.raises(KeyboardInterrupt):
        rebuild.from_vault(second, root, stop)
    rebuild.from_vault(second, root)
    # What a sync then adds, such as an edit, has its own ids.
    assert uuids(second) == uuids(whole)
    assert events(second) == events(whole)
    lost = ("updated_at", "forgotten_at")
    assert every_memory(second, *lost) == every_memory(whole, *lost) and second.verify().ok


def test_rebuild_restores_the_last_events_of_a_hidden_session(
    stores: Stores, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    session = first.space("ana").session("s")
    session.append_many([user("one"), user("two")])
    session.hide()
    first.space("ana").remember("later")
    service.init(first, root)
    assert lose(root, lambda line: line.get("sequence") == 2 or line["op"] == "remember") == 2
    lost_cache(root)
    second = stores.open("second")
    assert rebuild.from_vault(second, root).problems == ()
    assert events(second) == events(first) and second.verify().ok
    assert second.space("ana").sessions() == []


def test_rebuild_does_not_bring_back_erased_entries(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    space = first.space("ana")
    memory = space.remember("a secret thing")
    service.init(first, root)
    lines = log_lines(root)
    space.erase(memory.id)
    service.sync(first)
    # As a merge of two histories would leave it: the line before and after it was emptied.
    (root / ".reverie/log.jsonl").write_bytes(b"".join(lines + log_lines(root)))
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    assert report.problems == () and exported(second) == exported(first)
    assert b"secret" not in json.dumps(exported(second)).encode()


def test_rebuild_reports_contradicting_log_lines(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    first.space("ana").remember("one")
    service.init(first, root)
    (line,) = log_lines(root)
    other = json.loads(line) | {"uuid": "00000000-0000-4000-8000-000000000000"}
    strange = json.loads(line) | {"position": -5}
    far = json.loads(line) | {"position": 1 << 40, "memory": "zzzzzzzz", "op": "dance"}
    with (root / ".reverie/log.jsonl").open("a") as file:
        for each in (other, strange, far, {**far, "position": 1 << 70}, {"position": 2}, [1]):
            file.write(json.dumps(each) + "\n")
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    assert len(report.problems) == 6 and exported(second) == exported(first)
    # They are kept apart, so that nobody takes their positions for how far the log has come.
    assert log_lines(root) == [line]
    assert len((root / ".reverie/damaged.jsonl").read_bytes().splitlines()) == 6
    second.space("ana").remember("two")
    lost_cache(root)
    service.sync(second)
    assert len(log_lines(root)) == 2 and len(list(root.glob("ana/facts/*.md"))) == 2


def test_rebuild_prefers_the_redacted_copy_of_an_entry(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    space = first.space("ana")
    space.session("s").append(user("a secret"))
    memory = space.remember("the secret", origin=Origin("s", 1))
    space.revise(memory.id, "something else")
    service.init(first, root)
    before = (root / ".reverie/log.jsonl").read_bytes()
    space.session("s").erase_event(1)
    service.sync(first)
    after = (root / ".reverie/log.jsonl").read_bytes()
    for number, both in enumerate((before + after, after + before)):
        (root / ".reverie/log.jsonl").write_bytes(both)
        lost_cache(root)
        other = stores.open(f"other {number}")
        rebuild.from_vault(other, root)
        assert exported(other) == exported(first)


# -- Markdown alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["the folder", "nothing"])
@pytest.mark.sample(2)
def test_rebuild_from_markdown_alone_restores_memories_and_events(
    stores: Stores, tmp_path: Path, left: str
) -> None:
    root = tmp_path / "vault"
    first = mirrored(stores, root, memories=120)
    before = readable(root)
    lost_cache(root)
    lost_log(root)
    if left == "nothing":
        shutil.rmtree(root / ".reverie")
    stores.clock.step(DAY)
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    assert report.problems == () and not report.synced
    lost = ("updated_at", "version")
    assert every_memory(second, *lost) == every_memory(first, *lost)
    assert events(second) == events(first)
    assert summaries(second) == summaries(first)
    hidden = [session.id for session in first.space("ana").sessions()]
    assert sorted(each.id for each in second.space("ana").sessions()) == sorted(hidden)
    assert second.space("ana").session("fork").forked_from == ("chat", 4)
    assert second.verify().ok
    # Versions are numbered again; nothing else changes.
    assert readable(root) == before
    settled = files(root)
    assert not service.sync(second) and files(root) == settled
    third = stores.open("third")
    rebuild.from_vault(third, root)
    assert exported(third) == exported(second)


def test_commit_of_a_rebuild_counts_what_was_imported(stores: Stores, tmp_path: Path) -> None:
    root, first = tmp_path / "vault", stores.open("first")
    ids = [first.space("ana").remember(f"tea number {number}").id for number in range(10)]
    first.space("ana").revise(ids[0], "coffee")
    service.init(first, root)
    lost_cache(root)
    (root / ".reverie" / "log.jsonl").unlink()
    rebuild.from_vault(stores.open("second"), root)
    assert git(root, "log", "-1", "--format=%s").strip() == "ana: 10 imported"


def test_rebuild_restores_names_too_long_for_a_folder(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    space = first.space("s" * 190, user="u" * 190)
    space.session("t" * 190).append(user("hello"))
    memory = space.session("t" * 190).remember("only here", private=True)
    service.init(first, root)
    lost_cache(root)
    second = stores.open("second")
    assert rebuild.from_vault(second, root).problems == ()
    assert exported(second) == exported(first)
    lost_cache(root)
    lost_log(root)
    third = stores.open("third")
    assert rebuild.from_vault(third, root).problems == ()
    there = third.space("s" * 190, user="u" * 190)
    assert [event.text for event in there.session("t" * 190).events()] == ["hello"]
    assert [each.id for each in there.session("t" * 190).memories()] == [memory.id]


def test_rebuild_from_markdown_accepts_windows_line_ends(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    memory = first.space("ana").remember("one line\n\n- another")
    for text in ("hello\nthere", "and\nmore"):
        first.space("ana").session("s").append(user(text))
    service.init(first, root)
    lost_cache(root)
    lost_log(root)
    for path in root.glob("ana/**/*.md"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    there = stores.open("second")
    assert rebuild.from_vault(there, root).problems == ()
    assert there.space("ana").get(memory.id).content == "one line\n\n- another"
    texts = [event.text for event in there.space("ana").session("s").events()]
    assert texts == ["hello\nthere", "and\nmore"]


# -- a vault from the store -----------------------------------------------------------------------


def test_rewritten_vault_keeps_changes_of_people(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    space = first.space("ana")
    one, two = space.remember("one"), space.remember("two")
    space.session("s").append_many([user("hello"), user("there")])
    service.init(first, root)
    before = files(root)
    path = file_of(space, one.id)
    path.write_bytes(path.read_bytes().replace(b"---\n\none\n", b"mine: kept\n---\n\none!\n"))
    other = file_of(space, two.id)
    other.rename(root / "ana/facts/renamed.md")
    (root / ".reverie/log.jsonl").write_bytes(log_lines(root)[0] + b"broken\n")
    report = rebuild.to_vault(first, root)
    assert space.get(one.id).content == "one!" and b"mine: kept" in path.read_bytes()
    assert (root / "ana/facts/renamed.md").exists() and not other.exists()
    assert len(report.revised) == 1 and report.conflicts == []
    assert len(log_lines(root)) == len(exported(first))
    assert (
        files(root)["ana/users/unnamed/sessions/2026-01/s/turns.md"]
        == before["ana/users/unnamed/sessions/2026-01/s/turns.md"]
    )
    assert git(root, "diff", "HEAD") == ""
    settled = files(root)
    assert not service.sync(first) and files(root) == settled
    rebuild.to_vault(first, root)
    assert files(root) == settled


def test_rebuild_leaves_the_vault_of_another_store_unchanged(
    stores: Stores, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    first = stores.open("first")
    first.space("ana").remember("one")
    service.init(first, root)
    before = files(root)
    second = stores.open("second")
    second.space("ana").remember("another")
    with pytest.raises(VaultError, match="this store lacks"):
        rebuild.to_vault(second, root)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(VaultError, match="neither empty nor a vault"):
        rebuild.to_vault(second, tmp_path / "full")
    assert files(root) == before
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_interrupted_rewrite_of_the_log_continues(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "vault"
    monkeypatch.setattr(log_file, "FULL_BYTES", 2_000)
    first = stores.open("first")
    for number in range(20):
        first.space("ana").remember(f"thing {number}")
        service.init(first, root) if number == 0 else service.sync(first)
    before = files(root)
    remove, removed = disk.remove, list[Path]()

    def stopped(path: Path) -> None:
        if len(removed) == 2 and path.suffix == ".jsonl":
            raise KeyboardInterrupt
        removed.append(path)
        remove(path)

    monkeypatch.setattr(disk, "remove", stopped)
    with pytest.raises(KeyboardInterrupt):
        rebuild.to_vault(first, root)
    monkeypatch.setattr(disk, "remove", remove)
    service.sync(first)
    assert b"".join(each for name, each in files(root).items() if "/log" in name) == b"".join(
        each for name, each in before.items() if "/log" in name
    )


def test_partly_rebuilt_store_says_how_to_continue(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, moved = tmp_path / "vault", tmp_path / "moved"
    first = stores.open("first")
    for number in range(30):
        first.space("ana").remember(f"thing {number}")
    service.init(first, root)
    monkeypatch.setattr(log_replay, "BATCH", 10)

    def stop(count: int, whole: int) -> None:
        raise KeyboardInterrupt

    second = stores.open("second")
    with pytest.raises(KeyboardInterrupt):
        rebuild.from_vault(second, root, stop)
    root.rename(moved)
    way = rf"not wholly made of {root} yet: run '.* rebuild {root}'.*make another store"
    with pytest.raises(VaultError, match=way):
        rebuild.from_vault(second, moved)
    with pytest.raises(VaultError, match=way):
        rebuild.to_vault(second, tmp_path / "new")
    with pytest.raises(StoreError, match=way):
        second.space("ana").remember("in the place of another")
    assert rebuild.from_vault(stores.open("third"), moved).entries == 30


def test_store_whose_rebuild_never_began_can_be_written(stores: Stores, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    mirrored(stores, root, memories=5)
    (root / ".reverie" / "log.jsonl").unlink()
    (root / ".reverie" / "log.jsonl").mkdir()
    second = stores.open("second")
    with pytest.raises(VaultError, match="cannot be read"):
        rebuild.from_vault(second, root)
    second.space("ana").remember("one")
