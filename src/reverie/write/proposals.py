"""Proposals: what learning asks a person before it remembers it, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from reverie.engine import index, index_check, log
from reverie.engine.index import MemoryRow
from reverie.engine.log import LogEntry
from reverie.errors import Conflict, KeyConflict, NotFound
from reverie.model import UNNAMED, Memory, Op, Origin, Proposal, Scope
from reverie.protocols import Owner, Transaction
from reverie.write import owners, validate
from reverie.write.owners import Target
from reverie.write.runtime import Runtime
from reverie.write.validate import Draft
from reverie.write.writer import Author, Writer, WriteStamp, open_writer

ACCEPTED_REASON = "it was proposed and accepted"
REPLACED_REASON = "a proposal that replaces it was accepted"


class VersionRef(NamedTuple):
    """A version of a memory, by the uuid of its log entry, which an import keeps."""

    memory: str
    uuid: str


class Replacement(NamedTuple):
    """What accepting a proposal replaces, if nobody has changed what it says since then.

    ``revises`` gets the proposed content as its next version, ``forgets`` are forgotten.
    ``follows`` are earlier proposals of the same value, by their ids: what one of them was
    accepted as is revised.
    """

    revises: VersionRef | None = None
    forgets: tuple[VersionRef, ...] = ()
    follows: tuple[str, ...] = ()


NOTHING_REPLACED = Replacement()


class ProposedFact(NamedTuple):
    """A fact to propose; ``source`` names what it was learned with."""

    content: str
    category: str
    subject: str | None
    source: str
    valid_from: int | None = None
    valid_to: int | None = None

    def body(self) -> dict[str, Any]:
        """Return its part of the body of a log entry: validity only where it is set.

        So an earlier Reverie can import all other proposals.
        """
        optional = {"valid_from", "valid_to"}
        return {
            name: value
            for name, value in self._asdict().items()
            if value is not None or name not in optional
        }


def propose(
    w: Writer,
    origin: Origin,
    proposed: ProposedFact,
    reason: str | None = None,
    replaced: Replacement = NOTHING_REPLACED,
) -> None:
    """Append a proposal that a person has to accept before it is remembered."""
    quiet = w.runtime.redaction.quiet
    proposed = proposed._replace(
        content=quiet(proposed.content, "a proposal"), subject=quiet(proposed.subject, "a subject")
    )
    reason = quiet(reason, "a reason")
    replaces = {name: value for name, value in replaced._asdict().items() if value}
    body = {"proposal": w.runtime.ids.memory(), **proposed.body(), **replaces}
    _append(w, "propose", origin, body, WriteStamp(reason=reason))


def proposal_target(proposal: str) -> Target:
    """Return the target of the answer to a proposal."""
    return Target(UNNAMED, lambda tx, owner: exists(tx, owner, proposal))


def accept(runtime: Runtime, author: Author, proposal: str, stamp: WriteStamp) -> Memory:
    """Remember what was proposed, in place of what it was planned to replace.

    A proposal that was accepted before returns the same memory. If a later proposal of the same
    value was accepted before, its memory stays as it is and is returned.
    """
    target = proposal_target(proposal)
    with runtime.engine.read() as tx:
        owner = owners.find_target(tx, author.scope, target)
        if owner is None:
            raise NotFound(f"there is no proposal {proposal!r} in this space")
        asked = find(tx, owner, proposal)
    draft = draft_from_proposal(runtime, asked)
    with open_writer(runtime, author, target) as w:
        asked = find(w.tx, w.owner, proposal)
        _check_key(w, stamp, "accept", proposal)
        if asked.answer == "accept" and asked.memory_id is not None:
            held = w.to(owners.memory_target(asked.memory_id))
            place = index.find(w.tx, held.owner, asked.memory_id)
            if place is None:
                raise NotFound(f"memory {asked.memory_id} was erased after it was accepted")
            return held.read_memory(place)
        memory = _find_later_value(w, asked) or _remember_accepted(w, asked, draft)
        body = {"proposal": proposal, "memory": memory.id}
        _append(w, "accept", asked.origin, body, stamp)
        return memory


def _find_later_value(w: Writer, asked: Proposal) -> Memory | None:
    """Read the memory that a later proposal of the same value was accepted as, if there is one.

    What was said later counts, whatever is accepted first.
    """
    accepted = w.tx.all(
        "SELECT position, memory FROM proposals WHERE space = ? AND owner = ? "
        "AND answer = 'accept' AND memory IS NOT NULL AND position > (SELECT position "
        "FROM proposals WHERE space = ? AND owner = ? AND proposal = ?) ORDER BY position DESC",
        (*w.owner, *w.owner, asked.id),
    )
    entries = log.find_at_positions(w.tx, w.owner, [position for position, _ in accepted])
    for position, memory in accepted:
        entry = entries.get(position)
        if entry is None or asked.id not in (entry.body or {}).get("follows", ()):
            continue
        for owner in owners.learning_owners(w.tx, w.owner):
            place = index.find(w.tx, owner, memory)
            if place is not None and place.forgotten_at is None:
                return replace(w, owner=owner).read_memory(place)
    return None


def _remember_accepted(w: Writer, asked: Proposal, draft: Draft) -> Memory:
    """Write the memory of an accepted proposal, and forget what it replaces besides."""
    replaced = _read_replaced(w, asked)
    own = WriteStamp(origin=asked.origin, reason=ACCEPTED_REASON)
    revised = _find_revised(w, replaced)
    if revised is None:
        memory = w.add_memory(draft, own)
    else:

        def alter(old: Memory, at: int) -> Memory:
            return replace(
                old,
                content=draft.text.content,
                subject=draft.subject or old.subject,
                concept_tags=draft.text.concept_tags,
                source=draft.source,
                trust=w.author.trust,
                updated_at=at,
                valid_from=draft.valid_from,
                valid_to=draft.valid_to,
            )

        memory = revised[0].change_memory(revised[1], "revise", own, alter, draft.text)
    for version in replaced.forgets:
        gone = _find_planned(w, version)
        if gone is not None and not gone[1].pinned:
            stamp = WriteStamp(origin=asked.origin, reason=REPLACED_REASON)
            gone[0].change_memory(
                gone[1], "forget", stamp, lambda old, at: replace(old, forgotten_at=at)
            )
    return memory


def _read_replaced(w: Writer, asked: Proposal) -> Replacement:
    row = w.tx.one(
        "SELECT position FROM proposals WHERE space = ? AND owner = ? AND proposal = ?",
        (*w.owner, asked.id),
    )
    assert row is not None
    # Entries of earlier versions of Reverie have none of these.
    body = log.find_at_positions(w.tx, w.owner, [row[0]])[row[0]].body or {}
    return Replacement(
        VersionRef(*body["revises"]) if body.get("revises") else None,
        tuple(VersionRef(*each) for each in body.get("forgets", ())),
        tuple(body.get("follows", ())),
    )


def _find_revised(w: Writer, replaced: Replacement) -> tuple[Writer, MemoryRow] | None:
    """Find the memory that an accepted proposal revises; None if a new one is to be added.

    It is returned with the writer of its owner.
    """
    unchanged = None if replaced.revises is None else _find_planned(w, replaced.revises)
    if unchanged is not None:
        return unchanged
    for proposal in reversed(replaced.follows):
        if not exists(w.tx, w.owner, proposal):
            continue
        unchanged = _find_accepted(w, find(w.tx, w.owner, proposal))
        if unchanged is not None:
            return unchanged
    return None


def _find_accepted(w: Writer, asked: Proposal) -> tuple[Writer, MemoryRow] | None:
    """Find the memory that a proposal was accepted as, if it still says the same."""
    accepted = (ACCEPTED_REASON, asked.origin)
    return _find_unchanged(
        w, asked.memory_id or "", lambda entry: (entry.reason, entry.origin) == accepted
    )


def _find_planned(w: Writer, version: VersionRef) -> tuple[Writer, MemoryRow] | None:
    """Find the memory of a version that a plan was made on, if it still says the same."""
    return _find_unchanged(w, version.memory, lambda entry: entry.uuid == version.uuid)


def _find_unchanged(
    w: Writer, memory: str, is_version: Callable[[LogEntry], bool]
) -> tuple[Writer, MemoryRow] | None:
    """Find a memory that still says what one of its versions said, and is not forgotten.

    Its labels may have changed: a pin changes nothing about what replaces it. It is returned with
    the writer of its owner.
    """
    for owner in owners.learning_owners(w.tx, w.owner):
        place = index.find(w.tx, owner, memory)
        if place is not None and place.forgotten_at is None:
            held = index_check.read_versions(w.tx, owner, memory)
            said = [_statement(entry) for entry in held if is_version(entry)]
            same = said[-1:] == [_statement(held[-1])]
            return (replace(w, owner=owner), place) if same else None
    return None


def _statement(entry: LogEntry) -> tuple[object, ...]:
    """Return what a version says, and from when to when it says that it is true."""
    body = entry.body or {}
    return tuple(body.get(name) for name in ("content", "valid_from", "valid_to"))


def reject(w: Writer, proposal: str, stamp: WriteStamp) -> Proposal:
    """Answer that a proposal is not to be remembered."""
    asked = find(w.tx, w.owner, proposal)
    _check_key(w, stamp, "reject", proposal)
    if asked.answer == "accept":
        raise Conflict(
            f"proposal {proposal} was accepted as {asked.memory_id}: forget that memory instead"
        )
    if asked.answer is None:
        _append(w, "reject", asked.origin, {"proposal": proposal}, stamp)
    return find(w.tx, w.owner, proposal)


def _check_key(w: Writer, stamp: WriteStamp, op: Op, proposal: str) -> None:
    """Raise KeyConflict if the stamp's key was used for anything but this answer."""
    done = w.repeated(stamp, about_session=True)
    if done is not None and (done.op, (done.body or {}).get("proposal")) != (op, proposal):
        raise KeyConflict(stamp.key or "")


