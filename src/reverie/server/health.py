"""Health check, metrics, login for the page, and the API documentation."""

from __future__ import annotations

import hmac
from functools import cache
from importlib import resources

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from reverie.errors import ReverieError
from reverie.server import errors
from reverie.server.access import AdminAccess
from reverie.server.context import get_server_context
from reverie.server.errors import HttpProblem
from reverie.server.rest import schemas

router = APIRouter(tags=["Server"], responses={"default": {"model": schemas.Problem}})

_DOCS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Reverie: REST</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="docs"></div><script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script></body></html>
"""
_DOCS_SCRIPT = 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#docs", deepLinking: true});\n'
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript"}


@router.get("/healthz", response_model=schemas.Health)
async def health(request: Request) -> Response:
    """Whether the store answers, and can still be written to.

    ``write_failed``: a write or sync failed, or a newer Reverie upgraded the store, and nothing is
    stored until the server starts again.
    """
    store = get_server_context(request).store
    if await store.write_failed:
        return JSONResponse({"status": "write_failed"}, 503)
    try:
        await store.tokens()
    except ReverieError:
        return JSONResponse({"status": "unavailable"}, 503)
    return JSONResponse({"status": "ok"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, access: AdminAccess) -> Response:
    """Numbers for Prometheus. Where the store cannot be read, those that need no store."""
    store = access.server_context.store
    collected = request.app.state.metrics
    collected.set_write_failed(failed=await store.write_failed)
    collected.set_damaged(await store.damaged)
    try:
        collected.set_store_state(await store.jobs(), await store.spaces())
    except ReverieError as error:
        errors.public_detail(error)
        collected.set_store_state(None, None)
    return Response(collected.render(), media_type=collected.content_type)


@router.post("/login", response_model=schemas.Login)
async def login(request: Request, body: schemas.LoginCode) -> Response:
    """Trade a code that the server printed for its operator's token. A code is good once."""
    server_context = get_server_context(request)
    given = body.code.encode("utf-8", "surrogatepass")
    for code in list(server_context.codes):
        if hmac.compare_digest(code.encode(), given):
            server_context.codes.discard(code)
            return JSONResponse({"token": server_context.token})
    raise HttpProblem(403, "Forbidden", "this code was used already, or the server was restarted")


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """Serve Swagger UI, to read and try the API."""
    return HTMLResponse(_DOCS)


@router.get("/docs/{name}", include_in_schema=False)
async def docs_asset(name: str) -> Response:
    if name == "start.js":
        return Response(_DOCS_SCRIPT, media_type="text/javascript")
    if name not in {"swagger-ui.css", "swagger-ui-bundle.js"}:
        raise HttpProblem(404, "NotFound", "there is no such page")
    return Response(_docs_file(name), media_type=_MEDIA_TYPES[name[name.rindex(".") :]])


@cache
def _docs_file(name: str) -> bytes:
    """Read a file once, so that many requests share one copy of it."""
    return (resources.files("fastapi_offline") / "static" / name).read_bytes()
