"""Import records into the log of an owner; importing the same records again changes nothing.

A record that Reverie exported is one log entry. Any other record is a memory and needs only a
``content``; its id is derived from its fields, so that it is recognised the next time.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby, islice, product
from typing import Any, NamedTuple

from reverie.clock import ID_LENGTH
from reverie.dates import optional_ms, to_ms
from reverie.engine import index, log, sessions
from reverie.engine.index_text import Labels
from reverie.engine.log import LogEntry
from reverie.errors import InvalidInput, ReverieError
from reverie.model import KINDS, UNNAMED, ImportReport, Origin
from reverie.protocols import Owner, Transaction
from reverie.text.metadata import check_metadata
from reverie.text.tags import clean_tags, concept_tags, require_tag_limits
from reverie.transfer.export import Record, UnreadableRecord
from reverie.write import owners, proposals, session_projection, validate
from reverie.write.events import measure_message
from reverie.write.memories import less_trusted
from reverie.write.runtime import Runtime
from reverie.write.validate import Draft
from reverie.write.writer import LEARNER, Author, PendingMemory, Writer, WriteStamp, open_writer

# The number of records written in one transaction.
BATCH = 1_000
_TEXT_FIELDS = ("content", "category", "subject", "tags", "source", "metadata")


_MAX_CHARS = {
    "content": validate.MAX_CHARS,
    "category": validate.MAX_CATEGORY_CHARS,
    "subject": validate.MAX_SUBJECT_CHARS,
    "source": validate.MAX_SOURCE_CHARS,
    "reason": validate.MAX_REASON_CHARS,
}


def import_records(
    runtime: Runtime, author: Author, records: Iterable[Record | UnreadableRecord]
) -> ImportReport:
    """Import records in batches; the report names each record that was skipped, and why."""
    added, unchanged, skipped = 0, 0, []
    numbered = enumerate(records, 1)
    names: dict[str, str] = {}
    while batch := list(islice(numbered, BATCH)):
        prepared = [(number, _prepare(runtime, number, record)) for number, record in batch]
        plain = [item for _, item in prepared if isinstance(item, _PlainRecord)]
        texts = validate.prepare_texts(runtime, [(item.content, item.labels) for item in plain])
        ready = zip(plain, texts, strict=True)
        unnamed = {number for number, record in batch if _is_unnamed(record)}
        with open_writer(runtime, author) as w:
            writers = _Writers(w)
            for form, run in groupby(prepared, lambda each: type(each[1])):
                items = list(run)
                if form is _PlainRecord:
                    new = _add_plain(w, islice(ready, len(items)))
                    added, unchanged = added + new, unchanged + len(items) - new
                for number, item in items:
                    if isinstance(item, str):
                        skipped.append(item)
                    elif isinstance(item, LogEntry):
                        try:
                            owned = writers.of(item, names, unnamed=number in unnamed)
                            new = add_entry(owned, _limit_trust(author, item), names)
                        except InvalidInput as error:
                            skipped.append(f"record {number}: {error}")
                            continue
                        added, unchanged = added + new, unchanged + (not new)
            if added:
                for owner in owners.writable_owners(w.tx, author.scope):
                    sessions.rechain_forks(w.tx, owner)
    if added:
        # Only at the end: a memory forgotten by the limits gets a new version, and later records
        # of the same memory would then no longer follow.
        with open_writer(runtime, author) as w:
            for owner, kind in product(owners.writable_owners(w.tx, author.scope), KINDS):
                for actor in index.list_actors(w.tx, owner, kind):
                    replace(w, owner=owner, author=author._replace(actor=actor)).evict(kind)
    return ImportReport(added, unchanged, tuple(skipped))


def _is_unnamed(record: Record | UnreadableRecord) -> bool:
    return isinstance(record, Mapping) and record.get("unnamed") is True


class _Writers:
    """The writer of each entry: an author without a user writes to two owners."""

    def __init__(self, w: Writer) -> None:
        self._w = w
        self._of_sessions: dict[str, Writer] = {}

    def of(self, entry: LogEntry, names: Mapping[str, str], *, unnamed: bool) -> Writer:
        """Return the writer for an entry; ``unnamed`` says whose it was where it was exported.

        A session is unnamed in any case, unless it is here already as a shared one.
        """
        if self._w.author.scope.user is not None:
            return self._w
        session = entry.session or (entry.body or {}).get("session")
        if session is not None:
            return self._of_session(session, entry.origin if entry.op == "append" else None)
        if not unnamed and entry.actor == LEARNER and entry.origin is not None:
            # An export of an earlier version does not mark what was learned from a conversation.
            said = self._of_session(entry.origin.session)
            unnamed = said.owner.number != log.SHARED_OWNER
        id = names.get(entry.memory, entry.memory)
        holds = owners.memory_target(id).holds
        return self._w.to(owners.Target(UNNAMED if unnamed else None, holds))

    def _of_session(self, session: str, forked_from: Origin | None = None) -> Writer:
        if session not in self._of_sessions:
            target = owners.session_target(session, forked_from)
            self._of_sessions[session] = self._w.to(target)
        return self._of_sessions[session]


class _PlainRecord(NamedTuple):
    """A checked record that Reverie did not export."""

    content: str
    fields: dict[str, Any]
    uuid: str

    @property
    def labels(self) -> Labels:
        return Labels(*(self.fields[name] for name in Labels._fields))


def _prepare(
    runtime: Runtime, number: int, record: Record | UnreadableRecord
) -> _PlainRecord | LogEntry | str:
    """Check and parse a record, or return one line that says why it is skipped."""
    if isinstance(record, UnreadableRecord):
        return f"{record.place}: {record.why}"
    try:
        if not isinstance(record, Mapping):
            raise InvalidInput("a record must be an object with a content")
        _check_sizes(record)
        record = redact_record(runtime, record)
        if "reverie" in record:
            # pydantic takes time to load, and few processes import what was exported.
            from reverie.transfer import record_schema

            return record_schema.parse_record(record)
        return _parse_plain(runtime, record)
    except (ReverieError, KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        return f"record {number}: {why}"


def _check_sizes(record: Record) -> None:
    """Raise InvalidInput for values that are too long, before they are scanned for secrets."""
    body = record.get("body")
    for held in (record, body if isinstance(body, Mapping) else {}):
        for name, most in _MAX_CHARS.items():
            if isinstance(held.get(name), str) and len(held[name]) > most:
                raise InvalidInput(f"{name} has {len(held[name])} characters, at most {most}")
        for name in ("tags", "concept_tags"):
            if isinstance(held.get(name), list | tuple):
                require_tag_limits(held[name])
        if isinstance(held.get("message"), Mapping):
            measure_message(held["message"])
        if isinstance(held.get("metadata"), Mapping):
            check_metadata(held["metadata"])


def redact_record(runtime: Runtime, record: Record) -> Record:
    """Remove secrets from the text fields of a record.

    Other fields, such as idempotency keys and hashes, only look like secrets and stay.
    """
    texts = {name: record[name] for name in (*_TEXT_FIELDS, "body", "reason") if name in record}
    kept = runtime.redaction.each(texts, "the record")
    if kept is texts:
        return record
    body = kept.get("body")
    if isinstance(body, dict) and isinstance(body.get("content"), str) and "tags" in body:
        # Redacting may have changed case and content, so clean the tags and derive them again.
        body["tags"] = list(clean_tags(body["tags"]))
        body["concept_tags"] = list(concept_tags(body["content"]))
    return {**record, **kept}


def _parse_plain(runtime: Runtime, record: Record) -> _PlainRecord:
    content = record["content"]
    longer = isinstance(content, str) and len(content) > runtime.settings.fact_chars
    kind = validate.check_kind(record.get("kind") or ("note" if longer else "fact"))
    validate.check_content(content, kind, runtime.settings)
    created = record.get("created_at")
    fields: dict[str, Any] = {
        "kind": kind,
        "category": validate.check_category(record.get("category") or "general"),
        "subject": validate.check_subject(record.get("subject")),
        "tags": clean_tags(record.get("tags") or ()),
        "source": validate.check_optional(
            record.get("source"), "source", validate.MAX_SOURCE_CHARS
        ),
        "created_at": None if created is None else to_ms(created, "created_at"),
        "pinned": bool(record.get("pinned", False)),
        "metadata": check_metadata(record.get("metadata")),
        "valid_from": optional_ms(record.get("valid_from"), "valid_from"),
        "valid_to": optional_ms(record.get("valid_to"), "valid_to"),
    }
    validate.check_validity(fields["valid_from"], fields["valid_to"])
    return _PlainRecord(content, fields, _record_uuid(content, fields))


def _add_plain(w: Writer, items: Iterable[tuple[_PlainRecord, validate.PreparedText]]) -> int:
    """Add the memories that the store does not have yet, and return their number."""
    named: dict[str, tuple[_PlainRecord, validate.PreparedText]] = {}
    for item, text in items:
        named.setdefault(derived_id(f"{item.uuid}:{w.owner.number}"), (item, text))
    taken = log.ids_taken(w.tx, w.owner, list(named))
    news = [
        PendingMemory(
            memory,
            Draft(text=text, origin=None, happened_at=None, expires_at=None, **item.fields),
            WriteStamp(recorded_at=item.fields["created_at"], uuid=item.uuid),
        )
        for memory, (item, text) in named.items()
        if memory not in taken
    ]
    w.by(w.author._replace(trust="import")).add_memories(news)
    return len(news)


def _limit_trust(author: Author, entry: LogEntry) -> LogEntry:
    """Lower the trust of an entry to that of the author who imports it."""
    if author.trust == "person":
        return entry
    body = entry.body
    if body is not None and "trust" in body:
        body = {**body, "trust": less_trusted(author.trust, body["trust"])}
    trust = less_trusted(author.trust, entry.trust)
    return replace(entry, actor=author.actor, trust=trust, body=body)


def add_entry(w: Writer, entry: LogEntry, names: dict[str, str]) -> bool:
    """Add one exported entry to the log; False when the store has it already.

    ``names`` maps ids and sessions of the export to what they are called in this store. Raises
    InvalidInput when the entry does not follow what the store has.
    """
    if entry.session is not None:
        return add_session_entry(w, entry, names)
    tx, owner = w.tx, w.owner
    entry = drop_foreign_session(entry, names)
    memory = names.get(entry.memory)
    if memory is None:
        memory = _local_id(tx, owner, entry)
        names[entry.memory] = memory
    here = log.versions(tx, owner, memory)
    if any(known.uuid == entry.uuid for known in here):
        return False
    if here and here[-1].op == "erase":
        raise InvalidInput(f"memory {memory} was erased in this store and is not imported again")
    if entry.version != len(here) + 1:
        raise InvalidInput(
            f"version {entry.version} of {memory} does not follow the last version in this store"
        )
    ends = entry.body is None or entry.op == "erase"
    if ends and any(known.body is not None for known in here):
        raise InvalidInput(f"{memory} was erased in the exported store: erase it here too")
    place = index.find(tx, owner, memory)
    body = entry.body if entry.op != "erase" else {}
    entry = append_entry(w, replace(entry, memory=memory, body=body))
    _index_entry(w, place, here, entry)
    return True


def _index_entry(
    w: Writer, place: index.MemoryRow | None, here: list[LogEntry], entry: LogEntry
) -> None:
    """Update the index for an entry that was just appended."""
    if place is not None:
        index.remove_memory(w.tx, w.owner, place, here[-1].state(None))
    if entry.op == "erase" or entry.body is None:
        return
    state = entry.state(None)
    first_position = here[0].position if here else entry.position
    w.index_memory(first_position, entry.position, state, document=entry.body.get("document"))
    known = here[-1].body.get("expires_at") if here and here[-1].body else None
    if state.expires_at != known:
        w.queue_expiry(state)


def _local_id(tx: Transaction, owner: Owner, entry: LogEntry) -> str:
    """Return the id for an imported memory: its own, or one derived from its uuid if another
    memory has that id here."""
    if not log.id_taken(tx, owner, entry.memory):
        return entry.memory
    here = log.versions(tx, owner, entry.memory)
    if here and here[0].uuid == entry.uuid:
        return entry.memory
    return derived_id(f"{entry.uuid}:{owner.number}")


def _record_uuid(content: str, fields: Mapping[str, Any]) -> str:
    identity = log.encode([content, fields["category"], fields["subject"], fields["created_at"]])
    return derived_uuid(identity)


def derived_uuid(text: str) -> str:
    """Derive a uuid from a text, so that the same record imported twice is one entry."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def derived_id(text: str) -> str:
    """Derive a memory id from a text, so that the same text gives the same id."""
    digest = hashlib.sha256(text.encode()).digest()
    letters = base64.b64encode(digest, altchars=b"zZ").decode()
    return letters[:ID_LENGTH]