def draft_from_proposal(
    runtime: Runtime, asked: Proposal | ProposedFact, tags: tuple[str, ...] = ()
) -> Draft:
    """Build the draft of the memory that a proposal would become."""
    return validate.build_draft(
        runtime,
        asked.content,
        kind="fact",
        category=asked.category,
        subject=asked.subject,
        tags=tags,
        source=asked.source,
        origin=asked.origin if isinstance(asked, Proposal) else None,
        valid_from=asked.valid_from,
        valid_to=asked.valid_to,
    )


def _append(w: Writer, op: Op, origin: Origin, body: Mapping[str, Any], stamp: WriteStamp) -> None:
    """Append an entry about a proposal, filed under the event that the proposal came from."""
    apply_entry(w.tx, w.owner, w.append_to_session(stamp, op, *origin, body))


Answer = Literal["accept", "reject"]


def apply_entry(tx: Transaction, owner: Owner, entry: LogEntry) -> None:
    """Update the table of proposals from a stored entry."""
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
    """Read a proposal, or raise NotFound."""
    # PostgreSQL raises for a NUL character in text.
    found = [] if "\0" in proposal else _read(tx, owner, " AND p.proposal = ?", (proposal,))
    if not found:
        raise NotFound(
            f"there is no proposal {proposal!r} in this space: 'reverie proposals list' shows the "
            "ones there are"
        )
    return found[0]


