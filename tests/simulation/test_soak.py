"""A mixed load with faults for as long as asked: nothing breaks, and nothing grows without end.

``REVERIE_CRASH_SOAK_SECONDS`` is how long it lasts in all, half of it on each engine. The first
server is paused and cut off but never killed, so that its memory and open files can be compared.

Its memory is compared twice, each time with itself under the same kind of work. Under load it may
grow with what is stored, which is measured per write. Afterwards it answers the same questions
again and again: nothing is stored any more, so that whatever still grows is a leak. A commit
empties SQLite's page caches and questions fill them, so one is not comparable with the other.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from tests.conftest import ENGINES
from tests.figures import SEED, figure
from tests.servers import Server
from tests.simulation.history import check
from tests.simulation.schedule import CLIENTS, Schedule, drawn
from tests.simulation.world import VISIBLE, World

SECONDS = float(os.environ.get("REVERIE_CRASH_SOAK_SECONDS", "0"))
PACE = 0.4
# A fault now and then; what was broken heals in between.
SECONDS_A_FAULT = 6.0
# Caches and pools are what they will be after this share of the samples.
WARM = 1 / 3
# One sample may be taken during a large answer: the middle one of these counts.
NEIGHBOURS = 5
SECONDS_A_ROUND_AT_REST = 10.0

pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="runs with REVERIE_CRASH_SOAK_SECONDS"),
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc"),
]


def scheduled(seconds: float, network: bool) -> Schedule:
    """Draw as many steps as fill the time; whoever is killed is the second server."""
    steps = max(int(seconds / (PACE + 0.05)), 5)
    faults = min(max(int(seconds / SECONDS_A_FAULT), 2), steps * CLIENTS - 3)
    made = drawn(SEED, network=network, steps=steps, faults=faults, files=10)
    kills = ("kill server", "kill worker")
    spared = tuple(replace(each, server=1) if each.kind in kills else each for each in made.faults)
    return replace(made, faults=spared)


def growth(levels: list[int]) -> float:
    """By which share the last samples are above those after warming up."""
    warm, many = int(len(levels) * WARM), min(NEIGHBOURS, max(len(levels) // 3, 1))
    return median(levels[-many:]) / median(levels[warm : warm + many]) - 1


class Samples:
    """How much memory and how many open files the first server has, and how long the WAL is."""

    def __init__(self, world: World, store: Path) -> None:
        self._world, self._wal = world, store.with_name(store.name + "-wal")
        self.memory: list[int] = []
        self.at_rest: list[int] = []
        self.writes: list[int] = []
        self.files: list[int] = []
        self.largest = 0

    def take(self) -> None:
        """Sample the server while clients write."""
        self.memory.append(self._resident())
        self.writes.append(self._world.history.acknowledged())
        self.files.append(len(list((self._process / "fd").iterdir())))
        if self._wal.exists():
            self.largest = max(self.largest, self._wal.stat().st_size)

    def take_at_rest(self) -> None:
        """Sample the server while it answers the same questions again."""
        for _ in range(max(int(SECONDS / 2 / SECONDS_A_ROUND_AT_REST), 10)):
            self._world.read_everything(0)
            self.at_rest.append(self._resident())

    @property
    def _process(self) -> Path:
        return Path(f"/proc/{self._world.servers[0].pid}")

    def _resident(self) -> int:
        status = (self._process / "status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def report(self) -> None:
        # The last one was taken when the clients had ended and all answers been compared.
        loaded, warm = self.memory[:-1], int(len(self.memory) * WARM)
        figure("growth of memory, share", growth(loaded), "max")
        figure("growth of memory at rest, share", growth(self.at_rest), "max")
        writes = max(self.writes[-2] - self.writes[warm], 1)
        figure("memory per write, kB", (loaded[-1] - loaded[warm]) / writes / 1024, "max")
        figure("largest memory, MB", max(self.memory + self.at_rest) / 2**20, "max")
        figure(
            "growth of open files", min(self.files[warm:][-3:]) - max(self.files[: warm + 1]), "max"
        )
        figure("largest write-ahead log", self.largest / 2**20, "max")


@pytest.mark.parametrize("engine", ENGINES)
def test_soak_run_breaks_nothing_and_leaks_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    address, socket = str(tmp_path / "store.db"), None
    if engine == "postgres":
        server: Server = request.getfixturevalue("postgres")
        address, socket = server.database(template="made"), server.folder / ".s.PGSQL.5432"
    world = World(tmp_path, address, socket)
    world.pace = PACE
    samples = Samples(world, tmp_path / "store.db")
    began = time.monotonic()
    schedule = scheduled(SECONDS / 2, engine == "postgres")
    world.run(schedule, samples.take, samples.take_at_rest)
    figure("minutes", (time.monotonic() - began) / 60)
    samples.report()
    problems = check(world.history, world.observe(), VISIBLE)
    figure("faults", world.faults)
    figure("acknowledged writes", world.history.acknowledged())
    figure("invariants broken", len(problems))
    assert problems == [], f"seed {SEED}"
