"""Ranking by all evidence: neighbouring turns, speaker, time, and memories learned from a turn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from reverie import RANKINGS, Event, Hit, Origin, Ranking, Scope, Session, Space, Store
from reverie.engine import log
from reverie.model import UNNAMED
from reverie.recall import near_duplicates
from reverie.write import embeddings
from tests.conftest import DAY, HOUR, PROVE, START, FakeClock, FakeEmbedder, Stores, engine_of, rows
from tests.messages import append_as_shared, conversation, reply, user

# No question by itself: those are not recalled.
QUESTION = "You must tell me where you got that accordion."
ANSWER = "At a flea market."
FILLER = (
    "The weather was fine today",
    "Yes, it was warm",
    "My sister has a new job",
    "Good for her",
    "Have you read the news",
    "Not yet this morning",
)
MODES: tuple[Any, ...] = ("keyword", "vector", "hybrid")
quietly = settings(
    derandomize=True,
    deadline=None,
    max_examples=100 if PROVE else 30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def append_turns(space: Space, *texts: str, session: str = "s") -> Session:
    """A conversation, the user's turn and a reply in turn."""
    handle = space.session(session)
    handle.append_many(conversation(*texts))
    return handle


def parts_of(hits: Sequence[Hit]) -> dict[str, dict[str, Any]]:
    return {hit.id: dict(hit.parts) for hit in hits}


def seen(hits: Sequence[Hit]) -> list[tuple[str, float, str]]:
    return [(hit.id, hit.score, hit.text) for hit in hits]


# -- turns and those around them ------------------------------------------------------------------


@pytest.mark.parametrize("embedder", ["none", "hashing", "local"])
def test_recall_finds_an_answer_by_the_question_before_it(stores: Stores, embedder: str) -> None:
    space = stores.open(embedder=embedder).space("ana")
    append_turns(space, *FILLER[:4], QUESTION, ANSWER, *FILLER[4:])
    for mode in ("keyword", "hybrid"):
        hits = space.recall("accordion", mode=mode, limit=2, explain=True)
        assert [hit.text for hit in hits] == [QUESTION, ANSWER]
        assert hits[1].parts["keyword"] == 0 and float(hits[1].parts["neighbours"] or 0) > 0
        assert hits[1].event == space.session("s").events()[5]


def test_recall_finds_a_turn_by_the_turn_after_it(space: Space) -> None:
    append_turns(space, *FILLER[:4], "Look at this", "What a lovely accordion!")
    first, second, *_ = space.recall("accordion", mode="keyword")
    assert (first.id, second.id) == ("s:6", "s:5")


def test_neighbour_score_ends_two_turns_away(space: Space) -> None:
    append_turns(space, QUESTION, *FILLER)
    hits = parts_of(space.recall("accordion", limit=20, explain=True))
    assert hits["s:2"]["neighbours"] > hits["s:3"]["neighbours"] > 0
    assert "s:4" not in parts_of(space.recall("accordion", mode="keyword", limit=20))


def test_keyword_recall_omits_neighbours_without_any_matching_word(space: Space) -> None:
    """By words alone only those are found that have one, or that borrow one."""
    append_turns(space, *FILLER[:2], QUESTION, ANSWER)
    alone = Ranking(neighbours=0, session=0)
    hits = space.recall("accordion", mode="keyword", ranking=alone)
    assert [hit.text for hit in hits] == [QUESTION]


def test_neighbour_score_does_not_cross_sessions(space: Space) -> None:
    append_turns(space, QUESTION)
    space.session("t").append(reply(ANSWER), sequence=2)
    assert [h.id for h in space.recall("accordion", mode="keyword")] == ["s:1"]
    assert parts_of(space.recall("accordion", explain=True))["t:2"]["neighbours"] == 0


