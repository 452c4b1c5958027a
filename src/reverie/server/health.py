"""Whether the server works: a word for everybody, numbers for the operator."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from reverie.errors import ReverieError
from reverie.server import serving

router = APIRouter()


@router.get("/healthz", tags=["Server"])
async def health(request: Request) -> JSONResponse:
    """Whether the store answers."""
    try:
        await serving.of(request).store.tokens()
    except ReverieError:
        return JSONResponse({"status": "unavailable"}, 503)
    return JSONResponse({"status": "ok"})
