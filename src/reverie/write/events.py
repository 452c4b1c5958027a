"""Writing to sessions: events are appended, sessions hidden, restored and erased."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reverie.agenda import jobs
from reverie.dates import Time, optional_ms
from reverie.engine import index, index_check, log, sessions
from reverie.engine.log import LogEntry
from reverie.engine.sessions import EventRange, EventRow
from reverie.errors import InvalidInput, KeyConflict, NotFound, SequenceConflict
from reverie.model import UNTRUSTED, Event, Op, Origin, SessionErasure
from reverie.protocols import Owner, Transaction
from reverie.text.json_values import to_json_object
from reverie.text.messages import role_of, user_text
from reverie.write import memories, owners, proposals, session_state, validate
from reverie.write.runtime import Runtime
from reverie.write.validate import PreparedText
from reverie.write.writer import (
    Author,
    Writer,
    WriteStamp,
    finish_scrub,
    open_writer,
    system_author,
)

MAX_SEQUENCE = 1 << 53
MAX_MESSAGE_CHARS = 16_000_000
# How many texts of an erased session, the longest first, are searched for in the database files.
MAX_SCRUB_TEXTS = 50
# The fields of a memory that hold words of its source.
CONTENT_FIELDS = ("content", "subject", "category", "tags", "concept_tags", "source")
RESUMED_REASON = "the conversation went on"


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message that is checked, split and embedded, but not stored yet."""

    message: dict[str, Any]
    text: PreparedText
    sequence: int | None = None
    at: int | None = None
    interrupted: bool = False

    @property
    def asked(self) -> tuple[object, ...]:
        """The arguments that a repeated request with the same key must have again."""
        return (self.message, self.sequence, self.at, self.interrupted)


def prepare_messages(
    runtime: Runtime,
    messages: Sequence[object],
    *,
    sequence: int | None = None,
    at: Time | None = None,
    interrupted: bool = False,
) -> list[PreparedMessage]:
    """Check messages, redact them, split them into passages and embed these.

    This happens before the write transaction, so that nobody waits for the embedder.
    """
    if sequence is not None and not is_valid_sequence(sequence):
        raise InvalidInput(f"sequence must be a whole number from 1, not {sequence!r}")
    moment = optional_ms(at, "at")
    given = [to_json_object(message) for message in messages]
    for message in given:
        measure_message(message)
    plain = [_without_secrets(runtime, message) for message in given]
    contents = [sessions.message_text(message) for message in plain]
    split = [
        sessions.passages_of_message(message, content)
        for message, content in zip(plain, contents, strict=True)
    ]
    texts = validate.prepare_split(runtime, contents, split)
    return [
        PreparedMessage(message, text, sequence, moment, interrupted)
        for message, text in zip(plain, texts, strict=True)
    ]


