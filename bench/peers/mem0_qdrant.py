"""mem0 with a local qdrant: texts as they are (``infer=False``), no model called, no telemetry."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.serving import Peer, embed, serve

if TYPE_CHECKING:
    from reverie.protocols import Matrix

os.environ["MEM0_TELEMETRY"] = "False"  # it is read when mem0 is imported

from mem0 import Memory  # type: ignore[import-not-found]

USER = "bench"
UNUSED = {"provider": "openai", "config": {"api_key": "unused"}}
"""mem0 makes a client for each model when it is opened; none is ever called here."""


class Embedder:
    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return embed([text])[0]

    def embed_batch(
        self, texts: Sequence[str], memory_action: str | None = None
    ) -> list[list[float]]:
        return embed(texts)


class Store:
    def __init__(self, folder: Path) -> None:
        place = {
            "path": str(folder / "qdrant"),
            "on_disk": True,
            "embedding_model_dims": 256,
            "collection_name": "bench",
        }
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": place},
                "history_db_path": str(folder / "history.db"),
                "llm": UNUSED,
                "embedder": UNUSED,
            }
        )
        self._memory.embedding_model = Embedder()

    def fill(self, texts: Sequence[str], vectors: Matrix) -> None:
        """Into its vector store, as its own ``add`` writes it; the history is left out."""
        now = datetime.now(UTC).isoformat()
        self._memory.vector_store.insert(
            vectors=vectors.tolist(),
            ids=[str(uuid.uuid4()) for _ in texts],
            payloads=[
                {
                    "user_id": USER,
                    "role": "user",
                    "data": text,
                    "hash": hashlib.md5(text.encode()).hexdigest(),
                    "created_at": now,
                    "updated_at": now,
                    "text_lemmatized": text.lower(),
                }
                for text in texts
            ],
        )

    def add(self, text: str) -> None:
        self._memory.add(text, user_id=USER, infer=False)

    def search(self, query: str) -> list[str]:
        found = self._memory.search(query, filters={"user_id": USER}, top_k=5)
        return [item["memory"] for item in found["results"]]


def opened(folder: Path) -> Peer:
    return Store(folder)


if __name__ == "__main__":
    serve(opened)
