"""Show the table of proofs: on a terminal, as JSON, and in docs/reliability.md."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.prove.rows import Row
from tests.prove.runner import ROOT, Result
from tests.servers import BIN

BEGIN, END = "<!-- proofs: begin -->", "<!-- proofs: end -->"
COLOURS = {"passed": "green", "failed": "red", "not run": "yellow"}


def revision() -> str:
    """Return the revision of the working tree, marked when it has changes of its own."""
    head = _said("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    return f"{head}+changes" if _said("git", "status", "--porcelain") else head


def versions() -> dict[str, str]:
    """Return what ran the proofs, without a name or path of the machine."""
    import apsw

    # The first line says: postgres (PostgreSQL) 18.0
    server = _said(str(BIN / "postgres"), "--version").partition(")")[2].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "Python": platform.python_version(),
        "SQLite": apsw.sqlite_lib_version(),
        "apsw": version("apsw"),
        "PostgreSQL": server or "none",
        "machine": f"{platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, {memory:.0f} GB",
    }


def header(seed: int, revision: str, quick: bool) -> str:
    """Return the line above the table."""
    parts = [f"seed {seed}", f"revision {revision}", *(f"{k} {v}" for k, v in versions().items())]
    kind = "QUICK RUN: short counts, the figures asked for are not reached" if quick else "full run"
    return f"{kind} · " + " · ".join(parts)


def reached(row: Row, result: Result | None) -> str:
    """Return the figures of a run beside which the figures asked for can be read."""
    if result is None or result.status == "not run":
        return ""
    parts = [
        asked.show(result.figures[asked.figure])
        for asked in row.asked
        if asked.figure in result.figures
    ]
    others = {name: value for name, value in result.figures.items() if name not in row.figures}
    parts += [f"{name} {value:,.6g}" for name, value in others.items()]
    if result.passed or result.failed or result.skipped:
        parts.append(f"cases {result.passed:,} passed, {result.failed:,} failed")
        if result.skipped:
            parts.append(f"{result.skipped:,} left out")
    return "; ".join(parts)


def table(rows: list[Row], results: dict[str, Result | None], quick: bool) -> Table:
    """Return the table for a terminal."""
    shown = Table(show_lines=True)
    for name in ("row", "what is tested", "asked", "reached", "result"):
        shown.add_column(name, overflow="fold")
    for row in rows:
        result = results.get(row.id)
        status = "not run" if result is None else result.status
        label = (
            f"[{COLOURS[status]}]{status}{' (quick)' if quick and status == 'passed' else ''}[/]"
        )
        if result is not None and result.reasons:
            label += "\n" + escape("\n".join(result.reasons))
        if status == "failed":
            label += f"\nrepeat: {repeat(row, quick)}"
        shown.add_row(row.id, escape(row.what), row.asked_text, escape(reached(row, result)), label)
    return shown


def repeat(row: Row, quick: bool) -> str:
    """Return the one command that runs a row again."""
    return f"make prove ROW={row.id}{' QUICK=1' if quick else ''}"


def summary(rows: list[Row], results: dict[str, Result | None]) -> dict[str, int]:
    """Count the rows by how they ended; a row without a result was not run."""
    statuses = [result.status if (result := results.get(row.id)) else "not run" for row in rows]
    return {status: statuses.count(status) for status in ("passed", "failed", "not run")}


def show(console: Console, rows: list[Row], results: dict[str, Result | None], quick: bool) -> None:
    """Print the table, and the end of the output of what failed."""
    console.print(table(rows, results, quick))
    for row in rows:
        result = results.get(row.id)
        if result is not None and result.status == "failed":
            console.rule(f"{row.id}: {repeat(row, quick)}")
            console.print(result.output, markup=False, highlight=False)
    counted = summary(rows, results)
    console.print(", ".join(f"{count} {status}" for status, count in counted.items()))


def as_json(
    rows: list[Row], results: dict[str, Result | None], seed: int, revision: str, quick: bool
) -> dict[str, Any]:
    """Return the whole run for machines."""
    return {
        "quick": quick,
        "seed": seed,
        "revision": revision,
        "versions": versions(),
        "summary": summary(rows, results),
        "rows": [
            {
                "id": row.id,
                "what": row.what,
                "asked": row.asked_text,
                "command": repeat(row, quick),
                "result": asdict(result)
                if (result := results.get(row.id)) is not None
                else {"status": "not run"},
            }
            for row in rows
        ],
    }


def _cells(*texts: str) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def write_docs(
    rows: list[Row], results: dict[str, Result | None], page: Path | None = None
) -> None:
    """Replace the table between the markers of docs/reliability.md by the saved full results.

    A row without one keeps its line, which names the revision that it was run on: no checkout has
    the results of all rows, which take longer than a day's work.
    """
    page = page or ROOT / "docs" / "reliability.md"
    text = page.read_text(encoding="utf-8")
    versions_text = "; ".join(f"{name} {value}" for name, value in versions().items())
    lines = [f"Written by `make prove WRITE_DOCS=1`: {versions_text}.", ""]
    lines += ["| row | what is tested | asked | reached | result |", "|---|---|---|---|---|"]
    before = [line for line in text.splitlines() if line.startswith("| R")]
    for row in rows:
        result = results.get(row.id)
        asked = _cells(row.id, row.what, row.asked_text)
        kept = [line for line in before if line.startswith(f"{asked} ")]
        if result is None and kept:
            lines += kept
            continue
        ended = result is not None and result.status != "not run"
        status = (
            f"{result.status}, {result.revision}" if ended and result is not None else "not run"
        )
        lines.append(f"{asked} {_cells(reached(row, result), status).removeprefix('| ')}")
    made = f"{BEGIN}\n{chr(10).join(lines)}\n{END}"
    replaced, count = re.subn(f"{BEGIN}.*?{END}", lambda _: made, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page.name} has no place for the table: add {BEGIN} and {END}.")
    page.write_text(replaced, encoding="utf-8")


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