# -- entries about sessions -----------------------------------------------------------------------


def add_session_entry(w: Writer, entry: LogEntry, names: dict[str, str]) -> bool:
    """Add one exported entry about a session; False when the store has it already.

    ``names`` is as in ``add_entry``. A session keeps its name: if another session has that name
    here, InvalidInput is raised.
    """
    assert entry.session is not None
    tx, owner = w.tx, w.owner
    same = log.has_session_entry(tx, owner, entry.session, entry.sequence, entry.uuid)
    name = f"session {entry.session}"
    if entry.op == "append" and name not in names:
        begun = sessions.find(tx, owner, entry.session) is not None
        names[name] = "same" if same or not begun else "other"
    if same:
        return False
    if names.get(name) == "other":
        raise InvalidInput(f"this store has another session named {entry.session}")
    entry = _with_parent(tx, owner, entry, names)
    _check_session_entry(tx, owner, entry)
    entry = append_entry(w, _with_local_memory(tx, owner, entry, names))
    session_projection.apply_entry(w, entry)
    return True


def append_entry(w: Writer, entry: LogEntry) -> LogEntry:
    """Append an entry to the log and return it as it was written.

    It gets the position that it names, else the next free one. An idempotency key that is already
    used in this store is dropped from the entry.
    """
    tx, owner = w.tx, w.owner
    if entry.key is not None and log.find_by_key(tx, owner, entry.key) is not None:
        entry = replace(entry, key=None, request=None)
    now = min(entry.recorded_at, w.now())
    if entry.position:
        position, recorded_at = log.advance_to(tx, owner, entry.position, now)
    else:
        position, recorded_at = log.advance(tx, owner.space, now)
    entry = replace(entry, position=position, recorded_at=recorded_at)
    w.append(entry)
    return entry


