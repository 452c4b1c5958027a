"""The bundled tokenizer: what the local embedder reads and what Reverie counts tokens with."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from reverie.errors import EmbeddingFailed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_lock = Lock()


def count_tokens(text: str) -> int:
    """How many tokens the bundled tokenizer makes of the text."""
    return len(tokenizer().encode(encodable(text), add_special_tokens=False))


def encodable(text: str) -> str:
    """The text without lone surrogates, which no tokenizer takes; its length stays."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def bundled(name: str) -> Path:
    """A file of wordllama, which is never imported: offline, its loader looks elsewhere."""
    spec = find_spec("wordllama")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / name
        if path.is_file():
            return path
    raise EmbeddingFailed(
        f"the bundled {Path(name).name} is missing: pip install --force-reinstall wordllama"
    )


def tokenizer() -> Tokenizer:
    """The one tokenizer of this process. Use ``encode``: ``encode_batch`` starts threads."""
    with _lock:
        return _load()


@cache
def _load() -> Tokenizer:
    from tokenizers import Regex, Tokenizer
    from tokenizers.pre_tokenizers import Split

    made: Tokenizer = Tokenizer.from_file(
        str(bundled("tokenizers/l2_supercat_tokenizer_config.json"))
    )
    # No token of the vocabulary reaches over a word's start, so cutting there first changes no
    # token; but the tokenizer's cache then holds words, which come again, instead of whole texts.
    made.pre_tokenizer = Split(Regex("▁+"), "merged_with_next")
    made.encode_special_tokens = True  # "</s>" in a text is text
    return made
