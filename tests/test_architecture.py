"""The architecture: which package may import which, and limits of size and style."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tables import cases_in_one_test

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "reverie"
FILES = sorted(SOURCE.rglob("*.py"))

GROUND = {"model", "errors", "clock", "protocols"}
# The core, from the bottom to the top. A package may import itself and what is before it here,
# but for the siblings that are named in SIBLINGS.
ENGINE = {"engine", "text", *GROUND}
CORE = {"write", "agenda", "embed", "config", "http_guard", "dates", "serialize", *ENGINE}
VERBS = {"recall", "prompt", "history", "transfer", "maintenance"}
TOP = {"memory", *VERBS, *CORE}

# What each package or module may import of Reverie, itself included. What is missing is forbidden.
MAY: dict[str, set[str]] = {
    "model": {"model"},
    "errors": {"errors", "model"},
    "clock": {"clock"},
    "protocols": {"protocols", "model"},
    "config": {"config", "errors", "model"},
    "dates": {"dates", "errors"},
    "serialize": {"serialize", "dates", "model"},
    "http_guard": {"http_guard"},
    "http_transports": {"http_transports", "http_guard", "config"},
    "text": {"text", *GROUND},
    "engine": ENGINE,
    "agenda": {"agenda", "text", *GROUND},
    "embed": {"embed", "text", "config", "http_guard", "http_transports", *GROUND},
    "write": CORE,
    "recall": {"recall", *CORE},
    "history": {"history", *CORE},
    "prompt": {"prompt", "recall", *CORE},
    # A rebuild and a reembed read passages as a recall does.
    "maintenance": {"maintenance", "recall", *CORE},
    # A backup is verified, and a migration refuses a damaged store.
    "transfer": {"transfer", "maintenance", *CORE},
    "memory": TOP,
    "learn": {"learn", "http_transports", *TOP},
    "vault": {"vault", *TOP},
    "testing": {"config"},
    # aio_verbs is a stub that only type checkers read.
    "aio": {"aio_verbs", "memory"},
    "server": {"reverie", "server", "aio", "vault", "http_transports", *TOP},
    "cli": {"reverie", "cli", "aio", "learn", "vault", "server", *TOP},
}

# Calls that look across owners, or that make or resolve one: the operator's.
WITHOUT_OWNER = {
    "log.find_space",
    "log.find_owner",
    "log.ensure_owner",
    "log._add_space",
    "log.advance",
    "log.resolve_owner",
    "log.restore_epoch",
    "log.list_owners",
    "index.require_current_index",
}


def part_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Every part of Reverie that a file imports, wherever in the file it does."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            names = [module]
            if module == "reverie":
                names = [whole_name(alias.name) for alias in node.names]
        else:
            continue
        for name in names:
            if name == "reverie":
                yield "reverie", node.lineno
            elif name.startswith("reverie."):
                yield name.split(".")[1], node.lineno


def whole_name(name: str) -> str:
    """Return ``reverie.dates`` for a module, and ``reverie`` for a public name like ``Hit``."""
    is_part = (SOURCE / f"{name}.py").exists() or (SOURCE / name).is_dir()
    return f"reverie.{name}" if is_part else "reverie"


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@cases_in_one_test("part", sorted(MAY))
def test_imports_follow_the_layer_rules(part: str) -> None:
    paths = [path for path in FILES if part_of(path) == part]
    assert paths or part == "cli", f"there is no {part}"
    for path in paths:
        for name, line in imported(path):
            assert name in MAY[part], f"{name_of(path)}:{line} must not import reverie.{name}"


def test_every_package_has_a_layer_rule() -> None:
    assert {part_of(path) for path in FILES} <= {*MAY, "__init__", "__main__"}


def test_only_the_entry_point_imports_cli() -> None:
    for path in FILES:
        if part_of(path) not in {"cli", "server", "__main__"}:
            assert "cli" not in {name for name, _ in imported(path)}, name_of(path)


def test_package_init_contains_names_only() -> None:
    for node in tree_of(SOURCE / "__init__.py").body:
        assert isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr), ast.dump(node)


_PLAIN = {"apsw", "numpy", "httpx2", "click", "rich", "tokenizers", "safetensors", "pydantic"}
_CORE = {"apsw", "numpy", "tokenizers", "safetensors", "onnxruntime", "httpx2", "click", "rich"}
HEAVY = {
    "model": _PLAIN,
    "errors": _PLAIN,
    "dates": _PLAIN,
    "serialize": _PLAIN,
    "text": _PLAIN,
    "memory": _CORE,
    "write": _CORE,
    "recall": _CORE,
    "prompt": _CORE,
    "history": _CORE,
    "transfer": _CORE,
    "maintenance": _CORE,
    "agenda": {"apsw", "numpy", "httpx2", "click", "rich"},
    "learn": {"apsw", "numpy", "httpx2", "click", "rich", "pydantic_ai", "openai"},
    "engine": {"httpx2", "click", "rich", "tokenizers", "safetensors", "onnxruntime"},
    "embed": {"apsw", "click", "rich", "onnxruntime"},
}
# Nothing loads these before the first recall, so they may load numpy.
FOR_RECALL = {"recall/ranking.py", "recall/hits.py", "recall/recall.py", "recall/views.py"}
# A job names it, and it is loaded when that job runs.
OF_A_JOB = "learn/learner.py"


@cases_in_one_test("part", sorted(HEAVY))
def test_heavy_libraries_are_imported_only_in_their_modules(part: str) -> None:
    for path in FILES:
        if part_of(path) != part:
            continue
        heavy = HEAVY[part] - ({"numpy"} if name_of(path) in FOR_RECALL else set())
        for node in top_level(tree_of(path)):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            for name in names:
                root = name.split(".")[0]
                assert root not in heavy, f"{name_of(path)}:{node.lineno} imports {root}"


def test_modules_for_recall_are_imported_with_the_first_recall() -> None:
    late = {f"reverie.{name.removesuffix('.py').replace('/', '.')}" for name in FOR_RECALL}
    imported_by = set()
    for path in FILES:
        for node in top_level(tree_of(path)):
            names = {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                names = {node.module or "", *(f"{node.module}.{name}" for name in names)}
            if names & late:
                imported_by.add(name_of(path))
    assert imported_by <= {*FOR_RECALL, OF_A_JOB}


def top_level(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is imported."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


# Imports of Reverie inside functions. Lower it when one goes; a new one must replace another.
MAX_LATE_IMPORTS = 28


def late_imports(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports of Reverie's own modules that run when a function is called."""
    found = {
        node
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and imported_modules(node)
    }
    yield from sorted(found, key=lambda node: node.lineno)


