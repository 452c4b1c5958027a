"""A vault, and whatever else Reverie writes, is the owner's alone whatever the umask."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import reverie as library
from reverie import Settings
from reverie.server.run import operator_token
from reverie.vault import permissions, rebuild, service
from reverie.vault.git.repo import Repository
from reverie.vault.vault import Vault
from reverie.vault.watch import Watch
from tests.cli.conftest import CommandLine
from tests.cli.conftest import reverie as reverie
from tests.vault.repositories import by_hand
from tests.vault.vault_stores import eventually
from tests.vault.vaults import Kept

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture(params=[0o000, 0o022], ids=["umask000", "umask022"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def shared_paths(*roots: Path) -> list[str]:
    """Everything below these, and they themselves, that group or others may use."""
    found = []
    for root in roots:
        for path in (root, *root.rglob("*")):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                found.append(f"{stat.filemode(mode)} {path}")
    return found


def unexpected_modes(root: Path) -> list[str]:
    """Everything that has not exactly the owner's permissions: 0700, 0600, objects of git 0400."""
    found = []
    for path in (root, *root.rglob("*")):
        mode = path.lstat().st_mode
        objects = root / ".git" / "objects" in path.parents
        allowed = {0o700} if stat.S_ISDIR(mode) else {0o400} if objects else {0o600}
        # Files that only say which packs there are.
        allowed |= {0o600} if objects and path.parent.name == "info" else set()
        if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) not in allowed:
            found.append(f"{stat.filemode(mode)} {path}")
    return found


def open_up(root: Path) -> None:
    """As an older Reverie left it under umask 022."""
    with Vault.open(root) as vault:
        vault.files.drop_meta("private")
    for path in (root, *root.rglob("*")):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(mode) | (0o055 if stat.S_ISDIR(mode) else 0o044))


def test_every_vault_file_stays_private(reverie: CommandLine, umask: int) -> None:
    """Every path that Reverie creates anywhere, through every command that writes files."""
    root = reverie.folder / "home" / "new" / "vault"
    ids = [reverie.remember(f"Fact number {number}") for number in range(4)]
    reverie.run("sessions", "append", "chat", "hello there")
    reverie.run("vault", "init", str(root))
    assert shared_paths(reverie.folder / "home", reverie.store) == []

    path = Path(reverie.json("show", ids[0])["file"])
    theirs = root / "default" / "facts" / "mine" / "tea.md"
    theirs.parent.mkdir()
    theirs.write_text("I like tea\n", encoding="utf-8")
    path.write_text(path.read_text("utf-8").replace("number", "NUMBER"), encoding="utf-8")
    with library.open(reverie.store, embedder="none") as store:
        store.space("default").revise(ids[0], "Changed on the other side")
        report = service.sync(store)
    assert report.conflicts and report.remembered
    assert shared_paths(reverie.folder / "home") == []

    record = root / "default" / "MEMORY.md"
    record.write_text("something of my own\n", encoding="utf-8")
    reverie.run("vault", "sync")
    reverie.run("forget", ids[1])
    reverie.run("vault", "checkpoint", "a note")
    reverie.run("erase", ids[2], "--yes", "--rewrite-history")
    reverie.run("export", "-o", "out.jsonl")
    reverie.run("backup", "backup.db")
    reverie.run("rebuild")
    reverie.run("vault", "rebuild", "--from", "store")
    reverie.run("vault", "rebuild", str(root), "--url", str(reverie.folder / "again" / "new.db"))
    operator_token(Settings())
    kept = [reverie.folder / name for name in ("home", "again", "out.jsonl", "backup.db")]
    beside = list(reverie.folder.glob("reverie.db*"))
    assert {each.name for each in beside} >= {"reverie.db", "reverie.db-lock"}
    assert shared_paths(*kept, *beside) == []
    assert by_hand(root, "fsck", "--strict") is not None


def test_open_store_and_vault_have_private_side_files(tmp_path: Path, umask: int) -> None:
    with library.open(tmp_path / "s" / "a.db", embedder="none") as store:
        store.space("ana").remember("tea")
        service.init(store, tmp_path / "v")
        with service.open_vault(store) as vault, vault.locked():
            vault.files.set_meta("x", "y")
            assert (vault.own / "files.db-wal").exists()
            assert (tmp_path / "s" / "a.db-wal").exists()
            assert shared_paths(tmp_path / "s", tmp_path / "v") == []


