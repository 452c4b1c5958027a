"""Conversations read from files, and figures that were computed by hand."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bench.datasets import FOLDS, Fact, Figures, Outcome, Question, Turn

from bench import datasets, retrieval

CONVERSATION: dict[str, Any] = {
    "sample_id": "talk",
    "conversation": {
        "speaker_a": "Ines",
        "speaker_b": "Bruno",
        "session_2_date_time": "12:05 am on 3 June, 2024",
        "session_2": [
            {"speaker": "Bruno", "dia_id": "D2:1", "text": "The heron came back to the pond."},
            {"speaker": "Ines", "dia_id": "D2:2", "text": "I sold the blue canoe on Sunday."},
        ],
        "session_1_date_time": "1:56 pm on 8 May, 2024",
        "session_1": [
            {
                "speaker": "Ines",
                "dia_id": "D1:1",
                "text": "Look at this!",
                "blip_caption": "a photo of a canoe on a lake",
            },
            {"speaker": "Bruno", "dia_id": "D1:2", "text": "My accordion is being repaired."},
        ],
        "session_3_date_time": "9:00 am on 1 July, 2024",
    },
    "qa": [
        {"question": "Which canoe was sold?", "evidence": ["D2:02"], "category": 4},
        {"question": "What of the canoe?", "evidence": ["D1:1; D:2:2", "D2:2"], "category": 1},
        {"question": "Where is the accordion?", "evidence": ["D9:9"], "category": 4},
        {"question": "When was the heron seen?", "evidence": ["D2:1", "D"], "category": 2},
        {"question": "Why is it raining?", "evidence": [], "category": 3},
        {"question": "Who flew to Mars?", "evidence": ["D1:1"], "category": 5},
    ],
    "observation": {
        "session_1_observation": {"Bruno": [["Bruno's accordion is broken.", "D1:2"]]},
        "session_2_observation": {
            "Ines": [
                ["Ines sold her canoe.", ["D2:2", "D1:1"]],
                ["Ines saw a photo.", "D1:1, D2:1"],
                ["Ines can juggle.", "D7:1"],
            ]
        },
    },
}


def turn(role: str, content: str, answers: bool = False) -> dict[str, Any]:
    return {"role": role, "content": content, "has_answer": answers}


OATS = [turn("user", "Oats are 3 euros.", True), turn("assistant", "Noted.")]
SHARED = [turn("user", "The bus is late."), turn("assistant", "Take line 7.", True)]
BARN = [turn("user", "The barn is red.", True)]


def pooled(id: str, sessions: dict[str, tuple[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    return {
        "question_id": id,
        "question_type": "multi-session",
        "question": f"What about {id}?",
        "haystack_session_ids": list(sessions),
        "haystack_dates": [date for date, _ in sessions.values()],
        "haystack_sessions": [turns for _, turns in sessions.values()],
    }


MAY, JUNE, JULY = "2023/05/20 (Sat) 12:36", "2023/06/01 (Thu) 01:11", "2023/07/02 (Sun) 09:00"
POOL = [
    pooled("bus", {"answer_bus": (JUNE, SHARED), "answer_oats": (MAY, OATS)}),
    pooled("line", {"answer_bus": (JULY, SHARED)}),
    pooled("colour_abs", {"answer_barn": (JULY, BARN)}),
    pooled("nothing", {"noans": (JULY, [turn("user", "Hello.")])}),
]


def written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def question(name: str, group: str, dataset: str = "one", type: str = "plain") -> Question:
    return Question(dataset, name, type, name, (Turn("s", 1),), group, f"{dataset} {group}")


def turns(*places: tuple[str, int]) -> list[Turn]:
    return [Turn(*place) for place in places]


# -- LoCoMo ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evidence", "names"),
    [
        ("D1:3", ["D1:3"]),
        ("D8:6; D9:17", ["D8:6", "D9:17"]),
        ("D26:14, D26:34 D26:42", ["D26:14", "D26:34", "D26:42"]),
        ("D:11:26", ["D11:26"]),
        ("D30:05", ["D30:5"]),
        (["D1:1", "D2:02; D3:3"], ["D1:1", "D2:2", "D3:3"]),
        ([["D1:1"], "D1:1"], ["D1:1", "D1:1"]),
        ("D", ["D"]),
        ("", []),
        ([], []),
        (None, []),
    ],
)
def test_turn_ids_are_parsed_in_every_spelling(evidence: object, names: Sequence[str]) -> None:
    assert datasets.dia_ids(evidence) == names


def test_a_conversation_is_a_pool_of_sessions_in_the_order_of_their_times(tmp_path: Path) -> None:
    (pool,) = datasets.locomo(written(tmp_path / "talk.json", [CONVERSATION])).pools
    assert pool.name == "LoCoMo talk"
    assert [(session.id, session.at) for session in pool.sessions] == [
        ("D1", datetime(2024, 5, 8, 13, 56, tzinfo=UTC)),
        ("D2", datetime(2024, 6, 3, 0, 5, tzinfo=UTC)),
    ]
    first, second = pool.sessions[0].messages
    assert first == {
        "role": "user",
        "name": "Ines",
        "content": "Look at this! [shares a photo of a canoe on a lake]",
    }
    assert (second["role"], second["name"]) == ("assistant", "Bruno")
    assert pool.texts[Turn("D2", 1)] == "Bruno: The heron came back to the pond."


def test_questions_keep_each_resolvable_gold_turn_once(tmp_path: Path) -> None:
    dataset = datasets.locomo(written(tmp_path / "talk.json", [CONVERSATION]))
    assert [(asked.type, asked.gold) for asked in dataset.questions] == [
        ("single-hop", (Turn("D2", 2),)),
        ("multi-hop", (Turn("D1", 1), Turn("D2", 2))),
        ("temporal", (Turn("D2", 1),)),
    ]
    assert {asked.group for asked in dataset.questions} == {"talk"}
    assert dataset.left_out == {
        "evidence that names no turn": 2,
        "facts that name no turn": 1,
        "further turns of a fact": 2,
        "questions of other categories": 1,
        "questions without evidence": 2,
    }


def test_fact_has_the_first_turn_that_it_names(tmp_path: Path) -> None:
    (pool,) = datasets.locomo(written(tmp_path / "talk.json", [CONVERSATION])).pools
    assert pool.facts == (
        Fact("Bruno's accordion is broken.", Turn("D1", 2)),
        Fact("Ines sold her canoe.", Turn("D2", 2)),
        Fact("Ines saw a photo.", Turn("D1", 1)),
    )


# -- LongMemEval ----------------------------------------------------------------------------------


def test_sessions_of_all_questions_form_one_pool_under_neutral_names(tmp_path: Path) -> None:
    (pool,) = datasets.longmemeval(written(tmp_path / "pool.json", POOL)).pools
    contents = [[message["content"] for message in session.messages] for session in pool.sessions]
    assert contents == [
        ["Oats are 3 euros.", "Noted."],
        ["The bus is late.", "Take line 7."],
        *sorted([["The barn is red."], ["Hello."]], key=lambda texts: _id(pool, texts[0])),
    ]
    assert pool.sessions[0].at == datetime(2023, 5, 20, 12, 36, tzinfo=UTC)
    assert all("ans" not in session.id for session in pool.sessions)
    assert pool.sessions[1].messages[1] == {"role": "assistant", "content": "Take line 7."}


def _id(pool: datasets.Pool, first: str) -> str:
    return next(each.id for each in pool.sessions if each.messages[0]["content"] == first)


def test_gold_turns_are_limited_to_the_questions_own_sessions(tmp_path: Path) -> None:
    dataset = datasets.longmemeval(written(tmp_path / "pool.json", POOL))
    (pool,) = dataset.pools
    oats, bus = _id(pool, "Oats are 3 euros."), _id(pool, "The bus is late.")
    assert {asked.id: asked.gold for asked in dataset.questions} == {
        "bus": (Turn(bus, 2), Turn(oats, 1)),
        "line": (Turn(bus, 2),),
    }
    assert dataset.left_out == {
        "questions without an answer": 1,
        "questions without evidence": 1,
        "second dates of a session": 1,
    }


def test_session_name_is_derived_from_its_id_and_content() -> None:
    name = datasets.hashed("answer_1", OATS)
    assert name == datasets.hashed("answer_1", [turn("user", "Oats are 3 euros."), OATS[1]])
    assert name != datasets.hashed("answer_2", OATS)
    assert name != datasets.hashed("answer_1", BARN)


def test_folds_are_not_assigned_by_a_bare_hash() -> None:
    ids = [f"question {number}" for number in range(400)]
    even = [id for id in ids if int(hashlib.sha256(id.encode()).hexdigest(), 16) % 2 == 0]
    assert {datasets.fold_of(id) for id in even} == set(range(FOLDS))


# -- figures --------------------------------------------------------------------------------------


def test_turn_figures_count_ranks_recall_and_ndcg_of_gold_turns() -> None:
    gold = turns(("a", 1), ("a", 2), ("b", 1))
    found = [Turn("z", place) for place in range(1, 21)]
    found[0], found[3], found[11] = gold[2], gold[0], gold[1]
    assert datasets.ranks(gold, found) == {gold[0]: 4, gold[1]: 12, gold[2]: 1}
    figures = datasets.turn_figures(gold, found)
    assert figures == pytest.approx(
        {
            "R@5": 2 / 3,
            "R@10": 2 / 3,
            "R@20": 1.0,
            "NDCG@10": (1 + 1 / math.log2(5)) / (1 + 1 / math.log2(3) + 1 / 2),
        }
    )


def test_ndcg_is_one_when_the_top_ten_are_all_gold() -> None:
    gold = [Turn("a", place) for place in range(1, 13)]
    figures = datasets.turn_figures(gold, gold[:10])
    assert figures["NDCG@10"] == pytest.approx(1.0)
    assert figures["R@10"] == pytest.approx(10 / 12)


def test_figures_are_zero_when_nothing_is_found() -> None:
    assert set(datasets.turn_figures(turns(("a", 1)), []).values()) == {0.0}
    assert set(datasets.session_figures(turns(("a", 1)), []).values()) == {0.0}


def test_turn_found_twice_keeps_its_first_rank() -> None:
    gold = turns(("a", 1))
    assert datasets.ranks(gold, turns(("b", 1), ("a", 1), ("a", 1))) == {gold[0]: 2}


def test_sessions_are_ranked_by_their_best_turn() -> None:
    found = turns(("b", 4), ("a", 1), ("b", 1), ("c", 9), ("a", 2))
    assert datasets.in_order(found) == ["b", "a", "c"]


def test_session_figures_count_any_and_all_gold_sessions() -> None:
    gold = turns(("a", 1), ("b", 2), ("b", 3))
    sessions = ["x", "b", "y", "z", "w", "v", "a"]
    assert datasets.session_figures(gold, sessions) == {
        "hit@1": 0.0,
        "any@5": 1.0,
        "any@10": 1.0,
        "all@5": 0.0,
        "all@10": 1.0,
    }


def test_means_are_taken_over_all_questions_and_by_type() -> None:
    scored: dict[Question, Figures] = {
        question("one", "g", type="early"): {"R@5": 1.0},
        question("two", "g", type="late"): {"R@5": 0.0},
        question("three", "g", type="late"): {"R@5": 0.5},
    }
    assert datasets.mean(scored) == {"R@5": 0.5}
    means = {type: datasets.mean(part) for type, part in datasets.by_type(scored).items()}
    assert means == {"early": {"R@5": 1.0}, "late": {"R@5": 0.25}}


def test_difference_of_two_runs_is_paired_by_question() -> None:
    one, two = question("one", "g"), question("two", "g")
    ours, other = {one: {"R@5": 1.0}, two: {"R@5": 0.5}}, {two: {"R@5": 0.75}, one: {"R@5": 0.0}}
    assert datasets.difference(ours, other) == {one: {"R@5": 1.0}, two: {"R@5": -0.25}}


def test_bootstrap_resamples_groups_as_a_whole() -> None:
    mixed = {question(str(i), "only"): {"R@5": float(i % 2)} for i in range(10)}
    assert datasets.intervals(mixed) == {"R@5": (0.5, 0.5)}


def test_bootstrap_interval_contains_the_mean_and_is_deterministic() -> None:
    scored = {question(str(i), str(i)): {"R@5": float(i % 4 == 0)} for i in range(40)}
    low, high = datasets.intervals(scored)["R@5"]
    assert 0 < low < 0.25 < high < 0.5
    assert datasets.intervals(scored)["R@5"] == (low, high)


def test_groups_are_weighted_by_their_number_of_questions() -> None:
    scored: dict[Question, Figures] = {question("small", "a"): {"R@5": 1.0}}
    scored |= {question(str(i), "b"): {"R@5": 0.0} for i in range(3)}
    assert datasets.intervals(scored)["R@5"] == (0.0, 1.0)
    assert datasets.mean(scored)["R@5"] == 0.25


def test_cross_validation_selects_without_the_held_out_fold() -> None:
    asked = [question(str(i), str(i % 2)) for i in range(4)]
    asked.append(question("other", "0", dataset="two"))

    def scored(*values: float) -> dict[Question, Figures]:
        return {
            each: {"R@5": value, "R@10": value} for each, value in zip(asked, values, strict=True)
        }

    steady, lucky = scored(0.5, 0.5, 0.5, 0.5, 0.5), scored(1.0, 0.4, 1.0, 0.4, 0.5)
    assert datasets.best_without("one 1", [steady, lucky]) == 1
    assert datasets.best_without("one 0", [steady, lucky]) == 0
    strong = scored(0.6, 0.6, 0.6, 0.6, 0.3)
    assert datasets.best_without("one 0", [steady, strong]) == 0
    assert datasets.best_without("two 0", [steady, strong]) == 1
    assert datasets.best_without("one 0", [steady, steady]) == 0


def test_outcome_names_the_gold_turns_that_were_missed() -> None:
    asked = Question("one", "q", "plain", "q", (Turn("a", 1), Turn("b", 2)), "g", "one g")
    outcome = Outcome("a way")
    outcome.take(asked, turns(("b", 2)), ["b"])
    plain = outcome.plain(asked)
    assert plain["ranks"] == {"a:1": None, "b:2": 1}
    assert plain["misses"] == ["a:1"]
    assert plain["figures"]["R@5"] == 0.5
    assert (plain["figures"]["any@5"], plain["figures"]["all@5"]) == (1.0, 0.0)


def test_figures_are_printed_without_a_leading_zero() -> None:
    assert datasets.shown(0.6624) == ".662"
    assert datasets.shown(1.0) == "1.000"
    assert datasets.shown(-0.05, (-0.1, 0.0)) == "-.050 (-.100–.000)"


# -- the whole ------------------------------------------------------------------------------------


def test_benchmark_runs_with_one_dataset_and_names_the_missing_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "locomo_dev.json", [CONVERSATION])
    found = tmp_path / "found.json"
    asked = ["--data", str(tmp_path), "--mode", "all", "--baselines", "--loo", "--facts"]
    assert retrieval.main([*asked, "--markdown", "--json", str(found)]) == 0
    printed = capsys.readouterr()
    assert "longmemeval is not measured: there is no file" in printed.err
    assert "| Reverie, hybrid |" in printed.out
    written_down = json.loads(found.read_text(encoding="utf-8"))
    ways = written_down["datasets"]["LoCoMo"]["ways"]
    assert ways["Reverie, keyword"]["all"]["figures"]["R@5"] == 1.0
    assert list(written_down["quality"]["LoCoMo"])[-1] == "Reverie, hybrid"
    assert [each["id"] for each in written_down["questions"]] == ["talk 1", "talk 2", "talk 4"]


def test_benchmark_without_datasets_measures_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retrieval.main(["--data", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("is not measured") == 2
