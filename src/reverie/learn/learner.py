"""Learning from one turn: what the user said becomes changes of what is remembered.

A job on the agenda. The turn itself is stored long before; whatever a model does or fails to do
here, the turn stays, and the job is tried again until it is parked where people see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reverie.agenda.jobs import Claim
from reverie.engine import index, log, sessions
from reverie.engine.index import Filter
from reverie.errors import ModelFailed
from reverie.learn import changes, prompts
from reverie.learn.changes import UNRECONCILED, Change, Stale, Turn
from reverie.learn.llm import open_model
from reverie.learn.prompts import Decision, Fact
from reverie.learn.rules import patterns
from reverie.learn.rules.own_words import own_words
from reverie.model import Memory, Origin, Trust
from reverie.protocols import ChatModel, Owner, Transaction
from reverie.recall import recall
from reverie.text.messages import said_by_user
from reverie.text.normalize import folded, subject_key
from reverie.write import writer
from reverie.write.runtime import Resources

RULES = "rules"
NEIGHBOURS = 5
# How often changes are planned anew within one job when memories change meanwhile.
MOST_PLANS = 3
# How often reconciling is tried before the facts are added as they are.
ENOUGH_TRIES = 5
EARLIER_EVENTS = 4
EARLIER_CHARS = 500
# Never in the words of the turn: those must go when the turn is erased.
NO_LONGER = "a later turn says that it is no longer so"


def learn(resources: Resources, claim: Claim) -> None:
    """What a ``learn`` job does."""
    turn = _read(resources, claim)
    how = resources.settings.learning
    # Of a turn without words of the person's own a model is not even asked.
    if turn is None or how == "off" or not turn.own.stretches:
        with resources.engine.write() as tx:
            tx.enter(claim.owner)
            claim.finish(tx)
    elif how == "rules":
        _by_rules(resources, claim, turn)
    else:
        _by_model(resources, claim, turn)


def _read(resources: Resources, claim: Claim) -> Turn | None:
    """The turn, unless it was erased since."""
    origin = Origin(claim.payload["session"], claim.payload["sequence"])
    with resources.engine.read() as tx:
        tx.enter(claim.owner)
        entry = sessions.entry_of(tx, claim.owner, origin)
        if entry is None or entry.body is None:
            return None
        text = said_by_user(entry.body["message"])
        before = sessions.around(
            tx, claim.owner, None, sessions.event_of(entry, None), EARLIER_EVENTS, 0
        )[:-1]
    earlier = tuple(
        (event.role, event.text[:EARLIER_CHARS])
        for event in before
        if event.role in {"user", "assistant"} and event.text.strip()
        if not (event.role == "user" and own_words(event.text).withheld)
    )
    readable = text.encode("utf-8", "replace").decode()
    requests = tuple(patterns.requests(readable))
    own = own_words(readable)
    return Turn(origin, entry.position, readable, earlier, bool(requests), own, requests)


# -- by rules -------------------------------------------------------------------------------------


def _by_rules(resources: Resources, claim: Claim, turn: Turn) -> None:
    statements = patterns.statements(turn.text) or _corrected(turn)
    for _ in range(MOST_PLANS):
        with resources.engine.read() as tx:
            tx.enter(claim.owner)
            seen = log.last_position(tx, claim.owner)
            planned = by_rules(tx, claim.owner, statements, resources.clock.now())
        if _applied(resources, claim, turn, planned, seen, "agent", RULES):
            return
    raise Stale("memories kept changing while a turn was learned from")


def _corrected(turn: Turn) -> list[patterns.Statement]:
    """Return what a turn like "I meant Milan" makes of what the user said just before."""
    said = [text for role, text in turn.earlier if role == "user"]
    return patterns.corrected(said[-1], turn.text) if said else []


def by_rules(
    tx: Transaction, owner: Owner, statements: Sequence[patterns.Statement], now: int
) -> list[Change]:
    """Statements as changes. What is said later of the same subject takes the earlier's place."""
    planned: dict[object, Change] = {}
    for number, statement in enumerate(statements):
        subject = subject_key(statement.subject)
        if subject is None or not (statement.single or statement.retracts):
            planned[number] = _addition(statement)
            continue
        slot = (statement.category, subject)
        before = planned.get(slot)
        known = before.target if before else _of_subject(tx, owner, *slot, now)
        if not statement.retracts:
            planned[slot] = _replacement(statement, known)
        elif before is not None and before.event == "ADD":
            if _mentions(before.content, statement):
                del planned[slot]
        elif known is not None and _mentions(
            before.content if before else known.content, statement
        ):
            planned[slot] = Change("DELETE", "", target=known, reason=NO_LONGER)
    return list(planned.values())


def _addition(statement: patterns.Statement) -> Change:
    return Change(
        "ADD",
        statement.content,
        statement.category,
        statement.subject,
        explicit=statement.explicit,
    )


def _replacement(statement: patterns.Statement, known: Memory | None) -> Change:
    """A subject that has one value at a time gets a new version of the same memory."""
    added = _addition(statement)
    return added if known is None else replace(added, event="UPDATE", target=known)