def measure_message(message: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a message that is too long, before it is scanned or indexed."""
    if len(log.encode(message)) > MAX_MESSAGE_CHARS:
        raise InvalidInput(f"a message has at most {MAX_MESSAGE_CHARS} characters: split it")


def _without_secrets(runtime: Runtime, message: dict[str, Any]) -> dict[str, Any]:
    """Redact a message, or raise InvalidInput if the policy blocks secrets.

    A model's reply is always redacted: its caller cannot leave the secret out.
    """
    replied = role_of(message) == "assistant"
    clean = runtime.redaction.clean_values if replied else runtime.redaction.each
    cleaned: dict[str, Any] = clean(message, "a message")
    return cleaned


def is_valid_sequence(sequence: object) -> bool:
    """Tell whether an event can have this sequence."""
    return (
        isinstance(sequence, int) and not isinstance(sequence, bool) and 0 < sequence < MAX_SEQUENCE
    )


def append(
    w: Writer,
    session: str,
    messages: Sequence[PreparedMessage],
    stamp: WriteStamp,
    fork: Origin | None = None,
) -> list[Event]:
    """Append messages to a session once for each idempotency key."""
    done = find_repeated(w, stamp, "append", session)
    if done is not None:
        return _repeated_events(w, done, session, len(messages))
    return append_messages(w, session, messages, stamp, fork)


def _repeated_events(w: Writer, done: LogEntry, session: str, count: int) -> list[Event]:
    """Return what the first request with a key returned: its events follow each other."""
    entries = log.session_appends(w.tx, w.owner, session, done.sequence or 0, count)
    if any(entry.body is None for entry in entries):
        raise NotFound(f"events of session {session!r} were erased after this key was used")
    return [sessions.event_from_entry(entry, w.user) for entry in entries]


def append_messages(
    w: Writer,
    session: str,
    messages: Sequence[PreparedMessage],
    stamp: WriteStamp,
    fork: Origin | None = None,
) -> list[Event]:
    """Append messages in order, each with the next sequence of the session.

    A hidden session is restored. ``fork`` is the event that a new session goes on from.
    """
    known = sessions.find(w.tx, w.owner, session)
    hidden = known is not None and known.hidden_at is not None
    if hidden:
        _append_visibility(w, "restore", session, WriteStamp(reason=RESUMED_REASON))
    last = known.last_sequence if known is not None else 0 if fork is None else fork.sequence
    events: list[Event] = []
    for each in messages:
        sequence = last + 1 if each.sequence is None else each.sequence
        if sequence <= last:
            raise SequenceConflict(session, sequence, last)
        first = not events
        own = stamp if first else stamp._replace(key=None, request=None)
        origin = fork if first and known is None else None
        events.append(_append_one(w, session, sequence, each, own, origin))
        last = sequence
    _queue_jobs(w, session, events)
    if known is None or not known.events or hidden:
        _hide_beyond_cap(w)
    return events


def _append_one(
    w: Writer,
    session: str,
    sequence: int,
    message: PreparedMessage,
    stamp: WriteStamp,
    fork: Origin | None,
) -> Event:
    when = w.next_position()
    body = {"message": message.message, "at": when[1] if message.at is None else message.at}
    if message.interrupted:
        body["interrupted"] = True
    entry = w.build_entry(stamp._replace(origin=fork), "append", when, body)
    entry = replace(entry, session=session, sequence=sequence)
    w.append(entry)
    first = sessions.add_event(w.tx, w.owner, entry, message.text.passages)
    if message.text.passages:
        w.put_vectors(first, message.text)
    return sessions.event_from_entry(entry, w.user)


def _queue_jobs(w: Writer, session: str, events: Sequence[Event]) -> None:
    """Queue learning from these events, and a summary if the session is long enough."""
    if w.runtime.settings.learn_mode != "off" and w.author.trust not in UNTRUSTED:
        for event in events:
            if user_text(event.message).strip():
                payload = {"session": session, "sequence": event.sequence}
                w.queue("learn", payload, lane=f"learn:{session}", yields=True)
    queue_summary(w, session)


def queue_summary(w: Writer, session: str) -> None:
    """Queue a summary of a session whose unsummarised events may exceed the token budget.

    A token is at least a byte: with fewer bytes than tokens no summary can be due.
    """
    settings = w.runtime.settings
    known = sessions.find(w.tx, w.owner, session)
    if settings.summary_mode == "off" or known is None:
        return
    if known.unsummed <= settings.history_tokens * 4 // 5:
        return
    lane = f"summary:{session}"
    if not jobs.has_ready_in_lane(w.tx, w.owner, lane):
        w.queue("summarise", {"session": session}, lane=lane)


# -- hiding and restoring -------------------------------------------------------------------------


def hide_or_restore(w: Writer, op: Op, session: str, stamp: WriteStamp) -> None:
    """Hide a session or restore it; without a key, do nothing if it is so already."""
    if find_repeated(w, stamp, op, session) is not None:
        return
    known = require_session(w.tx, w.owner, session)
    if (known.hidden_at is not None) == (op == "hide") and stamp.key is None:
        return
    _append_visibility(w, op, session, stamp)


def _append_visibility(w: Writer, op: Op, session: str, stamp: WriteStamp) -> None:
    """Append a ``hide`` or ``restore`` entry and apply it."""
    apply_visibility(w, w.append_to_session(stamp, op, session))


def apply_visibility(w: Writer, entry: LogEntry) -> None:
    """Take a session out of the index, or put it back, as a stored entry says."""
    assert entry.session is not None
    tx, owner, hidden = w.tx, w.owner, entry.op == "hide"
    known = sessions.find(tx, owner, entry.session)
    since = known.hidden_at if known is not None and known.hidden_at is not None else None
    sessions.set_hidden(tx, owner, entry.session, (since or entry.recorded_at) if hidden else None)
    for row in sessions.list_events(tx, owner, [EventRange(entry.session, 0, None)]):
        event = log.find_at_position(tx, owner, row.position)
        assert event is not None and event.body is not None
        if hidden:
            sessions.unindex_event(tx, owner, row, event.body["message"])
        elif not row.passages:
            _reindex_event(w, row, event.body["message"])


def _reindex_event(w: Writer, row: EventRow, message: Mapping[str, Any]) -> None:
    text = prepare_stored_message(w, message)
    first = sessions.index_event(w.tx, w.owner, row, text.passages)
    if text.passages:
        w.put_vectors(first, text)


def prepare_stored_message(w: Writer, message: Mapping[str, Any]) -> PreparedText:
    """Split and embed a message that is stored already."""
    content = sessions.message_text(message)
    return w.embed(content, sessions.passages_of_message(message, content))


def _hide_beyond_cap(w: Writer) -> None:
    """Hide the least recently used sessions beyond the cap, and say so as the reason."""
    cap = w.runtime.settings.max_sessions
    if not cap:
        return
    system = w.by(system_author(w.author.scope))
    stamp = WriteStamp(reason=f"the cap of {cap} sessions was reached")
    for name in sessions.least_recent(w.tx, w.owner, cap):
        _append_visibility(system, "hide", name, stamp)


# -- erasing --------------------------------------------------------------------------------------


def erase(runtime: Runtime, author: Author, session: str, stamp: WriteStamp) -> SessionErasure:
    """Destroy a session and what depends on it, then remove its texts from the database files."""
    with open_writer(runtime, author, owners.session_target(session)) as w:
        done = find_repeated(w, stamp, "erase", session)
        if done is not None:
            return _report(done, pending=jobs.has_job(w.tx, w.owner, "scrub"))
        if not _own_memories(w, session) and not session_state.exists(w.tx, w.owner, session):
            require_session(w.tx, w.owner, session)
        held = [
            entry
            for entry in log.session_entries(w.tx, w.owner, session)
            if entry.body is not None and entry.op != "erase"
        ]
        texts = sorted(
            {memories.encoded_text(entry) for entry in held if entry.op == "append"},
            key=len,
            reverse=True,
        )
        entry = _erase_session(w, session, held, stamp)
        job = w.queue("scrub")
    gone = finish_scrub(runtime, w.owner, job, texts[:MAX_SCRUB_TEXTS])
    return _report(entry, pending=not gone)


def _erase_session(
    w: Writer, session: str, held: Sequence[LogEntry], stamp: WriteStamp
) -> LogEntry:
    """Blank the entries of a session, ``held``, and return the ``erase`` entry."""
    tx, owner = w.tx, w.owner
    own = _own_memories(w, session)
    erased = _erase_memories(w, session, None, own, lambda origin: origin.session == session)
    events = [entry for entry in held if entry.op == "append"]
    for event in events:
        sessions.drop_event(tx, owner, event)
    positions = [entry.position for entry in held]
    for event in events:
        assert event.session is not None and event.sequence is not None
        proposals.erase_for_event(tx, owner, Origin(event.session, event.sequence))
    log.erase_content(tx, owner, positions)
    sessions.recompute_session(tx, owner, session)
    sessions.mark_ended(tx, owner, session)
    session_state.wipe(tx, owner, session)
    w.runtime.notes.drop(sessions.session_scope(w.author.scope, session))
    tx.run("DELETE FROM recalls WHERE space = ? AND owner = ? AND session = ?", (*owner, session))
    for lane in (f"learn:{session}", f"summary:{session}"):
        jobs.drop_lane(tx, owner, lane)
    body = {"entries": positions, "events": len(events), "memories": erased}
    return w.append_to_session(stamp, "erase", session, body=body)


def erase_event(
    runtime: Runtime, author: Author, origin: Origin, stamp: WriteStamp
) -> SessionErasure:
    """Destroy the text of one event, then remove it from the database files."""
    with open_writer(runtime, author, owners.session_target(origin.session)) as w:
        done = find_repeated(w, stamp, "erase", origin.session)
        if done is not None:
            return _report(done, pending=jobs.has_job(w.tx, w.owner, "scrub"))
        event = (
            sessions.find_event_entry(w.tx, w.owner, origin)
            if is_valid_sequence(origin.sequence)
            else None
        )
        if event is None:
            raise NotFound(f"session {origin.session!r} has no event {origin.sequence!r}")
        text = memories.encoded_text(event)
        erased = _erase_memories(w, *origin, (), lambda source: source == origin)
        positions = memories.erase_event(w.tx, w.owner, origin)
        body = {"entries": positions, "events": 1, "memories": erased}
        entry = w.append_to_session(stamp, "erase", *origin, body)
        job = w.queue("scrub")
    return _report(entry, pending=not finish_scrub(runtime, w.owner, job, [text]))


def _erase_memories(
    w: Writer,
    session: str,
    sequence: int | None,
    own: Sequence[str],
    is_source: Callable[[Origin], bool],
) -> list[str]:
    """Erase the memories in ``own`` and those all of whose words come from the erased events.

    Where only some versions do, their words are replaced with those of another version. Returns the
    ids of the erased memories. ``sequence`` is None when the whole session is erased.
    """
    erased = []
    # What was remembered on purpose in a session without a user is shared.
    for owner in owners.writable_owners(w.tx, w.author.scope):
        each, overwritten = replace(w, owner=owner), list[int]()
        private = own if owner == w.owner else ()
        for memory in sorted({*private, *log.memories_from_session(w.tx, owner, session)}):
            place = index.find(w.tx, owner, memory)
            if place is None:
                continue
            held = log.versions(w.tx, owner, memory)
            tainted = _from_source(held, is_source)
            if memory in private or all(tainted):
                memories.erase_memory(each, place, held, False, WriteStamp())
                erased.append(memory)
            elif any(tainted):
                overwritten += _overwrite(each, place, held, tainted)
        if overwritten and owner != w.owner:
            memories.note_erasure(each, session, sequence, overwritten)
    return sorted(erased)


def _from_source(held: Sequence[LogEntry], is_source: Callable[[Origin], bool]) -> list[bool]:
    """Tell for each version whether its words come from an erased event.

    A version with the same content as the one before it has the words of that one.
    """
    content, flag, flags = None, False, []
    for entry in held:
        if entry.body is not None and entry.body["content"] != content:
            content = entry.body["content"]
            flag = entry.origin is not None and is_source(entry.origin)
        flags.append(flag)
    return flags


def _overwrite(
    w: Writer, place: index.MemoryRow, held: Sequence[LogEntry], tainted: Sequence[bool]
) -> list[int]:
    """Replace the words of tainted versions with those of the clean version before them.

    Returns the positions of the entries that were changed.
    """
    tx, owner, changed = w.tx, w.owner, list[int]()
    old = index_check.read_current(tx, owner, place).state(None)
    clean = [entry for entry, flag in zip(held, tainted, strict=True) if not flag and entry.body]
    for entry, flag in zip(held, tainted, strict=True):
        if flag and entry.body is not None:
            before = [each for each in clean if each.version < entry.version]
            kept = (before[-1] if before else clean[0]).body or {}
            changed.append(entry.position)
            log.overwrite(
                tx,
                owner,
                entry.position,
                {**entry.body, **{name: kept[name] for name in CONTENT_FIELDS}},
            )
    if tainted[-1]:
        new = index_check.read_current(tx, owner, place).state(None)
        index.remove_memory(tx, owner, place, old)
        w.index_memory(place.first_position, place.position, new)
    return changed


def _own_memories(w: Writer, session: str) -> list[str]:
    """List the memories that belong to this session alone."""
    chosen = index.Filter(sessions=(session,), include_forgotten=True)
    places = index.list_memories(w.tx, w.owner, chosen)
    return [place.memory for place in places if place.session == session]


# -- parts ----------------------------------------------------------------------------------------


def find_repeated(w: Writer, stamp: WriteStamp, op: Op, session: str) -> LogEntry | None:
    """Return the entry about a session that was written with the stamp's key, if there is one.

    An erased entry has lost its request, so its op and session are compared as well.
    """
    done = w.repeated(stamp, about_session=True)
    if done is not None and (done.op, done.session) != (op, session):
        raise KeyConflict(stamp.key or "")
    return done


def require_session(tx: Transaction, owner: Owner, session: str) -> sessions.SessionRow:
    """Read the row of a session that has events, or raise NotFound."""
    known = sessions.find(tx, owner, session)
    if known is None or not known.events:
        raise session_not_found(session)
    return known


def session_not_found(session: str) -> NotFound:
    """Return the error for a session that this scope does not have."""
    return NotFound(
        f"there is no session {session!r} in this space: list them to see the ids; "
        "it may belong to another space or user"
    )


def _report(entry: LogEntry, pending: bool) -> SessionErasure:
    body = entry.body or {}
    return SessionErasure(
        session=entry.session or "",
        events=body.get("events", 0),
        memories=tuple(body.get("memories", ())),
        entries=tuple(body.get("entries", ())),
        position=entry.position,
        pending=pending,
    )
