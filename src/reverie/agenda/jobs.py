"""Jobs: written in the transaction of the change that causes them, claimed under a lease.

A claimed job is due again when its lease ends; the worker that claims it then gets a new token, and
the former holder's effects are refused because they check the token in their own transaction. The
table ``due`` holds, for each owner, the time of its next job, so that workers find due owners.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reverie.errors import NotFound, ReverieError
from reverie.model import Job
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import one_line
from reverie.text.secrets.detect import redact_text

LEASE_MS = 5 * 60_000
# The backoff doubles up to an hour: about half a working day passes before a job is parked.
MAX_ATTEMPTS = 15
_MIN_BACKOFF_MS = 1_000
_MAX_BACKOFF_MS = 60 * 60_000
# Values of the column ``overtaken``; see ``Claim.overtaken``.
OVERTAKEN, OVERTAKEN_WAITING = 1, 2
# A due time that is later than any clock shows.
NEVER = 1 << 62


class LeaseLost(ReverieError):
    """The lease ended and another worker has the job: this run's transaction must be undone."""


class ParkJob(ReverieError):
    """Raised by a handler to park its job at once, because another attempt would fail as well.

    Its ``__cause__`` is the failure that is recorded with the job.
    """


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that this worker holds until its lease ends."""

    owner: Owner
    job: int
    kind: str
    payload: Mapping[str, Any]
    attempts: int
    token: str

    def finish(self, tx: Transaction) -> None:
        """Delete the job as done. Called in the transaction that writes the job's effect."""
        self._require_lease(
            tx.run(
                "DELETE FROM jobs WHERE space = ? AND job = ? AND token = ?",
                (self.owner.space, self.job, self.token),
            )
        )
        _set_due(tx, self.owner)

    def reschedule(self, tx: Transaction, due_at: int) -> None:
        """Make the job due again later, with no attempts counted: a part of it is done."""
        self._require_lease(
            tx.run(
                "UPDATE jobs SET state = 'ready', due_at = ?, attempts = 0, token = NULL, "
                "error = NULL WHERE space = ? AND job = ? AND token = ?",
                (due_at, self.owner.space, self.job, self.token),
            )
        )
        _set_due(tx, self.owner)

    def fail(self, tx: Transaction, now: int, error: str, *, park: bool = False) -> None:
        """Schedule a retry with backoff, and keep the error.

        With ``park``, or after ``MAX_ATTEMPTS``, the job is parked instead.
        """
        wait = min(_MIN_BACKOFF_MS * 2 ** (self.attempts - 1), _MAX_BACKOFF_MS)
        self._require_lease(
            tx.run(
                "UPDATE jobs SET state = ?, due_at = ?, token = NULL, error = ? "
                "WHERE space = ? AND job = ? AND token = ?",
                (
                    "parked" if park or self.attempts >= MAX_ATTEMPTS else "ready",
                    now + wait,
                    format_error(error),
                    self.owner.space,
                    self.job,
                    self.token,
                ),
            )
        )
        _set_due(tx, self.owner)

    def count_call(self, tx: Transaction, limit: int) -> int:
        """Count one model call of the job; return how many more may follow it.

        Return -1 if ``limit`` calls were made before: then this call must not be made.
        """
        row = tx.one(
            "SELECT calls FROM jobs WHERE space = ? AND job = ? AND token = ?",
            (self.owner.space, self.job, self.token),
        )
        self._require_lease(0 if row is None else 1)
        calls = limit if row is None else int(row[0])
        if calls >= limit:
            return -1
        tx.run(
            "UPDATE jobs SET calls = ? WHERE space = ? AND job = ? AND token = ?",
            (calls + 1, self.owner.space, self.job, self.token),
        )
        return limit - calls - 1

    def overtaken(self, tx: Transaction) -> int:
        """Whether a later job of the same kind and owner was done before this one.

        OVERTAKEN_WAITING if that was after a failed attempt of this one, else OVERTAKEN, or 0.
        """
        row = tx.one(
            "SELECT overtaken FROM jobs WHERE space = ? AND job = ?", (self.owner.space, self.job)
        )
        return 0 if row is None else int(row[0])

    def mark_overtaken(self, tx: Transaction) -> None:
        """Mark the earlier jobs of the same kind and owner, in any state, as overtaken by this."""
        tx.run(
            "UPDATE jobs SET overtaken = CASE WHEN attempts > 0 AND state <> 'running' "
            f"THEN {OVERTAKEN_WAITING} ELSE {OVERTAKEN} END WHERE space = ? AND owner = ? "
            f"AND kind = ? AND job < ? AND (overtaken = 0 OR overtaken < {OVERTAKEN_WAITING} "
            "AND attempts > 0 AND state <> 'running')",
            (*self.owner, self.kind, self.job),
        )

    def _require_lease(self, changed: int) -> None:
        if changed != 1:
            raise LeaseLost(f"the lease of job {self.job} ended: another worker has it now")


