"""Proposals made, accepted and rejected: each is an entry of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reverie.engine import index, log
from reverie.errors import Conflict, KeyConflict, NotFound
from reverie.memory import drafts, proposals, writes
from reverie.memory.drafts import Draft
from reverie.memory.resources import Resources
from reverie.memory.writes import Author, Stamp
from reverie.model import Memory, Op, Origin, Proposal
from reverie.protocols import Owner, Transaction


class Proposed(NamedTuple):
    """What is to be proposed, and who would have it remembered."""

    content: str
    category: str
    subject: str | None
    source: str


def propose(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    origin: Origin,
    proposed: Proposed,
    reason: str | None = None,
) -> None:
    """Ask instead of remembering."""
    quiet = resources.redaction.quiet
    proposed = proposed._replace(
        content=quiet(proposed.content, "a proposal"), subject=quiet(proposed.subject, "a subject")
    )
    reason = quiet(reason, "a reason")
    body = {"proposal": resources.ids.memory(), **proposed._asdict()}
    _append(tx, resources, owner, author, "propose", origin, body, Stamp(reason=reason))


def accept(resources: Resources, author: Author, proposal: str, stamp: Stamp) -> Memory:
    with resources.engine.read() as tx:
        owner = log.find(tx, author.scope)
        if owner is None:
            raise NotFound(f"there is no proposal {proposal!r} here")
        asked = proposals.find(tx, owner, proposal)
    draft = draft_of(resources, asked)
    with writes.writing(resources, author.scope) as (tx, owner):
        asked = proposals.find(tx, owner, proposal)
        _require_own_key(tx, owner, stamp, "accept", proposal)
        if asked.answer == "accept" and asked.memory_id is not None:
            place = index.find(tx, owner, asked.memory_id)
            if place is None:
                raise NotFound(f"memory {asked.memory_id} was erased after it was accepted")
            return writes.current_entry(tx, owner, place).state(author.scope.user)
        own = Stamp(origin=asked.origin, reason="it was proposed and accepted")
        memory = writes.add_memory(tx, resources, owner, author, draft, own)
        body = {"proposal": proposal, "memory": memory.id}
        _append(tx, resources, owner, author, "accept", asked.origin, body, stamp)
        return memory


def reject(resources: Resources, author: Author, proposal: str, stamp: Stamp) -> Proposal:
    with writes.writing(resources, author.scope) as (tx, owner):
        asked = proposals.find(tx, owner, proposal)
        _require_own_key(tx, owner, stamp, "reject", proposal)
        if asked.answer == "accept":
            raise Conflict(
                f"proposal {proposal} was accepted as {asked.memory_id}: forget that memory instead"
            )
        if asked.answer is None:
            body = {"proposal": proposal}
            _append(tx, resources, owner, author, "reject", asked.origin, body, stamp)
        return proposals.find(tx, owner, proposal)


def _require_own_key(tx: Transaction, owner: Owner, stamp: Stamp, op: Op, proposal: str) -> None:
    done = writes.repeated(tx, owner, stamp, about_session=True)
    if done is not None and (done.op, (done.body or {}).get("proposal")) != (op, proposal):
        raise KeyConflict(stamp.key or "")


def draft_of(resources: Resources, asked: Proposal | Proposed) -> Draft:
    return drafts.draft(
        resources,
        asked.content,
        kind="fact",
        category=asked.category,
        subject=asked.subject,
        tags=(),
        source=asked.source,
        origin=asked.origin if isinstance(asked, Proposal) else None,
        happened_at=None,
        expires_at=None,
        pinned=False,
    )


def _append(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    op: Op,
    origin: Origin,
    body: Mapping[str, str | None],
    stamp: Stamp,
) -> None:
    """An entry about a proposal stands with the event that gave rise to it."""
    entry = writes.append_to_session(tx, resources, owner, author, stamp, op, *origin, body)
    proposals.put(tx, owner, entry)
