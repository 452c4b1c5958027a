from __future__ import annotations

import enum
import json
from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from reverie.errors import InvalidInput
from reverie.text.json_values import to_json_object
from reverie.text.messages import (
    ToolCall,
    digest,
    role_of,
    starts_turn,
    text_of,
    tool_calls_of,
    tool_result_ids,
    trim_history,
    user_text,
    without_system,
)
from tests.tables import cases_in_one_test

Message = dict[str, Any]
Calls = list[tuple[str, Message]]
check = settings(deadline=None, max_examples=200, derandomize=True)


# -- messages as the providers write them ---------------------------------------------------------


def block(type_: str, **fields: Any) -> Message:
    return {"type": type_, **fields}


def text(words: str, type_: str = "text") -> Message:
    return {"type": type_, "text": words}


def user(*content: Any) -> Message:
    return {"role": "user", "content": list(content)}


def reply(*content: Any, **fields: Any) -> Message:
    return {"role": "assistant", "content": list(content) or None, **fields}


def call(id_: str, name: str, arguments: str) -> Message:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: str) -> Message:
    return reply(tool_calls=[call(id_, "f", "") for id_ in ids])


def answer(id_: str, content: Any = "done") -> Message:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def use(id_: str, name: str = "f", **arguments: Any) -> Message:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def used(id_: str, content: Any = "done") -> Message:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, "is_error": False}


def part(part_kind: str, content: Any, **fields: Any) -> Message:
    return {"part_kind": part_kind, "content": content, "timestamp": "2025-01-01", **fields}


def tool_part(part_kind: str, id_: str, name: str | None = "f", **fields: Any) -> Message:
    return {"part_kind": part_kind, "tool_call_id": id_, "tool_name": name, **fields}


def request(*parts: Message, **fields: Any) -> Message:
    return {"kind": "request", "parts": list(parts), "instructions": None, **fields}


def response(*parts: Message, **fields: Any) -> Message:
    return {"kind": "response", "parts": list(parts), "model_name": "test", **fields}


IMAGE = block("image_url", image_url={"url": "https://example.org/cat.png"})
PICTURE = block("image", source={"type": "base64", "media_type": "image/png", "data": "AA=="})
DOCUMENT = block("document", source={"type": "text", "data": "long"}, title="t")
SEARCH = block("server_tool_use", id="s", name="f", input={})
FOUND = block("web_search_tool_result", tool_use_id="s", content=[block("web_search_result")])
THOUGHT = block("reasoning", id="rs_1", summary=[text("hm", "summary_text")])
ITEM_CALL = block("function_call", call_id="c", name="f", arguments='{"a": 1}')
ITEM_RESULT = block("function_call_output", call_id="c", output="done")
SYSTEM_PART = part("system-prompt", "Be kind.")
USER_PART = part("user-prompt", "hi")
RETURN = tool_part("tool-return", "a", content=12.0)
RETRY = request(tool_part("retry-prompt", "made up", None, content="Try again."))
F_LINE = "tool f invocation"


class Case(NamedTuple):
    message: Message
    role: str
    text: str
    own_text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: tuple[str, ...] = ()
    starts: bool = True


