"""Markdown with front matter: ``---``, one key a line, ``---``, an empty line, the content.

What ``dump`` writes, ``load`` reads back byte for byte; exactly one newline is added after the
content and removed again. Files that people wrote are read leniently: ``load`` never raises, and a
file that cannot be understood is ``broken`` and must be left as it is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from reverie.errors import InvalidInput, VaultError
from reverie.text.normalize import SURROGATE, one_line, require_utf8

FieldValue = str | list[str]

_MAX_DEPTH = 16
_MAX_SHOWN = 60
# Put before the YAML that is parsed, so that nothing in it can be a directive or a document start.
_DOCUMENT_START = "---\n"
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
# Possessive: a carriage return can also be part of a comment, which would allow two matches a line.
_BLANK_OR_COMMENTS = re.compile(r"(?:[ \t]*+(?:#[^\n]*+)?+\r?\n)*+")
_KEY_NEEDS_OWN_LINE = (
    "a key of the front matter has no line of its own: write 'key: value' on each line"
)
_START_EVENTS = (yaml.StreamStartEvent, yaml.DocumentStartEvent)


class InvalidFrontMatter(Exception):
    """A file that cannot be understood; the message says why, and what a person can do."""


@dataclass(frozen=True)
class KeyValue:
    """A key, its value and their offsets; the value is None unless it is text or a list of it.

    ``object`` is set where the value is a mapping.
    """

    key: str
    value: FieldValue | None
    line: int
    start: int
    end: int
    object: dict[str, Any] | None = None


@dataclass(frozen=True)
class FrontMatter:
    """The text between the two lines of ``---``, parsed."""

    text: str
    pairs: list[KeyValue] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def fields(self) -> dict[str, FieldValue]:
        """The value of each key, by its last occurrence, where that could be read."""
        last = {pair.key: pair.value for pair in self.pairs}
        return {key: value for key, value in last.items() if value is not None}

    def objects(self) -> dict[str, dict[str, Any]]:
        """The value of each key whose last occurrence is a mapping, as a JSON object."""
        last = {pair.key: pair.object for pair in self.pairs}
        return {key: value for key, value in last.items() if value is not None}

    def unreadable_keys(self) -> tuple[str, ...]:
        """The keys whose values are neither text nor a list of texts."""
        readable = self.fields()
        return tuple(dict.fromkeys(pair.key for pair in self.pairs if pair.key not in readable))


def parse(text: str) -> FrontMatter:
    """Parse front matter; raises InvalidFrontMatter."""
    if "\ufeff" in text:  # some parsers take it as part of a key, others ignore it
        raise InvalidFrontMatter("the front matter holds an invisible mark (U+FEFF): remove it")
    front = FrontMatter(text)
    try:
        # Parsers differ about tabs. Replaced by one space each, all offsets stay the same.
        _read_pairs(front, yaml.parse(_DOCUMENT_START + text.replace("\t", " "), Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f" in line {mark.line + 1}"
        problem = one_line(error.problem or "it cannot be read")
        raise InvalidFrontMatter(
            f"the front matter is no YAML ({problem}{line}): quote the value"
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's scanner raises various errors for escapes beyond Unicode.
        problem = one_line(str(error))
        raise InvalidFrontMatter(f"the front matter is no YAML ({problem}): correct it") from None
    _check_gaps(front)
    front.problems.extend(_duplicate_keys(front))
    if "\t" in text:
        front.problems.append("the front matter has tabs, which count as spaces")
    return front


def replace_lines(
    front: FrontMatter,
    lines: Mapping[str, str],
    *,
    gone: Collection[str],
    order: Sequence[str],
    newline: str,
) -> str:
    """Replace the lines of some keys, and remove those of the keys ``gone``; keep all else.

    A new key is inserted after the nearest key that precedes it in ``order``.
    """
    text = front.text
    first = front.pairs[0] if front.pairs else None
    indent = text[first.line : first.start] if first else ""
    head = text[: first.line if first else len(text)]
    last = {pair.key: pair for pair in front.pairs}
    ends = [*(pair.line for pair in front.pairs[1:]), len(text)]
    pieces: list[_KeyLines] = []
    for pair, end in zip(front.pairs, ends, strict=False):
        below = min(_next_line_start(text, pair), end)
        key_lines = text[pair.line : below]
        if pair.key in lines and last[pair.key] is pair:
            rest = pair.start + len(text[pair.start : pair.end].rstrip())
            key_lines = indent + lines[pair.key] + text[rest:below]
        elif pair.key in lines or pair.key in gone:
            key_lines = ""
        pieces.append(_KeyLines(pair.key if key_lines else "", key_lines, text[below:end]))
    for key in (key for key in lines if key not in last):
        _insert(_KeyLines(key, indent + lines[key] + newline, ""), pieces, order)
    return head + "".join(piece.lines + piece.comments for piece in pieces)


@dataclass
class _KeyLines:
    """The lines of one key, and the comments and empty lines below them."""

    key: str
    lines: str
    comments: str


def _insert(new: _KeyLines, pieces: list[_KeyLines], order: Sequence[str]) -> None:
    """Insert a new key after the nearest that precedes it in ``order``."""
    if new.key not in order:
        pieces.append(new)
        return
    earlier = order[: order.index(new.key)]
    ranks = [earlier.index(piece.key) if piece.key in earlier else -1 for piece in pieces]
    place = ranks.index(max(ranks)) + 1 if max(ranks, default=-1) >= 0 else 0
    if place:
        new.comments, pieces[place - 1].comments = pieces[place - 1].comments, ""
    pieces.insert(place, new)


def _next_line_start(text: str, pair: KeyValue) -> int:
    """The offset of the line after a key's value; that of a block scalar ends at one already."""
    if text[pair.start : pair.end].endswith("\n"):
        return pair.end
    return text.find("\n", pair.end) + 1