def add(
    tx: Transaction,
    owner: Owner,
    kind: str,
    payload: Mapping[str, Any],
    *,
    due_at: int,
    now: int,
    lane: str | None = None,
    yields: bool = False,
) -> int:
    """Queue a job. Jobs of one lane run one at a time, in the order in which they were queued.

    With ``yields``, later jobs of the lane run while this one waits for its next attempt.
    """
    row = tx.one("UPDATE counters SET job = job + 1 WHERE space = ? RETURNING job", (owner.space,))
    assert row is not None
    tx.run(
        "INSERT INTO jobs (space, job, owner, kind, lane, state, due_at, attempts, token, payload, "
        "error, created_at, yields, overtaken, calls) "
        "VALUES (?, ?, ?, ?, ?, 'ready', ?, 0, NULL, ?, NULL, ?, ?, 0, 0)",
        (
            *(owner.space, row[0], owner.number, kind, lane, due_at),
            *(json.dumps(payload), now, int(yields)),
        ),
    )
    tx.run(
        "INSERT INTO due (space, owner, at) VALUES (?, ?, ?) "
        "ON CONFLICT (space, owner) DO UPDATE SET at = excluded.at WHERE excluded.at < due.at",
        (*owner, due_at),
    )
    return int(row[0])


def add_once(
    tx: Transaction,
    owner: Owner,
    kind: str,
    *,
    due_at: int,
    now: int,
    lane: str | None = None,
) -> None:
    """Queue a job unless the owner has a ready one of this kind that no worker has claimed."""
    waiting = tx.one(
        "SELECT 1 FROM jobs WHERE space = ? AND owner = ? AND kind = ? AND state = 'ready' LIMIT 1",
        (*owner, kind),
    )
    if waiting is None:
        add(tx, owner, kind, {}, due_at=due_at, now=now, lane=lane)


def has_job(tx: Transaction, owner: Owner, kind: str) -> bool:
    """Whether the owner has a job of this kind, in any state."""
    return (
        tx.one(
            "SELECT 1 FROM jobs WHERE space = ? AND owner = ? AND kind = ? LIMIT 1", (*owner, kind)
        )
        is not None
    )


def list_payloads(tx: Transaction, owner: Owner, kind: str) -> list[Mapping[str, Any]]:
    """The payloads of the owner's jobs of a kind, in any state."""
    return [
        json.loads(row[0])
        for row in tx.all(
            "SELECT payload FROM jobs WHERE space = ? AND owner = ? AND kind = ?", (*owner, kind)
        )
    ]


def has_ready_in_lane(tx: Transaction, owner: Owner, lane: str) -> bool:
    """Whether the lane has a ready job that no worker has claimed."""
    return (
        tx.one(
            "SELECT 1 FROM jobs WHERE space = ? AND owner = ? AND lane = ? AND state = 'ready' "
            "LIMIT 1",
            (*owner, lane),
        )
        is not None
    )


def drop_lane(tx: Transaction, owner: Owner, lane: str) -> None:
    """Delete all jobs of a lane without running them."""
    tx.run("DELETE FROM jobs WHERE space = ? AND owner = ? AND lane = ?", (*owner, lane))
    _set_due(tx, owner)


# The jobs ``e`` that keep a job ``j`` of their lane waiting: an earlier one, unless it yields and
# waits for a retry; and one that is running, also a later one that overtook j.
_EARLIER_IN_LANE = (
    "SELECT 1 FROM jobs e WHERE e.space = ? AND e.owner = ? AND e.lane = j.lane AND e.job < j.job "
    "AND e.state <> 'parked' AND NOT (e.yields = 1 AND e.attempts > 0 AND e.due_at > ?)"
)
# Few jobs of an owner are running: they are found by their state, and not by a long lane.
_RUNNING_IN_LANE = (
    "SELECT 1 FROM jobs e WHERE e.space = ? AND e.owner = ? AND e.state = 'running' "
    "AND e.due_at > ? AND e.lane || '' = j.lane AND e.job <> j.job"
)


def due_owners(tx: Transaction, now: int, limit: int) -> list[Owner]:
    """The owners of the whole store that have a due job, the longest-due first.

    Needs a transaction that sees every owner (``enter_all_owners``).
    """
    return [
        Owner(*row)
        for row in tx.all(
            "SELECT space, owner FROM due WHERE at <= ? "
            f"ORDER BY at, space, owner LIMIT {int(limit)}",
            (now,),
        )
    ]