def _with_parent(tx: Transaction, owner: Owner, entry: LogEntry, names: dict[str, str]) -> LogEntry:
    """Drop the origin of a fork when the store has another session with its parent's name."""
    if entry.origin is None:
        return entry
    if entry.op != "append" or entry.origin.session == entry.session:
        raise InvalidInput("only the first event of a fork has an origin, in another session")
    same = names.get(f"session {entry.origin.session}") == "same"
    if same or sessions.find(tx, owner, entry.origin.session) is None:
        return entry
    return replace(entry, origin=None)


def drop_foreign_session(entry: LogEntry, names: dict[str, str]) -> LogEntry:
    """Drop the origin of a memory when that session is another one here.

    A memory that belongs to such a session cannot be imported: InvalidInput.
    """
    if entry.body and names.get(f"session {entry.body.get('session')}") == "other":
        raise InvalidInput(f"this store has another session named {entry.body['session']}")
    if entry.origin and names.get(f"session {entry.origin.session}") == "other":
        return replace(entry, origin=None)
    return entry


def _check_session_entry(tx: Transaction, owner: Owner, entry: LogEntry) -> None:
    known = sessions.find(tx, owner, entry.session or "")
    if entry.op == "append":
        last = 0 if known is None else known.last_sequence
        if (entry.sequence or 0) <= last:
            erased = known is not None and known.ended
            raise InvalidInput(
                f"session {entry.session} was erased in this store and is not imported again"
                if erased
                else f"session {entry.session} has gone past sequence {entry.sequence} here"
            )
        if known is not None and known.hidden_at is not None and entry.body is not None:
            raise InvalidInput(f"session {entry.session} is hidden here: restore it first")
    elif known is None and entry.op != "erase":
        raise InvalidInput(f"there is no session {entry.session} here")
    exists = bool(known and known.events)
    if entry.op == "erase" and entry.sequence is not None and entry.session is not None:
        here = Origin(entry.session, entry.sequence)
        exists = sessions.find_event_entry(tx, owner, here) is not None
    if entry.op == "erase" and exists:
        what = "" if entry.sequence is None else f"event {entry.sequence} of "
        raise InvalidInput(
            f"{what}session {entry.session} was erased in the exported store: erase it here too"
        )
    if entry.op in {"propose", "accept", "reject"}:
        _check_proposal(tx, owner, entry)


