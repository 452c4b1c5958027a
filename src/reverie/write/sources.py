"""Everything that one source wrote, forgotten at once: the answer to a source that lied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reverie.engine import index, index_check, log
from reverie.engine.index import MemoryRow
from reverie.engine.log import LogEntry
from reverie.errors import NotFound
from reverie.model import Memory
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import require_name
from reverie.write import validate, writer
from reverie.write.runtime import Runtime
from reverie.write.writer import Author, WriteStamp

CHUNK = 500


def normalize_source(runtime: Runtime, source: str) -> str:
    """The name of a source as memories carry it."""
    require_name(source, "source", validate.MAX_SOURCE_CHARS)
    kept = runtime.redaction.quiet(source, "source")
    return require_name(kept, "source", validate.MAX_SOURCE_CHARS)


def list_memories(runtime: Runtime, author: Author, source: str) -> list[Memory]:
    """What would be forgotten, the oldest first."""
    with runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, author.scope)
        if owner is None:
            return []
        return [entry.state(author.scope.user) for _, entry in _memories_from(tx, owner, source)]


def forget(runtime: Runtime, author: Author, source: str, stamp: WriteStamp) -> list[Memory]:
    """All of it in one transaction, each with a version that ``restore`` undoes."""
    with writer.write_transaction(runtime, author.scope) as (tx, owner):
        done = writer.find_repeated(tx, owner, stamp)
        if done is not None:
            return _repeated_forgets(tx, owner, author, done)
        # The key stands with the first; the request, with each, says which belong to it.
        keys = iter([stamp.key])
        return [
            writer.change_in(
                tx,
                runtime,
                owner,
                author,
                place,
                "forget",
                stamp._replace(key=next(keys, None)),
                lambda old, at: replace(old, forgotten_at=at),
            )
            for place, _ in list(_memories_from(tx, owner, source))
        ]


def _memories_from(
    tx: Transaction, owner: Owner, source: str
) -> Iterator[tuple[MemoryRow, LogEntry]]:
    """What an owner knows from a source, also what only one of its sessions recalls."""
    places = index.list_memories(tx, owner, index.Filter(sessions=None))
    places.sort(key=lambda place: place.first_position)
    for first in range(0, len(places), CHUNK):
        chunk = places[first : first + CHUNK]
        for place, entry in index_check.read_current_entries(tx, owner, chunk):
            if entry.body is not None and entry.body["source"] == source:
                yield place, entry


def _repeated_forgets(
    tx: Transaction, owner: Owner, author: Author, done: LogEntry
) -> list[Memory]:
    """What a key already stands for: what is forgotten in one transaction follows each other."""
    states = []
    for entry in log.all_entries(tx, owner, after=done.position - 1):
        if entry.request != done.request or entry.op != "forget":
            break
        if entry.body is None:
            raise NotFound(f"memory {entry.memory} was erased after this key was used")
        states.append(entry.state(author.scope.user))
    return states
