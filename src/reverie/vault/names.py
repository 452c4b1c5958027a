"""Encode the names of spaces, users, sessions and memories as file names.

Every name becomes one path component that Linux, macOS and Windows all accept. No two names share a
component, also on disks that ignore case or normalise Unicode (NFC, NFD).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from reverie.clock import ID_LENGTH
from reverie.errors import InvalidInput, VaultError
from reverie.text.normalize import require_utf8

MAX_FOLDER_BYTES = 120
MAX_STEM_CHARS = 60
MAX_STEM_BYTES = 120
_MAX_COMPONENT_BYTES = 255
_MAX_READ = 1_000

# Names that the vault itself uses.
_OURS = frozenset(
    {
        "deleted",
        "facts",
        "memory.md",
        "notes",
        "sessions",
        "summaries",
        "summary.md",
        "turns",
        "turns.md",
        "users",
    }
)
_WINDOWS = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|clock\$|(?:com|lpt)[0-9¹²³])[ ]*(?:[.:].*)?",
    re.IGNORECASE | re.DOTALL,
)
# Characters that some system does not allow, or ignores when it compares names.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]')
_GIT = frozenset({".git", "git~1"})
_CUT = re.compile(r"~[0-9a-f]{16}\Z", re.IGNORECASE)
_CAPITALS = re.compile(r"=([0-9a-f]{1,30})\Z", re.IGNORECASE)
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_SAFE_ASCII = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Invisible characters, which some disks ignore when they compare names.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# One fixed Unicode version, so that a name does not depend on the Python that made it.
_category = unicodedata.ucd_3_2_0.category

_ID = re.compile(rf"[A-Za-z0-9]{{{ID_LENGTH}}}")
_NAMED = re.compile(
    rf"--([a-z0-9]{{{ID_LENGTH}}})(?:_([0-9a-f]{{2}}))?\.md", re.IGNORECASE | re.ASCII
)


def encode_folder(name: str) -> str:
    """Encode a name as a folder: letters, digits and ``-_.`` as they are, the rest as ``%20``.

    A number after it says which letters are capitals (``Ana=1``), since not every disk
    distinguishes ``Ana`` from ``ana``. A long name is shortened and ends with its hash: see
    ``is_truncated``.
    """
    require_utf8(name, "a name")
    units = list(_units(name))
    if not unicodedata.is_normalized("NFC", "".join(units)):
        units = [unit if unit.isascii() else _percent(unit) for unit in units]
    capitals = sum(1 << place for place, unit in enumerate(units) if _is_capital(unit))
    encoded = "".join(units) + (f"={capitals:x}" if capitals else "")
    if len(encoded.encode()) <= MAX_FOLDER_BYTES:
        return encoded
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    room = MAX_FOLDER_BYTES - len(digest) - 1
    return f"{_beginning(units, room)}~{digest}"


def decode_folder(component: str) -> str:
    """Decode the name of a folder; for a shortened one, only the beginning is right."""
    # macOS may list what it was given in NFC as NFD; what must not change is encoded.
    seen = unicodedata.normalize("NFC", component)
    if seen == "%":
        return ""
    try:
        marked = _CAPITALS.search(seen)
        if marked is not None:
            letters = _ESCAPES.sub(_decoded, seen[: marked.start()])
            name = _capitalised(letters, int(marked[1], 16))
            if casefold_key(encode_folder(name)) == casefold_key(seen):
                return name
        return _ESCAPES.sub(_decoded, seen)
    except (UnicodeDecodeError, InvalidInput):
        return seen


def is_truncated(folder: str) -> bool:
    """Whether the name of a folder is shortened; the full name is then in front matter."""
    return _CUT.search(folder) is not None


def casefold_key(component: str) -> str:
    """Return a key that is equal for names that a case-insensitive disk does not distinguish."""
    composed = unicodedata.normalize("NFC", component).casefold()
    return unicodedata.normalize("NFC", composed)


def file_name(id: str, subject: str | None, content: str) -> str:
    """Name a file after a memory's subject or first line, and its id.

    For instance ``sarah-moved-to-the-design-team--a1b2c3d4.md``. If the id has capitals, a number
    after it says which letters: ``--a1B2c3D4_44.md``.
    """
    if not _ID.fullmatch(id):
        raise InvalidInput(
            f"{id!r} is not the id of a memory: it has {ID_LENGTH} letters or digits"
        )
    words = _first_words(subject or "") or _first_words(content) or "memory"
    capitals = sum(1 << place for place, letter in enumerate(id) if letter.isupper())
    return f"{words}--{id}{f'_{capitals:02x}' if capitals else ''}.md"


def parse_id(file_name: str) -> str | None:
    """Return the id at the end of a file's name. It is a hint: the id in front matter counts."""
    found = _NAMED.search(file_name)
    if found is None or found.end() != len(file_name):
        return None
    letters, capitals = found[1], int(found[2] or "0", 16)
    if not capitals:
        return letters if letters == letters.lower() and not found[2] else None
    spelled = "".join(
        letter.upper() if capitals >> place & 1 else letter.lower()
        for place, letter in enumerate(letters)
    )
    marked = sum(1 << place for place, letter in enumerate(spelled) if letter.isupper())
    return spelled if marked == capitals else None


def safe_join(root: Path, *parts: str) -> Path:
    """Join a path below the root; VaultError when a part is not safe on every system."""
    for part in parts:
        if not _is_safe(part):
            raise VaultError(
                f"{part!r} cannot be a name in the vault: use names that this program makes"
            )
    return root.joinpath(*parts)


def _units(name: str) -> Iterator[str]:
    """Yield each character of a name as the folder's name encodes it."""
    if not name:
        yield "%"
    lowered = name.lower()
    forbidden = lowered in _OURS or _WINDOWS.fullmatch(lowered) is not None
    for place, char in enumerate(name):
        first, last = place == 0, place == len(name) - 1
        odd = first and (forbidden or char in ".-" or _is_mark(char)) or last and char == "."
        yield _percent(char) if odd or not _is_kept(char) else char


def _is_kept(char: str) -> bool:
    if _is_capital(char):
        return char.lower().upper() == char and _is_kept(char.lower())
    if char.isascii():
        return char in _SAFE_ASCII
    return _is_letter(char) and _stands_still(char)


def _is_capital(unit: str) -> bool:
    """Whether a unit is a capital letter that is not percent-encoded."""
    return len(unit) == 1 and unit != unit.lower()


def _capitalised(letters: str, capitals: int) -> str:
    return "".join(
        letter.upper() if capitals >> place & 1 else letter for place, letter in enumerate(letters)
    )


def _is_letter(char: str) -> bool:
    category = _category(char)
    known = category[0] == "L" or category in {"Nd", "Mn", "Mc"}
    return known and not _INVISIBLE.match(char)


def _is_mark(char: str) -> bool:
    return _category(char)[0] == "M"


def _stands_still(char: str) -> bool:
    """Whether no disk confuses a character with another, by case or Unicode normalisation."""
    apart = unicodedata.normalize("NFD", char)
    return (
        unicodedata.normalize("NFKC", char) == char
        and apart.casefold() == apart
        and unicodedata.normalize("NFC", char.upper().casefold()) == char
    )


def _percent(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode())


def _decoded(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode()


def _beginning(units: list[str], room: int) -> str:
    kept: list[str] = []
    for unit in units:
        room -= len(unit.encode())
        if room < 0:
            break
        kept.append(unit)
    return "".join(kept)


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
                kept = kept or _beginning(list(word[:MAX_STEM_CHARS]), MAX_STEM_BYTES)
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
