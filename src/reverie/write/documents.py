"""Text documents, stored as notes with their path as source and a hash of their content."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reverie.engine import index, index_check, log
from reverie.engine.index_text import Labels
from reverie.errors import InvalidInput
from reverie.model import Memory
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import require_name
from reverie.write import validate
from reverie.write.runtime import Runtime
from reverie.write.writer import Author, WriteStamp, open_writer

MAX_PATH_CHARS = 10_000
MAX_BYTES = 64_000_000


def remember(runtime: Runtime, author: Author, path: Path, category: str) -> Memory:
    """Store a document as a note, as a new version of it when the content has changed."""
    content, hash_ = _read(path)
    named = runtime.redaction.text(str(path.resolve()), "the path", MAX_PATH_CHARS)
    source = require_name(named, "the path", validate.MAX_SOURCE_CHARS)
    category = validate.check_category(category)
    with runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, author.scope)
        kept = None if owner is None else _find_document(tx, owner, author, source)
    if kept is not None and kept.hash == hash_:
        return kept.memory
    content = validate.redact_content(runtime, content, "note")
    labels = Labels(category=category) if kept is None else Labels.of(kept.memory)
    text = validate.prepare_text(runtime, content, labels)
    # The author did not write the document: nothing in it may reach the profile as their word.
    author = author._replace(trust="document")
    with open_writer(runtime, author) as w:
        # Another process may have stored the document since the check before the transaction.
        kept = _find_document(w.tx, w.owner, author, source)
        if kept is None:
            draft = validate.Draft(text, "note", category, source=source, document=hash_)
            return w.add_memory(draft, WriteStamp())
        if kept.hash == hash_:
            return kept.memory
        return w.change_memory(
            kept.place,
            "revise",
            WriteStamp(reason="the document changed"),
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


def _read(path: Path) -> tuple[str, str]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"{path} is larger than {MAX_BYTES // 1_000_000} MB: split it")
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


class StoredDocument(NamedTuple):
    """The note of a document, and the hash of the content it was made from."""

    place: index.MemoryRow
    memory: Memory
    hash: str


def _find_document(
    tx: Transaction, owner: Owner, author: Author, source: str
) -> StoredDocument | None:
    row = tx.one(
        "SELECT born, hash FROM documents WHERE space = ? AND owner = ? AND source = ?",
        (*owner, source),
    )
    place = None if row is None else index.find_by_first_position(tx, owner, row[0])
    if row is None or place is None:
        return None
    memory = index_check.read_current(tx, owner, place).state(author.scope.user)
    # No content has the empty hash: a forgotten note is stored again when asked for.
    return StoredDocument(place, memory, "" if memory.forgotten_at is not None else row[1])
