"""How well the calibrated score tells what answers a query from what does not.

    python bench/floor.py [--fit] [--floor SCORE] [--markdown] [--json FILE]

Asked are questions that have an answer, questions that have none (LoCoMo's fifth category,
LongMemEval's ``_abs``, and those of ``bench/everyday.py``), and everyday requests that need no
memory, of every space. *people* have about fifty memories each; *few memories* are the same people
when they had told 1, 3, 8 or 20 of them, and a question about the others has no answer. *Kept* is
the share of the questions with an answer among the first twelve hits that still have one above the
floor; *let in* is the share of the others for which any hit is above it. The score of each query
comes from a model that was fitted without its fold: a person, a conversation, a sixth of
LongMemEval or of the requests. In brackets is where a figure lies in 95 of 100 resamplings of
persons, conversations, questions or requests. ``--fit`` prints the weights for
``recall/calibration.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import reverie
from bench import datasets, everyday
from bench.datasets import FOLDS, LOCOMO, LONGMEMEVAL, Turn, shown
from bench.retrieval import DATA, READERS, UNWATCHED, Moment, fill, turns_of
from reverie.model import DEFAULT_FLOOR
from reverie.recall import calibration
from reverie.recall.calibration import Evidence, QueryTraits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

OWN, FEW = "people", "few memories"
SIZES = (1, 3, 8, 20)
# Requests asked of each person for each of these sizes.
REQUESTS_OF_FEW = 60
ANSWERABLE, UNANSWERABLE, REQUEST = "answerable", "unanswerable", "request"
LIMIT = 12
DRAWS = 1_000
# What each kind counts for in a fit, shared by its queries, alike for every data set.
SHARES = {ANSWERABLE: 1.0, REQUEST: 0.5, UNANSWERABLE: 0.2}
RIDGE = 1.0
BY_WORDS = ("coverage", "coverage_by_size", "strong_terms")
# What a model does without that is for hits found by words alone, or by vectors alone.
MISSING: Mapping[str, tuple[str, ...]] = {
    "words and vectors": (),
    "words": ("similarity",),
    "vectors": BY_WORDS,
}


@dataclass(frozen=True)
class Asked:
    """A query with its hits: what each is worth of the best one, and whether it is an answer."""

    dataset: str
    kind: str
    text: str
    group: str
    fold: int
    features: Mapping[str, float] | None
    parts: tuple[float, ...]
    gold: tuple[bool, ...]


@contextmanager
def recorded() -> Iterator[list[dict[str, float]]]:
    """Record the features of each recall; every best hit is worth 1 meanwhile."""
    seen: list[dict[str, float]] = []
    fitted = calibration.worth

    def record(traits: QueryTraits, evidence: Evidence) -> float:
        seen.append(calibration.features(traits, evidence))
        return 1.0

    calibration.worth = record
    try:
        yield seen
    finally:
        calibration.worth = fitted


class Asker:
    """Asks the queries of one data set after another."""

    def __init__(self, mode: str) -> None:
        self.asked: list[Asked] = []
        self._mode: Any = mode

    def ask(
        self,
        space: reverie.Space,
        dataset: str,
        kind: str,
        text: str,
        group: str,
        fold: int,
        is_gold: Callable[[reverie.Hit], bool] = lambda hit: False,
    ) -> None:
        with recorded() as seen:
            hits = space.recall(text, limit=LIMIT, mode=self._mode)
        self.asked.append(
            Asked(
                dataset,
                kind,
                text,
                group,
                fold,
                seen[-1] if seen else None,
                tuple(hit.score for hit in hits),
                tuple(map(is_gold, hits)),
            )
        )

    def requests(self, space: reverie.Space, dataset: str) -> None:
        for place, text in enumerate(everyday.lines(everyday.REQUESTS)):
            self.ask(space, dataset, REQUEST, text, text, place % FOLDS)


# -- the data sets --------------------------------------------------------------------------------


def ask_people(asker: Asker, store: reverie.Store) -> None:
    for place, person in enumerate(everyday.PEOPLE):
        space = store.space(person.name)
        ids = [
            space.remember(content, category=category, subject=subject).id
            for category, subject, content in everyday.memories(person)
        ]
        for number, line in enumerate(everyday.lines(person.turns)):
            space.session(f"chat {number // 3}").append({"role": "user", "content": line})
        for text, gold in everyday.questions(person):
            is_gold = gold_memories([ids[at] for at in gold])
            asker.ask(space, OWN, ANSWERABLE, text, text, place, is_gold)
        for text in everyday.lines(person.unanswerable):
            asker.ask(space, OWN, UNANSWERABLE, text, text, place)
        asker.requests(space, OWN)


def ask_few(asker: Asker, store: reverie.Store) -> None:
    """Ask people who told little: each memory is in one space of each size."""
    chance = np.random.default_rng(datasets.SEED)
    requests = everyday.lines(everyday.REQUESTS)
    for place, person in enumerate(everyday.PEOPLE):
        memories, questions = everyday.memories(person), everyday.questions(person)
        never_told = everyday.lines(person.unanswerable)
        for size in SIZES:
            order = chance.permutation(len(memories)).tolist()
            parts = [order[start : start + size] for start in range(0, len(order), size)]
            for number, part in enumerate(parts):
                space = store.space(f"{person.name}, {size}, {number}")
                ids = {}
                for at in part:
                    category, subject, content = memories[at]
                    ids[at] = space.remember(content, category=category, subject=subject).id
                told = [(text, gold) for text, gold in questions if {*gold} <= {*part}]
                for text, gold in told:
                    is_gold = gold_memories([ids[at] for at in gold])
                    asker.ask(space, FEW, ANSWERABLE, text, text, place, is_gold)
                others = [text for text, gold in questions if not {*gold} & {*part}]
                asked = drawn(chance, others, max(len(told), 1))
                asked += drawn(chance, never_told, len(never_told) // len(parts) + 1)
                for text in asked:
                    asker.ask(space, FEW, UNANSWERABLE, text, text, place)
                for text in drawn(chance, requests, max(REQUESTS_OF_FEW // len(parts), 2)):
                    fold = requests.index(text) % FOLDS
                    asker.ask(space, FEW, REQUEST, text, text, fold)


def drawn(chance: np.random.Generator, texts: Sequence[str], many: int) -> list[str]:
    places = chance.choice(len(texts), size=min(many, len(texts)), replace=False)
    return [texts[at] for at in places.tolist()]


def ask_locomo(asker: Asker, store: reverie.Store, clock: Moment, path: Path) -> None:
    samples = json.loads(path.read_text(encoding="utf-8"))
    for place, (pool, sample) in enumerate(zip(datasets.locomo(path).pools, samples, strict=True)):
        space = store.space(pool.name)
        fill(space, clock, pool)
        for question in pool.questions:
            asker.ask(
                *(space, LOCOMO, ANSWERABLE, question.text, pool.name, place % FOLDS),
                gold_turns(question.gold),
            )
        for each in sample["qa"]:
            if each["category"] == 5:
                asker.ask(space, LOCOMO, UNANSWERABLE, each["question"], pool.name, place % FOLDS)
        asker.requests(space, LOCOMO)


def ask_longmemeval(asker: Asker, store: reverie.Store, clock: Moment, path: Path) -> None:
    (pool,) = datasets.longmemeval(path).pools
    space = store.space(pool.name)
    fill(space, clock, pool)
    for question in pool.questions:
        fold = datasets.fold_of(question.id)
        asker.ask(
            *(space, LONGMEMEVAL, ANSWERABLE, question.text, question.id, fold),
            gold_turns(question.gold),
        )
    for each in json.loads(path.read_text(encoding="utf-8")):
        id = each["question_id"]
        if id.endswith("_abs"):
            fold = datasets.fold_of(id)
            asker.ask(space, LONGMEMEVAL, UNANSWERABLE, each["question"], id, fold)
    asker.requests(space, LONGMEMEVAL)


def gold_memories(ids: Sequence[str]) -> Callable[[reverie.Hit], bool]:
    return lambda hit: hit.id in ids


def gold_turns(gold: Sequence[Turn]) -> Callable[[reverie.Hit], bool]:
    turns = set(gold)
    return lambda hit: hit.event is not None and not turns.isdisjoint(turns_of(hit))


# -- the model ------------------------------------------------------------------------------------


def fit(asked: Sequence[Asked]) -> dict[str, float]:
    """The weights of a logistic model that tells answerable queries from the others."""
    rows = [each for each in asked if each.features is not None]
    names = [name for name in rows[0].features or {} if name != "constant"]
    table = np.array([[(each.features or {})[name] for name in names] for each in rows])
    mean, width = table.mean(axis=0), table.std(axis=0) + 1e-9
    inputs = np.c_[(table - mean) / width, np.ones(len(rows))]
    wanted = np.array([each.kind == ANSWERABLE for each in rows], np.float64)
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for each in rows:
        counts[each.dataset, each.kind] += 1
    shares = np.array([300 * SHARES[each.kind] / counts[each.dataset, each.kind] for each in rows])
    ridge = RIDGE * np.r_[np.ones(len(names)), 1e-9]
    weights = np.zeros(len(names) + 1)
    for _ in range(50):
        expected = 1 / (1 + np.exp(-inputs @ weights))
        slope = inputs.T @ (shares * (expected - wanted)) + ridge * weights
        bend = (inputs * (shares * expected * (1 - expected))[:, None]).T @ inputs
        step = np.linalg.solve(bend + np.diag(ridge), slope)
        weights -= step
        if np.abs(step).max() < 1e-7:
            break
    plain = weights[:-1] / width
    constant = float(weights[-1] - plain @ mean)
    return {**dict(zip(names, plain.tolist(), strict=True)), "constant": constant}


def without(asked: Sequence[Asked], missing: Sequence[str]) -> list[Asked]:
    """The queries without these features."""
    return [
        replace(
            each,
            features=None
            if each.features is None
            else {name: value for name, value in each.features.items() if name not in missing},
        )
        for each in asked
    ]


def worth(weights: Mapping[str, float], each: Asked) -> float:
    if each.features is None:
        return 0.0
    logit = sum(weights[name] * value for name, value in each.features.items())
    return float(1 / (1 + np.exp(-np.clip(logit, -50, 50))))


def cross_validated(asked: Sequence[Asked]) -> list[float]:
    """What the best hit of each query is worth, by a model fitted without the query's fold."""
    models = {
        fold: fit([each for each in asked if each.fold != fold])
        for fold in {each.fold for each in asked}
    }
    return [worth(models[each.fold], each) for each in asked]


