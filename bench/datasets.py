"""Conversations with questions about them, read from their files, and how well they were answered.

LoCoMo is one space for each conversation; LongMemEval is one space for all of its sessions.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

LOCOMO, LONGMEMEVAL = "LoCoMo", "LongMemEval"
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""LoCoMo's fifth asks for what was never said."""
FOLDS = 6
"""Of a set that is one space: its questions are dealt out by a hash of their ids."""
DRAWS = 2_000
SEED = 20260101

TURN_CUTS, SESSION_CUTS, GAIN_CUT = (5, 10, 20), (5, 10), 10
METRICS = (
    *(f"R@{cut}" for cut in TURN_CUTS),
    f"NDCG@{GAIN_CUT}",
    "hit@1",
    *(f"any@{cut}" for cut in SESSION_CUTS),
    *(f"all@{cut}" for cut in SESSION_CUTS),
)
CHOOSING = ("R@5", "R@10")
"""What a setting is chosen by."""

_DIA_ID = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)", re.IGNORECASE)
_SESSION = re.compile(r"session_(\d+)")
_WEEKDAY = re.compile(r"\s*\(\w+\)\s*")

Figures = dict[str, float]
"""A figure for each of ``METRICS``."""
Interval = tuple[float, float]


class Turn(NamedTuple):
    """Where a turn stands: its session, and its place there from 1 on."""

    session: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.session}:{self.sequence}"


class Fact(NamedTuple):
    """What a turn says, in one sentence."""

    text: str
    turn: Turn


@dataclass(frozen=True)
class Session:
    """One conversation of one day."""

    id: str
    at: datetime
    messages: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Question:
    """``group`` is what is resampled together, ``fold`` what is left out together."""

    dataset: str
    id: str
    type: str
    text: str
    gold: tuple[Turn, ...]
    group: str
    fold: str


@dataclass(frozen=True)
class Pool:
    """What lies in one space, and what is asked of it."""

    name: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]
    facts: tuple[Fact, ...] = ()

    @property
    def texts(self) -> dict[Turn, str]:
        """Every turn as text, with the name of who said it where there is one."""
        return {
            Turn(session.id, sequence): _named(message)
            for session in self.sessions
            for sequence, message in enumerate(session.messages, 1)
        }


@dataclass(frozen=True)
class Dataset:
    """One file. ``left_out`` counts what of it is not asked, or not used."""

    name: str
    pools: tuple[Pool, ...]
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def questions(self) -> list[Question]:
        return [question for pool in self.pools for question in pool.questions]

    @property
    def described(self) -> str:
        counts = {
            "spaces": len(self.pools),
            "sessions": sum(len(pool.sessions) for pool in self.pools),
            "turns": sum(len(pool.texts) for pool in self.pools),
            "questions": len(self.questions),
        }
        used = ", ".join(f"{what} {count}" for what, count in counts.items())
        left_out = ", ".join(f"{what} {count}" for what, count in self.left_out.items())
        return f"{used}; left out: {left_out or 'nothing'}"


Scored = Mapping[Question, Figures]


def _named(message: Mapping[str, str]) -> str:
    name = message.get("name")
    return f"{name}: {message['content']}" if name else message["content"]


def _some(counted: Mapping[str, int]) -> dict[str, int]:
    return {what: count for what, count in sorted(counted.items()) if count}


# -- LoCoMo ---------------------------------------------------------------------------------------


def locomo(path: Path) -> Dataset:
    left_out: dict[str, int] = defaultdict(int)
    samples = json.loads(path.read_text(encoding="utf-8"))
    pools = [
        _conversation(sample, str(sample.get("sample_id", number)), left_out)
        for number, sample in enumerate(samples, 1)
    ]
    return Dataset(LOCOMO, tuple(pools), _some(left_out))


