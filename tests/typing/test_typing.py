"""Types for users: two programs that call every verb pass mypy (in ``make check``) and pyright."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reverie.memory.session import ScratchpadHandle, Session
from reverie.memory.space import Space
from reverie.memory.store import Store
from tests.typing import async_program, sync_program

# What the docstring of a method says that is public only for other packages of Reverie.
INTERNAL = "For packages of Reverie itself."
FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def installed(package: str) -> Path:
    """The folder of an installed package, which need not be imported."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is missing: run make test"
    return Path(spec.origin).parent


def test_pyright_accepts_the_programs_and_refuses_the_mistakes() -> None:
    node = installed("playwright") / "driver" / "node"
    pyright = installed("basedpyright") / "index.js"
    project = FOLDER / "pyrightconfig.json"
    done = subprocess.run(
        [node, pyright, "--project", project, "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors, 0 warnings" in done.stdout


def test_sync_program_runs(tmp_path: Path) -> None:
    sync_program.main(tmp_path)


def test_async_program_runs(tmp_path: Path) -> None:
    asyncio.run(async_program.main(tmp_path))


@pytest.mark.parametrize("program", [sync_program, async_program], ids=["sync", "async"])
@pytest.mark.parametrize("handle", [Store, Space, Session, ScratchpadHandle])
def test_programs_call_every_verb(handle: type, program: object) -> None:
    called = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(program)))  # type: ignore[arg-type]
        if isinstance(node, ast.Attribute)
    }
    public = {name for name in dir(handle) if not name.startswith("_")}
    internal = {name for name in public if INTERNAL in (getattr(handle, name).__doc__ or "")}
    assert public - internal <= called


def test_stub_of_async_verbs_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("aio_verbs", ROOT / "docs" / "aio_verbs.py")
    assert spec is not None and spec.loader is not None
    verbs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(verbs)
    assert verbs.STUB.read_text("utf-8") == verbs.stub(), "run: python docs/aio_verbs.py"


def test_openai_loop_is_the_one_of_the_guide() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text("utf-8")
    [loop] = re.findall(r"^```python\n(from openai import OpenAI\n.*?)^```$", guide, re.M | re.S)
    imports, body = loop.split("\n\n", 1)
    checked = (FOLDER / "openai_loop.py").read_text("utf-8")
    assert body in checked
    assert all(line in checked.splitlines() for line in imports.splitlines())
