"""Extract what a person states about themselves or asks to be remembered, by English patterns.

The rules are few and never guess: a missed fact can still be found in its turn, a wrong one
misleads. Anything doubtful (questions, jokes, conditions, hearsay) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from reverie.learn.rules.own_words import find_own_words
from reverie.learn.rules.sentences import (
    Sentence,
    has_label,
    has_quotation,
    ignoring_case,
    iter_sentences,
    iter_with_corrections,
    restore_text,
    split_correction,
    without_lead_in,
)
from reverie.learn.rules.values import READERS, ParsedValue
from reverie.text.normalize import nfkc_casefold

MAX_STATEMENTS = 10
MAX_CONTENT_CHARS = 500


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a person said about themselves, or asked to be remembered.

    ``single_valued``: a later statement about the same subject replaces it. ``retracts``: it says
    that something is no longer so. ``explicit``: the person asked for it to be remembered.
    """

    content: str
    category: str
    subject: str | None
    single_valued: bool = False
    retracts: bool = False
    value: str | None = None
    explicit: bool = False


class _FactTemplate(NamedTuple):
    """The fact that several rules state in different words.

    Its texts are filled with {value} as said, {small} (the value in lower case), and the groups of
    the rule's opening: {kind} in lower case, {topic} as said.
    """

    reader: str  # a name in READERS: the function that parses the value
    content: str
    category: str
    subject: str | None
    single_valued: bool = True
    ended: str = ""  # the content when a rule retracts the fact


class _Rule(NamedTuple):
    """One way to state a fact: a clause that starts with the pattern ``opening``.

    The value is what follows the opening, or the opening's group ``value``.
    """

    fact: _FactTemplate
    opening: str
    is_event: bool = False  # states an event ("I moved to"), which must not lie in the far past
    retracts: bool = False


_NAME = _FactTemplate("own name", "The user's name is {value}", "person", "name")
_CALLED = _NAME._replace(reader="person")
_HOME = _FactTemplate(
    *("place", "The user lives in {value}", "context", "home"),
    ended="The user no longer lives in {value}",
)
_WORK = _FactTemplate(
    *("organisation", "The user works at {value}", "context", "work"),
    ended="The user no longer works at {value}",
)
_TEAM = _FactTemplate(
    *("team", "The user is on the {value} {kind}", "context", "team"),
    ended="The user is no longer on the {value} {kind}",
)
_JOB = _FactTemplate(
    *("occupation", "The user works as {value}", "context", "job"),
    ended="The user no longer works as {value}",
)
_TRADE = _JOB._replace(reader="trade")
_PREFERS = _FactTemplate(
    "preference", "The user prefers {value}", "preference", None, single_valued=False
)
_LIKES = _FactTemplate("thing", "The user {kind}s {value}", "preference", "{small}")
_CANNOT_STAND = _LIKES._replace(content="The user can't stand {value}")
_DISLIKES = _LIKES._replace(content="The user does not {kind} {value}")
_FAVOURITE = _FactTemplate(
    "favourite", "The user's favourite {topic} is {value}", "preference", "favourite {topic}"
)
_ALLERGY = _FactTemplate(
    *("allergen", "The user is allergic to {value}", "context", "{small} allergy"),
    ended="The user is no longer allergic to {value}",
)
_BIRTHDAY = _FactTemplate("date", "The user's birthday is {value}", "person", "birthday")
_RELATION_FACT = _FactTemplate(
    *("person", "The user's {kind} is {value}", "person", "{kind}"),
    ended="{value} is no longer the user's {kind}",
)
_RELATIONS_FACT = _RELATION_FACT._replace(subject="{value}", single_valued=False)

