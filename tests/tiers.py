"""The two tiers of tests: what gates a change (``make test``), and everything (``--prove``).

Without ``--prove`` a run leaves out some cases of large tables, and tests that import ``PROVE``
do fewer rounds. These cases are left out:

- seeds of random tests from the third on;
- of a test with 20 or more places for a fault (the parameter ``at``), two of three;
- of a test with many cases over PostgreSQL, three of four of those. Many is 24 in
  ``tests/contract``, so that a new test of the contract runs on both engines in full, and 4
  elsewhere. Over SQLite every case runs, but for the next two;
- of a test with 100 or more conversations (the parameter ``case``), every other one;
- texts of a megabyte (an id with this word).

How many were left out is the last line of the summary. ``make prove`` and ``make cover`` run all.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

# Set before any test is imported; ``--prove`` makes every test as long as its proof asks.
PROVE: bool = False

SEEDS = 2
MANY_FAULTS, EACH_FAULT = 20, 3
MANY_CONTRACT_CASES, MANY_CASES, EACH_CASE = 24, 4, 4
MANY_CONVERSATIONS, EACH_CONVERSATION = 100, 2
_LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--prove", action="store_true", help="run every case, each at the full length of its proof"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Read the option before the first ``conftest.py`` is imported and asks for ``PROVE``."""
    global PROVE
    PROVE = early_config.known_args_namespace.prove


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what only ``--prove`` runs."""
    left = set() if PROVE else _left_out(items)
    config.stash[_LEFT_OUT] = len(left)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    faults: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    conversations: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    left: set[pytest.Item] = set()
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        name, _, case = item.nodeid.partition("[")
        if ("seed" in params and params["seed"] >= SEEDS) or "megabyte" in case:
            left.add(item)
        elif "at" in params:
            faults[name].append(item)
        elif "postgres" in params.values():
            cases[name].append(item)
        elif "case" in params:
            conversations[name].append(item)
    for group in faults.values():
        if len(group) >= MANY_FAULTS:
            left.update(item for place, item in enumerate(group) if place % EACH_FAULT)
    for group in conversations.values():
        if len(group) >= MANY_CONVERSATIONS:
            left.update(item for place, item in enumerate(group) if place % EACH_CONVERSATION)
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
