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
from reverie.engine.index import Place
from reverie.engine.log import Entry
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
from reverie.write.runtime import Resources
from reverie.write.validate import (
    Draft,
    Text,
    body_of,
    key_hash,
)

# Who writes what was learned from turns.
LEARNER = "learn"
# In one write, and at least what a batch of an import brings; a cap that was lowered is reached
# over several.
MOST_EVICTED = 1_000


class Author(NamedTuple):
    """Who writes: the scope of the handle, and what the surface that made it said of the writer."""

    scope: Scope
    actor: str | None
    trust: Trust


class Stamp(NamedTuple):
    """What a write carries besides its content."""

    key: str | None = None
    request: str | None = None
    reason: str | None = None
    origin: Origin | None = None
    # Set by an import only: when and under which uuid the version was first written.
    recorded_at: int | None = None
    uuid: str | None = None


class New(NamedTuple):
    """A memory to be added, under an id that is free."""

    memory: str
    draft: Draft
    stamp: Stamp


@contextlib.contextmanager
def writing(resources: Resources, scope: Scope) -> Iterator[tuple[Transaction, Owner]]:
    """A write transaction of one owner. Recall notes of its space go along."""
    with resources.engine.write() as tx:
        owner = log.ensure_owner(tx, scope.space, scope.user)
        index.require_rules(tx)
        yield tx, owner
        resources.notes.write(tx, scope.space)


def append(tx: Transaction, resources: Resources, owner: Owner, *entries: Entry) -> None:
    """Write entries to the log, and see that the vault will show them."""
    log.append(tx, owner, *entries)
    vault_link.await_mirror(tx, resources, owner)


def repeated(
    tx: Transaction, owner: Owner, stamp: Stamp, *, about_session: bool = False
) -> Entry | None:
    """The entry an idempotency key already stands for."""
    hashed = key_hash(stamp.key)
    entry = None if hashed is None else log.by_key(tx, owner, hashed)
    if entry is None or stamp.key is None:
        return None
    # What was erased lost its request: then the kind of thing it was about has to do.
    same = entry.request == stamp.request if entry.request else bool(entry.memory) != about_session
    if not same:
        raise KeyConflict(stamp.key)
    return entry


def earlier_state(entry: Entry, author: Author) -> Memory:
    if entry.body is None or entry.op == "erase":
        raise NotFound(f"memory {entry.memory} was erased after this key was used")
    return entry.state(author.scope.user)


# -- verbs ----------------------------------------------------------------------------------------


def remember(
    resources: Resources, author: Author, draft: Draft, stamp: Stamp, force: bool
) -> Memory:
    with writing(resources, author.scope) as (tx, owner):
        done = repeated(tx, owner, stamp)
        if done is not None:
            return earlier_state(done, author)
        key = subject_key(draft.subject)
        if key is not None and not force:
            now = resources.clock.now()
            existing = index.find_subject(tx, owner, draft.category, key, now, draft.session)
            if existing is not None:
                raise SubjectExists(current_entry(tx, owner, existing).state(author.scope.user))
        return add_memory(tx, resources, owner, author, draft, stamp)


def add_memory(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    draft: Draft,
    stamp: Stamp,
) -> Memory:
    """Append version 1 of a new memory and index it."""
    new = New(_fresh_id(tx, resources, owner), draft, stamp)
    return add_memories(tx, resources, owner, author, [new])[0]


def add_memories(
    tx: Transaction, resources: Resources, owner: Owner, author: Author, news: Sequence[New]
) -> list[Memory]:
    """The same for many, in their order. Their ids are free, and no two are equal."""
    if not news:
        return []
    now = resources.clock.now()
    whens = log.advance_each(tx, owner, [_time(new.stamp, now) for new in news])
    states = [_first_state(author, new, when[1]) for new, when in zip(news, whens, strict=True)]
    added = list(zip(news, states, whens, strict=True))
    entries = [
        _entry(resources, author, new.stamp, "remember", state, when, new.draft.document)
        for new, state, when in added
    ]
    append(tx, resources, owner, *entries)
    indexed = [
        index.Current(position, position, state, new.draft.text.passages)
        for new, state, (position, _) in added
    ]
    first = index.add_all(tx, owner, indexed)
    put_vectors(tx, resources, owner, first, *(new.draft.text for new in news))
    for new, state, (position, _) in added:
        if new.draft.document is not None and state.source is not None:
            keep_document(tx, owner, state.source, position, new.draft.document)
        if state.expires_at is not None:
            await_expiry(tx, resources, owner, state)
    for kind, last in {state.kind: position for _, state, (position, _) in added}.items():
        evict(tx, resources, owner, kind, sparing=last)
    return states


