"""recall: modes, parts, passages, languages."""

from __future__ import annotations

import math
from typing import Any

import pytest

from reverie import (
    DimensionMismatchError,
    EmbedderMissing,
    InvalidInput,
    Origin,
    Ranking,
    Space,
    Store,
)
from reverie.cli import explain
from tests.conftest import FakeEmbedder, Stores

SENTENCES = {
    "Alec runs the Hamburg office of TechCorp": "hamburg",
    "The dentist appointment moved to Thursday": "dentist",
    "Mina prefers oat milk in her coffee": "oat milk",
    "The deploy key lives in the blue folder": "deploy key",
    "Our cat is called Professor Whiskers": "whiskers",
    "我昨天在上海买了一辆自行车": "上海",
    "明日の会議は東京駅の近くです": "東京駅",
    "ฉันชอบกินข้าวผัดกุ้งทุกวัน": "ข้าวผัด",
    "Мы переехали в Новосибирск весной": "новосибирск",
    "Der Übergabetermin ist am Montag": "übergabetermin",
    "나는 부산에서 회사를 다닌다": "부산에서",
    "موعد الطبيب يوم الأحد": "الطبيب",
}
# What a score is the sum of.
STAGES = tuple(stage.part for stage in explain.STAGES)


@pytest.mark.parametrize("embedder", ["none", "hashing", "local"])
def test_recall_finds_a_sentence_by_a_word_in_it(stores: Stores, embedder: str) -> None:
    space = stores.open(embedder=embedder).space("ana")
    ids = {sentence: space.remember(sentence).id for sentence in SENTENCES}
    for sentence, word in SENTENCES.items():
        for mode in ("keyword", "hybrid"):
            hit = space.recall(word, mode=mode)[0]
            assert (hit.id, hit.text) == (ids[sentence], sentence)


def test_recall_with_the_local_embedder_finds_by_meaning(stores: Stores) -> None:
    space = stores.open(embedder="local").space("ana")
    boss = space.remember("Alec is my manager at TechCorp")
    for other in ("The oven needs cleaning", "Berlin has many lakes", "Tea at five o'clock"):
        space.remember(other)
    assert space.recall("who is my boss at the company?", mode="vector")[0].id == boss.id


def test_hit_has_the_fields_of_its_memory(space: Space) -> None:
    memory = space.remember("the zebra is striped")
    note = space.remember("a zebra note", kind="note")
    hits = space.recall("zebra")
    assert {(hit.id, hit.kind, hit.text) for hit in hits} == {
        (memory.id, "fact", memory.content),
        (note.id, "note", note.content),
    }
    assert {hit.memory for hit in hits} == {memory, note}
    assert all(hit.event is None and dict(hit.parts) == {} for hit in hits)
    assert [hit.id for hit in space.recall("zebra", kinds=["note"])] == [note.id]
    assert len(space.recall("zebra", kinds=["note", "fact"])) == 2


def test_recall_finds_a_sentence_deep_inside_a_note(stores: Stores) -> None:
    space = stores.open(embedder="local").space("ana")
    plain = " ".join(f"Sentence number {number} says nothing of note." for number in range(400))
    needle = "The combination of the safe is seventeen forty-two."
    middle = len(plain) // 2
    text = plain[:middle] + " " + needle + " " + plain[middle:]
    note = space.remember(text, kind="note")
    space.remember("something else about a combination")
    for mode in ("keyword", "hybrid"):
        hits = space.recall("combination of the safe", mode=mode)
        assert hits[0].id == note.id
        assert needle in hits[0].text and hits[0].text in text
        assert len(hits[0].text) < 700
        assert [hit.id for hit in hits].count(note.id) == 1
    then = space.recall("combination of the safe", as_of=2)
    assert needle in then[0].text


def test_hit_text_is_the_exact_passage_of_the_content(space: Space) -> None:
    text = "  \n" + "Ünï çödé 🦓 " * 200 + "\r\n\tthe end zebra \n "
    space.remember(text, kind="note")
    (hit,) = space.recall("zebra", mode="keyword")
    assert hit.text in text and hit.text.rstrip().endswith("zebra")
    assert space.memories()[0].content == text


