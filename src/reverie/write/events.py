"""Writing to sessions: events are appended, sessions hidden, restored and erased."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reverie.agenda import jobs
from reverie.dates import Time, optional_ms
from reverie.engine import index, log, sessions
from reverie.engine.log import LogEntry
from reverie.engine.sessions import EventRange, EventRow
from reverie.errors import InvalidInput, KeyConflict, NotFound, SequenceConflict
from reverie.model import UNTRUSTED, Event, Op, Origin, SessionErasure
from reverie.protocols import Owner, Transaction
from reverie.text.json_values import to_json_object
from reverie.text.messages import role_of, user_text
from reverie.write import (
    proposals,
    session_state,
    validate,
    writer,
)
from reverie.write.runtime import Runtime
from reverie.write.validate import PreparedText
from reverie.write.writer import Author, WriteStamp, write_transaction

MAX_SEQUENCE = 1 << 53
MAX_MESSAGE_CHARS = 16_000_000
# How many of an erased session's texts are looked for in the files.
MAX_SCRUB_TEXTS = 50
# The part of a memory's state that somebody said.
CONTENT_FIELDS = ("content", "subject", "category", "tags", "concept_tags", "source")
RESUMED_REASON = "the conversation went on"


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message that has no place in a session yet."""

    message: dict[str, Any]
    text: PreparedText
    sequence: int | None = None
    at: int | None = None
    interrupted: bool = False

    @property
    def asked(self) -> tuple[object, ...]:
        """What an idempotency key stands for."""
        return (self.message, self.sequence, self.at, self.interrupted)


def prepare_messages(
    runtime: Runtime,
    messages: Sequence[object],
    *,
    sequence: int | None = None,
    at: Time | None = None,
    interrupted: bool = False,
) -> list[PreparedMessage]:
    """Messages checked, split into passages and embedded before anything is locked."""
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
    """Refuse a message that is too long, before it is scanned or indexed."""
    if len(log.encode(message)) > MAX_MESSAGE_CHARS:
        raise InvalidInput(f"a message has at most {MAX_MESSAGE_CHARS} characters: split it")


def _without_secrets(runtime: Runtime, message: dict[str, Any]) -> dict[str, Any]:
    """A message as it may be kept. What a model replied its caller cannot leave out."""
    replied = role_of(message) == "assistant"
    clean = runtime.redaction.clean_values if replied else runtime.redaction.each
    cleaned: dict[str, Any] = clean(message, "a message")
    return cleaned


def is_valid_sequence(sequence: object) -> bool:
    """Whether an event can have this sequence."""
    return (
        isinstance(sequence, int) and not isinstance(sequence, bool) and 0 < sequence < MAX_SEQUENCE
    )


def append(
    runtime: Runtime,
    author: Author,
    session: str,
    said: Sequence[PreparedMessage],
    stamp: WriteStamp,
    fork: Origin | None = None,
) -> list[Event]:
    with write_transaction(runtime, author.scope) as (tx, owner):
        done = find_repeated_entry(tx, owner, stamp, "append", session)
        if done is not None:
            return repeated_events(tx, owner, author, done, session, len(said))
        return append_in(tx, runtime, owner, author, session, said, stamp, fork)


def repeated_events(
    tx: Transaction, owner: Owner, author: Author, done: LogEntry, session: str, count: int
) -> list[Event]:
    """What a key already stands for: events appended in one transaction follow each other."""
    entries = log.session_appends(tx, owner, session, done.sequence or 0, count)
    if any(entry.body is None for entry in entries):
        raise NotFound(f"events of session {session!r} were erased after this key was used")
    return [sessions.event_from_entry(entry, author.scope.user) for entry in entries]


