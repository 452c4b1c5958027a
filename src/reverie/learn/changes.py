"""Apply the changes planned from one turn to the store, all in one transaction.

A plan is a proposal: each change names the version it was planned on. If one of these versions is
no longer current, nothing is applied and the plan has to be made again. A plan never undoes a
person's later revision, forgetting or erasure, nor what was learned from later turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from reverie.engine import index, index_check, log
from reverie.engine.index import MemoryRow
from reverie.engine.index_text import Labels, memory_passages
from reverie.engine.log import LogEntry
from reverie.errors import ReverieError
from reverie.learn import overtaken
from reverie.learn.rules.own_words import OwnWords
from reverie.learn.rules.statements import read_content, relation_of
from reverie.model import Memory, Origin, Proposal
from reverie.protocols import Owner, Transaction
from reverie.text.analyzer import analyse
from reverie.text.normalize import nfkc_casefold, one_line, subject_key
from reverie.write import proposals, validate
from reverie.write.memories import less_trusted
from reverie.write.owners import deciding_owners, learning_owners
from reverie.write.proposals import ProposedFact, Replacement, VersionRef
from reverie.write.runtime import Runtime
from reverie.write.validate import Draft, PreparedText
from reverie.write.writer import LEARNER, Writer, WriteStamp

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
    r"the user'?s? assistant)\b|\b(?:wants?|asks?|asked|expects?|requires?|requested|instructs?|"
    rf"instructed|told|tells|insists?)\b.{{0,40}}\b{_ASSISTANT}\b|"
    r"\bignore (?:all |any )?(?:previous|earlier|prior) instructions\b",
    re.IGNORECASE,
)
# The share of an instruction's words that the person's request must contain.
_MIN_SHARED_WORDS = 0.6


def is_instruction(content: str) -> bool:
    """Whether a content tells the assistant how to behave."""
    return bool(_INSTRUCTION.search(content))


def is_requested(content: str, requests: Iterable[str]) -> bool:
    """Whether one of the person's own requests has most of the words of an instruction."""
    words = analyse(content).counts.keys()
    return any(
        len(words & analyse(request).counts.keys()) >= _MIN_SHARED_WORDS * len(words)
        for request in requests
    )


UNRECONCILED = "unreconciled"
USER_TERMS = frozenset(analyse("user").counts)
ERASED_SINCE = "something was erased after this was said"
CHANGED_SINCE = "something like it was revised or forgotten after this was said"
SAID_SINCE = "something like it was said later and is remembered already"
DOUBTFUL = "it was said with doubt"
UNREQUESTED = "it tells the assistant what to do, and was not asked for"


class StalePlan(ReverieError):
    """A memory changed after a change of it was planned; the changes must be planned again."""


