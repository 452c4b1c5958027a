"""Every regular expression of the package takes linear time, whatever text it meets.

The patterns are found by walking the package: a pattern that is built where this test cannot see
it is a failure of its own.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.figures import figure
from tests.regex_attacks import METHODS, slow

SOURCE = Path(__file__).parent.parent / "src" / "reverie"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_CHARS = 100_000

BUILDING = {"compile", *METHODS, "subn"}
HARMLESS = {"escape", "Pattern", "Match"}


class Use(NamedTuple):
    """A pattern, where it is built, and what is done with it."""

    where: str
    pattern: re.Pattern[Any]
    method: str


def module_of(path: Path) -> ModuleType:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    return importlib.import_module(name)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


# To parse every file takes a second in each worker; most do not even name a module for patterns.
NAMES_A_MODULE = re.compile(r"import\b.*\bre\b|\b(?:regex|re2|sre_compile|fnmatch|from re)\b")


def files_with_patterns() -> list[Path]:
    """The files that import ``re``, or call a function of another file that compiles patterns."""
    importing = [
        path
        for path in FILES
        if NAMES_A_MODULE.search(path.read_text(encoding="utf-8"))
        and any(_imports_re(node) for node in ast.walk(tree_of(path)))
    ]
    compilers = {
        call.function for path in importing for call in calls_in(path) if call.method == "compile"
    } - {""}
    named = re.compile(rf"\b(?:{'|'.join(map(re.escape, compilers))})\(") if compilers else None
    return [
        path
        for path in FILES
        if path in importing
        or (
            named is not None
            and named.search(path.read_text(encoding="utf-8"))
            and any(_called_name(node) in compilers for node in ast.walk(tree_of(path)))
        )
    ]


def _called_name(node: ast.AST) -> str | None:
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "id", None) or getattr(called, "attr", None)


def _imports_re(node: ast.AST) -> bool:
    names = {"re", "regex", "re2", "sre_compile", "fnmatch"}
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] in names
    return isinstance(node, ast.Import) and any(
        alias.name.split(".")[0] in names for alias in node.names
    )


# -- where patterns are built ---------------------------------------------------------------------


class Call(NamedTuple):
    """A call of ``re`` somewhere in a file."""

    path: Path
    node: ast.Call
    method: str
    function: str

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(SOURCE)}:{self.function}"


def calls_in(path: Path) -> Iterator[Call]:
    yield from _calls(path, tree_of(path), "")


def _calls(path: Path, node: ast.AST, function: str) -> Iterator[Call]:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = child.name
        if isinstance(child, ast.Call) and (name := _re_name(child.func)) in BUILDING:
            yield Call(path, child, name or "", inside)
        yield from _calls(path, child, inside)


def _re_name(node: ast.AST) -> str | None:
    is_re = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return node.attr if is_re and node.value.id == "re" else None  # type: ignore[attr-defined]


def evaluated(call: Call) -> re.Pattern[Any] | None:
    """The pattern of a call whose arguments are constants or names of its module."""
    given = {word.arg: word.value for word in call.node.keywords}
    place = {"compile": 1, "match": 2, "fullmatch": 2, "search": 2, "findall": 2, "finditer": 2}
    at = place.get(call.method)
    flags = given.get("flags")
    if flags is None and at is not None and len(call.node.args) > at:
        flags = call.node.args[at]
    try:
        values = [
            eval(compile(ast.Expression(node), str(call.path), "eval"), vars(module_of(call.path)))
            for node in (call.node.args[0], flags)
            if node is not None
        ]
    except NameError:
        return None
    return re.compile(*values)


def test_regexes_are_built_only_through_the_re_module() -> None:
    """Another name for ``re``, or ``re.compile`` as a value, would hide a pattern."""
    for path in files_with_patterns():
        called = {call.node.func for call in calls_in(path)}
        for node in ast.walk(tree_of(path)):
            where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            if _imports_re(node):
                assert ast.unparse(node) == "import re", where
            name = _re_name(node)
            if name in BUILDING:
                assert node in called, f"{where}: re.{name} is not called where it stands"
            elif name is not None:
                assert name in HARMLESS or isinstance(getattr(re, name), re.RegexFlag), where


def is_zero_argument_cache(node: ast.AST) -> bool:
    """A function that builds its patterns once, when it is first called."""
    if not isinstance(node, ast.FunctionDef) or node.args.args or node.args.kwonlyargs:
        return False
    return any("cache" in ast.unparse(decorator) for decorator in node.decorator_list)


def _name_calls(node: ast.AST, wanted: str, seen: bool = True) -> Iterator[tuple[int, bool]]:
    """Where a function is called by name, and whether the result is one this test sees."""
    for child in ast.iter_child_nodes(node):
        inside = seen
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inside = is_zero_argument_cache(child)
        if isinstance(child, ast.Call) and ast.unparse(child.func).split(".")[-1] == wanted:
            yield child.lineno, inside
        yield from _name_calls(child, wanted, inside)


# Patterns that are built from arguments while the program runs: what each of them can be.
def _key_shapes() -> list[re.Pattern[str]]:
    from reverie.text.secrets import rules

    bodies = {body for shapes in rules._CANDIDATES.values() for _, body in shapes}
    return [rules._compiled(body) for body in sorted(bodies)]


def _own_secrets() -> list[re.Pattern[str]]:
    return [re.compile(re.escape("an operator's (own) secret+"))]


BUILT_LATER = {
    "text/secrets/rules.py:_compiled": (_key_shapes, "match"),
    "text/secrets/detect.py:find_secrets": (_own_secrets, "finditer"),
}


def test_every_regex_is_compiled_where_this_test_finds_it() -> None:
    """At import, in a function without arguments that is cached, from constants, or listed."""
    for path in files_with_patterns():
        for call in calls_in(path):
            if evaluated(call) is not None or call.where in BUILT_LATER:
                continue
            if call.function and not any(
                is_zero_argument_cache(node) and node.name == call.function
                for node in ast.walk(tree_of(path))
                if isinstance(node, ast.FunctionDef)
            ):
                uses = [use for each in FILES for use in _name_calls(tree_of(each), call.function)]
                unseen = [line for line, seen in uses if not seen]
                assert uses and not unseen, f"{call.where} builds patterns at lines {unseen}"
    assert set(BUILT_LATER) <= {
        call.where for path in files_with_patterns() for call in calls_in(path)
    }


# -- what they are, and what is done with them ----------------------------------------------------


def reachable(name: str, value: Any) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Patterns in a value, each under the name by which code reaches it."""
    if isinstance(value, re.Pattern):
        yield name, value
    elif isinstance(value, dict):
        for each in value.values():
            yield from reachable(name, each)
    elif hasattr(value, "_fields"):
        for field in value._fields:
            yield from reachable(field, getattr(value, field))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from reachable(name, each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for part in dataclasses.fields(value):
            yield from reachable(part.name, getattr(value, part.name))


def patterns_of(path: Path) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The patterns that a module has made when it has been imported and its caches are filled."""
    module = module_of(path)
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", module.__name__) not in {module.__name__, "re"}:
            continue
        yield from reachable(name, value)
    for node in tree_of(path).body:
        if is_zero_argument_cache(node):
            assert isinstance(node, ast.FunctionDef)
            yield from reachable(node.name, getattr(module, node.name)())


def methods_of(name: str, path: Path) -> set[str]:
    """What code does with the pattern, or the patterns, of this name."""
    found: set[str] = set()
    for each in [path] if name.startswith("_") or not name.isupper() else FILES:
        nodes = list(ast.walk(tree_of(each)))
        names = {name, *_aliases(nodes, name)}
        found |= {
            node.attr.replace("subn", "sub")
            for node in nodes
            if isinstance(node, ast.Attribute)
            and node.attr in {*METHODS, "subn"}
            and not names.isdisjoint(_names_in(node.value))
        }
    return found or {"search"}


def _aliases(nodes: list[ast.AST], name: str) -> Iterator[str]:
    """Local names for what a pattern, or a collection of them, is."""
    for node in nodes:
        if isinstance(node, ast.For | ast.comprehension):
            value, target = node.iter, node.target
        elif isinstance(node, ast.Assign):
            value, target = node.value, node.targets[0]
        else:
            continue
        if name in _names_in(value):
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _names_in(node: ast.AST) -> Iterator[str]:
    """Names that an expression may be the value of: not those that it only passes on."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Subscript):
        yield from _names_in(node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield node.func.id
    elif isinstance(node, ast.IfExp):
        yield from _names_in(node.body)
        yield from _names_in(node.orelse)
    elif isinstance(node, ast.Tuple | ast.List):
        for each in node.elts:
            yield from _names_in(each)


def uses_of(path: Path) -> list[Use]:
    """Every pattern of a module with every way in which it is used."""
    where = str(path.relative_to(SOURCE))
    found: dict[tuple[Any, int, str], Use] = {}

    def add(name: str, pattern: re.Pattern[Any], method: str) -> None:
        use = Use(f"{where} {name}", pattern, method)
        found.setdefault((pattern.pattern, pattern.flags, method), use)

    for name, pattern in patterns_of(path):
        for method in sorted(methods_of(name, path)):
            add(name, pattern, method)
    for call in calls_in(path):
        pattern_here = evaluated(call)
        if call.where in BUILT_LATER:
            make, method = BUILT_LATER[call.where]
            for pattern in make():
                add(call.function, pattern, method)
        elif pattern_here is not None and call.method != "compile":
            add(call.function, pattern_here, call.method.replace("subn", "sub"))
        elif pattern_here is not None and call.function:
            add(call.function, pattern_here, "search")
    return list(found.values())


PATHS = {str(path.relative_to(SOURCE)): path for path in files_with_patterns()}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.sample(4)
def test_regex_cost_grows_linearly_with_the_text(name: str) -> None:
    uses = uses_of(PATHS[name])
    faults = [
        f"{use.where}.{use.method}: {attack}: {grown}"
        for use in uses
        if (found := slow(use.pattern, use.method, MAX_CHARS))
        for attack, grown in [found]
    ]
    figure("patterns attacked", len(uses))
    figure("patterns that grow faster than the text", len(faults))
    assert not faults, "\n".join(faults)


def test_route_cost_grows_linearly_with_the_path() -> None:
    """The framework makes patterns of the paths that clients ask for."""
    from fastapi import APIRouter

    paths = {
        route.path_regex
        for path in sorted((SOURCE / "server").rglob("*.py"))
        for router in vars(module_of(path)).values()
        if isinstance(router, APIRouter)
        for route in router.routes
        if hasattr(route, "path_regex")
    }
    assert len(paths) > 20
    slow_ones = [pattern.pattern for pattern in paths if slow(pattern, "match")]
    assert not slow_ones


# -- the check itself -----------------------------------------------------------------------------

OLD_DELIMITER = (
    r"<\|[^<>\n]{0,60}\|>|<｜[^<>\n]{0,60}｜>|<{1,2}/?SYS>{1,2}|\[/?(?:INST|SYS|SYSTEM)\]|"
    r"</?(?:s|bos|eos|start_of_turn|end_of_turn|(?:\w+[:_-])?(?:system|user|assistant|human|"
    r"developer|tool|function|instructions?|prompt|memory|memories|profile|summary|context|"
    r"conversation|document|thinking|message|result)s?(?:[_-]\w+)*)(?:\s[^<>\n]{0,200})?/?>"
)
EXPONENTIAL = (
    (OLD_DELIMITER, "sub"),
    (r"(a+)+$", "match"),
    (r"(?:a|a)*b", "match"),
    (r"(?:a|ab|b)*c", "fullmatch"),
    (r"(x+x+)+y", "search"),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "match"),
    (r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*", "fullmatch"),
    (r'"(?:[^"\\]|\\.|x)*"', "match"),
)
POLYNOMIAL = (
    (r"\s*\s*x", "match"),
    (r"\s+$", "search"),
    (r"<!--.*?-->", "search"),
    (r"(.*),(.*),(.*),x", "match"),
    (r"(\w+\s?)*:", "search"),
    (r"\d+(?:x?)\d+y", "match"),
    (r"\s*(## \S+)?\s*\Z", "sub"),
    (r"a{0,5000}b", "search"),
    (rb"^(?P<name>.*?) ?<[^>]*>", "match"),
)
LINEAR = (
    (r"a+b", "match"),
    (r"(?<!a)a+b", "search"),
    (r"[a-z]{0,50}x", "search"),
    (r"\w+", "findall"),
    (r"(?:ab)*+c", "match"),
    (r"\d+(?:,\d+)*x", "match"),
    (rb"\r?\n", "search"),
    (r"(?:\s*+[,:])?\s++x", "match"),
)


@pytest.mark.parametrize(("pattern", "method"), EXPONENTIAL + POLYNOMIAL)
@pytest.mark.sample(3)
def test_known_quadratic_regexes_are_detected(pattern: str | bytes, method: str) -> None:
    assert slow(re.compile(pattern, re.IGNORECASE), method) is not None


@pytest.mark.parametrize(("pattern", "method"), LINEAR)
def test_linear_regexes_are_not_reported(pattern: str | bytes, method: str) -> None:
    assert slow(re.compile(pattern), method) is None


@pytest.mark.parametrize(
    "source",
    [
        "from re import compile",
        "import re as regular",
        "import re\nPATTERNS = list(map(re.compile, ['a']))",
        "import re\ndef later(text, word):\n    return re.search(word + '+', text)",
        "import re\ndef made(word):\n    return re.compile(word)\n"
        "def later(text):\n    return made('a+').search(text)",
    ],
)
def test_regexes_that_the_search_would_miss_are_detected(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern that the walk would miss fails the walk itself."""
    folder = tmp_path / "hiding"
    folder.mkdir()
    (folder / "__init__.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(globals(), "SOURCE", folder)
    monkeypatch.setitem(globals(), "FILES", [folder / "__init__.py"])
    monkeypatch.setitem(globals(), "BUILT_LATER", {})
    monkeypatch.delitem(sys.modules, "hiding", raising=False)
    with pytest.raises(AssertionError):
        test_regexes_are_built_only_through_the_re_module()
        test_every_regex_is_compiled_where_this_test_finds_it()
