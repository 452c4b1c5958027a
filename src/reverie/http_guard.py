"""Where this program may connect to: anywhere, or only to public addresses of the internet.

Addresses of services come from the operator. With ``outbound = "public"`` even those may not lead
into the network around this machine, whatever a name resolves to: the address that was checked is
the one that is connected to. Redirects are followed nowhere, so that no key reaches another host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from reverie.errors import MissingExtra

if TYPE_CHECKING:
    import httpx
    import httpx2

    from reverie.config import Settings

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# What older Pythons take for public: kept for protocols and examples; and the address at which a
# virtual machine's own host answers.
_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "168.63.129.16/32", "3fff::/20", "5f00::/16"))
)
# Networks whose addresses stand for an IPv4 address in their last 32 bits.
_TRANSLATING = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96"))
)


def client(settings: Settings, **options: Any) -> httpx2.AsyncClient:
    """A client that goes where the settings allow, and follows no redirect."""
    try:
        import httpx2
    except ImportError as error:
        raise MissingExtra("connections to other services", "server") from error
    guard = guarded_async() if settings.outbound.lower() == "public" else None
    return httpx2.AsyncClient(follow_redirects=False, transport=guard, **options)


def guarded_async(verify: Any = True) -> httpx2.AsyncBaseTransport:
    """A transport for httpx2 that connects to public addresses only."""
    made: httpx2.AsyncBaseTransport = _async_guard()(verify)
    return made


def guarded(verify: Any = True) -> httpx.BaseTransport:
    """The same for httpx, without asyncio."""
    made: httpx.BaseTransport = _guard()(verify)
    return made


# -- what is public -------------------------------------------------------------------------------


def is_public(address: Address) -> bool:
    """Whether an address, and every address that it stands for, is one of the internet."""
    meant = [address]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            meant = [address.ipv4_mapped]
        elif address.sixtofour is not None:
            meant.append(address.sixtofour)
        elif address.teredo is not None:
            meant += address.teredo
        elif any(address in network for network in _TRANSLATING):
            meant = [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return all(
        each.is_global
        and not (each.is_multicast or each.is_reserved)
        and not any(each in network for network in _NOT_PUBLIC)
        for each in meant
    )


def why_refused(scheme: str, host: str, userinfo: bytes | str) -> str | None:
    """What is wrong with an address before anybody looks it up."""
    if scheme not in {"http", "https"}:
        return f"{scheme}: is no address of a service"
    if userinfo:
        return "an address holds no user and password: set the key instead"
    return None if host else "an address needs a host"


def pinned(host: str, found: Iterable[Any]) -> str | None:
    """The address to connect to of those that a name has: one is not public, none is taken."""
    try:
        addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
    except ValueError:
        return None
    return str(addresses[0]) if addresses and all(map(is_public, addresses)) else None


# -- transports -----------------------------------------------------------------------------------


class _Pools(dict[str, Any]):
    """One pool for each name: connections are shared by number, certificates are not."""

    def __init__(self, made: Callable[[], Any]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, host: str) -> Any:
        self[host] = self._made()
        return self[host]


@cache
def _refusal(library: Any) -> Any:
    """An error that callers of this library take for a connection that failed."""
    said = {"__doc__": "Not connected to: the operator allows public addresses only."}
    return type("OutboundRefused", (library.ConnectError,), said)


def _require_plain(library: Any, request: Any) -> None:
    url = request.url
    why = why_refused(url.scheme, url.host, url.userinfo)
    if why is not None:
        raise _refusal(library)(why, request=request)


@contextmanager
def _looked_up(library: Any, request: Any) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise library.ConnectError("the name is not known", request=request) from error


def _led(library: Any, request: Any, found: Iterable[Any]) -> Any:
    """The same request to the address that was checked, under the name that it was meant for."""
    url = request.url
    address = pinned(url.host, found)
    if address is None:
        why = f"outbound is public, and {url.host} is no public address"
        raise _refusal(library)(why, request=request)
    return library.Request(
        request.method,
        url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": url.host},
    )


@cache
def _async_guard() -> type[Any]:
    httpx2: Any = import_module("httpx2")

    class AsyncGuard(httpx2.AsyncBaseTransport):  # type: ignore[misc]
        def __init__(self, verify: Any) -> None:
            made = httpx2.AsyncHTTPTransport
            self._pools = _Pools(lambda: made(verify=verify, trust_env=False))

        async def handle_async_request(self, request: Any) -> Any:
            _require_plain(httpx2, request)
            host, port = request.url.host, request.url.port
            with _looked_up(httpx2, request):
                look_up = asyncio.get_running_loop().getaddrinfo
                found = await look_up(host, port, type=socket.SOCK_STREAM)
            return await self._pools[host].handle_async_request(_led(httpx2, request, found))

        async def aclose(self) -> None:
            for pool in self._pools.values():
                await pool.aclose()

    return AsyncGuard


@cache
def _guard() -> type[Any]:
    httpx: Any = import_module("httpx")

    class Guard(httpx.BaseTransport):  # type: ignore[misc]
        def __init__(self, verify: Any) -> None:
            made = httpx.HTTPTransport
            self._pools = _Pools(lambda: made(verify=verify, trust_env=False))

        def handle_request(self, request: Any) -> Any:
            _require_plain(httpx, request)
            host, port = request.url.host, request.url.port
            with _looked_up(httpx, request):
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return self._pools[host].handle_request(_led(httpx, request, found))

        def close(self) -> None:
            for pool in self._pools.values():
                pool.close()

    return Guard
