"""Samples of CPU time, and rows made of them: medians of rounds, and of the rounds' ratios."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Sample:
    """CPU seconds of one call, the mean of a round."""

    cpu: float
    user: float = 0.0
    system: float = 0.0

    def __add__(self, other: Sample) -> Sample:
        return Sample(self.cpu + other.cpu, self.user + other.user, self.system + other.system)

    def __mul__(self, factor: float) -> Sample:
        return Sample(self.cpu * factor, self.user * factor, self.system * factor)


def timed(
    work: Callable[[Item], object],
    items: Sequence[Item],
    before: Callable[[Item], object] | None = None,
) -> Sample:
    """The cost of ``work`` for each item; that of ``before``, done ahead of each, is left out."""
    cpu = user = system = 0.0
    for item in items:
        if before is not None:
            before(item)
        first, start = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
        work(item)
        cpu += time.process_time() - start
        last = resource.getrusage(resource.RUSAGE_SELF)
        user += last.ru_utime - first.ru_utime
        system += last.ru_stime - first.ru_stime
    return Sample(cpu, user, system) * (1 / len(items))


@dataclass
class Row:
    """One line of the result.

    ``most`` limits the ratio, or the figure where there is no ratio. ``plus`` is what may be
    spent on top of ``most`` times the baseline; ``held`` is the ratio without it.
    """

    group: str
    what: str
    unit: str
    ours: float
    user: float | None = None
    system: float | None = None
    against: str = ""
    baseline: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    """The quartiles of the rounds' ratios."""
    most: float | None = None
    plus: float = 0.0
    held: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.most is None:
            return None
        figures = (self.held, self.ratio, self.ours)
        return next(figure for figure in figures if figure is not None) <= self.most


@dataclass
class Meter:
    """The samples of every round, by name, and the rows made of them."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def take(self, name: str, sample: Sample) -> None:
        self.samples.setdefault(name, []).append(sample)

    def take_all(self, took: Mapping[str, Sample]) -> None:
        for name, sample in took.items():
            self.take(name, sample)

    def combine(self, name: str, parts: Mapping[str, float]) -> str:
        """A series of its own: each of these times its factor, added up round by round."""
        rounds = zip(*(self.samples[part] for part in parts), strict=True)
        self.samples[name] = [
            sum(
                (sample * factor for sample, factor in zip(each, parts.values(), strict=True)),
                Sample(0.0),
            )
            for each in rounds
        ]
        return name

    def cost(self, name: str) -> float:
        return statistics.median(sample.cpu for sample in self.samples[name])

    def row(
        self,
        group: str,
        what: str,
        ours: str,
        baseline: str | None = None,
        against: str = "",
        most: float | None = None,
        plus: float = 0.0,
        note: str = "",
    ) -> None:
        taken = self.samples[ours]
        row = Row(group, what, "s", self.cost(ours), against=against, most=most, note=note)
        row.user = statistics.median(sample.user for sample in taken)
        row.system = statistics.median(sample.system for sample in taken)
        if baseline is not None:
            row.baseline = self.cost(baseline)
            pairs = [(a.cpu, b.cpu) for a, b in zip(taken, self.samples[baseline], strict=True)]
            ratios = [a / b for a, b in pairs]
            row.ratio = statistics.median(ratios)
            if plus:
                row.plus, row.held = plus, statistics.median((a - plus) / b for a, b in pairs)
            if len(ratios) > 1:
                low, _, high = statistics.quantiles(ratios, n=4)
                row.spread = (low, high)
        self.rows.append(row)


# -- fresh processes ------------------------------------------------------------------------------


def process(*arguments: str, check: bool = True, where: Path | None = None) -> tuple[float, str]:
    """CPU seconds of a fresh Python and what it printed; -1 where it failed and may."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # An installed package is compiled already; a machine that forbids it must not slow the start.
    # Nor may a setting of the user's choose what is measured.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE" and not name.startswith("REVERIE_")
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=check,
        env=environment,
        cwd=where,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return -1.0, ""
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, done.stdout.strip()


def snippet(text: str, *arguments: str, check: bool = True) -> tuple[float, str]:
    """The same for a line of code."""
    return process("-c", text, *arguments, check=check)


def short(size: int) -> str:
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)
