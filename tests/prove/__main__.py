"""Prove what docs/reliability.md promises: ``python -m tests.prove [R7 …] [--quick]``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from tests.prove import report
from tests.prove.rows import ROWS, Row
from tests.prove.runner import Result, Run, prove, resumable, save, saved


@click.command()
@click.argument("ids", nargs=-1)
@click.option("--quick", is_flag=True, help="Short counts, for use beside other work.")
@click.option("--resume", is_flag=True, help="Keep what ended in an earlier run of this revision.")
@click.option("--seed", default=0, help="Seed of everything drawn at random.")
@click.option("--list", "listing", is_flag=True, help="Print what is saved; run no row.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write JSON here.")
@click.option(
    "--write-docs", is_flag=True, help="Write the saved full results into docs/reliability.md."
)
def main(
    ids: tuple[str, ...],
    quick: bool,
    resume: bool,
    seed: int,
    listing: bool,
    json_file: Path | None,
    write_docs: bool,
) -> None:
    """Run the rows that are named, or all, cheapest first, and print what each reached."""
    chosen = [row for row in ROWS if not ids or row.id in {id.upper() for id in ids}]
    if unknown := {id.upper() for id in ids} - {row.id for row in ROWS}:
        raise click.UsageError(f"there is no row {', '.join(sorted(unknown))}; --list names them")
    console = Console(width=None if sys.stdout.isatty() else 160)
    run = Run(quick, seed, report.revision())
    if listing:
        console.print(report.table(chosen, {row.id: saved(run, row) for row in chosen}, quick))
        if write_docs:
            _write_docs(run)
        return
    console.print(report.header(seed, run.revision, quick), soft_wrap=True)
    results: dict[str, Result | None] = {}
    try:
        for row in sorted(chosen, key=lambda row: row.minutes):
            results[row.id] = _ended(console, run, row, resume)
    except KeyboardInterrupt:
        console.print("Interrupted: what ended is saved; go on with --resume.")
    report.show(console, chosen, results, quick)
    if json_file is not None:
        document = report.as_json(chosen, results, seed, run.revision, quick)
        json_file.write_text(json.dumps(document, indent=1), encoding="utf-8")
    if write_docs:
        _write_docs(run)
    counted = report.summary(chosen, results)
    sys.exit(1 if counted["failed"] or counted["not run"] else 0)


def _write_docs(run: Run) -> None:
    """Write what the last full run of each row reached, whatever its revision was."""
    full = replace(run, quick=False)
    report.write_docs(ROWS, {row.id: saved(full, row) for row in ROWS})


def _ended(console: Console, run: Run, row: Row, resume: bool) -> Result:
    if resume and (old := resumable(run, row)) is not None:
        console.print(f"{row.id}: {old.status} before")
        return old
    console.print(f"{row.id}: {row.what} …", highlight=False)
    result = prove(run, row)
    if result.status != "not run":
        save(run, row, result)
    text = report.reached(row, result) or ", ".join(result.reasons)
    console.print(f"{row.id}: {result.status} in {result.seconds:g} s: {text}", highlight=False)
    return result


if __name__ == "__main__":
    main()
