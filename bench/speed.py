"""What Reverie costs, in CPU time beside others doing the same work.

    python bench/speed.py [--peers] [--quick] [--json FILE] [--markdown]
    python bench/speed.py --million [--quick] [--json FILE] [--markdown]

Everything compared is measured in alternating rounds, and a ratio is the median of the rounds'
ratios: on a busy machine seconds wander and ratios stay. BLAS has one thread, for CPU time adds up
all of them. ``--peers`` installs other memories into environments of their own and measures them
too. ``bench/plots.py`` draws what ``--json`` wrote. It is a measurement, no test: the exit code is
always 0.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import plots, reading, running, starting, subjects, writing
from bench.million import Million
from bench.peers import comparing
from bench.subjects import QUICK, Plan
from bench.texts import SEED, Talker, Writer

if TYPE_CHECKING:
    from rich.progress import Progress

ORDER = (
    "recall",
    comparing.SEARCH,
    comparing.ADD,
    "recall, beside bare searches",
    "parts of the floor",
    "many spaces",
    "recall after writes",
    "first recall of a process",
    "start",
    "remember",
    "bulk import",
    "disk",
    "memory (RSS)",
)


class Speed(running.Bench):
    """The whole run: stores of several sizes, and what is asked of them."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress, *, peers: bool) -> None:
        super().__init__(folder, progress)
        self._plan = plan
        self._peers = peers
        self._curves: plots.Costs = {}

    def run(self) -> None:
        plan, writer = self._plan, Writer(SEED)
        stores = [subjects.memories(self, plan, writer, size) for size in plan.sizes]
        larger = plan.sizes[1:]
        starting.fresh_processes(self, plan, writer, stores)
        reading.recalls(self, plan, writer, stores)
        reading.recall_rows(self, stores, larger)
        compared = comparing.compare(self, plan, writer, stores) if self._peers else []
        reading.many_spaces(self, plan, writer, stores[0])
        writing.remembers(self, plan, writer, stores)
        writing.after_a_write(self, plan, writer, stores)
        writing.after_foreign_writes(self, plan, writer, stores)
        writing.import_rows(self, stores)
        conversations = [subjects.events(self, Talker(SEED), size) for size in larger]
        reading.recalls(self, plan, writer, conversations)
        reading.recall_rows(self, conversations, larger)
        self.meter.rows.sort(key=lambda row: ORDER.index(row.group))
        self._curves = comparing.curves(self.meter, stores, compared)

    def more(self) -> dict[str, Any]:
        return {"curves": self._curves}


def main() -> None:
    parser = running.options(__doc__)
    parser.add_argument("--peers", action="store_true", help="install and measure others as well")
    parser.add_argument("--million", action="store_true", help="measure one very large space alone")
    asked = parser.parse_args()
    plan = QUICK if asked.quick else Plan()
    if asked.million:
        title = "One large space: CPU for each call, medians of alternating rounds"
        running.run(title, asked, lambda folder, progress: Million(plan, folder, progress))
        return
    title = "Reverie's speed: CPU for each call, medians of alternating rounds"
    running.run(
        title,
        asked,
        lambda folder, progress: Speed(plan, folder, progress, peers=asked.peers),
    )


if __name__ == "__main__":
    main()
