"""The rules that find secrets: key formats, addresses and headers, names, and randomness."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from reverie.text.secrets import MIN_KEY_CHARS, SecretMatch
from reverie.text.secrets.key_formats import KEY_FORMATS, SERVICES

# A longer run without spaces is an image or a file, not a key.
MAX_RUN_CHARS = 1_500
_ASSIGNED = re.compile(r"[=:>|][\"'`\\ ]{0,2}[A-Za-z0-9]{20}")


def find_matches(text: str, lowered: str, runs: Sequence[tuple[int, int]]) -> list[SecretMatch]:
    """The matches of all rules, unordered. ``runs`` are the long runs without spaces."""
    matches = [each for start, end in runs for each in _find_in_run(text, start, end)]
    matches += _find_private_keys(text)
    matches += _find_in_urls_and_headers(text, lowered)
    matches += _find_named_values(text, lowered)
    if runs and _ASSIGNED.search(text):
        matches += _find_random_values(text)
    return matches


def is_secret_named(name: str, value: str) -> bool:
    """Whether a value is a secret because of its name, as in ``{"password": "…"}``."""
    if len(value) > 4_000 or not _NAME.search(name):
        return False
    if _METADATA_NAME.search(name) or _NOT_A_KEY.search(name):
        return False
    return bool(_PASSWORD.search(name)) and _is_password(value) or _is_value(value, strong=True)


# -- by format ------------------------------------------------------------------------------------


def _trie_pattern(words: Iterable[str]) -> str:
    """A pattern that matches any of these words, as a trie: it branches where they differ."""
    branches: dict[str, list[str]] = {}
    ends = False
    for word in words:
        if word:
            branches.setdefault(word[0], []).append(word[1:])
        else:
            ends = True
    parts = [re.escape(first) + _trie_pattern(rest) for first, rest in branches.items()]
    if not parts:
        return ""
    pattern = parts[0] if len(parts) == 1 and not ends else f"(?:{'|'.join(parts)})"
    return f"{pattern}?" if ends else pattern


_BY_PREFIX: dict[str, list[tuple[str, str]]] = {}
for _kind, _prefixes, _body in KEY_FORMATS:
    for _prefix in _prefixes.split():
        _BY_PREFIX.setdefault(_prefix, []).append((_kind, re.escape(_prefix) + _body))
_PREFIX = re.compile(_trie_pattern(_BY_PREFIX))
# _PREFIX finds the longest prefix; the formats of all its shorter prefixes are tried after it.
_CANDIDATES = {
    prefix: [
        shape for size in range(len(prefix), 0, -1) for shape in _BY_PREFIX.get(prefix[:size], ())
    ]
    for prefix in _BY_PREFIX
}
_BLOB = re.compile(
    r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{1500,}|data:[\w.+/-]+;base64,[A-Za-z0-9+/=_-]+"
)


def _find_in_run(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Keys within one run without spaces; embedded files and images are skipped."""
    if end - start > MAX_RUN_CHARS or text.startswith("data:", start):
        for blob in _BLOB.finditer(text, start, end):
            yield from _find_keys(text, start, blob.start())
            start = blob.end()
    yield from _find_keys(text, start, end)


