"""Make the index and the vectors of every owner from its log."""

from __future__ import annotations

from reverie.engine import log
from reverie.engine.log import list_owners
from reverie.engine.schema import DERIVED_TABLES
from reverie.protocols import Owner, Progress, Transaction
from reverie.write import session_projection
from reverie.write.runtime import Runtime
from reverie.write.writer import system_writer


def reindex(runtime: Runtime, progress: Progress | None = None) -> int:
    """Make index and vectors from the log, one owner at a time, each in one transaction.

    Returns the number of memories and events. The caller has checked that the log is undamaged.
    """
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


def set_index_version(runtime: Runtime, version: str) -> None:
    """Record which version of the text analyser makes the index."""
    with runtime.engine.write() as tx:
        # Waits for writers that still use another version.
        tx.enter_all_owners()
        tx.run(
            "INSERT INTO meta (key, value) VALUES ('index', ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (version,),
        )


def _delete_orphans(runtime: Runtime) -> None:
    """Delete rows of the index whose owner does not exist."""
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        owners = set(list_owners(tx))
        for name in (*DERIVED_TABLES, "statistics", "vectors"):
            for row in tx.all(f"SELECT DISTINCT space, owner FROM {name}"):
                if row not in owners:
                    tx.run(f"DELETE FROM {name} WHERE space = ? AND owner = ?", row)


def _count(tx: Transaction, table: str, owner: Owner) -> int:
    row = tx.one(f"SELECT COUNT(*) FROM {table} WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else row[0]