@dataclass(frozen=True, slots=True)
class UserTurn:
    """A user's message and what learning needs to know about it.

    ``earlier`` has the (role, text) of the turns before it. ``own`` are the parts of the text that
    may be learned from. ``explicit`` says whether the user asked for something to be remembered,
    ``requests`` are the sentences that ask for it. ``said_at`` is when it was said, 0 if unknown.
    """

    origin: Origin
    position: int
    text: str
    earlier: tuple[tuple[str, str], ...]
    explicit: bool
    own: OwnWords = OwnWords()
    requests: tuple[str, ...] = ()
    said_at: int = 0


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One memory to add, revise or forget.

    ``target`` is the memory to change, as it was when the plan was made. ``replaces`` are the ids
    of memories that the plan forgets in favour of this one. ``explicit``: the user asked for it.
    ``doubt`` is why a person should confirm it, if they should. ``valid_from`` and ``valid_to`` are
    from when to when the content holds, if the turn says so.
    """

    event: Literal["ADD", "UPDATE", "DELETE"]
    content: str
    category: str = "general"
    subject: str | None = None
    target: Memory | None = None
    explicit: bool = False
    tags: tuple[str, ...] = ()
    reason: str | None = None
    replaces: tuple[str, ...] = ()
    doubt: str | None = None
    valid_from: int | None = None
    valid_to: int | None = None

    def fact(self, source: str) -> ProposedFact:
        """Return what it would remember, learned with ``source``."""
        return ProposedFact(
            self.content, self.category, self.subject, source, self.valid_from, self.valid_to
        )


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """A change together with its passages and vectors, made before the store is locked."""

    change: PlannedChange
    text: PreparedText | None
    draft: Draft | None


@dataclass(frozen=True, slots=True)
class LaterEdits:
    """A person's edits after a turn, which learning from the turn must not undo.

    ``taught`` and ``taught_subjects`` are the terms and subjects learned from later turns.
    """

    contents: frozenset[str]
    subjects: frozenset[tuple[str, str]]
    memories: frozenset[str]
    terms: frozenset[frozenset[str]]
    erased: bool
    taught: frozenset[frozenset[str]] = frozenset()
    taught_subjects: frozenset[tuple[str, str]] = frozenset()

    def review_reason(self, change: PlannedChange) -> str | None:
        """Return why a person should confirm a change that may undo a later edit or turn.

        None if it cannot undo anything.
        """
        if change.doubt is not None:
            return change.doubt
        if self.erased:
            return ERASED_SINCE
        mine = content_terms(change.content)
        if _is_alike(mine, self.terms, 3):
            return CHANGED_SINCE
        subject = subject_key(change.subject)
        named = subject is not None and (change.category, subject) in self.taught_subjects
        return SAID_SINCE if named or _is_alike(mine, self.taught, 2) else None


def _is_alike(mine: frozenset[str], others: Iterable[frozenset[str]], parts: int) -> bool:
    """Whether one of the others shares at least one part in ``parts`` of these words."""
    return any(len(mine & theirs) * parts >= len(mine) for theirs in others if mine & theirs)


def prepare(
    runtime: Runtime, changes: Sequence[PlannedChange], source: str
) -> list[PreparedChange]:
    """Redact and embed the contents of the changes, before the store is locked."""
    prepared = []
    redaction = runtime.redaction
    for change in changes:
        # Models invent keys and passwords, and repeat those they have read.
        change = replace(
            change,
            content=redaction.quiet(change.content, "what was learned"),
            subject=redaction.quiet(change.subject, "a subject"),
            reason=redaction.quiet(change.reason, "a reason"),
        )
        text = draft = None
        if change.event == "UPDATE":
            assert change.target is not None
            labels = Labels.of(revised_state(change.target, change))
            text = validate.prepare_text(runtime, change.content, labels)
        elif change.event == "ADD":
            draft = proposals.draft_from_proposal(runtime, change.fact(source), change.tags)
        prepared.append(PreparedChange(change, text, draft))
    return prepared


def apply(
    w: Writer,
    turn: UserTurn,
    prepared: Sequence[PreparedChange],
    seen: int,
    source: str,
    *,
    late: bool = False,
) -> None:
    """Apply all changes, or raise StalePlan and apply none.

    ``seen`` is the last log position when they were planned. ``late``: later turns were learned
    before this one, and a change that resembles what they taught becomes a proposal.
    """
    tx, owner = w.tx, w.owner
    settled = edits_since(tx, owner, turn.position)
    if late:
        settled = _with_later_lessons(tx, owner, turn.position, settled)
    targets = {
        each.change.target.id: _require_current(w, each.change)
        for each in prepared
        if each.change.target is not None
    }
    for each in prepared:
        _require_new_subject(w, each, seen)
    left_alone = {
        memory
        for memory, target in targets.items()
        if memory in settled.memories or _is_superseded(target, turn, owner)
    }
    # A change that only becomes a proposal replaces nothing yet, so its targets are not forgotten.
    spared = {
        memory
        for each in prepared
        if each.change.replaces and _add_doubt(each.change, turn, settled)
        for memory in each.change.replaces
    }
    for each in prepared:
        change = each.change
        if left_alone.intersection(change.replaces):
            continue
        if change.event == "DELETE" and change.target is not None and change.target.id in spared:
            continue
        if change.target is None:
            replaced = Replacement(forgets=_version_refs(targets, change.replaces))
            _add(w, turn, each, settled, source, replaced)
            continue
        target = targets[change.target.id]
        if target.row.memory in left_alone:
            continue
        if change.event == "DELETE":
            _forget(target, turn, change)
        elif doubt := _update_doubt(change, turn, settled):
            replaced = Replacement(_version_refs(targets, [target.row.memory])[0])
            _propose_instead(w, turn, change, source, doubt, replaced)
        else:
            _revise(target, turn, each, source)


class ChangedMemory(NamedTuple):
    """A memory that a plan changes, with the writer of its owner."""

    w: Writer
    row: MemoryRow

    def read_current(self) -> LogEntry:
        return index_check.read_current(self.w.tx, self.w.owner, self.row)


def _version_refs(
    targets: Mapping[str, ChangedMemory], memories: Iterable[str]
) -> tuple[VersionRef, ...]:
    """Name the versions of memories that a plan was made on."""
    return tuple(
        VersionRef(memory, targets[memory].read_current().uuid)
        for memory in memories
        if memory in targets
    )


def _require_current(w: Writer, change: PlannedChange) -> ChangedMemory:
    assert change.target is not None
    for owner in learning_owners(w.tx, w.owner):
        row = index.find(w.tx, owner, change.target.id)
        if row is not None and row.version == change.target.version:
            return ChangedMemory(replace(w, owner=owner), row)
    raise StalePlan(f"memory {change.target.id} changed while a change of it was planned")


def _require_new_subject(w: Writer, each: PreparedChange, seen: int) -> None:
    """Raise StalePlan when the subject of an added memory was written since the plan was made."""
    key = None if each.draft is None else subject_key(each.draft.subject)
    if each.draft is None or key is None:
        return
    for owner in learning_owners(w.tx, w.owner):
        place = index.find_subject(w.tx, owner, each.draft.category, key, w.now())
        if place is not None and place.position > seen:
            raise StalePlan(f"memory {place.memory} came while a change was planned")


def _is_superseded(target: ChangedMemory, turn: UserTurn, owner: Owner) -> bool:
    """Whether a memory was last changed because of something said after this turn.

    That may have been in another session: the turns of two sessions are learned in any order.
    """
    taught = overtaken.taught_position(target.w.tx, owner, target.read_current())
    return taught is not None and taught > turn.position


def _add(
    w: Writer,
    turn: UserTurn,
    each: PreparedChange,
    settled: LaterEdits,
    source: str,
    replaced: Replacement,
) -> None:
    change = each.change
    assert each.draft is not None
    subject = subject_key(change.subject)
    if comparison_key(change.content) in settled.contents:
        return
    if subject is not None and (each.draft.category, subject) in settled.subjects:
        return
    if is_known(w, each.draft, asked_for=change.explicit):
        return
    asks = w.runtime.settings.write_policy.lower() == "ask" and not change.explicit
    doubt = _add_doubt(change, turn, settled)
    if asks or doubt is not None:
        proposed = change.fact(source)._replace(
            category=each.draft.category, subject=each.draft.subject
        )
        replaced = replaced._replace(follows=_earlier_proposals(w, turn, proposed))
        proposals.propose(w, turn.origin, proposed, doubt or change.reason, replaced)
        return
    stamp = WriteStamp(origin=turn.origin, reason=change.reason)
    w.add_memory(each.draft, stamp)


def _add_doubt(change: PlannedChange, turn: UserTurn, settled: LaterEdits) -> str | None:
    """Return why a new memory is only proposed; None if it is remembered at once."""
    doubt = settled.review_reason(change)
    return UNREQUESTED if doubt is None and _is_unrequested(change, turn) else doubt


def _update_doubt(change: PlannedChange, turn: UserTurn, settled: LaterEdits) -> str | None:
    """Return why the new text of a memory is only proposed; None when it is written."""
    if _is_unrequested(change, turn):
        return UNREQUESTED
    if change.doubt is not None:
        return change.doubt
    return SAID_SINCE if _is_alike(content_terms(change.content), settled.taught, 2) else None


def _propose_instead(
    w: Writer,
    turn: UserTurn,
    change: PlannedChange,
    source: str,
    doubt: str,
    replaced: Replacement,
) -> None:
    """Propose the new text of a memory, unless that proposal exists already."""
    proposed = change.fact(source)
    draft = proposals.draft_from_proposal(w.runtime, proposed)
    if not is_known(w, draft):
        replaced = replaced._replace(follows=_earlier_proposals(w, turn, proposed))
        proposals.propose(w, turn.origin, proposed, doubt, replaced)


def _earlier_proposals(w: Writer, turn: UserTurn, proposed: ProposedFact) -> tuple[str, ...]:
    """Return the waiting proposals, from earlier turns, of a value that a proposed one replaces.

    Only the rules know what has one value at a time. What is over replaces nothing, and is not
    replaced.
    """
    if proposed.valid_to is not None:
        return ()
    subject = proposed.subject or ""
    relations = {
        each.relation for each in read_content(proposed.content, subject) if each.single_valued
    }
    about = (proposed.category, subject_key(subject))
    return tuple(
        each.id
        for each in proposals.list_proposals(w.tx, w.owner)
        if (each.category, subject_key(each.subject)) == about
        and each.valid_to is None
        and relation_of(each.content, each.subject or "") in relations
        and (said := overtaken.read_turn_entry(w.tx, w.owner, each.origin)) is not None
        and said.position <= turn.position
    )


def _is_unrequested(change: PlannedChange, turn: UserTurn) -> bool:
    """Whether a change instructs the assistant in a way that the user did not ask for."""
    return is_instruction(change.content) and not is_requested(change.content, turn.requests)


def is_known(w: Writer, draft: Draft, *, asked_for: bool = False) -> bool:
    """Whether the same content is a memory already, or a proposal that waits or was rejected.

    The same until another time is something else. Proposals do not count if the person asked to
    remember it (``asked_for``).
    """

    def is_same(known: Memory | Proposal) -> bool:
        return (comparison_key(known.content), known.valid_to) == wanted

    wanted = comparison_key(draft.text.content), draft.valid_to
    asked = [] if asked_for else proposals.list_proposals(w.tx, w.owner, answered=True)
    if any(is_same(each) for each in asked if each.answer != "accept"):
        return True
    unlabelled = memory_passages(draft.text.content, Labels())
    terms = {term for part in unlabelled for term in part.terms}
    return any(
        is_same(replace(w, owner=owner).read_memory(place))
        for owner in deciding_owners(w.tx, w.owner)
        for place in index.find_containing(w.tx, owner, terms, w.now())
    )


def _revise(target: ChangedMemory, turn: UserTurn, each: PreparedChange, source: str) -> None:
    w, change, text = target.w, each.change, each.text
    assert text is not None

    def alter(old: Memory, at: int) -> Memory | None:
        if old.forgotten_at is not None or _says_nothing_new(change, old):
            return None
        return replace(
            revised_state(old, change),
            concept_tags=text.concept_tags,
            source=source,
            trust=less_trusted(old.trust, w.author.trust),
            updated_at=at,
        )

    stamp = WriteStamp(origin=turn.origin, reason=change.reason)
    w.change_memory(target.row, "revise", stamp, alter, text)


def _says_nothing_new(change: PlannedChange, old: Memory) -> bool:
    if comparison_key(old.content) != comparison_key(change.content):
        return False
    given = (change.valid_from, change.valid_to)
    return given in {(None, None), (old.valid_from, old.valid_to)}


def revised_state(old: Memory, change: PlannedChange) -> Memory:
    """Return a memory with the content, labels and validity that a planned change gives it.

    The validity of the old content says nothing about the new one.
    """
    return replace(
        old,
        content=change.content,
        subject=change.subject or old.subject,
        tags=tuple(tag for tag in old.tags if tag != UNRECONCILED),
        valid_from=change.valid_from,
        valid_to=change.valid_to,
    )


def _forget(target: ChangedMemory, turn: UserTurn, change: PlannedChange) -> None:
    def alter(old: Memory, at: int) -> Memory | None:
        # A model must not forget a pinned memory.
        if old.forgotten_at is not None or old.pinned:
            return None
        return replace(old, forgotten_at=at)

    stamp = WriteStamp(origin=turn.origin, reason=change.reason)
    target.w.change_memory(target.row, "forget", stamp, alter)


def edits_since(tx: Transaction, owner: Owner, position: int) -> LaterEdits:
    """Collect what a person revised, forgot or erased after a position of the log."""
    decided = [
        (each, op, memory)
        for each in deciding_owners(tx, owner)
        for op, memory in log.person_changes_since(tx, each, position)
    ]
    erased = any(op == "erase" for _, op, _ in decided)
    memories = {memory for _, _, memory in decided if memory}
    contents, subjects, terms = set(), set(), set[frozenset[str]]()
    for each, memory in {(each, memory) for each, _, memory in decided if memory}:
        for entry in log.versions(tx, each, memory):
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


def _with_later_lessons(
    tx: Transaction, owner: Owner, position: int, settled: LaterEdits
) -> LaterEdits:
    """Add the terms and subjects learned from turns after a position."""
    taught, subjects = set[frozenset[str]](), set[tuple[str, str]]()
    for entry in overtaken.entries_taught_later(tx, owner, position, LEARNER):
        if entry.body is None or entry.op == "erase":
            continue
        taught.add(content_terms(entry.body["content"]))
        subject = subject_key(entry.body["subject"])
        if subject is not None:
            subjects.add((entry.body["category"], subject))
    return replace(settled, taught=frozenset(taught), taught_subjects=frozenset(subjects))


def content_terms(content: str) -> frozenset[str]:
    """Return the words by which two contents are compared; "user" is in all of them."""
    return frozenset(analyse(content).counts) - USER_TERMS


def comparison_key(content: str) -> str:
    """Normalise a content, so that equal statements compare equal."""
    return nfkc_casefold(one_line(content)).rstrip(" .!")
