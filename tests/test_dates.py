"""Times as people give them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie import InvalidInput
from reverie.dates import (
    Time,
    optional_ms,
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


@settings(derandomize=True, deadline=None)
@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)))
def test_to_iso_and_to_ms_are_inverse(moment: datetime) -> None:
    ms = to_ms(moment, "x")
    assert to_ms(to_iso(ms), "x") == ms - ms % 1000
    assert abs(ms - moment.replace(tzinfo=UTC).timestamp() * 1000) <= 1
