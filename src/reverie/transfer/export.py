"""Export the log of an owner as JSON records, one for each entry, with all history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from reverie.engine import log
from reverie.engine.log import LogEntry
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

    No transaction is open while the caller handles a record.
    """
    with runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, author.scope)
        end = 0 if owner is None else log.last_position(tx, owner)
    after = 0
    while owner is not None:
        with runtime.engine.read() as tx:
            tx.enter(owner)
            last = log.page_end(tx, owner, after, end)
            if last is None:
                return
            entries = log.entries(tx, owner, after, last, PAGE, skip=skip_damaged)
        for entry in entries:
            if session is not None and entry.session != session:
                continue
            yield to_record(entry)
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
