"""Make every vector again with the configured embedder, beside the old ones, then switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reverie.agenda import jobs
from reverie.engine import index
from reverie.engine.index_text import Labels
from reverie.engine.log import list_owners
from reverie.errors import ConfigError, StoreError
from reverie.model import Event, Memory
from reverie.protocols import Owner, Progress, Transaction
from reverie.recall.as_of import item_from_entry, item_text
from reverie.write import embeddings
from reverie.write.runtime import Runtime

EMBED_BATCH = 256


def queue_missing_vectors(runtime: Runtime) -> None:
    """Queue a job for each owner with passages that were written without an embedder."""
    if runtime.embedder is None or runtime.engine.read_only:
        return
    waiting = (
        "SELECT DISTINCT u.space, u.owner FROM unembedded u WHERE NOT EXISTS (SELECT 1 FROM jobs j "
        "WHERE j.space = u.space AND j.owner = u.owner AND j.kind = 'embed')"
    )
    with runtime.engine.read() as tx:
        tx.enter_all_owners()
        owners = tx.all(waiting) if tx.one("SELECT 1 FROM unembedded LIMIT 1") else []
    for owner in (Owner(*row) for row in owners):
        with runtime.engine.write() as tx:
            tx.enter(owner)
            if not jobs.has_job(tx, owner, "embed"):
                now = runtime.clock.now()
                jobs.add(tx, owner, "embed", {}, due_at=now, now=now)


def reembed(runtime: Runtime, progress: Progress | None = None) -> int:
    """Make a new generation of vectors beside the current one, then switch to it.

    Returns the number of passages. A run that was stopped continues with the vectors that are
    missing.
    """
    embedder = runtime.embedder
    if embedder is None:
        raise ConfigError("no embedder is configured: set REVERIE_EMBEDDER, for instance to local")
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        current = embeddings.read(tx)
        begun = embeddings.read(tx, embeddings.NEXT)
        if begun is None or begun.identity != embedder.identity:
            number = max(current.number if current else 0, begun.number if begun else 0) + 1
            begun = embeddings.Generation(number, embedder.identity, None)
            embeddings.write(tx, begun, embeddings.NEXT)
    while True:
        with runtime.engine.read() as tx:
            tx.enter_all_owners()
            ends = {owner: index.statistics(tx, owner) for owner in list_owners(tx)}
            for owner, end in ends.items():
                index.check_statistics(tx, owner, end)
            existing = {owner: set(tx.vector_numbers(owner, begun.number)) for owner in ends}
        total, done = sum(end.next_passage for end in ends.values()), 0
        for owner, end in ends.items():
            for first in range(0, end.next_passage, EMBED_BATCH):
                numbers = range(first, min(first + EMBED_BATCH, end.next_passage))
                missing = set(numbers) - existing[owner]
                begun = _embed_passages(runtime, owner, end.epoch, begun, missing)
                done += len(numbers)
                if progress is not None:
                    progress(done, total)
        if _try_switch(runtime, begun, ends):
            return sum(end.passages for end in ends.values())


def _embed_passages(
    runtime: Runtime, owner: Owner, epoch: int, begun: embeddings.Generation, missing: set[int]
) -> embeddings.Generation:
    assert runtime.embedder is not None
    with runtime.engine.read() as tx:
        tx.enter(owner)
        texts = passage_texts(tx, owner, missing)
    if not texts:
        return begun
    rows = runtime.embedder.embed(list(texts.values()))
    with runtime.engine.write() as tx:
        tx.enter(owner)
        _require_only_run(tx, begun)
        if index.statistics(tx, owner).epoch != epoch:
            return begun
        alive = index.passage_offsets(tx, owner, list(texts))
        for i, passage in enumerate(texts):
            if passage in alive:
                tx.put_vectors(owner, begun.number, passage, rows[i : i + 1])
        if begun.dimensions is None:
            begun = begun._replace(dimensions=rows.shape[1])
            embeddings.write(tx, begun, embeddings.NEXT)
    return begun


def _require_only_run(tx: Transaction, begun: embeddings.Generation) -> None:
    if embeddings.read(tx, embeddings.NEXT) != begun:
        raise StoreError("another 'reverie reembed' has started: wait for it, then run this again")


def _try_switch(
    runtime: Runtime, begun: embeddings.Generation, ends: Mapping[Owner, index.Statistics]
) -> bool:
    """Switch to the new generation in one transaction; a job embeds what was written meanwhile.

    Returns False when a rebuild renumbered passages meanwhile: then their vectors must be made
    again.
    """
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        _require_only_run(tx, begun)
        now = {owner: index.statistics(tx, owner) for owner in list_owners(tx)}
        if any(now[owner].epoch != end.epoch for owner, end in ends.items()):
            return False
        tx.drop_vectors(begun.number)
        embeddings.write(tx, begun)
        tx.run("DELETE FROM meta WHERE key = ?", (embeddings.NEXT,))
        tx.run("DELETE FROM unembedded")
        for owner, statistics in now.items():
            embedded = ends[owner].next_passage if owner in ends else 0
            late = index.passage_offsets(tx, owner, range(embedded, statistics.next_passage))
            if late:
                tx.many(
                    "INSERT INTO unembedded (space, owner, passage) VALUES (?, ?, ?)",
                    [(*owner, passage) for passage in late],
                )
                moment = runtime.clock.now()
                jobs.add_once(tx, owner, "embed", due_at=moment, now=moment)
    return True


def passage_texts(tx: Transaction, owner: Owner, passages: Iterable[int]) -> dict[int, str]:
    """Return the text that the vector of each of these passages is made of, if it still exists."""
    texts: dict[int, str] = {}
    items: dict[int, Memory | Event] = {}
    for passage, (first_position, start, length) in sorted(
        index.passage_offsets(tx, owner, list(passages)).items()
    ):
        if first_position not in items:
            entry = index.find_source_entry(tx, owner, first_position)
            items[first_position] = item_from_entry(entry, None)
        item = items[first_position]
        text = item_text(item)[start : start + length]
        texts[passage] = Labels.of(item).embedded(text) if isinstance(item, Memory) else text
    return texts
