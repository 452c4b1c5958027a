"""Servers, workers, clients and a vault under kills, pauses and partitions keep every promise.

A seed gives the whole schedule. ``REVERIE_CRASH_SIMULATIONS`` says how many seeds each engine gets,
``REVERIE_SEED`` where they begin: a failing one is repeated by the command that the failure prints.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import PROVE
from tests.figures import SEED, figure
from tests.servers import Server
from tests.simulation.history import check, counted
from tests.simulation.schedule import drawn
from tests.simulation.world import VISIBLE, World

SIMULATIONS = int(os.environ.get("REVERIE_CRASH_SIMULATIONS", "1"))
STEPS, FAULTS = (40, 12) if PROVE else (8, 3)


@pytest.mark.parametrize("number", range(SIMULATIONS))
@pytest.mark.parametrize("engine", [pytest.param("postgres", marks=pytest.mark.prove), "sqlite"])
def test_simulation_keeps_every_acknowledged_write_once(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str, number: int
) -> None:
    seed = SEED + number
    address, socket = str(tmp_path / "store.db"), None
    if engine == "postgres":
        server: Server = request.getfixturevalue("postgres")
        address, socket = server.database(template="made"), server.folder / ".s.PGSQL.5432"
    schedule = drawn(seed, network=engine == "postgres", steps=STEPS, faults=FAULTS)
    world = World(tmp_path, address, socket)
    print(
        f"repeat: REVERIE_SEED={seed} .venv/bin/pytest {'--prove ' if PROVE else ''}"
        f"'tests/simulation/test_simulation.py::{request.node.originalname}"
        f"[{engine}-0]'"
    )
    world.run(schedule)
    problems = check(world.history, world.observe(), VISIBLE)
    kinds = counted(problems)
    figure("seeds", 1)
    figure("faults", world.faults)
    acknowledged = world.history.acknowledged()
    figure("acknowledged writes", acknowledged)
    figure("writes of unknown outcome", len(world.history.operations) - acknowledged)
    figure("acknowledged writes missing", kinds["missing"] + kinds["unlearned"])
    figure("writes made twice", kinds["twice"])
    figure("canaries seen elsewhere", kinds["crossed"])
    assert problems == [], f"seed {seed}"
