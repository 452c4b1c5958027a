"""What Reverie costs, in CPU time beside raw SQLite, FTS5 and numpy doing the same work.

    python bench/speed.py [--quick] [--json FILE] [--markdown]

Everything compared is measured in one process in alternating rounds, and a ratio is the median of
the rounds' ratios: on a busy machine seconds wander and ratios stay. BLAS has one thread, for CPU
time adds up all of them. It is a measurement, no test: the exit code is always 0.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import reverie
from reverie.model import MODES
from reverie.text.words import STOP_WORDS

SEED = 20260101
CANDIDATES = 50
DIMENSIONS = 256
WORDS = 4_000
BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    spaces: int = 100
    rounds: int = 9
    recalls: int = 30
    """Queries in a round."""
    writes: int = 80
    """Remembers in a round: enough for each to see a checkpoint."""
    starts: int = 9
    """Fresh processes of each kind."""
    chunk: int = 500
    """Memories in a transaction of the bulk import; it is what Reverie itself uses."""


QUICK = Plan((200, 1_000, 5_000), spaces=10, rounds=3, recalls=15, writes=10, starts=3)


# -- texts ----------------------------------------------------------------------------------------

COMMON = """
    meeting project customer report team budget email plan call review server database release
    invoice contract garden kitchen birthday dinner train flight hotel doctor school teacher music
    guitar piano novel coffee breakfast holiday weekend mountain river beach bicycle battery screen
    keyboard password account payment price market office manager engineer designer lawyer sister
    brother mother father daughter friend neighbour dog cat horse tomato bread cheese recipe camera
    picture painting museum theatre ticket concert football tennis swimming running yoga hospital
    medicine allergy peanut vegetarian language spanish french german berlin london madrid tokyo
    prefer remember finish deliver explain decide arrange visit travel cancel schedule borrow
    repair replace compare measure collect improve discuss suggest promise forget learn teach
    quiet early monthly yearly urgent cheap broken famous narrow bright gentle careful private
    public digital electric northern southern wooden green purple yellow seven twelve forty
    python rust docker kernel parser compiler network router firewall backup replica cluster
    deadline sprint ticketing roadmap milestone quarter revenue salary pension mortgage insurance
"""
FIRST = """
    rain sun moon star fire snow wind sand stone wood iron silver gold glass paper water sea river
    lake hill field farm barn mill bridge road rail foot hand head eye heart back side tooth hair
    book note black white blue red cross over under home house door key board play work school
    time day night birth life land ship air sky space sound light shadow
"""
SECOND = """
    fall flower light fish place ball storm castle land mark mill yard smith ware way works man
    shed town path bed house side shore bank top line stop hold gate post board mate print step
    shake band set word maker keeper bearer seller finder watcher cutter driver builder runner
    hanger binder holder worm bird craft screen proof tight born bound
"""
GLUE = """
    the a to of and in is that for it on with as was at by from we she he they my our her his
    not but or if when after before about this have has will would can should been are were
"""


class Writer:
    """Sentences of 8 to 25 words: two fifths are stop words, the rest Zipfian over 4,000 words."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        compounds = [
            first + second for first, second in itertools.product(FIRST.split(), SECOND.split())
        ]
        random.Random(0).shuffle(compounds)
        self._words = [*COMMON.split(), *compounds][:WORDS]
        self._glue_words = GLUE.split()
        # Mandelbrot's shift: once stop words are gone, no word is in half of all sentences.
        self._content = list(itertools.accumulate(1 / (rank + 10) for rank in range(WORDS)))
        self._glue = list(
            itertools.accumulate(1 / (rank + 2) for rank in range(len(self._glue_words)))
        )

    def sentence(self) -> str:
        count = self._random.randint(8, 25)
        glue = self._random.choices(self._glue_words, cum_weights=self._glue, k=count)
        content = self._random.choices(self._words, cum_weights=self._content, k=count)
        chosen = [
            stop if self._random.random() < 0.4 else word
            for stop, word in zip(glue, content, strict=True)
        ]
        return " ".join(chosen).capitalize() + "."

    def sentences(self, count: int) -> list[str]:
        return [self.sentence() for _ in range(count)]

    def queries(self, texts: Sequence[str], count: int) -> list[str]:
        """Five to ten words in a row of a stored text."""
        found = []
        for _ in range(count):
            words = self._random.choice(texts).rstrip(".").split()
            length = min(self._random.randint(5, 10), len(words))
            start = self._random.randint(0, len(words) - length)
            found.append(" ".join(words[start : start + length]))
        return found


