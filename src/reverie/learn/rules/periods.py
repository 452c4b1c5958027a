"""Read from when to when something held, where a person says it with dates that need no guess.

A year, a month of a year and an ISO date are read, in UTC. "Since last summer" and "until 2023"
are not: the first needs the day on which it was said, the second has two readings.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import NamedTuple

from reverie.dates import parse_period, to_ms
from reverie.learn.rules.sentences import ignoring_case
from reverie.learn.rules.values import MONTH

_DATE = rf"(?:(?:19|20)\d\d-\d\d(?:-\d\d)?|(?:{MONTH},? (?:of )?)?(?:19|20)\d\d)"
# "Since 2020/21", "since 2020-ish" and "since the 2020's" name no date.
_END = r"(?![\w/'’]|[.,–-]\w)"
# The country after a city: "in Bergen, Norway since 2023".
_LARGER_PLACE = r"(?:, (?-i:[A-Z])[\w'-]{1,30})?"
_SINCE = ignoring_case(rf"{_LARGER_PLACE},? (?:ever )?since (?P<start>{_DATE}){_END}")
_SPAN = ignoring_case(
    rf"{_LARGER_PLACE},? (?:from (?P<start>{_DATE})(?: (?:to|until|till|through) | ?[–-] ?)"
    rf"|between (?P<begin>{_DATE}) and )(?P<last>{_DATE}){_END}"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class StatedPeriod(NamedTuple):
    """A period that a text begins with, in milliseconds UTC, and the text after it."""

    valid_from: int
    valid_to: int | None
    rest: str


def read_since(text: str) -> StatedPeriod | None:
    """Read " since March 2022" at the beginning of a text."""
    found = _SINCE.match(text)
    start = found and _bounds(found["start"])
    return StatedPeriod(start[0], None, text[found.end() :]) if found and start else None


def read_span(text: str) -> StatedPeriod | None:
    """Read " from 2020 to 2023" at the beginning of a text: up to the end of 2023."""
    found = _SPAN.match(text)
    if found is None:
        return None
    start, last = _bounds(found["start"] or found["begin"]), _bounds(found["last"])
    if start is None or last is None or start[0] >= last[1]:
        return None
    return StatedPeriod(start[0], last[1], text[found.end() :])


def _bounds(text: str) -> tuple[int, int] | None:
    """Return the first moment of a year, month or day, and the first one after it."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            day = date.fromisoformat(text)
        except ValueError:
            return None
        return to_ms(day, "a date"), to_ms(day + timedelta(days=1), "a date")
    month = text[:3].lower()
    return parse_period(f"{text[-4:]}-{_MONTHS.index(month) + 1:02}" if month in _MONTHS else text)
