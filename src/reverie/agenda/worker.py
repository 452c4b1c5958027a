"""The worker: runs the jobs that are due, each by the handler registered for its kind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reverie.agenda import jobs
from reverie.errors import ForkedHandle, NewerSchema, ReverieError, StoreClosed
from reverie.protocols import Clock, Engine, Ids, Owner

log = logging.getLogger("reverie.worker")

OWNERS_AT_ONCE = 16
Handler = Callable[[Any, jobs.Claim], None]
# A loader of the handler for each kind of job, registered by the package that owns the kind.
HANDLERS: dict[str, Callable[[], Handler]] = {}


def register(kind: str, load: Callable[[], Handler]) -> None:
    """Register the handler for jobs of a kind; ``load`` is called when one of them is due."""
    HANDLERS[kind] = load


class WorkerRuntime(Protocol):
    """The part of the store's runtime that the worker needs; handlers are given all of it."""

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
    """Run an owner's jobs of these kinds until none is due or one fails; returns why it failed.

    Jobs due within ``ahead_ms`` are run as well. A job that another worker has claimed is skipped.
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
    """Run a claimed job. A failure is recorded with the job and returned as a line of text."""
    try:
        handler = _handler(claim.kind)
        handler(runtime, claim)
    except jobs.LeaseLost as error:
        log.warning("%s", error)
    except Exception as error:  # noqa: BLE001 - a job's failure is recorded, never raised
        park = isinstance(error, jobs.ParkJob)
        cause = (error.__cause__ if park else None) or error
        failure = jobs.format_error(f"{type(cause).__name__}: {cause}")
        _record_failure(runtime, claim, failure, park=park)
        return failure
    return None


def _claim(runtime: WorkerRuntime) -> jobs.Claim | None:
    """Claim a job of the longest-due owner, passing over what other workers are claiming."""
    now = runtime.clock.now()
    tried: set[Owner] = set()
    while True:
        with runtime.engine.read() as tx:
            tx.enter_all_owners()
            longest_due = jobs.due_owners(tx, now, OWNERS_AT_ONCE + len(tried))
        untried = [owner for owner in longest_due if owner not in tried]
        if not untried:
            return None
        for owner in untried:
            with runtime.engine.write() as tx:
                tx.enter(owner, alone=False)
                claim = jobs.claim(tx, owner, now, runtime.ids.uuid())
            if claim is not None:
                return claim
            tried.add(owner)


def _record_failure(runtime: WorkerRuntime, claim: jobs.Claim, error: str, *, park: bool) -> None:
    try:
        with runtime.engine.write() as tx:
            tx.enter(claim.owner)
            claim.fail(tx, runtime.clock.now(), error, park=park)
    except ReverieError as lost:
        # The job is due again when its lease ends, and this attempt is counted already.
        log.warning("%s", lost)


def run_pending_jobs(runtime: WorkerRuntime) -> int:
    """Run every job that is due now; returns the number of jobs."""
    count = 0
    while run_one(runtime):
        count += 1
    return count


def run_forever(runtime: WorkerRuntime, stop: threading.Event, poll_seconds: float = 1.0) -> None:
    """Run due jobs until ``stop`` is set, looking for new ones every ``poll_seconds``.

    Raises NewerSchema when the store was upgraded: this process cannot run its jobs any more.
    """
    while not stop.is_set():
        try:
            busy = run_one(runtime)
        except (StoreClosed, ForkedHandle, NewerSchema):
            raise
        except ReverieError as error:
            # A full disk or a busy store is temporary; the jobs stay queued.
            log.warning("%s", error)
            busy = False
        if not busy:
            stop.wait(poll_seconds)


def _handler(kind: str) -> Handler:
    load = HANDLERS.get(kind)
    if load is None:
        raise LookupError(f"no handler for jobs of kind {kind!r}: upgrade Reverie")
    return load()
