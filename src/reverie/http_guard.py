"""Decide where this program may connect: anywhere, or only to public internet addresses.

The operator configures the addresses of services. With ``outbound = "public"`` even those must not
lead into the local network (SSRF): a name is resolved once, the result is checked, and the
connection is made to exactly the address that was checked. Redirects are never followed, so that
no key reaches another host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Networks that older Python versions call global although they are reserved for protocols or for
# documentation, and the address at which the host of a virtual machine in Azure answers.
_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "168.63.129.16/32", "3fff::/20", "5f00::/16"))
)
# IPv6 networks whose addresses embed an IPv4 address in their last 32 bits.
_TRANSLATING = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96"))
)


# -- addresses of services ------------------------------------------------------------------------


def split_service_url(url: str) -> SplitResult | None:
    """Return the parts of an ``http(s)://HOST`` address, or None when it is not one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def without_credentials(parts: SplitResult) -> str:
    """Return the address as it may appear in a message."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


# -- what is public -------------------------------------------------------------------------------


def is_public(address: IPAddress) -> bool:
    """Whether an address, and every address embedded in it, is a public internet address."""
    targets = [address]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            targets = [address.ipv4_mapped]
        elif address.sixtofour is not None:
            targets.append(address.sixtofour)
        elif address.teredo is not None:
            targets += address.teredo
        elif any(address in network for network in _TRANSLATING):
            targets = [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return all(
        each.is_global
        and not (each.is_multicast or each.is_reserved)
        and not any(each in network for network in _NOT_PUBLIC)
        for each in targets
    )


def why_refused(scheme: str, host: str, userinfo: bytes | str) -> str | None:
    """Return what is wrong with a URL before its host is resolved, or None."""
    if scheme not in {"http", "https"}:
        return f"{scheme}: is no address of a service"
    if userinfo:
        return "an address holds no user and password: set the key instead"
    return None if host else "an address needs a host"


def pinned(host: str, resolved: Iterable[Any]) -> str | None:
    """Return the address to connect to, or None when any address of the host is not public.

    ``resolved`` are the results of ``getaddrinfo`` for the host.
    """
    try:
        addresses = [ipaddress.ip_address(entry[4][0]) for entry in resolved]
    except ValueError:
        return None
    return str(addresses[0]) if addresses and all(map(is_public, addresses)) else None