_AM = r"I(?: am|'m)"
_HAVE = r"I(?: have|'ve|)"
_DO_NOT = r"I (?:do not|don't|dont)"
_NOW = r"(?:(?:now|currently|still) )?"
_JUST = r"(?:(?:just|recently|finally|now) )?"
_REALLY = r"(?:(?:really|absolutely|truly|generally|usually|always|strongly|also|still) )?"
_ANY_MORE = r" (?:any ?more|any longer)"
_WORDS = r"\S{1,40}(?: \S{1,40}){0,3}?"
_THE_TEAM = rf"the (?P<value>{_WORDS}) (?P<kind>team|department)"
_THE_GROUP = rf"the (?P<value>{_WORDS}) (?P<kind>group)"
_SOMEONE_IS = rf"(?P<value>{_WORDS}) is"
_IS_NOT = r"(?: not|n't)"
_IS_CALLED = r"(?: is(?: called| named)?|'s name(?: is|'s))"
_WHICH = r"(?:(?:new|best|older|younger|elder|little|big|twin) )?"
_RELATION = _WHICH + (
    r"(?P<kind>boss|manager|wife|husband|partner|spouse|fiancée?|girlfriend|boyfriend|mother|"
    r"father|mom|mum|dad|landlord|landlady)"
)
_RELATIONS = _WHICH + (
    r"(?P<kind>sister|brother|daughter|son|friend|colleague|coworker|co-worker|neighbou?r|"
    r"roommate|flatmate|doctor|dentist|therapist|teacher|tutor|coach|lawyer|accountant|"
    r"aunt|uncle|cousin|niece|nephew|grandmother|grandfather|dog|cat)"
)
_SOMETHING = r"(?!(?:bit|line|moment|one|part|scene|thing)\b)(?P<topic>\S{1,40}(?: \S{1,40}){0,2}?)"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_ON_DATE = (
    rf"(?: on)?(?: the)? (?P<value>\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?|"
    rf"{_MONTH} (?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|"
    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4})"
)

# The first rule whose opening and value both match a clause is used.
RULES = (
    _Rule(_NAME, r"my name(?: is|'s)"),
    _Rule(_CALLED, rf"{_AM} called|(?:(?:you can|just) )?call me"),
    _Rule(_HOME, rf"I {_NOW}live in|{_AM} {_NOW}based in"),
    _Rule(_HOME, rf"{_HAVE} {_JUST}moved to", is_event=True),
    _Rule(_HOME, r"I no longer live in", retracts=True),
    _Rule(_HOME, rf"{_DO_NOT} live in (?P<value>{_WORDS}){_ANY_MORE}", retracts=True),
    _Rule(_TEAM, rf"{_AM} {_NOW}(?:on|in) {_THE_TEAM}"),
    _Rule(_TEAM, rf"{_HAVE} {_JUST}(?:moved to|joined) {_THE_TEAM}", is_event=True),
    _Rule(_TEAM, rf"{_HAVE} {_JUST}moved to {_THE_GROUP}", is_event=True),
    _Rule(_TEAM, rf"{_AM} no longer (?:on|in) {_THE_TEAM}", retracts=True),
    _Rule(_WORK, rf"I {_NOW}work (?:at|for)"),
    _Rule(_WORK, rf"{_HAVE} {_JUST}started (?:(?:working|a new job) )?at", is_event=True),
    _Rule(_WORK, r"I no longer work (?:at|for)|I (?:just )?quit my job at", retracts=True),
    _Rule(_WORK, rf"{_DO_NOT} work (?:at|for) (?P<value>{_WORDS}){_ANY_MORE}", retracts=True),
    _Rule(_JOB, rf"I {_NOW}work as"),
    _Rule(_TRADE, r"my job is(?: being)?"),
    _Rule(_JOB, rf"{_AM} (?P<value>an? {_WORDS}) by (?:profession|trade)"),
    _Rule(_JOB, r"I no longer work as", retracts=True),
    _Rule(_PREFERS, rf"I {_REALLY}prefer"),
    _Rule(_LIKES, rf"I {_REALLY}(?P<kind>love|like|enjoy|hate|dislike)"),
    _Rule(_CANNOT_STAND, r"I (?:really )?(?:can't|cannot|can not) stand"),
    _Rule(_DISLIKES, rf"(?:{_DO_NOT}(?: really)?|I no longer) (?P<kind>like|enjoy)"),
    _Rule(_FAVOURITE, rf"my favou?rite {_SOMETHING} is"),
    _Rule(_ALLERGY, rf"{_AM} (?:(?:very|severely|deathly|highly) )?allergic to"),
    _Rule(_ALLERGY, rf"{_AM} no longer allergic to", retracts=True),
    _Rule(_BIRTHDAY, rf"(?:my birthday(?: is|'s)|I was born){_ON_DATE}"),
    _Rule(_RELATION_FACT, rf"my {_RELATION}{_IS_CALLED}"),
    _Rule(_RELATION_FACT, rf"{_SOMEONE_IS} {_NOW}my {_RELATION}"),
    _Rule(_RELATION_FACT, rf"{_SOMEONE_IS} no longer my {_RELATION}", retracts=True),
    _Rule(_RELATION_FACT, rf"{_SOMEONE_IS}{_IS_NOT} my {_RELATION}{_ANY_MORE}", retracts=True),
    _Rule(_RELATION_FACT, rf"my {_RELATION} is no longer", retracts=True),
    _Rule(_RELATIONS_FACT, rf"my {_RELATIONS}{_IS_CALLED}"),
    _Rule(_RELATIONS_FACT, rf"{_SOMEONE_IS} {_NOW}my {_RELATIONS}"),
    _Rule(_RELATIONS_FACT, rf"{_SOMEONE_IS} no longer my {_RELATIONS}", retracts=True),
    _Rule(_RELATIONS_FACT, rf"{_SOMEONE_IS}{_IS_NOT} my {_RELATIONS}{_ANY_MORE}", retracts=True),
)

