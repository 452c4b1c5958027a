"""MCP over streamable HTTP, stateless: any of several servers may answer a request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reverie.model import Right
from reverie.server.access import authorize
from reverie.server.guard import Caller
from reverie.server.mcp.tools import ToolScope

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class McpEndpoint:
    """The ASGI application at ``/mcp``; ``lifespan`` must surround all that it serves.

    There is no MCP session and the server never sends on its own, so GET and DELETE are refused.
    The MCP library is loaded for the first message: that takes as long as the rest of the server.
    """

    def __init__(self) -> None:
        self._loading: asyncio.Task[StreamableHTTPSessionManager] | None = None
        self._running: asyncio.Task[None] | None = None
        self._ready: asyncio.Event
        self._stopped: asyncio.Event

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        self._ready, self._stopped = asyncio.Event(), asyncio.Event()
        try:
            yield
        finally:
            self._stopped.set()
            running, self._loading, self._running = self._running, None, None
            if running is not None:
                await running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        loading = self._loading
        # Loading is tried again after a failure, which may have been for want of file descriptors.
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loading = asyncio.create_task(asyncio.to_thread(_load_manager))
        manager = await asyncio.shield(loading)
        if self._running is None:
            self._running = asyncio.create_task(self._run(manager))
        await self._ready.wait()
        await manager.handle_request(scope, receive, send)

    async def _run(self, manager: StreamableHTTPSessionManager) -> None:
        """Run the manager in a task of its own, which must both enter and leave ``manager.run``."""
        async with manager.run():
            self._ready.set()
            await self._stopped.wait()


def _load_manager() -> StreamableHTTPSessionManager:
    # Imported for the first message, for start-up time, and before mcp: it names the missing extra.
    from reverie.server.mcp import server

    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # isort: skip

    # Host and Origin were checked by the guard.
    return StreamableHTTPSessionManager(
        server.create_server(_authorize), json_response=True, stateless=True
    )


def _authorize(request: Any, right: Right) -> tuple[Caller, ToolScope]:
    access = authorize(request, right)
    caller = access.caller
    # Trust is "agent" even with a person's token, because a model chose the words.
    scope = ToolScope.for_session(
        access.space("agent"),
        access.session,
        may_write=caller.may("write"),
        user_bound=caller.user is not None,
    )
    return caller, scope
