"""Everything that one source wrote, forgotten at once: the answer to a source that lied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reverie.engine import index, index_check, log
from reverie.engine.index import Place
from reverie.engine.log import Entry
from reverie.errors import NotFound
from reverie.model import Memory
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import plain_name
from reverie.write import validate, writer
from reverie.write.runtime import Resources
from reverie.write.writer import Author, Stamp

CHUNK = 500


def as_kept(resources: Resources, source: str) -> str:
    """The name of a source as memories carry it."""
    plain_name(source, "source", validate.MOST_SOURCE_CHARS)
    kept = resources.redaction.quiet(source, "source")
    return plain_name(kept, "source", validate.MOST_SOURCE_CHARS)


def listed(resources: Resources, author: Author, source: str) -> list[Memory]:
    """What would be forgotten, the oldest first."""
    with resources.engine.read() as tx:
        owner = log.find(tx, author.scope)
        if owner is None:
            return []
        return [entry.state(author.scope.user) for _, entry in _written_by(tx, owner, source)]


def forget(resources: Resources, author: Author, source: str, stamp: Stamp) -> list[Memory]:
    """All of it in one transaction, each with a version that ``restore`` undoes."""
    with writer.writing(resources, author.scope) as (tx, owner):
        done = writer.repeated(tx, owner, stamp)
        if done is not None:
            return _forgotten_with(tx, owner, author, done)
        # The key stands with the first; the request, with each, says which belong to it.
        keys = iter([stamp.key])
        return [
            writer.change_in(
                tx,
                resources,
                owner,
                author,
                place,
                "forget",
                stamp._replace(key=next(keys, None)),
                lambda old, at: replace(old, forgotten_at=at),
            )
            for place, _ in list(_written_by(tx, owner, source))
        ]


def _written_by(tx: Transaction, owner: Owner, source: str) -> Iterator[tuple[Place, Entry]]:
    """What an owner knows from a source, also what only one of its sessions recalls."""
    places = index.places(tx, owner, index.Filter(sessions=None))
    places.sort(key=lambda place: place.born)
    for first in range(0, len(places), CHUNK):
        chunk = places[first : first + CHUNK]
        for place, entry in index_check.states(tx, owner, chunk):
            if entry.body is not None and entry.body["source"] == source:
                yield place, entry


def _forgotten_with(tx: Transaction, owner: Owner, author: Author, done: Entry) -> list[Memory]:
    """What a key already stands for: what is forgotten in one transaction follows each other."""
    states = []
    for entry in log.all_entries(tx, owner, after=done.position - 1):
        if entry.request != done.request or entry.op != "forget":
            break
        if entry.body is None:
            raise NotFound(f"memory {entry.memory} was erased after this key was used")
        states.append(entry.state(author.scope.user))
    return states
