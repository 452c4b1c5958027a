"""REST: memories, recall and the profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from reverie.aio import AsyncSpace
from reverie.dates import parse_as_of
from reverie.model import Kind, Memory, NewMemory, Order, SpaceInfo, Version
from reverie.serialize import to_json_value
from reverie.server.access import (
    AdminAccess,
    IdempotencyKey,
    ReadAccess,
    RequestAccess,
    WriteAccess,
    require_caller,
)
from reverie.server.context import get_server_context
from reverie.server.errors import HttpProblem
from reverie.server.json_response import Json
from reverie.server.positions import CallerPositions
from reverie.server.rest import schemas, vault
from reverie.write.where import parse_where_text

router = APIRouter(prefix="/api", responses={"default": {"model": schemas.Problem}})
IfMatch = Annotated[str | None, Header(alias="If-Match", description='The version, as in `"3"`.')]


@router.get("/memory/", tags=["Memories"], response_model=schemas.Memories)
@router.get("/memory", include_in_schema=False)
async def memories(
    access: ReadAccess,
    category: str | None = None,
    subject: str | None = None,
    tag: Annotated[list[str] | None, Query()] = None,
    kind: Kind | None = None,
    where: Annotated[
        str | None, Query(description='JSON, such as `{"metadata.team": {"in": ["a", "b"]}}`.')
    ] = None,
    include_forgotten: bool = False,
    valid_at: Annotated[
        str | None,
        Query(
            description="Only memories that are true at this time, or in this `2023` or `2023-05`."
        ),
    ] = None,
    as_of: Annotated[str | None, Query(description="A position of the log, or a time.")] = None,
    limit: Annotated[int, Query(ge=1, le=schemas.MAX_LISTED)] = 50,
    after: Annotated[str | None, Query(description="`next` of the previous page.")] = None,
    order: Order = "newest",
) -> Response:
    """List the memories of a space, page by page."""
    space = access.space()
    positions = access.positions(space)
    moment = None if as_of is None else parse_as_of(as_of)
    filters: dict[str, Any] = {
        "category": category,
        "subject": subject,
        "tags": tag,
        "kind": kind,
        "where": None if where is None else parse_where_text(where),
        "include_forgotten": include_forgotten,
        "valid_at": valid_at,
        "as_of": await positions.moment(moment),
    }
    position = await positions.current()
    found = await space.memories(**filters, limit=limit + 1, after=after, order=order)
    more = found[limit - 1].id if len(found) > limit else None
    total = await space.count(**filters)
    return Json({"memories": found[:limit], "total": total, "next": more, "position": position})


@router.post(
    "/memory/",
    tags=["Memories"],
    status_code=201,
    response_model=schemas.Remembered,
    responses={200: {"model": schemas.Remembered}},
)
@router.post("/memory", include_in_schema=False, status_code=201)
async def remember(
    access: WriteAccess, body: schemas.NewMemoryRequest, key: IdempotencyKey = None
) -> Response:
    """Remember one thing; 200 if the same text is remembered already.

    409 with the existing memory if one of the same category and subject says something similar.
    """
    given = body.model_dump(exclude={"content", "trust", "force"})
    space = _in_session(access, access.space(body.trust))
    memory = await space.remember(body.content, **given, unless_known=not body.force, key=key)
    status = 201 if memory.version == 1 else 200
    location = {"Location": f"/api/memory/{memory.id}"}
    return _memory_response(memory, status, location, related=to_json_value(memory.related))


@router.post(
    "/memory/batch", tags=["Memories"], status_code=201, response_model=schemas.RememberedMany
)
async def remember_many(
    access: WriteAccess, body: schemas.NewMemories, key: IdempotencyKey = None
) -> Response:
    """Remember many things, all of them or none; one memory for each item, in their order."""
    space = _in_session(access, access.space(body.trust))
    items = [cast(NewMemory, item.model_dump()) for item in body.items]
    memories = await space.remember_many(items, key=key)
    shown = [{**to_json_value(each), "related": to_json_value(each.related)} for each in memories]
    return Json({"memories": shown}, 201)


@router.get("/memory/{id:name}", tags=["Memories"], response_model=schemas.MemoryDetails)
async def show(request: Request, access: ReadAccess, id: str) -> Response:
    """Return a memory with its whole history and its file, even a forgotten one."""
    space = access.space()
    memory, versions = await space.get(id), await space.history(id)
    shown = await access.positions(space).shown([version.position for version in versions])
    version_list = [
        _version_json(replace(version, position=position))
        for version, position in zip(versions, shown, strict=True)
    ]
    return _memory_response(
        memory, 200, versions=version_list, **await vault.memory_file(request, access, id)
    )


@router.put("/memory/{id:name}", tags=["Memories"], response_model=schemas.Memory)
@router.patch("/memory/{id:name}", tags=["Memories"], response_model=schemas.Memory)
async def revise(
    access: WriteAccess,
    id: str,
    body: schemas.MemoryChanges,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> Response:
    """Write a new version of a memory. Fields that are not given stay as they are."""
    given = body.model_dump(exclude_unset=True)
    content, reason = given.pop("content", None), given.pop("reason", None)
    for name in ("category", "tags", "pinned"):
        if name in given and given[name] is None:
            raise HttpProblem(422, "InvalidInput", f"{name} must not be null: leave it out instead")
    memory = await _in_session(access).revise(
        id, content, **given, expected_version=_parse_if_match(if_match), reason=reason, key=key
    )
    return _memory_response(memory)


@router.delete("/memory/{id:name}", tags=["Memories"], status_code=204)
async def forget(
    access: WriteAccess,
    id: str,
    reason: str | None = None,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> Response:
    """Take a memory out of every recall; its history stays."""
    await _in_session(access).forget(
        id, expected_version=_parse_if_match(if_match), reason=reason, key=key
    )
    return Response(status_code=204)


@router.post("/memory/{id:name}/restore", tags=["Memories"], response_model=schemas.Memory)
async def restore(access: WriteAccess, id: str, key: IdempotencyKey = None) -> Response:
    """Bring a forgotten memory back."""
    return _memory_response(await _in_session(access).restore(id, key=key))


@router.post("/memory/{id:name}/erase", tags=["Memories"], response_model=schemas.Erased)
async def erase(
    access: AdminAccess,
    id: str,
    body: schemas.EraseRequest | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Destroy every version of a memory. This cannot be undone."""
    with_source = body is not None and body.with_source
    return Json(await access.space().erase(id, with_source=with_source, key=key))