def _check_gaps(front: FrontMatter) -> None:
    """Refuse anything but comments and empty lines between keys, so that keys can be inserted."""
    starts = [*(pair.line for pair in front.pairs), len(front.text)]
    ends = [0, *(pair.end for pair in front.pairs)]
    for start, end in zip(starts, ends, strict=True):
        if not _BLANK_OR_COMMENTS.fullmatch(front.text, end, start):
            raise InvalidFrontMatter(_KEY_NEEDS_OWN_LINE)


def _duplicate_keys(front: FrontMatter) -> Iterator[str]:
    times = Counter(pair.key for pair in front.pairs)
    for key in (key for key, count in times.items() if count > 1):
        yield f"{_quote_key(key)} is there more than once: the last one counts"


def _read_pairs(front: FrontMatter, events: Iterator[Any]) -> None:
    root: Any = next(event for event in events if not isinstance(event, _START_EVENTS))
    if isinstance(root, yaml.MappingStartEvent) and not _has_anchor_or_tag(root):
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            front.pairs.append(_read_pair(front, event, events))
    elif not isinstance(root, yaml.ScalarEvent) or _start_of(root) < _end_of(root):
        raise InvalidFrontMatter("the front matter has no keys: write 'key: value' on each line")
    end: Any = next(events)
    if end.explicit or not isinstance(next(events), yaml.StreamEndEvent):
        raise InvalidFrontMatter("the front matter is ended twice: remove '...' and '--- '")


def _read_pair(front: FrontMatter, event: Any, events: Iterator[Any]) -> KeyValue:
    start = _start_of(event) - len(_DOCUMENT_START)
    line = front.text.rfind("\n", 0, start) + 1
    # Only a key with lines of its own can be replaced without touching others.
    if not isinstance(event, yaml.ScalarEvent) or front.text[line:start].strip(" \t"):
        raise InvalidFrontMatter(_KEY_NEEDS_OWN_LINE)
    key = _text_of(event)
    scanned = _read_value(events)
    if scanned.marked or _has_anchor_or_tag(event):
        front.problems.append(f"{_quote_key(key)} has an anchor or a tag, which are not obeyed")
    if scanned.value is None and (scanned.object is None or key != METADATA_KEY):
        front.problems.append(
            f"{_quote_key(key)} is neither text nor a list of texts: it is not read"
        )
    end = scanned.end - len(_DOCUMENT_START)
    return KeyValue(key, scanned.value, line, start, end, scanned.object)


@dataclass
class _ScannedValue:
    value: FieldValue | None
    end: int
    marked: bool
    object: dict[str, Any] | None = None


