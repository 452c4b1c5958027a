"""Secrets in text: found by how keys look, and by what is said just before them.

Most texts hold none, so what is looked at first is cheap: how long the words are, and whether a few
words occur at all. Hashes, UUIDs and ids are left alone unless something calls them a secret.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

# The shortest thing that is taken for a key by its looks alone.
MIN_KEY_CHARS = 16
REDACTION_MARK = "[redacted: {}]"
OWN_KIND = "key of this program"


class SecretMatch(NamedTuple):
    """A secret: what it is, and where it stands."""

    kind: str
    start: int
    end: int


def find_secrets(text: str, own: Iterable[str] = ()) -> list[SecretMatch]:
    """The secrets of a text in order, none within another. ``own`` are secrets known by heart."""
    found = [
        SecretMatch(OWN_KIND, at.start(), at.end())
        for secret in own
        for at in re.finditer(re.escape(secret), text)
    ]
    # The name of what was taken out says nothing about the word after it.
    looked_at = _REDACTED.sub(_blank_mark, text) if "[redacted: " in text else text
    lowered = _lower_same_length(looked_at)
    runs = _long_runs(looked_at)
    if runs or any(map(lowered.__contains__, _HINTS)):
        # Patterns are many, and most programs end without having met a text that needs them.
        from reverie.text.secrets import rules

        found += rules.find_matches(looked_at, lowered, runs)
    return _merge_overlaps(text, found) if found else []


# A chat comes again with every turn of it.
_find_cached = lru_cache(maxsize=2_000)(find_secrets)
_MAX_CACHED_CHARS = 4_000
_MAX_ROUNDS = 8


def redact_text(text: str, own: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    """The text with a mark in the place of each secret, and the kinds of what was there."""
    kinds: dict[str, None] = {}
    # What stood beside a secret may be one itself once that is gone: what is redacted stays so.
    for _ in range(_MAX_ROUNDS):
        found = (
            _find_cached(text, own) if len(text) <= _MAX_CACHED_CHARS else find_secrets(text, own)
        )
        if not found:
            break
        kinds |= dict.fromkeys(each.kind for each in found)
        parts, last = [], 0
        for kind, start, end in found:
            parts += [text[last:start], REDACTION_MARK.format(kind)]
            last = end
        text = "".join(parts) + text[last:]
    return text, tuple(kinds)


def redact_values(value: Any, own: tuple[str, ...] = ()) -> tuple[Any, tuple[str, ...]]:
    """The same for every text within plain values; a name above a value says what it is."""
    kinds: dict[str, None] = {}

    def clean(each: Any, name: str) -> Any:
        if isinstance(each, str):
            changed, found = redact_text(each, own)
            if (
                found
                and name in _SIGNED_FIELDS
                and len(each) > _MAX_KEY_CHARS
                and changed[0] != "["
            ):
                return each
            if not found and name and _is_secret_named(name, each):
                changed, found = REDACTION_MARK.format("secret"), ("secret",)
            kinds.update(dict.fromkeys(found))
            return changed
        if isinstance(each, Mapping):
            return {clean(key, ""): clean(held, key) for key, held in each.items()}
        if isinstance(each, list | tuple):
            return [clean(held, name) for held in each]
        return each

    cleaned = clean(value, "")
    return (cleaned, tuple(kinds)) if kinds else (value, ())


# What a model's service signed or sealed, and takes back only as it was. In so many letters some
# look like a key by chance; a key itself would stand at the beginning.
_SIGNED_FIELDS = frozenset(
    {"signature", "thought_signature", "thoughtSignature", "encrypted_content"}
)
_MAX_KEY_CHARS = 300


def _is_secret_named(name: str, value: str) -> bool:
    """Whether a value is a secret because of the name it has, as in ``{"password": "…"}``."""
    lowered = name.lower()
    if len(name) > 60 or not any(map(lowered.__contains__, _SECRET_NAME_PARTS)):
        return False
    from reverie.text.secrets import rules

    return rules.is_secret_named(name, value)


_OWN_TOKEN = re.compile(r"(?<![A-Za-z0-9])rv_[A-Za-z0-9]{8}_[\w-]{43}")


def remove_own_secrets(value: Any, own: Iterable[str]) -> Any:
    """Plain values without our own tokens and keys, whatever else they hold."""
    if isinstance(value, str):
        text = (
            _OWN_TOKEN.sub(REDACTION_MARK.format("Reverie token"), value)
            if "rv_" in value
            else value
        )
        for secret in own:
            text = text.replace(secret, REDACTION_MARK.format(OWN_KIND))
        return text
    if isinstance(value, Mapping):
        return {
            remove_own_secrets(key, own): remove_own_secrets(held, own)
            for key, held in value.items()
        }
    if isinstance(value, list | tuple):
        return [remove_own_secrets(held, own) for held in value]
    return value


# -- what is looked at first ----------------------------------------------------------------------

# What may stand before a secret that is no longer than a word.
_HINTS = (
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "mnemonic",
    "seed phrase",
    "recovery phrase",
    "curl ",
)
_RUN = re.compile(r"\S{16,}")
# What a name has in it that may be given to a secret.
_SECRET_NAME_PARTS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "auth",
    "bearer",
    "jwt",
)


def _long_runs(text: str) -> list[tuple[int, int]]:
    """Where something stands that is longer than most words."""
    words = text.split()
    if not words or max(map(len, words)) < MIN_KEY_CHARS:
        return []
    return [run.span() for run in _RUN.finditer(text)]


def _lower_same_length(text: str) -> str:
    """In small letters, each where it was: some letters become two."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


# What stands where a secret was: no key fits into words that short.
_REDACTED = re.compile(r"\[redacted: \w[a-z0-9.]{0,11}(?: [a-z0-9.]{1,11}){0,4}\]")


def _blank_mark(mark: re.Match[str]) -> str:
    """Return a mark of the same length without words."""
    return f"[{' ' * (len(mark[0]) - 2)}]"


# What says of itself that it is a digest is none of the kinds that are only guessed.
_DIGEST = re.compile(
    r"\b(?:sha-?\d{1,3}|md5|blake\w{1,4}|integrity|etag|checksum)[=:-]{1,2}\s?[\"']?[\w+/=-]{20,}",
    re.IGNORECASE,
)
_GUESSED = frozenset({"key", "secret", "token"})


def _merge_overlaps(text: str, found: Iterable[SecretMatch]) -> list[SecretMatch]:
    """In order; what overlaps another is one with it, under the name of the one before."""
    marks = [mark.span() for mark in _REDACTED.finditer(text)]
    digests = [digest.span() for digest in _DIGEST.finditer(text)]
    kept: list[SecretMatch] = []
    for each in sorted(found, key=lambda one: (one.start, -one.end)):
        guessed = each.kind in _GUESSED
        if _overlaps_any(marks, each) or guessed and _overlaps_any(digests, each):
            continue
        if kept and each.start < kept[-1].end:
            if each.end > kept[-1].end:
                kept[-1] = SecretMatch(kept[-1].kind, kept[-1].start, each.end)
            continue
        kept.append(each)
    return kept


def _overlaps_any(spans: Sequence[tuple[int, int]], each: SecretMatch) -> bool:
    """Whether one of these, which stand in order and apart, overlaps it."""
    before = bisect_left(spans, (each.end, 0)) - 1
    return before >= 0 and spans[before][1] > each.start
