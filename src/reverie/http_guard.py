"""Where this program may connect to: anywhere, or only to public addresses of the internet.

Addresses of services come from the operator. With ``outbound = "public"`` even those may not lead
into the network around this machine, whatever a name resolves to: the address that was checked is
the one that is connected to. Redirects are followed nowhere, so that no key reaches another host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from reverie.errors import MissingExtra

if TYPE_CHECKING:
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
    from reverie.http_transports import PublicAsyncTransport  # httpx2 is optional

    return PublicAsyncTransport(verify)


def guarded(verify: Any = True) -> httpx2.BaseTransport:
    """The same without asyncio."""
    from reverie.http_transports import PublicTransport  # httpx2 is optional

    return PublicTransport(verify)


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
