"""ARCHITECTURE.md and CONTRIBUTING.md name files and functions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "reverie"
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")


def references(page: str) -> list[str]:
    """Everything in backticks that looks like a module, with a name after a colon or without."""
    text = (ROOT / page).read_text("utf-8")
    return sorted(set(re.findall(r"`((?:\w+/)*\w+\.py(?::[\w.]+)?)`", text)))


def bare_names(page: str) -> list[str]:
    """Names of methods and private names that stand in backticks without their file."""
    text = (ROOT / page).read_text("utf-8")
    return sorted(set(re.findall(r"`([A-Z]\w+\.[a-z_]\w*|_\w+)`", text)) - {"CHANGELOG.md"})


@cache
def names_in(path: Path) -> set[str]:
    """Top-level names, and members of classes as ``Class.member``."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            members = (ast.FunctionDef, ast.AsyncFunctionDef)
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, members)}
        if isinstance(node, ast.Assign):
            found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_page_names_existing_files_and_functions(page: str) -> None:
    wrong = []
    for each in references(page):
        place, _, name = each.partition(":")
        path = next((base / place for base in (SOURCE, ROOT) if (base / place).is_file()), None)
        if path is None or (name and name not in names_in(path)):
            wrong.append(each)
    assert wrong == []
    assert len(references(page)) > 10


@pytest.mark.parametrize("page", PAGES)
def test_page_names_methods_with_their_file(page: str) -> None:
    """A name without its file is not checked by the test above."""
    assert bare_names(page) == []