def append_in(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    session: str,
    said: Sequence[PreparedMessage],
    stamp: WriteStamp,
    fork: Origin | None = None,
) -> list[Event]:
    """Append in order, each with the next sequence of its session."""
    known = sessions.find(tx, owner, session)
    hidden = known is not None and known.hidden_at is not None
    if hidden:
        _hide_or_restore_in(
            tx, runtime, owner, author, "restore", session, WriteStamp(reason=RESUMED_REASON)
        )
    last = known.last_sequence if known is not None else 0 if fork is None else fork.sequence
    events: list[Event] = []
    for each in said:
        sequence = last + 1 if each.sequence is None else each.sequence
        if sequence <= last:
            raise SequenceConflict(session, sequence, last)
        first = not events
        own = stamp if first else stamp._replace(key=None, request=None)
        origin = fork if first and known is None else None
        event = _append_one(tx, runtime, owner, author, session, sequence, each, own, origin)
        events.append(event)
        last = sequence
    _queue_jobs(tx, runtime, owner, author, session, events)
    if known is None or not known.events or hidden:
        _hide_beyond_cap(tx, runtime, owner)
    return events


def _append_one(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    session: str,
    sequence: int,
    said: PreparedMessage,
    stamp: WriteStamp,
    fork: Origin | None,
) -> Event:
    when = log.advance(tx, owner.space, runtime.clock.now())
    body = {"message": said.message, "at": when[1] if said.at is None else said.at}
    if said.interrupted:
        body["interrupted"] = True
    entry = writer.build_entry(runtime, author, stamp._replace(origin=fork), "append", when, body)
    entry = replace(entry, session=session, sequence=sequence)
    writer.append(tx, runtime, owner, entry)
    first = sessions.add_event(tx, owner, entry, said.text.passages)
    if said.text.passages:
        writer.put_vectors(tx, runtime, owner, first, said.text)
    return sessions.event_from_entry(entry, author.scope.user)


def _queue_jobs(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    session: str,
    events: Sequence[Event],
) -> None:
    """Queue what is to happen with these events later. Jobs of one lane run in order."""
    settings, now = runtime.settings, runtime.clock.now()
    if settings.learn_mode != "off" and author.trust not in UNTRUSTED:
        for event in events:
            if user_text(event.message).strip():
                payload = {"session": session, "sequence": event.sequence}
                jobs.add(tx, owner, "learn", payload, due_at=now, now=now, lane=f"learn:{session}")
    queue_summary(tx, runtime, owner, session)


def queue_summary(tx: Transaction, runtime: Runtime, owner: Owner, session: str) -> None:
    """A token is at least a byte: with fewer bytes than tokens nothing can be due."""
    settings = runtime.settings
    known = sessions.find(tx, owner, session)
    if settings.summary_mode == "off" or known is None:
        return
    if known.unsummed <= settings.history_tokens * 4 // 5:
        return
    lane, now = f"summary:{session}", runtime.clock.now()
    if not jobs.has_ready_in_lane(tx, owner, lane):
        jobs.add(tx, owner, "summarise", {"session": session}, due_at=now, now=now, lane=lane)


# -- hiding and restoring -------------------------------------------------------------------------


def hide_or_restore(
    runtime: Runtime, author: Author, op: Op, session: str, stamp: WriteStamp
) -> None:
    """Hide a session, or bring it back. Done already, nothing happens."""
    with write_transaction(runtime, author.scope) as (tx, owner):
        if find_repeated_entry(tx, owner, stamp, op, session) is not None:
            return
        known = require_session(tx, owner, session)
        if (known.hidden_at is not None) == (op == "hide") and stamp.key is None:
            return
        _hide_or_restore_in(tx, runtime, owner, author, op, session, stamp)


def _hide_or_restore_in(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    op: Op,
    session: str,
    stamp: WriteStamp,
) -> None:
    entry = writer.append_to_session(tx, runtime, owner, author, stamp, op, session)
    apply_hidden(tx, runtime, owner, entry)


