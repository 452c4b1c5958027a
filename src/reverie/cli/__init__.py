"""The command line: the library's verbs under the library's names.

Nothing but click is imported until a command runs, so that help and completion are quick.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import click

from reverie import __version__
from reverie.cli.exit_codes import EXIT_CODES, OutputClosed, run
from reverie.cli.lazy import LazyGroup

COMMANDS = {
    "Memories": {
        "remember": ("memories", "Keep one thing."),
        "recall": ("memories", "Find what is most worth knowing for a query."),
        "list": ("memories", "List the memories of a space."),
        "show": ("memories", "Show one memory whole."),
        "history": ("memories", "List every version of a memory."),
        "revise": ("memories", "Write a new version of a memory."),
        "forget": ("memories", "Take a memory, or all of a source, out of every recall."),
        "restore": ("memories", "Bring a forgotten memory back."),
        "erase": ("memories", "Destroy every version of a memory."),
        "profile": ("memories", "Print the block for a prompt of what is known."),
    },
    "Sessions": {
        "sessions": ("sessions", "Keep conversations, and go on with them."),
        "proposals": ("proposals", "Answer what would be remembered if it may."),
    },
    "Vault": {
        "vault": ("vault", "Memories as Markdown files, and their history in git."),
    },
    "Serving": {
        "serve": ("serve", "Start the server: REST, proxy, MCP and the page."),
        "token": ("serve", "Let others in, and shut them out."),
        "mcp": ("mcp", "Give memory to an agent over MCP."),
    },
    "In and out": {
        "export": ("transfer", "Write memories and sessions out as JSON."),
        "import": ("transfer", "Take memories and sessions in from a file."),
        "backup": ("transfer", "Copy the whole store, or bring a copy back."),
        "verify": ("transfer", "Check a store or a backup."),
        "salvage": ("salvage", "Make a new store of all that can be read of a damaged one."),
        "migrate": ("transfer", "Copy a whole store into another database."),
    },
    "Upkeep": {
        "spaces": ("maintenance", "List the spaces of a store."),
        "doctor": ("maintenance", "Show versions, places, pending work and problems."),
        "jobs": ("maintenance", "Look at what is to be done later."),
        "worker": ("maintenance", "Do what is due, until stopped."),
        "reembed": ("maintenance", "Make every vector anew."),
        "rebuild": ("maintenance", "Make the index anew from the log."),
        "vacuum": ("maintenance", "Give unused room back to the file system."),
        "postgres": ("postgres", "Spread a PostgreSQL store by its spaces."),
    },
    "Getting started": {
        "tour": ("tour", "Show what Reverie does, on a throw-away store."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}

EXAMPLES = """\b
Examples:
  reverie tour
  reverie remember "Alec is my boss at TechCorp" --category person --subject Alec
  reverie recall "who is my boss?"
  reverie serve
  reverie list --space work --json
"""

EPILOG = """\b
Exit codes:
""" + "\n".join(f"  {code:<4}{meaning}" for code, meaning in EXIT_CODES.items())


class _Reverie(LazyGroup):
    """The root: every error leaves through one door."""

    def main(  # type: ignore[override]
        self,
        args: Any = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **more: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)

        def call() -> Any:
            return super(_Reverie, self).main(given, "reverie", standalone_mode=False, **more)

        return sys.exit(run(call, given)) if standalone_mode else call()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosed from error


@click.group(
    cls=_Reverie,
    package="reverie.cli",
    sections=COMMANDS,
    epilog=EPILOG,
    help="A memory for LLM agents that keeps every word, needs no model to work and survives "
    f"kill -9.\n\n{EXAMPLES}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", prog_name="reverie")
def app() -> None:
    pass


def main() -> None:
    """The entry point of the ``reverie`` program."""
    for stream in (sys.stdout, sys.stderr):
        # What the terminal cannot show is written out, never a reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app.main()
