"""Parse git's commits and tags, and compute the ids of objects."""

from __future__ import annotations

import codecs
import hashlib
import re
from dataclasses import dataclass

_PERSON = re.compile(rb"^(?P<name>[^<\n]*?) ?<[^>]*+>(?: (?P<seconds>-?\d{1,12})\b)?")


def object_id(kind: bytes, content: bytes, hash_name: str) -> str:
    """Return the id of an object."""
    found = hashlib.new(hash_name, b"%s %d\0" % (kind, len(content)), usedforsecurity=False)
    found.update(content)
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class CommitOrTag:
    """A commit or a tag: header lines and a message. Encoding it gives the same bytes again."""

    headers: tuple[tuple[bytes, bytes], ...]
    message: bytes

    @classmethod
    def parse(cls, raw: bytes) -> CommitOrTag:
        head, _, message = raw.partition(b"\n\n")
        headers: list[tuple[bytes, bytes]] = []
        for line in head.split(b"\n"):
            if line.startswith(b" ") and headers:
                name, value = headers[-1]
                headers[-1] = (name, value + b"\n" + line)
            else:
                name, _, value = line.partition(b" ")
                headers.append((name, value))
        return cls(tuple(headers), message)

    def raw(self) -> bytes:
        head = b"".join(name + b" " + value + b"\n" for name, value in self.headers)
        return head + b"\n" + self.message

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]

    def one(self, name: bytes) -> bytes:
        return next(iter(self.all(name)), b"")

    def text(self) -> str:
        return self.message.decode(self._encoding(), _errors(self._encoding()))

    def encoded(self, text: str) -> bytes:
        try:
            return text.encode(self._encoding(), _errors(self._encoding()))
        except UnicodeEncodeError:
            return text.encode("utf-8", "replace")

    def _encoding(self) -> str:
        try:
            found = codecs.lookup(self.one(b"encoding").decode("ascii") or "utf-8")
        except (LookupError, UnicodeError, ValueError):
            return "utf-8"
        # Only what gives every byte back: others would change messages that nobody changed.
        return "iso8859-1" if found.name == "iso8859-1" else "utf-8"


def _errors(encoding: str) -> str:
    return "surrogateescape" if encoding == "utf-8" else "strict"


def person(value: bytes) -> tuple[str, int]:
    """Name and seconds of an author line, whatever is wrong with it."""
    found = _PERSON.match(value)
    if found is None:
        return value.decode("utf-8", "replace"), 0
    return found["name"].decode("utf-8", "replace"), int(found["seconds"] or 0)
