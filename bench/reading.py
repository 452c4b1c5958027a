"""What a recall costs: beside its floor, with many spaces, and by mode."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import reverie
from bench.measuring import Sample, timed
from bench.running import Bench
from bench.subjects import Plan, Subject, open_store
from bench.texts import Writer
from reverie.embed.local import LocalEmbedder
from reverie.model import MODES

FLOOR = "embedding + matmul + statement"
IN_TURN = "the same, in turn for each query"
TIMES, PLUS = 2.0, 1e-3
"""What a hybrid recall may cost: so many times its floor, and a millisecond."""
OTHER_SPACES = 1.3


def recalls(bench: Bench, plan: Plan, writer: Writer, subjects: Sequence[Subject]) -> None:
    """Every mode, warm, and each part of the floor alone, over the same queries."""
    for done in bench.steps(f"recall up to {subjects[-1].name}", plan.rounds + 1):
        for subject in subjects:
            took = _round(subject, writer.queries(subject.texts, plan.recalls))
            if done > 0:
                bench.meter.take_all(took)
    for subject in subjects:
        name = subject.name
        parts = {f"{part} {name}": 1.0 for part in ("embed", "matmul", "statement")}
        bench.meter.combine(f"floor {name}", parts)
        bench.meter.combine(f"fts5 + matmul {name}", {f"fts5 {name}": 1, f"matmul {name}": 1})


def _round(subject: Subject, queries: list[str]) -> dict[str, Sample]:
    name, embedder = subject.name, LocalEmbedder()
    vectors = [embedder.embed_query(query) for query in queries]
    weights = [subject.keyword.prepare(query) for query in queries]

    def in_turn(at: int) -> None:
        """As a recall must, all three for one query: alone, each keeps its data in reach."""
        embedder.embed_query(queries[at])
        subject.product.nearest(vectors[at])
        subject.keyword.run(weights[at])

    took = {
        f"in turn {name}": timed(in_turn, range(len(queries))),
        f"embed {name}": timed(embedder.embed_query, queries),
        f"matmul {name}": timed(subject.product.nearest, vectors),
        f"statement {name}": timed(subject.keyword.run, weights),
        f"fts5 {name}": timed(subject.raw.search, queries),
    }
    for mode in MODES:
        took[f"{mode} {name}"] = timed(partial(subject.space.recall, mode=mode), queries)
    return took


def recall_rows(bench: Bench, subjects: Sequence[Subject], held: Sequence[int]) -> None:
    """``held`` are the sizes with a target."""
    row, names = bench.meter.row, [subject.name for subject in subjects]
    for subject in subjects:
        most = TIMES if subject.size in held else None
        what, name = f"hybrid at {subject.name}", subject.name
        row("recall", what, f"hybrid {name}", f"floor {name}", FLOOR, most, PLUS if most else 0.0)
    for mode, bare, against in (
        ("hybrid", "in turn", IN_TURN),
        ("hybrid", "fts5 + matmul", "FTS5 + matmul"),
        ("keyword", "statement", "statement"),
        ("vector", "matmul", "matmul"),
    ):
        for name in names:
            what, ours = f"{mode} at {name}", f"{mode} {name}"
            row("recall, beside bare searches", what, ours, f"{bare} {name}", against)
    for name in names:
        ours, alone = f"statement {name}", f"fts5 {name}"
        row("parts of the floor", f"keyword statement at {name}", ours, alone, "FTS5")
    for name in names:
        row("parts of the floor", f"matmul at {name}", f"matmul {name}")
    row("parts of the floor", f"embedding of a query at {names[-1]}", f"embed {names[-1]}")


def many_spaces(bench: Bench, plan: Plan, writer: Writer, alone: Subject) -> None:
    """Many spaces in one store, beside a store that holds a single one of the same size."""
    store = open_store(bench.folder / "many.db")
    bench.closing.callback(store.close)
    spaces: list[tuple[reverie.Space, list[str]]] = []
    for i in bench.steps(f"filling {plan.spaces} spaces", plan.spaces):
        space, texts = store.space(f"bench{i}"), writer.sentences(alone.size)
        space.import_records({"content": text} for text in texts)
        spaces.append((space, texts))
    for space, _ in spaces:
        space.recall("anything at all")
    for done in bench.steps("recall of many spaces", plan.rounds + 1):
        picked = random.Random(done).choices(spaces, k=plan.recalls)
        asked = [(space, writer.queries(texts, 1)[0]) for space, texts in picked]
        one, texts = spaces[0]
        took = {
            "alone": timed(alone.space.recall, writer.queries(alone.texts, plan.recalls)),
            "each of many": timed(lambda pair: pair[0].recall(pair[1]), asked),
            "one of many": timed(one.recall, writer.queries(texts, plan.recalls)),
        }
        if done > 0:
            bench.meter.take_all(took)
    what, single = f"{plan.spaces} spaces of {alone.name}", f"1 space of {alone.name}"
    row = bench.meter.row
    row("many spaces", f"{what}, each in turn", "each of many", "alone", single, OTHER_SPACES)
    row("many spaces", f"{what}, one of them", "one of many", "alone", single, OTHER_SPACES)
