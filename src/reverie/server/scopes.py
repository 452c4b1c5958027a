"""From a request to a handle: which space, which user, and whether this caller may.

Nothing in the server opens a space any other way.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request

from reverie.aio import Async
from reverie.model import Right, Trust
from reverie.server.problems import Refused
from reverie.server.security import Caller

SPACE, USER, SESSION = "x-reverie-space", "x-reverie-user", "x-reverie-session"


@dataclass(frozen=True, slots=True)
class Named:
    """What a request says it is about. None: it says nothing."""

    space: str | None = None
    user: str | None = None
    session: str | None = None


def named_in(request: Request) -> Named:
    """The query wins over the headers: it can hold any name."""
    return Named(
        *(
            _single(request.url.query, name) or _header(request.headers, header)
            for name, header in (("space", SPACE), ("user", USER), ("session", SESSION))
        )
    )


def named_in_headers(headers: Headers) -> Named:
    """The same where the query is somebody else's."""
    return Named(_header(headers, SPACE), _header(headers, USER), _header(headers, SESSION))


def caller_of(request: Request, right: Right) -> Caller:
    """Whoever sent the request, if they have this right."""
    caller: Caller | None = request.scope["state"].get("caller")
    if caller is None:
        raise Refused(
            401, "Unauthorized", "this needs a token", headers={"WWW-Authenticate": "Bearer"}
        )
    if not caller.may(right):
        raise Refused(403, "Forbidden", f"this token may {caller.right}; this needs {right}")
    return caller


def handle(
    store: Async,
    caller: Caller,
    named: Named,
    *,
    trust: Trust,
    default: str,
) -> Async:
    """The one space this caller means, if they may see it. The same answer whether it exists."""
    alone = caller.spaces[0] if caller.spaces is not None and len(caller.spaces) == 1 else default
    space = named.space or alone
    if not caller.sees(space):
        raise Refused(403, "Forbidden", "this token is for other spaces")
    if caller.user is not None and named.user not in {None, caller.user}:
        raise Refused(403, "Forbidden", "this token is for another user")
    opened: Async = store.space(
        space, user=caller.user or named.user, actor=caller.name, trust=trust
    )
    return opened


def _single(query: str, name: str) -> str | None:
    values = parse_qs(query, keep_blank_values=True, errors="strict").get(name, [])
    if len(values) > 1:
        raise Refused(422, "InvalidInput", f"{name} is given {len(values)} times")
    return values[0] if values else None


def _header(headers: Headers, name: str) -> str | None:
    values = [value for key, value in headers.raw if key == name.encode()]
    if not values:
        return None
    if len(values) > 1:
        raise Refused(422, "InvalidInput", f"{name} is given {len(values)} times")
    try:
        return values[0].decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(422, "InvalidInput", f"{name} is not UTF-8") from None
