"""docs/modules.md equals what docs/modules.py makes from the modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_modules_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("modules", ROOT / "docs" / "modules.py")
    assert spec is not None and spec.loader is not None
    modules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(modules)
    assert modules.PAGE.read_text("utf-8") == modules.page(), "run: python docs/modules.py"
