"""httpx2 clients and transports that connect to public addresses only, whatever names resolve to.

A separate module from ``http_guard``, because it imports httpx2, which is optional.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import httpx2

from reverie.config import Settings
from reverie.http_guard import pinned, why_refused

Transport = TypeVar("Transport", httpx2.BaseTransport, httpx2.AsyncBaseTransport)


def client(settings: Settings, **options: Any) -> httpx2.AsyncClient:
    """Return an HTTP client that connects where the settings allow and follows no redirect."""
    guard = PublicAsyncTransport() if settings.outbound.lower() == "public" else None
    return httpx2.AsyncClient(follow_redirects=False, transport=guard, **options)


class OutboundRefused(httpx2.ConnectError):
    """The connection was refused: the settings allow public addresses only."""


class _Pools(dict[str, Transport], Generic[Transport]):
    """One connection pool for each host name.

    A pool reuses connections by address, but two names at one address have different certificates.
    """

    def __init__(self, make: Callable[[], Transport]) -> None:
        super().__init__()
        self._make: Callable[[], Transport] = make

    def __missing__(self, host: str) -> Transport:
        self[host] = self._make()
        return self[host]


class PublicTransport(httpx2.BaseTransport):
    """A synchronous transport that connects to public addresses only."""

    def __init__(self, verify: Any = True) -> None:
        self._pools = _Pools[httpx2.BaseTransport](
            lambda: httpx2.HTTPTransport(verify=verify, trust_env=False)
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        _require_allowed_url(request)
        host, port = request.url.host, request.url.port
        with _lookup_errors(request):
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return self._pools[host].handle_request(_to_checked_address(request, resolved))

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()


class PublicAsyncTransport(httpx2.AsyncBaseTransport):
    """An asynchronous transport that connects to public addresses only."""

    def __init__(self, verify: Any = True) -> None:
        self._pools = _Pools[httpx2.AsyncBaseTransport](
            lambda: httpx2.AsyncHTTPTransport(verify=verify, trust_env=False)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        _require_allowed_url(request)
        host, port = request.url.host, request.url.port
        with _lookup_errors(request):
            look_up = asyncio.get_running_loop().getaddrinfo
            resolved = await look_up(host, port, type=socket.SOCK_STREAM)
        return await self._pools[host].handle_async_request(_to_checked_address(request, resolved))

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


def _require_allowed_url(request: httpx2.Request) -> None:
    url = request.url
    why = why_refused(url.scheme, url.host, url.userinfo)
    if why is not None:
        raise OutboundRefused(why, request=request)


@contextmanager
def _lookup_errors(request: httpx2.Request) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError("the name is not known", request=request) from error


def _to_checked_address(request: httpx2.Request, resolved: Iterable[Any]) -> httpx2.Request:
    """Return the request addressed to a checked IP address; TLS still uses the host name."""
    url = request.url
    address = pinned(url.host, resolved)
    if address is None:
        why = f"outbound is public, and {url.host} is no public address"
        raise OutboundRefused(why, request=request)
    return httpx2.Request(
        request.method,
        url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": url.host},
    )
