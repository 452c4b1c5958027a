"""Splits long text into passages of about equal size that overlap a little."""

from __future__ import annotations

import re

PASSAGE_CHARS = 640
OVERLAP_CHARS = 96

# Where a passage may end, the best first: paragraph, sentence, word. The match's end is the cut.
_CUT_PATTERNS = (
    re.compile(r".(?=\n[ \t\r]*\n|\r\n\r\n|\u2029)", re.DOTALL),
    re.compile(r"[.!?…؟۔।][\"'”’»)\]]{0,3}(?=\s)|[。！？｡][」』”’）]{0,3}|\S(?=[\r\n])"),
    re.compile(r"\S(?=\s)"),
)
_WORD_START = re.compile(r"(?<=\s)\S")
_VISIBLE = re.compile(r"\S")


def split(
    text: str, size: int = PASSAGE_CHARS, overlap: int = OVERLAP_CHARS
) -> list[tuple[int, int]]:
    """The offsets of the passages, each at most ``size`` long; only whitespace is left out.

    A text that fits is one passage. A longer one is cut at the end of a paragraph, a sentence or
    a word where one is near, and the pieces are about equally long.
    """
    if size < 1 or not 0 <= overlap <= size // 3:
        raise ValueError(f"overlap must be between 0 and a third of size, not {overlap} of {size}")
    if len(text) <= size:
        return [(0, len(text))]
    stop = len(text.rstrip())
    spans: list[tuple[int, int]] = []
    start = 0
    while found := _VISIBLE.search(text, start, stop):
        start = found.start()
        if stop - start <= size:
            spans.append((start, stop))
            break
        end = _find_cut(text, start, _passage_limit(stop - start, size, overlap))
        spans.append((start, end))
        start = max(_next_start(text, end, overlap), start + 1)
    return spans or [(0, size)]


def _passage_limit(rest: int, size: int, overlap: int) -> int:
    """The length of the next passage that makes all that follow about equally long."""
    count = -(-(rest - overlap) // (size - overlap))
    even = -(-(rest + (count - 1) * overlap) // count)
    return min(size, even + even // 8)


def _find_cut(text: str, start: int, window: int) -> int:
    last = start + window
    for ends in _CUT_PATTERNS:
        cut = 0
        # One character more, because the patterns look at the character after the cut.
        for match in ends.finditer(text, last - window // 3, last + 1):
            if match.end() <= last:
                cut = match.end()
        if cut:
            return cut
    return last


def _next_start(text: str, end: int, overlap: int) -> int:
    if not overlap:
        return end
    match = _WORD_START.search(text, end - overlap, end)
    return match.start() if match else end - overlap