def _first_state(author: Author, new: New, recorded_at: int) -> Memory:
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
    resources: Resources,
    author: Author,
    memory_id: str,
    op: Op,
    stamp: Stamp,
    alter: Callable[[Memory, int], Memory | None],
    text: Text | None = None,
    document: str | None = None,
) -> Memory:
    """Append the next version. ``alter`` gives the new state, or None when nothing is to change."""
    with writing(resources, author.scope) as (tx, owner):
        done = repeated(tx, owner, stamp)
        if done is not None:
            return earlier_state(done, author)
        place = own_place(tx, owner, author, memory_id)
        return change_in(tx, resources, owner, author, place, op, stamp, alter, text, document)


def change_in(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    place: Place,
    op: Op,
    stamp: Stamp,
    alter: Callable[[Memory, int], Memory | None],
    text: Text | None = None,
    document: str | None = None,
) -> Memory:
    entry = current_entry(tx, owner, place)
    old = entry.state(author.scope.user)
    now = _time(stamp, resources.clock.now())
    altered = alter(old, log.recording_time(tx, owner, now))
    if altered is None and stamp.key is None:
        return old
    position, recorded_at = log.advance(tx, owner.space, now)
    # With a key even "nothing to do" is written down: repeated later, it must not act.
    new = replace(altered or old, version=old.version + 1)
    hash_ = document or (entry.body or {}).get("document")
    when = (position, recorded_at)
    append(tx, resources, owner, _entry(resources, author, stamp, op, new, when, hash_))
    was, is_now = old.forgotten_at is None, new.forgotten_at is None
    if was == is_now and text is None:
        index.relabel(tx, owner, place, position, old, new)
        return new
    index.remove(tx, owner, place, old)
    if is_now and text is None:
        text = text_of(tx, resources, new)
    first = index.add(tx, owner, place.born, position, new, text.passages if text else [])
    if text is not None and is_now:
        put_vectors(tx, resources, owner, first, text)
    if document is not None and new.source is not None:
        keep_document(tx, owner, new.source, place.born, document)
    return new


def erase(
    resources: Resources, author: Author, memory_id: str, with_source: bool, stamp: Stamp
) -> ErasureReport:
    """Destroy every version of a memory, then see that the bytes are gone from the files too."""
    with writing(resources, author.scope) as (tx, owner):
        done = repeated(tx, owner, stamp)
        if done is not None:
            if (done.op, done.memory) != ("erase", memory_id):
                raise KeyConflict(stamp.key or "")
            return _report(done, pending=jobs.has(tx, owner, "scrub"))
        place = own_place(tx, owner, author, memory_id)
        held = log.versions(tx, owner, memory_id)
        erased = {log.encode(entry.body["content"])[1:-1] for entry in held if entry.body}
        if with_source:
            said = [sessions.entry_of(tx, owner, entry.origin) for entry in held if entry.origin]
            erased |= {said_in(entry) for entry in said if entry is not None}
        entry = erase_in(tx, resources, owner, author, place, held, with_source, stamp)
        job = await_scrub(tx, resources, owner)
    return _report(entry, pending=not scrubbed(resources, owner, job, sorted(erased)))


def await_scrub(tx: Transaction, resources: Resources, owner: Owner) -> int:
    """Queue the end of an erasure, in the transaction that blanks what is erased."""
    now = resources.clock.now()
    return jobs.add(tx, owner, "scrub", {}, due_at=now, now=now)