OPENAI = [
    Case({"role": "user", "content": "hi"}, "user", "hi", "hi"),
    Case(user(text("see"), IMAGE, "here"), "user", "see\nhere", "see\nhere"),
    Case(user(IMAGE), "user", ""),
    Case(user(block("input_audio", input_audio={"data": "AA=="})), "user", ""),
    Case({"role": "user", "content": ""}, "user", "", starts=False),
    Case({"role": "system", "content": "Be kind."}, "system", "Be kind."),
    Case({"role": "developer", "content": [text("Be kind.")]}, "system", "Be kind."),
    Case({"role": "assistant", "content": "hello", "refusal": None}, "assistant", "hello"),
    Case(reply(refusal="I cannot."), "assistant", "I cannot."),
    Case(reply(block("refusal", refusal="I cannot.")), "assistant", "I cannot."),
    Case(reply(audio={"id": "a", "transcript": "hello"}), "assistant", "hello"),
    Case(
        reply(text("So."), tool_calls=[call("a", "f", '{"x":1}'), call("b", "clock", "{}")]),
        *("assistant", 'So.\ntool f arguments {"x":1}\ntool clock invocation'),
        calls=(ToolCall("a", "f", '{"x":1}'), ToolCall("b", "clock", "")),
    ),
    Case(
        reply(tool_calls=[{"id": "a", "custom": {"name": "sql", "input": "SELECT\n1"}}]),
        *("assistant", "tool sql arguments SELECT 1"),
        calls=(ToolCall("a", "sql", "SELECT\n1"),),
    ),
    Case(
        reply(tool_calls=[call("a", "f", '{"q": "caf\\u00e9"}')]),
        *("assistant", 'tool f arguments {"q": "café"}'),
        calls=(ToolCall("a", "f", '{"q": "caf\\u00e9"}'),),
    ),
    Case(answer("a", [text("12"), text("°C")]), "tool", "12\n°C", answers=("a",)),
    Case(reply(function_call={"name": "f"}), "assistant", F_LINE, calls=(ToolCall("", "f", ""),)),
    Case({"role": "function", "name": "f", "content": "done"}, "tool", "done", answers=("",)),
    Case({"type": "message", **user(text("hi", "input_text"), PICTURE)}, "user", "hi", "hi"),
    Case({"type": "message", **reply(text("hello", "output_text"))}, "assistant", "hello"),
    Case(
        ITEM_CALL, "assistant", 'tool f arguments {"a": 1}', calls=(ToolCall("c", "f", '{"a": 1}'),)
    ),
    Case(ITEM_RESULT, "tool", "done", answers=("c",)),
    Case(ITEM_RESULT | {"output": [text("12", "input_text")]}, "tool", "12", answers=("c",)),
    Case(THOUGHT, "assistant", ""),
    Case(block("web_search_call", id="ws_1", status="completed"), "assistant", ""),
]

ANTHROPIC = [
    Case(user(text("What?"), PICTURE, DOCUMENT), "user", "What?", "What?"),
    Case(
        reply(block("thinking", thinking="secret"), use("a", city="Oslo"), text("So."), use("b")),
        *("assistant", 'So.\ntool f arguments {"city": "Oslo"}\ntool f invocation'),
        calls=(ToolCall("a", "f", '{"city": "Oslo"}'), ToolCall("b", "f", "")),
    ),
    Case(user(used("a"), used("b", [text("12"), PICTURE])), "tool", "done\n12", answers=("a", "b")),
    Case(user(used("a"), text("And?")), "user", "done\nAnd?", "And?", answers=("a",)),
    Case(user(block("search_result", content=[text("1")]), text("So?")), "user", "1\nSo?", "So?"),
    Case(
        reply(SEARCH, FOUND, text("Found.")),
        *("assistant", "Found.\ntool f invocation", "", (ToolCall("s", "f", ""),), ("s",)),
    ),
]

PROMPT = [
    "see",
    {"kind": "image-url", "url": "https://example.org/cat.png", "media_type": "image/png"},
    {"kind": "binary", "data": "AA==", "media_type": "image/png"},
    {"kind": "cache-point", "ttl": "5m"},
    {"kind": "text-content", "content": "here", "metadata": None},
    {"kind": "structured-content", "content": "<ui/>", "value": {}},
]
PYDANTIC_AI = [
    Case(request(SYSTEM_PART, USER_PART, instructions="Be."), "user", "hi", "hi"),
    Case(request(SYSTEM_PART), "system", "Be kind."),
    Case(request(instructions="Be brief."), "system", ""),
    Case(request(part("user-prompt", PROMPT)), "user", "see\nhere\n<ui/>", "see\nhere"),
    Case(request(part("speech", None, transcript="hi")), "user", "hi", "hi"),
    Case(
        response(
            *[part("thinking", "secret"), part("text", "So.")],
            *[tool_part("tool-call", "a", args='{"a":1}'), tool_part("tool-call", "b", args=None)],
        ),
        *("assistant", 'So.\ntool f arguments {"a":1}\ntool f invocation'),
        calls=(ToolCall("a", "f", '{"a":1}'), ToolCall("b", "f", "")),
    ),
    Case(
        request(
            tool_part("tool-return", "b", content={"type": "sunny", "kind": "nice", "at": [1]}),
            tool_part("retry-prompt", "c", content=[{"type": "missing", "loc": ["a"]}]),
            {"part_kind": "tool-availability-delta", "tools_added": ["g"]},
        ),
        "tool",
        '{"type": "sunny", "kind": "nice", "at": [1]}\n{"type": "missing", "loc": ["a"]}',
        answers=("b", "c"),
    ),
    Case(RETRY, "system", "Try again."),
    Case(request(RETURN, USER_PART), "user", "12.0\nhi", "hi", answers=("a",)),
    Case(response(part("file", {"kind": "binary", "data": "AA=="})), "assistant", ""),
    Case(
        response(tool_part("builtin-tool-call", "a"), tool_part("builtin-tool-return", "a")),
        *("assistant", F_LINE, "", (ToolCall("a", "f", ""),), ("a",)),
    ),
]

