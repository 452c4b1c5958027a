"""Peers beside Reverie: the same texts, queries and embedder, in alternating rounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import numpy as np

import reverie
from bench.measuring import Meter, Row, timed
from bench.peers import environments
from bench.peers.driver import Driver
from bench.peers.environments import Recipe, Unavailable
from bench.plots import Costs, Series, add_curves, recall_curves
from bench.running import Bench
from bench.subjects import Plan, Subject, twins
from bench.texts import Question, Writer

SEARCH, ADD = "recall of 5, beside others", "adding one, beside others"
TENTH = 0.1
WARMING = "anything at all"
"""Asked ahead of each round: while another is measured, what one has at hand grows cold."""


@dataclass
class Compared:
    """A peer, the stores it was filled with, and how often it found what was asked for."""

    recipe: Recipe
    driver: Driver
    stores: list[str] = field(default_factory=list)
    found: dict[str, list[float]] = field(default_factory=dict)


def compare(
    bench: Bench, plan: Plan, writer: Writer, subjects: Sequence[Subject]
) -> list[Compared]:
    """Install, fill and measure. A peer that fails is a row with its reason."""
    peers = [peer for recipe in environments.RECIPES if (peer := _started(bench, recipe))]
    for subject in subjects:
        _fill(bench, plan, subject, peers)
    ours: dict[str, list[float]] = {}
    with twins(subjects, "peers") as spaces:
        for done in bench.steps("beside others", plan.peer_rounds + 1):
            for subject in subjects:
                asked = writer.questions(subject.texts, plan.peer_recalls)
                texts = writer.sentences(plan.peer_writes)
                share = _ours(bench.meter, subject, spaces[subject.name], asked, texts, done > 0)
                ours.setdefault(subject.name, []).append(share)
                for peer in [peer for peer in peers if subject.name in peer.stores]:
                    try:
                        _theirs(bench.meter, peer, subject.name, asked, texts, done > 0)
                    except Unavailable as error:
                        peer.stores.clear()
                        bench.meter.rows.append(_not_run(peer.recipe, str(error)))
    for peer in peers:
        held = [subject.name for subject in subjects[1:]] if peer.recipe.tenth else []
        for store in peer.stores:
            shares = f"found {mean(ours[store]):.0%}, theirs {mean(peer.found[store]):.0%}"
            _rows(bench.meter, peer.recipe, store, TENTH if store in held else None, shares)
    return peers


def _started(bench: Bench, recipe: Recipe) -> Compared | None:
    for _ in bench.steps(f"installing {recipe.name}", 1):
        try:
            python = environments.python_of(recipe)
            versions = environments.versions(python, recipe)
        except Unavailable as error:
            bench.meter.rows.append(_not_run(recipe, str(error)))
            return None
    folder = bench.folder / recipe.module.rpartition(".")[2]
    driver = Driver(python, recipe.module, folder)
    bench.closing.callback(driver.close)
    bench.about[recipe.name] = versions
    return Compared(recipe, driver)


def _not_run(recipe: Recipe, why: str, at: str = "") -> Row:
    what = f"{recipe.name} at {at}" if at else recipe.name
    return Row(SEARCH, what, "s", 0, note=f"not run: {why}")


def _fill(bench: Bench, plan: Plan, subject: Subject, peers: Sequence[Compared]) -> None:
    texts, vectors = _handed_over(bench.folder, subject)
    for at in bench.steps(f"filling theirs, {subject.name}", len(peers)):
        peer = peers[at]
        if peer.recipe.slow and subject.size > plan.slow_peer:
            why = "filling it takes minutes"
            bench.meter.rows.append(_not_run(peer.recipe, why, subject.name))
            continue
        try:
            peer.driver.fill(subject.name, texts, vectors)
            peer.stores.append(subject.name)
        except Unavailable as error:
            bench.meter.rows.append(_not_run(peer.recipe, str(error), subject.name))


def _handed_over(folder: Path, subject: Subject) -> tuple[Path, Path]:
    texts, vectors = folder / f"{subject.name}-texts.json", folder / f"{subject.name}.npy"
    texts.write_text(json.dumps(list(subject.texts)), encoding="utf-8")
    np.save(vectors, subject.vectors)
    return texts, vectors


def _ours(
    meter: Meter,
    subject: Subject,
    space: reverie.Space,
    asked: Sequence[Question],
    texts: Sequence[str],
    keep: bool,
) -> float:
    queries, name = [question.query for question in asked], subject.name
    subject.space.recall(WARMING)
    took = {
        f"recall beside others {name}": timed(subject.space.recall, queries),
        f"raw write beside others {name}": timed(subject.raw.write, texts),
        f"remember beside others {name}": timed(space.remember, texts),
    }
    if keep:
        meter.take_all(took)
    return _share(asked, [[hit.text for hit in subject.space.recall(query)] for query in queries])


def _theirs(
    meter: Meter,
    peer: Compared,
    store: str,
    asked: Sequence[Question],
    texts: Sequence[str],
    keep: bool,
) -> None:
    peer.driver.search(store, [WARMING])
    searched, found = peer.driver.search(store, [question.query for question in asked])
    added = peer.driver.add(store, texts)
    if keep:
        meter.take(f"search {peer.recipe.name} {store}", searched)
        meter.take(f"add {peer.recipe.name} {store}", added)
    peer.found.setdefault(store, []).append(_share(asked, found))


def _share(asked: Sequence[Question], found: Sequence[Sequence[str]]) -> float:
    """How many of the queries found the text they were made of."""
    return mean(question.text in texts for question, texts in zip(asked, found, strict=True))


def _rows(meter: Meter, recipe: Recipe, store: str, most: float | None, shares: str) -> None:
    theirs, against = f"{recipe.name} {store}", f"{recipe.name}, {recipe.note}"
    ours = f"recall beside others {store}"
    meter.row(SEARCH, f"hybrid at {store}", ours, f"search {theirs}", against, most, note=shares)
    meter.row(
        ADD, f"remember at {store}", f"remember beside others {store}", f"add {theirs}", recipe.name
    )


def curves(meter: Meter, subjects: Sequence[Subject], peers: Sequence[Compared]) -> Costs:
    """Cost against size, for a picture: ours from the rounds that peers were measured in."""

    def line(name: str) -> Series:
        return {
            subject.size: meter.cost(f"{name} {subject.name}")
            for subject in subjects
            if f"{name} {subject.name}" in meter.samples
        }

    def theirs(what: str) -> dict[str, Series]:
        return {
            peer.recipe.name: line(f"{what} {peer.recipe.name}") for peer in peers if peer.stores
        }

    return {
        **recall_curves(line("recall beside others"), theirs("search"), line("floor")),
        **add_curves(
            line("remember beside others"), theirs("add"), line("raw write beside others")
        ),
    }
