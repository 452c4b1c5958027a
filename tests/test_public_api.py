"""The public API: names, errors, versions, and the cost of an import."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path

import pytest

import reverie
from reverie import errors

ROOT = Path(__file__).parent.parent
HEAVY = (
    "numpy",
    "apsw",
    "tokenizers",
    "safetensors",
    "pydantic",
    "rich",
    "click",
    "httpx2",
    "wordllama",
    "onnxruntime",
    "yaml",
)
ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, Exception)
]


def test_all_is_sorted_and_complete() -> None:
    names = reverie.__all__
    assert names == sorted(names) and len(names) == len(set(names))
    public = {
        name
        for name, value in vars(reverie).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public | {"__version__"} == set(names)


def test_importing_reverie_loads_nothing_heavy() -> None:
    code = f"import sys, reverie; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_store_without_an_embedder_loads_no_model(tmp_path: Path) -> None:
    code = (
        "import sys, reverie\n"
        f"s = reverie.open({str(tmp_path / 'x.db')!r}, embedder='none')\n"
        "s.space('a').remember('x'); s.space('a').recall('x'); s.close()\n"
        "print([m for m in ('tokenizers', 'safetensors', 'wordllama', 'onnxruntime', 'httpx2', "
        "'rich', 'click') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_server_loads_mcp_with_the_first_mcp_request() -> None:
    code = "import sys, reverie.server.app; print([m for m in ('mcp',) if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_public_documented_and_a_reverie_error(error: type[Exception]) -> None:
    assert issubclass(error, errors.ReverieError)
    assert error.__doc__ and error.__doc__ != Exception.__doc__
    assert error.__name__ in reverie.__all__
    tree = errors.__doc__ or ""
    assert re.search(rf"(^|[ ├└─]){error.__name__}\b", tree, re.MULTILINE), "not in the tree"


def test_documented_error_tree_equals_the_class_tree() -> None:
    """The indentation of the drawing says who descends from whom."""
    parents: list[tuple[int, type[Exception]]] = []
    drawn = 0
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([\s│├└─]*)([A-Z]\w+)", line)
        if found is None or not hasattr(errors, found[2]):
            continue
        depth, error = len(found[1]), getattr(errors, found[2])
        while parents and parents[-1][0] >= depth:
            parents.pop()
        if parents:
            assert parents[-1][1] in error.__bases__, f"{found[2]} is drawn in the wrong place"
        parents.append((depth, error))
        drawn += 1
    assert drawn == len(ERRORS)


def test_version_equals_the_package_metadata() -> None:
    assert reverie.__version__ == metadata.version("reverie")


def test_version_equals_the_newest_changelog_entry() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    found = re.search(r"^## \[?v?(\d+\.\d+\.\d+\S*?)\]?(\s|$)", text, re.MULTILINE)
    assert found is not None and found[1] == reverie.__version__


def test_public_dataclasses_are_frozen_and_documented() -> None:
    for name in reverie.__all__:
        value = getattr(reverie, name)
        if hasattr(value, "__dataclass_params__"):
            assert value.__dataclass_params__.frozen, name
            assert value.__doc__, name


def test_every_public_method_has_a_docstring() -> None:
    for kind in (reverie.Store, reverie.Space):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                assert method.__doc__, f"{kind.__name__}.{name}"


def test_package_ships_py_typed() -> None:
    assert (ROOT / "src" / "reverie" / "py.typed").exists()
