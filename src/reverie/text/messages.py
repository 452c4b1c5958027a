"""Reads chat messages of any provider, without the providers' libraries.

A message of any format is split into the same few kinds of pieces, and all functions here work on
those.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from reverie.text.json_values import to_json_value

PARSER_VERSION = "messages 3"
"""The version of the rules for texts and digests: when it changes, indexes are rebuilt."""


_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})
_THINKING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})
_CALL_TYPES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
# Content blocks of a tool result; any other object in one is the tool's own JSON.
_RESULT_TYPES = _TEXT_TYPES | {
    *("image", "audio", "document", "file", "resource", "resource_link"),
    *("image_url", "input_image", "input_audio", "input_file", "tool_reference"),
}
_MEDIA_KINDS = frozenset(
    {"image-url", "audio-url", "video-url", "document-url", "binary", "uploaded-file"}
)
_BLOB_CHARS = 1_000
_BLOB = re.compile(r"(?:data:[^,\s]{0,200},)?[A-Za-z0-9+/_-]{800,}={0,2}\Z")
_THINKING = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL)
_LONGEST_NAME = 200
# The keys of what somebody said; texts under other keys may be ids.
_CONTENT_KEYS = frozenset({"content", "text", "refusal", "output", "transcript"})
_MIN_OTHER_CHARS = 200
# The arguments of a call, as an object or as the text of one.
_ARGUMENT_KEYS = frozenset(("arguments", "args", "input"))
# What nobody can use when a part of it is missing.
_WHOLE_KEYS = frozenset(("data", "url", "id", "tool_call_id"))
# A provider refuses what it signed when a part of it is missing.
_SIGNED_KEYS = frozenset(("signature", "thought_signature", "encrypted_content"))
_PLAIN = {"role", "content"}
_SPEAKERS = ("user", "assistant")
_ROLES = {"developer": "system", "function": "tool"}
# Keys that differ between two copies of the same image or file.
_VOLATILE_KEYS = frozenset({"id", "cache_control", "timestamp", "identifier"})


class ToolCall(NamedTuple):
    """A tool call. ``arguments`` is JSON text, empty when there are none."""

    id: str
    name: str
    arguments: str


class _MessagePiece(NamedTuple):
    """One piece of a message; the type of its value depends on its kind.

    ``text``, ``quoted`` and ``system`` are texts; ``quoted`` is text in a block that nobody typed.
    ``result`` is a text or JSON value that a tool returned. ``call`` is a ``ToolCall``, and
    ``tool_result_id`` the id of the call that is answered. ``media`` is an image, sound or file.
    """

    kind: Literal["text", "quoted", "system", "result", "call", "tool_result_id", "media"]
    value: Any


_Kind = Literal["text", "system", "result"]


# -- reading a message ----------------------------------------------------------------------------


def role_of(message: Mapping[str, Any]) -> str:
    """``user``, ``assistant``, ``system``, ``tool``, another role as given, or ``unknown``."""
    if _is_plain(message):
        return str(message["role"])
    if _is_pydantic_ai(message):
        return _role_of_parts(message)
    role = _storable(_string(message.get("role")).lower())
    if not role:
        return _role_of_item(_string(message.get("type")))
    content = message.get("content")
    if role == "user" and isinstance(content, list) and content:
        types = [block.get("type") for block in content if isinstance(block, Mapping)]
        if types == ["tool_result"] * len(content):
            return "tool"
    return _ROLES.get(role, role)


def _role_of_item(type_: str) -> str:
    """The role of an item that has a type but no role."""
    if type_.endswith("_call") or type_ in _THINKING_TYPES:
        return "assistant"
    return "tool" if type_.endswith("_call_output") else "unknown"


def speaker_of(message: Mapping[str, Any]) -> str | None:
    """The speaker's name, if the message has one; the name of a tool is not a speaker's."""
    name = message.get("name")
    if not isinstance(name, str) or role_of(message) not in _SPEAKERS:
        return None
    return " ".join(_storable(name[:_LONGEST_NAME]).split()) or None


def _storable(name: str) -> str:
    """A name that any database can store: lone surrogates and NUL become ``?``."""
    if name.isascii() and "\0" not in name:
        return name
    return name.encode("utf-8", "replace").decode().replace("\0", "?")


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message for people and for the index, with a line for each tool call."""
    pieces = _visible_pieces(message)
    lines = [_as_text(piece.value) for piece in pieces if piece.kind not in {"call", "media"}]
    lines += [_call_line(piece.value) for piece in pieces if piece.kind == "call"]
    return "\n".join(lines)


