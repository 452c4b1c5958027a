"""Convert the classes of ``reverie.model`` to JSON values, for the command line and the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from reverie.dates import to_iso
from reverie.model import is_time_field


def to_json_value(value: Any, name: str = "") -> Any:
    """Convert a value to what JSON can hold, with times as ISO 8601 text.

    A field whose dataclass says ``serialize: False`` is left out. A field is a time by its ``name``
    (``is_time_field``). Numbers in a mapping stay numbers, since it may be a chat message, which
    must be returned as it was stored.
    """
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: to_json_value(part, name) for name, part in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json_value(getattr(value, field.name), field.name)
            for field in fields(value)
            if field.metadata.get("serialize", True)
        }
    if isinstance(value, Mapping):
        return {str(key): to_json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(part) for part in value]
    return format_time(value) if isinstance(value, int) and is_time_field(name) else value


def format_time(ms: int) -> str:
    """Format a time as ISO 8601, or as milliseconds when it is outside the calendar's range."""
    try:
        return to_iso(ms)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
