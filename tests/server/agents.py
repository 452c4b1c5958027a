"""Real MCP clients, over each transport and each version of the protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from tests.server.conftest import PATIENCE, Running

SOURCE = Path(__file__).parents[2] / "src"
# With a handshake, as most clients still are, and without.
ERAS = ("legacy", "2026-07-28")

ACCEPT = {"Accept": "application/json, text/event-stream"}

Result = TypeVar("Result")
ClientCall = Callable[[Client], Awaitable[Result]]


def over_http(
    running: Running,
    client_call: ClientCall[Result],
    *,
    token: str | None = None,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    era: str = "auto",
) -> Result:
    """The result of a client's calls to a server, with the operator's token or another."""
    given = {"Authorization": f"Bearer {token or running.server_context.token}", **(headers or {})}

    async def connected() -> Result:
        async with httpx2.AsyncClient(headers=given, timeout=PATIENCE, verify=False) as http:
            transport = streamable_http_client(f"{running.url}/mcp{query}", http_client=http)
            async with Client(transport, mode=era) as client:
                return await client_call(client)

    return asyncio.run(connected())


def over_stdio(
    store: Path, client_call: ClientCall[Result], *options: str, era: str = "auto"
) -> Result:
    """The result of a client's calls to a process that it starts itself."""
    started = StdioServerParameters(
        command=sys.executable,
        args=["-m", "reverie", *arguments(store, *options)],
        env=environment(),
    )

    async def connected() -> Result:
        async with Client(stdio_client(started), mode=era) as client:
            return await client_call(client)

    return asyncio.run(connected())


def arguments(store: Path, *options: str) -> list[str]:
    return ["mcp", "--url", str(store), *options]


def environment() -> dict[str, str]:
    return {**os.environ, "REVERIE_EMBEDDER": "hashing", "PYTHONPATH": str(SOURCE)}


async def error_of(call: Awaitable[Any]) -> str:
    """What an error of the protocol says."""
    try:
        answer = await call
    except MCPError as error:
        return error.message
    raise AssertionError(f"no error, but {answer}")


def text_of(result: Any) -> str:
    """The one text of a tool's answer."""
    assert isinstance(result, CallToolResult)
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text
