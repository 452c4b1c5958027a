"""What is to be changed because of one turn, and its application in one transaction.

A change is a proposal: it names the version it was planned on, and where that is no longer current
nothing at all is applied. What a person has revised, forgotten or erased since the turn stays so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from reverie.engine import index, log, sessions
from reverie.engine.index import MemoryRow
from reverie.errors import ReverieError
from reverie.learn.rules.own_words import OwnWords
from reverie.model import Memory, Origin, Trust
from reverie.protocols import Owner, Transaction
from reverie.text.analyzer import analyse
from reverie.text.normalize import nfkc_casefold, one_line, subject_key
from reverie.write import (
    proposals,
    validate,
    writer,
)
from reverie.write import (
    proposals as write_proposals,
)
from reverie.write.proposals import ProposedFact
from reverie.write.runtime import Runtime
from reverie.write.validate import Draft, PreparedText
from reverie.write.writer import LEARNER, Author, WriteStamp

_ASSISTANT = (
    r"(?:assistant|ai|chat ?bot|bot|(?:language )?model|llm|agent|you|"
    r"your (?:answers?|repl(?:y|ies)))"
)
_MUST = (
    r"(?:must|should|shall|has to|have to|needs? to|ought to|always|never|may not|may only|is to|"
    r"are to|will (?:always|never|only)|is not allowed|are not allowed)"
)
_INSTRUCTION = re.compile(
    r"^(?:please )?(?:always|never|from now on|do not|don't|ignore|obey|refuse|you must)\b|"
    rf"\b{_ASSISTANT}\b.{{0,60}}\b{_MUST}\b|\b{_MUST}\b.{{0,60}}\b(?:the assistant|"
    rf"the user'?s? assistant)\b|"
    r"\b(?:wants?|asks?|asked|expects?|requires?|requested|instructs?|instructed|told|tells|"
    r"insists?)\b"
    rf".{{0,40}}\b{_ASSISTANT}\b|\bignore (?:all |any )?(?:previous|earlier|prior) instructions\b",
    re.IGNORECASE,
)
# Of the words of an instruction, how many the request must have.
_MIN_SHARED_WORDS = 0.6


def is_instruction(content: str) -> bool:
    """Tell whether a content says what the assistant is to do."""
    return bool(_INSTRUCTION.search(content))


def is_requested(content: str, requests: Iterable[str]) -> bool:
    """Tell whether one of the person's own requests says what an instruction says."""
    words = analyse(content).counts.keys()
    return any(
        len(words & analyse(request).counts.keys()) >= _MIN_SHARED_WORDS * len(words)
        for request in requests
    )


UNRECONCILED = "unreconciled"
USER_TERMS = frozenset(analyse("user").counts)
ERASED_SINCE = "something was erased after this was said"
CHANGED_SINCE = "something like it was revised or forgotten after this was said"
UNREQUESTED = "it tells the assistant what to do, and was not asked for"


class StalePlan(ReverieError):
    """A memory changed after the change was planned: it has to be planned again."""


