"""What a file of a memory asks for, and whether a version says it already."""

from __future__ import annotations

from typing import TypedDict

from reverie.model import TRUSTS, Memory, Trust
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.text.normalize import category_slug, one_line
from reverie.text.tags import clean_tags


class FileLabels(TypedDict):
    """What a file asks for besides its content."""

    category: str
    subject: str | None
    tags: list[str]
    pinned: bool


def parse_labels(document: Document) -> FileLabels:
    """What it does not name has its default."""
    return {
        "category": document.text("category") or "general",
        "subject": document.text("subject") or None,
        "tags": document.items("tags"),
        "pinned": (document.text("pinned") or "").lower() in {"true", "yes", "on", "1"},
    }


def parse_trust(document: Document) -> Trust:
    """A person's, unless the file says less: it may have been moved here from another owner."""
    return next((trust for trust in TRUSTS if trust == document.text("trust")), "person")


def memory_labels(memory: Memory) -> FileLabels:
    return {
        "category": memory.category,
        "subject": memory.subject,
        "tags": list(memory.tags),
        "pinned": memory.pinned,
    }


def matches_version(state: Memory, document: Document, wanted: FileLabels) -> bool:
    """Whether a file says what a version does."""
    return (
        frontmatter.equal_ignoring_crlf(document.content, state.content)
        and category_slug(wanted["category"]) == state.category
        and (one_line(wanted["subject"] or "") or None) == state.subject
        and clean_tags(wanted["tags"]) == state.tags
        and wanted["pinned"] == state.pinned
    )


def same_state(one: Memory, other: Memory) -> bool:
    """Whether two versions say the same."""
    told = ("content", "category", "subject", "tags", "pinned")
    return all(getattr(one, name) == getattr(other, name) for name in told)
