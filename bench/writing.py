"""What writes cost, and what a recall costs after them: our own, and those of another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import reverie
from bench.measuring import Sample, timed
from bench.neighbour import Neighbour
from bench.running import Bench
from bench.subjects import SPACE, Plan, Subject, twins
from bench.texts import Writer

RAW_WRITES = 5.0
"""What a remember may cost: so many raw writes, and no more than so much growth."""
GROWTH = 1.3
BULK = 2.0


def remembers(bench: Bench, plan: Plan, writer: Writer, subjects: Sequence[Subject]) -> None:
    with twins(subjects, "writing") as spaces:
        for done in bench.steps("remember", plan.rounds + 1):
            for subject in subjects:
                texts = writer.sentences(plan.writes)
                took = {
                    f"raw write {subject.name}": timed(subject.raw.write, texts),
                    f"remember {subject.name}": timed(spaces[subject.name].remember, texts),
                }
                if done > 0:
                    bench.meter.take_all(took)
        _notes(bench, plan, writer, subjects[0])
    first, last = subjects[0].name, subjects[-1].name
    row = bench.meter.row
    for subject in subjects:
        ours, raw = f"remember {subject.name}", f"raw write {subject.name}"
        row("remember", f"at {subject.name}", ours, raw, "row + FTS5", RAW_WRITES)
    grown, small = f"remember {last}", f"remember {first}"
    row("remember", f"at {last}, growth", grown, small, f"remember at {first}", GROWTH)
    row("remember", "the note of a recall (in the next write)", "note")


def _notes(bench: Bench, plan: Plan, writer: Writer, subject: Subject) -> None:
    """What a recall leaves for the next write to do."""
    plain = bench.meter.cost(f"remember {subject.name}")
    with subject.twin("notes") as (store, _):
        space = store.space(SPACE)
        for _ in bench.steps("notes of recalls", plan.rounds):
            queries = writer.queries(subject.texts, plan.recalls)
            found = sum(bool(space.recall(query)) for query in queries)
            took = timed(space.remember, writer.sentences(1))
            bench.meter.take("note", Sample(max(took.cpu - plain, 0.0) / found))


def after_a_write(bench: Bench, plan: Plan, writer: Writer, subjects: Sequence[Subject]) -> None:
    """A recall directly after a remember of the same process."""
    with twins(subjects, "after") as spaces:
        for done in bench.steps("recall after a write", plan.rounds + 1):
            for subject in subjects:
                name, space = subject.name, spaces[subject.name]
                queries = writer.queries(subject.texts, plan.recalls // 2)
                took = {
                    f"unwritten {name}": timed(space.recall, queries),
                    f"written {name}": timed(space.recall, queries, _writing(space, writer)),
                }
                if done > 0:
                    bench.meter.take_all(took)
    for subject in subjects:
        ours, warm = f"written {subject.name}", f"unwritten {subject.name}"
        what = f"after a write of its own, at {subject.name}"
        bench.meter.row("recall after writes", what, ours, warm, "warm recall")


def after_foreign_writes(
    bench: Bench, plan: Plan, writer: Writer, subjects: Sequence[Subject]
) -> None:
    """A recall after another process wrote, beside a warm one of the same store."""
    for subject in subjects:
        with (
            subject.twin("foreign") as (store, path),
            Neighbour(path, SPACE, seed=subject.size) as neighbour,
        ):
            space, name = store.space(SPACE), subject.name
            space.recall("anything at all")
            for done in bench.steps(f"foreign writes at {name}", plan.rounds + 1):
                took = {}
                for count in plan.foreign:
                    queries = writer.queries(subject.texts, 3)
                    took[f"warm beside {count} {name}"] = timed(space.recall, queries)
                    took[f"foreign {count} {name}"] = timed(
                        space.recall, queries[:1], _written(neighbour, count)
                    )
                if done > 0:
                    bench.meter.take_all(took)
        for count in plan.foreign:
            ours, warm = f"foreign {count} {name}", f"warm beside {count} {name}"
            what = f"after {count} of another process, at {name}"
            bench.meter.row("recall after writes", what, ours, warm, "warm recall")


def _writing(space: reverie.Space, writer: Writer) -> Callable[[str], object]:
    return lambda _: space.remember(writer.sentence())


def _written(neighbour: Neighbour, count: int) -> Callable[[str], object]:
    return lambda _: neighbour.write(count)


def import_rows(bench: Bench, subjects: Sequence[Subject]) -> None:
    for subject in subjects:
        name = subject.name
        both = bench.meter.combine(
            f"embed + bulk {name}", {f"embed each {name}": 1, f"bulk {name}": 1}
        )
        against = "embedding + raw bulk insert"
        what = f"a memory at {name}"
        bench.meter.row("bulk import", what, f"import {name}", both, against, BULK)
