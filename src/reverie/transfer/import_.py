"""Import: records become entries of the log, and importing the same file again changes nothing.

A record of ours is one entry of the log. Any other record needs only a ``content``; its identity is
derived from what it says.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, NamedTuple

from reverie.clock import ID_LENGTH
from reverie.dates import to_ms
from reverie.engine import index, log, sessions
from reverie.engine.log import Entry
from reverie.errors import InvalidInput, ReverieError
from reverie.model import KINDS, ImportReport, Origin
from reverie.protocols import Owner, Transaction
from reverie.text.tags import clean_tags, concept_tags, counted_tags
from reverie.transfer.export import Record, Unreadable
from reverie.write import proposals, session_projection, validate, writer
from reverie.write.events import measure_message
from reverie.write.runtime import Resources
from reverie.write.validate import Draft
from reverie.write.writer import Author, New, Stamp

# How many records are written in one transaction.
BATCH = 1_000
_SAID = ("content", "category", "subject", "tags", "source")


_MAX_CHARS = {
    "content": validate.MOST_CHARS,
    "category": validate.MAX_CATEGORY_CHARS,
    "subject": validate.MOST_SUBJECT_CHARS,
    "source": validate.MOST_SOURCE_CHARS,
    "reason": validate.MOST_REASON_CHARS,
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
        texts = validate.prepare_texts(resources, [item.content for item in plain])
        ready = zip(plain, texts, strict=True)
        with writer.writing(resources, author.scope) as (tx, owner):
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
        with writer.writing(resources, author.scope) as (tx, owner):
            for kind in KINDS:
                writer.evict(tx, resources, owner, kind)
    return ImportReport(added, unchanged, tuple(skipped))


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
            from reverie.transfer import record_schema

            return _Ours(number, record_schema.entry_of(record))
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
    kind = validate.check_kind(record.get("kind") or ("note" if longer else "fact"))
    validate.check_content(content, kind, resources.settings)
    created = record.get("created_at")
    fields = {
        "kind": kind,
        "category": validate.check_category(record.get("category") or "general"),
        "subject": validate.check_subject(record.get("subject")),
        "tags": clean_tags(record.get("tags") or ()),
        "source": validate.check_optional(
            record.get("source"), "source", validate.MOST_SOURCE_CHARS
        ),
        "created_at": None if created is None else to_ms(created, "created_at"),
        "pinned": bool(record.get("pinned", False)),
    }
    return _Plain(number, content, fields, _derived_uuid(content, fields))


def _add_plain(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    items: Iterable[tuple[_Plain, validate.Text]],
) -> int:
    """How many of these were not here yet, nor among those before them."""
    named: dict[str, tuple[_Plain, validate.Text]] = {}
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
    writer.add_memories(tx, resources, owner, author._replace(trust="import"), news)
    return len(news)


def _as_told(author: Author, entry: Entry) -> Entry:
    """An entry as this author can vouch for it: nobody brings in more trust than they have."""
    if author.trust == "person":
        return entry
    body = entry.body
    if body is not None and "trust" in body:
        body = {**body, "trust": writer.less_trusted(author.trust, body["trust"])}
    trust = writer.less_trusted(author.trust, entry.trust)
    return replace(entry, actor=author.actor, trust=trust, body=body)


def add_entry(
    tx: Transaction, resources: Resources, owner: Owner, entry: Entry, names: dict[str, str]
) -> bool:
    """One entry of an export: the next version of its memory here, or nothing."""
    if entry.session is not None:
        return add_session_entry(tx, resources, owner, entry, names)
    entry = without_other_sessions(entry, names)
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
    entry = append(tx, resources, owner, replace(entry, memory=memory, body=body))
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
    text = writer.text_of(tx, resources, state)
    born = here[0].position if here else entry.position
    first = index.add(tx, owner, born, entry.position, state, text.passages)
    if state.forgotten_at is None:
        writer.put_vectors(tx, resources, owner, first, text)
    known = here[-1].body.get("expires_at") if here and here[-1].body else None
    if state.expires_at is not None and state.expires_at != known:
        writer.await_expiry(tx, resources, owner, state)
    if (document := entry.body.get("document")) is not None and state.source is not None:
        writer.keep_document(tx, owner, state.source, born, document)


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


# -- entries about sessions -----------------------------------------------------------------------


def add_session_entry(
    tx: Transaction, resources: Resources, owner: Owner, entry: Entry, names: dict[str, str]
) -> bool:
    """One entry of an export: what follows here, or nothing when it is here already.

    ``names`` says what things of the export are called here; a session keeps its name or stays out.
    """
    assert entry.session is not None
    same = log.in_session(tx, owner, entry.session, entry.sequence, entry.uuid)
    name = f"session {entry.session}"
    if entry.op == "append" and name not in names:
        begun = sessions.find(tx, owner, entry.session) is not None
        names[name] = "same" if same or not begun else "other"
    if same:
        return False
    if names.get(name) == "other":
        raise InvalidInput(f"session {entry.session} is another conversation here")
    entry = _with_parent(tx, owner, entry, names)
    _require_place(tx, owner, entry)
    entry = append(tx, resources, owner, _with_memory_here(tx, owner, entry, names))
    session_projection.show(tx, resources, owner, entry)
    return True


def append(tx: Transaction, resources: Resources, owner: Owner, entry: Entry) -> Entry:
    """The entry as it stands in the log here: where it says that it stood, else behind all.

    A key that is known here stays with whom it was.
    """
    if entry.key is not None and log.by_key(tx, owner, entry.key) is not None:
        entry = replace(entry, key=None, request=None)
    now = min(entry.recorded_at, resources.clock.now())
    if entry.position:
        position, recorded_at = log.advance_to(tx, owner, entry.position, now)
    else:
        position, recorded_at = log.advance(tx, owner.space, now)
    entry = replace(entry, position=position, recorded_at=recorded_at)
    writer.append(tx, resources, owner, entry)
    return entry


def _with_parent(tx: Transaction, owner: Owner, entry: Entry, names: dict[str, str]) -> Entry:
    """A fork goes on from a session of the export, never from another one of that name here."""
    if entry.origin is None:
        return entry
    if entry.op != "append" or entry.origin.session == entry.session:
        raise InvalidInput("only the first event of a fork has an origin, in another session")
    same = names.get(f"session {entry.origin.session}") == "same"
    if same or sessions.find(tx, owner, entry.origin.session) is None:
        return entry
    return replace(entry, origin=None)


def without_other_sessions(entry: Entry, names: dict[str, str]) -> Entry:
    """A memory does not come from a session that is another one here, nor belong to it."""
    if entry.body and names.get(f"session {entry.body.get('session')}") == "other":
        raise InvalidInput(f"session {entry.body['session']} is another conversation here")
    if entry.origin and names.get(f"session {entry.origin.session}") == "other":
        return replace(entry, origin=None)
    return entry


def _require_place(tx: Transaction, owner: Owner, entry: Entry) -> None:
    known = sessions.find(tx, owner, entry.session or "")
    if entry.op == "append":
        last = 0 if known is None else known.last_sequence
        if (entry.sequence or 0) <= last:
            erased = known is not None and known.ended
            raise InvalidInput(
                f"session {entry.session} was erased here and stays so"
                if erased
                else f"session {entry.session} has gone past sequence {entry.sequence} here"
            )
        if known is not None and known.hidden_at is not None and entry.body is not None:
            raise InvalidInput(f"session {entry.session} is hidden here: restore it first")
    elif known is None:
        raise InvalidInput(f"there is no session {entry.session} here")
    living = bool(known and known.events)
    if entry.op == "erase" and entry.sequence is not None and entry.session is not None:
        here = Origin(entry.session, entry.sequence)
        living = sessions.entry_of(tx, owner, here) is not None
    if entry.op == "erase" and living:
        what = "it" if entry.sequence is None else f"event {entry.sequence}"
        raise InvalidInput(
            f"{what} of session {entry.session} was erased where it comes from: erase it here too"
        )
    if entry.op in {"propose", "accept", "reject"}:
        _require_proposal(tx, owner, entry)


def _with_memory_here(tx: Transaction, owner: Owner, entry: Entry, names: dict[str, str]) -> Entry:
    """What was accepted names its memory as it is called here, if it came along."""
    memory = (entry.body or {}).get("memory")
    if entry.op != "accept" or entry.body is None or memory is None:
        return entry
    memory = names.get(memory, memory)
    first = log.versions(tx, owner, memory)[:1]
    if first and first[0].origin == (entry.session, entry.sequence):
        return replace(entry, body={**entry.body, "memory": memory})
    return replace(entry, body={k: v for k, v in entry.body.items() if k != "memory"})


def _require_proposal(tx: Transaction, owner: Owner, entry: Entry) -> None:
    name = (entry.body or {}).get("proposal")
    if entry.op == "propose" and name is not None and proposals.exists(tx, owner, name):
        raise InvalidInput(f"proposal {name} is another one here")
