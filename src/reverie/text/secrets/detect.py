"""Finds secrets in text by the formats of keys, and by the names given to values; redacts them.

Most texts have none, so cheap checks come first: how long the words are, and whether a few words
occur at all. Hashes, UUIDs and ids are not secrets unless a name before them says so.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from reverie.text.secrets import MIN_KEY_CHARS, SecretMatch

REDACTION_MARK = "[redacted: {}]"
OWN_KIND = "key of this program"


def find_secrets(text: str, own: Iterable[str] = ()) -> list[SecretMatch]:
    """The secrets in a text, in order and without overlaps. ``own`` are known secrets."""
    matches = [
        SecretMatch(OWN_KIND, match.start(), match.end())
        for secret in own
        for match in re.finditer(re.escape(secret), text)
    ]
    # A mark such as "[redacted: password]" must not make the word after it a password.
    searched = _REDACTED.sub(_blank_mark, text) if "[redacted: " in text else text
    lowered = _lower_same_length(searched)
    runs = _long_runs(searched)
    if runs or any(map(lowered.__contains__, _HINTS)):
        # There are many patterns to compile, and most processes never need them.
        from reverie.text.secrets import rules

        matches += rules.find_matches(searched, lowered, runs)
    return _merge_overlaps(text, matches) if matches else []


# A chat client sends the same messages again with every turn.
_find_cached = lru_cache(maxsize=2_000)(find_secrets)
_MAX_CACHED_CHARS = 4_000
_MAX_ROUNDS = 8


def redact_text(text: str, own: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    """Replace each secret by a mark; returns the text, and the kinds of secrets."""
    kinds: dict[str, None] = {}
    # Repeated until nothing is found, so that redacting a redacted text does not change it.
    for _ in range(_MAX_ROUNDS):
        matches = (
            _find_cached(text, own) if len(text) <= _MAX_CACHED_CHARS else find_secrets(text, own)
        )
        if not matches:
            break
        kinds |= dict.fromkeys(each.kind for each in matches)
        parts, last = [], 0
        for kind, start, end in matches:
            parts += [text[last:start], REDACTION_MARK.format(kind)]
            last = end
        text = "".join(parts) + text[last:]
    return text, tuple(kinds)


def redact_values(value: Any, own: tuple[str, ...] = ()) -> tuple[Any, tuple[str, ...]]:
    """Redact every text in a JSON value; the key of a value can tell that it is a secret."""
    kinds: dict[str, None] = {}

    def clean(each: Any, name: str) -> Any:
        if isinstance(each, str):
            changed, found_kinds = redact_text(each, own)
            if (
                found_kinds
                and name in _SIGNED_FIELDS
                and len(each) > _MAX_KEY_CHARS
                and changed[0] != "["
            ):
                return each
            if not found_kinds and name and _is_secret_named(name, each):
                changed, found_kinds = REDACTION_MARK.format("secret"), ("secret",)
            kinds.update(dict.fromkeys(found_kinds))
            return changed
        if isinstance(each, Mapping):
            names = _clean_keys(each, lambda key: clean(key, ""))
            return {names[key]: clean(held, key) for key, held in each.items()}
        if isinstance(each, list | tuple):
            return [clean(held, name) for held in each]
        return each

    cleaned = clean(value, "")
    return (cleaned, tuple(kinds)) if kinds else (value, ())


def _clean_keys(keys: Iterable[Any], clean: Callable[[Any], Any]) -> dict[Any, Any]:
    """Map each key of an object to its redacted one, which gets a number if another has it too.

    The numbers do not depend on the order of the keys: metadata is compared without it.
    """
    cleaned = {key: clean(key) for key in keys}
    redacted = [key for key, name in cleaned.items() if name != key]
    taken = cleaned.keys() - redacted
    numbers: dict[str, int] = {}
    for key in sorted(redacted):
        name = cleaned[key]
        while cleaned[key] in taken:
            numbers[name] = numbers.get(name, 1) + 1
            cleaned[key] = f"{name} {numbers[name]}"
        taken.add(cleaned[key])
    return cleaned


# Fields that a model's provider signed or encrypted, and accepts only unchanged. In such long texts
# some part looks like a key by chance; a real key would be at the beginning.
_SIGNED_FIELDS = frozenset(
    {"signature", "thought_signature", "thoughtSignature", "encrypted_content"}
)
_MAX_KEY_CHARS = 300


def _is_secret_named(name: str, value: str) -> bool:
    """Whether a value is a secret because of the name it has, as in ``{"password": "…"}``."""
    lowered = name.lower()
    if len(name) > 60 or not any(map(lowered.__contains__, _SECRET_NAME_PARTS)):
        return False
    # As above: there are many patterns to compile.
    from reverie.text.secrets import rules

    return rules.is_secret_named(name, value)


_OWN_TOKEN = re.compile(r"(?<![A-Za-z0-9])rv_[A-Za-z0-9]{8}_[\w-]{43}")


def remove_own_secrets(value: Any, own: Iterable[str]) -> Any:
    """Redact Reverie's own tokens, and the secrets ``own``, in a JSON value; nothing else."""
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
        names = _clean_keys(value, lambda key: remove_own_secrets(key, own))
        return {names[key]: remove_own_secrets(held, own) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [remove_own_secrets(held, own) for held in value]
    return value


# -- cheap checks ---------------------------------------------------------------------------------

# Words that may be before a secret that is as short as a word.
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
# Parts of the names of secrets.
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
    """The offsets of runs without spaces that are long enough for a key."""
    words = text.split()
    if not words or max(map(len, words)) < MIN_KEY_CHARS:
        return []
    return [run.span() for run in _RUN.finditer(text)]


def _lower_same_length(text: str) -> str:
    """The text in lower case with the same length: the lower case of some letters is longer."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


# A redaction mark. Its words are too short to hide a key in.
_REDACTED = re.compile(r"\[redacted: \w[a-z0-9.]{0,11}(?: [a-z0-9.]{1,11}){0,4}\]")


def _blank_mark(mark: re.Match[str]) -> str:
    """A mark of the same length without words."""
    return f"[{' ' * (len(mark[0]) - 2)}]"


# A value labelled as a digest is not a secret of the kinds that are only guessed.
_DIGEST = re.compile(
    r"\b(?:sha-?\d{1,3}|md5|blake\w{1,4}|integrity|etag|checksum)[=:-]{1,2}\s?[\"']?[\w+/=-]{20,}",
    re.IGNORECASE,
)
_GUESSED = frozenset({"key", "secret", "token"})


def _merge_overlaps(text: str, found: Iterable[SecretMatch]) -> list[SecretMatch]:
    """Sort matches and merge those that overlap, under the kind of the first."""
    marks = [mark.span() for mark in _REDACTED.finditer(text)]
    digests = [digest.span() for digest in _DIGEST.finditer(text)]
    merged: list[SecretMatch] = []
    for each in sorted(found, key=lambda one: (one.start, -one.end)):
        is_guess = each.kind in _GUESSED
        if _overlaps_any(marks, each) or is_guess and _overlaps_any(digests, each):
            continue
        if merged and each.start < merged[-1].end:
            if each.end > merged[-1].end:
                merged[-1] = SecretMatch(merged[-1].kind, merged[-1].start, each.end)
            continue
        merged.append(each)
    return merged


def _overlaps_any(spans: Sequence[tuple[int, int]], each: SecretMatch) -> bool:
    """Whether one of these spans, which are sorted and do not overlap, overlaps a match."""
    before = bisect_left(spans, (each.end, 0)) - 1
    return before >= 0 and spans[before][1] > each.start
