"""The command mcp: an MCP server on standard input and output, and how clients start it."""

from __future__ import annotations

import json
import sys

import click

from reverie.cli import mcp_clients
from reverie.cli.options import CommonOptions, examples, scope_options, store_file
from reverie.cli.output import print_json, print_line, print_stderr
from reverie.cli.runtime import log_to_stderr

ALL_CLIENTS = "every"


@click.command(
    "mcp",
    epilog=examples(
        "reverie mcp",
        "reverie mcp --space work --user ana",
        "reverie mcp --print-config",
        "reverie mcp --print-config claude-code --space work",
    ),
)
@click.option("--session", metavar="ID", help="A session whose private memories are included.")
@click.option(
    "--print-config",
    "client",
    is_flag=False,
    flag_value=ALL_CLIENTS,
    type=click.Choice([ALL_CLIENTS, *mcp_clients.CLIENTS]),
    metavar="[CLIENT]",
    help=f"Print the configuration for a client, and stop: {', '.join(mcp_clients.CLIENTS)}.",
)
@scope_options
def mcp_command(options: CommonOptions, session: str | None, client: str | None) -> None:
    """Give memory to an agent over MCP.

    Speaks the Model Context Protocol on standard input and output, in the scope of --space and
    --user, with full rights. Clients start it themselves: --print-config shows how. The server
    ('reverie serve') offers the same tools at /mcp, and asks for a token.
    """
    if client is not None:
        _print_config(options, client)
        return
    # mcp is an optional library.
    from reverie.server.mcp import stdio

    settings = options.settings()
    if sys.stdin.isatty():
        print_stderr(
            "Waiting for MCP on standard input; --print-config shows how a client starts this."
        )
    with log_to_stderr(settings.log_level):
        stdio.run(settings, session)


def _print_config(options: CommonOptions, client: str) -> None:
    settings = options.settings()
    installation = mcp_clients.Installation.detect(settings, store_file(settings))
    chosen = list(mcp_clients.CLIENTS) if client == ALL_CLIENTS else [client]
    configs = {name: mcp_clients.config(name, installation) for name in chosen}
    if options.as_json:
        print_json(configs)
        return
    for config in configs.values():
        print_line(f"# {config['title']}: {config['where']}")
        for line in config.get("commands", ()):
            print_line(f"# run: {line}")
        for name in ("stdio", "http"):
            if name in config:
                pasted = config[name]
                print_line(f"# {mcp_clients.TRANSPORT_NOTES[name]}")
                print_line(pasted if isinstance(pasted, str) else json.dumps(pasted, indent=2))
        print_line("")
    if installation.url_hidden:
        print_stderr(
            "The address of the store is not printed, it may hold a password: set REVERIE_URL "
            "for the client, or url in ~/.config/reverie/reverie.toml."
        )
