"""A SQLite store is copied beside itself before it is upgraded."""

from __future__ import annotations

import contextlib
import logging
import shutil
import stat
from pathlib import Path

import apsw
import pytest

import reverie
from reverie import Settings, StoreFull
from reverie.engine import index, schema, upgrade
from reverie.engine.sqlite import upgrade_backup
from reverie.engine.sqlite.engine import SQLiteEngine
from reverie.errors import StoreDamaged, StoreError, StoreReadOnly
from reverie.maintenance import rebuild
from reverie.protocols import UpgradeProgress
from tests.crash.test_faults import small_disk
from tests.figures import figure
from tests.messages import user
from tests.upgrades import EARLIER, add_step, backups, log_rows, schema_of, unpacked

OLD = EARLIER[-1]


def opened(
    path: Path, upgrade_backup: str = "on", on_upgrade: UpgradeProgress | None = None
) -> reverie.Store:
    settings = Settings(upgrade_backup=upgrade_backup)  # type: ignore[arg-type]
    return reverie.open(path, settings=settings, embedder="hashing", on_upgrade=on_upgrade)


# -- making it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", EARLIER)
def test_upgrade_keeps_a_private_copy_of_the_earlier_store(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = unpacked(number, tmp_path)
    before = log_rows(path)
    opened(path).close()
    (copy,) = backups(path)
    assert copy.name.startswith(f"old.db.before-schema-{schema.SCHEMA_VERSION}-20")
    assert copy.suffix == ".backup"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert (schema_of(copy), schema_of(path)) == (number, schema.SCHEMA_VERSION)
    assert log_rows(copy) == before
    (line,) = [record.getMessage() for record in caplog.records if record.name == "reverie.upgrade"]
    assert str(path) in line and f"reverie backup restore {copy}" in line and "\n" not in line


@pytest.mark.parametrize("number", EARLIER)
def test_upgrade_backup_opens_with_a_program_of_its_schema(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked(number, tmp_path)
    before = log_rows(path)
    opened(path).close()
    (copy,) = backups(path)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", number)
    engine = SQLiteEngine(str(copy))
    with engine.read() as tx:
        assert len(tx.all("SELECT position FROM log")) == len(before)
    with engine.write() as tx:
        tx.run("INSERT INTO meta (key, value) VALUES ('written', 'by the earlier program')")
    engine.close()
    assert schema_of(copy) == number and log_rows(copy) == before


def test_upgrade_backup_is_restored_into_a_new_store(tmp_path: Path) -> None:
    """The way back that the log line describes, here with the current program."""
    path = unpacked(OLD, tmp_path)
    with opened(path) as store:
        expected = {memory.id for memory in store.space("ana").memories()}
        store.space("ana").remember("after the upgrade")
    (copy,) = backups(path)
    path.rename(tmp_path / "newer.db")
    with opened(path) as store:
        assert store.restore_backup(copy).ok
        assert {memory.id for memory in store.space("ana").memories()} == expected
    assert backups(path) == [copy] and schema_of(copy) == OLD


def test_upgrade_of_an_empty_store_keeps_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    opened(path).close()
    add_step(monkeypatch)
    opened(path).close()
    assert schema_of(path) == schema.SCHEMA_VERSION and backups(path) == []


def test_upgrade_without_backup_keeps_no_copy(tmp_path: Path) -> None:
    path = unpacked(OLD, tmp_path)
    opened(path, "off").close()
    assert schema_of(path) == schema.SCHEMA_VERSION and backups(path) == []


def test_opening_a_current_store_keeps_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for _ in range(2):
        with opened(path) as store:
            store.space("ana").remember("zebra")
    assert backups(path) == []


def test_each_upgrade_keeps_its_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = unpacked(OLD, tmp_path)
    opened(path).close()
    (first,) = backups(path)
    number = add_step(monkeypatch)
    opened(path).close()
    assert sorted(map(schema_of, backups(path))) == [OLD, number - 1]
    # Back to the first one, which was used before it is upgraded again.
    shutil.copyfile(first, path)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO meta (key, value) VALUES ('used', 'again')")
    connection.close()
    opened(path).close()
    assert sorted(map(schema_of, backups(path))) == [OLD, OLD, number - 1]


def test_interrupted_upgrade_of_an_unchanged_store_adds_no_second_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked(OLD, tmp_path)

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as before:
        before.setattr("reverie.engine.sqlite.engine._upgrade", killed)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                opened(path)
    (copy,) = backups(path)
    opened(path).close()
    assert backups(path) == [copy] and schema_of(path) == schema.SCHEMA_VERSION


# -- the index ------------------------------------------------------------------------------------


def filled(path: Path) -> Path:
    with opened(path) as store:
        store.space("ana").remember("zebra")
    return path


def test_rebuild_by_newer_rules_keeps_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "store.db")
    before = log_rows(path)
    monkeypatch.setattr(index, "INDEX_VERSION", "newer rules")
    with opened(path) as store:
        assert store.space("ana").recall("zebra", mode="keyword")
        assert store.doctor()["upgrade backups"] == backups(path)[0].name
    (copy,) = backups(path)
    assert copy.name.startswith("store.db.before-index-20") and log_rows(copy) == before
    opened(path).close()
    assert backups(path) == [copy]


def test_interrupted_rebuild_adds_no_second_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "store.db")
    monkeypatch.setattr(index, "INDEX_VERSION", "newer rules")

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    for place in ("reindex.set_index_version", "reindex.reindex"):
        with monkeypatch.context() as before:
            before.setattr(f"reverie.maintenance.{place}", killed)
            with pytest.raises(KeyboardInterrupt):
                opened(path)
        assert len(backups(path)) == 1
    with opened(path) as store:
        assert store.verify().ok
    assert len(backups(path)) == 1


