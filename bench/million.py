"""One space with a million memories: what a recall costs there, and what it takes up."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.baselines import Keyword, Product
from bench.measuring import Row, Sample, short, snippet, timed
from bench.plots import Series, recall_curves
from bench.reading import FLOOR, PLUS, TIMES
from bench.running import Bench
from bench.starting import OPENED, RECALLED, RESIDENT
from bench.subjects import SPACE, Plan, open_store
from bench.texts import SEED, Writer
from reverie.embed.local import LocalEmbedder
from reverie.model import MODES

if TYPE_CHECKING:
    from rich.progress import Progress

    from reverie.protocols import Matrix

CHUNK = 5_000
KEPT = 20
"""Texts of each chunk that queries are made of."""
FEW = 100


class Million(Bench):
    """The whole run, in one store."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        super().__init__(folder, progress)
        self._plan = plan
        self._size = plan.million
        self._writer = Writer(SEED)
        self._path = folder / "million.db"

    def run(self) -> None:
        texts = self._fill()
        self._held_by_a_process()
        self._recalls(texts)
        self._rows()

    def _fill(self) -> Sequence[str]:
        kept: list[str] = []
        tenth = -(-self._size // CHUNK // 10)
        with open_store(self._path) as store:
            space = store.space(SPACE)
            LocalEmbedder().embed(["anything at all"])  # its files are read here
            for at in self.steps(f"filling {short(self._size)}", -(-self._size // CHUNK)):
                texts = self._writer.sentences(min(CHUNK, self._size - at * CHUNK))
                kept += texts[:KEPT]
                took = timed(space.import_records, [[{"content": text} for text in texts]])
                self.meter.take(f"import {at // tenth}", took * (1 / len(texts)))
        return kept

    def _held_by_a_process(self) -> None:
        """A fresh process after its first recall, beside one that did the same among a few."""
        few = self.folder / "few.db"
        with open_store(few) as store:
            store.space(SPACE).import_records(
                {"content": text} for text in self._writer.sentences(FEW)
            )
        resident: dict[str, list[float]] = {"full": [], "few": []}
        for _ in self.steps("fresh processes", self._plan.starts):
            for name, path in (("full", self._path), ("few", few)):
                empty, _ = snippet(OPENED, str(path))
                used, kilobytes = snippet(RECALLED + RESIDENT, str(path))
                self.meter.take(f"first {name}", Sample(max(used - empty, 1e-9)))
                resident[name].append(float(kilobytes) * 1024)
        full, less = (statistics.median(resident[name]) for name in ("full", "few"))
        disk = self._path.stat().st_size
        for group, what, value in (
            ("memory (RSS)", "after a recall", full),
            ("memory (RSS)", f"after a recall among {FEW}", less),
            ("memory (RSS)", "for each memory", (full - less) / self._size),
            ("disk", "the whole store", disk),
            ("disk", "for each memory", disk / self._size),
        ):
            self.meter.rows.append(Row(group, what, "B", value))

    def _recalls(self, texts: Sequence[str]) -> None:
        embedder, product = LocalEmbedder(), Product(_unit_rows(self._size))
        keyword, store = Keyword(self._path, SPACE), open_store(self._path)
        self.closing.callback(keyword.close)
        self.closing.callback(store.close)
        space = store.space(SPACE)
        for done in self.steps("recall", self._plan.rounds + 1):
            queries = self._writer.queries(texts, self._plan.recalls // 3)
            vectors = [embedder.embed_query(query) for query in queries]
            weights = [keyword.prepare(query) for query in queries]
            took = {
                "embed": timed(embedder.embed_query, queries),
                "matmul": timed(product.nearest, vectors),
                "statement": timed(keyword.run, weights),
            }
            for mode in MODES:
                took[mode] = timed(partial(space.recall, mode=mode), queries)
            if done > 0:
                self.meter.take_all(took)
        self.meter.combine("floor", {"embed": 1, "matmul": 1, "statement": 1})

    def _rows(self) -> None:
        size, row = short(self._size), self.meter.row
        before, self.meter.rows = self.meter.rows, []
        row("recall", f"hybrid at {size}", "hybrid", "floor", FLOOR, TIMES, PLUS)
        row("recall", f"keyword at {size}", "keyword", "statement", "statement")
        row("recall", f"vector at {size}", "vector", "matmul", "matmul")
        what, against = "the first of a process, less an open", f"the same among {FEW}"
        row("recall", what, "first full", "first few", against)
        parts = sorted(
            (name for name in self.meter.samples if name.startswith("import ")),
            key=lambda name: int(name.split()[1]),
        )
        row("bulk import", "a memory of the first tenth", parts[0])
        row("bulk import", "a memory of the last tenth", parts[-1])
        self.meter.rows += before

    def more(self) -> dict[str, Any]:
        return {"curves": recall_curves(self._cost("hybrid"), {}, self._cost("floor"))}

    def _cost(self, name: str) -> Series:
        return {self._size: self.meter.cost(name)}


def _unit_rows(count: int) -> Matrix:
    """Vectors of any direction: a product costs the same with all of them."""
    rows = np.random.default_rng(SEED).standard_normal((count, 256), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
