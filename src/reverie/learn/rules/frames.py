"""The frames of a fact: who, relation and value.

A Relation says what is remembered; a Wording is one way to say it, a verb in its base form and what
follows it. Both hold for the user and for everybody the user speaks of (`people.py`). What fills a
relation is read by one of the readers of `values.py`, most of which know a list of words.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from reverie.learn.rules import lexicon
from reverie.learn.rules.people import Person
from reverie.learn.rules.sentences import ignoring_case
from reverie.learn.rules.values import READERS, ParsedValue, listed, without_date

# When a wording holds: a state lasts until something else is said, an event ("I moved") must not
# lie in the far past, a habit may be one of weekends, a plan has a date, what is past says from
# when to when it was, and what is settled ("I was born in") never changes.
Aspect = Literal["state", "event", "habit", "plan", "past", "settled"]
About = Literal["anybody", "user", "others"]


class Relation(NamedTuple):
    """What may be remembered of somebody.

    ``content``, ``ended`` and ``subject`` are filled with {who}, {value}, {small} (the value in
    lower case), the groups of the wording, and any verb in its base form: "{who} {live} in
    {value}". ``subject`` is that of a fact about the user; one about others has theirs.
    """

    name: str
    content: str
    category: str = "context"
    subject: str | None = None
    single_valued: bool = False
    ended: str = ""


class Wording(NamedTuple):
    """One way to state a relation: verbs in their base form, and what follows them."""

    relation: Relation
    verbs: str
    after: str = ""
    reader: str = ""  # a name in READERS; without one, the value is the group ``value``
    aspect: Aspect = "state"
    about: About = "anybody"
    retracts: bool = False


_LISTS = {
    "aid": lexicon.AIDS,
    "belonging": lexicon.POSSESSIONS,
    "collection": lexicon.COLLECTIONS,
    "consumed": lexicon.CONSUMED,
    "diet": lexicon.DIETS,
    "field": lexicon.FIELDS | lexicon.LANGUAGES,
    "game": lexicon.GAMES,
    "health": lexicon.HEALTH_TRAITS,
    "herd": lexicon.PLURAL_ANIMALS,
    "industry": lexicon.INDUSTRIES,
    "marital": lexicon.MARITAL_STATES,
    "outing": lexicon.OUTINGS,
    "practice": lexicon.PRACTICES,
    "religion": lexicon.RELIGIONS,
    "temperament": lexicon.TEMPERAMENTS,
    "work state": lexicon.WORK_STATES,
    "work time": lexicon.WORK_TIMES,
    "worn": lexicon.WORN,
}
_READERS = READERS | {name: listed(entries) for name, entries in _LISTS.items()}

# -- relations ------------------------------------------------------------------------------------

_NAME = Relation("name", "{who}'s name is {value}", "person", "name", True)
KIN = Relation(
    *("kin", "The user's {kin} is {value}", "person", "{kin}", True),
    ended="{value} is no longer the user's {kin}",
)
_BIRTHDAY = Relation("birthday", "{who}'s birthday is {value}", "person", "birthday", True)
_AGE = Relation("age", "{who} {be} {value} years old", "person", "age", True)
_MARITAL = Relation(
    *("marital", "{who} {be} {value}", "person", "marital status", True),
    ended="{who} {be} no longer {value}",
)
_MARRIED_TO = _MARITAL._replace(content="{who} {be} {state} to {value}")
_REPORTS = Relation("reports", "{who} {report} to {value}", "person", "{value}")
_ROLE = Relation("role", "{who} {be} {value}", "person", "{small}")
_DIED = Relation("died", "{who} died {when}", "person")
_HOME = Relation(
    *("home", "{who} {live} in {value}", "context", "home", True),
    ended="{who} no longer {live} in {value}",
)
_PAST_HOME = Relation("past home", "{who} lived in {value}", "context", "home")
_NEAR_HOME = _HOME._replace(content="{who} {live} {near} {value}")
_LIVES_WITH = Relation("lives with", "{who} lives with the user", "person", "household")
_GRADE = Relation("grade", "{who} {be} in {value}", "context", "school", True)
_STUDIED_AT = Relation("past studies", "{who} studied at {value}", "context", "university")
_STUDIES_AT = Relation("studies at", "{who} {study} at {value}", "context", "university", True)
_FEAR = Relation("fear", "{who} {be} {kind} of {value}", "context", "{small}")
_EXPECTING = Relation("expecting", "{who} {be} expecting {value}", "health", "pregnancy", True)
_DWELLING = Relation("dwelling", "{who} {live} {value}", "context", "dwelling", True)
_ORIGIN = Relation("origin", "{who} {be} from {value}", "context", "origin", True)
_RAISED = Relation("raised", "{who} grew up in {value}", "context", "childhood", True)
_BORN = Relation("born", "{who} was born in {value}", "context", "birthplace", True)
_BIRTH_YEAR = Relation("birth year", "{who} was born in {value}", "person", "birth year", True)
_NATIONALITY = Relation("nationality", "{who} {be} {value}", "context", "nationality", True)
_RELIGION = Relation("religion", "{who} {be} {value}", "context", "religion", True)
_WORK = Relation(
    *("work", "{who} {work} at {value}", "context", "work", True),
    ended="{who} no longer {work} at {value}",
)
_PAST_WORK = Relation("past work", "{who} worked at {value}", "context", "work")
_TEAM = Relation(
    *("team", "{who} {be} on the {value} {kind}", "context", "team", True),
    ended="{who} {be} no longer on the {value} {kind}",
)
_JOB = Relation(
    *("job", "{who} {work} as {value}", "context", "job", True),
    ended="{who} no longer {work} as {value}",
)
_PAST_JOB = Relation("past job", "{who} worked as {value}", "context", "job")
_OCCUPATION = _JOB._replace(content="{who} {be} {value}")
_INDUSTRY = Relation("industry", "{who} {work} in {value}", "context", "industry", True)
_WORK_TIME = Relation("work time", "{who} {work} {value}", "context", "working hours", True)
_BUSINESS = Relation("business", "{who} {does} {value}", "context", "business")
_STUDIES = Relation("studies", "{who} {study} {value}", "context", "studies", True)
_DEGREE = Relation("degree", "{who} {be} doing {value}", "context", "degree", True)
_TEACHES = Relation("teaches", "{who} {teach} {value}", "context", "teaching", True)
_PREFERS = Relation("prefers", "{who} {prefer} {value}", "preference")
_LIKES = Relation("likes", "{who} {does} {value}", "preference", "{small}", True)
_CANNOT_STAND = _LIKES._replace(content="{who} can't stand {value}")
_DISLIKES = _LIKES._replace(content="{who} {do} not {verb} {value}")
_FAN = _LIKES._replace(content="{who} {be} {kind} {value}")
_NO_FAN = _LIKES._replace(content="{who} {be} not a fan of {value}")
_HOBBY = Relation("hobby", "{who}'s {kind} {copula} {value}", "preference", "{small}")
_TEMPERAMENT = Relation("temperament", "{who} {be} {value}", "preference", "{small}")
_FAVOURITE = Relation(
    *("favourite", "{who}'s favourite {topic} is {value}", "preference", "favourite {topic}", True),
)
_ALLERGY = Relation(
    *("allergy", "{who} {be} allergic to {value}", "health", "{small} allergy", True),
    ended="{who} {be} no longer allergic to {value}",
)
_DIET = Relation(
    *("diet", "{who} {be} {value}", "health", "diet", True),
    ended="{who} {be} no longer {value}",
)
_EATS = _DIET._replace(content="{who} {does} {value}")
_AVOIDS = Relation("avoids", "{who} {do} not {verb} {value}", "health", "{small}")
_ABSTAINS = Relation("abstains", "{who} {do} not {value}", "health", "{value}")
_CANNOT_HAVE = _AVOIDS._replace(content="{who} can't {verb} {value}")
_GAVE_UP = Relation("gave up", "{who} {verb} {value}", "health", "{small}")
_CONDITION = Relation("condition", "{who} {have} {value}", "health", "{small}")
_HEALTH = Relation("health", "{who} {be} {value}", "health", "{small}")
_MEDICINE = Relation("medicine", "{who} {take} {value}", "health", "{small}")
_AID = Relation("aid", "{who} {does} {value}", "health", "{small}")
_SPEAKS = Relation("speaks", "{who} {speak} {value}", "context", "languages")
_SPEAKS_NOT = Relation("speaks not", "{who} {do} not speak {value}", "context", "{small}")
_LEARNS = Relation("learns", "{who} {be} learning {value}", "context", "{small}")
_ACTIVITY = Relation(
    *("activity", "{who} {does} {value}", "context", "{small}"),
    ended="{who} no longer {play} {value}",
)
_USES = Relation("uses", "{who} {does} {value}", "context", "{small}")
_HAS = Relation("has", "{who} {have} {value}", "context", "{small}")
_ATTRIBUTE = Relation("attribute", "{who}'s {kind} {copula} {value}", "context", "{kind}", True)
_MEASURE = Relation("measure", "{who} {be} {value} tall", "context", "height", True)
_WEIGHT = Relation("weight", "{who} {weigh} {value}", "context", "weight", True)
_HABIT = Relation("habit", "{who} {does} {phrase} {value}", "context", "{verb} {phrase}", True)
_PURSUIT = Relation("pursuit", "{who} {be} {kind} {value}", "context", "{small}")
_BOUGHT = Relation("bought", "{who} {verb} {value}", "context", "{small}")
_PLAN = Relation("plan", "{who} {be} {kind} {value}", "context", "{kind} {small}", True)
_WEDDING = Relation("wedding", "{who} {be} getting married {value}", "context", "wedding", True)
_APPOINTMENT = Relation("appointment", "{who} {have} {value}", "context", "{small}", True)
EVENT = Relation("event", "{who}'s {kind} {verb} {value}", "context", "{whose}{kind}", True)
_DUE_DATE = EVENT._replace(content="{who} {be} due {value}", subject="due date")
_DUE = Relation("plan", "{who} {does} {value}", "context", "{verb} {small}", True)

# -- wordings -------------------------------------------------------------------------------------

_WORDS = r"\S{1,40}(?: \S{1,40}){0,3}?"
_THE_TEAM = rf"the (?P<value>{_WORDS}) (?P<kind>team|department)"
_ANY_MORE = r" (?:any ?more|any longer)"
_SOMETHING = r"(?!(?:bit|line|moment|one|part|scene|thing)\b)(?P<topic>\S{1,40}(?: \S{1,40}){0,2}?)"
_VERY = r"(?:(?:very|severely|deathly|highly|badly|seriously|quite|mildly|really|super) )?"
_COPULA = r"(?P<copula>be)"
_TIME_OF_DAY = (
    r"(?P<value>(?:at|around|about|before|by) (?:\d{1,2}(?:[:.]\d\d)?(?: ?[ap]\.?m)?|noon|midnight|"
    r"six|seven|eight|nine|ten|eleven|five|four)(?!\w)(?: (?:every (?:day|morning|night)|daily|"
    r"on weekdays))?)"
)
_LENGTH = (
    r"(?P<value>\d(?:[.,]\d{1,2})? ?m(?:et(?:er|re)s?)?(?: \d{1,2})?|\d{2,3} ?cm|\d ?(?:ft|foot|"
    r"feet|')"
    r"(?: ?\d{1,2}(?: ?(?:in|inches|\"))?)?)(?: tall)"
)
_KILOS = r"(?P<value>\d{2,3}(?:[.,]\d)? ?(?:kg|kgs|kilos?|kilograms?|lbs?|pounds|stone))"
_BELONGING = rf"(?P<kind>{'|'.join(sorted(lexicon.BELONGINGS, key=len, reverse=True))})"
_EVENT_WORD = "|".join(sorted(lexicon.EVENTS | lexicon.LIMITED))
_EVENT_NOUN = rf"(?P<kind>(?:[\w'-]{{1,20}} ){{0,2}}?(?:{_EVENT_WORD}))"
_OWN_BUSINESS = (
    rf"(?P<value>(?:an?|my own|our own|the) (?:[\w'-]{{1,20}} ){{0,2}}?"
    rf"(?:{'|'.join(sorted(lexicon.BUSINESSES)).replace('-', '[ -]')})"
    r"(?: in (?-i:[A-Z])[\w'-]{1,30})?)"
)
_HOME_KIND = (
    r"(?:houseboat|boat|farm|island|ranch|flat|apartment|house|village|studio|cabin|cottage|"
    r"bungalow|"
    r"suburb|town|dorm|condo|basement|shared flat|countryside|city cent(?:er|re)|suburbs|mountains|"
    r"\w{4,7} floor|penthouse|caravan|van|townhouse|mobile home|retirement home|nursing home|"
    r"duplex|loft|commune)"
)
_DWELLING_PHRASE = (
    rf"(?P<value>(?:in|on|at) (?:an?|the) (?:[\w'-]{{1,20}} ){{0,2}}?{_HOME_KIND}"
    rf"(?! (?:flat|apartment|house|home)\b)(?:"
    r" (?:near|outside|in|outside of|on|by|close to) (?:the )?(?:[A-Z][\w'-]{1,30}|\w{1,20} floor|"
    r"coast|"
    r"sea|forest|lake)(?: [A-Z][\w'-]{1,30})?)?)"
)
_FEARED = (
    r"(?P<value>flying|heights|spiders|snakes|dogs|needles|the dark|clowns|water|deep water|mice|"
    r"rats|bees|wasps|thunder|thunderstorms|crowds|enclosed spaces|small spaces|lifts|elevators|"
    r"public speaking|driving|the dentist|dentists)"
)
_BABY = (
    r"(?P<value>twins|triplets|an? (?:baby|child|boy|girl)(?: boy| girl)?|"
    r"(?:my|our) (?:first|second|third) (?:baby|child|kid))"
)
_SCHOOL_YEAR = (
    r"(?P<value>(?:the )?\d{1,2}(?:st|nd|rd|th) grade|year \d{1,2}|high school|middle school|"
    r"primary school|secondary school|kindergarten|medical school|law school|grad school)"
)
_NEAR = r"(?P<near>(?:just |right )?(?:outside|near|close to)(?: of)?)"
_GRADUATE = (
    r"(?P<value>an? (?:phd|ph\.d\.|doctorate|master's(?: degree)?|bachelor's(?: degree)?|degree) "
    r"in "
    r"(?:[\w'-]{1,30} ){0,2}?[\w'-]{2,30}(?=$|[,.!;]| (?:and|but|so|from)\b))"
)
_BOUGHT_THING = (
    r"(?P<value>(?:an?|our|our first|my first) (?:[\w'-]{1,20} ){0,2}?(?:house|flat|apartment|"
    r"cottage|"
    r"cabin|boat|car|farm|van|campervan|motorbike|bike|piano)(?: in [A-Z][\w'-]{1,30})?)"
)
_STUDY_WORK = (
    r"(?P<value>(?:an?|my) (?:[\w'-]{1,20} )?(?:phd|ph\.d\.|doctorate|master's|masters|master|mba|"
    r"msc|bsc|"
    r"bachelor's|bachelors|degree|apprenticeship|traineeship|internship|a-levels|abitur|gcses|"
    r"bootcamp)(?: (?:degree )?in (?:[\w'-]{1,30} ){0,2}?[\w'-]{2,30}(?=$|[,.!;]| (?:at|and|but|"
    r"so|in|with)\b))?)"
)
_WORK_OF_ART = (
    r"(?P<value>(?:an?|my) (?:[\w'-]{1,20} )?(?:novel|book|thesis|memoir|dissertation|screenplay|"
    r"phd thesis|master's thesis|cookbook|biography|musical|podcast|documentary)"
    r"(?: (?:about|on) (?:[\w'-]{1,30} ){0,3}?[\w'-]{2,30}(?=$|[,.!;]| (?:and|but|so|set|"
    r"with)\b))?)"
)
_GOAL = (
    r"(?P<value>(?:lose|gain) (?:some |more )?(?:weight|\w{1,3} ?(?:kg|kilos|pounds)|muscle)|"
    r"(?:eat|drink|spend|sleep|exercise|read|walk) (?:less|more|better|healthier|healthily)(?: "
    r"[a-z]{3,15})?|"
    r"(?:quit|stop) (?:smoking|drinking|vaping)|get (?:pregnant|fit|fitter|in shape|healthier)|"
    r"conceive|"
    r"save (?:money|up)|cut (?:down|back) on [a-z]{3,15})"
)
_NOT_CONSUMED = (
    r"(?!(?:it|them|this|that|these|those|any|anything|so|too|the|an?|my|part|care|notes|place|"
    r"time|turns|risks|photos|pictures|calls|on|off|up|out|over|in|from|for)\b)"
)
_UNTIL_NOW = r"(?= .{2,60} (?:since|for|all (?:my|his|her) life)\b)"
_ROLES = "|".join(sorted(lexicon.FAMILY_ROLES))
_COUNT = r"one|two|three|four|five|six|\d{1,2}"
_STARTED = r"(?:(?:working|a (?:new )?(?:job|position)) )?at"
_GOING = (
    r"(?P<kind>(?:moving|relocating|flying|travell?ing|going|heading|off|driving|emigrating|going "
    r"back|"
    r"moving back) to)"
)
_DOING = (
    r"(?P<kind>(?:having|getting|attending|hosting|going to|doing|running|training for|taking|"
    r"sitting|"
    r"preparing for|studying for|organi[sz]ing|giving)(?: an?| the| my| our)?)"
)

# Of the wordings of a verb the first one whose value can be read is used.
WORDINGS = (
    Wording(
        _NAME,
        "'s",
        r"(?:full |real |first )?name be(?: now| spelled| spelt)?",
        "own name",
        about="user",
    ),
    Wording(_NAME, "be", "called", "person", about="user"),
    Wording(_NAME, "go", "by(?: the name(?: of)?)?", "person", about="user"),
    Wording(_NAME, "prefer", "(?:to be called|being called)", "person", about="user"),
    Wording(_NAME, "changed", "(?:my|our) name to", "person", "event", "user"),
    Wording(KIN, "'s", "name be", "person", about="others"),
    Wording(KIN, "be", "(?:called|named)", "person", about="others"),
    Wording(KIN, "be", "no longer", "person", about="others", retracts=True),
    Wording(_BIRTHDAY, "'s", "birthday(?: be|'s)", "birthday", "settled"),
    Wording(_BIRTHDAY, "was", "born", "birthday", "settled"),
    Wording(_AGE, "be", "", "age"),
    Wording(
        _AGE, "be", rf"an? (?P<value>\d{{1,2}}|{'|'.join(sorted(lexicon.NUMBERS))})[ -]year[ -]old"
    ),
    Wording(_AGE, "turned", "", "age", "settled"),
    Wording(_HOME, "live", "in", "place"),
    Wording(_HOME, "live", "(?:up|down|over|out|back) in", "place"),
    Wording(_NEAR_HOME, "live", _NEAR, "place"),
    Wording(_LIVES_WITH, "live", "(?P<value>with (?:us|me))", about="others"),
    Wording(_HOME, "be", "(?:based|living) in", "place"),
    Wording(_HOME, "have", f"(?:lived|been living) in{_UNTIL_NOW}", "place", "settled"),
    Wording(_HOME, "moved|relocated", "(?:here )?to", "place", "event"),
    Wording(_HOME, "moved", f"(?P<topic>from {_WORDS}) to", "place", "event"),
    Wording(_PAST_HOME, "lived", "in", "place", "past"),
    Wording(_HOME, "no", "longer live in", "place", retracts=True),
    Wording(_HOME, "do", f"not live in (?P<value>{_WORDS}){_ANY_MORE}", "place", retracts=True),
    Wording(_DWELLING, "live", _DWELLING_PHRASE),
    Wording(_ORIGIN, "be|come", "(?:originally )?from", "place"),
    Wording(_RAISED, "grew", "up in", "place", "settled"),
    Wording(_BORN, "was", "born(?: and raised)? in", "place", "settled"),
    Wording(_BIRTH_YEAR, "was", r"born in (?P<value>(?:19|20)\d\d)", aspect="settled"),
    Wording(_TEAM, "be", f"(?:on|in) {_THE_TEAM}", "team"),
    Wording(_TEAM, "moved|joined", f"(?:to )?{_THE_TEAM}", "team", "event"),
    Wording(_TEAM, "moved", rf"to the (?P<value>{_WORDS}) (?P<kind>group)", "team", "event"),
    Wording(_TEAM, "be", f"no longer (?:on|in) {_THE_TEAM}", "team", retracts=True),
    Wording(_WORK, "work", "(?:at|for)", "organisation"),
    Wording(_WORK, "be", "(?:working|employed) (?:at|for|by)", "organisation"),
    Wording(
        _WORK, "have", f"(?:been|been working|worked) at{_UNTIL_NOW}", "organisation", "settled"
    ),
    Wording(_WORK, "started", _STARTED, "organisation", "event"),
    Wording(_WORK, "got|have", "a (?:new )?job (?:at|with)", "organisation", "event"),
    Wording(_WORK, "joined", "(?=.{2,40} (?:as an?|last|this|in) )", "employer", "event"),
    Wording(_PAST_WORK, "worked", "(?:at|for)", "organisation", "past"),
    Wording(_WORK, "no", "longer work (?:at|for)", "organisation", retracts=True),
    Wording(
        _WORK,
        "quit|left|lost",
        "(?:my|the) job (?:at|with)",
        "organisation",
        "settled",
        retracts=True,
    ),
    Wording(
        _WORK,
        "was|got",
        "(?:laid off|fired|let go|made redundant) (?:from|by|at)",
        "organisation",
        "settled",
        retracts=True,
    ),
    Wording(
        _WORK,
        "do",
        f"not work (?:at|for) (?P<value>{_WORDS}){_ANY_MORE}",
        "organisation",
        retracts=True,
    ),
    Wording(_JOB, "work", "as", "occupation"),
    Wording(
        _JOB, "started", "(?:an? |my )?(?:new )?(?:job|work|position) as", "occupation", "event"
    ),
    Wording(_JOB, "'s", "job be(?: being)?", "trade"),
    Wording(_JOB, "be", rf"(?P<value>an? {_WORDS}) by (?:profession|trade)", "occupation"),
    Wording(_PAST_JOB, "worked", "as", "occupation", "past"),
    Wording(_JOB, "no", "longer work as", "occupation", retracts=True),
    Wording(_OCCUPATION, "be", "", "trade"),
    Wording(_OCCUPATION, "have", f"been(?: working as)?{_UNTIL_NOW}", "trade", "settled"),
    Wording(_OCCUPATION, "be", "", "work state"),
    Wording(
        _OCCUPATION._replace(content="{who} {be} retired"), "retired", "(?P<value>)", aspect="event"
    ),
    Wording(_INDUSTRY, "work", "in", "industry"),
    Wording(_WORK_TIME, "work", "", "work time", "habit"),
    Wording(_BUSINESS, "run|own|manage", _OWN_BUSINESS),
    Wording(_STUDIES, "study", "", "field"),
    Wording(_STUDIES, "be", "studying", "field"),
    Wording(_STUDIES_AT, "be", "(?:an? )?(?:[a-z-]{2,15} )?student at", "organisation"),
    Wording(_STUDIES_AT, "study|be", "(?:studying )?at", "university"),
    Wording(_STUDIED_AT, "studied", "at", "university", "past"),
    Wording(_GRADE, "be", f"in {_SCHOOL_YEAR}"),
    Wording(_DEGREE, "be", f"(?:doing|studying for|working on|taking) {_STUDY_WORK}"),
    Wording(_TEACHES, "teach", "", "field"),
    Wording(_MARITAL, "be", "(?!(?:married|engaged) to\\b)", "marital"),
    Wording(_MARITAL, "be", "no longer", "marital", retracts=True),
    Wording(_MARITAL, "be", f"not (?P<value>{_WORDS}){_ANY_MORE}", "marital", retracts=True),
    Wording(_MARITAL, "got", "(?!(?:married|engaged) to\\b)", "marital", "settled"),
    Wording(_MARRIED_TO, "be|got", "(?P<state>married|engaged) to", "person", "settled"),
    Wording(
        _MARRIED_TO._replace(content="{who} {be} married to {value}"),
        "married",
        "",
        "person",
        "settled",
    ),
    Wording(_REPORTS, "report", "to", "person", about="user"),
    Wording(_ROLE, "be", f"(?P<value>an? (?:single |proud )?(?:{_ROLES})(?: of (?:{_COUNT}))?)"),
    Wording(_NATIONALITY, "be", "", "nationality"),
    Wording(_RELIGION, "be", "(?:an? )?(?:practi[sc]ing |devout |observant )?", "religion"),
    Wording(_DIET, "be", "(?:an? )?(?:strict |lifelong )?", "diet"),
    Wording(_DIET, "be", "no longer (?:an? )?", "diet", retracts=True),
    Wording(_DIET, "be", f"not (?:an? )?(?P<value>{_WORDS}){_ANY_MORE}", "diet", retracts=True),
    Wording(_DIET, "have", f"been(?: an?)?{_UNTIL_NOW}", "diet", "settled"),
    Wording(_DIET, "went|became|turned", "(?:an? )?", "diet", "event"),
    Wording(_EATS, "eat|keep", "(?:strictly |only )?", "diet"),
    Wording(_EATS, "follow", r"(?P<value>an? [\w-]{3,20} diet)"),
    Wording(_DIET, "be", r"(?P<value>on (?:an?|the) [\w-]{3,20} diet)"),
    Wording(_AVOIDS, "do", "not (?P<verb>eat|drink|consume)", "food"),
    Wording(_AVOIDS, "never|no", "(?:longer )?(?P<verb>eat|drink|consume)", "food"),
    Wording(_AVOIDS, "eat|drink", "no", "food"),
    Wording(
        _ABSTAINS, "do", "not (?P<value>smoke|drink|drive|vape|cook)(?! and (?:drive|text)\\b)"
    ),
    Wording(_CANNOT_HAVE, "can", "not (?P<verb>eat|drink|tolerate|digest)", "food"),
    Wording(_GAVE_UP, "quit|stopped", "", "consumed", "settled"),
    Wording(
        _GAVE_UP,
        "stopped|quit",
        f"(?P<value>(?:eating|drinking|taking) {_NOT_CONSUMED}[\\w-]{{2,20}})",
        aspect="settled",
    ),
    Wording(
        _GAVE_UP._replace(content="{who} gave up {value}"), "gave", "up", "consumed", "settled"
    ),
    Wording(_AVOIDS._replace(content="{who} {avoid} {value}"), "avoid", "", "consumed"),
    Wording(_ALLERGY, "be", rf"{_VERY}allergic to", "allergen"),
    Wording(_ALLERGY, "be", "no longer allergic to", "allergen", retracts=True),
    Wording(_HEALTH, "be", "", "health"),
    Wording(_HEALTH, "be", r"(?P<value>(?:[\w-]{3,6} )(?:weeks|months) pregnant)"),
    Wording(_CONDITION, "have|suffer|live", "(?:(?:from|with) )?", "condition"),
    Wording(_CONDITION, "had", _UNTIL_NOW, "condition", "settled"),
    Wording(_FEAR, "be", rf"(?P<kind>(?:really |very )?(?:scared|afraid|terrified)) of {_FEARED}"),
    Wording(_CONDITION, "was", "(?:recently )?diagnosed with", "condition", "settled"),
    Wording(_CONDITION, "have", "been diagnosed with", "condition", "settled"),
    Wording(_CONDITION, "be", "recovering from", "condition"),
    Wording(_CONDITION, "have", "(?:been )?diagnosed with", "condition", "settled"),
    Wording(_MEDICINE, "take", "", "medicine"),
    Wording(_MEDICINE, "be", "on", "medicine"),
    Wording(_AID, "use", "", "aid"),
    Wording(_AID, "wear", "", "worn"),
    Wording(_AID, "wear", r"(?P<value>(?:a )?size \w{1,4}(?: shoes?)?)"),
    Wording(_SPEAKS, "speak", "", "languages"),
    Wording(
        _SPEAKS._replace(content="{who} {be} fluent in {value}"), "be", "fluent in", "languages"
    ),
    Wording(_SPEAKS_NOT, "do", "not speak", "languages"),
    Wording(_LEARNS, "be", "learning", "languages"),
    Wording(_LEARNS, "be", "learning (?:to play )?(?:the )?", "game"),
    Wording(_LEARNS, "started|began", "(?:learning|to learn)", "languages", "event"),
    Wording(
        _PURSUIT._replace(content="{who} {want} to learn {value}"),
        "want",
        "to learn(?: to play)?",
        "game",
        "settled",
    ),
    Wording(
        _PURSUIT._replace(content="{who} {want} to learn {value}"),
        "want",
        "to learn",
        "languages",
        "settled",
    ),
    Wording(_ACTIVITY, "play", "", "game", "habit"),
    Wording(
        _ACTIVITY._replace(content="{who} {play} {value}"),
        "have",
        f"(?:been playing|played){_UNTIL_NOW}",
        "game",
        "settled",
    ),
    Wording(
        _ACTIVITY._replace(content="{who} {do} {value}"),
        "have",
        f"been(?: doing)?{_UNTIL_NOW}",
        "practice",
        "settled",
    ),
    Wording(
        _ACTIVITY,
        "go",
        "(?P<value>to (?:church|mass|the gym|the mosque|mosque|synagogue|temple|therapy))",
        aspect="habit",
    ),
    Wording(
        _ACTIVITY,
        "coach|train",
        "(?P<value>(?:an?|the|my son's|my daughter's) (?:[\\w'-]{1,20} ){0,4}?team)",
        aspect="habit",
    ),
    Wording(_ACTIVITY, "do", "(?:a lot of |a bit of )?", "practice", "habit"),
    Wording(_ACTIVITY, "go", "", "outing", "habit"),
    Wording(_ACTIVITY, "run", "(?P<value>(?:half |ultra)?marathons|10ks|ultras)"),
    Wording(_ACTIVITY, "collect|restore", "", "collection"),
    Wording(
        _ACTIVITY, "gave|quit|stopped", "(?:up )?(?:playing )?", "game", "settled", retracts=True
    ),
    Wording(_ACTIVITY, "no", "longer play", "game", retracts=True),
    Wording(_ACTIVITY, "keep", "", "herd"),
    Wording(
        _ACTIVITY,
        "sing|dance|act",
        "(?P<value>in an? (?:[\\w'-]{1,20} ){0,2}?(?:choir|band|group|company|troupe))",
    ),
    Wording(
        _ACTIVITY,
        "volunteer",
        "(?P<value>at (?:the |an? )?(?:[\\w'-]{1,20} ){0,3}?[\\w'-]{2,20})(?=$|[,.!]| (?:on|every|"
        "in|and)\\b)",
    ),
    Wording(_ACTIVITY._replace(content="{who} took up {value}"), "took", "up", "practice", "event"),
    Wording(_ACTIVITY._replace(content="{who} took up {value}"), "took", "up", "game", "event"),
    Wording(_PREFERS, "prefer", "", "preference"),
    Wording(_PREFERS, "'d", "rather have", "preference"),
    Wording(_LIKES, "love|like|enjoy|hate|dislike|adore|loathe|detest|despise", "", "thing"),
    Wording(_CANNOT_STAND, "can", "not (?:stand|bear)", "thing"),
    Wording(_DISLIKES, "do|no", "(?:not(?: really)?|longer) (?P<verb>like|enjoy)", "thing"),
    Wording(
        _FAN,
        "be",
        "(?P<kind>(?:an? (?:(?:huge|big|massive|lifelong) )?fan of|into|fond of|keen on|"
        "obsessed with|crazy about|passionate about))",
        "thing",
    ),
    Wording(_NO_FAN, "be", "not an? (?:(?:huge|big) )?fan of", "thing"),
    Wording(_LIKES, "support", "", "organisation"),
    Wording(_FAVOURITE, "'s", rf"fav(?:ou?rite)? {_SOMETHING} be", "favourite"),
    Wording(_HOBBY, "'s", rf"(?P<kind>(?:main |favou?rite )?hobb(?:y|ies)) {_COPULA}", "thing"),
    Wording(_TEMPERAMENT, "be", "(?:(?:more of|very much|definitely) )?(?=an? )", "temperament"),
    Wording(
        _ATTRIBUTE,
        "'s",
        rf"(?P<kind>(?:native|first|second) (?:language|tongue)|mother tongue) {_COPULA}",
        "languages",
    ),
    Wording(_ATTRIBUTE, "'s", rf"{_BELONGING} {_COPULA}", "attribute"),
    Wording(_MEASURE, "be", _LENGTH),
    Wording(_WEIGHT, "weigh", _KILOS),
    Wording(_HABIT, "get|wake|go", f"(?P<phrase>up|to bed|to sleep) {_TIME_OF_DAY}"),
    Wording(_PURSUIT, "be", rf"(?P<kind>trying to) {_GOAL}(?=$|[.,!]| (?:and|but|so|this year)\b)"),
    Wording(_PURSUIT, "be", rf"(?P<kind>(?:currently )?(?:writing|working on)) {_WORK_OF_ART}"),
    Wording(
        _PURSUIT,
        "be",
        r"(?P<kind>saving(?: up)? for) (?P<value>an? (?:[\w'-]{1,20} )?[\w'-]{3,20})",
    ),
    Wording(_USES, "drive|ride", "", "make"),
    Wording(_USES, "use", "", "product"),
    Wording(
        _USES._replace(content="{who} {does} in {value}"),
        "code|program",
        "(?:mostly |mainly |only )?in",
        "product",
    ),
    Wording(_HAS, "have", _GRADUATE),
    Wording(_HAS, "have", "", "make"),
    Wording(_HAS, "have", "(?=an? )", "belonging", "habit"),
    Wording(_BOUGHT, "bought|sold", _BOUGHT_THING, aspect="event"),
    Wording(_WEDDING, "be", "getting married", "dated", "plan"),
    Wording(_PLAN, "be", _GOING, "dated place", "plan"),
    Wording(
        _PLAN,
        "be",
        "(?P<kind>starting (?:(?:work|a new job|my new job) )?at) (?=(?-i:[A-Z]))",
        "dated",
        "plan",
    ),
    Wording(
        _PLAN,
        "be",
        "(?P<kind>expecting) (?=(?:a |our )(?:\\w{1,10} )?(?:baby|child|twins))",
        "dated",
        "plan",
    ),
    Wording(_EXPECTING, "be", f"expecting {_BABY}"),
    Wording(_PLAN, "be", _DOING, "dated event", "plan"),
    Wording(_PLAN, "be", "(?P<kind>visiting|seeing|meeting) (?=\\S)", "dated visit", "plan"),
    Wording(
        _PLAN,
        "be",
        "(?P<kind>visiting|coming|arriving|leaving|staying)",
        "dated visit",
        "plan",
        "others",
    ),
    Wording(_DUE_DATE, "be", "due", "dated", "plan", "others"),
    Wording(_DUE, "visit|arrive|come|leave|start", "", "dated visit", "plan", "others"),
    Wording(_APPOINTMENT, "have", "(?=an?\\b|my\\b)", "dated event", "plan"),
    Wording(
        EVENT,
        "'s",
        rf"{_EVENT_NOUN} (?P<verb>be|expires?|ends?|runs? out|starts?|begins?)(?: due)?",
        "dated",
        "plan",
    ),
    Wording(
        _DIED,
        "died|passed",
        r"(?:away ?+)?(?P<value>)(?P<when>(?:(?:last|this|on|in|yesterday)"
        r"(?: \w{2,12}){0,2}|(?:\w{1,7} ){1,2}(?:days?|weeks?|months?|years?) ago)?)"
        r"(?=$|[.,!]| and\b)",
        aspect="settled",
        about="others",
    ),
    Wording(KIN, "be", "", "person", about="others"),
    Wording(_NAME, "be", "", "introduction", about="user"),
)


_ARTICLE = ignoring_case(r"^(?:an?|the|their) ")
_MINE = ignoring_case(r"\b(?:my|our)\b")
_OFTEN = ignoring_case(
    r" (?:every (?:\w{1,10} )?\w{3,12}|(?:once|twice|(?:two|three|four) times) (?:a|every) "
    r"\w{3,10}|daily|"
    r"on (?:mon|tues|wednes|thurs|fri|satur|sun)days|on weekends|on weekdays|at weekends|at the "
    r"weekend)\b"
)


class FilledFrame(NamedTuple):
    """A relation that a predicate states of somebody, with its value and the text after that."""

    wording: Wording
    value: str
    groups: dict[str, str]
    rest: str


_NOT_OF_ANIMALS = frozenset(
    (
        "diet",
        "industry",
        "job",
        "marital",
        "past job",
        "past studies",
        "past work",
        "religion",
        "speaks",
        "studies",
        "teaches",
        "uses",
        "work",
    )
)


class _Verbs(dict[str, str]):
    """The parts of a content; a name that is no part is a verb, and is inflected."""

    def __init__(self, parts: dict[str, str], plural: bool) -> None:
        super().__init__(parts)
        self.plural = plural

    def __missing__(self, verb: str) -> str:
        return inflect(verb, self.plural)


@cache
def _patterns() -> dict[str, list[tuple[Wording, re.Pattern[str]]]]:
    """Compile the wordings on first use, by verb: it takes longer than importing the rest."""
    by_verb: dict[str, list[tuple[Wording, re.Pattern[str]]]] = {}
    for wording in WORDINGS:
        gap = "" if wording.after.startswith("(?P<value>)") else " ?+"
        pattern = ignoring_case(rf"(?:{wording.verbs})(?!\w){gap}(?:{wording.after})(?!(?<=\w)\w)")
        for verb in wording.verbs.split("|"):
            by_verb.setdefault(verb, []).append((wording, pattern))
    return by_verb


def find_frames(who: Person, predicate: str, written: str) -> list[FilledFrame]:
    """Return the relations that a predicate may state, the likeliest first."""
    verb = re.match(r"[\w']+", predicate)
    found = []
    for wording, pattern in _patterns().get(verb[0].lower() if verb else "", ()):
        if not _concerns(wording, who) or not (start := pattern.match(predicate)):
            continue
        parsed = _read_value(wording, start, written)
        if parsed is not None:
            groups = {name: text or "" for name, text in start.groupdict().items()}
            groups.setdefault("verb", verb[0].lower() if verb else "")
            if wording.aspect == "habit" and (often := _OFTEN.match(parsed.rest)):
                groups["often"] = often[0]
                parsed = ParsedValue(parsed.value, parsed.rest[often.end() :])
            found.append(FilledFrame(wording, parsed.value, groups, parsed.rest))
    return found


def _concerns(wording: Wording, who: Person) -> bool:
    if wording.relation.name == "kin":
        return bool(who.kind) and not who.name and not who.plural
    if who.kind in lexicon.ANIMALS and wording.relation.name in _NOT_OF_ANIMALS:
        return False
    return wording.about == "anybody" or (wording.about == "user") is who.is_user


def _read_value(wording: Wording, start: re.Match[str], written: str) -> ParsedValue | None:
    rest = start.string[start.end() :]
    if not wording.reader:
        return ParsedValue(start["value"].strip(), rest)
    opening = start[0]
    for part in filter(None, start.groupdict().values()):
        # Its capital letters are those of a name.
        opening = opening if part.islower() else opening.replace(part, "")
    reader, opening = _READERS[wording.reader], f"{written} {opening}"
    if "value" not in start.re.groupindex:
        return reader(rest.strip(), opening)
    parsed = reader(start["value"], opening)
    return None if parsed is None or parsed.rest else ParsedValue(parsed.value, rest)


def render(template: str, who: Person, frame: FilledFrame) -> str:
    """Fill the template of a content or subject."""
    value = _MINE.sub("their", frame.value)
    what = without_date(value) if frame.wording.aspect == "plan" else value
    parts = {
        **frame.groups,
        "who": who.label,
        "kin": who.kin,
        "value": value + frame.groups.get("often", ""),
        "small": _ARTICLE.sub("", what.lower()),
        "kind": _MINE.sub("their", frame.groups.get("kind", "")),
        "whose": f"{who.subject}'s " if who.subject else "",
        "does": inflect(frame.groups.get("verb", ""), who.plural),
    }
    if parts.get("verb") == "be":
        parts["verb"] = inflect("be", who.plural)
    if "copula" in frame.groups:
        parts["copula"] = "are" if frame.groups.get("kind", "").endswith("s") else "is"
    return template.format_map(_Verbs(parts, who.plural)).strip()


def inflect(verb: str, plural: bool) -> str:
    """Return the present tense of a verb: "lives", or "live" of several people."""
    if verb == "be":
        return "are" if plural else "is"
    if plural or not verb:
        return verb
    if verb == "have":
        return "has"
    if verb.endswith("y") and verb[-2:-1] not in "aeou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("ch", "sh", "ss", "x", "z", "o")) else f"{verb}s"
