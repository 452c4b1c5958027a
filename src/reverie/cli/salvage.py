"""The command that saves what is left of a damaged store."""

from __future__ import annotations

from pathlib import Path

import click

from reverie.cli.exit_codes import PROBLEMS_FOUND
from reverie.cli.options import CommonOptions, examples, json_option
from reverie.cli.output import (
    pluralize,
    print_json,
    print_line,
    print_problems,
    print_table,
    progress,
    table,
    to_line,
)
from reverie.model import SalvagedSpace


@click.command(
    "salvage",
    epilog=examples(
        "reverie salvage damaged.db saved.db",
        "reverie salvage postgresql://reverie@db.example/reverie saved.db --json",
    ),
)
@click.argument("source")
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def salvage_command(asked: CommonOptions, source: str, target: Path) -> None:
    """Make a new store of all that can be read of a damaged one.

    SOURCE is not changed; TARGET must not exist. Every entry that is as it was written comes along,
    with its position, time and history; index and vectors are made anew. Tokens, jobs and recall
    notes come along where they can be read, the link to a vault does not. The exit code is 1 when
    something was lost.
    """
    from reverie.memory import salvage_store

    with progress("salvaging") as shown:
        report = salvage_store(source, target, progress=shown)
    if asked.as_json:
        print_json({"file": str(target), "complete": report.complete, **_plain(report)})
    else:
        shown_table = table("space", "entries", "lost positions", "affected", content="affected")
        for space in report.spaces:
            shown_table.add_row(
                to_line(space.space),
                str(space.entries),
                _position_ranges(space),
                to_line("; ".join(space.affected)),
            )
        print_table(shown_table)
        for line in report.unread:
            print_line(f"Not all of it could be read by SQL: {to_line(line)}.")
        for space in report.spaces:
            if not space.end_known:
                print_line(
                    f"Where the log of {to_line(space.space)} ended is unknown: more may be lost."
                )
        for name in (name for space in report.spaces for name in space.renamed):
            print_line(f"A name was lost: {name} stands for it.")
        lost = "nothing was lost" if report.complete else "what is named above was lost"
        print_line(f"Saved {pluralize(report.entries, 'entry', 'entries')} in {target}: {lost}.")
        if report.problems:
            print_problems(report.problems)
    if not report.complete or report.problems:
        click.get_current_context().exit(PROBLEMS_FOUND)


def _plain(report: object) -> dict[str, object]:
    from dataclasses import asdict
    from typing import Any, cast

    found = asdict(cast(Any, report))
    found["spaces"] = [space._asdict() for space in cast(Any, report).spaces]
    return found


def _position_ranges(space: SalvagedSpace) -> str:
    return ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in space.lost
    )