@pytest.mark.parametrize(
    ("question", "answer", "filler", "query"),
    [
        ("那台手风琴是在哪里买的？", "跳蚤市场。", ("今天天气很好", "是的很暖和"), "手风琴"),
        (
            "そのアコーディオンはどこで買いましたか？",
            "蚤の市です。",
            ("今日は晴れ", "暖かいね"),
            "アコーディオン",
        ),
        ("ซื้อหีบเพลงที่ไหน", "ตลาดนัด", ("วันนี้อากาศดี", "ใช่ อบอุ่น"), "หีบเพลง"),
    ],
    ids=["Chinese", "Japanese", "Thai"],
)
def test_neighbour_score_works_in_languages_without_spaces(
    space: Space, question: str, answer: str, filler: tuple[str, str], query: str
) -> None:
    append_turns(space, *filler, *filler, question, answer, *filler)
    for mode in ("keyword", "hybrid"):
        hits = space.recall(query, mode=mode, limit=2)
        # A question leads to its answer, and is no hit itself.
        found = [answer] if question.endswith(("？", "?")) else [question, answer]
        assert [hit.text for hit in hits][: len(found)] == found


def test_erased_turn_keeps_the_distance_between_its_neighbours(space: Space) -> None:
    """The turn after the next lends as from two away: the gap stays."""
    session = append_turns(space, QUESTION, "a secret", ANSWER)
    before = parts_of(space.recall("accordion", mode="keyword", explain=True))["s:3"]
    session.erase_event(2)
    after = parts_of(space.recall("accordion", mode="keyword", explain=True))
    assert set(after) == {"s:1", "s:3"}
    assert 0 < after["s:3"]["neighbours"] <= before["neighbours"] * 1.5


def test_hidden_sessions_are_neither_found_nor_score_neighbours(space: Space) -> None:
    session = append_turns(space, QUESTION, ANSWER)
    fact = space.remember("The accordion came from Leipzig", origin=Origin("s", 2))
    shown = seen(space.recall("accordion", limit=20))
    session.hide()
    for mode in MODES:
        assert [h.id for h in space.recall("accordion", mode=mode)] == [fact.id]
    assert [h.id for h in space.recall("accordion", as_of=4)] == [fact.id]
    session.restore()
    assert seen(space.recall("accordion", limit=20)) == shown


# -- who and when ---------------------------------------------------------------------------------


def test_recall_prefers_the_speaker_named_in_the_query(space: Space) -> None:
    session = space.session("s")
    session.append(user("I went to the lake and swam", name="Caroline"))
    for text in FILLER[:3]:
        session.append(user(text, name="Caroline"))
    session.append(user("I swam in a lake once", name="Melanie"))
    for name, other in (("Caroline", "Melanie"), ("Melanie", "Caroline")):
        hits = space.recall(f"When did {name} swim in the lake?", explain=True)
        (first, *_) = hits
        assert first.event is not None and first.event.message["name"] == name
        bonus = {hit.event.message["name"]: hit.parts["speaker"] for hit in hits if hit.event}
        assert bonus == {name: bonus[name], other: 0} and float(bonus[name] or 0) > 0
    nobody = space.recall("Who swam in the lake?", explain=True)
    assert {hit.parts["speaker"] for hit in nobody} == {0}


def test_recall_finds_a_turn_by_the_name_of_its_speaker(space: Space) -> None:
    space.session("s").append(user("I bought a boat", name="Caroline"))
    space.session("t").append(user("I bought a boat", name="Melanie"))
    assert [h.id for h in space.recall("Melanie", mode="keyword")] == ["t:1"]


def test_query_words_i_and_you_mean_user_and_assistant(space: Space) -> None:
    space.session("s").append(user("a sourdough with rye"))
    space.session("t").append(reply("a sourdough with rye"))
    assert space.recall("Which sourdough did I bake?")[0].id == "s:1"
    assert space.recall("Which sourdough did you recommend?")[0].id == "t:1"


