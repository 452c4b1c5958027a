"""Commands on a damaged store: what they report, and ``reverie salvage``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from reverie.memory import open as open_store
from reverie.vault import service
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
    assert "A name was lost and replaced by recovered-space-1." in shown
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


# -- the log of the vault -------------------------------------------------------------------------


def damage(reverie: CommandLine, statement: str) -> None:
    connection = apsw.Connection(str(reverie.store))
    connection.execute(statement)
    connection.close()


def mirrored(reverie: CommandLine) -> Path:
    """A store with a vault: three versions of a memory, and one of another user."""
    memory = reverie.remember("the zebra is striped")
    reverie.text("revise", memory, "the zebra is brown", "--reason", "dust")
    reverie.text("revise", memory, "the zebra is grey")
    reverie.remember("the river is wide", "--user", "bob")
    root = reverie.folder / "vault"
    with open_store(reverie.store) as store:
        service.init(store, root)
    return root


DAMAGED_TEXT = "UPDATE log SET body = REPLACE(body, 'the', 'thx'), reason = 'x' WHERE position {}"


@pytest.mark.parametrize("which", ["= 2", "= 4", "> 0"])
def test_salvage_takes_unreadable_entries_from_the_log_of_the_vault(
    reverie: CommandLine, tmp_path: Path, which: str
) -> None:
    mirrored(reverie)
    before = reverie.text("export", "--all")
    damage(reverie, DAMAGED_TEXT.format(which))
    saved = tmp_path / "saved.db"
    shown = reverie.text("salvage", str(reverie.store), str(saved))
    taken = "4 entries" if which == "> 0" else "1 entry"
    assert f"Took {taken} of default from the vault's log." in shown
    assert f"Saved 4 entries in {saved}: nothing was lost." in shown
    assert reverie.text("export", "--all", "--url", str(saved)) == before
    assert "No problems found." in reverie.text("verify", "--url", str(saved))
    report = reverie.json("salvage", str(reverie.store), str(tmp_path / "other.db"))
    assert report["complete"] and report["spaces"][0]["from_vault"] == int(taken[0])


def test_salvage_takes_lost_names_from_the_log_of_the_vault(
    reverie: CommandLine, tmp_path: Path
) -> None:
    root = mirrored(reverie)
    before = reverie.text("export", "--all")
    damage(reverie, "UPDATE spaces SET name = 'x'")
    damage(reverie, "UPDATE owners SET name = 'y' WHERE name = 'bob'")
    damage(reverie, "DELETE FROM meta WHERE key = 'vault'")
    saved = tmp_path / "saved.db"
    assert "A name was lost" in reverie.text("salvage", str(reverie.store), str(saved), code=1)
    saved.unlink()
    reverie.text("salvage", str(reverie.store), str(saved), "--vault", str(root))
    assert reverie.text("export", "--all", "--url", str(saved)) == before


def test_salvage_takes_nothing_from_a_log_that_contradicts_the_store(
    reverie: CommandLine, tmp_path: Path
) -> None:
    root = mirrored(reverie)
    log = root / ".reverie/log.jsonl"
    log.write_text(log.read_text().replace('"position": 3', '"position": 9'))
    damage(reverie, DAMAGED_TEXT.format("= 2"))
    report = reverie.json("salvage", str(reverie.store), str(tmp_path / "saved.db"), code=1)
    assert report["spaces"][0]["from_vault"] == 0 and report["spaces"][0]["lost"] == [[2, 2]]
    assert report["unread"] == ["the vault's log of default, which contradicts the store"]


def test_salvage_takes_nothing_that_was_erased_since_the_last_sync(
    reverie: CommandLine, tmp_path: Path
) -> None:
    root = mirrored(reverie)
    reverie.remember("the river is long")
    log = (root / ".reverie/log.jsonl").read_bytes()
    with open_store(reverie.store) as store:
        (memory,) = (m for m in store.space("default").memories() if "zebra" in m.content)
        store.space("default").erase(memory.id)
    damage(reverie, DAMAGED_TEXT.format("= 2"))
    (root / ".reverie/log.jsonl").write_bytes(log)
    saved = tmp_path / "saved.db"
    report = reverie.json("salvage", str(reverie.store), str(saved), code=1)
    assert report["spaces"][0]["from_vault"] == 0
    assert "dust" not in reverie.text("export", "--all", "--url", str(saved))
