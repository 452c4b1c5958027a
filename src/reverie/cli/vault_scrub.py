"""What was erased, taken out of the vault's history as well, with the proof."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from reverie.cli.exits import FOUND_WRONG
from reverie.cli.options import Asked, examples, on_store
from reverie.cli.output import count, print_json, remark, say

if TYPE_CHECKING:
    from reverie.memory import Space
    from reverie.model import ErasureReport, SessionErasure
    from reverie.vault.erasing import Scrubbed

STILL = "The vault's git history still holds it: 'reverie vault scrub' takes it out."
REWRITE = click.option(
    "--rewrite-history",
    is_flag=True,
    help="Take it out of the vault's git history too, and look whether it is gone.",
)


@click.command(
    "scrub", epilog=examples("reverie vault scrub", "reverie erase Ab3dE6gH --rewrite-history")
)
@on_store
def scrub_command(asked: Asked) -> None:
    """Take everything that was erased out of the vault's git history.

    Commits that held it get new ids; all other words of theirs stay. Then every file and every
    object of git is searched for what was erased. Copies elsewhere, such as clones, are not
    reached.
    """
    from reverie.vault import operations

    with asked.open_store() as store:
        done = operations.scrub(store)
    if asked.as_json:
        print_json(asdict(done))
    else:
        tell(done)
    _exit(done)


def history_of(space: Space, *, rewrite: bool) -> Scrubbed | str | None:
    """Rewrite the vault's history if that is wanted, else what to say of it.

    A store without a vault has none.
    """
    from reverie.memory import vaults

    if vaults.path_of(space._resources) is None:
        return None
    if not rewrite:
        return STILL
    from reverie.memory import Store
    from reverie.vault import operations

    return operations.scrub(Store(space._resources))


def tell(done: Scrubbed) -> None:
    """What a scrub came to, in words."""
    if not done.texts and not done.short and not done.commits:
        say("Nothing is left to take out of the vault's history.")
        return
    say(f"Rewrote {count(done.commits, 'commit')} of the vault's history.")
    looked = f"{count(done.texts, 'erased text')} in every file and every object of git"
    if done.short:
        remark(f"{count(done.short, 'erased text')} too short to be looked for.")
    if not done.found:
        say(f"Looked for {looked}: found nowhere.")
        return
    remark(f"Looked for {looked}: still found in the following; they cannot be looked for again.")
    for place in done.found:
        remark(f"  {place}")


def with_history(report: ErasureReport | SessionErasure, done: Scrubbed | str | None) -> object:
    """The report of an erase, with what became of the history where that was rewritten."""
    if done is None or isinstance(done, str):
        return report
    return {**asdict(report), "history": asdict(done)}


def tell_after(done: Scrubbed | str | None) -> None:
    """What an erase adds to its report."""
    if isinstance(done, str):
        remark(done)
    elif done is not None:
        tell(done)
        _exit(done)


def _exit(done: Scrubbed) -> None:
    if done.found:
        click.get_current_context().exit(FOUND_WRONG)