@dataclass(frozen=True, slots=True)
class UserTurn:
    """What the user said, where it stands, and whether they asked for it to be kept.

    ``own`` are the stretches of the text that may be learned from, ``requests`` the sentences of
    it that ask outright.
    """

    origin: Origin
    position: int
    text: str
    earlier: tuple[tuple[str, str], ...]
    explicit: bool
    own: OwnWords = OwnWords()
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One thing to add, to revise or to forget. ``target`` is the memory as it was seen."""

    event: Literal["ADD", "UPDATE", "DELETE"]
    content: str
    category: str = "general"
    subject: str | None = None
    target: Memory | None = None
    explicit: bool = False
    tags: tuple[str, ...] = ()
    reason: str | None = None
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """A change with all that the index needs, made before anything is locked."""

    change: PlannedChange
    text: PreparedText | None
    draft: Draft | None


@dataclass(frozen=True, slots=True)
class LaterEdits:
    """What a person decided after a turn was said: no turn before that can undo it."""

    contents: frozenset[str]
    subjects: frozenset[tuple[str, str]]
    memories: frozenset[str]
    terms: frozenset[frozenset[str]]
    erased: bool

    def review_reason(self, content: str) -> str | None:
        """Why a person should be asked: this may be what they decided, in other words."""
        if self.erased:
            return ERASED_SINCE
        mine = content_terms(content)
        alike = any(len(mine & theirs) * 3 >= len(mine) for theirs in self.terms if mine & theirs)
        return CHANGED_SINCE if alike else None


def prepare(
    runtime: Runtime, changes: Sequence[PlannedChange], source: str
) -> list[PreparedChange]:
    """Embed what is to be written; nothing is locked yet."""
    prepared = []
    redaction = runtime.redaction
    for change in changes:
        # Models write keys that nobody told them, and repeat those they saw.
        change = replace(
            change,
            content=redaction.quiet(change.content, "what was learned"),
            subject=redaction.quiet(change.subject, "a subject"),
            reason=redaction.quiet(change.reason, "a reason"),
        )
        text = draft = None
        if change.event == "UPDATE":
            text = validate.prepare_text(runtime, change.content)
        elif change.event == "ADD":
            asked = ProposedFact(change.content, change.category, change.subject, source)
            draft = replace(write_proposals.draft_from_proposal(runtime, asked), tags=change.tags)
        prepared.append(PreparedChange(change, text, draft))
    return prepared


def apply(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    trust: Trust,
    turn: UserTurn,
    prepared: Sequence[PreparedChange],
    seen: int,
    source: str,
) -> None:
    """All changes, or Stale and none of them. They were planned at the position ``seen``."""
    author = Author(log.scope_of(tx, owner), LEARNER, trust)
    settled = edits_since(tx, owner, turn.position)
    places = {
        each.change.target.id: _require_current(tx, owner, each.change)
        for each in prepared
        if each.change.target is not None
    }
    for each in prepared:
        _require_new_subject(tx, runtime, owner, each, seen)
    left_alone = {
        memory
        for memory, place in places.items()
        if memory in settled.memories or _is_superseded(tx, owner, turn, place)
    }
    # What is only proposed takes nothing's place yet.
    spared = {
        memory
        for each in prepared
        if _is_unrequested(each.change, turn)
        for memory in each.change.replaces
    }
    for each in prepared:
        change = each.change
        if left_alone.intersection(change.replaces):
            continue
        if change.event == "DELETE" and change.target is not None and change.target.id in spared:
            continue
        if change.target is None:
            _add(tx, runtime, owner, author, turn, each, settled, source)
            continue
        place = places[change.target.id]
        if place.memory in left_alone:
            continue
        if change.event == "DELETE":
            _forget(tx, runtime, owner, author, turn, change, place)
        elif _is_unrequested(change, turn):
            _propose_instead(tx, runtime, owner, author, turn, change, source)
        else:
            _revise(tx, runtime, owner, author, turn, each, place, source)


def _require_current(tx: Transaction, owner: Owner, change: PlannedChange) -> MemoryRow:
    assert change.target is not None
    place = index.find(tx, owner, change.target.id)
    if place is None or place.version != change.target.version:
        raise StalePlan(f"memory {change.target.id} changed while a change of it was planned")
    return place


def _require_new_subject(
    tx: Transaction, runtime: Runtime, owner: Owner, each: PreparedChange, seen: int
) -> None:
    """What is added must not be of a subject that somebody else wrote about meanwhile."""
    key = None if each.draft is None else subject_key(each.draft.subject)
    if each.draft is None or key is None:
        return
    place = index.find_subject(tx, owner, each.draft.category, key, runtime.clock.now())
    if place is not None and place.position > seen:
        raise StalePlan(f"memory {place.memory} came while a change was planned")


def _is_superseded(tx: Transaction, owner: Owner, turn: UserTurn, place: MemoryRow) -> bool:
    """Whether a memory already says what was said after the turn, here or in another session."""
    entry = writer.current_entry(tx, owner, place)
    if entry.trust == "person" and entry.position > turn.position:
        return True
    said = None if entry.origin is None else sessions.find_event_entry(tx, owner, entry.origin)
    return said is not None and said.position > turn.position


def _add(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    turn: UserTurn,
    each: PreparedChange,
    settled: LaterEdits,
    source: str,
) -> None:
    change = each.change
    assert each.draft is not None
    subject = subject_key(change.subject)
    if comparison_key(change.content) in settled.contents:
        return
    if subject is not None and (each.draft.category, subject) in settled.subjects:
        return
    if is_known(tx, runtime, owner, each.draft):
        return
    asks = runtime.settings.write_policy.lower() == "ask" and not change.explicit
    doubt = settled.review_reason(change.content)
    if doubt is None and _is_unrequested(change, turn):
        doubt = UNREQUESTED
    if asks or doubt is not None:
        proposed = ProposedFact(change.content, each.draft.category, each.draft.subject, source)
        write_proposals.propose(
            tx, runtime, owner, author, turn.origin, proposed, doubt or change.reason
        )
        return
    stamp = WriteStamp(origin=turn.origin, reason=change.reason)
    writer.add_memory(tx, runtime, owner, author, each.draft, stamp)


def _propose_instead(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    turn: UserTurn,
    change: PlannedChange,
    source: str,
) -> None:
    """Propose a new text for a memory as a memory of its own, unless it already waits."""
    proposed = ProposedFact(change.content, change.category, change.subject, source)
    draft = write_proposals.draft_from_proposal(runtime, proposed)
    if not is_known(tx, runtime, owner, draft):
        write_proposals.propose(tx, runtime, owner, author, turn.origin, proposed, UNREQUESTED)


def _is_unrequested(change: PlannedChange, turn: UserTurn) -> bool:
    """Tell whether a change would make the assistant behave as nobody asked outright."""
    return is_instruction(change.content) and not is_requested(change.content, turn.requests)


def is_known(tx: Transaction, runtime: Runtime, owner: Owner, draft: Draft) -> bool:
    """Whether these very words are remembered, wait for an answer, or were rejected."""
    said = comparison_key(draft.text.content)
    asked = proposals.list_proposals(tx, owner, answered=True)
    if any(said == comparison_key(each.content) for each in asked if each.answer != "accept"):
        return True
    terms = {term for part in draft.text.passages for term in part.terms}
    return any(
        comparison_key(writer.current_entry(tx, owner, place).state(None).content) == said
        for place in index.find_containing(tx, owner, terms, runtime.clock.now())
    )


def _revise(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    turn: UserTurn,
    each: PreparedChange,
    place: MemoryRow,
    source: str,
) -> None:
    change, text = each.change, each.text
    assert text is not None

    def alter(old: Memory, at: int) -> Memory | None:
        if old.forgotten_at is not None or comparison_key(old.content) == comparison_key(
            change.content
        ):
            return None
        return replace(
            old,
            content=change.content,
            concept_tags=text.concept_tags,
            subject=change.subject or old.subject,
            tags=tuple(tag for tag in old.tags if tag != UNRECONCILED),
            source=source,
            trust=writer.less_trusted(old.trust, author.trust),
            updated_at=at,
        )

    stamp = WriteStamp(origin=turn.origin, reason=change.reason)
    writer.change_in(tx, runtime, owner, author, place, "revise", stamp, alter, text)


def _forget(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    turn: UserTurn,
    change: PlannedChange,
    place: MemoryRow,
) -> None:
    def alter(old: Memory, at: int) -> Memory | None:
        # What was pinned is not a model's to forget.
        if old.forgotten_at is not None or old.pinned:
            return None
        return replace(old, forgotten_at=at)

    stamp = WriteStamp(origin=turn.origin, reason=change.reason)
    writer.change_in(tx, runtime, owner, author, place, "forget", stamp, alter)


def edits_since(tx: Transaction, owner: Owner, position: int) -> LaterEdits:
    """What a person revised, forgot or erased behind a position."""
    decided = log.person_changes_since(tx, owner, position)
    erased = any(op == "erase" for op, _ in decided)
    memories = {memory for _, memory in decided if memory}
    contents, subjects, terms = set(), set(), set[frozenset[str]]()
    for memory in memories:
        for entry in log.versions(tx, owner, memory):
            if entry.body is None or entry.op == "erase":
                continue
            contents.add(comparison_key(entry.body["content"]))
            terms.add(content_terms(entry.body["content"]))
            subject = subject_key(entry.body["subject"])
            if subject is not None:
                subjects.add((entry.body["category"], subject))
    return LaterEdits(
        frozenset(contents), frozenset(subjects), frozenset(memories), frozenset(terms), erased
    )


def content_terms(content: str) -> frozenset[str]:
    """The words two contents may share; each is about the user."""
    return frozenset(analyse(content).counts) - USER_TERMS


def comparison_key(content: str) -> str:
    """What two contents are compared by."""
    return nfkc_casefold(one_line(content)).rstrip(" .!")
