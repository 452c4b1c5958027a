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
from reverie.prompt.context import message_tokens
from reverie.protocols import Owner, Transaction
from reverie.text.messages import tool_calls_of, without_system
from reverie.text.normalize import one_line
from reverie.write import events, session_state, vault_link
from reverie.write.runtime import Runtime

TRIGGER_SHARE = 0.80
TARGET_SHARE = 0.50
MIN_EVENTS = 4
MIN_KEPT_EVENTS = 2
MAX_LINES = 24
LINE_CHARS = 180
MAX_CHARS = 4000

_HEADING = "Recent condensed turns:"
_ELLIPSIS = "..."
# Roles are short words; a longer one would push out what was said.
_ROLE_CHARS = 24


class SummaryEvent(NamedTuple):
    """One message, as far as a summary looks at it; ``calls`` are the names of tools called."""

    sequence: int
    role: str
    text: str
    calls: tuple[str, ...]
    tokens: int


class CondensedSummary(NamedTuple):
    """A summary, and the sequence of the last message that it covers."""

    text: str
    upper: int


def is_due(unsummarised: Sequence[SummaryEvent], window: int) -> bool:
    """Whether there are enough messages, and they fill more of the window than TRIGGER."""
    if window < 1:
        raise ValueError(f"window must be positive, not {window}")
    # Dividing is exact where it matters: 0.8 * window can fall on either side of four fifths.
    return len(unsummarised) >= MIN_EVENTS and _tokens(unsummarised) / window > TRIGGER_SHARE


def choose_oldest(unsummarised: Sequence[SummaryEvent], window: int) -> Sequence[SummaryEvent]:
    """The oldest messages, so many that the rest fills at most TARGET of the window."""
    if window < 1:
        raise ValueError(f"window must be positive, not {window}")
    rest = _tokens(unsummarised)
    count = 0
    while count < len(unsummarised) - MIN_KEPT_EVENTS and rest / window > TARGET_SHARE:
        rest -= unsummarised[count].tokens
        count += 1
    return unsummarised[:count]


def condense(previous: str, said: Sequence[SummaryEvent]) -> CondensedSummary:
    """The previous summary with the first MAX_LINES messages added, a line for each."""
    if not said:
        raise ValueError("there is nothing to condense")
    taken = said[:MAX_LINES]
    added = _format_events(taken)
    return CondensedSummary(
        _keep_newest(f"{previous}\n{added}" if previous else added), taken[-1].sequence
    )


def condense_if_due(
    previous: str, unsummarised: Sequence[SummaryEvent], window: int
) -> CondensedSummary | None:
    """The summary that makes room in the window, or None when there is room."""
    if not is_due(unsummarised, window):
        return None
    oldest = choose_oldest(unsummarised, window)
    summary = condense(previous, oldest)
    for start in range(MAX_LINES, len(oldest), MAX_LINES):
        summary = condense(summary.text, oldest[start:])
    return summary


def _tokens(said: Sequence[SummaryEvent]) -> int:
    return sum(message.tokens for message in said)


def _keep_newest(summary: str) -> str:
    """The summary without its oldest text when it is too long; dots show that there was more."""
    kept = summary.removeprefix(_ELLIPSIS)[-MAX_CHARS:]
    return summary if kept == summary else _ELLIPSIS + kept


def _format_events(said: Sequence[SummaryEvent]) -> str:
    """A heading and a line for each message; all are cut alike when they would not fit."""
    heads = [
        f"- [{message.sequence}] {_truncate(one_line(message.role), _ROLE_CHARS)}: "
        for message in said
    ]
    texts = [_event_line(message) for message in said]
    limit = LINE_CHARS
    while len(added := _join_lines(heads, texts, limit)) > MAX_CHARS and limit > 0:
        limit -= 1
    return added


def _join_lines(heads: Sequence[str], texts: Sequence[str], limit: int) -> str:
    lines = [head + _truncate(text, limit) for head, text in zip(heads, texts, strict=True)]
    return "\n".join([_HEADING, *lines])


def _event_line(message: SummaryEvent) -> str:
    calls = ", ".join(message.calls)
    return one_line(message.text) or one_line(f"[tool calls: {calls}]" if calls else "[no text]")


def _truncate(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[:limit] + _ELLIPSIS


# What one question to a model holds; the rest is for the next.
MAX_TURNS = 50
TURN_CHARS = 2_000


def summarise(runtime: Runtime, claim: Claim) -> None:
    """What a ``summarise`` job does. A summary written meanwhile by another wins."""
    session, owner = claim.payload["session"], claim.owner
    with runtime.engine.read() as tx:
        tx.enter(owner)
        current = session_state.find_summary(tx, owner, sessions.lineage(tx, owner, session))
        said = list_unsummarized(tx, owner, session, current)
    made = _build_summary(runtime, current, said)
    if made is not None:
        made = made._replace(text=runtime.redaction.quiet(made.text, "a summary"))
    with runtime.engine.write() as tx:
        tx.enter(owner)
        if made is not None and sessions.find(tx, owner, session) is not None:
            session_state.write_summary(tx, owner, session, made.text, made.upper, current.epoch)
            vault_link.queue_summary_mirror(tx, runtime, owner, session)
        claim.finish(tx)
        if made is not None:
            events.queue_summary(tx, runtime, owner, session)


def list_unsummarized(
    tx: Transaction, owner: Owner, session: str, current: Summary
) -> list[SummaryEvent]:
    """The messages of a session that its summary does not cover yet."""
    from reverie.embed.tokens import count_tokens

    found = []
    stretches = sessions.lineage(tx, owner, session)
    spots = sessions.list_events(tx, owner, stretches, after=current.upper)
    for entry in index_check.read_event_entries(tx, owner, spots):
        event = sessions.event_from_entry(entry, None)
        if without_system(event.message) is None:
            continue
        calls = tool_calls_of(event.message)
        names = tuple(call.name for call in calls)
        text = "" if calls and not _has_text(event.text) else event.text
        tokens = message_tokens(event.message, count_tokens)
        found.append(SummaryEvent(event.sequence, event.role, text, names, tokens))
    return found


def _has_text(text: str) -> bool:
    """Whether a message says more than which tools it calls."""
    return any(not line.startswith("tool ") for line in text.splitlines())


def _build_summary(
    runtime: Runtime, current: Summary, said: list[SummaryEvent]
) -> CondensedSummary | None:
    """The next summary, or None while there is room."""
    settings = runtime.settings
    window = settings.history_tokens
    if settings.summary_mode == "off" or not is_due(said, window):
        return None
    if settings.summary_mode == "condense":
        return condense_if_due(current.text, said, window)
    model = open_model(settings)
    assert model is not None
    oldest = choose_oldest(said, window)[:MAX_TURNS]
    turns = [(each.role, each.text[:TURN_CHARS] or f"[{', '.join(each.calls)}]") for each in oldest]
    return CondensedSummary(
        prompts.summarize_turns(model, current.text, turns), oldest[-1].sequence
    )
