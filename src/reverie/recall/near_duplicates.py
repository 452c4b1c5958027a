"""Near-duplicate detection: whether two texts say the same in almost the same words."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import lru_cache
from math import ceil

from reverie.model import Event, Memory
from reverie.text.analyzer import STOP_WORDS, query_terms
from reverie.text.messages import speaker_of
from reverie.text.metadata import to_canonical
from reverie.text.normalize import subject_key

_WORD = re.compile(r"\w+")
# Stop words that carry no meaning of their own.
_FUNCTION_WORDS = """
    a an am and are as at be been being but can could did do does doing for had has have having how
    i if in is it its itself just me my myself of or our ours ourselves own shall should so some
    such than that the then there these this those to too very was we were what when where which
    while who whom why will with would you your yours
"""
# The other stop words can reverse a sentence: on and off, before and after, his and her.
MEANINGFUL_STOP_WORDS = STOP_WORDS - frozenset(_FUNCTION_WORDS.split())
# Terms that mean the same about what somebody likes.
INTERCHANGEABLE_TERMS = query_terms("adore enjoy fan favour fond like love really keen").keys()
# Up to this many words, a text skips the quick comparison of words: all its words may differ in
# their endings and still give the same terms.
FEW_WORDS = 8
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|nobody|without|cannot|nor|\w+n['’]?t|nicht|kein\w*|nie|"
    r"pas|jamais|ningún\w*|nunca|jamás|não|non|mai|niet|geen|не|нет|никогда)\b|[不没沒無无]|ない",
    re.IGNORECASE,
)


# The share of terms above which a prompt shows two texts as one.
DEFAULT_SHARE = 0.5
DuplicateGroup = tuple[str | int | None, ...]
ANY_MEMORY: DuplicateGroup = ("memory",)
ANY_EVENT: DuplicateGroup = ("event",)


def is_near_duplicate(one: str, other: str, share: float = DEFAULT_SHARE) -> bool:
    """Whether two texts share this part of their terms in the same order, one only adds terms to
    the other, and they differ in nothing that changes the meaning: names, numbers, negations, and
    whether they are questions.
    """
    # Cheap checks first: analysing both texts takes longer.
    shorter, longer = sorted((len(one.strip()), len(other.strip())))
    if shorter * 2 < longer * share:
        return False
    one_words, other_words = _words(one), _words(other)
    if min(len(one_words), len(other_words)) > FEW_WORDS:
        common = len(one_words & other_words)
        if common * 2 < (len(one_words) + len(other_words) - common) * share:
            return False
    one_terms, other_terms = _terms(one), _terms(other)
    shared = one_terms.keys() & other_terms.keys()
    own = [terms.keys() - shared for terms in (one_terms, other_terms)]
    if all(own) and not set().union(*own) <= INTERCHANGEABLE_TERMS:
        # Each has a term that the other lacks: something was exchanged, not added.
        return False
    if not shared or len(shared) < len(one_terms.keys() | other_terms.keys()) * share:
        return False
    if [term for term in one_terms if term in shared] != [
        term for term in other_terms if term in shared
    ]:
        return False
    if (
        one_words & MEANINGFUL_STOP_WORDS != other_words & MEANINGFUL_STOP_WORDS
        or _is_question(one) != _is_question(other)
        or len(_NEGATION.findall(one)) != len(_NEGATION.findall(other))
    ):
        return False
    return all(
        _terms(_names_and_numbers(text)).keys() & own_terms.keys() <= counterpart.keys()
        for text, own_terms, counterpart in (
            (one, one_terms, other_terms),
            (other, other_terms, one_terms),
        )
    )


def duplicate_groups(item: Memory | Event) -> tuple[DuplicateGroup, ...]:
    """Return the groups of a ``NearDuplicateIndex`` to add a memory or event to."""
    if isinstance(item, Memory):
        return (ANY_MEMORY, _subject_group(item))
    return (ANY_EVENT, _speaker_group(item))


def comparable_groups(item: Memory | Event) -> tuple[DuplicateGroup, ...]:
    """Return the groups in which to look for duplicates of a memory or event.

    Memories with equal words but different subjects, times or metadata are no duplicates, and
    neither are events of different speakers. A memory can be a duplicate of any event.
    """
    if isinstance(item, Memory):
        return (ANY_EVENT, _subject_group(item))
    return (ANY_MEMORY, _speaker_group(item))


def _subject_group(memory: Memory) -> DuplicateGroup:
    times = (memory.happened_at, memory.valid_from, memory.valid_to)
    return ("memory", subject_key(memory.subject), *times, to_canonical(memory.metadata))


def _speaker_group(event: Event) -> DuplicateGroup:
    return ("event", event.user, event.role, speaker_of(event.message))


class NearDuplicateIndex:
    """Texts in groups, indexed by some of their terms to find near-duplicates quickly."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._texts: list[str] = []
        self._places: dict[tuple[Hashable, str], list[int]] = {}

    def find(self, text: str, groups: Iterable[Hashable] = ("",)) -> int | None:
        """Return the number of the first text in these groups that is a near-duplicate."""
        candidates = {
            place
            for group in groups
            for term in prefix_filter_terms(text, self._share)
            for place in self._places.get((group, term), ())
        }
        matches = (
            at for at in sorted(candidates) if is_near_duplicate(text, self._texts[at], self._share)
        )
        return next(matches, None)

    def add(self, text: str, groups: Iterable[Hashable] = ("",)) -> None:
        """Add a text to these groups; texts are numbered in the order in which they are added."""
        for group in groups:
            for term in prefix_filter_terms(text, self._share):
                self._places.setdefault((group, term), []).append(len(self._texts))
        self._texts.append(text)


@lru_cache(maxsize=1_000)
def prefix_filter_terms(text: str, share: float) -> tuple[str, ...]:
    """Return terms of a text such that any text with ``share`` of its terms has at least one.

    This is prefix filtering, as used for set similarity joins.
    """
    # The first terms in an order that is the same for all texts, one more than may be missing. The
    # longest come first: they are rare.
    terms = sorted(_terms(text), key=lambda term: (-len(term), term))
    return tuple(terms[: len(terms) - ceil(len(terms) * share - 1e-9) + 1])


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(("?", "\uff1f", "\u061f"))


def _names_and_numbers(text: str) -> str:
    """Return the words with a capital first letter or a digit, in which duplicates agree."""
    return " ".join(
        word for word in _WORD.findall(text) if word[0].isupper() or any(map(str.isdigit, word))
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


@lru_cache(maxsize=1_000)
def _terms(text: str) -> dict[str, None]:
    """Return the terms of a text in order, without its words, which a cache would keep."""
    return dict.fromkeys(query_terms(text, len(text)))
