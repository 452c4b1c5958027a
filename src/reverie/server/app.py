"""The application: every part of the server behind one guard."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from reverie import __version__
from reverie.errors import ReverieError
from reverie.server import errors, health
from reverie.server.guard import PROXY_PREFIX, GuardMiddleware
from reverie.server.mcp.http import McpEndpoint
from reverie.server.metrics import Metrics, MetricsMiddleware
from reverie.server.proxy import routes
from reverie.server.rest import (
    admin,
    memories,
    sessions,
    vault,
)
from reverie.server.run import ServerContext
from reverie.server.web import pages

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


NOT_FOUND_DETAIL = (
    "there is nothing here: REST is under /api/, the OpenAI proxy under /v1/, MCP at /mcp"
)


def create_app(serving: ServerContext) -> ASGIApp:
    """The whole server as one ASGI application."""
    mcp = McpEndpoint()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with mcp.lifespan(app):
            yield
            await serving.stored()

    app = FastAPI(
        title="Reverie",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))],
        lifespan=lifespan,
    )
    app.router.routes += [Route("/mcp", mcp), Route("/mcp/", mcp)]
    app.state.server_context, app.state.metrics = serving, _build_metrics(serving)
    for part in (memories, sessions, admin, vault, health, routes, pages):
        app.include_router(part.router)
    app.add_exception_handler(errors.HttpProblem, _handle_problem)
    app.add_exception_handler(ReverieError, _handle_reverie_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)
    app.add_exception_handler(Exception, _handle_unexpected)
    return GuardMiddleware(
        MetricsMiddleware(app, app.state.metrics),
        store=serving.store,
        token=serving.token,
        hosts=serving.hosts,
        port=serving.port,
        trust_local=serving.trust_local,
        limits=serving.limits,
        quotas=serving.quotas,
    )


def _build_metrics(serving: ServerContext) -> Metrics:
    """The numbers of the server, with what its limits are measured against."""
    made, connections, quotas = Metrics(), serving.connections, serving.quotas
    made.gauge("connections", "Open connections.", lambda: connections.open)
    made.gauge(
        "connections_dropped",
        "Connections closed to make room since the start.",
        lambda: connections.dropped,
    )
    made.gauge(
        "connections_refused",
        "Connections refused since the start: there was no room.",
        lambda: connections.refused,
    )
    made.gauge("feeds", "Open feeds.", lambda: quotas.feeds.held)
    made.gauge("imports", "Imports under way.", lambda: quotas.imports.held)
    made.gauge("uploads", "Long bodies under way.", lambda: quotas.uploads.held)
    return made


def _handle_unexpected(request: Request, error: Exception) -> Response:
    refused = errors.problem_from_unexpected(error)
    of_proxy = request.scope["path"].startswith(PROXY_PREFIX)
    return refused.for_openai() if of_proxy else refused.response()


def _handle_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.HttpProblem)
    return error.response()


def _handle_reverie_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ReverieError)
    return errors.problem_from_error(error).response()


def _handle_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        {"where": ".".join(map(str, each["loc"])), "what": each["msg"]} for each in error.errors()
    ]
    detail = f"{found[0]['where']}: {found[0]['what']}" if found else "the request cannot be read"
    return errors.problem(422, "InvalidInput", detail, errors=found)


def _handle_disconnect(request: Request, error: Exception) -> Response:
    """Nobody is there to hear it."""
    return Response(status_code=499)


def _handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = NOT_FOUND_DETAIL if error.status_code == 404 else str(error.detail)
    return errors.problem(error.status_code, "Error", detail, headers=error.headers or {})
