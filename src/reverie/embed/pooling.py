"""Helpers of the embedders: normalised rows, and the weights of a query's words."""

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
    """Scale rows to unit length; a row of zeros stays."""
    wide = rows.astype(np.float64)
    largest = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
    wide /= np.where(largest > 0, largest, 1.0)  # so that no square overflows
    length = np.sqrt(np.square(wide).sum(axis=-1, keepdims=True))
    result: NDArray[np.float32] = (wide / np.where(length > 0, length, 1.0)).astype(np.float32)
    return result


def word_spans(text: str, weights: Mapping[str, float]) -> Iterator[tuple[int, int, float]]:
    """The offsets and weights of the words in an NFKC text that have a weight.

    ``weights`` has words as ``query_terms`` gives them: folded, and as bigrams for scripts without
    spaces.
    """
    for start, end in _token_spans(text):
        word = nfkc_casefold(text[start:end])[:MAX_TERM_CHARS]
        if word in weights:
            spans = [(start, end, weights[word])]
        elif word.isascii():
            continue
        else:
            spans = [
                (at, at + size, weights[bigram])
                for size in range(1, MAX_BIGRAM_CHARS + 1)
                for at in range(start, end - size + 1)
                if (bigram := nfkc_casefold(text[at : at + size])) in weights
            ]
        for first, last, weight in spans:
            if weight > 0 and isfinite(weight):
                yield first, last, weight


def _token_spans(text: str) -> Iterator[tuple[int, int]]:
    lowered = text.lower()
    if len(lowered) != len(text):  # "İ" has a longer lower case; offsets must stay the same
        lowered = "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)
    end = 0
    for token in tokenize(lowered):
        start = lowered.index(token, end)
        end = start + len(token)
        yield start, end
