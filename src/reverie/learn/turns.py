"""Learning from one turn: what the user said becomes changes of what is remembered.

A job on the agenda. The turn itself is stored long before; whatever a model does or fails to do
here, the turn stays, and the job is tried again until it is parked where people see it.
"""

from __future__ import annotations

from collections.abc import Sequence

from reverie.agenda.jobs import Claim
from reverie.engine import index, log, sessions
from reverie.engine.index import Filter
from reverie.errors import ModelFailed
from reverie.learn import asking, changes, rules
from reverie.learn.asking import Decision, Fact
from reverie.learn.changes import UNRECONCILED, Change, Stale, Turn
from reverie.learn.llm import open_model
from reverie.memory import recall, writes
from reverie.memory.resources import Resources
from reverie.model import Memory, Origin, Trust
from reverie.protocols import ChatModel, Owner, Transaction
from reverie.text.messages import said_by_user
from reverie.text.normalise import folded, subject_key

RULES = "rules"
NEIGHBOURS = 5
# How often changes are planned anew within one job when memories change meanwhile.
MOST_PLANS = 3
# How often reconciling is tried before the facts are added as they are.
ENOUGH_TRIES = 5
EARLIER_EVENTS = 4
EARLIER_CHARS = 500


def learn(resources: Resources, claim: Claim) -> None:
    """What a ``learn`` job does."""
    turn = _read(resources, claim)
    how = resources.settings.learning
    if turn is None or how == "off":
        with resources.engine.write() as tx:
            claim.finish(tx)
    elif how == "rules":
        _by_rules(resources, claim, turn)
    else:
        _by_model(resources, claim, turn)


def _read(resources: Resources, claim: Claim) -> Turn | None:
    """The turn, unless it was erased since."""
    origin = Origin(claim.payload["session"], claim.payload["sequence"])
    with resources.engine.read() as tx:
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
    )
    readable = text.encode("utf-8", "replace").decode()
    return Turn(origin, entry.position, readable, earlier, rules.asks_to_remember(readable))


# -- by rules -------------------------------------------------------------------------------------


def _by_rules(resources: Resources, claim: Claim, turn: Turn) -> None:
    statements = rules.statements(turn.text)
    for _ in range(MOST_PLANS):
        with resources.engine.read() as tx:
            now = resources.clock.now()
            planned = [
                change
                for statement in statements
                if (change := _by_rule(tx, claim.owner, statement, now)) is not None
            ]
        if _applied(resources, claim, turn, planned, "agent", RULES):
            return
    raise Stale("memories kept changing while a turn was learned from")


def _by_rule(tx: Transaction, owner: Owner, statement: rules.Statement, now: int) -> Change | None:
    """A subject that has one value at a time gets a new version; anything else is added."""
    subject = subject_key(statement.subject)
    known: Memory | None = None
    if subject is not None and (statement.single or statement.retracts):
        place = index.find_subject(tx, owner, statement.category, subject, now)
        if place is not None:
            known = writes.current_entry(tx, owner, place).state(None)
    if statement.retracts:
        value = folded(statement.value or "")
        if known is None or not value or value not in folded(known.content):
            return None
        return Change("DELETE", "", target=known, reason=f"no longer so: {statement.content}")
    return Change(
        "ADD" if known is None else "UPDATE",
        statement.content,
        statement.category,
        statement.subject,
        target=known,
        explicit=statement.explicit,
    )


# -- by a model -----------------------------------------------------------------------------------


def _by_model(resources: Resources, claim: Claim, turn: Turn) -> None:
    model = open_model(resources.settings)
    assert model is not None
    facts = asking.extract(model, turn.text, turn.earlier, fact_chars=resources.settings.fact_chars)
    for _ in range(MOST_PLANS):
        planned = _planned(resources, claim, model, turn, facts)
        if _applied(resources, claim, turn, planned, "model", model.name):
            return
    raise Stale("memories kept changing while a turn was learned from")


def _planned(
    resources: Resources, claim: Claim, model: ChatModel, turn: Turn, facts: Sequence[Fact]
) -> list[Change]:
    known = _neighbours(resources, claim.owner, facts)
    try:
        decisions = asking.decide(model, facts, [memory.content for memory in known])
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
    for decision in decisions:
        target = None if decision.id is None else known[decision.id]
        if decision.event == "DELETE":
            why = "a model found it no longer true"
            if decision.fact is not None:
                why = f"contradicted by: {facts[decision.fact].content}"
            planned.append(Change("DELETE", "", target=target, reason=why))
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
                    explicit=explicit,
                )
            )
    return planned + [
        Change("ADD", fact.content, fact.category, fact.subject, explicit=explicit)
        for number, fact in enumerate(facts)
        if number not in kept
    ]


def _neighbours(resources: Resources, owner: Owner, facts: Sequence[Fact]) -> list[Memory]:
    """What the owner knows that is nearest to the facts, each once."""
    found: dict[str, Memory] = {}
    for fact in facts:
        query = recall.Query(fact.content, NEIGHBOURS, chosen=Filter(kinds=("fact",)))
        for hit in recall.recall(resources, {owner: None}, query):
            if hit.memory is not None:
                found[hit.memory.id] = hit.memory
    return list(found.values())


# -- applying -------------------------------------------------------------------------------------


def _applied(
    resources: Resources,
    claim: Claim,
    turn: Turn,
    planned: Sequence[Change],
    trust: Trust,
    source: str,
) -> bool:
    """Write the changes and end the job in one transaction; False when they were stale."""
    prepared = changes.prepare(resources, planned, source)
    try:
        with resources.engine.write() as tx:
            log.lock(tx, claim.owner.space)
            index.require_rules(tx)
            if sessions.entry_of(tx, claim.owner, turn.origin) is not None:
                changes.apply(tx, resources, claim.owner, trust, turn, prepared, source)
            claim.finish(tx)
    except Stale:
        return False
    return True