# Verbs that make "always" or "never" a request to the assistant: "Always a pleasure" is none.
_COMMANDS = """
    abbreviate add address answer apologise apologize ask assume avoid be begin book break call
    capitalise capitalize change check cite close comment commit confirm convert delete deploy
    display do document edit end explain finish follow format give greet guess ignore include
    indent install interrupt invent keep leave limit list log make mention merge mock name offer
    omit open order print propose provide push put quote read recommend refer remind remove repeat
    reply respond return round run save say send share show sign skip sort speak spell start stop
    store suggest summarise summarize talk tell test touch translate treat try use validate verify
    wait wrap write
"""


# Signs of a text to work on or of role play: then the message says nothing about the person.
_MATERIAL = ignoring_case(
    r"\b(?:translat(?:e|es|ing|ion)|rewrit(?:e|ing)|rephras(?:e|ing)|paraphras(?:e|ing)|"
    r"proofread(?:ing)?|summari[sz](?:e|ing)|grammar|spelling|sentences?|lyrics|dialogue|"
    r"the following|(?:this|that|my) (?:text|letter|paragraph|essay|draft)|(?:this|that) e-?mail|"
    r"(?:write|draft|compose|generate|create|tell|continue)(?: \S{1,40}){0,5} "
    r"(?:story|poem|song|email|e-mail|letter|essay|bio|biography|script|speech|post|tweet|text|"
    r"message|profile|character)|imagine|pretend|suppose|assume|assuming|hypothetical(?:ly)?|"
    r"what if|let's say|let us say|role-?play(?:ing)?|act as|acting as|scenario|for example|"
    r"for instance|fiction(?:al)?|persona|in character|you are (?:an?|the|now))\b|\be\.g\.|^dear "
)
_RETRACTION = ignoring_case(
    r"(?:not|just kidding|kidding|just joking|joking|jk|i wish|i left|i quit|lol|psych|as if|"
    r"yeah,? right|in my dreams|said no|or (?:not|at least|so)|if|unless|only|until|for now|"
    r"but (?:only|not|then|now)|at least|then|later|after that|afterwards|eventually)\b|/s\b"
)
_LAUGH = ignoring_case(r",? ?\b(?:lol|lmao|rofl|haha\w{0,20}|jk)\b")
_CONJUNCTION = ignoring_case(r"(,? and (?=(?:I|my)\b)|,? but |, (?=(?:I|my)\b))")
_OPEN_START = ignoring_case(r"(?:I|my|we|our|it|this|that's|there|thanks|thank you)\b")
_TIME = (
    r"(?:days?|weeks?|weekends?|months?|summer|winter|spring|autumn|fall|semester|term|moment|"
    r"nights?|holidays?|while|time|morning|afternoon|evening)"
)
_DOUBT = ignoring_case(
    r"\b(?:if|unless|whether|would|could|might|maybe|perhaps|possibly|probably|supposedly|"
    r"allegedly|apparently|theoretically|pretend(?:ed|ing)?|imagin\w{1,9}|suppos\w{1,9}|"
    r"dream\w{0,9}|wish\w{0,9}|jok(?:e|es|ing)|kidding|jk|lol|lmao|rofl|haha\w{0,20}|sarcas\w{1,9}|"
    r"not really|said|says|saying|told|tells|claim(?:s|ed)?|thinks|thought|believes|according|"
    r"used to|until|till|temporar\w{1,9}|almost|nearly|sometimes|occasionally|partly|kind of|"
    r"sort of|as if|as though|i guess|i think|i believe|i assume|not sure|during|visiting|"
    r"on (?:holiday|vacation)|or (?:so|something|at least|not)|in (?:the|this|my|a) "
    r"(?:game|story|book|novel|film|movie|play|show|simulation)|for (?:now|"
    rf"(?:\w{{1,20}} ){{1,3}}?{_TIME}))\b|/s\b|🙄|"
    r",? (?:right|correct|eh|huh|innit|no|yeah|not|don't i|isn't (?:it|he|she))\W{0,20}$"
)
_TEMPORARY = ignoring_case(
    rf"\b(?:today|tonight|tomorrow|yesterday|(?:this|next|every other) (?:year|{_TIME})|these days|"
    r"right now|at (?:the|this) moment|at present|on weekends|"
    r"(?:half|part|most|some) of the (?:year|time))\b"
)
_LONG_AGO = ignoring_case(
    r"\b(?:(?:19|20)\d\d|ago|when|while|back|then|after|before|later|originally|once|left|quit|"
    r"at (?:the )?age|as an? (?:child|kid|student|teen\w{0,9}|baby))\b"
)
_AFTER_VALUE = ignoring_case(
    r"\W{0,80}$|\s{0,4}[,.!…(;]|\s{1,4}[–—-]{1,4}\s|\s{1,4}(?:and|because|since|with|who|which|as|"
    r"so|from|in|near|at|"
    r"for|on|to|though|although|now|too)\b"
)
_SINCE_THEN = ignoring_case(r"\s{1,4}(?:last|today|yesterday|this|recently)\b")
# A second value follows, as in "I live in Rome and Paris": storing one of them would be wrong.
_ONE_MORE = re.compile(r"(?:, \S{1,40})?,? and (?:[A-Z]|(?:in|at|for|also)\b)")

