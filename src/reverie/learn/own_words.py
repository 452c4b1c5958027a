"""Decide which stretches of a user's message are the person's own statements.

Learning reads only these. Text that was pasted, quoted or forwarded, that was handed over to be
read or worked on, or that belongs to role play and fiction, is somebody else's or nobody's. A
message that asks not to be remembered has no stretch at all. In doubt a stretch is left out: the
turn is stored verbatim in any case and stays findable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reverie.learn import pasted
from reverie.learn.sentences import (
    LONGEST_TEXT,
    join_quotations,
    normalized,
    split_quotations,
    split_sentences,
    starts_request,
    without_fences,
    without_lead_in,
)

# Stands for what was left out, in the question put to a model.
LEFT_OUT = "[pasted text]"
# Prose of at least this length, or in this many paragraphs, must speak of the person to be theirs.
_LONG_PROSE = 420
_MANY_PARAGRAPHS = 3


@dataclass(frozen=True, slots=True)
class OwnWords:
    """The person's own stretches of a message, verbatim and in order."""

    stretches: tuple[str, ...] = ()
    withheld: bool = False  # the person asked that this message not be remembered
    whole: bool = False  # nothing was left out

    @property
    def text(self) -> str:
        """The stretches as one text."""
        return "\n\n".join(self.stretches)

    @property
    def marked(self) -> str:
        """The stretches as one text that shows where something was left out."""
        return self.text if self.whole else f"\n\n{LEFT_OUT}\n\n".join((*self.stretches, ""))


class _Sentence(NamedTuple):
    """A sentence of a line: where it stands in it, and its words without "Actually" before."""

    start: int
    end: int
    words: str


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


# -- asking not to be remembered ------------------------------------------------------------------

_TO_ASSISTANT = (
    r"(?:^|[,:;.!(–—-] ?|\b(?:please|pls|but|and|so|you|just|also|kindly|to|need) )"
    r"(?:do not|don't|dont|never|needn't|need not|not)"
)
_KEEP = (
    r"(?:remember|store|save|keep|retain|record|memori[sz]e|learn|log|note|write|take|add|"
    r"make a note of)"
)
_THIS = (
    r"(?:this(?: one| down)?|that(?: down)?|it(?: down)?|these|those|anything|any of (?:this|that|it)|"
    r"what i|from this|a record|notes?)"
)
_WHERE = (
    r"(?=\W*$| ?[,.;:!)–—]| -| (?:down|about|please|but|and|i|i'm|i've|my|anywhere|either|though|"
    r"thanks|just|ok)\b| (?:in|into|to|on|of|from|for) (?:your |the |this |any |my |a )?(?:\w{1,20} )?"
    r"(?:memory|memories|notes?|records?|profile|file|database|storage|log|message|chat|one|it|this|"
    r"that|conversation|future|later|me)\b)"
)
_WITHHELD = _pattern(
    rf"{_TO_ASSISTANT} (?:ever |have to |need to )?{_KEEP} {_THIS}{_WHERE}|"
    rf"\bno need to {_KEEP} {_THIS}\b|\b(?:without|rather you didn't|rather not have you|prefer you "
    rf"didn't) {_KEEP} {_THIS}\b|\boff[- ]the[- ]record\b|\bstrictly confidential\b|"
    r"\bthis is (?:confidential|private|a secret)\b|\bstays? between\b|"
    r"\bkeep (?:this |that |it )?(?:just |strictly )?(?:between (?:us|you and me|ourselves)|private|"
    r"confidential|to yourself|secret)\b|\b(?:just |strictly )?between (?:us|you and me)(?=\W)|"
    r"\b(?:forget|disregard|strike) (?:that |what |everything |anything |all )?(?:i|i've) (?:just |ever )?"
    r"(?:said|told|mentioned|wrote|typed|say)\b|\bremember (?:nothing|none) of (?:this|that|it)\b|"
    r"(?:^|\b(?:please|just|mind|no|actually|oh),? )(?:forget|disregard) (?:that|this|it)(?=\W*$|[.,;!])|"
    r"\bnot (?:for|to be) (?:your |the )?(?:memory|remembered|stored|kept|saved|records?)\b|"
    r"\bstays? (?:here|in this (?:chat|room|conversation))\b"
)

