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

OWN = "memory_"
"""How what a client says to Reverie in the body begins; the upstream never sees it."""
SYSTEM_ROLES = frozenset({"system", "developer"})

_SPACE = re.compile(r"[ \t\n\r]*")
_scan = json.JSONDecoder().raw_decode


class Unreadable(ValueError):
    """A body that is no JSON object in UTF-8."""


class Member(NamedTuple):
    """One member of an object: where its key begins, and where its value lies."""

    name: str
    key: int
    start: int
    end: int
    value: Any


class Place(NamedTuple):
    """A message and where its content lies; the last of two keys with one name counts."""

    start: int
    message: dict[str, Any]
    content: Member | None

    @property
    def role(self) -> object:
        return self.message.get("role")

    @property
    def holds_text(self) -> bool:
        return self.content is not None and isinstance(self.content.value, str | list)


class Edit(NamedTuple):
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Body:
    """A request, read."""

    text: str = field(repr=False)
    members: tuple[Member, ...]
    fields: dict[str, Any]
    messages: tuple[Place, ...]
    """Empty when the request has none that could be read as messages."""

    @property
    def history(self) -> list[dict[str, Any]]:
        return [place.message for place in self.messages]

    def with_memory(self, profile: str = "", recalled: str = "") -> bytes:
        """The bytes for the upstream: without our own fields, with these two where they belong."""
        edits = _cuts(self.members)
        if self.messages and profile:
            edits.append(_with_profile(self.messages[0], profile.strip("\n")))
        if recalled:
            edits += _with_recalled(self.messages, recalled.strip("\n"))
        return _edited(self.text, edits).encode()


def read(raw: bytes) -> Body:
    """Read a request, or say in what it is no JSON."""
    try:
        text = raw.decode()
        start = _skip(text, 0)
        members, end = _members(text, start)
        if _skip(text, end) != len(text):
            raise Unreadable("there is something behind the JSON object")
        fields = {member.name: member.value for member in members}
        return Body(text, tuple(members), fields, _places(text, members))
    except UnicodeDecodeError as error:
        raise Unreadable(f"the body is not UTF-8: {error.reason}") from error
    except JSONDecodeError as error:
        raise Unreadable(f"the body is not JSON: {error.msg} at place {error.pos}") from error
    except RecursionError as error:
        raise Unreadable("the body is nested too deeply") from error
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"the body is not JSON: {error}") from error


def with_member(raw: bytes, name: str, value: Any) -> bytes:
    """An object with one more member at its end; anything else as it is."""
    try:
        body = read(raw)
    except Unreadable:
        return raw
    end = body.text.rindex("}")
    comma = ", " if body.members else ""
    member = f"{comma}{json.dumps(name)}: {json.dumps(value)}"
    return _edited(body.text, [Edit(end, end, member)]).encode()


# -- where memory goes ----------------------------------------------------------------------------


def _with_profile(first: Place, profile: str) -> Edit:
    """At the end of the system prompt; without one, in a message of its own before all others."""
    content = first.content
    if first.role not in SYSTEM_ROLES or content is None or not first.holds_text:
        message = {"role": "system", "content": profile}
        return Edit(first.start, first.start, json.dumps(message) + ", ")
    end = content.end - 1
    if isinstance(content.value, str):
        between = "\n\n" if content.value else ""
        return Edit(end, end, _inside(between + profile))
    return Edit(end, end, (", " if content.value else "") + _part(profile))


def _with_recalled(messages: Sequence[Place], recalled: str) -> list[Edit]:
    """In front of what the user said last, whatever tools have answered since."""
    said = [place for place in messages if place.role == "user" and place.holds_text]
    content = said[-1].content if said else None
    if content is None:
        return []
    start = content.start + 1
    if isinstance(content.value, str):
        return [Edit(start, start, _inside(recalled + "\n\n"))]
    return [Edit(start, start, _part(recalled) + (", " if content.value else ""))]


def _inside(text: str) -> str:
    """The text as it stands between the quotes of a string."""
    return json.dumps(text)[1:-1]


def _part(text: str) -> str:
    return json.dumps({"type": "text", "text": text})


def _cuts(members: Sequence[Member]) -> list[Edit]:
    """Our own fields, each run of them with the comma that is one too many then."""
    cuts: list[Edit] = []
    at = 0
    while at < len(members):
        if not members[at].name.startswith(OWN):
            at += 1
            continue
        first = at
        while at < len(members) and members[at].name.startswith(OWN):
            at += 1
        if at < len(members):
            cuts.append(Edit(members[first].key, members[at].key, ""))
        else:
            start = members[first - 1].end if first else members[first].key
            cuts.append(Edit(start, members[-1].end, ""))
    return cuts


def _edited(text: str, edits: Sequence[Edit]) -> str:
    parts, at = [], 0
    for edit in sorted(edits):
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


# -- reading --------------------------------------------------------------------------------------


def _places(text: str, members: Sequence[Member]) -> tuple[Place, ...]:
    found = [member for member in members if member.name == "messages"]
    if not found or not isinstance(found[-1].value, list):
        return ()
    if not all(isinstance(message, dict) for message in found[-1].value):
        return ()
    places = []
    at = _skip(text, found[-1].start + 1)
    for _ in found[-1].value:
        held, end = _members(text, at)
        contents = [member for member in held if member.name == "content"]
        message = {member.name: member.value for member in held}
        places.append(Place(at, message, contents[-1] if contents else None))
        at = _skip(text, _skip(text, end) + 1)
    return tuple(places)


def _members(text: str, at: int) -> tuple[list[Member], int]:
    """The members of the object that begins here, and where it ends."""
    if text[at : at + 1] != "{":
        raise Unreadable("the body is not a JSON object")
    members: list[Member] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        key = at
        if text[at : at + 1] != '"':
            raise JSONDecodeError("a key is missing", text, at)
        name, at = _scan(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise JSONDecodeError("':' is missing", text, at)
        start = _skip(text, at + 1)
        value, end = _scan(text, start)
        members.append(Member(name, key, start, end, value))
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return members, at + 1
        if text[at : at + 1] != ",":
            raise JSONDecodeError("',' is missing", text, at)
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
