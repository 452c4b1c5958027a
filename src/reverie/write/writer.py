"""The unit of work of the write path: one write transaction of one owner.

A ``Writer`` appends entries to the log. The current state, the index, the vectors of a local
embedder and the jobs that follow from an entry are written in the same transaction, so a crash
leaves either all of them or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from reverie.agenda import jobs
from reverie.engine import index, index_check, log
from reverie.engine.index import MemoryRow
from reverie.engine.index_text import Labels, Passage, memory_passages
from reverie.engine.log import LogEntry
from reverie.errors import KeyConflict, NotFound, StoreError
from reverie.model import Memory, Op, Origin, Scope, Trust
from reverie.protocols import Owner, Transaction
from reverie.write import embeddings, owners, vault_link
from reverie.write.owners import Target
from reverie.write.runtime import Runtime
from reverie.write.validate import Draft, PreparedText, key_hash, memory_body

# The actor of entries that were learned from conversations.
LEARNER = "learn"
# How many memories one transaction evicts. It must not be smaller than a batch of an import. A cap
# that was lowered by more is reached over several writes.
MAX_EVICTED = 1_000

StateChange = Callable[[Memory, int], Memory | None]
"""Returns the next state of a memory for its current state and the time of the change, in
milliseconds; None when nothing is to change."""


class Author(NamedTuple):
    """Who writes: the scope of the handle, and the actor and trust that the surface gave it."""

    scope: Scope
    actor: str | None
    trust: Trust


class WriteStamp(NamedTuple):
    """What a write carries besides its content."""

    key: str | None = None
    request: str | None = None
    reason: str | None = None
    origin: Origin | None = None
    # Set by imports only: when, and with which uuid, the version was first written.
    recorded_at: int | None = None
    uuid: str | None = None


class PendingMemory(NamedTuple):
    """A memory to be added, with an id that is free."""

    memory: str
    draft: Draft
    stamp: WriteStamp


@contextlib.contextmanager
def open_writer(
    runtime: Runtime, author: Author, target: Target = owners.NEW_MEMORY
) -> Iterator[Writer]:
    """Open a write transaction for the owner of the target, made on its first write.

    Buffered recall notes of the space are written with it.
    """
    scope = author.scope
    with runtime.engine.write() as tx:
        owner = owners.ensure_target(tx, scope, target)
        index.require_current_index(tx)
        yield Writer(tx, runtime, owner, author)
        runtime.notes.write(tx, scope.space)


def system_writer(tx: Transaction, runtime: Runtime, owner: Owner) -> Writer:
    """Return a writer for changes that Reverie makes by itself, in a transaction of the caller."""
    return Writer(tx, runtime, owner, system_author(log.scope_of(tx, owner)))


def system_author(scope: Scope) -> Author:
    """Return the author of changes that Reverie makes by itself."""
    return Author(scope, "reverie", "agent")


def finish_scrub(runtime: Runtime, owner: Owner, job: int, erased: Sequence[str]) -> bool:
    """Remove erased texts from the database files. Return False when that has to wait.

    ``job`` is the ``scrub`` job that was queued in the transaction of the erasure; it is dropped
    once the texts are gone.
    """
    gone = runtime.engine.scrub(erased)
    if gone:
        with runtime.engine.write() as tx, contextlib.suppress(NotFound):
            tx.enter(owner)
            jobs.drop(tx, owner.space, job)
    return gone


@dataclass(frozen=True, slots=True)
class Writer:
    """One write transaction of one owner, and the author of what it writes."""

    tx: Transaction
    runtime: Runtime
    owner: Owner
    author: Author

    @property
    def user(self) -> str | None:
        """The user whose memories are written; None for shared and unnamed ones."""
        return self.author.scope.shown_user

    def now(self) -> int:
        """Return the time of the injected clock, in milliseconds."""
        return self.runtime.clock.now()

    def by(self, author: Author) -> Writer:
        """Return a writer of the same transaction that writes in the name of another author."""
        return replace(self, author=author)

    def to(self, target: Target) -> Writer:
        """Return a writer of the same transaction and author for the owner of another target."""
        return replace(self, owner=owners.ensure_target(self.tx, self.author.scope, target))

    # -- idempotency --------------------------------------------------------------------------

    def repeated(self, stamp: WriteStamp, *, about_session: bool = False) -> LogEntry | None:
        """Return the entry that was written with the stamp's idempotency key, if there is one.

        Raises KeyConflict when that was another request.
        """
        hashed = key_hash(stamp.key)
        if hashed is None or stamp.key is None:
            return None
        # A key is used once by a handle, also by one that writes to two owners.
        used = [self.owner, *owners.writable_owners(self.tx, self.author.scope)]
        found = (log.find_by_key(self.tx, owner, hashed) for owner in dict.fromkeys(used))
        entry = next((entry for entry in found if entry is not None), None)
        if entry is None:
            return None
        # An erased entry has lost its request: all that can be compared is whether it was about a
        # memory or a session.
        same = (
            entry.request == stamp.request if entry.request else bool(entry.memory) != about_session
        )
        if not same:
            raise KeyConflict(stamp.key)
        return entry

    # -- the log ------------------------------------------------------------------------------

    def next_position(self) -> tuple[int, int]:
        """Take the next position of the log, with the time that an entry there is recorded at."""
        return log.advance(self.tx, self.owner.space, self.now())

    def build_entry(
        self,
        stamp: WriteStamp,
        op: Op,
        when: tuple[int, int],
        body: Mapping[str, Any],
        memory: str = "",
        version: int = 0,
    ) -> LogEntry:
        """Build an entry of the author. ``when`` is its position and its time."""
        return LogEntry(
            position=when[0],
            op=op,
            recorded_at=when[1],
            actor=self.author.actor,
            trust=self.author.trust,
            reason=stamp.reason,
            origin=stamp.origin,
            key=key_hash(stamp.key),
            request=stamp.request,
            memory=memory,
            version=version,
            uuid=stamp.uuid or self.runtime.ids.uuid(),
            body=body,
        )

    def append(self, *entries: LogEntry) -> None:
        """Append entries to the log and queue their mirroring to the vault, if there is one."""
        log.append(self.tx, self.owner, *entries)
        vault_link.queue_mirror(self.tx, self.runtime, self.owner)

    def append_to_session(
        self,
        stamp: WriteStamp,
        op: Op,
        session: str,
        sequence: int | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> LogEntry:
        """Append an entry about a session, or about one event of it."""
        entry = self.build_entry(stamp, op, self.next_position(), {} if body is None else body)
        entry = replace(entry, session=session, sequence=sequence)
        self.append(entry)
        return entry

    # -- jobs ---------------------------------------------------------------------------------

    def queue(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        due_at: int | None = None,
        lane: str | None = None,
        yields: bool = False,
    ) -> int:
        """Queue a job, due now unless told otherwise. Jobs of one lane run in order.

        With ``yields``, later jobs of the lane run while this one waits for a retry.
        """
        now = self.now()
        due_at = now if due_at is None else due_at
        refers_to = payload or {}
        return jobs.add(
            self.tx, self.owner, kind, refers_to, due_at=due_at, now=now, lane=lane, yields=yields
        )

    def queue_expiry(self, state: Memory) -> None:
        """Queue the job that forgets a memory at its ``expires_at``, if it has one."""
        if state.expires_at is not None:
            self.queue("expire", {"memory": state.id}, due_at=state.expires_at)

    def queue_summary_mirror(self, session: str) -> None:
        """Queue the mirroring of a session's summary, which is not in the log."""
        vault_link.queue_summary_mirror(self.tx, self.runtime, self.owner, session)

    # -- memories -----------------------------------------------------------------------------

    def read_memory(self, place: MemoryRow) -> Memory:
        """Read the current state of a memory."""
        return index_check.read_current(self.tx, self.owner, place).state(self.user)

    def add_memory(self, draft: Draft, stamp: WriteStamp) -> Memory:
        """Append version 1 of a new memory and index it."""
        return self.add_memories([PendingMemory(self.new_memory_id(), draft, stamp)])[0]

    def new_memory_id(self, taken: Collection[str] = ()) -> str:
        """Return an id that no memory of the space has or had, and that is not in ``taken``."""
        for _ in range(100):
            candidate = self.runtime.ids.memory()
            if candidate not in taken and not log.id_taken(self.tx, self.owner, candidate):
                return candidate
        raise StoreError("the id source gave a hundred ids that are all taken: use another one")

    def add_memories(self, news: Sequence[PendingMemory]) -> list[Memory]:
        """Append version 1 of many memories, in order. Their ids are free, no two are equal."""
        if not news:
            return []
        tx, owner, now = self.tx, self.owner, self.now()
        whens = log.advance_each(tx, owner, [_recording_time(new.stamp, now) for new in news])
        states = [self._first_state(new, when[1]) for new, when in zip(news, whens, strict=True)]
        added = list(zip(news, states, whens, strict=True))
        self.append(
            *(
                self._version_entry(new.stamp, "remember", state, when, new.draft.document)
                for new, state, when in added
            )
        )
        texts = [self._fitting_text(state, new.draft.text) for new, state, _ in added]
        indexed = [
            index.IndexedMemory(position, position, state, text.passages)
            for text, (_, state, (position, _)) in zip(texts, added, strict=True)
        ]
        first = index.add_memories(tx, owner, indexed)
        self.put_vectors(first, *texts)
        for new, state, (position, _) in added:
            self._put_document(state.source, position, new.draft.document)
            self.queue_expiry(state)
        for kind, last in {state.kind: position for _, state, (position, _) in added}.items():
            self.evict(kind, sparing=last)
        return states

    def change_memory(
        self,
        place: MemoryRow,
        op: Op,
        stamp: WriteStamp,
        alter: StateChange,
        text: PreparedText | None = None,
        document: str | None = None,
    ) -> Memory:
        """Append the next version of a memory.

        ``text`` is given when the content changes, ``document`` is the hash of the document that
        the new content comes from. A change of content or labels indexes and embeds it again.
        """
        tx, owner = self.tx, self.owner
        entry = index_check.read_current(tx, owner, place)
        old = entry.state(self.user)
        now = _recording_time(stamp, self.now())
        altered = alter(old, log.recording_time(tx, owner, now))
        if altered is None and stamp.key is None:
            return old
        position, recorded_at = log.advance(tx, owner.space, now)
        # With a key, a version is written even when nothing changes: the repeated request must
        # find it, and not act on what the memory has become since.
        new = replace(altered or old, version=old.version + 1)
        hash_ = document or (entry.body or {}).get("document")
        self.append(self._version_entry(stamp, op, new, (position, recorded_at), hash_))
        unchanged = text is None and Labels.of(old) == Labels.of(new)
        if unchanged and (old.forgotten_at is None) == (new.forgotten_at is None):
            index.update_row(tx, owner, place, position, old, new)
            return new
        index.remove_memory(tx, owner, place, old)
        self.index_memory(place.first_position, position, new, text, document)
        return new

    def evict(self, kind: str, sparing: int | None = None) -> None:
        """Forget the actor's oldest memories beyond the cap of their kind, with that as the reason.

        What other actors remembered stays, and so do pinned memories and the one with the first
        position ``sparing``.
        """
        settings = self.runtime.settings
        cap = settings.max_facts if kind == "fact" else settings.max_notes
        if not cap:
            return
        statistics = index.statistics(self.tx, self.owner)
        if (statistics.facts if kind == "fact" else statistics.notes) <= cap:
            return
        actor = self.author.actor
        excess = index.count_by_actor(self.tx, self.owner, kind, actor) - cap
        if excess <= 0:
            return
        system = self.by(system_author(self.author.scope))
        stamp = WriteStamp(reason=f"the cap of {cap} {kind}s was reached")
        many = min(excess, MAX_EVICTED)
        for place in index.oldest_unpinned(self.tx, self.owner, kind, actor, many):
            if place.first_position != sparing:
                system.change_memory(
                    place, "forget", stamp, lambda old, at: replace(old, forgotten_at=at)
                )

    # -- the index ----------------------------------------------------------------------------

    def index_memory(
        self,
        first_position: int,
        position: int,
        state: Memory,
        text: PreparedText | None = None,
        document: str | None = None,
    ) -> None:
        """Put a state of a memory, which the index does not hold, into the index.

        ``position`` is the position of its entry, ``first_position`` that of version 1. Without
        ``text`` the stored content is split and embedded here.
        """
        if state.forgotten_at is not None:
            index.add_memory(self.tx, self.owner, first_position, position, state, [])
        else:
            text = self._fitting_text(state, text)
            first = index.add_memory(
                self.tx, self.owner, first_position, position, state, text.passages
            )
            self.put_vectors(first, text)
        self._put_document(state.source, first_position, document)

    def embed(self, content: str, passages: list[Passage]) -> PreparedText:
        """Embed the passages of a stored content, if the embedder is local."""
        embedder = self.runtime.embedder
        vectors = None
        if embedder is not None and not embedder.remote and passages:
            embeddings.require(self.tx, embedder)
            vectors = embedder.embed([passage.embedded for passage in passages])
        return PreparedText(content, passages, (), vectors)

    def _fitting_text(self, state: Memory, text: PreparedText | None) -> PreparedText:
        """Return the prepared text of a state, made again if it was prepared for other labels."""
        labels = Labels.of(state)
        if text is not None and text.labels == labels:
            return text
        return self.embed(state.content, memory_passages(state.content, labels))

    def put_vectors(self, first: int, *texts: PreparedText) -> None:
        """Store the vectors of texts whose passages are numbered from ``first`` without a gap.

        Where they have none yet, queue the job that makes them.
        """
        tx, owner, embedder = self.tx, self.owner, self.runtime.embedder
        made = [text.vectors for text in texts if text.vectors is not None]
        if made and embedder is not None:
            import numpy as np

            assert len(made) == len(texts)
            rows = np.concatenate(made)
            generation = embeddings.ensure(tx, embedder, rows.shape[1])
            tx.put_vectors(owner, generation.number, first, rows)
            return
        tx.many(
            "INSERT INTO unembedded (space, owner, passage) VALUES (?, ?, ?)",
            [(*owner, first + i) for i in range(sum(len(text.passages) for text in texts))],
        )
        if embedder is not None:
            embeddings.ensure(tx, embedder, None)
            now = self.now()
            jobs.add_once(tx, owner, "embed", due_at=now, now=now)

    # -- parts --------------------------------------------------------------------------------

    def _first_state(self, new: PendingMemory, recorded_at: int) -> Memory:
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
            user=self.user,
            session=draft.session,
            source=draft.source,
            trust=self.author.trust,
            pinned=draft.pinned,
            created_at=created_at,
            updated_at=created_at,
            happened_at=draft.happened_at,
            forgotten_at=None,
            expires_at=draft.expires_at,
            metadata=draft.metadata,
            valid_from=draft.valid_from,
            valid_to=draft.valid_to,
        )

    def _version_entry(
        self,
        stamp: WriteStamp,
        op: Op,
        state: Memory,
        when: tuple[int, int],
        document: str | None,
    ) -> LogEntry:
        more = {} if document is None else {"document": document}
        body = memory_body(state, **more)
        return self.build_entry(stamp, op, when, body, state.id, state.version)

    def _put_document(self, source: str | None, first_position: int, hash_: str | None) -> None:
        """Remember which memory a document was stored as, and the hash of its content."""
        if source is None or hash_ is None:
            return
        self.tx.run(
            "INSERT INTO documents (space, owner, source, born, hash) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (space, owner, source) DO UPDATE SET born = excluded.born, "
            "hash = excluded.hash",
            (*self.owner, source, first_position, hash_),
        )


def _recording_time(stamp: WriteStamp, now: int) -> int:
    """Return the time to record: that of an import if it brought one, but never a future one."""
    return now if stamp.recorded_at is None else min(stamp.recorded_at, now)
