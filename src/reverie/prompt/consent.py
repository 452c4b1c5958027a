"""Asking for consent: proposals as lines that a model passes on to the person.

A conversation through the proxy or MCP has no other way to reach the person than its model.
"""

from __future__ import annotations

from collections.abc import Sequence

from reverie.model import Proposal
from reverie.prompt.escape import escape_line, subject_prefix

# How many proposals one prompt asks about, the newest: a person answers one or two at a time.
MAX_ASKED = 3
HEADING = (
    "Not remembered yet, because the user has not agreed. Unless you asked in this conversation "
    "already, ask at the end of your reply, in one short sentence, whether to remember it. {answer}"
)


def asks_first(write_policy: str) -> bool:
    """Whether this ``write_policy`` asks the person before a new fact is remembered."""
    return write_policy.lower() == "ask"


def render_questions(waiting: Sequence[Proposal], answer: str) -> str:
    """Render proposals for a model, below a heading that tells it to ask about them.

    ``answer`` says how the person, or the model for them, answers. Empty when nothing waits.
    """
    return f"{HEADING.format(answer=answer)}\n{render_waiting(waiting)}" if waiting else ""


def render_waiting(waiting: Sequence[Proposal]) -> str:
    """Render the newest proposals, a line each, and say how many older ones wait."""
    shown = waiting[-MAX_ASKED:]
    lines = [
        f"- [proposal {each.id}] {subject_prefix(each.subject)}{escape_line(each.content)}"
        for each in shown
    ]
    left = len(waiting) - len(shown)
    more = [f"{left} older one{'s wait' if left > 1 else ' waits'} too."] if left else []
    return "\n".join([*lines, *more]) + "\n"
