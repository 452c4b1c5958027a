"""The files of a SQLite store: read-only media, files that lost their content, impossible paths."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import reverie
from reverie.engine import schema
from reverie.engine.sqlite.engine import SQLiteEngine
from reverie.engine.sqlite.file_lock import FileLock
from reverie.errors import ReverieError, StoreBusy, StoreDamaged, StoreError, StoreReadOnly
from tests.conftest import engine_of
from tests.crash.workload import open_store

LONG = "x" * 300


# -- read-only media ------------------------------------------------------------------------------


@contextlib.contextmanager
def mounted(folder: Path, *command: str) -> Iterator[None]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a read-only medium has to be mounted, which needs root")
    done = subprocess.run(["mount", *command, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def frozen_copy(tmp_path: Path, *names: str) -> Iterator[Path]:
    """These files of a store on a file system that is then mounted read-only."""
    folder = tmp_path / "medium"
    folder.mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", "size=8m", "tmpfs"):
        for name in names:
            shutil.copyfile(tmp_path / name, folder / name)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield folder / "store.db"


def test_store_on_a_read_only_medium_can_be_read(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        store.space("s").remember("the river is cold")
    with frozen_copy(tmp_path, "store.db") as path:
        with open_store(f"{path}?mode=ro") as store:
            assert store.space("s").recall("river")[0].text == "the river is cold"
            assert store.verify().problems == ()
            assert store.doctor()["problems"] == []
            store.backup(tmp_path / "backup.db")
            with pytest.raises(StoreReadOnly):
                store.space("s").remember("and deep")
        with pytest.raises(StoreError) as caught:
            open_store(path)
        assert "mode=ro" in str(caught.value)
        assert [file.name for file in path.parent.iterdir()] == ["store.db"]
    with open_store(tmp_path / "backup.db") as store:
        assert store.space("s").recall("river")


def test_read_only_open_reads_the_wal_or_says_what_it_needs(tmp_path: Path) -> None:
    """A writer was killed: what it wrote last is in the write-ahead log alone."""
    with open_store(tmp_path / "store.db") as store:
        store.space("s").remember("the river is cold")
        killed = tmp_path / "killed"
        killed.mkdir()
        for end in ("", "-wal", "-shm"):
            shutil.copyfile(tmp_path / f"store.db{end}", killed / f"store.db{end}")
    names = ("store.db", "store.db-wal", "store.db-shm")
    with frozen_copy(killed, *names) as path, open_store(f"{path}?mode=ro") as store:
        assert store.space("s").recall("river")
    (killed / "medium").rmdir()
    with (
        frozen_copy(killed, *names[:2]) as path,
        pytest.raises(
            StoreReadOnly, match="store.db-wal holds writes that cannot be read"
        ) as caught,
    ):
        open_store(f"{path}?mode=ro")
    assert "\n" not in str(caught.value)


def test_reader_on_a_read_only_mount_sees_a_writer_elsewhere(tmp_path: Path) -> None:
    """What is read-only here may be written elsewhere: a bind mount, a shared folder."""
    real, seen = tmp_path / "real", tmp_path / "seen"
    seen.mkdir()
    with open_store(real / "store.db") as store:
        store.space("s").remember("the river is cold")
    with mounted(seen, "--bind", "-o", "ro", str(real)):
        if not os.statvfs(seen).f_flag & os.ST_RDONLY:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(seen)], check=True)
        reader = open_store(f"{seen / 'store.db'}?mode=ro")
        assert engine_of(reader)._immutable_fingerprint is not None  # type: ignore[attr-defined]
        assert len(reader.space("s").memories()) == 1
        with (
            pytest.raises(StoreBusy, match="repeat"),
            engine_of(reader).read() as tx,
        ):
            tx.one("SELECT COUNT(*) FROM log")
            with open_store(real / "store.db") as writer:
                writer.space("s").remember("in the middle of a read")
        with open_store(real / "store.db") as writer:
            for number in range(5):
                writer.space("s").remember(f"line {number}")
                # A live writer has its log and its index there: these are read as well.
                assert len(reader.space("s").memories()) == 3 + number
            assert engine_of(reader)._immutable_fingerprint is None  # type: ignore[attr-defined]
            with engine_of(reader).read() as tx:
                before = tx.one("SELECT COUNT(*) FROM log")
                writer.space("s").remember("while somebody reads")
                assert tx.one("SELECT COUNT(*) FROM log") == before
        assert len(reader.space("s").memories()) == 8
        assert reader.verify().problems == ()
        reader.close()


def test_store_in_a_writable_folder_is_never_opened_as_immutable(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        store.space("s").remember("the river is cold")
    with open_store(f"{tmp_path / 'store.db'}?mode=ro") as reader:
        assert engine_of(reader)._immutable_fingerprint is None  # type: ignore[attr-defined]
        with open_store(tmp_path / "store.db") as writer:
            writer.space("s").remember("and deep")
            assert len(reader.space("s").memories()) == 2


# -- files that lost their content ----------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1])
def test_store_truncated_to_zero_bytes_is_damaged_and_not_new(tmp_path: Path, size: int) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.space("s").remember("the river is cold")
        store.backup(tmp_path / "backup.db")
    os.truncate(path, size)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="was a store and is empty now.*backup restore"):
            open_store(path)
    assert path.stat().st_size == size
    # What the message says helps.
    path.rename(tmp_path / "away.db")
    with open_store(path) as store:
        assert store.restore_backup(tmp_path / "backup.db").ok
        assert store.space("s").recall("river")


@pytest.mark.parametrize("size", [0, 1])
def test_truncated_store_keeps_its_wal(tmp_path: Path, size: int) -> None:
    """A lock file that was lost as well says nothing, and SQLite would delete the log."""
    with open_store(tmp_path / "store.db") as store:
        store.space("s").remember("the river is cold")
        cut = tmp_path / "cut.db"
        cut.write_bytes((tmp_path / "store.db").read_bytes()[:size])
        shutil.copyfile(tmp_path / "store.db-wal", tmp_path / "cut.db-wal")
    with pytest.raises(StoreDamaged, match="was a store"):
        open_store(cut)
    assert (tmp_path / "cut.db-wal").stat().st_size > 0


def test_empty_file_without_a_wal_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    with open_store(path) as store:
        store.space("s").remember("the river is cold")
    # A store that was removed leaves its lock file; another may be made in its place.
    path.unlink()
    with open_store(path) as store:
        assert store.spaces() == []
    path.unlink()
    path.with_name("store.db-lock").unlink()
    path.touch()
    open_store(path).close()


def test_killed_creation_is_repeated(tmp_path: Path) -> None:
    """The lock file is there and the store is still empty: nothing was lost."""
    path = tmp_path / "store.db"
    for content in (b"", b"S"):
        path.write_bytes(content)
        path.with_name("store.db-lock").write_bytes(b"")
        with open_store(path) as store:
            store.space("s").remember("the river is cold")
        for file in tmp_path.iterdir():
            file.unlink()


# -- impossible paths -----------------------------------------------------------------------------

IMPOSSIBLE = {
    "null": "a\0b",
    "null in an address": "sqlite:///tmp/a%00b.db",
    "half a character": "a\ud800b",
    "nobody's home": "~nobody-of-that-name/store.db",
    "too long": LONG,
    "too deep": "/".join(["x" * 200] * 40),
    "below a file": "{file}/store.db",
    "below a file's folder": "{file}/folder/store.db",
    "a folder": "{folder}",
}


@pytest.mark.parametrize("mode", ["", "?mode=ro"])
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_path_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    text = IMPOSSIBLE[name].format(file=tmp_path / "file", folder=tmp_path)
    with pytest.raises(ReverieError) as caught:
        reverie.open(text + mode, embedder="none")
    assert "\n" not in str(caught.value)
    if "\0" not in text and not text.startswith("sqlite"):
        with pytest.raises(ReverieError):
            reverie.open(Path(text), embedder="none")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_backup_path_is_a_typed_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    text = IMPOSSIBLE[name].format(file=tmp_path / "file", folder=tmp_path)
    if text.startswith("sqlite"):
        return
    with open_store(tmp_path / "store.db") as store:
        for call in (store.backup, store.verify_backup, store.restore_backup):
            with pytest.raises(ReverieError) as caught:
                call(text)
            assert "\n" not in str(caught.value)


def test_impossible_path_on_the_command_line_is_reported_on_one_line(tmp_path: Path) -> None:
    cases = {
        LONG: ["remember", "x"],
        "~nobody-of-that-name/x.db": ["recall", "x"],
        "sqlite:///a%00b": ["doctor"],
        str(tmp_path): ["list"],
    }
    for text, command in cases.items():
        done = subprocess.run(
            [sys.executable, "-m", "reverie", *command, "--url", text],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode in {2, 5}, (text, done)
        assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr, done.stderr


# -- a lock that somebody else holds --------------------------------------------------------------


def test_create_and_upgrade_wait_for_a_writer_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION - 1)
        SQLiteEngine(str(path)).close()
    for name in ("store.db", "new.db"):
        lock = FileLock(tmp_path / f"{name}-lock")
        assert lock.acquire(0)
        with pytest.raises(StoreBusy, match="another handle of this process"):
            SQLiteEngine(str(tmp_path / name), busy_timeout=0.05)
        lock.release()
        SQLiteEngine(str(tmp_path / name), busy_timeout=30).close()
        lock.close()
