"""Rows as a table for a terminal, as Markdown, and as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench.measuring import Meter, Row

HEAD = ("", "CPU", "in the kernel", "beside", "ratio (quartiles)", "target")


def shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "B":
        return f"{value / 2**20:.0f} MB" if value >= 2**20 else f"{value:,.0f} B"
    if unit != "s":
        return f"{value:g}{unit}"
    if value >= 0.1:
        return f"{value * 1e3:,.0f} ms"
    if value >= 0.001:
        return f"{value * 1e3:.2f} ms"
    return f"{value * 1e6:.0f} µs"


def cells(row: Row) -> list[str]:
    if row.note.startswith("not run"):
        return [row.what, "", "", row.note, "", ""]
    split = ""
    if row.user and row.system is not None and row.unit == "s":
        split = f"{row.system / (row.user + row.system):.0%}"
    ratio = row.ratio
    if ratio is None and row.baseline:
        ratio = row.ours / row.baseline
    beside = f"{shown(row.baseline, row.unit)} {row.against}".strip()
    spread = f" ({row.spread[0]:.2f}–{row.spread[1]:.2f})" if row.spread else ""
    figure = "" if ratio is None else f"{ratio:.2f}{spread}"
    name = row.what + (f" ({row.note})" if row.note else "")
    return [name, shown(row.ours, row.unit), split, beside, figure, _target(row)]


def _target(row: Row) -> str:
    if row.most is None:
        return ""
    limit = f"{row.most:g} ×" if row.ratio is not None else shown(row.most, row.unit)
    plus = f" + {row.plus * 1e3:g} ms" if row.plus else ""
    return f"{'✓' if row.met else '✗'} ≤ {limit}{plus}"


def table(title: str, rows: Sequence[Row]) -> Table:
    made = Table(title=title)
    for name in HEAD:
        made.add_column(name, justify="left" if name in {"", "beside"} else "right")
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        made.add_section()
        made.add_row(f"[bold]{group}[/bold]")
        for row in members:
            colour = {True: "green", False: "red", None: None}[row.met]
            made.add_row(*cells(row), style=colour)
    return made


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---:|---:|---|---:|---|"]
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        lines.append(f"| **{group}** | | | | | |")
        lines += ["| " + " | ".join(cells(row)) + " |" for row in members]
    return "\n".join(lines)


def plain(about: dict[str, str], meter: Meter) -> dict[str, Any]:
    """Every figure, for a file."""
    return {
        "machine": about,
        "rows": [{**asdict(row), "met": row.met} for row in meter.rows],
        "samples": {
            name: [asdict(sample) for sample in taken] for name, taken in meter.samples.items()
        },
    }
