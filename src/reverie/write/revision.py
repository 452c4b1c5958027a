"""What a revision changes of a memory, checked and brought into shape before anything is locked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from reverie.errors import InvalidInput, NotFound
from reverie.model import Memory, Trust
from reverie.protocols import Clock
from reverie.write import validate, writer
from reverie.write.runtime import Runtime
from reverie.write.validate import PreparedText

StateChange = Callable[[Memory, int], Memory | None]
"""What a memory becomes at a time; None when nothing is to change."""


class Revision(NamedTuple):
    """The fields that change, and a new content with all that the index needs of it."""

    changes: dict[str, Any]
    text: PreparedText | None

    def alter(self, trust: Trust, expected_version: int | None) -> StateChange:
        """What becomes of the memory when somebody of this trust revises it."""

        def altered(old: Memory, at: int) -> Memory:
            if old.forgotten_at is not None:
                raise NotFound(f"memory {old.id} is forgotten: restore it first")
            writer.check_version(old, expected_version)
            # Who only labels a content answers for it no more than who wrote it.
            kept = trust if self.text is not None else writer.less_trusted(old.trust, trust)
            more: dict[str, Any] = (
                {} if self.text is None else {"concept_tags": self.text.concept_tags}
            )
            return replace(old, **self.changes, **more, trust=kept, updated_at=at)

        return altered


def prepare_revision(
    runtime: Runtime, content: str | None, given: Mapping[str, Any], kind: Callable[[], str]
) -> Revision:
    """``given`` is what the caller named, ``...`` where nothing was; ``kind`` is the memory's."""
    changes = dict[str, Any]()
    if given["category"] is not ...:
        changes["category"] = validate.redact_category(runtime, given["category"])
    if given["subject"] is not ...:
        changes["subject"] = validate.redact_subject(runtime, given["subject"])
    if given["tags"] is not ...:
        changes["tags"] = validate.redact_tags(runtime, given["tags"])
    if given["pinned"] is not ...:
        changes["pinned"] = bool(given["pinned"])
    if content is None and not changes:
        raise InvalidInput("nothing to revise: give a content, category, subject, tags or pinned")
    if content is None:
        return Revision(changes, None)
    content = validate.redact_content(runtime, content, kind())
    return Revision(changes | {"content": content}, validate.prepare_text(runtime, content))


def forget_change(expected_version: int | None) -> StateChange:
    """What becomes of a memory that is forgotten; nothing when it is already."""

    def altered(old: Memory, at: int) -> Memory | None:
        if old.forgotten_at is not None:
            return None
        writer.check_version(old, expected_version)
        return replace(old, forgotten_at=at)

    return altered


def restore_change(clock: Clock) -> StateChange:
    """What becomes of a forgotten memory that comes back; nothing when it never went."""

    def altered(old: Memory, at: int) -> Memory | None:
        if old.forgotten_at is None:
            return None
        # What is over would vanish again at once.
        expires_at = None if old.expired(clock.now()) else old.expires_at
        return replace(old, forgotten_at=None, expires_at=expires_at)

    return altered