def test_schema_step_and_rebuild_share_one_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the process ends between them."""
    path = filled(tmp_path / "store.db")
    number = add_step(monkeypatch)
    monkeypatch.setattr(index, "INDEX_VERSION", "newer rules")
    SQLiteEngine(str(path)).close()
    assert schema_of(path) == number
    (copy,) = backups(path)
    with opened(path) as store:
        assert store.verify().ok
    assert backups(path) == [copy]


def test_rebuild_that_another_process_finished_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "store.db")
    with opened(path) as late:
        monkeypatch.setattr(index, "INDEX_VERSION", "newer rules")
        version = rebuild._index_version
        answers = ["earlier rules"]
        monkeypatch.setattr(
            rebuild,
            "_index_version",
            lambda runtime: answers.pop() if answers else version(runtime),
        )
        opened(path).close()
        answers.append("earlier rules")
        monkeypatch.setattr(rebuild, "rebuild", None)
        rebuild.refresh_index(late.runtime)
    assert len(backups(path)) == 1


# -- progress -------------------------------------------------------------------------------------


def test_upgrade_reports_the_progress_of_each_part(tmp_path: Path) -> None:
    seen: dict[str, tuple[int, int]] = {}

    def note(what: str, done: int, total: int) -> None:
        assert 0 < done <= total and done > seen.get(what, (0, 0))[0]
        seen[what] = (done, total)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reverie.engine.sqlite.store_file.PAGES_AT_ONCE", 10)
        opened(unpacked(3, tmp_path), on_upgrade=note).close()
    assert list(seen) == ["backing up", "sealing the log", "indexing"]
    assert seen["sealing the log"][0] == seen["sealing the log"][1]
    assert seen["indexing"][0] == seen["indexing"][1]


def test_long_upgrade_is_logged_and_a_short_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened(unpacked(3, tmp_path, "short.db")).close()
    assert len(caplog.records) == 1
    caplog.clear()
    monkeypatch.setattr(upgrade, "MIN_LOGGED_TOTAL", 10)
    opened(unpacked(3, tmp_path, "long.db")).close()
    lines = [record.getMessage() for record in caplog.records]
    logged = [line for line in lines if line.startswith("indexing: ")]
    assert 5 < len(logged) <= 11
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


# -- where it cannot be made ----------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
def test_upgrade_without_space_for_its_copy_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The file system says so before, or only when the copy is written."""
    with small_disk(tmp_path / "small", 3) as disk:
        path = unpacked(OLD, disk)
        content = path.read_bytes()
        (disk / "filler").write_bytes(bytes((3 << 20) - len(content) - 300_000))
        if not known:
            monkeypatch.setattr(
                shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, 1 << 40)
            )
        with pytest.raises(StoreFull, match="--no-backup") as caught:
            opened(path)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == content and backups(path) == []
        (disk / "filler").unlink()
        opened(path).close()
        assert len(backups(path)) == 1


def test_interrupted_upgrade_on_a_disk_that_its_copy_filled_uses_that_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked(OLD, tmp_path)

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as before:
        before.setattr("reverie.engine.sqlite.engine._upgrade", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(path)
    (copy,) = backups(path)
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: real._replace(free=10_000))
    opened(path).close()
    assert backups(path) == [copy] and schema_of(path) == schema.SCHEMA_VERSION


