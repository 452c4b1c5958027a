"""The vault that a store is mirrored to: where it is, and that it hears of every change."""

from __future__ import annotations

from reverie.agenda import jobs
from reverie.engine.index import half_told
from reverie.engine.schema import UNTOLD
from reverie.protocols import Owner, Transaction
from reverie.write.runtime import Resources

KEY = "vault"
MADE = "vault.made"
# Who mirrors an owner and who commits it follow each other.
LANE = "vault"
# A commit waits no longer than this for what may follow.
SOON_MS = 2_500


def path_in(tx: Transaction) -> str | None:
    """The folder of the vault, if there is one. Writers read it with the rules of the index."""
    if KEY not in tx.kept:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (KEY,))
        tx.kept[KEY] = None if row is None else row[0]
    path: str | None = tx.kept[KEY]
    return path


def path_of(resources: Resources) -> str | None:
    with resources.engine.read() as tx:
        return path_in(tx)


def attach(resources: Resources, path: str | None, *, first: bool = False) -> None:
    """Mirror the store to this folder from now on, or to none; what is there already goes first."""
    with resources.engine.write() as tx:
        tx.oversee()
        known = path_in(tx)
        if known == path or (first and known is not None):
            return
        tx.run("DELETE FROM meta WHERE key = ?", (KEY,))
        if path is None:
            return
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (KEY, path))
        tx.kept[KEY] = path
        for row in tx.all("SELECT space, owner FROM owners ORDER BY space, owner"):
            _await(tx, resources, Owner(*row))


def untold(resources: Resources) -> str | None:
    """That the store knows only a part of what a vault's log says, if so, and the way out."""
    with resources.engine.read() as tx:
        return untold_in(tx)


def untold_in(tx: Transaction) -> str | None:
    row = tx.one("SELECT value FROM meta WHERE key = ?", (UNTOLD,))
    return None if row is None else half_told(row[0])


def attach_first(resources: Resources, path: str) -> None:
    """The same for a store that has none yet; another keeps the one it has."""
    if path_of(resources) is None:
        attach(resources, path, first=True)


def note_made(resources: Resources, path: str) -> None:
    """The folder is there: from now on it may be away, but is not made again by itself."""
    with resources.engine.write() as tx:
        tx.oversee()
        tx.run("DELETE FROM meta WHERE key = ?", (MADE,))
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (MADE, path))


def was_made(resources: Resources, path: str) -> bool:
    with resources.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (MADE,))
    return row is not None and row[0] == path


def await_mirror(tx: Transaction, resources: Resources, owner: Owner) -> None:
    """See that the vault will show what this transaction changes."""
    if path_in(tx) is not None:
        resources.changed.add(owner)
        _await(tx, resources, owner)


def _await(tx: Transaction, resources: Resources, owner: Owner) -> None:
    now = resources.clock.now()
    jobs.add_once(tx, owner, "mirror", due_at=now, now=now, lane=LANE)


def await_commit(tx: Transaction, resources: Resources, owner: Owner, wait_ms: int) -> None:
    """See that git will hold what the vault shows. What follows soon goes along."""
    now = resources.clock.now()
    jobs.add_once(tx, owner, "commit", due_at=now + wait_ms, now=now, lane=None)


def await_summary(tx: Transaction, resources: Resources, owner: Owner, session: str) -> None:
    """The same for a summary, of which the log knows nothing."""
    if path_in(tx) is not None:
        resources.changed.add(owner)
        now = resources.clock.now()
        payload = {"summary": session}
        jobs.add(tx, owner, "mirror", payload, due_at=now, now=now, lane=LANE)


def show(resources: Resources) -> str | None:
    """Let the vault show what this process changed, and git hold it; why that failed.

    What another worker is at is left to it.
    """
    from reverie.agenda import worker

    owners = [resources.changed.pop() for _ in range(len(resources.changed))]
    for kind in ("mirror", "commit"):
        for owner in owners:
            failure = worker.run_these(resources, owner, (kind,), ahead_ms=SOON_MS)
            if failure is not None:
                return failure
    return None