def _conversation(sample: Mapping[str, Any], name: str, left_out: dict[str, int]) -> Pool:
    said, places = sample["conversation"], dict[str, Turn]()
    sessions = []
    for number, turns in _numbered_sessions(said):
        id = f"D{number}"
        places |= {
            dia_id: Turn(id, sequence)
            for sequence, turn in enumerate(turns, 1)
            for dia_id in dia_ids(turn["dia_id"])
        }
        at = locomo_time(said[f"session_{number}_date_time"])
        messages = tuple(_message(turn, said["speaker_a"]) for turn in turns)
        sessions.append(Session(id, at, messages))
    sessions.sort(key=lambda session: session.at)
    questions = _questions(sample["qa"], name, places, left_out)
    facts = _facts(sample.get("observation", {}), places, left_out)
    return Pool(f"{LOCOMO} {name}", tuple(sessions), tuple(questions), tuple(facts))


def _numbered_sessions(said: Mapping[str, Any]) -> Iterator[tuple[int, list[dict[str, str]]]]:
    numbered = {int(found[1]): key for key in said if (found := _SESSION.fullmatch(key))}
    for number in sorted(numbered):
        if said[numbered[number]]:
            yield number, said[numbered[number]]


def _message(turn: Mapping[str, str], user: str) -> dict[str, str]:
    text, caption = turn["text"], turn.get("blip_caption")
    return {
        "role": "user" if turn["speaker"] == user else "assistant",
        "name": turn["speaker"],
        "content": f"{text} [shares {caption}]".strip() if caption else text,
    }


def _questions(
    asked: Sequence[Mapping[str, Any]],
    conversation: str,
    places: Mapping[str, Turn],
    left_out: dict[str, int],
) -> Iterator[Question]:
    for number, each in enumerate(asked, 1):
        if each["category"] not in CATEGORIES:
            left_out["questions of other categories"] += 1
            continue
        gold, lost = _placed(each.get("evidence"), places)
        if lost:
            left_out["evidence that names no turn"] += lost
        if not gold:
            left_out["questions without evidence"] += 1
            continue
        yield Question(
            LOCOMO,
            f"{conversation} {number}",
            CATEGORIES[each["category"]],
            each["question"],
            gold,
            conversation,
            f"{LOCOMO} {conversation}",
        )


def _facts(
    observed: Mapping[str, Any], places: Mapping[str, Turn], left_out: dict[str, int]
) -> Iterator[Fact]:
    for speakers in observed.values():
        for text, evidence in (each for entries in speakers.values() for each in entries):
            turns, _ = _placed(evidence, places)
            if turns:
                yield Fact(text, turns[0])  # a memory has one origin
                left_out["further turns of a fact"] += len(turns) - 1
            else:
                left_out["facts that name no turn"] += 1


def _placed(evidence: object, places: Mapping[str, Turn]) -> tuple[tuple[Turn, ...], int]:
    """The turns that are named, each once, and how many names lead nowhere."""
    named = dict.fromkeys(dia_ids(evidence))
    found = dict.fromkeys(places[name] for name in named if name in places)
    return tuple(found), sum(name not in places for name in named)


def dia_ids(evidence: object) -> list[str]:
    """Names of turns as ``D8:6``, however they are written; what cannot be read stays as it is.

    ``D8:6; D9:17``, ``D:11:26`` and ``D30:05`` occur, and lists of them.
    """
    if isinstance(evidence, list):
        return [name for each in evidence for name in dia_ids(each)]
    if not isinstance(evidence, str) or not evidence.strip():
        return []
    found = [f"D{int(session)}:{int(place)}" for session, place in _DIA_ID.findall(evidence)]
    return found or [evidence]


def locomo_time(text: str) -> datetime:
    """``1:56 pm on 8 May, 2023``."""
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


# -- LongMemEval ----------------------------------------------------------------------------------


