"""What a caller wants remembered, checked and brought into shape before anything is locked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from reverie.config import Settings
from reverie.dates import Time, optional_ms
from reverie.engine.index import Passage, content_passages
from reverie.errors import InvalidInput
from reverie.model import (
    FUSIONS,
    HIT_KINDS,
    KINDS,
    RANKINGS,
    HitKind,
    Kind,
    Memory,
    Origin,
    Ranking,
)
from reverie.text.normalize import (
    category_slug,
    one_line,
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


@dataclass(frozen=True, slots=True)
class PreparedText:
    """A content with all that the index needs of it. vectors is None when a job will make them."""

    content: str
    passages: list[Passage]
    concept_tags: tuple[str, ...]
    vectors: Matrix | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A memory that has no id yet."""

    text: PreparedText
    kind: Kind
    category: str
    subject: str | None
    tags: tuple[str, ...]
    source: str | None
    origin: Origin | None
    happened_at: int | None
    expires_at: int | None
    pinned: bool
    session: str | None = None
    document: str | None = None
    created_at: int | None = None


def prepare_text(runtime: Runtime, content: str) -> PreparedText:
    """Split, analyse and, with a local embedder, embed."""
    return prepare_texts(runtime, [content])[0]


def prepare_texts(runtime: Runtime, contents: Sequence[str]) -> list[PreparedText]:
    """The same for many at once: one call to the embedder."""
    split = [content_passages(content) for content in contents]
    return [
        PreparedText(content, parts, concept_tags(content), rows)
        for content, parts, rows in zip(
            contents, split, _embed_passages(runtime, split), strict=True
        )
    ]


def prepare_split(
    runtime: Runtime, contents: Sequence[str], split: Sequence[list[Passage]]
) -> list[PreparedText]:
    """Texts with their passages and, from a local embedder, their vectors."""
    return [
        PreparedText(content, parts, (), rows)
        for content, parts, rows in zip(
            contents, split, _embed_passages(runtime, split), strict=True
        )
    ]


def _embed_passages(runtime: Runtime, split: Sequence[list[Passage]]) -> list[Matrix | None]:
    """What a local embedder makes of the passages of each text."""
    embedder = runtime.embedder
    # The write itself looks again: what is remembered here only saves a look before it.
    if embedder is not None and embedder.identity not in runtime.verified_embedders:
        with runtime.engine.read() as tx:
            if embeddings.require(tx, embedder) is not None:
                runtime.verified_embedders.add(embedder.identity)
    said = [part.text for parts in split for part in parts]
    if embedder is None or embedder.remote or not said:
        return [None] * len(split)
    rows = embedder.embed(said)
    ends = accumulate(len(parts) for parts in split)
    return [rows[end - len(parts) : end] for end, parts in zip(ends, split, strict=True)]


def redact_content(runtime: Runtime, content: str, kind: str) -> str:
    """A content checked and without secrets; it is measured before it is scanned."""
    if isinstance(content, str):
        measure_content(content, kind, runtime.settings)
    kept = runtime.redaction.text(content, "content", MAX_CHARS)
    return check_content(kept, kind, runtime.settings)


def check_content(content: str, kind: str, settings: Settings) -> str:
    measure_content(require_utf8(content, "content"), kind, settings)
    if not one_line(content):
        raise InvalidInput("content must not be empty")
    return content


def measure_content(content: str, kind: str, settings: Settings) -> None:
    if kind == "fact" and len(content) > settings.fact_chars:
        raise InvalidInput(
            f"a fact has at most {settings.fact_chars} characters, this has {len(content)}: "
            "shorten it, or keep it as a note (kind='note', --note)"
        )
    if len(content) > MAX_CHARS:
        raise InvalidInput(f"content has at most {MAX_CHARS} characters: split it")


