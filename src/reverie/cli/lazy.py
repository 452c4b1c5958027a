"""Command groups: one imports the modules of its commands on demand, one has a default command."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

Sections = Mapping[str, Mapping[str, tuple[str, str]]]


class LazyGroup(click.Group):
    """Knows each command by name, module and one line of help; imports only the one that is called.

    The command ``NAME`` is the attribute ``NAME_command`` of its module. ``synonyms`` are words for
    commands that people try first.
    """

    def __init__(
        self,
        *args: Any,
        package: str,
        sections: Sections,
        synonyms: Mapping[str, str],
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.package = package
        self.sections = sections
        self._synonyms = synonyms
        self._modules = {
            name: module for commands in sections.values() for name, (module, _) in commands.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return None
        module = importlib.import_module(f"{self.package}.{self._modules[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._modules and not args[0].startswith("-"):
            raise click.UsageError(
                f"there is no command {args[0]!r}{self._suggestion(args[0])}", ctx
            )
        return super().resolve_command(ctx, args)

    def _suggestion(self, name: str) -> str:
        from difflib import get_close_matches

        meant = self._synonyms.get(name.lower())
        similar = [meant] if meant else get_close_matches(name, self._modules, n=1)
        return f": did you mean {similar[0]!r}?" if similar else ": 'reverie --help' lists them"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


class DefaultGroup(click.Group):
    """Passes arguments that do not begin with a command to the default command."""

    def __init__(self, *args: Any, default: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names}
        if args and args[0] not in known:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
