"""Find the parts of a user's message that are the person's own statements.

Learning reads only these. It leaves out text that was pasted, quoted or forwarded, text that the
assistant should read or work on, role play and fiction. A message that asks not to be remembered
has no such part. Doubtful text is left out: the turn is stored verbatim in any case and can still
be found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from reverie.learn.rules import pasted, role_play
from reverie.learn.rules.role_play import REQUEST_PREFIX
from reverie.learn.rules.sentences import (
    MAX_TEXT_CHARS,
    ignoring_case,
    join_quotations,
    normalize_punctuation,
    split_quotations,
    split_sentences,
    starts_request,
    without_fences,
    without_lead_in,
)

# Replaces omitted text in the question to a model.
OMISSION_MARK = "[pasted text]"
# Prose of at least this length, or this many paragraphs, counts as the person's own only when most
# of its sentences speak of the person or to the assistant.
_LONG_PROSE = 420
_MANY_PARAGRAPHS = 3
# A line of at least this length that ends within a sentence was wrapped.
_MIN_WRAPPED_CHARS = 55


@dataclass(frozen=True, slots=True)
class OwnWords:
    """The person's own parts of a message, verbatim and in order."""

    segments: tuple[str, ...] = ()
    opted_out: bool = False  # the person asked that this message not be remembered
    is_whole: bool = False  # nothing was left out

    @property
    def text(self) -> str:
        """The parts as one text."""
        return "\n\n".join(self.segments)

    @property
    def text_with_omission(self) -> str:
        """The parts as one text, with a mark at its end when something was left out."""
        return self.text if self.is_whole else "\n\n".join((*self.segments, OMISSION_MARK))


class _SentenceSpan(NamedTuple):
    """A sentence of a line: its offsets, and its words without a lead-in ("Actually")."""

    start: int
    end: int
    words: str


# -- asking not to be remembered ------------------------------------------------------------------

_TO_ASSISTANT = (
    r"(?:^|[,:;.!(–—-] ?|\b(?:please|pls|but|and|so|you|just|also|kindly|to|need) )"
    r"(?:do not|don't|dont|never|needn't|need not|not)"
)
_KEEP = (
    r"(?:remember|store|save|keep|retain|record|memori[sz]e|learn|log|note|write|take|add|"
    r"hold on to|make a note of)"
)
_THIS = (
    r"(?:(?:this|that|the|our) (?:conversation|chat|message|session|turn|part|bit|info\w{0,10}|"
    r"detail)|this(?: one| down)?|that(?: down)?|it(?: down)?|these|those|anything|"
    r"any of (?:this|that|it)|what i(?:'m| am|'ve| have)? (?:\w{1,12} ){0,2}?(?:say|said|saying|"
    r"tell|told|telling|write|wrote|typed?|typing)\b(?: you)?(?: now| here| next)?|what i|"
    r"from this|a record|notes?)"
)
_WHERE = (
    r"(?=\W{0,20}$| ?[,.;:!)–—]| -| (?:down|about|please|but|and|i|i'm|i've|my|anywhere|either|"
    r"though|thanks|just|ok)\b| (?:in|into|to|on|of|from|for) (?:your |the |this |any |my |"
    r"a )?(?:\w{1,20} )?(?:memory|memories|notes?|records?|profile|file|database|storage|log|"
    r"message|chat|one|it|this|that|conversation|future|later|me)\b)"
)
_OPT_OUT = ignoring_case(
    rf"{_TO_ASSISTANT} (?:ever |have to |need to )?{_KEEP} {_THIS}{_WHERE}|"
    rf"\bno need to {_KEEP} {_THIS}\b|\b(?:without|rather you didn't|rather not have you|"
    rf"prefer you didn't) {_KEEP} {_THIS}\b|\boff[- ]the[- ]record\b|\bstrictly confidential\b|"
    r"\bthis is (?:confidential|private|a secret)\b|\bstays? between\b|"
    r"\bkeep (?:this |that |it )?(?:just |strictly )?(?:between (?:us|you and me|ourselves)|"
    r"private|confidential|to yourself|secret)\b|"
    r"\b(?:just |strictly )?between (?:us|you and me)(?=\W)|"
    r"\b(?:forget|disregard|strike) (?:that |what |everything |anything |all )?(?:i|i've) "
    r"(?:just |ever )?(?:said|told|mentioned|wrote|typed|say)\b|"
    r"\bremember (?:nothing|none) of (?:this|that|it)\b|"
    r"(?:^|\b(?:please|just|mind|no|actually|oh),? )(?:forget|disregard) (?:that|this|it)"
    r"(?=\W{0,20}$|[.,;!])|\bnot (?:for|to be) (?:your |the )?(?:memory|remembered|stored|kept|"
    r"saved|records?)\b|\bstays? (?:here|in this (?:chat|room|conversation))\b|"
    rf"{_TO_ASSISTANT} (?:remember|store|save|memori[sz]e|record)(?=[\s).!]{{0,4}}$)|"
    rf"{_TO_ASSISTANT} (?:remember|store|memori[sz]e|retain|hold on to) (?:my|that (?:i|my)|"
    r"things)\b|\bnothing\b.{0,40}\b(?:saved|stored|remembered|kept|recorded|learned)\b|"
    r"\b(?:ignore|skip) (?:this|that|it) for (?:your |the )?memory\b|"
    r"\bstop (?:remembering|learning|saving|storing|recording|memori[sz]ing)\b|"
    r"\b(?:should|must|shall|may|can)(?: not|n't) be (?:remembered|stored|saved|kept|recorded|"
    r"learned|memori[sz]ed)\b|\bdidn't hear (?:this|that|it) from me\b|"
    r"\b(?:incognito|off the books|for your ears only)\b|"
    r"\b(?:delete|remove|erase|wipe|keep|leave) (?:this|that|it) (?:from|off|out of) "
    r"(?:your |the )?(?:memory|memories|notes|records?|profile)\b|"
    r"\b(?:this|that|it)(?:'s| is) (?:strictly )?(?:a secret|private|confidential)\b|"
    r"^(?:please )?(?:forget|disregard) (?:this|that|it):"
)

