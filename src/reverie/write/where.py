"""Parse ``where``: the conditions on memories that a recall or a listing takes, as JSON has them.

    {"category": "person"}
    {"metadata.team": {"in": ["a", "b"]}, "at": {"gte": "2026-01-01"}}
    {"AND": [{"kind": "fact"}, {"NOT": {"tags": {"contains": "old"}}}]}

An object is true when all of its keys are. ``AND`` and ``OR`` take a list of objects, ``NOT`` takes
one. Any other key is a field, with a value that it must equal or with an object of operators.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, cast

from reverie.dates import to_ms
from reverie.engine.conditions import (
    Comparison,
    Condition,
    Field,
    Group,
    Negation,
    Operand,
    Operator,
)
from reverie.errors import InvalidInput
from reverie.model import HIT_KINDS
from reverie.text.metadata import MAX_METADATA_BYTES, MAX_NAME_CHARS
from reverie.text.normalize import category_slug, require_length, require_utf8, subject_key

MAX_DEPTH: Final = 16
MAX_COMPARISONS: Final = 100
MAX_LISTED: Final = 500
# A recall compares memories and events, and SQLite takes 32,766 values in one statement.
MAX_OPERANDS: Final = 5_000
MAX_OPERAND_CHARS: Final = MAX_METADATA_BYTES

METADATA_PREFIX: Final = "metadata."
_RANGES: Final = ("gt", "gte", "lt", "lte")
OPERATORS: Final = ("eq", "ne", "in", "nin", *_RANGES, "contains")
# The operators of each field; those of metadata are all.
_FIELD_OPERATORS: Final[Mapping[str, tuple[str, ...]]] = {
    "kind": ("eq", "ne", "in", "nin"),
    "category": ("eq", "ne", "in", "nin", "contains"),
    "subject": ("eq", "ne", "in", "nin", "contains"),
    "tags": ("eq", "ne", "in", "nin", "contains"),
    "at": ("eq", "ne", "in", "nin", *_RANGES),
}


def parse_where(where: Mapping[str, Any] | None) -> Condition | None:
    """Parse conditions, or raise InvalidInput that names the wrong key or operator.

    None and an empty object accept everything.
    """
    if where is None:
        return None
    if not isinstance(where, Mapping):
        raise InvalidInput(f"where must be a JSON object, not {type(where).__name__}")
    parser = _Parser()
    return parser.parse(where, 1) if where else None


def parse_where_text(text: str) -> Mapping[str, Any]:
    """Decode the JSON of a ``where`` that is given as text."""
    try:
        where = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(
            f'where must be JSON such as {{"category": "person"}}, not {text[:60]!r}'
        ) from None
    if not isinstance(where, dict):
        raise InvalidInput(f"where must be a JSON object, not {text[:60]!r}")
    return where


class _Parser:
    def __init__(self) -> None:
        self._comparisons = 0
        self._operands = 0

    def parse(self, where: Any, depth: int) -> Condition:
        if not isinstance(where, Mapping) or not where:
            raise InvalidInput(
                f"where: a condition must be an object with a key, not {where!r:.60}"
            )
        if depth > MAX_DEPTH:
            raise InvalidInput(f"where is nested deeper than {MAX_DEPTH} levels: simplify it")
        return _all([self._parse_key(key, held, depth) for key, held in where.items()])

    def _parse_key(self, key: Any, held: Any, depth: int) -> Condition:
        if key in ("AND", "OR"):
            if not isinstance(held, list | tuple) or not held:
                raise InvalidInput(f"where: {key} must be a list of conditions, not {held!r:.60}")
            return Group(key, tuple(self.parse(part, depth + 1) for part in held))
        if key == "NOT":
            return Negation(self.parse(held, depth + 1))
        field, name = _parse_field(key)
        tests = held if isinstance(held, Mapping) else {"eq": held}
        if not tests:
            raise InvalidInput(f"where: {key} must have a value or an operator")
        return _all([self._compare(field, name, str(key), *test) for test in tests.items()])

    def _compare(self, field: Field, name: str, key: str, operator: Any, given: Any) -> Condition:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise InvalidInput(
                f"where has more than {MAX_COMPARISONS} comparisons: use the operator 'in'"
            )
        offered = _FIELD_OPERATORS.get(field, OPERATORS)
        if operator not in offered:
            raise InvalidInput(
                f"where: {key} has no operator {operator!r:.60}: use {', '.join(offered)}"
            )
        listed = [given]
        if operator in ("in", "nin"):
            if not isinstance(given, list | tuple) or not 0 < len(given) <= MAX_LISTED:
                raise InvalidInput(
                    f"where: {key} {operator} needs a list of 1 to {MAX_LISTED} values"
                )
            listed = list(given)
        self._operands += len(listed)
        if self._operands > MAX_OPERANDS:
            raise InvalidInput(f"where has more than {MAX_OPERANDS} values in all: ask for fewer")
        if operator in ("eq", "ne") and given is None and field in ("subject", "metadata"):
            missing = Comparison(field, "missing", (), name)
            return missing if operator == "eq" else Negation(missing)
        operands = tuple(_operand(field, f"{key} {operator}", value) for value in listed)
        if operator in _RANGES and isinstance(operands[0], bool):
            raise InvalidInput(f"where: {key} {operator} needs a number or a text")
        if operator in (*_RANGES, "contains"):
            return Comparison(field, cast(Operator, operator), operands, name)
        found = Comparison(field, "in", operands, name)
        return found if operator in ("eq", "in") else Negation(found)


def _all(conditions: list[Condition]) -> Condition:
    return conditions[0] if len(conditions) == 1 else Group("AND", tuple(conditions))


def _parse_field(key: Any) -> tuple[Field, str]:
    if isinstance(key, str) and key in _FIELD_OPERATORS:
        return cast(Field, key), ""
    if isinstance(key, str) and key.startswith(METADATA_PREFIX) and key != METADATA_PREFIX:
        name = require_utf8(key.removeprefix(METADATA_PREFIX), "where: a key of metadata")
        require_length(name, "where: a key of metadata", MAX_NAME_CHARS)
        if "\0" not in name:
            return "metadata", name
    fields = ", ".join(_FIELD_OPERATORS)
    raise InvalidInput(
        f"where: unknown key {key!r:.60}: use {fields}, metadata.NAME, AND, OR or NOT"
    )


def _operand(field: Field, where: str, value: Any) -> Operand:
    """Check a value and bring it into the form that the field is stored in."""
    if field == "at":
        if isinstance(value, float):
            raise InvalidInput(f"where: {where} must be a time, not {value!r}")
        return to_ms(value, f"where: {where}")
    if field == "metadata" and isinstance(value, bool):
        return value
    if field == "metadata" and isinstance(value, int | float):
        try:
            if math.isfinite(float(value)):
                return value
        except OverflowError:
            pass
        raise InvalidInput(f"where: {where} must be a finite number")
    if not isinstance(value, str):
        raise InvalidInput(f"where: {where} cannot be compared with {type(value).__name__}")
    return _text_operand(field, where, require_utf8(value, f"where: {where}"))


def _text_operand(field: Field, where: str, text: str) -> str:
    require_length(text, f"where: {where}", MAX_OPERAND_CHARS)
    if "\0" in text:
        raise InvalidInput(f"where: {where} holds the character U+0000: remove it")
    if where.endswith(" contains") and not text.strip():
        raise InvalidInput(f"where: {where} must not be empty")
    if field == "kind" and text not in HIT_KINDS:
        raise InvalidInput(f"where: kind must be one of {', '.join(HIT_KINDS)}, not {text!r:.60}")
    if field == "category" and not where.endswith(" contains"):
        return category_slug(text)
    if field == "category":
        return text.lower()
    if field == "subject":
        return subject_key(text) or ""
    return text.strip().lower() if field == "tags" else text
