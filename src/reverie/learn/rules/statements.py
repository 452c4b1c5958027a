"""Extract what a person states about themselves and theirs, or asks to be remembered.

A sentence is split into clauses; each is read as a frame of who, relation and value (`people.py`,
`frames.py`). The rules never guess: a missed fact can still be found in its turn, a wrong one
misleads. Anything doubtful (questions, jokes, conditions, hearsay) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from reverie.learn.rules import lexicon
from reverie.learn.rules.frames import KIN, FilledFrame, Relation, find_frames, inflect, render
from reverie.learn.rules.own_words import find_own_words
from reverie.learn.rules.people import (
    KINDS,
    USER,
    Clause,
    Mentions,
    Person,
    base_form,
    find_pronoun,
    read_clauses,
    read_kin,
    subject_end,
)
from reverie.learn.rules.periods import StatedPeriod, read_since, read_span
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
from reverie.learn.rules.values import Family, parse_family, parse_names, parse_person
from reverie.text.normalize import nfkc_casefold

MAX_STATEMENTS = 10
MAX_CONTENT_CHARS = 500
# The sentence in which people tell their name without saying that it is one: "Hi! I'm Ana."
MAX_INTRODUCTION = 2


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a person said, or asked to be remembered.

    ``relation`` names what it says of its subject ("home", "diet"). ``single_valued``: a later
    statement of the same relation about the same subject replaces it. ``retracts``: it says that
    something is no longer so; without a ``value``, whatever it is. ``implied``: it only follows
    from another statement, and is not remembered itself. ``explicit``: the person asked for it to
    be remembered. ``needs_day``: its date is as the person said it ("on Friday", "last week"), so
    that it needs the day on which it was said. ``valid_from`` and ``valid_to`` are from when to
    when it holds, in milliseconds UTC, if it says so with dates.
    """

    content: str
    category: str
    subject: str | None
    single_valued: bool = False
    retracts: bool = False
    value: str | None = None
    explicit: bool = False
    relation: str = ""
    needs_day: bool = False
    implied: bool = False
    valid_from: int | None = None
    valid_to: int | None = None


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
    r"yeah,? right|in my dreams|said no|or (?:not|at least|so)|if(?! you\b)(?![^,]*,)|unless|only|"
    r"until|for now|"
    r"but (?:only|not|then|now)|at least|then|later|after that|afterwards|eventually)\b|/s\b"
)
_LAUGH = ignoring_case(r",? ?\b(?:lol|lmao|rofl|haha\w{0,20}|jk)\b")
# The verbs before which "and" may leave out the subject: "I'm Norwegian but live in Spain".
_ELLIPTIC = (
    r"(?:am|is|are|have|has|live|lives|work|works|speak|speaks|play|plays|love|loves|hate|hates|"
    r"don't|doesn't|can't|cannot|eat|eats|study|studies|prefer|prefers|"
    r"(?:just|recently) (?:moved|started|adopted|bought|got|joined|quit|turned))\b"
)
_CONJUNCTION = ignoring_case(
    rf"(,? and (?=(?:I|I'm|I've|my|we|we're|our|he|she|he's|she's|{_ELLIPTIC})\b)|,? but |"
    r", (?=(?:I|my|we|our|he|she|im|it's)\b)|"
    r",? (?:because|though|tho|although) (?=(?:I|I'm|I've|my|we|we're|our)\b)|; )"
)
_VERB_FIRST = ignoring_case(_ELLIPTIC)
# A question that follows a statement in the same sentence: "I'm vegan, so what can I cook?"
_QUESTION_TAIL = ignoring_case(
    r",? (?:so|and|but) (?=(?:what|which|how|where|can|could|do you|is there|are there|any)\b.{6})|"
    r", (?=(?:what|which|where|any|how|who|can|could|would|should|do|does|is|are) .{8})"
)
_OPEN_START = ignoring_case(r"(?:I|my|we|our|it|this|that's|there|thanks|thank you)\b")
_TIME = (
    r"(?:days?|weeks?|weekends?|months?|summer|winter|spring|autumn|fall|semester|term|moment|"
    r"nights?|holidays?|while|time|morning|afternoon|evening)"
)
_DOUBT = ignoring_case(
    r"\b(?:if|unless|whether|would|could|might|maybe|perhaps|possibly|probably|supposedly|"
    r"allegedly|apparently|theoretically|basically|practically|pretend(?:ed|ing)?|imagin\w{1,9}|"
    r"suppos\w{1,9}|dream\w{0,9}|wish(?! me luck\b)\w{0,9}|jok(?:e|es|ing)|kidding|jk|lol|lmao|"
    r"rofl|haha\w{0,20}|sarcas\w{1,9}|not really|said|says|saying|told|tells|claim(?:s|ed)?|thinks|"
    r"thought|believes|according|used to|almost|nearly|partly|kind of|sort of|as if|as though|"
    r"i guess|i think|i believe|i assume|i doubt|not sure|hopefully|considering|neither|so to "
    r"speak|in the family|in name only|"
    r"or (?:so|something|at least|not)|in (?:the|this|my|a|our) (?:game|story|book|novel|film|"
    r"movie|"
    r"play|show|simulation)|in (?:animal crossing|minecraft|fortnite|roblox|skyrim|oblivion|"
    r"stardew valley|the sims|sims \d|second life|world of warcraft|wow|zelda|pok[eé]mon|gta|"
    r"cyberpunk|elden ring|terraria|valheim|civ(?:ilization)?|final fantasy|runescape|vrchat|"
    r"dungeons and dragons|d&d|dnd))\b|/s\b|🙄|"
    r",? (?:right|correct|eh|huh|innit|no|yeah|not|don't i|isn't (?:it|he|she))\W{0,20}$"
)
_PASSING = ignoring_case(
    r"\b(?:until|till|temporar\w{1,9}|sometimes|occasionally|during|visiting|"
    r"on (?:holiday|vacation)|for (?:now|"
    rf"(?:\w{{1,20}} ){{1,3}}?{_TIME}))\b"
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
_TODAY = ignoring_case(r"\b(?:today|tonight|tomorrow|yesterday|right now)\b")
_AFTER_VALUE = ignoring_case(
    r"\W{0,80}$|\s{0,4}[,.!…(;]|\s{1,4}[–—-]{1,4}\s|\s{1,4}(?:and|because|since|with|who|which|as|"
    r"so|from|in|near|at|for|on|to|though|although|now|too|btw|by the way|every|once|twice|daily|"
    r"these days|this year|originally)\b"
)
# What somebody is: "I'm blind to that" and "I'm single for a reason" are figures of speech.
_TRAITS = lexicon.words("diet has health marital nationality religion role temperament")
# What is done for once or to an end: "I go fishing for compliments", "I quit drinking for a week".
_PURPOSE = ignoring_case(r"\s(?:to|for|as|from|every)\b(?! (?:\w{1,10} ){1,2}(?:years|months))")
_NO_PURPOSE = {"activity": _PURPOSE, "gave up": _PURPOSE, "uses": ignoring_case(r"\sas\b")}
_AFTER_TRAIT = ignoring_case(
    r"\W{0,80}$|\s{0,4}[,.!…(;]|\s{1,4}[–—-]{1,4}\s|\s{1,4}(?:and|because|since|who|so|though|"
    r"although|now|too|btw|by the way|for (?:\w{1,10} ){1,3}(?:years|months)|after|in (?-i:[A-Z])|"
    r"with (?:my|our|twins|triplets|"
    r"two|three|kids|children|an? (?:boy|girl)))\b"
)
# "I don't drive at night" and "I don't speak French at home" are no general facts.
_UNQUALIFIED = frozenset(("abstains", "gave up", "speaks not"))
_AFTER_ABSTENTION = ignoring_case(
    r"\W{0,80}$|\s{0,4}[,.!…(;]|\s{1,4}[–—-]{1,4}\s|\s{1,4}(?:and|but|because|since|so|though|"
    r"although|now|too|btw|by the way|any ?more|any longer|at all|last|(?:in|for|after) "
    r"(?:\w{1,10} ){0,2}(?:(?:19|20)\d\d|years?|months?|january|february|march|april|may|june|july|"
    r"august|september|october|november|december)|(?:\w{1,10} ){1,2}(?:weeks?|months?|years?) "
    r"ago)\b"
)
_AFTER_FAMILY = ignoring_case(
    r"\W{0,80}$|\s{0,4}[,.!…(;]|\s{1,4}[–—-]{1,4}\s|\s{1,4}(?:and|but|who|so|because|now|too|btw|"
    r"last|"
    r"at home)\b"
)
_SINCE_THEN = ignoring_case(
    r"\s{1,4}(?:last|today|yesterday|this|recently)\b|\s(?:\w{1,10} ){1,2}(?:days?|weeks?|months?|"
    r"years?) ago\b"
)
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
_POSSESSIVES = frozenset(("her", "his", "their"))
_NAMED_KIN = ignoring_case(
    r"(?P<name>\S{1,40}(?: \S{1,40}){0,3}?)(?: is|'s)(?: (?:now|currently|still))?(?P<not> not|"
    r"n't)?"
    r"(?P<ended> no longer)? my (?:(?:new|best|older|younger|elder|eldest|little|big|twin|good|"
    r"old) )?"
    r"(?P<kind>[a-z-]{2,20}|line manager|personal trainer)(?![\w'])(?P<any_more> any ?more| any "
    r"longer)?"
)
# A name after "my sister", before a verb: capital letters alone would take in titles.
_INTRODUCES = re.compile(
    r"^(?:[Mm]y|[Oo]ur) (?:[a-z]{2,10} )?[a-zG][\w-]{1,20}(?: [a-z]{2,10})?,? [A-Z][\w.'-]{1,30}"
    r"(?: [A-Z][\w.'-]{1,30})?(?:,? [a-z]|'s |,? who\b|$)|^[A-Z][\w'-]{1,30}, (?:my|our) "
)
_ARE = ignoring_case(r"be (?:called |named )?|'s names be ")
_KIN_LABEL = re.compile(r"^The user's (?=[a-z])")
_USER_LABEL = re.compile(r"^The user\b")
_ENDED_KIN = re.compile(r" (?:is|are) no longer the user's ")
# A name that the user gets while a remembered content is read: as somebody's, its verbs are read.
_USER_NAME = "Zoe"
_WITH_MY = ignoring_case(r"\bwith (?:my|our)\s")
_AFTER_KIN = ignoring_case(r"\W{0,20}$|[,.;!]|\s(?:and|in|on|at|every|for)\b")
# A further value that shares the verb: not a name, which may be whom the sentence is said to.
_FURTHER = re.compile(r"(?:,? and |, )(?:also )?(?=[a-z0-9])")
# When something happened, told from the day on which it is said.
_AGO = ignoring_case(r"(?:last|this|yesterday|on (?:mon|tues|wednes|thurs|fri|satur|sun)day)\b")
_HAVING = ignoring_case(r"(?:have|adopted|got|rescued)(?: just)? (?=\S)")
# "I'm also gluten-free" adds to what is known.
_ADDS = ignoring_case(r"\b(?:also|too(?=\W{0,20}$|[,.;!])|as well(?! as))\b")
# Words that correct even where an answer is expected.
_OUTRIGHT = ignoring_case(
    r"\W*(?:(?:oops|whoops|sorry|no|wait)\W{1,4})*(?:i meant?\b|correction\b|typo\b|scratch that\b|"
    r"let me correct\b|my mistake\b|my bad\b)|\*\w"
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
    """The statements of a clause; ``complete`` when they cover everything that it says."""

    who: Person
    statements: list[Statement]
    complete: bool


def extract_statements(text: str) -> list[Statement]:
    """Return what the person states, in order; a repeated statement counts at its last place."""
    statements: dict[tuple[str, int | None], Statement] = {}
    for statement in _extract_all(find_own_words(text).text):
        key = nfkc_casefold(statement.content), statement.valid_to
        earlier = statements.pop(key, statement)
        start = earlier.valid_from if statement.valid_from is None else statement.valid_from
        explicit = statement.explicit or earlier.explicit
        statements[key] = replace(statement, explicit=explicit, valid_from=start)
    # Later statements may correct earlier ones, so the first are dropped when there are too many.
    return list(statements.values())[-MAX_STATEMENTS:]


def relation_of(content: str, subject: str) -> str:
    """Return the relation that a remembered content states of its subject, or an empty text.

    "Mia lives in Rome" states the home of Mia: the contents are read by the frames that made them.
    An end ("Mia no longer lives in Rome") has the relation of what it ends.
    """
    if _ENDED_KIN.search(content):
        return "kin"
    read = read_content(content.replace(" no longer ", " ", 1), subject)
    return read[0].relation if read else ""


@lru_cache(maxsize=1_000)
def read_content(content: str, subject: str) -> tuple[Statement, ...]:
    """Read a remembered content of a subject by the frames; nothing for one in other words."""
    mentions = Mentions()
    words = _KIN_LABEL.sub("my ", content)
    name = _USER_NAME if _USER_LABEL.match(words) else subject
    mentions.add(Person("acquaintance", name))
    for reading in read_clauses(_USER_LABEL.sub(_USER_NAME, words), mentions):
        if found := _read_predicate(reading, "", mentions):
            return tuple(found[0])
    return ()


_NO_WORK = ("retired", "unemployed", "jobless", "between jobs", "out of work")
_NO_PARTNER = {
    "divorced": ("wife", "husband", "spouse"),
    "single": ("wife", "husband", "spouse", "partner", "girlfriend", "boyfriend", "gf", "bf"),
}


def implied_ends(statement: Statement) -> list[Statement]:
    """Return what a statement ends without saying it: who has retired works nowhere."""
    if statement.retracts:
        return []
    state = statement.content.partition(" is ")[2]
    of_others = statement.category == "person"
    if statement.relation == "job" and state in _NO_WORK:
        return [_implied_end(statement, statement.subject if of_others else "work", "work")]
    if statement.relation == "work":
        subject = statement.subject if of_others else "job"
        return [_implied_end(statement, subject, "job", state) for state in _NO_WORK]
    if statement.relation == "marital" and statement.subject == "marital status":
        return [_implied_end(statement, kind, KIN.name) for kind in _NO_PARTNER.get(state, ())]
    return []


def _implied_end(
    statement: Statement, subject: str | None, relation: str, value: str | None = None
) -> Statement:
    return Statement(
        f"This ends what {statement.content} contradicts",
        statement.category,
        subject,
        retracts=True,
        value=value,
        relation=relation,
        implied=True,
    )


def extract_requests(text: str) -> Iterator[str]:
    """Return the person's own sentences that ask for something to be remembered."""
    return (
        restore_text(each)
        for each in iter_sentences(find_own_words(text).text)
        if _is_request(_without_courtesy(each))
    )


def apply_correction(before: str, text: str, *, after_question: bool = False) -> list[Statement]:
    """Return the last statement of the turn ``before``, as the turn ``text`` corrects it.

    Nothing when ``text`` says more than a correction ("I meant Milan"). ``after_question``: the
    assistant asked something in between, so that "No, Peter" is an answer and no correction.
    """
    if after_question and _OUTRIGHT.match(text.strip()) is None:
        return []
    sentences = list(iter_with_corrections(find_own_words(before).text))
    corrections = list(iter_with_corrections(find_own_words(text).text))
    if len(corrections) != 1 or not corrections[0].correction:
        return []
    if not sentences or _is_request(sentences[-1].words):
        return []
    stated = _stated(sentences[-1].words, Mentions())
    amended = _replace_value(sentences[-1].words, stated, corrections[0].correction, Mentions())
    return [each for each in amended[-1:] if each.single_valued and each not in stated]


# "Could you keep in mind that …?" and "I'd like you to remember that …" ask as "remember" does.
_POLITE = ignoring_case(
    r"(?:(?:can|could) you (?:please )?|i(?:'d| would) like you to |i want you to )"
    r"(?=(?:remember|(?:keep|bear) in mind) that\b)(?!.*\bif\b)"
)


def _without_courtesy(sentence: str) -> str:
    """Return a polite request to remember something in the form of a plain one."""
    polite = _POLITE.match(sentence)
    return sentence if polite is None else f"Please {sentence[polite.end() :].rstrip('? ')}"


def _extract_all(text: str) -> Iterator[Statement]:
    parsed = list(iter_with_corrections(text))
    sentences = [_without_courtesy(sentence.words) for sentence in parsed]
    requests = [_is_request(sentence) for sentence in sentences]
    material = [
        place
        for place, sentence in enumerate(sentences)
        if not requests[place] and _MATERIAL.search(sentence)
    ]
    if any(map(_is_joke, sentences)):
        return
    mentions = Mentions()
    for place, (sentence, following) in enumerate(pairwise([*sentences, ""])):
        mentions.read(sentence)
        if requests[place]:
            if not material or place < material[0]:
                yield from _read_request(sentence, mentions)
        elif not material and not _RETRACTION.match(following):
            later = parsed[place + 1] if following else Sentence("")
            stated = _with_correction(sentence, later.correction, mentions)
            if later.is_retraction and stated:
                again = _stated(later.words, Mentions())
                stated = [each for each in stated if not _is_replaced(each, again)]
            yield from stated


def _stated(sentence: str, mentions: Mentions) -> list[Statement]:
    stated = [each for match in _read_sentence(sentence, mentions) for each in match.statements]
    if _ADDS.search(sentence):
        return [replace(each, single_valued=each.retracts) for each in stated]
    return stated


def _with_correction(sentence: str, later: str, mentions: Mentions) -> list[Statement]:
    """Return what a sentence states after its own correction, or that of the next sentence.

    ``later`` is the correction that the next sentence makes, or an empty text.
    """
    if midway := split_correction(sentence):
        stated = _stated(midway[0], mentions)
        amended = _replace_value(midway[0], stated, midway[1], mentions)
        if amended != stated:
            return amended
    stated = _stated(sentence, mentions)
    return _replace_value(sentence, stated, later, mentions)


def _replace_value(
    sentence: str, stated: list[Statement], correction: str, mentions: Mentions
) -> list[Statement]:
    """Return the statements of a sentence with the last value replaced by the correction.

    They stay as they are when the sentence with the new value does not state the same kind of fact.
    """
    if not stated or not correction or not (value := stated[-1].value):
        return stated
    before, _, after = sentence.rpartition(value)
    for new in (correction, _PREPOSITION.sub("", correction)):
        amended = _stated(f"{before}{new}{after}", mentions)
        if len(amended) == len(stated) and _is_same_kind(amended[-1], stated[-1]):
            return amended
    return stated


def _is_replaced(old: Statement, new: list[Statement]) -> bool:
    """Whether one of the new statements replaces an old one that a subject does not identify."""
    return not old.single_valued and any(_is_same_kind(each, old) for each in new)


def _is_same_kind(new: Statement, old: Statement) -> bool:
    return (new.relation, new.single_valued, new.retracts) == (
        old.relation,
        old.single_valued,
        old.retracts,
    )


def _is_joke(sentence: str) -> bool:
    """Whether a sentence states something and laughs about it ("lol")."""
    without_laugh = _LAUGH.sub("", sentence)
    return without_laugh != sentence and bool(_stated(without_laugh, Mentions()))


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


def _read_request(sentence: str, mentions: Mentions) -> Iterator[Statement]:
    if sentence.endswith(":"):
        return
    if match := _REMEMBER.match(sentence):
        text = match["said"]
        if _is_full_sentence(text, match["link"].strip()):
            yield from _build_requested(text, text, "general", mentions)
    elif match := _FROM_NOW_ON.match(sentence):
        content = f"From now on: {match['said']}"
        yield from _build_requested(match["said"], content, "preference", mentions)
    elif match := _COMMAND.match(sentence):
        stated = match["said"] if match["when"].lower() == "always" else ""
        yield from _build_requested(stated, match["whole"], "preference", mentions)


def _is_full_sentence(text: str, link: str) -> bool:
    """Whether a request contains a sentence, and not only a noun ("remember my birthday")."""
    words = text.split()
    if link.endswith(":") or _VERB.search(text):
        return len(words) > 1
    starts = _CLAUSE_START if link == "that" else re.compile("[Ii] ")
    return len(words) > 2 and bool(starts.match(text))


def _build_requested(
    text: str, content: str, category: str, mentions: Mentions
) -> Iterator[Statement]:
    """Yield the statements in what a request says, and its words if these do not cover them."""
    pronoun = find_pronoun(content, mentions)
    matches = list(_read_sentence(without_lead_in(text), mentions))
    for match in matches:
        yield from (replace(each, explicit=True) for each in match.statements)
    clauses = len(_CONJUNCTION.split(text)) // 2 + 1
    if len(matches) < clauses or not all(match.complete for match in matches):
        subject = None
        if pronoun is not None:
            # "She eats no meat" says nothing to somebody who has not read the turn.
            found, person = pronoun
            if person is None:
                return
            label = f"{person.label}'s" if found[0].lower() in _POSSESSIVES else person.label
            content, subject, category = label + content[found.end() :], person.subject, "person"
        words = restore_text(content).rstrip(".!; ")
        if words and len(words) <= MAX_CONTENT_CHARS:
            yield Statement(words[0].upper() + words[1:], category, subject, explicit=True)


# -- clauses --------------------------------------------------------------------------------------


def _read_sentence(sentence: str, mentions: Mentions) -> Iterator[_ClauseMatch]:
    """Yield what each clause of a sentence states, up to the first doubtful clause."""
    if sentence.endswith("?"):
        tail = _QUESTION_TAIL.search(sentence)
        sentence = sentence[: tail.start()] if tail else ""
    if not sentence or "?" in sentence or has_label(sentence) or has_quotation(sentence):
        return
    begin = subject_end(sentence)
    parts = _CONJUNCTION.split(sentence[begin:])
    parts[0] = sentence[:begin] + parts[0]
    clauses = parts[::2]
    joints = ["but", *(joint.strip(", ").lower() for joint in parts[1::2])]
    match: _ClauseMatch | None = None
    for place, (clause, joint) in enumerate(zip(clauses, joints, strict=True)):
        # In "In the game I'm a mage and I live in Solitude" the start applies to both clauses.
        begins = {"but": True, "": match is not None}
        # The next clause may qualify this one: "I live in Rome, I think", "but only this week".
        goes_on = joints[place + 1 : place + 2] not in ([], ["and"])
        qualified = f"{clause} {clauses[place + 1]}" if goes_on else clause
        same = match.who if match and _VERB_FIRST.match(clause) else None
        may_begin = begins.get(joint, bool(_OPEN_START.match(sentence)))
        match = _read_clause(clause, qualified, same, mentions) if may_begin else None
        if match and match.statements:
            yield match
        if _DOUBT.search(clause):
            return


def _read_clause(
    clause: str, qualified: str, same: Person | None, mentions: Mentions
) -> _ClauseMatch | None:
    """Read one clause; ``same`` is of whom it speaks when it starts with its verb."""
    if _DOUBT.search(qualified):
        return None
    if named := _read_named_kin(clause, mentions):
        return named
    readings = (
        read_clauses(clause, mentions)
        if same is None
        else [Clause(same, base_form(clause, not same.is_user), "")]
    )
    last: Person | None = None
    for reading in readings:
        last = reading.who
        if found := _read_predicate(reading, qualified, mentions):
            introduced = _introduce(reading.who, clause)
            beside = _introduce_others(clause, [*introduced, *found[0]], mentions)
            return _ClauseMatch(reading.who, [*introduced, *found[0], *beside], found[1])
    if last is not None and (introduced := _introduce(last, clause)):
        return _ClauseMatch(last, introduced, complete=False)
    return None


def _read_named_kin(clause: str, mentions: Mentions) -> _ClauseMatch | None:
    """Read "Anna is my boss" and "Anna is no longer my boss"."""
    found = _NAMED_KIN.match(clause)
    if found is None or not _AFTER_VALUE.match(clause, found.end()):
        return None
    kind = found["kind"].lower() if found["kind"] != "GP" else "GP"
    name = parse_person(found["name"])
    known = kind in lexicon.SINGLE_KIN | lexicon.MANY_KIN | lexicon.ANIMALS or kind == "GP"
    if name is None or name.rest or not known or _TEMPORARY.search(clause):
        return None
    ended = bool(found["ended"] or found["any_more"])
    if found["not"] and not ended:
        return None
    person = Person(kind, name.value)
    mentions.add(person)
    rest = clause[found.end() :]
    return _ClauseMatch(person, [_kin(person, ended)], not re.search(r"\w", rest))


def _introduce(who: Person, clause: str) -> list[Statement]:
    """Return that "my sister Mia" is called Mia, where a clause names somebody in this way."""
    if not who.kind or not who.name or not _INTRODUCES.search(clause[:60]):
        return []
    return [_kin(who, ended=False)]


def _introduce_others(clause: str, stated: list[Statement], mentions: Mentions) -> list[Statement]:
    """Return who else is named in a clause that states something: "with my cat Pixel"."""
    known = {each.value for each in stated}
    found = (read_kin(clause[mine.end() :]) for mine in _WITH_MY.finditer(clause))
    people = [each[0] for each in found if each and _AFTER_KIN.match(each[1])]
    named = [each for each in people if each.name and each.name not in known]
    for person in named:
        mentions.add(person)
    return [_kin(person, ended=False) for person in named]


def _kin(person: Person, ended: bool) -> Statement:
    single = person.kind in lexicon.SINGLE_KIN and not person.distinction
    content = KIN.ended if ended else KIN.content
    return Statement(
        content.format(kin=person.kin, value=person.name),
        KIN.category,
        person.kind if single else person.name,
        single,
        ended,
        person.name,
        relation=KIN.name,
    )


def _read_predicate(
    reading: Clause, qualified: str, mentions: Mentions
) -> tuple[list[Statement], bool] | None:
    """Return what a predicate states, and whether that is all it says."""
    found = _read_family(reading, mentions) or _read_frame(reading, qualified, mentions)
    if found is None:
        return None
    statements, rest = found
    # "I'm diabetic and allergic to nuts", "I have a cat and two dogs": the verb is said once.
    verb = reading.predicate.partition(" ")[0]
    further = _FURTHER.match(rest) if verb in {"be", "have"} else None
    if further is not None:
        again = reading._replace(predicate=f"{verb} {rest[further.end() :]}")
        if more := _read_predicate(again, qualified, mentions):
            return [*statements, *more[0]], more[1]
    return statements, not re.search(r"\w", rest)


def _read_frame(
    reading: Clause, qualified: str, mentions: Mentions
) -> tuple[list[Statement], str] | None:
    """Return what the first value of a predicate states, and the text after it."""
    for frame in find_frames(*reading):
        if not _holds(frame, qualified) or not _is_value_end(frame):
            continue
        if frame.wording.reader == "introduction" and mentions.sentence > MAX_INTRODUCTION:
            continue
        statements = [_statement(reading.who, frame)]
        if frame.wording.relation is KIN:
            mentions.add(replace(reading.who, name=frame.value))
        rest = _text_after(frame)
        if frame.wording.relation.name in {"job", "work"} and not frame.wording.retracts:
            # "a nurse at Haukeland", "at Haukeland as a nurse"
            works = frame.value.split()[-1:] != ["student"]
            for more in find_frames(reading.who, f"work{rest}", reading.written)[:works]:
                if more.wording.relation.name in {"job", "work"} and _is_value_end(more):
                    statements.append(_statement(reading.who, more))
                    rest = _text_after(more)
        return statements, rest
    return None


def _stated_period(frame: FilledFrame) -> StatedPeriod | None:
    """Read from when to when a frame holds, if dates right after its value say so."""
    if frame.wording.aspect == "past":
        return read_span(frame.rest)
    if frame.wording.aspect == "plan" or frame.wording.retracts:
        return None
    return read_since(frame.rest)


def _text_after(frame: FilledFrame) -> str:
    """Return the text after the value of a frame and the period that it holds in."""
    period = _stated_period(frame)
    return frame.rest if period is None else period.rest


def _holds(frame: FilledFrame, qualified: str) -> bool:
    """Whether a statement is about what lasts: no visit, and nothing of long ago without dates."""
    aspect = frame.wording.aspect
    if aspect in {"plan", "settled"}:
        return True
    if aspect == "past":
        return _stated_period(frame) is not None
    if _PASSING.search(qualified):
        return False
    limits = {"event": _LONG_AGO, "habit": _TODAY, "state": _TEMPORARY}
    return not limits[aspect].search(qualified)


def _is_value_end(frame: FilledFrame) -> bool:
    """Whether the words after a value may follow it, unlike those of "I work at Acme no more"."""
    event = frame.wording.aspect in {"event", "settled", "plan"}
    trait = frame.wording.relation.name in _TRAITS and not event
    allowed = _AFTER_TRAIT if trait else _AFTER_VALUE
    name = frame.wording.relation.name
    if name in _UNQUALIFIED:
        allowed = _AFTER_ABSTENTION
    if frame.wording.aspect == "past":
        return bool(_AFTER_VALUE.match(_text_after(frame)))
    if name in _NO_PURPOSE and _NO_PURPOSE[name].match(frame.rest):
        return False
    ends = allowed.match(frame.rest) or (event and _SINCE_THEN.match(frame.rest))
    return bool(ends) and not _ONE_MORE.match(frame.rest)


def _statement(who: Person, frame: FilledFrame) -> Statement:
    relation, retracts = frame.wording.relation, frame.wording.retracts
    if relation is KIN:
        return _kin(replace(who, name=frame.value), retracts)
    # Somebody's wedding is an event of the user's life; their home is a fact about them.
    others = (not who.is_user or bool(who.name)) and relation.name != "event"
    about_user = relation.subject and render(relation.subject, who, frame)
    period = _stated_period(frame)
    return Statement(
        content=render(relation.ended if retracts else relation.content, who, frame),
        category="person" if others and not who.is_user else relation.category,
        subject=who.subject if others else about_user or _choice(relation, frame.value),
        single_valued=_is_single(relation, others, frame.value),
        retracts=retracts,
        value=frame.value or None,
        relation=relation.name,
        needs_day=frame.wording.aspect == "plan" or bool(_AGO.match(frame.groups.get("when", ""))),
        valid_from=period and period.valid_from,
        valid_to=period and period.valid_to,
    )


def _choice(relation: Relation, value: str) -> str | None:
    """Return "coffee or tea" for a preference of one over the other, in either order."""
    both = value.split(" over ")
    return " or ".join(sorted(both)) if relation.name == "prefers" and len(both) == 2 else None


def _is_single(relation: Relation, others: bool, value: str) -> bool:
    """Whether a later statement of the relation, about the same subject, replaces this one."""
    if others and (relation.name in _MANY_OF_OTHERS or relation.name == "prefers"):
        return False
    return relation.single_valued or _choice(relation, value) is not None


# Relations whose subject tells the facts about the user apart, but not those about others.
_MANY_OF_OTHERS = frozenset(("allergy", "attribute", "favourite", "habit", "likes", "plan"))


def _read_family(reading: Clause, mentions: Mentions) -> tuple[list[Statement], str] | None:
    """Read "have two kids, Jonas and Freya" and "have a cat named Pus", and return the rest."""
    who, predicate, _ = reading
    if who.plural and who.kind and (named := _ARE.match(predicate)):
        names, rest = parse_names(predicate[named.end() :])
        of_kind = Family(who.kind, who.kind, names, rest)
        members = [_family_member(USER, of_kind, name) for name in names]
        named_so = len(names) > 1 or named[0] != "be "
        return (members, rest) if named_so and _AFTER_FAMILY.match(rest) else None
    start = _HAVING.match(predicate)
    family = parse_family(predicate[start.end() :]) if start else None
    if family is None or not _AFTER_FAMILY.match(family.rest) or _PASSING.search(predicate):
        return None
    if not family.names:
        if family.noun not in lexicon.CLOSE_KIN | lexicon.PLURAL_KIN | lexicon.PLURAL_ANIMALS:
            return None
        animals = family.noun in lexicon.ANIMALS | lexicon.PLURAL_ANIMALS
        content = f"{who.label} {inflect('have', who.plural)} {family.value}"
        category = "context" if animals and who.is_user else "person"
        subject = family.noun if who.is_user else who.subject
        found = Statement(
            content, category, subject, who.is_user, value=family.value, relation="family"
        )
        if who.is_user and family.noun in KINDS:
            mentions.add(Person(family.noun))
        return [found], family.rest
    for name in family.names:
        mentions.add(Person(family.noun, name))
    return [_family_member(who, family, name) for name in family.names], family.rest


def _family_member(who: Person, family: Family, name: str) -> Statement:
    whose = f"{who.label[0].lower()}{who.label[1:]}" if who.label.startswith("The ") else who.label
    if len(family.names) > 1 or family.noun in lexicon.PLURAL_KIN | lexicon.PLURAL_ANIMALS:
        content = f"{name} is one of {whose}'s {family.value}"
    else:
        content = f"{who.label} {inflect('have', who.plural)} {family.value} named {name}"
    return Statement(content, "person", name, value=name, relation="family")