# -- words of others ------------------------------------------------------------------------------

_SAYING = (
    r"(?<!\bi )(?<!\bto )(?<!who )(?<!i'd )(?<!i'll )(?<!i've )(?<!i just )(?<!we )"
    r"(?:says?|said|wrote|writes|goes|told (?:me|us)|texted(?: me)?|tells (?:me|us)|was like|"
    r"keeps? (?:saying|telling (?:me|us))|posted|replied|answered|stated|states|reads?)"
)
_OTHERS_SPEAK = ignoring_case(
    rf"\b{_SAYING}(?:,|:) (?:i|i'm|i've|my)\b|\b{_SAYING}[,:]? [\"“«']|"
    rf"\b{_SAYING}(?:,|:| that| to)? (?:always|never|remember|from now on)\b|\b{_SAYING}:|"
    r"(?<!to )\basks?:|\bwords were\b|\b(?:is|was) asking:|"
    r"(?<!i )(?<!i've )\b(?:sent|gave|forwarded|emailed|left|handed|messaged)"
    r"(?: (?:me|us|him|her|them))? (?:this|the following)\b|"
    r"\b(?:pinged|messaged|texted|dm'd) (?:me|us):|"
    r"^(?:\w{1,20} ){0,2}(?:ticket|message|mail|e-?mail|voicemail|note|comment|review|feedback|"
    r"request|letter|complaint|question) from\b.{1,40}(?: [-–]|:) |"
    r"\bwhat would (?:an?|my|the) \w{1,20} (?:say|do|answer|reply)\b|"
    r"^(?:\w{1,20} ){0,3}(?:post|tweet|caption|bio|slogan|copy|headline|tagline|ad|status)"
    r"(?: idea| draft)?(?: [-–]|:) |(?:^|\bi |\bwe |\bjust )(?:got|received|found) this "
    r"(?:(?:\w{1,20} )?(?:letter|e-?mail|mail|note|message|memo|text)\b|from\b|today\W{0,20}$|"
    r"in the mail\b)|\bthis is what\b.{1,60}\b(?:said|told|wrote|sent)\b|"
    r"\bwhat (?:my|the|our) \w{1,20} (?:sent|wrote|said)\b|\bon behalf of\b|"
    r"\b(?:asking|posting|speaking) (?:this )?for (?:a|my) (?:friend|dad|mom|mum|father|mother|"
    r"sister|brother|wife|husband|son|daughter|colleague|client|neighbou?r|relative)\b|"
    r"\b(?:sign|poster|manual|wiki|docs?|documentation|letter|guide|handbook|policy|label|website|"
    r"web site|site|page|article|book|instructions?|faq|notice|banner|memo|leaflet) "
    r"(?:says?|reads?|states?|tells? (?:you|us|me))\b|\b(?:instructions?|rules?) (?:were|was|are):|"
    r"^(?:it|he|she) says (?:from now on|that|always|never)\b|^according to (?:the|my|our)\b|"
    r"^from the (?:[\w-]{1,20} )?(?:guide|manual|docs?|documentation|handbook|wiki|faq|book|"
    r"website)\b|\bthere's a saying\b|\bas the saying goes\b|\bold saying\b|"
    r"\b(?:dad|mom|mum|mother|father|grandmother|grandma|grandpa|grandfather|teacher|boss|coach|"
    r"wife|husband|friend|landlord|neighbou?r|colleague|doctor|sister|brother) "
    r"(?:always |often |once |keeps )(?:says|said|tells|telling|preaches)\b|"
    r"\bwas on their (?:website|page|site)\b|\b(?:someone|somebody|a user|a guy|people) "
    r"(?:on|in|from|at) \S{1,30}(?: \S{1,30})? (?:says?|said|asks?|wrote|writes|posted)\b"
)

