"""Pictures of what was measured: cost against size, and quality by question type.

    python bench/plots.py speed.json [million.json] cost.svg

The same figures give the same bytes. Colours are Okabe and Ito's (the purple darker), which most
colour-blind people can tell apart; every line also has a mark of its own, and its name beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.measuring import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = dict[int, float]
"""CPU seconds for each size."""
Costs = dict[str, dict[str, dict[str, Series]]]
"""For each operation, for ``ours``, ``peers`` and ``floor``, the series by name."""
Quality = Mapping[str, Mapping[str, Mapping[str, float]]]
"""For each data set, for each way to recall, a share for each question type; the last is ours."""

BLUE, ORANGE, GREEN, PURPLE, BLACK = "#0072B2", "#D55E00", "#009E73", "#A0457E", "#222222"
SHADES = ("#BBBBBB", "#56B4E9", "#E69F00", "#009E73")
STYLE: Any = {
    "svg.hashsalt": "reverie",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": BLACK,
    "ytick.color": BLACK,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.7,
}
ROOM = 0.105
"""For a name and its figure, as a share of the axis."""
WIDE = 100
"""From this factor on, only powers of ten are marked."""


def recall_curves(ours: Series, peers: Mapping[str, Series], floor: Series) -> Costs:
    return {"a recall of 5": _roles(ours, peers, floor)}


def add_curves(ours: Series, peers: Mapping[str, Series], floor: Series) -> Costs:
    return {"adding one": _roles(ours, peers, floor)}


def _roles(
    ours: Series, peers: Mapping[str, Series], floor: Series
) -> dict[str, dict[str, Series]]:
    return {"ours": {"Reverie": ours}, "peers": dict(peers), "floor": {"floor": floor}}


def measured(paths: Sequence[Path]) -> Costs:
    """The curves that several runs wrote, joined."""
    joined: Costs = {}
    for path in paths:
        curves = json.loads(path.read_text(encoding="utf-8"))["curves"]
        for title, roles in curves.items():
            for role, lines in roles.items():
                known = joined.setdefault(title, {}).setdefault(role, {})
                for name, line in lines.items():
                    numbered = {int(size): seconds for size, seconds in line.items()}
                    known[name] = known.get(name, {}) | numbered
    return joined


def cost(figures: Costs, path: Path) -> None:
    """CPU time against size, both logarithmic: one panel for each operation."""
    with _figure(path, len(figures), (5.2 * len(figures), 4.2)) as (figure, panels):
        for axes, (title, roles) in zip(panels, figures.items(), strict=True):
            _cost_panel(axes, f"CPU of {title}", roles)
        figure.subplots_adjust(left=0.075, right=0.845, bottom=0.12, top=0.92, wspace=0.7)


def _cost_panel(axes: Axes, title: str, roles: Mapping[str, Mapping[str, Series]]) -> None:
    peers = zip(roles["peers"].items(), (ORANGE, PURPLE, GREEN), "s^D", strict=False)
    drawn = [
        *((name, line, colour, mark, "-", 1.6) for (name, line), colour, mark in peers),
        *((name, line, BLACK, "o", ":", 1.4) for name, line in roles["floor"].items()),
        *((name, line, BLUE, "o", "-", 2.6) for name, line in roles["ours"].items()),
    ]
    sizes = sorted({size for _, line, *_ in drawn for size in line})
    for _, line, colour, mark, dashes, width in drawn:
        axes.plot(
            list(line),
            list(line.values()),
            color=colour,
            marker=mark,
            markersize=5,
            linestyle=dashes,
            linewidth=width,
        )
    axes.set(xscale="log", yscale="log", title=title, xlabel="memories in one space")
    axes.set_xticks(sizes, [short(size) for size in sizes])
    axes.set_xticks([], minor=True)
    _heights(axes)
    _name_lines(axes, {name: (line, colour) for name, line, colour, *_ in drawn}, sizes[-1])


def _heights(axes: Axes) -> None:
    low, high = axes.get_ylim()
    steps = (1.0,) if high / low > WIDE else (1.0, 2.0, 5.0)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axes.set_yticks(ticks, [_time(tick) for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_ylim(low, high)
    axes.yaxis.grid(True)
    axes.set_axisbelow(True)


def _name_lines(axes: Axes, lines: Mapping[str, tuple[Series, str]], last: int) -> None:
    """Each name beside the end of its line, moved apart where lines end close together."""
    to_share = axes.transScale + axes.transLimits  # heights as shares of the axis
    heights: dict[str, float] = {}
    for name, (line, colour) in lines.items():
        end = max(line)
        if end == last:
            heights[name] = float(to_share.transform((end, line[end]))[1])
            continue
        beside: Any = {"textcoords": "offset points", "va": "center", "fontsize": 9}
        text = f"{name}\n{_time(line[end])}"
        axes.annotate(text, (end, line[end]), (8, -2), color=colour, **beside)
    for name, height in _apart(heights).items():
        line, colour = lines[name]
        within: Any = {"transform": axes.transAxes, "va": "center", "fontsize": 9}
        axes.text(1.03, height, f"{name}\n{_time(line[last])}", color=colour, **within)


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """The same order, no two closer than a name needs; each gives way as little as it can."""
    names = sorted(heights, key=lambda name: heights[name])
    placed = [heights[name] for name in names]
    for _ in range(100):
        for i in range(len(placed) - 1):
            lacking = max(0.0, ROOM - (placed[i + 1] - placed[i]))
            placed[i] -= lacking / 2
            placed[i + 1] += lacking / 2
    return dict(zip(names, placed, strict=True))


def quality(figures: Quality, path: Path, measure: str = "recall@10") -> None:
    """Bars for each question type: one panel for each data set."""
    tallest = max(len(_types(ways)) for ways in figures.values())
    most = max(len(ways) for ways in figures.values())
    size = (5.2 * len(figures), 1.1 + tallest * (0.2 * most + 0.18))
    with _figure(path, len(figures), size) as (figure, panels):
        for axes, (title, ways) in zip(panels, figures.items(), strict=True):
            _quality_panel(axes, f"{title}, {measure}", ways)
        handles, names = panels[0].get_legend_handles_labels()
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / size[1]))
        figure.legend(handles, names, loc="upper center", ncols=len(names), frameon=False)


def _types(ways: Mapping[str, Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(kind for shares in ways.values() for kind in shares))


def _quality_panel(axes: Axes, title: str, ways: Mapping[str, Mapping[str, float]]) -> None:
    types, thick = _types(ways), 0.84 / len(ways)
    colours = [*SHADES[: len(ways) - 1], BLUE]
    for i, ((name, shares), colour) in enumerate(zip(ways.items(), colours, strict=True)):
        places = [at + (i - (len(ways) - 1) / 2) * thick for at in range(len(types))]
        values = [shares.get(kind, 0.0) for kind in types]
        bars = axes.barh(places, values, thick * 0.92, color=colour, label=name)
        labels = [f"{value:.2f}".removeprefix("0") for value in values]
        weight = "bold" if colour == BLUE else "normal"
        axes.bar_label(bars, labels, padding=2, fontsize=8, fontweight=weight)
    axes.set(title=title, xlim=(0, 1.0))
    axes.set_yticks(range(len(types)), types)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.xaxis.grid(True)
    axes.set_axisbelow(True)


@contextmanager
def _figure(
    path: Path, columns: int, size: tuple[float, float]
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure that is written when the block ends."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(size, facecolor="white")
        panels = figure.subplots(1, columns, squeeze=False)
        yield figure, list(panels.flat)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(
            path, metadata={"Date": None, "Creator": None} if path.suffix == ".svg" else {}
        )


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e3:.2g} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw cost against size, or quality by question.")
    parser.add_argument("figures", type=Path, nargs="+", help="what speed.py or retrieval.py wrote")
    parser.add_argument("picture", type=Path, help="the SVG file to write")
    asked = parser.parse_args()
    first = json.loads(asked.figures[0].read_text(encoding="utf-8"))
    if "quality" in first:
        quality(first["quality"], asked.picture)
    else:
        cost(measured(asked.figures), asked.picture)


if __name__ == "__main__":
    main()
