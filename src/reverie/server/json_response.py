"""JSON answers that may hold lone surrogates, which some clients send and UTF-8 cannot hold."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

from reverie.serialize import to_json_value


def encode_json(value: Any) -> bytes:
    """Encode as compact JSON in UTF-8; a text with lone surrogates is written with \\u escapes."""
    compact = (",", ":")
    try:
        return json.dumps(value, ensure_ascii=False, separators=compact).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=compact).encode()


class Json(JSONResponse):
    """A JSON answer; classes of ``reverie.model`` in it become objects."""

    def render(self, content: Any) -> bytes:
        return encode_json(to_json_value(content))
