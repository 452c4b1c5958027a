"""MCP over streamable HTTP: each request stands for itself, so any server of many may answer it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reverie.errors import MissingExtra
from reverie.model import Right
from reverie.server.mcp_tools import Scoped
from reverie.server.scopes import visit
from reverie.server.security import Caller

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class Endpoint:
    """The ASGI application at ``/mcp``; ``lifespan`` must surround all that it serves.

    No session is kept and nothing is ever sent unasked, so there is nothing to GET or DELETE.
    """

    def __init__(self) -> None:
        self._manager: StreamableHTTPSessionManager | MissingExtra
        try:
            from reverie.server import mcp
        except MissingExtra as missing:
            self._manager = missing
            return
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        server = mcp.create(_enter)
        # Host and Origin were checked by the guard.
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        manager = self._manager
        async with contextlib.nullcontext() if isinstance(manager, MissingExtra) else manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(self._manager, MissingExtra):
            raise self._manager
        if scope["method"] != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        await self._manager.handle_request(scope, receive, send)


def _enter(request: Any, right: Right) -> tuple[Caller, Scoped]:
    come = visit(request, right)
    # Whoever's token it is, a model chose the words.
    may_write = come.caller.may("write")
    return come.caller, Scoped.of(come.space("agent"), come.session, may_write=may_write)
