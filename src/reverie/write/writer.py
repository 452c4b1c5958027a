"""The only sequencer of writes: each verb is one transaction that appends to the log.

The state, the index, the vectors of a local embedder and the jobs a change causes are written in
that same transaction, so that nothing is ever half there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from reverie.agenda import jobs
from reverie.engine import (
    index,
    index_check,
    log,
    sessions,
)
from reverie.engine.index import MemoryRow
from reverie.engine.log import LogEntry
from reverie.errors import (
    KeyConflict,
    NotFound,
    SharedReadOnly,
    StoreError,
    SubjectExists,
    VersionConflict,
)
from reverie.model import TRUSTS, ErasureReport, Memory, Op, Origin, Scope, Trust
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import subject_key
from reverie.write import embeddings, proposals, vault_link
from reverie.write.runtime import Runtime
from reverie.write.validate import (
    Draft,
    PreparedText,
    key_hash,
    memory_body,
)

# Who writes what was learned from turns.
LEARNER = "learn"
# In one write, and at least what a batch of an import brings; a cap that was lowered is reached
# over several.
MAX_EVICTED = 1_000


class Author(NamedTuple):
    """Who writes: the scope of the handle, and what the surface that made it said of the writer."""

    scope: Scope
    actor: str | None
    trust: Trust


class WriteStamp(NamedTuple):
    """What a write carries besides its content."""

    key: str | None = None
    request: str | None = None
    reason: str | None = None
    origin: Origin | None = None
    # Set by an import only: when and under which uuid the version was first written.
    recorded_at: int | None = None
    uuid: str | None = None


class PendingMemory(NamedTuple):
    """A memory to be added, under an id that is free."""

    memory: str
    draft: Draft
    stamp: WriteStamp


@contextlib.contextmanager
def write_transaction(runtime: Runtime, scope: Scope) -> Iterator[tuple[Transaction, Owner]]:
    """A write transaction of one owner. Recall notes of its space go along."""
    with runtime.engine.write() as tx:
        owner = log.ensure_owner(tx, scope.space, scope.user)
        index.require_current_index(tx)
        yield tx, owner
        runtime.notes.write(tx, scope.space)


def append(tx: Transaction, runtime: Runtime, owner: Owner, *entries: LogEntry) -> None:
    """Write entries to the log, and see that the vault will show them."""
    log.append(tx, owner, *entries)
    vault_link.queue_mirror(tx, runtime, owner)


def find_repeated(
    tx: Transaction, owner: Owner, stamp: WriteStamp, *, about_session: bool = False
) -> LogEntry | None:
    """The entry an idempotency key already stands for."""
    hashed = key_hash(stamp.key)
    entry = None if hashed is None else log.find_by_key(tx, owner, hashed)
    if entry is None or stamp.key is None:
        return None
    # What was erased lost its request: then the kind of thing it was about has to do.
    same = entry.request == stamp.request if entry.request else bool(entry.memory) != about_session
    if not same:
        raise KeyConflict(stamp.key)
    return entry


def repeated_state(entry: LogEntry, author: Author) -> Memory:
    if entry.body is None or entry.op == "erase":
        raise NotFound(f"memory {entry.memory} was erased after this key was used")
    return entry.state(author.scope.user)


# -- verbs ----------------------------------------------------------------------------------------


def remember(
    runtime: Runtime, author: Author, draft: Draft, stamp: WriteStamp, force: bool
) -> Memory:
    with write_transaction(runtime, author.scope) as (tx, owner):
        done = find_repeated(tx, owner, stamp)
        if done is not None:
            return repeated_state(done, author)
        key = subject_key(draft.subject)
        if key is not None and not force:
            now = runtime.clock.now()
            existing = index.find_subject(tx, owner, draft.category, key, now, draft.session)
            if existing is not None:
                raise SubjectExists(current_entry(tx, owner, existing).state(author.scope.user))
        return add_memory(tx, runtime, owner, author, draft, stamp)


def add_memory(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    draft: Draft,
    stamp: WriteStamp,
) -> Memory:
    """Append version 1 of a new memory and index it."""
    new = PendingMemory(_new_memory_id(tx, runtime, owner), draft, stamp)
    return add_memories(tx, runtime, owner, author, [new])[0]


def add_memories(
    tx: Transaction, runtime: Runtime, owner: Owner, author: Author, news: Sequence[PendingMemory]
) -> list[Memory]:
    """The same for many, in their order. Their ids are free, and no two are equal."""
    if not news:
        return []
    now = runtime.clock.now()
    whens = log.advance_each(tx, owner, [_recording_time(new.stamp, now) for new in news])
    states = [_first_state(author, new, when[1]) for new, when in zip(news, whens, strict=True)]
    added = list(zip(news, states, whens, strict=True))
    entries = [
        _entry(runtime, author, new.stamp, "remember", state, when, new.draft.document)
        for new, state, when in added
    ]
    append(tx, runtime, owner, *entries)
    indexed = [
        index.IndexedMemory(position, position, state, new.draft.text.passages)
        for new, state, (position, _) in added
    ]
    first = index.add_memories(tx, owner, indexed)
    put_vectors(tx, runtime, owner, first, *(new.draft.text for new in news))
    for new, state, (position, _) in added:
        if new.draft.document is not None and state.source is not None:
            put_document(tx, owner, state.source, position, new.draft.document)
        if state.expires_at is not None:
            queue_expiry(tx, runtime, owner, state)
    for kind, last in {state.kind: position for _, state, (position, _) in added}.items():
        evict(tx, runtime, owner, kind, sparing=last)
    return states


def _first_state(author: Author, new: PendingMemory, recorded_at: int) -> Memory:
    draft = new.draft
    created_at = recorded_at if draft.created_at is None else draft.created_at
    return Memory(
        id=new.memory,
        kind=draft.kind,
        content=draft.text.content,
        category=draft.category,
        subject=draft.subject,
        tags=draft.tags,
        concept_tags=draft.text.concept_tags,
        version=1,
        user=author.scope.user,
        session=draft.session,
        source=draft.source,
        trust=author.trust,
        pinned=draft.pinned,
        created_at=created_at,
        updated_at=created_at,
        happened_at=draft.happened_at,
        forgotten_at=None,
        expires_at=draft.expires_at,
    )


def change(
    runtime: Runtime,
    author: Author,
    memory_id: str,
    op: Op,
    stamp: WriteStamp,
    alter: Callable[[Memory, int], Memory | None],
    text: PreparedText | None = None,
    document: str | None = None,
) -> Memory:
    """Append the next version. ``alter`` gives the new state, or None when nothing is to change."""
    with write_transaction(runtime, author.scope) as (tx, owner):
        done = find_repeated(tx, owner, stamp)
        if done is not None:
            return repeated_state(done, author)
        place = find_writable(tx, owner, author, memory_id)
        return change_in(tx, runtime, owner, author, place, op, stamp, alter, text, document)


def change_in(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    place: MemoryRow,
    op: Op,
    stamp: WriteStamp,
    alter: Callable[[Memory, int], Memory | None],
    text: PreparedText | None = None,
    document: str | None = None,
) -> Memory:
    entry = current_entry(tx, owner, place)
    old = entry.state(author.scope.user)
    now = _recording_time(stamp, runtime.clock.now())
    altered = alter(old, log.recording_time(tx, owner, now))
    if altered is None and stamp.key is None:
        return old
    position, recorded_at = log.advance(tx, owner.space, now)
    # With a key even "nothing to do" is written down: repeated later, it must not act.
    new = replace(altered or old, version=old.version + 1)
    hash_ = document or (entry.body or {}).get("document")
    when = (position, recorded_at)
    append(tx, runtime, owner, _entry(runtime, author, stamp, op, new, when, hash_))
    was, is_now = old.forgotten_at is None, new.forgotten_at is None
    if was == is_now and text is None:
        index.update_metadata(tx, owner, place, position, old, new)
        return new
    index.remove_memory(tx, owner, place, old)
    if is_now and text is None:
        text = prepare_stored(tx, runtime, new)
    first = index.add_memory(
        tx, owner, place.first_position, position, new, text.passages if text else []
    )
    if text is not None and is_now:
        put_vectors(tx, runtime, owner, first, text)
    if document is not None and new.source is not None:
        put_document(tx, owner, new.source, place.first_position, document)
    return new


def erase(
    runtime: Runtime, author: Author, memory_id: str, with_source: bool, stamp: WriteStamp
) -> ErasureReport:
    """Destroy every version of a memory, then see that the bytes are gone from the files too."""
    with write_transaction(runtime, author.scope) as (tx, owner):
        done = find_repeated(tx, owner, stamp)
        if done is not None:
            if (done.op, done.memory) != ("erase", memory_id):
                raise KeyConflict(stamp.key or "")
            return _report(done, pending=jobs.has_job(tx, owner, "scrub"))
        place = find_writable(tx, owner, author, memory_id)
        held = log.versions(tx, owner, memory_id)
        erased = {log.encode(entry.body["content"])[1:-1] for entry in held if entry.body}
        if with_source:
            said = [
                sessions.find_event_entry(tx, owner, entry.origin) for entry in held if entry.origin
            ]
            erased |= {encoded_text(entry) for entry in said if entry is not None}
        entry = erase_in(tx, runtime, owner, author, place, held, with_source, stamp)
        job = queue_scrub(tx, runtime, owner)
    return _report(entry, pending=not finish_scrub(runtime, owner, job, sorted(erased)))


def queue_scrub(tx: Transaction, runtime: Runtime, owner: Owner) -> int:
    """Queue the end of an erasure, in the transaction that blanks what is erased."""
    now = runtime.clock.now()
    return jobs.add(tx, owner, "scrub", {}, due_at=now, now=now)


def finish_scrub(runtime: Runtime, owner: Owner, job: int, erased: Sequence[str]) -> bool:
    """Whether these texts are gone from the files; while they are not, the job stays."""
    gone = runtime.engine.scrub(erased)
    if gone:
        with runtime.engine.write() as tx, contextlib.suppress(NotFound):
            tx.enter(owner)
            jobs.drop(tx, owner.space, job)
    return gone


def erase_in(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    place: MemoryRow,
    held: list[LogEntry],
    with_source: bool,
    stamp: WriteStamp,
) -> LogEntry:
    old = current_entry(tx, owner, place).state(author.scope.user)
    index.remove_memory(tx, owner, place, old)
    tx.run(
        "DELETE FROM documents WHERE space = ? AND owner = ? AND born = ?",
        (*owner, place.first_position),
    )
    positions = [entry.position for entry in held] + proposals.erase_for_memory(tx, owner, old.id)
    sources = sorted({entry.origin for entry in held if entry.origin}) if with_source else []
    events = [found for origin in sources for found in erase_event(tx, owner, origin)]
    log.erase_content(tx, owner, positions + events)
    when = log.advance(tx, owner.space, runtime.clock.now())
    body = {"entries": positions + events, "passages": place.passages, "sources": sources}
    entry = replace(
        build_entry(runtime, author, stamp, "erase", when, body),
        memory=old.id,
        version=held[-1].version + 1,
    )
    append(tx, runtime, owner, entry)
    return entry


def encoded_text(entry: LogEntry) -> str:
    """The text of an event as the log spells it, to look for in the files."""
    return log.encode(sessions.event_from_entry(entry, None).text)[1:-1]


def erase_event(tx: Transaction, owner: Owner, origin: Origin) -> list[int]:
    """Destroy what one event said; the positions of the entries that held it."""
    entry = sessions.find_event_entry(tx, owner, origin)
    if entry is None:
        return []
    sessions.drop_event(tx, owner, entry)
    log.erase_content(tx, owner, [entry.position])
    sessions.recompute_session(tx, owner, *origin)
    return [entry.position, *proposals.erase_for_event(tx, owner, origin)]


def evict(
    tx: Transaction, runtime: Runtime, owner: Owner, kind: str, sparing: int | None = None
) -> None:
    """Beyond a cap the oldest is forgotten, with the reason; never what is pinned or just came."""
    cap = runtime.settings.max_facts if kind == "fact" else runtime.settings.max_notes
    if not cap:
        return
    statistics = index.statistics(tx, owner)
    excess = (statistics.facts if kind == "fact" else statistics.notes) - cap
    if excess <= 0:
        return
    author = Author(log.scope_of(tx, owner), "reverie", "agent")
    for place in index.oldest_unpinned(tx, owner, kind, min(excess, MAX_EVICTED)):
        if place.first_position == sparing:
            continue
        change_in(
            tx,
            runtime,
            owner,
            author,
            place,
            "forget",
            WriteStamp(reason=f"the cap of {cap} {kind}s was reached"),
            lambda old, at: replace(old, forgotten_at=at),
        )


# -- parts ----------------------------------------------------------------------------------------


def find_writable(tx: Transaction, owner: Owner, author: Author, memory_id: str) -> MemoryRow:
    """The memory this handle may write."""
    place = index.find(tx, owner, memory_id)
    if place is not None:
        return place
    shared = Owner(owner.space, log.SHARED_OWNER)
    if owner != shared and index.find(tx, shared, memory_id) is not None:
        raise SharedReadOnly(memory_id)
    raise memory_not_found(memory_id)


def memory_not_found(memory_id: str) -> NotFound:
    return NotFound(
        f"there is no memory {memory_id!r} here: a list shows the ones there are, "
        "and another space or user may have it"
    )


def current_entry(tx: Transaction, owner: Owner, place: MemoryRow) -> LogEntry:
    return index_check.read_current(tx, owner, place)


def check_version(memory: Memory, version: int | None) -> None:
    if version is not None and memory.version != version:
        raise VersionConflict(memory.id, version, memory.version)


def less_trusted(one: Trust, other: Trust) -> Trust:
    return max(one, other, key=TRUSTS.index)


def put_vectors(
    tx: Transaction, runtime: Runtime, owner: Owner, first: int, *texts: PreparedText
) -> None:
    """Store the vectors of texts that follow each other, or note that a job has to make them."""
    now = runtime.clock.now()
    made = [text.vectors for text in texts if text.vectors is not None]
    if made and runtime.embedder is not None:
        import numpy as np

        assert len(made) == len(texts)
        rows = np.concatenate(made)
        generation = embeddings.ensure(tx, runtime.embedder, rows.shape[1])
        tx.put_vectors(owner, generation.number, first, rows)
        return
    tx.many(
        "INSERT INTO unembedded (space, owner, passage) VALUES (?, ?, ?)",
        [(*owner, first + i) for i in range(sum(len(text.passages) for text in texts))],
    )
    if runtime.embedder is not None:
        embeddings.ensure(tx, runtime.embedder, None)
        jobs.add_once(tx, owner, "embed", due_at=now, now=now)


def queue_expiry(tx: Transaction, runtime: Runtime, owner: Owner, state: Memory) -> None:
    assert state.expires_at is not None
    now = runtime.clock.now()
    jobs.add(tx, owner, "expire", {"memory": state.id}, due_at=state.expires_at, now=now)


def put_document(
    tx: Transaction, owner: Owner, source: str, first_position: int, hash_: str
) -> None:
    tx.run(
        "INSERT INTO documents (space, owner, source, born, hash) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (space, owner, source) DO UPDATE SET born = excluded.born, "
        "hash = excluded.hash",
        (*owner, source, first_position, hash_),
    )


def prepare_stored(tx: Transaction, runtime: Runtime, state: Memory) -> PreparedText:
    """What the index needs of a content that is stored already."""
    parts = index.content_passages(state.content)
    if state.forgotten_at is not None:
        return PreparedText(state.content, parts, state.concept_tags, None)
    return replace(embed_in(tx, runtime, state.content, parts), concept_tags=state.concept_tags)


def embed_in(
    tx: Transaction, runtime: Runtime, content: str, parts: list[index.Passage]
) -> PreparedText:
    """Passages and, from a local embedder, their vectors, within a transaction."""
    embedder = runtime.embedder
    vectors = None
    if embedder is not None and not embedder.remote and parts:
        embeddings.require(tx, embedder)
        vectors = embedder.embed([part.text for part in parts])
    return PreparedText(content, parts, (), vectors)


def _entry(
    runtime: Runtime,
    author: Author,
    stamp: WriteStamp,
    op: Op,
    state: Memory,
    when: tuple[int, int],
    document: str | None,
) -> LogEntry:
    more = {} if document is None else {"document": document}
    body = memory_body(state, **more)
    return build_entry(runtime, author, stamp, op, when, body, state.id, state.version)


def append_to_session(
    tx: Transaction,
    runtime: Runtime,
    owner: Owner,
    author: Author,
    stamp: WriteStamp,
    op: Op,
    session: str,
    sequence: int | None = None,
    body: Mapping[str, Any] | None = None,
) -> LogEntry:
    """Append an entry about a session, or about one event of it."""
    when = log.advance(tx, owner.space, runtime.clock.now())
    entry = build_entry(runtime, author, stamp, op, when, {} if body is None else body)
    entry = replace(entry, session=session, sequence=sequence)
    append(tx, runtime, owner, entry)
    return entry


def build_entry(
    runtime: Runtime,
    author: Author,
    stamp: WriteStamp,
    op: Op,
    when: tuple[int, int],
    body: Mapping[str, Any],
    memory: str = "",
    version: int = 0,
) -> LogEntry:
    """An entry as its author writes it. ``when``: position and time."""
    return LogEntry(
        position=when[0],
        op=op,
        recorded_at=when[1],
        actor=author.actor,
        trust=author.trust,
        reason=stamp.reason,
        origin=stamp.origin,
        key=key_hash(stamp.key),
        request=stamp.request,
        memory=memory,
        version=version,
        uuid=stamp.uuid or runtime.ids.uuid(),
        body=body,
    )


def _new_memory_id(tx: Transaction, runtime: Runtime, owner: Owner) -> str:
    for _ in range(100):
        candidate = runtime.ids.memory()
        if not log.id_taken(tx, owner, candidate):
            return candidate
    raise StoreError("the id source gave a hundred ids that are all taken: use another one")


def _recording_time(stamp: WriteStamp, now: int) -> int:
    """An import keeps its times, but never runs ahead of the clock."""
    return now if stamp.recorded_at is None else min(stamp.recorded_at, now)


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
