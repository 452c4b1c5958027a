"""Inserts memories into the JSON of a chat request without rewriting the rest of it.

The body is parsed once, together with the offsets of everything that may change; a change inserts
or cuts text there. Nothing is serialized again, so that numbers, escapes, whitespace, the order of
keys and duplicate keys reach the upstream as the client sent them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Any, NamedTuple

MEMORY_FIELD_PREFIX = "memory_"
"""The prefix of the fields that a client sends to Reverie; the upstream never sees them."""
SYSTEM_ROLES = frozenset({"system", "developer"})

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_scan = json.JSONDecoder().raw_decode


class MalformedBody(ValueError):
    """Raised for a body that is not a JSON object in UTF-8."""


class JsonMember(NamedTuple):
    """One member of an object: the offset of its key, and start and end of its value."""

    name: str
    key: int
    start: int
    end: int
    value: Any


class MessageSpan(NamedTuple):
    """A message and the place of its content; of duplicate keys the last one counts."""

    start: int
    message: dict[str, Any]
    content: JsonMember | None

    @property
    def role(self) -> object:
        return self.message.get("role")

    @property
    def has_text(self) -> bool:
        return self.content is not None and isinstance(self.content.value, str | list)


class TextEdit(NamedTuple):
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A parsed chat request."""

    text: str = field(repr=False)
    members: tuple[JsonMember, ...]
    fields: dict[str, Any]
    messages: tuple[MessageSpan, ...]
    """Empty when the request has none that could be read as messages."""

    @property
    def history(self) -> list[dict[str, Any]]:
        return [span.message for span in self.messages]

    def with_memory(self, profile: str = "", recalled: str = "") -> bytes:
        """Return the bytes for the upstream, without Reverie's fields and with these two texts."""
        edits = _cut_memory_fields(self.members)
        if self.messages and profile:
            edits.append(_insert_profile(self.messages[0], profile.strip("\n")))
        if recalled:
            edits += _insert_recalled(self.messages, recalled.strip("\n"))
        return _apply_edits(self.text, edits).encode()


def parse_request(raw: bytes) -> ChatRequest:
    """Parse a request; raise MalformedBody with the reason if it is not a JSON object."""
    try:
        text = raw.decode()
        start = _skip_whitespace(text, 0)
        members, end = _scan_object(text, start)
        if _skip_whitespace(text, end) != len(text):
            raise MalformedBody("there is something after the JSON object")
        fields = {member.name: member.value for member in members}
        return ChatRequest(text, tuple(members), fields, _scan_messages(text, members))
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: {error.reason}") from error
    except JSONDecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error.msg} at offset {error.pos}") from error
    except RecursionError as error:
        raise MalformedBody("the body is nested too deeply") from error
    except ValueError as error:
        if isinstance(error, MalformedBody):
            raise
        raise MalformedBody(f"the body is not JSON: {error}") from error


def add_member(raw: bytes, name: str, value: Any) -> bytes:
    """Add a member at the end of a JSON object; anything else is returned unchanged."""
    try:
        body = parse_request(raw)
    except MalformedBody:
        return raw
    end = body.text.rindex("}")
    comma = ", " if body.members else ""
    member = f"{comma}{json.dumps(name)}: {json.dumps(value)}"
    return _apply_edits(body.text, [TextEdit(end, end, member)]).encode()


# -- edits ----------------------------------------------------------------------------------------


def _insert_profile(first: MessageSpan, profile: str) -> TextEdit:
    """Insert at the end of the system prompt; without one, as a new first message."""
    content = first.content
    if first.role not in SYSTEM_ROLES or content is None or not first.has_text:
        message = {"role": "system", "content": profile}
        return TextEdit(first.start, first.start, json.dumps(message) + ", ")
    end = content.end - 1
    if isinstance(content.value, str):
        separator = "\n\n" if content.value else ""
        return TextEdit(end, end, _escape_string(separator + profile))
    return TextEdit(end, end, (", " if content.value else "") + _text_part(profile))


def _insert_recalled(messages: Sequence[MessageSpan], recalled: str) -> list[TextEdit]:
    """Insert before the last text of the user, even if tool results follow it."""
    from_user = [span for span in messages if span.role == "user" and span.has_text]
    content = from_user[-1].content if from_user else None
    if content is None:
        return []
    start = content.start + 1
    if isinstance(content.value, str):
        return [TextEdit(start, start, _escape_string(recalled + "\n\n"))]
    return [TextEdit(start, start, _text_part(recalled) + (", " if content.value else ""))]


def _escape_string(text: str) -> str:
    """Return the text as JSON writes it between the quotes of a string."""
    return json.dumps(text)[1:-1]


def _text_part(text: str) -> str:
    return json.dumps({"type": "text", "text": text})


def _cut_memory_fields(members: Sequence[JsonMember]) -> list[TextEdit]:
    """Return the cuts that remove Reverie's fields, each run of them with one comma."""
    cuts: list[TextEdit] = []
    at = 0
    while at < len(members):
        if not members[at].name.startswith(MEMORY_FIELD_PREFIX):
            at += 1
            continue
        first = at
        while at < len(members) and members[at].name.startswith(MEMORY_FIELD_PREFIX):
            at += 1
        if at < len(members):
            cuts.append(TextEdit(members[first].key, members[at].key, ""))
        else:
            start = members[first - 1].end if first else members[first].key
            cuts.append(TextEdit(start, members[-1].end, ""))
    return cuts


def _apply_edits(text: str, edits: Sequence[TextEdit]) -> str:
    parts, at = [], 0
    for edit in sorted(edits):
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


# -- parsing --------------------------------------------------------------------------------------


def _scan_messages(text: str, members: Sequence[JsonMember]) -> tuple[MessageSpan, ...]:
    found = [member for member in members if member.name == "messages"]
    if not found or not isinstance(found[-1].value, list):
        return ()
    if not all(isinstance(message, dict) for message in found[-1].value):
        return ()
    spans = []
    at = _skip_whitespace(text, found[-1].start + 1)
    for _ in found[-1].value:
        members_here, end = _scan_object(text, at)
        contents = [member for member in members_here if member.name == "content"]
        message = {member.name: member.value for member in members_here}
        spans.append(MessageSpan(at, message, contents[-1] if contents else None))
        at = _skip_whitespace(text, _skip_whitespace(text, end) + 1)
    return tuple(spans)


def _scan_object(text: str, at: int) -> tuple[list[JsonMember], int]:
    """Return the members of the object that starts at ``at``, and the offset after it."""
    if text[at : at + 1] != "{":
        raise MalformedBody("the body is not a JSON object")
    members: list[JsonMember] = []
    at = _skip_whitespace(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        key = at
        if text[at : at + 1] != '"':
            raise JSONDecodeError("a key is missing", text, at)
        name, at = _scan(text, at)
        at = _skip_whitespace(text, at)
        if text[at : at + 1] != ":":
            raise JSONDecodeError("':' is missing", text, at)
        start = _skip_whitespace(text, at + 1)
        value, end = _scan(text, start)
        members.append(JsonMember(name, key, start, end, value))
        at = _skip_whitespace(text, end)
        if text[at : at + 1] == "}":
            return members, at + 1
        if text[at : at + 1] != ",":
            raise JSONDecodeError("',' is missing", text, at)
        at = _skip_whitespace(text, at + 1)


def _skip_whitespace(text: str, at: int) -> int:
    found = _WHITESPACE.match(text, at)
    assert found is not None
    return found.end()
