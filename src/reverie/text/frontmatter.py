"""Markdown with front matter: ``---``, one key a line, ``---``, an empty line, the content.

What is written reads back as it was, byte for byte; exactly one newline is added behind the
content and taken away again. What a person wrote is read with patience: nothing in it is an
exception, and what cannot be understood is ``broken``, to be left as it stands.
"""

from __future__ import annotations

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
# YAML is read behind the line that opens it, so that nothing in it can be a directive or a mark.
_DOCUMENT_START = "---\n"
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
# Possessive: a carriage return is also part of a comment, and every line would have two readings.
_BLANK_OR_COMMENTS = re.compile(r"(?:[ \t]*+(?:#[^\n]*+)?+\r?\n)*+")
_KEY_NEEDS_OWN_LINE = (
    "a key of the front matter has no line of its own: write 'key: value' on each line"
)
_START_EVENTS = (yaml.StreamStartEvent, yaml.DocumentStartEvent)


class InvalidFrontMatter(Exception):
    """A file that cannot be understood: why, and what a person can do."""


@dataclass(frozen=True)
class KeyValue:
    """A key and its value, and where they stand; None for what is not text or a list of it."""

    key: str
    value: FieldValue | None
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class FrontMatter:
    """The text between the two lines of ``---``, and what was found in it."""

    text: str
    entries: list[KeyValue] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def fields(self) -> dict[str, FieldValue]:
        """The last entry of each key, where that could be read."""
        last = {entry.key: entry.value for entry in self.entries}
        return {key: value for key, value in last.items() if value is not None}

    def unreadable_keys(self) -> tuple[str, ...]:
        read = self.fields()
        return tuple(dict.fromkeys(entry.key for entry in self.entries if entry.key not in read))


