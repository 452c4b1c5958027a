"""The vault that a store is mirrored to: where it is, and that it hears of every change."""

from __future__ import annotations

from reverie.agenda import jobs
from reverie.engine.index import unfinished_rebuild
from reverie.engine.schema import REPLAY_KEY
from reverie.protocols import Owner, Transaction
from reverie.write.runtime import Runtime

KEY = "vault"
CREATED_KEY = "vault.made"
# Who mirrors an owner and who commits it follow each other.
LANE = "vault"
# A commit waits no longer than this for what may follow.
COMMIT_AHEAD_MS = 2_500


def read_path(tx: Transaction) -> str | None:
    """The folder of the vault, if there is one. Writers read it with the rules of the index."""
    if KEY not in tx.kept:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (KEY,))
        tx.kept[KEY] = None if row is None else row[0]
    path: str | None = tx.kept[KEY]
    return path


def find_path(runtime: Runtime) -> str | None:
    with runtime.engine.read() as tx:
        return read_path(tx)


def attach(runtime: Runtime, path: str | None, *, first: bool = False) -> None:
    """Mirror the store to this folder from now on, or to none; what is there already goes first."""
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        known = read_path(tx)
        if known == path or (first and known is not None):
            return
        tx.run("DELETE FROM meta WHERE key = ?", (KEY,))
        if path is None:
            return
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (KEY, path))
        tx.kept[KEY] = path
        for row in tx.all("SELECT space, owner FROM owners ORDER BY space, owner"):
            _queue_mirror(tx, runtime, Owner(*row))


def partial_replay_problem(runtime: Runtime) -> str | None:
    """That the store knows only a part of what a vault's log says, if so, and the way out."""
    with runtime.engine.read() as tx:
        return read_partial_replay(tx)


def read_partial_replay(tx: Transaction) -> str | None:
    row = tx.one("SELECT value FROM meta WHERE key = ?", (REPLAY_KEY,))
    return None if row is None else unfinished_rebuild(row[0])


def attach_if_none(runtime: Runtime, path: str) -> None:
    """The same for a store that has none yet; another keeps the one it has."""
    if find_path(runtime) is None:
        attach(runtime, path, first=True)


def mark_created(runtime: Runtime, path: str) -> None:
    """The folder is there: from now on it may be away, but is not made again by itself."""
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        tx.run("DELETE FROM meta WHERE key = ?", (CREATED_KEY,))
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (CREATED_KEY, path))


def is_created(runtime: Runtime, path: str) -> bool:
    with runtime.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (CREATED_KEY,))
    return row is not None and row[0] == path


def queue_mirror(tx: Transaction, runtime: Runtime, owner: Owner) -> None:
    """See that the vault will show what this transaction changes."""
    if read_path(tx) is not None:
        runtime.changed.add(owner)
        _queue_mirror(tx, runtime, owner)


def _queue_mirror(tx: Transaction, runtime: Runtime, owner: Owner) -> None:
    now = runtime.clock.now()
    jobs.add_once(tx, owner, "mirror", due_at=now, now=now, lane=LANE)


def queue_commit(tx: Transaction, runtime: Runtime, owner: Owner, wait_ms: int) -> None:
    """See that git will hold what the vault shows. What follows soon goes along."""
    now = runtime.clock.now()
    jobs.add_once(tx, owner, "commit", due_at=now + wait_ms, now=now, lane=None)


def queue_summary_mirror(tx: Transaction, runtime: Runtime, owner: Owner, session: str) -> None:
    """The same for a summary, of which the log knows nothing."""
    if read_path(tx) is not None:
        runtime.changed.add(owner)
        now = runtime.clock.now()
        payload = {"summary": session}
        jobs.add(tx, owner, "mirror", payload, due_at=now, now=now, lane=LANE)


def flush(runtime: Runtime) -> str | None:
    """Let the vault show what this process changed, and git hold it; why that failed.

    What another worker is at is left to it.
    """
    from reverie.agenda import worker

    owners = [runtime.changed.pop() for _ in range(len(runtime.changed))]
    for kind in ("mirror", "commit"):
        for owner in owners:
            failure = worker.run_owner_jobs(runtime, owner, (kind,), ahead_ms=COMMIT_AHEAD_MS)
            if failure is not None:
                return failure
    return None
