"""Everything that happens in a simulation, drawn from one seed before it starts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from tests.simulation.history import Verb

FaultKind = Literal["kill server", "pause server", "kill worker", "partition", "reset", "delay"]
HOUR = 3_600_000
CLIENTS = 3
SERVERS = 2
# Of these a client draws: a word, and how often it comes up.
CHANCES: dict[Verb, int] = {"remember": 5, "revise": 3, "forget": 1, "append": 4, "teach": 2}
MAX_TRIES = 6


@dataclass(frozen=True)
class Fault:
    """Something that breaks when so many operations have ended."""

    after: int
    kind: FaultKind
    server: int
    seconds: float
    skew: int


@dataclass(frozen=True)
class Step:
    """What a client does next: with which server it begins, and how often it tries."""

    verb: Verb
    server: int
    tries: int
    pick: float
    recall: bool


@dataclass(frozen=True)
class Schedule:
    """The steps of each client, the faults, and the files that a person writes."""

    seed: int
    steps: tuple[tuple[Step, ...], ...]
    faults: tuple[Fault, ...]
    files: tuple[float, ...]

    @property
    def operations(self) -> int:
        return sum(len(steps) for steps in self.steps)


def drawn(seed: int, *, network: bool, steps: int, faults: int, files: int = 4) -> Schedule:
    """Draw a schedule; the same seed and sizes give the same one."""
    chance = random.Random(seed)
    kinds: list[FaultKind] = ["kill server", "pause server", "kill worker", "kill server"]
    if network:
        kinds += ["partition", "reset", "delay", "partition"]
    verbs, weights = zip(*CHANCES.items(), strict=True)
    made = tuple(
        tuple(
            Step(
                verb=chance.choices(verbs, weights)[0],
                server=chance.randrange(SERVERS),
                tries=chance.randint(1, MAX_TRIES),
                pick=chance.random(),
                recall=chance.random() < 0.25,
            )
            for _ in range(steps)
        )
        for _ in range(CLIENTS)
    )
    whole = steps * CLIENTS
    broken = tuple(
        Fault(
            after=after,
            # Every kind comes up before one comes up again.
            kind=kinds[(number + seed) % len(kinds)],
            server=chance.randrange(SERVERS),
            seconds=chance.uniform(0.1, 1.2),
            skew=chance.choice([0, 0, 5_000, -5_000, HOUR, -HOUR]),
        )
        for number, after in enumerate(sorted(chance.sample(range(2, whole), faults)))
    )
    return Schedule(seed, made, broken, tuple(chance.random() for _ in range(files)))
