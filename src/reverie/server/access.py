"""Turns a request into a handle: which space and user it names, and whether its caller may.

This is the only place in the server that opens a space for a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, unquote

from fastapi import Depends, Header
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers
from starlette.requests import Request

from reverie.aio import AsyncSpace
from reverie.model import Right, Trust
from reverie.server.context import ServerContext, get_server_context
from reverie.server.errors import HttpProblem
from reverie.server.guard import Caller
from reverie.server.positions import CallerPositions
from reverie.write.memories import less_trusted


class NameConvertor(Convertor[str]):
    """Reads one percent-encoded segment of a path as a name, which may hold a slash."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        # Bytes that are not UTF-8 become surrogates, which the library refuses as a name.
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("name", NameConvertor())


SCOPE_HEADERS = {
    "space": "x-reverie-space",
    "user": "x-reverie-user",
    "session": "x-reverie-session",
}


@dataclass(frozen=True, slots=True)
class RequestedScope:
    """The space, user and session that a request names; None where it names none."""

    space: str | None = None
    user: str | None = None
    session: str | None = None


def requested_scope(request: Request) -> RequestedScope:
    """Read the scope from the query, else from the headers.

    The query goes first because it can hold any name; a header cannot.
    """
    return RequestedScope(
        **{name: _read_name(request, name, header) for name, header in SCOPE_HEADERS.items()}
    )


def scope_from_headers(headers: Headers) -> RequestedScope:
    """Read the scope from the headers alone: the proxy passes the query on to the upstream."""
    return RequestedScope(
        **{name: _header_value(headers, header) for name, header in SCOPE_HEADERS.items()}
    )


def require_caller(request: Request, right: Right) -> Caller:
    """Return who sent the request, or raise HttpProblem if they lack this right."""
    caller: Caller | None = request.scope["state"].get("caller")
    if caller is None:
        raise HttpProblem(
            401, "Unauthorized", "this needs a token", headers={"WWW-Authenticate": "Bearer"}
        )
    if not caller.may(right):
        raise HttpProblem(403, "Forbidden", f"this token may {caller.right}; this needs {right}")
    return caller


@dataclass(frozen=True, slots=True)
class RequestAccess:
    """An authorized caller, and the scope that the request names."""

    server_context: ServerContext
    caller: Caller
    space_name: str
    user: str | None
    session: str | None

    def space(self, trust: Trust | None = None) -> AsyncSpace:
        """Open the space. A request can lower the trust of its token, never raise it."""
        highest: Trust = "person" if self.caller.right == "admin" else "agent"
        return self._space(highest if trust is None else less_trusted(highest, trust))

    def positions(self, space: AsyncSpace | None = None) -> CallerPositions:
        """Return the converter between positions of the log and those this caller is shown."""
        return CallerPositions(space or self.space(), user_bound=self.caller.user is not None)

    def space_as_person(self) -> AsyncSpace:
        """Open the space for messages of a conversation, which count as a person's words."""
        return self._space("person")

    def _space(self, trust: Trust) -> AsyncSpace:
        return self.server_context.store.space(
            self.space_name, user=self.user, actor=self.caller.name, trust=trust
        )


def authorize(request: Request, right: Right, named: RequestedScope | None = None) -> RequestAccess:
    """Check the caller's right, and find the one space and user that the request is about.

    A space that the caller may not see is refused alike whether it exists or not.
    """
    server_context, caller = get_server_context(request), require_caller(request, right)
    named = named or requested_scope(request)
    single = caller.spaces is not None and len(caller.spaces) == 1
    default = caller.spaces[0] if caller.spaces and single else server_context.settings.space
    space = default if named.space is None else named.space
    if not caller.sees(space):
        raise HttpProblem(403, "Forbidden", "this token is for other spaces")
    if caller.user is not None and named.user not in {None, caller.user}:
        raise HttpProblem(403, "Forbidden", "this token is for another user")
    user = caller.user or named.user
    return RequestAccess(server_context, caller, space, user, named.session)


def _require(right: Right) -> Any:
    """Return the dependency of a route that needs this right."""

    async def access(request: Request) -> RequestAccess:
        return authorize(request, right)

    return Depends(access)


ReadAccess = Annotated[RequestAccess, _require("read")]
WriteAccess = Annotated[RequestAccess, _require("write")]
AdminAccess = Annotated[RequestAccess, _require("admin")]
IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", description="Makes repeating this safe.")
]


def _read_name(request: Request, name: str, header: str) -> str | None:
    """Read one name from the query, else from a header.

    An empty name is returned as it is, and refused later: a blank user must not come to mean
    everyone, nor a blank space the default one.
    """
    value = _query_value(request.url.query, name)
    return _header_value(request.headers, header) if value is None else value


def _query_value(query: str, name: str) -> str | None:
    try:
        values = parse_qs(query, keep_blank_values=True, errors="strict").get(name, [])
    except UnicodeDecodeError:
        raise HttpProblem(422, "InvalidInput", "the query is not UTF-8") from None
    if len(values) > 1:
        raise HttpProblem(422, "InvalidInput", f"{name} is given {len(values)} times")
    return values[0] if values else None


def _header_value(headers: Headers, name: str) -> str | None:
    values = [value for key, value in headers.raw if key == name.encode()]
    if not values:
        return None
    if len(values) > 1:
        raise HttpProblem(422, "InvalidInput", f"{name} is given {len(values)} times")
    try:
        return values[0].decode("utf-8")
    except UnicodeDecodeError:
        raise HttpProblem(422, "InvalidInput", f"{name} is not UTF-8") from None
