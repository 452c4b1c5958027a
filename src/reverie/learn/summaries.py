"""The rolling summary of a session: written when the history fills its part of the context.

A job of its own, so that a summary that fails stops nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reverie.agenda.jobs import Claim
from reverie.engine import index_check, sessions
from reverie.learn import prompts
from reverie.learn.llm import open_model
from reverie.model import Summary
from reverie.prompt.context import cost
from reverie.protocols import Owner, Transaction
from reverie.text.messages import calls_of, without_system
from reverie.text.normalize import one_line
from reverie.write import events, session_state, vault_link
from reverie.write.runtime import Resources

TRIGGER = 0.80
TARGET = 0.50
LEAST_TURNS = 4
LEAVE = 2
MOST_LINES = 24
LINE_CHARS = 180
MOST_CHARS = 4000

_HEADING = "Recent condensed turns:"
_CUT = "..."
# Roles are short words; a longer one would push out what was said.
_ROLE_CHARS = 24


class Said(NamedTuple):
    """One message, as far as a summary looks at it; ``calls`` are the names of tools called."""

    sequence: int
    role: str
    text: str
    calls: tuple[str, ...]
    tokens: int


class Condensed(NamedTuple):
    """A summary, and the sequence of the last message that it covers."""

    text: str
    upper: int


def is_due(unsummarised: Sequence[Said], window: int) -> bool:
    """Whether there are enough messages, and they fill more of the window than TRIGGER."""
    if window < 1:
        raise ValueError(f"window must be positive, not {window}")
    # Dividing is exact where it matters: 0.8 * window can fall on either side of four fifths.
    return len(unsummarised) >= LEAST_TURNS and _tokens(unsummarised) / window > TRIGGER


def chosen(unsummarised: Sequence[Said], window: int) -> Sequence[Said]:
    """The oldest messages, so many that the rest fills at most TARGET of the window."""
    if window < 1:
        raise ValueError(f"window must be positive, not {window}")
    rest = _tokens(unsummarised)
    count = 0
    while count < len(unsummarised) - LEAVE and rest / window > TARGET:
        rest -= unsummarised[count].tokens
        count += 1
    return unsummarised[:count]


def condense(previous: str, said: Sequence[Said]) -> Condensed:
    """The previous summary with the first MOST_LINES messages added, a line for each."""
    if not said:
        raise ValueError("there is nothing to condense")
    taken = said[:MOST_LINES]
    added = _fitting(taken)
    return Condensed(_newest(f"{previous}\n{added}" if previous else added), taken[-1].sequence)


def condensed(previous: str, unsummarised: Sequence[Said], window: int) -> Condensed | None:
    """The summary that makes room in the window, or None when there is room."""
    if not is_due(unsummarised, window):
        return None
    oldest = chosen(unsummarised, window)
    summary = condense(previous, oldest)
    for start in range(MOST_LINES, len(oldest), MOST_LINES):
        summary = condense(summary.text, oldest[start:])
    return summary


def _tokens(said: Sequence[Said]) -> int:
    return sum(message.tokens for message in said)


def _newest(summary: str) -> str:
    """The summary without its oldest text when it is too long; dots show that there was more."""
    kept = summary.removeprefix(_CUT)[-MOST_CHARS:]
    return summary if kept == summary else _CUT + kept


def _fitting(said: Sequence[Said]) -> str:
    """A heading and a line for each message; all are cut alike when they would not fit."""
    heads = [
        f"- [{message.sequence}] {_clipped(one_line(message.role), _ROLE_CHARS)}: "
        for message in said
    ]
    texts = [_words(message) for message in said]
    limit = LINE_CHARS
    while len(added := _listed(heads, texts, limit)) > MOST_CHARS and limit > 0:
        limit -= 1
    return added


def _listed(heads: Sequence[str], texts: Sequence[str], limit: int) -> str:
    lines = [head + _clipped(text, limit) for head, text in zip(heads, texts, strict=True)]
    return "\n".join([_HEADING, *lines])


def _words(message: Said) -> str:
    calls = ", ".join(message.calls)
    return one_line(message.text) or one_line(f"[tool calls: {calls}]" if calls else "[no text]")


def _clipped(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[:limit] + _CUT


# What one question to a model holds; the rest is for the next.
MOST_TURNS = 50
TURN_CHARS = 2_000


def summarise(resources: Resources, claim: Claim) -> None:
    """What a ``summarise`` job does. A summary written meanwhile by another wins."""
    session, owner = claim.payload["session"], claim.owner
    with resources.engine.read() as tx:
        tx.enter(owner)
        current = session_state.summary_of(tx, owner, sessions.lineage(tx, owner, session))
        said = unsummarised(tx, owner, session, current)
    made = _made(resources, current, said)
    if made is not None:
        made = made._replace(text=resources.redaction.quiet(made.text, "a summary"))
    with resources.engine.write() as tx:
        tx.enter(owner)
        if made is not None and sessions.find(tx, owner, session) is not None:
            session_state.write_summary(tx, owner, session, made.text, made.upper, current.epoch)
            vault_link.await_summary(tx, resources, owner, session)
        claim.finish(tx)
        if made is not None:
            events.await_summary(tx, resources, owner, session)


def unsummarised(tx: Transaction, owner: Owner, session: str, current: Summary) -> list[Said]:
    """The messages of a session that its summary does not cover yet."""
    from reverie.embed.tokens import count_tokens

    found = []
    stretches = sessions.lineage(tx, owner, session)
    spots = sessions.spots(tx, owner, stretches, after=current.upper)
    for entry in index_check.events(tx, owner, spots):
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
    if settings.summarising == "off" or not is_due(said, window):
        return None
    if settings.summarising == "condense":
        return condensed(current.text, said, window)
    model = open_model(settings)
    assert model is not None
    oldest = chosen(said, window)[:MOST_TURNS]
    turns = [(each.role, each.text[:TURN_CHARS] or f"[{', '.join(each.calls)}]") for each in oldest]
    return Condensed(prompts.summarise(model, current.text, turns), oldest[-1].sequence)
