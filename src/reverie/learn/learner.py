"""Learn from one turn: read the user's message, plan changes of memories, and apply them.

It runs as a job. The turn itself was stored before; whatever a model does or fails to do here, the
turn stays, and the job is retried until it is parked where people can see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reverie.agenda.jobs import Claim, ParkJob
from reverie.engine import index, index_check, log, sessions
from reverie.engine.index import Filter
from reverie.errors import ModelFailed
from reverie.learn import changes, overtaken, prompts
from reverie.learn.changes import UNRECONCILED, PlannedChange, StalePlan, UserTurn
from reverie.learn.llm import CallLimit, open_model
from reverie.learn.overtaken import LaterTurns, Slot
from reverie.learn.prompts import Decision, Fact
from reverie.learn.rules import statements as rules
from reverie.learn.rules.own_words import find_own_words
from reverie.learn.rules.sentences import ignoring_case
from reverie.model import Memory, Origin, Trust, to_datetime
from reverie.prompt.consent import asks_first
from reverie.protocols import ChatModel, Owner, Transaction
from reverie.recall import recall
from reverie.recall.query import Query
from reverie.text.messages import user_text
from reverie.text.normalize import nfkc_casefold, replace_surrogates
from reverie.write.owners import learning_owners
from reverie.write.runtime import Runtime
from reverie.write.writer import LEARNER, Author, Writer

RULES_SOURCE = "rules"
MAX_NEIGHBORS = 5
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
# How often one job plans its changes again when memories change meanwhile.
MAX_PLANS = 3
# After this many attempts of the job, facts are added without reconciling them with memories.
MAX_RECONCILE_TRIES = 5
# How many requests are sent to a model for one turn, over all attempts of its job. Five attempts
# that fail on the second question use them up: one request for the facts, three for decisions.
MAX_CALLS = 20
EARLIER_EVENTS = 4
EARLIER_CHARS = 500
# Words by which people say that they are not sure of what they say. Without them it is a statement.
_HEDGE = ignoring_case(
    r",? ?\b(?:i (?:think|guess|believe|suppose|assume)(?: that)?|"
    r"i'm (?:pretty|fairly|quite|almost) sure(?: that)?|"
    r"(?:i'm )?not (?:quite |entirely )?sure,? but|if i remember (?:right|correctly)|"
    r"maybe|perhaps|probably|possibly|presumably|most likely)\b,? ?"
)
# A fixed text: words of the turn would survive in the log when the turn is erased.
RETRACTED_REASON = "a later turn says that it is no longer so"


def learn(runtime: Runtime, claim: Claim) -> None:
    """Run a ``learn`` job: learn from the turn that its payload names, by rules or by a model."""
    origin = Origin(claim.payload["session"], claim.payload["sequence"])
    with runtime.engine.read() as tx:
        tx.enter(claim.owner)
        turn = _read_turn(tx, claim.owner, origin)
    how = runtime.settings.learn_mode
    # A turn without words of the person's own is never sent to a model.
    if turn is None or how == "off" or not turn.own.segments:
        with runtime.engine.write() as tx:
            tx.enter(claim.owner)
            claim.finish(tx)
    elif how == "rules":
        _learn_by_rules(runtime, claim, turn)
    else:
        _learn_by_model(runtime, claim, turn)


def _read_turn(tx: Transaction, owner: Owner, origin: Origin) -> UserTurn | None:
    """Read a turn and the turns before it, or return None when it may not be learned from."""
    entry = overtaken.read_turn_entry(tx, owner, origin)
    if entry is None or entry.body is None:
        return None
    text = user_text(entry.body["message"])
    before = index_check.read_surrounding_events(
        tx, owner, None, sessions.event_from_entry(entry, None), EARLIER_EVENTS, 0
    )[:-1]
    earlier = tuple(
        (event.role, event.text[:EARLIER_CHARS])
        for event in before
        if event.role in {"user", "assistant"} and event.text.strip()
        if not (event.role == "user" and find_own_words(event.text).opted_out)
    )
    readable = replace_surrogates(text)
    requests = tuple(rules.extract_requests(readable))
    own = find_own_words(readable)
    return UserTurn(
        *(origin, entry.position, readable, earlier, bool(requests), own, requests),
        said_at=entry.body["at"],
    )


class LearningPlan(NamedTuple):
    """The changes planned from one turn, and the state of the store that they were planned on.

    ``seen`` is the last log position when they were planned, ``later`` are the turns that came
    after this one but were learned before it, ``retracted`` are the slots that this turn or later
    turns end.
    """

    changes: Sequence[PlannedChange]
    seen: int
    later: LaterTurns
    trust: Trust
    source: str
    retracted: frozenset[Slot | None] = frozenset()


# -- by rules -------------------------------------------------------------------------------------


def _learn_by_rules(runtime: Runtime, claim: Claim, turn: UserTurn) -> None:
    statements = read_statements(turn)
    for _ in range(MAX_PLANS):
        with runtime.engine.read() as tx:
            tx.enter(claim.owner)
            seen = log.last_position(tx, claim.owner)
            later = overtaken.list_later_turns(tx, claim, turn.position)
            valid = overtaken.still_valid(statements, _later_statements(tx, claim, later))
            now = runtime.clock.now()
            planned = plan_by_rules(tx, claim.owner, valid.statements, turn.position, now)
            ends = _plan_ends(tx, claim.owner, valid.ended, turn.position, now)
            doubtful = _doubtful_changes(tx, runtime, claim.owner, turn)
        if later.complete:
            planned += ends
        else:
            planned = [replace(each, doubt=changes.SAID_SINCE) for each in planned]
        planned += doubtful
        retracted = (overtaken.statement_slot(each) for each in valid.statements if each.retracts)
        slots = valid.ended.union(retracted)
        plan = LearningPlan(planned, seen, later, "agent", RULES_SOURCE, slots)
        if _try_apply(runtime, claim, turn, plan):
            return
    raise StalePlan("memories kept changing while a turn was learned from")


def _doubtful_changes(
    tx: Transaction, runtime: Runtime, owner: Owner, turn: UserTurn
) -> list[PlannedChange]:
    """Return the statements that a turn makes with doubt, to be proposed if proposals are on."""
    if not asks_first(runtime.settings.write_policy):
        return []
    certain = {each.content for each in read_statements(turn)}
    without_hedges = _HEDGE.sub(" ", turn.own.text)
    doubtful = [
        each
        for each in _known_when_said(rules.extract_statements(without_hedges), turn.said_at)
        if each.content not in certain and not each.retracts
    ]
    planned = plan_by_rules(tx, owner, doubtful, turn.position, runtime.clock.now())
    # A proposal forgets nothing.
    return [replace(each, doubt=changes.DOUBTFUL) for each in planned if each.event != "DELETE"]


def read_statements(turn: UserTurn) -> list[rules.Statement]:
    """Return the statements that the rules find in a turn."""
    statements = rules.extract_statements(turn.text) or _read_correction(turn)
    return [
        each
        for stated in _known_when_said(statements, turn.said_at)
        for each in (_with_day(stated, turn.said_at), *rules.implied_ends(stated))
    ]


def _known_when_said(
    statements: Iterable[rules.Statement], said_at: int
) -> Iterator[rules.Statement]:
    """Yield the statements, without what their dates claim beyond the moment they were said.

    "From 2020 to 2026", said in 2026, was over by then. What only began later is left out.
    """
    for each in statements:
        start, end = each.valid_from, each.valid_to
        if not said_at or start is None:
            yield each
        elif start < said_at:
            yield each if end is None else replace(each, valid_to=min(end, said_at))
        elif end is None:
            yield replace(each, valid_from=None)


def _with_day(statement: rules.Statement, said_at: int) -> rules.Statement:
    """Add the day on which a plan was stated: "on Friday" and "in May" mean nothing without it."""
    if not statement.needs_day or not said_at or _YEAR.search(statement.content):
        return statement
    said = to_datetime(said_at).date().isoformat()
    return replace(statement, content=f"{statement.content} (said on {said})")


def _later_statements(tx: Transaction, claim: Claim, later: LaterTurns) -> list[rules.Statement]:
    turns = (_read_turn(tx, claim.owner, origin) for origin in later.origins)
    return [each for turn in turns if turn is not None for each in read_statements(turn)]


def _read_correction(turn: UserTurn) -> list[rules.Statement]:
    """Return the last statement of the user's previous turn, corrected by a turn such as
    "I meant Milan"."""
    earlier = [text for role, text in turn.earlier if role == "user"]
    asked = bool(turn.earlier) and turn.earlier[-1][0] == "assistant" and "?" in turn.earlier[-1][1]
    if not earlier:
        return []
    return rules.apply_correction(earlier[-1], turn.text, after_question=asked)


def plan_by_rules(
    tx: Transaction,
    owner: Owner,
    statements: Sequence[rules.Statement],
    position: int,
    now: int,
) -> list[PlannedChange]:
    """Turn the statements of a turn at this position into changes.

    Of two about the same slot the later one wins.
    """
    planned: dict[object, PlannedChange] = {}
    for number, statement in enumerate(statements):
        slot = overtaken.statement_slot(statement)
        if slot is None or not (statement.single_valued or statement.retracts):
            refined = (
                None
                if slot is None
                else overtaken.find_refined(tx, owner, slot, statement.content, position, now)
            )
            planned[number] = _replacement(statement, refined)
            continue
        before = planned.get(slot)
        found = overtaken.find_known(tx, owner, slot, position, now)
        known = before.target if before else found.memory
        if not statement.retracts:
            if not found.taught_later:
                planned[slot] = _replacement(statement, known)
                planned.update((end.id, _removal(end)) for end in found.ends)
        elif before is not None and before.event == "ADD":
            if overtaken.mentions(before.content, statement):
                del planned[slot]
        elif known is None:
            # A fact that was never remembered may still be recalled from an earlier turn.
            if not statement.implied and not found.taught_later:
                planned[slot] = _addition(statement)
        elif statement.value is None and overtaken.is_end(known):
            continue
        elif nfkc_casefold(known.content) != nfkc_casefold(
            statement.content
        ) and overtaken.mentions(before.content if before else known.content, statement):
            planned[slot] = _removal(known)
    return list(planned.values())


def _plan_ends(
    tx: Transaction, owner: Owner, ended: Iterable[Slot], position: int, now: int
) -> list[PlannedChange]:
    """Plan to forget the values that this turn replaced, if later turns end its own values."""
    found = (overtaken.find_known(tx, owner, slot, position, now) for slot in sorted(ended))
    return [
        _removal(known.memory)
        for known in found
        if known.memory is not None and not known.taught_later
    ]


def _removal(memory: Memory) -> PlannedChange:
    return PlannedChange("DELETE", "", target=memory, reason=RETRACTED_REASON)


def _addition(statement: rules.Statement) -> PlannedChange:
    return PlannedChange(
        *("ADD", statement.content, statement.category, statement.subject),
        explicit=statement.explicit,
        valid_from=statement.valid_from,
        valid_to=statement.valid_to,
    )


def _replacement(statement: rules.Statement, known: Memory | None) -> PlannedChange:
    """Plan a new version of the ``known`` memory, or a new memory if there is none."""
    added = _addition(statement)
    return added if known is None else replace(added, event="UPDATE", target=known)


# -- by a model -----------------------------------------------------------------------------------


@dataclass(slots=True)
class CallBudget:
    """The calls of a model that are left for one turn, MAX_CALLS over all attempts of its job.

    Each is counted in the job before it is made: the count holds when a worker is killed.
    """

    runtime: Runtime
    claim: Claim
    is_spent: bool = field(default=False, init=False)

    def spend(self) -> None:
        """Count one call; raise CallLimit if none is left."""
        with self.runtime.engine.write() as tx:
            tx.enter(self.claim.owner, alone=False)
            left = self.claim.count_call(tx, MAX_CALLS)
        self.is_spent = left <= 0
        if left < 0:
            raise CallLimit(
                f"gave no usable answer in {MAX_CALLS} calls for one turn, and is not called "
                "again: check the model, then run 'reverie jobs retry'"
            )


def _learn_by_model(runtime: Runtime, claim: Claim, turn: UserTurn) -> None:
    model = open_model(runtime.settings)
    assert model is not None
    budget = CallBudget(runtime, claim)
    try:
        _ask_and_apply(runtime, claim, turn, model, budget)
    except ModelFailed as error:
        if budget.is_spent:
            raise ParkJob("no calls are left for this turn") from error
        raise


def _ask_and_apply(
    runtime: Runtime, claim: Claim, turn: UserTurn, model: ChatModel, budget: CallBudget
) -> None:
    facts = _extract_facts(runtime, turn, model, budget)
    if turn.explicit and not facts:
        # The user asked for something to be remembered, so an empty answer is not accepted.
        _learn_by_rules(runtime, claim, turn)
        return
    for _ in range(MAX_PLANS):
        with runtime.engine.read() as tx:
            tx.enter(claim.owner)
            seen = log.last_position(tx, claim.owner)
            later = overtaken.list_later_turns(tx, claim, turn.position)
            doubtful = _doubtful_changes(tx, runtime, claim.owner, turn)
        planned = _plan_by_model(runtime, model, turn, facts, budget)
        stated = {changes.comparison_key(each.content) for each in facts}
        planned += [each for each in doubtful if changes.comparison_key(each.content) not in stated]
        if _try_apply(
            runtime, claim, turn, LearningPlan(planned, seen, later, "model", model.name)
        ):
            return
    raise StalePlan("memories kept changing while a turn was learned from")


def _extract_facts(
    runtime: Runtime, turn: UserTurn, model: ChatModel, budget: CallBudget
) -> list[Fact]:
    """Ask for the facts of a turn, and once more without the turns before it if that is refused.

    What the service refuses may be in an earlier turn: this one is not lost for it.
    """

    def ask(earlier: Sequence[tuple[str, str]]) -> list[Fact]:
        return prompts.extract_facts(
            model,
            turn.own.text_with_omission,
            earlier,
            fact_chars=runtime.settings.fact_chars,
            stated=turn.own.text,
            before_call=budget.spend,
        )

    try:
        return ask(turn.earlier)
    except ModelFailed as error:
        if not (error.refused and turn.earlier) or budget.is_spent:
            raise
    return ask(())


def _plan_by_model(
    runtime: Runtime, model: ChatModel, turn: UserTurn, facts: Sequence[Fact], budget: CallBudget
) -> list[PlannedChange]:
    claim = budget.claim
    known = _find_similar(runtime, claim.owner, facts)
    contents = [memory.content for memory in known]
    try:
        decisions = prompts.reconcile_facts(model, facts, contents, before_call=budget.spend)
    except ModelFailed as error:
        if claim.attempts < MAX_RECONCILE_TRIES and not budget.is_spent:
            raise
        return [_unreconciled(fact, turn, error) for fact in facts]
    return plan_by_decisions(facts, known, decisions, turn.explicit, runtime.settings.fact_chars)


def _unreconciled(fact: Fact, turn: UserTurn, error: ModelFailed) -> PlannedChange:
    start, end = fact.validity()
    return PlannedChange(
        *("ADD", fact.content, fact.category, fact.subject),
        explicit=turn.explicit,
        tags=(UNRECONCILED,),
        valid_from=start,
        valid_to=end,
        reason=f"not reconciled with what was known: {error}"[:500],
    )


def plan_by_decisions(
    facts: Sequence[Fact],
    known: Sequence[Memory],
    decisions: Sequence[Decision],
    explicit: bool,
    fact_chars: int,
) -> list[PlannedChange]:
    """Turn a model's decisions into changes; a fact without a decision is added."""
    planned: list[PlannedChange] = []
    decided = {each.fact for each in decisions if each.event != "DELETE"}
    undecided = [
        Decision(event="ADD", fact=number) for number in range(len(facts)) if number not in decided
    ]
    # A fact that replaces a deleted memory is an update in effect, so it needs no confirmation.
    replaces = [
        tuple(
            known[each.id].id
            for each in decisions
            if each.event == "DELETE" and each.id is not None and each.fact in {number, None}
        )
        for number in range(len(facts))
    ]
    for decision in (*decisions, *undecided):
        target = None if decision.id is None else known[decision.id]
        if decision.event == "DELETE":
            planned.append(PlannedChange("DELETE", "", target=target, reason=RETRACTED_REASON))
            continue
        assert decision.fact is not None
        fact = facts[decision.fact]
        if decision.event != "NONE":
            change = _decided_change(decision, fact, target, fact_chars)
            replaced = replaces[decision.fact]
            planned.append(replace(change, explicit=explicit or bool(replaced), replaces=replaced))
    return planned


