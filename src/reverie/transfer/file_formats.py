"""Parse the files that ``import`` accepts into records.

The formats are tried in this order: Reverie's own JSON lines, a JSON array (``export --format
array``, or any array of texts or objects), mem0's export, the memory.json of MCP's reference
server, plain lines. What cannot be read becomes an UnreadableRecord, so that the import can report
it.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any, TextIO

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from reverie.text.normalize import category_slug
from reverie.text.tags import MAX_TAG_CHARS, MAX_TAGS
from reverie.transfer.export import UnreadableRecord

Record = dict[str, Any]

_LIST_MARKER = re.compile(r"\A(?:[-*+•]|\d{1,3}[.)])(?:\s+|$)")
# The start of a text that was meant as JSON, unlike a line of text such as "[x] done".
_LOOKS_LIKE_JSON = re.compile(r"""\{|\[\s*(?:["{\[\]]|$)""", re.MULTILINE)
# Bytes that are not UTF-8, in a stream that was opened with errors="surrogateescape".
_RAW_BYTE = re.compile(r"[\udc80-\udcff]")
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
# A smaller number is taken as seconds: as milliseconds it would be before the spring of 1973.
_MIN_MILLISECONDS = 10**11
_LIST_KEYS = ("results", "memories")


def parse(stream: TextIO) -> Iterator[Record | UnreadableRecord]:
    """Yield records for ``Space.import_records``, and an UnreadableRecord for what is none.

    JSON lines and plain lines are read one at a time, any other JSON as a whole.
    """
    lines = _lines(stream)
    for first in lines:
        if not isinstance(first, UnreadableRecord):
            yield from _parse_layout(first, lines)
            return
        yield first


# -- the layout of the file -----------------------------------------------------------------------

Line = tuple[int, str]


def _parse_layout(
    first: Line, lines: Iterator[Line | UnreadableRecord]
) -> Iterator[Record | UnreadableRecord]:
    number, text = first
    if text[:1] not in {"{", "["}:
        yield from _plain_lines(chain([first], lines))
        return
    value = _decode(text)
    if not isinstance(value, _NotJson):
        yield from _from_value(value, f"line {number}")
        yield from _json_lines(lines)
        return
    yield from _parse_document(chain([first], lines))


def _lines(stream: TextIO) -> Iterator[Line | UnreadableRecord]:
    """Yield number and stripped text of every line that is not blank."""
    number = 0
    try:
        for number, line in enumerate(stream, 1):
            if number == 1 and line.startswith(_UTF_16):
                yield UnreadableRecord("the file", "it is UTF-16 text: convert it to UTF-8 first")
                return
            if "\0" in line:
                yield UnreadableRecord(
                    "the file", f"line {number} is not text: nothing after it is read"
                )
                return
            text = line.removeprefix("\ufeff").strip()
            if _RAW_BYTE.search(text):
                yield UnreadableRecord(f"line {number}", "not UTF-8 text: convert it first")
            elif text:
                yield number, text
    except UnicodeDecodeError:
        yield UnreadableRecord(f"after line {number}", "not UTF-8 text: convert it first")


def _plain_lines(lines: Iterable[Line | UnreadableRecord]) -> Iterator[Record | UnreadableRecord]:
    for line in lines:
        if isinstance(line, UnreadableRecord):
            yield line
            continue
        number, text = line
        value = _decode(text) if text.startswith("{") else None
        if isinstance(value, dict):
            yield from _from_value(value, f"line {number}")
        elif content := _LIST_MARKER.sub("", text, count=1).strip():
            yield {"content": content}


def _json_lines(lines: Iterable[Line | UnreadableRecord]) -> Iterator[Record | UnreadableRecord]:
    for line in lines:
        if isinstance(line, UnreadableRecord):
            yield line
            continue
        number, text = line
        value = _decode(text)
        if isinstance(value, _NotJson):
            yield UnreadableRecord(f"line {number}", f"not valid JSON ({value.why})")
        else:
            yield from _from_value(value, f"line {number}")


def _parse_document(
    lines: Iterable[Line | UnreadableRecord],
) -> Iterator[Record | UnreadableRecord]:
    """Parse a file whose first line looks like JSON and is not valid JSON by itself.

    It is one JSON document, or JSON lines with a broken first line, or plain lines.
    """
    all_lines = list(lines)
    readable = [line for line in all_lines if not isinstance(line, UnreadableRecord)]
    text = "\n".join(text for _, text in readable)
    value = _decode(text)
    if not isinstance(value, _NotJson):
        yield from (line for line in all_lines if isinstance(line, UnreadableRecord))
        yield from _from_value(value, "")
    elif any(isinstance(_decode(text), dict) for _, text in readable if text.startswith("{")):
        yield from _json_lines(all_lines)
    elif _LOOKS_LIKE_JSON.match(text):
        yield UnreadableRecord("the file", f"not valid JSON ({value.why})")
    else:
        yield from _plain_lines(all_lines)


class _NotJson:
    """The result of decoding a text that is not JSON."""

    def __init__(self, why: str) -> None:
        self.why = why


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        return _NotJson(f"{error.msg} at line {error.lineno}, column {error.colno}")
    except RecursionError:
        return _NotJson("nested too deeply")
    except ValueError as error:
        return _NotJson(str(error))


# -- from JSON values to records ------------------------------------------------------------------


def _from_value(value: Any, place: str) -> Iterator[Record | UnreadableRecord]:
    if isinstance(value, list):
        for number, item in enumerate(value, 1):
            yield from _from_item(item, _within(place, f"item {number}"))
    elif not isinstance(value, dict):
        yield from _from_item(value, place or "the file")
    else:
        names = [name for name in _LIST_KEYS if isinstance(value.get(name), list)]
        for name in names:
            for number, item in enumerate(value[name], 1):
                yield from _from_item(item, _within(place, f"item {number} of {name}"))
        if "entities" in value or value.get("relations"):
            yield from _from_graph(value, place)
        elif not names and not (value.keys() == {"relations"} and value["relations"] == []):
            yield from _from_item(value, place or "the file")


def _from_item(item: Any, place: str) -> Iterator[Record | UnreadableRecord]:
    if isinstance(item, str):
        yield {"content": item} if item.strip() else UnreadableRecord(place, "it is blank")
        return
    if not isinstance(item, dict):
        yield UnreadableRecord(place, f"neither text nor an object but {json.dumps(item)[:40]}")
        return
    if "reverie" in item:
        yield item
        return
    try:
        yield from _model_for(item).model_validate(item).records()
    except ValidationError as error:
        yield UnreadableRecord(place, _validation_message(error))


def _from_graph(value: Record, place: str) -> Iterator[Record | UnreadableRecord]:
    """Yield the records of an object with the entities and relations of MCP's reference server."""
    for name, kind in (("entities", "entity"), ("relations", "relation")):
        items = value.get(name) or []
        if not isinstance(items, list):
            yield UnreadableRecord(_within(place, name), "it must be an array")
            continue
        for number, item in enumerate(items, 1):
            where = _within(place, f"item {number} of {name}")
            typed = {**item, "type": kind} if isinstance(item, dict) else item
            yield from _from_item(typed, where)


def _model_for(item: Record) -> type[_RecordModel]:
    if item.get("type") == "entity" and "name" in item:
        return _Entity
    if item.get("type") == "relation" and "relationType" in item:
        return _McpRelation
    return _Mem0 if "memory" in item and "content" not in item else _Object


def _within(place: str, part: str) -> str:
    return f"{place}, {part}" if place else part


def _validation_message(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}" if where else first["msg"]


# -- the objects of each format -------------------------------------------------------------------


def _as_time(value: Any) -> Any:
    """Convert a number to ISO 8601; a text stays, since the import parses it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    seconds = value / 1000 if abs(value) >= _MIN_MILLISECONDS else value
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{value} is no time") from error


def _as_list(value: Any) -> Any:
    """Split a text at its commas, since many exports write tags as one text."""
    if value is None:
        return []
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Time = Annotated[str | None, BeforeValidator(_as_time)]
TextList = Annotated[list[str], BeforeValidator(_as_list)]


class _RecordModel(BaseModel, ABC, extra="ignore"):
    """An object of one of the formats."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Yield the records that the object stands for."""


class _Object(_RecordModel):
    """An element of ``export --format array``, and any object with a content."""

    content: str = Field(validation_alias=AliasChoices("content", "text"))
    kind: str | None = None
    category: str | None = None
    subject: str | None = None
    tags: TextList = []
    source: str | None = None
    pinned: bool = False
    created_at: Time = None
    valid_from: Time = None
    valid_to: Time = None
    metadata: dict[str, Any] = {}

    def records(self) -> Iterator[Record]:
        yield self.model_dump(exclude_defaults=True)


class _Mem0(_RecordModel):
    """One memory of mem0's get_all, search or export."""

    memory: str
    metadata: dict[str, Any] | None = None
    categories: TextList = []
    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    created_at: Time = None

    def records(self) -> Iterator[Record]:
        metadata = dict(self.metadata or {})
        category, source = metadata.pop("category", None), metadata.pop("source", None)
        given = _as_list(metadata.pop("tags", None))
        tags = [*(given if isinstance(given, list) else [given]), *self.categories]
        if not isinstance(category, str) or not category.strip():
            category = self.categories[0] if self.categories else None
        for name in ("user_id", "agent_id", "run_id"):
            if (value := getattr(self, name)) is not None:
                metadata.setdefault(name, value)
        record: Record = {"content": self.memory, "source": "mem0"}
        if metadata:
            record["metadata"] = metadata
        if isinstance(source, str) and source.strip():
            record["source"] = source
        if category:
            record["category"] = category
        if valid := list(dict.fromkeys(tag for tag in tags if _is_tag(tag) and tag != category)):
            record["tags"] = valid[:MAX_TAGS]
        if self.created_at is not None:
            record["created_at"] = self.created_at
        yield record


class _Entity(_RecordModel):
    """An entity of MCP's reference server: each observation is a fact about it."""

    name: str
    entity_type: str = Field("", alias="entityType")
    observations: list[str] = []

    def records(self) -> Iterator[Record]:
        entity = {"subject": self.name, "category": category_slug(self.entity_type)}
        contents = self.observations or [f"{self.name} is of type {self.entity_type or 'entity'}"]
        for content in contents:
            yield {"content": content, **entity}


class _McpRelation(_RecordModel):
    """A relation of MCP's reference server."""

    start: str = Field(alias="from")
    to: str
    relation_type: str = Field(alias="relationType")

    def records(self) -> Iterator[Record]:
        content = f"{self.start} {self.relation_type} {self.to}"
        yield {"content": content, "subject": self.start, "category": "relation"}


def _is_tag(value: Any) -> bool:
    return (
        isinstance(value, str) and 0 < len(value.strip()) <= MAX_TAG_CHARS and value.isprintable()
    )
