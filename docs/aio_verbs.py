"""Write src/reverie/aio_verbs.pyi: the verbs of Store, Space and Session as async code has them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from reverie.aio import NON_BLOCKING

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "reverie" / "memory"
STUB = ROOT / "src" / "reverie" / "aio_verbs.pyi"
HEAD = '''"""The verbs of async handles, for type checkers and editors: nothing can import this.

Made by ``python docs/aio_verbs.py`` from Store, Space, Session and ScratchpadHandle.
"""
'''
# The handles: where each is, the class of its verbs, and how async code has it.
HANDLES = {
    "Store": ("store", "StoreVerbs", "AsyncStore"),
    "Space": ("space", "SpaceVerbs", "AsyncSpace"),
    "Session": ("session", "SessionVerbs", "AsyncSession"),
    "ScratchpadHandle": ("session", "ScratchpadVerbs", "AsyncScratchpad"),
}
# These are written in aio.py.
WRITTEN = {("Store", "close")}
WRAPPED = {name: wrapped for name, (_, _, wrapped) in HANDLES.items()} | {
    "Iterator": "AsyncIterator"
}
INDENT = "    "
# What the docstring of a method says that is public only for other packages of Reverie.
INTERNAL = "For packages of Reverie itself."


class _Wrapped(ast.NodeTransformer):
    """Put what ``aio`` gives back in the place of what the library does."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(WRAPPED.get(node.id, node.id))


class _Module:
    """One module of handles, and where the names in it come from."""

    def __init__(self, name: str) -> None:
        self.tree = ast.parse((SOURCE / f"{name}.py").read_text("utf-8"))
        self.imports: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                self.imports |= {alias.name: f"import {alias.name}" for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    renamed = "" if alias.asname is None else f" as {alias.asname}"
                    line = f"from {node.module} import {alias.name}{renamed}"
                    self.imports.setdefault(alias.asname or alias.name, line)
        for node in self.tree.body:
            defined = [node.name] if isinstance(node, ast.ClassDef) else _assigned(node)
            for each in defined:
                self.imports[each] = f"from reverie.memory.{name} import {each}"

    def verbs(self, name: str) -> Iterator[ast.FunctionDef]:
        """The public methods and properties of a class, in order."""
        [found] = (
            node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name
        )
        for node in found.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            if INTERNAL not in (ast.get_docstring(node) or ""):
                yield node


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _verb(verb: ast.FunctionDef) -> tuple[list[str], list[ast.expr]]:
    """The lines of one verb in the stub, and its annotations."""
    at_once = verb.name in NON_BLOCKING
    assert verb.returns is not None
    returns: ast.expr = _Wrapped().visit(verb.returns)
    is_property = any(isinstance(each, ast.Name) for each in verb.decorator_list)
    if is_property and not at_once:
        returns = ast.parse(f"Coroutine[Any, Any, {ast.unparse(returns)}]", mode="eval").body
    given = verb.args
    annotated = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    used = [each.annotation for each in annotated if each is not None and each.annotation]
    lines = ["@property"] if is_property else []
    word = "def" if is_property or at_once else "async def"
    opening = f"{word} {verb.name}({ast.unparse(given)}) -> {ast.unparse(returns)}:"
    said = ast.get_docstring(verb)
    if said is None:
        return [*lines, f"{opening} ..."], [*used, returns]
    quoted = f'"""{said}"""' if "\n" not in said else f'"""{said}\n"""'
    quoted_lines = [f"{INDENT}{line}" if line else "" for line in quoted.split("\n")]
    return [*lines, opening, *quoted_lines], [*used, returns]


def stub() -> str:
    """The text of the stub, formatted."""
    classes, imports = list[str](), set[str]()
    for name, (where, verbs, _) in HANDLES.items():
        module = _Module(where)
        known = module.imports | {
            **{wrapped: f"from reverie.aio import {wrapped}" for wrapped in WRAPPED.values()},
            "Any": "from typing import Any",
            "AsyncIterator": "from collections.abc import AsyncIterator",
            "Coroutine": "from collections.abc import Coroutine",
        }
        classes += ["", f"class {verbs}:"]
        for verb in module.verbs(name):
            if (name, verb.name) in WRITTEN:
                continue
            lines, annotations = _verb(verb)
            classes += [f"{INDENT}{line}" if line else "" for line in lines]
            for annotation in annotations:
                for node in ast.walk(annotation):
                    if isinstance(node, ast.Name) and node.id in known:
                        imports.add(known[node.id])
    text = "\n".join([HEAD, *sorted(imports), *classes, ""])
    return _formatted(text)


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--fix-only", "--select", "I"], ["format"]):
        done = subprocess.run(  # noqa: S603 - our own formatter
            [*ruff, *command, "--stdin-filename", str(STUB), "-"],
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    STUB.write_text(stub(), "utf-8")
