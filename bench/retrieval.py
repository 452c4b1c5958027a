"""How well Reverie finds the turns of a conversation that answer a question.

    python bench/retrieval.py [--mode all] [--baselines] [--loo] [--facts] [--json FILE]

Each turn is an event of a session; a question is recalled and its gold turns looked for among the
hits. ``R@k`` is the share of the gold turns among the first k hits; ``hit@1`` says whether the
first session is one of theirs, ``any@k`` and ``all@k`` whether any, and all, of their sessions are
among the first k. Figures are means
over questions, in brackets where they lie in 95 of 100 resamplings: of conversations for LoCoMo,
of questions for LongMemEval. The data is not part of the project; ``--data`` says where it is.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import apsw
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import reverie
from bench import datasets
from bench.datasets import METRICS, Dataset, Outcome, Pool, Question, Scored, Turn
from reverie.embed.local import normalize_whitespace
from reverie.embed.tokens import bundled_file, tokenizer
from reverie.text.analyzer import STOP_WORDS

if TYPE_CHECKING:
    from reverie.protocols import Matrix

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
READERS: dict[str, tuple[str, Callable[[Path], Dataset]]] = {
    "locomo": ("locomo_dev.json", datasets.locomo),
    "longmemeval": ("longmemeval_oracle_dev.json", datasets.longmemeval),
}
MODES = ("keyword", "vector", "hybrid")
NEAR = 20
"""Hits that turns are looked for among."""
WIDE = 50
"""Hits whose sessions are looked at: enough for ten of them."""
MIXED = 200
"""Hits of a recall that gives facts as well: enough for twenty events."""
GRID = (
    reverie.Ranking(),
    *(
        replace(reverie.Ranking(), vector_weight=weight, keyword_weight=round(1 - weight, 2))
        for weight in (0.35, 0.55)
    ),
    *(replace(reverie.Ranking(), neighbours=weight) for weight in (0.5, 1.5)),
    *(replace(reverie.Ranking(), speaker=weight) for weight in (0.0, 0.3)),
    *(replace(reverie.Ranking(), period=weight) for weight in (0.0, 0.4)),
    *(replace(reverie.Ranking(), session=weight) for weight in (0.0, 0.15)),
)
"""What is chosen from when a fold is left out: the default, and each weight less and more."""
# Facts of any length: a file's own are not ours to shorten.
UNWATCHED = reverie.Settings(learn="off", summary="off", fact_chars=10_000)
FTS5, FTS5_AND_VECTORS = "FTS5", "FTS5 + plain vectors"
WIDTH = 156

Spaces = Mapping[str, reverie.Space]
"""The space of each pool."""


# -- filling --------------------------------------------------------------------------------------


class Moment:
    """A clock that stands where it is put: when the session that is appended took place."""

    def __init__(self) -> None:
        self.ms = 0

    def now(self) -> int:
        return self.ms


class Facts(Enum):
    """Whether facts are remembered beside the turns, and whether they name the turn they are of."""

    NONE = ""
    LOOSE = "facts without origin"
    OF_TURNS = "facts of turns"


def fill(space: reverie.Space, clock: Moment, pool: Pool, facts: Facts = Facts.NONE) -> None:
    for session in pool.sessions:
        clock.ms = round(session.at.timestamp() * 1_000)
        kept = space.session(session.id).append_many(session.messages)
        assert [event.sequence for event in kept] == list(range(1, len(kept) + 1))
        if facts is Facts.NONE:
            continue
        for fact in pool.facts:
            if fact.turn.session == session.id:
                origin = reverie.Origin(*fact.turn) if facts is Facts.OF_TURNS else None
                space.remember(fact.text, origin=origin)


# -- ways to recall -------------------------------------------------------------------------------


class Way(Protocol):
    """Something that finds turns of a pool for a question."""

    @property
    def name(self) -> str: ...

    def turns(self, pool: str, question: str) -> list[Turn]:
        """The best, twenty of them."""
        ...

    def sessions(self, pool: str, question: str) -> list[str]:
        """In the order of the best turn of each."""
        ...


@dataclass(frozen=True)
class Recall:
    """Reverie, from a space for each pool. Hits that are no events are passed over."""

    name: str
    spaces: Spaces
    options: Mapping[str, Any]
    near: int = NEAR
    wide: int = WIDE

    def turns(self, pool: str, question: str) -> list[Turn]:
        return self._found(pool, question, self.near)[:NEAR]

    def sessions(self, pool: str, question: str) -> list[str]:
        return datasets.in_order(self._found(pool, question, self.wide))

    def _found(self, pool: str, question: str, limit: int) -> list[Turn]:
        hits = self.spaces[pool].recall(question, limit=limit, **self.options)
        return [turn for hit in hits if hit.event for turn in turns_of(hit)][:limit]


def turns_of(hit: reverie.Hit) -> list[Turn]:
    """The turn of a hit, then those that say the same, which take places of their own here."""
    parted = [id.rsplit(":", 1) for id in (hit.id, *hit.duplicates)]
    return [Turn(parts[0], int(parts[1])) for parts in parted if len(parts) == 2]


@dataclass(frozen=True)
class Plain:
    """Others over the same turns: FTS5 alone, or half of it and half plain static vectors."""

    name: str
    indexes: Mapping[str, PlainIndex]
    vectors: bool = False

    def turns(self, pool: str, question: str) -> list[Turn]:
        return self._found(pool, question)[:NEAR]

    def sessions(self, pool: str, question: str) -> list[str]:
        return datasets.in_order(self._found(pool, question)[:WIDE])

    def _found(self, pool: str, question: str) -> list[Turn]:
        index = self.indexes[pool]
        parts = [index.by_keyword(question)]
        if self.vectors:
            parts.append(index.by_vector(question))
        scores: dict[int, float] = {}
        for part in map(_spread, parts):
            for row, score in part.items():
                scores[row] = scores.get(row, 0.0) + score / len(parts)
        return [index.turns[row] for row in sorted(scores, key=lambda row: (-scores[row], row))]


class PlainIndex:
    """The turns of one pool in FTS5, stemmed, and the means of their static vectors.

    Every turn is scored: spread over the best few alone, the two kinds of evidence fit less well.
    """

    def __init__(self, pool: Pool) -> None:
        texts = pool.texts
        self.turns = list(texts)
        self._rows = mean_pooled(list(texts.values()))
        self._db = apsw.Connection(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter unicode61')")
        self._db.executemany(
            "INSERT INTO words (rowid, text) VALUES (?, ?)", list(enumerate(texts.values()))
        )

    def by_keyword(self, question: str) -> dict[int, float]:
        words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP_WORDS]
        if not words:
            return {}
        any_word = " OR ".join(f'"{word}"' for word in words)
        found = self._db.execute("SELECT rowid, rank FROM words WHERE words MATCH ?", (any_word,))
        return {row: -rank for row, rank in found}

    def by_vector(self, question: str) -> dict[int, float]:
        return dict(enumerate((self._rows @ mean_pooled([question])[0]).tolist()))

    def close(self) -> None:
        self._db.close()


def _spread(scores: Mapping[int, float]) -> dict[int, float]:
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    width = high - low
    return {row: (score - low) / width if width else 1.0 for row, score in scores.items()}


def mean_pooled(texts: Sequence[str]) -> Matrix:
    """The mean of the static vectors of all tokens, of unit length: no rarity, no centring."""
    rows = np.zeros((len(texts), _weights().shape[1]), np.float32)
    for row, text in zip(rows, texts, strict=True):
        ids = tokenizer().encode(normalize_whitespace(text), add_special_tokens=False).ids
        if ids:
            total = _weights()[ids].mean(axis=0)
            row[:] = total / (np.linalg.norm(total) or 1.0)
    return rows


@cache
def _weights() -> Matrix:
    from safetensors.numpy import load_file

    tensors = load_file(bundled_file("weights/l2_supercat_256.safetensors"))
    weights: Matrix = tensors["embedding.weight"].astype(np.float32)
    return weights


# -- measuring ------------------------------------------------------------------------------------


@dataclass
class Report:
    """All that was measured of one data set: the ways themselves, then what was tried beside."""

    dataset: Dataset
    ways: list[Outcome] = field(default_factory=list)
    beside: list[Outcome] = field(default_factory=list)
    gains: list[tuple[Outcome, Outcome]] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    """The ranking that was best without each fold."""

    @property
    def outcomes(self) -> list[Outcome]:
        return [*self.ways, *self.beside]


class Measurement:
    """One run: a store with a space for each pool, and every way that is asked for."""

    def __init__(self, asked: argparse.Namespace, folder: Path, progress: Progress) -> None:
        self._asked = asked
        self._progress = progress
        self._modes = MODES if asked.mode == "all" else (asked.mode,)
        self._clock = Moment()
        self._store = reverie.open(
            folder / "store.db", settings=UNWATCHED, embedder="local", clock=self._clock
        )
        self.closing = ExitStack()
        self.closing.callback(self._store.close)

    def check(self) -> None:
        """Whether there is a ranking of this name is said before anything is filled."""
        self._store.space("empty").recall("anything", **self._options(self._modes[0]))

    def run(self, found: Sequence[Dataset]) -> list[Report]:
        reports = [Report(dataset) for dataset in found]
        spaces = self._filled([pool for dataset in found for pool in dataset.pools])
        for report in reports:
            self._plain_ways(report)
            others = list(report.ways)
            for mode in self._modes:
                way = Recall(self._named(mode), spaces, self._options(mode))
                report.ways.append(self._measured(report.dataset, way))
            report.gains += [(report.ways[-1], other) for other in others]
        if self._asked.loo:
            self._leave_out(reports, spaces)
        if self._asked.facts:
            for report in reports:
                self._lend(report, spaces)
        return reports

    def _named(self, mode: str) -> str:
        ranking = self._asked.ranking
        return f"Reverie, {mode}" + (f", {ranking}" if ranking else "")

    def _options(self, mode: str) -> dict[str, Any]:
        chosen = {"ranking": self._asked.ranking} if self._asked.ranking else {}
        return {"mode": mode, "kinds": ["event"], **chosen}

    def _filled(self, pools: Sequence[Pool], facts: Facts = Facts.NONE) -> Spaces:
        spaces = {}
        for pool in self._progress.track(pools, description=f"filling {facts.value}"):
            space = self._store.space(f"{pool.name} {facts.value}".strip())
            fill(space, self._clock, pool, facts)
            spaces[pool.name] = space
        return spaces

    def _plain_ways(self, report: Report) -> None:
        if not self._asked.baselines:
            return
        indexes = {}
        for pool in report.dataset.pools:
            indexes[pool.name] = PlainIndex(pool)
            self.closing.callback(indexes[pool.name].close)
        for way in (Plain(FTS5, indexes), Plain(FTS5_AND_VECTORS, indexes, vectors=True)):
            report.ways.append(self._measured(report.dataset, way))

    def _measured(self, dataset: Dataset, way: Way) -> Outcome:
        outcome = Outcome(way.name)
        for pool, question in self._questions(dataset, f"{dataset.name}: {way.name}"):
            ask(outcome, way, pool, question)
        return outcome

    def _questions(self, dataset: Dataset, what: str) -> Iterable[tuple[Pool, Question]]:
        asked = [(pool, question) for pool in dataset.pools for question in pool.questions]
        return self._progress.track(asked, description=what)

    def _leave_out(self, reports: Sequence[Report], spaces: Spaces) -> None:
        """For each fold the candidate that is best without it, asked the questions of the fold."""
        ways, candidates = [], list[Scored]()
        for ranking in GRID:
            options = {"mode": "hybrid", "kinds": ["event"], "ranking": ranking}
            way = Recall(shown_ranking(ranking), spaces, options)
            scored = {
                question: datasets.turn_figures(question.gold, way.turns(pool.name, question.text))
                for report in reports
                for pool, question in self._questions(report.dataset, way.name)
            }
            ways.append(way)
            candidates.append(scored)
        for report in reports:
            folds = dict.fromkeys(question.fold for question in report.dataset.questions)
            best = {fold: ways[datasets.best_without(fold, candidates)] for fold in folds}
            outcome = Outcome("Reverie, chosen without each fold")
            for pool, question in self._questions(report.dataset, "left out"):
                ask(outcome, best[question.fold], pool, question)
            report.chosen = {fold: way.name for fold, way in best.items()}
            report.beside.append(outcome)

    def _lend(self, report: Report, spaces: Spaces) -> None:
        """With facts that name their turns, beside the same recall without them.

        Facts change what is rare, so a third space has them without their origins.
        """
        pools = report.dataset.pools
        if not any(pool.facts for pool in pools):
            return
        options = self._options(self._modes[-1])
        del options["kinds"]
        filled = {Facts.NONE: spaces}
        filled |= {facts: self._filled(pools, facts) for facts in (Facts.LOOSE, Facts.OF_TURNS)}
        outcomes = {}
        for facts, among in filled.items():
            name = f"Reverie, {facts.value or 'no facts'}"
            way = Recall(name, among, options, MIXED, MIXED)
            outcomes[facts] = self._measured(report.dataset, way)
        report.beside += outcomes.values()
        best = outcomes.pop(Facts.OF_TURNS)
        report.gains += [(best, other) for other in outcomes.values()]


def ask(outcome: Outcome, way: Way, pool: Pool, question: Question) -> None:
    found = way.turns(pool.name, question.text)
    outcome.take(question, found, way.sessions(pool.name, question.text))


def shown_ranking(ranking: reverie.Ranking) -> str:
    """What of it is not as usual."""
    usual = reverie.Ranking()
    unusual = [
        f"{each.name} {getattr(ranking, each.name)}"
        for each in fields(ranking)
        if getattr(ranking, each.name) != getattr(usual, each.name)
    ]
    return ", ".join(unusual) or "as usual"


# -- showing --------------------------------------------------------------------------------------

Rows = list[list[str]]


def overall(report: Report) -> Rows:
    return [
        [outcome.name, *_cells(outcome.scored, with_intervals=True)] for outcome in report.outcomes
    ]


def gained(report: Report) -> Rows:
    return [
        [
            f"{ours.name} − {other.name}",
            *_cells(datasets.difference(ours.scored, other.scored), with_intervals=True),
        ]
        for ours, other in report.gains
    ]


def by_type(report: Report) -> Rows:
    typed = [(outcome.name, datasets.by_type(outcome.scored)) for outcome in report.outcomes]
    return [
        [f"{type}, {len(scored)}" if place == 0 else "", name, *_cells(types[type])]
        for type, scored in typed[0][1].items()
        for place, (name, types) in enumerate(typed)
    ]


def _cells(scored: Scored, *, with_intervals: bool = False) -> list[str]:
    means = datasets.mean(scored)
    around = datasets.intervals(scored) if with_intervals else {}
    bracketed = {name: around[name] for name in datasets.CHOOSING if name in around}
    return [datasets.shown(means[name], bracketed.get(name)) for name in METRICS]


def tables(report: Report) -> list[tuple[str, list[str], Rows]]:
    name = report.dataset.name
    made = [(f"{name}: all questions", ["", *METRICS], overall(report))]
    if report.gains:
        made.append((f"{name}: gained", ["", *METRICS], gained(report)))
    if report.chosen:
        rows = [list(pair) for pair in report.chosen.items()]
        made.append((f"{name}: chosen without each fold", ["fold", "ranking"], rows))
    made.append((f"{name}: by question type", ["type", "", *METRICS], by_type(report)))
    return made


def drawn(title: str, head: Sequence[str], rows: Rows) -> Table:
    made = Table(title=title)
    for name in head:
        made.add_column(name, justify="right" if name in METRICS else "left")
    for row in rows:
        if row[0] and "type" in head:
            made.add_section()
        made.add_row(*row)
    return made


def markdown(title: str, head: Sequence[str], rows: Rows) -> str:
    rule = ["---:" if name in METRICS else "---" for name in head]
    lines = [" | ".join(row) for row in (head, rule, *rows)]
    return f"**{title}**\n\n" + "\n".join(f"| {line} |" for line in lines)


# -- as plain values ------------------------------------------------------------------------------


def plain(reports: Sequence[Report]) -> dict[str, Any]:
    """Every figure, for a file; ``quality`` is what ``bench/plots.py`` draws."""
    return {
        "about": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "reverie": reverie.__version__,
        },
        "datasets": {report.dataset.name: _plain_report(report) for report in reports},
        "quality": {report.dataset.name: _quality(report) for report in reports},
        "questions": [each for report in reports for each in _plain_questions(report)],
    }


def _plain_report(report: Report) -> dict[str, Any]:
    return {
        "about": report.dataset.described,
        "ways": {
            outcome.name: {
                type: datasets.plain_figures(scored) for type, scored in outcome.parts.items()
            }
            for outcome in report.outcomes
        },
        "gains": {
            f"{ours.name} − {other.name}": datasets.plain_figures(
                datasets.difference(ours.scored, other.scored)
            )
            for ours, other in report.gains
        },
        "chosen": report.chosen,
    }


def _quality(report: Report) -> dict[str, dict[str, float]]:
    return {
        outcome.name: {
            type: round(datasets.mean(scored)["R@10"], 4) for type, scored in outcome.parts.items()
        }
        for outcome in report.ways
    }


def _plain_questions(report: Report) -> Iterable[dict[str, Any]]:
    for pool in report.dataset.pools:
        texts = pool.texts
        for question in pool.questions:
            yield {
                "dataset": question.dataset,
                "id": question.id,
                "type": question.type,
                "fold": question.fold,
                "question": question.text,
                "gold": {str(turn): texts[turn] for turn in question.gold},
                "ways": {outcome.name: outcome.plain(question) for outcome in report.outcomes},
            }


# -- the command ----------------------------------------------------------------------------------


SWITCHES = {
    "baselines": "measure FTS5 and plain vectors too",
    "loo": "choose a ranking without each conversation, too",
    "facts": "measure what facts lend their turns",
    "markdown": "print the tables as Markdown",
}


def options() -> argparse.ArgumentParser:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="DIR", help="where the files lie"
    )
    for name, (usual, _) in READERS.items():
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"instead of {usual}")
    parser.add_argument("--mode", choices=(*MODES, "all"), default="hybrid")
    parser.add_argument(
        "--ranking", metavar="NAME", help="a named ranking instead of the usual one"
    )
    for name, what in SWITCHES.items():
        parser.add_argument(f"--{name}", action="store_true", help=what)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every question there")
    return parser


def load(asked: argparse.Namespace, console: Console) -> list[Dataset]:
    """What there is; what is missing is said in one line each."""
    found = []
    for name, (usual, reader) in READERS.items():
        path = getattr(asked, name) or asked.data / usual
        why = f"there is no file {path}"
        if path.is_file():
            dataset = reader(path)
            if dataset.questions:
                found.append(dataset)
                continue
            why = f"no question of {path} has evidence"
        console.print(f"{name} is not measured: {why}", soft_wrap=True, markup=False)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = options()
    asked = parser.parse_args(arguments)
    if asked.loo and asked.mode not in {"hybrid", "all"}:
        parser.error("--loo chooses between weights, which only a hybrid recall has")
    console = Console(stderr=True)
    found = load(asked, console)
    if not found:
        return 1
    columns = (TextColumn("{task.description:>40}"), BarColumn(), MofNCompleteColumn())
    with (
        tempfile.TemporaryDirectory(prefix="reverie-bench-") as folder,
        Progress(*columns, console=console) as progress,
    ):
        measurement = Measurement(asked, Path(folder), progress)
        with measurement.closing:
            try:
                measurement.check()
            except reverie.InvalidInput as error:
                parser.error(str(error))
            reports = measurement.run(found)
    output = Console(width=max(console.width, WIDTH))
    for report in reports:
        for title, head, rows in tables(report):
            if asked.markdown:
                print(markdown(title, head, rows) + "\n")
            else:
                output.print(drawn(title, head, rows))
        print(f"{report.dataset.name}: {report.dataset.described}\n")
    if asked.json:
        text = json.dumps(plain(reports), indent=1, ensure_ascii=False)
        asked.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
