"""What a model would remember if it may: proposed, then accepted or rejected by a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from reverie.engine import index, log
from reverie.engine.log import LogEntry
from reverie.errors import Conflict, KeyConflict, NotFound
from reverie.model import Memory, Op, Origin, Proposal
from reverie.protocols import Owner, Transaction
from reverie.write import validate, writer
from reverie.write.runtime import Runtime
from reverie.write.validate import Draft
from reverie.write.writer import Author, WriteStamp


class ProposedFact(NamedTuple):
    """What is to be proposed, and who would have it remembered."""

    content: str
    category: str
    subject: str | None
    source: str


def propose(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    origin: Origin,
    proposed: ProposedFact,
    reason: str | None = None,
) -> None:
    """Ask instead of remembering."""
    quiet = runtime.redaction.quiet
    proposed = proposed._replace(
        content=quiet(proposed.content, "a proposal"), subject=quiet(proposed.subject, "a subject")
    )
    reason = quiet(reason, "a reason")
    body = {"proposal": runtime.ids.memory(), **proposed._asdict()}
    _append(tx, runtime, owner, author, "propose", origin, body, WriteStamp(reason=reason))


def accept(runtime: Runtime, author: Author, proposal: str, stamp: WriteStamp) -> Memory:
    with runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, author.scope)
        if owner is None:
            raise NotFound(f"there is no proposal {proposal!r} here")
        asked = find(tx, owner, proposal)
    draft = draft_from_proposal(runtime, asked)
    with writer.write_transaction(runtime, author.scope) as (tx, owner):
        asked = find(tx, owner, proposal)
        _check_key(tx, owner, stamp, "accept", proposal)
        if asked.answer == "accept" and asked.memory_id is not None:
            place = index.find(tx, owner, asked.memory_id)
            if place is None:
                raise NotFound(f"memory {asked.memory_id} was erased after it was accepted")
            return writer.current_entry(tx, owner, place).state(author.scope.user)
        own = WriteStamp(origin=asked.origin, reason="it was proposed and accepted")
        memory = writer.add_memory(tx, runtime, owner, author, draft, own)
        body = {"proposal": proposal, "memory": memory.id}
        _append(tx, runtime, owner, author, "accept", asked.origin, body, stamp)
        return memory


def reject(runtime: Runtime, author: Author, proposal: str, stamp: WriteStamp) -> Proposal:
    with writer.write_transaction(runtime, author.scope) as (tx, owner):
        asked = find(tx, owner, proposal)
        _check_key(tx, owner, stamp, "reject", proposal)
        if asked.answer == "accept":
            raise Conflict(
                f"proposal {proposal} was accepted as {asked.memory_id}: forget that memory instead"
            )
        if asked.answer is None:
            body = {"proposal": proposal}
            _append(tx, runtime, owner, author, "reject", asked.origin, body, stamp)
        return find(tx, owner, proposal)


def _check_key(tx: Transaction, owner: Owner, stamp: WriteStamp, op: Op, proposal: str) -> None:
    done = writer.find_repeated(tx, owner, stamp, about_session=True)
    if done is not None and (done.op, (done.body or {}).get("proposal")) != (op, proposal):
        raise KeyConflict(stamp.key or "")


def draft_from_proposal(runtime: Runtime, asked: Proposal | ProposedFact) -> Draft:
    return validate.build_draft(
        runtime,
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
    runtime: Runtime,
    owner: Owner,
    author: Author,
    op: Op,
    origin: Origin,
    body: Mapping[str, str | None],
    stamp: WriteStamp,
) -> None:
    """An entry about a proposal stands with the event that gave rise to it."""
    entry = writer.append_to_session(tx, runtime, owner, author, stamp, op, *origin, body)
    apply_entry(tx, owner, entry)


Answer = Literal["accept", "reject"]


def apply_entry(tx: Transaction, owner: Owner, entry: LogEntry) -> None:
    """Let the list show what an entry proposes or answers."""
    body = entry.body or {}
    if entry.op == "propose" and entry.body is not None:
        tx.run(
            "INSERT INTO proposals (space, owner, proposal, position, answer, memory) "
            "VALUES (?, ?, ?, ?, NULL, NULL)",
            (*owner, body["proposal"], entry.position),
        )
    elif entry.op in {"accept", "reject"}:
        tx.run(
            "UPDATE proposals SET answer = ?, memory = ? "
            "WHERE space = ? AND owner = ? AND proposal = ?",
            (entry.op, body.get("memory"), *owner, body.get("proposal")),
        )


def find(tx: Transaction, owner: Owner, proposal: str) -> Proposal:
    # What no database can store cannot be there.
    found = [] if "\0" in proposal else _read(tx, owner, " AND p.proposal = ?", (proposal,))
    if not found:
        raise NotFound(
            f"there is no proposal {proposal!r} here: 'proposals list' shows the ones there are"
        )
    return found[0]


def exists(tx: Transaction, owner: Owner, proposal: str) -> bool:
    row = tx.one(
        "SELECT 1 FROM proposals WHERE space = ? AND owner = ? AND proposal = ?",
        (*owner, proposal),
    )
    return row is not None


def list_proposals(tx: Transaction, owner: Owner, *, answered: bool = False) -> list[Proposal]:
    """Proposals, the oldest first: those that wait for an answer, or all of them."""
    return _read(tx, owner, "" if answered else " AND p.answer IS NULL", ())


def _read(tx: Transaction, owner: Owner, condition: str, values: tuple[str, ...]) -> list[Proposal]:
    rows = tx.all(
        "SELECT p.position, p.answer, p.memory FROM proposals p "
        f"WHERE p.space = ? AND p.owner = ?{condition} ORDER BY p.position",
        (*owner, *values),
    )
    found = []
    for position, answer, memory in rows:
        entry = log.find_at_positions(tx, owner, [position]).get(position)
        if entry is not None and entry.op == "propose" and entry.body is not None:
            found.append(_proposal(entry, entry.body, answer, memory))
    return found


def _proposal(
    entry: LogEntry, body: Mapping[str, Any], answer: Answer | None, memory: str | None
) -> Proposal:
    assert entry.session is not None and entry.sequence is not None
    return Proposal(
        id=body["proposal"],
        content=body["content"],
        category=body["category"],
        subject=body["subject"],
        origin=Origin(entry.session, entry.sequence),
        source=body["source"],
        proposed_at=entry.recorded_at,
        answer=answer,
        memory_id=memory,
    )


# -- erasing --------------------------------------------------------------------------------------


def erase_for_memory(tx: Transaction, owner: Owner, memory: str) -> list[int]:
    """Destroy what a memory was accepted from; the positions of the entries that held it."""
    rows = tx.all(
        "SELECT position FROM proposals WHERE space = ? AND owner = ? AND memory = ?",
        (*owner, memory),
    )
    return _erase(tx, owner, [row[0] for row in rows])


def erase_for_event(tx: Transaction, owner: Owner, origin: Origin) -> list[int]:
    """Destroy what an event gave rise to."""
    rows = tx.all(
        "SELECT p.position FROM proposals p JOIN log l ON l.space = p.space "
        "AND l.position = p.position "
        "WHERE p.space = ? AND p.owner = ? AND l.session = ? AND l.sequence = ?",
        (*owner, *origin),
    )
    return _erase(tx, owner, [row[0] for row in rows])


def erase_proposal(tx: Transaction, owner: Owner, position: int) -> None:
    """Destroy one proposal."""
    _erase(tx, owner, [position])


def _erase(tx: Transaction, owner: Owner, positions: list[int]) -> list[int]:
    log.erase_content(tx, owner, positions)
    for position in positions:
        tx.run(
            "DELETE FROM proposals WHERE space = ? AND owner = ? AND position = ?",
            (*owner, position),
        )
    return positions
