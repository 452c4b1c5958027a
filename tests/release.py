"""Build the wheel and the sdist, and try them in clean environments: ``make dist``.

The wheel is installed on each supported Python that is at hand, with the server and MCP, and the
sdist on one of them. The installed command then says its version, runs the tour, remembers, recalls
and serves the page. What was not run is printed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import reverie
from tests.environments import ROOT

DIST = ROOT / "dist"
EXTRAS = "server,mcp"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)$")
VERSIONS = [found[1] for each in PROJECT["classifiers"] if (found := PYTHON.match(each))]
# Files without which an installed Reverie would miss something that no import tells.
IN_WHEEL = ("reverie/py.typed", "reverie/aio_verbs.pyi", "reverie/server/web/page/index.html")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


class ReleaseError(Exception):
    """What was built cannot be published."""


def build(folder: Path) -> tuple[Path, Path]:
    """Build both into an empty folder; return the wheel and the sdist."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Check what both hold, and that metadata, changelog and the package have one version."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        head = HeaderParser().parsestr(archive.read(metadata).decode("utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    versions = {reverie.__version__, head["Version"], newest[1] if newest else None}
    if len(versions) > 1:
        raise ReleaseError(f"package, metadata and changelog have different versions: {versions}")
    if head["Requires-Python"] != f">={VERSIONS[0]}":
        raise ReleaseError(
            f"Requires-Python {head['Requires-Python']}, but the classifiers: {VERSIONS}"
        )
    missing = [name for name in IN_WHEEL if name not in names]
    foreign = [name for name in names if not name.startswith("reverie")]
    if missing or foreign:
        raise ReleaseError(f"the wheel lacks {missing}, and has {foreign}")
    with tarfile.open(sdist) as archive:
        root = sdist.name.removesuffix(".tar.gz")
        files = [Path(name).relative_to(root) for name in archive.getnames()]
    held = {str(part) for file in files for part in (file, *file.parents)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    broken = sorted({link for link in LINK.findall(readme) if link.rstrip("/") not in held})
    if broken:
        raise ReleaseError(f"the README of the sdist names files that it lacks: {broken}")


def find_python(version: str) -> str | None:
    """An interpreter of this version that starts, or None."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = f"python{version}"
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))
    for python in (sys.executable if version == own else shutil.which(name), *map(str, pyenv)):
        if python and not subprocess.run([python, "-c", ""], capture_output=True).returncode:
            return python
    return None


def try_out(python: str, package: Path, folder: Path) -> None:
    """Install a package into a clean environment, and use it as somebody new would."""
    environment = folder / "environment"
    call(python, "-m", "venv", str(environment))
    call(environment / "bin/python", "-m", "pip", "install", "-q", f"{package}[{EXTRAS}]")
    command = environment / "bin/reverie"
    if reverie.__version__ not in call(command, "--version"):
        raise ReleaseError(f"the installed command has another version than {reverie.__version__}")
    call(command, "tour")
    store = {"REVERIE_URL": str(folder / "reverie.db")}
    call(command, "remember", "Alec is my boss at TechCorp", "--subject", "Alec", **store)
    (hit,) = json.loads(call(command, "recall", "who is my boss?", "--json", **store))["hits"]
    if hit["text"] != "Alec is my boss at TechCorp":
        raise ReleaseError(f"recall found {hit}")
    check_page(command, store)


def check_page(command: Path, settings: dict[str, str]) -> None:
    """Start the server, fetch the page, and stop the server."""
    with subprocess.Popen(
        [command, "serve", "--port", "0", "--json"],
        env={**clean_environment(), **settings, "REVERIE_TOKEN": "t" * 32},
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                line = server.stdout.readline()
                if not line:
                    raise ReleaseError(f"the server ended: {text}")
                text += line
            page = json.loads(text)["page"].partition("#")[0]
            with urllib.request.urlopen(page, timeout=30) as answer:
                if b"Reverie" not in answer.read():
                    raise ReleaseError(f"{page} is not the page")
        finally:
            server.terminate()


def clean_environment() -> dict[str, str]:
    own = ("REVERIE_", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


def call(*command: str | Path, **settings: str) -> str:
    done = subprocess.run(
        command,
        env={**clean_environment(), **settings},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    wheel, sdist = build(DIST)
    try:
        check_contents(wheel, sdist)
        print(f"built {wheel.name} and {sdist.name}")
        for version in VERSIONS:
            python = find_python(version)
            for package in (wheel, sdist) if version == VERSIONS[0] else (wheel,):
                if python is None:
                    print(f"Python {version}: NOT RUN, it is not at hand")
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    try_out(python, package, Path(folder))
                print(f"Python {version}: {package.name} installs and works")
    except ReleaseError as error:
        print(f"make dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
