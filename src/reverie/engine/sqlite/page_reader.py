"""Reads rows directly from the pages of a damaged SQLite file, without its b-trees.

Where a b-tree is broken, SQL does not find the rows after the break. Rows of sealed tables can be
found all the same: a record begins with a list of its columns' types, so whatever looks like one is
decoded, and its seal tells whether it is a row. That makes it safe to search everywhere: every page
of the file and of its write-ahead log, whose newer pages replace older ones.

See https://www.sqlite.org/fileformat2.html for records, overflow pages and the write-ahead log.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reverie.engine import seals

# The serial type of a text of 22 bytes: a hash (see engine/seals.py).
HASH_TYPE = b"\x39"
_INT = rb"[\x01-\x06\x08\x09]"
_ANY = rb"(?:[\x80-\xff]{0,8}[\x00-\x7f])"
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_FRAME_HEADER_SIZE, _WAL_HEADER_SIZE = 24, 32
DEFAULT_PAGE_SIZE = 4096


def _row_pattern(ints: int, others: int) -> re.Pattern[bytes]:
    """Matches the start of a record of ``ints`` integers, ``others`` of any type, and a seal."""
    columns = _INT * ints + _ANY * others + HASH_TYPE
    return re.compile(rb"(?s)(?=[\x04-\x7f]" + columns + rb")")


# The records of each sealed table.
ENTRY_PATTERN = _row_pattern(3, len(seals.ENTRY_COLUMNS) - 4)
HEAD_PATTERN = _row_pattern(5, 1)
SPACE_PATTERN = _row_pattern(1, 1)
OWNER_PATTERN = _row_pattern(2, 1)
STATE_PATTERN = _row_pattern(2, 7)


class PageReader:
    """The pages of a file as of its last committed transaction, and older versions of them."""

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
        """The page size of the header if it fits the file's size: the header may be damaged."""
        size = int.from_bytes(self._data[16:18], "big")
        size = 65536 if size == 1 else size
        if 512 <= size <= 65536 and size & (size - 1) == 0:
            pages = int.from_bytes(self._data[28:32], "big")
            if pages * size == len(self._data):
                return size
        return DEFAULT_PAGE_SIZE

    def _read_wal(self, wal: bytes) -> None:
        """Let committed frames replace pages; frames with wrong checksums are only searched."""
        has_magic = wal[:4] in (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
        order = ">" if wal[3:4] == b"\x83" else "<"
        sums = _wal_checksum(wal[:24], (0, 0), order) if has_magic else (0, 0)
        valid = has_magic and sums == struct.unpack(">II", wal[24:32])
        uncommitted: dict[int, bytes] = {}
        for at in range(
            _WAL_HEADER_SIZE,
            len(wal) - self.size - _FRAME_HEADER_SIZE + 1,
            self.size + _FRAME_HEADER_SIZE,
        ):
            begin = at + _FRAME_HEADER_SIZE
            header, page = wal[at:begin], wal[begin : begin + self.size]
            if valid:
                sums = _wal_checksum(page, _wal_checksum(header[:8], sums, order), order)
                valid = header[8:16] == wal[16:24] and sums == struct.unpack(">II", header[16:24])
            if not valid:
                self._others.append(page)
                continue
            number, committed = struct.unpack(">II", header[:8])
            uncommitted[number] = page
            if committed:
                self._newer |= uncommitted
                uncommitted = {}
        self._others += uncommitted.values()

    def page(self, number: int) -> bytes:
        """The current content of a page, numbered from 1."""
        if number in self._newer:
            return self._newer[number]
        return self._data[(number - 1) * self.size : number * self.size]

    def _page_versions(self) -> Iterator[bytes]:
        count = -(-len(self._data) // self.size)
        for number in range(1, max([count, *self._newer]) + 1):
            yield self.page(number)
        yield from self._others
        # The older versions in the file of pages that the write-ahead log replaces.
        for number in self._newer:
            yield self._data[(number - 1) * self.size : number * self.size]

    def rows(self, looks: re.Pattern[bytes], columns: int) -> Iterator[tuple[Any, ...]]:
        """Yield everything that decodes as a record of ``columns`` columns; not all are rows."""
        for page in self._page_versions():
            for match in looks.finditer(page):
                row = self._row(page, match.start(), columns)
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
        """The bytes of a record, including those on overflow pages."""
        usable = self._usable
        most, least = (usable - 12) * 64 // 255 - 23, (usable - 12) * 32 // 255 - 23
        if length <= most:
            record = page[at : at + length]
            return record if len(record) == length else None
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        parts, left = [page[at : at + local]], length - local
        next_page = int.from_bytes(page[at + local : at + local + 4], "big")
        visited = set[int]()
        while left > 0:
            more = self.page(next_page) if next_page else b""
            if next_page in visited or len(more) < usable:
                return None
            visited.add(next_page)
            parts.append(more[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
            next_page = int.from_bytes(more[:4], "big")
        return b"".join(parts)


def _wal_checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """The running checksum of a write-ahead log, continued over ``data``."""
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
