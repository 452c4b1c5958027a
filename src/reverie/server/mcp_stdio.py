"""MCP on standard input and output: one client, the operator's own, in one scope."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from reverie.errors import MissingExtra

try:
    import mcp_types as types
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage
except ImportError as error:
    raise MissingExtra("MCP", "mcp") from error

from reverie import aio
from reverie.config import Settings
from reverie.server import mcp
from reverie.server.mcp_tools import Scoped
from reverie.server.security import Caller

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

POLL_SECONDS = 5.0
OPERATOR = Caller("operator", "mcp", "admin")


def run(settings: Settings, session: str | None = None) -> None:
    """Answer until standard input ends. Nothing but the protocol goes to standard output."""
    asyncio.run(_serve(settings, session))


async def _serve(settings: Settings, session: str | None) -> None:
    async with aio.open(settings=settings) as store:
        # Vectors of a remote embedder, for one, would come from nowhere else.
        await store.start_worker(POLL_SECONDS)
        space = store.space(
            settings.space, user=settings.user or None, actor=OPERATOR.name, trust="agent"
        )
        scoped = Scoped.of(space, session)
        server = mcp.create(lambda request, right: (OPERATOR, scoped))
        async with stdio_server() as (incoming, outgoing):
            options = server.create_initialization_options()
            await server.run(Readable(incoming, outgoing), outgoing, options)


class Readable:
    """What can be read of what comes in; who sent another thing is told so and need not wait."""

    def __init__(
        self,
        incoming: ReadStream[SessionMessage | Exception],
        outgoing: WriteStream[SessionMessage],
    ) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    @property
    def last_context(self) -> Any:
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while isinstance(item := await self._incoming.receive(), Exception):
            await self._outgoing.send(SessionMessage(UNREADABLE))
        return item

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def __aiter__(self) -> Readable:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        async for item in self._incoming:
            if isinstance(item, SessionMessage):
                return item
            await self._outgoing.send(SessionMessage(UNREADABLE))
        raise StopAsyncIteration

    async def __aenter__(self) -> Readable:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


UNREADABLE = types.JSONRPCError(
    jsonrpc="2.0",
    id=None,
    error=types.ErrorData(code=types.PARSE_ERROR, message="this is no message of JSON-RPC 2.0"),
)
