"""The two tiers of tests: what gates a change (``make test``), and everything (``--prove``).

Without ``--prove`` a run leaves out what takes long, and tests that import ``PROVE`` do fewer
rounds. These cases are left out:

- tests marked ``prove``, unless their file is named on the command line;
- of a test marked ``sample(n)``, all but the first, the (n+1)-th, … of its cases on each engine;
- seeds of random tests from the second on;
- of a test with 20 or more places for a fault (the parameter ``at``), two of three;
- of a test with many cases over PostgreSQL, three of four of those. Many is 8 in
  ``tests/contract`` and 4 elsewhere, so that a new test runs on both engines. Over SQLite every
  case runs, but for the others named here;
- texts of a megabyte (an id with this word).

How many were left out is the last line of the summary. ``make prove`` and ``make cover`` run all.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

# Set before any test is imported; ``--prove`` makes every test as long as its proof asks.
PROVE: bool = False

SEEDS = 1
MANY_FAULTS, EACH_FAULT = 20, 3
MANY_CONTRACT_CASES, MANY_CASES, EACH_CASE = 8, 4, 4
_LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--prove", action="store_true", help="run every case, each at the full length of its proof"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "prove: a long test that only --prove runs")
    config.addinivalue_line("markers", "sample(n): without --prove, run every n-th case alone")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Read the option before the first ``conftest.py`` is imported and asks for ``PROVE``."""
    global PROVE
    PROVE = early_config.known_args_namespace.prove


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what only ``--prove`` runs."""
    named = {Path(arg.partition("::")[0]).name for arg in config.args}
    left = set() if PROVE else _left_out(items, named)
    config.stash[_LEFT_OUT] = len(left)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


def _left_out(items: list[pytest.Item], named: set[str]) -> set[pytest.Item]:
    faults: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    samples: defaultdict[tuple[str, int, bool], list[pytest.Item]] = defaultdict(list)
    left: set[pytest.Item] = set()
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        name, _, case = item.nodeid.partition("[")
        sample = item.get_closest_marker("sample")
        on_postgres = "postgres" in params.values()
        long = item.get_closest_marker("prove") and item.path.name not in named
        if long or params.get("seed", 0) >= SEEDS or "megabyte" in case:
            left.add(item)
        elif sample is not None:
            samples[name, sample.args[0], on_postgres].append(item)
        elif "at" in params:
            faults[name].append(item)
        elif on_postgres:
            cases[name].append(item)
    for (_, each, _), group in samples.items():
        left.update(item for place, item in enumerate(group) if place % each)
    for group in faults.values():
        if len(group) >= MANY_FAULTS:
            left.update(item for place, item in enumerate(group) if place % EACH_FAULT)
    for name, group in cases.items():
        contract = name.startswith("tests/contract/")
        if len(group) >= (MANY_CONTRACT_CASES if contract else MANY_CASES):
            left.update(item for place, item in enumerate(group) if place % EACH_CASE)
    return left


# -- the line in the summary; with xdist only the workers know the number -------------------------


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(_LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    config: pytest.Config = node.config
    count = getattr(node, "workeroutput", {}).get("left_out", 0)
    config.stash[_LEFT_OUT] = max(count, config.stash.get(_LEFT_OUT, 0))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if count := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{count:,} cases left to make prove (tests/tiers.py says which)"
        )