def exists(tx: Transaction, owner: Owner, proposal: str) -> bool:
    """Tell whether the owner has a proposal with this id."""
    if "\0" in proposal:  # PostgreSQL raises for it
        return False
    row = tx.one(
        "SELECT 1 FROM proposals WHERE space = ? AND owner = ? AND proposal = ?", (*owner, proposal)
    )
    return row is not None


def list_proposals(tx: Transaction, owner: Owner, *, answered: bool = False) -> list[Proposal]:
    """List the proposals without an answer, or with ``answered`` all of them, the oldest first."""
    return _read(tx, owner, "" if answered else " AND p.answer IS NULL", ())


def list_in_scope(tx: Transaction, scope: Scope, *, answered: bool = False) -> list[Proposal]:
    """List the proposals that a handle of this scope may answer, the oldest first."""
    found = [
        proposal
        for owner in owners.writable_owners(tx, scope)
        for proposal in list_proposals(tx, owner, answered=answered)
    ]
    return sorted(found, key=lambda proposal: proposal.proposed_at)


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
        valid_from=body.get("valid_from"),
        valid_to=body.get("valid_to"),
    )


# -- erasing --------------------------------------------------------------------------------------


def erase_for_memory(tx: Transaction, owner: Owner, memory: str) -> list[int]:
    """Blank the proposals a memory was accepted from; return the positions of their entries."""
    rows = tx.all(
        "SELECT position FROM proposals WHERE space = ? AND owner = ? AND memory = ?",
        (*owner, memory),
    )
    return _erase(tx, owner, [row[0] for row in rows])


def erase_for_event(tx: Transaction, owner: Owner, origin: Origin) -> list[int]:
    """Blank the proposals that came from an event; return the positions of their entries."""
    rows = tx.all(
        "SELECT p.position FROM proposals p JOIN log l ON l.space = p.space "
        "AND l.position = p.position "
        "WHERE p.space = ? AND p.owner = ? AND l.session = ? AND l.sequence = ?",
        (*owner, *origin),
    )
    return _erase(tx, owner, [row[0] for row in rows])


def erase_proposal(tx: Transaction, owner: Owner, position: int) -> None:
    """Blank the proposal whose entry is at this position."""
    _erase(tx, owner, [position])


def _erase(tx: Transaction, owner: Owner, positions: list[int]) -> list[int]:
    log.erase_content(tx, owner, positions)
    for position in positions:
        tx.run(
            "DELETE FROM proposals WHERE space = ? AND owner = ? AND position = ?",
            (*owner, position),
        )
    return positions
