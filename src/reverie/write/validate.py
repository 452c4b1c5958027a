"""Checking, redacting, splitting and embedding what a caller gives, before the transaction."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from reverie.config import Settings
from reverie.dates import Time, optional_ms
from reverie.engine.index_text import Labels, Passage, memory_passages
from reverie.errors import InvalidInput
from reverie.model import (
    FUSIONS,
    HIT_KINDS,
    KINDS,
    RANKINGS,
    HitKind,
    Kind,
    Memory,
    NewMemory,
    Origin,
    Ranking,
)
from reverie.text.metadata import check_metadata
from reverie.text.normalize import (
    category_slug,
    one_line,
    require_length,
    require_name,
    require_utf8,
    subject_key,
)
from reverie.text.tags import MAX_GIVEN_TAG_CHARS, clean_tags, concept_tags, require_tag_limits
from reverie.write import embeddings

if TYPE_CHECKING:
    from reverie.protocols import Matrix
    from reverie.write.runtime import Runtime

MAX_CHARS = 16_000_000
MAX_KEY_CHARS = 200
MAX_SUBJECT_CHARS = 200
MAX_CATEGORY_CHARS = 200
MAX_SOURCE_CHARS = 1_000
MAX_REASON_CHARS = 2_000
# Memories that are remembered in one transaction, during which nobody else writes.
MAX_ITEMS = 1_000


@dataclass(frozen=True, slots=True)
class PreparedText:
    """A content with its passages. ``vectors`` is None when a job will make them.

    ``labels`` are those of the memory that the passages were made for; a message has none.
    """

    content: str
    passages: list[Passage]
    concept_tags: tuple[str, ...]
    vectors: Matrix | None
    labels: Labels | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A checked memory that is not stored yet and has no id."""

    text: PreparedText
    kind: Kind
    category: str
    subject: str | None = None
    tags: tuple[str, ...] = ()
    source: str | None = None
    origin: Origin | None = None
    happened_at: int | None = None
    expires_at: int | None = None
    pinned: bool = False
    session: str | None = None
    document: str | None = None
    created_at: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    valid_from: int | None = None
    valid_to: int | None = None


def prepare_text(runtime: Runtime, content: str, labels: Labels) -> PreparedText:
    """Split a content into passages, tag it and, with a local embedder, embed it."""
    return prepare_texts(runtime, [(content, labels)])[0]


def prepare_texts(runtime: Runtime, contents: Sequence[tuple[str, Labels]]) -> list[PreparedText]:
    """Prepare many contents, given with the labels of their memories, with one embedder call."""
    split = [memory_passages(content, labels) for content, labels in contents]
    return [
        PreparedText(content, parts, concept_tags(content), rows, labels)
        for (content, labels), parts, rows in zip(
            contents, split, _embed_passages(runtime, split), strict=True
        )
    ]


def prepare_split(
    runtime: Runtime, contents: Sequence[str], split: Sequence[list[Passage]]
) -> list[PreparedText]:
    """Prepare contents that are split already; they get no concept tags."""
    return [
        PreparedText(content, parts, (), rows)
        for content, parts, rows in zip(
            contents, split, _embed_passages(runtime, split), strict=True
        )
    ]


def _embed_passages(runtime: Runtime, split: Sequence[list[Passage]]) -> list[Matrix | None]:
    """Embed the passages of each text with a local embedder; None for each with any other."""
    embedder = runtime.embedder
    # The write transaction checks the model again; this check only comes before the work.
    if embedder is not None and embedder.identity not in runtime.verified_embedders:
        with runtime.engine.read() as tx:
            if embeddings.require(tx, embedder) is not None:
                runtime.verified_embedders.add(embedder.identity)
    texts = [part.embedded for parts in split for part in parts]
    if embedder is None or embedder.remote or not texts:
        return [None] * len(split)
    rows = embedder.embed(texts)
    ends = accumulate(len(parts) for parts in split)
    return [rows[end - len(parts) : end] for end, parts in zip(ends, split, strict=True)]


