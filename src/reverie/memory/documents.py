"""Text documents, kept as notes with their source and a hash of their content."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from reverie.engine import index, log
from reverie.errors import InvalidInput
from reverie.memory import drafts, writes
from reverie.memory.resources import Resources
from reverie.memory.writes import Author, Stamp
from reverie.model import Memory
from reverie.protocols import Owner, Transaction
from reverie.text.normalise import plain_name

MOST_BYTES = 64_000_000


def remember(resources: Resources, author: Author, path: Path, category: str) -> Memory:
    """The note of a document: a new version when the content changed, else as it is."""
    content, hash_ = _read(path)
    source = plain_name(str(path.resolve()), "the path", drafts.MOST_SOURCE_CHARS)
    kept = _kept(resources, author, source)
    if kept is not None and kept[1] == hash_:
        return kept[0]
    drafts.check_content(content, "note", resources.settings)
    text = drafts.prepare_text(resources, content)
    # A document is not its reader's word: nothing in it may reach the profile.
    author = author._replace(trust="document")
    if kept is not None:
        return writes.change(
            resources,
            author,
            kept[0].id,
            "revise",
            Stamp(reason="the document changed"),
            lambda old, at: replace(
                old,
                content=content,
                concept_tags=text.concept_tags,
                trust=author.trust,
                updated_at=at,
                forgotten_at=None,
            ),
            text,
            hash_,
        )
    draft = drafts.Draft(
        text=text,
        kind="note",
        category=drafts.check_category(category),
        subject=None,
        tags=(),
        source=source,
        origin=None,
        happened_at=None,
        expires_at=None,
        pinned=False,
        document=hash_,
    )
    return writes.remember(resources, author, draft, Stamp(), force=True)


def _read(path: Path) -> tuple[str, str]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"{path} is larger than {MOST_BYTES // 1_000_000} MB: split it")
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text: convert it first") from error
    if "\0" in content:
        raise InvalidInput(f"{path} is not a text document: it holds NUL characters")
    return content, hashlib.sha256(data).hexdigest()


def _kept(resources: Resources, author: Author, source: str) -> tuple[Memory, str] | None:
    with resources.engine.read() as tx:
        space = log.find_space(tx, author.scope.space)
        owner = None if space is None else log.find_owner(tx, space, author.scope.user)
        if owner is None:
            return None
        row = _row(tx, owner, source)
        if row is None:
            return None
        entry = log.at_position(tx, owner, index.current_position(tx, owner, row[0]) or 0)
        if entry is None:
            return None
        memory = entry.state(author.scope.user)
        # What was forgotten is read again when asked for again.
        return memory, "" if memory.forgotten_at is not None else row[1]


def _row(tx: Transaction, owner: Owner, source: str) -> tuple[int, str] | None:
    row = tx.one(
        "SELECT born, hash FROM documents WHERE space = ? AND owner = ? AND source = ?",
        (*owner, source),
    )
    return None if row is None else (row[0], row[1])
