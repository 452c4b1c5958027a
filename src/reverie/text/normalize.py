"""Normalises text to compare it, and validates text and names before they are stored."""

from __future__ import annotations

import re
import unicodedata

from reverie.errors import InvalidInput

# Whitespace, Cc and Cf. ZWNJ and ZWJ stay (Indic words and emoji are spelled with them); the
# variation selectors are not Cf. Tag characters (U+E0020…) go: they hide text from people.
_BREAKS = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    r"\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001\U000e0020-\U000e007f]+"
)
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
SURROGATE = re.compile(r"[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def one_line(text: str) -> str:
    """The text on one line: every run of whitespace and invisible controls is one space."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    return _BREAKS.sub(" ", text).strip()


def category_slug(text: str) -> str:
    """``My Notes`` -> ``my_notes``; nothing left -> ``general``."""
    return _NOT_SLUG.sub("_", text.lower()).strip("_") or "general"


def nfkc_casefold(text: str) -> str:
    """Normalise (NFKC) and case-fold a text to compare it."""
    if text.isascii():
        return text.lower()
    # Casefolding can leave text that is no longer composed, hence the second pass.
    folded_once = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", folded_once)


def subject_key(subject: str | None) -> str | None:
    """The form in which two subjects are compared; None if there is no subject."""
    if subject is None:
        return None
    return " ".join(nfkc_casefold(subject).split()) or None


def text_key(text: str) -> str:
    """The form in which two texts are compared: without case, white space and a final full stop.

    Not case-folded and not NFKC, which make "Massen" of "Maßen" and 102 of 10².
    """
    folded = one_line(text).lower()
    if not folded.isascii():
        folded = unicodedata.normalize("NFC", folded)
    return folded.removesuffix(".").rstrip()


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by ``?``; the length stays."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def require_utf8(text: str, what: str) -> str:
    """Return the text unchanged; raises InvalidInput if UTF-8 cannot encode it."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be text, not {type(text).__name__}")
    if not text.isascii() and (found := SURROGATE.search(text)):
        raise InvalidInput(
            f"{what} has a lone surrogate (U+{ord(found[0]):04X}) at offset {found.start()}: "
            "decode it correctly, or remove it"
        )
    return text


def require_no_controls(text: str, what: str) -> str:
    """Return the text unchanged; raises InvalidInput for control characters and line breaks."""
    if found := _CONTROL.search(text):
        raise InvalidInput(
            f"{what} has a control character (U+{ord(found[0]):04X}) at offset {found.start()}: "
            "remove it"
        )
    return text


def require_length(text: str, what: str, limit: int) -> str:
    """Return the text unchanged; raises InvalidInput if it has more than ``limit`` characters."""
    if len(text) > limit:
        raise InvalidInput(f"{what} has {len(text)} characters, at most {limit} are allowed")
    return text


def require_name(text: str, what: str, limit: int) -> str:
    """Return a valid name unchanged: names are equal only if every character is."""
    require_utf8(text, what)
    if not text.strip():
        raise InvalidInput(f"{what} must not be empty")
    return require_no_controls(require_length(text, what, limit), what)
