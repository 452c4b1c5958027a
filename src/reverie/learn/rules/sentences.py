"""The person's own words in a message, sentence by sentence: no code, quotations or pasted text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from reverie.text.normalize import one_line

# Nobody types more than this about themselves: a longer text was pasted.
MAX_TEXT_CHARS = 6_000
# A line at least so long may have been broken only to fit.
_MIN_WRAPPED_CHARS = 50

# Two characters of no meaning stand for a space in a quotation and for its start: a quotation is
# then one long word, and cannot end a sentence or start one.
_SPACE, _QUOTE = "\ue000", "\ue001"

_SHORTENED = """
    approx ave bros co corp dept dr e.g est etc ft gen gov i.e inc jr lt ltd messrs mr mrs ms mt mx
    prof rev sen sgt sr st ste u.k u.s u.s.a vs
"""
_ABBREVIATIONS = frozenset(_SHORTENED.split())
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(
    r"\"[^\"]*(?:\"|\Z)|“[^”]*(?:”|\Z)|«[^»]*(?:»|\Z)|„[^“”]*(?:[“”]|\Z)|`[^`]*(?:`|\Z)|"
    r"(?<!\w)'(?=\w)[^'\n]*+(?:'\w[^'\n]*+)*+'?"
)
_ITEM = re.compile(r"(?:[-*•]|\d{1,2}[.)]) {1,4}")
# From such a line on, the text comes from elsewhere: a rule, a tag, a header, a line of a chat.
_PASTED = re.compile(
    r"[-=_*~#+]{3,}|<[a-z/!]|on .{1,80} wrote\b|begin forwarded|(?:from|to|subject|date|sent): |"
    r"\S{1,60}(?: \S{1,60})? \[?\d{1,2}:\d\d(?: ?[ap]m)?\]?$",
    re.IGNORECASE,
)
_ABOUT_ME = re.compile(
    r"(?:.{0,40} )?(?:about me|about myself|remember(?: this| these)?|note)\s{0,4}:$", re.IGNORECASE
)
_END = re.compile(r"(?<![.!?…;])[.!?…;]++[\"'”’)\]]*+(?=\s|$)")
_NEXT = re.compile(r"\s{1,8}(?:I|My|We|Please|Remember|Always|Never|From)\b")
_LEAD_IN = re.compile(
    r"(?:actually|no|nope|yes|yeah|yep|sorry|well|btw|by the way|oh|and|also|so|but|ok|okay|fyi|"
    r"p\.?s|note|correction|update|now|i meant?|wait|oops|whoops|hold on|"
    r"scratch that)(?:\s{0,4}[,.!:…–—-]{1,8}\s{0,4}|\s{1,4})|remember, |"
    r"(?:hi|hello|hey)(?:(?: \w{1,40}){0,2}\s{0,4}[,.!–—-]{1,8}\s{0,4}|(?: there| again)?\s{1,4})",
    re.IGNORECASE,
)
# How a person takes back the last thing said, and says what it should have been.
_CORRECTS = re.compile(
    r"(?:oops|whoops|sorry|no|nope|er|erm|uh|um|hmm|wait|hold on|actually|i mean|i meant|"
    r"i meant to say|correction|let me correct that|make that|scratch that|or rather|rather|"
    r"my bad|my mistake|typo)(?:\s?[,.:;!…–—-]{1,3}\s?|\s)|"
    r"\*(?=\w)",
    re.IGNORECASE,
)
_MIDWAY = re.compile(
    r"(?:,|…|\.\.\.| [–—-]{1,2}) ?(?=(?:i meant? |(?:oops|whoops|sorry|no|er|erm|uh|um|hmm|wait|"
    r"scratch that|my bad)[,:–—-]|"
    r"no,? wait\b|or rather\b|make that\b))",
    re.IGNORECASE,
)
# "Oops, Nantes I mean": the mark may follow.
_AFTERTHOUGHT = re.compile(r",? (?:i meant?|that is|rather|sorry)$", re.IGNORECASE)
_MAX_CORRECTION_WORDS = 6
_NO_CORRECTION = re.compile(
    r"(?:thanks?|thank|problem|worries|need|idea|way|matter|really|seriously|i|i'm|i've|i'd|my|we|"
    r"it|"
    r"it's|that|that's|this|what|not|never|but|and|because|for|about|if|you|your|he|she|they|"
    r"there|can|"
    r"could|do|does|don't|is|are|was|how|why|where|when|who|which|just|only|also|please|ok|okay|"
    r"yes|no|"
    r"of|everyone|everybody|guys|dude|man|let|let's|one|more|again|with|forget|remember|always)\b",
    re.IGNORECASE,
)
_TAKES_BACK = re.compile(
    r"(?:(?:oops|sorry|actually|oh|well|hold on),? ){0,2}(?:no,? wait|no|nope|wait|scratch that|"
    r"correction)[,.:;!…–—-]",
    re.IGNORECASE,
)
_ONE_MORE = re.compile(r"\b(?:too|also|as well|either)\b", re.IGNORECASE)
_ASIDE = re.compile(r",? (?:by the way|btw|fyi|you know)(?=[.!…]{0,8}$)", re.IGNORECASE)
_LABEL = re.compile(r":(?:\s|$)")
_REQUEST = re.compile(
    r"(?:please,? )?(?:remember|don't forget|do not forget|(?:keep|bear) in mind|from now on|"
    r"always|never)\b",
    re.IGNORECASE,
)


class Sentence(NamedTuple):
    """A sentence without "Actually" before or "btw" after it.

    ``correction`` is what it puts in the place of what was said before: "Milan" in "I mean Milan".
    ``takes_back``: it starts by denying what was said before: "Actually no, I prefer coffee".
    """

    words: str
    correction: str = ""
    is_retraction: bool = False


def iter_sentences(text: str) -> Iterator[str]:
    """What the person says, a sentence at a time, without "Actually" before or "btw" behind it."""
    return (sentence.words for sentence in iter_with_corrections(text))


def iter_with_corrections(text: str) -> Iterator[Sentence]:
    """Return what the person says, a sentence at a time, with what each corrects."""
    labelled = False
    for line in _lines(text):
        if _PASTED.match(line):
            return
        labelled = labelled and bool(line)
        for sentence in split_sentences(line):
            if labelled:
                break
            own = _ASIDE.sub("", without_lead_in(sentence))
            yield Sentence(own, find_correction(sentence), bool(_TAKES_BACK.match(sentence)))
            # "Bob: I live in Rome" is said by another, "Translate: …" by nobody.
            labelled = has_label(own) and not _REQUEST.match(own)
        if line.endswith(":"):
            if not _ABOUT_ME.match(line):
                return
            labelled = False


def find_correction(sentence: str) -> str:
    """Return what a sentence puts in the place of something said before, or nothing."""
    rest, marked = sentence, False
    for _ in range(4):
        if not (found := _CORRECTS.match(rest)):
            break
        rest, marked = rest[found.end() :], True
    rest = rest.removeprefix("it's ")
    rest = _AFTERTHOUGHT.sub("", rest.rstrip(" .!…"))
    if not marked or not rest or len(rest.split()) > _MAX_CORRECTION_WORDS or "?" in rest:
        return ""
    return "" if _NO_CORRECTION.match(rest) or _ONE_MORE.search(rest) else rest


def split_correction(sentence: str) -> tuple[str, str] | None:
    """Take "I live in Rome, I mean Milan" apart, into what was said first and the correction."""
    for found in _MIDWAY.finditer(sentence):
        if correction := find_correction(sentence[found.end() :]):
            return sentence[: found.start()], correction
    return None


def without_lead_in(sentence: str) -> str:
    for _ in range(4):
        if not (found := _LEAD_IN.match(sentence)):
            break
        sentence = sentence[found.end() :]
    return sentence


def has_label(sentence: str) -> bool:
    return bool(_LABEL.search(sentence))


def has_quotation(sentence: str) -> bool:
    return _QUOTE in sentence


def restore_text(sentence: str) -> str:
    """The sentence with its quotations as they were, on one line."""
    return one_line(sentence.replace(_QUOTE, "").replace(_SPACE, " "))


def ends_with_abbreviation(before: str) -> bool:
    """Whether a full stop after this belongs to its last word: "St", "J", "U.S"."""
    word = before.rpartition(" ")[2].lstrip("(\"'")
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper()) or "." in word


def split_sentences(line: str) -> Iterator[str]:
    start = 0
    for found in _END.finditer(line):
        goes_on = found[0] == "." and ends_with_abbreviation(line[start : found.start()])
        if goes_on and not _NEXT.match(line, found.end()):
            continue
        yield line[start : found.end()].strip()
        start = found.end()
    if rest := line[start:].strip():
        yield rest


def _lines(text: str) -> Iterator[str]:
    """The lines, joined where they were broken to fit; an empty one for what is not own."""
    whole, last = "", ""
    for raw in _prepare_text(text).split("\n"):
        line = "" if raw.startswith((">", "|", "    ", "\t")) else one_line(raw)
        item = _ITEM.match(line)
        wrapped = len(last) >= _MIN_WRAPPED_CHARS and not last.endswith(
            (".", "!", "?", "…", ":", ";")
        )
        if wrapped and line and not item:
            whole = f"{whole} {line}"
        else:
            yield whole
            whole = line[item.end() :] if item else line
        last = line
    yield whole


def _prepare_text(text: str) -> str:
    """The text without blocks of code, its apostrophes plain and each quotation one word."""
    if len(text) > MAX_TEXT_CHARS:
        return ""
    return join_quotations(_FENCE.sub("\n\n", normalize_punctuation(text)))


def normalize_punctuation(text: str) -> str:
    """Return the text with plain line ends and apostrophes, and without characters of ours."""
    plain = re.sub(r"[\ud800-\udfff\ue000\ue001]", "\ufffd", text)
    plain = re.sub(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", "\n", plain)
    return re.sub(r"[\u2018\u2019\u02bc\uff07]", "'", plain)


def without_fences(text: str) -> str:
    """Return the text with each block of code as one quoted line."""
    return _FENCE.sub("\n>\n", text)


def join_quotations(text: str) -> str:
    """Return the text with each quotation as one long word."""
    return _QUOTED.sub(lambda quoted: _QUOTE + re.sub(r"\s", _SPACE, quoted[0]), text)


def split_quotations(text: str) -> str:
    """Return the text with its quotations as they were, spaces for the ends of lines in them."""
    return text.replace(_QUOTE, "").replace(_SPACE, " ")


def starts_request(sentence: str) -> bool:
    """Tell whether a sentence starts as a request to keep something in mind does."""
    return bool(_REQUEST.match(sentence))
