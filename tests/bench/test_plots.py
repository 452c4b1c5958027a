"""Pictures: the same figures give the same bytes, and every name is in them."""

from __future__ import annotations

import json
from pathlib import Path

from bench import plots

COSTS: plots.Costs = {
    **plots.recall_curves(
        {1_000: 0.001, 10_000: 0.004, 100_000: 0.02},
        {"a peer": {1_000: 0.004, 10_000: 0.04, 100_000: 0.5}, "a slow peer": {1_000: 0.02}},
        {1_000: 0.0004, 10_000: 0.003, 100_000: 0.019},
    ),
    **plots.add_curves({1_000: 0.001, 100_000: 0.001}, {}, {1_000: 0.0002, 100_000: 0.0002}),
}
QUALITY = {
    "one set": {"keyword": {"single": 0.5, "several": 0.4}, "hybrid": {"single": 0.7}},
    "another": {"keyword": {"when": 0.5}, "hybrid": {"when": 1.0}},
}


def test_cost_plot_labels_every_line_and_is_deterministic(tmp_path: Path) -> None:
    for name in ("one.svg", "other.svg"):
        plots.cost(COSTS, tmp_path / "new" / name)
    drawn = (tmp_path / "new" / "one.svg").read_text(encoding="utf-8")
    assert drawn == (tmp_path / "new" / "other.svg").read_text(encoding="utf-8")
    for text in ("a peer", "a slow peer", "Reverie", "floor", "500 ms", "20 ms", "0.2 ms", "100k"):
        assert f">{text}<" in drawn
    assert "dc:date" not in drawn


def test_quality_plot_labels_every_question_type_and_is_deterministic(tmp_path: Path) -> None:
    for name in ("one.svg", "other.svg"):
        plots.quality(QUALITY, tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert drawn == (tmp_path / "other.svg").read_text(encoding="utf-8")
    for text in ("one set, recall@10", "single", "several", "when", "hybrid", ".70", "1.00"):
        assert f">{text}<" in drawn


def test_overlapping_labels_are_moved_apart_in_order() -> None:
    placed = plots._apart({"top": 0.52, "middle": 0.51, "bottom": 0.5, "far": 0.9})
    heights = [placed[name] for name in ("bottom", "middle", "top", "far")]
    gaps = [b - a for a, b in zip(heights, heights[1:], strict=False)]
    assert min(gaps) >= plots.ROOM - 1e-3
    assert placed["far"] == 0.9


def test_curves_of_several_runs_are_joined_in_one_plot(tmp_path: Path) -> None:
    large = plots.recall_curves({1_000_000: 0.2}, {}, {1_000_000: 0.18})
    paths = [tmp_path / "speed.json", tmp_path / "million.json"]
    for path, curves in zip(paths, (COSTS, large), strict=True):
        path.write_text(json.dumps({"curves": curves}), encoding="utf-8")
    joined = plots.measured(paths)
    assert list(joined["a recall of 5"]["ours"]["Reverie"]) == [1_000, 10_000, 100_000, 1_000_000]
    assert joined["adding one"] == COSTS["adding one"]
    assert joined["a recall of 5"]["peers"] == COSTS["a recall of 5"]["peers"]
