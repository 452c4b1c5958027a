"""The options that commands share (--url, --space, --user, --json), and what they open."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from reverie import config
from reverie.cli.exit_codes import PROBLEMS_FOUND
from reverie.cli.output import (
    print_json,
    print_line,
    print_stderr,
    print_table,
    to_line,
    truncate_line,
    upgrade_progress,
)
from reverie.config import Settings, UpgradeBackup
from reverie.engine.sqlite.store_file import parse_url
from reverie.errors import InvalidInput, NotFound, ReverieError
from reverie.memory import Space, Store
from reverie.memory import open as open_store
from reverie.serialize import to_json_value
from reverie.text.spoken_times import parse_spoken_time

Command = TypeVar("Command", bound=Callable[..., Any])

_URL = click.option(
    "--url", metavar="URL", help="The store: a path, or a sqlite:// or postgresql:// address."
)
_SPACE = click.option("--space", metavar="NAME", help="The space to work in.")
_USER = click.option("--user", metavar="NAME", help="The user to act as.")
_NO_BACKUP = click.option(
    "--no-backup", is_flag=True, help="If the store needs an upgrade, do not back it up first."
)
# Eager, so that the values of other options are read when it is known.
_JSON = click.option(
    "--json", "as_json", is_flag=True, is_eager=True, help="Print one JSON document."
)


def parse_time(text: str) -> str:
    """Return the time that a text on the command line names, as ISO 8601.

    Without a zone it is a time of this machine's. What was said in words is shown as it was read.
    """
    if not text:
        return text
    try:
        exact = datetime.fromisoformat(text.strip())
        return (exact if exact.tzinfo else exact.astimezone()).isoformat()
    except (ValueError, OverflowError):
        moment = parse_spoken_time(text, datetime.now(UTC))
    if moment is None:
        raise click.BadParameter(
            f"{text!r} is no time: write 2026-01-31, 2026-01-31 9:00, yesterday, next Tuesday "
            "9:00, 3 days ago or in 2h"
        )
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("as_json"):
        print_stderr(f"{text!r} is {moment.isoformat(' ', 'minutes')}.")
    return moment.isoformat()


def time_option(name: str, help: str) -> Callable[[Command], Command]:
    """An option that takes a time as people say it."""
    return click.option(name, type=parse_time, metavar="TIME", help=help)


# The largest integer that every database column takes.
POSITIVE_INT = click.IntRange(1, 2**31 - 1)
KEY_OPTION = click.option(
    "--key", metavar="KEY", help="Idempotency key: a write repeated with the same key acts once."
)
LIMIT_OPTION = click.option(
    "--limit", type=POSITIVE_INT, default=20, help="Show at most this many."
)
OUTPUT_OPTION = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=lambda ctx, option, path: None if path == Path("-") else path,
    help="Write to this file, atomically, instead of standard output.",
)


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The values of the shared options; None: use the setting."""

    as_json: bool
    url: str | None = None
    space: str | None = None
    user: str | None = None
    no_backup: bool = False
    conflicts: list[str] = field(default_factory=list)
    """Edits of the vault's files that conflict with what the command changed."""

    def settings(self) -> Settings:
        # An unset shell variable must not turn one user's memory into everyone's.
        if self.user is not None and not self.user.strip():
            raise InvalidInput("--user must not be empty: leave it out for the shared memories")
        return config.load(
            url=self.url, space=self.space, user=self.user, upgrade_backup=self.upgrade_backup
        )

    @property
    def upgrade_backup(self) -> UpgradeBackup | None:
        """The setting that --no-backup overrides; None without it."""
        return "off" if self.no_backup else None

    @contextlib.contextmanager
    def open_store(self, *, create: bool = False) -> Iterator[Store]:
        """Open the store until the block ends. Without ``create`` it must exist already."""
        settings = self.settings()
        if not create:
            require_store(settings)
        # _warn_damaged reports the count at the end, as text or JSON; the log would repeat it.
        logging.getLogger("reverie.damage").addHandler(logging.NullHandler())
        with open_showing_upgrade(settings) as store:
            try:
                yield store
            finally:
                self._warn_damaged(store.damaged)
            self._update_vault(store)

    def _update_vault(self, store: Store) -> None:
        """Write a command's changes to the vault before it ends; a failure is only a warning."""
        store.runtime.on_vault_conflict.append(self.conflicts.append)
        click.get_current_context().call_on_close(self._print_conflicts)
        try:
            failure = store.flush_to_vault()
        except ReverieError as error:
            failure = str(error)
        if failure is not None:
            print_stderr(f"The vault does not show this yet: {to_line(failure)}")

    def _warn_damaged(self, damaged: int) -> None:
        """Say on standard error how many damaged entries are missing from the answer."""
        if damaged and self.as_json:
            print_stderr(f'{{"warning": {{"damaged": {damaged}}}}}')
        elif damaged:
            what = "1 damaged entry was" if damaged == 1 else f"{damaged} damaged entries were"
            print_stderr(f"reverie: {what} left out: 'reverie verify' says what is damaged")

    @contextlib.contextmanager
    def open_space(self, *, create: bool = False) -> Iterator[Space]:
        """Open the space of the options or settings, with a person's trust."""
        with self.open_store(create=create) as store:
            settings = store.settings
            space = store.space(
                settings.space, user=settings.user or None, actor="cli", trust="person"
            )
            yield space
            self._hint_at_proposals(space)

    def _hint_at_proposals(self, space: Space) -> None:
        """Say at the end how many proposals wait for an answer, unless the command is for them."""
        command = click.get_current_context()
        if self.as_json or "proposals" in command.command_path.split():
            return
        waiting = len(space.proposals())
        if waiting:
            wait = "proposal waits" if waiting == 1 else "proposals wait"
            hint = f"{waiting} {wait} for your answer: reverie proposals list"
            command.call_on_close(lambda: print_stderr(hint))

    def confirm(self, question: str, refusal: str) -> None:
        """Ask the person at the terminal, and exit if they decline.

        Where nobody can be asked, InvalidInput is raised with ``refusal``.
        """
        if self.as_json or not sys.stdin.isatty():
            raise InvalidInput(refusal)
        if not click.confirm(question, err=True):
            print_stderr("Aborted.")
            click.get_current_context().exit(PROBLEMS_FOUND)

    def print_result(self, value: Any, line: str, *, cut: bool = False) -> None:
        """Print the result of a command: as JSON, or as one line, ``cut`` to the terminal.

        Conflicts with edited files of the vault are part of it.
        """
        if self.as_json:
            found = {"conflicts": [*self.conflicts]} if self.conflicts else {}
            print_json({**to_json_value(value), **found} if found else value)
            self.conflicts.clear()
            return
        print_line(truncate_line(line) if cut else line)
        self._print_conflicts(print_line)

    def _print_conflicts(self, print_: Callable[[str], None] = print_stderr) -> None:
        """Print the conflicts that are not printed yet."""
        while self.conflicts:
            print_(f"CONFLICT   {to_line(self.conflicts.pop(0))}")

    def print_list(
        self,
        value: Any,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        empty: str,
        **layout: Any,
    ) -> None:
        """Print a list: as JSON, or as a table, or ``empty`` on standard error without rows.

        ``layout`` is as in ``print_table``.
        """
        if self.as_json:
            print_json(value)
        elif found := list(rows):
            print_table(columns, found, **layout)
        else:
            print_stderr(empty)