# -- requests to work on a text -------------------------------------------------------------------

_TEXT_NOUN = (
    r"(?:page|web ?site|site|article|post|tweet|thread|text|paragraph|passage|document|doc|file|"
    r"pdf|e-?mails?|mails?|message|letter|note|notes|review|reviews|story|poem|song|lyrics|essay|"
    r"draft|report|paper|abstract|summary|transcript|conversation|chat|dialogue|log|logs|output|"
    r"error|stack ?trace|traceback|code|function|snippet|script|config|yaml|json|csv|table|readme|"
    r"commit|diff|patch|ticket|tickets|issue|complaint|recipe|contract|lease|clause|agreement|"
    r"policy|minutes|cv|resume|résumé|bio|profile|cover letter|prompt|instructions?|system prompt|"
    r"sentence|sentences|quote|caption|blurb|description|ad|advert|notice|statement|"
    r"discharge letter|opening(?: line)?|schema|prompt log|homework|excerpt|section|pattern|"
    r"sequence|series|invoice|listing|customer|bug in)"
)
_GIVEN = (
    r"(?:(?:this|these|that|those|the|my|our|his|her|their) "
    rf"(?:\w{{1,20}}(?:'s)? ){{0,2}}{_TEXT_NOUN}\b|(?:this|these|it|them)(?=\W{{0,20}}$|[,.:;!?]|"
    r" (?:for|please|and|in|into|to|as|more|with|from|over|again|better)\b)|"
    r"(?:the (?:above|below|following|reviews|decisions)|following|below|above)\b|clause \d)"
)
# Work that is always done on a text, whatever else the sentence says.
_TEXT_WORK = (
    r"(?:translate|summari[sz]e|sum up|tl;? ?dr|(?:re-?|ghost)write|rephrase|reword|paraphrase|"
    r"proof-?read|spell-?check|copy-?edit)"
)
_WORK = (
    r"(?:read|explain|review|fix|check|correct|improve|polish|shorten|simplify|expand|edit|format|"
    r"rate|grade|critique|criticise|criticize|analy[sz]e|classify|categori[sz]e|label|extract|"
    r"convert|parse|debug|refactor|draft|look at|look over|go through|scan|decode|interpret|"
    r"evaluate|assess|compare|answer|reply to|respond to|give feedback on|give me feedback on|"
    r"comment on|finish|complete|continue|transcribe|scale|render|validate|clean up|tidy up|turn|"
    r"make|say|write|rate)"
)
_LANGUAGE = (
    r"(?:english|german|french|spanish|italian|portuguese|dutch|polish|russian|japanese|chinese|"
    r"korean|thai|arabic|latin|greek|turkish|hindi|swedish|deutsche?|français|español|italiano)"
)
_WORK_REQUEST = ignoring_case(
    rf"^{REQUEST_PREFIX}{_TEXT_WORK}\b|\b(?:can|could|would) you {_TEXT_WORK}\b|"
    rf"\bplease {_TEXT_WORK}\b|(?:^{REQUEST_PREFIX}|\bplease ){_WORK} (?:me )?(?:a "
    rf"(?:reply|response|answer) to )?(?:.{{1,40}} (?:of|for|in|to|from|with) )?{_GIVEN}|"
    rf"(?:^{REQUEST_PREFIX}|\bplease ){_WORK} (?:the|my|our|its|their) (?:wording|phrasing|tone|"
    r"grammar|spelling|punctuation|style|copy)\b|"
    rf"^{REQUEST_PREFIX}{_WORK}(?: please| pls| this)?\W{{0,20}}$|"
    r"^(?:grammar|spelling|thoughts|feedback)\W{0,20}$|"
    rf"\b(?:auf|ins|en|in|into|al|to) {_LANGUAGE}(?: bitte| please)?\W{{0,3}}:|^traduce\b|"
    rf"^(?:how|what)\b.{{1,40}}\b(?:in|for|into) {_LANGUAGE}\b|\bthe {_LANGUAGE} for\b|"
    r"\bbetter way to (?:say|put|write|phrase)\b|"
    r"\bhow (?:do|would|should|can) (?:i|you|one) (?:say|write|put|phrase|translate|spell)\b|"
    rf"^{REQUEST_PREFIX}(?:make|turn) {_GIVEN}.{{0,60}}|"
    rf"^{REQUEST_PREFIX}make (?:it|this|that) (?:sound |more |less |shorter|longer|better|polite|"
    r"formal)|^(?:give|any) (?:me )?(?:feedback|a summary|the gist)\b|\bgive me the gist\b"
)
# A question that may be about a text in the lines after it.
_ASKS = ignoring_case(r"(?:what|who|why|how|which|where|when|is|are|does|do|can|could|any|help)\b")
_POINTS = ignoring_case(
    rf"\b(?:this|these|above|below|following)\b|\b(?:clause|step|paragraph|section|line|chapter|"
    rf"page|item|"
    r"point) \d|\bwho has\b|\bmain (?:argument|point|idea)\b|\b(?:went|is|what's) wrong\b|"
    r"\b(?:wrong|happening|going on|say|mean|meant|agreeing to|argument|point) here\b|"
    rf"\b(?:does|doesn't|did) (?:it|he|she|they)\b|\bthe {_TEXT_NOUN}\b|\bany idea\b"
)
_POINTS_VAGUELY = ignoring_case(r"\b(?:this|these|here|above|below|it)\b")
_LOOKS_BACK = ignoring_case(
    rf"\b(?:this|these|that|the) (?:\w{{1,20}} )?{_TEXT_NOUN}\b|\babove\b|"
    rf"^{REQUEST_PREFIX}{_WORK} (?:.{{1,30}} )?this\b|\bwhat does (?:this|that|it) "
    rf"(?:say|mean)\W{{0,20}}$|\b{_TEXT_WORK}\b|\bwhat (?:does|did) (?!i\b)\w{{1,20}} (?:do|mean|"
    rf"want|say)\W{{0,20}}$|"
    r"\bis (?:this|that|it) (?:valid|correct|grammatical|spam|a scam|legit|rude|polite|okay|ok|"
    r"good)\W{0,20}$"
)
# A text that others write of themselves, and that is handed over with a question about it.
_OTHERS_TEXT = ignoring_case(
    r"^what (?:does|do) (?:the|this|that|these) .{1,40} (?:mean|say)\?|"
    r"\b(?:this|these|the following) (?:\w{1,20} ){0,2}(?:postings?|posts?|tweets?|e-?mails?|"
    r"mails?|letters?|messages?|reviews?|texts?|bios?|profiles?|cvs?|resumes?|articles?|poems?|"
    r"transcripts?|tickets?|complaints?|quotes?|statements?|ads?|prompts?|paragraphs?|sentences?|"
    r"lyrics)\b"
)
_ASKS_JUDGMENT = ignoring_case(
    r"^does (?:this|that|it) (?:sound|read|look) (?:natural|polite|formal|correct|native|fluent|"
    r"professional)\b|\b(?:begins|starts|goes|reads|continues) (?:like this|as follows)\b|"
    r"^what (?:language|song|poem|book|film|movie|tense|dialect) is (?:this|it)\b|"
    r"^(?:please )?(?:give me|suggest|i need) an? (?:\w{1,20} ){0,2}(?:caption|slogan|tweet|bio|"
    r"headline|tagline|toast|pick-up line)\b|^is (?:this|that|it|the following) "
    r"(?:sentence )?(?:positive|negative|grammatical|correct|rude|polite|spam|fake|legit|"
    r"good english|a scam|formal|okay|ok)\b"
)
_HANDED_OVER = ignoring_case(
    r"^(?:here(?:'s| is| are)|this is|these are|below (?:is|are))\b.{0,40}(?:\b(?:i wrote|"
    r"so far)\b|:$)|\bmy (?:gpt |system |custom )(?:prompt|instructions?)\b|"
    r"^the following (?:was|is|are)\b|^see below\b"
)
# The same where the text follows in lines of its own.
_INTRODUCES_TEXT = ignoring_case(
    # A title and a question to it: "witness statement, what contradictions can you find".
    r"^(?:[\w'-]{1,20} ){0,3}(?:statement|testimony|affidavit|verdict|post|thread|tweet|cringe|"
    r"rant|review|listing|bio|caption|speech|sermon|interview|excerpt|reddit|linkedin|twitter|"
    r"facebook)\b(?: of the \w{1,20})?, .{0,80}\b(?:what|why|how|who|which|where|tell me|find|"
    r"spot)\b|^i (?:just )?(?:found|got|saw|read|copied|pasted|received) (?:this|these)\b|"
    r"^(?:here(?:'s| is| are)|this is|these are|below (?:is|are)|see (?:this|below)|look at this|"
    rf"check (?:this|it) out|attached)\b(?:.{{0,40}}\b{_TEXT_NOUN}\b|.{{0,20}}$)"
)