def _read_value(events: Iterator[Any]) -> _ScannedValue:
    seen: list[Any] = []
    texts: list[str] = []
    kinds: list[type] = []
    flows: list[bool] = []
    end, marked, all_flow = 0, False, True
    for event in events:
        seen.append(event)
        if isinstance(event, yaml.AliasEvent):
            raise InvalidFrontMatter("the front matter has an alias (*): write the value itself")
        if isinstance(event, yaml.CollectionStartEvent):
            marked = marked or _has_anchor_or_tag(event)
            kinds.append(type(event))
            flows.append(bool(event.flow_style))
            all_flow = all_flow and bool(event.flow_style)
            if len(flows) > _MAX_DEPTH:
                raise InvalidFrontMatter(
                    "the front matter is nested too deeply: write plain keys and values"
                )
            continue
        if isinstance(event, yaml.ScalarEvent):
            marked = marked or _has_anchor_or_tag(event)
            texts.append(_text_of(event))
            end = _end_of(event)
        elif flows.pop():  # a flow collection has an end mark, a block ends with its last item
            end = _end_of(event)
        if not flows:
            break
    if not kinds:
        return _ScannedValue(texts[0], end, marked)
    if kinds == [yaml.SequenceStartEvent] * 2 and len(texts) == 1 and all_flow:
        # A link between notes that somebody wrote without quotes.
        return _ScannedValue(f"[[{texts[0]}]]", end, marked)
    if kinds[0] is yaml.MappingStartEvent:
        held = _to_json_value(iter(seen))
        return _ScannedValue(None, end, marked, held if isinstance(held, dict) else None)
    return _ScannedValue(texts if kinds == [yaml.SequenceStartEvent] else None, end, marked)


_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?")
_JSON_WORDS = {"null": None, "true": True, "false": False, "": None}


def _to_json_value(events: Iterator[Any]) -> Any:
    """Convert the events of one value as JSON would read it; any other plain text is text."""
    event: Any = next(events)
    if isinstance(event, yaml.ScalarEvent):
        text = _text_of(event)
        if event.style:
            return text
        if text in _JSON_WORDS:
            return _JSON_WORDS[text]
        number = _JSON_NUMBER.fullmatch(text)
        if number is None:
            return text
        return float(text) if number[1] or number[2] else int(text)
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while (item := _to_json_value(events)) is not _END:
            items.append(item)
        return items
    if isinstance(event, yaml.MappingStartEvent):
        pairs = {}
        while (key := _to_json_value(events)) is not _END:
            value = _to_json_value(events)
            # Keys that JSON does not have become text, so that they can be kept.
            pairs[key if isinstance(key, str) else json.dumps(key)] = value
        return pairs
    return _END


# Stands for the end of a list or mapping.
_END = object()


def _has_anchor_or_tag(event: Any) -> bool:
    return bool(event.anchor or event.tag)


def _start_of(event: Any) -> int:
    return int(event.start_mark.index)


def _end_of(event: Any) -> int:
    return int(event.end_mark.index)


def _text_of(event: Any) -> str:
    text: str = event.value
    if SURROGATE.search(text):
        raise InvalidFrontMatter("the front matter has a lone surrogate: remove it")
    return text


def _quote_key(key: str) -> str:
    return repr(one_line(key)[:_MAX_SHOWN])


Value = str | int | bool | Sequence[str] | Mapping[str, Any]

# The keys that Reverie writes, in this order.
KEYS = (
    "id",
    "role",
    "conversation_id",
    "created_at",
    "summary_kind",
    "replaced_by",
    "version",
    "kind",
    "category",
    "subject",
    "aliases",
    "tags",
    "source",
    "origin",
    "pinned",
    "metadata",
    "happened_at",
    "valid_from",
    "valid_to",
    "expires_at",
    "forgotten_at",
    "trust",
)
# The key whose value is a mapping.
METADATA_KEY = "metadata"
MAX_BYTES = 65_536

