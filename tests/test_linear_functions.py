"""Functions that meet text from outside take linear time, and not only the patterns in them.

A linear pattern in a loop can still be quadratic, so that the functions are pumped as a whole, with
the attacks of their module's patterns and with ordinary pieces of text.
"""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

import reverie.text
from reverie.errors import ReverieError
from reverie.text.frontmatter import InvalidFrontMatter
from tests.conftest import PROVE
from tests.regex_attacks import ORDINARY, Attack, attacks, growth, worst
from tests.test_regexes import SOURCE, uses_of

MAX_CHARS = 100_000 if PROVE else 16_000
SCREENED_AT = 1_000
MANY_OF_PATTERNS = 80 if PROVE else 24
MANY_PUMPED = 3 if PROVE else 2

# The text package whole; elsewhere what reads text that people, clients, models or files bring.
MODULES = [each.name for each in pkgutil.walk_packages(reverie.text.__path__, "reverie.text.")] + [
    "reverie.prompt.escape",
    "reverie.recall.near_duplicates",
    "reverie.recall.query_hints",
    "reverie.learn.rules.statements",
    "reverie.learn.rules.sentences",
    "reverie.transfer.file_formats",
    "reverie.server.proxy.json_edit",
    "reverie.server.proxy.commands",
    "reverie.server.proxy.reply_parser",
    "reverie.vault.names",
    "reverie.vault.render",
    "reverie.vault.git.scoped_history",
]
PIECES = (
    *(
        "a ",
        "a. ",
        "A1b2C3d4 ",
        "key=",
        "password: x ",
        "a: b\n",
        "- a\n",
        "# a\r\n",
        '"a" ',
        "'a ",
    ),
    *("<a", "<system ", "[a", "\\", "{", "[", '{"a":', "```\n", "---\n", "> a\n", "http://a:b@"),
    *("I live in Rome and ", "remember that I ", "May 5 ", "1 ", "\u200d", "e\u0301", "🙂", "%41"),
)
ATTACKS = [Attack("", pump, "!") for pump in [*ORDINARY, *PIECES]]


@cache
def module_attacks(name: str) -> list[Attack]:
    """A part of the attacks on the patterns of a module, those of every pattern alike."""
    path = SOURCE.joinpath(*name.split(".")[1:]).with_suffix(".py")
    lists = [attacks(use.pattern) for use in uses_of(path)]
    many = max(1, MANY_OF_PATTERNS // max(1, len(lists)))
    found = [attack for each in lists for attack in each[:many]]
    return found[:: max(1, len(found) // MANY_OF_PATTERNS)]


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# How a text becomes an argument of each type.
ARGUMENTS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "str | None": str,
    "Any": str,
    "object": message,
    "int": lambda text: 200,
    "bytes": lambda text: text.encode("utf-8", "replace"),
    "TextIO": io.StringIO,
    "Iterable[str]": lambda text: [text],
    "Mapping[str, Any]": message,
    "Mapping[str, Any] | None": message,
    "str | float | bool": str,
    "Sequence[Mapping[str, Any]]": lambda text: [message(text)],
    "Container[int]": lambda text: range(1, 9),
    "datetime": lambda text: datetime(2026, 11, 19, tzinfo=UTC),
}


# These take values of our own that text has been read into, a pattern, or a handle; what reads is
# pumped.
TAKE_NO_TEXT = {
    "reverie.learn.rules.sentences.ignoring_case",
    "reverie.text.frontmatter.replace_lines",
    "reverie.text.frontmatter.dump",
    "reverie.text.frontmatter.update",
    "reverie.text.secrets.rules.find_matches",
}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in MODULES:
        for name, function in vars(importlib.import_module(module)).items():
            named = f"{module}.{name}"
            own = inspect.isfunction(function) and function.__module__ == module
            if own and not name.startswith("_") and named not in TAKE_NO_TEXT:
                yield named, function


def required(function: Callable[..., Any]) -> list[str]:
    """The types of the arguments that a call cannot do without."""
    given = inspect.signature(function).parameters.values()
    return [str(each.annotation) for each in given if each.default is each.empty]


def adapted(function: Callable[..., Any]) -> Callable[[str], object] | None:
    """The function of one text; None when it takes something that cannot be made of one."""
    makers = [ARGUMENTS.get(kind) for kind in required(function)]
    if not makers or None in makers:
        return None

    def run(text: str) -> object:
        for cached in CACHES:
            cached.cache_clear()
        try:
            made = function(*(make(text) for make in makers if make is not None))
            return list(made) if isinstance(made, Iterator) else made
        except (ReverieError, ValueError, InvalidFrontMatter):
            return None

    return run


def _caches() -> list[Any]:
    """What would answer a second measurement from memory."""
    return [
        value
        for name in MODULES
        for value in vars(importlib.import_module(name)).values()
        if hasattr(value, "cache_parameters") and value.cache_parameters()["maxsize"] is not None
    ]


CACHES = _caches()
PUMPED = {name: run for name, function in functions() if (run := adapted(function)) is not None}


def test_every_public_function_of_reverie_text_is_tested_for_linear_cost() -> None:
    """A new function that takes something else has to be listed, with the reason."""
    missing = {name for name, _ in functions() if name not in PUMPED}
    assert not {name for name in missing if name.startswith("reverie.text.")}
    names = {name.rpartition(".")[2] for name in PUMPED}
    assert {"escape_text", "redact_text", "analyse", "extract_statements", "load"} <= names
    assert {"parse", "parse_events"} <= names


@pytest.mark.parametrize("name", PUMPED)
@pytest.mark.sample(6)
def test_function_cost_grows_linearly_with_the_text(name: str) -> None:
    run = PUMPED[name]
    tried = [*ATTACKS, *module_attacks(name.rpartition(".")[0])]
    faults = [
        f"{attack}: {grown}"
        for attack in worst(run, tried, SCREENED_AT, MANY_PUMPED, encode=False)
        if (grown := growth(run, attack, MAX_CHARS)) is not None
    ]
    assert not faults, "\n".join(faults)


def test_quadratic_function_is_detected_by_these_tests() -> None:
    """Each pattern is linear, and so is each step: their number is what grows."""

    def run(text: str) -> object:
        while "a" in text:
            text = text.replace("a", "", 1)
        return text

    assert growth(run, Attack("", "a", "!"), MAX_CHARS * 4) is not None
