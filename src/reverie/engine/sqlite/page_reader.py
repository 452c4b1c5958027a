"""Rows read from the pages of a SQLite file, past everything that leads to them.

Where a b-tree is broken SQL finds nothing behind the break. Rows of the tables that are sealed can
be found all the same: each begins with a list of its columns' types, and whatever looks like one
is decoded and then proves itself by its seal. So it does no harm to look everywhere: at every page
of the file, and of its write-ahead log, whose newer pages take the place of older ones.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reverie.engine import seals

# A column of this type is a text of 22 bytes: a hash (see engine/seals.py).
HASH_TYPE = b"\x39"
_INT = rb"[\x01-\x06\x08\x09]"
_ANY = rb"(?:[\x80-\xff]{0,8}[\x00-\x7f])"
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_FRAME, _WAL = 24, 32
DEFAULT_PAGE_SIZE = 4096
# An entry: its header, what it says, and what proves it.
_ENTRY_COLUMNS = (
    len(seals.HEADER_COLUMNS.split(", ")) + len(seals.Erasable._fields) + len(seals.Seal._fields)
)


def _row_pattern(ints: int, others: int) -> re.Pattern[bytes]:
    """Where a row may begin: so many whole numbers, other columns, and a seal at the end."""
    columns = _INT * ints + _ANY * others + HASH_TYPE
    return re.compile(rb"(?s)(?=[\x04-\x7f]" + columns + rb")")


# The rows of each sealed table.
ENTRY_PATTERN = _row_pattern(3, _ENTRY_COLUMNS - 4)
HEAD_PATTERN = _row_pattern(5, 1)
SPACE_PATTERN = _row_pattern(1, 1)
OWNER_PATTERN = _row_pattern(2, 1)
STATE_PATTERN = _row_pattern(2, 7)


class PageReader:
    """The pages of a file as its last committed transaction left them, and older ones."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        beside = path.with_name(path.name + "-wal")
        wal = beside.read_bytes() if beside.is_file() else b""
        self.size = self._page_size()
        reserved = self._data[20] if len(self._data) > 20 else 0
        self._usable = self.size - (reserved if reserved <= 32 else 0)
        self._newer: dict[int, bytes] = {}
        self._others: list[bytes] = []
        self._read_wal(wal)

    def _page_size(self) -> int:
        """As the header says, if the file agrees: it may be the header that was changed."""
        size = int.from_bytes(self._data[16:18], "big")
        size = 65536 if size == 1 else size
        if 512 <= size <= 65536 and size & (size - 1) == 0:
            pages = int.from_bytes(self._data[28:32], "big")
            if pages * size == len(self._data):
                return size
        return DEFAULT_PAGE_SIZE

    def _read_wal(self, wal: bytes) -> None:
        """Take over committed frames; what no checksum vouches for only proves itself by rows."""
        begun = wal[:4] in (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
        order = ">" if wal[3:4] == b"\x83" else "<"
        sums = _wal_checksum(wal[:24], (0, 0), order) if begun else (0, 0)
        valid = begun and sums == struct.unpack(">II", wal[24:32])
        waiting: dict[int, bytes] = {}
        for at in range(_WAL, len(wal) - self.size - _FRAME + 1, self.size + _FRAME):
            head, page = wal[at : at + _FRAME], wal[at + _FRAME : at + _FRAME + self.size]
            if valid:
                sums = _wal_checksum(page, _wal_checksum(head[:8], sums, order), order)
                valid = head[8:16] == wal[16:24] and sums == struct.unpack(">II", head[16:24])
            if not valid:
                self._others.append(page)
                continue
            number, committed = struct.unpack(">II", head[:8])
            waiting[number] = page
            if committed:
                self._newer |= waiting
                waiting = {}
        self._others += waiting.values()

    def page(self, number: int) -> bytes:
        if number in self._newer:
            return self._newer[number]
        return self._data[(number - 1) * self.size : number * self.size]

    def _images(self) -> Iterator[bytes]:
        count = -(-len(self._data) // self.size)
        for number in range(1, max([count, *self._newer]) + 1):
            yield self.page(number)
        yield from self._others
        # Where a page lies over an older one that still stands in the file.
        for number in self._newer:
            yield self._data[(number - 1) * self.size : number * self.size]

    def rows(self, looks: re.Pattern[bytes], columns: int) -> Iterator[tuple[Any, ...]]:
        """Whatever decodes as a row of so many columns. Most of it may be none."""
        for page in self._images():
            for found in looks.finditer(page):
                row = self._row(page, found.start(), columns)
                if row is not None:
                    yield row

    def _row(self, page: bytes, at: int, columns: int) -> tuple[Any, ...] | None:
        types, place, end = list[int](), at + 1, at + page[at]
        if end > len(page):
            return None
        while place < end:
            kind, place = _varint(page, place)
            types.append(kind)
        if place != end or len(types) != columns or 10 in types or 11 in types:
            return None
        sizes = [_SIZES[kind] if kind < 10 else (kind - 12) // 2 for kind in types]
        payload = self._payload(page, at, page[at] + sum(sizes))
        if payload is None:
            return None
        values, place = list[Any](), page[at]
        for kind, size in zip(types, sizes, strict=True):
            raw = payload[place : place + size]
            place += size
            try:
                values.append(_value(kind, raw))
            except UnicodeDecodeError:
                return None
        return tuple(values)

    def _payload(self, page: bytes, at: int, length: int) -> bytes | None:
        """The bytes of a record, with those that overflowed to other pages."""
        usable = self._usable
        most, least = (usable - 12) * 64 // 255 - 23, (usable - 12) * 32 // 255 - 23
        if length <= most:
            found = page[at : at + length]
            return found if len(found) == length else None
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        parts, left = [page[at : at + local]], length - local
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        seen = set[int]()
        while left > 0:
            more = self.page(following) if following else b""
            if following in seen or len(more) < usable:
                return None
            seen.add(following)
            parts.append(more[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
            following = int.from_bytes(more[:4], "big")
        return b"".join(parts)


def _wal_checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """The running checksum of a write-ahead log."""
    one, two = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        one = (one + words[at] + two) & 0xFFFFFFFF
        two = (two + words[at + 1] + one) & 0xFFFFFFFF
    return one, two


def _varint(page: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(at, min(at + 8, len(page))):
        value = value << 7 | page[place] & 0x7F
        if page[place] < 0x80:
            return value, place + 1
    return 1 << 62, len(page) + 1


def _value(kind: int, raw: bytes) -> Any:
    if kind == 0:
        return None
    if kind in (8, 9):
        return kind - 8
    if kind == 7:
        return struct.unpack(">d", raw)[0]
    if kind < 7:
        return int.from_bytes(raw, "big", signed=True)
    return raw.decode() if kind % 2 else raw
