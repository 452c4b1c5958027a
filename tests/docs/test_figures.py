"""The figures in the README equal those of docs/benchmarks.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
MEASURED = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
SETS = ("LoCoMo", "LongMemEval, pooled")
ROWS = re.findall(r"^\| (.+?) \| (\.\d+ / \.\d+) \| (\.\d+ / \.\d+) \|$", README, re.MULTILINE)


def measured(which: str, name: str) -> str:
    """Turn recall among the first 5 and 10, from the table of one set."""
    section = MEASURED.split(f"\n### {which}\n", 1)[1]
    row = re.search(rf"^\| {re.escape(name)} \| (\.\d+) \(.*?\| (\.\d+) \(", section, re.MULTILINE)
    assert row is not None, (which, name)
    return f"{row[1]} / {row[2]}"


def test_benchmark_page_has_a_row_for_each_system() -> None:
    assert [name for name, *_ in ROWS] == ["FTS5", "FTS5 + plain vectors", "Reverie, hybrid"]


@pytest.mark.parametrize(("name", "figures"), [(name, figures) for name, *figures in ROWS])
def test_benchmark_page_quality_figures_equal_the_measured_ones(
    name: str, figures: list[str]
) -> None:
    assert figures == [measured(which, name) for which in SETS]
