"""Read times as people say them: "yesterday", "next Tuesday 9:00", "in 2h", "3 days ago".

Only what has one meaning is read. "Tuesday" alone may be the last or the next one, and "03/04" has
two readings, so both are none.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), timedelta(hours=1)),
}
_CALENDAR_UNITS = {
    **dict.fromkeys(("d", "day", "days"), (0, 1)),
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), (0, 7)),
    **dict.fromkeys(("month", "months"), (1, 0)),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), (12, 0)),
}
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_NAMED_TIMES = {"midnight": time(0), "noon": time(12)}
_CLOCK = (
    r"(?:at )?(?:(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?: ?(?P<half>[ap])\.?m\.?)?"
    rf"|(?P<named>{'|'.join(_NAMED_TIMES)}))"
)
_PART = r"(?:\d{1,6} ?|(?:an?|one) )(?!and\b)[a-z]{1,7}"
_AMOUNT = rf"{_PART}(?:(?: and |, ?| )?{_PART}){{0,3}}"
_OFFSET = re.compile(rf"in (?P<ahead>{_AMOUNT})|(?P<back>{_AMOUNT}) ago")
_EACH_PART = re.compile(r"(?:(\d+) ?|\b(?:an?|one) )([a-z]+)")
_MOMENT = re.compile(
    rf"(?:(?P<day>{'|'.join(_DAYS)})"
    rf"|(?:on )?(?P<which>last|next) (?P<weekday>{'|'.join(_WEEKDAYS)})"
    r"|(?:on )?(?P<date>\d{1,2})(?:st|nd|rd|th)? (?:of )?(?P<month>[a-z]{3,9})\.?,? (?P<year>\d{4})"
    r"|(?:on )?(?P<month2>[a-z]{3,9})\.? (?P<date2>\d{1,2})(?:st|nd|rd|th)?,? (?P<year2>\d{4})"
    rf"|(?P<iso>\d{{4}}-\d{{2}}-\d{{2}}))?(?:,? ?(?P<clock>{_CLOCK}))?"
)
_PERIOD = re.compile(r"(?P<which>last|this|next) (?P<unit>week|month|year)")


def parse_spoken_time(text: str, now: datetime) -> datetime | None:
    """Return the moment that a text names, seen from ``now``; None for any other text.

    Days and hours are those of this machine's zone. A day without a time of day is its first
    moment, and so is a week, a month or a year.
    """
    said = " ".join(text.lower().split())[:100]
    here = now.astimezone()
    try:
        if said == "now":
            return here
        if offset := _OFFSET.fullmatch(said):
            return _shifted(here, offset)
        if period := _PERIOD.fullmatch(said):
            return _start_of_period(here, period["which"], period["unit"])
        moment = _MOMENT.fullmatch(said)
        return None if moment is None or not said else _moment(here, moment)
    except (ValueError, OverflowError):
        # Such as the 31st of June, 25:00, or a year that no calendar has.
        return None


def _shifted(here: datetime, offset: re.Match[str]) -> datetime | None:
    """A moment before or after: hours have their length, days keep the time of the clock."""
    sign = 1 if offset["ahead"] else -1
    exact, months, days = timedelta(), 0, 0
    for number, unit in _EACH_PART.findall(offset["ahead"] or offset["back"]):
        count = sign * int(number or 1)
        if unit in _UNITS:
            exact += count * _UNITS[unit]
        elif unit in _CALENDAR_UNITS:
            of_months, of_days = _CALENDAR_UNITS[unit]
            months, days = months + count * of_months, days + count * of_days
        else:
            return None
    if months or days:
        day = _add_months(here.replace(tzinfo=None), months) + timedelta(days=days)
        here = day.astimezone()
    return (here.astimezone(UTC) + exact).astimezone()


def _add_months(naive: datetime, months: int) -> datetime:
    """The same day some months later, or the last day of a month that has fewer."""
    year, month = divmod(naive.year * 12 + naive.month - 1 + months, 12)
    first = naive.replace(year=year, month=month + 1, day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return first.replace(day=min(naive.day, (following - timedelta(days=1)).day))


def _start_of_period(here: datetime, which: str, unit: str) -> datetime:
    steps = {"last": -1, "this": 0, "next": 1}[which]
    day = here.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if unit == "week":
        day += timedelta(days=7 * steps - day.weekday())
    elif unit == "month":
        day = _add_months(day.replace(day=1), steps)
    else:
        day = day.replace(year=day.year + steps, month=1, day=1)
    return day.astimezone()


def _moment(here: datetime, moment: re.Match[str]) -> datetime | None:
    clock = _clock(moment)
    if moment["clock"] and clock is None:
        return None
    day = here.replace(tzinfo=None)
    if moment["day"]:
        day += timedelta(days=_DAYS[moment["day"]])
    elif moment["weekday"]:
        ahead = (_WEEKDAYS.index(moment["weekday"]) - day.weekday()) % 7
        day += timedelta(days=(ahead or 7) if moment["which"] == "next" else ahead - 7)
    elif moment["iso"]:
        day = datetime.fromisoformat(moment["iso"])
    elif name := moment["month"] or moment["month2"]:
        months = [at for at, month in enumerate(_MONTHS, 1) if _abbreviates(name, month)]
        if len(months) != 1:
            return None
        date = int(moment["date"] or moment["date2"])
        day = datetime(int(moment["year"] or moment["year2"]), months[0], date)
    return datetime.combine(day, clock or time(0)).astimezone()


def _abbreviates(name: str, month: str) -> bool:
    return name == month or name == month[:3] or name == "sept" == month[:4]


def _clock(moment: re.Match[str]) -> time | None:
    """The time of day, if one is said in a way that has one meaning: "9" alone does not."""
    if moment["named"]:
        return _NAMED_TIMES[moment["named"]]
    if not moment["hour"] or not (moment["minute"] or moment["half"]):
        return None
    hour, minute = int(moment["hour"]), int(moment["minute"] or 0)
    if moment["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if moment["half"] == "p" else 0)
    return time(hour, minute)
