"""Show in prompts when a fact is true, and order the facts about a subject by that time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from reverie.model import Memory
from reverie.serialize import format_time

T = TypeVar("T")


def validity_note(memory: Memory) -> str:
    """Return `` (until 2024-05)``, `` (since 2024-05)`` or both; empty if the times are not set.

    The text does not depend on the current time, so that a prompt stays the same.
    """
    start, end = (
        None if at is None else _month_or_day(at) for at in (memory.valid_from, memory.valid_to)
    )
    if start is None:
        return "" if end is None else f" (until {end})"
    return f" (since {start})" if end is None else f" ({start} until {end})"


def _month_or_day(at: int) -> str:
    text = format_time(at)
    return text[:7] if text[8:19] == "01T00:00:00" else text[:10]


def newest_first(items: Sequence[T], memory_of: Callable[[T], Memory | None]) -> list[T]:
    """Sort the facts about one subject, the latest valid one first.

    Facts of a category and subject are sorted if one of them has a validity time; together they
    keep the same places in the list.
    """
    places = defaultdict[tuple[str, str], list[int]](list)
    dated = set[tuple[str, str]]()
    for place, item in enumerate(items):
        memory = memory_of(item)
        if memory is not None and memory.subject is not None:
            about = (memory.category, memory.subject.casefold())
            places[about].append(place)
            if memory.valid_from is not None or memory.valid_to is not None:
                dated.add(about)
    ordered = list(items)
    for about in dated:
        own = sorted((items[place] for place in places[about]), key=lambda i: _order(memory_of(i)))
        for place, item in zip(places[about], own, strict=True):
            ordered[place] = item
    return ordered


def _order(memory: Memory | None) -> tuple[float, int]:
    assert memory is not None
    end = float("inf") if memory.valid_to is None else memory.valid_to
    start = memory.created_at if memory.valid_from is None else memory.valid_from
    return -end, -start