def user_text(message: Mapping[str, Any]) -> str:
    """The text that the user typed, and nothing else."""
    if role_of(message) != "user":
        return ""
    return "\n".join(piece.value for piece in _pieces(message) if piece.kind == "text")


def tool_calls_of(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """The tool calls of a message. The id is empty where the provider gives none."""
    return tuple(piece.value for piece in _pieces(message) if piece.kind == "call")


def tool_result_ids(message: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids of the tool calls that a message has results of; empty where it gives none."""
    return tuple(piece.value for piece in _pieces(message) if piece.kind == "tool_result_id")


def without_system(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message without system prompts; None if nothing else is in it."""
    if not _is_pydantic_ai(message):
        return None if role_of(message) == "system" else dict(message)
    if message["kind"] == "response":
        return dict(message)
    parts = [part for part in message["parts"] if not _is_system_part(part)]
    if not parts:
        return None
    return {key: held for key, held in message.items() if key != "instructions"} | {"parts": parts}


def without_tool_results(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message without its tool results."""
    key = "parts" if _is_pydantic_ai(message) else "content"
    parts = message.get(key)
    if not isinstance(parts, list):
        return dict(message)
    return {**message, key: [part for part in parts if not _is_tool_result(key, part)]}


def _is_tool_result(key: str, part: Any) -> bool:
    pieces = _read_part(part) if key == "parts" else _read_content(part, "text")
    return any(piece.kind == "tool_result_id" for piece in pieces)


def truncate_texts(message: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Cut every text in a message to ``most`` characters, and note how many are left out.

    What is not the content of the message, such as ids and names, keeps ``_MIN_OTHER_CHARS``.
    Arguments of a call stay valid JSON, and signatures and addresses stay whole.
    """
    truncated: dict[str, Any] = _truncate(dict(message), most, is_content=False)
    return truncated


def _truncate(value: Any, most: int, *, is_content: bool) -> Any:
    if isinstance(value, str):
        limit = most if is_content else max(most, _MIN_OTHER_CHARS)
        missing = len(value) - limit
        return value if missing <= 0 else f"{value[:limit]} [… {missing} characters left out]"
    if isinstance(value, dict):
        if _SIGNED_KEYS & value.keys():
            return value
        return {key: _truncate_member(key, held, most) for key, held in value.items()}
    if isinstance(value, list):
        return [_truncate(held, most, is_content=is_content) for held in value]
    return value


def _truncate_member(key: str, held: Any, most: int) -> Any:
    if key in _WHOLE_KEYS:
        return held
    if key not in _ARGUMENT_KEYS:
        return _truncate(held, most, is_content=key in _CONTENT_KEYS)
    try:
        arguments = json.loads(held) if isinstance(held, str) else held
    except ValueError:
        return held
    cut = _truncate_arguments(arguments, most)
    return json.dumps(cut, ensure_ascii=False) if isinstance(held, str) else cut


def _truncate_arguments(value: Any, most: int) -> Any:
    """Cut the texts in the arguments of a call; each of them is content."""
    if isinstance(value, dict):
        return {key: _truncate_arguments(held, most) for key, held in value.items()}
    if isinstance(value, list):
        return [_truncate_arguments(held, most) for held in value]
    return _truncate(value, most, is_content=True)


def without_blobs(value: Any) -> tuple[Any, int]:
    """The message without the encoded bytes of images, sounds and files, and their number."""
    if isinstance(value, str):
        return ("", 1) if len(value) >= _BLOB_CHARS and _BLOB.match(value) else (value, 0)
    if isinstance(value, Mapping):
        pairs = {key: without_blobs(held) for key, held in value.items()}
        return {key: held for key, (held, _) in pairs.items()}, sum(n for _, n in pairs.values())
    if isinstance(value, list):
        items = [without_blobs(held) for held in value]
        return [held for held, _ in items], sum(n for _, n in items)
    return value, 0


def starts_turn(message: Mapping[str, Any]) -> bool:
    """Whether the message has content of the user, and not only tool results."""
    return role_of(message) == "user" and any(
        piece.kind in {"text", "quoted", "media"} for piece in _pieces(message)
    )


def digest(message: Mapping[str, Any]) -> str:
    """A hash of 32 hex characters, equal for two renderings of the same message."""
    texts, calls, media = list[str](), list[Any](), list[Any]()
    if _is_plain(message):
        # A fast path with the same result as below: most messages of a long history are plain.
        text = _comparable_text(message["role"], message["content"])
        canonical = json.dumps([message["role"], text, calls, media])
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]
    for kind, value in _visible_pieces(message):
        if kind == "call":
            calls.append([value.name, _comparable_arguments(value.arguments)])
        elif kind == "media":
            media.append(_comparable(_without_volatile_keys(value), nulls=False))
        else:
            texts.append(value if isinstance(value, str) else _sorted_json(value))
    role = role_of(message)
    # Escaped to ASCII: a character is then equal to its two surrogates.
    canonical = _sorted_json([role, _comparable_text(role, "".join(texts)), calls, media])
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def without_thinking(text: str) -> str:
    """A reply without its leading <think> block, which many clients do not send back."""
    thought = _THINKING.match(text)
    return text if thought is None else text[thought.end() :]


def _comparable_text(role: str, text: str) -> str:
    return " ".join((without_thinking(text) if role == "assistant" else text).split())


# -- trimming a history ---------------------------------------------------------------------------


def trim_history(messages: Sequence[Mapping[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The end of a conversation as a provider accepts it: at most ``limit`` messages.

    It starts with a turn, holds no system message, and no call is without its result.
    """
    whole = [rest for message in messages if (rest := without_system(message)) is not None]
    kept = whole[-limit:] if limit > 0 else []
    if limit > 1 and not any(map(starts_turn, kept)):
        # The latest turn is longer than the limit: keep the user's message and the turn's end.
        kept = [*[message for message in whole if starts_turn(message)][-1:], *kept[1 - limit :]]
    while True:
        first = next((at for at, message in enumerate(kept) if starts_turn(message)), len(kept))
        kept = kept[first:]
        parted = _find_unpaired(kept)
        if not parted:
            return kept
        kept = [message for at, message in enumerate(kept) if at not in parted]


def _find_unpaired(messages: Sequence[Mapping[str, Any]]) -> set[int]:
    """The indexes of calls without result, results without call, and reasoning without reply."""
    unpaired: set[int] = set()
    open_calls: dict[str, deque[int]] = {}
    for at, message in enumerate(messages):
        if _is_plain(message) and not open_calls:
            continue
        calls = Counter(call.id for call in tool_calls_of(message))
        results = Counter(tool_result_ids(message))
        # A provider's own tools put the call and its result into one message.
        for result_id in (results - calls).elements():
            if open_calls.get(result_id):
                open_calls[result_id].popleft()
            else:
                unpaired.add(at)
        if starts_turn(message):
            unpaired.update(*open_calls.values())
            open_calls = {}
        for call_id in (calls - results).elements():
            open_calls.setdefault(call_id, deque()).append(at)
        if message.get("type") == "reasoning" and (
            at + 1 == len(messages) or role_of(messages[at + 1]) != "assistant"
        ):
            unpaired.add(at)
    return unpaired.union(*open_calls.values())


# -- splitting a message into pieces --------------------------------------------------------------


def _visible_pieces(message: Mapping[str, Any]) -> list[_MessagePiece]:
    """The pieces that are shown and compared; system text only in a system message."""
    hidden = {"tool_result_id"} if role_of(message) == "system" else {"tool_result_id", "system"}
    return [piece for piece in _pieces(message) if piece.kind not in hidden]


def _is_plain(message: Mapping[str, Any]) -> bool:
    """Whether a message has only a role and a text, as most do."""
    return (
        message.keys() == _PLAIN
        and message["role"] in _SPEAKERS
        and isinstance(message["content"], str)
    )


def _pieces(message: Mapping[str, Any]) -> Iterable[_MessagePiece]:
    if _is_plain(message):
        return _text_piece("text", message["content"])
    return _all_pieces(message)


def _all_pieces(message: Mapping[str, Any]) -> Iterator[_MessagePiece]:
    if _is_pydantic_ai(message):
        for part in message["parts"]:
            yield from _read_part(part)
        return
    type_ = _string(message.get("type"))
    if not _string(message.get("role")) or type_.endswith(("_call", "_call_output")):
        yield from _read_content(message, "text")
        return
    role = role_of(message)
    if role == "tool" and _string(message.get("role")).lower() != "user":
        yield _MessagePiece("tool_result_id", _string(message.get("tool_call_id")))
        yield from _read_tool_result(_content(message))
    else:
        yield from _read_content(_content(message), "system" if role == "system" else "text")
    yield from _text_piece("text", message.get("refusal"))
    audio = message.get("audio")
    if isinstance(audio, Mapping):
        yield from _text_piece("text", audio.get("transcript"))
    for call in _list(message.get("tool_calls")):
        yield from _read_tool_call(call)
    if isinstance(message.get("function_call"), Mapping):
        yield from _read_tool_call(message["function_call"])


def _read_content(content: Any, kind: _Kind) -> Iterator[_MessagePiece]:
    """The pieces of a content: a text, a block, or a list of both."""
    if content is None or isinstance(content, str):
        yield from _text_piece(kind, content)
    elif isinstance(content, list):
        for item in content:
            yield from _read_content(item, kind)
    elif not isinstance(content, Mapping):
        yield _MessagePiece("media", content)
    else:
        type_ = _string(content.get("type"))
        if type_ in _THINKING_TYPES or content.get("kind") == "cache-point":
            return
        if type_ in _CALL_TYPES:
            yield _call_piece(content.get("id"), content.get("name"), content.get("input"))
        elif _is_call_item(content, type_):
            given = _first(content, "arguments", "input", "action")
            yield _call_piece(content.get("call_id"), content.get("name") or type_, given)
        elif type_.endswith("_call_output"):
            yield _MessagePiece("tool_result_id", _string(content.get("call_id")))
            yield from _read_tool_result(content.get("output"))
        elif type_.endswith("tool_result"):
            yield _MessagePiece("tool_result_id", _string(content.get("tool_use_id")))
            yield from _read_tool_result(content.get("content"))
        else:
            yield from _read_block(content, type_, kind)


def _is_call_item(item: Mapping[str, Any], type_: str) -> bool:
    """Whether an item is a call for the client; the provider runs its own tools itself."""
    is_asked = type_ in {"function_call", "custom_tool_call"} or bool(item.get("call_id"))
    return is_asked and type_.endswith("_call")


def _read_block(block: Mapping[str, Any], type_: str, kind: _Kind) -> Iterator[_MessagePiece]:
    """A block that is neither a call nor a result: its text, or without any, media."""
    if type_ in _TEXT_TYPES:
        yield from _read_content(_first(block, "text", "refusal", "content"), kind)
        return
    if _string(block.get("kind")) in _MEDIA_KINDS:
        yield _MessagePiece("media", block)
        return
    pieces = list(_read_content(_content(block), kind))
    if not pieces:
        yield _MessagePiece("media", block)
    is_typed = not type_ and block.get("kind") in (None, "text", "text-content")
    for piece in pieces:
        is_quote = piece.kind == "text" and not is_typed
        yield _MessagePiece("quoted", piece.value) if is_quote else piece


def _read_tool_result(content: Any) -> Iterator[_MessagePiece]:
    """The pieces of a tool result: texts, blocks, or the tool's own JSON."""
    if content is None or isinstance(content, str):
        yield from _text_piece("result", content)
    elif isinstance(content, list):
        for item in content:
            yield from _read_tool_result(item)
    elif isinstance(content, Mapping) and _is_block(content):
        yield from _read_content(content, "result")
    else:
        yield _MessagePiece("result", content)


def _is_block(content: Mapping[str, Any]) -> bool:
    type_ = _string(content.get("type"))
    kind = _string(content.get("kind"))
    return type_ in _RESULT_TYPES or type_.endswith("_result") or kind in _MEDIA_KINDS


def _read_tool_call(call: Any) -> Iterator[_MessagePiece]:
    if not isinstance(call, Mapping):
        return
    inner = _first(call, "function", "custom")
    if not isinstance(inner, Mapping):
        inner = call
    yield _call_piece(
        call.get("id"), inner.get("name"), _first(inner, "arguments", "input", "args")
    )


def _call_piece(id_: Any, name: Any, given: Any) -> _MessagePiece:
    arguments = given if isinstance(given, str) else _json(given)
    # Some providers write an empty object where others leave it out.
    if arguments.strip() in {"", "{}", "null"}:
        arguments = ""
    return _MessagePiece("call", ToolCall(_string(id_), _string(name), arguments))


def _text_piece(kind: _Kind, text: Any) -> Iterator[_MessagePiece]:
    if isinstance(text, str) and text:
        yield _MessagePiece(kind, text)


def _content(block: Mapping[str, Any]) -> Any:
    return _first(block, "content", "text", "parts")


# -- PydanticAI -----------------------------------------------------------------------------------


def _is_pydantic_ai(message: Mapping[str, Any]) -> bool:
    is_kind = message.get("kind") in ("request", "response")
    return is_kind and isinstance(message.get("parts"), list)


def _is_system_part(part: Any) -> bool:
    return _part_kind(part) in {"system-prompt", "instruction-delta", "instruction-baseline"}


def _part_kind(part: Any) -> str:
    return _string(part.get("part_kind")) if isinstance(part, Mapping) else ""


def _role_of_parts(message: Mapping[str, Any]) -> str:
    if message["kind"] == "response":
        return "assistant"
    parts = message["parts"]
    kinds = {_part_kind(part) for part in parts}
    if not kinds.isdisjoint({"user-prompt", "speech"}):
        return "user"
    if any(piece.kind == "tool_result_id" for part in parts for piece in _read_part(part)):
        return "tool"
    return "system"


def _read_part(part: Any) -> Iterator[_MessagePiece]:
    kind = _part_kind(part)
    if not isinstance(part, Mapping) or kind == "thinking":
        return
    content = part.get("content")
    if kind in {"user-prompt", "text"}:
        yield from _read_content(content, "text")
    elif kind == "system-prompt":
        yield from _text_piece("system", content)
    elif kind in {"tool-call", "builtin-tool-call"}:
        yield _call_piece(part.get("tool_call_id"), part.get("tool_name"), part.get("args"))
    elif kind in {"tool-return", "builtin-tool-return"} or (
        kind == "retry-prompt" and part.get("tool_name")
    ):
        yield _MessagePiece("tool_result_id", _string(part.get("tool_call_id")))
        yield from _read_tool_result(content)
    elif kind in {"retry-prompt", "retry-feedback"}:
        yield from _read_tool_result(content)
    elif kind == "speech" and part.get("transcript"):
        yield from _text_piece("text", part["transcript"])
    elif not kind.endswith("-delta") and not _is_system_part(part):
        yield from _read_block(part, kind, "text")


# -- JSON -----------------------------------------------------------------------------------------


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _sorted_json(value: Any) -> str:
    return json.dumps(_comparable(value), sort_keys=True)


def _call_line(call: ToolCall) -> str:
    if not call.arguments:
        line = f"tool {call.name} invocation"
    else:
        arguments = call.arguments
        # A search does not find words whose letters are escaped.
        if "\\u" in arguments and (parsed := _parse_arguments(arguments)):
            arguments = _json(parsed[0])
        line = f"tool {call.name} arguments {arguments}"
    return " ".join(line.splitlines())


def _parse_arguments(arguments: str) -> list[Any]:
    """The parsed value in a list, which is empty if the text is not JSON."""
    try:
        return [to_json_value(json.loads(arguments), 1)]
    except (ValueError, RecursionError):
        return []


def _comparable_arguments(arguments: str) -> Any:
    return _parse_arguments(arguments) or arguments


def _without_volatile_keys(media: Any) -> Any:
    if not isinstance(media, Mapping):
        return media
    return {key: held for key, held in media.items() if key not in _VOLATILE_KEYS}


def _comparable(value: Any, *, nulls: bool = True) -> Any:
    """Write equal numbers the same way; without ``nulls``, drop keys whose value is null."""
    if isinstance(value, Mapping):
        return {
            key: _comparable(held, nulls=nulls)
            for key, held in value.items()
            if nulls or held is not None
        }
    if isinstance(value, list):
        return [_comparable(item, nulls=nulls) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(mapping: Mapping[str, Any], *keys: str) -> Any:
    """The value of the first of these keys whose value is not None."""
    return next((held for key in keys if (held := mapping.get(key)) is not None), None)