def redact_content(runtime: Runtime, content: str, kind: str) -> str:
    """Check and redact a content. It is measured before it is scanned."""
    if isinstance(content, str):
        measure_content(content, kind, runtime.settings)
    kept = runtime.redaction.text(content, "content", MAX_CHARS)
    return check_content(kept, kind, runtime.settings)


def check_content(content: str, kind: str, settings: Settings) -> str:
    """Return a content that is not empty and not too long, or raise InvalidInput."""
    measure_content(require_utf8(content, "content"), kind, settings)
    if not one_line(content):
        raise InvalidInput("content must not be empty")
    return content


def measure_content(content: str, kind: str, settings: Settings) -> None:
    """Raise InvalidInput for a content that is too long for its kind."""
    if kind == "fact" and len(content) > settings.fact_chars:
        raise InvalidInput(
            f"a fact has at most {settings.fact_chars} characters, this has {len(content)}: "
            "shorten it, or keep it as a note (kind='note', --note)"
        )
    if len(content) > MAX_CHARS:
        raise InvalidInput(f"content has at most {MAX_CHARS} characters: split it")


def check_kind(kind: str) -> Kind:
    """Return a kind of memory, or raise InvalidInput."""
    if kind not in KINDS:
        raise InvalidInput(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    return kind


def check_limit(value: int, most: int, what: str = "limit") -> int:
    """Return a whole number from 1, at most ``most``, or raise InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{what} must be a whole number from 1, not {value!r}")
    return min(value, most)


def check_ranking(ranking: Ranking | str) -> Ranking:
    """Return a ranking, given itself or by name, whose values are in range."""
    if isinstance(ranking, str):
        if ranking not in RANKINGS:
            raise InvalidInput(f"ranking must be one of {', '.join(RANKINGS)}, not {ranking!r}")
        return RANKINGS[ranking]
    if not isinstance(ranking, Ranking):
        raise InvalidInput(f"ranking must be a Ranking or its name, not {ranking!r}")
    if ranking.fusion not in FUSIONS:
        raise InvalidInput(f"fusion must be one of {', '.join(FUSIONS)}, not {ranking.fusion!r}")
    for name in ("centred", "rerank", "spread", "collapse"):
        if not isinstance(getattr(ranking, name), bool):
            raise InvalidInput(f"{name} must be True or False, not {getattr(ranking, name)!r}")
    for name, least, most in _RANKING_RANGES:
        value = getattr(ranking, name)
        if value is None and name in {"mmr_lambda", "score_threshold"}:
            continue
        whole = name in {"candidates", "multiplier"}
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not number or not least <= value <= most:
            raise InvalidInput(f"{name} must be between {least:g} and {most:g}, not {value!r}")
    return ranking


def check_min_score(value: float | None) -> float | None:
    """Return a least score, or raise InvalidInput for what is no finite number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(f"min_score must be a number, not {value!r}")
    return float(value)


_RANKING_RANGES = (
    *((name, 0, 1e6) for name in ("vector_weight", "keyword_weight", "neighbours")),
    *((name, 0, 1e6) for name in ("speaker", "period")),
    *((name, 0, 1) for name in ("session", "origin", "equal", "recency_weight", "mmr_lambda")),
    *((name, 0, 1_000) for name in ("candidates", "multiplier")),
    ("half_life_days", 1e-6, 1e9),
    ("score_threshold", -1e6, 1e6),
)


def check_hit_kind(kind: str) -> HitKind:
    """Return a kind of hit, or raise InvalidInput."""
    if kind not in HIT_KINDS:
        raise InvalidInput(f"each of kinds must be one of {', '.join(HIT_KINDS)}, not {kind!r}")
    return kind


def check_category(category: str) -> str:
    """Return a category as it is stored, a slug."""
    if isinstance(category, str):
        require_length(category, "category", MAX_CATEGORY_CHARS)
    return category_slug(require_utf8(category, "category"))


def redact_category(runtime: Runtime, category: str) -> str:
    """Redact and check a category."""
    return check_category(runtime.redaction.text(category, "category", MAX_CATEGORY_CHARS))


def redact_subject(runtime: Runtime, subject: str | None) -> str | None:
    """Redact and check a subject."""
    return check_subject(runtime.redaction.text(subject, "subject", MAX_SUBJECT_CHARS))


def redact_source(runtime: Runtime, source: str | None) -> str | None:
    """Redact and check the name of a source."""
    kept = runtime.redaction.text(source, "source", MAX_SOURCE_CHARS)
    return check_optional(kept, "source", MAX_SOURCE_CHARS)


def check_subject(subject: str | None) -> str | None:
    """Return a subject as it is stored; a blank one is None."""
    if subject is None or not one_line(require_utf8(subject, "subject")):
        return None
    return require_name(subject, "subject", MAX_SUBJECT_CHARS)


def subject_filter_key(subject: str) -> str:
    """Return the key that a listing compares the subjects of memories with."""
    require_length(require_utf8(subject, "subject"), "subject", MAX_SUBJECT_CHARS)
    return subject_key(subject) or ""


def check_optional(value: str | None, what: str, limit: int) -> str | None:
    """Return a name of at most ``limit`` characters, or None."""
    return None if value is None else require_name(value, what, limit)


def redact_tags(runtime: Runtime, tags: Iterable[str]) -> tuple[str, ...]:
    """Redact tags, then clean them: an API key in lower case is no longer recognised as one."""
    redact = runtime.redaction.text
    return clean_tags(
        [redact(tag, "a tag", MAX_GIVEN_TAG_CHARS) for tag in require_tag_limits(tags)]
    )


def redact_metadata(runtime: Runtime, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check a metadata and redact its texts; what a redaction made longer is checked again."""
    return check_metadata(runtime.redaction.each(check_metadata(metadata), "metadata"))


def check_reason(runtime: Runtime, reason: str | None) -> str | None:
    """Redact and check the reason of a change."""
    kept = runtime.redaction.text(reason, "reason", MAX_REASON_CHARS)
    return check_optional(kept, "reason", MAX_REASON_CHARS)


def check_origin(origin: Origin | Sequence[Any] | None) -> Origin | None:
    """Return an origin, given as session and sequence, or raise InvalidInput."""
    if origin is None:
        return None
    if (
        not isinstance(origin, Sequence)
        or isinstance(origin, str)
        or len(origin) != 2
        or type(origin[1]) is not int  # a bool is stored as a number, but sealed as a bool
        or not 0 <= origin[1] < 1 << 62
    ):
        raise InvalidInput("origin must be the session and the sequence of an event")
    return Origin(require_name(origin[0], "the session of origin", 200), origin[1])


def build_draft(runtime: Runtime, content: str, **given: Any) -> Draft:
    """Check, redact, split and embed all that a new memory consists of; see ``check_draft``."""
    checked, fields = check_draft(runtime, content, **given)
    return Draft(text=prepare_text(runtime, checked, _labels_of(fields)), **fields)


def build_drafts(runtime: Runtime, items: Iterable[NewMemory | str]) -> list[Draft]:
    """Build the drafts of many memories with one call to the embedder."""
    if isinstance(items, str | Mapping):
        raise InvalidInput("items must be a list of memories: wrap it in a list")
    contents, fields = [], []
    for number, item in enumerate(items, 1):
        if number > MAX_ITEMS:
            raise InvalidInput(
                f"at most {MAX_ITEMS} memories can be remembered at once: split them"
            )
        content, checked = _check_item(runtime, item, number)
        contents.append(content)
        fields.append(checked)
    texts = prepare_texts(
        runtime,
        [(content, _labels_of(each)) for content, each in zip(contents, fields, strict=True)],
    )
    return [Draft(text=text, **each) for text, each in zip(texts, fields, strict=True)]


def _labels_of(fields: Mapping[str, Any]) -> Labels:
    return Labels(fields["subject"], fields["category"], fields["tags"])


def _check_item(runtime: Runtime, item: NewMemory | str, number: int) -> tuple[str, dict[str, Any]]:
    given: dict[str, Any] = {"content": item} if isinstance(item, str) else {}
    if isinstance(item, Mapping):
        given = dict(item)
    if "content" not in given:
        raise InvalidInput(f"item {number}: it must be a text or an object with a content")
    unknown = given.keys() - NewMemory.__annotations__.keys()
    if unknown:
        raise InvalidInput(f"item {number}: unknown field {min(map(repr, unknown))[:60]}")
    defaults = {"kind": "fact", "category": "general"}
    try:
        return check_draft(runtime, **(defaults | given))
    except InvalidInput as error:
        raise InvalidInput(f"item {number}: {error}") from error


def check_draft(
    runtime: Runtime,
    content: str,
    *,
    kind: str,
    category: str,
    subject: str | None = None,
    tags: Iterable[str] = (),
    source: str | None = None,
    origin: Origin | None = None,
    happened_at: Time | None = None,
    expires_at: Time | None = None,
    valid_from: Time | None = None,
    valid_to: Time | None = None,
    pinned: bool = False,
    metadata: Mapping[str, Any] | None = None,
    session: str | None = None,
) -> tuple[str, dict[str, Any]]:
    """Check and redact what a new memory consists of; return its content and its fields."""
    checked = check_kind(kind)
    content = redact_content(runtime, content, checked)
    fields: dict[str, Any] = {
        "kind": checked,
        "category": redact_category(runtime, category),
        "subject": redact_subject(runtime, subject),
        "tags": redact_tags(runtime, tags),
        "source": redact_source(runtime, source),
        "origin": check_origin(origin),
        "happened_at": optional_ms(happened_at, "happened_at"),
        "expires_at": optional_ms(expires_at, "expires_at"),
        "pinned": bool(pinned),
        "metadata": redact_metadata(runtime, metadata),
        "session": session,
        "valid_from": optional_ms(valid_from, "valid_from"),
        "valid_to": optional_ms(valid_to, "valid_to"),
    }
    check_validity(fields["valid_from"], fields["valid_to"])
    return content, fields


def check_validity(valid_from: int | None, valid_to: int | None) -> None:
    """Raise InvalidInput unless something can hold from one time until the other."""
    if valid_from is not None and valid_to is not None and valid_from >= valid_to:
        raise InvalidInput("valid_from must be before valid_to")


def check_key(key: str | None) -> str | None:
    """Return an idempotency key, or raise InvalidInput."""
    return check_optional(key, "key", MAX_KEY_CHARS)


def key_hash(key: str | None) -> str | None:
    """Return the hash of an idempotency key, which the log stores and never has to erase."""
    return None if key is None else hashlib.sha256(key.encode()).hexdigest()[:32]


def request_hash(key: str | None, verb: str, *arguments: object) -> str | None:
    """Return the hash of a request, to tell a repeated request from another with the same key."""
    if key is None:
        return None
    text = json.dumps([verb, *arguments], ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def memory_body(state: Memory, **more: Any) -> dict[str, Any]:
    """Return the body of the log entry for a state of a memory."""
    return {
        "kind": state.kind,
        "content": state.content,
        "category": state.category,
        "subject": state.subject,
        "tags": state.tags,
        "concept_tags": state.concept_tags,
        "session": state.session,
        "source": state.source,
        "trust": state.trust,
        "pinned": state.pinned,
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "happened_at": state.happened_at,
        "forgotten_at": state.forgotten_at,
        "expires_at": state.expires_at,
        # Fields of later versions only where they are set: an earlier Reverie can import the rest.
        **({"metadata": state.metadata} if state.metadata else {}),
        **({} if state.valid_from is None else {"valid_from": state.valid_from}),
        **({} if state.valid_to is None else {"valid_to": state.valid_to}),
        **more,
    }
