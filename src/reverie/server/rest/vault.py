"""REST: the vault's history and checkpoints, and where a memory's file is."""

from __future__ import annotations

import logging
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from reverie.aio import run_with_handle
from reverie.errors import VaultError
from reverie.memory.space import Space
from reverie.serialize import to_json_value
from reverie.server.access import ReadAccess, RequestAccess, WriteAccess
from reverie.server.errors import HttpProblem
from reverie.server.guard import is_local
from reverie.server.json_response import Json
from reverie.server.rest import schemas
from reverie.vault.git import scoped_history

router = APIRouter(prefix="/api/vault", responses={"default": {"model": schemas.Problem}})
_log = logging.getLogger("reverie.server")


@router.get("/history", tags=["Vault"], response_model=schemas.Commits)
async def history(
    visit: ReadAccess,
    id: Annotated[str | None, Query(description="Of one memory's file alone.")] = None,
    limit: Annotated[int, Query(ge=1, le=scoped_history.MAX_COMMITS)] = 10,
) -> Response:
    """What git says of the files of a space, the newest commit first."""
    found = await _run_in_vault(visit, partial(_history, id=id, limit=limit))
    return Json({"commits": to_json_value(found)})


@router.post("/checkpoint", tags=["Vault"], response_model=schemas.Checkpoint)
async def checkpoint(visit: WriteAccess, body: schemas.Noted | None = None) -> Response:
    """Commit all that the vault holds, under a note; ``commit`` is null when nothing changed."""
    note = "" if body is None else body.note
    return Json(
        {"commit": await _run_in_vault(visit, partial(scoped_history.checkpoint, note=note))}
    )


async def memory_file(request: Request, visit: RequestAccess, id: str) -> dict[str, Any]:
    """Where a memory that this caller sees has its file: from the vault's folder on, and for the
    operator on this machine whole. No other caller learns where anything stands."""
    try:
        found = await run_with_handle(
            visit.space(), partial(scoped_history.find_memory_file, id=id)
        )
    except VaultError as error:
        _log.warning("%s", error)
        found = None
    if found is None:
        return {"file": None, "local_file": None}
    own = visit.caller.right == "admin" and is_local(request.scope)
    return {"file": found[0], "local_file": found[1] if own else None}


def _history(space: Space, id: str | None, limit: int) -> Any:
    if id is not None:
        # Whoever does not see a memory does not see its file either.
        space.get(id)
    return scoped_history.history(space, id, limit)


async def _run_in_vault(visit: RequestAccess, work: Any) -> Any:
    """What the vault answers. Why it cannot is told to the operator: it names folders."""
    if await visit.server_context.store.vault is None:
        raise HttpProblem(404, "NotFound", "the store has no vault")
    try:
        return await run_with_handle(visit.space(), work)
    except VaultError as error:
        _log.warning("%s", error)
        detail = "the vault cannot be used at the moment: the server's log says why"
        raise HttpProblem(503, "VaultError", detail, headers={"Retry-After": "1"}) from error
