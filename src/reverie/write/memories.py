"""Writing memories: remember, revise, forget, restore and erase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from reverie.agenda import jobs
from reverie.dates import optional_ms
from reverie.engine import index, index_check, log, sessions
from reverie.engine.index import MemoryRow
from reverie.engine.index_text import DEFAULT_CATEGORY, Labels
from reverie.engine.log import LogEntry
from reverie.errors import (
    InvalidInput,
    KeyConflict,
    NotFound,
    SharedReadOnly,
    SubjectExists,
    VersionConflict,
)
from reverie.model import TRUSTS, ErasureReport, Memory, Op, Origin, Trust
from reverie.protocols import Clock, Owner, Transaction
from reverie.text.analyzer import analyse
from reverie.text.metadata import MAX_METADATA_BYTES, metadata_bytes, to_canonical
from reverie.text.normalize import require_name, subject_key, text_key
from reverie.text.tags import MAX_TAGS
from reverie.write import owners, proposals, validate
from reverie.write.runtime import Runtime
from reverie.write.validate import Draft, PreparedText
from reverie.write.writer import (
    Author,
    PendingMemory,
    StateChange,
    Writer,
    WriteStamp,
    finish_scrub,
    open_writer,
)

# How many memories of a source are read at once.
CHUNK = 500


# How many other memories of its subject ``remember`` returns with a memory.
MAX_RELATED = 10
# The share of the words of the shorter text that both have when two texts speak of the same thing.
MIN_SHARED_WORDS = 0.5
REMEMBERED_REASON = "remembered on purpose"
REPEATED_REASON = "the same text was remembered again"


def remember(w: Writer, draft: Draft, stamp: WriteStamp, *, unless_known: bool = False) -> Memory:
    """Add a memory, or touch the one that has the same text, and find what is related to it.

    ``unless_known``: raise SubjectExists if a memory of the same category and subject speaks of the
    same thing.
    """
    done = w.repeated(stamp)
    if done is not None:
        return _with_related(w, _repeated_memory(w, done))
    same = _find_same(w, draft)
    if same is None and unless_known:
        _require_new_statement(w, draft)
    _forget_learned(w, draft)
    if same is not None:
        return _with_related(w, _touch(w, same, draft, stamp))
    return _with_related(w, w.add_memory(draft, stamp))


def add(w: Writer, draft: Draft, stamp: WriteStamp) -> Memory:
    """Add a memory, even if another one has the same text."""
    done = w.repeated(stamp)
    return w.add_memory(draft, stamp) if done is None else _repeated_memory(w, done)


def remember_many(w: Writer, drafts: Sequence[Draft], stamp: WriteStamp) -> list[Memory]:
    """Remember each draft as ``remember`` does, in order; one memory for each is returned."""
    done = w.repeated(stamp)
    if done is not None:
        states = _repeated_batch(w, done, len(drafts))
        return [_with_related(w, state) for state in states]
    # The first entry has the key; the request, which all have, tells which belong to it.
    keys = iter([stamp.key])
    states, waiting = list[Memory](), list[PendingMemory]()
    taken, texts = set[str](), set[str]()
    for draft in drafts:
        own = stamp._replace(key=next(keys, None), origin=draft.origin or stamp.origin)
        text = text_key(draft.text.content)
        if text in texts:
            # It may be the same memory as one that is to be added.
            states += w.add_memories(waiting)
            waiting, texts = [], set()
        same = _find_same(w, draft)
        _forget_learned(w, draft)
        if same is None:
            waiting.append(PendingMemory(w.new_memory_id(taken), draft, own))
            taken.add(waiting[-1].memory)
            texts.add(text)
        else:
            states += w.add_memories(waiting)
            waiting, texts = [], set()
            states.append(_touch(w, same, draft, own))
    states += w.add_memories(waiting)
    return [_with_related(w, state) for state in states]


def _repeated_batch(w: Writer, done: LogEntry, size: int) -> list[Memory]:
    """Return what the first request with a key returned; an eviction may be between its entries.

    The entries of another request begin with one that has a key; an erased entry has lost its
    request.
    """
    states = []
    for entry in log.all_entries(w.tx, w.owner, after=done.position - 1):
        if done.request is None or (entry.key is not None and entry.position != done.position):
            break
        if entry.request == done.request and entry.body is not None:
            states.append(entry.state(w.user))
        if len(states) == size:
            return states
    raise NotFound("a memory that was remembered with this key was erased since")


def _find_same(w: Writer, draft: Draft) -> MemoryRow | None:
    """Find the memory that says the same as a draft: the newest of those with the same labels.

    Facts are compared by ``text_key``; notes, in which case and white space may matter, exactly.
    """
    key = subject_key(draft.subject)
    places = [
        place
        for place in index.find_by_content(w.tx, w.owner, draft.text.content, w.now())
        if (place.kind, place.session) == (draft.kind, draft.session)
        and (None in (key, place.subject_key) or key == place.subject_key)
    ]
    places.sort(key=lambda place: (place.subject_key != key, place.category != draft.category))
    # A damaged entry is left out: it must not keep its text from being remembered again.
    for place, entry in index_check.read_current_entries(w.tx, w.owner, places):
        old = entry.state(w.user)
        # The memory of a document changes with its file.
        document = (entry.body or {}).get("document")
        if document is None and _has_same_text(old, draft) and _can_merge(w, old, draft):
            return place
    return None


def _has_same_text(old: Memory, draft: Draft) -> bool:
    content = draft.text.content
    if old.kind == "note":
        return old.content == content
    return text_key(old.content) == text_key(content)


def _forget_learned(w: Writer, draft: Draft) -> None:
    """Forget what says the same and was learned without a name: the draft takes its place.

    A memory with a label, a time, a pin or metadata that the draft lacks stays.
    """
    for owner in owners.writable_owners(w.tx, w.author.scope):
        each = replace(w, owner=owner)
        same = None if owner == w.owner else _find_same(each, draft)
        if same is not None and _covers(draft, each.read_memory(same)):
            stamp = WriteStamp(reason=REMEMBERED_REASON)
            each.change_memory(same, "forget", stamp, lambda old, at: replace(old, forgotten_at=at))


def _covers(draft: Draft, old: Memory) -> bool:
    """Whether a draft has everything that an old memory of the same text has."""
    times = zip(_times(old), _times(draft), strict=True)
    return (
        old.pinned <= draft.pinned
        and {*old.tags} <= {*draft.tags}
        and old.metadata.keys() <= draft.metadata.keys()
        and old.category in {DEFAULT_CATEGORY, draft.category}
        and (old.subject is None or draft.subject is not None)
        and all(mine is None or theirs is not None for mine, theirs in times)
    )


def _times(of: Memory | Draft) -> tuple[int | None, int | None, int | None]:
    return of.happened_at, of.valid_from, of.valid_to


def _can_merge(w: Writer, old: Memory, draft: Draft) -> bool:
    """Whether one memory can have the times, tags and metadata of both.

    Another value of a time or under a key of the metadata tells two things apart, a value that
    only one has does not.
    """
    if any(
        None not in pair and pair[0] != pair[1]
        for pair in zip(_times(old), _times(draft), strict=True)
    ):
        return False
    if not _can_merge_validity(w, old, draft):
        return False
    both = old.metadata.keys() & draft.metadata.keys()
    if any(to_canonical(old.metadata[key]) != to_canonical(draft.metadata[key]) for key in both):
        return False
    return (
        len({*old.tags, *draft.tags}) <= MAX_TAGS
        and metadata_bytes({**old.metadata, **draft.metadata}) <= MAX_METADATA_BYTES
    )


def _can_merge_validity(w: Writer, old: Memory, draft: Draft) -> bool:
    """Whether a draft says of a time what a memory says of one, or adds what that one lacks.

    What is said without a time is said of now, and so it is not what has ended or has yet to begin,
    nor becomes what has yet to begin. A less trusted author adds no validity to a memory: what that
    one says of another time stands by itself.
    """
    _, begin, end = _merged_times(old, draft)
    if begin is not None and end is not None and begin >= end:
        return False
    if _is_less_trusted(w, old) and (begin, end) != (old.valid_from, old.valid_to):
        return False
    if draft.valid_from is None and draft.valid_to is None:
        return _holds_at(old, w.now())
    is_untimed = old.valid_from is None and old.valid_to is None
    return not is_untimed or draft.valid_from is None or draft.valid_from <= w.now()


def _merged_times(old: Memory, draft: Draft) -> tuple[int | None, int | None, int | None]:
    happened_at, valid_from, valid_to = (
        theirs if mine is None else mine
        for mine, theirs in zip(_times(old), _times(draft), strict=True)
    )
    return happened_at, valid_from, valid_to


def _holds_at(memory: Memory, at: int) -> bool:
    begin, end = memory.valid_from, memory.valid_to
    return (begin is None or begin <= at) and (end is None or at < end)


def _is_less_trusted(w: Writer, memory: Memory) -> bool:
    """Whether the author of a writer is less trusted than that of a memory."""
    return less_trusted(memory.trust, w.author.trust) == w.author.trust != memory.trust


def _touch(w: Writer, place: MemoryRow, draft: Draft, stamp: WriteStamp) -> Memory:
    """Write a version of a memory that was remembered again, with what the draft adds to it.

    What the memory has stays: its text as it was written, its subject, and its category unless
    that is the default. Of two categories that were chosen the first one stays, since the same text
    of one kind is one memory, whatever it is filed under; ``revise`` changes it. The text is
    vouched for by the more trusted of both authors; a less trusted one adds nothing.
    The later source counts. One that does not is named in the reason.
    """
    trust = w.author.trust
    before = w.read_memory(place)
    is_less_trusted = _is_less_trusted(w, before)
    keeps_source = is_less_trusted or draft.source is None
    source = before.source if keeps_source else draft.source

    def altered(old: Memory, at: int) -> Memory:
        if is_less_trusted:
            return replace(old, updated_at=at)
        ends = (old.expires_at, draft.expires_at)
        happened_at, valid_from, valid_to = _merged_times(old, draft)
        return replace(
            old,
            category=draft.category if old.category == DEFAULT_CATEGORY else old.category,
            subject=old.subject or draft.subject,
            tags=tuple(dict.fromkeys((*old.tags, *draft.tags))),
            metadata={**old.metadata, **draft.metadata},
            happened_at=happened_at,
            valid_from=valid_from,
            valid_to=valid_to,
            pinned=old.pinned or draft.pinned,
            expires_at=None if None in ends else max(filter(None, ends)),
            source=source,
            trust=trust,
            updated_at=at,
        )

    reason = stamp.reason or REPEATED_REASON
    if draft.source not in {None, source}:
        reason = f"{reason}, from {draft.source}"
    memory = w.change_memory(place, "revise", stamp._replace(reason=reason), altered)
    if memory.expires_at != before.expires_at:
        w.queue_expiry(memory)
    return memory


def _require_new_statement(w: Writer, draft: Draft) -> None:
    """Raise SubjectExists if a memory of the same category and subject speaks of the same."""
    key = subject_key(draft.subject)
    if draft.subject is None or key is None:
        return
    places = index.find_by_subject(
        w.tx, w.owner, key, w.now(), draft.session, limit=validate.MAX_ITEMS
    )
    about = (draft.category, draft.session)
    same = [place for place in places if (place.category, place.session) == about]
    for _, entry in index_check.read_current_entries(w.tx, w.owner, same):
        old = entry.state(w.user)
        if speak_of_same_thing(draft.text.content, old.content, draft.subject):
            raise SubjectExists(old)


def speak_of_same_thing(one: str, other: str, subject: str) -> bool:
    """Whether two texts about one subject share half of the words of the shorter one.

    Neither the subject's own name counts nor numbers, which are what changes about a thing.
    """
    name = analyse(subject).counts.keys()
    words = [
        {word for word in analyse(text).counts.keys() - name if not word.isdecimal()}
        for text in (one, other)
    ]
    shared = len(words[0] & words[1])
    return words[0] == words[1] or shared > 0 and shared >= MIN_SHARED_WORDS * min(map(len, words))


def _with_related(w: Writer, memory: Memory) -> Memory:
    """Return a memory with what else the author can see of its subject, the newest first."""
    key = subject_key(memory.subject)
    if key is None:
        return memory
    related = []
    for owner, user in owners.visible_owners(w.tx, w.author.scope).items():
        places = index.find_by_subject(
            w.tx, owner, key, w.now(), memory.session, limit=MAX_RELATED + 1
        )
        entries = index_check.read_current_entries(w.tx, owner, places)
        related += [(place.first_position, entry.state(user)) for place, entry in entries]
    related.sort(key=lambda pair: -pair[0])
    others = [state for _, state in related if state.id != memory.id]
    return replace(memory, related=tuple(others[:MAX_RELATED]))


def change(
    w: Writer,
    memory_id: str,
    op: Op,
    stamp: WriteStamp,
    alter: StateChange,
    text: PreparedText | None = None,
) -> Memory:
    """Append the next version of a memory that this author may write."""
    done = w.repeated(stamp)
    if done is not None:
        return _repeated_memory(w, done)
    return w.change_memory(_find_writable(w, memory_id), op, stamp, alter, text)


def _repeated_memory(w: Writer, entry: LogEntry) -> Memory:
    """Return what the first request with a key returned."""
    if entry.body is None or entry.op == "erase":
        raise NotFound(f"memory {entry.memory} was erased after this key was used")
    return entry.state(w.user)


def _find_writable(w: Writer, memory_id: str) -> MemoryRow:
    """Find a memory that this author may write, or raise SharedReadOnly or NotFound."""
    place = index.find(w.tx, w.owner, memory_id)
    if place is not None:
        return place
    shared = Owner(w.owner.space, log.SHARED_OWNER)
    if w.owner != shared and index.find(w.tx, shared, memory_id) is not None:
        raise SharedReadOnly(memory_id)
    raise memory_not_found(memory_id)


def memory_not_found(memory_id: str) -> NotFound:
    """Return the error for an id that this scope has no memory of."""
    return NotFound(
        f"there is no memory {memory_id!r} in this space: list them to see the ids; "
        "it may belong to another space or user"
    )


# -- changes of one memory ------------------------------------------------------------------------


class Revision(NamedTuple):
    """The fields that change, and the new content, split and embedded, if there is one."""

    changes: dict[str, Any]
    text: PreparedText | None

    def alter(self, trust: Trust, expected_version: int | None) -> StateChange:
        """Return the change that a revision by an author of this trust makes."""

        def altered(old: Memory, at: int) -> Memory:
            if old.forgotten_at is not None:
                raise NotFound(f"memory {old.id} is forgotten: restore it first")
            _check_version(old, expected_version)
            # Changing only a label must not raise the trust of a content that another wrote.
            kept = trust if self.text is not None else less_trusted(old.trust, trust)
            more: dict[str, Any] = (
                {} if self.text is None else {"concept_tags": self.text.concept_tags}
            )
            new = replace(old, **self.changes, **more, trust=kept, updated_at=at)
            validate.check_validity(new.valid_from, new.valid_to)
            return new

        return altered


_REVISED_FIELDS: Mapping[str, Callable[[Runtime, Any], Any]] = {
    "category": validate.redact_category,
    "subject": validate.redact_subject,
    "tags": validate.redact_tags,
    "pinned": lambda _, pinned: bool(pinned),
    "metadata": validate.redact_metadata,
    "valid_from": lambda _, at: optional_ms(at, "valid_from"),
    "valid_to": lambda _, at: optional_ms(at, "valid_to"),
}


def prepare_revision(
    runtime: Runtime, content: str | None, given: Mapping[str, Any], current: Callable[[], Memory]
) -> Revision:
    """Check a revision, redact it, and embed its content, before the write transaction.

    ``given`` maps fields to their new values; those with ``...`` stay as they are. ``current``
    returns the memory as it is; it is called only when there is a content.
    """
    changes: dict[str, Any] = {
        name: _REVISED_FIELDS[name](runtime, value)
        for name, value in given.items()
        if value is not ...
    }
    if content is None and not changes:
        fields = ", ".join(_REVISED_FIELDS)
        raise InvalidInput(f"nothing to revise: give a content or one of {fields}")
    if content is None:
        return Revision(changes, None)
    old = current()
    content = validate.redact_content(runtime, content, old.kind)
    revised = replace(old, **changes, content=content)
    text = validate.prepare_text(runtime, content, Labels.of(revised))
    return Revision(changes | {"content": content}, text)


def forget_change(expected_version: int | None) -> StateChange:
    """Return the change that forgets a memory; it does nothing to a forgotten one."""

    def altered(old: Memory, at: int) -> Memory | None:
        if old.forgotten_at is not None:
            return None
        _check_version(old, expected_version)
        return replace(old, forgotten_at=at)

    return altered


def restore_change(clock: Clock) -> StateChange:
    """Return the change that restores a forgotten memory; it does nothing to any other."""

    def altered(old: Memory, at: int) -> Memory | None:
        if old.forgotten_at is None:
            return None
        # An expiry in the past would make the restored memory disappear again at once.
        expires_at = None if old.is_expired(clock.now()) else old.expires_at
        return replace(old, forgotten_at=None, expires_at=expires_at)

    return altered


def _check_version(memory: Memory, version: int | None) -> None:
    if version is not None and memory.version != version:
        raise VersionConflict(memory.id, version, memory.version)


def less_trusted(one: Trust, other: Trust) -> Trust:
    """Return the lower of two trusts."""
    return max(one, other, key=TRUSTS.index)


# -- all memories of one source -------------------------------------------------------------------


def normalize_source(runtime: Runtime, source: str) -> str:
    """Return the name of a source as memories store it, redacted."""
    require_name(source, "source", validate.MAX_SOURCE_CHARS)
    kept = runtime.redaction.quiet(source, "source")
    return require_name(kept, "source", validate.MAX_SOURCE_CHARS)


def memories_from_source(runtime: Runtime, author: Author, source: str) -> list[Memory]:
    """List the memories that ``forget_source`` would forget, the oldest first."""
    with runtime.engine.read() as tx:
        found = [
            (place.first_position, entry.state(author.scope.shown_user))
            for owner in owners.writable_owners(tx, author.scope)
            for place, entry in _read_source(tx, owner, source)
        ]
    return [state for _, state in sorted(found, key=lambda pair: pair[0])]


def forget_source(w: Writer, source: str, stamp: WriteStamp) -> list[Memory]:
    """Forget every memory that a source wrote, each with a version that ``restore`` undoes."""
    writers = [replace(w, owner=owner) for owner in owners.writable_owners(w.tx, w.author.scope)]
    for each in writers:
        if (done := each.repeated(stamp)) is not None:
            return _repeated_forgets(writers, done)
    # The first version carries the key; the request, which all carry, tells which belong to it.
    keys = iter([stamp.key])
    return [
        each.change_memory(
            place,
            "forget",
            stamp._replace(key=next(keys, None)),
            lambda old, at: replace(old, forgotten_at=at),
        )
        for each in writers
        for place, _ in list(_read_source(each.tx, each.owner, source))
    ]


def _read_source(
    tx: Transaction, owner: Owner, source: str
) -> Iterator[tuple[MemoryRow, LogEntry]]:
    """Read the memories from a source, those of single sessions included."""
    places = index.list_memories(tx, owner, index.Filter(sessions=None))
    places.sort(key=lambda place: place.first_position)
    for first in range(0, len(places), CHUNK):
        chunk = places[first : first + CHUNK]
        for place, entry in index_check.read_current_entries(tx, owner, chunk):
            if entry.body is not None and entry.body["source"] == source:
                yield place, entry


def _repeated_forgets(writers: Sequence[Writer], done: LogEntry) -> list[Memory]:
    """Return what the first request with a key returned: its entries follow each other."""
    states, next_position = [], done.position
    for w in writers:
        for entry in log.all_entries(w.tx, w.owner, after=next_position - 1):
            if entry.position != next_position or entry.request != done.request:
                break
            if entry.body is None:
                raise NotFound(f"memory {entry.memory} was erased after this key was used")
            states.append(entry.state(w.user))
            next_position += 1
    return states


# -- erasing --------------------------------------------------------------------------------------


def erase(
    runtime: Runtime, author: Author, memory_id: str, with_source: bool, stamp: WriteStamp
) -> ErasureReport:
    """Destroy every version of a memory, then remove its text from the database files."""
    with open_writer(runtime, author, owners.memory_target(memory_id)) as w:
        done = w.repeated(stamp)
        if done is not None:
            if (done.op, done.memory) != ("erase", memory_id):
                raise KeyConflict(stamp.key or "")
            return _report(done, pending=jobs.has_job(w.tx, w.owner, "scrub"))
        place = _find_writable(w, memory_id)
        held = log.versions(w.tx, w.owner, memory_id)
        erased = {log.encode(entry.body["content"])[1:-1] for entry in held if entry.body}
        if with_source:
            source_events = [
                sessions.find_event_entry(w.tx, source_owner(w, entry.origin), entry.origin)
                for entry in held
                if entry.origin
            ]
            erased |= {encoded_text(entry) for entry in source_events if entry is not None}
        entry = erase_memory(w, place, held, with_source, stamp)
        job = w.queue("scrub")
    return _report(entry, pending=not finish_scrub(runtime, w.owner, job, sorted(erased)))


def erase_memory(
    w: Writer, place: MemoryRow, held: list[LogEntry], with_source: bool, stamp: WriteStamp
) -> LogEntry:
    """Blank every version of a memory, ``held``, in the log, and return the ``erase`` entry.

    ``with_source`` blanks the events that they came from as well.
    """
    tx, owner = w.tx, w.owner
    old = w.read_memory(place)
    index.remove_memory(tx, owner, place, old)
    tx.run(
        "DELETE FROM documents WHERE space = ? AND owner = ? AND born = ?",
        (*owner, place.first_position),
    )
    positions = [entry.position for entry in held] + proposals.erase_for_memory(tx, owner, old.id)
    for other in owners.writable_owners(tx, w.author.scope):
        if other != owner and (proposed := proposals.erase_for_memory(tx, other, old.id)):
            source = log.find_at_position(tx, other, proposed[0])
            assert source is not None and source.session is not None
            note_erasure(replace(w, owner=other), source.session, source.sequence, proposed)
    sources = sorted({entry.origin for entry in held if entry.origin}) if with_source else []
    events = [position for origin in sources for position in _erase_source(w, origin)]
    log.erase_content(tx, owner, positions)
    body = {"entries": positions + events, "passages": place.passages, "sources": sources}
    version = held[-1].version + 1
    entry = w.build_entry(stamp, "erase", w.next_position(), body, old.id, version)
    w.append(entry)
    return entry


def _erase_source(w: Writer, origin: Origin) -> list[int]:
    """Blank the event that a memory came from; return the positions of what held its text."""
    owner = source_owner(w, origin)
    positions = erase_event(w.tx, owner, origin)
    if positions and owner != w.owner:
        note_erasure(replace(w, owner=owner), *origin, positions)
    return positions


def note_erasure(w: Writer, session: str, sequence: int | None, positions: Sequence[int]) -> None:
    """Append an ``erase`` entry for what an erasure of another owner destroyed here.

    Whoever mirrors this owner's log learns of it there alone.
    """
    body = {"entries": list(positions), "events": 0, "memories": []}
    w.append_to_session(WriteStamp(), "erase", session, sequence, body)


def source_owner(w: Writer, origin: Origin) -> Owner:
    """Return the owner of the event that a memory came from: it need not be the memory's."""
    target = owners.session_target(origin.session)
    return owners.find_target(w.tx, w.author.scope, target) or w.owner


def erase_event(tx: Transaction, owner: Owner, origin: Origin) -> list[int]:
    """Blank one event in the log; return the positions of the entries that held its text."""
    entry = sessions.find_event_entry(tx, owner, origin)
    if entry is None:
        return []
    sessions.drop_event(tx, owner, entry)
    log.erase_content(tx, owner, [entry.position])
    sessions.recompute_session(tx, owner, *origin)
    return [entry.position, *proposals.erase_for_event(tx, owner, origin)]


def encoded_text(entry: LogEntry) -> str:
    """Return the text of an event as the log encodes it, to search the database files for."""
    return log.encode(sessions.event_from_entry(entry, None).text)[1:-1]


def _report(entry: LogEntry, pending: bool) -> ErasureReport:
    body = entry.body or {}
    return ErasureReport(
        memory_id=entry.memory,
        entries=tuple(body.get("entries", ())),
        passages=body.get("passages", 0),
        sources=tuple(Origin(*source) for source in body.get("sources", ())),
        position=entry.position,
        pending=pending,
    )