def _with_local_memory(
    tx: Transaction, owner: Owner, entry: LogEntry, names: dict[str, str]
) -> LogEntry:
    """Make a proposal or its answer name memories by the ids they have here.

    An accepted proposal loses a memory that was not imported.
    """
    if entry.op == "propose" and entry.body is not None:
        return replace(entry, body=_with_local_versions(entry.body, names))
    memory = (entry.body or {}).get("memory")
    if entry.op != "accept" or entry.body is None or memory is None:
        return entry
    memory = names.get(memory, memory)
    origins = [
        version.origin
        for each in owners.deciding_owners(tx, owner)
        for version in log.versions(tx, each, memory)
    ]
    if (entry.session, entry.sequence) in origins:
        return replace(entry, body={**entry.body, "memory": memory})
    return replace(entry, body={k: v for k, v in entry.body.items() if k != "memory"})


def _with_local_versions(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Give the memories that a proposal replaces the ids they have here; the uuids stay."""
    local = dict(body)
    if "revises" in body:
        memory, uuid = body["revises"]
        local["revises"] = [names.get(memory, memory), uuid]
    if "forgets" in body:
        local["forgets"] = [[names.get(memory, memory), uuid] for memory, uuid in body["forgets"]]
    return local


def _check_proposal(tx: Transaction, owner: Owner, entry: LogEntry) -> None:
    name = (entry.body or {}).get("proposal")
    if entry.op == "propose" and name is not None and proposals.exists(tx, owner, name):
        raise InvalidInput(f"this store has another proposal {name}")
