"""Parse and write git's objects: commits, tags, trees and packs."""

from __future__ import annotations

import codecs
import hashlib
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple

KINDS = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}
_BY_REFERENCE = 7
LONGEST_CHAIN = 40
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


class TreeEntry(NamedTuple):
    """An entry of a tree, with ``mode`` as the tree spells it."""

    mode: bytes
    name: bytes
    id: bytes

    @property
    def is_tree(self) -> bool:
        return self.mode.lstrip(b"0") == b"40000"

    def raw(self) -> bytes:
        return b"%s %s\0%s" % self


def entries(raw: bytes, id_size: int) -> Iterator[TreeEntry]:
    pattern = _ENTRY[id_size]
    place = 0
    while place < len(raw):
        found = pattern.match(raw, place)
        if found is None:
            raise ValueError("this is no tree")
        place = found.end()
        yield TreeEntry(found[1], found[2], found[3])


_ENTRY = {
    size: re.compile(rb"([0-7]{1,7}) ([^\0]+)\0(.{%d})" % size, re.DOTALL) for size in (20, 32)
}


# Without going back: a tree has thousands of entries, and each is read one way only.
_WHOLE = {
    size: re.compile(rb"(?:[0-7]{1,7}+ [^\0]++\0.{%d})*+" % size, re.DOTALL) for size in (20, 32)
}


def places(raw: bytes, name: bytes, id_size: int) -> Iterator[tuple[int, TreeEntry]]:
    """Where entries of this name are, without taking the whole tree apart.

    The same bytes may be inside another name or id: an entry begins where whole ones end.
    """
    key = b" " + name + b"\0"
    at = raw.find(key)
    while at >= 0:
        for start in range(max(at - 7, 0), at):
            found = _ENTRY[id_size].match(raw, start)
            if found and found[2] == name and _WHOLE[id_size].fullmatch(raw, 0, start):
                yield start, TreeEntry(found[1], found[2], found[3])
        at = raw.find(key, at + 1)


def tree_of(found: Iterable[TreeEntry]) -> bytes:
    """In git's order, in which a folder is sorted as if its name ended with a slash."""
    order = sorted(found, key=lambda entry: entry.name + (b"/" if entry.is_tree else b""))
    return b"".join(entry.raw() for entry in order)


class PackWriter:
    """Writes objects to a pack file that ``git index-pack`` reads and checks.

    Versions of one folder differ little, so each is written as a delta of the one before it.
    """

    def __init__(self, file: IO[bytes], hash_name: str) -> None:
        self._file = file
        self._hash_name = hash_name
        self._known: set[bytes] = set()
        self._last: dict[bytes, tuple[bytes, bytes, int]] = {}
        file.write(b"PACK" + struct.pack(">II", 2, 0))

    def __len__(self) -> int:
        return len(self._known)

    def id_of(self, kind: bytes, content: bytes) -> bytes:
        return bytes.fromhex(object_id(kind, content, self._hash_name))

    def add(self, kind: bytes, content: bytes, *, like: bytes | None = None) -> bytes:
        """The object's id; ``like`` names the line of versions that it belongs to."""
        found = self.id_of(kind, content)
        if found in self._known:
            return found
        self._known.add(found)
        line = None if like is None else self._last.get(like)
        base, before, length = line or (b"", b"", LONGEST_CHAIN)
        change = delta(before, content) if length < LONGEST_CHAIN else None
        if change is None:
            length = 0
            self._file.write(_size(KINDS[kind], len(content)))
            self._file.write(zlib.compress(content, 1))
        else:
            length += 1
            self._file.write(_size(_BY_REFERENCE, len(change)) + base)
            self._file.write(zlib.compress(change, 1))
        if like is not None:
            self._last[like] = (found, content, length)
        return found

    def finish(self) -> None:
        """Now that the number of objects is known; then the sum over all."""
        self._file.seek(8)
        self._file.write(struct.pack(">I", len(self._known)))
        self._file.seek(0)
        whole = hashlib.new(self._hash_name, usedforsecurity=False)
        while piece := self._file.read(1 << 20):
            whole.update(piece)
        self._file.write(whole.digest())
        self._file.flush()
        self._file.seek(0)


def _size(kind: int, size: int) -> bytes:
    first = kind << 4 | size & 15
    rest = size >> 4
    return bytes((first | 128,)) + _number(rest) if rest else bytes((first,))


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def delta(base: bytes, new: bytes) -> bytes | None:
    """From one text to another that begins and ends alike; None where that saves little."""
    most = min(len(base), len(new))
    head = _alike(most, lambda low, high: base[low:high] == new[low:high])
    last, end = len(base), len(new)
    tail = _alike(
        most - head,
        lambda low, high: base[last - high : last - low] == new[end - high : end - low],
    )
    middle = new[head : len(new) - tail]
    if not new or len(middle) * 2 > len(new):
        return None
    out = [_number(len(base)), _number(len(new)), *_copies(0, head)]
    for start in range(0, len(middle), 127):
        piece = middle[start : start + 127]
        out.append(bytes((len(piece),)) + piece)
    return b"".join([*out, *_copies(len(base) - tail, tail)])


def _alike(most: int, equal: Callable[[int, int], bool]) -> int:
    """The greatest size up to which both are equal; what was compared is not compared again."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if equal(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _copies(start: int, size: int) -> Iterator[bytes]:
    while size:
        part = min(size, 0xFFFFFF)
        yield b"\xff" + struct.pack("<I", start) + struct.pack("<I", part)[:3]
        start += part
        size -= part
