"""Conditions on memories, as a filter's ``where`` gives them: in SQL, and the same in Python.

A condition is true or false, never unknown: a comparison with something that a memory does not have
is false, and its negation true. An event counts as a memory of the kind ``event`` that has a time
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from reverie.model import Event, Memory
from reverie.protocols import Owner
from reverie.text.metadata import TEXT, Scalar, comparison_value, metadata_scalars
from reverie.text.normalize import subject_key

Field = Literal["kind", "category", "subject", "tags", "at", "metadata"]
Operator = Literal["in", "gt", "gte", "lt", "lte", "contains", "missing"]
Operand = str | int | float | bool

_SIGNS: dict[str, str] = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_COLUMNS = {"kind": "m.kind", "category": "m.category", "subject": "m.subject_key"}


class Comparison(NamedTuple):
    """A comparison of one field. ``name`` is that of a scalar, for the field ``metadata``.

    ``in`` has at least one operand, ``missing`` none, every other operator one. Those of subjects
    and tags are normalized as these are stored; those of ``at`` are milliseconds.
    """

    field: Field
    operator: Operator
    operands: tuple[Operand, ...] = ()
    name: str = ""


class Group(NamedTuple):
    """Conditions of which all (AND) or any (OR) must be true; there is at least one."""

    joiner: Literal["AND", "OR"]
    parts: tuple[Condition, ...]


class Negation(NamedTuple):
    """A condition that is true when another one is not."""

    part: Condition


Condition: TypeAlias = Comparison | Group | Negation
Sql = tuple[str, list[object]]


def memory_time(memory: Memory) -> int:
    """The time that filters look at: when it happened, else when it was first remembered."""
    return memory.created_at if memory.happened_at is None else memory.happened_at


# -- in SQL ---------------------------------------------------------------------------------------


def memory_sql(condition: Condition, owner: Owner) -> Sql:
    """The SQL condition on ``m`` (memories) of an owner, and its values."""
    return _to_sql(condition, lambda each: _memory_comparison(each, owner))


def event_sql(condition: Condition) -> Sql:
    """The SQL condition on ``e`` (events), and its values."""
    return _to_sql(condition, _event_comparison)


def _to_sql(condition: Condition, leaf: Callable[[Comparison], Sql]) -> Sql:
    if isinstance(condition, Comparison):
        return leaf(condition)
    if isinstance(condition, Negation):
        text, values = _to_sql(condition.part, leaf)
        return f"NOT ({text})", values
    texts, values = [], []
    for part in condition.parts:
        text, more = _to_sql(part, leaf)
        texts.append(f"({text})")
        values += more
    return f" {condition.joiner} ".join(texts), values


def _event_comparison(each: Comparison) -> Sql:
    if each.field == "at":
        return _time_sql("e.at", each)
    return ("1 = 1" if _accepts_absent(each) else "0 = 1"), []


def _memory_comparison(each: Comparison, owner: Owner) -> Sql:
    if each.field == "at":
        return _time_sql("m.at", each)
    if each.field == "metadata":
        return _metadata_sql(each, owner)
    if each.field == "tags":
        return (
            "m.born IN (SELECT t.born FROM tags t WHERE t.space = ? AND t.owner = ? "
            f"AND t.tag IN ({_placeholders(each)}))"
        ), [*owner, *each.operands]
    column = _COLUMNS[each.field]
    if each.operator == "missing":
        return f"{column} IS NULL", []
    # Without it a subject that is missing would make the comparison neither true nor false.
    present = f"{column} IS NOT NULL AND " if each.field == "subject" else ""
    if each.operator == "contains":
        return f"{present}{_contains(column)}", list(each.operands)
    return f"{present}{column} IN ({_placeholders(each)})", list(each.operands)


def _time_sql(column: str, each: Comparison) -> Sql:
    if each.operator == "in":
        return f"{column} IN ({_placeholders(each)})", list(each.operands)
    return f"{column} {_SIGNS[each.operator]} ?", list(each.operands)


def _metadata_sql(each: Comparison, owner: Owner) -> Sql:
    condition, values = _scalar_sql(each)
    no = "NOT " if each.operator == "missing" else ""
    return (
        f"m.born {no}IN (SELECT d.born FROM metadata d WHERE d.space = ? AND d.owner = ? "
        f"AND d.name = ?{condition})"
    ), [*owner, each.name, *values]


def _scalar_sql(each: Comparison) -> Sql:
    """The SQL condition on ``d``, the scalars of one name, and its values."""
    values: list[object] = [comparison_value(operand) for operand in each.operands]
    if each.operator == "missing":
        return "", []
    if each.operator == "in":
        return f" AND d.value IN ({_placeholders(each)})", values
    if each.operator == "contains":
        (operand,) = each.operands
        if not isinstance(operand, str):
            return " AND d.in_list = 1 AND d.value = ?", values
        whole = "COALESCE(d.text, SUBSTR(d.value, 2))"
        low, high = _type_bounds(TEXT)
        return (
            " AND (d.in_list = 1 AND d.value = ? OR d.in_list = 0 AND d.value >= ? "
            f"AND d.value < ? AND {_contains(whole)})"
        ), [*values, low, high, operand]
    value = str(values[0])
    low, high = _type_bounds(value[0])
    if each.operator in {"gt", "gte"}:
        return f" AND d.value {_SIGNS[each.operator]} ? AND d.value < ?", [value, high]
    return f" AND d.value >= ? AND d.value {_SIGNS[each.operator]} ?", [low, value]


def _type_bounds(kind: str) -> tuple[str, str]:
    """The bounds of all values of a type: at or after the first, and before the second."""
    return kind, chr(ord(kind) + 1)


def _contains(text: str) -> str:
    """Whether a text contains a value, by its characters, on both engines."""
    return f"REPLACE({text}, ?, '') <> {text}"


def _placeholders(each: Comparison) -> str:
    return ", ".join("?" * len(each.operands))


# -- in Python ------------------------------------------------------------------------------------


def accepts_memory(condition: Condition, memory: Memory) -> bool:
    """Whether a memory passes a condition."""
    return _evaluate(condition, lambda each: _accepts(each, memory))


def accepts_event(condition: Condition, event: Event) -> bool:
    """Whether an event passes a condition."""
    return _evaluate(
        condition,
        lambda each: _compare_time(each, event.at) if each.field == "at" else _accepts_absent(each),
    )


def can_accept_events(condition: Condition) -> bool:
    """Whether there are events that pass; true where that depends on their times."""
    return _possible_results(condition)[0]


def _possible_results(condition: Condition) -> tuple[bool, bool]:
    """Whether a condition may be true for an event, and whether it may be false."""
    if isinstance(condition, Negation):
        can_pass, can_fail = _possible_results(condition.part)
        return can_fail, can_pass
    if isinstance(condition, Group):
        results = [_possible_results(part) for part in condition.parts]
        join, other = (all, any) if condition.joiner == "AND" else (any, all)
        return join(result[0] for result in results), other(result[1] for result in results)
    if condition.field == "at":
        return True, True
    passes = _accepts_absent(condition)
    return passes, not passes


def _evaluate(condition: Condition, leaf: Callable[[Comparison], bool]) -> bool:
    if isinstance(condition, Comparison):
        return leaf(condition)
    if isinstance(condition, Negation):
        return not _evaluate(condition.part, leaf)
    join = all if condition.joiner == "AND" else any
    return join(_evaluate(part, leaf) for part in condition.parts)


def _accepts(each: Comparison, memory: Memory) -> bool:
    if each.field == "at":
        return _compare_time(each, memory_time(memory))
    if each.field == "metadata":
        scalars = [s for s in metadata_scalars(memory.metadata) if s.name == each.name]
        if each.operator == "missing":
            return not scalars
        return any(_compare_scalar(each, scalar) for scalar in scalars)
    if each.field == "tags":
        return not set(memory.tags).isdisjoint(each.operands)
    text = subject_key(memory.subject) if each.field == "subject" else getattr(memory, each.field)
    if each.operator == "missing" or text is None:
        return each.operator == "missing" and text is None
    if each.operator == "contains":
        return str(each.operands[0]) in text
    return text in each.operands


def _accepts_absent(each: Comparison) -> bool:
    """Whether a comparison is true for an event, which has a kind but none of the other fields."""
    if each.operator == "missing":
        return True
    if each.field != "kind":
        return False
    if each.operator == "contains":
        return str(each.operands[0]) in "event"
    return "event" in each.operands


def _compare_time(each: Comparison, at: int) -> bool:
    return at in each.operands if each.operator == "in" else _compare(each, at, each.operands[0])


def _compare_scalar(each: Comparison, scalar: Scalar) -> bool:
    wanted = [comparison_value(operand) for operand in each.operands]
    if each.operator == "in":
        return scalar.value in wanted
    if each.operator == "contains":
        if scalar.in_list:
            return scalar.value == wanted[0]
        text = scalar.text or scalar.value[1:]
        operand = each.operands[0]
        return scalar.value[0] == TEXT and isinstance(operand, str) and operand in text
    return scalar.value[0] == wanted[0][0] and _compare(each, scalar.value, wanted[0])


def _compare(each: Comparison, one: object, other: object) -> bool:
    compared: dict[str, Callable[[object, object], bool]] = {
        "gt": lambda a, b: a > b,  # type: ignore[operator]
        "gte": lambda a, b: a >= b,  # type: ignore[operator]
        "lt": lambda a, b: a < b,  # type: ignore[operator]
        "lte": lambda a, b: a <= b,  # type: ignore[operator]
    }
    return compared[each.operator](one, other)
