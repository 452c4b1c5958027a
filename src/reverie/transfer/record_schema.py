"""Validate exported records with pydantic before they become log entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from reverie.dates import MAX_MS, MIN_MS
from reverie.engine.log import LogEntry
from reverie.errors import InvalidInput
from reverie.model import Kind, Origin, Trust
from reverie.text.json_values import to_json_object
from reverie.text.metadata import check_metadata
from reverie.text.normalize import (
    category_slug,
    one_line,
    require_name,
    require_utf8,
)
from reverie.text.tags import clean_tags
from reverie.transfer.export import FORMAT
from reverie.write import validate

Time = Annotated[int, Field(ge=MIN_MS, le=MAX_MS)]


class MemoryBody(BaseModel):
    """The complete state of a memory, as the log stores it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    kind: Kind
    content: str
    category: str
    subject: str | None
    tags: list[str]
    concept_tags: list[str]
    session: str | None
    source: str | None
    trust: Trust
    pinned: bool
    created_at: Time
    updated_at: Time
    happened_at: Time | None
    forgotten_at: Time | None
    expires_at: Time | None
    document: str | None = None
    metadata: dict[str, Any] = {}
    valid_from: Time | None = None
    valid_to: Time | None = None

    @field_validator("content")
    @classmethod
    def _content(cls, value: str) -> str:
        if not one_line(require_utf8(value, "content")) or len(value) > validate.MAX_CHARS:
            raise ValueError("content is empty or too long")
        return value

    @field_validator("category")
    @classmethod
    def _category(cls, value: str) -> str:
        if category_slug(value) != value:
            raise ValueError("category is not a slug")
        return value

    @field_validator("subject", "source", "document", "session")
    @classmethod
    def _name(cls, value: str | None) -> str | None:
        return validate.check_optional(value, "a name", validate.MAX_SOURCE_CHARS)

    @field_validator("tags", "concept_tags")
    @classmethod
    def _tags(cls, value: list[str]) -> list[str]:
        if list(clean_tags(value)) != value:
            raise ValueError("tags are not clean")
        return value

    @field_validator("metadata")
    @classmethod
    def _metadata(cls, value: dict[str, Any]) -> dict[str, Any]:
        return check_metadata(value)

    @model_validator(mode="after")
    def _validity(self) -> MemoryBody:
        validate.check_validity(self.valid_from, self.valid_to)
        return self


class _EntryFields(BaseModel):
    """The fields that every log entry has."""

    model_config = ConfigDict(strict=True, extra="ignore")

    uuid: Annotated[
        str, Field(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
    ]
    recorded_at: Time
    actor: str | None = None
    trust: Trust
    reason: str | None = None
    origin: Any = None
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    request: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None

    @field_validator("actor", "reason")
    @classmethod
    def _check_text(cls, value: str | None) -> str | None:
        return None if value is None else require_name(value, "a name", validate.MAX_REASON_CHARS)

    @field_validator("origin")
    @classmethod
    def _origin(cls, value: Any) -> Origin | None:
        return validate.check_origin(value)


class MemoryRecord(_EntryFields):
    """A log entry about a memory."""

    op: Literal["remember", "revise", "forget", "restore", "erase", "promote"]
    memory: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{1,64}$")]
    version: Annotated[int, Field(ge=1, lt=2**31)]
    body: MemoryBody | None


class EventBody(BaseModel):
    """A message and the time at which it was said."""

    model_config = ConfigDict(strict=True, extra="forbid")

    message: dict[str, Any]
    at: Time
    interrupted: bool = False

    @field_validator("message")
    @classmethod
    def _message(cls, value: dict[str, Any]) -> dict[str, Any]:
        return to_json_object(value)


_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9]{1,64}$")]
_VersionRef = Annotated[
    list[Annotated[str, Field(max_length=64)]], Field(min_length=2, max_length=2)
]


class ProposalBody(BaseModel):
    """The content of a proposal, or the id of the proposal that was answered."""

    model_config = ConfigDict(strict=True, extra="forbid")

    proposal: _Id
    content: Annotated[str, Field(min_length=1, max_length=validate.MAX_CHARS)] | None = None
    category: str | None = None
    subject: str | None = None
    source: str | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    memory: _Id | None = None
    revises: _VersionRef | None = None
    forgets: list[_VersionRef] = []
    follows: list[_Id] = []


def _check_proposal(body: ProposalBody) -> dict[str, Any]:
    """Check that a proposal has everything that accepting it needs, and normalise it."""
    if not (body.content and body.category and body.source):
        raise ValueError("a proposal needs a content, a category and a source")
    if not one_line(require_utf8(body.content, "content")):
        raise ValueError("content is empty")
    validate.check_validity(body.valid_from, body.valid_to)
    validity = {"valid_from": body.valid_from, "valid_to": body.valid_to}
    replaces = {name: getattr(body, name) for name in ("revises", "forgets", "follows")}
    return {
        "proposal": body.proposal,
        "content": body.content,
        "category": category_slug(body.category),
        "subject": validate.check_subject(body.subject),
        "source": validate.check_optional(body.source, "source", validate.MAX_SOURCE_CHARS),
        **{name: at for name, at in validity.items() if at is not None},
        **{name: value for name, value in replaces.items() if value},
    }


class SessionRecord(_EntryFields):
    """A log entry about a session."""

    op: Literal["append", "hide", "restore", "erase", "propose", "accept", "reject"]
    session: str
    sequence: Annotated[int, Field(ge=1, lt=1 << 53)] | None = None
    body: dict[str, Any] | None

    @field_validator("session")
    @classmethod
    def _session(cls, value: str) -> str:
        return require_name(value, "the id of a session", 200)

    @model_validator(mode="after")
    def _check_body(self) -> SessionRecord:
        if self.op in {"append", "propose", "accept", "reject"} and self.sequence is None:
            raise ValueError("sequence is missing")
        if self.body is None or self.op in {"hide", "restore", "erase"}:
            self.body = None if self.op == "append" or self.body is None else {}
        elif self.op == "append":
            self.body = EventBody.model_validate(self.body).model_dump(exclude_unset=True)
        else:
            body = ProposalBody.model_validate(self.body)
            self.body = body.model_dump(exclude_unset=True)
            if self.op == "propose":
                self.body = _check_proposal(body)
        return self


def parse_record(record: Mapping[str, Any]) -> LogEntry:
    """Check an exported record and convert it to a log entry without a position.

    Raises InvalidInput when the record is not valid.
    """
    if record["reverie"] != FORMAT:
        raise InvalidInput("it was exported by a newer Reverie: upgrade this one")
    shape = MemoryRecord if record.get("session") is None else SessionRecord
    try:
        parsed = shape.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{place}: {first['msg']}") from error
    fields: dict[str, Any] = {"memory": "", "version": 0}
    fields |= {name: getattr(parsed, name) for name in shape.model_fields}
    if isinstance(parsed.body, MemoryBody):
        fields["body"] = parsed.body.model_dump(exclude_unset=True)
    return LogEntry(position=0, **fields)