# -- role play, fiction, examples -----------------------------------------------------------------

_PRAISE = (
    r"best|greatest|star|genius|legend|life ?saver|angel|hero|treasure|gem|one|man|great|good|big|"
    r"huge|real|true|lot|bit|little|wonderful|amazing|fantastic|awesome|kind|nice|smart|wizard"
)
_MAKE_BELIEVE = _pattern(
    r"\brole-?play(?:ing)?\b|\bpretend(?:ing)?\b|\blet's (?:play|pretend|imagine|assume|say|act|do an? "
    r"(?:\w{1,20} )?(?:simulation|role|game|scene|exercise|drill|interview))\b|\bact (?:as|like)\b|"
    r"\b(?:simulat(?:e|ion)|improv|larp|d&d|dnd|campaign:|game ?master|fan ?fic(?:tion)?|screenplay|"
    r"monologue|protagonist|narrator|villain|fictional|make-believe|alter ego|hypothetical(?:ly)?)\b|"
    r"\byou(?:'re| are|'ll be| will be) (?:now |playing )?(?:an?|the|my) "
    rf"(?!(?:{_PRAISE})\b)\w|\byou(?:'re| are) now\b|\bfrom now on,? you(?:'re| are|'ll be)\b|"
    r"(?:^|[.!?]\s)be (?:an?|the|my) \w|\b(?:my|the|a|this|our) character(?:'s| is| named| called)?\b|"
    r"\bin (?:this|our|the|my|a|an) (?:\w{1,20} )?(?:adventure|campaign|game|story|novel|world|"
    r"universe|simulation|movie|film|play|scene|dream|sketch)\b|\bfor (?:our|the|my) (?:improv|larp|"
    r"play|sketch|skit|novel|story|screenplay|drama club)\b|\bonce upon a time\b|"
    r"\b(?:my|this|the|a) (?:short story|novel|fanfic|script|screenplay)(?:'s)?\b|"
    r"\bdraft of (?:a|my)\b|\bspeak(?:ing)? as (?:my|the|an?)\b|\bpicture (?:this|that|a|me)\b|"
    r"\bimagin(?:e|ing)\b|(?:^|[.!?]\s)(?:suppose|assume|say)(?: that)? (?:i|i'm|my|we|a|an|the|you|"
    r"someone|somebody)\b|\b(?:scene|story|chapter|opening line|diary entry) (?:i wrote|so far|about|"
    r"for|in which|where)\b|"
    r"\b(?:write|compose|draft|continue|create|generate|invent|tell)(?: \S{1,30}){0,6} (?:stor(?:y|ies)|"
    r"poem|song|monologue|diary|haiku|rap|sketch|joke|scene|play|limerick|sonnet|fable|tale)\b|"
    r"(?:^|[.!?]\s)continue\W|\bi want you to (?:act|be|play)\b|\bbreak character\b|\bin character\b"
)
_EXAMPLE = _pattern(
    r"\bfor (?:example|instance)\b|\be\.g\.|\ban? example\b|\bexamples? ?(?:\d|:|sentence|input)|"
    r"\bsuch as [\"'“‘]|\bsomething like:|\b(?:sample|dummy|placeholder|mock|test) (?:data|input|text|"
    r"user|profile|sentence|message)\b|^test:|\bexpected(?: output)?:"
)
_PLACEHOLDER = re.compile(
    r"\{\{?[\w .-]{1,40}\}?\}|\$\{\w|\[(?:[A-Z]{2,20}|[A-Z][a-z]{1,20}(?: [A-Z][a-z]{1,20}){1,3}|"
    r"(?:[Yy]our|[Ff]irst|[Ll]ast|[Ii]nsert) [\w ]{1,30}|[Nn]ame|[Cc]ity|[Cc]ompany)\](?!\()|"
    r"<(?!/)[a-z][a-z_ -]{1,30}>|%[A-Z_]{2,30}%|_{3,}|\b(?:XXX+|YYY+|ZZZ+)\b"
)
_VERSE = _pattern(
    r"\blyrics?\b|\bwho (?:sings|sang|wrote) this\b|\b(?:what|which) (?:song|poem)\b|\b(?:finish|name) "
    r"(?:the|this) (?:song|poem|line)\b|\bsong (?:that )?goes\b|\bhaiku\b|\bthe met(?:re|er) here\b"
)
_HOMEWORK = _pattern(
    r"\bhomework\b.{0,40}[:,]|\b(?:son|daughter|kid|child|brother|sister|student)'?s homework\b|"
    r"\b(?:exercise|task|question|problem) \d{1,3}[.:)]|\besl\b|\bfill (?:in )?the (?:gaps|blanks?)\b|"
    r"^fill in\b|\b(?:word|math|maths) problem\b|\bdictation\b|\b(?:past|present|future|right|correct) "
    r"tense\b|\bcorrect the mistakes\b|\bfind the (?:verbs?|nouns?|mistakes?|errors?)\b|"
    r"\bessay\b.{0,30}[:,]|\b(?:please )?grade (?:it|this|my)\b|\bgrammatical\b"
)
# Irony colours the whole message.
_IRONY = _pattern(
    r"🙄|(?:^|\s)/s\b|^(?:oh (?:sure|yes|great|joy|wow)|yeah,? right|sure,|wow, great|of course i)\b|"
    r"\b(?:lol|lmao|rofl|haha\w{0,20}|jk|just kidding|just joking)\W*$|\bknock,? knock\b|"
    r"\bhere's (?:a joke|one)\b|\btwo (?:men|guys|friends) in a bar\b|\bi just (?-i:LOVE)\b|, clearly\b"
)

