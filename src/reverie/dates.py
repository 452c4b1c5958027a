"""Convert times as people write them to milliseconds UTC, and back."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from reverie.errors import InvalidInput

Time = datetime | date | str | int

# The range of a datetime: the years 1 to 9999.
MIN_MS = -62_135_596_800_000
MAX_MS = 253_402_300_799_999

# The number of digits of the greatest position.
MAX_POSITION_DIGITS = 18

_YEAR_OR_MONTH = re.compile(r"([12][0-9]{3})(?:-(0[1-9]|1[0-2]))?")


def to_ms(value: Time, what: str) -> int:
    """Convert a datetime, a date, an ISO 8601 text or milliseconds to milliseconds UTC.

    A time without a zone is taken as UTC, a date as its first moment. ``what`` names the value in
    the error message.
    """
    if isinstance(value, bool):
        raise InvalidInput(f"{what} must be a time, not {value!r}")
    if isinstance(value, int):
        if not MIN_MS <= value <= MAX_MS:
            raise InvalidInput(f"{what} must lie in the years 1 to 9999")
        return value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise InvalidInput(
                f"{what} must be a time such as 2026-01-31 or 2026-01-31T09:30:00+00:00, "
                f"not {value!r}"
            ) from error
    if not isinstance(value, datetime):
        if not isinstance(value, date):
            raise InvalidInput(f"{what} must be a time, not {type(value).__name__}")
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return to_ms(round(value.timestamp() * 1000), what)


def optional_ms(value: Time | None, what: str) -> int | None:
    """Convert like ``to_ms``, and leave None as it is."""
    return None if value is None else to_ms(value, what)


def parse_period(text: str) -> tuple[int, int] | None:
    """Return the first moment of a year or month such as 2023 or 2023-05, and of the next one.

    None for any other text.
    """
    found = _YEAR_OR_MONTH.fullmatch(text.strip())
    if found is None:
        return None
    year, month = int(found[1]), int(found[2] or 1)
    following = (
        date(year + 1, 1, 1) if found[2] is None else date(year + month // 12, month % 12 + 1, 1)
    )
    return to_ms(date(year, month, 1), "a period"), to_ms(following, "a period")


def last_moment(value: Time | None, what: str, now: int) -> int | None:
    """Convert like ``optional_ms``; a year or month is its last moment, or now while it lasts."""
    period = parse_period(value) if isinstance(value, str) else None
    if period is None:
        return optional_ms(value, what)
    start, end = period
    return now if start <= now < end else end - 1


def parse_as_of(value: str) -> int | str:
    """Parse the text of an ``as_of`` option: digits are a log position, anything else a time."""
    text = value.strip()
    if not (text.isascii() and text.isdecimal()):
        return text
    if len(text) > MAX_POSITION_DIGITS:
        raise InvalidInput(f"a position of the log has at most {MAX_POSITION_DIGITS} digits")
    return int(text)


def to_iso(ms: int) -> str:
    """Format milliseconds UTC as ISO 8601 with +00:00, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