def _decided_change(
    decision: Decision, fact: Fact, target: Memory | None, fact_chars: int
) -> PlannedChange:
    """Turn the decision to add a fact, or to update a memory with it, into a change.

    A fact that holds until some time must not take the place of what holds without an end.
    """
    start, end = fact.validity()
    content = decision.content or fact.content
    if decision.event == "ADD":
        target = None
    elif target is not None and target.valid_to is None and end is not None:
        target, content = None, fact.content
    return PlannedChange(
        "ADD" if target is None else "UPDATE",
        content if len(content) <= fact_chars else fact.content,
        fact.category,
        fact.subject,
        target=target,
        valid_from=start,
        valid_to=end,
    )


def _find_similar(runtime: Runtime, owner: Owner, facts: Sequence[Fact]) -> list[Memory]:
    """Recall the owner's facts that are most similar to the new ones, without duplicates."""
    found: dict[str, Memory] = {}
    with runtime.engine.read() as tx:
        tx.enter(owner)
        owners: dict[Owner, str | None] = dict.fromkeys(learning_owners(tx, owner))
    for fact in facts:
        query = Query(fact.content, MAX_NEIGHBORS, filter=Filter(kinds=("fact",)))
        query_vector = recall.prepare_query_vector(runtime, query)
        for hit in recall.recall(runtime, owners, query, query_vector):
            if hit.memory is not None:
                found[hit.memory.id] = hit.memory
    return list(found.values())


