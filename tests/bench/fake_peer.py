"""A peer that keeps texts in a list, for the driver's tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.serving import Peer, serve

if TYPE_CHECKING:
    from reverie.protocols import Matrix


class ListOfTexts:
    def __init__(self) -> None:
        self._texts: list[str] = []

    def fill(self, texts: Sequence[str], vectors: Matrix) -> None:
        assert vectors.shape == (len(texts), 256)
        self._texts += texts

    def add(self, text: str) -> None:
        print("what a peer prints is no answer")
        self._texts.append(text)

    def search(self, query: str) -> list[str]:
        if query == "fail":
            raise RuntimeError("it cannot be searched")
        return [text for text in self._texts if query in text][:5]


def opened(folder: Path) -> Peer:
    assert folder.is_dir()
    return ListOfTexts()


if __name__ == "__main__":
    serve(opened)