OTHERS = [
    Case({"content": "hi"}, "unknown", "hi"),
    Case({"text": "hi"}, "unknown", "hi"),
    Case({"role": "Model", "parts": [{"text": "hi"}]}, "model", "hi"),
    Case({"foo": [1, {"bar": "x"}]}, "unknown", ""),
    Case({"role": 7, "content": "hi"}, "unknown", "hi"),
    Case({"kind": "request", "content": "hi"}, "unknown", "hi"),
    Case(reply(tool_calls=[{"name": "f"}]), "assistant", F_LINE, calls=(ToolCall("", "f", ""),)),
]


@cases_in_one_test("case", [*OPENAI, *ANTHROPIC, *PYDANTIC_AI, *OTHERS])
def test_message_accessors_return_role_text_and_tool_calls(case: Case) -> None:
    message = to_json_object(case.message)
    assert message == case.message
    assert role_of(message) == case.role
    assert text_of(message) == case.text
    assert user_text(message) == case.own_text
    assert tool_calls_of(message) == case.calls
    assert tool_result_ids(message) == case.answers
    assert starts_turn(message) == (case.role == "user" and case.starts)


# -- taking a message in --------------------------------------------------------------------------


Colour = enum.Enum("Colour", ["RED"])
Role = enum.StrEnum("Role", ["USER"])
Level = enum.IntEnum("Level", ["LOW"])


class Block(BaseModel):
    type: str
    text: str
    citations: list[str] | None = None


class Reply(BaseModel):
    role: str
    content: list[Block] | bytes
    refusal: str | None = None


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def test_to_json_object_copies_deeply() -> None:
    message = {"role": Role.USER, "content": ({"a": (1, 2.5, None, True)},), "level": Level.LOW}
    copy = to_json_object(message)
    assert copy == {"role": "user", "content": [{"a": [1, 2.5, None, True]}], "level": 1}
    assert [type(copy["role"]), type(copy["level"])] == [str, int]
    copy["content"][0]["a"].append(3)
    assert message["content"] == ({"a": (1, 2.5, None, True)},)


@pytest.mark.parametrize("value", [-(10**4299), "\ud800", "\x00", 1e308, "", nested(199)])
def test_to_json_object_keeps_json_values(value: Any) -> None:
    message = {"content": value}
    assert to_json_object(message) == message == json.loads(json.dumps(to_json_object(message)))


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("hi", "a mapping, not str"),
        (None, "a mapping, not NoneType"),
        (Reply, "a mapping, not ModelMetaclass"),
        ({}, "empty"),
        ({"content": b"x"}, "base64"),
        ({1: "x"}, "keys of a message must be text, not int"),
        ({"content": float("nan")}, "NaN"),
        ({"content": [float("-inf")]}, "Infinity"),
        ({"content": {"a", "b"}}, "cannot hold set"),
        ({"content": Colour.RED}, "cannot hold Colour"),
        ({"content": nested(200)}, "deeper than 200"),
        ({"content": nested(100_000)}, "deeper than 200"),
        ({"content": 10**4300}, "4300 digits"),
        (Reply(role="user", content=b"\xff"), "Reply cannot be written as JSON"),
    ],
)
def test_to_json_object_refuses_values_that_json_cannot_hold_on_one_line(
    message: Any, complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=r"\A[^\n]+\Z") as refused:
        to_json_object(message)
    assert complaint in str(refused.value)