# -- measuring ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """CPU seconds of one call, the mean of a round."""

    cpu: float
    user: float
    system: float

    def __add__(self, other: Sample) -> Sample:
        return Sample(self.cpu + other.cpu, self.user + other.user, self.system + other.system)


def timed(
    work: Callable[[Any], object],
    items: Sequence[Any],
    before: Callable[[Any], object] | None = None,
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
    return Sample(cpu / len(items), user / len(items), system / len(items))


@dataclass
class Row:
    """One line of the result. ``most`` limits the ratio, or the figure where there is no ratio."""

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
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.most is None:
            return None
        return (self.ours if self.ratio is None else self.ratio) <= self.most


@dataclass
class Meter:
    """The samples of every round, by name, and the rows made of them."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def take(self, name: str, sample: Sample) -> None:
        self.samples.setdefault(name, []).append(sample)

    def add(self, one: str, other: str) -> str:
        """The sum of two series, round by round."""
        name = f"{one} + {other}"
        pairs = zip(self.samples[one], self.samples[other], strict=True)
        self.samples[name] = [a + b for a, b in pairs]
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
        note: str = "",
    ) -> None:
        taken = self.samples[ours]
        row = Row(group, what, "s", self.cost(ours), against=against, most=most, note=note)
        row.user = statistics.median(sample.user for sample in taken)
        row.system = statistics.median(sample.system for sample in taken)
        if baseline is not None:
            row.baseline = self.cost(baseline)
            pairs = zip(taken, self.samples[baseline], strict=True)
            ratios = [a.cpu / b.cpu for a, b in pairs]
            row.ratio = statistics.median(ratios)
            if len(ratios) > 1:
                low, _, high = statistics.quantiles(ratios, n=4)
                row.spread = (low, high)
        self.rows.append(row)


# -- baselines ------------------------------------------------------------------------------------

PRAGMAS = (
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", 2),
    ("temp_store", "MEMORY", 2),
    ("cache_size", "-32768", -32768),
)


class Raw:
    """A row and a row of FTS5 in one transaction, synced; nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = apsw.Connection(str(path))
        for name, value, expected in PRAGMAS:  # apsw runs one at a time, and ignored ones are mute
            self._db.execute(f"PRAGMA {name} = {value}").fetchall()
            found = self._db.execute(f"PRAGMA {name}").fetchall()[0][0]
            assert found == expected, (name, found)
        self._db.execute("CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, text TEXT)")
        self._db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, tokenize='porter unicode61')"
        )

    def write(self, text: str) -> None:
        self.bulk([text])

    def bulk(self, texts: Sequence[str]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for text in texts:
            self._db.execute("INSERT INTO texts (text) VALUES (?)", (text,))
            row = self._db.last_insert_rowid()
            self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (row, text))
        self._db.execute("COMMIT")

    def search(self, query: str) -> list[Any]:
        words = [word for word in query.lower().split() if word not in STOP_WORDS]
        if not words:
            return []
        return self._db.execute(
            f"SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT {CANDIDATES}",
            (" OR ".join(f'"{word}"' for word in words),),
        ).fetchall()

    def close(self) -> None:
        self._db.close()


class Product:
    """N × 256 float32 times a vector, and the best 50 in order."""

    def __init__(self, count: int) -> None:
        random_ = np.random.default_rng(SEED)
        self._rows = random_.standard_normal((count, DIMENSIONS), dtype=np.float32)
        self._query = random_.standard_normal(DIMENSIONS, dtype=np.float32)

    def nearest(self, _: str) -> list[tuple[int, float]]:
        scores = self._rows @ self._query
        if len(scores) > CANDIDATES:
            best = np.argpartition(scores, -CANDIDATES)[-CANDIDATES:]
        else:
            best = np.arange(len(scores))
        best = best[np.argsort(-scores[best])]
        return list(zip(best.tolist(), scores[best].tolist(), strict=True))


# -- what is measured -----------------------------------------------------------------------------


@dataclass
class Subject:
    """One size: our store and the baselines over the same texts."""

    name: str
    size: int
    path: Path
    texts: list[str]
    store: reverie.Store
    raw: Raw
    product: Product

    @property
    def space(self) -> reverie.Space:
        return self.store.space("bench")


def open_store(path: Path) -> reverie.Store:
    return reverie.open(path, settings=reverie.Settings(), embedder="local")