_REMEMBER = ignoring_case(
    r"(?P<please>please,? )?(?:always |do |also )?(?:remember|(?:do not|don't|dont|never) forget|"
    r"(?:keep|bear) in mind)(?P<link> that\b|(?: this| the following)?\s{0,4}:|)\s{1,4}(?P<said>.+)"
)
_FROM_NOW_ON = ignoring_case(
    r"(?:please,? )?from now on(?:wards?)?(?:\s*+[,:])?\s++(?:please,? )?"
    r"(?!(?:he|she|it|they|his|her|their)\b)(?P<said>.+)"
)
_COMMAND = ignoring_case(
    rf"(?:please,? )?(?P<whole>(?P<when>always|never) (?P<said>(?:{'|'.join(_COMMANDS.split())})\b"
    r"(?!\W{0,8}(?:that|this|it|so|up|never|again)\b)\s{1,4}\S.*))"
)
_PREPOSITION = ignoring_case(r"(?:in|at|to|for|as|on) ")
_NO_FACT = ignoring_case(r"(?:to|when|how|what|why|where|who|me|us|him|her|them|if)\b")
_OWN = ignoring_case(r"(?:I|my|this|these)\b")
# "Remember that time we met" looks back, and asks for nothing to be stored.
_REMINISCENCE = re.compile(
    r"(?!(?i:when|if|in|on|at|after|before|every|for|the|an?|I|my|we|you|he|she|it|they|our)\b)"
    r"(?:\S{1,40}|[a-z]\S{0,40} \S{1,40}) (?:we|I|you|he|she|they|when|where|who|which|from|"
    r"about)\b"
)
_CLAUSE_START = re.compile(
    r"(?i:I|we|you|he|she|it|they|my|our|his|her|their|your|the|an?|all|every|each|there|when|if|"
    r"on|in|at|for)\b|[A-Z]"
)
_VERB = ignoring_case(
    r"\b(?:am|is|are|was|were|has|have|had|does?|did|can|cannot|will|shall|should|must|needs?|"
    r"wants?|likes?|loves?|hates?|prefers?|lives?|works?|uses?|means?|starts?|ends?|costs?|eats?|"
    r"drinks?|speaks?|(?:he|she|it|that|there)'s)\b|n't\b|'(?:m|re|ve|ll)\b"
)


class _ClauseMatch(NamedTuple):
    """A statement; ``complete`` when it covers everything that its clause says."""

    statement: Statement
    complete: bool


def extract_statements(text: str) -> list[Statement]:
    """Return what the person states, in order; a repeated statement counts at its last place."""
    statements: dict[str, Statement] = {}
    for statement in _extract_all(find_own_words(text).text):
        key = nfkc_casefold(statement.content)
        earlier = statements.pop(key, statement)
        statements[key] = replace(statement, explicit=statement.explicit or earlier.explicit)
    # Later statements may correct earlier ones, so the first are dropped when there are too many.
    return list(statements.values())[-MAX_STATEMENTS:]


