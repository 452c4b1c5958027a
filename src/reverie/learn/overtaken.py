"""Find out what a turn may still change if later turns of its owner were learned before it.

A turn that a model fails on waits for a retry, and the turns after it are learned meanwhile. An
overtaken turn never replaces or contradicts what later turns said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reverie.agenda import jobs
from reverie.agenda.jobs import Claim
from reverie.engine import index, index_check, log, sessions
from reverie.engine.index import Filter
from reverie.engine.log import LogEntry
from reverie.learn.rules.statements import Statement, read_content, relation_of
from reverie.model import UNTRUSTED, Memory, Origin
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import nfkc_casefold, subject_key
from reverie.write.owners import learning_owners

# How many later turns are read for the statements in them. With more, a person is asked.
MAX_LATER_TURNS = 1_000
# How many memories of one subject are searched for the one that a statement replaces.
MAX_OF_SUBJECT = 50
ENDED = " no longer "
_LABEL = re.compile(r"^The user(?:'s)?\b")
_ARTICLE = re.compile(r"^(?:the|an?|my|our) ")
_WORD = re.compile(r"\w+(?:['’]\w+)*")
# Subjects of the category "person" that are not people: each has one memory.
USER_SUBJECTS = frozenset(("name", "birthday", "birth year", "age", "marital status"))


class LaterTurns(NamedTuple):
    """The turns that came after a turn and were learned before it, in order.

    ``complete``: all of them are listed. ``retried``: they were learned while the turn waited for a
    retry, and not just at about the same time in another session.
    """

    origins: tuple[Origin, ...] = ()
    complete: bool = True
    retried: bool = False


def list_later_turns(tx: Transaction, claim: Claim, position: int) -> LaterTurns:
    """List the owner's turns after a position whose ``learn`` jobs are done."""
    if not (overtaken := claim.overtaken(tx)):
        return LaterTurns()
    waiting = {
        Origin(payload["session"], payload["sequence"])
        for payload in jobs.list_payloads(tx, claim.owner, claim.kind)
    }
    said = sessions.list_user_turns(tx, claim.owner, position)
    learned = [origin for origin in said if origin not in waiting]
    return LaterTurns(
        tuple(learned[:MAX_LATER_TURNS]),
        complete=len(learned) <= MAX_LATER_TURNS,
        retried=overtaken == jobs.OVERTAKEN_WAITING,
    )


def read_turn_entry(tx: Transaction, owner: Owner, origin: Origin) -> LogEntry | None:
    """Read the entry of a turn that may be learned from; None if it was erased."""
    entry = sessions.find_event_entry(tx, owner, origin)
    if entry is None or entry.body is None or entry.trust in UNTRUSTED:
        return None
    return entry


# -- statements -----------------------------------------------------------------------------------


class Slot(NamedTuple):
    """A property with one value at a time: a later statement about it replaces an earlier one."""

    category: str
    subject: str
    relation: str

    def holds(self, memory: Memory) -> bool:
        """Whether a memory of this subject is the value of the slot, in whatever category.

        If the rules do not know its wording, only a memory of the same category is, and only if no
        person wrote it and it is about the user: there are many facts about other people.
        """
        relation = relation_of(memory.content, memory.subject or "")
        if relation:
            return relation == self.relation
        if memory.category != self.category:
            return False
        is_users_own = self.category != "person" or memory.subject in USER_SUBJECTS
        return is_users_own and memory.trust != "person"


def statement_slot(statement: Statement) -> Slot | None:
    """Return the slot by which a statement is replaced or retracted."""
    subject = subject_key(statement.subject)
    if subject is None:
        return None
    return Slot(statement.category, subject, statement.relation)


def mentions(content: str, retraction: Statement) -> bool:
    """Whether a content states the value that a statement retracts.

    Values are compared whole: who left York has not left New York. A retraction without a value
    ends whatever its subject had.
    """
    if retraction.value is None:
        return True
    value = _value_key(retraction.value)
    if not value:
        return False
    read = read_content(content, retraction.subject or "")
    if read:
        return any(_value_key(each.value or "") == value for each in read)
    words = _value_key(_LABEL.sub("", content))
    return f" {value} " in f" {words} "


def _value_key(value: str) -> str:
    """Return the words of a value, folded, without a leading article."""
    return " ".join(_WORD.findall(_ARTICLE.sub("", nfkc_casefold(value))))


class StillValid(NamedTuple):
    """The statements of a turn that are still true after later turns.

    ``ended`` are the slots that later turns retract. The turn had replaced the earlier value of
    such a slot, so that value is no longer true either.
    """

    statements: list[Statement]
    ended: frozenset[Slot] = frozenset()


def still_valid(statements: Sequence[Statement], later: Sequence[Statement]) -> StillValid:
    """Leave out the statements that later ones replace, retract, repeat or extend."""
    values = {
        slot: each
        for each in statements
        if each.single_valued and not each.retracts
        if (slot := statement_slot(each)) is not None
    }
    ended = frozenset(
        slot
        for slot, value in values.items()
        if _is_retracted(value, later) and not _is_replaced(value, later)
    )
    return StillValid(
        [
            each
            for each in statements
            if not (_is_retracted(each, later) or _is_replaced(each, later))
            if not _is_restated(each, later)
            if statement_slot(each) not in ended or not (each.single_valued or each.retracts)
        ],
        ended,
    )


