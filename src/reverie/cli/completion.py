"""Completion scripts, made by click."""

from __future__ import annotations

import click

from reverie.cli.options import CommonOptions, examples, json_option
from reverie.cli.output import print_json

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog=examples(
        "reverie completion bash >> ~/.bash_completion",
        'reverie completion zsh > "${fpath[1]}/_reverie"',
        "reverie completion fish > ~/.config/fish/completions/reverie.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def completion_command(asked: CommonOptions, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root().command
    script = made(root, {}, "reverie", "_REVERIE_COMPLETE").source()
    if asked.as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
