"""Commands upgrade a store of an earlier version: they say so, and keep a backup of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from reverie.cli import output
from reverie.engine import schema
from tests.cli.conftest import CommandLine
from tests.upgrades import EARLIER, backups, schema_of, unpacked

OLD = EARLIER[-1]


@pytest.fixture
def old(reverie: CommandLine) -> Path:
    return unpacked(OLD, reverie.folder, reverie.store.name)


def test_command_says_where_the_backup_is_and_how_to_go_back(
    reverie: CommandLine, old: Path
) -> None:
    done = reverie.real("list", "--space", "ana", "--json")
    (copy,) = backups(old)
    assert json.loads(done.stdout)["memories"]
    assert done.stderr.count("\n") == 1 and f"'reverie backup restore {copy}'" in done.stderr
    assert schema_of(old) == schema.SCHEMA_VERSION
    again = reverie.real("spaces")
    assert again.stderr == "" and backups(old) == [copy]


@pytest.mark.parametrize(
    "command", [["list", "--space", "ana"], ["doctor"], ["jobs", "list"], ["sessions", "list"]]
)
def test_no_backup_upgrades_without_a_copy(
    reverie: CommandLine, old: Path, command: list[str]
) -> None:
    reverie.run(*command, "--no-backup")
    assert schema_of(old) == schema.SCHEMA_VERSION and backups(old) == []


def test_setting_upgrades_without_a_copy(
    reverie: CommandLine, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_UPGRADE_BACKUP", "off")
    reverie.run("spaces")
    assert schema_of(old) == schema.SCHEMA_VERSION and backups(old) == []


def test_migrate_upgrades_its_source_with_and_without_a_copy(
    reverie: CommandLine, old: Path
) -> None:
    reverie.run("migrate", "--to", str(reverie.folder / "first.db"))
    assert len(backups(old)) == 1
    other = unpacked(OLD, reverie.folder, "other.db")
    target = reverie.folder / "second.db"
    reverie.run("migrate", "--from", str(other), "--to", str(target), "--no-backup")
    assert backups(other) == [] and schema_of(target) == schema.SCHEMA_VERSION


def test_upgrade_backup_is_verified_and_restored(reverie: CommandLine, old: Path) -> None:
    before = reverie.json("list", "--space", "ana")
    (copy,) = backups(old)
    content = copy.read_bytes()
    assert reverie.json("verify", str(copy))["ok"]
    assert reverie.json("doctor")["upgrade backups"] == copy.name
    reverie.remember("after the upgrade", "--space", "ana")
    assert reverie.json("backup", "restore", str(copy), "--yes")["ok"]
    assert reverie.json("list", "--space", "ana") == before
    assert backups(old) == [copy] and copy.read_bytes() == content


def test_older_program_refuses_a_newer_store_on_one_line(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("zebra")
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION - 1)
    assert "pip install --upgrade reverie" in reverie.error("list", code=5)


def test_upgrade_shows_a_bar_for_each_part_on_a_terminal(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setitem(os.environ, "TERM", "xterm")
    with output.upgrade_progress() as shown:
        assert shown is not None
        for what in ("backing up", "indexing"):
            for done in range(3):
                shown(what, done, 2)
    printed = capsys.readouterr()
    assert "backing up" in printed.err and "2/2" in printed.err and "indexing" in printed.err
    assert printed.out == ""
