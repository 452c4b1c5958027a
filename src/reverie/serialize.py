"""Our values as JSON has them: what the command line and the server answer with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from reverie.dates import to_iso


def to_json_value(value: Any, name: str = "") -> Any:
    """Our values as JSON has them; times as ISO 8601. A number in a mapping stays: it may be in a
    message, which goes out as it came in."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: to_json_value(part, name) for name, part in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json_value(getattr(value, field.name), field.name)
            for field in fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): to_json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(part) for part in value]
    is_time = isinstance(value, int) and (name == "at" or name.endswith("_at"))
    return format_time(value) if is_time else value


def format_time(ms: int) -> str:
    """ISO 8601, also of a moment that no calendar has."""
    try:
        return to_iso(ms)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
