"""``metadata``, the JSON object that a caller gives a memory: what it may hold, how it is compared.

A filter compares the scalars of a metadata, each under its *name*: the keys that lead to it, joined
by dots. Lists have no part in the name, so that a name may have several scalars. A scalar is
compared by its *value*, a text that sorts as the scalar does among those of its type.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from reverie.errors import InvalidInput
from reverie.text.normalize import require_length, require_no_controls, require_utf8

MAX_METADATA_BYTES = 16_384
MAX_METADATA_DEPTH = 8
MAX_NAME_CHARS = 200
# A key of an index has at most 2,700 bytes on PostgreSQL: of a longer text it holds the beginning
# and a hash.
MAX_VALUE_CHARS = 200

# The first character of a value is its type. Each sorts directly before the character after it.
BOOLEAN, NUMBER, TEXT = "b", "n", "s"
_SIGN = 1 << 63


class Scalar(NamedTuple):
    """A scalar of a metadata. ``in_list``: it is an element of a list, at any depth."""

    name: str
    value: str
    in_list: bool
    text: str | None


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy that JSON represents exactly, or raise InvalidInput; None is no metadata."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a JSON object, not {type(metadata).__name__}")
    copy = _copy_object(metadata, "", 1)
    size = metadata_bytes(copy)
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"metadata has {size} bytes as JSON, at most {MAX_METADATA_BYTES} are allowed: "
            "keep what is longer as the content of a note"
        )
    return copy


def metadata_bytes(metadata: Mapping[str, Any]) -> int:
    """The size of a metadata as JSON."""
    return len(json.dumps(metadata, ensure_ascii=False).encode())


def to_canonical(value: Any) -> str:
    """JSON that is the same for equal values only: true is not 1, and keys have no order."""
    return json.dumps(value, sort_keys=True)


def _copy_object(given: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    copy = {}
    for key, held in given.items():
        if not isinstance(key, str):
            raise InvalidInput(f"the keys of metadata must be text, not {type(key).__name__}")
        require_no_controls(require_utf8(key, "a key of metadata"), "a key of metadata")
        if not key.strip():
            raise InvalidInput("a key of metadata must not be empty")
        name = f"{path}.{key}" if path else key
        require_length(name, "a key of metadata, with those above it,", MAX_NAME_CHARS)
        copy[str.__str__(key)] = _copy_value(held, name, depth)
    return copy


def _copy_value(value: Any, name: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if "\0" in require_utf8(value, f"metadata.{name}"):
            raise InvalidInput(f"metadata.{name} holds the character U+0000: remove it")
        return str.__str__(value)
    if isinstance(value, int | float):
        return _check_number(value, name)
    if depth >= MAX_METADATA_DEPTH:
        raise InvalidInput(
            f"metadata.{name[:60]} is nested deeper than {MAX_METADATA_DEPTH} levels: flatten it"
        )
    if isinstance(value, Mapping):
        return _copy_object(value, name, depth + 1)
    if isinstance(value, list | tuple):
        return [_copy_value(item, name, depth + 1) for item in value]
    raise InvalidInput(
        f"metadata.{name} cannot hold {type(value).__name__}: JSON has no such value"
    )


def _check_number(number: int | float, name: str) -> int | float:
    try:
        finite = math.isfinite(float(number))
    except OverflowError:
        finite = False
    if not finite:
        raise InvalidInput(f"metadata.{name} must be a finite number below 1e308, or text")
    return int.__int__(number) if isinstance(number, int) else float.__float__(number)


def metadata_scalars(metadata: Mapping[str, Any]) -> list[Scalar]:
    """Return the scalars of a checked metadata; of equal name and value only the first one."""
    found: dict[tuple[str, str], Scalar] = {}
    for each in _scalars(metadata, "", in_list=False):
        found.setdefault((each.name, each.value), each)
    return list(found.values())


def _scalars(value: Any, name: str, *, in_list: bool) -> Iterator[Scalar]:
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield from _scalars(held, f"{name}.{key}" if name else key, in_list=in_list)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _scalars(item, name, in_list=True)
    elif value is not None:
        long = isinstance(value, str) and len(value) > MAX_VALUE_CHARS
        yield Scalar(name, comparison_value(value), in_list, value if long else None)


def comparison_value(scalar: str | float | bool) -> str:
    """Return the text by which a scalar is compared with others of its type.

    Numbers are compared as floating-point numbers of 64 bits. Of a text the first 200 characters
    decide the order; two texts are equal only if all their characters are.
    """
    if isinstance(scalar, bool):
        return f"{BOOLEAN}{scalar:d}"
    if isinstance(scalar, str):
        if len(scalar) <= MAX_VALUE_CHARS:
            return TEXT + scalar
        digest = hashlib.sha256(scalar.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"{TEXT}{scalar[:MAX_VALUE_CHARS]} {digest}"
    # Adding zero makes -0.0 the same number as 0.0.
    (bits,) = struct.unpack(">Q", struct.pack(">d", float(scalar) + 0.0))
    ordered = bits ^ (_SIGN if bits < _SIGN else (1 << 64) - 1)
    return f"{NUMBER}{ordered:016x}"
