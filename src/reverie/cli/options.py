"""What every command takes: where the store is, which scope is meant, how to answer."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from reverie.config import Settings
    from reverie.memory import Space, Store

Command = TypeVar("Command", bound=Callable[..., Any])

_URL = click.option("--url", metavar="URL", help="The store: a path or an address.")
_SPACE = click.option("--space", metavar="NAME", help="The space to work in.")
_USER = click.option("--user", metavar="NAME", help="The user to act for.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")


# What fits into a row of a database.
POSITIVE_INT = click.IntRange(1, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The options every command shares. None: as the settings say."""

    as_json: bool
    url: str | None = None
    space: str | None = None
    user: str | None = None

    def settings(self) -> Settings:
        from reverie import config
        from reverie.errors import InvalidInput

        # A variable that was never set must not turn one user's memory into everyone's.
        if self.user is not None and not self.user.strip():
            raise InvalidInput("--user must not be empty: leave it out for the shared memories")
        return config.load(url=self.url, space=self.space, user=self.user)

    @contextlib.contextmanager
    def open_store(self, *, create: bool = False) -> Iterator[Store]:
        """The store, closed at the end. A command that only reads never makes one."""
        from reverie.memory import open as open_store

        settings = self.settings()
        if not create:
            require_store(settings)
        # The count at the end says it, in the form that was asked for.
        logging.getLogger("reverie.damage").addHandler(logging.NullHandler())
        with open_store(settings=settings) as store:
            try:
                yield store
            finally:
                self._warn_damaged(store.damaged)
            _update_vault(store)

    def _warn_damaged(self, damaged: int) -> None:
        """What is missing from an answer must not look as if it had never been there."""
        from reverie.cli.output import print_stderr

        if damaged and self.as_json:
            print_stderr(f'{{"warning": {{"damaged": {damaged}}}}}')
        elif damaged:
            what = "1 damaged entry was" if damaged == 1 else f"{damaged} damaged entries were"
            print_stderr(f"reverie: {what} left out: 'reverie verify' says what is damaged")

    @contextlib.contextmanager
    def open_space(self, *, create: bool = False) -> Iterator[Space]:
        """A person's handle on the scope that is meant."""
        with self.open_store(create=create) as store:
            settings = store.settings
            yield store.space(
                settings.space, user=settings.user or None, actor="cli", trust="person"
            )


def _update_vault(store: Store) -> None:
    """What a command changed is in the files when it ends; if not, its own work is done anyway."""
    from reverie.cli.output import print_stderr, to_line
    from reverie.errors import ReverieError

    try:
        failure = store.flush_to_vault()
    except ReverieError as error:
        failure = str(error)
    if failure is not None:
        print_stderr(f"The vault does not show this yet: {to_line(failure)}")


def require_store(settings: Settings) -> None:
    from reverie.errors import NotFound

    path = store_file(settings)
    if path is not None and not path.exists():
        raise NotFound(f"No memory store found at {path}: 'reverie remember' makes one")


def store_file(settings: Settings) -> Path | None:
    """The file of a SQLite store, which may not exist yet; None for any other engine."""
    from reverie.config import default_url

    address = settings.url or default_url()
    if "://" in address and not address.startswith("sqlite://"):
        return None
    from reverie.engine.sqlite.store_file import parse_url

    return parse_url(address)[0]


def scope_options(command: Command) -> Command:
    """For commands that work in one scope: --url, --space, --user and --json."""
    return _add_options(command, _URL, _SPACE, _USER, _JSON)


def store_options(command: Command) -> Command:
    """For the operator's commands, which look across spaces: --url and --json."""
    return _add_options(command, _URL, _JSON)


def space_options(command: Command) -> Command:
    """For the operator's commands that name one space: --url, --space and --json."""
    return _add_options(command, _URL, _SPACE, _JSON)


def json_option(command: Command) -> Command:
    """For commands that need no store of the user's: --json alone."""
    return _add_options(command, _JSON)


def _add_options(command: Command, *options: Callable[[Any], Any]) -> Command:
    @functools.wraps(command)
    def collected(*args: Any, **given: Any) -> Any:
        shared = {name: given.pop(name, None) for name in ("url", "space", "user")}
        return command(CommonOptions(as_json=given.pop("as_json"), **shared), *args, **given)

    decorated: Any = collected
    for option in reversed(options):
        decorated = option(decorated)
    return cast(Command, decorated)


def examples(*lines: str) -> str:
    """The block at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def read_text_argument(value: str) -> str:
    """A text given on the command line, or ``-``: all of standard input."""
    if value != "-":
        return value
    from reverie.errors import InvalidInput

    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("standard input is not UTF-8 text: convert it first") from error
    return text.rstrip("\r\n")
