"""Environments that have the libraries of some extras of Reverie, and no others.

They are made of links to what is installed already, so that nothing is downloaded.
"""

from __future__ import annotations

import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: tuple[str, ...] = tuple(PROJECT["optional-dependencies"])


def make_environment(folder: Path, extras: Iterable[str] = ()) -> Path:
    """Make a virtual environment with the dependencies and these extras; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", scheme))
    for distribution in installed_for(extras):
        for name in {Path(file).parts[0] for file in distribution.files or ()} - {"..", "/"}:
            link = site / name
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(name))))
    (site / "reverie.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
    return folder / "bin" / Path(sys.executable).name


def installed_for(extras: Iterable[str]) -> Iterator[metadata.Distribution]:
    """The installed distributions that the dependencies and these extras need, with theirs."""
    optional = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])]
    open_ = [(Requirement(line), "") for line in wanted]
    seen: set[tuple[str, str]] = set()
    found: set[str] = set()
    while open_:
        requirement, of_extra = open_.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        distribution = metadata.distribution(requirement.name)
        name = canonicalize_name(requirement.name)
        if name not in found:
            found.add(name)
            yield distribution
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                needed = distribution.requires or ()
                open_ += [(Requirement(line), extra) for line in needed]
