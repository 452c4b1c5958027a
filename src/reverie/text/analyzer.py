"""The analyser: turns a text into the terms it is indexed under, and a query into its terms."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

import Stemmer

from reverie.text.normalize import nfkc_casefold

ANALYZER_VERSION = 2
# Terms also depend on the stemmer and on Unicode: an upgrade of either may change them.
ANALYZER_IDENTITY = (
    f"words {ANALYZER_VERSION}, Snowball {Stemmer.version()}, Unicode {unicodedata.unidata_version}"
)
"""Stored with the index: with another identity the postings are rebuilt."""

MAX_TERM_CHARS = 64
MAX_QUERY_CHARS = 20_000

HAN = r"\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KATAKANA = r"\u30a0-\u30ff\u31f0-\u31ff"
# Scripts written without spaces. Chinese and Japanese share a group: a word may mix them.
_UNSPACED = (
    HAN + KATAKANA + r"\u3041-\u309f\U0001b000-\U0001b16f",
    r"\u0e00-\u0e7f",  # Thai
    r"\u0e80-\u0eff",  # Lao
    r"\u1780-\u17ff\u19e0-\u19ff",  # Khmer
    r"\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f",  # Myanmar
)
_IS_UNSPACED = re.compile(f"[{''.join(_UNSPACED)}]")

_STEMMED_BLOCKS = (
    (0x0041, 0x02AF, "english"),
    (0x1E00, 0x1EFF, "english"),
    (0x2C60, 0x2C7F, "english"),
    (0xA720, 0xA7FF, "english"),
    (0x0370, 0x03FF, "greek"),
    (0x1F00, 0x1FFF, "greek"),
    (0x0400, 0x052F, "russian"),
    (0x1C80, 0x1C8F, "russian"),
    (0xA640, 0xA69F, "russian"),
    (0x0531, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0750, 0x077F, "arabic"),
    (0x0870, 0x08FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0xA8E0, 0xA8FF, "hindi"),
)
# The blocks of Unicode with combining marks; a scan of all of Unicode takes ten times as long.
_MARKED_BLOCKS = (
    (0x0300, 0x30FF),
    (0xA600, 0xABFF),
    (0xFB00, 0xFE2F),
    (0x10100, 0x11FFF),
    (0x13400, 0x1347F),
    (0x16100, 0x1613F),
    (0x16A00, 0x16FFF),
    (0x1BC00, 0x1BCFF),
    (0x1CF00, 0x1EAFF),
    (0xE0100, 0xE01EF),
)
_STEMMER_LANGUAGES = frozenset(Stemmer.algorithms())

# Without "will", "may" and "us": they are also a name, a month and a country.
_STOP_WORDS = """
    a about above after again against all am an and any are as at be because been before being
    below between both but by can cannot could did do does doing down during each few for from
    further had has have having he her here hers herself him himself his how i if in into is it
    its itself just me more most my myself no nor not of off on once only or other ought our ours
    ourselves out over own same shall she should so some such than that the their theirs them
    themselves then there these they this those through to too under until up very was we were
    what when where which while who whom whose why with would you your yours yourself yourselves
    arent cant couldnt didnt doesnt dont hadnt hasnt havent isnt mustnt neednt shant shouldnt
    wasnt werent wont wouldnt
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# Characters inside words that carry no meaning for search: soft hyphen, joiners, bidi controls,
# word joiner, BOM and variation selectors. The Arabic tatweel only stretches a word.
_IGNORED = r"\u00ad\u061c\u200c-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufe00-\ufe0f\ufeff"
_IGNORABLE = re.compile(f"[{_IGNORED}\u0640\U000e0100-\U000e01ef]+")
_CLITIC = re.compile(r"(?<=.)'(?:s|d|m|ll|re|ve)$")
# Latin, Greek, Cyrillic, Armenian, punctuation, symbols, emoji: no marks and nothing unspaced,
# also once folded (which is why U+0130 and U+1F200… are not here).
_PLAIN = re.compile(
    r"[\x00-\xac\xae-\u012f\u0131-\u02ff\u0370-\u0482\u048a-\u0590\u1e00-\u1fff\u2010-\u2029"
    r"\u202f-\u205f\u20a0-\u20cf\u2100-\u2bff\U0001f000-\U0001f1ff\U0001f300-\U0001faff]*"
)
# Each emoji is a word; the modifiers of skin colour are not.
_EMOJI = r"[\u2600-\u27bf\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"
_PLAIN_TOKEN = re.compile(rf"[^\W_]+(?:['\u2019][^\W_]+)*|{_EMOJI}")
_ASCII_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")


class Terms(NamedTuple):
    """The terms of a text with the number of occurrences of each, and of all."""

    counts: dict[str, int]
    length: int


def analyse(text: str) -> Terms:
    """The terms a text is indexed under. Stop words are used only if there are no other words."""
    words = _split_words(text, singles=True)
    terms = [term for word in words if (term := _term_unless_stop_word(word))]
    if not terms:
        terms = [term for word in words if (term := _term(word))]
    counts: dict[str, int] = {}
    for term in terms:
        counts[term] = counts.get(term, 0) + 1
    return Terms(counts, len(terms))


