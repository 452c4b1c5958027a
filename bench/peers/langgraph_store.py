"""LangGraph's ``SqliteStore`` with a vector index, opened as its documentation opens it."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from langgraph.store.base import PutOp  # type: ignore[import-not-found]
from langgraph.store.sqlite import SqliteStore  # type: ignore[import-not-found]

from bench.peers.serving import Peer, embed, serve

if TYPE_CHECKING:
    from reverie.protocols import Matrix

NAMESPACE = ("bench",)


class Store:
    def __init__(self, folder: Path) -> None:
        self._ready: dict[str, list[float]] = {}
        connection = sqlite3.connect(
            folder / "store.db", check_same_thread=False, isolation_level=None
        )
        # Its documentation says "fields", its code reads "text_fields".
        index = {"dims": 256, "embed": self._embed, "text_fields": ["text"]}
        self._store = SqliteStore(connection, index=index)
        self._store.setup()

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self._ready:
            return [self._ready[text] for text in texts]
        return embed(texts)

    def fill(self, texts: Sequence[str], vectors: Matrix) -> None:
        self._ready = dict(zip(texts, vectors.tolist(), strict=True))
        self._store.batch([PutOp(NAMESPACE, str(uuid.uuid4()), {"text": t}) for t in texts])
        self._ready = {}

    def add(self, text: str) -> None:
        self._store.put(NAMESPACE, str(uuid.uuid4()), {"text": text})

    def search(self, query: str) -> list[str]:
        return [item.value["text"] for item in self._store.search(NAMESPACE, query=query, limit=5)]


def opened(folder: Path) -> Peer:
    return Store(folder)


if __name__ == "__main__":
    serve(opened)
