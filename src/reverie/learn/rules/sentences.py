"""Split a message into sentences, leaving out code, quotations and pasted text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from reverie.text.normalize import one_line

# Nobody types more than this about themselves: a longer text was pasted.
MAX_TEXT_CHARS = 6_000
# A line of at least this length may have been wrapped.
_MIN_WRAPPED_CHARS = 50


def ignoring_case(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that matches upper and lower case."""
    return re.compile(pattern, re.IGNORECASE)


# Private-use characters that replace the spaces in a quotation and mark its start. This makes a
# quotation one long word, so that no sentence ends or starts inside it.
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
# A line after which everything was pasted: a ruler, a tag, a mail header, a line of a chat.
_PASTED = ignoring_case(
    r"[-=_*~#+]{3,}|<[a-z/!]|on .{1,80} wrote\b|begin forwarded|(?:from|to|subject|date|sent): |"
    r"\S{1,60}(?: \S{1,60})? \[?\d{1,2}:\d\d(?: ?[ap]m)?\]?$"
)
_ABOUT_ME = ignoring_case(
    r"(?:.{0,40} )?(?:about me|about myself|remember(?: this| these)?|note)\s{0,4}:$"
)
_END = re.compile(r"(?<![.!?…;])[.!?…;]++[\"'”’)\]]*+(?=\s|$)")
_NEXT = re.compile(r"\s{1,8}(?:I|My|We|Please|Remember|Always|Never|From)\b")
_LEAD_IN = ignoring_case(
    r"(?:actually|no|nope|yes|yeah|yep|sorry|well|btw|by the way|oh|and|also|so|but|ok|okay|fyi|"
    r"p\.?s|note|correction|update|now|i meant?|wait|oops|whoops|hold on|"
    r"scratch that|you should know(?: that)?|you (?:might|may) want to know(?: that)?)"
    r"(?:\s{0,4}[,.!:…–—-]{1,8}\s{0,4}|\s{1,4})|remember, |"
    r"(?:just so you(?:'re| are)? (?:know|aware)|for (?:(?:your|future) )?(?:reference|context|"
    r"information|"
    r"background)|quick (?:question|intro|note|update|one)|heads[- ]up|the thing is|fun fact|to "
    r"be honest|"
    r"tbh|unfortunately|thanks|thank you|good news|small update|as you "
    r"know)\s{0,4}[,.!:…–—-]{1,8}\s{0,4}|"
    r"(?:hi|hello|hey)(?:(?: \w{1,40}){0,2}\s{0,4}[,.!–—-]{1,8}\s{0,4}|(?: there| again)?\s{1,4})"
)
# The words by which a person corrects what they said last.
_CORRECTS = ignoring_case(
    r"(?:oops|whoops|sorry|no|nope|er|erm|uh|um|hmm|wait|hold on|actually|i mean|i meant|"
    r"i meant to say|correction|let me correct that|make that|scratch that|or rather|rather|my bad|"
    r"my mistake|typo)(?:\s?[,.:;!…–—-]{1,3}\s?|\s)|\*(?=\w)"
)
_MIDWAY = ignoring_case(
    r"(?:,|…|\.\.\.| [–—-]{1,2}) ?(?=(?:i meant? |(?:oops|whoops|sorry|no|er|erm|uh|um|hmm|wait|"
    r"scratch that|my bad)[,:–—-]|no,? wait\b|or rather\b|make that\b))"
)
# The words of a correction may also follow it: "Oops, Nantes I mean".
_AFTERTHOUGHT = ignoring_case(r",? (?:i meant?|that is|rather|sorry)$")
_MAX_CORRECTION_WORDS = 6
_NO_CORRECTION = ignoring_case(
    r"(?:thanks?|thank|problem|worries|need|idea|way|matter|really|seriously|i|i'm|i've|i'd|my|we|"
    r"it|it's|that|that's|this|what|not|never|but|and|because|for|about|if|you|your|he|she|they|"
    r"there|can|could|do|does|don't|is|are|was|how|why|where|when|who|which|just|only|also|please|"
    r"ok|okay|yes|no|of|everyone|everybody|guys|dude|man|let|let's|one|more|again|with|forget|"
    r"remember|always)\b"
)
_TAKES_BACK = ignoring_case(
    r"(?:(?:oops|sorry|actually|oh|well|hold on),? ){0,2}(?:no,? wait|no|nope|wait|scratch that|"
    r"correction)[,.:;!…–—-]"
)
_ONE_MORE = ignoring_case(r"\b(?:too|also|as well|either)\b")
_ASIDE = ignoring_case(r",? (?:by the way|btw|fyi|you know)(?=[.!…]{0,8}$)")
_LABEL = re.compile(r":(?:\s|$)")
_REQUEST = ignoring_case(
    r"(?:please,? )?(?:remember|don't forget|do not forget|(?:keep|bear) in mind|from now on|"
    r"always|never)\b"
)


