"""Pydantic models of the requests and responses of the REST routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, create_model

from reverie import model
from reverie.vault.git.repo import CommitInfo
from reverie.write.session_state import ScratchpadState
from reverie.write.validate import MAX_ITEMS

Time = int | str
Number = Annotated[int, Path(ge=0, le=2**62)]
MAX_LISTED = 1_000
MAX_APPENDED = 1_000


@cache
def wire_model(kind: type, title: str | None = None) -> type[BaseModel]:
    """Build the model of one of the library's values as ``to_json_value`` writes it."""
    hints = get_type_hints(kind)
    names = getattr(kind, "_fields", None) or [
        field.name for field in fields(kind) if field.metadata.get("serialize", True)
    ]
    types: dict[str, Any] = {name: (_wire_type(hints[name], name), ...) for name in names}
    return create_model(title or kind.__name__, **types)


def _wire_type(hint: Any, name: str) -> Any:
    """Return the JSON type of a field; a time is ISO 8601."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is int and model.is_time_field(name):
        return str
    if origin is Literal or hint in {int, float, str, bool, Any, type(None)}:
        return hint
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, Any]
    if origin is tuple:
        return list[_wire_type(inner[0], name)]  # type: ignore[misc]
    if inner:
        return Union[tuple(_wire_type(each, name) for each in inner)]  # noqa: UP007 - made at run time
    return wire_model(hint)


def _list_model(title: str, name: str, kind: type[BaseModel]) -> type[BaseModel]:
    """Build the model of an answer that is one list."""
    types: dict[str, Any] = {name: (list[kind], ...)}  # type: ignore[valid-type]
    return create_model(title, **types)


Memory, Hit, Event = wire_model(model.Memory), wire_model(model.Hit), wire_model(model.Event)
SessionInfo, SpaceInfo, Proposal = (
    wire_model(model.SessionInfo),
    wire_model(model.SpaceInfo),
    wire_model(model.Proposal),
)
Erased, SessionErased = wire_model(model.ErasureReport), wire_model(model.SessionErasure)
Summary, Imported = wire_model(model.Summary), wire_model(model.ImportReport)
Scratchpad = wire_model(ScratchpadState, "Scratchpad")

Events, Hits = _list_model("Events", "events", Event), _list_model("Hits", "hits", Hit)
Jobs = _list_model("Jobs", "jobs", wire_model(model.Job))
Proposals = _list_model("Proposals", "proposals", Proposal)
Recalls = _list_model("Recalls", "recalls", wire_model(model.RecallNote))
SessionMemories = _list_model("SessionMemories", "memories", Memory)
Sessions = _list_model("Sessions", "sessions", SessionInfo)
Spaces = _list_model("Spaces", "spaces", SpaceInfo)


class Problem(BaseModel):
    """RFC 9457; some problems add ``existing_id``, ``current_version`` or ``errors``."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str


class _ResponseModel(BaseModel):
    """Describes an answer in /openapi.json; the answer itself is made by ``to_json_value``."""


class VersionDetails(_ResponseModel):
    """One version of a memory."""

    version_number: int
    content: str | None
    created_at: str
    source_conversation_id: str | None
    op: model.Op
    category: str | None
    subject: str | None
    tags: list[str]
    trust: model.Trust
    actor: str | None
    reason: str | None
    origin: wire_model(model.Origin) | None  # type: ignore[valid-type]
    metadata: dict[str, Any]
    valid_from: str | None
    valid_to: str | None
    source: str | None
    position: int
    uuid: str


class Remembered(Memory):  # type: ignore[valid-type, misc]
    """A memory that was just remembered, and the other memories of its subject."""

    related: list[Memory]  # type: ignore[valid-type]


class RememberedMany(_ResponseModel):
    memories: list[Remembered] = Field(description="One for each item, in their order.")


class MemoryDetails(Memory):  # type: ignore[valid-type, misc]
    """A memory and its versions."""

    versions: list[VersionDetails]
    file: str | None = Field(description="The path inside the vault.")
    local_file: str | None = Field(
        description="The full path; only for the operator on that machine."
    )


class Memories(_ResponseModel):
    memories: list[Memory]  # type: ignore[valid-type]
    total: int
    next: str | None = Field(description="What to give as `after` for the next page.")
    position: int = Field(description="The last position of the log: follow changes from here.")


