"""The bytes of a chat request, and where memory goes in. All other bytes stay as they came.

A body is read once, with the place of everything that may change; a change is an insertion or a cut
at such a place. Nothing is ever written anew, so that numbers, escapes, spaces, the order of keys
and keys that come twice reach the upstream as the client sent them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Any, NamedTuple

MEMORY_FIELD_PREFIX = "memory_"
"""How what a client says to Reverie in the body begins; the upstream never sees it."""
SYSTEM_ROLES = frozenset({"system", "developer"})

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_scan = json.JSONDecoder().raw_decode


class MalformedBody(ValueError):
    """A body that is no JSON object in UTF-8."""


class JsonMember(NamedTuple):
    """One member of an object: where its key begins, and where its value lies."""

    name: str
    key: int
    start: int
    end: int
    value: Any


class MessageSpan(NamedTuple):
    """A message and where its content lies; the last of two keys with one name counts."""

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
    """A request, read."""

    text: str = field(repr=False)
    members: tuple[JsonMember, ...]
    fields: dict[str, Any]
    messages: tuple[MessageSpan, ...]
    """Empty when the request has none that could be read as messages."""

    @property
    def history(self) -> list[dict[str, Any]]:
        return [place.message for place in self.messages]

    def with_memory(self, profile: str = "", recalled: str = "") -> bytes:
        """The bytes for the upstream: without our own fields, with these two where they belong."""
        edits = _cut_memory_fields(self.members)
        if self.messages and profile:
            edits.append(_insert_profile(self.messages[0], profile.strip("\n")))
        if recalled:
            edits += _insert_recalled(self.messages, recalled.strip("\n"))
        return _apply_edits(self.text, edits).encode()


def parse_request(raw: bytes) -> ChatRequest:
    """Read a request, or say in what it is no JSON."""
    try:
        text = raw.decode()
        start = _skip_whitespace(text, 0)
        members, end = _scan_object(text, start)
        if _skip_whitespace(text, end) != len(text):
            raise MalformedBody("there is something behind the JSON object")
        fields = {member.name: member.value for member in members}
        return ChatRequest(text, tuple(members), fields, _scan_messages(text, members))
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: {error.reason}") from error
    except JSONDecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error.msg} at place {error.pos}") from error
    except RecursionError as error:
        raise MalformedBody("the body is nested too deeply") from error
    except ValueError as error:
        if isinstance(error, MalformedBody):
            raise
        raise MalformedBody(f"the body is not JSON: {error}") from error


def add_member(raw: bytes, name: str, value: Any) -> bytes:
    """An object with one more member at its end; anything else as it is."""
    try:
        body = parse_request(raw)
    except MalformedBody:
        return raw
    end = body.text.rindex("}")
    comma = ", " if body.members else ""
    member = f"{comma}{json.dumps(name)}: {json.dumps(value)}"
    return _apply_edits(body.text, [TextEdit(end, end, member)]).encode()


# -- where memory goes ----------------------------------------------------------------------------


def _insert_profile(first: MessageSpan, profile: str) -> TextEdit:
    """At the end of the system prompt; without one, in a message of its own before all others."""
    content = first.content
    if first.role not in SYSTEM_ROLES or content is None or not first.has_text:
        message = {"role": "system", "content": profile}
        return TextEdit(first.start, first.start, json.dumps(message) + ", ")
    end = content.end - 1
    if isinstance(content.value, str):
        between = "\n\n" if content.value else ""
        return TextEdit(end, end, _escape_string(between + profile))
    return TextEdit(end, end, (", " if content.value else "") + _text_part(profile))


def _insert_recalled(messages: Sequence[MessageSpan], recalled: str) -> list[TextEdit]:
    """In front of what the user said last, whatever tools have answered since."""
    said = [place for place in messages if place.role == "user" and place.has_text]
    content = said[-1].content if said else None
    if content is None:
        return []
    start = content.start + 1
    if isinstance(content.value, str):
        return [TextEdit(start, start, _escape_string(recalled + "\n\n"))]
    return [TextEdit(start, start, _text_part(recalled) + (", " if content.value else ""))]


def _escape_string(text: str) -> str:
    """The text as it stands between the quotes of a string."""
    return json.dumps(text)[1:-1]


def _text_part(text: str) -> str:
    return json.dumps({"type": "text", "text": text})


def _cut_memory_fields(members: Sequence[JsonMember]) -> list[TextEdit]:
    """Our own fields, each run of them with the comma that is one too many then."""
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


# -- reading --------------------------------------------------------------------------------------


def _scan_messages(text: str, members: Sequence[JsonMember]) -> tuple[MessageSpan, ...]:
    found = [member for member in members if member.name == "messages"]
    if not found or not isinstance(found[-1].value, list):
        return ()
    if not all(isinstance(message, dict) for message in found[-1].value):
        return ()
    places = []
    at = _skip_whitespace(text, found[-1].start + 1)
    for _ in found[-1].value:
        held, end = _scan_object(text, at)
        contents = [member for member in held if member.name == "content"]
        message = {member.name: member.value for member in held}
        places.append(MessageSpan(at, message, contents[-1] if contents else None))
        at = _skip_whitespace(text, _skip_whitespace(text, end) + 1)
    return tuple(places)


def _scan_object(text: str, at: int) -> tuple[list[JsonMember], int]:
    """The members of the object that begins here, and where it ends."""
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