# Nobody says this of themselves: somebody else wrote the message, for a model to read.
_INJECTION = _pattern(
    r"\b(?:ignore|disregard|forget|override) (?:all |any )?(?:of )?(?:the |your |my )?(?:previous|prior|above|earlier)"
    r" (?:instructions?|prompts?|rules|messages?)\b|\b(?:to|for|dear|attention|note to) (?:the |any |all )?(?:ai|llm|"
    r"language model|ai assistant|ai model|ai agent|chatbot)s?\b(?: (?:reading|processing|model|agent|assistant))?"
)

# -- words of others ------------------------------------------------------------------------------

_SAYING = (
    r"(?:says?|said|asks?|asked|wrote|writes|goes|told (?:me|us)|texted(?: me)?|tells (?:me|us)|"
    r"was like|keeps? (?:saying|telling (?:me|us))|posted|replied|answered|stated|states|reads?)"
)
_OTHERS_SPEAK = _pattern(
    rf"\b{_SAYING}(?:,|:| that| to)? (?:[\"“«']|(?:i|i'm|i've|my|always|never|remember|from now on)\b)|"
    rf"\b{_SAYING}:|\bwords were\b|\b(?:is|was) asking:|"
    r"\b(?:sent|gave|forwarded|emailed|left|showed|handed|dm'd|messaged)(?: (?:me|us|him|her|them))? "
    r"(?:this|the following|an? (?:note|letter|mail|email|message|text))\b|"
    r"\b(?:got|received|found) (?:this|an? (?:letter|mail|email|note|message|memo))\b|"
    r"\bthis is what\b.{1,60}\b(?:said|told|wrote|sent)\b|\bwhat (?:my|the|our) \w{1,20} "
    r"(?:sent|wrote|said)\b|\bon behalf of\b|\b(?:asking|posting|writing|speaking) (?:this )?for (?:a|my)\b|"
    r"\b(?:sign|poster|manual|wiki|docs?|documentation|letter|guide|handbook|policy|rules?|label|"
    r"website|web site|site|page|article|book|instructions?|faq|notice|banner|memo|leaflet|it) "
    r"(?:says?|reads?|states?|were|was:|goes|tells? (?:you|us|me))\b|\baccording to\b|"
    r"^from the (?:[\w-]{1,20} )?(?:guide|manual|docs?|documentation|handbook|wiki|faq|book|website)\b|"
    r"\bthere's a saying\b|\bas the saying goes\b|\bold saying\b|"
    r"\b(?:dad|mom|mum|mother|father|grandmother|grandma|grandpa|grandfather|teacher|boss|coach|wife|"
    r"husband|friend|landlord|neighbou?r|colleague|doctor|sister|brother) (?:always |often |once |keeps "
    r"|also )?(?:says|said|tells|telling|preaches|insists|wrote|writes|asks|texted)\b|"
    r"\bwas on their (?:website|page|site)\b|\b(?:someone|somebody|a user|a guy|people) (?:on|in|from|at) "
)