class Bench:
    """The whole run. Each method measures one thing and leaves its rows in the meter."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._open = ExitStack()
        self._writer = Writer(SEED)
        self.meter = Meter()
        self._subjects: list[Subject] = []
        self._many: reverie.Store | None = None
        self._many_texts: list[list[str]] = []

    def run(self) -> list[Row]:
        with self._open:
            self._build()
            self._build_many()
            self._first_recalls()
            self._imports()
            self._recall()
            self._remember()
            self._notes()
            self._recall_after_write()
        self._summarise()
        return self.meter.rows

    def _steps(self, what: str, count: int) -> Iterator[int]:
        return iter(self._progress.track(range(count), description=what))

    # -- building -----------------------------------------------------------------------------

    def _build(self) -> None:
        for size in self._plan.sizes:
            name = short(size)
            path = self._folder / f"{name}.db"
            texts = self._writer.sentences(size)
            store, raw = open_store(path), Raw(self._folder / f"{name}-raw.db")
            store.space("bench").recall("anything")  # the embedder's files are read here
            step = self._plan.chunk
            for at in self._steps(f"filling {name}", -(-size // step)):
                part = texts[at * step : (at + 1) * step]
                records = [{"content": text} for text in part]
                took = timed(store.space("bench").import_records, [records])
                self.meter.take(f"import {name}", per(took, len(part)))
                self.meter.take(f"bulk {name}", per(timed(raw.bulk, [part]), len(part)))
            store.close()
            raw.close()
            self._sizes(name, path, raw.path, size)
            store, raw = open_store(path), Raw(raw.path)
            self._open.callback(store.close)
            self._open.callback(raw.close)
            subject = Subject(name, size, path, texts, store, raw, Product(size))
            self._subjects.append(subject)

    def _build_many(self) -> None:
        size = self._plan.sizes[0]
        store = self._many = open_store(self._folder / "many.db")
        self._open.callback(store.close)
        for i in self._steps(f"filling {self._plan.spaces} spaces", self._plan.spaces):
            texts = self._writer.sentences(size)
            store.space(f"bench{i}").import_records({"content": text} for text in texts)
            self._many_texts.append(texts)

    def _sizes(self, name: str, path: Path, raw: Path, size: int) -> None:
        ours, base = path.stat().st_size / size, raw.stat().st_size / size
        self.meter.rows.append(
            Row("disk", f"a memory at {name}", "B", ours, against="row + FTS5", baseline=base)
        )

    # -- reading ------------------------------------------------------------------------------

    def _recall(self) -> None:
        many = self._many
        assert many is not None
        spaces = [many.space(f"bench{i}") for i in range(self._plan.spaces)]
        for space in spaces:
            space.recall("anything at all")
        for done in self._steps("recall", self._plan.rounds + 1):
            for subject in self._subjects:
                queries = self._writer.queries(subject.texts, self._plan.recalls)
                space, name = subject.space, subject.name
                took = {
                    f"fts5 {name}": timed(subject.raw.search, queries),
                    f"matmul {name}": timed(subject.product.nearest, queries),
                }
                for mode in MODES:
                    took[f"{mode} {name}"] = timed(partial(space.recall, mode=mode), queries)
                self._take(took, warm=done > 0)
            picked = random.Random(done).choices(range(len(spaces)), k=self._plan.recalls)
            asked = [(spaces[i], self._writer.queries(self._many_texts[i], 1)[0]) for i in picked]
            same = self._writer.queries(self._many_texts[0], self._plan.recalls)
            took = {
                "each of many": timed(lambda pair: pair[0].recall(pair[1]), asked),
                "one of many": timed(spaces[0].recall, same),
            }
            self._take(took, warm=done > 0)

    def _take(self, took: dict[str, Sample], *, warm: bool) -> None:
        for name, sample in took.items():
            if warm:
                self.meter.take(name, sample)

    def _recall_after_write(self) -> None:
        for _ in self._steps("recall after a write", self._plan.rounds):
            for subject in self._subjects:
                queries = self._writer.queries(subject.texts, self._plan.recalls // 2)
                name, space = subject.name, subject.space
                took = {
                    f"after {name}": timed(space.recall, queries, self._writing(space)),
                    f"fts5 again {name}": timed(subject.raw.search, queries),
                    f"matmul again {name}": timed(subject.product.nearest, queries),
                }
                self._take(took, warm=True)

    def _writing(self, space: reverie.Space) -> Callable[[str], object]:
        return lambda _: space.remember(self._writer.sentence())

    # -- writing ------------------------------------------------------------------------------

    def _remember(self) -> None:
        for done in self._steps("remember", self._plan.rounds + 1):
            for subject in self._subjects:
                texts = self._writer.sentences(self._plan.writes)
                took = {
                    f"raw write {subject.name}": timed(subject.raw.write, texts),
                    f"remember {subject.name}": timed(subject.space.remember, texts),
                }
                # The first round also writes the notes of the recalls so far.
                self._take(took, warm=done > 0)

    def _notes(self) -> None:
        """What a recall leaves for the next write to do."""
        subject = self._subjects[0]
        plain = self.meter.cost(f"remember {subject.name}")
        for _ in self._steps("notes of recalls", self._plan.rounds):
            queries = self._writer.queries(subject.texts, self._plan.recalls)
            found = sum(bool(subject.space.recall(query)) for query in queries)
            took = timed(subject.space.remember, self._writer.sentences(1))
            self.meter.take("note", Sample(max(took.cpu - plain, 0.0) / found, 0, 0))

    # -- fresh processes ----------------------------------------------------------------------

    def _first_recalls(self) -> None:
        opened = (
            "import reverie, sys; "
            "s = reverie.open(sys.argv[1], settings=reverie.Settings(), embedder='local'); "
        )
        report = (
            "print([line.split()[1] for line in open('/proc/self/status') "
            "if line.startswith('VmRSS')][0])"
            if Path("/proc/self/status").exists()
            else "print(0)"
        )
        recalled = opened + f"s.space('bench').recall({' '.join(COMMON.split()[:6])!r}); "
        resident: dict[str, list[float]] = {}
        for _ in self._steps("fresh processes", self._plan.starts):
            for subject in self._subjects:
                path = str(subject.path)
                empty, small = child(opened + report, path)
                full, large = child(recalled + report, path)
                self.meter.take(f"first {subject.name}", Sample(max(full - empty, 0), 0, 0))
                resident.setdefault(subject.name, []).append(float(large))
                resident.setdefault("empty", []).append(float(small))
        for name, kilobytes in resident.items():
            what = "after open" if name == "empty" else f"after a recall at {name}"
            value = statistics.median(kilobytes) * 1024
            self.meter.rows.append(Row("memory (RSS)", what, "B", value))

    def _imports(self) -> None:
        help_ = (
            "import sys; sys.argv = ['reverie', '--help']; from reverie.cli import main; "
            "sys.exit(main())"
        )
        has_cli = child("from reverie.cli import main", check=False)[0] >= 0
        child(help_, check=False)
        for _ in self._steps("starting", self._plan.starts):
            bare = child("pass")[0]
            ours = child("import reverie")[0]
            self.meter.take("import", Sample(max(ours - bare, 0), 0, 0))
            self.meter.take("python", Sample(bare, 0, 0))
            if has_cli:
                self.meter.take("help", Sample(max(child(help_)[0], 0), 0, 0))

    # -- the result ---------------------------------------------------------------------------

    def _summarise(self) -> None:
        meter, first, last = self.meter, self._subjects[0].name, self._subjects[-1].name
        before, meter.rows = meter.rows, []
        names = [subject.name for subject in self._subjects]
        for name in names:
            ours, raw = f"remember {name}", f"raw write {name}"
            meter.row("remember", f"at {name}", ours, raw, "raw write", 8.0)
        meter.row(
            "remember",
            f"at {last}, growth",
            f"remember {last}",
            f"remember {first}",
            f"remember at {first}",
            1.3,
        )
        for name in names:
            both = meter.add(f"fts5 {name}", f"matmul {name}")
            most = 1.0 if name == last else None
            meter.row("recall", f"hybrid at {name}", f"hybrid {name}", both, "FTS5 + matmul", most)
        for name in names:
            meter.row("recall", f"keyword at {name}", f"keyword {name}", f"fts5 {name}", "FTS5")
        for name in names:
            meter.row("recall", f"vector at {name}", f"vector {name}", f"matmul {name}", "matmul")
        for name in names:
            both = meter.add(f"fts5 again {name}", f"matmul again {name}")
            what = f"after a write at {name}"
            meter.row("recall", what, f"after {name}", both, "FTS5 + matmul")
        apart, alone = f"{self._plan.spaces} spaces of {first}", f"1 space of {first}"
        meter.row("recall", f"{apart}, each in turn", "each of many", f"hybrid {first}", alone, 1.5)
        meter.row("recall", f"{apart}, one of them", "one of many", f"hybrid {first}", alone)
        meter.row("recall", "its note (next write)", "note")
        for name in names:
            ours, raw = f"import {name}", f"bulk {name}"
            meter.row("bulk import", f"a memory at {name}", ours, raw, "row + FTS5 in bulk")
        for name in names:
            meter.row("first recall", f"fresh process at {name}", f"first {name}")
        meter.row("start", "import reverie", "import", most=0.15)
        if "help" in meter.samples:
            meter.row("start", "reverie --help", "help", most=0.4)
        else:
            meter.rows.append(
                Row("start", "reverie --help", "s", 0, note="not run: no reverie.cli")
            )
        meter.rows += before


def per(sample: Sample, count: int) -> Sample:
    return Sample(sample.cpu / count, sample.user / count, sample.system / count)


def child(code: str, *arguments: str, check: bool = True) -> tuple[float, str]:
    """CPU seconds of a fresh Python and what it printed; -1 where it failed and may."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", code, *arguments]
    # An installed package is compiled already; a machine that forbids it must not slow the start.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=check, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return -1.0, ""
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, done.stdout.strip()