def _find_keys(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    yield from _find_known_formats(text, start, end)
    run = text[start:end]
    for kind, needle, pattern in _WHOLE_FORMATS:
        if needle in run:
            for hit in pattern.finditer(text, start, end):
                yield SecretMatch(kind, *hit.span())
    if ("_" in run or "-" in run) and _DIGIT.search(run):
        yield from _find_prefixed(text, start, end)


_DIGIT = re.compile(r"\d")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _find_known_formats(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Keys that have the prefix and format of a known service."""
    at = start
    while hit := _PREFIX.search(text, at, end):
        at = hit.start() + 1
        if hit.start() > start and text[hit.start() - 1].isalnum():
            continue
        for kind, pattern in _CANDIDATES[hit[0]]:
            if body := _compiled(pattern).match(text, hit.start(), end):
                yield SecretMatch(kind, *body.span())
                at = body.end()
                break


# The kind, a substring that must occur, and the pattern of the whole.
_WHOLE_FORMATS = tuple(
    (kind, needle, re.compile(pattern, re.ASCII))
    for kind, needle, pattern in (
        ("JSON web token", "ey", r"(?<![A-Za-z0-9])ey[JI][\w-]{8,}\.[\w-]{16,}\.[\w-]{6,}=*"),
        ("mailchimp key", "-us", r"\b[0-9a-f]{32}-us\d{1,2}\b"),
        ("telegram token", ":AA", r"(?<![\w])(?:bot)?\d{8,10}:AA[\w-]{32,34}(?![\w-])"),
        ("discord token", ".", r"\b[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,40}"),
        ("azure secret", "Q~", r"(?<![\w~.-])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~-])"),
        ("azure key", "A", r"(?<!\w)\w{40,}(?:JQQJ99|AzSe|AzFu|AzCa|APIM|ACDb|AzIoT)\w{4,}"),
        ("vault token", "s.", r"(?<![\w.])s\.(?=[A-Za-z]*\d)[A-Za-z0-9]{24}(?![\w.])"),
        ("asana token", "/", r"(?<![\w/])[012]/\d{16}(?:/\d{16})?:[0-9a-f]{32}\b"),
        ("terraform token", ".atlasv1.", r"\b\w{14}\.atlasv1\.[\w=-]{60,}"),
        ("twitter token", "AAAAAAAAAAAAAAAAAAAA", r"\bA{20,}[\w%]{60,}"),
        ("salesforce token", "00D", r"\b00D[A-Za-z0-9]{12,15}![\w.]{60,}"),
        ("zoho token", "1000.", r"\b1000\.[0-9a-f]{32}\.[0-9a-f]{32}\b"),
        (
            "zhipu key",
            ".",
            r"(?<![\w.])[0-9a-f]{32}\.(?=\w*[A-Z])(?=\w*\d)[A-Za-z0-9]{16}(?![\w.])",
        ),
        ("dropbox token", "AAAAAAAAAA", r"\b\w{11}A{10}[\w-]{40,}"),
        ("pushbullet token", "o.", r"(?<![\w.])o\.(?=\w*\d)[A-Za-z0-9]{32}(?![\w.])"),
        ("maxmind key", "_mmk", r"\b\w{6}_\w{29}_mmk\b"),
        (
            "slack webhook",
            "hooks.slack",
            r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/[\w+/]{40,}",
        ),
        (
            "discord webhook",
            "/webhooks/",
            r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{17,20}/[\w-]{50,}",
        ),
        ("teams webhook", ".office.com/", r"\.office\.com/webhook(?:b2)?/[\w@-]{70,}/[\w/-]{60,}"),
        ("telegram token", "telegram.org/bot", r"telegram\.org/bot[\w:-]{30,}"),
    )
)

_PEM = re.compile(
    r"-----BEGIN ([A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?)-----"
    r"(?:(?:[^-]|-(?!----)){0,20000}-----END \1-----|(?:\s|\\n)*[A-Za-z0-9+/=\s\\]{16,})"
)
_PUTTY = re.compile(r"PuTTY-User-Key-File-(?:[^P]|P(?!uTTY-User)){0,4000}?Private-MAC: *[0-9a-f]+")


def _find_private_keys(text: str) -> Iterator[SecretMatch]:
    for pattern, hint in ((_PEM, "PRIVATE KEY"), (_PUTTY, "PuTTY-User")):
        if hint in text:
            for hit in pattern.finditer(text):
                yield SecretMatch("private key", *hit.span())


# -- in addresses and headers ---------------------------------------------------------------------

_IN_URL = re.compile(
    r"\b[a-zA-Z][\w+.-]{1,20}://"
    r"(?:[^\s:/@\"'<>]{0,100}:([^\s/\"'<>@]{3,200})|((?=[\w-]*\d)[\w-]{20,100}):?)@[\w\[.%-]"
)
_IN_QUERY = re.compile(
    r"[?&;]([\w-]*(?:key|token|secret|password|passwd|pwd|signature|credential|auth|code)|sig)"
    r"=([\w.~%+/=-]{8,})"
)
_HEADERS = ("bearer", "basic", "token", "digest", "apikey", "ssws", "oauth")
# Matched against the text in lower case.
_HEADER = re.compile(rf"({'|'.join(_HEADERS)})[ :=]{{1,2}}[\"'`]?([\w.~+/=:|-]{{16,}})")
_CURL_USER = re.compile(r"\s(?:-u|--user)[ =]\"?'?([^\s:\"']{1,60}:[^\s\"']{4,})")
_PHRASE = re.compile(
    r"(?:mnemonic|(?:seed|recovery|secret)[ _-]?phrase)\W{1,4}(?:is\W{1,3})?"
    r"((?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})\b"
)


def _find_in_urls_and_headers(text: str, lowered: str) -> Iterator[SecretMatch]:
    if "@" in text or "-u" in text:
        for pattern in (_IN_URL, _CURL_USER):
            for hit in pattern.finditer(text):
                group = hit.lastindex or 1
                if not _is_placeholder(hit[group].rpartition(":")[2]):
                    yield SecretMatch("password", *hit.span(group))
    if "=" in text and "://" in text:
        for hit in _IN_QUERY.finditer(lowered):
            value = text[hit.start(2) : hit.end(2)]
            if _is_value(value, strong=True) and not _NOT_A_KEY.search(hit[1]):
                yield SecretMatch("token", *hit.span(2))
    if any(map(lowered.__contains__, _HEADERS)):
        for hit in _HEADER.finditer(lowered):
            value = text[hit.start(2) : hit.end(2)]
            named = lowered[max(0, hit.start() - 15) : hit.end(1)]
            # "basic" and "token" are also ordinary words.
            strong = hit[1] not in ("basic", "token") or _is_hex(value)
            if _is_value(value, strong=strong) and not _NOT_A_KEY.search(named):
                yield SecretMatch("token", *hit.span(2))
    if "mnemonic" in lowered or "phrase" in lowered:
        for hit in _PHRASE.finditer(lowered):
            yield SecretMatch("seed phrase", *hit.span(1))


# -- keys of unknown services ---------------------------------------------------------------------

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9_.-])((?:[A-Za-z][A-Za-z0-9]{0,11}[_-]){1,3})([A-Za-z0-9]{16,200}|"
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:[_-][A-Za-z0-9]{6,64}){0,2}(?![A-Za-z0-9])"
)
_KEY_PREFIX = re.compile(
    r"(?:^|[_-])(?:sk|pk|rk|ak|live|test|prod|staging|pat|svc|priv|secret|cred)[_-]|"
    r"(?:key|tok|token|secret|api|auth|pat|pk|sk)\d?[_-]$",
    re.IGNORECASE,
)
# Prefixes of ids that model providers and build tools use, which are not secrets.
_ID_PREFIX = re.compile(
    r"^(?:call|tooluse|toolu|tool|srvtoolu|chatcmpl|cmpl|msg|message|run|thread|file|req|request|"
    r"resp|rs|fc|ws|ci|item|gen|asst|step|batch|conv|sess|session|event|evt|cs|cus|pi|ch|in|sub|"
    r"price|prod|acct|txn|trace|span|job|task|user|org|proj|project|id|sha\d*|md5|hash|commit|rev|"
    r"etag|build|bundle|chunk|main|index|vendor|img|image|blob|layer|digest|v\d*)[_-]",
    re.IGNORECASE,
)
_LONG_BODY = 30
_ABBREVIATION = re.compile(
    r"(?!img|css|jpg|png|src|pkg|tmp|txt|pdf|svg|html)[b-df-hj-np-tv-z]{2,4}a?_"
)


def _find_prefixed(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Keys of unknown services: a short prefix, ``_`` or ``-``, and a long random part."""
    for hit in _PREFIXED.finditer(text, start, end):
        prefix, body = hit.groups()
        if _ID_PREFIX.match(prefix):
            continue
        has_key_prefix = bool(_KEY_PREFIX.search(prefix))
        if _HEXES.fullmatch(body) or _UUID.fullmatch(body):
            is_abbreviation = bool(_ABBREVIATION.fullmatch(prefix)) and len(body) >= 32
            is_key = (has_key_prefix or is_abbreviation) and len(body) >= 28 and len(set(body)) >= 6
        else:
            mixed = has_key_prefix and not body.isalpha() and not body.isdecimal()
            is_key = (
                looks_random(body)
                and (has_key_prefix or len(body) >= _LONG_BODY)
                or (mixed and len(body) >= 20)
            )
        if is_key:
            yield SecretMatch("key", *hit.span())


# -- by name --------------------------------------------------------------------------------------

_NAME = re.compile(
    r"passw|passphrase|pwd|secret|token|credential|bearer|authorization|--key$|(?<![a-z])pat$|jwt|[a-z0-9][_.-]?api(?![a-z])|"
    r"api.?key|(?<!public)(?<!primary)(?<!foreign)(?<!sort)(?<!cache)(?<!unique)(?<!object)"
    r"(?<!partition)(?<!idempotency)(?<!bucket)(?<!row)(?<!natural)(?<!redis)(?<!storage)"
    r"(?<=[a-z0-9])[_. -]?key(?:[_ -]?\d)?$",
    re.IGNORECASE,
)
# A name with this ending is about a secret, but does not name the secret itself.
_METADATA_NAME = re.compile(
    r"(?:(?<=[_. -])|(?<=[a-z])(?=[A-Z]))(?i:path|file|url|uri|endpoint|name|id|type|count|length|"
    r"size|expiry|expires|at|limit|usage|lifetime|ttl|hash|digest|fingerprint|version|alias|arn|ref|"
    r"header|field|column|prefix|format|manager|provider|algorithm|issuer|audience|scope|budget|"
    r"window|hint)s?$"
)
_NOT_A_KEY = re.compile(
    r"(?:public|primary|foreign|sort|cache|unique|object|partition|idempotency|bucket|row|natural|"
    r"redis|storage|hash|composite|lookup|group|shortcut|keyboard|hot|mon|tur|don)[_. -]?keys?\b|"
    r"(?:page|next|continuation)[_. -]?tokens?\b",
    re.IGNORECASE,
)
# Names that mean little: their values must look random.
_GENERIC_NAME = re.compile(r"(?:\W|the |my |a )*(?:key|token)s?|(?:.*[\W-])?apis?", re.IGNORECASE)
_PASSWORD = re.compile(r"passw|passphrase|pwd|\bpass\b|_pass$|passcode", re.IGNORECASE)
_SERVICE = re.compile(
    rf"(?:{_trie_pattern(sorted(SERVICES.split()))})[\w.-]{{0,20}}$", re.IGNORECASE
)
_SENSITIVE_WORDS = """
    password passwd passphrase passcode pass pwd secret token credential creds bearer auth key
    api pat dsn jwt hec private
"""
# Matched against the text in lower case.
_SECRET_WORD = re.compile(_trie_pattern(sorted([*_SENSITIVE_WORDS.split(), *SERVICES.split()])))
_VALUE = re.compile(
    r"[\w .-]{0,25}?(?:\\?[\"'`)\]*]){0,3}\s{0,2}"
    # The operator or word between a name and its value.
    r"(=>|:=|\?=|\|\||==?|:{1,2}|>|,|\||value=|-|\bis:?\b|\bwas:?\b|"
    r"\s)\s{0,20}(?:\\?[\"'`(\[<]){0,2}([^\s\"'`<>()\[\]{},;\\]{4,200})"
)
# A value is judged by its first 200 characters; this matches the rest of it.
_REST = re.compile(r"[^\s\"'`<>()\[\]{},;\\]{0,3800}")
# The part of a name before a word, matched on the reversed text.
_BEFORE = re.compile(r"(?: (?=[A-Za-z]))?[\w.-]{0,40}")
# How far after the word that names it a value may begin.
_MAX_VALUE_DISTANCE = 60
_ASSIGNMENT_OPERATORS = frozenset({"=", ":", ":=", "=>", "==", "::", "?=", "||", ">", "value="})
# A name that says nothing about secrets, and a value assigned to it.
_OPAQUE = re.compile(
    r"(?<![\w.-])([A-Za-z][\w.-]{1,30})\\?[\"']?(?:=>|:=|\?=|\|\||=|: ?(?=[\"'])|>|:)\\?[\"'`]?"
    r"([A-Za-z0-9]{20,128})(?![\w/+%=.-])"
)
_NON_SECRET_NAME = re.compile(
    r"id|hash|sha|md5|digest|etag|integrity|sum|commit|rev|ref|cursor|nonce|salt|page|offset|next|"
    r"version|build|file|image|img|src|href|url|path|addr|cid|trace|span|session|data|blob|content|"
    r"signature|sig|uuid|guid|base64|v$|sri|cert|fingerprint|slug|class|name|query|q$",
    re.IGNORECASE,
)


def _find_random_values(text: str) -> Iterator[SecretMatch]:
    """Values that look random and are not hexadecimal, assigned to a name that is not an id."""
    for hit in _OPAQUE.finditer(text):
        value = hit[2]
        if _HEXES.fullmatch(value) or _NON_SECRET_NAME.search(hit[1]):
            continue
        if looks_random(value) and _DIGIT.search(value):
            yield SecretMatch("secret", *hit.span(2))


def _find_named_values(text: str, lowered: str) -> Iterator[SecretMatch]:
    """Values that are named a password, a key or a token."""
    at = 0
    while secret_word := _SECRET_WORD.search(lowered, at):
        at = secret_word.end()
        hit = _VALUE.match(lowered, at)
        if hit is None:
            continue
        start, end = hit.span(2)
        value = text[start:end].rstrip(".:!?")
        if len(value) < MIN_KEY_CHARS and secret_word[0][0] != "p":
            continue
        if _PLAIN.fullmatch(value) and end - start > _MAX_VALUE_DISTANCE:
            # Within plain words there is no secret: go on near their end.
            at = max(at, end - _MAX_VALUE_DISTANCE)
        before = _BEFORE.match(text[max(0, secret_word.start() - 40) : secret_word.start()][::-1])
        name = (before[0][::-1] if before else "") + text[secret_word.start() : hit.start(1)]
        quoted = text[start - 1] in "\"'`"
        kind, is_secret = _classify_named_value(
            name.rstrip(" .-\"'`)]*\\\n"), hit[1], value, quoted
        )
        if is_secret:
            at = start + len(value)
            if at == end and (rest := _REST.match(text, end)):
                at = end + len(rest[0].rstrip(".:!?"))
            yield SecretMatch(kind, start, at)


def _classify_named_value(name: str, link: str, value: str, quoted: bool) -> tuple[str, bool]:
    if _METADATA_NAME.search(name) or _NOT_A_KEY.search(name):
        return "", False
    if _PASSWORD.search(name):
        return "password", _is_named_password(name, link, value, quoted)
    strong = bool(_NAME.search(name)) or (
        link in _ASSIGNMENT_OPERATORS and bool(_SERVICE.search(name))
    )
    if _GENERIC_NAME.fullmatch(name) and not _is_hex(value):
        strong = False
    return "secret", _is_value(value, strong=strong)


_UUID = re.compile(r"[0-9a-z]{8}(?:-[0-9a-z]{4}){3}-[0-9a-z]{12}", re.IGNORECASE)
_HEXES = re.compile(r"(?:0x)?[0-9a-f]+", re.IGNORECASE)
_KEY_CHARS = re.compile(r"[\w.~+/=:%$!@#^&*|?-]+")
_LONG_WORD = re.compile(r"[A-Za-z0-9]{16,}")
_PLACEHOLDER = re.compile(
    r"\$[A-Z_]+$|\$[a-z_]{1,24}$|\$[{(]|[<{]|%[\w(]|\*{3}|x{4,}|\.{3}|…|\[?redacted|process\.env|os\.|getenv|self\.|this\.|config\.|"
    r"settings\.|env\.|(?:none|null|true|false|undefined|string|required|optional|https?:/*)$|"
    r"(?:your|my|the|example|placeholder|change|insert|enter|dummy)[a-z_.-]*$",
    re.IGNORECASE,
)


def _is_placeholder(value: str) -> bool:
    return bool(_PLACEHOLDER.match(value)) or len(set(value)) < 3


def _is_named_password(name: str, link: str, value: str, quoted: bool) -> bool:
    """Whether a named value is a password; after a word such as "is", only unusual values."""
    if link == "=" and name.isupper() and len(value) >= 6 and "PASS" not in value.upper():
        return not _is_placeholder(value)
    if not _is_password(value):
        return False
    if link in _ASSIGNMENT_OPERATORS:
        # Words joined by dashes after a colon are prose, unless they are quoted as in code.
        return link != ":" or quoted or not _JOINED.fullmatch(value)
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    is_unusual = _SYMBOL.search(value) or all(any(map(test, value)) for test in _CLASSES[:3])
    return mixed and len(value) >= 6 and bool(is_unusual) and not _ORDINARY.fullmatch(value)


def _is_password(value: str) -> bool:
    if len(value) < 4 or value[0] == "/" or _is_placeholder(value):
        return False
    kinds = sum(any(map(test, value)) for test in _CLASSES)
    return kinds >= 2 and not _PLAIN.fullmatch(value)


_CLASSES: tuple[Callable[[str], bool], ...] = (
    str.islower,
    str.isupper,
    str.isdigit,
    lambda letter: not letter.isalnum(),
)
_SYMBOL = re.compile(r"[^\w\s./:'’-]")
# Words with a number before or after them, alone or joined: Windows11, 14-day, wiki/page42.
_WORD = r"(?:\d{0,4}(?:(?:[a-z]?[A-Z])?[a-z]{2,}|[A-Z]{2,})\d{0,4}|\d{1,8})"
_ORDINARY = re.compile(rf"{_WORD}(?:[._/:-]{_WORD})*")
_JOINED = re.compile(rf"{_WORD}(?:[._/:-]{_WORD})+")
# The end of the names of Kubernetes pods.
_POD = re.compile(r"[0-9a-z]{6,10}-[0-9a-z]{5}")
# Musical notes, seats and cells have shorter parts than a key.
_PARTS = re.compile(r"[A-Za-z0-9]{4}")
# Words, variable names, paths and numbers, which prose and code have after "password:".
_PLAIN = re.compile(r"[A-Za-z]+(?:[._/:-]+[A-Za-z]+)*[._/:-]*|[\d.,:/-]+")


def _is_value(value: str, *, strong: bool) -> bool:
    """Whether a value could be a key. ``strong``: its name leaves little doubt."""
    if len(value) < MIN_KEY_CHARS or not _KEY_CHARS.fullmatch(value) or _is_placeholder(value):
        return False
    if _JOINED.fullmatch(value) or _POD.fullmatch(value) or not _PARTS.search(value):
        return False
    if _is_hex(value):
        return strong and not value.isdecimal() and len(set(value)) >= 6
    if looks_random(value):
        return True
    if not strong or "/" in value and not _LONG_WORD.search(value):
        return False
    digits = sum(map(str.isdigit, value))
    mixed = any(not word.isdecimal() and not word.isalpha() for word in _LONG_WORD.findall(value))
    return mixed or (digits >= 4 and len(value) >= 20 and digits < len(value) * 0.8)


def _is_hex(value: str) -> bool:
    return bool(_HEXES.fullmatch(value) or _UUID.fullmatch(value))


def looks_random(value: str) -> bool:
    """Whether letters and digits alternate as they do in no word, name or path."""
    if not any(map(str.isdigit, value)) and not _MIXED.search(value):
        return False
    changes = sum(1 for _ in _CLASS_CHANGE.finditer(value))
    return changes * 4 >= len(value) and len(set(value)) >= 8


_MIXED = re.compile(r"[a-z][A-Z][a-z]?[A-Z]|[A-Z]{2}[a-z][A-Z]")
_CLASS_CHANGE = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
