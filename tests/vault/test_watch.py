"""A real watch over real files, saved the ways that editors save them."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import reverie
from reverie import Settings, Space
from reverie.errors import StoreBusy, VaultError
from reverie.vault import service
from reverie.vault import watch as vault_watch
from reverie.vault.actions import SyncReport
from reverie.vault.plan_missing import MAX_AT_ONCE
from reverie.vault.watch import Watch
from tests.vault.vault_stores import Living, eventually


class Reports(list[SyncReport]):
    """The reports of a watch, in order."""

    def lines(self, name: str) -> list[str]:
        return [line for report in self for line in getattr(report, name)]


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def watched(living: Living, reports: Reports) -> Iterator[Living]:
    """A vault that is watched. The first look around is over."""
    marker = living.root / "marker" / "begun.md"
    marker.parent.mkdir()
    marker.write_text("The watch has begun\n", encoding="utf-8")
    with Watch(living.store, reports.append):
        eventually(lambda: reports.lines("remembered"))
        yield living


def remembered(living: Living, content: str) -> tuple[str, Path]:
    memory = living.ana.remember(content)
    service.sync(living.store)
    return memory.id, living.file(memory.id)


def has(living: Living, many: int) -> bool:
    return living.ana.count() == many


def edit(living: Living, id: str, old: str, new: str) -> None:
    """As a person does who opened the file, and saves it."""
    path = living.file(id)
    path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")


def settled(living: Living, id: str, content: str) -> None:
    """Wait until the store says this, and the file that it does."""
    eventually(lambda: living.says(id) == content)
    version = f"version: {living.ana.get(id).version}\n"
    eventually(lambda: version in living.file(id).read_text("utf-8"))


# -- saving ---------------------------------------------------------------------------------------


def write_in_place(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def rename_over(path: Path, text: str) -> None:
    """As vim and other editors save: through temporary files that appear and disappear."""
    probe = path.with_name("4913")
    probe.touch()
    probe.unlink()
    draft = path.with_name(f".{path.name}.swp")
    draft.write_text(text, encoding="utf-8")
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    draft.unlink()


def backup_first(path: Path, text: str) -> None:
    """For a moment there is no file of that name."""
    backup = path.with_name(f"{path.name}~")
    path.rename(backup)
    path.write_text(text, encoding="utf-8")
    backup.unlink()


@pytest.mark.parametrize("save", [write_in_place, rename_over, backup_first])
def test_watch_makes_a_revision_of_a_saved_file(watched: Living, save: object) -> None:
    assert callable(save)
    id, path = remembered(watched, "Alec is my boss")
    for content in ("Alec is my friend", "Alec is my neighbour"):
        save(path, path.read_text("utf-8").replace(watched.says(id), content))
        settled(watched, id, content)
    history = watched.ana.history(id)
    assert [version.op for version in history] == ["remember", "revise", "revise"]
    assert history[-1].actor == "vault"
    eventually(lambda: len(service.history(watched.ana, id)) == 3)


def test_watch_imports_many_files_at_once(watched: Living) -> None:
    folder = watched.root / "ana" / "facts"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(60):
        (folder / f"{number}.md").write_text(f"Fact number {number}\n", encoding="utf-8")
    eventually(lambda: watched.ana.count() == 60)
    assert {memory.content for memory in watched.ana.memories()} == {
        f"Fact number {number}" for number in range(60)
    }
    eventually(lambda: all("id:" in file.read_text("utf-8") for file in folder.glob("*.md")))


def test_watch_forgets_a_deleted_file(watched: Living) -> None:
    id, path = remembered(watched, "Alec is my boss")
    path.unlink()
    eventually(lambda: watched.ana.get(id).forgotten_at is not None)


def test_watch_holds_and_reports_many_deletions(watched: Living, reports: Reports) -> None:
    memories = [watched.ana.remember(f"Fact number {number}") for number in range(40)]
    service.sync(watched.store)
    paths = [watched.file(memory.id) for memory in memories]
    for path in paths[:30]:
        path.unlink()
    eventually(lambda: len(service.status(watched.store).missing) == 30)
    assert has(watched, 40)
    eventually(lambda: any("--missing forget" in line for line in reports.lines("problems")))
    report = service.sync(watched.store, missing="restore")
    assert not report.forgotten and all(path.is_file() for path in paths)
    assert service.status(watched.store).missing == () and has(watched, 40)


def test_watch_counts_deletions_reported_in_several_batches(watched: Living) -> None:
    memories = [watched.ana.remember(f"Fact number {number}") for number in range(60)]
    service.sync(watched.store)
    paths = [watched.file(memory.id) for memory in memories]
    for start in range(0, 30, 3):
        for path in paths[start : start + 3]:
            path.unlink()
        time.sleep(0.3)
    eventually(lambda: service.status(watched.store).missing)
    # At most as many as need no answer were taken for wishes before the brake acted.
    assert watched.ana.count() >= 60 - MAX_AT_ONCE


def test_watch_follows_a_file_moved_to_deleted_and_back(watched: Living) -> None:
    id, path = remembered(watched, "Alec is my boss")
    gone = watched.root / "ana" / "deleted" / "facts" / path.name
    gone.parent.mkdir(parents=True)
    path.rename(gone)
    eventually(lambda: watched.ana.get(id).forgotten_at is not None)
    eventually(lambda: "forgotten_at" in gone.read_text("utf-8"))
    path.parent.mkdir(parents=True, exist_ok=True)
    gone.rename(path)
    eventually(lambda: watched.ana.get(id).forgotten_at is None)


def test_watch_follows_a_renamed_folder(watched: Living) -> None:
    ids = [remembered(watched, f"Person {number}")[0] for number in range(5)]
    folder = watched.root / "ana" / "facts"
    folder.rename(folder.with_name("people"))
    eventually(lambda: {watched.file(id).parent.name for id in ids} == {"people"})
    assert watched.ana.count() == 5
    # What is below it is watched under its new name.
    edit(watched, ids[0], "Person 0", "Nobody")
    settled(watched, ids[0], "Nobody")


def test_watch_updates_the_index_after_a_file_was_renamed(watched: Living) -> None:
    _, path = remembered(watched, "Alec is my boss")
    index = watched.root / "ana" / "MEMORY.md"
    assert path.name in index.read_text("utf-8")
    path.rename(path.with_name("boss.md"))
    eventually(lambda: "facts/boss.md" in index.read_text("utf-8"))
    assert path.name not in index.read_text("utf-8")


def test_watch_writes_the_file_again_that_another_was_moved_over(watched: Living) -> None:
    one, first = remembered(watched, "Alec is my boss")
    two, second = remembered(watched, "Eva is my aunt")
    first.replace(second)
    eventually(lambda: service.find_memory_file(watched.ana, one) == second)
    eventually(lambda: service.find_memory_file(watched.ana, two) not in {None, second})
    assert "Eva is my aunt" in watched.file(two).read_text("utf-8") and has(watched, 2)


def test_watch_puts_back_swapped_session_folders(watched: Living, reports: Reports) -> None:
    for session in ("one", "two"):
        watched.ana.session(session).append({"role": "user", "content": f"said in {session}"})
    service.sync(watched.store)
    (first,) = watched.root.glob("ana/users/unnamed/sessions/*/one")
    second, aside = first.with_name("two"), watched.root / "aside"
    for source, target in ((first, aside), (second, first), (aside, second)):
        source.rename(target)
    eventually(lambda: "said in one" in _said(first) and "said in two" in _said(second))
    assert len(watched.ana.sessions()) == 2 and not reports.lines("forgotten")


def _said(folder: Path) -> str:
    path = folder / "turns.md"
    return path.read_text("utf-8") if path.exists() else ""


def test_watch_creates_a_space_for_a_new_folder(watched: Living) -> None:
    folder = watched.root / "work" / "facts"
    folder.mkdir(parents=True)
    (folder / "first.md").write_text("The office is in Bern\n", encoding="utf-8")
    eventually(lambda: watched.store.space("work").count() == 1)
    (folder / "second.md").write_text("The office has a garden\n", encoding="utf-8")
    eventually(lambda: watched.store.space("work").count() == 2)


def test_watch_ignores_a_checkout_of_an_older_commit(watched: Living) -> None:
    """Files that are older than the store are no edits: they are updated from the store."""
    id, path = remembered(watched, "Alec is my boss")
    watched.ana.revise(id, "Alec is my friend")
    service.sync(watched.store)
    other, _ = remembered(watched, "Berta is my aunt")
    git = ["git", "-C", str(watched.root), "-c", "advice.detachedHead=false"]
    subprocess.run([*git, "checkout", "-q", "HEAD~2", "--", "ana"], check=True)
    assert "Alec is my boss" in path.read_text("utf-8")
    eventually(lambda: "Alec is my friend" in path.read_text("utf-8"))
    assert watched.says(id) == "Alec is my friend"
    assert watched.says(other) == "Berta is my aunt"


# -- what is not theirs ---------------------------------------------------------------------------


def test_watch_ignores_files_written_by_the_mirror(watched: Living, reports: Reports) -> None:
    watched.store.start_worker(0.02)
    ids = [watched.ana.remember(f"Something {number}").id for number in range(20)]
    folder = watched.root / "ana" / "facts"
    eventually(lambda: len(list(folder.glob("*.md"))) == 20)
    eventually(lambda: not watched.store.jobs())
    # What a person does afterwards is heard: all before it was looked at.
    edit(watched, ids[0], "Something 0", "Done")
    settled(watched, ids[0], "Done")
    assert reports.lines("remembered") == ["marker/begun.md"]
    assert not reports.lines("problems") and not reports.lines("conflicts")
    assert all(len(watched.ana.history(id)) == 1 for id in ids[1:])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("ana/facts/x.md", True),
        ("ana", True),
        ("ana/facts/.x.md.swp", False),
        ("ana/facts/x.md.tmp", False),
        (".git/index", False),
        (".reverie/log.jsonl", False),
        ("ana/.obsidian/app.json", False),
        ("away/secret.md", False),
        ("", False),
        ("../outside.md", False),
    ],
)
def test_is_user_path_excludes_hidden_linked_and_outside_paths(
    tmp_path: Path, path: str, expected: bool
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
    (root / "away").symlink_to(outside)
    assert vault_watch.is_user_path(root, root / path) is expected or ".." in path
    assert not vault_watch.is_user_path(root, outside / "x.md")


def test_watch_does_not_follow_links(living: Living, tmp_path: Path, reports: Reports) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (living.root / "ana").mkdir(exist_ok=True)
    (living.root / "ana" / "away").symlink_to(outside)
    with Watch(living.store, reports.append):
        folder = living.root / "ana" / "facts"
        folder.mkdir()
        (folder / "one.md").write_text("One\n", encoding="utf-8")
        eventually(lambda: living.ana.count() == 1)
        (outside / "secret.md").write_text("Not yours\n", encoding="utf-8")
        # Folders that come later are watched, although not everything below the root is.
        later = living.root / "ana" / "later" / "still"
        later.mkdir(parents=True)
        (later / "two.md").write_text("Two\n", encoding="utf-8")
        eventually(lambda: living.ana.count() == 2)
        (later / "three.md").write_text("Three\n", encoding="utf-8")
        eventually(lambda: living.ana.count() == 3)
    assert {memory.content for memory in living.ana.memories()} == {"One", "Two", "Three"}


def test_watch_distinguishes_real_folders_from_linked_ones(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    assert vault_watch._real_folders(tmp_path) == (
        [tmp_path, tmp_path / "a", tmp_path / "a" / "b"],
        False,
    )
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    folders, linked = vault_watch._real_folders(tmp_path)
    assert linked and len(folders) == 3
    assert vault_watch._unwatched(tmp_path, ["a"], None)
    assert not vault_watch._unwatched(tmp_path, ["a", "a/b", "gone"], set(folders))
    (tmp_path / "new").mkdir()
    assert vault_watch._unwatched(tmp_path, ["new"], set(folders))


def all_written(folder: Path) -> bool:
    """Whether each file has the front matter that Reverie gives it."""
    return all(path.read_bytes().startswith(b"---\n") for path in folder.glob("*.md"))


def test_watch_is_not_delayed_by_changes_in_our_own_folder(living: Living) -> None:
    """Whoever looks at a vault touches the files of its cache, perhaps all the time."""
    folder = living.root / "ana" / "facts"
    folder.mkdir(parents=True)
    busy = threading.Event()

    def touch() -> None:
        while not busy.wait(0.02):
            (living.root / ".reverie" / "busy").write_bytes(b"")

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        with Watch(living.store):
            for number in range(3):
                (folder / f"{number}.md").write_text(f"Fact {number}\n", encoding="utf-8")
                eventually(partial(has, living, number + 1))
            # A file that was only just read is written once more, with its front matter.
            eventually(partial(all_written, folder))
            # Not any file: beside them may be the draft of one that is written again.
            next(folder.glob("*.md")).unlink()
            eventually(partial(has, living, 2))
    finally:
        busy.set()
        thread.join()


# -- what goes wrong ------------------------------------------------------------------------------


def test_watch_reports_an_unreadable_file_once_and_continues(
    watched: Living, reports: Reports
) -> None:
    folder = watched.root / "ana" / "facts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken.md").write_text("---\nid: [\n---\nx\n", encoding="utf-8")
    eventually(lambda: reports.lines("problems"))
    (folder / "whole.md").write_text("Whole\n", encoding="utf-8")
    eventually(lambda: watched.ana.count() == 1)
    assert [line.partition(":")[0] for line in reports.lines("problems")] == ["ana/facts/broken.md"]


def test_watch_retries_a_file_that_could_not_be_imported(
    watched: Living, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault_watch, "PROBLEM_SCAN_SECONDS", 0.2)
    real, failures = (
        Space.remember,
        iter([StoreBusy("another writer"), StoreBusy("another writer")]),
    )

    def remember(*given: object, **more: object) -> object:
        error = next(failures, None)
        if error is not None:
            raise error
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Space, "remember", remember)
    folder = watched.root / "ana" / "facts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "one.md").write_text("One\n", encoding="utf-8")
    eventually(lambda: watched.ana.count() == 1)


def test_watch_retries_a_busy_vault(
    living: Living,
    reports: Reports,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(vault_watch, "MIN_BACKOFF_SECONDS", 0.01)
    failing = [VaultError("it is busy"), VaultError("it is busy"), KeyError("a defect")]
    real, failures = service.sync, iter(failing)

    def sync(*given: object, **more: object) -> SyncReport:
        error = next(failures, None)
        if error is not None:
            raise error
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "sync", sync)
    folder = living.root / "ana" / "facts"
    folder.mkdir(parents=True)
    (folder / "one.md").write_text("One\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING), Watch(living.store, reports.append):
        eventually(lambda: living.ana.count() == 1)
    assert "it is busy" in caplog.text and "KeyError" in caplog.text


def test_watch_forgets_nothing_when_the_folder_disappears(
    watched: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault_watch, "MAX_BACKOFF_SECONDS", 0.05)
    id, path = remembered(watched, "Alec is my boss")
    away = watched.root.with_name("away")
    watched.root.rename(away)
    there = away / path.relative_to(watched.root)
    there.write_text(there.read_text("utf-8").replace("boss", "friend"), encoding="utf-8")
    away.rename(watched.root)
    settled(watched, id, "Alec is my friend")
    assert watched.ana.get(id).forgotten_at is None
    edit(watched, id, "friend", "sister")
    settled(watched, id, "Alec is my sister")


def test_closing_the_store_ends_the_watch(living: Living) -> None:
    watch = Watch(living.store)
    watch.start()
    living.store.close()
    (living.root / "ana").mkdir(exist_ok=True)
    (living.root / "ana" / "x.md").write_text("x\n", encoding="utf-8")
    thread = watch._thread
    assert thread is not None
    eventually(lambda: not thread.is_alive())
    watch.stop()


def test_several_watches_of_one_vault_share_one(living: Living, reports: Reports) -> None:
    with Watch(living.store, reports.append), Watch(living.store, reports.append):
        folder = living.root / "ana" / "facts"
        folder.mkdir(parents=True)
        for number in range(20):
            (folder / f"{number}.md").write_text(f"Fact {number}\n", encoding="utf-8")
        eventually(lambda: living.ana.count() == 20)
        path = next(folder.glob("*.md"))
        eventually(lambda: "id:" in path.read_text("utf-8"))
        path.write_text(path.read_text("utf-8").replace("Fact", "Truth"), encoding="utf-8")
        eventually(lambda: reports.lines("revised"))
    assert sorted(reports.lines("remembered")) == sorted(
        f"ana/facts/{number}.md" for number in range(20)
    )
    assert len(reports.lines("revised")) == 1


def test_watch_polls_where_file_events_are_unavailable(
    living: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHFILES_FORCE_POLLING", "1")
    with Watch(living.store):
        folder = living.root / "ana" / "facts"
        folder.mkdir(parents=True)
        (folder / "one.md").write_text("One\n", encoding="utf-8")
        eventually(lambda: living.ana.count() == 1)
        (folder / "two.md").write_text("Two\n", encoding="utf-8")
        eventually(lambda: living.ana.count() == 2)


def test_watch_polls_when_no_inotify_watches_are_left(
    living: Living, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import watchfiles
    from watchfiles._rust_notify import WatchfilesRustInternalError

    real = watchfiles.watch

    def watch(*paths: Path, force_polling: bool | None = None, **more: object) -> object:
        if not force_polling:
            raise WatchfilesRustInternalError("OS file watch limit reached")
        return real(*paths, force_polling=True, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(watchfiles, "watch", watch)
    with caplog.at_level(logging.WARNING), Watch(living.store):
        folder = living.root / "ana" / "facts"
        folder.mkdir(parents=True)
        (folder / "one.md").write_text("One\n", encoding="utf-8")
        eventually(lambda: living.ana.count() == 1)
    assert "polled" in caplog.text


def test_watch_creates_the_vault_of_the_settings_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first ``reverie serve`` with a new REVERIE_VAULT: nothing is remembered yet."""
    monkeypatch.setattr(vault_watch, "MIN_BACKOFF_SECONDS", 0.01)
    settings, root = Settings(vault=str(tmp_path / "vault")), tmp_path / "vault"
    with (
        reverie.open(tmp_path / "new.db", settings=settings, embedder="none") as store,
        caplog.at_level(logging.WARNING),
    ):
        store.start_worker(0.02)
        with Watch(store):
            eventually((root / ".reverie" / "vault.json").is_file)
            (root / "ana").mkdir(exist_ok=True)
            (root / "ana" / "tea.md").write_text("I like tea\n", encoding="utf-8")
            eventually(lambda: store.space("ana").count() == 1)
    assert caplog.messages == []


def test_watch_does_not_create_a_vault_that_is_gone(
    living: Living, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its disk may not be mounted."""
    monkeypatch.setattr(vault_watch, "MIN_BACKOFF_SECONDS", 0.01)
    shutil.rmtree(living.root)
    with caplog.at_level(logging.WARNING), Watch(living.store):
        eventually(lambda: "is not watched" in caplog.text)
    assert not living.root.exists()


def test_watch_without_the_extra_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['watchfiles'] = None\n"
        "from reverie.vault.watch import Watch\n"
        "try: Watch(None)\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'reverie[vault]'" in done.stdout


def test_watch_follows_a_vault_removed_and_created_again(
    watched: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault_watch, "MAX_BACKOFF_SECONDS", 0.05)
    id, _ = remembered(watched, "Alec is my boss")
    shutil.rmtree(watched.root)
    service.init(watched.store, watched.root)
    assert watched.ana.get(id).forgotten_at is None
    edit(watched, id, "boss", "friend")
    settled(watched, id, "Alec is my friend")