@pytest.mark.parametrize("mode", ["keyword", "vector", "hybrid"])
def test_long_note_takes_one_hit_and_leaves_the_others(space: Space, mode: Any) -> None:
    """limit counts memories, and there are enough of them."""
    space.remember("zebra zebra zebra. " * 3000, kind="note")
    filler = "with a good many other words in which it is only one thing among others " * 5
    facts = [space.remember(f"zebra {filler} {number}") for number in range(4)]
    hits = space.recall("zebra", limit=5, mode=mode)
    assert {memory.id for memory in facts} <= {hit.id for hit in hits}


def test_recall_orders_by_score_and_honours_the_limit(space: Space) -> None:
    for number in range(12):
        space.remember(f"zebra {number}")
    hits = space.recall("zebra", limit=7)
    assert len(hits) == 7
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.score == round(hit.score, 6) for hit in hits)
    for wrong in (0, -1, True, 1.5, "3"):
        with pytest.raises(InvalidInput):
            space.recall("zebra", limit=wrong)  # type: ignore[arg-type]


def test_hits_with_equal_scores_are_ordered_newest_first(space: Space, clock: Any) -> None:
    made = []
    for _ in range(5):
        clock.step(-1000)
        made.append(space.remember_separately("the same words", key=None).id)
    for mode in ("keyword", "vector", "hybrid"):
        hits = space.recall("the same words", mode=mode, ranking=Ranking(collapse=False))
        assert [hit.id for hit in hits] == made[::-1]
        assert len({hit.score for hit in hits}) == 1
        (newest,) = space.recall("the same words", mode=mode, explain=True)
        assert newest.id == made[-1] and newest.parts["collapsed"] == 4


def test_explained_parts_add_up_to_the_evidence(space: Space) -> None:
    space.remember("zebra crossing", happened_at="2023-05-07")
    space.remember("zebra on the plain")
    chat = space.session("talk")
    chat.append({"role": "user", "content": "I saw a zebra crossing."})
    answer = chat.append({"role": "assistant", "content": "Stripes on a road"})
    space.remember("cross country", origin=Origin("talk", answer.sequence))
    question = "where did I ask for a zebra crossing in May 2023?"
    hits = space.recall(question, explain=True)
    assert len(hits) == 5
    for hit in hits:
        assert hit.parts.keys() == {"keyword", "vector", "evidence", *STAGES}
        total = sum(float(hit.parts[stage] or 0) for stage in STAGES)
        assert hit.parts["evidence"] == pytest.approx(total, abs=5e-6)
        assert 0 <= hit.score <= 1
        # Each is worth the part of the best hit's worth that its evidence is of the best one's.
        part = float(hit.parts["evidence"] or 0) / float(hits[0].parts["evidence"] or 1)
        assert hit.score == pytest.approx(hits[0].score * part, abs=2e-6)
    for stage in STAGES:
        assert any(hit.parts[stage] for hit in hits), f"{stage} gave nothing to any of them"
    best = space.recall("zebra crossing", kinds=["fact"], explain=True)[0]
    assert best.text == "zebra crossing"
    assert best.parts["neighbours"] == best.parts["speaker"] == best.parts["period"] == 0
    for hit in space.recall("zebra", mode="keyword", explain=True):
        assert hit.parts["vector"] is None and hit.parts["vector_part"] == 0
        assert "degraded" not in hit.parts
    for hit in space.recall("zebra", mode="vector", explain=True):
        assert hit.parts["keyword"] is None and hit.parts["keyword_part"] == 0


def test_ranking_weights_change_the_order(space: Space) -> None:
    by_word = space.remember("an unusual word: xylophone, among quite many words of other kinds")
    by_shape = space.remember("xylophones")
    keyword = space.recall("xylophone", ranking=Ranking(vector_weight=0, keyword_weight=1))
    assert {hit.id for hit in keyword} == {by_word.id, by_shape.id}
    explained = space.recall("xylophone", ranking=Ranking(1, 0), explain=True)
    assert all(hit.parts["keyword_part"] == 0 for hit in explained)


def test_hybrid_recall_without_an_embedder_is_reported_as_degraded(stores: Stores) -> None:
    space = stores.open(embedder="none").space("ana")
    memory = space.remember("the zebra is striped")
    (hit,) = space.recall("zebra", explain=True)
    assert hit.id == memory.id and "embedder" in str(hit.parts["degraded"])
    assert "degraded" not in space.recall("zebra", mode="keyword", explain=True)[0].parts
    assert "embedder" in str(space.recall("zebra", explain=True, as_of=1)[0].parts["degraded"])
    with pytest.raises(EmbedderMissing, match="or set REVERIE_EMBEDDER=local$"):
        space.recall("zebra", mode="vector")
    with pytest.raises(EmbedderMissing):
        space.recall("zebra", mode="vector", as_of=1)


