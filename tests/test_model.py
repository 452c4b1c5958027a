"""The public values: each time in milliseconds is also a datetime, and JSON has fields alone."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import get_type_hints

import pytest

import reverie
from reverie.dates import MAX_MS, MIN_MS
from reverie.model import Memory, Version, to_datetime
from reverie.serialize import to_json_value
from reverie.write.session_state import ScratchpadState

VALUES = [
    value
    for name in reverie.__all__
    if inspect.isclass(value := getattr(reverie, name)) and is_dataclass(value)
]
TIMES = [
    (value, name)
    for value in [*VALUES, ScratchpadState]
    for name in get_type_hints(value)
    if name == "at" or name.endswith("_at")
]
NOON = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
NOON_MS = 1_769_860_800_250


def time_property(name: str) -> str:
    return "time" if name == "at" else f"{name.removesuffix('_at')}_time"


@pytest.mark.parametrize(("value", "name"), TIMES, ids=lambda each: getattr(each, "__name__", each))
def test_each_time_of_a_value_is_also_a_datetime(value: type, name: str) -> None:
    """The property has the datetime of its own field, and None where the field may be None."""
    found = getattr(value, time_property(name))
    assert isinstance(found, property) and found.fget is not None
    assert found.fget(SimpleNamespace(**{name: NOON_MS})) == NOON
    returned = get_type_hints(found.fget)["return"]
    if get_type_hints(value)[name] is int:
        assert returned is datetime
    else:
        assert returned == datetime | None
        assert found.fget(SimpleNamespace(**{name: None})) is None


def test_public_values_have_times() -> None:
    assert {(Memory, "created_at"), (Version, "recorded_at")} < set(TIMES) and len(TIMES) == 16


@pytest.mark.parametrize("ms", [MIN_MS, -1, 0, 1, NOON_MS, MAX_MS])
def test_datetimes_are_exact_to_the_millisecond(ms: int) -> None:
    found = to_datetime(ms)
    assert found.tzinfo is UTC
    assert (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == ms


def test_json_of_a_value_has_its_fields_alone() -> None:
    change = reverie.Change(1, "remember", "m", 1, None, None, None, None, "person", NOON_MS)
    assert list(to_json_value(change)) == [field.name for field in fields(change)]
    assert list(to_json_value(ScratchpadState(("a",), NOON_MS))) == ["items", "updated_at"]
