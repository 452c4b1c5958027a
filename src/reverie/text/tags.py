"""Tags: validates those a caller gives, and derives concept tags from text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import chain, islice
from typing import NamedTuple

from reverie.errors import InvalidInput
from reverie.text.analyzer import HAN, KATAKANA, STOP_WORDS, tokenize
from reverie.text.normalize import require_length, require_no_controls, require_utf8

MAX_TAGS = 16
MAX_TAG_CHARS = 64
# Limits on the tags as given, before blanks and duplicates are removed and secrets redacted.
MAX_GIVEN_TAGS = 100
MAX_GIVEN_TAG_CHARS = 1_000
MAX_CONCEPT_CHARS = 32
CONCEPT_SOURCE_CHARS = 4_000

# Any letters and marks; of the punctuation only hyphen, underscore and slash.
_INLINE_TAG = re.compile(r"(?<!\S)#([^\s!-,.:-@\[-^`{-~\u2000-\u206f\u3000-\u303f]+)")
_CODE_SPAN = re.compile(r"`[^`]*`")

_ASCII_TERMS = (
    "backup backups embedding embeddings failover gateway glacier gpt network openai qmd router "
    "vlan basculement datensicherung enrutador netzwerk passerelle respaldo routeur sauvegarde"
)
_WIDE_TERMS = (
    "conmutación réseau 备份 備份 故障转移 网关 网络 网路 嵌入 路由器 バックアップ "
    "フェイルオーバー ゲートウェイ ネットワーク ルーター 埋め込み 백업 페일오버 게이트웨이 "
    "네트워크 라우터 임베딩"
)
_ASCII_GLOSSARY = tuple(_ASCII_TERMS.split())
_WIDE_GLOSSARY = tuple(_WIDE_TERMS.split())
_GLOSSARY = frozenset((*_ASCII_GLOSSARY, *_WIDE_GLOSSARY, "s3", "kv"))

_NOISE_WORDS = """
    agent agents also always another assistant called chat check come conversation daily data
    date day days done entry every file files find first get give going good has info item keep
    know last later let like line list log logs look made make many may memories memory message
    messages month move much must need new next note notes now old one open part please put run
    save said say see session sessions search set still sure take tell thing things think time
    today tomorrow two update us use used user users using want way week well will work workspace
    year years yes yesterday yet
    al con como de del el en es la las los para por que se sin su sus una uno unos unas y
    cjs cpp cts jsx json md mjs mts text toml ts tsx txt yaml yml
"""
_NOISE = STOP_WORDS | frozenset(_NOISE_WORDS.split())


class _ConceptPatterns(NamedTuple):
    short_glossary: re.Pattern[str]
    separator: re.Pattern[str]
    compound: re.Pattern[str]
    date: re.Pattern[str]
    cjk: re.Pattern[str]
    kana_only: re.Pattern[str]
    cjk_word: re.Pattern[str]
    unsegmented: re.Pattern[str]


@cache
def _patterns() -> _ConceptPatterns:
    """Compiled for the first text: it would take longer than the rest of the import."""
    return _ConceptPatterns(
        # Whole words only: as substrings these occur in other words ("mkv").
        short_glossary=re.compile(r"(?<![^\W_])(?:s3|kv)(?![^\W_])"),
        # Whether there is any compound, which is much faster than finding one.
        separator=re.compile(r"[._/-](?<=[^\W_].)[^\W_]"),
        # Only at the start of a word: otherwise a long word is scanned once for each letter.
        compound=re.compile(r"(?<![^\W_])[^\W_]++(?:[._/-][^\W_]++)+"),
        date=re.compile(r"\d{4}-\d{2}-\d{2}(?:\.\w+)?"),
        cjk=re.compile(rf"[{HAN}{KATAKANA}\u3041-\u309f\uac00-\ud7a3]"),
        kana_only=re.compile(rf"[{KATAKANA}\u3041-\u309f]+"),
        # A long run of Han is a clause, and hiragana mostly grammar: neither is a concept.
        cjk_word=re.compile(rf"(?<![{HAN}])[{HAN}]{{2,4}}(?![{HAN}])|[{KATAKANA}]{{3,}}"),
        unsegmented=re.compile(
            rf"[{HAN}{KATAKANA}\u3041-\u309f\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
        ),
    )


def require_tag_limits(tags: Iterable[str]) -> list[str]:
    """Return the tags as a list; refuse far too many or too long ones before they are processed."""
    if isinstance(tags, str):
        raise InvalidInput("tags must be a list of texts, not one text: wrap it in a list")
    try:
        given = list(islice(tags, MAX_GIVEN_TAGS + 1))
    except TypeError:
        raise InvalidInput(f"tags must be a list of texts, not {tags!r:.40}") from None
    if len(given) > MAX_GIVEN_TAGS:
        raise InvalidInput(f"at most {MAX_TAGS} tags are allowed")
    for tag in given:
        if isinstance(tag, str) and len(tag) > MAX_GIVEN_TAG_CHARS:
            raise InvalidInput(
                f"a tag has {len(tag)} characters, at most {MAX_TAG_CHARS} are allowed"
            )
    return given


def clean_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Trim, lower-case and deduplicate tags; too many or too long ones raise InvalidInput."""
    unique: dict[str, None] = {}
    for tag in require_tag_limits(tags):
        clean = require_utf8(tag, "a tag").strip().lower()
        if not clean:
            continue
        require_no_controls(clean, "a tag")
        require_length(clean, "a tag", MAX_TAG_CHARS)
        unique[clean] = None
        if len(unique) > MAX_TAGS:
            raise InvalidInput(f"at most {MAX_TAGS} tags are allowed")
    return tuple(unique)