def _mentions(content: str, statement: patterns.Statement) -> bool:
    value = folded(statement.value or "")
    return bool(value) and value in folded(content)


def _of_subject(
    tx: Transaction, owner: Owner, category: str, subject: str, now: int
) -> Memory | None:
    place = index.find_subject(tx, owner, category, subject, now)
    return None if place is None else writer.current_entry(tx, owner, place).state(None)


# -- by a model -----------------------------------------------------------------------------------


def _by_model(resources: Resources, claim: Claim, turn: Turn) -> None:
    model = open_model(resources.settings)
    assert model is not None
    facts = prompts.extract(
        model,
        turn.own.marked,
        turn.earlier,
        fact_chars=resources.settings.fact_chars,
        stated=turn.own.text,
    )
    if turn.explicit and not facts:
        # The user asked for it to be kept, whatever the model thinks of it.
        _by_rules(resources, claim, turn)
        return
    for _ in range(MOST_PLANS):
        with resources.engine.read() as tx:
            tx.enter(claim.owner)
            seen = log.last_position(tx, claim.owner)
        planned = _planned(resources, claim, model, turn, facts)
        if _applied(resources, claim, turn, planned, seen, "model", model.name):
            return
    raise Stale("memories kept changing while a turn was learned from")


def _planned(
    resources: Resources, claim: Claim, model: ChatModel, turn: Turn, facts: Sequence[Fact]
) -> list[Change]:
    known = _neighbours(resources, claim.owner, facts)
    try:
        decisions = prompts.decide(model, facts, [memory.content for memory in known])
    except ModelFailed as error:
        if claim.attempts < ENOUGH_TRIES:
            raise
        return [_unreconciled(fact, turn, error) for fact in facts]
    return plan(facts, known, decisions, turn.explicit, resources.settings.fact_chars)


def _unreconciled(fact: Fact, turn: Turn, error: ModelFailed) -> Change:
    return Change(
        "ADD",
        fact.content,
        fact.category,
        fact.subject,
        explicit=turn.explicit,
        tags=(UNRECONCILED,),
        reason=f"not reconciled with what was known: {error}"[:500],
    )


def plan(
    facts: Sequence[Fact],
    known: Sequence[Memory],
    decisions: Sequence[Decision],
    explicit: bool,
    fact_chars: int,
) -> list[Change]:
    """Decisions as changes. A fact that no decision keeps is added all the same."""
    planned: list[Change] = []
    kept: set[int] = set()
    # What takes the place of something deleted is an update in all but name: it never asks.
    replaces = [
        tuple(
            known[each.id].id
            for each in decisions
            if each.event == "DELETE" and each.id is not None and each.fact in {number, None}
        )
        for number in range(len(facts))
    ]
    for decision in decisions:
        target = None if decision.id is None else known[decision.id]
        if decision.event == "DELETE":
            planned.append(Change("DELETE", "", target=target, reason=NO_LONGER))
            continue
        assert decision.fact is not None
        kept.add(decision.fact)
        fact = facts[decision.fact]
        if decision.event != "NONE":
            content = decision.content or fact.content
            planned.append(
                Change(
                    decision.event,
                    content if len(content) <= fact_chars else fact.content,
                    fact.category,
                    fact.subject,
                    target=target if decision.event == "UPDATE" else None,
                    explicit=explicit or bool(replaces[decision.fact]),
                    replaces=replaces[decision.fact],
                )
            )
    return planned + [
        Change(
            "ADD",
            fact.content,
            fact.category,
            fact.subject,
            explicit=explicit or bool(replaces[number]),
            replaces=replaces[number],
        )
        for number, fact in enumerate(facts)
        if number not in kept
    ]


def _neighbours(resources: Resources, owner: Owner, facts: Sequence[Fact]) -> list[Memory]:
    """What the owner knows that is nearest to the facts, each once."""
    found: dict[str, Memory] = {}
    for fact in facts:
        query = recall.Query(fact.content, NEIGHBOURS, chosen=Filter(kinds=("fact",)))
        eye = recall.open_eye(resources, query)
        for hit in recall.recall(resources, {owner: None}, query, eye):
            if hit.memory is not None:
                found[hit.memory.id] = hit.memory
    return list(found.values())


# -- applying -------------------------------------------------------------------------------------


def _applied(
    resources: Resources,
    claim: Claim,
    turn: Turn,
    planned: Sequence[Change],
    seen: int,
    trust: Trust,
    source: str,
) -> bool:
    """Write the changes and end the job in one transaction; False when they were stale."""
    prepared = changes.prepare(resources, planned, source)
    try:
        with resources.engine.write() as tx:
            tx.enter(claim.owner)
            index.require_rules(tx)
            if prepared and sessions.entry_of(tx, claim.owner, turn.origin) is not None:
                changes.apply(tx, resources, claim.owner, trust, turn, prepared, seen, source)
            claim.finish(tx)
    except Stale:
        return False
    return True
