"""Commands on a damaged store: what they report, and ``reverie salvage``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from tests.cli.conftest import CommandLine


@pytest.fixture
def damaged(reverie: CommandLine) -> tuple[str, str]:
    """The ids of a memory that was damaged in the file, and of one that was not."""
    broken = reverie.remember("the zebra is striped")
    whole = reverie.remember("the river is wide")
    connection = apsw.Connection(str(reverie.store))
    connection.execute("UPDATE log SET body = REPLACE(body, 'zebra', 'zebrb') WHERE position = 1")
    connection.close()
    return broken, whole


def test_list_omits_a_damaged_entry_and_says_so(
    reverie: CommandLine, damaged: tuple[str, str]
) -> None:
    for arguments in (("list",), ("recall", "river zebra")):
        result = reverie.run(*arguments)
        assert "wide" in result.stdout and "zebr" not in result.stdout
        assert result.stderr == (
            "reverie: 1 damaged entry was left out: 'reverie verify' says what is damaged\n"
        )
    result = reverie.run("list", "--json")
    assert result.stderr == '{"warning": {"damaged": 1}}\n'


def test_command_reports_damage_on_one_line(reverie: CommandLine, damaged: tuple[str, str]) -> None:
    """In a process of its own, where nobody has set up logging."""
    command = [sys.executable, "-c", "from reverie.cli import main; main()"]
    result = subprocess.run(
        [*command, "list", "--json", "--url", str(reverie.store)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == '{"warning": {"damaged": 1}}\n'


@pytest.mark.parametrize("command", ["show", "history"])
def test_show_of_a_damaged_memory_is_a_store_error(
    reverie: CommandLine, damaged: tuple[str, str], command: str
) -> None:
    assert "entry 1 of space" in reverie.error(command, damaged[0], code=5)


def test_export_stops_at_damage_without_skip_damaged(
    reverie: CommandLine, damaged: tuple[str, str], tmp_path: Path
) -> None:
    assert "entry 1" in reverie.error("export", "-o", str(tmp_path / "all.jsonl"), code=5)
    assert not (tmp_path / "all.jsonl").exists()
    report = reverie.json("export", "--skip-damaged", "-o", str(tmp_path / "rest.jsonl"))
    assert (report["written"], report["damaged"]) == (1, 1)
    everyone = reverie.run("export", "--all", "--skip-damaged")
    assert everyone.stdout.count("\n") == 1 and "1 damaged entry" in everyone.stderr


def test_verify_doctor_and_backup_name_the_damage(
    reverie: CommandLine, damaged: tuple[str, str], tmp_path: Path
) -> None:
    for arguments in (("verify",), ("doctor",), ("backup", str(tmp_path / "copy.db"))):
        shown = reverie.text(*arguments, code=1)
        assert "entry 1 is damaged" in shown and "No problems" not in shown
    assert "salvage" in reverie.error("rebuild", code=5)


def test_salvage_makes_a_new_store_and_reports_what_was_lost(
    reverie: CommandLine, damaged: tuple[str, str], tmp_path: Path
) -> None:
    saved = tmp_path / "saved.db"
    shown = reverie.text("salvage", str(reverie.store), str(saved), code=1)
    assert f"memory {damaged[0]}" in shown and f"Saved 1 entry in {saved}" in shown
    assert "wide" in reverie.text("list", "--url", str(saved))
    assert "No problems found." in reverie.text("verify", "--url", str(saved))
    report = reverie.json("salvage", str(reverie.store), str(tmp_path / "other.db"), code=1)
    (space,) = report["spaces"]
    assert not report["complete"] and space["lost"] == [[1, 1]] and space["entries"] == 1
    assert "exists" in reverie.error("salvage", str(reverie.store), str(saved), code=2)
    assert "does not exist" in reverie.error("salvage", "nothing.db", str(tmp_path / "x"), code=2)


def test_salvage_renames_a_space_whose_name_is_lost(reverie: CommandLine, tmp_path: Path) -> None:
    reverie.remember("the zebra is striped")
    data = reverie.store.read_bytes()
    reverie.store.write_bytes(bytes(20_000) + data[20_000:])
    shown = reverie.text("salvage", str(reverie.store), str(tmp_path / "saved.db"), code=1)
    assert "A name was lost: recovered-space-1 stands for it." in shown
    url = ("--url", str(tmp_path / "saved.db"))
    assert "striped" in reverie.text("list", *url, "--space", "recovered-space-1")


@pytest.mark.parametrize("broken", [range(100), range(100, 4096)])
def test_salvage_reads_a_store_that_cannot_be_opened(
    reverie: CommandLine, tmp_path: Path, broken: range
) -> None:
    reverie.remember("the zebra is striped")
    data = bytearray(reverie.store.read_bytes())
    for at in broken:
        data[at] = 0
    reverie.store.write_bytes(data)
    assert "salvage" in reverie.error("list", code=5)
    reverie.text("salvage", str(reverie.store), str(tmp_path / "saved.db"))
    assert "striped" in reverie.text("list", "--url", str(tmp_path / "saved.db"))