@router.get("/categories", tags=["Memories"], response_model=schemas.Categories)
async def categories(access: ReadAccess) -> Response:
    """List every category, by name, with the number of its memories."""
    found = await access.space().categories()
    named = [{"name": name, "memories": number} for name, number in found.items()]
    return Json({"categories": named})


@router.post("/recall", tags=["Recall"], response_model=schemas.Hits)
async def recall(access: ReadAccess, body: schemas.RecallRequest) -> Response:
    """Return the memories and events that best answer a query, best first."""
    arguments = body.model_dump(exclude={"query"})
    arguments["as_of"] = await access.positions().moment(body.as_of)
    return Json({"hits": await _in_session(access).recall(body.query, **arguments)})


@router.get("/profile", tags=["Recall"], response_model=schemas.Profile)
async def profile(
    access: ReadAccess, tokens: Annotated[int, Query(ge=1, le=1_000_000)] = 2000
) -> Response:
    """Return the profile, a block of memories for a prompt: same memories, same bytes."""
    return Json({"profile": await access.space().profile(tokens=tokens)})


@router.get("/spaces", tags=["Server"], response_model=schemas.Spaces)
async def spaces(request: Request) -> Response:
    """List the spaces that this token may use."""
    store, caller = get_server_context(request).store, require_caller(request, "read")
    found = [info for info in await store.spaces() if caller.sees(info.name)]
    if caller.user is not None:
        found = [await _user_space_info(store.space(info.name, user=caller.user)) for info in found]
    return Json({"spaces": found})


@router.get("/whoami", tags=["Server"], response_model=schemas.WhoAmI)
async def whoami(request: Request) -> Response:
    """Return the rights of this token."""
    caller = require_caller(request, "read")
    default = get_server_context(request).settings.space
    return Json(
        {
            "name": caller.name,
            "right": caller.right,
            "spaces": caller.spaces,
            "user": caller.user,
            "space": default if caller.sees(default) else (caller.spaces or (default,))[0],
        }
    )


async def _user_space_info(space: AsyncSpace) -> SpaceInfo:
    """Describe a space as one user may know it: the counts leave out what others have."""
    facts, notes = await space.count(kind="fact"), await space.count(kind="note")
    position = await CallerPositions(space, user_bound=True).current()
    users = () if space.user is None else (space.user,)
    return SpaceInfo(space.name, users, facts, notes, position)


def _in_session(access: RequestAccess, space: AsyncSpace | None = None) -> AsyncSpace:
    """Return the space, through the session that the request names, if it names one.

    What is written through it then names the latest event of that session as its origin.
    """
    space = space or access.space()
    return space if access.session is None else space.session(access.session).space


def _memory_response(
    memory: Memory, status: int = 200, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    etag = {"ETag": f'"{memory.version}"'}
    return Json({**to_json_value(memory), **more}, status, etag | (headers or {}))


def _version_json(version: Version) -> dict[str, Any]:
    """Return a version with the field names that REST clients of memory services expect."""
    shown = to_json_value(version)
    del shown["memory_id"]
    return {
        "version_number": shown.pop("version"),
        "created_at": shown.pop("recorded_at"),
        "source_conversation_id": version.origin and version.origin.session,
        **shown,
    }


def _parse_if_match(if_match: str | None) -> int | None:
    """Read the expected version from If-Match; None: any version."""
    if if_match is None or if_match.strip() == "*":
        return None
    number = if_match.strip().removeprefix("W/").strip('"')
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise HttpProblem(422, "InvalidInput", 'If-Match must be a version such as "3"')
    return int(number)
