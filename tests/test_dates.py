"""Times as people give them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie import InvalidInput
from reverie.dates import (
    Time,
    last_moment,
    optional_ms,
    parse_period,
    to_iso,
    to_ms,
)

START = 1_767_225_600_000


@pytest.mark.parametrize(
    ("given_time", "ms"),
    [
        (START, START),
        (-5, -5),
        ("2026-01-01", START),
        ("2026-01-01T00:00", START),
        ("2026-01-01 00:00:00.250", START + 250),
        ("2026-01-01T00:00:00Z", START),
        ("2026-01-01T02:00:00+02:00", START),
        (date(2026, 1, 1), START),
        (datetime(2026, 1, 1), START),
        (datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5))), START),
        (datetime(1, 1, 1, tzinfo=UTC), -62_135_596_800_000),
    ],
)
def test_to_ms_accepts_every_time_format(given_time: Time, ms: int) -> None:
    assert to_ms(given_time, "x") == ms


@pytest.mark.parametrize(
    "wrong", [True, False, "", "soon", "2026-13-01", "2026", 1.5, b"2026-01-01", [], None, "\0"]
)
def test_to_ms_refuses_anything_else(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="since"):
        to_ms(wrong, "since")  # type: ignore[arg-type]


def test_to_ms_of_none_is_none() -> None:
    assert optional_ms(None, "x") is None
    assert optional_ms(5, "x") == 5


@pytest.mark.parametrize(
    ("text", "first", "following"),
    [
        ("2023", "2023-01-01", "2024-01-01"),
        (" 2023-05 ", "2023-05-01", "2023-06-01"),
        ("2023-12", "2023-12-01", "2024-01-01"),
    ],
)
def test_parse_period_reads_a_year_and_a_month(text: str, first: str, following: str) -> None:
    assert parse_period(text) == (to_ms(first, "x"), to_ms(following, "x"))


@pytest.mark.parametrize(
    "text", ["", "2023-00", "2023-13", "0999", "3000", "23", "2023-05-01", "٢٠٢٣"]
)
def test_parse_period_reads_nothing_else(text: str) -> None:
    assert parse_period(text) is None


def test_last_moment_of_a_period_is_its_end_or_now() -> None:
    now = to_ms("2026-06-15", "x")
    assert last_moment("2023", "x", now) == to_ms("2024-01-01", "x") - 1
    assert last_moment("2026", "x", now) == now
    assert last_moment("2027-01", "x", now) == to_ms("2027-02-01", "x") - 1
    assert last_moment("2023-05-01", "x", now) == to_ms("2023-05-01", "x")
    assert last_moment(None, "x", now) is None
    with pytest.raises(InvalidInput, match="x must be a time"):
        last_moment("20", "x", now)


@settings(derandomize=True, deadline=None)
@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)))
def test_to_iso_and_to_ms_are_inverse(moment: datetime) -> None:
    ms = to_ms(moment, "x")
    assert to_ms(to_iso(ms), "x") == ms - ms % 1000
    assert abs(ms - moment.replace(tzinfo=UTC).timestamp() * 1000) <= 1