def test_turn_files_and_user_folders_are_private(tmp_path: Path, umask: int) -> None:
    kept = Kept(tmp_path, turns="apart", git=True)
    kept.store.space("ana", user="bo").session("chat").append({"role": "user", "content": "hi"})
    kept.store.space("ana", user="bo").remember("tea")
    kept.sync()
    kept.close()
    assert kept.files("ana/users/bo")
    assert shared_paths(kept.root) == []


def test_vault_of_an_older_version_is_made_private_when_opened(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("tea")
    kept.sync()
    by_hand(kept.root, "config", "--unset", "core.sharedRepository")
    open_up(kept.root)
    outside = tmp_path / "outside.md"
    outside.write_text("mine", encoding="utf-8")
    outside.chmod(0o644)
    (kept.root / "ana" / "link.md").symlink_to(outside)
    Vault.open(kept.root).close()
    assert shared_paths(kept.root) == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert by_hand(kept.root, "config", "core.sharedRepository").strip() == b"0600"
    kept.close()


def test_only_the_top_folder_is_checked_once_a_vault_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("tea")
    kept.sync()
    kept.root.chmod(0o755)
    looked = list[Path]()

    def noted(root: Path) -> int:
        looked.append(root)
        return 0

    monkeypatch.setattr(permissions, "close_tree", noted)
    Vault.open(kept.root).close()
    assert not looked and shared_paths(kept.root) == []
    kept.close()


def test_interrupted_permission_walk_is_repeated_at_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("tea")
    kept.sync()
    open_up(kept.root)

    def killed(root: Path) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(permissions, "close_tree", killed)
        Vault.open(kept.root)
    # Nobody else can enter any more, though files below are not closed yet.
    assert stat.S_IMODE(kept.root.stat().st_mode) == 0o700
    assert shared_paths(kept.root)
    Vault.open(kept.root).close()
    assert shared_paths(kept.root) == []
    kept.close()


@pytest.mark.parametrize("link", [".git", ".git/config"])
def test_permissions_of_a_linked_repository_are_unchanged(tmp_path: Path, link: str) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("tea")
    kept.sync()
    by_hand(kept.root, "config", "--unset", "core.sharedRepository")
    with Vault.open(kept.root) as vault:
        vault.files.drop_meta("private")
    outside = tmp_path / "outside"
    (kept.root / link).rename(outside)
    (kept.root / link).symlink_to(outside)
    outside.chmod(0o755 if outside.is_dir() else 0o644)
    config = (kept.root / ".git" / "config").read_bytes()
    before = outside.stat().st_mode
    Vault.open(kept.root).close()
    assert (kept.root / ".git" / "config").read_bytes() == config
    assert outside.stat().st_mode == before
    kept.close()


def test_sync_makes_files_of_other_programs_private(kept: Kept) -> None:
    memory = kept.ana.remember("tea")
    kept.sync()
    script = kept.path("ana/notes/tool.sh")
    script.parent.mkdir(parents=True)
    script.write_text("echo", encoding="utf-8")
    script.chmod(0o755)
    kept.path(kept.of(memory)).chmod(0o664)
    kept.path("ana").chmod(0o775)
    assert not kept.sync()
    assert shared_paths(kept.root) == []
    assert os.access(script, os.X_OK)


def test_sync_of_everything_makes_all_files_private(tmp_path: Path, umask: int) -> None:
    """Also what only git and Reverie read."""
    kept = Kept(tmp_path, git=True)
    memory = kept.ana.remember("tea")
    kept.sync()
    kept.edit(kept.of(memory), "tea", "green tea")
    by_hand(kept.root, "commit", "-q", "-a", "-m", "mine")
    outside = tmp_path / "outside"
    outside.write_text("mine", encoding="utf-8")
    outside.chmod(0o644)
    (kept.root / ".git" / "link").symlink_to(outside)
    for path in (kept.root, *kept.root.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    assert kept.sync().revised
    assert unexpected_modes(kept.root) == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    kept.close()


def test_git_run_by_the_owner_writes_private_objects(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("tea")
    kept.sync()
    before = os.umask(0o022)
    try:
        (kept.root / "own.txt").write_text("by hand", encoding="utf-8")
        (kept.root / "own.txt").chmod(0o600)
        by_hand(kept.root, "add", "own.txt")
        by_hand(kept.root, "commit", "-q", "-m", "mine")
        by_hand(kept.root, "gc", "-q")
    finally:
        os.umask(before)
    names = ("objects", "refs", "logs", "index", "packed-refs")
    assert shared_paths(*(kept.root / ".git" / name for name in names)) == []
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(kept.root), str(clone)], check=True)
    assert (clone / "own.txt").is_file()
    kept.close()


def test_folder_that_cannot_be_made_private_is_logged_once_and_used(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(handle: int, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    kept.root.chmod(0o755)
    monkeypatch.setattr(os, "fchmod", refused)
    kept.ana.remember("tea")
    with caplog.at_level(logging.WARNING, "reverie.vault"):
        kept.sync()
        kept.sync()
    warnings = [each for each in caplog.messages if "can be read by other users" in each]
    assert len(warnings) == 1 and f"chmod 700 {kept.root}" in warnings[0]
    assert kept.files()


def test_rebuilt_vault_is_private(tmp_path: Path, umask: int) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("tea")
    kept.sync()
    rebuild.to_vault(kept.store, tmp_path / "x" / "y", None)
    assert shared_paths(tmp_path / "x") == []
    kept.close()


def test_worker_and_watch_write_private_files(tmp_path: Path, umask: int) -> None:
    """Commits by jobs, files of a person that the watch reads, and conflict copies."""
    root = tmp_path / "vault"
    settings = Settings(vault=str(root))
    with library.open(tmp_path / "a.db", settings=settings, embedder="none") as store:
        store.start_worker(0.02)
        ana = store.space("ana")
        with Watch(store):
            memory = ana.remember("Alec is my boss")
            ana.session("chat").append({"role": "user", "content": "hi"})
            eventually(lambda: service.find_memory_file(ana, memory.id))
            new = root / "ana" / "facts" / "mine" / "tea.md"
            broken, script = new.with_name("broken.md"), new.with_name("tool.sh")
            new.parent.mkdir()
            new.write_text("I like tea\n", encoding="utf-8")
            broken.write_text("---\nid: [\n---\n", encoding="utf-8")
            script.write_text("echo\n", encoding="utf-8")
            eventually(lambda: ana.count() == 2 and "id:" in new.read_text("utf-8"))
            path = service.find_memory_file(ana, memory.id)
            assert path is not None
            with service.open_vault(store) as vault, vault.locked():
                edited = path.read_text("utf-8").replace("boss", "friend")
                ana.revise(memory.id, "Alec is my neighbour")
                path.write_text(edited, encoding="utf-8")
            eventually(lambda: list(path.parent.glob("*.conflict-v*")))
            eventually(lambda: not store.jobs() and not service.status(store).uncommitted)
            eventually(lambda: not shared_paths(root))
    assert unexpected_modes(root) == []


def test_packs_that_reverie_makes_are_private(tmp_path: Path, umask: int) -> None:
    kept = Kept(tmp_path, git=True)
    for number in range(3):
        kept.ana.remember(f"tea {number}")
        kept.sync()
    git = Repository(kept.root).git
    git.run("gc", "-q")
    kept.ana.remember("coffee")
    kept.sync()
    git.run("repack", "-a", "-d", "-q")
    assert list(kept.root.glob(".git/objects/pack/*.pack"))
    assert unexpected_modes(kept.root) == []
    kept.close()


def test_vault_of_an_older_version_stays_private_through_every_verb(
    tmp_path: Path, umask: int
) -> None:
    kept = Kept(tmp_path, git=True)
    first, second = kept.ana.remember("tea"), kept.ana.remember("coffee")
    kept.sync()
    by_hand(kept.root, "config", "--unset", "core.sharedRepository")
    open_up(kept.root)
    kept.edit(kept.of(first), "tea", "green tea")
    kept.ana.revise(first.id, "black tea")
    assert kept.sync().conflicts
    service.checkpoint(kept.store, "a note")
    kept.ana.erase(second.id)
    service.scrub(kept.store)
    kept.ana.remember("milk")
    kept.sync()
    assert unexpected_modes(kept.root) == []
    kept.close()


def test_sync_of_some_paths_makes_them_private(kept: Kept) -> None:
    """As a watch calls it: a file that is not written again keeps no open permissions."""
    kept.ana.remember("tea")
    kept.sync()
    folder = kept.path("ana/facts/mine")
    folder.mkdir()
    for path, mode in ((folder / "broken.md", 0o644), (folder / "tool.sh", 0o755), (folder, 0o755)):
        if path != folder:
            path.write_text("---\nid: [\n---\n", encoding="utf-8")
        path.chmod(mode)
    kept.sync("ana/facts/mine/broken.md")
    assert stat.S_IMODE((folder / "broken.md").stat().st_mode) == 0o600
    kept.sync("ana/facts/mine")
    assert shared_paths(kept.root) == []