# -- prose ----------------------------------------------------------------------------------------

_CONVERSATION = ignoring_case(
    r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|we're|we've|us|our|ours|you|you're|your|yours|"
    r"please|thanks|thank|let's|hi|hello|hey|sorry|yes|no|ok|okay)\b|\?"
)
_FIRST_PERSON = ignoring_case(r"(?<![\w-])(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|our|us)\b")
_REFERS = ignoring_case(
    r"(?:it|that|this|he|she|they|what a|good|great|cool|nice|perfect|wow|so)\b"
)
_CLOSING_REQUEST = ignoring_case(
    r"(?:also|and|oh|btw|by the way|p\.?s\.?|one more thing|for (?:the|your) "
    r"(?:future|record|memory))[,:.!]? (?:and |also |please,? ){0,2}(?:remember|keep in mind|"
    r"don't forget|from now on|always|never)\b"
)
_UNFINISHED = ignoring_case(
    r"\b(?:a|an|the|of|to|in|on|at|for|from|with|and|or|is|are|that|by|as)$"
)
_ABOUT_ME = ignoring_case(r"\b(?:me|myself|remember|note|mind|preferences|facts)\b.{0,40}:$")
_OWN_ITEM = ignoring_case(r"(?:i|i'm|i've|my|we|our|call me)\b")


