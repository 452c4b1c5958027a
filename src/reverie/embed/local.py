"""The default embedder: the static token vectors of wordllama, read directly from its files."""

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
from reverie.embed.tokens import bundled_file, tokenizer
from reverie.text.normalize import replace_surrogates

if TYPE_CHECKING:
    from reverie.protocols import Matrix, Vector

MAX_CHARS = 20_000
"""The part of a text that is embedded; longer text is split into passages before."""
NFKC_CHUNK_CHARS = 500

_lock = Lock()


class LocalEmbedder:
    """Embeds a text as the sum of its tokens' vectors, each times the root of its frequency."""

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
        # Sorted by weight: where words overlap, the highest weight is written last.
        for start, end, weight in sorted(word_spans(text, weights), key=itemgetter(2)):
            by_character[start:end] = [weight] * (end - start)
        # Tokenize the whole query at once, so that each word gets the tokens it has in a sentence.
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
    """Put one space between words: a word has its usual tokens only after a space."""
    text = text[:MAX_CHARS]
    if not text.isascii():
        # In slices, because many combining marks on one letter are sorted in quadratic time.
        slices = (text[at : at + NFKC_CHUNK_CHARS] for at in range(0, len(text), NFKC_CHUNK_CHARS))
        text = "".join(unicodedata.normalize("NFKC", part) for part in slices)
        text = replace_surrogates(text[:MAX_CHARS])
    return " ".join(text.split())


def _weighted_sum(tokens: Sequence[int], factors: Sequence[float]) -> Vector:
    # einsum, not a matrix product, which would start BLAS threads that cost more than this.
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
    """Load the token vectors as 32,000 × 256 float32: 33 MB, twice the file, but fast to add."""
    from safetensors.numpy import load_file

    tensors = load_file(bundled_file("weights/l2_supercat_256.safetensors"))
    return tensors["embedding.weight"].astype(np.float32)
