"""How often the rules learn something wrong from hostile texts, and how much of what is sincere.

The corpus lies in ``tests/learn/corpus``: ``mending.json`` was looked at while the gate was
written, of ``unseen.json`` only the score. A hostile text may teach nothing but what it says in
``may``; a sincere one must teach what the rules learned from it before there was a gate
(``baseline``); a correction must teach the corrected value alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from reverie.learn.rules.patterns import extract_statements

CORPUS = Path(__file__).parents[1] / "tests" / "learn" / "corpus"
HALVES = ("mending", "unseen")
# Of the hostile texts of the unseen half, how many must teach nothing wrong.
GOAL = 0.97


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


@cache
def corpus(half: str) -> dict[str, list[dict[str, Any]]]:
    """Return the texts of one half: hostile, sincere and corrections."""
    loaded: dict[str, list[dict[str, Any]]] = json.loads(
        (CORPUS / f"{half}.json").read_text(encoding="utf-8")
    )
    return loaded


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
        if missing := [each for each in text["baseline"] if each not in now]:
            yield text, missing


def uncorrected(half: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Return each correction of a half that teaches anything but the corrected value."""
    for text in corpus(half)["corrections"]:
        if (learned := taught(text["text"])) != text["teaches"]:
            yield text, learned


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


def main() -> int:
    """Print the figures; fail when the unseen half misses the goal or something sincere is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--show", choices=HALVES, help="print what goes wrong in one half")
    chosen = parser.parse_args()
    if chosen.show:
        for found in (wrong, lost, uncorrected):
            for text, contents in found(chosen.show):
                print(found.__name__, json.dumps([text["text"], contents], ensure_ascii=False))
    measured = {half: figures(half) for half in HALVES}
    if chosen.json:
        print(json.dumps({half: asdict(each) for half, each in measured.items()}, indent=1))
    else:
        print(table(measured))
    missed = measured["unseen"].clean < GOAL or any(each.kept < 1 for each in measured.values())
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