def scrubbed(resources: Resources, owner: Owner, job: int, erased: Sequence[str]) -> bool:
    """Whether these texts are gone from the files; while they are not, the job stays."""
    gone = resources.engine.scrub(erased)
    if gone:
        with resources.engine.write() as tx, contextlib.suppress(NotFound):
            tx.enter(owner)
            jobs.drop(tx, owner.space, job)
    return gone


def erase_in(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    place: Place,
    held: list[Entry],
    with_source: bool,
    stamp: Stamp,
) -> Entry:
    old = current_entry(tx, owner, place).state(author.scope.user)
    index.remove(tx, owner, place, old)
    tx.run("DELETE FROM documents WHERE space = ? AND owner = ? AND born = ?", (*owner, place.born))
    positions = [entry.position for entry in held] + proposals.erase_of(tx, owner, old.id)
    sources = sorted({entry.origin for entry in held if entry.origin}) if with_source else []
    events = [found for origin in sources for found in erase_event(tx, owner, origin)]
    log.blank(tx, owner, positions + events)
    when = log.advance(tx, owner.space, resources.clock.now())
    body = {"entries": positions + events, "passages": place.passages, "sources": sources}
    entry = replace(
        written(resources, author, stamp, "erase", when, body),
        memory=old.id,
        version=held[-1].version + 1,
    )
    append(tx, resources, owner, entry)
    return entry


def said_in(entry: Entry) -> str:
    """The text of an event as the log spells it, to look for in the files."""
    return log.encode(sessions.event_of(entry, None).text)[1:-1]


def erase_event(tx: Transaction, owner: Owner, origin: Origin) -> list[int]:
    """Destroy what one event said; the positions of the entries that held it."""
    entry = sessions.entry_of(tx, owner, origin)
    if entry is None:
        return []
    sessions.drop_event(tx, owner, entry)
    log.blank(tx, owner, [entry.position])
    sessions.reckon(tx, owner, *origin)
    return [entry.position, *proposals.erase_from(tx, owner, origin)]


def evict(
    tx: Transaction, resources: Resources, owner: Owner, kind: str, sparing: int | None = None
) -> None:
    """Beyond a cap the oldest is forgotten, with the reason; never what is pinned or just came."""
    cap = resources.settings.max_facts if kind == "fact" else resources.settings.max_notes
    if not cap:
        return
    statistics = index.statistics(tx, owner)
    excess = (statistics.facts if kind == "fact" else statistics.notes) - cap
    if excess <= 0:
        return
    author = Author(log.scope_of(tx, owner), "reverie", "agent")
    for place in index.oldest(tx, owner, kind, min(excess, MOST_EVICTED)):
        if place.born == sparing:
            continue
        change_in(
            tx,
            resources,
            owner,
            author,
            place,
            "forget",
            Stamp(reason=f"the cap of {cap} {kind}s was reached"),
            lambda old, at: replace(old, forgotten_at=at),
        )


# -- parts ----------------------------------------------------------------------------------------


def own_place(tx: Transaction, owner: Owner, author: Author, memory_id: str) -> Place:
    """The memory this handle may write."""
    place = index.find(tx, owner, memory_id)
    if place is not None:
        return place
    shared = Owner(owner.space, log.SHARED)
    if owner != shared and index.find(tx, shared, memory_id) is not None:
        raise SharedReadOnly(memory_id)
    raise missing(memory_id)


def missing(memory_id: str) -> NotFound:
    return NotFound(
        f"there is no memory {memory_id!r} here: a list shows the ones there are, "
        "and another space or user may have it"
    )


def current_entry(tx: Transaction, owner: Owner, place: Place) -> Entry:
    return index_check.current(tx, owner, place)


def expect(memory: Memory, version: int | None) -> None:
    if version is not None and memory.version != version:
        raise VersionConflict(memory.id, version, memory.version)


def less_trusted(one: Trust, other: Trust) -> Trust:
    return max(one, other, key=TRUSTS.index)


