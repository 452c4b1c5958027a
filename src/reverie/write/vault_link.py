"""The link from a store to its vault: the folder, and the jobs that mirror changes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reverie.agenda import jobs, worker
from reverie.engine.index import unfinished_rebuild
from reverie.engine.log import LogEntry
from reverie.engine.schema import REPLAY_KEY
from reverie.model import Scope
from reverie.protocols import Owner, Transaction
from reverie.write.runtime import Runtime

KEY = "vault"
CREATED_KEY = "vault.made"
# Jobs that mirror an owner run one after the other.
LANE = "vault"
# ``flush`` runs commits that are due within this time at once.
COMMIT_AHEAD_MS = 2_500

# Reads the undamaged entries of a vault's log, given the folder that the store names, if any.
VaultEntries = Callable[[str | None], Iterable[tuple[Scope, LogEntry]]]


def read_path(tx: Transaction) -> str | None:
    """Read the folder of the vault, if there is one; it is cached for the transaction."""
    if KEY not in tx.kept:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (KEY,))
        tx.kept[KEY] = None if row is None else row[0]
    path: str | None = tx.kept[KEY]
    return path


def find_path(runtime: Runtime) -> str | None:
    """Read the folder of the vault in a transaction of its own."""
    with runtime.engine.read() as tx:
        return read_path(tx)


def attach(runtime: Runtime, path: str | None, *, first: bool = False) -> None:
    """Mirror the store to this folder from now on, or with None to no folder.

    Mirroring of all that is stored already is queued. ``first``: do nothing if there is a vault.
    """
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
    """Return a message if a rebuild of this store from a vault was not finished, else None."""
    with runtime.engine.read() as tx:
        return read_partial_replay(tx)


def read_partial_replay(tx: Transaction) -> str | None:
    """Return the same within a transaction of the caller."""
    row = tx.one("SELECT value FROM meta WHERE key = ?", (REPLAY_KEY,))
    return None if row is None else unfinished_rebuild(row[0])


def attach_if_none(runtime: Runtime, path: str) -> None:
    """Mirror a store that has no vault to this folder; leave any other as it is."""
    if find_path(runtime) is None:
        attach(runtime, path, first=True)


def mark_created(runtime: Runtime, path: str) -> None:
    """Record that the folder of the vault was created.

    If it is missing later, for example on a disk that is not mounted, it is not created again.
    """
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        tx.run("DELETE FROM meta WHERE key = ?", (CREATED_KEY,))
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (CREATED_KEY, path))


def is_created(runtime: Runtime, path: str) -> bool:
    """Tell whether this folder was recorded as created."""
    with runtime.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (CREATED_KEY,))
    return row is not None and row[0] == path


def queue_mirror(tx: Transaction, runtime: Runtime, owner: Owner) -> None:
    """Queue the mirroring of an owner, if the store has a vault."""
    if read_path(tx) is not None:
        runtime.changed.add(owner)
        _queue_mirror(tx, runtime, owner)


def _queue_mirror(tx: Transaction, runtime: Runtime, owner: Owner) -> None:
    now = runtime.clock.now()
    jobs.add_once(tx, owner, "mirror", due_at=now, now=now, lane=LANE)


def queue_commit(tx: Transaction, runtime: Runtime, owner: Owner, wait_ms: int) -> None:
    """Queue a git commit of an owner's files; changes within ``wait_ms`` are part of it."""
    now = runtime.clock.now()
    jobs.add_once(tx, owner, "commit", due_at=now + wait_ms, now=now, lane=None)


def queue_summary_mirror(tx: Transaction, runtime: Runtime, owner: Owner, session: str) -> None:
    """Queue the mirroring of a session's summary, which is not in the log."""
    if read_path(tx) is not None:
        runtime.changed.add(owner)
        now = runtime.clock.now()
        payload = {"summary": session}
        jobs.add(tx, owner, "mirror", payload, due_at=now, now=now, lane=LANE)


def flush(runtime: Runtime) -> str | None:
    """Mirror and commit what this process changed; return why that failed, else None.

    Jobs that another worker has claimed are left to it.
    """
    owners = [runtime.changed.pop() for _ in range(len(runtime.changed))]
    for kind in ("mirror", "commit"):
        for owner in owners:
            failure = worker.run_owner_jobs(runtime, owner, (kind,), ahead_ms=COMMIT_AHEAD_MS)
            if failure is not None:
                return failure
    return None
