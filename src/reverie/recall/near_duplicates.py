"""Whether two texts say the same."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import lru_cache
from math import ceil

from reverie.text.analyzer import STOP_WORDS, query_terms

_WORD = re.compile(r"\w+")
# Of the words that are not searched for, those that say nothing by themselves.
_FUNCTION_WORDS = """
    a an am and are as at be been being but can could did do does doing for had has have having how
    i if in is it its itself just me my myself of or our ours ourselves own shall should so some
    such than that the then there these this those to too very was we were what when where which
    while who whom why will with would you your yours
"""
# The others turn a sentence round: on and off, before and after, his and her.
MEANINGFUL_STOP_WORDS = STOP_WORDS - frozenset(_FUNCTION_WORDS.split())
# So few may all have another ending.
FEW_WORDS = 8
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|nobody|without|cannot|nor|\w+n['’]?t|nicht|kein\w*|nie|"
    r"pas|jamais|ningún\w*|nunca|jamás|não|non|mai|niet|geen|не|нет|никогда)\b|[不没沒無无]|ない",
    re.IGNORECASE,
)


# So much two texts share that are told to a model as one.
DEFAULT_SHARE = 0.5


def is_near_duplicate(one: str, other: str, share: float = DEFAULT_SHARE) -> bool:
    """Whether both share so many of their words in one order, and name the same people and numbers.

    What one of them denies or only asks, the other does not say.
    """
    # Far from it: analysing both would take longer.
    shorter, longer = sorted((len(one.strip()), len(other.strip())))
    if shorter * 2 < longer * share:
        return False
    words, others = _words(one), _words(other)
    if min(len(words), len(others)) > FEW_WORDS:
        common = len(words & others)
        if common * 2 < (len(words) + len(others) - common) * share:
            return False
    mine, theirs = _terms(one), _terms(other)
    shared = mine.keys() & theirs.keys()
    if not shared or len(shared) < len(mine.keys() | theirs.keys()) * share:
        return False
    if [term for term in mine if term in shared] != [term for term in theirs if term in shared]:
        return False
    if (
        words & MEANINGFUL_STOP_WORDS != others & MEANINGFUL_STOP_WORDS
        or _is_question(one) != _is_question(other)
        or len(_NEGATION.findall(one)) != len(_NEGATION.findall(other))
    ):
        return False
    return all(
        _terms(_names_and_numbers(text)).keys() & known.keys() <= both.keys()
        for text, known, both in ((one, mine, theirs), (other, theirs, mine))
    )


class NearDuplicateIndex:
    """Texts of some groups, found by their terms: which of them says the same as another does."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._texts: list[str] = []
        self._places: dict[tuple[Hashable, str], list[int]] = {}

    def find(self, text: str, groups: Iterable[Hashable] = ("",)) -> int | None:
        """The place of the first text of these groups that says the same."""
        near = {
            place
            for group in groups
            for term in prefix_filter_terms(text, self._share)
            for place in self._places.get((group, term), ())
        }
        found = (at for at in sorted(near) if is_near_duplicate(text, self._texts[at], self._share))
        return next(found, None)

    def add(self, text: str, groups: Iterable[Hashable] = ("",)) -> None:
        for group in groups:
            for term in prefix_filter_terms(text, self._share):
                self._places.setdefault((group, term), []).append(len(self._texts))
        self._texts.append(text)


@lru_cache(maxsize=1_000)
def prefix_filter_terms(text: str, share: float) -> tuple[str, ...]:
    """Some terms of a text: whatever shares so many with it has one of them among its own."""
    # The first in one order for all texts, as many as it has beyond those that must be shared. The
    # longest first: few others have them.
    terms = sorted(_terms(text), key=lambda term: (-len(term), term))
    return tuple(terms[: len(terms) - ceil(len(terms) * share - 1e-9) + 1])


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(("?", "\uff1f", "\u061f"))


def _names_and_numbers(text: str) -> str:
    """Words that begin with a capital or hold a digit: with another one, something else is said."""
    return " ".join(
        word for word in _WORD.findall(text) if word[0].isupper() or any(map(str.isdigit, word))
    )


@lru_cache(maxsize=1_000)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


@lru_cache(maxsize=1_000)
def _terms(text: str) -> dict[str, str]:
    """The terms of a text, in the order in which they come."""
    return query_terms(text, len(text))
