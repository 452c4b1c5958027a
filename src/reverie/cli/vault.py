"""The vault: memories as Markdown files, and their history in git."""

from __future__ import annotations

import click

from reverie.cli.options import examples
from reverie.cli.vault_moves import adopt_command, rebuild_command


@click.group(
    "vault", epilog=examples("reverie vault rebuild ~/memory", "reverie vault adopt ./memory_db")
)
def vault_command() -> None:
    """Memories as Markdown files, and their history in git."""


vault_command.add_command(rebuild_command)
vault_command.add_command(adopt_command)