# -- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A share or an AUROC of so many queries, and where it lies in 95 of 100 resamplings."""

    value: float
    low: float
    high: float
    queries: int

    def __str__(self) -> str:
        return shown(self.value, (self.low, self.high))


def resampled(
    groups: Sequence[str], figure: Callable[[NDArray[np.int64]], float], queries: int
) -> Figure:
    """A figure of the queries of all groups, and of as many groups drawn with replacement."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        places[group].append(place)
    members = [np.array(each) for each in places.values()]
    chance = np.random.default_rng(datasets.SEED)
    drawn = [
        figure(
            np.concatenate([members[at] for at in chance.integers(len(members), size=len(members))])
        )
        for _ in range(DRAWS)
    ]
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return Figure(figure(np.arange(len(groups))), float(low), float(high), queries)


def figures(
    asked: Sequence[Asked], worths: Sequence[float], floor: float
) -> dict[str, dict[str, Figure]]:
    """The figures of each data set, and of all."""
    made = {}
    names = list(dict.fromkeys(each.dataset for each in asked))
    for name in [*names, "all"]:
        chosen = [
            (each, value)
            for each, value in zip(asked, worths, strict=True)
            if name in {each.dataset, "all"}
        ]
        made[name] = _figures_of(chosen, floor)
    return made


def _figures_of(chosen: Sequence[tuple[Asked, float]], floor: float) -> dict[str, Figure]:
    by_kind: dict[str, list[tuple[Asked, float]]] = defaultdict(list)
    for each, value in chosen:
        by_kind[each.kind].append((each, value))
    found = [(each, value) for each, value in by_kind[ANSWERABLE] if any(each.gold)]
    held = np.array([any(each.gold) for each, _ in by_kind[ANSWERABLE]], np.float64)
    groups = [each.group for each, _ in by_kind[ANSWERABLE]]
    made = {"in 12": resampled(groups, lambda at: float(held[at].mean()), len(held))}
    best = np.array(
        [
            value * max(part for part, gold in zip(each.parts, each.gold, strict=True) if gold)
            for each, value in found
        ]
    )
    made["kept"] = _share([each.group for each, _ in found], best >= floor)
    for kind in (REQUEST, UNANSWERABLE):
        values = np.array([value if each.parts else 0.0 for each, value in by_kind[kind]])
        made[f"{kind} let in"] = _share([each.group for each, _ in by_kind[kind]], values >= floor)
        made[f"AUROC, {kind}"] = _auroc(by_kind[ANSWERABLE], by_kind[kind])
    return made


def _share(groups: Sequence[str], passed: NDArray[np.bool_]) -> Figure:
    return resampled(groups, lambda at: float(passed[at].mean()), len(passed))


def _auroc(
    answered: Sequence[tuple[Asked, float]], others: Sequence[tuple[Asked, float]]
) -> Figure:
    pairs = [*answered, *others]
    positive = np.array([True] * len(answered) + [False] * len(others))
    values = np.array([value for _, value in pairs])

    def area(at: NDArray[np.int64]) -> float:
        chosen, wanted = values[at], positive[at]
        if wanted.all() or not wanted.any():
            return float("nan")
        ranks = _mean_ranks(chosen)
        count = int(wanted.sum())
        return float((ranks[wanted].sum() - count * (count + 1) / 2) / (count * (~wanted).sum()))

    return resampled([each.group for each, _ in pairs], area, len(pairs))


def _mean_ranks(values: Floats) -> Floats:
    """The rank of each value from 1 on; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[inverse]
    return ranks


