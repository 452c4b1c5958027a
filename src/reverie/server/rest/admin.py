"""REST: proposals, jobs, in and out, and the feed of changes."""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from reverie.aio import AsyncHandle
from reverie.errors import ReverieError
from reverie.serialize import to_json_value
from reverie.server.access import (
    AdminAccess,
    IdempotencyKey,
    ReadAccess,
    WriteAccess,
)
from reverie.server.errors import HttpProblem
from reverie.server.json_response import Json, encode_json
from reverie.server.positions import CallerPositions
from reverie.server.rest import schemas
from reverie.server.run import ServerContext
from reverie.transfer.file_formats import parse

router = APIRouter(prefix="/api", responses={"default": {"model": schemas.Problem}})

# How often a quiet feed says that it is there.
HEARTBEAT_SECONDS = 15
MAX_CHANGES = 500
NDJSON = "application/x-ndjson"


# -- proposals and jobs ---------------------------------------------------------------------------


@router.get("/proposals", tags=["Proposals"], response_model=schemas.Proposals)
async def proposals(visit: ReadAccess, include_answered: bool = False) -> Response:
    """What a model would remember if it may, the oldest first."""
    found = await visit.space().proposals(include_answered=include_answered)
    return Json({"proposals": to_json_value(found)})


@router.post("/proposals/{id:name}/accept", tags=["Proposals"], response_model=schemas.Memory)
async def accept(visit: WriteAccess, id: str, key: IdempotencyKey = None) -> Response:
    """Remember what was proposed."""
    return Json(to_json_value(await visit.space().accept(id, key=key)))


@router.post("/proposals/{id:name}/reject", tags=["Proposals"], response_model=schemas.Proposal)
async def reject(
    visit: WriteAccess, id: str, body: schemas.Reasoned | None = None, key: IdempotencyKey = None
) -> Response:
    """Do not remember what was proposed."""
    reason = None if body is None else body.reason
    return Json(to_json_value(await visit.space().reject(id, reason=reason, key=key)))


@router.get("/jobs", tags=["Jobs"], response_model=schemas.Jobs)
async def jobs(visit: AdminAccess) -> Response:
    """Everything that is to be done later, in every space; parked jobs included."""
    return Json({"jobs": to_json_value(await visit.server_context.store.jobs())})


@router.post("/jobs/{space:name}/{job}/retry", tags=["Jobs"], status_code=204)
async def retry(visit: AdminAccess, space: str, job: schemas.Number) -> Response:
    """Make a job due now."""
    await visit.server_context.store.retry_job(space, job)
    return Response(status_code=204)


@router.delete("/jobs/{space:name}/{job}", tags=["Jobs"], status_code=204)
async def drop(visit: AdminAccess, space: str, job: schemas.Number) -> Response:
    """Take a job off the agenda, undone."""
    await visit.server_context.store.drop_job(space, job)
    return Response(status_code=204)


# -- in and out -----------------------------------------------------------------------------------


@router.get(
    "/export",
    tags=["In and out"],
    response_class=StreamingResponse,
    responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
)
async def export(visit: ReadAccess) -> Response:
    """Every version of every memory and every event, one JSON document a line."""
    records = await visit.space().export()

    async def lines() -> AsyncIterator[bytes]:
        async for record in records:
            yield encode_json(record) + b"\n"

    return StreamingResponse(lines(), media_type=NDJSON)


@router.post(
    "/import",
    tags=["In and out"],
    response_model=schemas.Imported,
    openapi_extra={
        "requestBody": {"content": {NDJSON: {"schema": {"type": "string"}}}, "required": True}
    },
)
async def take_in(request: Request, visit: WriteAccess) -> Response:
    """What an export gave, or what any known memory exports; kept in batches once it has come."""
    # The store's threads never wait for a client: what is still on its way waits on the disk.
    with tempfile.TemporaryFile() as file:
        async for chunk in request.stream():
            file.write(chunk)
        file.seek(0)
        async with visit.server_context.import_slots:
            stream = io.TextIOWrapper(file, "utf-8", "surrogateescape")
            report = await visit.space().import_records(parse(stream))
    return Json(to_json_value(report))


# -- the feed -------------------------------------------------------------------------------------


@router.get(
    "/changes",
    tags=["Server"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def changes(
    visit: ReadAccess,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    wait: Annotated[bool, Query(description="Whether to stay and tell what comes.")] = True,
) -> Response:
    """What happens in a space, as server-sent events; without ``after``, from now on.

    Each says what happened to what, never what it says. Its id is its position: come back with it.
    """
    if last_event_id is not None and not (
        last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19
    ):
        raise HttpProblem(422, "InvalidInput", "Last-Event-ID must be a position of the log")
    space = visit.space()
    positions = visit.positions(space)
    begin = int(last_event_id) if last_event_id is not None else after
    # Asked in any case: a store that is away is told of while the answer can still say so.
    now = await space.position()
    begin = now if begin is None else await positions.meant(begin)
    told = _stream_changes(space, visit.server_context, begin, wait, positions)
    return StreamingResponse(told, media_type="text/event-stream")


async def _stream_changes(
    space: AsyncHandle, serving: ServerContext, after: int, wait: bool, positions: CallerPositions
) -> AsyncIterator[str]:
    watcher, stopping = serving.watcher, serving.stopping
    yield ": reverie\n\n"
    beat_at = time.monotonic() + HEARTBEAT_SECONDS
    while not stopping.is_set():
        since = watcher.position(space.name)
        try:
            found = await space.changes(after=after, limit=MAX_CHANGES)
            shown = await positions.shown([change.position for change in found]) if found else []
        except ReverieError:
            # An answer that has begun cannot say why: whoever comes back is told.
            return
        for change, number in zip(found, shown, strict=True):
            after = change.position
            data = json.dumps(to_json_value(replace(change, position=number)))
            yield f"id: {number}\nevent: change\ndata: {data}\n\n"
        if found:
            beat_at = time.monotonic() + HEARTBEAT_SECONDS
            continue
        if not wait:
            return
        # Others' changes wake this feed too: they must not show in when it beats.
        await watcher.changed(space.name, since, max(beat_at - time.monotonic(), 0))
        if time.monotonic() >= beat_at:
            yield ": still here\n\n"
            beat_at = time.monotonic() + HEARTBEAT_SECONDS
