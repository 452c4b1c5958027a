"""A damaged file: no wrong answer without a report, and undamaged entries can be salvaged."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie import ReverieError, Store
from reverie.errors import EmbeddingModelChangedError, StoreDamaged
from reverie.maintenance import damage
from reverie.prompt.context import RECALLED_HEADING
from tests.conftest import PROVE
from tests.figures import figure
from tests.maintenance import damaged_stores
from tests.maintenance.damaged_stores import (
    Answers,
    answers,
    make_store,
    open_store,
    rows_of,
)

FLIPS = int(os.environ.get("REVERIE_DAMAGE_FLIPS", "1000" if PROVE else "5"))
OTHERS = int(os.environ.get("REVERIE_DAMAGE_OTHERS", "100" if PROVE else "3"))


class Whole:
    """A store before it was damaged, and what it answered."""

    def __init__(self, folder: Path) -> None:
        path = folder / "whole.db"
        make_store(path)
        self.data = path.read_bytes()
        self.rows = rows_of(path)
        # On a copy: a recall writes a note.
        (folder / "asked.db").write_bytes(self.data)
        with open_store(folder / "asked.db") as store:
            self.answers = answers(store)
            for name, user in damaged_stores.SCOPES:
                space = store.space(name, user=user)
                for memory in space.memories(include_forgotten=True):
                    shown = damaged_stores.pieces([memory, space.history(memory.id)])
                    self.answers.pieces[name, user, memory.id] = set(shown)
        assert not self.answers.errors

    def piece(self, name: tuple[Any, ...], piece: tuple[Any, ...]) -> bool:
        """Whether a scope was ever shown this, or a passage of it."""
        known = set[Any]().union(
            *(held for where, held in self.answers.pieces.items() if where[:2] == name[:2])
        )
        if piece[0] == "hit":
            _, id, text = piece
            texts = [each[3] for each in known if each[:2] == ("memory", id)]
            texts += [each[3] for each in known if each[0] == "event" and _id(each) == id]
            return any(text in each for each in texts)
        if piece == ("line", "Untitled"):
            return True  # a session whose first words are damaged
        if piece == ("line", RECALLED_HEADING.strip()):
            return True  # a damaged vector can lift a text above the floor, where none was before
        if piece[0] == "line" and piece not in known:
            # A line of a prompt may show another memory or event of the scope.
            texts = [each[3] for each in known if each[0] in ("memory", "event")]
            return any(text[:60] in piece[1] for text in texts)
        return piece in known


def _id(event: tuple[Any, ...]) -> str:
    return f"{event[1]}:{event[2]}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def check(whole: Whole, folder: Path, how: str, most_lost: int) -> None:
    path = folder / "damaged.db"
    saved = folder / "saved.db"
    try:
        with open_store(path) as store:
            check_answers(whole, store, how)
            check_upkeep(whole, store, folder, how)
    except StoreDamaged as error:
        assert "reverie " in str(error), (how, error)
    except ReverieError:
        pass  # it says that it cannot be opened, and why
    path.write_bytes((folder / "kept.db").read_bytes())
    check_salvage(whole, path, saved, how, most_lost)


def check_answers(whole: Whole, store: Store, how: str) -> None:
    found, report = answers(store), store.verify()
    reported = not report.ok or store.damaged > 0
    for name, value in found.given.items():
        if name in whole.answers.given and value == whole.answers.given[name]:
            continue
        assert reported, f"{how}: {name} answers otherwise, and nothing tells of it"
        for piece in found.pieces[name]:
            assert whole.piece(name, piece), f"{how}: {name} answers {piece!r}"
    for name, error in found.errors.items():
        assert "\n" not in str(error), (how, name, error)


def check_upkeep(whole: Whole, store: Store, folder: Path, how: str) -> None:
    damaged = damage.find_store_damage(store.runtime)
    problems = store.verify().problems
    if damaged:
        assert store.doctor()["problems"], f"{how}: the doctor finds nothing"
        assert problems, f"{how}: verify finds nothing"
    for name, user in damaged_stores.SCOPES:
        try:
            list(store.space(name, user=user).export(skip_damaged=True))
        except StoreDamaged:
            assert problems, how
    try:
        store.backup(folder / "backup.db")
    except ReverieError:
        assert problems, how
    if damaged:
        with pytest.raises(StoreDamaged):
            store.rebuild()
        return
    if not problems:
        return  # what was hit means nothing
    try:
        store.rebuild()
    except EmbeddingModelChangedError:
        store.reembed()
    except StoreDamaged as error:
        assert "salvage" in str(error), (how, error)
        return
    assert store.verify().problems == (), f"{how}: {store.verify().problems}"
    same(whole.answers, answers(store), how)


def same(wanted: Answers, found: Answers, how: str) -> None:
    assert not found.errors, (how, found.errors)
    for name, value in wanted.given.items():
        assert found.given[name] == value, f"{how}: after a rebuild {name} answers otherwise"


def check_salvage(whole: Whole, path: Path, saved: Path, how: str, most_lost: int) -> None:
    try:
        report = reverie.salvage_store(path, saved, embedder="hashing")
    except ReverieError:
        assert most_lost >= len(whole.rows), f"{how}: nothing was saved"
        return
    assert report.problems == (), (how, report.problems)
    with open_store(saved) as store:
        assert store.verify().problems == ()
    rows = rows_of(saved)
    for place, row in rows.items():
        if row[5] != "salvage":  # an entry that stands for a lost version
            assert row == whole.rows[place], f"{how}: {place} was saved otherwise"
    lost = {place for place in whole.rows if place not in rows or rows[place][4] == "salvage"}
    assert len(lost) <= most_lost, f"{how}: {sorted(lost)} were lost"
    if lost:
        assert not report.complete, how


def run(
    whole: Whole,
    tmp_path: Path,
    kind: Callable[[bytearray, random.Random], str],
    seeds: range,
    most_lost: int,
) -> None:
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        data = bytearray(whole.data)
        how = f"seed {seed}: {kind(data, random.Random(seed))}"
        (folder / "damaged.db").write_bytes(data)
        (folder / "kept.db").write_bytes(data)
        check(whole, folder, how, most_lost)
        figure("flipped bits" if kind is damaged_stores.flip else "otherwise damaged files", 1)
        shutil.rmtree(folder)


def test_one_flipped_bit_is_detected_and_salvaged_around(whole: Whole, tmp_path: Path) -> None:
    run(whole, tmp_path, damaged_stores.flip, range(FLIPS), 1)


def test_run_of_changed_bytes_is_detected_and_salvaged_around(whole: Whole, tmp_path: Path) -> None:
    run(whole, tmp_path, damaged_stores.overwrite, range(OTHERS), 2)


def test_page_of_zeros_is_detected_and_salvaged_around(whole: Whole, tmp_path: Path) -> None:
    run(whole, tmp_path, damaged_stores.zero_page, range(OTHERS), 40)


def test_truncated_file_is_detected_and_salvaged_around(whole: Whole, tmp_path: Path) -> None:
    run(whole, tmp_path, damaged_stores.cut, range(OTHERS), 1_000)
