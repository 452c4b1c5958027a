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

from reverie.aio import Async
from reverie.model import Right, Trust
from reverie.server.errors import Refused
from reverie.server.guard import Caller
from reverie.server.positions import Positions
from reverie.server.run import Serving
from reverie.server.run import of as serving_of
from reverie.write.writer import less_trusted


class Name(Convertor[str]):
    """One part of a path as it was sent, read as the name it stands for."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        # What is no UTF-8 is no name: the library says so.
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("name", Name())


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
            _named(request, name, header)
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


@dataclass(frozen=True, slots=True)
class Visit:
    """A caller who may do what they came for, in the scope that the request names."""

    serving: Serving
    caller: Caller
    space_name: str
    user: str | None
    session: str | None

    def space(self, trust: Trust | None = None) -> Async:
        """A handle. A request can say that something is less trusted than its token, never more."""
        most: Trust = "person" if self.caller.right == "admin" else "agent"
        given = most if trust is None else less_trusted(most, trust)
        return self._space(given)

    def positions(self, space: Async | None = None) -> Positions:
        """How this caller is told positions of the log."""
        return Positions(space or self.space(), bound=self.caller.user is not None)

    def persons_space(self) -> Async:
        """A handle for what a person says, whoever brings it."""
        return self._space("person")

    def _space(self, trust: Trust) -> Async:
        opened: Async = self.serving.store.space(
            self.space_name, user=self.user, actor=self.caller.name, trust=trust
        )
        return opened


def visit(request: Request, right: Right, named: Named | None = None) -> Visit:
    """Whoever sent this request and may do so much, in the one space they mean.

    The same answer whether a space exists that they may not see.
    """
    serving, caller = serving_of(request), caller_of(request, right)
    about = named or named_in(request)
    only = caller.spaces is not None and len(caller.spaces) == 1
    usual = caller.spaces[0] if caller.spaces and only else serving.settings.space
    space = usual if about.space is None else about.space
    if not caller.sees(space):
        raise Refused(403, "Forbidden", "this token is for other spaces")
    if caller.user is not None and about.user not in {None, caller.user}:
        raise Refused(403, "Forbidden", "this token is for another user")
    user = caller.user or about.user
    return Visit(serving, caller, space, user, about.session)


async def reading(request: Request) -> Visit:
    return visit(request, "read")


async def writing(request: Request) -> Visit:
    return visit(request, "write")


async def administering(request: Request) -> Visit:
    return visit(request, "admin")


Reader = Annotated[Visit, Depends(reading)]
Writer = Annotated[Visit, Depends(writing)]
Admin = Annotated[Visit, Depends(administering)]
Key = Annotated[
    str | None, Header(alias="Idempotency-Key", description="Makes repeating this safe.")
]


def _named(request: Request, name: str, header: str) -> str | None:
    """Empty is not the same as not given: a user that was left blank is not everyone, and a space
    that was left blank is not the usual one."""
    asked = _single(request.url.query, name)
    return _header(request.headers, header) if asked is None else asked


def _single(query: str, name: str) -> str | None:
    try:
        values = parse_qs(query, keep_blank_values=True, errors="strict").get(name, [])
    except UnicodeDecodeError:
        raise Refused(422, "InvalidInput", "the query is not UTF-8") from None
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
