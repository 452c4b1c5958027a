"""The command salvage: copies what is readable in a damaged store."""

from __future__ import annotations

from pathlib import Path

import click

from reverie.cli.exit_codes import exit_on_problems
from reverie.cli.options import CommonOptions, examples, json_option
from reverie.cli.output import (
    pluralize,
    print_json,
    print_line,
    print_problems,
    print_table,
    progress,
    to_line,
)
from reverie.memory import salvage_store
from reverie.model import SalvagedSpace
from reverie.serialize import to_json_value
from reverie.vault.log_reader import read_entries


@click.command(
    "salvage",
    epilog=examples(
        "reverie salvage damaged.db saved.db",
        "reverie salvage damaged.db saved.db --vault ~/memory",
        "reverie salvage postgresql://reverie@db.example/reverie saved.db --json",
    ),
)
@click.argument("source")
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--vault",
    type=click.Path(file_okay=False, path_type=Path),
    help="The vault to take unreadable entries from; by default, that of the store.",
)
@json_option
def salvage_command(options: CommonOptions, source: str, target: Path, vault: Path | None) -> None:
    """Copy what is readable in a damaged store to a new one.

    SOURCE is not changed; TARGET must not exist. Every undamaged entry is copied with its position,
    time and history; index and vectors are computed again. Entries that cannot be read are taken
    from the log of the store's vault, if it has them. Tokens, jobs and recall notes are copied
    as far as they can be read; the link to a vault is not copied. The exit code is 1 if something
    was lost.
    """
    with progress("salvaging") as shown:
        report = salvage_store(
            source,
            target,
            progress=shown,
            vault_entries=lambda known: read_entries(str(vault.expanduser()) if vault else known),
        )
    if options.as_json:
        answer = {"file": str(target), "complete": report.complete}
        print_json(answer | to_json_value(report))
    else:
        print_table(
            ("space", "entries", "lost positions", "affected"),
            [
                (
                    to_line(each.space),
                    each.entries,
                    _ranges(each),
                    to_line("; ".join(each.affected)),
                )
                for each in report.spaces
            ],
            content="affected",
        )
        for line in report.unread:
            print_line(f"Not all of it could be read: {to_line(line)}.")
        for space in report.spaces:
            if space.from_vault:
                taken = pluralize(space.from_vault, "entry", "entries")
                print_line(f"Took {taken} of {to_line(space.space)} from the vault's log.")
            if not space.end_known:
                print_line(
                    f"Where the log of {to_line(space.space)} ended is unknown: more may be lost."
                )
        for name in (name for space in report.spaces for name in space.renamed):
            print_line(f"A name was lost and replaced by {name}.")
        lost = "nothing was lost" if report.complete else "what is named above was lost"
        print_line(f"Saved {pluralize(report.entries, 'entry', 'entries')} in {target}: {lost}.")
        if report.problems:
            print_problems(report.problems)
    exit_on_problems(not report.complete or report.problems)


def _ranges(space: SalvagedSpace) -> str:
    """Return the positions that were lost, such as ``3, 7-9``."""
    return ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in space.lost
    )