def test_recall_uses_a_given_query_vector(stores: Stores) -> None:
    embedder = FakeEmbedder()
    space = stores.open(embedder=embedder).space("ana")
    zebra, horse = space.remember("zebra"), space.remember("horse")
    given = [float(x) for x in embedder.embed(["zebra"])[0] * 17]
    embedder.forget_calls()
    hits = space.recall("", mode="vector", query_embedding=given)
    assert [hit.id for hit in hits] == [zebra.id, horse.id]
    assert embedder.asked == 0
    for length in (1, 63, 65):
        with pytest.raises(DimensionMismatchError) as caught:
            space.recall("zebra", query_embedding=[0.5] * length)
        assert (caught.value.stored, caught.value.given) == (64, length)
    for wrong in ([math.nan] * 64, [math.inf] * 64, [], [[0.0] * 64], ["a"] * 64, "x", 5):
        with pytest.raises(InvalidInput):
            space.recall("zebra", query_embedding=wrong)  # type: ignore[arg-type]
    assert space.recall("zebra", mode="vector", query_embedding=[0.0] * 64) is not None


def test_query_vector_with_huge_values_is_refused_or_used(space: Space) -> None:
    space.remember("zebra")
    assert space.recall("zebra", mode="vector", query_embedding=[3e38] * 64) is not None
    with pytest.raises(InvalidInput):
        space.recall("zebra", query_embedding=[1e200] * 64)


def test_given_query_vector_needs_no_embedder(stores: Stores) -> None:
    store = stores.open()
    zebra = store.space("ana").remember("zebra")
    store.space("ana").remember("horse")
    given = [float(x) for x in FakeEmbedder().embed(["zebra"])[0]]
    without_embedder = stores.open(embedder="none").space("ana")
    assert without_embedder.recall("", mode="vector", query_embedding=given)[0].id == zebra.id


def test_given_query_vector_works_with_as_of(stores: Stores) -> None:
    """As-of vectors are computed again; if that is impossible, the hit says so."""
    embedder = FakeEmbedder(remote=True)
    store = stores.open(embedder=embedder)
    space = store.space("ana")
    space.remember("zebra")
    store.run_pending_jobs()
    given = [float(x) for x in FakeEmbedder().embed(["zebra"])[0]]
    embedder.forget_calls()
    hits = space.recall("zebra", query_embedding=given, as_of=1, explain=True)
    assert embedder.asked == 0, "an as-of recall must not call a remote embedder"
    assert "degraded" in hits[0].parts
    with pytest.raises(EmbedderMissing, match="REVERIE_EMBEDDER=local and run 'reverie reembed'"):
        space.recall("zebra", mode="vector", query_embedding=given, as_of=1)


@pytest.mark.parametrize("query", ["", "   ", "?!", "the of and", "\0", "\ud800", "🦓"])
def test_query_without_words_returns_no_error(space: Space, query: str) -> None:
    space.remember("zebra")
    for mode in ("keyword", "vector", "hybrid"):
        assert isinstance(space.recall(query, mode=mode), list)
    assert space.recall(query, mode="keyword") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"query": 5},
        {"query": "x", "mode": "fuzzy"},
        {"query": "x", "kinds": ["story"]},
        {"query": "x", "tags": "work"},
        {"query": "x", "since": "never"},
        {"query": "x", "category": 5},
    ],
)
def test_recall_refuses_invalid_arguments(space: Space, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        space.recall(**wrong)


def test_query_of_stop_words_does_not_match_everything(space: Space) -> None:
    space.remember("the cat is on the mat")
    zebra = space.remember("zebra")
    assert [h.id for h in space.recall("the zebra of the", mode="keyword")] == [zebra.id]


def test_recall_ranks_hits_of_two_owners_together(store: Store) -> None:
    shared, bo = store.space("ana"), store.space("ana", user="bo")
    for number in range(20):
        shared.remember(f"something {number}")
    best = shared.remember("zebra crossing")
    own = bo.remember("zebra stripes and a good deal more that is not asked for")
    hits = bo.recall("zebra crossing", limit=3)
    assert hits[0].id == best.id and own.id in [hit.id for hit in hits]