class CategoryCount(_ResponseModel):
    name: str
    memories: int


class Categories(_ResponseModel):
    categories: list[CategoryCount]


class Health(_ResponseModel):
    status: str


class Login(_ResponseModel):
    token: str


class Profile(_ResponseModel):
    profile: str


class WhoAmI(_ResponseModel):
    name: str
    right: model.Right
    spaces: list[str] | None
    user: str | None
    space: str = Field(description="The space that is used when none is named.")


class SessionReference(_ResponseModel):
    id: str
    forked_from: wire_model(model.Origin) | None = None  # type: ignore[valid-type]


class ContextDetails(wire_model(model.Context)):  # type: ignore[misc]
    """The parts of a context, and ``system``: all but the history as one text."""

    system: str


class Commit(wire_model(CommitInfo)):  # type: ignore[misc]
    """One commit of the vault."""


class Commits(_ResponseModel):
    commits: list[Commit]


class Checkpoint(_ResponseModel):
    commit: str | None


# -- requests -------------------------------------------------------------------------------------


class _RequestModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewItem(_RequestModel):
    content: str = Field(min_length=1)
    kind: model.Kind = "fact"
    category: str = "general"
    subject: str | None = None
    tags: list[str] = []
    source: str | None = None
    happened_at: Time | None = None
    expires_at: Time | None = None
    valid_from: Time | None = Field(None, description="When it becomes true.")
    valid_to: Time | None = Field(None, description="When it stops being true.")
    pinned: bool = False
    metadata: dict[str, Any] = Field({}, description="Any JSON object of up to 16 KiB.")


class NewMemoryRequest(NewItem):
    trust: model.Trust | None = Field(None, description="Can only lower the trust of the token.")
    private: bool = Field(False, description="Only the session that the request names recalls it.")
    force: bool = Field(
        False, description="Keep both if a memory of this subject says something similar."
    )


class NewMemories(_RequestModel):
    items: list[NewItem] = Field(min_length=1, max_length=MAX_ITEMS)
    trust: model.Trust | None = Field(None, description="Can only lower the trust of the token.")


class MemoryChanges(_RequestModel):
    content: str | None = None
    category: str | None = None
    subject: str | None = None
    tags: list[str] | None = None
    pinned: bool | None = None
    metadata: dict[str, Any] | None = Field(None, description="Replaces the whole object.")
    valid_from: Time | None = None
    valid_to: Time | None = None
    reason: str | None = None


class RecallRequest(_RequestModel):
    query: str
    limit: int = Field(5, ge=1, le=MAX_LISTED)
    mode: model.Mode = "hybrid"
    kinds: list[model.HitKind] | None = None
    category: str | None = None
    tags: list[str] | None = None
    since: Time | None = None
    until: Time | None = None
    where: dict[str, Any] | None = Field(
        None, description='Conditions, such as `{"metadata.team": {"in": ["a", "b"]}}`.'
    )
    valid_at: Time | None = Field(
        None,
        description="Only memories that are true at this time, or in this `2023` or `2023-05`.",
    )
    as_of: Time | None = None
    ranking: str | None = None
    min_score: float | None = Field(None, description="Hits with a lower score are left out.")
    explain: bool = False
    note: bool = Field(
        True, description="Whether this is noted as a recall; false when a person only browses."
    )


class EraseRequest(_RequestModel):
    with_source: bool = False


class ReasonRequest(_RequestModel):
    reason: str | None = None


class CheckpointRequest(_RequestModel):
    note: str = Field("", max_length=1_000)


class NewSession(_RequestModel):
    id: str | None = None


class Messages(_RequestModel):
    # Stored in one transaction, during which nobody else writes: longer lists go to /follow.
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_APPENDED)


class FollowRequest(_RequestModel):
    history: list[dict[str, Any]]
    session: str | None = None


class ContextRequest(_RequestModel):
    query: str | None = None
    tokens: int | None = Field(None, ge=1)


class SummaryUpdate(_RequestModel):
    text: str
    upper: int = Field(ge=0, le=2**62)
    expected_epoch: int = Field(ge=0, le=2**62)


class ScratchpadItems(_RequestModel):
    items: list[str]


class LoginCode(_RequestModel):
    code: str
