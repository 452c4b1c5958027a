"""A vault from a store, a store from a vault, and agent-cli's folder as a vault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reverie.cli.exits import FOUND_WRONG
from reverie.cli.options import Asked, examples, in_space, on_store
from reverie.cli.output import brief, count, print_json, progress, say

if TYPE_CHECKING:
    from reverie.memory import Store

MOST_SHOWN = 20


@click.command(
    "rebuild",
    epilog=examples(
        "reverie vault rebuild ~/memory",
        "reverie vault rebuild ~/memory --url new.db",
        "reverie vault rebuild --from store",
        "reverie vault rebuild ~/another --from store",
    ),
)
@click.argument("path", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--from",
    "source",
    type=click.Choice(["vault", "store"]),
    default="vault",
    show_default=True,
    help="Make an empty store of the vault, or write the vault anew from the store.",
)
@on_store
def rebuild_command(asked: Asked, path: Path | None, source: str) -> None:
    """Make a store of a vault alone, or a vault of a store alone.

    From the vault, its log tells every version, event and session again as they were; where the log
    is lost, the Markdown still gives every current memory and all that was said. The store must
    be empty, and the vault is its vault from then on.

    From the store, the log and the files of the vault are written anew, into an empty folder or
    where they are. What people changed there is taken in first, and their names and keys stay.

    PATH is the vault; left out, that of the store or of the settings.
    """
    with asked.open_store(create=source == "vault") as store:
        root = _vault_of(store) if path is None else path
        if source == "store":
            _write_vault(asked, store, root)
        else:
            _make_store(asked, store, root)


def _write_vault(asked: Asked, store: Store, root: Path) -> None:
    from reverie.vault.rebuilding import to_vault

    with progress("writing") as shown:
        report = to_vault(store, root, shown)
    if asked.as_json:
        print_json({"vault": str(root), "synced": vars(report)})
    else:
        say(f"Wrote the vault {root} anew from the store.")
    _end([*report.conflicts, *report.problems], asked)


def _make_store(asked: Asked, store: Store, root: Path) -> None:
    from reverie.vault.rebuilding import from_vault

    with progress("rebuilding") as shown:
        made = from_vault(store, root, shown)
    if asked.as_json:
        told = {"entries": made.entries, "from_files": made.from_files, "summaries": made.summaries}
        synced = {"synced": vars(made.synced), "problems": made.problems}
        print_json({"vault": str(root), "store": store.url, **told, **synced})
    else:
        entries = count(made.entries, "entry", "entries")
        summaries = count(made.summaries, "summary", "summaries")
        files = f" ({made.from_files} from Markdown alone)" if made.from_files else ""
        say(f"Made the store of {root}: {entries}{files} and {summaries}.")
    _end([*made.problems, *made.synced.conflicts, *made.synced.problems], asked)


@click.command(
    "adopt",
    epilog=examples(
        "reverie vault adopt ./memory_db", "reverie vault adopt ./memory_db --space home"
    ),
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@in_space
def adopt_command(asked: Asked, path: Path) -> None:
    """Make agent-cli's memory folder the vault, in place.

    Facts become memories (of their session, or of the space where the conversation is global or
    default), turns become events, summaries the sessions' summaries; what was deleted there is
    remembered and forgotten. Each file becomes ours of the same thing, and git keeps it as it was.
    Files that cannot be read are reported and stay. Done again, only what is new is taken.
    """
    from reverie.vault import adopting

    with asked.open_store(create=True) as store, progress("adopting") as shown:
        report = adopting.adopt(store, path, space=store.settings.space, progress=shown)
    if asked.as_json:
        print_json({"vault": str(path), **vars(report)})
    else:
        parts = (
            count(report.memories, "memory", "memories"),
            f"{report.forgotten} forgotten",
            count(report.events, "event"),
            count(report.summaries, "summary", "summaries"),
        )
        say(f"Adopted {path}: {', '.join(parts)}.")
    _end(report.problems, asked)


def _vault_of(store: Store) -> Path:
    from reverie.errors import VaultError
    from reverie.memory import vaults

    found = vaults.path_of(store._resources)
    if found is None:
        raise VaultError("the store has no vault: give its path")
    return Path(found)


def _end(problems: Iterable[str], asked: Asked) -> None:
    """What needs a look, one line each; found wrong is not the same as failed."""
    lines = list(problems)
    if not lines:
        return
    if not asked.as_json:
        for line in lines[:MOST_SHOWN]:
            say(f"  - {brief(line)}")
        if len(lines) > MOST_SHOWN:
            say(f"  … and {len(lines) - MOST_SHOWN} more: --json lists them all.")
    click.get_current_context().exit(FOUND_WRONG)
