"""Prints click's completion scripts."""

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
def completion_command(options: CommonOptions, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = click.get_current_context().find_root().command
    script = completion_class(root, {}, "reverie", "_REVERIE_COMPLETE").source()
    if options.as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
