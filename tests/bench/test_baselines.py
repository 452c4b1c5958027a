"""The baselines that a recall is measured against do the same work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench.baselines import Keyword, Product, Raw
from bench.neighbour import Neighbour
from bench.subjects import SPACE, open_store
from bench.texts import Talker, Writer

from reverie.embed.local import LocalEmbedder


def filled(path: Path, count: int) -> list[str]:
    texts = Writer(1).sentences(count)
    with open_store(path) as store:
        store.space(SPACE).import_records({"content": text} for text in texts)
    return texts


def test_generated_texts_are_deterministic() -> None:
    assert Writer(7).sentences(5) == Writer(7).sentences(5)
    assert Talker(7).conversation(5) == Talker(7).conversation(5)


def test_generated_question_uses_words_of_its_text() -> None:
    writer = Writer(3)
    for query, text in writer.questions(writer.sentences(20), 50):
        assert query in text.rstrip(".")


def test_bare_sql_baseline_finds_a_text_by_its_words(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    texts = filled(path, 30)
    keyword = Keyword(path, SPACE)
    weights = keyword.prepare(texts[12])
    found = keyword.run(weights)
    nothing = keyword.run(keyword.prepare("unheard"))
    keyword.close()
    assert 0 < len(weights) <= 8
    assert found[0][0] == 12
    assert nothing == []


def test_numpy_baseline_finds_the_nearest_vector() -> None:
    texts = Writer(5).sentences(80)
    rows = LocalEmbedder().embed(texts)
    found = Product(rows).nearest(rows[17])
    assert found[0][0] == 17
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert len(found) == 50


def test_fts5_baseline_finds_a_text_by_its_words(tmp_path: Path) -> None:
    raw = Raw(tmp_path / "raw.db")
    raw.bulk(["a wooden bridge", "a green garden"], np.zeros((2, 256), np.float32))
    raw.write("the bridge again")
    found = raw.search("the bridge")
    raw.close()
    assert {row for row, _ in found} == {1, 3}


def test_neighbour_process_has_written_when_it_reports_so(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path, 1)
    with open_store(path) as store, Neighbour(path, SPACE, seed=2) as neighbour:
        neighbour.write(3)
        assert len(store.space(SPACE).memories()) == 4
        text = Writer(2).sentence()
        assert store.space(SPACE).recall(text)[0].text == text
