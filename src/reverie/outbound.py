"""Where this program may connect to: anywhere, or only to public addresses of the internet.

Addresses of services come from the operator. With ``outbound = "public"`` even those may not lead
into the network around this machine, whatever a name resolves to: the address that was checked is
the one that is connected to. Redirects are followed nowhere, so that no key reaches another host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
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


def _not_public(host: str) -> str:
    return f"outbound is public, and {host} is no public address"


# -- transports -----------------------------------------------------------------------------------


def _redirected(library: Any, request: Any, address: str) -> Any:
    """The same request to a number, under the name that it was meant for."""
    url = request.url
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

    class OutboundRefused(httpx2.ConnectError):  # type: ignore[misc]
        """Not connected to: the operator allows public addresses only."""

    class AsyncGuard(httpx2.AsyncBaseTransport):  # type: ignore[misc]
        """One pool for each name: connections are shared by number, certificates are not."""

        def __init__(self, verify: Any) -> None:
            self._verify = verify
            self._pools: dict[str, Any] = {}

        async def handle_async_request(self, request: Any) -> Any:
            url = request.url
            why = why_refused(url.scheme, url.host, url.userinfo)
            address = None
            if why is None:
                try:
                    found = await asyncio.get_running_loop().getaddrinfo(
                        url.host, url.port, type=socket.SOCK_STREAM
                    )
                except (OSError, UnicodeError) as error:
                    raise httpx2.ConnectError("the name is not known", request=request) from error
                address = pinned(url.host, found)
            if address is None:
                raise OutboundRefused(why or _not_public(url.host), request=request)
            pool = self._pools.get(url.host)
            if pool is None:
                pool = httpx2.AsyncHTTPTransport(verify=self._verify, trust_env=False)
                self._pools[url.host] = pool
            return await pool.handle_async_request(_redirected(httpx2, request, address))

        async def aclose(self) -> None:
            for pool in self._pools.values():
                await pool.aclose()

    return AsyncGuard


@cache
def _guard() -> type[Any]:
    httpx: Any = import_module("httpx")

    class OutboundRefused(httpx.ConnectError):  # type: ignore[misc]
        """Not connected to: the operator allows public addresses only."""

    class Guard(httpx.BaseTransport):  # type: ignore[misc]
        def __init__(self, verify: Any) -> None:
            self._verify = verify
            self._pools: dict[str, Any] = {}

        def handle_request(self, request: Any) -> Any:
            url = request.url
            why = why_refused(url.scheme, url.host, url.userinfo)
            address = None
            if why is None:
                try:
                    found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
                except (OSError, UnicodeError) as error:
                    raise httpx.ConnectError("the name is not known", request=request) from error
                address = pinned(url.host, found)
            if address is None:
                raise OutboundRefused(why or _not_public(url.host), request=request)
            pool = self._pools.get(url.host)
            if pool is None:
                pool = httpx.HTTPTransport(verify=self._verify, trust_env=False)
                self._pools[url.host] = pool
            return pool.handle_request(_redirected(httpx, request, address))

        def close(self) -> None:
            for pool in self._pools.values():
                pool.close()

    return Guard
