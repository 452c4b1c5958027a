"""Chat messages of any provider, read without their libraries.

Every shape is taken apart into the same few pieces, and all that is asked of a message is
answered from those.
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
"""Which rules made a text or a digest of a message: when they change, indexes are made anew."""


_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})
_THINKING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})
_CALL_TYPES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
# What a tool's answer may be made of; any other object in it is the tool's own JSON.
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
_PLAIN = {"role", "content"}
_SPEAKERS = ("user", "assistant")
_ROLES = {"developer": "system", "function": "tool"}
# They differ between two renderings of the same image or file.
_VOLATILE_KEYS = frozenset({"id", "cache_control", "timestamp", "identifier"})


class ToolCall(NamedTuple):
    """A tool call. ``arguments`` is JSON text, empty when there are none."""

    id: str
    name: str
    arguments: str


class _MessagePiece(NamedTuple):
    """One thing a message holds.

    The value is a text (of a result also the tool's own JSON), a ``Call``, the id of the call
    that is answered, or whatever stands for an image, a sound or a file. What is ``quoted`` is
    text that nobody typed.
    """

    kind: Literal["said", "quoted", "system", "result", "call", "answer", "media"]
    value: Any


_Kind = Literal["said", "system", "result"]


# -- what is asked of a message -------------------------------------------------------------------


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
    """Whose an item without a role is."""
    if type_.endswith("_call") or type_ in _THINKING_TYPES:
        return "assistant"
    return "tool" if type_.endswith("_call_output") else "unknown"


def speaker_of(message: Mapping[str, Any]) -> str | None:
    """The name of who speaks, where several do. A tool's name is nobody's."""
    name = message.get("name")
    if not isinstance(name, str) or role_of(message) not in _SPEAKERS:
        return None
    return " ".join(_storable(name[:_LONGEST_NAME]).split()) or None


def _storable(name: str) -> str:
    """What any database can hold of a name: half characters and NUL become marks."""
    if name.isascii() and "\0" not in name:
        return name
    return name.encode("utf-8", "replace").decode().replace("\0", "?")


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says, for people and for the index; a line for each tool call at the end."""
    pieces = _visible_pieces(message)
    lines = [_readable(piece.value) for piece in pieces if piece.kind not in {"call", "media"}]
    lines += [_call_line(piece.value) for piece in pieces if piece.kind == "call"]
    return "\n".join(lines)


def user_text(message: Mapping[str, Any]) -> str:
    """What the user typed, and nothing else."""
    if role_of(message) != "user":
        return ""
    return "\n".join(piece.value for piece in _pieces(message) if piece.kind == "said")


def tool_calls_of(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """The tool calls a message makes. A call of a provider that gives none has an empty id."""
    return tuple(piece.value for piece in _pieces(message) if piece.kind == "call")


def tool_result_ids(message: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids of the calls a message answers, an empty one where it does not say which."""
    return tuple(piece.value for piece in _pieces(message) if piece.kind == "answer")


def without_system(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message without what the system said; None when nothing else is in it."""
    if not _is_pydantic_ai(message):
        return None if role_of(message) == "system" else dict(message)
    if message["kind"] == "response":
        return dict(message)
    parts = [part for part in message["parts"] if not _is_system_part(part)]
    if not parts:
        return None
    return {key: held for key, held in message.items() if key != "instructions"} | {"parts": parts}


def without_tool_results(message: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a message where the calls that it answers are not shown."""
    key = "parts" if _is_pydantic_ai(message) else "content"
    held = message.get(key)
    if not isinstance(held, list):
        return dict(message)
    return {**message, key: [part for part in held if not _is_tool_result(key, part)]}


def _is_tool_result(key: str, part: Any) -> bool:
    pieces = _read_part(part) if key == "parts" else _read_content(part, "said")
    return any(piece.kind == "answer" for piece in pieces)


def truncate_texts(message: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The message with every long text in it cut, and a mark that says how much is missing."""
    short: dict[str, Any] = _truncate(dict(message), most)
    return short


def _truncate(value: Any, most: int) -> Any:
    if isinstance(value, str):
        missing = len(value) - most
        return value if missing <= 0 else f"{value[:most]} [… {missing} characters left out]"
    if isinstance(value, dict):
        return {key: _truncate(held, most) for key, held in value.items()}
    return [_truncate(held, most) for held in value] if isinstance(value, list) else value


def without_blobs(value: Any) -> tuple[Any, int]:
    """A message without the bytes of images, sounds and files in it, and how many there were."""
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
    """Whether a user says something here, and not only a tool."""
    return role_of(message) == "user" and any(
        piece.kind in {"said", "quoted", "media"} for piece in _pieces(message)
    )


def digest(message: Mapping[str, Any]) -> str:
    """32 hex characters, equal for two renderings of the same turn."""
    texts, calls, media = list[str](), list[Any](), list[Any]()
    if _is_plain(message):
        # What follows comes to this; a long history is made of such.
        said = _comparable_text(message["role"], message["content"])
        whole = json.dumps([message["role"], said, calls, media])
        return hashlib.sha256(whole.encode()).hexdigest()[:32]
    for kind, value in _visible_pieces(message):
        if kind == "call":
            calls.append([value.name, _comparable_arguments(value.arguments)])
        elif kind == "media":
            media.append(_comparable(_without_volatile_keys(value), nulls=False))
        else:
            texts.append(value if isinstance(value, str) else _sorted_json(value))
    role = role_of(message)
    # Escaped to ASCII: two halves of a character are then the same as the character.
    whole = _sorted_json([role, _comparable_text(role, "".join(texts)), calls, media])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def without_thinking(text: str) -> str:
    """A reply without what some models write before it and many clients do not send back."""
    thought = _THINKING.match(text)
    return text if thought is None else text[thought.end() :]


def _comparable_text(role: str, text: str) -> str:
    return " ".join((without_thinking(text) if role == "assistant" else text).split())


# -- going on with a conversation -----------------------------------------------------------------


def trim_history(messages: Sequence[Mapping[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The end of a conversation as a provider accepts it: at most ``limit`` messages.

    It starts with a turn, holds no system message, and no call is without its result.
    """
    whole = [rest for message in messages if (rest := without_system(message)) is not None]
    kept = whole[-limit:] if limit > 0 else []
    if limit > 1 and not any(map(starts_turn, kept)):
        # The latest turn is longer than that: what the user said, and the end of it.
        kept = [*[message for message in whole if starts_turn(message)][-1:], *kept[1 - limit :]]
    while True:
        first = next((at for at, message in enumerate(kept) if starts_turn(message)), len(kept))
        kept = kept[first:]
        parted = _find_unpaired(kept)
        if not parted:
            return kept
        kept = [message for at, message in enumerate(kept) if at not in parted]


def _find_unpaired(messages: Sequence[Mapping[str, Any]]) -> set[int]:
    """Where a call has no result, a result no call, or a thought no sequel."""
    parted: set[int] = set()
    waiting: dict[str, deque[int]] = {}
    for at, message in enumerate(messages):
        if _is_plain(message) and not waiting:
            continue
        calls = Counter(call.id for call in tool_calls_of(message))
        answers = Counter(tool_result_ids(message))
        # What a provider's own tools did stands in one message, the call and its result.
        for answered in (answers - calls).elements():
            if waiting.get(answered):
                waiting[answered].popleft()
            else:
                parted.add(at)
        if starts_turn(message):
            parted.update(*waiting.values())
            waiting = {}
        for called in (calls - answers).elements():
            waiting.setdefault(called, deque()).append(at)
        if message.get("type") == "reasoning" and (
            at + 1 == len(messages) or role_of(messages[at + 1]) != "assistant"
        ):
            parted.add(at)
    return parted.union(*waiting.values())


# -- taking a message apart -----------------------------------------------------------------------


def _visible_pieces(message: Mapping[str, Any]) -> list[_MessagePiece]:
    """The pieces that count. System prompts do when there is nothing else."""
    hidden = {"answer"} if role_of(message) == "system" else {"answer", "system"}
    return [piece for piece in _pieces(message) if piece.kind not in hidden]


def _is_plain(message: Mapping[str, Any]) -> bool:
    """A text and who said it: most messages are no more."""
    return (
        message.keys() == _PLAIN
        and message["role"] in _SPEAKERS
        and isinstance(message["content"], str)
    )


def _pieces(message: Mapping[str, Any]) -> Iterable[_MessagePiece]:
    if _is_plain(message):
        return _text_piece("said", message["content"])
    return _all_pieces(message)


def _all_pieces(message: Mapping[str, Any]) -> Iterator[_MessagePiece]:
    if _is_pydantic_ai(message):
        for part in message["parts"]:
            yield from _read_part(part)
        return
    type_ = _string(message.get("type"))
    if not _string(message.get("role")) or type_.endswith(("_call", "_call_output")):
        yield from _read_content(message, "said")
        return
    role = role_of(message)
    if role == "tool" and _string(message.get("role")).lower() != "user":
        yield _MessagePiece("answer", _string(message.get("tool_call_id")))
        yield from _read_tool_result(_content(message))
    else:
        yield from _read_content(_content(message), "system" if role == "system" else "said")
    yield from _text_piece("said", message.get("refusal"))
    audio = message.get("audio")
    if isinstance(audio, Mapping):
        yield from _text_piece("said", audio.get("transcript"))
    for call in _list(message.get("tool_calls")):
        yield from _read_tool_call(call)
    if isinstance(message.get("function_call"), Mapping):
        yield from _read_tool_call(message["function_call"])


def _read_content(content: Any, kind: _Kind) -> Iterator[_MessagePiece]:
    """The pieces of a content: a text, a block, or a list of them."""
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
            yield _MessagePiece("answer", _string(content.get("call_id")))
            yield from _read_tool_result(content.get("output"))
        elif type_.endswith("tool_result"):
            yield _MessagePiece("answer", _string(content.get("tool_use_id")))
            yield from _read_tool_result(content.get("content"))
        else:
            yield from _read_block(content, type_, kind)


def _is_call_item(item: Mapping[str, Any], type_: str) -> bool:
    """The others that end so were made and answered by the provider itself."""
    is_asked = type_ in {"function_call", "custom_tool_call"} or bool(item.get("call_id"))
    return is_asked and type_.endswith("_call")


def _read_block(block: Mapping[str, Any], type_: str, kind: _Kind) -> Iterator[_MessagePiece]:
    """A block that is neither call nor result: the text in it, else it is media."""
    if type_ in _TEXT_TYPES:
        yield from _read_content(_first(block, "text", "refusal", "content"), kind)
        return
    if _string(block.get("kind")) in _MEDIA_KINDS:
        yield _MessagePiece("media", block)
        return
    found = list(_read_content(_content(block), kind))
    if not found:
        yield _MessagePiece("media", block)
    typed = not type_ and block.get("kind") in (None, "text", "text-content")
    for piece in found:
        is_quote = piece.kind == "said" and not typed
        yield _MessagePiece("quoted", piece.value) if is_quote else piece


def _read_tool_result(content: Any) -> Iterator[_MessagePiece]:
    """What a tool answered: texts, blocks, or JSON of its own."""
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
    # Some providers write an empty object where others write nothing.
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
    if any(piece.kind == "answer" for part in parts for piece in _read_part(part)):
        return "tool"
    return "system"


def _read_part(part: Any) -> Iterator[_MessagePiece]:
    kind = _part_kind(part)
    if not isinstance(part, Mapping) or kind == "thinking":
        return
    content = part.get("content")
    if kind in {"user-prompt", "text"}:
        yield from _read_content(content, "said")
    elif kind == "system-prompt":
        yield from _text_piece("system", content)
    elif kind in {"tool-call", "builtin-tool-call"}:
        yield _call_piece(part.get("tool_call_id"), part.get("tool_name"), part.get("args"))
    elif kind in {"tool-return", "builtin-tool-return"} or (
        kind == "retry-prompt" and part.get("tool_name")
    ):
        yield _MessagePiece("answer", _string(part.get("tool_call_id")))
        yield from _read_tool_result(content)
    elif kind in {"retry-prompt", "retry-feedback"}:
        yield from _read_tool_result(content)
    elif kind == "speech" and part.get("transcript"):
        yield from _text_piece("said", part["transcript"])
    elif not kind.endswith("-delta") and not _is_system_part(part):
        yield from _read_block(part, kind, "said")


# -- JSON -----------------------------------------------------------------------------------------


def _readable(value: Any) -> str:
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
        # Nobody finds a word whose letters are escaped.
        if "\\u" in arguments and (parsed := _parsed(arguments)):
            arguments = _json(parsed[0])
        line = f"tool {call.name} arguments {arguments}"
    return " ".join(line.splitlines())


def _parsed(arguments: str) -> list[Any]:
    """The value in a list, which is empty when the text is not JSON."""
    try:
        return [to_json_value(json.loads(arguments), 1)]
    except (ValueError, RecursionError):
        return []


def _comparable_arguments(arguments: str) -> Any:
    return _parsed(arguments) or arguments


def _without_volatile_keys(media: Any) -> Any:
    if not isinstance(media, Mapping):
        return media
    return {key: held for key, held in media.items() if key not in _VOLATILE_KEYS}


def _comparable(value: Any, *, nulls: bool = True) -> Any:
    """Equal numbers written alike; without ``nulls`` a key that is null is as good as none."""
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
    """What the first of these keys holds that holds anything."""
    return next((held for key in keys if (held := mapping.get(key)) is not None), None)
