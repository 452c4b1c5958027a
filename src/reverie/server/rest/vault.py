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
    access: ReadAccess,
    id: Annotated[str | None, Query(description="Only the commits of this memory's file.")] = None,
    limit: Annotated[int, Query(ge=1, le=scoped_history.MAX_COMMITS)] = 10,
) -> Response:
    """The git commits that changed files of a space, the newest first."""
    found = await _run_in_vault(access, partial(_history, id=id, limit=limit))
    return Json({"commits": found})


@router.post("/checkpoint", tags=["Vault"], response_model=schemas.Checkpoint)
async def checkpoint(
    access: WriteAccess, body: schemas.CheckpointRequest | None = None
) -> Response:
    """Commit the whole vault with a note; ``commit`` is null when nothing changed."""
    note = "" if body is None else body.note
    commit = await _run_in_vault(access, partial(scoped_history.checkpoint, note=note))
    return Json({"commit": commit})


async def memory_file(request: Request, access: RequestAccess, id: str) -> dict[str, Any]:
    """Return the path of a memory's file, relative to the vault.

    Only the operator, on this machine, is given the full path as well.
    """
    try:
        found = await run_with_handle(
            access.space(), partial(scoped_history.find_memory_file, id=id)
        )
    except VaultError as error:
        _log.warning("%s", error)
        found = None
    if found is None:
        return {"file": None, "local_file": None}
    is_operator = access.caller.right == "admin" and is_local(request.scope)
    return {"file": found[0], "local_file": found[1] if is_operator else None}


def _history(space: Space, id: str | None, limit: int) -> Any:
    if id is not None:
        # Raises NotFound for a memory that the caller does not see.
        space.get(id)
    return scoped_history.history(space, id, limit)


async def _run_in_vault(access: RequestAccess, work: Any) -> Any:
    """Run a function in the vault. An error names folders, so only the log has its message."""
    if await access.server_context.store.vault is None:
        raise HttpProblem(404, "NotFound", "the store has no vault")
    try:
        return await run_with_handle(access.space(), work)
    except VaultError as error:
        _log.warning("%s", error)
        detail = "the vault cannot be used at the moment: the server's log says why"
        raise HttpProblem(503, "VaultError", detail, headers={"Retry-After": "1"}) from error
