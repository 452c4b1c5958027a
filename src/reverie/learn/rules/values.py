"""Parse the value of a statement: a name, a place, a job, a thing that somebody likes.

Each function in READERS takes the text after the opening of a clause ("Rome for work") and the
opening itself ("I live in"). It returns the value and the text after it, or None when it would
have to guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from reverie.learn.rules import lexicon
from reverie.learn.rules.lexicon import words as _words
from reverie.learn.rules.sentences import ends_with_abbreviation, ignoring_case

MAX_VALUE_CHARS = 80


_DAYS_AND_MONTHS = _words("""
    monday tuesday wednesday thursday friday saturday sunday january february march april may june
    july august september october november december today tomorrow yesterday
""")
# "I moved to Linux", "I live in Vim": not every word with a capital letter is a place.
_NOT_PLACES = _DAYS_AND_MONTHS | _words("""
    android angular ansible apple arch azure bash bitbucket brave chrome clojure cloud cloudflare
    colemak confluence cursor dart debian design development discord django docker dvorak edge
    elixir emacs engineering enterprise erlang evernote excel facebook fedora figma finance
    firefox flask flutter gentoo git gitlab gmail gnome go grafana haskell heroku homebrew
    instagram java jenkins jira julia kafka kotlin kubernetes laravel legal linear linux lisp
    logistics lua mac management marketing mastodon maven messenger mint miro mongo neovim netlify
    nginx nix node notion obsidian ocaml office operations oracle outlook pandas perl plan plus
    podman poetry postgres premium pro product production proton python pytorch rails react redis
    research ruby rust safari sales scala scheme sheets signal skype slack snowflake spark spring
    sublime support svelte swift tableau tailwind teams telegram terraform threads trello twitter
    typescript ubuntu unity unix unreal vercel vim vivaldi vue wayland webpack whatsapp windows
    wordpress word xcode zed zig zoom zsh airtable anki asana astro basecamp bazel bluesky bun
    claude conda copilot deno dropbox fastmail ghost helix hetzner hugo hyprland jekyll kde kitty
    llama logseq manjaro mistral mullvad mypy mysql netflix nuxt ollama opus pnpm protonmail
    proxmox qwen remix ruff shopify sonnet spotify sqlite stripe substack supabase sway synology
    tailscale tidal tmux todoist vite chapter junior level middle nowhere page part phase round
    section senior stage step time version accounting accounts google jupiter team venus mars
    payroll procurement security anger darkness denial exile fear freedom heaven hell hope misery
    pain paradise peace poverty
    bitwarden keepass keepassxc lastpass dashlane nordpass enpass authy nextcloud owncloud icloud
    backblaze onedrive pocketbase firebase planetscale neon render fly linode vultr digitalocean
    openshift nomad argo pulumi bruno insomnia postman figjam framer webflow wix squarespace
    wordpress medium beehiiv mailchimp sendgrid resend zulip mattermost matrix element threema
    viber wechat reddit lemmy tiktok snapchat pinterest youtube twitch kagi duckduckgo bing
    perplexity gemini chatgpt grok deepseek warp ghostty alacritty wezterm iterm fish nushell
    joplin bear craft roam standardnotes clickup wrike monday height shortcut youtrack phabricator
    gerrit gitea forgejo codeberg sourcehut mercurial bazaar subversion cmake meson gradle ninja
    yarn npm rollup parcel esbuild turbopack prisma drizzle fastapi starlette pyramid tornado
    phoenix-framework solidjs qwik preact ember backbone htmx alpine-js bootstrap bulma
""")
_NOT_ORGANISATIONS = _DAYS_AND_MONTHS | _words("free god home night noon you")
_PLACE_PREFIXES = _words(
    "cape east fort lake las los lower mount new north port saint san south upper west"
)
_ACRONYM_PLACES = frozenset(("DC", "EU", "LA", "NYC", "NZ", "SF", "UAE", "UK", "US", "USA"))
# "My wife is French", "Coffee is my friend": words with a capital letter that are no names.
_NOT_NAMES = (
    lexicon.NATIONALITIES
    | lexicon.RELIGIONS
    | _words("""
    rican lankan verdean zealander aquarius capricorn gemini libra pisces sagittarius scorpio
    taurus virgo gen ok okay white
    monday tuesday wednesday thursday friday saturday sunday january february march july august
    september october november december today tomorrow yesterday black hispanic democrat
    republican a an the he she it they we you i me him her them us this that these those who what
    which where when why how whose here there one none nobody noone everyone everybody someone
    somebody anyone anybody nothing something everything not no now never also still so too very
    just only neither both either all any some such another other mine yours hers his theirs ours
    my your their our in on at of for from with by as if or and but maybe perhaps unfortunately
    sadly aries taurus gemini virgo libra scorpio alcohol alexa anger anxiety art beer boredom
    caffeine chatgpt chocolate claude coffee curiosity darkness death discipline experience
    failure faith fate fear food god google history hope humor humour jesus karma life linux logic
    loneliness love luck math money music nature necessity pain patience pizza practice
    procrastination python reality sarcasm silence siri sleep stress tea time truth vodka whiskey
    wine work back being called common confidential crazy hard hidden incorrect irrelevant known
    later legion long misspelled missing mud pronounced private rare secret short spelled spelt
    unimportant unique unknown unusual visible weird wrong