def claim(
    tx: Transaction, owner: Owner, now: int, token: str, kinds: Sequence[str] = ()
) -> Claim | None:
    """Claim the owner's longest-due job whose lane is free and that no other worker is claiming.

    ``kinds`` restricts it to jobs of these kinds. The owner's row in ``due`` is locked before the
    job: every transaction that may have to wait for both locks them in this order.
    """
    _lock_due(tx, owner)
    claimable = (
        "FROM jobs j WHERE j.space = ? AND j.owner = ? AND j.state IN ('ready', 'running') "
        f"AND j.due_at <= ? AND (j.lane IS NULL OR NOT EXISTS ({_EARLIER_IN_LANE}) "
        f"AND NOT EXISTS ({_RUNNING_IN_LANE}))"
    )
    kind_condition = f" AND j.kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    row = tx.one(
        f"SELECT j.job, j.kind, j.payload, j.attempts {claimable}{kind_condition} "
        f"ORDER BY j.due_at, j.job LIMIT 1{tx.skip_locked}",
        (*owner, now, *owner, now, *owner, now, *kinds),
    )
    if row is None and kinds:
        _set_due(tx, owner)
        return None
    if row is None:
        unlocked = tx.one(f"SELECT 1 {claimable} LIMIT 1", (*owner, now, *owner, now, *owner, now))
        _set_due(tx, owner, after=now if unlocked is None else None)
        return None
    job, kind, payload, attempts = row
    if attempts >= MAX_ATTEMPTS:
        # Attempts are counted when claimed, so that a job that kills its worker is parked as well.
        tx.run(
            "UPDATE jobs SET state = 'parked', token = NULL, error = ? WHERE space = ? AND job = ?",
            (f"{attempts} workers began it and none came back", owner.space, job),
        )
        return claim(tx, owner, now, token, kinds)
    tx.run(
        "UPDATE jobs SET state = 'running', due_at = ?, token = ?, attempts = attempts + 1 "
        "WHERE space = ? AND job = ?",
        (now + LEASE_MS, token, owner.space, job),
    )
    _set_due(tx, owner)
    return Claim(owner, job, kind, json.loads(payload), attempts + 1, token)


def list_jobs(tx: Transaction, space: int, name: str) -> list[Job]:
    """Every job of a space in the order in which they were queued; ``name`` is the space's."""
    return [
        Job(name, job, kind, state, due_at, attempts, error, json.loads(payload), calls)
        for job, kind, state, due_at, attempts, error, payload, calls in tx.all(
            "SELECT job, kind, state, due_at, attempts, error, payload, calls FROM jobs "
            "WHERE space = ? ORDER BY job",
            (space,),
        )
    ]


def retry(tx: Transaction, space: int, job: int, now: int) -> None:
    """Make a job due now, even a parked one; its attempts and calls are counted from 0 again."""
    owner = _owner_of(tx, space, job)
    tx.run(
        "UPDATE jobs SET state = 'ready', due_at = ?, attempts = 0, calls = 0, token = NULL, "
        "error = NULL "
        "WHERE space = ? AND job = ?",
        (now, space, job),
    )
    _set_due(tx, owner)


def drop(tx: Transaction, space: int, job: int) -> None:
    """Delete a job without running it."""
    owner = _owner_of(tx, space, job)
    tx.run("DELETE FROM jobs WHERE space = ? AND job = ?", (space, job))
    _set_due(tx, owner)


def _owner_of(tx: Transaction, space: int, job: int) -> Owner:
    row = None
    if 0 < job < 1 << 62:
        row = tx.one("SELECT owner FROM jobs WHERE space = ? AND job = ?", (space, job))
    if row is None:
        raise NotFound(f"there is no job {job}: 'reverie jobs list' shows the ones there are")
    return Owner(space, row[0])


def format_error(error: str) -> str:
    """An error as one short line of valid UTF-8 with secrets redacted: it may quote any text."""
    return redact_text(one_line(error[:1000].encode("utf-8", "replace").decode()))[0]


def _set_due(tx: Transaction, owner: Owner, after: int | None = None) -> None:
    """Update the owner's row in ``due`` to the time of its next job, or delete the row.

    ``after`` ignores jobs due until then: they wait for their lane. The row is locked first, so
    that a concurrent transaction that adds or ends a job updates it after this one.
    """
    _lock_due(tx, owner)
    condition, values = ("", owner) if after is None else (" AND due_at > ?", (*owner, after))
    (first,) = tx.one(
        "SELECT MIN(due_at) FROM jobs WHERE space = ? AND owner = ? AND state <> 'parked'"
        f"{condition}",
        values,
    ) or (None,)
    if first is None:
        tx.run("DELETE FROM due WHERE space = ? AND owner = ?", owner)
    else:
        tx.run("UPDATE due SET at = ? WHERE space = ? AND owner = ?", (first, *owner))


def _lock_due(tx: Transaction, owner: Owner) -> None:
    """Lock the owner's row in ``due`` until this transaction ends, and make it if needed."""
    tx.run(
        "INSERT INTO due (space, owner, at) VALUES (?, ?, ?) "
        "ON CONFLICT (space, owner) DO UPDATE SET at = due.at",
        (*owner, NEVER),
    )
