"""Messages that no client should send: the same ones for the same seed."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

TOOLS = ("remember", "recall", "memories", "revise", "forget", "history", "context")
METHODS = (
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "resources/subscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "server/discover",
    "subscriptions/listen",
    "notifications/cancelled",
    "notifications/initialized",
    "sampling/createMessage",
    "no/such/method",
    "",
)
ARGUMENTS = [
    "content",
    "query",
    "id",
    "limit",
    "tags",
    "kinds",
    "category",
    "subject",
    "as_of",
    "since",
    "key",
    "metadata",
    "where",
    "valid_at",
    "pinned",
    "tokens",
    "order",
    "after",
    "expected_version",
    "reason",
    "space",
    "user",
    "__proto__",
]
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    "",
    "\x00",
    "../../etc/passwd",
    "' OR 1=1 --",
    "\u202e\u2028\ufeff",
    "x" * 5_000,
    [],
    {},
    [[[[[]]]]],
    {"a": {"b": {"c": None}}},
    ["x"] * 300,
)
Make = Callable[[random.Random, int], bytes]


def bodies(seed: int, count: int) -> Iterator[bytes]:
    """So many bodies of requests, one line each."""
    chance = random.Random(seed)
    for number in range(count):
        made = chance.choice(_KINDS)(chance, number)
        yield made.replace(b"\n", b" ").replace(b"\r", b" ")


def headers(chance: random.Random) -> list[tuple[bytes, bytes]]:
    """What comes with a body over HTTP: mostly as it should be."""
    given = [
        (b"Accept", b"application/json, text/event-stream"),
        (b"Content-Type", b"application/json"),
    ]
    if chance.random() < 0.6:
        return given
    return [
        *given[chance.randrange(3) :],
        *chance.sample(_ODD_HEADERS, chance.randrange(1, 4)),
    ]


_ODD_HEADERS = [
    (b"MCP-Protocol-Version", b"2026-07-28"),
    (b"MCP-Protocol-Version", b"2025-06-18"),
    (b"MCP-Protocol-Version", b"1999-01-01"),
    (b"MCP-Protocol-Version", b"\xff\xfe"),
    (b"Mcp-Method", b"tools/call"),
    (b"Mcp-Method", b"tools/list"),
    (b"Mcp-Name", b"recall"),
    (b"Mcp-Param-Limit", b"5"),
    (b"Mcp-Session-Id", b"0" * 500),
    (b"Last-Event-ID", b"7"),
    (b"X-Reverie-Space", b"one"),
    (b"X-Reverie-Space", b"two"),
    (b"X-Reverie-Space", b"\xff"),
    (b"X-Reverie-User", b""),
    (b"X-Reverie-Session", b"x" * 400),
    (b"Content-Type", b"text/plain"),
    (b"Accept", b"text/html"),
    (b"Content-Encoding", b"gzip"),
]


def _value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(8 if depth < 3 else 6)
    if kind < 3:
        return chance.choice(ODD)
    if kind == 3:
        return chance.randrange(-(10**6), 10**6)
    if kind < 6:
        return "".join(chance.choices(string.printable + "äλ中🚤", k=chance.randrange(60)))
    if kind == 6:
        return [_value(chance, depth + 1) for _ in range(chance.randrange(5))]
    return {chance.choice(ARGUMENTS): _value(chance, depth + 1) for _ in range(3)}


def _id(chance: random.Random, number: int) -> Any:
    return number if chance.random() < 0.7 else _value(chance)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=random.Random(len(str(value))).random() < 0.5).encode()


def _noise(chance: random.Random, number: int) -> bytes:
    return chance.randbytes(chance.randrange(1, 200))


def _cut(chance: random.Random, number: int) -> bytes:
    whole = _call(chance, number)
    return whole[: chance.randrange(len(whole))]


def _deep(chance: random.Random, number: int) -> bytes:
    depth = chance.choice([100, 1_000, 20_000])
    nested = "[" * depth + "]" * depth
    if chance.random() < 0.5:
        return nested.encode()
    call = f'{{"name": "recall", "arguments": {{"query": {nested}}}}}'
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {call}}}'.encode()


def _numbers(chance: random.Random, number: int) -> bytes:
    value = chance.choice(["NaN", "Infinity", "1e999", "9" * 5_000, "-0.0", "01"])
    call = f'{{"name": "recall", "arguments": {{"query": "x", "limit": {value}}}}}'
    id = chance.choice([value, "1"])
    return f'{{"jsonrpc": "2.0", "id": {id}, "method": "tools/call", "params": {call}}}'.encode()


def _envelope(chance: random.Random, number: int) -> bytes:
    message: dict[str, Any] = {
        "jsonrpc": chance.choice(["2.0", "2.0", "1.0", 2, None]),
        "id": _id(chance, number),
        "method": chance.choice([*METHODS, _value(chance)]),
        "params": _value(chance),
    }
    for name in chance.sample(sorted(message), chance.randrange(3)):
        del message[name]
    return _dumped(message)


def _method(chance: random.Random, number: int) -> bytes:
    params = {
        chance.choice(["name", "uri", "cursor", "ref", "argument", "arguments", "_meta"]): _value(
            chance
        )
        for _ in range(chance.randrange(4))
    }
    return _dumped(
        {
            "jsonrpc": "2.0",
            "id": _id(chance, number),
            "method": chance.choice(METHODS),
            "params": params,
        }
    )


def _call(chance: random.Random, number: int) -> bytes:
    name = chance.choice([*TOOLS, *TOOLS, "erase", "", "__class__", _value(chance)])
    given = {chance.choice(ARGUMENTS): _value(chance) for _ in range(chance.randrange(5))}
    params: dict[str, Any] = {"name": name, "arguments": given}
    if chance.random() < 0.3:
        params["_meta"] = chance.choice(
            [
                _value(chance),
                {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
                {"progressToken": _value(chance)},
            ]
        )
    return _dumped({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


def _huge(chance: random.Random, number: int) -> bytes:
    size = chance.choice([50_000, 300_000, 1_000_000])
    given = {chance.choice(["content", "query", "id", "tags"]): "x" * size}
    params = {"name": chance.choice(TOOLS), "arguments": given}
    return _dumped({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


def _batch(chance: random.Random, number: int) -> bytes:
    many = chance.randrange(6)
    inside = [json.loads(_call(chance, number + n)) for n in range(many)]
    return _dumped(chance.choice([inside, [inside], [*inside, _value(chance)]]))


def _unasked(chance: random.Random, number: int) -> bytes:
    """Answers to nothing, and notifications about nothing."""
    return _dumped(
        chance.choice(
            [
                {"jsonrpc": "2.0", "id": _value(chance), "result": _value(chance)},
                {"jsonrpc": "2.0", "id": number, "error": {"code": 1, "message": "no"}},
                {"jsonrpc": "2.0", "id": None, "error": _value(chance)},
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": chance.randrange(number + 1)},
                },
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": _value(chance)},
            ]
        )
    )


_KINDS: list[Make] = [
    *[_call] * 6,
    *[_envelope] * 4,
    *[_method] * 4,
    *[_noise] * 2,
    *[_cut] * 2,
    *[_batch] * 2,
    *[_unasked] * 2,
    _deep,
    _numbers,
    _huge,
]
