"""The shortcuts of the tests equal the real thing, and left-out cases are counted."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import reverie
from reverie import Settings
from reverie.engine.sqlite.engine import SQLiteEngine
from tests.conftest import _create_or_upgrade
from tests.servers import Databases
from tests.tables import cases_in_one_test

ROOT = Path(__file__).parents[1]
TABLE = """
import pytest

@pytest.mark.parametrize("number", range({cases}))
@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
def test_table(engine, number):
    pass

@pytest.mark.parametrize("seed", range(5))
def test_seeds(seed):
    pass

@pytest.mark.sample(4)
@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
def test_sample(engine, number):
    pass

@pytest.mark.prove
def test_long():
    pass

@pytest.mark.parametrize("text", ["short", "one megabyte"])
def test_texts(text):
    pass
"""


def open_and_close(address: str | Path) -> None:
    reverie.open(address, settings=Settings(), embedder="none").close()


def test_copied_store_is_the_same_file_as_one_made_in_the_real_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, made = tmp_path / "copied.db", tmp_path / "made.db"
    open_and_close(copied)
    monkeypatch.setattr(SQLiteEngine, "_create_or_upgrade", _create_or_upgrade)
    open_and_close(made)
    assert copied.read_bytes() == made.read_bytes()
    assert copied.stat().st_mode == made.stat().st_mode


def test_database_that_was_given_back_is_empty_and_taken_again(databases: Databases) -> None:
    address = databases.take()
    with reverie.open(address, settings=Settings(), embedder="hashing") as store:
        store.space("ana").remember("The boat is in the harbour", tags=["boat"])
        store.space("bo").session("talk").append({"role": "user", "content": "Hello"})
        assert store.space("ana").memories()
    databases.give_back(address)
    assert databases.take() == address
    with reverie.open(address, settings=Settings(), embedder="none") as store:
        assert store.spaces() == []
    databases.give_back(address)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE INDEX ON reverie.meta (value)",
        "ALTER TABLE reverie.memories DISABLE ROW LEVEL SECURITY",
        "REVOKE ALL ON reverie.meta FROM PUBLIC; GRANT SELECT ON reverie.meta TO PUBLIC",
        "DROP TABLE reverie.tags",
        "ALTER TABLE reverie.memories ADD COLUMN more TEXT",
    ],
)
def test_database_whose_tables_were_changed_is_dropped(databases: Databases, change: str) -> None:
    address = databases.take()
    with databases.server.connect(address.partition("?")[0].rpartition("/")[2]) as connection:
        connection.execute(change.encode())
    databases.give_back(address)
    again = databases.take()
    databases.give_back(again)
    assert again != address


@pytest.mark.parametrize(
    ("folder", "cases", "options", "passed", "left"),
    [
        ("contract", 7, [], 22, 18),
        ("contract", 8, ["-p", "xdist", "-n", "1"], 18, 24),
        ("server", 4, ["--prove"], 34, 0),
    ],
)
def test_summary_says_how_many_cases_are_left_to_prove(
    tmp_path: Path, folder: str, cases: int, options: list[str], passed: int, left: int
) -> None:
    path = tmp_path / "tests" / folder / "test_example.py"
    path.parent.mkdir(parents=True)
    path.write_text(TABLE.format(cases=cases), encoding="utf-8")
    stdout = run_tiers(tmp_path, *options, str(path.parent))
    assert f"{passed} passed" in stdout
    assert (f"{left} cases left to make prove" in stdout) == bool(left)


def test_long_test_runs_when_its_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "test_example.py"
    path.write_text(TABLE.format(cases=1), encoding="utf-8")
    assert " 10 passed" in run_tiers(tmp_path, str(tmp_path))
    assert " 11 passed" in run_tiers(tmp_path, str(path))
    assert " 1 passed" in run_tiers(tmp_path, f"{path}::test_long")


def run_tiers(folder: Path, *options: str) -> str:
    """Run the tests of a folder with the tiers alone, and return what pytest prints."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.tiers", "--rootdir", str(folder)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options],
        cwd=ROOT,
        # Plugins that the table does not need take seconds to load.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_table_in_one_test_runs_every_case_and_names_the_one_that_fails() -> None:
    seen: list[tuple[str, int]] = []

    @cases_in_one_test("text, number", [("one", 1), ("two", 2), ("three", 3)])
    def table(folder: str, text: str, number: int) -> None:
        seen.append((folder + text, number))
        assert number < limit

    limit = 4
    table(folder="/")
    assert seen == [("/one", 1), ("/two", 2), ("/three", 3)]
    limit = 2
    with pytest.raises(AssertionError) as caught:
        table(folder="/")
    assert caught.value.__notes__ == ["case 1: {'text': 'two', 'number': 2}"]
    assert list(inspect.signature(table).parameters) == ["folder"]
