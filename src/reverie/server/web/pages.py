"""Serves the web page at ``/`` from the files in ``page/``."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from reverie.server.errors import problem

PAGE_DIR = Path(__file__).with_name("page")
INDEX = "index.html"
ICON = "icon.svg"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# A browser asks for the page itself each time. Its scripts and styles have the version in their
# address and are cached for good, so that files of two versions never mix, and a page that is
# opened again asks for one file only.
NO_CACHE = "no-cache"
IMMUTABLE_CACHE = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


class PageFile(NamedTuple):
    """A file with the headers it is served with."""

    body: bytes
    type: str
    etag: str
    cache_control: str


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """Serve the page itself, which shows nothing before it has a token."""
    return _serve_file(request, INDEX)


@router.api_route("/page/{name:path}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    """Serve a script, style or picture of the page."""
    return _serve_file(request, name)


@router.api_route("/favicon.ico", methods=["GET", "HEAD"])
async def icon(request: Request) -> Response:
    """Serve the icon that browsers ask for even where no page names one."""
    return _serve_file(request, ICON)


def _serve_file(request: Request, name: str) -> Response:
    # Looked up in a dictionary, never opened by name: no path can lead out of the folder.
    file = load_files().get(name)
    if file is None:
        return problem(404, "NotFound", "the page has no such file: load it again")
    headers = {"ETag": file.etag, "Cache-Control": file.cache_control}
    known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.type)


@cache
def load_files() -> dict[str, PageFile]:
    """Read every file once, keyed by the path below ``/page/`` that it is requested by."""
    found = {
        path.name: path.read_bytes()
        for path in sorted(PAGE_DIR.iterdir())
        if path.suffix in MEDIA_TYPES
    }
    version = _digest(b"".join(found.values()))
    page = found.pop(INDEX).replace(b'"/page/', f'"/page/{version}/'.encode())
    unversioned = {INDEX: page, ICON: found[ICON]}
    cached = {
        f"{version}/{name}": _page_file(name, body, IMMUTABLE_CACHE) for name, body in found.items()
    }
    revalidated = {name: _page_file(name, body, NO_CACHE) for name, body in unversioned.items()}
    return revalidated | cached


def _page_file(name: str, body: bytes, cache_control: str) -> PageFile:
    return PageFile(body, MEDIA_TYPES[Path(name).suffix], f'"{_digest(body)}"', cache_control)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