class Sentence(NamedTuple):
    """A sentence without a lead-in ("Actually") or an aside ("btw").

    ``correction`` is the new value in a sentence that corrects the one before it: "Milan" in "I
    mean Milan". ``is_retraction``: it starts by denying what was said before, as in "Actually no,
    I prefer coffee".
    """

    words: str
    correction: str = ""
    is_retraction: bool = False


def iter_sentences(text: str) -> Iterator[str]:
    """Yield the person's own sentences, without lead-ins ("Actually") and asides ("btw")."""
    return (sentence.words for sentence in iter_with_corrections(text))


def iter_with_corrections(text: str) -> Iterator[Sentence]:
    """Yield the person's own sentences, each with the correction that it makes."""
    labelled = False
    for line in _lines(text):
        if _PASTED.match(line):
            return
        labelled = labelled and bool(line)
        for sentence in split_sentences(line):
            if labelled:
                break
            words = _ASIDE.sub("", without_lead_in(sentence))
            yield Sentence(words, find_correction(sentence), bool(_TAKES_BACK.match(sentence)))
            # "Bob: I live in Rome" is said by Bob, and "Translate: …" by nobody.
            labelled = has_label(words) and not _REQUEST.match(words)
        if line.endswith(":"):
            if not _ABOUT_ME.match(line):
                return
            labelled = False


def find_correction(sentence: str) -> str:
    """Return the new value when a sentence corrects the one before it, else an empty text."""
    rest, marked = sentence, False
    for _ in range(4):
        if not (match := _CORRECTS.match(rest)):
            break
        rest, marked = rest[match.end() :], True
    rest = rest.removeprefix("it's ")
    rest = _AFTERTHOUGHT.sub("", rest.rstrip(" .!…"))
    if not marked or not rest or len(rest.split()) > _MAX_CORRECTION_WORDS or "?" in rest:
        return ""
    return "" if _NO_CORRECTION.match(rest) or _ONE_MORE.search(rest) else rest


def split_correction(sentence: str) -> tuple[str, str] | None:
    """Split "I live in Rome, I mean Milan" into the first statement and its correction."""
    for match in _MIDWAY.finditer(sentence):
        if correction := find_correction(sentence[match.end() :]):
            return sentence[: match.start()], correction
    return None


def without_lead_in(sentence: str) -> str:
    """Return a sentence without up to four lead-ins such as "Actually" or "Oh"."""
    for _ in range(4):
        if not (match := _LEAD_IN.match(sentence)):
            break
        sentence = sentence[match.end() :]
    return sentence


def has_label(sentence: str) -> bool:
    """Whether a sentence has a label or introduces something by a colon: "Bob: …"."""
    return bool(_LABEL.search(sentence))


def has_quotation(sentence: str) -> bool:
    """Whether a prepared sentence contains a quotation."""
    return _QUOTE in sentence


def restore_text(sentence: str) -> str:
    """Return a sentence with its quotations restored, on one line."""
    return one_line(split_quotations(sentence))


def ends_with_abbreviation(before: str) -> bool:
    """Whether a full stop after this text belongs to its last word: "St", "J", "U.S"."""
    word = before.rpartition(" ")[2].lstrip("(\"'")
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper()) or "." in word


def split_sentences(line: str) -> Iterator[str]:
    """Yield the sentences of a line."""
    start = 0
    for end in _END.finditer(line):
        goes_on = end[0] == "." and ends_with_abbreviation(line[start : end.start()])
        if goes_on and not _NEXT.match(line, end.end()):
            continue
        yield line[start : end.end()].strip()
        start = end.end()
    if rest := line[start:].strip():
        yield rest


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, wrapped ones joined, and quoted or indented ones empty."""
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
    """Remove blocks of code, normalise apostrophes, and make each quotation one word.

    A text longer than MAX_TEXT_CHARS becomes empty.
    """
    if len(text) > MAX_TEXT_CHARS:
        return ""
    return join_quotations(_FENCE.sub("\n\n", normalize_punctuation(text)))


def normalize_punctuation(text: str) -> str:
    """Return a text with plain line ends and apostrophes, and without our marker characters."""
    plain = re.sub(r"[\ud800-\udfff\ue000\ue001]", "\ufffd", text)
    plain = re.sub(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", "\n", plain)
    return re.sub(r"[\u2018\u2019\u02bc\uff07]", "'", plain)


def without_fences(text: str) -> str:
    """Replace each block of code by one empty quoted line."""
    return _FENCE.sub("\n>\n", text)


def join_quotations(text: str) -> str:
    """Make each quotation of a text one long word."""
    return _QUOTED.sub(lambda quoted: _QUOTE + re.sub(r"\s", _SPACE, quoted[0]), text)


def split_quotations(text: str) -> str:
    """Restore the quotations of a text, with spaces for the line ends in them."""
    return text.replace(_QUOTE, "").replace(_SPACE, " ")


def starts_request(sentence: str) -> bool:
    """Whether a sentence starts like a request to remember something."""
    return bool(_REQUEST.match(sentence))
