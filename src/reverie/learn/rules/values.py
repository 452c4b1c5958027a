"""Parse the value of a statement: a name, a place, a job, a thing that somebody likes.

Each function in READERS takes the text after the opening of a clause ("Rome for work") and the
opening itself ("I live in"). It returns the value and the text after it, or None when it would
have to guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from reverie.learn.rules.sentences import ends_with_abbreviation, ignoring_case

MAX_VALUE_CHARS = 80


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DAYS_AND_MONTHS = _words("""
    monday tuesday wednesday thursday friday saturday sunday january february march april may june
    july august september october november december today tomorrow yesterday
""")
# "I moved to Linux", "I live in Vim": not every word with a capital letter is a place.
_NOT_PLACES = _DAYS_AND_MONTHS | _words("""
    android angular ansible apple arch azure bash bitbucket brave chrome clojure cloud cloudflare
    colemak confluence cursor dart debian design development discord django docker dvorak edge
    elixir emacs engineering enterprise erlang evernote excel facebook fedora figma finance firefox
    flask flutter gentoo git gitlab gmail gnome go grafana haskell heroku homebrew instagram java
    jenkins jira julia kafka kotlin kubernetes laravel legal linear linux lisp logistics lua mac
    management marketing mastodon maven messenger mint miro mongo neovim netlify nginx nix node
    notion obsidian ocaml office operations oracle outlook pandas perl plan plus podman poetry
    postgres premium pro product production proton python pytorch rails react redis research ruby
    rust safari sales scala scheme sheets signal skype slack snowflake spark spring sublime support
    svelte swift tableau tailwind teams telegram terraform threads trello twitter typescript ubuntu
    unity unix unreal vercel vim vivaldi vue wayland webpack whatsapp windows wordpress word xcode
    zed zig zoom zsh
    airtable anki asana astro basecamp bazel bluesky bun claude conda copilot deno dropbox fastmail
    ghost helix hetzner hugo hyprland jekyll kde kitty llama logseq manjaro mistral mullvad mypy
    mysql netflix nuxt ollama opus pnpm protonmail proxmox qwen remix ruff shopify sonnet spotify
    sqlite stripe substack supabase sway synology tailscale tidal tmux todoist vite
    chapter junior level middle nowhere page part phase round section senior stage step time version
    anger darkness denial exile fear freedom heaven hell hope misery pain paradise peace poverty
""")
_NOT_ORGANISATIONS = _DAYS_AND_MONTHS | _words("free god home night noon you")
_PLACE_PREFIXES = _words(
    "cape east fort lake las los lower mount new north port saint san south upper west"
)
_ACRONYM_PLACES = frozenset(("DC", "EU", "LA", "NYC", "NZ", "SF", "UAE", "UK", "US", "USA"))
# "My wife is French", "Coffee is my friend": words with a capital letter that are no names.
_NOT_NAMES = (_DAYS_AND_MONTHS - {"april", "may", "june"}) | _words("""
    a an the he she it they we you i me him her them us this that these those who what which where
    when why how whose here there one none nobody noone everyone everybody someone somebody anyone
    anybody nothing something everything not no now never also still so too very just only neither
    both either all any some such another other mine yours hers his theirs ours my your their our in
    on at of for from with by as if or and but maybe perhaps unfortunately sadly
    american arab argentinian asian australian austrian bangladeshi belgian bengal black bosnian
    brazilian british buddhist bulgarian canadian catholic chilean chinese christian colombian
    croatian cuban czech danish democrat dutch egyptian english estonian ethiopian european filipino
    finnish french german greek hindu hispanic hungarian icelandic indian indonesian iranian iraqi
    irish israeli italian jamaican japanese jewish kenyan korean latino latvian lebanese lithuanian
    malaysian mexican mormon moroccan muslim nigerian norwegian pakistani persian peruvian polish
    portuguese protestant republican romanian russian saudi scottish serbian siamese sikh slovak
    slovenian spanish swedish swiss syrian thai tunisian turkish ukrainian vietnamese welsh
    aries taurus gemini virgo libra scorpio
    alcohol alexa anger anxiety art beer boredom caffeine chatgpt chocolate claude coffee curiosity
    darkness death discipline experience failure faith fate fear food god google history hope humor
    humour jesus karma life linux logic loneliness love luck math money music nature necessity pain
    patience pizza practice procrastination python reality sarcasm silence siri sleep stress tea
    time truth vodka whiskey wine work
    back being called common confidential crazy hard hidden incorrect irrelevant known later legion
    long misspelled missing mud pronounced private rare secret short spelled spelt unimportant
    unique unknown unusual visible weird wrong
