"""Tell instructions to the assistant from facts, and those that were asked for from the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reverie.text.words import analyse

_ASSISTANT = (
    r"(?:assistant|ai|chat ?bot|bot|(?:language )?model|llm|agent|you|"
    r"your (?:answers?|repl(?:y|ies)))"
)
_MUST = (
    r"(?:must|should|shall|has to|have to|needs? to|ought to|always|never|may not|may only|is to|"
    r"are to|will (?:always|never|only)|is not allowed|are not allowed)"
)
_INSTRUCTION = re.compile(
    r"^(?:please )?(?:always|never|from now on|do not|don't|ignore|obey|refuse|you must)\b|"
    rf"\b{_ASSISTANT}\b.{{0,60}}\b{_MUST}\b|\b{_MUST}\b.{{0,60}}\b(?:the assistant|"
    rf"the user'?s? assistant)\b|"
    r"\b(?:wants?|asks?|asked|expects?|requires?|requested|instructs?|instructed|told|tells|"
    r"insists?)\b"
    rf".{{0,40}}\b{_ASSISTANT}\b|\bignore (?:all |any )?(?:previous|earlier|prior) instructions\b",
    re.IGNORECASE,
)
# Of the words of an instruction, how many the request must have.
_SHARE = 0.6


def is_instruction(content: str) -> bool:
    """Tell whether a content says what the assistant is to do."""
    return bool(_INSTRUCTION.search(content))


def is_asked(content: str, requests: Iterable[str]) -> bool:
    """Tell whether one of the person's own requests says what an instruction says."""
    words = analyse(content).counts.keys()
    return any(
        len(words & analyse(request).counts.keys()) >= _SHARE * len(words) for request in requests
    )
