"""REST: sessions, their events, context, summary and scratchpad."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from reverie.serialize import to_json_value
from reverie.server.access import (
    AdminAccess,
    IdempotencyKey,
    ReadAccess,
    WriteAccess,
)
from reverie.server.json_response import Json
from reverie.server.rest import schemas

router = APIRouter(
    prefix="/api/sessions", tags=["Sessions"], responses={"default": {"model": schemas.Problem}}
)
Limit = Annotated[int, Query(ge=1, le=schemas.MAX_LISTED)]


@router.get("", response_model=schemas.Sessions)
async def list_sessions(
    access: ReadAccess,
    limit: Limit = 50,
    include_hidden: bool = False,
    since: str | None = None,
    until: str | None = None,
) -> Response:
    """List the sessions of a space, the one with the newest event first.

    `since` and `until` (exclusive) limit when that event was stored.
    """
    found = await access.space().sessions(
        limit=limit, include_hidden=include_hidden, since=since, until=until
    )
    return Json({"sessions": found})


@router.post("", status_code=201, response_model=schemas.SessionReference)
async def create_session(access: WriteAccess, body: schemas.NewSession | None = None) -> Response:
    """Choose the id of a new session, which exists from its first event on."""
    session = access.space().session(None if body is None else body.id)
    return Json({"id": session.id, "forked_from": None}, 201)


@router.post("/follow", response_model=schemas.SessionReference)
async def follow(
    access: WriteAccess, body: schemas.FollowRequest, key: IdempotencyKey = None
) -> Response:
    """Store what is new in a history that a client sends whole each turn, and find its session."""
    session = await access.space_as_person().follow(body.history, session=body.session, key=key)
    return Json({"id": session.id, "forked_from": await session.forked_from})


@router.get("/{id:name}", response_model=schemas.SessionInfo)
async def info(access: ReadAccess, id: str) -> Response:
    """Return the number of events, a preview, and when the session began and was last used."""
    return Json(await access.space().session(id).info())


@router.get("/{id:name}/events", response_model=schemas.Events)
async def events(
    access: ReadAccess,
    id: str,
    limit: Limit = 200,
    until: Annotated[
        int | None, Query(ge=1, le=2**62, description="The last sequence that is wanted.")
    ] = None,
) -> Response:
    """Return the last events of a session, up to ``until`` if it is given; in order, verbatim."""
    found = await access.space().session(id).events(limit, until=until)
    return Json({"events": found})


@router.post("/{id:name}/events", status_code=201, response_model=schemas.Events)
async def append(
    access: WriteAccess, id: str, body: schemas.Messages, key: IdempotencyKey = None
) -> Response:
    """Store messages verbatim, all of them or none."""
    stored = await access.space_as_person().session(id).append_many(body.messages, key=key)
    return Json({"events": stored}, 201)


@router.get("/{id:name}/memories", response_model=schemas.SessionMemories)
async def memories(access: ReadAccess, id: str) -> Response:
    """List the memories that are private to this session."""
    return Json({"memories": await access.space().session(id).memories()})


@router.get("/{id:name}/recalls", response_model=schemas.Recalls)
async def recalls(access: ReadAccess, id: str) -> Response:
    """List what was recalled for each turn."""
    return Json({"recalls": await access.space().session(id).recalls()})


@router.post("/{id:name}/context", response_model=schemas.ContextDetails)
async def context(
    access: ReadAccess, id: str, body: schemas.ContextRequest | None = None
) -> Response:
    """Assemble the context for the next turn: profile, summary, recalled memories, history."""
    arguments: dict[str, Any] = {} if body is None else body.model_dump()
    # freeze stores the profile for later contexts, which a caller who may only read must not do.
    found = await access.space().session(id).context(**arguments, freeze=access.caller.may("write"))
    return Json({**to_json_value(found), "system": found.system})


@router.get("/{id:name}/summary", response_model=schemas.Summary)
async def summary(access: ReadAccess, id: str) -> Response:
    """Return the rolling summary."""
    return Json(await access.space().session(id).summary())


@router.put("/{id:name}/summary", response_model=schemas.Summary)
async def write_summary(access: WriteAccess, id: str, body: schemas.SummaryUpdate) -> Response:
    """Replace the summary; ``applied`` is false if another was written since it was read."""
    written = await access.space().session(id).write_summary(**body.model_dump())
    return Json(written)


@router.get("/{id:name}/scratchpad", response_model=schemas.Scratchpad)
async def scratchpad(access: ReadAccess, id: str) -> Response:
    """Return the working list."""
    return Json(await access.space().session(id).scratchpad.read())


@router.put("/{id:name}/scratchpad", response_model=schemas.Scratchpad)
async def write_scratchpad(access: WriteAccess, id: str, body: schemas.ScratchpadItems) -> Response:
    """Replace the working list."""
    return Json(await access.space().session(id).scratchpad.write(body.items))


@router.delete("/{id:name}/scratchpad", status_code=204)
async def clear_scratchpad(access: WriteAccess, id: str) -> Response:
    """Empty the working list."""
    await access.space().session(id).scratchpad.clear()
    return Response(status_code=204)


@router.post("/{id:name}/refresh", status_code=204)
async def refresh(access: WriteAccess, id: str) -> Response:
    """Use the current profile from the next context on."""
    await access.space().session(id).refresh_profile()
    return Response(status_code=204)


@router.post("/{id:name}/hide", status_code=204)
async def hide(
    access: WriteAccess,
    id: str,
    body: schemas.ReasonRequest | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Take a session out of lists and every recall."""
    await access.space().session(id).hide(None if body is None else body.reason, key=key)
    return Response(status_code=204)


@router.post("/{id:name}/restore", status_code=204)
async def restore(access: WriteAccess, id: str, key: IdempotencyKey = None) -> Response:
    """Bring a hidden session back."""
    await access.space().session(id).restore(key=key)
    return Response(status_code=204)


@router.post("/{id:name}/erase", response_model=schemas.SessionErased)
async def erase(access: AdminAccess, id: str, key: IdempotencyKey = None) -> Response:
    """Destroy every event, and the memories that came only from this session."""
    return Json(await access.space().session(id).erase(key=key))
