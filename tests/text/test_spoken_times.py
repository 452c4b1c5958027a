"""Times as people say them: what has one meaning is read, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.text.spoken_times import parse_spoken_time

# A Thursday.
NOW = datetime.fromisoformat("2026-11-19 14:30+01:00")
pytestmark = pytest.mark.usefixtures("central_europe")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("now", "2026-11-19 14:30+01:00"),
        ("Today 9:00", "2026-11-19 09:00+01:00"),
        ("yesterday", "2026-11-18 00:00+01:00"),
        ("  tomorrow   at noon ", "2026-11-20 12:00+01:00"),
        ("next Tuesday 9:00", "2026-11-24 09:00+01:00"),
        ("on next thursday", "2026-11-26 00:00+01:00"),
        ("last thursday", "2026-11-12 00:00+01:00"),
        ("last friday at 5:15 pm", "2026-11-13 17:15+01:00"),
        ("in 2h", "2026-11-19 16:30+01:00"),
        ("in 2 hours and 30 minutes", "2026-11-19 17:00+01:00"),
        ("in 1h30m", "2026-11-19 16:00+01:00"),
        ("3 days ago", "2026-11-16 14:30+01:00"),
        ("a week ago", "2026-11-12 14:30+01:00"),
        ("an hour ago", "2026-11-19 13:30+01:00"),
        ("2d 3h ago", "2026-11-17 11:30+01:00"),
        ("last week", "2026-11-09 00:00+01:00"),
        ("this month", "2026-11-01 00:00+01:00"),
        ("next year", "2027-01-01 00:00+01:00"),
        ("31 January 2026", "2026-01-31 00:00+01:00"),
        ("Jan. 31st, 2026 9am", "2026-01-31 09:00+01:00"),
        ("3rd of March 2026 at midnight", "2026-03-03 00:00+01:00"),
        ("2026-01-31 9:00", "2026-01-31 09:00+01:00"),
        ("12am", "2026-11-19 00:00+01:00"),
        ("12 pm", "2026-11-19 12:00+01:00"),
        # Summer time began and ended in between.
        ("2 months ago", "2026-09-19 14:30+02:00"),
        ("2026-07-01", "2026-07-01 00:00+02:00"),
    ],
)
def test_time_with_one_meaning_is_read_in_the_zone_of_the_person(said: str, meant: str) -> None:
    assert parse_spoken_time(said, NOW) == datetime.fromisoformat(meant)


@pytest.mark.parametrize(
    "said",
    [
        *("", "Tuesday", "9", "tomorrow 9", "Jan 31", "03/04", "soon", "in a while", "next"),
        *("31 June 2026", "25:00", "13pm", "0am", "in 3 fortnights", "in 999999 years", "in 5"),
        *("yesterday tomorrow", "2023", "2026-13-01", "ma 3 2026", "next tuesdays", "3 days"),
    ],
)
def test_time_without_a_meaning_or_with_two_is_none(said: str) -> None:
    assert parse_spoken_time(said, NOW) is None


def test_hours_have_their_length_and_days_keep_the_clock_when_summer_time_ends() -> None:
    before = datetime.fromisoformat("2026-10-24 12:00+02:00")
    day, hours = (parse_spoken_time(said, before) for said in ("in 1 day", "in 24h"))
    assert day == datetime.fromisoformat("2026-10-25 12:00+01:00")
    assert hours == datetime.fromisoformat("2026-10-25 11:00+01:00")


def test_month_later_ends_with_a_shorter_month() -> None:
    last = datetime.fromisoformat("2026-01-31 08:00+01:00")
    later = parse_spoken_time("in 1 month", last)
    assert later == datetime.fromisoformat("2026-02-28 08:00+01:00")


WORDS = (
    *("in", "2", "h", "ago", "next", "last", "tuesday", "week", "month", "at", "9", ":00", "pm"),
    *("noon", "and", "a", "2026", "-", "jan", "31", ",", "y"),
)


@given(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join) | st.text(max_size=30))
def test_any_text_gives_a_moment_with_a_zone_or_none(said: str) -> None:
    found = parse_spoken_time(said, NOW.astimezone(UTC))
    assert found is None or isinstance(found.utcoffset(), timedelta)