""")
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
    a-team away best dream entire first home last losing new next old other right same second whole
    winning wrong
""")
_NOT_ALLERGENS = _words("""
    bullshit commitment drama exercise idiots meetings mondays mornings nonsense people something
    stupidity work
""")


_AFTER_JOB = ignoring_case(
    r"[,.!…(;]|(?<!\s)\s+[–—-]+\s|(?<!\s)\s+(?:and|because|since|so|with|in|at|for|from|who|which|on|now)\b"
)
_TRADE = ignoring_case(
    r"(?:er|or|ist|ian|eer|ant|man|woman|analyst|architect|barista|chef|clerk|coach|cook|judge|"
    r"lead|medic|mechanic|midwife|nanny|nurse|paralegal|pilot|student|vet)$"
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
    r"(?<!\s)\s+(?:too|as well|a lot|very much|so much|(?:the )?most|any ?more)$"
)
# Trailing punctuation, matched on the reversed text so that the search is linear.
_FILLER_SIGNS = re.compile(r"\W+\s")
# Words that cannot be understood without the conversation, or that refer to somebody else.
_CONTEXT_DEPENDENT = ignoring_case(
    r"\b(?:it|its|this|that|these|those|them|they|their|him|his|he|her|she|you|your|yours|me|my|"
    r"mine|i|we|us|our|ours|one|ones|both|not|no|nothing|none|nobody|neither|never|option|version|"
    r"answer|suggestion|idea|approach|choice|solution|way|first|second|former|latter|here|there|"
    r"yes)\b|^(?:the|an?)$|^\W|^\w$|\d$"
)
_UNCLEAR = ignoring_case(
    r"\b(?:to|how|what|when|where|why|who|whom|which|more|less|better|best|than|like|if|or)\b|"
    r"^(?:all the|asking|bothering|complaining|everything|interrupting|seeing|hearing|having|"
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
    return None if first.rstrip("s") in _NOT_ORGANISATIONS else parsed


def _person(text: str, opening: str, most_words: int = 3) -> ParsedValue | None:
    parsed = _name(text)
    if parsed is None or _is_upper_case(opening):
        return None
    words = parsed.value.split()
    named = len(words) <= most_words and len(parsed.value) > 1 and all(map(_is_person_word, words))
    return parsed if named else None


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
    return _person(text, opening, most_words=4)


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
    """Parse an occupation that must end like one ("-er", "nurse"), not "my job is a nightmare"."""
    parsed = _occupation(text, opening)
    return parsed if parsed and _TRADE.search(parsed.value) else None


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


def _favourite(text: str, opening: str) -> ParsedValue | None:
    return _phrase(text) if _thing(text.removeprefix("the "), opening, most_words=6) else None


def _allergen(text: str, opening: str) -> ParsedValue | None:
    parsed = _thing(text, opening, most_words=8)
    return parsed if parsed and _NOT_ALLERGENS.isdisjoint(parsed.value.lower().split()) else None


def _date(text: str, opening: str) -> ParsedValue | None:
    return ParsedValue(text)


READERS: dict[str, Callable[[str, str], ParsedValue | None]] = {
    "allergen": _allergen,
    "date": _date,
    "favourite": _favourite,
    "occupation": _occupation,
    "organisation": _organisation,
    "own name": _own_name,
    "person": _person,
    "place": _place,
    "preference": _preference,
    "team": _team,
    "thing": _thing,
    "trade": _trade,
}
