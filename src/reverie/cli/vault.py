"""The vault: memories as Markdown files, and their history in git."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reverie.cli.exit_codes import PROBLEMS_FOUND
from reverie.cli.options import POSITIVE_INT, CommonOptions, examples, scope_options, store_options
from reverie.cli.output import (
    escape_control,
    format_minute,
    pluralize,
    print_json,
    print_line,
    print_pairs,
    print_stderr,
    print_table,
    progress,
    table,
    to_line,
)

if TYPE_CHECKING:
    from reverie.vault.missing_files import MissingAction
    from reverie.vault.reader import SyncReport
    from reverie.vault.service import VaultStatus
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reverie.cli.options import space_options

if TYPE_CHECKING:
    from reverie.memory import Store
from dataclasses import asdict

if TYPE_CHECKING:
    from reverie.memory import Space
    from reverie.model import ErasureReport, SessionErasure
    from reverie.vault.git.purge import ScrubReport

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
@store_options
def init_command(asked: CommonOptions, path: Path, spaces: tuple[str, ...], turns: str) -> None:
    """Make a folder the vault of the store.

    All that is remembered is written into it, in one commit. From then on it is mirrored there.
    """
    from reverie.vault import service

    with asked.open_store(create=True) as store, progress("writing") as shown:
        report = service.init(store, path, spaces=spaces or None, turns=turns, progress=shown)
        status = service.status(store)
    if asked.as_json:
        print_json({**_status_json(status), **vars(report)})
    else:
        print_line(
            f"The vault is {status.path}: {pluralize(status.files, 'file')}, {_git_state(status)}."
        )
        _print_report(report)
    _exit_on_problems(report)


@vault_command.command(
    "status", epilog=examples("reverie vault status", "reverie vault status --json")
)
@store_options
def status_command(asked: CommonOptions) -> None:
    """Show where the vault is, and whether files, store and git agree."""
    from reverie.vault import service

    with asked.open_store() as store:
        status = service.status(store)
    if asked.as_json:
        print_json(_status_json(status))
        return
    spaces = "all" if status.spaces is None else ", ".join(map(to_line, status.spaces))
    behind = (
        pluralize(status.behind, "change") + " to be written" if status.behind else "up to date"
    )
    print_pairs(
        {
            "vault": status.path,
            "spaces": spaces,
            "files": f"{status.files}, {behind}",
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
    show_default=True,
    help="Many files are gone: tell it and wait, forget what they held, or write them again.",
)
@store_options
def sync_command(asked: CommonOptions, missing: MissingAction) -> None:
    """Let files and store say the same, once.

    What people changed in the files goes into the store, what the store learned into the files,
    and all of it into git. A deleted file is forgotten; when more than half of a space's files are
    gone, or more than 20, that has to be confirmed with --missing. With 1 as exit code, something
    could not be taken in.
    """
    from reverie.vault import service

    with asked.open_store() as store, progress("syncing") as shown:
        report = service.sync(store, shown, missing=missing)
    if asked.as_json:
        print_json(vars(report))
    else:
        _print_report(report)
        if not report:
            print_line("Files and store say the same.")
    _exit_on_problems(report)


@vault_command.command(
    "watch", epilog=examples("reverie vault watch", "reverie vault watch --json")
)
@store_options
def watch_command(asked: CommonOptions) -> None:
    """Take in what people change in the files, as they save it.

    'reverie serve' and 'reverie worker' do so as well, and write to the files what the store
    learns. With --json every change is one line.
    """
    from reverie.cli.runtime import log_to_stderr, stop_on_signals
    from reverie.vault import service
    from reverie.vault.watch import Watch

    def told(report: SyncReport) -> None:
        if asked.as_json:
            click.echo(json.dumps(vars(report)))
        else:
            _print_report(report)
        sys.stdout.flush()

    with (
        asked.open_store() as store,
        log_to_stderr(store.settings.log_level),
        stop_on_signals() as stop,
    ):
        with service.open_vault(store) as vault:
            root = vault.root
        watch = Watch(store, told)
        if not asked.as_json:
            print_line(f"Watching {root}. Stop with Ctrl-C.")
            sys.stdout.flush()
        watch.run(stop)
    if asked.as_json:
        click.echo(json.dumps({"stopped": stop.name}))
    else:
        print_line(f"Stopped by {stop.name}.")


def _print_report(report: SyncReport) -> None:
    """What needs a look comes last, where it is seen."""
    for name, verb in _VERBS.items():
        for line in getattr(report, name):
            print_line(f"{verb:<11}{to_line(line)}")


def _exit_on_problems(report: SyncReport) -> None:
    if report.problems:
        click.get_current_context().exit(PROBLEMS_FOUND)


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
@click.option("--limit", type=POSITIVE_INT, default=20, show_default=True, help="How many at most.")
@scope_options
def log_command(asked: CommonOptions, id: str | None, limit: int) -> None:
    """List the commits of a space, or of the file of one memory.

    The newest is first. The id of a commit goes with 'reverie vault diff --since'.
    """
    from reverie.vault.git import scoped_history

    with asked.open_space() as space:
        commits = scoped_history.history(space, id, limit)
    if asked.as_json:
        print_json({"commits": commits})
        return
    if not commits:
        print_stderr("There are no commits yet.")
        return
    shown = table("commit", "when", "what", content="what")
    for commit in commits:
        shown.add_row(commit.id[:SHORT_COMMIT], format_minute(commit.at), to_line(commit.subject))
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
@scope_options
def diff_command(asked: CommonOptions, id: str | None, since: str | None) -> None:
    """Show what has changed in the files of a space, or of one memory.

    As a unified diff, against the last commit or another.
    """
    from reverie.vault.git import scoped_history

    with asked.open_space() as space:
        said = scoped_history.diff(space, id, since=since)
    if asked.as_json:
        print_json({"diff": said})
    elif said:
        click.echo(escape_control(said), nl=False)
    else:
        print_stderr(f"Nothing has changed since {to_line(since) or 'the last commit'}.")


@vault_command.command(
    "checkpoint",
    epilog=examples("reverie vault checkpoint", 'reverie vault checkpoint "before the clean-up"'),
)
@click.argument("note", required=False)
@scope_options
def checkpoint_command(asked: CommonOptions, note: str | None) -> None:
    """Commit all that the vault holds, under a note.

    NOTE is manual if it is not given. Nothing changed, nothing is committed.
    """
    from reverie.vault.git import scoped_history

    with asked.open_space() as space:
        made = scoped_history.checkpoint(space, note or "")
    if asked.as_json:
        print_json({"commit": made})
    elif made is None:
        print_stderr("Nothing has changed since the last commit.")
    else:
        print_line(f"Committed {made[:SHORT_COMMIT]}: {to_line(note) or 'manual'}")


MAX_SHOWN = 20


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
    show_default=True,
    help="Make an empty store of the vault, or write the vault anew from the store.",
)
@store_options
def rebuild_command(asked: CommonOptions, path: Path | None, source: str) -> None:
    """Make a store of a vault alone, or a vault of a store alone.

    From the vault, its log tells every version, event and session again as they were; where the log
    is lost, the Markdown still gives every current memory and all that was said. The store must
    be empty, and the vault is its vault from then on.

    From the store, the log and the files of the vault are written anew, into an empty folder or
    where they are. What people changed there is taken in first, and their names and keys stay.

    PATH is the vault; left out, that of the store or of the settings.
    """
    with asked.open_store(create=source == "vault") as store:
        root = _vault_path(store) if path is None else path
        if source == "store":
            _write_vault(asked, store, root)
        else:
            _make_store(asked, store, root)


def _write_vault(asked: CommonOptions, store: Store, root: Path) -> None:
    from reverie.vault.rebuild import to_vault

    with progress("writing") as shown:
        report = to_vault(store, root, shown)
    if asked.as_json:
        print_json({"vault": str(root), "synced": vars(report)})
    else:
        print_line(f"Wrote the vault {root} anew from the store.")
    _print_problems_and_exit([*report.conflicts, *report.problems], asked)


def _make_store(asked: CommonOptions, store: Store, root: Path) -> None:
    from reverie.vault.rebuild import from_vault

    with progress("rebuilding") as shown:
        made = from_vault(store, root, shown)
    if asked.as_json:
        told = {"entries": made.entries, "from_files": made.from_files, "summaries": made.summaries}
        synced = {"synced": vars(made.synced), "problems": made.problems}
        print_json({"vault": str(root), "store": store.url, **told, **synced})
    else:
        entries = pluralize(made.entries, "entry", "entries")
        summaries = pluralize(made.summaries, "summary", "summaries")
        files = f" ({made.from_files} from Markdown alone)" if made.from_files else ""
        print_line(f"Made the store of {root}: {entries}{files} and {summaries}.")
    _print_problems_and_exit([*made.problems, *made.synced.conflicts, *made.synced.problems], asked)


@vault_command.command(
    "adopt",
    epilog=examples(
        "reverie vault adopt ./memory_db", "reverie vault adopt ./memory_db --space home"
    ),
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@space_options
def adopt_command(asked: CommonOptions, path: Path) -> None:
    """Make agent-cli's memory folder the vault, in place.

    Facts become memories (of their session, or of the space where the conversation is global or
    default), turns become events, summaries the sessions' summaries; what was deleted there is
    remembered and forgotten. Each file becomes ours of the same thing, and git keeps it as it was.
    Files that cannot be read are reported and stay. Done again, only what is new is taken.
    """
    from reverie.vault import adopt

    with asked.open_store(create=True) as store, progress("adopting") as shown:
        report = adopt.adopt(store, path, space=store.settings.space, progress=shown)
    if asked.as_json:
        print_json({"vault": str(path), **vars(report)})
    else:
        parts = (
            pluralize(report.memories, "memory", "memories"),
            f"{report.forgotten} forgotten",
            pluralize(report.events, "event"),
            pluralize(report.summaries, "summary", "summaries"),
        )
        print_line(f"Adopted {path}: {', '.join(parts)}.")
    _print_problems_and_exit(report.problems, asked)


def _vault_path(store: Store) -> Path:
    from reverie.errors import VaultError
    from reverie.write import vault_link

    found = vault_link.find_path(store._runtime)
    if found is None:
        raise VaultError("the store has no vault: give its path")
    return Path(found)


def _print_problems_and_exit(problems: Iterable[str], asked: CommonOptions) -> None:
    """What needs a look, one line each; found wrong is not the same as failed."""
    lines = list(problems)
    if not lines:
        return
    if not asked.as_json:
        for line in lines[:MAX_SHOWN]:
            print_line(f"  - {to_line(line)}")
        if len(lines) > MAX_SHOWN:
            print_line(f"  … and {len(lines) - MAX_SHOWN} more: --json lists them all.")
    click.get_current_context().exit(PROBLEMS_FOUND)


HISTORY_HINT = "The vault's git history still holds it: 'reverie vault scrub' takes it out."
REWRITE_OPTION = click.option(
    "--rewrite-history",
    is_flag=True,
    help="Take it out of the vault's git history too, and look whether it is gone.",
)


@vault_command.command(
    "scrub", epilog=examples("reverie vault scrub", "reverie erase Ab3dE6gH --rewrite-history")
)
@store_options
def scrub_command(asked: CommonOptions) -> None:
    """Take everything that was erased out of the vault's git history.

    Commits that held it get new ids; all other words of theirs stay. Then every file and every
    object of git is searched for what was erased. Copies elsewhere, such as clones, are not
    reached.
    """
    from reverie.vault import service

    with asked.open_store() as store:
        done = service.scrub(store)
    if asked.as_json:
        print_json(asdict(done))
    else:
        print_purge(done)
    _exit_if_found(done)


def purge_history(space: Space, *, rewrite: bool) -> ScrubReport | str | None:
    """Rewrite the vault's history if that is wanted, else what to say of it.

    A store without a vault has none.
    """
    from reverie.write import vault_link

    if vault_link.find_path(space._runtime) is None:
        return None
    if not rewrite:
        return HISTORY_HINT
    from reverie.memory import Store
    from reverie.vault import service

    return service.scrub(Store(space._runtime))


def print_purge(done: ScrubReport) -> None:
    """What a scrub came to, in words."""
    if not done.texts and not done.short and not done.commits:
        print_line("Nothing is left to take out of the vault's history.")
        return
    print_line(f"Rewrote {pluralize(done.commits, 'commit')} of the vault's history.")
    looked = f"{pluralize(done.texts, 'erased text')} in every file and every object of git"
    if done.short:
        print_stderr(f"{pluralize(done.short, 'erased text')} too short to be looked for.")
    if not done.found:
        print_line(f"Looked for {looked}: found nowhere.")
        return
    print_stderr(
        f"Looked for {looked}: still found in the following; they cannot be looked for again."
    )
    for place in done.found:
        print_stderr(f"  {place}")


def add_purge_report(
    report: ErasureReport | SessionErasure, done: ScrubReport | str | None
) -> object:
    """The report of an erase, with what became of the history where that was rewritten."""
    if done is None or isinstance(done, str):
        return report
    return {**asdict(report), "history": asdict(done)}


def report_purge(done: ScrubReport | str | None) -> None:
    """What an erase adds to its report."""
    if isinstance(done, str):
        print_stderr(done)
    elif done is not None:
        print_purge(done)
        _exit_if_found(done)


def _exit_if_found(done: ScrubReport) -> None:
    if done.found:
        click.get_current_context().exit(PROBLEMS_FOUND)