def test_recall_prefers_events_of_the_date_in_the_query(space: Space) -> None:
    for session, at in (("a", "2023-05-07T18:00"), ("b", "2023-06-07T18:00"), ("c", "2024-05-01")):
        text = f"We had dinner at the old mill, {session} was there"
        space.session(session).append(user(text), at=at)
    for when, first in {
        "on 7 May 2023": {"a:1"},
        "on 2023-06-07": {"b:1"},
        "in June": {"b:1"},
        "in 2024": {"c:1"},
        "in May": {"a:1", "c:1"},
    }.items():
        hits = space.recall(f"Who had dinner at the mill {when}?", explain=True)
        within = {hit.id for hit in hits if float(hit.parts["period"] or 0) > 0}
        assert {hit.id for hit in hits[: len(first)]} == within == first
    for none in ("on 1 January 1999", ""):
        hits = space.recall(f"Who had dinner at the mill {none}?", explain=True)
        assert {hit.parts["period"] for hit in hits} == {0}


def test_recall_prefers_memories_of_the_date_in_the_query(space: Space) -> None:
    for at in ("2023-05-07", "2023-06-07"):
        space.remember(f"Dinner number {at[6]} at the old mill", happened_at=at)
    (first, *_) = space.recall("dinner in May 2023")
    assert first.text == "Dinner number 5 at the old mill"


# -- what a memory lends --------------------------------------------------------------------------


def test_recall_lifts_the_event_a_matching_memory_came_from(space: Space) -> None:
    append_turns(space, *FILLER[:4], "It was a gift from grandma, long ago", *FILLER[4:])
    fact = space.remember("The necklace is from Sweden", origin=Origin("s", 5))
    for mode in MODES:
        hits = space.recall("necklace from Sweden", mode=mode, limit=2, explain=True)
        assert [hit.id for hit in hits] == [fact.id, "s:5"]
        assert float(hits[1].parts["origin"] or 0) > 0
        assert hits[0].score > hits[1].score
    unlent = space.recall("necklace from Sweden", ranking=Ranking(origin=0), explain=True)
    assert {hit.parts["origin"] for hit in unlent} == {0}


@pytest.mark.parametrize("name", ["similarity", "weighted", "rrf", "diverse"])
def test_only_the_evidence_ranking_reads_neighbouring_events(space: Space, name: str) -> None:
    append_turns(space, QUESTION, ANSWER, *FILLER, "It was a gift")
    fact = space.remember("The accordion is red", origin=Origin("s", 9))
    for as_of in (None, 10):
        hits = space.recall("accordion", mode="keyword", ranking=RANKINGS[name], as_of=as_of)
        assert {hit.id for hit in hits} == {"s:1", fact.id}
        assert space.recall("accordion", ranking=RANKINGS[name], as_of=as_of, limit=3)


def test_origin_score_stays_after_a_memory_is_pinned_or_restored(space: Space) -> None:
    """It came from there, whatever was changed about it."""
    append_turns(space, "It was a gift from grandma, long ago")
    fact = space.remember("The necklace is from Sweden", origin=Origin("s", 1))
    before = seen(space.recall("necklace from Sweden"))
    space.revise(fact.id, pinned=True)
    assert seen(space.recall("necklace from Sweden")) == before
    space.forget(fact.id)
    space.restore(fact.id)
    assert seen(space.recall("necklace from Sweden")) == before
    assert seen(space.recall("necklace from Sweden", as_of=5)) == before


def test_forgotten_and_expired_memories_give_no_origin_score(
    space: Space, clock: FakeClock
) -> None:
    append_turns(space, "It was a gift from grandma, long ago")
    origin = Origin("s", 1)
    gone = space.remember("The necklace is from Sweden", origin=origin)
    space.forget(gone.id)
    space.remember("A necklace from Sweden", origin=origin, expires_at=START + HOUR)
    clock.step(2 * HOUR)
    for hit in space.recall("necklace from Sweden", explain=True):
        assert hit.id == "s:1" and hit.parts["origin"] == 0


# -- walls ----------------------------------------------------------------------------------------


