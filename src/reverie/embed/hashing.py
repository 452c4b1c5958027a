"""A deterministic embedder for tests, without a model: similar spelling, similar vectors."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from reverie.embed.pooling import normalize_rows, word_spans
from reverie.errors import ConfigError
from reverie.text.analyzer import tokenize
from reverie.text.normalize import nfkc_casefold

if TYPE_CHECKING:
    from reverie.protocols import Matrix, Vector


class HashingEmbedder:
    """Hashes each word and each of its letter trigrams into a signed dimension.

    It knows spelling, not meaning: "colour" is near "colours", never near "hue".
    """

    remote = False

    def __init__(self, dimensions: int = 64) -> None:
        if dimensions < 1:
            raise ConfigError(f"dimensions must be 1 or more, not {dimensions}")
        self.dimensions = dimensions
        self.identity = f"hashing:{dimensions}"

    def __repr__(self) -> str:
        return f"HashingEmbedder({self.dimensions})"

    def embed(self, texts: Sequence[str]) -> Matrix:
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = self._weighted_sum((word, 1.0) for word in tokenize(nfkc_casefold(text)))
        return rows

    def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
        text = unicodedata.normalize("NFKC", text)
        weighted = [
            (nfkc_casefold(text[s:e]), weight) for s, e, weight in word_spans(text, weights or {})
        ]
        if weighted:
            return self._weighted_sum(weighted)
        row: Vector = self.embed([text])[0]
        return row

    def _weighted_sum(self, weighted: Iterable[tuple[str, float]]) -> Vector:
        total = np.zeros(self.dimensions)
        for word, weight in weighted:
            for feature in _features(word):
                number = int.from_bytes(
                    blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest(), "big"
                )
                total[(number >> 1) % self.dimensions] += weight if number & 1 else -weight
        return normalize_rows(total)


def _features(word: str) -> Iterator[str]:
    yield f"word {word}"
    framed = f"^{word}$"
    for start in range(len(framed) - 2):
        yield framed[start : start + 3]
