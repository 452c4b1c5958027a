"""The keys of front matter: what each says, as text, and where it stands.

Nothing is made of a value but text: a number, a date and ``no`` stay what was written. Tags are
not obeyed and aliases not followed, so that no file can run anything or grow when it is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from reverie.text.normalise import SURROGATE, one_line

Read = str | list[str]

_MOST_DEPTH = 16
_MOST_SHOWN = 60
# YAML is read behind the line that opens it, so that nothing in it can be a directive or a mark.
_HEAD = "---\n"
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
# Possessive: a carriage return is also part of a comment, and every line would have two readings.
_NOTHING = re.compile(r"(?:[ \t]*+(?:#[^\n]*+)?+\r?\n)*+")
_NOT_A_LINE = "a key of the front matter has no line of its own: write 'key: value' on each line"
_BEGINNINGS = (yaml.StreamStartEvent, yaml.DocumentStartEvent)


class Broken(Exception):
    """A file that cannot be understood: why, and what a person can do."""


@dataclass(frozen=True)
class Entry:
    """A key and its value, and where they stand; None for what is not text or a list of it."""

    key: str
    value: Read | None
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Front:
    """The text between the two lines of ``---``, and what was found in it."""

    text: str
    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def fields(self) -> dict[str, Read]:
        """The last entry of each key, where that could be read."""
        last = {entry.key: entry.value for entry in self.entries}
        return {key: value for key, value in last.items() if value is not None}

    def unread(self) -> tuple[str, ...]:
        read = self.fields()
        return tuple(dict.fromkeys(entry.key for entry in self.entries if entry.key not in read))


def read(text: str) -> Front:
    """The entries of front matter, or Broken."""
    if "\ufeff" in text:  # to one parser part of a key, to another nothing
        raise Broken("the front matter holds an invisible mark (U+FEFF): remove it")
    front = Front(text)
    try:
        # Parsers differ about tabs. As one space each, all places stay what they are.
        _read_entries(front, yaml.parse(_HEAD + text.replace("\t", " "), Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f" in line {mark.line + 1}"
        said = one_line(error.problem or "it cannot be read")
        raise Broken(f"the front matter is no YAML ({said}{line}): quote the value") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's own scanner lets escapes beyond Unicode fail as they like.
        said = one_line(str(error))
        raise Broken(f"the front matter is no YAML ({said}): mend it") from None
    _check_between(front)
    front.problems.extend(_doubles(front))
    if "\t" in text:
        front.problems.append("the front matter has tabs, which count as spaces")
    return front


def rewritten(
    front: Front,
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
    pieces: list[_Piece] = []
    for entry, end in zip(front.entries, ends, strict=False):
        below = min(_line_below(text, entry), end)
        own = text[entry.line : below]
        if entry.key in lines and last[entry.key] is entry:
            rest = entry.start + len(text[entry.start : entry.end].rstrip())
            own = indent + lines[entry.key] + text[rest:below]
        elif entry.key in lines or entry.key in gone:
            own = ""
        pieces.append(_Piece(entry.key if own else "", own, text[below:end]))
    for key in (key for key in lines if key not in last):
        _insert(_Piece(key, indent + lines[key] + newline, ""), pieces, order)
    return head + "".join(piece.own + piece.tail for piece in pieces)


@dataclass
class _Piece:
    """The lines of one entry, and the comments and empty lines below it."""

    key: str
    own: str
    tail: str


def _insert(new: _Piece, pieces: list[_Piece], order: Sequence[str]) -> None:
    if new.key not in order:
        pieces.append(new)
        return
    earlier = order[: order.index(new.key)]
    ranks = [earlier.index(piece.key) if piece.key in earlier else -1 for piece in pieces]
    place = ranks.index(max(ranks)) + 1 if max(ranks, default=-1) >= 0 else 0
    if place:
        new.tail, pieces[place - 1].tail = pieces[place - 1].tail, ""
    pieces.insert(place, new)


def _line_below(text: str, entry: Entry) -> int:
    """Where the line after an entry begins; a block of text ends there already."""
    if text[entry.start : entry.end].endswith("\n"):
        return entry.end
    return text.find("\n", entry.end) + 1


def _check_between(front: Front) -> None:
    """Between entries stand only comments and empty lines, so that others can stand there too."""
    starts = [*(entry.line for entry in front.entries), len(front.text)]
    ends = [0, *(entry.end for entry in front.entries)]
    for start, end in zip(starts, ends, strict=True):
        if not _NOTHING.fullmatch(front.text, end, start):
            raise Broken(_NOT_A_LINE)


def _doubles(front: Front) -> Iterator[str]:
    times = Counter(entry.key for entry in front.entries)
    for key in (key for key, count in times.items() if count > 1):
        yield f"{_shown(key)} is there more than once: the last one counts"


def _read_entries(front: Front, events: Iterator[Any]) -> None:
    root: Any = next(event for event in events if not isinstance(event, _BEGINNINGS))
    if isinstance(root, yaml.MappingStartEvent) and not _is_marked(root):
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            front.entries.append(_read_entry(front, event, events))
    elif not isinstance(root, yaml.ScalarEvent) or _start_of(root) < _end_of(root):
        raise Broken("the front matter has no keys: write 'key: value' on each line")
    end: Any = next(events)
    if end.explicit or not isinstance(next(events), yaml.StreamEndEvent):
        raise Broken("the front matter is ended twice: remove '...' and '--- '")


def _read_entry(front: Front, event: Any, events: Iterator[Any]) -> Entry:
    start = _start_of(event) - len(_HEAD)
    line = front.text.rfind("\n", 0, start) + 1
    # Only what has lines of its own can be replaced without touching what stands beside it.
    if not isinstance(event, yaml.ScalarEvent) or front.text[line:start].strip(" \t"):
        raise Broken(_NOT_A_LINE)
    key = _text_of(event)
    found = _read_value(events)
    if found.marked or _is_marked(event):
        front.problems.append(f"{_shown(key)} has an anchor or a tag, which are not obeyed")
    if found.value is None:
        front.problems.append(f"{_shown(key)} is neither text nor a list of texts: it is not read")
    return Entry(key, found.value, line, start, found.end - len(_HEAD))


@dataclass
class _Found:
    value: Read | None
    end: int
    marked: bool


def _read_value(events: Iterator[Any]) -> _Found:
    texts: list[str] = []
    kinds: list[type] = []
    flows: list[bool] = []
    end, marked = 0, False
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise Broken("the front matter has an alias (*): write the value itself")
        if isinstance(event, yaml.CollectionStartEvent):
            marked = marked or _is_marked(event)
            kinds.append(type(event))
            flows.append(bool(event.flow_style))
            if len(flows) > _MOST_DEPTH:
                raise Broken("the front matter is nested too deeply: write plain keys and values")
            continue
        if isinstance(event, yaml.ScalarEvent):
            marked = marked or _is_marked(event)
            texts.append(_text_of(event))
            end = _end_of(event)
        elif flows.pop():  # brackets say where they end, a block ends with the last that is in it
            end = _end_of(event)
        if not flows:
            break
    if not kinds:
        return _Found(texts[0], end, marked)
    return _Found(texts if kinds == [yaml.SequenceStartEvent] else None, end, marked)


def _is_marked(event: Any) -> bool:
    return bool(event.anchor or event.tag)


def _start_of(event: Any) -> int:
    return int(event.start_mark.index)


def _end_of(event: Any) -> int:
    return int(event.end_mark.index)


def _text_of(event: Any) -> str:
    text: str = event.value
    if SURROGATE.search(text):
        raise Broken("the front matter holds half a character: remove it")
    return text


def _shown(key: str) -> str:
    return repr(one_line(key)[:_MOST_SHOWN])