def short(size: int) -> str:
    return f"{size // 1000}k" if size % 1000 == 0 else str(size)


def machine() -> dict[str, str]:
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
    return {
        "cpu": f"{model}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "numpy": np.__version__,
        "reverie": reverie.__version__,
    }


def on_disk() -> str | None:
    """A folder for the stores that is no RAM disk: syncing must cost what it costs."""
    for folder in (tempfile.gettempdir(), "/var/tmp", str(Path.cwd())):
        kind = subprocess.run(["df", "-T", folder], capture_output=True, text=True, check=False)
        if Path(folder).is_dir() and "tmpfs" not in kind.stdout:
            return folder
    return None


# -- showing --------------------------------------------------------------------------------------


def shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "B":
        return f"{value / 2**20:.0f} MB" if value >= 2**20 else f"{value:,.0f} B"
    if value >= 0.1:
        return f"{value * 1e3:.0f} ms"
    if value >= 0.001:
        return f"{value * 1e3:.2f} ms"
    return f"{value * 1e6:.0f} µs"


def cells(row: Row) -> list[str]:
    if row.note.startswith("not run"):
        return [row.what, row.note, "", "", "", ""]
    split = ""
    if row.user and row.system is not None and row.unit == "s":
        split = f"{row.system / (row.user + row.system):.0%}"
    ratio = (
        row.ratio if row.ratio is not None else (row.ours / row.baseline if row.baseline else None)
    )
    target = ""
    if row.most is not None:
        limit = f"{row.most:g} ×" if row.ratio is not None else shown(row.most, row.unit)
        target = f"{'✓' if row.met else '✗'} ≤ {limit}"
    beside = f"{shown(row.baseline, row.unit)} {row.against}".strip()
    spread = f" ({row.spread[0]:.2f}–{row.spread[1]:.2f})" if row.spread else ""
    figure = "" if ratio is None else f"{ratio:.2f}{spread}"
    name = row.what + (f" ({row.note})" if row.note else "")
    return [name, shown(row.ours, row.unit), split, beside, figure, target]


