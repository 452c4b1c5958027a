"""Reads the assistant's message from an upstream's answer, whole or streamed.

Only the first choice counts. Reasoning is left out: providers refuse it when it is sent back.

The message always has the role ``assistant`` and only the members named here. So an upstream cannot
use another member (``role``, ``name``, ``kind``, ``parts``, ``type``) to make its answer look like
a message of the user, a system prompt or a tool's result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_TEXT_FIELDS = ("content", "refusal")
_CONTENT_FIELDS = (*_TEXT_FIELDS, "tool_calls", "function_call", "audio")
MAX_LINE_BYTES = 16_000_000
_MAX_DONE_LINE = 32
_STREAMED_FIELDS = frozenset({"arguments", "input", "transcript"})
_TEXT_PARTS = frozenset({"text", "output_text", "refusal"})
_MEDIA_PARTS = frozenset({"image", "image_url", "audio", "video_url", "file"})
# Members of a media part that readers of messages take for text, calls or results.
_DROPPED_MEDIA_FIELDS = frozenset({"content", "text", "parts", "refusal", "kind", "role"})


def parse_completion(body: bytes) -> dict[str, Any] | None:
    """Return the message of a completion that was not streamed; None if it says nothing."""
    message = _first_choice(_parse_object(body)).get("message")
    return _if_not_empty(_assistant_message(message)) if isinstance(message, dict) else None


def is_partial(body: bytes) -> bool:
    """Return whether a completion that was not streamed says that the model failed midway."""
    if b"error" not in body:
        return False
    answer = _parse_object(body)
    return _is_error(answer) or _is_failed_choice(_first_choice(answer))


class ReplyStream:
    """Builds the message from a stream of server-sent events, as far as it has arrived."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[object, dict[str, Any]] = {}
        self._function: dict[str, Any] = {}
        self._audio: dict[str, Any] = {}
        self._finished = self._text_after_finish = self._failed = False
        self._event_type = b""
        self._size = 0
        self.done = False
        """Whether the stream has sent ``[DONE]``."""

    @property
    def size(self) -> int:
        """The characters of text and arguments so far: about what it costs to index the reply."""
        return self._size

    def feed(self, chunk: bytes) -> None:
        lines = chunk.split(b"\n")
        for line in lines[:-1]:
            self._read_line(bytes(self._line) + line)
            self._line.clear()
        if len(self._line) + len(lines[-1]) <= MAX_LINE_BYTES:
            self._line += lines[-1]
        # A client may stop reading at [DONE], so it counts before its line has ended.
        self.done = self.done or (
            len(self._line) < _MAX_DONE_LINE and _is_done_line(bytes(self._line))
        )

    def end(self) -> None:
        """Read what is left: the last event may lack the blank line that ends it."""
        self.feed(b"\n\n")

    def is_complete(self, *, interrupted: bool) -> bool:
        """Return whether the reply has reached its end.

        An error makes a reply incomplete, whatever follows it. Some upstreams send a
        ``finish_reason`` with every chunk: then it does not show that an interrupted stream ended.
        """
        if self._failed:
            return False
        return self.done or (self._finished and not (interrupted and self._text_after_finish))

    @property
    def message(self) -> dict[str, Any] | None:
        """The message so far; None when nothing was said."""
        message: dict[str, Any] = {"role": "assistant", "content": None}
        message |= {name: "".join(texts) for name, texts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        if self._function:
            message["function_call"] = self._function
        if self._audio:
            message["audio"] = self._audio
        return _if_not_empty(message)

    def _read_line(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if _is_done_line(line):
            self.done = True
        elif line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            self._event_type = line[6:].strip().lower()
        elif not line:
            data, type_ = b"\n".join(self._data), self._event_type
            self._data.clear()
            self._event_type = b""
            if type_ == b"error":
                self._failed = True
            elif data:
                self._read_event(data)

    def _read_event(self, data: bytes) -> None:
        answer = _parse_object(data)
        choice = _first_choice(answer)
        if self._failed or _is_error(answer) or _is_failed_choice(choice):
            # Nothing after an error belongs to the reply.
            self._failed = True
            return
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._text_after_finish = self._text_after_finish or (
                self._finished and _if_not_empty(delta) is not None
            )
            self._add(delta)
        self._finished = self._finished or bool(choice.get("finish_reason"))

    def _add(self, delta: Mapping[str, Any]) -> None:
        for name in _TEXT_FIELDS:
            text = _text(delta.get(name))
            if text:
                self._texts.setdefault(name, []).append(text)
                self._size += len(text)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                self._size += len(str(call.get("function", "")))
                _merge(self._calls.setdefault(self._call_key(call), {}), call)
        if isinstance(delta.get("function_call"), dict):
            _merge(self._function, delta["function_call"])
        audio = delta.get("audio")
        if isinstance(audio, dict):
            # Only the transcript: chunks of sound cannot simply be concatenated.
            _merge(self._audio, {name: held for name, held in audio.items() if name != "data"})

    def _call_key(self, call: Mapping[str, Any]) -> object:
        """Return the key of the tool call this is part of; some providers leave the index out."""
        if call.get("index") is not None:
            return str(call["index"])
        known = [place for place, held in self._calls.items() if held.get("id") == call.get("id")]
        if known or (self._calls and not call.get("id")):
            return (known or list(self._calls))[-1]
        return len(self._calls)


def _assistant_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the members that an assistant's message can have, if they have the right type."""
    copied: dict[str, Any] = {"role": "assistant", "content": _content(message.get("content"))}
    if isinstance(message.get("refusal"), str):
        copied["refusal"] = message["refusal"]
    calls = message.get("tool_calls")
    kept = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    if kept:
        copied["tool_calls"] = kept
    for name in ("function_call", "audio"):
        if isinstance(message.get(name), dict):
            copied[name] = message[name]
    for name in ("annotations", "images"):
        if isinstance(message.get(name), list) and message[name]:
            copied[name] = message[name]
    return copied


def _content(content: object) -> str | list[dict[str, Any]] | None:
    """Return a text, or the parts that an assistant can say or show; None for anything else."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return None
    parts = [_part(part) for part in content if isinstance(part, dict)]
    return [part for part in parts if part is not None] or None


def _part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    type_ = part.get("type")
    if not isinstance(type_, str):
        return None
    if type_ in _TEXT_PARTS:
        text = part.get("refusal" if type_ == "refusal" else "text")
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if type_ in _MEDIA_PARTS:
        return {name: value for name, value in part.items() if name not in _DROPPED_MEDIA_FIELDS}
    return None


def _is_error(answer: Mapping[str, Any]) -> bool:
    return answer.get("error") not in (None, False)


def _is_failed_choice(choice: Mapping[str, Any]) -> bool:
    """Return whether a choice ended in an error; some gateways report one beside partial text."""
    return choice.get("finish_reason") == "error" or _is_error(choice)


def _is_done_line(line: bytes) -> bool:
    return line.startswith(b"data:") and line[5:].strip() == b"[DONE]"


def _merge(held: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a chunk of a tool call: streamed fields are concatenated, any other is taken once."""
    for name, value in part.items():
        if name == "index" or value is None:
            continue
        if isinstance(value, dict):
            inner = held.setdefault(name, {})
            if isinstance(inner, dict):
                _merge(inner, value)
        elif name in _STREAMED_FIELDS and isinstance(value, str):
            held[name] = str(held.get(name, "")) + value
        else:
            held.setdefault(name, value)


def _text(value: object) -> str:
    """Return a text, or the joined texts of a list of parts."""
    if isinstance(value, list):
        parts = [part for part in value if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(_text(part.get("text")) for part in parts)
    return value if isinstance(value, str) else ""


def _first_choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
            return choice
    return {}


def _parse_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; what cannot be parsed counts as empty, and the client still gets it."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _if_not_empty(message: dict[str, Any]) -> dict[str, Any] | None:
    return message if any(message.get(name) for name in _CONTENT_FIELDS) else None
