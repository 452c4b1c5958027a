"""The commands of the vault: memories as Markdown files, with their history in git."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from reverie.cli.exit_codes import exit_on_problems
from reverie.cli.options import (
    LIMIT_OPTION,
    CommonOptions,
    examples,
    scope_options,
    store_options,
)
from reverie.cli.output import (
    escape_control,
    format_minute,
    pluralize,
    print_first,
    print_json,
    print_line,
    print_pairs,
    print_stderr,
    progress,
    to_line,
)
from reverie.cli.purge import print_purge
from reverie.cli.runtime import log_to_stderr, stop_on_signals
from reverie.errors import VaultError
from reverie.memory import Store
from reverie.serialize import to_json_value
from reverie.vault import service
from reverie.vault.actions import SyncReport
from reverie.vault.git import scoped_history
from reverie.vault.rebuild import from_vault, to_vault
from reverie.vault.service import VaultStatus
from reverie.vault.state import MissingAction
from reverie.vault.watch import Watch
from reverie.write import vault_link

SHORT_COMMIT = 12
# The word that is printed before each path of a report's list.
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
    """Keep memories as Markdown files with a git history.

    Every memory is a file that can be read, edited, moved and deleted with any program, and the
    memory changes with it. Files and store are kept in sync while 'reverie serve', 'reverie worker'
    or 'reverie vault watch' runs, and by 'reverie vault sync'.
    """


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
    "--space",
    "spaces",
    multiple=True,
    metavar="NAME",
    help="A space to include; repeatable. [default: all]",
)
@click.option(
    "--turns",
    type=click.Choice(["together", "apart"]),
    default="together",
    help="One file per conversation, or one per turn.",
)
@store_options
def init_command(options: CommonOptions, path: Path, spaces: tuple[str, ...], turns: str) -> None:
    """Make a folder the vault of the store.

    Everything that is remembered is written into it, in one commit. From then on, every change is
    mirrored there.
    """
    with options.open_store(create=True) as store, progress("writing") as shown:
        report = service.init(store, path, spaces=spaces or None, turns=turns, progress=shown)
        status = service.status(store)
    if options.as_json:
        print_json({**_status_json(status), **vars(report)})
    else:
        print_line(
            f"The vault is {status.path}: {pluralize(status.files, 'file')}, {_git_state(status)}."
        )
        _print_report(report)
    exit_on_problems(report.problems)


@vault_command.command(
    "status", epilog=examples("reverie vault status", "reverie vault status --json")
)
@store_options
def status_command(options: CommonOptions) -> None:
    """Show where the vault is, and whether files, store and git agree.

    The exit code is 1 if a file cannot be read.
    """
    with options.open_store() as store:
        status = service.status(store)
    if options.as_json:
        print_json(_status_json(status))
    else:
        _print_status(status)
    exit_on_problems(status.problems)


def _print_status(status: VaultStatus) -> None:
    spaces = "all" if status.spaces is None else ", ".join(map(to_line, status.spaces))
    behind = [
        *([f"{pluralize(status.behind, 'change')} to be written"] if status.behind else []),
        *([f"{pluralize(len(status.edited), 'edited file')} to be read"] if status.edited else []),
        *([f"{len(status.problems)} cannot be read"] if status.problems else []),
    ]
    print_pairs(
        {
            "vault": status.path,
            "spaces": spaces,
            "files": f"{status.files}, {', '.join(behind) or 'up to date'}",
            "git": f"{_git_state(status)}, {pluralize(status.uncommitted, 'file')} to be committed",
            "conflicts": len(status.conflicts),
            "missing": len(status.missing),
            "kept out of git": len(status.withheld),
        }
    )
    for path in status.conflicts:
        print_line(f"  - {path}")
    for path in status.missing:
        print_line(
            f"  - {path} is gone: 'reverie vault sync --missing forget' or '--missing restore'"
        )
    for path in status.withheld:
        print_line(f"  - {path} holds a secret and stays out of git")
    for line in status.problems:
        print_line(f"PROBLEM    {to_line(line)}")


def _status_json(status: VaultStatus) -> dict[str, Any]:
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
        "edited": status.edited,
        "problems": status.problems,
    }


def _git_state(status: VaultStatus) -> str:
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
    help="If many files are gone: report them and wait, forget their memories, or restore them.",
)
@store_options
def sync_command(options: CommonOptions, missing: MissingAction) -> None:
    """Sync files and store once.

    Changes in the files go into the store, changes in the store into the files, and all of it into
    git. The memory of a deleted file is forgotten; when more than half of a space's files are gone,
    or more than 20, that has to be confirmed with --missing. The exit code is 1 if a change could
    not be read.
    """
    with options.open_store() as store, progress("syncing") as shown:
        report = service.sync(store, shown, missing=missing)
    if options.as_json:
        print_json(vars(report))
    else:
        _print_report(report)
        if not report:
            print_line("Files and store say the same.")
    exit_on_problems(report.problems)


@vault_command.command(
    "watch", epilog=examples("reverie vault watch", "reverie vault watch --json")
)
@store_options
def watch_command(options: CommonOptions) -> None:
    """Read changed files into the store as soon as they are saved.

    'reverie serve' and 'reverie worker' do this too, and also write changes in the store to the
    files. With --json every change is one line.
    """

    def print_change(report: SyncReport) -> None:
        if options.as_json:
            click.echo(json.dumps(vars(report)))
        else:
            _print_report(report)
        sys.stdout.flush()

    with (
        options.open_store() as store,
        log_to_stderr(store.settings.log_level),
        stop_on_signals() as stop,
    ):
        with service.open_vault(store) as vault:
            root = vault.root
        watch = Watch(store, print_change)
        if not options.as_json:
            print_line(f"Watching {root}. Stop with Ctrl-C.")
            sys.stdout.flush()
        watch.run(stop)
    if options.as_json:
        click.echo(json.dumps({"stopped": stop.name}))
    else:
        print_line(f"Stopped by {stop.name}.")


def _print_report(report: SyncReport) -> None:
    """Print what was done; conflicts and problems come last, where they are seen."""
    for name, verb in _VERBS.items():
        for line in getattr(report, name):
            print_line(f"{verb:<11}{to_line(line)}")


# -- git history ----------------------------------------------------------------------------------


@vault_command.command(
    "log",
    epilog=examples(
        "reverie vault log",
        "reverie vault log Ab3dE6gH",
        "reverie vault log --space work --limit 100",
    ),
)
@click.argument("id", required=False)
@LIMIT_OPTION
@scope_options
def log_command(options: CommonOptions, id: str | None, limit: int) -> None:
    """List the commits of a space, or of the file of one memory.

    The newest comes first. The id of a commit can be given to 'reverie vault diff --since'.
    """
    with options.open_space() as space:
        commits = scoped_history.history(space, id, limit)
    options.print_list(
        {"commits": commits},
        ("commit", "when", "what"),
        [(c.id[:SHORT_COMMIT], format_minute(c.at), to_line(c.subject)) for c in commits],
        content="what",
        empty="There are no commits yet.",
    )


@vault_command.command(
    "diff",
    epilog=examples(
        "reverie vault diff",
        "reverie vault diff --since 4f2a91c07be3",
        "reverie vault diff Ab3dE6gH --since HEAD~3",
    ),
)
@click.argument("id", required=False)
@click.option("--since", metavar="COMMIT", help="The commit to compare with. [default: the last]")
@scope_options
def diff_command(options: CommonOptions, id: str | None, since: str | None) -> None:
    """Show what has changed in the files of a space, or of one memory.

    The output is a unified diff against the last commit or the one of --since.
    """
    with options.open_space() as space:
        diff = scoped_history.diff(space, id, since=since)
    if options.as_json:
        print_json({"diff": diff})
    elif diff:
        click.echo(escape_control(diff), nl=False)
    else:
        print_stderr(f"Nothing has changed since {to_line(since) or 'the last commit'}.")


@vault_command.command(
    "checkpoint",
    epilog=examples("reverie vault checkpoint", 'reverie vault checkpoint "before the clean-up"'),
)
@click.argument("note", required=False)
@scope_options
def checkpoint_command(options: CommonOptions, note: str | None) -> None:
    """Commit the whole vault with a note.

    NOTE is the message of the commit, by default "manual". Without changes nothing is committed.
    """
    with options.open_space() as space:
        commit = scoped_history.checkpoint(space, note or "")
    if options.as_json:
        print_json({"commit": commit})
    elif commit is None:
        print_stderr("Nothing has changed since the last commit.")
    else:
        print_line(f"Committed {commit[:SHORT_COMMIT]}: {to_line(note) or 'manual'}")


@vault_command.command(
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
    help="vault: fill an empty store from the vault; store: rewrite the vault from the store.",
)
@store_options
def rebuild_command(options: CommonOptions, path: Path | None, source: str) -> None:
    """Rebuild a store from its vault, or a vault from its store.

    --from vault restores every version, event and session from the vault's log. If the log is lost,
    the Markdown files still give every current memory and every message. The store must be empty,
    and the vault belongs to it from then on.

    --from store writes the log and the files of the vault again, into an empty folder or in place.
    People's changes in the files are read first; the names of the files stay, and so do the keys
    that people added to the front matter.

    PATH is the vault; by default, that of the store or of the settings.
    """
    with options.open_store(create=source == "vault") as store:
        root = _vault_path(store) if path is None else path
        if source == "store":
            _write_vault(options, store, root)
        else:
            _make_store(options, store, root)


def _write_vault(options: CommonOptions, store: Store, root: Path) -> None:
    with progress("writing") as shown:
        report = to_vault(store, root, shown)
    options.print_result(
        {"vault": str(root), "synced": vars(report)},
        f"Wrote the vault {root} again from the store.",
    )
    _print_problems_and_exit([*report.conflicts, *report.problems], options)


def _make_store(options: CommonOptions, store: Store, root: Path) -> None:
    with progress("rebuilding") as shown:
        report = from_vault(store, root, shown)
    entries = pluralize(report.entries, "entry", "entries")
    summaries = pluralize(report.summaries, "summary", "summaries")
    files = f" ({report.from_files} from Markdown alone)" if report.from_files else ""
    options.print_result(
        {"vault": str(root), "store": store.url, **to_json_value(report)},
        f"Made the store of {root}: {entries}{files} and {summaries}.",
    )
    _print_problems_and_exit(
        [*report.problems, *report.synced.conflicts, *report.synced.problems], options
    )


def _vault_path(store: Store) -> Path:
    found = vault_link.find_path(store.runtime)
    if found is None:
        raise VaultError("the store has no vault: give its path")
    return Path(found)


def _print_problems_and_exit(problems: Iterable[str], options: CommonOptions) -> None:
    """Print the problems, one per line, and end with exit code 1 if there are any."""
    lines = list(map(to_line, problems))
    if not options.as_json:
        print_first(lines)
    exit_on_problems(lines)


@vault_command.command(
    "scrub", epilog=examples("reverie vault scrub", "reverie erase Ab3dE6gH --rewrite-history")
)
@store_options
def scrub_command(options: CommonOptions) -> None:
    """Remove everything that was erased from the vault's git history.

    Commits that held it are rewritten and get new ids; the rest of their content stays. Then every
    file and every git object is searched for what was erased. Copies elsewhere, such as clones, are
    not changed.
    """
    with options.open_store() as store:
        done = service.scrub(store)
    if options.as_json:
        print_json(done)
    else:
        print_purge(done)
    exit_on_problems(done.found)