def find_own_words(text: str) -> OwnWords:
    """Return the parts of a user's message that the person wrote themselves, about themselves."""
    if not text.strip() or len(text) > MAX_TEXT_CHARS:
        return OwnWords()
    return _find_own_words(text)


# Learning from a turn asks for the words of the same message, and of those before it, many times.
@lru_cache(maxsize=32)
def _find_own_words(text: str) -> OwnWords:
    raw = join_quotations(without_fences(normalize_punctuation(text))).split("\n")
    lines = ["" if pasted.is_quoted_or_indented(line, at) else line for at, line in enumerate(raw)]
    if any(_OPT_OUT.search(sentence) for line in lines for sentence in split_sentences(line)):
        return OwnWords(opted_out=True)
    own = _without_role_play(lines, _without_foreign_requests(_without_material(lines, raw)))
    if _is_foreign_prose(own):
        own = []
    if own == raw:
        return OwnWords((text,), is_whole=True)
    return OwnWords(tuple(_split_paragraphs(own)))


def _sentences(line: str) -> Iterator[_SentenceSpan]:
    at = 0
    for sentence in split_sentences(line):
        start = line.index(sentence, at)
        at = start + len(sentence)
        yield _SentenceSpan(start, at, without_lead_in(sentence))


def _split_paragraphs(lines: Sequence[str]) -> Iterator[str]:
    for places in _paragraphs(lines):
        yield split_quotations("\n".join(lines[at] for at in places))