# -- applying -------------------------------------------------------------------------------------


def _try_apply(runtime: Runtime, claim: Claim, turn: UserTurn, plan: LearningPlan) -> bool:
    """Apply the changes and finish the job in one transaction; False when the plan was stale."""
    prepared = changes.prepare(runtime, plan.changes, plan.source)
    try:
        with runtime.engine.write() as tx:
            tx.enter(claim.owner)
            index.require_current_index(tx)
            if overtaken.list_later_turns(tx, claim, turn.position) != plan.later:
                raise StalePlan("a later turn was learned while this one was planned")
            if overtaken.is_any_changed(tx, claim.owner, plan.retracted, plan.seen):
                raise StalePlan("what this turn retracts was learned while it was planned")
            if prepared and sessions.find_event_entry(tx, claim.owner, turn.origin) is not None:
                author = Author(log.scope_of(tx, claim.owner), LEARNER, plan.trust)
                w = Writer(tx, runtime, claim.owner, author)
                # The statements of rules were compared with later turns already. A model saw the
                # known memories, but not that some are newer than the turn.
                late = plan.later.retried and plan.source != RULES_SOURCE
                changes.apply(w, turn, prepared, plan.seen, plan.source, late=late)
            claim.mark_overtaken(tx)
            claim.finish(tx)
    except StalePlan:
        return False
    return True