def test_upgrade_of_a_store_used_since_its_copy_needs_space_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked(OLD, tmp_path)
    earlier = path.read_bytes()
    opened(path).close()
    path.write_bytes(earlier)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO meta (key, value) VALUES ('used', 'again')")
    connection.close()
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: real._replace(free=10_000))
    with pytest.raises(StoreFull, match="--no-backup"):
        opened(path)
    assert len(backups(path)) == 1 and schema_of(path) == OLD


def test_upgrade_whose_copy_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked(OLD, tmp_path)
    content = path.read_bytes()

    def failing(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("reverie.engine.sqlite.store_file.move_into_place", failing)
    with pytest.raises(StoreError, match="--no-backup"):
        opened(path)
    assert path.read_bytes() == content and backups(path) == []


# -- erasing --------------------------------------------------------------------------------------


def holding(folder: Path, needle: str) -> list[str]:
    return [file.name for file in folder.iterdir() if needle.encode() in file.read_bytes()]


def test_erase_deletes_the_upgrade_backup_that_holds_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        space = store.space("ana")
        secret = space.remember("the combination is heliotrope")
        earlier = space.remember("the pelican flew before")
        space.erase(earlier.id)
        space.session("chat").append(user("my gate opens with marzipan"))
    number = add_step(monkeypatch)
    opened(path).close()
    with opened(path) as store:
        space = store.space("ana")
        space.erase(space.remember("made and erased after the upgrade").id)
        space.forget(space.remember("only forgotten").id)
        (copy,) = backups(path)
        # As a killed upgrade leaves it.
        shutil.copyfile(copy, path.with_name("store.db.upgrade.part"))
        caplog.clear()
        assert not space.erase(secret.id).pending
        figure("memories erased", 1)
        figure("files that still hold it", len(holding(tmp_path, "heliotrope")))
        assert backups(path) == [] and holding(tmp_path, "heliotrope") == []
        assert [record.getMessage() for record in caplog.records] == [
            f"{copy} was deleted: it held what was erased"
        ]
        assert {job.kind for job in store.jobs()} == {"learn"} and schema_of(path) == number


@pytest.mark.parametrize("before", ["schema", "index"])
def test_upgrade_backup_made_while_an_erase_is_pending_lacks_what_was_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        space = store.space("ana")
        secret, kept = space.remember("the combination is heliotrope"), space.remember("zebra")
        with monkeypatch.context() as locked:
            locked.setattr(SQLiteEngine, "scrub", lambda engine, erased=(): False)
            assert space.erase(secret.id).pending
    leave_in_an_unused_part_of_a_page(path, b"the combination is heliotrope")
    if before == "schema":
        add_step(monkeypatch)
    else:
        with_older_index(path)
    with opened(path) as store:
        (copy,) = backups(path)
        assert holding(tmp_path, "heliotrope") == [path.name]
        store.run_pending_jobs()
        assert store.jobs() == [] and holding(tmp_path, "heliotrope") == []
        assert store.space("ana").memories() == [kept]
    assert backups(path) == [copy] and log_rows(copy) == log_rows(path)


def test_interrupted_upgrade_while_an_erase_is_pending_adds_no_second_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store, monkeypatch.context() as locked:
        locked.setattr(SQLiteEngine, "scrub", lambda engine, erased=(): False)
        space = store.space("ana")
        space.remember("zebra")
        assert space.erase(space.remember("the combination is heliotrope").id).pending
    add_step(monkeypatch)

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as upgrade_fails:
        upgrade_fails.setattr("reverie.engine.sqlite.engine._upgrade", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(path)
    (copy,) = backups(path)
    opened(path).close()
    assert backups(path) == [copy]


def leave_in_an_unused_part_of_a_page(path: Path, text: bytes) -> None:
    """Write a text where SQLite may leave one when it moves a row within its file."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    pages = [
        int(str(row[0]))
        for row in connection.execute(
            "SELECT pgoffset FROM dbstat WHERE pagetype = 'leaf' AND pgoffset > 0 AND unused > ?",
            (len(text) + 600,),
        )
    ]
    connection.close()
    with path.open("r+b") as file:
        file.seek(pages[0])
        header = file.read(8)
        cells, end = int.from_bytes(header[3:5], "big"), int.from_bytes(header[5:7], "big")
        assert 8 + 2 * cells + len(text) < end
        file.seek(pages[0] + end - len(text))
        file.write(text)


def test_erase_of_a_session_deletes_the_upgrade_backup_that_holds_its_scratchpad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        store.space("ana").remember("zebra")
        for name in ("chat", "other"):
            store.space("ana").session(name).scratchpad.write([f"buy heliotrope for {name}"])
    add_step(monkeypatch)
    with opened(path) as store:
        assert len(backups(path)) == 1
        assert not store.space("ana").session("chat").erase().pending
        assert backups(path) == [] and holding(tmp_path, "heliotrope for chat") == []


def test_session_erase_deletes_the_upgrade_backup_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        store.space("ana", user="bo").session("chat").append(user("my gate opens with marzipan"))
    add_step(monkeypatch)
    with opened(path) as store:
        assert len(backups(path)) == 1
        store.space("ana", user="bo").session("chat").erase()
        assert backups(path) == [] and holding(tmp_path, "marzipan") == []


def test_erase_keeps_the_upgrade_backup_of_an_entry_that_is_damaged_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        store.space("ana").remember("the pelican flew before")
    add_step(monkeypatch)
    with opened(path) as store:
        (copy,) = backups(path)
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE log SET body = replace(body, 'pelican', 'penguin')")
        connection.close()
        assert not store.space("bo").erase(store.space("bo").remember("of another").id).pending
        assert backups(path) == [copy]


def test_erase_is_pending_while_an_upgrade_backup_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked(OLD, tmp_path)
    with opened(path) as store:
        space = store.space("ana")
        with monkeypatch.context() as before:

            def denied(*given: object, **more: object) -> None:
                raise PermissionError(13, "Permission denied")

            before.setattr(upgrade_backup, "_delete", denied)
            assert space.erase(space.memories()[0].id).pending
        (scrub,) = [job for job in store.jobs() if job.kind == "scrub"]
        assert len(backups(path)) == 1
        store.retry_job("ana", scrub.id)
        store.run_pending_jobs()
        assert store.jobs() == [] and backups(path) == []


def test_erase_deletes_an_upgrade_backup_that_is_damaged(tmp_path: Path) -> None:
    path = unpacked(OLD, tmp_path)
    with opened(path) as store:
        (copy,) = backups(path)
        copy.write_bytes(copy.read_bytes()[:5_000])
        space = store.space("ana")
        assert not space.erase(space.remember("zebra in the tall grass").id).pending
        assert backups(path) == []


def test_erase_keeps_a_sound_upgrade_backup_of_a_store_with_a_broken_page(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        space = store.space("ana")
        space.remember_many([f"memory number {number} of many words" for number in range(400)])
    with_older_index(path)
    with opened(path) as store:
        erased = store.space("ana").remember("written after the upgrade")
    (copy,) = backups(path)
    break_one_page_of_the_log(path)
    with opened(path) as store, contextlib.suppress(StoreDamaged):
        store.space("ana").erase(erased.id)
    assert backups(path) == [copy]


def with_older_index(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE meta SET value = 'older rules' WHERE key = 'index'")
    connection.close()


def break_one_page_of_the_log(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    pages = [
        int(str(row[0]))
        for row in connection.execute(
            "SELECT pgoffset FROM dbstat WHERE name = 'log' AND pagetype = 'leaf' ORDER BY 1"
        ).fetchall()
    ]
    connection.close()
    with path.open("r+b") as file:
        file.seek(pages[len(pages) // 2])
        file.write(b"\xff" * 8)


def test_read_only_open_of_an_older_index_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        store.space("ana").remember("zebra")
    with_older_index(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreReadOnly, match="without mode=ro"):
            reverie.open(f"sqlite://{path}?mode=ro", settings=Settings(), embedder="hashing")
    assert backups(path) == [] and path.read_bytes() == before
    opened(path).close()
    assert len(backups(path)) == 1


def test_index_of_a_damaged_store_is_not_upgraded_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        store.space("ana").remember("the pelican flew before")
        store.space("ana").remember("zebra")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE log SET body = replace(body, 'pelican', 'penguin')")
    connection.close()
    with monkeypatch.context() as newer:
        newer.setattr(index, "INDEX_VERSION", "newer rules")
        with pytest.raises(StoreDamaged, match="salvage|verify"):
            opened(path)
        assert backups(path) == []
    with opened(path) as store:
        assert [memory.content for memory in store.space("ana").memories()] == ["zebra"]


def test_unfinished_copy_does_not_take_the_space_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        store.space("ana").remember("zebra")
    with_older_index(path)
    part = path.with_name("store.db.upgrade.part")
    shutil.copyfile(path, part)
    size, real = path.stat().st_size, shutil.disk_usage(tmp_path)

    def usage(folder: Path) -> object:
        free = int(size * 1.5) - (size if part.exists() else 0)
        return real._replace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    opened(path).close()
    assert len(backups(path)) == 1 and not part.exists()
