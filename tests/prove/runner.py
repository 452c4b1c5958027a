"""Run the rows of the table of proofs, one command each, and save each result as it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.figures import combined
from tests.prove.rows import ROWS, Row

ROOT = Path(__file__).parents[2]
SAVED = ROOT / ".prove"
Status = Literal["passed", "failed", "not run"]
# A row that hangs ends as failed instead of keeping the others waiting.
MAX_SECONDS = 4 * 3600
KEPT_OUTPUT = 4_000
# Tests wait for processes, servers and deadlines for part of their time.
WORKERS_PER_CORE = 2
# Files here are never written to a disk.
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Result:
    """What a row reached in one run."""

    id: str
    status: Status
    quick: bool
    seed: int
    revision: str
    figures: dict[str, float] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    output: str = ""


@dataclass(frozen=True)
class Run:
    """The choices that every row of a run shares."""

    quick: bool
    seed: int
    revision: str
    folder: Path = SAVED

    def place(self, row: Row) -> Path:
        return self.folder / ("quick" if self.quick else "full") / f"{row.id}.json"


def save(run: Run, row: Row, result: Result) -> None:
    """Write a result in one step, so that an interruption leaves the old or the new one."""
    place = run.place(row)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(".part")
    part.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
    part.replace(place)


def saved(run: Run, row: Row) -> Result | None:
    """Read the last saved result of a row, of whatever revision."""
    try:
        values = json.loads(run.place(row).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return Result(**{**values, "reasons": tuple(values["reasons"])})


def resumable(run: Run, row: Row) -> Result | None:
    """Return a saved result that the same run of the same revision would repeat."""
    old = saved(run, row)
    same = old is not None and (old.revision, old.seed) == (run.revision, run.seed)
    return old if same and old is not None and old.status != "not run" else None


def command_of(row: Row, *, quick: bool) -> list[str]:
    """Return the command that proves a row; a quick run does what ``make test`` does of it."""
    options = ["-q", "-p", "tests.figures", "-p", "no:cacheprovider", "--tb=short"]
    options += [] if quick else ["-p", "tests.tiers", "--prove"]
    if row.parallel and not quick:
        options += ["-n", str(WORKERS_PER_CORE * (os.cpu_count() or 1)), "--dist", "worksteal"]
    if row.rest:
        named = {test for other in ROWS if not (other.rest or other.only) for test in other.tests}
        options += [f"--deselect={test}" for test in sorted(named)]
    selection = ["-k", row.only] if row.only else []
    return [sys.executable, "-m", "pytest", *options, *selection, *row.tests]


def environment_of(run: Run, row: Row, figures: Path) -> dict[str, str]:
    """Return the environment of a row's command: its counts, and no other setting of ours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REVERIE_", "PYTEST_XDIST_"))
    }
    counts = row.quick if run.quick else row.full
    return {
        **kept,
        **counts,
        "REVERIE_FIGURES": str(figures),
        "REVERIE_SEED": str(run.seed),
        "PYTHONPATH": str(ROOT),
        **({} if row.durable or not MEMORY.is_dir() else {"TMPDIR": str(MEMORY)}),
    }


def missing(row: Row) -> list[str]:
    """Return the files that a row needs and that are not there."""
    files = [test.partition("::")[0] for test in row.tests]
    return [file for file in files if not (ROOT / file).exists()]


def prove(run: Run, row: Row) -> Result:
    """Run one row and judge what it reported."""
    if absent := missing(row):
        reasons = (f"there is no {', '.join(absent)}",)
        return Result(row.id, "not run", run.quick, run.seed, run.revision, reasons=reasons)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.jsonl"
        code, output = _run(command_of(row, quick=run.quick), environment_of(run, row, figures))
        lines = list(_lines(figures))
    return judged(run, row, code, lines, output, round(time.monotonic() - started, 1))


def judged(
    run: Run, row: Row, code: int, lines: list[dict[str, Any]], output: str, seconds: float
) -> Result:
    """Judge a row by how its command ended and by the figures and cases that it reported."""
    outcomes = [line for line in lines if "case" in line]
    values = combined(lines)
    reasons = _shortfalls(run, row, values)
    if code:
        reasons.append(f"the command ended with {code}")
    skips = sorted({line["reason"] for line in outcomes if line["outcome"] == "skipped"})
    # What was left out was not proved, even where everything else passed.
    reasons += [f"left out: {reason.removeprefix('Skipped: ')}" for reason in skips]
    return Result(
        row.id,
        "failed" if reasons else "passed",
        run.quick,
        run.seed,
        run.revision,
        figures=values,
        passed=sum(line["outcome"] == "passed" for line in outcomes),
        failed=sum(line["outcome"] == "failed" for line in outcomes),
        skipped=sum(line["outcome"] == "skipped" for line in outcomes),
        reasons=tuple(reasons),
        seconds=seconds,
        output=output[-KEPT_OUTPUT:] if reasons else "",
    )


def _shortfalls(run: Run, row: Row, values: dict[str, float]) -> list[str]:
    """Say which figures were not reached. A quick run asks for no counts, only for limits."""
    short = []
    for asked in row.asked:
        if asked.figure not in values:
            short.append(f"no figure for {asked.figure}")
        elif not asked.met(values[asked.figure], quick=run.quick):
            short.append(f"{asked.figure}: {values[asked.figure]:,.6g}")
    return short


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command in a process group of its own, and end the whole group with it."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _lines(figures: Path) -> Iterator[dict[str, Any]]:
    if figures.exists():
        for line in figures.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