def inline_tags(text: str) -> tuple[str, ...]:
    """Return the ``#tags`` in a text as note-taking programs read them; not those in code.

    A tag begins a word and has a character that is no digit, so ``#12`` and ``a#b`` are none.
    """
    found: dict[str, None] = {}
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and "#" in line:
            spoken = _CODE_SPAN.sub(" ", line)
            lowered = (tag.lower() for tag in _INLINE_TAG.findall(spoken))
            found.update((tag, None) for tag in lowered if _is_inline_tag(tag))
    return tuple(found)


def _is_inline_tag(tag: str) -> bool:
    """Whether a word after ``#`` is a tag that ``clean_tags`` accepts, and no number."""
    if not tag.strip("0123456789-_/"):
        return False
    try:
        return clean_tags([tag]) == (tag,)
    except InvalidInput:
        return False


def concept_tags(text: str, limit: int = 8) -> tuple[str, ...]:
    """Derive tags from a text, deterministically: glossary terms, then compounds, then words."""
    if limit <= 0:
        return ()
    # Lower case can leave text that is no longer composed, as with "İ".
    source = unicodedata.normalize("NFKC", text[:CONCEPT_SOURCE_CHARS]).lower()
    candidates = dict.fromkeys(chain(_glossary_terms(source), _compounds(source), _words(source)))
    # Long ones are left out before _is_concept, whose cache they would fill.
    concepts = (tag for tag in candidates if len(tag) <= MAX_CONCEPT_CHARS and _is_concept(tag))
    return tuple(islice(concepts, limit))


def _glossary_terms(source: str) -> list[str]:
    terms = [term for term in _ASCII_GLOSSARY if term in source]
    if "s3" in source or "kv" in source:
        terms += _patterns().short_glossary.findall(source)
    if not source.isascii():
        terms += [term for term in _WIDE_GLOSSARY if term in source]
    return terms


def _compounds(source: str) -> list[str]:
    patterns = _patterns()
    if not patterns.separator.search(source):
        return []
    return [compound.replace("_", "-") for compound in patterns.compound.findall(source)]


def _words(source: str) -> Iterable[str]:
    tokens = tokenize(source)
    if source.isascii() and "'" not in source:
        return tokens
    return chain.from_iterable(map(_split_token, tokens))


def _split_token(token: str) -> list[str]:
    patterns = _patterns()
    if patterns.unsegmented.match(token):
        return patterns.cjk_word.findall(token)
    if "'" in token or "\u2019" in token:
        return [_without_possessive(token.replace("\u2019", "'"))]
    return [token]


def _without_possessive(word: str) -> str:
    bare = word.removesuffix("'s")
    return "" if bare.replace("'", "") in _NOISE else bare


@lru_cache(maxsize=32_768)
def _is_concept(tag: str) -> bool:
    length, patterns = len(tag), _patterns()
    if tag in _GLOSSARY:
        return True
    if tag in _NOISE:
        return False
    if length < 3 and (
        length < 2 or not patterns.cjk.search(tag) or patterns.kana_only.fullmatch(tag)
    ):
        return False
    return not tag.isdecimal() and not patterns.date.fullmatch(tag)