def test_neighbour_score_does_not_cross_owners(store: Store) -> None:
    """Equal names of sessions and sequences beside each other are no conversation."""
    handles = {
        "shared": store.space("ana"),
        "bo": store.space("ana", user="bo"),
        "other space": store.space("eve"),
    }
    for asker, handle in handles.items():
        handle.session(asker).append(user(QUESTION), sequence=1)
        for other, theirs in handles.items():
            if other != asker:
                theirs.session(asker).append(reply(ANSWER), sequence=2)
    for handle in handles.values():
        for hit in handle.recall("accordion", limit=50, explain=True):
            assert hit.parts["neighbours"] == 0 and hit.parts["session"] == 0


def test_origin_score_does_not_cross_owners(store: Store) -> None:
    bo = store.space("ana", user="bo")
    append_as_shared(store.space("ana"), "s", user("It was a gift from grandma, long ago"))
    append_turns(bo, "It was a gift from grandma, long ago")
    bo.remember("The necklace is from Sweden", origin=Origin("s", 1))
    apart = Ranking(collapse=False)
    hits = bo.recall("necklace from Sweden", ranking=apart, limit=10, explain=True)
    lent = {h.event.user: float(h.parts["origin"] or 0) for h in hits if h.event is not None}
    assert lent["bo"] > 0 and lent[None] == 0


def test_scores_do_not_depend_on_other_owners(store: Store) -> None:
    space = store.space("ana")
    append_turns(space, QUESTION, ANSWER)
    before = seen(space.recall("accordion", limit=20))
    for other in (store.space("ana", user="bo"), store.space("eve")):
        append_turns(other, ANSWER, QUESTION, QUESTION)
        other.remember("accordion", origin=Origin("s", 2))
    assert seen(space.recall("accordion", limit=20)) == before


def test_filters_apply_to_events_added_as_neighbours(space: Space) -> None:
    session = space.session("s")
    session.append(user(QUESTION), at="2023-05-07")
    session.append(reply(ANSWER), at="2023-05-09")
    fact = space.remember(
        "The accordion is red", origin=Origin("s", 2), happened_at="2023-05-07", tags=["t"]
    )
    for mode in MODES:
        for options, ids in (
            ({"until": "2023-05-08"}, {"s:1", fact.id}),
            ({"since": "2023-05-06", "until": "2023-05-08"}, {"s:1", fact.id}),
            ({"kinds": ["fact"]}, {fact.id}),
            ({"tags": ["t"]}, {fact.id}),
            ({"category": "general"}, {fact.id}),
        ):
            found = {hit.id for hit in space.recall("accordion", mode=mode, **options)}
            assert found == ids, (mode, options)
            then = space.recall("accordion", mode=mode, as_of=3, **options)
            assert {hit.id for hit in then} == ids, (mode, options)


def test_filtered_events_give_no_neighbour_score(space: Space) -> None:
    session = space.session("s")
    session.append(user(QUESTION), at="2023-05-07")
    session.append(reply(ANSWER), at="2023-05-09")
    space.remember("The accordion is red", origin=Origin("s", 2), happened_at="2023-05-07")
    (hit,) = space.recall("accordion", since="2023-05-08", until="2023-06-01", explain=True)
    assert hit.id == "s:2" and hit.parts["neighbours"] == hit.parts["origin"] == 0
    events = parts_of(space.recall("accordion", kinds=["event"], explain=True))
    assert events["s:2"]["neighbours"] > 0 and events["s:2"]["origin"] == 0


# -- repetitions ----------------------------------------------------------------------------------

BOSS = "Alec is my boss at TechCorp in Hamburg and likes green tea with honey early in the morning"


def test_near_duplicate_memories_are_one_hit(space: Space) -> None:
    for text in (BOSS, f"{BOSS}!", f"{BOSS.upper()}!!", f"{BOSS} daily"):
        space.remember(text)
    other = space.remember("Tea is grown in Assam")
    hits = space.recall("Alec boss green tea", explain=True)
    assert len(hits) == 2 and hits[1].id == other.id
    assert hits[0].parts["collapsed"] == 3 and "collapsed" not in hits[1].parts
    apart = space.recall("Alec boss green tea", ranking=Ranking(collapse=False), explain=True)
    assert len(apart) == 5 and all("collapsed" not in hit.parts for hit in apart)


