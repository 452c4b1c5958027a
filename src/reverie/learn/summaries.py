"""Write the rolling summary of a session when its history outgrows its part of the context.

It runs as a job of its own, so that a failing summary holds up nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reverie.agenda.jobs import Claim
from reverie.embed.tokens import count_tokens
from reverie.engine import index_check, sessions
from reverie.learn import prompts
from reverie.learn.llm import open_model
from reverie.model import Summary
from reverie.prompt.context import message_tokens
from reverie.protocols import Owner, Transaction
from reverie.text.messages import tool_calls_of, without_system
from reverie.text.normalize import one_line
from reverie.write import events, session_state
from reverie.write.runtime import Runtime
from reverie.write.writer import system_writer

TRIGGER_SHARE = 0.80
TARGET_SHARE = 0.50
MIN_EVENTS = 4
MIN_UNSUMMARISED_EVENTS = 2
MAX_LINES = 24
LINE_CHARS = 180
MAX_CHARS = 4000

_HEADING = "Recent condensed turns:"
_ELLIPSIS = "..."
# Roles are short words; a longer one would leave no room for the message.
_ROLE_CHARS = 24


class SummaryEvent(NamedTuple):
    """The parts of a message that a summary uses; ``calls`` has the names of the tools called."""

    sequence: int
    role: str
    text: str
    calls: tuple[str, ...]
    tokens: int


class CondensedSummary(NamedTuple):
    """The text of a summary; ``upper`` is the sequence of the last message that it covers."""

    text: str
    upper: int


def is_due(unsummarised: Sequence[SummaryEvent], window: int) -> bool:
    """Whether there are MIN_EVENTS messages that fill more than TRIGGER_SHARE of the window.

    ``window`` is the size of the history's part of the context, in tokens.
    """
    if window < 1:
        raise ValueError(f"window must be positive, not {window}")
    # Divide rather than multiply: rounding could put 0.8 * window on either side of four fifths.
    return len(unsummarised) >= MIN_EVENTS and _tokens(unsummarised) / window > TRIGGER_SHARE


def choose_oldest(unsummarised: Sequence[SummaryEvent], window: int) -> Sequence[SummaryEvent]:
    """Return the oldest messages, enough that the rest fills at most TARGET_SHARE of the window."""
    if window < 1:
        raise ValueError(f"window must be positive, not {window}")
    rest = _tokens(unsummarised)
    count = 0
    while count < len(unsummarised) - MIN_UNSUMMARISED_EVENTS and rest / window > TARGET_SHARE:
        rest -= unsummarised[count].tokens
        count += 1
    return unsummarised[:count]


def condense(previous: str, messages: Sequence[SummaryEvent]) -> CondensedSummary:
    """Append one line for each of the first MAX_LINES messages to the previous summary."""
    if not messages:
        raise ValueError("there is nothing to condense")
    taken = messages[:MAX_LINES]
    added = _format_events(taken)
    return CondensedSummary(
        _keep_newest(f"{previous}\n{added}" if previous else added), taken[-1].sequence
    )


def condense_if_due(
    previous: str, unsummarised: Sequence[SummaryEvent], window: int
) -> CondensedSummary | None:
    """Return a summary that makes room in the window, or None while there is room."""
    if not is_due(unsummarised, window):
        return None
    oldest = choose_oldest(unsummarised, window)
    summary = condense(previous, oldest)
    for start in range(MAX_LINES, len(oldest), MAX_LINES):
        summary = condense(summary.text, oldest[start:])
    return summary


def _tokens(messages: Sequence[SummaryEvent]) -> int:
    return sum(message.tokens for message in messages)


def _keep_newest(summary: str) -> str:
    """Cut the oldest text off a summary that is too long; an ellipsis marks the cut."""
    kept = summary.removeprefix(_ELLIPSIS)[-MAX_CHARS:]
    return summary if kept == summary else _ELLIPSIS + kept


def _format_events(messages: Sequence[SummaryEvent]) -> str:
    """Return a heading and a line for each message, all cut to the same length if need be."""
    heads = [
        f"- [{message.sequence}] {_truncate(one_line(message.role), _ROLE_CHARS)}: "
        for message in messages
    ]
    texts = [_event_line(message) for message in messages]
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


# Limits of one question to a model; further messages wait for the next job.
MAX_TURNS = 50
TURN_CHARS = 2_000


def summarise(runtime: Runtime, claim: Claim) -> None:
    """Run a ``summarise`` job. A summary that somebody else wrote meanwhile is not replaced."""
    session, owner = claim.payload["session"], claim.owner
    with runtime.engine.read() as tx:
        tx.enter(owner)
        current = session_state.find_summary(tx, owner, sessions.lineage(tx, owner, session))
        unsummarised = list_unsummarized(tx, owner, session, current)
    made = _build_summary(runtime, current, unsummarised)
    if made is not None:
        made = made._replace(text=runtime.redaction.quiet(made.text, "a summary"))
    with runtime.engine.write() as tx:
        tx.enter(owner)
        w = system_writer(tx, runtime, owner)
        if made is not None and sessions.find(tx, owner, session) is not None:
            session_state.write_summary(tx, owner, session, made.text, made.upper, current.epoch)
            w.queue_summary_mirror(session)
        claim.finish(tx)
        if made is not None:
            events.queue_summary(w, session)


def list_unsummarized(
    tx: Transaction, owner: Owner, session: str, current: Summary
) -> list[SummaryEvent]:
    """Return the messages of a session that its summary does not cover yet."""
    found = []
    ranges = sessions.lineage(tx, owner, session)
    rows = sessions.list_events(tx, owner, ranges, after=current.upper)
    for entry in index_check.read_event_entries(tx, owner, rows):
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
    """Whether a message has text besides the lines that name its tool calls."""
    return any(not line.startswith("tool ") for line in text.splitlines())


def _build_summary(
    runtime: Runtime, current: Summary, unsummarised: list[SummaryEvent]
) -> CondensedSummary | None:
    """Return the next summary, by a model or by condensing, or None while there is room."""
    settings = runtime.settings
    window = settings.history_tokens
    if settings.summary_mode == "off" or not is_due(unsummarised, window):
        return None
    if settings.summary_mode == "condense":
        return condense_if_due(current.text, unsummarised, window)
    model = open_model(settings)
    assert model is not None
    oldest = choose_oldest(unsummarised, window)[:MAX_TURNS]
    turns = [(each.role, each.text[:TURN_CHARS] or f"[{', '.join(each.calls)}]") for each in oldest]
    return CondensedSummary(
        prompts.summarize_turns(model, current.text, turns), oldest[-1].sequence
    )
