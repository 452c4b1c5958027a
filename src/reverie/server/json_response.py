"""Answers as JSON: half of a character, which clients do send, included."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8; what UTF-8 cannot hold is spelled out, and reads back the same."""
    compact = (",", ":")
    try:
        return json.dumps(value, ensure_ascii=False, separators=compact).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=compact).encode()


class Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        return encode_json(content)