def _without_role_play(lines: Sequence[str], own: list[str]) -> list[str]:
    """Return ``own``, the person's lines; if role play starts, only the requests before it."""
    if role_play.is_not_personal("\n".join(lines).strip()):
        return []
    before: list[str] = []
    for sentence in (each.words for line in lines for each in _sentences(line)):
        asked = starts_request(sentence)
        if role_play.starts_role_play(sentence, asked):
            remaining = (each.words for line in own for each in _sentences(line))
            return [words for words in remaining if words in before]
        if asked:
            before.append(sentence)
    return own


# -- text of others in a message ------------------------------------------------------------------


def _without_material(lines: list[str], raw: Sequence[str]) -> list[str]:
    """Return the lines before text that was pasted or handed over, and a request after it.

    ``raw`` are the same lines before quoted and indented ones were emptied.
    """
    own: list[str] = []
    skipping = False  # until the paragraph ends
    for at, line in enumerate(lines):
        skipping = skipping and bool(line.strip())
        if pasted.starts_pasted_text(lines, at) or _is_foreign_list(lines, at):
            asked = any(
                handover and handover.looks_back for handover in map(_find_handover, lines[at:])
            )
            return ([] if asked else own) + _closing_request(lines, at)
        handover = None if skipping else _find_handover(line)
        if skipping or handover is None:
            own.append("" if skipping else line)
        elif handover.to_paragraph_end:
            own.append(line[: handover.start])
            skipping = True
        elif (
            line[handover.end :].strip()
            or handover.holds_text
            or _is_followed_by_text(lines, raw, at)
        ):
            own.append(line[: handover.start])
            return own + _closing_request(lines, at)
        elif handover.looks_back and (
            handover.hands_over and handover.start or any(map(str.strip, own))
        ):
            before = line[: handover.start]
            return [before] if not handover.hands_over or _only_requests(before) else []
        else:
            # The text to work on is in quotes or in a block of code, so it is known where it ends.
            own.append(line[: handover.start] if line.rstrip().endswith(":") else line)
        if not skipping and _asks_about_next(line) and _is_followed_by_text(lines, raw, at):
            return own + _closing_request(lines, at)
    return own


class _Handover(NamedTuple):
    """A sentence that introduces words of somebody else.

    ``looks_back``: it may refer to the text before it. ``to_paragraph_end``: the words of others
    end with the paragraph. ``hands_over``: it asks for work on a text. ``holds_text``: it contains
    that text itself.
    """

    start: int
    end: int
    looks_back: bool
    to_paragraph_end: bool = False
    hands_over: bool = False
    holds_text: bool = False  # "Translate: I live in Rome"


def _find_handover(line: str) -> _Handover | None:
    """Return the first sentence of a line that asks for work on a text, or quotes somebody."""
    for start, end, words in _sentences(line):
        if starts_request(words):
            continue
        if (
            _WORK_REQUEST.search(words)
            or _HANDED_OVER.search(words)
            or _ASKS_JUDGMENT.search(words)
        ):
            back = bool(_LOOKS_BACK.search(words))
            return _Handover(start, end, back, hands_over=True, holds_text=": " in words)
        if words.endswith("?") and _OTHERS_TEXT.search(words) and line[end:].strip():
            return _Handover(start, end, looks_back=False, hands_over=True)
        if _OTHERS_SPEAK.search(words):
            handed_over = words.endswith(":") or not line[end:].strip()
            return _Handover(start, end, looks_back=False, to_paragraph_end=not handed_over)
        if words.endswith("?") and _LOOKS_BACK.search(words) and not line[end:].strip():
            return _Handover(start, end, looks_back=True)
    return None


def _only_requests(text: str) -> bool:
    return all(starts_request(sentence.words) for sentence in _sentences(text))


def _asks_about_next(line: str) -> bool:
    """Whether a line ends with a question about a text that may follow it."""
    for last in list(_sentences(line))[-1:]:
        asks = _ASKS.match(last.words) and _POINTS.search(last.words)
        return bool(asks or _INTRODUCES_TEXT.match(last.words))
    return False


