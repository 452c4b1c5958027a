"""Make the index and the vectors of a store again from its log."""

from __future__ import annotations

import logging
from dataclasses import replace

from reverie.engine import index
from reverie.engine.schema import MIGRATION_KEY
from reverie.errors import StoreError
from reverie.maintenance import damage, reindex
from reverie.protocols import Progress, Transaction
from reverie.write import embeddings
from reverie.write.runtime import Runtime

_log = logging.getLogger("reverie.index")


def refresh_index(runtime: Runtime, progress: Progress | None = None) -> None:
    """Rebuild the index if it was made by other rules, such as another text analyser.

    Queries are analysed by the current rules and would not match the stored terms. The progress is
    logged as well, at every tenth of the work.
    """
    with runtime.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = 'index'")
    if row is not None and row[0] == index.INDEX_VERSION:
        return
    if row is not None:
        # No version of Reverie accepts this value, so none writes until the rebuild is done; if it
        # is killed, the next open starts it again.
        reindex.set_index_version(runtime, "being made anew")
        _log.info("the index of %s was made by other rules: making it again", runtime.engine.url)
        rebuild(_without_foreign_embedder(runtime), _logged(progress))
    reindex.set_index_version(runtime, index.INDEX_VERSION)


def _logged(progress: Progress | None) -> Progress:
    """Return a function that passes progress on, and logs it at every tenth of the work."""

    def advance(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total)
        if done * 10 // max(total, 1) > (done - 1) * 10 // max(total, 1):
            _log.info("indexed %d of %d memories and events", done, total)

    return advance


def _without_foreign_embedder(runtime: Runtime) -> Runtime:
    """Return a runtime without an embedder if another model made the store's vectors.

    The rebuild then leaves the vectors to a later reembed instead of failing.
    """
    with runtime.engine.read() as tx:
        generation = embeddings.read(tx)
    embedder = runtime.embedder
    if embedder is None or generation is None or generation.identity == embedder.identity:
        return runtime
    return replace(runtime, embedder=None)


def require_migrated(tx: Transaction, where: str) -> None:
    """Raise StoreError when a migration into this store was not finished."""
    if tx.one("SELECT 1 FROM meta WHERE key = ?", (MIGRATION_KEY,)) is not None:
        raise StoreError(
            f"a migration into {where} was not finished: run 'reverie migrate' again, to the end"
        )


def rebuild(runtime: Runtime, progress: Progress | None = None) -> int:
    """Make index and vectors from the log, one owner at a time, each in one transaction.

    Returns the number of memories and events. A damaged log is refused: the index would match the
    damaged log, and the difference that shows the damage would be gone.
    """
    damage.require_undamaged(runtime, "a rebuild")
    if runtime.engine.check() and isinstance(runtime.engine.describe().get("file"), str):
        # It takes time to load, and few files have broken pages.
        from reverie.maintenance import salvage

        return salvage.rebuild_file(runtime, progress)
    return reindex.reindex(runtime, progress)
