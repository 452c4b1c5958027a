"""What is read of a damaged file, and how errors that damage causes are reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

import reverie
from reverie.engine import salvage_reader
from reverie.errors import StoreDamaged
from tests.conftest import engine_of, tamper


@pytest.mark.parametrize("header", [True, False], ids=["header", "no header"])
def test_salvage_reads_rows_that_are_only_in_the_wal(tmp_path: Path, header: bool) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with reverie.open(path, embedder="none") as store:
        space = store.space("ana")
        for number in range(30):
            space.remember(f"memory {number} " + "long " * 500, kind="note")
        wal = path.with_name(path.name + "-wal")
        assert wal.stat().st_size > 100_000
        shutil.copyfile(path, copy)
        shutil.copyfile(wal, copy.with_name(copy.name + "-wal"))
    if not header:
        copy.write_bytes(bytes(100) + copy.read_bytes()[100:])
    found = salvage_reader.read_file(copy)
    assert sorted(found.lines) == [(1, at) for at in range(1, 31)]
    assert found.spaces == {1: "ana"} and found.is_chain_complete()


def test_error_on_an_intact_store_is_not_reported_as_damage(tmp_path: Path) -> None:
    with reverie.open(tmp_path / "store.db", embedder="none") as store:
        store.space("ana").remember("x")
        with pytest.raises(KeyError), engine_of(store).read():
            raise KeyError("a bug")


def test_error_on_a_damaged_store_is_store_damaged(tmp_path: Path) -> None:
    with reverie.open(tmp_path / "store.db", embedder="none") as store:
        store.space("ana").remember("x")
        tamper(store, "UPDATE log SET actor = 'somebody'")
        with pytest.raises(StoreDamaged, match="entry 1"), engine_of(store).read():
            raise KeyError("what the rows make of the code")


def test_salvage_decodes_a_store_of_an_earlier_schema(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with reverie.open(path, embedder="none") as store:
        store.space("ana", user="bob").remember("from before there were seals")
    connection = apsw.Connection(str(path))
    connection.execute("DROP TRIGGER log_sealed")
    for table in ("log", "counters", "spaces", "owners", "session_state", "recalls"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN seal")
    for column in ("salt", "digest", "chain"):
        connection.execute(f"ALTER TABLE log DROP COLUMN {column}")
    connection.execute("ALTER TABLE counters DROP COLUMN chain")
    connection.pragma("user_version", 4)
    connection.close()
    report = reverie.salvage_store(path, tmp_path / "saved.db", embedder="none")
    assert report.entries == 1 and report.problems == ()
    with reverie.open(tmp_path / "saved.db", embedder="none") as store:
        (memory,) = store.space("ana", user="bob").memories()
        assert memory.content == "from before there were seals" and store.verify().ok


@pytest.mark.parametrize("column", [b"origin_session", b"request", b"seal"])
def test_salvage_reads_a_file_whose_column_names_cannot_be_decoded(
    tmp_path: Path, column: bytes
) -> None:
    path = tmp_path / "store.db"
    with reverie.open(path, embedder="none") as store:
        store.space("ana").remember("what was remembered")
    data = bytearray(path.read_bytes())
    table = data.index(b"CREATE TABLE log")
    data[data.index(column, table)] |= 0x80
    path.write_bytes(data)
    report = reverie.salvage_store(path, tmp_path / "saved.db", embedder="none")
    assert report.problems == ()
    with reverie.open(tmp_path / "saved.db", embedder="none") as saved:
        assert [each.content for each in saved.space("ana").memories()] == ["what was remembered"]
