"""Hints in a query besides its terms: the speaker, the period and the thing that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from reverie.recall.calibration import WEAK_TERMS
from reverie.text.analyzer import MAX_QUERY_CHARS, query_terms
from reverie.text.speech_acts import SpeechAct

# Without words that mean something else in another of these languages, such as "ton" and "ma".
_FIRST_PERSON = """
    i i'm i've i'd i'll me my mine myself we us our ours
    ich mich mir mein meine meinen meinem meiner meines wir uns unser unsere
    je j'ai moi mon nous notre nos
    yo mi mis mí conmigo nosotros nuestro nuestra
    eu meu minha meus minhas nós nosso nossa
    io mio mia miei mie noi nostro nostra
    ik mij mijn wij ons onze
    я меня мне мной мой моя моё мои мою мы нас нам наш наша
"""
_SECOND_PERSON = """
    you your yours you're you've yourself
    dich dir dein deine deinen deinem deiner hast bist
    toi vous votre vos
    tú contigo usted
    você teu tua
    tuo tuoi tue
    jij jou jouw
    ты тебя тебе твой твоя твоё твои вы вас вам ваш ваша
"""
# Spelled like this, these are a country and a name, not pronouns.
_PROPER_NOUNS = frozenset({"US", "Mia"})
_FIRST_WORDS = frozenset(_FIRST_PERSON.split())
_SECOND_WORDS = frozenset(_SECOND_PERSON.split())
# Chinese and Japanese write these without spaces; Korean adds endings to them.
_FIRST_SIGNS = re.compile(
    "[我咱]|私|僕|俺|(?<!\\w)(?:나|내|저|제|우리)(?:는|가|를|의|에|한테|에게)?(?!\\w)"
)
_SECOND_SIGNS = re.compile("[你您]|あなた|君|(?<!\\w)(?:너|네|당신)(?:는|가|를|의|에게)?(?!\\w)")
# "can you …" asks for something new, not for what the assistant said.
_REQUEST = re.compile(
    r"\b(?:can|could|would|will|do) you\b(?! (?:please )?(?:remind|repeat|remember|recall))",
    re.IGNORECASE,
)
# "What did I ask about the deck?" looks for questions themselves.
_ABOUT_QUESTIONS = re.compile(
    r"\b(?:ask(?:ed|ing)?|questions?|gefragt|fragen?|demandé|pregunt\w*|pergunt\w*|chiesto|domanda|"
    r"gevraagd|вопрос\w*|спрашивал\w*)\b|問|质问|質問|问题|問題",
    re.IGNORECASE,
)
# Before a pronoun it is a verb, which says nothing; elsewhere it may be the month.
_VERB_MAY = re.compile(r"\bmay (?=(?:i|we|you|he|she|it|they)\b)", re.IGNORECASE)
# "What is X?" asks for the text that says what X is, among all that name X.
_ASKS_DEFINITION = re.compile(
    r"\W*(?:(?:what|who)(?:'s| is| are| was| were)|what does|was ist|wer ist|qu'est-ce que|qui est|"
    r"qué es|quién es|o que é|quem é) (?P<article>(?:my|our|the|mein|meine|mon|ma|mi|meu|minha) )?"
    r"(?:an? |eine? |une? |una? |uma? )?(?P<name>\w[^?!,;:\n]{0,60}?)(?: mean| stand for)?[?!. ]*$",
    re.IGNORECASE,
)
_ASKS_DEFINITION_INDIRECTLY = re.compile(
    r"\W*(?:please )?(?:(?:can|could) you )?(?:please )?(?:do you know|remind me|tell me)"
    r"(?: again)? (?:what|who) (?P<article>(?:my|our|the) )?(?:an? )?"
    r"(?P<name>\w[^?!,;:\n]{0,60}?) (?:is|are|was|were|means?|stands? for)[?!. ]*$",
    re.IGNORECASE,
)
# "Which phone do I have?" asks for the text that says what somebody's phone is.
_ASKS_WHICH = re.compile(
    r"\W*(?:which|what)(?: kind of| type of| sort of| brand of| make of)? "
    r"(?P<name>\w[^?!,;:\n]{0,60}?) do (?:i|we) "
    r"(?:have|own|use|drive|ride|wear|play|speak|take|study|support)(?: now| currently)?[?!. ]*$",
    re.IGNORECASE,
)
# "Which phone do I have?" and "what book did Kari give me?" ask for a thing by its kind.
_ASKS_KIND = re.compile(
    r"\W*(?:which|what)(?: kind of| type of| sort of| brand of| make of)? (?:[a-z]+ )?"
    r"(?P<kind>[a-z]{3,}) (?:am|is|are|was|were|do|does|did|have|has|had|can|could|will|would|"
    r"should|must) \w",
    re.IGNORECASE,
)
# "What work do I do?" asks for what the verb says as well: "I am working as a nurse".
_ASKS_WHAT_IS_DONE = re.compile(r"\b(?:do|doing|done)\W*$", re.IGNORECASE)
# A word that follows a noun and is none itself, so that the noun is no part of a compound.
_ENDS_NOUN = re.compile(
    r"(?:am|is|are|was|were|be|been|do|does|did|has|have|had|can|could|will|would|should|must|may|"
    r"and|or|but|nor|not|of|in|on|at|to|for|from|with|by|about|as|than|that|which|who|when|where|"
    r"if|so|because|since|until|after|before|during|over|under|near|i|you|he|she|it|we|they|my|"
    r"your|his|her|its|our|their|a|an|the|this|these|those|there|here|now|then|too|also|again|"
    r"always|never|yesterday|today|tomorrow|broke|came|costs?|fell|gave|got|made|makes|needs?|rang|"
    r"said|says|sold|told|took|went|works|\w+ed|\w+ly|\w+ing)\b"
)
_NEXT_WORD = re.compile(r" (?P<word>[a-z]+)")
# A longer text says more than the words that it shares with the query.
MAX_OTHER_SENSE_TERMS = 10
MAX_DEFINED_WORDS = 4
_NOT_DEFINED = {"it", "this", "that", "these", "those", "he", "she", "they", "you", "i", "up"}
# The words before and after the name of a thing in a text that says what the thing is.
_BEFORE_NAME = re.compile(r"(?:^|[.!?:;\n(\"]|\b(?:an?|the|our|my|user's|that|and)) ?$")
_AFTER_NAME = re.compile(
    r"(?: ?\([^()]{0,40}\))?,? ?(?P<verb>[:=–—]|(?:is|are|was|were|ist|sind|war|est|es|é)\b|"
    r"(?:means?|stands? for|refers? to|is short for|bedeutet|significa)\b)"
)
_SAYS_WHAT = re.compile(
    r" ?(?:an?|the|one|our|my|your|his|her|their|its|user's|short for|called|eine?|der|die|das|"
    r"une?|l[ae]|el|una?|o|uma?)\b"
)
_COPULAS = {"is", "are", "was", "were", "ist", "sind", "war", "est", "es", "é"}
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
# Not the first word of a sentence, which has a capital anyway, nor "I".
_NAME_OR_NUMBER = re.compile(r"\d|(?<=[\w,;:] )(?!I\b)[A-Z]")

_MONTHS = (
    "january januar janvier enero janeiro gennaio",
    "february februar février fevrier febrero fevereiro febbraio",
    "march märz marz mars marzo março",
    "april avril abril aprile",
    "may mai mayo maio maggio",
    "june juni juin junio junho giugno",
    "july juli juillet julio julho luglio",
    "august août aout agosto",
    "september septembre septiembre setembro settembre",
    "october oktober octobre octubre outubro ottobre",
    "november novembre noviembre novembro",
    "december dezember décembre decembre diciembre dezembro dicembre",
)
_MONTH = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split()}
_MONTH_NAMES = "|".join(sorted(_MONTH, key=len, reverse=True))
_DAY = r"(?P<d>[0-9]{1,2})(?:st|nd|rd|th|\.|er|º)?"
_YEAR = r"(?P<y>(?:19|20)[0-9]{2})"
_OF = r"(?:\s+(?:of|de|di|del))?\s+"
# "may" and "march" are also verbs, and four digits are also a price: alone they need one of these.
_IN = (
    r"(?:in|of|during|since|until|before|after|by|last|next|early|late|mid"
    r"|spring|summer|autumn|winter"
    r"|im|seit|bis|vor|nach|en|de|depuis|desde|em|nel|dal)"
)
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_YEAR}-(?P<m>[0-9]{{2}})-(?P<d>[0-9]{{2}})(?![0-9])",
        rf"\b{_DAY}{_OF}(?P<m>{_MONTH_NAMES})\b(?:,?{_OF}{_YEAR}\b)?",
        rf"\b(?P<m>{_MONTH_NAMES})\s+{_DAY}(?!\d)(?:,?\s+{_YEAR}\b)?",
        rf"\b{_YEAR}-(?P<m>[0-9]{{2}})\b",
        rf"\b(?P<m>{_MONTH_NAMES}),?{_OF}{_YEAR}\b",
        rf"\b{_IN}\s+(?P<m>{_MONTH_NAMES})\b",
        rf"\b{_IN}\s+(?:the year\s+|fall\s+)?{_YEAR}\b",
    )
)
# A cheap check first: most queries have neither a digit nor a month.
_MAYBE_DATE = re.compile(rf"[0-9]|{_MONTH_NAMES}", re.IGNORECASE)
# The time zone of a date is unknown: a time matches if it does in any of these.
_UTC_OFFSETS = tuple(timedelta(hours=hours) for hours in (-12, 0, 12))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Period(NamedTuple):
    """A year, month or day that a query names. A part it does not name is None: any year's May."""

    year: int | None
    month: int | None
    day: int | None

    def holds(self, at: int) -> bool:
        """Whether a time, in milliseconds UTC, is in the period in any time zone."""
        try:
            moment = _EPOCH + timedelta(milliseconds=at)
            return any(self._matches(moment + shift) for shift in _UTC_OFFSETS)
        except OverflowError:
            return False

    def overlaps(self, valid_from: int | None, valid_to: int | None, at: int) -> bool:
        """Whether a fact that is true from one time until another is true in the period.

        Without these times, or in a period without a year, its time ``at`` is compared.
        """
        bounds = self.bounds()
        if bounds is None or (valid_from is None and valid_to is None):
            return self.holds(at)
        start, end = bounds
        return (valid_from is None or valid_from < end) and (valid_to is None or start < valid_to)

    def bounds(self) -> tuple[int, int] | None:
        """Its first moment and the first one after it, in UTC; None without a year."""
        if self.year is None:
            return None
        month = self.month or 1
        try:
            first = datetime(self.year, month, self.day or 1, tzinfo=UTC)
            if self.month is None:
                last = datetime(self.year + 1, 1, 1, tzinfo=UTC)
            elif self.day is None:
                last = datetime(self.year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
            else:
                last = first + timedelta(days=1)
        except ValueError:
            return None
        start, end = ((moment - _EPOCH) // timedelta(milliseconds=1) for moment in (first, last))
        return start, end

    def _matches(self, moment: datetime) -> bool:
        return (
            self.year in {None, moment.year}
            and self.month in {None, moment.month}
            and self.day in {None, moment.day}
        )


class Definition(NamedTuple):
    """The thing that a query asks to be explained: "Kestrel" in "what is Kestrel?".

    ``definite``: it is somebody's ("my name", "the code"), so any value answers. Otherwise
    "Kestrel is late" is no answer, and "Kestrel is our billing service" is one.
    """

    name: str
    definite: bool

    def is_in(self, text: str) -> bool:
        """Whether a text says what the thing is."""
        lowered = text.lower().replace("\u2019", "'")
        start = lowered.find(self.name)
        while start >= 0:
            end = start + len(self.name)
            after = _AFTER_NAME.match(lowered, end)
            if after is not None and _BEFORE_NAME.search(lowered, max(start - 12, 0), start):
                says = self.definite or after["verb"] not in _COPULAS
                if says or _SAYS_WHAT.match(lowered, after.end()):
                    return True
            start = lowered.find(self.name, end)
        return False


class AskedKind(NamedTuple):
    """The kind of thing that a query asks for: "phone" in "which phone do I have?"."""

    word: str
    term: str
    other_terms: frozenset[str]
    """The other terms of the query that are no weak words."""

    def is_missed_by(self, text: str) -> bool:
        """Whether a text has the word in another sense, and nothing else that is asked for.

        That is another form of a weak word ("booked" for a book; who ordered something has an
        order), or a part of a compound ("phone calls") in a text without a name or number that
        could be what is asked for.
        """
        forms = [
            (match, _singular(match[0].lower()) == _singular(self.word))
            for match in _WORD.finditer(text)
            if match[0][:3].lower() == self.word[:3] and self.term in query_terms(match[0])
        ]
        if not forms:
            return False
        terms = query_terms(text, MAX_OTHER_SENSE_TERMS + 1)
        if len(terms) > MAX_OTHER_SENSE_TERMS or not self.other_terms.isdisjoint(terms):
            return False
        same = [match for match, is_same in forms if is_same]
        if not same:
            return self.term in WEAK_TERMS
        return not _NAME_OR_NUMBER.search(text) and all(_begins_compound(text, at) for at in same)


def _singular(noun: str) -> str:
    """A noun without its plural, roughly, and without "'s"."""
    noun = noun.removesuffix("'s").removesuffix("\u2019s")
    return noun.removesuffix("es") if noun.endswith(("ses", "xes", "ches")) else noun.rstrip("s")


def _begins_compound(text: str, noun: re.Match[str]) -> bool:
    """Whether another noun follows a noun: "phone calls", not "phone is" or "phone broke"."""
    following = _NEXT_WORD.match(text, noun.end())
    return following is not None and _ENDS_NOUN.match(following["word"]) is None


class QueryHints(NamedTuple):
    """The parsed query. ``terms`` maps each term to the word of the query that it comes from."""

    terms: dict[str, str]
    about_user: bool
    about_assistant: bool
    about_questions: bool
    period: Period | None
    definition: Definition | None
    kind: AskedKind | None

    def wants(self, act: int) -> bool:
        """Whether an event of this class may be a hit: fillers never, questions if asked for."""
        asks = act in {SpeechAct.QUESTION, SpeechAct.REQUEST}
        return act == SpeechAct.STATEMENT or (self.about_questions and asks)

    def asks_about(self, role: str, speaker: str | None) -> bool:
        """Whether the query asks for what this speaker said."""
        if (self.about_user and role == "user") or (self.about_assistant and role == "assistant"):
            return True
        return (
            speaker is not None
            and bool(name := _speaker_terms(speaker))
            and name <= self.terms.keys()
        )


def parse_query(query: str) -> QueryHints:
    """Parse a query that a user wrote to an assistant: "I" is the user, "you" the assistant."""
    text = query[:MAX_QUERY_CHARS]
    without_requests = _REQUEST.sub(" ", text)
    words = {
        word.lower().replace("\u2019", "'")
        for word in _WORD.findall(without_requests)
        if word not in _PROPER_NOUNS
    }
    second = bool(words & _SECOND_WORDS) or bool(_SECOND_SIGNS.search(without_requests))
    first = bool(words & _FIRST_WORDS) or bool(_FIRST_SIGNS.search(without_requests))
    terms = query_terms(_VERB_MAY.sub(" ", text))
    return QueryHints(
        terms,
        first and not second,
        second,
        bool(_ABOUT_QUESTIONS.search(text)),
        _parse_period(text),
        _parse_definition(text),
        _parse_kind(text, terms),
    )


def _parse_definition(text: str) -> Definition | None:
    plain = text.replace("\u2019", "'")
    which = _ASKS_WHICH.match(plain)
    asked = which or _ASKS_DEFINITION.match(plain) or _ASKS_DEFINITION_INDIRECTLY.match(plain)
    if asked is None:
        return None
    words = asked["name"].lower().split()
    if len(words) > MAX_DEFINED_WORDS or words[0] in _NOT_DEFINED:
        return None
    return Definition(" ".join(words), which is not None or asked["article"] is not None)


def _parse_kind(text: str, terms: Iterable[str]) -> AskedKind | None:
    asked = _ASKS_KIND.match(text)
    if asked is None or _ASKS_WHAT_IS_DONE.search(text):
        return None
    word = asked["kind"].lower()
    for term in query_terms(word):
        return AskedKind(word, term, frozenset(terms) - WEAK_TERMS - {term})
    return None


def _parse_period(text: str) -> Period | None:
    if not _MAYBE_DATE.search(text):
        return None
    for pattern in _DATES:
        if match := pattern.search(text):
            groups = match.groupdict()
            year = int(groups["y"]) if groups.get("y") else None
            month = groups.get("m")
            number = None
            if month is not None:
                # IGNORECASE also matches letters whose lower case is not in a month's name.
                number = int(month) if month.isdecimal() else _MONTH.get(month.lower(), 0)
            day = int(groups["d"]) if groups.get("d") else None
            if (number is None or 1 <= number <= 12) and (day is None or 1 <= day <= 31):
                return Period(year, number, day)
    return None


@lru_cache(maxsize=1_000)
def _speaker_terms(speaker: str) -> frozenset[str]:
    return frozenset(query_terms(speaker))
