"""Assembles the ASGI application: every router, with the guard in front of all of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import cache
from typing import TYPE_CHECKING, Any

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
from reverie.server.context import ServerContext
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
from reverie.server.web import pages

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


NOT_FOUND_DETAIL = (
    "there is nothing here: REST is under /api/, the OpenAI proxy under /v1/, MCP at /mcp"
)


def create_app(server_context: ServerContext) -> ASGIApp:
    """Build the whole server as one ASGI application."""
    mcp = McpEndpoint()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with mcp.lifespan(app):
            async with _routes().router.lifespan_context(app) as state:
                yield state
            await server_context.wait_until_stored()

    app = FastAPI(
        title="Reverie",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.router.routes += [Route("/mcp", mcp), Route("/mcp/", mcp)]
    app.state.server_context, app.state.metrics = server_context, _build_metrics(server_context)
    app.router.routes += _routes().routes
    app.add_exception_handler(errors.HttpProblem, _handle_problem)
    app.add_exception_handler(ReverieError, _handle_reverie_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)
    app.add_exception_handler(Exception, _handle_unexpected)
    return GuardMiddleware(
        MetricsMiddleware(app, app.state.metrics),
        store=server_context.store,
        token=server_context.token,
        hosts=server_context.hosts,
        port=server_context.port,
        trust_local=server_context.trust_local,
        limits=server_context.limits,
        quotas=server_context.quotas,
    )


@cache
def _routes() -> FastAPI:
    """Every route of our own, built once per process: they hold nothing of one server.

    FastAPI prepares each route at its first request, which takes longer than the rest of a start.
    """
    routed = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(HTTPBearer(auto_error=False))],
    )
    for part in (memories, sessions, admin, vault, health, routes, pages):
        routed.include_router(part.router)
    return routed


def _build_metrics(server_context: ServerContext) -> Metrics:
    """Create the metrics, with gauges for connections and quotas beside the request counts."""
    metrics, connections, quotas = Metrics(), server_context.connections, server_context.quotas
    metrics.gauge("connections", "Open connections.", lambda: connections.open)
    metrics.gauge(
        "connections_dropped",
        "Connections closed to make room since the start.",
        lambda: connections.dropped,
    )
    metrics.gauge(
        "connections_refused",
        "Connections refused since the start: there was no room.",
        lambda: connections.refused,
    )
    metrics.gauge("feeds", "Open feeds.", lambda: quotas.feeds.held)
    metrics.gauge("imports", "Imports under way.", lambda: quotas.imports.held)
    metrics.gauge("uploads", "Long bodies under way.", lambda: quotas.uploads.held)
    return metrics


def _handle_unexpected(request: Request, error: Exception) -> Response:
    failure = errors.problem_from_unexpected(error)
    is_proxy = request.scope["path"].startswith(PROXY_PREFIX)
    return failure.to_openai_response() if is_proxy else failure.response()


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
    """Answer with 499: the client has gone, so only the metrics see it."""
    return Response(status_code=499)


def _handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = NOT_FOUND_DETAIL if error.status_code == 404 else str(error.detail)
    return errors.problem(error.status_code, "Error", detail, headers=error.headers or {})
