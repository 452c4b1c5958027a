"""Text that stands in a prompt as data: it cannot speak as somebody else there."""

from __future__ import annotations

import re

# What chat templates, tool protocols and prompts put between who speaks and what is said.
_DELIMITER = re.compile(
    r"<\|[^<>\n]{0,60}\|>|<｜[^<>\n]{0,60}｜>|<{1,2}/?SYS>{1,2}|\[/?(?:INST|SYS|SYSTEM)\]|"
    r"</?(?:s|bos|eos|start_of_turn|end_of_turn|(?:\w+[:_-])?(?:system|user|assistant|human|developer|"
    r"tool|function|instructions?|prompt|memory|memories|profile|summary|context|conversation|"
    r"document|thinking|message|result)s?(?:[_-]\w+)*)(?:\s[^<>\n]{0,200})?/?>",
    re.IGNORECASE,
)
_HARMLESS = str.maketrans("<>[]", "‹›()")
# How a line of ours begins, or one that says who speaks.
_LIKE_OURS = re.compile(
    r"\s*(?:#|```|---|===|- \[(?:id:|proposal )|"
    r"(?:system|user|assistant|human|developer|tool|ai)(?: \w+)?\s*:|"
    r"(?:Rolling session summary|Recalled for this turn|Not remembered yet|Just remembered|"
    r"The following is information))",
    re.IGNORECASE,
)


def inert(text: str) -> str:
    """The text with other brackets around what a model would take for a change of speaker."""
    if "<" not in text and "[" not in text:
        return text
    return _DELIMITER.sub(lambda found: found[0].translate(_HARMLESS), text)


def inert_lines(text: str) -> str:
    """The same for text of several lines: none of them begins as a heading or a speaker does."""
    lines = inert(text).splitlines()
    return "\n".join(f"\\{line}" if _LIKE_OURS.match(line) else line for line in lines)