def extract_requests(text: str) -> Iterator[str]:
    """Return the person's own sentences that ask for something to be remembered."""
    return (
        restore_text(each)
        for each in iter_sentences(find_own_words(text).text)
        if _is_request(each)
    )


def apply_correction(before: str, text: str) -> list[Statement]:
    """Return the last statement of the turn ``before``, as the turn ``text`` corrects it.

    Nothing when ``text`` says more than a correction ("I meant Milan").
    """
    sentences = list(iter_with_corrections(find_own_words(before).text))
    corrections = list(iter_with_corrections(find_own_words(text).text))
    if len(corrections) != 1 or not corrections[0].correction:
        return []
    if not sentences or _is_request(sentences[-1].words):
        return []
    stated = [each.statement for each in _read_sentence(sentences[-1].words)]
    amended = _replace_value(sentences[-1].words, stated, corrections[0].correction)
    return [each for each in amended[-1:] if each.single_valued and each not in stated]


def _extract_all(text: str) -> Iterator[Statement]:
    parsed = list(iter_with_corrections(text))
    sentences = [sentence.words for sentence in parsed]
    requests = [_is_request(sentence) for sentence in sentences]
    material = [
        place
        for place, sentence in enumerate(sentences)
        if not requests[place] and _MATERIAL.search(sentence)
    ]
    if any(map(_is_joke, sentences)):
        return
    for place, (sentence, following) in enumerate(pairwise([*sentences, ""])):
        if requests[place]:
            if not material or place < material[0]:
                yield from _read_request(sentence)
        elif not material and not _RETRACTION.match(following):
            later = parsed[place + 1] if following else Sentence("")
            stated = _with_correction(sentence, later.correction)
            if later.is_retraction and stated:
                again = [each.statement for each in _read_sentence(later.words)]
                stated = [each for each in stated if not _is_replaced(each, again)]
            yield from stated


def _with_correction(sentence: str, later: str) -> list[Statement]:
    """Return what a sentence states after its own correction, or that of the next sentence.

    ``later`` is the correction that the next sentence makes, or an empty text.
    """
    if midway := split_correction(sentence):
        stated = [each.statement for each in _read_sentence(midway[0])]
        amended = _replace_value(midway[0], stated, midway[1])
        if amended != stated:
            return amended
    stated = [each.statement for each in _read_sentence(sentence)]
    return _replace_value(sentence, stated, later)


def _replace_value(sentence: str, stated: list[Statement], correction: str) -> list[Statement]:
    """Return the statements of a sentence with the last value replaced by the correction.

    They stay as they are when the sentence with the new value does not state the same kind of fact.
    """
    if not stated or not correction or not (value := stated[-1].value):
        return stated
    before, _, after = sentence.rpartition(value)
    for new in (correction, _PREPOSITION.sub("", correction)):
        amended = [each.statement for each in _read_sentence(f"{before}{new}{after}")]
        if len(amended) == len(stated) and _is_same_kind(amended[-1], stated[-1]):
            return amended
    return stated


def _is_replaced(old: Statement, new: list[Statement]) -> bool:
    """Whether one of the new statements replaces an old one that a subject does not identify."""
    return not old.single_valued and any(_is_same_kind(each, old) for each in new)


def _is_same_kind(new: Statement, old: Statement) -> bool:
    return (new.category, new.single_valued, new.retracts) == (
        old.category,
        old.single_valued,
        old.retracts,
    )


def _is_joke(sentence: str) -> bool:
    """Whether a sentence states something and laughs about it ("lol")."""
    without_laugh = _LAUGH.sub("", sentence)
    return without_laugh != sentence and any(True for _ in _read_sentence(without_laugh))


def _is_request(sentence: str) -> bool:
    if sentence.endswith("?"):
        return False
    if match := _REMEMBER.match(sentence):
        text, link = match["said"], match["link"].strip()
        if link == "that":
            return not _REMINISCENCE.match(text)
        outright = match["please"] or link or _OWN.match(text)
        return bool(outright) and not _NO_FACT.match(text)
    return bool(_FROM_NOW_ON.match(sentence) or _COMMAND.match(sentence))


def _read_request(sentence: str) -> Iterator[Statement]:
    if sentence.endswith(":"):
        return
    if match := _REMEMBER.match(sentence):
        text = match["said"]
        if _is_full_sentence(text, match["link"].strip()):
            yield from _build_requested(text, text, "general")
    elif match := _FROM_NOW_ON.match(sentence):
        yield from _build_requested(match["said"], f"From now on: {match['said']}", "preference")
    elif match := _COMMAND.match(sentence):
        stated = match["said"] if match["when"].lower() == "always" else ""
        yield from _build_requested(stated, match["whole"], "preference")


