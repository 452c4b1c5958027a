"""Recognises secrets (passwords, keys, tokens) in text, and redacts them."""

from __future__ import annotations

from typing import NamedTuple

# The minimum length of a key that is recognised by its format alone.
MIN_KEY_CHARS = 16


class SecretMatch(NamedTuple):
    """A secret in a text: its kind, and its offsets."""

    kind: str
    start: int
    end: int
