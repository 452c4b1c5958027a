"""The prompt block of what is known: byte-identical for the same memories.

Content is data. It stands on one line behind its id, so that no newline, heading or bracket in it
can look like structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from reverie.model import Memory
from reverie.text.normalise import one_line

# Text that tools and documents wrote never becomes part of a prompt's instructions.
UNTRUSTED = frozenset({"tool", "document"})

HEADING = (
    "## Your Memory\n"
    "\n"
    "The following is information you've learned about the user from previous conversations.\n"
    "Use this context naturally. "
    "To update a memory, use the update_memory tool with the memory ID.\n"
)


def render(
    memories: Iterable[tuple[int, Memory]], tokens: int, count_tokens: Callable[[str], int]
) -> str:
    """Pinned ones first when choosing what fits, then facts, the newest first.

    Each memory comes with its place in the order of creation.
    """
    eligible = [
        (born, memory)
        for born, memory in memories
        if memory.trust not in UNTRUSTED and (memory.pinned or memory.kind == "fact")
    ]
    eligible.sort(key=lambda pair: (not pair[1].pinned, -pair[0], pair[1].id))
    left = tokens - count_tokens(HEADING)
    chosen: list[tuple[int, Memory]] = []
    headed: set[str] = set()
    for born, memory in eligible:
        cost = count_tokens(_line(memory))
        if memory.category not in headed:
            cost += count_tokens(_title(memory.category))
        if cost <= left:
            left -= cost
            headed.add(memory.category)
            chosen.append((born, memory))
    if not chosen:
        return ""
    chosen.sort(key=lambda pair: (pair[1].category, pair[1].created_at, pair[0], pair[1].id))
    blocks = [
        _title(category) + "".join(_line(memory) for _, memory in group)
        for category, group in groupby(chosen, key=lambda pair: pair[1].category)
    ]
    return HEADING + "".join(blocks)


def _title(category: str) -> str:
    return f"\n### {category.replace('_', ' ').title()}\n"


def _line(memory: Memory) -> str:
    subject = ""
    if memory.subject:
        subject = f"[{one_line(memory.subject).replace('[', '(').replace(']', ')')}] "
    content = one_line(memory.content)
    if content.startswith("["):
        content = "\\" + content
    return f"- [id:{memory.id}] {subject}{content}\n"
