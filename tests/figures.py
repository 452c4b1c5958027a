"""Report the figures that a test measures, so that a proof never states a number typed by hand.

``figure("kills", 1)`` appends one JSON line to the file that ``REVERIE_FIGURES`` names. Lines of
one name are added up, or the largest or smallest is kept. Loaded as a pytest plugin (``-p
tests.figures``) the module also reports how each case ended. Without the variable it does nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from operator import add
from typing import Any, Literal

import pytest

# Read once: the tests remove REVERIE_* from their environment.
FILE = os.environ.get("REVERIE_FIGURES")
SEED = int(os.environ.get("REVERIE_SEED", "0"))
Combine = Literal["sum", "max", "min"]


def figure(name: str, value: float, combine: Combine = "sum") -> None:
    """Report a measured value under a name."""
    _append({"figure": name, "value": float(value), "combine": combine})


def combined(lines: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Combine the values of each name in the way their lines say."""
    functions: dict[str, Callable[[float, float], float]] = {"sum": add, "max": max, "min": min}
    result: dict[str, float] = {}
    for line in lines:
        if "figure" in line:
            name, value = line["figure"], line["value"]
            known = name in result
            result[name] = functions[line["combine"]](result[name], value) if known else value
    return result


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _append(line: dict[str, Any]) -> None:
    if FILE:
        file = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report the outcome of each case; a failing fixture fails its case."""
    if report.when == "call" or report.outcome != "passed":
        if os.environ.get("PYTEST_XDIST_WORKER"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _append({"case": report.nodeid, "outcome": report.outcome, "reason": reason})