""")
)
_FIRST_PERSON = frozenset(("i", "i'm", "i've", "i'd", "i'll", "my"))
# Small words inside a name: "Bank of America", "Frankfurt am Main".
_NAME_PARTICLES = _words("""
    al am an auf ben bin da de del den der di do dos du e el en la las le les los of sur the upon
    van von y zu & +
""")
_NOT_JOBS = _words("""
    battle bit bore breeze bummer child couple disaster downer favor favour habit hobby job joke
    kid killer lot matter mess monster nightmare one pair position result role rule team treat way
    whole
""")
_NOT_TEAMS = _words("""
    a-team away best dream entire first home last losing new next old other right same second
    whole winning wrong
""")
_NOT_ALLERGENS = _words("""
    bad bugs bullshit code commitment drama exercise idiots meetings mondays mornings nonsense
    people something stupidity work
""")


_AFTER_JOB = ignoring_case(
    r"[,.!…(;]|(?<!\s)\s+[–—-]+\s|(?<!\s)\s+(?:and|because|since|so|with|in|at|for|from|who|which|"
    r"on|now)\b"
)
_LEADS = ignoring_case(r"(?:the )?(?:head|director|vice president|vp|chief|dean) of (?=\w)")
_NO_TRADE = ignoring_case(
    r"\s(?:at heart|in disguise|in training|for (?:halloween|a day|the day)|in (?:this|that|the|my|"
    r"our|a|another)\b|on (?:tv|paper)|at (?!(?-i:[A-Z])|(?:the|an?|my|our)\b))"
)
_KIND_OF_PLACE = re.compile(
    r" (?:university )?(?:hospital|university|clinic|college|school|high school|airport|bank|"
    r"library)\b"
)
_AFTER_INTRODUCTION = ignoring_case(
    r"\W{0,20}$|\s{0,4}[,.!…(]|\s[–—-]|\s(?:and (?:i|i'm|my)|from|by the way|btw|here)\b"
)
_AFTER_THING = ignoring_case(
    r"[,.!…(;]|(?<!\s)\s+[–—-]+\s|(?<!\s)\s+(?:because|since|so|though|although)\b|"
    r"(?<!\s)\s+and (?=(?:also |really )?(?:am|can|do|don't|enjoy|hate|have|like|live|love|need|"
    r"prefer|think|use|want|will|work|would)\b)"
)
_AFTER_COMMA = ignoring_case(
    r",\s{0,4}(?:and|but|so|because|which|who|especially|particularly|though|thanks|thank|please|"
    r"too|he|he's|she|she's|it|it's|they|they're|what|what's|how|how's|can|could|do|does|is|are|we|"
    r"you|not|since|as)\b"
)
_SERIES = re.compile(r"[\w' -]+(?:, [\w' -]+)+,? and [\w' -]+")
_FILLER = ignoring_case(
    r"(?<!\s)\s+(?:too|lately|as well|a lot|very much|so much|(?:the )?most|any ?more)$"
)
# Trailing punctuation, matched on the reversed text so that the search is linear.
_FILLER_SIGNS = re.compile(r"\W+\s")
# Words that cannot be understood without the conversation, or that refer to somebody else.
_CONTEXT_DEPENDENT = ignoring_case(
    r"\b(?:it|its|this|that|these|those|them|they|their|him|his|he|her|she|you|your|yours|me|my|"
    r"mine|i|we|us|our|ours|one|ones|both|not|no|nothing|none|nobody|neither|never|option|version|"
    r"answer|suggestion|idea|approach|choice|solution|way|first|second|former|latter|here|there|"
    r"yes|myself|himself|herself|itself|yourself|ourselves|themselves)\b|^(?:the|an?)$|^\W|^\w$|\d$"
)
_UNCLEAR = ignoring_case(
    r"\b(?:to|how|what|when|where|why|who|whom|which|more|less|better|best|than|like|if|or)\b|"
    r"^(?:all the|anything|asking|bothering|complaining|everything|something|stuff|interrupting|"
    r"seeing|hearing|having|"
    r"working)\b"
)
_THE_THING = re.compile(r"(?i:the) [^A-Z]")
# "Tea to coffee" is a choice; "flights to Spain" and "the bus to work" are not.
_ONE_TO_OTHER = re.compile(r"([a-z]{1,40}) to (?!bed|church|school|town|work)([a-z]{1,40})")


class ParsedValue(NamedTuple):
    """A value, and the rest of the clause after it."""

    value: str
    rest: str = ""


def _name(text: str) -> ParsedValue | None:
    """Parse the leading words that are written like a name."""
    end = 0
    for token in re.finditer(r"\S+", text):
        word = token[0].rstrip(",.!…();")
        # The last full stop of "D.C." belongs to it.
        word += "." if "." in word and token[0].startswith(".", len(word)) else ""
        punctuation = token[0][len(word) :]
        if word.lower() in _FIRST_PERSON:
            break
        capital = any(letter.isalpha() and not letter.islower() for letter in word)
        if capital and word[0].isalnum():
            end = token.start() + len(word)
        elif not end or word not in _NAME_PARTICLES:
            break
        if punctuation and not (punctuation == "." and ends_with_abbreviation(word)):
            break
    return ParsedValue(text[:end], text[end:]) if 0 < end <= MAX_VALUE_CHARS else None


def _name_with_article(text: str) -> ParsedValue | None:
    if text[:4].lower() != "the ":
        return _name(text)
    parsed = _name(text[4:])
    return parsed and ParsedValue(f"the {parsed.value}", parsed.rest)


def _place(text: str, opening: str) -> ParsedValue | None:
    parsed = _name_with_article(text)
    if parsed is None or _is_upper_case(opening):
        return None
    if not all(map(_is_place_word, words := parsed.value.split())):
        return None
    return None if words[-1].lower() in _PLACE_PREFIXES else parsed


def _is_place_word(word: str) -> bool:
    if word in _ACRONYM_PLACES or word in _NAME_PARTICLES or "." in word:
        return True
    pieces = [piece.removeprefix("Mc") for piece in re.split(r"[-']", word)]
    # "GitHub", "AWS" and "Python3" are no places.
    plain = all(piece.isalpha() and not re.search("[A-Z]", piece[1:]) for piece in pieces if piece)
    return plain and len(word) > 1 and word.lower() not in _NOT_PLACES


def _organisation(text: str, opening: str) -> ParsedValue | None:
    parsed = _name_with_article(text)
    if parsed is None or _is_upper_case(opening):
        return None
    first = parsed.value.removeprefix("the ").split()[0].lower()
    if first.rstrip("s") in _NOT_ORGANISATIONS:
        return None
    # "Haukeland hospital": the kind of place belongs to its name.
    kind = _KIND_OF_PLACE.match(parsed.rest)
    if kind is None:
        return parsed
    return ParsedValue(parsed.value + kind[0], parsed.rest[kind.end() :])


_UNIVERSITY = ignoring_case(
    r"\b(?:university|uni|college|school|academy|institute|polytechnic|universit\w{1,3}|"
    r"hochschule)\b|^(?-i:[A-Z]{2,6}$|Oxford$|Cambridge$|Harvard$|Yale$|Stanford$|Princeton$)"
)


def _university(text: str, opening: str) -> ParsedValue | None:
    """Parse an organisation whose name says that people study there."""
    parsed = _organisation(text, opening)
    return parsed if parsed and _UNIVERSITY.search(parsed.value) else None


def parse_person(text: str, most_words: int = 3) -> ParsedValue | None:
    """Parse the name of a person, and nothing else that is written with a capital letter."""
    parsed = _name(text)
    if parsed is None:
        return None
    words = parsed.value.split()
    named = len(words) <= most_words and len(parsed.value) > 1 and all(map(_is_person_word, words))
    return parsed if named else None


def _person(text: str, opening: str) -> ParsedValue | None:
    return None if _is_upper_case(opening) else parse_person(text)


def _introduction(text: str, opening: str) -> ParsedValue | None:
    """Parse "Lukas, nice to meet you": a name that ends the thought."""
    parsed = None if _is_upper_case(opening) else parse_person(text, most_words=2)
    if parsed is None or re.search("-[a-z]", parsed.value):
        return None
    is_state = parsed.value.split()[0].lower() in _STATES
    return parsed if not is_state and _AFTER_INTRODUCTION.match(parsed.rest) else None


_STATES = _words("""
    done fine tired ready sorry happy sad hungry sick late lost stuck new here back busy free glad
    good great bored broke curious drunk excited home in out sure awake alone team captain
    error god coming doing feeling getting going having heading hoping leaving looking making moving
    planning running starting thinking trying waiting working
    batman dumbledore gandalf godzilla groot gru hodor ironman loki neo spartacus spiderman
    superman thanos thor voldemort yoda
