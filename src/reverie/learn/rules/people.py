"""Find who a clause speaks of, and bring its verb into one form.

"I live in Rome", "My sister Mia lives in Rome" and "She's lived in Rome since May" become a Person
and a predicate that starts with the base form of its verb ("live in Rome"), so that a relation is
written once and holds for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from reverie.learn.rules import lexicon
from reverie.learn.rules.sentences import ignoring_case
from reverie.learn.rules.values import parse_person

_MAX_KIND_WORDS = 2
KINDS = lexicon.SINGLE_KIN | lexicon.MANY_KIN | lexicon.ANIMALS
_PLURALS = lexicon.PLURAL_KIN | lexicon.PLURAL_ANIMALS
_QUALIFIERS = lexicon.words("new best current dear good old close twin")
# Which of several people is meant: the older son and the younger son are two.
_DISTINCTIONS = lexicon.words("older younger elder eldest oldest youngest little big other")
# People who are named without "my".
_OWN_FAMILY = {"Dad": "dad", "Mum": "mum", "Mom": "mom", "Grandma": "grandma", "Gran": "gran"}

_MISSING_APOSTROPHE = ignoring_case(r"\b(i)(m|ve)\b|\b(do|does|ca|is|are|was|wo)(nt)\b")
_COUPLE = re.compile(r"[Mm]y ([a-z]{2,20}) and I\b")
_WITH_NAME = re.compile(r"([A-Z][\w'-]{1,30}) and I\b")
_CALL_ME = ignoring_case(
    r"(?:(?:you can|just|please|everyone|everybody|friends|people) )?calls? me(?=\s)"
)
_APPOSITION = re.compile(r"([A-Z][\w'-]{1,30}), (?=[mM]y |[oO]ur )")
_I = re.compile(r"(?:I|i|[Ww]e)(?=[\s'])")
_MY = re.compile(r"(?:[Mm]y|MY|[Oo]ur)\s{1,4}")
_ANY_MY = ignoring_case(r"\b(?:my|our)\s")
# Somebody whom a pronoun may mean as well: "My neighbour has a son. He's 7."
_SOMEBODY = ignoring_case(
    r"(?<!is )(?<!'s )(?<!am )(?<!'m )(?<!was )\b(?:an?|the|his|her|their|another|some)\s"
)
_VERB_AFTER_NAME = re.compile(r" (?:is|was|has|will|[a-z]{2,12}s)\b")
# What only a person is or does: "Paris was great" and "Netflix works" name nobody.
_TRAIT = "|".join(sorted(lexicon.DIETS | lexicon.HEALTH_TRAITS | lexicon.MARITAL_STATES))
_LIKE_A_PERSON = ignoring_case(
    r" (?:(?:just|also|often|always|sometimes|finally|will) )?(?:"
    r"(?:came|comes?|is coming|was coming) (?:by|over|round|around|along|to (?:see|visit|stay|"
    r"dinner|lunch|tea))|(?:drop(?:s|ped)?|stop(?:s|ped)?|pop(?:s|ped)?) (?:by|in|over|round)|"
    r"(?:visit|call|phone)(?:s|ed|d)?|rang|texted|(?:is|was) visiting|"
    r"lives|studies|teaches|eats|drinks|likes|loves|hates|prefers|speaks|plays|"
    r"(?:stay|stays|stayed|is staying|moved in) with (?:us|me)|(?:join|help|invite)(?:s|ed|d)? "
    rf"(?:us|me)|met (?:us|me)|got (?:married|engaged|divorced)|is (?:ill|sick|{_TRAIT}))\b"
)
_NO_NAMES = (
    KINDS | _PLURALS | lexicon.OCCUPATIONS | lexicon.MAKES | lexicon.BUSINESSES | lexicon.NOT_PEOPLE
)
# "In Paris" speaks of nobody.
_CAPITALISED = re.compile(r"(?<!\bin )\b[A-Z]")
_PRONOUN = ignoring_case(r"(?:(?P<she>she|her)|(?P<he>he|his)|(?P<they>they|their))(?=[\s'])")
_POSSESSIVE = ignoring_case(r"(?:her|his|their)$")
# "My cousin Leila's studying law", "our dog Nala's a rescue".
_NAME_IS = re.compile(r" ([A-Z][\w-]{1,30}(?: [A-Z][\w-]{1,30})?)(?='s\s)")
_COPULA = ignoring_case(r"(?:'s|\s{1,4}(?:is|are))(?=\s)")
_NAMED_BY_KIND = ignoring_case(r"\s{1,4}(?:is|are|'s|has|was)(?!\w)")

_ADVERBS = lexicon.words("""
    now currently still also really absolutely truly generally usually always strongly actually
    originally officially both all just recently finally already unfortunately sadly