def check_kind(kind: str) -> Kind:
    if kind not in KINDS:
        raise InvalidInput(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    return kind


def check_limit(value: int, most: int, what: str = "limit") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{what} must be a whole number from 1, not {value!r}")
    return min(value, most)


def check_ranking(ranking: Ranking | str) -> Ranking:
    """A ranking, or the one of a name, that can be computed with."""
    if isinstance(ranking, str):
        if ranking not in RANKINGS:
            raise InvalidInput(f"ranking must be one of {', '.join(RANKINGS)}, not {ranking!r}")
        return RANKINGS[ranking]
    if not isinstance(ranking, Ranking):
        raise InvalidInput(f"ranking must be a Ranking or its name, not {ranking!r}")
    if ranking.fusion not in FUSIONS:
        raise InvalidInput(f"fusion must be one of {', '.join(FUSIONS)}, not {ranking.fusion!r}")
    for name in ("rerank", "spread", "collapse"):
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


_RANKING_RANGES = (
    *((name, 0, 1e6) for name in ("vector_weight", "keyword_weight", "neighbours")),
    *((name, 0, 1e6) for name in ("speaker", "period")),
    *((name, 0, 1) for name in ("session", "origin", "equal", "recency_weight", "mmr_lambda")),
    *((name, 0, 1_000) for name in ("candidates", "multiplier")),
    ("half_life_days", 1e-6, 1e9),
    ("score_threshold", -1e6, 1e6),
)


def check_hit_kind(kind: str) -> HitKind:
    if kind not in HIT_KINDS:
        raise InvalidInput(f"kinds must be of {', '.join(HIT_KINDS)}, not {kind!r}")
    return kind


def check_category(category: str) -> str:
    if isinstance(category, str) and len(category) > MAX_CATEGORY_CHARS:
        raise InvalidInput(
            f"category has {len(category)} characters, at most {MAX_CATEGORY_CHARS} are allowed"
        )
    return category_slug(require_utf8(category, "category"))


def redact_category(runtime: Runtime, category: str) -> str:
    return check_category(runtime.redaction.text(category, "category", MAX_CATEGORY_CHARS))


def redact_subject(runtime: Runtime, subject: str | None) -> str | None:
    return check_subject(runtime.redaction.text(subject, "subject", MAX_SUBJECT_CHARS))


def redact_source(runtime: Runtime, source: str | None) -> str | None:
    kept = runtime.redaction.text(source, "source", MAX_SOURCE_CHARS)
    return check_optional(kept, "source", MAX_SOURCE_CHARS)


def check_subject(subject: str | None) -> str | None:
    if subject is None or not one_line(require_utf8(subject, "subject")):
        return None
    return require_name(subject, "subject", MAX_SUBJECT_CHARS)


def subject_filter_key(subject: str) -> str:
    """What the subjects of memories are compared with in a list."""
    if len(require_utf8(subject, "subject")) > MAX_SUBJECT_CHARS:
        raise InvalidInput(
            f"subject has {len(subject)} characters, at most {MAX_SUBJECT_CHARS} are allowed"
        )
    return subject_key(subject) or ""


def check_optional(value: str | None, what: str, limit: int) -> str | None:
    return None if value is None else require_name(value, what, limit)


def redact_tags(runtime: Runtime, tags: Iterable[str]) -> tuple[str, ...]:
    """Looked at before they are cleaned: in small letters a key is no longer known as one."""
    redact = runtime.redaction.text
    return clean_tags(
        [redact(tag, "a tag", MAX_GIVEN_TAG_CHARS) for tag in require_tag_limits(tags)]
    )


def check_reason(runtime: Runtime, reason: str | None) -> str | None:
    kept = runtime.redaction.text(reason, "reason", MAX_REASON_CHARS)
    return check_optional(kept, "reason", MAX_REASON_CHARS)


def check_origin(origin: Origin | Sequence[Any] | None) -> Origin | None:
    if origin is None:
        return None
    if (
        not isinstance(origin, Sequence)
        or isinstance(origin, str)
        or len(origin) != 2
        or type(origin[1]) is not int  # a bool is stored as a number, and sealed as none
        or not 0 <= origin[1] < 1 << 62
    ):
        raise InvalidInput("origin must be the session and the sequence of an event")
    return Origin(require_name(origin[0], "the session of origin", 200), origin[1])


def build_draft(
    runtime: Runtime,
    content: str,
    *,
    kind: str,
    category: str,
    subject: str | None,
    tags: Iterable[str],
    source: str | None,
    origin: Origin | None,
    happened_at: Time | None,
    expires_at: Time | None,
    pinned: bool,
    session: str | None = None,
) -> Draft:
    checked = check_kind(kind)
    content = redact_content(runtime, content, checked)
    fields = {
        "kind": checked,
        "category": redact_category(runtime, category),
        "subject": redact_subject(runtime, subject),
        "tags": redact_tags(runtime, tags),
        "source": redact_source(runtime, source),
        "origin": check_origin(origin),
        "happened_at": optional_ms(happened_at, "happened_at"),
        "expires_at": optional_ms(expires_at, "expires_at"),
        "pinned": bool(pinned),
        "session": session,
    }
    return Draft(text=prepare_text(runtime, content), **cast(dict[str, Any], fields))


def check_key(key: str | None) -> str | None:
    return check_optional(key, "key", MAX_KEY_CHARS)


def key_hash(key: str | None) -> str | None:
    """What the log keeps of a key: keys are only compared, and a hash need not be erased."""
    return None if key is None else hashlib.sha256(key.encode()).hexdigest()[:32]


def request_hash(key: str | None, verb: str, *arguments: object) -> str | None:
    """What a key stands for: the same verb with the same arguments."""
    if key is None:
        return None
    text = json.dumps([verb, *arguments], ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def memory_body(state: Memory, **more: Any) -> dict[str, Any]:
    """The whole state as the log keeps it."""
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
        **more,
    }
