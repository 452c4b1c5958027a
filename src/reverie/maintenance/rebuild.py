"""Rebuild: make the index and the vectors again from the log."""

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
from reverie.write import embeddings, session_projection, writer
from reverie.write.runtime import Runtime


def refresh_index(runtime: Runtime) -> None:
    """Make the index anew when it was made by another analyser: no search could trust it."""
    with runtime.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = 'index'")
    if row is not None and row[0] == index.INDEX_VERSION:
        return
    if row is not None:
        # Until it is done no version of Reverie may write; killed meanwhile, it is done again.
        _set_index_version(runtime, "being made anew")
        rebuild(_without_foreign_embedder(runtime))
    _set_index_version(runtime, index.INDEX_VERSION)


def _set_index_version(runtime: Runtime, rules: str) -> None:
    with runtime.engine.write() as tx:
        # Who writes by other rules is waited for.
        tx.enter_all_owners()
        tx.run(
            "INSERT INTO meta (key, value) VALUES ('index', ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (rules,),
        )


def _without_foreign_embedder(runtime: Runtime) -> Runtime:
    """Where another model made the vectors, they wait for a reembed instead of stopping it."""
    with runtime.engine.read() as tx:
        generation = embeddings.read(tx)
    embedder = runtime.embedder
    if embedder is None or generation is None or generation.identity == embedder.identity:
        return runtime
    return replace(runtime, embedder=None)


def require_migrated(tx: Transaction, where: str) -> None:
    """A store that was only half copied is no store yet."""
    if tx.one("SELECT 1 FROM meta WHERE key = ?", (MIGRATION_KEY,)) is not None:
        raise StoreError(
            f"a migration into {where} was not finished: run 'reverie migrate' again, to the end"
        )


def rebuild(runtime: Runtime, progress: Progress | None = None) -> int:
    """Index and vectors from the log, a space at a time, each in one transaction.

    Not from a damaged log: the index would fit the damage, and nothing would tell of it any more.
    """
    damage.require_undamaged(runtime, "a rebuild")
    if runtime.engine.check() and isinstance(runtime.engine.describe().get("file"), str):
        return _rebuild_file(runtime, progress)
    with runtime.engine.read() as tx:
        tx.enter_all_owners()
        owners = list_owners(tx)
        whole = sum(_count(tx, name, owner) for owner in owners for name in ("memories", "events"))
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, whole)

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
            for first_position, entry in log.states_at(tx, owner, log.last_position(tx, owner)):
                state = entry.state(None)
                text = writer.prepare_stored(tx, runtime, state)
                first = index.add_memory(
                    tx, owner, first_position, entry.position, state, text.passages
                )
                if state.forgotten_at is None:
                    writer.put_vectors(tx, runtime, owner, first, text)
                document = (entry.body or {}).get("document")
                if document is not None and state.source is not None:
                    writer.put_document(tx, owner, state.source, first_position, document)
                advance()
            session_projection.rebuild(tx, runtime, owner, advance)
    return done


def _delete_orphans(runtime: Runtime) -> None:
    """Take away rows of the index that belong to nobody there is."""
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        known = set(list_owners(tx))
        for name in (*DERIVED_TABLES, "statistics", "vectors"):
            for row in tx.all(f"SELECT DISTINCT space, owner FROM {name}"):
                if row not in known:
                    tx.run(f"DELETE FROM {name} WHERE space = ? AND owner = ?", row)


def _rebuild_file(runtime: Runtime, progress: Progress | None) -> int:
    """Put a store that is made anew of the same rows in the place of one with broken pages.

    Rows cannot be deleted from a page that cannot be read.
    """
    from reverie.maintenance import salvage

    engine = runtime.engine
    file = Path(engine.describe()["file"])
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder, engine.exclusive():
        made = Path(folder) / "made.db"
        report = salvage.salvage(
            lambda new: replace(runtime, engine=new), str(file), made, progress, whole=True
        )
        engine.restore(made)
    return report.entries


def _count(tx: Transaction, table: str, owner: Owner) -> int:
    row = tx.one(f"SELECT COUNT(*) FROM {table} WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else row[0]
