"""How much the rules learn of what people plainly say, and how often they learn something wrong.

The corpora lie in ``tests/learn/corpus``. Of each, one half was looked at while the rules were
written, of the other only the figures.

``mending.json`` and ``unseen.json``: a hostile text may teach nothing but what it says in ``may``;
a sincere one must teach what the rules learned from it before there was a gate (``baseline``); a
correction must teach the corrected value alone.

``plain_seen.json`` and ``plain_unseen.json``: a plain statement must teach its ``facts``, each
given by category, subject and words (``a/b`` is one of both); an ``optional`` fact may be learned
as well. A trap looks like a statement and must teach nothing. Recall is the share of the facts that
are learned; precision is the share of everything learned, traps included, that is one of them.

``stranger_seen.json`` and ``stranger_unseen.json``: the same, written by somebody who knew neither
the rules nor the other corpora. A fact says whom it is ``about`` instead of category and subject.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from reverie.learn.rules.statements import Statement, extract_statements

CORPUS = Path(__file__).parents[1] / "tests" / "learn" / "corpus"
HALVES = ("mending", "unseen")
PLAIN_HALVES = ("plain_seen", "plain_unseen")
STRANGER_HALVES = ("stranger_seen", "stranger_unseen")
# Of the hostile texts of the unseen half, how many must teach nothing wrong.
GOAL = 0.97
# Of the facts of the unseen plain statements, how many must be learned, and of what is learned how
# much must be right.
RECALL_GOAL = 0.60
PRECISION_GOAL = 0.98
# A content is about the user in the third person; these are the words of an unread clause.
_PRONOUN = re.compile(r"(?:he|she|they|his|her|their)\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:i|i'm|i've|my|me|we|our|us)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Figures:
    """What the rules made of one half of the corpus."""

    hostile: int
    clean: float
    wrong_memories: int
    sincere: int
    facts: int
    kept: float
    corrections: int
    corrected: float
    wrong_by_kind: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PlainFigures:
    """What the rules made of one half of the plain statements and traps."""

    statements: int
    traps: int
    facts: int
    recall: float
    memories: int
    precision: float
    wrong_from_traps: int
    wrong_from_statements: int


@cache
def corpus(half: str) -> dict[str, list[dict[str, Any]]]:
    """Return the texts of one half: hostile, sincere and corrections."""
    loaded: dict[str, list[dict[str, Any]]] = json.loads(
        (CORPUS / f"{half}.json").read_text(encoding="utf-8")
    )
    return loaded


# The corpus was written when facts of health were in the category "context".
_LABELLED_AS = {"health": "context"}


def taught(text: str) -> list[str]:
    """Return what would be remembered of a text; of a single-valued subject, the last value."""
    contents: dict[object, str] = {}
    for statement in extract_statements(text):
        single = statement.single_valued and not statement.retracts and statement.subject
        slot = (statement.category, str(statement.subject).lower()) if single else statement.content
        contents.pop(slot, None)
        contents[slot] = statement.content
    return list(contents.values())


def wrong(half: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Return each hostile text of a half that teaches something wrong, with what it teaches."""
    for text in corpus(half)["hostile"]:
        if learned := [each for each in taught(text["text"]) if each not in text["may"]]:
            yield text, learned


def lost(half: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Return each sincere text of a half of which something is no longer learned."""
    for text in corpus(half)["sincere"]:
        now = {statement.content for statement in extract_statements(text["text"])}
        if missing := [each for each in text["baseline"] if not _is_kept(each, now)]:
            yield text, missing


def _is_kept(content: str, now: set[str]) -> bool:
    """Whether a content is still learned, as it was or as the rules read it today.

    "I'm vegan" was kept in the person's own words and is now "The user is vegan". What begins with
    a pronoun ("She eats no meat") is no longer a memory: it names the person, or is not learned.
    """
    read = {statement.content for statement in extract_statements(content)}
    return content in now or bool(read and read <= now) or bool(_PRONOUN.match(content))


def uncorrected(half: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Return each correction of a half that teaches anything but the corrected value."""
    for text in corpus(half)["corrections"]:
        if (learned := taught(text["text"])) != text["teaches"]:
            yield text, learned


def matches(fact: dict[str, Any], statement: Statement) -> bool:
    """Whether a learned statement is one of the facts that a text must teach."""
    content = statement.content.lower()
    return (
        _is_labelled(fact, statement)
        and all(
            any(re.search(rf"(?<!\w){re.escape(form)}", content) for form in word.split("/"))
            for word in fact["words"].lower().split()
        )
        and not _FIRST_PERSON.search(content)
    )


def _is_labelled(fact: dict[str, Any], statement: Statement) -> bool:
    """Whether a statement is about what a fact is about, as far as its corpus says that."""
    subject = (statement.subject or "").lower()
    if "about" in fact:
        about = fact["about"].lower()
        return about == "user" or about == subject or about in statement.content.lower()
    same_category = fact["category"] == _LABELLED_AS.get(statement.category, statement.category)
    return same_category and (fact["subject"] or subject).lower() == subject


def missed(half: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[Statement]]]:
    """Return each fact of a plain statement that is not learned, with what is learned instead."""
    for text in corpus(half)["statements"]:
        learned = extract_statements(text["text"])
        for fact in text["facts"]:
            if not fact.get("optional") and not any(matches(fact, each) for each in learned):
                yield text, fact, learned


