"""Markers that would change the speaker in a prompt, and a look whether one is still alive.

The look knows nothing of how markers are made harmless: it reads as a tokenizer or a careless model
would, without invisible characters and with every letter and bracket as what it resembles.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CORPUS = json.loads((Path(__file__).parent / "prompt" / "markers.json").read_text("ascii"))
LIVE: list[str] = _CORPUS["live"]
ORDINARY: list[str] = _CORPUS["ordinary"]

_ALIKE = str.maketrans("〈〉⟨⟩❬❭【】│▁ѕуѕтем", "<><><>[]|_system")
_ALIVE = re.compile(
    r"<\s*\|[^<>]{0,80}?\|\s*>|<<\s*/?\s*sys(?![a-z])|\]~!?b[\[\]]|"
    r"\[[\s/]*(?:inst|system|system_prompt|available_tools|tool_results|tool_calls|tool_content|"
    r"think|gmask)\s*\]|"
    r"<[\s/\\]*(?:[a-z]+[_:-])*(?:s|bos|eos|bos_token|start_of_turn|end_of_turn|system|user|"
    r"assistant|human|developer|instructions|prompt|memory|memories|profile|conversation|summary|"
    r"context|documents?|message|chat_history|tools?|toolcall|function|systemprompt|invoke|"
    r"parameter|think|thinking|untrusted|result|scratchpad)(?![a-z])",
    re.DOTALL,
)


def read_as_a_model(text: str) -> str:
    """What is left of a text for a reader who sees shapes."""
    spelled = "".join(
        chr(ord(char) - 0xE0000) if 0xE0020 <= ord(char) <= 0xE007E else char for char in text
    )
    plain = unicodedata.normalize("NFKD", spelled).casefold().translate(_ALIKE)
    return "".join(
        char
        for char in plain
        if unicodedata.category(char) not in {"Cf", "Mn", "Me"} and char != "\u1160"
    )


def alive(text: str) -> list[str]:
    """The markers that a text still holds, as they are read."""
    return _ALIVE.findall(read_as_a_model(text))


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a value as JSON has them; JSON within a text is taken apart as well."""
    if isinstance(value, str):
        yield value
        if value.startswith(("{", "[")):
            try:
                yield from texts_in(json.loads(value))
            except ValueError:
                return
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from texts_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)
