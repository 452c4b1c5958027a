"""Removes erased text from the vault's git history; shared by the commands that erase."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from reverie.cli.exit_codes import exit_on_problems
from reverie.cli.output import pluralize, print_line, print_stderr
from reverie.errors import MissingExtra
from reverie.memory import Space, Store
from reverie.model import ErasureReport, SessionErasure
from reverie.write import vault_link

if TYPE_CHECKING:
    from reverie.vault.git.purge import ScrubReport

HISTORY_HINT = "The vault's git history still has it: 'reverie vault scrub' removes it."


def _require_filter_repo(_context: object, _option: object, rewrite: bool) -> bool:
    """Refuse before anything is erased: what was erased is searched for only once."""
    if rewrite and find_spec("git_filter_repo") is None:
        raise MissingExtra("--rewrite-history", "vault")
    return rewrite


REWRITE_OPTION = click.option(
    "--rewrite-history",
    is_flag=True,
    callback=_require_filter_repo,
    help="Remove it from the vault's git history too, and check that it is gone.",
)


def purge_history(space: Space, *, rewrite: bool) -> ScrubReport | str | None:
    """Rewrite the vault's git history if ``rewrite`` is set, else return a hint how to do it.

    Return None for a store without a vault.
    """
    if vault_link.find_path(space.runtime) is None:
        return None
    if not rewrite:
        return HISTORY_HINT
    # The vault's modules take time to load, and few commands rewrite its history.
    from reverie.vault import service

    return service.scrub(Store(space.runtime))


def print_purge(done: ScrubReport) -> None:
    """Print the report of a scrub."""
    if not done.texts and not done.short and not done.commits:
        print_line("No commit of the vault holds anything that was erased.")
        return
    print_line(f"Rewrote {pluralize(done.commits, 'commit')} of the vault's history.")
    searched = f"{pluralize(done.texts, 'erased text')} in every file and every object of git"
    if done.short:
        print_stderr(f"{pluralize(done.short, 'erased text')} too short to be looked for.")
    if not done.found:
        print_line(f"Looked for {searched}: found nowhere.")
        return
    print_stderr(
        f"Looked for {searched}: still found in these places. Clean them now: a later scrub no "
        "longer knows these texts."
    )
    for place in done.found:
        print_stderr(f"  {place}")


def add_purge_report(
    report: ErasureReport | SessionErasure, done: ScrubReport | str | None
) -> object:
    """Return the report of an erase as JSON, with that of the history if it was rewritten."""
    if done is None or isinstance(done, str):
        return report
    return {**asdict(report), "history": asdict(done)}


def report_purge(done: ScrubReport | str | None) -> None:
    """Print what became of the vault's history after an erase."""
    if isinstance(done, str):
        print_stderr(done)
    elif done is not None:
        print_purge(done)
        exit_on_problems(done.found)