""")


def _is_person_word(word: str) -> bool:
    letters = re.sub(r"[.'-]", "", word)
    if word.lower() in _NOT_NAMES or not letters.isalpha() or word.endswith("'s"):
        return False
    # An acronym is no name: "My boss is CEO".
    return len(letters) == 1 or not re.fullmatch("[A-Z]+", letters)


def _own_name(text: str, opening: str) -> ParsedValue | None:
    bare = text.rstrip(" .!;")
    # From somebody who writes everything in lower or upper case, any single word may be a name.
    if (opening.islower() or _is_upper_case(opening)) and bare.isalpha() and len(bare) > 1:
        is_name = bare.lower() not in _NOT_NAMES and len(bare) <= MAX_VALUE_CHARS
        return ParsedValue(bare) if is_name else None
    return None if _is_upper_case(opening) else parse_person(text, most_words=4)


def _is_upper_case(opening: str) -> bool:
    """Whether somebody writes in capital letters, so that they do not mark a name."""
    return bool(re.search("[A-Z]", opening[1:].replace("I", "")))


def _team(text: str, opening: str) -> ParsedValue | None:
    unclear = _CONTEXT_DEPENDENT.search(text) or not _NOT_TEAMS.isdisjoint(text.lower().split())
    return (
        None
        if unclear or not text[0].isalpha() or len(text) > MAX_VALUE_CHARS
        else ParsedValue(text)
    )


def _occupation(text: str, opening: str) -> ParsedValue | None:
    """Parse whatever somebody works as."""
    end = _AFTER_JOB.search(text)
    value, rest = (text[: end.start()], text[end.start() :]) if end else (text, "")
    words = value.lower().split()
    named = value[:1].isupper() or (len(words) > 1 and words[0] in {"a", "an"})
    if not named or len(words) > 5 or len(value) > MAX_VALUE_CHARS:
        return None
    return (
        None
        if _CONTEXT_DEPENDENT.search(value) or not _NOT_JOBS.isdisjoint(words)
        else ParsedValue(value, rest)
    )


def _trade(text: str, opening: str) -> ParsedValue | None:
    """Parse an occupation that is known to be one: "a nurse", not "a nightmare"."""
    leads = _LEADS.match(text)
    if leads:
        return _leading_role(text, leads)
    parsed = _occupation(text, opening)
    if parsed is None:
        return None
    *qualifiers, head = parsed.value.lower().split()
    known = head in lexicon.OCCUPATIONS or "-".join([*qualifiers[-1:], head]) in lexicon.OCCUPATIONS
    fits = lexicon.NOT_OCCUPATION_QUALIFIERS.isdisjoint(qualifiers)
    return parsed if known and fits and not _NO_TRADE.match(parsed.rest) else None


def _leading_role(text: str, leads: re.Match[str]) -> ParsedValue | None:
    """Parse "head of marketing"."""
    end = _AFTER_JOB.search(text, leads.end())
    value, rest = (text[: end.start()], text[end.start() :]) if end else (text, "")
    unclear = _CONTEXT_DEPENDENT.search(value[leads.end() :]) or len(value.split()) > 6
    return None if unclear or len(value) > MAX_VALUE_CHARS else ParsedValue(value, rest)


def _phrase(text: str) -> ParsedValue | None:
    """Parse the text up to the end of the thought, if it can be understood by itself."""
    end = _AFTER_THING.search(text)
    value, rest = (text[: end.start()], text[end.start() :]) if end else (text, "")
    if rest.startswith(",") and not _AFTER_COMMA.match(rest):
        # "Strong, black coffee" must not become "strong"; a series is kept whole.
        value, rest = text.rstrip(" .!;"), ""
        if len(value) > MAX_VALUE_CHARS or not _SERIES.fullmatch(value):
            return None
    if len(value) > MAX_VALUE_CHARS:
        return None
    signs = _FILLER_SIGNS.match(value[::-1])
    value = value[: -signs.end()] if signs else _FILLER.sub("", value)
    value = value.strip()
    return ParsedValue(value, rest) if value and not _CONTEXT_DEPENDENT.search(value) else None


def _thing(text: str, opening: str, most_words: int = 4) -> ParsedValue | None:
    parsed = _phrase(text)
    if parsed is None or _UNCLEAR.search(parsed.value) or _THE_THING.match(parsed.value):
        return None
    most = 2 * most_words if "," in parsed.value else most_words
    return parsed if len(parsed.value.split()) <= most else None


def _preference(text: str, opening: str) -> ParsedValue | None:
    parsed = _phrase(text)
    if parsed is None or _THE_THING.match(parsed.value) or parsed.value.lower() in _DAYS_AND_MONTHS:
        return None
    two = _ONE_TO_OTHER.fullmatch(parsed.value)
    return ParsedValue(f"{two[1]} over {two[2]}", parsed.rest) if two else parsed


# What a favourite does or is like, not what it is: "closed on Mondays", "playing tonight".
_PREDICATE = ignoring_case(
    r"(?:also|always|already|still|now|never|usually|often|really|very|so|too|pretty|quite|just|"
    r"closed|open|full|empty|gone|back|broken|dead|down|cancell?ed|sold|fully|available|expensive|"
    r"cheap|free|far|near|nearby|close|in|on|at|by|from|for|with|about|over|under|next|right|out|"
    r"called off|great|good|amazing|awesome|nice|bad|terrible|missing|late|ready)\b|"
    r"\w{2,20}(?:ed|ing) (?:in|on|at|by|for|from|with|to|up|down|off|out|again|soon|now|today|"
    r"tonight|tomorrow|this|next|every|until)\b"
)


def _favourite(text: str, opening: str) -> ParsedValue | None:
    if _PREDICATE.match(text):
        return None
    return _phrase(text) if _thing(text.removeprefix("the "), opening, most_words=6) else None


def _allergen(text: str, opening: str) -> ParsedValue | None:
    parsed = _thing(text, opening, most_words=8)
    return parsed if parsed and _NOT_ALLERGENS.isdisjoint(parsed.value.lower().split()) else None


def _employer(text: str, opening: str) -> ParsedValue | None:
    """Parse an organisation that is not the name of a program or a site."""
    parsed = _organisation(text, opening)
    return parsed if parsed and parsed.value.split()[0].lower() not in _NOT_PLACES else None


_FOODS = re.compile(r"[a-z]{2,15}(?: [a-z]{2,15})?(?:, [a-z]{2,15}){0,3},? or [a-z]{2,15}")
_NOT_FOOD = _words("""
    alone another anything enough everything fast humble much nothing often
    out properly quickly regularly slowly something straight today tonight very well