_BOM = b"\xef\xbb\xbf"
_OPENING = re.compile(rb"---[ \t]*\r?\n")
_CLOSING = re.compile(rb"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_NEWLINE = re.compile(rb"\r?\n")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

# Text that needs no quotes. A letter first, so that no parser sees a number, date or indicator.
_PLAIN_SCALAR = re.compile(r"[^\W\d_](?:[\w./@+-]| (?=[\w./@+-]))*")
_YAML_KEYWORDS = re.compile(
    r"true|false|yes|no|on|off|[yntf]|null|nil|none|nan|inf|infinity|undefined", re.IGNORECASE
)
# Characters that YAML does not allow, line breaks of YAML 1.1, and invisible characters.
_INVISIBLE_CHARS = (
    r"\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[{_INVISIBLE_CHARS}]")
_ESCAPED = re.compile(rf'["\\\x00-\x1f{_INVISIBLE_CHARS}]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True)
class Document:
    """A parsed file. A ``broken`` one could not be parsed, and must not be overwritten."""

    fields: dict[str, FieldValue]
    content: str
    problems: tuple[str, ...] = ()
    unreadable_keys: tuple[str, ...] = ()  # keys whose values are neither text nor a list of texts
    broken: bool = False
    objects: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # values that are mappings

    def text(self, key: str) -> str | None:
        """The value as text, also where it was written as a list."""
        value = self.fields.get(key)
        return ", ".join(value) if isinstance(value, list) else value

    def items(self, key: str) -> list[str]:
        """The value as a list, also where it was written as text with commas."""
        value = self.fields.get(key, [])
        if isinstance(value, list):
            return list(value)
        return [item for part in value.split(",") if (item := part.strip())]


def dump(fields: Mapping[str, Value], content: str) -> bytes:
    """Write fields and content as a file; raises InvalidInput for a lone surrogate."""
    return _build_file("".join(f"{line}\n" for line in _lines(fields).values()), content)


def load(raw: bytes) -> Document:
    """Parse a file. Its content keeps the line ends of the file."""
    try:
        parts = _split(raw)
        front = parse(parts.front or "")
        content = _content(parts)
    except InvalidFrontMatter as reason:
        return Document({}, "", (str(reason),), broken=True)
    return Document(
        front.fields(),
        content,
        tuple(front.problems),
        front.unreadable_keys(),
        objects=front.objects(),
    )


def update(raw: bytes, fields: Mapping[str, Value | None], content: str | None = None) -> bytes:
    """Set these keys in a person's file, and remove those that are None.

    All other keys and comments stay. Without ``content`` every byte of the body stays too; with it
    the file gets the line ends of ``dump``. Raises VaultError for a broken file.
    """
    try:
        parts = _split(raw)
        front = parse(parts.front or "")
        _content(parts)
    except InvalidFrontMatter as reason:
        raise VaultError(f"the file cannot be rewritten, {reason}") from None
    lines = _lines({key: value for key, value in fields.items() if value is not None})
    gone = fields.keys() - lines.keys()
    text = replace_lines(front, lines, gone=gone, order=KEYS, newline=parts.newline)
    _check_rewritten(text, front, fields)
    if content is not None:
        return _build_file(text.replace("\r\n", "\n"), content)
    opening, closing = parts.opening, parts.closing
    if parts.front is None:
        opening = f"---{parts.newline}".encode()
        closing = opening + parts.newline.encode()
    return b"".join([parts.mark, opening, _encode_bounded(text), closing, parts.body])


def equal_ignoring_crlf(one: str, other: str) -> bool:
    """Whether two contents are equal apart from CRLF and LF."""
    return one == other or one.replace("\r\n", "\n") == other.replace("\r\n", "\n")


def _check_rewritten(text: str, front: FrontMatter, fields: Mapping[str, Value | None]) -> None:
    """Refuse to write front matter that does not read back as intended."""
    intended = {key: value for key, value in front.fields().items() if key not in fields}
    objects = {key: value for key, value in fields.items() if isinstance(value, Mapping)}
    intended |= {
        key: _to_parsed(value)
        for key, value in fields.items()
        if value is not None and not isinstance(value, Mapping)
    }
    unreadable = {key for key in front.unreadable_keys() if key not in fields} | objects.keys()
    try:
        reread = parse(text)
    except InvalidFrontMatter as reason:
        raise VaultError(f"the file cannot be rewritten: make its keys plain, {reason}") from None
    written = reread.objects()
    if (
        reread.fields() != intended
        or set(reread.unreadable_keys()) != unreadable
        or any(written.get(key) != value for key, value in objects.items())
    ):
        raise VaultError("the file cannot be rewritten: write each key plainly on its own line")


def _build_file(lines: str, content: str) -> bytes:
    body = require_utf8(content, "content").encode()
    # A newline after a carriage return would be read as one line end with it.
    end = b"\r\n" if content.endswith("\r") else b"\n"
    return b"".join([b"---\n", _encode_bounded(lines), b"---\n\n", body, end])


def _encode_bounded(lines: str) -> bytes:
    """Encode front matter; refuse one that is too large to be read back."""
    front = lines.encode()
    if len(front) > MAX_BYTES:
        raise InvalidInput(
            f"the front matter has {len(front)} bytes, at most {MAX_BYTES} are allowed: shorten it"
        )
    return front


def _lines(fields: Mapping[str, Value]) -> dict[str, str]:
    """The line of each key, Reverie's own keys first."""
    order = [*(key for key in KEYS if key in fields), *(key for key in fields if key not in KEYS)]
    return {key: f"{_key(key)}: {_value(fields[key], key)}" for key in order}


def _key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise InvalidInput(f"{key!r} cannot be a key of front matter: use letters, digits and _")
    return _scalar(key)


def _value(value: Value, key: str) -> str:
    if isinstance(value, str):
        return _scalar(require_utf8(value, key))
    if isinstance(value, int):
        return str(value).lower()
    if isinstance(value, Mapping):
        # JSON is YAML as well, but for the characters that YAML does not allow.
        text = require_utf8(json.dumps(value, ensure_ascii=False, allow_nan=False), key)
        return _INVISIBLE.sub(_escape, text)
    return f"[{', '.join(_scalar(require_utf8(item, key)) for item in value)}]"


def _to_parsed(value: str | int | bool | Sequence[str]) -> FieldValue:
    """The value that is parsed when this one was written."""
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, int) else list(value)


def _scalar(text: str) -> str:
    """A text without quotes where every parser reads it unchanged, else in double quotes."""
    if _PLAIN_SCALAR.fullmatch(text) and not _YAML_KEYWORDS.fullmatch(text):
        return text
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT_ESCAPES.get(found[0]) or (f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}")


@dataclass(frozen=True)
class _Parts:
    """The parts of a file, which joined give it again. ``front`` is None without front matter."""

    mark: bytes
    opening: bytes
    front: str | None
    closing: bytes
    body: bytes
    newline: str


def _split(raw: bytes) -> _Parts:
    if _is_utf16(raw):
        raise InvalidFrontMatter("it is UTF-16: save it as UTF-8")
    mark = _BOM if raw.startswith(_BOM) else b""
    opening = _OPENING.match(raw, len(mark))
    if opening is None:
        body = raw[len(mark) :]
        return _Parts(mark, b"", None, b"", body, _newline_of(body))
    closing = _CLOSING.search(raw, opening.end())
    if closing is None:
        raise InvalidFrontMatter("the front matter is never closed: end it with a line of ---")
    if closing.start() - opening.end() > MAX_BYTES:
        raise InvalidFrontMatter(f"the front matter has more than {MAX_BYTES} bytes: shorten it")
    front = _decode(raw[opening.end() : closing.start()])
    last = closing[0] if closing[0].endswith(b"\n") else opening[0]
    newline = "\r\n" if last.endswith(b"\r\n") else "\n"
    return _Parts(mark, opening[0], front, closing[0], raw[closing.end() :], newline)


def _is_utf16(raw: bytes) -> bool:
    """Whether bytes are UTF-16: by the byte order mark, or because every other byte is zero."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    even, odd = raw[:64:2], raw[1:64:2]
    return len(raw) > 3 and any(
        not any(zeros) and all(others) for zeros, others in ((even, odd), (odd, even))
    )


def _newline_of(body: bytes) -> str:
    first = _NEWLINE.search(body)
    return "\n" if first is None else first[0].decode()


def _decode(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidFrontMatter(f"it is not UTF-8 ({error.reason}): save it as UTF-8") from None


def _content(parts: _Parts) -> str:
    body = parts.body
    if parts.front is not None and (empty := _NEWLINE.match(body)):
        body = body[empty.end() :]
    return _decode(body[:-2] if body.endswith(b"\r\n") else body.removesuffix(b"\n"))