def _is_retracted(statement: Statement, later: Sequence[Statement]) -> bool:
    return not statement.retracts and any(
        mentions(statement.content, each) for each in _about_same(statement, later) if each.retracts
    )


def _is_restated(statement: Statement, later: Sequence[Statement]) -> bool:
    """Whether a later statement says again what this one retracts."""
    return statement.retracts and any(
        mentions(each.content, statement)
        for each in _about_same(statement, later)
        if not each.retracts
    )


def _is_replaced(statement: Statement, later: Sequence[Statement]) -> bool:
    return not statement.retracts and any(
        (each.single_valued and statement.single_valued)
        or is_part_of(statement.content, each.content)
        for each in _about_same(statement, later)
        if not each.retracts
    )


def _about_same(statement: Statement, later: Sequence[Statement]) -> list[Statement]:
    slot = statement_slot(statement)
    return [] if slot is None else [each for each in later if statement_slot(each) == slot]


def is_part_of(content: str, other: str) -> bool:
    """Whether another content says all of a content and more, in the same words."""
    return _words(content) < _words(other)


def _words(content: str) -> set[str]:
    return set(nfkc_casefold(content).split())


# -- memories -------------------------------------------------------------------------------------


def taught_position(tx: Transaction, owner: Owner, entry: LogEntry) -> int | None:
    """Return the position of the event that a version was learned from; None if it is unknown.

    For a version that a person wrote it is the version's own position.
    """
    if entry.trust == "person":
        return entry.position
    if entry.origin is None:
        return None
    for each in learning_owners(tx, owner):
        source = sessions.find_event_entry(tx, each, entry.origin)
        if source is not None:
            return source.position
    return None


class KnownOfSubject(NamedTuple):
    """The newest memory of a slot learned before a turn, and whether one was learned after it.

    A value is preferred to an end, such as "no longer works at Bosch". ``ends`` are the other ends,
    which a new value replaces as well.
    """

    memory: Memory | None
    taught_later: bool
    ends: tuple[Memory, ...] = ()


def find_known(
    tx: Transaction, owner: Owner, slot: Slot, position: int, now: int
) -> KnownOfSubject:
    """Find the living memory of a slot that a turn at this position changes.

    A memory whose ``valid_to`` is over is no value of the slot any more: it stays as it is.
    """
    known = [
        (taught, memory)
        for taught, memory in _list_taught(tx, owner, slot, now)
        if slot.holds(memory) and not memory.has_ended(now)
    ]
    earlier = [each for each in known if each[0] <= position]
    newest = max(earlier, key=lambda each: (not is_end(each[1]), each[0]), default=(0, None))[1]
    taught_later = any(taught > position and not is_end(memory) for taught, memory in known)
    ends = (memory for _, memory in earlier if is_end(memory) and memory is not newest)
    return KnownOfSubject(newest, taught_later, tuple(ends))


def is_end(memory: Memory) -> bool:
    """Whether a memory only says that something is no longer true, in the words of the rules."""
    return ENDED in memory.content


def find_refined(
    tx: Transaction, owner: Owner, slot: Slot, content: str, position: int, now: int
) -> Memory | None:
    """Find a memory, taught up to this position, that says a part of what a content says."""
    return next(
        (
            memory
            for taught, memory in _list_taught(tx, owner, slot, now)
            if taught <= position and is_part_of(memory.content, content)
        ),
        None,
    )


def _list_taught(tx: Transaction, owner: Owner, slot: Slot, now: int) -> list[tuple[int, Memory]]:
    """List the living memories of a subject, in any category, the newest first.

    Each comes with the position of the event it was learned from; 0 if that is unknown. A person
    may have moved a memory to another category, and earlier rules used others.
    """
    chosen = Filter(subject_key=slot.subject, alive_at=now)
    entries = [
        index_check.read_current(tx, each, place)
        for each in learning_owners(tx, owner)
        for place in index.list_memories(tx, each, chosen, limit=MAX_OF_SUBJECT)
    ]
    entries.sort(key=lambda entry: -entry.position)
    return [(taught_position(tx, owner, each) or 0, each.state(None)) for each in entries]


def is_any_changed(tx: Transaction, owner: Owner, slots: Iterable[Slot | None], seen: int) -> bool:
    """Whether a memory of these subjects was written after a position."""
    return any(
        place.position > seen
        for slot in slots
        if slot is not None
        for each in learning_owners(tx, owner)
        for place in index.list_memories(
            tx,
            each,
            Filter(subject_key=slot.subject, include_forgotten=True),
        )
    )


def entries_taught_later(
    tx: Transaction, owner: Owner, position: int, actor: str
) -> list[LogEntry]:
    """Read the versions that ``actor`` learned from events after a position."""
    return [
        entry
        for each in learning_owners(tx, owner)
        for entry in log.entries_by_actor(tx, each, position, actor)
        if (taught_position(tx, owner, entry) or 0) > position
    ]