def longmemeval(path: Path) -> Dataset:
    """All distinct sessions together; of the same one under two dates the first that is read."""
    left_out: dict[str, int] = defaultdict(int)
    sessions: dict[str, Session] = {}
    questions = []
    for each in json.loads(path.read_text(encoding="utf-8")):
        gold: list[Turn] = []
        for original, date, turns in zip(
            each["haystack_session_ids"],
            each["haystack_dates"],
            each["haystack_sessions"],
            strict=True,
        ):
            id, at = hashed(original, turns), longmemeval_time(date)
            known = sessions.setdefault(id, Session(id, at, tuple(map(_verbatim, turns))))
            left_out["second dates of a session"] += known.at != at
            gold += _answering(id, turns)
        if each["question_id"].endswith("_abs"):
            left_out["questions without an answer"] += 1
        elif not gold:
            left_out["questions without evidence"] += 1
        else:
            questions.append(_pooled(each, dict.fromkeys(gold)))
    ordered = sorted(sessions.values(), key=lambda session: (session.at, session.id))
    pool = Pool(LONGMEMEVAL, tuple(ordered), tuple(questions))
    return Dataset(LONGMEMEVAL, (pool,), _some(left_out))


def _pooled(asked: Mapping[str, Any], gold: Iterable[Turn]) -> Question:
    id = str(asked["question_id"])
    fold = f"{LONGMEMEVAL} {fold_of(id) + 1}"
    type, text = asked["question_type"], asked["question"]
    return Question(LONGMEMEVAL, id, type, text, tuple(gold), group=id, fold=fold)


def _verbatim(turn: Mapping[str, Any]) -> dict[str, str]:
    return {"role": turn["role"], "content": turn["content"]}


def _answering(session: str, turns: Sequence[Mapping[str, Any]]) -> list[Turn]:
    return [
        Turn(session, sequence) for sequence, turn in enumerate(turns, 1) if turn.get("has_answer")
    ]


def hashed(id: str, turns: Sequence[Mapping[str, Any]]) -> str:
    """A name for a session that says nothing: its own tells which sessions hold answers.

    What was said is part of it, so that two sessions under one id stay two.
    """
    whole = json.dumps([id, [(turn["role"], turn["content"]) for turn in turns]])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def fold_of(id: str) -> int:
    # Salted: a file may itself be a part that was chosen by a bare hash of the ids.
    return int(hashlib.sha256(f"fold of {id}".encode()).hexdigest(), 16) % FOLDS


