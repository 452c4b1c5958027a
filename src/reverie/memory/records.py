"""The shape of an exported record, checked strictly: a file can hold anything."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from reverie.errors import InvalidInput
from reverie.memory import drafts
from reverie.memory.times import EARLIEST, LATEST
from reverie.memory.transfer import FORMAT
from reverie.model import Kind, Origin, Trust
from reverie.text.normalise import category_slug, one_line, plain_name, storable
from reverie.text.tags import clean_tags

Time = Annotated[int, Field(ge=EARLIEST, le=LATEST)]


class Body(BaseModel):
    """The whole state of a memory, as the log keeps it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    kind: Kind
    content: str
    category: str
    subject: str | None
    tags: list[str]
    concept_tags: list[str]
    session: None
    source: str | None
    trust: Trust
    pinned: bool
    created_at: Time
    updated_at: Time
    happened_at: Time | None
    forgotten_at: Time | None
    expires_at: Time | None
    document: str | None = None

    @field_validator("content")
    @classmethod
    def _content(cls, value: str) -> str:
        if not one_line(storable(value, "content")) or len(value) > drafts.MOST_CHARS:
            raise ValueError("content is empty or too long")
        return value

    @field_validator("category")
    @classmethod
    def _category(cls, value: str) -> str:
        if category_slug(value) != value:
            raise ValueError("category is not a slug")
        return value

    @field_validator("subject", "source", "document")
    @classmethod
    def _name(cls, value: str | None) -> str | None:
        return drafts.check_optional(value, "a name", drafts.MOST_SOURCE_CHARS)

    @field_validator("tags", "concept_tags")
    @classmethod
    def _tags(cls, value: list[str]) -> list[str]:
        if list(clean_tags(value)) != value:
            raise ValueError("tags are not clean")
        return value


class Record(BaseModel):
    """One entry of a log."""

    model_config = ConfigDict(strict=True, extra="ignore")

    op: Literal["remember", "revise", "forget", "restore", "erase", "promote"]
    memory: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{1,64}$")]
    version: Annotated[int, Field(ge=1, lt=2**31)]
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
    body: Body | None

    @field_validator("actor", "reason")
    @classmethod
    def _said(cls, value: str | None) -> str | None:
        return None if value is None else plain_name(value, "a name", drafts.MOST_REASON_CHARS)

    @field_validator("origin")
    @classmethod
    def _origin(cls, value: Any) -> Origin | None:
        return drafts.check_origin(value)


def checked(record: Any) -> Record:
    if record["reverie"] != FORMAT:
        raise InvalidInput("it was exported by a newer Reverie: upgrade this one")
    try:
        return Record.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{place}: {first['msg']}") from error
