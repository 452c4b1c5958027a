"""Text documents, kept as notes with their source and a hash of their content."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reverie.engine import index, log
from reverie.errors import InvalidInput
from reverie.model import Memory
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import plain_name
from reverie.write import validate, writer
from reverie.write.runtime import Resources
from reverie.write.writer import Author, Stamp

MAX_PATH_CHARS = 10_000
MOST_BYTES = 64_000_000


def remember(resources: Resources, author: Author, path: Path, category: str) -> Memory:
    """The note of a document: a new version when the content changed, else as it is."""
    content, hash_ = _read(path)
    named = resources.redaction.text(str(path.resolve()), "the path", MAX_PATH_CHARS)
    source = plain_name(named, "the path", validate.MOST_SOURCE_CHARS)
    category = validate.check_category(category)
    with resources.engine.read() as tx:
        owner = log.find(tx, author.scope)
        kept = None if owner is None else _kept(tx, owner, author, source)
    if kept is not None and kept.hash == hash_:
        return kept.memory
    content = validate.scanned_content(resources, content, "note")
    text = validate.prepare_text(resources, content)
    # A document is not its reader's word: nothing in it may reach the profile.
    author = author._replace(trust="document")
    with writer.writing(resources, author.scope) as (tx, owner):
        # Again, now that nobody else can write: two readers of one file make one note.
        kept = _kept(tx, owner, author, source)
        if kept is None:
            draft = _draft(text, category, source, hash_)
            return writer.add_memory(tx, resources, owner, author, draft, Stamp())
        if kept.hash == hash_:
            return kept.memory
        return writer.change_in(
            tx,
            resources,
            owner,
            author,
            kept.place,
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


def _draft(text: validate.Text, category: str, source: str, hash_: str) -> validate.Draft:
    return validate.Draft(
        text=text,
        kind="note",
        category=category,
        subject=None,
        tags=(),
        source=source,
        origin=None,
        happened_at=None,
        expires_at=None,
        pinned=False,
        document=hash_,
    )


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


class Kept(NamedTuple):
    """The note a document has, and the hash of what it was made from."""

    place: index.Place
    memory: Memory
    hash: str


def _kept(tx: Transaction, owner: Owner, author: Author, source: str) -> Kept | None:
    row = tx.one(
        "SELECT born, hash FROM documents WHERE space = ? AND owner = ? AND source = ?",
        (*owner, source),
    )
    place = None if row is None else index.at_birth(tx, owner, row[0])
    if row is None or place is None:
        return None
    memory = writer.current_entry(tx, owner, place).state(author.scope.user)
    # What was forgotten is read again when asked for again.
    return Kept(place, memory, "" if memory.forgotten_at is not None else row[1])
