"""The embedder that needs nothing: wordllama's static vectors, read straight from its files."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from math import sqrt
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from reverie.embed.pooling import word_spans
from reverie.embed.tokens import bundled_file, replace_surrogates, tokenizer

if TYPE_CHECKING:
    from reverie.protocols import Matrix, Vector

MAX_CHARS = 20_000
"""What of a text is looked at. Longer text is split into passages long before."""
NFKC_CHUNK_CHARS = 500

_lock = Lock()


class LocalEmbedder:
    """A text is the sum of its tokens' vectors, each times √(how often it occurs)."""

    identity = "wordllama:l2_supercat_256"
    remote = False
    dimensions = 256

    def __repr__(self) -> str:
        return "LocalEmbedder()"

    def embed(self, texts: Sequence[str]) -> Matrix:
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            counts = Counter(
                tokenizer().encode(normalize_whitespace(text), add_special_tokens=False).ids
            )
            if counts:
                row[:] = _weighted_sum(list(counts), [sqrt(count) for count in counts.values()])
        return rows

    def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
        if not weights:
            return self._embed_one(text)
        text = normalize_whitespace(text)
        by_character = [0.0] * len(text)
        # Where words overlap, the one that weighs most is the last.
        for start, end, weight in sorted(word_spans(text, weights), key=itemgetter(2)):
            by_character[start:end] = [weight] * (end - start)
        # The whole query is read at once, so that each word gets the tokens it has in a sentence.
        encoded = tokenizer().encode(text, add_special_tokens=False)
        by_token = [max(by_character[start:end], default=0.0) for start, end in encoded.offsets]
        largest = max(by_token, default=0.0)
        if not largest:
            return self._embed_one(text)
        return _weighted_sum(encoded.ids, [weight / largest for weight in by_token])

    def _embed_one(self, text: str) -> Vector:
        row: Vector = self.embed([text])[0]
        return row


def normalize_whitespace(text: str) -> str:
    """The text with one space between words: only after a space does a word get its own tokens."""
    text = text[:MAX_CHARS]
    if not text.isascii():
        # In slices: a pile of marks on one letter is sorted in quadratic time.
        slices = (text[at : at + NFKC_CHUNK_CHARS] for at in range(0, len(text), NFKC_CHUNK_CHARS))
        text = "".join(unicodedata.normalize("NFKC", part) for part in slices)
        text = replace_surrogates(text[:MAX_CHARS])
    return " ".join(text.split())


def _weighted_sum(tokens: Sequence[int], factors: Sequence[float]) -> Vector:
    # einsum, not a matrix product: that would wake the threads of BLAS, which cost more than this.
    total: Vector = np.einsum(
        "i,ij->j", np.array(factors, np.float32), _embedding_table()[list(tokens)]
    )
    length = sqrt(float(np.einsum("i,i->", total, total)))
    return total / np.float32(length) if length else total


def _embedding_table() -> Matrix:
    with _lock:
        return _load_table()


@cache
def _load_table() -> Matrix:
    """32,000 × 256 float32: 33 MB, twice the file, for rows that are ready to add."""
    from safetensors.numpy import load_file

    tensors = load_file(bundled_file("weights/l2_supercat_256.safetensors"))
    return tensors["embedding.weight"].astype(np.float32)