def parse(text: str) -> FrontMatter:
    """The entries of front matter, or Broken."""
    if "\ufeff" in text:  # to one parser part of a key, to another nothing
        raise InvalidFrontMatter("the front matter holds an invisible mark (U+FEFF): remove it")
    front = FrontMatter(text)
    try:
        # Parsers differ about tabs. As one space each, all places stay what they are.
        _read_entries(front, yaml.parse(_DOCUMENT_START + text.replace("\t", " "), Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f" in line {mark.line + 1}"
        said = one_line(error.problem or "it cannot be read")
        raise InvalidFrontMatter(
            f"the front matter is no YAML ({said}{line}): quote the value"
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's own scanner lets escapes beyond Unicode fail as they like.
        said = one_line(str(error))
        raise InvalidFrontMatter(f"the front matter is no YAML ({said}): mend it") from None
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
    """The text with these lines for their keys, without those that are gone, all else as it is.

    A key that is new stands behind the nearest that comes before it in ``order``.
    """
    text = front.text
    first = front.entries[0] if front.entries else None
    indent = text[first.line : first.start] if first else ""
    head = text[: first.line if first else len(text)]
    last = {entry.key: entry for entry in front.entries}
    ends = [*(entry.line for entry in front.entries[1:]), len(text)]
    pieces: list[_KeyLines] = []
    for entry, end in zip(front.entries, ends, strict=False):
        below = min(_next_line_start(text, entry), end)
        own = text[entry.line : below]
        if entry.key in lines and last[entry.key] is entry:
            rest = entry.start + len(text[entry.start : entry.end].rstrip())
            own = indent + lines[entry.key] + text[rest:below]
        elif entry.key in lines or entry.key in gone:
            own = ""
        pieces.append(_KeyLines(entry.key if own else "", own, text[below:end]))
    for key in (key for key in lines if key not in last):
        _insert(_KeyLines(key, indent + lines[key] + newline, ""), pieces, order)
    return head + "".join(piece.own + piece.comments for piece in pieces)


@dataclass
class _KeyLines:
    """The lines of one entry, and the comments and empty lines below it."""

    key: str
    own: str
    comments: str


def _insert(new: _KeyLines, pieces: list[_KeyLines], order: Sequence[str]) -> None:
    if new.key not in order:
        pieces.append(new)
        return
    earlier = order[: order.index(new.key)]
    ranks = [earlier.index(piece.key) if piece.key in earlier else -1 for piece in pieces]
    place = ranks.index(max(ranks)) + 1 if max(ranks, default=-1) >= 0 else 0
    if place:
        new.comments, pieces[place - 1].comments = pieces[place - 1].comments, ""
    pieces.insert(place, new)


def _next_line_start(text: str, entry: KeyValue) -> int:
    """Where the line after an entry begins; a block of text ends there already."""
    if text[entry.start : entry.end].endswith("\n"):
        return entry.end
    return text.find("\n", entry.end) + 1


def _check_gaps(front: FrontMatter) -> None:
    """Between entries stand only comments and empty lines, so that others can stand there too."""
    starts = [*(entry.line for entry in front.entries), len(front.text)]
    ends = [0, *(entry.end for entry in front.entries)]
    for start, end in zip(starts, ends, strict=True):
        if not _BLANK_OR_COMMENTS.fullmatch(front.text, end, start):
            raise InvalidFrontMatter(_KEY_NEEDS_OWN_LINE)


def _duplicate_keys(front: FrontMatter) -> Iterator[str]:
    times = Counter(entry.key for entry in front.entries)
    for key in (key for key, count in times.items() if count > 1):
        yield f"{_quote_key(key)} is there more than once: the last one counts"


def _read_entries(front: FrontMatter, events: Iterator[Any]) -> None:
    root: Any = next(event for event in events if not isinstance(event, _START_EVENTS))
    if isinstance(root, yaml.MappingStartEvent) and not _has_anchor_or_tag(root):
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            front.entries.append(_read_entry(front, event, events))
    elif not isinstance(root, yaml.ScalarEvent) or _start_of(root) < _end_of(root):
        raise InvalidFrontMatter("the front matter has no keys: write 'key: value' on each line")
    end: Any = next(events)
    if end.explicit or not isinstance(next(events), yaml.StreamEndEvent):
        raise InvalidFrontMatter("the front matter is ended twice: remove '...' and '--- '")


def _read_entry(front: FrontMatter, event: Any, events: Iterator[Any]) -> KeyValue:
    start = _start_of(event) - len(_DOCUMENT_START)
    line = front.text.rfind("\n", 0, start) + 1
    # Only what has lines of its own can be replaced without touching what stands beside it.
    if not isinstance(event, yaml.ScalarEvent) or front.text[line:start].strip(" \t"):
        raise InvalidFrontMatter(_KEY_NEEDS_OWN_LINE)
    key = _text_of(event)
    found = _read_value(events)
    if found.marked or _has_anchor_or_tag(event):
        front.problems.append(f"{_quote_key(key)} has an anchor or a tag, which are not obeyed")
    if found.value is None:
        front.problems.append(
            f"{_quote_key(key)} is neither text nor a list of texts: it is not read"
        )
    return KeyValue(key, found.value, line, start, found.end - len(_DOCUMENT_START))


@dataclass
class _ScannedValue:
    value: FieldValue | None
    end: int
    marked: bool


def _read_value(events: Iterator[Any]) -> _ScannedValue:
    texts: list[str] = []
    kinds: list[type] = []
    flows: list[bool] = []
    end, marked = 0, False
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise InvalidFrontMatter("the front matter has an alias (*): write the value itself")
        if isinstance(event, yaml.CollectionStartEvent):
            marked = marked or _has_anchor_or_tag(event)
            kinds.append(type(event))
            flows.append(bool(event.flow_style))
            if len(flows) > _MAX_DEPTH:
                raise InvalidFrontMatter(
                    "the front matter is nested too deeply: write plain keys and values"
                )
            continue
        if isinstance(event, yaml.ScalarEvent):
            marked = marked or _has_anchor_or_tag(event)
            texts.append(_text_of(event))
            end = _end_of(event)
        elif flows.pop():  # brackets say where they end, a block ends with the last that is in it
            end = _end_of(event)
        if not flows:
            break
    if not kinds:
        return _ScannedValue(texts[0], end, marked)
    return _ScannedValue(texts if kinds == [yaml.SequenceStartEvent] else None, end, marked)


def _has_anchor_or_tag(event: Any) -> bool:
    return bool(event.anchor or event.tag)


def _start_of(event: Any) -> int:
    return int(event.start_mark.index)


def _end_of(event: Any) -> int:
    return int(event.end_mark.index)


def _text_of(event: Any) -> str:
    text: str = event.value
    if SURROGATE.search(text):
        raise InvalidFrontMatter("the front matter holds half a character: remove it")
    return text


def _quote_key(key: str) -> str:
    return repr(one_line(key)[:_MAX_SHOWN])


Value = str | int | bool | Sequence[str]

# Ours, in the order in which they are written.
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
    "tags",
    "source",
    "pinned",
    "happened_at",
    "expires_at",
    "forgotten_at",
    "trust",
)
MAX_BYTES = 65_536

_BOM = b"\xef\xbb\xbf"
_OPENING = re.compile(rb"---[ \t]*\r?\n")
_CLOSING = re.compile(rb"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_NEWLINE = re.compile(rb"\r?\n")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

# A letter first, so that no parser sees a number, a date or an indicator.
_PLAIN_SCALAR = re.compile(r"[^\W\d_](?:[\w./@+-]| (?=[\w./@+-]))*")
_YAML_KEYWORDS = re.compile(
    r"true|false|yes|no|on|off|[yntf]|null|nil|none|nan|inf|infinity|undefined", re.IGNORECASE
)
# What YAML does not allow as it is, what breaks a line in YAML 1.1, and what nobody can see.
_ESCAPED = re.compile(
    r'["\\\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f'
    r"\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True)
class Document:
    """A file as it was read. ``broken``: nothing of it was, and nobody may write over it."""

    fields: dict[str, FieldValue]
    content: str
    problems: tuple[str, ...] = ()
    unreadable_keys: tuple[str, ...] = ()  # keys whose values are neither text nor a list of texts
    broken: bool = False

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
    """The file of these fields and this content; InvalidInput for half a character."""
    return _build_file("".join(f"{line}\n" for line in _lines(fields).values()), content)


def load(raw: bytes) -> Document:
    """What a file says. Its content keeps the line ends that the file has."""
    try:
        parts = _split(raw)
        front = parse(parts.front or "")
        content = _content(parts)
    except InvalidFrontMatter as reason:
        return Document({}, "", (str(reason),), broken=True)
    return Document(front.fields(), content, tuple(front.problems), front.unreadable_keys())


def update(raw: bytes, fields: Mapping[str, Value | None], content: str | None = None) -> bytes:
    """A person's file with these keys set, and those that are None taken out.

    All other keys and comments stay. Without a content, so does every byte of the body; with
    one, the file gets the line ends of ``dump``. VaultError for a broken file.
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
    """Whether two contents differ in nothing but CRLF and LF."""
    return one == other or one.replace("\r\n", "\n") == other.replace("\r\n", "\n")


def _check_rewritten(text: str, front: FrontMatter, fields: Mapping[str, Value | None]) -> None:
    """What does not read back as it was meant is not written."""
    meant = {key: value for key, value in front.fields().items() if key not in fields}
    meant |= {key: _to_parsed(value) for key, value in fields.items() if value is not None}
    try:
        again = parse(text)
    except InvalidFrontMatter as reason:
        raise VaultError(f"the file cannot be rewritten: make its keys plain, {reason}") from None
    if (
        again.fields() != meant
        or set(again.unreadable_keys()) != {*front.unreadable_keys()} - fields.keys()
    ):
        raise VaultError("the file cannot be rewritten: write each key plainly on its own line")


def _build_file(lines: str, content: str) -> bytes:
    body = require_utf8(content, "content").encode()
    # A newline behind a carriage return would be read as one line end with it.
    end = b"\r\n" if content.endswith("\r") else b"\n"
    return b"".join([b"---\n", _encode_bounded(lines), b"---\n\n", body, end])


def _encode_bounded(lines: str) -> bytes:
    """What is too large to be read is not written either."""
    front = lines.encode()
    if len(front) > MAX_BYTES:
        raise InvalidInput(
            f"the front matter has {len(front)} bytes, at most {MAX_BYTES} are allowed: shorten it"
        )
    return front


def _lines(fields: Mapping[str, Value]) -> dict[str, str]:
    """The line of each key, ours first."""
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
    return f"[{', '.join(_scalar(require_utf8(item, key)) for item in value)}]"


def _to_parsed(value: Value) -> FieldValue:
    """What a value is when it is read back."""
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, int) else list(value)


def _scalar(text: str) -> str:
    """Bare where every parser reads the very same text, else between double quotes."""
    if _PLAIN_SCALAR.fullmatch(text) and not _YAML_KEYWORDS.fullmatch(text):
        return text
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT_ESCAPES.get(found[0]) or (f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}")


@dataclass(frozen=True)
class _Parts:
    """The bytes of a file: joined they are the file. ``front`` is None where there is none."""

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
    front = _decoded(raw[opening.end() : closing.start()])
    last = closing[0] if closing[0].endswith(b"\n") else opening[0]
    newline = "\r\n" if last.endswith(b"\r\n") else "\n"
    return _Parts(mark, opening[0], front, closing[0], raw[closing.end() :], newline)


def _is_utf16(raw: bytes) -> bool:
    """By its mark, or because every other byte of its beginning is zero."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    even, odd = raw[:64:2], raw[1:64:2]
    return len(raw) > 3 and any(
        not any(zeros) and all(others) for zeros, others in ((even, odd), (odd, even))
    )


def _newline_of(body: bytes) -> str:
    first = _NEWLINE.search(body)
    return "\n" if first is None else first[0].decode()


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidFrontMatter(f"it is not UTF-8 ({error.reason}): save it as UTF-8") from None


def _content(parts: _Parts) -> str:
    body = parts.body
    if parts.front is not None and (empty := _NEWLINE.match(body)):
        body = body[empty.end() :]
    return _decoded(body[:-2] if body.endswith(b"\r\n") else body.removesuffix(b"\n"))
