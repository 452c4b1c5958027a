"""export, import, backup, verify."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from reverie.cli import options, transfer
from tests.cli.conftest import CommandLine
from tests.cli.test_memories import Terminal
from tests.crash.test_faults import fill_up, small_disk
from tests.servers import Server


def test_export_prints_one_json_line_for_each_entry(reverie: CommandLine) -> None:
    memory = reverie.remember("Grüße")
    reverie.run("revise", memory, "Servus")
    lines = reverie.text("export").splitlines()
    assert [json.loads(line)["op"] for line in lines] == ["remember", "revise"]
    assert "Grüße" in lines[0]
    assert reverie.text("export", "--json").splitlines() == lines


def test_export_array_holds_current_memories(reverie: CommandLine) -> None:
    ids = [reverie.remember(f"fact {number}") for number in range(3)]
    reverie.run("forget", ids[1])
    array = json.loads(reverie.text("export", "--format", "array"))
    assert [memory["id"] for memory in array] == [ids[0], ids[2]]
    assert [list(memory) for memory in array] == [["id", "content", "category", "created_at"]] * 2
    assert array[0]["created_at"].endswith("+00:00")


def test_export_of_an_empty_space_says_so(reverie: CommandLine) -> None:
    reverie.remember("one")
    result = reverie.run("export", "--space", "other")
    assert result.stdout == "" and "nothing to export" in result.stderr
    result = reverie.run("export", "--space", "other", "--format", "array")
    assert json.loads(result.stdout) == [] and "nothing to export" in result.stderr


def test_export_to_a_file(reverie: CommandLine, tmp_path: Path) -> None:
    reverie.remember("one")
    target = tmp_path / "out" / "memories.jsonl"
    assert "cannot be written" in reverie.error("export", "-o", str(target), code=2)
    target.parent.mkdir()
    target.write_text("before", encoding="utf-8")
    output = reverie.text("export", "-o", str(target))
    assert output == f"Exported 1 record to {target}.\n"
    assert json.loads(target.read_text(encoding="utf-8"))["op"] == "remember"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    answer = reverie.json("export", "--output", str(target), "--format", "array")
    assert answer == {"file": str(target), "format": "array", "written": 1}
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_failed_export_leaves_the_target_file_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "memories.jsonl"
    target.write_text("before", encoding="utf-8")
    with pytest.raises(RuntimeError), transfer.atomic_write(target) as file:
        file.write(b"half")
        raise RuntimeError
    assert target.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_import_of_an_export_restores_every_memory(reverie: CommandLine, tmp_path: Path) -> None:
    memory = reverie.remember("one")
    reverie.run("revise", memory, "two")
    file = tmp_path / "memories.jsonl"
    reverie.run("export", "-o", str(file))
    url = str(tmp_path / "other.db")
    assert reverie.text("import", str(file), "--url", url) == ("Added 2, unchanged 0, skipped 0.\n")
    assert reverie.json("import", str(file), "--url", url) == {
        "added": 0,
        "unchanged": 2,
        "skipped": [],
    }
    assert reverie.json("show", memory, "--url", url)["content"] == "two"
    assert reverie.text("export", "--url", url) == file.read_text(encoding="utf-8")


def test_import_reads_stdin_and_reports_skipped_records(reverie: CommandLine) -> None:
    given = b"- one\n\xff\n\n2. two\n"
    result = reverie.run("import", "-", given=given, code=1)
    assert result.stdout == (
        "Added 2, unchanged 0, skipped 1.\n  - line 2: not UTF-8 text: convert it first\n"
    )
    assert [memory["content"] for memory in reverie.json("list")["memories"]] == ["two", "one"]
    many = "".join(f'{{"wrong": {number}}}\n' for number in range(30))
    shown = reverie.text("import", "-", given=many, code=1)
    assert shown.count("  - ") == 20 and "and 10 more" in shown
    assert len(reverie.json("import", "-", given=many, code=1)["skipped"]) == 30


def test_import_of_empty_input_says_so_and_of_a_missing_file_fails(reverie: CommandLine) -> None:
    assert "nothing to import" in reverie.run("import", "-", given="").stderr
    reverie.error("import", "missing.json", code=2)


def test_import_reads_files_of_other_memory_tools(reverie: CommandLine, tmp_path: Path) -> None:
    mem0 = {"results": [{"id": "1", "memory": "likes tea", "created_at": "2025-01-02T03:04:05Z"}]}
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps(mem0, indent=1), encoding="utf-8")
    reverie.run("import", str(file))
    graph = '{"type":"entity","name":"Ana","entityType":"Person","observations":["is tall"]}\n'
    reverie.run("import", "-", given=graph)
    person, tea = reverie.json("list")["memories"]
    assert (tea["content"], tea["created_at"]) == ("likes tea", "2025-01-02T03:04:05+00:00")
    assert (person["content"], person["subject"], person["category"]) == (
        *("is tall", "Ana", "person"),
    )
    assert tea["trust"] == "import"


def test_backup_and_restore_bring_back_the_store(
    reverie: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = reverie.remember("one")
    copy = tmp_path / "copy.db"
    assert "No problems found." in reverie.text("backup", str(copy))
    assert "exists already" in reverie.error("backup", str(copy), code=2)
    report = reverie.json("backup", "create", str(tmp_path / "second.db"))
    assert report["ok"] and report["memories"] == 1 and report["file"].endswith("second.db")
    reverie.remember("two")
    assert "--yes" in reverie.error("backup", "restore", str(copy), code=2)
    assert reverie.json("backup", "restore", str(copy), "--yes")["restored"] == str(copy)
    assert [m["id"] for m in reverie.json("list")["memories"]] == [memory]

    class Sys:
        stdin = Terminal()

    monkeypatch.setattr(options, "sys", Sys)
    result = reverie.run("backup", "restore", str(copy), given="n\n", code=1)
    assert "Aborted." in result.stderr and result.stdout == ""
    assert "No problems found." in reverie.text("backup", "restore", str(copy), given="y\n")


def test_restore_creates_a_store_where_there_is_none(reverie: CommandLine, tmp_path: Path) -> None:
    reverie.remember("one")
    copy = tmp_path / "copy.db"
    reverie.run("backup", "--json", str(copy))
    fresh = str(tmp_path / "fresh.db")
    assert reverie.json("backup", "restore", str(copy), "--url", fresh)["memories"] == 1
    damaged = tmp_path / "damaged.db"
    damaged.write_text("no database " * 100, encoding="utf-8")
    url = ("--url", str(damaged))
    assert "move it away" in reverie.error("backup", "restore", str(copy), "--yes", *url, code=5)


def test_verify_of_a_healthy_store_finds_no_problem(reverie: CommandLine, tmp_path: Path) -> None:
    reverie.remember("one")
    assert "No problems found." in reverie.text("verify")
    report = reverie.json("verify")
    assert report["ok"] and report["problems"] == [] and report["versions"] == 1
    copy = tmp_path / "copy.db"
    reverie.run("backup", str(copy))
    before = copy.read_bytes()
    assert reverie.json("verify", str(copy))["digest"] == report["digest"]
    assert str(copy) in reverie.text("verify", str(copy))
    assert copy.read_bytes() == before
    reverie.error("verify", str(tmp_path / "missing"), code=2)


def test_verify_of_a_damaged_store_names_the_problem(reverie: CommandLine, tmp_path: Path) -> None:
    import apsw

    reverie.remember("one")
    connection = apsw.Connection(str(reverie.store))
    connection.execute("DELETE FROM postings")
    connection.close()
    assert "problem" in reverie.text("verify", code=1)
    report = reverie.json("verify", code=1)
    assert not report["ok"] and report["problems"]
    broken = tmp_path / "broken.db"
    broken.write_text("no database " * 100, encoding="utf-8")
    assert f"{broken} is not a store" in reverie.text("verify", str(broken), code=1)
    answer = reverie.json("verify", "--url", str(broken), code=1)
    assert answer["ok"] is False and len(answer["problems"]) == 1


def test_export_all_and_import_all_move_every_space(reverie: CommandLine, tmp_path: Path) -> None:
    reverie.remember("shared", "--space", "work")
    reverie.remember("hers", "--space", "work", "--user", "alice")
    reverie.remember("his", "--space", "home", "--user", "bob")
    file, other = tmp_path / "all.jsonl", str(tmp_path / "other.db")
    reverie.run("export", "--all", "-o", str(file))
    report = reverie.json("import", str(file), "--all", "--url", other)
    assert (report["added"], report["skipped"]) == (3, [])
    assert reverie.json("spaces", "--url", other) == reverie.json("spaces")
    found = reverie.json("list", "--space", "work", "--user", "alice", "--url", other)
    assert [memory["content"] for memory in found["memories"]] == ["hers", "shared"]
    reverie.run("export", "--all", "--space", "work", code=2)


def test_import_of_a_binary_file_adds_nothing(reverie: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"\x7fELF\x00\x01text\nmore text\n")
    reverie.run("import", str(file), code=1)
    assert reverie.json("list")["memories"] == []


def test_dash_as_export_target_is_standard_output(reverie: CommandLine) -> None:
    reverie.remember("x")
    assert '"x"' in reverie.text("export", "-o", "-")


# -- migrate --------------------------------------------------------------------------------------


def test_migrate_uses_the_store_of_the_common_options(
    reverie: CommandLine, postgres: Server, tmp_path: Path
) -> None:
    target, copy = postgres.database(), str(tmp_path / "copy.db")
    reverie.remember("The boat is blue")
    there = reverie.json("migrate", "--to", target)
    back = reverie.json("migrate", "--from", target, "--to", copy)
    assert (there["spaces"], there["digest"]) == (1, back["digest"])
    assert there["copied"] == there["rows"] == back["rows"]
    shown = reverie.run("recall", "boat", "--url", copy)
    assert "The boat is blue" in shown.stdout
    again = reverie.run("migrate", "--to", target, code=2)
    assert "is not empty: migrate into a fresh store" in again.stderr


def test_migrate_from_a_missing_store_creates_no_target(
    reverie: CommandLine, tmp_path: Path
) -> None:
    result = reverie.run("migrate", "--from", "none.db", "--to", str(tmp_path / "b.db"), code=3)
    assert "No memory store found at" in result.stderr and not (tmp_path / "b.db").exists()


def test_unreachable_postgres_server_is_reported_on_one_line(
    reverie: CommandLine, tmp_path: Path
) -> None:
    address = f"postgresql://me:secret@/db?host={tmp_path}"
    result = reverie.run("recall", "boat", "--url", address, code=5)
    assert result.stderr.count("\n") == 1 and "cannot be reached" in result.stderr
    assert "secret" not in result.stderr + result.stdout


def test_export_to_a_full_disk_names_the_file_and_leaves_none(
    reverie: CommandLine, tmp_path: Path
) -> None:
    reverie.remember("the river is cold " * 20)
    with small_disk(tmp_path / "small", 1) as disk:
        fill_up(disk / "filler")
        target = disk / "memories.jsonl"
        output = reverie.error("export", "--output", str(target), code=5)
        assert f"no space left for {target}" in output
        assert [file.name for file in disk.iterdir()] == ["filler"]


def test_import_reads_an_agent_cli_folder_and_leaves_it(reverie: CommandLine) -> None:
    facts = reverie.folder / "memory_db/entries/global/facts"
    facts.mkdir(parents=True)
    (facts / "2025-11-20T10-00-00__a.md").write_text(
        "---\nid: 00000000-0000-4000-8000-000000000001\nrole: memory\n---\nThe user hates pizza\n"
    )
    (facts / "broken.md").write_text("---\nid: 1\n")
    said = reverie.text("import", "agent-cli", "memory_db", "--space", "home", code=1)
    assert said.splitlines()[0] == "Added 1, unchanged 0, skipped 1."
    assert said.splitlines()[1].startswith("  - entries/global/facts/broken.md: ")
    assert "The user hates pizza" in reverie.text("list", "--space", "home")
    (facts / "broken.md").unlink()
    told = reverie.json("import", "agent-cli", "memory_db", "--space", "home")
    assert (told["added"], told["unchanged"], told["skipped"]) == (0, 1, [])


def test_import_with_an_unknown_format_names_the_known_one(reverie: CommandLine) -> None:
    assert "agent-cli" in reverie.error("import", "mem1", "memory_db", code=2)