def mistaken(half: str) -> Iterator[tuple[str, dict[str, Any], Statement]]:
    """Return what is learned wrongly, with the text and the list it comes from."""
    for kind in ("statements", "traps"):
        for text in corpus(half)[kind]:
            for each in extract_statements(text["text"]):
                if not any(matches(fact, each) for fact in text.get("facts", ())):
                    yield kind, text, each


def plain_figures(half: str) -> PlainFigures:
    """Measure one half of the plain statements and traps."""
    texts = corpus(half)
    facts = sum(not fact.get("optional") for text in texts["statements"] for fact in text["facts"])
    memories = sum(
        len(extract_statements(text["text"])) for listed in texts.values() for text in listed
    )
    bad = Counter(kind for kind, _, _ in mistaken(half))
    return PlainFigures(
        statements=len(texts["statements"]),
        traps=len(texts["traps"]),
        facts=facts,
        recall=1 - sum(1 for _ in missed(half)) / facts,
        memories=memories,
        precision=1 - bad.total() / memories,
        wrong_from_traps=bad["traps"],
        wrong_from_statements=bad["statements"],
    )


def figures(half: str) -> Figures:
    """Measure one half of the corpus."""
    texts = corpus(half)
    hostile, sincere, corrections = texts["hostile"], texts["sincere"], texts["corrections"]
    bad = list(wrong(half))
    facts = sum(len(text["baseline"]) for text in sincere)
    missing = sum(len(contents) for _, contents in lost(half))
    failed = sum(1 for _ in uncorrected(half))
    return Figures(
        hostile=len(hostile),
        clean=1 - len(bad) / len(hostile),
        wrong_memories=sum(len(contents) for _, contents in bad),
        sincere=len(sincere),
        facts=facts,
        kept=1 - missing / facts,
        corrections=len(corrections),
        corrected=1 - failed / len(corrections),
        wrong_by_kind=dict(Counter(text["kind"] for text, _ in bad)),
    )


def table(measured: dict[str, Figures]) -> str:
    """Return the figures as a table."""
    rows = [
        "| half | hostile | nothing wrong | wrong memories | sincere facts | kept | corrected |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {half} | {each.hostile} | {each.clean:.3f} | {each.wrong_memories} | {each.facts} | "
        f"{each.kept:.3f} | {each.corrected:.3f} |"
        for half, each in measured.items()
    ]
    return "\n".join(rows)


def plain_table(measured: dict[str, PlainFigures]) -> str:
    """Return the figures of the plain statements as a table."""
    rows = [
        "| half | statements | traps | facts | recall | memories | precision | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {half} | {each.statements} | {each.traps} | {each.facts} | {each.recall:.3f} | "
        f"{each.memories} | {each.precision:.3f} | "
        f"{each.wrong_from_statements + each.wrong_from_traps} |"
        for half, each in measured.items()
    ]
    return "\n".join(rows)


def show(half: str) -> None:
    """Print what goes wrong in one half."""
    if half in HALVES:
        for found in (wrong, lost, uncorrected):
            for text, contents in found(half):
                print(found.__name__, json.dumps([text["text"], contents], ensure_ascii=False))
        return
    for text, fact, learned in missed(half):
        contents = [each.content for each in learned]
        print("missed", json.dumps([text["text"], fact, contents], ensure_ascii=False))
    for kind, text, each in mistaken(half):
        print("wrong", kind, json.dumps([text["text"], each.content, each.subject]))


def main() -> int:
    """Print the figures; fail when an unseen half misses a goal or something sincere is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--show",
        choices=("mending", "plain_seen", "stranger_seen"),
        help="print what goes wrong in a seen half",
    )
    chosen = parser.parse_args()
    if chosen.show:
        show(chosen.show)
    measured = {half: figures(half) for half in HALVES}
    plain = {half: plain_figures(half) for half in (*PLAIN_HALVES, *STRANGER_HALVES)}
    if chosen.json:
        everything = {half: asdict(each) for half, each in (measured | plain).items()}
        print(json.dumps(everything, indent=1))
    else:
        print(table(measured), plain_table(plain), sep="\n\n")
    unseen = plain["plain_unseen"]
    missed_goal = (
        measured["unseen"].clean < GOAL
        or any(each.kept < 1 for each in measured.values())
        or unseen.recall < RECALL_GOAL
        or unseen.precision < PRECISION_GOAL
    )
    return int(missed_goal)


if __name__ == "__main__":
    sys.exit(main())