def test_to_json_object_accepts_client_objects_as_they_were_sent() -> None:
    message = Reply(role="assistant", content=[Block(type="text", text="hello")])
    expected = {"role": "assistant", "content": [{"type": "text", "text": "hello"}]}
    assert to_json_object(message) == expected
    assert to_json_object({"role": "assistant", "content": message.content}) == expected


def test_to_json_object_accepts_pydantic_ai_objects_as_their_dump() -> None:
    from pydantic_ai import messages as ai

    image = ai.ImageUrl("https://example.org/cat.png")
    messages: list[ai.ModelMessage] = [
        ai.ModelRequest(parts=[ai.SystemPromptPart("Be."), ai.UserPromptPart(["hi", image])]),
        ai.ModelResponse(
            parts=[ai.TextPart("So."), ai.ToolCallPart("weather", {"a": 1}, tool_call_id="c1")]
        ),
        ai.ModelRequest(parts=[ai.ToolReturnPart("weather", {"degrees": 12}, tool_call_id="c1")]),
    ]
    taken = [to_json_object(message) for message in messages]
    assert ai.ModelMessagesTypeAdapter.validate_python(taken) == messages
    assert [(role_of(message), text_of(message)) for message in taken] == [
        ("user", "hi"),
        ("assistant", 'So.\ntool weather arguments {"a": 1}'),
        ("tool", '{"degrees": 12}'),
    ]
    again = ai.ModelMessagesTypeAdapter.validate_python(trim_history(taken, 10))
    assert again[0].parts == messages[0].parts[1:]
    assert again[1:] == messages[1:]
    with pytest.raises(InvalidInput, match="TextPart is not a message"):
        to_json_object(ai.TextPart("hello"))


def test_without_system_drops_system_and_developer_messages() -> None:
    assert without_system({"role": "system", "content": "Be kind."}) is None
    assert without_system({"role": "developer", "content": "Be kind."}) is None
    for message in (user("hi") | {"instructions": "mine"}, response(part("text", "hello"))):
        assert without_system(message) == message
    prompt = request(SYSTEM_PART, USER_PART, instructions="Be brief.", run_id="r")
    assert without_system(prompt) == {"kind": "request", "parts": [USER_PART], "run_id": "r"}
    assert prompt["parts"] == [SYSTEM_PART, USER_PART]
    assert without_system(request(SYSTEM_PART, instructions="Be brief.")) is None
    assert without_system(RETRY) == {"kind": "request", "parts": RETRY["parts"]}


# -- digests --------------------------------------------------------------------------------------

WORDS = st.text(st.sampled_from("ab \n\té東👍\ud800\udc00\ud83d"), min_size=1, max_size=8)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS
ARGUMENTS = st.dictionaries(
    st.sampled_from(["city", "day", "é", ""]), SCALARS | st.lists(SCALARS, max_size=2), max_size=3
)
CALLS = st.lists(st.tuples(st.sampled_from(["f", "weather"]), ARGUMENTS), max_size=2)


def renderings(texts: list[str], calls: Calls, made_up: str) -> list[Message]:
    """One reply in every shape, with ids and fields that say nothing."""
    made = [(f"{made_up}{at}", *each) for at, each in enumerate(calls)]
    tools = [call(id_, name, json.dumps(held)) for id_, name, held in made]
    uses = [block("tool_use", id=id_, name=name, input=held) for id_, name, held in made]
    parts = [tool_part("tool-call", id_, name, args=held) for id_, name, held in made]
    return [
        {"role": "assistant", "content": "".join(texts), "tool_calls": tools},
        {
            "id": made_up,
            "tool_calls": tools,
            "content": list(map(text, texts)),
            "role": "Assistant",
        },
        reply(block("thinking", thinking=made_up), *map(text, texts), *uses, refusal=None),
        {"type": "message", **reply(*[text(words, "output_text") for words in texts], *uses)},
        response(part("thinking", made_up), *[part("text", words) for words in texts], *parts),
        response(*[part("text", words, id=made_up) for words in texts], *parts, timestamp=made_up),
    ]


