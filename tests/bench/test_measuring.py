"""Ratios of rounds, targets, and the format of result rows."""

from __future__ import annotations

import pytest
from bench.measuring import Meter, Row, Sample, short, timed
from bench.showing import cells, markdown


def meter_of(**series: list[float]) -> Meter:
    meter = Meter()
    for name, figures in series.items():
        for figure in figures:
            meter.take(name, Sample(figure))
    return meter


def test_ratio_is_the_median_of_the_ratios_of_all_rounds() -> None:
    meter = meter_of(ours=[2.0, 9.0, 4.0], theirs=[1.0, 3.0, 4.0])
    meter.row("group", "what", "ours", "theirs", "theirs", most=2.0)
    (row,) = meter.rows
    assert (row.ours, row.baseline, row.ratio) == (4.0, 3.0, 2.0)
    assert row.met


def test_allowance_is_subtracted_before_the_ratio() -> None:
    meter = meter_of(ours=[0.005, 0.005], theirs=[0.002, 0.002])
    meter.row("group", "held", "ours", "theirs", "theirs", 2.0, 0.001)
    meter.row("group", "missed", "ours", "theirs", "theirs", 2.0)
    held, missed = meter.rows
    assert held.ratio == missed.ratio == pytest.approx(2.5)
    assert (held.met, missed.met) == (True, False)
    assert cells(held)[-1] == "✓ ≤ 2 × + 1 ms"
    assert cells(missed)[-1] == "✗ ≤ 2 ×"


def test_series_are_added_round_by_round() -> None:
    meter = meter_of(a=[1.0, 2.0], b=[10.0, 20.0])
    meter.combine("both", {"a": 3.0, "b": 1.0})
    assert [sample.cpu for sample in meter.samples["both"]] == [13.0, 26.0]


def test_series_of_different_lengths_cannot_be_added() -> None:
    meter = meter_of(a=[1.0, 2.0], b=[10.0])
    with pytest.raises(ValueError, match="shorter"):
        meter.combine("both", {"a": 1.0, "b": 1.0})


def test_measured_work_is_called_once_for_each_item_after_its_setup() -> None:
    calls: list[str] = []
    timed(lambda item: calls.append(f"work {item}"), [1, 2], lambda i: calls.append(f"before {i}"))
    assert calls == ["before 1", "work 1", "before 2", "work 2"]


def test_row_that_was_not_run_shows_the_reason_and_no_verdict() -> None:
    row = Row("others", "a peer", "s", 0, note="not run: no Python")
    assert row.met is None
    assert "| a peer |  |  | not run: no Python |  |  |" in markdown([row])


def test_sizes_are_abbreviated_with_k_and_m() -> None:
    assert [short(size) for size in (200, 1_000, 1_500, 100_000, 1_000_000)] == [
        "200",
        "1k",
        "1500",
        "100k",
        "1M",
    ]
