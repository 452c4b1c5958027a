"""Name files and folders as a person would, so that every system accepts the names.

A name in the vault says who or what it is for, and is not decoded: which space, user or session a
folder belongs to is recorded where it differs from the folder's name (see ``layout.Folders``).
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from reverie.errors import VaultError
from reverie.text.normalize import require_utf8

MAX_FOLDER_BYTES = 120
MAX_STEM_CHARS = 60
MAX_STEM_BYTES = 120
_MAX_COMPONENT_BYTES = 255
_MAX_READ = 1_000

_WINDOWS = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|clock\$|(?:com|lpt)[0-9¹²³])[ ]*(?:[.:].*)?",
    re.IGNORECASE | re.DOTALL,
)
# Characters that some system does not allow, or ignores when it compares names.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]')
_NUMBER = re.compile(r"-\d+\Z")
_GIT = frozenset({".git", "git~1"})
# Characters that end a link between notes.
_LINK_ENDS = frozenset("[]#^|")
# Unicode's categories of letters, marks, digits, punctuation and symbols; others are invisible.
_VISIBLE = frozenset("LMNPS")
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# One fixed Unicode version, so that a name does not depend on the Python that made it.
_category = unicodedata.ucd_3_2_0.category


def folder_name(name: str) -> str:
    """Return the folder for a space, user or session: its name, as far as every system allows it.

    Two names may lead to the same folder; ``layout.Folders`` gives the second one a number.
    """
    require_utf8(name, "a name")
    composed = unicodedata.normalize("NFC", name)
    safe = "".join(char if _is_allowed(char) else "-" for char in composed)
    safe = safe.strip(" ").lstrip(".-").rstrip(". ")
    safe = unicodedata.normalize("NFC", _beginning(safe, MAX_FOLDER_BYTES).rstrip(". "))
    safe = _without_marks(safe) or "unnamed"
    return f"_{safe}" if _WINDOWS.fullmatch(safe) or safe.lower() in _GIT else safe


def numbered(stem: str, number: int) -> str:
    """Return a name for the second, third … of one name; the first has none."""
    return stem if number == 1 else f"{stem}-{number}"


def collision_key(component: str) -> str:
    """Return a key that is equal for names that some disk does not distinguish."""
    folded = unicodedata.normalize("NFKD", component).upper().casefold()
    return unicodedata.normalize("NFKD", folded).casefold()


def file_stem(subject: str | None, content: str) -> str:
    """Name the file of a memory after its subject or first line: ``sarah-moved-to-lisbon``."""
    stem = _first_words(subject or "") or _first_words(content) or "memory"
    return f"_{stem}" if _WINDOWS.fullmatch(stem) else stem


def possible_stems(file_name: str) -> set[str]:
    """Return what a file may have been named after: its number may be part of the name or not."""
    stem = file_name.removesuffix(".md")
    return {stem, _NUMBER.sub("", stem)}


def is_folder_of(folder: str, name: str) -> bool:
    """Whether a folder may have been named after this name, with or without a number."""
    plain = collision_key(folder_name(name))
    return plain in {collision_key(folder), collision_key(_NUMBER.sub("", folder))}


def safe_join(root: Path, *parts: str) -> Path:
    """Join a path below the root; VaultError when a part is not safe on every system."""
    for part in parts:
        if not _is_safe(part):
            raise VaultError(f"{part!r} is not allowed as a name in the vault: rename it")
    return root.joinpath(*parts)


def _is_allowed(char: str) -> bool:
    visible = char == " " or unicodedata.category(char)[0] in _VISIBLE
    return (
        visible
        and char not in _LINK_ENDS
        and not _UNSAFE.match(char)
        and not _INVISIBLE.match(char)
    )


def _is_letter(char: str) -> bool:
    category = _category(char)
    known = category[0] == "L" or category in {"Nd", "Mn", "Mc"}
    return known and not _INVISIBLE.match(char)


def _is_mark(char: str) -> bool:
    return _category(char)[0] == "M"


def _beginning(text: str, room: int) -> str:
    """Return as much of a text as fits into a number of bytes."""
    return text.encode()[:room].decode(errors="ignore")


def _first_words(text: str) -> str:
    """The words of the first line that has any, as many as fit, with hyphens between them."""
    for line in text[:_MAX_READ].splitlines():
        lowered = unicodedata.normalize("NFC", line.replace("\0", " ").lower())
        spelled = "".join(char if _is_word(char) else " " for char in lowered)
        kept = ""
        for word in map(_without_marks, spelled.split()):
            if not word:
                continue
            longer = f"{kept}-{word}" if kept else word
            if len(longer) > MAX_STEM_CHARS or len(longer.encode()) > MAX_STEM_BYTES:
                kept = kept or _beginning(word[:MAX_STEM_CHARS], MAX_STEM_BYTES)
                break
            kept = longer
        if kept:
            return kept
    return ""


def _without_marks(word: str) -> str:
    """Return a word without leading combining marks, which would join the character before."""
    return next((word[place:] for place, char in enumerate(word) if not _is_mark(char)), "")


def _is_word(char: str) -> bool:
    return char.isalnum() if char.isascii() else _is_letter(char)


def _is_safe(part: str) -> bool:
    try:
        size = len(part.encode())
    except UnicodeEncodeError:
        return False
    return (
        0 < size <= _MAX_COMPONENT_BYTES
        and not _UNSAFE.search(part)
        and not part.endswith((".", " "))
        and not _WINDOWS.fullmatch(part)
        and part.lower() not in _GIT
    )