@check
@given(st.lists(WORDS, max_size=3), CALLS)
def test_digest_of_a_turn_is_the_same_in_every_provider_format(
    texts: list[str], calls: Calls
) -> None:
    messages = renderings(texts, calls, "a") + renderings(texts, calls, "b")
    assert len({digest(message) for message in messages}) == 1


@pytest.mark.parametrize(
    "messages",
    [
        [
            {"role": "user", "content": "hi  there"},
            user(text(" hi"), "\nthere "),
            request(SYSTEM_PART, part("user-prompt", "hi there")),
            request(part("user-prompt", ["hi", " there"]) | {"timestamp": "later"}),
        ],
        [
            answer("a", "12"),
            user(used("b", "12")),
            block("function_call_output", call_id="c", output="12"),
            request(RETURN),
        ],
        [user(IMAGE), user({**IMAGE, "cache_control": {"a": 1}}), user({"detail": None, **IMAGE})],
        [
            reply(tool_calls=[call("a", "f", given)])
            for given in ('{"x":1,"y":[2.0]}', '{"y": [2], "x": 1.0}')
        ],
        [
            *[reply(tool_calls=[call("a", "f", given)]) for given in ("", "{}", " null")],
            reply(block("tool_use", name="f", input={})),
            response(tool_part("tool-call", "c", args=None)),
        ],
        [user("\ud83d\ude00"), user("😀")],
        [
            {"role": "assistant", "content": "So."},
            {"role": "assistant", "content": "<think>\nhm </think>\n\nSo."},
            {"role": "assistant", "content": "\n<think></think>So.", "refusal": None},
            reply(text("<think>hm, "), text("well</think>"), text("So.")),
            response(part("text", "<think>hm</think> So.")),
        ],
        [
            reply(tool_calls=[call("a", "f", "")]),
            {**reply(tool_calls=[call("a", "f", "")]), "content": "<think>hm</think>\n"},
        ],
    ],
)
def test_digest_is_equal_for_renderings_of_one_turn(messages: list[Message]) -> None:
    assert len({digest(message) for message in messages}) == 1


def test_digest_differs_for_different_turns() -> None:
    arguments = ['{"x": 1}', '{"x": true}', '{"x": null}', '{"x": 1', "[" * 100_000]
    contents = ["hi", "Hi", ["hi", IMAGE], ["hi", PICTURE], "\ud800", "\ud801", 1, 2]
    messages: list[Message] = [
        *[{"role": "user", "content": content} for content in contents],
        *[reply(tool_calls=[call("a", "f", given)]) for given in arguments],
        *[reply("hi"), reply(tool_calls=[call("a", "g", '{"x": 1}')])],
        *[{"foo": 1}, {"foo": 2}],
    ]
    assert len({digest(message) for message in messages}) == len(messages)


def test_digest_ignores_only_a_complete_leading_thought_of_a_reply() -> None:
    contents = [
        *["So.", "<think>So.", "So. <think>hm</think>", "<thinking>hm</thinking>So."],
        *["hm</think>So.", "<think>hm</think><think>hm</think>So."],
    ]
    replies = [{"role": "assistant", "content": content} for content in contents]
    asked = [{"role": "user", "content": content} for content in ("So.", "<think>hm</think>So.")]
    assert len({digest(message) for message in [*replies, *asked]}) == len(replies) + len(asked)


@given(st.sampled_from(["user", "assistant"]), st.text())
def test_digest_of_plain_text_equals_that_of_its_list_form(role: str, text: str) -> None:
    plain = {"role": role, "content": text}
    parts = {"role": role, "content": [{"type": "text", "text": text}]}
    assert digest(plain) == digest({**plain, "refusal": None}) == digest(parts)


def test_digest_never_changes_between_versions() -> None:
    # Stores hold them: with another one, the messages of a session are no longer matched.
    assert digest({"role": "user", "content": "hi"}) == "3584b11c8a471906e9d07c886c669041"
    assert digest({"role": "assistant", "content": "hi"}) == "6dafdad2609a0df7cbf27912fa7d5de5"


# -- any mapping at all ---------------------------------------------------------------------------