def test_near_duplicates_do_not_use_up_the_limit(space: Space) -> None:
    others = [space.remember(f"zebra fact {number}") for number in range(4)]
    for _ in range(20):
        space.remember_separately("zebra zebra zebra", key=None)
    found = {hit.id for hit in space.recall("zebra", limit=5)}
    assert {memory.id for memory in others} < found and len(found) == 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BOSS, BOSS.replace("Hamburg", "Bremen")),
        (f"{BOSS} at 9", f"{BOSS} at 8"),
        (BOSS, BOSS.replace("likes", "does not like")),
        (BOSS, BOSS.replace("is", "was never")),
    ],
)
def test_texts_with_another_name_number_or_negation_are_separate_hits(
    space: Space, one: str, other: str
) -> None:
    space.remember(one)
    space.remember(other)
    append_turns(space, one, other)
    hits = space.recall("Alec boss green tea")
    assert sorted({hit.text for hit in hits}) == sorted([one, other])


def test_near_duplicate_check_compares_few_pairs(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Mock(side_effect=near_duplicates.is_near_duplicate)
    monkeypatch.setattr(near_duplicates, "is_near_duplicate", counted)
    space.import_records({"content": f"zebra number{i} lives in zone{i}"} for i in range(300))
    assert len(space.recall("zebra", limit=300)) == 300
    assert counted.call_count < 300


def test_repetition_is_one_hit_within_a_session_and_across_sessions(space: Space) -> None:
    session = append_turns(space, BOSS, *FILLER[:3])
    session.append(user(f"{BOSS}."))
    append_turns(space, BOSS, session="t")
    hits = space.recall("Alec boss green tea", mode="keyword", explain=True, limit=20)
    matching = [hit for hit in hits if "Alec" in hit.text]
    assert [(hit.id, sorted(hit.duplicates)) for hit in matching] == [("t:1", ["s:1", "s:5"])]


def test_same_words_of_two_speakers_are_two_hits(space: Space) -> None:
    session = space.session("s")
    for name in ("Caroline", "Melanie"):
        session.append(user("I have two children and a dog", name=name))
    session.append(reply("I have two children and a dog"))
    hits = space.recall("Who has children and a dog?")
    assert sorted(hit.id for hit in hits) == ["s:1", "s:2", "s:3"]


def test_same_session_name_of_two_owners_is_two_sessions(store: Store) -> None:
    """Their names may be equal."""
    bo = store.space("ana", user="bo")
    append_as_shared(store.space("ana"), "s", user(BOSS))
    append_turns(bo, BOSS)
    hits = bo.recall("Alec boss green tea")
    assert {hit.event.user for hit in hits if hit.event is not None} == {None, "bo"}


def test_best_hit_of_near_duplicates_is_kept(space: Space) -> None:
    append_turns(space, BOSS)
    fact = space.remember(BOSS, origin=Origin("s", 1))
    (hit, *_) = space.recall("Alec boss green tea", explain=True)
    assert hit.id in {fact.id, "s:1"} and hit.parts["collapsed"] == 1
    apart = space.recall("Alec boss green tea", ranking=Ranking(collapse=False))
    assert hit.id == apart[0].id and hit.score == apart[0].score


# -- a moment is a recall -------------------------------------------------------------------------

WORDS = st.lists(
    st.sampled_from(
        ("zebra", "horse", "river", "Caroline", "42", "not", "tea", "boat", "上海", "the")
    ),
    min_size=1,
    max_size=6,
).map(" ".join)
WHOSE = st.sampled_from((None, "bo"))
TURN = st.tuples(
    st.just("say"),
    WHOSE,
    st.sampled_from("st"),
    st.sampled_from((None, "Caroline", "Melanie")),
    WORDS,
)
FACT = st.tuples(
    st.just("keep"),
    WHOSE,
    st.sampled_from("st"),
    st.none() | st.integers(1, 4),
    WORDS,
)
CHANGE = st.tuples(
    st.sampled_from(("revise", "forget", "hide")), WHOSE, st.sampled_from("st"), st.none(), WORDS
)
QUERIES = st.sampled_from(
    (
        "zebra river",
        "What did Caroline say about the boat?",
        "Where did I see the horse in January 2026?",
        "上海",
        "tea",
    )
)


def do(space: Space, verb: str, session: str, detail: Any, text: str) -> None:
    if verb == "say":
        named = {} if detail is None else {"name": detail}
        space.session(session).append(user(text, **named))
    elif verb == "keep":
        space.remember(text, origin=None if detail is None else Origin(session, detail))
    elif verb == "hide":
        if session in {info.id for info in space.sessions()}:
            space.session(session).hide()
    elif mine := [memory for memory in space.memories() if memory.user == space.user]:
        memory = mine[0] if session == "s" else mine[-1]
        if verb == "revise":
            space.revise(memory.id, text)
        else:
            space.forget(memory.id)


@pytest.fixture
def numbered(stores: Stores) -> tuple[Store, itertools.count[int]]:
    """A store, and a number for the space of each example."""
    return stores.open(), itertools.count()


STEPS = st.lists(TURN | TURN | FACT | CHANGE, min_size=1, max_size=14)
Steps = list[tuple[str, str | None, str, Any, str]]


def recalled_twice(
    numbered: tuple[Store, itertools.count[int]], steps: Steps, query: str, **asked: Any
) -> None:
    """A space in which all this happened is asked, and asked as of now."""
    store, numbers = numbered
    name = f"space {next(numbers)}"
    for verb, whose, session, detail, text in steps:
        do(store.space(name, user=whose), verb, session, detail, text)
    last = next((info.position for info in store.spaces() if info.name == name), 0)
    for handle in (store.space(name), store.space(name, user="bo")):
        now = handle.recall(query, limit=20, explain=True, **asked)
        then = handle.recall(query, limit=20, explain=True, as_of=last, **asked)
        assert seen(now) == seen(then)
        assert parts_of(now) == parts_of(then)


@quietly
@given(STEPS, QUERIES, st.sampled_from(MODES))
def test_recall_as_of_the_current_position_equals_a_recall(
    numbered: tuple[Store, itertools.count[int]], steps: Steps, query: str, mode: Any
) -> None:
    recalled_twice(numbered, steps, query, mode=mode)


@pytest.mark.parametrize("ranking", [name for name in RANKINGS if name != "default"])
@settings(quietly, max_examples=30 if PROVE else 10, phases=[Phase.generate])
@given(STEPS, QUERIES)
@pytest.mark.sample(2)
def test_recall_as_of_the_current_position_equals_a_recall_for_every_ranking(
    numbered: tuple[Store, itertools.count[int]], ranking: str, steps: Steps, query: str
) -> None:
    recalled_twice(numbered, steps, query, ranking=ranking)


def test_private_session_memories_do_not_change_as_of_scores(space: Space) -> None:
    """It is visible to one session only, but counts for the owner's statistics."""
    for number in range(6):
        space.remember(f"zebra {number} grass {'horse ' * (number % 3)}")
    session = append_turns(space, "hello zebra")
    session.remember("a plan about the zebra", private=True)
    session.remember("a secret about grass", private=True)
    for handle in (space, session, space.session("other")):
        now = handle.recall("zebra grass", limit=20)
        assert seen(handle.recall("zebra grass", limit=20, as_of=9)) == seen(now)


@pytest.mark.parametrize("more", [{}, {"kinds": ["fact"]}])
def test_private_session_memories_do_not_change_scores_of_others(space: Space, more: Any) -> None:
    """A word could be guessed by how rare it is."""
    for number in range(20):
        space.remember(f"plain note kayak{number} shore")
    before = seen(space.recall("kayak3 walrus", mode="keyword", limit=20, **more))
    session = space.session("p")
    session.remember("my secret is walrus kayak3", private=True)
    session.remember("another secret", private=True)
    assert seen(space.recall("kayak3 walrus", mode="keyword", limit=20, **more)) == before
    other = space.session("q").recall("kayak3 walrus", mode="keyword", limit=20, **more)
    assert seen(other) == before
    assert session.recall("walrus", mode="keyword", **more)[0].text == "my secret is walrus kayak3"


def test_expired_memories_do_not_change_as_of_scores(space: Space, clock: FakeClock) -> None:
    append_turns(space, "hello there", "good morning")
    space.remember("zebra farm", origin=Origin("s", 1), expires_at=START + HOUR)
    space.remember("zebra crossing", origin=Origin("s", 2))
    clock.step(2 * HOUR)
    space.remember("something later")
    now = space.recall("zebra farm", limit=20)
    assert seen(space.recall("zebra farm", limit=20, as_of=5)) == seen(now)


# -- what an append leaves alone ------------------------------------------------------------------

STORED = {
    "passages": "SELECT * FROM passages ORDER BY space, owner, passage",
    "postings": "SELECT * FROM postings ORDER BY space, owner, term, passage",
    "events": "SELECT * FROM events ORDER BY space, owner, position",
    "touched": "SELECT * FROM touched ORDER BY space, owner, touch",
}


def vectors_of(store: Store, count: int) -> list[Any]:
    with engine_of(store).read() as tx:
        owner, current = log.resolve_owner(tx, Scope("ana", UNNAMED)), embeddings.read(tx)
        assert owner is not None and current is not None
        return list(tx.vectors(owner, current.number, np.arange(count)).tolist())


def test_append_neither_rewrites_nor_reembeds_older_events(stores: Stores) -> None:
    embedder = FakeEmbedder()
    store = stores.open(embedder=embedder)
    space = store.space("ana")
    session = append_turns(space, QUESTION, ANSWER, "word " * 400)
    space.remember("zebra", origin=Origin("s", 1))
    before = {name: rows(store, sql) for name, sql in STORED.items()}
    # The second column is the owner: memories are shared, and numbered by themselves.
    count = sum(row[1] != log.SHARED_OWNER for row in before["passages"])
    vectors = vectors_of(store, count)
    for text in ("And when was that?", "Last year, in spring.", "sentence " * 300):
        embedder.forget_calls()
        session.append(user(text))
        assert set("".join(embedder.texts)) <= set(text), "only what is new is embedded"
        assert sum(map(len, embedder.texts)) <= 1.5 * len(text)
    after = {name: rows(store, sql) for name, sql in STORED.items()}
    for name in ("passages", "postings", "events"):
        assert set(before[name]) < set(after[name]), name
    assert after["touched"] == before["touched"] == []
    assert vectors_of(store, count) == vectors


def test_later_turn_gives_neighbour_score_to_older_ones(space: Space) -> None:
    """The events around a turn are read when the recall is made."""
    session = append_turns(space, *FILLER[:4], "Look at this")
    assert space.recall("accordion", mode="keyword") == []
    session.append(reply("What a lovely accordion!"))
    hits = space.recall("accordion", mode="keyword", limit=2)
    assert [hit.id for hit in hits] == ["s:6", "s:5"]
    assert all(isinstance(hit.event, Event) for hit in hits)


def test_recency_weight_prefers_newer_hits_when_asked(space: Space) -> None:
    for days, text in ((0, "zebra crossing"), (400, "zebra fountain")):
        space.session(f"{days}").append(user(text), at=START - days * DAY)
    recent = replace(Ranking(), recency_weight=0.5)
    hits = space.recall("zebra", ranking=recent, explain=True)
    assert [hit.id for hit in hits] == ["0:1", "400:1"]
    assert hits[0].parts["recency"] == 1 and float(hits[1].parts["recency"] or 0) < 0.001
