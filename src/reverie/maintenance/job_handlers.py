"""Handlers of the jobs about memories: missing vectors, expiry, old recall notes, erasure."""

from __future__ import annotations

from dataclasses import replace

from reverie.agenda.jobs import Claim
from reverie.engine import index
from reverie.errors import ConfigError, StoreBusy
from reverie.maintenance import reembed
from reverie.model import Memory
from reverie.write import embeddings
from reverie.write.recall_log import DAY_MS
from reverie.write.runtime import Runtime
from reverie.write.writer import WriteStamp, system_writer


def fill_vectors(runtime: Runtime, claim: Claim) -> None:
    """Make a batch of missing vectors; the embedder runs while the store is not locked."""
    embedder, owner = runtime.embedder, claim.owner
    if embedder is None:
        raise ConfigError("vectors are waiting but no embedder is configured: set REVERIE_EMBEDDER")
    with runtime.engine.read() as tx:
        tx.enter(owner)
        embeddings.require(tx, embedder)
        waiting = [
            row[0]
            for row in tx.all(
                "SELECT passage FROM unembedded WHERE space = ? AND owner = ? "
                f"ORDER BY passage LIMIT {reembed.EMBED_BATCH}",
                owner,
            )
        ]
        texts = reembed.passage_texts(tx, owner, waiting)
        epoch = index.statistics(tx, owner).epoch
    rows = embedder.embed(list(texts.values())) if texts else None
    with runtime.engine.write() as tx:
        tx.enter(owner)
        now = runtime.clock.now()
        if index.statistics(tx, owner).epoch != epoch:
            # The passages were renumbered meanwhile, so these texts belong to other numbers.
            claim.reschedule(tx, now)
            return
        for i, passage in enumerate(texts):
            assert rows is not None
            still = tx.run(
                "DELETE FROM unembedded WHERE space = ? AND owner = ? AND passage = ?",
                (*owner, passage),
            )
            if still:
                generation = embeddings.ensure(tx, embedder, rows.shape[1])
                tx.put_vectors(owner, generation.number, passage, rows[i : i + 1])
                index.mark_vectors_changed(tx, owner, [passage])
        if tx.one("SELECT 1 FROM unembedded WHERE space = ? AND owner = ? LIMIT 1", owner):
            claim.reschedule(tx, now)
        else:
            claim.finish(tx)


def forget_expired(runtime: Runtime, claim: Claim) -> None:
    """Forget a memory that has expired; reschedule the job if it expires later now."""
    owner, now = claim.owner, runtime.clock.now()
    with runtime.engine.write() as tx:
        tx.enter(owner)
        place = index.find(tx, owner, claim.payload["memory"])
        if place is not None and (place.expires_at or 0) > now:
            claim.reschedule(tx, place.expires_at or 0)
            return
        if place is not None:
            system_writer(tx, runtime, owner).change_memory(
                place,
                "forget",
                WriteStamp(reason="it expired"),
                lambda old, at: replace(old, forgotten_at=at) if _is_expired(old, now) else None,
            )
        claim.finish(tx)


def _is_expired(memory: Memory, now: int) -> bool:
    return memory.forgotten_at is None and memory.is_expired(now)


def prune_recalls(runtime: Runtime, claim: Claim) -> None:
    """Delete recall notes older than ``recall_days``; run again tomorrow while any are left."""
    owner, now = claim.owner, runtime.clock.now()
    with runtime.engine.write() as tx:
        tx.enter(owner)
        tx.run(
            "DELETE FROM recalls WHERE space = ? AND owner = ? AND at < ?",
            (*owner, now - runtime.settings.recall_days * DAY_MS),
        )
        if tx.one("SELECT 1 FROM recalls WHERE space = ? AND owner = ? LIMIT 1", owner):
            claim.reschedule(tx, now + DAY_MS)
        else:
            claim.finish(tx)


def finish_erasure(runtime: Runtime, claim: Claim) -> None:
    """Finish an erase: overwrite old pages that another process was still reading then."""
    if not runtime.engine.scrub():
        raise StoreBusy("another process is still reading old pages, or the disk is full")
    with runtime.engine.write() as tx:
        tx.enter(claim.owner)
        claim.finish(tx)
