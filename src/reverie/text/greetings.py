"""Greetings, which many conversations begin with, and which identify none of them."""

from __future__ import annotations

import re

from reverie.text.normalize import nfkc_casefold

_WORD = re.compile(r"\w+")
_GREETINGS = """
    abend afternoon again are bonjour buenas buenos buongiorno ciao day dia dias doing evening
    going good greetings guten hallo hej hello hey hi hiya hola how howdy moin morgen morning
    namaste ola salut salve servus sup tag tardes there today yo you
"""
GREETINGS = frozenset(_GREETINGS.split())


def is_only_greeting(text: str) -> bool:
    """Whether a message is nothing but a greeting, which many conversations share."""
    words = _WORD.findall(nfkc_casefold(text))
    return bool(words) and GREETINGS.issuperset(words)
