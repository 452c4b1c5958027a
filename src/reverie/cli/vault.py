"""The vault: memories as Markdown files, and their history in git."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reverie.cli.exits import FOUND_WRONG
from reverie.cli.options import WHOLE, Asked, examples, in_scope, on_store
from reverie.cli.output import (
    brief,
    count,
    print_json,
    print_pairs,
    print_table,
    progress,
    remark,
    say,
    short_when,
    table,
    visible,
)
from reverie.cli.vault_moves import adopt_command, rebuild_command
from reverie.cli.vault_scrub import scrub_command

if TYPE_CHECKING:
    from reverie.vault.missing import Answer
    from reverie.vault.operations import Status
    from reverie.vault.syncing import Report

SHORT_COMMIT = 12
# What each list of a report is called before a path.
_VERBS = {
    "remembered": "Remembered",
    "revised": "Revised",
    "forgotten": "Forgot",
    "restored": "Restored",
    "moved": "Moved",
    "conflicts": "CONFLICT",
    "problems": "PROBLEM",
}


@click.group(
    "vault",
    epilog=examples(
        "reverie vault init ~/memory",
        "reverie vault status",
        "reverie vault log Ab3dE6gH",
        "reverie vault watch",
    ),
)
def vault_command() -> None:
    """Memories as Markdown files, and their history in git.

    Every memory is a file that can be read, edited, moved and deleted with any program; what is
    done to it is done to the memory. Files and store follow each other while 'reverie serve',
    'reverie worker' or 'reverie vault watch' runs, and when 'reverie vault sync' is called.
    """


vault_command.add_command(rebuild_command)
vault_command.add_command(adopt_command)
vault_command.add_command(scrub_command)


@vault_command.command(
    "init",
    epilog=examples(
        "reverie vault init ~/memory",
        "reverie vault init ~/memory --space ana --space work",
        "reverie vault init ~/memory --turns apart",
    ),
)
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--space", "spaces", multiple=True, metavar="NAME", help="A space to show. Without: all."
)
@click.option(
    "--turns",
    type=click.Choice(["together", "apart"]),
    default="together",
    show_default=True,
    help="One file for a conversation, or one for each turn.",
)
@on_store
def init_command(asked: Asked, path: Path, spaces: tuple[str, ...], turns: str) -> None:
    """Make a folder the vault of the store.

    All that is remembered is written into it, in one commit. From then on it is mirrored there.
    """
    from reverie.vault import operations

    with asked.open_store(create=True) as store, progress("writing") as shown:
        report = operations.init(store, path, spaces=spaces or None, turns=turns, progress=shown)
        status = operations.status(store)
    if asked.as_json:
        print_json({**_status(status), **vars(report)})
    else:
        say(f"The vault is {status.path}: {count(status.files, 'file')}, {_git(status)}.")
        _print_report(report)
    _end(report)


@vault_command.command(
    "status", epilog=examples("reverie vault status", "reverie vault status --json")
)
@on_store
def status_command(asked: Asked) -> None:
    """Show where the vault is, and whether files, store and git agree."""
    from reverie.vault import operations

    with asked.open_store() as store:
        status = operations.status(store)
    if asked.as_json:
        print_json(_status(status))
        return
    spaces = "all" if status.spaces is None else ", ".join(map(brief, status.spaces))
    behind = count(status.behind, "change") + " to be written" if status.behind else "up to date"
    print_pairs(
        {
            "vault": status.path,
            "spaces": spaces,
            "files": f"{status.files}, {behind}",
            "git": f"{_git(status)}, {count(status.uncommitted, 'file')} to be committed",
            "conflicts": len(status.conflicts),
            "missing": len(status.missing),
            "kept out of git": len(status.withheld),
        }
    )
    for path in status.conflicts:
        say(f"  - {path}")
    for path in status.missing:
        say(f"  - {path} is gone: 'reverie vault sync --missing forget' or '--missing restore'")
    for path in status.withheld:
        say(f"  - {path} holds a secret and stays out of git")


def _status(status: Status) -> dict[str, Any]:
    return {
        "path": str(status.path),
        "spaces": status.spaces,
        "files": status.files,
        "behind": status.behind,
        "git": status.git,
        "uncommitted": status.uncommitted,
        "conflict_copies": status.conflicts,
        "missing": status.missing,
        "withheld": status.withheld,
    }


def _git(status: Status) -> str:
    return "in git" if status.git else "without git, which is not installed"


@vault_command.command(
    "sync",
    epilog=examples(
        "reverie vault sync", "reverie vault sync --missing restore", "reverie vault sync --json"
    ),
)
@click.option(
    "--missing",
    type=click.Choice(["ask", "forget", "restore"]),
    default="ask",
    show_default=True,
    help="Many files are gone: tell it and wait, forget what they held, or write them again.",
)
@on_store
def sync_command(asked: Asked, missing: Answer) -> None:
    """Let files and store say the same, once.

    What people changed in the files goes into the store, what the store learned into the files,
    and all of it into git. A deleted file is forgotten; when more than half of a space's files are
    gone, or more than 20, that has to be confirmed with --missing. With 1 as exit code, something
    could not be taken in.
    """
    from reverie.vault import operations

    with asked.open_store() as store, progress("syncing") as shown:
        report = operations.sync(store, shown, missing=missing)
    if asked.as_json:
        print_json(vars(report))
    else:
        _print_report(report)
        if not report:
            say("Files and store say the same.")
    _end(report)


@vault_command.command(
    "watch", epilog=examples("reverie vault watch", "reverie vault watch --json")
)
@on_store
def watch_command(asked: Asked) -> None:
    """Take in what people change in the files, as they save it.

    'reverie serve' and 'reverie worker' do so as well, and write to the files what the store
    learns. With --json every change is one line.
    """
    from reverie.cli.reporting import reporting
    from reverie.cli.stopping import stopping
    from reverie.vault import operations
    from reverie.vault.watching import Watch

    def told(report: Report) -> None:
        if asked.as_json:
            click.echo(json.dumps(vars(report)))
        else:
            _print_report(report)
        sys.stdout.flush()

    with (
        asked.open_store() as store,
        reporting(store.settings.log_level),
        stopping() as stop,
    ):
        with operations.opened(store) as vault:
            root = vault.root
        watch = Watch(store, told)
        if not asked.as_json:
            say(f"Watching {root}. Stop with Ctrl-C.")
            sys.stdout.flush()
        watch.run(stop)
    if asked.as_json:
        click.echo(json.dumps({"stopped": stop.name}))
    else:
        say(f"Stopped by {stop.name}.")


def _print_report(report: Report) -> None:
    """What needs a look comes last, where it is seen."""
    for name, verb in _VERBS.items():
        for line in getattr(report, name):
            say(f"{verb:<11}{brief(line)}")


def _end(report: Report) -> None:
    if report.problems:
        click.get_current_context().exit(FOUND_WRONG)


# -- its history ----------------------------------------------------------------------------------


@vault_command.command(
    "log",
    epilog=examples(
        "reverie vault log",
        "reverie vault log Ab3dE6gH",
        "reverie vault log --space work --limit 100",
    ),
)
@click.argument("id", required=False)
@click.option("--limit", type=WHOLE, default=20, show_default=True, help="How many at most.")
@in_scope
def log_command(asked: Asked, id: str | None, limit: int) -> None:
    """List the commits of a space, or of the file of one memory.

    The newest is first. The id of a commit goes with 'reverie vault diff --since'.
    """
    from reverie.vault import scoped

    with asked.open_space() as space:
        commits = scoped.history(space, id, limit)
    if asked.as_json:
        print_json({"commits": commits})
        return
    if not commits:
        remark("There are no commits yet.")
        return
    shown = table("commit", "when", "what", content="what")
    for commit in commits:
        shown.add_row(commit.id[:SHORT_COMMIT], short_when(commit.at), brief(commit.subject))
    print_table(shown)


@vault_command.command(
    "diff",
    epilog=examples(
        "reverie vault diff",
        "reverie vault diff --since 4f2a91c07be3",
        "reverie vault diff Ab3dE6gH --since HEAD~3",
    ),
)
@click.argument("id", required=False)
@click.option("--since", metavar="COMMIT", help="A commit to compare with. [default: the last]")
@in_scope
def diff_command(asked: Asked, id: str | None, since: str | None) -> None:
    """Show what has changed in the files of a space, or of one memory.

    As a unified diff, against the last commit or another.
    """
    from reverie.vault import scoped

    with asked.open_space() as space:
        said = scoped.diff(space, id, since=since)
    if asked.as_json:
        print_json({"diff": said})
    elif said:
        click.echo(visible(said), nl=False)
    else:
        remark(f"Nothing has changed since {brief(since) or 'the last commit'}.")


@vault_command.command(
    "checkpoint",
    epilog=examples("reverie vault checkpoint", 'reverie vault checkpoint "before the clean-up"'),
)
@click.argument("note", required=False)
@in_scope
def checkpoint_command(asked: Asked, note: str | None) -> None:
    """Commit all that the vault holds, under a note.

    NOTE is manual if it is not given. Nothing changed, nothing is committed.
    """
    from reverie.vault import scoped

    with asked.open_space() as space:
        made = scoped.checkpoint(space, note or "")
    if asked.as_json:
        print_json({"commit": made})
    elif made is None:
        remark("Nothing has changed since the last commit.")
    else:
        say(f"Committed {made[:SHORT_COMMIT]}: {brief(note) or 'manual'}")
