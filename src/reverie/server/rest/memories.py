"""REST: memories, recall and the profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from reverie.aio import AsyncHandle
from reverie.dates import parse_as_of
from reverie.model import Kind, Memory, Order, SpaceInfo, Version
from reverie.serialize import to_json_value
from reverie.server import run
from reverie.server.access import (
    AdminAccess,
    IdempotencyKey,
    ReadAccess,
    RequestAccess,
    WriteAccess,
    require_caller,
)
from reverie.server.errors import HttpProblem
from reverie.server.json_response import Json
from reverie.server.positions import CallerPositions
from reverie.server.rest import schemas, vault

router = APIRouter(prefix="/api", responses={"default": {"model": schemas.Problem}})
IfMatch = Annotated[str | None, Header(alias="If-Match", description='The version, as in `"3"`.')]


@router.get("/memory/", tags=["Memories"], response_model=schemas.Memories)
@router.get("/memory", include_in_schema=False)
async def memories(
    visit: ReadAccess,
    category: str | None = None,
    subject: str | None = None,
    tag: Annotated[list[str] | None, Query()] = None,
    kind: Kind | None = None,
    include_forgotten: bool = False,
    as_of: Annotated[str | None, Query(description="A position of the log, or a time.")] = None,
    limit: Annotated[int, Query(ge=1, le=schemas.MAX_LISTED)] = 50,
    after: Annotated[str | None, Query(description="`next` of the part before.")] = None,
    order: Order = "newest",
) -> Response:
    """The memories of a space, part by part."""
    space = visit.space()
    positions = visit.positions(space)
    moment = None if as_of is None else parse_as_of(as_of)
    chosen: dict[str, Any] = {
        "category": category,
        "subject": subject,
        "tags": tag,
        "kind": kind,
        "include_forgotten": include_forgotten,
        "as_of": await positions.moment(moment),
    }
    position = await positions.current()
    found = await space.memories(**chosen, limit=limit + 1, after=after, order=order)
    more = found[limit - 1].id if len(found) > limit else None
    total = await space.count(**chosen)
    return Json(
        {
            "memories": to_json_value(found[:limit]),
            "total": total,
            "next": more,
            "position": position,
        }
    )


@router.post("/memory/", tags=["Memories"], status_code=201, response_model=schemas.Memory)
@router.post("/memory", include_in_schema=False, status_code=201)
async def remember(
    visit: WriteAccess, body: schemas.NewMemory, key: IdempotencyKey = None
) -> Response:
    """Keep one thing. The same subject again is answered with 409 and what is known already."""
    given = body.model_dump(exclude={"content", "trust"})
    space = _in_session(visit, visit.space(body.trust))
    memory = await space.remember(body.content, **given, key=key)
    return _memory_response(memory, 201, {"Location": f"/api/memory/{memory.id}"})


@router.get("/memory/{id:name}", tags=["Memories"], response_model=schemas.MemoryShown)
async def show(request: Request, visit: ReadAccess, id: str) -> Response:
    """A memory with its whole history and its file, also when it was forgotten."""
    space = visit.space()
    memory, versions = await space.get(id), await space.history(id)
    shown = await visit.positions(space).shown([version.position for version in versions])
    told = [
        _version_json(replace(version, position=position))
        for version, position in zip(versions, shown, strict=True)
    ]
    return _memory_response(
        memory, 200, versions=told, **await vault.memory_file(request, visit, id)
    )


@router.put("/memory/{id:name}", tags=["Memories"], response_model=schemas.Memory)
@router.patch("/memory/{id:name}", tags=["Memories"], response_model=schemas.Memory)
async def revise(
    visit: WriteAccess,
    id: str,
    body: schemas.Changed,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> Response:
    """A new version of the same memory. What is not given stays as it is."""
    given = body.model_dump(exclude_unset=True)
    content, reason = given.pop("content", None), given.pop("reason", None)
    for name in ("category", "tags", "pinned"):
        if name in given and given[name] is None:
            raise HttpProblem(422, "InvalidInput", f"{name} must not be null: leave it out instead")
    memory = await visit.space().revise(
        id, content, **given, expected_version=_parse_if_match(if_match), reason=reason, key=key
    )
    return _memory_response(memory)


@router.delete("/memory/{id:name}", tags=["Memories"], status_code=204)
async def forget(
    visit: WriteAccess,
    id: str,
    reason: str | None = None,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> Response:
    """Take a memory out of every recall; its history stays."""
    await visit.space().forget(
        id, expected_version=_parse_if_match(if_match), reason=reason, key=key
    )
    return Response(status_code=204)


@router.post("/memory/{id:name}/restore", tags=["Memories"], response_model=schemas.Memory)
async def restore(visit: WriteAccess, id: str, key: IdempotencyKey = None) -> Response:
    """Bring a forgotten memory back."""
    return _memory_response(await visit.space().restore(id, key=key))


@router.post("/memory/{id:name}/erase", tags=["Memories"], response_model=schemas.Erased)
async def erase(
    visit: AdminAccess, id: str, body: schemas.Erasing | None = None, key: IdempotencyKey = None
) -> Response:
    """Destroy every version of a memory. There is no way back."""
    with_source = body is not None and body.with_source
    return Json(to_json_value(await visit.space().erase(id, with_source=with_source, key=key)))


@router.get("/categories", tags=["Memories"], response_model=schemas.Categories)
async def categories(visit: ReadAccess) -> Response:
    """Every category by name, and how many memories it has."""
    found = await visit.space().categories()
    named = [{"name": name, "memories": number} for name, number in found.items()]
    return Json({"categories": named})


@router.post("/recall", tags=["Recall"], response_model=schemas.Hits)
async def recall(visit: ReadAccess, body: schemas.Question) -> Response:
    """What is most worth knowing for a query, best first."""
    asked = body.model_dump(exclude={"query"})
    asked["as_of"] = await visit.positions().moment(body.as_of)
    return Json({"hits": to_json_value(await _in_session(visit).recall(body.query, **asked))})


@router.get("/profile", tags=["Recall"], response_model=schemas.Profile)
async def profile(
    visit: ReadAccess, tokens: Annotated[int, Query(ge=1, le=1_000_000)] = 2000
) -> Response:
    """The block for a prompt of what is known, the same bytes for the same memories."""
    return Json({"profile": await visit.space().profile(tokens=tokens)})


@router.get("/spaces", tags=["Server"], response_model=schemas.Spaces)
async def spaces(request: Request) -> Response:
    """The spaces that this token is for."""
    store, caller = run.get_server_context(request).store, require_caller(request, "read")
    found = [info for info in await store.spaces() if caller.sees(info.name)]
    if caller.user is not None:
        found = [await _user_space_info(store.space(info.name, user=caller.user)) for info in found]
    return Json({"spaces": to_json_value(found)})


@router.get("/whoami", tags=["Server"], response_model=schemas.WhoAmI)
async def whoami(request: Request) -> Response:
    """What this token may do."""
    caller = require_caller(request, "read")
    usual = run.get_server_context(request).settings.space
    return Json(
        {
            "name": caller.name,
            "right": caller.right,
            "spaces": caller.spaces,
            "user": caller.user,
            "space": usual if caller.sees(usual) else (caller.spaces or (usual,))[0],
        }
    )


async def _user_space_info(space: AsyncHandle) -> SpaceInfo:
    """A space as one user knows it: nothing of anybody else, not even how much."""
    facts, notes = await space.count(kind="fact"), await space.count(kind="note")
    position = await CallerPositions(space, bound=True).current()
    return SpaceInfo(space.name, (space.user,), facts, notes, position)


def _in_session(visit: RequestAccess, space: AsyncHandle | None = None) -> Any:
    """The space, or as one session sees it if the request names one."""
    space = space or visit.space()
    return space if visit.session is None else space.session(visit.session)


def _memory_response(
    memory: Memory, status: int = 200, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    return Json(
        {**to_json_value(memory), **more},
        status,
        {"ETag": f'"{memory.version}"', **(headers or {})},
    )


def _version_json(version: Version) -> dict[str, Any]:
    """A version under the names that clients of such a service know."""
    shown = to_json_value(version)
    del shown["memory_id"]
    return {
        "version_number": shown.pop("version"),
        "created_at": shown.pop("recorded_at"),
        "source_conversation_id": version.origin and version.origin.session,
        **shown,
    }


def _parse_if_match(if_match: str | None) -> int | None:
    """The version that a change is meant for."""
    if if_match is None or if_match.strip() == "*":
        return None
    number = if_match.strip().removeprefix("W/").strip('"')
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise HttpProblem(422, "InvalidInput", 'If-Match must be a version such as "3"')
    return int(number)
