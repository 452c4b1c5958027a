"""Tell whether a person changed the Markdown file of a memory: its content or its labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast

from reverie.errors import InvalidInput
from reverie.model import TRUSTS, Memory, Trust
from reverie.text import frontmatter
from reverie.text.frontmatter import METADATA_KEY, Document
from reverie.text.metadata import check_metadata
from reverie.text.normalize import category_slug, one_line
from reverie.text.tags import MAX_TAGS, clean_tags, inline_tags
from reverie.vault import render


class FileLabels(TypedDict):
    """The fields of a memory that a person can edit in its front matter."""

    category: str
    subject: str | None
    tags: list[str]
    pinned: bool
    metadata: Mapping[str, Any]


def parse_labels(document: Document, current: Memory | None = None) -> FileLabels:
    """Read the labels from front matter; those it does not name have their defaults.

    Those that cannot be read stay as they are in ``current``.
    """
    found: FileLabels = {
        "category": document.text("category") or "general",
        "subject": render.parse_subject(document.text("subject") or "") or None,
        "tags": document.items("tags"),
        "pinned": (document.text("pinned") or "").lower() in {"true", "yes", "on", "1"},
        "metadata": _parse_metadata(document, {} if current is None else current.metadata),
    }
    if current is not None:
        known = memory_labels(current)
        unreadable = set(document.unreadable_keys) - {METADATA_KEY}
        unread = {key: known[key] for key in known if key in unreadable}  # type: ignore[literal-required]
        return cast(FileLabels, {**found, **unread})
    return found


def _parse_metadata(document: Document, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the metadata of a file; what is no metadata, but a person's own key, changes nothing."""
    if METADATA_KEY not in document.objects:
        named = METADATA_KEY in document.fields or METADATA_KEY in document.unreadable_keys
        return known if named else {}
    try:
        return check_metadata(document.objects[METADATA_KEY])
    except InvalidInput:
        return known


def parse_trust(document: Document) -> Trust:
    """Read the trust of a file, ``person`` by default.

    A file that was moved here from another owner may name a lower one.
    """
    return next((trust for trust in TRUSTS if trust == document.text("trust")), "person")


def memory_labels(memory: Memory) -> FileLabels:
    """Return the labels that a memory has now."""
    return {
        "category": memory.category,
        "subject": memory.subject,
        "tags": list(memory.tags),
        "pinned": memory.pinned,
        "metadata": memory.metadata,
    }


def matches_version(state: Memory, document: Document, wanted: FileLabels) -> bool:
    """Whether the content and labels of a file are those of a version."""
    return (
        frontmatter.equal_ignoring_crlf(document.content, state.content)
        and category_slug(wanted["category"]) == state.category
        and (one_line(wanted["subject"] or "") or None) == _plain_subject(state)
        and clean_tags(wanted["tags"]) == state.tags
        and wanted["pinned"] == state.pinned
        and wanted["metadata"] == state.metadata
    )


def add_inline_tags(wanted: FileLabels, content: str, before: str = "") -> FileLabels:
    """Add the ``#tags`` that a person wrote into a content to its labels.

    Tags that were in the text ``before`` are not new, and only as many are added as a memory may
    have.
    """
    old = {*inline_tags(before), *(tag.strip().lower() for tag in wanted["tags"])}
    new = [tag for tag in inline_tags(content) if tag not in old]
    room = max(MAX_TAGS - len(wanted["tags"]), 0)
    return {**wanted, "tags": [*wanted["tags"], *new[:room]]}


def _plain_subject(state: Memory) -> str | None:
    return None if state.subject is None else render.parse_subject(state.subject)


def same_state(one: Memory, other: Memory) -> bool:
    """Whether two versions have the same content and labels."""
    return one.content == other.content and memory_labels(one) == memory_labels(other)
