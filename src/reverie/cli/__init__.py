"""The command line: the library's verbs under the library's names.

The module of a command is imported when the command runs, so that ``reverie --help`` is quick.
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
        "remember": ("memories", "Remember one thing, or many."),
        "recall": ("memories", "Search memories and conversations for a query."),
        "list": ("memories", "List the memories of a space."),
        "show": ("memories", "Show one memory with all its details."),
        "history": ("memories", "List every version of a memory."),
        "revise": ("memories", "Write a new version of a memory."),
        "forget": ("memories", "Forget a memory, or everything from one source."),
        "restore": ("memories", "Bring a forgotten memory back."),
        "erase": ("memories", "Destroy every version of a memory."),
        "profile": ("memories", "Print the profile: the main memories, as text for a prompt."),
    },
    "Sessions": {
        "sessions": ("sessions", "Store conversations, and continue them."),
        "proposals": ("proposals", "Accept or reject proposed memories."),
    },
    "Vault": {
        "vault": ("vault", "Keep memories as Markdown files with a git history."),
    },
    "Serving": {
        "serve": ("serve", "Start the server: REST, proxy, MCP and the page."),
        "token": ("serve", "Create and revoke access tokens."),
        "mcp": ("mcp", "Give memory to an agent over MCP."),
    },
    "Import, export and backup": {
        "export": ("transfer", "Export memories and sessions as JSON."),
        "import": ("transfer", "Import memories and sessions from a file or a folder."),
        "backup": ("transfer", "Back up the whole store, or restore a backup."),
        "verify": ("transfer", "Check a store or a backup for damage."),
        "salvage": ("salvage", "Copy what is readable in a damaged store to a new one."),
        "migrate": ("transfer", "Copy a whole store into another database."),
    },
    "Maintenance": {
        "spaces": ("maintenance", "List the spaces of a store."),
        "doctor": ("maintenance", "Show versions, paths, pending jobs and problems."),
        "jobs": ("maintenance", "List, retry and drop background jobs."),
        "worker": ("maintenance", "Run background jobs until stopped."),
        "reembed": ("maintenance", "Compute every vector again."),
        "rebuild": ("maintenance", "Rebuild the search index from the log."),
        "vacuum": ("maintenance", "Return unused space to the file system."),
        "postgres": ("postgres", "Partition or distribute a PostgreSQL store."),
    },
    "Getting started": {
        "tour": ("tour", "Show what Reverie does, on a temporary store."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}

# What other programs call these commands.
SYNONYMS = {
    **dict.fromkeys(("ask", "find", "query", "search"), "recall"),
    **dict.fromkeys(("add", "note", "put", "save", "store"), "remember"),
    **dict.fromkeys(("del", "delete", "remove", "rm"), "forget"),
    **dict.fromkeys(("all", "ls", "memories"), "list"),
    **dict.fromkeys(("cat", "get"), "show"),
    **dict.fromkeys(("edit", "set", "update"), "revise"),
    **dict.fromkeys(("undelete", "undo"), "restore"),
    **dict.fromkeys(("destroy", "purge", "wipe"), "erase"),
    **dict.fromkeys(("check", "info", "status"), "doctor"),
    **dict.fromkeys(("server", "start", "web"), "serve"),
    "chats": "sessions",
    "log": "history",
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
    """The root group: turns every error into one line and an exit code."""

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
    synonyms=SYNONYMS,
    epilog=EPILOG,
    help="A memory for LLM agents that keeps every word, needs no model to work and survives "
    f"kill -9.\n\n{EXAMPLES}",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, "-V", "--version", prog_name="reverie")
def app() -> None:
    pass


def main() -> None:
    """The entry point of the ``reverie`` program."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show is escaped instead of raising an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app.main()