# -- requests to work on a text -------------------------------------------------------------------

_TEXT_NOUN = (
    r"(?:page|web ?site|site|article|post|tweet|thread|text|paragraph|passage|document|doc|file|pdf|"
    r"e-?mails?|mails?|message|letter|note|notes|review|reviews|story|poem|song|lyrics|essay|draft|"
    r"report|paper|abstract|summary|transcript|conversation|chat|dialogue|log|logs|output|error|"
    r"stack ?trace|traceback|code|function|snippet|script|config|yaml|json|csv|table|readme|commit|"
    r"diff|patch|ticket|tickets|issue|complaint|recipe|contract|lease|clause|agreement|policy|"
    r"minutes|cv|resume|résumé|bio|profile|cover letter|prompt|instructions?|system prompt|"
    r"sentence|sentences|quote|caption|blurb|description|ad|advert|notice|statement|discharge letter|"
    r"customer|opening|readme below|schema|prompt log|translation|homework|entry|excerpt|line|lines|"
    r"one|section|step \d|paragraph \d|bug|invoice|offer|listing|slide|slides|speech|interview)"
)
_GIVEN = (
    rf"(?:(?:this|these|that|those|the|my|our|his|her|their|a better|'s) (?:\w{{1,20}}(?:'s)? )?{_TEXT_NOUN}\b|"
    r"(?:this|these|it|them|the (?:above|below|following)|following|below|above)\b)"
)
_ASKING = (
    r"(?:please,? |pls |kindly |now |then |and |hey,? |hi,? |ok(?:ay)?,? )?(?:(?:can|could|would|will) "
    r"(?:you|u)(?: please| pls)? |i(?:'d like| want| need) you to |help me (?:to )?|help,? |go )?"
)
# Work that is always done on a text, whatever else the sentence says.
_TEXT_WORK = (
    r"(?:translat\w{1,4}|summari[sz]\w{1,3}|sum up|tl;? ?dr|re-?writ\w{1,3}|rephras\w{1,3}|reword\w{0,3}|"
    r"paraphras\w{1,3}|proof-?read\w{0,3}|spell-?check\w{0,3}|copy-?edit\w{0,3})"
)
_WORK = (
    r"(?:read|explain|review|fix|check|correct|improve|polish|shorten|simplify|expand|edit|format|rate|"
    r"grade|critique|criticise|criticize|analy[sz]e|classify|categori[sz]e|label|extract|convert|parse|"
    r"debug|refactor|draft|look at|look over|go through|scan|decode|interpret|evaluate|assess|compare|"
    r"answer|reply to|respond to|give feedback on|give me feedback on|comment on|finish|complete|"
    r"continue|transcribe|scale|render|validate|clean up|tidy up|turn|make|say|write|rate)"
)
_LANGUAGE = (
    r"(?:english|german|french|spanish|italian|portuguese|dutch|polish|russian|japanese|chinese|korean|"
    r"thai|arabic|latin|greek|turkish|hindi|swedish|deutsche?|français|español|italiano)"
)
_WORK_REQUEST = _pattern(
    rf"^{_ASKING}{_TEXT_WORK}\b|\b(?:can|could|would) you {_TEXT_WORK}\b|\bplease {_TEXT_WORK}\b|"
    rf"^{_ASKING}{_WORK} (?:me )?(?:a (?:reply|response|answer) to )?(?:.{{1,40}} (?:of|for|in|to|from|with) )?"
    rf"{_GIVEN}|^{_ASKING}{_WORK}(?: please| pls| this)?\W*$|^(?:grammar|spelling|thoughts|feedback)\W*$|"
    rf"\b(?:auf|ins|en|in|into|al|to) {_LANGUAGE}(?: bitte| please)?\W{{0,3}}:|^traduce\b|"
    rf"^(?:how|what)\b.{{1,40}}\b(?:in|for|into) {_LANGUAGE}\b|\bthe {_LANGUAGE} for\b|"
    r"\bbetter way to (?:say|put|write|phrase)\b|\bhow (?:do|would|should|can) (?:i|you|one) (?:say|"
    r"write|put|phrase|translate|spell)\b|"
    rf"^{_ASKING}(?:make|turn) {_GIVEN}.{{0,60}}|\bextract (?:the|all)\b|\b(?:shorten|improve|polish) (?:my|this)\b|"
    r"\bmake (?:it|this|that) (?:sound |more |less |shorter|longer|better|polite|formal)|"
    r"^(?:give|any) (?:me )?(?:feedback|a summary|the gist)\b|\bgive me the gist\b"
)
# A question that may be about a text in the lines after it.
_ASKS = _pattern(r"(?:what|who|why|how|which|where|when|is|are|does|do|can|could|any|help)\b")
_POINTS = _pattern(
    rf"\b(?:this|these|above|below|following)\b|\b(?:clause|step|paragraph|section|line|chapter|page|item|"
    r"point) \d|\bwho has\b|\bmain (?:argument|point|idea)\b|\b(?:went|is|what's) wrong\b|"
    r"\b(?:wrong|happening|going on|say|mean|meant|agreeing to|argument|point) here\b|"
    rf"\b(?:does|doesn't|did) (?:it|he|she|they)\b|\bthe {_TEXT_NOUN}\b|\bany idea\b"
)
_LOOKS_BACK = _pattern(
    rf"\b(?:this|these|that|the) (?:\w{{1,20}} )?{_TEXT_NOUN}\b|\b(?:above)\b|\bwhat does (?:this|that|it) "
    rf"(?:say|mean)\W*$|\b{_TEXT_WORK}\b|\bwhat (?:does|did) (?!i\b)\w{{1,20}} (?:do|mean|want|say)\b|"
    r"\bis (?:this|that|it) (?:valid|correct|grammatical|spam|a scam|legit|rude|polite|okay|ok|good)\W*$"
)
_JUDGED = _pattern(
    r"^is (?:this|that|it|the following) (?:sentence )?(?:positive|negative|grammatical|correct|rude|polite|"
    r"spam|fake|legit|good english|a scam|formal|okay|ok)\b"
)
_HANDED_OVER = _pattern(
    rf"^(?:here(?:'s| is| are)|this is|these are|below (?:is|are)|see (?:this|below)|look at this|"
    rf"the following|check (?:this|it) out|attached)\b(?: .{{0,40}})?(?:\b{_TEXT_NOUN}\b|\b(?:i wrote|so far|what)\b|:)|"
    rf"\bmy (?:gpt |system |custom )?(?:prompt|instructions?)\b|\bthe following was\b"
)

