"""Make the index and the vectors of a store again from its log."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from reverie.engine import index, log
from reverie.engine.log import list_owners
from reverie.engine.schema import DERIVED_TABLES, MIGRATION_KEY
from reverie.errors import StoreError
from reverie.maintenance import damage
from reverie.protocols import Owner, Progress, Transaction
from reverie.write import embeddings, session_projection
from reverie.write.runtime import Runtime
from reverie.write.writer import system_writer


def refresh_index(runtime: Runtime) -> None:
    """Rebuild the index if another version of the text analyser made it.

    Queries are analysed by the current version and would not match the stored terms.
    """
    with runtime.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = 'index'")
    if row is not None and row[0] == index.INDEX_VERSION:
        return
    if row is not None:
        # No version of Reverie accepts this value, so none writes until the rebuild is done; if it
        # is killed, the next open starts it again.
        _set_index_version(runtime, "being made anew")
        rebuild(_without_foreign_embedder(runtime))
    _set_index_version(runtime, index.INDEX_VERSION)


def _set_index_version(runtime: Runtime, rules: str) -> None:
    with runtime.engine.write() as tx:
        # Waits for writers that still use another version.
        tx.enter_all_owners()
        tx.run(
            "INSERT INTO meta (key, value) VALUES ('index', ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (rules,),
        )


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
        return _rebuild_file(runtime, progress)
    with runtime.engine.read() as tx:
        tx.enter_all_owners()
        owners = list_owners(tx)
        total = sum(_count(tx, name, owner) for owner in owners for name in ("memories", "events"))
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    _delete_orphans(runtime)
    for owner in owners:
        with runtime.engine.write() as tx:
            tx.enter(owner)
            for name in (*DERIVED_TABLES, "vectors"):
                tx.run(f"DELETE FROM {name} WHERE space = ? AND owner = ?", owner)
            tx.run(
                "INSERT INTO statistics (space, owner, epoch, next_passage, passages, touches, "
                "facts, notes, private) VALUES (?, ?, ?, 0, 0, 0, 0, 0, 0) "
                "ON CONFLICT (space, owner) DO UPDATE SET epoch = statistics.epoch + 1, "
                "next_passage = 0, passages = 0, touches = 0, facts = 0, notes = 0, private = 0",
                (*owner, runtime.clock.now()),
            )
            w = system_writer(tx, runtime, owner)
            for first_position, entry in log.states_at(tx, owner, log.last_position(tx, owner)):
                document = (entry.body or {}).get("document")
                w.index_memory(first_position, entry.position, entry.state(None), document=document)
                advance()
            session_projection.rebuild(w, advance)
    return done


def _delete_orphans(runtime: Runtime) -> None:
    """Delete rows of the index whose owner does not exist."""
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        owners = set(list_owners(tx))
        for name in (*DERIVED_TABLES, "statistics", "vectors"):
            for row in tx.all(f"SELECT DISTINCT space, owner FROM {name}"):
                if row not in owners:
                    tx.run(f"DELETE FROM {name} WHERE space = ? AND owner = ?", row)


def _rebuild_file(runtime: Runtime, progress: Progress | None) -> int:
    """Replace a store file that has broken pages by a new file with the same log.

    The usual rebuild would fail, since rows on an unreadable page cannot be deleted.
    """
    from reverie.maintenance import salvage

    engine = runtime.engine
    file = Path(engine.describe()["file"])
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder, engine.exclusive():
        made = Path(folder) / "made.db"
        report = salvage.salvage(
            lambda new: replace(runtime, engine=new), str(file), made, progress, require_all=True
        )
        engine.restore(made)
    return report.entries


def _count(tx: Transaction, table: str, owner: Owner) -> int:
    row = tx.one(f"SELECT COUNT(*) FROM {table} WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else row[0]
