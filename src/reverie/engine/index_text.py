"""What is indexed of a text: its passages, their terms, and the labels of a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from reverie.model import Memory
from reverie.text.analyzer import Terms, analyse
from reverie.text.passages import split

# The most terms that a text's length counts as: beyond it, length does not lower a score more.
MAX_COUNTED = 200
# The category of memories that were given none: it says nothing about them.
DEFAULT_CATEGORY = "general"


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of a text, ready to be indexed. ``length`` is its length for scoring, in terms.

    Each passage of a message has the length of the whole message, because a long reply says little
    about any one thing. Passages of memories have length 0: a memory is short, or a document whose
    passages are about equally long. ``embedded`` is the text that its vector is made of.
    """

    start: int
    text: str
    terms: frozenset[str]
    length: int
    embedded: str


class Labels(NamedTuple):
    """What a memory is filed under. Recall finds a memory by these as by its content."""

    subject: str | None = None
    category: str = DEFAULT_CATEGORY
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, memory: Memory) -> Labels:
        """The labels of a memory."""
        return cls(memory.subject, memory.category, memory.tags)

    def terms(self) -> frozenset[str]:
        """The terms of all labels; each passage of the memory is indexed under them."""
        category = "" if self.category == DEFAULT_CATEGORY else self.category
        words = " ".join((self.subject or "", category, *self.tags))
        return frozenset(analyse(words).counts) if words.strip() else frozenset()

    def embedded(self, text: str) -> str:
        """The text that the vector of a passage is made of: it names the subject."""
        subject = self.subject
        if subject is None or subject.casefold() in text.casefold():
            return text
        return f"{subject}: {text}"


def memory_passages(content: str, labels: Labels) -> list[Passage]:
    """Split the content of a memory into passages; each also has the terms of the labels."""
    named = labels.terms()
    return [
        Passage(start, text, named.union(terms.counts), 0, labels.embedded(text))
        for start, text, terms in _split_and_analyze(content)
    ]


def message_passages(content: str, speaker: str | None) -> list[Passage]:
    """Split a message into passages; each also has the terms of the speaker's name."""
    parts = _split_and_analyze(content)
    length = min(sum(terms.length for _, _, terms in parts), MAX_COUNTED)
    name = frozenset(analyse(speaker).counts) if speaker else frozenset()
    return [
        Passage(start, text, name.union(terms.counts), length, text) for start, text, terms in parts
    ]


def _split_and_analyze(content: str) -> list[tuple[int, str, Terms]]:
    spans = [(start, content[start:end]) for start, end in split(content)]
    return [(start, text, analyse(text)) for start, text in spans]