# -- prose ----------------------------------------------------------------------------------------

_CONVERSATION = _pattern(
    r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|we're|we've|us|our|ours|you|you're|your|yours|"
    r"please|thanks|thank|let's|hi|hello|hey|sorry|yes|no|ok|okay)\b|\?"
)
_FIRST_PERSON = _pattern(r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|our|us)\b")
_REFERS = _pattern(r"(?:it|that|this|he|she|they|what a|good|great|cool|nice|perfect|wow|so)\b")
_SAID_AFTERWARDS = _pattern(
    r"(?:also|and|oh|btw|by the way|p\.?s\.?|one more thing|for (?:the|your) (?:future|record|memory))"
    r"[,:.!]? (?:and |also |please,? ){0,2}(?:remember|keep in mind|don't forget|from now on|always|never)\b"
)
_ABOUT_ME = _pattern(r"\b(?:me|myself|remember|note|mind|preferences|facts)\b.{0,40}:$")
_OWN_ITEM = _pattern(r"(?:i|i'm|i've|my|we|our|call me)\b")


def own_words(text: str) -> OwnWords:
    """Return the stretches of a user's message that the person says of themselves."""
    if not text.strip() or len(text) > LONGEST_TEXT:
        return OwnWords()
    raw = join_quotations(without_fences(normalized(text))).split("\n")
    lines = ["" if pasted.is_delimited(line) else line for line in raw]
    if any(_WITHHELD.search(sentence) for line in lines for sentence in split_sentences(line)):
        return OwnWords(withheld=True)
    spoken = [sentence.words for line in lines for sentence in _sentences(line)]
    kept = _without_make_believe(lines, spoken)
    if kept is lines:
        kept = _before_material(lines, raw)
        kept = _without_impersonal_requests(kept)
    if _is_foreign_prose(kept):
        kept = []
    if kept == raw:
        return OwnWords((text,), whole=True)
    return OwnWords(tuple(_stretches(kept)))


