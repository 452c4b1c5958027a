"""REST: proposals, jobs, export and import, and the feed of changes."""

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

from reverie.aio import AsyncSpace
from reverie.errors import ReverieError
from reverie.serialize import to_json_value
from reverie.server.access import (
    AdminAccess,
    IdempotencyKey,
    ReadAccess,
    WriteAccess,
)
from reverie.server.context import ServerContext
from reverie.server.errors import HttpProblem
from reverie.server.json_response import Json, encode_json
from reverie.server.positions import CallerPositions
from reverie.server.rest import schemas
from reverie.transfer.file_formats import parse

router = APIRouter(prefix="/api", responses={"default": {"model": schemas.Problem}})

# How often a feed without changes sends a comment, so that nobody closes the connection.
HEARTBEAT_SECONDS = 15
MAX_CHANGES = 500
NDJSON = "application/x-ndjson"


# -- proposals and jobs ---------------------------------------------------------------------------


@router.get("/proposals", tags=["Proposals"], response_model=schemas.Proposals)
async def proposals(access: ReadAccess, include_answered: bool = False) -> Response:
    """List the proposals that wait for an answer, the oldest first."""
    found = await access.space().proposals(include_answered=include_answered)
    return Json({"proposals": found})


@router.post("/proposals/{id:name}/accept", tags=["Proposals"], response_model=schemas.Memory)
async def accept(access: WriteAccess, id: str, key: IdempotencyKey = None) -> Response:
    """Accept a proposal: it becomes a memory."""
    return Json(await access.space().accept(id, key=key))


@router.post("/proposals/{id:name}/reject", tags=["Proposals"], response_model=schemas.Proposal)
async def reject(
    access: WriteAccess,
    id: str,
    body: schemas.ReasonRequest | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Reject a proposal."""
    reason = None if body is None else body.reason
    return Json(await access.space().reject(id, reason=reason, key=key))


@router.get("/jobs", tags=["Jobs"], response_model=schemas.Jobs)
async def jobs(access: AdminAccess) -> Response:
    """List the background jobs of every space, parked ones included."""
    return Json({"jobs": await access.server_context.store.jobs()})


@router.post("/jobs/{space:name}/{job}/retry", tags=["Jobs"], status_code=204)
async def retry(access: AdminAccess, space: str, job: schemas.Number) -> Response:
    """Make a job due now."""
    await access.server_context.store.retry_job(space, job)
    return Response(status_code=204)


@router.delete("/jobs/{space:name}/{job}", tags=["Jobs"], status_code=204)
async def drop(access: AdminAccess, space: str, job: schemas.Number) -> Response:
    """Remove a job without running it."""
    await access.server_context.store.drop_job(space, job)
    return Response(status_code=204)


# -- export and import ----------------------------------------------------------------------------


@router.get(
    "/export",
    tags=["In and out"],
    response_class=StreamingResponse,
    responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
)
async def export(access: ReadAccess) -> Response:
    """Export every version of every memory and every event, one JSON document a line."""
    records = await access.space().export()

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
async def import_records(request: Request, access: WriteAccess) -> Response:
    """Import an export of Reverie or of another memory program that is known here.

    The records are stored in batches, once all of them have arrived.
    """
    # The body goes to disk first: a thread of the store must never wait for a client.
    with tempfile.TemporaryFile() as file:
        async for chunk in request.stream():
            file.write(chunk)
        file.seek(0)
        async with access.server_context.import_slots:
            stream = io.TextIOWrapper(file, "utf-8", "surrogateescape")
            report = await access.space().import_records(parse(stream))
    return Json(report)


# -- the feed -------------------------------------------------------------------------------------


@router.get(
    "/changes",
    tags=["Server"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def changes(
    access: ReadAccess,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    wait: Annotated[bool, Query(description="Whether to wait for further changes.")] = True,
) -> Response:
    """Send the changes of a space as server-sent events; without ``after``, those from now on.

    An event says which memory or session changed and how, never its content. Its id is its
    position: send it as ``Last-Event-ID`` to continue after it.
    """
    if last_event_id is not None and not (
        last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19
    ):
        raise HttpProblem(422, "InvalidInput", "Last-Event-ID must be a position of the log")
    space = access.space()
    positions = access.positions(space)
    begin = int(last_event_id) if last_event_id is not None else after
    # Read in any case: if the store cannot be reached, the answer can still be an error.
    now = await space.position()
    begin = now if begin is None else await positions.to_log(begin)
    stream = _stream_changes(space, access.server_context, begin, wait, positions)
    return StreamingResponse(stream, media_type="text/event-stream")


async def _stream_changes(
    space: AsyncSpace,
    server_context: ServerContext,
    after: int,
    wait: bool,
    positions: CallerPositions,
) -> AsyncIterator[str]:
    watcher, stopping = server_context.watcher, server_context.stopping
    yield ": reverie\n\n"
    beat_at = time.monotonic() + HEARTBEAT_SECONDS
    while not stopping.is_set():
        since = watcher.position(space.name)
        try:
            found = await space.changes(after=after, limit=MAX_CHANGES)
            shown = await positions.shown([change.position for change in found]) if found else []
        except ReverieError:
            # An answer that has started cannot report an error; a client that reconnects gets it.
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
        # Changes of other users wake this feed too; the time of its heartbeat must not show them.
        await watcher.changed(space.name, since, max(beat_at - time.monotonic(), 0))
        if time.monotonic() >= beat_at:
            yield ": still here\n\n"
            beat_at = time.monotonic() + HEARTBEAT_SECONDS