""")
# "I just love bugs" is irony more often than news; "I just moved" is news.
_ADVERBS_OF_EVENTS = lexicon.words("just recently finally already")
# What a perfect tense comes to: "I've moved" is the event, "I've lived" goes on until now.
_PARTICIPLES = {
    each: each
    for each in lexicon.words("""
        moved started joined quit stopped adopted left relocated retired switched bought sold
        divorced married turned changed died had
    """)
} | {
    "gone": "went",
    "given": "gave",
    "become": "became",
    "taken": "took",
    "begun": "began",
    "been": "have been",
    "got": "have",
    "gotten": "got",
    "lived": "have lived",
    "played": "have played",
    "worked": "have worked",
}
_BE = lexicon.words("am is are 'm 's 're")
_NOT = {
    **dict.fromkeys(("don't", "doesn't"), "do not"),
    **dict.fromkeys(("isn't", "aren't"), "be not"),
    **dict.fromkeys(("can't", "cannot"), "can not"),
}


@dataclass(frozen=True, slots=True)
class Person:
    """The user, or somebody the user speaks of: by kind ("wife"), by name, or both."""

    kind: str = ""
    name: str = ""
    plural: bool = False
    distinction: str = ""  # "older", of somebody without a name

    @property
    def is_user(self) -> bool:
        """Whether this is the person who writes, alone or together with somebody."""
        return not self.kind

    @property
    def label(self) -> str:
        """How a memory calls them."""
        if self.is_user:
            return f"The user and {self.name}" if self.name else "The user"
        return self.name or f"The user's {self.kin}"

    @property
    def kin(self) -> str:
        """What they are to the user: "sister", "older son"."""
        return f"{self.distinction} {self.kind}".strip()

    @property
    def subject(self) -> str:
        """Who a memory about them is about."""
        return self.name or self.kin

    def may_be(self, pronoun: re.Match[str]) -> bool:
        """Whether a pronoun can mean them."""
        word = self.kind.rpartition(" ")[2]
        if pronoun["they"]:
            return self.plural
        against = lexicon.MALE if pronoun["she"] else lexicon.FEMALE
        return not self.plural and word not in against


USER = Person()


def subject_end(sentence: str) -> int:
    """Return where the subject of a sentence ends if it has an "and" or a comma in it, else 0."""
    for pattern in (_COUPLE, _WITH_NAME, _APPOSITION):
        if found := pattern.match(sentence):
            return found.end() + 4
    return 0


class Clause(NamedTuple):
    """Who a clause speaks of, and what it says of them.

    ``predicate`` starts with a verb in its base form, or with "'s" before something they have:
    "'s name be Ana". ``written`` are the words before it as they were written.
    """

    who: Person
    predicate: str
    written: str


@dataclass(slots=True)
class Mentions:
    """The people whom a message has spoken of, each with the number of the sentence."""

    seen: dict[Person, int] = field(default_factory=dict)
    strangers: dict[Person, int] = field(default_factory=dict)
    # Of the strangers, those who are people beyond doubt.
    certain: set[Person] = field(default_factory=set)
    # What else may be a name, with a capital inside a sentence.
    names: dict[str, int] = field(default_factory=dict)
    sentence: int = 0

    def read(self, sentence: str) -> None:
        """Note everybody whom the next sentence speaks of, also those it says nothing of."""
        self.sentence += 1
        for mine in _ANY_MY.finditer(sentence):
            if found := read_kin(sentence[mine.end() : mine.end() + 80]):
                self.add(found[0])
        for other in _SOMEBODY.finditer(sentence):
            if found := read_kin(sentence[other.end() : other.end() + 80]):
                self.strangers[found[0]] = self.sentence
                self.certain.add(found[0])
        for name in _names_in(sentence[1:]):
            self.names[name] = self.sentence
        if named := parse_person(sentence, most_words=2):
            self._read_named(named.value, named.rest)

    def _read_named(self, name: str, rest: str) -> None:
        """Note who a sentence starts with, and if a person does, who else it names."""
        kin = _OWN_FAMILY.get(name)
        person = Person(kin) if kin else Person("acquaintance", name)
        if _LIKE_A_PERSON.match(rest):
            if kin or _is_name(name) and not rest.endswith("?"):
                self.certain.add(person)
            for other in _names_in(rest):
                self.strangers[Person("acquaintance", other)] = self.sentence
        elif not _VERB_AFTER_NAME.match(rest):
            return
        self.strangers[person] = self.sentence

    def add(self, person: Person) -> None:
        """Note that the current sentence speaks of somebody."""
        if not person.is_user:
            self.seen.pop(person, None)
            self.seen[person] = self.sentence

    def by_name(self, name: str) -> Person | None:
        """Return the person of that name."""
        return next((each for each in self.seen if each.name == name), None)

    def by_pronoun(self, pronoun: re.Match[str], strangers: bool = False) -> Person | None:
        """Return the one person of this or the previous sentence whom a pronoun can mean.

        ``strangers``: also somebody who is not one of the user's own people, if certain.
        """
        found = [
            person
            for person, sentence in (self.strangers | self.seen).items()
            if sentence >= self.sentence - 1 and person.may_be(pronoun)
        ]
        # "My son" and then "my son Max" are the same.
        named = {each.name: each for each in found if each.name}
        kinds = {each.kind for each in named.values()}
        others = [each for each in found if not each.name and each.kind not in kinds]
        candidates = [*named.values(), *others]
        if len(candidates) != 1:
            return None
        person = candidates[0]
        return person if person in self.seen or (strangers and self._is_only(person)) else None

    def _is_only(self, person: Person) -> bool:
        """Whether somebody is a person beyond doubt, and no earlier sentence names another one.

        A first name does not say who is a "she": in "Anna came by. Tom called." it may be Anna.
        """
        others = {other for other in self.strangers | self.seen if other.name}
        before = {name for name, sentence in self.names.items() if sentence < self.sentence - 1}
        return person in self.certain and others <= {person} and before <= {person.name}


def _names_in(text: str) -> Iterator[str]:
    """Yield what may be names in a text."""
    for capital in _CAPITALISED.finditer(text):
        if found := parse_person(text[capital.start() : capital.start() + 80]):
            yield found.value


def _is_name(words: str) -> bool:
    """Whether what a sentence starts with is a name: "Plumber" and "Then Tom" are none."""
    small = words.lower()
    first = small.partition(" ")[0]
    is_opener = first != small and first in lexicon.OPENERS
    return not is_opener and _NO_NAMES.isdisjoint((small, small.removesuffix("s")))


def find_pronoun(text: str, mentions: Mentions) -> tuple[re.Match[str], Person | None] | None:
    """Return the pronoun that a request starts with, and whom it means."""
    found = _PRONOUN.match(text)
    return found and (found, mentions.by_pronoun(found, strangers=True))


def read_clauses(clause: str, mentions: Mentions) -> Iterator[Clause]:
    """Yield the ways to read a clause: whom it speaks of, and its predicate."""
    clause = _MISSING_APOSTROPHE.sub(_add_apostrophe, clause)
    if called := _CALL_ME.match(clause):
        yield Clause(USER, f"be called{clause[called.end() :]}", called[0])
    elif couple := _COUPLE.match(clause):
        if couple[1] in KINDS:
            yield from _predicates(USER, clause[couple.end() :], "I")
    elif with_name := _WITH_NAME.match(clause):
        together = Person(name=with_name[1], plural=True)
        yield from _predicates(together, clause[with_name.end() :], "I")
    elif user := _I.match(clause):
        yield from _predicates(USER, clause[user.end() :], user[0])
    elif mine := _MY.match(clause):
        yield from _read_my(clause[mine.end() :], mine[0], mentions)
    else:
        yield from _read_other(clause, mentions)


def _read_my(text: str, my: str, mentions: Mentions) -> Iterator[Clause]:
    """Read "my wife Ingrid is vegan" and "my birthday is May 3", both without "my"."""
    if found := read_kin(text):
        person, rest = found
        mentions.add(person)
        yield from _predicates(person, rest, f"{my}{person.kin}")
    else:
        yield Clause(USER, f"'s {_COPULA.sub(' be', text, count=1)}", my)


def read_kin(text: str) -> tuple[Person, str] | None:
    """Read "new boss Karin hates mail" as the person and the rest of the clause."""
    tokens = list(re.finditer(r"[^\s,.!…;:()']+(?:-in-law)?", text[:80]))
    qualifiers = []
    while tokens and tokens[0][0] in _QUALIFIERS | _DISTINCTIONS:
        qualifiers.append(tokens.pop(0)[0])
    distinction = next((each for each in qualifiers if each in _DISTINCTIONS), "")
    for length in range(min(_MAX_KIND_WORDS, len(tokens)), 0, -1):
        kind = text[tokens[0].start() : tokens[length - 1].end()]
        known = kind if kind == "GP" else kind.lower() if kind.islower() else ""
        plural = known in _PLURALS
        if known != "GP" and known not in KINDS and not plural:
            continue
        if "old" in qualifiers and known in lexicon.SINGLE_KIN:
            return None  # "my old boss" is no longer the boss
        rest = text[tokens[length - 1].end() :]
        if not plural and (short := _NAME_IS.match(rest)) and parse_person(short[1]):
            return Person(known, short[1]), rest[short.end(1) :]
        apposed = rest.startswith(", ")
        named = None if plural else parse_person(rest[2 if apposed else 1 :], most_words=2)
        if named and rest[:1] in " ," and (not apposed or named.rest.startswith(",")):
            return Person(known, named.value), named.rest.removeprefix(",")
        return Person(known, plural=plural, distinction=distinction), rest
    return None


def _read_other(clause: str, mentions: Mentions) -> Iterator[Clause]:
    """Read a clause about somebody who was named before, or is named with an apposition."""
    if pronoun := _PRONOUN.match(clause):
        person = mentions.by_pronoun(pronoun)
        rest = clause[pronoun.end() :]
        if person is not None:
            mentions.add(person)
            rest = f"'s{rest}" if _POSSESSIVE.match(pronoun[0]) else rest
            yield from _predicates(person, rest, pronoun[0])
        return
    if apposed := _APPOSITION.match(clause):
        kin = read_kin(clause[apposed.end() :].partition(" ")[2])
        if kin and not kin[0].name and kin[1].startswith(","):
            person = Person(kin[0].kind, apposed[1])
            mentions.add(person)
            yield from _predicates(person, kin[1][1:], "")
        return
    first, _, rest = clause.partition(" ")
    if known := mentions.by_name(first.removesuffix("'s")):
        mentions.add(known)
        yield from _predicates(known, clause[len(known.name) :], "")
    elif first in _OWN_FAMILY and _NAMED_BY_KIND.match(f" {rest}"):
        person = Person(_OWN_FAMILY[first])
        mentions.add(person)
        yield from _predicates(person, f" {rest}", "")


def _predicates(who: Person, text: str, written: str) -> Iterator[Clause]:
    """Yield the predicates of a clause after its subject: of "'s" there are two readings."""
    if text.startswith("'s ") and not who.is_user:
        yield Clause(who, f"'s {_COPULA.sub(' be', text[3:], count=1)}", written)
    if predicate := base_form(text, third_person=not who.is_user):
        yield Clause(who, predicate, written)


def base_form(text: str, third_person: bool) -> str:
    """Return a predicate with its first verb in the base form, without adverbs before it."""
    verb, rest = _first_word(text)
    while verb.lower() in _ADVERBS - _ADVERBS_OF_EVENTS:
        verb, rest = _first_word(rest)
    small = verb.lower()
    if small in _ADVERBS_OF_EVENTS:
        verb, rest = _first_word(rest)
        return f"{verb} {rest}" if verb.lower() in _PARTICIPLES else ""
    if small in _BE or small == "be":
        return _after_verb("BE" if len(verb) > 2 and verb.isupper() else "be", rest)
    if small in {"have", "has", "'ve"}:
        return _perfect(rest)
    if small in _NOT:
        return _after_verb(_NOT[small], rest)
    if small == "no" and third_person:
        longer, after = _first_word(rest)
        return f"no {longer} {base_form(after, third_person)}".strip()
    if small in {"do", "does", "can"}:
        following, after = _first_word(rest)
        if following == "not":
            return _after_verb(f"{'can' if small == 'can' else 'do'} not", after)
        return _after_verb("do" if small == "does" else small, rest)
    return f"{_singular_base(verb) if third_person else verb} {rest}".strip()


def _perfect(rest: str) -> str:
    """Return "have got a cat" as "have a cat", and "have just moved" as "moved"."""
    following, after = _first_word(rest)
    while following.lower() in _ADVERBS:
        following, after = _first_word(after)
    if following in _PARTICIPLES:
        return _after_verb(_PARTICIPLES[following], after)
    return f"have {rest}".strip()


def _after_verb(verb: str, rest: str) -> str:
    word, after = _first_word(rest)
    while word.lower() in _ADVERBS or word == "only":
        rest = after
        word, after = _first_word(rest)
    return f"{verb} {rest}".strip()


def _first_word(text: str) -> tuple[str, str]:
    text = text.lstrip()
    end = re.match(r"'?[^\s',]*+(?:'\w+)?", text)
    word = end[0] if end else ""
    return word, text[len(word) :].lstrip()


def _singular_base(verb: str) -> str:
    """Return "live" for "lives" and "study" for "studies"."""
    if verb.endswith("ies") and len(verb) > 4:
        return f"{verb[:-3]}y"
    if verb.endswith(("ches", "shes", "sses", "xes", "zes", "oes")):
        return verb[:-2]
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb


def _add_apostrophe(match: re.Match[str]) -> str:
    if match[1]:
        return f"{match[1]}'{match[2]}"
    return f"{match[3]}n't"