def _is_followed_by_text(lines: Sequence[str], raw: Sequence[str], at: int) -> bool:
    """Whether the next line that is not blank is plain text: neither quoted nor indented."""
    for place in range(at + 1, len(lines)):
        if raw[place].strip():
            return bool(lines[place].strip())
    return False


def _closing_request(lines: Sequence[str], at: int) -> list[str]:
    """Return the last paragraph if it adds a request after pasted text: "Also, remember …"."""
    last = max((place for place, line in enumerate(lines) if line.strip()), default=0)
    alone = last > at and not lines[last - 1].strip()
    return ["", lines[last]] if alone and _CLOSING_REQUEST.match(lines[last].strip()) else []


def _is_foreign_list(lines: Sequence[str], at: int) -> bool:
    """Whether a list starts at a line whose items are not about the person."""
    if not pasted.is_item(lines[at]) or (at and pasted.is_item(lines[at - 1])):
        return False
    before = next((line for line in reversed(lines[:at]) if line.strip()), "")
    items = [pasted.without_bullet(line) for line in takewhile(pasted.is_item, lines[at:])]
    if _ABOUT_ME.search(before.strip()):
        return False
    return not all(map(_OWN_ITEM.match, items))


# -- prose ----------------------------------------------------------------------------------------


def _is_foreign_prose(lines: Sequence[str]) -> bool:
    """Whether most sentences of a long text neither speak of the person nor to the assistant."""
    text = "\n".join(lines)
    if len(text) < _LONG_PROSE and len(list(_paragraphs(lines))) < _MANY_PARAGRAPHS:
        return False
    sentences = [sentence.words for line in lines for sentence in _sentences(line)]
    return sum(map(_is_impersonal, sentences)) * 2 > len(sentences)


def _without_foreign_requests(lines: list[str]) -> list[str]:
    """Return the lines without requests that are not the person's own.

    "The road is steep. Always use low gear." comes from a guide, whoever sends it. A person's own
    request is in the first or in the last paragraph.
    """
    paragraphs = list(_paragraphs(lines))
    pointing = any(map(_asks_about_text, _closing_sentences(lines, paragraphs)))
    remaining = list(lines)
    for number, places in enumerate(paragraphs):
        outside = 0 < number < len(paragraphs) - 1
        foreign = len(paragraphs) > 1 and pointing or _is_wrapped([lines[at] for at in places])
        for at in places:
            sentences = list(_sentences(lines[at]))
            impersonal = foreign or any(_is_impersonal(each.words) for each in sentences)
            for start, end, words in reversed(sentences):
                first = not start and at == paragraphs[0][0] and not foreign
                general = impersonal and not first and not _FIRST_PERSON.search(words)
                if starts_request(words) and (outside or general):
                    remaining[at] = remaining[at][:start] + remaining[at][end:]
    return remaining


def _paragraphs(lines: Sequence[str]) -> Iterator[list[int]]:
    """Yield the line numbers of each paragraph."""
    places: list[int] = []
    for at, line in enumerate((*lines, "")):
        if line.strip():
            places.append(at)
        elif places:
            yield places
            places = []


def _closing_sentences(lines: Sequence[str], paragraphs: Sequence[list[int]]) -> Iterator[str]:
    """Yield the last sentence of the first paragraph, and that of the last one."""
    for places in (*paragraphs[:1], *paragraphs[-1:]):
        yield from [sentence.words for sentence in _sentences(lines[places[-1]])][-1:]


def _asks_about_text(words: str) -> bool:
    return bool(
        _ASKS.match(words) and _POINTS_VAGUELY.search(words) or _INTRODUCES_TEXT.match(words)
    )


def _is_wrapped(lines: Sequence[str]) -> bool:
    """Whether lines were wrapped to a width, which people do not do when they type."""
    return any(
        len(line) >= _MIN_WRAPPED_CHARS
        and line[-1:] not in ".!?…:;"
        and (following[:1].islower() or bool(_UNFINISHED.search(line)))
        for line, following in pairwise(line.strip() for line in lines)
    )


def _is_impersonal(words: str) -> bool:
    """Whether a sentence is about neither the person, the reader nor what was said before."""
    return (
        len(words.split()) > 3
        and not starts_request(words)
        and not _CONVERSATION.search(words)
        and not _REFERS.match(words)
    )
