"""Memories as plain records: out with their whole history, in again without doing anything twice.

A record of ours is one entry of the log. Any other record needs only a ``content``; its identity is
made from what it says, so that importing the same file again changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, NamedTuple

from reverie.clock import ID_LENGTH
from reverie.engine import index, log, sessions
from reverie.engine.log import Entry
from reverie.errors import InvalidInput, ReverieError
from reverie.memory import drafts, taking, writes
from reverie.memory.drafts import Draft
from reverie.memory.events import measure_message
from reverie.memory.resources import Resources
from reverie.memory.times import to_ms
from reverie.memory.writes import Author, New, Stamp
from reverie.model import KINDS, ImportReport
from reverie.protocols import Owner, Transaction
from reverie.text.tags import clean_tags, concept_tags, counted_tags

FORMAT = 1
_SAID = ("content", "category", "subject", "tags", "source")
_MAX_CHARS = {
    "content": drafts.MOST_CHARS,
    "category": drafts.MAX_CATEGORY_CHARS,
    "subject": drafts.MOST_SUBJECT_CHARS,
    "source": drafts.MOST_SOURCE_CHARS,
    "reason": drafts.MOST_REASON_CHARS,
}
BATCH = 1_000


class Unreadable(NamedTuple):
    """A part of a file that is no record, and why."""

    place: str
    why: str


Record = Mapping[str, Any]


def export(
    resources: Resources,
    author: Author,
    session: str | None = None,
    *,
    skip_damaged: bool = False,
) -> Iterator[dict[str, Any]]:
    """Every entry of this owner, or of one session of it. Nothing is held open between two."""
    with resources.engine.read() as tx:
        owner = log.find(tx, author.scope)
        end = 0 if owner is None else log.last_position(tx, owner)
    after = 0
    while owner is not None:
        with resources.engine.read() as tx:
            tx.enter(owner)
            last = log.page_end(tx, owner, after, end)
            if last is None:
                return
            entries = log.entries(tx, owner, after, last, BATCH, skip=skip_damaged)
        for entry in entries:
            if session is not None and entry.session != session:
                continue
            yield record_of(entry)
        after = last


def record_of(entry: Entry) -> dict[str, Any]:
    """An entry as it is exported. An erasure names positions, which mean nothing elsewhere."""
    about: dict[str, Any] = {"memory": entry.memory, "version": entry.version}
    if entry.session is not None:
        about = {"session": entry.session, "sequence": entry.sequence}
    return {
        "reverie": FORMAT,
        "op": entry.op,
        **about,
        "uuid": entry.uuid,
        "recorded_at": entry.recorded_at,
        "actor": entry.actor,
        "trust": entry.trust,
        "reason": entry.reason,
        "origin": entry.origin,
        "key": entry.key,
        "request": entry.request,
        "body": None if entry.op == "erase" else entry.body,
    }


def import_records(
    resources: Resources, author: Author, records: Iterable[Record | Unreadable]
) -> ImportReport:
    added, unchanged, skipped = 0, 0, []
    numbered = enumerate(records, 1)
    names: dict[str, str] = {}
    while batch := list(islice(numbered, BATCH)):
        prepared = [_prepare(resources, number, record) for number, record in batch]
        plain = [item for item in prepared if isinstance(item, _Plain)]
        texts = drafts.prepare_texts(resources, [item.content for item in plain])
        ready = zip(plain, texts, strict=True)
        with writes.writing(resources, author.scope) as (tx, owner):
            for form, run in groupby(prepared, type):
                items = list(run)
                if form is _Plain:
                    new = _add_plain(tx, resources, owner, author, islice(ready, len(items)))
                    added, unchanged = added + new, unchanged + len(items) - new
                for item in items:
                    if isinstance(item, str):
                        skipped.append(item)
                    elif isinstance(item, _Ours):
                        try:
                            told = _as_told(author, item.entry)
                            new = add_entry(tx, resources, owner, told, names)
                        except InvalidInput as error:
                            skipped.append(f"record {item.number}: {error}")
                            continue
                        added, unchanged = added + new, unchanged + (not new)
            if added:
                sessions.rechain_late(tx, owner)
    if added:
        # Only now: what a cap forgets gets a version, and would stand in the way of others.
        with writes.writing(resources, author.scope) as (tx, owner):
            for kind in KINDS:
                writes.evict(tx, resources, owner, kind)
    return ImportReport(added, unchanged, tuple(skipped))


# -- reading records ------------------------------------------------------------------------------


class _Plain(NamedTuple):
    number: int
    content: str
    fields: dict[str, Any]
    uuid: str


class _Ours(NamedTuple):
    number: int
    entry: Entry


def _prepare(
    resources: Resources, number: int, record: Record | Unreadable
) -> _Plain | _Ours | str:
    """A record checked, or one line that says why it is left out."""
    if isinstance(record, Unreadable):
        return f"{record.place}: {record.why}"
    try:
        if not isinstance(record, Mapping):
            raise InvalidInput("a record must be an object with a content")
        _measure(record)
        record = redacted(resources, record)
        if "reverie" in record:
            from reverie.memory import records

            return _Ours(number, records.entry_of(record))
        return _plain(resources, number, record)
    except (ReverieError, KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        return f"record {number}: {why}"


def _measure(record: Record) -> None:
    """Refuse what would be refused in the end before it is scanned for secrets."""
    body = record.get("body")
    for held in (record, body if isinstance(body, Mapping) else {}):
        for name, most in _MAX_CHARS.items():
            if isinstance(held.get(name), str) and len(held[name]) > most:
                raise InvalidInput(f"{name} has {len(held[name])} characters, at most {most}")
        for name in ("tags", "concept_tags"):
            if isinstance(held.get(name), list | tuple):
                counted_tags(held[name])
        if isinstance(held.get("message"), Mapping):
            measure_message(held["message"])


def redacted(resources: Resources, record: Record) -> Record:
    """The record without secrets in what it says; keys and hashes of ours only look like some."""
    said = {name: record[name] for name in (*_SAID, "body", "reason") if name in record}
    kept = resources.redaction.each(said, "the record")
    if kept is said:
        return record
    body = kept.get("body")
    if isinstance(body, dict) and isinstance(body.get("content"), str) and "tags" in body:
        # In small letters, and only as long as the content held it.
        body["tags"] = list(clean_tags(body["tags"]))
        body["concept_tags"] = list(concept_tags(body["content"]))
    return {**record, **kept}


def _plain(resources: Resources, number: int, record: Record) -> _Plain:
    content = record["content"]
    longer = isinstance(content, str) and len(content) > resources.settings.fact_chars
    kind = drafts.check_kind(record.get("kind") or ("note" if longer else "fact"))
    drafts.check_content(content, kind, resources.settings)
    created = record.get("created_at")
    fields = {
        "kind": kind,
        "category": drafts.check_category(record.get("category") or "general"),
        "subject": drafts.check_subject(record.get("subject")),
        "tags": clean_tags(record.get("tags") or ()),
        "source": drafts.check_optional(record.get("source"), "source", drafts.MOST_SOURCE_CHARS),
        "created_at": None if created is None else to_ms(created, "created_at"),
        "pinned": bool(record.get("pinned", False)),
    }
    return _Plain(number, content, fields, _derived_uuid(content, fields))


# -- writing records ------------------------------------------------------------------------------


def _add_plain(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    items: Iterable[tuple[_Plain, drafts.Text]],
) -> int:
    """How many of these were not here yet, nor among those before them."""
    named: dict[str, tuple[_Plain, drafts.Text]] = {}
    for item, text in items:
        named.setdefault(derived_id(f"{item.uuid}:{owner.number}"), (item, text))
    taken = log.ids_taken(tx, owner, list(named))
    news = [
        New(
            memory,
            Draft(text=text, origin=None, happened_at=None, expires_at=None, **item.fields),
            Stamp(recorded_at=item.fields["created_at"], uuid=item.uuid),
        )
        for memory, (item, text) in named.items()
        if memory not in taken
    ]
    writes.add_memories(tx, resources, owner, author._replace(trust="import"), news)
    return len(news)


def _as_told(author: Author, entry: Entry) -> Entry:
    """An entry as this author can vouch for it: nobody brings in more trust than they have."""
    if author.trust == "person":
        return entry
    body = entry.body
    if body is not None and "trust" in body:
        body = {**body, "trust": writes.less_trusted(author.trust, body["trust"])}
    trust = writes.less_trusted(author.trust, entry.trust)
    return replace(entry, actor=author.actor, trust=trust, body=body)


def add_entry(
    tx: Transaction, resources: Resources, owner: Owner, entry: Entry, names: dict[str, str]
) -> bool:
    """One entry of an export: the next version of its memory here, or nothing."""
    if entry.session is not None:
        return taking.add_session_entry(tx, resources, owner, entry, names)
    entry = taking.without_other_sessions(entry, names)
    memory = names.get(entry.memory)
    if memory is None:
        memory = _name_here(tx, owner, entry)
        names[entry.memory] = memory
    here = log.versions(tx, owner, memory)
    if any(known.uuid == entry.uuid for known in here):
        return False
    if here and here[-1].op == "erase":
        raise InvalidInput(f"memory {memory} was erased here and stays so")
    if entry.version != len(here) + 1:
        raise InvalidInput(f"version {entry.version} of {memory} does not follow what is here")
    ends = entry.body is None or entry.op == "erase"
    if ends and any(known.body is not None for known in here):
        raise InvalidInput(f"{memory} was erased where it comes from: erase it here too")
    place = index.find(tx, owner, memory)
    body = entry.body if entry.op != "erase" else {}
    entry = taking.append(tx, resources, owner, replace(entry, memory=memory, body=body))
    _index_entry(tx, resources, owner, place, here, entry)
    return True


def _index_entry(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    place: index.Place | None,
    here: list[Entry],
    entry: Entry,
) -> None:
    """Let the index show the entry just written."""
    if place is not None:
        index.remove(tx, owner, place, here[-1].state(None))
    if entry.op == "erase" or entry.body is None:
        return
    state = entry.state(None)
    text = writes.text_of(tx, resources, state)
    born = here[0].position if here else entry.position
    first = index.add(tx, owner, born, entry.position, state, text.passages)
    if state.forgotten_at is None:
        writes.put_vectors(tx, resources, owner, first, text)
    known = here[-1].body.get("expires_at") if here and here[-1].body else None
    if state.expires_at is not None and state.expires_at != known:
        writes.await_expiry(tx, resources, owner, state)
    if (document := entry.body.get("document")) is not None and state.source is not None:
        writes.keep_document(tx, owner, state.source, born, document)


def _name_here(tx: Transaction, owner: Owner, entry: Entry) -> str:
    """Its own id where that is free or already means this memory, else one made from its uuid."""
    if not log.id_taken(tx, owner, entry.memory):
        return entry.memory
    here = log.versions(tx, owner, entry.memory)
    if here and here[0].uuid == entry.uuid:
        return entry.memory
    return derived_id(f"{entry.uuid}:{owner.number}")


def _derived_uuid(content: str, fields: Mapping[str, Any]) -> str:
    said = log.encode([content, fields["category"], fields["subject"], fields["created_at"]])
    digest = hashlib.sha256(said.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def derived_id(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    letters = base64.b64encode(digest, altchars=b"zZ").decode()
    return letters[:ID_LENGTH]