def apply_hidden(tx: Transaction, runtime: Runtime, owner: Owner, entry: LogEntry) -> None:
    """Let the index show that a session was hidden or restored."""
    assert entry.session is not None
    hidden = entry.op == "hide"
    known = sessions.find(tx, owner, entry.session)
    since = known.hidden_at if known is not None and known.hidden_at is not None else None
    sessions.set_hidden(tx, owner, entry.session, (since or entry.recorded_at) if hidden else None)
    for spot in sessions.list_events(tx, owner, [EventRange(entry.session, 0, None)]):
        event = log.find_at_position(tx, owner, spot.position)
        assert event is not None and event.body is not None
        if hidden:
            sessions.unindex_event(tx, owner, spot, event.body["message"])
        elif not spot.passages:
            _reindex_event(tx, runtime, owner, spot, event.body["message"])


def _reindex_event(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    spot: EventRow,
    message: Mapping[str, Any],
) -> None:
    text = prepare_stored_message(tx, runtime, message)
    first = sessions.index_event(tx, owner, spot, text.passages)
    if text.passages:
        writer.put_vectors(tx, runtime, owner, first, text)


def prepare_stored_message(
    tx: Transaction, runtime: Runtime, message: Mapping[str, Any]
) -> PreparedText:
    """What the index needs of a message that is stored already."""
    content = sessions.message_text(message)
    parts = sessions.passages_of_message(message, content)
    return writer.embed_in(tx, runtime, content, parts)


def _hide_beyond_cap(tx: Transaction, runtime: Runtime, owner: Owner) -> None:
    """Beyond the cap the sessions quiet for longest are hidden, with the reason."""
    cap = runtime.settings.max_sessions
    if not cap:
        return
    author = Author(log.scope_of(tx, owner), "reverie", "agent")
    reason = f"the cap of {cap} sessions was reached"
    for name in sessions.least_recent(tx, owner, cap):
        _hide_or_restore_in(tx, runtime, owner, author, "hide", name, WriteStamp(reason=reason))


# -- erasing --------------------------------------------------------------------------------------


def erase(runtime: Runtime, author: Author, session: str, stamp: WriteStamp) -> SessionErasure:
    """Destroy a session and all that hangs on it, then see that the bytes are gone."""
    with write_transaction(runtime, author.scope) as (tx, owner):
        done = find_repeated_entry(tx, owner, stamp, "erase", session)
        if done is not None:
            return _report(done, pending=jobs.has_job(tx, owner, "scrub"))
        if not _own_memories(tx, owner, session) and not session_state.exists(tx, owner, session):
            require_session(tx, owner, session)
        held = [
            entry
            for entry in log.session_entries(tx, owner, session)
            if entry.body is not None and entry.op != "erase"
        ]
        said = sorted(
            {writer.encoded_text(entry) for entry in held if entry.op == "append"},
            key=len,
            reverse=True,
        )
        entry = erase_in(tx, runtime, owner, author, session, held, stamp)
        job = writer.queue_scrub(tx, runtime, owner)
    gone = writer.finish_scrub(runtime, owner, job, said[:MAX_SCRUB_TEXTS])
    return _report(entry, pending=not gone)


def erase_in(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    session: str,
    held: Sequence[LogEntry],
    stamp: WriteStamp,
) -> LogEntry:
    own = _own_memories(tx, owner, session)
    memories = _erase_memories(
        tx, runtime, owner, author, session, own, lambda origin: origin.session == session
    )
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
    runtime.notes.drop(sessions.session_scope(author.scope, session))
    tx.run("DELETE FROM recalls WHERE space = ? AND owner = ? AND session = ?", (*owner, session))
    for lane in (f"learn:{session}", f"summary:{session}"):
        jobs.drop_lane(tx, owner, lane)
    body = {"entries": positions, "events": len(events), "memories": memories}
    return writer.append_to_session(tx, runtime, owner, author, stamp, "erase", session, body=body)


