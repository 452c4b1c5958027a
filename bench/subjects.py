"""The stores that are measured, each with the baselines over the same texts beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import reverie
from bench.baselines import Keyword, Product, Raw
from bench.measuring import Row, short, timed
from bench.running import Bench
from bench.texts import Talker, Writer
from reverie.embed.local import LocalEmbedder

if TYPE_CHECKING:
    from reverie.protocols import Matrix

SPACE = "bench"
TURNS = 30
"""In each session of a store of events."""
UNWATCHED = reverie.Settings(learn="off", summary="off")


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    spaces: int = 100
    rounds: int = 9
    recalls: int = 30
    """Queries in a round."""
    writes: int = 320
    """Remembers in a round: enough for each to see checkpoints, and FTS5 its merges."""
    foreign: tuple[int, ...] = (1, 10, 100)
    """Writes of another process before a recall."""
    starts: int = 9
    """Fresh processes of each kind."""
    chunk: int = 1_000
    """Memories in a transaction of the raw bulk insert."""
    million: int = 1_000_000
    peer_rounds: int = 5
    peer_recalls: int = 6
    """Queries of a peer in a round: some take a second each."""
    peer_writes: int = 20
    slow_peer: int = 100_000
    """The largest store of a peer that takes minutes to fill."""


QUICK = Plan(
    (200, 1_000, 5_000),
    spaces=10,
    rounds=3,
    recalls=15,
    writes=10,
    foreign=(1, 10),
    starts=3,
    million=20_000,
    peer_rounds=3,
    peer_recalls=3,
    peer_writes=5,
    slow_peer=1_000,
)


@dataclass
class Subject:
    """One size: our store and the baselines over the same texts. ``path`` stays as it was built."""

    name: str
    size: int
    path: Path
    texts: Sequence[str]
    vectors: Matrix
    store: reverie.Store
    raw: Raw
    keyword: Keyword

    def __post_init__(self) -> None:
        self.product = Product(self.vectors)

    @property
    def space(self) -> reverie.Space:
        return self.store.space(SPACE)

    @contextmanager
    def twin(self, purpose: str) -> Iterator[tuple[reverie.Store, Path]]:
        """A copy to write into."""
        path = copied(self.path, purpose)
        with open_store(path) as store:
            yield store, path
        path.unlink()


@contextmanager
def twins(subjects: Sequence[Subject], purpose: str) -> Iterator[dict[str, reverie.Space]]:
    """Copies of several, each by its name."""
    with ExitStack() as opened:
        yield {
            subject.name: opened.enter_context(subject.twin(purpose))[0].space(SPACE)
            for subject in subjects
        }


def open_store(path: Path) -> reverie.Store:
    return reverie.open(path, settings=UNWATCHED, embedder="local")


def copied(path: Path, purpose: str) -> Path:
    return Path(shutil.copyfile(path, path.with_name(f"{path.stem}-{purpose}.db")))


def memories(bench: Bench, plan: Plan, writer: Writer, size: int) -> Subject:
    """Import sentences, beside their embedding alone and a raw bulk insert of the same."""
    name, meter = short(size), bench.meter
    texts, embedder = writer.sentences(size), LocalEmbedder()

    def embed_into(rows: Matrix, part: Sequence[str]) -> None:
        rows[:] = embedder.embed(part)

    vectors = np.zeros((size, embedder.dimensions), np.float32)
    path, raw = bench.folder / f"{name}.db", Raw(bench.folder / f"{name}-raw.db")
    with open_store(path) as store:
        # Files are read and modules imported here.
        embedder.embed(["anything at all"])
        store.space("another").import_records([{"content": "anything at all"}])
        for at in bench.steps(f"filling {name}", -(-size // plan.chunk)):
            part = slice(at * plan.chunk, (at + 1) * plan.chunk)
            records = [{"content": text} for text in texts[part]]
            took = {
                f"embed each {name}": timed(lambda p: embed_into(vectors[p], texts[p]), [part]),
                f"bulk {name}": timed(lambda p: raw.bulk(texts[p], vectors[p]), [part]),
                f"import {name}": timed(store.space(SPACE).import_records, [records]),
            }
            meter.take_all({name: sample * (1 / len(records)) for name, sample in took.items()})
    raw.close()
    _sizes(bench, name, path, raw.path, size)
    return _opened(bench, name, path, texts, vectors)


def events(bench: Bench, talker: Talker, size: int) -> Subject:
    """The same for sessions of some turns each."""
    name = f"{short(size)} events"
    path, raw = bench.folder / f"{size}-events.db", Raw(bench.folder / f"{size}-events-raw.db")
    conversation = talker.conversation(size)
    texts = [message["content"] for message in conversation]
    vectors = LocalEmbedder().embed(texts)
    raw.bulk(texts, vectors)
    raw.close()
    with open_store(path) as store:
        for at in bench.steps(f"filling {name}", -(-size // TURNS)):
            session = store.space(SPACE).session(f"talk {at}")
            session.append_many(conversation[at * TURNS : (at + 1) * TURNS])
    return _opened(bench, name, path, texts, vectors)


def _opened(bench: Bench, name: str, path: Path, texts: Sequence[str], vectors: Matrix) -> Subject:
    reading = copied(path, "reading")
    store, raw = open_store(reading), Raw(path.with_name(f"{path.stem}-raw.db"))
    keyword = Keyword(reading, SPACE)
    for opened in (store, raw, keyword):
        bench.closing.callback(opened.close)
    return Subject(name, len(texts), path, texts, vectors, store, raw, keyword)


def _sizes(bench: Bench, name: str, path: Path, raw: Path, size: int) -> None:
    ours, base = path.stat().st_size / size, raw.stat().st_size / size
    against = "row + FTS5 + vector"
    bench.meter.rows.append(
        Row("disk", f"a memory at {name}", "B", ours, against=against, baseline=base)
    )
