"""Write docs/modules.md: every module of the package with the first line of its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "reverie"
PAGE = ROOT / "docs" / "modules.md"


def first_line(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return said.split("\n\n")[0].replace("\n", " ")


def page() -> str:
    lines = [
        "# Modules",
        "",
        "Every module with the first line of its docstring, made by `python docs/modules.py`.",
    ]
    packages = [SOURCE, *sorted(path.parent for path in SOURCE.rglob("*/__init__.py"))]
    for package in packages:
        name = package.relative_to(SOURCE.parent).as_posix()
        lines += ["", f"## {name}/", "", first_line(package / "__init__.py"), ""]
        lines += ["| module | |", "|---|---|"]
        lines += [
            f"| `{module.name}` | {first_line(module)} |"
            for module in sorted(package.glob("*.py"))
            if not module.name.startswith("__")
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