def query_terms(text: str, limit: int = 64) -> dict[str, str]:
    """The terms of a query in order, each with the first word of the folded query it comes from."""
    words = _split_words(text[:MAX_QUERY_CHARS])
    terms: dict[str, str] = {}
    for to_term in (_term_unless_stop_word, _term):
        for word in words:
            if len(terms) >= limit:
                break
            if term := to_term(word):
                terms.setdefault(term, word)
        if terms:
            break
    return terms


def tokenize(text: str) -> list[str]:
    """The words of a lower-case NFKC text; a run in a script without spaces is one token."""
    pattern = _ASCII_TOKEN if text.isascii() else _patterns().token
    return pattern.findall(text)


def _split_words(text: str, *, singles: bool = False) -> list[str]:
    if text.isascii():
        return [word[:MAX_TERM_CHARS] for word in _ASCII_TOKEN.findall(text.lower())]
    if _PLAIN.fullmatch(text):
        return [word[:MAX_TERM_CHARS] for word in _PLAIN_TOKEN.findall(nfkc_casefold(text))]
    return _split_unicode_words(text, singles=singles)


def _split_unicode_words(text: str, *, singles: bool = False) -> list[str]:
    """Split any text; scripts without spaces give bigrams, and with ``singles`` characters too."""
    patterns = _patterns()
    # unicodedata sorts the marks on one letter in quadratic time.
    text = nfkc_casefold(patterns.mark_run.sub(r"\1", text))
    words: list[str] = []
    for token in patterns.token.findall(text):
        if _IS_UNSPACED.match(token):
            units = patterns.grapheme.findall(token)
            words.extend(_bigrams(units))
            if singles and len(units) > 1:
                words.extend(unit[:MAX_TERM_CHARS] for unit in units)
        else:
            words.append(token[:MAX_TERM_CHARS])
    return words


def _bigrams(units: list[str]) -> Iterable[str]:
    if len(units) == 1:
        return (units[0][:MAX_TERM_CHARS],)
    return [(a + b)[:MAX_TERM_CHARS] for a, b in zip(units, units[1:], strict=False)]


@lru_cache(maxsize=32_768)
def _term_unless_stop_word(word: str) -> str:
    """The term of a word, or nothing for a stop word."""
    return "" if _strip_clitics(word) in STOP_WORDS else _term(word)


def _term(word: str) -> str:
    word = _strip_clitics(word)
    language = _language(word)
    if not language:
        return word
    if language == "english" and not word.isascii():
        word = _without_accents(word)
    return str(_stemmer(language).stemWord(word)) or word


def _strip_clitics(word: str) -> str:
    """Remove apostrophes, English clitics and invisible characters from a word."""
    if not word.isascii():
        word = _IGNORABLE.sub("", word).replace("\u2019", "'").replace("\u02bc", "'")
    return _CLITIC.sub("", word).replace("'", "") if "'" in word else word


def _without_accents(word: str) -> str:
    letters = unicodedata.normalize("NFD", word)
    bare = "".join(c for c in letters if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFC", bare)


def _language(word: str) -> str | None:
    code = next((ord(character) for character in word if character.isalpha()), 0)
    for first, last, language in _STEMMED_BLOCKS:
        if first <= code <= last:
            return language if language in _STEMMER_LANGUAGES else None
    return None


class _Stemmers(threading.local):
    """One stemmer for each thread and language: a stemmer must not be shared."""

    def __init__(self) -> None:
        self.by_language: dict[str, Stemmer.Stemmer] = {}


_stemmers = _Stemmers()


def _stemmer(language: str) -> Stemmer.Stemmer:
    stemmer = _stemmers.by_language.get(language)
    if stemmer is None:
        stemmer = _stemmers.by_language[language] = Stemmer.Stemmer(language, 0)
    return stemmer


class _TokenPatterns(NamedTuple):
    token: re.Pattern[str]
    grapheme: re.Pattern[str]
    mark_run: re.Pattern[str]


@cache
def _patterns() -> _TokenPatterns:
    """Compiled for the first non-ASCII text: collecting the marks takes some milliseconds."""
    mark = _combining_mark_pattern()
    letter = rf"[^\W_{''.join(_UNSPACED)}]"
    word = f"{letter}+(?:{mark}{letter}*)*"
    runs = "".join(rf"|(?:(?![\W_])[{group}]{mark}*)+" for group in _UNSPACED)
    return _TokenPatterns(
        token=re.compile(rf"{word}(?:['\u2019]{word})*{runs}|{_EMOJI}"),
        grapheme=re.compile(rf"(?!{mark}).{mark}*", re.DOTALL),
        mark_run=re.compile(rf"({mark}{{30}}){mark}+"),
    )


def _combining_mark_pattern() -> str:
    """Matches characters that continue a word but are no letters: combining marks and joiners."""
    codes = (code for first, last in _MARKED_BLOCKS for code in range(first, last + 1))
    ranges: list[tuple[int, int]] = []
    for code in codes:
        if unicodedata.category(chr(code)) not in {"Mn", "Mc"}:
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    low = "".join(f"{chr(a)}-{chr(b)}" for a, b in ranges if a < 0x10000)
    high = "".join(f"{chr(a)}-{chr(b)}" for a, b in ranges if a >= 0x10000)
    # A character class beyond the first plane is slow: the lookahead keeps most text away from it.
    return rf"(?:[{_IGNORED}{low}]|(?=[\U00010100-\U0001eaff\U000e0100-\U000e01ef])[{high}])"