def _sentences(line: str) -> Iterator[_Sentence]:
    at = 0
    for sentence in split_sentences(line):
        start = line.index(sentence, at)
        at = start + len(sentence)
        yield _Sentence(start, at, without_lead_in(sentence))


def _stretches(lines: Sequence[str]) -> Iterator[str]:
    stretch: list[str] = []
    for line in (*lines, ""):
        if line.strip():
            stretch.append(line)
        elif stretch:
            yield split_quotations("\n".join(stretch))
            stretch = []


# -- role play, fiction, examples -----------------------------------------------------------------


def _without_make_believe(lines: list[str], spoken: Sequence[str]) -> list[str]:
    """Return the lines, or what was asked outright before make-believe began."""
    whole = "\n".join(lines).strip()
    if any(sign.search(whole) for sign in (_PLACEHOLDER, _IRONY, _INJECTION)):
        return []
    for place, sentence in enumerate(spoken):
        asked = starts_request(sentence)
        if _MAKE_BELIEVE.search(sentence) or (not asked and _is_no_statement(sentence)):
            return [before for before in spoken[:place] if starts_request(before)]
    return lines


def _is_no_statement(sentence: str) -> bool:
    return any(sign.search(sentence) for sign in (_EXAMPLE, _VERSE, _HOMEWORK))


# -- material -------------------------------------------------------------------------------------


def _before_material(lines: list[str], raw: Sequence[str]) -> list[str]:
    """Return the lines up to what was pasted or handed over, and what was said after it."""
    kept: list[str] = []
    skipping = False  # until the paragraph ends
    for at, line in enumerate(lines):
        skipping = skipping and bool(line.strip())
        if pasted.starts_material(lines, at) or _is_foreign_list(lines, at):
            asked = any(found and found.looks_back for found in map(_request_in, lines[at:]))
            return ([] if asked else kept) + _said_afterwards(lines, at)
        found = None if skipping else _request_in(line)
        if skipping or found is None:
            kept.append("" if skipping else line)
        elif found.to_paragraph_end:
            kept.append(line[: found.start])
            skipping = True
        elif line[found.end :].strip() or _goes_on(lines, raw, at):
            kept.append(line[: found.start])
            return kept + _said_afterwards(lines, at)
        elif found.looks_back and any(map(str.strip, kept)):
            return [line[: found.start]]
        else:
            kept.append(line)
        if not skipping and _asks_about_next(line) and _goes_on(lines, raw, at):
            return kept + _said_afterwards(lines, at)
    return kept


