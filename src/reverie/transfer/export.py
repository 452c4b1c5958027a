"""Export the log of an owner as JSON records, one for each entry, with all history."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from reverie.engine import log
from reverie.engine.log import LogEntry
from reverie.protocols import Owner
from reverie.write import owners
from reverie.write.runtime import Runtime
from reverie.write.writer import Author

FORMAT = 1
# The number of entries read in one transaction.
PAGE = 1_000


class UnreadableRecord(NamedTuple):
    """A part of an import file that is not a record; ``why`` says what is wrong with it."""

    place: str
    why: str


Record = Mapping[str, Any]


def export(
    runtime: Runtime,
    author: Author,
    session: str | None = None,
    *,
    skip_damaged: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield a record for every log entry of the author's scope, or of one of its sessions.

    No transaction is open while the caller handles a record. A scope without a user has two owners:
    records of what was said without a name, and learned from it, are marked as ``unnamed``.
    """
    with runtime.engine.read() as tx:
        found = owners.writable_owners(tx, author.scope)
        if session is not None and author.scope.user is None:
            owner = owners.find_target(tx, author.scope, owners.session_target(session))
            found = [] if owner is None else [owner]
        end = log.last_position(tx, found[0]) if found else 0
    pages = [_entries(runtime, owner, end, skip_damaged) for owner in found]
    for owner, entry in heapq.merge(*pages, key=lambda pair: pair[1].position):
        if session is None or entry.session == session:
            unnamed = author.scope.user is None and owner.number != log.SHARED_OWNER
            yield {**to_record(entry), **({"unnamed": True} if unnamed else {})}


def _entries(
    runtime: Runtime, owner: Owner, end: int, skip_damaged: bool
) -> Iterator[tuple[Owner, LogEntry]]:
    """Yield the entries of an owner up to a position, read in pages."""
    after = 0
    while True:
        with runtime.engine.read() as tx:
            tx.enter(owner)
            last = log.page_end(tx, owner, after, end)
            if last is None:
                return
            entries = log.entries(tx, owner, after, last, PAGE, skip=skip_damaged)
        yield from ((owner, entry) for entry in entries)
        after = last


def to_record(entry: LogEntry) -> dict[str, Any]:
    """Convert a log entry to a record.

    The body of an erase is left out: it has positions, which mean nothing in another store.
    """
    about: dict[str, Any] = {"memory": entry.memory, "version": entry.version}
    if entry.session is not None:
        about = {"session": entry.session, "sequence": entry.sequence}
    return {
        "reverie": FORMAT,
        "op": entry.op,
        **about,
        "uuid": entry.uuid,
        "recorded_at": entry.recorded_at,
        "actor": entry.actor,
        "trust": entry.trust,
        "reason": entry.reason,
        "origin": entry.origin,
        "key": entry.key,
        "request": entry.request,
        "body": None if entry.op == "erase" else entry.body,
    }