def longmemeval_time(text: str) -> datetime:
    """``2023/04/10 (Mon) 17:50``."""
    return datetime.strptime(_WEEKDAY.sub(" ", text), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


# -- figures --------------------------------------------------------------------------------------


def ranks(gold: Iterable[Turn], found: Sequence[Turn]) -> dict[Turn, int | None]:
    """The place of each gold turn among those found, from 1 on."""
    places = {turn: place for place, turn in reversed(list(enumerate(found, 1)))}
    return {turn: places.get(turn) for turn in gold}


def turn_figures(gold: Sequence[Turn], found: Sequence[Turn]) -> Figures:
    """The share of the gold turns among the first so many, and NDCG with gains of 0 and 1."""
    places = [place for place in ranks(gold, found).values() if place is not None]
    shares = {f"R@{cut}": sum(place <= cut for place in places) / len(gold) for cut in TURN_CUTS}
    gained = sum(_discounted(place) for place in places if place <= GAIN_CUT)
    ideal = sum(_discounted(place) for place in range(1, min(len(gold), GAIN_CUT) + 1))
    return {**shares, f"NDCG@{GAIN_CUT}": gained / ideal}


def _discounted(place: int) -> float:
    return 1 / math.log2(place + 1)


def session_figures(gold: Sequence[Turn], sessions: Sequence[str]) -> Figures:
    """Whether the first session is one of the gold turns' (``hit@1``), and whether any, and all, of
    these are among the first so many.
    """
    wanted = {turn.session for turn in gold}
    figures: Figures = {"hit@1": float(bool(wanted & set(sessions[:1])))}
    for cut in SESSION_CUTS:
        found = wanted & set(sessions[:cut])
        figures[f"any@{cut}"] = float(bool(found))
        figures[f"all@{cut}"] = float(found == wanted)
    return {name: figures[name] for name in METRICS if name in figures}


def in_order(found: Iterable[Turn]) -> list[str]:
    """The sessions of turns, in the order of the best turn of each."""
    return list(dict.fromkeys(turn.session for turn in found))


@dataclass
class Outcome:
    """What one way to recall found: figures, and the ranks of the gold turns, of each question."""

    name: str
    scored: dict[Question, Figures] = field(default_factory=dict)
    ranks: dict[Question, dict[Turn, int | None]] = field(default_factory=dict)

    def take(self, question: Question, found: Sequence[Turn], sessions: Sequence[str]) -> None:
        self.ranks[question] = ranks(question.gold, found)
        self.scored[question] = {
            **turn_figures(question.gold, found),
            **session_figures(question.gold, sessions),
        }

    @property
    def parts(self) -> dict[str, Scored]:
        """The figures by question type, and all of them."""
        return {**by_type(self.scored), "all": self.scored}

    def plain(self, question: Question) -> dict[str, Any]:
        places = self.ranks[question]
        return {
            "ranks": {str(turn): place for turn, place in places.items()},
            "misses": [str(turn) for turn, place in places.items() if place is None],
            "figures": {name: round(value, 4) for name, value in self.scored[question].items()},
        }


def mean(scored: Scored) -> Figures:
    """Over all questions; only what every one of them has."""
    return {name: fmean(figures[name] for figures in scored.values()) for name in _measured(scored)}


def by_type(scored: Scored) -> dict[str, Scored]:
    types: dict[str, dict[Question, Figures]] = defaultdict(dict)
    for question, figures in sorted(scored.items(), key=lambda pair: pair[0].type):
        types[question.type][question] = figures
    return dict(types)


def difference(scored: Scored, other: Scored) -> Scored:
    return {
        question: {name: figures[name] - other[question][name] for name in figures}
        for question, figures in scored.items()
    }


def intervals(scored: Scored) -> dict[str, Interval]:
    """Where the means lie in 95 of 100 draws of as many groups as there are, with replacement."""
    names = _measured(scored)
    groups: dict[str, list[list[float]]] = defaultdict(list)
    for question, figures in scored.items():
        groups[question.group].append([figures[name] for name in names])
    sums = np.array([np.sum(rows, axis=0) for rows in groups.values()])
    counts = np.array([len(rows) for rows in groups.values()])
    drawn = np.random.default_rng(SEED).integers(len(groups), size=(DRAWS, len(groups)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)[:, None]
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(names)}


def _measured(scored: Scored) -> list[str]:
    return [name for name in METRICS if all(name in figures for figures in scored.values())]


def shown(value: float, interval: Interval | None = None) -> str:
    """``.662``, or ``.662 (.601–.718)``."""
    around = f" ({shown(interval[0])}–{shown(interval[1])})" if interval else ""
    rounded = f"{value:.3f}"
    return (rounded if abs(value) >= 1 else rounded.replace("0.", ".", 1)) + around


def plain_figures(scored: Scored) -> dict[str, Any]:
    return {
        "questions": len(scored),
        "figures": {name: round(value, 4) for name, value in mean(scored).items()},
        "intervals": {
            name: [round(low, 4), round(high, 4)] for name, (low, high) in intervals(scored).items()
        },
    }


def best_without(fold: str, candidates: Sequence[Scored]) -> int:
    """Which candidate has the best mean of R@5 and R@10 when a fold is not looked at.

    Each data set counts alike; of equals the first is taken.
    """
    worth = [_worth(scored, fold) for scored in candidates]
    return worth.index(max(worth))


def _worth(scored: Scored, without: str) -> float:
    known: dict[str, list[float]] = defaultdict(list)
    for question, figures in scored.items():
        if question.fold != without:
            known[question.dataset].append(fmean(figures[name] for name in CHOOSING))
    return round(fmean(map(fmean, known.values())), 9) if known else 0.0
