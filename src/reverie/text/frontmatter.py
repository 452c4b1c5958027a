"""Markdown with front matter: ``---``, one key a line, ``---``, an empty line, the content.

What is written reads back as it was, byte for byte; exactly one newline is added behind the
content and taken away again. What a person wrote is read with patience: nothing in it is an
exception, and what cannot be understood is ``broken``, to be left as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reverie.errors import InvalidInput, VaultError
from reverie.text import frontkeys
from reverie.text.frontkeys import Broken, Front, Read
from reverie.text.normalise import storable

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
MOST_BYTES = 65_536

_MARK = b"\xef\xbb\xbf"
_OPENING = re.compile(rb"---[ \t]*\r?\n")
_CLOSING = re.compile(rb"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_BREAK = re.compile(rb"\r?\n")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

# A letter first, so that no parser sees a number, a date or an indicator.
_BARE = re.compile(r"[^\W\d_](?:[\w./@+-]| (?=[\w./@+-]))*")
_WORDS_OF_YAML = re.compile(
    r"true|false|yes|no|on|off|[yntf]|null|nil|none|nan|inf|infinity|undefined", re.IGNORECASE
)
# What YAML does not allow as it is, what breaks a line in YAML 1.1, and what nobody can see.
_ESCAPED = re.compile(
    r'["\\\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f'
    r"\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True)
class Document:
    """A file as it was read. ``broken``: nothing of it was, and nobody may write over it."""

    fields: dict[str, Read]
    content: str
    problems: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  # keys whose values are neither text nor a list of texts
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
    return _whole("".join(f"{line}\n" for line in _lines(fields).values()), content)


def load(raw: bytes) -> Document:
    """What a file says. Its content keeps the line ends that the file has."""
    try:
        parts = _split(raw)
        front = frontkeys.read(parts.front or "")
        content = _content(parts)
    except Broken as reason:
        return Document({}, "", (str(reason),), broken=True)
    return Document(front.fields(), content, tuple(front.problems), front.unread())


def updated(raw: bytes, fields: Mapping[str, Value | None], content: str | None = None) -> bytes:
    """A person's file with these keys set, and those that are None taken out.

    All other keys and comments stay. Without a content, so does every byte of the body; with
    one, the file gets the line ends of ``dump``. VaultError for a broken file.
    """
    try:
        parts = _split(raw)
        front = frontkeys.read(parts.front or "")
        _content(parts)
    except Broken as reason:
        raise VaultError(f"the file cannot be rewritten, {reason}") from None
    lines = _lines({key: value for key, value in fields.items() if value is not None})
    gone = fields.keys() - lines.keys()
    text = frontkeys.rewritten(front, lines, gone=gone, order=KEYS, newline=parts.newline)
    _check_rewritten(text, front, fields)
    if content is not None:
        return _whole(text.replace("\r\n", "\n"), content)
    opening, closing = parts.opening, parts.closing
    if parts.front is None:
        opening = f"---{parts.newline}".encode()
        closing = opening + parts.newline.encode()
    return b"".join([parts.mark, opening, _bounded(text), closing, parts.body])


def same_text(one: str, other: str) -> bool:
    """Whether two contents differ in nothing but CRLF and LF."""
    return one == other or one.replace("\r\n", "\n") == other.replace("\r\n", "\n")


def _check_rewritten(text: str, front: Front, fields: Mapping[str, Value | None]) -> None:
    """What does not read back as it was meant is not written."""
    meant = {key: value for key, value in front.fields().items() if key not in fields}
    meant |= {key: _as_read(value) for key, value in fields.items() if value is not None}
    try:
        again = frontkeys.read(text)
    except Broken as reason:
        raise VaultError(f"the file cannot be rewritten: make its keys plain, {reason}") from None
    if again.fields() != meant or set(again.unread()) != {*front.unread()} - fields.keys():
        raise VaultError("the file cannot be rewritten: write each key plainly on its own line")


def _whole(lines: str, content: str) -> bytes:
    body = storable(content, "content").encode()
    # A newline behind a carriage return would be read as one line end with it.
    end = b"\r\n" if content.endswith("\r") else b"\n"
    return b"".join([b"---\n", _bounded(lines), b"---\n\n", body, end])


def _bounded(lines: str) -> bytes:
    """What is too large to be read is not written either."""
    front = lines.encode()
    if len(front) > MOST_BYTES:
        raise InvalidInput(
            f"the front matter has {len(front)} bytes, at most {MOST_BYTES} are allowed: shorten it"
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
        return _scalar(storable(value, key))
    if isinstance(value, int):
        return str(value).lower()
    return f"[{', '.join(_scalar(storable(item, key)) for item in value)}]"


def _as_read(value: Value) -> Read:
    """What a value is when it is read back."""
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, int) else list(value)


def _scalar(text: str) -> str:
    """Bare where every parser reads the very same text, else between double quotes."""
    if _BARE.fullmatch(text) and not _WORDS_OF_YAML.fullmatch(text):
        return text
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}")


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
        raise Broken("it is UTF-16: save it as UTF-8")
    mark = _MARK if raw.startswith(_MARK) else b""
    opening = _OPENING.match(raw, len(mark))
    if opening is None:
        body = raw[len(mark) :]
        return _Parts(mark, b"", None, b"", body, _newline_of(body))
    closing = _CLOSING.search(raw, opening.end())
    if closing is None:
        raise Broken("the front matter is never closed: end it with a line of ---")
    if closing.start() - opening.end() > MOST_BYTES:
        raise Broken(f"the front matter has more than {MOST_BYTES} bytes: shorten it")
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
    first = _BREAK.search(body)
    return "\n" if first is None else first[0].decode()


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Broken(f"it is not UTF-8 ({error.reason}): save it as UTF-8") from None


def _content(parts: _Parts) -> str:
    body = parts.body
    if parts.front is not None and (empty := _BREAK.match(body)):
        body = body[empty.end() :]
    return _decoded(body[:-2] if body.endswith(b"\r\n") else body.removesuffix(b"\n"))
