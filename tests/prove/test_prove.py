"""The table of proofs counts nothing as passed that did not run or fell short."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.figures import combined
from tests.prove import report, runner
from tests.prove.rows import ROWS, Asked, Row, least, most, none
from tests.prove.runner import Result, Run, judged, prove, resumable, save

ROOT = Path(__file__).parents[2]
EXAMPLE = """
import pytest
from tests.figures import figure

def test_measured():
    figure("kills", 3)
    figure("kills", 4)
    figure("slowest", 0.5, "max")
    figure("slowest", 0.2, "max")

@pytest.mark.skip(reason="nothing to see here")
def test_left_out():
    pass

def test_broken():
    assert False
"""
MEASURED: list[dict[str, Any]] = [
    {"figure": "kills", "value": 3, "combine": "sum"},
    {"figure": "kills", "value": 4, "combine": "sum"},
    {"figure": "slowest", "value": 0.5, "combine": "max"},
    {"case": "test_measured", "outcome": "passed", "reason": ""},
]
LEFT_OUT = {"case": "test_left_out", "outcome": "skipped", "reason": "Skipped: no disk"}


def run_of(tmp_path: Path, *, quick: bool = False) -> Run:
    return Run(quick, 0, "abc", tmp_path / "saved")


def row_of(*asked: Asked) -> Row:
    return Row("R0", "x", asked)


def test_row_runs_its_tests_and_takes_their_figures(tmp_path: Path) -> None:
    path = tmp_path / "test_example.py"
    path.write_text(EXAMPLE, encoding="utf-8")
    result = prove(run_of(tmp_path), Row("R0", "x", (least("kills", 7),), (str(path),)))
    assert result.figures == {"kills": 7, "slowest": 0.5}
    assert (result.passed, result.failed, result.skipped) == (1, 1, 1)
    assert result.status == "failed"
    assert result.reasons == ("the command ended with 1", "left out: nothing to see here")


def test_parallel_row_adds_up_the_figures_of_its_processes(tmp_path: Path) -> None:
    path = tmp_path / "test_example.py"
    path.write_text(EXAMPLE, encoding="utf-8")
    row = Row("R0", "x", (least("kills", 7),), (str(path),), parallel=True)
    assert "-n" in runner.command_of(row, quick=False)
    assert "-n" not in runner.command_of(row, quick=True)
    result = prove(run_of(tmp_path), row)
    assert result.figures == {"kills": 7, "slowest": 0.5}
    assert (result.passed, result.failed, result.skipped) == (1, 1, 1)


def test_row_of_the_rest_leaves_out_what_other_rows_name() -> None:
    command = runner.command_of(Row("R0", "x", (), ("tests",), rest=True), quick=False)
    left = {option.removeprefix("--deselect=") for option in command if "--deselect" in option}
    assert {"tests/contract", "tests/crash/test_power_loss.py"} <= left
    whole = {test for row in ROWS if row.only and not row.rest for test in row.tests}
    alone = {test for row in ROWS if not row.only and not row.rest for test in row.tests}
    assert not left & (whole - alone), "a row that runs a part of a file leaves the rest of it"
    assert "tests" not in left


def test_only_rows_that_need_no_disk_have_their_files_in_memory(tmp_path: Path) -> None:
    run, usual = run_of(tmp_path), os.environ.get("TMPDIR")
    on_disk, in_memory = Row("R0", "x", ()), Row("R0", "x", (), durable=False)
    assert runner.environment_of(run, on_disk, tmp_path).get("TMPDIR") == usual
    if runner.MEMORY.is_dir():
        assert runner.environment_of(run, in_memory, tmp_path)["TMPDIR"] == str(runner.MEMORY)


def test_row_passes_when_every_figure_is_reached(tmp_path: Path) -> None:
    row = row_of(least("kills", 7), most("slowest", 0.5, " s"))
    result = judged(run_of(tmp_path), row, 0, MEASURED, "", 1.0)
    assert (result.status, result.reasons, result.passed) == ("passed", (), 1)


@pytest.mark.parametrize(
    ("asked", "code", "more"),
    [
        (least("kills", 8), 0, []),
        (most("slowest", 0.4), 0, []),
        (none("lost"), 0, []),
        (least("kills", 7), 1, []),
        (least("kills", 7), 0, [LEFT_OUT]),
    ],
)
def test_row_fails_when_something_falls_short(
    tmp_path: Path, asked: Asked, code: int, more: list[dict[str, Any]]
) -> None:
    result = judged(run_of(tmp_path), row_of(asked), code, [*MEASURED, *more], "the end", 1.0)
    assert result.status == "failed" and result.reasons and result.output == "the end"


def test_row_without_its_test_file_is_not_run(tmp_path: Path) -> None:
    row = Row("R0", "x", (), ("tests/nowhere/test_absent.py",))
    result = prove(run_of(tmp_path), row)
    assert result.status == "not run"
    assert report.summary([row], {"R0": result}) == {"passed": 0, "failed": 0, "not run": 1}
    assert report.summary([row], {}) == {"passed": 0, "failed": 0, "not run": 1}


def test_quick_run_asks_for_limits_and_no_counts(tmp_path: Path) -> None:
    run = run_of(tmp_path, quick=True)
    assert judged(run, row_of(least("kills", 1_000)), 0, MEASURED, "", 1.0).status == "passed"
    assert judged(run, row_of(most("slowest", 0.1)), 0, MEASURED, "", 1.0).status == "failed"
    assert judged(run, row_of(most("slowest", 0.1, " s")), 0, MEASURED, "", 1.0).status == "passed"
    # A share is no count: it must be reached by few cases as by many.
    assert judged(run, row_of(least("slowest", 0.9)), 0, MEASURED, "", 1.0).status == "failed"


def test_results_are_saved_and_resumed_for_the_same_revision(tmp_path: Path) -> None:
    row, run = Row("R0", "x", ()), run_of(tmp_path)
    result = Result("R0", "passed", False, 0, "abc", {"kills": 2.0}, passed=1)
    save(run, row, result)
    assert resumable(run, row) == result
    assert resumable(Run(False, 0, "def", run.folder), row) is None
    assert resumable(Run(False, 1, "abc", run.folder), row) is None
    assert resumable(Run(True, 0, "abc", run.folder), row) is None


def test_docs_get_the_table_between_their_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    rows = [Row("R1", "a | b", (least("kills", 5),)), Row("R2", "c", ())]
    results = {"R1": Result("R1", "passed", False, 0, "abc", {"kills": 6.0}, passed=1), "R2": None}
    report.write_docs(rows, results, page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| R1 | a \\| b | kills ≥ 5; every case passes | kills 6; cases 1 passed" in text
    assert "| R2 | c | every case passes |  | not run |" in text
    # A checkout without saved results keeps what the page has, unless the row asks for more now.
    report.write_docs(rows, {}, page)
    assert page.read_text(encoding="utf-8") == text
    report.write_docs([Row("R1", "a | b", (least("kills", 9),))], {}, page)
    assert "kills ≥ 9; every case passes |  | not run |" in page.read_text(encoding="utf-8")


def test_every_row_has_an_id_of_its_own_and_a_place_in_the_docs() -> None:
    ids = [row.id for row in ROWS]
    assert len(ids) == len(set(ids))
    assert {f"R{number}" for number in range(1, 36)} <= set(ids)
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert all(f"\n| {id} |" in page for id in ids)
    for row in ROWS:
        assert f"| {row.id} | {row.what} | {row.asked_text} |" in page, f"{row.id} is out of date"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_every_test_that_a_row_names_exists(row: Row) -> None:
    names: list[str] = []
    for test in row.tests:
        path, _, name = test.partition("::")
        here = _test_names(ROOT / path)
        assert not name or name in here, test
        names += here
    words = row.only.split(" or ") if row.only else [""]
    assert not row.tests or all(any(word in name for name in names) for word in words), row.only


def _test_names(path: Path) -> list[str]:
    """List the test functions of a file, or of all files in a folder."""
    files = path.rglob("test_*.py") if path.is_dir() else [path]
    return [
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("test_")
    ]


def test_prove_list_runs_no_test(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.prove", "--list", "R7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "rounds ≥ 100" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "tests.prove", "R999"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "R999" in done.stderr


def test_figures_of_one_name_are_combined_by_their_rule() -> None:
    lines = [json.loads(line) for line in ('{"figure": "a", "value": 1, "combine": "min"}',) * 2]
    assert combined([*lines, {"case": "x", "outcome": "passed"}]) == {"a": 1}
    assert runner.MAX_SECONDS > 3_600