HEAD = ("", "CPU", "in the kernel", "beside", "ratio (quartiles)", "target")


def table(rows: Sequence[Row]) -> Table:
    made = Table(title="Reverie's speed: CPU for each call, medians of alternating rounds")
    for name in HEAD:
        made.add_column(name, justify="left" if name in {"", "beside"} else "right")
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        made.add_section()
        made.add_row(f"[bold]{group}[/bold]")
        for row in members:
            colour = {True: "green", False: "red", None: None}[row.met]
            made.add_row(*cells(row), style=colour)
    return made


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---:|---:|---|---:|---|"]
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        lines.append(f"| **{group}** | | | | | |")
        lines += ["| " + " | ".join(cells(row)) + " |" for row in members]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    asked = parser.parse_args()
    if os.environ.get(BLAS_THREADS) != "1":  # it is read when numpy is imported
        os.environ[BLAS_THREADS] = "1"
        os.execv(sys.executable, sys.orig_argv)
    console = Console(stderr=True)
    about, start = machine(), time.perf_counter()
    columns = (
        TextColumn("{task.description:>24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="reverie-bench-", dir=on_disk()) as folder,
        Progress(*columns, console=console) as progress,
    ):
        bench = Bench(QUICK if asked.quick else Plan(), Path(folder), progress)
        rows = bench.run()
    about["took"] = f"{time.perf_counter() - start:.0f} s"
    described = ", ".join(f"{name} {value}" for name, value in about.items())
    if asked.markdown:
        print(f"{described}\n\n{markdown(rows)}")
    else:
        output = Console(width=max(console.width, 132))
        output.print(table(rows))
        output.print(described)
    if asked.json:
        samples = {
            name: [asdict(sample) for sample in taken]
            for name, taken in bench.meter.samples.items()
        }
        result = {
            "machine": about,
            "rows": [{**asdict(row), "met": row.met} for row in rows],
            "samples": samples,
        }
        asked.json.write_text(
            json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
