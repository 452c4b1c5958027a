"""What every measurement shares: its options, one thread, a folder on a disk, a bar, a report."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import reverie
from bench.measuring import Meter
from bench.showing import markdown, plain, table

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
WIDTH = 156


class Bench(ABC):
    """A run: where its stores lie, its bar, its samples and rows, and what to close at the end.

    ``about`` says more of what was measured.
    """

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder = folder
        self.meter = Meter()
        self.about: dict[str, str] = {}
        self.closing = ExitStack()
        self._progress = progress

    def steps(self, what: str, count: int) -> Iterator[int]:
        return iter(self._progress.track(range(count), description=what))

    @abstractmethod
    def run(self) -> None:
        """Measure, and leave the rows in the meter."""

    def more(self) -> dict[str, Any]:
        """What else is worth keeping beside the rows."""
        return {}


def options(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    return parser


def run(title: str, asked: argparse.Namespace, make: Callable[[Path, Progress], Bench]) -> None:
    """Make the bench in a folder of its own, run it, and print and write what it found."""
    if os.environ.get(BLAS_THREADS) != "1":  # it is read when numpy is imported
        os.environ[BLAS_THREADS] = "1"
        os.execv(sys.executable, sys.orig_argv)
    console = Console(stderr=True)
    about, start = machine(), time.perf_counter()
    columns = (
        TextColumn("{task.description:>28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="reverie-bench-", dir=on_disk()) as folder,
        Progress(*columns, console=console) as progress,
    ):
        bench = make(Path(folder), progress)
        with bench.closing:
            bench.run()
    about |= bench.about
    about["took"] = f"{time.perf_counter() - start:.0f} s"
    described = ", ".join(f"{name} {value}" for name, value in about.items())
    if asked.markdown:
        print(f"{described}\n\n{markdown(bench.meter.rows)}")
    else:
        output = Console(width=max(console.width, WIDTH))
        output.print(table(title, bench.meter.rows))
        output.print(described)
    if asked.json:
        text = json.dumps(
            {**plain(about, bench.meter), **bench.more()}, indent=1, ensure_ascii=False
        )
        asked.json.write_text(text + "\n", encoding="utf-8")


def machine() -> dict[str, str]:
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
    return {
        "cpu": f"{model}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "numpy": np.__version__,
        "reverie": reverie.__version__,
    }


def on_disk() -> str | None:
    """A folder for the stores that is no RAM disk: syncing must cost what it costs."""
    for folder in (tempfile.gettempdir(), "/var/tmp", str(Path.cwd())):
        kind = subprocess.run(["df", "-T", folder], capture_output=True, text=True, check=False)
        if Path(folder).is_dir() and "tmpfs" not in kind.stdout:
            return folder
    return None
