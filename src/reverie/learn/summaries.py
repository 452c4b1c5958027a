"""The rolling summary of a session: written when the history fills its part of the context.

A job of its own, so that a summary that fails stops nothing else.
"""

from __future__ import annotations

from reverie.agenda.jobs import Claim
from reverie.engine import agreement, sessions
from reverie.learn import asking, condense
from reverie.learn.condense import Condensed, Said
from reverie.learn.llm import open_model
from reverie.memory import events, states, vaults
from reverie.memory.context import cost
from reverie.memory.resources import Resources
from reverie.model import Summary
from reverie.protocols import Owner, Transaction
from reverie.text.messages import calls_of, without_system

# What one question to a model holds; the rest is for the next.
MOST_TURNS = 50
TURN_CHARS = 2_000


def summarise(resources: Resources, claim: Claim) -> None:
    """What a ``summarise`` job does. A summary written meanwhile by another wins."""
    session, owner = claim.payload["session"], claim.owner
    with resources.engine.read() as tx:
        tx.enter(owner)
        current = states.summary_of(tx, owner, sessions.lineage(tx, owner, session))
        said = unsummarised(tx, owner, session, current)
    made = _made(resources, current, said)
    if made is not None:
        made = made._replace(text=resources.redaction.quiet(made.text, "a summary"))
    with resources.engine.write() as tx:
        tx.enter(owner)
        if made is not None and sessions.find(tx, owner, session) is not None:
            states.write_summary(tx, owner, session, made.text, made.upper, current.epoch)
            vaults.await_summary(tx, resources, owner, session)
        claim.finish(tx)
        if made is not None:
            events.await_summary(tx, resources, owner, session)


def unsummarised(tx: Transaction, owner: Owner, session: str, current: Summary) -> list[Said]:
    """The messages of a session that its summary does not cover yet."""
    from reverie.embed.tokens import count_tokens

    found = []
    stretches = sessions.lineage(tx, owner, session)
    spots = sessions.spots(tx, owner, stretches, after=current.upper)
    for entry in agreement.events(tx, owner, spots):
        event = sessions.event_of(entry, None)
        if without_system(event.message) is None:
            continue
        calls = calls_of(event.message)
        names = tuple(call.name for call in calls)
        text = "" if calls and not _speaks(event.text) else event.text
        tokens = cost(event.message, count_tokens)
        found.append(Said(event.sequence, event.role, text, names, tokens))
    return found


def _speaks(text: str) -> bool:
    """Whether a message says more than which tools it calls."""
    return any(not line.startswith("tool ") for line in text.splitlines())


def _made(resources: Resources, current: Summary, said: list[Said]) -> Condensed | None:
    """The next summary, or None while there is room."""
    settings = resources.settings
    window = settings.history_tokens
    if settings.summarising == "off" or not condense.is_due(said, window):
        return None
    if settings.summarising == "condense":
        return condense.condensed(current.text, said, window)
    model = open_model(settings)
    assert model is not None
    oldest = condense.chosen(said, window)[:MOST_TURNS]
    turns = [(each.role, each.text[:TURN_CHARS] or f"[{', '.join(each.calls)}]") for each in oldest]
    return Condensed(asking.summarise(model, current.text, turns), oldest[-1].sequence)
