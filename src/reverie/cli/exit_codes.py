"""Turns errors into one line on standard error and an exit code that a script can act on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

import click

from reverie.errors import (
    Conflict,
    EmbeddingError,
    NotFound,
    ReverieError,
    SharedReadOnly,
    StoreError,
    VaultError,
)
from reverie.text.normalize import one_line

PROBLEMS_FOUND = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
STORE = 5
EMBEDDING = 6
INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES = {
    0: "done",
    PROBLEMS_FOUND: "a problem was found (verify, doctor), something was left out "
    "(import, vault sync) or a job failed (worker)",
    USAGE: "the command line, a value or a setting is wrong",
    NOT_FOUND: "no such memory, session, proposal or job, or no store yet",
    CONFLICT: "the write conflicts with what is stored, or the memory is shared",
    STORE: "the store or a file cannot be read or written",
    EMBEDDING: "vectors cannot be made or compared",
    INTERRUPTED: "stopped with Ctrl-C",
    BROKEN_PIPE: "the program that reads the output has ended",
}

_CODES: tuple[tuple[type[ReverieError], int], ...] = (
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (SharedReadOnly, CONFLICT),
    (StoreError, STORE),
    (VaultError, STORE),
    (EmbeddingError, EMBEDDING),
)


class OutputClosed(Exception):
    """The reader of the output has ended. Not an OSError, for which click would exit with 1."""


def run(call: Callable[[], Any], arguments: Sequence[str]) -> int:
    """Run a command line, print its error if it fails, and return the exit code."""
    as_json = "--json" in takewhile(lambda argument: argument != "--", arguments)
    try:
        code = call()
        if sys.stdout is not None:
            sys.stdout.flush()
    except ReverieError as error:
        return _print_error(type(error).__name__, str(error), exit_code(error), as_json)
    except click.Abort:
        return _print_error("Interrupted", "stopped", INTERRUPTED, as_json)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return USAGE
        name = "UsageError" if isinstance(error, click.UsageError) else type(error).__name__
        return _print_error(name, _usage_message(error), USAGE, as_json)
    except (BrokenPipeError, OutputClosed):
        _silence_stdout()
        return BROKEN_PIPE
    except MemoryError:
        return _print_error(
            "MemoryError", "not enough memory: free some and try again", STORE, as_json
        )
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        _silence_stdout()
        return _print_error("OSError", f"{what}{error.strerror or error}", STORE, as_json)
    return code if isinstance(code, int) else 0


def exit_on_problems(problems: object) -> None:
    """End the command with exit code 1 if there are problems."""
    if problems:
        click.get_current_context().exit(PROBLEMS_FOUND)


def exit_code(error: ReverieError) -> int:
    """Return the exit code of an error; one that the caller can correct counts as usage."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), USAGE)


def _print_error(kind: str, message: str, code: int, as_json: bool) -> int:
    line = one_line(message)
    if as_json:
        line = json.dumps({"error": {"type": kind, "message": line}}, ensure_ascii=False)
    else:
        line = f"reverie: {line}"
    click.echo(line, err=True)
    return code


def _usage_message(error: click.ClickException) -> str:
    """Return click's message, with a hint at the help of the command it is about."""
    message = error.format_message().removesuffix(".")
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is None or "--help" in message:
        return message
    return f"{message} ('{ctx.command_path} --help' shows what it takes)"


def _silence_stdout() -> None:
    """Redirect standard output to nowhere: flushing it at exit must not fail again."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return
