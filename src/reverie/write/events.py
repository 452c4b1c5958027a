"""Writing to sessions: events are appended, sessions hidden, restored and erased."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reverie.agenda import jobs
from reverie.dates import Time, optional_ms
from reverie.engine import index, log, sessions
from reverie.engine.log import Entry
from reverie.engine.sessions import Spot, Stretch
from reverie.errors import InvalidInput, KeyConflict, NotFound, SequenceConflict
from reverie.model import UNTRUSTED, Event, Op, Origin, SessionErasure
from reverie.protocols import Owner, Transaction
from reverie.text.json_values import as_mapping
from reverie.text.messages import role_of, said_by_user
from reverie.write import (
    proposals,
    session_state,
    validate,
    writer,
)
from reverie.write.runtime import Resources
from reverie.write.validate import Text
from reverie.write.writer import Author, Stamp, writing

LAST_SEQUENCE = 1 << 53
MOST_MESSAGE_CHARS = 16_000_000
# How many of an erased session's texts are looked for in the files.
LOOKED_FOR = 50
# The part of a memory's state that somebody said.
WORDS = ("content", "subject", "category", "tags", "concept_tags", "source")
WENT_ON = "the conversation went on"


@dataclass(frozen=True, slots=True)
class Said:
    """A message that has no place in a session yet."""

    message: dict[str, Any]
    text: Text
    sequence: int | None = None
    at: int | None = None
    interrupted: bool = False

    @property
    def asked(self) -> tuple[object, ...]:
        """What an idempotency key stands for."""
        return (self.message, self.sequence, self.at, self.interrupted)


def prepare(
    resources: Resources,
    messages: Sequence[object],
    *,
    sequence: int | None = None,
    at: Time | None = None,
    interrupted: bool = False,
) -> list[Said]:
    """Messages checked, split into passages and embedded before anything is locked."""
    if sequence is not None and not possible(sequence):
        raise InvalidInput(f"sequence must be a whole number from 1, not {sequence!r}")
    moment = optional_ms(at, "at")
    given = [as_mapping(message) for message in messages]
    for message in given:
        measure_message(message)
    plain = [_without_secrets(resources, message) for message in given]
    contents = [sessions.readable(message) for message in plain]
    split = [
        sessions.passages_of_message(message, content)
        for message, content in zip(plain, contents, strict=True)
    ]
    texts = validate.embedded(resources, contents, split)
    return [
        Said(message, text, sequence, moment, interrupted)
        for message, text in zip(plain, texts, strict=True)
    ]


def measure_message(message: Mapping[str, Any]) -> None:
    """Refuse a message that is too long, before it is scanned or indexed."""
    if len(log.encode(message)) > MOST_MESSAGE_CHARS:
        raise InvalidInput(f"a message has at most {MOST_MESSAGE_CHARS} characters: split it")


def _without_secrets(resources: Resources, message: dict[str, Any]) -> dict[str, Any]:
    """A message as it may be kept. What a model replied its caller cannot leave out."""
    replied = role_of(message) == "assistant"
    clean = resources.redaction.quiet_each if replied else resources.redaction.each
    cleaned: dict[str, Any] = clean(message, "a message")
    return cleaned


def possible(sequence: object) -> bool:
    """Whether an event can have this sequence."""
    return (
        isinstance(sequence, int)
        and not isinstance(sequence, bool)
        and 0 < sequence < LAST_SEQUENCE
    )


def append(
    resources: Resources,
    author: Author,
    session: str,
    said: Sequence[Said],
    stamp: Stamp,
    fork: Origin | None = None,
) -> list[Event]:
    with writing(resources, author.scope) as (tx, owner):
        done = done_before(tx, owner, stamp, "append", session)
        if done is not None:
            return earlier_events(tx, owner, author, done, session, len(said))
        return append_in(tx, resources, owner, author, session, said, stamp, fork)


def earlier_events(
    tx: Transaction, owner: Owner, author: Author, done: Entry, session: str, count: int
) -> list[Event]:
    """What a key already stands for: events appended in one transaction follow each other."""
    entries = log.appended(tx, owner, session, done.sequence or 0, count)
    if any(entry.body is None for entry in entries):
        raise NotFound(f"events of session {session!r} were erased after this key was used")
    return [sessions.event_of(entry, author.scope.user) for entry in entries]


def append_in(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    session: str,
    said: Sequence[Said],
    stamp: Stamp,
    fork: Origin | None = None,
) -> list[Event]:
    """Append in order, each with the next sequence of its session."""
    known = sessions.find(tx, owner, session)
    hidden = known is not None and known.hidden_at is not None
    if hidden:
        _turn(tx, resources, owner, author, "restore", session, Stamp(reason=WENT_ON))
    last = known.last_sequence if known is not None else 0 if fork is None else fork.sequence
    events: list[Event] = []
    for each in said:
        sequence = last + 1 if each.sequence is None else each.sequence
        if sequence <= last:
            raise SequenceConflict(session, sequence, last)
        first = not events
        own = stamp if first else stamp._replace(key=None, request=None)
        origin = fork if first and known is None else None
        event = _append_one(tx, resources, owner, author, session, sequence, each, own, origin)
        events.append(event)
        last = sequence
    _await_work(tx, resources, owner, author, session, events)
    if known is None or not known.events or hidden:
        _hide_beyond_cap(tx, resources, owner)
    return events


def _append_one(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    session: str,
    sequence: int,
    said: Said,
    stamp: Stamp,
    fork: Origin | None,
) -> Event:
    when = log.advance(tx, owner.space, resources.clock.now())
    body = {"message": said.message, "at": when[1] if said.at is None else said.at}
    if said.interrupted:
        body["interrupted"] = True
    entry = writer.written(resources, author, stamp._replace(origin=fork), "append", when, body)
    entry = replace(entry, session=session, sequence=sequence)
    writer.append(tx, resources, owner, entry)
    first = sessions.add_event(tx, owner, entry, said.text.passages)
    if said.text.passages:
        writer.put_vectors(tx, resources, owner, first, said.text)
    return sessions.event_of(entry, author.scope.user)


def _await_work(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    session: str,
    events: Sequence[Event],
) -> None:
    """Queue what is to happen with these events later. Jobs of one lane run in order."""
    settings, now = resources.settings, resources.clock.now()
    if settings.learning != "off" and author.trust not in UNTRUSTED:
        for event in events:
            if said_by_user(event.message).strip():
                payload = {"session": session, "sequence": event.sequence}
                jobs.add(tx, owner, "learn", payload, due_at=now, now=now, lane=f"learn:{session}")
    await_summary(tx, resources, owner, session)


def await_summary(tx: Transaction, resources: Resources, owner: Owner, session: str) -> None:
    """A token is at least a byte: with fewer bytes than tokens nothing can be due."""
    settings = resources.settings
    known = sessions.find(tx, owner, session)
    if settings.summarising == "off" or known is None:
        return
    if known.unsummed <= settings.history_tokens * 4 // 5:
        return
    lane, now = f"summary:{session}", resources.clock.now()
    if not jobs.waits_in(tx, owner, lane):
        jobs.add(tx, owner, "summarise", {"session": session}, due_at=now, now=now, lane=lane)


# -- hiding and restoring -------------------------------------------------------------------------


def turn(resources: Resources, author: Author, op: Op, session: str, stamp: Stamp) -> None:
    """Hide a session, or bring it back. Done already, nothing happens."""
    with writing(resources, author.scope) as (tx, owner):
        if done_before(tx, owner, stamp, op, session) is not None:
            return
        known = require(tx, owner, session)
        if (known.hidden_at is not None) == (op == "hide") and stamp.key is None:
            return
        _turn(tx, resources, owner, author, op, session, stamp)


def _turn(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    op: Op,
    session: str,
    stamp: Stamp,
) -> None:
    entry = writer.append_to_session(tx, resources, owner, author, stamp, op, session)
    show(tx, resources, owner, entry)


def show(tx: Transaction, resources: Resources, owner: Owner, entry: Entry) -> None:
    """Let the index show that a session was hidden or restored."""
    assert entry.session is not None
    hidden = entry.op == "hide"
    known = sessions.find(tx, owner, entry.session)
    since = known.hidden_at if known is not None and known.hidden_at is not None else None
    sessions.set_hidden(tx, owner, entry.session, (since or entry.recorded_at) if hidden else None)
    for spot in sessions.spots(tx, owner, [Stretch(entry.session, 0, None)]):
        event = log.at_position(tx, owner, spot.position)
        assert event is not None and event.body is not None
        if hidden:
            sessions.unindex_event(tx, owner, spot, event.body["message"])
        elif not spot.passages:
            _index_again(tx, resources, owner, spot, event.body["message"])


def _index_again(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    spot: Spot,
    message: Mapping[str, Any],
) -> None:
    text = text_of_event(tx, resources, message)
    first = sessions.index_event(tx, owner, spot, text.passages)
    if text.passages:
        writer.put_vectors(tx, resources, owner, first, text)


def text_of_event(tx: Transaction, resources: Resources, message: Mapping[str, Any]) -> Text:
    """What the index needs of a message that is stored already."""
    content = sessions.readable(message)
    parts = sessions.passages_of_message(message, content)
    return writer.embedded_in(tx, resources, content, parts)


def _hide_beyond_cap(tx: Transaction, resources: Resources, owner: Owner) -> None:
    """Beyond the cap the sessions quiet for longest are hidden, with the reason."""
    cap = resources.settings.max_sessions
    if not cap:
        return
    author = Author(log.scope_of(tx, owner), "reverie", "agent")
    reason = f"the cap of {cap} sessions was reached"
    for name in sessions.quietest(tx, owner, cap):
        _turn(tx, resources, owner, author, "hide", name, Stamp(reason=reason))


# -- erasing --------------------------------------------------------------------------------------


def erase(resources: Resources, author: Author, session: str, stamp: Stamp) -> SessionErasure:
    """Destroy a session and all that hangs on it, then see that the bytes are gone."""
    with writing(resources, author.scope) as (tx, owner):
        done = done_before(tx, owner, stamp, "erase", session)
        if done is not None:
            return _report(done, pending=jobs.has(tx, owner, "scrub"))
        if not _own_memories(tx, owner, session) and not session_state.exists(tx, owner, session):
            require(tx, owner, session)
        held = [
            entry
            for entry in log.of_session(tx, owner, session)
            if entry.body is not None and entry.op != "erase"
        ]
        said = sorted(
            {writer.said_in(entry) for entry in held if entry.op == "append"}, key=len, reverse=True
        )
        entry = erase_in(tx, resources, owner, author, session, held, stamp)
        job = writer.await_scrub(tx, resources, owner)
    gone = writer.scrubbed(resources, owner, job, said[:LOOKED_FOR])
    return _report(entry, pending=not gone)


def erase_in(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    session: str,
    held: Sequence[Entry],
    stamp: Stamp,
) -> Entry:
    own = _own_memories(tx, owner, session)
    memories = _erase_memories(
        tx, resources, owner, author, session, own, lambda origin: origin.session == session
    )
    events = [entry for entry in held if entry.op == "append"]
    for event in events:
        sessions.drop_event(tx, owner, event)
    positions = [entry.position for entry in held]
    for event in events:
        assert event.session is not None and event.sequence is not None
        proposals.erase_from(tx, owner, Origin(event.session, event.sequence))
    log.blank(tx, owner, positions)
    sessions.reckon(tx, owner, session)
    sessions.end(tx, owner, session)
    session_state.wipe(tx, owner, session)
    resources.notes.drop(sessions.scoped(author.scope, session))
    tx.run("DELETE FROM recalls WHERE space = ? AND owner = ? AND session = ?", (*owner, session))
    for lane in (f"learn:{session}", f"summary:{session}"):
        jobs.drop_lane(tx, owner, lane)
    body = {"entries": positions, "events": len(events), "memories": memories}
    return writer.append_to_session(
        tx, resources, owner, author, stamp, "erase", session, body=body
    )


def erase_one(resources: Resources, author: Author, origin: Origin, stamp: Stamp) -> SessionErasure:
    """Destroy what one event said, and see that the bytes are gone."""
    with writing(resources, author.scope) as (tx, owner):
        done = done_before(tx, owner, stamp, "erase", origin.session)
        if done is not None:
            return _report(done, pending=jobs.has(tx, owner, "scrub"))
        event = sessions.entry_of(tx, owner, origin) if possible(origin.sequence) else None
        if event is None:
            raise NotFound(f"session {origin.session!r} has no event {origin.sequence!r}")
        said = writer.said_in(event)
        memories = _erase_memories(
            tx, resources, owner, author, origin.session, (), lambda source: source == origin
        )
        positions = writer.erase_event(tx, owner, origin)
        body = {"entries": positions, "events": 1, "memories": memories}
        entry = writer.append_to_session(
            tx, resources, owner, author, stamp, "erase", *origin, body
        )
        job = writer.await_scrub(tx, resources, owner)
    return _report(entry, pending=not writer.scrubbed(resources, owner, job, [said]))


def _erase_memories(
    tx: Transaction,
    resources: Resources,
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
    for memory in sorted({*own, *log.from_session(tx, owner, session)}):
        place = index.find(tx, owner, memory)
        if place is None:
            continue
        held = log.versions(tx, owner, memory)
        tainted = _tainted(held, is_source)
        if memory in own or all(tainted):
            writer.erase_in(tx, resources, owner, author, place, held, False, Stamp())
            erased.append(memory)
        elif any(tainted):
            _overwrite(tx, resources, owner, place, held, tainted)
    return erased


def _tainted(held: Sequence[Entry], is_source: Callable[[Origin], bool]) -> list[bool]:
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
    resources: Resources,
    owner: Owner,
    place: index.Place,
    held: Sequence[Entry],
    tainted: Sequence[bool],
) -> None:
    old = writer.current_entry(tx, owner, place).state(None)
    clean = [entry for entry, flag in zip(held, tainted, strict=True) if not flag and entry.body]
    for entry, flag in zip(held, tainted, strict=True):
        if flag and entry.body is not None:
            before = [each for each in clean if each.version < entry.version]
            kept = (before[-1] if before else clean[0]).body or {}
            log.overwrite(
                tx, owner, entry.position, {**entry.body, **{name: kept[name] for name in WORDS}}
            )
    if tainted[-1]:
        new = writer.current_entry(tx, owner, place).state(None)
        index.remove(tx, owner, place, old)
        text = writer.text_of(tx, resources, new)
        first = index.add(tx, owner, place.born, place.position, new, text.passages)
        if new.forgotten_at is None:
            writer.put_vectors(tx, resources, owner, first, text)


def _own_memories(tx: Transaction, owner: Owner, session: str) -> list[str]:
    chosen = index.Filter(sessions=(session,), include_forgotten=True)
    places = index.places(tx, owner, chosen)
    return [place.memory for place in places if place.session == session]


# -- parts ----------------------------------------------------------------------------------------


def done_before(tx: Transaction, owner: Owner, stamp: Stamp, op: Op, session: str) -> Entry | None:
    """The entry a key already stands for; what was erased is told by what it was about."""
    done = writer.repeated(tx, owner, stamp, about_session=True)
    if done is not None and (done.op, done.session) != (op, session):
        raise KeyConflict(stamp.key or "")
    return done


def require(tx: Transaction, owner: Owner, session: str) -> sessions.Session:
    known = sessions.find(tx, owner, session)
    if known is None or not known.events:
        raise missing(session)
    return known


def missing(session: str) -> NotFound:
    return NotFound(
        f"there is no session {session!r} here: a list shows the ones there are, "
        "and another space or user may have it"
    )


def _report(entry: Entry, pending: bool) -> SessionErasure:
    body = entry.body or {}
    return SessionErasure(
        session=entry.session or "",
        events=body.get("events", 0),
        memories=tuple(body.get("memories", ())),
        entries=tuple(body.get("entries", ())),
        position=entry.position,
        pending=pending,
    )