def put_vectors(
    tx: Transaction, resources: Resources, owner: Owner, first: int, *texts: Text
) -> None:
    """Store the vectors of texts that follow each other, or note that a job has to make them."""
    now = resources.clock.now()
    made = [text.vectors for text in texts if text.vectors is not None]
    if made and resources.embedder is not None:
        import numpy as np

        assert len(made) == len(texts)
        rows = np.concatenate(made)
        generation = embeddings.ensure(tx, resources.embedder, rows.shape[1])
        tx.put_vectors(owner, generation.number, first, rows)
        return
    tx.many(
        "INSERT INTO unembedded (space, owner, passage) VALUES (?, ?, ?)",
        [(*owner, first + i) for i in range(sum(len(text.passages) for text in texts))],
    )
    if resources.embedder is not None:
        embeddings.ensure(tx, resources.embedder, None)
        jobs.add_once(tx, owner, "embed", due_at=now, now=now)


def await_expiry(tx: Transaction, resources: Resources, owner: Owner, state: Memory) -> None:
    assert state.expires_at is not None
    now = resources.clock.now()
    jobs.add(tx, owner, "expire", {"memory": state.id}, due_at=state.expires_at, now=now)


def keep_document(tx: Transaction, owner: Owner, source: str, born: int, hash_: str) -> None:
    tx.run(
        "INSERT INTO documents (space, owner, source, born, hash) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (space, owner, source) DO UPDATE SET born = excluded.born, "
        "hash = excluded.hash",
        (*owner, source, born, hash_),
    )


def text_of(tx: Transaction, resources: Resources, state: Memory) -> Text:
    """What the index needs of a content that is stored already."""
    parts = index.passages_of(state.content)
    if state.forgotten_at is not None:
        return Text(state.content, parts, state.concept_tags, None)
    return replace(
        embedded_in(tx, resources, state.content, parts), concept_tags=state.concept_tags
    )


def embedded_in(
    tx: Transaction, resources: Resources, content: str, parts: list[index.Passage]
) -> Text:
    """Passages and, from a local embedder, their vectors, within a transaction."""
    embedder = resources.embedder
    vectors = None
    if embedder is not None and not embedder.remote and parts:
        embeddings.require(tx, embedder)
        vectors = embedder.embed([part.text for part in parts])
    return Text(content, parts, (), vectors)


def _entry(
    resources: Resources,
    author: Author,
    stamp: Stamp,
    op: Op,
    state: Memory,
    when: tuple[int, int],
    document: str | None,
) -> Entry:
    more = {} if document is None else {"document": document}
    body = body_of(state, **more)
    return written(resources, author, stamp, op, when, body, state.id, state.version)


def append_to_session(
    tx: Transaction,
    resources: Resources,
    owner: Owner,
    author: Author,
    stamp: Stamp,
    op: Op,
    session: str,
    sequence: int | None = None,
    body: Mapping[str, Any] | None = None,
) -> Entry:
    """Append an entry about a session, or about one event of it."""
    when = log.advance(tx, owner.space, resources.clock.now())
    entry = written(resources, author, stamp, op, when, {} if body is None else body)
    entry = replace(entry, session=session, sequence=sequence)
    append(tx, resources, owner, entry)
    return entry


def written(
    resources: Resources,
    author: Author,
    stamp: Stamp,
    op: Op,
    when: tuple[int, int],
    body: Mapping[str, Any],
    memory: str = "",
    version: int = 0,
) -> Entry:
    """An entry as its author writes it. ``when``: position and time."""
    return Entry(
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
        uuid=stamp.uuid or resources.ids.uuid(),
        body=body,
    )


def _fresh_id(tx: Transaction, resources: Resources, owner: Owner) -> str:
    for _ in range(100):
        candidate = resources.ids.memory()
        if not log.id_taken(tx, owner, candidate):
            return candidate
    raise StoreError("the id source gave a hundred ids that are all taken: use another one")


def _time(stamp: Stamp, now: int) -> int:
    """An import keeps its times, but never runs ahead of the clock."""
    return now if stamp.recorded_at is None else min(stamp.recorded_at, now)


def _report(entry: Entry, pending: bool) -> ErasureReport:
    body = entry.body or {}
    return ErasureReport(
        memory_id=entry.memory,
        entries=tuple(body.get("entries", ())),
        passages=body.get("passages", 0),
        sources=tuple(Origin(*source) for source in body.get("sources", ())),
        position=entry.position,
        pending=pending,
    )
