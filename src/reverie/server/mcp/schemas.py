"""The arguments of each tool as types: checked on every call, and sent to clients as JSON schema.

The names are those of the library's verbs. Descriptions are written for models and kept short,
because every word costs tokens in every conversation.
"""

from __future__ import annotations

from typing import Annotated, Any, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from reverie import model
from reverie.errors import InvalidInput

# Limits for what a model sends in one call; the store itself can hold more.
MAX_CONTENT = 100_000
MAX_ARGUMENT = 2_000
MAX_LISTED = 100
MAX_HITS = 50
MAX_TOKENS = 32_000
DEFAULT_LISTED = 20
DEFAULT_HITS = 5

Id = Annotated[str, Field(description="8 characters, from recall or memories", max_length=200)]
Key = Annotated[
    str,
    Field(
        description="idempotency key",
        min_length=1,
        max_length=200,
    ),
]
Category = Annotated[
    str, Field(description="one word: person, preference, project, decision…", max_length=200)
]
Subject = Annotated[str, Field(description="who or what it is about", max_length=200)]
Tag = Annotated[str, Field(max_length=200)]
Tags = Annotated[list[Tag], Field(max_length=16)]
Kind = Annotated[model.Kind, Field(description="fact (default): one sentence; note: longer text")]
Reason = Annotated[str, Field(description="why, kept in the history", max_length=MAX_ARGUMENT)]
When = Annotated[str, Field(description="ISO 8601 time or date", max_length=64)]
Metadata = Annotated[dict[str, Any], Field(description="any JSON object")]
Where = Annotated[
    dict[str, Any],
    Field(description='conditions: {"metadata.team": {"in": ["a"]}}'),
]
AsOf = Annotated[
    str, Field(description="as it was at this ISO 8601 time or log position", max_length=64)
]


class _Arguments(TypedDict, total=False):
    """Exactly the arguments that a tool names, each of exactly its type."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]


class RememberArguments(_Arguments, total=False):
    content: Annotated[
        str,
        Field(
            description="self-contained, with names instead of pronouns",
            min_length=1,
            max_length=MAX_CONTENT,
        ),
    ]
    proposal: Annotated[str, Field(description="instead: one the user agreed to", max_length=200)]
    kind: Kind
    category: Category
    subject: Subject
    tags: Tags
    source: Annotated[str, Field(description="where it comes from", max_length=1_000)]
    happened_at: When
    expires_at: When
    valid_from: When
    valid_to: Annotated[str, Field(description="true until then", max_length=64)]
    pinned: Annotated[bool, Field(description="always in the profile")]
    metadata: Metadata
    private: Annotated[bool, Field(description="for this conversation alone")]
    key: Key


class RecallArguments(_Arguments, total=False):
    query: Required[
        Annotated[str, Field(description="a question or keywords", max_length=MAX_ARGUMENT)]
    ]
    limit: Annotated[int, Field(description=f"default {DEFAULT_HITS}", ge=1, le=MAX_HITS)]
    kinds: Annotated[
        list[model.HitKind],
        Field(description="event: what was said in conversations", max_length=3),
    ]
    category: Category
    tags: Tags
    since: When
    until: When
    valid_at: Annotated[str, Field(description="true at this time", max_length=64)]
    where: Where
    as_of: AsOf
    min_score: Annotated[float, Field(description="0 to 1", ge=0, le=1)]


class MemoriesArguments(_Arguments, total=False):
    category: Category
    subject: Subject
    tags: Tags
    kind: Kind
    where: Where
    include_forgotten: bool
    proposals: Annotated[bool, Field(description="list proposals that wait for consent")]
    as_of: AsOf
    limit: Annotated[int, Field(description=f"default {DEFAULT_LISTED}", ge=1, le=MAX_LISTED)]
    after: Annotated[str, Field(description="last id of the page before", max_length=200)]
    order: model.Order


class ReviseArguments(_Arguments, total=False):
    id: Required[Id]
    content: Annotated[
        str, Field(description="the whole new text", min_length=1, max_length=MAX_CONTENT)
    ]
    category: Category
    subject: Annotated[str, Field(description="empty: none", max_length=200)]
    tags: Tags
    pinned: bool
    metadata: Metadata
    valid_from: When
    valid_to: Annotated[str, Field(description="when it stopped being true", max_length=64)]
    expected_version: Annotated[
        int, Field(description="fail if it has changed since", ge=1, le=2**62)
    ]
    reason: Reason
    key: Key


class ForgetArguments(_Arguments, total=False):
    id: Id
    proposal: Annotated[
        str, Field(description="instead: a proposal that the user declined", max_length=200)
    ]
    reason: Reason
    key: Key


class HistoryArguments(_Arguments, total=False):
    id: Required[Id]


class ContextArguments(_Arguments, total=False):
    query: Annotated[str, Field(description="what the task is about", max_length=MAX_ARGUMENT)]
    tokens: Annotated[
        int, Field(description="how long the answer may be; default 4000", ge=100, le=MAX_TOKENS)
    ]


class _UntitledSchema(GenerateJsonSchema):
    """Leaves titles out: they would only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class ArgumentValidator:
    """Checks the arguments of one tool, and holds their JSON schema."""

    def __init__(self, kind: type[Any]) -> None:
        self._adapter = TypeAdapter[dict[str, Any]](kind)
        self.schema = self._adapter.json_schema(schema_generator=_UntitledSchema)
        self.schema.pop("title", None)

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Check arguments. A null counts as not given, because many clients send it for that."""
        try:
            return self._adapter.validate_python(
                {name: value for name, value in given.items() if value is not None}
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InvalidInput(f"{where[:100]}: {first['msg'][:200]}") from None