""")


def _food(text: str, opening: str) -> ParsedValue | None:
    """Parse what somebody does not eat: "pork", "meat or fish"."""
    parsed = _thing(text, opening, most_words=4) or (
        ParsedValue(text)
        if _FOODS.fullmatch(text) and not _CONTEXT_DEPENDENT.search(text)
        else None
    )
    return parsed if parsed and _NOT_FOOD.isdisjoint(parsed.value.lower().split()) else None


# -- values of a list -----------------------------------------------------------------------------

_TOKEN = re.compile(r"[^\s,.!?…;:()]+(?:\.\d+)?")
_SEPARATOR = ignoring_case(r",? (?:and|or|&) |, ")
_TOKENS_READ = 12


def _entry(text: str, entries: frozenset[str], most_words: int = 4) -> ParsedValue | None:
    """Parse the longest entry of a list that a text starts with."""
    ends = [0]
    for token in _TOKEN.finditer(text[:MAX_VALUE_CHARS]):
        if len(ends) > most_words or (token.start() - ends[-1]) > 1:
            break
        ends.append(token.end())
    for end in reversed(ends[1:]):
        if text[:end].lower() in entries:
            return ParsedValue(text[:end], text[end:])
    return None


def _entries(text: str, read: Callable[[str], ParsedValue | None]) -> ParsedValue | None:
    """Parse a series of values: "Norwegian, German and a bit of Thai"."""
    found = read(text)
    for _ in range(_TOKENS_READ):
        separator = found and _SEPARATOR.match(found.rest)
        following = read(found.rest[separator.end() :]) if found and separator else None
        if not found or not following:
            break
        found = ParsedValue(text[: len(text) - len(following.rest)], following.rest)
    return found


def listed(entries: frozenset[str]) -> Callable[[str, str], ParsedValue | None]:
    """Return a reader of the entries of a list, after an article or without one."""

    def one(text: str) -> ParsedValue | None:
        article = _ARTICLE.match(text)
        return _entry(text, entries) or (
            _entry(text[article.end() :], entries) if article else None
        )

    def read(text: str, opening: str) -> ParsedValue | None:
        found = _entries(text, one)
        # "I work in it": only the industry has capital letters.
        if found and found.value == "it":
            return None
        return found and ParsedValue(text[: len(text) - len(found.rest)], found.rest)

    return read


_ARTICLE = ignoring_case(r"(?:an?|the|my|some) ")
_LANGUAGE_QUALIFIER = ignoring_case(
    r"(?:(?:fluent|some|a little|a bit of|a little bit of|basic|good|decent|native|conversational|"
    r"both|brazilian|mexican|swiss|canadian) )?"
)


def _languages(text: str, opening: str) -> ParsedValue | None:
    def read(part: str) -> ParsedValue | None:
        start = _LANGUAGE_QUALIFIER.match(part)
        return _entry(part[start.end() if start else 0 :], lexicon.LANGUAGES, 1)

    found = _entries(text, read)
    return found and ParsedValue(text[: len(text) - len(found.rest)], found.rest)


def _condition(text: str, opening: str) -> ParsedValue | None:
    """Parse a disease: "asthma", "type 2 diabetes", "a peanut allergy", "a bad knee"."""
    end = _AFTER_CONDITION.search(text)
    value = text[: end.start()] if end else text
    words = value.lower().split()
    if _DEGREE.match(text):
        return None
    if not words or len(words) > 5 or _CONTEXT_DEPENDENT.search(_DIGIT.sub("", value)):
        return None
    known = (
        value.lower() in lexicon.CONDITIONS
        or " ".join(words[1:]) in lexicon.CONDITIONS
        or (len(words) > (words[0] in _ARTICLES) + 1 and words[-1] in lexicon.CONDITION_HEADS)
        or (len(words) > 2 and words[-1] in lexicon.INJURIES and words[1] in _HURT)
    )
    return ParsedValue(value, text[len(value) :]) if known and words[0] not in _NO_ARTICLE else None


# "An MS in physics" is a degree, and "add" in small letters a verb.
_DEGREE = re.compile(r"(?:an? )?(?:MS|BA|MA)\b(?: degree| in | from )|(?:an? )?(?:ms|add)\b")
_AFTER_CONDITION = ignoring_case(
    r"[,.!…(;]|\s(?:and|but|so|since|because|for|from|in|on|which|that|with|as|now|too|last|this)\b"
)
_DIGIT = re.compile(r"\d")
_HURT = _words("bad broken sprained torn weak fractured sore fused artificial")
_ARTICLES = _words("a an the some")
_NO_ARTICLE = _words("the no any enough your this that")


def _medicine(text: str, opening: str) -> ParsedValue | None:
    def read(part: str) -> ParsedValue | None:
        word = _TOKEN.match(part)
        if word and word[0].lower().endswith(lexicon.MEDICINE_ENDINGS):
            return ParsedValue(word[0], part[word.end() :])
        return _entry(part, lexicon.MEDICINES)

    return _entries(text, read)


def _heritage(text: str, opening: str) -> ParsedValue | None:
    """Parse a nationality: "Norwegian", "half Danish, half Ghanaian"."""

    def read(part: str) -> ParsedValue | None:
        found = _entry(part.removeprefix("half "), lexicon.NATIONALITIES, 1)
        return found if found and found.value[0].isupper() else None

    found = _entries(text, read)
    return found and ParsedValue(text[: len(text) - len(found.rest)], found.rest)


_NUMBER = r"(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|\d{1,2})"
_NAMES_AFTER = ignoring_case(
    r"(?:,| -| –|:| \()? ?(?:(?:who is |who are |whose names are |they're |he's |she's "
    r")?(?:called|named)"
    r" |(?<=[,:(–-] ))"
)
_BEINGS = (
    lexicon.SINGLE_KIN
    | lexicon.MANY_KIN
    | lexicon.ANIMALS
    | lexicon.PLURAL_KIN
    | lexicon.PLURAL_ANIMALS
)


_NOT_BEFORE_KIND = _words("for of with to in on at from and or about called named after like")


class Family(NamedTuple):
    """Kin or animals that somebody has: "two kids", and their names."""

    value: str
    noun: str
    names: tuple[str, ...]
    rest: str


def parse_family(text: str) -> Family | None:
    """Parse "two kids, Jonas and Freya", "a cat named Pus" or "an older sister"."""
    tokens = list(_TOKEN.finditer(text[:60]))[:5]
    if not tokens:
        return None
    counted = re.fullmatch(_NUMBER, tokens[0][0], re.IGNORECASE) is not None
    for place, token in enumerate(tokens):
        noun = token[0].lower()
        if noun in _NOT_BEFORE_KIND or (place and token.start() - tokens[place - 1].end() > 1):
            return None
        if noun not in _BEINGS or (place == 0 and noun != "twins"):
            continue
        if place and not counted:
            return None
        # In "golden retriever puppy" the last word counts.
        if tokens[place + 1 : place + 2] and tokens[place + 1][0].lower() in _BEINGS:
            continue
        value, rest = text[: token.end()], text[token.end() :]
        names, after = _names_after(rest)
        return Family(value, noun, names, after)
    return None


def _names_after(rest: str) -> tuple[tuple[str, ...], str]:
    """Parse the names after "two kids" or "a cat": ", Jonas and Freya", " named Pus"."""
    lead = _NAMES_AFTER.match(rest)
    if lead is None or not lead[0].strip():
        return (), rest
    names, after = parse_names(rest[lead.end() :])
    return (names, after) if names else ((), rest)


def parse_names(text: str) -> tuple[tuple[str, ...], str]:
    """Parse a series of names, and return them with the text after them."""
    names: list[str] = []
    rest = text
    for _ in range(_TOKENS_READ):
        parsed = parse_person(text, most_words=2)
        if parsed is None:
            break
        names.append(parsed.value)
        rest = parsed.rest
        separator = _SEPARATOR.match(rest)
        if separator is None:
            break
        text = rest[separator.end() :]
    return tuple(names), rest


def _product(text: str, opening: str) -> ParsedValue | None:
    """Parse the name of a product, such as "Arch Linux" or "a Volvo V60"."""
    article = _ARTICLE.match(text)
    parsed = _name(text[article.end() if article else 0 :])
    if parsed is None or _is_upper_case(opening) or len(parsed.value) < 2:
        return None
    if parsed.value.lower() in _DAYS_AND_MONTHS | lexicon.PRODUCT_STARTS or (
        parsed.value.endswith("'s")
    ):
        return None
    model = re.match(r" \d{1,4}\w{0,3}\b", parsed.rest)
    end = len(text) - len(parsed.rest) + (model.end() if model else 0)
    return ParsedValue(text[:end], text[end:])


def _make(text: str, opening: str) -> ParsedValue | None:
    """Parse a product of a known make: "a Tesla Model 3"."""
    article = _ARTICLE.match(text)
    if article is None:
        return None
    parsed = _product(text[article.end() :], opening)
    first = parsed.value.split()[0].lower() if parsed else ""
    known = first in lexicon.MAKES
    return (
        ParsedValue(text[: len(text) - len(parsed.rest)], parsed.rest) if parsed and known else None
    )


MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_YEARS = rf"(?:\d{{1,3}}|{'|'.join(sorted(lexicon.NUMBERS))})"
# Of several people there are several ages: "4 and 9", "3, 5 and 9".
_AGE = ignoring_case(
    rf"(?P<value>{_YEARS}(?:(?:, {_YEARS}){{0,8}},? and {_YEARS})?)(?: years? old| yrs? old| years "
    rf"of age| y/?o\b|(?=\s{{0,2}}(?:$|[,.!;]|(?:and|but|so|now|yesterday|today|last|this)\b|"
    rf"in (?:{MONTH}|(?:an?|two|three|\d{{1,2}}) (?:days?|weeks?|months?))\b)))"
)
_MAX_AGE = 115
_MIN_BARE_AGE = 13


def _age(text: str, opening: str) -> ParsedValue | None:
    found = _AGE.match(text)
    if found is None:
        return None
    number = int(found["value"]) if found["value"].isdigit() else 0
    bare = found["value"] == found[0]
    own = opening.lower().startswith(("i ", "we "))
    # "I'm 5" and "she is one" may mean anything; "I'm 52" hardly.
    if number > _MAX_AGE or (
        bare and (found["value"] == "one" or (own and number < _MIN_BARE_AGE))
    ):
        return None
    return ParsedValue(found["value"], text[found.end() :])


# -- dates ----------------------------------------------------------------------------------------

_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_DAY = (
    rf"(?:(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {MONTH}\b(?:,? \d{{4}})?|"
    rf"{MONTH} (?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{4}}-\d{{1,2}}-\d{{1,2}}|"
    r"\d{1,2}[./]\d{1,2}[./]\d{2,4}|the \d{1,2}(?:st|nd|rd|th))"
)
_PERIOD = (
    r"(?:week|weekend|month|year|summer|winter|spring|autumn|fall|semester|term|"
    rf"{_WEEKDAY}|{MONTH})"
)
_DATE = ignoring_case(
    rf"(?<!\S)(?:(?:on|by|from|around) (?:{_DAY}|{_WEEKDAY}(?:,? {_DAY}| (?:morning|afternoon|"
    rf"evening|night))?)|"
    rf"(?:in|by) (?:(?:early|mid|late)[ -])?(?:{MONTH}(?: \d{{4}})?|20\d\d|summer|winter|spring|"
    rf"autumn|"
    r"fall|(?:an?|two|three|four|five|six|\d{1,2}) (?:days?|weeks?|months?|years?))|"
    rf"(?:next|this|this coming) {_PERIOD}|tomorrow(?: (?:morning|afternoon|evening|night))?|"
    rf"(?:at|over|for) (?:christmas|easter|new year)|{_DAY})(?!\w)"
    r"(?: (?:this|next) year)?(?:,? (?:at|around) \d{1,2}(?:[:.]\d\d)?(?: ?[ap]\.?m\b)?)?"
)
_MINE = ignoring_case(r"\b(?:my|our)\b")
_MAX_PLAN_WORDS = 7


def _birthday(text: str, opening: str) -> ParsedValue | None:
    found = _BIRTHDAY.match(text)
    return found and ParsedValue(found["value"], text[found.end() :])


_BIRTHDAY = ignoring_case(
    rf"(?:on )?(?:the )?(?P<value>\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {MONTH}(?:,? \d{{4}})?|"
    rf"{MONTH} (?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|"
    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4})(?!\w)"
)


def without_date(plan: str) -> str:
    """Return what is planned, without its date."""
    date = _DATE.search(plan)
    return plan[: date.start()].strip() if date else plan


def _dated(text: str, opening: str) -> ParsedValue | None:
    """Parse what somebody plans, up to its date: "Berlin in May"."""
    date = _DATE.search(text)
    if date is None:
        return None
    what = _MINE.sub("their", text[: date.start()])
    tidy = what.replace("their", "")
    if len(what.split()) > _MAX_PLAN_WORDS or _CONTEXT_DEPENDENT.search(tidy.strip() or "x y"):
        return None
    return ParsedValue(f"{what}{date[0]}", text[date.end() :])


def _dated_event(text: str, opening: str) -> ParsedValue | None:
    """Parse an event with its date: "a dentist appointment on Thursday at 2pm"."""
    parsed = _dated(text, opening)
    date = _DATE.search(text)
    if parsed is None or date is None:
        return None
    head = re.split(
        r" (?:with|at|for|in|on|of|about|from|to|by) ", f"{text[: date.start()].lower()} "
    )[0]
    words = head.split()
    return parsed if words and words[-1] in lexicon.EVENTS else None


def _dated_visit(text: str, opening: str) -> ParsedValue | None:
    """Parse a visit with its date: "on Friday", "Graz next week", "with us in May"."""
    parsed = _dated(text.removeprefix("with us "), opening)
    date = _DATE.search(text)
    if parsed is None or date is None:
        return None
    before = text[: date.start()].strip()
    return parsed if not before or before == "with us" or _place_or_kin(before) else None


_QUANTITY = ignoring_case(r"\d{1,4}(?:[.,]\d{1,2})?(?: ?[a-z]{1,6})?(?=\W{0,4}$|[,.;] )")
_PRONOUNS = ignoring_case(r"[a-z]{2,5}/[a-z]{2,5}(?:/[a-z]{2,6})?(?=\W|$)")
_BLOOD = ignoring_case(r"(?:a|b|ab|o)[ -]?(?:positive|negative|pos|neg|rh\S{1,3}|\+|-)(?!\w)")
_UNCLEAR_GOAL = ignoring_case(
    r"\b(?:this|that|it|these|those|me|myself|you|your|here|them|him|her)\b"
)
_TO_DO = ignoring_case(r"goal be$")


def _attribute(text: str, opening: str) -> ParsedValue | None:
    """Parse what something of somebody is: "a Pixel 8", "she/her", "O negative", "43"."""
    for pattern in (_QUANTITY, _PRONOUNS, _BLOOD):
        if found := pattern.match(text):
            return ParsedValue(found[0], text[found.end() :])
    if _TO_DO.search(opening):
        goal = _MINE.sub("their", text.rstrip(" .!"))
        clear = goal.startswith("to ") and not _UNCLEAR_GOAL.search(goal)
        return ParsedValue(goal) if clear and len(goal) < MAX_VALUE_CHARS else None
    if product := _product(text, opening):
        tail = re.match(r" [a-z-]{2,15}(?=\W{0,4}$)", product.rest)
        end = len(text) - len(product.rest) + (tail.end() if tail else 0)
        return ParsedValue(text[:end], text[end:])
    named = _thing(text, opening) if re.match(r"an? ", text) else None
    return named if named and re.search(r"[A-Z]", named.value) else None


def _dated_place(text: str, opening: str) -> ParsedValue | None:
    """Parse a destination with a date: "Berlin in May", "see Ana in Rome" is none."""
    return _dated(text, opening) if _place_or_kin(text) else None


def _place_or_kin(text: str) -> bool:
    parsed = _name_with_article(text)
    return parsed is not None and all(map(_is_place_word, parsed.value.split()))


READERS: dict[str, Callable[[str, str], ParsedValue | None]] = {
    "age": _age,
    "attribute": _attribute,
    "allergen": _allergen,
    "birthday": _birthday,
    "condition": _condition,
    "dated": _dated,
    "dated event": _dated_event,
    "dated place": _dated_place,
    "dated visit": _dated_visit,
    "employer": _employer,
    "favourite": _favourite,
    "food": _food,
    "introduction": _introduction,
    "languages": _languages,
    "make": _make,
    "medicine": _medicine,
    "nationality": _heritage,
    "occupation": _occupation,
    "organisation": _organisation,
    "own name": _own_name,
    "person": _person,
    "place": _place,
    "preference": _preference,
    "product": _product,
    "team": _team,
    "thing": _thing,
    "trade": _trade,
    "university": _university,
}