def _is_full_sentence(text: str, link: str) -> bool:
    """Whether a request contains a sentence, and not only a noun ("remember my birthday")."""
    words = text.split()
    if link.endswith(":") or _VERB.search(text):
        return len(words) > 1
    starts = _CLAUSE_START if link == "that" else re.compile("[Ii] ")
    return len(words) > 2 and bool(starts.match(text))


def _build_requested(text: str, content: str, category: str) -> Iterator[Statement]:
    """Yield the statements in what a request says, and its words if these do not cover them."""
    matches = list(_read_sentence(without_lead_in(text)))
    for match in matches:
        yield replace(match.statement, explicit=True)
    clauses = len(_CONJUNCTION.split(text)) // 2 + 1
    if len(matches) < clauses or not all(match.complete for match in matches):
        words = restore_text(content).rstrip(".!; ")
        if words and len(words) <= MAX_CONTENT_CHARS:
            yield Statement(words[0].upper() + words[1:], category, None, explicit=True)


def _read_sentence(sentence: str) -> Iterator[_ClauseMatch]:
    """Yield what each clause of a sentence states, up to the first doubtful clause."""
    if "?" in sentence or has_label(sentence) or has_quotation(sentence):
        return
    parts = _CONJUNCTION.split(sentence)
    clauses = parts[::2]
    joints = ["but", *(joint.strip(", ").lower() for joint in parts[1::2])]
    match: _ClauseMatch | None = None
    for place, (clause, joint) in enumerate(zip(clauses, joints, strict=True)):
        # In "In the game I'm a mage and I live in Solitude" the start applies to both clauses.
        begins = {"but": True, "and": bool(_OPEN_START.match(sentence)), "": match is not None}
        # The next clause may qualify this one: "I live in Rome, I think", "but only this week".
        goes_on = joints[place + 1 : place + 2] in (["but"], [""])
        qualified = f"{clause} {clauses[place + 1]}" if goes_on else clause
        match = _read_clause(clause, qualified) if begins[joint] else None
        if match:
            yield match
        if _DOUBT.search(clause):
            return


@cache
def _openings() -> list[tuple[_Rule, re.Pattern[str]]]:
    """Compile the openings of all rules, on first use: it takes longer than importing the rest."""
    return [(rule, ignoring_case(rf"(?:{rule.opening})(?!\w)")) for rule in RULES]


def _read_clause(clause: str, qualified: str) -> _ClauseMatch | None:
    if _DOUBT.search(qualified):
        return None
    for rule, opening in _openings():
        start = opening.match(clause)
        if start is None or (_LONG_AGO if rule.is_event else _TEMPORARY).search(qualified):
            continue
        parsed = _read_value(rule, start)
        if parsed is not None and _is_value_end(rule, parsed.rest):
            return _ClauseMatch(
                _statement(rule, start, parsed.value), not re.search(r"\w", parsed.rest)
            )
    return None


def _read_value(rule: _Rule, start: re.Match[str]) -> ParsedValue | None:
    reader, rest = READERS[rule.fact.reader], start.string[start.end() :]
    if "value" not in start.re.groupindex:
        return reader(rest.strip(), start[0])
    first, last = start.span("value")
    parsed = reader(start["value"], start.string[:first] + start.string[last : start.end()])
    return None if parsed is None or parsed.rest else ParsedValue(parsed.value, rest)


def _is_value_end(rule: _Rule, rest: str) -> bool:
    """Whether the words after a value may follow it, unlike those of "I work at Acme no more"."""
    ends = _AFTER_VALUE.match(rest) or (rule.is_event and _SINCE_THEN.match(rest))
    return bool(ends) and not _ONE_MORE.match(rest)


def _statement(rule: _Rule, start: re.Match[str], value: str) -> Statement:
    fact, groups = rule.fact, start.groupdict(default="")
    filled = {
        "value": value,
        "small": value.lower(),
        "kind": groups.get("kind", "").lower(),
        "topic": groups.get("topic", ""),
    }
    return Statement(
        content=(fact.ended if rule.retracts else fact.content).format(**filled),
        category=fact.category,
        subject=fact.subject and fact.subject.format(**filled),
        single_valued=fact.single_valued,
        retracts=rule.retracts,
        value=value,
    )