_KEYS = """
    role type kind part_kind content text parts tool_calls function function_call custom name value
    arguments args input output id call_id tool_call_id tool_use_id tool_name refusal audio action
    transcript instructions
"""
_NAMES = """
    user assistant system developer tool function request response message text input_text refusal
    output_text thinking reasoning image tool_use server_tool_use tool_result computer_call
    web_search_tool_result function_call function_call_output custom_tool_call system-prompt
    user-prompt tool-return retry-prompt retry-feedback tool-call speech file compaction
    instruction-delta image-url binary text-content cache-point c1 c2 {} [1]
"""
KEYS, NAMES = st.sampled_from(_KEYS.split()), st.sampled_from(_NAMES.split())
ANYTHING = st.recursive(
    SCALARS | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
LABELS = st.fixed_dictionaries({}, optional={"type": NAMES, "part_kind": NAMES, "kind": NAMES})
PARTS = st.lists(
    st.builds(dict.__or__, st.dictionaries(KEYS, ANYTHING, max_size=3), LABELS), max_size=3
)
HOLDERS = {"content": PARTS | ANYTHING, "parts": PARTS, "tool_calls": PARTS}
MESSAGES = st.dictionaries(KEYS, ANYTHING, min_size=1, max_size=6) | st.fixed_dictionaries(
    {}, optional={"role": NAMES, "type": NAMES, "kind": NAMES, "call_id": NAMES, **HOLDERS}
).filter(bool)


def turned(value: Any) -> Any:
    """The same JSON with its keys in the other order."""
    if isinstance(value, dict):
        return {key: turned(held) for key, held in reversed(value.items())}
    return [turned(item) for item in value] if isinstance(value, list) else value


@check
@given(MESSAGES)
def test_accessors_work_on_any_mapping(message: Message) -> None:
    before = json.dumps(message)
    assert to_json_object(message) == message
    assert role_of(message) == role_of(message).lower() != ""
    assert isinstance(text_of(message), str)
    assert user_text(message) == "" or starts_turn(message)
    for found in tool_calls_of(message):
        assert [type(field) for field in found] == [str, str, str]
    assert all(isinstance(answered, str) for answered in tool_result_ids(message))
    assert isinstance(without_system(message), dict | None)
    assert len(trim_history([HI, message, message, HI], 3)) <= 3
    assert json.dumps(message) == before


@check
@given(MESSAGES)
def test_digest_ignores_serialization_key_order_and_nulls(message: Message) -> None:
    made = digest(message)
    assert len(made) == 32
    assert digest(json.loads(json.dumps(message))) == made
    assert digest(turned(message)) == made
    assert digest(message | {"annotations": None}) == made


@pytest.mark.parametrize("holder", ["content", "parts", "tool_calls", "output"])
@pytest.mark.parametrize("label", [{"role": "user"}, {"kind": "request"}, ITEM_RESULT])
def test_accessors_work_on_deeply_nested_messages(label: Message, holder: str) -> None:
    for inner in ({"type": "tool_result"}, {"type": "x"}, {}):
        held: Any = "x"
        for _ in range(99):
            held = [{**inner, "content": held}]
        message = to_json_object({**label, holder: held})
        assert isinstance(text_of(message), str)
        assert len(digest(message)) == 32


# -- going on with a conversation -----------------------------------------------------------------

SYSTEM = {"role": "system", "content": "Be kind."}
HI, SO, HELLO = user("hi"), user("so?"), reply("hello")
TOOL_TURN = [HI, calling("a", "b"), answer("b"), answer("a"), HELLO]
AND_SO = user(used("a"), text("so?"))


@cases_in_one_test(
    "messages, limit, expected",
    [
        ([SYSTEM, HI, HELLO], 10, [HI, HELLO]),
        ([SYSTEM, HI, HELLO], 0, []),
        ([HI, HELLO, SYSTEM, SO, HELLO], 3, [SO, HELLO]),
        ([HELLO, HELLO], 2, []),
        ([], 5, []),
        (TOOL_TURN, 5, None),
        (TOOL_TURN, 4, [HI, HELLO]),
        ([*TOOL_TURN, SO], 5, [SO]),
        ([request(SYSTEM_PART, USER_PART)], 1, [{"kind": "request", "parts": [USER_PART]}]),
        # A call that waits for its result, or for some of them.
        ([HI, calling("a")], 9, [HI]),
        ([HI, calling("a", "b"), answer("a"), SO], 9, [HI, SO]),
        ([HI, calling("a"), SO, answer("a")], 9, [HI, SO]),
        # A result without its call, and one too many.
        ([HI, answer("a"), HELLO], 9, [HI, HELLO]),
        ([HI, calling("a"), answer("a"), answer("a")], 9, [HI, calling("a"), answer("a")]),
        # A result in the message that starts the next turn.
        ([HI, reply(use("a")), AND_SO, HELLO], 9, None),
        ([HI, reply(use("a")), AND_SO, HELLO], 2, []),
        ([HI, reply(use("a"), use("b")), AND_SO, HELLO], 9, [HI, HELLO]),
        # One message answers two calls, one of which cannot stay: then neither can.
        ([HI, calling("a"), calling("b", "c"), user(used("a"), used("b")), HELLO], 9, [HI, HELLO]),
        # Providers that number their calls from the start each time, or not at all.
        ([*TOOL_TURN, *TOOL_TURN], 10, None),
        ([HI, calling("", ""), answer(""), answer("")], 9, None),
        ([HI, calling("", ""), answer("")], 9, [HI]),
        # A provider's own tools, and a thought that goes with what it led to.
        ([HI, reply(SEARCH, FOUND)], 9, None),
        ([HI, THOUGHT, ITEM_CALL, ITEM_RESULT, THOUGHT, HELLO], 9, None),
        ([HI, THOUGHT, THOUGHT, ITEM_CALL], 9, [HI]),
    ],
)
def test_trim_history_returns_the_expected_messages(
    messages: list[Message], limit: int, expected: list[Message] | None
) -> None:
    assert trim_history(messages, limit) == (messages if expected is None else expected)


IDS = st.sampled_from(["a", "b", "c", ""])
SOME_IDS = st.lists(IDS, min_size=1, max_size=3)
CONVERSATIONS = st.lists(
    st.one_of(
        st.sampled_from([HI, SO, SYSTEM, HELLO, THOUGHT, ITEM_CALL, ITEM_RESULT]),
        IDS.map(answer),
        SOME_IDS.map(lambda ids: calling(*ids)),
        SOME_IDS.map(lambda ids: reply(*map(use, ids))),
        SOME_IDS.map(lambda ids: user(*map(used, ids))),
        SOME_IDS.map(lambda ids: user(*map(used, ids), text("so?"))),
    ),
    max_size=14,
)
TURNS = [
    TOOL_TURN,
    [HI, reply(use("a")), user(used("a")), reply(use("b")), user(used("b")), HELLO],
    [HI, THOUGHT, ITEM_CALL, ITEM_RESULT, THOUGHT, HELLO],
]


def every_call_is_answered_in_its_turn(messages: list[Message]) -> bool:
    waiting: Counter[str] = Counter()
    for message in messages:
        answers = Counter(tool_result_ids(message))
        if not answers <= waiting:
            return False
        waiting -= answers
        if starts_turn(message) and waiting:
            return False
        waiting += Counter(made.id for made in tool_calls_of(message))
    return not waiting


@check
@given(CONVERSATIONS, st.integers(-1, 16))
def test_trim_history_returns_a_history_that_providers_accept(
    messages: list[Message], limit: int
) -> None:
    kept = trim_history(messages, limit)
    assert len(kept) <= max(limit, 0)
    assert not kept or starts_turn(kept[0])
    assert SYSTEM not in kept
    rest = iter(messages)
    assert all(message in rest for message in kept), "not in the order they came"
    assert every_call_is_answered_in_its_turn(kept)
    assert trim_history(kept, limit) == kept


@check
@given(st.lists(st.sampled_from(TURNS), max_size=4), st.integers(0, 25))
def test_trim_history_keeps_whole_turns(turns: list[list[Message]], limit: int) -> None:
    messages = [message for turn in turns for message in turn]
    window = messages[max(0, len(messages) - limit) :]
    first = next((at for at, message in enumerate(window) if starts_turn(message)), len(window))
    begun = [message for message in messages if starts_turn(message)]
    if first < len(window) or limit < 2 or not begun:
        assert trim_history(messages, limit) == window[first:]
    else:
        assert trim_history(messages, limit)[:1] == begun[-1:], "a long turn is not left out whole"
