"""The page at ``/``: files of this package, served as they are."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from reverie.server.problems import problem

FOLDER = Path(__file__).with_name("page")
INDEX = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# A browser keeps each file and asks whether it is still the same one: after an upgrade no file of
# the old page meets one of the new.
CACHING = "no-cache"

router = APIRouter(include_in_schema=False)


class File(NamedTuple):
    """A file as it goes out."""

    body: bytes
    type: str
    etag: str


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """The page itself, which shows nothing before it has a token."""
    return _answer(request, INDEX)


@router.api_route("/page/{name:path}", methods=["GET", "HEAD"])
async def part(request: Request, name: str) -> Response:
    """What the page consists of."""
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    # Looked up by its name and never opened by it: there is no path to walk out of the folder.
    file = files().get(name)
    if file is None:
        return problem(404, "NotFound", "the page has no such file")
    headers = {"ETag": file.etag, "Cache-Control": CACHING}
    known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.type)


@cache
def files() -> dict[str, File]:
    """Every file of the page by its name, read once."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in TYPES:
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[path.name] = File(body, TYPES[path.suffix], etag)
    return found