def imported_modules(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The modules of Reverie that an import loads, by their dotted names."""
    names = {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        names = {node.module or "", *(f"{node.module}.{name}" for name in names)}
    return names & MODULES.keys()


def dotted_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted_name(path): path for path in FILES}


@cache
def loaded_modules(name: str) -> frozenset[str]:
    """The modules of Reverie that are loaded when this one is imported, itself included."""
    loaded, waiting = set[str](), [name]
    while waiting:
        module = waiting.pop()
        if module not in loaded:
            loaded.add(module)
            for node in top_level(tree_of(MODULES[module])):
                waiting += imported_modules(node)
    return frozenset(loaded)


def test_imports_inside_functions_are_few() -> None:
    """They stay where an optional library or start-up time demands it."""
    found = [f"{name_of(path)}:{node.lineno}" for path in FILES for node in late_imports(path)]
    assert len(found) <= MAX_LATE_IMPORTS, found


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_inside_functions_have_a_reason(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in late_imports(path):
        above = lines[node.lineno - 2].strip()
        assert above.startswith("# "), f"{name_of(path)}:{node.lineno} has no comment above"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_inside_functions_hide_no_circle(path: Path) -> None:
    """What is imported late must not import this module: move what both need below them."""
    own = dotted_name(path)
    for node in late_imports(path):
        for name in imported_modules(node) - {own}:
            # Importing a module loads its package first, which is no circle.
            is_inside = name.startswith(f"{own}.")
            circle = own in loaded_modules(name) and not is_inside
            assert not circle, f"{name_of(path)}:{node.lineno} and {name} import each other"


@pytest.mark.parametrize("module", ["log", "index", "search", "sessions"])
def test_store_functions_require_an_owner(module: str) -> None:
    asked = 0
    for node in ast.walk(tree_of(SOURCE / "engine" / f"{module}.py")):
        if not isinstance(node, ast.FunctionDef):
            continue
        arguments = [*node.args.args, *node.args.kwonlyargs]
        types = {ast.unparse(a.annotation) for a in arguments if a.annotation is not None}
        if "Transaction" not in types or f"{module}.{node.name}" in WITHOUT_OWNER:
            continue
        asked += 1
        assert "Owner" in types, f"engine/{module}.py: {node.name} takes no Owner"
    assert asked > 5


@pytest.mark.parametrize("module", ["log", "index", "search", "sessions"])
def test_every_sql_statement_names_its_space(module: str) -> None:
    """Equality in SQL: a statement about rows that belong to somebody says whose."""
    text = (SOURCE / "engine" / f"{module}.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef) or f"{module}.{node.name}" in WITHOUT_OWNER:
            continue
        body = ast.get_source_segment(text, node) or ""
        if re.search(r'"(SELECT|UPDATE|DELETE|INSERT)|f"(SELECT|WITH)|f"{_EVENT}', body):
            assert "space" in body or "where(owner)" in body, f"engine/{module}.py: {node.name}"
        assert " LIKE " not in body and " GLOB " not in body, f"{module}.{node.name}"


@cases_in_one_test("path", FILES)
def test_no_file_exceeds_the_line_limit(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 900


@cases_in_one_test("path", FILES)
def test_no_function_exceeds_the_line_limit(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 70, f"{name_of(path)}:{node.lineno} {node.name} has {length} lines"


@cases_in_one_test("path", FILES)
def test_exceptions_are_caught_by_name(path: Path) -> None:
    """Background work (worker, watch), the server's entry point and code that reads damaged rows to
    report them may catch everything, anyone else only to raise it again."""
    if name_of(path) in {
        "agenda/worker.py",
        "server/guard.py",
        "vault/watch.py",
        "engine/salvage_reader.py",
        "maintenance/damage.py",
        "maintenance/verify.py",
    }:
        return
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = "" if node.type is None else ast.unparse(node.type)
        broad = not caught or bool({"Exception", "BaseException"} & set(re.findall(r"\w+", caught)))
        again = isinstance(node.body[-1], ast.Raise)
        assert not broad or again, f"{name_of(path)}:{node.lineno} catches everything"
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"suppress\((Base)?Exception\)", text), name_of(path)


@cases_in_one_test("path", FILES)
def test_source_contains_no_todo(path: Path) -> None:
    found = re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text(encoding="utf-8"))
    assert found is None, name_of(path)


@cases_in_one_test("path", FILES)
def test_every_module_has_a_docstring(path: Path) -> None:
    assert path.name == "__main__.py" or ast.get_docstring(tree_of(path)), name_of(path)


def test_only_the_cli_prints() -> None:
    for path in FILES:
        if part_of(path) == "cli":
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"print", "eval", "exec"}, name_of(path)


HANDLES = {"Store": "memory/store.py", "Space": "memory/space.py", "Session": "memory/session.py"}
# How a test waits for the worker thread of a store, for which there is no public way.
FOR_TESTS = {"_stop", "_worker"}


def private_names(path: Path, kind: str) -> set[str]:
    """The underscore attributes and methods of a class."""
    (found,) = [
        node for node in tree_of(path).body if isinstance(node, ast.ClassDef) and node.name == kind
    ]
    names = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    names |= {
        node.attr
        for node in ast.walk(found)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_private_attributes_of_handles_are_used_by_their_class_only() -> None:
    """Other code uses ``runtime``, ``author`` and ``writer()``; a private name of a handle is
    looked up on ``self`` and nowhere else."""
    private = set().union(*(private_names(SOURCE / path, kind) for kind, path in HANDLES.items()))
    assert {"_runtime", "_author"} <= private
    for path in FILES:
        assert not list(foreign_uses(path, private)), path
    for path in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]:
        assert not list(foreign_uses(path, private - FOR_TESTS)), path


def foreign_uses(path: Path, private: set[str]) -> Iterator[str]:
    """Where a file uses one of these names on anything but ``self``."""
    # To parse all the tests takes seconds.
    if not re.search(rf"\.\s*(?:{'|'.join(private)})\b", path.read_text(encoding="utf-8")):
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and node.attr in private:
            whose = ast.unparse(node.value)
            if whose not in {"self", "cls"}:
                yield f"line {node.lineno}: {whose}.{node.attr}"
