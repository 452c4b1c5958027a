"""From a request to a handle: which space, which user, and whether this caller may.

Nothing in the server opens a space any other way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs, quote, unquote

from fastapi import Depends, Header
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers
from starlette.requests import Request

from reverie.aio import AsyncHandle
from reverie.model import Right, Trust
from reverie.server.errors import HttpProblem
from reverie.server.guard import Caller
from reverie.server.positions import CallerPositions
from reverie.server.run import ServerContext
from reverie.server.run import get_server_context as serving_of
from reverie.write.writer import less_trusted


class NameConvertor(Convertor[str]):
    """One part of a path as it was sent, read as the name it stands for."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        # What is no UTF-8 is no name: the library says so.
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("name", NameConvertor())


SPACE_HEADER, USER_HEADER, SESSION_HEADER = "x-reverie-space", "x-reverie-user", "x-reverie-session"


@dataclass(frozen=True, slots=True)
class RequestedScope:
    """What a request says it is about. None: it says nothing."""

    space: str | None = None
    user: str | None = None
    session: str | None = None


def requested_scope(request: Request) -> RequestedScope:
    """The query wins over the headers: it can hold any name."""
    return RequestedScope(
        *(
            _read_name(request, name, header)
            for name, header in (
                ("space", SPACE_HEADER),
                ("user", USER_HEADER),
                ("session", SESSION_HEADER),
            )
        )
    )


def scope_from_headers(headers: Headers) -> RequestedScope:
    """The same where the query is somebody else's."""
    return RequestedScope(
        _header_value(headers, SPACE_HEADER),
        _header_value(headers, USER_HEADER),
        _header_value(headers, SESSION_HEADER),
    )


def require_caller(request: Request, right: Right) -> Caller:
    """Whoever sent the request, if they have this right."""
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
    """A caller who may do what they came for, in the scope that the request names."""

    server_context: ServerContext
    caller: Caller
    space_name: str
    user: str | None
    session: str | None

    def space(self, trust: Trust | None = None) -> AsyncHandle:
        """A handle. A request can say that something is less trusted than its token, never more."""
        most: Trust = "person" if self.caller.right == "admin" else "agent"
        given = most if trust is None else less_trusted(most, trust)
        return self._space(given)

    def positions(self, space: AsyncHandle | None = None) -> CallerPositions:
        """How this caller is told positions of the log."""
        return CallerPositions(space or self.space(), bound=self.caller.user is not None)

    def space_as_person(self) -> AsyncHandle:
        """A handle for what a person says, whoever brings it."""
        return self._space("person")

    def _space(self, trust: Trust) -> AsyncHandle:
        opened: AsyncHandle = self.server_context.store.space(
            self.space_name, user=self.user, actor=self.caller.name, trust=trust
        )
        return opened


def authorize(request: Request, right: Right, named: RequestedScope | None = None) -> RequestAccess:
    """Whoever sent this request and may do so much, in the one space they mean.

    The same answer whether a space exists that they may not see.
    """
    serving, caller = serving_of(request), require_caller(request, right)
    about = named or requested_scope(request)
    only = caller.spaces is not None and len(caller.spaces) == 1
    usual = caller.spaces[0] if caller.spaces and only else serving.settings.space
    space = usual if about.space is None else about.space
    if not caller.sees(space):
        raise HttpProblem(403, "Forbidden", "this token is for other spaces")
    if caller.user is not None and about.user not in {None, caller.user}:
        raise HttpProblem(403, "Forbidden", "this token is for another user")
    user = caller.user or about.user
    return RequestAccess(serving, caller, space, user, about.session)


async def require_read(request: Request) -> RequestAccess:
    return authorize(request, "read")


async def require_write(request: Request) -> RequestAccess:
    return authorize(request, "write")


async def require_admin(request: Request) -> RequestAccess:
    return authorize(request, "admin")


ReadAccess = Annotated[RequestAccess, Depends(require_read)]
WriteAccess = Annotated[RequestAccess, Depends(require_write)]
AdminAccess = Annotated[RequestAccess, Depends(require_admin)]
IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", description="Makes repeating this safe.")
]


def _read_name(request: Request, name: str, header: str) -> str | None:
    """Empty is not the same as not given: a user that was left blank is not everyone, and a space
    that was left blank is not the usual one."""
    asked = _query_value(request.url.query, name)
    return _header_value(request.headers, header) if asked is None else asked


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
