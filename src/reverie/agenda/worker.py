"""Runs the jobs that are due, each by the handler that is registered for its kind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reverie.agenda import jobs
from reverie.errors import ForkedHandle, ReverieError, StoreClosed
from reverie.protocols import Clock, Engine, Ids, Owner

log = logging.getLogger("reverie.worker")

OWNERS_AT_ONCE = 16
Handler = Callable[[Any, jobs.Claim], None]
# How to load the handler of each kind of job: the packages that own them register them.
HANDLERS: dict[str, Callable[[], Handler]] = {}


def register(kind: str, load: Callable[[], Handler]) -> None:
    """Name the handler for jobs of a kind; it is loaded when the first of them is due."""
    HANDLERS[kind] = load


class WorkerRuntime(Protocol):
    """What a handler works with; the worker itself needs these three of it."""

    @property
    def engine(self) -> Engine: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def ids(self) -> Ids: ...


def run_one(runtime: WorkerRuntime) -> bool:
    """Run one due job; False when nothing is due."""
    claim = _claim(runtime)
    if claim is None:
        return False
    failure = _run(runtime, claim)
    if failure is not None:
        log.warning("job %s (%s) failed: %s", claim.job, claim.kind, failure)
    return True


def run_owner_jobs(
    runtime: WorkerRuntime, owner: Owner, kinds: Sequence[str], *, ahead_ms: int = 0
) -> str | None:
    """Run an owner's jobs of these kinds, also those due soon, until one fails; why it did.

    What another worker has is left to it.
    """
    while True:
        with runtime.engine.write() as tx:
            tx.enter(owner, alone=False)
            now = runtime.clock.now()
            claim = jobs.claim(tx, owner, now + ahead_ms, runtime.ids.uuid(), kinds)
        failure = None if claim is None else _run(runtime, claim)
        if claim is None or failure is not None:
            return failure


def _run(runtime: WorkerRuntime, claim: jobs.Claim) -> str | None:
    """Do a job; why it failed, which is recorded."""
    try:
        handler = _handler(claim.kind)
        handler(runtime, claim)
    except jobs.LeaseLost as error:
        log.warning("%s", error)
    except Exception as error:  # noqa: BLE001 - a job's failure is recorded, never raised
        said = jobs.format_error(f"{type(error).__name__}: {error}")
        _record_failure(runtime, claim, said)
        return said
    return None


def _claim(runtime: WorkerRuntime) -> jobs.Claim | None:
    """A job of whoever has waited longest; of those that other workers are claiming, none."""
    now = runtime.clock.now()
    seen: set[Owner] = set()
    while True:
        with runtime.engine.read() as tx:
            tx.enter_all_owners()
            found = jobs.due_owners(tx, now, OWNERS_AT_ONCE + len(seen))
        due = [owner for owner in found if owner not in seen]
        if not due:
            return None
        for owner in due:
            with runtime.engine.write() as tx:
                tx.enter(owner, alone=False)
                claim = jobs.claim(tx, owner, now, runtime.ids.uuid())
            if claim is not None:
                return claim
            seen.add(owner)


def _record_failure(runtime: WorkerRuntime, claim: jobs.Claim, error: str) -> None:
    try:
        with runtime.engine.write() as tx:
            tx.enter(claim.owner)
            claim.fail(tx, runtime.clock.now(), error)
    except ReverieError as lost:
        # Its lease will end, and the attempt is counted already.
        log.warning("%s", lost)


def run_pending_jobs(runtime: WorkerRuntime) -> int:
    """Run everything that is due now; how many jobs that were."""
    count = 0
    while run_one(runtime):
        count += 1
    return count


def run_forever(runtime: WorkerRuntime, stop: threading.Event, poll_seconds: float = 1.0) -> None:
    """Serve the agenda until told to stop."""
    while not stop.is_set():
        try:
            busy = run_one(runtime)
        except (StoreClosed, ForkedHandle):
            raise
        except ReverieError as error:
            # A full disk or a busy store passes; the jobs are still there.
            log.warning("%s", error)
            busy = False
        if not busy:
            stop.wait(poll_seconds)


def _handler(kind: str) -> Handler:
    load = HANDLERS.get(kind)
    if load is None:
        raise LookupError(f"no handler for jobs of kind {kind!r}: upgrade Reverie")
    return load()
