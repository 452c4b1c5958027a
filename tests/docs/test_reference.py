"""Every command, setting and error is documented, and nothing is documented that does not exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click

from reverie.cli import app
from reverie.config import Settings

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text("utf-8")


def documented(section: str) -> set[str]:
    """The first cells of the table of a section."""
    text = REFERENCE.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))


def test_every_command_is_documented() -> None:
    assert isinstance(app, click.Group)
    assert documented("Commands") == set(app.list_commands(click.Context(app)))


def test_every_setting_is_documented_with_its_variable() -> None:
    names = {field.name for field in fields(Settings)}
    assert documented("Settings") == names
    assert all(f"`REVERIE_{name.upper()}`" in REFERENCE for name in names)


def test_every_default_is_documented() -> None:
    for field in fields(Settings):
        if field.default:
            row = re.search(rf"^\| `{field.name}` .*$", REFERENCE, re.MULTILINE)
            assert row is not None
            assert str(field.default) in row.group(), field.name
