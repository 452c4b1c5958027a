"""The far end: one peer in a process of its own, which does what the lines it reads ask for.

It runs on the peer's Python. A line is a JSON object with ``do`` and a ``store``'s name; so is each
answer. The CPU time of an answer is that of the calls alone, of all threads and ended children.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from reverie.protocols import Matrix

BATCH = 500


class Peer(Protocol):
    """One store of a peer."""

    def fill(self, texts: Sequence[str], vectors: Matrix) -> None:
        """Take these in, many at a time, with vectors that are made already."""
        ...

    def add(self, text: str) -> None:
        """Keep one text, as its documentation says, its embedding included."""
        ...

    def search(self, query: str) -> list[str]:
        """The five best texts, the embedding of the query included."""
        ...


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Reverie's own embedder: every peer is given this one."""
    from reverie.embed.local import LocalEmbedder

    made: list[list[float]] = LocalEmbedder().embed(list(texts)).tolist()
    return made


def serve(open_peer: Callable[[Path], Peer]) -> None:
    """Answer until there is nothing more to read. What the peer prints goes to the error output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stores: dict[str, Peer] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "fill":
            peer = stores[asked["store"]] = open_peer(Path(asked["folder"]))
            _fill(peer, asked)
            answer: dict[str, Any] = {}
        else:
            answer = _measured(stores[asked["store"]], asked)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _fill(peer: Peer, asked: dict[str, Any]) -> None:
    import numpy as np

    texts: list[str] = json.loads(Path(asked["texts"]).read_text(encoding="utf-8"))
    vectors = np.load(asked["vectors"])
    for at in range(0, len(texts), BATCH):
        peer.fill(texts[at : at + BATCH], vectors[at : at + BATCH])
    embed(["anything at all"])  # its files are read here


def _measured(peer: Peer, asked: dict[str, Any]) -> dict[str, Any]:
    call: Callable[[str], Any] = peer.add if asked["do"] == "add" else peer.search
    found, used = [], 0.0
    for text in asked["texts"]:
        start = _cpu()
        result = call(text)
        used += _cpu() - start
        found.append(result)
    return {"cpu": used / len(found), "found": found}


def _cpu() -> float:
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system