# -- the command ----------------------------------------------------------------------------------


def collect(data: Path, mode: str) -> list[Asked]:
    asker, clock = Asker(mode), Moment()
    clock.ms = 1_700_000_000_000
    with (
        tempfile.TemporaryDirectory(prefix="reverie-bench-") as folder,
        reverie.open(
            Path(folder) / "store.db", settings=UNWATCHED, embedder="local", clock=clock
        ) as store,
    ):
        ask_few(asker, store)
        ask_people(asker, store)
        locomo, longmemeval = (data / usual for usual, _ in READERS.values())
        if locomo.is_file():
            ask_locomo(asker, store, clock, locomo)
        if longmemeval.is_file():
            ask_longmemeval(asker, store, clock, longmemeval)
    return asker.asked


def table(made: Mapping[str, Mapping[str, Figure]], *, as_markdown: bool) -> str:
    head = ["", *next(iter(made.values()))]
    rows = [
        [name, *(f"{figure} of {figure.queries}" for figure in figures.values())]
        for name, figures in made.items()
    ]
    if as_markdown:
        lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join("  ".join(f"{cell:>26}" for cell in line) for line in [head, *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="DIR", help="where the files lie"
    )
    parser.add_argument("--mode", choices=("hybrid", "keyword", "vector"), default="hybrid")
    parser.add_argument("--floor", type=float, default=DEFAULT_FLOOR, help="instead of the usual")
    parser.add_argument("--fit", action="store_true", help="print weights fitted to everything")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every query there")
    given = parser.parse_args(arguments)
    asked = collect(given.data, given.mode)
    if given.json:
        text = json.dumps([asdict(each) for each in asked], ensure_ascii=False)
        given.json.write_text(text + "\n", encoding="utf-8")
    if given.fit:
        for what, missing in MISSING.items():
            print(what)
            for name, weight in fit(without(asked, missing)).items():
                print(f'    "{name}": {weight:.3f},')
        return 0
    made = figures(asked, cross_validated(asked), given.floor)
    print(table(made, as_markdown=given.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
