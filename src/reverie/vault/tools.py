"""Functions that an agent can call as tools: commit the vault, and read its history.

A failure is returned as text, too, for the agent to read. Give them to any toolkit, bound to
the agent's own space:

    tools = [partial(memory_checkpoint, space), partial(memory_history, space)]
"""

from __future__ import annotations

from reverie.errors import ReverieError
from reverie.memory.space import Space
from reverie.prompt.escape import escape_line, escape_text
from reverie.serialize import format_time
from reverie.vault.git import scoped_history
from reverie.vault.service import DEFAULT_NOTE

# The most characters of a diff that a model gets.
MAX_CHARS = 20_000


def memory_checkpoint(space: Space, note: str = DEFAULT_NOTE) -> str:
    """Commit a snapshot of the memory to git, under a short note that says why."""
    try:
        made = scoped_history.checkpoint(space, note)
    except (ReverieError, OSError) as error:
        return _failed("no checkpoint was made", error)
    if made is None:
        return "Nothing has changed since the last commit: no checkpoint was needed."
    return f"Checkpoint {made[:12]}: {escape_line(note) or DEFAULT_NOTE}"


def memory_history(space: Space, limit: int = 10, diff: bool = False) -> str:
    """List what changed, commit by commit, the newest first; at most 100.

    With ``diff``, also what changed since the oldest of them, as a unified diff.
    """
    try:
        commits = scoped_history.history(
            space, limit=max(1, min(int(limit), scoped_history.MAX_COMMITS))
        )
        said = scoped_history.diff(space, since=commits[-1].id) if diff and commits else ""
    except (ReverieError, OSError, TypeError, ValueError) as error:
        return _failed("the history cannot be read", error)
    if not commits:
        return "The memory has no history yet."
    lines = [
        f"{each.id[:12]} {format_time(each.at)} {escape_line(each.subject)}" for each in commits
    ]
    if diff:
        cut = len(said) - MAX_CHARS
        more = f"\n[{cut} more characters are left out]" if cut > 0 else ""
        lines += [
            "",
            escape_text(said[:MAX_CHARS]) + more if said else "Nothing has changed since.",
        ]
    return "\n".join(lines)


def _failed(what: str, error: Exception) -> str:
    return f"Error: {what}: {escape_line(str(error)) or type(error).__name__}"
