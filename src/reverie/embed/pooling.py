"""What the embedders share: unit rows, and how much each word of a query counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from reverie.text.analyzer import MAX_TERM_CHARS, tokenize
from reverie.text.normalize import nfkc_casefold

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BIGRAM_CHARS = 4  # two letters, each perhaps with a mark


def normalize_rows(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of length one; a row of zeros stays."""
    wide = rows.astype(np.float64)
    largest = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
    wide /= np.where(largest > 0, largest, 1.0)  # so that no square overflows
    length = np.sqrt(np.square(wide).sum(axis=-1, keepdims=True))
    result: NDArray[np.float32] = (wide / np.where(length > 0, length, 1.0)).astype(np.float32)
    return result


def word_spans(text: str, weights: Mapping[str, float]) -> Iterator[tuple[int, int, float]]:
    """Where in an NFKC text the words that count are, and how much. Words without a weight do not.

    ``weights`` names words as ``query_terms`` does: folded, and in pairs of letters for scripts
    without spaces.
    """
    for start, end in _token_spans(text):
        word = nfkc_casefold(text[start:end])[:MAX_TERM_CHARS]
        if word in weights:
            found = [(start, end, weights[word])]
        elif word.isascii():
            continue
        else:
            found = [
                (at, at + size, weights[pair])
                for size in range(1, MAX_BIGRAM_CHARS + 1)
                for at in range(start, end - size + 1)
                if (pair := nfkc_casefold(text[at : at + size])) in weights
            ]
        for first, last, weight in found:
            if weight > 0 and isfinite(weight):
                yield first, last, weight


def _token_spans(text: str) -> Iterator[tuple[int, int]]:
    lowered = text.lower()
    if len(lowered) != len(text):  # "İ" has a longer lower case; places must stay
        lowered = "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)
    end = 0
    for token in tokenize(lowered):
        start = lowered.index(token, end)
        end = start + len(token)
        yield start, end
