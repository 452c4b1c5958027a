"""Converts messages of any provider into plain values that JSON represents exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reverie.errors import InvalidInput

MAX_NESTING = 200
# Python refuses to convert integers of more digits to or from text.
_INTEGER_LIMIT = 10**4300


def to_json_object(message: object) -> dict[str, Any]:
    """A copy of the message that JSON represents exactly; raises InvalidInput."""
    if type(message).__module__.partition(".")[0] == "pydantic_ai":
        message = _dump_pydantic_ai(message)
    elif _is_model(message):
        message = _dump_model(message)
    if not isinstance(message, Mapping):
        raise InvalidInput(f"a message must be a mapping, not {type(message).__name__}")
    if not message:
        raise InvalidInput("a message must not be empty")
    copy: dict[str, Any] = to_json_value(message, 1)
    return copy


def _is_model(value: object) -> bool:
    return callable(getattr(type(value), "model_dump", None))


def _dump_model(model: Any) -> Any:
    """Dump a pydantic model: fields that were set, nulls included, and non-null defaults."""
    try:
        set_fields = model.model_dump(mode="json", exclude_unset=True)
        non_null = model.model_dump(mode="json", exclude_none=True)
    except ValueError as error:
        raise _not_json_error(model, error) from error
    return _merge_dumps(set_fields, non_null)


def _merge_dumps(one: Any, other: Any) -> Any:
    """Merge two dumps of the same model, each with fields that the other lacks."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {**one, **other}
        return {
            key: _merge_dumps(one[key], other[key]) if key in one and key in other else value
            for key, value in both.items()
        }
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            _merge_dumps(one_item, other_item)
            for one_item, other_item in zip(one, other, strict=True)
        ]
    return one


def _dump_pydantic_ai(message: Any) -> Any:
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse

    if not isinstance(message, ModelRequest | ModelResponse):
        raise InvalidInput(
            f"{type(message).__name__} is not a message: pass a ModelRequest or a ModelResponse"
        )
    try:
        return ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]
    except ValueError as error:
        raise _not_json_error(message, error) from error


def _not_json_error(message: object, error: ValueError) -> InvalidInput:
    message_text = " ".join(str(error).split())
    return InvalidInput(f"{type(message).__name__} cannot be written as JSON: {message_text}")


def to_json_value(value: Any, depth: int) -> Any:
    """Convert a value to plain types. Loops, not comprehensions, need half the stack frames."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if abs(value) >= _INTEGER_LIMIT:
            raise InvalidInput("a message cannot hold an integer of over 4300 digits: make it text")
        return int.__int__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput("a message cannot hold NaN or Infinity: JSON has no such numbers")
        return float.__float__(value)
    if depth > MAX_NESTING:
        raise InvalidInput(f"a message cannot be nested deeper than {MAX_NESTING} levels")
    if isinstance(value, Mapping):
        copy = {}
        for key, held in value.items():
            if not isinstance(key, str):
                raise InvalidInput(f"the keys of a message must be text, not {type(key).__name__}")
            copy[str.__str__(key)] = to_json_value(held, depth + 1)
        return copy
    if isinstance(value, list | tuple):
        items = []
        for item in value:
            items.append(to_json_value(item, depth + 1))
        return items
    if isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput("a message cannot hold bytes: encode it as base64")
    if _is_model(value):
        # Clients send blocks back as they got them, as models inside a plain mapping.
        return to_json_value(_dump_model(value), depth + 1)
    raise InvalidInput(f"a message cannot hold {type(value).__name__}: JSON has no such value")
