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


def contents(init: Path) -> str:
    """Say what an ``__init__.py`` defines, and for which jobs it registers handlers."""
    names: list[str] = []
    jobs: list[str] = []
    for node in ast.parse(init.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [each.id for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            jobs += [each.value for each in node.value.args if isinstance(each, ast.Constant)]
    public = [name for name in names if not name.startswith("_")]
    said = f"Defines {_quoted(public)}." if public else ""
    return f"{said} Registers the handlers of the jobs {_quoted(jobs)}.".strip() if jobs else said


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page() -> str:
    lines = [
        "# Modules",
        "",
        "Every module with the first line of its docstring, made by `python docs/modules.py`. An "
        "`__init__.py` is listed when it defines something.",
    ]
    packages = [SOURCE, *sorted(path.parent for path in SOURCE.rglob("*/__init__.py"))]
    for package in packages:
        name = package.relative_to(SOURCE.parent).as_posix()
        lines += ["", f"## {name}/", "", first_line(package / "__init__.py"), ""]
        lines += ["| module | |", "|---|---|"]
        if defined := contents(package / "__init__.py"):
            lines.append(f"| `__init__.py` | {defined} |")
        lines += [
            f"| `{module.name}` | {first_line(module)} |"
            for module in sorted(package.glob("*.py"))
            if not module.name.startswith("__")
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
