"""Runs what is due. A job's kind names its handler, loaded when it is first due."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reverie.agenda import jobs
from reverie.errors import ForkedHandle, ReverieError, StoreClosed
from reverie.protocols import Clock, Engine, Ids, Owner

log = logging.getLogger("reverie.worker")

OWNERS_AT_ONCE = 16
# Modules above this one, by name: the agenda must not import what it serves.
HANDLERS: dict[str, str] = {
    "embed": "reverie.maintenance.job_handlers:fill_vectors",
    "learn": "reverie.learn.learner:learn",
    "summarise": "reverie.learn.summaries:summarise",
    "expire": "reverie.maintenance.job_handlers:forget_expired",
    "prune": "reverie.maintenance.job_handlers:prune_recalls",
    "scrub": "reverie.maintenance.job_handlers:finish_erasure",
    "mirror": "reverie.vault.jobs:mirror",
    "commit": "reverie.vault.jobs:commit",
}


class Resources(Protocol):
    """What a handler works with; the worker itself needs these three of it."""

    @property
    def engine(self) -> Engine: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def ids(self) -> Ids: ...


def run_one(resources: Resources) -> bool:
    """Run one due job; False when nothing is due."""
    claim = _claim(resources)
    if claim is None:
        return False
    failure = _run(resources, claim)
    if failure is not None:
        log.warning("job %s (%s) failed: %s", claim.job, claim.kind, failure)
    return True


def run_these(
    resources: Resources, owner: Owner, kinds: Sequence[str], *, ahead_ms: int = 0
) -> str | None:
    """Run an owner's jobs of these kinds, also those due soon, until one fails; why it did.

    What another worker has is left to it.
    """
    while True:
        with resources.engine.write() as tx:
            tx.enter(owner, alone=False)
            now = resources.clock.now()
            claim = jobs.claim(tx, owner, now + ahead_ms, resources.ids.uuid(), kinds)
        failure = None if claim is None else _run(resources, claim)
        if claim is None or failure is not None:
            return failure


def _run(resources: Resources, claim: jobs.Claim) -> str | None:
    """Do a job; why it failed, which is recorded."""
    try:
        handler = _handler(claim.kind)
        handler(resources, claim)
    except jobs.LeaseLost as error:
        log.warning("%s", error)
    except Exception as error:  # noqa: BLE001 - a job's failure is recorded, never raised
        said = jobs.as_kept(f"{type(error).__name__}: {error}")
        _record_failure(resources, claim, said)
        return said
    return None


def _claim(resources: Resources) -> jobs.Claim | None:
    """A job of whoever has waited longest; of those that other workers are claiming, none."""
    now = resources.clock.now()
    seen: set[Owner] = set()
    while True:
        with resources.engine.read() as tx:
            tx.oversee()
            found = jobs.due_owners(tx, now, OWNERS_AT_ONCE + len(seen))
        due = [owner for owner in found if owner not in seen]
        if not due:
            return None
        for owner in due:
            with resources.engine.write() as tx:
                tx.enter(owner, alone=False)
                claim = jobs.claim(tx, owner, now, resources.ids.uuid())
            if claim is not None:
                return claim
            seen.add(owner)


def _record_failure(resources: Resources, claim: jobs.Claim, error: str) -> None:
    try:
        with resources.engine.write() as tx:
            tx.enter(claim.owner)
            claim.fail(tx, resources.clock.now(), error)
    except ReverieError as lost:
        # Its lease will end, and the attempt is counted already.
        log.warning("%s", lost)


def drain(resources: Resources) -> int:
    """Run everything that is due now; how many jobs that were."""
    count = 0
    while run_one(resources):
        count += 1
    return count


def run_forever(resources: Resources, stop: threading.Event, poll_seconds: float = 1.0) -> None:
    """Serve the agenda until told to stop."""
    while not stop.is_set():
        try:
            busy = run_one(resources)
        except (StoreClosed, ForkedHandle):
            raise
        except ReverieError as error:
            # A full disk or a busy store passes; the jobs are still there.
            log.warning("%s", error)
            busy = False
        if not busy:
            stop.wait(poll_seconds)


def _handler(kind: str) -> Callable[[Any, jobs.Claim], None]:
    place = HANDLERS.get(kind)
    if place is None:
        raise LookupError(f"no handler for jobs of kind {kind!r}: upgrade Reverie")
    module, _, name = place.partition(":")
    handler: Callable[[Any, jobs.Claim], None] = getattr(importlib.import_module(module), name)
    return handler