def open_showing_upgrade(settings: Settings) -> Store:
    """Open a store; if it is upgraded, show how far that is."""
    with upgrade_progress() as shown:
        return open_store(settings=settings, on_upgrade=shown)


def require_store(settings: Settings) -> None:
    """Raise NotFound if the store is a file that does not exist."""
    path = store_file(settings)
    if path is not None and not path.exists():
        raise NotFound(f"No memory store found at {path}: 'reverie remember' makes one")


def store_file(settings: Settings) -> Path | None:
    """Return the path of a SQLite store, which may not exist yet; None for another engine."""
    address = settings.url or config.default_url()
    if "://" in address and not address.startswith("sqlite://"):
        return None
    return parse_url(address)[0]


def _add_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds shared options; the command gets them as CommonOptions."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def collected(*args: Any, **given: Any) -> Any:
            shared = {name: given.pop(name, None) for name in ("url", "space", "user")}
            flags = {name: given.pop(name, False) for name in ("as_json", "no_backup")}
            return command(CommonOptions(**flags, **shared), *args, **given)

        decorated: Any = collected
        for option in reversed(options):
            decorated = option(decorated)
        return cast(Command, decorated)

    return decorate


# For commands that work in one scope.
scope_options = _add_options(_URL, _SPACE, _USER, _NO_BACKUP, _JSON)
# For the operator's commands: those that work across spaces, and those that name one.
store_options = _add_options(_URL, _NO_BACKUP, _JSON)
space_options = _add_options(_URL, _SPACE, _NO_BACKUP, _JSON)
# For commands that name the store in arguments of their own.
upgrade_options = _add_options(_NO_BACKUP, _JSON)
# For commands that need no store.
json_option = _add_options(_JSON)


def examples(*lines: str) -> str:
    """Return the block of examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def read_text_argument(value: str) -> str:
    """Return a text given on the command line; for ``-``, all of standard input."""
    if value != "-":
        return value
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("standard input is not UTF-8 text: convert it first") from error
    return text.rstrip("\r\n")