class _Request(NamedTuple):
    """A sentence after which the words are not the person's."""

    start: int
    end: int
    looks_back: bool
    to_paragraph_end: bool = False


def _request_in(line: str) -> _Request | None:
    """Return the first sentence of a line that hands a text over, or lets others speak."""
    for start, end, words in _sentences(line):
        if starts_request(words):
            continue
        if _WORK_REQUEST.search(words) or _HANDED_OVER.search(words) or _JUDGED.search(words):
            return _Request(start, end, bool(_LOOKS_BACK.search(words)))
        if _OTHERS_SPEAK.search(words):
            handed_over = words.endswith(":") or not line[end:].strip()
            return _Request(start, end, looks_back=False, to_paragraph_end=not handed_over)
        if words.endswith("?") and _LOOKS_BACK.search(words) and not line[end:].strip():
            return _Request(start, end, looks_back=True)
    return None


def _asks_about_next(line: str) -> bool:
    """Tell whether a line ends with a question about a text that may follow it."""
    last = None
    for last in _sentences(line):
        pass
    return last is not None and bool(_ASKS.match(last.words) and _POINTS.search(last.words))


def _goes_on(lines: Sequence[str], raw: Sequence[str], at: int) -> bool:
    """Tell whether the next thing after a line is text that does not say where it ends."""
    for place in range(at + 1, len(lines)):
        if raw[place].strip():
            return bool(lines[place].strip())
    return False


def _said_afterwards(lines: Sequence[str], at: int) -> list[str]:
    """Return the last paragraph when it adds a request after a paste: "Also, remember …"."""
    last = max((place for place, line in enumerate(lines) if line.strip()), default=0)
    alone = last > at and not lines[last - 1].strip()
    return ["", lines[last]] if alone and _SAID_AFTERWARDS.match(lines[last].strip()) else []


def _is_foreign_list(lines: Sequence[str], at: int) -> bool:
    """Tell whether a list starts here whose items do not speak of the person."""
    if not pasted.is_item(lines[at]) or (at and pasted.is_item(lines[at - 1])):
        return False
    before = next((line for line in reversed(lines[:at]) if line.strip()), "")
    items = [pasted.without_bullet(line) for line in lines[at:] if pasted.is_item(line)]
    if _ABOUT_ME.search(before.strip()):
        return False
    return not all(map(_OWN_ITEM.match, items))


# -- prose ----------------------------------------------------------------------------------------


def _is_foreign_prose(lines: Sequence[str]) -> bool:
    """Tell whether a long text hardly speaks of the person or to the assistant."""
    text = "\n".join(lines)
    paragraphs = sum(1 for _ in _stretches(lines))
    if len(text) < _LONG_PROSE and paragraphs < _MANY_PARAGRAPHS:
        return False
    spoken = [sentence.words for line in lines for sentence in _sentences(line)]
    own = sum(bool(_CONVERSATION.search(words)) for words in spoken)
    return own * 2 < len(spoken)


def _without_impersonal_requests(lines: Sequence[str]) -> list[str]:
    """Return the lines without rules for everybody: "The road is steep. Always use low gear.\"."""
    impersonal = {
        place
        for place, line in enumerate(lines)
        if any(_is_impersonal(sentence.words) for sentence in _sentences(line))
    }
    if not impersonal:
        return list(lines)
    kept = []
    for place, line in enumerate(lines):
        left = line
        for start, end, words in reversed(list(_sentences(line))):
            near = impersonal.intersection((place - 1, place, place + 1))
            if near and starts_request(words) and not _FIRST_PERSON.search(words):
                first = not start and not any(map(str.strip, lines[:place]))
                left = left if first else left[:start] + left[end:]
        kept.append(left)
    return kept


def _is_impersonal(words: str) -> bool:
    """Tell whether a sentence speaks neither of the person nor to somebody, and of no word said."""
    return (
        len(words.split()) > 3
        and not starts_request(words)
        and not _CONVERSATION.search(words)
        and not _REFERS.match(words)
    )
