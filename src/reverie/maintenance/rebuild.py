"""Make the index and the vectors of a store again from its log."""

from __future__ import annotations

from dataclasses import replace

from reverie.engine import index
from reverie.engine.schema import MIGRATION_KEY
from reverie.errors import StoreError, StoreReadOnly
from reverie.maintenance import damage, reindex
from reverie.protocols import Progress, Transaction
from reverie.write import embeddings
from reverie.write.runtime import Runtime


def refresh_index(runtime: Runtime, progress: Progress | None = None) -> None:
    """Rebuild the index if it was made by other rules, such as another text analyser.

    Queries are analysed by the current rules and would not match the stored terms.
    """
    if _index_version(runtime) == index.INDEX_VERSION:
        return
    if runtime.engine.read_only:
        raise StoreReadOnly("the index of the store needs an upgrade: open it without mode=ro")
    with runtime.engine.exclusive():
        # Another process may have done it while this one waited.
        found = _index_version(runtime)
        if found == index.INDEX_VERSION:
            return
        if found is not None:
            if found != index.REBUILDING:
                # Before anything changes: the earlier version can still use a damaged store.
                damage.require_undamaged(runtime, "an upgrade of the index")
                runtime.engine.backup_before_rebuild()
                reindex.set_index_version(runtime, index.REBUILDING)
            rebuild(_without_foreign_embedder(runtime), progress)
        reindex.set_index_version(runtime, index.INDEX_VERSION)


def _index_version(runtime: Runtime) -> str | None:
    """Read by which rules the index was made; None for a store without an index."""
    with runtime.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = 'index'")
    return None if row is None else str(row[0])


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
