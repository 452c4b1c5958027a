"""Escapes text that is put into a prompt as data, so that it cannot forge roles or structure.

Everything that Reverie shows to a model passes through here; the stored text is not changed. The
brackets of a role marker (``<system>``, ``<|im_start|>``, ``[INST]``) are replaced, so that neither
a tokenizer nor a model takes it for a change of speaker. Markers are recognised despite invisible
characters, accents, and letters or brackets that only look alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from reverie.text.normalize import one_line

# Names that chat templates, tool protocols and prompts give their parts: a tag is a marker when one
# of these is a part of its name (``tool_result``, ``ns:invoke``, ``end-of-turn``).
_NAMES = """
    ai bos call chat context conversation cls document eop eos history human im inst invoke mask
    memories memory message pad profile reasoning response result role s scratchpad sep sop summary
    sys think thought tool turn unk untrusted user
"""
_MARKER_PARTS = frozenset(_NAMES.split())
# These make any name a marker that contains them (``SystemPrompt``).
_MARKER_WORDS = re.compile(
    "system|assistant|developer|function|instruction|parameter|prompt|thinking|untrusted|"
    "tool(?:call|result|use)"
)
_SQUARE_MARKERS = (
    r"(?:available_)?tools?(?:[ _](?:calls?|results?|content|use))?|inst(?:ructions?)?|"
    r"sys(?:tem)?(?:[ _](?:prompt|message))?|user|assistant|human|developer|think(?:ing)?|"
    r"gmask|smask|bos|eos"
)
# Whitespace is allowed wherever a model would overlook it. Every part is possessive or bounded, so
# that the time is linear for any text.
_MARKER = re.compile(
    r"<\s*+\|(?=(?P<bar>.{0,80}?\|\s*+>))|"
    rf"\[[\s/\\]*+(?:{_SQUARE_MARKERS})\s*+\]|\]~!?b[\[\]]|"
    r"<{1,2}[\s/\\]*+(?P<name>[^\W\d][\w:.-]*+)(?=(?P<rest>[^<>]{0,200}+>{1,2}))?",
    re.IGNORECASE | re.DOTALL,
)
_SEPARATOR = re.compile(r"[\W_]+")
_REPLACEMENTS = {"<": "‹", ">": "›", "[": "(", "]": ")"}
# Characters that look like a bracket, a bar or a Latin letter, beyond those that NFKD maps.
_CONFUSABLES = str.maketrans(
    "〈⟨❬❰ᐸ˂⧼〉⟩❭❱ᐳ˃⧽【〔⟦❲⁅】〕⟧❳⁆∣ǀ│❘⏐¦⁄∕▁аеорсухіјѕһԁӏмтнкοαινρτυ",
    "<<<<<<<>>>>>>>[[[[[]]]]]||||||//_aeopcyxijshdlmthkoaivptu",
)
_INVISIBLE_CATEGORIES = frozenset({"Cf", "Mn", "Me"})
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_OPENING = re.compile(r"[~～<[＜﹤［〈〈⟨❬❰ᐸ˂⧼【〔⟦❲⁅]")
_UNUSUAL = re.compile(r"[^\t-\r\x1c-~]")
# Unicode tag characters: invisible to people, but readable to a model.
_TAG_LETTERS = re.compile(r"[\U000e0000-\U000e007f]+")
# Lines that look like structure of a Reverie prompt, or like a speaker's name.
_STRUCTURE_LINE = re.compile(
    r"\s*(?:#|```|---|===|- \[(?:id:|proposal )|"
    r"(?:system|user|assistant|human|developer|tool|ai|model)(?: \w+)?\s*:|"
    r"(?:Rolling session summary|Recalled for this turn|Not remembered yet|Just remembered|"
    r"The following is information|More is remembered))",
    re.IGNORECASE,
)


def escape_text(text: str) -> str:
    """Replace the brackets of everything that a model could take for a change of speaker."""
    if not text.isascii():
        text = _TAG_LETTERS.sub("", text)
    if not _OPENING.search(text):
        return text
    folds = _fold_text(text)
    folded = "".join(folds)
    spans = [_span(match) for match in _MARKER.finditer(folded) if _is_marker(match["name"])]
    if not spans:
        return text
    char_index = [index for index, fold in enumerate(folds) for _ in fold]
    chars = list(text)
    for start, end in spans:
        for at in range(start, end):
            if (replacement := _REPLACEMENTS.get(folded[at])) is not None:
                chars[char_index[at]] = replacement
    return "".join(chars)


def escape_line(text: str) -> str:
    """Escape text and put it on one line that cannot look like the start of a list item."""
    line = _one_line(text)
    return "\\" + line if line.startswith("[") else line


def escape_name(text: str) -> str:
    """Escape a name that is put between square brackets, which it cannot close."""
    return _one_line(text).replace("[", "(").replace("]", ")")


def escape_lines(text: str) -> str:
    """Escape text of several lines, so that none looks like a heading or names a speaker."""
    lines = escape_text(text).splitlines()
    return "\n".join(
        f"\\{line}" if _STRUCTURE_LINE.match("".join(_fold_text(line))) else line for line in lines
    )


def escape_json(value: Any) -> Any:
    """Escape every text in a JSON value, including the keys."""
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, dict):
        return {escape_json(name): escape_json(each) for name, each in value.items()}
    return [escape_json(each) for each in value] if isinstance(value, list | tuple) else value


def _one_line(text: str) -> str:
    """Escape before and after joining lines: the spaces that replace invisible characters can
    complete a marker.
    """
    return escape_text(one_line(escape_text(text)))


def _span(found: re.Match[str]) -> tuple[int, int]:
    return found.start(), max(found.end(), found.end("bar"), found.end("rest"))


def _is_marker(name: str | None) -> bool:
    """Whether a tag of this name is a marker. Markers that are not tags have no name."""
    if name is None:
        return True
    name = name.casefold()
    return bool(_MARKER_WORDS.search(name)) or any(
        part in _MARKER_PARTS or part.removesuffix("s") in _MARKER_PARTS
        for part in _SEPARATOR.split(name)
    )


def _fold_text(text: str) -> Sequence[str]:
    """Each character as a reader sees it: nothing, itself, or the letters it looks like."""
    return [*map(_fold_char, text)] if _UNUSUAL.search(text) else text


@lru_cache(maxsize=4096)
def _fold_char(char: str) -> str:
    if char.isspace() or unicodedata.category(char) == "Cc":
        return " "
    plain = unicodedata.normalize("NFKD", char).casefold().translate(_CONFUSABLES)
    return "".join(
        each
        for each in plain
        if unicodedata.category(each) not in _INVISIBLE_CATEGORIES and each not in _BLANK
    )


def subject_prefix(subject: str | None) -> str:
    """Return what begins the line of a memory: its subject in brackets, or nothing."""
    return escape_text(f"[{escape_name(subject)}] ") if subject else ""