def erase_event(
    runtime: Runtime, author: Author, origin: Origin, stamp: WriteStamp
) -> SessionErasure:
    """Destroy what one event said, and see that the bytes are gone."""
    with write_transaction(runtime, author.scope) as (tx, owner):
        done = find_repeated_entry(tx, owner, stamp, "erase", origin.session)
        if done is not None:
            return _report(done, pending=jobs.has_job(tx, owner, "scrub"))
        event = (
            sessions.find_event_entry(tx, owner, origin)
            if is_valid_sequence(origin.sequence)
            else None
        )
        if event is None:
            raise NotFound(f"session {origin.session!r} has no event {origin.sequence!r}")
        said = writer.encoded_text(event)
        memories = _erase_memories(
            tx, runtime, owner, author, origin.session, (), lambda source: source == origin
        )
        positions = writer.erase_event(tx, owner, origin)
        body = {"entries": positions, "events": 1, "memories": memories}
        entry = writer.append_to_session(tx, runtime, owner, author, stamp, "erase", *origin, body)
        job = writer.queue_scrub(tx, runtime, owner)
    return _report(entry, pending=not writer.finish_scrub(runtime, owner, job, [said]))


def _erase_memories(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    session: str,
    own: Sequence[str],
    is_source: Callable[[Origin], bool],
) -> list[str]:
    """What belongs to the session, or says nothing but what came from there.

    Where only some versions do, their words give way to those of another version.
    """
    erased = []
    for memory in sorted({*own, *log.memories_from_session(tx, owner, session)}):
        place = index.find(tx, owner, memory)
        if place is None:
            continue
        held = log.versions(tx, owner, memory)
        tainted = _from_source(held, is_source)
        if memory in own or all(tainted):
            writer.erase_in(tx, runtime, owner, author, place, held, False, WriteStamp())
            erased.append(memory)
        elif any(tainted):
            _overwrite(tx, runtime, owner, place, held, tainted)
    return erased


def _from_source(held: Sequence[LogEntry], is_source: Callable[[Origin], bool]) -> list[bool]:
    """Of each version, whether its words came from there; a version without new words inherits."""
    content, flag, flags = None, False, []
    for entry in held:
        if entry.body is not None and entry.body["content"] != content:
            content = entry.body["content"]
            flag = entry.origin is not None and is_source(entry.origin)
        flags.append(flag)
    return flags


def _overwrite(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    place: index.MemoryRow,
    held: Sequence[LogEntry],
    tainted: Sequence[bool],
) -> None:
    old = writer.current_entry(tx, owner, place).state(None)
    clean = [entry for entry, flag in zip(held, tainted, strict=True) if not flag and entry.body]
    for entry, flag in zip(held, tainted, strict=True):
        if flag and entry.body is not None:
            before = [each for each in clean if each.version < entry.version]
            kept = (before[-1] if before else clean[0]).body or {}
            log.overwrite(
                tx,
                owner,
                entry.position,
                {**entry.body, **{name: kept[name] for name in CONTENT_FIELDS}},
            )
    if tainted[-1]:
        new = writer.current_entry(tx, owner, place).state(None)
        index.remove_memory(tx, owner, place, old)
        text = writer.prepare_stored(tx, runtime, new)
        first = index.add_memory(
            tx, owner, place.first_position, place.position, new, text.passages
        )
        if new.forgotten_at is None:
            writer.put_vectors(tx, runtime, owner, first, text)


def _own_memories(tx: Transaction, owner: Owner, session: str) -> list[str]:
    chosen = index.Filter(sessions=(session,), include_forgotten=True)
    places = index.list_memories(tx, owner, chosen)
    return [place.memory for place in places if place.session == session]


# -- parts ----------------------------------------------------------------------------------------


def find_repeated_entry(
    tx: Transaction, owner: Owner, stamp: WriteStamp, op: Op, session: str
) -> LogEntry | None:
    """The entry a key already stands for; what was erased is told by what it was about."""
    done = writer.find_repeated(tx, owner, stamp, about_session=True)
    if done is not None and (done.op, done.session) != (op, session):
        raise KeyConflict(stamp.key or "")
    return done


def require_session(tx: Transaction, owner: Owner, session: str) -> sessions.SessionRow:
    known = sessions.find(tx, owner, session)
    if known is None or not known.events:
        raise session_not_found(session)
    return known


def session_not_found(session: str) -> NotFound:
    return NotFound(
        f"there is no session {session!r} here: a list shows the ones there are, "
        "and another space or user may have it"
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
