"""MCP over streamable HTTP: each request stands for itself, so any server of many may answer it."""

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

    No session is kept and nothing is ever sent unasked, so there is nothing to GET or DELETE.
    What it needs is loaded for the first message: that takes as long as all the rest of a server.
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
        # What failed, with too many open files for one, need not fail again.
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loading = asyncio.create_task(asyncio.to_thread(_load_manager))
        manager = await asyncio.shield(loading)
        if self._running is None:
            self._running = asyncio.create_task(self._run(manager))
        await self._ready.wait()
        await manager.handle_request(scope, receive, send)

    async def _run(self, manager: StreamableHTTPSessionManager) -> None:
        """A task of its own: whoever enters a manager's run must be the one who leaves it."""
        async with manager.run():
            self._ready.set()
            await self._stopped.wait()


def _load_manager() -> StreamableHTTPSessionManager:
    from reverie.server.mcp import server  # first: it says what is missing

    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # isort: skip

    # Host and Origin were checked by the guard.
    return StreamableHTTPSessionManager(
        server.create_server(_authorize), json_response=True, stateless=True
    )


def _authorize(request: Any, right: Right) -> tuple[Caller, ToolScope]:
    come = authorize(request, right)
    # Whoever's token it is, a model chose the words.
    may_write, bound = come.caller.may("write"), come.caller.user is not None
    space = come.space("agent")
    return come.caller, ToolScope.of(space, come.session, may_write=may_write, bound=bound)
