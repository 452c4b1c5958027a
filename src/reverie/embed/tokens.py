"""The bundled tokenizer, which the local embedder uses and which counts tokens."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from reverie.errors import EmbeddingFailed
from reverie.text.normalize import replace_surrogates

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_lock = Lock()
# The tokenizer's symbol for a space, and the words that it splits a text into.
_SPACE = "▁"
_WORDS = re.compile("▁+[^▁]*")
_MAX_CACHED_WORD_CHARS = 40
_MAX_CACHED_TEXT_CHARS = 5_000


def count_tokens(text: str) -> int:
    """The number of tokens of a text, by the bundled tokenizer.

    No token extends over the start of a word, so tokens are counted by word. The counts of words
    and of short texts are cached, because both recur from one context to the next.
    """
    return _count_text(text) if len(text) <= _MAX_CACHED_TEXT_CHARS else _count_words(text)


def _count_words(text: str) -> int:
    if not text:
        return 0
    words = _WORDS.findall((_SPACE + replace_surrogates(text)).replace(" ", _SPACE))
    if len(max(words, key=len)) <= _MAX_CACHED_WORD_CHARS:
        return sum(map(_count_word, words))
    return sum(
        _count_word(word) if len(word) <= _MAX_CACHED_WORD_CHARS else _count_uncached(word)
        for word in words
    )


def _count_uncached(word: str) -> int:
    # The tokenizer adds a space before the text it is given.
    return len(tokenizer().encode(word[1:], add_special_tokens=False)) if word != _SPACE else 1


_count_word = lru_cache(maxsize=50_000)(_count_uncached)
_count_text = lru_cache(maxsize=2_000)(_count_words)


def bundled_file(name: str) -> Path:
    """The path of a file of wordllama, which is not imported: its loader needs a network."""
    spec = find_spec("wordllama")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / name
        if path.is_file():
            return path
    raise EmbeddingFailed(
        f"the bundled {Path(name).name} is missing: pip install --force-reinstall wordllama"
    )


def tokenizer() -> Tokenizer:
    """The tokenizer of this process. Use ``encode``: ``encode_batch`` starts threads."""
    with _lock:
        return _load()


@cache
def _load() -> Tokenizer:
    from tokenizers import Regex, Tokenizer
    from tokenizers.pre_tokenizers import Split

    loaded: Tokenizer = Tokenizer.from_file(
        str(bundled_file("tokenizers/l2_supercat_tokenizer_config.json"))
    )
    # No token of the vocabulary extends over the start of a word, so splitting there first changes
    # no token; but the tokenizer then caches words, which recur, instead of whole texts.
    loaded.pre_tokenizer = Split(Regex("▁+"), "merged_with_next")
    loaded.encode_special_tokens = True  # "</s>" in a text is text
    return loaded
